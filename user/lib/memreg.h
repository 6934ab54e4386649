/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libmemreg: RDMA memory registration that is cheap, revocable and safe.
 *
 * A thin layer over the ioctls of /dev/infiniband/memreg: one function for
 * each. See libmemreg(7) for a guided tour, and <rdma/ib_memreg.h> for the
 * access flags, the capabilities, and the meaning of each errno.
 */

/**
 * DOC: Rules of the library
 *
 * Rules for every function:
 *
 *  - It returns 0, or a negative errno. errno itself is not part of the
 *    interface: its value after a call means nothing.
 *  - A call that fails changes nothing, and does not write to single values
 *    that its pointers refer to, unless its description says otherwise. Arrays,
 *    and a struct ib_memreg_bind, may have been written in part, and are
 *    undefined then: no id or rkey in them works, except those that @taken of
 *    memreg_submit() counts. memreg_reason() explains in a line of text why the
 *    last call of this thread failed.
 *  - Objects (domains, MRs, windows, listeners, endpoints, rings, shared
 *    receive queues) are small numbers, valid in the handle that made them,
 *    from 1. Closing the handle destroys all of them; a process that dies
 *    closes its handles.
 *  - Thread safety: every function may be called from any number of threads at
 *    once, on the same handle too, except memreg_close() and the functions on
 *    one struct memreg_list or struct memreg_ring. No function is
 *    async-signal-safe unless its description says so.
 *  - A handle may be used after fork() by parent and child, which then share
 *    the objects; memory is registered in the process that makes the call. A
 *    ring may be used by one of them only, see struct memreg_ring.
 */
#ifndef MEMREG_H
#define MEMREG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <rdma/ib_memreg.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEMREG_VERSION_MAJOR	0
#define MEMREG_VERSION_MINOR	1
#define MEMREG_VERSION_PATCH	0

/** MEMREG_DEVICE_PATH - The device node that memreg_open() opens */
#define MEMREG_DEVICE_PATH	"/dev/infiniband/memreg"

/** MEMREG_GRANT_SIZE - Bytes of an encoded grant: memreg_grant_encode() */
#define MEMREG_GRANT_SIZE	32

/** MEMREG_GRANTS_MAX - Maximum number of grants in an encoded list */
#define MEMREG_GRANTS_MAX	65536

/** MEMREG_GRANTS_SIZE - Bytes of an encoded list: memreg_grants_encode() */
#define MEMREG_GRANTS_SIZE(_count)	(16 + 24 * (size_t)(_count))

/** struct memreg - An open file that is bound to an RDMA device; opaque */
struct memreg;

/** struct memreg_pool - Buffers, each with a key of its own; opaque */
struct memreg_pool;

/** struct memreg_heap - Registered memory of any size; opaque */
struct memreg_heap;

/** struct memreg_list - A walk over the live objects; opaque */
struct memreg_list;

/**
 * struct memreg_device - The RDMA device of a handle
 * @index: Index of the device, unique among those present; it never changes
 * @ports: Number of its ports, which count from 1
 * @name: Its present name, 0-terminated
 */
struct memreg_device {
	uint32_t index;
	uint32_t ports;
	char name[IB_MEMREG_DEVICE_NAME_MAX];
};

/**
 * struct memreg_memory - A memory object
 * @fd: Its descriptor, which is the caller's to be closed
 * @blocks: Blocks of contiguous memory that it consists of
 * @length: Bytes, a multiple of the system's page size
 * @block_size: Bytes of the smallest of its blocks
 */
struct memreg_memory {
	int fd;
	uint32_t blocks;
	uint64_t length;
	uint64_t block_size;
};

/**
 * MEMREG_POOL_WIPE - Flag of a pool: zero buffers that get new keys
 *
 * The key of a buffer reaches all of it, and so what was in it for another
 * peer. memreg_pool_recycle() zeroes buffers of such a pool once their old keys
 * are dead. It ignores IB_MEMREG_RECYCLE_RELAXED then, so that no late packet
 * writes after that.
 */
#define MEMREG_POOL_WIPE	(1u << 31)

/**
 * struct memreg_pool_attr - Parameters of a pool
 * @buffer_size: Bytes of a buffer, from 1
 * @stride: Bytes from one buffer to the next; 0 for @buffer_size, or if @addr
 *	is NULL, the next multiple of 64 bytes
 * @count: Buffers, 1 to IB_MEMREG_CAP_POOL
 * @access: enum ib_memreg_access of all of them
 * @flags: MEMREG_POOL_WIPE, and with @addr IB_MEMREG_MR_UNGUARDED
 * @node: As in memreg_memory_create(), if @addr is NULL
 * @addr: Memory of the caller's, or NULL to have some made
 */
struct memreg_pool_attr {
	size_t buffer_size;
	size_t stride;
	uint32_t count;
	uint32_t access;
	uint32_t flags;
	int node;
	void *addr;
};

/** struct memreg_status - A status table; opaque */
struct memreg_status;

/**
 * struct memreg_status_info - State and counters of a status table
 * @state: enum ib_memreg_status_state; 0 in another process than its own
 * @slots: Number of slots
 * @changes: As memreg_status_changes()
 * @logged: Entries that were ever written to its log
 * @events: Changes of the address space that were announced to watches
 * @suspects: Suspect events, after which the mapping is checked
 * @unchanged: Looks that found nothing changed
 */
struct memreg_status_info {
	uint32_t state;
	uint32_t slots;
	uint64_t changes;
	uint64_t logged;
	uint64_t events;
	uint64_t suspects;
	uint64_t unchanged;
};

/**
 * struct memreg_range - Memory to be watched
 * @addr: First byte; whole pages are watched
 * @length: Bytes, from 1
 * @access: Access that the memory is registered with; only
 *	IB_MEMREG_ACCESS_LOCAL_WRITE matters
 * @flags: 0; or IB_MEMREG_MONITOR_WIDE, and @addr is NULL and @length 0
 */
struct memreg_range {
	void *addr;
	size_t length;
	uint32_t access;
	uint32_t flags;
};

/**
 * struct memreg_watch - A range that is watched, or an MR
 * @generation_now: The present generation of its slot
 * @generation: Generation of the slot as long as the mapping has not changed
 * @id: Id of the monitor; 0 for an MR
 * @slot: Its slot
 */
struct memreg_watch {
	const __u64 *generation_now;
	uint64_t generation;
	uint32_t id;
	uint32_t slot;
};

/** struct memreg_cache - A registration cache; opaque */
struct memreg_cache;

/**
 * struct memreg_cache_ops - Callbacks with which a cache registers memory by
 * another API
 * @register_memory: Register @length bytes at @addr, which are whole pages, and
 *	store a handle of the registration in *@handle. Returns 0, or a negative
 *	errno; -ENOMEM makes the cache deregister unused entries and try again.
 * @deregister: Deregister. Returns 0, or a negative errno: the cache tries
 *	again later.
 *
 * The cache holds no lock while it calls them: they may take long, call the
 * cache, and map or unmap memory.
 */
struct memreg_cache_ops {
	int (*register_memory)(void *arg, void *addr, size_t length,
			       void **handle);
	int (*deregister)(void *arg, void *handle);
};

/**
 * enum memreg_cache_flags - Flags of a cache
 * @MEMREG_CACHE_MERGE: On a miss, register the range together with cached
 *	ranges that overlap or adjoin it, and give up those
 */
enum memreg_cache_flags {
	MEMREG_CACHE_MERGE = 1 << 0
};

/**
 * struct memreg_cache_attr - Parameters of a cache
 * @ops: Callbacks that register memory, or NULL for MRs of memreg
 * @arg: Argument for @ops
 * @domain: Without @ops: domain of the MRs
 * @access: enum ib_memreg_access of the MRs; with @ops only
 *	IB_MEMREG_ACCESS_LOCAL_WRITE matters
 * @flags: enum memreg_cache_flags
 * @max_entries: Registrations, at most; 0 for 65536
 * @max_bytes: Bytes that they have in all, at most; 0 for no limit but
 *	RLIMIT_MEMLOCK
 */
struct memreg_cache_attr {
	const struct memreg_cache_ops *ops;
	void *arg;
	uint32_t domain;
	uint32_t access;
	uint32_t flags;
	uint32_t max_entries;
	uint64_t max_bytes;
};

/**
 * struct memreg_cache_stat - Counters of a cache
 * @hits: Calls of memreg_cache_get() that found a registration
 * @misses: Calls that made a registration
 * @stale: Registrations that were given up as their memory had changed
 * @evictions: Registrations that were given up because a limit was reached
 * @merges: Registrations that were given up because a larger one contains them
 * @restarts: Registrations that were made anew as the memory changed meanwhile
 * @failures: Calls of memreg_cache_get() that failed
 * @entries: Registrations that there are
 * @bytes: Bytes that they have in all
 */
struct memreg_cache_stat {
	uint64_t hits;
	uint64_t misses;
	uint64_t stale;
	uint64_t evictions;
	uint64_t merges;
	uint64_t restarts;
	uint64_t failures;
	uint64_t entries;
	uint64_t bytes;
};

/**
 * struct memreg_heap_attr - Parameters of a heap
 * @access: enum ib_memreg_access of all of its memory
 * @node: As in memreg_memory_create()
 * @limit: Bytes of address space that it takes at most, rounded up to a
 *	multiple of 2 MiB; 0 for 1 GiB
 */
struct memreg_heap_attr {
	uint32_t access;
	int node;
	size_t limit;
};

/**
 * struct memreg_mr - A registered memory region
 * @id: Its id
 * @domain: The domain in which its keys work
 * @addr: Address of the memory, or the offset in a memory object
 * @length: Bytes
 * @iova: First I/O address. The same as @addr, or 0 with
 *	IB_MEMREG_ACCESS_ZERO_BASED, or the requested one with IB_MEMREG_MR_IOVA
 * @lkey: Local key of the first segment, or 0; no function takes it, as work
 *	requests name memory by MR and offset
 * @rkey: Remote key of the first segment, or 0 without remote access
 * @segments: Keyed segments. More than 1 if the MR is larger than one key can
 *	span: memreg_mr_query() then returns them all. 0 without remote access.
 * @access: Access flags of the registration
 */
struct memreg_mr {
	uint32_t id;
	uint32_t domain;
	void *addr;
	uint64_t length;
	uint64_t iova;
	uint32_t lkey;
	uint32_t rkey;
	uint32_t segments;
	uint32_t access;
};

/**
 * struct memreg_cached - A registration of a cache
 * @watch: Whether it is good: see memreg_watch_ok()
 * @addr: First byte of it
 * @length: Bytes of it
 * @handle: Handle that memreg_cache_ops.register_memory() has made
 * @mr: The MR, in a cache without such operations
 */
struct memreg_cached {
	struct memreg_watch watch;
	void *addr;
	size_t length;
	void *handle;
	struct memreg_mr mr;
};

/**
 * struct memreg_demand_info - What an MR on demand has done so far
 * @pinned: Pages of 4096 bytes that are pinned now
 * @pinned_max: Most of them at a time
 * @faults: Ranges that had to be pinned when they were used
 * @hits: Ranges that were pinned when they were used
 * @invalidations: Times that pages were given up because their mapping changed
 * @prefetches: Times that memreg_advise() pinned pages
 * @prefetch_hits: Such times after which some of the pages were used
 * @wait: Histogram of @faults by the time that pinning took: see
 *	IB_MEMREG_DEMAND_WAIT_NS
 */
struct memreg_demand_info {
	uint64_t pinned;
	uint64_t pinned_max;
	uint64_t faults;
	uint64_t hits;
	uint64_t invalidations;
	uint64_t prefetches;
	uint64_t prefetch_hits;
	uint64_t wait[IB_MEMREG_DEMAND_WAITS];
};

/**
 * struct memreg_domain_info - What memreg_domain_query() returns
 * @port: Port of its registration queue
 * @working: Its registration queue works
 * @rebuilds: Times that its registration queue was rebuilt
 */
struct memreg_domain_info {
	uint32_t port;
	bool working;
	uint64_t rebuilds;
};

/**
 * struct memreg_mr_info - What memreg_mr_query() returns
 * @mr: The MR
 * @state: enum ib_memreg_mr_state
 * @windows: Windows that are bound to it now
 * @pinned: Pages of 4096 bytes that it pins, and that are charged
 * @generation: Number of times that it became stale: at least 1 while it is not
 *	live
 * @suspects: Events that looked as if the memory might have gone, and were
 *	looked into
 * @demand: All 0, but for MRs on demand
 */
struct memreg_mr_info {
	struct memreg_mr mr;
	uint32_t state;
	uint32_t windows;
	uint64_t pinned;
	uint64_t generation;
	uint64_t suspects;
	struct memreg_demand_info demand;
};

/**
 * struct memreg_grant - What a peer must know to use a window or an MR
 * @iova: First I/O address
 * @length: Bytes
 * @rkey: Remote key
 * @access: enum ib_memreg_access; flags above bit 15 are not transmitted
 */
struct memreg_grant {
	uint64_t iova;
	uint64_t length;
	uint32_t rkey;
	uint32_t access;
};

/**
 * struct memreg_allocation - Buffer and MR that contain memory of a heap
 * @pool: The pool that it is a buffer of, which memreg_pool_recycle() takes
 * @mr: Id of the MR, for SGEs and windows
 * @offset: Offset of its first byte in the MR
 * @grant: The grant to send to a peer. Its length is that of the buffer: the
 *	requested size, rounded up to a power of two, at least 64
 */
struct memreg_allocation {
	struct memreg_pool *pool;
	uint32_t mr;
	uint64_t offset;
	struct memreg_grant grant;
};

