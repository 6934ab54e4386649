// SPDX-License-Identifier: GPL-2.0-only
/*
 * Send and receive queues: what is posted to the device and has not completed.
 *
 * Each work request has a slot, with the MRs that it needs. They stay pinned
 * until its completion was taken, whatever becomes of their mapping (I1). A
 * slot goes together with an entry that is set aside in the ring (I10); only
 * the last slot of a user's work request can have an entry written, and of
 * those only the ones that are signalled, or fail. Slots of a command of
 * io_uring tell that instead.
 *
 * A send queue is a ring of slots. It completes in order, so that a completion
 * tells of all the slots before it as well: of those without one of their own,
 * that they succeeded. The last of these would stay when the connection ends,
 * so a marker is posted behind them then, which the QP in error flushes. A
 * receive queue has a list of free slots, as a shared one completes in any
 * order.
 *
 * Slots are taken by those who submit, under the queue's lock, and given back
 * by those who poll, under the ring's. The two meet in @posted and @free only.
 *
 * Whom a completion of a shared queue is for, only its QP tells. That may be
 * gone, if a device didn't flush it and was given no chance to do more, so
 * nothing in it is looked at: endpoints are found by the QP's address, and stay
 * until what their QP has left behind is through.
 */
#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include "conn/closing.h"
#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/trace.h"
#include "conn/uring.h"
#include "core.h"
#include "device.h"
#include "mem/mr.h"
#include "mem/region.h"
#include "mem/window.h"
#include "stats.h"

/* Longest that the last owner of a QP's address is waited for. */
#define MEMREG_JOIN	(10 * HZ)

/*
 * Submission
 */

/**
 * memreg_queue_reserve() - Make sure of room for work requests
 * @queue: The queue, whose lock is held
 * @count: Their number; as many slots are to be taken, before the next call
 *
 * Return: 0; -ENOSPC if there are no slots, -EAGAIN if the ring has no room.
 */
int memreg_queue_reserve(struct memreg_queue *queue, u32 count)
{
	lockdep_assert_held(&queue->lock);

	/* Who completes gives a slot back before he counts. */
	if (atomic_read_acquire(&queue->posted) + count > queue->depth)
		return -ENOSPC;
	return memreg_ring_claim(queue->ring, count) ? 0 : -EAGAIN;
}

/* Does an SGE before this one name the same MR? */
static bool memreg_slot_sge_repeats(const struct memreg_slot_sge *sges, u32 i)
{
	u32 n;

	for (n = 0; n < i; n++)
		if (sges[n].mr == sges[i].mr)
			return true;
	return false;
}

/**
 * memreg_slot_sge_keep() - Keep the MR of an SGE
 * @sges: SGEs of a work request
 * @i: Index of the one that was added; those before it are kept
 *
 * A work request has one reference to each of its MRs, however many of its SGEs
 * name it.
 */
void memreg_slot_sge_keep(const struct memreg_slot_sge *sges, u32 i)
{
	if (!memreg_slot_sge_repeats(sges, i))
		refcount_inc(&sges[i].mr->obj.users);
}

/**
 * memreg_slot_sges_put() - Let go of the MRs of a work request
 * @sges: Its SGEs
 * @count: Their number
 */
void memreg_slot_sges_put(const struct memreg_slot_sge *sges, u32 count)
{
	while (count--)
		if (!memreg_slot_sge_repeats(sges, count))
			memreg_object_put(&sges[count].mr->obj);
}

/* Let go of what a slot keeps. */
static void memreg_slot_release(struct memreg_slot *slot)
{
	slot->used = false;
	memreg_slot_sges_put(slot->sges, slot->nr_sges);
	slot->nr_sges = 0;
}

/**
 * memreg_queue_undo() - Give back a slot that was not posted
 * @slot: The slot that was taken last, and not been given back
 */
void memreg_queue_undo(struct memreg_slot *slot)
{
	struct memreg_queue *queue = slot->queue;

	lockdep_assert_held(&queue->lock);

	memreg_slot_release(slot);
	if (slot->uring)
		memreg_uring_remove(slot->uring);
	if (queue->send)
		queue->tail = slot->index;
	else
		llist_add(&slot->node, &queue->free);
	atomic_dec(&queue->posted);
	memreg_ring_unclaim(queue->ring, 1);
}

