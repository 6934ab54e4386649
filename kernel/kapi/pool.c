// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pools of fast registration MRs for other kernel modules.
 *
 * Growing and shrinking
 *
 * Another worker allocates new MRs in place of destroyed ones: requests may be
 * waiting for these, and reclaim for the requests. So it never waits for a
 * thread that may wait for memory, and if the pool has reserves, it allocates
 * with access to the kernel's memory reserves: no more than was freed when the
 * MRs were destroyed.
 *
 * A worker adds MRs when the list runs low. When a request was refused it
 * doubles their number, or adds what the request needs if that is more, so that
 * a pool that begins small is large enough after a few steps. It frees those
 * that were on the list during a whole period. Reclaim may be waiting for this
 * worker, so it has a rescuer, and allocates without I/O. The shrinker only
 * queues it: destroying an MR may wait for a thread that waits for memory.
 * There is one shrinker for all pools: registering and freeing a shrinker takes
 * a mutex that other threads hold while they wait for memory, and pools come
 * and go with connections, for which reclaim may be waiting.
 */
#include <kunit/visibility.h>
#include <linux/cpumask.h>
#include <linux/dma-mapping.h>
#include <linux/sched/mm.h>
#include <linux/shrinker.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "kapi/kapi.h"
#include "kapi/trace.h"
#include "keys/fastmr.h"
#include "quirks.h"

/* Maximum of max_count. */
#define MEMREG_POOL_MAX		BIT(20)

/* Pages of an MR, unless the pool asks for more. */
#define MEMREG_POOL_PAGES	512

/* Idle time after which an MR is freed. */
#define MEMREG_POOL_AGE		(10 * HZ)

/* Delay before a failed allocation is tried again. */
#define MEMREG_POOL_RETRY	(HZ / 4)

/*
 * Three workqueues: for workers of requests, for which reclaim may be waiting;
 * for those that replace MRs for requests; and for those that grow and shrink
 * pools, which may wait for memory. No work may be queued behind work of
 * another kind.
 */
struct workqueue_struct *memreg_req_wq;
static struct workqueue_struct *memreg_refill_wq;

/* All pools, for the shrinker. */
static DEFINE_SPINLOCK(memreg_pools_lock);
static LIST_HEAD(memreg_pools);
struct shrinker *memreg_mrpool_shrinker;
EXPORT_SYMBOL_IF_KUNIT(memreg_mrpool_shrinker);
/*
 * Replacing
 */

/**
 * memreg_mrpool_replace_later() - Have a worker replace what was destroyed
 * @mr: Without an MR, and mapped for DMA no more; not to be touched afterwards
 *
 * Context: any that ib_post_send() may be called in.
 */
void memreg_mrpool_replace_later(struct ib_memreg_mr *mr)
{
	struct ib_memreg_pool *pool = mr->pool;

	atomic_inc(&pool->nr_to_replace);
	llist_add(&mr->node, &pool->to_replace);
	mod_delayed_work(memreg_refill_wq, &pool->refill, 0);
}

/* Allocate anew what was destroyed, and put it. If that fails, try again. */
static void memreg_mrpool_replace(struct ib_memreg_mr *mr)
{
	struct ib_memreg_pool *pool = mr->pool;

	if (READ_ONCE(pool->closing) || memreg_mrpool_fast(mr)) {
		llist_add(&mr->node, &pool->to_replace);
		if (!READ_ONCE(pool->closing))
			queue_delayed_work(memreg_refill_wq, &pool->refill,
					   MEMREG_POOL_RETRY);
		return;
	}
	mr->state = MEMREG_MR_DEAD;
	atomic_dec(&pool->nr_to_replace);
	atomic64_inc(&pool->replaced);
	trace_memreg_pool_replace(mr);
	memreg_mrpool_put_mr(mr);
}

