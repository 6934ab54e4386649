// SPDX-License-Identifier: GPL-2.0-only
/*
 * Monitors: address ranges that are watched on behalf of other registration
 * APIs.
 *
 * A registration cache over another API, such as ibv_reg_mr(), has to know
 * which of its entries still match the mapping. A monitor is an mmu interval
 * notifier that counts, in a slot of a status table, the events that may have
 * taken pages away. A monitor needs no device, pins no pages, has no keys to
 * kill, and its callback never waits.
 *
 * Events are classified as for guards: see kernel/watch/watch.c. After a
 * suspect event a worker decides. As it has no pages to compare, it checks the
 * mapping: a change of protection counts if the access is gone that the monitor
 * was made for, which excludes mprotect(2) that leaves the access and scans for
 * NUMA balancing. A wide monitor logs each mapping that has lost it, and not
 * what lies between two. Of the events of kernel threads, those of reclaim and
 * KSM do not count, as the registration has pinned the pages and both leave
 * pinned pages in place; all others count if the mapping is of a file. The
 * worker is that of guards (kernel/watch/space.c), to which a mapping counts as
 * a page. If mmap_lock can't be taken for long, the event counts: see
 * memreg_look_is_futile().
 *
 * A notifier event comes before the change that it announces. A generation is
 * therefore only valid if no change was in progress when it was read: the call
 * that creates a monitor reads the generation that it returns, and then waits
 * for changes in progress. A change that begins later finds the monitor, and
 * advances the generation.
 */
#include <linux/interval_tree.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core.h"
#include "watch/depth.h"
#include "watch/event.h"
#include "watch/monitor.h"
#include "watch/monitor_dmabuf.h"
#include "watch/notifier.h"
#include "watch/space.h"
#include "watch/status.h"

/*
 * Cost of a monitor, in mappings, beyond the mappings that it is checked for.
 */
#define MEMREG_MONITOR_COST	8U

/**
 * struct memreg_suspicion - A check to do, or in progress
 * @start: First address that is not checked yet
 * @end: Address behind the last one to check; @start if there is nothing to do
 * @takes_pages: A kernel thread other than reclaim takes pages away
 * @since: Jiffies of the first event since the last check with a result
 * @tries: Number of checks without a result since then
 */
struct memreg_suspicion {
	unsigned long start;
	unsigned long end;
	bool takes_pages;
	unsigned long since;
	unsigned int tries;
};

/**
 * struct memreg_monitor - A watched address range
 * @obj: Head
 * @status: The table that has the slot; holds a reference
 * @slot: The slot
 * @access: enum ib_memreg_access that the mapping must allow
 * @wide: It watches the whole address space, and writes the log
 * @notifier: mmu interval notifier of the range
 * @depth_node: In memreg_space.monitors
 * @suspect: What the worker checks
 * @due: The next check; memreg_kstatus.lock
 */
struct memreg_monitor {
	struct memreg_object obj;
	struct memreg_kstatus *status;
	u32 slot;
	u32 access;
	bool wide;
	struct mmu_interval_notifier notifier;
	struct interval_tree_node depth_node;
	struct memreg_suspect suspect;
	struct memreg_suspicion due;
};

/*
 * Events
 */

/* Count a change of a monitor's range. The table's lock is held. */
static void memreg_monitor_change(struct memreg_monitor *monitor,
				  unsigned long start, unsigned long end)
{
	struct memreg_kstatus *status = monitor->status;

	if (monitor->wide)
		memreg_status_log_range(status, start, end);
	__memreg_status_change(status, monitor->slot);
}

/* Extend the next check by a range. The table's lock is held. */
static void memreg_monitor_suspect(struct memreg_monitor *monitor,
				   const struct memreg_suspicion *what)
{
	struct memreg_suspicion *due = &monitor->due;

	lockdep_assert_held(&monitor->status->lock);

	if (due->start == due->end) {
		*due = *what;
		return;
	}
	due->start = min(due->start, what->start);
	due->end = max(due->end, what->end);
	due->takes_pages |= what->takes_pages;
	if (time_before(what->since, due->since))
		due->since = what->since;
	due->tries = max(due->tries, what->tries);
}

/* The part of an event that a monitor watches. */
static void memreg_monitor_clip(const struct memreg_monitor *monitor,
				const struct mmu_notifier_range *range,
				struct memreg_suspicion *what)
{
	const struct interval_tree_node *node =
		&monitor->notifier.interval_tree;

