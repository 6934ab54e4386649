// SPDX-License-Identifier: GPL-2.0-only
/*
 * Submission to a send queue: SENDs, READs, WRITEs, atomics, and what binds and
 * invalidates windows.
 */
#include "conn/chain.h"
#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/resolve.h"
#include "conn/ring.h"
#include "conn/send.h"
#include "conn/slot.h"
#include "conn/sub.h"
#include "conn/submit_wr.h"
#include "conn/window_2b.h"
#include "core.h"
#include "device.h"
#include "inject.h"
#include "keys/domain.h"
#include "keys/frwr.h"
#include "keys/key.h"
#include "mr/keyed.h"
#include "mr/mr.h"
#include "pages/region.h"
#include "quirks.h"

/*
 * Opcodes that need resources of the peer; without these they never complete.
 */
#define MEMREG_OPS_ANSWERED					\
	(BIT_ULL(IB_MEMREG_OP_READ) |				\
	 BIT_ULL(IB_MEMREG_OP_CMP_AND_SWP) |			\
	 BIT_ULL(IB_MEMREG_OP_FETCH_AND_ADD) |			\
	 BIT_ULL(IB_MEMREG_OP_ATOMIC_WRITE))

static int memreg_post_send(struct memreg_sub *sub, const void **bad)
{
	return memreg_inject_post_send(sub->queue->ep->id->qp,
				       &sub->s->device_wrs[0].send,
				       (const struct ib_send_wr **)bad);
}

/* Flags for the device. */
static inline int memreg_send_flags(const struct ib_memreg_wr *wr,
				    const struct memreg_slot *slot, bool part,
				    u64 done)
{
	int flags = 0;

	if (slot->signalled && !part)
		flags |= IB_SEND_SIGNALED;
	/* Only the first part has to wait for earlier work. */
	if (wr->flags & IB_MEMREG_WR_FENCE && !done)
		flags |= IB_SEND_FENCE;
	if (wr->flags & IB_MEMREG_WR_SOLICITED && !part)
		flags |= IB_SEND_SOLICITED;
	return flags;
}

/*
 * Fill in a work request for the device, or a part of one, except its SGEs and
 * its window.
 */
static inline void memreg_fill_wr(union memreg_device_wr *to,
				  const struct memreg_opcode *op,
				  const struct ib_memreg_wr *wr,
				  struct memreg_slot *slot, bool part, u64 done)
{
	to->send.wr_cqe = &slot->cqe;
	to->send.opcode = part ? op->part : op->wr;
	to->send.send_flags = memreg_send_flags(wr, slot, part, done);
	/* Immediate data, an rkey, or 0 for opcodes with neither. */
	to->send.ex.invalidate_rkey = part ? 0 : wr->ex;
	if (op->atomic) {
		to->atomic.remote_addr = wr->remote_addr;
		to->atomic.compare_add = wr->compare_add;
		to->atomic.swap = wr->swap;
		to->atomic.compare_add_mask = 0;
		to->atomic.swap_mask = 0;
		to->atomic.rkey = wr->rkey;
	} else if (op->remote) {
		to->rdma.remote_addr = wr->remote_addr + done;
		to->rdma.rkey = wr->rkey;
	}
}

/* Progress of a work request that is split into parts. */
struct memreg_progress {
	u32 sge;
	u32 offset;
	u64 done;
};

/*
 * List as much of the local memory as a part can have. Returns the number of
 * SGEs. A slot, unless NULL, gets the ranges that they are from.
 */
static u32 memreg_sub_part(struct memreg_sub *sub, struct memreg_slot *slot,
			   struct ib_sge *sges, struct memreg_progress *at)
{
	u64 end = at->done + sub->longest;
	u32 n = 0;

