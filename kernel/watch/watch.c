// SPDX-License-Identifier: GPL-2.0-only
/*
 * Watches: evaluate the mmu notifier events of a mapping.
 *
 * A watch is an mmu interval notifier on a range of a user's addresses, with
 * operations to call when the mapping changes. The guard of a region (guard.c)
 * is a watch; a watch itself does not know of regions.
 *
 * Which events count
 *
 * Many events do not affect pinned pages. UNMAP and RELEASE count as changes at
 * once, and so does CLEAR by an ordinary task. Kernel threads and tasks in
 * reclaim cause CLEAR whenever KSM scans or shmem is paged out, which leaves
 * pinned pages in place, but also when nfsd truncates a file or loop punches a
 * hole; PROTECTION_VMA comes from mprotect(2), but also from NUMA scanning.
 * These events are suspect: a worker checks if the range still maps the same
 * pages, and kills the keys if not. All other events leave pinned pages mapped.
 * Each event makes a registration in progress check again (I2).
 *
 * How the worker checks
 *
 * An event comes before its change, so waiting for the end of the change would
 * mean waiting for the thread that makes it. The worker waits for no other
 * thread. Instead it tries to take the locks under which such changes are made,
 * so that none is in progress while it checks: mprotect(2) holds mmap_lock, and
 * a kernel thread that takes pages away from a file holds the inode's lock. All
 * changes of the first kind hold their lock; those of the second are known to
 * do so in shmem, so for any other file the event counts as a change. Reclaim
 * and KSM leave a pinned page mapped or in its file, so a check has the same
 * result before and after them. If a lock is taken, or a page of private memory
 * is in migration, the worker tries again later. It kills the keys if there is
 * no result after MEMREG_LOOK_LIMIT and MEMREG_LOOK_TRIES checks: a worker that
 * had no CPU meanwhile checks before it decides.
 *
 * The worker is that of the address space: see kernel/watch/space.c. Work that
 * kills keys never queues behind it. A stale watch is not checked. Whether it
 * became stale without a real change is found out only when the owner asks by
 * MR_QUERY, in the context of that call.
 */
#include <linux/hugetlb.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>

#include "device.h"
#include "stats.h"
#include "watch/notifier.h"
#include "watch/space.h"
#include "watch/trace.h"
#include "watch/watch.h"

/* How often a registration checks again if events keep coming. */
#define MEMREG_WATCH_LOOKS	8

/* The mapping has changed: mark a watch as stale. */
static void memreg_watch_mark_stale(struct memreg_kwatch *watch)
{
	if (memreg_watch_set_stale(watch) && watch->ops->stale)
		watch->ops->stale(watch);
}

/* Checking the mapping */

/*
 * Does an address map the pinned page? Returns SUSPECT if it maps no page now.
 * FOLL_FORCE, as the mapping may be write-only.
 */
static enum memreg_verdict memreg_page_mapped(struct memreg_kwatch *watch,
					      unsigned long addr,
					      struct page *page)
{
	struct page *now;
	bool same;

	if (get_user_pages_remote(watch->mm, addr, 1,
				  FOLL_NOFAULT | FOLL_FORCE, &now, NULL) != 1)
		return MEMREG_SUSPECT;
	same = now == page;
	put_page(now);
	return same ? MEMREG_SAME : MEMREG_GONE;
}

/*
 * Is a page that is not mapped at present still in its place in the file? It is
 * after shmem was paged out.
 */
static bool memreg_page_in_file(struct vm_area_struct *vma, unsigned long addr,
				struct page *page)
{
	struct address_space *mapping = vma->vm_file->f_mapping;
	pgoff_t index = linear_page_index(vma, addr);
	struct folio *folio;
	bool same;

	if (!(vma->vm_flags & VM_MAYSHARE) || !shmem_mapping(mapping))
		return false;
	folio = filemap_get_folio(mapping, index);
	if (IS_ERR(folio))
		return false;
	same = folio == page_folio(page) &&
	       /* A large folio may extend beyond the end of the file. */
	       index < DIV_ROUND_UP(i_size_read(mapping->host), PAGE_SIZE);
	folio_put(folio);
	return same;
}

