// SPDX-License-Identifier: GPL-2.0-only
/*
 * Completion rings: making, mapping, waiting for and ending them; and that they
 * never overflow (I10), for any submissions, and for any value that the user
 * writes into the shared memory.
 *
 * time limit: 300
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define STOCK_LEN	(1UL << 20)
#define LEN		(4 * PAGE)
#define ENTRIES		16U
#define MAX_SEND	128
#define MAX_RECV	64

/* Events that poll(2) reports within @ms milliseconds */
static int polled(int fd, int ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int ret = poll(&pfd, 1, ms);

	return ret < 0 ? -errno : pfd.revents;
}

/*
 * The calls
 */

FIXTURE(calls)
{
	int fd;
	struct state before;
};

FIXTURE_SETUP(calls)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, state_get(&self->before));
}

FIXTURE_TEARDOWN(calls)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, close(self->fd));
}

static int descriptors(void)
{
	glob_t found;
	int n;

	if (glob("/proc/self/fd/*", GLOB_NOSORT, NULL, &found))
		return -1;
	n = found.gl_pathc;
	globfree(&found);
	return n;
}

static int create_raw(FIXTURE_DATA(calls) *self, __u32 entries, __u32 size,
		      __u32 flags, int eventfd)
{
	RAW(ring_create, cmd, .flags = flags, .entries = entries,
	    .entry_size = size, .eventfd = eventfd);
	int ret = raw_call(self->fd, IB_MEMREG_IOC_RING_CREATE, &cmd);

	if (!ret) {
		close(cmd.out_fd);
		raw_destroy(self->fd, cmd.out_ring_id);
	}
	return ret;
}

TEST_F(calls, I8_ring_create_has_bounds)
{
	int before = descriptors();
	__u64 max;

	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_RING, &max));
	EXPECT_LE(1024, max);
	EXPECT_GE(IB_MEMREG_RING_ENTRIES_MAX, max);
	EXPECT_FAIL(EINVAL, COUNT, create_raw(self, 0, 64, 0, -1));
	EXPECT_FAIL(EINVAL, COUNT, create_raw(self, max + 1, 64, 0, -1));
	EXPECT_FAIL(EINVAL, COUNT, create_raw(self, ~0U, 64, 0, -1));
	EXPECT_FAIL(EINVAL, RING, create_raw(self, 16, 0, 0, -1));
	EXPECT_FAIL(EINVAL, RING, create_raw(self, 16, 32, 0, -1));
	EXPECT_FAIL(EINVAL, RING, create_raw(self, 16, 65, 0, -1));
	EXPECT_FAIL(EINVAL, RING, create_raw(self, 16, 96, 0, -1));
	EXPECT_FAIL(EINVAL, RING, create_raw(self, 16, 256, 0, -1));
	EXPECT_FAIL(EINVAL, RING, create_raw(self, 16, ~0U, 0, -1));
	EXPECT_FAIL(EOPNOTSUPP, FLAGS, create_raw(self, 16, 64, 2, -1));
	EXPECT_FAIL(EBADF, EVENTFD, create_raw(self, 16, 64, 0, -2));
	EXPECT_FAIL(EBADF, EVENTFD, create_raw(self, 16, 64, 0, 3000));
	EXPECT_FAIL(EBADF, EVENTFD, create_raw(self, 16, 64, 0, self->fd));
	EXPECT_EQ(0, create_raw(self, max, 128, 0, -1));
	EXPECT_EQ(0, create_raw(self, 1, 64, IB_MEMREG_RING_NO_MODERATION, -1));
	EXPECT_EQ(before, descriptors());
}

TEST_F(calls, ring_has_as_many_entries_as_the_next_power_of_two)
{
	static const struct { __u32 asked, got; } sizes[] = {
		{ 1, 1 }, { 2, 2 }, { 3, 4 }, { 5, 8 }, { 1000, 1024 },
		{ 1024, 1024 },
	};
	unsigned int i, size;
	struct ring ring;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		for (size = 64; size <= 128; size += 64) {
			ASSERT_EQ(0, ring_create(self->fd, &ring,
						 sizes[i].asked, size, 0, -1));
			EXPECT_EQ(sizes[i].got, ring.entries);
			EXPECT_LE((size_t)sizes[i].got * size,
				  ring.map_size -
				  (ring.first - (__u8 *)ring.shared));
			EXPECT_EQ(FD_CLOEXEC, fcntl(ring.fd, F_GETFD));
			EXPECT_EQ(0, ring.shared->producer);
			EXPECT_EQ(0, ring.shared->consumer);
			EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_RING));
			ring_unmap(&ring);
			EXPECT_EQ(0, raw_destroy(self->fd, ring.id));
		}
	}
}

/* Out values that can't be written: the ring, and its descriptor, are gone. */
TEST_F(calls, I8_ring_create_that_cannot_answer_leaves_nothing)
{
	struct ib_memreg_ring_create *cmd = mem_alloc(PAGE);
	int before = descriptors();

	ASSERT_NE(NULL, cmd);
	cmd->size = sizeof(*cmd);
	cmd->entries = 4;
	cmd->entry_size = 64;
	cmd->eventfd = -1;
	ASSERT_EQ(0, mprotect(cmd, PAGE, PROT_READ));
	EXPECT_EQ(-1, ioctl(self->fd, IB_MEMREG_IOC_RING_CREATE, cmd));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(before, descriptors());
	mem_free(cmd, PAGE);
}

