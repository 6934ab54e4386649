// SPDX-License-Identifier: GPL-2.0-only
/*
 * Local memory of work requests: the MR that an SGE names, and the range in it
 * (I6).
 */
#include <linux/overflow.h>

#include "conn/resolve.h"
#include "conn/slot.h"
#include "conn/sub.h"
#include "conn/uring.h"
#include "core.h"
#include "mr/mr.h"
#include "pages/region.h"

/* Find an MR; holds a reference until the next one is looked up. */
static noinline struct memreg_kmr *memreg_sub_find_mr(struct memreg_sub *sub,
						      u32 id)
{
	struct memreg_object *obj;

	obj = memreg_object_get(sub->ucmd->file, id, IB_MEMREG_OBJECT_MR);
	if (!obj)
		return ERR_PTR(memreg_fail(sub->ucmd, -ENOENT,
					   IB_MEMREG_REASON_ID));
	if (sub->mr)
		memreg_object_put(&sub->mr->obj);
	sub->mr = container_of(obj, struct memreg_kmr, obj);
	sub->first = 0;
	return sub->mr;
}

/* Find an MR, often the one that was found last. */
static inline struct memreg_kmr *memreg_sub_mr(struct memreg_sub *sub, u32 id)
{
	if (sub->uring && sub->uring->mr)
		return sub->uring->mr;
	if (sub->mr && sub->mr->obj.id == id)
		return sub->mr;
	return memreg_sub_find_mr(sub, id);
}

/* The place of the extent for an SGE of this chunk. */
static struct memreg_kmr **memreg_sub_extent(struct memreg_sub *sub,
					     const struct ib_memreg_sge *sge)
{
	const struct ib_memreg_sge *sges = sub->s->sges;

	if (sge >= sges && sge < sges + MEMREG_SUBMIT_SGES)
		return &sub->s->extents.of_sge[sge - sges];
	return &sub->s->extents.of_wr[container_of(sge, struct ib_memreg_wr,
						   sge) - sub->s->wrs];
}

/* Find the extent or the MR that an SGE names, where there may be extents. */
static noinline struct memreg_kmr *
memreg_sub_target(struct memreg_sub *sub, const struct ib_memreg_sge *sge)
{
	struct memreg_kmr *mr = *memreg_sub_extent(sub, sge);

	if (!mr)
		mr = memreg_sub_mr(sub, sge->mr_id);
	if (mr != sub->looked) {
		sub->looked = mr;
		sub->first = 0;
	}
	return mr;
}

/* Fail because a range is not inside its MR. */
static noinline int memreg_bad_range(struct memreg_sub *sub,
				     const struct ib_memreg_sge *sge)
{
	u64 end;

	if (check_add_overflow(sge->offset, (u64)sge->length, &end))
		return memreg_fail(sub->ucmd, -EOVERFLOW,
				   IB_MEMREG_REASON_WRAPS);
	return memreg_fail(sub->ucmd, -EINVAL, IB_MEMREG_REASON_RANGE);
}

/* Check a range of an MR, and its access (I6). */
static inline int memreg_check_sge(struct memreg_sub *sub,
				   const struct memreg_kmr *mr,
				   const struct ib_memreg_sge *sge, bool write)
{
	if (READ_ONCE(mr->region->guard.stale)) {
		sub->again = mr->whole;
		return memreg_fail(sub->ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
	}
	if (sge->offset > mr->length || sge->length > mr->length - sge->offset)
		return memreg_bad_range(sub, sge);
	if (write && !(mr->access & IB_MEMREG_ACCESS_LOCAL_WRITE))
		return memreg_fail(sub->ucmd, -EACCES,
				   IB_MEMREG_REASON_LOCAL_WRITE);
	/* The MR was registered after the extents of the chunk were found. */
	if (mr->demand && sge->length) {
		sub->again = true;
		return memreg_fail(sub->ucmd, -EAGAIN,
				   IB_MEMREG_REASON_UNSTEADY);
	}
	return 0;
}

void memreg_unresolve(struct memreg_sub *sub)
{
	memreg_slot_sges_put(sub->s->resolved, sub->nr_resolved);
	sub->nr_resolved = 0;
}

/*
 * Find the MR that an SGE names, check its range, and find the entry of the
 * MR's memory in which the range begins: @first, unless the range is empty.
 */
struct memreg_kmr *memreg_sub_range(struct memreg_sub *sub,
				    const struct ib_memreg_sge *sge, bool write)
{
	struct memreg_kmr *mr = sub->on_demand ? memreg_sub_target(sub, sge) :
						memreg_sub_mr(sub, sge->mr_id);
	int ret;

	if (IS_ERR(mr))
		return mr;
	ret = memreg_check_sge(sub, mr, sge, write);
	if (ret)
		return ERR_PTR(ret);
	if (mr->region->keyed && mr->domain != sub->domain)
		return ERR_PTR(memreg_fail(sub->ucmd, -EINVAL,
					   IB_MEMREG_REASON_DOMAIN));
	/* Consecutive ranges are often in the same entry. */
	if (sge->length &&
	    !memreg_region_has(mr->region, sub->first, sge->offset))
		sub->first = memreg_region_find(mr->region, sge->offset);
	return mr;
}

/*
 * Find and check the range of an MR that an SGE names, and take a reference of
 * the MR.
 */
static int memreg_resolve_sge(struct memreg_sub *sub,
			      const struct ib_memreg_sge *sge, bool write)
{
	struct memreg_kmr *mr = memreg_sub_range(sub, sge, write);

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	if (!sge->length)
		return 0;
	sub->s->resolved[sub->nr_resolved] = (struct memreg_slot_sge) {
		.mr = mr, .length = sge->length, .first = sub->first,
		.offset = sge->offset,
	};
	memreg_slot_sge_keep(sub->s->resolved, sub->nr_resolved++);
	return 0;
}

/* Find the MRs of a work request, and check their ranges. */
int memreg_resolve(struct memreg_sub *sub, u32 i, bool write)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	u32 n, count = wr->num_sge;
	const struct ib_memreg_sge *sge = count > 1 ? sub->s->side[i] :
						      &wr->sge;
	u64 total = 0;
	int ret;

	for (n = 0; n < count; n++, sge++) {
		ret = memreg_resolve_sge(sub, sge, write);
		total += sge->length;
		/* The limit of a message in the IB specification, 9.7.1. */
		if (!ret && total > SZ_2G)
			ret = memreg_fail(sub->ucmd, -EINVAL,
					  IB_MEMREG_REASON_SPAN);
		if (ret) {
			memreg_unresolve(sub);
			return ret;
		}
	}
	return 0;
}
