// SPDX-License-Identifier: GPL-2.0-only
/*
 * Guards: when the user's mapping goes, the keys to its pages die.
 *
 * Long-term pins keep pages from being reused, but not from being unmapped: a
 * key that outlives the mapping leads to pages that the user sees no more. A
 * guard is an mmu interval notifier on the range of an MR. Before an unmap
 * returns, it kills the MR's keys and those of the windows bound to it, and
 * marks the MR STALE. Pages are never released there, but when the MR goes.
 *
 * Which events count
 *
 * Notifiers announce more than happens to pinned pages. UNMAP and RELEASE are
 * believed. So is CLEAR if an ordinary task is behind it. Kernel threads and
 * tasks in reclaim announce CLEAR whenever KSM scans or shmem is paged out,
 * which leaves pinned pages in place, but also when nfsd truncates or loop
 * punches a hole; PROTECTION_VMA comes from mprotect(2), but also from NUMA
 * scanning. These are suspect: a worker looks whether the range still maps
 * the same pages, and kills the keys if it doesn't. All other events leave
 * pinned pages where they are. Each event makes a registration that is under
 * way look again (I2).
 *
 * How a worker looks
 *
 * An event comes before the change, and to wait until that is through is to
 * wait for whoever makes it. The worker waits for nobody. It tries the locks
 * with which such changes are made, so that none is under way while it looks:
 * mprotect(2) has the mmap_lock, and a kernel thread that takes pages away from
 * a file has that of the inode. The first is known of all, the second of shmem
 * and hugetlbfs; of other files such an event is believed. Reclaim, KSM and
 * their kind leave a pinned page in its place or in its file, so that it is the
 * same before and after. If a lock is not to be had, the worker comes back, and
 * after MEMREG_LOOK_LIMIT without an answer it kills the keys.
 *
 * There is one work item for each address space. It goes through the suspect
 * regions some pages at a time, so that address spaces take turns at the few
 * threads that there are, and nothing that kills keys is behind it. What is
 * stale is not looked at. Whether that was for nothing is found out when the
 * owner asks for it, in the owner's time.
 *
 * What a notifier waits for
 *
 * For the device, and for nobody else. A guard has all keys to its region
 * killed at once (kernel/mem/kill.c), and those that an owner is revoking
 * already die without the owner's doing. On kernels with two-pass notifiers
 * all guards of an unmap do so in the first pass, and wait in the second;
 * elsewhere one waits after the other.
 *
 * It waits for MEMREG_KILL_TIMEOUT at most, counted from when the event came,
 * so that it is one deadline for all guards of an unmap. If it is the process's
 * own mapping that the process itself takes away, or its end, it waits for
 * longer as long as keys die. Somebody else who truncates a file does not, and
 * if that was in vain, waits for no other guard for a while.
 *
 * An MR can be a leaf of compositions: their keys lead to its pages as well,
 * and whatever is said here of its keys goes for theirs. See tie.c.
 *
 * What is not dead then dies a little later: a queue that is stuck is rebuilt,
 * and a worker destroys the MRs. Nor does a guard wait for a queue that is
 * being rebuilt. Until the worker is done the peer may reach the old pages,
 * which stay pinned, and nobody else's.
 */
#include <linux/hash.h>
#include <linux/hugetlb.h>
#include <linux/mmu_notifier.h>
#include <linux/oom.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "device.h"
#include "mem/guard.h"
#include "mem/kill.h"
#include "mem/region.h"
#include "mem/tie.h"
#include "mem/trace_guard.h"
#include "stats.h"

/* When a worker looks after a suspect event, and until when it must know. */
#define MEMREG_LOOK_DELAY	msecs_to_jiffies(10)
#define MEMREG_LOOK_LIMIT	(HZ * 9 / 10)

/* Pages that it looks at before it lets others have its thread. */
#define MEMREG_LOOK_PAGES	1024

/* Threads that look. */
#define MEMREG_LOOK_THREADS	2

/* How often a registration looks again if events keep coming. */
#define MEMREG_GUARD_LOOKS	8

