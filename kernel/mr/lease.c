// SPDX-License-Identifier: GPL-2.0-only
/*
 * Leases: deadlines of windows and exports.
 *
 * Each lease has a timer on CLOCK_BOOTTIME and a work item. The timer takes no
 * lock and only queues the work item, which decides under grant_lock whether
 * the time is over: a renewal may have come first. From the deadline on no call
 * grants anything under the lease, nor renews it, as calls compare with the
 * clock under the same lock; so it does not matter to them when the worker
 * runs.
 *
 * The end of a lease claims its windows as the end of a connection does: see
 * grants.c. The worker waits for no other task. A window that a call or the end
 * of a connection has claimed is left to it: whoever has claimed it ends it, or
 * returns it, which queues the work item again, as does the end of the last
 * grant.
 *
 * A window of type 2B may be in the hands of a work request that the peer
 * delays: a BIND, whose FRWR must not be destroyed before it has completed, or
 * an INVALIDATE. These get MEMREG_LEASE_GRACE, and then the connection ends, as
 * it does when a region becomes stale under a BIND.
 *
 * Destroying a lease, or closing its file, stops the timer and then the worker.
 * The worker takes no lock that is held then: not memreg_file.lock.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>

#include "core.h"
#include "device.h"
#include "keys/frwr.h"
#include "keys/key.h"
#include "mr/export.h"
#include "mr/grants.h"
#include "mr/lease.h"
#include "mr/trace.h"
#include "mr/window.h"
#include "pages/export.h"
#include "stats.h"
#include "watch/status.h"

/* How long a work request on a window of type 2B may outlast its lease */
#define MEMREG_LEASE_GRACE	(20 * NSEC_PER_MSEC)

/* Windows that are looked at with the lock held. */
#define MEMREG_LEASE_LOOK	64

/* Exports that begin to end in one hold of the lock. */
#define MEMREG_LEASE_EXPORTS	32

static struct memreg_lease *memreg_to_lease(struct memreg_object *obj)
{
	return container_of(obj, struct memreg_lease, obj);
}

static void memreg_lease_arm(struct memreg_lease *lease, u64 when)
{
	lockdep_assert_held(&lease->file->grant_lock);

	hrtimer_start(&lease->timer, ns_to_ktime(when),
		      HRTIMER_MODE_ABS_SOFT);
}

static enum hrtimer_restart memreg_lease_timer(struct hrtimer *timer)
{
	struct memreg_lease *lease =
		container_of(timer, struct memreg_lease, timer);

	memreg_user_work_queue(&lease->work);
	return HRTIMER_NORESTART;
}

/*
 * The event
 */

/**
 * memreg_lease_event_post() - Have the end of a lease reported
 * @lease: The lease, which the caller keeps
 */
void memreg_lease_event_post(struct memreg_lease *lease)
{
	struct memreg_file *file = lease->file;

	spin_lock(&file->event_lock);
	if (list_empty(&lease->event_node))
		list_add_tail(&lease->event_node, &file->ended_leases);
	spin_unlock(&file->event_lock);
	memreg_file_wake(file);
}

/**
 * memreg_lease_event_pop() - Take the first lease whose end is to be reported
 * @file: The file, whose event_lock is held
 *
 * Return: the lease, as long as the lock is held; or NULL.
 */
struct memreg_lease *memreg_lease_event_pop(struct memreg_file *file)
{
	struct memreg_lease *lease;

	lockdep_assert_held(&file->event_lock);

	lease = list_first_entry_or_null(&file->ended_leases,
					 struct memreg_lease, event_node);
	if (lease)
		list_del_init(&lease->event_node);
	return lease;
}

/* Report the end, if nothing is left under the lease. */
static void memreg_lease_report(struct memreg_lease *lease)
{
	bool report;

	spin_lock(&lease->file->grant_lock);
	report = !lease->grants && !lease->reported;
	if (report)
		lease->reported = true;
	spin_unlock(&lease->file->grant_lock);
	if (report)
		memreg_lease_event_post(lease);
}

