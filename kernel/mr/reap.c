// SPDX-License-Identifier: GPL-2.0-only
/*
 * Release of the idle extents of MRs on demand: by age, when memory is short,
 * to make room under RLIMIT_MEMLOCK, and when a caller asks for it.
 *
 * A worker releases idle extents, with one work item for each address space.
 * Removing a guard waits for unmaps that are in progress in that address space,
 * and a process with several threads can prolong that wait. With one work item
 * a process delays at most one thread, however many MRs it has, and a user only
 * some (user_work.c). The MRs of an address space take turns.
 */
#include <linux/hash.h>
#include <linux/list_lru.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/frwr.h"
#include "keys/guard.h"
#include "mr/demand.h"
#include "mr/mr.h"
#include "mr/reap.h"
#include "mr/trace.h"
#include "pages/region.h"
#include "stats.h"

/* Age at which an idle extent is released, and period of that check */
#define MEMREG_DEMAND_AGE	(10 * HZ)
#define MEMREG_DEMAND_PERIOD	(2 * HZ)

/* Delay of a round for retired extents, so that it serves many of them */
#define MEMREG_DEMAND_DELAY	(HZ / 50)

/* Extents that are checked, or taken off a list, before the lock is dropped */
#define MEMREG_DEMAND_BATCH	32

/* Extents that a search for idle ones checks under one hold of the lock */
#define MEMREG_DEMAND_SEARCH	512

/* Steps of a work item before it is requeued */
#define MEMREG_DEMAND_TURN	64

#define MEMREG_DEMAND_SPACES_BITS	8

static DEFINE_SPINLOCK(memreg_demand_spaces_lock);
static struct hlist_head memreg_demand_spaces[1U << MEMREG_DEMAND_SPACES_BITS];

/* MRs on demand by memory cgroup and NUMA node, for the shrinker */
struct list_lru memreg_demand_lru;
struct shrinker *memreg_demand_shrinker;

/*
 * Address spaces
 */

static void memreg_demand_reap(struct work_struct *work);

static void memreg_demand_timer(struct timer_list *timer)
{
	struct memreg_demand_space *space =
		container_of(timer, struct memreg_demand_space, timer);

	memreg_user_work_queue(&space->reap);
}

static struct hlist_head *memreg_demand_space_list(const struct mm_struct *mm)
{
	return &memreg_demand_spaces[hash_ptr(mm, MEMREG_DEMAND_SPACES_BITS)];
}

static struct memreg_demand_space *
memreg_demand_space_find_locked(const struct mm_struct *mm)
{
	struct memreg_demand_space *space;

	lockdep_assert_held(&memreg_demand_spaces_lock);

	hlist_for_each_entry(space, memreg_demand_space_list(mm), node) {
		if (space->mm == mm) {
			space->users++;
			return space;
		}
	}
	return NULL;
}

/* Take a reference to the entry of an address space; NULL if it has none. */
static struct memreg_demand_space *
memreg_demand_space_find(const struct mm_struct *mm)
{
	struct memreg_demand_space *space;

	spin_lock(&memreg_demand_spaces_lock);
	space = memreg_demand_space_find_locked(mm);
	spin_unlock(&memreg_demand_spaces_lock);
	return space;
}

static struct memreg_demand_space *memreg_demand_space_new(struct mm_struct *mm)
{
	struct memreg_demand_space *space;

	space = kzalloc(sizeof(*space), GFP_KERNEL_ACCOUNT);
	if (!space)
		return NULL;
	space->user = memreg_user_get(memreg_user_uid());
	if (!space->user) {
		kfree(space);
		return NULL;
	}
	space->mm = mm;
	space->users = 1;
	spin_lock_init(&space->lock);
	INIT_LIST_HEAD(&space->demands);
	INIT_LIST_HEAD(&space->rooms);
	memreg_user_work_init(&space->reap, space->user, MEMREG_WORK_DEMAND,
			      memreg_demand_reap);
	timer_setup(&space->timer, memreg_demand_timer, 0);
	return space;
}

static void memreg_demand_space_free(struct memreg_demand_space *space)
{
	timer_shutdown_sync(&space->timer);
	memreg_user_work_disable(&space->reap);
	memreg_user_put(space->user);
	kfree(space);
}

void memreg_demand_space_put(struct memreg_demand_space *space)
{
	bool last;

	spin_lock(&memreg_demand_spaces_lock);
	last = !--space->users;
	if (last)
		hlist_del(&space->node);
	spin_unlock(&memreg_demand_spaces_lock);
	if (!last)
		return;
	memreg_demand_space_free(space);
}

