// SPDX-License-Identifier: GPL-2.0-only
/*
 * Extents of MRs on demand that work requests are about to use.
 *
 * Pages cannot be pinned with the lock of a queue held. So before submission
 * takes one, it finds or makes the extents of all work requests of a chunk, and
 * holds them until the work requests are posted, or have failed. An SGE then
 * refers to an extent, with an offset in it. Other errors of a work request are
 * found later, when it is checked.
 */
#include "conn/extents.h"
#include "conn/submit_wr.h"
#include "core.h"
#include "mr/demand.h"
#include "mr/mr.h"
#include "mr/window.h"
#include "pages/region.h"

/* Find an MR on demand by its id; NULL if there is none. */
static struct memreg_kmr *memreg_extents_mr(struct memreg_ucmd *ucmd,
					    struct memreg_extents *ex, u32 id)
{
	struct memreg_object *obj;
	struct memreg_kmr *mr;

	if (ex->mr && ex->mr->obj.id == id)
		return ex->mr;
	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_MR);
	if (!obj)
		return NULL;
	mr = container_of(obj, struct memreg_kmr, obj);
	if (!mr->demand) {
		memreg_object_put(obj);
		return NULL;
	}
	if (ex->mr)
		memreg_object_put(&ex->mr->obj);
	ex->mr = mr;
	return mr;
}

/* The extent that was found last often contains the next range as well. */
static struct memreg_kmr *memreg_extents_last(const struct memreg_extents *ex,
					      const struct memreg_kmr *mr,
					      const struct ib_memreg_sge *sge,
					      bool write)
{
	struct memreg_kmr *last = ex->nr ? ex->held[ex->nr - 1] : NULL;

	if (!last || last->whole != mr ||
	    !memreg_extent_has(last, sge->offset, sge->length) ||
	    (write && !last->region->writable))
		return NULL;
	return last;
}

/* Find or make the extent of a range, if its MR is on demand. */
static int memreg_extents_range(struct memreg_ucmd *ucmd,
				struct memreg_extents *ex,
				const struct ib_memreg_sge *sge, bool write,
				bool wait, struct memreg_kmr **extent)
{
	struct memreg_kmr *mr = memreg_extents_mr(ucmd, ex, sge->mr_id), *found;

	*extent = NULL;
	if (!mr || !sge->length || sge->offset > mr->length ||
	    sge->length > mr->length - sge->offset ||
	    (write && !(mr->access & IB_MEMREG_ACCESS_LOCAL_WRITE)))
		return 0;
	*extent = memreg_extents_last(ex, mr, sge, write);
	if (*extent)
		return 0;
	if (wait)
		found = memreg_demand_get(ucmd, mr, sge->offset, sge->length,
					  write);
	else
		found = memreg_demand_find(mr, sge->offset, sge->length, write);
	ex->missed = !found;
	if (!found)
		return -EAGAIN;
	if (IS_ERR(found))
		return PTR_ERR(found);
	ex->held[ex->nr++] = found;
	*extent = found;
	return 0;
}

/*
 * Find or make the extent that a window is to be bound to. One that cannot be
 * bound pins nothing: the error is found when the work request is checked.
 */
static int memreg_extents_bind(struct memreg_ucmd *ucmd,
			       struct memreg_extents *ex,
			       const struct ib_memreg_wr *wr, bool wait,
			       struct memreg_kmr **extent)
{
	const struct ib_memreg_bind bind = memreg_wr_bind(wr);
	struct memreg_kmr *mr = memreg_extents_mr(ucmd, ex, bind.mr_id);

	*extent = NULL;
	if (!mr)
		return 0;
	if (memreg_bind_check(ucmd, mr, &bind))
		return memreg_fail(ucmd, 0, IB_MEMREG_REASON_NONE);
	return memreg_extents_range(ucmd, ex, &wr->sge, wr->access &
				    (IB_MEMREG_ACCESS_REMOTE_WRITE |
				     IB_MEMREG_ACCESS_REMOTE_ATOMIC),
				    wait, extent);
}

/*
 * Find or make the extent of an SGE, whose offset is then relative to the
 * extent.
 */
