/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Private declarations of ib_memreg.
 *
 * Layers, each of which knows only those to its right:
 *
 *	main -> {endpoint, window, mr} -> guard -> region -> {domain, frwr}
 *	     -> device -> object
 *
 * Lock order, outermost first:
 *
 *	memreg_file.lock	calls (read), binding and removal (write)
 *	memreg_device.files_lock  ties between files and devices
 *	mmap_lock		taken by pinning
 *	rdma_cm handler_mutex	by rdma_lock_handler(); never held when an id is
 *				destroyed, and no handler takes memreg_file.lock
 *	memreg_device.drain_lock  FRWRs that are being destroyed
 *	memreg_domain.sq_mutex	the line in front of the registration queue
 *	memreg_file.objects	the xarray's spinlock
 *	memreg_file.grant_lock	ties between windows and endpoints
 *	memreg_file.event_lock	events that wait to be read
 *	memreg_device.frwr_lock	FRWRs, and the guards of regions; taken by mmu
 *				notifiers
 *	memreg_domain.cq_lock	polling of the registration queue
 *	memreg_domain.sq_lock	the registration queue; also taken by mmu
 *				notifiers and by completions
 *
 * Nothing is allocated, freed, registered or waited for under a spinlock.
 */
#ifndef _MEMREG_H
#define _MEMREG_H

#include <linux/cgroup_rdma.h>
#include <linux/list.h>
#include <linux/refcount.h>
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

/* Besides those, work requests of mmu notifiers, who can't wait for others. */
#define MEMREG_SQ_RESERVE	64

/*
 * An idle FRWR is taken again only if so many are idle in its class (I9), and
 * it has rested for so long: packets that were accepted before its key died
 * are through by then.
 */
#define MEMREG_FIFO_DEPTH	64
#define MEMREG_FIFO_REST_NS	(2 * NSEC_PER_MSEC)

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
 * @files_lock: Protects @files and @gone
 * @files: Bound files, by memreg_file.device_node
 * @gone: remove_one has begun: no file may be bound any more
 * @drain_lock: Held from taking FRWRs off their lists until they are destroyed,
 *	so that nobody takes an empty list for the end of it
 * @frwr_lock: Protects the state and the lists of FRWRs, and regions' guards
 * @nr_spare: Idle FRWRs beyond MEMREG_FIFO_DEPTH of each list; frwr_lock
 * @shrinker: Gives them back when memory is short
 * @guard_wait: Guards wait for keys to die, and others for guards
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
	struct mutex files_lock;
	struct list_head files;
	bool gone;
	struct mutex drain_lock;
	spinlock_t frwr_lock;
	unsigned long nr_spare;
	struct shrinker *shrinker;
	wait_queue_head_t guard_wait;
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
	MEMREG_INJECT_QUEUE_CONNECT,
	MEMREG_INJECT_ALLOC_MR,
	MEMREG_INJECT_MAP_MR,
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
#define MEMREG_STATS	(IB_MEMREG_STAT_ENDPOINTS_FAILED + 1)

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

unsigned long memreg_quirks(struct ib_device *ibdev);

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
 * @busy: Reason to give when the object has users
 * @info: Fill in what LIST tells of the object. Called with the xarray's lock.
 */
struct memreg_object_ops {
	void (*destroy)(struct memreg_file *file, struct memreg_object *obj);
	u32 busy;
	void (*info)(struct memreg_object *obj, struct ib_memreg_object *info);
};

int memreg_object_alloc(struct memreg_file *file, struct memreg_object *obj,
			u32 type);
void memreg_object_abort(struct memreg_file *file, struct memreg_object *obj);
void memreg_object_finalize(struct memreg_file *file,
			    struct memreg_object *obj);
struct memreg_object *memreg_object_get(struct memreg_file *file, u32 id,
					u32 type);
void memreg_objects_get(struct memreg_file *file, u32 type, const u32 *ids,
			size_t stride, u32 count, struct memreg_object **objs);
void memreg_object_put(struct memreg_object *obj);
int memreg_object_destroy(struct memreg_file *file, u32 id, u32 type,
			  u32 *reason);
void memreg_object_destroy_all(struct memreg_file *file);
int memreg_object_destroy_ioctl(struct memreg_ucmd *ucmd);
int memreg_object_list(struct memreg_ucmd *ucmd);