/**
 * memreg_slot_build_recv() - List the memory of a receive for the device
 * @slot: The slot
 * @lkey: Key for DMA addresses
 * @sges: Where to list it
 * @max: Entries that there is room for
 *
 * What goes to the slot's own buffer comes first; the user's memory behind it
 * begins where that would have ended.
 *
 * Return: number of entries, or -EMSGSIZE.
 */
int memreg_slot_build_recv(const struct memreg_slot *slot, u32 lkey,
			   struct ib_sge *sges, int max)
{
	u32 skip = slot->bounce;
	int n = 0, ret;
	u32 i, first;

	if (slot->bounce)
		n = memreg_slot_bounce(slot, lkey, sges);
	for (i = 0; i < slot->nr_sges; i++) {
		const struct memreg_slot_sge *sge = &slot->sges[i];
		u64 at = sge->offset + skip, length;

		if (skip >= sge->length) {
			skip -= sge->length;
			continue;
		}
		length = sge->length - skip;
		first = skip ? memreg_region_find(sge->mr->region, at) :
			       sge->first;
		skip = 0;
		ret = memreg_region_sges(sge->mr->region, first, at, &length,
					 lkey, &sges[n], max - n);
		if (length)
			return -EMSGSIZE;
		n += ret;
	}
	return n;
}

/*
 * Completion
 */

/* Did the memory of one of a slot's MRs go? */
static bool memreg_slot_is_stale(const struct memreg_slot *slot)
{
	u32 i;

	for (i = 0; i < slot->nr_sges; i++)
		if (READ_ONCE(slot->sges[i].mr->region->guard.stale))
			return true;
	return false;
}

/* Put the first bytes of a message where the user wanted them. */
static void memreg_slot_copy_back(const struct memreg_slot *slot, u32 length)
{
	const void *from = memreg_slot_buffer(slot);
	u32 i, left = min(length, slot->bounce);

	for (i = 0; left; i++) {
		const struct memreg_slot_sge *sge = &slot->sges[i];
		u32 n = min(left, sge->length);

		memreg_region_write(sge->mr->region, sge->offset, from, n);
		from += n;
		left -= n;
	}
	memreg_count(slot->queue->ring->mdev, IB_MEMREG_STAT_INLINE_COPIES, 1);
}

/*
 * Put the message of a receive, of which we have the first bytes, where it
 * belongs. Returns whether that is the entry.
 */
static bool memreg_slot_deliver(const struct memreg_slot *slot,
				u32 length, struct ib_memreg_cqe *entry)
{
	struct memreg_queue *queue = slot->queue;
	struct memreg_ring *ring = queue->ring;

	/* Without a buffer there is nothing to put anywhere. */
	if (!slot->bounce)
		return false;
	ib_dma_sync_single_for_cpu(ring->mdev->ibdev,
				   memreg_slot_buffer_dma(slot), slot->bounce,
				   DMA_BIDIRECTIONAL);
	if (length > slot->bounce) {
		memreg_slot_copy_back(slot, length);
		return false;
	}
	/* In an entry of the larger size it goes on behind the structure. */
	memcpy((void *)entry + offsetof(struct ib_memreg_cqe, data),
	       memreg_slot_buffer(slot), length);
	memreg_count(ring->mdev, IB_MEMREG_STAT_INLINE_RECEIVES, 1);
	return true;
}

/* What a successful receive says; returns flags. */
static u8 memreg_slot_tell_recv(const struct memreg_slot *slot,
				const struct ib_wc *wc,
				struct ib_memreg_cqe *entry)
{
	u8 flags = 0;

