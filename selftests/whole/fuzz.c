// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls at random: good ones, on objects that there are, in some of which words
 * are replaced by others. Whatever is asked for, by one thread or by several of
 * whom each writes into the arguments of the others, the errno is one that is
 * documented for the call; one that fails has made and destroyed nothing (I8);
 * and in the end nothing is left. Where the kernel can have allocations and
 * copies fail, it has some.
 *
 * The seed is printed; MEMREG_SEED repeats it, exactly so with one thread.
 *
 * time limit: 240
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "fault.h"
#include "harness.h"
#include "net.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "test.h"

#define THREADS		4
#define RINGS		8
#define COMMANDS	16
#define FIXED_PAGES	8
#define MOST_OBJECTS	96
#define MEM_PAGES	128
#define ARRAY_BYTES	(16 * PAGE)
#define MAX_WRS		8
#define RING_BYTES	(16UL << 20)
#define MEMORY_BYTES	(16 * PAGE)

/*
 * The kernel may write to any address that an argument names, and to one that
 * differs from it in a bit. So nothing else is near this region.
 */
#define REGION		((__u8 *)(1UL << 44))
#define REGION_BYTES	(1UL << 30)
#define ERRNOS		140	/* more than there are */

/* Memory that all threads share */

/**
 * struct world - The objects that calls are made on
 * @fd: An open file
 * @file: Its number in LIST; 0 if that is not known
 * @mem: Memory to be registered: MEM_PAGES, some of them not as they should be
 * @memfd: A file of as many pages
 * @args: One page for the argument of each thread, and one that can't be
 *	reached behind each
 * @arrays: The same, for arrays; ARRAY_BYTES
 * @memory: A memory object of MEMORY_BYTES, or -1
 * @port: Port of a present or past listener
 * @end: Where in the region the rest begins
 */
static struct world {
	int fd;
	__u32 file;
	__u8 *mem;
	int memfd;
	__u8 *args[THREADS];
	__u8 *arrays[THREADS];
	int memory;
	__be16 port;
	__u8 *end;
} world;

/*
 * How often each call has returned each errno, in memory that is shared with
 * children
 */
static unsigned long (*outcomes)[ERRNOS];

/**
 * struct fuzzer - A thread that makes calls
 * @random: State of its random numbers
 * @number: Its number
 * @known: The objects that there were a moment ago
 * @rings: Rings that it has made and mapped
 * @places: Addresses at which those are mapped
 * @uring: Of commands; it has the first FIXED_PAGES of the memory registered
 * @eventfd: An eventfd
 * @faults: Some of what its calls allocate and copy fails
 * @bad: Error in the result of the last call, or NULL
 */
struct fuzzer {
	unsigned int random;
	unsigned int number;
	struct state known;
	struct ring rings[RINGS];
	__u8 *places[RINGS];
	struct io_uring uring;
	int eventfd;
	bool faults;
	const char *bad;
};

/*
 * Random values
 */

static __u32 below(struct fuzzer *f, __u32 n)
{
	return ((__u64)rand_r(&f->random) << 16 ^ rand_r(&f->random)) % n;
}

static bool once_in(struct fuzzer *f, __u32 n)
{
	return below(f, n) == 0;
}

static __u64 anything(struct fuzzer *f)
{
	return (__u64)rand_r(&f->random) << 33 ^
	       (__u64)rand_r(&f->random) << 16 ^ rand_r(&f->random);
}

static __u32 state_of(const struct ib_memreg_object *o)
{
	switch (o->type) {
	case IB_MEMREG_OBJECT_MR:
		return o->u.mr.state;
	case IB_MEMREG_OBJECT_WINDOW:
		return o->u.window.bound;
	case IB_MEMREG_OBJECT_ENDPOINT:
		return o->u.endpoint.state;
	default:
		return 0;
	}
}

/*
 * An object of this type and state at random, or none; 0 is any type or state.
 */
static const struct ib_memreg_object *object_of(struct fuzzer *f, __u32 type,
						__u32 state)
{
	static const struct ib_memreg_object none;
	const struct ib_memreg_object *o = f->known.objects, *found = &none;
	__u32 i, n = 0;

	for (i = 0; i < f->known.count; i++)
		if (o[i].file == world.file && o[i].id &&
		    (!type || o[i].type == type) &&
		    (!state || state_of(&o[i]) == state) && once_in(f, ++n))
			found = &o[i];
	return found;
}

static __u32 id_of(struct fuzzer *f, __u32 type)
{
	return object_of(f, type, 0)->id;
}

static __u32 any_rkey(struct fuzzer *f)
{
	const struct ib_memreg_object *o = object_of(f, 0, 0);

	switch (o->type) {
	case IB_MEMREG_OBJECT_MR:
		return o->u.mr.rkey;
	case IB_MEMREG_OBJECT_WINDOW:
		return o->u.window.rkey;
	default:
		return 0;
	}
}

static const struct ib_memreg_object *mr_object(struct fuzzer *f)
{
	return object_of(f, IB_MEMREG_OBJECT_MR,
			 once_in(f, 8) ? 0 : IB_MEMREG_MR_LIVE);
}

static __u32 mr_of(struct fuzzer *f)
{
	return mr_object(f)->id;
}

static const struct ib_memreg_object *endpoint_in(struct fuzzer *f, __u32 state)
{
	const struct ib_memreg_object *o;

	o = object_of(f, IB_MEMREG_OBJECT_ENDPOINT, state);
	return o->id ? o : object_of(f, IB_MEMREG_OBJECT_ENDPOINT, 0);
}

/* One that is connected, if any is. */
static __u32 connected(struct fuzzer *f)
{
	return endpoint_in(f, IB_MEMREG_ENDPOINT_CONNECTED)->id;
}

static __u8 *somewhere(struct fuzzer *f)
{
	return world.mem + below(f, MEM_PAGES * PAGE);
}

/* An offset in an MR, which may be of the whole address space */
static __u64 offset_in(struct fuzzer *f, const struct ib_memreg_object *mr)
{
	return mr->u.mr.length > REGION_BYTES ? (uintptr_t)somewhere(f) :
						below(f, PAGE);
}

static struct ib_memreg_sge some_sge(struct fuzzer *f)
{
	const struct ib_memreg_object *mr = mr_object(f);

	return (struct ib_memreg_sge) {
		.mr_id = mr->id,
		.offset = offset_in(f, mr),
		.length = 1 + below(f, PAGE),
	};
}

/* Addresses and numbers on which things turn */
static __u64 odd_value(struct fuzzer *f)
{
	const __u64 values[] = {
		0, 1, 2, 7, 8, 63, 64, 65, 128, 255, 256, 257, PAGE - 1, PAGE,
		PAGE + 1, 65535, 65536, 1 << 30, (1ULL << 31) - 1, 1ULL << 31,
		~0U, 1ULL << 32, 1ULL << 47, 1ULL << 63, ~0ULL, ~0ULL - PAGE,
		~0ULL << 47, 1U << below(f, 32), 1ULL << below(f, 64),
		anything(f), (__u32)anything(f), below(f, 1000),
		id_of(f, 0), id_of(f, 0), any_rkey(f),
		(uintptr_t)somewhere(f),
		(uintptr_t)(world.mem + MEM_PAGES * PAGE - below(f, 300)),
		(uintptr_t)world.args[f->number],
		(uintptr_t)world.arrays[f->number] + below(f, ARRAY_BYTES),
		(uintptr_t)f->rings[below(f, RINGS)].shared,
	};

	return values[below(f, ARRAY_LEN(values))];
}

