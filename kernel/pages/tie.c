// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ties: the link from a region's guard to the compositions of the region.
 *
 * The keys of a composition give access to the pages of its leaves, and die if
 * the mapping of a leaf changes. Each leaf has a list of the compositions of
 * it. A guard walks the list without the lock: it counts itself in
 * memreg_region.draining of the composition that it visits, and while that
 * count is not 0, the composition neither is freed nor removes a tie. A guard's
 * visit takes a bounded time, see guard.c.
 */
#include <linux/wait_bit.h>

#include "device.h"
#include "pages/region.h"
#include "pages/tie.h"

/**
 * memreg_tie_make() - Make a composition known to the guard of a leaf
 * @tie: The tie
 * @whole: Region of the composition, which has no keys yet
 * @leaf: Region of the leaf, which stays until memreg_tie_remove() returned
 *
 * Return: false if the leaf is stale, and the tie is not made.
 */
bool memreg_tie_make(struct memreg_tie *tie, struct memreg_region *whole,
		     struct memreg_region *leaf)
{
	bool stale;

	tie->whole = whole;
	tie->leaf = leaf;
	spin_lock(&leaf->mdev->frwr_lock);
	stale = leaf->guard.stale;
	if (!stale) {
		list_add_tail(&tie->node, &leaf->ties);
		leaf->guard.ties++;
	}
	spin_unlock(&leaf->mdev->frwr_lock);
	return !stale;
}

/**
 * memreg_tie_remove() - Remove a composition from the guard of a leaf
 * @tie: Tie of a composition without keys
 *
 * Context: may sleep, for as long as a guard waits for keys.
 */
void memreg_tie_remove(struct memreg_tie *tie)
{
	struct memreg_region *whole = tie->whole;
	bool removed;

	do {
		wait_var_event(&whole->draining,
			       !atomic_read(&whole->draining));
		spin_lock(&whole->mdev->frwr_lock);
		removed = !atomic_read(&whole->draining);
		if (removed) {
			list_del(&tie->node);
			tie->leaf->guard.ties--;
		}
		spin_unlock(&whole->mdev->frwr_lock);
	} while (!removed);
}

/**
 * memreg_tie_next() - Iterate over the compositions of a leaf
 * @leaf: The leaf, which the caller holds
 * @tie: Tie that the last call returned, or NULL to begin
 *
 * Return: the next tie, whose composition stays until the next call; or NULL,
 * and there is no next call.
 *
 * Context: process.
 */
struct memreg_tie *memreg_tie_next(struct memreg_region *leaf,
				   struct memreg_tie *tie)
{
	struct memreg_region *last = tie ? tie->whole : NULL;
	struct list_head *node;

	if (!tie && list_empty(&leaf->ties))
		return NULL;
	spin_lock(&leaf->mdev->frwr_lock);
	node = tie ? tie->node.next : leaf->ties.next;
	tie = NULL;
	if (node != &leaf->ties) {
		tie = list_entry(node, struct memreg_tie, node);
		atomic_inc(&tie->whole->draining);
	}
	spin_unlock(&leaf->mdev->frwr_lock);
	if (last && atomic_dec_and_test(&last->draining))
		wake_up_var(&last->draining);
	cond_resched();
	return tie;
}
