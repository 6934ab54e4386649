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
#include <linux/hash.h>
#include <linux/interval_tree.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "core.h"
#include "mem/depth.h"

#define MEMREG_DEPTHS_BITS	8

/**
 * struct memreg_depth - The monitors of an address space, by their pages
 * @node: In memreg_depths; memreg_depths_lock
 * @mm: The address space, which each of @users holds
 * @users: Status tables of the address space; memreg_depths_lock
 * @lock: Protects @monitors
 * @monitors: Intervals of the monitors, in pages
 */
struct memreg_depth {
	struct hlist_node node;
	struct mm_struct *mm;
	unsigned long users;
	spinlock_t lock;
	struct rb_root_cached monitors;
};

/* Those of all address spaces, by the hash of @mm. */
static DEFINE_SPINLOCK(memreg_depths_lock);
static struct hlist_head memreg_depths[1 << MEMREG_DEPTHS_BITS];

/*
 * Address spaces
 */

static struct hlist_head *memreg_depth_list(const struct mm_struct *mm)
{
	return &memreg_depths[hash_ptr(mm, MEMREG_DEPTHS_BITS)];
}

static struct memreg_depth *memreg_depth_find(const struct mm_struct *mm)
{
	struct memreg_depth *depth;

	lockdep_assert_held(&memreg_depths_lock);

	hlist_for_each_entry(depth, memreg_depth_list(mm), node) {
		if (depth->mm == mm) {
			depth->users++;
			return depth;
		}
	}
	return NULL;
}

static struct memreg_depth *memreg_depth_new(struct mm_struct *mm)
{
	struct memreg_depth *depth;

	depth = kzalloc(sizeof(*depth), GFP_KERNEL_ACCOUNT);
	if (!depth)
		return NULL;
	depth->mm = mm;
	depth->users = 1;
	spin_lock_init(&depth->lock);
	depth->monitors = RB_ROOT_CACHED;
	return depth;
}

/**
 * memreg_depth_get() - Find or make the memreg_depth of an address space
 * @mm: The address space, which the caller holds until memreg_depth_put()
 *
 * Return: the memreg_depth, or NULL if there is no memory.
 */
struct memreg_depth *memreg_depth_get(struct mm_struct *mm)
{
	struct memreg_depth *depth, *new;

	spin_lock(&memreg_depths_lock);
	depth = memreg_depth_find(mm);
	spin_unlock(&memreg_depths_lock);
	if (depth)
		return depth;
	new = memreg_depth_new(mm);
	if (!new)
		return NULL;
	spin_lock(&memreg_depths_lock);
	depth = memreg_depth_find(mm);
	if (!depth)
		hlist_add_head(&new->node, memreg_depth_list(mm));
	spin_unlock(&memreg_depths_lock);
	if (!depth)
		return new;
	kfree(new);
	return depth;
}

/**
 * memreg_depth_put() - Drop a reference of a memreg_depth
 * @depth: The memreg_depth, from memreg_depth_get(), or NULL
 */
void memreg_depth_put(struct memreg_depth *depth)
{
	bool last;

	if (!depth)
		return;
	spin_lock(&memreg_depths_lock);
	last = !--depth->users;
	if (last)
		hlist_del(&depth->node);
	spin_unlock(&memreg_depths_lock);
	if (!last)
		return;
	WARN_ON_ONCE(!RB_EMPTY_ROOT(&depth->monitors.rb_root));
	kfree(depth);
}

/*
 * Monitors
 */

/* Do as many monitors watch a page as may? */
static bool memreg_depth_is_full(struct memreg_depth *depth, unsigned long page)
{
	struct interval_tree_node *node;
	unsigned int n = 0;

	lockdep_assert_held(&depth->lock);

	for (node = interval_tree_iter_first(&depth->monitors, page, page);
	     node && n < IB_MEMREG_MONITOR_DEPTH;
	     node = interval_tree_iter_next(node, page, page))
		n++;
	return n == IB_MEMREG_MONITOR_DEPTH;
}

/**
 * memreg_depth_add() - Add a monitor, unless too many watch its pages
 * @depth: The address space
 * @node: The monitor's node, to be removed by memreg_depth_remove()
 * @start: First address, a multiple of the page size
 * @length: Bytes, a multiple of the page size, from one page
 *
 * Return: true if it was added.
 */
bool memreg_depth_add(struct memreg_depth *depth,
		      struct interval_tree_node *node, unsigned long start,
		      unsigned long length)
{
	unsigned long first = start >> PAGE_SHIFT;
	unsigned long last = first + (length >> PAGE_SHIFT) - 1;
	bool full;

	node->start = first;
	node->last = last;
	spin_lock(&depth->lock);
	full = memreg_depth_is_full(depth, first) ||
	       memreg_depth_is_full(depth, first + (last - first) / 2) ||
	       memreg_depth_is_full(depth, last);
	if (!full)
		interval_tree_insert(node, &depth->monitors);
	spin_unlock(&depth->lock);
	return !full;
}

/**
 * memreg_depth_remove() - Remove a monitor
 * @depth: The address space
 * @node: The monitor's node, which memreg_depth_add() has added
 */
void memreg_depth_remove(struct memreg_depth *depth,
			 struct interval_tree_node *node)
{
	spin_lock(&depth->lock);
	interval_tree_remove(node, &depth->monitors);
	spin_unlock(&depth->lock);
}