/* Change one bit of an argument, or replace one or two of its words. */
static void spoil(struct fuzzer *f, void *what, __u32 size)
{
	__u32 words = size / 4, at = below(f, words);
	__u8 *word = (__u8 *)what + at * 4;
	__u64 value = odd_value(f);

	if (once_in(f, 4))
		word[below(f, 4)] ^= 1 << below(f, 8);
	else
		memcpy(word, &value, once_in(f, 3) && at + 1 < words ? 8 : 4);
}

/* An array of @entries that ends at the end of mapped memory */
static void *array(struct fuzzer *f, __u32 entries, size_t size)
{
	__u8 *from = world.arrays[f->number];

	memset(from, 0, ARRAY_BYTES);
	if (entries * size > ARRAY_BYTES)
		return from;
	return from + ARRAY_BYTES - entries * size;
}

static __u32 few(struct fuzzer *f)
{
	return once_in(f, 2) ? 1 : 1 + below(f, 4);
}

/*
 * Access flags, most of which let windows be bound and peers access the memory
 */
static __u32 some_access(struct fuzzer *f)
{
	static const __u32 choice[] = {
		0, LOCAL_WRITE, MW_BIND, REMOTE_READ,
		LOCAL_WRITE | REMOTE_ATOMIC, REMOTE_READ | ZERO_BASED,
		REMOTE_READ | IB_MEMREG_ACCESS_RELAXED_ORDERING,
	};

	switch (below(f, 8)) {
	case 0:
		return below(f, 1 << 10);
	case 1:
	case 2:
		return choice[below(f, ARRAY_LEN(choice))];
	case 3:
	case 4:
		return LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;
	default:
		return LOCAL_WRITE | MW_BIND;
	}
}

static __u32 window_access(struct fuzzer *f)
{
	static const __u32 choice[] = {
		REMOTE_READ, REMOTE_WRITE, REMOTE_READ | REMOTE_WRITE,
		REMOTE_ATOMIC, REMOTE_READ | ZERO_BASED,
	};

	return choice[below(f, ARRAY_LEN(choice))];
}

/*
 * Good calls: each makes its argument, whose size is set
 */

static void make_device_bind(struct fuzzer *f, void *arg)
{
	struct ib_memreg_device_bind *cmd = arg;

	if (!once_in(f, 4))
		strcpy(cmd->name, test_device());
}

static void make_device_query(struct fuzzer *f, void *arg)
{
	struct ib_memreg_device_query *cmd = arg;

	cmd->count = below(f, 40);
	cmd->caps = (uintptr_t)array(f, cmd->count,
				     sizeof(struct ib_memreg_cap_entry));
}

static void make_destroy(struct fuzzer *f, void *arg)
{
	struct ib_memreg_destroy *cmd = arg;

	cmd->id = id_of(f, 0);
}

static void make_domain_create(struct fuzzer *f, void *arg)
{
	struct ib_memreg_domain_create *cmd = arg;

	cmd->port = below(f, 2);
}

static void make_domain_query(struct fuzzer *f, void *arg)
{
	struct ib_memreg_domain_query *cmd = arg;

	cmd->domain_id = id_of(f, IB_MEMREG_OBJECT_DOMAIN);
}

static void make_on_demand(struct fuzzer *f, struct ib_memreg_mr_register *cmd)
{
	cmd->flags &= IB_MEMREG_MR_IOVA;
	cmd->flags |= IB_MEMREG_MR_ON_DEMAND;
	cmd->access &= FOR_WINDOWS;
	if (!once_in(f, 4))
		return;
	cmd->flags |= IB_MEMREG_MR_IMPLICIT;
	cmd->addr = 0;
	cmd->length = 0;
}

static void make_mr_register(struct fuzzer *f, void *arg)
{
	struct ib_memreg_mr_register *cmd = arg;
	__u8 *addr = somewhere(f);

	if (once_in(f, 2))
		addr = world.mem + (addr - world.mem) / PAGE * PAGE;
	cmd->domain_id = id_of(f, IB_MEMREG_OBJECT_DOMAIN);
	cmd->access = some_access(f);
	cmd->addr = (uintptr_t)addr;
	cmd->length = once_in(f, 4) ? 1 + below(f, 40 * PAGE) :
				      2 * PAGE + below(f, 8 * PAGE);
	if (once_in(f, 6)) {
		cmd->flags |= IB_MEMREG_MR_IOVA;
		cmd->iova = anything(f) / PAGE * PAGE + cmd->addr % PAGE;
	}
	if (once_in(f, 6))
		cmd->flags |= IB_MEMREG_MR_UNGUARDED;
	if (once_in(f, 4))
		cmd->status_id = id_of(f, IB_MEMREG_OBJECT_STATUS);
	if (once_in(f, 4))
		make_on_demand(f, cmd);
}

static void make_status_create(struct fuzzer *f, void *arg)
{
	struct ib_memreg_status_create *cmd = arg;

	cmd->slots = 1 + below(f, 200);
	cmd->log_entries = below(f, 2) << below(f, 8);
}

static void make_monitor_create(struct fuzzer *f, void *arg)
{
	struct ib_memreg_monitor_create *cmd = arg;
	struct ib_memreg_monitor *monitors;
	__u32 i;

	cmd->status_id = id_of(f, IB_MEMREG_OBJECT_STATUS);
	cmd->count = few(f);
	monitors = array(f, cmd->count, sizeof(*monitors));
	for (i = 0; i < cmd->count; i++) {
		if (once_in(f, 6)) {
			monitors[i].flags = IB_MEMREG_MONITOR_WIDE;
			continue;
		}
		monitors[i].addr = (uintptr_t)somewhere(f);
		monitors[i].length = 1 + below(f, 8 * PAGE);
		monitors[i].access = below(f, 2) * LOCAL_WRITE;
	}
	if (once_in(f, 6))
		spoil(f, monitors, cmd->count * sizeof(*monitors));
	cmd->monitors = (uintptr_t)monitors;
}

static void make_monitor_destroy(struct fuzzer *f, void *arg)
{
	struct ib_memreg_monitor_destroy *cmd = arg;
	__u32 *ids, i;

	cmd->count = few(f);
	ids = array(f, cmd->count, sizeof(*ids));
	for (i = 0; i < cmd->count; i++)
		ids[i] = id_of(f, IB_MEMREG_OBJECT_MONITOR);
	cmd->ids = (uintptr_t)ids;
}

static void make_mr_reregister(struct fuzzer *f, void *arg)
{
	struct ib_memreg_mr_reregister *cmd = arg;
	struct ib_memreg_mr_register reg = {};

	make_mr_register(f, &reg);
	cmd->flags = below(f, 8);
	cmd->mr_id = mr_of(f);
	if (cmd->flags & IB_MEMREG_REREG_DOMAIN)
		cmd->domain_id = reg.domain_id;
	if (cmd->flags & IB_MEMREG_REREG_ACCESS)
		cmd->access = reg.access;
	if (cmd->flags & IB_MEMREG_REREG_TRANSLATION) {
		cmd->mr_flags = reg.flags;
		cmd->addr = reg.addr;
		cmd->length = reg.length;
		cmd->iova = reg.iova;
	}
}

/*
 * Compose parts of MRs of one domain, some of them strided. Half of them begin
 * and end at pages, so that a key can span them.
 */