	*what = (struct memreg_suspicion) {
		.start = max(range->start, node->start),
		/* node->last is inclusive. */
		.end = min(range->end - 1, node->last) + 1,
		.takes_pages = memreg_event_takes_pages(range),
		.since = jiffies,
	};
}

static bool memreg_monitor_invalidate(struct mmu_interval_notifier *notifier,
				      const struct mmu_notifier_range *range,
				      unsigned long cur_seq)
{
	struct memreg_monitor *monitor =
		container_of(notifier, struct memreg_monitor, notifier);
	enum memreg_verdict verdict = memreg_event_classify(range);
	struct memreg_kstatus *status = monitor->status;
	struct memreg_suspicion what;

	memreg_monitor_clip(monitor, range, &what);
	spin_lock(&status->lock);
	mmu_interval_set_seq(notifier, cur_seq);
	memreg_status_count(status, &status->shared->events);
	if (verdict == MEMREG_GONE)
		memreg_monitor_change(monitor, what.start, what.end);
	if (verdict == MEMREG_SUSPECT) {
		memreg_status_suspect(status, monitor->slot);
		memreg_monitor_suspect(monitor, &what);
	}
	spin_unlock(&status->lock);
	if (verdict == MEMREG_GONE)
		memreg_status_wake(status);
	else if (verdict == MEMREG_SUSPECT)
		memreg_suspect_add(&monitor->suspect, MEMREG_LOOK_DELAY);
	return true;
}

static const struct mmu_interval_notifier_ops memreg_monitor_notifier_ops = {
	.invalidate = memreg_monitor_invalidate,
};

/*
 * Looking at the mapping
 */

/* Does a mapping still allow the monitor's access, and have the same pages? */
static bool memreg_monitor_vma_same(const struct memreg_monitor *monitor,
				    const struct memreg_suspicion *what,
				    const struct vm_area_struct *vma)
{
	/* Pinning for writing does not need VM_READ. */
	unsigned long need = VM_READ | VM_WRITE;

	if (monitor->wide || monitor->access & IB_MEMREG_ACCESS_LOCAL_WRITE)
		need = VM_WRITE;
	return vma->vm_flags & need && !(what->takes_pages && vma->vm_file);
}

/*
 * The suspect range of a wide monitor has all that lies between the events that
 * it is made of: log the mapping that has changed, and nothing else.
 */
static void memreg_monitor_log(struct memreg_monitor *monitor,
			       const struct memreg_suspicion *what,
			       const struct vm_area_struct *vma)
{
	struct memreg_kstatus *status = monitor->status;

	spin_lock(&status->lock);
	memreg_monitor_change(monitor, max(what->start, vma->vm_start),
			      min(what->end, vma->vm_end));
	spin_unlock(&status->lock);
	memreg_status_wake(status);
}

/*
 * Continue to compare the mappings of a range with what the monitor expects, up
 * to @pages of them; then @what->start is the next address.
 */
static enum memreg_verdict
memreg_monitor_compare(struct memreg_monitor *monitor,
		       struct memreg_suspicion *what, unsigned int *pages)
{
	enum memreg_verdict verdict = MEMREG_SAME;
	struct mm_struct *mm = monitor->notifier.mm;
	struct vm_area_struct *vma;
	struct vma_iterator vmi;

	mmap_assert_locked(mm);

	vma_iter_init(&vmi, mm, what->start);
	for_each_vma_range(vmi, vma, what->end) {
		if (!*pages) {
			what->start = max(what->start, vma->vm_start);
			return MEMREG_SAME;
		}
		--*pages;
		if (!memreg_monitor_vma_same(monitor, what, vma)) {
			if (!monitor->wide)
				return MEMREG_GONE;
			memreg_monitor_log(monitor, what, vma);
			verdict = MEMREG_GONE;
		}
		cond_resched();
	}
	what->start = what->end;
	return verdict;
}

/* Take the check that is due, if there is one. */
static bool memreg_monitor_take(struct memreg_monitor *monitor,
				struct memreg_suspicion *what)
{
	spin_lock(&monitor->status->lock);
	*what = monitor->due;
	monitor->due.start = monitor->due.end;
	spin_unlock(&monitor->status->lock);
	return what->start < what->end;
}

