// SPDX-License-Identifier: GPL-2.0-only
/*
 * Commands of io_uring: work requests that complete in its ring, with memory of
 * MRs and of registered buffers; their errors; and their end when the
 * connection, the device, the ring or the process ends.
 *
 * Owner and peer are both the test, which has a file in either namespace.
 *
 * time limit: 300
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <signal.h>

#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "net.h"
#include "peer.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define LENGTH		(64 * PAGE)
#define SIDE		(LENGTH / 2)	/* what is registered twice */
#define ENTRIES		32
#define RECVS		40
#define COMMANDS	64
#define LIMIT_NS	(LIMIT_MS * 1000000ULL)
#define ALL_ACCESS							\
	(LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | MW_BIND)

struct end {
	struct memreg *m;
	uint32_t domain;
	uint32_t endpoint;
	struct memreg_ring ring;
	struct memreg_mr mr;
	uint8_t *mem;
};

struct done {
	bool there;
	int res;
	struct ib_memreg_uring_result more;
};

struct pair {
	struct end owner;
	struct end peer;
	uint32_t srq;
	struct io_uring uring;
	bool uring_up;
	struct done done[COMMANDS];
	struct ib_memreg_wr wrs[COMMANDS];
};

/*
 * Two ends
 */

static void end_make(struct __test_metadata *_metadata, struct end *e)
{
	ASSERT_EQ(0, memreg_domain_create(e->m, 0, &e->domain));
	ASSERT_EQ(0, memreg_ring_create(e->m, ENTRIES, 64, -1, 0, &e->ring));
	e->mem = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, e->mem);
	memset(e->mem, 0, LENGTH);
	ASSERT_EQ(0, memreg_mr_register(e->m, e->domain, e->mem, LENGTH,
					ALL_ACCESS, 0, &e->mr))
		TH_LOG("%s", memreg_reason());
}

static struct ib_memreg_queues end_queues(const struct end *e, uint32_t srq)
{
	return (struct ib_memreg_queues) {
		.send_ring_id = e->ring.id,
		.recv_ring_id = srq ? 0 : e->ring.id,
		.srq_id = srq,
		.max_send = COMMANDS,
		.max_recv = srq ? 0 : RECVS,
		.max_send_sge = 2,
		.max_recv_sge = srq ? 0 : 2,
		.max_inline = 64,
	};
}

static uint32_t end_await(struct __test_metadata *_metadata, struct end *e,
			  uint32_t type)
{
	struct ib_memreg_event event;

	ASSERT_EQ(0, memreg_get_event(e->m, &event, LIMIT_MS))
		TH_LOG("no event of type %u: %s", type, memreg_reason());
	ASSERT_EQ(type, event.type)
		TH_LOG("status %d", event.status);
	return event.endpoint_id;
}

/*
 * Have the peer request a connection, and give the owner's end of it its
 * queues.
 */
static void pair_request(struct __test_metadata *_metadata, struct pair *p)
{
	struct end *o = &p->owner, *peer = &p->peer;
	struct ib_memreg_queues queues;
	struct sockaddr_storage ss;
	uint32_t listener;

	ASSERT_EQ(0, memreg_listen(o->m, ip_address(OWNER_IP4, 0, &ss), 1,
				   &listener));
	queues = end_queues(peer, 0);
	ASSERT_EQ(0, memreg_connect_queues(peer->m, peer->domain,
					   (struct sockaddr *)&ss, NULL, 20000,
					   NULL, 0, &queues, &peer->endpoint))
		TH_LOG("%s", memreg_reason());
	o->endpoint = end_await(_metadata, o, IB_MEMREG_EVENT_CONNECT_REQUEST);
	queues = end_queues(o, p->srq);
	ASSERT_EQ(0, memreg_setup(o->m, o->endpoint, o->domain, &queues))
		TH_LOG("%s", memreg_reason());
	ASSERT_EQ(0, memreg_destroy(o->m, listener));
}

static void pair_connect(struct __test_metadata *_metadata, struct pair *p)
{
	struct end *o = &p->owner;

	pair_request(_metadata, p);
	ASSERT_EQ(0, memreg_accept(o->m, o->endpoint, o->domain, NULL, 0));
	end_await(_metadata, o, IB_MEMREG_EVENT_ESTABLISHED);
	end_await(_metadata, &p->peer, IB_MEMREG_EVENT_ESTABLISHED);
}

static void pair_open(struct __test_metadata *_metadata, struct pair *p)
{
	ASSERT_EQ(0, memreg_open(OWNER_DEVICE, &p->owner.m))
		TH_LOG("%s", memreg_reason());
	ASSERT_EQ(0, memreg_open_fd(raw_open_peer(), &p->peer.m));
	end_make(_metadata, &p->owner);
	end_make(_metadata, &p->peer);
}

static void uring_open(struct __test_metadata *_metadata, struct pair *p,
		       unsigned int setup)
{
	struct io_uring_params params = { .flags = setup };

	ASSERT_EQ(0, io_uring_queue_init_params(COMMANDS, &p->uring, &params));
	p->uring_up = true;
}

static void uring_close(struct pair *p)
{
	if (p->uring_up)
		io_uring_queue_exit(&p->uring);
	p->uring_up = false;
}

static void end_close(struct end *e)
{
	memreg_close(e->m);
	memreg_ring_destroy(NULL, &e->ring);
	munmap(e->mem, LENGTH);
}

static void pair_close(struct pair *p)
{
	uring_close(p);
	end_close(&p->owner);
	end_close(&p->peer);
}

/* Commands, each with a number from 1 as its user data */

static struct io_uring_sqe *prep(struct pair *p, const struct end *e,
				 uint64_t name, const struct ib_memreg_wr *wrs,
				 uint32_t count)
{
	struct ib_memreg_uring_submit submit = {
		.wrs = (uintptr_t)wrs,
		.count = count,
	};
	struct io_uring_sqe *sqe = io_uring_get_sqe(&p->uring);

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, memreg_fd(e->m), NULL, 0, 0);
	sqe->user_data = name;
	sqe->cmd_op = IB_MEMREG_URING_SUBMIT;
	memcpy(sqe->cmd, &submit, sizeof(submit));
	p->done[name].there = false;
	return sqe;
}

static struct io_uring_sqe *prep_fixed(struct pair *p, const struct end *e,
				       uint64_t name,
				       const struct ib_memreg_wr *wr)
{
	struct io_uring_sqe *sqe = prep(p, e, name, wr, 1);

	sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
	sqe->buf_index = 0;
	return sqe;
}

