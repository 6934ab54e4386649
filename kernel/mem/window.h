/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Windows: revocable grants on a part of an MR.
 */
#ifndef _MEMREG_MEM_WINDOW_H
#define _MEMREG_MEM_WINDOW_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "core.h"

struct memreg_bindings;
struct memreg_endpoint;
struct memreg_key;
struct memreg_mr;
struct memreg_slot;
struct memreg_window;

/**
 * struct memreg_grants - The windows that end with an endpoint's connection
 * @windows: By memreg_window.grant_node; memreg_file.grant_lock
 * @closed: No more windows may be granted; memreg_file.grant_lock
 * @wait: Waits for @windows to be empty
 */
struct memreg_grants {
	struct list_head windows;
	bool closed;
	wait_queue_head_t wait;
};

/* Lists that windows of type 2B are found in: at first, and at most. */
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
int memreg_window_alloc(struct memreg_ucmd *ucmd);
int memreg_window_bind(struct memreg_ucmd *ucmd);
int memreg_window_revoke(struct memreg_ucmd *ucmd);
void memreg_window_revoke_plain(struct memreg_file *file,
				struct memreg_endpoint *ep);
void memreg_window_revoke_granted(struct memreg_file *file,
				  struct memreg_endpoint *ep);
int memreg_window_post_bind(struct memreg_ucmd *ucmd,
			    struct memreg_endpoint *ep,
			    const struct ib_memreg_wr *wr,
			    struct memreg_mr *mr, struct memreg_slot *slot);
int memreg_window_post_invalidate(struct memreg_ucmd *ucmd,
				  struct memreg_endpoint *ep,
				  const struct ib_memreg_wr *wr,
				  struct memreg_slot *slot);
void memreg_window_post_undo(struct memreg_slot *slot);
const struct memreg_key *memreg_window_key(const struct memreg_window *window);
bool memreg_window_bound(const struct memreg_slot *slot);
void memreg_window_doomed(const struct memreg_slot *slot);
void memreg_window_invalidated(struct memreg_slot *slot, bool done);
u32 memreg_window_remote_invalidate(struct memreg_endpoint *ep, u32 rkey);
extern const struct memreg_object_ops memreg_window_ops;

#endif /* _MEMREG_MEM_WINDOW_H */