static struct workqueue_struct *memreg_look_wq;

int __init memreg_guard_init(void)
{
	memreg_look_wq = alloc_workqueue("memreg_look",
					 WQ_UNBOUND | WQ_MEM_RECLAIM,
					 MEMREG_LOOK_THREADS);
	return memreg_look_wq ? 0 : -ENOMEM;
}

void memreg_guard_exit(void)
{
	destroy_workqueue(memreg_look_wq);
}

/* From here on no key to the region is made. */
static void memreg_guard_mark_stale(struct memreg_region *region)
{
	struct memreg_guard *guard = &region->guard;

	lockdep_assert_held(&region->mdev->frwr_lock);

	if (guard->stale)
		return;
	WRITE_ONCE(guard->stale, true);
	WRITE_ONCE(guard->generation, guard->generation + 1);
	/* Before that there is no MR: registering begins anew. */
	if (guard->settled)
		memreg_count(region->mdev, IB_MEMREG_STAT_GUARD_REVOCATIONS,
			     1);
	trace_memreg_region_stale(region);
}

/*
 * Have all keys to a region killed that is stale, and those of all compositions
 * that the region is in. Returns whether some of them are yet to die.
 */
static bool memreg_guard_kill(struct memreg_region *region)
{
	bool dying = memreg_kill_region(region);
	struct memreg_tie *tie = NULL;

	while ((tie = memreg_tie_next(region, tie))) {
		spin_lock(&region->mdev->frwr_lock);
		memreg_guard_mark_stale(tie->whole);
		spin_unlock(&region->mdev->frwr_lock);
		dying |= memreg_kill_region(tie->whole);
	}
	return dying;
}

/*
 * Looking at the mapping
 */

/*
 * Does an address map the page that is pinned? SUSPECT: it maps nothing now. By
 * force, as the mapping may be for writing only.
 */
static enum memreg_verdict memreg_page_mapped(struct memreg_region *region,
					      unsigned long addr,
					      struct page *page)
{
	struct page *now;
	bool same;

	if (get_user_pages_remote(region->mm, addr, 1,
				  FOLL_NOFAULT | FOLL_FORCE, &now, NULL) != 1)
		return MEMREG_SUSPECT;
	same = now == page;
	put_page(now);
	return same ? MEMREG_SAME : MEMREG_GONE;
}

/*
 * Is this the folio of its file, though it is not mapped at the moment? That is
 * so after shmem was paged out.
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
	       /* A large one may go on behind the end. */
	       index < DIV_ROUND_UP(i_size_read(mapping->host), PAGE_SIZE);
	folio_put(folio);
	return same;
}

/*
 * Files are truncated, and holes punched, with the inode locked, after
 * unmapping and without a further event, so nothing can be said while it is.
 */
static enum memreg_verdict memreg_page_look_file(struct memreg_region *region,
						 struct vm_area_struct *vma,
						 unsigned long addr,
						 struct page *page)
{
	struct inode *inode = vma->vm_file->f_mapping->host;
	enum memreg_verdict verdict;

	if (!inode_trylock_shared(inode))
		return MEMREG_SUSPECT;
	verdict = memreg_page_mapped(region, addr, page);
	if (verdict == MEMREG_SUSPECT)
		verdict = memreg_page_in_file(vma, addr, page) ? MEMREG_SAME :
								 MEMREG_GONE;
	inode_unlock_shared(inode);
	return verdict;
}

static bool memreg_file_is_known(const struct vm_area_struct *vma)
{
	return shmem_mapping(vma->vm_file->f_mapping) ||
	       is_vm_hugetlb_page(vma);
}

/* Does an address still map the page that is pinned? */
static enum memreg_verdict memreg_page_look(struct memreg_region *region,
					    const struct memreg_look *look,
					    unsigned long addr,
					    struct page *page)
{
	/* What may be written is pinned without being readable, too. */
	unsigned long need = region->writable ? VM_WRITE : VM_READ | VM_WRITE;
	enum memreg_verdict verdict;
	struct vm_area_struct *vma;

