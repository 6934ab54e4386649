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
 * Events are classified as for guards: see kernel/mem/watch.c. After a suspect
 * event a worker decides. As it has no pages to compare, it checks the mapping:
 * a change of protection counts if the access is gone that the monitor was made
 * for, which excludes mprotect(2) that leaves the access and scans for NUMA
 * balancing. Of the events of kernel threads, those of reclaim and KSM do not
 * count, as the registration has pinned the pages and both leave pinned pages
 * in place; all others count if the mapping is of a file. The worker only tries
 * to take mmap_lock. If it fails for MEMREG_MONITOR_LIMIT, the event counts.
 * Tables with suspect monitors take turns at the worker, and each may check
 * MEMREG_MONITOR_VMAS mappings a turn: this bounds the delay that a process
 * with many monitors of many mappings can cause to others.
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
#include <linux/oom.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "core.h"
#include "mem/depth.h"
#include "mem/event.h"
#include "mem/monitor.h"
#include "mem/notifier.h"
#include "mem/status.h"

/*
 * Delay from a suspect event to the check, and the time after which it counts.
 */
#define MEMREG_MONITOR_DELAY	msecs_to_jiffies(10)
#define MEMREG_MONITOR_LIMIT	(HZ * 9 / 10)

/* Mappings that the worker checks before the next table's turn. */
#define MEMREG_MONITOR_VMAS	1024

/*
 * Cost of a monitor, in mappings, beyond the mappings that it is checked for.
 */
#define MEMREG_MONITOR_COST	8

/**
 * struct memreg_monitor - A watched address range
 * @obj: Head
 * @status: The table that has the slot; holds a reference
 * @slot: The slot
 * @access: enum ib_memreg_access that the mapping must allow
 * @wide: It watches the whole address space, and writes the log
 * @notifier: mmu interval notifier of the range
 * @depth_node: In the memreg_depth of @status
 * @suspect_node: In memreg_kstatus.suspects, or in the list of the worker;
 *	memreg_suspects_lock
 * @start: First address to check; memreg_suspects_lock
 * @end: Address behind the last one to check; memreg_suspects_lock
 * @takes_pages: A kernel thread other than reclaim takes pages away;
 *	memreg_suspects_lock
 * @since: Jiffies of the first event since the last check; memreg_suspects_lock
 */
struct memreg_monitor {
	struct memreg_object obj;
	struct memreg_kstatus *status;
	u32 slot;
	u32 access;
	bool wide;
	struct mmu_interval_notifier notifier;
	struct interval_tree_node depth_node;
	struct list_head suspect_node;
	unsigned long start;
	unsigned long end;
	bool takes_pages;
	unsigned long since;
};

/**
 * struct memreg_suspicion - A check to do, taken from a monitor
 * @start: First address that is not checked yet
 * @end: Address behind the last one to check
 * @takes_pages: A kernel thread other than reclaim takes pages away
 * @since: Jiffies of the first event
 */
struct memreg_suspicion {
	unsigned long start;
	unsigned long end;
	bool takes_pages;
	unsigned long since;
};

/**
 * struct memreg_monitor_turn - The worker's turn at a table
 * @status: The table; holds a reference
 * @suspects: Monitors to check, by memreg_monitor.suspect_node;
 *	memreg_suspects_lock
 * @alive: The address space of the table is not exiting; @status's mm is held
 * @locked: mmap_lock of the address space is held
 * @left: Mappings that may be checked before the next table's turn
 */
struct memreg_monitor_turn {
	struct memreg_kstatus *status;
	struct list_head suspects;
	bool alive;
	bool locked;
	int left;
};

/*
 * Tables with monitors to check, by memreg_kstatus.suspect_node, and the
 * monitor that the worker is checking now.
 */
static DEFINE_SPINLOCK(memreg_suspects_lock);
static LIST_HEAD(memreg_suspects);
static struct memreg_monitor *memreg_looked_at;

static struct workqueue_struct *memreg_monitor_wq;

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

static void memreg_monitor_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(memreg_monitor_looks, memreg_monitor_work);

/* Queue a table for the worker, if it has monitors to check. */
static void memreg_suspects_add(struct memreg_kstatus *status)
{
	lockdep_assert_held(&memreg_suspects_lock);

	if (!list_empty(&status->suspects) &&
	    list_empty(&status->suspect_node))
		list_add_tail(&status->suspect_node, &memreg_suspects);
}

