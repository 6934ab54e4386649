// SPDX-License-Identifier: GPL-2.0-only
/*
 * The FRWR pool: keys are made of fast registration MRs. An FRWR is taken from
 * a list of idle ones, mapped, registered and invalidated, and becomes idle
 * again.
 *
 * Normal operation
 *
 * Each domain has a list of idle FRWRs for each of a few sizes of page lists. A
 * key is made of the FRWR that has been idle for the longest time, after its
 * key byte was advanced, but only if MEMREG_FIFO_DEPTH others stay behind it in
 * the list and it has been idle for MEMREG_FIFO_IDLE_NS; otherwise a new FRWR
 * is allocated. An rkey is therefore repeated only after 256 times as many
 * grants as the list is deep (I9). New FRWRs make the list grow. A worker
 * destroys the FRWRs beyond that depth which have been idle for a long time, or
 * for any time if the kernel is short of memory. The shrinker only queues the
 * worker: destroying an MR may allocate memory, or wait for a thread that waits
 * for reclaim.
 *
 * An FRWR is mapped only while its key is dead: ib_map_mr_sg() on a live MR
 * changes the memory that the old key reaches.
 *
 * Listing the pages is most of the cost of a key. So where a driver keeps the
 * list (MEMREG_QUIRK_KEEPS_PAGE_LIST), a key is preferably made of an FRWR that
 * maps its range already, as an application that grants a buffer once often
 * grants the same buffer again. Such an FRWR may be taken from the middle of
 * the list, under the same conditions: it has been idle for
 * MEMREG_FIFO_IDLE_NS, and MEMREG_FIFO_DEPTH others became idle after it.
 *
 * Failure
 *
 * An FRWR whose work request failed or was flushed is in an unknown state. It
 * is destroyed, which kills its key in any state, and never used again (I4). A
 * registration then retries with other FRWRs, a few times. An invalidation has
 * succeeded with that: it cannot fail. A task that is killed while it waits for
 * the queue registers nothing, and destroys the FRWRs that it was to
 * invalidate.
 *
 * Packets in flight
 *
 * On a driver whose LOCAL_INV does not wait for packets that passed the key
 * check (MEMREG_QUIRK_WEAK_INV), only ib_dereg_mr() proves that no packet is
 * being copied any more: memreg_keys_revoke() therefore destroys FRWRs there.
 * An FRWR that memreg_keys_revoke_relaxed() or a guard has invalidated may
 * still serve such a packet. When it is idle, it stays on the list of the
 * region that it mapped last, and makes keys to the same range only, so that
 * its page list need not change: a responder that is still copying looks up
 * each page in the list, and in a list of another range it would find other
 * memory (I6). Before another range takes its place, or the region's pages are
 * released, the FRWR is destroyed (I1). Another range takes its place only if
 * many FRWRs are idle and this one has been idle for long, or if no new FRWR
 * can be allocated: ranges that are granted again and again would otherwise
 * keep taking FRWRs from one another.
 */
#include <kunit/visibility.h>
#include <linux/hash.h>
#include <linux/scatterlist.h>
#include <linux/sched/signal.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/fastmr.h"
#include "keys/frwr.h"
#include "keys/key.h"
#include "keys/kill.h"
#include "keys/regq.h"
#include "keys/trace.h"
#include "pages/region.h"
#include "quirks.h"
#include "stats.h"

/*
 * An idle FRWR keeps its range unless its class has so many spare FRWRs and it
 * has been idle for so long.
 */
#define MEMREG_FOREIGN_SPARES		1024
#define MEMREG_FOREIGN_IDLE_NS		(50 * NSEC_PER_MSEC)

/* Idle time after which a spare FRWR is destroyed. */
#define MEMREG_REAP_AGE_NS	(20 * NSEC_PER_SEC)
#define MEMREG_REAP_PERIOD	(10 * HZ)

/*
 * Entries of a key's list: pages of its size that its range touches, or pieces.
 */
static u32 memreg_key_pages(const struct memreg_key *key)
{
	u64 size = BIT_ULL(key->page_shift);

	if (key->gaps)
		return memreg_region_fragments(key->region, key->first,
					       key->offset, key->length);
	return ((key->iova & (size - 1)) + key->length + size - 1) >>
	       key->page_shift;
}

/* Class of FRWRs that a key is made of, once the number of pages is known. */
static u32 memreg_key_class(const struct memreg_key *key)
{
	if (key->once)
		return MEMREG_CLASSES;
	if (key->page_shift > MEMREG_PAGE_SHIFT)
		return MEMREG_CLASS_LARGE +
		       key->page_shift - MEMREG_PAGE_SHIFT - 1;
	return key->pages > 1 ? order_base_2(key->pages - 1) : 0;
}

