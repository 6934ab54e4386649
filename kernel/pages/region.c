// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions: pages and their DMA addresses.
 *
 * The DMA addresses are kept twice: in a scatterlist of whole pages, which the
 * DMA API needs to unmap them, and in a flat array that is trimmed to the bytes
 * that the user named. Keys are made only from the array, so that no key
 * reaches a byte outside (I6). A range is found in the array in constant time
 * if the pages are of one size, and otherwise in logarithmic time. As an IOMMU
 * can merge entries, there may be another array, of the pages, for the CPU.
 *
 * The source of a region provides its pages. Each source is in a file of its
 * own: user memory in user.c, and pages that their owner keeps in borrowed.c.
 *
 * A region is released after all keys to it are dead (I1): FRWRs that mapped it
 * last are drained; then its pages are unmapped for DMA, unpinned and
 * uncharged. The last two wait for exports that have not ended (export.c).
 */
#include <kunit/visibility.h>
#include <linux/bsearch.h>
#include <linux/dma-buf.h>
#include <linux/dma-map-ops.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/iommu-dma.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "core.h"
#include "device.h"
#include "pages/region.h"
#include "pages/trace.h"
#include "stats.h"

/* Mappings live long, and no code syncs them for the device or the CPU. */
#ifdef DMA_ATTR_REQUIRE_COHERENT
#define MEMREG_DMA_ATTRS	DMA_ATTR_REQUIRE_COHERENT
#else
#define MEMREG_DMA_ATTRS	0
#endif

/**
 * memreg_region_bounces() - Would a device reach something else than the memory
 * that was mapped, and need a sync for each access?
 * @ibdev: The device
 * @addr: Address that the memory was mapped at
 *
 * Where addresses are translated, dma_need_sync() is no question about one of
 * them: it is true for all of a device that has had a bounce buffer, and with
 * DMA_API_DEBUG. There only devices at ports that are not trusted are given
 * bounce buffers.
 *
 * Return: true if long-lived mappings cannot be used.
 */
bool memreg_region_bounces(struct ib_device *ibdev, dma_addr_t addr)
{
	struct device *dev = ibdev->dma_device;

	if (ib_uses_virt_dma(ibdev))
		return false;
	if (!dev_is_dma_coherent(dev))
		return true;
	if (get_dma_ops(dev) || use_dma_iommu(dev))
		return dev_is_pci(dev) && to_pci_dev(dev)->untrusted;
	return dma_need_sync(dev, addr);
}

/* Is the device coherent? A long-lived mapping is never synced. */
static bool memreg_region_coherent(struct memreg_region *region)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_dma_sg(&region->sgt.sgt, sg, i)
		if (memreg_region_bounces(region->mdev->ibdev,
					  sg_dma_address(sg)))
			return false;
	return true;
}

/*
 * Bytes to map ahead of the first page. An IOMMU aligns a mapping to its own
 * size: if the memory begins inside a large page, then no large page fits its
 * keys, unless the mapping begins where that page does. The pages ahead are of
 * the same folio, which is pinned, and no key covers them.
 */
static u64 memreg_region_lead(const struct memreg_region *region)
{
	struct scatterlist *sg = region->sgt.sgt.sgl;
	struct ib_device *ibdev = region->mdev->ibdev;
	struct folio *folio = page_folio(sg_page(sg));
	u64 sizes = region->mdev->page_sizes &
		    GENMASK_ULL(folio_shift(folio), PAGE_SHIFT);
	u64 at = (u64)folio_page_idx(folio, sg_page(sg)) << PAGE_SHIFT;
	u64 mask = sizes ? BIT_ULL(fls64(sizes) - 1) - 1 : 0;

	/*
	 * Keys of larger pages are made only of what one key does not span.
	 * Where entries have no length for DMA, there is no IOMMU.
	 */
	if (!IS_ENABLED(CONFIG_NEED_SG_DMA_LENGTH) || ib_uses_virt_dma(ibdev) ||
	    region->npages <= region->mdev->max_pages ||
	    ((region->addr & PAGE_MASK) ^ at) & mask ||
	    sg->length + (at & mask) > ib_dma_max_seg_size(ibdev))
		return 0;
	return at & mask;
}

/* Have the scatterlist begin earlier, or where it began before. */
static void memreg_region_shift(struct memreg_region *region, s64 bytes)
{
	struct scatterlist *sg = region->sgt.sgt.sgl;

	if (bytes)
		sg_set_page(sg, sg_page(sg) - (bytes >> PAGE_SHIFT),
			    sg->length + bytes, 0);
}