/* The worker has checked what was due, or a part of it. */
static void memreg_monitor_judge(struct memreg_monitor *monitor,
				 const struct memreg_suspicion *what,
				 enum memreg_verdict verdict)
{
	struct memreg_kstatus *status = monitor->status;
	bool again = verdict == MEMREG_SUSPECT ||
		     (verdict == MEMREG_SAME && what->start < what->end);

	spin_lock(&status->lock);
	if (again)
		memreg_monitor_suspect(monitor, what);
	else if (verdict == MEMREG_SAME)
		memreg_status_count(status, &status->shared->unchanged);
	else if (what->start < what->end)
		memreg_monitor_change(monitor, what->start, what->end);
	spin_unlock(&status->lock);
	if (again)
		memreg_suspect_add(&monitor->suspect,
				   verdict == MEMREG_SUSPECT ?
				   MEMREG_LOOK_DELAY : 0);
	else if (verdict == MEMREG_GONE)
		memreg_status_wake(status);
}

static void memreg_monitor_look(struct memreg_suspect *suspect,
				enum memreg_verdict verdict,
				unsigned int *pages)
{
	struct memreg_monitor *monitor =
		container_of(suspect, struct memreg_monitor, suspect);
	struct memreg_suspicion what;

	*pages -= min(*pages, MEMREG_MONITOR_COST);
	if (!memreg_monitor_take(monitor, &what))
		return;
	if (verdict == MEMREG_SAME) {
		verdict = memreg_monitor_compare(monitor, &what, pages);
	} else if (verdict == MEMREG_SUSPECT) {
		what.tries++;
		if (memreg_look_is_futile(what.since, what.tries))
			verdict = MEMREG_GONE;
	}
	memreg_monitor_judge(monitor, &what, verdict);
}

/*
 * Life
 */

static void memreg_monitor_free(struct memreg_monitor *monitor)
{
	/* Waits for running callbacks. */
	mmu_interval_notifier_remove(&monitor->notifier);
	memreg_depth_remove(monitor->status->space, &monitor->depth_node);
	memreg_suspect_remove(&monitor->suspect);
	memreg_status_give_slot(monitor->status, monitor->slot);
	if (monitor->wide)
		WRITE_ONCE(monitor->status->wide, false);
	memreg_status_put(monitor->status);
	kfree(monitor);
}

static int memreg_monitor_check_range(struct memreg_ucmd *ucmd,
				      const struct ib_memreg_monitor *arg)
{
	u64 end;

	if (arg->flags & IB_MEMREG_MONITOR_WIDE)
		return arg->addr || arg->length ?
		       memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RANGE) : 0;
	if (!arg->length)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_ZERO_LENGTH);
	if (check_add_overflow(arg->addr, arg->length, &end))
		return memreg_fail(ucmd, -EOVERFLOW, IB_MEMREG_REASON_WRAPS);
	if (end > TASK_SIZE)
		return memreg_fail(ucmd, -EFAULT, IB_MEMREG_REASON_RANGE);
	return 0;
}

static int memreg_monitor_check(struct memreg_ucmd *ucmd,
				struct memreg_kstatus *status,
				const struct ib_memreg_monitor *arg)
{
	if (arg->flags & ~IB_MEMREG_MONITOR_WIDE)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (arg->access & ~IB_MEMREG_ACCESS_LOCAL_WRITE)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ACCESS);
	if (arg->flags & IB_MEMREG_MONITOR_WIDE &&
	    !status->shared->log_entries)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_LOG);
	return memreg_monitor_check_range(ucmd, arg);
}

/* A table can have only one wide monitor, as it has only one log. */
static bool memreg_monitor_claim_log(struct memreg_kstatus *status)
{
	bool claimed;

	spin_lock(&status->lock);
	claimed = !READ_ONCE(status->wide);
	WRITE_ONCE(status->wide, true);
	spin_unlock(&status->lock);
	return claimed;
}