/**
 * struct memreg_ring - A completion ring, mapped
 * @id: Its id, for struct ib_memreg_queues and memreg_srq_create()
 * @fd: Its descriptor, for poll(2): POLLIN while there are entries. It belongs
 *	to the ring: don't close it.
 * @entries: Entries that it has, a power of two
 * @entry_size: Bytes of each: 64 or 128
 * @shared: Memory that kernel and user share
 * @first: Its entry 0
 * @map_size: Bytes that are mapped
 * @mask: @entries less 1
 * @consumer: Entries that the user has done with, in all
 * @producer: Entries that the user knows of, in all
 *
 * Filled in by memreg_ring_create(). The fields from @shared on are for the
 * functions below only. A ring may be used by one thread at a time, and after
 * fork() by only one of the processes, although both have it mapped: each
 * process has its own copy of this struct, and would release entries that the
 * other has not read yet, or has released already.
 */
struct memreg_ring {
	uint32_t id;
	int fd;
	uint32_t entries;
	uint32_t entry_size;
	struct ib_memreg_ring *shared;
	const char *first;
	size_t map_size;
	uint32_t mask;
	uint32_t consumer;
	uint32_t producer;
};

/*
 * Handles
 */

/**
 * memreg_version() - Version of the library that is running
 *
 * Return: A constant string such as "0.1.0". Compare MEMREG_VERSION_MAJOR and
 * its kin for the version that the program was compiled with.
 */
const char *memreg_version(void);

/**
 * memreg_open() - Open a handle and bind it to an RDMA device
 * @device: Name of an RDMA device, such as "rxe0"; NULL or "" takes the only
 *	one that the network namespace of the caller has
 * @out: The new handle, to be closed by memreg_close()
 *
 * The handle listens and connects in the caller's present network namespace,
 * wherever it is used later. Its file is O_CLOEXEC and O_NONBLOCK.
 *
 * Return: 0; -ENOENT (no device node: the module is not loaded), -EACCES (no
 * permission on the node), -ENODEV (no such RDMA device, or @device is NULL
 * and there is not exactly one), -EOPNOTSUPP (a device that can't do fast
 * registration), -EINVAL (the name is too long), -EDQUOT, -ENOMEM, -EMFILE.
 */
int memreg_open(const char *device, struct memreg **out);

/**
 * memreg_open_fd() - Make a handle of a file descriptor
 * @fd: A descriptor of the device node that is bound to an RDMA device, as
 *	another process sent it by SCM_RIGHTS, or as it came through exec()
 * @out: The new handle, to be closed by memreg_close()
 *
 * The handle owns @fd from then on, if the call succeeds. The file becomes
 * O_NONBLOCK, for all who share it, and @fd close-on-exec.
 *
 * Return: 0; -EBADF or -ENOTTY (@fd is no such descriptor), -ENODEV (@fd is
 * not bound, or its device is gone), -ENOMEM.
 */
int memreg_open_fd(int fd, struct memreg **out);

/**
 * memreg_open_unbound() - Open a handle that is bound to no RDMA device
 * @out: The new handle, to be closed by memreg_close()
 *
 * It is good for status tables, watches, and caches that register by other
 * means: on hosts, too, whose devices have no fast registration.
 *
 * Return: 0; -ENOENT (no device node: the module is not loaded), -EACCES (no
 * permission on the node), -ENOMEM, -EMFILE.
 */
int memreg_open_unbound(struct memreg **out);

/**
 * memreg_close() - Close a handle and destroy all that was made through it
 * @m: The handle, or NULL
 *
 * Connections end, keys die, then memory is unpinned; in this order. If other
 * processes have the file open, this happens when the last of them closes it.
 * No thread may use the handle during or after the call.
 */
void memreg_close(struct memreg *m);

/**
 * memreg_fd() - File descriptor of a handle
 * @m: The handle
 *
 * For poll(2): POLLIN while memreg_get_event() has something, POLLHUP and
 * POLLERR once the device is gone. Also for SCM_RIGHTS. It still belongs to
 * the handle: don't close it.
 *
 * Return: The descriptor. It can't fail.
 */
int memreg_fd(const struct memreg *m);

/**
 * memreg_list_devices() - The RDMA devices that a handle could be opened on
 * @devices: Array to be filled; may be NULL if *@count is 0
 * @count: In: entries that @devices has room for. Out: entries that there are;
 *	the first of them are written if the room was less.
 *
 * Lists the devices of the caller's network namespace by name; rdma-dev(8)
 * shows them, too. Not all of them need be of a kind that memreg_open() takes.
 *
 * Return: 0; -EMFILE, -ENOMEM, and other errors of socket(2) for the family
 * AF_NETLINK.
 */
int memreg_list_devices(struct memreg_device *devices, unsigned int *count);

/**
 * memreg_query_device() - The RDMA device of a handle
 * @m: The handle
 * @device: Filled in
 *
 * Return: 0; -ENODEV.
 */
int memreg_query_device(struct memreg *m, struct memreg_device *device);

/**
 * memreg_query_caps() - Capabilities and limits, each with its backing
 * @m: The handle
 * @caps: Array to be filled; may be NULL if *@count is 0
 * @count: In: entries that @caps has room for. Out: entries that there are;
 *	the first of them are written if the room was less.
 *
 * Return: 0; -ENODEV.
 */
int memreg_query_caps(struct memreg *m, struct ib_memreg_cap_entry *caps,
		      unsigned int *count);

/**
 * memreg_query_cap() - One capability or limit
 * @m: The handle
 * @cap: enum ib_memreg_cap
 * @value: Its value, as the enum describes it; 0 if it is not available
 *
 * Return: 0; -EOPNOTSUPP (this kernel does not know the capability), -ENODEV.
 */
int memreg_query_cap(struct memreg *m, uint32_t cap, uint64_t *value);

/**
 * memreg_stat() - Counters of the RDMA device of a handle
 * @m: The handle
 * @stats: Array to be filled; may be NULL if *@count is 0
 * @count: In: entries that @stats has room for. Out: entries that there are;
 *	the first of them are written if the room was less.
 *
 * They are sums over all users of the device, since the kernel module saw it,
 * and never decrease. enum ib_memreg_stat_id describes each counter.
 *
 * Return: 0; -ENOTTY (the running module doesn't know the call), -EFAULT
 * (@stats is not mapped), -ENODEV.
 */
int memreg_stat(struct memreg *m, struct ib_memreg_stat_entry *stats,
		unsigned int *count);

/**
 * memreg_destroy() - Destroy an object
 * @m: The handle
 * @id: Any object of the handle: domain, MR, window, listener, endpoint, shared
 *	receive queue; for a ring use memreg_ring_destroy()
 *
 * When it returns 0, no key of the object works and no page is pinned by it. A
 * bound window is revoked first, an endpoint is disconnected first. Work
 * requests posted on an endpoint or a shared receive queue are flushed, and
 * their completions are in the ring when it returns.
 *
 * Return: 0; -ENOENT; -EBUSY (a domain with MRs, windows, endpoints or shared
 * receive queues; an MR with bound windows, or in work requests that have not
 * completed; a window of type 2B that is bound; a shared receive queue with
 * endpoints; another thread is using the object); -ENODEV.
 */
int memreg_destroy(struct memreg *m, uint32_t id);

/*
 * Domains
 */

/**
 * memreg_domain_create() - Make a protection domain with a registration queue
 * @m: The handle
 * @port: Port of the device, from 1; 0 takes the first one that is usable
 * @domain: Its id
 *
 * Keys work on the endpoints of their domain and nowhere else. One domain for
 * each peer makes every key good for one peer only.
 *
 * Return: 0; -EINVAL (port), -ENETDOWN (the port has no usable address),
 * -EDQUOT, -ENOMEM, -ENOSPC, -EIO (the device can't bring up the queue),
 * -ENODEV.
 */
int memreg_domain_create(struct memreg *m, unsigned int port,
			 uint32_t *domain);

/**
 * memreg_domain_query() - State and counters of a domain
 * @m: The handle
 * @domain: The domain
 * @info: Filled in
 *
 * Return: 0; -ENOENT, -ENODEV.
 */
int memreg_domain_query(struct memreg *m, uint32_t domain,
			struct memreg_domain_info *info);

/**
 * memreg_domain_destroy() - Destroy a domain
 * @m: The handle
 * @domain: The domain
 *
 * Return: 0; -EBUSY (it has MRs, windows, endpoints or shared receive queues),
 * -ENOENT, -ENODEV.
 */
int memreg_domain_destroy(struct memreg *m, uint32_t domain);

/*
 * Memory objects
 */

/**
 * memreg_memory_create() - Allocate memory that has a descriptor
 * @m: The handle
 * @length: Bytes, from 1; rounded up to whole pages
 * @node: NUMA node to prefer, IB_MEMREG_NODE_DEVICE or IB_MEMREG_NODE_CALLER
 * @flags: enum ib_memreg_memory_flags, or 0
 * @memory: Filled in
 *
 * The memory is zeroed, as contiguous as it can be had, and charged to
 * RLIMIT_MEMLOCK of the user and to the memory cgroup of the caller until the
 * last of its descriptors, mappings, MRs and importers is gone. It does not
 * belong to the handle.
 *
 * The descriptor is a dma-buf, close-on-exec. It can be sent to another process
 * by SCM_RIGHTS, which then maps it and registers it in a handle of its own.
 *
 * Return: 0; -EINVAL (@length is 0, there is no such node, or
 * IB_MEMREG_MEMORY_CONTIGUOUS is asked for more than can ever be had),
 * -EOVERFLOW, -ENOMEM (RLIMIT_MEMLOCK, no memory, or none in one block),
 * -EPERM, -EOPNOTSUPP (flags), -EMFILE, -ENFILE, -EINTR, -ENODEV.
 */
int memreg_memory_create(struct memreg *m, size_t length, int node,
			 uint32_t flags, struct memreg_memory *memory);

/**
 * memreg_memory_dup() - Make a descriptor by which memory can only be read
 * @m: The handle
 * @fd: A descriptor of a memory object
 * @out: The new one, close-on-exec
 *
 * Return: 0; -EBADF (@fd is not one of a dma-buf), -EOPNOTSUPP (not one of
 * memreg's), -ENOMEM, -EMFILE, -ENFILE, -ENODEV.
 */
int memreg_memory_dup(struct memreg *m, int fd, int *out);

/**
 * memreg_memory_map() - Map all of a memory object
 * @fd: Its descriptor
 * @prot: As of mmap(2)
 * @addr: Address at which it is mapped
 * @length: Bytes that are mapped; may be NULL
 *
 * Maps at an address at which huge page table entries can be used. Undo it by
 * munmap(2).
 *
 * Return: 0; -EBADF, -ESPIPE or -EINVAL (@fd is not one of memory), -EACCES (it
 * is not open for writing), -ENOMEM.
 */
int memreg_memory_map(int fd, int prot, void **addr, size_t *length);

/*
 * Memory regions
 */

/**
 * memreg_mr_register() - Pin memory and give it keys
 * @m: The handle
 * @domain: Domain in which the keys are to work
 * @addr: First byte; no alignment is needed
 * @length: Bytes, from 1
 * @access: enum ib_memreg_access
 * @flags: enum ib_memreg_mr_flags, or 0
 * @mr: Filled in. With IB_MEMREG_MR_IOVA, @mr->iova is read first: the I/O
 *	address that the first byte is to have.
 *
 * The memory stays pinned as long as the MR lives, and is charged to
 * RLIMIT_MEMLOCK. Memory that peers reach through windows only is registered
 * with IB_MEMREG_ACCESS_MW_BIND and no remote access, and then has no keys.
 *
 * With IB_MEMREG_MR_ON_DEMAND nothing is pinned now: pages are pinned when work
 * requests and windows name them, and memreg_advise() pins them ahead. Together
 * with IB_MEMREG_MR_IMPLICIT, an @addr of NULL and a @length of 0 the MR is the
 * whole address space, and offsets in it are addresses.
 *
 * Return: 0; -EINVAL, -EOVERFLOW (@addr + @length wraps), -EFAULT (memory that
 * can't be pinned as asked), -ENOMEM (RLIMIT_MEMLOCK, or no memory), -ENOSPC
 * (the device has no more MRs), -EOPNOTSUPP (the device lacks what a flag
 * needs), -EPERM, -EDQUOT, -ENOENT (domain), -EAGAIN (the memory kept
 * changing), -EIO, -ENETDOWN, -EINTR, -ENODEV.
 */
int memreg_mr_register(struct memreg *m, uint32_t domain, void *addr,
		       size_t length, uint32_t access, uint32_t flags,
		       struct memreg_mr *mr);

/**
 * memreg_mr_register_fd() - Register a part of the memory of a dma-buf
 * @m: The handle
 * @domain: Domain in which the keys are to work
 * @fd: Descriptor of a memory object, or of any other dma-buf; the MR does not
 *	need it any further
 * @offset: First byte; no alignment is needed
 * @length: Bytes, from 1
 * @access: enum ib_memreg_access
 * @flags: enum ib_memreg_mr_flags, or 0
 * @mr: Filled in, with the offset as the address. With IB_MEMREG_MR_IOVA,
 *	@mr->iova is read first
 *
 * The MR keeps the memory, and is charged for nothing. One of a memory object
 * is never stale; other exporters may take their memory away.
 *
 * Return: 0; -EBADF (@fd is not one of a dma-buf), -EOPNOTSUPP (its exporter
 * refuses), -EACCES (local write by a descriptor that is read-only), -EINVAL
 * (also: not inside of the memory), -EAGAIN (also: the exporter is busy with
 * the memory), and as memreg_mr_register().
 */
