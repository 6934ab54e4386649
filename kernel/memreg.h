/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Private declarations of ib_memreg.
 *
 * Layers, each of which knows only those to its right:
 *
 *	main -> uring -> submit -> {endpoint, closing, window, mr}
 *	     -> {srq, guard} -> queue -> {region, cq}
 *	     -> {domain, kill, frwr} -> device -> object
 *
 * Lock order, outermost first:
 *
 *	memreg_file.lock	calls (read), binding and removal (write)
 *	memreg_device.files_lock  ties between files and devices
 *	mmap_lock		taken by pinning
 *	rdma_cm handler_mutex	by rdma_lock_handler(); never held when an id is
 *				destroyed, and no handler takes memreg_file.lock
 *	memreg_queue.lock	submission; no memory of user space is touched
 *				with it held: nobody waits for user space there
 *	memreg_pool.lock	keys of a pool; likewise, nothing of user space
 *	memreg_domain.sq_mutex	the line in front of the registration queue
 *	memreg_domain.kill_mutex  the line in front of its keys to be killed
 *	memreg_file.objects	the xarray's spinlock
 *	memreg_file.grant_lock	ties between windows and endpoints
 *	memreg_file.event_lock	events that wait to be read
 *	memreg_device.frwr_lock	FRWRs, and the guards of regions; taken by mmu
 *				notifiers
 *	memreg_domain.cq_lock	polling of the registration queue, with
 *				interrupts off
 *	memreg_domain.sq_lock	the registration queue, and the keys that it
 *				kills; also taken by mmu notifiers, and by
 *				completions, with interrupts off
 *	memreg_ring.lock	polling of a ring's completion queue, in any
 *				context; taken inside of none of the spinlocks
 *				above, and takes none of them
 *	memreg_bindings.lock	windows of type 2B; with interrupts off
 *	memreg_closer.lock	steps of connections that end; with interrupts
 *				off
 *
 * Drivers that import memory objects hold the dma_resv of a dma-buf when they
 * call; memreg_memory.lock is taken inside of it, and nothing inside of that.
 * No call of ours takes a dma_resv.
 *
 * io_uring may hold a lock of its own when it issues or cancels a command: the
 * mutexes above, and memreg_file.lock, are then only tried.
 *
 * Nothing is allocated, freed, registered or waited for under a spinlock.
 */
#ifndef _MEMREG_H
#define _MEMREG_H

#include <linux/cgroup_rdma.h>
#include <linux/completion.h>
#include <linux/dim.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/log2.h>
#include <linux/refcount.h>
#include <linux/rhashtable.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/percpu.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <uapi/rdma/ib_memreg.h>

/* Pages of an MR are 4 KiB in the sense of the ABI, whatever PAGE_SIZE is. */
#define MEMREG_PAGE_SHIFT	12
#define MEMREG_PAGE_SIZE	BIT(MEMREG_PAGE_SHIFT)

/* The largest pages that windows are made of. */
#define MEMREG_PAGE_SHIFT_MAX	30

/* Most entries of a page list that we ask a device for: 16 MiB. */
#define MEMREG_MAX_PAGES	4096

/*
 * Classes of FRWRs: class k holds 2^k pages at any offset, 2^k + 1 entries.
 * Behind those, for each larger size of pages one of two entries: drivers size
 * page lists by bytes, and not while packets may still be in flight.
 */
#define MEMREG_CLASS_LARGE	(ilog2(MEMREG_MAX_PAGES) + 1)
#define MEMREG_CLASSES							\
	(MEMREG_CLASS_LARGE + MEMREG_PAGE_SHIFT_MAX - MEMREG_PAGE_SHIFT)

/* Work requests in flight on a registration queue. */
#define MEMREG_SQ_DEPTH		IB_MEMREG_BATCH_MAX

/* Besides those, batches of work requests that kill keys: see mem/kill.c. */
#define MEMREG_KILL_BATCH	32
#define MEMREG_KILL_BATCHES	2
#define MEMREG_SQ_RESERVE	(MEMREG_KILL_BATCH * MEMREG_KILL_BATCHES)

/*
 * An idle FRWR is taken again only if so many are idle in its class (I9), and
 * it has rested for so long: packets that were accepted before its key died
 * are through by then.
 */
#define MEMREG_FIFO_DEPTH	64
#define MEMREG_FIFO_REST_NS	(2 * NSEC_PER_MSEC)

/* Lists by which idle FRWRs are found that map a range already. */
#define MEMREG_MAPPED_BITS	8

/* Lists that address spaces are found in. */
#define MEMREG_SPACES_BITS	8

struct dma_buf;
struct memreg_pool;
struct memreg_scratch;
struct memreg_stats;

/*
 * kernel/device.c
 */

/**
 * struct memreg_device - An RDMA device, from add_one to remove_one and the
 *	last file that was bound to it
 * @ibdev: The device; not to be touched once @files was drained by removal
 * @node: In the list of devices
 * @name: The present name of the device; @name_lock
 * @name_lock: Protects @name
 * @refs: One of the ib_client, one of each file
 * @quirks: MEMREG_QUIRK_*
 * @max_pages: Entries of an FRWR's page list
 * @page_sizes: Bitmap of page sizes for FRWRs
 * @longest: Bytes of a message, at most; less than 2 GiB
 * @undead: MRs that the driver could not destroy
 * @files_lock: Protects @files and @gone
 * @files: Bound files, by memreg_file.device_node
 * @gone: remove_one has begun: no file may be bound any more
 * @frwr_lock: Protects the state and the lists of FRWRs, and regions' guards
 * @spaces: Address spaces with guarded regions, by their hashes; frwr_lock
 * @gave_up_pid: Task that waited for others' keys in vain; frwr_lock
 * @gave_up_until: Jiffies until which it does not wait again; frwr_lock
 * @spares: Idle FRWRs that need not be there; written with frwr_lock
 * @spare_domains: Domains that have some, by memreg_domain.spare_node;
 *	frwr_lock
 * @shrinker: Gives back idle FRWRs when memory is short
 * @event_handler: Listens to changes of GIDs
 * @domains_lock: Protects @domains
 * @domains: All domains, by memreg_domain.device_node
 * @stats: What memreg_count() counts
 */
struct memreg_device {
	struct ib_device *ibdev;
	struct list_head node;
	char name[IB_DEVICE_NAME_MAX];
	spinlock_t name_lock;
	refcount_t refs;
	unsigned long quirks;
	u32 max_pages;
	u64 page_sizes;
	u32 longest;
	atomic_t undead;
	struct mutex files_lock;
	struct list_head files;
	bool gone;
	spinlock_t frwr_lock;
	struct hlist_head spaces[1U << MEMREG_SPACES_BITS];
	pid_t gave_up_pid;
	unsigned long gave_up_until;
	long spares;
	struct list_head spare_domains;
	struct shrinker *shrinker;
	struct ib_event_handler event_handler;
	spinlock_t domains_lock;
	struct list_head domains;
	struct memreg_stats __percpu *stats;
};

/**
 * struct memreg_charge - What an object owes to an rdma cgroup
 * @cg: The cgroup, or NULL
 * @handle: It is a handle, not an object
 */
struct memreg_charge {
	struct rdma_cgroup *cg;
	bool handle;
};

struct memreg_ucmd;
struct memreg_file;

int memreg_device_init(void);
void memreg_device_exit(void);
int memreg_device_bind(struct memreg_ucmd *ucmd);
int memreg_device_query(struct memreg_ucmd *ucmd);
void memreg_device_unbind(struct memreg_file *file);
void memreg_device_name(struct memreg_device *mdev, char *name, size_t size);
int memreg_charge(struct memreg_charge *charge, struct memreg_device *mdev,
		  bool handle);
void memreg_uncharge(struct memreg_charge *charge, struct memreg_device *mdev);
int memreg_charge_reason(struct memreg_ucmd *ucmd, int err);

/*
 * kernel/inject.c
 */

/* What can be ordered to fail, on kernels that are built for that. */
enum memreg_inject_point {
	MEMREG_INJECT_POST_SEND,
	MEMREG_INJECT_WORK_REQUEST,
	MEMREG_INJECT_COMPLETION,
	MEMREG_INJECT_SHORT_MESSAGES,
	MEMREG_INJECT_QUEUE_CREATE,
	MEMREG_INJECT_QUEUE_CONNECT,
	MEMREG_INJECT_ALLOC_MR,
	MEMREG_INJECT_MAP_MR,
	MEMREG_INJECT_DEREG_MR,
	MEMREG_INJECT_CREATE_ID,
	MEMREG_INJECT_BIND_ADDR,
	MEMREG_INJECT_LISTEN,
	MEMREG_INJECT_RESOLVE_ADDR,
	MEMREG_INJECT_RESOLVE_ROUTE,
	MEMREG_INJECT_CREATE_QP,
	MEMREG_INJECT_CONNECT,
	MEMREG_INJECT_ACCEPT,
	MEMREG_INJECT_ADDR_ERROR,
	MEMREG_INJECT_ROUTE_ERROR,
	MEMREG_INJECT_UNREACHABLE,
	MEMREG_INJECT_REJECTED,
};

