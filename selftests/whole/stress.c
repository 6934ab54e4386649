// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls race: each with each, and with all that can happen to the memory, the
 * process, the device and the network behind them.
 *
 * A table has the actions: calls, changes of the mapping, and processes that
 * come and go. For each pair of them an owner, a process of its own, has one
 * thread do the one and another thread do the other, on objects that all share,
 * at random but for the seed. Its peer, another process, connects, is connected
 * to, sends messages, which may end a window, and disconnects all the time.
 * Ends of the owner, and removals of its device, race with all actions
 * likewise.
 *
 * Whatever the outcome, a call that fails must do so with an errno that is
 * documented for it (I8), a mapping that is gone has no live key (I2), and
 * in the end nothing is left (I7).
 *
 * The seed is printed; MEMREG_SEED repeats it. MEMREG_ACTIONS=bind,munmap races
 * nothing but these with one another.
 *
 * time limit: 600
 * soak in parts: 12
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "calls.h"
#include "harness.h"
#include "net.h"
#include "raw.h"
#include "reclaim.h"
#include "ring.h"
#include "state.h"
#include "test.h"

#define DOMAINS		2
#define PINNED		8	/* MRs whose memory is pinned */
#define POOLS		2
#define POOL_BUFFERS	8U
#define MEMORY_LEN	(32 * PAGE)
#define WINDOWS		12
#define ENDPOINTS	6
#define AREAS		4
#define AREA_LEN	(4 * PAGE)
#define IMPLICIT	(PINNED + AREAS)
#define MRS		(IMPLICIT + 1)
#define BATCH		4
#define RINGS		2
#define RING_ENTRIES	256
#define MONITORS	8
#define LEASES		8
#define PEERS		4	/* connections of the peer's that come up */

/* Addresses for the areas, far from where the kernel maps anything by itself */
#define AREA(i)		((char *)0x200000000000 + (uintptr_t)(i) * (1 << 20))
#define AWAY(i)		(AREA(i) + (1 << 19))

/* The last area maps a file, which always has this descriptor. */
#define FILE_AREA	(AREAS - 1)
#define FILE_FD		210

/* Addresses and descriptors of the rings, which are always the same */
#define RING_AT(i)	(AREA(AREAS) + (uintptr_t)(i) * (1 << 20))
#define RING_SIZE	(16384 + PAGE)
#define RING_FD(i)	(200 + (i))

/* A window goes by its domain */
#define WINDOW(id, domain)	((__u64)(domain) << 32 | (id))

/*
 * An MR as threads keep it: its file and its id, as the id names another object
 * in another file
 */
#define MR(w, id)		((__u64)(w)->file << 32 | (id))

/**
 * struct failure - The first failure
 * @action: Action that failed
 * @what: The call that failed, or a description of the failure
 * @err: Errno, if a call failed
 */
struct failure {
	char action[32];
	char what[48];
	int err;
};

/**
 * struct shared - State that all processes of a test share
 * @files: Times that the owner's file began to be replaced by another
 * @files_done: Times that this was done
 * @domains: Ids of objects, 0 where there is none
 * @mrs: As MR() makes them, or 0; MR i is on area i % AREAS. Those that follow
 *	the first PINNED are on demand, the last one of them the whole address
 *	space
 * @pools: Ids, or 0, of POOL_BUFFERS buffers each
 * @windows: As WINDOW() makes them
 * @bound: Windows of type 2B, likewise
 * @rings: Ids
 * @status: Id of a status table
 * @monitors: Ids
 * @leases: Likewise
 * @srq: Id, as WINDOW() makes it
 * @listener: Id
 * @endpoints: Ids
 * @port: Port that the owner listens on
 * @peer_port: Port that the peer listens on
 * @peer_addr: Memory of the peer's that can be written and read
 * @peer_rkey: Key for it
 * @entries_at: Offset of the entries of a ring
 * @rkey: Key of a window of type 2B of the owner's
 * @received: Messages that the owner saw arrive
 * @ended: Windows that they ended
 * @by_uring: Commands of io_uring that were carried out
 * @advised: Pages that were pinned, or let go of, by advice
 * @kicks: Times that the peer was asked to disconnect
 * @rest: Makes the peer close its files
 * @resting: It has none
 * @stop: Makes the peer end, and workers without a limit
 * @calls: Calls that were made
 * @succeeded: Number of calls of each number that succeeded
 * @failed: Taken by the one worker that reports its failure
 * @failure: The failure
 */
struct shared {
	_Atomic unsigned int files;
	_Atomic unsigned int files_done;
	_Atomic __u32 domains[DOMAINS];
	_Atomic __u64 mrs[MRS];
	_Atomic __u32 pools[POOLS];
	_Atomic __u64 windows[WINDOWS];
	_Atomic __u64 bound[WINDOWS];
	_Atomic __u32 rings[RINGS];
	_Atomic __u32 status;
	_Atomic __u32 monitors[MONITORS];
	_Atomic __u32 leases[LEASES];
	_Atomic __u64 srq;
	_Atomic __u32 listener;
	_Atomic __u32 endpoints[ENDPOINTS];
	_Atomic unsigned int port;
	_Atomic unsigned int peer_port;
	_Atomic __u64 peer_addr;
	_Atomic __u32 peer_rkey;
	_Atomic __u32 entries_at;
	_Atomic __u32 rkey;
	_Atomic unsigned long received;
	_Atomic unsigned long ended;
	_Atomic unsigned long by_uring;
	_Atomic unsigned long advised;
	_Atomic unsigned int kicks;
	_Atomic bool rest;
	_Atomic bool resting;
	_Atomic bool stop;
	_Atomic unsigned long calls;
	_Atomic unsigned long succeeded[CALL_NRS];
	_Atomic bool failed;
	struct failure failure;
};

static struct shared *shared;

/*
 * The file of this process, owner or peer, which always has the same descriptor
 */
static int fd;

struct worker;

/**
 * struct action - Something that is done again and again
 * @name: Its name
 * @run: Does it once
 */
struct action {
	const char *name;
	void (*run)(struct worker *w);
};

/**
 * struct worker - A thread
 * @thread: The thread
 * @action: Its action, or NULL for a random action each time
 * @now: Its present action
 * @seed: Seed of its random numbers
 * @least: Times to do it at least, and then until @other is through; 0 for ever
 * @done: Times that it did it
 * @file: Files that had been replaced when its present action began
 * @other: The one that it races with, or NULL
 * @crowd: All workers of the process
 * @ncrowd: Their number
 * @gone: A call failed because the device is gone
 * @peer: Thread of the peer process, whose calls are left out of the statistics
 */
struct worker {
	pthread_t thread;
	const struct action *action;
	const struct action *now;
	unsigned int seed;
	unsigned int least;
	_Atomic unsigned int done;
	_Atomic unsigned int file;
	struct worker *other;
	const struct worker *crowd;
	unsigned int ncrowd;
	bool gone;
	bool peer;
};

static unsigned int pick(struct worker *w, unsigned int count)
{
	return (unsigned int)rand_r(&w->seed) / 8 % count;
}

static void fail(struct worker *w, const char *what, int err)
{
	if (atomic_exchange(&shared->failed, true))
		return;
	snprintf(shared->failure.action, sizeof(shared->failure.action), "%s",
		 w->now->name);
	snprintf(shared->failure.what, sizeof(shared->failure.what), "%s",
		 what);
	shared->failure.err = err;
}

/*
 * Check the result of a call against its documented errnos, and count it.
 * Returns @ret.
 */
static int note(struct worker *w, unsigned long num, int ret)
{
	const struct call *call = call_of(num);

	shared->calls += !w->peer;
	shared->succeeded[_IOC_NR(num)] += !ret && !w->peer;
	w->gone |= ret == -ENODEV;
	if (ret && !call_documents(call, -ret))
		fail(w, call->name, -ret);
	return ret;
}

#define NOTE(_w, _call, _ret)	note(_w, IB_MEMREG_IOC_##_call, _ret)

/*
 * Objects, which anybody may use and replace
 */

static void destroy(struct worker *w, __u32 id)
{
	if (id)
		NOTE(w, DESTROY, raw_destroy(fd, id));
}

/* Nobody is to use it any more */
static void forget(_Atomic __u32 *slots, unsigned int count, __u32 id)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		__u32 expected = id;

		atomic_compare_exchange_strong(&slots[i], &expected, 0);
	}
}

/* If a call on a domain failed with ENOENT, no longer use its id. */
static void forget_domain(__u32 id, int ret)
{
	if (ret == -ENOENT)
		forget(shared->domains, DOMAINS, id);
}

static void forget_wide(_Atomic __u64 *slots, unsigned int count, __u64 value)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		__u64 expected = value;

		atomic_compare_exchange_strong(&slots[i], &expected, 0);
	}
}

static void forget_window(__u32 id, __u32 domain)
{
	forget_wide(shared->windows, WINDOWS, WINDOW(id, domain));
}

static void forget_mr(struct worker *w, __u32 id)
{
	forget_wide(shared->mrs, MRS, MR(w, id));
}

static __u32 domain_get(struct worker *w)
{
	unsigned int i = pick(w, DOMAINS);
	__u32 id = shared->domains[i], none = 0;

	if (id)
		return id;
	if (NOTE(w, DOMAIN_CREATE, raw_domain(fd, &id)))
		return 0;
	if (!atomic_compare_exchange_strong(&shared->domains[i], &none, id))
		destroy(w, id);
	return shared->domains[i];
}

/* A time that soon comes, or never */
static __u64 some_deadline(struct worker *w)
{
	return pick(w, 3) ? boottime_ns() + pick(w, 50) * MS : ~0ULL;
}

/* A lease, which may have ended, or 0 */
static __u32 lease_get(struct worker *w)
{
	unsigned int i = pick(w, LEASES);
	__u32 id = shared->leases[i], none = 0;

	if (id)
		return id;
	if (NOTE(w, LEASE_CREATE, raw_lease(fd, some_deadline(w), &id)))
		return 0;
	if (!atomic_compare_exchange_strong(&shared->leases[i], &none, id))
		destroy(w, id);
	return shared->leases[i];
}

/* If a call with a lease failed, no longer use it. */
static void lease_over(struct worker *w, __u32 id, int ret)
{
	if (ret != -ESTALE && ret != -ENOENT)
		return;
	forget(shared->leases, LEASES, id);
	destroy(w, id);
}

