// SPDX-License-Identifier: GPL-2.0-only
/*
 * MRs of a pool for other kernel modules: where they are while they are idle,
 * and how requests get them.
 *
 * Taking and putting
 *
 * Each CPU keeps a few idle MRs in slots of its own. The others are on one
 * list, and those of each reserve on a list of the reserve; a lock protects all
 * these lists. A slot is filled and emptied by a single atomic exchange, so MRs
 * may be taken and put in any context, hard interrupts included, and a CPU that
 * finds no MR in its own slots and on the list takes from the slots of the
 * others. Several MRs move between slots and list while the lock is held once.
 *
 * An idle MR is marked as such. To put an MR that is idle, or whose key may
 * work, is refused with a warning, and changes nothing.
 *
 * Waiting
 *
 * A request that finds too few MRs is refused. It first gives back those that
 * it has, so that requests do not wait for each other, and then leaves its need
 * in @wanted, of which the pool keeps the minimum. Whoever puts an MR looks
 * there afterwards, which is all that it costs while nobody waits. If as many
 * MRs are idle, @wanted is cleared, and @available called.
 *
 * No call is lost: @wanted is set, and idle MRs are counted, under the lock of
 * the lists, and between the two is a full barrier, as between filling a slot
 * and reading @wanted. So either the refused request counts an MR that is put,
 * or the one who puts it sees @wanted; and of several that put, the last one to
 * take the lock counts the MRs of all. MRs move between slots and list under
 * that lock, so none is missed on its way. If a refused request itself finds
 * that there are enough, the worker calls @available, since the caller is not
 * prepared for that yet.
 *
 * There is no busy loop: @available is only called if what one of the refused
 * requests needs was idle at that time. That is what it had when it was
 * refused, and what the rest of the piece needs at which it was refused; and
 * MRs of a reserve count only for requests that may take them. So a request is
 * refused again only if others took MRs meanwhile, or if further pieces need
 * more, which can happen once for each of its MRs.
 */
#include <kunit/visibility.h>
#include <linux/cpumask.h>
#include <linux/slab.h>

#include "kapi/kapi.h"
#include "kapi/trace.h"
#include "keys/fastmr.h"

struct workqueue_struct *memreg_mrpool_wq;
void (*memreg_mrpool_done)(struct ib_cq *cq, struct ib_wc *wc);

/*
 * Slots and lists
 */

/* Take an MR out of a CPU's slots; NULL if there is none. */
static inline struct ib_memreg_mr *
memreg_slots_take(const struct ib_memreg_pool *pool,
		  struct memreg_mrpool_cpu *cpu)
{
	u32 nr_slots = READ_ONCE(pool->nr_slots), i;
	struct ib_memreg_mr *mr;

	for (i = 0; i < nr_slots; i++) {
		if (!READ_ONCE(cpu->slots[i]))
			continue;
		mr = xchg(&cpu->slots[i], NULL);
		if (mr)
			return mr;
	}
	return NULL;
}

/* Put an MR into one of a CPU's slots; false if none is empty. */
static inline bool memreg_slots_put(const struct ib_memreg_pool *pool,
				    struct memreg_mrpool_cpu *cpu,
				    struct ib_memreg_mr *mr)
{
	u32 nr_slots = READ_ONCE(pool->nr_slots), i;

	for (i = 0; i < nr_slots; i++)
		if (!READ_ONCE(cpu->slots[i]) &&
		    !cmpxchg(&cpu->slots[i], NULL, mr))
			return true;
	return false;
}

/* Count the MRs in a CPU's slots. */
u32 memreg_slots_count(const struct memreg_mrpool_cpu *cpu)
{
	u32 i, n = 0;

	for (i = 0; i < MEMREG_POOL_SLOTS; i++)
		n += !!READ_ONCE(cpu->slots[i]);
	return n;
}

static struct ib_memreg_mr *
memreg_mrpool_pop(struct ib_memreg_pool *pool, struct memreg_mrpool_idle *idle)
{
	struct ib_memreg_mr *mr = idle->first;

	lockdep_assert_held(&pool->lock);

	if (mr) {
		idle->first = mr->next;
		WRITE_ONCE(idle->count, idle->count - 1);
	}
	return mr;
}