/*
 * Truncation and hole punching lock the inode, first unmap the pages and then
 * remove them without a further event. So there is no result while the inode is
 * locked.
 */
static enum memreg_verdict memreg_page_look_file(struct memreg_kwatch *watch,
						 struct vm_area_struct *vma,
						 unsigned long addr,
						 struct page *page)
{
	struct inode *inode = vma->vm_file->f_mapping->host;
	enum memreg_verdict verdict;

	if (!inode_trylock_shared(inode))
		return MEMREG_SUSPECT;
	verdict = memreg_page_mapped(watch, addr, page);
	if (verdict == MEMREG_SUSPECT)
		verdict = memreg_page_in_file(vma, addr, page) ? MEMREG_SAME :
								 MEMREG_GONE;
	inode_unlock_shared(inode);
	return verdict;
}

/**
 * memreg_watch_page() - Does an address still map a page?
 * @watch: The watch
 * @look: The check in progress
 * @addr: The address
 * @page: The page that was mapped there
 *
 * Context: may sleep, with the mmap_lock held.
 * Return: SAME; GONE; SUSPECT if there is no result yet.
 */
enum memreg_verdict memreg_watch_page(struct memreg_kwatch *watch,
				      const struct memreg_look *look,
				      unsigned long addr, struct page *page)
{
	/* Pinning for writing does not need VM_READ. */
	unsigned long need = watch->writable ? VM_WRITE : VM_READ | VM_WRITE;
	enum memreg_verdict verdict;
	struct vm_area_struct *vma;

	vma = vma_lookup(watch->mm, addr);
	/* A poisoned page stays in its file, but is no longer usable. */
	if (!vma || !(vma->vm_flags & need) || PageHWPoison(page))
		return MEMREG_GONE;
	if (look->by_kernel && vma->vm_file)
		return shmem_mapping(vma->vm_file->f_mapping) ?
		       memreg_page_look_file(watch, vma, addr, page) :
		       MEMREG_GONE;
	/*
	 * To look up a page of hugetlbfs, the kernel takes a lock of the
	 * mapping that whoever punches a hole into the file holds. A task that
	 * takes such a page away causes an event first, and reclaim takes none.
	 */
	if (is_vm_hugetlb_page(vma) && !look->whole)
		return MEMREG_SAME;
	verdict = memreg_page_mapped(watch, addr, page);
	if (verdict != MEMREG_SUSPECT)
		return verdict;
	/*
	 * Whoever takes a page of private memory away causes an event that
	 * counts at once, but for the OOM reaper, which is detected before.
	 * Reclaim unmaps a pinned page if it is in the swap cache, where a
	 * fault finds it. Otherwise the page is in migration, which puts it
	 * back.
	 */
	if (PageAnon(page) && !look->whole)
		return folio_test_swapcache(page_folio(page)) ?
		       MEMREG_SAME : MEMREG_SUSPECT;
	if (!vma->vm_file)
		return MEMREG_GONE;
	if (look->whole)
		return memreg_page_look_file(watch, vma, addr, page);
	/*
	 * Any reader of the file can keep its inode locked. A task that takes
	 * the page away causes an event first, which counts as a change at
	 * once.
	 */
	return memreg_page_in_file(vma, addr, page) ? MEMREG_SAME : MEMREG_GONE;
}

/* Continue a check, for some pages. */
static enum memreg_verdict memreg_watch_compare(struct memreg_kwatch *watch,
						struct memreg_look *look,
						unsigned int *pages)
{
	mmap_assert_locked(watch->mm);

	return watch->ops->compare(watch, look, pages);
}

/* Begin a check of a part of the watched range. */
static void memreg_look_init(struct memreg_look *look,
			     const struct memreg_kwatch *watch,
			     unsigned long start, unsigned long end)
{
	memset(look, 0, sizeof(*look));
	look->start = max(watch->start, start & PAGE_MASK);
	look->end = min(watch->end, end);
	look->next = look->start;
}

