// SPDX-License-Identifier: GPL-2.0-only
/*
 * A crowd of peers that ask a listener: what waits there is charged to the
 * process that made the listener, and there is a limit to listeners.
 *
 * The crowd is of librdmacm alone, in a process in the peer's network
 * namespace, and the listener is in another process.
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

#include "peer.h"
#include "data.h"

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

FIXTURE(crowd)
{
	struct child owner;
	struct child peers;
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
