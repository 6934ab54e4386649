// SPDX-License-Identifier: GPL-2.0-only
/*
 * Completions: end the slots of work requests, and report outcomes to users.
 *
 * A ring polls its completion queue and calls the functions defined here.
 * A send queue completes in order, so one completion stands for all the slots
 * before it as well. Windows and connections, which a completion may end, are
 * in files below this one.
 */
#include <linux/llist.h>

#include "conn/teardown_queue.h"
#include "conn/complete.h"
#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/slot.h"
#include "conn/trace.h"
#include "conn/uring.h"
#include "conn/window_2b.h"
#include "mr/composition.h"
#include "mr/mr.h"
#include "pages/region.h"
#include "stats.h"

/* Has one of a slot's MRs become stale? */
static bool memreg_slot_is_stale(const struct memreg_slot *slot)
{
	u32 i;

	for (i = 0; i < slot->nr_sges; i++)
		if (READ_ONCE(slot->sges[i].mr->region->guard.stale))
			return true;
	return false;
}

/*
 * Copy the first bytes of a message from the bounce buffer to the user's
 * buffer.
 */
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
 * Copy the bounced bytes of a received message to the user's buffer, or to the
 * entry if the message fits there. Returns true if it is in the entry.
 */
static bool memreg_slot_deliver(const struct memreg_slot *slot,
				u32 length, struct ib_memreg_cqe *entry)
{
	struct memreg_queue *queue = slot->queue;
	struct memreg_kring *ring = queue->ring;

	/* Without a bounce buffer the device has written the whole message. */
	if (!slot->bounce)
		return false;
	ib_dma_sync_single_for_cpu(ring->mdev->ibdev,
				   memreg_slot_buffer_dma(slot), slot->bounce,
				   DMA_BIDIRECTIONAL);
	if (length > slot->bounce) {
		memreg_slot_copy_back(slot, length);
		return false;
	}
	/*
	 * In an entry of the larger size the data extend beyond the structure.
	 */
	memcpy((void *)entry + offsetof(struct ib_memreg_cqe, data),
	       memreg_slot_buffer(slot), length);
	memreg_count(ring->mdev, IB_MEMREG_STAT_INLINE_RECEIVES, 1);
	return true;
}

/* Fill in the entry of a successful receive; returns flags. */
static u8 memreg_slot_fill_recv(const struct memreg_slot *slot,
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
	/* Settling has found the window, or else has ended the connection. */
	if (wc->wc_flags & IB_WC_WITH_INVALIDATE && slot->window_id) {
		flags |= IB_MEMREG_CQE_INVALIDATED;
		entry->ex = wc->ex.invalidate_rkey;
	}
	if (memreg_slot_deliver(slot, wc->byte_len, entry))
		flags |= IB_MEMREG_CQE_INLINE;
	return flags;
}

/*
 * Endpoint of a completion, which stays until the completion is handled. Only a
 * successful completion is sure to have a valid QP.
 */
static struct memreg_endpoint *memreg_wc_endpoint(struct memreg_queue *queue,
						  const struct ib_wc *wc)
{
	if (queue->ep || wc->status != IB_WC_SUCCESS)
		return queue->ep;
	return memreg_queue_find_user(queue, wc->qp);
}

/*
 * A failed work request ends the connection; not every driver raises an event
 * for that. A failed receive also means that a request of the peer was refused.
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
 * Fill in an entry with the outcome of a slot. The user can write there, too,
 * so the kernel does not read it back; only the tracepoint does, and its values
 * may be wrong.
 */
static __always_inline void
memreg_slot_fill(const struct memreg_slot *slot, const struct ib_wc *wc,
		 u8 status, struct ib_memreg_cqe *entry)
{
	struct memreg_queue *queue = slot->queue;
	struct memreg_kring *ring = queue->ring;
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
		flags |= memreg_slot_fill_recv(slot, wc, entry);
	else if (status == IB_WC_SUCCESS)
		entry->byte_len = slot->length;
	entry->flags = flags;
	memreg_count(ring->mdev, IB_MEMREG_STAT_WRS_COMPLETED, 1);
	/* Receives that are flushed at the end of a connection did not fail. */
	if (status != IB_WC_SUCCESS &&
	    (queue->send || status != IB_WC_WR_FLUSH_ERR))
		memreg_count(ring->mdev, IB_MEMREG_STAT_WRS_FAILED, 1);
	if (status != IB_WC_SUCCESS)
		memreg_endpoint_failed(queue, ep, status);
	trace_memreg_complete(slot, ep, entry);
}

