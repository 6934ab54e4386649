// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests of other kernel modules: memory registered for one I/O of a peer.
 *
 * Normal operation
 *
 * A request is mapped to as many MRs as it needs. Their REG_MRs go to the send
 * queue together with the caller's SEND, unsignalled: the queue executes in
 * order, and a work request that fails or is flushed has a completion,
 * signalled or not. When the answer has come, the keys that the peer has not
 * invalidated are killed by LOCAL_INVs, of which the last one is signalled: it
 * succeeds only if all before it have, the SEND included. Then the memory is
 * unmapped, and the MRs are idle again.
 *
 * What has to happen before a request is done is counted in @pending: the end
 * that the caller makes of it, the completion of a SEND that is signalled, that
 * of the last LOCAL_INV.
 *
 * A post and an answer
 *
 * An answer can arrive before the post returns, and a peer can send one without
 * a request, while the driver still reads the work requests. So the post holds
 * a lock in the request, and every handler takes it: an answer waits until the
 * post has returned, and counts only if all work requests were posted. One
 * answer counts; the caller that handles it has the request to itself from
 * there on.
 *
 * Failure
 *
 * If any work request of a request fails or is flushed, the state of its MRs is
 * unknown (I4). A worker destroys them, unmaps the memory, and calls done(). It
 * needs no queue. To have others take their place is left to the pool's worker,
 * since that takes memory, and this may be what memory is waiting for. The same
 * is done to MRs whose keys are dead though packets may be in flight (I1).
 *
 * If LOCAL_INVs can't be posted, no completion reports the end of the SEND and
 * of the LOCAL_INVs that were posted. The worker then first ends the
 * connection, by draining the send queue.
 *
 * Other work requests may still complete after that: only wr_cqe and status of
 * a bad completion mean anything, so the last LOCAL_INV has a completion of its
 * own, and cannot be taken for a REG_MR that was flushed.
 */
#include <linux/bvec.h>
#include <linux/overflow.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>

#include "inject.h"
#include "kapi/kapi.h"
#include "kapi/trace.h"
#include "mem/fastmr.h"

static void memreg_req_work(struct work_struct *work);

/**
 * enum memreg_req_state - Where a request is
 * @MEMREG_REQ_IDLE: It is the caller's, with memory mapped or without.
 * @MEMREG_REQ_POSTED: It waits for its answer.
 * @MEMREG_REQ_PARTIAL: A part of it was posted, and not the SEND: it waits for
 *	the connection to end.
 * @MEMREG_REQ_ANSWERED: The caller has the answer.
 * @MEMREG_REQ_ENDED: It waits for work requests, or for the worker.
 */
enum memreg_req_state {
	MEMREG_REQ_IDLE,
	MEMREG_REQ_POSTED,
	MEMREG_REQ_PARTIAL,
	MEMREG_REQ_ANSWERED,
	MEMREG_REQ_ENDED,
};

/* Flags of a request, besides enum ib_memreg_req_flags. */
#define MEMREG_REQ_LOCAL	BIT(8)	/* LOCAL_INV was used */
#define MEMREG_REQ_DRAIN	BIT(9)	/* The worker is to drain the queue */

/*
 * Mapping
 */

/* Bytes, at most, of an entry that begins at this offset in a page. */
static u32 memreg_entry_max(const struct ib_memreg_pool *pool, u32 offset)
{
	return rounddown(offset + pool->max_seg, PAGE_SIZE) - offset;
}

/* Bytes that go into the pages which an MR may still take. */
static u32 memreg_mr_room(const struct ib_memreg_mr *mr)
{
	return (mr->pool->max_pages - mr->pages) << PAGE_SHIFT;
}

/*
 * Extend an MR's last entry by a piece, or by the first bytes of it, if the
 * piece follows in memory. Returns the number of bytes.
 */
static u32 memreg_mr_extend(struct ib_memreg_mr *mr, struct page *page,
			    u32 offset, u32 length)
{
	struct scatterlist *last = &mr->sgl[mr->nents - 1];
	u32 room = memreg_mr_room(mr);

	if (page_to_phys(page) + offset != sg_phys(last) + last->length ||
	    is_zone_device_page(page) || is_zone_device_page(sg_page(last)))
		return 0;
	/* The page that it begins in is counted, if it doesn't begin there. */
	if (offset)
		room += PAGE_SIZE - offset;
	length = min3(length, room,
		      memreg_entry_max(mr->pool, last->offset) - last->length);
	last->length += length;
	mr->pages += DIV_ROUND_UP(offset + length, PAGE_SIZE) - !!offset;
	return length;
}

