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
 * A worker releases idle extents, with one work item for each address space.
 * Removing a guard waits for unmaps that are in progress in that address space,
 * and a process with several threads can prolong that wait. With one work item
 * a process delays at most one thread, however many MRs it has, and a user only
 * some (turns.c). The MRs of an address space take turns.
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
#include <linux/hash.h>
#include <linux/list_lru.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/wait.h>
#include <linux/wait_bit.h>

#include "core.h"
#include "device.h"
#include "mem/demand.h"
#include "mem/domain.h"
#include "mem/frwr.h"
#include "mem/guard.h"
#include "mem/mr.h"
#include "mem/notifier.h"
#include "mem/region.h"
#include "mem/trace.h"
#include "mem/watch.h"
#include "stats.h"

/* Age at which an idle extent is released, and period of that check */
#define MEMREG_DEMAND_AGE	(10 * HZ)
#define MEMREG_DEMAND_PERIOD	(2 * HZ)

/* Delay of a round for retired extents, so that it serves many of them */
#define MEMREG_DEMAND_DELAY	(HZ / 50)

/* Extents that are checked, or taken off a list, before the lock is dropped */
#define MEMREG_DEMAND_BATCH	32

/* Extents at an address that a lookup checks before it makes another one */
#define MEMREG_DEMAND_LOOKS	16

/* Extents that a search for idle ones checks under one hold of the lock */
#define MEMREG_DEMAND_SEARCH	512

/* Steps of a work item before it is requeued */
#define MEMREG_DEMAND_TURN	64

/* Attempts to pin, if the mapping changes meanwhile */
#define MEMREG_DEMAND_ATTEMPTS	8

/*
 * Bits of memreg_extent.state, cleared by the first use: made by that use, or
 * by MR_ADVISE
 */
#define MEMREG_EXTENT_FRESH	0
#define MEMREG_EXTENT_PREFETCHED	1

/**
 * struct memreg_extent - Some pages of an MR on demand
 * @mr: What work requests and windows hold references to; @demand holds one
 *	until the extent is taken off its list
 * @demand: MR on demand that it belongs to
 * @tree_node: In memreg_demand.tree; memreg_demand.lock
 * @node: In memreg_demand.idle or memreg_demand.gone; memreg_demand.lock
 * @gone: It is not in memreg_demand.tree any more; memreg_demand.lock
 * @used: Jiffies of its last use; memreg_demand.lock
 * @state: MEMREG_EXTENT_*
 */
struct memreg_extent {
	struct memreg_kmr mr;
	struct memreg_demand *demand;
	struct interval_tree_node tree_node;
	struct list_head node;
	bool gone;
	unsigned long used;
	unsigned long state;
};

/**
 * struct memreg_demand_space - MRs on demand of an address space
 * @node: In memreg_demand_spaces; memreg_demand_spaces_lock
 * @mm: The address space; the MRs hold references to it
 * @users: References of the MRs and of callers; memreg_demand_spaces_lock
 * @lock: Protects the fields below; memreg_demand.lock nests in it
 * @demands: The MRs; the worker serves the first, then moves it to the tail
 * @rooms: The MRs again, in the order of memreg_demand_make_room()
 * @nr: Number of MRs
 * @left: MRs that the worker has still to serve in this round
 * @rests: An MR that was served in this round has extents left: another round
 *	follows after MEMREG_DEMAND_PERIOD
 * @again: Start a new round of all MRs at once; no lock
 * @retired: Extents were retired since this round began: another round follows
 *	after MEMREG_DEMAND_DELAY; no lock
 * @user: The user who has registered the first one
 * @reap: Releases idle extents
 * @timer: Queues @reap
 */
struct memreg_demand_space {
	struct hlist_node node;
	struct mm_struct *mm;
	unsigned int users;
	spinlock_t lock;
	struct list_head demands;
	struct list_head rooms;
	unsigned int nr;
	unsigned int left;
	bool rests;
	bool again;
	bool retired;
	struct memreg_user *user;
	struct memreg_turn reap;
	struct timer_list timer;
};

#define MEMREG_DEMAND_SPACES_BITS	8