/* Check the whole range of a watch; changes that had begun have ended. */
static enum memreg_verdict
memreg_watch_compare_all(struct memreg_kwatch *watch)
{
	enum memreg_verdict verdict = MEMREG_SAME;
	struct memreg_look look;
	unsigned int pages;

	memreg_look_init(&look, watch, 0, ULONG_MAX);
	look.whole = true;
	while (verdict == MEMREG_SAME && !memreg_look_is_through(&look)) {
		/* A task that is being killed does not need the result. */
		if (fatal_signal_pending(current))
			return MEMREG_SUSPECT;
		pages = MEMREG_LOOK_PAGES;
		verdict = memreg_watch_compare(watch, &look, &pages);
	}
	return verdict;
}

/* Count and trace the result of a check. */
static void memreg_look_count(struct memreg_kwatch *watch,
			      enum ib_memreg_stat_id outcome)
{
	memreg_count(watch->mdev, outcome, 1);
	trace_memreg_guard_look(watch, outcome);
}

/* Have the worker check a watch soon, if the watch has its pages. */
static void memreg_look_soon(struct memreg_kwatch *watch)
{
	lockdep_assert_held(&watch->mdev->frwr_lock);

	if (watch->confirmed && watch->active)
		memreg_suspect_add(&watch->suspect, MEMREG_LOOK_DELAY);
}

/* Clear the first @suspects suspect events of a watch. */
static void memreg_watch_clear(struct memreg_kwatch *watch,
			       unsigned long suspects)
{
	watch->cleared = suspects;
	watch->tries = 0;
	if (watch->suspects != suspects)
		watch->suspect_since = jiffies;
}

/* Extend the range of a check. */
static void memreg_look_add(struct memreg_look *look, unsigned long start,
			    unsigned long end, bool by_kernel)
{
	if (!look->active)
		*look = (struct memreg_look) { .start = ULONG_MAX };
	look->active = true;
	look->start = min(look->start, start);
	look->end = max(look->end, end);
	look->by_kernel |= by_kernel;
}

/*
 * Begin a check of the ranges that are suspect by now, unless one is in
 * progress.
 */
static void memreg_look_begin(struct memreg_kwatch *watch)
{
	struct memreg_look *look = &watch->look, *due = &watch->due;

	lockdep_assert_held(&watch->mdev->frwr_lock);

	if (look->active)
		return;
	memreg_look_init(look, watch, due->start, due->end);
	look->active = true;
	look->by_kernel = due->by_kernel;
	look->suspects = watch->suspects;
	due->active = false;
}

/* The check has no result: repeat it, until that is futile. */
static void memreg_look_again(struct memreg_kwatch *watch)
{
	const struct memreg_look *look = &watch->look;

	memreg_look_count(watch, IB_MEMREG_STAT_GUARD_LATER);
	memreg_look_add(&watch->due, look->start, look->end, look->by_kernel);
	watch->tries++;
	if (memreg_look_is_futile(watch->suspect_since, watch->tries))
		memreg_watch_mark_stale(watch);
	else
		memreg_look_soon(watch);
}

/* A check has ended, or the end of its turn was reached. */
static void memreg_look_end(struct memreg_kwatch *watch,
			    enum memreg_verdict verdict)
{
	struct memreg_look *look = &watch->look;

	lockdep_assert_held(&watch->mdev->frwr_lock);

	if (watch->stale || !watch->active)
		return;
	if (verdict == MEMREG_SAME && !memreg_look_is_through(look)) {
		memreg_suspect_add(&watch->suspect, 0);
		return;
	}
	look->active = false;
	if (verdict == MEMREG_SUSPECT) {
		memreg_look_again(watch);
	} else if (verdict == MEMREG_GONE) {
		memreg_look_count(watch, IB_MEMREG_STAT_GUARD_GONE);
		memreg_watch_mark_stale(watch);
	} else {
		memreg_look_count(watch, IB_MEMREG_STAT_GUARD_UNCHANGED);
		memreg_watch_clear(watch, look->suspects);
		if (watch->due.active)
			memreg_look_soon(watch);
	}
}