static void memreg_mrpool_refill_work(struct work_struct *work)
{
	struct ib_memreg_pool *pool =
		container_of(work, struct ib_memreg_pool, refill.work);
	struct llist_node *to_replace = llist_del_all(&pool->to_replace);
	struct ib_memreg_mr *mr, *next;

	llist_for_each_entry_safe(mr, next, to_replace, node) {
		/*
		 * The owner of a reserve may need this MR to free memory, if
		 * not now then while the MR is being allocated. The new MR
		 * takes as much memory as the one before it gave back.
		 */
		bool reserves = READ_ONCE(pool->reserved);
		unsigned int flags = reserves ? memalloc_noreclaim_save() :
						memalloc_noio_save();

		memreg_mrpool_replace(mr);
		if (reserves)
			memalloc_noreclaim_restore(flags);
		else
			memalloc_noio_restore(flags);
		memreg_mrpool_check_wanted(pool);
		cond_resched();
	}
}

/*
 * Growing and shrinking
 */

/* Number of MRs to add. */
static u32 memreg_mrpool_more(struct ib_memreg_pool *pool)
{
	u32 want = max(2 * memreg_mrpool_low(pool), pool->nr_slots);
	u32 lacking, idle;

	lockdep_assert_held(&pool->mutex);

	raw_spin_lock_irq(&pool->lock);
	/* Those that wait still need what others have taken meanwhile. */
	lacking = max(pool->lacking, pool->wanted);
	pool->lacking = 0;
	idle = pool->idle.count;
	raw_spin_unlock_irq(&pool->lock);
	if (lacking)
		return max(lacking, pool->total);
	return idle < pool->low ? want - idle : 0;
}

/*
 * Get more MRs if the list runs low, or was too short; false if there are none
 * to be had.
 */
static bool memreg_mrpool_grow(struct ib_memreg_pool *pool)
{
	u32 more = memreg_mrpool_more(pool);
	int ret = 0;

	lockdep_assert_held(&pool->mutex);

	while (more && !ret && !READ_ONCE(pool->closing) &&
	       pool->total < pool->max_count + pool->reserved) {
		ret = memreg_mrpool_add(pool, &pool->idle);
		if (!ret)
			WRITE_ONCE(pool->grown, pool->grown + 1);
		memreg_mrpool_check_wanted(pool);
		more--;
		cond_resched();
	}
	memreg_mrpool_set_low(pool);
	return !ret;
}

/* MRs that there may be less of. */
static u32 memreg_mrpool_spares(const struct ib_memreg_pool *pool)
{
	u32 floor = READ_ONCE(pool->count) + READ_ONCE(pool->reserved);
	u32 total = READ_ONCE(pool->total);

	return total > floor ? total - floor : 0;
}

/* Free MRs that were not needed for a period. */
static void memreg_mrpool_age(struct ib_memreg_pool *pool)
{
	u32 idle = READ_ONCE(pool->idle_low), keep = memreg_mrpool_low(pool);
	u32 spares;

	lockdep_assert_held(&pool->mutex);

	if (time_before(jiffies, pool->age_next))
		return;
	spares = memreg_mrpool_spares(pool);
	if (idle > keep)
		idle = memreg_mrpool_remove_some(pool, &pool->idle,
						 min(idle - keep, spares));
	else
		idle = 0;
	WRITE_ONCE(pool->shrunk, pool->shrunk + idle);
	memreg_mrpool_set_low(pool);
	raw_spin_lock_irq(&pool->lock);
	pool->idle_low = pool->idle.count;
	raw_spin_unlock_irq(&pool->lock);
	pool->age_next = jiffies + MEMREG_POOL_AGE;
}

/* Free all idle MRs above the pool's minimum. */
static void memreg_mrpool_do_shrink(struct ib_memreg_pool *pool)
{
	struct ib_memreg_mr *mr;
	u32 n;

	lockdep_assert_held(&pool->mutex);

	n = memreg_mrpool_remove_some(pool, &pool->idle,
				      memreg_mrpool_spares(pool));
	while (memreg_mrpool_spares(pool)) {
		mr = memreg_mrpool_steal(pool);
		if (!mr)
			break;
		memreg_mrpool_remove(pool, mr);
		n++;
	}
	WRITE_ONCE(pool->shrunk, pool->shrunk + n);
	memreg_mrpool_set_low(pool);
}

