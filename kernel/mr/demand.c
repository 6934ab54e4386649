// SPDX-License-Identifier: GPL-2.0-only
/*
 * MRs on demand: their pages are pinned when work uses them, not at
 * registration.
 *
 * Registration of such an MR pins nothing, charges nothing, and needs no
 * mapping. Work requests and windows name ranges of it as of any MR. When such
 * a range is used, its pages are pinned in an extent: an MR without an id of
 * its own, whose region has a guard as any other. The slots of work requests
 * and windows hold references to the extent as to any MR. An extent without
 * such a reference is idle. It is kept for the next use until it has been idle
 * for MEMREG_DEMAND_AGE, memory is short, or the process needs its
 * RLIMIT_MEMLOCK for other pages.
 *
 * How idle extents are released is in reap.c.
 *
 * What a use finds
 *
 * A use takes an extent that contains its whole range, or makes one of exactly
 * the pages of its range. Extents may overlap: a page in both is pinned and
 * charged twice. A new extent replaces the idle ones that it contains.
 *
 * When the mapping changes
 *
 * An extent is reused only until its guard sees the first event that could have
 * changed the mapping or its protection. The use after such an event faults the
 * pages in again, as a CPU access would: it gets what is mapped by then, wakes
 * the handler of a userfaultfd, and breaks copy-on-write. The keys of windows
 * that are bound to the extent live longer: the guard kills them only if the
 * comparison of the pages finds that they were really replaced.
 *
 * Faults
 *
 * The handler of a userfaultfd, or a FUSE server, can delay a fault without
 * limit. Removal of the device waits for memreg_file.lock, so no fault is taken
 * with that lock held: extents are made only of pages that are present. If a
 * page is not present, the call drops all references that it has taken,
 * releases memreg_file.lock, faults the pages in, and starts over. Only the
 * process that registered the MR can make extents; other processes, to which
 * the file was passed, can only use existing ones.
 */
#include <linux/list_lru.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/shrinker.h>
#include <linux/slab.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/guard.h"
#include "mr/demand.h"
#include "mr/mr.h"
#include "mr/reap.h"
#include "mr/trace.h"
#include "pages/region.h"
#include "pages/user.h"
#include "stats.h"
#include "watch/notifier.h"
#include "watch/watch.h"

/* Extents at an address that a lookup checks before it makes another one */
#define MEMREG_DEMAND_LOOKS	16

/* Attempts to pin, if the mapping changes meanwhile */
#define MEMREG_DEMAND_ATTEMPTS	8

static struct kmem_cache *memreg_demand_cache;

static struct memreg_extent *memreg_to_extent(struct memreg_kmr *mr)
{
	return container_of(mr, struct memreg_extent, mr);
}

/*
 * Counters
 */

/* Count an event for the MR and the device. */
static void memreg_demand_count(struct memreg_demand *demand,
				enum memreg_demand_event event)
{
	static_assert(IB_MEMREG_STAT_DEMAND_FAULTS + MEMREG_DEMAND_EVENTS - 1 ==
		      IB_MEMREG_STAT_DEMAND_PREFETCH_HITS);

	atomic64_inc(&demand->stats.events[event]);
	memreg_count(demand->mr->region->mdev,
		     IB_MEMREG_STAT_DEMAND_FAULTS + event, 1);
}

/*
 * Count a fault in the class of its duration. Each class but the last one ends
 * at four times the end of the one before.
 */
static void memreg_demand_count_wait(struct memreg_demand *demand, u64 ns)
{
	unsigned int class = 0;

	for (ns = div_u64(ns, IB_MEMREG_DEMAND_WAIT_NS);
	     ns && class < IB_MEMREG_DEMAND_WAITS - 1; ns /= 4)
		class++;
	atomic64_inc(&demand->stats.wait[class]);
	memreg_count(demand->mr->region->mdev,
		     IB_MEMREG_STAT_DEMAND_WAIT + class, 1);
}

/**
 * memreg_demand_stats_read() - Report the counters, but for those of times
 * @stats: The counters, which may move meanwhile
 * @to: Where to
 */
