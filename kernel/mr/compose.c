// SPDX-License-Identifier: GPL-2.0-only
/*
 * MR_COMPOSE: MRs that are composed of pieces of other MRs, in any order.
 *
 * A piece that is itself of a composition is replaced by the parts of the
 * leaves under it. So a composition of compositions costs no more than any
 * other, and its lifetime depends on the leaves alone. The region of a
 * composition, and the life of its keys, are in composition.c.
 */
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "mr/compose.h"
#include "mr/composition.h"
#include "mr/mr.h"
#include "mr/mr_keys.h"
#include "pages/region.h"

/*
 * Pieces
 */

/**
 * struct memreg_composing - A call of MR_COMPOSE in progress
 * @ucmd: The call
 * @domain: Domain of all MRs
 * @access: Access flags
 * @pieces: The pieces, as the caller passed them
 * @mrs: The MRs of the pieces, with references
 * @parts: Room for the parts
 * @nr_parts: Number of parts so far
 * @length: Bytes of the parts so far
 */
struct memreg_composing {
	struct memreg_ucmd *ucmd;
	struct memreg_domain *domain;
	u32 access;
	struct ib_memreg_piece *pieces;
	struct memreg_kmr **mrs;
	struct memreg_part *parts;
	u32 nr_parts;
	u64 length;
};

