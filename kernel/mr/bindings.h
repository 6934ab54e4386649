/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Windows of type 2B by their rkeys.
 */
#ifndef _MEMREG_MR_BINDINGS_H
#define _MEMREG_MR_BINDINGS_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct memreg_window;

/* Logarithm of the number of hash lists: at first, and at most. */
#define MEMREG_BINDINGS_BITS		4
#define MEMREG_BINDINGS_BITS_MAX	12

/**
 * struct memreg_bindings - Windows of type 2B of an endpoint, by their rkeys
 * @lock: Protects the fields below, with interrupts off
 * @bits: Logarithm of the number of @lists
 * @count: Number of windows
 * @lists: The windows, by memreg_window.bound_node
 * @first: @lists, until there are many windows
 */
struct memreg_bindings {
	spinlock_t lock;
	u32 bits;
	u32 count;
	struct hlist_head *lists;
	struct hlist_head first[1U << MEMREG_BINDINGS_BITS];
};

void memreg_bindings_init(struct memreg_bindings *bound);
void memreg_bindings_fini(struct memreg_bindings *bound);
struct memreg_window *memreg_bound_find(struct memreg_bindings *bound,
					u32 rkey);
void memreg_bound_add(struct memreg_bindings *bound,
		      struct memreg_window *window);
void memreg_bound_remove(struct memreg_bindings *bound,
			 struct memreg_window *window);
void memreg_window_forget(struct memreg_window *window);

#endif /* _MEMREG_MR_BINDINGS_H */
