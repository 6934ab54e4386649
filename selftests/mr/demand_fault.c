// SPDX-License-Identifier: GPL-2.0-only
/*
 * Faults that take as long as somebody likes, of memory on demand and of memory
 * that is being registered: whoever is to answer them may be in the same
 * process, and may never answer. Nobody but the call that needs the memory
 * waits for that: neither another call, nor the removal of the device, nor the
 * end of the process.
 *
 * time limit: 400
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "data.h"
#include "net.h"

#define LEN		(16 * PAGE)
#define STOCK_LEN	MiB
#define READ_WRITE	(PROT_READ | PROT_WRITE)

FIXTURE(silent)
{
	struct link link;
	struct ring ring;
	__u8 *mem;
	__u32 mr;
	int uffd;	/* of all of @mem */
	bool gone;	/* the device was */
};

/* Answer a fault, which uffd_next() has found, with a page of this byte. */
static int answer(int fd, unsigned long fault, int byte)
{
	__u8 page[PAGE];

	memset(page, byte, sizeof(page));
	return uffd_answer(fd, fault, page);
}

static int register_demand(FIXTURE_DATA(silent) *self)
{
	RAW(mr_register, cmd, .flags = IB_MEMREG_MR_ON_DEMAND,
	    .domain_id = self->link.domain, .access = LOCAL_WRITE | MW_BIND,
	    .addr = (uintptr_t)self->mem, .length = LEN);
	int ret = raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &cmd);

	self->mr = cmd.out_mr_id;
	return ret;
}

FIXTURE_SETUP(silent)
{
	struct ib_memreg_queues queues = {
		.max_send = 64,
		.max_recv = 64,
		.max_send_sge = 4,
		.max_recv_sge = 4,
	};

	self->gone = false;
	ASSERT_EQ(0, link_open(&self->link, STOCK_LEN));
	self->mem = mmap(NULL, LEN, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->mem);
	ASSERT_EQ(0, register_demand(self));
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 256, 64, 0, -1));
	queues.send_ring_id = self->ring.id;
	queues.recv_ring_id = self->ring.id;
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
	self->uffd = uffd_open(self->mem, LEN);
	ASSERT_LE(0, self->uffd);
}

FIXTURE_TEARDOWN(silent)
{
	if (self->uffd >= 0)
		close(self->uffd);
	link_close(&self->link);
	ring_unmap(&self->ring);
	munmap(self->mem, LEN);
	EXPECT_EQ(0, vm_pin(0));
	if (self->gone)
		EXPECT_EQ(0, shell("rxe_up owner && await 60 rxe_ready owner"));
}

/* A thread that makes one call, which waits for a fault */
struct caller {
	FIXTURE_DATA(silent) *self;
	pthread_t thread;
	int (*call)(FIXTURE_DATA(silent) *self);
	unsigned long fault;
	int ret;
	__u32 reason;
};

static void *caller_run(void *arg)
{
	struct caller *c = arg;

	c->ret = c->call(c->self);
	c->reason = raw_reason();
	return NULL;
}

/* Have a thread make a call, and wait until the call waits for a fault. */
static void caller_begin(struct __test_metadata *_metadata, struct caller *c,
			 FIXTURE_DATA(silent) *self,
			 int (*call)(FIXTURE_DATA(silent) *self))
{
	c->self = self;
	c->call = call;
	ASSERT_EQ(0, pthread_create(&c->thread, NULL, caller_run, c));
	c->fault = uffd_next(self->uffd);
	ASSERT_NE(0, c->fault);
}

static int send_page(FIXTURE_DATA(silent) *self)
{
	struct ib_memreg_wr wr = WR(SEND, self->link.endpoint,
				    SGE(self->mr, PAGE, 64), .flags = SIGNALED);

	return raw_submit(self->link.fd, &wr, 1);
}

static int prefetch_page(FIXTURE_DATA(silent) *self, __u32 flags,
			 struct ib_memreg_range *range)
{
	RAW(mr_advise, cmd, .flags = flags, .count = 1,
	    .advice = IB_MEMREG_ADVICE_PREFETCH, .ranges = (uintptr_t)range);