	vma = vma_lookup(region->mm, addr);
	/* What the machine can't read any more stays in its file. */
	if (!vma || !(vma->vm_flags & need) || PageHWPoison(page))
		return MEMREG_GONE;
	if (look->by_kernel && vma->vm_file)
		return memreg_file_is_known(vma) ?
		       memreg_page_look_file(region, vma, addr, page) :
		       MEMREG_GONE;
	verdict = memreg_page_mapped(region, addr, page);
	if (verdict != MEMREG_SUSPECT)
		return verdict;
	return vma->vm_file ? memreg_page_look_file(region, vma, addr, page) :
			      MEMREG_GONE;
}

static bool memreg_look_is_through(const struct memreg_look *look)
{
	return look->next >= look->end;
}

/* Go on with a look, for some pages. */
static enum memreg_verdict memreg_guard_compare(struct memreg_region *region,
						struct memreg_look *look,
						unsigned int *pages)
{
	unsigned long base = region->addr & PAGE_MASK;
	enum memreg_verdict verdict = MEMREG_SAME;
	struct sg_page_iter iter;

	mmap_assert_locked(region->mm);

	/* Only the driver knows the pages. */
	if (!region->mapped)
		return MEMREG_GONE;
	for_each_sgtable_page(&region->sgt.sgt, &iter,
			      (look->next - base) >> PAGE_SHIFT) {
		if (memreg_look_is_through(look) || !*pages)
			break;
		verdict = memreg_page_look(region, look, look->next,
					   sg_page_iter_page(&iter));
		if (verdict != MEMREG_SAME)
			break;
		look->next += PAGE_SIZE;
		--*pages;
		cond_resched();
	}
	return verdict;
}

/* Begin to look at a part of a region. */
static void memreg_look_init(struct memreg_look *look,
			     const struct memreg_region *region,
			     unsigned long start, unsigned long end)
{
	unsigned long base = region->addr & PAGE_MASK;

	memset(look, 0, sizeof(*look));
	look->start = max(base, start & PAGE_MASK);
	look->end = min(base + (region->npages << PAGE_SHIFT), end);
	look->next = look->start;
}

/* Look at all of a region whose changes have been waited for. */
static enum memreg_verdict
memreg_guard_compare_all(struct memreg_region *region)
{
	enum memreg_verdict verdict = MEMREG_SAME;
	struct memreg_look look;
	unsigned int pages;

	memreg_look_init(&look, region, 0, ULONG_MAX);
	while (verdict == MEMREG_SAME && !memreg_look_is_through(&look)) {
		/* A task that is killed has no use for what it finds. */
		if (fatal_signal_pending(current))
			return MEMREG_SUSPECT;
		pages = MEMREG_LOOK_PAGES;
		verdict = memreg_guard_compare(region, &look, &pages);
	}
	return verdict;
}

/* Count and trace what a look found. */
static void memreg_look_count(struct memreg_region *region,
			      enum ib_memreg_stat_id outcome)
{
	memreg_count(region->mdev, outcome, 1);
	trace_memreg_guard_look(region, outcome);
}

/*
 * Address spaces
 */

static struct hlist_head *memreg_space_list(struct memreg_device *mdev,
					    const struct mm_struct *mm)
{
	return &mdev->spaces[hash_ptr(mm, MEMREG_SPACES_BITS)];
}

static struct memreg_space *memreg_space_find(struct memreg_device *mdev,
					      const struct mm_struct *mm)
{
	struct memreg_space *space;

	lockdep_assert_held(&mdev->frwr_lock);

	hlist_for_each_entry(space, memreg_space_list(mdev, mm), node) {
		if (space->mm == mm) {
			space->users++;
			return space;
		}
	}
	return NULL;
}

static void memreg_space_work(struct work_struct *work);

static struct memreg_space *memreg_space_new(struct memreg_device *mdev,
					     struct mm_struct *mm)
{
	struct memreg_space *space;