#ifdef CONFIG_FAULT_INJECTION_DEBUG_FS
void memreg_inject_init(void);
void memreg_inject_exit(void);
int memreg_inject(enum memreg_inject_point point);
int memreg_inject_post_send(struct ib_qp *qp, struct ib_send_wr *first,
			    const struct ib_send_wr **bad);
void memreg_inject_event(struct rdma_cm_event *event);
#else
static inline void memreg_inject_init(void) {}
static inline void memreg_inject_exit(void) {}
static inline void memreg_inject_event(struct rdma_cm_event *event) {}

static inline int memreg_inject(enum memreg_inject_point point)
{
	return 0;
}

static inline int memreg_inject_post_send(struct ib_qp *qp,
					  struct ib_send_wr *first,
					  const struct ib_send_wr **bad)
{
	return ib_post_send(qp, first, bad);
}
#endif

/*
 * kernel/stats.c
 */

/* Room for the counters, which count from 1. */
#define MEMREG_STATS	(IB_MEMREG_STAT_RING_FULL + 1)

/**
 * struct memreg_stats - What one CPU has counted of a device
 * @values: By enum ib_memreg_stat_id
 */
struct memreg_stats {
	u64 values[MEMREG_STATS];
};

/* Count something that happened @n times. Context: any. */
static inline void memreg_count(struct memreg_device *mdev,
				enum ib_memreg_stat_id stat, u64 n)
{
	this_cpu_add(mdev->stats->values[stat], n);
}

int memreg_stats_tell(struct memreg_ucmd *ucmd);

/*
 * kernel/quirks.c
 */

/* LOCAL_INV completes while packets that passed the key check still copy. */
#define MEMREG_QUIRK_WEAK_INV		BIT(0)
/* ib_reg_user_mr() is known to work with in-kernel callers. */
#define MEMREG_QUIRK_SINGLE_KEY		BIT(1)
/* Page lists are contiguous allocations of one entry per system page. */
#define MEMREG_QUIRK_FLAT_PAGE_LIST	BIT(2)
/* REG_MR may be posted again after LOCAL_INV with the page list as it was. */
#define MEMREG_QUIRK_KEEPS_PAGE_LIST	BIT(3)
/* A REG_MR that has not completed is done again with a message before it. */
#define MEMREG_QUIRK_REPEATS_REG_MR	BIT(4)
/* What memreg promises can't be kept. */
#define MEMREG_QUIRK_UNFIT		BIT(5)
/* Page lists are of system pages, whatever ib_map_mr_sg() is told. */
#define MEMREG_QUIRK_SYSTEM_PAGES	BIT(6)
/* Page lists of more than 512 entries may be taken for something else. */
#define MEMREG_QUIRK_SHORT_PAGE_LISTS	BIT(7)
/* Keys let writes pass one another, whether that is asked for or not. */
#define MEMREG_QUIRK_RELAXED_ORDERING	BIT(8)
/* Keys can't be for atomics, though the device has them. */
#define MEMREG_QUIRK_NO_ATOMIC		BIT(9)
/* Keys must be of less than 4 GiB. */
#define MEMREG_QUIRK_SHORT_KEYS		BIT(10)

unsigned long memreg_quirks(struct ib_device *ibdev);
u32 memreg_page_list_max(struct ib_device *ibdev);

/*
 * kernel/mem/fastmr.c
 */

/**
 * struct memreg_fastmr - A fast registration MR, and the work request that
 *	makes or kills its key
 * @mr: The MR, or NULL
 * @status: Outcome of the work request: 0 or a negative errno, which says that
 *	the state of the MR is unknown (I4)
 * @cqe: Completion of @wr
 * @wr: The work request
 */
struct memreg_fastmr {
	struct ib_mr *mr;
	int status;
	struct ib_cqe cqe;
	struct ib_reg_wr wr;
};

int memreg_fastmr_alloc(struct memreg_fastmr *fast, struct ib_pd *pd,
			enum ib_mr_type type, u32 pages,
			void (*done)(struct ib_cq *cq, struct ib_wc *wc));
int memreg_fastmr_destroy(struct memreg_fastmr *fast);

/*
 * Point an MR whose key is dead to memory that is mapped for DMA: -EINVAL if it
 * can't take all of it. After a failure its page list is in any state.
 */
static inline int memreg_fastmr_map(struct memreg_fastmr *fast,
				    struct scatterlist *sgl, u32 nents,
				    u32 page_size)
{
	int mapped = memreg_inject(MEMREG_INJECT_MAP_MR) ?:
		     ib_map_mr_sg(fast->mr, sgl, nents, NULL, page_size);

	if (mapped == nents)
		return 0;
	return mapped < 0 ? mapped : -EINVAL;
}

/* Prepare the work request that makes the key, which is another each time. */
static inline void memreg_fastmr_prepare_reg(struct memreg_fastmr *fast,
					     int access)
{
	struct ib_mr *mr = fast->mr;

	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	fast->wr.wr.opcode = IB_WR_REG_MR;
	fast->wr.key = mr->rkey;
	fast->wr.access = access;
}

/* Prepare the work request that kills the key; no queue has the other one. */
static inline void memreg_fastmr_prepare_inv(struct memreg_fastmr *fast)
{
	fast->wr.wr.opcode = IB_WR_LOCAL_INV;
	fast->wr.wr.ex.invalidate_rkey = fast->mr->rkey;
}

/*
 * kernel/object.c
 */

/**
 * struct memreg_object - Head of everything that has an id
 * @id: Id in its file
 * @type: enum ib_memreg_object_type
 * @users: One of its own, one of each object that depends on it, and one of
 *	each call that is at work on it. Whoever takes it from one to zero
 *	destroys the object.
 */
struct memreg_object {
	u32 id;
	u32 type;
	refcount_t users;
};

/**
 * struct memreg_object_ops - What a type of objects does
 * @destroy: Give back all that the object has, and free it. Never fails.
 * @busy: Reason to give when the object has users; NULL: IN_USE
 * @info: Fill in what LIST tells of the object. Called with the xarray's lock.
 */
struct memreg_object_ops {
	void (*destroy)(struct memreg_file *file, struct memreg_object *obj);
	u32 (*busy)(const struct memreg_object *obj);
	void (*info)(struct memreg_object *obj, struct ib_memreg_object *info);
};

int memreg_object_alloc_gfp(struct memreg_file *file, struct memreg_object *obj,
			    u32 type, gfp_t gfp);
void memreg_object_abort(struct memreg_file *file, struct memreg_object *obj);
void memreg_object_finalize(struct memreg_file *file,
			    struct memreg_object *obj);
struct memreg_object *memreg_object_get(struct memreg_file *file, u32 id,
					u32 type);
void memreg_objects_get(struct memreg_file *file, u32 type, const u32 *ids,
			size_t stride, u32 count, struct memreg_object **objs);
int memreg_object_destroy(struct memreg_file *file, u32 id, u32 type,
			  u32 *reason);
void memreg_object_destroy_all(struct memreg_file *file);
int memreg_object_destroy_ioctl(struct memreg_ucmd *ucmd);
int memreg_object_list(struct memreg_ucmd *ucmd);

/* The same for a call. */
static inline int memreg_object_alloc(struct memreg_file *file,
				      struct memreg_object *obj, u32 type)
{
	return memreg_object_alloc_gfp(file, obj, type, GFP_KERNEL_ACCOUNT);
}

/* Let go of an object, which is not to be touched afterwards. */
static inline void memreg_object_put(struct memreg_object *obj)
{
	/* The last reference is the object's own: only destroying drops it. */
	refcount_dec(&obj->users);
}

/*
 * kernel/main.c
 */

/**
 * struct memreg_closer - Has the endpoints of a file take steps, see closing.c
 * @lock: Protects the fields below, with interrupts off
 * @ready: Endpoints that have a step to take, by memreg_closing.node
 * @running: Steps that are queued or under way
 */
struct memreg_closer {
	spinlock_t lock;
	struct list_head ready;
	unsigned int running;
};

/**
 * struct memreg_file - An open file
 * @lock: Read: a call is at work. Write: the file is being bound, or its
 *	device is going.
 * @refs: The file itself, LIST, and removal while they look at it
 * @mdev: The device it is bound to; set once, under @lock
 * @gone: The device is gone, and all objects with it; @lock
 * @net: Network namespace of RDMA CM ids; set with @mdev
 * @objects: Ids and objects
 * @next_id: Where to look for the next free id; the lock of @objects
 * @grant_lock: Protects the ties between windows and endpoints
 * @event_lock: Protects @events
 * @events: Endpoints with events to be read, by memreg_endpoint.event_node
 * @wait: Readers and pollers
 * @pinned: System pages pinned by the MRs of this file
 * @device_node: In memreg_device.files
 * @number: Names the file in LIST; its index among all files
 * @pid: Who bound it
 * @uid: Who bound it
 * @comm: Who bound it
 * @scratch: Room for submission, while nobody uses it
 * @closer: Ends its connections
 * @listeners: Listeners
 * @requests: Requests that wait at them
 * @charge: Handle in the rdma cgroup
 */