static int memreg_monitor_insert(struct memreg_ucmd *ucmd,
				 struct memreg_monitor *monitor,
				 const struct ib_memreg_monitor *arg)
{
	struct memreg_space *space = monitor->status->space;
	unsigned long start = arg->addr & PAGE_MASK;
	unsigned long length = PAGE_ALIGN(arg->addr + arg->length) - start;
	int ret;

	if (monitor->wide)
		length = TASK_SIZE;
	if (!memreg_depth_add(space, &monitor->depth_node, start, length))
		return memreg_fail(ucmd, -ENOSPC, IB_MEMREG_REASON_DEPTH);
	ret = memreg_notifier_insert(&monitor->notifier, current->mm, start,
				     length, &memreg_monitor_notifier_ops);
	if (ret)
		memreg_depth_remove(space, &monitor->depth_node);
	return ret;
}

/* Take a slot of the table for a monitor, and the log if it is wide. */
static int memreg_monitor_take_slot(struct memreg_ucmd *ucmd,
				    struct memreg_monitor *monitor)
{
	struct memreg_kstatus *status = monitor->status;

	if (memreg_status_take_slot(status, &monitor->slot))
		return memreg_fail(ucmd, -ENOSPC, IB_MEMREG_REASON_SLOTS);
	if (!monitor->wide || memreg_monitor_claim_log(status))
		return 0;
	memreg_status_give_slot(status, monitor->slot);
	return memreg_fail(ucmd, -EBUSY, IB_MEMREG_REASON_LOG);
}

static void memreg_monitor_give_slot(struct memreg_monitor *monitor)
{
	if (monitor->wide)
		WRITE_ONCE(monitor->status->wide, false);
	memreg_status_give_slot(monitor->status, monitor->slot);
}

/* Make a monitor that is not published yet. The caller holds the table. */
static struct memreg_monitor *
memreg_monitor_new(struct memreg_ucmd *ucmd, struct memreg_kstatus *status,
		   const struct ib_memreg_monitor *arg)
{
	struct memreg_monitor *monitor;
	int ret;

	ret = memreg_monitor_check(ucmd, status, arg);
	if (ret)
		return ERR_PTR(ret);
	monitor = kzalloc(sizeof(*monitor), GFP_KERNEL_ACCOUNT);
	if (!monitor)
		return ERR_PTR(-ENOMEM);
	monitor->status = status;
	monitor->access = arg->access;
	monitor->wide = arg->flags & IB_MEMREG_MONITOR_WIDE;
	monitor->suspect.space = status->space;
	monitor->suspect.look = memreg_monitor_look;
	INIT_LIST_HEAD(&monitor->suspect.node);
	ret = memreg_monitor_take_slot(ucmd, monitor);
	if (ret)
		goto err_free;
	ret = memreg_object_alloc(ucmd->file, &monitor->obj,
				  &memreg_monitor_ops);
	if (ret)
		goto err_slot;
	ret = memreg_monitor_insert(ucmd, monitor, arg);
	if (ret)
		goto err_abort;
	refcount_inc(&status->obj.users);
	return monitor;

err_abort:
	memreg_object_abort(ucmd->file, &monitor->obj);
err_slot:
	memreg_monitor_give_slot(monitor);
err_free:
	kfree(monitor);
	return ERR_PTR(ret);
}

/*
 * Calls
 */

/*
 * Fill in the answer for a new monitor. A change that is in progress when the
 * generation is read has ended when this returns; one that begins later
 * advances the generation.
 */
static void memreg_monitor_describe(struct memreg_monitor *monitor,
				    struct ib_memreg_monitor *arg)
{
	arg->out_monitor_id = monitor->obj.id;
	arg->out_slot = monitor->slot;
	arg->out_generation = memreg_status_generation(monitor->status,
						       monitor->slot);
	mmu_interval_read_begin(&monitor->notifier);
}

/* Make a monitor, as a part of the call. */
static int memreg_monitor_make(struct memreg_ucmd *ucmd,
			       struct memreg_kstatus *status,
			       struct ib_memreg_monitor *arg)
{
	struct memreg_monitor *monitor;

	if (arg->flags & IB_MEMREG_MONITOR_DMABUF)
		return memreg_dmabuf_monitor_make(ucmd, status, arg);
	monitor = memreg_monitor_new(ucmd, status, arg);
	if (IS_ERR(monitor))
		return PTR_ERR(monitor);
	memreg_object_made(ucmd, &monitor->obj);
	memreg_monitor_describe(monitor, arg);
	return 0;
}

/*
 * While a change of the address space is in progress, the kernel does not
 * insert a notifier, but has the task that ends the change insert all that
 * came meanwhile, under a spinlock. That may be another user's, who truncates a
 * file. To leave it no more than one notifier of a thread, wait for the change
 * before the next.
 */
