// SPDX-License-Identifier: GPL-2.0-only
/*
 * Send and receive queues: the work requests that are posted and have not
 * completed.
 *
 * Each work request has a slot, which holds references of its MRs. The MRs stay
 * pinned until the completion was handled, even if their mapping changes (I1).
 * With each slot an entry of the ring is reserved (I10). An entry is written
 * only for the last slot of a user's work request, and only if the work request
 * is signalled, or fails. Slots of a command of io_uring report through the
 * command instead.
 *
 * A send queue is a ring of slots. It completes in order, so a completion also
 * ends all the slots before it: those without a completion of their own have
 * succeeded. When the connection ends, the last slots might have no completion
 * behind them, so a marker is posted, which the QP flushes in the error state.
 * A receive queue has a list of free slots, as a shared one completes in any
 * order.
 *
 * Submission takes slots under the queue's lock, and polling frees them under
 * the ring's lock. The two sides share only @posted and @free.
 *
 * For a completion of a shared queue, only the QP pointer identifies the
 * endpoint. The QP may have been destroyed, if the device did not flush it, so
 * the pointer is never dereferenced: endpoints are looked up by the QP's
 * address, and stay until all completions of their QP are handled.
 */
#include <linux/dma-mapping.h>
#include <linux/hash.h>
#include <linux/slab.h>

#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/slot.h"
#include "conn/uring.h"
#include "core.h"
#include "device.h"
#include "mr/keyed.h"
#include "mr/mr.h"
#include "pages/region.h"

/* Longest wait for the previous endpoint at a QP's address to leave. */
#define MEMREG_JOIN	(10 * HZ)

/*
 * Submission
 */

/**
 * memreg_queue_reserve() - Reserve room for work requests
 * @queue: The queue, whose lock is held
 * @count: Number of work requests; the caller takes as many slots before the
 *   next call
 *
 * Return: 0; -ENOSPC if there are no slots, -EAGAIN if the ring has no room.
 */