int memreg_mr_register_fd(struct memreg *m, uint32_t domain, int fd,
			  uint64_t offset, uint64_t length, uint32_t access,
			  uint32_t flags, struct memreg_mr *mr);

/**
 * memreg_piece() - Describe a part of an MR
 * @mr: Id of the MR
 * @offset: First byte
 * @length: Bytes, from 1
 *
 * Return: the piece, for memreg_mr_compose().
 */
static inline struct ib_memreg_piece memreg_piece(uint32_t mr, uint64_t offset,
						  uint64_t length)
{
	struct ib_memreg_piece piece;

	memset(&piece, 0, sizeof(piece));
	piece.mr_id = mr;
	piece.offset = offset;
	piece.length = length;
	return piece;
}

/**
 * memreg_piece_2d() - Describe a rectangle, or one member of each structure
 * @mr: Id of the MR
 * @offset: First byte
 * @length: Bytes of each row
 * @stride: Bytes from the beginning of a row to that of the next
 * @rows: Number of rows, from 1
 *
 * Return: the piece, for memreg_mr_compose().
 */
static inline struct ib_memreg_piece memreg_piece_2d(uint32_t mr,
						     uint64_t offset,
						     uint64_t length,
						     uint64_t stride,
						     uint32_t rows)
{
	struct ib_memreg_piece piece = memreg_piece(mr, offset, length);

	piece.dims = 1;
	piece.stride[0] = stride;
	piece.count[0] = rows;
	return piece;
}

/**
 * memreg_piece_3d() - Describe a part of an array of three dimensions
 * @mr: Id of the MR
 * @offset: First byte
 * @length: Bytes of each row
 * @stride: Bytes from the beginning of a row to that of the next
 * @rows: Number of rows in a plane, from 1
 * @plane: Bytes from the beginning of a plane to that of the next
 * @planes: Number of planes, from 1
 *
 * Return: the piece, for memreg_mr_compose().
 */
static inline struct ib_memreg_piece memreg_piece_3d(uint32_t mr,
						     uint64_t offset,
						     uint64_t length,
						     uint64_t stride,
						     uint32_t rows,
						     uint64_t plane,
						     uint32_t planes)
{
	struct ib_memreg_piece piece = memreg_piece_2d(mr, offset, length,
						       stride, rows);

	piece.dims = 2;
	piece.stride[1] = plane;
	piece.count[1] = planes;
	return piece;
}

/**
 * memreg_mr_compose() - Make an MR of pieces of other MRs
 * @m: The handle
 * @domain: Their domain, and that of the composition
 * @pieces: The pieces, in the order in which they are to follow each other
 * @count: Their number, 1 to IB_MEMREG_COMPOSE_MAX
 * @access: enum ib_memreg_access
 * @flags: enum ib_memreg_compose_flags, or 0
 * @mr: Filled in; it has no address. With IB_MEMREG_COMPOSE_IOVA, @mr->iova is
 *	read first
 *
 * Work requests name bytes of it as of any MR, on any device. If pieces do not
 * begin and end at multiples of 4096 bytes, peers see several segments, which
 * memreg_mr_query() and memreg_mr_grants() return.
 *
 * It is deregistered by memreg_mr_deregister(), before the MRs that it is made
 * of can be.
 *
 * Return: 0; -EINVAL (also: bytes are in it twice that can be written; a piece
 * is not inside of its MR; too many pieces), -EOVERFLOW, -ENOENT, -EACCES (an
 * MR does not allow it), -EOPNOTSUPP (an MR is on demand, or the exporter of
 * its memory may take it away; or one key is asked for and can't be had),
 * -ESTALE, -EFAULT, and as memreg_mr_register() for lack of keys.
 */
int memreg_mr_compose(struct memreg *m, uint32_t domain,
		      const struct ib_memreg_piece *pieces, unsigned int count,
		      uint32_t access, uint32_t flags, struct memreg_mr *mr);

/**
 * memreg_transfer_plan() - Prepare to move an MR to or from ranges of a peer
 * @local: The MR, a composition for example
 * @offset: Its first byte to be moved
 * @remote: Ranges of the peer, in the order in which they follow each other
 * @count: Their number
 * @opcode: IB_MEMREG_OP_WRITE or IB_MEMREG_OP_READ
 * @endpoint: The endpoint
 * @wrs: Filled in: work requests for memreg_submit(), the last of them signaled
 * @room: Number of work requests that @wrs has room for; one for each range,
 *	and one more for each GiB, is enough
 *
 * Ranges of the peer that touch and have the same key are moved by one work
 * request, whatever the local memory is composed of. memreg_submit() fails with
 * -EMSGSIZE for a work request whose local memory is in more pieces than 32
 * times IB_MEMREG_CAP_FRAGMENTS: plan parts of the MR then. So do if there are
 * more work requests than a queue has places: plan some ranges, and go on with
 * the next ones at @offset plus their lengths.
 *
 * Return: number of work requests; -EINVAL (another opcode, or the ranges are
 * longer than the MR), -ENOSPC (@room).
 */
int memreg_transfer_plan(const struct memreg_mr *local, uint64_t offset,
			 const struct memreg_grant *remote, unsigned int count,
			 uint32_t opcode, uint32_t endpoint,
			 struct ib_memreg_wr *wrs, unsigned int room);

/**
 * struct memreg_rereg_attr - What memreg_mr_reregister() is to change
 * @what: enum ib_memreg_rereg, one at least; other fields are not read
 * @domain: Domain in which the keys are to work
 * @access: enum ib_memreg_access
 * @flags: enum ib_memreg_mr_flags
 * @addr: Address of the memory, without IB_MEMREG_MR_FD
 * @fd: Descriptor of a memory object, with IB_MEMREG_MR_FD
 * @offset: First byte in it, with IB_MEMREG_MR_FD
 * @length: Bytes, from 1
 * @iova: First I/O address, with IB_MEMREG_MR_IOVA
 */
struct memreg_rereg_attr {
	uint32_t what;
	uint32_t domain;
	uint32_t access;
	uint32_t flags;
	void *addr;
	int fd;
	uint64_t offset;
	uint64_t length;
	uint64_t iova;
};

/**
 * memreg_mr_reregister() - Give an MR other memory, access, or another domain
 * @m: The handle
 * @attr: The new attributes
 * @mr: The MR; changed along with it, and left alone by a failure
 * @kept: Pages of 4096 bytes that were not pinned again; may be NULL
 *
 * A call that fails leaves the MR as it was, and its keys working. When one
 * that succeeds returns, the MR has new keys, and the old ones are dead. Unlike
 * ibv_rereg_mr(3) there is no state in between, and a stale MR is LIVE again
 * once it has other memory.
 *
 * Return: 0; -EBUSY (windows are bound to it, work requests use it that have
 * not completed, or another call is using it), -ESTALE (it is stale, and gets
 * no other memory), -EINVAL (also: it is a pool), -EFAULT (also: the memory has
 * to be pinned again, and belongs to another process), -ENOENT, and as
 * memreg_mr_register() and memreg_mr_register_fd().
 */
int memreg_mr_reregister(struct memreg *m, const struct memreg_rereg_attr *attr,
			 struct memreg_mr *mr, uint64_t *kept);

/**
 * memreg_advise() - Pin ranges of MRs on demand in advance, or unpin them
 * @m: The handle
 * @advice: enum ib_memreg_advice
 * @flags: enum ib_memreg_advise_flags, or 0
 * @ranges: The ranges; each has its outcome afterwards: @out_error is 0 or a
 *	positive errno
 * @count: Their number, 1 to IB_MEMREG_BATCH_MAX
 *
 * Return: number of the ranges whose @out_error is not 0; -EINVAL (@advice,
 * @count), -EOPNOTSUPP (@flags), -EFAULT (@ranges), -EINTR, -ENODEV.
 */
int memreg_advise(struct memreg *m, uint32_t advice, uint32_t flags,
		  struct ib_memreg_range *ranges, unsigned int count);

/**
 * memreg_mr_query() - State and keyed segments of an MR
 * @m: The handle
 * @mr: The MR's id
 * @info: Filled in; may be NULL
 * @segments: Array to be filled; may be NULL if @count is NULL or *@count is 0
 * @count: In: entries that @segments has room for. Out: segments of the MR;
 *	the first of them are written if the room was less. May be NULL.
 *
 * Return: 0; -ENOENT, -EFAULT (@segments is not mapped), -ENODEV.
 */
int memreg_mr_query(struct memreg *m, uint32_t mr, struct memreg_mr_info *info,
		    struct ib_memreg_segment *segments, unsigned int *count);

/**
 * memreg_mr_deregister() - Kill the keys of an MR and unpin its memory
 * @m: The handle
 * @mr: The MR's id
 *
 * When it returns 0, no peer reaches the memory through a key of this MR, and
 * the memory is neither pinned by it nor charged.
 *
 * Return: 0; -EBUSY (windows are bound to it: revoke them first; or it is in
 * work requests that have not completed), -ENOENT, -ENODEV.
 */
int memreg_mr_deregister(struct memreg *m, uint32_t mr);

/*
 * Exports: grants on queue pairs that are not memreg's
 */

/**
 * struct memreg_export - A part of an MR as a descriptor
 * @id: Its id
 * @fd: The descriptor, a dma-buf, close-on-exec; belongs to the caller, and can
 *	be closed once it is registered
 */
struct memreg_export {
	uint32_t id;
	int fd;
};

/**
 * memreg_export() - Export a part of an MR
 * @m: The handle
 * @mr: Id of an MR with IB_MEMREG_ACCESS_LOCAL_WRITE, whose memory has pages
 *	that do not go away: not on demand, nor a composition
 * @offset: First byte, counted from the start of the MR; at a page of memory
 * @length: Bytes, whole pages
 * @out: Filled in
 *
 * The descriptor can be registered in a protection domain of the application,
 * by memreg_export_register(3) or ibv_reg_dmabuf_mr(3), and by
 * memreg_mr_register_fd(3) in any handle, for any device. Whoever has it reaches
 * all of the export and nothing else, until it is revoked or the mapping of the
 * memory goes; then all keys that were made of it are dead. The MR cannot be
 * deregistered before its exports were revoked.
 *
 * Return: 0; -EINVAL (the range, or it is not of whole pages), -EOVERFLOW,
 * -EOPNOTSUPP (the kind of memory, or the kernel), -ENOENT, -EACCES (the MR is
 * not writable), -ESTALE, -ENOMEM, -EMFILE, -ENFILE, -ENODEV.
 */
int memreg_export(struct memreg *m, uint32_t mr, uint64_t offset,
		  uint64_t length, struct memreg_export *out);

/**
 * memreg_export_watched() - Export a part of an MR, and see when it ends
 * @m: The handle
 * @mr: As for memreg_export()
 * @offset: As for memreg_export()
 * @length: As for memreg_export()
 * @status: Status table of this handle, which the export uses
 * @out: Filled in
 * @watch: Becomes invalid when the export ends; it is no watch of
 *	memreg_watch(), and is not passed to memreg_unwatch()
 *
 * Return: as memreg_export(); -ENOSPC (@status has no free slot), -EPERM (it is
 * that of another process).
 */
int memreg_export_watched(struct memreg *m, uint32_t mr, uint64_t offset,
			  uint64_t length, struct memreg_status *status,
			  struct memreg_export *out,
			  struct memreg_watch *watch);

/**
 * memreg_export_revoke() - Revoke exports
 * @m: The handle
 * @exports: Their ids
 * @count: Their number, 1 to IB_MEMREG_BATCH_MAX
 * @failed: Set to the index of the export that a failure is about, or to
 *	@count; may be NULL
 *
 * When it returns 0, nobody reaches the memory through an export, and no access
 * that was accepted before can still land. The ids stay until they are
 * destroyed.
 *
 * Return: 0; -ENOENT, and none is revoked; -ETIMEDOUT if an importer has not let
 * go within a second: all are revoked, the memory must not be reused, and the
 * call can be repeated; -EINVAL (@count), -EFAULT, -ENOMEM, -ENODEV.
 */
int memreg_export_revoke(struct memreg *m, const uint32_t *exports,
			 unsigned int count, unsigned int *failed);

/**
 * memreg_export_destroy() - Revoke an export, and free its id
 * @m: The handle
 * @id: Its id
 *
 * Return: 0; -ENOENT; -EBUSY if an importer has not let go within a second, or
 * another call is using it; -ENODEV.
 */
int memreg_export_destroy(struct memreg *m, uint32_t id);

/**
 * memreg_export_leased() - Export a part of an MR until a lease ends
 * @m: The handle
 * @mr: As for memreg_export()
 * @offset: As for memreg_export()
 * @length: As for memreg_export()
 * @lease: Id of a lease of this handle
 * @out: Filled in
 *
 * Return: as memreg_export(); -ESTALE also if the lease has ended.
 */
int memreg_export_leased(struct memreg *m, uint32_t mr, uint64_t offset,
			 uint64_t length, uint32_t lease,
			 struct memreg_export *out);

/*
 * Leases: grants that end by themselves
 */

/**
 * memreg_lease_create() - Make a lease
 * @m: The handle
 * @deadline_ns: When it ends, in nanoseconds of CLOCK_BOOTTIME
 * @lease: Set to its id
 *
 * Windows and exports that name the lease end at the deadline, whether or not
 * this process runs. IB_MEMREG_EVENT_LEASE_ENDED follows, in which @endpoint_id
 * is the lease. The lease exists until memreg_lease_destroy().
 *
 * Return: 0; -ENOMEM, -EFAULT (@lease is not mapped), -ENODEV.
 */