static void submit(struct __test_metadata *_metadata, struct pair *p)
{
	int n = (int)io_uring_sq_ready(&p->uring);
	int submitted = io_uring_submit(&p->uring);

	/*
	 * With SQPOLL the kernel's thread may have taken the entries already.
	 */
	ASSERT_LE(p->uring.flags & IORING_SETUP_SQPOLL ? 0 : n, submitted);
	ASSERT_GE(n, submitted);
	AWAIT(!io_uring_sq_ready(&p->uring));
}

/* Take all completions, after waiting for one if there is none. */
static int reap(struct pair *p)
{
	struct __kernel_timespec limit = { .tv_sec = LIMIT_MS / 1000 };
	struct io_uring_cqe *cqe;
	struct done *done;
	int ret;

	ret = io_uring_wait_cqe_timeout(&p->uring, &cqe, &limit);
	if (ret)
		return ret;
	done = &p->done[cqe->user_data];
	done->there = true;
	done->res = cqe->res;
	if (p->uring.flags & IORING_SETUP_CQE32)
		memcpy(&done->more, cqe->big_cqe, sizeof(done->more));
	io_uring_cqe_seen(&p->uring, cqe);
	return 0;
}

static int await(struct pair *p, uint64_t name)
{
	while (!p->done[name].there) {
		int ret = reap(p);

		if (ret)
			return ret == -ETIME ? -ETIME - 1000 : ret;
	}
	return p->done[name].res;
}

static int run(struct __test_metadata *_metadata, struct pair *p,
	       const struct end *e, uint64_t name,
	       const struct ib_memreg_wr *wrs, uint32_t count)
{
	prep(p, e, name, wrs, count);
	submit(_metadata, p);
	return await(p, name);
}

static int run_fixed(struct __test_metadata *_metadata, struct pair *p,
		     const struct end *e, uint64_t name,
		     const struct ib_memreg_wr *wr)
{
	prep_fixed(p, e, name, wr);
	submit(_metadata, p);
	return await(p, name);
}

/* Post a receive: a command that ends when a message has arrived. */
static void post_recv(struct __test_metadata *_metadata, struct pair *p,
		      struct end *e, uint64_t name, uint64_t offset,
		      uint32_t length)
{
	struct ib_memreg_wr *wr = &p->wrs[name];

	memreg_prep_recv(wr, p->srq && e == &p->owner ? p->srq : e->endpoint,
			 e->mr.id, offset, length, name + 1000);
	prep(p, e, name, wr, 1);
	submit(_metadata, p);
}

static void register_buffer(struct __test_metadata *_metadata, struct pair *p,
			    void *addr, size_t length)
{
	struct iovec iov = { .iov_base = addr, .iov_len = length };

	ASSERT_EQ(0, io_uring_register_buffers(&p->uring, &iov, 1));
}

/* A work request on a registered buffer */
static void on_buffer(struct ib_memreg_wr *wr, const void *addr,
		      uint32_t length)
{
	wr->num_sge = 1;
	wr->sge = (struct ib_memreg_sge) {
		.length = length, .offset = (uintptr_t)addr,
	};
}

/* No entry was written to the completion rings of either end */
static void rings_are_empty(struct __test_metadata *_metadata, struct pair *p)
{
	EXPECT_EQ(0, memreg_ring_ready(&p->owner.ring));
	EXPECT_EQ(0, memreg_ring_ready(&p->peer.ring));
}

/*
 * In each kind of ring
 */

FIXTURE(uring)
{
	struct pair p;
};

FIXTURE_VARIANT(uring)
{
	unsigned int setup;
	unsigned int sqe_flags;
};

FIXTURE_VARIANT_ADD(uring, plain) {
};

FIXTURE_VARIANT_ADD(uring, large_entries) {
	.setup = IORING_SETUP_CQE32,
};

FIXTURE_VARIANT_ADD(uring, deferred) {
	.setup = IORING_SETUP_CQE32 | IORING_SETUP_SINGLE_ISSUER |
		 IORING_SETUP_DEFER_TASKRUN,
};

FIXTURE_VARIANT_ADD(uring, by_worker) {
	.setup = IORING_SETUP_CQE32,
	.sqe_flags = IOSQE_ASYNC,
};

FIXTURE_VARIANT_ADD(uring, by_thread) {
	.setup = IORING_SETUP_SQPOLL,
};

FIXTURE_SETUP(uring)
{
	pair_open(_metadata, &self->p);
	pair_connect(_metadata, &self->p);
	uring_open(_metadata, &self->p, variant->setup);
}

FIXTURE_TEARDOWN(uring)
{
	pair_close(&self->p);
	AWAIT(!state_count(IB_MEMREG_OBJECT_FILE));
	AWAIT(!vm_pin(0));
}

TEST_F_TIMEOUT(uring, messages, LIMIT_S)
{
	struct pair *p = &self->p;
	uint64_t i;

	fill(p->peer.mem, 4 * PAGE, 1);
	for (i = 0; i < 8; i++)
		post_recv(_metadata, p, &p->owner, 1 + i, i * PAGE, PAGE);
	for (i = 0; i < 8; i++) {
		memreg_prep_send_imm(&p->wrs[20 + i], p->peer.endpoint,
				     p->peer.mr.id, i, 100 * i, htonl(i));
		prep(p, &p->peer, 20 + i, &p->wrs[20 + i], 1)->flags |=
			variant->sqe_flags;
		submit(_metadata, p);
		EXPECT_EQ(0, await(p, 20 + i));
		EXPECT_EQ(100 * i, await(p, 1 + i));
		EXPECT_EQ(0, memcmp(p->owner.mem + i * PAGE, p->peer.mem + i,
				    100 * i));
		if (!(variant->setup & IORING_SETUP_CQE32))
			continue;
		EXPECT_EQ(IB_MEMREG_OP_RECV, p->done[1 + i].more.opcode);
		EXPECT_EQ(IB_MEMREG_CQE_IMM, p->done[1 + i].more.flags);
		EXPECT_EQ(htonl(i), p->done[1 + i].more.ex);
		EXPECT_EQ(IB_MEMREG_OP_SEND_WITH_IMM,
			  p->done[20 + i].more.opcode);
		EXPECT_EQ(0, p->done[20 + i].more.status);
	}
	rings_are_empty(_metadata, p);
}