int memreg_queue_reserve(struct memreg_queue *queue, u32 count)
{
	lockdep_assert_held(&queue->lock);

	/* The completion side frees a slot before it decrements @posted. */
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
 * memreg_slot_sge_keep() - Take a reference of an SGE's MR
 * @sges: SGEs of a work request
 * @i: Index of the SGE; the MRs of those before it have references
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
 * memreg_slot_sges_put() - Put the MRs of a work request
 * @sges: Its SGEs
 * @count: Their number
 */
void memreg_slot_sges_put(const struct memreg_slot_sge *sges, u32 count)
{
	while (count--)
		if (!memreg_slot_sge_repeats(sges, count))
			memreg_object_put(&sges[count].mr->obj);
}

/**
 * memreg_queue_undo() - Free a slot that was not posted
 * @slot: The slot that was taken last and is not freed yet
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
 * @sges: Filled in
 * @max: Most entries
 *
 * The slot's bounce buffer comes first; behind it follows the user's memory,
 * without as many bytes as the bounce buffer takes.
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
		ret = memreg_mr_sges(sge->mr, first, at, &length, lkey,
				     &sges[n], max - n);
		if (length)
			return -EMSGSIZE;
		n += ret;
	}
	return n;
}

/*
 * The end
 */

/**
 * memreg_queue_close() - Refuse further submissions to a queue
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
 * memreg_queue_mark() - Post a marker that shows when a QP is flushed
 * @queue: Closed send queue
 * @qp: QP of the endpoint
 *
 * Return: 0, or the driver's errno.
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
 * memreg_queue_is_idle() - Have all posted work requests completed?
 * @queue: Closed queue
 *
 * Return: true if all have, the marker included.
 */
bool memreg_queue_is_idle(struct memreg_queue *queue)
{
	return !atomic_read_acquire(&queue->posted) &&
	       !READ_ONCE(queue->marked);
}

/**
 * memreg_queue_sync() - Wait until no completion handler uses a queue
 * @queue: Closed and idle queue
 *
 * Context: may sleep.
 */
void memreg_queue_sync(struct memreg_queue *queue)
{
	spin_lock_irq(&queue->ring->lock);
	spin_unlock_irq(&queue->ring->lock);
}

/*
 * Endpoints of a shared queue
 */

static void memreg_srq_users_init(struct memreg_srq_users *users)
{
	users->bits = MEMREG_SRQ_USERS_BITS;
	users->lists = users->first;
}

static void memreg_srq_users_free(struct memreg_srq_users *users,
				  struct hlist_head *lists)
{
	if (lists != users->first)
		kvfree(lists);
}

static struct hlist_head *
memreg_srq_users_list(struct hlist_head *lists, u32 bits,
		      const struct ib_qp *qp)
{
	return &lists[hash_ptr(qp, bits)];
}

/**
 * memreg_queue_find_user() - Find the endpoint that took a buffer from a
 * shared queue
 * @queue: The queue; memreg_kring.lock is held
 * @qp: QP of the endpoint
 *
 * Return: the endpoint, which stays until the completion is handled; or NULL.
 */
struct memreg_endpoint *memreg_queue_find_user(struct memreg_queue *queue,
					       const struct ib_qp *qp)
{
	struct memreg_srq_users *users = &queue->srq_users;
	struct memreg_endpoint *ep;

	lockdep_assert_held(&queue->ring->lock);

	hlist_for_each_entry(ep, memreg_srq_users_list(users->lists,
						       users->bits, qp),
			     srq_node)
		if (ep->srq_qp == qp)
			return ep;
	return NULL;
}

/* Replace the lists by @lists. Returns the lists to be freed. */
static struct hlist_head *
memreg_srq_users_move(struct memreg_srq_users *users, struct hlist_head *lists,
		      u32 bits)
{
	struct hlist_head *old = users->lists;
	struct memreg_endpoint *ep;
	struct hlist_node *next;
	u32 i;

	/* Another endpoint that joins may have grown them meanwhile. */
	if (users->bits >= bits)
		return lists;
	for (i = 0; i < 1U << users->bits; i++)
		hlist_for_each_entry_safe(ep, next, &old[i], srq_node) {
			hlist_del(&ep->srq_node);
			hlist_add_head(&ep->srq_node,
				       memreg_srq_users_list(lists, bits,
							     ep->srq_qp));
		}
	users->lists = lists;
	users->bits = bits;
	return old;
}

/*
 * Quadruple the number of lists if there are many endpoints. If there is no
 * memory for that, the present lists just get longer.
 */
static void memreg_queue_grow_srq_users(struct memreg_queue *queue)
{
	struct memreg_srq_users *users = &queue->srq_users;
	struct hlist_head *lists;
	u32 bits;

	/* Racing with others is harmless: the next endpoint looks again. */
	bits = data_race(users->bits);
	/* Likewise. */
	if (!(data_race(users->count) >> bits) ||
	    bits >= MEMREG_SRQ_USERS_BITS_MAX)
		return;
	bits += 2;
	lists = kvcalloc(1U << bits, sizeof(*lists),
			 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!lists)
		return;
	spin_lock_irq(&queue->ring->lock);
	lists = memreg_srq_users_move(users, lists, bits);
	spin_unlock_irq(&queue->ring->lock);
	memreg_srq_users_free(users, lists);
}

/*
 * Returns false while another endpoint is registered at the address of this
 * one's QP.
 */
static bool memreg_queue_try_join(struct memreg_queue *queue,
				  struct memreg_endpoint *ep)
{
	struct memreg_srq_users *users = &queue->srq_users;
	bool found;

	spin_lock_irq(&queue->ring->lock);
	found = memreg_queue_find_user(queue, ep->srq_qp);
	if (!found) {
		hlist_add_head(&ep->srq_node,
			       memreg_srq_users_list(users->lists, users->bits,
						     ep->srq_qp));
		users->count++;
	}
	spin_unlock_irq(&queue->ring->lock);
	return !found;
}

/**
 * memreg_queue_join() - Register an endpoint with a shared queue
 * @queue: The queue
 * @ep: The endpoint, whose QP was just made
 *
 * Context: may sleep.
 * Return: 0 or -ENOMEM.
 */
int memreg_queue_join(struct memreg_queue *queue, struct memreg_endpoint *ep)
{
	ep->srq_qp = ep->id->qp;
	memreg_queue_grow_srq_users(queue);
	/*
	 * If a QP at this address was just destroyed, its endpoint is leaving.
	 */
	if (!wait_event_timeout(queue->wait, memreg_queue_try_join(queue, ep),
				MEMREG_JOIN))
		return -ENOMEM;
	return 0;
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

static int memreg_queue_alloc_buffers(struct memreg_kdevice *mdev,
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

/**
 * memreg_queue_alloc() - Make a queue
 * @mdev: The device
 * @ring: Ring for its completions; on success the queue takes over the caller's
 *	reference
 * @ep: Its endpoint, or NULL
 * @send: Make a send queue; otherwise a receive queue
 * @depth: Slots, from 1
 * @max_sge: SGEs of each
 * @buffer_size: Bytes of a slot's buffer, or 0
 *
 * Return: the queue, or NULL if there is no memory.
 */
struct memreg_queue *memreg_queue_alloc(struct memreg_kdevice *mdev,
					struct memreg_kring *ring,
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
	memreg_srq_users_init(&queue->srq_users);
	if (memreg_queue_alloc_slots(queue))
		goto err_queue;
	if (memreg_queue_alloc_buffers(mdev, queue))
		goto err_slots;
	return queue;

err_slots:
	kvfree(queue->slots);
err_queue:
	kfree(queue);
	return NULL;
}

/**
 * memreg_queue_free() - Free a queue
 * @mdev: The device
 * @queue: Queue on which nothing is posted, or NULL
 */
void memreg_queue_free(struct memreg_kdevice *mdev, struct memreg_queue *queue)
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
	WARN_ON(queue->srq_users.count);
	memreg_srq_users_free(&queue->srq_users, queue->srq_users.lists);
	if (queue->send)
		atomic_dec(&queue->ring->senders);
	memreg_ring_put(queue->ring);
	kfree(queue);
}