/* Access flags of MRs; some have keys of their own */
static __u32 some_access(struct worker *w)
{
	static const __u32 access[] = {
		LOCAL_WRITE | MW_BIND,
		LOCAL_WRITE | MW_BIND,
		LOCAL_WRITE | MW_BIND | REMOTE_WRITE,
		MW_BIND | REMOTE_READ,
	};

	return access[pick(w, ARRAY_LEN(access))];
}

/* Kind of the MR of a slot */
static __u32 slot_flags(unsigned int slot)
{
	if (slot < PINNED)
		return 0;
	return IB_MEMREG_MR_ON_DEMAND |
	       (slot == IMPLICIT ? IB_MEMREG_MR_IMPLICIT : 0);
}

/* Index of an MR at random, or of one on demand */
static unsigned int some_slot(struct worker *w, bool on_demand)
{
	return on_demand ? PINNED + pick(w, MRS - PINNED) : pick(w, MRS);
}

/* Register the area of a slot; returns the id, or 0 */
static __u32 register_area(struct worker *w, unsigned int i, __u32 flags)
{
	RAW(mr_register, cmd, .flags = flags, .domain_id = domain_get(w),
	    .access = some_access(w), .addr = (uintptr_t)AREA(i % AREAS),
	    .length = AREA_LEN);

	int ret;

	if (flags & IB_MEMREG_MR_ON_DEMAND)
		cmd.access &= FOR_WINDOWS;
	if (flags & IB_MEMREG_MR_IMPLICIT) {
		cmd.addr = 0;
		cmd.length = 0;
	}
	ret = NOTE(w, MR_REGISTER,
		   raw_call(fd, IB_MEMREG_IOC_MR_REGISTER, &cmd));
	forget_domain(cmd.domain_id, ret);
	return ret ? 0 : cmd.out_mr_id;
}

static bool mr_is_here(struct worker *w, __u64 mr)
{
	return mr && mr >> 32 == w->file;
}

static __u32 mr_get(struct worker *w, unsigned int i)
{
	__u64 mr = shared->mrs[i];
	__u32 id;

	if (mr_is_here(w, mr))
		return (__u32)mr;
	id = register_area(w, i, slot_flags(i));
	if (!id ||
	    atomic_compare_exchange_strong(&shared->mrs[i], &mr, MR(w, id)))
		return id;
	destroy(w, id);
	return mr_is_here(w, mr) ? (__u32)mr : 0;
}

/* Have an MR in a slot instead of the one that is there */
static void mr_put(struct worker *w, unsigned int i, __u32 id)
{
	__u64 old = atomic_exchange(&shared->mrs[i], id ? MR(w, id) : 0);

	if (mr_is_here(w, old))
		destroy(w, (__u32)old);
}

/* A range at random in an MR's area */
static struct ib_memreg_sge some_range(struct worker *w, bool on_demand)
{
	unsigned int slot = some_slot(w, on_demand);
	struct ib_memreg_sge sge = {
		.mr_id = mr_get(w, slot),
		.offset = pick(w, AREA_LEN / 2),
		.length = 1 + pick(w, AREA_LEN / 2),
	};

	if (slot == IMPLICIT)
		sge.offset += (uintptr_t)AREA(pick(w, AREAS));
	return sge;
}

/*
 * After a failed call, destroy or forget the MR if it would fail again and
 * again.
 */
static void mr_over(struct worker *w, __u32 id, int ret, __u32 reason)
{
	/* The MR is stale, or on demand and of a process that has ended. */
	if (ret == -ESTALE || reason == IB_MEMREG_REASON_PROCESS)
		destroy(w, id);
	else if (ret != -ENOENT && reason != IB_MEMREG_REASON_RANGE &&
		 reason != IB_MEMREG_REASON_NOT_ON_DEMAND)
		return;
	forget_mr(w, id);
}

/* Make windows for some of the slots, and destroy the old ones */
static void windows_put(struct worker *w)
{
	__u32 ids[BATCH], domain = domain_get(w);
	unsigned int i, slot = pick(w, WINDOWS);
	__u64 old;
	int ret;

	ret = NOTE(w, WINDOW_ALLOC, raw_windows(fd, domain, AREA_LEN, ids,
						BATCH));
	forget_domain(domain, ret);
	if (ret)
		return;
	for (i = 0; i < BATCH; i++, slot = (slot + 1) % WINDOWS) {
		old = atomic_exchange(&shared->windows[slot],
				      WINDOW(ids[i], domain));
		destroy(w, (__u32)old);
	}
}

/* Some windows of one domain; returns their number */
static unsigned int windows_get(struct worker *w, __u32 *ids, __u32 *domain)
{
	unsigned int first = pick(w, WINDOWS), most = 1 + pick(w, BATCH);
	unsigned int i, n = 0;
	__u64 window;

	*domain = 0;
	for (i = 0; i < WINDOWS && n < most; i++) {
		window = shared->windows[(first + i) % WINDOWS];
		if (!window || (n && window >> 32 != *domain))
			continue;
		*domain = window >> 32;
		ids[n++] = (__u32)window;
	}
	return n;
}

/* Read events, and remember the endpoints of the owner that they name. */
static void events_read(struct worker *w)
{
	struct ib_memreg_event event;
	_Atomic __u32 *slot;
	ssize_t n;

	while ((n = read(fd, &event, sizeof(event))) == sizeof(event)) {
		shared->calls++;
		slot = &shared->endpoints[pick(w, ENDPOINTS)];
		if (event.type == IB_MEMREG_EVENT_CONNECT_REQUEST)
			destroy(w, atomic_exchange(slot, event.endpoint_id));
	}
	if (n >= 0)
		fail(w, "read(2) returns what is no record", 0);
	else if (errno == ENODEV)
		w->gone = true;
	else if (errno != EAGAIN)
		fail(w, "read(2)", errno);
}

static __u32 endpoint_get(struct worker *w)
{
	_Atomic __u32 *slot = &shared->endpoints[pick(w, ENDPOINTS)];
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	if (!*slot && poll(&pfd, 1, 1) >= 0)
		events_read(w);
	return *slot;
}

/* A call on an endpoint failed, as a rule because it has no connection */
static void endpoint_over(struct worker *w, __u32 id, int ret)
{
	if (ret != -ENOENT && ret != -ENOTCONN)
		return;
	forget(shared->endpoints, ENDPOINTS, id);
	destroy(w, id);
}

/*
 * Actions: calls
 */

static void do_register(struct worker *w)
{
	static const __u32 flags[] = { 0, 0, 0, IB_MEMREG_MR_UNGUARDED };
	unsigned int i = pick(w, MRS);
	__u32 id = register_area(w, i, i < PINNED ? flags[pick(w, 4)] :
						    slot_flags(i));

	mr_put(w, i, id);
}

/* Change an MR, maybe to another area, and move it to that area's slot */
static void do_reregister(struct worker *w)
{
	unsigned int slot = pick(w, MRS), to = slot;
	RAW(mr_reregister, cmd, .flags = 1 + pick(w, 7),
	    .mr_id = mr_get(w, slot));
	int ret;

	if (cmd.flags & IB_MEMREG_REREG_DOMAIN)
		cmd.domain_id = domain_get(w);
	if (cmd.flags & IB_MEMREG_REREG_ACCESS)
		cmd.access = FOR_WINDOWS;
	if (cmd.flags & IB_MEMREG_REREG_TRANSLATION) {
		to = pick(w, MRS);
		cmd.mr_flags = slot_flags(to);
	}
	if (cmd.flags & IB_MEMREG_REREG_TRANSLATION && to != IMPLICIT) {
		cmd.addr = (uintptr_t)AREA(to % AREAS);
		cmd.length = AREA_LEN;
	}
	ret = NOTE(w, MR_REREGISTER,
		   raw_call(fd, IB_MEMREG_IOC_MR_REREGISTER, &cmd));
	forget_domain(cmd.domain_id, ret);
	if (ret)
		mr_over(w, cmd.mr_id, ret, raw_reason());
	if (ret || to == slot)
		return;
	forget_mr(w, cmd.mr_id);
	mr_put(w, to, cmd.mr_id);
}

static void do_deregister(struct worker *w)
{
	unsigned int i = pick(w, MRS);
	__u32 id = mr_get(w, i);

	if (NOTE(w, DESTROY, raw_destroy(fd, id)) != -EBUSY)
		forget_mr(w, id);
}

/*
 * Make a memory object, a twin, a mapping and MRs of it, and release them in
 * any order.
 */
static void do_create_memory(struct worker *w)
{
	struct ib_memreg_mr_register mr = {};
	int memory, twin, ret;
	__u32 domain;
	char *at;

	memory = raw_memory(fd, MEMORY_LEN, pick(w, 2));
	if (NOTE(w, MEMORY_CREATE, memory < 0 ? memory : 0))
		return;
	twin = raw_memory_dup(fd, memory);
	NOTE(w, MEMORY_DUP, twin < 0 ? twin : 0);
	at = mmap(NULL, MEMORY_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, memory,
		  0);
	domain = domain_get(w);
	ret = NOTE(w, MR_REGISTER,
		   raw_register_fd(fd, domain, pick(w, 2) ? memory : twin,
				   PAGE / 2, MEMORY_LEN - PAGE,
				   some_access(w), &mr));
	forget_domain(domain, ret);
	close(memory);
	if (at != MAP_FAILED) {
		memset(at + pick(w, MEMORY_LEN / PAGE) * PAGE, 1, PAGE);
		munmap(at, MEMORY_LEN);
	}
	if (!ret)
		destroy(w, mr.out_mr_id);
	if (twin >= 0)
		close(twin);
}

/*
 * Export a part of an MR, have memreg import it under another MR, and end the
 * two in any order.
 */
static void do_export(struct worker *w)
{
	__u32 export, domain, id = mr_get(w, pick(w, PINNED));
	struct ib_memreg_mr_register mr = {};
	int dmabuf, ret;

	dmabuf = raw_export(fd, id, pick(w, 2) * PAGE, PAGE, &export);
	ret = NOTE(w, EXPORT_CREATE, dmabuf < 0 ? dmabuf : 0);
	if (ret) {
		mr_over(w, id, ret, raw_reason());
		return;
	}
	domain = domain_get(w);
	ret = NOTE(w, MR_REGISTER,
		   raw_register_fd(fd, domain, dmabuf, pick(w, 64), PAGE / 2,
				   some_access(w), &mr));
	forget_domain(domain, ret);
	close(dmabuf);
	if (!ret && pick(w, 2))
		destroy(w, mr.out_mr_id);
	if (pick(w, 2))
		NOTE(w, EXPORT_REVOKE, raw_unexport(fd, &export, 1));
	destroy(w, export);
	if (!ret)
		destroy(w, mr.out_mr_id);
}