/* Have the worker check a range, along with the range it is yet to check. */
static void memreg_monitor_suspect(struct memreg_monitor *monitor,
				   const struct memreg_suspicion *what)
{
	struct memreg_kstatus *status = monitor->status;

	spin_lock(&memreg_suspects_lock);
	if (list_empty(&monitor->suspect_node)) {
		monitor->start = what->start;
		monitor->end = what->end;
		monitor->takes_pages = what->takes_pages;
		monitor->since = what->since;
		list_add_tail(&monitor->suspect_node, &status->suspects);
		memreg_suspects_add(status);
	} else {
		monitor->start = min(monitor->start, what->start);
		monitor->end = max(monitor->end, what->end);
		monitor->takes_pages |= what->takes_pages;
		if (time_before(what->since, monitor->since))
			monitor->since = what->since;
	}
	spin_unlock(&memreg_suspects_lock);
	queue_delayed_work(memreg_monitor_wq, &memreg_monitor_looks,
			   MEMREG_MONITOR_DELAY);
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
	else if (verdict == MEMREG_SUSPECT)
		memreg_status_suspect(status, monitor->slot);
	spin_unlock(&status->lock);
	if (verdict == MEMREG_GONE)
		memreg_status_wake(status);
	else if (verdict == MEMREG_SUSPECT)
		memreg_monitor_suspect(monitor, &what);
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
 * Continue to compare the mappings of a range with what the monitor expects, as
 * many mappings as the turn has left; then @what->start is the next address.
 */
static enum memreg_verdict
memreg_monitor_compare(const struct memreg_monitor *monitor,
		       struct memreg_suspicion *what,
		       struct memreg_monitor_turn *turn)
{
	struct mm_struct *mm = monitor->notifier.mm;
	struct vm_area_struct *vma;
	struct vma_iterator vmi;

	mmap_assert_locked(mm);

	/* The OOM reaper takes anonymous pages away, too. */
	if (check_stable_address_space(mm))
		return MEMREG_GONE;
	vma_iter_init(&vmi, mm, what->start);
	for_each_vma_range(vmi, vma, what->end) {
		if (!memreg_monitor_vma_same(monitor, what, vma))
			return MEMREG_GONE;
		if (turn->left-- <= 0) {
			what->start = max(what->start, vma->vm_start);
			return MEMREG_SAME;
		}
		cond_resched();
	}
	what->start = what->end;
	return MEMREG_SAME;
}

static enum memreg_verdict
memreg_monitor_look(const struct memreg_monitor *monitor,
		    struct memreg_suspicion *what,
		    struct memreg_monitor_turn *turn)
{
	turn->left -= MEMREG_MONITOR_COST;
	/* An address space that is exiting loses all of its mappings. */
	if (!turn->alive)
		return MEMREG_GONE;
	if (turn->locked)
		return memreg_monitor_compare(monitor, what, turn);
	return time_after_eq(jiffies, what->since + MEMREG_MONITOR_LIMIT) ?
	       MEMREG_GONE : MEMREG_SUSPECT;
}

/* The next monitor to check, which is not freed until it was checked. */
static struct memreg_monitor *
memreg_monitor_next(struct memreg_monitor_turn *turn,
		    struct memreg_suspicion *what)
{
	struct memreg_monitor *monitor;

	spin_lock(&memreg_suspects_lock);
	monitor = list_first_entry_or_null(&turn->suspects,
					   struct memreg_monitor, suspect_node);
	if (monitor) {
		list_del_init(&monitor->suspect_node);
		*what = (struct memreg_suspicion) {
			.start = monitor->start,
			.end = monitor->end,
			.takes_pages = monitor->takes_pages,
			.since = monitor->since,
		};
	}
	WRITE_ONCE(memreg_looked_at, monitor);
	spin_unlock(&memreg_suspects_lock);
	return monitor;
}

static void memreg_monitor_judge(struct memreg_monitor *monitor,
				 const struct memreg_suspicion *what,
				 enum memreg_verdict verdict)
{
	struct memreg_kstatus *status = monitor->status;

	if (verdict == MEMREG_SUSPECT ||
	    (verdict == MEMREG_SAME && what->start < what->end)) {
		memreg_monitor_suspect(monitor, what);
		return;
	}
	spin_lock(&status->lock);
	if (verdict == MEMREG_GONE)
		memreg_monitor_change(monitor, what->start, what->end);
	else
		memreg_status_count(status, &status->shared->unchanged);
	spin_unlock(&status->lock);
	if (verdict == MEMREG_GONE)
		memreg_status_wake(status);
}

/* Begin a turn with the first table of the list, if there is one. */
static bool memreg_monitor_turn_begin(struct memreg_monitor_turn *turn,
				      struct list_head *tables)
{
	struct memreg_kstatus *status;

	INIT_LIST_HEAD(&turn->suspects);
	turn->left = MEMREG_MONITOR_VMAS;
	spin_lock(&memreg_suspects_lock);
	status = list_first_entry_or_null(tables, struct memreg_kstatus,
					  suspect_node);
	if (status) {
		/*
		 * The table has monitors that are not freed yet, and they hold
		 * a reference.
		 */
		memreg_status_hold(status);
		list_del_init(&status->suspect_node);
		list_splice_init(&status->suspects, &turn->suspects);
	}
	spin_unlock(&memreg_suspects_lock);
	turn->status = status;
	if (!status)
		return false;
	turn->alive = mmget_not_zero(status->mm);
	turn->locked = turn->alive && mmap_read_trylock(status->mm);
	return true;
}

/* End a turn. Returns true if the table needs another turn without a delay. */
static bool memreg_monitor_turn_end(struct memreg_monitor_turn *turn)
{
	struct memreg_kstatus *status = turn->status;

	if (turn->locked)
		mmap_read_unlock(status->mm);
	if (turn->alive)
		mmput_async(status->mm);
	spin_lock(&memreg_suspects_lock);
	list_splice(&turn->suspects, &status->suspects);
	memreg_suspects_add(status);
	spin_unlock(&memreg_suspects_lock);
	memreg_status_release(status);
	/* If mmap_lock could not be taken, check after a delay. */
	return turn->left <= 0 && (turn->locked || !turn->alive);
}

/* Check monitors of a table until all are checked, or the turn is over. */
static void memreg_monitor_turn_look(struct memreg_monitor_turn *turn)
{
	struct memreg_suspicion what;
	struct memreg_monitor *monitor;

	while (turn->left > 0 &&
	       (monitor = memreg_monitor_next(turn, &what))) {
		memreg_monitor_judge(monitor, &what,
				     memreg_monitor_look(monitor, &what,
							 turn));
		cond_resched();
		/* Pairs with memreg_monitor_unsuspect(). */
		smp_store_release(&memreg_looked_at, NULL);
		/*
		 * Pairs with the waiter, which enters the wait queue before it
		 * checks.
		 */
		smp_mb();
		wake_up_var(&memreg_looked_at);
	}
}

static void memreg_monitor_work(struct work_struct *work)
{
	struct memreg_monitor_turn turn;
	LIST_HEAD(tables);
	bool more = false;

	/* Monitors that become suspect from here on are for the next run. */
	spin_lock(&memreg_suspects_lock);
	list_splice_init(&memreg_suspects, &tables);
	spin_unlock(&memreg_suspects_lock);
	while (memreg_monitor_turn_begin(&turn, &tables)) {
		memreg_monitor_turn_look(&turn);
		more |= memreg_monitor_turn_end(&turn);
	}
	if (more)
		mod_delayed_work(memreg_monitor_wq, &memreg_monitor_looks, 0);
}

/*
 * Remove a monitor, whose notifier is gone, from the worker's lists, and wait
 * until the worker is not checking it.
 */
static void memreg_monitor_unsuspect(struct memreg_monitor *monitor)
{
	struct memreg_kstatus *status = monitor->status;
	bool looked_at;

	/*
	 * The worker may take the monitor from the list, and put it back before
	 * it is done with it: with the lock held, it is not between the two.
	 */
	for (;;) {
		spin_lock(&memreg_suspects_lock);
		list_del_init(&monitor->suspect_node);
		if (list_empty(&status->suspects))
			list_del_init(&status->suspect_node);
		/* Pairs with memreg_monitor_turn_look(). */
		looked_at = smp_load_acquire(&memreg_looked_at) == monitor;
		spin_unlock(&memreg_suspects_lock);
		if (!looked_at)
			break;
		wait_var_event(&memreg_looked_at,
			       /* Likewise. */
			       smp_load_acquire(&memreg_looked_at) != monitor);
	}
}

/*
 * Life
 */

static void memreg_monitor_free(struct memreg_monitor *monitor)
{
	/* Waits for running callbacks. */
	mmu_interval_notifier_remove(&monitor->notifier);
	memreg_depth_remove(monitor->status->depth, &monitor->depth_node);
	memreg_monitor_unsuspect(monitor);
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
	struct memreg_depth *depth = monitor->status->depth;
	unsigned long start = arg->addr & PAGE_MASK;
	unsigned long length = PAGE_ALIGN(arg->addr + arg->length) - start;
	int ret;

	if (monitor->wide)
		length = TASK_SIZE;
	if (!memreg_depth_add(depth, &monitor->depth_node, start, length))
		return memreg_fail(ucmd, -ENOSPC, IB_MEMREG_REASON_DEPTH);
	ret = memreg_notifier_insert(&monitor->notifier, current->mm, start,
				     length, &memreg_monitor_notifier_ops);
	if (ret)
		memreg_depth_remove(depth, &monitor->depth_node);
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
	INIT_LIST_HEAD(&monitor->suspect_node);
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
	struct memreg_monitor *monitor;
	u32 i, n = cmd->count;

	for (i = 0; i < n; i++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		monitor = memreg_monitor_new(ucmd, status, &args[i]);
		if (IS_ERR(monitor)) {
			cmd->out_index = i;
			return PTR_ERR(monitor);
		}
		memreg_object_made(ucmd, &monitor->obj);
		memreg_monitor_describe(monitor, &args[i]);
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

int __init memreg_monitor_init(void)
{
	memreg_monitor_wq = alloc_workqueue("memreg_monitor",
					    WQ_UNBOUND | WQ_MEM_RECLAIM, 1);
	return memreg_monitor_wq ? 0 : -ENOMEM;
}

void memreg_monitor_exit(void)
{
	cancel_delayed_work_sync(&memreg_monitor_looks);
	destroy_workqueue(memreg_monitor_wq);
}