static void memreg_mrpool_work(struct work_struct *work)
{
	struct ib_memreg_pool *pool =
		container_of(work, struct ib_memreg_pool, work.work);
	unsigned int noio = memalloc_noio_save();
	bool grown = true;

	xchg(&pool->kicked, false);
	mutex_lock(&pool->mutex);
	/*
	 * Freed MRs are not allocated again at once; a caller that takes an MR
	 * queues the worker.
	 */
	if (xchg(&pool->shrink, false))
		memreg_mrpool_do_shrink(pool);
	else
		grown = memreg_mrpool_grow(pool);
	if (!READ_ONCE(pool->wanted))
		memreg_mrpool_age(pool);
	mutex_unlock(&pool->mutex);
	/* A request that was refused may have found enough after all. */
	memreg_mrpool_check_wanted(pool);
	memalloc_noio_restore(noio);

	/* The pool grows until nobody waits, or as far as it may. */
	if (!grown || (READ_ONCE(pool->wanted) && READ_ONCE(pool->low)))
		queue_delayed_work(memreg_mrpool_wq, &pool->work,
				   MEMREG_POOL_RETRY);
	else if (memreg_mrpool_spares(pool))
		queue_delayed_work(memreg_mrpool_wq, &pool->work,
				   MEMREG_POOL_AGE);
}

static unsigned long memreg_mrpool_shrink_count(struct shrinker *shrinker,
						struct shrink_control *sc)
{
	struct ib_memreg_pool *pool;
	unsigned long spares = 0;

	spin_lock(&memreg_pools_lock);
	list_for_each_entry(pool, &memreg_pools, node)
		spares += min(memreg_mrpool_spares(pool),
			      READ_ONCE(pool->idle.count));
	spin_unlock(&memreg_pools_lock);
	return spares ?: SHRINK_EMPTY;
}

static unsigned long memreg_mrpool_shrink_scan(struct shrinker *shrinker,
					       struct shrink_control *sc)
{
	struct ib_memreg_pool *pool;

	spin_lock(&memreg_pools_lock);
	list_for_each_entry(pool, &memreg_pools, node) {
		if (!memreg_mrpool_spares(pool))
			continue;
		WRITE_ONCE(pool->shrink, true);
		memreg_mrpool_kick(pool);
	}
	spin_unlock(&memreg_pools_lock);
	/* The worker frees MRs later, and reclaim can't wait for that. */
	return SHRINK_STOP;
}

static int __init memreg_mrpool_shrinker_init(void)
{
	memreg_mrpool_shrinker = shrinker_alloc(0, "memreg-pools");
	if (!memreg_mrpool_shrinker)
		return -ENOMEM;
	memreg_mrpool_shrinker->count_objects = memreg_mrpool_shrink_count;
	memreg_mrpool_shrinker->scan_objects = memreg_mrpool_shrink_scan;
	shrinker_register(memreg_mrpool_shrinker);
	return 0;
}

/*
 * Pools
 */

static int memreg_mrpool_check(struct ib_pd *pd,
			       const struct ib_memreg_pool_attr *attr)
{
	u32 max_count = attr->max_count ?: attr->count;

	if (!attr->count || max_count < attr->count ||
	    max_count > MEMREG_POOL_MAX ||
	    attr->flags & ~IB_MEMREG_POOL_SG_GAPS)
		return -EINVAL;
	if (attr->numa_node != NUMA_NO_NODE &&
	    (attr->numa_node < 0 || attr->numa_node >= nr_node_ids ||
	     !node_possible(attr->numa_node)))
		return -EINVAL;
	return ib_memreg_max_pages(pd->device) ? 0 : -EOPNOTSUPP;
}

