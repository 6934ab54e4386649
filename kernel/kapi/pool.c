// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pools of fast registration MRs for other kernel modules.
 *
 * Taking and putting
 *
 * Each MR has a slot with a number. Idle MRs are on stacks, which are linked by
 * these numbers: one of each CPU, which keeps a few, one that all CPUs share,
 * and one of each reserve. The head of a stack is a single word of 64 bits: the
 * number of its first slot, and a tag that each change advances. Each slot
 * records how deep the stack is from there on, so the first slot has the number
 * of slots on the stack. The head is changed only by compare-and-exchange, so a
 * stack may be used in any context, hard interrupts included, and by any CPU: a
 * CPU that finds no MR in its own cache and on the list takes from the caches
 * of the others. Several slots are taken or put by a single exchange.
 *
 * A CPU that loses a race has read the link of a slot that is no longer on the
 * stack. That is harmless: slots are never freed as long as there is the pool,
 * their links are always numbers of slots, and the tag shows that the stack has
 * changed. The tag has 44 bits. A CPU that stops between its look and its
 * exchange is mistaken only after 2^44 changes meanwhile: at a hundred million
 * a second these take two days.
 *
 * An idle MR is marked as such. To put an MR that is idle, or whose key may
 * work, is refused with a warning, and changes nothing.
 *
 * Growing and shrinking
 *
 * Another worker allocates new MRs in place of destroyed ones: requests may be
 * waiting for these, and reclaim for the requests. So it never waits for a
 * thread that may wait for memory, and if the pool has reserves, it allocates
 * with access to the kernel's memory reserves: no more than was freed when the
 * MRs were destroyed.
 *
 * A worker adds MRs when the list runs low, and frees those that were on the
 * list during a whole period. Reclaim may be waiting for this worker, so it has
 * a rescuer, and allocates without I/O. The shrinker only queues it: destroying
 * an MR may wait for a thread that waits for memory. There is one shrinker for
 * all pools: registering and freeing a shrinker takes a mutex that other
 * threads hold while they wait for memory, and pools come and go with
 * connections, for which reclaim may be waiting.
 *
 * Reserves
 *
 * MRs of a reserve are taken when the pool has no others. The next MRs that are
 * put then go to the reserve first.
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
#include "mem/fastmr.h"
#include "quirks.h"

/* Slots that are allocated together. */
#define MEMREG_POOL_CHUNK_SHIFT	9
#define MEMREG_POOL_CHUNK	BIT(MEMREG_POOL_CHUNK_SHIFT)

/* Chunks for reserves, in addition to the maximum size of the pool. */
#define MEMREG_POOL_RESERVE_CHUNKS	128
#define MEMREG_RESERVES_MAX						\
	(MEMREG_POOL_RESERVE_CHUNKS * MEMREG_POOL_CHUNK)

/* Number 0 is no slot. */
#define MEMREG_POOL_MAX							\
	(BIT(MEMREG_STACK_BITS) - 1 - MEMREG_RESERVES_MAX)

/* A cache holds twice as many MRs as move to it, or from it, at a time. */
#define MEMREG_POOL_BATCH	8

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
static struct workqueue_struct *memreg_mrpool_wq;

/* Completion handler of an MR's work requests. */
static void (*memreg_mrpool_done)(struct ib_cq *cq, struct ib_wc *wc);

/* All pools, for the shrinker. */
static DEFINE_SPINLOCK(memreg_pools_lock);
static LIST_HEAD(memreg_pools);
struct shrinker *memreg_mrpool_shrinker;
EXPORT_SYMBOL_IF_KUNIT(memreg_mrpool_shrinker);

/*
 * Stacks
 */

static struct memreg_mrpool_slot *
memreg_mrpool_slot(struct ib_memreg_pool *pool, u32 index)
{
	return &pool->chunks[index >> MEMREG_POOL_CHUNK_SHIFT]
			    [index & (MEMREG_POOL_CHUNK - 1)];
}

/* Slots on a stack that has this head; a guess if the head is out of date. */
static u32 memreg_head_count(struct ib_memreg_pool *pool, s64 head)
{
	u32 index = head & MEMREG_STACK_INDEX;

	return index ? READ_ONCE(memreg_mrpool_slot(pool, index)->depth) : 0;
}

