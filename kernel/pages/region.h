/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Regions: pages and their DMA addresses.
 */
#ifndef _MEMREG_PAGES_REGION_H
#define _MEMREG_PAGES_REGION_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <rdma/ib_verbs.h>

#include "core.h"
#include "device.h"
#include "watch/watch.h"

struct dma_buf;
struct memreg_composition;
struct memreg_kdevice;
struct memreg_extent;
struct memreg_import;
struct memreg_region;
struct memreg_ucmd;

/**
 * struct memreg_source - Operations of a kind of memory that regions are made
 * of
 * @maps: @populate lists DMA addresses in memreg_region.sgl, and no pages
 * @populate: Get the pages and list them in memreg_region.sgt. If it fails,
 *	@release releases the pages it has got so far. NULL: the region has its
 *	pages when it is made.
 * @release: Release the pages, all or the part that @populate got; they are not
 *	mapped for DMA any more. Not called if an MR that cannot be destroyed
 *	may reach them. NULL: nothing is to be done.
 * @leak: Called instead of @release in that case; or NULL. Only an imported
 *	dma-buf needs it, as its exporter may still call back
 * @is_pmem: Used by memreg_region_is_pmem(); NULL: check the pages of
 *	memreg_region.sgt
 */
struct memreg_source {
	bool maps;
	int (*populate)(struct memreg_ucmd *ucmd, struct memreg_region *region);
	void (*release)(struct memreg_region *region);
	void (*leak)(struct memreg_region *region);
	bool (*is_pmem)(const struct memreg_region *region);
};

/**
 * struct memreg_piece - Where the CPU finds a part of a region
 * @offset: First byte in the region's pages
 * @page: First page
 */
struct memreg_piece {
	u64 offset;
	struct page *page;
};

/**
 * struct memreg_region - Pages and their DMA addresses; belongs to no domain
 * @users: One for its owner, and one for each export that has not ended
 * @mdev: Device that they are mapped for
 * @source: Operations of the kind of memory
 * @mm: Address space that is charged for them, or NULL
 * @dmabuf: dma-buf that the pages belong to, or NULL
 * @import: Import of @dmabuf, if another module exports it; or NULL
 * @keyed: The exporter may take the pages away: local work uses keys
 * @opaque: The CPU does not touch the pages: there may be none, or they may go
 * @held: Number of FRWRs that may reach the pages, if the region is @keyed
 * @addr: Address in @mm, or offset in @dmabuf
 * @length: Bytes
 * @npages: Number of system pages that the region pins
 * @charged: Number of system pages that are charged to @mm
 * @donated_first: First of the pages that another region pins, and that are
 *	charged there
 * @nr_donated: Number of pages that another region pins
 * @donor: The other region, as long as this one may not outlive it; or NULL
 * @donor_first: Page of @donor that is the one at @donated_first
 * @lead: Bytes that are mapped ahead of the first page
 * @writable: The pages may be written to
 * @dirty: The pages may have been written to
 * @present: Pin only pages that are present: a page that needs a fault, also
 *	one without a wait, makes pinning fail with -EFAULT
 * @mapped: The region has its pages, and they are mapped for DMA
 * @leaked_mrs: Value of memreg_kdevice.leaked_mrs before the region had pages
 * @leaked: The pages stay for good, as an MR that could not be destroyed may
 *	reach them
 * @sgt: The pages, whole ones
 * @sgl: Their DMA addresses, trimmed to @addr and @length; a flat array
 * @offsets: Offset in the region at which each entry of @sgl begins
 * @nents: Number of entries
 * @pieces: The entries of @sgt, if the IOMMU has merged some, and one with the
 *	end; or NULL
 * @frwrs: FRWRs that map, or mapped last, these pages; frwr_lock
 * @live: FRWRs that map these pages and whose keys work; frwr_lock
 * @killing: Number of FRWRs that are DYING and that guards wait for
 * @draining: Number of threads that need the region to stay: they destroy FRWRs
 *	of it, or are guards of its leaves
 * @ties: Compositions that the region is a leaf of; frwr_lock
 * @ties_dead: The region is stale, and the keys to all compositions of it are
 *	dead
 * @exports: Its LIVE exports; frwr_lock
 * @ending: Number of its exports that are ENDING
 * @ending_until: Jiffies until which guards wait for these; frwr_lock
 * @composition: The parts that it is composed of, or NULL
 * @extent: Extent of an MR on demand whose pages it has, or NULL
 * @guard: Watches the user's mapping
 */