/* The same as memreg_slot_end(), for a slot of a command of io_uring. */
static noinline bool memreg_slot_end_uring(struct memreg_slot *slot,
					   const struct ib_wc *wc, int outcome)
{
	struct memreg_kring *ring = slot->queue->ring;
	struct memreg_uring *uring = slot->uring;
	const struct memreg_endpoint *ep;
	struct ib_memreg_cqe entry;

	if (outcome >= 0) {
		memreg_slot_fill(slot, wc, outcome, &entry);
		memreg_uring_note(uring, &entry);
		/*
		 * The result of a command has a field for the id, apart from
		 * user data.
		 */
		ep = memreg_wc_endpoint(slot->queue, wc);
		uring->endpoint = ep ? ep->obj.id : 0;
	} else if (slot->queue->stale || memreg_slot_is_stale(slot)) {
		uring->outcome.flags |= IB_MEMREG_CQE_STALE;
	}
	memreg_slot_release(slot);
	return memreg_uring_put(uring, ring);
}

/*
 * End a slot: report its outcome, if it has one to report, and release its
 * references. Returns true if an entry of the ring was written.
 */
static __always_inline bool memreg_slot_end(struct memreg_slot *slot,
					    const struct ib_wc *wc,
					    int outcome)
{
	if (slot->uring)
		return memreg_slot_end_uring(slot, wc, outcome);
	if (outcome >= 0)
		memreg_slot_fill(slot, wc, outcome,
				 memreg_ring_entry(slot->queue->ring));
	memreg_slot_release(slot);
	return outcome >= 0;
}

/*
 * Free slots; the last one may schedule the next step of an endpoint that ends.
 */
static void memreg_queue_give(struct memreg_queue *queue, u32 count)
{
	/* The queue is not freed before the ring's lock is dropped. */
	if (atomic_sub_return(count, &queue->posted))
		return;
	/*
	 * atomic_sub_return() is a full barrier: either this sees @draining, or
	 * the step sees @posted.
	 */
	if (queue->ep && READ_ONCE(queue->ep->teardown.draining))
		memreg_teardown_step(queue->ep);
}

/* Complete commands of io_uring after their slots have been released. */
static void memreg_queue_end_urings(struct memreg_queue *queue)
{
	if (unlikely(!list_empty(&queue->ring->ended)))
		memreg_uring_end_all(queue->ring);
}