	entry->byte_len = wc->byte_len;
	if (wc->wc_flags & IB_WC_WITH_IMM) {
		flags |= IB_MEMREG_CQE_IMM;
		entry->ex = (__force u32)wc->ex.imm_data;
	}
	if (wc->opcode == IB_WC_RECV_RDMA_WITH_IMM) {
		entry->opcode = IB_MEMREG_OP_WRITE_WITH_IMM;
		return flags;
	}
	/* Settling has found the window, or has ended the connection. */
	if (wc->wc_flags & IB_WC_WITH_INVALIDATE && slot->window_id) {
		flags |= IB_MEMREG_CQE_INVALIDATED;
		entry->ex = wc->ex.invalidate_rkey;
	}
	if (memreg_slot_deliver(slot, wc->byte_len, entry))
		flags |= IB_MEMREG_CQE_INLINE;
	return flags;
}

static const struct rhashtable_params memreg_takers = {
	.key_len = sizeof(struct ib_qp *),
	.key_offset = offsetof(struct memreg_endpoint, srq_qp),
	.head_offset = offsetof(struct memreg_endpoint, srq_node),
	.automatic_shrinking = true,
};

/*
 * Endpoint of a completion, which stays until that is through; only a
 * successful one is sure to name its QP.
 */
static struct memreg_endpoint *memreg_wc_endpoint(struct memreg_queue *queue,
						  const struct ib_wc *wc)
{
	if (queue->ep || wc->status != IB_WC_SUCCESS)
		return queue->ep;
	return rhashtable_lookup_fast(&queue->takers, &wc->qp, memreg_takers);
}

/* False while another endpoint is found by the address of this one's QP. */
static bool memreg_queue_try_join(struct memreg_queue *queue,
				  struct memreg_endpoint *ep, int *ret)
{
	*ret = rhashtable_lookup_insert_fast(&queue->takers, &ep->srq_node,
					     memreg_takers);
	return *ret != -EEXIST;
}

/**
 * memreg_queue_join() - Let an endpoint take from a shared queue
 * @queue: The queue
 * @ep: The endpoint, whose QP was just made
 *
 * Context: may sleep.
 * Return: 0 or -ENOMEM.
 */
int memreg_queue_join(struct memreg_queue *queue, struct memreg_endpoint *ep)
{
	int ret;

	ep->srq_qp = ep->id->qp;
	/* If a QP at this address has just gone, its owner is leaving. */
	wait_event_timeout(queue->wait, memreg_queue_try_join(queue, ep, &ret),
			   MEMREG_JOIN);
	return ret ? -ENOMEM : 0;
}

/**
 * memreg_queue_leave() - An endpoint takes no more from a shared queue
 * @queue: The queue
 * @ep: Endpoint that has joined, whose QP is no more
 *
 * Context: may sleep.
 */
void memreg_queue_leave(struct memreg_queue *queue, struct memreg_endpoint *ep)
{
	/* What it has taken is told of as the endpoint's. */
	memreg_ring_flush(queue->ring);
	/* Nobody looks for it any more: no QP at its address has joined. */
	rhashtable_remove_fast(&queue->takers, &ep->srq_node, memreg_takers);
	wake_up_all(&queue->wait);
}

/*
 * A failure ends the connection; not every driver has an event to say so. That
 * of a receive is one of the peer's request, too.
 */
static void memreg_endpoint_failed(const struct memreg_queue *queue,
				   struct memreg_endpoint *ep, u8 status)
{
	if (!ep)
		return;
	if (status != IB_WC_WR_FLUSH_ERR && !queue->send)
		WRITE_ONCE(ep->refused, true);
	if (status != IB_WC_WR_FLUSH_ERR)
		WRITE_ONCE(ep->failing, true);
	memreg_endpoint_close(ep);
}

/*
 * Fill in an entry with what became of a slot. The user may write there, too:
 * nothing is read, but by the tracepoint, which believes whatever it finds.
 */