void memreg_demand_stats_read(struct memreg_demand_stats *stats,
			      struct ib_memreg_demand_stats *to)
{
	const unsigned int shift = PAGE_SHIFT - MEMREG_PAGE_SHIFT;
	const atomic64_t *events = stats->events;

	*to = (struct ib_memreg_demand_stats) {
		.pinned = (u64)atomic_long_read(&stats->pages.now) << shift,
		.pinned_max = (u64)atomic_long_read(&stats->pages.max) << shift,
		.faults = atomic64_read(&events[MEMREG_DEMAND_FAULT]),
		.hits = atomic64_read(&events[MEMREG_DEMAND_HIT]),
		.invalidations =
			atomic64_read(&events[MEMREG_DEMAND_INVALIDATION]),
		.prefetches = atomic64_read(&events[MEMREG_DEMAND_PREFETCHED]),
		.prefetch_hits =
			atomic64_read(&events[MEMREG_DEMAND_PREFETCH_HIT]),
	};
}

/*
 * The region of the MR itself
 */

/* This region has no pages of its own. */
static const struct memreg_source memreg_demand_source = {};

/*
 * Watching
 */

/* Have the worker release an extent once its last user has put it. */
static void memreg_extent_retire(struct memreg_extent *extent)
{
	struct memreg_demand *demand = extent->demand;

	lockdep_assert_held(&demand->lock);

	WRITE_ONCE(extent->gone, true);
	list_move_tail(&extent->node, &demand->gone);
	memreg_demand_space_look_soon(demand->space);
}

/*
 * The guard saw an event: take the extent out, so that the next use faults. Not
 * with frwr_lock held: threads of one user may be in line for the lock here.
 */
static void memreg_extent_change(struct memreg_kwatch *watch)
{
	struct memreg_region *region =
		container_of(watch, struct memreg_region, guard);
	struct memreg_extent *extent = region->extent;
	struct memreg_demand *demand = extent->demand;

	if (READ_ONCE(extent->gone))
		return;
	/*
	 * memreg_extent_insert() checks the guard of an extent not inserted
	 * yet.
	 */
	spin_lock(&demand->lock);
	if (!list_empty(&extent->node) && !extent->gone) {
		interval_tree_remove(&extent->tree_node, &demand->tree);
		memreg_extent_retire(extent);
		memreg_demand_count(demand, MEMREG_DEMAND_INVALIDATION);
		trace_memreg_demand_invalidate(&extent->mr);
	}
	spin_unlock(&demand->lock);
}

static enum memreg_verdict memreg_extent_compare(struct memreg_kwatch *watch,
						 struct memreg_look *look,
						 unsigned int *pages)
{
	return memreg_guard_ops.compare(watch, look, pages);
}

static bool memreg_extent_gone(struct memreg_kwatch *watch)
{
	memreg_extent_change(watch);
	return memreg_guard_ops.gone(watch);
}

static void memreg_extent_wait(struct memreg_kwatch *watch,
			       unsigned long deadline)
{
	memreg_guard_ops.wait(watch, deadline);
}

static const struct memreg_watch_ops memreg_extent_ops = {
	.compare = memreg_extent_compare,
	.suspect = memreg_extent_change,
	.gone = memreg_extent_gone,
	.wait = memreg_extent_wait,
};

/* Has the guard of an extent seen no event so far? */
static bool memreg_extent_is_good(const struct memreg_extent *extent)
{
	const struct memreg_kwatch *guard = &extent->mr.region->guard;

	return !READ_ONCE(guard->stale) && !READ_ONCE(guard->suspects);
}

/*
 * Extents
 */

/**
 * memreg_demand_find() - Find a pinned extent that contains a range
 * @mr: MR on demand
 * @offset: First byte
 * @length: Bytes, from 1; the range is inside the MR
 * @write: The caller will write to the range
 *
 * Context: any but a notifier's.
 * Return: the extent, with a reference; or NULL.
 */