static void make_mr_compose(struct fuzzer *f, void *arg)
{
	struct ib_memreg_mr_compose *cmd = arg;
	const struct ib_memreg_object *mr = mr_object(f);
	__u32 i, unit = once_in(f, 2) ? PAGE : 64;
	struct ib_memreg_piece *pieces;

	cmd->domain_id = mr->domain_id;
	cmd->access = once_in(f, 2) ? MW_BIND : some_access(f);
	cmd->flags = once_in(f, 6) * IB_MEMREG_COMPOSE_ONE_KEY |
		     once_in(f, 8) * IB_MEMREG_COMPOSE_IOVA;
	if (cmd->flags & IB_MEMREG_COMPOSE_IOVA)
		cmd->iova = anything(f) / PAGE * PAGE;
	cmd->count = few(f);
	pieces = array(f, cmd->count, sizeof(*pieces));
	for (i = 0; i < cmd->count; i++) {
		if (once_in(f, 2))
			mr = mr_object(f);
		pieces[i].mr_id = mr->id;
		pieces[i].offset = below(f, 4) * unit;
		pieces[i].length = unit;
		pieces[i].dims = once_in(f, 3);
		if (!pieces[i].dims)
			continue;
		pieces[i].stride[0] = (1 + below(f, 2)) * unit;
		pieces[i].count[0] = 1 + below(f, 2);
	}
	if (once_in(f, 6))
		spoil(f, pieces, cmd->count * sizeof(*pieces));
	cmd->pieces = (uintptr_t)pieces;
}

static void make_mr_query(struct fuzzer *f, void *arg)
{
	struct ib_memreg_mr_query *cmd = arg;

	cmd->mr_id = mr_of(f);
	cmd->count = below(f, 4);
	cmd->segments = (uintptr_t)array(f, cmd->count,
					 sizeof(struct ib_memreg_segment));
}

/* An MR that may be on demand: it has no key, and its access is for windows. */
static const struct ib_memreg_object *may_be_on_demand(struct fuzzer *f)
{
	const struct ib_memreg_object *mr;
	unsigned int tries = 16;

	do {
		mr = object_of(f, IB_MEMREG_OBJECT_MR, 0);
	} while ((mr->u.mr.rkey || mr->u.mr.access & ~FOR_WINDOWS) && --tries);
	return mr;
}

/* Mostly for MRs on demand */
static void make_mr_advise(struct fuzzer *f, void *arg)
{
	struct ib_memreg_mr_advise *cmd = arg;
	const struct ib_memreg_object *mr;
	struct ib_memreg_range *ranges;
	__u32 i;

	cmd->flags = below(f, 2) * IB_MEMREG_ADVISE_WAIT;
	cmd->advice = 1 + below(f, IB_MEMREG_ADVICE_DROP);
	cmd->count = few(f);
	ranges = array(f, cmd->count, sizeof(*ranges));
	for (i = 0; i < cmd->count; i++) {
		mr = may_be_on_demand(f);
		ranges[i].mr_id = mr->id;
		ranges[i].offset = offset_in(f, mr);
		ranges[i].length = 1 + below(f, 4 * PAGE);
	}
	if (once_in(f, 6))
		spoil(f, ranges, cmd->count * sizeof(*ranges));
	cmd->ranges = (uintptr_t)ranges;
}

/*
 * A pool, mostly over a memory object, otherwise over the memory that all
 * threads use
 */
static void make_pool_create(struct fuzzer *f, void *arg)
{
	struct ib_memreg_pool_create *cmd = arg;

	cmd->domain_id = id_of(f, IB_MEMREG_OBJECT_DOMAIN);
	cmd->access = some_access(f);
	cmd->count = 1 + below(f, 8);
	cmd->buffer_size = 1 + below(f, 2 * PAGE);
	if (once_in(f, 2))
		cmd->stride = cmd->buffer_size + below(f, 100);
	if (once_in(f, 3)) {
		cmd->addr = (uintptr_t)somewhere(f);
		cmd->flags = below(f, 2) * IB_MEMREG_MR_UNGUARDED;
	} else {
		cmd->flags = IB_MEMREG_MR_FD;
		cmd->fd = world.memory;
	}
}

/* Recycle few low indices, so that many exist and some are named twice. */
static void make_pool_recycle(struct fuzzer *f, void *arg)
{
	struct ib_memreg_pool_recycle *cmd = arg;
	__u32 *indices, i;

	cmd->mr_id = mr_of(f);
	cmd->flags = below(f, 2) * IB_MEMREG_RECYCLE_RELAXED;
	cmd->count = few(f);
	indices = array(f, cmd->count, sizeof(*indices));
	for (i = 0; i < cmd->count; i++)
		indices[i] = below(f, 8);
	cmd->indices = (uintptr_t)indices;
}

static void make_memory_create(struct fuzzer *f, void *arg)
{
	struct ib_memreg_memory_create *cmd = arg;

	cmd->length = MEMORY_BYTES;
	cmd->node = IB_MEMREG_NODE_DEVICE;
	cmd->flags = below(f, 2) * IB_MEMREG_MEMORY_CONTIGUOUS;
}

static void make_memory_dup(struct fuzzer *f, void *arg)
{
	struct ib_memreg_memory_dup *cmd = arg;

	cmd->fd = once_in(f, 8) ? world.memfd : world.memory;
}

/* Export whole pages, most of the time. */
static void make_export_create(struct fuzzer *f, void *arg)
{
	struct ib_memreg_export_create *cmd = arg;
	const struct ib_memreg_object *mr = mr_object(f);

	cmd->mr_id = mr->id;
	cmd->offset = -mr->u.mr.addr & (PAGE - 1);
	if (once_in(f, 8))
		cmd->offset = offset_in(f, mr);
	cmd->length = PAGE * (1 + below(f, 2));
	if (once_in(f, 4))
		cmd->status_id = id_of(f, IB_MEMREG_OBJECT_STATUS);
	if (once_in(f, 3))
		cmd->lease_id = id_of(f, IB_MEMREG_OBJECT_LEASE);
}

static void make_export_revoke(struct fuzzer *f, void *arg)
{
	struct ib_memreg_export_revoke *cmd = arg;
	__u32 *ids, i;

	cmd->count = few(f);
	ids = array(f, cmd->count, sizeof(*ids));
	for (i = 0; i < cmd->count; i++)
		ids[i] = id_of(f, IB_MEMREG_OBJECT_EXPORT);
	cmd->ids = (uintptr_t)ids;
}

/* A deadline that is over, or soon, or that never comes */
static __u64 some_deadline(struct fuzzer *f)
{
	if (once_in(f, 3))
		return ~0ULL;
	return once_in(f, 6) ? anything(f) : boottime_ns() + below(f, 50) * MS;
}

static void make_lease_create(struct fuzzer *f, void *arg)
{
	struct ib_memreg_lease_create *cmd = arg;

	cmd->deadline = some_deadline(f);
	if (once_in(f, 4))
		cmd->status_id = id_of(f, IB_MEMREG_OBJECT_STATUS);
}

static void make_lease_renew(struct fuzzer *f, void *arg)
{
	struct ib_memreg_lease_renew *cmd = arg;
	struct ib_memreg_renewal *renewals;
	__u32 i;

	cmd->count = few(f);
	renewals = array(f, cmd->count, sizeof(*renewals));
	for (i = 0; i < cmd->count; i++) {
		renewals[i].lease_id = id_of(f, IB_MEMREG_OBJECT_LEASE);
		renewals[i].deadline = some_deadline(f);
	}
	if (once_in(f, 6))
		spoil(f, renewals, cmd->count * sizeof(*renewals));
	cmd->renewals = (uintptr_t)renewals;
}

static void make_window_alloc(struct fuzzer *f, void *arg)
{
	struct ib_memreg_window_alloc *cmd = arg;

	cmd->domain_id = id_of(f, IB_MEMREG_OBJECT_DOMAIN);
	cmd->type = once_in(f, 3) ? IB_MEMREG_WINDOW_TYPE2B :
				    IB_MEMREG_WINDOW_TYPE1;
	cmd->count = few(f);
	cmd->max_span = once_in(f, 8) ? 1 + below(f, 16 * PAGE) : 2 * PAGE;
	cmd->ids = (uintptr_t)array(f, cmd->count, sizeof(__u32));
}