int memreg_lease_create(struct memreg *m, uint64_t deadline_ns,
			uint32_t *lease);

/**
 * memreg_lease_create_watched() - Make a lease, and see when it ends
 * @m: The handle
 * @deadline_ns: As for memreg_lease_create()
 * @status: Status table of this handle, which the lease uses
 * @lease: Set to its id
 * @watch: Becomes invalid when the lease ends, before a key dies; it is no watch
 *	of memreg_watch(), and is not passed to memreg_unwatch()
 *
 * Return: as memreg_lease_create(); -ENOSPC (@status has no free slot), -EPERM
 * (it is that of another process).
 */
int memreg_lease_create_watched(struct memreg *m, uint64_t deadline_ns,
				struct memreg_status *status, uint32_t *lease,
				struct memreg_watch *watch);

/**
 * memreg_lease_renew() - Set the deadline of a lease
 * @m: The handle
 * @lease: Its id
 * @deadline_ns: As for memreg_lease_create(); later or earlier than before
 *
 * Return: 0; -ESTALE (it has ended, and stays so), -ENOENT, -ENOMEM, -ENODEV.
 */
int memreg_lease_renew(struct memreg *m, uint32_t lease, uint64_t deadline_ns);

/**
 * memreg_lease_renew_batch() - Set the deadlines of many leases in one call
 * @m: The handle
 * @renewals: Array of @count; @reserved of each is 0
 * @count: Their number, 1 to IB_MEMREG_BATCH_MAX; all are renewed, or none
 * @failed: Set to the index of the entry that a failure is about, or to @count;
 *	may be NULL
 *
 * Return: as memreg_lease_renew(); -EINVAL, -EFAULT (@renewals is not mapped).
 */
int memreg_lease_renew_batch(struct memreg *m,
			     const struct ib_memreg_renewal *renewals,
			     unsigned int count, unsigned int *failed);

/**
 * memreg_lease_destroy() - Free a lease
 * @m: The handle
 * @lease: Its id
 *
 * Its event, if it was not read, vanishes.
 *
 * Return: 0; -EBUSY (windows are bound under it, or exports under it were not
 * revoked), -ENOENT, -ENODEV.
 */
int memreg_lease_destroy(struct memreg *m, uint32_t lease);

/*
 * Status tables and watches
 */

/**
 * memreg_status_create() - Make a table in which the kernel shows which
 * registrations are valid
 * @m: The handle; memreg_open_unbound() will do
 * @slots: Watches and MRs that can be in it, 1 to IB_MEMREG_STATUS_SLOTS_MAX
 * @log_entries: Entries of a log for a wide watch, a power of two up to
 *	IB_MEMREG_STATUS_LOG_MAX, or 0
 * @status: The new table, to be destroyed by memreg_status_destroy()
 *
 * It is about the memory of the calling process, and for that process alone:
 * after fork() every watch is found invalid in the child.
 *
 * Return: 0; -EINVAL, -ENOMEM, -EMFILE, -ENFILE, -ENODEV.
 */
int memreg_status_create(struct memreg *m, uint32_t slots,
			 uint32_t log_entries, struct memreg_status **status);

/**
 * memreg_status_destroy() - Destroy a status table
 * @status: The table, or NULL; not to be used afterwards, nor are watches
 *
 * In a child of the process that made it, only the child's copy is freed.
 *
 * Return: 0; -EBUSY (there are watches, or MRs that have a slot).
 */
int memreg_status_destroy(struct memreg_status *status);

/**
 * memreg_status_fd() - File descriptor of a status table
 * @status: The table
 *
 * For poll(2): POLLIN while there are changes that were not read. read(2) of 8
 * bytes gives their number and waits for another. It belongs to the table:
 * don't close it.
 *
 * Return: The descriptor. It can't fail.
 */
int memreg_status_fd(const struct memreg_status *status);

/**
 * memreg_status_changes() - How often has anything in a table changed?
 * @status: The table
 *
 * As long as it is the same, every watch that was good is good. It is a load.
 *
 * Return: The number.
 */
uint64_t memreg_status_changes(const struct memreg_status *status);

/**
 * memreg_status_query() - Read the state and the counters of a status table
 * @status: The table
 * @info: Filled in
 */
void memreg_status_query(const struct memreg_status *status,
			 struct memreg_status_info *info);

/**
 * memreg_status_log() - Read what a wide watch has logged
 * @status: The table
 * @position: In: number of log entries that were read before, 0 at first. Out:
 *	number read by now
 * @changes: Array to be filled
 * @count: In: entries that @changes has room for. Out: entries written; 0 if
 *	there are no new ones
 *
 * Return: 0; -EINVAL (the table has no log); -EOVERFLOW (entries were
 * overwritten before they were read: everything may have changed, and
 * *@position is where to go on).
 */
int memreg_status_log(const struct memreg_status *status, uint64_t *position,
		      struct ib_memreg_change *changes, unsigned int *count);

/**
 * memreg_watch() - Watch memory that will be registered by another API
 * @status: Table that is to have the watches
 * @ranges: Ranges to watch, mapped or not
 * @count: Entries of @ranges, from 1
 * @watches: Array of as many, filled in
 *
 * Register the memory afterwards, and use the registration only if
 * memreg_watch_ok() returns true then, and as long as it does. Once it returns
 * false, end the watch, and start over with a new one.
 *
 * "Status tables and monitors" in <rdma/ib_memreg.h> describes which events
 * count as changes.
 *
 * Return: 0; -EINVAL, -EOVERFLOW (a range wraps), -EFAULT (a range that is not
 * of user space), -ENOSPC (no free slot, or IB_MEMREG_MONITOR_DEPTH watches of
 * a page), -EPERM (the table is that of another process), -EBUSY (a second wide
 * watch), -ENOMEM, -EINTR, -ENODEV.
 */
int memreg_watch(struct memreg_status *status,
		 const struct memreg_range *ranges, unsigned int count,
		 struct memreg_watch *watches);

/**
 * memreg_watch_dmabuf() - Watch a dma-buf that will be registered by another API
 * @status: Table that is to have the watch; its file is bound to the device that
 *	the dma-buf will be registered with
 * @fd: Descriptor of the dma-buf; can be closed afterwards
 * @watch: Filled in
 *
 * As memreg_watch(), for ibv_reg_dmabuf_mr(3): the watch is no longer right when
 * the exporter takes the memory away or moves it. It holds a reference of the
 * dma-buf, so that st_dev and st_ino of fstat(2) tell whether another descriptor
 * is of the same.
 *
 * Return: 0; -EBADF (not one of a dma-buf), -EOPNOTSUPP (the exporter refuses,
 * or has taken the memory away), -ENOSPC (no free slot), -EMFILE (the user has
 * as many of these watches and exports as RLIMIT_NOFILE), -EPERM (the table is
 * that of another process), -ENOMEM, -EINTR, -ENODEV (not bound, or the device
 * is gone).
 */
int memreg_watch_dmabuf(struct memreg_status *status, int fd,
			struct memreg_watch *watch);

/**
 * memreg_unwatch() - End watches
 * @status: Their table
 * @watches: Watches that memreg_watch() has filled in
 * @count: Entries of @watches
 *
 * Of more than IB_MEMREG_BATCH_MAX watches the first may have ended if the call
 * fails because of a later one.
 *
 * Return: 0; -ENOENT (an entry is not a watch, or occurs twice), -ENOMEM,
 * -EINTR, -ENODEV.
 */
int memreg_unwatch(struct memreg_status *status,
		   const struct memreg_watch *watches, unsigned int count);

/**
 * memreg_watch_ok() - Is a registration still valid?
 * @watch: The watch, or that of an MR or of a cache's registration
 *
 * A load and a compare; async-signal-safe. The result includes all changes that
 * happened before the call in the sense of the memory model: a munmap(2) that
 * this thread has made, or that another thread has made with which this one has
 * synchronised. Changes by mprotect(2), and those that a thread of the kernel
 * makes in a mapped file, are included one second later at the latest.
 *
 * Return: true if the mapping has not changed.
 */
static inline bool memreg_watch_ok(const struct memreg_watch *watch)
{
	return __atomic_load_n(watch->generation_now, __ATOMIC_ACQUIRE) ==
	       watch->generation;
}

/**
 * memreg_mr_register_watched() - Register an MR that has a slot in a table
 * @m: The handle
 * @domain: Domain in which the keys are to work
 * @addr: First byte
 * @length: Bytes, from 1
 * @access: enum ib_memreg_access
 * @flags: enum ib_memreg_mr_flags, or 0
 * @status: The table, of the same handle
 * @mr: Filled in, as by memreg_mr_register()
 * @watch: Filled in; it ends with the MR
 *
 * Return: as memreg_mr_register(), and -ENOSPC (no free slot), -EPERM (the
 * table is that of another process).
 */
int memreg_mr_register_watched(struct memreg *m, uint32_t domain, void *addr,
			       size_t length, uint32_t access, uint32_t flags,
			       struct memreg_status *status,
			       struct memreg_mr *mr,
			       struct memreg_watch *watch);

/*
 * Registration caches
 */

/**
 * memreg_cache_create() - Make a cache of registrations
 * @m: The handle; with operations of the caller's memreg_open_unbound() will do
 * @attr: Parameters
 * @cache: The new cache, to be destroyed by memreg_cache_destroy()
 *
 * A registration that memreg_cache_get() returns is of the memory that is
 * mapped at the time of the call. The kernel reports which registrations are
 * still valid: there are no hooks on malloc(3) or munmap(2), and the
 * application announces nothing.
 *
 * For registrations by another API the cache gives no further guarantee: old
 * keys of memory that was unmapped work until the cache deregisters them, at
 * the next call of memreg_cache_get() that does not hit. The keys of memreg's
 * MRs die with the mapping.
 *
 * Return: 0; -EINVAL (flags, or limits), and as memreg_status_create().
 */
int memreg_cache_create(struct memreg *m, const struct memreg_cache_attr *attr,
			struct memreg_cache **cache);

/**
 * memreg_cache_destroy() - Destroy a cache and deregister all that it has
 * @cache: The cache, or NULL; no thread may use it during or after the call
 *
 * In a child of the process that made it nothing happens.
 *
 * Return: 0; -EBUSY (registrations were not put back, or could not be
 * deregistered: try again); -ECHILD.
 */
int memreg_cache_destroy(struct memreg_cache *cache);

/**
 * memreg_cache_get() - Find or make a registration of memory
 * @cache: The cache
 * @addr: First byte
 * @length: Bytes, from 1
 * @cached: The registration, of at least these bytes, to be given to
 *	memreg_cache_put()
 *
 * What one thread has mapped and another registers is known if the threads have
 * synchronised. A registration that is made is of whole pages. When 524,288
 * references to it are held, the memory is registered once more. Room that
 * other threads are making is waited for, two seconds at most.
 *
 * Return: 0; -EINVAL, -EOVERFLOW, -ECHILD (the cache is that of the parent
 * process), -ENOSPC (the limits are reached by registrations in use, or
 * IB_MEMREG_MONITOR_DEPTH of them have a page of it), -EAGAIN (the memory kept
 * changing), -ENODEV (the device was removed, or the program has closed the
 * descriptors of the cache), and the errnos of registering.
 */
int memreg_cache_get(struct memreg_cache *cache, const void *addr,
		     size_t length, const struct memreg_cached **cached);

/**
 * memreg_cache_try_get() - Find a registration, or none
 * @cache: The cache
 * @addr: First byte
 * @length: Bytes, from 1
 * @cached: As in memreg_cache_get()
 *
 * Async-signal-safe; it takes no lock and calls nobody. It leaves
 * memreg_reason() as it is.
 *
 * Return: 0; -EAGAIN (there is none, for all that can be found out so).
 */
int memreg_cache_try_get(struct memreg_cache *cache, const void *addr,
			 size_t length, const struct memreg_cached **cached);

/**
 * memreg_cache_put() - Release a registration that memreg_cache_get() has
 * returned
 * @cache: The cache
 * @cached: The registration
 *
 * Async-signal-safe. A registration that the cache does not keep is
 * deregistered by a later call of memreg_cache_get(), memreg_cache_flush() or
 * memreg_cache_destroy().
 */
void memreg_cache_put(struct memreg_cache *cache,
		      const struct memreg_cached *cached);

/**
 * memreg_cache_flush() - Give up registrations
 * @cache: The cache
 * @addr: First byte of memory that is not to be cached any more
 * @length: Bytes; 0 for only what is not good any more
 *
 * Registrations in use are given up when they are put.
 *
 * Return: 0; -ECHILD; or the errno of a failed deregistration.
 */
int memreg_cache_flush(struct memreg_cache *cache, const void *addr,
		       size_t length);

/**
 * memreg_cache_query() - What a cache has counted
 * @cache: The cache
 * @stat: Filled in
 *
 * Return: 0; -ECHILD.
 */
int memreg_cache_query(struct memreg_cache *cache,
		       struct memreg_cache_stat *stat);

/*
 * Pools
 */

/**
 * memreg_pool_create() - Make buffers that are registered before they are used
 * @m: The handle, which must stay open until the pool is destroyed
 * @domain: Domain in which the keys are to work
 * @attr: Parameters
 * @pool: The new pool, to be destroyed by memreg_pool_destroy()
 *
 * One call registers all buffers, with a key for each if there is remote
 * access. The memory, if none is given, is a memory object, which a child of
 * fork() does not have in its address space.
 *
 * A pool belongs to the process that made it: in a child each function fails
 * with -ECHILD.
 *
 * Return: 0; -EINVAL (size, stride or count; MEMREG_POOL_WIPE without local
 * write access), -EOVERFLOW, -ENOMEM, -EMFILE, -ENFILE, and as
 * memreg_memory_create() and memreg_mr_register().
 */
