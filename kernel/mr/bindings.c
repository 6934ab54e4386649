// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows of type 2B, by rkey: an rkey that a peer invalidates must be that of
 * one of these windows, or the connection ends (I5).
 */
#include <linux/hash.h>
#include <linux/slab.h>

#include "mr/bindings.h"
#include "mr/grants.h"
#include "mr/window.h"

static struct hlist_head *memreg_bindings_list(struct hlist_head *lists,
					       u32 bits, u32 rkey)
{
	/* The low byte of an FRWR's rkey changes with each use of the FRWR. */
	return &lists[hash_32(rkey >> 8, bits)];
}

/**
 * memreg_bindings_init() - Initialize a table without windows
 * @bound: Windows of type 2B
 */
void memreg_bindings_init(struct memreg_bindings *bound)
{
	spin_lock_init(&bound->lock);
	bound->bits = MEMREG_BINDINGS_BITS;
	bound->count = 0;
	bound->lists = bound->first;
	memset(bound->first, 0, sizeof(bound->first));
}

/**
 * memreg_bindings_fini() - Free the lists
 * @bound: Windows of type 2B, empty by now
 */
void memreg_bindings_fini(struct memreg_bindings *bound)
{
	WARN_ON(bound->count);
	if (bound->lists != bound->first)
		kvfree(bound->lists);
}

/*
 * Quadruple the number of lists. If there is no memory for that, the present
 * lists just get longer. Callers are serialized by the lock of the send queue.
 */
static void memreg_bindings_grow(struct memreg_bindings *bound)
{
	u32 i, bits = bound->bits + 2;
	struct hlist_head *lists, *old = bound->lists;
	struct memreg_window *window;
	struct hlist_node *next;

	lists = kvcalloc(1U << bits, sizeof(*lists),
			 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!lists)
		return;
	spin_lock_irq(&bound->lock);
	for (i = 0; i < 1U << bound->bits; i++)
		hlist_for_each_entry_safe(window, next, &old[i], bound_node) {
			hlist_del(&window->bound_node);
			hlist_add_head(&window->bound_node,
				       memreg_bindings_list(lists, bits,
							    window->key.rkey));
		}
	bound->lists = lists;
	bound->bits = bits;
	spin_unlock_irq(&bound->lock);
	if (old != bound->first)
		kvfree(old);
}

/**
 * memreg_bound_find() - Find a window by its rkey
 * @bound: Windows of type 2B, whose lock is held
 * @rkey: The rkey
 *
 * Return: the window that is bound with this rkey, or NULL.
 */
struct memreg_window *memreg_bound_find(struct memreg_bindings *bound,
					u32 rkey)
{
	struct memreg_window *window;

	lockdep_assert_held(&bound->lock);

	hlist_for_each_entry(window, memreg_bindings_list(bound->lists,
							  bound->bits, rkey),
			     bound_node)
		if (window->key.rkey == rkey)
			return window;
	return NULL;
}

/**
 * memreg_bound_add() - Make a window findable by its rkey
 * @bound: Windows of type 2B
 * @window: Window that the caller has claimed
 *
 * Context: may sleep.
 */
void memreg_bound_add(struct memreg_bindings *bound,
		      struct memreg_window *window)
{
	/* Racing with a removal is harmless: it makes growing unnecessary. */
	if (data_race(bound->count) >> bound->bits &&
	    bound->bits < MEMREG_BINDINGS_BITS_MAX)
		memreg_bindings_grow(bound);
	spin_lock_irq(&bound->lock);
	hlist_add_head(&window->bound_node,
		       memreg_bindings_list(bound->lists, bound->bits,
					    window->key.rkey));
	bound->count++;
	spin_unlock_irq(&bound->lock);
}

/**
 * memreg_bound_remove() - Remove a window from the lookup by rkey
 * @bound: Windows of type 2B, whose lock is held
 * @window: The window; if it is not in @bound, this does nothing
 */
void memreg_bound_remove(struct memreg_bindings *bound,
			 struct memreg_window *window)
{
	lockdep_assert_held(&bound->lock);

	if (hlist_unhashed(&window->bound_node))
		return;
	hlist_del_init(&window->bound_node);
	bound->count--;
}

/**
 * memreg_window_forget() - Exclude a window from the invalidations of the peer
 * @window: Window of type 2B that the caller has claimed
 */
void memreg_window_forget(struct memreg_window *window)
{
	struct memreg_bindings *bound = &window->grants->bound;

	spin_lock_irq(&bound->lock);
	memreg_bound_remove(bound, window);
	window->end_deferred = false;
	spin_unlock_irq(&bound->lock);
}
