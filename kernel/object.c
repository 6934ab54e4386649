// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ids, and the lifetime of what they name.
 *
 * An object is made in three steps: memreg_object_alloc() reserves its id,
 * which nobody can find yet; everything that can fail is done, the answer to
 * the user included; memreg_object_finalize() makes it findable and cannot
 * fail. memreg_object_abort() is the way out before that.
 *
 * One count decides over the lifetime. It holds one reference of the object
 * itself, one of each object that depends on it, and one of each call that is
 * at work on it; all but the first are taken while the object can be found,
 * or by somebody who holds one. Destroying takes the count from one to zero
 * under the xarray's lock and removes the id in the same step, so whoever
 * found the object has kept it, and nobody finds it later. Putting a
 * reference is the last thing that its holder does to the object, hence no
 * second count has to be waited for.
 */
#include <linux/cred.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "conn/endpoint.h"
#include "conn/ring.h"
#include "conn/srq.h"
#include "core.h"
#include "device.h"
#include "mem/domain.h"
#include "mem/mr.h"
#include "mem/window.h"

static const struct memreg_object_ops *const memreg_object_ops[] = {
	[IB_MEMREG_OBJECT_DOMAIN] = &memreg_domain_ops,
	[IB_MEMREG_OBJECT_MR] = &memreg_mr_ops,
	[IB_MEMREG_OBJECT_WINDOW] = &memreg_window_ops,
	[IB_MEMREG_OBJECT_LISTENER] = &memreg_listener_ops,
	[IB_MEMREG_OBJECT_ENDPOINT] = &memreg_endpoint_ops,
	[IB_MEMREG_OBJECT_RING] = &memreg_ring_ops,
	[IB_MEMREG_OBJECT_SRQ] = &memreg_srq_ops,
};

/**
 * memreg_object_alloc_gfp() - Reserve an id for an object
 * @file: File that is to own it
 * @obj: The object
 * @type: enum ib_memreg_object_type
 * @gfp: How to allocate what it takes
 *
 * Return: 0 or -ENOMEM.
 */
int memreg_object_alloc_gfp(struct memreg_file *file, struct memreg_object *obj,
			    u32 type, gfp_t gfp)
{
	int ret;

	obj->type = type;
	refcount_set(&obj->users, 1);
	/* Ids come back late, so that a stale one hits nobody else's object. */
	ret = xa_alloc_cyclic(&file->objects, &obj->id, XA_ZERO_ENTRY,
			      xa_limit_31b, &file->next_id, gfp);
	return ret < 0 ? ret : 0;
}

/**
 * memreg_object_abort() - Give back the id of an object that nobody could find
 * @file: File
 * @obj: The object; its memory stays with the caller
 */
void memreg_object_abort(struct memreg_file *file, struct memreg_object *obj)
{
	void *old = xa_erase(&file->objects, obj->id);

	/* A reserved entry reads as NULL. */
	WARN_ON(old);
}

/**
 * memreg_object_finalize() - Let others find an object
 * @file: File
 * @obj: The object, complete
 */
void memreg_object_finalize(struct memreg_file *file,
			    struct memreg_object *obj)
{
	XA_STATE(xas, &file->objects, obj->id);
	void *old;

	xa_lock(&file->objects);
	old = xas_store(&xas, obj);
	xa_unlock(&file->objects);
	/* The entry is reserved, so storing it needs no memory. */
	WARN_ON(old != XA_ZERO_ENTRY);
}

/**
 * memreg_object_get() - Find an object and keep it
 * @file: File
 * @id: Its id, from user space
 * @type: Type that it must have
 *
 * Return: the object, or NULL if there is none of that type.
 */
struct memreg_object *memreg_object_get(struct memreg_file *file, u32 id,
					u32 type)
{
	XA_STATE(xas, &file->objects, id);
	struct memreg_object *obj;

	xa_lock(&file->objects);
	obj = xas_load(&xas);
	/* An id that is only reserved so far. */
	if (xa_is_zero(obj))
		obj = NULL;
	if (obj && obj->type == type)
		refcount_inc(&obj->users);
	else
		obj = NULL;
	xa_unlock(&file->objects);
	return obj;
}