/* Check the next pages of a watch: see memreg_suspect.look. */
static void memreg_watch_look(struct memreg_suspect *suspect,
			      enum memreg_verdict verdict, unsigned int *pages)
{
	struct memreg_kwatch *watch =
		container_of(suspect, struct memreg_kwatch, suspect);
	spinlock_t *lock = &watch->mdev->frwr_lock;
	unsigned int cost = 1;
	bool stale;

	spin_lock(lock);
	memreg_look_begin(watch);
	spin_unlock(lock);
	if (verdict == MEMREG_SAME)
		verdict = memreg_watch_compare(watch, &watch->look, pages);
	spin_lock(lock);
	memreg_look_end(watch, verdict);
	stale = watch->stale;
	if (stale)
		cost += watch->ties;
	spin_unlock(lock);
	if (stale)
		watch->ops->gone(watch);
	*pages -= min(*pages, cost);
}

/*
 * The notifier
 */

/* Have the worker check a range. */
static void memreg_watch_mark_suspect(struct memreg_kwatch *watch,
				      const struct mmu_notifier_range *range)
{
	bool by_kernel = memreg_event_takes_pages(range);

	lockdep_assert_held(&watch->mdev->frwr_lock);

	if (watch->stale)
		return;
	memreg_count(watch->mdev, IB_MEMREG_STAT_GUARD_SUSPECTS, 1);
	if (watch->suspects == watch->cleared)
		watch->suspect_since = jiffies;
	/* MR_QUERY reads @suspects without the lock. */
	WRITE_ONCE(watch->suspects, watch->suspects + 1);
	memreg_look_add(&watch->due, range->start, range->end, by_kernel);
	memreg_look_soon(watch);
}

/*
 * An event counts as a change at once; MR_QUERY may find out later if it was
 * one.
 */
static void memreg_watch_mark_gone(struct memreg_kwatch *watch,
				   const struct mmu_notifier_range *range)
{
	lockdep_assert_held(&watch->mdev->frwr_lock);

	if (range->event != MMU_NOTIFY_CLEAR) {
		watch->doubtful = false;
		WRITE_ONCE(watch->spurious, false);
	} else if (!watch->stale) {
		watch->doubtful = true;
	}
	memreg_watch_mark_stale(watch);
}

/* Handle an event. Returns true if a wait is needed for keys to die. */
static bool memreg_watch_handle_event(struct memreg_kwatch *watch,
				      const struct mmu_notifier_range *range,
				      unsigned long cur_seq)
{
	enum memreg_verdict verdict = memreg_event_classify(range);

	/* If the notifier must not block, it cannot wait for keys to die. */
	if (verdict == MEMREG_GONE && !mmu_notifier_range_blockable(range))
		verdict = MEMREG_SUSPECT;
	memreg_count(watch->mdev, IB_MEMREG_STAT_GUARD_EVENTS, 1);
	trace_memreg_guard_event(watch, range, verdict);

	spin_lock(&watch->mdev->frwr_lock);
	mmu_interval_set_seq(&watch->notifier, cur_seq);
	if (verdict == MEMREG_GONE)
		memreg_watch_mark_gone(watch, range);
	else if (verdict == MEMREG_SUSPECT)
		memreg_watch_mark_suspect(watch, range);
	spin_unlock(&watch->mdev->frwr_lock);
	if (verdict == MEMREG_SUSPECT && watch->ops->suspect)
		watch->ops->suspect(watch);
	return verdict == MEMREG_GONE && watch->ops->gone(watch);
}

#ifdef MEMREG_TWO_PASS_NOTIFIERS
/* Leave the wait to the second pass, unless another event is using it. */
static bool memreg_watch_defer(struct memreg_kwatch *watch,
			       unsigned long deadline,
			       struct mmu_interval_notifier_finish **finish)
{
	bool mine;

	spin_lock(&watch->mdev->frwr_lock);
	mine = !watch->finish_used;
	watch->finish_used = true;
	if (mine)
		watch->deadline = deadline;
	spin_unlock(&watch->mdev->frwr_lock);
	if (mine)
		*finish = &watch->finish;
	return mine;
}

