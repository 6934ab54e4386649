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

struct memreg_mr;
struct memreg_queue;
struct memreg_ring;
struct memreg_uring;
struct memreg_window;

/**
 * struct memreg_slot_sge - A range of an MR in a work request
 * @mr: The MR; the first range of it keeps a reference for all
 * @length: Bytes, from 1
 * @first: What memreg_region_find() finds for @offset
 * @offset: First byte
 */
struct memreg_slot_sge {
	struct memreg_mr *mr;
	u32 length;
	u32 first;
	u64 offset;
};

/**
 * struct memreg_slot - A place on a queue, and the work request in it
 * @cqe: Its completion
 * @queue: The queue
 * @node: In memreg_queue.free, or, while there is no QP, memreg_queue.early
 * @user_data: Of the user's work request
 * @opcode: enum ib_memreg_opcode
 * @signalled: The user wants a completion
 * @part: The user's work request goes on in the next slot
 * @used: There is one
 * @length: Bytes that the completion of a send reports
 * @bounce: Bytes at most that go to the buffer of a receive
 * @window: BIND and INVALIDATE: the window, claimed by the latter, until it is
 *	posted, and until it completed
 * @window_id: Window that the completion reports
 * @rkey: BIND: the rkey
 * @uring: Command of io_uring that it belongs to, or NULL
 * @nr_sges: Number of @sges
 * @index: Its place among the slots of its queue
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

/* What it takes to end a slot, in slots with few SGEs. */
static inline unsigned int memreg_slot_cost(const struct memreg_slot *slot)
{
	return 1 + slot->nr_sges / 4;
}

static inline struct memreg_slot *memreg_wc_slot(const struct ib_wc *wc)
{
	return container_of(wc->wr_cqe, struct memreg_slot, cqe);
}

/**
 * struct memreg_slot_ops - What a ring does with a completion
 * @bound: A BIND succeeded: does that end its window, so that @settle is to be
 *	called? Context: any.
 * @settle: Do what a slow completion asks for. Context: may sleep.
 * @done: Handle a completion, or a part of what it stands for. Context: any,
 *	with memreg_ring.lock held.
 */
struct memreg_slot_ops {
	bool (*bound)(const struct memreg_slot *slot);
	void (*settle)(const struct ib_wc *wc);
	unsigned int (*done)(struct memreg_ring *ring, const struct ib_wc *wc,
			     unsigned int max, bool *more);
};

/*
 * Does a completion end a window, for which a task has to sleep? Then it is to
 * be settled first.
 */
static inline bool memreg_slot_is_slow(const struct memreg_slot_ops *ops,
				       const struct ib_wc *wc)
{
	const struct memreg_slot *slot = memreg_wc_slot(wc);
	bool good = wc->status == IB_WC_SUCCESS;

	if (slot->opcode == IB_MEMREG_OP_RECV)
		return good && wc->wc_flags & IB_WC_WITH_INVALIDATE;
	if (slot->opcode == IB_MEMREG_OP_BIND)
		return good && ops->bound(slot);
	return slot->opcode == IB_MEMREG_OP_INVALIDATE;
}

#endif /* _MEMREG_CONN_SLOT_H */