	while (at->sge < sub->nr_resolved && n < sub->max && at->done < end) {
		const struct memreg_slot_sge *from = &sub->s->resolved[at->sge];
		struct memreg_region *region = from->mr->region;
		u64 offset = from->offset + at->offset;
		u64 left = min_t(u64, from->length - at->offset,
				 end - at->done);
		u64 all = left;

		n += memreg_mr_sges(from->mr, at->offset ?
				    memreg_region_find(region, offset) :
				    from->first, offset, &left, sub->lkey,
				    &sges[n], sub->max - n);
		if (slot) {
			slot->sges[slot->nr_sges] = *from;
			memreg_slot_sge_keep(slot->sges, slot->nr_sges++);
		}
		at->done += all - left;
		at->offset += all - left;
		if (at->offset == from->length) {
			at->offset = 0;
			at->sge++;
		}
	}
	return n;
}

/*
 * Count the parts of a work request that is longer than a message; returns
 * MEMREG_CHAIN + 1 for too many.
 */
static noinline u32 memreg_sub_parts_long(struct memreg_sub *sub)
{
	struct ib_sge sges[MEMREG_FRAGMENTS];
	struct memreg_progress at = {};
	u32 parts = 0;

	do {
		memreg_sub_part(sub, NULL, sges, &at);
		parts++;
	} while (at.sge < sub->nr_resolved && parts <= MEMREG_CHAIN);
	return parts;
}

/* Count the parts of the current work request. */
static u32 memreg_sub_parts(struct memreg_sub *sub, u64 *length)
{
	u32 n, pieces = 0;

	*length = 0;
	for (n = 0; n < sub->nr_resolved; n++) {
		const struct memreg_slot_sge *sge = &sub->s->resolved[n];

		pieces += memreg_mr_fragments(sge->mr, sge->first, sge->offset,
					      sge->length);
		*length += sge->length;
	}
	if (*length > sub->longest)
		return memreg_sub_parts_long(sub);
	return max(DIV_ROUND_UP(pieces, sub->max), 1U);
}

/* Fill in the local memory of a part, as much as it can have. */
static void memreg_fill_part(struct memreg_sub *sub, struct memreg_slot *slot,
			     union memreg_device_wr *to,
			     struct memreg_progress *at)
{
	struct ib_sge *sges = &sub->s->device_sges[sub->nr_sges];
	u32 n = memreg_sub_part(sub, slot, sges, at);

	to->send.sg_list = sges;
	to->send.num_sge = n;
	sub->nr_sges += n;
}

/* Put a work request with local memory on the chain, in as many parts. */
static int memreg_send_parts(struct memreg_sub *sub, u32 i, u32 *taken)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	const struct memreg_opcode *op = memreg_opcode(wr->opcode);
	struct memreg_progress at = {};
	u32 parts;
	u64 length;
	int ret;

	parts = memreg_sub_parts(sub, &length);
	if (length > sub->longest && !op->parts)
		return memreg_fail(sub->ucmd, -EMSGSIZE,
				   IB_MEMREG_REASON_SPAN);
	if (parts > 1 && (!op->parts || parts > MEMREG_CHAIN ||
			  parts > sub->queue->depth ||
			  parts > sub->queue->ring->nr_entries))
		return memreg_fail(sub->ucmd, -EMSGSIZE,
				   IB_MEMREG_REASON_FRAGMENTS);
	if (sub->nr + parts > MEMREG_CHAIN) {
		ret = memreg_chain_post(sub, memreg_post_send, taken);
		if (ret)
			return ret;
	}
	ret = memreg_sub_reserve(sub, i, parts);
	if (ret)
		return ret;
	do {
		struct memreg_slot *slot = memreg_queue_next(sub->queue);
		union memreg_device_wr *to = memreg_chain_add(sub, slot, i);
		u64 done = at.done;

		memreg_slot_describe(sub, slot, i);
		memreg_fill_part(sub, slot, to, &at);
		slot->part = at.sge < sub->nr_resolved;
		memreg_fill_wr(to, op, wr, slot, slot->part, done);
		if (op->write)
			slot->length = at.done;
		parts--;
	} while (at.sge < sub->nr_resolved);
	sub->room += parts;
	return 0;
}

/* Put any work request with local memory on the chain. */
static noinline int memreg_send_memory(struct memreg_sub *sub, u32 i,
				       u32 *taken)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	int ret;

	ret = memreg_resolve(sub, i, memreg_opcode(wr->opcode)->write);
	if (ret)
		return ret;
	ret = memreg_send_parts(sub, i, taken);
	memreg_unresolve(sub);
	return ret;
}