/*
 * Exports under a lease that has ended
 */

/* Begin to end some exports. Returns true if there are more. */
static bool memreg_lease_revoke_some(struct memreg_lease *lease)
{
	struct memreg_export_obj *granted, *next;
	unsigned int n = MEMREG_LEASE_EXPORTS;
	bool more;

	spin_lock(&lease->file->grant_lock);
	list_for_each_entry_safe(granted, next, &lease->exports, lease_node) {
		memreg_export_revoke(granted->export);
		list_move_tail(&granted->lease_node, &lease->ending);
		if (!--n)
			break;
	}
	more = !list_empty(&lease->exports);
	spin_unlock(&lease->file->grant_lock);
	return more;
}

/* An export that ends, with a reference. Those being destroyed have none. */
static struct memreg_export_obj *
memreg_lease_ending_export(struct memreg_lease *lease)
{
	struct memreg_export_obj *granted, *found = NULL;

	spin_lock(&lease->file->grant_lock);
	list_for_each_entry(granted, &lease->ending, lease_node) {
		if (refcount_inc_not_zero(&granted->obj.users)) {
			found = granted;
			break;
		}
	}
	spin_unlock(&lease->file->grant_lock);
	return found;
}

/* Late importers delay the report by a second in all. */
static void memreg_lease_await_exports(struct memreg_lease *lease)
{
	unsigned long until = jiffies;
	struct memreg_export_obj *granted;

	/* The removal of a device waits for nobody. */
	if (!READ_ONCE(lease->file->mdev->gone))
		until += MEMREG_EXPORT_TIMEOUT;
	while ((granted = memreg_lease_ending_export(lease))) {
		memreg_export_obj_lease_end(lease->file, granted, until);
		memreg_object_put(&granted->obj);
	}
}

/*
 * Windows under a lease that has ended
 */

/* Has no work request on the window yet to complete? The caller claimed it. */
static bool memreg_lease_window_rests(const struct memreg_window *window)
{
	return window->type != IB_MEMREG_WINDOW_TYPE2B ||
	       !READ_ONCE(window->key.frwr->abort);
}

/* Claim a window, unless somebody else has, or a BIND of it is under way. */
static bool memreg_lease_claim_one(struct memreg_window *window)
{
	/* A window without users is being destroyed, which revokes it. */
	if (!refcount_inc_not_zero(&window->obj.users))
		return false;
	if (memreg_window_claim_ending(window)) {
		if (memreg_lease_window_rests(window))
			return true;
		memreg_window_give_back(window);
	}
	memreg_object_put(&window->obj);
	return false;
}

/* Leave a window to whoever has it, but not to a work request for long. */
static void memreg_lease_leave(struct memreg_lease *lease,
			       struct memreg_window *window, u64 now)
{
	list_move(&window->lease_node, &lease->claimed);
	if (window->type != IB_MEMREG_WINDOW_TYPE2B)
		return;
	if (now >= lease->abort_at)
		memreg_grants_abort(window->grants);
	else
		lease->waits = true;
}

/*
 * Claim some of the first windows of one domain. Returns their number, and the
 * number of windows that were looked at in @looks.
 */
static int memreg_lease_claim_some(struct memreg_lease *lease,
				   struct memreg_window **windows, int *looks)
{
	struct memreg_window *window, *next;
	u64 now = ktime_get_boottime_ns();
	int n = 0;

	list_for_each_entry_safe(window, next, &lease->windows, lease_node) {
		if (n == MEMREG_GRANTS_BATCH || *looks == MEMREG_LEASE_LOOK)
			break;
		if (n && window->domain != windows[0]->domain)
			break;
		++*looks;
		if (memreg_lease_claim_one(window))
			windows[n++] = window;
		else
			memreg_lease_leave(lease, window, now);
	}
	return n;
}

/* Claim some windows. Returns their number; 0 if no more can be claimed. */
static int memreg_lease_claim(struct memreg_lease *lease,
			      struct memreg_window **windows)
{
	int n, looks;