struct memreg_file {
	struct rw_semaphore lock;
	refcount_t refs;
	struct memreg_device *mdev;
	bool gone;
	struct net *net;
	struct xarray objects;
	u32 next_id;
	spinlock_t grant_lock;
	spinlock_t event_lock;
	struct list_head events;
	wait_queue_head_t wait;
	atomic64_t pinned;
	struct list_head device_node;
	u32 number;
	struct pid *pid;
	kuid_t uid;
	char comm[TASK_COMM_LEN];
	struct memreg_scratch *scratch;
	struct memreg_closer closer;
	atomic_t listeners;
	atomic_t requests;
	struct memreg_charge charge;
};

/**
 * struct memreg_ucmd - A call
 * @file: The file, whose lock is held
 * @mdev: Its device, or NULL in calls that work without
 * @ubuffer: The caller's structure
 * @user_size: Its size
 * @cmd: Our copy of it
 * @reason: Told to the caller if the call fails
 */
struct memreg_ucmd {
	struct memreg_file *file;
	struct memreg_device *mdev;
	void __user *ubuffer;
	u32 user_size;
	void *cmd;
	u32 reason;
};

extern struct workqueue_struct *memreg_wq;
/* What guards queue to have an endpoint end; reclaim may wait for the key. */
extern struct workqueue_struct *memreg_cut_wq;

int memreg_enter(struct memreg_ucmd *ucmd, bool wait);
void memreg_leave(struct memreg_ucmd *ucmd);
int memreg_respond(struct memreg_ucmd *ucmd, size_t size);
struct memreg_file *memreg_file_next(u32 number);
void memreg_file_put(struct memreg_file *file);

/* Fail a call with an errno and the reason for it. */
static inline int memreg_fail(struct memreg_ucmd *ucmd, int err, u32 reason)
{
	ucmd->reason = reason;
	return err;
}

/*
 * kernel/mem/domain.c
 */

/**
 * enum memreg_queue_state - State of a registration queue
 * @MEMREG_QUEUE_READY: It takes work.
 * @MEMREG_QUEUE_BROKEN: A work request failed; the worker is rebuilding.
 * @MEMREG_QUEUE_DOWN: It could not be rebuilt; the next user tries again.
 */
enum memreg_queue_state {
	MEMREG_QUEUE_READY,
	MEMREG_QUEUE_BROKEN,
	MEMREG_QUEUE_DOWN,
};

/**
 * struct memreg_idle - Idle FRWRs of a class
 * @frwrs: They, the one that rests longest first; frwr_lock
 * @count: Their number; written with frwr_lock
 * @ended: Grants that ended: times that one became idle; frwr_lock
 */
struct memreg_idle {
	struct list_head frwrs;
	unsigned int count;
	u64 ended;
};

struct memreg_domain;
struct memreg_frwr;

/**
 * struct memreg_batch - Work requests that are posted together
 * @node: In memreg_domain.inflight; sq_lock
 * @domain: The domain
 * @first: The first of the FRWRs whose work requests they are, or NULL
 * @last: The last of them
 * @count: Their number
 * @reserve: They kill keys: the batch is one of memreg_domain.kills
 * @ended: All of them ended; sq_lock
 * @error: 0, or the status of one that failed; final once @ended
 * @posted: Jiffies when they were posted
 * @waiter: The task that waits for that, if they make keys
 */
struct memreg_batch {
	struct list_head node;
	struct memreg_domain *domain;
	struct memreg_frwr *first;
	struct memreg_frwr *last;
	unsigned int count;
	bool reserve;
	bool ended;
	int error;
	unsigned long posted;
	struct task_struct *waiter;
};

/**
 * struct memreg_domain - A PD with its registration queue
 * @obj: Head
 * @file: The file
 * @mdev: The device
 * @pd: Protection domain
 * @fence: An MR that is never given a key, where MEMREG_QUIRK_REPEATS_REG_MR is
 * @cq: Completions of @qp
 * @qp: RC QP connected to itself; carries REG_MR and LOCAL_INV only. The
 *	worker's, and NULL while none can be had, if @state is not READY
 * @qpn: Number of the last one, to be told
 * @port: Port of @qp
 * @gid: GID that @qp is connected by, to see when it goes
 * @gid_index: Its index
 * @sq_mutex: Taken by who waits for room on the queue, so that the first to
 *	come is the first to be served
 * @sq_lock: Protects the fields down to @doomed
 * @state: State of the queue
 * @sq_free: Work requests that may be posted to make keys
 * @attempts: Rebuilds that ended, either way
 * @rebuilt: Rebuilds that succeeded
 * @inflight: Batches posted, oldest first
 * @kills: Batches that kill keys; one that is not @ended is in flight
 * @dying: FRWRs whose keys the next of those are to kill
 * @nr_dying: Their number; written with @sq_lock
 * @doomed: FRWRs whose MRs @kill is to destroy
 * @cq_lock: Taken to poll @cq: completions are taken in order
 * @irq: Polls @cq
 * @sq_wait: Waits for @sq_free or @state to change
 * @rebuild: Worker that makes another queue of one that broke
 * @kill_mutex: Taken by an owner to wait for @nr_dying to be few
 * @kill_wait: Waits for that
 * @kill: Worker that destroys MRs whose keys have to die
 * @idle: Idle FRWRs by class
 * @mapped: Those of them that map a range, by its hash, in the same order;
 *	frwr_lock
 * @reap: Worker that gives back FRWRs which have been idle for long
 * @squeeze: It is to give back those that have not been, too
 * @connections: Endpoints that are in it, from before each has a QP until it
 *	has none, and none of its completions is left
 * @spares: Idle FRWRs that need not be there; written with frwr_lock
 * @spare_node: In memreg_device.spare_domains while there are any; frwr_lock
 * @device_node: In memreg_device.domains
 * @charges: PD, CQ, QP
 */
struct memreg_domain {
	struct memreg_object obj;
	struct memreg_file *file;
	struct memreg_device *mdev;
	struct ib_pd *pd;
	struct memreg_fastmr fence;
	struct ib_cq *cq;
	struct ib_qp *qp;
	u32 qpn;
	u32 port;
	union ib_gid gid;
	u32 gid_index;
	struct mutex sq_mutex;
	spinlock_t sq_lock;
	enum memreg_queue_state state;
	unsigned int sq_free;
	unsigned long attempts;
	unsigned long rebuilt;
	struct list_head inflight;
	struct memreg_batch kills[MEMREG_KILL_BATCHES];
	struct list_head dying;
	unsigned int nr_dying;
	struct list_head doomed;
	spinlock_t cq_lock;
	struct irq_work irq;
	wait_queue_head_t sq_wait;
	struct work_struct rebuild;
	struct mutex kill_mutex;
	wait_queue_head_t kill_wait;
	struct work_struct kill;
	struct memreg_idle idle[MEMREG_CLASSES];
	struct list_head mapped[1U << MEMREG_MAPPED_BITS];
	struct delayed_work reap;
	bool squeeze;
	atomic_t connections;
	long spares;
	struct list_head spare_node;
	struct list_head device_node;
	struct memreg_charge charges[3];
};

int memreg_domain_init(void);
void memreg_domain_exit(void);
int memreg_domain_create(struct memreg_ucmd *ucmd);
struct memreg_domain *memreg_domain_get(struct memreg_ucmd *ucmd, u32 id);
void memreg_domain_put(struct memreg_domain *domain);
void memreg_domain_gid_change(struct memreg_device *mdev, u32 port);
void memreg_batch_init(struct memreg_batch *batch,
		       struct memreg_domain *domain);
void memreg_batch_add(struct memreg_batch *batch, struct memreg_frwr *frwr);
struct memreg_frwr *memreg_batch_next(const struct memreg_frwr *frwr);
int memreg_batch_run(struct memreg_batch *batch);
void memreg_batch_post_locked(struct memreg_batch *batch);
void memreg_queue_kick(struct memreg_domain *domain);
void memreg_queue_stall(struct memreg_domain *domain, unsigned long patience);
void memreg_queue_done(struct ib_cq *cq, struct ib_wc *wc);
extern const struct memreg_object_ops memreg_domain_ops;

/*
 * kernel/mem/frwr.c
 */

struct memreg_region;

/**
 * enum memreg_frwr_state - Who may do what with an FRWR
 * @MEMREG_FRWR_HELD: It is its owner's: its key is dead, or was told to nobody.
 * @MEMREG_FRWR_IDLE: It is on its domain's idle list.
 * @MEMREG_FRWR_LIVE: Its key works. Whoever wants to kill the key claims the
 *	FRWR by taking it out of this state.
 * @MEMREG_FRWR_DYING: Its key is being killed, by the device or by a worker.
 *	It is its owner's again when that is done.
 * @MEMREG_FRWR_FAILED: A guard could not have its key killed, as it may not
 *	work yet: the end of an endpoint makes sure that it never does.
 */
enum memreg_frwr_state {
	MEMREG_FRWR_HELD,
	MEMREG_FRWR_IDLE,
	MEMREG_FRWR_LIVE,
	MEMREG_FRWR_DYING,
	MEMREG_FRWR_FAILED,
};