TEST_F_TIMEOUT(uring, remote_memory, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner, *peer = &p->peer;
	uint64_t *counter = (void *)(peer->mem + 32 * PAGE);
	struct ib_memreg_wr wr;

	fill(o->mem, 16 * PAGE, 2);
	memreg_prep_write(&wr, o->endpoint, o->mr.id, 5, 10000,
			  peer->mr.iova + 77, peer->mr.rkey);
	EXPECT_EQ(0, run(_metadata, p, o, 1, &wr, 1));
	EXPECT_EQ(0, memcmp(o->mem + 5, peer->mem + 77, 10000));
	memreg_prep_read(&wr, o->endpoint, o->mr.id, 20 * PAGE, 10000,
			 peer->mr.iova + 77, peer->mr.rkey);
	EXPECT_EQ(10000, run(_metadata, p, o, 2, &wr, 1));
	EXPECT_EQ(0, memcmp(o->mem + 5, o->mem + 20 * PAGE, 10000));
	*counter = 41;
	memreg_prep_fetch_add(&wr, o->endpoint, o->mr.id, 0,
			      peer->mr.iova + 32 * PAGE, peer->mr.rkey, 1);
	EXPECT_EQ(8, run(_metadata, p, o, 3, &wr, 1));
	EXPECT_EQ(41, *(uint64_t *)o->mem);
	EXPECT_EQ(42, *counter);
	rings_are_empty(_metadata, p);
}

/*
 * A command with more work requests than the module handles at a time. SIGNALED
 * makes no difference.
 */
TEST_F_TIMEOUT(uring, chain_is_one_command, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner, *peer = &p->peer;
	struct ib_memreg_wr wrs[24];
	int i, n;

	for (n = 3; n <= 24; n += 21) {
		memset(peer->mem, 0, LENGTH);
		fill(o->mem, LENGTH, n);
		post_recv(_metadata, p, peer, 1, 40 * PAGE, PAGE);
		for (i = 0; i < n; i++)
			memreg_prep_write(&wrs[i], o->endpoint, o->mr.id,
					  i * PAGE, PAGE,
					  peer->mr.iova + i * PAGE,
					  peer->mr.rkey);
		memreg_wr_signal(&wrs[1], 4711);
		memreg_prep_send_inline(&wrs[n - 1], o->endpoint, "done", 4);
		EXPECT_EQ(0, run(_metadata, p, o, 2, wrs, n));
		EXPECT_EQ(4, await(p, 1));
		EXPECT_EQ(0, memcmp(peer->mem, o->mem, (n - 1) * PAGE));
		EXPECT_EQ(0, memcmp(peer->mem + 40 * PAGE, "done", 4));
		rings_are_empty(_metadata, p);
	}
}

/*
 * A command with a registered buffer moves the bytes that it names, at any
 * offset.
 */
TEST_F_TIMEOUT(uring, registered_buffer, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner, *peer = &p->peer;
	uint8_t *buffer = o->mem + SIDE;
	struct ib_memreg_wr wr;

	register_buffer(_metadata, p, buffer, SIDE);
	fill(o->mem, LENGTH, 3);
	memreg_prep_write(&wr, o->endpoint, 0, 0, 0, peer->mr.iova + 9,
			  peer->mr.rkey);
	on_buffer(&wr, buffer + 4001, 5 * PAGE);
	EXPECT_EQ(0, run_fixed(_metadata, p, o, 1, &wr));
	EXPECT_EQ(0, memcmp(buffer + 4001, peer->mem + 9, 5 * PAGE));
	EXPECT_EQ(0, peer->mem[8]);
	EXPECT_EQ(0, peer->mem[9 + 5 * PAGE]);

	fill(peer->mem, LENGTH, 4);
	memcpy(o->mem, buffer, SIDE);
	memreg_prep_read(&wr, o->endpoint, 0, 0, 0, peer->mr.iova + 1,
			 peer->mr.rkey);
	on_buffer(&wr, buffer + 1, 20000);
	EXPECT_EQ(20000, run_fixed(_metadata, p, o, 2, &wr));
	memcpy(o->mem + 1, peer->mem + 1, 20000);
	EXPECT_EQ(0, memcmp(o->mem, buffer, SIDE));

	/* All of it, to the last byte */
	memreg_prep_read(&wr, o->endpoint, 0, 0, 0, peer->mr.iova,
			 peer->mr.rkey);
	on_buffer(&wr, buffer, SIDE);
	EXPECT_EQ(SIDE, run_fixed(_metadata, p, o, 3, &wr));
	EXPECT_EQ(0, memcmp(buffer, peer->mem, SIDE));
	rings_are_empty(_metadata, p);
}

TEST_F_TIMEOUT(uring, registered_buffer_in_messages, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner, *peer = &p->peer;
	struct ib_memreg_wr recv, send;

	register_buffer(_metadata, p, o->mem + SIDE, SIDE);
	fill(o->mem + SIDE, 100, 5);
	memreg_prep_recv(&recv, peer->endpoint, peer->mr.id, 0, PAGE, 0);
	prep(p, peer, 1, &recv, 1);
	memreg_prep_send(&send, o->endpoint, 0, 0, 0);
	on_buffer(&send, o->mem + SIDE, 30);
	EXPECT_EQ(0, run_fixed(_metadata, p, o, 2, &send));
	EXPECT_EQ(30, await(p, 1));
	EXPECT_EQ(0, memcmp(o->mem + SIDE, peer->mem, 30));

	/*
	 * A message for a registered buffer goes there even if it would fit in
	 * an entry.
	 */
	fill(peer->mem, 100, 6);
	memreg_prep_recv(&recv, o->endpoint, 0, 0, 0, 0);
	on_buffer(&recv, o->mem + SIDE + 3000, 2000);
	prep_fixed(p, o, 3, &recv);
	memreg_prep_send(&send, peer->endpoint, peer->mr.id, 0, 20);
	EXPECT_EQ(0, run(_metadata, p, peer, 4, &send, 1));
	EXPECT_EQ(20, await(p, 3));
	EXPECT_EQ(0, memcmp(o->mem + SIDE + 3000, peer->mem, 20));
	rings_are_empty(_metadata, p);
}