int memreg_pool_create(struct memreg *m, uint32_t domain,
		       const struct memreg_pool_attr *attr,
		       struct memreg_pool **pool);

/**
 * memreg_pool_destroy() - Destroy a pool
 * @pool: The pool, or NULL; no other thread may use it
 *
 * When it returns 0, no key of a buffer works, and the memory that was made
 * with the pool is unmapped.
 *
 * Return: 0; -EBUSY (windows are bound to it, or it is in work requests that
 * have not completed), -ECHILD.
 */
int memreg_pool_destroy(struct memreg_pool *pool);

/**
 * memreg_pool_mr() - The MR that all buffers are parts of
 * @pool: The pool
 * @mr: Filled in: the id, for SGEs and windows, and the first buffer's address
 *	and keys. The offset of a buffer in it is that of their addresses.
 *
 * Return: 0; -ECHILD.
 */
int memreg_pool_mr(const struct memreg_pool *pool, struct memreg_mr *mr);

/**
 * memreg_pool_take() - Take a buffer
 * @pool: The pool
 * @buffer: The buffer
 *
 * Makes no system call, does not wait, and is async-signal-safe. Like
 * memreg_pool_give() and memreg_pool_entry() it leaves memreg_reason() as it
 * is.
 *
 * Return: 0; -EAGAIN (none was free; one that another thread gives at the same
 * time may have been missed), -ECHILD.
 */
int memreg_pool_take(struct memreg_pool *pool, void **buffer);

/**
 * memreg_pool_give() - Give a buffer back
 * @pool: The pool
 * @buffer: One that was taken, by whichever thread
 *
 * Makes no system call, does not wait, and is async-signal-safe. Peers that
 * have the key of the buffer can still use it: recycle the buffer first to
 * prevent that.
 *
 * Return: 0; -EINVAL (it is not a buffer of this pool, or not taken), -ECHILD.
 */
int memreg_pool_give(struct memreg_pool *pool, void *buffer);

/**
 * memreg_pool_entry() - What a peer must know to use a buffer
 * @pool: The pool
 * @buffer: One that was taken
 * @grant: Filled in; its rkey is 0 if there is no remote access, or the pool's
 *	device is gone
 *
 * Makes no system call, and is async-signal-safe.
 *
 * Return: 0; -EINVAL (it is not a buffer of this pool), -ECHILD.
 */
int memreg_pool_entry(struct memreg_pool *pool, const void *buffer,
		      struct memreg_grant *grant);

/**
 * memreg_pool_recycle() - Give buffers other keys
 * @pool: The pool
 * @buffers: Buffers that the caller has taken, each once
 * @count: Their number, 1 to IB_MEMREG_BATCH_MAX
 * @flags: enum ib_memreg_recycle_flags, or 0
 *
 * When it returns 0, peers cannot reach these buffers by their old keys, and no
 * packet is in flight unless IB_MEMREG_RECYCLE_RELAXED is set; if it fails, the
 * old keys still work.
 *
 * Return: 0; -EINVAL (@count, a buffer is not taken or named twice, or there is
 * no remote access), -ENOMEM, -ENOSPC, -EDQUOT, -ESTALE (the memory was
 * unmapped, or its mapping changed), -EIO, -ENETDOWN, -EINTR, -ENODEV, -ECHILD.
 */
int memreg_pool_recycle(struct memreg_pool *pool, void *const *buffers,
			unsigned int count, uint32_t flags);

/*
 * Heaps: memory of any size over pools
 */

/**
 * memreg_heap_create() - Make a heap of registered memory
 * @m: The handle, which must stay open until the heap is destroyed
 * @domain: Domain in which the keys are to work
 * @attr: Parameters
 * @heap: The new heap, to be destroyed by memreg_heap_destroy()
 *
 * Only address space is reserved so far: whether memory can be had, and whether
 * @domain and the access flags are good, memreg_alloc() finds out.
 *
 * A heap belongs to the process that made it: in a child of fork() each
 * function fails with -ECHILD, and the memory is not mapped.
 *
 * Return: 0; -EINVAL (the limit is more than 2^40 bytes), -ENOMEM, -ENODEV.
 */
int memreg_heap_create(struct memreg *m, uint32_t domain,
		       const struct memreg_heap_attr *attr,
		       struct memreg_heap **heap);

/**
 * memreg_heap_destroy() - Destroy a heap
 * @heap: The heap, or NULL; no other thread may use it
 *
 * When it returns 0, no key of its memory works, and the memory is unmapped. If
 * it fails, some of the memory may be gone: the heap can only be destroyed
 * again.
 *
 * Return: 0; -EBUSY (windows are bound to its memory, or that is in work
 * requests that have not completed), -ECHILD.
 */
int memreg_heap_destroy(struct memreg_heap *heap);

/**
 * memreg_alloc() - Allocate registered memory
 * @heap: The heap
 * @size: Bytes, from 1 to 2 MiB or IB_MEMREG_CAP_KEY_SPAN, whichever is less
 * @ptr: The memory. Its address is a multiple of @size rounded up to a power
 *	of two, or of 64
 *
 * Does not wait, and makes no system call unless no memory of that size is
 * free: then two calls make up to 256 buffers of that size, or 2 MiB. Memory
 * that was allocated before keeps its old contents, and peers that know its key
 * can use it unless it was recycled.
 *
 * It is not async-signal-safe.
 *
 * Return: 0; -EINVAL (@size), -ENOMEM (also: the limit of the heap), -ECHILD,
 * and as memreg_pool_create().
 */
int memreg_alloc(struct memreg_heap *heap, size_t size, void **ptr);

/**
 * memreg_free() - Free registered memory
 * @heap: The heap
 * @ptr: Memory that memreg_alloc() returned to any thread; or NULL
 *
 * Makes no system call, does not wait, is async-signal-safe, and leaves
 * memreg_reason() as it is. Keys stay as they are, as with memreg_pool_give().
 * The heap keeps the memory for allocations of the same size.
 *
 * Return: 0; -EINVAL (it is not memory of this heap, or is free), -ECHILD.
 */
int memreg_free(struct memreg_heap *heap, void *ptr);

/**
 * memreg_alloc_query() - MR, offset and key of registered memory
 * @heap: The heap
 * @ptr: Memory that memreg_alloc() returned
 * @allocation: Filled in; the rkey is 0 if there is no remote access, or the
 *	device is gone
 *
 * Makes no system call, is async-signal-safe, and leaves memreg_reason() as it
 * is. The rkey is good until the memory is recycled.
 *
 * Return: 0; -EINVAL (nothing of this heap begins there), -ECHILD.
 */
int memreg_alloc_query(struct memreg_heap *heap, const void *ptr,
		       struct memreg_allocation *allocation);

/*
 * Windows: revocable grants on a part of an MR
 */

/**
 * memreg_window_alloc() - Allocate windows
 * @m: The handle
 * @domain: Domain in which their keys are to work
 * @type: enum ib_memreg_window_type
 * @max_span: Bytes that each is at most to cover, from 1 to
 *	IB_MEMREG_CAP_KEY_SPAN less 4096
 * @windows: Array of @count, to which their ids are written
 * @count: Their number, 1 to IB_MEMREG_BATCH_MAX; all are made, or none
 *
 * Windows of type 1 are for the functions below, windows of type 2B for
 * memreg_prep_bind().
 *
 * Return: 0; -EINVAL, -EOPNOTSUPP (type), -ENOENT (domain), -EFAULT (@windows
 * is not mapped), -ENOMEM, -ENODEV.
 */
int memreg_window_alloc(struct memreg *m, uint32_t domain, uint32_t type,
			uint64_t max_span, uint32_t *windows,
			unsigned int count);

/**
 * memreg_window_bind() - Grant a part of an MR
 * @m: The handle
 * @domain: Domain of the window, which is of type 1
 * @bind: In: @window_id, @mr_id, @offset, @length, @access, and @endpoint_id,
 *	with whose connection the window is to end, and @lease_id, with whose
 *	lease, or 0. Out: @out_iova and @out_rkey, which the peer needs.
 *
 * Each bind gives a fresh rkey.
 *
 * Return: 0; -EINVAL, -EOVERFLOW, -ENOENT (no such window, MR or endpoint),
 * -EBUSY (bound already), -EACCES (the MR doesn't allow it), -EOPNOTSUPP,
 * -ENOTCONN (the endpoint's connection has ended), -ESTALE (the MR is stale, or
 * the lease has ended), -EFAULT (@bind is not mapped), -ENOMEM, -ENOSPC, -EDQUOT, -EIO, -ENETDOWN,
 * -EINTR, -ENODEV.
 */
int memreg_window_bind(struct memreg *m, uint32_t domain,
		       struct ib_memreg_bind *bind);

/**
 * memreg_window_bind_batch() - Grant many parts of MRs in one call
 * @m: The handle
 * @domain: Domain of the windows
 * @binds: Array of @count, each as for memreg_window_bind()
 * @count: Number of windows, 1 to IB_MEMREG_BATCH_MAX; all are bound, or none
 * @failed: If it isn't NULL and the call fails: the index of the entry that
 *	failed, or @count if no entry did
 *
 * Costs a fraction of as many calls of memreg_window_bind().
 *
 * Return: As memreg_window_bind().
 */
int memreg_window_bind_batch(struct memreg *m, uint32_t domain,
			     struct ib_memreg_bind *binds, unsigned int count,
			     unsigned int *failed);

/**
 * memreg_window_grant() - Grant a part of an MR, ready to be sent
 * @m: The handle
 * @domain: Domain of the window
 * @bind: As for memreg_window_bind(). If its @window_id is 0 a window of type 1
 *	for its @length is allocated first, whose id is written there; it is for
 *	memreg_window_free().
 * @data: MEMREG_GRANT_SIZE bytes, written as by memreg_grant_encode()
 *
 * If it fails, the window that it allocated is freed, and @bind->window_id is 0
 * again.
 *
 * Return: As memreg_window_alloc() and memreg_window_bind().
 */
int memreg_window_grant(struct memreg *m, uint32_t domain,
			struct ib_memreg_bind *bind, void *data);

/**
 * memreg_window_revoke() - Take a grant back
 * @m: The handle
 * @domain: Domain of the window, which is of type 1
 * @window: The window's id
 *
 * When it returns 0, the device accepts no access through the window's key, and
 * none that it accepted before lands any more, on any device: the memory is the
 * owner's alone. The window may be bound again. A window that isn't bound is no
 * error, and one that the end of its connection is revoking is waited for.
 *
 * Return: 0; -EINVAL, -ENOENT, -EBUSY (another thread is binding or revoking
 * it), -ENOMEM, -EINTR, -ENODEV.
 */
int memreg_window_revoke(struct memreg *m, uint32_t domain, uint32_t window);

/**
 * memreg_window_revoke_batch() - Take many grants back in one call
 * @m: The handle
 * @domain: Domain of the windows
 * @windows: Array of @count ids
 * @count: Their number, 1 to IB_MEMREG_BATCH_MAX; all are revoked, or none
 * @failed: As with memreg_window_bind_batch()
 *
 * Return: As memreg_window_revoke(); also -EBUSY if an id is there twice, and
 * -EFAULT (@windows is not mapped).
 */
int memreg_window_revoke_batch(struct memreg *m, uint32_t domain,
			       const uint32_t *windows, unsigned int count,
			       unsigned int *failed);

/**
 * memreg_window_revoke_relaxed() - Take grants back from now on
 * @m: The handle
 * @domain: Domain of the windows
 * @windows: Array of @count ids
 * @count: Their number, 1 to IB_MEMREG_BATCH_MAX; all are revoked, or none
 * @failed: As with memreg_window_bind_batch()
 *
 * As memreg_window_revoke_batch(), but where IB_MEMREG_CAP_STRICT_INVALIDATE is
 * 0, an access that was accepted before may still land when it returns; in
 * batches it costs less there. It is for memory that is not used for something
 * else before its MR is deregistered, which waits.
 *
 * Return: As memreg_window_revoke_batch().
 */
int memreg_window_revoke_relaxed(struct memreg *m, uint32_t domain,
				 const uint32_t *windows, unsigned int count,
				 unsigned int *failed);

/**
 * memreg_window_free() - Revoke a window, if it is bound, and free it
 * @m: The handle
 * @window: The window's id
 *
 * Return: 0; -ENOENT, -EBUSY (another thread, or the end of its connection, is
 * using it: try again; or it is of type 2B and bound: end it by
 * memreg_prep_invalidate() first), -ENODEV.
 */
int memreg_window_free(struct memreg *m, uint32_t window);

/*
 * Connections
 */

/**
 * memreg_listen() - Listen for peers by the RDMA connection manager
 * @m: The handle
 * @addr: A struct sockaddr_in or sockaddr_in6; wildcard address and port 0
 *	are allowed. On return, its port is the one that was chosen.
 * @backlog: Requests that may wait to be accepted, 1 to
 *	IB_MEMREG_BACKLOG_MAX
 * @listener: Its id; memreg_destroy() ends it
 *
 * Each request makes an IB_MEMREG_EVENT_CONNECT_REQUEST. If the peer gives up
 * its request, IB_MEMREG_EVENT_DISCONNECTED follows for that endpoint only.
 *
 * Return: 0; -EINVAL, -EADDRINUSE, -EADDRNOTAVAIL, -EPERM (a port below 1024),
 * -ENOMEM, -ENODEV.
 */
