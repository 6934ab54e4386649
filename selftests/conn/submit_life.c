// SPDX-License-Identifier: GPL-2.0-only
/*
 * I7: endpoints end with work posted, by a call, by the peer, by the end of the
 * file, of the process or of the device. All of the work is flushed, each work
 * request has its entry, and no object is left. Also: many endpoints on one
 * ring, and storms of connections that come and go.
 *
 * time limit: 400
 * soak in parts: 2
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "net.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define LEN		(16 * PAGE)
#define STOCK_LEN	(1UL << 20)
/* Pages of the stock end's MR, which this process has pinned as well */
#define STOCK_PINS	(STOCK_LEN / PAGE)
#define RECVS		20
#define SENDS		10

FIXTURE(life)
{
	struct link link;
	struct ring ring;
	__u8 *mem;
	__u32 mr;
	__u32 to;
};

static struct ib_memreg_queues queues_of(const struct ring *ring)
{
	return queues_on(ring->id, 32, 32, 2, 32);
}

FIXTURE_SETUP(life)
{
	struct ib_memreg_queues queues;

	/* One of the tests makes another one. */
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
	ASSERT_EQ(0, link_open(&self->link, STOCK_LEN));
	ASSERT_EQ(0, link_memory(&self->link, LEN, FOR_WINDOWS, &self->mem,
				 &self->mr));
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 256, 64, 0, -1));
	queues = queues_of(&self->ring);
	ASSERT_EQ(0, link_up(&self->link, &queues, false));
	self->to = self->link.endpoint;
}

FIXTURE_TEARDOWN(life)
{
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_FILE));
	mem_free(self->mem, LEN);
}

/* Receives, and sends that wait for the peer's receives */
static int post_on(int fd, __u32 to, __u32 mr)
{
	struct ib_memreg_wr wrs[RECVS + SENDS];
	unsigned int i;

	for (i = 0; i < RECVS; i++)
		wrs[i] = WR(RECV, to, SGE(mr, PAGE, 500), .user_data = i);
	for (; i < RECVS + SENDS; i++)
		wrs[i] = WR(SEND, to, SGE(mr, 8 * i, 8), .user_data = i,
			    .flags = i % 2 ? SIGNALED : 0);
	return raw_submit(fd, wrs, RECVS + SENDS);
}

static void post(struct __test_metadata *_metadata, FIXTURE_DATA(life) *self)
{
	ASSERT_EQ(0, post_on(self->link.fd, self->to, self->mr)) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
	EXPECT_EQ(RECVS + SENDS, state_users(self->mr));
}

/*
 * Each work request has an entry in the ring. Sends and receives may come in
 * any order, and the first send may have been carried out before the flush.
 */
static void all_flushed(struct __test_metadata *_metadata,
			FIXTURE_DATA(life) *self)
{
	unsigned int i, next, recvs = 0, sends = RECVS;
	union entry entry;

	for (i = 0; i < RECVS + SENDS; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry)) {
			TH_LOG("%u entries", i);
		}
		EXPECT_EQ(self->to, entry.cqe.endpoint_data);
		EXPECT_NE(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
		next = entry.cqe.opcode == OP(RECV) ? recvs++ : sends++;
		EXPECT_EQ(next, entry.cqe.user_data);
		EXPECT_TRUE(next == RECVS ||
			    entry.cqe.status == IB_MEMREG_WC_WR_FLUSH_ERR);
	}
	EXPECT_EQ(0, ring_count(&self->ring));
	EXPECT_EQ(0, state_users(self->mr));
}

TEST_F_TIMEOUT(life, I7_disconnect_flushes, LIMIT_S)
{
	post(_metadata, self);
	ASSERT_EQ(0, raw_disconnect(self->link.fd, self->to));
	all_flushed(_metadata, self);
	ASSERT_EQ(0, raw_await(self->link.fd, IB_MEMREG_EVENT_DISCONNECTED,
			       NULL));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->mr));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->to));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->ring.id));
}

/* When DESTROY returns, the entries of all flushed work requests are there. */
TEST_F_TIMEOUT(life, I7_destroy_flushes, LIMIT_S)
{
	post(_metadata, self);
	ASSERT_EQ(0, raw_destroy(self->link.fd, self->to));
	EXPECT_EQ(RECVS + SENDS, ring_count(&self->ring));
	all_flushed(_metadata, self);
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->ring.id));
}

