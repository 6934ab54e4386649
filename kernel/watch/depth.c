// SPDX-License-Identifier: GPL-2.0-only
/*
 * The depth of monitors: how many watch one page of an address space.
 *
 * The thread that changes the mapping of a page calls each monitor of that
 * page, once for each mapping, and may belong to another user, who truncates a
 * file. So a process can't have any number of monitors of one page: a monitor
 * is refused if IB_MEMREG_MONITOR_DEPTH (D) monitors of the process watch its
 * first, its middle, or its last page already.
 *
 * This bounds the monitors of every page. Of those that watch a page, take the
 * one that was inserted last. At most 3 * (D - 1) of the others watch its
 * first, middle or last page. The rest watch the page, but none of these three:
 * each lies between the first and the middle page, or between the middle and
 * the last, and so is less than half as long. The same holds for the rest.
 * Lengths of up to 2^35 pages halve at most 35 times, so the sets are at most
 * 36: fewer than 3 * D * 36 monitors watch the page, with addresses of 47 bits.
 * If all watch the same range, at most D do.
 *
 * A large monitor can still watch the memory of any number of small ones.
 */
#include <linux/interval_tree.h>
#include <linux/mm.h>

#include "core.h"
#include "watch/depth.h"
#include "watch/space.h"

/* Do as many monitors watch a page as may? */
static bool memreg_depth_is_full(struct memreg_space *space, unsigned long page)
{
	struct interval_tree_node *node;
	unsigned int n = 0;

	lockdep_assert_held(&space->lock);

	for (node = interval_tree_iter_first(&space->monitors, page, page);
	     node && n < IB_MEMREG_MONITOR_DEPTH;
	     node = interval_tree_iter_next(node, page, page))
		n++;
	return n == IB_MEMREG_MONITOR_DEPTH;
}

/**
 * memreg_depth_add() - Add a monitor, unless too many watch its pages
 * @space: The address space
 * @node: The monitor's node, to be removed by memreg_depth_remove()
 * @start: First address, a multiple of the page size
 * @length: Bytes, a multiple of the page size, from one page
 *
 * Return: true if it was added.
 */
bool memreg_depth_add(struct memreg_space *space,
		      struct interval_tree_node *node, unsigned long start,
		      unsigned long length)
{
	unsigned long first = start >> PAGE_SHIFT;
	unsigned long last = first + (length >> PAGE_SHIFT) - 1;
	bool full;

	node->start = first;
	node->last = last;
	spin_lock(&space->lock);
	full = memreg_depth_is_full(space, first) ||
	       memreg_depth_is_full(space, first + (last - first) / 2) ||
	       memreg_depth_is_full(space, last);
	if (!full)
		interval_tree_insert(node, &space->monitors);
	spin_unlock(&space->lock);
	return !full;
}

/**
 * memreg_depth_remove() - Remove a monitor
 * @space: The address space
 * @node: The monitor's node, which memreg_depth_add() has added
 */
void memreg_depth_remove(struct memreg_space *space,
			 struct interval_tree_node *node)
{
	spin_lock(&space->lock);
	interval_tree_remove(node, &space->monitors);
	spin_unlock(&space->lock);
}