/**
 * struct memreg_frwr - A fast registration MR of a domain
 * @fast: The MR, without one if a guard had to destroy it; the work request is
 *	linked to the next one of @batch
 * @domain: Its domain
 * @state: enum memreg_frwr_state; frwr_lock, but for the end of DYING
 * @awaited: Counts in memreg_region.killing, while DYING
 * @class: Class that it idles in, or MEMREG_CLASSES if it is made for one use
 * @no_inv: No work request can kill its key, as the driver registered it
 * @cut: Its REG_MR is on the send queue of an endpoint and may not have been
 *	done yet: what to queue so that the endpoint ends; NULL otherwise
 * @node: In memreg_domain.idle, with frwr_lock; in memreg_domain.dying or
 *	memreg_domain.doomed, with sq_lock; or in a list of those that are to
 *	be destroyed
 * @mapped: The list of memreg_domain.mapped for its range
 * @mapped_node: In that, while it is IDLE and @length is not 0; frwr_lock
 * @region: Region that it maps or mapped last, or NULL; frwr_lock
 * @offset: First byte of @region in its page list
 * @length: Bytes there; 0 if the list can't be used again as it is
 * @iova: I/O address that it was listed for
 * @page_shift: Size of the pages in the list
 * @region_node: In memreg_region.live if it is LIVE, otherwise in
 *	memreg_region.frwrs; frwr_lock
 * @idle_since: When it became idle, ktime_get_ns(); frwr_lock
 * @idle_number: memreg_idle.ended at that time; frwr_lock
 * @batch: Batch at work on it
 * @charge: MR in the rdma cgroup
 */
struct memreg_frwr {
	struct memreg_fastmr fast;
	struct memreg_domain *domain;
	enum memreg_frwr_state state;
	bool awaited;
	u32 class;
	bool no_inv;
	struct work_struct *cut;
	struct list_head node;
	struct list_head *mapped;
	struct list_head mapped_node;
	struct memreg_region *region;
	u64 offset;
	u64 length;
	u64 iova;
	u8 page_shift;
	struct hlist_node region_node;
	u64 idle_since;
	u64 idle_number;
	struct memreg_batch *batch;
	struct memreg_charge charge;
};

/**
 * struct memreg_key - A key to be made, or made, for a part of a region
 * @region: The region
 * @offset: First byte
 * @length: Bytes
 * @first: What memreg_region_find() finds for @offset; set when it is planned
 * @iova: First I/O address; its offset in a page is that of the memory
 * @access: enum ib_memreg_access
 * @page_shift: Size of the pages in the key's page list; 0: what suits best
 * @class: Class of FRWRs that it is made of; set when it is planned
 * @pages: Number of pages in that list; set when it is planned, which it is not
 *	if its FRWR maps the range already
 * @once: Make an FRWR for this key alone, and don't let it idle afterwards
 * @frwr: The FRWR behind the key, or NULL
 * @lkey: Local key
 * @rkey: Remote key
 */
struct memreg_key {
	struct memreg_region *region;
	u64 offset;
	u64 length;
	u64 iova;
	u32 first;
	u32 access;
	u8 page_shift;
	u8 class;
	u32 pages;
	bool once;
	struct memreg_frwr *frwr;
	u32 lkey;
	u32 rkey;
};

int memreg_keys_make(struct memreg_domain *domain, struct memreg_key **keys,
		     unsigned int count);
void memreg_keys_revoke(struct memreg_domain *domain, struct memreg_key **keys,
			unsigned int count);
void memreg_keys_revoke_relaxed(struct memreg_domain *domain,
				struct memreg_key **keys, unsigned int count);
void memreg_keys_destroy(struct memreg_key **keys, unsigned int count);
void memreg_key_destroy(struct memreg_key *key);
int memreg_key_prepare(struct memreg_domain *domain, struct memreg_key *key,
		       struct work_struct *cut);
bool memreg_key_invalidable(const struct memreg_key *key);
void memreg_key_retire(struct memreg_key *key);
int memreg_key_make_single(struct memreg_domain *domain,
			   struct memreg_key *key, u64 addr);
void memreg_frwr_destroy_mr(struct memreg_frwr *frwr);
void memreg_frwr_drain_region(struct memreg_region *region);
void memreg_frwr_drain_domain(struct memreg_domain *domain);
void memreg_frwr_forget_domain(struct memreg_domain *domain);
void memreg_frwr_reap(struct work_struct *work);
int memreg_frwr_shrinker(struct memreg_device *mdev);

/*
 * State of an FRWR that may be DYING: if it is not any more, all is there that
 * was written before.
 */
static inline enum memreg_frwr_state
memreg_frwr_state(const struct memreg_frwr *frwr)
{
	/* Pairs with memreg_kill_done(). */
	return smp_load_acquire(&frwr->state);
}

/* Put an FRWR on a list of its region, and take it off the one it is on. */
static inline void memreg_frwr_move(struct memreg_frwr *frwr,
				    struct hlist_head *list)
{
	hlist_del_init(&frwr->region_node);
	hlist_add_head(&frwr->region_node, list);
}

/*
 * kernel/mem/kill.c
 */

int memreg_kill_module_init(void);
void memreg_kill_module_exit(void);
void memreg_kill_init(struct memreg_domain *domain);
void memreg_kill_invalidate(struct memreg_frwr *frwr);
void memreg_kill_flush(struct memreg_domain *domain);
void memreg_kill_destroy(struct memreg_frwr *frwr, bool awaited);
void memreg_kill_await(struct memreg_frwr *frwr);
int memreg_kill_line(struct memreg_domain *domain);
void memreg_kill_leave(struct memreg_domain *domain);
void memreg_kill_ended(struct memreg_batch *batch);
void memreg_kill_give_up(struct memreg_domain *domain);

/*
 * kernel/mem/region.c and kernel/mem/guard.c
 */

/**
 * enum memreg_verdict - What an event says of the pages, or a look at the
 *	mapping
 * @MEMREG_SAME: They are where they were.
 * @MEMREG_SUSPECT: They may have gone.
 * @MEMREG_GONE: They are mapped no more.
 */
enum memreg_verdict {
	MEMREG_SAME,
	MEMREG_SUSPECT,
	MEMREG_GONE,
};

struct memreg_region;

/**
 * struct memreg_space - The guarded regions of an address space on a device
 * @mdev: The device
 * @mm: The address space, which each region keeps
 * @node: In memreg_device.spaces; frwr_lock
 * @users: Regions; frwr_lock
 * @suspects: Those that the worker is to look at, by memreg_guard.suspect_node;
 *	frwr_lock
 * @looking: The one that it is looking at, or NULL
 * @look: The worker
 */
struct memreg_space {
	struct memreg_device *mdev;
	struct mm_struct *mm;
	struct hlist_node node;
	unsigned int users;
	struct list_head suspects;
	struct memreg_region *looking;
	struct delayed_work look;
};

/**
 * struct memreg_look - A look at the mapping
 * @active: There is one, or it is due
 * @by_kernel: A kernel thread takes pages away, not of reclaim
 * @start: Where to look
 * @end: Where to look
 * @next: The next address
 * @suspects: memreg_guard.suspects when it began
 */
struct memreg_look {
	bool active;
	bool by_kernel;
	unsigned long start;
	unsigned long end;
	unsigned long next;
	unsigned long suspects;
};

/**
 * struct memreg_guard - Watches a region's mapping, and kills its keys
 * @notifier: Of the region's range
 * @finish: Second pass of the notifier
 * @finish_used: @finish is in use; frwr_lock
 * @deadline: Jiffies until which @finish waits; of who uses it
 * @active: @notifier is inserted
 * @settled: The region has its pages, and they were those of the mapping;
 *	frwr_lock
 * @stale: The mapping went, or may have gone for all that could be found out;
 *	no key to the region is made any more; frwr_lock
 * @doubtful: @stale, by an event that may have changed nothing; frwr_lock
 * @spurious: @stale, but the pages were found to be mapped still; frwr_lock
 * @generation: Times that @stale was set; frwr_lock
 * @suspects: Events that call for a look; frwr_lock
 * @cleared: Value of @suspects at the last look that found nothing; frwr_lock
 * @suspect_since: Jiffies of the first of them; frwr_lock
 * @space: Of the region's mm; keeps a user
 * @suspect_node: In @space's list, or in that of its worker; frwr_lock
 * @due: Where to look next; frwr_lock
 * @look: The look that goes on, the worker's
 */
struct memreg_guard {
	struct mmu_interval_notifier notifier;
#ifdef MEMREG_TWO_PASS_NOTIFIERS
	struct mmu_interval_notifier_finish finish;
	bool finish_used;
	unsigned long deadline;
#endif
	bool active;
	bool settled;
	bool stale;
	bool doubtful;
	bool spurious;
	u64 generation;
	unsigned long suspects;
	unsigned long cleared;
	unsigned long suspect_since;
	struct memreg_space *space;
	struct list_head suspect_node;
	struct memreg_look due;
	struct memreg_look look;
};

/**
 * struct memreg_source - Where the pages of regions come from
 * @take: Take the pages and list them in memreg_region.sgt, or fail and list
 *	none
 * @give_back: Give the pages back; they are not mapped for DMA any more
 * @release: The region goes, with pages or without: uncharge what is charged
 */