/* Plan a key: choose its page size, the length of its list and its class. */
static void memreg_key_plan(struct memreg_key *key)
{
	struct memreg_region *region = key->region;

	key->first = memreg_region_find(region, key->offset);
	if (!key->page_shift)
		key->page_shift =
			memreg_region_range_shift(region, key->first,
						  key->offset, key->length,
						  key->iova,
						  region->mdev->page_sizes |
						  MEMREG_PAGE_SIZE);
	key->pages = memreg_key_pages(key);
	key->class = memreg_key_class(key);
}

/* Entries in the page list of an FRWR that is made for a key. */
static u32 memreg_key_entries(struct memreg_kdevice *mdev,
			      const struct memreg_key *key)
{
	if (key->once)
		return key->pages;
	if (key->class >= MEMREG_CLASS_LARGE)
		return 2;
	return min_t(u32, (1U << key->class) + 1, mdev->max_pages);
}

/*
 * FRWRs
 */

/* Allocate an FRWR that has no MR yet. */
static struct memreg_frwr *memreg_frwr_new(struct memreg_domain *domain,
					   u32 class)
{
	struct memreg_frwr *frwr;
	int ret;

	frwr = kzalloc(sizeof(*frwr), GFP_KERNEL_ACCOUNT);
	if (!frwr)
		return ERR_PTR(-ENOMEM);
	frwr->domain = domain;
	frwr->class = class;
	INIT_HLIST_NODE(&frwr->region_node);
	ret = memreg_charge(&frwr->charge, domain->mdev, false);
	if (ret) {
		kfree(frwr);
		return ERR_PTR(ret);
	}
	return frwr;
}

/* Destroy an FRWR that is on no list. Its key is dead when this returns. */
static void memreg_frwr_free(struct memreg_frwr *frwr)
{
	memreg_frwr_destroy_mr(frwr);
	memreg_uncharge(&frwr->charge, frwr->domain->mdev);
	kfree(frwr);
}

/* Allocate an FRWR, with its MR, for a planned key. */
static struct memreg_frwr *memreg_frwr_alloc(struct memreg_domain *domain,
					     const struct memreg_key *key)
{
	struct memreg_frwr *frwr;
	int ret;

	frwr = memreg_frwr_new(domain, key->class);
	if (IS_ERR(frwr))
		return frwr;
	ret = memreg_fastmr_alloc(&frwr->fast, domain->pd,
				  key->gaps ? IB_MR_TYPE_SG_GAPS :
					      IB_MR_TYPE_MEM_REG,
				  memreg_key_entries(domain->mdev, key),
				  memreg_regq_done);
	if (ret) {
		memreg_frwr_free(frwr);
		return ERR_PTR(ret);
	}
	memreg_count(domain->mdev, IB_MEMREG_STAT_FRWRS_ALLOCATED, 1);
	trace_memreg_frwr_alloc(frwr);
	return frwr;
}

/* Destroy an FRWR that was taken off by memreg_frwr_retire(). */
static void memreg_frwr_free_retired(struct memreg_frwr *frwr)
{
	struct memreg_domain *domain = frwr->domain;
	struct memreg_region *region = frwr->region;

	memreg_frwr_free(frwr);
	if (region && atomic_dec_and_test(&region->draining))
		wake_up_var(&region->draining);
	if (atomic_dec_and_test(&domain->retired))
		wake_up_var(&domain->retired);
}

static void memreg_frwr_free_list(struct list_head *frwrs)
{
	struct memreg_frwr *frwr, *next;

	list_for_each_entry_safe(frwr, next, frwrs, node) {
		list_del(&frwr->node);
		memreg_frwr_free_retired(frwr);
		cond_resched();
	}
}

/* The hash list of the idle FRWRs that may map a key's range. */
static struct list_head *memreg_mapped_list(struct memreg_domain *domain,
					    const struct memreg_key *key)
{
	u64 range = (u64)(uintptr_t)key->region + key->offset;

	return &domain->mapped[hash_64(range, MEMREG_MAPPED_BITS)];
}

/* Count the idle FRWRs above a domain's minimum. */
static void memreg_spares_add(struct memreg_domain *domain, long n)
{
	struct memreg_kdevice *mdev = domain->mdev;

	lockdep_assert_held(&mdev->frwr_lock);

	WRITE_ONCE(mdev->spares, mdev->spares + n);
	WRITE_ONCE(domain->spares, domain->spares + n);
	if (!domain->spares)
		list_del_init(&domain->spare_node);
	else if (n > 0 && list_empty(&domain->spare_node))
		list_add_tail(&domain->spare_node, &mdev->spare_domains);
}

