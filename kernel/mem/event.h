/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Classifies mmu notifier events by their effect on pinned pages: see
 * kernel/mem/watch.c.
 */
#ifndef _MEMREG_MEM_EVENT_H
#define _MEMREG_MEM_EVENT_H

#include <linux/mmu_notifier.h>
#include <linux/sched.h>

/**
 * enum memreg_verdict - Outcome for pinned pages of an event, or of a check of
 *	the mapping
 * @MEMREG_SAME: The pages are still mapped.
 * @MEMREG_SUSPECT: The pages may no longer be mapped: check the mapping.
 * @MEMREG_GONE: The pages are no longer mapped.
 */
enum memreg_verdict {
	MEMREG_SAME,
	MEMREG_SUSPECT,
	MEMREG_GONE,
};

/* Is the current task a kernel thread that does not act for a process? */
static inline bool memreg_event_by_kernel(void)
{
	return current->flags & PF_KTHREAD &&
	       !(current->flags & PF_USER_WORKER);
}

/**
 * memreg_event_classify() - Classify an event by its effect on pinned pages
 * @range: The event, whose change is made by the current task
 *
 * Return: MEMREG_GONE; MEMREG_SUSPECT: the mapping must be checked;
 * MEMREG_SAME: pinned pages stay mapped.
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

/* Does a suspect event come from a kernel thread other than reclaim? */
static inline bool
memreg_event_takes_pages(const struct mmu_notifier_range *range)
{
	/* Reclaim leaves a pinned page mapped, or in its file's page cache. */
	return range->event != MMU_NOTIFY_PROTECTION_VMA &&
	       !(current->flags & PF_MEMALLOC);
}

#endif /* _MEMREG_MEM_EVENT_H */