static void memreg_mrpool_push(struct ib_memreg_pool *pool,
			       struct memreg_mrpool_idle *idle,
			       struct ib_memreg_mr *mr)
{
	lockdep_assert_held(&pool->lock);

	mr->next = idle->first;
	idle->first = mr;
	WRITE_ONCE(idle->count, idle->count + 1);
}

/*
 * MRs
 */

/* Allocate the MR of an entry of the pool that has none. */
int memreg_mrpool_fast(struct ib_memreg_mr *mr)
{
	struct ib_memreg_pool *pool = mr->pool;

	return memreg_fastmr_alloc(&mr->fast, pool->pd,
				   pool->sg_gaps ? IB_MR_TYPE_SG_GAPS :
						   IB_MR_TYPE_MEM_REG,
				   pool->max_pages, memreg_mrpool_done);
}

void memreg_mrpool_mr_free(struct ib_memreg_mr *mr)
{
	memreg_fastmr_destroy(&mr->fast);
	kvfree(mr->sgl);
	kfree(mr);
}

static struct ib_memreg_mr *memreg_mrpool_mr_new(struct ib_memreg_pool *pool)
{
	struct ib_memreg_mr *mr;
	int ret = -ENOMEM;

	mr = kzalloc_node(sizeof(*mr), GFP_KERNEL, pool->numa_node);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->pool = pool;
	/* By itself: with 512 entries it is a power of two. */
	mr->sgl = kvcalloc_node(pool->max_pages, sizeof(*mr->sgl),
				GFP_KERNEL, pool->numa_node);
	if (mr->sgl) {
		sg_init_table(mr->sgl, pool->max_pages);
		ret = memreg_mrpool_fast(mr);
	}
	if (ret) {
		memreg_mrpool_mr_free(mr);
		return ERR_PTR(ret);
	}
	return mr;
}

/* MRs that the list is to have when it has been filled. */
u32 memreg_mrpool_low(const struct ib_memreg_pool *pool)
{
	return clamp(pool->total / 8, 1U, 64U);
}

/* Slots of a CPU: at least half of the MRs are to be on the list. */
u32 memreg_mrpool_nr_slots(u32 total)
{
	return clamp(total / (2 * num_possible_cpus()), 1U, MEMREG_POOL_SLOTS);
}

/*
 * The number of MRs has changed: when are more of them wanted? Slots become
 * more with the MRs, and stay: there may be MRs in them.
 */
void memreg_mrpool_set_low(struct ib_memreg_pool *pool)
{
	lockdep_assert_held(&pool->mutex);

	WRITE_ONCE(pool->nr_slots, max(pool->nr_slots,
				       memreg_mrpool_nr_slots(pool->total)));
	WRITE_ONCE(pool->low,
		   pool->total < pool->max_count + pool->reserved ?
			   memreg_mrpool_low(pool) : 0);
}

/* Add an MR to a pool, on a list of it. */
int memreg_mrpool_add(struct ib_memreg_pool *pool,
		      struct memreg_mrpool_idle *idle)
{
	struct ib_memreg_mr *mr;

	lockdep_assert_held(&pool->mutex);

	mr = memreg_mrpool_mr_new(pool);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	list_add(&mr->all, &pool->mrs);
	WRITE_ONCE(pool->total, pool->total + 1);
	raw_spin_lock_irq(&pool->lock);
	memreg_mrpool_push(pool, idle, mr);
	raw_spin_unlock_irq(&pool->lock);
	return 0;
}

/* Remove an idle MR that is in no slot and on no list. */
void memreg_mrpool_remove(struct ib_memreg_pool *pool,
			  struct ib_memreg_mr *mr)
{
	lockdep_assert_held(&pool->mutex);

	list_del(&mr->all);
	memreg_mrpool_mr_free(mr);
	WRITE_ONCE(pool->total, pool->total - 1);
	cond_resched();
}

/* Remove up to @n idle MRs that are on a list. Returns their number. */
u32 memreg_mrpool_remove_some(struct ib_memreg_pool *pool,
			      struct memreg_mrpool_idle *idle, u32 n)
{
	struct ib_memreg_mr *mr;
	u32 i;