struct memreg_kmr *memreg_demand_find(struct memreg_kmr *mr, u64 offset,
				      u64 length, bool write)
{
	struct memreg_demand *demand = mr->demand;
	unsigned long start = mr->region->addr + offset;
	struct memreg_extent *extent, *found = NULL;
	struct interval_tree_node *node;
	unsigned int looks = 0;

	spin_lock(&demand->lock);
	node = interval_tree_iter_first(&demand->tree, start, start);
	for (; node && looks < MEMREG_DEMAND_LOOKS; looks++) {
		extent = container_of(node, struct memreg_extent, tree_node);
		if (node->last >= start + length - 1 &&
		    (!write || extent->mr.region->writable) &&
		    memreg_extent_is_good(extent)) {
			found = extent;
			break;
		}
		node = interval_tree_iter_next(node, start, start);
	}
	if (found) {
		refcount_inc(&found->mr.obj.users);
		found->used = jiffies;
		if (!list_is_last(&found->node, &demand->idle))
			list_move_tail(&found->node, &demand->idle);
	}
	spin_unlock(&demand->lock);
	return found ? &found->mr : NULL;
}

/* Add an extent to the tree, unless its guard has seen an event already. */
static void memreg_extent_insert(struct memreg_extent *extent)
{
	struct memreg_demand *demand = extent->demand;

	spin_lock(&demand->lock);
	extent->used = jiffies;
	demand->nr++;
	if (memreg_extent_is_good(extent)) {
		interval_tree_insert(&extent->tree_node, &demand->tree);
		list_add_tail(&extent->node, &demand->idle);
		memreg_demand_space_look_later(demand->space);
	} else {
		list_add_tail(&extent->node, &demand->gone);
		memreg_extent_retire(extent);
	}
	spin_unlock(&demand->lock);
}

/* Release the idle extents that a new extent contains. */
static void memreg_extent_replace(struct memreg_extent *extent)
{
	struct memreg_demand *demand = extent->demand;
	const struct interval_tree_node *all = &extent->tree_node;
	struct interval_tree_node *node;
	unsigned int looks = 0;
	LIST_HEAD(taken);

	spin_lock(&demand->lock);
	node = interval_tree_iter_first(&demand->tree, all->start, all->last);
	while (node && looks++ < MEMREG_DEMAND_LOOKS) {
		struct memreg_extent *old =
			container_of(node, struct memreg_extent, tree_node);

		node = interval_tree_iter_next(node, all->start, all->last);
		if (old != extent && old->tree_node.start >= all->start &&
		    old->tree_node.last <= all->last &&
		    old->mr.region->writable <= extent->mr.region->writable)
			memreg_extent_take(old, &taken);
	}
	spin_unlock(&demand->lock);
	memreg_demand_release(&taken);
}

static struct memreg_extent *memreg_extent_alloc(struct memreg_kmr *mr,
						 unsigned long start,
						 unsigned long end)
{
	struct memreg_extent *extent;

	extent = kzalloc(sizeof(*extent), GFP_KERNEL_ACCOUNT);
	if (!extent)
		return NULL;
	extent->demand = mr->demand;
	INIT_LIST_HEAD(&extent->node);
	extent->tree_node.start = start;
	extent->tree_node.last = end - 1;
	/* One reference for the lists, and one for the caller. */
	refcount_set(&extent->mr.obj.users, 2);
	/*
	 * Reports by id, as a completion's, name the MR that user space knows.
	 */
	extent->mr.obj.id = mr->obj.id;
	extent->mr.obj.type = IB_MEMREG_OBJECT_MR;
	extent->mr.domain = mr->domain;
	extent->mr.whole = mr;
	extent->mr.skip = mr->region->addr - start;
	extent->mr.addr = start;
	extent->mr.iova = mr->iova - extent->mr.skip;
	extent->mr.length = end - start;
	extent->mr.access = mr->access;
	return extent;
}

/* Pin pages that are present; -ESTALE if the mapping changed meanwhile. */
static int memreg_extent_try_take(struct memreg_ucmd *ucmd,
				  struct memreg_extent *extent, bool write)
{
	struct memreg_region *region;
	unsigned long seq;
	int ret;

