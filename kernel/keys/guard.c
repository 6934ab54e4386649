// SPDX-License-Identifier: GPL-2.0-only
/*
 * Guards: when the user's mapping goes, the keys to its pages die.
 *
 * Long-term pins keep pages from being reused, but not from being unmapped: a
 * key that outlives the mapping gives access to pages that the user no longer
 * sees. A guard is a watch (watch.c) on the range of an MR. Before an unmap
 * returns, the guard kills the MR's keys and those of the windows bound to it,
 * and marks the MR STALE. A guard never releases pages: destroying the MR does.
 * kill.c describes how keys die, and what a notifier waits for.
 *
 * An MR can be a leaf of compositions. Their keys give access to its pages as
 * well, so the guard kills them along with the MR's own. See tie.c. Likewise the
 * guard revokes the exports of an MR: see export.c.
 */
#include <linux/scatterlist.h>
#include <linux/wait_bit.h>

#include "keys/guard.h"
#include "keys/kill.h"
#include "pages/export.h"
#include "pages/region.h"
#include "pages/tie.h"
#include "pages/trace.h"
#include "pages/user.h"
#include "stats.h"
#include "watch/watch.h"

static struct memreg_region *memreg_guard_region(struct memreg_kwatch *watch)
{
	return container_of(watch, struct memreg_region, guard);
}

/* Compare pages of a region with the mapping, from where @look stands. */
static enum memreg_verdict memreg_guard_compare(struct memreg_kwatch *watch,
						struct memreg_look *look,
						unsigned int *pages)
{
	return memreg_region_compare(memreg_guard_region(watch), look, pages,
				     memreg_watch_page);
}

/* Count and trace a region that has become stale. */
static void memreg_guard_stale(struct memreg_kwatch *watch)
{
	struct memreg_region *region = memreg_guard_region(watch);

	/* Not confirmed: no MR exists yet, and its registration starts over. */
	if (watch->confirmed)
		memreg_count(region->mdev, IB_MEMREG_STAT_GUARD_REVOCATIONS,
			     1);
	trace_memreg_region_stale(region);
}

/*
 * Kill all keys to a stale region, those of all compositions of it, and its
 * exports. Returns true if some of them are not dead yet.
 */
static bool memreg_guard_gone(struct memreg_kwatch *watch)
{
	struct memreg_region *region = memreg_guard_region(watch);
	struct memreg_tie *tie = NULL;
	bool dying = memreg_exports_kill(region);

	dying |= memreg_kill_region(region);
	if (READ_ONCE(region->ties_dead))
		return dying;
	while ((tie = memreg_tie_next(region, tie))) {
		spin_lock(&region->mdev->frwr_lock);
		if (memreg_watch_set_stale(&tie->whole->guard))
			memreg_guard_stale(&tie->whole->guard);
		spin_unlock(&region->mdev->frwr_lock);
		dying |= memreg_kill_region(tie->whole);
	}
	/* A stale region becomes a leaf of no more compositions. */
	if (!dying)
		WRITE_ONCE(region->ties_dead, true);
	return dying;
}

static void memreg_guard_wait(struct memreg_kwatch *watch,
			      unsigned long deadline)
{
	struct memreg_region *region = memreg_guard_region(watch);

	memreg_kill_wait(region, deadline);
	if (memreg_kill_is_own(region))
		memreg_exports_wait(region);
}

const struct memreg_watch_ops memreg_guard_ops = {
	.compare = memreg_guard_compare,
	.stale = memreg_guard_stale,
	.gone = memreg_guard_gone,
	.wait = memreg_guard_wait,
};

/**
 * memreg_guard_revoke() - Revoke a region whose exporter takes the memory away
 * @region: Region that is keyed, and therefore in no composition
 *
 * The keys die along with their MRs, which memreg_region.held counts. Waits for
 * at most MEMREG_WATCH_TIMEOUT for the count to become 0.
 *
 * Context: may sleep.
 * Return: true if no packet reaches the memory any more; false if the wait
 * timed out.
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
 * memreg_guard_adopt() - Continue the generation of another region's guard
 * @region: Region that replaces @old
 * @old: The other region
 * @since: Generation of @old that the last call returned, or 0
 *
 * Return: the generation of @old.
 */
u64 memreg_guard_adopt(struct memreg_region *region,
		       struct memreg_region *old, u64 since)
{
	struct memreg_kwatch *guard = &region->guard;
	u64 generation;

	spin_lock(&region->mdev->frwr_lock);
	generation = old->guard.generation;
	WRITE_ONCE(guard->generation, guard->generation + generation - since);
	spin_unlock(&region->mdev->frwr_lock);
	return generation;
}
