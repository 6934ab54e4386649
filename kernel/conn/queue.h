/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Send and receive queues: the work requests that are posted and have not
 * completed.
 */
#ifndef _MEMREG_CONN_QUEUE_H
#define _MEMREG_CONN_QUEUE_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>

#include "conn/ring.h"
#include "conn/slot.h"
#include "core.h"
#include "device.h"

struct memreg_endpoint;

/* Most SGEs of a work request for the device. */
#define MEMREG_FRAGMENTS	32

/* SGEs that the device takes in every kind of work request. */
static inline u32 memreg_fragments(struct memreg_kdevice *mdev)
{
	const struct ib_device_attr *attrs = &mdev->ibdev->attrs;
	int pieces = min3(MEMREG_FRAGMENTS, attrs->max_send_sge,
			  attrs->max_recv_sge);

	return min_not_zero(pieces, attrs->max_sge_rd);
}

/* Most work requests on a queue of the device. */
static inline u32 memreg_queue_depth(struct memreg_kdevice *mdev)
{
	/* One is for memreg_queue_mark(). */
	return min_t(u32, mdev->ibdev->attrs.max_qp_wr - 1,
		     IB_MEMREG_QUEUE_MAX);
}

/* Logarithm of the number of hash lists of endpoints: at first, and at most. */
#define MEMREG_SRQ_USERS_BITS	4
#define MEMREG_SRQ_USERS_BITS_MAX	12

/**
 * struct memreg_srq_users - Endpoints of a shared queue, by their QPs
 * @bits: Logarithm of the number of @lists
 * @count: Number of endpoints
 * @lists: The endpoints, by memreg_endpoint.srq_node
 * @first: @lists, until there are many endpoints
 *
 * memreg_kring.lock of the queue's ring protects it.
 */
struct memreg_srq_users {
	u32 bits;
	u32 count;
	struct hlist_head *lists;
	struct hlist_head first[1U << MEMREG_SRQ_USERS_BITS];
};

/**
 * struct memreg_queue - A send, receive, or shared receive queue
 * @ring: Ring for its completions; holds a reference
 * @ep: Its endpoint, or NULL if it is shared
 * @srq: The device's shared receive queue, or NULL
 * @srq_users: Endpoints that take buffers from it, by their QPs, if it is
 *	shared
 * @send: It is a send queue
 * @depth: Slots
 * @max_sge: SGEs of a slot
 * @fragments: SGEs that the device takes in a work request; final once the QP
 *	exists
 * @buffer_size: Bytes of a slot's buffer, for inline data of sends, or for the
 *	first bytes of a received message; 0 for none
 * @slot_size: Bytes of a slot
 * @slots: The slots, and one for a marker
 * @buffers: Their buffers
 * @dma: DMA address of @buffers
 * @lock: Serializes submission
 * @closed: Submissions are refused; @lock
 * @ready: The QP, or shared receive queue, to post to exists; @lock
 * @posted: Slots in use
 * @tail: Next slot of a send queue; @lock
 * @head: Oldest slot of a send queue that is in use; memreg_kring.lock
 * @failed: Status of a part of a work request that failed; memreg_kring.lock
 * @stale: An MR of a part of a work request is stale; memreg_kring.lock
 * @free: Free slots of a receive queue; taken off with @lock
 * @early: Receives that were submitted before the QP was made, latest first;
 *	@lock
 * @unsignalled: Work requests posted since the last that the device signals;
 *	@lock
 * @fenced: The last work request posted waits for all before it, so no message
 *	posted before it is retransmitted after it; @lock, used only with
 *	MEMREG_QUIRK_REPEATS_REG_MR
 * @marked: A marker is posted
 * @wait: Wait queue for an endpoint to leave @srq_users
 */
struct memreg_queue {
	struct memreg_kring *ring;
	struct memreg_endpoint *ep;
	struct ib_srq *srq;
	struct memreg_srq_users srq_users;
	bool send;
	u32 depth;
	u32 max_sge;
	u32 fragments;
	u32 buffer_size;
	size_t slot_size;
	void *slots;
	void *buffers;
	u64 dma;
	struct mutex lock;
	bool closed;
	bool ready;
	atomic_t posted;
	u32 tail;
	u32 head;
	u8 failed;
	bool stale;
	struct llist_head free;
	struct llist_head early;
	u32 unsignalled;
	bool fenced;
	bool marked;
	wait_queue_head_t wait;
};