/* Slots on a stack, at one moment. */
static u32 memreg_stack_count(struct ib_memreg_pool *pool,
			      const atomic64_t *stack)
{
	s64 head = atomic64_read(stack), seen;
	u32 count;

	do {
		seen = head;
		count = memreg_head_count(pool, seen);
		/* A slot that goes elsewhere left this stack before. */
		smp_rmb();
		head = atomic64_read(stack);
	} while (head != seen);
	return count;
}

/* Take a slot off a stack; 0 if there is none. */
static inline u32 memreg_stack_pop(struct ib_memreg_pool *pool,
				   atomic64_t *stack)
{
	s64 head = atomic64_read(stack);
	u32 index, next;

	do {
		index = head & MEMREG_STACK_INDEX;
		if (!index)
			return 0;
		next = READ_ONCE(memreg_mrpool_slot(pool, index)->next);
	} while (!atomic64_try_cmpxchg(stack, &head,
				       head + MEMREG_STACK_TAG - index +
				       next));
	return index;
}

/* Number @n slots from @index on, which go on top of @below others. */
static inline void memreg_stack_number(struct ib_memreg_pool *pool, u32 index,
				       u32 n, u32 below)
{
	struct memreg_mrpool_slot *slot;

	for (; n; n--) {
		slot = memreg_mrpool_slot(pool, index);
		WRITE_ONCE(slot->depth, below + n);
		index = slot->next;
	}
}

/*
 * Put @n slots on a stack that are linked from @first to @last. Returns how
 * many there are then.
 */
static inline u32 memreg_stack_push(struct ib_memreg_pool *pool,
				    atomic64_t *stack, u32 first, u32 last,
				    u32 n)
{
	struct memreg_mrpool_slot *slot = memreg_mrpool_slot(pool, last);
	s64 head = atomic64_read(stack);
	u32 index, below;

	do {
		index = head & MEMREG_STACK_INDEX;
		below = memreg_head_count(pool, head);
		WRITE_ONCE(slot->next, index);
		memreg_stack_number(pool, first, n, below);
	} while (!atomic64_try_cmpxchg(stack, &head,
				       head + MEMREG_STACK_TAG - index +
				       first));
	return below + n;
}

/**
 * struct memreg_chain - Slots that were taken off a stack together
 * @first: The first one, or 0
 * @last: The last one
 * @n: Their number
 * @left: MRs left on the stack
 */
struct memreg_chain {
	u32 first;
	u32 last;
	u32 n;
	u32 left;
};

/* Take up to @max slots off a stack. */
static void memreg_stack_pop_some(struct ib_memreg_pool *pool,
				  atomic64_t *stack, u32 max,
				  struct memreg_chain *chain)
{
	s64 head = atomic64_read(stack);
	u32 i, next, count;

	do {
		chain->first = head & MEMREG_STACK_INDEX;
		count = memreg_head_count(pool, head);
		chain->n = min(max, count);
		chain->left = count - chain->n;
		if (!chain->n)
			return;
		next = chain->first;
		for (i = 0; i < chain->n && next; i++) {
			chain->last = next;
			next = READ_ONCE(memreg_mrpool_slot(pool, next)->next);
		}
	} while (!atomic64_try_cmpxchg(stack, &head,
				       head + MEMREG_STACK_TAG -
				       chain->first + next));
}

/*
 * MRs
 */

/* Allocate the MR of an entry of the pool that has none. */
static int memreg_mrpool_fast(struct ib_memreg_mr *mr)
{
	struct ib_memreg_pool *pool = mr->pool;

	return memreg_fastmr_alloc(&mr->fast, pool->pd,
				   pool->sg_gaps ? IB_MR_TYPE_SG_GAPS :
						   IB_MR_TYPE_MEM_REG,
				   pool->max_pages, memreg_mrpool_done);
}

static struct ib_memreg_mr *memreg_mrpool_mr_new(struct ib_memreg_pool *pool)
{
	struct ib_memreg_mr *mr;
	int ret;

	mr = kvzalloc_node(struct_size(mr, sgl, pool->max_pages), GFP_KERNEL,
			   pool->numa_node);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->pool = pool;
	sg_init_table(mr->sgl, pool->max_pages);
	ret = memreg_mrpool_fast(mr);
	if (ret) {
		kvfree(mr);
		return ERR_PTR(ret);
	}
	return mr;
}