	region = memreg_region_new(ucmd, extent->mr.addr, extent->mr.length,
				   write);
	if (!region)
		return -ENOMEM;
	region->extent = extent;
	region->present = true;
	ret = memreg_watch_insert(&region->guard, &memreg_extent_ops,
				  region->mm, region->addr, region->length,
				  write);
	if (!ret) {
		seq = memreg_guard_begin(region);
		ret = memreg_region_take(ucmd, region);
		if (!ret)
			ret = memreg_guard_end(region, seq);
	}
	if (!ret) {
		extent->mr.region = region;
		return 0;
	}
	memreg_guard_remove(region);
	memreg_region_release(region);
	return ret;
}

static int memreg_extent_take_pages(struct memreg_ucmd *ucmd,
				    struct memreg_extent *extent, bool write)
{
	unsigned long npages = extent->mr.length >> PAGE_SHIFT;
	unsigned int attempt;
	int ret;

	for (attempt = 0; attempt < MEMREG_DEMAND_ATTEMPTS; attempt++) {
		ucmd->reason = IB_MEMREG_REASON_NONE;
		ret = memreg_extent_try_take(ucmd, extent, write);
		if (ret == -ENOMEM &&
		    ucmd->reason == IB_MEMREG_REASON_MEMLOCK &&
		    memreg_demand_can_make_room(current->mm, npages) &&
		    memreg_demand_make_room(current->mm, npages))
			continue;
		if (ret != -ESTALE)
			return ret;
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return ret == -ENOMEM ? ret :
		memreg_fail(ucmd, -EAGAIN, IB_MEMREG_REASON_UNSTEADY);
}

/*
 * Count a new extent as a fault or a prefetch of a call that began at @since.
 */
static void memreg_extent_made(struct memreg_extent *extent,
			       enum memreg_demand_why why, u64 since)
{
	u64 ns = ktime_get_ns() - since;

	if (why == MEMREG_DEMAND_USE) {
		__set_bit(MEMREG_EXTENT_FRESH, &extent->state);
		memreg_demand_count_wait(extent->demand, ns);
		trace_memreg_demand_fault(&extent->mr, ns);
	} else {
		__set_bit(MEMREG_EXTENT_PREFETCHED, &extent->state);
		memreg_demand_count(extent->demand, MEMREG_DEMAND_PREFETCHED);
		trace_memreg_demand_prefetch(&extent->mr);
	}
}

/**
 * memreg_demand_pin() - Pin the pages of a range
 * @ucmd: The call
 * @mr: MR on demand
 * @offset: First byte
 * @length: Bytes, from 1; the range is inside the MR
 * @write: The caller will write to the range
 * @why: A use, or a prefetch
 *
 * Context: may sleep, with mmap_lock taken; takes no fault.
 * Return: the extent, with a reference; ERR_PTR(-EAGAIN) if a page is not
 * present, with @ucmd->fault set for memreg_demand_fault(); or another
 * ERR_PTR() that SUBMIT and WINDOW_BIND return to the caller.
 */
struct memreg_kmr *memreg_demand_pin(struct memreg_ucmd *ucmd,
				     struct memreg_kmr *mr, u64 offset,
				     u64 length, bool write,
				     enum memreg_demand_why why)
{
	unsigned long start = (mr->region->addr + offset) & PAGE_MASK;
	unsigned long end = PAGE_ALIGN(mr->region->addr + offset + length);
	u64 since = ucmd->fault.since ?: ktime_get_ns();
	struct memreg_extent *extent;
	int ret;