/* Find or make the entry of an address space; NULL without memory. */
struct memreg_demand_space *memreg_demand_space_get(struct mm_struct *mm)
{
	struct memreg_demand_space *space = memreg_demand_space_find(mm), *new;

	if (space)
		return space;
	new = memreg_demand_space_new(mm);
	if (!new)
		return NULL;
	/* Another thread may have added it meanwhile. */
	spin_lock(&memreg_demand_spaces_lock);
	space = memreg_demand_space_find_locked(mm);
	if (!space)
		hlist_add_head(&new->node, memreg_demand_space_list(mm));
	spin_unlock(&memreg_demand_spaces_lock);
	if (!space)
		return new;
	memreg_demand_space_free(new);
	return space;
}

/* Have the worker serve all MRs of an address space now. */
static void memreg_demand_space_look(struct memreg_demand_space *space)
{
	WRITE_ONCE(space->again, true);
	memreg_user_work_queue(&space->reap);
}

/*
 * Have the worker serve all MRs of an address space after MEMREG_DEMAND_DELAY.
 * Only the first caller of a round sets the timer, so the others neither
 * postpone the next round nor add one.
 */
void memreg_demand_space_look_soon(struct memreg_demand_space *space)
{
	if (!xchg(&space->retired, true) && !READ_ONCE(space->again))
		timer_reduce(&space->timer, jiffies + MEMREG_DEMAND_DELAY);
}

/* Have the worker serve the address space after MEMREG_DEMAND_PERIOD. */
void memreg_demand_space_look_later(struct memreg_demand_space *space)
{
	timer_reduce(&space->timer, jiffies + MEMREG_DEMAND_PERIOD);
}

/*
 * Release
 */

/* Count pinned pages. Returns by how many the maximum has grown. */
static unsigned long memreg_demand_pages_pin(struct memreg_demand_pages *pages,
					     unsigned long npages)
{
	long now = atomic_long_add_return(npages, &pages->now);
	long max = atomic_long_read(&pages->max);

	while (now > max)
		if (atomic_long_try_cmpxchg(&pages->max, &max, now))
			return now - max;
	return 0;
}

/* Count the pages of an extent, for the MR and the device. */
void memreg_extent_count_pin(struct memreg_extent *extent)
{
	struct memreg_demand *demand = extent->demand;
	struct memreg_kdevice *mdev = extent->mr.region->mdev;
	unsigned long npages = extent->mr.region->npages;
	unsigned long more;

	extent->mr.pinned = npages;
	atomic_long_add(npages, &demand->space->pinned);
	atomic64_add(npages, &extent->mr.domain->file->pinned);
	memreg_demand_pages_pin(&demand->stats.pages, npages);
	memreg_count(mdev, IB_MEMREG_STAT_DEMAND_PINNED,
		     memreg_region_pages(extent->mr.region));
	more = memreg_demand_pages_pin(&mdev->demand, npages);
	memreg_count(mdev, IB_MEMREG_STAT_DEMAND_PINNED_MAX,
		     (u64)more << (PAGE_SHIFT - MEMREG_PAGE_SHIFT));
}

static void memreg_extent_count_unpin(struct memreg_extent *extent)
{
	struct memreg_demand *demand = extent->demand;
	struct memreg_kdevice *mdev = extent->mr.region->mdev;
	unsigned long npages = extent->mr.pinned;

	atomic64_sub(npages, &extent->mr.domain->file->pinned);
	atomic_long_sub(npages, &demand->space->pinned);
	atomic_long_sub(npages, &demand->stats.pages.now);
	atomic_long_sub(npages, &mdev->demand.now);
	memreg_count(mdev, IB_MEMREG_STAT_DEMAND_UNPINNED,
		     memreg_region_pages(extent->mr.region));
}

/* Free an extent that has no references and is on no list of its MR. */
static void memreg_extent_free(struct memreg_extent *extent)
{
	struct memreg_region *region = extent->mr.region;
	struct memreg_kmr *whole = extent->mr.whole;

	trace_memreg_demand_evict(&extent->mr);
	memreg_guard_remove(region);
	memreg_frwr_drain_region(region);
	memreg_extent_count_unpin(extent);
	memreg_region_release(region);
	kfree(extent);
	memreg_object_put(&whole->obj);
}