TEST_F(calls, I6_mapping_has_bounds)
{
	struct ring r;
	void *map;

	ASSERT_EQ(0, ring_create(self->fd, &r, 256, 128, 0, -1));
	/* Not private, and no larger later */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, r.map_size, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE, r.fd, 0));
	EXPECT_EQ(MAP_FAILED, mremap(r.shared, r.map_size, 2 * r.map_size,
				     MREMAP_MAYMOVE));
	map = mmap(NULL, r.map_size, PROT_READ, MAP_SHARED, r.fd, 0);
	ASSERT_NE(MAP_FAILED, map);
	r.shared->flags = IB_MEMREG_RING_QUIET;
	EXPECT_EQ(IB_MEMREG_RING_QUIET, ((struct ib_memreg_ring *)map)->flags);
	EXPECT_EQ(0, munmap(map, r.map_size));
	/* Not behind the end */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, r.map_size + PAGE, PROT_READ,
				   MAP_SHARED, r.fd, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, r.fd,
				   1UL << 40));
	EXPECT_EQ(EINVAL, errno);
	/*
	 * All pages of the ring can be written, and the kernel does not mind
	 * what is in them.
	 */
	memset(r.shared, 0xff, r.map_size);
	ring_unmap(&r);
	EXPECT_EQ(0, raw_destroy(self->fd, r.id));
}

TEST_F(calls, I8_each_descriptor_takes_its_own_calls)
{
	RAW(ring_wait, wait, .min_count = 1);
	RAW(device_query, query);
	struct ring r;
	char byte;

	ASSERT_EQ(0, ring_create(self->fd, &r, 4, 64, 0, -1));
	EXPECT_EQ(-ENOTTY, raw_call(self->fd, IB_MEMREG_IOC_RING_WAIT, &wait));
	EXPECT_EQ(-ENOTTY, raw_call(r.fd, IB_MEMREG_IOC_DEVICE_QUERY, &query));
	EXPECT_EQ(-1, read(r.fd, &byte, 1));
	EXPECT_EQ(-1, write(r.fd, "", 1));
	ring_unmap(&r);
	EXPECT_EQ(0, raw_destroy(self->fd, r.id));
}

TEST_F(calls, I8_ring_wait_has_bounds)
{
	RAW(ring_wait, cmd, .min_count = 1);
	struct ring r;

	ASSERT_EQ(0, ring_create(self->fd, &r, 4, 64, 0, -1));
	EXPECT_FAIL(EINVAL, COUNT, ring_wait(&r, 0, 0, NULL));
	EXPECT_FAIL(EINVAL, COUNT, ring_wait(&r, 5, 0, NULL));
	EXPECT_FAIL(EINVAL, COUNT, ring_wait(&r, ~0U, 0, NULL));
	cmd.flags = 1;
	EXPECT_FAIL(EOPNOTSUPP, FLAGS,
		    raw_call(r.fd, IB_MEMREG_IOC_RING_WAIT, &cmd));
	cmd.flags = 0;
	cmd.reserved = 1;
	EXPECT_FAIL(EINVAL, RESERVED,
		    raw_call(r.fd, IB_MEMREG_IOC_RING_WAIT, &cmd));
	cmd.reserved = 0;
	cmd.size = sizeof(cmd) - 1;
	EXPECT_FAIL(EINVAL, SIZE,
		    raw_call(r.fd, IB_MEMREG_IOC_RING_WAIT, &cmd));
	cmd.size = IB_MEMREG_SIZE_MAX + 1;
	EXPECT_FAIL(E2BIG, NONE,
		    raw_call(r.fd, IB_MEMREG_IOC_RING_WAIT, &cmd));
	EXPECT_EQ(-1, ioctl(r.fd, IB_MEMREG_IOC_RING_WAIT, NULL));
	EXPECT_EQ(EFAULT, errno);
	ring_unmap(&r);
	EXPECT_EQ(0, raw_destroy(self->fd, r.id));
}

TEST_F(calls, ring_wait_that_runs_out_is_ETIMEDOUT)
{
	int64_t start = now_ms();
	__u32 count = 77;
	struct ring r;

	ASSERT_EQ(0, ring_create(self->fd, &r, 4, 64, 0, -1));
	EXPECT_EQ(-ETIMEDOUT, ring_wait(&r, 1, 0, &count));
	EXPECT_EQ(0, count);
	EXPECT_EQ(-ETIMEDOUT, ring_wait(&r, 4, 150 * MS, &count));
	EXPECT_EQ(0, count);
	EXPECT_LE(start + 150, now_ms());
	EXPECT_EQ(0, polled(r.fd, 0));
	ring_unmap(&r);
	EXPECT_EQ(0, raw_destroy(self->fd, r.id));
}

static void on_signal(int signal)
{
	(void)signal;
}

TEST_F(calls, ring_wait_is_interrupted_by_any_signal)
{
	struct sigaction action = {
		.sa_handler = on_signal,
		.sa_flags = SA_RESTART,
	};
	/* The timer repeats, in case it expires before the thread waits. */
	struct itimerspec soon = {
		.it_value = { .tv_nsec = 100 * MS },
		.it_interval = { .tv_nsec = 100 * MS },
	};
	timer_t timer;
	struct ring r;

	ASSERT_EQ(0, ring_create(self->fd, &r, 4, 64, 0, -1));
	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, timer_create(CLOCK_MONOTONIC, NULL, &timer));
	ASSERT_EQ(0, timer_settime(timer, 0, &soon, NULL));
	EXPECT_EQ(-EINTR, ring_wait(&r, 1, IB_MEMREG_WAIT_FOREVER, NULL));
	ASSERT_EQ(0, timer_settime(timer, 0, &soon, NULL));
	EXPECT_EQ(-EINTR, ring_wait(&r, 1, LIMIT_MS * MS, NULL));
	ASSERT_EQ(0, timer_delete(timer));
	ring_unmap(&r);
	EXPECT_EQ(0, raw_destroy(self->fd, r.id));
}

struct waiter {
	const struct ring *ring;
	pid_t tid;
	int ret;
};

static void *wait_for_ever(void *arg)
{
	struct waiter *w = arg;

	__atomic_store_n(&w->tid, gettid(), __ATOMIC_RELEASE);
	w->ret = ring_wait(w->ring, 1, IB_MEMREG_WAIT_FOREVER, NULL);
	return NULL;
}

/* Start a thread that waits for the ring, and wait until it sleeps. */
static int start_waiting(struct waiter *w, pthread_t *thread,
			 const struct ring *ring)
{
	*w = (struct waiter) { .ring = ring };
	if (pthread_create(thread, NULL, wait_for_ever, w))
		return -EAGAIN;
	while (!__atomic_load_n(&w->tid, __ATOMIC_ACQUIRE))
		sched_yield();
	return task_is(w->tid, 'S') ? 0 : -ETIMEDOUT;
}

