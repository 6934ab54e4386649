// SPDX-License-Identifier: GPL-2.0-only
/*
 * RDMA devices come and go; files are bound to them.
 *
 * A struct memreg_kdevice lives from the time that ib_core adds the device
 * until both the device is removed and the last file that was bound to it is
 * closed.
 * Removal visits every bound file, waits for the calls that are running on it,
 * destroys the file's objects, and marks the file: from then on every call
 * fails with ENODEV. The file keeps no reference to the ib_device beyond that,
 * so removal never waits for user space to close anything. The calls themselves
 * take a bounded time, except for page faults on their arguments, and those
 * that a driver takes to pin memory. Pages that memreg pins are faulted in
 * without the file's lock.
 */
#include <linux/cred.h>
#include <linux/dma-mapping.h>
#include <linux/nsproxy.h>
#include <linux/pid.h>
#include <linux/sched/task.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core.h"
#include "device.h"
#include "quirks.h"
#include "stats.h"
#include "trace.h"

/* All devices between add_one and remove_one. */
static LIST_HEAD(memreg_devices);
static DEFINE_SPINLOCK(memreg_devices_lock);

static struct ib_client memreg_client;

/* Sets up what the memory plane has of each device. */
static int (*memreg_device_added)(struct memreg_kdevice *mdev);

/**
 * memreg_device_get() - Keep the structure of a device, and its counters
 * @mdev: The device
 */
void memreg_device_get(struct memreg_kdevice *mdev)
{
	refcount_inc(&mdev->refs);
}

/**
 * memreg_device_put() - Put a device
 * @mdev: The device
 */
void memreg_device_put(struct memreg_kdevice *mdev)
{
	if (refcount_dec_and_test(&mdev->refs)) {
		free_percpu(mdev->stats);
		kfree(mdev);
	}
}

/**
 * memreg_device_name() - Copy the present name of a device
 * @mdev: The device
 * @name: Buffer for the name
 * @size: Size of @name in bytes; the rest is filled with zeros
 */
void memreg_device_name(struct memreg_kdevice *mdev, char *name, size_t size)
{
	spin_lock(&mdev->name_lock);
	strscpy_pad(name, mdev->name, size);
	spin_unlock(&mdev->name_lock);
}

/* ib_core may rename the device while dev_name() is read: keep a copy. */
static void memreg_device_rename(struct ib_device *ibdev, void *client_data)
{
	struct memreg_kdevice *mdev = client_data;

	spin_lock(&mdev->name_lock);
	strscpy(mdev->name, dev_name(&ibdev->dev), sizeof(mdev->name));
	spin_unlock(&mdev->name_lock);
}

/**
 * memreg_charge() - Charge one object to the caller's rdma cgroup
 * @charge: Records the charge, for memreg_uncharge()
 * @mdev: Device of the object
 * @handle: Charge a handle (an open file) instead of an object
 *
 * Return: 0; -EDQUOT if a limit is reached; -ENOMEM.
 */
int memreg_charge(struct memreg_charge *charge, struct memreg_kdevice *mdev,
		  bool handle)
{
	int ret = 0;

	charge->cg = NULL;
	charge->handle = handle;
#ifdef CONFIG_CGROUP_RDMA
	ret = rdmacg_try_charge(&charge->cg, &mdev->ibdev->cg_device,
				handle ? RDMACG_RESOURCE_HCA_HANDLE :
					 RDMACG_RESOURCE_HCA_OBJECT);
	if (ret)
		charge->cg = NULL;
	/* EAGAIN would promise that the same call may succeed if repeated. */
	if (ret == -EAGAIN)
		ret = -EDQUOT;
#endif
	return ret;
}

/**
 * memreg_uncharge() - Undo memreg_charge()
 * @charge: The charge; if it records none, this does nothing
 * @mdev: Device of the object
 */
void memreg_uncharge(struct memreg_charge *charge, struct memreg_kdevice *mdev)
{
#ifdef CONFIG_CGROUP_RDMA
	if (charge->cg)
		rdmacg_uncharge(charge->cg, &mdev->ibdev->cg_device,
				charge->handle ? RDMACG_RESOURCE_HCA_HANDLE :
						 RDMACG_RESOURCE_HCA_OBJECT);
#endif
	charge->cg = NULL;
}

