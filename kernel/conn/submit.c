// SPDX-License-Identifier: GPL-2.0-only
/*
 * Submission: an array of work requests from a user, for one or several
 * endpoints, becomes chains of work requests for their QPs.
 *
 * A call processes its array in chunks. First it copies all data in user space
 * that a chunk refers to, as user space must not be accessed with a queue's
 * lock held. Then it checks consecutive work requests for the same queue one by
 * one, and puts them on a chain that is posted by one call. Each work request
 * takes a slot, an entry of the ring, and references of its MRs before it is
 * put on the chain; after that only the post can fail, which returns the first
 * work request that was not posted. Work requests that were not posted release
 * what they took.
 *
 * Local memory is passed to the device by DMA addresses under the PD's
 * local_dma_lkey: the range was checked against an MR, whose pages are pinned
 * until the completion (I6). A READ or WRITE of more pieces than the device
 * takes in a work request is split into parts, each in a slot of its own.
 */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "conn/endpoint.h"
#include "conn/extents.h"
#include "conn/load.h"
#include "conn/recv.h"
#include "conn/send.h"
#include "conn/sub.h"
#include "conn/submit.h"
#include "conn/submit_wr.h"
#include "conn/uring.h"
#include "core.h"
#include "device.h"
#include "inject.h"
#include "mr/demand.h"
#include "mr/mr.h"

/*
 * Get scratch memory: each file keeps one; a call that finds it in use
 * allocates another. A file keeps only memory that is charged to the process
 * that bound it. Another process, to which the file was passed, may use that
 * memory, but does not stay charged after its call.
 */

static struct memreg_scratch *memreg_scratch_get(struct memreg_file *file)
{
	struct memreg_scratch *s = xchg(&file->scratch, NULL);

	if (s)
		return s;
	s = kvmalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);
	if (s)
		s->keep = file->pid == task_tgid(current);
	return s;
}

static void memreg_scratch_put(struct memreg_file *file,
			       struct memreg_scratch *s)
{
	kvfree(s->keep ? xchg(&file->scratch, s) : s);
}

/* Find an endpoint; holds a reference until the next one is looked up. */
static struct memreg_endpoint *memreg_sub_endpoint(struct memreg_sub *sub,
						   u32 id)
{
	struct memreg_object *obj;

	if (sub->ep && sub->ep->obj.id == id)
		return sub->ep;
	obj = memreg_object_get(sub->ucmd->file, id, IB_MEMREG_OBJECT_ENDPOINT);
	if (!obj)
		return NULL;
	if (sub->ep)
		memreg_object_put(&sub->ep->obj);
	sub->ep = container_of(obj, struct memreg_endpoint, obj);
	return sub->ep;
}

/* Submit work requests of one kind, sends or receives, to one target. */
static int memreg_submit_group(struct memreg_sub *sub, u32 from, u32 to,
			       u32 *taken)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[from];
	struct memreg_endpoint *ep;
	int ret;

	ep = memreg_sub_endpoint(sub, wr->target_id);
	if (!ep)
		return memreg_submit_to_srq(sub, wr->target_id, from, to,
					    taken);
	if (wr->opcode != IB_MEMREG_OP_RECV)
		ret = memreg_submit_sends(sub, ep, from, to, taken);
	else if (!memreg_endpoint_queued(ep) || !ep->recv)
		ret = memreg_fail(sub->ucmd, -EINVAL,
				  IB_MEMREG_REASON_NO_QUEUE);
	else
		ret = memreg_recvs_submit(sub, ep->recv, ep->domain,
					  memreg_fragments(sub->ucmd->mdev),
					  from, to, taken);
	return ret;
}

static bool memreg_wr_is_recv(const struct ib_memreg_wr *wr)
{
	return wr->opcode == IB_MEMREG_OP_RECV;
}

/* Find the end of a run of work requests for one queue. */
static u32 memreg_group_end(const struct memreg_sub *sub, u32 from)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[from];
	bool recv = memreg_wr_is_recv(wr);
	u32 target = wr->target_id;
	u32 i;

	for (i = from + 1; i < sub->loaded; i++) {
		wr++;
		if (wr->target_id != target || memreg_wr_is_recv(wr) != recv)
			break;
	}
	return i;
}