TEST_F(calls, ring_that_is_destroyed_ends_waits)
{
	struct waiter waiter;
	pthread_t thread;
	struct ring r;

	ASSERT_EQ(0, ring_create(self->fd, &r, 4, 64, 0, -1));
	ASSERT_EQ(0, start_waiting(&waiter, &thread, &r));
	EXPECT_EQ(0, raw_destroy(self->fd, r.id));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(-ENODEV, waiter.ret);
	EXPECT_EQ(-ENODEV, ring_wait(&r, 1, 0, NULL));
	EXPECT_EQ(POLLHUP | POLLERR, polled(r.fd, 0) & ~POLLIN);
	/* The ring's memory stays for as long as it is mapped. */
	EXPECT_EQ(0, r.shared->producer);
	r.shared->consumer = 5;
	ring_unmap(&r);
}

TEST_F(calls, ring_outlives_its_descriptor)
{
	struct ring r;

	ASSERT_EQ(0, ring_create(self->fd, &r, 4, 64, 0, -1));
	ASSERT_EQ(0, close(r.fd));
	r.fd = -1;
	EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_RING));
	EXPECT_EQ(0, r.shared->producer);
	EXPECT_EQ(0, raw_destroy(self->fd, r.id));
	EXPECT_EQ(0, r.shared->producer);
	ring_unmap(&r);
}

TEST_F(calls, I7_ring_ends_with_its_file)
{
	struct waiter waiter;
	pthread_t thread;
	struct ring r;
	int fd;

	fd = raw_open_bound();
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ring_create(fd, &r, 4, 64, 0, -1));
	ASSERT_EQ(0, start_waiting(&waiter, &thread, &r));
	EXPECT_EQ(0, close(fd));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(-ENODEV, waiter.ret);
	EXPECT_EQ(POLLHUP | POLLERR, polled(r.fd, 0) & ~POLLIN);
	EXPECT_EQ(0, r.shared->producer);
	ring_unmap(&r);
}

TEST_F(calls, I8_srq_create_has_bounds)
{
	RAW(srq_create, cmd);
	__u32 domain, srq, i;
	struct state before;
	struct ring r;

	ASSERT_EQ(0, raw_domain(self->fd, &domain));
	ASSERT_EQ(0, ring_create(self->fd, &r, 4, 64, 0, -1));
	ASSERT_EQ(0, state_get(&before));
	EXPECT_FAIL(EINVAL, COUNT, raw_srq(self->fd, domain, r.id, 0, 1, 0,
					   &srq));
	EXPECT_FAIL(EINVAL, COUNT, raw_srq(self->fd, domain, r.id,
					   IB_MEMREG_QUEUE_MAX + 1, 1, 0,
					   &srq));
	EXPECT_FAIL(EINVAL, SGES, raw_srq(self->fd, domain, r.id, 1, 0, 0,
					  &srq));
	EXPECT_FAIL(EINVAL, SGES, raw_srq(self->fd, domain, r.id, 1,
					  IB_MEMREG_SGE_MAX + 1, 0, &srq));
	EXPECT_FAIL(EOPNOTSUPP, FLAGS, raw_srq(self->fd, domain, r.id, 1, 1, 2,
					       &srq));
	EXPECT_FAIL(ENOENT, ID, raw_srq(self->fd, r.id, r.id, 1, 1, 0, &srq));
	EXPECT_FAIL(ENOENT, ID, raw_srq(self->fd, domain, domain, 1, 1, 0,
					&srq));
	EXPECT_FAIL(ENOENT, ID, raw_srq(self->fd, domain, 0, 1, 1, 0, &srq));
	EXPECT_TRUE(state_same(&before));
	state_free(&before);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, raw_srq(self->fd, domain, r.id, 100, 4, i, &srq));
		EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->fd, r.id));
		EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->fd, domain));
		EXPECT_EQ(0, raw_destroy(self->fd, srq));
	}
	ring_unmap(&r);
	EXPECT_EQ(0, raw_destroy(self->fd, r.id));
	EXPECT_EQ(0, raw_destroy(self->fd, domain));
}

/*
 * Rings in use
 */

FIXTURE(ring)
{
	struct link link;
	struct stock *stock;
	struct ring ring;
	int eventfd;
	__u8 *mem;
	__u32 mr;
	__u32 to;
	__u64 sent;		/* user_data of the next work request */
	__u64 seen;		/* and of the next entry */
};

FIXTURE_VARIANT(ring)
{
	__u32 entry_size;
};

FIXTURE_VARIANT_ADD(ring, entries_of_64) {
	.entry_size = 64,
};

FIXTURE_VARIANT_ADD(ring, entries_of_128) {
	.entry_size = 128,
};

static struct ib_memreg_queues queues_of(const FIXTURE_DATA(ring) *self)
{
	return queues_on(self->ring.id, MAX_SEND, MAX_RECV, 1, 64);
}

FIXTURE_SETUP(ring)
{
	struct ib_memreg_queues queues;

	ASSERT_EQ(0, link_open(&self->link, STOCK_LEN));
	self->stock = &self->link.stock;
	ASSERT_EQ(0, link_memory(&self->link, LEN, LOCAL_WRITE, &self->mem,
				 &self->mr));
	self->eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ASSERT_LE(0, self->eventfd);
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, ENTRIES,
				 variant->entry_size, 0, self->eventfd));
	ASSERT_EQ(ENTRIES, self->ring.entries);
	queues = queues_of(self);
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
	self->to = self->link.endpoint;
}

FIXTURE_TEARDOWN(ring)
{
	link_close(&self->link);
	ring_unmap(&self->ring);
	close(self->eventfd);
	EXPECT_EQ(0, vm_pin(0));
	mem_free(self->mem, LEN);
}