/* Commands are flushed, and none can be submitted any more. */
TEST_F_TIMEOUT(uring, end_of_the_connection, LIMIT_S)
{
	struct pair *p = &self->p;
	struct ib_memreg_wr wr;
	uint64_t i;

	register_buffer(_metadata, p, p->owner.mem + SIDE, SIDE);
	for (i = 1; i <= 4; i++)
		post_recv(_metadata, p, &p->owner, i, i * PAGE, PAGE);
	memreg_prep_recv(&wr, p->owner.endpoint, 0, 0, 0, 0);
	on_buffer(&wr, p->owner.mem + SIDE, PAGE);
	prep_fixed(p, &p->owner, 5, &wr);
	submit(_metadata, p);
	/* The peer's go with their endpoint. */
	post_recv(_metadata, p, &p->peer, 6, 0, PAGE);
	ASSERT_EQ(0, memreg_disconnect(p->owner.m, p->owner.endpoint));
	for (i = 1; i <= 5; i++)
		EXPECT_EQ(-ECANCELED, await(p, i));
	ASSERT_EQ(0, memreg_destroy(p->peer.m, p->peer.endpoint));
	EXPECT_EQ(-ECANCELED, await(p, 6));
	memreg_prep_recv(&wr, p->owner.endpoint, p->owner.mr.id, 0, PAGE, 0);
	EXPECT_EQ(-ENOTCONN, run(_metadata, p, &p->owner, 7, &wr, 1));
	rings_are_empty(_metadata, p);
}

/* Failures */

FIXTURE(uring_rules)
{
	struct pair p;
};

FIXTURE_SETUP(uring_rules)
{
	pair_open(_metadata, &self->p);
	uring_open(_metadata, &self->p, IORING_SETUP_CQE32);
}

FIXTURE_TEARDOWN(uring_rules)
{
	pair_close(&self->p);
	AWAIT(!state_count(IB_MEMREG_OBJECT_FILE));
	AWAIT(!vm_pin(0));
}

/*
 * Expect that a command posts nothing, and that its completion has the reason.
 */
#define EXPECT_REFUSED(_err, _reason, _call)				\
	do {								\
		EXPECT_EQ(-(_err), _call);				\
		EXPECT_EQ(IB_MEMREG_REASON_##_reason,			\
			  p->done[1].more.reason);			\
		EXPECT_EQ(0, p->done[1].more.opcode);			\
		EXPECT_EQ(0, p->done[1].more.ex);			\
	} while (0)

TEST_F_TIMEOUT(uring_rules, commands_are_checked, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner;
	struct ib_memreg_uring_submit *cmd;
	struct ib_memreg_wr wrs[2];
	struct io_uring_sqe *sqe;

	pair_connect(_metadata, p);
	memreg_prep_send(&wrs[0], o->endpoint, o->mr.id, 0, 8);
	wrs[1] = wrs[0];

	sqe = prep(p, o, 1, wrs, 1);
	sqe->cmd_op = IB_MEMREG_IOC_SUBMIT;
	submit(_metadata, p);
	EXPECT_EQ(-EOPNOTSUPP, await(p, 1));
	sqe = prep(p, o, 1, wrs, 1);
	cmd = (void *)sqe->cmd;
	cmd->flags = 1;
	submit(_metadata, p);
	EXPECT_REFUSED(EOPNOTSUPP, FLAGS, await(p, 1));
	EXPECT_REFUSED(EINVAL, COUNT, run(_metadata, p, o, 1, wrs, 0));
	EXPECT_REFUSED(EINVAL, COUNT, run(_metadata, p, o, 1, wrs,
					  IB_MEMREG_BATCH_MAX + 1));
	EXPECT_REFUSED(EFAULT, NONE, run(_metadata, p, o, 1, NULL, 1));
	EXPECT_REFUSED(EFAULT, NONE, run(_metadata, p, o, 1,
					 (void *)(uintptr_t)-PAGE, 1));
	wrs[1].target_id = p->owner.mr.id;
	EXPECT_REFUSED(EINVAL, URING_TARGET, run(_metadata, p, o, 1, wrs, 2));
	wrs[1].target_id = wrs[0].target_id;
	wrs[1].opcode = IB_MEMREG_OP_RECV;
	EXPECT_REFUSED(EINVAL, URING_COUNT, run(_metadata, p, o, 1, wrs, 2));
	wrs[0].opcode = IB_MEMREG_OP_RECV;
	EXPECT_REFUSED(EINVAL, URING_COUNT, run(_metadata, p, o, 1, wrs, 2));
	wrs[0].opcode = 99;
	EXPECT_REFUSED(EINVAL, OPCODE, run(_metadata, p, o, 1, wrs, 1));
	memreg_prep_send(&wrs[0], o->endpoint, 4711, 0, 8);
	EXPECT_REFUSED(ENOENT, ID, run(_metadata, p, o, 1, wrs, 1));
	memreg_prep_send(&wrs[0], 4711, o->mr.id, 0, 8);
	EXPECT_REFUSED(ENOENT, ID, run(_metadata, p, o, 1, wrs, 1));
	memreg_prep_send(&wrs[0], o->endpoint, o->mr.id, LENGTH, 8);
	EXPECT_REFUSED(EINVAL, RANGE, run(_metadata, p, o, 1, wrs, 1));
}

TEST_F_TIMEOUT(uring_rules, file_must_be_bound, LIMIT_S)
{
	struct pair *p = &self->p;
	struct ib_memreg_wr wr;
	struct io_uring_sqe *sqe;
	int fd = raw_open();

	ASSERT_LE(0, fd);
	memreg_prep_recv(&wr, 1, 1, 0, 8, 0);
	sqe = prep(p, &p->owner, 1, &wr, 1);
	sqe->fd = fd;
	submit(_metadata, p);
	EXPECT_REFUSED(ENODEV, NOT_BOUND, await(p, 1));
	close(fd);
}

