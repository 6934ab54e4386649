// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parts that are in full use vanish: the peer, the wire, the device, its
 * driver.
 *
 * In use are an MR, bound windows, a listener, a connected endpoint whose peer
 * writes all the time, a thread that is blocked in read(2) and one in poll(2).
 * Whichever part goes, all of the owner's calls end within a limit, and after
 * the device is gone each returns ENODEV; then all objects can be made again.
 *
 * time limit: 480
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "net.h"
#include "owner.h"
#include "peer.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define ARENA_LEN	(16 * PAGE)

/* A thread that waits on a file of its own */
struct waiter {
	pthread_t thread;
	int fd;
	ssize_t ret;
	int error;
	short revents;
};

FIXTURE(vanish)
{
	struct owner o;
	struct arena a;
	struct memreg_mr mr;
	uint32_t windows[2];
	uint32_t endpoint;
	struct peer p;
	struct waiter reader;
	struct waiter poller;
};

static void *wait_by_read(void *arg)
{
	struct ib_memreg_event event;
	struct waiter *w = arg;

	w->ret = read(w->fd, &event, sizeof(event));
	w->error = errno;
	return NULL;
}

static void *wait_by_poll(void *arg)
{
	struct waiter *w = arg;
	struct pollfd pfd = { .fd = w->fd, .events = POLLIN };

	w->ret = poll(&pfd, 1, -1);
	w->revents = pfd.revents;
	return NULL;
}

static void start_waiter(struct __test_metadata *_metadata, struct waiter *w,
			 void *(*run)(void *))
{
	w->fd = open(NODE, O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, w->fd);
	ASSERT_EQ(0, raw_bind_device(w->fd, OWNER_DEVICE));
	ASSERT_EQ(0, pthread_create(&w->thread, NULL, run, w));
}

/* Expect that the blocked threads have ended with ENODEV. */
static void check_waiters(struct __test_metadata *_metadata,
			  FIXTURE_DATA(vanish) *self)
{
	ASSERT_EQ(0, pthread_join(self->reader.thread, NULL));
	ASSERT_EQ(-1, self->reader.ret);
	ASSERT_EQ(ENODEV, self->reader.error);
	ASSERT_EQ(0, pthread_join(self->poller.thread, NULL));
	ASSERT_EQ(1, self->poller.ret);
	ASSERT_EQ(POLLHUP | POLLERR,
		  self->poller.revents & (POLLHUP | POLLERR));
	close(self->reader.fd);
	close(self->poller.fd);
}

static void bind_window(struct __test_metadata *_metadata,
			FIXTURE_DATA(vanish) *self, int i, uint32_t endpoint,
			struct memreg_grant *g)
{
	struct ib_memreg_bind bind = {
		.window_id = self->windows[i],
		.mr_id = self->mr.id,
		.offset = PAGE,
		.length = ARENA_LEN - 2 * PAGE,
		.access = REMOTE_RW,
		.endpoint_id = endpoint,
	};

	owner_bind(_metadata, &self->o, self->o.domain, &bind, g);
}

/* Make all objects of an owner that need no peer. */
static void own(struct __test_metadata *_metadata, FIXTURE_DATA(vanish) *self)
{
	owner_open(_metadata, &self->o);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain, self->a.mem,
					ARENA_LEN, FOR_WINDOWS | REMOTE_RW, 0,
					&self->mr))
		TH_LOG("%s", memreg_reason());
	ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
					 IB_MEMREG_WINDOW_TYPE1, ARENA_LEN,
					 self->windows, 2));
}

/*
 * Let a peer in, which begins to write through a window that is bound for its
 * endpoint.
 */
static void serve(struct __test_metadata *_metadata,
		  FIXTURE_DATA(vanish) *self)
{
	struct memreg_grant g;

	bind_window(_metadata, self, 0, 0, &g);
	self->endpoint = owner_admit(_metadata, &self->o, &self->p,
				     self->o.domain, &g);
	bind_window(_metadata, self, 1, self->endpoint, &g);
	peer_ask(_metadata, &self->p, "rkey 0x%x", g.rkey);
	peer_ask(_metadata, &self->p, "start write 0 20000 0x33");
	ASSERT_PEER("success", &self->p);
}

