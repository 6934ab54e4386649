// SPDX-License-Identifier: GPL-2.0-only
/*
 * Submission of receives, to the queue of an endpoint or to a shared one.
 */
#include "conn/chain.h"
#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/recv.h"
#include "conn/resolve.h"
#include "conn/slot.h"
#include "conn/srq.h"
#include "conn/sub.h"
#include "conn/submit_wr.h"
#include "conn/uring.h"
#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "mr/mr.h"
#include "pages/region.h"
#include "stats.h"

static int memreg_post_recv(struct memreg_sub *sub, const void **bad)
{
	return ib_post_recv(sub->queue->ep->id->qp,
			    &sub->s->device_wrs[0].recv,
			    (const struct ib_recv_wr **)bad);
}

static int memreg_post_srq(struct memreg_sub *sub, const void **bad)
{
	return ib_post_srq_recv(sub->queue->srq, &sub->s->device_wrs[0].recv,
				(const struct ib_recv_wr **)bad);
}

/* May the CPU copy the first bytes of a message to the user's memory? */
static inline bool memreg_slot_by_cpu(const struct memreg_slot *slot)
{
	u32 i;

	for (i = 0; i < slot->nr_sges; i++)
		if (slot->sges[i].mr->region->opaque)
			return false;
	return true;
}

/*
 * Put a receive, whose slot has its memory, on the chain, or on the list for a
 * later QP.
 */
static inline int memreg_recv_add(struct memreg_sub *sub,
				  struct memreg_slot *slot, u64 total, u32 i)
{
	struct ib_sge *sges = &sub->s->device_sges[sub->nr_sges];
	struct memreg_queue *queue = sub->queue;
	union memreg_device_wr *to;
	int n;

	memreg_slot_describe(sub, slot, i);
	/* An entry of io_uring has no room for a message. */
	if (!sub->uring && memreg_slot_by_cpu(slot))
		slot->bounce = min_t(u64, total, queue->buffer_size);
	if (slot->bounce == total && total)
		n = memreg_slot_bounce(slot, sub->lkey, sges);
	else
		n = memreg_slot_build_recv(slot, sub->lkey, sges, sub->max);
	if (n < 0) {
		memreg_queue_undo(slot);
		return memreg_fail(sub->ucmd, n, IB_MEMREG_REASON_FRAGMENTS);
	}
	/* The QP is not made yet. */
	if (!queue->ready) {
		llist_add(&slot->node, &queue->early);
		memreg_count(sub->ucmd->mdev, IB_MEMREG_STAT_WRS_SUBMITTED, 1);
		return 0;
	}
	to = memreg_chain_add(sub, slot, i);
	to->recv.wr_cqe = &slot->cqe;
	to->recv.sg_list = sges;
	to->recv.num_sge = n;
	sub->nr_sges += n;
	return 0;
}

/* Submit a receive of any number of SGEs. */
static noinline int memreg_recv_memory(struct memreg_sub *sub, u32 i)
{
	struct memreg_slot *slot;
	u64 total = 0;
	int ret;
	u32 n;

	ret = memreg_resolve(sub, i, true);
	if (ret)
		return ret;
	ret = memreg_sub_reserve(sub, i, 1);
	if (ret) {
		memreg_unresolve(sub);
		return ret;
	}
	slot = memreg_queue_next(sub->queue);
	for (n = 0; n < sub->nr_resolved; n++) {
		slot->sges[n] = sub->s->resolved[n];
		total += sub->s->resolved[n].length;
	}
	/* The slot takes over the references. */
	slot->nr_sges = n;
	sub->nr_resolved = 0;
	return memreg_recv_add(sub, slot, total, i);
}

/* Submit a plain receive. */
static inline int memreg_recv_plain(struct memreg_sub *sub, u32 i)
{
	const struct ib_memreg_sge *sge = &sub->s->wrs[i].sge;
	struct memreg_slot *slot;
	struct memreg_kmr *mr;
	int ret;

	mr = memreg_sub_range(sub, sge, true);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	ret = memreg_sub_reserve(sub, i, 1);
	if (ret)
		return ret;
	slot = memreg_queue_next(sub->queue);
	if (sge->length)
		memreg_slot_keep(sub, slot, mr, sge);
	return memreg_recv_add(sub, slot, sge->length, i);
}

/* Submit receives from @from on, up to @to, to a queue. */
int memreg_recvs_submit(struct memreg_sub *sub, struct memreg_queue *queue,
			struct memreg_domain *domain, u32 max, u32 from, u32 to,
			u32 *taken)
{
	u32 i = from;
	int ret, err;
	bool plain;

	ret = memreg_sub_lock(sub, queue);
	if (ret)
		return ret;
	memreg_sub_begin(sub, queue, domain, max, to);
	ret = queue->closed ? memreg_fail(sub->ucmd, -ENOTCONN,
					  IB_MEMREG_REASON_STATE) : 0;
	while (!ret && i < to) {
		ret = memreg_check_wr(sub->ucmd, sub->opcodes, sub->longest,
				      queue, &sub->s->wrs[i], &plain);
		if (!ret)
			ret = plain ? memreg_recv_plain(sub, i) :
				      memreg_recv_memory(sub, i);
		if (!ret)
			i++;
	}
	memreg_sub_unreserve(sub);
	err = memreg_chain_post(sub, queue->srq ? memreg_post_srq :
				memreg_post_recv, &i);
	mutex_unlock(&queue->lock);
	*taken = i;
	return err ?: ret;
}

int memreg_submit_to_srq(struct memreg_sub *sub, u32 id, u32 from, u32 to,
			 u32 *taken)
{
	struct memreg_object *obj;
	struct memreg_srq *srq;
	int ret;

	obj = memreg_object_get(sub->ucmd->file, id, IB_MEMREG_OBJECT_SRQ);
	if (!obj)
		return memreg_fail(sub->ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	srq = container_of(obj, struct memreg_srq, obj);
	if (sub->uring && sub->uring->fixed)
		/* A receive on a shared queue cannot be flushed alone. */
		ret = memreg_fail(sub->ucmd, -EOPNOTSUPP,
				  IB_MEMREG_REASON_OPCODE_QUEUE);
	else if (sub->s->wrs[from].opcode == IB_MEMREG_OP_RECV)
		ret = memreg_recvs_submit(sub, srq->queue, srq->domain,
					  memreg_srq_fragments(sub->ucmd->mdev),
					  from, to, taken);
	else
		ret = memreg_fail(sub->ucmd, -EINVAL,
				  IB_MEMREG_REASON_OPCODE_QUEUE);
	memreg_object_put(obj);
	return ret;
}