/* A work request has one piece of memory. */
static __always_inline void memreg_send_piece(struct memreg_sub *sub,
					      union memreg_device_wr *to,
					      u64 addr, u32 length)
{
	struct ib_sge *sge = &sub->s->device_sges[sub->nr_sges++];

	sge->addr = addr;
	sge->length = length;
	sge->lkey = sub->lkey;
	to->send.sg_list = sge;
	to->send.num_sge = 1;
}

/* Put a plain work request on the chain. Usually it is of one piece. */
static inline int memreg_send_plain(struct memreg_sub *sub, u32 i, u32 *taken)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	const struct memreg_opcode *op = memreg_opcode(wr->opcode);
	union memreg_device_wr *to;
	struct memreg_slot *slot;
	struct memreg_kmr *mr;
	u64 addr;
	int ret;

	mr = memreg_sub_range(sub, &wr->sge, op->write);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	if (!memreg_sub_piece(sub, mr, &wr->sge, &addr))
		return memreg_send_memory(sub, i, taken);
	ret = memreg_sub_reserve(sub, i, 1);
	if (ret)
		return ret;
	slot = memreg_queue_next(sub->queue);
	to = memreg_chain_add(sub, slot, i);
	memreg_slot_describe(sub, slot, i);
	memreg_slot_keep(sub, slot, mr, &wr->sge);
	memreg_fill_wr(to, op, wr, slot, false, 0);
	memreg_send_piece(sub, to, addr, wr->sge.length);
	if (op->write)
		slot->length = wr->sge.length;
	return 0;
}

/* Insert the pending rkeys into this message. */
static int memreg_insert_rkeys(struct memreg_sub *sub,
			       const struct ib_memreg_wr *wr, u32 i)
{
	u32 n;

	for (n = 0; n < sub->nr_inserts; n++) {
		const struct memreg_insert *insert = &sub->s->inserts[n];
		__be32 rkey = cpu_to_be32(insert->rkey);

		if (!(wr->flags & IB_MEMREG_WR_INLINE))
			return memreg_fail(sub->ucmd, -EINVAL,
					   IB_MEMREG_REASON_INSERT_MESSAGE);
		if (wr->length < sizeof(rkey) ||
		    insert->at > wr->length - sizeof(rkey))
			return memreg_fail(sub->ucmd, -EINVAL,
					   IB_MEMREG_REASON_INSERT_AT);
		memcpy((void *)sub->s->side[i] + insert->at, &rkey,
		       sizeof(rkey));
	}
	sub->nr_inserts = 0;
	return 0;
}

/* Put a work request with inline data on the chain. */
static int memreg_send_inline(struct memreg_sub *sub, u32 i)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	union memreg_device_wr *to;
	struct memreg_slot *slot;
	int ret;

	ret = memreg_sub_reserve(sub, i, 1);
	if (ret)
		return ret;
	slot = memreg_queue_next(sub->queue);
	to = memreg_chain_add(sub, slot, i);
	memreg_slot_describe(sub, slot, i);
	memreg_fill_wr(to, memreg_opcode(wr->opcode), wr, slot, false, 0);
	to->send.sg_list = NULL;
	to->send.num_sge = 0;
	if (!wr->length)
		return 0;
	memcpy(memreg_slot_buffer(slot), sub->s->side[i], wr->length);
	ib_dma_sync_single_for_device(sub->ucmd->mdev->ibdev,
				      memreg_slot_buffer_dma(slot),
				      wr->length, DMA_BIDIRECTIONAL);
	memreg_send_piece(sub, to, memreg_slot_buffer_dma(slot), wr->length);
	return 0;
}

/*
 * Put a LOCAL_INV without effect on the chain, which waits for all work
 * requests before it.
 */
