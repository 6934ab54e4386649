// SPDX-License-Identifier: GPL-2.0-only
/*
 * ib_memreg: RDMA memory registration that is cheap, revocable and safe.
 *
 * This file has module init and exit, the character device, the table of ioctls
 * and the lifetime of open files. The handler of a call is in the file of the
 * object that the call works on.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cdev.h>
#include <linux/cred.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "caps.h"
#include "conn/connect.h"
#include "conn/endpoint.h"
#include "conn/event.h"
#include "conn/listener.h"
#include "conn/ring.h"
#include "conn/srq.h"
#include "conn/submit.h"
#include "conn/uring_cmd.h"
#include "core.h"
#include "device.h"
#include "inject.h"
#include "kapi/kapi.h"
#include "keys/domain.h"
#include "keys/frwr.h"
#include "list.h"
#include "mr/advise.h"
#include "mr/buffer_pool.h"
#include "mr/compose.h"
#include "mr/demand.h"
#include "mr/export.h"
#include "mr/lease.h"
#include "mr/mr.h"
#include "mr/rereg.h"
#include "mr/window.h"
#include "pages/memory.h"
#include "stats.h"
#include "trace.h"
#include "watch/monitor.h"
#include "watch/status.h"

static int memreg_fops_open(struct inode *inode, struct file *filp)
{
	struct memreg_file *file = memreg_file_new();

	if (IS_ERR(file))
		return PTR_ERR(file);
	filp->private_data = file;
	return stream_open(inode, filp);
}

static void memreg_file_close(struct memreg_file *file)
{
	memreg_device_unbind(file);
	trace_memreg_file_close(file);
}

/*
 * This may have to wait for unmaps that are under way in the process whose
 * memory it gives back, which that process can prolong.
 */
static void memreg_file_close_work(struct work_struct *work)
{
	struct memreg_file *file =
		container_of(work, struct memreg_file, close.work);

	memreg_file_close(file);
	memreg_user_work_end(&file->close);
	memreg_file_put(file);
}

/*
 * Is the file closed by the user who opened it, or by the process that bound it
 * to its device, even if that process has changed its user since? A thread of
 * the kernel, which closes files for everybody, is neither.
 */
static bool memreg_file_closed_by_owner(const struct memreg_file *file,
					const struct file *filp)
{
	return !(current->flags & PF_KTHREAD) &&
	       (uid_eq(current_euid(), filp->f_cred->euid) ||
		file->pid == task_tgid(current));
}

/*
 * Destroying the objects of a file may take long. A process of another user
 * that was passed the descriptor and is the last to close it does not wait.
 */
static int memreg_fops_release(struct inode *inode, struct file *filp)
{
	struct memreg_file *file = filp->private_data;

	memreg_file_hide(file);
	if (memreg_file_closed_by_owner(file, filp)) {
		memreg_file_close(file);
		memreg_file_put(file);
	} else {
		memreg_user_work_init(&file->close, file->user,
				      MEMREG_WORK_FILE, memreg_file_close_work);
		memreg_user_work_queue(&file->close);
	}
	return 0;
}

union memreg_cmd {
	struct ib_memreg_device_bind device_bind;
	struct ib_memreg_device_query device_query;
	struct ib_memreg_device_stat device_stat;
	struct ib_memreg_destroy destroy;
	struct ib_memreg_list list;
	struct ib_memreg_set_user_data set_user_data;
	struct ib_memreg_domain_create domain_create;
	struct ib_memreg_domain_query domain_query;
	struct ib_memreg_mr_register mr_register;
	struct ib_memreg_mr_reregister mr_reregister;
	struct ib_memreg_mr_compose mr_compose;
	struct ib_memreg_mr_query mr_query;
	struct ib_memreg_mr_advise mr_advise;
	struct ib_memreg_pool_create pool_create;
	struct ib_memreg_pool_recycle pool_recycle;
	struct ib_memreg_memory_create memory_create;
	struct ib_memreg_memory_dup memory_dup;
	struct ib_memreg_window_alloc window_alloc;
	struct ib_memreg_window_bind window_bind;
	struct ib_memreg_window_revoke window_revoke;
	struct ib_memreg_export_create export_create;
	struct ib_memreg_export_revoke export_revoke;
	struct ib_memreg_lease_create lease_create;
	struct ib_memreg_lease_renew lease_renew;
	struct ib_memreg_status_create status_create;
	struct ib_memreg_monitor_create monitor_create;
	struct ib_memreg_monitor_destroy monitor_destroy;
	struct ib_memreg_listener_create listener_create;
	struct ib_memreg_endpoint_connect endpoint_connect;
	struct ib_memreg_endpoint_setup endpoint_setup;
	struct ib_memreg_endpoint_accept endpoint_accept;
	struct ib_memreg_endpoint_reject endpoint_reject;
	struct ib_memreg_endpoint_disconnect endpoint_disconnect;
	struct ib_memreg_ring_create ring_create;
	struct ib_memreg_srq_create srq_create;
	struct ib_memreg_submit submit;
};