/* Make a pool over an area of the owner, or over private memory */
static void do_create_pool(struct worker *w)
{
	RAW(pool_create, cmd, .domain_id = domain_get(w),
	    .access = LOCAL_WRITE | REMOTE_READ, .count = POOL_BUFFERS,
	    .buffer_size = AREA_LEN / POOL_BUFFERS,
	    .addr = (uintptr_t)AREA(pick(w, AREAS)));
	_Atomic __u32 *slot = &shared->pools[pick(w, POOLS)];
	int ret;

	if (pick(w, 2)) {
		cmd.fd = raw_memory(fd, AREA_LEN, 0);
		if (NOTE(w, MEMORY_CREATE, cmd.fd < 0 ? cmd.fd : 0))
			return;
		cmd.flags = IB_MEMREG_MR_FD;
		cmd.addr = 0;
	}
	ret = NOTE(w, POOL_CREATE,
		   raw_call(fd, IB_MEMREG_IOC_POOL_CREATE, &cmd));
	forget_domain(cmd.domain_id, ret);
	if (cmd.flags)
		close(cmd.fd);
	if (ret)
		return;
	close(cmd.out_table_fd);
	destroy(w, atomic_exchange(slot, cmd.out_mr_id));
}

static void do_recycle(struct worker *w)
{
	__u32 indices[POOL_BUFFERS], i, id = shared->pools[pick(w, POOLS)];
	RAW(pool_recycle, cmd, .flags = pick(w, 2), .mr_id = id,
	    .count = 1 + pick(w, POOL_BUFFERS),
	    .indices = (uintptr_t)indices);
	int ret;

	if (!id) {
		do_create_pool(w);
		return;
	}
	for (i = 0; i < POOL_BUFFERS; i++)
		indices[i] = (i + cmd.count) % POOL_BUFFERS;
	ret = NOTE(w, POOL_RECYCLE,
		   raw_call(fd, IB_MEMREG_IOC_POOL_RECYCLE, &cmd));
	if (ret == -ENOENT || ret == -ESTALE) {
		forget(shared->pools, POOLS, id);
		destroy(w, id);
	}
}

static void do_query(struct worker *w)
{
	struct ib_memreg_segment segments[2];
	RAW(mr_query, cmd, .mr_id = mr_get(w, pick(w, MRS)), .count = 2,
	    .segments = (uintptr_t)segments);
	RAW(domain_query, domain, .domain_id = domain_get(w));
	RAW(device_query, device);

	if (NOTE(w, MR_QUERY, raw_call(fd, IB_MEMREG_IOC_MR_QUERY, &cmd)))
		forget_mr(w, cmd.mr_id);
	NOTE(w, DEVICE_QUERY,
	     raw_call(fd, IB_MEMREG_IOC_DEVICE_QUERY, &device));
	forget_domain(domain.domain_id,
		      NOTE(w, DOMAIN_QUERY,
			   raw_call(fd, IB_MEMREG_IOC_DOMAIN_QUERY, &domain)));
}

/* Compose two parts of an MR in that MR's domain, if the choice is right. */
static void do_compose(struct worker *w)
{
	__u32 id = mr_get(w, pick(w, PINNED));
	struct ib_memreg_piece pieces[2] = {
		{ .mr_id = id, .length = PAGE },
		{ .mr_id = id, .offset = 2 * PAGE, .length = 1 + pick(w, 64) },
	};
	RAW(mr_compose, cmd, .domain_id = domain_get(w),
	    .access = pick(w, 2) ? MW_BIND : REMOTE_READ, .count = 2,
	    .pieces = (uintptr_t)pieces);
	int ret;

	ret = NOTE(w, MR_COMPOSE, raw_call(fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd));
	if (ret)
		mr_over(w, id, ret, raw_reason());
	else
		destroy(w, cmd.out_mr_id);
}

/* Replace a status table that has no monitors by another one */
static void do_create_status(struct worker *w)
{
	RAW(status_create, cmd, .slots = MONITORS,
	    .log_entries = pick(w, 2) * 8);
	__u32 old = shared->status;

	if (old && NOTE(w, DESTROY, raw_destroy(fd, old)) == -EBUSY)
		return;
	if (NOTE(w, STATUS_CREATE,
		 raw_call(fd, IB_MEMREG_IOC_STATUS_CREATE, &cmd)))
		return;
	close(cmd.out_fd);
	destroy(w, atomic_exchange(&shared->status, cmd.out_status_id));
}

static void do_end_monitors(struct worker *w)
{
	__u32 ids[2] = {
		shared->monitors[pick(w, MONITORS)],
		shared->monitors[pick(w, MONITORS)],
	};
	__u32 i, count = 1 + pick(w, 2);
	int ret;

	ret = NOTE(w, MONITOR_DESTROY, raw_unmonitor(fd, ids, count));
	if (ret == -ENOENT)
		forget(shared->monitors, MONITORS, ids[raw_index() % count]);
	for (i = 0; !ret && i < count; i++)
		forget(shared->monitors, MONITORS, ids[i]);
}

/* Monitor two areas */
static void do_monitor(struct worker *w)
{
	struct ib_memreg_monitor monitors[2] = {};
	__u32 i, status, slot = pick(w, MONITORS);
	int ret;

	if (!shared->status)
		do_create_status(w);
	status = shared->status;
	for (i = 0; i < 2; i++) {
		monitors[i].addr = (uintptr_t)AREA(pick(w, AREAS));
		monitors[i].length = 1 + pick(w, AREA_LEN);
	}
	ret = NOTE(w, MONITOR_CREATE, raw_monitor(fd, status, monitors, 2));
	if (ret == -ENOENT)
		forget(&shared->status, 1, status);
	if (ret == -ENOSPC)
		do_end_monitors(w);
	for (i = 0; !ret && i < 2; i++)
		destroy(w, atomic_exchange(&shared->monitors[(slot + i) %
							     MONITORS],
					   monitors[i].out_monitor_id));
}

static void do_alloc_windows(struct worker *w)
{
	windows_put(w);
}

static void do_free_window(struct worker *w)
{
	unsigned int i = pick(w, WINDOWS);
	__u64 window = shared->windows[i];

	if (!window) {
		windows_put(w);
		return;
	}
	if (NOTE(w, DESTROY, raw_destroy(fd, (__u32)window)) != -EBUSY)
		atomic_compare_exchange_strong(&shared->windows[i], &window, 0);
}

/*
 * After a failed bind, destroy or forget the object that would make it fail
 * again.
 */
static void bind_failed(struct worker *w, const struct ib_memreg_bind *bind,
			__u32 domain, int ret)
{
	switch (ret) {
	case -ENOENT:
	case -EINVAL:
		forget(shared->leases, LEASES, bind->lease_id);
		forget_window(bind->window_id, domain);
		forget_mr(w, bind->mr_id);
		forget_domain(domain, ret);
		break;
	case -EBUSY:
		NOTE(w, WINDOW_REVOKE, raw_revoke(fd, domain,
						  &bind->window_id, 1));
		break;
	case -EFAULT:
	case -ESTALE:
		if (raw_reason() == IB_MEMREG_REASON_LEASE_ENDED)
			lease_over(w, bind->lease_id, ret);
		else
			mr_over(w, bind->mr_id, ret, raw_reason());
		break;
	default:
		endpoint_over(w, bind->endpoint_id, ret);
	}
}

/* Bind some windows to MRs, some of them for an endpoint */
static unsigned int bind_some(struct worker *w, __u32 *ids, __u32 *domain,
			      bool on_demand)
{
	struct ib_memreg_bind binds[BATCH] = {};
	struct ib_memreg_sge range;
	unsigned int i, n;
	int ret;

	n = windows_get(w, ids, domain);
	if (!n) {
		windows_put(w);
		n = windows_get(w, ids, domain);
	}
	for (i = 0; i < n; i++) {
		range = some_range(w, on_demand);
		binds[i].window_id = ids[i];
		binds[i].mr_id = range.mr_id;
		binds[i].offset = range.offset;
		binds[i].length = range.length;
		binds[i].access = pick(w, 4) ? REMOTE_READ : REMOTE_WRITE;
		if (!pick(w, 4))
			binds[i].endpoint_id = endpoint_get(w);
		if (!pick(w, 4))
			binds[i].lease_id = lease_get(w);
	}
	if (!n)
		return 0;
	ret = NOTE(w, WINDOW_BIND, raw_bind(fd, *domain, binds, n));
	/* That an MR is stale may be found only when the keys are made. */
	if (ret)
		bind_failed(w, &binds[raw_index() % n], *domain, ret);
	return n;
}

/* Renew two leases, to a time that comes or to none */
static void do_renew(struct worker *w)
{
	struct ib_memreg_renewal renewals[2] = {
		{ .lease_id = lease_get(w), .deadline = some_deadline(w) },
		{ .lease_id = lease_get(w), .deadline = some_deadline(w) },
	};
	int ret = NOTE(w, LEASE_RENEW, raw_renew_all(fd, renewals, 2));

	if (ret)
		lease_over(w, renewals[raw_index() % 2].lease_id, ret);
}

static void do_bind(struct worker *w)
{
	__u32 ids[BATCH], domain;

	bind_some(w, ids, &domain, false);
}

static void do_bind_demand(struct worker *w)
{
	__u32 ids[BATCH], domain;

	bind_some(w, ids, &domain, true);
}

static void revoke_some(struct worker *w, __u32 flags)
{
	__u32 ids[BATCH], domain;
	unsigned int n = bind_some(w, ids, &domain, false);
	RAW(window_revoke, cmd, .flags = flags, .domain_id = domain,
	    .count = n, .ids = (uintptr_t)ids);

	if (n)
		NOTE(w, WINDOW_REVOKE,
		     raw_call(fd, IB_MEMREG_IOC_WINDOW_REVOKE, &cmd));
}

static void do_revoke(struct worker *w)
{
	revoke_some(w, 0);
}

static void do_revoke_relaxed(struct worker *w)
{
	revoke_some(w, IB_MEMREG_REVOKE_RELAXED);
}