static void memreg_send_fence(struct memreg_sub *sub,
			      const struct memreg_endpoint *ep, u32 i,
			      int flags)
{
	struct memreg_slot *slot = memreg_queue_next(sub->queue);
	union memreg_device_wr *to = memreg_chain_add(sub, slot, i);

	/* If this LOCAL_INV fails, the BIND is reported as failed. */
	slot->opcode = IB_MEMREG_OP_SEND;
	slot->part = true;
	to->send.wr_cqe = &slot->cqe;
	to->send.opcode = IB_WR_LOCAL_INV;
	to->send.send_flags = flags;
	to->send.sg_list = NULL;
	to->send.num_sge = 0;
	to->send.ex.invalidate_rkey = ep->domain->fence.mr->rkey;
	sub->queue->fenced = true;
}

/*
 * Before a BIND, make sure that no earlier message can be retransmitted after
 * the BIND was executed, on a device that would execute the BIND again. If
 * there is room only for this fence, it still makes room, as the unsignalled
 * work requests before it complete with it.
 */
static int memreg_send_fenced(struct memreg_sub *sub,
			      const struct memreg_endpoint *ep, u32 i,
			      u32 *taken)
{
	int ret;

	if (!atomic_read(&sub->queue->posted)) {
		sub->queue->fenced = true;
		return memreg_sub_reserve(sub, i, 1);
	}
	if (sub->nr + 2 > MEMREG_CHAIN) {
		ret = memreg_chain_post(sub, memreg_post_send, taken);
		if (ret)
			return ret;
	}
	ret = memreg_sub_reserve(sub, i, 2);
	if (!ret)
		memreg_send_fence(sub, ep, i, 0);
	else if (!memreg_queue_reserve(sub->queue, 1))
		memreg_send_fence(sub, ep, i, IB_SEND_SIGNALED);
	return ret;
}

/*
 * Reserve room for a BIND with its fence, or for an INVALIDATE, which needs no
 * fence.
 */
static int memreg_send_reserve(struct memreg_sub *sub,
			       const struct memreg_endpoint *ep, u32 i,
			       u32 *taken)
{
	if (sub->ucmd->mdev->quirks & MEMREG_QUIRK_REPEATS_REG_MR &&
	    sub->s->wrs[i].opcode == IB_MEMREG_OP_BIND && !sub->queue->fenced)
		return memreg_send_fenced(sub, ep, i, taken);
	return memreg_sub_reserve(sub, i, 1);
}

/* Prepare a BIND to an MR or to an extent of one. */
static int memreg_send_bind(struct memreg_sub *sub, struct memreg_endpoint *ep,
			    u32 i, struct memreg_slot *slot)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	struct memreg_kmr *extent = NULL;
	int ret;

	if (sub->on_demand)
		extent = sub->s->extents.of_wr[i];
	ret = memreg_window_post_bind(sub->ucmd, ep, wr, extent ?: sub->mr,
				      slot);
	if ((ret == -ESTALE && extent) ||
	    (ret == -EAGAIN && sub->ucmd->reason == IB_MEMREG_REASON_UNSTEADY))
		sub->again = true;
	return ret;
}

/* Put a BIND or an INVALIDATE on the chain. Both are always signalled. */
static int memreg_send_window(struct memreg_sub *sub,
			      struct memreg_endpoint *ep, u32 i, u32 *taken)
{
	struct ib_memreg_wr *wr = &sub->s->wrs[i];
	union memreg_device_wr *to;
	struct memreg_slot *slot;
	int ret;