	do {
		looks = 0;
		spin_lock(&lease->file->grant_lock);
		n = memreg_lease_claim_some(lease, windows, &looks);
		spin_unlock(&lease->file->grant_lock);
	} while (!n && looks);
	return n;
}

static void memreg_lease_revoke_windows(struct memreg_lease *lease)
{
	struct memreg_window *windows[MEMREG_GRANTS_BATCH];
	int n;

	while ((n = memreg_lease_claim(lease, windows)))
		memreg_grants_revoke(lease->file, windows, n);
	spin_lock(&lease->file->grant_lock);
	if (lease->waits && lease->state == MEMREG_LEASE_ENDED)
		memreg_lease_arm(lease, lease->abort_at);
	spin_unlock(&lease->file->grant_lock);
}

/*
 * The end
 */

/* The deadline has come. */
static void memreg_lease_expire(struct memreg_lease *lease, u64 late)
{
	trace_memreg_lease_expire(lease, late);
	memreg_count(lease->file->mdev, IB_MEMREG_STAT_LEASES_EXPIRED, 1);
	/* Before any key dies. */
	if (lease->status)
		memreg_status_change(lease->status, lease->slot);
}

/*
 * Is the lease to be ended, or ended further? All its windows are then looked
 * at, also those that somebody else had claimed.
 */
static bool memreg_lease_begin(struct memreg_lease *lease)
{
	u64 now = ktime_get_boottime_ns(), late = 0;
	bool ends, expired = false;

	spin_lock(&lease->file->grant_lock);
	if (lease->state == MEMREG_LEASE_LIVE) {
		expired = lease->deadline <= now;
		late = now - lease->deadline;
		/* It was renewed, or the timer was early. */
		if (!expired)
			memreg_lease_arm(lease, lease->deadline);
	}
	if (expired) {
		lease->state = MEMREG_LEASE_ENDED;
		lease->abort_at = now + MEMREG_LEASE_GRACE;
	}
	ends = lease->state == MEMREG_LEASE_ENDED;
	lease->waits = false;
	list_splice_init(&lease->claimed, &lease->windows);
	spin_unlock(&lease->file->grant_lock);
	if (expired)
		memreg_lease_expire(lease, late);
	return ends;
}

static void memreg_lease_work(struct work_struct *work)
{
	struct memreg_lease *lease =
		container_of(work, struct memreg_lease, work.work);

	if (memreg_lease_begin(lease)) {
		while (memreg_lease_revoke_some(lease))
			cond_resched();
		memreg_lease_revoke_windows(lease);
		memreg_lease_await_exports(lease);
		memreg_lease_report(lease);
	}
	memreg_user_work_end(&lease->work);
}

/*
 * LEASE_CREATE
 */

static void memreg_lease_timer_init(struct memreg_lease *lease)
{
#ifdef MEMREG_HRTIMER_SETUP
	hrtimer_setup(&lease->timer, memreg_lease_timer, CLOCK_BOOTTIME,
		      HRTIMER_MODE_ABS_SOFT);
#else
	hrtimer_init(&lease->timer, CLOCK_BOOTTIME, HRTIMER_MODE_ABS_SOFT);
	lease->timer.function = memreg_lease_timer;
#endif
}

static struct memreg_lease *memreg_lease_alloc(struct memreg_file *file,
					       u64 deadline)
{
	struct memreg_lease *lease;

	lease = kzalloc(sizeof(*lease), GFP_KERNEL_ACCOUNT);
	if (!lease)
		return NULL;
	lease->file = file;
	lease->deadline = min_t(u64, deadline, KTIME_MAX);
	INIT_LIST_HEAD(&lease->windows);
	INIT_LIST_HEAD(&lease->claimed);
	INIT_LIST_HEAD(&lease->exports);
	INIT_LIST_HEAD(&lease->ending);
	INIT_LIST_HEAD(&lease->event_node);
	memreg_lease_timer_init(lease);
	memreg_user_work_init(&lease->work, file->user, MEMREG_WORK_LEASE,
			      memreg_lease_work);
	return lease;
}

