// SPDX-License-Identifier: GPL-2.0-only
/*
 * LIST: the objects of all files that the caller may see.
 */
#include <linux/cred.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core.h"
#include "device.h"
#include "list.h"

/*
 * May the caller, who may be one who sees @all, see a file? It is asked before
 * the file's lock is taken: a caller that gets little CPU time would hold up
 * the file's close. An unbound file has no user yet.
 */
static bool memreg_file_of_caller(const struct memreg_file *file, bool all)
{
	/* Pairs with the binding, which sets the user before the device. */
	if (!smp_load_acquire(&file->mdev))
		return false;
	return all || uid_eq(file->uid, current_euid());
}

/* Has LIST anything to show of this file? The file's lock is held. */
static bool memreg_file_visible(struct memreg_file *file)
{
	return file->mdev && !file->gone &&
	       rdma_dev_access_netns(file->mdev->ibdev,
				     current->nsproxy->net_ns);
}

static void memreg_file_info(struct memreg_file *file,
			     struct ib_memreg_object *info)
{
	memset(info, 0, sizeof(*info));
	info->file = file->number;
	info->pid = pid_vnr(file->pid);
	info->uid = from_kuid_munged(current_user_ns(), file->uid);
	info->device_index = file->mdev->ibdev->index;
	strscpy_pad(info->comm, file->comm, sizeof(info->comm));
	memreg_device_name(file->mdev, info->device, sizeof(info->device));
}

/* Fill in the first object of a file from @id on; false if there is none. */
static bool memreg_object_info(struct memreg_file *file, unsigned long id,
			       struct ib_memreg_object *info)
{
	struct memreg_object *obj;

	memreg_file_info(file, info);
	if (!id) {
		info->type = IB_MEMREG_OBJECT_FILE;
		info->u.file.pinned = (u64)atomic64_read(&file->pinned) <<
				      (PAGE_SHIFT - MEMREG_PAGE_SHIFT);
		return true;
	}
	xa_lock(&file->objects);
	obj = xa_find(&file->objects, &id, ULONG_MAX, XA_PRESENT);
	if (obj) {
		info->id = id;
		info->type = obj->type;
		info->users = refcount_read(&obj->users) - 1;
		obj->ops->info(obj, info);
	}
	xa_unlock(&file->objects);
	return obj;
}

/* Objects that one hold of the file's lock lists. */
#define MEMREG_LIST_BATCH	32

/*
 * List objects of one file from the cursor on, and move the cursor behind them.
 * The cursor holds the file's number and an object's id. Returns the number of
 * objects listed, 0 at the end of the file.
 */
static int memreg_list_file(struct memreg_file *file, bool all, u64 *cursor,
			    struct ib_memreg_object *infos, u32 room)
{
	u32 id = 0, n = 0;

	if (file->number == upper_32_bits(*cursor))
		id = lower_32_bits(*cursor);
	/*
	 * The file is being bound and has no objects, or its device is going.
	 */
	if (!memreg_file_of_caller(file, all) ||
	    !down_read_trylock(&file->lock))
		goto next;
	while (n < room && memreg_file_visible(file) &&
	       memreg_object_info(file, id, &infos[n]))
		id = infos[n++].id + 1;
	up_read(&file->lock);
next:
	*cursor = n ? (u64)file->number << 32 | id :
		      (u64)(file->number + 1) << 32;
	return n;
}

static int memreg_list_some(bool all, u64 *cursor,
			    struct ib_memreg_object *infos, u32 room)
{
	struct memreg_file *file;
	int n = 0;

	while (!n && (file = memreg_file_next(upper_32_bits(*cursor)))) {
		n = memreg_list_file(file, all, cursor, infos, room);
		memreg_file_put(file);
		if (fatal_signal_pending(current))
			n = -EINTR;
		cond_resched();
	}
	return n;
}

/* Copy as much as fits into the caller's entry, and clear the rest of it. */
static int memreg_info_copy(void __user *to, size_t size,
			    const struct ib_memreg_object *info)
{
	size_t n = min(size, sizeof(*info));

	return copy_to_user(to, info, n) || clear_user(to + n, size - n) ?
	       -EFAULT : 0;
}

/* Fill the caller's array until it is full or all objects are listed. */
static int memreg_list_fill(struct ib_memreg_list *cmd,
			    struct ib_memreg_object *infos)
{
	/* A user who sees only the own files is denied nothing: no audit. */
	bool all = ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
	u32 filled = 0;
	int i, n;

	while (filled < cmd->count) {
		n = memreg_list_some(all, &cmd->cursor, infos,
				     min_t(u32, cmd->count - filled,
					   MEMREG_LIST_BATCH));
		if (n <= 0)
			return n < 0 ? n : filled;
		for (i = 0; i < n; i++, filled++) {
			void __user *to = u64_to_user_ptr(cmd->objects) +
					  (size_t)filled * cmd->object_size;
			int ret;

			ret = memreg_info_copy(to, cmd->object_size, &infos[i]);
			if (ret)
				return ret;
		}
	}
	return filled;
}

/* ioctl(IB_MEMREG_IOC_LIST) */
int memreg_list_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_list *cmd = ucmd->cmd;
	struct ib_memreg_object *infos;
	int filled;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->count)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	cmd->count = min_t(u32, cmd->count, INT_MAX);
	if (cmd->object_size < offsetofend(struct ib_memreg_object, u) ||
	    cmd->object_size > PAGE_SIZE)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SIZE);

	infos = kmalloc_array(MEMREG_LIST_BATCH, sizeof(*infos),
			      GFP_KERNEL_ACCOUNT);
	if (!infos)
		return -ENOMEM;
	filled = memreg_list_fill(cmd, infos);
	kfree(infos);
	if (filled < 0)
		return filled;
	cmd->count = filled;
	return memreg_respond(ucmd, sizeof(*cmd));
}