/* Put an FRWR at the end of the idle list. */
static void memreg_idle_add(struct memreg_frwr *frwr)
{
	struct memreg_idle *idle = &frwr->domain->idle[frwr->class];

	lockdep_assert_held(&frwr->domain->mdev->frwr_lock);

	frwr->state = MEMREG_FRWR_IDLE;
	frwr->idle_number = idle->ended++;
	list_add_tail(&frwr->node, &idle->frwrs);
	WRITE_ONCE(idle->count, idle->count + 1);
	if (idle->count > MEMREG_FIFO_DEPTH)
		memreg_spares_add(frwr->domain, 1);
	if (frwr->length)
		list_add_tail(&frwr->mapped_node, frwr->mapped);
}

/* Take an FRWR off the idle list. */
static inline void memreg_idle_remove(struct memreg_frwr *frwr)
{
	struct memreg_idle *idle = &frwr->domain->idle[frwr->class];

	lockdep_assert_held(&frwr->domain->mdev->frwr_lock);

	frwr->state = MEMREG_FRWR_HELD;
	list_del(&frwr->node);
	if (idle->count > MEMREG_FIFO_DEPTH)
		memreg_spares_add(frwr->domain, -1);
	WRITE_ONCE(idle->count, idle->count - 1);
	if (frwr->length)
		list_del(&frwr->mapped_node);
}

/* Take an FRWR off the idle list and off the region that it mapped last. */
static void memreg_frwr_unlink(struct memreg_frwr *frwr)
{
	lockdep_assert_held(&frwr->domain->mdev->frwr_lock);

	hlist_del_init(&frwr->region_node);
	frwr->region = NULL;
	if (frwr->state == MEMREG_FRWR_IDLE)
		memreg_idle_remove(frwr);
	frwr->state = MEMREG_FRWR_HELD;
}

/*
 * Take an idle FRWR off its lists to destroy it. The region that it mapped last
 * is not released before memreg_frwr_free_retired().
 */
static void memreg_frwr_retire(struct memreg_frwr *frwr)
{
	lockdep_assert_held(&frwr->domain->mdev->frwr_lock);

	hlist_del_init(&frwr->region_node);
	atomic_inc(&frwr->domain->retired);
	if (frwr->region)
		atomic_inc(&frwr->region->draining);
	if (frwr->state == MEMREG_FRWR_IDLE)
		memreg_idle_remove(frwr);
}

/* Number of idle FRWRs of a class above MEMREG_FIFO_DEPTH. */
static unsigned int memreg_idle_spares(const struct memreg_domain *domain,
				       u32 class)
{
	unsigned int idle = READ_ONCE(domain->idle[class].count);

	return idle > MEMREG_FIFO_DEPTH ? idle - MEMREG_FIFO_DEPTH : 0;
}

static bool memreg_frwr_idle_long(const struct memreg_frwr *frwr, u64 now)
{
	/* @now was read earlier: the FRWR may have become idle since. */
	return (s64)(now - frwr->idle_since) >= (s64)MEMREG_FIFO_IDLE_NS;
}

/* Did MEMREG_FIFO_DEPTH others become idle after it? */
static bool memreg_frwr_is_deep(const struct memreg_frwr *frwr)
{
	return frwr->domain->idle[frwr->class].ended - frwr->idle_number >
	       MEMREG_FIFO_DEPTH;
}

/* Give an FRWR to a key, and put it on the list of the key's region. */
static void memreg_key_give(struct memreg_key *key, struct memreg_frwr *frwr)
{
	lockdep_assert_held(&frwr->domain->mdev->frwr_lock);

	key->frwr = frwr;
	if (frwr->region == key->region)
		return;
	frwr->region = key->region;
	frwr->length = 0;
	memreg_frwr_move(frwr, &key->region->frwrs);
	if (!key->region->keyed)
		return;
	frwr->holds = key->region;
	atomic_inc(&key->region->held);
}

/*
 * Could a packet in flight still copy to or from another range through this
 * FRWR? Then its page list must not change until the FRWR is destroyed.
 */
static bool memreg_frwr_is_foreign(const struct memreg_frwr *frwr,
				   const struct memreg_key *key)
{
	return frwr->domain->mdev->quirks & MEMREG_QUIRK_WEAK_INV &&
	       frwr->region && !memreg_frwr_maps(frwr, key);
}

