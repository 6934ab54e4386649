// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions: pages and their DMA addresses.
 *
 * The pages are charged before they are pinned, as by ib_umem_get(). Their DMA
 * addresses are kept twice: in a scatterlist of whole pages, which the DMA API
 * needs to unmap them, and in a flat array that is trimmed to the bytes that
 * the user named. Keys are made only from the array, so that no key reaches a
 * byte outside (I6). A range is found in the array in constant time if the
 * pages are of one size, and otherwise in logarithmic time. As an IOMMU can
 * merge entries, there may be another array, of the pages, for the CPU.
 *
 * The source of a region provides its pages. This file has three sources: user
 * memory that the module pins and charges, user memory that the driver pins,
 * and pages that their owner keeps. Other sources are in files of their own.
 *
 * A region is released after all keys to it are dead (I1): FRWRs that mapped it
 * last are drained; then its pages are unmapped for DMA, unpinned and
 * uncharged.
 */
#include <kunit/visibility.h>
#include <linux/bsearch.h>
#include <linux/bvec.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "core.h"
#include "device.h"
#include "mem/domain.h"
#include "mem/region.h"
#include "mem/trace_guard.h"
#include "stats.h"

/* Mappings live long, and no code syncs them for the device or the CPU. */
#ifdef DMA_ATTR_REQUIRE_COHERENT
#define MEMREG_DMA_ATTRS	DMA_ATTR_REQUIRE_COHERENT
#else
#define MEMREG_DMA_ATTRS	0
#endif

/* Do so many pinned pages exceed the caller's limit? */
static bool memreg_pinned_too_much(u64 pinned)
{
	return pinned > rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT &&
	       !capable(CAP_IPC_LOCK);
}

/**
 * memreg_region_over_limit() - Are a region's pages too many to be pinned?
 * @region: Region that has not been charged, in the context of its owner
 *
 * Return: true if RLIMIT_MEMLOCK forbids pinning them.
 */
bool memreg_region_over_limit(const struct memreg_region *region)
{
	return memreg_pinned_too_much(atomic64_read(&region->mm->pinned_vm) +
				      region->npages);
}

static int memreg_user_charge(struct memreg_region *region)
{
	s64 pinned;

	/* Scatterlists count in 32 bits. */
	if (region->npages > UINT_MAX)
		return -ENOMEM;
	region->charged = region->npages - region->nr_foreign;
	pinned = atomic64_add_return(region->charged, &region->mm->pinned_vm);
	if (memreg_pinned_too_much(pinned)) {
		atomic64_sub(region->charged, &region->mm->pinned_vm);
		region->charged = 0;
		return -ENOMEM;
	}
	return 0;
}

/*
 * Unpin the pages with the indices from @from up to @to, which are contiguous
 * with @page, whose index is @at.
 */
static void memreg_user_unpin_range(struct memreg_region *region,
				    struct page *page, unsigned long at,
				    unsigned long from, unsigned long to)
{
	if (from < to)
		unpin_user_page_range_dirty_lock(page + (from - at), to - from,
						 region->dirty);
}

static void memreg_user_unpin(struct memreg_region *region)
{
	unsigned long first = region->foreign_first;
	unsigned long last = first + region->nr_foreign;
	unsigned long at = 0, end;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_sg(&region->sgt.sgt, sg, i) {
		if (region->nr_foreign == region->npages)
			break;
		end = at + (sg->length >> PAGE_SHIFT);
		memreg_user_unpin_range(region, sg_page(sg), at, at,
					min(end, first));
		memreg_user_unpin_range(region, sg_page(sg), at, max(at, last),
					end);
		at = end;
		cond_resched();
	}
	sg_free_append_table(&region->sgt);
}

/**
 * struct memreg_shared - A position in the pages of another region
 * @sg: Entry of its scatterlist, or NULL at the beginning
 * @skip: Pages of the entry before the position
 */
struct memreg_shared {
	struct scatterlist *sg;
	unsigned long skip;
};