/**
 * memreg_objects_get() - Find many objects and keep them
 * @file: File
 * @type: Type that they must have
 * @ids: The first id, from user space
 * @stride: Bytes from one id to the next
 * @count: Number of ids
 * @objs: Where the objects go; NULL for an id that has none of that type
 *
 * Ids that follow each other cost little.
 */
void memreg_objects_get(struct memreg_file *file, u32 type, const u32 *ids,
			size_t stride, u32 count, struct memreg_object **objs)
{
	XA_STATE(xas, &file->objects, 0);
	struct memreg_object *obj;
	void *entry = NULL;
	u32 i;

	xa_lock(&file->objects);
	for (i = 0; i < count; i++, ids = (const void *)ids + stride) {
		if (i && *ids == xas.xa_index + 1) {
			entry = xas_next(&xas);
		} else {
			xas_set(&xas, *ids);
			entry = xas_load(&xas);
		}
		/* An id that is only reserved so far. */
		obj = xa_is_zero(entry) ? NULL : entry;
		if (obj && obj->type == type)
			refcount_inc(&obj->users);
		else
			obj = NULL;
		objs[i] = obj;
	}
	xa_unlock(&file->objects);
}

/* Take the last reference, if nobody else has one. */
static bool memreg_object_last(struct memreg_object *obj)
{
	if (!refcount_dec_if_one(&obj->users))
		return false;
	/* What others did to the object before they put it is seen by us. */
	smp_acquire__after_ctrl_dep();
	return true;
}

/**
 * memreg_object_destroy() - Remove an object and give back what it has
 * @file: File
 * @id: Its id, from user space
 * @type: Type that it must have, or 0 for any
 * @reason: Reason of a failure
 *
 * Return: 0, -ENOENT, or -EBUSY if it has users.
 */
int memreg_object_destroy(struct memreg_file *file, u32 id, u32 type,
			  u32 *reason)
{
	const struct memreg_object_ops *ops;
	struct memreg_object *obj;

	xa_lock(&file->objects);
	obj = xa_load(&file->objects, id);
	if (!obj || (type && obj->type != type)) {
		xa_unlock(&file->objects);
		*reason = IB_MEMREG_REASON_ID;
		return -ENOENT;
	}
	ops = memreg_object_ops[obj->type];
	if (!memreg_object_last(obj)) {
		*reason = ops->busy ? ops->busy(obj) : IB_MEMREG_REASON_IN_USE;
		xa_unlock(&file->objects);
		return -EBUSY;
	}
	__xa_erase(&file->objects, id);
	xa_unlock(&file->objects);

	ops->destroy(file, obj);
	return 0;
}

/* ioctl(IB_MEMREG_IOC_DESTROY) */
int memreg_object_destroy_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_destroy *cmd = ucmd->cmd;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	return memreg_object_destroy(ucmd->file, cmd->id, 0, &ucmd->reason);
}

static void memreg_object_destroy_type(struct memreg_file *file, u32 type)
{
	struct memreg_object *obj;
	unsigned long id;

	xa_for_each(&file->objects, id, obj) {
		if (obj->type != type)
			continue;
		if (WARN_ON(!memreg_object_last(obj)))
			continue;
		xa_erase(&file->objects, id);
		memreg_object_ops[type]->destroy(file, obj);
		cond_resched();
	}
}

/**
 * memreg_object_destroy_all() - Destroy all that a file has
 * @file: File, on which no call is at work and none can begin
 *
 * Peers are cut off first, then keys die, then pages go.
 */
void memreg_object_destroy_all(struct memreg_file *file)
{
	static const u32 order[] = {
		IB_MEMREG_OBJECT_LISTENER,
		IB_MEMREG_OBJECT_ENDPOINT,
		IB_MEMREG_OBJECT_SRQ,
		IB_MEMREG_OBJECT_RING,
		IB_MEMREG_OBJECT_WINDOW,
		IB_MEMREG_OBJECT_MR,
		IB_MEMREG_OBJECT_DOMAIN,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(order); i++)
		memreg_object_destroy_type(file, order[i]);
	WARN_ON(!xa_empty(&file->objects));
}