static void make_window_bind(struct fuzzer *f, void *arg)
{
	struct ib_memreg_window_bind *cmd = arg;
	const struct ib_memreg_object *window;
	struct ib_memreg_bind *binds;
	struct ib_memreg_sge range;
	__u32 i;

	cmd->count = few(f);
	binds = array(f, cmd->count, sizeof(*binds));
	for (i = 0; i < cmd->count; i++) {
		window = object_of(f, IB_MEMREG_OBJECT_WINDOW, 0);
		cmd->domain_id = window->domain_id;
		binds[i].window_id = window->id;
		range = some_sge(f);
		binds[i].mr_id = range.mr_id;
		binds[i].offset = range.offset;
		binds[i].length = range.length;
		binds[i].access = window_access(f);
		if (once_in(f, 4))
			binds[i].endpoint_id = connected(f);
		if (once_in(f, 3))
			binds[i].lease_id = id_of(f, IB_MEMREG_OBJECT_LEASE);
	}
	if (once_in(f, 6))
		spoil(f, binds, cmd->count * sizeof(*binds));
	cmd->binds = (uintptr_t)binds;
}

static void make_window_revoke(struct fuzzer *f, void *arg)
{
	struct ib_memreg_window_revoke *cmd = arg;
	const struct ib_memreg_object *window;
	__u32 *ids, i;

	cmd->flags = below(f, 2) * IB_MEMREG_REVOKE_RELAXED;
	cmd->count = few(f);
	ids = array(f, cmd->count, sizeof(*ids));
	for (i = 0; i < cmd->count; i++) {
		window = object_of(f, IB_MEMREG_OBJECT_WINDOW, 0);
		cmd->domain_id = window->domain_id;
		ids[i] = window->id;
	}
	cmd->ids = (uintptr_t)ids;
}

static void make_listener_create(struct fuzzer *f, void *arg)
{
	struct ib_memreg_listener_create *cmd = arg;

	cmd->backlog = 1 + below(f, 16);
	cmd->addr.family = AF_INET;
	if (once_in(f, 2))
		inet_pton(AF_INET, OWNER_IP4, cmd->addr.ip);
}

static void make_data(struct fuzzer *f, __u32 *length, __u64 *data)
{
	if (once_in(f, 2))
		return;
	*length = below(f, 60);
	*data = (uintptr_t)array(f, *length, 1);
}

static void make_endpoint_accept(struct fuzzer *f, void *arg)
{
	struct ib_memreg_endpoint_accept *cmd = arg;
	const struct ib_memreg_object *endpoint;

	endpoint = endpoint_in(f, IB_MEMREG_ENDPOINT_REQUESTED);
	cmd->endpoint_id = endpoint->id;
	cmd->domain_id = endpoint->domain_id ?:
			 id_of(f, IB_MEMREG_OBJECT_DOMAIN);
	make_data(f, &cmd->private_data_len,
		  (__u64 *)&cmd->private_data);
}

static void make_endpoint_reject(struct fuzzer *f, void *arg)
{
	struct ib_memreg_endpoint_reject *cmd = arg;

	cmd->endpoint_id = endpoint_in(f, IB_MEMREG_ENDPOINT_REQUESTED)->id;
	make_data(f, &cmd->private_data_len,
		  (__u64 *)&cmd->private_data);
}

static void make_queues(struct fuzzer *f, struct ib_memreg_queues *queues)
{
	if (!once_in(f, 6)) {
		queues->send_ring_id = id_of(f, IB_MEMREG_OBJECT_RING);
		queues->max_send = 1 + below(f, 32);
		queues->max_send_sge = below(f, 6);
		queues->max_inline = below(f, 100);
	}
	if (once_in(f, 4)) {
		queues->srq_id = id_of(f, IB_MEMREG_OBJECT_SRQ);
	} else if (!once_in(f, 6)) {
		queues->recv_ring_id = id_of(f, IB_MEMREG_OBJECT_RING);
		queues->max_recv = 1 + below(f, 32);
		queues->max_recv_sge = below(f, 6);
		queues->flags = below(f, 2);
	}
}

static void make_endpoint_connect(struct fuzzer *f, void *arg)
{
	struct ib_memreg_endpoint_connect *cmd = arg;

	cmd->domain_id = id_of(f, IB_MEMREG_OBJECT_DOMAIN);
	cmd->addr.family = AF_INET;
	cmd->addr.port = world.port;
	inet_pton(AF_INET, OWNER_IP4, cmd->addr.ip);
	cmd->timeout_ms = 1000;
	make_data(f, &cmd->private_data_len,
		  (__u64 *)&cmd->private_data);
	make_queues(f, &cmd->queues);
}

static void make_set_user_data(struct fuzzer *f, void *arg)
{
	struct ib_memreg_set_user_data *cmd = arg;

	cmd->id = id_of(f, once_in(f, 3) ? IB_MEMREG_OBJECT_LISTENER :
					   IB_MEMREG_OBJECT_ENDPOINT);
	cmd->user_data = below(f, 3) * 0x100000001ULL;
}

static void make_endpoint_disconnect(struct fuzzer *f, void *arg)
{
	struct ib_memreg_endpoint_disconnect *cmd = arg;

	cmd->endpoint_id = id_of(f, IB_MEMREG_OBJECT_ENDPOINT);
}

static void make_list(struct fuzzer *f, void *arg)
{
	struct ib_memreg_list *cmd = arg;

	cmd->count = few(f);
	cmd->object_size = 1 + below(f, 2 * sizeof(struct ib_memreg_object));
	if (once_in(f, 2))
		cmd->object_size = sizeof(struct ib_memreg_object);
	cmd->objects = (uintptr_t)array(f, cmd->count, cmd->object_size);
	if (once_in(f, 2))
		cmd->cursor = anything(f);
}

static void make_device_stat(struct fuzzer *f, void *arg)
{
	struct ib_memreg_device_stat *cmd = arg;

	cmd->count = below(f, 60);
	cmd->stats = (uintptr_t)array(f, cmd->count,
				      sizeof(struct ib_memreg_stat_entry));
}

static void make_ring_create(struct fuzzer *f, void *arg)
{
	struct ib_memreg_ring_create *cmd = arg;

	cmd->flags = below(f, 2) * IB_MEMREG_RING_NO_MODERATION;
	cmd->entries = 1 + below(f, 200);
	cmd->entry_size = 64 << below(f, 2);
	cmd->eventfd = once_in(f, 2) ? -1 : f->eventfd;
}

static void make_ring_wait(struct fuzzer *f, void *arg)
{
	struct ib_memreg_ring_wait *cmd = arg;

	cmd->min_count = below(f, 3);
	cmd->timeout_ns = below(f, MS);
}

static void make_srq_create(struct fuzzer *f, void *arg)
{
	struct ib_memreg_srq_create *cmd = arg;

	cmd->flags = below(f, 2);
	cmd->domain_id = id_of(f, IB_MEMREG_OBJECT_DOMAIN);
	cmd->ring_id = id_of(f, IB_MEMREG_OBJECT_RING);
	cmd->max_recv = 1 + below(f, 32);
	cmd->max_recv_sge = few(f);
}

static void make_endpoint_setup(struct fuzzer *f, void *arg)
{
	struct ib_memreg_endpoint_setup *cmd = arg;
	const struct ib_memreg_object *endpoint;

	endpoint = endpoint_in(f, IB_MEMREG_ENDPOINT_REQUESTED);
	cmd->endpoint_id = endpoint->id;
	cmd->domain_id = endpoint->domain_id ?:
			 id_of(f, IB_MEMREG_OBJECT_DOMAIN);
	make_queues(f, &cmd->queues);
}