static DEFINE_SPINLOCK(memreg_demand_spaces_lock);
static struct hlist_head memreg_demand_spaces[1U << MEMREG_DEMAND_SPACES_BITS];

/* MRs on demand by memory cgroup and NUMA node, for the shrinker */
static struct list_lru memreg_demand_lru;
static struct kmem_cache *memreg_demand_cache;
static struct shrinker *memreg_demand_shrinker;

static struct memreg_extent *memreg_to_extent(struct memreg_kmr *mr)
{
	return container_of(mr, struct memreg_extent, mr);
}

/* Counters of the domain that an MR on demand belongs to */
static struct memreg_demand_stats *
memreg_demand_domain_stats(struct memreg_demand *demand)
{
	return &demand->mr->domain->demand;
}

/* Count an event for the MR, its domain, and the device. */
static void memreg_demand_count(struct memreg_demand *demand,
				enum memreg_demand_event event)
{
	static_assert(IB_MEMREG_STAT_DEMAND_FAULTS + MEMREG_DEMAND_EVENTS - 1 ==
		      IB_MEMREG_STAT_DEMAND_PREFETCH_HITS);

	atomic64_inc(&demand->stats.events[event]);
	atomic64_inc(&memreg_demand_domain_stats(demand)->events[event]);
	memreg_count(demand->mr->region->mdev,
		     IB_MEMREG_STAT_DEMAND_FAULTS + event, 1);
}

/*
 * The region of the MR itself
 */

static void memreg_demand_region_release(struct memreg_region *region)
{
	mmdrop(region->mm);
}

/* This region has no pages of its own, so it needs no other operation. */
static const struct memreg_source memreg_demand_source = {
	.release = memreg_demand_region_release,
};

/*
 * Address spaces
 */

static void memreg_demand_reap(struct work_struct *work);

static void memreg_demand_timer(struct timer_list *timer)
{
	struct memreg_demand_space *space =
		container_of(timer, struct memreg_demand_space, timer);

	memreg_turn_queue(&space->reap);
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
	memreg_turn_init(&space->reap, space->user, MEMREG_TURNS_DEMAND,
			 memreg_demand_reap);
	timer_setup(&space->timer, memreg_demand_timer, 0);
	return space;
}

static void memreg_demand_space_free(struct memreg_demand_space *space)
{
	timer_shutdown_sync(&space->timer);
	memreg_turn_disable(&space->reap);
	memreg_user_put(space->user);
	kfree(space);
}

static void memreg_demand_space_put(struct memreg_demand_space *space)
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
static struct memreg_demand_space *memreg_demand_space_get(struct mm_struct *mm)
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
	memreg_turn_queue(&space->reap);
}

/*
 * Have the worker serve all MRs of an address space after MEMREG_DEMAND_DELAY.
 * Only the first caller of a round sets the timer, so the others neither
 * postpone the next round nor add one.
 */
static void memreg_demand_space_look_soon(struct memreg_demand_space *space)
{
	if (!xchg(&space->retired, true) && !READ_ONCE(space->again))
		timer_reduce(&space->timer, jiffies + MEMREG_DEMAND_DELAY);
}

/* Have the worker serve the address space after MEMREG_DEMAND_PERIOD. */
static void memreg_demand_space_look_later(struct memreg_demand_space *space)
{
	timer_reduce(&space->timer, jiffies + MEMREG_DEMAND_PERIOD);
}

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
 * Release
 */

