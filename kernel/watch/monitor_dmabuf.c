// SPDX-License-Identifier: GPL-2.0-only
/*
 * Monitors of dma-bufs.
 *
 * An exporter that takes its memory away, or moves it, notifies those who are
 * attached to the dma-buf. So a monitor attaches, and neither pins nor maps:
 * nobody waits for it. (Some exporters pin or keep a device awake for whoever is
 * attached: see drm_gem_map_attach().) It attaches for the device that the memory is registered
 * with, as exporters choose the place of the memory by all that are attached
 * (amdgpu pins memory of the GPU only if each of them can reach it there).
 *
 * An export may end between the exporter's consent to the attachment and the
 * beginning of notifications. The registration that a monitor is for is made
 * afterwards, and fails then.
 *
 * A monitor holds a reference of the dma-buf, as a registration does: the number
 * of its inode is not used again meanwhile.
 */
#include <linux/device.h>
#include <linux/dma-buf.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#include "core.h"
#include "device.h"
#include "watch/monitor_dmabuf.h"
#include "watch/status.h"

/**
 * memreg_dmabuf_get() - Get a dma-buf by its descriptor
 * @ucmd: Call that names the descriptor
 * @fd: Descriptor, from user space
 *
 * Return: the dma-buf, which the caller puts by dma_buf_put(); ERR_PTR(-EBADF).
 */
struct dma_buf *memreg_dmabuf_get(struct memreg_ucmd *ucmd, int fd)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);

	if (!IS_ERR(dmabuf))
		return dmabuf;
	return ERR_PTR(memreg_fail(ucmd, -EBADF, PTR_ERR(dmabuf) == -EBADF ?
				   IB_MEMREG_REASON_FD :
				   IB_MEMREG_REASON_NOT_DMABUF));
}

/**
 * struct memreg_dmabuf_monitor - A watched dma-buf
 * @obj: Head
 * @user: The user of its file, whom it counts for
 * @status: The table that has the slot; holds a reference
 * @slot: The slot
 * @dev: The device that it is attached for; holds a reference
 * @dmabuf: The dma-buf; holds a reference
 * @attach: The attachment
 */
struct memreg_dmabuf_monitor {
	struct memreg_object obj;
	struct memreg_user *user;
	struct memreg_kstatus *status;
	u32 slot;
	struct device *dev;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
};

/* ->invalidate_mappings(): the exporter takes the memory away. */
static void memreg_dmabuf_monitor_notify(struct dma_buf_attachment *attach)
{
	struct memreg_dmabuf_monitor *monitor = attach->importer_priv;
	struct memreg_kstatus *status = monitor->status;

	spin_lock(&status->lock);
	memreg_status_count(status, &status->shared->events);
	__memreg_status_change(status, monitor->slot);
	spin_unlock(&status->lock);
	memreg_status_wake(status);
}

#ifdef MEMREG_DMABUF_MOVE_NOTIFY
#define invalidate_mappings	move_notify
#endif

static const struct dma_buf_attach_ops memreg_dmabuf_monitor_attach_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = memreg_dmabuf_monitor_notify,
};

static int memreg_dmabuf_monitor_attach(struct memreg_ucmd *ucmd,
					struct memreg_dmabuf_monitor *monitor)
{
	struct ib_device *ibdev = ucmd->mdev->ibdev;

	monitor->dev = get_device(ibdev->dma_device ?: &ibdev->dev);
	monitor->attach =
		dma_buf_dynamic_attach(monitor->dmabuf, monitor->dev,
				       &memreg_dmabuf_monitor_attach_ops,
				       monitor);
	if (!IS_ERR(monitor->attach))
		return 0;
	put_device(monitor->dev);
	return monitor->attach == ERR_PTR(-ENOMEM) ? -ENOMEM :
	       memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_EXPORTER);
}

static void memreg_dmabuf_monitor_release(struct memreg_dmabuf_monitor *monitor)
{
	atomic_dec(&monitor->user->exports);
	dma_buf_put(monitor->dmabuf);
	kfree(monitor);
}

static void memreg_dmabuf_monitor_free(struct memreg_dmabuf_monitor *monitor)
{
	memreg_status_give_slot(monitor->status, monitor->slot);
	memreg_dmabuf_monitor_release(monitor);
}

static void memreg_dmabuf_monitor_destroy(struct memreg_file *file,
					  struct memreg_object *obj)
{
	struct memreg_dmabuf_monitor *monitor =
		container_of(obj, struct memreg_dmabuf_monitor, obj);
	struct memreg_kstatus *status = monitor->status;

