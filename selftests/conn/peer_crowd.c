// SPDX-License-Identifier: GPL-2.0-only
/*
 * Crowds of peers, and their effect on other users: the ends of a neighbour's
 * connections do not wait for peers that break the rules, requests that wait at
 * a listener are charged to the process that made the listener, and there is a
 * limit to listeners.
 *
 * A crowd is of librdmacm and libibverbs alone, in a process in the peer's
 * network namespace, and the other end of it is in another process.
 *
 * time limit: 400
 * beside others: no
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "net.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define CGROUP		"/sys/fs/cgroup/crowd"

/*
 * A process that reads orders from its parent by a pipe, and reports by another
 */
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
	/* A crowd of full size takes long to gather. */
	int limit = (test_full() ? 20 : 4) * LIMIT_MS;
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	unsigned int what;

	if (poll(&pfd, 1, limit) != 1 ||
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

static struct sockaddr *owner_address(struct sockaddr_in *in, __be16 port)
{
	*in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = port };
	inet_pton(AF_INET, OWNER_IP4, &in->sin_addr);
	return (struct sockaddr *)in;
}

/*
 * Resolve the address and the route. Without an event channel these calls are
 * synchronous.
 */
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

/*
 * Peers that break the rules: each sends one message, which is too long, and
 * never leaves
 */

/* Processes of peers; each has an owner process of its own to connect to */
#define CROWDS		4
/* Connections of the neighbour, which end one after the other */
#define LINKS		9
/* Allowed time beside the crowds, as a multiple of the time without them */
#define TIMES		5
#define SHORT		8
#define LONG		64

static int owner_accepts(int fd, __u32 domain, __u32 mr,
			 const struct ib_memreg_queues *queues, __u32 endpoint)
{
	struct ib_memreg_wr recv = WR(RECV, endpoint, SGE(mr, 0, SHORT));

	return raw_setup(fd, endpoint, domain, queues) ?:
	       raw_submit(fd, &recv, 1) ?: raw_accept(fd, endpoint, domain);
}

/*
 * Accept connections. Each gets one receive, which is too short for the peer's
 * message.
 */
static void run_owner(int in, int out, unsigned int entries)
{
	struct ib_memreg_queues queues = { .max_recv = 1, .max_recv_sge = 1 };
	void *mem = mem_alloc(PAGE);
	struct ib_memreg_event event;
	int fd = raw_open_bound();
	__u32 domain, mr;
	struct ring ring;
	__be16 port;

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

/* In the peer's network namespace: a call failed, which says why. */
static void crowd_die(const char *call, unsigned int i)
{
	fprintf(stderr, "# %s of peer %u: %s\n", call, i, strerror(errno));
	_exit(2);
}

static void crowd_connect(struct rdma_cm_id *id, struct ibv_cq *cq,
			  unsigned int i)
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

	if (rdma_create_qp(id, NULL, &attr))
		crowd_die("rdma_create_qp", i);
	if (rdma_connect(id, &param))
		crowd_die("rdma_connect", i);
}

static void crowd_send(struct rdma_cm_id *id, const struct ibv_mr *mr,
		       unsigned int i)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, LONG, mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
	};

	errno = ibv_post_send(id->qp, &wr, &bad);
	if (errno)
		crowd_die("ibv_post_send", i);
}

/* All of them have been refused. */
static void crowd_await(struct ibv_cq *cq, unsigned int n)
{
	struct ibv_wc wc;
	int got;

	while (n) {
		got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0)
			crowd_die("ibv_poll_cq", n);
		if (got && wc.status != IBV_WC_REM_INV_REQ_ERR &&
		    wc.status != IBV_WC_REM_OP_ERR)
			crowd_die(ibv_wc_status_str(wc.status), n);
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
		crowd_die("setns", 0);
	for (i = 0; i < n; i++) {
		ids[i] = crowd_resolve(port);
		if (!cq)
			cq = ibv_create_cq(ids[i]->verbs, (int)n, NULL, NULL,
					   0);
		if (!cq)
			crowd_die("ibv_create_cq", i);
		crowd_connect(ids[i], cq, i);
		if (!mr)
			mr = ibv_reg_mr(ids[i]->qp->pd, mem_alloc(PAGE), PAGE,
					0);
		if (!mr)
			crowd_die("ibv_reg_mr", i);
	}
	child_tell(out, n);
	child_hear(in);
	for (i = 0; i < n; i++)
		crowd_send(ids[i], mr, i);
	crowd_await(cq, n);
	child_tell(out, n);
	child_hear(in);
}

