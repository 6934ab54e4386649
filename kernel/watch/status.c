// SPDX-License-Identifier: GPL-2.0-only
/*
 * Status tables: memory in which a process sees which registrations are valid.
 *
 * A table has a slot for each monitor, and for each MR that asks for one. If
 * the mapping changes, the generation of the slot changes before the mmu
 * notifier returns, so before the system call returns that changes the mapping.
 * Only the kernel writes to a table: the mapping of a process is read-only.
 *
 * A table describes the address space of the process that created it, and only
 * that process sees it: a child of fork(2), and any other process that maps the
 * descriptor, sees a page of zeros. As no generation is 0, a registration cache
 * that a child inherits finds all its entries invalid.
 *
 * The memory outlives the object, as a mapping and the descriptor keep it. When
 * the object is destroyed each slot changes once more, and never again.
 *
 * The thread that changes the mapping writes to the table. It may belong to
 * another user, who truncates a file, and holds locks that others wait for; so
 * it does not wake the pollers of the descriptor, whose number the process
 * chooses: a worker does.
 */
#include <linux/anon_inodes.h>
#include <linux/bitmap.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/workqueue.h>

#include "core.h"
#include "watch/space.h"
#include "watch/status.h"

static_assert(sizeof(struct ib_memreg_status_table) == 128);
static_assert(sizeof(struct ib_memreg_status_slot) == 16);
static_assert(sizeof(struct ib_memreg_change) == 16);

/*
 * Slots
 */

/* Change the generation of a slot, without waking waiters. */
static void memreg_slot_advance(struct memreg_kstatus *status, u32 slot)
{
	struct ib_memreg_status_slot *s = &status->slot[slot];

	lockdep_assert_held(&status->lock);

	WRITE_ONCE(s->generation32, (u32)(s->generation + 1));
	memreg_status_count(status, &s->generation);
	memreg_status_count(status,
			    &status->groups[slot / IB_MEMREG_STATUS_GROUP]);
}

/*
 * Search for a free slot without the lock, as there may be a million slots, and
 * notifiers wait for the lock. Returns a number out of range if no slot seems
 * free.
 */
static unsigned long memreg_status_find_slot(struct memreg_kstatus *status)
{
	unsigned long i;

	/* Only a hint: memreg_status_try_slot() finds out. */
	i = data_race(find_next_zero_bit(status->used, status->slots,
					 READ_ONCE(status->next)));
	if (i < status->slots)
		return i;
	/* Likewise a hint. */
	return data_race(find_first_zero_bit(status->used, status->slots));
}

static bool memreg_status_try_slot(struct memreg_kstatus *status,
				   unsigned long i)
{
	bool taken;

	spin_lock(&status->lock);
	taken = __test_and_set_bit(i, status->used);
	if (!taken) {
		WRITE_ONCE(status->next, i + 1);
		/*
		 * In a new table all generations are 0, which must not be used.
		 */
		memreg_slot_advance(status, i);
	}
	spin_unlock(&status->lock);
	return !taken;
}

/**
 * memreg_status_take_slot() - Allocate a slot
 * @status: The table
 * @slot: The slot, to be freed by memreg_status_give_slot()
 *
 * Return: 0 or -ENOSPC.
 */
int memreg_status_take_slot(struct memreg_kstatus *status, u32 *slot)
{
	unsigned long i;

	do {
		i = memreg_status_find_slot(status);
		if (i >= status->slots)
			return -ENOSPC;
	} while (!memreg_status_try_slot(status, i));
	*slot = i;
	return 0;
}

/**
 * memreg_status_reserve() - Take a slot of a status table that a call names
 * @ucmd: The call
 * @id: Id of the table, or 0 if the call names none
 * @slot: Set to the index of the slot
 *
 * Return: the table, with a reference; NULL if @id is 0; ERR_PTR() of
 * memreg_status_get(), or ERR_PTR(-ENOSPC).
 */
struct memreg_kstatus *memreg_status_reserve(struct memreg_ucmd *ucmd, u32 id,
					     u32 *slot)
{
	struct memreg_kstatus *status;

	if (!id)
		return NULL;
	status = memreg_status_get(ucmd, id);
	if (IS_ERR(status) || !memreg_status_take_slot(status, slot))
		return status;
	memreg_status_put(status);
	return ERR_PTR(memreg_fail(ucmd, -ENOSPC, IB_MEMREG_REASON_SLOTS));
}

/**
 * memreg_status_give_slot() - Free a slot
 * @status: The table
 * @slot: The slot, which no notifier uses any more
 */