/* Give an MR another entry, of a piece or the first bytes of it. */
static u32 memreg_mr_append(struct ib_memreg_mr *mr, struct page *page,
			    u32 offset, u32 length)
{
	if (mr->pages == mr->pool->max_pages)
		return 0;
	length = min3(length, memreg_entry_max(mr->pool, offset),
		      memreg_mr_room(mr) - offset);
	sg_set_page(&mr->sgl[mr->nents++], page, length, offset);
	mr->pages += DIV_ROUND_UP(offset + length, PAGE_SIZE);
	return length;
}

/* Add to an MR what it takes of a piece. Returns the bytes. */
static u32 memreg_mr_add(struct ib_memreg_mr *mr, struct page *page,
			 u32 offset, u32 length)
{
	const struct scatterlist *last;
	u32 added;

	if (!mr->nents)
		return memreg_mr_append(mr, page, offset, length);
	added = memreg_mr_extend(mr, page, offset, length);
	if (added)
		return added;
	last = &mr->sgl[mr->nents - 1];
	if (!mr->pool->sg_gaps &&
	    (offset || offset_in_page(last->offset + last->length)))
		return 0;
	return memreg_mr_append(mr, page, offset, length);
}

/* Map what an MR was given, and prepare its REG_MR. */
static int memreg_mr_map(struct ib_memreg_mr *mr)
{
	struct ib_device *ibdev = mr->pool->pd->device;
	int nents, access = 0;

	nents = ib_dma_map_sg(ibdev, mr->sgl, mr->nents, mr->dir);
	if (!nents)
		return -EIO;
	mr->mapped = true;
	if (memreg_fastmr_map(&mr->fast, mr->sgl, nents, PAGE_SIZE))
		return -EIO;
	if (mr->dir != DMA_FROM_DEVICE)
		access |= IB_ACCESS_REMOTE_READ;
	if (mr->dir != DMA_TO_DEVICE)
		access |= IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE;
	memreg_fastmr_prepare_reg(&mr->fast, access);
	mr->length = mr->fast.mr->length;
	trace_memreg_req_map(mr);
	return 0;
}

/* Unmap the memory behind a dead key. */
static void memreg_mr_unmap(struct ib_memreg_mr *mr)
{
	if (mr->mapped)
		ib_dma_unmap_sg(mr->pool->pd->device, mr->sgl, mr->nents,
				mr->dir);
	mr->mapped = false;
}

/* Put the MRs of a request behind @last, whose keys are all dead. */
static void memreg_req_release_behind(struct ib_memreg_req *req,
				      struct ib_memreg_mr *last)
{
	struct ib_memreg_mr **link = last ? &last->next : &req->first;
	struct ib_memreg_mr *mr = *link, *next;

	*link = NULL;
	req->last = last;
	for (; mr; mr = next) {
		next = mr->next;
		memreg_mr_unmap(mr);
		mr->state = MEMREG_MR_DEAD;
		ib_memreg_mr_put(mr);
		req->nr_mrs--;
	}
}

static void memreg_req_release(struct ib_memreg_req *req)
{
	memreg_req_release_behind(req, NULL);
}

/**
 * struct memreg_fill - Memory that is being added to a request
 * @req: The request
 * @dir: Direction of the peer's accesses
 * @before: Last MR that it had before, or NULL
 * @mr: MR that is being filled, or NULL
 * @room: MRs that it may still take
 */
struct memreg_fill {
	struct ib_memreg_req *req;
	enum dma_data_direction dir;
	struct ib_memreg_mr *before;
	struct ib_memreg_mr *mr;
	unsigned int room;
};

/* Begin another MR. */
static int memreg_fill_begin_mr(struct memreg_fill *fill)
{
	struct ib_memreg_req *req = fill->req;
	struct ib_memreg_mr *mr;

	if (!fill->room)
		return -EMSGSIZE;
	mr = memreg_mrpool_take_mr(req->pool, req->reserve);
	if (!mr)
		return -EAGAIN;
	mr->req = req;
	mr->next = NULL;
	mr->dir = fill->dir;
	mr->nents = 0;
	mr->pages = 0;
	if (req->last)
		req->last->next = mr;
	else
		req->first = mr;
	req->last = mr;
	req->nr_mrs++;
	fill->mr = mr;
	fill->room--;
	return 0;
}

/* Add a piece to the last MR of a request, and to as many more as it takes. */
static int memreg_fill_add(struct memreg_fill *fill, struct page *page,
			   u32 offset, u32 length)
{
	u32 added;
	int ret;

	if (!length)
		return -EINVAL;
	while (length) {
		page += offset >> PAGE_SHIFT;
		offset = offset_in_page(offset);
		added = fill->mr ? memreg_mr_add(fill->mr, page, offset,
						 length) : 0;
		if (!added) {
			ret = memreg_fill_begin_mr(fill);
			if (ret)
				return ret;
		}
		offset += added;
		length -= added;
	}
	return 0;
}