static struct ib_memreg_wr write_of(FIXTURE_DATA(ring) *self, bool signalled)
{
	return WR(WRITE, self->to, SGE(self->mr, 0, 8),
		  .flags = signalled ? SIGNALED : 0,
		  .remote_addr = (uintptr_t)self->stock->mem,
		  .rkey = self->stock->mr->rkey);
}

/*
 * Submit up to @n writes. Returns how many were taken: fewer where there is no
 * room.
 */
static __u32 submit_writes(struct __test_metadata *_metadata,
			   FIXTURE_DATA(ring) *self, __u32 n, __u64 signalled)
{
	struct ib_memreg_wr wrs[64];
	__u32 i;
	int ret;

	for (i = 0; i < n; i++) {
		wrs[i] = write_of(self, signalled >> i & 1);
		wrs[i].user_data = self->sent + i;
	}
	ret = raw_submit(self->link.fd, wrs, n);
	if (ret) {
		EXPECT_EQ(-EAGAIN, ret);
		EXPECT_EQ(IB_MEMREG_REASON_RING_FULL, raw_reason());
		EXPECT_GT(n, raw_taken());
	} else {
		EXPECT_EQ(n, raw_taken());
	}
	self->sent += raw_taken();
	return raw_taken();
}

/* Expect entries of the next @n work requests, in order. */
static void entries_are(struct __test_metadata *_metadata,
			FIXTURE_DATA(ring) *self, __u32 n)
{
	__u32 i;

	ASSERT_EQ(0, ring_wait(&self->ring, n, LIMIT_MS * MS, NULL));
	EXPECT_EQ(n, ring_count(&self->ring));
	for (i = 0; i < n; i++) {
		const struct ib_memreg_cqe *cqe = ring_entry(&self->ring, i);

		EXPECT_EQ(self->seen + i, cqe->user_data);
		EXPECT_EQ(IB_MEMREG_WC_SUCCESS, cqe->status);
		EXPECT_EQ(self->to, cqe->endpoint_data);
	}
}

static void consume(FIXTURE_DATA(ring) *self, __u32 n)
{
	ring_done(&self->ring, n);
	self->seen += n;
}

#define ALL	(~0ULL)

TEST_F_TIMEOUT(ring, I10_signalled_work_never_overflows, LIMIT_S)
{
	__u32 step;

	EXPECT_EQ(ENTRIES, submit_writes(_metadata, self, 40, ALL));
	entries_are(_metadata, self, ENTRIES);
	EXPECT_EQ(0, submit_writes(_metadata, self, 1, ALL));
	/*
	 * Exactly as many work requests are taken as the user has consumed
	 * entries.
	 */
	for (step = 1; step <= ENTRIES; step++) {
		entries_are(_metadata, self, ENTRIES);
		consume(self, step);
		EXPECT_EQ(step, submit_writes(_metadata, self, ENTRIES + 1,
					      ALL));
		entries_are(_metadata, self, ENTRIES);
		EXPECT_EQ(0, submit_writes(_metadata, self, 1, ALL));
	}
}

/*
 * Counters of work requests submitted, of entries, of entries that report
 * failure, and of submissions without room
 */
static const __u32 counters[] = {
	IB_MEMREG_STAT_WRS_SUBMITTED, IB_MEMREG_STAT_WRS_COMPLETED,
	IB_MEMREG_STAT_WRS_FAILED, IB_MEMREG_STAT_RING_FULL,
};

static void note_counts(struct __test_metadata *_metadata,
			FIXTURE_DATA(ring) *self, __u64 *noted)
{
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(counters); i++)
		ASSERT_EQ(0, raw_stat(self->link.fd, counters[i], &noted[i]));
}

/* Expect that the counters have changed by @by since they were last noted. */
static void expect_counts(struct __test_metadata *_metadata,
			  FIXTURE_DATA(ring) *self, __u64 *noted,
			  const __u64 *by)
{
	__u64 now[ARRAY_LEN(counters)];
	unsigned int i;

	note_counts(_metadata, self, now);
	for (i = 0; i < ARRAY_LEN(counters); i++) {
		EXPECT_EQ(by[i], now[i] - noted[i]) {
			TH_LOG("counter %u", counters[i]);
		}
		noted[i] = now[i];
	}
}

#define COUNTED(...)							\
	expect_counts(_metadata, self, noted,				\
		      (const __u64[]){ __VA_ARGS__ })

TEST_F_TIMEOUT(ring, entries_and_refusals_are_counted, LIMIT_S)
{
	struct ib_memreg_wr send = WR(SEND, self->to, SGE(self->mr, 0, 8));
	__u64 noted[ARRAY_LEN(counters)];
	__u32 i;

	note_counts(_metadata, self, noted);
	EXPECT_EQ(5, submit_writes(_metadata, self, 5, ALL));
	entries_are(_metadata, self, 5);
	COUNTED(5, 5, 0, 0);
	/* One of three is signalled. */
	EXPECT_EQ(3, submit_writes(_metadata, self, 3, 1 << 2));
	ASSERT_EQ(0, ring_wait(&self->ring, 6, LIMIT_MS * MS, NULL));
	COUNTED(3, 1, 0, 0);
	/*
	 * The submission takes all the room but that of the entries that were
	 * not consumed; the next one fails.
	 */
	EXPECT_EQ(ENTRIES - 6, submit_writes(_metadata, self, 40, ALL));
	ASSERT_EQ(0, ring_wait(&self->ring, ENTRIES, LIMIT_MS * MS, NULL));
	COUNTED(ENTRIES - 6, ENTRIES - 6, 0, 1);
	EXPECT_EQ(0, submit_writes(_metadata, self, 1, ALL));
	COUNTED(0, 0, 0, 1);
	ring_done(&self->ring, ENTRIES);
	/* Nobody receives them: they are reported as they are flushed. */
	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, raw_submit(self->link.fd, &send, 1));
	COUNTED(3, 0, 0, 0);
	ASSERT_EQ(0, raw_disconnect(self->link.fd, self->to));
	ASSERT_EQ(0, ring_wait(&self->ring, 3, LIMIT_MS * MS, NULL));
	COUNTED(0, 3, 3, 0);
}

#define MANY		128U