	*range = (struct ib_memreg_range) {
		.mr_id = self->mr, .offset = 2 * PAGE, .length = 64,
	};
	return raw_call(self->link.fd, IB_MEMREG_IOC_MR_ADVISE, &cmd);
}

static int prefetch_and_wait(FIXTURE_DATA(silent) *self)
{
	struct ib_memreg_range range;

	return prefetch_page(self, IB_MEMREG_ADVISE_WAIT, &range) ?:
	       -(int)range.out_error;
}

static int bind_page(FIXTURE_DATA(silent) *self)
{
	struct ib_memreg_bind bind = {
		.mr_id = self->mr, .offset = 3 * PAGE, .length = 64,
		.access = REMOTE_READ,
	};
	int ret;

	ret = raw_windows(self->link.fd, self->link.domain, LEN,
			  &bind.window_id, 1);
	return ret ?: raw_bind(self->link.fd, self->link.domain, &bind, 1);
}

static int register_page(FIXTURE_DATA(silent) *self)
{
	__u32 mr;

	return raw_register(self->link.fd, self->link.domain,
			    self->mem + 4 * PAGE, PAGE, LOCAL_WRITE, &mr);
}

static int reregister_page(FIXTURE_DATA(silent) *self)
{
	RAW(mr_reregister, cmd, .flags = IB_MEMREG_REREG_TRANSLATION,
	    .addr = (uintptr_t)self->mem + 5 * PAGE, .length = PAGE);
	int ret;

	ret = raw_register(self->link.fd, self->link.domain,
			   self->link.stock.mem, PAGE, LOCAL_WRITE, &cmd.mr_id);
	return ret ?: raw_call(self->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			       &cmd);
}

static int pool_page(FIXTURE_DATA(silent) *self)
{
	RAW(pool_create, cmd, .domain_id = self->link.domain, .count = 2,
	    .access = LOCAL_WRITE, .addr = (uintptr_t)self->mem + 6 * PAGE,
	    .buffer_size = PAGE / 2);
	int ret = raw_call(self->link.fd, IB_MEMREG_IOC_POOL_CREATE, &cmd);

	if (!ret)
		close(cmd.out_table_fd);
	return ret;
}