/*
 * Can @frwr be given to another range? Only if its class has many spare FRWRs
 * and this one has been idle for MEMREG_FOREIGN_IDLE_NS.
 */
static bool memreg_frwr_may_go(const struct memreg_frwr *frwr, u64 now)
{
	return memreg_idle_spares(frwr->domain, frwr->class) >=
	       MEMREG_FOREIGN_SPARES &&
	       (s64)(now - frwr->idle_since) >= (s64)MEMREG_FOREIGN_IDLE_NS;
}

/* Hash collisions that a lookup of a range passes before it gives up. */
#define MEMREG_MAPPED_OTHERS	64

/*
 * The FRWR that maps a key's range and has been idle the longest, if it may be
 * taken before all others.
 */
static struct memreg_frwr *memreg_frwr_find(struct memreg_domain *domain,
					    const struct memreg_key *key,
					    u64 now)
{
	struct list_head *list = memreg_mapped_list(domain, key);
	unsigned int others = 0;
	struct memreg_frwr *frwr;

	list_for_each_entry(frwr, list, mapped_node) {
		if (memreg_frwr_maps(frwr, key))
			return memreg_frwr_is_deep(frwr) &&
			       memreg_frwr_idle_long(frwr, now) ? frwr : NULL;
		if (++others == MEMREG_MAPPED_OTHERS)
			break;
	}
	return NULL;
}

/* The FRWR that a key is made of if none maps its range. */
static struct memreg_frwr *memreg_frwr_oldest(struct memreg_domain *domain,
					      const struct memreg_key *key,
					      u64 now)
{
	struct memreg_frwr *frwr;

	if (!memreg_idle_spares(domain, key->class))
		return NULL;
	frwr = list_first_entry(&domain->idle[key->class].frwrs,
				struct memreg_frwr, node);
	return memreg_frwr_idle_long(frwr, now) ? frwr : NULL;
}

/* Make a key of an idle FRWR, which stays on its region's list. */
static inline void memreg_frwr_reuse(struct memreg_frwr *frwr,
				     struct memreg_key *key)
{
	memreg_idle_remove(frwr);
	trace_memreg_frwr_reuse(frwr);
	memreg_key_give(key, frwr);
}

/*
 * Take idle FRWRs that map these keys' ranges. Plans the other keys, and
 * returns the number of those.
 */
static unsigned int memreg_keys_take_mapped(struct memreg_domain *domain,
					    struct memreg_key **keys,
					    unsigned int count, u64 now)
{
	unsigned int i, left = 0;
	struct memreg_frwr *frwr;

	spin_lock(&domain->mdev->frwr_lock);
	for (i = 0; i < count; i++) {
		memreg_frwr_lock_break(domain->mdev, i);
		frwr = keys[i]->once ? NULL :
		       memreg_frwr_find(domain, keys[i], now);
		if (frwr)
			memreg_frwr_reuse(frwr, keys[i]);
		else
			left++;
	}
	spin_unlock(&domain->mdev->frwr_lock);
	memreg_count(domain->mdev, IB_MEMREG_STAT_FRWRS_REUSED, count - left);
	for (i = 0; left && i < count; i++)
		if (!keys[i]->frwr)
			memreg_key_plan(keys[i]);
	return left;
}

/*
 * Take idle FRWRs, as long as there are any, for the keys that have none.
 * Returns true if the walk ended at an FRWR that must be destroyed first, as a
 * packet may still use its range.
 */
static bool memreg_keys_take_idle(struct memreg_domain *domain,
				  struct memreg_key **keys, unsigned int count,
				  u64 now)
{
	struct memreg_frwr *frwr;
	bool foreign = false;
	unsigned int i;

	spin_lock(&domain->mdev->frwr_lock);
	for (i = 0; !foreign && i < count; i++) {
		memreg_frwr_lock_break(domain->mdev, i);
		if (keys[i]->frwr || keys[i]->once)
			continue;
		frwr = memreg_frwr_oldest(domain, keys[i], now);
		if (!frwr)
			continue;
		if (memreg_frwr_is_foreign(frwr, keys[i])) {
			foreign = memreg_frwr_may_go(frwr, now);
			continue;
		}
		memreg_frwr_reuse(frwr, keys[i]);
		memreg_count(domain->mdev, IB_MEMREG_STAT_FRWRS_REUSED, 1);
	}
	spin_unlock(&domain->mdev->frwr_lock);
	return foreign;
}

/* FRWRs that are taken off a list in one hold of frwr_lock. */
#define MEMREG_DRAIN_BATCH	64