void memreg_status_give_slot(struct memreg_kstatus *status, u32 slot)
{
	spin_lock(&status->lock);
	memreg_slot_advance(status, slot);
	WRITE_ONCE(status->slot[slot].suspects, 0);
	__clear_bit(slot, status->used);
	spin_unlock(&status->lock);
}

/**
 * __memreg_status_change() - Change a slot: its registration is no longer valid
 * @status: The table, whose lock is held; the caller calls memreg_status_wake()
 *	afterwards
 * @slot: The slot
 */
void __memreg_status_change(struct memreg_kstatus *status, u32 slot)
{
	memreg_slot_advance(status, slot);
	memreg_status_count(status, &status->shared->changes);
}

/**
 * memreg_status_change() - Change a slot, and wake waiters
 * @status: The table
 * @slot: The slot
 */
void memreg_status_change(struct memreg_kstatus *status, u32 slot)
{
	spin_lock(&status->lock);
	__memreg_status_change(status, slot);
	spin_unlock(&status->lock);
	memreg_status_wake(status);
}

/**
 * memreg_status_log_range() - Append a changed range to the log
 * @status: Table with a log, whose lock is held
 * @start: First address that changed
 * @end: First address behind the range
 */
void memreg_status_log_range(struct memreg_kstatus *status, u64 start, u64 end)
{
	struct ib_memreg_status_table *shared = status->shared;
	struct ib_memreg_change *change =
		&status->log[shared->log_head & (shared->log_entries - 1)];

	WRITE_ONCE(change->start, start);
	WRITE_ONCE(change->end, end);
	memreg_status_count(status, &shared->log_head);
}

/**
 * memreg_status_suspect() - Mark a slot as suspect: its registration may be
 * invalid
 * @status: The table, whose lock is held
 * @slot: The slot
 */
void memreg_status_suspect(struct memreg_kstatus *status, u32 slot)
{
	struct ib_memreg_status_slot *s = &status->slot[slot];

	memreg_status_count(status, &status->shared->suspects);
	WRITE_ONCE(s->suspects, s->suspects + 1);
}

/**
 * memreg_status_wake() - Wake readers and pollers by a worker
 * @status: The table, which shows the change already
 *
 * The cost to the caller does not depend on the number of waiters.
 *
 * Context: any in which a spinlock may be taken.
 */
void memreg_status_wake(struct memreg_kstatus *status)
{
	if (!wq_has_sleeper(&status->wait))
		return;
	/* Reference of the worker; the caller holds one of its own. */
	refcount_inc(&status->refs);
	if (!queue_work(memreg_wq, &status->wake))
		refcount_dec(&status->refs);
}

/*
 * Life
 */

/* Drop a reference of the memory of a table. */
static void memreg_status_release(struct memreg_kstatus *status)
{
	if (!refcount_dec_and_test(&status->refs))
		return;
	memreg_usermem_free(&status->memory);
	bitmap_free(status->used);
	memreg_space_put(status->space);
	mmdrop(status->mm);
	kfree(status);
}

static void memreg_status_wake_work(struct work_struct *work)
{
	struct memreg_kstatus *status =
		container_of(work, struct memreg_kstatus, wake);

	wake_up_interruptible(&status->wait);
	memreg_status_release(status);
}

/* Compute the offsets of the parts of a table; returns its size. */
static size_t memreg_status_lay_out(struct ib_memreg_status_table *shared,
				    u32 slots, u32 log_entries)
{
	u32 groups = DIV_ROUND_UP(slots, IB_MEMREG_STATUS_GROUP);

	shared->version = IB_MEMREG_STATUS_VERSION;
	shared->state = IB_MEMREG_STATUS_LIVE;
	shared->slots = slots;
	shared->log_entries = log_entries;
	shared->slots_offset = sizeof(*shared);
	shared->groups_offset = shared->slots_offset +
				slots * sizeof(struct ib_memreg_status_slot);
	shared->log_offset = ALIGN(shared->groups_offset + groups * sizeof(u64),
				   sizeof(struct ib_memreg_change));
	return shared->log_offset +
	       log_entries * sizeof(struct ib_memreg_change);
}

static int memreg_status_alloc(struct memreg_kstatus *status, u32 slots,
			       u32 log_entries)
{
	struct ib_memreg_status_table head = {};
	size_t size = memreg_status_lay_out(&head, slots, log_entries);

	status->used = bitmap_zalloc(slots, GFP_KERNEL_ACCOUNT);
	status->memory.mm = status->mm;
	status->memory.blank = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	status->shared = memreg_usermem_alloc(&status->memory, size);
	if (!status->used || !status->memory.blank || !status->shared)
		return -ENOMEM;
	*status->shared = head;
	status->slots = slots;
	status->slot = (void *)status->shared + head.slots_offset;
	status->groups = (void *)status->shared + head.groups_offset;
	status->log = (void *)status->shared + head.log_offset;
	return 0;
}