/*
 * In a long row of work requests that are not signalled the kernel finds out
 * for itself that they completed, and none of them gets an entry.
 */
TEST(I10_long_rows_of_unsignalled_work_give_room_back)
{
	struct ib_memreg_queues queues = { .max_send = MANY,
					   .max_send_sge = 1 };
	int64_t end = now_ms() + LIMIT_MS;
	void *mem = mem_alloc(PAGE);
	struct ib_memreg_wr wr;
	struct link link;
	struct ring ring;
	__u32 i, mr;

	ASSERT_EQ(0, link_open(&link, PAGE));
	ASSERT_EQ(0, raw_register(link.fd, link.domain, mem, PAGE, LOCAL_WRITE,
				  &mr));
	ASSERT_EQ(0, ring_create(link.fd, &ring, MANY, 64, 0, -1));
	queues.send_ring_id = ring.id;
	ASSERT_EQ(0, link_up(&link, &queues, false));
	wr = WR(WRITE, link.endpoint, SGE(mr, 0, 8),
		.rkey = link.stock.mr->rkey,
		.remote_addr = (uintptr_t)link.stock.mem);
	for (i = 0; i < 5 * MANY && now_ms() < end; i += raw_taken())
		raw_submit(link.fd, &wr, 1);
	EXPECT_EQ(5 * MANY, i);
	EXPECT_EQ(0, ring_count(&ring));
	link_close(&link);
	ring_unmap(&ring);
	mem_free(mem, PAGE);
}

/*
 * Unsignalled work requests take room in the ring until they are known to be
 * done.
 */
TEST_F_TIMEOUT(ring, I10_unsignalled_work_takes_room, LIMIT_S)
{
	union entry entry;
	__u32 i;

	for (i = 0; i < 3; i++) {
		EXPECT_EQ(ENTRIES - 1, submit_writes(_metadata, self,
						     ENTRIES - 1, 0));
		EXPECT_EQ(1, submit_writes(_metadata, self, 2, ALL));
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		EXPECT_EQ(self->sent - 1, entry.cqe.user_data);
		EXPECT_EQ(0, ring_count(&self->ring));
	}
	/*
	 * The room of all of them is free again, and the ring has no entry of
	 * them.
	 */
	EXPECT_EQ(ENTRIES, submit_writes(_metadata, self, 40, 0));
	EXPECT_EQ(0, submit_writes(_metadata, self, 1, ALL));
	EXPECT_EQ(-ETIMEDOUT, ring_wait(&self->ring, 1, 200 * MS, NULL));
}

/* The reserved room is enough if all work requests fail. */
TEST_F_TIMEOUT(ring, I10_unsignalled_work_that_fails_has_room, LIMIT_S)
{
	struct ib_memreg_wr wrs[ENTRIES + 1];
	union entry entry;
	__u32 i;

	/* Nobody receives them. */
	for (i = 0; i <= ENTRIES; i++)
		wrs[i] = WR(SEND, self->to, SGE(self->mr, 0, 8),
			    .user_data = i);
	EXPECT_FAIL(EAGAIN, RING_FULL,
		    raw_submit(self->link.fd, wrs, ENTRIES + 1));
	EXPECT_EQ(ENTRIES, raw_taken());
	ASSERT_EQ(0, raw_disconnect(self->link.fd, self->to));
	for (i = 0; i < ENTRIES; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		EXPECT_EQ(i, entry.cqe.user_data);
		EXPECT_EQ(IB_MEMREG_WC_WR_FLUSH_ERR, entry.cqe.status);
	}
	EXPECT_EQ(-ETIMEDOUT, ring_wait(&self->ring, 1, 100 * MS, NULL));
}

/**
 * A model of the ring: @unconsumed entries of it are the user's, and
 * @unsignalled work requests hold room until a signalled one behind them
 * completes.
 */
struct model {
	__u32 unconsumed;
	__u32 unsignalled;
};

static void model_submit(struct __test_metadata *_metadata,
			 FIXTURE_DATA(ring) *self, struct model *m, __u32 n,
			 __u64 signalled)
{
	__u32 room = ENTRIES - m->unconsumed - m->unsignalled;
	__u32 taken, i;

	taken = submit_writes(_metadata, self, n, signalled);
	ASSERT_EQ(n < room ? n : room, taken) {
		TH_LOG("%u unconsumed, %u unsignalled", m->unconsumed,
		       m->unsignalled);
	}
	for (i = 0; i < taken; i++) {
		m->unsignalled++;
		if (signalled >> i & 1) {
			m->unsignalled = 0;
			m->unconsumed++;
		}
	}
	if (m->unconsumed)
		ASSERT_EQ(0, ring_wait(&self->ring, m->unconsumed,
				       LIMIT_MS * MS, NULL));
	EXPECT_EQ(m->unconsumed, ring_count(&self->ring));
}

/* A full ring with no signalled work in it can't be got out of: avoid that. */
static __u64 signal_the_last(const struct model *m, __u64 signalled)
{
	__u32 room = ENTRIES - m->unconsumed - m->unsignalled;

	return room ? signalled | 1ULL << (room - 1) : signalled;
}

TEST_F_TIMEOUT(ring, I10_mixed_work_never_overflows, SOAK_S)
{
	unsigned int i, rounds = test_rounds(150), seed = 4711;
	struct model m = {};

	for (i = 0; i < rounds && !_metadata->exit_code; i++) {
		__u32 n = 1 + rand_r(&seed) % (ENTRIES + 3);
		__u32 done = rand_r(&seed) % (m.unconsumed + 1);
		__u64 signalled = rand_r(&seed) & rand_r(&seed);

		ring_done(&self->ring, done);
		m.unconsumed -= done;
		model_submit(_metadata, self, &m, n,
			     signal_the_last(&m, signalled));
	}
	/* All of it can be had again. */
	ring_done(&self->ring, m.unconsumed);
	m.unconsumed = 0;
	if (m.unsignalled)
		model_submit(_metadata, self, &m, 1, ALL);
	ring_done(&self->ring, m.unconsumed);
	EXPECT_EQ(ENTRIES, submit_writes(_metadata, self, 40, ALL));
}