	space = kzalloc(sizeof(*space), GFP_KERNEL_ACCOUNT);
	if (!space)
		return NULL;
	space->mdev = mdev;
	space->mm = mm;
	space->users = 1;
	INIT_LIST_HEAD(&space->suspects);
	INIT_DELAYED_WORK(&space->look, memreg_space_work);
	return space;
}

/* Find or make that of a region's mm, which the region keeps. */
static struct memreg_space *memreg_space_get(struct memreg_device *mdev,
					     struct mm_struct *mm)
{
	struct memreg_space *space, *new;

	spin_lock(&mdev->frwr_lock);
	space = memreg_space_find(mdev, mm);
	spin_unlock(&mdev->frwr_lock);
	if (space)
		return space;
	new = memreg_space_new(mdev, mm);
	if (!new)
		return NULL;
	spin_lock(&mdev->frwr_lock);
	space = memreg_space_find(mdev, mm);
	if (!space)
		hlist_add_head(&new->node, memreg_space_list(mdev, mm));
	spin_unlock(&mdev->frwr_lock);
	if (!space)
		return new;
	kfree(new);
	return space;
}

static void memreg_space_put(struct memreg_space *space)
{
	struct memreg_device *mdev = space->mdev;
	bool last;

	spin_lock(&mdev->frwr_lock);
	last = !--space->users;
	if (last)
		hlist_del(&space->node);
	spin_unlock(&mdev->frwr_lock);
	if (!last)
		return;
	cancel_delayed_work_sync(&space->look);
	kfree(space);
}

/* Have the worker look at a region soon, if it has its pages. */
static void memreg_space_add(struct memreg_region *region)
{
	struct memreg_guard *guard = &region->guard;

	lockdep_assert_held(&region->mdev->frwr_lock);

	if (!guard->settled || !guard->active)
		return;
	if (list_empty(&guard->suspect_node))
		list_add_tail(&guard->suspect_node, &guard->space->suspects);
	queue_delayed_work(memreg_look_wq, &guard->space->look,
			   MEMREG_LOOK_DELAY);
}

/* The worker is not at a region any more, nor ever will be. */
static void memreg_space_remove(struct memreg_region *region)
{
	struct memreg_space *space = region->guard.space;

	spin_lock(&region->mdev->frwr_lock);
	/* A look that goes on adds it no more. */
	region->guard.active = false;
	list_del_init(&region->guard.suspect_node);
	spin_unlock(&region->mdev->frwr_lock);
	/* Pairs with memreg_space_done(). */
	wait_var_event(&space->looking,
		       /* Pairs with memreg_space_done(). */
		       smp_load_acquire(&space->looking) != region);
}

/* Nothing is suspect that came before so many events. */
static void memreg_guard_clear(struct memreg_guard *guard,
			       unsigned long suspects)
{
	guard->cleared = suspects;
	if (guard->suspects != suspects)
		guard->suspect_since = jiffies;
}

/* Where to look: this, too. */
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

/* Begin to look at what is suspect by now, unless a look goes on. */
static void memreg_look_begin(struct memreg_region *region)
{
	struct memreg_guard *guard = &region->guard;
	struct memreg_look *look = &guard->look, *due = &guard->due;

	lockdep_assert_held(&region->mdev->frwr_lock);

	if (look->active)
		return;
	memreg_look_init(look, region, due->start, due->end);
	look->active = true;
	look->by_kernel = due->by_kernel;
	look->suspects = guard->suspects;
	due->active = false;
}

/* Nothing could be found out: look again, but not for ever. */
static void memreg_look_again(struct memreg_region *region)
{
	struct memreg_guard *guard = &region->guard;
	const struct memreg_look *look = &guard->look;

	memreg_look_count(region, IB_MEMREG_STAT_GUARD_LATER);
	memreg_look_add(&guard->due, look->start, look->end, look->by_kernel);
	if (time_after_eq(jiffies, guard->suspect_since + MEMREG_LOOK_LIMIT))
		memreg_guard_mark_stale(region);
	else
		memreg_space_add(region);
}