/* Expect that the peer has received the page that the handler has provided. */
static void message_is(struct __test_metadata *_metadata,
		       FIXTURE_DATA(silent) *self, int byte)
{
	__u8 page[64];
	struct ibv_wc wc;

	memset(page, byte, sizeof(page));
	ASSERT_EQ(0, stock_next(&self->link.stock.received, &wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(0, memcmp(self->link.stock.mem, page, sizeof(page)));
}

/* The handler is a thread of the same process, and answers late. */
TEST_F_TIMEOUT(silent, fault_is_answered, LIMIT_S)
{
	union entry entry;
	struct caller c;

	ASSERT_EQ(0, stock_recv(&self->link.stock, 0, 64));
	caller_begin(_metadata, &c, self, send_page);
	ASSERT_EQ(0, answer(self->uffd, c.fault, 7));
	ASSERT_EQ(0, pthread_join(c.thread, NULL));
	ASSERT_EQ(0, c.ret);
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	message_is(_metadata, self, 7);
	caller_begin(_metadata, &c, self, prefetch_and_wait);
	ASSERT_EQ(0, answer(self->uffd, c.fault, 8));
	ASSERT_EQ(0, pthread_join(c.thread, NULL));
	EXPECT_EQ(0, c.ret);
	caller_begin(_metadata, &c, self, bind_page);
	ASSERT_EQ(0, answer(self->uffd, c.fault, 9));
	ASSERT_EQ(0, pthread_join(c.thread, NULL));
	EXPECT_EQ(0, c.ret);
}

static int prefetch_all(FIXTURE_DATA(silent) *self)
{
	struct ib_memreg_range range = { .mr_id = self->mr, .length = LEN };
	RAW(mr_advise, cmd, .flags = IB_MEMREG_ADVISE_WAIT, .count = 1,
	    .advice = IB_MEMREG_ADVICE_PREFETCH, .ranges = (uintptr_t)&range);

	return raw_call(self->link.fd, IB_MEMREG_IOC_MR_ADVISE, &cmd) ?:
	       -(int)range.out_error;
}

/* The pages in front of one that has to wait are not pinned meanwhile. */
TEST_F_TIMEOUT(silent, I6_fault_holds_no_pins, LIMIT_S)
{
	struct caller c;
	long pinned;
	size_t i;

	pinned = pages_pinned();
	caller_begin(_metadata, &c, self, prefetch_all);
	for (i = 0; i < LEN / PAGE; i++) {
		if (i)
			c.fault = uffd_next(self->uffd);
		EXPECT_EQ(pinned, pages_pinned());
		ASSERT_EQ(0, answer(self->uffd, c.fault, 1));
	}
	ASSERT_EQ(0, pthread_join(c.thread, NULL));
	EXPECT_EQ(0, c.ret);
	EXPECT_EQ(pinned + LEN / PAGE, pages_pinned());
}

/* A call that pins a page waits for its fault without a pin, and starts over */
TEST_F_TIMEOUT(silent, registration_faults_are_answered, LIMIT_S)
{
	static int (*const calls[])(FIXTURE_DATA(silent) *self) = {
		register_page, reregister_page, pool_page,
	};
	long pinned = pages_pinned();
	struct caller c;
	size_t i;

	for (i = 0; i < ARRAY_LEN(calls); i++) {
		caller_begin(_metadata, &c, self, calls[i]);
		if (calls[i] == register_page)
			EXPECT_EQ(pinned, pages_pinned());
		ASSERT_EQ(0, answer(self->uffd, c.fault, 1));
		ASSERT_EQ(0, pthread_join(c.thread, NULL));
		EXPECT_EQ(0, c.ret);
	}
	EXPECT_EQ(pinned + 3, pages_pinned());
}

/* MR_ADVISE with NO_FAULT does not wait for a fault. */
TEST_F_TIMEOUT(silent, advice_does_not_wait, LIMIT_S)
{
	struct ib_memreg_range range;

	ASSERT_EQ(0, prefetch_page(self, 0, &range));
	EXPECT_EQ(EAGAIN, range.out_error);
	EXPECT_EQ(IB_MEMREG_REASON_UNSTEADY, range.out_reason);
	EXPECT_EQ(0, range.out_pages);
}

/* While calls wait for faults, other calls do not wait for them. */
TEST_F_TIMEOUT(silent, others_do_not_wait, LIMIT_S)
{
	struct caller calls[3];
	unsigned int i;

	caller_begin(_metadata, &calls[0], self, send_page);
	caller_begin(_metadata, &calls[1], self, prefetch_and_wait);
	caller_begin(_metadata, &calls[2], self, bind_page);
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->mr));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->link.endpoint));
	self->link.endpoint = 0;
	close(self->uffd);
	self->uffd = -1;
	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, pthread_join(calls[i].thread, NULL));
	/* Each call finds that the object which it works on was destroyed. */
	for (i = 0; i < 3; i++)
		EXPECT_EQ(-ENOENT, calls[i].ret);
}

TEST_F_TIMEOUT(silent, I7_device_goes_while_faults_are_not_answered, LIMIT_S)
{
	struct caller calls[6];
	unsigned int i;

	caller_begin(_metadata, &calls[0], self, send_page);
	caller_begin(_metadata, &calls[1], self, prefetch_and_wait);
	caller_begin(_metadata, &calls[2], self, bind_page);
	caller_begin(_metadata, &calls[3], self, register_page);
	caller_begin(_metadata, &calls[4], self, reregister_page);
	caller_begin(_metadata, &calls[5], self, pool_page);
	self->gone = true;
	EXPECT_EQ(0, shell("rxe_down owner"));
	/* The callers still wait. */
	close(self->uffd);
	self->uffd = -1;
	for (i = 0; i < 6; i++) {
		ASSERT_EQ(0, pthread_join(calls[i].thread, NULL));
		EXPECT_EQ(-ENODEV, calls[i].ret);
		EXPECT_EQ(IB_MEMREG_REASON_DEVICE_GONE, calls[i].reason);
	}
}

/* A child of the next test that waits for a fault until it is killed */
static void wait_for_ever(FIXTURE_DATA(silent) *self, int up)
{
	struct caller c = { .self = self, .call = send_page };
	char byte = 0;

	close(self->uffd);
	if (register_demand(self))
		_exit(1);
	self->uffd = uffd_open(self->mem, LEN);
	if (self->uffd < 0 ||
	    pthread_create(&c.thread, NULL, caller_run, &c) ||
	    !uffd_next(self->uffd) || write(up, &byte, 1) != 1)
		_exit(1);
	pause();
}

