// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions of user memory.
 *
 * The pages are charged before they are pinned, as by ib_umem_get(). Pinning
 * takes no fault that may wait: the call faults such pages in, with
 * memreg_file.lock dropped, and starts over.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>

#include "core.h"
#include "device.h"
#include "pages/charge.h"
#include "pages/region.h"
#include "pages/unpinnable.h"
#include "pages/user.h"

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
	unsigned long first = region->donated_first;
	unsigned long last = first + region->nr_donated;
	unsigned long at = 0, end;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_sg(&region->sgt.sgt, sg, i) {
		if (region->nr_donated == region->npages)
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
		at->sg = region->donor->sgt.sgt.sgl;
		at->skip = region->donor_first;
	}
	max = min(max, region->donated_first + region->nr_donated - done);
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

/*
 * Can a fault in a mapping wait in spite of FOLL_NOWAIT? A file system may read
 * the page, or wait for a server to send it.
 */
static bool memreg_fault_may_wait(const struct vm_area_struct *vma)
{
	return vma->vm_file && !shmem_mapping(vma->vm_file->f_mapping);
}

/*
 * Pin pages of one mapping, and fault in those that need no wait. Returns 0 if
 * the first page needs a wait, otherwise the same as pin_user_pages().
 */
static long memreg_pin_nowait(unsigned long addr, unsigned long npages,
			      bool write, struct page **pages)
{
	unsigned int flags = FOLL_LONGTERM | (write ? FOLL_WRITE : 0);
	struct vm_area_struct *vma;
	bool present = false;
	long n;

	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	vma = vma_lookup(current->mm, addr);
	if (vma) {
		npages = min(npages, (vma->vm_end - (addr & PAGE_MASK)) >>
				     PAGE_SHIFT);
		present = memreg_fault_may_wait(vma);
	}
	flags |= present ? FOLL_NOFAULT : FOLL_NOWAIT;
	n = pin_user_pages(addr, npages, flags, pages);
	mmap_read_unlock(current->mm);
	return present && n == -EFAULT ? 0 : n;
}

/*
 * Pin the next pages without a wait for a fault, as memreg_file.lock is held.
 * Returns -EBUSY if the first page needs such a wait.
 */
static long memreg_user_pin_fast(struct memreg_region *region,
				 unsigned long done, unsigned long max,
				 struct page **pages)
{
	unsigned long addr = (region->addr & PAGE_MASK) + (done << PAGE_SHIFT);
	unsigned int flags = FOLL_LONGTERM | FOLL_NOFAULT;
	long n;

	if (region->writable)
		flags |= FOLL_WRITE;
	if (region->nr_donated && done < region->donated_first)
		max = min(max, region->donated_first - done);
	n = pin_user_pages_fast(addr, max, flags, pages);
	if (n > 0)
		return n;
	if (region->present)
		return n ?: -EFAULT;
	return memreg_pin_nowait(addr, max, region->writable, pages) ?: -EBUSY;
}

/* Pin the next pages and append them to the scatterlist. */
static int memreg_user_pin_some(struct memreg_region *region,
				unsigned long done, struct memreg_shared *at,
				struct page **pages)
{
	bool donated = done - region->donated_first < region->nr_donated;
	unsigned long left = region->npages - done;
	unsigned int max_seg;
	int n, ret;

	n = min_t(unsigned long, left, PAGE_SIZE / sizeof(*pages));
	if (donated)
		n = memreg_user_share(region, done, n, at, pages);
	else
		n = memreg_user_pin_fast(region, done, n, pages);
	if (n < 0)
		return n;
	max_seg = ib_dma_max_seg_size(region->mdev->ibdev);
	ret = sg_alloc_append_table_from_pages(&region->sgt, pages, n, 0,
					       (unsigned long)n << PAGE_SHIFT,
					       max_seg, left - n,
					       GFP_KERNEL_ACCOUNT);
	if (!ret)
		return n;
	if (!donated)
		unpin_user_pages(pages, n);
	return ret;
}

