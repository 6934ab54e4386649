// SPDX-License-Identifier: GPL-2.0-only
/*
 * The rules of work requests: the fields and flags of each opcode, and the
 * opcodes of a device.
 */
#include <linux/bits.h>

#include "conn/queue.h"
#include "conn/submit_wr.h"
#include "core.h"
#include "device.h"

#define MEMREG_WR_ALL							\
	(IB_MEMREG_WR_SIGNALED | IB_MEMREG_WR_FENCE)
#define MEMREG_WR_MESSAGE						\
	(MEMREG_WR_ALL | IB_MEMREG_WR_SOLICITED | IB_MEMREG_WR_INLINE)

const struct memreg_opcode memreg_opcodes[MEMREG_OPCODES] = {
	[IB_MEMREG_OP_SEND] = {
		.wr = IB_WR_SEND, .flags = MEMREG_WR_MESSAGE, .plain = true,
	},
	[IB_MEMREG_OP_SEND_WITH_IMM] = {
		.wr = IB_WR_SEND_WITH_IMM, .flags = MEMREG_WR_MESSAGE,
		.ex = true, .plain = true,
	},
	[IB_MEMREG_OP_SEND_WITH_INV] = {
		.wr = IB_WR_SEND_WITH_INV, .flags = MEMREG_WR_MESSAGE,
		.ex = true, .plain = true,
	},
	[IB_MEMREG_OP_WRITE] = {
		.wr = IB_WR_RDMA_WRITE,
		.parts = true, .part = IB_WR_RDMA_WRITE,
		.flags = MEMREG_WR_ALL | IB_MEMREG_WR_INLINE, .remote = true,
		.plain = true,
	},
	[IB_MEMREG_OP_WRITE_WITH_IMM] = {
		.wr = IB_WR_RDMA_WRITE_WITH_IMM,
		.parts = true, .part = IB_WR_RDMA_WRITE,
		.flags = MEMREG_WR_MESSAGE, .remote = true, .ex = true,
		.plain = true,
	},
	[IB_MEMREG_OP_READ] = {
		.wr = IB_WR_RDMA_READ,
		.parts = true, .part = IB_WR_RDMA_READ,
		.flags = MEMREG_WR_ALL, .remote = true, .write = true,
		.plain = true,
	},
	[IB_MEMREG_OP_CMP_AND_SWP] = {
		.wr = IB_WR_ATOMIC_CMP_AND_SWP, .flags = MEMREG_WR_ALL,
		.remote = true, .atomic = true, .write = true,
	},
	[IB_MEMREG_OP_FETCH_AND_ADD] = {
		.wr = IB_WR_ATOMIC_FETCH_AND_ADD, .flags = MEMREG_WR_ALL,
		.remote = true, .atomic = true, .write = true,
	},
	[IB_MEMREG_OP_RECV] = {
		.flags = IB_MEMREG_WR_SIGNALED, .write = true, .plain = true,
	},
	[IB_MEMREG_OP_BIND] = {
		.wr = IB_WR_REG_MR,
		.flags = MEMREG_WR_ALL | IB_MEMREG_WR_INSERT_RKEY,
		.window = true,
	},
	[IB_MEMREG_OP_INVALIDATE] = {
		.wr = IB_WR_LOCAL_INV, .flags = MEMREG_WR_ALL, .window = true,
	},
};

/**
 * memreg_submit_opcodes() - Opcodes that can be submitted
 * @mdev: The device
 *
 * Return: mask of 1 << enum ib_memreg_opcode.
 */
u64 memreg_submit_opcodes(struct memreg_kdevice *mdev)
{
	u64 mask = GENMASK_ULL(MEMREG_OPCODES - 1, 1);

	if (mdev->ibdev->attrs.atomic_cap == IB_ATOMIC_NONE)
		mask &= ~(BIT_ULL(IB_MEMREG_OP_CMP_AND_SWP) |
			  BIT_ULL(IB_MEMREG_OP_FETCH_AND_ADD));
	return mask;
}