TEST_F_TIMEOUT(life, I7_peers_disconnect_flushes, LIMIT_S)
{
	post(_metadata, self);
	rdma_disconnect(self->link.stock.id);
	all_flushed(_metadata, self);
	ASSERT_EQ(0, raw_await(self->link.fd, IB_MEMREG_EVENT_DISCONNECTED,
			       NULL));
}

/* Only what has not been done is flushed. */
TEST_F_TIMEOUT(life, I7_what_was_done_is_reported_before, LIMIT_S)
{
	unsigned int i, done = 0;
	union entry entry;

	post(_metadata, self);
	for (i = 0; i < 3; i++)
		ASSERT_EQ(IBV_WC_SUCCESS, stock_send(&self->link.stock, 0,
						     100));
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, stock_recv(&self->link.stock, 64 * i, 64));
	/* Of the four sends, two are signalled. */
	ASSERT_EQ(0, ring_wait(&self->ring, 5, LIMIT_MS * MS, NULL));
	ASSERT_EQ(0, raw_destroy(self->link.fd, self->to));
	EXPECT_EQ(RECVS + SENDS - 2, ring_count(&self->ring));
	while (ring_count(&self->ring)) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		done += entry.cqe.status == IB_MEMREG_WC_SUCCESS;
	}
	EXPECT_EQ(5, done);
	EXPECT_EQ(0, state_users(self->mr));
}

TEST_F_TIMEOUT(life, I7_close_leaves_nothing, LIMIT_S)
{
	post(_metadata, self);
	ASSERT_EQ(0, close(self->link.fd));
	self->link.fd = -1;
	EXPECT_EQ(STOCK_PINS, vm_pin(0));
	/* Entries can still be read after RING_WAIT fails. */
	EXPECT_GE(RECVS + SENDS, ring_count(&self->ring));
}

/* The same with the ring's descriptor and memory gone before the file */
TEST_F_TIMEOUT(life, I7_close_after_the_ring_leaves_nothing, LIMIT_S)
{
	post(_metadata, self);
	ring_unmap(&self->ring);
	ASSERT_EQ(0, close(self->link.fd));
	self->link.fd = -1;
	EXPECT_EQ(STOCK_PINS, vm_pin(0));
}

TEST_F_TIMEOUT(life, I7_shared_receives_leave_nothing, LIMIT_S)
{
	struct ib_memreg_queues queues = {};
	struct link link = self->link;
	struct ib_memreg_wr wrs[8];
	union entry entry;
	unsigned int i;

	ASSERT_EQ(0, raw_srq(link.fd, link.domain, self->ring.id, 16, 1, 0,
			     &queues.srq_id));
	for (i = 0; i < 8; i++)
		wrs[i] = WR(RECV, queues.srq_id, SGE(self->mr, 0, 100));
	ASSERT_EQ(0, raw_submit(link.fd, wrs, 8));
	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&link, &queues, true));
	for (i = 0; i < 3; i++)
		ASSERT_EQ(IBV_WC_SUCCESS, stock_send(&link.stock, 0, 40));
	stock_close(&link.stock);
	ASSERT_EQ(0, raw_destroy(link.fd, link.endpoint));
	EXPECT_EQ(5, state_users(self->mr));
	ASSERT_EQ(0, raw_destroy(link.fd, queues.srq_id));
	EXPECT_EQ(0, state_users(self->mr));
	EXPECT_EQ(8, ring_count(&self->ring));
	for (i = 0; i < 8; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		EXPECT_EQ(i < 3 ? IB_MEMREG_WC_SUCCESS :
				  IB_MEMREG_WC_WR_FLUSH_ERR, entry.cqe.status);
		EXPECT_EQ(i < 3 ? link.endpoint : 0, entry.cqe.endpoint_data);
	}
}

/*
 * Processes
 */

/*
 * Fork a process that makes a connection of its own, and wait until it has it.
 */
static pid_t child_with(struct __test_metadata *_metadata,
			void (*run)(struct __test_metadata *_metadata,
				    FIXTURE_DATA(life) *self),
			FIXTURE_DATA(life) *self)
{
	int fd[2];
	pid_t pid;
	char up;

	ASSERT_EQ(0, pipe2(fd, O_CLOEXEC));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(_metadata, self);
		if (!_metadata->exit_code)
			write(fd[1], "", 1);
		for (;;)
			pause();
	}
	close(fd[1]);
	ASSERT_EQ(1, read(fd[0], &up, 1));
	close(fd[0]);
	return pid;
}