static int memreg_fill_begin(struct memreg_fill *fill,
			     struct ib_memreg_req *req, unsigned int max_mrs,
			     enum dma_data_direction dir)
{
	if (READ_ONCE(req->state) != MEMREG_REQ_IDLE ||
	    (dir != DMA_TO_DEVICE && dir != DMA_FROM_DEVICE &&
	     dir != DMA_BIDIRECTIONAL))
		return -EINVAL;
	*fill = (struct memreg_fill) {
		.req = req,
		.dir = dir,
		.before = req->last,
		.room = max_mrs,
	};
	return 0;
}

/* All pieces were added, or one could not be. */
static int memreg_fill_end(struct memreg_fill *fill, int ret)
{
	struct ib_memreg_req *req = fill->req;
	struct ib_memreg_mr *mr;

	if (!ret && !fill->mr)
		ret = -EINVAL;
	mr = fill->before ? fill->before->next : req->first;
	for (; !ret && mr; mr = mr->next)
		ret = memreg_mr_map(mr);
	if (ret)
		memreg_req_release_behind(req, fill->before);
	return ret;
}

/**
 * ib_memreg_req_init() - Initialise a request
 * @req: The request, which is part of the caller's own
 * @pool: Pool that it takes MRs from
 * @reserve: Reserve that it takes MRs from if the pool has none, or NULL
 * @ops: Callbacks; must stay as long as the request is used
 *
 * The request may then be used any number of times. There is no counterpart
 * that frees it.
 *
 * Context: any.
 */
void ib_memreg_req_init(struct ib_memreg_req *req, struct ib_memreg_pool *pool,
			struct ib_memreg_reserve *reserve,
			const struct ib_memreg_req_ops *ops)
{
	memset(req, 0, sizeof(*req));
	req->pool = pool;
	req->reserve = reserve;
	req->ops = ops;
	spin_lock_init(&req->lock);
	INIT_WORK(&req->work, memreg_req_work);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_init, MEMREG_NS);

/**
 * ib_memreg_req_map_sg() - Map memory to MRs of a request
 * @req: A request that is not posted; it may have other memory mapped already
 * @sgl: The memory; not mapped for DMA, and not needed afterwards
 * @nents: Number of pieces
 * @max_mrs: MRs that this memory may take, at most
 * @dir: DMA_TO_DEVICE: the peer reads; DMA_FROM_DEVICE: the peer writes;
 *	DMA_BIDIRECTIONAL: both
 *
 * Each MR takes as many pieces as fit: a piece that does not begin and end at
 * the boundaries of pages is the first or last one of its MR, unless the pool
 * has IB_MEMREG_POOL_SG_GAPS. A piece that an MR has not enough room for goes
 * on in the next one. The memory is the request's until ib_memreg_req_unmap()
 * or ib_memreg_req_ops.done().
 *
 * Memory can be mapped to a request more than once before it is posted, also in
 * both directions: one message then carries the segments that the peer reads
 * and those that it writes. Each call begins with a new MR, so its segments
 * start at the value that @nr_mrs of the request had before.
 *
 * Context: any that ib_post_send() may be called in.
 * Return: 0; -EAGAIN if there are not enough MRs now: try again later, as MRs
 * become idle when other requests end, or a worker adds some; -EMSGSIZE if it
 * would take more than @max_mrs; -EINVAL if the memory is empty, or if @req is
 * posted; -EIO if it cannot be mapped. A failure changes nothing: earlier
 * mappings of the request stay.
 */
int ib_memreg_req_map_sg(struct ib_memreg_req *req, struct scatterlist *sgl,
			 unsigned int nents, unsigned int max_mrs,
			 enum dma_data_direction dir)
{
	struct memreg_fill fill;
	struct scatterlist *sg;
	unsigned int i;
	int ret;

	ret = memreg_fill_begin(&fill, req, max_mrs, dir);
	if (ret)
		return ret;
	for_each_sg(sgl, sg, nents, i) {
		ret = memreg_fill_add(&fill, sg_page(sg), sg->offset,
				      sg->length);
		if (ret)
			break;
	}
	return memreg_fill_end(&fill, ret);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_map_sg, MEMREG_NS);