/* Take some FRWRs off an idle list that have been there since @before. */
static bool memreg_idle_drain_some(struct memreg_domain *domain, u32 class,
				   u32 keep, u64 before,
				   struct list_head *frwrs)
{
	unsigned int n = MEMREG_DRAIN_BATCH;
	struct memreg_frwr *frwr, *next;

	spin_lock(&domain->mdev->frwr_lock);
	list_for_each_entry_safe(frwr, next, &domain->idle[class].frwrs, node) {
		if (!n || domain->idle[class].count <= keep ||
		    frwr->idle_since > before)
			break;
		memreg_frwr_retire(frwr);
		memreg_count(domain->mdev, IB_MEMREG_STAT_FRWRS_REAPED, 1);
		list_add(&frwr->node, frwrs);
		n--;
	}
	spin_unlock(&domain->mdev->frwr_lock);
	return !n;
}

/* Destroy the idle FRWRs of each class but @keep. Returns true if any were. */
static bool memreg_idle_drain(struct memreg_domain *domain, u32 keep,
			      u64 before)
{
	bool more, any = false;
	LIST_HEAD(frwrs);
	u32 class;

	for (class = 0; class < MEMREG_CLASSES; class++) {
		do {
			more = memreg_idle_drain_some(domain, class, keep,
						      before, &frwrs);
			any |= !list_empty(&frwrs);
			memreg_frwr_free_list(&frwrs);
		} while (more);
	}
	return any;
}

/* Destroy the FRWR that is next in line, if it belongs to another range. */
static void memreg_frwr_discard_foreign(struct memreg_domain *domain,
					const struct memreg_key *key,
					u64 now)
{
	struct memreg_kdevice *mdev = domain->mdev;
	struct memreg_frwr *frwr;

	spin_lock(&mdev->frwr_lock);
	frwr = memreg_frwr_oldest(domain, key, now);
	if (frwr && !memreg_frwr_is_foreign(frwr, key))
		frwr = NULL;
	if (frwr)
		memreg_frwr_retire(frwr);
	spin_unlock(&mdev->frwr_lock);
	if (!frwr)
		return;
	memreg_count(mdev, IB_MEMREG_STAT_FRWRS_FOREIGN, 1);
	trace_memreg_frwr_foreign(frwr);
	memreg_frwr_free_retired(frwr);
}

/* Get an FRWR for a planned key: an idle one, or a new one. */
static int memreg_key_take(struct memreg_domain *domain,
			   struct memreg_key *key, u64 now)
{
	struct memreg_kdevice *mdev = domain->mdev;
	struct memreg_frwr *frwr;
	bool lost;

	if (memreg_keys_take_idle(domain, &key, 1, now))
		memreg_frwr_discard_foreign(domain, key, now);
	if (key->frwr)
		return 0;
	frwr = memreg_frwr_alloc(domain, key);
	/* Idle FRWRs may hold the resources that the new one lacks. */
	if (IS_ERR(frwr) && memreg_idle_drain(domain, MEMREG_FIFO_DEPTH,
					      now - MEMREG_FIFO_IDLE_NS))
		frwr = memreg_frwr_alloc(domain, key);
	if (IS_ERR(frwr))
		return PTR_ERR(frwr);
	spin_lock(&mdev->frwr_lock);
	/* Memory of another exporter may be gone, if it is not held yet. */
	lost = key->region->keyed && key->region->guard.stale;
	if (!lost)
		memreg_key_give(key, frwr);
	spin_unlock(&mdev->frwr_lock);
	if (!lost)
		return 0;
	memreg_frwr_free(frwr);
	return -ESTALE;
}

/**
 * memreg_frwr_take() - Take an FRWR for each of some keys
 * @domain: Domain in which they are to work
 * @keys: Descriptions of the keys, without FRWRs
 * @count: Their number
 *
 * After a failure some of the keys have FRWRs.
 *
 * Context: may sleep.
 * Return: 0; -ENOMEM, -ENOSPC or -EDQUOT if no FRWR can be allocated; -ESTALE
 * if the exporter has taken the memory away; -EINTR if the task is killed.
 */
int memreg_frwr_take(struct memreg_domain *domain, struct memreg_key **keys,
		     unsigned int count)
{
	u64 now = ktime_get_ns();
	unsigned int i, left;
	int ret = 0;

	left = memreg_keys_take_mapped(domain, keys, count, now);
	if (left && count > 1)
		memreg_keys_take_idle(domain, keys, count, now);
	for (i = 0; left && !ret && i < count; i++) {
		if (keys[i]->frwr)
			continue;
		ret = fatal_signal_pending(current) ? -EINTR :
			memreg_key_take(domain, keys[i], now);
	}
	return ret;
}

