/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The structures of a call and of an open file, which every object uses.
 *
 * A file depends on files below its own, and never on those above:
 *
 *	main, caps	the ioctl table, and what the module can do
 *	conn/, kapi/	rings, queues, endpoints; pools of other modules
 *	mr/		MRs, compositions, pools, windows
 *	keys/		domains, FRWRs, keys, and how they die
 *	pages/		memory that is pinned
 *	watch/		what happens to mappings
 *	the others here	files, objects, devices, what they count and trace
 *
 * Where a lower file has to call a higher one, the higher one hands it a
 * function: in the ops of an object, in a work_struct, or in a table that main
 * registers. selftests/lint/layers.order has the order of all files.
 *
 * Lock order, outermost first:
 *
 *	memreg_file.lock	calls (read), binding and removal (write)
 *	mmap_lock		taken by pinning, and for the first notifier of
 *				an address space
 *	memreg_endpoint.setup	queues and QP of a request, and its end
 *	rdma_cm handler_mutex	by rdma_lock_handler(); never held when an id is
 *				destroyed, and no handler takes memreg_file.lock
 *	memreg_queue.lock	submission; no memory of user space is touched
 *				with it held: nobody waits for user space there
 *	memreg_kpool.lock	keys of a pool; likewise, nothing of user space
 *	memreg_domain.sq_mutex	the line in front of the registration queue
 *	memreg_domain.kill_mutex  the line in front of its keys to be killed
 *	memreg_kdevice.files_lock  ties between files and devices
 *	memreg_file.objects	the xarray's spinlock
 *	memreg_file.grant_lock	ties between windows and endpoints, leases and
 *				what is granted under them
 *	memreg_demand_spaces_lock  address spaces that have MRs on demand
 *	memreg_demand_space.lock  their MRs on demand
 *	memreg_file.event_lock	events that wait to be read
 *	memreg_kdevice.frwr_lock  FRWRs, and the guards of regions; taken by mmu
 *				notifiers
 *	memreg_demand.lock	extents of an MR on demand; taken by mmu
 *				notifiers
 *	memreg_kstatus.lock	slots of a status table; taken by mmu notifiers,
 *				also inside of frwr_lock
 *	memreg_space.lock	what is to be checked in an address space, its
 *				monitors, and those who wait for its keys; taken
 *				by mmu notifiers
 *	memreg_spaces_lock	address spaces that are watched
 *	memreg_domain.cq_lock	polling of the registration queue, with
 *				interrupts off
 *	memreg_domain.sq_lock	the registration queue, and the keys that it
 *				kills; also taken by mmu notifiers, and by
 *				completions, with interrupts off
 *	memreg_kring.lock	polling of a ring's completion queue, in any
 *				context; taken inside of none of the spinlocks
 *				above, and takes none of them
 *	memreg_bindings.lock	windows of type 2B; with interrupts off
 *	memreg_teardown_queue.lock  steps of connections that end; with
 *				interrupts off
 *	memreg_user_works.lock	work items of a user; with interrupts off
 *	memreg_users_lock	users with open files
 *
 * Those of the kernel API, which takes none of these and may be called with
 * any lock of the caller's held under which ib_post_send() may be called:
 *
 *	ib_memreg_pool.mutex	MRs are added and removed; by workers, and by
 *				functions that may sleep
 *	memreg_mrpool_cpu.lock	requests that are posted; with interrupts off
 *	ib_memreg_req.lock	post, answer and end of a request; held when the
 *				driver is called to post
 *	ib_memreg_pool.lock	idle MRs, and who waits for them; a raw spinlock
 *
 * A worker takes the dma_resv of an export to end it, and drivers that import it
 * hold that when they call: memreg_user_works.lock alone is taken inside of it by
 * the export, and what an importer takes, which may be memreg.
 *
 * The dma_resv of a dma-buf is inside of mmap_lock, and what an mmu notifier
 * may take inside of it. Drivers that import memory objects hold it when they
 * call; memreg_kmemory.lock is taken inside of it, and nothing inside of that.
 * Drivers whose memory we import hold it when they revoke that: of the locks
 * above only frwr_lock and those inside of it are taken then. Calls of ours
 * take it when a region of such memory is made and released, with none of those
 * held that are below mmap_lock.
 *
 * io_uring may hold a lock of its own when it issues or cancels a command: the
 * mutexes above, and memreg_file.lock, are then only tried.
 *
 * Nothing is allocated, freed, registered or waited for under a spinlock.
 */