static __always_inline void
memreg_slot_tell(const struct memreg_slot *slot, const struct ib_wc *wc,
		 u8 status, struct ib_memreg_cqe *entry)
{
	struct memreg_queue *queue = slot->queue;
	struct memreg_ring *ring = queue->ring;
	struct memreg_endpoint *ep = memreg_wc_endpoint(queue, wc);
	u8 flags = 0;

	entry->user_data = slot->user_data;
	entry->endpoint_data = ep ? READ_ONCE(ep->user_data) ?: ep->obj.id : 0;
	entry->byte_len = 0;
	entry->ex = 0;
	entry->window_id = slot->window_id;
	entry->opcode = slot->opcode;
	entry->status = status;
	if (queue->stale || memreg_slot_is_stale(slot))
		flags |= IB_MEMREG_CQE_STALE;
	if (status == IB_WC_SUCCESS && !queue->send)
		flags |= memreg_slot_tell_recv(slot, wc, entry);
	else if (status == IB_WC_SUCCESS)
		entry->byte_len = slot->length;
	entry->flags = flags;
	memreg_count(ring->mdev, IB_MEMREG_STAT_WRS_COMPLETED, 1);
	if (status != IB_WC_SUCCESS) {
		memreg_count(ring->mdev, IB_MEMREG_STAT_WRS_FAILED, 1);
		memreg_endpoint_failed(queue, ep, status);
	}
	trace_memreg_complete(slot, ep, entry);
}

/* The same as below, for a slot of a command of io_uring. */
static noinline bool memreg_slot_end_uring(struct memreg_slot *slot,
					   const struct ib_wc *wc, int outcome)
{
	struct memreg_ring *ring = slot->queue->ring;
	struct memreg_uring *uring = slot->uring;
	const struct memreg_endpoint *ep;
	struct ib_memreg_cqe entry;

	if (outcome >= 0) {
		memreg_slot_tell(slot, wc, outcome, &entry);
		memreg_uring_note(uring, &entry);
		/* Its result has room for an id, whatever the user data is. */
		ep = memreg_wc_endpoint(slot->queue, wc);
		uring->endpoint = ep ? ep->obj.id : 0;
	} else if (slot->queue->stale || memreg_slot_is_stale(slot)) {
		uring->told.flags |= IB_MEMREG_CQE_STALE;
	}
	memreg_slot_release(slot);
	return memreg_uring_put(uring, ring);
}

/*
 * A slot is through: tell of it, if there is an outcome, and let go of what it
 * keeps. Returns whether an entry of the ring was written.
 */
static __always_inline bool memreg_slot_end(struct memreg_slot *slot,
					    const struct ib_wc *wc,
					    int outcome)
{
	if (slot->uring)
		return memreg_slot_end_uring(slot, wc, outcome);
	if (outcome >= 0)
		memreg_slot_tell(slot, wc, outcome,
				 memreg_ring_entry(slot->queue->ring));
	memreg_slot_release(slot);
	return outcome >= 0;
}

/* Slots are free again; the last to be so may end the queue. */
static void memreg_queue_give(struct memreg_queue *queue, u32 count)
{
	/* Nobody frees the queue before the ring's lock is let go of. */
	if (atomic_sub_return(count, &queue->posted))
		return;
	/* Atomics that return are full barriers: a waiting step has looked. */
	if (queue->ep && READ_ONCE(queue->ep->closing.draining))
		memreg_closing_step(queue->ep);
}

/* Commands of io_uring are told of when what they had is free again. */
static void memreg_queue_end_urings(struct memreg_queue *queue)
{
	if (unlikely(!list_empty(&queue->ring->ended)))
		memreg_uring_end_all(queue->ring);
}

/* What to tell the user of a slot: a status, or -1 for nothing. */
static int memreg_send_outcome(struct memreg_queue *queue,
			       const struct memreg_slot *slot, u8 status)
{
	/* The first part that fails says why; those behind it are flushed. */
	if (status != IB_WC_SUCCESS && !queue->failed)
		queue->failed = status;
	if (slot->part) {
		queue->stale |= memreg_slot_is_stale(slot);
		return -1;
	}
	status = queue->failed;
	queue->failed = 0;
	return slot->signalled || status ? status : -1;
}

/* The place behind all others, which is not counted. */
static struct memreg_slot *memreg_queue_marker(const struct memreg_queue *queue)
{
	return memreg_queue_slot(queue, queue->depth);
}