static bool memreg_watch_first(struct mmu_interval_notifier *notifier,
			       const struct mmu_notifier_range *range,
			       unsigned long cur_seq,
			       struct mmu_interval_notifier_finish **finish)
{
	struct memreg_kwatch *watch =
		container_of(notifier, struct memreg_kwatch, notifier);
	unsigned long deadline = jiffies + MEMREG_WATCH_TIMEOUT;

	if (memreg_watch_handle_event(watch, range, cur_seq) &&
	    !memreg_watch_defer(watch, deadline, finish))
		watch->ops->wait(watch, deadline);
	return true;
}

static void memreg_watch_second(struct mmu_interval_notifier_finish *finish)
{
	struct memreg_kwatch *watch =
		container_of(finish, struct memreg_kwatch, finish);

	watch->ops->wait(watch, watch->deadline);
	spin_lock(&watch->mdev->frwr_lock);
	watch->finish_used = false;
	spin_unlock(&watch->mdev->frwr_lock);
}

static const struct mmu_interval_notifier_ops memreg_watch_notifier_ops = {
	.invalidate_start = memreg_watch_first,
	.invalidate_finish = memreg_watch_second,
};
#else
static bool memreg_watch_invalidate(struct mmu_interval_notifier *notifier,
				    const struct mmu_notifier_range *range,
				    unsigned long cur_seq)
{
	struct memreg_kwatch *watch =
		container_of(notifier, struct memreg_kwatch, notifier);
	unsigned long deadline = jiffies + MEMREG_WATCH_TIMEOUT;

	if (memreg_watch_handle_event(watch, range, cur_seq))
		watch->ops->wait(watch, deadline);
	return true;
}

static const struct mmu_interval_notifier_ops memreg_watch_notifier_ops = {
	.invalidate = memreg_watch_invalidate,
};
#endif

/*
 * The life of a watch
 */

/**
 * memreg_watch_insert() - Start watching a mapping
 * @watch: The watch, with @mdev set
 * @ops: Operations of the watch
 * @mm: Address space of the current process; the caller holds it
 * @addr: Address, any byte
 * @length: Bytes, from 1
 * @writable: The mapping must be writable
 *
 * Return: 0, -ENOMEM, -EINTR, or -ERESTARTNOINTR.
 */
int memreg_watch_insert(struct memreg_kwatch *watch,
			const struct memreg_watch_ops *ops,
			struct mm_struct *mm, u64 addr, u64 length,
			bool writable)
{
	int ret;

	watch->ops = ops;
	watch->mm = mm;
	watch->addr = addr;
	watch->length = length;
	watch->start = addr & PAGE_MASK;
	watch->end = PAGE_ALIGN(addr + length);
	watch->writable = writable;
	INIT_LIST_HEAD(&watch->suspect.node);
	watch->suspect.look = memreg_watch_look;
	watch->suspect.space = memreg_space_get(watch->mm);
	if (!watch->suspect.space)
		return -ENOMEM;
	ret = memreg_notifier_insert(&watch->notifier, watch->mm, watch->start,
				     watch->end - watch->start,
				     &memreg_watch_notifier_ops);
	if (!ret)
		watch->active = true;
	else
		memreg_space_put(watch->suspect.space);
	return ret;
}

/**
 * memreg_watch_remove() - Stop watching a mapping
 * @watch: The watch; if it was not inserted, this does nothing
 *
 * Context: may sleep.
 */
void memreg_watch_remove(struct memreg_kwatch *watch)
{
	if (!watch->active)
		return;
	/*
	 * Waits for running callbacks; from here on no event makes the watch
	 * suspect.
	 */
	mmu_interval_notifier_remove(&watch->notifier);
	spin_lock(&watch->mdev->frwr_lock);
	/* The worker does not add an inactive watch again. */
	watch->active = false;
	spin_unlock(&watch->mdev->frwr_lock);
	memreg_suspect_remove(&watch->suspect);
	memreg_space_put(watch->suspect.space);
}

/*
 * The pages are those of the mapping: from here on the worker may check the
 * watch. @suspects suspect events came before the pages were compared.
 */