/* List the DMA addresses of exactly the bytes that the user named. */
static void memreg_region_fill(struct memreg_region *region)
{
	u64 skip = offset_in_page(region->addr), lead = region->lead;
	u64 left = region->length, offset = 0;
	struct scatterlist *from, *to = region->sgl;
	unsigned int i;

	for_each_sgtable_dma_sg(&region->sgt.sgt, from, i) {
		u64 length = min_t(u64, sg_dma_len(from) - lead - skip, left);

		to[i] = (struct scatterlist) {};
		sg_set_page(&to[i], sg_page(from), from->length, skip);
		sg_dma_address(&to[i]) = sg_dma_address(from) + lead + skip;
		sg_dma_len(&to[i]) = length;
		region->offsets[i] = offset;
		offset += length;
		left -= length;
		skip = 0;
		lead = 0;
	}
	sg_mark_end(&to[i - 1]);
	WARN_ON(left);
}

/**
 * memreg_region_list_alloc() - Allocate the list of DMA addresses
 * @region: Region without one
 * @n: Number of entries; the caller fills in @sgl and @offsets
 *
 * Return: 0 or -ENOMEM; the release of the region frees the list in any case.
 */
int memreg_region_list_alloc(struct memreg_region *region, u32 n)
{
	region->sgl = kvmalloc_array(n, sizeof(*region->sgl),
				     GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	region->offsets = kvmalloc_array(n, sizeof(*region->offsets),
					 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!region->sgl || !region->offsets)
		return -ENOMEM;
	region->nents = n;
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_region_list_alloc);

static int memreg_region_list(struct memreg_region *region)
{
	int ret = memreg_region_list_alloc(region, region->sgt.sgt.nents);

	if (!ret)
		memreg_region_fill(region);
	return ret;
}

/* List the pages of the region for the CPU, if the IOMMU has merged entries. */
static int memreg_region_list_pieces(struct memreg_region *region)
{
	const struct sg_table *table = &region->sgt.sgt;
	struct memreg_piece *piece;
	struct scatterlist *sg;
	u64 offset = 0;
	unsigned int i;

	if (table->nents == table->orig_nents || !region->writable)
		return 0;
	piece = kvmalloc_array((size_t)table->orig_nents + 1, sizeof(*piece),
			       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!piece)
		return -ENOMEM;
	region->pieces = piece;
	for_each_sgtable_sg(table, sg, i) {
		*piece++ = (struct memreg_piece) { offset, sg_page(sg) };
		offset += sg->length;
	}
	*piece = (struct memreg_piece) { offset };
	return 0;
}

static void memreg_region_unlist(struct memreg_region *region)
{
	kvfree(region->pieces);
	kvfree(region->offsets);
	kvfree(region->sgl);
	region->offsets = NULL;
	region->sgl = NULL;
}

void memreg_region_unmap(struct memreg_region *region)
{
	memreg_region_shift(region, region->lead);
	ib_dma_unmap_sgtable_attrs(region->mdev->ibdev, &region->sgt.sgt,
				   DMA_BIDIRECTIONAL, MEMREG_DMA_ATTRS);
	memreg_region_shift(region, -(s64)region->lead);
}

int memreg_region_map(struct memreg_ucmd *ucmd, struct memreg_region *region)
{
	int ret;

	region->lead = memreg_region_lead(region);
	memreg_region_shift(region, region->lead);
	ret = ib_dma_map_sgtable_attrs(region->mdev->ibdev, &region->sgt.sgt,
				       DMA_BIDIRECTIONAL, MEMREG_DMA_ATTRS);
	memreg_region_shift(region, -(s64)region->lead);
	/*
	 * With DMA_ATTR_REQUIRE_COHERENT, the mapping fails if it is not
	 * coherent.
	 */
	if (ret)
		return ret == -ENOMEM ? ret :
			memreg_fail(ucmd, -EOPNOTSUPP,
				    IB_MEMREG_REASON_NOT_COHERENT);
	if (memreg_region_coherent(region))
		ret = memreg_region_list(region);
	else
		ret = memreg_fail(ucmd, -EOPNOTSUPP,
				  IB_MEMREG_REASON_NOT_COHERENT);
	if (ret)
		memreg_region_unmap(region);
	return ret;
}

/**
 * memreg_region_alloc() - Make a region that has no pages yet
 * @mdev: Device that the pages will be mapped for
 * @source: Source of the pages
 * @addr: Address, any byte
 * @length: Bytes, from 1; the end does not wrap
 * @writable: The pages will be written to
 *
 * Return: the region, or NULL if there is no memory.
 */
struct memreg_region *memreg_region_alloc(struct memreg_kdevice *mdev,
					  const struct memreg_source *source,
					  u64 addr, u64 length, bool writable)
{
	struct memreg_region *region;

	region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);
	if (!region)
		return NULL;
	refcount_set(&region->users, 1);
	region->mdev = mdev;
	region->guard.mdev = mdev;
	region->source = source;
	region->addr = addr;
	region->length = length;
	region->writable = writable;
	region->dirty = writable;
	region->leaked_mrs = atomic_read(&mdev->leaked_mrs);
	INIT_HLIST_HEAD(&region->frwrs);
	INIT_HLIST_HEAD(&region->live);
	INIT_LIST_HEAD(&region->ties);
	INIT_LIST_HEAD(&region->exports);
	return region;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_region_alloc);