static void kill_it(struct __test_metadata *_metadata, pid_t pid)
{
	int status;

	ASSERT_EQ(0, kill(pid, SIGKILL));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(SIGKILL, WTERMSIG(status));
}

static void own_all(struct __test_metadata *_metadata, FIXTURE_DATA(life) *self)
{
	struct ib_memreg_queues queues;
	struct ring ring;
	struct link link;
	__u32 mr;

	ASSERT_EQ(0, link_open(&link, STOCK_LEN));
	ASSERT_EQ(0, raw_register(link.fd, link.domain, self->mem, LEN,
				  LOCAL_WRITE | MW_BIND, &mr));
	ASSERT_EQ(0, ring_create(link.fd, &ring, 256, 64, 0, -1));
	queues = queues_of(&ring);
	ASSERT_EQ(0, link_up(&link, &queues, true));
	ASSERT_EQ(0, post_on(link.fd, link.endpoint, mr));
	EXPECT_EQ(LEN / PAGE + STOCK_PINS, vm_pin(0));
}

TEST_F_TIMEOUT(life, I7_killed_process_leaves_nothing, SOAK_S)
{
	unsigned int i, n = test_rounds(4);
	struct state before;
	pid_t pid;

	ASSERT_EQ(0, state_get(&before));
	for (i = 0; i < n; i++) {
		pid = child_with(_metadata, own_all, self);
		EXPECT_EQ(2, state_count(IB_MEMREG_OBJECT_FILE));
		kill_it(_metadata, pid);
		EXPECT_TRUE(state_same(&before));
	}
	state_free(&before);
}

static void be_the_peer(struct __test_metadata *_metadata,
			FIXTURE_DATA(life) *self)
{
	struct stock s;

	ASSERT_EQ(0, stock_open(&s, STOCK_LEN));
	ASSERT_EQ(0, stock_connect(&s, OWNER_IP4, self->link.port));
	ASSERT_EQ(0, stock_established(&s));
}

/* The parent accepts while the child connects: it gets no ESTABLISHED event. */
TEST_F_TIMEOUT(life, I7_killed_peer_flushes, LIMIT_S)
{
	struct ib_memreg_queues queues = queues_of(&self->ring);
	int fd = self->link.fd;
	pid_t pid;

	stock_disconnect(&self->link.stock);
	ASSERT_EQ(0, raw_await(fd, IB_MEMREG_EVENT_DISCONNECTED, NULL));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		be_the_peer(_metadata, self);
		for (;;)
			pause();
	}
	ASSERT_EQ(0, raw_await(fd, IB_MEMREG_EVENT_CONNECT_REQUEST,
			       &self->to));
	ASSERT_EQ(0, raw_setup(fd, self->to, self->link.domain, &queues));
	ASSERT_EQ(0, raw_accept(fd, self->to, self->link.domain));
	ASSERT_EQ(0, raw_await(fd, IB_MEMREG_EVENT_ESTABLISHED, NULL));
	post(_metadata, self);
	kill_it(_metadata, pid);
	ASSERT_EQ(0, raw_await(fd, IB_MEMREG_EVENT_DISCONNECTED, NULL));
	all_flushed(_metadata, self);
}

/*
 * The device
 */

