// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Compositions, and moving them by as few work requests as possible */
#include <errno.h>

#include "internal.h"

/* Bytes of one WRITE or READ, at most: a message has less than 2 GiB */
#define TRANSFER_MAX	(1ULL << 30)

EXPORT int memreg_mr_compose(struct memreg *m, uint32_t domain,
			     const struct ib_memreg_piece *pieces,
			     unsigned int count, uint32_t access,
			     uint32_t flags, struct memreg_mr *mr)
{
	struct ib_memreg_mr_compose arg = {
		.size = sizeof(arg),
		.flags = flags,
		.domain_id = domain,
		.access = access,
		.count = count,
		.out_index = count,
		.pieces = to_u64(pieces),
	};
	int ret;

	if (flags & IB_MEMREG_COMPOSE_IOVA)
		arg.iova = mr->iova;
	ret = memreg__call(m->fd, IB_MEMREG_IOC_MR_COMPOSE, &arg,
			   "mr_compose");
	if (ret && arg.out_index < count)
		return memreg__about_number(ret, "piece", arg.out_index);
	if (ret)
		return ret;
	*mr = (struct memreg_mr) {
		.id = arg.out_mr_id,
		.domain = domain,
		.length = arg.out_length,
		.iova = arg.iova,
		.lkey = arg.out_lkey,
		.rkey = arg.out_rkey,
		.segments = arg.out_segments,
		.access = access,
	};
	return 0;
}

/*
 * Length of the range of the peer's that begins in grant @i, as far as one key
 * goes
 */
static uint64_t joined(const struct memreg_grant *remote, unsigned int count,
		       unsigned int *i)
{
	uint64_t length = remote[*i].length, next;
	unsigned int k;

	for (k = *i + 1; k < count; k++) {
		next = remote[k - 1].iova + remote[k - 1].length;
		if (remote[k].rkey != remote[*i].rkey || remote[k].iova != next)
			break;
		/* A range that is longer than any memory is refused */
		if (__builtin_add_overflow(length, remote[k].length, &length))
			length = UINT64_MAX;
	}
	*i = k;
	return length;
}

EXPORT int memreg_transfer_plan(const struct memreg_mr *local, uint64_t offset,
				const struct memreg_grant *remote,
				unsigned int count, uint32_t opcode,
				uint32_t endpoint, struct ib_memreg_wr *wrs,
				unsigned int room)
{
	unsigned int i = 0, first, n = 0;
	uint64_t left, addr, part;

	if (opcode != IB_MEMREG_OP_WRITE && opcode != IB_MEMREG_OP_READ)
		return memreg__fail("transfer_plan", -EINVAL,
				    "only WRITEs and READs can be planned");
	while (i < count) {
		first = i;
		left = joined(remote, count, &i);
		if (offset > local->length || left > local->length - offset)
			return memreg__fail("transfer_plan", -EINVAL,
					    "the peer's ranges are longer than the local MR");
		for (addr = remote[first].iova; left; left -= part) {
			part = left < TRANSFER_MAX ? left : TRANSFER_MAX;
			if (n == room)
				return memreg__fail("transfer_plan", -ENOSPC,
						    "there is no room for so many work requests");
			memreg_prep_write(&wrs[n], endpoint, local->id, offset,
					  (uint32_t)part, addr,
					  remote[first].rkey);
			wrs[n++].opcode = opcode;
			offset += part;
			addr += part;
		}
	}
	if (n)
		wrs[n - 1].flags |= IB_MEMREG_WR_SIGNALED;
	return (int)n;
}
