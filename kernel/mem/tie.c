// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ties: what a guard has to know of regions that are made of others.
 *
 * The keys of a composition lead to the pages of its leaves, and die when one
 * of those goes. Each leaf has a list of the compositions that it is in. A
 * guard walks the list without the lock: it holds memreg_region.draining of the
 * composition that it is at, and as long as that is not 0, the composition
 * neither goes nor cuts a tie. What a guard does there is bounded, see guard.c.
 */
#include <linux/wait_bit.h>

#include "device.h"
#include "mem/region.h"
#include "mem/tie.h"

/**
 * memreg_tie_make() - Let the guard of a leaf know of a composition
 * @tie: The tie
 * @whole: Region of the composition, which has no keys yet
 * @leaf: Region of the leaf, which stays until memreg_tie_cut() returned
 *
 * Return: false if the leaf is stale, and the tie is not made.
 */
bool memreg_tie_make(struct memreg_tie *tie, struct memreg_region *whole,
		     struct memreg_region *leaf)
{
	bool stale;

	tie->whole = whole;
	spin_lock(&leaf->mdev->frwr_lock);
	stale = leaf->guard.stale;
	if (!stale)
		list_add_tail(&tie->node, &leaf->ties);
	spin_unlock(&leaf->mdev->frwr_lock);
	return !stale;
}

/**
 * memreg_tie_cut() - Have the guard of a leaf forget a composition
 * @tie: Tie of a composition without keys
 *
 * Context: may sleep, for as long as a guard waits for keys.
 */
void memreg_tie_cut(struct memreg_tie *tie)
{
	struct memreg_region *whole = tie->whole;
	bool cut;

	do {
		wait_var_event(&whole->draining,
			       !atomic_read(&whole->draining));
		spin_lock(&whole->mdev->frwr_lock);
		cut = !atomic_read(&whole->draining);
		if (cut)
			list_del(&tie->node);
		spin_unlock(&whole->mdev->frwr_lock);
	} while (!cut);
}

/**
 * memreg_tie_next() - Walk the compositions of a leaf
 * @leaf: The leaf, which stays
 * @tie: What the last call returned, or NULL to begin
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