static void memreg_mrpool_mr_free(struct ib_memreg_mr *mr)
{
	memreg_fastmr_destroy(&mr->fast);
	kvfree(mr);
}

/* Get a slot without an MR. */
static int memreg_mrpool_slot_get(struct ib_memreg_pool *pool, u32 *index)
{
	u32 chunk = pool->nr_slots >> MEMREG_POOL_CHUNK_SHIFT;

	lockdep_assert_held(&pool->mutex);

	*index = memreg_stack_pop(pool, &pool->empty_slots);
	if (*index)
		return 0;
	if (chunk >= pool->nr_chunks)
		return -ENOSPC;
	if (!pool->chunks[chunk])
		pool->chunks[chunk] = kvcalloc_node(MEMREG_POOL_CHUNK,
						    sizeof(**pool->chunks),
						    GFP_KERNEL,
						    pool->numa_node);
	if (!pool->chunks[chunk])
		return -ENOMEM;
	*index = pool->nr_slots++;
	return 0;
}

static void memreg_mrpool_slot_put(struct ib_memreg_pool *pool, u32 index)
{
	memreg_mrpool_slot(pool, index)->mr = NULL;
	memreg_stack_push(pool, &pool->empty_slots, index, index, 1);
}

/* MRs that the list is to have when it has been filled. */
static u32 memreg_mrpool_low(const struct ib_memreg_pool *pool)
{
	return clamp(pool->total / 8, 1U, 64U);
}

/* The number of MRs has changed: when are more of them wanted? */
static void memreg_mrpool_set_low(struct ib_memreg_pool *pool)
{
	lockdep_assert_held(&pool->mutex);

	WRITE_ONCE(pool->low,
		   pool->total < pool->max_count + pool->reserved ?
			   memreg_mrpool_low(pool) : 0);
}

/* Add an MR to a pool, on a stack of it. */
static int memreg_mrpool_add(struct ib_memreg_pool *pool, atomic64_t *stack)
{
	struct ib_memreg_mr *mr;
	u32 index;
	int ret;

	lockdep_assert_held(&pool->mutex);

	ret = memreg_mrpool_slot_get(pool, &index);
	if (ret)
		return ret;
	mr = memreg_mrpool_mr_new(pool);
	if (IS_ERR(mr)) {
		memreg_mrpool_slot_put(pool, index);
		return PTR_ERR(mr);
	}
	mr->index = index;
	memreg_mrpool_slot(pool, index)->mr = mr;
	WRITE_ONCE(pool->total, pool->total + 1);
	memreg_stack_push(pool, stack, index, index, 1);
	return 0;
}

/* Remove an idle MR that is on no stack. */
static void memreg_mrpool_remove(struct ib_memreg_pool *pool, u32 index)
{
	struct ib_memreg_mr *mr = memreg_mrpool_slot(pool, index)->mr;

	lockdep_assert_held(&pool->mutex);

	memreg_mrpool_slot_put(pool, index);
	memreg_mrpool_mr_free(mr);
	WRITE_ONCE(pool->total, pool->total - 1);
}

/* Remove up to @n idle MRs that are on a stack. Returns their number. */
static u32 memreg_mrpool_remove_some(struct ib_memreg_pool *pool,
				     atomic64_t *stack, u32 n)
{
	u32 i, index;

	for (i = 0; i < n; i++) {
		index = memreg_stack_pop(pool, stack);
		if (!index)
			break;
		memreg_mrpool_remove(pool, index);
		cond_resched();
	}
	return i;
}

/*
 * Taking and putting
 */

/**
 * memreg_mrpool_kick() - Have the worker look at a pool
 * @pool: The pool
 *
 * Context: any that ib_post_send() may be called in.
 */
void memreg_mrpool_kick(struct ib_memreg_pool *pool)
{
	if (!xchg(&pool->kicked, true))
		mod_delayed_work(memreg_mrpool_wq, &pool->work, 0);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_mrpool_kick);

/* Fill this CPU's cache from the list. Returns one of those MRs, or 0. */
static u32 memreg_mrpool_refill(struct ib_memreg_pool *pool)
{
	struct memreg_mrpool_cache *cache = raw_cpu_ptr(pool->caches);
	struct memreg_chain chain;

	memreg_stack_pop_some(pool, &pool->list, pool->batch, &chain);
	if (chain.left < READ_ONCE(pool->idle_low))
		WRITE_ONCE(pool->idle_low, chain.left);
	if (chain.left < READ_ONCE(pool->low))
		memreg_mrpool_kick(pool);
	if (chain.n > 1)
		memreg_stack_push(pool, &cache->stack,
				  memreg_mrpool_slot(pool, chain.first)->next,
				  chain.last, chain.n - 1);
	return chain.first;
}