/**
 * memreg_charge_reason() - Fail a call because of a charge
 * @ucmd: The call
 * @err: Errno that memreg_charge() returned
 *
 * Return: @err.
 */
int memreg_charge_reason(struct memreg_ucmd *ucmd, int err)
{
	if (err == -EDQUOT)
		ucmd->reason = IB_MEMREG_REASON_CGROUP;
	return err;
}

/* Does the device have the verbs that every domain needs? */
static int memreg_device_usable(struct memreg_ucmd *ucmd,
				struct ib_device *ibdev)
{
	unsigned long quirks = memreg_quirks(ibdev);
	u32 port;

	rdma_for_each_port(ibdev, port)
		if (rdma_protocol_iwarp(ibdev, port))
			return memreg_fail(ucmd, -EOPNOTSUPP,
					   IB_MEMREG_REASON_IWARP);
	if (quirks & MEMREG_QUIRK_UNFIT ||
	    (quirks & MEMREG_QUIRK_SYSTEM_PAGES &&
	     PAGE_SIZE != MEMREG_PAGE_SIZE))
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_DRIVER);
	if (memreg_page_list_max(ibdev) < 2)
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_NO_FRWR);
	return 0;
}

/* Find the device called @name, or the only one, in the caller's namespace. */
static struct memreg_kdevice *memreg_device_find(const char *name)
{
	struct net *net = current->nsproxy->net_ns;
	struct memreg_kdevice *mdev, *found = NULL;
	unsigned int matches = 0;
	char present[IB_DEVICE_NAME_MAX];

	spin_lock(&memreg_devices_lock);
	list_for_each_entry(mdev, &memreg_devices, node) {
		memreg_device_name(mdev, present, sizeof(present));
		if (!rdma_dev_access_netns(mdev->ibdev, net) ||
		    (name[0] && strcmp(present, name)))
			continue;
		found = mdev;
		matches++;
	}
	if (matches == 1)
		memreg_device_get(found);
	spin_unlock(&memreg_devices_lock);
	return matches == 1 ? found : NULL;
}

/*
 * Add a file, whose lock is held, to the files that the removal of the device
 * waits for. Returns false if the removal has begun.
 */
static bool memreg_device_enlist(struct memreg_kdevice *mdev,
				 struct memreg_file *file)
{
	bool gone;

	spin_lock(&mdev->files_lock);
	gone = mdev->gone;
	if (!gone)
		list_add_tail(&file->device_node, &mdev->files);
	spin_unlock(&mdev->files_lock);
	return !gone;
}

static void memreg_device_delist(struct memreg_kdevice *mdev,
				 struct memreg_file *file)
{
	spin_lock(&mdev->files_lock);
	list_del_init(&file->device_node);
	spin_unlock(&mdev->files_lock);
}

/* Bind a file to a device, unless the file is bound or the device is gone. */
static int memreg_device_attach(struct memreg_ucmd *ucmd,
				struct memreg_kdevice *mdev)
{
	struct memreg_file *file = ucmd->file;
	int ret;

	lockdep_assert_held_write(&file->lock);

	if (file->mdev)
		return memreg_fail(ucmd, -EBUSY, IB_MEMREG_REASON_BOUND);

	if (!memreg_device_enlist(mdev, file))
		return memreg_fail(ucmd, -ENODEV, IB_MEMREG_REASON_DEVICE_GONE);
	ret = memreg_device_usable(ucmd, mdev->ibdev);
	if (ret)
		goto err_delist;
	ret = memreg_charge(&file->charge, mdev, true);
	if (ret) {
		memreg_charge_reason(ucmd, ret);
		goto err_delist;
	}
	file->net = get_net(current->nsproxy->net_ns);
	file->pid = get_task_pid(current->group_leader, PIDTYPE_TGID);
	file->uid = current_euid();
	get_task_comm(file->comm, current->group_leader);
	memreg_device_get(mdev);
	/* Pairs with LIST, which reads the user without the file's lock. */
	smp_store_release(&file->mdev, mdev);
	trace_memreg_file_bind(file);
	return 0;

err_delist:
	memreg_device_delist(mdev, file);
	return ret;
}