/**
 * memreg_region_take() - Pin and map a region's pages
 * @ucmd: Call that asks for it, in the context of the memory's owner
 * @region: Region without pages, which after a failure can only be released
 *
 * Return: 0; -EPERM, -ENOMEM, -EFAULT, -EINTR, -EAGAIN, -EOPNOTSUPP.
 */
int memreg_region_take(struct memreg_ucmd *ucmd, struct memreg_region *region)
{
	int ret;

	ret = region->source->populate(ucmd, region);
	if (!ret && !region->source->maps)
		ret = memreg_region_map(ucmd, region);
	if (ret)
		return ret;
	region->mapped = true;
	memreg_count(region->mdev, IB_MEMREG_STAT_PAGES_PINNED,
		     memreg_region_own_pages(region));
	trace_memreg_region_pin(region);
	return memreg_region_list_pieces(region);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_region_take);

/**
 * memreg_region_share() - Make a region reuse pages that another one has pinned
 * @region: Region of the caller's memory that has no pages yet
 * @donor: Region of user memory, which stays until memreg_region_adopt() or the
 *	release of @region
 *
 * The shared pages are found when @region takes its pages. They stay charged to
 * @donor, and @donor unpins them, until memreg_region_adopt().
 */
void memreg_region_share(struct memreg_region *region,
			 struct memreg_region *donor)
{
	if (region->source != donor->source || region->mm != donor->mm ||
	    !donor->mapped || region->writable > donor->writable)
		return;
	region->donor = donor;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_region_adopt);

/**
 * memreg_region_adopt() - Take over the pages that a region shares
 * @region: Region that has its pages; only the caller knows it
 *
 * The other region keeps its other pages. Once no key to it is alive, it can be
 * released, before or after @region.
 *
 * Return: number of system pages that were taken over.
 */
unsigned long memreg_region_adopt(struct memreg_region *region)
{
	unsigned long n = region->nr_donated;
	struct memreg_region *donor = region->donor;

	region->donor = NULL;
	if (!n)
		return 0;
	donor->donated_first = region->donor_first;
	donor->nr_donated = n;
	donor->charged -= n;
	region->charged += n;
	region->nr_donated = 0;
	region->donated_first = 0;
	region->dirty |= donor->dirty;
	/* A key that could not be killed may reach the pages taken over. */
	region->leaked_mrs = donor->leaked_mrs;
	return n;
}

/**
 * memreg_region_has_leaked_mr() - Could an MR that cannot be destroyed reach a
 * region?
 * @region: The region
 *
 * Return: true if its pages must not be released.
 */
bool memreg_region_has_leaked_mr(const struct memreg_region *region)
{
	return region->leaked_mrs != atomic_read(&region->mdev->leaked_mrs);
}

/* Release the pages of a region, which is not mapped for DMA any more. */
static void memreg_region_depopulate(struct memreg_region *region)
{
	if (region->source->release)
		region->source->release(region);
	if (!region->mapped)
		return;
	memreg_count(region->mdev, IB_MEMREG_STAT_PAGES_UNPINNED,
		     memreg_region_own_pages(region));
	trace_memreg_region_unpin(region);
}

/**
 * memreg_region_put() - Give up a region that was kept, or that is released
 * @region: The region; without other users its pages are released, and it is
 *	freed
 *
 * Context: may sleep, and take the dma_resv of its own dma-buf. Never fails.
 */