static int memreg_part_add(struct memreg_composing *c, struct memreg_kmr *leaf,
			   u64 from, u64 length)
{
	struct memreg_part *part = &c->parts[c->nr_parts];

	if (c->nr_parts == IB_MEMREG_COMPOSE_MAX)
		return memreg_fail(c->ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	part->leaf = leaf;
	part->from = from;
	part->offset = c->length;
	part->length = length;
	if (check_add_overflow(c->length, length, &c->length))
		return memreg_fail(c->ucmd, -EOVERFLOW, IB_MEMREG_REASON_WRAPS);
	c->nr_parts++;
	return 0;
}

/* Add a range of an MR, or of the leaves that it is composed of. */
static int memreg_range_add(struct memreg_composing *c, struct memreg_kmr *mr,
			    u64 offset, u64 length)
{
	const struct memreg_composition *comp = mr->region->composition;
	const struct memreg_part *part;
	u64 skip, n;
	int ret = 0;
	u32 i;

	if (!comp)
		return memreg_part_add(c, mr, offset, length);
	for (i = memreg_composition_find(comp, offset); length && !ret; i++) {
		part = &comp->parts[i];
		skip = offset - part->offset;
		n = min(part->length - skip, length);
		ret = memreg_part_add(c, part->leaf, part->from + skip, n);
		offset += n;
		length -= n;
	}
	return ret;
}

/* Check that a piece ends inside its MR, without overflow in the products. */
static int memreg_piece_check(struct memreg_composing *c,
			      const struct ib_memreg_piece *piece,
			      const struct memreg_kmr *mr)
{
	u64 end, span;
	u32 d;

	if (piece->dims > IB_MEMREG_PIECE_DIMS)
		return memreg_fail(c->ucmd, -EINVAL, IB_MEMREG_REASON_STRIDE);
	if (!piece->length)
		return memreg_fail(c->ucmd, -EINVAL,
				   IB_MEMREG_REASON_ZERO_LENGTH);
	if (check_add_overflow(piece->offset, piece->length, &end))
		return memreg_fail(c->ucmd, -EOVERFLOW, IB_MEMREG_REASON_WRAPS);
	for (d = 0; d < IB_MEMREG_PIECE_DIMS; d++) {
		if (d >= piece->dims && !piece->count[d] && !piece->stride[d])
			continue;
		if (d >= piece->dims)
			return memreg_fail(c->ucmd, -EINVAL,
					   IB_MEMREG_REASON_RESERVED);
		if (!piece->count[d])
			return memreg_fail(c->ucmd, -EINVAL,
					   IB_MEMREG_REASON_COUNT);
		if (check_mul_overflow(piece->stride[d],
				       (u64)piece->count[d] - 1, &span) ||
		    check_add_overflow(end, span, &end))
			return memreg_fail(c->ucmd, -EOVERFLOW,
					   IB_MEMREG_REASON_WRAPS);
	}
	return end > mr->length ?
	       memreg_fail(c->ucmd, -EINVAL, IB_MEMREG_REASON_RANGE) : 0;
}

/* Add all blocks of a piece, the first dimension innermost. */
static int memreg_piece_add(struct memreg_composing *c,
			    const struct ib_memreg_piece *piece,
			    struct memreg_kmr *mr)
{
	u32 at[IB_MEMREG_PIECE_DIMS] = {};
	u64 offset = piece->offset;
	u32 d;
	int ret;

	do {
		ret = memreg_range_add(c, mr, offset, piece->length);
		if (ret)
			return ret;
		for (d = 0; d < piece->dims; d++) {
			offset += piece->stride[d];
			if (++at[d] < piece->count[d])
				break;
			offset -= piece->stride[d] * at[d];
			at[d] = 0;
		}
		cond_resched();
	} while (d < piece->dims && !fatal_signal_pending(current));
	return d < piece->dims ? -EINTR : 0;
}

/* Check that an MR may be a leaf of the composition. */
static int memreg_piece_check_mr(struct memreg_composing *c,
				 const struct memreg_kmr *mr)
{
	u32 granted = c->access & (MEMREG_ACCESS_REMOTE |
				   IB_MEMREG_ACCESS_MW_BIND);
	u32 flush = c->access & (IB_MEMREG_ACCESS_FLUSH_GLOBAL |
				 IB_MEMREG_ACCESS_FLUSH_PERSISTENT);

	if (READ_ONCE(mr->region->guard.stale))
		return memreg_fail(c->ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
	if (mr->region->keyed)
		return memreg_fail(c->ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_EXPORTER);
	if (mr->demand)
		return memreg_fail(c->ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_ON_DEMAND);
	if (mr->domain != c->domain)
		return memreg_fail(c->ucmd, -EINVAL, IB_MEMREG_REASON_DOMAIN);
	/* Access for peers grants a leaf's memory to them, as a window does. */
	if ((granted && !(mr->access & IB_MEMREG_ACCESS_MW_BIND)) ||
	    flush & ~mr->access ||
	    (c->access & MEMREG_ACCESS_WRITES &&
	     !(mr->access & IB_MEMREG_ACCESS_LOCAL_WRITE)))
		return memreg_fail(c->ucmd, -EACCES,
				   IB_MEMREG_REASON_ACCESS_MR);
	return 0;
}

static int memreg_compose_find_mrs(struct memreg_composing *c, u32 count,
				   u32 *index)
{
	struct memreg_object *obj;
	int ret = 0;
	u32 i;

	for (i = 0; i < count && !ret; i++) {
		*index = i;
		obj = memreg_object_get(c->ucmd->file, c->pieces[i].mr_id,
					IB_MEMREG_OBJECT_MR);
		if (!obj)
			return memreg_fail(c->ucmd, -ENOENT,
					   IB_MEMREG_REASON_ID);
		c->mrs[i] = container_of(obj, struct memreg_kmr, obj);
		ret = memreg_piece_check_mr(c, c->mrs[i]) ?:
		      memreg_piece_check(c, &c->pieces[i], c->mrs[i]);
	}
	return ret;
}

static int memreg_compose_add_pieces(struct memreg_composing *c, u32 count,
				     u32 *index)
{
	int ret = 0;
	u32 i;

	for (i = 0; i < count && !ret; i++) {
		*index = i;
		ret = memreg_piece_add(c, &c->pieces[i], c->mrs[i]);
	}
	if (!ret)
		*index = count;
	return ret;
}

/*
 * Copy the pieces, and find their MRs. On failure @c->mrs has those found. The
 * copy may wait for a page fault for as long as the caller likes, so the arrays
 * are charged to it.
 */
static int memreg_compose_load(struct memreg_composing *c, u32 count,
			       u32 *index)
{
	struct ib_memreg_mr_compose *cmd = c->ucmd->cmd;

	c->pieces = kvmalloc_array(count, sizeof(*c->pieces),
				   GFP_KERNEL_ACCOUNT);
	c->mrs = kvcalloc(count, sizeof(struct memreg_kmr *),
			  GFP_KERNEL_ACCOUNT);
	c->parts = kvmalloc_array(IB_MEMREG_COMPOSE_MAX, sizeof(*c->parts),
				  GFP_KERNEL_ACCOUNT);
	if (!c->pieces || !c->mrs || !c->parts)
		return -ENOMEM;
	if (copy_from_user(c->pieces, u64_to_user_ptr(cmd->pieces),
			   array_size(count, sizeof(*c->pieces))))
		return -EFAULT;
	return memreg_compose_find_mrs(c, count, index);
}

static void memreg_compose_unload(struct memreg_composing *c, u32 count)
{
	u32 i;

	for (i = 0; c->mrs && i < count && c->mrs[i]; i++)
		memreg_object_put(&c->mrs[i]->obj);
	kvfree(c->parts);
	kvfree(c->mrs);
	kvfree(c->pieces);
}

/* Make the region of the pieces. */
static struct memreg_region *memreg_compose_pieces(struct memreg_composing *c)
{
	struct ib_memreg_mr_compose *cmd = c->ucmd->cmd;
	struct memreg_region *region;
	u32 count = cmd->count;
	int ret;

	ret = memreg_compose_load(c, count, &cmd->out_index);
	if (!ret)
		ret = memreg_compose_add_pieces(c, count, &cmd->out_index);
	if (!ret)
		region = memreg_composition_region(c->ucmd, c->parts,
						   c->nr_parts, c->length,
						   c->access);
	else
		region = ERR_PTR(ret);
	memreg_compose_unload(c, count);
	return region;
}

/*
 * The call
 */

static int memreg_compose_check(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_mr_compose *cmd = ucmd->cmd;

	if (cmd->flags & ~(IB_MEMREG_COMPOSE_ONE_KEY | IB_MEMREG_COMPOSE_IOVA))
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (!(cmd->flags & IB_MEMREG_COMPOSE_IOVA))
		cmd->iova = 0;
	else if (cmd->access & IB_MEMREG_ACCESS_ZERO_BASED)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_IOVA_ZERO_BASED);
	if (!cmd->count || cmd->count > IB_MEMREG_COMPOSE_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	return memreg_mr_check_access(ucmd, cmd->access);
}

/*
 * The iova of the MR if the caller chooses none: that of the first byte in its
 * leaf, below IB_MEMREG_COMPOSE_IOVA_MAX. So the composition has the pages
 * that the leaf has.
 */
static u64 memreg_compose_iova(const struct memreg_region *region)
{
	const struct memreg_part *part = &region->composition->parts[0];

	return (part->leaf->iova + part->from) &
	       (IB_MEMREG_COMPOSE_IOVA_MAX - 1);
}

/* Set the iova of the MR so that its offset in a page is that of the memory. */
static int memreg_compose_place(struct memreg_ucmd *ucmd, struct memreg_kmr *mr)
{
	struct ib_memreg_mr_compose *cmd = ucmd->cmd;
	u64 iova, end;

	if (!(cmd->flags & IB_MEMREG_COMPOSE_IOVA) &&
	    !(cmd->access & IB_MEMREG_ACCESS_ZERO_BASED))
		cmd->iova = memreg_compose_iova(mr->region);
	iova = memreg_composition_iova(mr->region, 0, cmd->iova);

	if (cmd->access & IB_MEMREG_ACCESS_ZERO_BASED && iova)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ZERO_BASED);
	if (cmd->flags & IB_MEMREG_COMPOSE_IOVA && iova != cmd->iova)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_IOVA);
	/*
	 * Each unaligned boundary moves the iovas behind it by less than a
	 * page.
	 */
	if (check_add_overflow(iova, mr->length, &end) ||
	    check_add_overflow(end, (u64)mr->region->nents << MEMREG_PAGE_SHIFT,
			       &end))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_IOVA_WRAPS);
	mr->iova = iova;
	return 0;
}