static void do_list(struct worker *w)
{
	struct state state;

	NOTE(w, LIST, state_get(&state));
	state_free(&state);
}

static void do_stat(struct worker *w)
{
	struct ib_memreg_stat_entry stats[128];
	RAW(device_stat, cmd, .count = 1 + pick(w, ARRAY_LEN(stats)),
	    .stats = (uintptr_t)stats);

	NOTE(w, DEVICE_STAT, raw_call(fd, IB_MEMREG_IOC_DEVICE_STAT, &cmd));
}

static void do_create_domain(struct worker *w)
{
	__u32 id;

	if (!NOTE(w, DOMAIN_CREATE, raw_domain(fd, &id)))
		destroy(w, atomic_exchange(&shared->domains[pick(w, DOMAINS)],
					   id));
}

/* This mostly returns EBUSY, as the domain has MRs, windows or endpoints. */
static void do_destroy_domain(struct worker *w)
{
	unsigned int i = pick(w, DOMAINS);
	__u32 id = shared->domains[i];

	if (!id) {
		domain_get(w);
		return;
	}
	if (NOTE(w, DESTROY, raw_destroy(fd, id)) != -EBUSY)
		atomic_compare_exchange_strong(&shared->domains[i], &id, 0);
}

static void do_listen(struct worker *w)
{
	RAW(listener_create, cmd, .backlog = ENDPOINTS);

	cmd.addr.family = AF_INET;
	inet_pton(AF_INET, OWNER_IP4, cmd.addr.ip);
	if (NOTE(w, LISTENER_CREATE,
		 raw_call(fd, IB_MEMREG_IOC_LISTENER_CREATE, &cmd)))
		return;
	shared->port = ntohs(cmd.addr.port);
	destroy(w, atomic_exchange(&shared->listener, cmd.out_listener_id));
}

static void do_stop_listening(struct worker *w)
{
	__u32 id = atomic_exchange(&shared->listener, 0);

	if (id)
		destroy(w, id);
	else
		do_listen(w);
}

/*
 * Rings, and what needs them
 */

/* Replace a ring that is not in use by another one */
static void create_ring(struct worker *w, unsigned int i)
{
	RAW(ring_create, cmd, .entries = RING_ENTRIES, .entry_size = 64,
	    .eventfd = -1);
	__u32 old = shared->rings[i];

	if (old && NOTE(w, DESTROY, raw_destroy(fd, old)) == -EBUSY)
		return;
	if (NOTE(w, RING_CREATE,
		 raw_call(fd, IB_MEMREG_IOC_RING_CREATE, &cmd)))
		return;
	shared->entries_at = cmd.out_entries_offset;
	/*
	 * Replace the mapping and the descriptor in one step each, as other
	 * threads use them all the time.
	 */
	mmap(RING_AT(i), RING_SIZE, PROT_READ | PROT_WRITE,
	     MAP_SHARED | MAP_FIXED, cmd.out_fd, 0);
	dup3(cmd.out_fd, RING_FD(i), O_CLOEXEC);
	close(cmd.out_fd);
	old = atomic_exchange(&shared->rings[i], cmd.out_ring_id);
	destroy(w, old);
}

static void do_create_ring(struct worker *w)
{
	create_ring(w, pick(w, RINGS));
}

static __u32 ring_get(struct worker *w)
{
	unsigned int i = pick(w, RINGS);

	if (!shared->rings[i])
		create_ring(w, i);
	return shared->rings[i];
}

/* Count the messages among entries that no thread has read */
static void count_messages(unsigned int i, __u32 from, __u32 to)
{
	const struct ib_memreg_cqe *cqes =
		(void *)(RING_AT(i) + shared->entries_at);

	for (; from != to && to - from <= RING_ENTRIES; from++) {
		const struct ib_memreg_cqe *cqe = &cqes[from % RING_ENTRIES];

		if (cqe->opcode != OP(RECV) || !cqe->byte_len ||
		    cqe->status != IB_MEMREG_WC_SUCCESS)
			continue;
		shared->received++;
		shared->ended += !!(cqe->flags & IB_MEMREG_CQE_INVALIDATED);
	}
}

/*
 * Wait for the ring, and write any consumer index into it: this ring's, or that
 * of one before.
 */
static void consume(struct worker *w, unsigned int i, unsigned int ms)
{
	struct ib_memreg_ring *ring = (void *)RING_AT(i);
	struct ring waited = { .fd = RING_FD(i) };
	__u32 producer;

	NOTE(w, RING_WAIT, ring_wait(&waited, 1, ms * MS, NULL));
	producer = __atomic_load_n(&ring->producer, __ATOMIC_ACQUIRE);
	count_messages(i, __atomic_load_n(&ring->consumer, __ATOMIC_RELAXED),
		       producer);
	__atomic_store_n(&ring->consumer, pick(w, 16) ? producer :
			 pick(w, RING_ENTRIES), __ATOMIC_RELEASE);
}

static void do_consume(struct worker *w)
{
	ring_get(w);
	consume(w, pick(w, RINGS), pick(w, 2));
}

static void do_create_srq(struct worker *w)
{
	__u32 srq, domain = domain_get(w);
	__u64 old = shared->srq;

	if (old && NOTE(w, DESTROY, raw_destroy(fd, (__u32)old)) == -EBUSY)
		return;
	if (NOTE(w, SRQ_CREATE, raw_srq(fd, domain, ring_get(w), 8, 2,
					pick(w, 2), &srq)))
		return;
	destroy(w, (__u32)atomic_exchange(&shared->srq, WINDOW(srq, domain)));
}

/*
 * Queues at random, or none. A shared receive queue has to be of the endpoint's
 * domain.
 */
static struct ib_memreg_queues some_queues(struct worker *w, __u32 domain)
{
	__u32 ring = pick(w, 4) ? ring_get(w) : 0;
	__u64 srq = shared->srq;
	bool use = pick(w, 2) && srq >> 32 == domain;

	return (struct ib_memreg_queues) {
		.send_ring_id = ring,
		.max_send = ring ? 8 : 0,
		.max_send_sge = ring ? 2 : 0,
		.max_inline = ring ? 16 : 0,
		.srq_id = use ? (__u32)srq : 0,
		.recv_ring_id = use ? 0 : ring,
		.max_recv = use || !ring ? 0 : 8,
		.max_recv_sge = use || !ring ? 0 : 2,
	};
}

/* If the ring or shared queue is gone, make another one next time. */
static void queues_failed(const struct ib_memreg_queues *q, int ret)
{
	__u64 srq = shared->srq;

	if (ret != -ENOENT)
		return;
	forget(shared->rings, RINGS, q->send_ring_id);
	if (q->srq_id && (__u32)srq == q->srq_id)
		atomic_compare_exchange_strong(&shared->srq, &srq, 0);
}

static void do_setup(struct worker *w)
{
	__u32 endpoint = endpoint_get(w), domain = domain_get(w);
	struct ib_memreg_queues q = some_queues(w, domain);
	RAW(endpoint_accept, accept, .endpoint_id = endpoint,
	    .domain_id = domain);
	int ret;

	if (!endpoint)
		return;
	ret = NOTE(w, ENDPOINT_SETUP, raw_setup(fd, endpoint, domain, &q));
	queues_failed(&q, ret);
	if (!ret)
		NOTE(w, ENDPOINT_ACCEPT,
		     raw_call(fd, IB_MEMREG_IOC_ENDPOINT_ACCEPT, &accept));
}

/*
 * Allocate windows of type 2B for work requests to bind, and destroy those that
 * they replace.
 */
static void bound_put(struct worker *w)
{
	unsigned int i, slot = pick(w, WINDOWS);
	__u32 ids[BATCH], domain = domain_get(w);
	int ret;

	ret = NOTE(w, WINDOW_ALLOC, raw_windows_2b(fd, domain, AREA_LEN, ids,
						   BATCH));
	forget_domain(domain, ret);
	for (i = 0; !ret && i < BATCH; i++, slot = (slot + 1) % WINDOWS)
		destroy(w, (__u32)atomic_exchange(&shared->bound[slot],
						  WINDOW(ids[i], domain)));
}

static struct ib_memreg_wr some_wr(struct worker *w, bool on_demand)
{
	static const __u16 opcodes[] = {
		OP(SEND), OP(SEND_WITH_IMM), OP(SEND_WITH_INV), OP(WRITE),
		OP(WRITE_WITH_IMM), OP(READ), OP(CMP_AND_SWP),
		OP(FETCH_AND_ADD), OP(RECV), OP(RECV), OP(RECV), OP(RECV),
		OP(BIND), OP(BIND), OP(INVALIDATE), OP(INVALIDATE),
	};
	struct ib_memreg_wr wr = {
		.target_id = endpoint_get(w),
		.opcode = opcodes[pick(w, ARRAY_LEN(opcodes))],
		.flags = pick(w, 2) ? SIGNALED : 0,
	};

	wr.sge = some_range(w, on_demand);
	switch (wr.opcode) {
	case OP(BIND):
		wr.window_id = (__u32)shared->bound[pick(w, WINDOWS)];
		wr.access = REMOTE_READ;
		return wr;
	case OP(INVALIDATE):
		wr.window_id = (__u32)shared->bound[pick(w, WINDOWS)];
		wr.sge = (struct ib_memreg_sge) {};
		return wr;
	case OP(RECV):
		if (pick(w, 2))
			wr.target_id = (__u32)shared->srq;
		break;
	case OP(SEND_WITH_INV):
		/* There is no such key. */
		wr.ex = 1 + pick(w, 255);
		break;
	case OP(CMP_AND_SWP):
	case OP(FETCH_AND_ADD):
		wr.sge.length = 8;
		wr.remote_addr = shared->peer_addr;
		wr.rkey = shared->peer_rkey;
		break;
	case OP(WRITE):
	case OP(WRITE_WITH_IMM):
	case OP(READ):
		wr.remote_addr = shared->peer_addr;
		wr.rkey = shared->peer_rkey;
	}
	wr.num_sge = 1;
	return wr;
}

/*
 * After a failed submission, destroy or forget the object that would make it
 * fail again.
 */
static void submit_failed(struct worker *w, const struct ib_memreg_wr *wr,
			  int ret, __u32 reason)
{
	mr_over(w, wr->sge.mr_id, ret, reason);
	if (ret == -EAGAIN)
		do_consume(w);
	if (ret == -ENOTCONN)
		endpoint_over(w, wr->target_id, ret);
}

