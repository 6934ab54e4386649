/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Windows: revocable grants on a part of an MR.
 */
#ifndef _MEMREG_MR_WINDOW_H
#define _MEMREG_MR_WINDOW_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/types.h>

#include "core.h"
#include "keys/key.h"

struct memreg_domain;
struct memreg_grants;
struct memreg_kmr;
struct memreg_lease;

/**
 * enum memreg_window_state - State of a window, which decides who may change it
 * @MEMREG_WINDOW_IDLE: It is not bound.
 * @MEMREG_WINDOW_BUSY: A call, or a completion, has claimed it.
 * @MEMREG_WINDOW_ENDING: The end of a connection or of a lease has claimed it.
 * @MEMREG_WINDOW_BOUND: It is bound.
 */
enum memreg_window_state {
	MEMREG_WINDOW_IDLE,
	MEMREG_WINDOW_BUSY,
	MEMREG_WINDOW_ENDING,
	MEMREG_WINDOW_BOUND,
};

/**
 * struct memreg_window - A window
 * @obj: Head
 * @domain: Its domain
 * @type: enum ib_memreg_window_type
 * @max_span: Most bytes that it can cover
 * @end_deferred: The peer has invalidated the key before the bind has
 *	completed; memreg_bindings.lock
 * @bound_node: In memreg_grants.bound, by the rkey in @key; only for type 2B;
 *	memreg_bindings.lock
 * @state: enum memreg_window_state; the fields below belong to the task that
 *	has claimed the window
 * @mr: MR that it is bound to; holds a reference
 * @mr_id: Id of @mr, for LIST
 * @grants: The memreg_grants of the endpoint that it is granted to, or NULL;
 *	changed with grant_lock
 * @grant_node: In memreg_grants.windows or @claimed of that; grant_lock
 * @lease: The lease that it ends with, or NULL; holds a reference; changed with
 *	grant_lock
 * @lease_id: Id of @lease, or 0, for LIST
 * @lease_node: In memreg_lease.windows or @claimed of that; grant_lock
 * @key: Its key
 */
struct memreg_window {
	struct memreg_object obj;
	struct memreg_domain *domain;
	u32 type;
	u64 max_span;
	bool end_deferred;
	struct hlist_node bound_node;
	atomic_t state;
	struct memreg_kmr *mr;
	u32 mr_id;
	struct memreg_grants *grants;
	struct list_head grant_node;
	struct memreg_lease *lease;
	u32 lease_id;
	struct list_head lease_node;
	struct memreg_key key;
};

static inline struct memreg_window *
memreg_to_window(struct memreg_object *obj)
{
	return container_of(obj, struct memreg_window, obj);
}

/* Claim a window that is in state @from. */
static inline bool memreg_window_claim(struct memreg_window *window,
				       enum memreg_window_state from)
{
	return atomic_cmpxchg(&window->state, from, MEMREG_WINDOW_BUSY) == from;
}

/* Is a window bound, and no call at work on it? */
static inline bool memreg_window_is_bound(const struct memreg_window *window)
{
	return atomic_read(&window->state) == MEMREG_WINDOW_BOUND;
}

/* Claim a bound window at the end of its connection or of its lease. */
static inline bool memreg_window_claim_ending(struct memreg_window *window)
{
	return atomic_cmpxchg(&window->state, MEMREG_WINDOW_BOUND,
			      MEMREG_WINDOW_ENDING) == MEMREG_WINDOW_BOUND;
}

static inline void memreg_window_unclaim(struct memreg_window *window,
					 enum memreg_window_state to)
{
	atomic_set_release(&window->state, to);
}

int memreg_window_alloc_ioctl(struct memreg_ucmd *ucmd);
int memreg_window_bind_ioctl(struct memreg_ucmd *ucmd);
int memreg_window_revoke_ioctl(struct memreg_ucmd *ucmd);
int memreg_bind_check(struct memreg_ucmd *ucmd, const struct memreg_kmr *mr,
		      const struct ib_memreg_bind *bind);
struct memreg_kmr *memreg_bind_keep_mr(struct memreg_ucmd *ucmd,
				       struct memreg_kmr *mr,
				       const struct ib_memreg_bind *bind);
struct memreg_kmr *memreg_bind_find_mr(struct memreg_ucmd *ucmd,
				       const struct ib_memreg_bind *bind);
int memreg_bind_lease(struct memreg_ucmd *ucmd, struct memreg_window *window,
		      u32 id);
int memreg_bind_describe(struct memreg_ucmd *ucmd,
			 struct memreg_window *window, struct memreg_kmr *mr,
			 const struct ib_memreg_bind *bind);
void memreg_window_trace_bind(const struct memreg_window *window);
extern const struct memreg_object_ops memreg_window_ops;

#endif /* _MEMREG_MR_WINDOW_H */