TEST_F_TIMEOUT(life, I7_device_that_goes_leaves_nothing, LIMIT_S)
{
	struct ib_memreg_wr wr = WR(RECV, self->to, SGE(self->mr, 0, 8));
	struct pollfd pfd = { .fd = self->ring.fd, .events = POLLIN };

	post(_metadata, self);
	ASSERT_EQ(0, shell("rxe_down owner"));
	EXPECT_EQ(-ENODEV, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(1, poll(&pfd, 1, LIMIT_MS));
	EXPECT_EQ(POLLHUP | POLLERR, pfd.revents & (POLLHUP | POLLERR));
	EXPECT_EQ(-ENODEV, ring_wait(&self->ring, RECVS + SENDS + 1, 0, NULL));
	EXPECT_EQ(STOCK_PINS, vm_pin(0));
	EXPECT_GE(RECVS + SENDS, ring_count(&self->ring));
	link_close(&self->link);
	ASSERT_EQ(0, shell("topology_up"));
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
	/* Make the objects that the teardown destroys. */
	ASSERT_EQ(0, link_open(&self->link, STOCK_LEN));
}

/*
 * Many
 */

FIXTURE(many)
{
	int fd, peer;
	__u32 domain, peer_domain;
	__be16 port;
	struct ring ring, peer_ring;
	__u8 *mem;
	__u32 mr, peer_mr;
	unsigned int count;
	__u32 *ends, *peer_ends;
};

#define MOST	1000

FIXTURE_SETUP(many)
{
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
	self->fd = raw_open_bound();
	self->peer = raw_open_peer();
	ASSERT_TRUE(self->fd >= 0 && self->peer >= 0);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, raw_domain(self->peer, &self->peer_domain));
	ASSERT_EQ(0, raw_listen(self->fd, &self->port));
	self->mem = mem_alloc(LEN);
	ASSERT_NE(NULL, self->mem);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->mem, LEN,
				  LOCAL_WRITE, &self->mr));
	ASSERT_EQ(0, raw_register(self->peer, self->peer_domain, self->mem,
				  LEN, LOCAL_WRITE, &self->peer_mr));
	ASSERT_EQ(0, ring_create(self->fd, &self->ring, 8 * MOST, 64, 0, -1));
	ASSERT_EQ(0, ring_create(self->peer, &self->peer_ring, 8 * MOST, 64, 0,
				 -1));
	self->ends = calloc(MOST, sizeof(__u32));
	self->peer_ends = calloc(MOST, sizeof(__u32));
	ASSERT_TRUE(self->ends && self->peer_ends);
}

FIXTURE_TEARDOWN(many)
{
	EXPECT_EQ(0, close(self->peer));
	EXPECT_EQ(0, close(self->fd));
	ring_unmap(&self->ring);
	ring_unmap(&self->peer_ring);
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_FILE));
	mem_free(self->mem, LEN);
	free(self->ends);
	free(self->peer_ends);
}

static struct ib_memreg_queues small_queues(const struct ring *ring)
{
	return (struct ib_memreg_queues) {
		.send_ring_id = ring->id,
		.recv_ring_id = ring->id,
		.max_send = 4,
		.max_recv = 4,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
}

/* Offset of an end's receive, which is longer than its peer's 8 bytes */
#define RECV_AT(i)	(32 * (i))
#define SEND_AT(i)	(LEN / 2 + 8 * (i))

static int receive_one(FIXTURE_DATA(many) *self, unsigned int i)
{
	struct ib_memreg_wr wr = WR(RECV, self->ends[i],
				    SGE(self->mr, RECV_AT(i), 32),
				    .user_data = i);

	return raw_submit(self->fd, &wr, 1);
}

/* Both ends of a connection, with a receive in place */
static void connect_one(struct __test_metadata *_metadata,
			FIXTURE_DATA(many) *self, unsigned int i)
{
	struct ib_memreg_queues theirs = small_queues(&self->peer_ring);
	struct ib_memreg_queues queues = small_queues(&self->ring);

	ASSERT_EQ(0, raw_connect(self->peer, self->peer_domain, OWNER_IP4,
				 self->port, &theirs, &self->peer_ends[i])) {
		TH_LOG("connection %u", i);
	}
	ASSERT_EQ(0, raw_await(self->fd, IB_MEMREG_EVENT_CONNECT_REQUEST,
			       &self->ends[i]));
	ASSERT_EQ(0, raw_setup(self->fd, self->ends[i], self->domain,
			       &queues)) {
		TH_LOG("connection %u, reason %u", i, raw_reason());
	}
	ASSERT_EQ(0, receive_one(self, i));
	ASSERT_EQ(0, raw_accept(self->fd, self->ends[i], self->domain));
	ASSERT_EQ(0, raw_await(self->fd, IB_MEMREG_EVENT_ESTABLISHED, NULL));
	ASSERT_EQ(0, raw_await(self->peer, IB_MEMREG_EVENT_ESTABLISHED, NULL));
}

/* The peer of every fourth end sends the number of the end. */
static void send_numbers(struct __test_metadata *_metadata,
			 FIXTURE_DATA(many) *self, unsigned int n)
{
	struct ib_memreg_wr wr;
	unsigned int i;
	__u64 number;

	for (i = 0; i < n; i += 4) {
		number = i + 1;
		memcpy(self->mem + SEND_AT(i), &number, sizeof(number));
		wr = WR(SEND, self->peer_ends[i],
			SGE(self->peer_mr, SEND_AT(i), sizeof(number)),
			.flags = SIGNALED, .user_data = i);
		ASSERT_EQ(0, raw_submit(self->peer, &wr, 1));
	}
}

/* The next entry of a ring is of one of them, and of success. */
static void one_done(struct __test_metadata *_metadata, struct ring *ring,
		     const __u32 *ends, unsigned int n, union entry *entry)
{
	ASSERT_EQ(0, ring_next(ring, entry));
	ASSERT_GT(n, entry->cqe.user_data);
	EXPECT_EQ(0, entry->cqe.user_data % 4);
	EXPECT_EQ(ends[entry->cqe.user_data], entry->cqe.endpoint_data);
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry->cqe.status);
}