#ifndef _MEMREG_CORE_H
#define _MEMREG_CORE_H

#include <linux/cgroup_rdma.h>
#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>
#include <uapi/rdma/ib_memreg.h>

#include "fault.h"
#include "object.h"
#include "user_work.h"

struct memreg_kdevice;
struct memreg_file;
struct memreg_grants;
struct memreg_object;
struct memreg_scratch;
struct memreg_ucmd;
struct memreg_user;

/* Pages of an MR are 4 KiB in the sense of the ABI, whatever PAGE_SIZE is. */
#define MEMREG_PAGE_SHIFT	12
#define MEMREG_PAGE_SIZE	BIT(MEMREG_PAGE_SHIFT)

/* Largest page size that a key's page list uses. */
#define MEMREG_PAGE_SHIFT_MAX	30

/**
 * struct memreg_charge - Charge of an object to an rdma cgroup
 * @cg: The cgroup, or NULL
 * @handle: It is a handle, not an object
 */
struct memreg_charge {
	struct rdma_cgroup *cg;
	bool handle;
};

/**
 * struct memreg_teardown_queue - Has the endpoints of a file take steps, see
 * teardown_queue.c
 * @lock: Protects the fields below, with interrupts off
 * @ready: Endpoints that have a step to take, by memreg_teardown.node
 * @running: Steps that are queued or under way
 */
struct memreg_teardown_queue {
	spinlock_t lock;
	struct list_head ready;
	unsigned int running;
};

/**
 * struct memreg_file - An open file of the device node
 * @lock: Read: a call is running. Write: the file is being bound, or its device
 *	is going.
 * @refs: The file itself, @wake, LIST, and removal while they look at it
 * @mdev: The device it is bound to; set once, under @lock
 * @gone: The device is gone, and all objects with it; @lock
 * @net: Network namespace of RDMA CM ids; set with @mdev
 * @objects: Ids and objects
 * @next_id: Id at which the search for a free one starts; the lock of @objects
 * @anchor: Reserved id that keeps the xarray nodes of the next ids allocated,
 *	or 0
 * @grant_lock: Protects the ties between windows and endpoints, and leases
 * @event_lock: Protects @events and @ended_leases
 * @events: Endpoints with events to be read, by memreg_endpoint.event_node
 * @ended_leases: Leases whose end is to be read, by memreg_lease.event_node
 * @wait: Readers and pollers, to be woken by memreg_file_wake()
 * @wake: Work that wakes them
 * @pinned: System pages pinned by the MRs of this file
 * @device_node: In memreg_kdevice.files
 * @number: Names the file in LIST; its index among all files
 * @pid: Process that bound it
 * @uid: User that bound it
 * @user: User that opened it
 * @comm: Name of the process that bound it
 * @scratch: Buffer for submission, while no call uses it
 * @close: Work that closes it on behalf of another user
 * @teardowns: Steps of its connections that end
 * @listeners: Number of listeners
 * @requests: Number of connection requests that wait at the listeners
 * @demands: Number of MRs on demand that were registered so far
 * @charge: Handle in the rdma cgroup
 */
struct memreg_file {
	struct rw_semaphore lock;
	refcount_t refs;
	struct memreg_kdevice *mdev;
	bool gone;
	struct net *net;
	struct xarray objects;
	u32 next_id;
	u32 anchor;
	spinlock_t grant_lock;
	spinlock_t event_lock;
	struct list_head events;
	struct list_head ended_leases;
	wait_queue_head_t wait;
	struct work_struct wake;
	atomic64_t pinned;
	struct list_head device_node;
	u32 number;
	struct pid *pid;
	kuid_t uid;
	struct memreg_user *user;
	char comm[TASK_COMM_LEN];
	struct memreg_scratch *scratch;
	struct memreg_user_work close;
	struct memreg_teardown_queue teardowns;
	atomic_t listeners;
	atomic_t requests;
	atomic_t demands;
	struct memreg_charge charge;
};