/**
 * memreg_submit_writes() - Does an opcode write to local memory?
 * @opcode: enum ib_memreg_opcode, or any other number
 *
 * Return: true if it does.
 */
bool memreg_submit_writes(u16 opcode)
{
	return opcode < MEMREG_OPCODES &&
	       memreg_opcode(opcode)->write;
}

/**
 * memreg_bad_opcode() - Fail a call because of an opcode
 * @ucmd: The call
 * @wr: Work request with an unknown opcode, or one that the device or the peer
 *	does not support
 *
 * Return: -EINVAL or -EOPNOTSUPP.
 */
int memreg_bad_opcode(struct memreg_ucmd *ucmd, const struct ib_memreg_wr *wr)
{
	if (!wr->opcode || wr->opcode > IB_MEMREG_OP_ATOMIC_WRITE)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_OPCODE);
	return memreg_fail(ucmd, -EOPNOTSUPP,
			   IB_MEMREG_REASON_OPCODE_DEVICE);
}

/**
 * memreg_bad_flags() - Fail a call because of flags
 * @ucmd: The call
 * @flags: The invalid flags
 *
 * Return: -EINVAL or -EOPNOTSUPP.
 */
int memreg_bad_flags(struct memreg_ucmd *ucmd, u16 flags)
{
	if (flags >= IB_MEMREG_WR_INSERT_RKEY << 1)
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_FLAGS);
	return memreg_fail(ucmd, -EINVAL, flags & IB_MEMREG_WR_INLINE ?
			   IB_MEMREG_REASON_INLINE_OPCODE :
			   IB_MEMREG_REASON_FLAGS);
}

/* Are all fields 0 that the opcode does not use? */
static bool memreg_unused_clear(const struct ib_memreg_wr *wr,
				const struct memreg_opcode *op)
{
	bool bind = wr->opcode == IB_MEMREG_OP_BIND;
	bool inl = wr->flags & IB_MEMREG_WR_INLINE;
	u64 set = 0;

	if (!op->ex)
		set |= wr->ex;
	if (!op->remote && !bind)
		set |= wr->remote_addr | wr->rkey;
	if (!op->atomic)
		set |= wr->compare_add;
	if (wr->opcode != IB_MEMREG_OP_CMP_AND_SWP)
		set |= wr->swap;
	if (!op->window)
		set |= wr->window_id;
	if (!bind)
		set |= wr->access | wr->lease_id;
	if (!(wr->flags & IB_MEMREG_WR_INSERT_RKEY))
		set |= wr->insert_at;
	if (inl || op->window)
		set |= wr->num_sge;
	if (!inl)
		set |= wr->length;
	if (!inl && wr->num_sge < 2)
		set |= wr->sges;
	if (wr->num_sge != 1 && !bind)
		set |= wr->sge.mr_id | wr->sge.length | wr->sge.offset;
	return !set;
}

/**
 * memreg_check_fields() - Check a work request field by field
 * @ucmd: The call
 * @queue: Queue that it is for
 * @wr: The work request
 * @op: Its opcode
 *
 * Return: 0, or -EINVAL with the reason set.
 */
int memreg_check_fields(struct memreg_ucmd *ucmd,
			const struct memreg_queue *queue,
			const struct ib_memreg_wr *wr,
			const struct memreg_opcode *op)
{
	if (!memreg_unused_clear(wr, op))
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_RESERVED);
	if (op->atomic && wr->num_sge != 1)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ATOMIC_SGES);
	if (wr->num_sge > queue->max_sge)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SGES);
	if (wr->length > queue->buffer_size)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_INLINE);
	if (op->atomic && wr->sge.length != 8)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_ATOMIC_LENGTH);
	if (op->atomic && wr->remote_addr % 8)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ALIGN);
	return 0;
}