/* Put the SGEs at the beginning of the thread's arrays. */
static void make_sges(struct fuzzer *f, struct ib_memreg_wr *wr, __u32 number)
{
	struct ib_memreg_sge *sges = (void *)world.arrays[f->number];
	__u32 i, n = below(f, 4);

	sges += number * IB_MEMREG_SGE_MAX;
	wr->num_sge = n;
	for (i = 0; i < n; i++) {
		sges[i] = some_sge(f);
		sges[i].length = below(f, 2 * PAGE);
	}
	if (n == 1)
		wr->sge = sges[0];
	if (n > 1)
		wr->sges = (uintptr_t)sges;
}

/*
 * Name a key of one of the file's own MRs and windows, as the file is its own
 * peer.
 */
static void make_remote(struct fuzzer *f, struct ib_memreg_wr *wr)
{
	const struct ib_memreg_object *o;

	o = object_of(f, IB_MEMREG_OBJECT_WINDOW, 1);
	wr->rkey = o->u.window.rkey;
	wr->remote_addr = o->u.window.iova + below(f, 64);
	if (wr->rkey && !once_in(f, 2))
		return;
	o = object_of(f, IB_MEMREG_OBJECT_MR, 0);
	wr->rkey = o->u.mr.rkey;
	wr->remote_addr = o->u.mr.addr + below(f, 64);
}

static void make_wr_of_window(struct fuzzer *f, struct ib_memreg_wr *wr)
{
	wr->window_id = id_of(f, IB_MEMREG_OBJECT_WINDOW);
	if (wr->opcode != IB_MEMREG_OP_BIND)
		return;
	wr->sge = some_sge(f);
	wr->access = window_access(f);
	if (once_in(f, 3)) {
		wr->flags |= INSERT_RKEY;
		wr->insert_at = below(f, 40);
	}
	if (once_in(f, 3))
		wr->lease_id = id_of(f, IB_MEMREG_OBJECT_LEASE);
}

static void make_inline(struct fuzzer *f, struct ib_memreg_wr *wr)
{
	wr->flags |= INLINE;
	wr->length = below(f, 80);
	wr->sges = (uintptr_t)world.arrays[f->number] + below(f, PAGE);
}

static void make_atomic(struct fuzzer *f, struct ib_memreg_wr *wr)
{
	wr->num_sge = 1;
	wr->sge = some_sge(f);
	wr->sge.offset &= ~7ULL;
	wr->sge.length = 8;
	wr->remote_addr &= ~7ULL;
	wr->compare_add = anything(f);
	if (wr->opcode == IB_MEMREG_OP_CMP_AND_SWP)
		wr->swap = anything(f);
}

static void make_recv(struct fuzzer *f, struct ib_memreg_wr *wr, __u32 number)
{
	if (once_in(f, 3))
		wr->target_id = id_of(f, IB_MEMREG_OBJECT_SRQ);
	make_sges(f, wr, number);
}

static void make_rdma(struct fuzzer *f, struct ib_memreg_wr *wr, __u32 number)
{
	wr->flags = below(f, 4);
	if (wr->opcode >= IB_MEMREG_OP_WRITE)
		make_remote(f, wr);
	if (wr->opcode == IB_MEMREG_OP_SEND_WITH_INV)
		wr->ex = object_of(f, IB_MEMREG_OBJECT_WINDOW,
				   1)->u.window.rkey;
	if (wr->opcode == IB_MEMREG_OP_CMP_AND_SWP ||
	    wr->opcode == IB_MEMREG_OP_FETCH_AND_ADD)
		make_atomic(f, wr);
	else if (wr->opcode != IB_MEMREG_OP_READ && once_in(f, 2))
		make_inline(f, wr);
	else
		make_sges(f, wr, number);
}

static void make_wr(struct fuzzer *f, struct ib_memreg_wr *wr, __u32 number)
{
	wr->user_data = anything(f);
	wr->opcode = 1 + below(f, IB_MEMREG_OP_ATOMIC_WRITE);
	wr->target_id = connected(f);
	switch (wr->opcode) {
	case IB_MEMREG_OP_RECV:
		make_recv(f, wr, number);
		break;
	case IB_MEMREG_OP_BIND:
	case IB_MEMREG_OP_INVALIDATE:
		make_wr_of_window(f, wr);
		break;
	default:
		make_rdma(f, wr, number);
	}
}

static void make_submit(struct fuzzer *f, void *arg)
{
	struct ib_memreg_submit *cmd = arg;
	struct ib_memreg_wr *wrs;
	__u32 i;

	cmd->count = once_in(f, 2) ? 1 : 1 + below(f, MAX_WRS);
	wrs = array(f, cmd->count, sizeof(*wrs));
	for (i = 0; i < cmd->count; i++)
		make_wr(f, &wrs[i], i);
	if (once_in(f, 6))
		spoil(f, wrs, cmd->count * sizeof(*wrs));
	cmd->wrs = (uintptr_t)wrs;
}

/* A command may have its memory in the buffer that io_uring has registered. */
static void make_fixed(struct fuzzer *f, struct io_uring_sqe *sqe,
		       struct ib_memreg_wr *wr)
{
	sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
	sqe->buf_index = once_in(f, 8);
	wr->flags &= ~INLINE;
	wr->num_sge = 1;
	wr->sges = 0;
	wr->length = 0;
	wr->sge.mr_id = 0;
	wr->sge.offset = (uintptr_t)world.mem + below(f, FIXED_PAGES * PAGE);
	wr->sge.length = 1 + below(f, PAGE);
}

static void make_command(struct fuzzer *f, struct io_uring_sqe *sqe)
{
	struct ib_memreg_uring_submit command = {};
	struct ib_memreg_submit cmd;
	struct ib_memreg_wr *wrs;
	__u32 i;

	make_submit(f, &cmd);
	wrs = (void *)(uintptr_t)cmd.wrs;
	for (i = 1; i < cmd.count; i++)
		wrs[i].target_id = wrs[0].target_id;
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, world.fd, NULL, 0, 0);
	sqe->cmd_op = IB_MEMREG_URING_SUBMIT;
	command.wrs = cmd.wrs;
	command.count = cmd.count;
	if (once_in(f, 4))
		make_fixed(f, sqe, wrs);
	if (once_in(f, 8))
		sqe->flags |= IOSQE_ASYNC;
	if (once_in(f, 8))
		spoil(f, &command, sizeof(command));
	memcpy(sqe->cmd, &command, sizeof(command));
}

/*
 * The calls
 */

/*
 * Errnos that every call may fail with while the device exists. That it is gone
 * is an outcome for a ring alone, which may be destroyed.
 */
static bool may_fail(const struct call *call, int err)
{
	switch (err) {
	case E2BIG:
	case EFAULT:
	case EOPNOTSUPP:
	case EINVAL:
	case EINTR:
		return true;
	case ENODEV:
		return call->on == CALL_ON_RING;
	default:
		return call_documents(call, err);
	}
}

/**
 * struct maker - What makes a call
 * @weight: Relative frequency of the call
 * @own: Nobody else writes into its argument, as it waits for what that says,
 *	or returns a descriptor there
 * @make: Makes its argument; NULL for a command of io_uring
 */