/* List the next pages that another region has pinned already. */
static int memreg_user_share(struct memreg_region *region, unsigned long done,
			     unsigned long max, struct memreg_shared *at,
			     struct page **pages)
{
	unsigned long length, n = 0;

	if (!at->sg) {
		at->sg = region->kin->sgt.sgt.sgl;
		at->skip = region->kin_first;
	}
	max = min(max, region->foreign_first + region->nr_foreign - done);
	while (n < max) {
		length = at->sg->length >> PAGE_SHIFT;
		for (; at->skip < length && n < max; at->skip++)
			pages[n++] = sg_page(at->sg) + at->skip;
		if (n == max)
			break;
		at->skip -= length;
		at->sg = sg_next(at->sg);
	}
	return n;
}

static int memreg_user_pin_fast(struct memreg_region *region,
				unsigned long done, unsigned long max,
				struct page **pages)
{
	unsigned int flags = FOLL_LONGTERM;

	if (region->writable)
		flags |= FOLL_WRITE;
	if (region->present)
		flags |= FOLL_NOFAULT;
	if (region->nr_foreign && done < region->foreign_first)
		max = min(max, region->foreign_first - done);
	return pin_user_pages_fast((region->addr & PAGE_MASK) +
				   (done << PAGE_SHIFT), max, flags, pages);
}

/* Pin the next pages and append them to the scatterlist. */
static int memreg_user_pin_some(struct memreg_region *region,
				unsigned long done, struct memreg_shared *at,
				struct page **pages)
{
	bool foreign = done - region->foreign_first < region->nr_foreign;
	unsigned long left = region->npages - done;
	unsigned int max_seg;
	int n, ret;

	n = min_t(unsigned long, left, PAGE_SIZE / sizeof(*pages));
	if (foreign)
		n = memreg_user_share(region, done, n, at, pages);
	else
		n = memreg_user_pin_fast(region, done, n, pages);
	if (n <= 0)
		return n ?: -EFAULT;
	max_seg = ib_dma_max_seg_size(region->mdev->ibdev);
	ret = sg_alloc_append_table_from_pages(&region->sgt, pages, n, 0,
					       (unsigned long)n << PAGE_SHIFT,
					       max_seg, left - n,
					       GFP_KERNEL_ACCOUNT);
	if (!ret)
		return n;
	if (!foreign)
		unpin_user_pages(pages, n);
	return ret;
}

static int memreg_user_pin(struct memreg_region *region)
{
	struct memreg_shared at = {};
	unsigned long done = 0;
	struct page **pages;
	int ret = 0;

	pages = (struct page **)__get_free_page(GFP_KERNEL_ACCOUNT);
	if (!pages)
		return -ENOMEM;
	while (done < region->npages) {
		ret = fatal_signal_pending(current) ? -EINTR :
			memreg_user_pin_some(region, done, &at, pages);
		if (ret < 0)
			break;
		done += ret;
		cond_resched();
	}
	free_page((unsigned long)pages);
	return ret < 0 ? ret : 0;
}

/* Is the device coherent? A long-lived mapping is never synced. */
static bool memreg_region_coherent(struct memreg_region *region)
{
	struct ib_device *ibdev = region->mdev->ibdev;
	struct scatterlist *sg;
	unsigned int i;

	if (ib_uses_virt_dma(ibdev))
		return true;
	for_each_sgtable_dma_sg(&region->sgt.sgt, sg, i)
		if (dma_need_sync(ibdev->dma_device, sg_dma_address(sg)))
			return false;
	return true;
}