static void start_peer(struct __test_metadata *_metadata,
		       FIXTURE_DATA(vanish) *self)
{
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, "-r 6");
	serve(_metadata, self);
}

FIXTURE_SETUP(vanish)
{
	/* A test before may have failed with a part of the topology down. */
	ASSERT_EQ(0, shell("topology_up"));
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
	arena_make(_metadata, &self->a, ARENA_LEN);
	own(_metadata, self);
	start_waiter(_metadata, &self->reader, wait_by_read);
	start_waiter(_metadata, &self->poller, wait_by_poll);
	start_peer(_metadata, self);
}

FIXTURE_TEARDOWN(vanish)
{
	peer_stop(&self->p, SIGKILL);
	owner_close(&self->o);
	arena_free(&self->a);
}

/* Unload the module, which nothing uses any more, and load it anew. */
static void reload_module(struct __test_metadata *_metadata,
			  FIXTURE_DATA(vanish) *self)
{
	peer_stop(&self->p, SIGKILL);
	owner_close(&self->o);
	ASSERT_EQ(0, shell("rmmod ib_memreg"));
	ASSERT_EQ(0, shell("module_load"));
}

static void all_calls_say_nodev(struct __test_metadata *_metadata,
				FIXTURE_DATA(vanish) *self)
{
	struct memreg *m = self->o.m;
	struct ib_memreg_bind bind = {
		.window_id = self->windows[0],
		.mr_id = self->mr.id,
		.length = 1,
		.access = REMOTE_RW,
	};
	struct sockaddr_storage ss;
	struct sockaddr *to = ip_address(PEER_IP4, 1234, &ss);
	struct ib_memreg_event event;
	struct memreg_device device;
	struct memreg_mr mr;
	uint32_t id;

	ASSERT_EQ(-ENODEV, memreg_query_device(m, &device));
	ASSERT_EQ(-ENODEV, memreg_domain_create(m, 0, &id));
	ASSERT_EQ(-ENODEV, memreg_mr_register(m, self->o.domain, self->a.mem,
					      PAGE, FOR_WINDOWS, 0, &mr));
	ASSERT_EQ(-ENODEV, memreg_mr_query(m, self->mr.id, NULL, NULL, NULL));
	ASSERT_EQ(-ENODEV, memreg_window_alloc(m, self->o.domain,
					       IB_MEMREG_WINDOW_TYPE1, PAGE,
					       &id, 1));
	ASSERT_EQ(-ENODEV, memreg_window_bind(m, self->o.domain, &bind));
	ASSERT_EQ(-ENODEV, memreg_window_revoke(m, self->o.domain,
						self->windows[0]));
	ASSERT_EQ(-ENODEV, memreg_listen(m, to, 1, &id));
	ASSERT_EQ(-ENODEV, memreg_accept(m, self->endpoint, self->o.domain,
					 NULL, 0));
	ASSERT_EQ(-ENODEV, memreg_reject(m, self->endpoint, NULL, 0));
	ASSERT_EQ(-ENODEV, memreg_connect(m, self->o.domain, to, NULL, 100,
					  NULL, 0, &id));
	ASSERT_EQ(-ENODEV, memreg_disconnect(m, self->endpoint));
	ASSERT_EQ(-ENODEV, memreg_destroy(m, self->mr.id));
	ASSERT_EQ(-ENODEV, memreg_get_event(m, &event, -1));
}

/*
 * The device is gone: all calls and waiters of the owner return ENODEV, and no
 * MR and no pinned page is left.
 */
static void check_gone(struct __test_metadata *_metadata,
		       FIXTURE_DATA(vanish) *self)
{
	check_waiters(_metadata, self);
	all_calls_say_nodev(_metadata, self);
	ASSERT_EQ(0, vm_pin(0));
	ASSERT_EQ(0, state_count(IB_MEMREG_OBJECT_MR));
	peer_stop(&self->p, SIGKILL);
	owner_close(&self->o);
}

static void check_anew(struct __test_metadata *_metadata,
		       FIXTURE_DATA(vanish) *self)
{
	ASSERT_EQ(0, shell("topology_up"));
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
	own(_metadata, self);
	start_peer(_metadata, self);
	reload_module(_metadata, self);
}