/* Make the keys, unless the MR works without keys. */
static int memreg_compose_make(struct memreg_ucmd *ucmd, struct memreg_kmr *mr)
{
	struct ib_memreg_mr_compose *cmd = ucmd->cmd;
	int ret;

	ret = memreg_compose_place(ucmd, mr);
	if (ret)
		return ret;
	if (cmd->flags & IB_MEMREG_COMPOSE_ONE_KEY &&
	    memreg_composition_nr_keys(mr) > 1)
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   memreg_composition_reason(mr->region, 0,
							     mr->length));
	return memreg_mr_give_keys(ucmd, mr);
}

static struct memreg_kmr *memreg_compose_mr(struct memreg_ucmd *ucmd,
					    struct memreg_domain *domain)
{
	struct ib_memreg_mr_compose *cmd = ucmd->cmd;
	struct memreg_composing c = {
		.ucmd = ucmd,
		.domain = domain,
		.access = cmd->access,
	};
	struct memreg_kmr *mr;
	int ret;

	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->obj.depends = true;
	mr->domain = domain;
	mr->access = cmd->access;
	mr->region = memreg_compose_pieces(&c);
	if (IS_ERR(mr->region)) {
		ret = PTR_ERR(mr->region);
		goto err_free;
	}
	mr->length = mr->region->length;
	ret = memreg_compose_make(ucmd, mr);
	if (!ret)
		ret = memreg_object_alloc(ucmd->file, &mr->obj,
					  &memreg_mr_ops);
	if (ret)
		goto err_unmake;
	refcount_inc(&domain->obj.users);
	return mr;

err_unmake:
	memreg_mr_unmake(mr);
err_free:
	kfree(mr);
	return ERR_PTR(ret);
}