/* Copy the keys of BINDs to the user. */
static int memreg_submit_answer(struct memreg_sub *sub, u32 taken, u32 count)
{
	struct ib_memreg_wr __user *to = sub->wrs + taken;
	u32 i;

	for (i = 0; sub->answers && i < count; i++) {
		const struct ib_memreg_wr *wr = &sub->s->wrs[i];

		if (wr->opcode != IB_MEMREG_OP_BIND)
			continue;
		if (put_user(wr->rkey, &to[i].rkey) ||
		    put_user(wr->remote_addr, &to[i].remote_addr))
			return -EFAULT;
	}
	return 0;
}

/* Put all objects that the call has found. */
static void memreg_sub_let_go(struct memreg_sub *sub)
{
	if (sub->ep)
		memreg_object_put(&sub->ep->obj);
	if (sub->mr)
		memreg_object_put(&sub->mr->obj);
	sub->ep = NULL;
	sub->mr = NULL;
	sub->first = 0;
}

/* How often a chunk starts over without a work request being posted */
#define MEMREG_SUBMIT_FAULTS	(4 * (MEMREG_SUBMIT_CHUNK + MEMREG_SUBMIT_SGES))
#define MEMREG_SUBMIT_RETRIES	8

/*
 * Fault in missing memory. A command of io_uring with posted work requests
 * cannot leave the file, as it has to stay until these have ended.
 */
static int memreg_sub_fault(struct memreg_sub *sub)
{
	if (sub->faults++ == MEMREG_SUBMIT_FAULTS ||
	    (sub->uring && memreg_uring_is_posted(sub->uring)))
		return memreg_fail(sub->ucmd, -EAGAIN,
				   IB_MEMREG_REASON_UNSTEADY);
	memreg_sub_let_go(sub);
	return memreg_demand_fault(sub->ucmd);
}

static void memreg_sub_drop(struct memreg_sub *sub)
{
	if (!sub->on_demand)
		return;
	memreg_extents_drop(&sub->s->extents);
	sub->looked = NULL;
	sub->first = 0;
}

/*
 * Hold the extents of MRs on demand for a chunk. Sets @again if a fault was
 * taken meanwhile, and the chunk has to be copied again.
 */
static int memreg_sub_hold(struct memreg_sub *sub, bool *again)
{
	struct memreg_scratch *s = sub->s;
	struct memreg_chunk_wrs chunk = {
		.wrs = s->wrs, .sges = s->sges, .side = s->side,
	};
	int ret;

	*again = false;
	sub->loaded = min_not_zero(sub->loaded, sub->good);
	sub->good = 0;
	chunk.count = sub->loaded;
	sub->on_demand = atomic_read(&sub->ucmd->file->demands) &&
			 !(sub->uring && sub->uring->mr);
	if (!sub->on_demand)
		return 0;
	sub->looked = NULL;
	sub->first = 0;
	ret = memreg_extents_hold(sub->ucmd, &s->extents, &chunk,
				  !sub->uring ||
				  memreg_uring_may_wait(sub->uring));
	sub->loaded = chunk.count;
	if (!ret)
		return 0;
	memreg_sub_drop(sub);
	if (s->extents.missed)
		return memreg_uring_punt(sub->uring);
	if (ret == -EAGAIN && sub->ucmd->fault.needed) {
		ret = memreg_sub_fault(sub);
		*again = !ret;
	}
	if (!ret || sub->ucmd->away || !chunk.count)
		return ret;
	/* Submit the work requests before it first. */
	sub->good = chunk.count;
	*again = true;
	return memreg_fail(sub->ucmd, 0, IB_MEMREG_REASON_NONE);
}

/*
 * The memory of a work request has changed since its extent was found: find it
 * again.
 */
static int memreg_sub_retry(struct memreg_sub *sub, int err)
{
	if (!sub->again || (err != -ESTALE && err != -EAGAIN) ||
	    sub->retries++ == MEMREG_SUBMIT_RETRIES)
		return err;
	sub->again = false;
	return memreg_fail(sub->ucmd, 0, IB_MEMREG_REASON_NONE);
}

/* Submit the work requests of a chunk. Returns the number submitted in @at. */
static int memreg_submit_loaded(struct memreg_sub *sub, u32 *at)
{
	int ret = 0;

	*at = 0;
	while (!ret && *at < sub->loaded) {
		u32 end = memreg_group_end(sub, *at);
		u32 target = sub->s->wrs[*at].target_id;

		/* Keys are inserted only into messages to the same target. */
		if (sub->insert_target != target)
			sub->nr_inserts = 0;
		sub->insert_target = target;
		ret = memreg_submit_group(sub, *at, end, at);
	}
	return ret;
}