static void memreg_lease_give_slot(struct memreg_lease *lease)
{
	if (!lease->status)
		return;
	memreg_status_give_slot(lease->status, lease->slot);
	memreg_status_put(lease->status);
}

static int memreg_lease_take_slot(struct memreg_ucmd *ucmd,
				  struct memreg_lease *lease)
{
	struct ib_memreg_lease_create *cmd = ucmd->cmd;
	struct memreg_kstatus *status;

	status = memreg_status_reserve(ucmd, cmd->status_id, &lease->slot);
	if (IS_ERR_OR_NULL(status))
		return PTR_ERR_OR_ZERO(status);
	lease->status = status;
	cmd->out_slot = lease->slot;
	cmd->out_generation = memreg_status_generation(status, lease->slot);
	return 0;
}

static const struct memreg_object_ops memreg_lease_ops;

/* ioctl(IB_MEMREG_IOC_LEASE_CREATE) */
int memreg_lease_create_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_lease_create *cmd = ucmd->cmd;
	struct memreg_lease *lease;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	lease = memreg_lease_alloc(ucmd->file, cmd->deadline);
	if (!lease)
		return -ENOMEM;
	ret = memreg_lease_take_slot(ucmd, lease);
	if (ret)
		goto err_free;
	ret = memreg_object_alloc(ucmd->file, &lease->obj, &memreg_lease_ops);
	if (ret)
		goto err_slot;
	memreg_object_made(ucmd, &lease->obj);
	cmd->out_lease_id = lease->obj.id;
	return memreg_respond(ucmd, sizeof(*cmd));

err_slot:
	memreg_lease_give_slot(lease);
err_free:
	kfree(lease);
	return ret;
}

/* Only a lease that a call has made ends. */
static void memreg_lease_published(struct memreg_file *file,
				   struct memreg_object *obj)
{
	struct memreg_lease *lease = memreg_to_lease(obj);

	spin_lock(&file->grant_lock);
	memreg_lease_arm(lease, lease->deadline);
	spin_unlock(&file->grant_lock);
	memreg_object_put(obj);
}

/*
 * LEASE_RENEW
 */

/* Renew all leases of a call, or none. Returns the index of one that ended. */
static u32 memreg_leases_renew(struct memreg_file *file,
			       struct memreg_object **objs,
			       const struct ib_memreg_renewal *renewals,
			       u32 count)
{
	u64 now = ktime_get_boottime_ns();
	struct memreg_lease *lease;
	u32 i;

	spin_lock(&file->grant_lock);
	for (i = 0; i < count; i++)
		if (memreg_lease_is_over(memreg_to_lease(objs[i]), now))
			goto out;
	for (i = 0; i < count; i++) {
		lease = memreg_to_lease(objs[i]);
		lease->deadline = min_t(u64, renewals[i].deadline, KTIME_MAX);
		memreg_lease_arm(lease, lease->deadline);
	}
out:
	spin_unlock(&file->grant_lock);
	return i;
}

/* Check the entries of a call, and renew; @objs has room for the leases. */
static int memreg_lease_renew_all(struct memreg_ucmd *ucmd,
				  const struct ib_memreg_renewal *renewals,
				  struct memreg_object **objs)
{
	struct ib_memreg_lease_renew *cmd = ucmd->cmd;
	u32 i;

	for (i = 0; i < cmd->count; i++) {
		cmd->out_index = i;
		if (renewals[i].reserved)
			return memreg_fail(ucmd, -EINVAL,
					   IB_MEMREG_REASON_RESERVED);
		if (!objs[i])
			return memreg_fail(ucmd, -ENOENT,
					   IB_MEMREG_REASON_ID);
	}
	cmd->out_index = memreg_leases_renew(ucmd->file, objs, renewals,
					     cmd->count);
	if (cmd->out_index < cmd->count)
		return memreg_fail(ucmd, -ESTALE,
				   IB_MEMREG_REASON_LEASE_ENDED);
	return 0;
}

