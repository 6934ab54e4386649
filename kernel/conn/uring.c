// SPDX-License-Identifier: GPL-2.0-only
/*
 * Commands of io_uring: the slots of a command, and its end. uring_cmd.c issues
 * and cancels commands.
 *
 * A command is a chain of work requests for one queue, or one receive. Each of
 * its slots points to the command and is counted in @pending, as is its issuer.
 * The last of these to finish ends the command: the issuer at once; a slot,
 * which ends in any context, by task work for the command's task.
 *
 * Posted work requests cannot be cancelled, but io_uring cancels a command when
 * a process exits or closes its ring, and waits for it: commands keep the file
 * open, so only this ends them. A cancelled command ends at once, and its slots
 * continue without it. Their outcome then goes to the completion ring of the
 * queue, where an entry is reserved for each slot in any case (I10).
 *
 * A command on a registered buffer cannot end that way, as io_uring keeps the
 * buffer only until the command has ended (I1). Cancelling it ends the
 * connection, which flushes the queue.
 */
#include <linux/io_uring/cmd.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/slot.h"
#include "conn/submit_wr.h"
#include "conn/uring.h"
#include "core.h"
#include "mr/mr.h"
#include "pages/borrowed.h"
#include "pages/region.h"

static bool memreg_uring_nowait(const struct memreg_uring *uring)
{
	return uring->issue_flags & IO_URING_F_NONBLOCK;
}

/**
 * memreg_uring_may_wait() - May the issue of a command wait?
 * @uring: The command, being issued
 *
 * Return: true if it may.
 */
bool memreg_uring_may_wait(const struct memreg_uring *uring)
{
	return !memreg_uring_nowait(uring);
}

/**
 * memreg_uring_punt() - Make io_uring issue a command again where it may wait
 * @uring: The command, being issued; it fails if a part of it is posted, as
 *	that would be posted twice
 *
 * Return: -EAGAIN.
 */
int memreg_uring_punt(struct memreg_uring *uring)
{
	if (memreg_uring_is_posted(uring))
		return memreg_fail(uring->ucmd, -EAGAIN,
				   IB_MEMREG_REASON_UNSTEADY);
	uring->blocked = true;
	return -EAGAIN;
}

/*
 * The end
 */