/* Most bytes of memory that are mapped for DMA in one piece. */
static u32 memreg_mrpool_max_seg(struct ib_device *ibdev)
{
	size_t max = ib_dma_max_seg_size(ibdev);

	/* Less if they are copied to where the device reaches them. */
	if (!ib_uses_virt_dma(ibdev))
		max = min(max, dma_max_mapping_size(ibdev->dma_device));
	return clamp_t(size_t, max, PAGE_SIZE, SZ_1G);
}

/*
 * States of keys which the pool must not trust on this device (I1): an
 * invalidated key may still be used by packets in flight. A key that the peer
 * has invalidated may even work again, as the device may repeat the REG_MR
 * (MEMREG_QUIRK_REPEATS_REG_MR) until the SEND behind it has completed.
 */
static u8 memreg_mrpool_weak(struct ib_device *ibdev)
{
	if (!(memreg_quirks(ibdev) & MEMREG_QUIRK_WEAK_INV))
		return 0;
	return BIT(MEMREG_MR_LOCAL) | BIT(MEMREG_MR_REMOTE);
}

/* Set the properties of a pool, from its attributes and from the device. */
static void memreg_mrpool_describe(struct ib_memreg_pool *pool,
				   struct ib_pd *pd,
				   const struct ib_memreg_pool_attr *attr)
{
	struct ib_device *ibdev = pd->device;
	u32 pages = ib_memreg_max_pages(ibdev);

	pool->pd = pd;
	pool->numa_node = attr->numa_node;
	pool->count = attr->count;
	pool->max_count = attr->max_count ?: attr->count;
	pool->nr_slots = memreg_mrpool_nr_slots(attr->count);
	pool->available = attr->available;
	pool->context = attr->context;
	pool->max_pages = attr->max_pages && attr->max_pages <= pages ?
				  attr->max_pages :
				  min_t(u32, pages, MEMREG_POOL_PAGES);
	pool->max_seg = memreg_mrpool_max_seg(ibdev);
	pool->weak = memreg_mrpool_weak(ibdev);
	pool->repeats_reg = memreg_quirks(ibdev) & MEMREG_QUIRK_REPEATS_REG_MR;
	pool->sg_gaps = attr->flags & IB_MEMREG_POOL_SG_GAPS &&
			ibdev->attrs.kernel_cap_flags & IBK_SG_GAPS_REG;
}

static void memreg_mrpool_setup(struct ib_memreg_pool *pool)
{
	mutex_init(&pool->mutex);
	raw_spin_lock_init(&pool->lock);
	INIT_LIST_HEAD(&pool->mrs);
	INIT_LIST_HEAD(&pool->reserves);
	init_llist_head(&pool->to_replace);
	INIT_DELAYED_WORK(&pool->refill, memreg_mrpool_refill_work);
	INIT_DELAYED_WORK(&pool->work, memreg_mrpool_work);
	pool->age_next = jiffies + MEMREG_POOL_AGE;
}

/* Free what a pool has; it may be in any state of being made. */
static void memreg_mrpool_free(struct ib_memreg_pool *pool)
{
	struct ib_memreg_mr *mr, *next;

	list_for_each_entry_safe(mr, next, &pool->mrs, all) {
		memreg_mrpool_mr_free(mr);
		cond_resched();
	}
	free_percpu(pool->cpus);
	kfree(pool->name);
	kfree(pool);
}

static int memreg_mrpool_alloc(struct ib_memreg_pool *pool, const char *name)
{
	struct memreg_mrpool_cpu *cpu;
	int i;

	pool->name = kstrdup(name ?: "", GFP_KERNEL);
	pool->cpus = alloc_percpu(struct memreg_mrpool_cpu);
	if (!pool->name || !pool->cpus)
		return -ENOMEM;
	for_each_possible_cpu(i) {
		cpu = per_cpu_ptr(pool->cpus, i);
		spin_lock_init(&cpu->lock);
		INIT_LIST_HEAD(&cpu->posted);
	}
	return 0;
}