static int memreg_extents_sge(struct memreg_ucmd *ucmd,
			      struct memreg_extents *ex,
			      struct ib_memreg_sge *sge, bool write, bool wait,
			      struct memreg_kmr **extent)
{
	int ret = memreg_extents_range(ucmd, ex, sge, write, wait, extent);

	if (*extent)
		sge->offset += (*extent)->skip;
	return ret;
}

/* Find or make the extents of a work request. */
static int memreg_extents_wr(struct memreg_ucmd *ucmd,
			     struct memreg_extents *ex,
			     struct memreg_chunk_wrs *chunk, u32 i, bool wait)
{
	struct ib_memreg_wr *wr = &chunk->wrs[i];
	bool write = memreg_submit_writes(wr->opcode);
	u32 n, first;
	int ret = 0;

	ex->of_wr[i] = NULL;
	if (wr->opcode == IB_MEMREG_OP_BIND)
		return memreg_extents_bind(ucmd, ex, wr, wait, &ex->of_wr[i]);
	if (wr->flags & IB_MEMREG_WR_INLINE || !wr->num_sge)
		return 0;
	if (wr->num_sge == 1)
		return memreg_extents_sge(ucmd, ex, &wr->sge, write, wait,
					  &ex->of_wr[i]);
	first = (const struct ib_memreg_sge *)chunk->side[i] - chunk->sges;
	for (n = first; n < first + wr->num_sge && !ret; n++)
		ret = memreg_extents_sge(ucmd, ex, &chunk->sges[n], write,
					 wait, &ex->of_sge[n]);
	return ret;
}

/* Count the use of all extents that were found. */
static void memreg_extents_count(const struct memreg_extents *ex,
				 const struct memreg_chunk_wrs *chunk)
{
	const struct ib_memreg_wr *wr = chunk->wrs;
	u32 i, n, first;

	for (i = 0; i < chunk->count; i++, wr++) {
		if (ex->of_wr[i])
			memreg_demand_count_use(ex->of_wr[i]);
		if (wr->num_sge < 2 || wr->flags & IB_MEMREG_WR_INLINE ||
		    wr->opcode == IB_MEMREG_OP_BIND)
			continue;
		first = (const struct ib_memreg_sge *)chunk->side[i] -
			chunk->sges;
		for (n = first; n < first + wr->num_sge; n++)
			if (ex->of_sge[n])
				memreg_demand_count_use(ex->of_sge[n]);
	}
}

/**
 * memreg_extents_hold() - Find or make the extents of work requests
 * @ucmd: The call
 * @ex: Filled in; the caller drops it, also on failure
 * @chunk: The work requests, one at least; their number is reduced to that of
 *	the work requests before the first one whose memory cannot be pinned, or
 *	is missing
 * @wait: Make extents that are missing
 *
 * Context: may sleep, with mmap_lock taken; waits for no fault.
 * Return: 0; or if the memory of the first work request cannot be pinned, an
 * errno that SUBMIT documents. Also -EAGAIN, with memreg_extents.missed set, or
 * memreg_ucmd.fault filled in: then the caller has to start over.
 */
int memreg_extents_hold(struct memreg_ucmd *ucmd, struct memreg_extents *ex,
			struct memreg_chunk_wrs *chunk, bool wait)
{
	int ret = 0;
	u32 i;

	ex->nr = 0;
	ex->missed = false;
	ex->mr = NULL;
	for (i = 0; i < chunk->count && !ret; i++)
		ret = memreg_extents_wr(ucmd, ex, chunk, i, wait);
	if (ret) {
		chunk->count = i - 1;
		if (!chunk->count || ex->missed || ucmd->fault.needed)
			return ret;
		/*
		 * The error is found again when this work request is the first
		 * one.
		 */
		memreg_fail(ucmd, 0, IB_MEMREG_REASON_NONE);
	}
	memreg_extents_count(ex, chunk);
	return 0;
}

/**
 * memreg_extents_drop() - Put the extents of work requests
 * @ex: The extents
 */
void memreg_extents_drop(struct memreg_extents *ex)
{
	while (ex->nr)
		memreg_object_put(&ex->held[--ex->nr]->obj);
	if (ex->mr)
		memreg_object_put(&ex->mr->obj);
	ex->mr = NULL;
}