/**
 * ib_memreg_req_map_bvec() - Map memory to MRs of a request
 * @req: As for ib_memreg_req_map_sg()
 * @bvecs: The memory; not needed afterwards
 * @count: Number of pieces
 * @max_mrs: MRs that this memory may take, at most
 * @dir: Direction of the peer's accesses, as for ib_memreg_req_map_sg()
 *
 * Context: any that ib_post_send() may be called in.
 * Return: as of ib_memreg_req_map_sg().
 */
int ib_memreg_req_map_bvec(struct ib_memreg_req *req,
			   const struct bio_vec *bvecs, unsigned int count,
			   unsigned int max_mrs, enum dma_data_direction dir)
{
	struct memreg_fill fill;
	unsigned int i;
	int ret;

	ret = memreg_fill_begin(&fill, req, max_mrs, dir);
	if (ret)
		return ret;
	for (i = 0; !ret && i < count; i++)
		ret = memreg_fill_add(&fill, bvecs[i].bv_page,
				      bvecs[i].bv_offset, bvecs[i].bv_len);
	return memreg_fill_end(&fill, ret);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_map_bvec, MEMREG_NS);

/**
 * ib_memreg_req_unmap() - Undo all of ib_memreg_req_map_sg() and _bvec()
 * @req: A request that is not posted; if nothing is mapped, this does nothing
 *
 * Not for requests that were posted, which are unmapped when they end: for such
 * a request the kernel warns once, and does nothing.
 *
 * Context: any that ib_post_send() may be called in.
 */
void ib_memreg_req_unmap(struct ib_memreg_req *req)
{
	if (!WARN_ON_ONCE(READ_ONCE(req->state) != MEMREG_REQ_IDLE))
		memreg_req_release(req);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_unmap, MEMREG_NS);

/**
 * ib_memreg_req_segs() - The segments of the memory to send to the peer
 * @req: A request that is mapped
 * @segs: Filled in, in the order of the memory
 * @max: Room there
 *
 * The keys work as soon as the request is posted, and not before.
 *
 * Context: any.
 * Return: number of segments that were written: the smaller one of @nr_mrs of
 * the request and @max.
 */
unsigned int ib_memreg_req_segs(const struct ib_memreg_req *req,
				struct ib_memreg_seg *segs, unsigned int max)
{
	const struct ib_memreg_mr *mr;
	unsigned int n = 0;

	for (mr = req->first; mr && n < max; mr = mr->next, n++) {
		segs[n].iova = mr->fast.mr->iova;
		segs[n].length = mr->length;
		segs[n].rkey = mr->fast.mr->rkey;
	}
	return n;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_segs, MEMREG_NS);

/*
 * The end
 */

/* The caller owns the request again. It may be gone afterwards. */
static void memreg_req_call_done(struct ib_memreg_req *req)
{
	struct completion *waiter = req->waiter;

	/* An abort, or an answer that comes again, may be looking. */
	WRITE_ONCE(req->state, MEMREG_REQ_IDLE);
	if (waiter)
		complete(waiter);
	else
		req->ops->done(req, req->status);
}

/* Is an MR to be destroyed before its memory is unmapped? */
static bool memreg_mr_is_lost(const struct ib_memreg_mr *mr)
{
	return mr->req->unknown || mr->pool->weak & BIT(mr->state);
}

/* Is there such an MR? */
static bool memreg_req_is_lost(const struct ib_memreg_req *req)
{
	const struct ib_memreg_mr *mr;

	if (req->unknown)
		return true;
	if (likely(!req->pool->weak))
		return false;
	for (mr = req->first; mr; mr = mr->next)
		if (memreg_mr_is_lost(mr))
			return true;
	return false;
}

/* End a request some of whose MRs must be destroyed. */
static void memreg_req_reclaim(struct ib_memreg_req *req)
{
	struct ib_memreg_mr *mr, *next, **lost = &req->first;
	struct ib_memreg_mr *hollow;

	for (mr = req->first; mr; mr = mr->next)
		if (memreg_mr_is_lost(mr))
			memreg_fastmr_destroy(&mr->fast);
	for (mr = req->first; mr; mr = next) {
		next = mr->next;
		memreg_mr_unmap(mr);
		mr->state = MEMREG_MR_DEAD;
		if (mr->fast.mr) {
			ib_memreg_mr_put(mr);
		} else {
			*lost = mr;
			lost = &mr->next;
		}
	}
	*lost = NULL;
	hollow = req->first;
	req->first = NULL;
	req->last = NULL;
	req->nr_mrs = 0;
	memreg_req_call_done(req);

	for (mr = hollow; mr; mr = next) {
		next = mr->next;
		memreg_mrpool_replace_later(mr);
	}
}

static void memreg_req_queue(struct ib_memreg_req *req)
{
	memreg_mrpool_enter(req->pool);
	queue_work(memreg_req_wq, &req->work);
}