	if (current->mm != mr->region->mm)
		return ERR_PTR(memreg_fail(ucmd, -EFAULT,
					   IB_MEMREG_REASON_PROCESS));
	extent = memreg_extent_alloc(mr, start, end);
	if (!extent)
		return ERR_PTR(-ENOMEM);
	ret = memreg_extent_take_pages(ucmd, extent, write);
	if (ret) {
		kfree(extent);
		if (ret != -EFAULT)
			return ERR_PTR(ret);
		trace_memreg_demand_miss(mr, start, end - start, write);
		ucmd->fault = (struct memreg_fault) {
			.needed = true, .write = write, .addr = start,
			.npages = (end - start) >> PAGE_SHIFT, .since = since,
		};
		return ERR_PTR(memreg_fail(ucmd, -EAGAIN,
					   IB_MEMREG_REASON_UNSTEADY));
	}
	ucmd->fault.since = 0;
	refcount_inc(&mr->obj.users);
	memreg_extent_count_pin(extent);
	memreg_extent_made(extent, why, since);
	memreg_extent_insert(extent);
	memreg_extent_replace(extent);
	return &extent->mr;
}

/**
 * memreg_demand_get() - Find an extent of a range, or make one
 * @ucmd: The call
 * @mr: MR on demand
 * @offset: First byte
 * @length: Bytes, from 1; the range is inside the MR
 * @write: The caller will write to the range
 *
 * Context: may sleep, with mmap_lock taken; takes no fault.
 * Return: as memreg_demand_pin().
 */
struct memreg_kmr *memreg_demand_get(struct memreg_ucmd *ucmd,
				     struct memreg_kmr *mr, u64 offset,
				     u64 length, bool write)
{
	struct memreg_kmr *extent = memreg_demand_find(mr, offset, length,
						       write);

	return extent ?: memreg_demand_pin(ucmd, mr, offset, length, write,
					   MEMREG_DEMAND_USE);
}

/**
 * memreg_demand_count_use() - Count a use of an extent as a hit or as a fault
 * @extent: The extent, to which the caller holds a reference
 */
void memreg_demand_count_use(struct memreg_kmr *extent)
{
	unsigned long *state = &memreg_to_extent(extent)->state;
	struct memreg_demand *demand = memreg_to_extent(extent)->demand;

	/*
	 * The first use of an extent that a use made is the fault that made it.
	 */
	if (READ_ONCE(*state) &&
	    test_and_clear_bit(MEMREG_EXTENT_FRESH, state)) {
		memreg_demand_count(demand, MEMREG_DEMAND_FAULT);
		return;
	}
	memreg_demand_count(demand, MEMREG_DEMAND_HIT);
	trace_memreg_demand_hit(extent);
	if (READ_ONCE(*state) &&
	    test_and_clear_bit(MEMREG_EXTENT_PREFETCHED, state))
		memreg_demand_count(demand, MEMREG_DEMAND_PREFETCH_HIT);
}

/**
 * memreg_demand_fault() - Fault in the pages that a call has found missing
 * @ucmd: The call; it holds no object, as the lock of the file is dropped
 *
 * Context: may sleep for as long as a fault takes; a fatal signal ends it.
 * Return: 0 if the call is to start over; -EFAULT; -EINTR; -ENOMEM; -EAGAIN;
 * -ENODEV. After -EINTR and -ENODEV the lock of the file may not be held, see
 * @ucmd->away.
 */
int memreg_demand_fault(struct memreg_ucmd *ucmd)
{
	int ret, err;

	memreg_leave(ucmd);
	ucmd->reason = IB_MEMREG_REASON_NONE;
	ucmd->fault.needed = false;
	ret = memreg_region_fault(ucmd, ucmd->fault.addr, ucmd->fault.npages,
				  ucmd->fault.write);
	err = memreg_enter(ucmd, true);
	return err ?: ret;
}

/*
 * The MR
 */

static bool memreg_demand_ignore(struct mmu_interval_notifier *notifier,
				 const struct mmu_notifier_range *range,
				 unsigned long cur_seq)
{
	mmu_interval_set_seq(notifier, cur_seq);
	return true;
}

static const struct mmu_interval_notifier_ops memreg_demand_ignore_ops = {
	.invalidate = memreg_demand_ignore,
};

/*
 * Inserting the first notifier of a process waits for page faults, and may fail
 * with -EINTR for any signal. Do that at registration, which can be restarted
 * after a signal, and not in a submission, which can't.
 */
static int memreg_demand_prepare_mm(struct mm_struct *mm)
{
	struct mmu_interval_notifier notifier;
	int ret;

	ret = memreg_notifier_insert(&notifier, mm, 0, PAGE_SIZE,
				     &memreg_demand_ignore_ops);
	if (!ret)
		mmu_interval_notifier_remove(&notifier);
	return ret;
}

static struct memreg_demand *memreg_demand_new(struct memreg_kmr *mr)
{
	struct memreg_demand *demand;