/* May the caller be told of this file? Its lock is held. */
static bool memreg_file_visible(struct memreg_file *file)
{
	if (!file->mdev || file->gone)
		return false;
	if (!rdma_dev_access_netns(file->mdev->ibdev,
				   current->nsproxy->net_ns))
		return false;
	return uid_eq(file->uid, current_euid()) || capable(CAP_SYS_ADMIN);
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

/* Tell of the first object of a file from @id on; false if there is none. */
static bool memreg_object_info(struct memreg_file *file, unsigned long id,
			       struct ib_memreg_object *info)
{
	struct memreg_object *obj;

	memreg_file_info(file, info);
	if (!id) {
		info->type = IB_MEMREG_OBJECT_FILE;
		info->length = (u64)atomic64_read(&file->pinned) <<
			       (PAGE_SHIFT - MEMREG_PAGE_SHIFT);
		return true;
	}
	xa_lock(&file->objects);
	obj = xa_find(&file->objects, &id, ULONG_MAX, XA_PRESENT);
	if (obj) {
		info->id = id;
		info->type = obj->type;
		info->users = refcount_read(&obj->users) - 1;
		memreg_object_ops[obj->type]->info(obj, info);
	}
	xa_unlock(&file->objects);
	return obj;
}

/* Objects that are looked at in one go. */
#define MEMREG_LIST_BATCH	32

/*
 * Tell of objects of one file from the cursor on, which is made of the file's
 * number and the object's id, and move the cursor behind them. Returns their
 * number, 0 at the end of the file.
 */
static int memreg_list_file(struct memreg_file *file, u64 *cursor,
			    struct ib_memreg_object *infos, u32 room)
{
	u32 id = 0, n = 0;

	if (file->number == upper_32_bits(*cursor))
		id = lower_32_bits(*cursor);
	if (down_read_killable(&file->lock))
		return -EINTR;
	while (n < room && memreg_file_visible(file) &&
	       memreg_object_info(file, id, &infos[n]))
		id = infos[n++].id + 1;
	up_read(&file->lock);
	*cursor = n ? (u64)file->number << 32 | id :
		      (u64)(file->number + 1) << 32;
	return n;
}

static int memreg_list_some(u64 *cursor, struct ib_memreg_object *infos,
			    u32 room)
{
	struct memreg_file *file;
	int n = 0;

	while (!n && (file = memreg_file_next(upper_32_bits(*cursor)))) {
		n = memreg_list_file(file, cursor, infos, room);
		memreg_file_put(file);
		if (fatal_signal_pending(current))
			n = -EINTR;
		cond_resched();
	}
	return n;
}

/* Copy what the caller's entry has room for, and clear the rest of it. */
static int memreg_info_copy(void __user *to, size_t size,
			    const struct ib_memreg_object *info)
{
	size_t n = min(size, sizeof(*info));

	return copy_to_user(to, info, n) || clear_user(to + n, size - n) ?
	       -EFAULT : 0;
}

/* Fill the caller's array as far as there are objects. */
static int memreg_list_fill(struct ib_memreg_list *cmd,
			    struct ib_memreg_object *infos)
{
	u32 told = 0;
	int i, n;

	while (told < cmd->count) {
		n = memreg_list_some(&cmd->cursor, infos,
				     min_t(u32, cmd->count - told,
					   MEMREG_LIST_BATCH));
		if (n <= 0)
			return n < 0 ? n : told;
		for (i = 0; i < n; i++, told++) {
			void __user *to = u64_to_user_ptr(cmd->objects) +
					  (size_t)told * cmd->object_size;
			int ret;

			ret = memreg_info_copy(to, cmd->object_size, &infos[i]);
			if (ret)
				return ret;
		}
	}
	return told;
}

/* ioctl(IB_MEMREG_IOC_LIST) */
int memreg_object_list(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_list *cmd = ucmd->cmd;
	struct ib_memreg_object *infos;
	int told;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->count)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	cmd->count = min_t(u32, cmd->count, INT_MAX);
	if (cmd->object_size < offsetofend(struct ib_memreg_object, device) ||
	    cmd->object_size > PAGE_SIZE)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SIZE);

	infos = kmalloc_array(MEMREG_LIST_BATCH, sizeof(*infos), GFP_KERNEL);
	if (!infos)
		return -ENOMEM;
	told = memreg_list_fill(cmd, infos);
	kfree(infos);
	if (told < 0)
		return told;
	cmd->count = told;
	return memreg_respond(ucmd, sizeof(*cmd));
}