int memreg_listen(struct memreg *m, struct sockaddr *addr,
		  unsigned int backlog, uint32_t *listener);

/**
 * memreg_accept() - Let a peer in
 * @m: The handle
 * @endpoint: Endpoint named by IB_MEMREG_EVENT_CONNECT_REQUEST
 * @domain: Domain whose keys its peer is to use
 * @data: Private data for the peer; may be NULL if @len is 0
 * @len: Bytes of it, up to IB_MEMREG_CAP_ACCEPT_DATA
 *
 * IB_MEMREG_EVENT_ESTABLISHED or _DISCONNECTED follows. Windows may be bound
 * for the endpoint before, so that their keys travel in @data.
 *
 * After -ENOTCONN because the peer has gone, the endpoint still exists, maybe
 * in @domain: see memreg_reject().
 *
 * Return: 0; -EINVAL, -ENOENT, -ENOTCONN (accepted already, or gone), -EFAULT
 * (@data is not mapped), -ENOMEM, -ENOSPC, -EDQUOT, -ENODEV.
 */
int memreg_accept(struct memreg *m, uint32_t endpoint, uint32_t domain,
		  const void *data, size_t len);

/**
 * memreg_reject() - Turn a peer away, and destroy the endpoint
 * @m: The handle
 * @endpoint: Endpoint named by IB_MEMREG_EVENT_CONNECT_REQUEST
 * @data: Private data for the peer; may be NULL if @len is 0
 * @len: Bytes of it, up to IB_MEMREG_CAP_REJECT_DATA
 *
 * If it fails, nothing is destroyed. If the peer has gone (-ENOTCONN), the
 * endpoint still exists, and keeps its place in the listener's backlog, until
 * memreg_destroy(): a program that does not destroy such endpoints fills the
 * backlog.
 *
 * Return: 0; -EINVAL, -ENOENT, -ENOTCONN (accepted already, or gone), -EFAULT
 * (@data is not mapped), -ENODEV.
 */
int memreg_reject(struct memreg *m, uint32_t endpoint, const void *data,
		  size_t len);

/**
 * memreg_refuse() - Turn a peer away and destroy the endpoint in any case
 * @m: The handle
 * @endpoint: Endpoint named by IB_MEMREG_EVENT_CONNECT_REQUEST, which was not
 *	accepted, or whose memreg_accept() failed
 * @data: Private data for the peer; may be NULL if @len is 0
 * @len: Bytes of it, up to IB_MEMREG_CAP_REJECT_DATA
 *
 * As memreg_reject(), but if the peer has gone meanwhile the endpoint is
 * destroyed as well, so that it keeps no place in the backlog. An endpoint that
 * was accepted is disconnected by it.
 *
 * Return: 0; -EINVAL, -EFAULT (@data is not mapped), -ENOENT, -EBUSY (another
 * thread is using the endpoint), -ENODEV.
 */
int memreg_refuse(struct memreg *m, uint32_t endpoint, const void *data,
		  size_t len);

/**
 * memreg_set_user_data() - Give an endpoint or a listener a value of one's own
 * @m: The handle
 * @id: The endpoint or listener
 * @user_data: Such as a pointer
 *
 * Events that are read from then on have it in @user_data, and completions that
 * come from then on in @endpoint_data. The requests of a listener have that of
 * the listener until they get one of their own. An endpoint that was given none
 * has 0 in events, and its id in completions.
 *
 * Set it right after memreg_listen() or memreg_connect(), before reading events
 * and submitting work; or when IB_MEMREG_EVENT_CONNECT_REQUEST has come, before
 * accepting.
 *
 * Return: 0; -ENOENT, -ENODEV.
 */
int memreg_set_user_data(struct memreg *m, uint32_t id, uint64_t user_data);

/**
 * memreg_connect() - Begin to connect to a peer
 * @m: The handle
 * @domain: Domain whose keys the peer is to use
 * @dst: Address and port of the peer: struct sockaddr_in or sockaddr_in6
 * @src: Address to connect from, of the same family, or NULL
 * @timeout_ms: For all of connecting, up to the event, 1 to
 *	IB_MEMREG_TIMEOUT_MAX_MS
 * @data: Private data for the peer; may be NULL if @len is 0
 * @len: Bytes of it, up to IB_MEMREG_CAP_CONNECT_DATA
 * @endpoint: Id of the new endpoint
 *
 * The outcome is an event: IB_MEMREG_EVENT_ESTABLISHED, _REJECTED or _ERROR.
 *
 * Return: 0; -EINVAL, -ENOENT (domain), -EFAULT (@data is not mapped), -ENOMEM,
 * -EDQUOT, -EPERM (a source port below 1024), -EADDRINUSE, -EADDRNOTAVAIL,
 * -EACCES (a route forbids it), -ENETDOWN, -ENETUNREACH, -EHOSTDOWN,
 * -EHOSTUNREACH, -ETIMEDOUT, -EPROTO, -ENODEV.
 */
int memreg_connect(struct memreg *m, uint32_t domain,
		   const struct sockaddr *dst, const struct sockaddr *src,
		   unsigned int timeout_ms, const void *data, size_t len,
		   uint32_t *endpoint);

/**
 * memreg_connect_queues() - Begin to connect to a peer, with queues
 * @m: The handle
 * @domain: Domain whose keys the peer is to use
 * @dst: Address and port of the peer: struct sockaddr_in or sockaddr_in6
 * @src: Address to connect from, of the same family, or NULL
 * @timeout_ms: For all of connecting, up to the event, 1 to
 *	IB_MEMREG_TIMEOUT_MAX_MS
 * @data: Private data for the peer; may be NULL if @len is 0
 * @len: Bytes of it, up to IB_MEMREG_CAP_CONNECT_DATA
 * @queues: Queues of the endpoint: see struct ib_memreg_queues
 * @endpoint: Id of the new endpoint
 *
 * As memreg_connect(), but the endpoint has queues, so that work requests can
 * be submitted to it. Receives may be submitted as soon as it returns, and are
 * in place before the peer can send; all else from IB_MEMREG_EVENT_ESTABLISHED
 * on.
 *
 * With MEMREG_SCATTER_TO_CQE=0 in the environment, messages go to the buffers
 * that were posted for them, however short they are, as if
 * IB_MEMREG_QUEUES_NO_INLINE_RECEIVE were set.
 *
 * Return: As memreg_connect(); also -EINVAL (queues), -ENOENT (ring or shared
 * receive queue), -EAGAIN (the ring serves as many send queues already as it
 * can: see memreg_ring_create()), -EOPNOTSUPP.
 */
int memreg_connect_queues(struct memreg *m, uint32_t domain,
			  const struct sockaddr *dst,
			  const struct sockaddr *src, unsigned int timeout_ms,
			  const void *data, size_t len,
			  const struct ib_memreg_queues *queues,
			  uint32_t *endpoint);

/**
 * memreg_setup() - Give queues to a peer's request, before it is accepted
 * @m: The handle
 * @endpoint: Endpoint named by IB_MEMREG_EVENT_CONNECT_REQUEST
 * @domain: Domain of the endpoint, as memreg_accept() will have it
 * @queues: Its queues: see struct ib_memreg_queues
 *
 * Receives that are submitted before memreg_accept() are in place before the
 * peer can send. Done at most once. MEMREG_SCATTER_TO_CQE counts here as it
 * does with memreg_connect_queues().
 *
 * Return: 0; -EINVAL, -EOPNOTSUPP, -ENOENT, -ENOTCONN (accepted already, or
 * gone), -EBUSY (done already), -EAGAIN (as above), -ENOMEM, -ENOSPC, -EDQUOT,
 * -ENODEV.
 */
int memreg_setup(struct memreg *m, uint32_t endpoint, uint32_t domain,
		 const struct ib_memreg_queues *queues);

/**
 * memreg_disconnect() - End a connection
 * @m: The handle
 * @endpoint: Endpoint that is, or was, connected
 *
 * When it returns 0, the peer is out, and the windows that were bound for the
 * endpoint are revoked. IB_MEMREG_EVENT_DISCONNECTED follows once. The
 * endpoint exists until memreg_destroy().
 *
 * Return: 0; -ENOENT, -ENOTCONN (it was neither accepted nor came up), -ENODEV.
 */
int memreg_disconnect(struct memreg *m, uint32_t endpoint);

/**
 * memreg_get_event() - Take the next connection event
 * @m: The handle
 * @event: Filled in: see struct ib_memreg_event
 * @timeout_ms: Milliseconds to wait; 0 doesn't wait, -1 waits without end
 *
 * Each event is given to one caller.
 *
 * Return: 0; -EAGAIN (no event within the time), -EINTR (a signal handler
 * ran), -ENODEV (the device is gone).
 */
int memreg_get_event(struct memreg *m, struct ib_memreg_event *event,
		     int timeout_ms);

/**
 * memreg_event_string() - The name of an event
 * @type: enum ib_memreg_event_type
 *
 * Return: A constant string, such as "ESTABLISHED". Never NULL.
 */
const char *memreg_event_string(uint32_t type);

/**
 * memreg_event_reason() - What happened, and if a connection failed, why
 * @event: The event
 *
 * Explains @status of IB_MEMREG_EVENT_REJECTED, which is a number of the
 * InfiniBand CM or an errno of iWARP, and of IB_MEMREG_EVENT_ERROR.
 *
 * Return: A constant string, such as "nobody listens on that port there". Never
 * NULL.
 */
const char *memreg_event_reason(const struct ib_memreg_event *event);

/**
 * memreg_addr_from_sockaddr() - Convert an address for the kernel
 * @sa: A struct sockaddr_in or sockaddr_in6
 * @addr: Filled in
 *
 * Return: 0; -EINVAL (another family, or NULL).
 */
int memreg_addr_from_sockaddr(const struct sockaddr *sa,
			      struct ib_memreg_addr *addr);

/**
 * memreg_addr_to_sockaddr() - Convert an address of an event
 * @addr: The address, such as struct ib_memreg_event's @peer
 * @sa: Filled in
 * @len: Filled in with the size of the address, for bind(2) and getnameinfo(3).
 *	May be NULL.
 *
 * Return: 0; -EINVAL (another family than AF_INET and AF_INET6).
 */
int memreg_addr_to_sockaddr(const struct ib_memreg_addr *addr,
			    struct sockaddr_storage *sa, socklen_t *len);

/*
 * Completion rings
 */

/**
 * memreg_ring_create() - Make a completion ring and map it
 * @m: The handle
 * @entries: Entries to have room for, 1 to IB_MEMREG_CAP_RING; it gets the next
 *	power of two
 * @entry_size: Bytes of each: 64 or 128, of which 32 or 96 are for a message
 *	that is received
 * @eventfd: An eventfd(2) to signal when entries have come in, or -1
 * @flags: enum ib_memreg_ring_flags, or 0
 * @ring: Filled in; to be ended by memreg_ring_destroy()
 *
 * One ring can serve many endpoints: as many with a send queue as it has
 * entries, or fewer if the device's completion queue has less room beside the
 * entries; and any number of others.
 *
 * Return: 0; -EINVAL, -EOPNOTSUPP (flags), -EBADF (@eventfd is none), -EAGAIN
 * (mlockall(MCL_FUTURE) locks it, beyond RLIMIT_MEMLOCK), -EMFILE, -ENFILE,
 * -ENOMEM, -ENOSPC, -EDQUOT, -ENODEV.
 */
int memreg_ring_create(struct memreg *m, uint32_t entries,
		       uint32_t entry_size, int eventfd, uint32_t flags,
		       struct memreg_ring *ring);

/**
 * memreg_ring_destroy() - Destroy a completion ring and unmap it
 * @m: The handle, or NULL: the ring is only unmapped and its descriptor closed,
 *	for when the handle is closed already
 * @ring: The ring
 *
 * If it fails, nothing has changed, except after -ENODEV: then the memory is
 * unmapped as well.
 *
 * Return: 0; -EBUSY (endpoints or shared receive queues have it), -ENOENT (@m
 * has no such ring), -EINTR, -ENODEV.
 */
int memreg_ring_destroy(struct memreg *m, struct memreg_ring *ring);

/**
 * memreg_ring_wait() - Wait for completions
 * @ring: The ring
 * @min: Entries to wait for, 1 to @ring->entries
 * @timeout_ns: Nanoseconds to wait at most; 0 only looks, and
 *	IB_MEMREG_WAIT_FOREVER waits for as long as it takes
 * @count: Entries that there are, if the call returns 0 or -ETIMEDOUT; may be
 *	NULL
 *
 * Does not enter the kernel if they are there already.
 *
 * Return: 0; -ETIMEDOUT, -EINTR (a signal arrived), -EINVAL (@min), -ENODEV
 * (the ring is destroyed).
 */
int memreg_ring_wait(struct memreg_ring *ring, uint32_t min,
		     uint64_t timeout_ns, unsigned int *count);

/**
 * memreg_ring_ready() - Count the entries that are ready to read
 * @ring: The ring
 *
 * Return: Entries that the kernel has written and the user has not released.
 */
static inline uint32_t memreg_ring_ready(struct memreg_ring *ring)
{
	ring->producer = __atomic_load_n(&ring->shared->producer,
					 __ATOMIC_ACQUIRE);
	return ring->producer - ring->consumer;
}

/**
 * memreg_ring_cpu() - Where entries come from
 * @ring: The ring
 *
 * A thread that sleeps until there are entries is woken from that CPU. If its
 * own, sched_getcpu(3), is another one, it is interrupted for each of them.
 *
 * Return: CPU on which the kernel last wrote entries; 0 if it wrote none yet.
 * It may be another one for the next.
 */