TEST_F_TIMEOUT(ring, I10_receives_take_room, LIMIT_S)
{
	struct ib_memreg_wr wrs[ENTRIES + 1];
	union entry entry;
	__u32 i;

	for (i = 0; i <= ENTRIES; i++)
		wrs[i] = WR(RECV, self->to, SGE(self->mr, 0, 100),
			    .user_data = i);
	EXPECT_FAIL(EAGAIN, RING_FULL,
		    raw_submit(self->link.fd, wrs, ENTRIES + 1));
	EXPECT_EQ(ENTRIES, raw_taken());
	EXPECT_EQ(0, submit_writes(_metadata, self, 1, ALL));
	for (i = 0; i < 4; i++)
		ASSERT_EQ(IBV_WC_SUCCESS, stock_send(self->stock, 0, 50));
	ASSERT_EQ(0, ring_wait(&self->ring, 4, LIMIT_MS * MS, NULL));
	EXPECT_EQ(0, submit_writes(_metadata, self, 1, ALL));
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		EXPECT_EQ(i, entry.cqe.user_data);
	}
	EXPECT_EQ(3, submit_writes(_metadata, self, 4, ALL));
}

TEST_F_TIMEOUT(ring, I10_shared_receives_take_room, LIMIT_S)
{
	struct ib_memreg_queues queues = queues_of(self);
	struct ib_memreg_wr wrs[ENTRIES + 1];
	struct link link = self->link;
	union entry entry;
	struct ring ring;
	__u32 i, srq;

	ASSERT_EQ(0, ring_create(link.fd, &ring, ENTRIES, variant->entry_size,
				 0, -1));
	ASSERT_EQ(0, raw_srq(link.fd, link.domain, ring.id, 64, 1, 0, &srq));
	for (i = 0; i <= ENTRIES; i++)
		wrs[i] = WR(RECV, srq, SGE(self->mr, 0, 100), .user_data = i);
	EXPECT_FAIL(EAGAIN, RING_FULL, raw_submit(link.fd, wrs, ENTRIES + 1));
	EXPECT_EQ(ENTRIES, raw_taken());
	queues.recv_ring_id = 0;
	queues.max_recv = 0;
	queues.max_recv_sge = 0;
	queues.srq_id = srq;
	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&link, &queues, false));
	for (i = 0; i < 5; i++)
		ASSERT_EQ(IBV_WC_SUCCESS, stock_send(&link.stock, 0, 50));
	for (i = 0; i < 5; i++) {
		EXPECT_FAIL(EAGAIN, RING_FULL, raw_submit(link.fd, wrs, 1));
		ASSERT_EQ(0, ring_next(&ring, &entry));
		EXPECT_EQ(i, entry.cqe.user_data);
		EXPECT_EQ(link.endpoint, entry.cqe.endpoint_data);
		EXPECT_EQ(0, raw_submit(link.fd, wrs, 1));
	}
	stock_close(&link.stock);
	/*
	 * The ring is full of entries. The completions of what is flushed now
	 * have their room.
	 */
	ASSERT_EQ(0, raw_destroy(link.fd, link.endpoint));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(link.fd, ring.id));
	ASSERT_EQ(0, raw_destroy(link.fd, srq));
	EXPECT_EQ(ENTRIES, ring_count(&ring));
	for (i = 0; i < ENTRIES; i++) {
		ASSERT_EQ(0, ring_next(&ring, &entry));
		EXPECT_EQ(IB_MEMREG_WC_WR_FLUSH_ERR, entry.cqe.status);
	}
	ASSERT_EQ(0, raw_destroy(link.fd, ring.id));
	ring_unmap(&ring);
}

TEST_F_TIMEOUT(ring, I10_endpoints_share_the_room, LIMIT_S)
{
	struct ib_memreg_queues queues = queues_of(self);
	struct link link = self->link;
	struct ib_memreg_wr wrs[ENTRIES + 1];
	unsigned int count[2] = {};
	union entry entry;
	__u32 i;

	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&link, &queues, false));
	for (i = 0; i <= ENTRIES; i++) {
		wrs[i] = write_of(self, true);
		if (i % 2) {
			wrs[i].target_id = link.endpoint;
			wrs[i].remote_addr = (uintptr_t)link.stock.mem;
			wrs[i].rkey = link.stock.mr->rkey;
		}
	}
	EXPECT_FAIL(EAGAIN, RING_FULL,
		    raw_submit(link.fd, wrs, ENTRIES + 1));
	EXPECT_EQ(ENTRIES, raw_taken());
	for (i = 0; i < ENTRIES; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
		count[entry.cqe.endpoint_data == link.endpoint]++;
	}
	EXPECT_EQ(ENTRIES / 2, count[0]);
	EXPECT_EQ(ENTRIES / 2, count[1]);
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(link.fd, self->ring.id));
	stock_close(&link.stock);
	ASSERT_EQ(0, raw_destroy(link.fd, link.endpoint));
	EXPECT_EQ(0, ring_count(&self->ring));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(link.fd, self->ring.id));
}

/*
 * A work request that the device needs several of takes room for all of these
 * until it is done.
 */
TEST_F_TIMEOUT(ring, I10_scattered_work_takes_the_room_of_several, LIMIT_S)
{
	const size_t len = 128 * PAGE;
	struct ib_memreg_wr wr;
	__u32 mr, pieces, first;
	union entry entry;
	__u64 fragments;
	void *mem = mem_shuffled(len);

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, raw_cap(self->link.fd, IB_MEMREG_CAP_FRAGMENTS,
			     &fragments));
	pieces = (len / PAGE + fragments - 1) / fragments;
	ASSERT_LT(1, pieces);
	ASSERT_GE(ENTRIES, pieces);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, mem, len,
				  0, &mr));
	if (raw_runs(self->link.fd, self->link.domain, mr, len) < len / PAGE)
		SKIP(return, "the device has the memory in one piece");
	first = submit_writes(_metadata, self, ENTRIES - pieces + 1, ALL);
	ASSERT_EQ(ENTRIES - pieces + 1, first);
	wr = WR(WRITE, self->to, SGE(mr, 0, len), .flags = SIGNALED,
		.remote_addr = (uintptr_t)self->stock->mem,
		.rkey = self->stock->mr->rkey);
	/* One too few */
	EXPECT_FAIL(EAGAIN, RING_FULL, raw_submit(self->link.fd, &wr, 1));
	EXPECT_EQ(0, raw_taken());
	entries_are(_metadata, self, first);
	consume(self, 1);
	EXPECT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, ring_wait(&self->ring, first, LIMIT_MS * MS, NULL));
	consume(self, first - 1);
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	EXPECT_EQ(0, ring_count(&self->ring));
	self->seen = self->sent;
	EXPECT_EQ(ENTRIES, submit_writes(_metadata, self, 40, ALL));
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	mem_free(mem, len);
}

