// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of requests: it is mapped to as many MRs as it needs, and unmapped
 * when their keys are dead.
 */
#include <linux/bvec.h>
#include <linux/scatterlist.h>

#include "kapi/kapi.h"
#include "kapi/trace.h"
#include "keys/fastmr.h"

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

/* Give an MR the upper half of its I/O address that the caller wants. */
static void memreg_mr_set_iova(struct ib_memreg_mr *mr, u32 high)
{
	struct ib_mr *ibmr = mr->fast.mr;

	if (high)
		ibmr->iova = (u64)high << 32 | lower_32_bits(ibmr->iova);
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
	memreg_mr_set_iova(mr, mr->req->iova_high);
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
void memreg_mr_unmap(struct ib_memreg_mr *mr)
{
	if (mr->mapped)
		ib_dma_unmap_sg(mr->pool->pd->device, mr->sgl, mr->nents,
				mr->dir);
	mr->mapped = false;
}

/*
 * Put the MRs of a request behind @last, whose keys are all dead. Not for those
 * that wait for MRs: see memreg_mrpool_check_wanted().
 */
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
		memreg_mrpool_put_mr(mr);
		req->nr_mrs--;
	}
}

void memreg_req_release(struct ib_memreg_req *req)
{
	memreg_req_release_behind(req, NULL);
	memreg_mrpool_check_wanted(req->pool);
}

/* Begin another MR. */
static int memreg_req_begin_mr(struct ib_memreg_req *req)
{
	struct ib_memreg_mr *mr;

	if (!req->room)
		return -EMSGSIZE;
	mr = memreg_mrpool_take_mr(req->pool, req->reserve);
	if (!mr)
		return -EAGAIN;
	mr->req = req;
	mr->next = NULL;
	mr->dir = req->dir;
	mr->nents = 0;
	mr->pages = 0;
	if (req->last)
		req->last->next = mr;
	else
		req->first = mr;
	req->last = mr;
	req->nr_mrs++;
	req->filling = mr;
	req->room--;
	return 0;
}

/*
 * There are too few MRs for a request, whose next one is to begin at @offset of
 * a page. It gives back all that it has: if requests kept some while they wait
 * for more, they might wait for each other for ever.
 */
static int memreg_req_refused(struct ib_memreg_req *req, u32 offset, u32 length)
{
	u32 pages = DIV_ROUND_UP_ULL((u64)offset + length, PAGE_SIZE);
	u32 more = DIV_ROUND_UP(pages, req->pool->max_pages);
	u32 n = req->nr_mrs + min(more, req->room);

	memreg_req_release_behind(req, NULL);
	memreg_mrpool_refuse(req->pool, req->reserve, n);
	return -EAGAIN;
}

/* Add a piece to the last MR of a request, and to as many more as it takes. */
static int memreg_req_fill(struct ib_memreg_req *req, struct page *page,
			   u32 offset, u32 length)
{
	u32 added;
	int ret;

	if (!length)
		return -EINVAL;
	while (length) {
		page += offset >> PAGE_SHIFT;
		offset = offset_in_page(offset);
		added = req->filling ? memreg_mr_add(req->filling, page, offset,
						     length) : 0;
		if (!added) {
			ret = memreg_req_begin_mr(req);
			if (ret == -EAGAIN)
				return memreg_req_refused(req, offset, length);
			if (ret)
				return ret;
		}
		offset += added;
		length -= added;
	}
	return 0;
}

/* Forget what was added since ib_memreg_req_begin(), if anything is left. */
static void memreg_req_undo(struct ib_memreg_req *req, int err)
{
	if (err != -EAGAIN) {
		memreg_req_release_behind(req, req->before);
		memreg_mrpool_check_wanted(req->pool);
	}
	WRITE_ONCE(req->state, MEMREG_REQ_IDLE);
}

/**
 * ib_memreg_req_begin() - Begin to map memory to MRs of a request
 * @req: A request that is not posted; it may have other memory mapped already
 * @max_mrs: MRs that this memory may take, at most
 * @dir: DMA_TO_DEVICE: the peer reads; DMA_FROM_DEVICE: the peer writes;
 *	DMA_BIDIRECTIONAL: both
 *
 * For memory in any form, such as lists of pages, folio queues and iterators:
 * ib_memreg_req_add() follows for each piece of it, then
 * ib_memreg_req_commit(). If one of these fails, the mapping has ended, and the
 * others return -EINVAL. ib_memreg_req_unmap() ends it as well.
 *
 * Context: any that ib_post_send() may be called in.
 * Return: 0; -EINVAL if @dir can't be, or if @req is posted or being mapped.
 */
int ib_memreg_req_begin(struct ib_memreg_req *req, unsigned int max_mrs,
			enum dma_data_direction dir)
{
	if (READ_ONCE(req->state) != MEMREG_REQ_IDLE ||
	    (dir != DMA_TO_DEVICE && dir != DMA_FROM_DEVICE &&
	     dir != DMA_BIDIRECTIONAL))
		return -EINVAL;
	req->before = req->last;
	req->filling = NULL;
	req->room = max_mrs;
	req->dir = dir;
	WRITE_ONCE(req->state, MEMREG_REQ_MAPPING);
	return 0;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_begin, MEMREG_NS);

