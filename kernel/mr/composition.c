// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions that are composed of other regions.
 *
 * The region of a composition has no pages of its own: its list of DMA
 * addresses consists of slices of the lists of its leaves. A leaf is an MR that
 * is not a composition. A composition holds a reference of each leaf, so that
 * leaves cannot be deregistered or re-registered, and their pages stay.
 *
 * Keys
 *
 * A page list holds whole pages, so one key spans two entries of the DMA list
 * only if the first one ends, and the second one begins, at a multiple of
 * MEMREG_PAGE_SIZE. All other boundaries are unaligned: a key ends there and
 * another key begins. A key that would have more pages than a list holds has
 * larger pages if the memory up to the next unaligned boundary allows. Some
 * devices can list pieces that begin and end at any byte
 * (memreg_kdevice.sg_gaps). On those, a key that spans an unaligned boundary
 * uses such a list, of as many entries as a page list has. Its FRWR has another
 * MR type, IB_MR_TYPE_SG_GAPS, and is made for that key alone.
 *
 * Guards
 *
 * A composition has no guard. When the mapping of a leaf changes, the leaf's
 * guard marks all compositions of the leaf stale as well, and kills their keys
 * along with the leaf's own: see memreg_guard_gone(). The tie to a leaf is made
 * in the same section under frwr_lock that checks that the leaf is not stale,
 * and before the first key is made. The guard therefore revokes every key for
 * each later change (I2).
 */
#include <kunit/visibility.h>
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>

#include "core.h"
#include "device.h"
#include "keys/frwr.h"
#include "keys/key.h"
#include "mr/composition.h"
#include "mr/mr.h"
#include "pages/region.h"
#include "pages/tie.h"
#include "quirks.h"

static void memreg_composition_release(struct memreg_region *region)
{
	struct memreg_composition *comp = region->composition;

	while (comp->nr_ties) {
		memreg_tie_remove(&comp->ties[--comp->nr_ties]);
		memreg_object_put(&comp->leaves[comp->nr_ties]->obj);
		cond_resched();
	}
	bitmap_free(comp->unaligned);
	kvfree(comp->leaves);
	kvfree(comp->ties);
	kvfree(comp->parts);
	kfree(comp);
}

/**
 * memreg_composition_find() - Find the part of a composition that contains a
 * byte
 * @comp: The composition
 * @offset: Offset of the byte, less than the length of the composition
 *
 * Return: index of the part.
 */