/* For tests in which the device stays */
static void end_waiters(struct __test_metadata *_metadata,
			FIXTURE_DATA(vanish) *self)
{
	ASSERT_EQ(0, shell("rxe_down owner"));
	check_waiters(_metadata, self);
}

TEST_F_TIMEOUT(vanish, peer_is_killed, LIMIT_S)
{
	struct memreg_grant g;

	peer_stop(&self->p, SIGKILL);
	ASSERT_EQ(self->endpoint,
		  owner_await(_metadata, &self->o,
			      IB_MEMREG_EVENT_DISCONNECTED, NULL));
	/*
	 * The window of the peer's endpoint is free, and can be bound. The
	 * other one is bound still.
	 */
	bind_window(_metadata, self, 1, 0, &g);
	ASSERT_EQ(0, memreg_window_revoke(self->o.m, self->o.domain,
					  self->windows[0]));
	ASSERT_EQ(0, memreg_window_revoke(self->o.m, self->o.domain,
					  self->windows[1]));
	start_peer(_metadata, self);
	end_waiters(_metadata, self);
}

/*
 * The peer's link goes down. The owner has no sign of that, so its calls
 * succeed as before. Soft-RoCE's GSI QPs don't survive a packet that can't be
 * sent, so new connections need new devices.
 */
TEST_F_TIMEOUT(vanish, wire_is_cut_and_mended, LIMIT_S)
{
	struct memreg_grant g;

	ASSERT_EQ(0, shell("ip -n memreg-peer link set mr_peer down"));
	peer_ask(_metadata, &self->p, "join %d", LIMIT_MS / 2);
	ASSERT_STRNE("success", peer_value(&self->p, "status"));
	ASSERT_EQ(0, memreg_window_revoke_batch(self->o.m, self->o.domain,
						self->windows, 2, NULL));
	ASSERT_EQ(0, memreg_disconnect(self->o.m, self->endpoint));
	ASSERT_EQ(self->endpoint,
		  owner_await(_metadata, &self->o,
			      IB_MEMREG_EVENT_DISCONNECTED, NULL));
	ASSERT_EQ(0, memreg_destroy(self->o.m, self->endpoint));
	bind_window(_metadata, self, 0, 0, &g);
	ASSERT_EQ(0, shell("addresses_up peer &&"
			   "await 60 rxe_active owner 1"));
	bind_window(_metadata, self, 1, 0, &g);
	ASSERT_EQ(0, shell("rxe_down owner"));
	check_gone(_metadata, self);
	check_anew(_metadata, self);
}

TEST_F_TIMEOUT(vanish, I7_device_is_deleted, LIMIT_S)
{
	ASSERT_EQ(0, shell("rxe_down owner"));
	check_gone(_metadata, self);
	check_anew(_metadata, self);
}

/*
 * Deleting one end of the wire removes the peer's device as well, and waits
 * until the peer has closed it.
 */
TEST_F_TIMEOUT(vanish, I7_wire_is_deleted, LIMIT_S)
{
	ASSERT_EQ(0, shell("ip -n memreg-owner link delete mr_owner &"));
	check_waiters(_metadata, self);
	all_calls_say_nodev(_metadata, self);
	peer_stop(&self->p, SIGKILL);
	owner_close(&self->o);
	ASSERT_EQ(0, shell("await 60 topology_gone"));
	check_anew(_metadata, self);
}

/*
 * A stock peer holds a reference of the driver module; the owner does not. With
 * lockdep rxe's own sockets hold one as well, so its devices have to be removed
 * first.
 */
TEST_F_TIMEOUT(vanish, I7_driver_is_unloaded, LIMIT_S)
{
	peer_stop(&self->p, SIGKILL);
	if (debug_kernel())
		ASSERT_EQ(0, shell("rxe_down peer && rxe_down owner"));
	ASSERT_EQ(0, shell("await 60 rmmod rdma_rxe 2>/dev/null"));
	check_gone(_metadata, self);
	check_anew(_metadata, self);
}