/**
 * struct memreg_ucmd - A call in progress
 * @file: The file, whose lock is held
 * @mdev: Its device, or NULL in calls that work without
 * @away: The file's lock is not held: the device may be gone
 * @fault: User memory that the call has to fault in
 * @ubuffer: The caller's structure
 * @user_size: Its size
 * @cmd: The kernel's copy of the structure
 * @reason: enum ib_memreg_reason that the caller gets if the call fails
 * @made: Objects that the call has made: main publishes them if the call
 *	succeeds, and aborts them if it fails
 */
struct memreg_ucmd {
	struct memreg_file *file;
	struct memreg_kdevice *mdev;
	bool away;
	struct memreg_fault fault;
	void __user *ubuffer;
	u32 user_size;
	void *cmd;
	u32 reason;
	struct memreg_object *made;
};

/*
 * For work that does not wait: it wakes readers and pollers, and checks
 * mappings.
 */
extern struct workqueue_struct *memreg_wq;

int memreg_file_init(void);
void memreg_file_exit(void);
struct memreg_file *memreg_file_new(void);
void memreg_file_wake(struct memreg_file *file);
void memreg_file_hide(struct memreg_file *file);
struct memreg_file *memreg_file_next(u32 number);
void memreg_file_put(struct memreg_file *file);

/* Are there events to be read? Racy without event_lock. */
static inline bool memreg_file_has_events(const struct memreg_file *file)
{
	return !list_empty(&file->events) || !list_empty(&file->ended_leases);
}

/* Record an object that a call has made; complete but for being published. */
static inline void memreg_object_made(struct memreg_ucmd *ucmd,
				      struct memreg_object *obj)
{
	obj->made = ucmd->made;
	ucmd->made = obj;
}

/* Fail a call with an errno and the reason for it. */
static inline int memreg_fail(struct memreg_ucmd *ucmd, int err, u32 reason)
{
	ucmd->reason = reason;
	return err;
}

/**
 * memreg_respond() - Copy the answer of a call to its caller
 * @ucmd: The call
 * @size: Size of the structure that this module knows
 *
 * Return: 0 or -EFAULT.
 */
static inline int memreg_respond(struct memreg_ucmd *ucmd, size_t size)
{
	if (copy_to_user(ucmd->ubuffer, ucmd->cmd,
			 min_t(size_t, ucmd->user_size, size)))
		return -EFAULT;
	return 0;
}

/* Is the file bound, and its device there? The file's lock is held. */
static inline int memreg_bound(struct memreg_ucmd *ucmd)
{
	if (!ucmd->file->mdev)
		return memreg_fail(ucmd, -ENODEV, IB_MEMREG_REASON_NOT_BOUND);
	if (ucmd->file->gone)
		return memreg_fail(ucmd, -ENODEV,
				   IB_MEMREG_REASON_DEVICE_GONE);
	ucmd->mdev = ucmd->file->mdev;
	return 0;
}

/**
 * memreg_enter() - Begin a call that needs a device
 * @ucmd: The call, with its file
 * @wait: Wait for the file's lock if need be
 *
 * Return: 0, and the file's lock is held until memreg_leave(); -EINTR; -ENODEV;
 * or -EAGAIN without a reason if the lock is taken and @wait is false.
 */
static inline int memreg_enter(struct memreg_ucmd *ucmd, bool wait)
{
	int ret;

	if (wait && down_read_killable(&ucmd->file->lock))
		return -EINTR;
	if (!wait && !down_read_trylock(&ucmd->file->lock))
		return -EAGAIN;
	ret = memreg_bound(ucmd);
	if (ret)
		up_read(&ucmd->file->lock);
	else
		ucmd->away = false;
	return ret;
}

/**
 * memreg_leave() - End what memreg_enter() began, unless it has ended
 * @ucmd: The call
 *
 * A call that waits for an event that may never come leaves first, and enters
 * again afterwards. It holds no reference of an object meanwhile, as the
 * removal of the device waits for no reference.
 */
static inline void memreg_leave(struct memreg_ucmd *ucmd)
{
	if (!ucmd->away)
		up_read(&ucmd->file->lock);
	ucmd->away = true;
}

#endif /* _MEMREG_CORE_H */