/* Values that the user writes */

static void set_consumer(FIXTURE_DATA(ring) *self, __u32 value)
{
	__atomic_store_n(&self->ring.shared->consumer, value,
			 __ATOMIC_RELEASE);
}

TEST_F_TIMEOUT(ring, I10_consumer_out_of_range_counts_as_full, LIMIT_S)
{
	__u32 producer, i;

	/* Some have been consumed, some not. */
	EXPECT_EQ(10, submit_writes(_metadata, self, 10, ALL));
	entries_are(_metadata, self, 10);
	consume(self, 6);
	producer = self->ring.shared->producer;
	ASSERT_EQ(10, producer);
	{
		const __u32 values[] = {
			producer + 1, producer + ENTRIES, producer + ENTRIES +
			1, producer - ENTRIES - 1, producer + 0x80000000,
			producer + 0x7fffffff, ~0U - ENTRIES,
		};

		for (i = 0; i < ARRAY_LEN(values); i++) {
			set_consumer(self, values[i]);
			EXPECT_EQ(0, submit_writes(_metadata, self, 1, ALL));
		}
	}
	/*
	 * A wrong index in the valid range is accepted: the user can only lose
	 * its own entries.
	 */
	set_consumer(self, producer - ENTRIES);
	EXPECT_EQ(0, submit_writes(_metadata, self, 1, ALL));
	set_consumer(self, producer);
	EXPECT_EQ(ENTRIES, submit_writes(_metadata, self, 40, ALL));
	ring_done(&self->ring, 4);
	self->seen = 10;
	entries_are(_metadata, self, ENTRIES);
}

/* Neither entries nor producer are read by the kernel. */
TEST_F_TIMEOUT(ring, I10_scribbled_memory_is_not_believed, LIMIT_S)
{
	struct ib_memreg_ring *shared = self->ring.shared;
	unsigned int seed = 3, i;
	size_t at;

	for (i = 0; i < 40 && !_metadata->exit_code; i++) {
		for (at = 0; at < self->ring.map_size; at += 4)
			*(__u32 *)((__u8 *)shared + at) =
				rand_r(&seed) * 2654435761U;
		shared->flags = 0;
		set_consumer(self, self->ring.consumed);
		EXPECT_EQ(3, submit_writes(_metadata, self, 3, ALL));
		/* The kernel writes the producer anew, from its own count. */
		entries_are(_metadata, self, 3);
		EXPECT_EQ(3 * (i + 1), shared->producer);
		consume(self, 3);
	}
}

/* The index wraps around at the end of the memory, if not of its own range. */
TEST_F_TIMEOUT(ring, I10_ring_goes_around, SOAK_S)
{
	unsigned int i, rounds = test_rounds(60);

	for (i = 0; i < rounds && !_metadata->exit_code; i++) {
		__u32 n = 1 + i % ENTRIES;

		EXPECT_EQ(n, submit_writes(_metadata, self, n, ALL));
		entries_are(_metadata, self, n);
		consume(self, n);
	}
	EXPECT_EQ(self->sent, self->ring.shared->producer);
}

/*
 * Notification
 */

TEST_F_TIMEOUT(ring, poll_says_whether_there_are_entries, LIMIT_S)
{
	int i;

	for (i = 0; i < 5; i++) {
		EXPECT_EQ(0, polled(self->ring.fd, 0));
		EXPECT_EQ(2, submit_writes(_metadata, self, 2, ALL));
		EXPECT_EQ(POLLIN, polled(self->ring.fd, LIMIT_MS));
		entries_are(_metadata, self, 2);
		consume(self, 1);
		EXPECT_EQ(POLLIN, polled(self->ring.fd, 0));
		consume(self, 1);
		EXPECT_EQ(0, polled(self->ring.fd, 0));
	}
}

TEST_F_TIMEOUT(ring, epoll_says_whether_there_are_entries, LIMIT_S)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int ep = epoll_create1(EPOLL_CLOEXEC);
	int i;

	ASSERT_LE(0, ep);
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->ring.fd, &event));
	EXPECT_EQ(0, epoll_wait(ep, &event, 1, 0));
	/*
	 * Each new entry wakes the poller, though the one before was not
	 * consumed.
	 */
	for (i = 1; i <= 5; i++) {
		EXPECT_EQ(1, submit_writes(_metadata, self, 1, ALL));
		ASSERT_EQ(1, epoll_wait(ep, &event, 1, LIMIT_MS));
		EXPECT_EQ(EPOLLIN, event.events);
		ASSERT_EQ(0, ring_wait(&self->ring, i, LIMIT_MS * MS, NULL));
	}
	close(ep);
}

TEST_F_TIMEOUT(ring, ring_names_the_cpu_that_wrote, LIMIT_S)
{
	self->ring.shared->cpu = UINT32_MAX;
	EXPECT_EQ(1, submit_writes(_metadata, self, 1, ALL));
	entries_are(_metadata, self, 1);
	EXPECT_GT(sysconf(_SC_NPROCESSORS_CONF), self->ring.shared->cpu);
	consume(self, 1);
}

static bool eventfd_was_signalled(FIXTURE_DATA(ring) *self)
{
	uint64_t value;

	return read(self->eventfd, &value, sizeof(value)) == sizeof(value) &&
	       value;
}

