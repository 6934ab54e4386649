// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions of pages that their owner keeps, as registered buffers of io_uring.
 */
#include <linux/bvec.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>

#include "core.h"
#include "device.h"
#include "pages/borrowed.h"
#include "pages/region.h"

/* List the memory of an iterator in as few entries as the device allows. */
static u32 memreg_region_list_iter(const struct iov_iter *iter, size_t max_seg,
				   struct scatterlist *sg)
{
	const struct bio_vec *bv = iter->bvec;
	size_t skip = iter->iov_offset, left = iov_iter_count(iter);
	phys_addr_t end = 0;
	size_t seg = 0;
	u32 n = 0;

	while (left) {
		phys_addr_t at = page_to_phys(bv->bv_page) + bv->bv_offset +
				 skip;
		size_t length = min3((size_t)bv->bv_len - skip, left, max_seg);

		if (n && at == end && length <= max_seg - seg) {
			if (sg)
				sg->length += length;
		} else {
			if (sg && n)
				sg = sg_next(sg);
			if (sg)
				sg_set_page(sg, pfn_to_page(PHYS_PFN(at)),
					    length, offset_in_page(at));
			seg = 0;
			n++;
		}
		seg += length;
		end = at + length;
		left -= length;
		skip += length;
		if (skip == bv->bv_len) {
			bv++;
			skip = 0;
		}
	}
	return n;
}

static void memreg_borrowed_release(struct memreg_region *region)
{
	sg_free_table(&region->sgt.sgt);
}

static const struct memreg_source memreg_borrowed_source = {
	.release = memreg_borrowed_release,
};

/**
 * memreg_region_borrow() - Make a region of pages that their owner keeps
 * @ucmd: Call that asks for it
 * @iter: The memory, as bio_vecs; one byte at least
 *
 * Return: the region, mapped; ERR_PTR(-ENOMEM) or ERR_PTR(-EOPNOTSUPP).
 */
struct memreg_region *memreg_region_borrow(struct memreg_ucmd *ucmd,
					   const struct iov_iter *iter)
{
	size_t max_seg = ib_dma_max_seg_size(ucmd->mdev->ibdev);
	struct memreg_region *region;
	int ret;

	region = memreg_region_alloc(ucmd->mdev, &memreg_borrowed_source, 0,
				     iov_iter_count(iter), true);
	if (!region)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table(&region->sgt.sgt,
			     memreg_region_list_iter(iter, max_seg, NULL),
			     GFP_KERNEL_ACCOUNT);
	if (ret)
		goto err;
	memreg_region_list_iter(iter, max_seg, region->sgt.sgt.sgl);
	ret = memreg_region_map(ucmd, region);
	if (ret)
		goto err;
	region->mapped = true;
	return region;

err:
	memreg_region_release(region);
	return ERR_PTR(ret);
}

/**
 * memreg_region_return() - Return the pages of a borrowed region to their owner
 * @region: The region; may only be released afterwards
 *
 * Context: any.
 */
void memreg_region_return(struct memreg_region *region)
{
	region->mapped = false;
	memreg_region_unmap(region);
}
