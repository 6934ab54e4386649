/* SPDX-License-Identifier: GPL-2.0-only */
/* Interval notifiers, the first of an address space included. */
#ifndef _MEMREG_WATCH_NOTIFIER_H
#define _MEMREG_WATCH_NOTIFIER_H

#include <linux/mm_types.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/signal.h>

#include "inject.h"

int memreg_notifier_insert_first(struct mmu_interval_notifier *notifier,
				 struct mm_struct *mm, unsigned long start,
				 unsigned long length,
				 const struct mmu_interval_notifier_ops *ops);

/**
 * memreg_notifier_insert() - Insert an interval notifier
 * @notifier: The notifier
 * @mm: Address space of the current process
 * @start: First address
 * @length: Bytes
 * @ops: Its operations
 *
 * Context: may sleep; see memreg_notifier_insert_first().
 * Return: 0; -ENOMEM; -EINTR after a fatal signal; -ERESTARTNOINTR.
 */
static inline int
memreg_notifier_insert(struct mmu_interval_notifier *notifier,
		       struct mm_struct *mm, unsigned long start,
		       unsigned long length,
		       const struct mmu_interval_notifier_ops *ops)
{
	int ret = memreg_inject(MEMREG_INJECT_NOTIFIER);

	if (ret)
		return ret;
	/* Once an address space has had a notifier, it keeps this structure. */
	if (READ_ONCE(mm->notifier_subscriptions))
		ret = mmu_interval_notifier_insert(notifier, mm, start, length,
						   ops);
	else
		ret = memreg_notifier_insert_first(notifier, mm, start, length,
						   ops);
	if (!ret)
		return 0;
	/* Any signal interrupts the first one, and the call is restarted. */
	if (ret == -EINTR && !fatal_signal_pending(current))
		return -ERESTARTNOINTR;
	return ret == -EINTR ? ret : -ENOMEM;
}

#endif /* _MEMREG_WATCH_NOTIFIER_H */
