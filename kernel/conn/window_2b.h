/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Windows of type 2B: bound and ended on the send queue of an endpoint.
 */
#ifndef _MEMREG_CONN_WINDOW_2B_H
#define _MEMREG_CONN_WINDOW_2B_H

#include <linux/types.h>

struct ib_memreg_wr;
struct memreg_endpoint;
struct memreg_key;
struct memreg_kmr;
struct memreg_slot;
struct memreg_ucmd;
struct memreg_window;

int memreg_window_post_bind(struct memreg_ucmd *ucmd,
			    struct memreg_endpoint *ep,
			    const struct ib_memreg_wr *wr,
			    struct memreg_kmr *mr, struct memreg_slot *slot);
int memreg_window_post_invalidate(struct memreg_ucmd *ucmd,
				  struct memreg_endpoint *ep,
				  const struct ib_memreg_wr *wr,
				  struct memreg_slot *slot);
void memreg_window_post_undo(struct memreg_slot *slot);
const struct memreg_key *memreg_window_key(const struct memreg_window *window);
void memreg_window_end(struct memreg_window *window, bool idle);
void memreg_window_let_go(struct memreg_window *window);
bool memreg_window_bound(const struct memreg_slot *slot);
void memreg_window_end_deferred(const struct memreg_slot *slot);
void memreg_window_invalidated(struct memreg_slot *slot, bool done);
u32 memreg_window_remote_invalidate(struct memreg_endpoint *ep, u32 rkey);

#endif /* _MEMREG_CONN_WINDOW_2B_H */