/* A look came to an end, or to the end of its turn. */
static void memreg_look_end(struct memreg_region *region,
			    enum memreg_verdict verdict)
{
	struct memreg_guard *guard = &region->guard;
	struct memreg_look *look = &guard->look;

	lockdep_assert_held(&region->mdev->frwr_lock);

	if (guard->stale || !guard->active)
		return;
	if (verdict == MEMREG_SAME && !memreg_look_is_through(look)) {
		list_move(&guard->suspect_node, &guard->space->suspects);
		mod_delayed_work(memreg_look_wq, &guard->space->look, 0);
		return;
	}
	look->active = false;
	if (verdict == MEMREG_SUSPECT) {
		memreg_look_again(region);
	} else if (verdict == MEMREG_GONE) {
		memreg_look_count(region, IB_MEMREG_STAT_GUARD_GONE);
		memreg_guard_mark_stale(region);
	} else {
		memreg_look_count(region, IB_MEMREG_STAT_GUARD_UNCHANGED);
		memreg_guard_clear(guard, look->suspects);
		if (guard->due.active)
			memreg_space_add(region);
	}
}

/* The next of the regions to look at, which is not freed until then. */
static struct memreg_region *memreg_space_next(struct memreg_space *space,
					       struct list_head *todo)
{
	struct memreg_region *region;

	spin_lock(&space->mdev->frwr_lock);
	region = list_first_entry_or_null(todo, struct memreg_region,
					  guard.suspect_node);
	if (region) {
		list_del_init(&region->guard.suspect_node);
		WRITE_ONCE(space->looking, region);
		memreg_look_begin(region);
	}
	spin_unlock(&space->mdev->frwr_lock);
	return region;
}

static void memreg_space_done(struct memreg_space *space,
			      struct memreg_region *region,
			      enum memreg_verdict verdict)
{
	bool stale;

	spin_lock(&space->mdev->frwr_lock);
	memreg_look_end(region, verdict);
	stale = region->guard.stale;
	spin_unlock(&space->mdev->frwr_lock);
	if (stale)
		memreg_guard_kill(region);
	/* Pairs with memreg_space_remove(). */
	smp_store_release(&space->looking, NULL);
	/* The waiter is in the queue before it looks. */
	smp_mb();
	wake_up_var(&space->looking);
}

/* Look at the regions of a list until it is empty, or for so many pages. */
static void memreg_space_look(struct memreg_space *space,
			      struct list_head *todo)
{
	unsigned int pages = MEMREG_LOOK_PAGES;
	struct memreg_region *region;
	enum memreg_verdict verdict;
	bool alive, locked;

	/* One that is exiting takes all of its mappings along. */
	alive = mmget_not_zero(space->mm);
	locked = alive && mmap_read_trylock(space->mm);
	while (pages && (region = memreg_space_next(space, todo))) {
		if (!alive || check_stable_address_space(space->mm))
			verdict = MEMREG_GONE;
		else if (!locked)
			verdict = MEMREG_SUSPECT;
		else
			verdict = memreg_guard_compare(region,
						       &region->guard.look,
						       &pages);
		memreg_space_done(space, region, verdict);
		if (pages)
			pages--;
	}
	if (locked)
		mmap_read_unlock(space->mm);
	if (alive)
		mmput_async(space->mm);
}

static void memreg_space_work(struct work_struct *work)
{
	struct memreg_space *space =
		container_of(work, struct memreg_space, look.work);
	spinlock_t *lock = &space->mdev->frwr_lock;
	LIST_HEAD(todo);

	spin_lock(lock);
	list_splice_init(&space->suspects, &todo);
	spin_unlock(lock);
	memreg_space_look(space, &todo);
	spin_lock(lock);
	if (!list_empty(&todo)) {
		list_splice(&todo, &space->suspects);
		mod_delayed_work(memreg_look_wq, &space->look, 0);
	}
	spin_unlock(lock);
}

/*
 * The notifier
 */