struct memreg_source {
	int (*take)(struct memreg_ucmd *ucmd, struct memreg_region *region);
	void (*give_back)(struct memreg_region *region);
	void (*release)(struct memreg_region *region);
};

/**
 * struct memreg_region - Pages and their DMA addresses; belongs to no domain
 * @mdev: Device that they are mapped for
 * @source: Where they come from; NULL if they are borrowed
 * @mm: Address space that is charged for them, or NULL
 * @dmabuf: Memory object that they are of, or NULL
 * @addr: Address there, or offset in the source
 * @length: Bytes
 * @npages: System pages that the region pins
 * @charged: Those of them that are charged to @mm
 * @writable: They may be written to
 * @mapped: The pages are ours; otherwise a driver pinned them
 * @undead: memreg_device.undead before it had pages
 * @sgt: The pages, whole ones
 * @sgl: Their DMA addresses, trimmed to @addr and @length; a flat array
 * @offsets: Where in the region each entry of @sgl begins
 * @nents: Number of entries
 * @frwrs: FRWRs that map, or mapped last, these pages; frwr_lock
 * @live: Those of them whose keys work; frwr_lock
 * @killing: Those that are DYING, and that a guard waits for
 * @draining: Those that are being destroyed, so that it is not released
 * @guard: Watches the user's mapping
 */
struct memreg_region {
	struct memreg_device *mdev;
	const struct memreg_source *source;
	struct mm_struct *mm;
	struct dma_buf *dmabuf;
	u64 addr;
	u64 length;
	unsigned long npages;
	unsigned long charged;
	bool writable;
	bool mapped;
	int undead;
	struct sg_append_table sgt;
	struct scatterlist *sgl;
	u64 *offsets;
	u32 nents;
	struct hlist_head frwrs;
	struct hlist_head live;
	atomic_t killing;
	atomic_t draining;
	struct memreg_guard guard;
};

/* Pages of the ABI that a region has pinned. */
static inline u64 memreg_region_pages(const struct memreg_region *region)
{
	return (u64)region->npages << (PAGE_SHIFT - MEMREG_PAGE_SHIFT);
}

/* Does an entry of the list begin at or before a byte, and end behind it? */
static inline bool memreg_region_has(const struct memreg_region *region,
				     u32 i, u64 offset)
{
	/* What is before it wraps around, and is more than any length. */
	return offset - region->offsets[i] < sg_dma_len(&region->sgl[i]);
}

bool memreg_region_over_limit(const struct memreg_region *region);
struct memreg_region *memreg_region_new(struct memreg_ucmd *ucmd, u64 addr,
					u64 length, bool writable);
struct memreg_region *memreg_region_alloc(struct memreg_device *mdev,
					  const struct memreg_source *source,
					  u64 addr, u64 length, bool writable);
int memreg_region_take(struct memreg_ucmd *ucmd, struct memreg_region *region);
void memreg_region_release(struct memreg_region *region);
struct memreg_region *memreg_region_borrow(struct memreg_ucmd *ucmd,
					   const struct iov_iter *iter);
void memreg_region_return(struct memreg_region *region);
void memreg_region_forget(struct memreg_region *region);
u32 memreg_region_find(const struct memreg_region *region, u64 offset);
u8 memreg_region_range_shift(const struct memreg_region *region, u32 first,
			     u64 offset, u64 length, u64 iova, u64 sizes);
u8 memreg_region_page_shift(const struct memreg_region *region, u64 iova,
			    u64 sizes);
bool memreg_region_is_pmem(const struct memreg_region *region);
int __memreg_region_sges(const struct memreg_region *region, u32 first,
			 u64 offset, u64 *length, u32 lkey,
			 struct ib_sge *sges, int max);
void memreg_region_write(struct memreg_region *region, u64 offset,
			 const void *data, size_t length);

/*
 * Bytes of a piece of memory in a work request, at most: devices have 31 bits,
 * mlx5 with a flag above them.
 */
#define MEMREG_PIECE_MAX	SZ_1G

/*
 * In how many pieces is a range of a region, of one byte at least? @first is
 * what memreg_region_find() finds for @offset.
 */
static inline u32 memreg_region_fragments(const struct memreg_region *region,
					  u32 first, u64 offset, u64 length)
{
	u64 last = offset + length - 1;

	if (memreg_region_has(region, first, last))
		return 1;
	return memreg_region_find(region, last) - first + 1;
}

/* The same as __memreg_region_sges(); a range is often in one piece. */
static inline int memreg_region_sges(const struct memreg_region *region,
				     u32 first, u64 offset, u64 *length,
				     u32 lkey, struct ib_sge *sges, int max)
{
	if (max < 1 || *length > MEMREG_PIECE_MAX ||
	    !memreg_region_has(region, first, offset + *length - 1))
		return __memreg_region_sges(region, first, offset, length, lkey,
					    sges, max);
	sges->addr = sg_dma_address(&region->sgl[first]) + offset -
		     region->offsets[first];
	sges->length = *length;
	sges->lkey = lkey;
	*length = 0;
	return 1;
}

int memreg_guard_init(void);
void memreg_guard_exit(void);
int memreg_guard_insert(struct memreg_region *region);
void memreg_guard_remove(struct memreg_region *region);
unsigned long memreg_guard_begin(struct memreg_region *region);
int memreg_guard_end(struct memreg_region *region, unsigned long seq);
void memreg_guard_recheck(struct memreg_region *region);

/*
 * kernel/conn/ring.c
 */

/* Completions that are taken off a completion queue in one go. */
#define MEMREG_RING_WCS		8

/* Slots that are handled with interrupts off. */
#define MEMREG_RING_BUDGET	64U

/**
 * struct memreg_ring - A completion ring
 * @obj: Head
 * @refs: One of the object, one of its descriptor
 * @mdev: The device; not to be touched once @dead
 * @cq: Completion queue with as many entries, and one for each of @max_senders
 * @shared: What user space sees, entries included
 * @entries: The entries in it
 * @nr_entries: Their number, a power of two
 * @entry_size: Bytes of each
 * @max_senders: Send queues that it may have: for each there is room in @cq for
 *	a marker
 * @senders: Those that it has
 * @claimed: Entries written, and entries set aside, in all; wraps around
 * @producer: Entries written, in all; wraps around; written with @lock
 * @shown: Those of them that user space can see
 * @lock: Taken by who polls @cq
 * @dead: @cq is no more; @lock
 * @wcs: Completions that were taken off @cq; @lock
 * @taken: Completions that were told of so far, wrapping; @lock
 * @wc_next: The first of them that was not looked at; @lock
 * @wc_count: Their number; @lock
 * @wc_settled: That one was held, and can be taken now; @lock
 * @held: That one needs a context that may sleep, and all others wait; @lock
 * @settling: Somebody is at work on it; @lock
 * @ended: Commands of io_uring that end as soon as the room is back which their
 *	slots had; @lock
 * @waiters: Tasks that sleep in RING_WAIT
 * @poller: One of them that is to be woken to poll @cq, or NULL
 * @wait: They, and who polls the descriptor
 * @settled: Waits for @settling to end
 * @eventfd: To be signalled, or NULL
 * @irq: Polls @cq as soon as interrupts are on
 * @work: Polls @cq if that takes long, or has to sleep
 * @timer: Polls @cq a little later
 * @delay_us: How much later; 0: at once
 * @moderated: @delay_us, or the device's moderation, follows the load
 * @dim: How it does so
 * @charge: CQ in the rdma cgroup
 */
struct memreg_ring {
	struct memreg_object obj;
	refcount_t refs;
	struct memreg_device *mdev;
	struct ib_cq *cq;
	struct ib_memreg_ring *shared;
	void *entries;
	u32 nr_entries;
	u32 entry_size;
	u32 max_senders;
	atomic_t senders;
	atomic_t claimed;
	u32 producer;
	u32 shown;
	spinlock_t lock;
	bool dead;
	struct ib_wc wcs[MEMREG_RING_WCS];
	u32 taken;
	unsigned int wc_next;
	unsigned int wc_count;
	bool wc_settled;
	bool held;
	bool settling;
	struct list_head ended;
	atomic_t waiters;
	struct task_struct *poller;
	wait_queue_head_t wait;
	wait_queue_head_t settled;
	struct eventfd_ctx *eventfd;
	struct irq_work irq;
	struct work_struct work;
	struct hrtimer timer;
	u32 delay_us;
	bool moderated;
	struct dim dim;
	struct memreg_charge charge;
};

/* Bytes of a message that an entry has room for. */
static inline u32 memreg_ring_data_size(const struct memreg_ring *ring)
{
	return ring->entry_size - offsetof(struct ib_memreg_cqe, data);
}

/* Bytes that are received in an entry, if it is of the larger size. */
#define MEMREG_INLINE_RECEIVE	(128 - offsetof(struct ib_memreg_cqe, data))

/* Entries of the largest ring. */
static inline u32 memreg_ring_max(struct memreg_device *mdev)
{
	return rounddown_pow_of_two(min_t(u32, mdev->ibdev->attrs.max_cqe - 1,
					  IB_MEMREG_RING_ENTRIES_MAX));
}