/* I6: commands reach no memory outside the registered buffer */
TEST_F_TIMEOUT(uring_rules, I6_registered_buffers_are_checked, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner;
	uint8_t *buffer = o->mem + PAGE;
	struct io_uring_sqe *sqe;
	struct ib_memreg_wr wrs[2];

	pair_connect(_metadata, p);
	register_buffer(_metadata, p, buffer, 2 * PAGE);
	memreg_prep_recv(&wrs[0], o->endpoint, 0, 0, 0, 0);
	on_buffer(&wrs[0], buffer - 1, PAGE);
	EXPECT_REFUSED(EFAULT, RANGE, run_fixed(_metadata, p, o, 1, wrs));
	on_buffer(&wrs[0], buffer + PAGE + 1, PAGE);
	EXPECT_REFUSED(EFAULT, RANGE, run_fixed(_metadata, p, o, 1, wrs));
	on_buffer(&wrs[0], (void *)-8UL, 16);
	EXPECT_REFUSED(EFAULT, RANGE, run_fixed(_metadata, p, o, 1, wrs));
	on_buffer(&wrs[0], buffer, PAGE);
	sqe = prep_fixed(p, o, 1, wrs);
	sqe->buf_index = 1;
	submit(_metadata, p);
	EXPECT_REFUSED(EFAULT, RANGE, await(p, 1));
	on_buffer(&wrs[0], buffer, 0);
	EXPECT_REFUSED(EINVAL, ZERO_LENGTH, run_fixed(_metadata, p, o, 1, wrs));
	on_buffer(&wrs[0], buffer, PAGE);
	wrs[0].sge.mr_id = o->mr.id;
	EXPECT_REFUSED(EINVAL, URING_SGE, run_fixed(_metadata, p, o, 1, wrs));
	on_buffer(&wrs[0], buffer, PAGE);
	wrs[0].num_sge = 0;
	EXPECT_REFUSED(EINVAL, URING_SGE, run_fixed(_metadata, p, o, 1, wrs));
	memreg_prep_send(&wrs[0], o->endpoint, 0, 0, 0);
	on_buffer(&wrs[0], buffer, PAGE);
	wrs[1] = wrs[0];
	sqe = prep(p, o, 1, wrs, 2);
	sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
	sqe->buf_index = 0;
	submit(_metadata, p);
	EXPECT_REFUSED(EINVAL, URING_COUNT, await(p, 1));
	memreg_prep_invalidate(&wrs[0], o->endpoint, 1);
	sqe = prep_fixed(p, o, 1, wrs);
	sqe->flags |= IOSQE_ASYNC;
	submit(_metadata, p);
	EXPECT_REFUSED(EINVAL, URING_SGE, await(p, 1));
	rings_are_empty(_metadata, p);
}

/* Posted work requests are executed, and their number is returned. */
TEST_F_TIMEOUT(uring_rules, bad_one_in_a_chain, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner, *peer = &p->peer;
	struct ib_memreg_wr wrs[24];
	unsigned int bad, i;

	pair_connect(_metadata, p);
	for (bad = 3; bad < 24; bad += 17) {
		memset(peer->mem, 0, LENGTH);
		fill(o->mem, LENGTH, bad);
		for (i = 0; i < 24; i++)
			memreg_prep_write(&wrs[i], o->endpoint,
					  i < bad ? o->mr.id : 4711, i * PAGE,
					  PAGE, peer->mr.iova + i * PAGE,
					  peer->mr.rkey);
		EXPECT_EQ(-ENOENT, run(_metadata, p, o, 1, wrs, 24));
		EXPECT_EQ(IB_MEMREG_REASON_ID, p->done[1].more.reason);
		EXPECT_EQ(0, p->done[1].more.status);
		EXPECT_EQ(0, p->done[1].more.opcode);
		EXPECT_EQ(bad, p->done[1].more.ex);
		EXPECT_EQ(0, memcmp(peer->mem, o->mem, bad * PAGE));
		EXPECT_EQ(0, peer->mem[bad * PAGE + 1]);
	}
	rings_are_empty(_metadata, p);
}

/* Connect a peer that keeps the connection when it has refused an access. */
static void connect_stock(struct __test_metadata *_metadata, struct pair *p,
			  struct peer *stock)
{
	struct end *o = &p->owner;
	struct ib_memreg_queues queues = end_queues(o, 0);
	struct sockaddr_storage ss;
	uint32_t listener;

	ASSERT_EQ(0, memreg_listen(o->m, ip_address(OWNER_IP4, 0, &ss), 1,
				   &listener));
	peer_start(_metadata, stock, OWNER_IP4,
		   ntohs(((struct sockaddr_in *)&ss)->sin_port), NULL);
	o->endpoint = end_await(_metadata, o, IB_MEMREG_EVENT_CONNECT_REQUEST);
	ASSERT_EQ(0, memreg_setup(o->m, o->endpoint, o->domain, &queues));
	ASSERT_EQ(0, memreg_accept(o->m, o->endpoint, o->domain, NULL, 0));
	end_await(_metadata, o, IB_MEMREG_EVENT_ESTABLISHED);
	peer_answer(_metadata, stock);
}

/* The first failure is reported, not those that follow from it. */
TEST_F_TIMEOUT(uring_rules, refused_access, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner;
	struct ib_memreg_wr wrs[3];
	struct peer stock;
	int i;

	connect_stock(_metadata, p, &stock);
	post_recv(_metadata, p, o, 2, 0, PAGE);
	for (i = 0; i < 3; i++)
		memreg_prep_write(&wrs[i], o->endpoint, o->mr.id, 0, PAGE,
				  0x1000, 0x4711);
	EXPECT_EQ(-EACCES, run(_metadata, p, o, 1, wrs, 3));
	EXPECT_EQ(IB_MEMREG_WC_REM_ACCESS_ERR, p->done[1].more.status);
	EXPECT_EQ(IB_MEMREG_OP_WRITE, p->done[1].more.opcode);
	EXPECT_EQ(-ECANCELED, await(p, 2));
	EXPECT_EQ(IB_MEMREG_WC_WR_FLUSH_ERR, p->done[2].more.status);
	rings_are_empty(_metadata, p);
	peer_stop(&stock, SIGKILL);
}

TEST_F_TIMEOUT(uring_rules, message_too_long, LIMIT_S)
{
	struct pair *p = &self->p;
	struct ib_memreg_wr wr;

	pair_connect(_metadata, p);
	post_recv(_metadata, p, &p->owner, 1, 0, 8);
	memreg_prep_send(&wr, p->peer.endpoint, p->peer.mr.id, 0, 64);
	EXPECT_EQ(-EREMOTEIO, run(_metadata, p, &p->peer, 2, &wr, 1));
	/* rxe reports LOC_QP_OP_ERR where the specification has LOC_LEN_ERR. */
	await(p, 1);
	if (p->done[1].more.status == IB_MEMREG_WC_LOC_QP_OP_ERR)
		EXPECT_EQ(-EIO, p->done[1].res);
	if (p->done[1].more.status != IB_MEMREG_WC_LOC_QP_OP_ERR)
		EXPECT_EQ(-EMSGSIZE, p->done[1].res);
}

/*
 * I10: commands claim room in the completion ring, though they write no entry,
 * and return it.
 */