/*
 * Each number arrives once, and its entry names the right end. Post another
 * receive there.
 */
static void numbers_arrive(struct __test_metadata *_metadata,
			   FIXTURE_DATA(many) *self, unsigned int n)
{
	union entry entry;
	unsigned int i, at;
	__u64 number;

	for (i = 0; i < n; i += 4) {
		one_done(_metadata, &self->ring, self->ends, n, &entry);
		EXPECT_EQ(sizeof(number), entry.cqe.byte_len);
		at = entry.cqe.user_data;
		EXPECT_EQ(IB_MEMREG_CQE_INLINE, entry.cqe.flags);
		memcpy(&number, entry.cqe.data, sizeof(number));
		EXPECT_EQ(at + 1, number);
		ASSERT_EQ(0, receive_one(self, at));
		one_done(_metadata, &self->peer_ring, self->peer_ends, n,
			 &entry);
	}
	EXPECT_EQ(0, ring_count(&self->ring));
	EXPECT_EQ(0, ring_count(&self->peer_ring));
}

/*
 * All endpoints on one ring can have work posted at a time, and each message
 * has its entry.
 */
TEST_F_TIMEOUT(many, many_endpoints_share_a_ring, SOAK_S)
{
	unsigned int i, n = debug_kernel() ? 40 : 150;
	union entry entry;
	__u8 *seen;

	/* Each part of a soak uses the full number of endpoints. */
	if (test_full())
		n = MOST;
	seen = calloc(n, 1);
	ASSERT_NE(NULL, seen);
	for (i = 0; i < n; i++)
		connect_one(_metadata, self, i);
	EXPECT_EQ(n, state_users(self->mr));
	EXPECT_EQ(0, ring_count(&self->ring));
	for (i = 0; i < 2; i++) {
		send_numbers(_metadata, self, n);
		numbers_arrive(_metadata, self, n);
		EXPECT_EQ(n, state_users(self->mr));
	}
	/* Every other one ends by its peer, the rest by us. */
	for (i = 0; i < n; i += 2)
		ASSERT_EQ(0, raw_destroy(self->peer, self->peer_ends[i]));
	for (i = 1; i < n; i += 2)
		ASSERT_EQ(0, raw_destroy(self->fd, self->ends[i]));
	for (i = 0; i < n; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		ASSERT_GT(n, entry.cqe.user_data);
		EXPECT_EQ(self->ends[entry.cqe.user_data],
			  entry.cqe.endpoint_data);
		EXPECT_EQ(IB_MEMREG_WC_WR_FLUSH_ERR, entry.cqe.status);
		EXPECT_EQ(0, seen[entry.cqe.user_data]++);
	}
	EXPECT_EQ(0, ring_count(&self->ring));
	free(seen);
}

/*
 * A storm: connections come and go, with work posted at either end. Some of it
 * is being executed when the connection ends. This many connections are in
 * progress at a time.
 */

#define FLIGHT	16

/* Connections of a wave: after each wave no object may be left. */
#define WAVE	100

enum side {
	OWNER,
	PEER,
};

/**
 * struct pair - A connection of the storm
 * @ends: Ids of the endpoints at both ends, 0 if there is none
 * @number: Number of the connection in the storm
 */