int memreg_ring_init(void);
void memreg_ring_exit(void);
int memreg_ring_create(struct memreg_ucmd *ucmd);
void memreg_ring_hold(struct memreg_ring *ring);
void memreg_ring_release(struct memreg_ring *ring);
struct memreg_ring *memreg_ring_get(struct memreg_ucmd *ucmd, u32 id);
void memreg_ring_put(struct memreg_ring *ring);
bool memreg_ring_claim(struct memreg_ring *ring, u32 count);
void memreg_ring_unclaim(struct memreg_ring *ring, u32 count);
void memreg_ring_wake(struct memreg_ring *ring);
void memreg_ring_process(struct memreg_ring *ring);
void memreg_ring_flush(struct memreg_ring *ring);
extern const struct memreg_object_ops memreg_ring_ops;

/*
 * Take the next entry of a ring to write, which was set aside for this; all of
 * its fields but the data are to be written. The user sees it after
 * memreg_ring_wake().
 */
static inline struct ib_memreg_cqe *memreg_ring_entry(struct memreg_ring *ring)
{
	u32 index = ring->producer & (ring->nr_entries - 1);

	lockdep_assert_held(&ring->lock);

	WRITE_ONCE(ring->producer, ring->producer + 1);
	return ring->entries + (size_t)index * ring->entry_size;
}

/*
 * kernel/conn/queue.c
 */

/* Pieces of memory, at most, in a work request that goes to the device. */
#define MEMREG_FRAGMENTS	32

/* How many the device takes, whatever the work request. */
static inline u32 memreg_fragments(struct memreg_device *mdev)
{
	const struct ib_device_attr *attrs = &mdev->ibdev->attrs;
	int pieces = min3(MEMREG_FRAGMENTS, attrs->max_send_sge,
			  attrs->max_recv_sge);

	return min_not_zero(pieces, attrs->max_sge_rd);
}

/* Work requests that a queue of the device has room for. */
static inline u32 memreg_queue_depth(struct memreg_device *mdev)
{
	/* One is for memreg_queue_mark(). */
	return min_t(u32, mdev->ibdev->attrs.max_qp_wr - 1,
		     IB_MEMREG_QUEUE_MAX);
}

struct memreg_mr;
struct memreg_queue;
struct memreg_uring;
struct memreg_window;

/**
 * struct memreg_slot_sge - A range of an MR in a work request
 * @mr: The MR; the first range of it keeps a reference for all
 * @length: Bytes, from 1
 * @first: What memreg_region_find() finds for @offset
 * @offset: First byte
 */
struct memreg_slot_sge {
	struct memreg_mr *mr;
	u32 length;
	u32 first;
	u64 offset;
};

/**
 * struct memreg_slot - A place on a queue, and the work request in it
 * @cqe: Its completion
 * @queue: The queue
 * @node: In memreg_queue.free, or, while there is no QP, memreg_queue.early
 * @user_data: Of the user's work request
 * @opcode: enum ib_memreg_opcode
 * @signalled: The user wants to be told
 * @part: The user's work request goes on in the next slot
 * @used: There is one
 * @length: Bytes that the completion is to tell of a send
 * @bounce: Bytes at most that go to the buffer of a receive
 * @window: BIND and INVALIDATE: the window, claimed by the latter, until it is
 *	posted, and until it completed
 * @window_id: What the completion is to tell
 * @rkey: BIND: the rkey
 * @uring: Command of io_uring that it belongs to, or NULL
 * @nr_sges: Number of @sges
 * @index: Its place among the slots of its queue
 * @sges: Local memory
 */
struct memreg_slot {
	struct ib_cqe cqe;
	struct memreg_queue *queue;
	struct llist_node node;
	u64 user_data;
	u16 opcode;
	bool used;
	bool signalled;
	bool part;
	u32 length;
	u32 bounce;
	struct memreg_window *window;
	u32 window_id;
	u32 rkey;
	struct memreg_uring *uring;
	u32 nr_sges;
	u32 index;
	struct memreg_slot_sge sges[];
};

/**
 * struct memreg_queue - A send, receive, or shared receive queue
 * @ring: Where its completions go; keeps a reference
 * @ep: Its endpoint, or NULL if it is shared
 * @srq: The device's shared receive queue, or NULL
 * @takers: Endpoints that take from it, by their QPs, if it is shared
 * @send: It is a send queue
 * @depth: Slots
 * @max_sge: SGEs of a slot
 * @fragments: Pieces of memory that the device takes in a work request; final
 *	once there is a QP
 * @buffer_size: Bytes of a slot's buffer: of inline data to be sent, or what
 *	is received first; 0 for none
 * @slot_size: Bytes of a slot
 * @slots: The slots, and one for a marker
 * @buffers: Their buffers
 * @dma: DMA address of the first of them
 * @lock: Taken to submit
 * @closed: Nothing is submitted any more; @lock
 * @ready: There is a QP, or shared receive queue, to post to; @lock
 * @posted: Slots in use
 * @tail: Next slot of a send queue; @lock
 * @head: Oldest slot of a send queue that is in use; memreg_ring.lock
 * @failed: Status of a part of a work request that failed; memreg_ring.lock
 * @stale: Memory of a part of a work request went; memreg_ring.lock
 * @free: Free slots of a receive queue; taken off with @lock
 * @early: Receives that wait for a QP, the last one first; @lock
 * @unsignalled: Work requests posted since the last that the device signals;
 *	@lock
 * @fenced: Behind what was posted last no message is sent anew that was posted
 *	before; @lock, and looked at where MEMREG_QUIRK_REPEATS_REG_MR is
 * @marked: A marker is posted
 * @wait: Waits for an endpoint to leave @takers
 */
struct memreg_queue {
	struct memreg_ring *ring;
	struct memreg_endpoint *ep;
	struct ib_srq *srq;
	struct rhashtable takers;
	bool send;
	u32 depth;
	u32 max_sge;
	u32 fragments;
	u32 buffer_size;
	size_t slot_size;
	void *slots;
	void *buffers;
	u64 dma;
	struct mutex lock;
	bool closed;
	bool ready;
	atomic_t posted;
	u32 tail;
	u32 head;
	u8 failed;
	bool stale;
	struct llist_head free;
	struct llist_head early;
	u32 unsignalled;
	bool fenced;
	bool marked;
	wait_queue_head_t wait;
};

static inline struct memreg_slot *memreg_wc_slot(const struct ib_wc *wc)
{
	return container_of(wc->wr_cqe, struct memreg_slot, cqe);
}

static inline struct memreg_slot *
memreg_queue_slot(const struct memreg_queue *queue, u32 index)
{
	return queue->slots + index * queue->slot_size;
}

/* Index of the slot behind another one of a send queue. */
static inline u32 memreg_queue_after(const struct memreg_queue *queue,
				     u32 index)
{
	return index + 1 == queue->depth ? 0 : index + 1;
}

/* The buffer of a slot, in a queue that has some. */
static inline void *memreg_slot_buffer(const struct memreg_slot *slot)
{
	return slot->queue->buffers +
	       (size_t)slot->index * slot->queue->buffer_size;
}

/* The same for the device. */
static inline u64 memreg_slot_buffer_dma(const struct memreg_slot *slot)
{
	return slot->queue->dma + (u64)slot->index * slot->queue->buffer_size;
}

/* List what goes to a receive's buffer. Returns the number of entries. */
static inline int memreg_slot_bounce(const struct memreg_slot *slot, u32 lkey,
				     struct ib_sge *sge)
{
	sge->addr = memreg_slot_buffer_dma(slot);
	sge->length = slot->bounce;
	sge->lkey = lkey;
	return 1;
}

/* Take a slot of a queue whose lock is held; room was reserved. */
static inline struct memreg_slot *memreg_queue_next(struct memreg_queue *queue)
{
	struct memreg_slot *slot;

	lockdep_assert_held(&queue->lock);

	if (queue->send) {
		slot = memreg_queue_slot(queue, queue->tail);
		queue->tail = memreg_queue_after(queue, queue->tail);
	} else {
		slot = llist_entry(llist_del_first(&queue->free),
				   struct memreg_slot, node);
	}
	atomic_inc(&queue->posted);
	slot->used = true;
	slot->signalled = false;
	slot->part = false;
	slot->length = 0;
	slot->bounce = 0;
	slot->window = NULL;
	slot->window_id = 0;
	slot->rkey = 0;
	slot->uring = NULL;
	slot->nr_sges = 0;
	return slot;
}

struct memreg_queue *memreg_queue_alloc(struct memreg_device *mdev,
					struct memreg_ring *ring,
					struct memreg_endpoint *ep, bool send,
					u32 depth, u32 max_sge,
					u32 buffer_size);