static inline unsigned int memreg_ring_cpu(const struct memreg_ring *ring)
{
	return __atomic_load_n(&ring->shared->cpu, __ATOMIC_RELAXED);
}

/**
 * memreg_ring_entry() - The entry behind so many others
 * @ring: The ring
 * @index: 0 for the first unread entry; less than the count that
 *	memreg_ring_ready() has returned
 *
 * Return: The entry. It can't fail.
 */
static inline const struct ib_memreg_cqe *
memreg_ring_entry(const struct memreg_ring *ring, uint32_t index)
{
	index = (ring->consumer + index) & ring->mask;
	return (const struct ib_memreg_cqe *)(const void *)
		(ring->first + (size_t)index * ring->entry_size);
}

/**
 * memreg_ring_peek() - The next completion, if there is one
 * @ring: The ring
 *
 * The entry is the user's until memreg_ring_seen(): calls until then give the
 * same one. It costs a few instructions, and no system call.
 *
 * Return: The entry, or NULL.
 */
static inline const struct ib_memreg_cqe *
memreg_ring_peek(struct memreg_ring *ring)
{
	if (ring->consumer == ring->producer && !memreg_ring_ready(ring))
		return NULL;
	return memreg_ring_entry(ring, 0);
}

/**
 * memreg_ring_seen() - Be done with entries
 * @ring: The ring
 * @count: Number of entries, from the first unread one on; up to the count that
 *	memreg_ring_ready() has returned, or 1 after memreg_ring_peek()
 *
 * They are the kernel's again, and must not be looked at any more.
 */
static inline void memreg_ring_seen(struct memreg_ring *ring, uint32_t count)
{
	ring->consumer += count;
	__atomic_store_n(&ring->shared->consumer, ring->consumer,
			 __ATOMIC_RELEASE);
}

/**
 * memreg_ring_quiet() - Switch signals of the ring's eventfd off or on
 * @ring: The ring
 * @quiet: true if not, as while the program polls anyway
 *
 * Look into the ring once more after setting it to false, before going to
 * sleep: entries that came in before raise no signal.
 */
static inline void memreg_ring_quiet(struct memreg_ring *ring, bool quiet)
{
	__atomic_store_n(&ring->shared->flags,
			 quiet ? (uint32_t)IB_MEMREG_RING_QUIET : 0,
			 __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/**
 * memreg_cqe_data() - The message in a completion
 * @cqe: An entry with IB_MEMREG_CQE_INLINE
 *
 * Return: The first of its @cqe->byte_len bytes, which may be more than the
 * array @data is declared with. They are the user's until memreg_ring_seen().
 */
static inline const void *memreg_cqe_data(const struct ib_memreg_cqe *cqe)
{
	return (const char *)cqe + offsetof(struct ib_memreg_cqe, data);
}

/**
 * memreg_cqe_message() - The message that was received, wherever it is
 * @cqe: An entry of a RECV
 * @buffer: The memory that was posted for it
 *
 * Return: The first of its @cqe->byte_len bytes: in the entry, and then the
 * user's until memreg_ring_seen(), or @buffer.
 */
static inline const void *memreg_cqe_message(const struct ib_memreg_cqe *cqe,
					     const void *buffer)
{
	return cqe->flags & IB_MEMREG_CQE_INLINE ? memreg_cqe_data(cqe) :
						   buffer;
}

/*
 * Work requests
 */

/**
 * memreg_srq_create() - Make a shared receive queue
 * @m: The handle
 * @domain: Domain of the endpoints that are to use it
 * @ring: Id of the ring for the completions of receives
 * @max_recv: Receives that it has room for, 1 to IB_MEMREG_QUEUE_MAX, or to the
 *	device's limit if that is less
 * @max_recv_sge: SGEs of each, 1 to IB_MEMREG_SGE_MAX
 * @flags: enum ib_memreg_queues_flags, or 0
 * @srq: Its id; memreg_destroy() ends it
 *
 * MEMREG_SCATTER_TO_CQE counts here as it does with memreg_connect_queues().
 *
 * Return: 0; -EINVAL, -EOPNOTSUPP (the device has no such queues), -ENOENT
 * (domain, ring), -ENOMEM, -ENOSPC, -EDQUOT, -ENODEV.
 */
int memreg_srq_create(struct memreg *m, uint32_t domain, uint32_t ring,
		      uint32_t max_recv, uint32_t max_recv_sge, uint32_t flags,
		      uint32_t *srq);

/**
 * memreg_submit() - Submit work requests
 * @m: The handle
 * @wrs: Array of @count, for one endpoint or several, as memreg_prep_send()
 *	and its kin fill them in. Out, of each BIND: @rkey and @remote_addr
 * @count: Their number, 1 to IB_MEMREG_BATCH_MAX
 * @taken: Number of work requests that were posted: all if the call returns 0,
 *	otherwise those before the one that failed. May be NULL.
 *
 * They are posted in this order; if the call fails, those before the one that
 * failed stay posted. -EAGAIN means that there is no room for that one now:
 * consume completions of the ring, and submit again from it on. If no work is
 * in flight that will complete, submit again at once: another call may have
 * reserved the room for a moment. Work requests that are not signalled keep
 * their room until a later one has completed: see memreg_wr_signal().
 *
 * If the failed work request is between a BIND with IB_MEMREG_WR_INSERT_RKEY
 * and its message, no rkey will be inserted: write the BIND's @rkey there, in
 * network byte order, before submitting the rest.
 *
 * Return: 0; -EINVAL, -EOVERFLOW, -ENOENT (an id), -ENOTCONN (not connected
 * yet, or no longer), -EAGAIN (queue or ring is full), -EACCES (an MR doesn't
 * allow it), -ESTALE (an MR is stale), -EMSGSIZE (a message in too many pieces
 * of memory), -EOPNOTSUPP, -EBUSY (the window is bound; to end it: it is not
 * bound there), -EFAULT, -ENOMEM, -ENOSPC, -EDQUOT, -EINTR, -EIO, -ENODEV.
 */
int memreg_submit(struct memreg *m, struct ib_memreg_wr *wrs,
		  unsigned int count, unsigned int *taken);

/**
 * memreg_submit_recvs() - Post many receives of equal length
 * @m: The handle
 * @target: The endpoint, or a shared receive queue
 * @mr: MR that the messages are to go to, with IB_MEMREG_ACCESS_LOCAL_WRITE
 * @offset: First byte of the first buffer, counted from the start of the MR
 * @length: Bytes of each buffer; the next one begins behind it
 * @first: User data of the first one; each further one has the next number
 * @count: Their number, without a limit
 * @taken: Number of receives that were posted: all if the call returns 0. May
 *	be NULL.
 *
 * Return: 0, also for a @count of 0; as memreg_submit().
 */
int memreg_submit_recvs(struct memreg *m, uint32_t target, uint32_t mr,
			uint64_t offset, uint32_t length, uint64_t first,
			unsigned int count, unsigned int *taken);

/*
 * Each memreg_prep_...() fills in a whole work request. These can be added
 * afterwards: memreg_wr_signal(), memreg_wr_inline(), memreg_wr_sges(),
 * memreg_wr_insert_rkey(), and flags of enum ib_memreg_wr_flags in @wr->flags.
 */

static inline void memreg_prep__clear(struct ib_memreg_wr *wr,
				      enum ib_memreg_opcode opcode,
				      uint32_t target)
{
	memset(wr, 0, sizeof(*wr));
	wr->opcode = (uint16_t)opcode;
	wr->target_id = target;
}

static inline void memreg_prep__local(struct ib_memreg_wr *wr, uint32_t mr,
				      uint64_t offset, uint32_t length)
{
	if (!mr)
		return;
	wr->num_sge = 1;
	wr->sge.mr_id = mr;
	wr->sge.offset = offset;
	wr->sge.length = length;
}

static inline void memreg_prep__remote(struct ib_memreg_wr *wr,
				       uint64_t remote_addr, uint32_t rkey)
{
	wr->remote_addr = remote_addr;
	wr->rkey = rkey;
}

/**
 * memreg_wr_signal() - Have the completion of a work request reported
 * @wr: The work request, prepared
 * @user_data: User data of the completion
 *
 * Those without keep their places on the send queue, and their room in the
 * ring, until a later one of the queue that is signalled has completed, or a
 * BIND or INVALIDATE: so signal one now and then.
 */
static inline void memreg_wr_signal(struct ib_memreg_wr *wr, uint64_t user_data)
{
	wr->flags = (uint16_t)(wr->flags | IB_MEMREG_WR_SIGNALED);
	wr->user_data = user_data;
}

/**
 * memreg_wr_inline() - Let a SEND or WRITE take its data from the program
 * @wr: The work request, prepared
 * @data: The data, which is copied by memreg_submit()
 * @length: Bytes of the data, up to the limit of the queue
 */
static inline void memreg_wr_inline(struct ib_memreg_wr *wr, const void *data,
				    uint32_t length)
{
	memset(&wr->sge, 0, sizeof(wr->sge));
	wr->num_sge = 0;
	wr->flags = (uint16_t)(wr->flags | IB_MEMREG_WR_INLINE);
	wr->sges = (uint64_t)(uintptr_t)data;
	wr->length = length;
}

/**
 * memreg_wr_sges() - Give a work request several ranges of local memory
 * @wr: The work request, prepared
 * @sges: Array of @count ranges, to stay until memreg_submit() returns
 * @count: Number of SGEs, up to the limit of the queue
 */
static inline void memreg_wr_sges(struct ib_memreg_wr *wr,
				  const struct ib_memreg_sge *sges,
				  uint32_t count)
{
	memset(&wr->sge, 0, sizeof(wr->sge));
	wr->num_sge = count;
	wr->sges = 0;
	if (count == 1)
		wr->sge = *sges;
	else if (count)
		wr->sges = (uint64_t)(uintptr_t)sges;
}

/**
 * memreg_wr_insert_rkey() - Let a BIND write its rkey into the next message
 * @wr: The BIND, prepared
 * @at: First of 4 bytes for the rkey, in network byte order, in the inline data
 *	of the message: the next work request of the call that is neither about
 *	a window nor a receive, with the same target and no work request to
 *	another target in between. A message takes up to IB_MEMREG_INSERTS_MAX
 *	rkeys.
 */
static inline void memreg_wr_insert_rkey(struct ib_memreg_wr *wr, uint32_t at)
{
	wr->flags = (uint16_t)(wr->flags | IB_MEMREG_WR_INSERT_RKEY);
	wr->insert_at = at;
}

/**
 * memreg_prep_send() - Prepare to send a message
 * @wr: Filled in
 * @endpoint: The endpoint
 * @mr: MR that the message is in; 0 for none: an empty message, or one that
 *	memreg_wr_inline() or memreg_wr_sges() adds
 * @offset: Its first byte, counted from the start of the MR
 * @length: Its bytes
 */
static inline void memreg_prep_send(struct ib_memreg_wr *wr, uint32_t endpoint,
				    uint32_t mr, uint64_t offset,
				    uint32_t length)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_SEND, endpoint);
	memreg_prep__local(wr, mr, offset, length);
}

/**
 * memreg_prep_send_inline() - Prepare to send a message of inline data
 * @wr: Filled in
 * @endpoint: The endpoint
 * @data: The message, which is copied by memreg_submit()
 * @length: Length in bytes, up to the limit of the queue
 */
static inline void memreg_prep_send_inline(struct ib_memreg_wr *wr,
					   uint32_t endpoint, const void *data,
					   uint32_t length)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_SEND, endpoint);
	memreg_wr_inline(wr, data, length);
}

/**
 * memreg_prep_send_imm() - Prepare to send a message with immediate data
 * @wr: Filled in
 * @endpoint: The endpoint
 * @mr: As with memreg_prep_send()
 * @offset: As with memreg_prep_send()
 * @length: As with memreg_prep_send()
 * @imm: Immediate data, in network byte order
 */
static inline void memreg_prep_send_imm(struct ib_memreg_wr *wr,
					uint32_t endpoint, uint32_t mr,
					uint64_t offset, uint32_t length,
					uint32_t imm)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_SEND_WITH_IMM, endpoint);
	memreg_prep__local(wr, mr, offset, length);
	wr->ex = imm;
}

/**
 * memreg_prep_send_inv() - Prepare to send a message that ends a peer's key
 * @wr: Filled in
 * @endpoint: The endpoint
 * @mr: As with memreg_prep_send()
 * @offset: As with memreg_prep_send()
 * @length: As with memreg_prep_send()
 * @rkey: Key that the peer has granted, to be invalidated
 */
static inline void memreg_prep_send_inv(struct ib_memreg_wr *wr,
					uint32_t endpoint, uint32_t mr,
					uint64_t offset, uint32_t length,
					uint32_t rkey)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_SEND_WITH_INV, endpoint);
	memreg_prep__local(wr, mr, offset, length);
	wr->ex = rkey;
}

/**
 * memreg_prep_write() - Prepare to write to the peer's memory
 * @wr: Filled in
 * @endpoint: The endpoint
 * @mr: MR that the data is in, as with memreg_prep_send()
 * @offset: Its first byte, counted from the start of the MR
 * @length: Its bytes
 * @remote_addr: Destination address
 * @rkey: Key for that
 */
static inline void memreg_prep_write(struct ib_memreg_wr *wr,
				     uint32_t endpoint, uint32_t mr,
				     uint64_t offset, uint32_t length,
				     uint64_t remote_addr, uint32_t rkey)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_WRITE, endpoint);
	memreg_prep__local(wr, mr, offset, length);
	memreg_prep__remote(wr, remote_addr, rkey);
}

