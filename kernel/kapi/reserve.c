// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reserves: MRs of a pool that are set aside for the requests of one queue.
 * They are taken when the pool has no others. The next MRs that are put then go
 * to the reserve first.
 */
#include <linux/mutex.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "kapi/kapi.h"

/* Maximum number of MRs of all reserves of a pool. */
#define MEMREG_RESERVES_MAX	SZ_64K

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
 * Context: may sleep; allocates as ib_memreg_pool_create() does.
 * Return: the reserve, or an ERR_PTR: -EINVAL for a @count that can't be;
 * -ENOMEM; -ENOSPC if the device, or the pool, has not so many MRs.
 */
struct ib_memreg_reserve *
ib_memreg_reserve_create(struct ib_memreg_pool *pool, unsigned int count)
{
	struct ib_memreg_reserve *reserve;
	int ret = 0;
	u32 i;

	might_sleep();
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
		ret = memreg_mrpool_add(pool, &reserve->idle);
	if (ret)
		memreg_mrpool_remove_some(pool, &reserve->idle, count);
	else
		memreg_reserve_count(pool, count);
	mutex_unlock(&pool->mutex);
	if (ret) {
		kfree(reserve);
		return ERR_PTR(ret);
	}
	raw_spin_lock_irq(&pool->lock);
	list_add_tail(&reserve->node, &pool->reserves);
	raw_spin_unlock_irq(&pool->lock);
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

	might_sleep();
	raw_spin_lock_irq(&pool->lock);
	list_del(&reserve->node);
	WRITE_ONCE(pool->missing,
		   pool->missing - (reserve->count - reserve->idle.count));
	raw_spin_unlock_irq(&pool->lock);
	mutex_lock(&pool->mutex);
	n = memreg_mrpool_remove_some(pool, &reserve->idle, reserve->count);
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