	demand = kmem_cache_alloc_lru(memreg_demand_cache, &memreg_demand_lru,
				      GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!demand)
		return NULL;
	demand->space = memreg_demand_space_get(current->mm);
	if (!demand->space) {
		kmem_cache_free(memreg_demand_cache, demand);
		return NULL;
	}
	demand->mr = mr;
	spin_lock_init(&demand->lock);
	demand->tree = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&demand->idle);
	INIT_LIST_HEAD(&demand->gone);
	INIT_LIST_HEAD(&demand->lru);
	return demand;
}

/* From here on the worker, memreg_demand_make_room() and reclaim can use it. */
static void memreg_demand_add(struct memreg_demand *demand)
{
	struct memreg_demand_space *space = demand->space;

	spin_lock(&space->lock);
	list_add_tail(&demand->node, &space->demands);
	list_add_tail(&demand->room, &space->rooms);
	WRITE_ONCE(space->nr, space->nr + 1);
	spin_unlock(&space->lock);
	list_lru_add_obj(&memreg_demand_lru, &demand->lru);
}

/* From here on the worker and memreg_demand_make_room() can't find it. */
static void memreg_demand_remove(struct memreg_demand *demand)
{
	struct memreg_demand_space *space = demand->space;

	spin_lock(&space->lock);
	list_del(&demand->node);
	list_del(&demand->room);
	WRITE_ONCE(space->nr, space->nr - 1);
	spin_unlock(&space->lock);
}

/**
 * memreg_demand_begin() - Turn a new MR into one on demand
 * @ucmd: The call
 * @mr: The MR, without a region
 * @writable: Its access flags allow writes
 *
 * Return: 0, -ENOMEM, -EINTR, or -ERESTARTNOINTR.
 */
int memreg_demand_begin(struct memreg_ucmd *ucmd, struct memreg_kmr *mr,
			bool writable)
{
	struct memreg_demand *demand;
	struct memreg_region *region;
	int ret;

	ret = memreg_demand_prepare_mm(current->mm);
	if (ret)
		return ret;
	region = memreg_region_alloc(ucmd->mdev, &memreg_demand_source,
				     untagged_addr(mr->addr), mr->length,
				     writable);
	demand = region ? memreg_demand_new(mr) : NULL;
	if (!demand) {
		kfree(region);
		return -ENOMEM;
	}
	region->mm = current->mm;
	mmgrab(region->mm);
	mr->demand = demand;
	mr->region = region;
	atomic_inc(&ucmd->file->demands);
	memreg_demand_add(demand);
	return 0;
}

/**
 * memreg_demand_end() - Release all extents of an MR on demand
 * @mr: The MR, which has no users left; its region stays
 *
 * Context: may sleep, in bounded time.
 */
void memreg_demand_end(struct memreg_kmr *mr)
{
	struct memreg_demand *demand = mr->demand;

	list_lru_del_obj(&memreg_demand_lru, &demand->lru);
	memreg_demand_remove(demand);
	memreg_demand_idle(demand);
	WARN_ON(demand->nr);
	memreg_demand_space_put(demand->space);
	atomic_dec(&mr->domain->file->demands);
	kmem_cache_free(memreg_demand_cache, demand);
	mr->demand = NULL;
}

int __init memreg_demand_module_init(void)
{
	int ret = -ENOMEM;

	memreg_demand_cache = KMEM_CACHE(memreg_demand, SLAB_ACCOUNT);
	if (!memreg_demand_cache)
		return ret;
	ret = memreg_demand_shrinker_init();
	if (ret)
		goto err_cache;
	return 0;

err_cache:
	kmem_cache_destroy(memreg_demand_cache);
	return ret;
}

void memreg_demand_module_exit(void)
{
	shrinker_free(memreg_demand_shrinker);
	list_lru_destroy(&memreg_demand_lru);
	kmem_cache_destroy(memreg_demand_cache);
}