FIXTURE(crowd)
{
	struct child owners[CROWDS];
	struct child peers[CROWDS];
	struct link links[LINKS];
	struct ring rings[LINKS];
};

FIXTURE_SETUP(crowd)
{
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
}

FIXTURE_TEARDOWN(crowd)
{
	unsigned int i;

	for (i = 0; i < CROWDS; i++) {
		child_end(&self->peers[i]);
		child_end(&self->owners[i]);
	}
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

static int compare(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Median of the times that the links take to disconnect, in microseconds */
static int64_t links_down(struct __test_metadata *_metadata,
			  FIXTURE_DATA(crowd) *self)
{
	int64_t took[LINKS];
	unsigned int i;

	for (i = 0; i < LINKS; i++) {
		took[i] = now_us();
		ASSERT_EQ(0, raw_disconnect(self->links[i].fd,
					    self->links[i].endpoint));
		ASSERT_EQ(0, raw_await(self->links[i].fd,
				       IB_MEMREG_EVENT_DISCONNECTED, NULL));
		took[i] = now_us() - took[i];
	}
	for (i = 0; i < LINKS; i++)
		stock_disconnect(&self->links[i].stock);
	qsort(took, LINKS, sizeof(took[0]), compare);
	return took[LINKS / 2];
}

static void crowds_tell(FIXTURE_DATA(crowd) *self, unsigned int what)
{
	unsigned int i;

	for (i = 0; i < CROWDS; i++)
		child_tell(self->peers[i].to, what);
}

static void crowds_await(struct __test_metadata *_metadata,
			 FIXTURE_DATA(crowd) *self, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < CROWDS; i++)
		ASSERT_EQ(n, child_hear(self->peers[i].from));
}

static void crowds_gather(struct __test_metadata *_metadata,
			  FIXTURE_DATA(crowd) *self, unsigned int n)
{
	unsigned int i, port;

	for (i = 0; i < CROWDS; i++) {
		child_start(_metadata, &self->owners[i], run_owner, 2 * n);
		port = child_hear(self->owners[i].from);
		ASSERT_NE(~0U, port);
		child_start(_metadata, &self->peers[i], run_crowd, n);
		child_tell(self->peers[i].to, port);
	}
	crowds_await(_metadata, self, n);
}

/*
 * There are more peers than a workqueue runs work items at a time. The
 * neighbour's links are disconnected when the peers' messages were all refused,
 * while the owner's side still waits for each peer to see that.
 */
TEST_F_TIMEOUT(crowd, disconnect_does_not_wait_for_ill_behaved_peers, SOAK_S)
{
	unsigned int i, n = (debug_kernel() ? 200 : times(1500, 3000)) / CROWDS;
	int64_t alone, beside;

	/*
	 * The crowds are forked before the links are opened, as no process may
	 * write to a device that its parent opened.
	 */
	crowds_gather(_metadata, self, n);
	for (i = 0; i < LINKS; i++) {
		ASSERT_EQ(0, link_open(&self->links[i], PAGE));
		ASSERT_EQ(0, ring_create(self->links[i].fd, &self->rings[i],
					 16, 64, 0, -1));
	}
	links_up(_metadata, self);
	alone = links_down(_metadata, self);
	links_up(_metadata, self);
	crowds_tell(self, 0);
	crowds_await(_metadata, self, n);
	beside = links_down(_metadata, self);
	TH_LOG("a disconnect took %lld us, beside %u peers %lld us",
	       (long long)alone, CROWDS * n, (long long)beside);
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
/* Least memory of this module for each request: private data, address, lists */
#define REQUEST_BYTES	512

/* Request connections that nobody answers. They need no QPs. */
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
		/*
		 * The CM would take a number that it has seen for a stale
		 * connection.
		 */
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
	int64_t end = now_ms() + LIMIT_MS;
	unsigned int port;
	long before;

	if (!cgroup_make(CGROUP, "+memory"))
		SKIP(return, "no memory cgroup");
	child_start(_metadata, &self->owners[0], run_listener, 0);
	port = child_hear(self->owners[0].from);
	ASSERT_NE(~0U, port);
	before = charged();
	child_start(_metadata, &self->peers[0], run_askers, REQUESTS);
	child_tell(self->peers[0].to, port);
	ASSERT_EQ(REQUESTS, child_hear(self->peers[0].from));
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