/* Count the keys that LOCAL_INV has killed. */
static void memreg_req_count_local(const struct ib_memreg_req *req)
{
	const struct ib_memreg_mr *mr;
	unsigned int n = 0;

	for (mr = req->first; mr; mr = mr->next)
		n += mr->state == MEMREG_MR_LOCAL;
	memreg_mrpool_count(req->pool, local_invalidated, n);
}

/* One of the things that a request waits for has happened. */
static void memreg_req_put(struct ib_memreg_req *req)
{
	if (!atomic_dec_and_test(&req->pending))
		return;
	if (req->flags & MEMREG_REQ_LOCAL && !req->unknown)
		memreg_req_count_local(req);
	if (memreg_req_is_lost(req)) {
		memreg_req_queue(req);
		return;
	}
	memreg_req_release(req);
	memreg_req_call_done(req);
}

static void memreg_req_work(struct work_struct *work)
{
	struct ib_memreg_req *req =
		container_of(work, struct ib_memreg_req, work);
	struct ib_memreg_pool *pool = req->pool;
	/* The request may be what writes back the memory that is waited for. */
	unsigned int noio = memalloc_noio_save();

	if (req->flags & MEMREG_REQ_DRAIN) {
		req->flags &= ~MEMREG_REQ_DRAIN;
		ib_drain_sq(req->qp);
		/* This work comes again, since the MRs are unknown. */
		memreg_req_put(req);
	} else {
		memreg_req_reclaim(req);
	}
	memreg_mrpool_leave(pool);
	memalloc_noio_restore(noio);
}

/* A work request failed, or was flushed. */
static void memreg_req_failed(struct ib_memreg_req *req,
			      const struct ib_wc *wc)
{
	WRITE_ONCE(req->status, -ECONNABORTED);
	WRITE_ONCE(req->unknown, true);
	trace_memreg_req_fail(req, wc);
	if (req->ops->error)
		req->ops->error(req, wc);
}

/**
 * memreg_mr_done() - A work request of an MR completed, but the last LOCAL_INV
 * @cq: Completion queue
 * @wc: Completion; success is ignored
 */
void memreg_mr_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ib_memreg_mr *mr =
		container_of(wc->wr_cqe, struct ib_memreg_mr, fast.cqe);

	if (wc->status != IB_WC_SUCCESS)
		memreg_req_failed(mr->req, wc);
}

/* The last LOCAL_INV completed, and all that was posted before it. */
static void memreg_mr_inv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ib_memreg_mr *mr =
		container_of(wc->wr_cqe, struct ib_memreg_mr, inv_cqe);
	struct ib_memreg_req *req = mr->req;

	if (wc->status != IB_WC_SUCCESS)
		memreg_req_failed(req, wc);
	memreg_req_put(req);
}

/* A SEND completed. On success the last LOCAL_INV reports it as well. */
static void memreg_req_send_check(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ib_memreg_req *req =
		container_of(wc->wr_cqe, struct ib_memreg_req, send_cqe);

	if (wc->status != IB_WC_SUCCESS)
		memreg_req_failed(req, wc);
}

/* A SEND completed that is counted in @pending. */
static void memreg_req_send_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ib_memreg_req *req =
		container_of(wc->wr_cqe, struct ib_memreg_req, send_cqe);

	memreg_req_send_check(cq, wc);
	memreg_req_put(req);
}

/*
 * Posting
 */

/* Chain the REG_MRs of a request in front of a SEND. */
static struct ib_send_wr *memreg_req_chain(struct ib_memreg_req *req,
					   struct ib_send_wr *send)
{
	struct ib_memreg_mr *mr;

	for (mr = req->first; mr; mr = mr->next) {
		struct ib_send_wr *wr = &mr->fast.wr.wr;

		mr->state = MEMREG_MR_POSTED;
		wr->wr_cqe = &mr->fast.cqe;
		wr->send_flags = 0;
		wr->next = mr->next ? &mr->next->fast.wr.wr : send;
		trace_memreg_req_register(mr);
	}
	return req->first ? &req->first->fast.wr.wr : send;
}

/* Prepare a request, and the SEND, to be posted. */
static void memreg_req_arm(struct ib_memreg_req *req, struct ib_qp *qp,
			   struct ib_send_wr *send, unsigned int flags)
{
	/* Otherwise the last LOCAL_INV reports the SEND, too. */
	bool signalled = flags & IB_MEMREG_REQ_REMOTE_INV || !req->first;