/*
 * kernel/main.c
 */

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
 * kernel/domain.c
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
 * struct memreg_domain - A PD with its registration queue
 * @obj: Head
 * @file: The file
 * @mdev: The device
 * @pd: Protection domain
 * @cq: Completions of @qp
 * @qp: RC QP connected to itself; carries REG_MR and LOCAL_INV only
 * @port: Port of @qp
 * @gid: GID that @qp is connected by, to see when it goes
 * @gid_index: Its index
 * @sq_mutex: Taken by who waits for room on the queue, so that the first to
 *	come is the first to be served
 * @sq_lock: Protects the fields down to @inflight
 * @state: State of the queue
 * @sq_free: Work requests that may be posted
 * @sq_reserve: Work requests that mmu notifiers may post besides
 * @attempts: Rebuilds that ended, either way
 * @rebuilt: Rebuilds that succeeded
 * @inflight: Batches posted, oldest first
 * @cq_lock: Taken by who polls @cq: completions are taken in order
 * @cq_wait: Waits for completions, to poll; those for batches exclusively
 * @sq_wait: Waits for @sq_free or @state to change
 * @rebuild: The worker
 * @idle: Idle FRWRs by class, the one that rests longest first; frwr_lock
 * @nr_idle: Their number
 * @reap: Worker that gives back FRWRs which have been idle for long
 * @squeeze: It is to give back those that have not been, too
 * @device_node: In memreg_device.domains
 * @charges: PD, CQ, QP
 */
struct memreg_domain {
	struct memreg_object obj;
	struct memreg_file *file;
	struct memreg_device *mdev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	u32 port;
	union ib_gid gid;
	u32 gid_index;
	struct mutex sq_mutex;
	spinlock_t sq_lock;
	enum memreg_queue_state state;
	unsigned int sq_free;
	unsigned int sq_reserve;
	unsigned long attempts;
	unsigned long rebuilt;
	struct list_head inflight;
	spinlock_t cq_lock;
	wait_queue_head_t cq_wait;
	wait_queue_head_t sq_wait;
	struct work_struct rebuild;
	struct list_head idle[MEMREG_CLASSES];
	unsigned int nr_idle[MEMREG_CLASSES];
	struct delayed_work reap;
	bool squeeze;
	struct list_head device_node;
	struct memreg_charge charges[3];
};

struct memreg_frwr;

/**
 * struct memreg_batch - Work requests that are posted together
 * @node: In memreg_domain.inflight; sq_lock
 * @domain: The domain
 * @frwrs: Whose work requests they are, by memreg_frwr.node
 * @last: The last of @frwrs
 * @count: Their number
 * @reserve: They take their room from memreg_domain.sq_reserve
 * @ended: All of them ended; sq_lock
 * @error: 0, or the status of one that failed; final once @ended
 * @waiter: The task that waits for that, if it isn't a guard
 */