/* Take from the caches of other CPUs. */
static u32 memreg_mrpool_steal(struct ib_memreg_pool *pool)
{
	struct memreg_mrpool_cache *cache;
	u32 index;
	int cpu;

	for_each_possible_cpu(cpu) {
		cache = per_cpu_ptr(pool->caches, cpu);
		index = memreg_stack_pop(pool, &cache->stack);
		if (index)
			return index;
	}
	return 0;
}

static u32 memreg_reserve_take(struct ib_memreg_reserve *reserve)
{
	u32 index = memreg_stack_pop(reserve->pool, &reserve->stack);

	if (index)
		atomic_inc(&reserve->pool->missing);
	return index;
}

/* This CPU's cache is empty. */
static noinline u32 memreg_mrpool_take_slow(struct ib_memreg_pool *pool,
					    struct ib_memreg_reserve *reserve)
{
	u32 index = memreg_mrpool_refill(pool);

	if (!index)
		index = memreg_mrpool_steal(pool);
	if (!index && reserve)
		index = memreg_reserve_take(reserve);
	if (!index)
		memreg_mrpool_count(pool, empty, 1);
	return index;
}

/**
 * memreg_mrpool_take_mr() - Take an idle MR
 * @pool: The pool
 * @reserve: Reserve to take it from if the pool has none, or NULL
 *
 * Context: any that ib_post_send() may be called in.
 * Return: an MR with a dead key, or NULL.
 */
struct ib_memreg_mr *memreg_mrpool_take_mr(struct ib_memreg_pool *pool,
					   struct ib_memreg_reserve *reserve)
{
	struct memreg_mrpool_cache *cache = raw_cpu_ptr(pool->caches);
	struct ib_memreg_mr *mr;
	u32 index;

	index = memreg_stack_pop(pool, &cache->stack);
	if (unlikely(!index)) {
		index = memreg_mrpool_take_slow(pool, reserve);
		if (!index)
			return NULL;
	}
	memreg_mrpool_count(pool, taken, 1);
	mr = memreg_mrpool_slot(pool, index)->mr;
	WRITE_ONCE(mr->state, MEMREG_MR_DEAD);
	trace_memreg_pool_take(mr);
	return mr;
}

/**
 * ib_memreg_mr_get() - Take an MR that is idle
 * @pool: The pool
 *
 * For benchmarks only: requests take MRs themselves.
 *
 * Context: any that ib_post_send() may be called in.
 * Return: an MR, which is the caller's until ib_memreg_mr_put(), or NULL if
 * there is none to be had now; if the pool may grow, it does so.
 */
struct ib_memreg_mr *ib_memreg_mr_get(struct ib_memreg_pool *pool)
{
	return memreg_mrpool_take_mr(pool, NULL);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_mr_get, MEMREG_NS);

/* Give an MR to a reserve that has less than it is to have, if there is one. */
static noinline bool memreg_reserve_refill(struct ib_memreg_pool *pool,
					   u32 index)
{
	struct ib_memreg_reserve *reserve;
	unsigned long flags;
	bool given = false;

	raw_spin_lock_irqsave(&pool->reserve_lock, flags);
	list_for_each_entry(reserve, &pool->reserves, node) {
		if (memreg_stack_count(pool, &reserve->stack) >= reserve->count)
			continue;
		memreg_stack_push(pool, &reserve->stack, index, index, 1);
		atomic_dec(&pool->missing);
		list_move_tail(&reserve->node, &pool->reserves);
		given = true;
		break;
	}
	raw_spin_unlock_irqrestore(&pool->reserve_lock, flags);
	return given;
}

/* This CPU's cache has too many. */
static noinline void memreg_mrpool_flush(struct ib_memreg_pool *pool,
					 atomic64_t *cache)
{
	struct memreg_chain chain;

	memreg_stack_pop_some(pool, cache, pool->batch, &chain);
	if (chain.n)
		memreg_stack_push(pool, &pool->list, chain.first, chain.last,
				  chain.n);
}