void memreg_region_put(struct memreg_region *region)
{
	if (!refcount_dec_and_test(&region->users))
		return;
	if (!region->leaked)
		memreg_region_depopulate(region);
	else if (region->source->leak)
		region->source->leak(region);
	if (region->mm) {
		atomic64_sub(region->charged, &region->mm->pinned_vm);
		mmdrop(region->mm);
	}
	kfree(region);
}

/**
 * memreg_region_release() - End the use of a region for keys, and give it up
 * @region: Region that no guard watches and no FRWR maps, with all its pages, a
 *	part of them or none
 *
 * The pages stay pinned and mapped for good if the driver could not destroy an
 * MR meanwhile: see memreg_frwr_destroy_mr().
 *
 * Context: may sleep. Never fails.
 */
void memreg_region_release(struct memreg_region *region)
{
	WARN_ON(!hlist_empty(&region->frwrs));
	memreg_region_unlist(region);
	region->leaked = region->mapped && memreg_region_has_leaked_mr(region);
	if (region->mapped && !region->leaked && !region->source->maps)
		memreg_region_unmap(region);
	memreg_region_put(region);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_region_release);

/*
 * Ranges
 */

/**
 * __memreg_region_find() - Find a byte in the list of DMA addresses
 * @region: The region
 * @offset: Offset of the byte, less than the region's length
 *
 * Return: index of the entry; those behind it follow in memory.
 */
u32 __memreg_region_find(const struct memreg_region *region, u64 offset)
{
	u32 low = 0, high = region->nents, mid;

	while (high - low > 1) {
		mid = low + (high - low) / 2;
		if (region->offsets[mid] <= offset)
			low = mid;
		else
			high = mid;
	}
	return low;
}
EXPORT_SYMBOL_IF_KUNIT(__memreg_region_find);

/**
 * memreg_region_range_shift() - Choose the page size to map a range with
 * @region: The region
 * @first: Entry that memreg_region_find() returns for @offset
 * @offset: Offset of the range in the region
 * @length: Length of the range in bytes
 * @iova: The iova of its first byte
 * @sizes: Bitmap of page sizes to choose from; includes MEMREG_PAGE_SIZE
 *
 * For a contiguous range, this is the smallest size of which two pages cover
 * the range at any offset, if the memory is aligned for it; for any other
 * range, it is the smallest size of all.
 *
 * Return: logarithm of the page size.
 */
u8 memreg_region_range_shift(const struct memreg_region *region, u32 first,
			     u64 offset, u64 length, u64 iova, u64 sizes)
{
	const struct scatterlist *sg = &region->sgl[first];
	u64 skip = offset - region->offsets[first];
	u64 differ = (sg_dma_address(sg) + skip) ^ iova;
	u8 shift;

	if (length <= MEMREG_PAGE_SIZE || length > sg_dma_len(sg) - skip)
		return MEMREG_PAGE_SHIFT;
	sizes &= GENMASK_ULL(MEMREG_PAGE_SHIFT_MAX, 0) &
		 ~(BIT_ULL(fls64(length - 1)) - 1);
	if (!sizes)
		return MEMREG_PAGE_SHIFT;
	/* The iova and the DMA address must have the same offset in a page. */
	shift = __ffs64(sizes);
	return differ & (BIT_ULL(shift) - 1) ? MEMREG_PAGE_SHIFT : shift;
}

/**
 * memreg_region_page_shift() - Find the largest page size to map a range with
 * @region: Region with its pages
 * @offset: First byte of the range
 * @length: Bytes, from 1
 * @iova: I/O address of the first byte
 * @sizes: Bitmap of page sizes to choose from; includes MEMREG_PAGE_SIZE
 *
 * Return: logarithm of the page size.
 */
u8 memreg_region_page_shift(const struct memreg_region *region, u64 offset,
			    u64 length, u64 iova, u64 sizes)
{
	u32 first = memreg_region_find(region, offset);
	u32 i, last = memreg_region_find(region, offset + length - 1);
	u64 mask = 0;

	for (i = first; i <= last; i++) {
		u64 at = iova + region->offsets[i] - offset;

		/*
		 * The iova and the DMA address have the same offset in a page.
		 */
		mask |= sg_dma_address(&region->sgl[i]) ^ at;
		/*
		 * Only the first entry may begin, and only the last may end,
		 * inside a page.
		 */
		if (i > first)
			mask |= at;
	}
	if (mask)
		sizes &= GENMASK_ULL(__ffs64(mask), 0);
	return sizes ? fls64(sizes) - 1 : MEMREG_PAGE_SHIFT;
}