TEST_F_TIMEOUT(ring, eventfd_is_signalled, LIMIT_S)
{
	int i;

	for (i = 0; i < 5; i++) {
		EXPECT_EQ(1, submit_writes(_metadata, self, 1, ALL));
		EXPECT_EQ(POLLIN, polled(self->eventfd, LIMIT_MS));
		EXPECT_TRUE(eventfd_was_signalled(self));
		entries_are(_metadata, self, 1);
		consume(self, 1);
	}
}

TEST_F_TIMEOUT(ring, eventfd_is_silent_if_asked_to_be, LIMIT_S)
{
	int i;

	self->ring.shared->flags = IB_MEMREG_RING_QUIET;
	for (i = 0; i < 5; i++) {
		EXPECT_EQ(1, submit_writes(_metadata, self, 1, ALL));
		entries_are(_metadata, self, 1);
		consume(self, 1);
		EXPECT_FALSE(eventfd_was_signalled(self));
	}
	/* A waiter is woken all the same. */
	EXPECT_EQ(1, submit_writes(_metadata, self, 1, ALL));
	EXPECT_EQ(POLLIN, polled(self->ring.fd, LIMIT_MS));
	consume(self, 1);
	self->ring.shared->flags = 0;
	EXPECT_EQ(1, submit_writes(_metadata, self, 1, ALL));
	EXPECT_EQ(POLLIN, polled(self->eventfd, LIMIT_MS));
}

TEST_F_TIMEOUT(ring, ring_wait_waits_for_as_many, LIMIT_S)
{
	__u32 count;

	EXPECT_EQ(2, submit_writes(_metadata, self, 2, ALL));
	ASSERT_EQ(0, ring_wait(&self->ring, 2, IB_MEMREG_WAIT_FOREVER,
			       &count));
	EXPECT_EQ(2, count);
	EXPECT_EQ(-ETIMEDOUT, ring_wait(&self->ring, 3, 100 * MS, &count));
	EXPECT_EQ(2, count);
	EXPECT_EQ(-ETIMEDOUT, ring_wait(&self->ring, 3, 0, &count));
	EXPECT_EQ(2, count);
	EXPECT_EQ(14, submit_writes(_metadata, self, 14, ALL));
	ASSERT_EQ(0, ring_wait(&self->ring, ENTRIES, LIMIT_MS * MS, &count));
	EXPECT_EQ(ENTRIES, count);
	consume(self, ENTRIES);
	EXPECT_EQ(-ETIMEDOUT, ring_wait(&self->ring, 1, 0, &count));
	EXPECT_EQ(0, count);
}

/*
 * Ends
 */

TEST_F_TIMEOUT(ring, ring_serves_without_its_descriptor, LIMIT_S)
{
	int64_t end = now_ms() + LIMIT_MS;
	int i;

	ASSERT_EQ(0, close(self->ring.fd));
	self->ring.fd = -1;
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(ENTRIES, submit_writes(_metadata, self, 40, ALL));
		while (ring_count(&self->ring) < ENTRIES && now_ms() < end)
			sched_yield();
		ASSERT_EQ(ENTRIES, ring_count(&self->ring));
		ring_done(&self->ring, ENTRIES);
	}
}

TEST_F_TIMEOUT(ring, ring_serves_without_being_mapped, LIMIT_S)
{
	size_t offset = self->ring.first - (__u8 *)self->ring.shared;

	ASSERT_EQ(0, munmap(self->ring.shared, self->ring.map_size));
	EXPECT_EQ(ENTRIES, submit_writes(_metadata, self, 40, ALL));
	ASSERT_EQ(0, ring_wait(&self->ring, ENTRIES, LIMIT_MS * MS, NULL));
	self->ring.shared = mmap(NULL, self->ring.map_size,
				 PROT_READ | PROT_WRITE, MAP_SHARED,
				 self->ring.fd, 0);
	ASSERT_NE(MAP_FAILED, self->ring.shared);
	self->ring.first = (__u8 *)self->ring.shared + offset;
	EXPECT_EQ(ENTRIES, ring_count(&self->ring));
}

TEST_F_TIMEOUT(ring, I7_ring_can_be_read_after_its_file, LIMIT_S)
{
	struct ib_memreg_wr wr = WR(RECV, self->to, SGE(self->mr, 0, 8));
	__u32 count;

	EXPECT_EQ(5, submit_writes(_metadata, self, 5, ALL));
	entries_are(_metadata, self, 5);
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, close(self->link.fd));
	self->link.fd = -1;
	EXPECT_EQ(POLLHUP | POLLERR, polled(self->ring.fd, 0) & ~POLLIN);
	/*
	 * RING_WAIT succeeds if the ring has as many entries, and else fails.
	 */
	EXPECT_EQ(0, ring_wait(&self->ring, 5, 0, NULL));
	EXPECT_EQ(-ENODEV, ring_wait(&self->ring, 7, 0, &count));
	EXPECT_LE(5, count);
	EXPECT_LE(5, ring_count(&self->ring));
	EXPECT_GE(6, ring_count(&self->ring));
	EXPECT_EQ(4, ring_entry(&self->ring, 4)->user_data);
	consume(self, 5);
	EXPECT_EQ(STOCK_LEN / PAGE, vm_pin(0));
}

/* A child has the same memory, and may wait, while the parent submits. */
TEST_F_TIMEOUT(ring, child_shares_the_ring, LIMIT_S)
{
	EXPECT_EQ(3, submit_writes(_metadata, self, 3, ALL));
	entries_are(_metadata, self, 3);
	IN_CHILD {
		entries_are(_metadata, self, 3);
		consume(self, 2);
	}
	EXPECT_EQ(2, self->ring.shared->consumer);
	self->ring.consumed = 2;
	self->seen = 2;
	entries_are(_metadata, self, 1);
	EXPECT_EQ(ENTRIES - 1, submit_writes(_metadata, self, 40, ALL));
	entries_are(_metadata, self, ENTRIES);
}

TEST_HARNESS_MAIN