/* Copy the answer before the file is bound: nothing may fail afterwards. */
static int memreg_device_respond(struct memreg_ucmd *ucmd,
				 struct memreg_kdevice *mdev)
{
	struct ib_memreg_device_bind *cmd = ucmd->cmd;
	bool gone;

	spin_lock(&mdev->files_lock);
	gone = mdev->gone;
	if (!gone) {
		cmd->out_index = mdev->ibdev->index;
		memreg_device_name(mdev, cmd->name, sizeof(cmd->name));
	}
	spin_unlock(&mdev->files_lock);
	if (gone)
		return memreg_fail(ucmd, -ENODEV,
				   IB_MEMREG_REASON_DEVICE_GONE);
	return memreg_respond(ucmd, sizeof(*cmd));
}

/* ioctl(IB_MEMREG_IOC_DEVICE_BIND) */
int memreg_device_bind_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_device_bind *cmd = ucmd->cmd;
	struct memreg_kdevice *mdev;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (strnlen(cmd->name, sizeof(cmd->name)) == sizeof(cmd->name))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_NO_DEVICE);
	if (READ_ONCE(ucmd->file->gone))
		return memreg_fail(ucmd, -ENODEV,
				   IB_MEMREG_REASON_DEVICE_GONE);
	if (READ_ONCE(ucmd->file->mdev))
		return memreg_fail(ucmd, -EBUSY, IB_MEMREG_REASON_BOUND);

	mdev = memreg_device_find(cmd->name);
	if (!mdev)
		return memreg_fail(ucmd, -ENODEV, IB_MEMREG_REASON_NO_DEVICE);
	ret = memreg_device_respond(ucmd, mdev);
	if (ret)
		goto out;
	if (down_write_killable(&ucmd->file->lock)) {
		ret = -EINTR;
		goto out;
	}
	ret = memreg_device_attach(ucmd, mdev);
	up_write(&ucmd->file->lock);
	memreg_file_wake(ucmd->file);
out:
	memreg_device_put(mdev);
	return ret;
}

/* Destroy all objects of a file. The file's lock is held. */
static void memreg_device_detach(struct memreg_file *file)
{
	lockdep_assert_held_write(&file->lock);

	memreg_object_destroy_all(file);
	memreg_uncharge(&file->charge, file->mdev);
	memreg_device_delist(file->mdev, file);
	WRITE_ONCE(file->gone, true);
}

/**
 * memreg_device_unbind() - Destroy all objects of a file that is being closed
 * @file: The file, on which no call is running
 */
void memreg_device_unbind(struct memreg_file *file)
{
	/* The device may be removed at the same time. */
	down_write(&file->lock);
	if (file->mdev && !file->gone)
		memreg_device_detach(file);
	else if (!file->mdev)
		memreg_object_destroy_all(file);
	up_write(&file->lock);

	xa_destroy(&file->objects);
	if (file->mdev) {
		put_net(file->net);
		memreg_device_put(file->mdev);
	}
}

/* Access flags that a device supports. */
static u32 memreg_device_access(struct ib_device *ibdev, unsigned long quirks)
{
	const struct ib_device_attr *attrs = &ibdev->attrs;
	u32 access = MEMREG_ACCESS_ALL;

	if (attrs->atomic_cap == IB_ATOMIC_NONE ||
	    quirks & MEMREG_QUIRK_NO_ATOMIC)
		access &= ~IB_MEMREG_ACCESS_REMOTE_ATOMIC;
	if (!(attrs->device_cap_flags & IB_DEVICE_FLUSH_GLOBAL))
		access &= ~IB_MEMREG_ACCESS_FLUSH_GLOBAL;
	if (!(attrs->device_cap_flags & IB_DEVICE_FLUSH_PERSISTENT))
		access &= ~IB_MEMREG_ACCESS_FLUSH_PERSISTENT;
	return access;
}

/* Longest message, in bytes, that every port can send. */
static u32 memreg_device_longest(struct ib_device *ibdev)
{
	u32 longest = MEMREG_PIECE_MAX, port;
	struct ib_port_attr attr;

	rdma_for_each_port(ibdev, port)
		if (!ib_query_port(ibdev, port, &attr))
			longest = min_not_zero(longest, attr.max_msg_sz);
	return longest;
}