/**
 * memreg_prep_write_inline() - Prepare to write inline data to a peer's memory
 * @wr: Filled in
 * @endpoint: The endpoint
 * @data: The data, which is copied by memreg_submit()
 * @length: Length in bytes, up to the limit of the queue
 * @remote_addr: Destination address
 * @rkey: Key for that
 */
static inline void memreg_prep_write_inline(struct ib_memreg_wr *wr,
					    uint32_t endpoint,
					    const void *data, uint32_t length,
					    uint64_t remote_addr,
					    uint32_t rkey)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_WRITE, endpoint);
	memreg_wr_inline(wr, data, length);
	memreg_prep__remote(wr, remote_addr, rkey);
}

/**
 * memreg_prep_write_imm() - Prepare to write to the peer's memory and notify it
 * @wr: Filled in
 * @endpoint: The endpoint
 * @mr: As with memreg_prep_write()
 * @offset: As with memreg_prep_write()
 * @length: As with memreg_prep_write()
 * @remote_addr: As with memreg_prep_write()
 * @rkey: As with memreg_prep_write()
 * @imm: Immediate data, in network byte order; a receive of the peer takes it
 */
static inline void memreg_prep_write_imm(struct ib_memreg_wr *wr,
					 uint32_t endpoint, uint32_t mr,
					 uint64_t offset, uint32_t length,
					 uint64_t remote_addr, uint32_t rkey,
					 uint32_t imm)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_WRITE_WITH_IMM, endpoint);
	memreg_prep__local(wr, mr, offset, length);
	memreg_prep__remote(wr, remote_addr, rkey);
	wr->ex = imm;
}

/**
 * memreg_prep_read() - Prepare to read from the peer's memory
 * @wr: Filled in
 * @endpoint: The endpoint
 * @mr: MR that the data is to go to, with IB_MEMREG_ACCESS_LOCAL_WRITE
 * @offset: First byte there, counted from the start of the MR
 * @length: Bytes
 * @remote_addr: Source address
 * @rkey: Key for that
 */
static inline void memreg_prep_read(struct ib_memreg_wr *wr, uint32_t endpoint,
				    uint32_t mr, uint64_t offset,
				    uint32_t length, uint64_t remote_addr,
				    uint32_t rkey)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_READ, endpoint);
	memreg_prep__local(wr, mr, offset, length);
	memreg_prep__remote(wr, remote_addr, rkey);
}

/**
 * memreg_prep_cmp_swap() - Prepare to compare and swap 8 bytes of the peer
 * @wr: Filled in
 * @endpoint: The endpoint
 * @mr: MR for the old value, with IB_MEMREG_ACCESS_LOCAL_WRITE
 * @offset: First of 8 bytes there, counted from the start of the MR
 * @remote_addr: Address of the 8 bytes, a multiple of 8
 * @rkey: Key for that
 * @compare: Value to compare the 8 bytes with
 * @swap: Value that replaces them if they are equal
 */
static inline void memreg_prep_cmp_swap(struct ib_memreg_wr *wr,
					uint32_t endpoint, uint32_t mr,
					uint64_t offset, uint64_t remote_addr,
					uint32_t rkey, uint64_t compare,
					uint64_t swap)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_CMP_AND_SWP, endpoint);
	memreg_prep__local(wr, mr, offset, 8);
	memreg_prep__remote(wr, remote_addr, rkey);
	wr->compare_add = compare;
	wr->swap = swap;
}

/**
 * memreg_prep_fetch_add() - Prepare to add to 8 bytes of the peer
 * @wr: Filled in
 * @endpoint: The endpoint
 * @mr: As with memreg_prep_cmp_swap()
 * @offset: As with memreg_prep_cmp_swap()
 * @remote_addr: As with memreg_prep_cmp_swap()
 * @rkey: As with memreg_prep_cmp_swap()
 * @add: Value to add
 */
static inline void memreg_prep_fetch_add(struct ib_memreg_wr *wr,
					 uint32_t endpoint, uint32_t mr,
					 uint64_t offset, uint64_t remote_addr,
					 uint32_t rkey, uint64_t add)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_FETCH_AND_ADD, endpoint);
	memreg_prep__local(wr, mr, offset, 8);
	memreg_prep__remote(wr, remote_addr, rkey);
	wr->compare_add = add;
}

/**
 * memreg_prep_recv() - Prepare a buffer for a message
 * @wr: Filled in
 * @target: The endpoint, or a shared receive queue
 * @mr: MR that the message is to go to, with IB_MEMREG_ACCESS_LOCAL_WRITE; 0
 *	for none: for a message that is empty, or if memreg_wr_sges() adds them
 * @offset: First byte there, counted from the start of the MR
 * @length: Bytes that there is room for
 * @user_data: User data of the completion, which is always reported
 */
static inline void memreg_prep_recv(struct ib_memreg_wr *wr, uint32_t target,
				    uint32_t mr, uint64_t offset,
				    uint32_t length, uint64_t user_data)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_RECV, target);
	memreg_prep__local(wr, mr, offset, length);
	wr->user_data = user_data;
}

/**
 * memreg_prep_bind() - Prepare to bind a window of type 2B
 * @wr: Filled in
 * @endpoint: The endpoint with whose connection the window ends at the latest
 * @window: The window, of the endpoint's domain, not bound
 * @mr: MR with IB_MEMREG_ACCESS_MW_BIND
 * @offset: First byte of the grant, counted from the start of the MR
 * @length: Its bytes
 * @access: As in struct ib_memreg_bind
 *
 * For a window that ends with a lease, set @wr->lease_id behind it.
 */
static inline void memreg_prep_bind(struct ib_memreg_wr *wr, uint32_t endpoint,
				    uint32_t window, uint32_t mr,
				    uint64_t offset, uint32_t length,
				    uint32_t access)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_BIND, endpoint);
	wr->sge.mr_id = mr;
	wr->sge.offset = offset;
	wr->sge.length = length;
	wr->window_id = window;
	wr->access = access;
}

/**
 * memreg_prep_invalidate() - Prepare to end a window of type 2B
 * @wr: Filled in
 * @endpoint: The endpoint that it was bound on
 * @window: The window
 */
static inline void memreg_prep_invalidate(struct ib_memreg_wr *wr,
					  uint32_t endpoint, uint32_t window)
{
	memreg_prep__clear(wr, IB_MEMREG_OP_INVALIDATE, endpoint);
	wr->window_id = window;
}

/**
 * memreg_wc_status_string() - How a work request ended, in words
 * @status: enum ib_memreg_wc_status
 *
 * Return: A constant string, such as "the peer refuses the access". Never NULL.
 */
const char *memreg_wc_status_string(uint32_t status);

/**
 * memreg_cqe_reason() - How a work request ended, in words that fit its opcode
 * @cqe: Its completion
 *
 * Return: A constant string, such as "the peer has no buffer for the message"
 * of a SEND, where a READ was one that the peer was not ready for. Never NULL.
 */
const char *memreg_cqe_reason(const struct ib_memreg_cqe *cqe);

/**
 * memreg_opcode_string() - The name of an opcode
 * @opcode: enum ib_memreg_opcode
 *
 * Return: A constant string, such as "SEND_WITH_INV". Never NULL.
 */
const char *memreg_opcode_string(uint32_t opcode);

/* Grants: keys in the format of private data */

/**
 * memreg_grant_encode() - Write a grant as the 32 bytes of private data
 * @grant: The grant
 * @buf: MEMREG_GRANT_SIZE bytes, any alignment
 *
 * All of them are in network byte order:
 *
 * ======  =====  =============================================================
 * offset  bytes  meaning
 * ======  =====  =============================================================
 * 0       4      0x6d726567, "mreg"
 * 4       2      version: 1
 * 6       2      enum ib_memreg_access; flags above bit 15 are not transmitted
 * 8       8      first I/O address
 * 16      8      length in bytes
 * 24      4      remote key
 * 28      4      0, to be ignored by the receiver
 * ======  =====  =============================================================
 *
 * The kernel does not look at private data: any other format is as good.
 */
void memreg_grant_encode(const struct memreg_grant *grant, void *buf);

/**
 * memreg_grant_decode() - Read a grant from private data
 * @buf: The private data, any alignment
 * @len: Bytes of the data; those beyond MEMREG_GRANT_SIZE are ignored, as the
 *	RDMA CM pads private data
 * @grant: Filled in
 *
 * Return: 0; -EINVAL (too short, or no grant), -EOPNOTSUPP (a version that
 * this library doesn't know).
 */
int memreg_grant_decode(const void *buf, size_t len,
			struct memreg_grant *grant);

/**
 * memreg_mr_grants() - List the keys of an MR as grants
 * @m: The handle
 * @mr: The MR's id
 * @grants: Array to be filled, in the order of the bytes of the MR; may be
 *	NULL if *@count is 0
 * @count: In: entries that @grants has room for. Out: keys that the MR has;
 *	entries are written only if there is room for all.
 *
 * A composition has as many keys as memreg_mr_compose() describes, and a long
 * MR one for each IB_MEMREG_CAP_KEY_SPAN.
 *
 * Return: 0; -ENOSPC (@count; also if the MR got more keys meanwhile), -EACCES
 * (the MR has no remote access), -ENOMEM, and as memreg_mr_query().
 */
int memreg_mr_grants(struct memreg *m, uint32_t mr, struct memreg_grant *grants,
		     unsigned int *count);

/**
 * memreg_grants_encode() - Write a list of grants
 * @grants: The grants, in the order of the bytes that they are
 * @count: Their number, 1 to MEMREG_GRANTS_MAX
 * @buf: MEMREG_GRANTS_SIZE(@count) bytes, any alignment
 *
 * For a composition whose keys are many. Private data has room for few: send
 * the list in a message, or grant the peer a window on it to READ.
 *
 * A header, and an entry for each grant, all in network byte order:
 *
 * ======  =====  =============================================================
 * offset  bytes  meaning
 * ======  =====  =============================================================
 * 0       4      0x6d726567, "mreg"
 * 4       2      version: 2
 * 6       2      0, to be ignored by the receiver
 * 8       4      number of entries
 * 12      4      0, to be ignored by the receiver
 * 16      8      first entry: first I/O address
 * 24      8      length in bytes, from 1
 * 32      4      remote key
 * 36      2      enum ib_memreg_access; flags above bit 15 are not transmitted
 * 38      2      0, to be ignored by the receiver
 * 40             second entry
 * ======  =====  =============================================================
 */
void memreg_grants_encode(const struct memreg_grant *grants, unsigned int count,
			  void *buf);

/**
 * memreg_grants_decode() - Read a list of grants
 * @buf: The list, or a single grant of memreg_grant_encode(); any alignment
 * @len: Bytes of the data; those beyond the list are ignored
 * @grants: Array to be filled; may be NULL if *@count is 0
 * @count: In: entries that @grants has room for. Out: entries of the list
 *
 * The data may be of any peer: no entry is empty or wraps, nor does the sum of
 * their lengths. It must not change during the call: copy it first if the peer
 * can still write it. A call that fails writes to @grants nothing, and to
 * @count only with -ENOSPC. memreg_transfer_plan() makes WRITEs or READs of the
 * result.
 *
 * Return: 0; -EINVAL (too short for what it says, or no list), -EOPNOTSUPP (a
 * version that this library doesn't know), -ENOSPC (@count).
 */
int memreg_grants_decode(const void *buf, size_t len,
			 struct memreg_grant *grants, unsigned int *count);

/*
 * Listing objects
 */

/**
 * memreg_list_open() - Begin to list the live objects
 * @out: The walk, to be ended by memreg_list_close()
 *
 * Objects of all files of the caller's user, or of all users with
 * CAP_SYS_ADMIN. A walk is for one thread at a time.
 *
 * Return: 0; -ENOENT (the module is not loaded), -EACCES, -ENOMEM, -EMFILE.
 */
int memreg_list_open(struct memreg_list **out);

/**
 * memreg_list_next() - The next object
 * @list: The walk
 * @object: Filled in
 * @size: sizeof(*@object); fields that the kernel doesn't know become 0
 *
 * Return: 1 if there was one, 0 at the end; -EINVAL (@size), -EINTR, -ENOMEM.
 */
int memreg_list_next(struct memreg_list *list, struct ib_memreg_object *object,
		     size_t size);

/**
 * memreg_list_close() - End a walk
 * @list: The walk, or NULL
 */
void memreg_list_close(struct memreg_list *list);

/*
 * Why it failed
 */

/**
 * memreg_reason() - Why the last call that failed in this thread did so
 *
 * One line of English without a final newline, such as "mr_register: the memory
 * can't be pinned: ... (EFAULT)", often with a hint. The line is for people:
 * programs should use the returned errno, and memreg_reason_code().
 *
 * Return: A string that lives until the next call that fails in this thread,
 * and at most as long as the thread; "" if none has failed. Never NULL.
 */
const char *memreg_reason(void);

/**
 * memreg_reason_code() - The kernel's code for the reason of the last failure
 *
 * Return: enum ib_memreg_reason of the last call that failed in this thread;
 * IB_MEMREG_REASON_NONE if the kernel gave none.
 */
uint32_t memreg_reason_code(void);

/**
 * memreg_reason_text() - A reason code in words
 * @code: enum ib_memreg_reason
 *
 * Return: A constant string. Never NULL.
 */
const char *memreg_reason_text(uint32_t code);

#ifdef __cplusplus
}
#endif

#endif /* MEMREG_H */