static const struct maker {
	__u32 weight;
	bool own;
	void (*make)(struct fuzzer *f, void *arg);
} makers[CALL_NRS] = {
#define MAKER(_NAME, _name, _weight, ...)				\
	[IB_MEMREG_CMD_##_NAME] = { _weight, .make = make_##_name,	\
				    ##__VA_ARGS__ }
	MAKER(DESTROY, destroy, 8),
	MAKER(DEVICE_BIND, device_bind, 1),
	MAKER(DEVICE_QUERY, device_query, 1),
	MAKER(DOMAIN_CREATE, domain_create, 1),
	MAKER(DOMAIN_QUERY, domain_query, 1),
	MAKER(MR_REGISTER, mr_register, 10),
	MAKER(MR_QUERY, mr_query, 2),
	MAKER(MR_REREGISTER, mr_reregister, 6),
	MAKER(MR_COMPOSE, mr_compose, 6),
	MAKER(MR_ADVISE, mr_advise, 8),
	MAKER(POOL_CREATE, pool_create, 4, .own = true),
	MAKER(POOL_RECYCLE, pool_recycle, 8),
	MAKER(MEMORY_CREATE, memory_create, 1, .own = true),
	MAKER(MEMORY_DUP, memory_dup, 1, .own = true),
	MAKER(EXPORT_CREATE, export_create, 4, .own = true),
	MAKER(EXPORT_REVOKE, export_revoke, 2),
	MAKER(LEASE_CREATE, lease_create, 3),
	MAKER(LEASE_RENEW, lease_renew, 3),
	MAKER(WINDOW_ALLOC, window_alloc, 4),
	MAKER(WINDOW_BIND, window_bind, 10),
	MAKER(WINDOW_REVOKE, window_revoke, 6),
	MAKER(LISTENER_CREATE, listener_create, 2),
	MAKER(ENDPOINT_ACCEPT, endpoint_accept, 2),
	MAKER(ENDPOINT_REJECT, endpoint_reject, 1),
	MAKER(ENDPOINT_CONNECT, endpoint_connect, 2, .own = true),
	MAKER(ENDPOINT_DISCONNECT, endpoint_disconnect, 1),
	MAKER(LIST, list, 1),
	MAKER(DEVICE_STAT, device_stat, 1),
	MAKER(RING_CREATE, ring_create, 3, .own = true),
	MAKER(RING_WAIT, ring_wait, 2, .own = true),
	MAKER(SRQ_CREATE, srq_create, 2),
	MAKER(ENDPOINT_SETUP, endpoint_setup, 3),
	MAKER(SET_USER_DATA, set_user_data, 2),
	MAKER(SUBMIT, submit, 24),
	MAKER(STATUS_CREATE, status_create, 2, .own = true),
	MAKER(MONITOR_CREATE, monitor_create, 6),
	MAKER(MONITOR_DESTROY, monitor_destroy, 3),
	[IB_MEMREG_CMD_URING_SUBMIT] = { 8 },
};

static const struct maker *maker_of(const struct call *call)
{
	return &makers[_IOC_NR(call->num)];
}

/* A call at random */
static const struct call *some_call(struct fuzzer *f)
{
	const struct call *call;
	__u32 sum = 0, at;

	for (call = calls; call < calls + ncalls; call++)
		sum += maker_of(call)->weight;
	/* If there are too many objects, destroy one with every second call. */
	if (f->known.count > MOST_OBJECTS && once_in(f, 2))
		return call_of(IB_MEMREG_IOC_DESTROY);
	at = below(f, sum);
	for (call = calls; at >= maker_of(call)->weight; call++)
		at -= maker_of(call)->weight;
	return call;
}

/* Limit times to wait and the size of memory. */
static void be_quick(const struct call *call, void *arg)
{
	struct ib_memreg_memory_create *memory = arg;
	struct ib_memreg_ring_wait *wait = arg;
	struct ib_memreg_endpoint_connect *connect = arg;

	if (call->num == IB_MEMREG_IOC_MEMORY_CREATE &&
	    memory->length > MEMORY_BYTES && memory->length < 1ULL << 48)
		memory->length = MEMORY_BYTES;

	if (call->num == IB_MEMREG_IOC_RING_WAIT && wait->timeout_ns > MS)
		wait->timeout_ns = MS;
	if (call->num == IB_MEMREG_IOC_ENDPOINT_CONNECT &&
	    connect->timeout_ms <= IB_MEMREG_TIMEOUT_MAX_MS &&
	    connect->timeout_ms > 1000)
		connect->timeout_ms = 1000;
}

/* Map a new ring in place of another one, which goes on to exist. */
static void keep_ring(struct fuzzer *f,
		      const struct ib_memreg_ring_create *cmd)
{
	__u32 i = below(f, RINGS);
	struct ring *ring = &f->rings[i];

	ring_unmap(ring);
	ring->fd = cmd->out_fd;
	ring->map_size = cmd->out_map_size;
	ring->shared = mmap(f->places[i], ring->map_size,
			    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			    ring->fd, 0);
	/* Somebody may have destroyed it. */
	if (ring->shared == MAP_FAILED)
		ring->shared = NULL;
}

/* Keep the newest memory object. Objects made from earlier ones stay. */
static void keep_memory(const struct ib_memreg_memory_create *cmd)
{
	int old = cmd->out_fd;

	if (cmd->length == MEMORY_BYTES)
		old = __atomic_exchange_n(&world.memory, old, __ATOMIC_RELAXED);
	if (old >= 0)
		close(old);
}

static void keep(struct fuzzer *f, const struct call *call, const void *arg)
{
	const struct ib_memreg_status_create *status = arg;
	const struct ib_memreg_memory_dup *dup = arg;
	const struct ib_memreg_export_create *export = arg;
	const struct ib_memreg_pool_create *pool = arg;
	const struct ib_memreg_listener_create *listen = arg;

	if (call->num == IB_MEMREG_IOC_MEMORY_CREATE)
		keep_memory(arg);
	if (call->num == IB_MEMREG_IOC_MEMORY_DUP)
		close(dup->out_fd);
	if (call->num == IB_MEMREG_IOC_EXPORT_CREATE)
		close(export->out_fd);
	if (call->num == IB_MEMREG_IOC_POOL_CREATE)
		close(pool->out_table_fd);
	if (call->num == IB_MEMREG_IOC_RING_CREATE)
		keep_ring(f, arg);
	if (call->num == IB_MEMREG_IOC_STATUS_CREATE)
		close(status->out_fd);
	if (call->num == IB_MEMREG_IOC_LISTENER_CREATE &&
	    listen->addr.family == AF_INET)
		world.port = listen->addr.port;
}

/* Count a result of a call, 0 or an errno, and check that it is documented. */
static int ended(struct fuzzer *f, const struct call *call, int err)
{
	__atomic_fetch_add(&outcomes[call - calls][err % ERRNOS], 1,
			   __ATOMIC_RELAXED);
	if (err && !may_fail(call, err))
		f->bad = call->name;
	return err;
}

/*
 * Issue a command of io_uring, and count the results of commands that have
 * ended.
 */
static int command(struct fuzzer *f, const struct call *call)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&f->uring);
	struct io_uring_cqe *cqe;
	int err = 0;

	if (sqe) {
		make_command(f, sqe);
		io_uring_submit(&f->uring);
	}
	while (!f->bad && !io_uring_peek_cqe(&f->uring, &cqe)) {
		err = ended(f, call, cqe->res < 0 ? -cqe->res : 0);
		io_uring_cqe_seen(&f->uring, cqe);
	}
	return err;
}

/* Make a call; 0 or an errno. */
static int make_call(struct fuzzer *f, const struct call *call)
{
	const struct maker *maker = maker_of(call);
	__u8 own[PAGE] __attribute__((aligned(8))) = {}, *arg = own;
	int fd = world.fd, err;
	unsigned int left;

	if (call->on == CALL_BY_URING)
		return command(f, call);
	((struct raw_head *)own)->size = call->size;
	maker->make(f, own);
	if (once_in(f, 4))
		spoil(f, own, call->size);
	be_quick(call, own);
	if (!maker->own) {
		arg = world.args[f->number] + PAGE - call->size;
		memcpy(arg, own, call->size);
	}
	if (call->on == CALL_ON_RING)
		fd = f->rings[below(f, RINGS)].fd;
	if (fd < 0)
		return 0;
	if (f->faults && once_in(f, 4))
		fail_nth_arm(1 + below(f, 50));
	err = ioctl(fd, call->num, arg) ? errno : 0;
	if (f->faults)
		fail_nth_disarm(&left);
	ended(f, call, err);
	if (!err)
		keep(f, call, arg);
	return err;
}

