// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exports of MRs: revocable grants for the application's own queue pairs.
 *
 * An export is to an MR what a window is, except that its keys are made by an
 * importer of its dma-buf: see kernel/pages/export.c. It holds a reference of
 * the MR until it is revoked, also if a guard has ended it: so an MR is
 * destroyed after its exports.
 *
 * While an importer may reach the memory, an export also holds a reference of
 * itself, so that DESTROY fails as long as an importer is late. The end of the
 * file takes that reference away: the pages then stay until the importer lets
 * go.
 */
#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>

#include "core.h"
#include "device.h"
#include "mr/export.h"
#include "mr/lease.h"
#include "mr/mr.h"
#include "mr/trace.h"
#include "pages/export.h"
#include "pages/memory.h"
#include "pages/region.h"
#include "stats.h"
#include "watch/status.h"

static struct memreg_export_obj *memreg_to_export(struct memreg_object *obj)
{
	return container_of(obj, struct memreg_export_obj, obj);
}

/* Give up an export's reference of its MR, if it has one. */
static void memreg_export_obj_put_mr(struct memreg_kmr *mr)
{
	if (!mr)
		return;
	atomic_dec(&mr->exports);
	memreg_object_put(&mr->obj);
}

/* Give up an export's reference of itself, if it has one. */
static void memreg_export_obj_drop(struct memreg_export_obj *granted)
{
	if (xchg(&granted->reachable, 0))
		memreg_object_put(&granted->obj);
}

/* No importer reaches the memory: give up what the export has kept for that. */
static void memreg_export_obj_ended(struct memreg_export_obj *granted)
{
	memreg_export_obj_put_mr(xchg(&granted->mr, NULL));
	memreg_export_obj_drop(granted);
}

/* An export that is revoked ends no more with its lease, if it has one. */
static void memreg_export_obj_untie(struct memreg_file *file,
				    struct memreg_export_obj *granted)
{
	spin_lock(&file->grant_lock);
	if (granted->lease)
		memreg_lease_untie(granted->lease, &granted->lease_node);
	granted->lease = NULL;
	spin_unlock(&file->grant_lock);
}

/*
 * Create
 */

static int memreg_export_check(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_export_create *cmd = ucmd->cmd;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!memreg_exports_possible())
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_EXPORT_KERNEL);
	return 0;
}

/* Can this range of an MR be exported? Importers map whole pages to write. */
static int memreg_export_check_mr(struct memreg_ucmd *ucmd,
				  const struct memreg_kmr *mr)
{
	struct ib_memreg_export_create *cmd = ucmd->cmd;
	const struct memreg_region *region = mr->region;
	int ret;

	if (mr->demand || region->composition || region->keyed ||
	    region->opaque)
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_EXPORT_MEMORY);
	if (!(mr->access & IB_MEMREG_ACCESS_LOCAL_WRITE))
		return memreg_fail(ucmd, -EACCES,
				   IB_MEMREG_REASON_LOCAL_WRITE);
	ret = memreg_mr_check_part(ucmd, mr, cmd->offset, cmd->length);
	if (ret)
		return ret;
	if (!PAGE_ALIGNED(region->addr + cmd->offset) ||
	    !PAGE_ALIGNED(cmd->length))
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_EXPORT_PAGES);
	return 0;
}

static int memreg_export_take_slot(struct memreg_ucmd *ucmd,
				   struct memreg_export_obj *granted)
{
	struct ib_memreg_export_create *cmd = ucmd->cmd;
	struct memreg_kstatus *status;

	status = memreg_status_reserve(ucmd, cmd->status_id, &granted->slot);
	if (IS_ERR_OR_NULL(status))
		return PTR_ERR_OR_ZERO(status);
	granted->status = status;
	cmd->out_slot = granted->slot;
	cmd->out_generation = memreg_status_generation(status, granted->slot);
	return 0;
}

static void memreg_export_give_slot(struct memreg_export_obj *granted)
{
	if (!granted->status)
		return;
	memreg_status_give_slot(granted->status, granted->slot);
	memreg_status_put(granted->status);
}

static int memreg_export_take_lease(struct memreg_ucmd *ucmd,
				    struct memreg_export_obj *granted)
{
	struct ib_memreg_export_create *cmd = ucmd->cmd;
	struct memreg_lease *lease = memreg_lease_get(ucmd, cmd->lease_id);

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	granted->lease = lease;
	granted->lease_id = cmd->lease_id;
	return 0;
}

static const struct memreg_object_ops memreg_export_obj_ops;

/* Make an export of an MR, which importers can map from here on. */
static int memreg_export_make(struct memreg_ucmd *ucmd,
			      struct memreg_export_obj *granted)
{
	struct ib_memreg_export_create *cmd = ucmd->cmd;
	struct memreg_kmr *mr = granted->mr;
	int ret;

