// SPDX-License-Identifier: GPL-2.0-only
/*
 * A crowd of peers at one process, and what it does to another process: the
 * ends of others' connections don't wait for it, what waits at listeners is
 * charged to whoever made them, and there is a limit to it.
 *
 * The crowd is of librdmacm alone, in a process in the peer's network namespace,
 * and its owner is another process. The test is their neighbour.
 *
 * time limit: 400
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "peer.h"
#include "data.h"

/* Connections of the neighbour, which end one after the other. */
#define LINKS		5
/* What that may take beside a crowd, as a multiple of what it takes without */
#define TIMES		5
#define SHORT		8
#define LONG		64
#define CGROUP		"/sys/fs/cgroup/crowd"

/* A process that is told when to go on, and tells how far it has come */
struct child {
	pid_t pid;
	int to;
	int from;
};

static void child_tell(int fd, unsigned int what)
{
	if (write(fd, &what, sizeof(what)) != sizeof(what))
		_exit(1);
}

static unsigned int child_hear(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	unsigned int what;

	if (poll(&pfd, 1, 4 * WAIT_MS) != 1 ||
	    read(fd, &what, sizeof(what)) != sizeof(what))
		return ~0U;
	return what;
}

static void child_start(struct __test_metadata *_metadata, struct child *c,
			void (*run)(int in, int out, unsigned int arg),
			unsigned int arg)
{
	const struct rlimit files = { 1 << 15, 1 << 15 };
	int to[2], from[2];

	ASSERT_EQ(0, pipe2(to, O_CLOEXEC));
	ASSERT_EQ(0, pipe2(from, O_CLOEXEC));
	c->pid = fork();
	ASSERT_LE(0, c->pid);
	if (!c->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setrlimit(RLIMIT_NOFILE, &files);
		run(to[0], from[1], arg);
		_exit(1);
	}
	close(to[0]);
	close(from[1]);
	c->to = to[1];
	c->from = from[0];
}

/* How it ended, as wait(2) has it; ~0 if it has not */
static unsigned int child_status(struct child *c)
{
	int status;

	if (waitpid(c->pid, &status, WNOHANG) != c->pid)
		return ~0U;
	c->pid = 0;
	return (unsigned int)status;
}

static void child_end(struct child *c)
{
	if (c->pid <= 0)
		return;
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->to);
	close(c->from);
	c->pid = 0;
}

/*
 * The crowd's owner: each connection has a receive that is too short
 */

static int owner_accepts(int fd, __u32 domain, __u32 mr,
			 const struct ib_memreg_queues *queues, __u32 endpoint)
{
	struct ib_memreg_wr recv = WR(RECV, endpoint, SGE(mr, 0, SHORT));

	return raw_setup(fd, endpoint, domain, queues) ?:
	       raw_submit(fd, &recv, 1) ?: raw_accept(fd, endpoint, domain);
}

static void run_owner(int in, int out, unsigned int entries)
{
	struct ib_memreg_queues queues = { .max_recv = 1, .max_recv_sge = 1 };
	struct ib_memreg_event event;
	struct ring ring;
	__u32 domain, mr;
	__be16 port;
	void *mem = mem_alloc(PAGE);
	int fd = raw_open_bound();

	(void)in;
	if (raw_domain(fd, &domain) || raw_listen(fd, &port) ||
	    raw_register(fd, domain, mem, PAGE, LOCAL_WRITE, &mr) ||
	    ring_create(fd, &ring, entries, 64, 0, -1))
		_exit(1);
	queues.recv_ring_id = ring.id;
	child_tell(out, port);
	while (read(fd, &event, sizeof(event)) == sizeof(event))
		if (event.type == IB_MEMREG_EVENT_CONNECT_REQUEST &&
		    owner_accepts(fd, domain, mr, &queues, event.endpoint_id))
			_exit(1);
}

/*
 * The crowd: each sends one message, which is too long, and never leaves
 */

static struct sockaddr *owner_address(struct sockaddr_in *in, __be16 port)
{
	*in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = port };
	inet_pton(AF_INET, OWNER_IP, &in->sin_addr);
	return (struct sockaddr *)in;
}