/**
 * struct memreg_ioctl - An ioctl
 * @num: Its ioctl number
 * @size: Size of its structure
 * @min_size: Size that the structure had in the first release
 * @unbound: The call works on a file that is not bound; its handler takes
 *	memreg_file.lock itself if it needs the lock
 * @deviceless: The call works on a file that is not bound, but not on one whose
 *	device is gone
 * @faults: The call starts over once the pages of memreg_ucmd.fault are there,
 *	if it fails for the lack of them
 * @execute: Handler
 */
struct memreg_ioctl {
	unsigned int num;
	u32 size;
	u32 min_size;
	bool unbound;
	bool deviceless;
	bool faults;
	int (*execute)(struct memreg_ucmd *ucmd);
};

#define MEMREG_IOCTL(_NAME, _name, _last, _execute, ...)		\
	[_IOC_NR(IB_MEMREG_IOC_##_NAME)] = {				\
		.num = IB_MEMREG_IOC_##_NAME,				\
		.size = sizeof(struct ib_memreg_##_name) +		\
			BUILD_BUG_ON_ZERO(sizeof(union memreg_cmd) <	\
				sizeof(struct ib_memreg_##_name)),	\
		.min_size = offsetofend(struct ib_memreg_##_name, _last), \
		.execute = _execute,					\
		__VA_ARGS__						\
	}

static const struct memreg_ioctl memreg_ioctls[] = {
	MEMREG_IOCTL(DEVICE_BIND, device_bind, name, memreg_device_bind_ioctl,
		     .unbound = true),
	MEMREG_IOCTL(DEVICE_QUERY, device_query, out_name,
		     memreg_device_query_ioctl),
	MEMREG_IOCTL(DEVICE_STAT, device_stat, stats, memreg_device_stat_ioctl),
	MEMREG_IOCTL(DESTROY, destroy, id, memreg_destroy_ioctl,
		     .deviceless = true),
	MEMREG_IOCTL(LIST, list, reserved, memreg_list_ioctl, .unbound = true),
	MEMREG_IOCTL(SET_USER_DATA, set_user_data, user_data,
		     memreg_set_user_data_ioctl),
	MEMREG_IOCTL(DOMAIN_CREATE, domain_create, reserved,
		     memreg_domain_create_ioctl),
	MEMREG_IOCTL(DOMAIN_QUERY, domain_query, out_rebuilds,
		     memreg_domain_query_ioctl),
	MEMREG_IOCTL(MR_REGISTER, mr_register, out_generation,
		     memreg_mr_register_ioctl, .faults = true),
	MEMREG_IOCTL(MR_REREGISTER, mr_reregister, out_kept,
		     memreg_mr_reregister_ioctl, .faults = true),
	MEMREG_IOCTL(MR_COMPOSE, mr_compose, out_entries,
		     memreg_mr_compose_ioctl),
	MEMREG_IOCTL(MR_QUERY, mr_query, out_wait, memreg_mr_query_ioctl),
	MEMREG_IOCTL(MR_ADVISE, mr_advise, ranges, memreg_mr_advise_ioctl),
	MEMREG_IOCTL(POOL_CREATE, pool_create, out_table_size,
		     memreg_pool_create_ioctl, .faults = true),
	MEMREG_IOCTL(POOL_RECYCLE, pool_recycle, indices,
		     memreg_pool_recycle_ioctl),
	MEMREG_IOCTL(MEMORY_CREATE, memory_create, reserved,
		     memreg_memory_create_ioctl),
	MEMREG_IOCTL(MEMORY_DUP, memory_dup, reserved, memreg_memory_dup_ioctl),
	MEMREG_IOCTL(WINDOW_ALLOC, window_alloc, ids,
		     memreg_window_alloc_ioctl),
	MEMREG_IOCTL(WINDOW_BIND, window_bind, binds, memreg_window_bind_ioctl),
	MEMREG_IOCTL(WINDOW_REVOKE, window_revoke, ids,
		     memreg_window_revoke_ioctl),
	MEMREG_IOCTL(EXPORT_CREATE, export_create, reserved,
		     memreg_export_create_ioctl),
	MEMREG_IOCTL(EXPORT_REVOKE, export_revoke, ids,
		     memreg_export_revoke_ioctl),
	MEMREG_IOCTL(LEASE_CREATE, lease_create, out_generation,
		     memreg_lease_create_ioctl),
	MEMREG_IOCTL(LEASE_RENEW, lease_renew, renewals,
		     memreg_lease_renew_ioctl),
	MEMREG_IOCTL(STATUS_CREATE, status_create, out_size,
		     memreg_status_create_ioctl, .deviceless = true),
	MEMREG_IOCTL(MONITOR_CREATE, monitor_create, monitors,
		     memreg_monitor_create_ioctl, .deviceless = true),
	MEMREG_IOCTL(MONITOR_DESTROY, monitor_destroy, ids,
		     memreg_monitor_destroy_ioctl, .deviceless = true),
	MEMREG_IOCTL(LISTENER_CREATE, listener_create, reserved,
		     memreg_listener_create_ioctl),
	MEMREG_IOCTL(ENDPOINT_CONNECT, endpoint_connect, queues,
		     memreg_endpoint_connect_ioctl),
	MEMREG_IOCTL(ENDPOINT_SETUP, endpoint_setup, queues,
		     memreg_endpoint_setup_ioctl),
	MEMREG_IOCTL(ENDPOINT_ACCEPT, endpoint_accept, private_data,
		     memreg_endpoint_accept_ioctl),
	MEMREG_IOCTL(ENDPOINT_REJECT, endpoint_reject, private_data,
		     memreg_endpoint_reject_ioctl),
	MEMREG_IOCTL(ENDPOINT_DISCONNECT, endpoint_disconnect, endpoint_id,
		     memreg_endpoint_disconnect_ioctl),
	MEMREG_IOCTL(RING_CREATE, ring_create, out_entries_offset,
		     memreg_ring_create_ioctl),
	MEMREG_IOCTL(SRQ_CREATE, srq_create, out_srq_id,
		     memreg_srq_create_ioctl),
	MEMREG_IOCTL(SUBMIT, submit, reserved, memreg_submit_ioctl),
};

/* Run a call's handler, and publish or abort the objects that it has made. */
static int memreg_call(struct memreg_ucmd *ucmd,
		       const struct memreg_ioctl *ioctl)
{
	int ret = ioctl->execute(ucmd);

	if (ucmd->made)
		memreg_objects_finish(ucmd, ret);
	ucmd->made = NULL;
	return ret;
}

/* Run a call that works without a device, but not after the device is gone. */
static int memreg_execute_deviceless(struct memreg_ucmd *ucmd,
				     const struct memreg_ioctl *ioctl)
{
	int ret;

	if (down_read_killable(&ucmd->file->lock))
		return -EINTR;
	ucmd->mdev = ucmd->file->mdev;
	if (ucmd->file->gone)
		ret = memreg_fail(ucmd, -ENODEV, IB_MEMREG_REASON_DEVICE_GONE);
	else
		ret = memreg_call(ucmd, ioctl);
	up_read(&ucmd->file->lock);
	return ret;
}

/* How often a call starts over if its pages keep being taken away. */
#define MEMREG_CALL_FAULTS	8

static int memreg_execute(struct memreg_ucmd *ucmd,
			  const struct memreg_ioctl *ioctl)
{
	unsigned int faults = ioctl->faults ? MEMREG_CALL_FAULTS : 0;
	int ret;

	if (ioctl->unbound)
		return ioctl->execute(ucmd);
	if (ioctl->deviceless)
		return memreg_execute_deviceless(ucmd, ioctl);

	ret = memreg_enter(ucmd, true);
	if (ret)
		return ret;
	ret = memreg_call(ucmd, ioctl);
	while (ret == -EAGAIN && ucmd->fault.needed && faults--) {
		ret = memreg_demand_fault(ucmd);
		if (!ret)
			ret = memreg_call(ucmd, ioctl);
	}
	memreg_leave(ucmd);
	return ret;
}

static long memreg_fops_ioctl(struct file *filp, unsigned int num,
			      unsigned long arg)
{
	struct memreg_ucmd ucmd = {
		.file = filp->private_data,
		.ubuffer = (void __user *)arg,
	};
	const struct memreg_ioctl *ioctl;
	union memreg_cmd cmd;
	int ret;

	if (_IOC_NR(num) >= ARRAY_SIZE(memreg_ioctls))
		return -ENOTTY;
	ioctl = &memreg_ioctls[array_index_nospec(_IOC_NR(num),
						  ARRAY_SIZE(memreg_ioctls))];
	if (ioctl->num != num)
		return -ENOTTY;
	if (get_user(ucmd.user_size, (u32 __user *)ucmd.ubuffer))
		return -EFAULT;

	/* A structure with its first two fields has room for a reason. */
	ret = memreg_fail(&ucmd, -EINVAL, IB_MEMREG_REASON_SIZE);
	if (ucmd.user_size < ioctl->min_size)
		goto out;
	ucmd.reason = IB_MEMREG_REASON_NONE;
	ucmd.cmd = &cmd;
	ret = -E2BIG;
	if (ucmd.user_size > IB_MEMREG_SIZE_MAX)
		goto out;
	ret = copy_struct_from_user(&cmd, ioctl->size, ucmd.ubuffer,
				    ucmd.user_size);
	if (!ret)
		ret = memreg_execute(&ucmd, ioctl);
out:
	if (ret && ucmd.user_size >= offsetofend(struct ib_memreg_device_query,
						 out_reason) &&
	    put_user(ucmd.reason, &((u32 __user *)ucmd.ubuffer)[1]))
		return -EFAULT;
	return ret;
}

/* Can read() return without waiting: with an event, or with an error? */
static bool memreg_readable(struct memreg_file *file)
{
	/* Racy without event_lock: read() decides under it. */
	return memreg_file_has_events(file) || READ_ONCE(file->gone) ||
	       !READ_ONCE(file->mdev);
}

static ssize_t memreg_fops_read(struct kiocb *iocb, struct iov_iter *to)
{
	struct file *filp = iocb->ki_filp;
	struct memreg_file *file = filp->private_data;
	struct memreg_ucmd ucmd = { .file = file };
	bool nowait = filp->f_flags & O_NONBLOCK ||
		      iocb->ki_flags & IOCB_NOWAIT;
	ssize_t ret;

	do {
		if (!nowait &&
		    wait_event_interruptible(file->wait, memreg_readable(file)))
			return -ERESTARTSYS;
		/*
		 * io_uring holds a lock that holders of memreg_file.lock may
		 * wait for.
		 */
		if (iocb->ki_flags & IOCB_NOWAIT) {
			if (!down_read_trylock(&file->lock))
				return -EAGAIN;
		} else if (down_read_killable(&file->lock)) {
			return -EINTR;
		}
		ret = memreg_bound(&ucmd);
		if (!ret)
			ret = memreg_event_read(file, to);
		up_read(&file->lock);
		/* Another reader may have taken the event. */
	} while (ret == -EAGAIN && !nowait);
	return ret;
}

static __poll_t memreg_fops_poll(struct file *filp, poll_table *table)
{
	struct memreg_file *file = filp->private_data;
	__poll_t mask = 0;

	poll_wait(filp, &file->wait, table);
	if (memreg_file_has_events(file))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(file->gone))
		mask |= EPOLLHUP | EPOLLERR;
	return mask;
}

static const struct file_operations memreg_fops = {
	.owner = THIS_MODULE,
	.open = memreg_fops_open,
	.release = memreg_fops_release,
	.unlocked_ioctl = memreg_fops_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.read_iter = memreg_fops_read,
	.poll = memreg_fops_poll,
#ifdef MEMREG_URING
	.uring_cmd = memreg_uring_cmd,
#endif
};

/*
 * The character device is no misc device: these are opened under a mutex, and
 * to open this one takes memory of the caller's cgroup.
 */
static struct cdev *memreg_cdev;
static dev_t memreg_devt;

static char *memreg_devnode(const struct device *dev, umode_t *mode)
{
	/*
	 * As for uverbs: RLIMIT_MEMLOCK limits the pages that a user can pin.
	 */
	if (mode)
		*mode = 0666;
	return kasprintf(GFP_KERNEL, "infiniband/%s", dev_name(dev));
}

static const struct class memreg_class = {
	.name = "memreg",
	.devnode = memreg_devnode,
};

static int __init memreg_cdev_add(void)
{
	struct device *dev;
	int ret;

	/* Not static: it may be freed after the module. */
	memreg_cdev = cdev_alloc();
	if (!memreg_cdev)
		return -ENOMEM;
	memreg_cdev->owner = THIS_MODULE;
	memreg_cdev->ops = &memreg_fops;
	ret = cdev_add(memreg_cdev, memreg_devt, 1);
	if (ret) {
		kobject_put(&memreg_cdev->kobj);
		return ret;
	}
	dev = device_create(&memreg_class, NULL, memreg_devt, NULL, "memreg");
	if (IS_ERR(dev))
		cdev_del(memreg_cdev);
	return PTR_ERR_OR_ZERO(dev);
}

static int __init memreg_cdev_init(void)
{
	int ret;

	ret = alloc_chrdev_region(&memreg_devt, 0, 1, "memreg");
	if (ret)
		return ret;
	ret = class_register(&memreg_class);
	if (ret)
		goto err_region;
	ret = memreg_cdev_add();
	if (ret)
		goto err_class;
	return 0;

err_class:
	class_unregister(&memreg_class);
err_region:
	unregister_chrdev_region(memreg_devt, 1);
	return ret;
}

static void memreg_cdev_exit(void)
{
	device_destroy(&memreg_class, memreg_devt);
	cdev_del(memreg_cdev);
	class_unregister(&memreg_class);
	unregister_chrdev_region(memreg_devt, 1);
}

/* Set up what the memory plane has of a device. */
static int memreg_mem_add(struct memreg_kdevice *mdev)
{
	int ret = memreg_frwr_shrinker(mdev);

	if (ret)
		return ret;
	INIT_IB_EVENT_HANDLER(&mdev->event_handler, mdev->ibdev,
			      memreg_domain_event);
	ib_register_event_handler(&mdev->event_handler);
	return 0;
}

static int __init memreg_init(void)
{
	int ret;

	ret = memreg_file_init();
	if (ret)
		return ret;
	ret = memreg_user_works_init();
	if (ret)
		goto err_file;
	ret = memreg_demand_module_init();
	if (ret)
		goto err_turns;
	ret = memreg_device_init(memreg_mem_add);
	if (ret)
		goto err_demand;
	ret = memreg_kapi_init(memreg_mr_done);
	if (ret)
		goto err_device;
	memreg_inject_init();
	ret = memreg_cdev_init();
	if (ret)
		goto err_inject;
	return 0;

err_inject:
	memreg_inject_exit();
	memreg_kapi_exit();
err_device:
	memreg_device_exit();
err_demand:
	memreg_demand_module_exit();
err_turns:
	memreg_user_works_exit();
err_file:
	memreg_file_exit();
	return ret;
}

static void __exit memreg_exit(void)
{
	memreg_cdev_exit();
	memreg_user_works_flush(MEMREG_WORK_FILE);
	memreg_inject_exit();
	memreg_kapi_exit();
	memreg_device_exit();
	memreg_demand_module_exit();
	memreg_user_works_exit();
	memreg_file_exit();
}

module_init(memreg_init);
module_exit(memreg_exit);

MODULE_DESCRIPTION("RDMA memory registration: cheap, revocable, safe");
MODULE_AUTHOR("The memreg developers");
MODULE_VERSION(MEMREG_VERSION);
MODULE_LICENSE("GPL");