	req->status = 0;
	req->unknown = false;
	req->flags = flags;
	req->qp = qp;
	WRITE_ONCE(req->state, MEMREG_REQ_POSTED);
	atomic_set(&req->pending, signalled ? 2 : 1);
	req->send_cqe.done = signalled ? memreg_req_send_done :
					 memreg_req_send_check;
	send->wr_cqe = &req->send_cqe;
	if (signalled)
		send->send_flags |= IB_SEND_SIGNALED;
	else
		send->send_flags &= ~IB_SEND_SIGNALED;
}

/* Not all of a request could be posted. */
static int memreg_req_post_failed(struct ib_memreg_req *req, int err,
				  bool nothing)
{
	struct ib_memreg_mr *mr;

	if (nothing) {
		for (mr = req->first; mr; mr = mr->next)
			mr->state = MEMREG_MR_DEAD;
		WRITE_ONCE(req->state, MEMREG_REQ_IDLE);
		return err == -ENOTCONN ? -EIO : err;
	}
	/* The SEND is the last one, so it was not posted: the end counts. */
	atomic_set(&req->pending, 1);
	WRITE_ONCE(req->state, MEMREG_REQ_PARTIAL);
	return -ENOTCONN;
}

/**
 * ib_memreg_req_post() - Make the keys of a request, and send a message
 * @req: The request; it may be one that nothing is mapped to
 * @qp: Connected RC QP of the pool's device, with the room that
 *	ib_memreg_init_qp() makes; it stays until what was ended with it is
 *	done. Its completions are polled by the RDMA core, and not by the caller
 *	(IB_POLL_DIRECT).
 * @send: The message, a single work request; its completion is the request's:
 *	@wr_cqe and IB_SEND_SIGNALED are set here
 * @flags: enum ib_memreg_req_flags
 *
 * The message covers all memory of the request, in both directions. The answer
 * may come, and end the request, before this returns: do not access the request
 * after a post that succeeded. The caller needs no lock.
 *
 * Context: any that ib_post_send() may be called in.
 * Return: 0: ib_memreg_req_ops.done() will be called once the caller has ended
 * or aborted the request. -ENOTCONN: the same, but only a part was posted, and
 * not the message: the caller must end the connection, drain the queue pair,
 * and abort the request; no answer counts. -EINVAL, or another errno of the
 * driver: nothing was posted, and the request is still mapped.
 */
int ib_memreg_req_post(struct ib_memreg_req *req, struct ib_qp *qp,
		       struct ib_send_wr *send, unsigned int flags)
{
	const struct ib_send_wr *bad = NULL;
	struct ib_send_wr *first;
	unsigned long irq;
	int ret = -EINVAL;

	if (flags & ~IB_MEMREG_REQ_REMOTE_INV || send->next)
		return -EINVAL;
	spin_lock_irqsave(&req->lock, irq);
	if (READ_ONCE(req->state) == MEMREG_REQ_IDLE) {
		memreg_req_arm(req, qp, send, flags);
		first = memreg_req_chain(req, send);
		ret = memreg_inject_post_send(qp, first, &bad);
		if (ret)
			ret = memreg_req_post_failed(req, ret, bad == first);
	}
	/* If that worked, the request may be gone as soon as it is unlocked. */
	spin_unlock_irqrestore(&req->lock, irq);
	return ret;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_post, MEMREG_NS);

/*
 * The answer
 */

/*
 * Mark the key that the peer has invalidated with its answer, if it is one that
 * it was granted (I5).
 */
static bool memreg_req_check_inv(struct ib_memreg_req *req,
				 const struct ib_wc *wc)
{
	struct ib_memreg_mr *mr;

	lockdep_assert_held(&req->lock);

	if (!(wc->wc_flags & IB_WC_WITH_INVALIDATE))
		return true;
	if (!(req->flags & IB_MEMREG_REQ_REMOTE_INV))
		return false;
	for (mr = req->first; mr; mr = mr->next) {
		if (mr->fast.mr->rkey != wc->ex.invalidate_rkey)
			continue;
		mr->state = MEMREG_MR_REMOTE;
		memreg_mrpool_count(req->pool, remote_invalidated, 1);
		trace_memreg_req_invalidate(mr);
		return true;
	}
	return false;
}