/* Move an extent to @taken, unless a work request or a window uses it. */
bool memreg_extent_take(struct memreg_extent *extent, struct list_head *taken)
{
	struct memreg_demand *demand = extent->demand;

	lockdep_assert_held(&demand->lock);

	if (!refcount_dec_if_one(&extent->mr.obj.users))
		return false;
	/* Pairs with the release in refcount_dec() of the last user. */
	smp_acquire__after_ctrl_dep();
	if (!extent->gone)
		interval_tree_remove(&extent->tree_node, &demand->tree);
	WRITE_ONCE(extent->gone, true);
	demand->nr--;
	list_move_tail(&extent->node, taken);
	atomic_inc(&demand->releasing);
	return true;
}

/*
 * Move idle extents that were not used for @age jiffies from the head of @from
 * to @taken. Checks at most @max extents, and returns how many it checked. One
 * that is in use counts as used now, and moves to the tail.
 */
static unsigned int memreg_demand_take(struct list_head *from, unsigned int max,
				       unsigned long age,
				       struct list_head *taken)
{
	struct memreg_extent *extent;
	unsigned int n, left = MEMREG_DEMAND_BATCH;

	for (n = 0; n < max && left && !list_empty(from); n++) {
		extent = list_first_entry(from, struct memreg_extent, node);
		if (age && time_before(jiffies, extent->used + age))
			break;
		if (memreg_extent_take(extent, taken)) {
			left--;
			continue;
		}
		extent->used = jiffies;
		list_move_tail(&extent->node, from);
	}
	return n;
}

/* Free the extents of @taken. Returns the number of system pages unpinned. */
unsigned long memreg_demand_release(struct list_head *taken)
{
	struct memreg_extent *extent, *next;
	struct memreg_demand *demand;
	unsigned long npages = 0;

	list_for_each_entry_safe(extent, next, taken, node) {
		demand = extent->demand;
		npages += extent->mr.pinned;
		memreg_extent_free(extent);
		/*
		 * memreg_demand_idle() waits for this before the MR is freed.
		 */
		if (atomic_dec_and_test(&demand->releasing))
			wake_up_var(&demand->releasing);
		cond_resched();
	}
	INIT_LIST_HEAD(taken);
	return npages;
}

/*
 * Take some extents of an MR that were idle for @age jiffies. Returns true if
 * there are no more of them.
 */
static bool memreg_demand_take_some(struct memreg_demand *demand,
				    unsigned long age, struct list_head *taken)
{
	unsigned int n, max = MEMREG_DEMAND_SEARCH;

	spin_lock(&demand->lock);
	if (!demand->left)
		demand->left = demand->nr;
	memreg_demand_take(&demand->gone, max, 0, taken);
	if (list_empty(taken)) {
		max = min(max, demand->left);
		n = memreg_demand_take(&demand->idle, max, age, taken);
		/*
		 * The list is in the order of last use, so the rest is younger.
		 */
		if (n < max && list_empty(taken))
			n = demand->left;
		demand->left -= n;
	}
	max = demand->left;
	spin_unlock(&demand->lock);
	return !max && list_empty(taken);
}

/* The MR at the head has no old idle extents left: end its turn. */
static void memreg_demand_next(struct memreg_demand_space *space,
			       struct memreg_demand *demand)
{
	lockdep_assert_held(&space->lock);

	list_move_tail(&demand->node, &space->demands);
	space->extents_left |= READ_ONCE(demand->nr);
	if (space->left)
		space->left--;
}

/*
 * Release some idle extents of the MR at the head of the list. Returns true if
 * MRs are left to serve in this round.
 */
static bool memreg_demand_reap_some(struct memreg_demand_space *space)
{
	struct memreg_demand *demand;
	LIST_HEAD(taken);
	bool more, shrink;

	spin_lock(&space->lock);
	demand = list_first_entry_or_null(&space->demands,
					  struct memreg_demand, node);
	shrink = demand && READ_ONCE(demand->shrink);
	if (!demand) {
		space->left = 0;
	} else if (memreg_demand_take_some(demand, shrink ? 0 :
					   MEMREG_DEMAND_AGE, &taken)) {
		if (shrink)
			WRITE_ONCE(demand->shrink, false);
		memreg_demand_next(space, demand);
	}
	more = space->left;
	spin_unlock(&space->lock);
	memreg_demand_release(&taken);
	return more;
}

static void memreg_demand_reap(struct work_struct *work)
{
	struct memreg_demand_space *space =
		container_of(work, struct memreg_demand_space, reap.work);
	unsigned int steps = MEMREG_DEMAND_TURN;
	bool more, extents_left;

	spin_lock(&space->lock);
	if (xchg(&space->again, false) || !space->left) {
		/* Before the lists are read, so that no extent is missed. */
		xchg(&space->retired, false);
		space->left = space->nr;
		space->extents_left = false;
	}
	spin_unlock(&space->lock);
	do {
		more = memreg_demand_reap_some(space);
		cond_resched();
	} while (more && --steps);
	spin_lock(&space->lock);
	extents_left = space->extents_left;
	spin_unlock(&space->lock);
	if (more)
		memreg_user_work_queue(&space->reap);
	else if (READ_ONCE(space->retired) && !READ_ONCE(space->again))
		timer_reduce(&space->timer, jiffies + MEMREG_DEMAND_DELAY);
	else if (extents_left)
		memreg_demand_space_look_later(space);
	memreg_user_work_end(&space->reap);
}