/* Have the call fault in the pages from the one with this index on. */
static int memreg_user_need_fault(struct memreg_ucmd *ucmd,
				  struct memreg_region *region,
				  unsigned long done)
{
	ucmd->fault = (struct memreg_fault) {
		.needed = true,
		.write = region->writable,
		.addr = (region->addr & PAGE_MASK) + (done << PAGE_SHIFT),
		.npages = region->npages - done,
	};
	return memreg_fail(ucmd, -EAGAIN, IB_MEMREG_REASON_UNSTEADY);
}

/*
 * Pin all pages; @done counts those that are pinned. Returns -EBUSY if the next
 * one needs a wait.
 */
static int memreg_user_pin(struct memreg_region *region, unsigned long *done)
{
	struct memreg_shared at = {};
	struct page **pages;
	int ret = 0;

	pages = (struct page **)__get_free_page(GFP_KERNEL_ACCOUNT);
	if (!pages)
		return -ENOMEM;
	while (*done < region->npages) {
		ret = fatal_signal_pending(current) ? -EINTR :
			memreg_user_pin_some(region, *done, &at, pages);
		if (ret < 0)
			break;
		*done += ret;
		cond_resched();
	}
	free_page((unsigned long)pages);
	return ret < 0 ? ret : 0;
}

/* Convert an errno of pinning the page at @addr to one of the ABI. */
static int memreg_pin_error(struct memreg_ucmd *ucmd, int err,
			    unsigned long addr, bool write)
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
		return memreg_fail(ucmd, -EFAULT,
				   memreg_unpinnable_reason(addr, write));
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
	long n = memreg_pin_nowait(addr, min(npages, MEMREG_FAULT_PAGES), write,
				   pages);

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
	return npages ? memreg_pin_error(ucmd, n ?: -EFAULT, addr, write) : 0;
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
	return n < 0 ? memreg_pin_error(ucmd, n, addr, ucmd->fault.write) : 0;
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
	ret = guard->active && guard->confirmed && !guard->stale &&
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
	struct memreg_region *donor = region->donor;
	unsigned long base = region->addr >> PAGE_SHIFT;
	unsigned long first, end;

	if (!donor || !memreg_region_is_watched(donor))
		return;
	first = max(base, (unsigned long)donor->addr >> PAGE_SHIFT);
	end = min(base + region->npages,
		  ((unsigned long)donor->addr >> PAGE_SHIFT) + donor->npages);
	if (first >= end)
		return;
	region->donated_first = first - base;
	region->nr_donated = end - first;
	region->donor_first = first - (donor->addr >> PAGE_SHIFT);
}

/* Charge and pin the pages that the user has mapped. */
static int memreg_user_populate(struct memreg_ucmd *ucmd,
				struct memreg_region *region)
{
	unsigned long done = 0;
	int ret;

	if (!can_do_mlock())
		return memreg_fail(ucmd, -EPERM, IB_MEMREG_REASON_MEMLOCK);
	memreg_user_find_shared(region);
	/* Scatterlists count in 32 bits. */
	if (region->npages > UINT_MAX)
		return memreg_fail(ucmd, -ENOMEM, IB_MEMREG_REASON_TOO_LONG);
	ret = memreg_user_charge(region);
	if (ret)
		return memreg_fail(ucmd, ret, IB_MEMREG_REASON_MEMLOCK);
	ret = memreg_user_pin(region, &done);
	/* The caller faults in a page that is not present. */
	if (!ret || (ret == -EFAULT && region->present))
		return ret;
	/* What can't be pinned is found again there, with the reason. */
	if (ret == -EBUSY || ret == -EFAULT)
		return memreg_user_need_fault(ucmd, region, done);
	return memreg_pin_error(ucmd, ret, (region->addr & PAGE_MASK) +
				(done << PAGE_SHIFT), region->writable);
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

/**
 * memreg_region_compare() - Continue to compare a region with the mapping
 * @region: Region of user memory, which has its pages
 * @look: The check, and where it stands
 * @pages: Pages to check at most; reduced by the number of those checked
 * @page: Checks a page
 *
 * Context: may sleep, with the mmap_lock held.
 * Return: MEMREG_SAME, or the first other result of @page.
 */
enum memreg_verdict memreg_region_compare(struct memreg_region *region,
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

static const struct memreg_source memreg_user_source = {
	.populate = memreg_user_populate,
	.release = memreg_user_unpin,
};

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