struct pair {
	__u32 ends[2];
	unsigned int number;
};

/**
 * struct storm - Connections in progress
 * @self: Fixture, with the files of both sides
 * @fds: Descriptors of the two sides
 * @pairs: The connections
 * @next: Number of the next connection
 * @last: Number of the first connection behind this wave
 * @ended: Number of connections that have ended
 * @established: Number of connections that were established
 */
struct storm {
	FIXTURE_DATA(many) *self;
	int fds[2];
	struct pair pairs[FLIGHT];
	unsigned int next;
	unsigned int last;
	unsigned int ended;
	unsigned int established;
};

static bool is_given_up(const struct pair *pair)
{
	return pair->number % 4 == 3;
}

/*
 * Connect. The private data has the index of the pair, and its number in the
 * storm.
 */
static void pair_begin(struct __test_metadata *_metadata, struct storm *storm,
		       struct pair *pair)
{
	FIXTURE_DATA(many) *self = storm->self;
	__u8 place = pair - storm->pairs;
	RAW(endpoint_connect, cmd, .domain_id = self->peer_domain,
	    .timeout_ms = 20000,
	    .addr = { .family = AF_INET, .port = self->port },
	    .private_data_len = 1, .private_data = (uintptr_t)&place,
	    .queues = small_queues(&self->peer_ring));
	struct ib_memreg_wr recv;

	if (storm->next == storm->last)
		return;
	pair->number = storm->next++;
	inet_pton(AF_INET, OWNER_IP4, cmd.addr.ip);
	ASSERT_EQ(0, raw_call(self->peer, IB_MEMREG_IOC_ENDPOINT_CONNECT, &cmd))
	{
		TH_LOG("connection %u", pair->number);
	}
	pair->ends[PEER] = cmd.out_endpoint_id;
	recv = WR(RECV, pair->ends[PEER], SGE(self->peer_mr, 0, 100));
	ASSERT_EQ(0, raw_submit(self->peer, &recv, 1));
}

/*
 * Destroy one end. When both are gone, begin another connection in their place.
 */
static void pair_drop(struct __test_metadata *_metadata, struct storm *storm,
		      struct pair *pair, enum side side)
{
	ASSERT_EQ(0, raw_destroy(storm->fds[side], pair->ends[side]));
	pair->ends[side] = 0;
	if (pair->ends[!side])
		return;
	storm->ended++;
	pair_begin(_metadata, storm, pair);
}

/* Either side ends it, and the other gets an event, or ends its own at once. */
static void pair_end(struct __test_metadata *_metadata, struct storm *storm,
		     struct pair *pair)
{
	enum side side = pair->number / 4 % 2 ? OWNER : PEER;

	switch (pair->number % 4) {
	case 0:
		pair_drop(_metadata, storm, pair, side);
		break;
	case 1:
		ASSERT_EQ(0, raw_disconnect(storm->fds[side],
					    pair->ends[side]));
		break;
	default:
		pair_drop(_metadata, storm, pair, side);
		pair_drop(_metadata, storm, pair, !side);
	}
}

/* Answer a request, after giving it queues and a receive. */
static void pair_answer(struct __test_metadata *_metadata, struct storm *storm,
			struct pair *pair)
{
	FIXTURE_DATA(many) *self = storm->self;
	struct ib_memreg_queues queues = small_queues(&self->ring);
	__u32 end = pair->ends[OWNER];
	struct ib_memreg_wr recv = WR(RECV, end, SGE(self->mr, 200, 100));

	ASSERT_EQ(0, raw_setup(self->fd, end, self->domain, &queues));
	ASSERT_EQ(0, raw_submit(self->fd, &recv, 1));
	if (is_given_up(pair))
		pair_end(_metadata, storm, pair);
	else
		ASSERT_EQ(0, raw_accept(self->fd, end, self->domain));
}

/* Use a connection: the second of two messages finds no receive, and fails. */
static void pair_use(struct __test_metadata *_metadata, struct storm *storm,
		     struct pair *pair)
{
	FIXTURE_DATA(many) *self = storm->self;
	__u32 end = pair->ends[PEER];
	struct ib_memreg_wr wrs[] = {
		WR(RECV, end, SGE(self->peer_mr, 400, 100)),
		WR(SEND, end, SGE(self->peer_mr, 300, 100)),
		WR(SEND, end, SGE(self->peer_mr, 300, 100)),
	};

