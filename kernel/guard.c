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
 * the same pages, and kills the keys if it doesn't. To look it waits for the
 * change that was announced to be through, and for a lock, and others may keep
 * it waiting; so after MEMREG_CHECK_LIMIT without an answer another worker
 * kills the keys. All other events leave pinned pages where they are. Each
 * event makes a registration that is under way look again (I2).
 *
 * What a notifier waits for
 *
 * For the device, and for nobody else. A guard has all keys to its region
 * killed at once (kernel/kill.c), and those that an owner is revoking already
 * die without the owner's doing. On kernels with two-pass notifiers all guards
 * of an unmap do so in the first pass, and wait in the second; elsewhere one
 * waits after the other.
 *
 * It waits for MEMREG_GUARD_TIMEOUT at most, counted from when the event came,
 * so that it is one deadline for all guards of an unmap. If it is the process's
 * own mapping that the process itself takes away, or its end, it waits for
 * longer as long as keys die. Somebody else who truncates a file does not, and
 * if that was in vain, waits for no other guard for a while.
 *
 * What is not dead then dies a little later: a queue that is stuck is rebuilt,
 * and a worker destroys the MRs. Nor does a guard wait for a queue that is
 * being rebuilt. Until the worker is done the peer may reach the old pages,
 * which stay pinned, and nobody else's.
 */
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "memreg.h"
#include "trace.h"

/* How long a notifier waits for keys to die. */
#define MEMREG_GUARD_TIMEOUT	HZ

/* How long somebody does not wait for the keys of others who did in vain. */
#define MEMREG_GUARD_GIVEN_UP	(10 * HZ)

/* A batch that is as old when a notifier gives up is stuck. */
#define MEMREG_GUARD_STUCK	(HZ * 9 / 10)

/* Keys that are dealt with before others may have the lock. */
#define MEMREG_GUARD_KEYS	32

/* When a worker looks after a suspect event, and until when it must know. */
#define MEMREG_CHECK_DELAY	msecs_to_jiffies(10)
#define MEMREG_CHECK_LIMIT	(HZ * 9 / 10)

/* A last chance for a worker that was not run in time. */
#define MEMREG_CHECK_GRACE	(HZ / 10)

/* When it looks again, only to tell what it finds. */
#define MEMREG_CHECK_LATER	HZ

/* How often a registration looks again if events keep coming. */
#define MEMREG_GUARD_LOOKS	8

/*
 * The work of the first ends what unmaps and reclaim wait for, in bounded time.
 * Who looks at mappings may have to wait for others' unmaps.
 */
static struct workqueue_struct *memreg_guard_wq;
static struct workqueue_struct *memreg_look_wq;

int __init memreg_guard_init(void)
{
	unsigned int flags = WQ_UNBOUND | WQ_MEM_RECLAIM;

	memreg_guard_wq = alloc_workqueue("memreg_guard", flags, 0);
	if (!memreg_guard_wq)
		return -ENOMEM;
	memreg_look_wq = alloc_workqueue("memreg_look", flags, 0);
	if (memreg_look_wq)
		return 0;
	destroy_workqueue(memreg_guard_wq);
	return -ENOMEM;
}

void memreg_guard_exit(void)
{
	destroy_workqueue(memreg_look_wq);
	destroy_workqueue(memreg_guard_wq);
}

/*
 * Killing keys
 */

/*
 * An endpoint's queue may still have to make a key: only the end of that queue,
 * which a worker sees to, makes sure that it will not. The endpoint's end
 * destroys the FRWR.
 */
static void memreg_guard_cut(struct memreg_frwr *frwr, struct work_struct *cut)
{
	frwr->state = MEMREG_FRWR_FAILED;
	frwr->fast.status = -EIO;
	memreg_frwr_move(frwr, &frwr->region->frwrs);
	queue_work(memreg_cut_wq, cut);
}