TEST_F_TIMEOUT(uring_rules, I10_room_is_claimed_and_given_back, LIMIT_S)
{
	struct pair *p = &self->p;
	struct ib_memreg_wr wr;
	uint64_t i, round;

	pair_connect(_metadata, p);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < ENTRIES; i++)
			post_recv(_metadata, p, &p->owner, 2 + i, 0, PAGE);
		memreg_prep_recv(&wr, p->owner.endpoint, p->owner.mr.id, 0,
				 PAGE, 0);
		EXPECT_REFUSED(EAGAIN, RING_FULL,
			       run(_metadata, p, &p->owner, 1, &wr, 1));
		for (i = 0; i < ENTRIES; i++) {
			memreg_prep_send_inline(&wr, p->peer.endpoint, "x", 1);
			EXPECT_EQ(0, run(_metadata, p, &p->peer, 40, &wr, 1));
			EXPECT_EQ(1, await(p, 2 + i));
		}
	}
	rings_are_empty(_metadata, p);
}

/* A key that is made when the command is issued travels in its message. */
TEST_F_TIMEOUT(uring_rules, window_is_bound_and_ended, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner, *peer = &p->peer;
	struct ib_memreg_wr wrs[2], wr;
	uint32_t window, rkey;

	pair_connect(_metadata, p);
	fill(o->mem, 4 * PAGE, 7);
	ASSERT_EQ(0, memreg_window_alloc(o->m, o->domain,
					 IB_MEMREG_WINDOW_TYPE2B, LENGTH / 2,
					 &window, 1));
	post_recv(_metadata, p, peer, 1, 0, PAGE);
	memreg_prep_bind(&wrs[0], o->endpoint, window, o->mr.id, PAGE, PAGE,
			 REMOTE_READ);
	memreg_wr_insert_rkey(&wrs[0], 4);
	memreg_prep_send_inline(&wrs[1], o->endpoint, "key:....", 8);
	EXPECT_EQ(0, run(_metadata, p, o, 2, wrs, 2));
	EXPECT_EQ(8, await(p, 1));
	memcpy(&rkey, peer->mem + 4, 4);
	rkey = ntohl(rkey);
	EXPECT_EQ(wrs[0].rkey, rkey);
	memreg_prep_read(&wr, peer->endpoint, peer->mr.id, 0, PAGE,
			 wrs[0].remote_addr, rkey);
	EXPECT_EQ(PAGE, run(_metadata, p, peer, 3, &wr, 1));
	EXPECT_EQ(0, memcmp(peer->mem, o->mem + PAGE, PAGE));

	memreg_prep_invalidate(&wrs[0], o->endpoint, window);
	EXPECT_EQ(0, run(_metadata, p, o, 2, wrs, 1));
	EXPECT_EQ(-EACCES, run(_metadata, p, peer, 3, &wr, 1));
	rings_are_empty(_metadata, p);
}

/*
 * With a shared receive queue the completion has the endpoint where immediate
 * data would be.
 */
TEST_F_TIMEOUT(uring_rules, shared_receive_queue, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner;
	struct ib_memreg_wr wr;

	ASSERT_EQ(0, memreg_srq_create(o->m, o->domain, o->ring.id, RECVS, 2, 0,
				       &p->srq))
		TH_LOG("%s", memreg_reason());
	pair_connect(_metadata, p);
	register_buffer(_metadata, p, o->mem, PAGE);
	memreg_prep_recv(&wr, p->srq, 0, 0, 0, 0);
	on_buffer(&wr, o->mem, PAGE);
	EXPECT_REFUSED(EOPNOTSUPP, OPCODE_QUEUE,
		       run_fixed(_metadata, p, o, 1, &wr));
	post_recv(_metadata, p, o, 1, PAGE, PAGE);
	post_recv(_metadata, p, o, 2, PAGE, PAGE);
	memreg_prep_send_imm(&wr, p->peer.endpoint, p->peer.mr.id, 0, 50, 1);
	EXPECT_EQ(0, run(_metadata, p, &p->peer, 3, &wr, 1));
	EXPECT_EQ(50, await(p, 1));
	EXPECT_EQ(o->endpoint, p->done[1].more.ex);
	/* Receives that no message has taken end with the queue. */
	ASSERT_EQ(0, memreg_destroy(o->m, o->endpoint));
	ASSERT_EQ(0, memreg_destroy(o->m, p->srq));
	EXPECT_EQ(-ECANCELED, await(p, 2));
	rings_are_empty(_metadata, p);
}

/*
 * I1: pages that a command may write to stay pinned, even if the buffer is
 * unregistered
 */
TEST_F_TIMEOUT(uring_rules, I1_buffer_stays_until_the_command_ends, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner;
	struct ib_memreg_wr recv, send;
	long pinned = pages_pinned();
	uint8_t *again;

	pair_connect(_metadata, p);
	again = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, again);
	memset(again, 0, LENGTH);
	register_buffer(_metadata, p, again, 4 * PAGE);
	EXPECT_EQ(pinned + 4, pages_pinned());
	memreg_prep_recv(&recv, o->endpoint, 0, 0, 0, 0);
	on_buffer(&recv, again + 100, PAGE);
	prep_fixed(p, o, 1, &recv);
	submit(_metadata, p);
	ASSERT_EQ(0, io_uring_unregister_buffers(&p->uring));
	EXPECT_EQ(pinned + 4, pages_pinned());
	fill(p->peer.mem, PAGE, 8);
	memreg_prep_send(&send, p->peer.endpoint, p->peer.mr.id, 0, PAGE);
	EXPECT_EQ(0, run(_metadata, p, &p->peer, 2, &send, 1));
	EXPECT_EQ(PAGE, await(p, 1));
	EXPECT_EQ(0, memcmp(again + 100, p->peer.mem, PAGE));
	AWAIT(pages_pinned() == pinned);
	munmap(again, LENGTH);
}

/* The end of the objects that commands belong to */

/* Close the ring, and wait until its registered buffer is unpinned. */
static void close_and_wait(struct __test_metadata *_metadata, struct pair *p,
			   long pinned)
{
	uring_close(p);
	AWAIT(pages_pinned() == pinned);
}

