// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every allocation, every copy from or to user space, and every request to the
 * device or the RDMA CM that a call makes is made to fail, one after the other:
 * /proc/thread-self/fail-nth. The call must either succeed all the same, or
 * fail with a documented errno and have changed nothing (I8); it must work
 * afterwards, and nothing may be left (I7). What the kernel's checkers say
 * meanwhile is for the test bench to judge.
 *
 * Faults are ordered for the calling thread alone, so workers, timers and
 * softirqs are spared.
 *
 * time limit: 600
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "calls.h"
#include "ends.h"
#include "fake.h"
#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "net.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "test.h"

#define LENGTH		(8 * PAGE)
#define BATCH		8

FIXTURE(fail_nth) {
	int fd;
	__u32 domain;
	__u32 local_mr;
	__u32 listener;
	__be16 port;
	char *memory;
	char *untouched;
	size_t large_length;
	char *large;
	/* Object that the call under test makes or destroys */
	int made_fd;
	int dmabuf;
	__u32 status;
	__u32 monitors[3];
	int fake;
	__u32 made;
	__u32 export;
	__u32 demand;
	__u32 ids[BATCH];
	struct ib_memreg_bind binds[BATCH];
	/* The peer's file, in another network namespace. */
	int peer;
	__u32 peer_domain;
	__u32 peer_endpoint;
	/* For endpoints with queues */
	struct ring ring;
	__u32 window;
	void *mapped;
	__u32 lease;
};

/*
 * Sweeping
 */

/**
 * struct op - A call to be swept
 * @prepare: Makes what it needs, anew for each round; or NULL
 * @call: The call, 0 or -errno; it touches no memory that isn't there
 * @settle: Undoes what a call that failed may leave, or NULL
 * @undo: Undoes a call that succeeded, and gives back what @prepare made
 * @other: Errno of a fault beside those of its last ioctl(2), or 0
 * @final: It may be called once only, so that it works is for the next round
 *	to show
 * @quiet: It may be that nothing in it can fail
 * @late: EFAULT may also be that of the answer, after all was done
 */
struct op {
	int (*prepare)(FIXTURE_DATA(fail_nth) *self);
	int (*call)(FIXTURE_DATA(fail_nth) *self);
	int (*settle)(FIXTURE_DATA(fail_nth) *self);
	int (*undo)(FIXTURE_DATA(fail_nth) *self);
	int other;
	bool final;
	bool quiet;
	bool late;
};

/* After the call */
static bool op_may_fail(const struct op *op, int ret)
{
	return -ret == op->other || call_may_fail_by_fault(raw_last(), -ret);
}

/*
 * Number of work requests posted so far, as these may have completed before the
 * test looks
 */
static __u64 posted(FIXTURE_DATA(fail_nth) *self)
{
	__u64 value = 0;

	raw_stat(self->fd, IB_MEMREG_STAT_WRS_SUBMITTED, &value);
	return value;
}

/* One round; returns whether the fault happened. */
static bool sweep_round(struct __test_metadata *_metadata,
			FIXTURE_DATA(fail_nth) *self, const struct op *op,
			unsigned int nth)
{
	struct state outside, before;
	unsigned int left;
	__u64 wrs;
	bool hit;
	int ret;

	ASSERT_EQ(0, state_get(&outside));
	if (op->prepare)
		ASSERT_EQ(0, op->prepare(self));
	ASSERT_EQ(0, state_get(&before));
	wrs = posted(self);

	fail_nth_arm(nth);
	ret = op->call(self);
	hit = fail_nth_disarm(&left);

	if (ret) {
		ASSERT_TRUE(hit);
		ASSERT_TRUE(op_may_fail(op, ret)) {
			TH_LOG("fault %u: the call fails with %d", nth, ret);
		}
		if (op->final)
			goto undo;
		if (op->late && ret == -EFAULT && posted(self) != wrs)
			goto undo;
		if (op->settle)
			ASSERT_EQ(0, op->settle(self));
		ASSERT_TRUE(state_same(&before)) {
			TH_LOG("fault %u: the call fails with %d", nth, ret);
		}
		ASSERT_EQ(0, op->call(self)) {
			TH_LOG("after fault %u: %d", nth, ret);
		}
	}
undo:
	ASSERT_EQ(0, op->undo(self)) {
		TH_LOG("after fault %u: %d", nth, ret);
	}
	ASSERT_TRUE(state_same(&outside)) {
		TH_LOG("after fault %u: %d", nth, ret);
	}
	state_free(&before);
	state_free(&outside);
	return hit;
}

static void sweep(struct __test_metadata *_metadata,
		  FIXTURE_DATA(fail_nth) *self, const struct op *op)
{
	unsigned int stride = sweep_stride(SWEEP_K), tried = 0;
	unsigned int nth = 1 + sweep_first(SWEEP_K);

	for (; sweep_round(_metadata, self, op, nth); nth += stride)
		tried++;
	/* Each call copies its argument. */
	if (!op->quiet)
		EXPECT_TRUE(tried || stride > 1);
	ksft_print_msg("%u places, each %u. of them\n", tried, stride);
}

/* Objects that calls need */

static int listen_on_owner(FIXTURE_DATA(fail_nth) *self)
{
	RAW(listener_create, cmd, .backlog = 16, .addr = { .family = AF_INET });
	int ret;

	inet_pton(AF_INET, OWNER_IP4, cmd.addr.ip);
	ret = raw_call(self->fd, IB_MEMREG_IOC_LISTENER_CREATE, &cmd);
	self->listener = cmd.out_listener_id;
	self->port = cmd.addr.port;
	return ret;
}

FIXTURE_SETUP(fail_nth)
{
	__u64 span;

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_KEY_SPAN, &span));
	self->memory = mem_alloc(LENGTH);
	self->large_length = span + PAGE;
	self->large = mem_scattered(span + 2 * PAGE);
	self->untouched = mem_alloc(LENGTH);
	ASSERT_NE(NULL, self->memory);
	ASSERT_NE(NULL, self->large);
	ASSERT_NE(NULL, self->untouched);
	memset(self->memory, 1, LENGTH);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, LENGTH,
				  MW_BIND | LOCAL_WRITE, &self->local_mr));
	ASSERT_EQ(0, ring_create(self->fd, &self->ring, 64, 64, 0, -1));
	ASSERT_EQ(0, listen_on_owner(self));
	self->peer = raw_open_peer();
	ASSERT_LE(0, self->peer);
	ASSERT_EQ(0, raw_domain(self->peer, &self->peer_domain));
}

FIXTURE_TEARDOWN(fail_nth)
{
	ring_unmap(&self->ring);
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, close(self->peer));
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_FILE));
}

static int destroy_made(FIXTURE_DATA(fail_nth) *self)
{
	return raw_destroy(self->fd, self->made);
}

static int nothing(FIXTURE_DATA(fail_nth) *self)
{
	(void)self;
	return 0;
}

/*
 * Devices
 */

static int call_bind_device(FIXTURE_DATA(fail_nth) *self)
{
	int ret;

	self->made_fd = raw_open();
	if (self->made_fd < 0)
		return self->made_fd;
	ret = raw_bind_device(self->made_fd, test_device());
	if (ret)
		close(self->made_fd);
	return ret;
}

static int close_made(FIXTURE_DATA(fail_nth) *self)
{
	return close(self->made_fd);
}

TEST_F_TIMEOUT(fail_nth, I8_open_and_bind_device, 300)
{
	static const struct op op = {
		.call = call_bind_device,
		.undo = close_made,
	};

	sweep(_metadata, self, &op);
}

static int call_query(FIXTURE_DATA(fail_nth) *self)
{
	__u64 value;

	return raw_cap(self->fd, IB_MEMREG_CAP_KEY_SPAN, &value);
}

TEST_F_TIMEOUT(fail_nth, I8_query, 300)
{
	static const struct op op = { .call = call_query, .undo = nothing };

	sweep(_metadata, self, &op);
}

static int call_stat(FIXTURE_DATA(fail_nth) *self)
{
	static struct ib_memreg_stat_entry stats[4];
	RAW(device_stat, cmd, .count = 4, .stats = (uintptr_t)stats);

	memset(stats, 0, sizeof(stats));
	return raw_call(self->fd, IB_MEMREG_IOC_DEVICE_STAT, &cmd);
}

TEST_F_TIMEOUT(fail_nth, I8_stat, 300)
{
	static const struct op op = { .call = call_stat, .undo = nothing };

	sweep(_metadata, self, &op);
}