/* Release the extents of a list that are not in use. */
static void memreg_demand_reap_list(struct memreg_demand *demand,
				    struct list_head *from)
{
	unsigned int left = READ_ONCE(demand->nr), n;
	LIST_HEAD(taken);

	do {
		n = min_t(unsigned int, left, MEMREG_DEMAND_SEARCH);
		spin_lock(&demand->lock);
		n = memreg_demand_take(from, n, 0, &taken);
		spin_unlock(&demand->lock);
		memreg_demand_release(&taken);
		left -= n;
	} while (n && left);
}

/**
 * memreg_demand_idle() - Release all idle extents of an MR
 * @demand: Part of an MR that the caller holds a reference to
 *
 * Context: may sleep, in bounded time.
 */
void memreg_demand_idle(struct memreg_demand *demand)
{
	/* A change of the mapping moves those that are idle to @gone. */
	memreg_demand_reap_list(demand, &demand->idle);
	memreg_demand_reap_list(demand, &demand->gone);
	/* The worker may have taken some that it has not released yet. */
	wait_var_event(&demand->releasing, !atomic_read(&demand->releasing));
}

/*
 * Take some idle extents of the next MRs of an address space. Checks at most
 * @left MRs and MEMREG_DEMAND_SEARCH extents. Returns how many of the @left MRs
 * were not checked.
 */
static unsigned int memreg_demand_take_of(struct memreg_demand_space *space,
					  unsigned int left,
					  struct list_head *taken)
{
	unsigned int looks = MEMREG_DEMAND_SEARCH, n;
	struct memreg_demand *demand;

	spin_lock(&space->lock);
	while (left && looks && list_empty(taken) &&
	       !list_empty(&space->rooms)) {
		demand = list_first_entry(&space->rooms, struct memreg_demand,
					  room);
		list_move_tail(&demand->room, &space->rooms);
		spin_lock(&demand->lock);
		n = memreg_demand_take(&demand->gone, looks, 0, taken);
		if (list_empty(taken))
			n += memreg_demand_take(&demand->idle, looks, 0,
						taken);
		spin_unlock(&demand->lock);
		looks -= min(looks, n + 1);
		left--;
	}
	if (list_empty(&space->rooms))
		left = 0;
	spin_unlock(&space->lock);
	return left;
}

/**
 * memreg_demand_can_make_room() - Can unpinning idle extents make room under
 * RLIMIT_MEMLOCK?
 * @mm: Address space of the current process, which is at its limit
 * @npages: System pages to be pinned
 *
 * Return: false if the limit is too low even if nothing of the process were
 * pinned on demand.
 */
bool memreg_demand_can_make_room(struct mm_struct *mm, unsigned long npages)
{
	struct memreg_demand_space *space = memreg_demand_space_find(mm);
	u64 pinned = atomic64_read(&mm->pinned_vm);

	if (!space)
		return false;
	pinned -= min_t(u64, pinned, atomic_long_read(&space->pinned));
	memreg_demand_space_put(space);
	return pinned + npages <= rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
}

/**
 * memreg_demand_make_room() - Unpin idle extents to make room under
 * RLIMIT_MEMLOCK
 * @mm: Address space of the current process, which is at its limit
 * @npages: System pages to unpin, at least
 *
 * Context: may sleep, in bounded time; with memreg_file.lock held.
 * Return: number of system pages that were unpinned.
 */
unsigned long memreg_demand_make_room(struct mm_struct *mm,
				      unsigned long npages)
{
	struct memreg_demand_space *space = memreg_demand_space_find(mm);
	unsigned long n, done = 0;
	unsigned int left;
	LIST_HEAD(taken);

	if (!space)
		return 0;
	left = READ_ONCE(space->nr);
	do {
		left = memreg_demand_take_of(space, left, &taken);
		n = memreg_demand_release(&taken);
		/* The MR may have more: check all of them again. */
		if (n)
			left = READ_ONCE(space->nr);
		done += n;
		cond_resched();
	} while (left && done < npages);
	memreg_demand_space_put(space);
	return done;
}