static void memreg_guard_kill_one(struct memreg_frwr *frwr)
{
	struct work_struct *cut = READ_ONCE(frwr->cut);

	if (cut)
		memreg_guard_cut(frwr, cut);
	else if (frwr->no_inv)
		memreg_kill_destroy(frwr, false);
	else
		memreg_kill_invalidate(frwr);
}

/* Have some keys killed. Returns whether there are more. */
static bool memreg_guard_kill_some(struct memreg_region *region)
{
	unsigned int n = MEMREG_GUARD_KEYS;
	struct memreg_domain *domain = NULL;
	struct memreg_frwr *frwr;
	struct hlist_node *next;

	lockdep_assert_held(&region->mdev->frwr_lock);

	hlist_for_each_entry_safe(frwr, next, &region->live, region_node) {
		if (!n--)
			break;
		if (domain && domain != frwr->domain)
			memreg_kill_flush(domain);
		domain = frwr->domain;
		memreg_guard_kill_one(frwr);
	}
	if (domain)
		memreg_kill_flush(domain);
	return !hlist_empty(&region->live);
}

/*
 * Have all keys to a region killed that is stale, so that no more are made.
 * Returns whether they are yet to die.
 */
static bool memreg_guard_kill(struct memreg_region *region)
{
	bool more;

	do {
		spin_lock(&region->mdev->frwr_lock);
		more = memreg_guard_kill_some(region);
		spin_unlock(&region->mdev->frwr_lock);
		cond_resched();
	} while (more);
	return atomic_read(&region->killing);
}

/* FRWRs that are looked at to find the queues that a guard waits for. */
#define MEMREG_GUARD_STALLED	64

/* A queue keeps a guard waiting: others who unmap need not find out as well. */
static void memreg_guard_stall(struct memreg_region *region)
{
	unsigned int n = MEMREG_GUARD_STALLED;
	struct memreg_domain *domain = NULL;
	struct memreg_frwr *frwr;

	memreg_count(region->mdev, IB_MEMREG_STAT_GUARD_TIMEOUTS, 1);
	trace_memreg_guard_timeout(region);
	spin_lock(&region->mdev->frwr_lock);
	hlist_for_each_entry(frwr, &region->frwrs, region_node) {
		if (!n--)
			break;
		if (frwr->domain == domain ||
		    memreg_frwr_state(frwr) != MEMREG_FRWR_DYING)
			continue;
		domain = frwr->domain;
		memreg_queue_stall(domain, MEMREG_GUARD_STUCK);
	}
	spin_unlock(&region->mdev->frwr_lock);
}

/* Does the process whose memory it is take it away, or does it end? */
static bool memreg_guard_is_own(const struct memreg_region *region)
{
	return !current->mm || current->mm == region->mm;
}

/* Did this task wait for others' keys in vain, a while ago? */
static bool memreg_guard_gave_up(struct memreg_device *mdev)
{
	bool ret;

	spin_lock(&mdev->frwr_lock);
	ret = mdev->gave_up_pid == task_pid_nr(current) &&
	      time_before(jiffies, mdev->gave_up_until);
	spin_unlock(&mdev->frwr_lock);
	return ret;
}

static void memreg_guard_give_up(struct memreg_device *mdev)
{
	spin_lock(&mdev->frwr_lock);
	mdev->gave_up_pid = task_pid_nr(current);
	mdev->gave_up_until = jiffies + MEMREG_GUARD_GIVEN_UP;
	spin_unlock(&mdev->frwr_lock);
}

/* Wait until jiffies are so many for keys to die. Returns whether they did. */
static bool memreg_guard_wait_until(struct memreg_region *region,
				    unsigned long deadline)
{
	long left = max((long)(deadline - jiffies), 0L);

	return wait_var_event_timeout(&region->killing,
				      !atomic_read(&region->killing), left);
}