/* The first MRs. */
static int memreg_mrpool_populate(struct ib_memreg_pool *pool)
{
	int ret = 0;
	u32 i;

	mutex_lock(&pool->mutex);
	for (i = 0; !ret && i < pool->count; i++) {
		ret = memreg_mrpool_add(pool, &pool->idle);
		cond_resched();
	}
	memreg_mrpool_set_low(pool);
	pool->idle_low = pool->count;
	mutex_unlock(&pool->mutex);
	return ret;
}

/**
 * ib_memreg_pool_create() - Make a pool
 * @pd: Protection domain of its MRs; stays until ib_memreg_pool_destroy()
 * @attr: Parameters; not needed afterwards
 *
 * Memory is allocated with GFP_KERNEL. Where memory may be waiting for the
 * caller, such as when a connection for writeback is established again, the
 * caller calls memalloc_noio_save() before; drivers allocate with GFP_KERNEL as
 * well. What the pool allocates later, in its workers, waits for no I/O.
 *
 * Context: may sleep.
 * Return: the pool, or an ERR_PTR: -EINVAL for attributes that can't be;
 * -EOPNOTSUPP if the device has no fast registration to rely on; -ENOMEM;
 * -ENOSPC if it has not so many MRs.
 */
struct ib_memreg_pool *
ib_memreg_pool_create(struct ib_pd *pd, const struct ib_memreg_pool_attr *attr)
{
	struct ib_memreg_pool *pool;
	int ret;

	might_sleep();
	ret = memreg_mrpool_check(pd, attr);
	if (ret)
		return ERR_PTR(ret);
	pool = kzalloc_node(sizeof(*pool), GFP_KERNEL, attr->numa_node);
	if (!pool)
		return ERR_PTR(-ENOMEM);
	memreg_mrpool_describe(pool, pd, attr);
	memreg_mrpool_setup(pool);
	ret = memreg_mrpool_alloc(pool, attr->name);
	if (!ret)
		ret = memreg_mrpool_populate(pool);
	if (ret) {
		memreg_mrpool_free(pool);
		return ERR_PTR(ret);
	}
	spin_lock(&memreg_pools_lock);
	list_add_tail(&pool->node, &memreg_pools);
	spin_unlock(&memreg_pools_lock);
	return pool;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_pool_create, MEMREG_NS);

/**
 * ib_memreg_pool_destroy() - Destroy a pool and its MRs
 * @pool: A pool without requests, taken MRs and reserves
 *
 * Context: may sleep; not in ib_memreg_req_ops.done(). Never fails.
 */
void ib_memreg_pool_destroy(struct ib_memreg_pool *pool)
{
	struct ib_memreg_pool_stats stats;

	might_sleep();
	/* No worker is to wait for memory for a pool that goes. */
	WRITE_ONCE(pool->closing, true);
	spin_lock(&memreg_pools_lock);
	list_del(&pool->node);
	spin_unlock(&memreg_pools_lock);
	/* Requests are done, but workers may still be replacing their MRs. */
	wait_var_event(&pool->works, !atomic_read(&pool->works));
	cancel_delayed_work_sync(&pool->refill);
	cancel_delayed_work_sync(&pool->work);
	WARN_ON(!list_empty(&pool->reserves));
	ib_memreg_pool_query(pool, &stats);
	WARN_ON(stats.idle != stats.total);
	memreg_mrpool_free(pool);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_pool_destroy, MEMREG_NS);

/**
 * ib_memreg_max_pages() - Number of pages that one MR of a device can map
 * @ibdev: The device
 *
 * For limits that are set before there is a pool, which may ask for as many
 * (ib_memreg_pool_attr.max_pages).
 *
 * Context: any.
 * Return: pages of PAGE_SIZE; 0 if the device has no fast registration to rely
 * on, and there can be no pool.
 */