struct memreg_batch {
	struct list_head node;
	struct memreg_domain *domain;
	struct list_head frwrs;
	struct memreg_frwr *last;
	unsigned int count;
	bool reserve;
	bool ended;
	int error;
	struct task_struct *waiter;
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
int memreg_batch_run(struct memreg_batch *batch);
int memreg_batch_try_post(struct memreg_batch *batch);
bool memreg_batch_ended(struct memreg_batch *batch);
void memreg_queue_stall(struct memreg_domain *domain);
extern const struct memreg_object_ops memreg_domain_ops;

/*
 * kernel/frwr.c
 */

struct memreg_region;

/**
 * enum memreg_frwr_state - Who may do what with an FRWR
 * @MEMREG_FRWR_HELD: It is its owner's: its key is dead, or was told to nobody.
 * @MEMREG_FRWR_IDLE: It is on its domain's idle list.
 * @MEMREG_FRWR_LIVE: Its key works. Whoever wants to kill the key claims the
 *	FRWR by taking it out of this state.
 * @MEMREG_FRWR_DYING: Its region's guard is killing its key.
 * @MEMREG_FRWR_FAILED: The guard could not: the MR is to be destroyed, by
 *	whoever claims it first.
 */
enum memreg_frwr_state {
	MEMREG_FRWR_HELD,
	MEMREG_FRWR_IDLE,
	MEMREG_FRWR_LIVE,
	MEMREG_FRWR_DYING,
	MEMREG_FRWR_FAILED,
};

/**
 * struct memreg_frwr - A fast registration MR
 * @mr: The MR, or NULL if a guard had to destroy it
 * @domain: Its domain
 * @state: enum memreg_frwr_state; frwr_lock
 * @class: Class that it idles in, or MEMREG_CLASSES if it is made for one use
 * @no_inv: No work request can kill its key, as the driver registered it
 * @node: In memreg_domain.idle, with frwr_lock, or in memreg_batch.frwrs
 * @region: Region that it maps or mapped last, or NULL; frwr_lock
 * @region_node: In memreg_region.live if it is LIVE, in memreg_region.failed
 *	if it is FAILED, otherwise in memreg_region.frwrs; frwr_lock
 * @idle_since: When it became idle, ktime_get_ns(); frwr_lock
 * @batch: Batch at work on it
 * @status: Outcome of that work: 0 or a negative errno, which says that the
 *	state of the MR is unknown (I4)
 * @cqe: Completion of @reg or @inv
 * @reg: Work request that makes the key
 * @inv: Work request that kills it
 * @charge: MR in the rdma cgroup
 */
struct memreg_frwr {
	struct ib_mr *mr;
	struct memreg_domain *domain;
	enum memreg_frwr_state state;
	u32 class;
	bool no_inv;
	struct list_head node;
	struct memreg_region *region;
	struct list_head region_node;
	u64 idle_since;
	struct memreg_batch *batch;
	int status;
	struct ib_cqe cqe;
	union {
		struct ib_reg_wr reg;
		struct ib_send_wr inv;
	};
	struct memreg_charge charge;
};

/**
 * struct memreg_key - A key to be made, or made, for a part of a region
 * @region: The region
 * @offset: First byte
 * @length: Bytes
 * @first: What memreg_region_find() finds for @offset
 * @iova: First I/O address; its offset in a page is that of the memory
 * @access: enum ib_memreg_access
 * @page_shift: Size of the pages in the key's page list
 * @pages: Their number; set by memreg_keys_make()
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
void memreg_key_destroy(struct memreg_key *key);
int memreg_key_make_single(struct memreg_domain *domain,
			   struct memreg_key *key, u64 addr);
void memreg_frwr_prepare_inv(struct memreg_frwr *frwr);
void memreg_frwr_destroy_mr(struct memreg_frwr *frwr);
void memreg_frwr_drain_region(struct memreg_region *region);
void memreg_frwr_drain_domain(struct memreg_domain *domain);
void memreg_frwr_reap(struct work_struct *work);
int memreg_frwr_shrinker(struct memreg_device *mdev);

/*
 * kernel/region.c and kernel/guard.c
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

/**
 * struct memreg_guard - Watches a region's mapping, and kills its keys
 * @notifier: Of the region's range
 * @finish: Second pass of the notifier
 * @finish_used: @finish is in use; frwr_lock
 * @active: @notifier is inserted
 * @settled: The region has its pages, and they were those of the mapping;
 *	frwr_lock
 * @stale: The mapping went, or may have gone for all that could be found out;
 *	no key to the region is made any more; frwr_lock
 * @spurious: @stale, but the pages were found to be mapped still; frwr_lock
 * @generation: Times that @stale was set; frwr_lock
 * @suspects: Events that call for a look; frwr_lock
 * @cleared: Value of @suspects at the last look that found nothing; frwr_lock
 * @suspect_since: Jiffies of the first of them; frwr_lock
 * @suspect_start: Where to look; frwr_lock
 * @suspect_end: Where to look; frwr_lock
 * @batch: Work requests by which the guard kills keys; @posted says if it is
 *	in use
 * @posted: @batch is posted, and nobody has looked at its outcome; frwr_lock
 * @through: Batches that are through; frwr_lock
 * @check: Worker that looks
 * @kill: Worker that kills what could not be killed in time
 */
struct memreg_guard {
	struct mmu_interval_notifier notifier;
#ifdef MEMREG_TWO_PASS_NOTIFIERS
	struct mmu_interval_notifier_finish finish;
	bool finish_used;
#endif
	bool active;
	bool settled;
	bool stale;
	bool spurious;
	u64 generation;
	unsigned long suspects;
	unsigned long cleared;
	unsigned long suspect_since;
	unsigned long suspect_start;
	unsigned long suspect_end;
	struct memreg_batch batch;
	bool posted;
	unsigned long through;
	struct delayed_work check;
	struct work_struct kill;
};

/**
 * struct memreg_region - Pages and their DMA addresses; belongs to no domain
 * @mdev: Device that they are mapped for
 * @mm: Address space that is charged for them
 * @addr: Address there
 * @length: Bytes
 * @npages: System pages pinned and charged
 * @writable: They are pinned for writing
 * @mapped: The pages are ours; otherwise a driver pinned them
 * @pinned: Counter of the file
 * @sgt: The pages, whole ones
 * @sgl: Their DMA addresses, trimmed to @addr and @length; a flat array
 * @offsets: Where in the region each entry of @sgl begins
 * @nents: Number of entries
 * @frwrs: FRWRs that map, or mapped last, these pages; frwr_lock
 * @live: Those of them whose keys work; frwr_lock
 * @failed: Those that are FAILED; frwr_lock
 * @killing: Those that somebody is killing the keys of; frwr_lock
 * @guard: Watches the user's mapping
 */
struct memreg_region {
	struct memreg_device *mdev;
	struct mm_struct *mm;
	u64 addr;
	u64 length;
	unsigned long npages;
	bool writable;
	bool mapped;
	atomic64_t *pinned;
	struct sg_append_table sgt;
	struct scatterlist *sgl;
	u64 *offsets;
	u32 nents;
	struct list_head frwrs;
	struct list_head live;
	struct list_head failed;
	unsigned int killing;
	struct memreg_guard guard;
};

/* Pages of the ABI that a region has pinned. */
static inline u64 memreg_region_pages(const struct memreg_region *region)
{
	return (u64)region->npages << (PAGE_SHIFT - MEMREG_PAGE_SHIFT);
}

struct memreg_region *memreg_region_new(struct memreg_ucmd *ucmd, u64 addr,
					u64 length, bool writable);
int memreg_region_pin(struct memreg_ucmd *ucmd, struct memreg_region *region);
void memreg_region_release(struct memreg_region *region);
u32 memreg_region_find(const struct memreg_region *region, u64 offset);
u8 memreg_region_range_shift(const struct memreg_region *region, u32 first,
			     u64 offset, u64 length, u64 iova, u64 sizes);
u8 memreg_region_page_shift(const struct memreg_region *region, u64 iova,
			    u64 sizes);
bool memreg_region_is_pmem(const struct memreg_region *region);

int memreg_guard_init(void);
void memreg_guard_exit(void);
int memreg_guard_insert(struct memreg_region *region);
void memreg_guard_remove(struct memreg_region *region);
unsigned long memreg_guard_begin(struct memreg_region *region);
int memreg_guard_end(struct memreg_region *region, unsigned long seq);
void memreg_guard_await(struct memreg_region *region,
			struct memreg_frwr *frwr);

/*
 * kernel/mr.c
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
 * @windows: Windows bound to it
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
	atomic_t windows;
	u32 nkeys;
	struct memreg_key *keys;
};

int memreg_mr_register(struct memreg_ucmd *ucmd);
int memreg_mr_query(struct memreg_ucmd *ucmd);
u32 memreg_access_supported(struct memreg_device *mdev);
extern const struct memreg_object_ops memreg_mr_ops;

/*
 * kernel/window.c
 */

struct memreg_endpoint;

int memreg_window_alloc(struct memreg_ucmd *ucmd);
int memreg_window_bind(struct memreg_ucmd *ucmd);
int memreg_window_revoke(struct memreg_ucmd *ucmd);
void memreg_window_revoke_granted(struct memreg_file *file,
				  struct memreg_endpoint *ep);
extern const struct memreg_object_ops memreg_window_ops;

/*
 * kernel/endpoint.c
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

struct memreg_listener;

/**
 * struct memreg_endpoint - A connection, or a peer's request for one
 * @obj: Head
 * @file: The file
 * @domain: Domain of its QP, or NULL before the request is accepted; set once,
 *	and kept by a reference
 * @id: RDMA CM id; NULL only if it turned out to be of another device
 * @listener: Its backlog has a place taken by this request, or NULL; handler
 *	lock
 * @listener_id: Id of the listener that it came from, or 0 on the side that
 *	connects
 * @grants: Windows that end with it
 * @state: enum ib_memreg_endpoint_state; changed under the handler lock
 * @up: The peer is, or was, in: accepted or established; handler lock
 * @failing: The QP said that it goes to error, by itself
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
 * @responder_resources: READs from the peer at a time that it asks for
 * @initiator_depth: READs to the peer at a time that it takes
 * @timeout_ms: For the resolution of routes
 * @resolve_until: Jiffies until which the address may be resolved
 * @resolve: Worker that begins another attempt to resolve it
 * @close: Worker that ends the connection
 * @charge: QP in the rdma cgroup
 */
struct memreg_endpoint {
	struct memreg_object obj;
	struct memreg_file *file;
	struct memreg_domain *domain;
	struct rdma_cm_id *id;
	struct memreg_listener *listener;
	u32 listener_id;
	struct memreg_grants grants;
	u32 state;
	bool up;
	bool failing;
	u32 outcome;
	bool published;
	unsigned long pending;
	struct list_head event_node;
	s32 status;
	struct ib_memreg_addr peer;
	u8 private_data[IB_MEMREG_PRIVATE_DATA_MAX];
	u32 private_data_len;
	u8 responder_resources;
	u8 initiator_depth;
	u32 timeout_ms;
	unsigned long resolve_until;
	struct work_struct resolve;
	struct work_struct close;
	struct memreg_charge charge;
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
ssize_t memreg_event_read(struct memreg_file *file, char __user *buf,
			  size_t count);
extern const struct memreg_object_ops memreg_listener_ops;
extern const struct memreg_object_ops memreg_endpoint_ops;

#endif /* _MEMREG_H */
