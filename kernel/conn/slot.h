/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Slots: places on a queue, and the work requests in them.
 */
#ifndef _MEMREG_CONN_SLOT_H
#define _MEMREG_CONN_SLOT_H

#include <linux/llist.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <uapi/rdma/ib_memreg.h>

struct memreg_kmr;
struct memreg_queue;
struct memreg_kring;
struct memreg_uring;
struct memreg_window;

/**
 * struct memreg_slot_sge - A range of an MR in a work request
 * @mr: The MR; the first range in it holds a reference for all its ranges
 * @length: Bytes, from 1
 * @first: Entry that memreg_region_find() returns for @offset
 * @offset: First byte
 */
struct memreg_slot_sge {
	struct memreg_kmr *mr;
	u32 length;
	u32 first;
	u64 offset;
};

/**
 * struct memreg_slot - A place on a queue, and the work request in it
 * @cqe: Completion of the work request
 * @queue: The queue
 * @node: In memreg_queue.free, or in memreg_queue.early until the QP is made
 * @user_data: User data of the user's work request
 * @opcode: enum ib_memreg_opcode
 * @signalled: The user wants a completion
 * @part: The user's work request continues in the next slot
 * @used: The slot has a work request
 * @length: Bytes that the completion of a send reports
 * @bounce: Most bytes of a received message that go to the slot's buffer
 * @window: BIND: the window, until the work request is posted. INVALIDATE: the
 *	window, claimed until the work request has completed
 * @window_id: Window that the completion reports
 * @rkey: BIND: the rkey
 * @uring: Command of io_uring that it belongs to, or NULL
 * @nr_sges: Number of @sges
 * @index: Index among the slots of its queue
 * @sges: Local memory
 */
struct memreg_slot {
	struct ib_cqe cqe;
	struct memreg_queue *queue;
	struct llist_node node;
	u64 user_data;
	u16 opcode;
	bool used;
	bool signalled;
	bool part;
	u32 length;
	u32 bounce;
	struct memreg_window *window;
	u32 window_id;
	u32 rkey;
	struct memreg_uring *uring;
	u32 nr_sges;
	u32 index;
	struct memreg_slot_sge sges[];
};

/* Cost of ending a slot, in units of a slot with few SGEs. */
static inline unsigned int memreg_slot_cost(const struct memreg_slot *slot)
{
	/* The window of a BIND is looked up. */
	return 1 + slot->nr_sges / 4 + (slot->opcode == IB_MEMREG_OP_BIND);
}

static inline struct memreg_slot *memreg_wc_slot(const struct ib_wc *wc)
{
	return container_of(wc->wr_cqe, struct memreg_slot, cqe);
}

#endif /* _MEMREG_CONN_SLOT_H */