/* Receives of a ring that was closed stay posted, and take messages. */
TEST_F_TIMEOUT(uring_rules, end_of_the_ring, LIMIT_S)
{
	const struct ib_memreg_cqe *cqe;
	struct pair *p = &self->p;
	struct end *o = &p->owner;
	struct ib_memreg_wr wr;
	long pinned = pages_pinned();
	uint32_t taken;

	pair_connect(_metadata, p);
	register_buffer(_metadata, p, o->mem, PAGE);
	post_recv(_metadata, p, o, 1, PAGE, PAGE);
	post_recv(_metadata, p, o, 2, 2 * PAGE, PAGE);
	close_and_wait(_metadata, p, pinned);
	fill(p->peer.mem, PAGE, 9);
	memreg_prep_send(&wr, p->peer.endpoint, p->peer.mr.id, 0, 20);
	ASSERT_EQ(0, memreg_submit(p->peer.m, &wr, 1, &taken));
	ASSERT_EQ(0, memreg_ring_wait(&o->ring, 1, LIMIT_NS, NULL));
	cqe = memreg_ring_peek(&o->ring);
	EXPECT_EQ(1001, cqe->user_data);
	EXPECT_EQ(o->endpoint, cqe->endpoint_data);
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, cqe->status);
	EXPECT_EQ(20, cqe->byte_len);
	EXPECT_EQ(IB_MEMREG_OP_RECV, cqe->opcode);
	EXPECT_EQ(0, cqe->flags);
	EXPECT_EQ(0, memcmp(o->mem + PAGE, p->peer.mem, 20));
	memreg_ring_seen(&o->ring, 1);
	ASSERT_EQ(0, memreg_disconnect(o->m, o->endpoint));
	ASSERT_EQ(0, memreg_ring_wait(&o->ring, 1, LIMIT_NS, NULL));
	cqe = memreg_ring_peek(&o->ring);
	EXPECT_EQ(1002, cqe->user_data);
	EXPECT_EQ(IB_MEMREG_WC_WR_FLUSH_ERR, cqe->status);
}

/* Commands on a registered buffer end with the connection. */
TEST_F_TIMEOUT(uring_rules, end_of_the_ring_with_its_buffers, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner;
	struct ib_memreg_wr wr;
	long pinned = pages_pinned();

	pair_connect(_metadata, p);
	register_buffer(_metadata, p, o->mem, PAGE);
	memreg_prep_recv(&wr, o->endpoint, 0, 0, 0, 0);
	on_buffer(&wr, o->mem, PAGE);
	prep_fixed(p, o, 1, &wr);
	submit(_metadata, p);
	close_and_wait(_metadata, p, pinned);
	end_await(_metadata, o, IB_MEMREG_EVENT_DISCONNECTED);
	rings_are_empty(_metadata, p);
}

/*
 * read(2) by io_uring waits for events there, and does not block in the file.
 */
TEST_F_TIMEOUT(uring_rules, events_are_read, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner;
	struct ib_memreg_event event = {};
	int fd = memreg_fd(o->m), flags = fcntl(fd, F_GETFL);
	struct sockaddr_storage ss;
	struct io_uring_sqe *sqe;
	uint32_t listener;

	ASSERT_EQ(0, fcntl(fd, F_SETFL, flags & ~O_NONBLOCK));
	sqe = io_uring_get_sqe(&p->uring);
	io_uring_prep_read(sqe, fd, &event, sizeof(event), 0);
	sqe->user_data = 1;
	submit(_metadata, p);
	EXPECT_EQ(0, io_uring_cq_ready(&p->uring));
	ASSERT_EQ(0, memreg_listen(o->m, ip_address(OWNER_IP4, 0, &ss), 1,
				   &listener));
	ASSERT_EQ(0, memreg_connect(p->peer.m, p->peer.domain,
				    (struct sockaddr *)&ss, NULL, 20000, NULL,
				    0, &p->peer.endpoint));
	EXPECT_EQ(sizeof(event), await(p, 1));
	EXPECT_EQ(IB_MEMREG_EVENT_CONNECT_REQUEST, event.type);
	EXPECT_EQ(listener, event.listener_id);
}

/*
 * A posted command holds a reference of its endpoint. The connection request
 * can be rejected all the same.
 */
TEST_F_TIMEOUT(uring_rules, end_of_a_request, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner;
	struct ib_memreg_wr wr;

	pair_request(_metadata, p);
	register_buffer(_metadata, p, o->mem, PAGE);
	memreg_prep_recv(&wr, o->endpoint, 0, 0, 0, 0);
	on_buffer(&wr, o->mem, PAGE);
	prep_fixed(p, o, 1, &wr);
	submit(_metadata, p);
	ASSERT_EQ(0, memreg_reject(o->m, o->endpoint, NULL, 0));
	EXPECT_EQ(-ECANCELED, await(p, 1));
	end_await(_metadata, &p->peer, IB_MEMREG_EVENT_REJECTED);
	rings_are_empty(_metadata, p);
}

/* Commands hold a reference of the file, which lives until they end. */
TEST_F_TIMEOUT(uring_rules, file_lives_as_long_as_commands, LIMIT_S)
{
	struct pair *p = &self->p;
	int fd;

	pair_connect(_metadata, p);
	post_recv(_metadata, p, &p->owner, 1, PAGE, PAGE);
	fd = dup(memreg_fd(p->owner.m));
	ASSERT_EQ(0, close(memreg_fd(p->owner.m)));
	ASSERT_EQ(0, close(fd));
	EXPECT_EQ(2, state_count(IB_MEMREG_OBJECT_FILE));
	ASSERT_EQ(0, memreg_disconnect(p->peer.m, p->peer.endpoint));
	EXPECT_EQ(-ECANCELED, await(p, 1));
	AWAIT(state_count(IB_MEMREG_OBJECT_FILE) == 1);
	/* The handle has a descriptor to close. */
	fd = open("/dev/null", O_RDONLY);
	ASSERT_EQ(memreg_fd(p->owner.m), fd);
}

TEST_F_TIMEOUT(uring_rules, end_of_the_device, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner;
	struct ib_memreg_wr wr;

	pair_connect(_metadata, p);
	register_buffer(_metadata, p, o->mem, SIDE);
	post_recv(_metadata, p, o, 1, 0, PAGE);
	memreg_prep_recv(&wr, o->endpoint, 0, 0, 0, 0);
	on_buffer(&wr, o->mem, PAGE);
	prep_fixed(p, o, 2, &wr);
	submit(_metadata, p);
	ASSERT_EQ(0, shell("rxe_down owner"));
	EXPECT_EQ(-ECANCELED, await(p, 1));
	EXPECT_EQ(-ECANCELED, await(p, 2));
	memreg_prep_recv(&wr, o->endpoint, o->mr.id, 0, PAGE, 0);
	EXPECT_REFUSED(ENODEV, DEVICE_GONE, run(_metadata, p, o, 1, &wr, 1));
	ASSERT_EQ(0, shell("rxe_up owner && await 60 rxe_ready owner"));
}