/**
 * memreg_frwr_destroy() - Destroy the FRWR of a key that is claimed
 * @frwr: The FRWR
 *
 * Context: may sleep. Never fails.
 */
void memreg_frwr_destroy(struct memreg_frwr *frwr)
{
	spin_lock(&frwr->domain->mdev->frwr_lock);
	memreg_frwr_unlink(frwr);
	spin_unlock(&frwr->domain->mdev->frwr_lock);
	memreg_frwr_free(frwr);
}

/**
 * memreg_frwr_take_paged() - Register memory whose pages the device faults in
 * @domain: Domain in which the key is to work
 * @key: Description of the key; its region has no pages
 * @addr: Address of the memory in the caller's address space
 *
 * Context: may sleep.
 * Return: 0; -EDQUOT, -ENOMEM, or the driver's errno.
 */
int memreg_frwr_take_paged(struct memreg_domain *domain,
			   struct memreg_key *key, u64 addr)
{
	struct memreg_kdevice *mdev = domain->mdev;
	struct memreg_frwr *frwr;
	struct ib_mr *mr;

	frwr = memreg_frwr_new(domain, MEMREG_CLASSES);
	if (IS_ERR(frwr))
		return PTR_ERR(frwr);
	mr = ib_reg_user_mr(domain->pd, addr, key->length, key->iova,
			    (key->access & MEMREG_FRWR_ACCESS) |
			    IB_ACCESS_ON_DEMAND);
	if (IS_ERR(mr)) {
		memreg_frwr_free(frwr);
		return PTR_ERR(mr);
	}
	frwr->fast.mr = mr;
	memreg_count(mdev, IB_MEMREG_STAT_FRWRS_ALLOCATED, 1);
	trace_memreg_frwr_alloc(frwr);
	spin_lock(&mdev->frwr_lock);
	memreg_key_give(key, frwr);
	spin_unlock(&mdev->frwr_lock);
	return 0;
}

/**
 * struct memreg_klist - DMA addresses of a key's range, as drivers take them
 * @sgl: The entries
 * @nents: Number of entries
 * @before: Bytes of the first one that are before the range
 * @behind: Bytes of the last one that are behind it
 */
struct memreg_klist {
	struct scatterlist *sgl;
	u32 nents;
	u32 before;
	u32 behind;
};

/* Find the entries of the region's DMA list for a key's range. */
static void memreg_key_list(const struct memreg_key *key,
			    struct memreg_klist *list)
{
	const struct memreg_region *region = key->region;
	u64 end = key->offset + key->length;
	u32 last = key->first;

	/* A range that is mapped with larger pages lies in one entry. */
	if (end - region->offsets[last] > sg_dma_len(&region->sgl[last]))
		last = memreg_region_find(region, end - 1);
	list->sgl = &region->sgl[key->first];
	list->nents = last - key->first + 1;
	list->before = key->offset - region->offsets[key->first];
	list->behind = region->offsets[last] +
		       sg_dma_len(&region->sgl[last]) - end;
}

/*
 * Copy a list without the bytes outside the range. The offset is not passed to
 * ib_map_mr_sg(), as qedr ignores it, and hns takes only multiples of 256.
 */
static void memreg_list_trim(struct memreg_klist *list,
			     struct scatterlist *copy)
{
	u32 i;

	for (i = 0; i < list->nents; i++) {
		copy[i] = (struct scatterlist) {};
		sg_dma_address(&copy[i]) = sg_dma_address(&list->sgl[i]);
		sg_dma_len(&copy[i]) = sg_dma_len(&list->sgl[i]);
	}
	sg_mark_end(&copy[i - 1]);
	sg_dma_len(&copy[i - 1]) -= list->behind;
	sg_dma_address(&copy[0]) += list->before;
	sg_dma_len(&copy[0]) -= list->before;
	list->sgl = copy;
}

/* Most entries of a scatterlist on the stack. */
#define MEMREG_SG_ON_STACK	17

/**
 * memreg_frwr_map() - List a key's range in the FRWR behind it
 * @frwr: FRWR that is HELD
 * @key: The key, planned
 *
 * Context: may sleep.
 * Return: 0; -ENOMEM; -EINVAL if the device can't map the range.
 */