	ASSERT_EQ(0, raw_submit(self->peer, wrs, 3));
	storm->established++;
	pair_end(_metadata, storm, pair);
}

static struct pair *pair_find(struct storm *storm, enum side side, __u32 end)
{
	unsigned int i;

	for (i = 0; i < FLIGHT; i++)
		if (storm->pairs[i].ends[side] == end)
			return &storm->pairs[i];
	return NULL;
}

/*
 * Handle an event of one side; there is none of an endpoint that was destroyed.
 */
static void storm_event(struct __test_metadata *_metadata, struct storm *storm,
			enum side side)
{
	struct ib_memreg_event event;
	struct pair *pair;

	ASSERT_EQ(sizeof(event), read(storm->fds[side], &event,
				      sizeof(event)));
	if (event.type == IB_MEMREG_EVENT_CONNECT_REQUEST) {
		ASSERT_GT(FLIGHT, event.private_data[0]);
		pair = &storm->pairs[event.private_data[0]];
		ASSERT_EQ(0, pair->ends[OWNER]);
		pair->ends[OWNER] = event.endpoint_id;
		pair_answer(_metadata, storm, pair);
		return;
	}
	pair = pair_find(storm, side, event.endpoint_id);
	ASSERT_NE(NULL, pair) {
		TH_LOG("event %u, endpoint %u", event.type, event.endpoint_id);
	}
	if (event.type == IB_MEMREG_EVENT_DISCONNECTED) {
		pair_drop(_metadata, storm, pair, side);
		return;
	}
	ASSERT_EQ(IB_MEMREG_EVENT_ESTABLISHED, event.type) {
		TH_LOG("connection %u, side %u, status %d", pair->number, side,
		       event.status);
	}
	if (side == PEER)
		pair_use(_metadata, storm, pair);
}

/* Make and end a wave of connections. */
static void storm_wave(struct __test_metadata *_metadata, struct storm *storm,
		       unsigned int count)
{
	struct pollfd pfds[] = {
		{ .fd = storm->fds[OWNER], .events = POLLIN },
		{ .fd = storm->fds[PEER], .events = POLLIN },
	};
	unsigned int i;

	storm->last += count;
	for (i = 0; i < FLIGHT; i++)
		pair_begin(_metadata, storm, &storm->pairs[i]);
	while (storm->ended != storm->last) {
		ASSERT_LT(0, poll(pfds, ARRAY_LEN(pfds), LIMIT_MS)) {
			TH_LOG("%u of %u connections", storm->ended,
			       storm->last);
		}
		/*
		 * poll(2) anew: handling an event of one side may have removed
		 * an event of the other.
		 */
		for (i = 0; i < ARRAY_LEN(pfds); i++)
			if (poll(&pfds[i], 1, 0) == 1)
				storm_event(_metadata, storm, i);
		/*
		 * Consume all entries. Which of the work succeeded is a race.
		 */
		ring_done(&storm->self->ring, ring_count(&storm->self->ring));
		ring_done(&storm->self->peer_ring,
			  ring_count(&storm->self->peer_ring));
	}
}

/* Of many connections most are established, and some are rejected. */
TEST_F_TIMEOUT(many, I7_storm_of_connections_leaves_nothing, SOAK_S)
{
	unsigned int i, n = times(debug_kernel() ? 25 : 100, 10000);
	struct storm storm = {
		.self = self,
		.fds = { self->fd, self->peer },
	};
	struct state before;

	ASSERT_EQ(0, state_get(&before));
	for (i = 0; i < n; i += WAVE) {
		unsigned int up = n - i < WAVE ? n - i : WAVE;

		/*
		 * Every fourth connection is rejected, so try 4/3 as many: 100
		 * of 133 or 134.
		 */
		storm_wave(_metadata, &storm,
			   (i + up) * 4 / 3 - i * 4 / 3);
		ASSERT_EQ(0, state_users(self->mr));
		ASSERT_EQ(0, state_users(self->peer_mr));
		ASSERT_TRUE(state_same(&before));
	}
	EXPECT_EQ(n, storm.established);
	EXPECT_EQ(n * 4 / 3, storm.ended);
	state_free(&before);
}

TEST_HARNESS_MAIN