void memreg_queue_free(struct memreg_device *mdev, struct memreg_queue *queue);
void memreg_queue_close(struct memreg_queue *queue);
int memreg_queue_mark(struct memreg_queue *queue, struct ib_qp *qp);
void memreg_queue_flush_early(struct memreg_queue *queue);
bool memreg_queue_is_idle(struct memreg_queue *queue);
void memreg_queue_sync(struct memreg_queue *queue);
void memreg_queue_abandon(struct memreg_queue *queue);
int memreg_queue_reserve(struct memreg_queue *queue, u32 count);
void memreg_slot_sge_keep(const struct memreg_slot_sge *sges, u32 i);
void memreg_slot_sges_put(const struct memreg_slot_sge *sges, u32 count);
void memreg_queue_undo(struct memreg_slot *slot);
int memreg_slot_build_recv(const struct memreg_slot *slot, u32 lkey,
			   struct ib_sge *sges, int max);
unsigned int memreg_slot_done(struct memreg_ring *ring, const struct ib_wc *wc,
			      unsigned int max, bool *more);
void memreg_slot_settle(const struct ib_wc *wc);
int memreg_queue_join(struct memreg_queue *queue, struct memreg_endpoint *ep);
void memreg_queue_leave(struct memreg_queue *queue,
			struct memreg_endpoint *ep);

/*
 * kernel/conn/srq.c
 */

/**
 * struct memreg_srq - A shared receive queue
 * @obj: Head
 * @domain: Its domain; keeps a reference
 * @queue: What is posted on it
 * @charge: SRQ in the rdma cgroup
 */
struct memreg_srq {
	struct memreg_object obj;
	struct memreg_domain *domain;
	struct memreg_queue *queue;
	struct memreg_charge charge;
};

/* Pieces of memory that the device takes in a receive of such a queue. */
static inline u32 memreg_srq_fragments(struct memreg_device *mdev)
{
	return min_t(u32, memreg_fragments(mdev),
		     mdev->ibdev->attrs.max_srq_sge);
}

int memreg_srq_create(struct memreg_ucmd *ucmd);
extern const struct memreg_object_ops memreg_srq_ops;

/*
 * kernel/mem/mr.c
 */

/**
 * struct memreg_mr - A region registered in a domain
 * @obj: Head
 * @domain: The domain
 * @region: The pages
 * @single: The driver registered it under a single key, and pinned the pages
 * @addr: Address in user space
 * @iova: First I/O address
 * @length: Bytes
 * @access: enum ib_memreg_access
 * @pinned: System pages that it adds to memreg_file.pinned
 * @windows: Windows bound to it
 * @pool: What makes it a pool, or NULL
 * @nkeys: Number of @keys
 * @keys: Keyed segments, in order
 */
struct memreg_mr {
	struct memreg_object obj;
	struct memreg_domain *domain;
	struct memreg_region *region;
	bool single;
	u64 addr;
	u64 iova;
	u64 length;
	u32 access;
	unsigned long pinned;
	atomic_t windows;
	struct memreg_pool *pool;
	u32 nkeys;
	struct memreg_key *keys;
};

struct memreg_mr *memreg_mr_begin(struct memreg_ucmd *ucmd,
				  struct memreg_pool *pool);
void memreg_mr_abort(struct memreg_file *file, struct memreg_mr *mr);
void memreg_mr_publish(struct memreg_file *file, struct memreg_mr *mr);
int memreg_mr_key_reason(struct memreg_ucmd *ucmd, int err);
int memreg_mr_register(struct memreg_ucmd *ucmd);
int memreg_mr_query(struct memreg_ucmd *ucmd);
u32 memreg_access_supported(struct memreg_device *mdev);
extern const struct memreg_object_ops memreg_mr_ops;

/*
 * kernel/mem/window.c
 */

struct memreg_bindings;
struct memreg_endpoint;

void memreg_bindings_init(struct memreg_bindings *bound);
void memreg_bindings_fini(struct memreg_bindings *bound);
int memreg_window_alloc(struct memreg_ucmd *ucmd);
int memreg_window_bind(struct memreg_ucmd *ucmd);
int memreg_window_revoke(struct memreg_ucmd *ucmd);
void memreg_window_revoke_plain(struct memreg_file *file,
				struct memreg_endpoint *ep);
void memreg_window_revoke_granted(struct memreg_file *file,
				  struct memreg_endpoint *ep);
int memreg_window_post_bind(struct memreg_ucmd *ucmd,
			    struct memreg_endpoint *ep,
			    const struct ib_memreg_wr *wr,
			    struct memreg_mr *mr, struct memreg_slot *slot);
int memreg_window_post_invalidate(struct memreg_ucmd *ucmd,
				  struct memreg_endpoint *ep,
				  const struct ib_memreg_wr *wr,
				  struct memreg_slot *slot);
void memreg_window_post_undo(struct memreg_slot *slot);
const struct memreg_key *memreg_window_key(const struct memreg_window *window);
bool memreg_window_bound(const struct memreg_slot *slot);
void memreg_window_doomed(const struct memreg_slot *slot);
void memreg_window_invalidated(struct memreg_slot *slot, bool done);
u32 memreg_window_remote_invalidate(struct memreg_endpoint *ep, u32 rkey);
extern const struct memreg_object_ops memreg_window_ops;

/*
 * Does a completion end a window, for which a task has to sleep? Then it is to
 * be settled first.
 */
static inline bool memreg_slot_is_slow(const struct ib_wc *wc)
{
	const struct memreg_slot *slot = memreg_wc_slot(wc);
	bool good = wc->status == IB_WC_SUCCESS;

	if (slot->opcode == IB_MEMREG_OP_RECV)
		return good && wc->wc_flags & IB_WC_WITH_INVALIDATE;
	if (slot->opcode == IB_MEMREG_OP_BIND)
		return good && memreg_window_bound(slot);
	return slot->opcode == IB_MEMREG_OP_INVALIDATE;
}

/*
 * kernel/conn/endpoint.c
 */

/**
 * struct memreg_grants - The windows that end with an endpoint's connection
 * @windows: By memreg_window.grant_node; memreg_file.grant_lock
 * @closed: No more windows may be granted; memreg_file.grant_lock
 * @wait: Waits for @windows to be empty
 */
struct memreg_grants {
	struct list_head windows;
	bool closed;
	wait_queue_head_t wait;
};

/* Lists that windows of type 2B are found in: at first, and at most. */
#define MEMREG_BINDINGS_BITS		4
#define MEMREG_BINDINGS_BITS_MAX	12

/**
 * struct memreg_bindings - Windows of type 2B of an endpoint, by their rkeys
 * @lock: Protects the fields below, with interrupts off
 * @bits: Logarithm of the number of @lists
 * @count: Number of windows
 * @lists: The windows, by memreg_window.bound_node
 * @first: @lists, until there are many windows
 */
struct memreg_bindings {
	spinlock_t lock;
	u32 bits;
	u32 count;
	struct hlist_head *lists;
	struct hlist_head first[1U << MEMREG_BINDINGS_BITS];
};

/**
 * enum memreg_stage - How far the end of a connection has come, see closing.c
 * @MEMREG_STAGE_STANDS: Nobody has asked for it.
 * @MEMREG_STAGE_SETTLE: The QP goes to error by itself.
 * @MEMREG_STAGE_REFUSE: The peer is to see why.
 * @MEMREG_STAGE_DRAIN: What was posted is being flushed.
 * @MEMREG_STAGE_DETACH: The QP lets go of a shared receive queue.
 * @MEMREG_STAGE_OVER: All is done.
 */
enum memreg_stage {
	MEMREG_STAGE_STANDS,
	MEMREG_STAGE_SETTLE,
	MEMREG_STAGE_REFUSE,
	MEMREG_STAGE_DRAIN,
	MEMREG_STAGE_DETACH,
	MEMREG_STAGE_OVER,
};

/**
 * struct memreg_closing - The end of an endpoint's connection
 * @node: In memreg_closer.ready; memreg_closer.lock
 * @shut: No step is taken any more; memreg_closer.lock
 * @work: Takes a step
 * @cut: What a guard queues whose key a BIND may still make
 * @timer: Asks for a step
 * @stage: How far it has come; the worker's
 * @until: Jiffies when that stage ends in any case; the worker's
 * @undone: Errno of the RDMA CM, which has not disconnected; the worker's
 * @asked: The connection is to end
 * @urgent: Nothing is done for the peer alone, and others of the file can wait
 * @left: The peer has disconnected, or our user is done
 * @last_wqe: The QP takes no more of the shared queue's
 * @draining: The last completion of a queue is to ask for a step
 * @quiet: The user knows of the end already; handler lock, or destroying
 * @over: The last stage is reached
 */
struct memreg_closing {
	struct list_head node;
	bool shut;
	struct work_struct work;
	struct work_struct cut;
	struct timer_list timer;
	enum memreg_stage stage;
	unsigned long until;
	int undone;
	bool asked;
	bool urgent;
	bool left;
	bool last_wqe;
	bool draining;
	bool quiet;
	struct completion over;
};

/* Bits of memreg_endpoint.due: resolve the address; make the QP; connect it. */
#define MEMREG_CONNECT_RESOLVE	0
#define MEMREG_CONNECT_QP	1
#define MEMREG_CONNECT_ASK	2

struct memreg_listener;