	granted->mr_id = mr->obj.id;
	granted->addr = mr->addr + cmd->offset;
	granted->export = memreg_export_new(ucmd, mr->region, cmd->offset,
					    cmd->length);
	if (IS_ERR(granted->export))
		return PTR_ERR(granted->export);
	ret = memreg_export_take_slot(ucmd, granted);
	if (ret)
		goto err_put;
	ret = memreg_object_alloc(ucmd->file, &granted->obj,
				  &memreg_export_obj_ops);
	if (ret)
		goto err_slot;
	ret = memreg_export_begin(ucmd, granted->export, granted->status,
				  granted->slot);
	if (ret)
		goto err_abort;
	atomic_inc(&mr->exports);
	granted->reachable = 1;
	refcount_inc(&granted->obj.users);
	return 0;

err_abort:
	memreg_object_abort(ucmd->file, &granted->obj);
err_slot:
	memreg_export_give_slot(granted);
err_put:
	memreg_export_put(granted->export);
	return ret;
}

/* Make an export; takes over the caller's reference of the MR on success. */
static struct memreg_export_obj *memreg_export_create(struct memreg_ucmd *ucmd,
						   struct memreg_kmr *mr)
{
	struct memreg_export_obj *granted;
	int ret;

	ret = memreg_export_check_mr(ucmd, mr);
	if (ret)
		return ERR_PTR(ret);
	granted = kzalloc(sizeof(*granted), GFP_KERNEL_ACCOUNT);
	if (!granted)
		return ERR_PTR(-ENOMEM);
	granted->mr = mr;
	INIT_LIST_HEAD(&granted->lease_node);
	ret = memreg_export_take_lease(ucmd, granted);
	if (ret)
		goto err_free;
	ret = memreg_export_make(ucmd, granted);
	if (!ret)
		return granted;
	memreg_export_obj_untie(ucmd->file, granted);
err_free:
	kfree(granted);
	return ERR_PTR(ret);
}

/* ioctl(IB_MEMREG_IOC_EXPORT_CREATE) */
int memreg_export_create_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_export_create *cmd = ucmd->cmd;
	struct memreg_export_obj *granted;
	struct memreg_object *obj;
	struct dma_buf *dmabuf;
	int ret;

	ret = memreg_export_check(ucmd);
	if (ret)
		return ret;
	obj = memreg_object_get(ucmd->file, cmd->mr_id, IB_MEMREG_OBJECT_MR);
	if (!obj)
		return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	granted = memreg_export_create(ucmd,
				       container_of(obj, struct memreg_kmr,
						    obj));
	if (IS_ERR(granted)) {
		memreg_object_put(obj);
		return PTR_ERR(granted);
	}
	memreg_object_made(ucmd, &granted->obj);
	cmd->out_export_id = granted->obj.id;
	/* The descriptor has a reference of its own. */
	dmabuf = granted->export->dmabuf;
	get_dma_buf(dmabuf);
	ret = memreg_dmabuf_respond(ucmd, sizeof(*cmd), dmabuf, &cmd->out_fd);
	if (ret)
		dma_buf_put(dmabuf);
	else
		memreg_count(ucmd->mdev, IB_MEMREG_STAT_EXPORTS_CREATED, 1);
	return ret;
}

/*
 * The call cannot fail any more. If the time of the lease has come meanwhile,
 * the export has ended when it is returned.
 */
static void memreg_export_obj_published(struct memreg_file *file,
					struct memreg_object *obj)
{
	struct memreg_export_obj *granted = memreg_to_export(obj);
	struct memreg_lease *lease;
	bool over = false;

	spin_lock(&file->grant_lock);
	/* Another thread may have revoked it already. */
	lease = granted->lease;
	if (lease)
		over = memreg_lease_is_over(lease, ktime_get_boottime_ns());
	if (lease && !over)
		memreg_lease_tie(lease, &granted->lease_node, &lease->exports);
	spin_unlock(&file->grant_lock);
	if (over) {
		memreg_export_revoke(granted->export);
		memreg_export_obj_untie(file, granted);
	}
	memreg_object_put(obj);
}

/*
 * Revoke
 */

/**
 * memreg_export_obj_lease_end() - Complete the end of an export with its lease
 * @file: The file
 * @granted: Export that was revoked, with a reference
 * @until: Jiffies until which to wait for its importers
 *
 * Context: may sleep.
 */
void memreg_export_obj_lease_end(struct memreg_file *file,
				 struct memreg_export_obj *granted,
				 unsigned long until)
{
	if (memreg_export_wait(granted->export, until))
		memreg_export_obj_ended(granted);
	memreg_export_obj_untie(file, granted);
}

/* Wait for exports that end. Returns the first one that is late, or @count. */
static u32 memreg_exports_await(struct memreg_file *file,
				struct memreg_object **objs, u32 count)
{
	unsigned long deadline = jiffies + MEMREG_EXPORT_TIMEOUT;
	u32 i, late = count;

	for (i = 0; i < count; i++) {
		struct memreg_export_obj *granted = memreg_to_export(objs[i]);

		if (memreg_export_wait(granted->export, deadline))
			memreg_export_obj_ended(granted);
		else
			late = min(late, i);
		memreg_export_obj_untie(file, granted);
	}
	return late;
}