	for (i = 0; i < n; i++) {
		raw_spin_lock_irq(&pool->lock);
		mr = memreg_mrpool_pop(pool, idle);
		raw_spin_unlock_irq(&pool->lock);
		if (!mr)
			break;
		memreg_mrpool_remove(pool, mr);
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

/* Take from the list, and fill half of this CPU's slots from it. */
static struct ib_memreg_mr *memreg_mrpool_refill(struct ib_memreg_pool *pool)
{
	struct memreg_mrpool_cpu *cpu = raw_cpu_ptr(pool->cpus);
	struct ib_memreg_mr *mr, *more;
	unsigned long flags;
	u32 i, left;

	raw_spin_lock_irqsave(&pool->lock, flags);
	mr = memreg_mrpool_pop(pool, &pool->idle);
	for (i = 0; i < pool->nr_slots / 2; i++) {
		more = memreg_mrpool_pop(pool, &pool->idle);
		if (!more)
			break;
		if (!memreg_slots_put(pool, cpu, more)) {
			memreg_mrpool_push(pool, &pool->idle, more);
			break;
		}
	}
	left = pool->idle.count;
	if (left < pool->idle_low)
		pool->idle_low = left;
	raw_spin_unlock_irqrestore(&pool->lock, flags);

	if (left < READ_ONCE(pool->low))
		memreg_mrpool_kick(pool);
	return mr;
}

/* Take from the slots of other CPUs. */
struct ib_memreg_mr *memreg_mrpool_steal(struct ib_memreg_pool *pool)
{
	struct ib_memreg_mr *mr;
	int cpu;

	for_each_possible_cpu(cpu) {
		mr = memreg_slots_take(pool, per_cpu_ptr(pool->cpus, cpu));
		if (mr)
			return mr;
	}
	return NULL;
}

static struct ib_memreg_mr *
memreg_reserve_take(struct ib_memreg_reserve *reserve)
{
	struct ib_memreg_pool *pool = reserve->pool;
	struct ib_memreg_mr *mr;
	unsigned long flags;

	raw_spin_lock_irqsave(&pool->lock, flags);
	mr = memreg_mrpool_pop(pool, &reserve->idle);
	if (mr)
		WRITE_ONCE(pool->missing, pool->missing + 1);
	raw_spin_unlock_irqrestore(&pool->lock, flags);
	return mr;
}

/* This CPU's slots are empty. */
static noinline struct ib_memreg_mr *
memreg_mrpool_take_slow(struct ib_memreg_pool *pool,
			struct ib_memreg_reserve *reserve)
{
	struct ib_memreg_mr *mr = memreg_mrpool_refill(pool);

	if (!mr)
		mr = memreg_mrpool_steal(pool);
	if (!mr && reserve)
		mr = memreg_reserve_take(reserve);
	if (!mr)
		memreg_mrpool_count(pool, empty, 1);
	return mr;
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
	struct ib_memreg_mr *mr;

	mr = memreg_slots_take(pool, raw_cpu_ptr(pool->cpus));
	if (unlikely(!mr)) {
		mr = memreg_mrpool_take_slow(pool, reserve);
		if (!mr)
			return NULL;
	}
	memreg_mrpool_count(pool, taken, 1);
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
					   struct ib_memreg_mr *mr)
{
	struct ib_memreg_reserve *reserve;
	unsigned long flags;
	bool given = false;

	raw_spin_lock_irqsave(&pool->lock, flags);
	list_for_each_entry(reserve, &pool->reserves, node) {
		if (reserve->idle.count >= reserve->count)
			continue;
		memreg_mrpool_push(pool, &reserve->idle, mr);
		WRITE_ONCE(pool->missing, pool->missing - 1);
		list_move_tail(&reserve->node, &pool->reserves);
		given = true;
		break;
	}
	raw_spin_unlock_irqrestore(&pool->lock, flags);
	return given;
}

/* This CPU's slots are full: put an MR on the list, and empty half of them. */
static noinline void memreg_mrpool_flush(struct ib_memreg_pool *pool,
					 struct ib_memreg_mr *mr)
{
	struct memreg_mrpool_cpu *cpu = raw_cpu_ptr(pool->cpus);
	unsigned long flags;
	u32 i;

	raw_spin_lock_irqsave(&pool->lock, flags);
	memreg_mrpool_push(pool, &pool->idle, mr);
	for (i = 0; i < pool->nr_slots / 2; i++) {
		mr = memreg_slots_take(pool, cpu);
		if (!mr)
			break;
		memreg_mrpool_push(pool, &pool->idle, mr);
	}
	raw_spin_unlock_irqrestore(&pool->lock, flags);
}

/**
 * memreg_mrpool_put_mr() - Give an MR back to its pool
 * @mr: The MR, as of ib_memreg_mr_put()
 *
 * The caller calls memreg_mrpool_check_wanted() afterwards, if it has not been
 * refused itself.
 *
 * Context: any that ib_post_send() may be called in.
 */
void memreg_mrpool_put_mr(struct ib_memreg_mr *mr)
{
	struct ib_memreg_pool *pool = mr->pool;

	if (WARN_ON_ONCE(cmpxchg(&mr->state, MEMREG_MR_DEAD, MEMREG_MR_IDLE) !=
			 MEMREG_MR_DEAD))
		return;
	trace_memreg_pool_put(mr);
	if (unlikely(READ_ONCE(pool->missing)) &&
	    memreg_reserve_refill(pool, mr))
		return;
	if (unlikely(!memreg_slots_put(pool, raw_cpu_ptr(pool->cpus), mr)))
		memreg_mrpool_flush(pool, mr);
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

	memreg_mrpool_put_mr(mr);
	memreg_mrpool_check_wanted(pool);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_mr_put, MEMREG_NS);

/*
 * Waiting
 */

/* Are as many MRs idle as one of the refused requests needs? */
static bool memreg_mrpool_is_enough(struct ib_memreg_pool *pool)
{
	const struct ib_memreg_reserve *reserve;
	u32 idle = pool->idle.count;
	int cpu;

	lockdep_assert_held(&pool->lock);

	for_each_possible_cpu(cpu)
		idle += memreg_slots_count(per_cpu_ptr(pool->cpus, cpu));
	if (idle >= pool->wanted)
		return true;
	list_for_each_entry(reserve, &pool->reserves, node)
		if (reserve->wanted &&
		    idle + reserve->idle.count >= reserve->wanted)
			return true;
	return false;
}

/**
 * memreg_mrpool_wake() - Call @available if refused requests can be tried again
 * @pool: The pool
 *
 * Context: any that ib_post_send() may be called in.
 */
void memreg_mrpool_wake(struct ib_memreg_pool *pool)
{
	struct ib_memreg_reserve *reserve;
	unsigned long flags;
	bool enough;

	raw_spin_lock_irqsave(&pool->lock, flags);
	enough = pool->wanted && memreg_mrpool_is_enough(pool);
	if (enough) {
		WRITE_ONCE(pool->wanted, 0);
		list_for_each_entry(reserve, &pool->reserves, node)
			reserve->wanted = 0;
	}
	raw_spin_unlock_irqrestore(&pool->lock, flags);
	/* Whoever is refused from here on sets @wanted again. */
	if (enough)
		pool->available(pool->context);
}

static u32 memreg_wanted_min(u32 wanted, u32 n)
{
	return wanted ? min(wanted, n) : n;
}

/**
 * memreg_mrpool_refuse() - Remember that a request needs more MRs than are idle
 * @pool: The pool
 * @reserve: Reserve of the request, or NULL
 * @n: MRs that the request needs at least; it has given back all that it had
 *
 * Context: any that ib_post_send() may be called in.
 */
void memreg_mrpool_refuse(struct ib_memreg_pool *pool,
			  struct ib_memreg_reserve *reserve, u32 n)
{
	unsigned long flags;
	bool enough = false;

	raw_spin_lock_irqsave(&pool->lock, flags);
	pool->lacking = max(pool->lacking, n);
	if (pool->available) {
		WRITE_ONCE(pool->wanted, memreg_wanted_min(pool->wanted, n));
		if (reserve)
			reserve->wanted = memreg_wanted_min(reserve->wanted, n);
		/* Pairs with cmpxchg() in memreg_slots_put(). */
		smp_mb();
		enough = memreg_mrpool_is_enough(pool);
	}
	raw_spin_unlock_irqrestore(&pool->lock, flags);
	if (enough || READ_ONCE(pool->low))
		memreg_mrpool_kick(pool);
}