TEST_F_TIMEOUT(silent, I7_killed_while_a_fault_is_not_answered, LIMIT_S)
{
	int up[2], status;
	pid_t child;
	char byte;

	ASSERT_EQ(0, pipe(up));
	child = fork();
	ASSERT_LE(0, child);
	if (!child)
		wait_for_ever(self, up[1]);
	close(up[1]);
	ASSERT_EQ(1, read(up[0], &byte, 1));
	ASSERT_EQ(0, kill(child, SIGKILL));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	close(up[0]);
}

/*
 * io_uring
 */

/* Number of threads of this process, with workers of io_uring */
static unsigned int threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static void uring_send(struct __test_metadata *_metadata,
		       FIXTURE_DATA(silent) *self, struct io_uring *uring,
		       const struct ib_memreg_wr *wrs, __u32 count)
{
	struct ib_memreg_uring_submit submit = {
		.wrs = (uintptr_t)wrs, .count = count,
	};
	struct io_uring_sqe *sqe = io_uring_get_sqe(uring);

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, self->link.fd, NULL, 0, 0);
	sqe->cmd_op = IB_MEMREG_URING_SUBMIT;
	memcpy(sqe->cmd, &submit, sizeof(submit));
	ASSERT_EQ(1, io_uring_submit(uring));
}

static int uring_result(struct io_uring *uring)
{
	struct __kernel_timespec limit = { .tv_sec = LIMIT_MS / 1000 };
	struct io_uring_cqe *cqe;
	int ret = io_uring_wait_cqe_timeout(uring, &cqe, &limit);

	if (ret)
		return ret;
	ret = cqe->res;
	io_uring_cqe_seen(uring, cqe);
	return ret;
}

/* A receive waits for the pages of its memory as other work requests do. */
TEST_F_TIMEOUT(silent, uring_receive_faults, LIMIT_S)
{
	struct ib_memreg_wr wr = WR(RECV, self->link.endpoint,
				    SGE(self->mr, 4 * PAGE, 64));
	struct io_uring uring;

	ASSERT_EQ(0, io_uring_queue_init(8, &uring, 0));
	memset(self->link.stock.mem, 3, 64);
	uring_send(_metadata, self, &uring, &wr, 1);
	ASSERT_EQ(0, answer(self->uffd, uffd_next(self->uffd), 5));
	/* The peer tries again as long as there is no receive. */
	EXPECT_EQ(IBV_WC_SUCCESS, stock_send(&self->link.stock, 0, 64));
	EXPECT_EQ(64, uring_result(&uring));
	EXPECT_EQ(3, self->mem[4 * PAGE]);
	io_uring_queue_exit(&uring);
}

/*
 * io_uring issues a command on pinned pages at once, and one that faults in a
 * worker.
 */
TEST_F_TIMEOUT(silent, uring_waits_elsewhere, LIMIT_S)
{
	struct ib_memreg_wr wrs[40];
	struct io_uring uring;
	unsigned int i, before;
	struct ibv_wc wc;

	ASSERT_EQ(0, io_uring_queue_init(8, &uring, 0));
	for (i = 0; i < 40; i++)
		wrs[i] = WR(SEND, self->link.endpoint, SGE(self->mr, PAGE, 64));
	ASSERT_EQ(0, stock_recv(&self->link.stock, 0, 64));
	uring_send(_metadata, self, &uring, wrs, 1);
	ASSERT_EQ(0, answer(self->uffd, uffd_next(self->uffd), 5));
	EXPECT_LE(0, uring_result(&uring));
	message_is(_metadata, self, 5);
	io_uring_queue_exit(&uring);

	ASSERT_EQ(0, io_uring_queue_init(8, &uring, 0));
	before = threads();
	ASSERT_EQ(0, stock_recv(&self->link.stock, 0, 64));
	uring_send(_metadata, self, &uring, wrs, 1);
	EXPECT_EQ(before, threads());
	EXPECT_LE(0, uring_result(&uring));
	message_is(_metadata, self, 5);

	/*
	 * The command has more work requests than the module handles at a time,
	 * and the last one faults: none is posted before that.
	 */
	wrs[39].sge.offset = 5 * PAGE;
	for (i = 0; i < 40; i++)
		ASSERT_EQ(0, stock_recv(&self->link.stock, 0, 64));
	uring_send(_metadata, self, &uring, wrs, 40);
	ASSERT_EQ(0, answer(self->uffd, uffd_next(self->uffd), 6));
	EXPECT_LE(0, uring_result(&uring));
	/*
	 * All messages go to the same place, that of the last work request at
	 * the end.
	 */
	for (i = 0; i < 40; i++)
		ASSERT_EQ(0, stock_next(&self->link.stock.received, &wc));
	EXPECT_EQ(6, self->link.stock.mem[0]);
	io_uring_queue_exit(&uring);
}