static void submit_some(struct worker *w, bool on_demand)
{
	unsigned int i, count = 1 + pick(w, BATCH);
	struct ib_memreg_wr wrs[BATCH];
	int ret;

	if (!shared->bound[pick(w, WINDOWS)])
		bound_put(w);
	for (i = 0; i < count; i++)
		wrs[i] = some_wr(w, on_demand);
	ret = NOTE(w, SUBMIT, raw_submit(fd, wrs, count));
	for (i = 0; i < raw_taken() && i < count; i++)
		if (wrs[i].opcode == OP(BIND))
			shared->rkey = wrs[i].rkey;
	if (!ret || i >= count)
		return;
	submit_failed(w, &wrs[i], ret, raw_reason());
}

static void do_submit(struct worker *w)
{
	submit_some(w, false);
}

static void do_submit_demand(struct worker *w)
{
	submit_some(w, true);
}

/* Allowed outcomes of a range of advice */
static void range_done(struct worker *w, const struct ib_memreg_range *range)
{
	static const __u32 errors[] = {
		0, ENOENT, EINVAL, EOVERFLOW, EACCES, EFAULT, ENOMEM, EPERM,
		EAGAIN,
	};
	unsigned int i = 0;

	while (i < ARRAY_LEN(errors) && errors[i] != range->out_error)
		i++;
	if (i == ARRAY_LEN(errors))
		fail(w, "a range of MR_ADVISE", range->out_error);
	shared->advised += range->out_pages;
	if (range->out_error)
		mr_over(w, range->mr_id, -(int)range->out_error,
			range->out_reason);
}

static void do_advise(struct worker *w)
{
	struct ib_memreg_range ranges[BATCH] = {};
	RAW(mr_advise, cmd, .flags = pick(w, 2) * IB_MEMREG_ADVISE_WAIT,
	    .advice = 1 + pick(w, IB_MEMREG_ADVICE_DROP),
	    .count = 1 + pick(w, BATCH), .ranges = (uintptr_t)ranges);
	struct ib_memreg_sge sge;
	unsigned int i;

	for (i = 0; i < cmd.count; i++) {
		sge = some_range(w, true);
		ranges[i].mr_id = sge.mr_id;
		ranges[i].offset = sge.offset;
		ranges[i].length = sge.length;
	}
	NOTE(w, MR_ADVISE, raw_call(fd, IB_MEMREG_IOC_MR_ADVISE, &cmd));
	for (i = 0; i < cmd.out_done; i++)
		range_done(w, &ranges[i]);
}

/*
 * A command of io_uring, in a ring of its own, which ends before or after the
 * command does. What the command is about stays for a while. Returns what it
 * ends with, or -ETIME if it takes longer.
 */
static int submit_by_uring(struct worker *w, const struct ib_memreg_wr *request,
			   unsigned int ms)
{
	static struct ib_memreg_wr wrs[1024];
	static _Atomic unsigned int next;
	struct ib_memreg_wr *wr = &wrs[next++ % ARRAY_LEN(wrs)];
	struct ib_memreg_uring_submit cmd = {
		.wrs = (uintptr_t)wr, .count = 1,
	};
	struct __kernel_timespec limit = { .tv_nsec = ms * MS };
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	struct io_uring uring;
	int ret = -ETIME;

	if (io_uring_queue_init(1, &uring, 0))
		return ret;
	*wr = *request;
	sqe = io_uring_get_sqe(&uring);
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, fd, NULL, 0, 0);
	sqe->cmd_op = IB_MEMREG_URING_SUBMIT;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	io_uring_submit(&uring);
	if (!io_uring_wait_cqe_timeout(&uring, &cqe, &limit))
		ret = cqe->res;
	io_uring_queue_exit(&uring);
	shared->by_uring += ret >= 0;
	if (ret != -ETIME)
		note(w, IB_MEMREG_URING_SUBMIT, ret < 0 ? ret : 0);
	return ret;
}

static void do_submit_uring(struct worker *w)
{
	struct ib_memreg_wr wr;
	int ret;

	if (!shared->bound[pick(w, WINDOWS)])
		bound_put(w);
	wr = some_wr(w, false);
	ret = submit_by_uring(w, &wr, 2);
	if (ret < 0 && ret != -ETIME)
		submit_failed(w, &wr, ret, IB_MEMREG_REASON_NONE);
}

static void connect_to(struct worker *w, const char *ip, unsigned int port,
		       _Atomic __u32 *slot, __u32 domain,
		       const struct ib_memreg_queues *queues)
{
	RAW(endpoint_connect, cmd, .domain_id = domain, .timeout_ms = 1000);
	int ret;

	if (!port)
		return;
	if (queues)
		cmd.queues = *queues;
	cmd.addr.family = AF_INET;
	cmd.addr.port = htons(port);
	inet_pton(AF_INET, ip, cmd.addr.ip);
	ret = NOTE(w, ENDPOINT_CONNECT,
		   raw_call(fd, IB_MEMREG_IOC_ENDPOINT_CONNECT, &cmd));
	forget_domain(domain, ret);
	if (queues)
		queues_failed(queues, ret);
	if (!ret)
		destroy(w, atomic_exchange(slot, cmd.out_endpoint_id));
}

static void do_connect(struct worker *w)
{
	__u32 domain = domain_get(w);
	struct ib_memreg_queues queues = some_queues(w, domain);

	connect_to(w, PEER_IP4, shared->peer_port,
		   &shared->endpoints[pick(w, ENDPOINTS)], domain, &queues);
}

/* How many times to look for a message, every 2 ms */
static unsigned int patience = 50;

/*
 * Wait until one more message has come to any thread, or for a tenth of a
 * second
 */
static void await_message(struct worker *w, unsigned int ring,
			  unsigned long before)
{
	unsigned int i;

	for (i = 0; i < patience && shared->received == before && !w->gone; i++)
		consume(w, ring, 2);
}

/* An MR on an area, and a window of type 2B, for the endpoints of a domain */
static bool prepare_message(struct worker *w, __u32 domain, unsigned int slot,
			    __u32 *mr, __u32 *window)
{
	RAW(mr_register, cmd, .flags = slot_flags(slot), .domain_id = domain,
	    .access = FOR_WINDOWS, .addr = (uintptr_t)AREA(slot % AREAS),
	    .length = AREA_LEN);
	int ret;

	ret = NOTE(w, MR_REGISTER,
		   raw_call(fd, IB_MEMREG_IOC_MR_REGISTER, &cmd));
	forget_domain(domain, ret);
	if (ret)
		return false;
	*mr = cmd.out_mr_id;
	mr_put(w, slot, *mr);
	if (NOTE(w, WINDOW_ALLOC, raw_windows_2b(fd, domain, AREA_LEN, window,
						 1)))
		return false;
	destroy(w, (__u32)atomic_exchange(&shared->bound[pick(w, WINDOWS)],
					  WINDOW(*window, domain)));
	return true;
}

/* Receive the peer's greeting, and bind a window that the peer will end. */
static void exchange(struct worker *w, unsigned int ring, __u32 endpoint,
		     __u32 mr, __u32 window)
{
	unsigned long before = shared->received;
	struct ib_memreg_wr wrs[2];

	wrs[0] = WR(RECV, endpoint, SGE(mr, 0, PAGE));
	wrs[1] = WR(RECV, endpoint, SGE(mr, PAGE, PAGE));
	if (NOTE(w, SUBMIT, raw_submit(fd, wrs, 2)))
		return;
	await_message(w, ring, before);
	before = shared->received;
	wrs[0] = WR(BIND, endpoint, .window_id = window, .access = REMOTE_READ);
	wrs[0].sge = (struct ib_memreg_sge) { .mr_id = mr, .length = PAGE };
	wrs[1] = WR(SEND, endpoint, SGE(mr, 0, 8), .flags = SIGNALED);
	NOTE(w, SUBMIT, raw_submit(fd, wrs, 1));
	if (raw_taken() != 1)
		return;
	shared->rkey = wrs[0].rkey;
	if (pick(w, 2))
		submit_by_uring(w, &wrs[1], 20);
	else
		NOTE(w, SUBMIT, raw_submit(fd, &wrs[1], 1));
	await_message(w, ring, before);
}

/*
 * The peer sends messages on its connection, and invalidates a window when it
 * gets a message. Racing actions may use, or destroy, all objects involved.
 */
static void converse(struct worker *w, unsigned int mr_slot)
{
	unsigned int i = pick(w, RINGS), slot = pick(w, ENDPOINTS);
	__u32 domain = domain_get(w), endpoint, mr, window;
	struct ib_memreg_queues queues = {
		.max_send = 8, .max_recv = 8,
		.max_send_sge = 1, .max_recv_sge = 1,
	};

	if (!shared->rings[i])
		create_ring(w, i);
	queues.send_ring_id = shared->rings[i];
	queues.recv_ring_id = shared->rings[i];
	connect_to(w, PEER_IP4, shared->peer_port, &shared->endpoints[slot],
		   domain, &queues);
	endpoint = shared->endpoints[slot];
	if (endpoint && prepare_message(w, domain, mr_slot, &mr, &window))
		exchange(w, i, endpoint, mr, window);
}

static void do_converse(struct worker *w)
{
	converse(w, pick(w, PINNED));
}

static void do_converse_demand(struct worker *w)
{
	converse(w, PINNED + pick(w, AREAS));
}

static void do_accept(struct worker *w)
{
	RAW(endpoint_accept, cmd, .endpoint_id = endpoint_get(w),
	    .domain_id = domain_get(w));
	int ret;

	if (!shared->listener)
		do_listen(w);
	if (!cmd.endpoint_id)
		return;
	ret = NOTE(w, ENDPOINT_ACCEPT,
		   raw_call(fd, IB_MEMREG_IOC_ENDPOINT_ACCEPT, &cmd));
	if (pick(w, 2))
		forget_domain(cmd.domain_id, ret);
	else
		endpoint_over(w, cmd.endpoint_id, ret);
}

static void do_reject(struct worker *w)
{
	RAW(endpoint_reject, cmd, .endpoint_id = endpoint_get(w));

	if (!shared->listener)
		do_listen(w);
	if (!cmd.endpoint_id)
		return;
	endpoint_over(w, cmd.endpoint_id,
		      NOTE(w, ENDPOINT_REJECT,
			   raw_call(fd, IB_MEMREG_IOC_ENDPOINT_REJECT, &cmd)));
}