/* Convert a status to an errno: see IB_MEMREG_URING_SUBMIT. */
static int memreg_uring_errno(u8 status)
{
	switch (status) {
	case IB_MEMREG_WC_LOC_LEN_ERR:
		return -EMSGSIZE;
	case IB_MEMREG_WC_LOC_PROT_ERR:
	case IB_MEMREG_WC_LOC_ACCESS_ERR:
		return -EFAULT;
	case IB_MEMREG_WC_WR_FLUSH_ERR:
		return -ECANCELED;
	case IB_MEMREG_WC_REM_ACCESS_ERR:
		return -EACCES;
	case IB_MEMREG_WC_REM_INV_REQ_ERR:
	case IB_MEMREG_WC_REM_OP_ERR:
		return -EREMOTEIO;
	case IB_MEMREG_WC_RETRY_EXC_ERR:
	case IB_MEMREG_WC_RNR_RETRY_EXC_ERR:
	case IB_MEMREG_WC_RESP_TIMEOUT_ERR:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}

static int memreg_uring_res(const struct memreg_uring *uring)
{
	if (uring->error)
		return uring->error;
	if (uring->outcome.status != IB_MEMREG_WC_SUCCESS)
		return memreg_uring_errno(uring->outcome.status);
	return min_t(u32, uring->outcome.byte_len, INT_MAX);
}

/* The second part of the result, for a large entry of io_uring. */
static u64 memreg_uring_extra(const struct memreg_uring *uring)
{
	union {
		struct ib_memreg_uring_result result;
		u64 extra;
	} all = { .result = {
		.status = uring->outcome.status,
		.flags = uring->outcome.flags,
	} };

	static_assert(sizeof(all.result) == sizeof(all.extra));
	if (uring->error) {
		all.result.reason = uring->reason;
		all.result.ex = uring->taken;
		return all.extra;
	}
	all.result.opcode = uring->outcome.opcode;
	all.result.ex = uring->shared ? uring->endpoint : uring->outcome.ex;
	return all.extra;
}

/**
 * memreg_uring_release() - Release the resources of a command
 * @uring: The command; memreg_uring_through() has returned its buffer
 *
 * Context: may sleep.
 */
void memreg_uring_release(struct memreg_uring *uring)
{
	if (uring->mr && uring->mr->region)
		memreg_region_release(uring->mr->region);
	kfree(uring->mr);
}

/**
 * memreg_uring_end() - End a command, and free it
 * @uring: The command
 * @cmd: As io_uring knows it
 * @issue_flags: Flags from io_uring
 */
void memreg_uring_end(struct memreg_uring *uring, struct io_uring_cmd *cmd,
		      unsigned int issue_flags)
{
	int res = memreg_uring_res(uring);
	u64 extra = memreg_uring_extra(uring);

	memreg_uring_release(uring);
	if (uring->cqe32)
		io_uring_cmd_done32(cmd, res, extra, issue_flags);
	else
		io_uring_cmd_done(cmd, res, issue_flags);
	/* Until io_uring_cmd_done(), io_uring might cancel the command. */
	kfree(uring);
}

/* Called in the command's task, or instead of it. */
static void memreg_uring_work(struct io_tw_req tw_req, io_tw_token_t tw)
{
	struct io_uring_cmd *cmd = io_uring_cmd_from_tw(tw_req);

	memreg_uring_end(*io_uring_cmd_to_pdu(cmd, struct memreg_uring *), cmd,
			 IO_URING_CMD_TASK_WORK_ISSUE_FLAGS);
}

/**
 * memreg_uring_through() - Finish a command without posted work requests
 * @uring: The command, whose device is still there
 *
 * Context: any.
 */
void memreg_uring_through(struct memreg_uring *uring)
{
	if (uring->mr && uring->mr->region)
		memreg_region_return(uring->mr->region);
}

/*
 * Slots
 */

/**
 * memreg_uring_add() - Add a slot to a command
 * @uring: The command, being issued
 * @slot: The slot
 */
void memreg_uring_add(struct memreg_uring *uring, struct memreg_slot *slot)
{
	slot->uring = uring;
	uring->shared = !slot->queue->ep;
	if (!uring->ring) {
		uring->ring = slot->queue->ring;
		memreg_ring_hold(uring->ring);
	}
	atomic_inc(&uring->pending);
}

/**
 * memreg_uring_note() - Record the outcome of a slot
 * @uring: The command
 * @entry: The outcome; not its data
 *
 * Context: any, with memreg_kring.lock held.
 */
void memreg_uring_note(struct memreg_uring *uring,
		       const struct ib_memreg_cqe *entry)
{
	u8 flags = uring->outcome.flags & IB_MEMREG_CQE_STALE;

	if (uring->outcome.status == IB_MEMREG_WC_SUCCESS)
		memcpy(&uring->outcome, entry,
		       offsetof(struct ib_memreg_cqe, data));
	uring->outcome.flags |= flags;
}

/**
 * memreg_uring_put() - Remove a slot that has ended from its command
 * @uring: The command, which must not be accessed afterwards
 * @ring: The ring in which an entry is reserved for the slot
 *
 * The caller calls memreg_uring_end_all() after it has freed the slot and its
 * room: a user that sees the end of the command may use these.
 *
 * Context: any, with memreg_kring.lock held.
 * Return: true if the entry was written, because io_uring has cancelled the
 * command.
 */
bool memreg_uring_put(struct memreg_uring *uring, struct memreg_kring *ring)
{
	struct io_uring_cmd *cmd;
	bool reported;

	lockdep_assert_held(&ring->lock);

	if (atomic_dec_return(&uring->pending))
		return false;
	memreg_uring_through(uring);
	cmd = xchg(&uring->cmd, NULL);
	if (cmd) {
		uring->ended = cmd;
		list_add_tail(&uring->node, &ring->ended);
		return false;
	}
	/* The last work request that was posted may not be signalled. */
	reported = uring->outcome.opcode;
	if (reported)
		memcpy(memreg_ring_entry(ring), &uring->outcome,
		       offsetof(struct ib_memreg_cqe, data));
	/* Without a registered buffer, freeing is possible in any context. */
	kfree(uring);
	return reported;
}

/**
 * memreg_uring_end_all() - End the commands whose slots have all ended
 * @ring: The ring
 *
 * Context: any, with memreg_kring.lock held.
 */
void memreg_uring_end_all(struct memreg_kring *ring)
{
	struct memreg_uring *uring, *next;

	lockdep_assert_held(&ring->lock);

	list_for_each_entry_safe(uring, next, &ring->ended, node)
		io_uring_cmd_complete_in_task(uring->ended, memreg_uring_work);
	INIT_LIST_HEAD(&ring->ended);
}

/*
 * Issue
 */

/**
 * memreg_uring_lock() - Lock a queue for a command
 * @uring: The command, being issued
 * @lock: The queue's lock
 *
 * Return: 0, -EINTR, or -EAGAIN if it has to be issued where it may wait.
 */
int memreg_uring_lock(struct memreg_uring *uring, struct mutex *lock)
{
	if (!memreg_uring_nowait(uring))
		return mutex_lock_killable(lock) ? -EINTR : 0;
	return mutex_trylock(lock) ? 0 : memreg_uring_punt(uring);
}

/* Make an MR of the range of the registered buffer that the SGE names. */
static int memreg_uring_borrow(struct memreg_uring *uring,
			       struct ib_memreg_wr *wr)
{
	bool write = memreg_submit_writes(wr->opcode);
	struct memreg_region *region;
	struct iov_iter iter;
	int ret;

	if (wr->num_sge != 1 || wr->sge.mr_id)
		return memreg_fail(uring->ucmd, -EINVAL,
				   IB_MEMREG_REASON_URING_SGE);
	if (!wr->sge.length)
		return memreg_fail(uring->ucmd, -EINVAL,
				   IB_MEMREG_REASON_ZERO_LENGTH);
	uring->mr = kzalloc(sizeof(*uring->mr), GFP_KERNEL_ACCOUNT);
	if (!uring->mr)
		return -ENOMEM;
	refcount_set(&uring->mr->obj.users, 1);
	ret = io_uring_cmd_import_fixed(wr->sge.offset, wr->sge.length,
					write ? ITER_DEST : ITER_SOURCE, &iter,
					uring->cmd, uring->issue_flags);
	if (ret)
		return memreg_fail(uring->ucmd, ret, IB_MEMREG_REASON_RANGE);
	region = memreg_region_borrow(uring->ucmd, &iter);
	if (IS_ERR(region))
		return PTR_ERR(region);
	uring->mr->region = region;
	uring->mr->length = wr->sge.length;
	uring->mr->access = IB_MEMREG_ACCESS_LOCAL_WRITE;
	wr->sge.offset = 0;
	return 0;
}

/* Does the submission of a work request take long? */
static bool memreg_uring_slow(const struct ib_memreg_wr *wr)
{
	return wr->opcode == IB_MEMREG_OP_BIND ||
	       wr->opcode == IB_MEMREG_OP_INVALIDATE;
}

/**
 * memreg_uring_look() - Check the additional rules for work requests of a
 * command
 * @uring: The command, being issued
 * @wrs: Some of its work requests
 * @count: Their number
 * @more: The command has more work requests behind these
 *
 * Return: 0 or a negative errno.
 */
int memreg_uring_look(struct memreg_uring *uring, struct ib_memreg_wr *wrs,
		      u32 count, bool more)
{
	u32 i;

	if (memreg_uring_nowait(uring) && more)
		return memreg_uring_punt(uring);
	for (i = 0; i < count; i++) {
		if (memreg_uring_nowait(uring) && memreg_uring_slow(&wrs[i]))
			return memreg_uring_punt(uring);
		if (!uring->target)
			uring->target = wrs[i].target_id;
		if (wrs[i].target_id != uring->target)
			return memreg_fail(uring->ucmd, -EINVAL,
					   IB_MEMREG_REASON_URING_TARGET);
		if (!uring->only && (uring->fixed ||
				     wrs[i].opcode == IB_MEMREG_OP_RECV))
			return memreg_fail(uring->ucmd, -EINVAL,
					   IB_MEMREG_REASON_URING_COUNT);
	}
	return uring->fixed ? memreg_uring_borrow(uring, wrs) : 0;
}