/**
 * ib_memreg_mr_put() - Give an MR back to its pool
 * @mr: An MR that the caller has, with a dead key; not to be touched afterwards
 *
 * Putting an MR twice, or one whose key may work, is an error of the caller:
 * the kernel warns once, and does nothing.
 *
 * Context: any that ib_post_send() may be called in.
 */
void ib_memreg_mr_put(struct ib_memreg_mr *mr)
{
	struct ib_memreg_pool *pool = mr->pool;
	u32 index = mr->index;
	atomic64_t *cache;

	if (WARN_ON_ONCE(cmpxchg(&mr->state, MEMREG_MR_DEAD, MEMREG_MR_IDLE) !=
			 MEMREG_MR_DEAD))
		return;
	trace_memreg_pool_put(mr);
	if (unlikely(atomic_read(&pool->missing)) &&
	    memreg_reserve_refill(pool, index))
		return;
	cache = &raw_cpu_ptr(pool->caches)->stack;
	if (unlikely(memreg_stack_push(pool, cache, index, index, 1) >
		     2 * pool->batch))
		memreg_mrpool_flush(pool, cache);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_mr_put, MEMREG_NS);

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

	atomic_inc(&pool->nr_hollow);
	llist_add(&mr->node, &pool->hollow);
	mod_delayed_work(memreg_refill_wq, &pool->refill, 0);
}

/* Allocate anew what was destroyed, and put it. If that fails, try again. */
static void memreg_mrpool_replace(struct ib_memreg_mr *mr)
{
	struct ib_memreg_pool *pool = mr->pool;

	if (READ_ONCE(pool->closing) || memreg_mrpool_fast(mr)) {
		llist_add(&mr->node, &pool->hollow);
		if (!READ_ONCE(pool->closing))
			queue_delayed_work(memreg_refill_wq, &pool->refill,
					   MEMREG_POOL_RETRY);
		return;
	}
	mr->state = MEMREG_MR_DEAD;
	atomic_dec(&pool->nr_hollow);
	atomic64_inc(&pool->replaced);
	trace_memreg_pool_replace(mr);
	ib_memreg_mr_put(mr);
}

static void memreg_mrpool_refill_work(struct work_struct *work)
{
	struct ib_memreg_pool *pool =
		container_of(work, struct ib_memreg_pool, refill.work);
	struct llist_node *hollow = llist_del_all(&pool->hollow);
	struct ib_memreg_mr *mr, *next;

	llist_for_each_entry_safe(mr, next, hollow, node) {
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
		cond_resched();
	}
}

/*
 * Growing and shrinking
 */