u32 memreg_composition_find(const struct memreg_composition *comp, u64 offset)
{
	u32 low = 0, high = comp->nr_parts, mid;

	while (high - low > 1) {
		mid = low + (high - low) / 2;
		if (comp->parts[mid].offset <= offset)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/**
 * memreg_region_write() - Write to a region's pages, or those of its leaves
 * @region: Region that is writable, and contains the range
 * @offset: First byte
 * @data: The bytes to write
 * @length: Bytes
 *
 * Context: any. The time does not depend on the size of the region, but for a
 * search.
 */
void memreg_region_write(struct memreg_region *region, u64 offset,
			 const void *data, size_t length)
{
	const struct memreg_composition *comp = region->composition;
	u32 i;

	if (!comp) {
		memreg_region_write_own(region, offset, data, length);
		return;
	}
	for (i = memreg_composition_find(comp, offset); length; i++) {
		const struct memreg_part *part = &comp->parts[i];
		u64 skip = offset - part->offset;
		size_t n = min_t(u64, part->length - skip, length);

		memreg_region_write_own(part->leaf->region, part->from + skip,
					data, n);
		offset += n;
		data += n;
		length -= n;
	}
}
EXPORT_SYMBOL_IF_KUNIT(memreg_region_write);

static bool memreg_composition_is_pmem(const struct memreg_region *region)
{
	const struct memreg_composition *comp = region->composition;
	u32 i;

	for (i = 0; i < comp->nr_ties; i++)
		if (!memreg_region_is_pmem(comp->leaves[i]->region))
			return false;
	return true;
}

static const struct memreg_source memreg_composition_source = {
	.release = memreg_composition_release,
	.is_pmem = memreg_composition_is_pmem,
};

/* Entries of the leaf's list that a part touches */
static u32 memreg_part_entries(const struct memreg_part *part)
{
	const struct memreg_region *region = part->leaf->region;

	return memreg_region_find(region, part->from + part->length - 1) -
	       memreg_region_find(region, part->from) + 1;
}

/* Append a part's slice of the leaf's DMA list. */
static void memreg_part_list(struct memreg_region *whole,
			     const struct memreg_part *part)
{
	const struct memreg_region *region = part->leaf->region;
	u32 i = memreg_region_find(region, part->from);
	u64 skip = part->from - region->offsets[i];
	u64 offset = part->offset, left = part->length;

	for (; left; i++) {
		const struct scatterlist *from = &region->sgl[i];
		struct scatterlist *to = &whole->sgl[whole->nents];
		u64 length = min_t(u64, sg_dma_len(from) - skip, left);

		sg_dma_address(to) = sg_dma_address(from) + skip;
		sg_dma_len(to) = length;
		whole->offsets[whole->nents++] = offset;
		offset += length;
		left -= length;
		skip = 0;
	}
}

/* Drivers with a flat list of system pages copy to the end of each page. */
static bool memreg_entry_is_rough(const struct memreg_region *region, u32 i)
{
	const struct scatterlist *sg = &region->sgl[i - 1];
	u64 size = region->mdev->quirks & MEMREG_QUIRK_FLAT_PAGE_LIST ?
		   PAGE_SIZE : MEMREG_PAGE_SIZE;

	return ((sg_dma_address(sg) + sg_dma_len(sg)) |
		sg_dma_address(sg + 1)) & (size - 1);
}

/* Build the list of DMA addresses, and find its unaligned boundaries. */
static int memreg_composition_list(struct memreg_ucmd *ucmd,
				   struct memreg_region *region)
{
	struct memreg_composition *comp = region->composition;
	u64 nents = 0;
	u32 i;

	for (i = 0; i < comp->nr_parts; i++)
		nents += memreg_part_entries(&comp->parts[i]);
	if (nents > IB_MEMREG_COMPOSE_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	region->sgl = kvmalloc_array(nents, sizeof(*region->sgl),
				     GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	region->offsets = kvmalloc_array(nents, sizeof(*region->offsets),
					 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	comp->unaligned = bitmap_zalloc(nents, GFP_KERNEL_ACCOUNT);
	if (!region->sgl || !region->offsets || !comp->unaligned)
		return -ENOMEM;
	sg_init_table(region->sgl, nents);
	for (i = 0; i < comp->nr_parts; i++)
		memreg_part_list(region, &comp->parts[i]);
	for (i = 1; i < region->nents; i++)
		if (memreg_entry_is_rough(region, i))
			__set_bit(i, comp->unaligned);
	return 0;
}

static int memreg_entry_compare(const void *a, const void *b)
{
	const struct scatterlist *x = a, *y = b;

	return sg_dma_address(x) < sg_dma_address(y) ? -1 :
	       sg_dma_address(x) > sg_dma_address(y);
}

/* Does the composition contain a byte of memory twice? */
static int memreg_composition_overlaps(const struct memreg_region *region)
{
	struct scatterlist *sorted;
	int ret = 0;
	u32 i;

	sorted = kvmalloc_array(region->nents, sizeof(*sorted),
				GFP_KERNEL_ACCOUNT);
	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, region->sgl, region->nents * sizeof(*sorted));
	sort(sorted, region->nents, sizeof(*sorted), memreg_entry_compare,
	     NULL);
	for (i = 1; i < region->nents && !ret; i++)
		if (sg_dma_address(&sorted[i - 1]) +
		    sg_dma_len(&sorted[i - 1]) > sg_dma_address(&sorted[i]))
			ret = 1;
	kvfree(sorted);
	return ret;
}

static int memreg_leaf_compare(const void *a, const void *b)
{
	const struct memreg_kmr *const *x = a, *const *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* List the leaves, each of them once. Returns the number of leaves. */
static u32 memreg_composition_leaves(struct memreg_composition *comp)
{
	u32 i, n = 0;

	for (i = 0; i < comp->nr_parts; i++)
		comp->leaves[i] = comp->parts[i].leaf;
	sort(comp->leaves, comp->nr_parts, sizeof(*comp->leaves),
	     memreg_leaf_compare, NULL);
	for (i = 0; i < comp->nr_parts; i++)
		if (!n || comp->leaves[n - 1] != comp->leaves[i])
			comp->leaves[n++] = comp->leaves[i];
	return n;
}

/* Tie the composition to each of its leaves. */
static int memreg_composition_tie(struct memreg_ucmd *ucmd,
				  struct memreg_region *region)
{
	struct memreg_composition *comp = region->composition;
	struct memreg_kmr *leaf;
	u32 n;

	comp->leaves = kvmalloc_array(comp->nr_parts, sizeof(*comp->leaves),
				      GFP_KERNEL_ACCOUNT);
	if (!comp->leaves)
		return -ENOMEM;
	n = memreg_composition_leaves(comp);
	comp->ties = kvcalloc(n, sizeof(*comp->ties), GFP_KERNEL_ACCOUNT);
	if (!comp->ties)
		return -ENOMEM;
	for (; comp->nr_ties < n; comp->nr_ties++) {
		leaf = comp->leaves[comp->nr_ties];
		if (!memreg_tie_make(&comp->ties[comp->nr_ties], region,
				     leaf->region))
			return memreg_fail(ucmd, -ESTALE,
					   IB_MEMREG_REASON_STALE);
		refcount_inc(&leaf->obj.users);
		region->opaque |= leaf->region->opaque;
	}
	return 0;
}

/**
 * memreg_composition_region() - Make the region of a composition
 * @ucmd: Call that asks for it
 * @parts: The parts in order, of MRs that the caller holds; copied
 * @nr_parts: Number of parts, from 1
 * @length: Bytes of all parts
 * @access: Access flags
 *
 * Return: the region; ERR_PTR(-ENOMEM); ERR_PTR(-EINVAL) if it has too many
 * runs of memory, or contains a byte twice and can be written to;
 * ERR_PTR(-ESTALE).
 */
struct memreg_region *
memreg_composition_region(struct memreg_ucmd *ucmd,
			  const struct memreg_part *parts, u32 nr_parts,
			  u64 length, u32 access)
{
	struct memreg_composition *comp;
	struct memreg_region *region;
	int ret;

	comp = kzalloc(sizeof(*comp), GFP_KERNEL_ACCOUNT);
	if (!comp)
		return ERR_PTR(-ENOMEM);
	region = memreg_region_alloc(ucmd->mdev, &memreg_composition_source, 0,
				     length, access &
				     IB_MEMREG_ACCESS_LOCAL_WRITE);
	if (!region) {
		kfree(comp);
		return ERR_PTR(-ENOMEM);
	}
	region->composition = comp;
	region->guard.confirmed = true;
	comp->nr_parts = nr_parts;
	comp->parts = kvmemdup(parts, nr_parts * sizeof(*parts),
			       GFP_KERNEL_ACCOUNT);
	ret = comp->parts ? memreg_composition_list(ucmd, region) : -ENOMEM;
	if (!ret && access & MEMREG_ACCESS_WRITES) {
		ret = memreg_composition_overlaps(region);
		if (ret > 0)
			ret = memreg_fail(ucmd, -EINVAL,
					  IB_MEMREG_REASON_TWICE);
	}
	if (!ret)
		ret = memreg_composition_tie(ucmd, region);
	if (!ret)
		return region;
	memreg_region_release(region);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_composition_region);

/*
 * Keys
 */

/* Bytes of a key with gaps, at most: some devices count in 32 bits. */
#define MEMREG_GAPS_SPAN	SZ_2G

/*
 * Bytes of a key with a page list, from @offset to the next unaligned boundary.
 * The pages are larger than MEMREG_PAGE_SIZE only if there would be too many.
 */
static u64 memreg_composition_run(const struct memreg_kmr *mr, u64 offset,
				  u64 iova, u8 *shift)
{
	const struct memreg_region *region = mr->region;
	struct memreg_kdevice *mdev = region->mdev;
	u32 first = memreg_region_find(region, offset);
	u32 next = find_next_bit(region->composition->unaligned, region->nents,
				 first + 1);
	u64 end = next < region->nents ? region->offsets[next] : mr->length;
	u64 length = end - offset, span, sizes;

	*shift = MEMREG_PAGE_SHIFT;
	span = memreg_key_span(mdev, shift);
	if (length > span - (iova & (MEMREG_PAGE_SIZE - 1))) {
		/* Pages are large enough if two of them cover the run. */
		sizes = (mdev->page_sizes | MEMREG_PAGE_SIZE) &
			GENMASK_ULL(fls64(length - 1), 0);
		*shift = memreg_region_page_shift(region, offset, length, iova,
						  sizes);
		span = memreg_key_span(mdev, shift);
	}
	return min(length, span - (iova & (BIT_ULL(*shift) - 1)));
}

/* Bytes of a key with gaps: from @offset on, as many entries as fit its list */
static u64 memreg_composition_gaps_run(const struct memreg_kmr *mr, u64 offset)
{
	const struct memreg_region *region = mr->region;
	u64 next = (u64)memreg_region_find(region, offset) +
		   region->mdev->max_pages;
	u64 end = next < region->nents ? region->offsets[next] : mr->length;

	if (!region->mdev->sg_gaps)
		return 0;
	return min_t(u64, end - offset, MEMREG_GAPS_SPAN);
}

/* Mark a key as one with gaps: its FRWR is never reused for another key. */
static void memreg_composition_set_gaps(struct memreg_key *key)
{
	key->gaps = true;
	key->once = true;
	key->page_shift = MEMREG_PAGE_SHIFT;
}

/**
 * memreg_composition_iova() - Find the iova of a byte
 * @region: Composition
 * @offset: Offset of the byte
 * @iova: The iova that the byte would have without unaligned boundaries
 *
 * Return: an iova in or right behind the same page, whose offset in the page is
 * that of the byte in its page of memory.
 */
u64 memreg_composition_iova(const struct memreg_region *region, u64 offset,
			    u64 iova)
{
	u32 i = memreg_region_find(region, offset);
	u64 at = sg_dma_address(&region->sgl[i]) + offset - region->offsets[i];
	u64 mask = MEMREG_PAGE_SIZE - 1;

	return iova + ((at - iova) & mask);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_composition_iova);

/* Describe the keys in order; with @keys NULL only count them. */
static u32 memreg_composition_divide(const struct memreg_kmr *mr,
				     struct memreg_key *keys)
{
	u64 offset = 0, iova = mr->iova, length, gaps;
	u32 n = 0;
	u8 shift;

	for (; offset < mr->length; n++) {
		iova = memreg_composition_iova(mr->region, offset, iova);
		length = memreg_composition_run(mr, offset, iova, &shift);
		gaps = memreg_composition_gaps_run(mr, offset);
		gaps = gaps > length ? gaps : 0;
		length = max(length, gaps);
		if (keys)
			keys[n] = (struct memreg_key) {
				.region = mr->region,
				.offset = offset,
				.iova = iova,
				.length = length,
				.access = mr->access,
				.page_shift = shift,
				.once = mr->region->mdev->quirks &
					MEMREG_QUIRK_WEAK_INV ||
					shift > MEMREG_PAGE_SHIFT,
			};
		if (keys && gaps)
			memreg_composition_set_gaps(&keys[n]);
		offset += length;
		iova += length;
		if (!(n % 1024))
			cond_resched();
	}
	return n;
}

/**
 * memreg_composition_nr_keys() - Count the keys that a composition needs
 * @mr: MR on a composition
 *
 * Return: their number, from 1.
 */
u32 memreg_composition_nr_keys(const struct memreg_kmr *mr)
{
	return memreg_composition_divide(mr, NULL);
}

/**
 * memreg_composition_keys() - Describe the keys of a composition
 * @mr: MR on a composition, with room for as many as
 *	memreg_composition_nr_keys()
 */
void memreg_composition_keys(struct memreg_kmr *mr)
{
	memreg_composition_divide(mr, mr->keys);
}

/**
 * memreg_composition_reason() - Why can't one key span a range?
 * @region: Composition
 * @offset: First byte
 * @length: Bytes, of which one key spans only a part
 *
 * Return: IB_MEMREG_REASON_GAPS, or IB_MEMREG_REASON_KEY_PAGES if a key would
 * have too many pages, or pieces.
 */
u32 memreg_composition_reason(const struct memreg_region *region, u64 offset,
			      u64 length)
{
	u32 first = memreg_region_find(region, offset);
	u32 last = memreg_region_find(region, offset + length - 1);

	if (!region->mdev->sg_gaps &&
	    find_next_bit(region->composition->unaligned, last + 1,
			  first + 1) <= last)
		return IB_MEMREG_REASON_GAPS;
	return IB_MEMREG_REASON_KEY_PAGES;
}

/**
 * memreg_composition_grant() - Have one key span a range, if it can
 * @key: Description of the key: region, range, and the iova that it would have
 *	without unaligned boundaries. The iova is adjusted; and @once, @gaps and
 *	@page_shift are set if the key needs gaps
 *
 * Return: false if one key can't span the range.
 */
bool memreg_composition_grant(struct memreg_key *key)
{
	const struct memreg_region *region = key->region;
	u32 first = memreg_region_find(region, key->offset);
	u32 last = memreg_region_find(region, key->offset + key->length - 1);

	key->iova = memreg_composition_iova(region, key->offset, key->iova);
	if (find_next_bit(region->composition->unaligned, last + 1, first + 1) >
	    last)
		return true;
	if (!region->mdev->sg_gaps || last - first >= region->mdev->max_pages ||
	    key->length > MEMREG_GAPS_SPAN)
		return false;
	memreg_composition_set_gaps(key);
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_composition_grant);