/*
 * The end of a process
 */

/* Wait for messages and write all the time, in MRs and registered buffers. */
static void be_busy(struct __test_metadata *_metadata, struct pair *p, int sign)
{
	struct end *o = &p->owner, *peer = &p->peer;
	struct ib_memreg_wr recv, wr;
	uint64_t i;

	pair_open(_metadata, p);
	pair_connect(_metadata, p);
	uring_open(_metadata, p, IORING_SETUP_CQE32);
	register_buffer(_metadata, p, o->mem, SIDE);
	for (i = 10; i < 14; i++)
		post_recv(_metadata, p, o, i, SIDE, PAGE);
	memreg_prep_recv(&recv, o->endpoint, 0, 0, 0, 0);
	on_buffer(&recv, o->mem, PAGE);
	prep_fixed(p, o, 9, &recv);
	submit(_metadata, p);
	memreg_prep_write(&wr, o->endpoint, 0, 0, 0, peer->mr.iova,
			  peer->mr.rkey);
	on_buffer(&wr, o->mem, SIDE);
	for (i = 1; i <= 4; i++)
		prep_fixed(p, o, i, &wr);
	submit(_metadata, p);
	ASSERT_EQ(1, write(sign, "", 1));
	for (;;) {
		ASSERT_EQ(0, reap(p));
		for (i = 1; i <= 4; i++)
			if (p->done[i].there)
				prep_fixed(p, o, i, &wr);
		submit(_metadata, p);
	}
}

static void end_process(struct __test_metadata *_metadata, unsigned int delay)
{
	static struct pair p;
	int sign[2], status;
	pid_t child;
	char byte;

	ASSERT_EQ(0, pipe2(sign, O_CLOEXEC));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		be_busy(_metadata, &p, sign[1]);
		_exit(1);
	}
	close(sign[1]);
	ASSERT_EQ(1, read(sign[0], &byte, 1));
	close(sign[0]);
	usleep(delay);
	ASSERT_EQ(0, kill(child, SIGKILL));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	ASSERT_TRUE(WIFSIGNALED(status));
	AWAIT(!state_count(IB_MEMREG_OBJECT_FILE));
}

FIXTURE(killed)
{
	int unused;
};

FIXTURE_SETUP(killed)
{
	(void)self;
}

FIXTURE_TEARDOWN(killed)
{
	(void)self;
}

/*
 * After each kill no page is pinned, and in the end the module can be unloaded.
 */
TEST_F_TIMEOUT(killed, I7_nothing_is_left, SOAK_S)
{
	unsigned int i, rounds = test_rounds(8);

	for (i = 0; i < rounds; i++)
		end_process(_metadata, 1000 * (i * 7 % 50));
}

/*
 * Faults
 */

/* I8: a fault of memory or copies leaves nothing, and the next try works. */
static void sweep(struct __test_metadata *_metadata, struct pair *p,
		  const struct ib_memreg_wr *wr, bool fixed)
{
	unsigned int nth, left;
	bool hit = true;
	int ret, expected = wr->opcode == IB_MEMREG_OP_READ ? (int)PAGE : 0;

	for (nth = 1 + sweep_first(SWEEP_K); hit;
	     nth += sweep_stride(SWEEP_K)) {
		if (fixed)
			prep_fixed(p, &p->owner, 1, wr);
		else
			prep(p, &p->owner, 1, wr, 1);
		fail_nth_arm(nth);
		ret = io_uring_submit(&p->uring);
		hit = fail_nth_disarm(&left);
		/* io_uring itself may have to do without memory. */
		if (ret < 0) {
			ASSERT_TRUE(hit);
			submit(_metadata, p);
		}
		ret = await(p, 1);
		if (ret != expected) {
			ASSERT_TRUE(hit);
			ASSERT_TRUE(ret == -ENOMEM || ret == -EFAULT)
				TH_LOG("fault %u: %d", nth, ret);
		}
		ret = fixed ? run_fixed(_metadata, p, &p->owner, 1, wr) :
			      run(_metadata, p, &p->owner, 1, wr, 1);
		ASSERT_EQ(expected, ret)
			TH_LOG("after fault %u", nth);
	}
	ASSERT_LT(2, nth);
	ksft_print_msg("up to place %u\n", nth - 1);
}

TEST_F_TIMEOUT(uring_rules, I8_faults, 300)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner, *peer = &p->peer;
	struct ib_memreg_wr wr;

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	pair_connect(_metadata, p);
	register_buffer(_metadata, p, o->mem, SIDE);
	memreg_prep_write(&wr, o->endpoint, o->mr.id, 0, PAGE, peer->mr.iova,
			  peer->mr.rkey);
	sweep(_metadata, p, &wr, false);
	memreg_prep_read(&wr, o->endpoint, 0, 0, 0, peer->mr.iova,
			 peer->mr.rkey);
	on_buffer(&wr, o->mem + 5, PAGE);
	sweep(_metadata, p, &wr, true);
	rings_are_empty(_metadata, p);
}

/*
 * If the device takes only the first work requests of a command, these end with
 * the connection.
 */
TEST_F_TIMEOUT(uring_rules, device_takes_a_part_of_a_chain, LIMIT_S)
{
	struct pair *p = &self->p;
	struct end *o = &p->owner, *peer = &p->peer;
	struct ib_memreg_wr wrs[5];
	int i;

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	pair_connect(_metadata, p);
	fill(o->mem, LENGTH, 10);
	for (i = 0; i < 5; i++)
		memreg_prep_write(&wrs[i], o->endpoint, o->mr.id, i * PAGE,
				  PAGE, peer->mr.iova + i * PAGE,
				  peer->mr.rkey);
	fault_order("post_send", 2, 1);
	EXPECT_EQ(-ENOMEM, run(_metadata, p, o, 1, wrs, 5));
	fault_cancel("post_send");
	EXPECT_EQ(2, p->done[1].more.ex);
	EXPECT_EQ(0, p->done[1].more.opcode);
	EXPECT_EQ(0, peer->mem[2 * PAGE + 1]);
	end_await(_metadata, o, IB_MEMREG_EVENT_DISCONNECTED);
	rings_are_empty(_metadata, p);
}

PEER_HARNESS_MAIN