static struct memreg_kstatus *memreg_status_new(u32 slots, u32 log_entries)
{
	struct memreg_kstatus *status;

	status = kzalloc(sizeof(*status), GFP_KERNEL_ACCOUNT);
	if (!status)
		return NULL;
	refcount_set(&status->refs, 1);
	spin_lock_init(&status->lock);
	init_waitqueue_head(&status->wait);
	INIT_WORK(&status->wake, memreg_status_wake_work);
	status->mm = current->mm;
	mmgrab(status->mm);
	status->space = memreg_space_get(status->mm);
	if (status->space && !memreg_status_alloc(status, slots, log_entries))
		return status;
	memreg_status_release(status);
	return NULL;
}

/* Slots that are changed in one hold of the lock. */
#define MEMREG_STATUS_SOME	64U

/* Change some slots of a table that is destroyed. Returns the next one. */
static u32 memreg_status_end_some(struct memreg_kstatus *status, u32 i)
{
	u32 end = min(i + MEMREG_STATUS_SOME, status->slots);

	spin_lock(&status->lock);
	while (i < end)
		memreg_slot_advance(status, i++);
	spin_unlock(&status->lock);
	return end;
}

/* No monitor or MR has a slot any more. */
static void memreg_status_destroy_obj(struct memreg_file *file,
				      struct memreg_object *obj)
{
	struct memreg_kstatus *status =
		container_of(obj, struct memreg_kstatus, obj);
	u32 i;

	for (i = 0; i < status->slots; ) {
		i = memreg_status_end_some(status, i);
		cond_resched();
	}
	spin_lock(&status->lock);
	WRITE_ONCE(status->shared->state, IB_MEMREG_STATUS_DEAD);
	memreg_status_count(status, &status->shared->changes);
	spin_unlock(&status->lock);
	wake_up_all(&status->wait);
	memreg_status_release(status);
}

static void memreg_status_abort(struct memreg_file *file,
				struct memreg_object *obj)
{
	memreg_status_release(container_of(obj, struct memreg_kstatus, obj));
}

static void memreg_status_info(struct memreg_object *obj,
			       struct ib_memreg_object *info)
{
	struct memreg_kstatus *status =
		container_of(obj, struct memreg_kstatus, obj);

	info->u.status.slots = status->slots;
}

const struct memreg_object_ops memreg_status_ops = {
	.type = IB_MEMREG_OBJECT_STATUS,
	.destroy = memreg_status_destroy_obj,
	.abort = memreg_status_abort,
	.info = memreg_status_info,
};

/**
 * memreg_status_get() - Find a status table of the calling process and take a
 * reference
 * @ucmd: Call that names the table
 * @id: Its id, from user space
 *
 * Return: the table, -ENOENT or -EPERM, with the reason set.
 */
struct memreg_kstatus *memreg_status_get(struct memreg_ucmd *ucmd, u32 id)
{
	struct memreg_kstatus *status;
	struct memreg_object *obj;

	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_STATUS);
	if (!obj) {
		ucmd->reason = IB_MEMREG_REASON_ID;
		return ERR_PTR(-ENOENT);
	}
	status = container_of(obj, struct memreg_kstatus, obj);
	if (status->mm == current->mm)
		return status;
	memreg_object_put(obj);
	ucmd->reason = IB_MEMREG_REASON_PROCESS;
	return ERR_PTR(-EPERM);
}

/**
 * memreg_status_put() - Drop a reference of a status table
 * @status: Table that memreg_status_get() returned; the caller has freed its
 *   slots
 */
void memreg_status_put(struct memreg_kstatus *status)
{
	memreg_object_put(&status->obj);
}

/*
 * The descriptor
 */

static int memreg_status_file_release(struct inode *inode, struct file *filp)
{
	memreg_status_release(filp->private_data);
	return 0;
}

/*
 * With VM_WIPEONFORK a child of fork(2) does not inherit the pages that its
 * parent has mapped.
 */
static int memreg_status_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct memreg_kstatus *status = filp->private_data;
	int ret;

	ret = memreg_usermem_mmap(&status->memory, vma);
	if (!ret)
		vm_flags_set(vma, VM_WIPEONFORK);
	return ret;
}

static bool memreg_status_is_dead(const struct memreg_kstatus *status)
{
	return READ_ONCE(status->shared->state) == IB_MEMREG_STATUS_DEAD;
}

/* Is there an unread change? Racy without the lock. */
static bool memreg_status_is_news(const struct memreg_kstatus *status)
{
	return READ_ONCE(status->shared->changes) != READ_ONCE(status->seen);
}