static int call_list(FIXTURE_DATA(fail_nth) *self)
{
	static struct ib_memreg_object objects[8];
	RAW(list, cmd, .count = 8, .objects = (uintptr_t)objects,
	    .object_size = sizeof(objects[0]));

	memset(objects, 0, sizeof(objects));
	return raw_call(self->fd, IB_MEMREG_IOC_LIST, &cmd);
}

TEST_F_TIMEOUT(fail_nth, I8_list, 300)
{
	static const struct op op = { .call = call_list, .undo = nothing };

	sweep(_metadata, self, &op);
}

/*
 * Domains and MRs
 */

static int call_domain(FIXTURE_DATA(fail_nth) *self)
{
	return raw_domain(self->fd, &self->made);
}

TEST_F_TIMEOUT(fail_nth, I8_domain_create, 600)
{
	static const struct op op = {
		.call = call_domain,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

static int call_domain_query(FIXTURE_DATA(fail_nth) *self)
{
	RAW(domain_query, cmd, .domain_id = self->domain);

	return raw_call(self->fd, IB_MEMREG_IOC_DOMAIN_QUERY, &cmd);
}

TEST_F_TIMEOUT(fail_nth, I8_domain_query, 300)
{
	static const struct op op = {
		.call = call_domain_query,
		.undo = nothing,
	};

	sweep(_metadata, self, &op);
}

static int call_register_local(FIXTURE_DATA(fail_nth) *self)
{
	return raw_register(self->fd, self->domain, self->memory, LENGTH,
			    LOCAL_WRITE | MW_BIND, &self->made);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_register_local, 600)
{
	static const struct op op = {
		.call = call_register_local,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

static int call_register_remote(FIXTURE_DATA(fail_nth) *self)
{
	return raw_register(self->fd, self->domain, self->memory + 1,
			    LENGTH - 2, LOCAL_WRITE | REMOTE_WRITE,
			    &self->made);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_register_remote, 600)
{
	static const struct op op = {
		.call = call_register_remote,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

/* Drop the pages, so that the next call has to fault them in to pin them. */
static int forget_memory(FIXTURE_DATA(fail_nth) *self)
{
	return madvise(self->untouched, LENGTH, MADV_DONTNEED);
}

static int call_register_untouched(FIXTURE_DATA(fail_nth) *self)
{
	return raw_register(self->fd, self->domain, self->untouched, LENGTH,
			    LOCAL_WRITE | REMOTE_WRITE, &self->made);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_register_untouched, 600)
{
	static const struct op op = {
		.prepare = forget_memory,
		.call = call_register_untouched,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

static int call_register_large(FIXTURE_DATA(fail_nth) *self)
{
	return raw_register(self->fd, self->domain, self->large,
			    self->large_length, REMOTE_READ, &self->made);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_register_two_segments, 600)
{
	static const struct op op = {
		.call = call_register_large,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

/* A huge block and small ones */
#define MEMORY_LENGTH	((2UL << 20) + 5 * PAGE)

static int call_memory_create(FIXTURE_DATA(fail_nth) *self)
{
	self->made_fd = raw_memory(self->fd, MEMORY_LENGTH, 0);
	return self->made_fd < 0 ? self->made_fd : 0;
}

static int call_memory_contiguous(FIXTURE_DATA(fail_nth) *self)
{
	self->made_fd = raw_memory(self->fd, LENGTH,
				   IB_MEMREG_MEMORY_CONTIGUOUS);
	return self->made_fd < 0 ? self->made_fd : 0;
}

static int close_made_fd(FIXTURE_DATA(fail_nth) *self)
{
	return close(self->made_fd);
}

TEST_F_TIMEOUT(fail_nth, I8_memory_create, 600)
{
	static const struct op op = {
		.call = call_memory_create,
		.undo = close_made_fd,
	};

	sweep(_metadata, self, &op);
}

TEST_F_TIMEOUT(fail_nth, I8_memory_create_contiguous, 600)
{
	static const struct op op = {
		.call = call_memory_contiguous,
		.undo = close_made_fd,
	};

	sweep(_metadata, self, &op);
}

/* Tables and monitors */

static int call_status_create(FIXTURE_DATA(fail_nth) *self)
{
	RAW(status_create, cmd, .slots = 100, .log_entries = 16);
	int ret = raw_call(self->fd, IB_MEMREG_IOC_STATUS_CREATE, &cmd);

	self->status = cmd.out_status_id;
	self->made_fd = cmd.out_fd;
	return ret;
}

static int destroy_status(FIXTURE_DATA(fail_nth) *self)
{
	close(self->made_fd);
	return raw_destroy(self->fd, self->status);
}

TEST_F_TIMEOUT(fail_nth, I8_status_create, 600)
{
	static const struct op op = {
		.call = call_status_create,
		.undo = destroy_status,
	};

	sweep(_metadata, self, &op);
}

static int call_monitor_create(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_monitor monitors[3] = {
		{ .addr = (uintptr_t)self->memory, .length = PAGE },
		{ .addr = (uintptr_t)self->memory, .length = LENGTH },
		{ .flags = IB_MEMREG_MONITOR_WIDE },
	};
	unsigned int i;
	int ret;

	ret = raw_monitor(self->fd, self->status, monitors, 3);
	for (i = 0; i < 3; i++)
		self->monitors[i] = monitors[i].out_monitor_id;
	return ret;
}

static int call_monitor_destroy(FIXTURE_DATA(fail_nth) *self)
{
	return raw_unmonitor(self->fd, self->monitors, 3);
}

static int destroy_monitors(FIXTURE_DATA(fail_nth) *self)
{
	return call_monitor_destroy(self) ?: destroy_status(self);
}

static int make_monitors(FIXTURE_DATA(fail_nth) *self)
{
	return call_status_create(self) ?: call_monitor_create(self);
}

TEST_F_TIMEOUT(fail_nth, I8_monitor_create, 600)
{
	static const struct op op = {
		.prepare = call_status_create,
		.call = call_monitor_create,
		.undo = destroy_monitors,
	};

	sweep(_metadata, self, &op);
}

TEST_F_TIMEOUT(fail_nth, I8_monitor_destroy, 600)
{
	static const struct op op = {
		.prepare = make_monitors,
		.call = call_monitor_destroy,
		.undo = destroy_status,
	};

	sweep(_metadata, self, &op);
}

/* Have the log of the wide monitor a change to report, of a page of its own. */
static int make_news(FIXTURE_DATA(fail_nth) *self)
{
	char *page = mem_alloc(PAGE);
	int ret = make_monitors(self);

	if (!page)
		return -ENOMEM;
	mem_free(page, PAGE);
	return ret;
}

static int call_status_read(FIXTURE_DATA(fail_nth) *self)
{
	__u64 changes;

	return read(self->made_fd, &changes, sizeof(changes)) ==
	       sizeof(changes) ? 0 : -errno;
}

TEST_F_TIMEOUT(fail_nth, I8_status_read, 600)
{
	static const struct op op = {
		.prepare = make_news,
		.call = call_status_read,
		.undo = destroy_monitors,
	};

	sweep(_metadata, self, &op);
}

static int call_status_map(FIXTURE_DATA(fail_nth) *self)
{
	self->mapped = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, self->made_fd,
			    0);
	return self->mapped == MAP_FAILED ? -errno : 0;
}

static int unmap_status(FIXTURE_DATA(fail_nth) *self)
{
	return munmap(self->mapped, PAGE) ? -errno : destroy_status(self);
}

TEST_F_TIMEOUT(fail_nth, I8_status_map, 600)
{
	static const struct op op = {
		.prepare = call_status_create,
		.call = call_status_map,
		.undo = unmap_status,
		.quiet = true,
	};

	sweep(_metadata, self, &op);
}

/* Register an MR that has a slot of the status table. */
static int call_register_watched(FIXTURE_DATA(fail_nth) *self)
{
	RAW(mr_register, cmd, .domain_id = self->domain,
	    .access = LOCAL_WRITE | REMOTE_WRITE,
	    .addr = (uintptr_t)self->memory, .length = LENGTH,
	    .status_id = self->status);
	int ret = raw_call(self->fd, IB_MEMREG_IOC_MR_REGISTER, &cmd);

	self->made = cmd.out_mr_id;
	return ret;
}

static int destroy_watched(FIXTURE_DATA(fail_nth) *self)
{
	return destroy_made(self) ?: destroy_status(self);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_register_watched, 600)
{
	static const struct op op = {
		.prepare = call_status_create,
		.call = call_register_watched,
		.undo = destroy_watched,
	};

	sweep(_metadata, self, &op);
}

static int call_memory_dup(FIXTURE_DATA(fail_nth) *self)
{
	int twin = raw_memory_dup(self->fd, self->made_fd);

	return twin < 0 ? twin : close(twin);
}

TEST_F_TIMEOUT(fail_nth, I8_memory_dup, 600)
{
	static const struct op op = {
		.prepare = call_memory_create,
		.call = call_memory_dup,
		.undo = close_made_fd,
	};

	sweep(_metadata, self, &op);
}

static int call_memory_mmap(FIXTURE_DATA(fail_nth) *self)
{
	self->mapped = mmap(NULL, MEMORY_LENGTH, PROT_READ | PROT_WRITE,
			    MAP_SHARED, self->made_fd, 0);
	return self->mapped == MAP_FAILED ? -errno : 0;
}

static int unmap_memory(FIXTURE_DATA(fail_nth) *self)
{
	/* Touch all pages while no fault is ordered. */
	memset(self->mapped, 1, MEMORY_LENGTH);
	return munmap(self->mapped, MEMORY_LENGTH) ?: close(self->made_fd);
}

TEST_F_TIMEOUT(fail_nth, I8_memory_mmap, 300)
{
	static const struct op op = {
		.prepare = call_memory_create,
		.call = call_memory_mmap,
		.undo = unmap_memory,
	};

	sweep(_metadata, self, &op);
}

static int call_register_fd(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_mr_register mr;
	int ret;

	ret = raw_register_fd(self->fd, self->domain, self->made_fd, 100,
			      MEMORY_LENGTH - 200, LOCAL_WRITE | REMOTE_WRITE,
			      &mr);
	self->made = mr.out_mr_id;
	return ret;
}

static int destroy_and_close(FIXTURE_DATA(fail_nth) *self)
{
	return destroy_made(self) ?: close(self->made_fd);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_register_fd, 600)
{
	static const struct op op = {
		.prepare = call_memory_create,
		.call = call_register_fd,
		.undo = destroy_and_close,
	};

	sweep(_metadata, self, &op);
}

/*
 * A dma-buf of an exporter that never takes its memory away, and below one of
 * an exporter that may
 */
static int export_foreign(FIXTURE_DATA(fail_nth) *self)
{
	self->made_fd = fake_export(self->fake, MEMORY_LENGTH,
				    MEMREG_FAKE_STATIC);
	return self->made_fd < 0 ? self->made_fd : 0;
}

static int export_revocable(FIXTURE_DATA(fail_nth) *self)
{
	self->made_fd = fake_export(self->fake, MEMORY_LENGTH, 0);
	return self->made_fd < 0 ? self->made_fd : 0;
}

static int prepare_dmabuf_monitor(FIXTURE_DATA(fail_nth) *self)
{
	self->dmabuf = fake_export(self->fake, MEMORY_LENGTH, 0);
	return self->dmabuf < 0 ? self->dmabuf : call_status_create(self);
}

static int call_dmabuf_monitor(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_monitor monitor = {
		.addr = (unsigned int)self->dmabuf,
		.flags = IB_MEMREG_MONITOR_DMABUF,
	};
	int ret = raw_monitor(self->fd, self->status, &monitor, 1);

	self->monitors[0] = monitor.out_monitor_id;
	return ret;
}

static int destroy_dmabuf_monitor(FIXTURE_DATA(fail_nth) *self)
{
	close(self->dmabuf);
	return raw_unmonitor(self->fd, self->monitors, 1) ?:
	       destroy_status(self);
}

TEST_F_TIMEOUT(fail_nth, I8_monitor_create_dmabuf, 600)
{
	static const struct op op = {
		.prepare = prepare_dmabuf_monitor,
		.call = call_dmabuf_monitor,
		.undo = destroy_dmabuf_monitor,
	};

	self->fake = fake_open();
	ASSERT_LE(0, self->fake);
	sweep(_metadata, self, &op);
	EXPECT_EQ(0, close(self->fake));
}

TEST_F_TIMEOUT(fail_nth, I8_mr_register_foreign, 600)
{
	static const struct op op = {
		.prepare = export_foreign,
		.call = call_register_fd,
		.undo = destroy_and_close,
	};

	self->fake = fake_open();
	ASSERT_LE(0, self->fake);
	sweep(_metadata, self, &op);
	EXPECT_EQ(0, close(self->fake));
}

static const struct op revocable = {
	.prepare = export_revocable,
	.call = call_register_fd,
	.undo = destroy_and_close,
};

TEST_F_TIMEOUT(fail_nth, I8_mr_register_revocable, 600)
{
	self->fake = fake_open();
	ASSERT_LE(0, self->fake);
	sweep(_metadata, self, &revocable);
	EXPECT_EQ(0, close(self->fake));
}

TEST_F_TIMEOUT(fail_nth, I8_mr_register_revocable_dma, 600)
{
	self->fake = fake_open();
	ASSERT_LE(0, self->fake);
	fault_order("dmabuf_map", 0, -1);
	sweep(_metadata, self, &revocable);
	fault_cancel("dmabuf_map");
	EXPECT_EQ(0, close(self->fake));
}

static int call_export_create(FIXTURE_DATA(fail_nth) *self)
{
	self->made_fd = raw_export(self->fd, self->local_mr, 0, PAGE,
				   &self->export);
	return self->made_fd < 0 ? self->made_fd : 0;
}

static int destroy_export(FIXTURE_DATA(fail_nth) *self)
{
	close(self->made_fd);
	return raw_destroy(self->fd, self->export);
}

TEST_F_TIMEOUT(fail_nth, I8_export_create, 600)
{
	static const struct op op = {
		.call = call_export_create,
		.undo = destroy_export,
	};

	sweep(_metadata, self, &op);
}

static int call_export_revoke(FIXTURE_DATA(fail_nth) *self)
{
	return raw_unexport(self->fd, &self->export, 1);
}

TEST_F_TIMEOUT(fail_nth, I8_export_revoke, 600)
{
	static const struct op op = {
		.prepare = call_export_create,
		.call = call_export_revoke,
		.undo = destroy_export,
	};

	sweep(_metadata, self, &op);
}

static int call_register_export(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_mr_register mr = {};
	int ret = raw_register_fd(self->fd, self->domain, self->made_fd, 0,
				  PAGE, LOCAL_WRITE | REMOTE_RW, &mr);

	self->made = mr.out_mr_id;
	return ret;
}

static int destroy_made_and_export(FIXTURE_DATA(fail_nth) *self)
{
	return destroy_made(self) ?: destroy_export(self);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_register_export, 600)
{
	static const struct op op = {
		.prepare = call_export_create,
		.call = call_register_export,
		.undo = destroy_made_and_export,
	};

	sweep(_metadata, self, &op);
}

/*
 * Have the exporter move its memory. Its own allocations are spared, and those
 * of the module's callback fail.
 */
static int call_move(FIXTURE_DATA(fail_nth) *self)
{
	return fake_control(self->fake, self->made_fd, MEMREG_FAKE_MOVE, NULL);
}

static int prepare_move(FIXTURE_DATA(fail_nth) *self)
{
	return export_revocable(self) ?: call_register_fd(self);
}

TEST_F_TIMEOUT(fail_nth, I1_exporter_takes_memory_away, 600)
{
	struct memreg_fake_control state;
	unsigned int nth, left;
	bool hit = true;
	int ret;

	self->fake = fake_open();
	ASSERT_LE(0, self->fake);
	for (nth = 1 + sweep_first(SWEEP_K); hit;
	     nth += sweep_stride(SWEEP_K)) {
		ASSERT_EQ(0, prepare_move(self));
		fail_nth_arm(nth);
		ret = call_move(self);
		hit = fail_nth_disarm(&left);
		EXPECT_TRUE(!ret || ret == -ENOMEM || ret == -EFAULT);
		if (ret)
			ASSERT_EQ(0, call_move(self));
		ASSERT_EQ(0, fake_control(self->fake, self->made_fd,
					  MEMREG_FAKE_LOOK, &state));
		EXPECT_EQ(0, state.out_pinned);
		ASSERT_EQ(0, destroy_and_close(self));
	}
	EXPECT_EQ(0, close(self->fake));
}

static int call_pool_create(FIXTURE_DATA(fail_nth) *self)
{
	RAW(pool_create, cmd, .flags = IB_MEMREG_MR_FD,
	    .domain_id = self->domain, .access = LOCAL_WRITE | REMOTE_WRITE,
	    .count = BATCH, .buffer_size = PAGE, .fd = self->made_fd);
	int ret = raw_call(self->fd, IB_MEMREG_IOC_POOL_CREATE, &cmd);

	if (ret)
		return ret;
	self->made = cmd.out_mr_id;
	return close(cmd.out_table_fd);
}

TEST_F_TIMEOUT(fail_nth, I8_pool_create, 600)
{
	static const struct op op = {
		.prepare = call_memory_create,
		.call = call_pool_create,
		.undo = destroy_and_close,
	};

	sweep(_metadata, self, &op);
}

static int prepare_pool(FIXTURE_DATA(fail_nth) *self)
{
	return call_memory_create(self) ?: call_pool_create(self);
}

static int call_pool_recycle(FIXTURE_DATA(fail_nth) *self)
{
	static const __u32 indices[] = { 1, 3, 5, 0 };
	RAW(pool_recycle, cmd, .mr_id = self->made, .count = 4,
	    .indices = (uintptr_t)indices);

	return raw_call(self->fd, IB_MEMREG_IOC_POOL_RECYCLE, &cmd);
}

TEST_F_TIMEOUT(fail_nth, I8_pool_recycle, 600)
{
	static const struct op op = {
		.prepare = prepare_pool,
		.call = call_pool_recycle,
		.undo = destroy_and_close,
	};

	sweep(_metadata, self, &op);
}

static int prepare_mr(FIXTURE_DATA(fail_nth) *self)
{
	return call_register_remote(self);
}

/* Change everything: some pages are kept, and the keys go to another domain. */
static int call_reregister_all(FIXTURE_DATA(fail_nth) *self)
{
	RAW(mr_reregister, cmd, .flags = IB_MEMREG_REREG_TRANSLATION |
	    IB_MEMREG_REREG_DOMAIN | IB_MEMREG_REREG_ACCESS,
	    .mr_id = self->made, .domain_id = self->domain,
	    .access = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE,
	    .addr = (uintptr_t)self->memory + PAGE, .length = LENGTH - PAGE);

	return raw_call(self->fd, IB_MEMREG_IOC_MR_REREGISTER, &cmd);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_reregister_all, 600)
{
	static const struct op op = {
		.prepare = prepare_mr,
		.call = call_reregister_all,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

static int call_reregister_access(FIXTURE_DATA(fail_nth) *self)
{
	RAW(mr_reregister, cmd, .flags = IB_MEMREG_REREG_ACCESS,
	    .mr_id = self->made, .access = REMOTE_READ);

	return raw_call(self->fd, IB_MEMREG_IOC_MR_REREGISTER, &cmd);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_reregister_access, 600)
{
	static const struct op op = {
		.prepare = prepare_mr,
		.call = call_reregister_access,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

/* An MR that peers read only */
static int prepare_read_only_mr(FIXTURE_DATA(fail_nth) *self)
{
	return raw_register(self->fd, self->domain, self->memory, LENGTH,
			    REMOTE_READ, &self->made);
}

static int call_reregister_writable(FIXTURE_DATA(fail_nth) *self)
{
	RAW(mr_reregister, cmd, .flags = IB_MEMREG_REREG_ACCESS,
	    .mr_id = self->made, .access = LOCAL_WRITE | REMOTE_WRITE);

	return raw_call(self->fd, IB_MEMREG_IOC_MR_REREGISTER, &cmd);
}

/* The pages are pinned anew. */
TEST_F_TIMEOUT(fail_nth, I8_mr_reregister_writable, 600)
{
	static const struct op op = {
		.prepare = prepare_read_only_mr,
		.call = call_reregister_writable,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

static int call_mr_query(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_segment segment = {};
	RAW(mr_query, cmd, .mr_id = self->made, .count = 1,
	    .segments = (uintptr_t)&segment);

	return raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &cmd);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_query, 300)
{
	static const struct op op = {
		.prepare = prepare_mr,
		.call = call_mr_query,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

/*
 * Change to a part of the descriptor's memory; the keys stay in their domain.
 */
static int call_reregister_fd(FIXTURE_DATA(fail_nth) *self)
{
	RAW(mr_reregister, cmd, .flags = IB_MEMREG_REREG_TRANSLATION |
	    IB_MEMREG_REREG_ACCESS, .mr_id = self->made,
	    .access = LOCAL_WRITE | REMOTE_WRITE,
	    .mr_flags = IB_MEMREG_MR_FD, .fd = self->made_fd, .addr = PAGE,
	    .length = PAGE);

	return raw_call(self->fd, IB_MEMREG_IOC_MR_REREGISTER, &cmd);
}

static int prepare_fd_mr(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_mr_register mr;
	int ret = call_memory_create(self) ?:
		  raw_register_fd(self->fd, self->domain, self->made_fd, 0,
				  LENGTH, REMOTE_READ, &mr);

	self->made = mr.out_mr_id;
	return ret;
}

TEST_F_TIMEOUT(fail_nth, I8_mr_reregister_fd, 600)
{
	static const struct op op = {
		.prepare = prepare_fd_mr,
		.call = call_reregister_fd,
		.undo = destroy_and_close,
	};

	sweep(_metadata, self, &op);
}

/* Register memory and unmap its first page, so that the MR is stale. */
static int prepare_stale_mr(FIXTURE_DATA(fail_nth) *self)
{
	return call_register_untouched(self) ?:
	       madvise(self->untouched, PAGE, MADV_DONTNEED);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_reregister_stale, 600)
{
	static const struct op op = {
		.prepare = prepare_stale_mr,
		.call = call_reregister_all,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

/* Change that the tested call makes, and the kind of memory */
static __u32 what_changes;
static bool of_memory_object;

static int call_reregister_some(FIXTURE_DATA(fail_nth) *self)
{
	RAW(mr_reregister, cmd, .flags = what_changes, .mr_id = self->made);

	if (what_changes & IB_MEMREG_REREG_DOMAIN)
		cmd.domain_id = self->domain;
	if (what_changes & IB_MEMREG_REREG_ACCESS)
		cmd.access = LOCAL_WRITE | REMOTE_READ;
	if (what_changes & IB_MEMREG_REREG_TRANSLATION) {
		cmd.addr = (uintptr_t)self->untouched + PAGE;
		cmd.length = 3 * PAGE;
	}
	if (what_changes & IB_MEMREG_REREG_TRANSLATION && of_memory_object) {
		cmd.mr_flags = IB_MEMREG_MR_FD;
		cmd.fd = self->made_fd;
		cmd.addr = PAGE;
	}
	return raw_call(self->fd, IB_MEMREG_IOC_MR_REREGISTER, &cmd);
}

/* All changes, or if the MR is stale those that heal it. */
static void sweep_changes(struct __test_metadata *_metadata,
			  FIXTURE_DATA(fail_nth) *self, const struct op *op,
			  __u32 always)
{
	for (what_changes = 1; what_changes < 8 && !_metadata->exit_code;
	     what_changes++)
		if ((what_changes & always) == always)
			sweep(_metadata, self, op);
}

TEST_F_TIMEOUT(fail_nth, I8_each_change_of_an_mr, 1200)
{
	static const struct op ops[] = { {
		.prepare = prepare_mr,
		.call = call_reregister_some,
		.undo = destroy_made,
	}, {
		.prepare = prepare_read_only_mr,
		.call = call_reregister_some,
		.undo = destroy_made,
	}, {
		.prepare = prepare_stale_mr,
		.call = call_reregister_some,
		.undo = destroy_made,
	}, {
		.prepare = prepare_fd_mr,
		.call = call_reregister_some,
		.undo = destroy_and_close,
	} };
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(ops) && !_metadata->exit_code; i++) {
		of_memory_object = i == 3;
		sweep_changes(_metadata, self, &ops[i], i == 2 ?
			      IB_MEMREG_REREG_TRANSLATION : 0);
	}
}

/*
 * Compose two pieces that do not meet at pages, so that the composition has no
 * key.
 */
static int call_compose(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_piece pieces[] = {
		{ .mr_id = self->local_mr, .offset = 1, .length = PAGE },
		{ .mr_id = self->local_mr, .offset = 2 * PAGE, .length = 64 },
	};
	RAW(mr_compose, cmd, .domain_id = self->domain, .count = 2,
	    .pieces = (uintptr_t)pieces, .access = LOCAL_WRITE | REMOTE_WRITE);
	int ret = raw_call(self->fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd);

	self->made = cmd.out_mr_id;
	return ret;
}

TEST_F_TIMEOUT(fail_nth, I8_mr_compose, 600)
{
	static const struct op op = {
		.call = call_compose,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

/*
 * Windows
 */

static int call_window_alloc(FIXTURE_DATA(fail_nth) *self)
{
	return raw_windows(self->fd, self->domain, LENGTH, self->ids, BATCH);
}

static int destroy_windows(FIXTURE_DATA(fail_nth) *self)
{
	int i, ret = 0;

	for (i = 0; i < BATCH; i++)
		ret = ret ?: raw_destroy(self->fd, self->ids[i]);
	return ret;
}

TEST_F_TIMEOUT(fail_nth, I8_window_alloc, 600)
{
	static const struct op op = {
		.call = call_window_alloc,
		.undo = destroy_windows,
	};

	sweep(_metadata, self, &op);
}

static int prepare_windows(FIXTURE_DATA(fail_nth) *self)
{
	int i, ret;

	ret = call_window_alloc(self);
	memset(self->binds, 0, sizeof(self->binds));
	for (i = 0; i < BATCH; i++) {
		self->binds[i].window_id = self->ids[i];
		self->binds[i].mr_id = self->local_mr;
		self->binds[i].offset = i;
		self->binds[i].length = PAGE;
		self->binds[i].access = REMOTE_READ;
	}
	return ret;
}

static int call_bind_one(FIXTURE_DATA(fail_nth) *self)
{
	return raw_bind(self->fd, self->domain, self->binds, 1);
}

static int call_bind_batch(FIXTURE_DATA(fail_nth) *self)
{
	return raw_bind(self->fd, self->domain, self->binds, BATCH);
}

/* Destroying bound windows leaves no idle MRs, so each bind allocates. */
TEST_F_TIMEOUT(fail_nth, I8_window_bind, 600)
{
	static const struct op op = {
		.prepare = prepare_windows,
		.call = call_bind_one,
		.undo = destroy_windows,
	};

	sweep(_metadata, self, &op);
}

TEST_F_TIMEOUT(fail_nth, I8_window_bind_batch, 600)
{
	static const struct op op = {
		.prepare = prepare_windows,
		.call = call_bind_batch,
		.undo = destroy_windows,
	};

	sweep(_metadata, self, &op);
}

/* With a slot */
static int call_lease_create(FIXTURE_DATA(fail_nth) *self)
{
	RAW(lease_create, cmd, .deadline = ~0ULL, .status_id = self->status);
	int ret = raw_call(self->fd, IB_MEMREG_IOC_LEASE_CREATE, &cmd);

	self->lease = cmd.out_lease_id;
	return ret;
}

static int prepare_status(FIXTURE_DATA(fail_nth) *self)
{
	struct status_map map;
	int ret = status_create(self->fd, 4, 0, &map);

	if (ret)
		return ret;
	self->status = map.id;
	status_unmap(&map);
	return 0;
}

static int destroy_lease(FIXTURE_DATA(fail_nth) *self)
{
	return raw_destroy(self->fd, self->lease) ?:
	       raw_destroy(self->fd, self->status);
}

TEST_F_TIMEOUT(fail_nth, I8_lease_create, 600)
{
	static const struct op op = {
		.prepare = prepare_status,
		.call = call_lease_create,
		.undo = destroy_lease,
	};

	sweep(_metadata, self, &op);
}

static int prepare_lease(FIXTURE_DATA(fail_nth) *self)
{
	return prepare_status(self) ?: call_lease_create(self);
}

static int call_lease_renew(FIXTURE_DATA(fail_nth) *self)
{
	return raw_renew(self->fd, self->lease, ~0ULL);
}

TEST_F_TIMEOUT(fail_nth, I8_lease_renew, 600)
{
	static const struct op op = {
		.prepare = prepare_lease,
		.call = call_lease_renew,
		.undo = destroy_lease,
	};

	sweep(_metadata, self, &op);
}

static int prepare_leased(FIXTURE_DATA(fail_nth) *self)
{
	int i, ret = prepare_lease(self) ?: prepare_windows(self);

	for (i = 0; i < BATCH; i++)
		self->binds[i].lease_id = self->lease;
	return ret;
}

static int destroy_leased(FIXTURE_DATA(fail_nth) *self)
{
	return destroy_windows(self) ?: destroy_lease(self);
}

TEST_F_TIMEOUT(fail_nth, I8_window_bind_leased, 600)
{
	static const struct op op = {
		.prepare = prepare_leased,
		.call = call_bind_batch,
		.undo = destroy_leased,
	};

	sweep(_metadata, self, &op);
}

static int prepare_bound(FIXTURE_DATA(fail_nth) *self)
{
	return prepare_windows(self) ?: call_bind_batch(self);
}

static int call_revoke(FIXTURE_DATA(fail_nth) *self)
{
	return raw_revoke(self->fd, self->domain, self->ids, BATCH);
}

TEST_F_TIMEOUT(fail_nth, I8_window_revoke, 600)
{
	static const struct op op = {
		.prepare = prepare_bound,
		.call = call_revoke,
		.undo = destroy_windows,
	};

	sweep(_metadata, self, &op);
}

static int call_revoke_relaxed(FIXTURE_DATA(fail_nth) *self)
{
	return raw_revoke_relaxed(self->fd, self->domain, self->ids, BATCH);
}

TEST_F_TIMEOUT(fail_nth, I8_window_revoke_relaxed, 600)
{
	static const struct op op = {
		.prepare = prepare_bound,
		.call = call_revoke_relaxed,
		.undo = destroy_windows,
	};

	sweep(_metadata, self, &op);
}

/*
 * Connections
 */

static int call_listen(FIXTURE_DATA(fail_nth) *self)
{
	RAW(listener_create, cmd, .backlog = 4, .addr = { .family = AF_INET });
	int ret = raw_call(self->fd, IB_MEMREG_IOC_LISTENER_CREATE, &cmd);

	self->made = cmd.out_listener_id;
	return ret;
}

TEST_F_TIMEOUT(fail_nth, I8_listen, 600)
{
	static const struct op op = {
		.call = call_listen,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

static int connect_to(int fd, __u32 domain, const char *ip, __be16 port,
		      __u32 *endpoint)
{
	char data[56] = "memreg";
	RAW(endpoint_connect, cmd, .domain_id = domain, .timeout_ms = 20000,
	    .addr = { .family = AF_INET, .port = port },
	    .private_data_len = sizeof(data), .private_data = (uintptr_t)data);
	int ret;

	inet_pton(AF_INET, ip, cmd.addr.ip);
	ret = raw_call(fd, IB_MEMREG_IOC_ENDPOINT_CONNECT, &cmd);
	*endpoint = cmd.out_endpoint_id;
	return ret;
}

static int call_connect(FIXTURE_DATA(fail_nth) *self)
{
	return connect_to(self->fd, self->domain, PEER_IP4, htons(9),
			  &self->made);
}

TEST_F_TIMEOUT(fail_nth, I8_connect, 600)
{
	static const struct op op = {
		.call = call_connect,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

/* Wait for an event of that type; returns its endpoint, or 0. */
static __u32 await_event(int fd, __u32 type)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };
	struct ib_memreg_event event;

	do {
		if (poll(&pollfd, 1, LIMIT_MS) != 1 ||
		    read(fd, &event, sizeof(event)) != sizeof(event))
			return 0;
	} while (event.type != type);
	return event.endpoint_id;
}

static int connect_peer(FIXTURE_DATA(fail_nth) *self)
{
	return connect_to(self->peer, self->peer_domain, OWNER_IP4, self->port,
			  &self->peer_endpoint);
}

/* The peer asks to be let in. */
static int prepare_request(FIXTURE_DATA(fail_nth) *self)
{
	int ret = connect_peer(self);

	if (ret)
		return ret;
	self->made = await_event(self->fd, IB_MEMREG_EVENT_CONNECT_REQUEST);
	return self->made ? 0 : -ETIMEDOUT;
}

static int destroy_ends(FIXTURE_DATA(fail_nth) *self)
{
	int ret = raw_destroy(self->fd, self->made);

	return ret ?: raw_destroy(self->peer, self->peer_endpoint);
}

/* Have a peer request a connection, and wait until its event can be read. */
static int prepare_event(FIXTURE_DATA(fail_nth) *self)
{
	struct pollfd pollfd = { .fd = self->fd, .events = POLLIN };
	int ret = connect_peer(self);

	if (!ret && poll(&pollfd, 1, LIMIT_MS) != 1)
		ret = -ETIMEDOUT;
	return ret;
}

static int call_read(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_event event;

	if (read(self->fd, &event, sizeof(event)) < 0)
		return -errno;
	self->made = event.endpoint_id;
	return 0;
}

TEST_F_TIMEOUT(fail_nth, I8_read_event, 300)
{
	static const struct op op = {
		.prepare = prepare_event,
		.call = call_read,
		.undo = destroy_ends,
	};

	sweep(_metadata, self, &op);
}

static int call_accept(FIXTURE_DATA(fail_nth) *self)
{
	char data[196] = "memreg";
	RAW(endpoint_accept, cmd, .endpoint_id = self->made,
	    .domain_id = self->domain, .private_data_len = sizeof(data),
	    .private_data = (uintptr_t)data);

	return raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_ACCEPT, &cmd);
}

/*
 * If not even a rejection can be sent, ACCEPT returns ENOTCONN, as the request
 * is over. The peer gets an answer in each case, and connects again in the next
 * round.
 */
TEST_F_TIMEOUT(fail_nth, I7_accept, 600)
{
	static const struct op op = {
		.prepare = prepare_request,
		.call = call_accept,
		.undo = destroy_ends,
		.final = true,
	};

	sweep(_metadata, self, &op);
}

static int call_reject(FIXTURE_DATA(fail_nth) *self)
{
	char data[148] = "memreg";
	RAW(endpoint_reject, cmd, .endpoint_id = self->made,
	    .private_data_len = sizeof(data), .private_data = (uintptr_t)data);

	return raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_REJECT, &cmd);
}

static int destroy_peer_end(FIXTURE_DATA(fail_nth) *self)
{
	return raw_destroy(self->peer, self->peer_endpoint);
}

TEST_F_TIMEOUT(fail_nth, I7_reject, 600)
{
	static const struct op op = {
		.prepare = prepare_request,
		.call = call_reject,
		.undo = destroy_peer_end,
	};

	sweep(_metadata, self, &op);
}

static int prepare_connection(FIXTURE_DATA(fail_nth) *self)
{
	int ret = prepare_request(self);

	if (!ret)
		ret = call_accept(self);
	if (!ret && !await_event(self->fd, IB_MEMREG_EVENT_ESTABLISHED))
		ret = -ETIMEDOUT;
	return ret;
}

static int call_disconnect(FIXTURE_DATA(fail_nth) *self)
{
	RAW(endpoint_disconnect, cmd, .endpoint_id = self->made);

	return raw_call(self->fd, IB_MEMREG_IOC_ENDPOINT_DISCONNECT, &cmd);
}

TEST_F_TIMEOUT(fail_nth, I7_disconnect, 600)
{
	static const struct op op = {
		.prepare = prepare_connection,
		.call = call_disconnect,
		.undo = destroy_ends,
		.final = true,
	};

	sweep(_metadata, self, &op);
}

/*
 * Moving data
 */

static int call_ring_create(FIXTURE_DATA(fail_nth) *self)
{
	RAW(ring_create, cmd, .entries = 64, .entry_size = 128, .eventfd = -1);
	int ret = raw_call(self->fd, IB_MEMREG_IOC_RING_CREATE, &cmd);

	self->made = cmd.out_ring_id;
	self->made_fd = cmd.out_fd;
	return ret;
}

static int destroy_made_ring(FIXTURE_DATA(fail_nth) *self)
{
	int ret = destroy_made(self);

	return close(self->made_fd) ? -errno : ret;
}

/*
 * The test finds a descriptor that a failed call has left, as the next one has
 * another number.
 */
TEST_F_TIMEOUT(fail_nth, I8_ring_create, 600)
{
	static const struct op op = {
		.call = call_ring_create,
		.undo = destroy_made_ring,
	};
	int before = dup(0), after;

	close(before);
	sweep(_metadata, self, &op);
	after = dup(0);
	close(after);
	EXPECT_EQ(before, after);
}

/* Wait for an entry of an empty ring: the call times out. */
static int call_ring_wait(FIXTURE_DATA(fail_nth) *self)
{
	int ret = ring_wait(&self->ring, 1, MS, NULL);

	return ret == -ETIMEDOUT ? 0 : ret;
}

TEST_F_TIMEOUT(fail_nth, I8_ring_wait, 300)
{
	static const struct op op = {
		.call = call_ring_wait,
		.undo = nothing,
	};

	sweep(_metadata, self, &op);
}

static int call_ring_mmap(FIXTURE_DATA(fail_nth) *self)
{
	self->mapped = mmap(NULL, self->ring.map_size, PROT_READ | PROT_WRITE,
			    MAP_SHARED, self->ring.fd, 0);
	return self->mapped == MAP_FAILED ? -errno : 0;
}

/* The mapping is that of the ring. */
static int unmap_ring(FIXTURE_DATA(fail_nth) *self)
{
	if (memcmp(self->mapped, self->ring.shared, sizeof(*self->ring.shared)))
		return -EIO;
	return munmap(self->mapped, self->ring.map_size) ? -errno : 0;
}

TEST_F_TIMEOUT(fail_nth, I8_ring_mmap, 300)
{
	static const struct op op = {
		.call = call_ring_mmap,
		.undo = unmap_ring,
		.other = EAGAIN,
	};

	sweep(_metadata, self, &op);
}

static int call_srq_create(FIXTURE_DATA(fail_nth) *self)
{
	return raw_srq(self->fd, self->domain, self->ring.id, 8, 2, 0,
		       &self->made);
}

TEST_F_TIMEOUT(fail_nth, I8_srq_create, 600)
{
	static const struct op op = {
		.call = call_srq_create,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

static struct ib_memreg_queues queues_of(const FIXTURE_DATA(fail_nth) *self)
{
	return queues_on(self->ring.id, 4, 4, 2, 16);
}

static int call_setup(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_queues queues = queues_of(self);

	return raw_setup(self->fd, self->made, self->domain, &queues);
}

TEST_F_TIMEOUT(fail_nth, I8_setup, 600)
{
	static const struct op op = {
		.prepare = prepare_request,
		.call = call_setup,
		.undo = destroy_ends,
	};

	sweep(_metadata, self, &op);
}

static int call_connect_queues(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_queues queues = queues_of(self);

	return raw_connect(self->fd, self->domain, PEER_IP4, htons(9), &queues,
			   &self->made);
}

TEST_F_TIMEOUT(fail_nth, I8_connect_with_queues, 600)
{
	static const struct op op = {
		.call = call_connect_queues,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

static int recv_one(FIXTURE_DATA(fail_nth) *self, __u32 target)
{
	struct ib_memreg_wr wr = WR(RECV, target,
				    SGE(self->local_mr, 10, LENGTH - 10));

	return raw_submit(self->fd, &wr, 1);
}

static int prepare_setup(FIXTURE_DATA(fail_nth) *self)
{
	return prepare_request(self) ?: call_setup(self) ?:
	       recv_one(self, self->made);
}

/*
 * Accept a request for which a receive is posted. If the call fails for good,
 * the receive is flushed.
 */
TEST_F_TIMEOUT(fail_nth, I7_accept_with_queues, 600)
{
	static const struct op op = {
		.prepare = prepare_setup,
		.call = call_accept,
		.undo = destroy_ends,
		.final = true,
	};

	sweep(_metadata, self, &op);
	EXPECT_LT(0, ring_count(&self->ring));
}

/*
 * Establish a connection with queues. What the test posts there does not
 * complete before the end.
 */
static int prepare_queues(FIXTURE_DATA(fail_nth) *self)
{
	int ret = prepare_request(self) ?: call_setup(self) ?:
		  call_accept(self);

	ring_done(&self->ring, ring_count(&self->ring));
	if (!ret && !await_event(self->fd, IB_MEMREG_EVENT_ESTABLISHED))
		ret = -ETIMEDOUT;
	return ret ?: raw_windows_2b(self->fd, self->domain, PAGE,
				     &self->window, 1);
}

static int destroy_queues(FIXTURE_DATA(fail_nth) *self)
{
	int ret = destroy_ends(self);

	return ret ?: raw_destroy(self->fd, self->window);
}

static int call_submit_recv(FIXTURE_DATA(fail_nth) *self)
{
	return recv_one(self, self->made);
}

static int call_submit_sges(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_sge sges[2] = {
		{ .mr_id = self->local_mr, .length = PAGE },
		{ .mr_id = self->local_mr, .length = 9, .offset = PAGE + 5 },
	};
	struct ib_memreg_wr wr = WR(SEND, self->made, SGES(sges, 2));

	return raw_submit(self->fd, &wr, 1);
}

static int call_submit_inline(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_wr wr = WR(SEND, self->made, .flags = INLINE,
				    INLINE_DATA("memreg", 7));

	return raw_submit(self->fd, &wr, 1);
}

static int call_submit_bind(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_wr wr = WR(BIND, self->made,
				    .window_id = self->window,
				    .access = REMOTE_READ,
				    .sge = { .mr_id = self->local_mr,
					     .length = 100 });

	return raw_submit(self->fd, &wr, 1);
}

static const struct op submit_ops[] = {
	{ .prepare = prepare_queues, .call = call_submit_recv,
	  .undo = destroy_queues, .late = true },
	{ .prepare = prepare_queues, .call = call_submit_sges,
	  .undo = destroy_queues, .late = true },
	{ .prepare = prepare_queues, .call = call_submit_inline,
	  .undo = destroy_queues, .late = true },
	{ .prepare = prepare_queues, .call = call_submit_bind,
	  .undo = destroy_queues, .late = true },
};

/* Submit one work request. If the call fails it has changed nothing. */
TEST_F_TIMEOUT(fail_nth, I8_submit, 1200)
{
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(submit_ops); i++)
		sweep(_metadata, self, &submit_ops[i]);
}

/* Memory of so many pieces that a WRITE of it to the peer goes in two parts */
static struct ib_memreg_wr write_in_parts(struct __test_metadata *_metadata,
					  FIXTURE_DATA(fail_nth) *self,
					  __u64 pieces, void *mem)
{
	RAW(mr_register, theirs, .domain_id = self->peer_domain,
	    .access = LOCAL_WRITE | REMOTE_WRITE, .addr = (uintptr_t)mem,
	    .length = 2 * pieces * PAGE);
	__u32 mr;

	ASSERT_EQ(0, raw_register(self->fd, self->domain, mem,
				  2 * pieces * PAGE, 0, &mr));
	ASSERT_EQ(0, raw_call(self->peer, IB_MEMREG_IOC_MR_REGISTER, &theirs));
	return WR(WRITE, self->made, SGE(mr, 0, (pieces + 1) * PAGE),
		  .flags = SIGNALED, .user_data = 7, .rkey = theirs.out_rkey,
		  .remote_addr = theirs.iova);
}

/* The device takes one part and not the other: it is as if it took neither. */
TEST_F_TIMEOUT(fail_nth, I8_parts_without_the_others_end_the_connection, 300)
{
	struct ib_memreg_wr wr;
	union entry entry;
	__u64 pieces;
	void *mem;

	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_FRAGMENTS, &pieces));
	mem = mem_shuffled(2 * pieces * PAGE);
	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, prepare_queues(self));
	wr = write_in_parts(_metadata, self, pieces, mem);
	if (raw_runs(self->fd, self->domain, wr.sge.mr_id,
		     wr.sge.length) <= pieces)
		SKIP(return, "the device has the memory in one piece");
	ASSERT_EQ(0, raw_submit(self->fd, &wr, 1));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	ASSERT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	fault_order("post_send", 1, 1);
	EXPECT_EQ(-ENOMEM, raw_submit(self->fd, &wr, 1));
	EXPECT_EQ(0, raw_taken());
	EXPECT_FALSE(fault_pending("post_send"));
	fault_cancel("post_send");
	EXPECT_EQ(self->made, await_event(self->fd,
					  IB_MEMREG_EVENT_DISCONNECTED));
	EXPECT_EQ(self->peer_endpoint,
		  await_event(self->peer, IB_MEMREG_EVENT_DISCONNECTED));
	ASSERT_EQ(-ENOTCONN, raw_submit(self->fd, &wr, 1));
	ASSERT_EQ(0, destroy_queues(self));
	EXPECT_EQ(0, ring_count(&self->ring)) {
		TH_LOG("status %u, user data %llu",
		       ring_entry(&self->ring, 0)->status,
		       (unsigned long long)
		       ring_entry(&self->ring, 0)->user_data);
	}
	ASSERT_EQ(0, raw_destroy(self->fd, wr.sge.mr_id));
	mem_free(mem, 2 * pieces * PAGE);
}

static int prepare_shared(FIXTURE_DATA(fail_nth) *self)
{
	ring_done(&self->ring, ring_count(&self->ring));
	return call_srq_create(self);
}

TEST_F_TIMEOUT(fail_nth, I8_submit_to_srq, 600)
{
	static const struct op op = {
		.prepare = prepare_shared,
		.call = call_submit_recv,
		.undo = destroy_made,
		.late = true,
	};

	sweep(_metadata, self, &op);
}

/* With work posted, and a window bound */
static int prepare_posted(FIXTURE_DATA(fail_nth) *self)
{
	return prepare_queues(self) ?: call_submit_bind(self) ?:
	       call_submit_recv(self) ?: call_submit_inline(self);
}

static int destroy_peer_and_window(FIXTURE_DATA(fail_nth) *self)
{
	int ret = destroy_peer_end(self);

	return ret ?: raw_destroy(self->fd, self->window);
}

TEST_F_TIMEOUT(fail_nth, I7_destroy_with_work, 600)
{
	static const struct op op = {
		.prepare = prepare_posted,
		.call = destroy_made,
		.undo = destroy_peer_and_window,
	};

	sweep(_metadata, self, &op);
}

/*
 * Memory on demand: what a failed call has pinned stays pinned for the next
 * one, and is unpinned by let_go().
 */

static int register_demand(FIXTURE_DATA(fail_nth) *self, __u32 *mr)
{
	RAW(mr_register, cmd, .flags = IB_MEMREG_MR_ON_DEMAND,
	    .domain_id = self->domain, .access = FOR_WINDOWS,
	    .addr = (uintptr_t)self->untouched, .length = LENGTH);
	int ret = raw_call(self->fd, IB_MEMREG_IOC_MR_REGISTER, &cmd);

	*mr = cmd.out_mr_id;
	return ret;
}

static int call_register_demand(FIXTURE_DATA(fail_nth) *self)
{
	return register_demand(self, &self->made);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_register_on_demand, 600)
{
	static const struct op op = {
		.call = call_register_demand,
		.undo = destroy_made,
	};

	sweep(_metadata, self, &op);
}

/* Of which nothing is there */
static int prepare_demand(FIXTURE_DATA(fail_nth) *self)
{
	return forget_memory(self) ?: register_demand(self, &self->demand);
}

static int destroy_demand(FIXTURE_DATA(fail_nth) *self)
{
	return raw_destroy(self->fd, self->demand);
}

/* Advise on two ranges, which are too far apart for one extent. */
static int advise_ranges(FIXTURE_DATA(fail_nth) *self, __u32 advice,
			 __u32 flags)
{
	struct ib_memreg_range ranges[2] = {
		{ .mr_id = self->demand, .length = 2 * PAGE },
		{ .mr_id = self->demand, .offset = 5 * PAGE + 9,
		  .length = PAGE },
	};
	RAW(mr_advise, cmd, .flags = flags, .advice = advice, .count = 2,
	    .ranges = (uintptr_t)ranges);
	int ret = raw_call(self->fd, IB_MEMREG_IOC_MR_ADVISE, &cmd);

	return ret ?: -(int)ranges[0].out_error ?: -(int)ranges[1].out_error;
}

static int let_go(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_range range = {
		.mr_id = self->demand, .length = LENGTH,
	};
	RAW(mr_advise, cmd, .advice = IB_MEMREG_ADVICE_DROP, .count = 1,
	    .ranges = (uintptr_t)&range);

	return raw_call(self->fd, IB_MEMREG_IOC_MR_ADVISE, &cmd) ?:
	       -(int)range.out_error;
}

static int pin_ahead(FIXTURE_DATA(fail_nth) *self)
{
	return advise_ranges(self, IB_MEMREG_ADVICE_PREFETCH,
			     IB_MEMREG_ADVISE_WAIT);
}

static int call_prefetch(FIXTURE_DATA(fail_nth) *self)
{
	return advise_ranges(self, IB_MEMREG_ADVICE_PREFETCH, 0);
}

static int call_prefetch_write(FIXTURE_DATA(fail_nth) *self)
{
	return advise_ranges(self, IB_MEMREG_ADVICE_PREFETCH_WRITE,
			     IB_MEMREG_ADVISE_WAIT);
}

static int prepare_present(FIXTURE_DATA(fail_nth) *self)
{
	int ret = prepare_demand(self);

	memset(self->untouched, 1, LENGTH);
	return ret;
}

static int call_prefetch_no_fault(FIXTURE_DATA(fail_nth) *self)
{
	return advise_ranges(self, IB_MEMREG_ADVICE_PREFETCH_NO_FAULT, 0);
}

static int prepare_pinned_ahead(FIXTURE_DATA(fail_nth) *self)
{
	return prepare_demand(self) ?: pin_ahead(self);
}

static int call_drop(FIXTURE_DATA(fail_nth) *self)
{
	return advise_ranges(self, IB_MEMREG_ADVICE_DROP, 0);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_advise, 1200)
{
	/* A range that nobody waits for may have EAGAIN. */
	static const struct op ops[] = {
		{ .prepare = prepare_demand, .call = pin_ahead,
		  .settle = let_go, .undo = destroy_demand },
		{ .prepare = prepare_demand, .call = call_prefetch,
		  .settle = let_go, .undo = destroy_demand,
		  .other = EAGAIN },
		{ .prepare = prepare_demand, .call = call_prefetch_write,
		  .settle = let_go, .undo = destroy_demand },
		{ .prepare = prepare_present, .call = call_prefetch_no_fault,
		  .settle = let_go, .undo = destroy_demand },
		{ .prepare = prepare_pinned_ahead, .call = call_drop,
		  .settle = pin_ahead, .undo = destroy_demand },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(ops) && !_metadata->exit_code; i++)
		sweep(_metadata, self, &ops[i]);
}

static int prepare_demand_srq(FIXTURE_DATA(fail_nth) *self)
{
	return prepare_demand(self) ?: prepare_shared(self);
}

/* A receive that needs two extents */
static int call_submit_miss(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_sge sges[2] = {
		{ .mr_id = self->demand, .length = PAGE },
		{ .mr_id = self->demand, .length = 9, .offset = 5 * PAGE },
	};
	struct ib_memreg_wr wr = WR(RECV, self->made, SGES(sges, 2));

	return raw_submit(self->fd, &wr, 1);
}

static int destroy_made_and_demand(FIXTURE_DATA(fail_nth) *self)
{
	return destroy_made(self) ?: destroy_demand(self);
}

/*
 * A work request that was posted keeps its pages pinned; one that was not keeps
 * none.
 */
TEST_F_TIMEOUT(fail_nth, I8_submit_on_demand, 600)
{
	static const struct op op = {
		.prepare = prepare_demand_srq,
		.call = call_submit_miss,
		.settle = let_go,
		.undo = destroy_made_and_demand,
		.late = true,
	};

	sweep(_metadata, self, &op);
}

static int prepare_demand_windows(FIXTURE_DATA(fail_nth) *self)
{
	int i, ret = prepare_demand(self) ?: prepare_windows(self);

	for (i = 0; i < 2; i++) {
		self->binds[i].mr_id = self->demand;
		self->binds[i].offset = i * 5 * PAGE;
	}
	return ret;
}

static int call_bind_two(FIXTURE_DATA(fail_nth) *self)
{
	return raw_bind(self->fd, self->domain, self->binds, 2);
}

static int destroy_windows_and_demand(FIXTURE_DATA(fail_nth) *self)
{
	return destroy_windows(self) ?: destroy_demand(self);
}

TEST_F_TIMEOUT(fail_nth, I8_window_bind_on_demand, 600)
{
	static const struct op op = {
		.prepare = prepare_demand_windows,
		.call = call_bind_two,
		.settle = let_go,
		.undo = destroy_windows_and_demand,
	};

	sweep(_metadata, self, &op);
}

static int prepare_demand_queues(FIXTURE_DATA(fail_nth) *self)
{
	return prepare_demand(self) ?: prepare_queues(self);
}

static int call_submit_bind_miss(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_wr wr = WR(BIND, self->made,
				    .window_id = self->window,
				    .access = REMOTE_WRITE,
				    .sge = { .mr_id = self->demand,
					     .length = 100 });

	return raw_submit(self->fd, &wr, 1);
}

static int destroy_queues_and_demand(FIXTURE_DATA(fail_nth) *self)
{
	return destroy_queues(self) ?: destroy_demand(self);
}

TEST_F_TIMEOUT(fail_nth, I8_submit_bind_on_demand, 1200)
{
	static const struct op op = {
		.prepare = prepare_demand_queues,
		.call = call_submit_bind_miss,
		.settle = let_go,
		.undo = destroy_queues_and_demand,
		.late = true,
	};

	sweep(_metadata, self, &op);
}

/* An MR becomes one on demand; one on demand stays that, or becomes pinned. */
static int reregister_untouched(FIXTURE_DATA(fail_nth) *self, __u32 mr,
				__u32 mr_flags)
{
	RAW(mr_reregister, cmd, .flags = IB_MEMREG_REREG_TRANSLATION |
	    IB_MEMREG_REREG_ACCESS, .mr_id = mr, .access = LOCAL_WRITE,
	    .mr_flags = mr_flags, .addr = (uintptr_t)self->untouched + PAGE,
	    .length = 3 * PAGE);

	return raw_call(self->fd, IB_MEMREG_IOC_MR_REREGISTER, &cmd);
}

static int call_becomes_demand(FIXTURE_DATA(fail_nth) *self)
{
	return reregister_untouched(self, self->made, IB_MEMREG_MR_ON_DEMAND);
}

static int call_stays_demand(FIXTURE_DATA(fail_nth) *self)
{
	return reregister_untouched(self, self->demand,
				    IB_MEMREG_MR_ON_DEMAND);
}

static int call_was_demand(FIXTURE_DATA(fail_nth) *self)
{
	return reregister_untouched(self, self->demand, 0);
}

TEST_F_TIMEOUT(fail_nth, I8_mr_reregister_on_demand, 600)
{
	static const struct op ops[] = {
		{ .prepare = prepare_mr, .call = call_becomes_demand,
		  .undo = destroy_made },
		{ .prepare = prepare_pinned_ahead, .call = call_stays_demand,
		  .settle = pin_ahead, .undo = destroy_demand },
		{ .prepare = prepare_pinned_ahead, .call = call_was_demand,
		  .settle = pin_ahead, .undo = destroy_demand },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(ops) && !_metadata->exit_code; i++)
		sweep(_metadata, self, &ops[i]);
}

/*
 * Calls that destroy an object allocate nothing: only the copy of their
 * argument can fail.
 */

static const struct op destroy_ops[] = {
	{ .prepare = call_domain, .call = destroy_made, .undo = nothing },
	{ .prepare = prepare_mr, .call = destroy_made, .undo = nothing },
	{ .prepare = call_listen, .call = destroy_made, .undo = nothing },
	{ .prepare = call_connect, .call = destroy_made, .undo = nothing },
	{ .prepare = prepare_request, .call = destroy_made,
	  .undo = destroy_peer_end },
	{ .prepare = prepare_connection, .call = destroy_made,
	  .undo = destroy_peer_end },
};

TEST_F_TIMEOUT(fail_nth, I7_destroy, 600)
{
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(destroy_ops); i++)
		sweep(_metadata, self, &destroy_ops[i]);
}

static int prepare_bound_window(FIXTURE_DATA(fail_nth) *self)
{
	int ret = prepare_bound(self);

	self->made = self->ids[0];
	return ret;
}

static int destroy_other_windows(FIXTURE_DATA(fail_nth) *self)
{
	int i, ret = 0;

	for (i = 1; i < BATCH; i++)
		ret = ret ?: raw_destroy(self->fd, self->ids[i]);
	return ret;
}

TEST_F_TIMEOUT(fail_nth, I7_destroy_window, 600)
{
	static const struct op op = {
		.prepare = prepare_bound_window,
		.call = destroy_made,
		.undo = destroy_other_windows,
	};

	sweep(_metadata, self, &op);
}

/* A file with one of everything but a connection. */
static int prepare_file(FIXTURE_DATA(fail_nth) *self)
{
	struct ib_memreg_bind bind = { .length = PAGE, .access = REMOTE_READ };
	RAW(listener_create, listen, .backlog = 4,
	    .addr = { .family = AF_INET });
	__u32 domain, endpoint, srq;
	int fd = raw_open_bound();
	struct ring ring;
	int ret;

	self->made_fd = fd;
	if (fd < 0)
		return fd;
	ret = raw_domain(fd, &domain);
	ret = ret ?: raw_register(fd, domain, self->memory, LENGTH,
				  MW_BIND | REMOTE_READ, &bind.mr_id);
	ret = ret ?: raw_windows(fd, domain, LENGTH, &bind.window_id, 1);
	ret = ret ?: raw_bind(fd, domain, &bind, 1);
	ret = ret ?: raw_call(fd, IB_MEMREG_IOC_LISTENER_CREATE, &listen);
	ret = ret ?: ring_create(fd, &ring, 4, 64, 0, -1);
	ret = ret ?: raw_srq(fd, domain, ring.id, 4, 1, 0, &srq);
	if (!ret)
		ring_unmap(&ring);
	return ret ?: connect_to(fd, domain, PEER_IP4, htons(9), &endpoint);
}

/* The descriptor is closed when close() returns, with any result. */
static int call_close(FIXTURE_DATA(fail_nth) *self)
{
	close(self->made_fd);
	return 0;
}

TEST_F_TIMEOUT(fail_nth, I7_close, 600)
{
	static const struct op op = {
		.prepare = prepare_file,
		.call = call_close,
		.undo = nothing,
		.quiet = true,
	};

	sweep(_metadata, self, &op);
}

TEST_HARNESS_MAIN