int memreg_frwr_map(struct memreg_frwr *frwr,
		    const struct memreg_key *key)
{
	struct scatterlist on_stack[MEMREG_SG_ON_STACK], *copy = on_stack;
	struct memreg_klist list;
	bool trim;
	int ret;

	memreg_key_list(key, &list);
	trim = list.before || list.behind;
	if (trim && list.nents > MEMREG_SG_ON_STACK) {
		copy = kvmalloc_array(list.nents, sizeof(*copy),
				      GFP_KERNEL_ACCOUNT);
		if (!copy)
			return -ENOMEM;
	}
	if (trim)
		memreg_list_trim(&list, copy);
	/* After a failure the page list is undefined. */
	frwr->length = 0;
	ret = memreg_fastmr_map(&frwr->fast, list.sgl, list.nents,
				BIT(key->page_shift));
	if (copy != on_stack)
		kvfree(copy);
	if (ret || !(frwr->domain->mdev->quirks & MEMREG_QUIRK_KEEPS_PAGE_LIST))
		return ret;
	frwr->mapped = memreg_mapped_list(frwr->domain, key);
	frwr->offset = key->offset;
	frwr->length = key->length;
	frwr->iova = key->iova;
	frwr->page_shift = key->page_shift;
	return 0;
}

/**
 * memreg_frwr_reap_later() - Schedule the worker that destroys idle FRWRs
 * @domain: Their domain
 */
void memreg_frwr_reap_later(struct memreg_domain *domain)
{
	/*
	 * Either the worker that the timer queues sees the new entries, or the
	 * timer is seen to have expired.
	 */
	smp_mb();
	if (!timer_pending(&domain->reap_timer))
		mod_timer(&domain->reap_timer, jiffies + MEMREG_REAP_PERIOD);
}

/**
 * memreg_frwr_set_idle() - Make the FRWR behind a dead key idle
 * @frwr: The FRWR, which stays with its region
 * @now: ktime_get_ns()
 *
 * Context: process, with frwr_lock held.
 */
void memreg_frwr_set_idle(struct memreg_frwr *frwr, u64 now)
{
	lockdep_assert_held(&frwr->domain->mdev->frwr_lock);

	frwr->idle_since = now;
	memreg_idle_add(frwr);
	trace_memreg_frwr_idle(frwr);
}

/*
 * Giving back
 */

/* Take some FRWRs off a region; those that must be destroyed go to @frwrs. */
static bool memreg_region_drain_some(struct memreg_region *region,
				     struct list_head *frwrs)
{
	struct memreg_kdevice *mdev = region->mdev;
	unsigned int n = MEMREG_DRAIN_BATCH;
	struct memreg_frwr *frwr;
	struct hlist_node *next;
	bool more;

	spin_lock(&mdev->frwr_lock);
	WARN_ON(!hlist_empty(&region->live));
	hlist_for_each_entry_safe(frwr, next, &region->frwrs, region_node) {
		if (!n--)
			break;
		/* A key is left on pages that are about to be released (I1). */
		WARN_ON(frwr->state != MEMREG_FRWR_IDLE);
		if (mdev->quirks & MEMREG_QUIRK_WEAK_INV) {
			memreg_frwr_retire(frwr);
			list_add(&frwr->node, frwrs);
		} else {
			hlist_del_init(&frwr->region_node);
			frwr->region = NULL;
		}
	}
	more = !hlist_empty(&region->frwrs);
	spin_unlock(&mdev->frwr_lock);
	return more;
}

/**
 * memreg_frwr_drain_region() - Make sure that no packet reaches a region
 * @region: Region without live keys, whose pages will be released next
 *
 * Context: may sleep.
 */
void memreg_frwr_drain_region(struct memreg_region *region)
{
	LIST_HEAD(frwrs);
	bool more;

	do {
		more = memreg_region_drain_some(region, &frwrs);
		memreg_frwr_free_list(&frwrs);
	} while (more);
	/* Other threads may be destroying FRWRs that mapped the region. */
	wait_var_event(&region->draining, !atomic_read(&region->draining));
}

/**
 * memreg_frwr_drain_domain() - Destroy the FRWRs of a domain that is being
 * destroyed
 * @domain: Domain without keys
 */
void memreg_frwr_drain_domain(struct memreg_domain *domain)
{
	memreg_idle_drain(domain, 0, U64_MAX);
	/* The regions that they mapped last may be those of other domains. */
	wait_var_event(&domain->retired, !atomic_read(&domain->retired));
}
EXPORT_SYMBOL_IF_KUNIT(memreg_frwr_drain_domain);

/* The same, but only some of each class. Returns true if there may be more. */
static bool memreg_idle_drain_slice(struct memreg_domain *domain, u32 keep,
				    u64 before)
{
	LIST_HEAD(frwrs);
	bool more = false;
	u32 class;

	for (class = 0; class < MEMREG_CLASSES; class++)
		more |= memreg_idle_drain_some(domain, class, keep, before,
					       &frwrs);
	memreg_frwr_free_list(&frwrs);
	return more;
}