static int memreg_monitors_make(struct memreg_ucmd *ucmd,
				struct memreg_kstatus *status,
				struct ib_memreg_monitor *args)
{
	struct ib_memreg_monitor_create *cmd = ucmd->cmd;
	u32 i, n = cmd->count;
	int ret;

	for (i = 0; i < n; i++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		ret = memreg_monitor_make(ucmd, status, &args[i]);
		if (ret) {
			cmd->out_index = i;
			return ret;
		}
	}
	if (copy_to_user(u64_to_user_ptr(cmd->monitors), args,
			 array_size(n, sizeof(*args))))
		return -EFAULT;
	return memreg_respond(ucmd, sizeof(*cmd));
}

static int memreg_monitors_create(struct memreg_ucmd *ucmd,
				  struct memreg_kstatus *status)
{
	struct ib_memreg_monitor_create *cmd = ucmd->cmd;
	struct ib_memreg_monitor *args;
	int ret;

	args = kvmalloc_array(cmd->count, sizeof(*args), GFP_KERNEL_ACCOUNT);
	if (!args)
		return -ENOMEM;
	if (copy_from_user(args, u64_to_user_ptr(cmd->monitors),
			   array_size(cmd->count, sizeof(*args))))
		ret = -EFAULT;
	else
		ret = memreg_monitors_make(ucmd, status, args);
	kvfree(args);
	return ret;
}

/* ioctl(IB_MEMREG_IOC_MONITOR_CREATE) */
int memreg_monitor_create_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_monitor_create *cmd = ucmd->cmd;
	struct memreg_kstatus *status;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (!cmd->count || cmd->count > IB_MEMREG_BATCH_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	status = memreg_status_get(ucmd, cmd->status_id);
	if (IS_ERR(status))
		return PTR_ERR(status);
	cmd->out_index = cmd->count;
	ret = memreg_monitors_create(ucmd, status);
	memreg_status_put(status);
	/* On failure only the index of the entry that failed is returned. */
	if (ret && cmd->out_index < cmd->count &&
	    memreg_respond(ucmd, sizeof(*cmd)))
		ret = -EFAULT;
	return ret;
}

/* ioctl(IB_MEMREG_IOC_MONITOR_DESTROY) */
int memreg_monitor_destroy_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_monitor_destroy *cmd = ucmd->cmd;
	struct memreg_object **objs;
	u32 *ids;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->count || cmd->count > IB_MEMREG_BATCH_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	objs = kvmalloc_array(cmd->count, sizeof(*objs) + sizeof(*ids),
			      GFP_KERNEL_ACCOUNT);
	if (!objs)
		return -ENOMEM;
	ids = (void *)(objs + cmd->count);
	cmd->out_index = cmd->count;
	if (copy_from_user(ids, u64_to_user_ptr(cmd->ids),
			   array_size(cmd->count, sizeof(*ids))))
		ret = -EFAULT;
	else
		ret = memreg_objects_destroy(ucmd, IB_MEMREG_OBJECT_MONITOR,
					     ids, objs, cmd->count,
					     &cmd->out_index);
	kvfree(objs);
	/* On failure only the index of the entry that failed is returned. */
	if (ret && cmd->out_index < cmd->count &&
	    memreg_respond(ucmd, sizeof(*cmd)))
		ret = -EFAULT;
	return ret;
}

static void memreg_monitor_destroy_one(struct memreg_file *file,
				       struct memreg_object *obj)
{
	memreg_monitor_free(container_of(obj, struct memreg_monitor, obj));
}

static void memreg_monitor_info(struct memreg_object *obj,
				struct ib_memreg_object *info)
{
	struct memreg_monitor *monitor =
		container_of(obj, struct memreg_monitor, obj);
	const struct interval_tree_node *node =
		&monitor->notifier.interval_tree;

	info->u.monitor.status_id = monitor->status->obj.id;
	info->u.monitor.addr = node->start;
	info->u.monitor.length = node->last - node->start + 1;
	info->u.monitor.access = monitor->access;
}

const struct memreg_object_ops memreg_monitor_ops = {
	.type = IB_MEMREG_OBJECT_MONITOR,
	.destroy = memreg_monitor_destroy_one,
	.info = memreg_monitor_info,
};