	/* No callback runs afterwards. */
	dma_buf_detach(monitor->dmabuf, monitor->attach);
	put_device(monitor->dev);
	memreg_dmabuf_monitor_free(monitor);
	memreg_status_put(status);
}

static void memreg_dmabuf_monitor_info(struct memreg_object *obj,
				       struct ib_memreg_object *info)
{
	struct memreg_dmabuf_monitor *monitor =
		container_of(obj, struct memreg_dmabuf_monitor, obj);

	info->u.monitor.status_id = monitor->status->obj.id;
	info->u.monitor.length = monitor->dmabuf->size;
	info->u.monitor.dmabuf = file_inode(monitor->dmabuf->file)->i_ino;
}

static const struct memreg_object_ops memreg_dmabuf_monitor_ops = {
	.type = IB_MEMREG_OBJECT_MONITOR,
	.destroy = memreg_dmabuf_monitor_destroy,
	.info = memreg_dmabuf_monitor_info,
};

static int memreg_dmabuf_monitor_check(struct memreg_ucmd *ucmd,
				       const struct ib_memreg_monitor *arg)
{
	if (arg->flags & ~IB_MEMREG_MONITOR_DMABUF)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (arg->access)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ACCESS);
	if (arg->length)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RANGE);
	if (arg->addr > INT_MAX)
		return memreg_fail(ucmd, -EBADF, IB_MEMREG_REASON_FD);
	return memreg_bound(ucmd);
}

/*
 * A monitor with its dma-buf and its slot, or ERR_PTR(). It keeps a file that
 * needs no descriptor, and an exporter calls each monitor in turn: a user can
 * have as many, with exports, as descriptors.
 */
static struct memreg_dmabuf_monitor *
memreg_dmabuf_monitor_new(struct memreg_ucmd *ucmd,
			  struct memreg_kstatus *status, int fd)
{
	struct dma_buf *dmabuf = memreg_dmabuf_get(ucmd, fd);
	struct memreg_dmabuf_monitor *monitor;
	int ret = 0;

	if (IS_ERR(dmabuf))
		return ERR_CAST(dmabuf);
	monitor = kzalloc(sizeof(*monitor), GFP_KERNEL_ACCOUNT);
	if (!monitor) {
		dma_buf_put(dmabuf);
		return ERR_PTR(-ENOMEM);
	}
	monitor->user = ucmd->file->user;
	monitor->dmabuf = dmabuf;
	monitor->status = status;
	if (atomic_inc_return(&monitor->user->exports) > rlimit(RLIMIT_NOFILE))
		ret = memreg_fail(ucmd, -EMFILE, IB_MEMREG_REASON_EXPORTS);
	else if (memreg_status_take_slot(status, &monitor->slot))
		ret = memreg_fail(ucmd, -ENOSPC, IB_MEMREG_REASON_SLOTS);
	if (!ret)
		return monitor;
	memreg_dmabuf_monitor_release(monitor);
	return ERR_PTR(ret);
}

/**
 * memreg_dmabuf_monitor_make() - Make a monitor of a dma-buf
 * @ucmd: Call that asks for it
 * @status: Its status table, which the caller holds
 * @arg: What is asked for, and the answer
 *
 * Return: 0, and the monitor is that of the call; an errno, with the reason
 * set.
 */
int memreg_dmabuf_monitor_make(struct memreg_ucmd *ucmd,
			       struct memreg_kstatus *status,
			       struct ib_memreg_monitor *arg)
{
	struct memreg_dmabuf_monitor *monitor;
	int ret;

	ret = memreg_dmabuf_monitor_check(ucmd, arg);
	if (ret)
		return ret;
	monitor = memreg_dmabuf_monitor_new(ucmd, status, arg->addr);
	if (IS_ERR(monitor))
		return PTR_ERR(monitor);
	arg->out_slot = monitor->slot;
	arg->out_generation = memreg_status_generation(status, monitor->slot);
	ret = memreg_object_alloc(ucmd->file, &monitor->obj,
				  &memreg_dmabuf_monitor_ops);
	if (ret)
		goto err_free;
	ret = memreg_dmabuf_monitor_attach(ucmd, monitor);
	if (ret)
		goto err_abort;
	refcount_inc(&status->obj.users);
	arg->out_monitor_id = monitor->obj.id;
	memreg_object_made(ucmd, &monitor->obj);
	return 0;

err_abort:
	memreg_object_abort(ucmd->file, &monitor->obj);
err_free:
	memreg_dmabuf_monitor_free(monitor);
	return ret;
}
