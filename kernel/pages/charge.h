/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The limits of pinned memory.
 */
#ifndef _MEMREG_PAGES_CHARGE_H
#define _MEMREG_PAGES_CHARGE_H

#include <linux/types.h>

struct memreg_region;
struct user_struct;

int memreg_user_charge(struct memreg_region *region);
int memreg_memory_charge(struct user_struct *user, unsigned long npages);

#endif /* _MEMREG_PAGES_CHARGE_H */