/* Is it the kernel that does something on its own account? */
static bool memreg_event_by_kernel(void)
{
	return current->flags & PF_KTHREAD &&
	       !(current->flags & PF_USER_WORKER);
}

static enum memreg_verdict
memreg_event_classify(const struct mmu_notifier_range *range)
{
	switch (range->event) {
	case MMU_NOTIFY_UNMAP:
	case MMU_NOTIFY_RELEASE:
		return MEMREG_GONE;
	case MMU_NOTIFY_CLEAR:
		return current->flags & PF_MEMALLOC ||
		       memreg_event_by_kernel() ? MEMREG_SUSPECT : MEMREG_GONE;
	case MMU_NOTIFY_PROTECTION_VMA:
		return MEMREG_SUSPECT;
	default:
		return MEMREG_SAME;
	}
}

/* Have the worker look at a range. */
static void memreg_guard_mark_suspect(struct memreg_region *region,
				      const struct mmu_notifier_range *range)
{
	struct memreg_guard *guard = &region->guard;
	/* Reclaim leaves a pinned page where it is, or in its file. */
	bool by_kernel = range->event != MMU_NOTIFY_PROTECTION_VMA &&
			 !(current->flags & PF_MEMALLOC);

	lockdep_assert_held(&region->mdev->frwr_lock);

	if (guard->stale)
		return;
	memreg_count(region->mdev, IB_MEMREG_STAT_GUARD_SUSPECTS, 1);
	if (guard->suspects == guard->cleared)
		guard->suspect_since = jiffies;
	/* MR_QUERY reads it without the lock. */
	WRITE_ONCE(guard->suspects, guard->suspects + 1);
	memreg_look_add(&guard->due, range->start, range->end, by_kernel);
	memreg_space_add(region);
}

/* An event is believed: whether it was true may be found out afterwards. */
static void memreg_guard_mark_gone(struct memreg_region *region,
				   const struct mmu_notifier_range *range)
{
	struct memreg_guard *guard = &region->guard;

	lockdep_assert_held(&region->mdev->frwr_lock);

	if (range->event != MMU_NOTIFY_CLEAR) {
		guard->doubtful = false;
		WRITE_ONCE(guard->spurious, false);
	} else if (!guard->stale) {
		guard->doubtful = true;
	}
	memreg_guard_mark_stale(region);
}

/* An event came. Returns whether somebody has to wait for keys to die. */
static bool memreg_guard_strike(struct memreg_region *region,
				const struct mmu_notifier_range *range,
				unsigned long cur_seq)
{
	enum memreg_verdict verdict = memreg_event_classify(range);

	/* Who may not wait can't kill keys in time. */
	if (verdict == MEMREG_GONE && !mmu_notifier_range_blockable(range))
		verdict = MEMREG_SUSPECT;
	memreg_count(region->mdev, IB_MEMREG_STAT_GUARD_EVENTS, 1);
	trace_memreg_guard_event(region, range, verdict);

	spin_lock(&region->mdev->frwr_lock);
	mmu_interval_set_seq(&region->guard.notifier, cur_seq);
	if (verdict == MEMREG_GONE)
		memreg_guard_mark_gone(region, range);
	else if (verdict == MEMREG_SUSPECT)
		memreg_guard_mark_suspect(region, range);
	spin_unlock(&region->mdev->frwr_lock);
	return verdict == MEMREG_GONE && memreg_guard_kill(region);
}

#ifdef MEMREG_TWO_PASS_NOTIFIERS
/* Leave the waiting to a second pass, unless somebody else's is at it. */
static bool memreg_guard_defer(struct memreg_region *region,
			       unsigned long deadline,
			       struct mmu_interval_notifier_finish **finish)
{
	struct memreg_guard *guard = &region->guard;
	bool mine;

	spin_lock(&region->mdev->frwr_lock);
	mine = !guard->finish_used;
	guard->finish_used = true;
	if (mine)
		guard->deadline = deadline;
	spin_unlock(&region->mdev->frwr_lock);
	if (mine)
		*finish = &guard->finish;
	return mine;
}

