// SPDX-License-Identifier: GPL-2.0-only
/*
 * Commands of io_uring: submission that completes in io_uring's ring. This file
 * issues and cancels commands; uring.c has the steps between.
 */
#include <linux/io_uring/cmd.h>
#include <linux/slab.h>

#include "conn/teardown_queue.h"
#include "conn/endpoint.h"
#include "conn/ring.h"
#include "conn/submit.h"
#include "conn/uring.h"
#include "conn/uring_cmd.h"
#include "core.h"

static struct memreg_uring **memreg_uring_of(struct io_uring_cmd *cmd)
{
	return io_uring_cmd_to_pdu(cmd, struct memreg_uring *);
}

static bool memreg_uring_nowait(const struct memreg_uring *uring)
{
	return uring->issue_flags & IO_URING_F_NONBLOCK;
}

static int memreg_uring_submit(struct memreg_uring *uring)
{
	const struct ib_memreg_uring_submit *sqe =
		io_uring_sqe_cmd(uring->cmd->sqe,
				 struct ib_memreg_uring_submit);
	u64 wrs = READ_ONCE(sqe->wrs);
	u32 count = READ_ONCE(sqe->count);

	if (READ_ONCE(sqe->flags))
		return memreg_fail(uring->ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_FLAGS);
	uring->only = count == 1;
	return memreg_submit_wrs(uring->ucmd, uring, wrs, count, &uring->taken);
}

/*
 * Finish the issue of a command. Returns true if none of its work requests is
 * posted; otherwise the command may be gone by now. The file's lock is held.
 */
static bool memreg_uring_issued(struct memreg_uring *uring)
{
	struct memreg_kring *ring = uring->ring;
	bool through;

	/* An issuer that may wait has waited already. */
	if (memreg_uring_nowait(uring) &&
	    atomic_read(&uring->pending) != MEMREG_URING_ISSUE)
		io_uring_cmd_mark_cancelable(uring->cmd, uring->issue_flags);
	through = !atomic_sub_return(MEMREG_URING_ISSUE, &uring->pending);
	if (through)
		memreg_uring_through(uring);
	if (!ring)
		return through;
	/* The slot that has ended last may still be releasing its MRs. */
	if (through) {
		spin_lock_irq(&ring->lock);
		spin_unlock_irq(&ring->lock);
	}
	memreg_ring_release(ring);
	return through;
}

static struct memreg_uring *memreg_uring_new(struct io_uring_cmd *cmd,
					     struct memreg_ucmd *ucmd,
					     unsigned int issue_flags)
{
	struct memreg_uring *uring;

	uring = kzalloc(sizeof(*uring), GFP_KERNEL_ACCOUNT);
	if (!uring)
		return NULL;
	uring->cmd = cmd;
	uring->ucmd = ucmd;
	uring->issue_flags = issue_flags;
	uring->fixed = cmd->flags & IORING_URING_CMD_FIXED;
	uring->cqe32 = issue_flags & IO_URING_F_CQE32;
	atomic_set(&uring->pending, MEMREG_URING_ISSUE);
	*memreg_uring_of(cmd) = uring;
	return uring;
}

static int memreg_uring_issue(struct io_uring_cmd *cmd,
			      unsigned int issue_flags)
{
	struct memreg_ucmd ucmd = { .file = cmd->file->private_data };
	bool wait = !(issue_flags & IO_URING_F_NONBLOCK);
	struct memreg_uring *uring;
	bool through = true;

	uring = memreg_uring_new(cmd, &ucmd, issue_flags);
	if (!uring)
		return -ENOMEM;
	/* From here on only io_uring_cmd_done() ends the command. */
	if (wait)
		io_uring_cmd_mark_cancelable(cmd, issue_flags);
	uring->error = memreg_enter(&ucmd, wait);
	if (!uring->error) {
		uring->error = memreg_uring_submit(uring);
		uring->reason = ucmd.reason;
		through = memreg_uring_issued(uring);
		memreg_leave(&ucmd);
	} else {
		uring->reason = ucmd.reason;
		uring->blocked = uring->error == -EAGAIN;
	}
	if (!through)
		return -EIOCBQUEUED;
	if (uring->blocked) {
		memreg_uring_release(uring);
		kfree(uring);
		return -EAGAIN;
	}
	memreg_uring_end(uring, cmd, issue_flags);
	return -EIOCBQUEUED;
}

/*
 * Cancellation
 */

/*
 * End the connection of a command, whose endpoint may have gone meanwhile.
 * Returns false if it has to be tried again.
 */
static bool memreg_uring_abort(struct memreg_file *file, u32 id)
{
	struct memreg_ucmd ucmd = { .file = file };
	struct memreg_object *obj;

	/* A holder that keeps the lock for long ends the connection itself. */
	if (memreg_enter(&ucmd, false))
		return false;
	obj = memreg_object_get(file, id, IB_MEMREG_OBJECT_ENDPOINT);
	if (obj) {
		memreg_endpoint_close(container_of(obj, struct memreg_endpoint,
						   obj));
		memreg_object_put(obj);
	}
	memreg_leave(&ucmd);
	return true;
}

/*
 * Cancel a command. io_uring repeats this call until the command has ended, and
 * holds a lock that keeps the command's task from ending it meanwhile.
 */
static void memreg_uring_cancel(struct io_uring_cmd *cmd,
				unsigned int issue_flags)
{
	struct memreg_uring *uring = *memreg_uring_of(cmd);
	int pending = atomic_read(&uring->pending);
	bool cqe32 = uring->cqe32;

	/* The command is about to end. */
	if (!pending)
		return;
	/* It is still being issued, or its queue is being flushed. */
	if (pending >= MEMREG_URING_ISSUE || uring->aborted) {
		schedule_timeout_uninterruptible(1);
		return;
	}
	if (uring->fixed) {
		uring->aborted = memreg_uring_abort(cmd->file->private_data,
						    uring->target);
		if (!uring->aborted)
			schedule_timeout_uninterruptible(1);
		return;
	}
	if (!xchg(&uring->cmd, NULL))
		return;
	/* From here on only its slots use the command. */
	if (cqe32)
		io_uring_cmd_done32(cmd, -ECANCELED, 0, issue_flags);
	else
		io_uring_cmd_done(cmd, -ECANCELED, issue_flags);
}

/**
 * memreg_uring_cmd() - Issue or cancel a command
 * @cmd: The command
 * @issue_flags: Flags from io_uring
 *
 * Return: -EIOCBQUEUED if the command ends, or has ended, by a call of
 * io_uring_cmd_done(); -EAGAIN if io_uring has to issue it again where it may
 * wait; otherwise its result.
 */
int memreg_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	if (issue_flags & IO_URING_F_CANCEL) {
		memreg_uring_cancel(cmd, issue_flags);
		return 0;
	}
	if (cmd->cmd_op != IB_MEMREG_URING_SUBMIT)
		return -EOPNOTSUPP;
	if (cmd->flags & IORING_URING_CMD_MASK & ~IORING_URING_CMD_FIXED)
		return -EINVAL;
	return memreg_uring_issue(cmd, issue_flags);
}