unsigned int ib_memreg_max_pages(const struct ib_device *ibdev)
{
	/* Lengths are 32 bits wide. */
	return min_t(u32, memreg_page_list_max(ibdev), SZ_1G >> PAGE_SHIFT);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_max_pages, MEMREG_NS);

/**
 * ib_memreg_pool_pages() - Number of pages that one MR can map
 * @pool: The pool
 *
 * Context: any.
 * Return: pages of PAGE_SIZE.
 */
unsigned int ib_memreg_pool_pages(const struct ib_memreg_pool *pool)
{
	return pool->max_pages;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_pool_pages, MEMREG_NS);

/* Add what a CPU has counted. */
static void memreg_mrpool_add_stats(struct ib_memreg_pool *pool, int cpu,
				    struct ib_memreg_pool_stats *stats)
{
	const struct memreg_mrpool_cpu *from = per_cpu_ptr(pool->cpus, cpu);

	stats->idle += memreg_slots_count(from);
	stats->taken += READ_ONCE(from->taken);
	stats->empty += READ_ONCE(from->empty);
	stats->remote_invalidated += READ_ONCE(from->remote_invalidated);
	stats->local_invalidated += READ_ONCE(from->local_invalidated);
	stats->bogus += READ_ONCE(from->bogus);
}

/**
 * ib_memreg_pool_query() - Read the statistics of a pool
 * @pool: The pool
 * @stats: Filled in; exact while the pool is not in use
 *
 * Context: any that ib_post_send() may be called in.
 */
void ib_memreg_pool_query(struct ib_memreg_pool *pool,
			  struct ib_memreg_pool_stats *stats)
{
	struct ib_memreg_reserve *reserve;
	unsigned long flags;
	int cpu;

	memset(stats, 0, sizeof(*stats));
	stats->total = READ_ONCE(pool->total) -
		       atomic_read(&pool->nr_to_replace);
	stats->grown = READ_ONCE(pool->grown);
	stats->shrunk = READ_ONCE(pool->shrunk);
	stats->replaced = atomic64_read(&pool->replaced);
	for_each_possible_cpu(cpu)
		memreg_mrpool_add_stats(pool, cpu, stats);
	raw_spin_lock_irqsave(&pool->lock, flags);
	stats->idle += pool->idle.count;
	list_for_each_entry(reserve, &pool->reserves, node)
		stats->idle += reserve->idle.count;
	raw_spin_unlock_irqrestore(&pool->lock, flags);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_pool_query, MEMREG_NS);

/**
 * memreg_kapi_init() - Get ready for other modules
 * @done: Completion handler of an MR's work requests, except the last LOCAL_INV
 *
 * Return: 0 or -ENOMEM.
 */
int __init memreg_kapi_init(void (*done)(struct ib_cq *cq, struct ib_wc *wc))
{
	unsigned int flags = WQ_UNBOUND | WQ_MEM_RECLAIM;

	memreg_mrpool_done = done;
	memreg_req_wq = alloc_workqueue("memreg_req", flags, 0);
	if (!memreg_req_wq)
		return -ENOMEM;
	memreg_refill_wq = alloc_workqueue("memreg_refill", flags, 0);
	if (!memreg_refill_wq)
		goto err_req;
	memreg_mrpool_wq = alloc_workqueue("memreg_pool", flags, 0);
	if (!memreg_mrpool_wq)
		goto err_refill;
	if (memreg_mrpool_shrinker_init())
		goto err_pool;
	return 0;

err_pool:
	destroy_workqueue(memreg_mrpool_wq);
err_refill:
	destroy_workqueue(memreg_refill_wq);
err_req:
	destroy_workqueue(memreg_req_wq);
	return -ENOMEM;
}

void memreg_kapi_exit(void)
{
	shrinker_free(memreg_mrpool_shrinker);
	destroy_workqueue(memreg_mrpool_wq);
	destroy_workqueue(memreg_refill_wq);
	destroy_workqueue(memreg_req_wq);
}