TEST_F_TIMEOUT(vanish, device_is_renamed, LIMIT_S)
{
	struct memreg_device device;

	ASSERT_EQ(0, shell("rdma dev set rxe_owner name rxe_other"));
	ASSERT_EQ(0, memreg_query_device(self->o.m, &device));
	ASSERT_STREQ("rxe_other", device.name);
	peer_ask(_metadata, &self->p, "stop");
	ASSERT_PEER("success", &self->p);
	peer_ask(_metadata, &self->p, "read 0 100");
	ASSERT_PEER("success", &self->p);
	ASSERT_EQ(0, shell("rdma dev set rxe_other name rxe_owner"));
	end_waiters(_metadata, self);
}

/*
 * Deletion races with all calls
 */

struct caller {
	pthread_t thread;
	void *mem;
	int *stop;
	int bad;		/* a result that no call may have here */
	const char *what;
	unsigned long calls;
};

static bool note(struct caller *c, const char *what, int ret)
{
	c->calls++;
	/*
	 * The device's ports can lose their address before the device is gone.
	 */
	if (ret && ret != -ENODEV && ret != -ENETDOWN &&
	    ret != -EADDRNOTAVAIL && !c->bad) {
		c->bad = ret;
		c->what = what;
	}
	return !ret;
}

static void call_all(struct caller *c, struct memreg *m)
{
	struct sockaddr_storage ss;
	struct ib_memreg_event event;
	struct ib_memreg_bind bind = { .access = REMOTE_RW, .length = PAGE };
	uint32_t domain, listener, endpoint;
	struct memreg_mr mr;

	if (!note(c, "domain", memreg_domain_create(m, 0, &domain)))
		return;
	if (note(c, "register", memreg_mr_register(m, domain, c->mem, 4 * PAGE,
						   REMOTE_RW | FOR_WINDOWS, 0,
						   &mr)) &&
	    note(c, "alloc", memreg_window_alloc(m, domain,
						 IB_MEMREG_WINDOW_TYPE1, PAGE,
						 &bind.window_id, 1))) {
		bind.mr_id = mr.id;
		note(c, "bind", memreg_window_bind(m, domain, &bind));
		note(c, "revoke", memreg_window_revoke(m, domain,
						       bind.window_id));
	}
	note(c, "listen", memreg_listen(m, ip_address(OWNER_IP4, 0, &ss), 1,
					&listener));
	note(c, "connect", memreg_connect(m, domain,
					  ip_address(PEER_IP4, 7999, &ss),
					  NULL, 1000, NULL, 0, &endpoint));
	memreg_get_event(m, &event, 0);
}

static void *call_in_a_loop(void *arg)
{
	struct caller *c = arg;
	struct memreg *m;

	while (!__atomic_load_n(c->stop, __ATOMIC_RELAXED)) {
		if (!note(c, "open", memreg_open(OWNER_DEVICE, &m))) {
			usleep(1000);
			continue;
		}
		call_all(c, m);
		memreg_close(m);
	}
	return NULL;
}

TEST_F_TIMEOUT(vanish, I7_deletion_races_with_calls, SOAK_S)
{
	struct caller callers[4] = { 0 };
	unsigned int i, n = ARRAY_LEN(callers);
	int stop = 0;

	for (i = 0; i < n; i++) {
		callers[i].mem = self->a.mem + i * 4 * PAGE;
		callers[i].stop = &stop;
		ASSERT_EQ(0, pthread_create(&callers[i].thread, NULL,
					    call_in_a_loop, &callers[i]));
	}
	for (i = 0; i < test_repeat(debug_kernel() ? 2 : 5); i++)
		ASSERT_EQ(0, shell("rxe_down owner; rxe_up owner &&"
				   "await 120 rxe_ready owner"));
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < n; i++) {
		pthread_join(callers[i].thread, NULL);
		ASSERT_EQ(0, callers[i].bad)
			TH_LOG("%s", callers[i].what);
		ASSERT_LT(5, callers[i].calls);
	}
	check_waiters(_metadata, self);
	peer_stop(&self->p, SIGKILL);
	owner_close(&self->o);
	ASSERT_EQ(0, vm_pin(0));
	check_anew(_metadata, self);
}

PEER_HARNESS_MAIN