/**
 * ib_memreg_req_answered() - The answer to a request has come
 * @req: The request that the message names, in whatever state it is
 * @wc: Completion of the receive that took the message
 *
 * Checks that @req waits for an answer by the queue pair of @wc, and that a key
 * that the peer says it has invalidated (IB_WC_WITH_INVALIDATE) is one of @req
 * that it was to invalidate. It does not read the message.
 *
 * If all of that is so, @req is the caller's alone: a second answer is refused,
 * as is one while the request is not posted, or still being posted. The caller
 * takes what it wants from the message, and calls ib_memreg_req_end(); or, if
 * something is wrong with the message, it ends the connection, and calls
 * ib_memreg_req_abort() when that is drained.
 *
 * Context: any that ib_post_send() may be called in.
 * Return: 0; -ECONNABORTED if @wc is of a receive that failed; -EPROTO if this
 * is no answer that @req waits for. Then nothing has changed, and the caller
 * must end the connection: a peer may have killed any other key of ours.
 */
int ib_memreg_req_answered(struct ib_memreg_req *req, const struct ib_wc *wc)
{
	unsigned long irq;
	int ret = -EPROTO;

	/* Nothing else of a failed completion means anything. */
	if (wc->status != IB_WC_SUCCESS)
		return -ECONNABORTED;
	spin_lock_irqsave(&req->lock, irq);
	if (READ_ONCE(req->state) == MEMREG_REQ_POSTED &&
	    wc->opcode & IB_WC_RECV && wc->qp == req->qp &&
	    memreg_req_check_inv(req, wc)) {
		WRITE_ONCE(req->state, MEMREG_REQ_ANSWERED);
		ret = 0;
	}
	spin_unlock_irqrestore(&req->lock, irq);
	if (ret && wc->wc_flags & IB_WC_WITH_INVALIDATE) {
		memreg_mrpool_count(req->pool, bogus, 1);
		trace_memreg_req_bogus(req, wc->ex.invalidate_rkey);
	}
	return ret;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_answered, MEMREG_NS);

/*
 * Ending
 */

/* Prepare LOCAL_INVs for the keys of a request that work. */
static struct ib_send_wr *memreg_req_chain_inv(struct ib_memreg_req *req)
{
	struct ib_send_wr *first = NULL, **link = &first;
	struct ib_memreg_mr *mr, *last = NULL;

	for (mr = req->first; mr; mr = mr->next) {
		if (mr->state != MEMREG_MR_POSTED)
			continue;
		mr->state = MEMREG_MR_LOCAL;
		memreg_fastmr_prepare_inv(&mr->fast);
		*link = &mr->fast.wr.wr;
		link = &mr->fast.wr.wr.next;
		last = mr;
		trace_memreg_req_invalidate(mr);
	}
	*link = NULL;
	if (last) {
		last->inv_cqe.done = memreg_mr_inv_done;
		last->fast.wr.wr.wr_cqe = &last->inv_cqe;
		last->fast.wr.wr.send_flags = IB_SEND_SIGNALED;
	}
	return first;
}

/* Have the keys of a request killed that work. */
static void memreg_req_invalidate(struct ib_memreg_req *req, struct ib_qp *qp)
{
	struct ib_send_wr *first = memreg_req_chain_inv(req);
	const struct ib_send_wr *bad;

	if (first) {
		req->flags |= MEMREG_REQ_LOCAL;
		atomic_inc(&req->pending);
		if (memreg_inject_post_send(qp, first, &bad)) {
			/* Not posted: the caller waits for the drain. */
			atomic_dec(&req->pending);
			WRITE_ONCE(req->status, -ECONNABORTED);
			WRITE_ONCE(req->unknown, true);
			req->flags |= MEMREG_REQ_DRAIN;
			memreg_req_queue(req);
			return;
		}
	}
	memreg_req_put(req);
}

/*
 * Move a posted request to the state ENDED. Returns false if it is not posted,
 * or has ended already.
 */
static bool memreg_req_begin_end(struct ib_memreg_req *req,
				 struct completion *waiter)
{
	enum memreg_req_state state;
	unsigned long irq;
	bool good;

	spin_lock_irqsave(&req->lock, irq);
	state = READ_ONCE(req->state);
	good = state != MEMREG_REQ_IDLE && state != MEMREG_REQ_ENDED;
	if (good) {
		WRITE_ONCE(req->state, MEMREG_REQ_ENDED);
		req->waiter = waiter;
	}
	spin_unlock_irqrestore(&req->lock, irq);
	return good;
}

/* Kill the keys of an ending request that still work. */
static void memreg_req_kill(struct ib_memreg_req *req, struct ib_qp *qp)
{
	struct ib_memreg_mr *mr;

	if (qp) {
		memreg_req_invalidate(req, qp);
		return;
	}
	for (mr = req->first; mr; mr = mr->next)
		if (mr->state == MEMREG_MR_POSTED)
			WRITE_ONCE(req->unknown, true);
	memreg_req_put(req);
}