/**
 * struct memreg_endpoint - A connection, or a peer's request for one
 * @obj: Head
 * @file: The file
 * @domain: Domain of its QP, or NULL before the request is accepted; set once,
 *	and kept by a reference
 * @id: RDMA CM id; NULL only if it turned out to be of another device
 * @listener: Its backlog has a place taken by this request, or NULL; handler
 *	lock, and event_lock to take it away
 * @listener_id: Id of the listener that it came from, or 0 on the side that
 *	connects
 * @grants: Windows that end with it
 * @send: Its send queue, or NULL
 * @recv: Its receive queue, or NULL
 * @srq: Shared receive queue that it takes buffers from, or NULL; keeps a
 *	reference
 * @srq_qp: QP that takes them; only its address means anything
 * @srq_node: In memreg_queue.takers of the shared queue, while there may be
 *	completions of @srq_qp
 * @queued: The queues are what they will be: release and acquire
 * @begun: CONNECT has let go of @id
 * @bound: Windows of type 2B, from when they are submitted to be bound until
 *	their keys are dead
 * @state: enum ib_memreg_endpoint_state; changed under the handler lock
 * @up: The peer is, or was, in: accepted or established; handler lock
 * @sendable: The QP is, or was, one that may send
 * @failing: The QP said that it goes to error, by itself
 * @refused: It does so because of what the peer has asked for
 * @outcome: Event that tells of the end; handler lock, final once CLOSED
 * @published: It can be found, so its events may be read; event_lock
 * @pending: Bitmap of enum ib_memreg_event_type that wait to be read;
 *	event_lock
 * @event_node: In memreg_file.events; event_lock
 * @status: Of the outcome; written before that is posted
 * @peer: Address of the peer
 * @private_data: What the peer sent, written before the event that tells it is
 *	posted; on the side that connects at first what is to be sent
 * @private_data_len: Its length
 * @user_data: What the user gave it, or 0; event_lock, and READ_ONCE() without
 * @responder_resources: READs from the peer at a time that it asks for
 * @initiator_depth: READs to the peer at a time that it takes
 * @cred: Of the caller of CONNECT, to make the QP with; otherwise NULL
 * @connect_until: Jiffies until which CONNECT may take
 * @due: Steps of connecting to be taken, MEMREG_CONNECT_*
 * @closing: Its end
 * @charge: QP in the rdma cgroup
 * @rcu: Who looks for another one in memreg_queue.takers may be at it
 */
struct memreg_endpoint {
	struct memreg_object obj;
	struct memreg_file *file;
	struct memreg_domain *domain;
	struct rdma_cm_id *id;
	struct memreg_listener *listener;
	u32 listener_id;
	struct memreg_grants grants;
	struct memreg_queue *send;
	struct memreg_queue *recv;
	struct memreg_srq *srq;
	const struct ib_qp *srq_qp;
	struct rhash_head srq_node;
	bool queued;
	struct completion begun;
	struct memreg_bindings bound;
	u32 state;
	bool up;
	bool sendable;
	bool failing;
	bool refused;
	u32 outcome;
	bool published;
	unsigned long pending;
	struct list_head event_node;
	s32 status;
	struct ib_memreg_addr peer;
	u8 private_data[IB_MEMREG_PRIVATE_DATA_MAX];
	u32 private_data_len;
	u64 user_data;
	u8 responder_resources;
	u8 initiator_depth;
	const struct cred *cred;
	unsigned long connect_until;
	unsigned long due;
	struct memreg_closing closing;
	struct memreg_charge charge;
	struct rcu_head rcu;
};

/* Most private data that the RDMA CM carries in the port space RDMA_PS_TCP. */
#define MEMREG_CONNECT_DATA	56
#define MEMREG_ACCEPT_DATA	196
#define MEMREG_REJECT_DATA	148

int memreg_endpoint_listen(struct memreg_ucmd *ucmd);
int memreg_endpoint_accept(struct memreg_ucmd *ucmd);
int memreg_endpoint_reject(struct memreg_ucmd *ucmd);
int memreg_endpoint_connect(struct memreg_ucmd *ucmd);
int memreg_endpoint_disconnect(struct memreg_ucmd *ucmd);
int memreg_endpoint_set_user_data(struct memreg_ucmd *ucmd);
int memreg_endpoint_setup(struct memreg_ucmd *ucmd);
ssize_t memreg_event_read(struct memreg_file *file, struct iov_iter *to);
void memreg_event_post(struct memreg_endpoint *ep, u32 type);
void memreg_endpoint_set_closed(struct memreg_endpoint *ep);
void memreg_endpoint_go_on(struct memreg_endpoint *ep);
extern const struct memreg_object_ops memreg_listener_ops;
extern const struct memreg_object_ops memreg_endpoint_ops;

/*
 * kernel/conn/closing.c
 */

int memreg_closing_init(void);
void memreg_closing_exit(void);
void memreg_closer_init(struct memreg_closer *closer);
void memreg_closing_begin(struct memreg_closing *closing);
void memreg_closing_alarm(struct memreg_endpoint *ep, unsigned long expires);
void memreg_closing_step(struct memreg_endpoint *ep);
void memreg_closing_await(struct memreg_endpoint *ep);
void memreg_closing_finish(struct memreg_endpoint *ep);
void memreg_endpoint_close(struct memreg_endpoint *ep);
void memreg_endpoint_destroy_qp(struct memreg_endpoint *ep);

/*
 * kernel/conn/submit.c
 */

int memreg_submit(struct memreg_ucmd *ucmd);
int memreg_submit_wrs(struct memreg_ucmd *ucmd, struct memreg_uring *uring,
		      u64 wrs, u32 count, u32 *taken);
bool memreg_submit_writes(u16 opcode);
void memreg_submit_free(struct memreg_file *file);
u64 memreg_submit_opcodes(struct memreg_device *mdev);

/*
 * kernel/conn/uring.c
 */

struct io_uring_cmd;

/**
 * struct memreg_uring - A command of io_uring
 * @cmd: The command; NULL once it was taken by who ends it
 * @ended: It, taken, as all of its slots are through
 * @node: In memreg_ring.ended then
 * @ring: The ring of its slots, held while it is issued; NULL if it has none
 * @pending: Its slots that have not completed, and MEMREG_URING_ISSUE
 * @ucmd: The call, while it is issued
 * @issue_flags: Those it is issued with
 * @blocked: It can't be issued without waiting
 * @fixed: Its memory is a range of a registered buffer
 * @shared: Its receive is on a shared queue
 * @cqe32: Its ring has entries with room for struct ib_memreg_uring_result
 * @target: Where all of its work requests go; 0 before the first one
 * @mr: That memory as an MR which nobody can find, or NULL
 * @error: Negative errno if not all of the work requests were posted
 * @reason: enum ib_memreg_reason of it
 * @taken: Work requests that were posted
 * @endpoint: Id of the endpoint that took the receive, or 0; memreg_ring.lock
 * @told: Outcome of the first work request that failed, or else of the last one
 *	that has one, in the fields before the data; memreg_ring.lock
 */
struct memreg_uring {
	struct io_uring_cmd *cmd;
	struct io_uring_cmd *ended;
	struct list_head node;
	struct memreg_ring *ring;
	atomic_t pending;
	struct memreg_ucmd *ucmd;
	unsigned int issue_flags;
	bool blocked;
	bool fixed;
	bool shared;
	bool cqe32;
	u32 target;
	struct memreg_mr *mr;
	int error;
	u32 reason;
	u32 taken;
	u32 endpoint;
	struct ib_memreg_cqe told;
};

/* Part of memreg_uring.pending until a command was issued. */
#define MEMREG_URING_ISSUE	0x10000

#ifdef MEMREG_URING
/* Does the kernel have such commands? */
static inline bool memreg_uring_there(void)
{
	return true;
}

int memreg_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);
int memreg_uring_lock(struct memreg_uring *uring, struct mutex *lock);
int memreg_uring_look(struct memreg_uring *uring, struct ib_memreg_wr *wrs,
		      u32 count, bool more);
void memreg_uring_add(struct memreg_uring *uring, struct memreg_slot *slot);
void memreg_uring_remove(struct memreg_uring *uring);
void memreg_uring_note(struct memreg_uring *uring,
		       const struct ib_memreg_cqe *entry);
bool memreg_uring_put(struct memreg_uring *uring, struct memreg_ring *ring);
void memreg_uring_end_all(struct memreg_ring *ring);
#else
static inline bool memreg_uring_there(void)
{
	return false;
}

static inline int memreg_uring_lock(struct memreg_uring *uring,
				    struct mutex *lock)
{
	return -EOPNOTSUPP;
}

static inline int memreg_uring_look(struct memreg_uring *uring,
				    struct ib_memreg_wr *wrs, u32 count,
				    bool more)
{
	return -EOPNOTSUPP;
}

static inline void memreg_uring_add(struct memreg_uring *uring,
				    struct memreg_slot *slot) {}
static inline void memreg_uring_remove(struct memreg_uring *uring) {}
static inline void memreg_uring_note(struct memreg_uring *uring,
				     const struct ib_memreg_cqe *entry) {}

static inline bool memreg_uring_put(struct memreg_uring *uring,
				    struct memreg_ring *ring)
{
	return false;
}

static inline void memreg_uring_end_all(struct memreg_ring *ring) {}
#endif

#endif /* _MEMREG_H */