/* Other events */

/* A resource that the test itself needs was not available. */
static void give_up(const char *what)
{
	fprintf(stderr, "# no %s: %s\n", what, strerror(errno));
	abort();
}

/* What is there now? */
static void look(struct fuzzer *f)
{
	state_free(&f->known);
	if (state_get(&f->known))
		give_up("LIST");
}

static void read_events(struct fuzzer *f)
{
	struct ib_memreg_event events[4];

	while (read(world.fd, events, below(f, sizeof(events) + 1)) > 0)
		;
}

/*
 * Map, unmap or change memory. A hole gets a mapping without access, so that
 * malloc(3) does not take it.
 */
static void change_memory(struct fuzzer *f)
{
	static const int advice[] = {
		MADV_DONTNEED, MADV_COLD, MADV_PAGEOUT, MADV_HUGEPAGE
	};
	__u32 page = below(f, MEM_PAGES), n = 1 + below(f, 6);
	__u8 *at = world.mem + page * PAGE;
	int how = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, fd = -1;
	int prot = PROT_READ | PROT_WRITE;

	if (n > MEM_PAGES - page)
		n = MEM_PAGES - page;
	switch (below(f, 5)) {
	case 0:
		prot = PROT_NONE;
		break;
	case 1:
		mprotect(at, n * PAGE, below(f, 4));
		return;
	case 2:
		madvise(at, n * PAGE, advice[below(f, ARRAY_LEN(advice))]);
		return;
	case 3:
		how = MAP_FIXED | MAP_SHARED;
		fd = world.memfd;
	}
	if (mmap(at, n * PAGE, prot, how, fd,
		 fd < 0 ? 0 : page * PAGE) == MAP_FAILED)
		give_up("mmap");
}

/* The kernel has to bear whatever is written into a ring. */
static void write_to_rings(struct fuzzer *f)
{
	struct ring *ring = &f->rings[below(f, RINGS)];

	if (!ring->shared)
		return;
	if (once_in(f, 4))
		ring->shared->flags = anything(f);
	if (once_in(f, 4))
		spoil(f, ring->shared, PAGE);
	else
		ring->shared->consumer = ring->shared->producer;
}

/*
 * Write into the argument of another thread, while the kernel may be reading
 * it.
 */
static void write_to_others(struct fuzzer *f)
{
	__u32 other = below(f, THREADS);

	spoil(f, world.args[other] + PAGE - 128, 128);
	spoil(f, world.arrays[other] + ARRAY_BYTES - 1024, 1024);
}

/* Endpoint of the next connection request, or 0 */
static __u32 await_request(void)
{
	struct pollfd pfd = { .fd = world.fd, .events = POLLIN };
	struct ib_memreg_event event;

	while (poll(&pfd, 1, 200) == 1)
		if (read(world.fd, &event, sizeof(event)) == sizeof(event) &&
		    event.type == IB_MEMREG_EVENT_CONNECT_REQUEST)
			return event.endpoint_id;
	return 0;
}

/*
 * Make a connection to the file's own listener, unless random calls get in the
 * way.
 */
static void connect_again(struct fuzzer *f)
{
	const struct ib_memreg_queues queues = {
		.send_ring_id = id_of(f, IB_MEMREG_OBJECT_RING),
		.recv_ring_id = id_of(f, IB_MEMREG_OBJECT_RING),
		.max_send = 32, .max_recv = 32,
		.max_send_sge = 3, .max_recv_sge = 3, .max_inline = 64,
	};
	__u32 domain = id_of(f, IB_MEMREG_OBJECT_DOMAIN), from, to;

	if (!id_of(f, IB_MEMREG_OBJECT_LISTENER))
		raw_listen(world.fd, &world.port);
	if (!domain || !queues.send_ring_id ||
	    raw_connect(world.fd, domain, OWNER_IP4, world.port, &queues,
			&from))
		return;
	to = await_request();
	if (to && !raw_setup(world.fd, to, domain, &queues))
		raw_accept(world.fd, to, domain);
}

static void step_aside(struct fuzzer *f)
{
	if (once_in(f, 8) &&
	    !object_of(f, IB_MEMREG_OBJECT_ENDPOINT,
		       IB_MEMREG_ENDPOINT_CONNECTED)->id) {
		connect_again(f);
		look(f);
	}
	switch (below(f, 12)) {
	case 0:
		change_memory(f);
		break;
	case 1:
	case 2:
	case 3:
		write_to_rings(f);
		break;
	case 4:
		read_events(f);
	}
}

/*
 * Beginning and end
 */

/* A place in the region, of which some can be reached; the rest is a hole. */
static __u8 *place(size_t length, size_t reached)
{
	__u8 *at = world.end;

	world.end += length;
	if (world.end > REGION + REGION_BYTES ||
	    mprotect(at, reached, PROT_READ | PROT_WRITE))
		give_up("a place");
	return at;
}

static void fuzzer_begin(struct fuzzer *f, unsigned int seed,
			 unsigned int number)
{
	struct iovec fixed = { world.mem, FIXED_PAGES * PAGE };
	unsigned int i;

	*f = (struct fuzzer) { .random = seed * THREADS + number,
			       .number = number };
	errno = -io_uring_queue_init(COMMANDS, &f->uring, 0);
	if (!errno)
		errno = -io_uring_register_buffers(&f->uring, &fixed, 1);
	if (errno)
		give_up("io_uring");
	f->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	for (i = 0; i < RINGS; i++) {
		f->places[i] = place(RING_BYTES, 0);
		f->rings[i].fd = -1;
	}
	look(f);
}

static void fuzzer_end(struct fuzzer *f)
{
	unsigned int i;

	for (i = 0; i < RINGS; i++)
		ring_unmap(&f->rings[i]);
	io_uring_queue_exit(&f->uring);
	close(f->eventfd);
	state_free(&f->known);
}

static void world_begin(void)
{
	const struct ib_memreg_object *o;
	struct state now;
	__u32 domain, i;

	world.fd = raw_open_bound();
	if (world.fd < 0 || fcntl(world.fd, F_SETFL, O_NONBLOCK) ||
	    state_get(&now))
		give_up("a file");
	world.file = 0;
	for (o = now.objects; o < now.objects + now.count; o++)
		if (o->type == IB_MEMREG_OBJECT_FILE && o->file > world.file)
			world.file = o->file;
	state_free(&now);
	world.memfd = memfd_create("fuzz", MFD_CLOEXEC);
	world.memory = raw_memory(world.fd, MEMORY_BYTES, 0);
	if (ftruncate(world.memfd, MEM_PAGES * PAGE) || world.memory < 0 ||
	    raw_domain(world.fd, &domain) || raw_listen(world.fd, &world.port))
		give_up("objects to begin with");
	world.end = mmap(REGION, REGION_BYTES, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
			 MAP_FIXED_NOREPLACE, -1, 0);
	if (world.end != REGION)
		give_up("the region");
	world.mem = place((MEM_PAGES + 1) * PAGE, MEM_PAGES * PAGE);
	for (i = 0; i < THREADS; i++) {
		world.args[i] = place(2 * PAGE, PAGE);
		world.arrays[i] = place(ARRAY_BYTES + PAGE, ARRAY_BYTES);
	}
}

static void world_end(void)
{
	close(world.fd);
	close(world.memfd);
	close(world.memory);
	munmap(REGION, REGION_BYTES);
}

