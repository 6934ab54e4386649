// SPDX-License-Identifier: GPL-2.0-only
/*
 * Guards: when the user's mapping goes, the keys to its pages die.
 *
 * Long-term pins keep pages from being reused, but not from being unmapped: a
 * key that outlives the mapping leads to pages that the user sees no more. A
 * guard is a watch (watch.c) on the range of an MR. Before an unmap returns, it
 * kills the MR's keys and those of the windows bound to it, and marks the MR
 * STALE. Pages are never released there, but when the MR goes. kill.c says how
 * keys die, and what a notifier waits for.
 *
 * An MR can be a leaf of compositions: their keys lead to its pages as well,
 * and what is said of its keys goes for theirs. See tie.c.
 */
#include <linux/scatterlist.h>
#include <linux/wait_bit.h>

#include "mem/guard.h"
#include "mem/kill.h"
#include "mem/region.h"
#include "mem/tie.h"
#include "mem/trace_guard.h"
#include "mem/watch.h"
#include "stats.h"

static struct memreg_region *memreg_guard_region(struct memreg_watch *watch)
{
	return container_of(watch, struct memreg_region, guard);
}

/* Go on with a look at the pages of a region. */
static enum memreg_verdict memreg_guard_compare(struct memreg_watch *watch,
						struct memreg_look *look,
						unsigned int *pages)
{
	struct memreg_region *region = memreg_guard_region(watch);

	if (!region->source->compare)
		return MEMREG_GONE;
	return region->source->compare(region, look, pages, memreg_watch_page);
}

/* From here on no key to the region is made. */
static void memreg_guard_stale(struct memreg_watch *watch)
{
	struct memreg_region *region = memreg_guard_region(watch);

	/* Before that there is no MR: registering begins anew. */
	if (watch->settled)
		memreg_count(region->mdev, IB_MEMREG_STAT_GUARD_REVOCATIONS,
			     1);
	trace_memreg_region_stale(region);
}

/*
 * Have all keys to a region killed that is stale, and those of all compositions
 * that the region is in. Returns whether some of them are yet to die.
 */
static bool memreg_guard_gone(struct memreg_watch *watch)
{
	struct memreg_region *region = memreg_guard_region(watch);
	bool dying = memreg_kill_region(region);
	struct memreg_tie *tie = NULL;

	if (READ_ONCE(region->ties_dead))
		return dying;
	while ((tie = memreg_tie_next(region, tie))) {
		spin_lock(&region->mdev->frwr_lock);
		if (memreg_watch_set_stale(&tie->whole->guard))
			memreg_guard_stale(&tie->whole->guard);
		spin_unlock(&region->mdev->frwr_lock);
		dying |= memreg_kill_region(tie->whole);
	}
	/* Once it is stale, it is a leaf of no more of them. */
	if (!dying)
		WRITE_ONCE(region->ties_dead, true);
	return dying;
}

static void memreg_guard_wait(struct memreg_watch *watch,
			      unsigned long deadline)
{
	memreg_kill_wait(memreg_guard_region(watch), deadline);
}

const struct memreg_watch_ops memreg_guard_ops = {
	.compare = memreg_guard_compare,
	.stale = memreg_guard_stale,
	.gone = memreg_guard_gone,
	.wait = memreg_guard_wait,
};

/**
 * memreg_guard_revoke() - The exporter of a region's memory takes that away
 * @region: Region that is keyed, and therefore in no composition
 *
 * The keys die along with their MRs: what counts is memreg_region.held. It is
 * waited for as a guard waits.
 *
 * Context: may sleep.
 * Return: whether nothing reaches the memory any more.
 */
bool memreg_guard_revoke(struct memreg_region *region)
{
	spin_lock(&region->mdev->frwr_lock);
	if (memreg_watch_set_stale(&region->guard))
		memreg_guard_stale(&region->guard);
	spin_unlock(&region->mdev->frwr_lock);
	memreg_kill_region(region);
	if (wait_var_event_timeout(&region->held, !atomic_read(&region->held),
				   MEMREG_WATCH_TIMEOUT))
		return true;
	memreg_count(region->mdev, IB_MEMREG_STAT_GUARD_TIMEOUTS, 1);
	trace_memreg_guard_timeout(region);
	return false;
}

/**
 * memreg_guard_succeed() - Go on counting where another region's guard is
 * @region: Region that takes the place of the other
 * @old: The other region
 * @since: How far the other one had counted the last time, or 0
 *
 * Return: how far the other one has counted.
 */
u64 memreg_guard_succeed(struct memreg_region *region,
			 struct memreg_region *old, u64 since)
{
	struct memreg_watch *guard = &region->guard;
	u64 generation;

	spin_lock(&region->mdev->frwr_lock);
	generation = old->guard.generation;
	WRITE_ONCE(guard->generation, guard->generation + generation - since);
	spin_unlock(&region->mdev->frwr_lock);
	return generation;
}