/* Mostly one that was accepted just now */
static void do_disconnect(struct worker *w)
{
	RAW(endpoint_disconnect, cmd);
	int ret;

	do_accept(w);
	cmd.endpoint_id = endpoint_get(w);
	if (!cmd.endpoint_id)
		return;
	ret = NOTE(w, ENDPOINT_DISCONNECT,
		   raw_call(fd, IB_MEMREG_IOC_ENDPOINT_DISCONNECT, &cmd));
	endpoint_over(w, cmd.endpoint_id, ret);
}

static void do_set_user_data(struct worker *w)
{
	RAW(set_user_data, cmd, .user_data = w->done);

	cmd.id = pick(w, 2) ? endpoint_get(w) : shared->listener;
	NOTE(w, SET_USER_DATA,
	     raw_call(fd, IB_MEMREG_IOC_SET_USER_DATA, &cmd));
}

static void do_destroy_endpoint(struct worker *w)
{
	endpoint_get(w);
	destroy(w, atomic_exchange(&shared->endpoints[pick(w, ENDPOINTS)], 0));
}

static void do_read(struct worker *w)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	if (poll(&pfd, 1, 0) >= 0)
		events_read(w);
}

static void do_have_peer_disconnect(struct worker *w)
{
	(void)w;
	shared->kicks++;
	poll(NULL, 0, 1);
}