/*
 * Read the number of changes, if it differs from the last one read, which is
 * returned in @before.
 */
static bool memreg_status_take_news(struct memreg_kstatus *status, u64 *changes,
				    u64 *before)
{
	bool news;

	spin_lock(&status->lock);
	*changes = status->shared->changes;
	*before = status->seen;
	news = *changes != *before;
	WRITE_ONCE(status->seen, *changes);
	spin_unlock(&status->lock);
	return news;
}

/* The copy to the reader failed: leave the change to the next read. */
static void memreg_status_return_news(struct memreg_kstatus *status,
				      u64 changes, u64 before)
{
	spin_lock(&status->lock);
	if (status->seen == changes)
		WRITE_ONCE(status->seen, before);
	spin_unlock(&status->lock);
	memreg_status_wake(status);
}

static ssize_t memreg_status_read(struct kiocb *iocb, struct iov_iter *to)
{
	struct file *filp = iocb->ki_filp;
	struct memreg_kstatus *status = filp->private_data;
	u64 changes, before;
	int ret;

	if (iov_iter_count(to) < sizeof(changes))
		return -EINVAL;
	/* Another reader may take the change first. */
	while (!memreg_status_take_news(status, &changes, &before)) {
		if (memreg_status_is_dead(status))
			return 0;
		if (filp->f_flags & O_NONBLOCK || iocb->ki_flags & IOCB_NOWAIT)
			return -EAGAIN;
		ret = wait_event_interruptible(status->wait,
					       memreg_status_is_news(status) ||
					       memreg_status_is_dead(status));
		if (ret)
			return ret;
	}
	if (copy_to_iter(&changes, sizeof(changes), to) == sizeof(changes))
		return sizeof(changes);
	memreg_status_return_news(status, changes, before);
	return -EFAULT;
}

static __poll_t memreg_status_poll(struct file *filp, poll_table *table)
{
	struct memreg_kstatus *status = filp->private_data;
	__poll_t mask = 0;

	poll_wait(filp, &status->wait, table);
	if (memreg_status_is_news(status))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (memreg_status_is_dead(status))
		mask |= EPOLLHUP;
	return mask;
}

static const struct file_operations memreg_status_fops = {
	.owner = THIS_MODULE,
	.release = memreg_status_file_release,
	.mmap = memreg_status_mmap,
	.read_iter = memreg_status_read,
	.poll = memreg_status_poll,
};

static struct file *memreg_status_file(struct memreg_kstatus *status)
{
	struct file *filp;

	filp = anon_inode_getfile("[memreg-status]", &memreg_status_fops,
				  status, O_RDONLY);
	if (IS_ERR(filp))
		return filp;
	refcount_inc(&status->refs);
	stream_open(NULL, filp);
	return filp;
}

/*
 * The call
 */

/* Fill in the answer, and install the descriptor in it. */
static int memreg_status_respond(struct memreg_ucmd *ucmd,
				 struct memreg_kstatus *status)
{
	struct ib_memreg_status_create *cmd = ucmd->cmd;
	struct file *filp;
	int fd, ret;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	filp = memreg_status_file(status);
	if (IS_ERR(filp)) {
		put_unused_fd(fd);
		return PTR_ERR(filp);
	}
	cmd->out_status_id = status->obj.id;
	cmd->out_fd = fd;
	cmd->out_size = status->memory.size;
	ret = memreg_respond(ucmd, sizeof(*cmd));
	if (ret) {
		fput(filp);
		put_unused_fd(fd);
		return ret;
	}
	fd_install(fd, filp);
	return 0;
}

static int memreg_status_check(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_status_create *cmd = ucmd->cmd;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->slots || cmd->slots > IB_MEMREG_STATUS_SLOTS_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	if (cmd->log_entries &&
	    (!is_power_of_2(cmd->log_entries) ||
	     cmd->log_entries > IB_MEMREG_STATUS_LOG_MAX))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_LOG);
	return 0;
}

/* ioctl(IB_MEMREG_IOC_STATUS_CREATE) */
int memreg_status_create_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_status_create *cmd = ucmd->cmd;
	struct memreg_kstatus *status;
	int ret;

	ret = memreg_status_check(ucmd);
	if (ret)
		return ret;
	status = memreg_status_new(cmd->slots, cmd->log_entries);
	if (!status)
		return -ENOMEM;
	ret = memreg_object_alloc(ucmd->file, &status->obj,
				  &memreg_status_ops);
	if (ret) {
		memreg_status_release(status);
		return ret;
	}
	memreg_object_made(ucmd, &status->obj);
	return memreg_status_respond(ucmd, status);
}