/**
 * ib_memreg_req_add() - Add memory to a mapping that was begun
 * @req: The request
 * @page: The first page; those behind it follow in memory
 * @offset: Offset of the memory, which may be beyond the first page
 * @length: Bytes
 *
 * Each MR takes as many pieces as fit: a piece that does not begin and end at
 * the boundaries of pages is the first or last one of its MR, unless the pool
 * has IB_MEMREG_POOL_SG_GAPS. A piece that an MR has not enough room for goes
 * on in the next one.
 *
 * Context: any that ib_post_send() may be called in.
 * Return: 0; -EAGAIN and -EMSGSIZE as of ib_memreg_req_map_sg(); -EINVAL if
 * @length is 0, or if no mapping was begun.
 */
int ib_memreg_req_add(struct ib_memreg_req *req, struct page *page,
		      unsigned int offset, unsigned int length)
{
	int ret;

	if (READ_ONCE(req->state) != MEMREG_REQ_MAPPING)
		return -EINVAL;
	ret = memreg_req_fill(req, page, offset, length);
	if (ret)
		memreg_req_undo(req, ret);
	return ret;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_add, MEMREG_NS);

/**
 * ib_memreg_req_commit() - Map the memory that was added
 * @req: The request
 *
 * The memory is the request's until ib_memreg_req_unmap() or
 * ib_memreg_req_ops.done().
 *
 * Context: any that ib_post_send() may be called in.
 * Return: 0; -EINVAL if nothing was added, or if no mapping was begun; -EIO if
 * it cannot be mapped.
 */
int ib_memreg_req_commit(struct ib_memreg_req *req)
{
	struct ib_memreg_mr *mr;
	int ret;

	if (READ_ONCE(req->state) != MEMREG_REQ_MAPPING)
		return -EINVAL;
	ret = req->filling ? 0 : -EINVAL;
	mr = req->before ? req->before->next : req->first;
	for (; !ret && mr; mr = mr->next)
		ret = memreg_mr_map(mr);
	if (ret)
		memreg_req_undo(req, ret);
	else
		WRITE_ONCE(req->state, MEMREG_REQ_IDLE);
	return ret;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_commit, MEMREG_NS);

/**
 * ib_memreg_req_map_sg() - Map memory to MRs of a request
 * @req: As for ib_memreg_req_begin()
 * @sgl: The memory; not mapped for DMA, and not needed afterwards
 * @nents: Number of pieces
 * @max_mrs: MRs that this memory may take, at most
 * @dir: Direction of the peer's accesses, as for ib_memreg_req_begin()
 *
 * The same as ib_memreg_req_begin(), ib_memreg_req_add() for each piece, and
 * ib_memreg_req_commit().
 *
 * Memory can be mapped to a request more than once before it is posted, also in
 * both directions: one message then carries the segments that the peer reads
 * and those that it writes. Each call begins with a new MR, so its segments
 * start at the value that @nr_mrs of the request had before.
 *
 * Context: any that ib_post_send() may be called in.
 * Return: 0; -EAGAIN if there are not enough MRs now: try again later, as MRs
 * become idle when other requests end, or a worker adds some
 * (ib_memreg_pool_attr.available). All memory of the request is unmapped then,
 * also that of earlier calls, so that no request keeps MRs for which another
 * waits. -EMSGSIZE if it would take more than @max_mrs; -EINVAL if the memory
 * is empty, or if @req is posted or being mapped; -EIO if it cannot be mapped:
 * these failures change nothing, and earlier mappings of the request stay.
 */
int ib_memreg_req_map_sg(struct ib_memreg_req *req, struct scatterlist *sgl,
			 unsigned int nents, unsigned int max_mrs,
			 enum dma_data_direction dir)
{
	struct scatterlist *sg;
	unsigned int i;
	int ret;

	ret = ib_memreg_req_begin(req, max_mrs, dir);
	if (ret)
		return ret;
	for_each_sg(sgl, sg, nents, i) {
		ret = ib_memreg_req_add(req, sg_page(sg), sg->offset,
					sg->length);
		if (ret)
			return ret;
	}
	return ib_memreg_req_commit(req);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_map_sg, MEMREG_NS);

/**
 * ib_memreg_req_map_bvec() - Map memory to MRs of a request
 * @req: As for ib_memreg_req_begin()
 * @bvecs: The memory; not needed afterwards
 * @count: Number of pieces
 * @max_mrs: MRs that this memory may take, at most
 * @dir: Direction of the peer's accesses, as for ib_memreg_req_begin()
 *
 * Context: any that ib_post_send() may be called in.
 * Return: as of ib_memreg_req_map_sg().
 */
int ib_memreg_req_map_bvec(struct ib_memreg_req *req,
			   const struct bio_vec *bvecs, unsigned int count,
			   unsigned int max_mrs, enum dma_data_direction dir)
{
	unsigned int i;
	int ret;

	ret = ib_memreg_req_begin(req, max_mrs, dir);
	for (i = 0; !ret && i < count; i++)
		ret = ib_memreg_req_add(req, bvecs[i].bv_page,
					bvecs[i].bv_offset, bvecs[i].bv_len);
	return ret ?: ib_memreg_req_commit(req);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_map_bvec, MEMREG_NS);

/**
 * ib_memreg_req_unmap() - Undo all of ib_memreg_req_map_sg() and _bvec()
 * @req: A request that is not posted; if nothing is mapped, this does nothing;
 *	a mapping that was begun and not committed ends
 *
 * Not for requests that were posted, which are unmapped when they end: for such
 * a request the kernel warns once, and does nothing.
 *
 * Context: any that ib_post_send() may be called in.
 */
void ib_memreg_req_unmap(struct ib_memreg_req *req)
{
	if (WARN_ON_ONCE(READ_ONCE(req->state) > MEMREG_REQ_MAPPING))
		return;
	memreg_req_release(req);
	WRITE_ONCE(req->state, MEMREG_REQ_IDLE);
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