/* Get more MRs if the list runs low; false if there are none to be had. */
static bool memreg_mrpool_grow(struct ib_memreg_pool *pool)
{
	u32 want = max(2 * memreg_mrpool_low(pool), pool->batch);
	int ret = 0;

	lockdep_assert_held(&pool->mutex);

	if (memreg_stack_count(pool, &pool->list) >= READ_ONCE(pool->low))
		return true;
	while (!ret && !READ_ONCE(pool->closing) &&
	       pool->total < pool->max_count + pool->reserved &&
	       memreg_stack_count(pool, &pool->list) < want) {
		ret = memreg_mrpool_add(pool, &pool->list);
		if (!ret)
			WRITE_ONCE(pool->grown, pool->grown + 1);
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
		idle = memreg_mrpool_remove_some(pool, &pool->list,
						 min(idle - keep, spares));
	else
		idle = 0;
	WRITE_ONCE(pool->shrunk, pool->shrunk + idle);
	memreg_mrpool_set_low(pool);
	WRITE_ONCE(pool->idle_low, memreg_stack_count(pool, &pool->list));
	pool->age_next = jiffies + MEMREG_POOL_AGE;
}

/* Free all idle MRs above the pool's minimum. */
static void memreg_mrpool_do_squeeze(struct ib_memreg_pool *pool)
{
	u32 n;
	int cpu;

	lockdep_assert_held(&pool->mutex);

	n = memreg_mrpool_remove_some(pool, &pool->list,
				      memreg_mrpool_spares(pool));
	for_each_possible_cpu(cpu)
		n += memreg_mrpool_remove_some(pool,
					       &per_cpu_ptr(pool->caches,
							    cpu)->stack,
					       memreg_mrpool_spares(pool));
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
	if (xchg(&pool->squeeze, false))
		memreg_mrpool_do_squeeze(pool);
	else
		grown = memreg_mrpool_grow(pool);
	memreg_mrpool_age(pool);
	mutex_unlock(&pool->mutex);
	memalloc_noio_restore(noio);

	if (!grown)
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
			      memreg_stack_count(pool, &pool->list));
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
		WRITE_ONCE(pool->squeeze, true);
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
	     !node_online(attr->numa_node)))
		return -EINVAL;
	return memreg_page_list_max(pd->device) ? 0 : -EOPNOTSUPP;
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
	u32 pages = memreg_page_list_max(ibdev);

	pool->pd = pd;
	pool->numa_node = attr->numa_node;
	pool->count = attr->count;
	pool->max_count = attr->max_count ?: attr->count;
	/* Most MRs are to be on the list, for all CPUs. */
	pool->batch = clamp(attr->count / (4 * num_possible_cpus()), 1U,
			    MEMREG_POOL_BATCH);
	pool->max_pages = attr->max_pages && attr->max_pages <= pages ?
				  attr->max_pages :
				  min_t(u32, pages, MEMREG_POOL_PAGES);
	/* Lengths are 32 bits wide. */
	pool->max_pages = min_t(u32, pool->max_pages, SZ_1G >> PAGE_SHIFT);
	pool->max_seg = memreg_mrpool_max_seg(ibdev);
	pool->weak = memreg_mrpool_weak(ibdev);
	pool->sg_gaps = attr->flags & IB_MEMREG_POOL_SG_GAPS &&
			ibdev->attrs.kernel_cap_flags & IBK_SG_GAPS_REG;
	pool->nr_chunks = DIV_ROUND_UP(pool->max_count + 1,
				       MEMREG_POOL_CHUNK) +
			  MEMREG_POOL_RESERVE_CHUNKS;
	/* Number 0 is no slot. */
	pool->nr_slots = 1;
}

static void memreg_mrpool_setup(struct ib_memreg_pool *pool)
{
	mutex_init(&pool->mutex);
	raw_spin_lock_init(&pool->reserve_lock);
	INIT_LIST_HEAD(&pool->reserves);
	init_llist_head(&pool->hollow);
	INIT_DELAYED_WORK(&pool->refill, memreg_mrpool_refill_work);
	INIT_DELAYED_WORK(&pool->work, memreg_mrpool_work);
	pool->age_next = jiffies + MEMREG_POOL_AGE;
}

/* Free what a pool has; it may be in any state of being made. */
static void memreg_mrpool_free(struct ib_memreg_pool *pool)
{
	struct ib_memreg_mr *mr;
	u32 i;

	for (i = 1; i < pool->nr_slots; i++) {
		mr = memreg_mrpool_slot(pool, i)->mr;
		if (mr)
			memreg_mrpool_mr_free(mr);
		cond_resched();
	}
	for (i = 0; pool->chunks && i < pool->nr_chunks; i++)
		kvfree(pool->chunks[i]);
	kvfree(pool->chunks);
	free_percpu(pool->caches);
	kfree(pool->name);
	kfree(pool);
}

static int memreg_mrpool_alloc(struct ib_memreg_pool *pool, const char *name)
{
	pool->name = kstrdup(name ?: "", GFP_KERNEL);
	pool->caches = alloc_percpu(struct memreg_mrpool_cache);
	pool->chunks = kvcalloc_node(pool->nr_chunks, sizeof(*pool->chunks),
				     GFP_KERNEL, pool->numa_node);
	if (!pool->name || !pool->caches || !pool->chunks)
		return -ENOMEM;
	return 0;
}