/* Count the pages of an extent, for the MR, its domain, and the device. */
static void memreg_extent_count_pin(struct memreg_extent *extent)
{
	struct memreg_demand *demand = extent->demand;
	struct memreg_kdevice *mdev = extent->mr.region->mdev;
	unsigned long npages = extent->mr.region->npages;
	unsigned long more;

	extent->mr.pinned = npages;
	atomic64_add(npages, &extent->mr.domain->file->pinned);
	memreg_demand_pages_pin(&demand->stats.pages, npages);
	memreg_demand_pages_pin(&memreg_demand_domain_stats(demand)->pages,
				npages);
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
	atomic_long_sub(npages, &demand->stats.pages.now);
	atomic_long_sub(npages, &memreg_demand_domain_stats(demand)->pages.now);
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
static bool memreg_extent_take(struct memreg_extent *extent,
			       struct list_head *taken)
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
static unsigned long memreg_demand_release(struct list_head *taken)
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

/* Memory cgroups whose reclaim can wait at the same time */
#define MEMREG_SQUEEZES		32

/**
 * struct memreg_squeeze - A memory cgroup whose MRs have to unpin their idle
 * extents
 * @memcg: The cgroup; only compared, so it needs no reference
 * @left: MRs that the worker has still to serve; at 0 the entry is free
 */
struct memreg_squeeze {
	struct mem_cgroup *memcg;
	unsigned int left;
};

/*
 * The last entry is shared by cgroups that found no free one; none waits on it.
 */
static struct memreg_squeeze memreg_squeezes[MEMREG_SQUEEZES + 1];
static DEFINE_SPINLOCK(memreg_squeeze_lock);
static DECLARE_WAIT_QUEUE_HEAD(memreg_squeeze_wait);

/* The idle extents of an MR are released: reclaim stops waiting for it. */
static void memreg_squeeze_end(struct memreg_demand *demand)
{
	struct memreg_squeeze *squeeze;

	spin_lock(&memreg_squeeze_lock);
	squeeze = demand->squeeze;
	demand->squeeze = NULL;
	if (squeeze && !--squeeze->left)
		wake_up_all(&memreg_squeeze_wait);
	spin_unlock(&memreg_squeeze_lock);
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
	space->rests |= READ_ONCE(demand->nr);
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
	bool more, squeeze;

	spin_lock(&space->lock);
	demand = list_first_entry_or_null(&space->demands,
					  struct memreg_demand, node);
	squeeze = demand && READ_ONCE(demand->squeeze);
	if (!demand) {
		space->left = 0;
	} else if (memreg_demand_take_some(demand, squeeze ? 0 :
					   MEMREG_DEMAND_AGE, &taken)) {
		/* The step before this one has released what it took. */
		if (squeeze)
			memreg_squeeze_end(demand);
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
	bool more, rests;

	spin_lock(&space->lock);
	if (xchg(&space->again, false) || !space->left) {
		/* Before the lists are read, so that no extent is missed. */
		xchg(&space->retired, false);
		space->left = space->nr;
		space->rests = false;
	}
	spin_unlock(&space->lock);
	do {
		more = memreg_demand_reap_some(space);
		cond_resched();
	} while (more && --steps);
	spin_lock(&space->lock);
	rests = space->rests;
	spin_unlock(&space->lock);
	if (more)
		memreg_turn_queue(&space->reap);
	else if (READ_ONCE(space->retired) && !READ_ONCE(space->again))
		timer_reduce(&space->timer, jiffies + MEMREG_DEMAND_DELAY);
	else if (rests)
		memreg_demand_space_look_later(space);
	memreg_turn_end(&space->reap);
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

/* Count a fault in the class of its duration. */
static void memreg_demand_count_wait(struct memreg_demand *demand, u64 ns)
{
	unsigned int class = memreg_demand_stats_class(ns);

	atomic64_inc(&demand->stats.wait[class]);
	atomic64_inc(&memreg_demand_domain_stats(demand)->wait[class]);
	memreg_count(demand->mr->region->mdev,
		     IB_MEMREG_STAT_DEMAND_WAIT + class, 1);
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
	memreg_squeeze_end(demand);
	memreg_demand_space_put(demand->space);
	atomic_dec(&mr->domain->file->demands);
	kmem_cache_free(memreg_demand_cache, demand);
	mr->demand = NULL;
}

/*
 * Memory pressure
 */

/* Time that reclaim waits until the worker has released idle extents */
#define MEMREG_DEMAND_PATIENCE	msecs_to_jiffies(50)

/*
 * After a wait for another cgroup's MRs has timed out, no task waits so long.
 */
#define MEMREG_DEMAND_VAIN	HZ

static unsigned long memreg_squeeze_vain_until;

/* Objects that an MR counts as: do_shrink_slab() passes over few of them. */
#define MEMREG_DEMAND_WEIGHT	512

/* Find the entry of a cgroup; NULL if none of its MRs is left to serve. */
static struct memreg_squeeze *memreg_squeeze_find(struct mem_cgroup *memcg)
{
	unsigned int i;

	lockdep_assert_held(&memreg_squeeze_lock);

	for (i = 0; i < MEMREG_SQUEEZES; i++)
		if (memreg_squeezes[i].left &&
		    memreg_squeezes[i].memcg == memcg)
			return &memreg_squeezes[i];
	return NULL;
}

static struct memreg_squeeze *memreg_squeeze_get(struct mem_cgroup *memcg)
{
	struct memreg_squeeze *squeeze = memreg_squeeze_find(memcg);

	if (squeeze)
		return squeeze;
	squeeze = memreg_squeezes;
	while (squeeze->left && squeeze != &memreg_squeezes[MEMREG_SQUEEZES])
		squeeze++;
	squeeze->memcg = memcg;
	return squeeze;
}

static bool memreg_squeeze_is_over(struct mem_cgroup *memcg)
{
	bool ret;

	spin_lock(&memreg_squeeze_lock);
	ret = !memreg_squeeze_find(memcg);
	spin_unlock(&memreg_squeeze_lock);
	return ret;
}

/* Counts MRs, not pages: only the worker looks at which extents are idle. */
static unsigned long memreg_demand_shrink_count(struct shrinker *shrinker,
						struct shrink_control *sc)
{
	return MEMREG_DEMAND_WEIGHT *
	       list_lru_shrink_count(&memreg_demand_lru, sc) ?: SHRINK_EMPTY;
}

static enum lru_status memreg_demand_squeeze(struct list_head *item,
					     struct list_lru_one *list,
#ifdef MEMREG_LRU_WALK_LOCK
					     spinlock_t *lock,
#endif
					     void *memcg)
{
	struct memreg_demand *demand =
		container_of(item, struct memreg_demand, lru);

	if (!atomic_long_read(&demand->stats.pages.now))
		return LRU_ROTATE;
	spin_lock(&memreg_squeeze_lock);
	if (!demand->squeeze) {
		demand->squeeze = memreg_squeeze_get(memcg);
		demand->squeeze->left++;
	}
	spin_unlock(&memreg_squeeze_lock);
	memreg_demand_space_look(demand->space);
	return LRU_ROTATE;
}

/* Is the current task in the cgroup that is short of memory? */
static bool memreg_squeeze_is_own(struct mem_cgroup *memcg)
{
	return memcg && parent_mem_cgroup(memcg) && current->mm &&
	       mm_match_cgroup(current->mm, memcg);
}

/*
 * Wait until the worker has served the MRs of a cgroup. A process can prolong
 * that, and should not delay reclaim of tasks outside its cgroup again and
 * again: after one such wait has timed out, they skip it for
 * MEMREG_DEMAND_VAIN.
 */
static void memreg_squeeze_await(struct mem_cgroup *memcg)
{
	bool own = memreg_squeeze_is_own(memcg);

	if (!own && time_before(jiffies, READ_ONCE(memreg_squeeze_vain_until)))
		return;
	if (!wait_event_timeout(memreg_squeeze_wait,
				memreg_squeeze_is_over(memcg),
				MEMREG_DEMAND_PATIENCE) && !own)
		WRITE_ONCE(memreg_squeeze_vain_until,
			   jiffies + MEMREG_DEMAND_VAIN);
}

/*
 * Reclaim may hold locks that unpinning needs, so the worker unpins, and
 * reclaim waits a short time for it. The pages that the worker unpins are on
 * the LRU lists, where the next pass of reclaim finds them.
 */
static unsigned long memreg_demand_shrink_scan(struct shrinker *shrinker,
					       struct shrink_control *sc)
{
	list_lru_shrink_walk(&memreg_demand_lru, sc, memreg_demand_squeeze,
			     sc->memcg);
	if (!current_is_kswapd())
		memreg_squeeze_await(sc->memcg);
	return SHRINK_STOP;
}

static int __init memreg_demand_shrinker_init(void)
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