/**
 * memreg_region_is_pmem() - Is all of a region persistent memory?
 * @region: The region
 *
 * Return: true if data that was flushed to the region survives a loss of power.
 */
bool memreg_region_is_pmem(const struct memreg_region *region)
{
	struct scatterlist *sg;
	unsigned int i;

	if (region->source->is_pmem)
		return region->source->is_pmem(region);
	for_each_sgtable_sg(&region->sgt.sgt, sg, i)
		if (region_intersects(sg_phys(sg), sg->length, IORESOURCE_MEM,
				      IORES_DESC_PERSISTENT_MEMORY) !=
		    REGION_INTERSECTS)
			return false;
	return true;
}

/**
 * memreg_region_describe() - Fill in what LIST reports of a region
 * @region: The region
 * @info: LIST entry of an MR on the region
 */
void memreg_region_describe(const struct memreg_region *region,
			    struct ib_memreg_object_mr *info)
{
	if (region->dmabuf)
		info->dmabuf = file_inode(region->dmabuf->file)->i_ino;
}

/**
 * __memreg_region_sges() - List a range for a work request
 * @region: The region
 * @first: Entry that memreg_region_find() returns for @offset
 * @offset: First byte
 * @length: In: bytes, from 1; the range is inside the region. Out: bytes that
 *	did not fit in the list
 * @lkey: Key for DMA addresses
 * @sges: The list
 * @max: Entries that the list has room for
 *
 * Return: number of entries.
 */
int __memreg_region_sges(const struct memreg_region *region, u32 first,
			 u64 offset, u64 *length, u32 lkey,
			 struct ib_sge *sges, int max)
{
	u64 skip = offset - region->offsets[first];
	u32 i = first;
	int n;

	for (n = 0; n < max && *length; n++) {
		u64 part = min3(sg_dma_len(&region->sgl[i]) - skip, *length,
				(u64)MEMREG_PIECE_MAX);

		sges[n].addr = sg_dma_address(&region->sgl[i]) + skip;
		sges[n].length = part;
		sges[n].lkey = lkey;
		*length -= part;
		skip += part;
		if (skip == sg_dma_len(&region->sgl[i])) {
			skip = 0;
			i++;
		}
	}
	return n;
}

/* Write to the pages from a page on, beginning at a byte of them. */
static void memreg_pages_write(struct page *page, u64 at, const void *data,
			       size_t length)
{
	while (length) {
		size_t n = min_t(size_t, length,
				 PAGE_SIZE - offset_in_page(at));

		memcpy_to_page(page + (at >> PAGE_SHIFT), offset_in_page(at),
			       data, n);
		at += n;
		data += n;
		length -= n;
	}
}

/* Where is a byte: before a piece, in it, or behind it? */
static int memreg_piece_compare(const void *key, const void *elt)
{
	const struct memreg_piece *piece = elt;
	u64 at = *(const u64 *)key;

	return at < piece->offset ? -1 : at >= piece[1].offset;
}

static void memreg_region_write_pieces(struct memreg_region *region, u64 offset,
				       const void *data, size_t length)
{
	u64 at = offset_in_page(region->addr) + offset;
	const struct memreg_piece *piece;

	piece = bsearch(&at, region->pieces, region->sgt.sgt.orig_nents,
			sizeof(*piece), memreg_piece_compare);
	for (; length; piece++) {
		size_t n = min_t(u64, piece[1].offset - at, length);

		memreg_pages_write(piece->page, at - piece->offset, data, n);
		at += n;
		data += n;
		length -= n;
	}
}

/**
 * memreg_region_write_own() - Write to a region's own pages
 * @region: Region that is writable, contains the range, and is no composition
 * @offset: First byte
 * @data: The bytes to write
 * @length: Bytes
 *
 * Context: any. The time does not depend on the size of the region, but for a
 * search.
 */
void memreg_region_write_own(struct memreg_region *region, u64 offset,
			     const void *data, size_t length)
{
	u64 skip;
	u32 i;

	if (region->pieces) {
		memreg_region_write_pieces(region, offset, data, length);
		return;
	}
	i = memreg_region_find(region, offset);
	skip = offset - region->offsets[i];
	for (; length; i++) {
		struct scatterlist *sg = &region->sgl[i];
		size_t n = min_t(u64, sg_dma_len(sg) - skip, length);

		memreg_pages_write(sg_page(sg), sg->offset + skip, data, n);
		data += n;
		length -= n;
		skip = 0;
	}
}