static bool memreg_guard_start(struct mmu_interval_notifier *notifier,
			       const struct mmu_notifier_range *range,
			       unsigned long cur_seq,
			       struct mmu_interval_notifier_finish **finish)
{
	struct memreg_region *region =
		container_of(notifier, struct memreg_region, guard.notifier);
	unsigned long deadline = jiffies + MEMREG_KILL_TIMEOUT;

	if (memreg_guard_strike(region, range, cur_seq) &&
	    !memreg_guard_defer(region, deadline, finish))
		memreg_kill_wait(region, deadline);
	return true;
}

static void memreg_guard_finish(struct mmu_interval_notifier_finish *finish)
{
	struct memreg_region *region =
		container_of(finish, struct memreg_region, guard.finish);

	memreg_kill_wait(region, region->guard.deadline);
	spin_lock(&region->mdev->frwr_lock);
	region->guard.finish_used = false;
	spin_unlock(&region->mdev->frwr_lock);
}

static const struct mmu_interval_notifier_ops memreg_guard_ops = {
	.invalidate_start = memreg_guard_start,
	.invalidate_finish = memreg_guard_finish,
};
#else
static bool memreg_guard_invalidate(struct mmu_interval_notifier *notifier,
				    const struct mmu_notifier_range *range,
				    unsigned long cur_seq)
{
	struct memreg_region *region =
		container_of(notifier, struct memreg_region, guard.notifier);
	unsigned long deadline = jiffies + MEMREG_KILL_TIMEOUT;

	if (memreg_guard_strike(region, range, cur_seq))
		memreg_kill_wait(region, deadline);
	return true;
}

static const struct mmu_interval_notifier_ops memreg_guard_ops = {
	.invalidate = memreg_guard_invalidate,
};
#endif

/*
 * The life of a guard
 */

/**
 * memreg_guard_insert() - Have a region's mapping watched
 * @region: Region without pages, of the current process
 *
 * Return: 0, -ENOMEM, -EINTR, or that the call is to be started again.
 */
int memreg_guard_insert(struct memreg_region *region)
{
	struct memreg_guard *guard = &region->guard;
	int ret;

	INIT_LIST_HEAD(&guard->suspect_node);
	guard->space = memreg_space_get(region->mdev, region->mm);
	if (!guard->space)
		return -ENOMEM;
	ret = mmu_interval_notifier_insert(&guard->notifier, region->mm,
					   region->addr & PAGE_MASK,
					   region->npages << PAGE_SHIFT,
					   &memreg_guard_ops);
	if (!ret) {
		guard->active = true;
		return 0;
	}
	memreg_space_put(guard->space);
	/* The first one of a process gives way to any signal. */
	if (ret == -EINTR && !fatal_signal_pending(current))
		return -ERESTARTNOINTR;
	return ret == -EINTR ? ret : -ENOMEM;
}

/**
 * memreg_guard_remove() - Watch a region no more
 * @region: Region to which no key lives; without a guard nothing happens
 *
 * Context: may sleep.
 */
void memreg_guard_remove(struct memreg_region *region)
{
	struct memreg_guard *guard = &region->guard;

	if (!guard->active)
		return;
	/* Waits for callbacks at work; then nothing is suspect any more. */
	mmu_interval_notifier_remove(&guard->notifier);
	memreg_space_remove(region);
	memreg_space_put(guard->space);
}

/*
 * Nothing is known against the region: from here on the worker may judge it. So
 * many suspect events came before it was looked at.
 */
static int memreg_guard_settle(struct memreg_region *region,
			       unsigned long suspects)
{
	struct memreg_guard *guard = &region->guard;
	int ret;

	spin_lock(&region->mdev->frwr_lock);
	ret = guard->stale ? -ESTALE : 0;
	WRITE_ONCE(guard->settled, !ret);
	memreg_guard_clear(guard, suspects);
	if (guard->suspects == suspects)
		guard->due.active = false;
	else if (!ret)
		memreg_space_add(region);
	spin_unlock(&region->mdev->frwr_lock);
	return ret;
}