#define CHAIN	24	/* work requests, which are submitted in one go */

/**
 * struct dropper - A thread that takes two pages away again and again
 * @thread: The thread
 * @fd: A file of the device
 * @page: The page of the memory that the last work request uses
 * @wrs: The page with the work requests
 * @uffd: Of @wrs
 * @copy: What is in @wrs
 * @never: Earlier work requests that are not reported
 * @delay: It waits for so many steps of a loop first
 * @go: How many times it is to have done so; 0: it ends
 * @done: How many times it has
 * @over: How many commands have ended
 */
struct dropper {
	pthread_t thread;
	int fd;
	__u8 *page;
	void *wrs;
	int uffd;
	__u8 copy[PAGE];
	__u64 never;
	unsigned int delay;
	atomic_uint go;
	atomic_uint done;
	atomic_uint over;
};

/* Work requests of users that were posted and not reported, ever */
static __u64 not_reported(int fd)
{
	__u64 submitted = 0, completed = 0;

	raw_stat(fd, IB_MEMREG_STAT_WRS_COMPLETED, &completed);
	raw_stat(fd, IB_MEMREG_STAT_WRS_SUBMITTED, &submitted);
	return submitted - completed;
}

/*
 * While a command needs @wrs, give it back, but only once all that was posted
 * is over.
 */
static void dropper_answer(struct dropper *d)
{
	struct pollfd pfd = { .fd = d->uffd, .events = POLLIN };
	unsigned long fault;

	if (poll(&pfd, 1, 0) != 1)
		return;
	fault = uffd_next(d->uffd);
	while (not_reported(d->fd) != d->never)
		sched_yield();
	uffd_answer(d->uffd, fault, d->copy);
}

static void *dropper_run(void *arg)
{
	struct dropper *d = arg;
	unsigned int done = 1, go;

	for (;;) {
		while ((go = atomic_load(&d->go)) == done)
			sched_yield();
		if (!go)
			return NULL;
		for (unsigned int i = 0; i < d->delay; i++)
			atomic_load(&d->go);
		madvise(d->page, PAGE, MADV_DONTNEED);
		madvise(d->wrs, PAGE, MADV_DONTNEED);
		while (atomic_load(&d->over) != go)
			dropper_answer(d);
		done = go;
		atomic_store(&d->done, done);
	}
}

static int prefetch_for_writing(FIXTURE_DATA(silent) *self,
				struct ib_memreg_range *ranges, __u32 count)
{
	RAW(mr_advise, cmd, .count = count, .ranges = (uintptr_t)ranges,
	    .advice = IB_MEMREG_ADVICE_PREFETCH_WRITE);

	return raw_call(self->link.fd, IB_MEMREG_IOC_MR_ADVISE, &cmd);
}

/* Take the page away at some time from now on. */
static void dropper_begin(struct dropper *d, unsigned int delay)
{
	d->delay = delay;
	atomic_fetch_add(&d->go, 1);
}

/* The command has ended: wait until the thread has done its part. */
static void dropper_await(struct dropper *d)
{
	atomic_fetch_add(&d->over, 1);
	while (atomic_load(&d->done) != atomic_load(&d->go))
		sched_yield();
}

/* Work requests that a command has posted, by its result */
static unsigned int uring_taken(struct __test_metadata *_metadata,
				struct io_uring *uring)
{
	struct __kernel_timespec limit = { .tv_sec = LIMIT_MS / 1000 };
	struct ib_memreg_uring_result more;
	struct io_uring_cqe *cqe;
	unsigned int taken = CHAIN;