/* List the DMA addresses of exactly the bytes that the user named. */
static void memreg_region_fill(struct memreg_region *region)
{
	u64 skip = offset_in_page(region->addr);
	u64 left = region->length, offset = 0;
	struct scatterlist *from, *to = region->sgl;
	unsigned int i;

	for_each_sgtable_dma_sg(&region->sgt.sgt, from, i) {
		u64 length = min_t(u64, sg_dma_len(from) - skip, left);

		to[i] = (struct scatterlist) {};
		sg_set_page(&to[i], sg_page(from), from->length, skip);
		sg_dma_address(&to[i]) = sg_dma_address(from) + skip;
		sg_dma_len(&to[i]) = length;
		region->offsets[i] = offset;
		offset += length;
		left -= length;
		skip = 0;
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

static void memreg_region_unmap(struct memreg_region *region)
{
	ib_dma_unmap_sgtable_attrs(region->mdev->ibdev, &region->sgt.sgt,
				   DMA_BIDIRECTIONAL, MEMREG_DMA_ATTRS);
}

static int memreg_region_map(struct memreg_ucmd *ucmd,
			     struct memreg_region *region)
{
	int ret;

	ret = ib_dma_map_sgtable_attrs(region->mdev->ibdev, &region->sgt.sgt,
				       DMA_BIDIRECTIONAL, MEMREG_DMA_ATTRS);
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

/* Convert an errno of pinning to one of the ABI. */
static int memreg_pin_error(struct memreg_ucmd *ucmd, int err)
{
	switch (err) {
	case -ENOMEM:
	case -EINTR:
		return err;
	case -ERESTARTSYS:
	case -ERESTARTNOHAND:
		return -EINTR;
	case -EAGAIN:
		return -EAGAIN;
	default:
		return memreg_fail(ucmd, -EFAULT, IB_MEMREG_REASON_PIN);
	}
}

/* Pages that are faulted in, and pinned meanwhile, without a wait */
#define MEMREG_FAULT_PAGES	(PAGE_SIZE / sizeof(struct page *))

/*
 * Fault in the pages that need no wait. Returns the same as pin_user_pages().
 */
static long memreg_region_fault_some(unsigned long addr, unsigned long npages,
				     bool write, struct page **pages)
{
	unsigned int flags = FOLL_LONGTERM | FOLL_NOWAIT |
			     (write ? FOLL_WRITE : 0);
	long n;

	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	n = pin_user_pages(addr, min(npages, MEMREG_FAULT_PAGES), flags, pages);
	mmap_read_unlock(current->mm);
	if (n > 0)
		unpin_user_pages(pages, n);
	return n;
}

/*
 * Fault in some pages, of which the first may need a wait, for which no page is
 * pinned. Returns the same as pin_user_pages().
 */
static long memreg_region_fault_wait(unsigned long addr, unsigned long npages,
				     bool write, struct page **pages)
{
	unsigned int flags = FOLL_LONGTERM | (write ? FOLL_WRITE : 0);
	long n;

	n = memreg_region_fault_some(addr, npages, write, pages);
	if (n)
		return n;
	n = pin_user_pages_fast(addr, 1, flags, pages);
	if (n > 0)
		unpin_user_pages(pages, n);
	return n;
}

/**
 * memreg_region_fault() - Fault in pages of the caller's memory, to be pinned
 * later
 * @ucmd: Call that asks for it
 * @addr: The first page
 * @npages: Number of system pages
 * @write: Fault in for writing
 *
 * Context: may sleep for as long as the faults take, or until a fatal signal.
 * Return: 0, and unless the pages are taken away again, a region with
 * memreg_region.present can pin them; -EFAULT, -ENOMEM, -EINTR, -EAGAIN.
 */
int memreg_region_fault(struct memreg_ucmd *ucmd, unsigned long addr,
			unsigned long npages, bool write)
{
	struct page **pages;
	long n = 0;

	pages = (struct page **)__get_free_page(GFP_KERNEL_ACCOUNT);
	if (!pages)
		return -ENOMEM;
	for (; npages; npages -= n, addr += n << PAGE_SHIFT) {
		n = fatal_signal_pending(current) ? -EINTR :
			memreg_region_fault_wait(addr, npages, write, pages);
		if (n <= 0)
			break;
		cond_resched();
	}
	free_page((unsigned long)pages);
	return npages ? memreg_pin_error(ucmd, n ?: -EFAULT) : 0;
}

/**
 * memreg_region_fault_nowait() - Start faulting in pages of the caller's memory
 * @ucmd: Call that asks for it, and whose memreg_ucmd.fault has the pages
 *
 * Afterwards reads of pages from devices are in progress, and pages that need
 * no such read are present.
 *
 * Context: may sleep, but not for a device, nor for a process.
 * Return: 0, -EFAULT, -ENOMEM, -EINTR.
 */
int memreg_region_fault_nowait(struct memreg_ucmd *ucmd)
{
	unsigned long addr = ucmd->fault.addr, left = ucmd->fault.npages;
	struct page **pages;
	long n = 0;

	pages = (struct page **)__get_free_page(GFP_KERNEL_ACCOUNT);
	if (!pages)
		return -ENOMEM;
	/* The removal of the device may wait for the lock. */
	for (; left && !rwsem_is_contended(&ucmd->file->lock);
	     left -= n, addr += n << PAGE_SHIFT) {
		n = fatal_signal_pending(current) ? -EINTR :
			memreg_region_fault_some(addr, left,
						 ucmd->fault.write, pages);
		if (n < 0)
			break;
		/* Skip a page that needs a wait. */
		n = n ?: 1;
		cond_resched();
	}
	free_page((unsigned long)pages);
	return n < 0 ? memreg_pin_error(ucmd, n) : 0;
}

/**
 * memreg_region_present() - Count pages of the caller's memory that are present
 * in a row
 * @addr: The first one
 * @npages: Number of system pages to check
 *
 * Context: may sleep.
 * Return: number of pages before the first one that is not present.
 */
unsigned long memreg_region_present(unsigned long addr, unsigned long npages)
{
	struct page *pages[16];
	unsigned long done = 0;
	int n, max;

	do {
		max = min_t(unsigned long, npages - done, ARRAY_SIZE(pages));
		n = get_user_pages_fast_only(addr + (done << PAGE_SHIFT), max,
					     0, pages);
		if (n <= 0)
			break;
		done += n;
		release_pages(pages, n);
		cond_resched();
	} while (n == max && done < npages);
	return done;
}

/*
 * Are a region's pages known to be those of the mapping? Valid for all events
 * that had ended before the caller's own memreg_guard_begin().
 */
static bool memreg_region_is_watched(struct memreg_region *region)
{
	const struct memreg_kwatch *guard = &region->guard;
	bool ret;

	spin_lock(&region->mdev->frwr_lock);
	ret = guard->active && guard->settled && !guard->stale &&
	      guard->suspects == guard->cleared;
	spin_unlock(&region->mdev->frwr_lock);
	return ret;
}

/*
 * Find the pages that another region has pinned already. That region's guard
 * proves that the user's mapping still has them, and the caller's guard is
 * active by now and sees later changes (I2).
 */
static void memreg_user_find_shared(struct memreg_region *region)
{
	struct memreg_region *kin = region->kin;
	unsigned long base = region->addr >> PAGE_SHIFT;
	unsigned long first, end;

	if (!kin || !memreg_region_is_watched(kin))
		return;
	first = max(base, (unsigned long)kin->addr >> PAGE_SHIFT);
	end = min(base + region->npages,
		  ((unsigned long)kin->addr >> PAGE_SHIFT) + kin->npages);
	if (first >= end)
		return;
	region->foreign_first = first - base;
	region->nr_foreign = end - first;
	region->kin_first = first - (kin->addr >> PAGE_SHIFT);
}

/* Charge and pin the pages that the user has mapped. */
static int memreg_user_populate(struct memreg_ucmd *ucmd,
				struct memreg_region *region)
{
	int ret;

	if (!can_do_mlock())
		return memreg_fail(ucmd, -EPERM, IB_MEMREG_REASON_MEMLOCK);
	memreg_user_find_shared(region);
	ret = memreg_user_charge(region);
	if (ret)
		return memreg_fail(ucmd, ret, IB_MEMREG_REASON_MEMLOCK);
	ret = memreg_user_pin(region);
	return ret ? memreg_pin_error(ucmd, ret) : 0;
}

/* Entries of the list that a look passes for what a page costs. */
#define MEMREG_LOOK_ENTRIES	32

/*
 * Find the page at which a look stopped last. A turn may not be enough to walk
 * to it: then this returns NULL, and the next turn walks on.
 */
static struct page *memreg_user_look_page(struct memreg_region *region,
					  struct memreg_look *look,
					  unsigned int *pages)
{
	unsigned long index = (look->next - region->guard.start) >> PAGE_SHIFT;
	unsigned int entries = 0;

	if (!look->sg) {
		look->sg = region->sgt.sgt.sgl;
		look->sg_page = 0;
	}
	while (index - look->sg_page >= look->sg->length >> PAGE_SHIFT) {
		if (!(++entries % MEMREG_LOOK_ENTRIES) && !--*pages)
			return NULL;
		look->sg_page += look->sg->length >> PAGE_SHIFT;
		look->sg = sg_next(look->sg);
	}
	return sg_page(look->sg) + (index - look->sg_page);
}

static enum memreg_verdict memreg_user_compare(struct memreg_region *region,
					       struct memreg_look *look,
					       unsigned int *pages,
					       memreg_watch_page_fn page)
{
	enum memreg_verdict verdict = MEMREG_SAME;
	struct page *pinned;

	while (verdict == MEMREG_SAME && !memreg_look_is_through(look) &&
	       *pages) {
		pinned = memreg_user_look_page(region, look, pages);
		if (!pinned)
			break;
		verdict = page(&region->guard, look, look->next, pinned);
		if (verdict == MEMREG_SAME)
			look->next += PAGE_SIZE;
		--*pages;
		cond_resched();
	}
	return verdict;
}

static void memreg_user_uncharge(struct memreg_region *region)
{
	atomic64_sub(region->charged, &region->mm->pinned_vm);
	mmdrop(region->mm);
}

static const struct memreg_source memreg_user_source = {
	.populate = memreg_user_populate,
	.release = memreg_user_unpin,
	.uncharge = memreg_user_uncharge,
	.compare = memreg_user_compare,
};

static void memreg_driver_release(struct memreg_region *region)
{
	/* The driver has unpinned the pages along with its MR. */
}

/*
 * User memory that the device's driver pins and charges. Only the driver knows
 * the pages.
 */
static const struct memreg_source memreg_driver_source = {
	.release = memreg_driver_release,
	.uncharge = memreg_user_uncharge,
};

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
	region->mdev = mdev;
	region->guard.mdev = mdev;
	region->source = source;
	region->addr = addr;
	region->length = length;
	region->writable = writable;
	region->dirty = writable;
	region->undead = atomic_read(&mdev->undead);
	INIT_HLIST_HEAD(&region->frwrs);
	INIT_HLIST_HEAD(&region->live);
	INIT_LIST_HEAD(&region->ties);
	return region;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_region_alloc);

/**
 * memreg_region_new() - Make a region of user memory that has no pages yet
 * @ucmd: Call that asks for it, in the context of the memory's owner
 * @addr: Address, any byte
 * @length: Bytes, from 1; the end does not wrap
 * @writable: Pin the pages for writing
 *
 * Return: the region, or NULL if there is no memory.
 */
struct memreg_region *memreg_region_new(struct memreg_ucmd *ucmd, u64 addr,
					u64 length, bool writable)
{
	struct memreg_region *region;

	/* Notifiers and mappings use addresses without pointer tags. */
	region = memreg_region_alloc(ucmd->mdev, &memreg_user_source,
				     untagged_addr(addr), length, writable);
	if (!region)
		return NULL;
	region->mm = current->mm;
	mmgrab(region->mm);
	region->npages = (PAGE_ALIGN(region->addr + length) -
			  (region->addr & PAGE_MASK)) >> PAGE_SHIFT;
	return region;
}

/**
 * memreg_region_by_driver() - Let the driver pin the pages of a region
 * @region: Region of user memory without pages
 */
void memreg_region_by_driver(struct memreg_region *region)
{
	region->source = &memreg_driver_source;
}

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
 * @kin: Region of user memory, which stays until memreg_region_inherit() or the
 *	release of @region
 *
 * The shared pages are found when @region takes its pages. They stay charged to
 * @kin, and @kin unpins them, until memreg_region_inherit().
 */
void memreg_region_share(struct memreg_region *region,
			 struct memreg_region *kin)
{
	if (region->source != kin->source || region->mm != kin->mm ||
	    !kin->mapped || region->writable > kin->writable)
		return;
	region->kin = kin;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_region_inherit);

/**
 * memreg_region_inherit() - Take over the pages that a region shares
 * @region: Region that has its pages; only the caller knows it
 *
 * The other region keeps its other pages. Once no key to it is alive, it can be
 * released, before or after @region.
 *
 * Return: number of system pages that were taken over.
 */
unsigned long memreg_region_inherit(struct memreg_region *region)
{
	unsigned long n = region->nr_foreign;
	struct memreg_region *kin = region->kin;

	region->kin = NULL;
	if (!n)
		return 0;
	kin->foreign_first = region->kin_first;
	kin->nr_foreign = n;
	kin->charged -= n;
	region->charged += n;
	region->nr_foreign = 0;
	region->foreign_first = 0;
	region->dirty |= kin->dirty;
	/* A key that could not be killed may reach the pages taken over. */
	region->undead = kin->undead;
	return n;
}

/**
 * memreg_region_is_haunted() - Could an MR that cannot be destroyed reach a
 * region?
 * @region: The region
 *
 * Return: true if its pages must not be released.
 */
bool memreg_region_is_haunted(const struct memreg_region *region)
{
	return region->undead != atomic_read(&region->mdev->undead);
}

/* Unmap a region, whose keys are dead, and release its pages. */
static void memreg_region_depopulate(struct memreg_region *region)
{
	if (region->mapped && !region->source->maps)
		memreg_region_unmap(region);
	region->source->release(region);
	if (!region->mapped)
		return;
	memreg_count(region->mdev, IB_MEMREG_STAT_PAGES_UNPINNED,
		     memreg_region_own_pages(region));
	trace_memreg_region_unpin(region);
}

/**
 * memreg_region_release() - Free a region, and release its pages
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
	if (!region->mapped || !memreg_region_is_haunted(region))
		memreg_region_depopulate(region);
	else if (region->source->leak)
		region->source->leak(region);
	if (region->source->uncharge)
		region->source->uncharge(region);
	kfree(region);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_region_release);

/* Borrowed pages */

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
 * memreg_region_page_shift() - Find the largest page size that fits a region
 * @region: The region
 * @iova: The iova of its first byte
 * @sizes: Bitmap of page sizes to choose from; includes MEMREG_PAGE_SIZE
 *
 * Return: logarithm of the page size.
 */
u8 memreg_region_page_shift(const struct memreg_region *region, u64 iova,
			    u64 sizes)
{
	u64 mask = 0;
	u32 i;

	for (i = 0; i < region->nents; i++) {
		u64 at = iova + region->offsets[i];

		/*
		 * The iova and the DMA address have the same offset in a page.
		 */
		mask |= sg_dma_address(&region->sgl[i]) ^ at;
		/*
		 * Only the first entry may begin, and only the last may end,
		 * inside a page.
		 */
		if (i)
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
	if (region->source->describe)
		region->source->describe(region, info);
}

/**
 * memreg_region_describe_dmabuf() - Fill in what LIST reports of a dma-buf's
 * region
 * @region: The region
 * @info: LIST entry of an MR on the region
 */
void memreg_region_describe_dmabuf(const struct memreg_region *region,
				   struct ib_memreg_object_mr *info)
{
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
 * memreg_region_write() - Write to a region's pages
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
	u64 skip;
	u32 i;

	if (region->source->write) {
		region->source->write(region, offset, data, length);
		return;
	}
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
EXPORT_SYMBOL_IF_KUNIT(memreg_region_write);
