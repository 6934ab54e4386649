// SPDX-License-Identifier: GPL-2.0-only
/*
 * Chains: work requests for one queue that are posted by one call, with their
 * slots and entries of the ring.
 */
#include <linux/mutex.h>

#include "conn/chain.h"
#include "conn/teardown_queue.h"
#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/slot.h"
#include "conn/sub.h"
#include "conn/uring.h"
#include "conn/window_2b.h"
#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "stats.h"

/*
 * At least one of so many work requests of a send queue is signalled by the
 * device, give or take a chain: this limits the number of slots that one
 * completion ends, and frees room that other work requests may wait for.
 */
#define MEMREG_SIGNAL_EVERY	64

int memreg_sub_lock(struct memreg_sub *sub, struct memreg_queue *queue)
{
	if (sub->uring)
		return memreg_uring_lock(sub->uring, &queue->lock);
	return mutex_lock_killable(&queue->lock) ? -EINTR : 0;
}

static int memreg_no_room(struct memreg_sub *sub, int err)
{
	if (err == -ENOSPC)
		return memreg_fail(sub->ucmd, -EAGAIN,
				   IB_MEMREG_REASON_QUEUE_FULL);
	memreg_count(sub->ucmd->mdev, IB_MEMREG_STAT_RING_FULL, 1);
	return memreg_fail(sub->ucmd, -EAGAIN, IB_MEMREG_REASON_RING_FULL);
}

/* Release reserved room that was not used. */
void memreg_sub_unreserve(struct memreg_sub *sub)
{
	memreg_ring_unclaim(sub->queue->ring, sub->room);
	sub->room = 0;
}

/*
 * Reserve room for a work request, and at the same time for all those behind it
 * if there is enough.
 */
int memreg_sub_reserve_more(struct memreg_sub *sub, u32 i, u32 parts)
{
	u32 all = parts + sub->end - i - 1;
	int ret;

	memreg_sub_unreserve(sub);
	ret = memreg_queue_reserve(sub->queue, all);
	if (ret && all > parts) {
		all = parts;
		ret = memreg_queue_reserve(sub->queue, all);
	}
	if (ret)
		return memreg_no_room(sub, ret);
	sub->room = all - parts;
	return 0;
}

/*
 * Begin with the work requests up to @end, which are for a queue whose lock is
 * held.
 */
void memreg_sub_begin(struct memreg_sub *sub, struct memreg_queue *queue,
		      struct memreg_domain *domain, u32 max, u32 end)
{
	sub->queue = queue;
	sub->domain = domain;
	sub->lkey = domain->pd->local_dma_lkey;
	sub->max = max;
	sub->end = end;
	sub->room = 0;
}

/* Fill in the slot of the last, or only, part of a user's work request. */
void memreg_slot_describe(struct memreg_sub *sub, struct memreg_slot *slot,
			  u32 i)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];

	slot->user_data = wr->user_data;
	slot->opcode = wr->opcode;
	slot->signalled = wr->flags & IB_MEMREG_WR_SIGNALED ||
			  wr->opcode == IB_MEMREG_OP_RECV;
	if (!sub->uring)
		return;
	/* A command ends with its last work request. */
	slot->signalled |= sub->base + i + 1 == sub->count;
	memreg_uring_add(sub->uring, slot);
}

/* Undo the work requests that were not posted, last one first. */
static void memreg_chain_undo(struct memreg_sub *sub, u32 from)
{
	while (sub->nr > from) {
		struct memreg_slot *slot = sub->s->slots[--sub->nr];

		if (sub->queue->send) {
			sub->queue->fenced = false;
			memreg_window_post_undo(slot);
		}
		memreg_queue_undo(slot);
	}
}

/* Index in the chain of the first work request that was not posted. */
static u32 memreg_chain_find(const struct memreg_sub *sub, const void *bad)
{
	u32 i;

	for (i = 0; i < sub->nr; i++)
		if (bad == &sub->s->device_wrs[i])
			return i;
	return 0;
}

/*
 * Is the slot that of the fence before a BIND, which counts for no work
 * request?
 */
static bool memreg_slot_is_fence(const struct memreg_slot *slot)
{
	/* SENDs are never split into parts. */
	return slot->part && slot->opcode == IB_MEMREG_OP_SEND;
}

/* Count the user's work requests whose last part is in the chain. */
static u32 memreg_chain_count(const struct memreg_sub *sub)
{
	u32 last = sub->nr - 1;

	return sub->s->owners[last] - sub->s->owners[0] +
	       !memreg_slot_is_fence(sub->s->slots[last]);
}

/* Signal the last work request of a chain if one is due. */
static void memreg_chain_signal(struct memreg_sub *sub)
{
	union memreg_device_wr *wrs = sub->s->device_wrs;
	struct memreg_queue *queue = sub->queue;
	u32 i;

	for (i = sub->nr; i; i--)
		if (wrs[i - 1].send.send_flags & IB_SEND_SIGNALED)
			break;
	queue->unsignalled = sub->nr - i + (i ? 0 : queue->unsignalled);
	/* The last work request of a command always completes. */
	if (sub->uring || queue->unsignalled >= MEMREG_SIGNAL_EVERY) {
		wrs[sub->nr - 1].send.send_flags |= IB_SEND_SIGNALED;
		queue->unsignalled = 0;
	}
}

/*
 * Post the chain, and begin a new one. If the post fails, @taken is the index
 * of the user's first work request that was not posted.
 */
int memreg_chain_post(struct memreg_sub *sub,
		      int (*post)(struct memreg_sub *sub, const void **bad),
		      u32 *taken)
{
	const void *bad = sub->s->device_wrs;
	u32 from;
	int ret;

	if (!sub->nr)
		return 0;
	/* The link is the first member of send and receive work requests. */
	static_assert(!offsetof(struct ib_send_wr, next));
	static_assert(!offsetof(struct ib_recv_wr, next));
	sub->s->device_wrs[sub->nr - 1].send.next = NULL;
	if (sub->queue->send)
		memreg_chain_signal(sub);
	ret = post(sub, &bad);
	if (!ret) {
		memreg_count(sub->ucmd->mdev, IB_MEMREG_STAT_WRS_SUBMITTED,
			     memreg_chain_count(sub));
		sub->nr = 0;
		sub->nr_sges = 0;
		return 0;
	}
	from = memreg_chain_find(sub, bad);
	/*
	 * The signalled work request may not have been posted: signal the next
	 * one.
	 */
	sub->queue->unsignalled = MEMREG_SIGNAL_EVERY;
	*taken = sub->s->owners[from];
	/*
	 * A work request was posted only in part, or a command without its last
	 * work request, which is signalled.
	 */
	if (from && ((sub->uring && sub->queue->send) ||
		     (sub->s->owners[from - 1] == *taken &&
		      !memreg_slot_is_fence(sub->s->slots[from - 1]))))
		memreg_endpoint_close(sub->queue->ep);
	memreg_count(sub->ucmd->mdev, IB_MEMREG_STAT_WRS_SUBMITTED,
		     *taken - sub->s->owners[0]);
	memreg_chain_undo(sub, from);
	sub->nr = 0;
	sub->nr_sges = 0;
	/* Replace a reason that was set for a later work request. */
	return memreg_fail(sub->ucmd, ret == -ENOMEM ? ret : -EIO,
			   IB_MEMREG_REASON_NONE);
}