static unsigned long memreg_guard_suspects(struct memreg_region *region)
{
	unsigned long suspects;

	spin_lock(&region->mdev->frwr_lock);
	suspects = region->guard.suspects;
	spin_unlock(&region->mdev->frwr_lock);
	return suspects;
}

/**
 * memreg_guard_succeed() - Go on counting where another region's guard is
 * @region: Region that takes the place of the other
 * @old: The other region
 */
void memreg_guard_succeed(struct memreg_region *region,
			  struct memreg_region *old)
{
	struct memreg_guard *guard = &region->guard;

	spin_lock(&region->mdev->frwr_lock);
	WRITE_ONCE(guard->generation,
		   guard->generation + old->guard.generation);
	spin_unlock(&region->mdev->frwr_lock);
}

/* Did nothing happen since? Tells how many suspect events came before. */
static bool memreg_guard_undisturbed(struct memreg_region *region,
				     unsigned long seq, unsigned long *suspects)
{
	bool ret;

	spin_lock(&region->mdev->frwr_lock);
	ret = !mmu_interval_read_retry(&region->guard.notifier, seq);
	*suspects = region->guard.suspects;
	spin_unlock(&region->mdev->frwr_lock);
	return ret;
}

/**
 * memreg_guard_end() - Are pages and keys those of the mapping?
 * @region: Region whose pages were pinned since
 * @seq: What memreg_guard_begin() returned
 *
 * If only such events came that may have left the pages where they are, the
 * pages are compared: KSM alone would keep a registration from ever ending.
 * Once the pages are found to be those of the mapping, what comes later is for
 * the notifier and the worker.
 *
 * Return: 0: from now on the guard sees whatever happens. -ESTALE: begin anew.
 * -EINTR.
 */
int memreg_guard_end(struct memreg_region *region, unsigned long seq)
{
	enum memreg_verdict verdict = MEMREG_SUSPECT;
	unsigned long suspects = 0;
	unsigned int look;

	if (!region->guard.active ||
	    memreg_guard_undisturbed(region, seq, &suspects))
		return memreg_guard_settle(region, suspects);
	for (look = 0; look < MEMREG_GUARD_LOOKS; look++) {
		/* What is counted by now is waited for. */
		suspects = memreg_guard_suspects(region);
		mmu_interval_read_begin(&region->guard.notifier);
		if (fatal_signal_pending(current) ||
		    mmap_read_lock_killable(region->mm))
			return -EINTR;
		verdict = memreg_guard_compare_all(region);
		mmap_read_unlock(region->mm);
		if (verdict != MEMREG_SUSPECT)
			break;
	}
	return verdict == MEMREG_SAME ? memreg_guard_settle(region, suspects) :
					-ESTALE;
}

/**
 * memreg_guard_recheck() - Find out if a region became stale for nothing
 * @region: Region that has its pages
 *
 * It is found out only for the process whose memory it is, as that may have to
 * wait until the process's own mapping is at rest.
 *
 * Context: may sleep.
 */
void memreg_guard_recheck(struct memreg_region *region)
{
	struct memreg_guard *guard = &region->guard;
	enum memreg_verdict verdict;
	unsigned long seq;

	if (!guard->active || current->mm != region->mm ||
	    !READ_ONCE(guard->doubtful))
		return;
	seq = mmu_interval_read_begin(&guard->notifier);
	if (mmap_read_lock_killable(region->mm))
		return;
	verdict = memreg_guard_compare_all(region);
	mmap_read_unlock(region->mm);

	spin_lock(&region->mdev->frwr_lock);
	if (guard->doubtful && verdict != MEMREG_SUSPECT &&
	    !mmu_interval_read_retry(&guard->notifier, seq)) {
		guard->doubtful = false;
		if (verdict == MEMREG_SAME) {
			WRITE_ONCE(guard->spurious, true);
			memreg_look_count(region,
					  IB_MEMREG_STAT_GUARD_SPURIOUS);
		}
	}
	spin_unlock(&region->mdev->frwr_lock);
}
