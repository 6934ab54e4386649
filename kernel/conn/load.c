// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copying: work requests, and what they refer to in user space, before any
 * queue is locked.
 */
#include <linux/uaccess.h>

#include "conn/load.h"
#include "conn/sub.h"
#include "core.h"

/* Position for the next SGEs and inline data, and the room left. */
struct memreg_side {
	u32 sges;
	u32 data;
};

/*
 * Copy the inline data of a work request, or its SGEs if it has more than one.
 * Returns -ENOBUFS if this chunk has no room left for them, but a new chunk
 * would.
 */
static int memreg_load_side(struct memreg_sub *sub, u32 i,
			    struct memreg_side *side)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	void __user *from = u64_to_user_ptr(wr->sges);
	void *to;

	if (wr->flags & IB_MEMREG_WR_INLINE) {
		if (wr->length > IB_MEMREG_INLINE_MAX)
			return memreg_fail(sub->ucmd, -EINVAL,
					   IB_MEMREG_REASON_INLINE);
		to = sub->s->data + side->data;
		sub->s->side[i] = to;
		side->data += wr->length;
		return copy_from_user(to, from, wr->length) ? -EFAULT : 0;
	}
	if (wr->num_sge > IB_MEMREG_SGE_MAX)
		return memreg_fail(sub->ucmd, -EINVAL, IB_MEMREG_REASON_SGES);
	if (side->sges + wr->num_sge > MEMREG_SUBMIT_SGES)
		return -ENOBUFS;
	to = &sub->s->sges[side->sges];
	sub->s->side[i] = to;
	side->sges += wr->num_sge;
	return copy_from_user(to, from, wr->num_sge *
			      sizeof(struct ib_memreg_sge)) ? -EFAULT : 0;
}

/* Check that the key of a BIND can be written back to the user. */
static int memreg_load_answer(struct memreg_sub *sub, u32 i,
			      struct ib_memreg_wr __user *from)
{
	sub->answers = true;
	return put_user(0, &from[i].rkey) || put_user(0, &from[i].remote_addr) ?
	       -EFAULT : 0;
}

/*
 * Copy the next work requests of a call, as many as fit. Fails only if the
 * first one cannot be copied.
 */
int memreg_load(struct memreg_sub *sub, u32 taken)
{
	struct ib_memreg_wr __user *from = sub->wrs + taken;
	const struct ib_memreg_wr *wr = sub->s->wrs;
	struct memreg_side side = {};
	size_t size, left;
	u32 i, count;
	int ret;

	size = min_t(u32, sub->count - taken, MEMREG_SUBMIT_CHUNK) *
	       sizeof(*from);
	left = copy_from_user(sub->s->wrs, from, size);
	count = (size - left) / sizeof(*from);
	sub->answers = false;
	ret = -EFAULT;
	for (i = 0; i < count; i++, wr++) {
		ret = 0;
		if (wr->num_sge > 1 || wr->flags & IB_MEMREG_WR_INLINE)
			ret = memreg_load_side(sub, i, &side);
		if (!ret && wr->opcode == IB_MEMREG_OP_BIND)
			ret = memreg_load_answer(sub, i, from);
		if (ret)
			break;
	}
	sub->loaded = i;
	if (!i)
		return ret;
	/*
	 * The error is reported when this work request is the first of a chunk.
	 */
	return memreg_fail(sub->ucmd, 0, IB_MEMREG_REASON_NONE);
}
