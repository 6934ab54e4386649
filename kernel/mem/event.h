/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What an event of an address space says of pages that are pinned: see
 * kernel/mem/watch.c.
 */
#ifndef _MEMREG_MEM_EVENT_H
#define _MEMREG_MEM_EVENT_H

#include <linux/mmu_notifier.h>
#include <linux/sched.h>

/**
 * enum memreg_verdict - What an event says of the pages, or a look at the
 *	mapping
 * @MEMREG_SAME: They are where they were.
 * @MEMREG_SUSPECT: They may have gone.
 * @MEMREG_GONE: They are mapped no more.
 */
enum memreg_verdict {
	MEMREG_SAME,
	MEMREG_SUSPECT,
	MEMREG_GONE,
};

/* Is it the kernel that does something on its own account? */
static inline bool memreg_event_by_kernel(void)
{
	return current->flags & PF_KTHREAD &&
	       !(current->flags & PF_USER_WORKER);
}

/**
 * memreg_event_classify() - Decide by an event if pinned pages have gone
 * @range: The event, whose change is made by the current task
 *
 * Return: MEMREG_GONE; MEMREG_SUSPECT: the mapping is to be looked at;
 * MEMREG_SAME: pinned pages stay where they are.
 */
static inline enum memreg_verdict
memreg_event_classify(const struct mmu_notifier_range *range)
{
	switch (range->event) {
	case MMU_NOTIFY_UNMAP:
	case MMU_NOTIFY_RELEASE:
		return MEMREG_GONE;
	case MMU_NOTIFY_CLEAR:
		return current->flags & PF_MEMALLOC ||
		       memreg_event_by_kernel() ? MEMREG_SUSPECT : MEMREG_GONE;
	case MMU_NOTIFY_PROTECTION_VMA:
		return MEMREG_SUSPECT;
	default:
		return MEMREG_SAME;
	}
}

/* Of a suspect event: does a kernel thread take pages away, not of reclaim? */
static inline bool
memreg_event_takes_pages(const struct mmu_notifier_range *range)
{
	/* Reclaim leaves a pinned page where it is, or in its file. */
	return range->event != MMU_NOTIFY_PROTECTION_VMA &&
	       !(current->flags & PF_MEMALLOC);
}

#endif /* _MEMREG_MEM_EVENT_H */