/* Revoke exports; each has a reference, or is NULL. */
static int memreg_exports_revoke(struct memreg_ucmd *ucmd,
				 struct memreg_object **objs)
{
	struct ib_memreg_export_revoke *cmd = ucmd->cmd;
	u32 i;

	for (i = 0; i < cmd->count && objs[i]; i++)
		;
	cmd->out_index = i;
	/* What is revoked is not undone because of the answer. */
	if (memreg_respond(ucmd, sizeof(*cmd)))
		return -EFAULT;
	if (i < cmd->count)
		return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	for (i = 0; i < cmd->count; i++)
		memreg_export_revoke(memreg_to_export(objs[i])->export);
	cmd->out_index = memreg_exports_await(ucmd->file, objs, cmd->count);
	if (cmd->out_index == cmd->count)
		return 0;
	/* That one is late counts, and not whether its index can be told. */
	(void)memreg_respond(ucmd, sizeof(*cmd));
	return memreg_fail(ucmd, -ETIMEDOUT, IB_MEMREG_REASON_EXPORT_LATE);
}

/* ioctl(IB_MEMREG_IOC_EXPORT_REVOKE) */
int memreg_export_revoke_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_export_revoke *cmd = ucmd->cmd;
	struct memreg_object **objs;
	u32 *ids, i;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->count || cmd->count > IB_MEMREG_BATCH_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	objs = kmalloc_array(cmd->count, sizeof(*objs) + sizeof(*ids),
			     GFP_KERNEL_ACCOUNT);
	if (!objs)
		return -ENOMEM;
	ids = (void *)(objs + cmd->count);
	ret = -EFAULT;
	if (copy_from_user(ids, u64_to_user_ptr(cmd->ids),
			   cmd->count * sizeof(*ids)))
		goto out;
	memreg_objects_get(ucmd->file, IB_MEMREG_OBJECT_EXPORT, ids,
			   sizeof(*ids), cmd->count, objs);
	ret = memreg_exports_revoke(ucmd, objs);
	for (i = 0; i < cmd->count; i++)
		if (objs[i])
			memreg_object_put(objs[i]);
out:
	kfree(objs);
	return ret;
}

/*
 * The end
 */

/*
 * It is to be destroyed: now if no importer is late, or in any case as the file
 * closes, and then all of the file's end at the same time.
 */
static void memreg_export_obj_idle(struct memreg_object *obj, bool closing)
{
	struct memreg_export_obj *granted = memreg_to_export(obj);

	memreg_export_revoke(granted->export);
	if (closing)
		memreg_export_obj_drop(granted);
	else if (memreg_export_wait(granted->export,
				    granted->export->deadline))
		memreg_export_obj_ended(granted);
}

static void memreg_export_obj_destroy(struct memreg_file *file,
				      struct memreg_object *obj)
{
	struct memreg_export_obj *granted = memreg_to_export(obj);

	memreg_export_obj_untie(file, granted);
	/* It may never have been published. */
	memreg_export_revoke(granted->export);
	/* The removal of a device waits for nobody. */
	if (!READ_ONCE(file->mdev->gone))
		memreg_export_wait(granted->export, granted->export->deadline);
	memreg_export_give_slot(granted);
	memreg_export_obj_put_mr(granted->mr);
	memreg_export_put(granted->export);
	kfree(granted);
}

static u32 memreg_export_obj_busy(const struct memreg_object *obj)
{
	const struct memreg_export_obj *granted =
		container_of(obj, struct memreg_export_obj, obj);

	return READ_ONCE(granted->reachable) ? IB_MEMREG_REASON_EXPORT_LATE :
					       IB_MEMREG_REASON_IN_USE;
}

static u32 memreg_export_obj_state(const struct memreg_kexport *export)
{
	switch (READ_ONCE(export->state)) {
	case MEMREG_EXPORT_LIVE:
		return IB_MEMREG_EXPORT_LIVE;
	case MEMREG_EXPORT_ENDING:
		return IB_MEMREG_EXPORT_ENDING;
	default:
		return IB_MEMREG_EXPORT_ENDED;
	}
}

static void memreg_export_obj_info(struct memreg_object *obj,
				struct ib_memreg_object *info)
{
	struct memreg_export_obj *granted = memreg_to_export(obj);
	struct memreg_kexport *export = granted->export;

	/* Its own reference is no user's. */
	info->users -= READ_ONCE(granted->reachable) && info->users;
	info->u.exported = (struct ib_memreg_object_export) {
		.addr = granted->addr,
		.length = (u64)export->npages << PAGE_SHIFT,
		.dmabuf = file_inode(export->dmabuf->file)->i_ino,
		.mr_id = granted->mr_id,
		.state = memreg_export_obj_state(export),
		/* LIST may race with importers. */
		.importers = data_race(export->mapped),
		.lease_id = granted->lease_id,
	};
}

static const struct memreg_object_ops memreg_export_obj_ops = {
	.type = IB_MEMREG_OBJECT_EXPORT,
	.destroy = memreg_export_obj_destroy,
	.idle = memreg_export_obj_idle,
	.published = memreg_export_obj_published,
	.busy = memreg_export_obj_busy,
	.info = memreg_export_obj_info,
};