static int open_bound(struct worker *w, const char *device)
{
	int new = open(NODE, O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (new < 0) {
		fail(w, "open(2)", errno);
		return new;
	}
	if (!NOTE(w, DEVICE_BIND, raw_bind_device(new, device)))
		return new;
	close(new);
	return -1;
}

/* Replace the file that all other threads are using by another one */
static void do_close(struct worker *w)
{
	int new = open_bound(w, OWNER_DEVICE);

	if (new < 0) {
		/* Until the device is there again */
		poll(NULL, 0, 1);
		return;
	}
	shared->files++;
	dup3(new, fd, O_CLOEXEC);
	shared->files_done++;
	close(new);
}

/*
 * Actions: the mapping
 */

static void map_area(unsigned int i)
{
	if (i == FILE_AREA)
		mmap(AREA(i), AREA_LEN, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_FIXED, FILE_FD, 0);
	else
		mmap(AREA(i), AREA_LEN, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static int open_file(void)
{
	int new = memfd_create("area", MFD_CLOEXEC);

	if (new < 0 || ftruncate(new, AREA_LEN) ||
	    dup3(new, FILE_FD, O_CLOEXEC) < 0)
		return -1;
	return close(new);
}

/* Advise what to do with all of an MR of an area; returns the pages */
static __u64 advise_area(struct worker *w, __u32 id, __u32 advice)
{
	struct ib_memreg_range range = { .mr_id = id, .length = AREA_LEN };
	RAW(mr_advise, cmd, .advice = advice, .count = 1,
	    .flags = IB_MEMREG_ADVISE_WAIT, .ranges = (uintptr_t)&range);

	NOTE(w, MR_ADVISE, raw_call(fd, IB_MEMREG_IOC_MR_ADVISE, &cmd));
	shared->advised += range.out_pages;
	return range.out_pages;
}

/*
 * Has each thread begun its present action after this file was opened? Then no
 * thread has an id of an earlier file, which may name an MR of this one.
 */
static bool ids_are_new(const struct worker *w)
{
	unsigned int i;

	for (i = 0; i < w->ncrowd; i++)
		if (w->crowd[i].file < w->file)
			return false;
	return true;
}

/*
 * Register an area, and have it taken away: its keys are dead then, and what
 * was pinned of it on demand is not found any more.
 */
static void unmap_one(struct worker *w, unsigned int i,
		      bool (*unmap_area)(unsigned int i))
{
	bool ours = ids_are_new(w);
	RAW(mr_query, cmd, .mr_id = register_area(w, i, 0));
	__u32 demand = register_area(w, i, IB_MEMREG_MR_ON_DEMAND);
	__u64 found;
	bool gone;
	int ret;

	advise_area(w, demand, IB_MEMREG_ADVICE_PREFETCH);
	gone = unmap_area(i);
	ret = NOTE(w, MR_QUERY, raw_call(fd, IB_MEMREG_IOC_MR_QUERY, &cmd));
	/* If the file was replaced meanwhile, the id may name another MR. */
	ours &= shared->files == w->file;
	if (gone && !ret && cmd.out_state == IB_MEMREG_MR_LIVE && ours)
		fail(w, "memory is gone, and its MR is live", 0);
	found = advise_area(w, demand, IB_MEMREG_ADVICE_DROP);
	ours &= shared->files == w->file;
	if (gone && found && ours)
		fail(w, "memory is gone, and its pages can be found", 0);
	map_area(i);
	destroy(w, cmd.mr_id);
	destroy(w, demand);
}

static void unmap(struct worker *w, bool (*unmap_area)(unsigned int i))
{
	unmap_one(w, pick(w, AREAS), unmap_area);
}

/*
 * Ways to unmap an area. Each returns true if the area is unmapped when it
 * returns: by this call or by that of another thread, which calls that change
 * the mapping wait for.
 */

static bool area_munmap(unsigned int i)
{
	return !munmap(AREA(i), AREA_LEN);
}

static bool area_mremap(unsigned int i)
{
	/*
	 * mremap(2) fails with EFAULT if another thread has unmapped the area.
	 */
	if (mremap(AREA(i), AREA_LEN, AREA_LEN, MREMAP_MAYMOVE | MREMAP_FIXED,
		   AWAY(i)) == MAP_FAILED)
		return errno == EFAULT;
	munmap(AWAY(i), AREA_LEN);
	return true;
}

/*
 * MADV_DONTNEED does not wait for a munmap(2) in progress, so an area without a
 * mapping proves nothing.
 */
static bool area_dontneed(unsigned int i)
{
	return !madvise(AREA(i), AREA_LEN, MADV_DONTNEED);
}

static bool area_map_over(unsigned int i)
{
	map_area(i);
	return true;
}

static bool area_truncate(unsigned int i)
{
	(void)i;
	return !ftruncate(FILE_FD, 0);
}

static void do_munmap(struct worker *w)
{
	unmap(w, area_munmap);
}

static void do_mremap(struct worker *w)
{
	unmap(w, area_mremap);
}

static void do_dontneed(struct worker *w)
{
	unmap(w, area_dontneed);
}

static void do_map_over(struct worker *w)
{
	unmap(w, area_map_over);
}

/*
 * The thread that truncates the file extends it again; other threads may do so
 * meanwhile.
 */
static void do_truncate(struct worker *w)
{
	unmap_one(w, FILE_AREA, area_truncate);
	if (ftruncate(FILE_FD, AREA_LEN))
		fail(w, "ftruncate(2)", errno);
}

static void do_mprotect(struct worker *w)
{
	unsigned int i = pick(w, AREAS);

	mr_get(w, i);
	mprotect(AREA(i), AREA_LEN, pick(w, 2) ? PROT_READ : PROT_NONE);
	mprotect(AREA(i), AREA_LEN, PROT_READ | PROT_WRITE);
}

/*
 * Page memory out, age it, free it, or fault it in. The next use of an MR on
 * demand has to find the pages that are there then.
 */
static void do_madvise(struct worker *w)
{
	static const int advice[] = {
		MADV_PAGEOUT, MADV_PAGEOUT, MADV_COLD, MADV_FREE,
		MADV_POPULATE_READ, MADV_POPULATE_WRITE,
	};
	char *at = AREA(pick(w, AREAS)) + pick(w, 4) * PAGE;

	mr_get(w, some_slot(w, true));
	madvise(at, PAGE, advice[pick(w, ARRAY_LEN(advice))]);
}

/*
 * Actions: processes. Children of a process with threads make system calls and
 * nothing else.
 */

static void run_child(void (*child)(struct worker *w), struct worker *w)
{
	pid_t pid = fork();

	if (!pid) {
		child(w);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void child_ends(struct worker *w)
{
	(void)w;
}

/* Make objects on the memory of a child, which ends before them. */
static void child_calls(struct worker *w)
{
	do_register(w);
	do_bind(w);
}

static void child_is_killed(struct worker *w)
{
	do_register(w);
	kill(getpid(), SIGKILL);
}

static void do_fork(struct worker *w)
{
	run_child(child_ends, w);
}

static void do_call_in_child(struct worker *w)
{
	run_child(child_calls, w);
}

static void do_kill_child(struct worker *w)
{
	run_child(child_is_killed, w);
}

#define ACTION(_name)	{ #_name, do_##_name }

static const struct action actions[] = {
	ACTION(register),
	ACTION(reregister),
	ACTION(advise),
	ACTION(deregister),
	ACTION(create_memory),
	ACTION(export),
	ACTION(create_pool),
	ACTION(recycle),
	ACTION(query),
	ACTION(compose),
	ACTION(create_status),
	ACTION(monitor),
	ACTION(end_monitors),
	ACTION(alloc_windows),
	ACTION(free_window),
	ACTION(bind),
	ACTION(renew),
	ACTION(bind_demand),
	ACTION(revoke),
	ACTION(revoke_relaxed),
	ACTION(list),
	ACTION(stat),
	ACTION(create_domain),
	ACTION(destroy_domain),
	ACTION(listen),
	ACTION(stop_listening),
	ACTION(connect),
	ACTION(accept),
	ACTION(reject),
	ACTION(disconnect),
	ACTION(set_user_data),
	ACTION(destroy_endpoint),
	ACTION(create_ring),
	ACTION(consume),
	ACTION(create_srq),
	ACTION(setup),
	ACTION(submit),
	ACTION(submit_demand),
	ACTION(submit_uring),
	ACTION(converse),
	ACTION(converse_demand),
	ACTION(read),
	ACTION(have_peer_disconnect),
	ACTION(close),
	ACTION(munmap),
	ACTION(mremap),
	ACTION(dontneed),
	ACTION(map_over),
	ACTION(truncate),
	ACTION(mprotect),
	ACTION(madvise),
	ACTION(fork),
	ACTION(call_in_child),
	ACTION(kill_child),
};

#define ACTIONS		ARRAY_LEN(actions)

/*
 * Workers
 */

static bool finished(struct worker *w)
{
	if (shared->stop || shared->failed)
		return true;
	return w->least && w->done >= w->least &&
	       (!w->other || w->other->done >= w->other->least);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!finished(w)) {
		w->file = shared->files_done;
		w->now = w->action ?: &actions[pick(w, ACTIONS)];
		w->now->run(w);
		w->done++;
		if (w->gone)
			do_close(w);
		w->gone = false;
	}
	return NULL;
}

/* Threads race until they are through */
static void run_workers(struct worker *workers, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		workers[i].crowd = workers;
		workers[i].ncrowd = count;
	}
	for (i = 0; i < count; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			_exit(1);
	for (i = 0; i < count; i++)
		pthread_join(workers[i].thread, NULL);
}

/* Become an owner, with a file and memory */
static void begin_owner(unsigned int seed)
{
	struct worker w = { .now = &actions[0], .seed = seed };
	unsigned int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = open_bound(&w, OWNER_DEVICE);
	if (fd < 0 || open_file())
		_exit(1);
	for (i = 0; i < AREAS; i++)
		map_area(i);
	for (i = 0; i < RINGS; i++) {
		create_ring(&w, i);
		if (!shared->rings[i])
			_exit(1);
	}
	do_listen(&w);
}

/*
 * The peer
 */

/**
 * struct peer_side - State of the peer besides its file
 * @domain: A domain
 * @mr: Memory that whoever is connected may write and read, too
 * @ring: A ring
 */
struct peer_side {
	__u32 domain;
	__u32 mr;
	struct ring ring;
};

static struct ib_memreg_queues peer_queues(const struct peer_side *side)
{
	return (struct ib_memreg_queues) {
		.send_ring_id = side->ring.id,
		.recv_ring_id = side->ring.id,
		.max_send = 4,
		.max_recv = 4,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
}

/*
 * Post a receive and a message with this opcode. Some messages invalidate a key
 * that was never granted.
 */
static void peer_submit(struct worker *w, const struct peer_side *side,
			__u32 endpoint, __u16 opcode)
{
	struct ib_memreg_wr wrs[2];

	wrs[0] = WR(RECV, endpoint, SGE(side->mr, 0, AREA_LEN));
	wrs[1] = WR(SEND, endpoint, SGE(side->mr, 0, 1 + pick(w, 64)),
		    .flags = pick(w, 2) ? SIGNALED : 0);
	wrs[1].opcode = opcode;
	if (opcode == OP(SEND_WITH_INV))
		wrs[1].ex = pick(w, 8) ? shared->rkey : pick(w, 255);
	NOTE(w, SUBMIT, raw_submit(fd, wrs, 2));
}

/* Send greetings, and invalidate the windows of those who answer. */
static void answer_messages(struct worker *w, struct peer_side *side)
{
	__u32 i, n = ring_count(&side->ring);

	for (i = 0; i < n; i++) {
		const struct ib_memreg_cqe *cqe = ring_entry(&side->ring, i);

		if (cqe->opcode == OP(RECV) &&
		    cqe->status == IB_MEMREG_WC_SUCCESS)
			peer_submit(w, side, cqe->endpoint_data,
				    OP(SEND_WITH_INV));
	}
	ring_done(&side->ring, n);
}

static void peer_event(struct worker *w, const struct ib_memreg_event *event,
		       const struct peer_side *side)
{
	struct ib_memreg_queues queues = peer_queues(side);
	__u32 domain = side->domain;
	RAW(endpoint_accept, accept, .endpoint_id = event->endpoint_id,
	    .domain_id = domain);
	RAW(endpoint_reject, reject, .endpoint_id = event->endpoint_id);
	RAW(endpoint_disconnect, disconnect, .endpoint_id = event->endpoint_id);

	switch (event->type) {
	case IB_MEMREG_EVENT_CONNECT_REQUEST:
		if (pick(w, 4) &&
		    !NOTE(w, ENDPOINT_SETUP,
			  raw_setup(fd, event->endpoint_id, domain, &queues)))
			NOTE(w, ENDPOINT_ACCEPT,
			     raw_call(fd, IB_MEMREG_IOC_ENDPOINT_ACCEPT,
				      &accept));
		else
			NOTE(w, ENDPOINT_REJECT,
			     raw_call(fd, IB_MEMREG_IOC_ENDPOINT_REJECT,
				      &reject));
		break;
	case IB_MEMREG_EVENT_ESTABLISHED:
		peer_submit(w, side, event->endpoint_id, pick(w, 4) ?
			    OP(SEND) : OP(SEND_WITH_IMM));
		if (!pick(w, 4))
			NOTE(w, ENDPOINT_DISCONNECT,
			     raw_call(fd, IB_MEMREG_IOC_ENDPOINT_DISCONNECT,
				      &disconnect));
		break;
	default:
		destroy(w, event->endpoint_id);
	}
}

static void peer_listen(struct worker *w)
{
	RAW(listener_create, cmd, .backlog = 64);

	cmd.addr.family = AF_INET;
	inet_pton(AF_INET, PEER_IP4, cmd.addr.ip);
	if (NOTE(w, LISTENER_CREATE,
		 raw_call(fd, IB_MEMREG_IOC_LISTENER_CREATE, &cmd)))
		_exit(1);
	shared->peer_port = ntohs(cmd.addr.port);
}

/* Register memory that each connected endpoint may read and write. */
static void peer_serve(struct peer_side *side)
{
	static char memory[AREA_LEN] __attribute__((aligned(4096)));
	RAW(mr_register, cmd, .domain_id = side->domain,
	    .access = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC,
	    .addr = (uintptr_t)memory, .length = AREA_LEN);

	if (raw_call(fd, IB_MEMREG_IOC_MR_REGISTER, &cmd))
		_exit(1);
	side->mr = cmd.out_mr_id;
	shared->peer_addr = cmd.iova;
	shared->peer_rkey = cmd.out_rkey;
}

static void peer_open(struct worker *w, struct peer_side *side)
{
	fd = open_bound(w, "rxe_peer");
	if (fd < 0 || raw_domain(fd, &side->domain) ||
	    ring_create(fd, &side->ring, RING_ENTRIES, 64, 0, -1))
		_exit(1);
	peer_serve(side);
	peer_listen(w);
}

/* Close the file, and wait until the test wants a peer again. */
static void peer_rest(struct peer_side *side)
{
	ring_unmap(&side->ring);
	close(fd);
	shared->resting = true;
	while (shared->rest && !shared->stop)
		poll(NULL, 0, 10);
	shared->resting = false;
}

/* The peer process: connect, and keep connections, until asked to stop. */
static void run_peer(unsigned int seed)
{
	const struct action action = { "the peer", NULL };
	struct worker w = { .now = &action, .seed = seed, .peer = true };
	static _Atomic __u32 endpoints[PEERS];
	struct ib_memreg_queues queues;
	struct ib_memreg_event event;
	struct peer_side side = {};
	unsigned int kicks = 0;
	struct pollfd pfds[2] = {
		{ .events = POLLIN }, { .events = POLLIN },
	};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (enter_namespace("memreg-peer"))
		_exit(1);
	peer_open(&w, &side);
	while (!shared->stop && !w.gone) {
		if (shared->rest) {
			peer_rest(&side);
			peer_open(&w, &side);
		}
		pfds[0].fd = fd;
		pfds[1].fd = side.ring.fd;
		poll(pfds, 2, 10);
		while (read(fd, &event, sizeof(event)) == sizeof(event))
			peer_event(&w, &event, &side);
		answer_messages(&w, &side);
		if (kicks != shared->kicks)
			destroy(&w, atomic_exchange(&endpoints[pick(&w, PEERS)],
						    0));
		kicks = shared->kicks;
		queues = peer_queues(&side);
		connect_to(&w, OWNER_IP4, shared->port,
			   &endpoints[pick(&w, PEERS)], side.domain, &queues);
	}
	_exit(0);
}

/*
 * Tests
 */

FIXTURE(stress)
{
	unsigned int seed;
	unsigned long calls;
	pid_t peer;
	bool swap;
};

FIXTURE_SETUP(stress)
{
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, shared);
	self->seed = test_seed();
	TH_LOG("seed %u", self->seed);
	/* Without it, pages go to files alone. */
	self->swap = !swap_on();
	self->peer = fork();
	ASSERT_LE(0, self->peer);
	if (!self->peer)
		run_peer(self->seed);
}

FIXTURE_TEARDOWN(stress)
{
	int status;

	shared->stop = true;
	/* A test that failed may have left a part of the topology down. */
	EXPECT_EQ(0, shell("topology_up"));
	ASSERT_EQ(self->peer, waitpid(self->peer, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(0, state_count(IB_MEMREG_OBJECT_FILE));
	if (self->swap)
		EXPECT_EQ(0, swap_off());
}

/* Objects on the owner's device */
static unsigned int left_behind(void)
{
	unsigned int i, n = 0;
	struct state now;

	if (state_get(&now))
		return ~0U;
	for (i = 0; i < now.count; i++)
		n += !strcmp(now.objects[i].device, OWNER_DEVICE);
	state_free(&now);
	return n;
}

/*
 * Check that no call failed with a wrong errno, and that no object of the owner
 * is left
 */
static void check(struct __test_metadata *_metadata)
{
	int64_t end;

	ASSERT_FALSE(shared->failed)
		TH_LOG("%s: %s: %s", shared->failure.action,
		       shared->failure.what, strerror(shared->failure.err));
	/* Children of the owner may live for a moment longer */
	for (end = now_ms() + LIMIT_MS; left_behind() && now_ms() < end;)
		poll(NULL, 0, 10);
	ASSERT_EQ(0, left_behind());
}

/* Start an owner process, without objects of an earlier one. */
static pid_t fork_owner(struct __test_metadata *_metadata)
{
	pid_t owner;

	memset((void *)shared->domains, 0, sizeof(shared->domains));
	memset((void *)shared->mrs, 0, sizeof(shared->mrs));
	memset((void *)shared->pools, 0, sizeof(shared->pools));
	memset((void *)shared->windows, 0, sizeof(shared->windows));
	memset((void *)shared->bound, 0, sizeof(shared->bound));
	memset((void *)shared->rings, 0, sizeof(shared->rings));
	shared->srq = 0;
	shared->status = 0;
	memset((void *)shared->monitors, 0, sizeof(shared->monitors));
	memset((void *)shared->endpoints, 0, sizeof(shared->endpoints));
	shared->listener = 0;
	/*
	 * An owner that was killed may have left the counts of files unequal.
	 */
	shared->files = 0;
	shared->files_done = 0;
	owner = fork();
	ASSERT_LE(0, owner);
	return owner;
}

/*
 * Is each kind of event to be seen? A slow debug kernel may not get to all of
 * them in a check.
 */
static bool everything(void)
{
	return test_full() || !debug_kernel();
}

/* Only a soak races all pairs: a check races one in so many, by the seed */
static unsigned int one_in(void)
{
	if (test_full())
		return 1;
	if (!debug_kernel())
		return 6;
	return test_chosen() ? 14 : 8;
}

/* Is the action one that MEMREG_ACTIONS names? All are if that is not set. */
static bool wanted(const struct action *action)
{
	const char *given = getenv("MEMREG_ACTIONS");
	char list[512], name[64];

	if (!given)
		return true;
	snprintf(list, sizeof(list), ",%s,", given);
	snprintf(name, sizeof(name), ",%s,", action->name);
	return strstr(list, name);
}

static void race_pair(const struct action *a, const struct action *b,
		      unsigned int rounds, unsigned int seed)
{
	struct worker pair[2] = {
		{ .action = a, .least = rounds, .seed = seed,
		  .other = &pair[1] },
		{ .action = b, .least = rounds, .seed = seed + 1,
		  .other = &pair[0] },
	};

	run_workers(pair, 2);
}

/*
 * Have a message, an ended window and a command of io_uring been seen, for
 * which actions wait only a moment?
 */
static bool waited_enough(void)
{
	return (shared->received && shared->ended && shared->by_uring) ||
	       shared->failed;
}

/*
 * On a busy machine that moment may be too short, so go on until all were seen.
 */
static void race_until_enough(const struct action *converse, unsigned int seed)
{
	static const struct action by_uring = ACTION(submit_uring);
	int64_t end = now_ms() + LIMIT_MS;

	patience = 500;
	while (!waited_enough() && now_ms() < end)
		race_pair(converse, &by_uring, 8, seed++);
}

/* Race an action with itself and with each that comes after it in the table. */
static void race_pairs(unsigned int first, unsigned int rounds,
		       unsigned int seed)
{
	unsigned int i;

	begin_owner(seed);
	for (i = first; i < ACTIONS && !shared->failed; i++)
		if (wanted(&actions[i]) &&
		    (seed + first + i) % one_in() == 0)
			race_pair(&actions[first], &actions[i], rounds,
				  seed + 2 * i);
	if (actions[first].run == do_converse && everything())
		race_until_enough(&actions[first], seed);
	_exit(0);
}

/* A counter of the owner's device, or 0 if the device is gone */
static __u64 demand_stat(__u32 stat)
{
	__u64 value = 0;
	int file = raw_open_bound();

	if (file < 0)
		return 0;
	if (raw_stat(file, stat, &value))
		value = 0;
	close(file);
	return value;
}

TEST_F_TIMEOUT(stress, I7_I8_each_call_races_with_each, 20000)
{
	__u64 faults = demand_stat(IB_MEMREG_STAT_DEMAND_FAULTS);
	__u64 hits = demand_stat(IB_MEMREG_STAT_DEMAND_HITS);
	unsigned int i;
	int status;

	for (i = 0; i < ACTIONS; i++) {
		pid_t owner;

		if (!wanted(&actions[i]))
			continue;
		owner = fork_owner(_metadata);
		if (!owner)
			race_pairs(i, test_rounds(8), self->seed + i * 1000);
		ASSERT_EQ(owner, waitpid(owner, &status, 0));
		ASSERT_EQ(0, status)
			TH_LOG("%s", actions[i].name);
		check(_metadata);
	}
	for (i = 0; i < ncalls && everything() && !getenv("MEMREG_ACTIONS");
	     i++)
		EXPECT_TRUE(shared->succeeded[_IOC_NR(calls[i].num)])
			TH_LOG("%s never succeeded", calls[i].name);
	if (everything() && !getenv("MEMREG_ACTIONS")) {
		EXPECT_LT(0, shared->received);
		EXPECT_LT(0, shared->ended);
		EXPECT_LT(0, shared->by_uring);
		EXPECT_LT(0, shared->advised);
	}
	TH_LOG("%lu calls, %lu messages, which ended %lu windows; %lu by io_uring",
	       shared->calls, shared->received, shared->ended,
	       shared->by_uring);
	faults = demand_stat(IB_MEMREG_STAT_DEMAND_FAULTS) - faults;
	hits = demand_stat(IB_MEMREG_STAT_DEMAND_HITS) - hits;
	if (everything() && !getenv("MEMREG_ACTIONS")) {
		EXPECT_LT(0, faults);
		EXPECT_LT(0, hits);
	}
	TH_LOG("on demand: %llu faults, %llu hits; advice for %lu pages",
	       (unsigned long long)faults, (unsigned long long)hits,
	       shared->advised);
}

/*
 * What ends the owner
 */

static void end_by_exit(void)
{
	_exit(0);
}

static void exec_true(void)
{
	execl("/bin/true", "true", NULL);
	_exit(1);
}

/* execve(2) with the file inherited: the program keeps it until it exits. */
static void end_by_exec_with_file(void)
{
	fcntl(fd, F_SETFD, 0);
	exec_true();
}

static void end_by_kill(void)
{
	kill(getpid(), SIGKILL);
}

static void (*const ends[])(void) = {
	end_by_exit,
	exec_true,
	end_by_exec_with_file,
	end_by_kill,
};

/* Race @action and random actions until the process ends by @end. */
static void race_end(const struct action *action, void (*end)(void),
		     unsigned int seed)
{
	struct worker workers[] = {
		{ .action = action, .seed = seed },
		{ .seed = seed + 1 },
	};
	unsigned int i, least = pick(&workers[0], 16);

	begin_owner(seed);
	for (i = 0; i < ARRAY_LEN(workers); i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			_exit(1);
	while (workers[0].done < least && !shared->failed)
		sched_yield();
	end();
}

TEST_F_TIMEOUT(stress, I7_I8_each_call_races_with_the_end_of_its_process, 20000)
{
	unsigned int i, k, n = test_repeat(1) * ACTIONS;
	int status;

	for (i = 0; i < n; i++) {
		for (k = 0; k < ARRAY_LEN(ends); k++) {
			pid_t owner;

			if ((self->seed + i + k) % one_in())
				continue;
			owner = fork_owner(_metadata);
			if (!owner)
				race_end(&actions[i % ACTIONS], ends[k],
					 self->seed + i * 1000 + k);
			ASSERT_EQ(owner, waitpid(owner, &status, 0));
			ASSERT_EQ(0, status & ~SIGKILL);
			check(_metadata);
		}
	}
	TH_LOG("%lu calls", shared->calls);
}

/* Devices that go away below the owner */

/* Race @action and random actions until the process is killed. */
static void race_all(const struct action *action, unsigned int seed)
{
	struct worker workers[] = {
		{ .action = action, .seed = seed },
		{ .action = action, .seed = seed + 1 },
		{ .seed = seed + 2 },
		{ .seed = seed + 3 },
	};

	begin_owner(seed);
	run_workers(workers, ARRAY_LEN(workers));
	_exit(0);
}

/* Wait until the owner has made @more calls */
static void await_calls(struct __test_metadata *_metadata, unsigned long more)
{
	unsigned long enough = shared->calls + more;
	int64_t end = now_ms() + LIMIT_MS;

	while (shared->calls < enough && !shared->failed) {
		ASSERT_GT(end, now_ms());
		poll(NULL, 0, 1);
	}
}

static void await_rest(struct __test_metadata *_metadata)
{
	int64_t end = now_ms() + LIMIT_MS;

	while (!shared->resting) {
		ASSERT_GT(end, now_ms());
		poll(NULL, 0, 10);
	}
}

/*
 * Calls are made before, while and after something goes and comes back. The
 * peer is silent when it comes back: ib_cm of Linux 7.2 takes requests before
 * it has made what answers them (cm_add_one() registers rep_agent after
 * mad_agent), and to reject one at that moment is a null pointer.
 */
static void race_shell(struct __test_metadata *_metadata,
		       const struct action *action, unsigned int seed,
		       const char *down, const char *up)
{
	pid_t owner = fork_owner(_metadata);
	int status;

	if (!owner)
		race_all(action, seed);
	await_calls(_metadata, 100);
	ASSERT_EQ(0, shell("%s", down));
	await_calls(_metadata, 20);
	shared->rest = true;
	await_rest(_metadata);
	ASSERT_EQ(0, shell("%s", up));
	shared->rest = false;
	await_calls(_metadata, 100);
	kill(owner, SIGKILL);
	ASSERT_EQ(owner, waitpid(owner, &status, 0));
	check(_metadata);
}

/*
 * Rounds in which a device or a link goes: few, as programs have to bring it
 * back
 */
static unsigned int rounds_without(unsigned int check, unsigned int *first)
{
	*first = 0;
	if (test_full())
		return test_share(ACTIONS, first);
	return debug_kernel() ? 1 : check;
}

/*
 * The action of a round: each in turn in a soak, otherwise random ones all the
 * time
 */
static const struct action *action_of_round(unsigned int i)
{
	return test_full() ? &actions[i % ACTIONS] : NULL;
}

TEST_F_TIMEOUT(stress, I7_I8_calls_race_with_removal_of_the_device, 20000)
{
	unsigned int i, first, n = rounds_without(3, &first);

	for (i = first; i < first + n; i++)
		race_shell(_metadata, action_of_round(i), self->seed + i * 10,
			   "rxe_down owner",
			   "rxe_up owner && await 60 rxe_ready owner");
	TH_LOG("%lu calls", shared->calls);
}

/*
 * soft-RoCE's GSI QPs do not work after this: the teardown makes new devices.
 */
TEST_F_TIMEOUT(stress, I7_I8_calls_race_with_link_down, 20000)
{
	unsigned int i, first, n = rounds_without(2, &first);

	for (i = first; i < first + n; i++)
		race_shell(_metadata, action_of_round(i), self->seed + i * 10,
			   "ip -n memreg-owner link set mr_owner down",
			   "addresses_up owner && await 60 rxe_active owner 1");
	TH_LOG("%lu calls", shared->calls);
}

PEER_HARNESS_MAIN