/* The status to report to the user for a slot, or -1 for no report. */
static int memreg_send_outcome(struct memreg_queue *queue,
			       const struct memreg_slot *slot, u8 status)
{
	/*
	 * The first part that fails has the real status; later parts are
	 * flushed.
	 */
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

/* End the oldest send. Returns true if it was not reported. */
static bool memreg_send_done_one(struct memreg_queue *queue,
				 struct memreg_slot *slot,
				 const struct ib_wc *wc)
{
	int outcome;
	bool reported;

	/* If the completion is that of a later slot, this slot succeeded. */
	outcome = memreg_send_outcome(queue, slot, wc->wr_cqe == &slot->cqe ?
				      wc->status : IB_WC_SUCCESS);
	reported = memreg_slot_end(slot, wc, outcome);
	if (!slot->part)
		queue->stale = false;
	return !reported;
}

/*
 * A send completed, and with it all sends before it: end some of them, oldest
 * first, up to a cost of @max. Returns the cost, and sets @more if some are
 * left.
 */
static unsigned int memreg_send_done(struct memreg_queue *queue,
				     struct memreg_slot *last,
				     const struct ib_wc *wc, unsigned int max,
				     bool *more)
{
	bool marker = last == memreg_queue_marker(queue);
	u32 unreported = 0, count = 0, cost = 0;
	struct memreg_slot *slot;

	*more = false;
	/* No work request is submitted behind the marker. */
	while (count < atomic_read(&queue->posted)) {
		*more = cost >= max;
		if (*more)
			break;
		slot = memreg_queue_slot(queue, queue->head);
		cost += memreg_slot_cost(slot);
		queue->head = memreg_queue_after(queue, queue->head);
		unreported += memreg_send_done_one(queue, slot, wc);
		count++;
		if (slot == last)
			break;
	}
	memreg_ring_unclaim(queue->ring, unreported);
	if (marker && !*more)
		WRITE_ONCE(queue->marked, false);
	memreg_queue_give(queue, count);
	memreg_queue_end_urings(queue);
	return cost;
}

/* End a receive. Returns the cost. */
static unsigned int memreg_recv_done(struct memreg_queue *queue,
				     struct memreg_slot *slot,
				     const struct ib_wc *wc)
{
	unsigned int cost = memreg_slot_cost(slot) +
			    memreg_queue_find_cost(queue);

	if (!memreg_slot_end(slot, wc, wc->status))
		memreg_ring_unclaim(queue->ring, 1);
	llist_add(&slot->node, &queue->free);
	memreg_queue_give(queue, 1);
	memreg_queue_end_urings(queue);
	return cost;
}

/**
 * memreg_slot_done() - Handle a completion, or some of the slots it stands for
 * @ring: The ring that polled it
 * @wc: The completion; a slow one is handled already
 * @max: Cost up to which slots are ended, at least 1
 * @more: Set if some are left, so that this has to be called again
 *
 * Context: any, with memreg_kring.lock held.
 * Return: the cost, at least 1.
 */
unsigned int memreg_slot_done(struct memreg_kring *ring, const struct ib_wc *wc,
			      unsigned int max, bool *more)
{
	struct memreg_slot *slot = memreg_wc_slot(wc);
	unsigned int cost;

	lockdep_assert_held(&ring->lock);

	*more = false;
	if (slot->queue->send)
		cost = memreg_send_done(slot->queue, slot, wc, max, more);
	else
		cost = memreg_recv_done(slot->queue, slot, wc);
	return max(cost, 1U);
}

/*
 * Handle a peer's report that it has invalidated a window. Endpoints join and
 * leave a shared queue under the ring's lock; this one stays without it until
 * the completion is handled.
 */
static void memreg_slot_remote_invalidated(struct memreg_slot *slot,
					   const struct ib_wc *wc)
{
	struct memreg_kring *ring = slot->queue->ring;
	struct memreg_endpoint *ep;

	spin_lock_irq(&ring->lock);
	ep = memreg_wc_endpoint(slot->queue, wc);
	spin_unlock_irq(&ring->lock);
	if (ep)
		slot->window_id = memreg_window_remote_invalidate
					(ep, wc->ex.invalidate_rkey);
}

/**
 * memreg_slot_is_slow() - Does a completion end a window?
 * @wc: The completion
 *
 * Context: any.
 * Return: true if memreg_slot_handle_slow() has to be called before
 * memreg_slot_done().
 */
bool memreg_slot_is_slow(const struct ib_wc *wc)
{
	const struct memreg_slot *slot = memreg_wc_slot(wc);
	bool good = wc->status == IB_WC_SUCCESS;

	if (slot->opcode == IB_MEMREG_OP_RECV)
		return good && wc->wc_flags & IB_WC_WITH_INVALIDATE;
	if (slot->opcode == IB_MEMREG_OP_BIND)
		return good && memreg_window_bound(slot);
	return slot->opcode == IB_MEMREG_OP_INVALIDATE;
}

/**
 * memreg_slot_handle_slow() - Handle a slow completion: end its window
 * @wc: The completion
 *
 * Context: may sleep.
 */
void memreg_slot_handle_slow(const struct ib_wc *wc)
{
	struct memreg_slot *slot = memreg_wc_slot(wc);

	switch (slot->opcode) {
	case IB_MEMREG_OP_BIND:
		memreg_window_end_deferred(slot);
		break;
	case IB_MEMREG_OP_INVALIDATE:
		memreg_window_invalidated(slot, wc->status == IB_WC_SUCCESS);
		break;
	default:
		memreg_slot_remote_invalidated(slot, wc);
	}
}

/*
 * The end
 */

/**
 * memreg_queue_flush_early() - End receives that were never posted to a QP
 * @queue: Closed receive queue
 *
 * The receives end as if a QP had flushed them.
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
		for (n = 0; list && n < MEMREG_RING_BUDGET; ) {
			slot = llist_entry(list, struct memreg_slot, node);
			list = list->next;
			n += memreg_recv_done(queue, slot, &wc);
		}
		memreg_ring_wake(queue->ring);
		spin_unlock_irq(&queue->ring->lock);
		cond_resched();
	} while (list);
}

/* Release windows that are claimed by an INVALIDATE which never completes. */
static void memreg_queue_release_windows(struct memreg_queue *queue)
{
	struct memreg_slot *slot;
	u32 i;

	for (i = 0; i < queue->depth; i++) {
		slot = memreg_queue_slot(queue, i);
		if (slot->used && slot->opcode == IB_MEMREG_OP_INVALIDATE)
			memreg_window_invalidated(slot, false);
	}
}

/*
 * Slots that are given up in one section with interrupts off, with any number
 * of SGEs.
 */
#define MEMREG_ABANDON_SLOTS	16U

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
 * memreg_queue_abandon() - Give up slots that will never complete
 * @queue: Closed queue, whose QP is gone; the caller has called
 *	memreg_queue_flush_early() and memreg_ring_flush()
 *
 * Context: may sleep.
 */
void memreg_queue_abandon(struct memreg_queue *queue)
{
	u32 from, to;

	if (queue->send)
		memreg_queue_release_windows(queue);
	WRITE_ONCE(queue->marked, false);
	for (from = 0; from < queue->depth; from = to) {
		to = min(from + MEMREG_ABANDON_SLOTS, queue->depth);
		spin_lock_irq(&queue->ring->lock);
		memreg_queue_abandon_some(queue, from, to);
		memreg_ring_wake(queue->ring);
		spin_unlock_irq(&queue->ring->lock);
		cond_resched();
	}
}