/*
 * Take some idle extents that overlap the addresses from @start to @last.
 * Returns true if there may be more, with @start moved on.
 */
static bool memreg_demand_drop_some(struct memreg_demand *demand,
				    unsigned long *start, unsigned long last,
				    unsigned long *step,
				    struct list_head *taken)
{
	unsigned int looks = MEMREG_DEMAND_SEARCH, left = MEMREG_DEMAND_BATCH;
	struct interval_tree_node *node;

	spin_lock(&demand->lock);
	node = interval_tree_iter_first(&demand->tree, *start, last);
	while (node && looks-- && left) {
		struct memreg_extent *extent =
			container_of(node, struct memreg_extent, tree_node);

		node = interval_tree_iter_next(node, *start, last);
		left -= memreg_extent_take(extent, taken);
	}
	/*
	 * The tree is sorted by first bytes, so continue from the next one. All
	 * that begin at @start or before may be in use: pass over them, in
	 * steps that double, as there may be any number of pages.
	 */
	if (node && node->start > *start) {
		*start = node->start;
		*step = PAGE_SIZE;
	} else if (node && list_empty(taken)) {
		if (check_add_overflow(*start, *step, start))
			node = NULL;
		*step *= 2;
	}
	spin_unlock(&demand->lock);
	cond_resched();
	return node && *start <= last;
}

/**
 * memreg_demand_drop() - Release the idle extents that overlap a range
 * @mr: MR on demand
 * @offset: First byte
 * @length: Bytes, from 1; the range is inside the MR
 *
 * Context: may sleep. Stops early if the removal of the device waits.
 * Return: number of system pages that were unpinned.
 */
u64 memreg_demand_drop(struct memreg_kmr *mr, u64 offset, u64 length)
{
	unsigned long start = mr->region->addr + offset;
	unsigned long last = start + length - 1;
	unsigned long step = PAGE_SIZE;
	LIST_HEAD(taken);
	u64 npages = 0;
	bool more;

	do {
		more = memreg_demand_drop_some(mr->demand, &start, last, &step,
					       &taken);
		npages += memreg_demand_release(&taken);
	} while (more && !fatal_signal_pending(current) &&
		 !rwsem_is_contended(&mr->domain->file->lock));
	return npages;
}

/*
 * Memory pressure
 */

/* Objects that an MR counts as: do_shrink_slab() passes over few of them. */
#define MEMREG_DEMAND_WEIGHT	512

/* Counts MRs, not pages: only the worker looks at which extents are idle. */
static unsigned long memreg_demand_shrink_count(struct shrinker *shrinker,
						struct shrink_control *sc)
{
	return MEMREG_DEMAND_WEIGHT *
	       list_lru_shrink_count(&memreg_demand_lru, sc) ?: SHRINK_EMPTY;
}

static enum lru_status memreg_demand_shrink_one(struct list_head *item,
						struct list_lru_one *list,
#ifdef MEMREG_LRU_WALK_LOCK
						spinlock_t *lock,
#endif
						void *arg)
{
	struct memreg_demand *demand =
		container_of(item, struct memreg_demand, lru);

	if (atomic_long_read(&demand->stats.pages.now)) {
		WRITE_ONCE(demand->shrink, true);
		memreg_demand_space_look(demand->space);
	}
	return LRU_ROTATE;
}

/*
 * Reclaim may hold locks that unpinning needs, so the worker unpins, and
 * reclaim does not wait for it. The pages that the worker unpins are on the LRU
 * lists, where a later pass of reclaim finds them.
 */
static unsigned long memreg_demand_shrink_scan(struct shrinker *shrinker,
					       struct shrink_control *sc)
{
	list_lru_shrink_walk(&memreg_demand_lru, sc, memreg_demand_shrink_one,
			     NULL);
	return SHRINK_STOP;
}

int __init memreg_demand_shrinker_init(void)
{
	memreg_demand_shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE |
						SHRINKER_MEMCG_AWARE,
						"memreg_demand");
	if (!memreg_demand_shrinker)
		return -ENOMEM;
	if (list_lru_init_memcg(&memreg_demand_lru, memreg_demand_shrinker)) {
		shrinker_free(memreg_demand_shrinker);
		return -ENOMEM;
	}
	/*
	 * Pinned pages can be reclaimed in no other way: scan at every
	 * priority.
	 */
	memreg_demand_shrinker->seeks = 0;
	memreg_demand_shrinker->count_objects = memreg_demand_shrink_count;
	memreg_demand_shrinker->scan_objects = memreg_demand_shrink_scan;
	shrinker_register(memreg_demand_shrinker);
	return 0;
}