FIXTURE(fuzz)
{
	unsigned int seed;
};

FIXTURE_SETUP(fuzz)
{
	outcomes = mmap(NULL, sizeof(*outcomes) * ncalls,
			PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	ASSERT_NE(MAP_FAILED, outcomes);
	self->seed = test_seed();
	TH_LOG("seed %u", self->seed);
}

/* Print how often a call ended how; returns how often it succeeded. */
static unsigned long report(struct __test_metadata *_metadata,
			    const struct call *call)
{
	const unsigned long *n = outcomes[call - calls];
	char line[512];
	int i, at;

	at = snprintf(line, sizeof(line), "%s: %lu", call->name, n[0]);
	for (i = 1; i < ERRNOS; i++)
		if (n[i])
			at += snprintf(line + at, sizeof(line) - at,
				       ", %s %lu", strerrorname_np(i) ?: "?",
				       n[i]);
	TH_LOG("%s", line);
	return n[0];
}

/* io_uring ends a little later than the process that has used it. */
static bool all_gone(void)
{
	unsigned int i;

	for (i = 0; i < LIMIT_MS / 10; i++) {
		if (!state_count(IB_MEMREG_OBJECT_FILE) && !vm_pin(0))
			return true;
		poll(NULL, 0, 10);
	}
	return false;
}

FIXTURE_TEARDOWN(fuzz)
{
	const struct call *call;
	unsigned long good = 0;

	for (call = calls; call < calls + ncalls; call++)
		good += report(_metadata, call);
	/* The test shows something only if many of the random calls succeed. */
	EXPECT_LT(100, good);
	EXPECT_TRUE(all_gone());
	munmap(outcomes, sizeof(*outcomes) * ncalls);
}

/* Objects of the file, but for endpoints, which peers make as well */
static bool same_objects(const struct state *a, const struct state *b)
{
	const struct ib_memreg_object *o = a->objects, *p = b->objects;
	const struct ib_memreg_object *o_end = o + a->count;
	const struct ib_memreg_object *p_end = p + b->count;

	for (;; o++, p++) {
		while (o < o_end && o->type == IB_MEMREG_OBJECT_ENDPOINT)
			o++;
		while (p < p_end && p->type == IB_MEMREG_OBJECT_ENDPOINT)
			p++;
		if (o == o_end || p == p_end)
			break;
		if (o->file != p->file || o->id != p->id)
			return false;
	}
	return o == o_end && p == p_end;
}

/*
 * Is an MR on demand? Advice on an empty range fails for any other, and has no
 * effect.
 */
static bool is_on_demand(__u32 mr)
{
	struct ib_memreg_range range = { .mr_id = mr };
	RAW(mr_advise, cmd, .advice = IB_MEMREG_ADVICE_DROP, .count = 1,
	    .ranges = (uintptr_t)&range);

	return !raw_call(world.fd, IB_MEMREG_IOC_MR_ADVISE, &cmd) &&
	       range.out_reason == IB_MEMREG_REASON_ZERO_LENGTH;
}

/* Pages that MRs on demand have now */
static long pinned_on_demand(const struct state *state)
{
	const struct ib_memreg_object *o = state->objects;
	long pages = 0;

	for (; o < state->objects + state->count; o++) {
		RAW(mr_query, cmd, .mr_id = o->id);

		if (o->type == IB_MEMREG_OBJECT_MR && o->file == world.file &&
		    !o->u.mr.rkey && is_on_demand(o->id) &&
		    !raw_call(world.fd, IB_MEMREG_IOC_MR_QUERY, &cmd))
			pages += cmd.out_pinned;
	}
	return pages;
}

/*
 * Pages that are pinned beside those of MRs on demand: what a call that failed
 * has pinned for one stays, and goes at any time. These are counted less before
 * they are unpinned, so what is returned may be too much for a moment, and
 * never too little.
 */
static long pinned_for_good(const struct state *state)
{
	long all, on_demand;

	do {
		on_demand = pinned_on_demand(state);
		all = vm_pin(0);
	} while (pinned_on_demand(state) != on_demand);
	return all - on_demand;
}

/* Expect that no more pages are pinned than before. */
static bool no_more_pinned(const struct state *now, long before)
{
	unsigned int i;

	for (i = 0; i < LIMIT_MS / 10; i++) {
		if (pinned_for_good(now) <= before)
			return true;
		poll(NULL, 0, 10);
	}
	return false;
}

TEST(each_call_has_a_maker)
{
	const struct call *call;

	for (call = calls; call < calls + ncalls; call++) {
		EXPECT_LT(0, maker_of(call)->weight)
			TH_LOG("%s", call->name);
		EXPECT_EQ(call->on != CALL_BY_URING, !!maker_of(call)->make)
			TH_LOG("%s", call->name);
	}
}

TEST_F_TIMEOUT(fuzz, I8_what_fails_has_changed_nothing, 9000)
{
	unsigned int i, n = test_repeat(2000);
	const struct call *call;
	struct state before;
	struct fuzzer f;
	long pinned;
	bool same;
	int err;

	world_begin();
	fuzzer_begin(&f, self->seed, 0);
	f.faults = fault_injection();
	pinned = pinned_for_good(&f.known);
	for (i = 0; i < n && !_metadata->exit_code; i++) {
		call = some_call(&f);
		err = make_call(&f, call);
		before = f.known;
		ASSERT_EQ(0, state_get(&f.known));
		same = !err || (same_objects(&before, &f.known) &&
				no_more_pinned(&f.known, pinned));
		EXPECT_TRUE(!f.bad && same)
			TH_LOG("call %u, %s: %s", i, call->name,
			       strerrorname_np(err));
		if (!err)
			pinned = pinned_for_good(&f.known);
		state_free(&before);
		step_aside(&f);
	}
	fuzzer_end(&f);
	world_end();
}

/* Several threads make calls, in a process that exits while they do */

struct thread {
	pthread_t id;
	struct fuzzer f;
	unsigned int calls;
};

static void *calls_of_thread(void *arg)
{
	struct thread *t = arg;
	unsigned int i;
	int err = 0;

	t->f.faults = fault_injection();
	for (i = 0; i < t->calls && !t->f.bad; i++) {
		if (i % 2 == 0)
			look(&t->f);
		err = make_call(&t->f, some_call(&t->f));
		step_aside(&t->f);
		write_to_others(&t->f);
	}
	if (t->f.bad)
		fprintf(stderr, "# %s: %s\n", t->f.bad, strerrorname_np(err));
	return NULL;
}

/* The first thread that has made its calls exits the process. */
static bool calls_of_threads(unsigned int seed, unsigned int n)
{
	static struct thread threads[THREADS];
	unsigned int i;

	world_begin();
	/* Register buffers with io_uring before a thread changes the memory. */
	for (i = 0; i < THREADS; i++)
		fuzzer_begin(&threads[i].f, seed, i);
	for (i = 0; i < THREADS; i++) {
		threads[i].calls = n;
		if (pthread_create(&threads[i].id, NULL, calls_of_thread,
				   &threads[i]))
			give_up("a thread");
	}
	pthread_join(threads[0].id, NULL);
	for (i = 0; i < THREADS; i++)
		if (threads[i].f.bad)
			return false;
	return true;
}

TEST_F_TIMEOUT(fuzz, I7_I8_threads_change_what_others_ask_for, 9000)
{
	unsigned int i, n = test_repeat(6);
	int status;
	pid_t pid;

	for (i = 0; i < n && !_metadata->exit_code; i++) {
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid)
			_exit(!calls_of_threads(self->seed + i, 400));
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status)
			TH_LOG("round %u", i);
		EXPECT_TRUE(all_gone());
	}
}

TEST_HARNESS_MAIN