struct memreg_region {
	refcount_t users;
	struct memreg_kdevice *mdev;
	const struct memreg_source *source;
	struct mm_struct *mm;
	struct dma_buf *dmabuf;
	struct memreg_import *import;
	bool keyed;
	bool opaque;
	atomic_t held;
	u64 addr;
	u64 length;
	unsigned long npages;
	unsigned long charged;
	unsigned long donated_first;
	unsigned long nr_donated;
	struct memreg_region *donor;
	unsigned long donor_first;
	u64 lead;
	bool writable;
	bool dirty;
	bool present;
	bool mapped;
	int leaked_mrs;
	bool leaked;
	struct sg_append_table sgt;
	struct scatterlist *sgl;
	u64 *offsets;
	u32 nents;
	struct memreg_piece *pieces;
	struct hlist_head frwrs;
	struct hlist_head live;
	atomic_t killing;
	atomic_t draining;
	struct list_head ties;
	bool ties_dead;
	struct list_head exports;
	atomic_t ending;
	unsigned long ending_until;
	struct memreg_composition *composition;
	struct memreg_extent *extent;
	struct memreg_kwatch guard;
};

/* Keep the pages of a region, beyond memreg_region_release(). */
static inline void memreg_region_get(struct memreg_region *region)
{
	refcount_inc(&region->users);
}

/* Pages of the ABI that a region has pinned. */
static inline u64 memreg_region_pages(const struct memreg_region *region)
{
	return (u64)region->npages << (PAGE_SHIFT - MEMREG_PAGE_SHIFT);
}

/*
 * Pages of the ABI that a region has pinned, without those that another region
 * unpins.
 */
static inline u64 memreg_region_own_pages(const struct memreg_region *region)
{
	return (u64)(region->npages - region->nr_donated) <<
	       (PAGE_SHIFT - MEMREG_PAGE_SHIFT);
}

/* Does an entry of the list begin at or before a byte, and end behind it? */
static inline bool memreg_region_has(const struct memreg_region *region,
				     u32 i, u64 offset)
{
	/*
	 * For an @offset before the entry, the difference wraps and exceeds any
	 * length.
	 */
	return offset - region->offsets[i] < sg_dma_len(&region->sgl[i]);
}

struct memreg_region *memreg_region_alloc(struct memreg_kdevice *mdev,
					  const struct memreg_source *source,
					  u64 addr, u64 length, bool writable);
int memreg_region_list_alloc(struct memreg_region *region, u32 n);
int memreg_region_map(struct memreg_ucmd *ucmd, struct memreg_region *region);
void memreg_region_unmap(struct memreg_region *region);
bool memreg_region_has_leaked_mr(const struct memreg_region *region);
int memreg_region_take(struct memreg_ucmd *ucmd, struct memreg_region *region);
void memreg_region_release(struct memreg_region *region);
void memreg_region_put(struct memreg_region *region);
void memreg_region_share(struct memreg_region *region,
			 struct memreg_region *donor);
unsigned long memreg_region_adopt(struct memreg_region *region);
u32 __memreg_region_find(const struct memreg_region *region, u64 offset);
u8 memreg_region_range_shift(const struct memreg_region *region, u32 first,
			     u64 offset, u64 length, u64 iova, u64 sizes);
bool memreg_region_bounces(struct ib_device *ibdev, dma_addr_t addr);
u8 memreg_region_page_shift(const struct memreg_region *region, u64 offset,
			    u64 length, u64 iova, u64 sizes);
bool memreg_region_is_pmem(const struct memreg_region *region);
void memreg_region_describe(const struct memreg_region *region,
			    struct ib_memreg_object_mr *info);
int __memreg_region_sges(const struct memreg_region *region, u32 first,
			 u64 offset, u64 *length, u32 lkey,
			 struct ib_sge *sges, int max);
void memreg_region_write_own(struct memreg_region *region, u64 offset,
			     const void *data, size_t length);

/* The same as __memreg_region_find(); pages are often of one size. */
static inline u32 memreg_region_find(const struct memreg_region *region,
				     u64 offset)
{
	/* Only the first and the last entry can be smaller than a page. */
	u32 guess = min_t(u64, region->nents - 1,
			  (offset_in_page(region->addr) + offset) >>
			  PAGE_SHIFT);

	return memreg_region_has(region, guess, offset) ? guess :
		__memreg_region_find(region, offset);
}

/*
 * Count the entries that a range of a region touches, of one byte at least.
 * @first is the entry that memreg_region_find() returns for @offset.
 */
static inline u32 memreg_region_fragments(const struct memreg_region *region,
					  u32 first, u64 offset, u64 length)
{
	u64 last = offset + length - 1;

	if (memreg_region_has(region, first, last))
		return 1;
	return memreg_region_find(region, last) - first + 1;
}

/* The same as __memreg_region_sges(); a range is often in one piece. */
static inline int memreg_region_sges(const struct memreg_region *region,
				     u32 first, u64 offset, u64 *length,
				     u32 lkey, struct ib_sge *sges, int max)
{
	if (max < 1 || *length > MEMREG_PIECE_MAX ||
	    !memreg_region_has(region, first, offset + *length - 1))
		return __memreg_region_sges(region, first, offset, length, lkey,
					    sges, max);
	sges->addr = sg_dma_address(&region->sgl[first]) + offset -
		     region->offsets[first];
	sges->length = *length;
	sges->lkey = lkey;
	*length = 0;
	return 1;
}

#endif /* _MEMREG_PAGES_REGION_H */