static int memreg_compose_respond(struct memreg_ucmd *ucmd,
				  const struct memreg_kmr *mr)
{
	struct ib_memreg_mr_compose *cmd = ucmd->cmd;
	struct ib_memreg_segment seg = {};

	if (mr->nkeys)
		memreg_mr_segment(mr, 0, &seg);
	cmd->out_mr_id = mr->obj.id;
	cmd->iova = mr->iova;
	cmd->out_length = mr->length;
	cmd->out_lkey = seg.lkey;
	cmd->out_rkey = seg.rkey;
	cmd->out_segments = mr->nkeys;
	cmd->out_entries = mr->region->nents;
	return memreg_respond(ucmd, sizeof(*cmd));
}

static int memreg_compose_in_domain(struct memreg_ucmd *ucmd,
				    struct memreg_domain *domain)
{
	struct memreg_kmr *mr = memreg_compose_mr(ucmd, domain);

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	return memreg_mr_made(ucmd, mr, memreg_compose_respond(ucmd, mr));
}

/* ioctl(IB_MEMREG_IOC_MR_COMPOSE) */
int memreg_mr_compose_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_mr_compose *cmd = ucmd->cmd;
	struct memreg_domain *domain;
	int ret;

	ret = memreg_compose_check(ucmd);
	if (ret)
		return ret;
	domain = memreg_domain_get(ucmd, cmd->domain_id);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	cmd->out_index = cmd->count;
	ret = memreg_compose_in_domain(ucmd, domain);
	memreg_domain_put(domain);
	/* Report the index of the piece that failed. */
	if (ret && ret != -EFAULT && memreg_respond(ucmd, sizeof(*cmd)))
		ret = -EFAULT;
	return ret;
}