/* Without an event channel each call waits until it is through. */
static struct rdma_cm_id *crowd_resolve(__be16 port)
{
	struct rdma_cm_id *id = NULL;
	struct sockaddr_in in;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, owner_address(&in, port), 20000) ||
	    rdma_resolve_route(id, 20000))
		_exit(2);
	return id;
}

static void crowd_connect(struct rdma_cm_id *id, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct rdma_conn_param param = { .retry_count = 7 };

	if (rdma_create_qp(id, NULL, &attr) || rdma_connect(id, &param))
		_exit(3);
}

static void crowd_send(struct rdma_cm_id *id, const struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, LONG, mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
	};

	if (ibv_post_send(id->qp, &wr, &bad))
		_exit(4);
}

/* All of them have been refused. */
static void crowd_await(struct ibv_cq *cq, unsigned int n)
{
	struct ibv_wc wc;
	int got;

	while (n) {
		got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0 || (got && wc.status != IBV_WC_REM_INV_REQ_ERR))
			_exit(5);
		n -= got;
		if (!got)
			usleep(1000);
	}
}

static void run_crowd(int in, int out, unsigned int n)
{
	struct rdma_cm_id **ids = calloc(n, sizeof(*ids));
	__be16 port = (__be16)child_hear(in);
	struct ibv_cq *cq = NULL;
	struct ibv_mr *mr = NULL;
	unsigned int i;

	if (enter_namespace("memreg-peer"))
		_exit(6);
	for (i = 0; i < n; i++) {
		ids[i] = crowd_resolve(port);
		if (!cq)
			cq = ibv_create_cq(ids[i]->verbs, (int)n, NULL, NULL,
					   0);
		if (!cq)
			_exit(7);
		crowd_connect(ids[i], cq);
		if (!mr)
			mr = ibv_reg_mr(ids[i]->qp->pd, mem_alloc(PAGE), PAGE,
					0);
		if (!mr)
			_exit(8);
	}
	child_tell(out, n);
	child_hear(in);
	for (i = 0; i < n; i++)
		crowd_send(ids[i], mr);
	crowd_await(cq, n);
	child_tell(out, n);
	child_hear(in);
}

/*
 * The neighbour
 */

FIXTURE(crowd)
{
	struct child owner;
	struct child peers;
	struct link links[LINKS];
	struct ring rings[LINKS];
};

FIXTURE_SETUP(crowd)
{
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
}

FIXTURE_TEARDOWN(crowd)
{
	child_end(&self->peers);
	child_end(&self->owner);
}

static void links_up(struct __test_metadata *_metadata,
		     FIXTURE_DATA(crowd) *self)
{
	struct ib_memreg_queues queues = {
		.max_send = 8, .max_recv = 8,
		.max_send_sge = 1, .max_recv_sge = 1,
	};
	unsigned int i;

	for (i = 0; i < LINKS; i++) {
		queues.send_ring_id = self->rings[i].id;
		queues.recv_ring_id = self->rings[i].id;
		ASSERT_EQ(0, link_up(&self->links[i], &queues, false));
	}
}

static int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* How long it takes to end all of them: microseconds */
static int64_t links_down(struct __test_metadata *_metadata,
			  FIXTURE_DATA(crowd) *self)
{
	int64_t begun = now_us(), took;
	unsigned int i;

	for (i = 0; i < LINKS; i++)
		ASSERT_EQ(0, raw_disconnect(self->links[i].fd,
					    self->links[i].endpoint));
	took = now_us() - begun;
	for (i = 0; i < LINKS; i++)
		stock_disconnect(&self->links[i].stock);
	return took;
}

static void crowd_gather(struct __test_metadata *_metadata,
			 FIXTURE_DATA(crowd) *self, unsigned int n)
{
	unsigned int port;

	child_start(_metadata, &self->owner, run_owner, 8192);
	port = child_hear(self->owner.from);
	ASSERT_NE(~0U, port);
	child_start(_metadata, &self->peers, run_crowd, n);
	child_tell(self->peers.to, port);
	ASSERT_EQ(n, child_hear(self->peers.from)) {
		TH_LOG("the owner ended with %#x, the crowd with %#x",
		       child_status(&self->owner), child_status(&self->peers));
	}
}