static int memreg_watch_confirm(struct memreg_kwatch *watch,
				unsigned long suspects)
{
	int ret;

	spin_lock(&watch->mdev->frwr_lock);
	ret = watch->stale ? -ESTALE : 0;
	WRITE_ONCE(watch->confirmed, !ret);
	memreg_watch_clear(watch, suspects);
	if (watch->suspects == suspects)
		watch->due.active = false;
	else if (!ret)
		memreg_look_soon(watch);
	spin_unlock(&watch->mdev->frwr_lock);
	return ret;
}

static unsigned long memreg_watch_suspects(struct memreg_kwatch *watch)
{
	unsigned long suspects;

	spin_lock(&watch->mdev->frwr_lock);
	suspects = watch->suspects;
	spin_unlock(&watch->mdev->frwr_lock);
	return suspects;
}

/*
 * Has no event come since @seq? Returns the number of suspect events before
 * that in @suspects.
 */
static bool memreg_watch_undisturbed(struct memreg_kwatch *watch,
				     unsigned long seq, unsigned long *suspects)
{
	bool ret;

	spin_lock(&watch->mdev->frwr_lock);
	ret = !mmu_interval_read_retry(&watch->notifier, seq);
	*suspects = watch->suspects;
	spin_unlock(&watch->mdev->frwr_lock);
	return ret;
}

/**
 * memreg_watch_end() - Check that the pinned pages are those of the mapping
 * @watch: The watch, whose pages were pinned since memreg_watch_begin()
 * @seq: Value that memreg_watch_begin() returned
 *
 * If only suspect events came meanwhile, the pages are compared with the
 * mapping instead of starting over: with KSM running, a registration might
 * otherwise never end. Once this returns 0, later events are handled by the
 * notifier and the worker.
 *
 * Return: 0; -ESTALE if the caller has to pin the pages again; -EINTR.
 */
int memreg_watch_end(struct memreg_kwatch *watch, unsigned long seq)
{
	enum memreg_verdict verdict = MEMREG_SUSPECT;
	unsigned long suspects = 0;
	unsigned int look;

	if (!watch->active ||
	    memreg_watch_undisturbed(watch, seq, &suspects))
		return memreg_watch_confirm(watch, suspects);
	for (look = 0; look < MEMREG_WATCH_LOOKS; look++) {
		/*
		 * Changes of the suspect events counted by now have ended after
		 * this wait.
		 */
		suspects = memreg_watch_suspects(watch);
		mmu_interval_read_begin(&watch->notifier);
		if (fatal_signal_pending(current) ||
		    mmap_read_lock_killable(watch->mm))
			return -EINTR;
		verdict = memreg_watch_compare_all(watch);
		mmap_read_unlock(watch->mm);
		if (verdict != MEMREG_SUSPECT)
			break;
	}
	return verdict == MEMREG_SAME ? memreg_watch_confirm(watch, suspects) :
					-ESTALE;
}

/**
 * memreg_watch_recheck() - Find out if a watch became stale without a change
 * @watch: The watch, which has its pages
 *
 * Checks only if the caller is the process that owns the memory, as the check
 * may have to wait for changes of the process's own mapping to end.
 *
 * Context: may sleep.
 */
void memreg_watch_recheck(struct memreg_kwatch *watch)
{
	enum memreg_verdict verdict;
	unsigned long seq;

	if (!watch->active || current->mm != watch->mm ||
	    !READ_ONCE(watch->doubtful))
		return;
	seq = mmu_interval_read_begin(&watch->notifier);
	if (mmap_read_lock_killable(watch->mm))
		return;
	verdict = memreg_watch_compare_all(watch);
	mmap_read_unlock(watch->mm);

	spin_lock(&watch->mdev->frwr_lock);
	if (watch->doubtful && verdict != MEMREG_SUSPECT &&
	    !mmu_interval_read_retry(&watch->notifier, seq)) {
		watch->doubtful = false;
		if (verdict == MEMREG_SAME) {
			WRITE_ONCE(watch->spurious, true);
			memreg_look_count(watch,
					  IB_MEMREG_STAT_GUARD_SPURIOUS);
		}
	}
	spin_unlock(&watch->mdev->frwr_lock);
}