	ASSERT_EQ(0, io_uring_wait_cqe_timeout(uring, &cqe, &limit));
	if (cqe->res < 0) {
		memcpy(&more, cqe->big_cqe, sizeof(more));
		EXPECT_EQ(-EAGAIN, cqe->res);
		EXPECT_EQ(0, more.opcode);
		taken = more.ex;
	}
	io_uring_cqe_seen(uring, cqe);
	return taken;
}

/* Work requests for one page and, the last one, another page */
static void chain_fill(FIXTURE_DATA(silent) *self, struct ib_memreg_wr *wrs)
{
	unsigned int i;

	for (i = 0; i < CHAIN; i++)
		wrs[i] = WR(FETCH_AND_ADD, self->link.endpoint,
			    SGE(self->mr, i < CHAIN - 1 ? PAGE : 5 * PAGE, 8),
			    .remote_addr = (uintptr_t)self->link.stock.mem,
			    .rkey = self->link.stock.mr->rkey,
			    .compare_add = 1, .flags = SIGNALED);
}

static void dropper_start(struct __test_metadata *_metadata,
			  FIXTURE_DATA(silent) *self, struct dropper *d)
{
	close(self->uffd);
	self->uffd = -1;
	d->fd = self->link.fd;
	d->never = not_reported(d->fd);
	d->page = self->mem + 5 * PAGE;
	d->go = 1;
	d->done = 1;
	d->over = 1;
	d->wrs = mmap(NULL, PAGE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT_NE(MAP_FAILED, d->wrs);
	chain_fill(self, (void *)d->copy);
	d->uffd = uffd_open(d->wrs, PAGE);
	ASSERT_LE(0, d->uffd);
	ASSERT_EQ(0, pthread_create(&d->thread, NULL, dropper_run, d));
}

static void dropper_end(struct dropper *d)
{
	atomic_store(&d->go, 0);
	pthread_join(d->thread, NULL);
	close(d->uffd);
	munmap(d->wrs, PAGE);
}

/* Have both pages present, and those of the memory pinned. */
static void chain_prepare(struct __test_metadata *_metadata,
			  FIXTURE_DATA(silent) *self, struct dropper *d)
{
	struct ib_memreg_range ranges[2] = {
		{ .mr_id = self->mr, .offset = PAGE, .length = 8 },
		{ .mr_id = self->mr, .offset = 5 * PAGE, .length = 8 },
	};

	self->mem[PAGE] = 1;
	*d->page = 1;
	/* It is there still if the thread was late. */
	uffd_answer(d->uffd, (unsigned long)d->wrs, d->copy);
	ASSERT_EQ(0, prefetch_for_writing(self, ranges, 2));
}

/*
 * The page of a command's last work request is taken away while the command is
 * submitted, and all that was posted of it ends meanwhile: each work request is
 * executed once, or not at all. The peer's counter says how often.
 */
TEST_F_TIMEOUT(silent, I10_uring_posts_nothing_twice, LIMIT_S)
{
	unsigned int i, taken, parts = 0, rounds = test_rounds(1000);
	__u64 *counter = (__u64 *)self->link.stock.mem;
	struct io_uring uring;
	struct dropper d = {};
	__u64 expected = 0;

	dropper_start(_metadata, self, &d);
	ASSERT_EQ(0, io_uring_queue_init(8, &uring, IORING_SETUP_CQE32));
	*counter = 0;
	for (i = 0; i < rounds; i++) {
		chain_prepare(_metadata, self, &d);
		dropper_begin(&d, i % 100 * 20);
		uring_send(_metadata, self, &uring, d.wrs, CHAIN);
		taken = uring_taken(_metadata, &uring);
		dropper_await(&d);
		parts += taken < CHAIN;
		expected += taken;
		ASSERT_EQ(expected,
			  __atomic_load_n(counter, __ATOMIC_RELAXED));
	}
	TH_LOG("%u of %u commands were posted in part", parts, rounds);
	dropper_end(&d);
	io_uring_queue_exit(&uring);
}

TEST_HARNESS_MAIN