/* At full counts more of them than a workqueue runs at a time */
TEST_F_TIMEOUT(crowd, disconnect_does_not_wait_for_ill_behaved_peers, SOAK_S)
{
	unsigned int i, n = test_full() ? 3000 : debug_kernel() ? 100 : 300;
	int64_t alone, beside;

	for (i = 0; i < LINKS; i++) {
		ASSERT_EQ(0, link_open(&self->links[i], PAGE));
		ASSERT_EQ(0, ring_create(self->links[i].fd, &self->rings[i],
					 16, 64, 0, -1));
	}
	crowd_gather(_metadata, self, n);
	links_up(_metadata, self);
	alone = links_down(_metadata, self);
	links_up(_metadata, self);
	child_tell(self->peers.to, 0);
	ASSERT_EQ(n, child_hear(self->peers.from));
	beside = links_down(_metadata, self);
	TH_LOG("%u disconnects took %lld us, beside %u peers %lld us", LINKS,
	       (long long)alone, n, (long long)beside);
	EXPECT_GE(TIMES * alone, beside);
	for (i = 0; i < LINKS; i++) {
		link_close(&self->links[i]);
		ring_unmap(&self->rings[i]);
	}
}

/*
 * Charges and limits
 */

#define REQUESTS	300
/* Of our own for each request, at the least: private data, address, lists */
#define REQUEST_BYTES	512

/* A crowd that asks, and is not answered; it needs no queue pairs for that. */
static void run_askers(int in, int out, unsigned int n)
{
	struct rdma_conn_param param = { .retry_count = 7 };
	__be16 port = (__be16)child_hear(in);
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	unsigned int i;

	events = rdma_create_event_channel();
	if (!events || enter_namespace("memreg-peer"))
		_exit(6);
	for (i = 0; i < n; i++) {
		id = crowd_resolve(port);
		/* One that the CM has seen would be stale. */
		param.qp_num = 0x10000 + i;
		/* From here on nothing waits. */
		if (rdma_migrate_id(id, events) || rdma_connect(id, &param))
			_exit(8);
	}
	child_tell(out, n);
	child_hear(in);
}

static void run_listener(int in, int out, unsigned int unused)
{
	int fd = raw_open_bound();
	__be16 port;

	(void)unused;
	if (file_write(CGROUP "/cgroup.procs", "0") || raw_listen(fd, &port))
		_exit(1);
	child_tell(out, port);
	child_hear(in);
}

static long charged(void)
{
	return file_number(CGROUP "/memory.current");
}

TEST_F_TIMEOUT(crowd, requests_are_charged_to_the_maker_of_the_listener,
	       LIMIT_S)
{
	int64_t end = now_ms() + WAIT_MS;
	unsigned int port;
	long before;

	if (file_write("/sys/fs/cgroup/cgroup.subtree_control", "+memory") ||
	    (mkdir(CGROUP, 0755) && errno != EEXIST))
		SKIP(return, "no memory cgroup");
	child_start(_metadata, &self->owner, run_listener, 0);
	port = child_hear(self->owner.from);
	ASSERT_NE(~0U, port);
	before = charged();
	child_start(_metadata, &self->peers, run_askers, REQUESTS);
	child_tell(self->peers.to, port);
	ASSERT_EQ(REQUESTS, child_hear(self->peers.from));
	while (state_count(IB_MEMREG_OBJECT_ENDPOINT) < REQUESTS &&
	       now_ms() < end)
		usleep(10000);
	ASSERT_EQ(REQUESTS, state_count(IB_MEMREG_OBJECT_ENDPOINT));
	TH_LOG("%ld bytes are charged, with %u requests %ld", before, REQUESTS,
	       charged());
	EXPECT_LE(before + REQUESTS * REQUEST_BYTES, charged());
}

TEST_F_TIMEOUT(crowd, I8_listeners_of_a_file_have_a_limit, LIMIT_S)
{
	int fd = raw_open_bound();
	unsigned int i;
	__be16 port;

	ASSERT_LE(0, fd);
	for (i = 0; i < IB_MEMREG_LISTENERS_MAX; i++)
		ASSERT_EQ(0, raw_listen(fd, &port));
	EXPECT_FAIL(ENOSPC, COUNT, raw_listen(fd, &port));
	EXPECT_EQ(IB_MEMREG_LISTENERS_MAX,
		  state_count(IB_MEMREG_OBJECT_LISTENER));
	EXPECT_EQ(0, close(fd));
}

PEER_HARNESS_MAIN