/* The oldest send completed. Returns whether nothing is told of it. */
static bool memreg_send_done_one(struct memreg_queue *queue,
				 struct memreg_slot *slot,
				 const struct ib_wc *wc)
{
	int outcome;
	bool told;

	/* A completion of another one says that this one succeeded. */
	outcome = memreg_send_outcome(queue, slot, wc->wr_cqe == &slot->cqe ?
				      wc->status : IB_WC_SUCCESS);
	told = memreg_slot_end(slot, wc, outcome);
	if (!slot->part)
		queue->stale = false;
	return !told;
}

/*
 * A send completed, and with it all before it: handle up to @max of them, the
 * oldest first. Returns their number, and in @more whether some are left.
 */
static unsigned int memreg_send_done(struct memreg_queue *queue,
				     struct memreg_slot *last,
				     const struct ib_wc *wc, unsigned int max,
				     bool *more)
{
	bool marker = last == memreg_queue_marker(queue);
	u32 untold = 0, count = 0;
	struct memreg_slot *slot;

	*more = false;
	/* Behind the marker nothing is submitted any more. */
	while (count < atomic_read(&queue->posted)) {
		*more = count == max;
		if (*more)
			break;
		slot = memreg_queue_slot(queue, queue->head);
		queue->head = memreg_queue_after(queue, queue->head);
		untold += memreg_send_done_one(queue, slot, wc);
		count++;
		if (slot == last)
			break;
	}
	memreg_ring_unclaim(queue->ring, untold);
	if (marker && !*more)
		WRITE_ONCE(queue->marked, false);
	memreg_queue_give(queue, count);
	memreg_queue_end_urings(queue);
	return count;
}

static void memreg_recv_done(struct memreg_queue *queue,
			     struct memreg_slot *slot, const struct ib_wc *wc)
{
	if (!memreg_slot_end(slot, wc, wc->status))
		memreg_ring_unclaim(queue->ring, 1);
	llist_add(&slot->node, &queue->free);
	memreg_queue_give(queue, 1);
	memreg_queue_end_urings(queue);
}

/**
 * memreg_slot_done() - Handle a completion, or a part of what it stands for
 * @ring: The ring that it was polled for
 * @wc: The completion; settled, if it is slow
 * @max: Slots to handle at most, from 1
 * @more: Set if there are more, for which this is to be called again
 *
 * One completion may stand for all the slots of a send queue.
 *
 * Context: any, with memreg_ring.lock held.
 * Return: number of slots that were handled, or 1 if it was none.
 */
unsigned int memreg_slot_done(struct memreg_ring *ring, const struct ib_wc *wc,
			      unsigned int max, bool *more)
{
	struct memreg_slot *slot = memreg_wc_slot(wc);
	unsigned int n = 1;

	lockdep_assert_held(&ring->lock);

	*more = false;
	if (slot->queue->send)
		n = memreg_send_done(slot->queue, slot, wc, max, more);
	else
		memreg_recv_done(slot->queue, slot, wc);
	return max(n, 1U);
}

/* The peer says that it ended a window. */
static void memreg_slot_settle_recv(struct memreg_slot *slot,
				    const struct ib_wc *wc)
{
	struct memreg_endpoint *ep = memreg_wc_endpoint(slot->queue, wc);

	if (ep)
		slot->window_id = memreg_window_remote_invalidate
					(ep, wc->ex.invalidate_rkey);
}

/**
 * memreg_slot_settle() - Do what a slow completion asks for
 * @wc: The completion
 *
 * Context: may sleep.
 */
void memreg_slot_settle(const struct ib_wc *wc)
{
	struct memreg_slot *slot = memreg_wc_slot(wc);

	switch (slot->opcode) {
	case IB_MEMREG_OP_BIND:
		memreg_window_doomed(slot);
		break;
	case IB_MEMREG_OP_INVALIDATE:
		memreg_window_invalidated(slot, wc->status == IB_WC_SUCCESS);
		break;
	default:
		memreg_slot_settle_recv(slot, wc);
	}
}

/*
 * The end
 */

/**
 * memreg_queue_close() - Let nothing be submitted any more
 * @queue: The queue
 *
 * Context: may sleep.
 */
void memreg_queue_close(struct memreg_queue *queue)
{
	mutex_lock(&queue->lock);
	queue->closed = true;
	queue->ready = false;
	mutex_unlock(&queue->lock);
}