/* Submit the next chunk of a call's work requests. */
static int memreg_submit_chunk(struct memreg_sub *sub, u32 *taken)
{
	bool again;
	int ret, err;
	u32 at;

	ret = memreg_load(sub, *taken);
	if (!ret && sub->uring)
		ret = memreg_uring_look(sub->uring, sub->s->wrs, sub->loaded,
					*taken + sub->loaded < sub->count);
	if (!ret)
		ret = memreg_sub_hold(sub, &again);
	if (ret || again)
		return ret;
	sub->base = *taken;
	ret = memreg_submit_loaded(sub, &at);
	memreg_sub_drop(sub);
	err = memreg_submit_answer(sub, *taken, at);
	*taken += at;
	if (at) {
		sub->faults = 0;
		sub->retries = 0;
	}
	if (ret)
		ret = memreg_sub_retry(sub, ret);
	return ret ?: err;
}

/*
 * Fault in all memory that a command of io_uring needs before any of it is
 * posted. Other errors are found by the submission.
 */
static int memreg_submit_prepare(struct memreg_sub *sub)
{
	u32 done = 0;
	bool again;
	int ret;

	if (!sub->uring || sub->count <= MEMREG_SUBMIT_CHUNK ||
	    !memreg_uring_may_wait(sub->uring) ||
	    !atomic_read(&sub->ucmd->file->demands))
		return 0;
	while (done < sub->count) {
		if (memreg_load(sub, done))
			return 0;
		ret = memreg_sub_hold(sub, &again);
		if (ret)
			return sub->ucmd->away ? ret : 0;
		if (again)
			continue;
		memreg_sub_drop(sub);
		done += sub->loaded;
	}
	return 0;
}

/* Most bytes of a message. */
static u32 memreg_longest(const struct memreg_kdevice *mdev)
{
	if (memreg_inject(MEMREG_INJECT_SHORT_MESSAGES))
		return SZ_4K;
	return mdev->longest;
}

/**
 * memreg_submit_wrs() - Submit work requests
 * @ucmd: The call
 * @uring: The command, if it is one of io_uring; otherwise NULL
 * @wrs: Address of an array of struct ib_memreg_wr in user space
 * @count: Their number
 * @taken: Number of work requests that were posted, also on failure
 *
 * Return: 0, or a negative errno of struct ib_memreg_submit.
 */
int memreg_submit_wrs(struct memreg_ucmd *ucmd, struct memreg_uring *uring,
		      u64 wrs, u32 count, u32 *taken)
{
	struct memreg_sub sub;
	int ret;

	*taken = 0;
	if (!count || count > IB_MEMREG_BATCH_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	sub.s = memreg_scratch_get(ucmd->file);
	if (!sub.s)
		return -ENOMEM;
	sub.ucmd = ucmd;
	sub.uring = uring;
	sub.wrs = u64_to_user_ptr(wrs);
	sub.count = count;
	sub.opcodes = memreg_submit_opcodes(ucmd->mdev);
	sub.longest = memreg_longest(ucmd->mdev);
	sub.ep = NULL;
	sub.mr = NULL;
	sub.first = 0;
	sub.insert_target = 0;
	sub.nr_inserts = 0;
	sub.nr = 0;
	sub.nr_sges = 0;
	sub.nr_resolved = 0;
	sub.on_demand = false;
	sub.looked = NULL;
	sub.again = false;
	sub.good = 0;
	sub.faults = 0;
	sub.retries = 0;
	ret = memreg_submit_prepare(&sub);
	while (!ret && *taken < count)
		ret = memreg_submit_chunk(&sub, taken);
	memreg_sub_let_go(&sub);
	memreg_scratch_put(ucmd->file, sub.s);
	return ret;
}

static int memreg_submit_check(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_submit *cmd = ucmd->cmd;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	return 0;
}

/* ioctl(IB_MEMREG_IOC_SUBMIT) */
int memreg_submit_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_submit *cmd = ucmd->cmd;
	u32 taken;
	int ret;

	ret = memreg_submit_check(ucmd);
	/* Check that the answer can be written, with the most likely value. */
	cmd->out_taken = ret ? 0 : cmd->count;
	if (memreg_respond(ucmd, sizeof(*cmd)))
		return ret ?: -EFAULT;
	if (ret)
		return ret;
	ret = memreg_submit_wrs(ucmd, NULL, cmd->wrs, cmd->count, &taken);
	if (taken == cmd->count)
		return ret;
	cmd->out_taken = taken;
	if (memreg_respond(ucmd, sizeof(*cmd)) && !ret)
		ret = -EFAULT;
	return ret;
}
