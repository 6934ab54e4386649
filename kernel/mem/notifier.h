/* SPDX-License-Identifier: GPL-2.0-only */
/* Interval notifiers, the first of an address space included. */
#ifndef _MEMREG_MEM_NOTIFIER_H
#define _MEMREG_MEM_NOTIFIER_H

#include <linux/mmu_notifier.h>

int memreg_notifier_insert(struct mmu_interval_notifier *notifier,
			   struct mm_struct *mm, unsigned long start,
			   unsigned long length,
			   const struct mmu_interval_notifier_ops *ops);
int memreg_notifier_init(void);
void memreg_notifier_exit(void);

#endif /* _MEMREG_MEM_NOTIFIER_H */