/**
 * ib_memreg_req_end() - End a request
 * @req: A request that is posted, after its answer has come, which
 *	ib_memreg_req_answered() has found good; not to be touched until done()
 *	is called, which may be before this returns
 * @qp: The queue pair that it was posted on; or NULL if that was drained, and
 *	is not to be used any more
 *
 * Keys that the peer did not invalidate are killed by LOCAL_INV. Without @qp,
 * and if that can't be posted, their MRs are destroyed in a worker; in the
 * latter case it also drains the send queue, which ends the connection.
 *
 * If the peer answers by other means than a message, such as by an RDMA WRITE
 * that the caller polls, ib_memreg_req_answered() is not needed. Ending a
 * request that is not posted, or has ended, is an error of the caller: the
 * kernel warns once, and does nothing.
 *
 * Context: any that ib_post_send() may be called in. Never fails.
 */
void ib_memreg_req_end(struct ib_memreg_req *req, struct ib_qp *qp)
{
	if (!WARN_ON_ONCE(!memreg_req_begin_end(req, NULL)))
		memreg_req_kill(req, qp);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_end, MEMREG_NS);

/**
 * ib_memreg_req_end_sync() - End a request, and wait for that
 * @req: A request that is posted, after its answer has come
 * @qp: As of ib_memreg_req_end()
 *
 * done() is called before this returns.
 *
 * Context: may sleep; not where completions of @qp are handled.
 * Return: the status that done() got: 0 or -ECONNABORTED; -EINVAL if @req is
 * not posted, which is an error of the caller.
 */
int ib_memreg_req_end_sync(struct ib_memreg_req *req, struct ib_qp *qp)
{
	DECLARE_COMPLETION_ONSTACK(waiter);
	int status;

	might_sleep();
	if (WARN_ON_ONCE(!memreg_req_begin_end(req, &waiter)))
		return -EINVAL;
	memreg_req_kill(req, qp);
	wait_for_completion(&waiter);
	status = req->status;
	req->ops->done(req, status);
	return status;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_end_sync, MEMREG_NS);

/**
 * ib_memreg_req_abort() - End a request whose answer will not come
 * @req: A request that is posted, answered or not. If ib_memreg_req_end() was
 *	called, so that done() follows anyway, or if the request is not posted,
 *	this does nothing.
 *
 * The caller has ended the connection, and drained the queue pair. done() may
 * be called before this returns.
 *
 * Context: any that ib_post_send() may be called in. Never fails.
 */
void ib_memreg_req_abort(struct ib_memreg_req *req)
{
	if (!memreg_req_begin_end(req, NULL))
		return;
	WRITE_ONCE(req->status, -ECONNABORTED);
	memreg_req_kill(req, NULL);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_abort, MEMREG_NS);

/*
 * Queues
 */

/**
 * ib_memreg_init_qp() - Make room for requests in the attributes of a QP
 * @ibdev: Device of the QP
 * @attr: Attributes for creating the QP. Room for the requests is added to
 *	@max_send_wr, which may count other work of the caller already; and
 *	IB_SIGNAL_REQ_WR is set.
 * @depth: Requests that are posted at a time, at most
 * @max_mrs: MRs of a request, at most, all its memory together
 *
 * Call this before the send CQ is made: flushed work requests complete,
 * signalled or not, so there may be a completion for each. The room is for
 * REG_MRs, the SEND and LOCAL_INVs, which may all be on the queue at once, and
 * for the work request of ib_drain_sq(). The caller adds room for receives, and
 * for SGEs of its messages.
 *
 * Context: any.
 * Return: the most entries of the send CQ that the QP's work requests can take,
 * which is @max_send_wr now; -EINVAL if @depth is 0; -ENOSPC if the device has
 * no such queues: try fewer requests, or smaller ones. Nothing has changed
 * then.
 */
int ib_memreg_init_qp(struct ib_device *ibdev, struct ib_qp_init_attr *attr,
		      unsigned int depth, unsigned int max_mrs)
{
	u32 wrs;

	if (!depth)
		return -EINVAL;
	if (check_mul_overflow(max_mrs, 2U, &wrs) ||
	    check_add_overflow(wrs, 1U, &wrs) ||
	    check_mul_overflow(wrs, depth, &wrs) ||
	    check_add_overflow(wrs, 1U, &wrs) ||
	    check_add_overflow(wrs, attr->cap.max_send_wr, &wrs) ||
	    wrs > INT_MAX || (int)wrs > ibdev->attrs.max_qp_wr ||
	    (int)wrs > ibdev->attrs.max_cqe)
		return -ENOSPC;
	attr->cap.max_send_wr = wrs;
	attr->sq_sig_type = IB_SIGNAL_REQ_WR;
	return wrs;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_init_qp, MEMREG_NS);