/* Wait in a notifier whose event came MEMREG_GUARD_TIMEOUT before @deadline. */
static void memreg_guard_wait(struct memreg_region *region,
			      unsigned long deadline)
{
	bool own = memreg_guard_is_own(region);
	int left;

	if (!own && memreg_guard_gave_up(region->mdev))
		deadline = jiffies;
	do {
		left = atomic_read(&region->killing);
		if (memreg_guard_wait_until(region, deadline))
			return;
		deadline = jiffies + MEMREG_GUARD_TIMEOUT;
	} while (own && atomic_read(&region->killing) < left);
	if (!own)
		memreg_guard_give_up(region->mdev);
	memreg_guard_stall(region);
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
 * Looking at the mapping
 */

/*
 * Is this the folio of its file, though it is not mapped at the moment? That is
 * so after shmem was paged out. Files are truncated, and holes punched, with
 * the inode locked, after unmapping and without a further event, so nothing can
 * be said while it is.
 */
static enum memreg_verdict memreg_page_in_file(struct vm_area_struct *vma,
					       unsigned long addr,
					       struct page *page)
{
	pgoff_t index = linear_page_index(vma, addr);
	struct address_space *mapping;
	struct folio *folio;
	bool same = false;

	if (!(vma->vm_flags & VM_MAYSHARE) || !vma->vm_file)
		return MEMREG_GONE;
	mapping = vma->vm_file->f_mapping;
	if (!shmem_mapping(mapping))
		return MEMREG_GONE;
	if (!inode_trylock_shared(mapping->host))
		return MEMREG_SUSPECT;
	folio = filemap_get_folio(mapping, index);
	if (!IS_ERR(folio)) {
		/* What the machine can't read any more stays in the file. */
		same = folio == page_folio(page) && !PageHWPoison(page) &&
		       /* A large one may go on behind the end. */
		       index < DIV_ROUND_UP(i_size_read(mapping->host),
					    PAGE_SIZE);
		folio_put(folio);
	}
	inode_unlock_shared(mapping->host);
	return same ? MEMREG_SAME : MEMREG_GONE;
}

/* Does an address still map the page that is pinned? */
static enum memreg_verdict memreg_page_look(struct memreg_region *region,
					    unsigned long addr,
					    struct page *page)
{
	/* What may be written is pinned without being readable, too. */
	unsigned long need = region->writable ? VM_WRITE : VM_READ | VM_WRITE;
	struct vm_area_struct *vma;
	struct page *now;
	bool same;

	vma = vma_lookup(region->mm, addr);
	if (!vma || !(vma->vm_flags & need))
		return MEMREG_GONE;
	/* By force, as the mapping may be for writing only. */
	if (get_user_pages_remote(region->mm, addr, 1,
				  FOLL_NOFAULT | FOLL_FORCE, &now, NULL) != 1)
		return memreg_page_in_file(vma, addr, page);
	same = now == page;
	put_page(now);
	return same ? MEMREG_SAME : MEMREG_GONE;
}

static enum memreg_verdict memreg_guard_compare(struct memreg_region *region,
						unsigned long start,
						unsigned long end)
{
	unsigned long addr = region->addr & PAGE_MASK;
	enum memreg_verdict verdict = MEMREG_SAME;
	struct sg_page_iter iter;

	mmap_assert_locked(region->mm);

	/* Only the driver knows the pages. */
	if (!region->mapped)
		return MEMREG_GONE;
	for_each_sgtable_page(&region->sgt.sgt, &iter, 0) {
		if (addr >= end || verdict != MEMREG_SAME)
			break;
		if (addr >= start)
			verdict = memreg_page_look(region, addr,
						   sg_page_iter_page(&iter));
		/* Whoever registers it and is killed has no use for it. */
		if (fatal_signal_pending(current))
			return MEMREG_SUSPECT;
		addr += PAGE_SIZE;
		cond_resched();
	}
	return verdict;
}

/* Look from a worker, which must not wait for those who unmap. */
static enum memreg_verdict memreg_guard_look(struct memreg_region *region,
					     unsigned long start,
					     unsigned long end)
{
	enum memreg_verdict verdict = MEMREG_SUSPECT;

	/* The process is exiting, and takes all of its mappings along. */
	if (!mmget_not_zero(region->mm))
		return MEMREG_GONE;
	if (mmap_read_trylock(region->mm)) {
		WRITE_ONCE(region->guard.looking, true);
		verdict = memreg_guard_compare(region, start, end);
		mmap_read_unlock(region->mm);
	}
	mmput_async(region->mm);
	return verdict;
}

/**
 * struct memreg_look - A look at a range that is suspect
 * @seq: Of the notifier, before the look
 * @suspects: memreg_guard.suspects before the look
 * @start: Where to look
 * @end: Where to look
 * @settled: The region has its pages
 */
struct memreg_look {
	unsigned long seq;
	unsigned long suspects;
	unsigned long start;
	unsigned long end;
	bool settled;
};

static void memreg_look_begin(struct memreg_region *region,
			      struct memreg_look *look)
{
	struct memreg_guard *guard = &region->guard;

	/* That it has, it keeps; until then there is nothing to look at. */
	look->settled = READ_ONCE(guard->settled);
	if (!look->settled)
		return;
	/* An event comes before the change: wait until that is through. */
	look->seq = mmu_interval_read_begin(&guard->notifier);
	spin_lock(&region->mdev->frwr_lock);
	look->suspects = guard->suspects;
	look->start = guard->suspect_start;
	look->end = guard->suspect_end;
	spin_unlock(&region->mdev->frwr_lock);
}

/* Count and trace what a look found. */
static void memreg_look_tell(struct memreg_region *region,
			     enum ib_memreg_stat_id outcome)
{
	memreg_count(region->mdev, outcome, 1);
	trace_memreg_guard_look(region, outcome);
}

/* Nothing is suspect that came before so many events. */
static void memreg_guard_clear(struct memreg_guard *guard,
			       unsigned long suspects)
{
	guard->cleared = suspects;
	guard->suspect_start = ULONG_MAX;
	guard->suspect_end = 0;
}

/* From now on there is so much time to find out. */
static void memreg_guard_wonder(struct memreg_guard *guard)
{
	guard->suspect_since = jiffies;
	guard->last_chance = false;
}

/* What does a look prove? Returns false if another one is needed. */
static bool memreg_look_end(struct memreg_region *region,
			    const struct memreg_look *look,
			    enum memreg_verdict verdict)
{
	struct memreg_guard *guard = &region->guard;

	lockdep_assert_held(&region->mdev->frwr_lock);

	WRITE_ONCE(guard->looking, false);
	/* Whoever registers looks by himself, and decides. */
	if (!look->settled)
		return false;
	if (verdict == MEMREG_SAME &&
	    mmu_interval_read_retry(&guard->notifier, look->seq)) {
		/* It was, when the look began: the next one finds the rest. */
		memreg_guard_wonder(guard);
		memreg_look_tell(region, IB_MEMREG_STAT_GUARD_LATER);
		return false;
	}
	if (verdict == MEMREG_SUSPECT) {
		memreg_look_tell(region, IB_MEMREG_STAT_GUARD_LATER);
		return false;
	}
	if (verdict == MEMREG_GONE) {
		memreg_look_tell(region, IB_MEMREG_STAT_GUARD_GONE);
		memreg_guard_mark_stale(region);
	} else if (guard->stale) {
		WRITE_ONCE(guard->spurious, true);
		memreg_look_tell(region, IB_MEMREG_STAT_GUARD_SPURIOUS);
	} else {
		memreg_look_tell(region, IB_MEMREG_STAT_GUARD_UNCHANGED);
		memreg_guard_clear(guard, look->suspects);
	}
	return true;
}

static void memreg_guard_check(struct work_struct *work)
{
	struct memreg_region *region =
		container_of(work, struct memreg_region, guard.check.work);
	enum memreg_verdict verdict = MEMREG_SUSPECT;
	struct memreg_look look = {};
	bool kill;

	memreg_look_begin(region, &look);
	if (look.settled)
		verdict = memreg_guard_look(region, look.start, look.end);

	spin_lock(&region->mdev->frwr_lock);
	if (!memreg_look_end(region, &look, verdict))
		queue_delayed_work(memreg_look_wq, &region->guard.check,
				   region->guard.stale ? MEMREG_CHECK_LATER :
							 MEMREG_CHECK_DELAY);
	kill = region->guard.stale;
	spin_unlock(&region->mdev->frwr_lock);
	if (kill)
		memreg_guard_kill(region);
}

/* Decide what can't wait any more. Returns false if it can, for so long. */
static bool memreg_guard_decide(struct memreg_region *region,
				unsigned long *left)
{
	struct memreg_guard *guard = &region->guard;
	long rest = guard->suspect_since + MEMREG_CHECK_LIMIT - jiffies;

	lockdep_assert_held(&region->mdev->frwr_lock);

	if (guard->stale || guard->suspects == guard->cleared)
		return true;
	/* Who registers looks and decides by himself. */
	if (!guard->settled)
		*left = MEMREG_CHECK_LIMIT;
	else if (rest > 0)
		*left = rest;
	else if (READ_ONCE(guard->looking))
		/* That waits for nobody. */
		*left = MEMREG_CHECK_DELAY;
	else if (!guard->last_chance)
		*left = MEMREG_CHECK_GRACE;
	else
		memreg_guard_mark_stale(region);
	guard->last_chance = rest <= 0;
	return guard->stale;
}

static void memreg_guard_limit(struct work_struct *work)
{
	struct memreg_region *region =
		container_of(work, struct memreg_region, guard.limit.work);
	unsigned long left;
	bool kill;

	spin_lock(&region->mdev->frwr_lock);
	if (!memreg_guard_decide(region, &left))
		queue_delayed_work(memreg_guard_wq, &region->guard.limit, left);
	kill = region->guard.stale;
	spin_unlock(&region->mdev->frwr_lock);
	if (kill)
		memreg_guard_kill(region);
}

/*
 * The notifier
 */

static enum memreg_verdict
memreg_guard_judge(const struct mmu_notifier_range *range)
{
	bool kernel = current->flags & PF_MEMALLOC ||
		      (current->flags & PF_KTHREAD &&
		       !(current->flags & PF_USER_WORKER));

	switch (range->event) {
	case MMU_NOTIFY_UNMAP:
	case MMU_NOTIFY_RELEASE:
		return MEMREG_GONE;
	case MMU_NOTIFY_CLEAR:
		return kernel ? MEMREG_SUSPECT : MEMREG_GONE;
	case MMU_NOTIFY_PROTECTION_VMA:
		return MEMREG_SUSPECT;
	default:
		return MEMREG_SAME;
	}
}

/* Have the worker look at a range. */
static void memreg_guard_suspect(struct memreg_region *region,
				 const struct mmu_notifier_range *range)
{
	struct memreg_guard *guard = &region->guard;

	lockdep_assert_held(&region->mdev->frwr_lock);

	if (guard->stale)
		return;
	memreg_count(region->mdev, IB_MEMREG_STAT_GUARD_SUSPECTS, 1);
	if (guard->suspects == guard->cleared)
		memreg_guard_wonder(guard);
	/* MR_QUERY tells it without the lock. */
	WRITE_ONCE(guard->suspects, guard->suspects + 1);
	guard->suspect_start = min(guard->suspect_start, range->start);
	guard->suspect_end = max(guard->suspect_end, range->end);
	queue_delayed_work(memreg_look_wq, &guard->check, MEMREG_CHECK_DELAY);
}

/* The same, of keys that still work. */
static void memreg_guard_doubt(struct memreg_region *region,
			       const struct mmu_notifier_range *range)
{
	memreg_guard_suspect(region, range);
	queue_delayed_work(memreg_guard_wq, &region->guard.limit,
			   MEMREG_CHECK_LIMIT);
}

/* Believe an event. */
static void memreg_guard_believe(struct memreg_region *region,
				 const struct mmu_notifier_range *range)
{
	lockdep_assert_held(&region->mdev->frwr_lock);

	/* Find out afterwards if it was true, for those who want to know. */
	if (range->event == MMU_NOTIFY_CLEAR)
		memreg_guard_suspect(region, range);
	memreg_guard_mark_stale(region);
}

/* An event came. Returns whether somebody has to wait for keys to die. */
static bool memreg_guard_strike(struct memreg_region *region,
				const struct mmu_notifier_range *range,
				unsigned long cur_seq)
{
	enum memreg_verdict verdict = memreg_guard_judge(range);

	/* Who may not wait can't kill keys in time. */
	if (verdict == MEMREG_GONE && !mmu_notifier_range_blockable(range))
		verdict = MEMREG_SUSPECT;
	memreg_count(region->mdev, IB_MEMREG_STAT_GUARD_EVENTS, 1);
	trace_memreg_guard_event(region, range, verdict);

	spin_lock(&region->mdev->frwr_lock);
	mmu_interval_set_seq(&region->guard.notifier, cur_seq);
	if (verdict == MEMREG_GONE)
		memreg_guard_believe(region, range);
	else if (verdict == MEMREG_SUSPECT)
		memreg_guard_doubt(region, range);
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
	unsigned long deadline = jiffies + MEMREG_GUARD_TIMEOUT;

	if (memreg_guard_strike(region, range, cur_seq) &&
	    !memreg_guard_defer(region, deadline, finish))
		memreg_guard_wait(region, deadline);
	return true;
}

static void memreg_guard_finish(struct mmu_interval_notifier_finish *finish)
{
	struct memreg_region *region =
		container_of(finish, struct memreg_region, guard.finish);

	memreg_guard_wait(region, region->guard.deadline);
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
	unsigned long deadline = jiffies + MEMREG_GUARD_TIMEOUT;

	if (memreg_guard_strike(region, range, cur_seq))
		memreg_guard_wait(region, deadline);
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
 * Return: 0, -ENOMEM, or that the call is to be started again.
 */
int memreg_guard_insert(struct memreg_region *region)
{
	struct memreg_guard *guard = &region->guard;
	int ret;

	INIT_DELAYED_WORK(&guard->check, memreg_guard_check);
	INIT_DELAYED_WORK(&guard->limit, memreg_guard_limit);
	guard->suspect_start = ULONG_MAX;
	ret = mmu_interval_notifier_insert(&guard->notifier, region->mm,
					   region->addr & PAGE_MASK,
					   region->npages << PAGE_SHIFT,
					   &memreg_guard_ops);
	/* The first one of a process gives way to any signal. */
	if (ret == -EINTR && !fatal_signal_pending(current))
		return -ERESTARTNOINTR;
	if (ret)
		return ret == -EINTR ? ret : -ENOMEM;
	guard->active = true;
	return 0;
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
	/* Waits for callbacks at work; afterwards nobody queues the workers. */
	mmu_interval_notifier_remove(&guard->notifier);
	cancel_delayed_work_sync(&guard->check);
	cancel_delayed_work_sync(&guard->limit);
	guard->active = false;
}

/**
 * memreg_guard_begin() - Begin to look at the mapping
 * @region: The region
 *
 * Return: what memreg_guard_end() wants.
 */
unsigned long memreg_guard_begin(struct memreg_region *region)
{
	if (!region->guard.active)
		return 0;
	return mmu_interval_read_begin(&region->guard.notifier);
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
	if (guard->suspects == suspects)
		memreg_guard_clear(guard, suspects);
	else
		memreg_guard_wonder(guard);
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
		verdict = memreg_guard_compare(region, 0, ULONG_MAX);
		mmap_read_unlock(region->mm);
		if (verdict != MEMREG_SUSPECT)
			break;
	}
	return verdict == MEMREG_SAME ? memreg_guard_settle(region, suspects) :
					-ESTALE;
}
