/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Classifies mmu notifier events by their effect on pinned pages: see
 * kernel/watch/watch.c.
 */
#ifndef _MEMREG_WATCH_EVENT_H
#define _MEMREG_WATCH_EVENT_H

#include <linux/jiffies.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>

/* Delay from a suspect event to the check, and from a check to the next one. */
#define MEMREG_LOOK_DELAY	msecs_to_jiffies(10)

/*
 * A check that has no result is given up after this time, and not before it was
 * tried this often: within the time, it is tried more than twice as often.
 */
#define MEMREG_LOOK_LIMIT	(HZ * 9 / 10)
#define MEMREG_LOOK_TRIES	32

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

/**
 * memreg_look_is_futile() - Give up a check of the mapping?
 * @since: Jiffies of the first suspect event
 * @tries: Number of checks since then, all without a result
 *
 * The time alone does not count. If the worker had no CPU for that long, or the
 * machine stood still, there may have been no check at all.
 *
 * Return: true if the event counts as a change.
 */
static inline bool memreg_look_is_futile(unsigned long since,
					 unsigned int tries)
{
	return tries >= MEMREG_LOOK_TRIES &&
	       time_after_eq(jiffies, since + MEMREG_LOOK_LIMIT);
}

#endif /* _MEMREG_WATCH_EVENT_H */