/**
 * memreg_queue_flush_early() - End receives that no QP ever took
 * @queue: Closed receive queue
 *
 * They end as if a QP had flushed them.
 *
 * Context: may sleep.
 */
void memreg_queue_flush_early(struct memreg_queue *queue)
{
	struct llist_node *list = llist_del_all(&queue->early);
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR };
	struct memreg_slot *slot;
	unsigned int n;

	list = llist_reverse_order(list);
	do {
		spin_lock_irq(&queue->ring->lock);
		for (n = 0; list && n < MEMREG_RING_BUDGET; n++) {
			slot = llist_entry(list, struct memreg_slot, node);
			list = list->next;
			memreg_recv_done(queue, slot, &wc);
		}
		memreg_ring_wake(queue->ring);
		spin_unlock_irq(&queue->ring->lock);
		cond_resched();
	} while (list);
}

/**
 * memreg_queue_mark() - Have a QP in error tell when it is through
 * @queue: Closed send queue
 * @qp: Its QP
 *
 * Return: 0, or what the driver refuses the marker with.
 */
int memreg_queue_mark(struct memreg_queue *queue, struct ib_qp *qp)
{
	struct ib_rdma_wr wr = {
		.wr.opcode = IB_WR_RDMA_WRITE,
		.wr.wr_cqe = &memreg_queue_marker(queue)->cqe,
		.wr.send_flags = IB_SEND_SIGNALED,
	};
	int ret;

	if (!atomic_read(&queue->posted))
		return 0;
	WRITE_ONCE(queue->marked, true);
	ret = ib_post_send(qp, &wr.wr, NULL);
	if (ret)
		WRITE_ONCE(queue->marked, false);
	return ret;
}

/**
 * memreg_queue_is_idle() - Has all that was posted completed?
 * @queue: Closed queue
 *
 * Return: whether it has, the marker included.
 */
bool memreg_queue_is_idle(struct memreg_queue *queue)
{
	return !atomic_read_acquire(&queue->posted) &&
	       !READ_ONCE(queue->marked);
}

/**
 * memreg_queue_sync() - Wait until completion handlers are off a queue
 * @queue: Closed and idle queue
 *
 * Context: may sleep.
 */
void memreg_queue_sync(struct memreg_queue *queue)
{
	spin_lock_irq(&queue->ring->lock);
	spin_unlock_irq(&queue->ring->lock);
}

/* Let go of windows that an INVALIDATE which never completes has claimed. */
static void memreg_queue_settle_all(struct memreg_queue *queue)
{
	struct memreg_slot *slot;
	u32 i;

	for (i = 0; i < queue->depth; i++) {
		slot = memreg_queue_slot(queue, i);
		if (slot->used && slot->opcode == IB_MEMREG_OP_INVALIDATE)
			memreg_window_invalidated(slot, false);
	}
}

/* Give up some slots. The lock of the ring is held. */
static void memreg_queue_abandon_some(struct memreg_queue *queue, u32 from,
				      u32 to)
{
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR };
	struct memreg_slot *slot;
	bool more;

	for (; from < to; from++) {
		slot = memreg_queue_slot(queue, queue->send ? queue->head :
							      from);
		if (!slot->used)
			continue;
		wc.wr_cqe = &slot->cqe;
		if (queue->send)
			memreg_send_done(queue, slot, &wc, 1, &more);
		else
			memreg_recv_done(queue, slot, &wc);
	}
}

/**
 * memreg_queue_abandon() - Give up what will never complete
 * @queue: Closed queue, which is no more for the device
 *
 * Context: may sleep.
 */
void memreg_queue_abandon(struct memreg_queue *queue)
{
	u32 from, to;

	/* A QP that is in no state to flush was not waited for. */
	memreg_queue_flush_early(queue);
	memreg_ring_flush(queue->ring);
	if (queue->send)
		memreg_queue_settle_all(queue);
	WRITE_ONCE(queue->marked, false);
	for (from = 0; from < queue->depth; from = to) {
		to = min(from + MEMREG_RING_BUDGET, queue->depth);
		spin_lock_irq(&queue->ring->lock);
		memreg_queue_abandon_some(queue, from, to);
		memreg_ring_wake(queue->ring);
		spin_unlock_irq(&queue->ring->lock);
		cond_resched();
	}
}