/* The first MRs. */
static int memreg_mrpool_populate(struct ib_memreg_pool *pool)
{
	int ret = 0;
	u32 i;

	mutex_lock(&pool->mutex);
	for (i = 0; !ret && i < pool->count; i++) {
		ret = memreg_mrpool_add(pool, &pool->list);
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
	const struct memreg_mrpool_cache *cache =
		per_cpu_ptr(pool->caches, cpu);

	stats->idle += memreg_stack_count(pool, &cache->stack);
	stats->taken += READ_ONCE(cache->taken);
	stats->empty += READ_ONCE(cache->empty);
	stats->remote_invalidated += READ_ONCE(cache->remote_invalidated);
	stats->local_invalidated += READ_ONCE(cache->local_invalidated);
	stats->bogus += READ_ONCE(cache->bogus);
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
	stats->total = READ_ONCE(pool->total) - atomic_read(&pool->nr_hollow);
	stats->idle = memreg_stack_count(pool, &pool->list);
	stats->grown = READ_ONCE(pool->grown);
	stats->shrunk = READ_ONCE(pool->shrunk);
	stats->replaced = atomic64_read(&pool->replaced);
	for_each_possible_cpu(cpu)
		memreg_mrpool_add_stats(pool, cpu, stats);
	raw_spin_lock_irqsave(&pool->reserve_lock, flags);
	list_for_each_entry(reserve, &pool->reserves, node)
		stats->idle += memreg_stack_count(pool, &reserve->stack);
	raw_spin_unlock_irqrestore(&pool->reserve_lock, flags);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_pool_query, MEMREG_NS);

/*
 * Reserves
 */

/* Account for a reserve's MRs, as many as there are. */
static void memreg_reserve_count(struct ib_memreg_pool *pool, int n)
{
	lockdep_assert_held(&pool->mutex);

	WRITE_ONCE(pool->reserved, pool->reserved + n);
	memreg_mrpool_set_low(pool);
}

/**
 * ib_memreg_reserve_create() - Set MRs aside for the requests of a queue
 * @pool: The pool, which grows by that
 * @count: MRs, up to 65536 with those of the pool's other reserves; as many as
 *	the largest request may take, so that one such request can always be
 *	mapped
 *
 * They are taken if the pool has no others. Any MR that comes back to the pool
 * goes to a reserve that has less than its count, first.
 *
 * Context: may sleep.
 * Return: the reserve, or an ERR_PTR: -EINVAL for a @count that can't be;
 * -ENOMEM; -ENOSPC if the device, or the pool, has not so many MRs.
 */
struct ib_memreg_reserve *
ib_memreg_reserve_create(struct ib_memreg_pool *pool, unsigned int count)
{
	struct ib_memreg_reserve *reserve;
	int ret = 0;
	u32 i;

	if (!count || count > MEMREG_RESERVES_MAX)
		return ERR_PTR(-EINVAL);
	reserve = kzalloc_node(sizeof(*reserve), GFP_KERNEL, pool->numa_node);
	if (!reserve)
		return ERR_PTR(-ENOMEM);
	reserve->pool = pool;
	reserve->count = count;
	mutex_lock(&pool->mutex);
	if (count > MEMREG_RESERVES_MAX - pool->reserved)
		ret = -ENOSPC;
	for (i = 0; !ret && i < count; i++)
		ret = memreg_mrpool_add(pool, &reserve->stack);
	if (ret)
		memreg_mrpool_remove_some(pool, &reserve->stack, count);
	else
		memreg_reserve_count(pool, count);
	mutex_unlock(&pool->mutex);
	if (ret) {
		kfree(reserve);
		return ERR_PTR(ret);
	}
	raw_spin_lock_irq(&pool->reserve_lock);
	list_add_tail(&reserve->node, &pool->reserves);
	raw_spin_unlock_irq(&pool->reserve_lock);
	return reserve;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_reserve_create, MEMREG_NS);

/**
 * ib_memreg_reserve_destroy() - Give up a reserve
 * @reserve: A reserve that no request uses
 *
 * Context: may sleep. Never fails.
 */
void ib_memreg_reserve_destroy(struct ib_memreg_reserve *reserve)
{
	struct ib_memreg_pool *pool = reserve->pool;
	u32 n;

	raw_spin_lock_irq(&pool->reserve_lock);
	list_del(&reserve->node);
	atomic_sub(reserve->count - memreg_stack_count(pool, &reserve->stack),
		   &pool->missing);
	raw_spin_unlock_irq(&pool->reserve_lock);
	mutex_lock(&pool->mutex);
	n = memreg_mrpool_remove_some(pool, &reserve->stack, reserve->count);
	memreg_reserve_count(pool, -(int)reserve->count);
	mutex_unlock(&pool->mutex);
	/*
	 * MRs that it has lent return to the pool, which may have too many
	 * then.
	 */
	if (n < reserve->count)
		memreg_mrpool_kick(pool);
	kfree(reserve);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_reserve_destroy, MEMREG_NS);

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