/* Cost of memreg_queue_find_user(), in units of memreg_slot_cost(). */
static inline unsigned int
memreg_queue_find_cost(const struct memreg_queue *queue)
{
	return queue->srq_users.count >> (queue->srq_users.bits + 2);
}

static inline struct memreg_slot *
memreg_queue_slot(const struct memreg_queue *queue, u32 index)
{
	return queue->slots + index * queue->slot_size;
}

/* The marker's slot, which is behind all others and not counted. */
static inline struct memreg_slot *
memreg_queue_marker(const struct memreg_queue *queue)
{
	return memreg_queue_slot(queue, queue->depth);
}

/* Index of the slot behind another one of a send queue. */
static inline u32 memreg_queue_after(const struct memreg_queue *queue,
				     u32 index)
{
	return index + 1 == queue->depth ? 0 : index + 1;
}

/* The buffer of a slot, in a queue that has some. */
static inline void *memreg_slot_buffer(const struct memreg_slot *slot)
{
	return slot->queue->buffers +
	       (size_t)slot->index * slot->queue->buffer_size;
}

/* DMA address of a slot's buffer. */
static inline u64 memreg_slot_buffer_dma(const struct memreg_slot *slot)
{
	return slot->queue->dma + (u64)slot->index * slot->queue->buffer_size;
}

/*
 * List the bounce buffer of a receive, if it has one. Returns the number of
 * entries.
 */
static inline int memreg_slot_bounce(const struct memreg_slot *slot, u32 lkey,
				     struct ib_sge *sge)
{
	sge->addr = memreg_slot_buffer_dma(slot);
	sge->length = slot->bounce;
	sge->lkey = lkey;
	return 1;
}

/* Take a slot of a queue whose lock is held; room was reserved. */
static inline struct memreg_slot *memreg_queue_next(struct memreg_queue *queue)
{
	struct memreg_slot *slot;

	lockdep_assert_held(&queue->lock);

	if (queue->send) {
		slot = memreg_queue_slot(queue, queue->tail);
		queue->tail = memreg_queue_after(queue, queue->tail);
	} else {
		slot = llist_entry(llist_del_first(&queue->free),
				   struct memreg_slot, node);
	}
	atomic_inc(&queue->posted);
	slot->used = true;
	slot->signalled = false;
	slot->part = false;
	slot->length = 0;
	slot->bounce = 0;
	slot->window = NULL;
	slot->window_id = 0;
	slot->rkey = 0;
	slot->uring = NULL;
	slot->nr_sges = 0;
	return slot;
}

struct memreg_queue *memreg_queue_alloc(struct memreg_kdevice *mdev,
					struct memreg_kring *ring,
					struct memreg_endpoint *ep, bool send,
					u32 depth, u32 max_sge,
					u32 buffer_size);
void memreg_queue_free(struct memreg_kdevice *mdev, struct memreg_queue *queue);
void memreg_queue_close(struct memreg_queue *queue);
int memreg_queue_mark(struct memreg_queue *queue, struct ib_qp *qp);
bool memreg_queue_is_idle(struct memreg_queue *queue);
void memreg_queue_sync(struct memreg_queue *queue);
int memreg_queue_reserve(struct memreg_queue *queue, u32 count);
void memreg_slot_sge_keep(const struct memreg_slot_sge *sges, u32 i);
void memreg_slot_sges_put(const struct memreg_slot_sge *sges, u32 count);
void memreg_queue_undo(struct memreg_slot *slot);
int memreg_slot_build_recv(const struct memreg_slot *slot, u32 lkey,
			   struct ib_sge *sges, int max);
struct memreg_endpoint *memreg_queue_find_user(struct memreg_queue *queue,
					       const struct ib_qp *qp);
int memreg_queue_join(struct memreg_queue *queue, struct memreg_endpoint *ep);

/* Drop the references of a slot. */
static inline void memreg_slot_release(struct memreg_slot *slot)
{
	slot->used = false;
	memreg_slot_sges_put(slot->sges, slot->nr_sges);
	slot->nr_sges = 0;
}

#endif /* _MEMREG_CONN_QUEUE_H */