static int memreg_lease_renew_copied(struct memreg_ucmd *ucmd,
				     const struct ib_memreg_renewal *renewals,
				     struct memreg_object **objs)
{
	struct ib_memreg_lease_renew *cmd = ucmd->cmd;
	u32 i;
	int ret;

	memreg_objects_get(ucmd->file, IB_MEMREG_OBJECT_LEASE,
			   &renewals->lease_id, sizeof(*renewals), cmd->count,
			   objs);
	ret = memreg_lease_renew_all(ucmd, renewals, objs);
	for (i = 0; i < cmd->count; i++)
		if (objs[i])
			memreg_object_put(objs[i]);
	/* If this copy fails as well, only the entry's index is lost. */
	if (ret)
		memreg_respond(ucmd, sizeof(*cmd));
	return ret;
}

/* ioctl(IB_MEMREG_IOC_LEASE_RENEW) */
int memreg_lease_renew_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_lease_renew *cmd = ucmd->cmd;
	struct ib_memreg_renewal *renewals;
	struct memreg_object **objs;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->count || cmd->count > IB_MEMREG_BATCH_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	renewals = kmalloc_array(cmd->count, sizeof(*renewals) + sizeof(*objs),
				 GFP_KERNEL_ACCOUNT);
	if (!renewals)
		return -ENOMEM;
	objs = (void *)(renewals + cmd->count);
	if (copy_from_user(renewals, u64_to_user_ptr(cmd->renewals),
			   cmd->count * sizeof(*renewals)))
		ret = -EFAULT;
	else
		ret = memreg_lease_renew_copied(ucmd, renewals, objs);
	kfree(renewals);
	return ret;
}

/*
 * The object
 */

/* Make sure that the worker does not run, and will not run any more. */
static void memreg_lease_stop(struct memreg_lease *lease)
{
	bool live;

	spin_lock(&lease->file->grant_lock);
	live = lease->state == MEMREG_LEASE_LIVE;
	lease->state = MEMREG_LEASE_CLOSED;
	spin_unlock(&lease->file->grant_lock);
	if (live && lease->status)
		memreg_status_change(lease->status, lease->slot);
	hrtimer_cancel(&lease->timer);
	memreg_user_work_disable(&lease->work);
}

/* As the file closes, no worker holds references of windows and exports. */
static void memreg_lease_idle(struct memreg_object *obj, bool closing)
{
	struct memreg_lease *lease = memreg_to_lease(obj);

	if (closing)
		memreg_lease_stop(lease);
}

static void memreg_lease_destroy(struct memreg_file *file,
				 struct memreg_object *obj)
{
	struct memreg_lease *lease = memreg_to_lease(obj);

	memreg_lease_stop(lease);
	WARN_ON(lease->grants);
	spin_lock(&file->event_lock);
	list_del_init(&lease->event_node);
	spin_unlock(&file->event_lock);
	memreg_lease_give_slot(lease);
	kfree(lease);
}

static u32 memreg_lease_busy(const struct memreg_object *obj)
{
	const struct memreg_lease *lease =
		container_of(obj, struct memreg_lease, obj);

	return READ_ONCE(lease->grants) ? IB_MEMREG_REASON_LEASE_GRANTS :
					  IB_MEMREG_REASON_IN_USE;
}

static void memreg_lease_info(struct memreg_object *obj,
			      struct ib_memreg_object *info)
{
	struct memreg_lease *lease = memreg_to_lease(obj);
	struct memreg_file *file = lease->file;

	spin_lock(&file->grant_lock);
	info->u.lease.deadline = lease->deadline;
	info->u.lease.grants = lease->grants;
	info->u.lease.ended = memreg_lease_is_over(lease,
						   ktime_get_boottime_ns());
	spin_unlock(&file->grant_lock);
}

static const struct memreg_object_ops memreg_lease_ops = {
	.type = IB_MEMREG_OBJECT_LEASE,
	.destroy = memreg_lease_destroy,
	.idle = memreg_lease_idle,
	.published = memreg_lease_published,
	.busy = memreg_lease_busy,
	.info = memreg_lease_info,
};