	if (wr->flags & IB_MEMREG_WR_INSERT_RKEY &&
	    sub->nr_inserts == ARRAY_SIZE(sub->s->inserts))
		return memreg_fail(sub->ucmd, -EINVAL,
				   IB_MEMREG_REASON_INSERTS);
	ret = memreg_send_reserve(sub, ep, i, taken);
	if (ret)
		return ret;
	slot = memreg_queue_next(sub->queue);
	if (wr->opcode == IB_MEMREG_OP_BIND)
		ret = memreg_send_bind(sub, ep, i, slot);
	else
		ret = memreg_window_post_invalidate(sub->ucmd, ep, wr, slot);
	if (ret) {
		memreg_queue_undo(slot);
		return ret;
	}
	to = memreg_chain_add(sub, slot, i);
	memreg_slot_describe(sub, slot, i);
	if (wr->opcode == IB_MEMREG_OP_BIND) {
		const struct memreg_key *key = memreg_window_key(slot->window);

		to->reg.mr = key->frwr->fast.mr;
		to->reg.key = key->rkey;
		to->reg.access = key->frwr->fast.wr.access;
		/* Output fields, which the call copies to the user. */
		wr->rkey = key->rkey;
		wr->remote_addr = key->iova;
		if (wr->flags & IB_MEMREG_WR_INSERT_RKEY)
			sub->s->inserts[sub->nr_inserts++] =
				(struct memreg_insert) {
					.rkey = key->rkey, .at = wr->insert_at,
				};
	}
	memreg_fill_wr(to, memreg_opcode(wr->opcode), wr, slot, false, 0);
	to->send.sg_list = NULL;
	to->send.num_sge = 0;
	to->send.send_flags |= IB_SEND_SIGNALED;
	if (wr->opcode == IB_MEMREG_OP_INVALIDATE) {
		to->send.ex.invalidate_rkey = slot->rkey;
		/* An INVALIDATE is a LOCAL_INV, which acts as a fence. */
		sub->queue->fenced = true;
	}
	return 0;
}

/* Put one work request on the chain. */
static int memreg_send_one(struct memreg_sub *sub, struct memreg_endpoint *ep,
			   u32 i, u32 *taken)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	bool plain;
	int ret;

	ret = memreg_check_wr(sub->ucmd, sub->opcodes, sub->longest, sub->queue,
			      wr, &plain);
	if (ret)
		return ret;
	if (unlikely(!ep->initiator_depth) &&
	    MEMREG_OPS_ANSWERED & BIT_ULL(wr->opcode))
		return memreg_fail(sub->ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_OPCODE_PEER);
	if (sub->nr == MEMREG_CHAIN) {
		ret = memreg_chain_post(sub, memreg_post_send, taken);
		if (ret)
			return ret;
	}
	if (!plain && memreg_opcode(wr->opcode)->window)
		return memreg_send_window(sub, ep, i, taken);
	sub->queue->fenced = false;
	if (sub->nr_inserts) {
		ret = memreg_insert_rkeys(sub, wr, i);
		if (ret)
			return ret;
	}
	if (plain)
		return memreg_send_plain(sub, i, taken);
	if (wr->flags & IB_MEMREG_WR_INLINE)
		return memreg_send_inline(sub, i);
	return memreg_send_memory(sub, i, taken);
}

/* Are an endpoint's queues set up? */
bool memreg_endpoint_queued(const struct memreg_endpoint *ep)
{
	/*
	 * Pairs with the release of @queued: the queues do not change any more.
	 */
	return smp_load_acquire(&ep->queued);
}

/* Submit work requests from @from on, up to @to, to an endpoint's queue. */
int memreg_submit_sends(struct memreg_sub *sub, struct memreg_endpoint *ep,
			u32 from, u32 to, u32 *taken)
{
	u32 i = from;
	int ret, err;

	if (!memreg_endpoint_queued(ep) || !ep->send)
		return memreg_fail(sub->ucmd, -EINVAL,
				   IB_MEMREG_REASON_NO_QUEUE);
	ret = memreg_sub_lock(sub, ep->send);
	if (ret)
		return ret;
	memreg_sub_begin(sub, ep->send, ep->domain,
			 READ_ONCE(ep->send->fragments), to);
	/*
	 * Once @sendable is set, the limits that the peer agreed to are known.
	 */
	if (!ep->send->ready || !smp_load_acquire(&ep->sendable))
		ret = memreg_fail(sub->ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
	while (!ret && i < to) {
		ret = memreg_send_one(sub, ep, i, &i);
		if (!ret)
			i++;
	}
	memreg_sub_unreserve(sub);
	err = memreg_chain_post(sub, memreg_post_send, &i);
	mutex_unlock(&ep->send->lock);
	*taken = i;
	return err ?: ret;
}
