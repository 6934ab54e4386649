// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is granted under a lease.
 *
 * A window or an export names its lease from the beginning of the call that
 * grants it, with a reference. It is tied to the lease when nothing can fail
 * any more, under the lock with which the worker of the lease looks for it: a
 * grant is refused, or the worker finds it. The clock decides, and not whether
 * the worker has run already.
 */
#include <linux/timekeeping.h>

#include "core.h"
#include "mr/lease.h"

/**
 * memreg_lease_is_over() - Has the time of a lease come?
 * @lease: The lease
 * @now: Nanoseconds of CLOCK_BOOTTIME
 *
 * Context: with memreg_file.grant_lock held.
 * Return: true if nothing may be granted under it any more.
 */
bool memreg_lease_is_over(const struct memreg_lease *lease, u64 now)
{
	lockdep_assert_held(&lease->file->grant_lock);

	return lease->state != MEMREG_LEASE_LIVE || lease->deadline <= now;
}

/**
 * memreg_lease_get() - Find a lease under which a call grants something
 * @ucmd: The call
 * @id: Id of the lease, or 0 for none
 *
 * Return: the lease, with a reference for memreg_lease_untie(); NULL if @id is
 * 0; ERR_PTR(-ENOENT), or ERR_PTR(-ESTALE) if its time is over.
 */
struct memreg_lease *memreg_lease_get(struct memreg_ucmd *ucmd, u32 id)
{
	struct memreg_file *file = ucmd->file;
	struct memreg_lease *lease;
	struct memreg_object *obj;
	bool over;

	if (!id)
		return NULL;
	obj = memreg_object_get(file, id, IB_MEMREG_OBJECT_LEASE);
	if (!obj)
		return ERR_PTR(memreg_fail(ucmd, -ENOENT,
					   IB_MEMREG_REASON_ID));
	lease = container_of(obj, struct memreg_lease, obj);
	spin_lock(&file->grant_lock);
	over = memreg_lease_is_over(lease, ktime_get_boottime_ns());
	spin_unlock(&file->grant_lock);
	if (!over)
		return lease;
	memreg_object_put(obj);
	return ERR_PTR(memreg_fail(ucmd, -ESTALE,
				   IB_MEMREG_REASON_LEASE_ENDED));
}

/**
 * memreg_lease_tie() - Have something end with a lease
 * @lease: The lease, whose time is not over
 * @node: Entry of what is granted
 * @list: List of the lease for it
 *
 * Context: with memreg_file.grant_lock held since memreg_lease_is_over().
 */
void memreg_lease_tie(struct memreg_lease *lease, struct list_head *node,
		      struct list_head *list)
{
	lockdep_assert_held(&lease->file->grant_lock);

	list_add_tail(node, list);
	WRITE_ONCE(lease->grants, lease->grants + 1);
}

/**
 * memreg_lease_untie() - Give up a reference of memreg_lease_get()
 * @lease: The lease
 * @node: Entry of what was, or was to be, granted under it
 *
 * The worker reports the end of a lease when the last grant is gone, whoever
 * has ended it.
 *
 * Context: with memreg_file.grant_lock held.
 */
void memreg_lease_untie(struct memreg_lease *lease, struct list_head *node)
{
	lockdep_assert_held(&lease->file->grant_lock);

	if (!list_empty(node)) {
		list_del_init(node);
		WRITE_ONCE(lease->grants, lease->grants - 1);
		if (!lease->grants && lease->state == MEMREG_LEASE_ENDED)
			memreg_user_work_queue(&lease->work);
	}
	memreg_object_put(&lease->obj);
}

/**
 * memreg_lease_return() - A window stays bound that somebody had claimed
 * @lease: Its lease
 * @node: Its entry
 *
 * Context: with memreg_file.grant_lock held, before the claim is released: the
 * worker claims the window once the lock is released.
 */
void memreg_lease_return(struct memreg_lease *lease, struct list_head *node)
{
	lockdep_assert_held(&lease->file->grant_lock);

	list_move_tail(node, &lease->windows);
	if (lease->state == MEMREG_LEASE_ENDED)
		memreg_user_work_queue(&lease->work);
}