/*
 * Destroy spare FRWRs that have been idle for long, or any if memory is short.
 * Domains take turns.
 */
static void memreg_frwr_reap_some(struct memreg_domain *domain)
{
	bool squeeze = xchg(&domain->squeeze, false);
	u64 age = squeeze ? 0 : MEMREG_REAP_AGE_NS;
	u64 now = ktime_get_ns();

	if (now > age &&
	    memreg_idle_drain_slice(domain, MEMREG_FIFO_DEPTH, now - age)) {
		if (squeeze)
			WRITE_ONCE(domain->squeeze, true);
		memreg_user_work_queue(&domain->reap);
	} else if (READ_ONCE(domain->spares)) {
		memreg_frwr_reap_later(domain);
	}
}

static void memreg_frwr_reap(struct work_struct *work)
{
	struct memreg_domain *domain =
		container_of(work, struct memreg_domain, reap.work);

	memreg_frwr_reap_some(domain);
	memreg_user_work_end(&domain->reap);
}

static void memreg_frwr_reap_timer(struct timer_list *timer)
{
	struct memreg_domain *domain =
		container_of(timer, struct memreg_domain, reap_timer);

	memreg_user_work_queue(&domain->reap);
}

static unsigned long memreg_frwr_shrink_count(struct shrinker *shrinker,
					      struct shrink_control *sc)
{
	struct memreg_kdevice *mdev = shrinker->private_data;

	return READ_ONCE(mdev->spares) ?: SHRINK_EMPTY;
}

/* Domains whose reap worker one shrinker scan queues. */
#define MEMREG_SHRINK_DOMAINS	8

static unsigned long memreg_frwr_shrink_scan(struct shrinker *shrinker,
					     struct shrink_control *sc)
{
	struct memreg_kdevice *mdev = shrinker->private_data;
	unsigned int n = MEMREG_SHRINK_DOMAINS;
	struct memreg_domain *domain;

	spin_lock(&mdev->frwr_lock);
	while (n-- && !list_empty(&mdev->spare_domains)) {
		domain = list_first_entry(&mdev->spare_domains,
					  struct memreg_domain, spare_node);
		list_move_tail(&domain->spare_node, &mdev->spare_domains);
		WRITE_ONCE(domain->squeeze, true);
		memreg_user_work_queue(&domain->reap);
	}
	spin_unlock(&mdev->frwr_lock);
	/* The worker frees memory later, and reclaim must not wait for it. */
	return SHRINK_STOP;
}

/**
 * memreg_frwr_init_domain() - Initialize the FRWR lists of a domain
 * @domain: New domain, whose file is set
 */
void memreg_frwr_init_domain(struct memreg_domain *domain)
{
	unsigned int i;

	for (i = 0; i < MEMREG_CLASSES; i++)
		INIT_LIST_HEAD(&domain->idle[i].frwrs);
	for (i = 0; i < ARRAY_SIZE(domain->mapped); i++)
		INIT_LIST_HEAD(&domain->mapped[i]);
	INIT_LIST_HEAD(&domain->spare_node);
	timer_setup(&domain->reap_timer, memreg_frwr_reap_timer, 0);
	memreg_user_work_init(&domain->reap, domain->file->user,
			      MEMREG_WORK_REAP, memreg_frwr_reap);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_frwr_init_domain);

/**
 * memreg_frwr_forget_domain() - Remove a domain from the shrinker's list
 * @domain: Domain that is being destroyed
 */
void memreg_frwr_forget_domain(struct memreg_domain *domain)
{
	spin_lock(&domain->mdev->frwr_lock);
	list_del_init(&domain->spare_node);
	spin_unlock(&domain->mdev->frwr_lock);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_frwr_forget_domain);

/**
 * memreg_frwr_shrinker() - Register a device's shrinker of idle FRWRs
 * @mdev: Device; the caller frees its shrinker
 *
 * Return: 0 or -ENOMEM.
 */
int memreg_frwr_shrinker(struct memreg_kdevice *mdev)
{
	mdev->shrinker = shrinker_alloc(0, "memreg:%s", mdev->name);
	if (!mdev->shrinker)
		return -ENOMEM;
	mdev->shrinker->count_objects = memreg_frwr_shrink_count;
	mdev->shrinker->scan_objects = memreg_frwr_shrink_scan;
	mdev->shrinker->private_data = mdev;
	shrinker_register(mdev->shrinker);
	return 0;
}