/*
 * Making queues
 */

static int memreg_queue_alloc_slots(struct memreg_queue *queue)
{
	u32 i;

	queue->slot_size = struct_size((struct memreg_slot *)NULL, sges,
				       queue->max_sge);
	queue->slots = kvcalloc(queue->depth + 1, queue->slot_size,
				GFP_KERNEL_ACCOUNT);
	if (!queue->slots)
		return -ENOMEM;
	for (i = queue->depth; i--; ) {
		struct memreg_slot *slot = memreg_queue_slot(queue, i);

		slot->queue = queue;
		slot->index = i;
		if (!queue->send)
			llist_add(&slot->node, &queue->free);
	}
	memreg_queue_marker(queue)->queue = queue;
	return 0;
}

static int memreg_queue_alloc_buffers(struct memreg_device *mdev,
				      struct memreg_queue *queue)
{
	size_t size = (size_t)queue->depth * queue->buffer_size;

	if (!size)
		return 0;
	queue->buffers = kzalloc(size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!queue->buffers)
		return -ENOMEM;
	queue->dma = ib_dma_map_single(mdev->ibdev, queue->buffers, size,
				       DMA_BIDIRECTIONAL);
	if (!ib_dma_mapping_error(mdev->ibdev, queue->dma))
		return 0;
	kfree(queue->buffers);
	return -ENOMEM;
}

static void memreg_queue_destroy_takers(struct memreg_queue *queue)
{
	if (!queue->ep)
		rhashtable_destroy(&queue->takers);
}

/**
 * memreg_queue_alloc() - Make a queue
 * @mdev: The device
 * @ring: Where its completions go; the caller's reference is the queue's, if
 *	this succeeds
 * @ep: Its endpoint, or NULL
 * @send: To send; otherwise to receive
 * @depth: Slots, from 1
 * @max_sge: SGEs of each
 * @buffer_size: Bytes of a slot's buffer, or 0
 *
 * Return: the queue, or NULL if there is no memory.
 */
struct memreg_queue *memreg_queue_alloc(struct memreg_device *mdev,
					struct memreg_ring *ring,
					struct memreg_endpoint *ep, bool send,
					u32 depth, u32 max_sge,
					u32 buffer_size)
{
	struct memreg_queue *queue;

	queue = kzalloc(sizeof(*queue), GFP_KERNEL_ACCOUNT);
	if (!queue)
		return NULL;
	queue->ring = ring;
	queue->ep = ep;
	queue->send = send;
	queue->depth = depth;
	queue->max_sge = max_sge;
	queue->fragments = memreg_fragments(mdev);
	queue->buffer_size = buffer_size;
	mutex_init(&queue->lock);
	init_waitqueue_head(&queue->wait);
	if (!ep && rhashtable_init(&queue->takers, &memreg_takers))
		goto err_queue;
	if (memreg_queue_alloc_slots(queue))
		goto err_takers;
	if (memreg_queue_alloc_buffers(mdev, queue))
		goto err_slots;
	return queue;

err_slots:
	kvfree(queue->slots);
err_takers:
	memreg_queue_destroy_takers(queue);
err_queue:
	kfree(queue);
	return NULL;
}

/**
 * memreg_queue_free() - Free a queue
 * @mdev: The device
 * @queue: Queue on which nothing is posted, or NULL
 */
void memreg_queue_free(struct memreg_device *mdev, struct memreg_queue *queue)
{
	if (!queue)
		return;
	WARN_ON(atomic_read(&queue->posted));
	if (queue->buffers)
		ib_dma_unmap_single(mdev->ibdev, queue->dma,
				    (size_t)queue->depth * queue->buffer_size,
				    DMA_BIDIRECTIONAL);
	kfree(queue->buffers);
	kvfree(queue->slots);
	memreg_queue_destroy_takers(queue);
	if (queue->send)
		atomic_dec(&queue->ring->senders);
	memreg_ring_put(queue->ring);
	kfree(queue);
}