static int memreg_device_add(struct ib_device *ibdev)
{
	struct memreg_kdevice *mdev;
	int ret;

	mdev = kzalloc(sizeof(*mdev), GFP_KERNEL);
	if (!mdev)
		return -ENOMEM;
	mdev->stats = alloc_percpu(struct memreg_stats);
	if (!mdev->stats) {
		kfree(mdev);
		return -ENOMEM;
	}
	mdev->ibdev = ibdev;
	mdev->index = ibdev->index;
	refcount_set(&mdev->refs, 1);
	spin_lock_init(&mdev->name_lock);
	memreg_device_rename(ibdev, mdev);
	mdev->quirks = memreg_quirks(ibdev);
	mdev->max_pages = min_t(u32, memreg_page_list_max(ibdev),
				MEMREG_MAX_PAGES);
	/* ib_map_mr_sg() takes the size in 32 bits. */
	mdev->page_sizes = ibdev->attrs.page_size_cap &
			   GENMASK_ULL(31, MEMREG_PAGE_SHIFT);
	if (mdev->quirks & MEMREG_QUIRK_SYSTEM_PAGES)
		mdev->page_sizes = PAGE_SIZE;
	mdev->sg_gaps = ibdev->attrs.kernel_cap_flags & IBK_SG_GAPS_REG;
	mdev->access = memreg_device_access(ibdev, mdev->quirks);
	mdev->longest = memreg_device_longest(ibdev);
	spin_lock_init(&mdev->files_lock);
	INIT_LIST_HEAD(&mdev->files);
	spin_lock_init(&mdev->frwr_lock);
	INIT_LIST_HEAD(&mdev->spare_domains);
	spin_lock_init(&mdev->domains_lock);
	INIT_LIST_HEAD(&mdev->domains);
	ret = memreg_device_added(mdev);
	if (ret) {
		free_percpu(mdev->stats);
		kfree(mdev);
		return ret;
	}

	ib_set_client_data(ibdev, &memreg_client, mdev);
	spin_lock(&memreg_devices_lock);
	list_add_tail(&mdev->node, &memreg_devices);
	spin_unlock(&memreg_devices_lock);
	return 0;
}

/* Get one file that is bound to a device under removal, or is being bound. */
static struct memreg_file *memreg_device_bound_file(struct memreg_kdevice *mdev)
{
	struct memreg_file *file;

	spin_lock(&mdev->files_lock);
	WRITE_ONCE(mdev->gone, true);
	file = list_first_entry_or_null(&mdev->files, struct memreg_file,
					device_node);
	if (file)
		refcount_inc(&file->refs);
	spin_unlock(&mdev->files_lock);
	return file;
}

static void memreg_device_remove(struct ib_device *ibdev, void *client_data)
{
	struct memreg_kdevice *mdev = client_data;
	struct memreg_file *file;

	spin_lock(&memreg_devices_lock);
	list_del(&mdev->node);
	spin_unlock(&memreg_devices_lock);
	ib_unregister_event_handler(&mdev->event_handler);

	while ((file = memreg_device_bound_file(mdev))) {
		down_write(&file->lock);
		/*
		 * The file may have been closed by now, or its BIND may have
		 * failed.
		 */
		if (file->mdev == mdev && !file->gone)
			memreg_device_detach(file);
		up_write(&file->lock);
		memreg_file_wake(file);
		memreg_file_put(file);
	}
	shrinker_free(mdev->shrinker);
	memreg_device_put(mdev);
}

static struct ib_client memreg_client = {
	.name = "memreg",
	.add = memreg_device_add,
	.remove = memreg_device_remove,
	.rename = memreg_device_rename,
};

/**
 * memreg_device_init() - Register for the addition and removal of devices
 * @add: Called for each device: sets up memreg_kdevice.shrinker and
 *	memreg_kdevice.event_handler; returns 0 or -ENOMEM
 *
 * Return: 0 or a negative errno.
 */
int __init memreg_device_init(int (*add)(struct memreg_kdevice *mdev))
{
	memreg_device_added = add;
	return ib_register_client(&memreg_client);
}

void memreg_device_exit(void)
{
	ib_unregister_client(&memreg_client);
}
