// SPDX-License-Identifier: GPL-2.0-only
/*
 * The whole life of an owner of memory, step by step, with a fault at any step:
 * a request to the kernel or to the device fails, or the device vanishes.
 *
 * A step that fails has changed nothing, and works when it is repeated; a step
 * that succeeds has done all of its work. So after any fault the other steps
 * are as usual: a stock peer reads and writes, is refused once the windows are
 * revoked, and in the end no object is left.
 *
 * time limit: 600
 */
#include <signal.h>

#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "net.h"
#include "owner.h"
#include "peer.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define LENGTH		(8 * PAGE)
#define WINDOWS		4
/* Windows that a call revokes; the others end with their endpoint. */
#define REVOKED		2
#define PORT		7471
/* On a debug kernel, one place in so many, and one removal in so many */
#define PLACES_K	16
#define REMOVALS_K	16

FIXTURE(scenario)
{
	struct owner o;
	struct arena a;
	struct memreg_mr mr;
	uint32_t windows[WINDOWS];
	struct ib_memreg_bind binds[WINDOWS];
	/* The other owner, on the peer's device, that the owner connects to */
	struct owner far;
	uint32_t far_end;
	uint32_t outbound;
	/* The peer that connects to the owner. */
	struct peer p;
	uint32_t inbound;
	/*
	 * The fault to inject: at the nth place that is passed, or at a point.
	 */
	unsigned int nth;
	const char *point;
	bool hit;
	unsigned int failures;
};

/**
 * struct step - A step of the owner's life
 * @name: Name to print
 * @prepare: Actions of other processes before the step; or NULL
 * @call: The owner's call, 0 or -errno
 * @check: Checks by other processes after the step; returns false if the step
 *	failed without an error for the owner, and has been undone. Or NULL
 * @errors: Documented errors of a fault, beside ENOMEM and EFAULT; ends with 0
 */
struct step {
	char name[16];
	void (*prepare)(struct __test_metadata *_metadata,
			FIXTURE_DATA(scenario) *self);
	int (*call)(FIXTURE_DATA(scenario) *self);
	bool (*check)(struct __test_metadata *_metadata,
		      FIXTURE_DATA(scenario) *self);
	const int *errors;
};

/* Steps of the owner alone */

static int call_open(FIXTURE_DATA(scenario) *self)
{
	return memreg_open(OWNER_DEVICE, &self->o.m);
}

static int call_domain(FIXTURE_DATA(scenario) *self)
{
	return memreg_domain_create(self->o.m, 0, &self->o.domain);
}

static int call_register(FIXTURE_DATA(scenario) *self)
{
	return memreg_mr_register(self->o.m, self->o.domain, self->a.mem,
				  LENGTH, FOR_WINDOWS | REMOTE_RW, 0,
				  &self->mr);
}

static int call_alloc(FIXTURE_DATA(scenario) *self)
{
	return memreg_window_alloc(self->o.m, self->o.domain,
				   IB_MEMREG_WINDOW_TYPE1, LENGTH,
				   self->windows, WINDOWS);
}

static int call_listen(FIXTURE_DATA(scenario) *self)
{
	struct sockaddr_storage ss;

	return memreg_listen(self->o.m, ip_address(OWNER_IP4, PORT, &ss), 4,
			     &self->o.listener);
}

static int bind_windows(FIXTURE_DATA(scenario) *self, unsigned int first,
			unsigned int count, uint32_t endpoint)
{
	unsigned int i;

	for (i = first; i < first + count; i++)
		self->binds[i] = (struct ib_memreg_bind) {
			.window_id = self->windows[i],
			.mr_id = self->mr.id,
			.offset = i * PAGE,
			.length = 2 * PAGE,
			.access = REMOTE_RW,
			.endpoint_id = endpoint,
		};
	return memreg_window_bind_batch(self->o.m, self->o.domain,
					self->binds + first, count, NULL);
}

static int call_bind(FIXTURE_DATA(scenario) *self)
{
	return bind_windows(self, 0, REVOKED, 0);
}

static int call_grant(FIXTURE_DATA(scenario) *self)
{
	return bind_windows(self, REVOKED, WINDOWS - REVOKED, self->inbound);
}

/*
 * Steps: connections
 */

static uint32_t next_event(struct __test_metadata *_metadata, struct owner *o,
			   uint32_t endpoint)
{
	struct ib_memreg_event event;

	do {
		ASSERT_EQ(0, memreg_get_event(o->m, &event, LIMIT_MS))
			TH_LOG("no event: %s", memreg_reason());
	} while (event.endpoint_id != endpoint);
	return event.type;
}

static int call_connect(FIXTURE_DATA(scenario) *self)
{
	struct sockaddr_storage ss;

	return memreg_connect(self->o.m, self->o.domain,
			      ip_address(PEER_IP4, self->far.port, &ss), NULL,
			      LIMIT_MS / 2, NULL, 0, &self->outbound);
}

/* The other owner accepts the request, or drops it if that fails. */
static void far_accept(FIXTURE_DATA(scenario) *self, uint32_t request)
{
	self->far_end = request;
	if (memreg_accept(self->far.m, request, self->far.domain, NULL, 0)) {
		memreg_destroy(self->far.m, request);
		self->far_end = 0;
	}
}

/* Reset the far end to its state before any connection */
static void far_forget(struct __test_metadata *_metadata,
		       FIXTURE_DATA(scenario) *self)
{
	if (self->far_end)
		ASSERT_EQ(0, memreg_destroy(self->far.m, self->far_end));
	self->far_end = 0;
}

/* Wait for the outcome of connecting to the other owner. */
static uint32_t await_outbound(struct __test_metadata *_metadata,
			       FIXTURE_DATA(scenario) *self)
{
	struct pollfd pfds[] = {
		{ .fd = memreg_fd(self->o.m), .events = POLLIN },
		{ .fd = memreg_fd(self->far.m), .events = POLLIN },
	};
	struct ib_memreg_event event;

	for (;;) {
		ASSERT_LT(0, poll(pfds, ARRAY_LEN(pfds), LIMIT_MS));
		if (pfds[0].revents)
			return next_event(_metadata, &self->o, self->outbound);
		ASSERT_EQ(0, memreg_get_event(self->far.m, &event, 0));
		if (event.type == IB_MEMREG_EVENT_CONNECT_REQUEST)
			far_accept(self, event.endpoint_id);
	}
}

static bool check_connect(struct __test_metadata *_metadata,
			  FIXTURE_DATA(scenario) *self)
{
	uint32_t type = await_outbound(_metadata, self);

	if (type == IB_MEMREG_EVENT_ESTABLISHED)
		return true;
	ASSERT_TRUE(type == IB_MEMREG_EVENT_ERROR ||
		    type == IB_MEMREG_EVENT_REJECTED)
		TH_LOG("event of type %u", type);
	ASSERT_EQ(0, memreg_destroy(self->o.m, self->outbound));
	far_forget(_metadata, self);
	return false;
}

/* Have the stock peer request a connection, unless it has already. */
static void prepare_request(struct __test_metadata *_metadata,
			    FIXTURE_DATA(scenario) *self)
{
	struct ib_memreg_event event;

	if (self->inbound)
		return;
	peer_tell(_metadata, &self->p, "conn");
	/* The other connection may have ended */
	do {
		ASSERT_EQ(0, memreg_get_event(self->o.m, &event, LIMIT_MS))
			TH_LOG("no request: %s", memreg_reason());
	} while (event.type != IB_MEMREG_EVENT_CONNECT_REQUEST);
	self->inbound = event.endpoint_id;
}

static int call_accept(FIXTURE_DATA(scenario) *self)
{
	struct memreg_grant g = {
		.iova = self->binds[0].out_iova,
		.length = self->binds[0].length,
		.rkey = self->binds[0].out_rkey,
		.access = self->binds[0].access,
	};
	uint8_t data[MEMREG_GRANT_SIZE];

	memreg_grant_encode(&g, data);
	return memreg_accept(self->o.m, self->inbound, self->o.domain, data,
			     sizeof(data));
}

static bool check_accept(struct __test_metadata *_metadata,
			 FIXTURE_DATA(scenario) *self)
{
	uint32_t type = next_event(_metadata, &self->o, self->inbound);

	if (type == IB_MEMREG_EVENT_ESTABLISHED) {
		peer_answer(_metadata, &self->p);
		ASSERT_EQ(0, strncmp(self->p.line, "connected ", 10))
			TH_LOG("the peer said: %s", self->p.line);
		return true;
	}
	/*
	 * The connection has ended. The peer's status depends on how it ended.
	 */
	ASSERT_EQ(IB_MEMREG_EVENT_DISCONNECTED, type);
	ASSERT_EQ(0, memreg_destroy(self->o.m, self->inbound));
	self->inbound = 0;
	peer_answer(_metadata, &self->p);
	return false;
}

/*
 * Steps: the end
 */

static void peer_uses_memory(struct __test_metadata *_metadata,
			     FIXTURE_DATA(scenario) *self)
{
	peer_ask(_metadata, &self->p, "write 100 5000 0x5c");
	ASSERT_PEER("success", &self->p);
	memset(self->a.copy + 100, 0x5c, 5000);
	peer_ask(_metadata, &self->p, "read 0 %lu", 2 * PAGE);
	ASSERT_PEER("success", &self->p);
	ASSERT_EQ(crc32_of(self->a.copy, 2 * PAGE),
		  peer_number(&self->p, "crc32"));
	arena_check(_metadata, &self->a);
}

static int call_revoke(FIXTURE_DATA(scenario) *self)
{
	return memreg_window_revoke_batch(self->o.m, self->o.domain,
					  self->windows, REVOKED, NULL);
}

/*
 * The peer's access fails, which ends its connection, and with it the windows
 * that are tied to the connection.
 */
static bool peer_is_refused(struct __test_metadata *_metadata,
			    FIXTURE_DATA(scenario) *self)
{
	peer_ask(_metadata, &self->p, "write 0 8 1");
	ASSERT_PEER("remote-access-error", &self->p);
	ASSERT_EQ(IB_MEMREG_EVENT_DISCONNECTED,
		  next_event(_metadata, &self->o, self->inbound));
	arena_check(_metadata, &self->a);
	return true;
}

static int call_disconnect(FIXTURE_DATA(scenario) *self)
{
	return memreg_disconnect(self->o.m, self->outbound);
}

static int call_destroy(FIXTURE_DATA(scenario) *self)
{
	return memreg_destroy(self->o.m, self->inbound);
}

static int call_deregister(FIXTURE_DATA(scenario) *self)
{
	return memreg_mr_deregister(self->o.m, self->mr.id);
}

static const int queue_errors[] = { ENOSPC, EIO, 0 };

static const int address_errors[] = {
	ENOSPC, EADDRINUSE, EADDRNOTAVAIL, ENETUNREACH, EHOSTUNREACH,
	EPROTO, 0
};

static const int accept_errors[] = { ENOSPC, ENOTCONN, 0 };

static const struct step steps[] = {
	{ .name = "open", .call = call_open },
	{ .name = "domain", .call = call_domain, .errors = queue_errors },
	{ .name = "register", .call = call_register, .errors = queue_errors },
	{ .name = "alloc", .call = call_alloc },
	{ .name = "bind", .call = call_bind, .errors = queue_errors },
	{ .name = "listen", .call = call_listen, .errors = address_errors },
	{ .name = "connect", .call = call_connect, .check = check_connect,
	  .errors = address_errors },
	{ .name = "accept", .prepare = prepare_request, .call = call_accept,
	  .check = check_accept, .errors = accept_errors },
	{ .name = "grant", .prepare = peer_uses_memory, .call = call_grant,
	  .errors = queue_errors },
	{ .name = "revoke", .prepare = peer_uses_memory, .call = call_revoke,
	  .check = peer_is_refused },
	{ .name = "disconnect", .call = call_disconnect },
	{ .name = "destroy", .call = call_destroy },
	{ .name = "deregister", .call = call_deregister },
};

/*
 * Taking steps
 */

/* Make the call of a step, with the fault armed if it has not happened yet. */
static int call_armed(FIXTURE_DATA(scenario) *self, const struct step *step)
{
	int ret;

	if (!self->nth)
		return step->call(self);
	fail_nth_arm(self->nth);
	ret = step->call(self);
	self->hit = fail_nth_disarm(&self->nth);
	return ret;
}

static bool step_may_fail(const struct step *step, int ret)
{
	const int *error;

	if (ret == -ENOMEM || ret == -EFAULT)
		return true;
	for (error = step->errors; error && *error; error++)
		if (ret == -*error)
			return true;
	return false;
}

/*
 * Expect that a failure is due to the fault: it has happened, and no failure
 * came before.
 */
static void excuse(struct __test_metadata *_metadata,
		   FIXTURE_DATA(scenario) *self, const struct step *step,
		   int ret)
{
	if (self->point)
		self->hit = !fault_pending(self->point);
	ASSERT_TRUE(self->hit && !self->failures)
		TH_LOG("%s fails with %d", step->name, ret);
	self->failures++;
}

/* Take a step. Returns false if it failed and has to be repeated. */
static bool try_step(struct __test_metadata *_metadata,
		     FIXTURE_DATA(scenario) *self, const struct step *step)
{
	struct state before = {};
	bool watched = self->nth || self->point;
	int ret;

	if (step->prepare)
		step->prepare(_metadata, self);
	if (watched)
		ASSERT_EQ(0, state_get(&before));
	ret = call_armed(self, step);
	if (!ret || ret == -ENOTCONN) {
		/* ENOTCONN means that the request is over; an event follows. */
		if (step->check && !step->check(_metadata, self))
			ret = ret ?: -ECONNABORTED;
	} else {
		ASSERT_TRUE(step_may_fail(step, ret))
			TH_LOG("%s fails with %d", step->name, ret);
	}
	if (ret) {
		excuse(_metadata, self, step, ret);
		if (self->inbound || step->call != call_accept)
			ASSERT_TRUE(state_same(&before))
				TH_LOG("%s fails with %d", step->name, ret);
	}
	state_free(&before);
	return !ret;
}

static void take_steps(struct __test_metadata *_metadata,
		       FIXTURE_DATA(scenario) *self, unsigned int n)
{
	unsigned int i;

	self->inbound = 0;
	self->failures = 0;
	self->hit = false;
	arena_fill(&self->a, n);
	for (i = 0; i < n; i++)
		while (!try_step(_metadata, self, &steps[i]))
			;
}

/*
 * One whole life. What the owner has not destroyed is destroyed with its file.
 */
static void live(struct __test_metadata *_metadata,
		 FIXTURE_DATA(scenario) *self)
{
	struct state before;

	ASSERT_EQ(0, state_get(&before));
	take_steps(_metadata, self, ARRAY_LEN(steps));
	if (self->nth)
		fail_nth_arm(self->nth);
	owner_close(&self->o);
	if (self->nth)
		self->hit = fail_nth_disarm(&self->nth);
	far_forget(_metadata, self);
	ASSERT_TRUE(state_same(&before));
	ASSERT_EQ(0, vm_pin(0));
	state_free(&before);
}

static void far_open(struct __test_metadata *_metadata,
		     FIXTURE_DATA(scenario) *self)
{
	ASSERT_EQ(0, enter_namespace("memreg-peer"));
	ASSERT_EQ(0, memreg_open("rxe_peer", &self->far.m));
	ASSERT_EQ(0, memreg_domain_create(self->far.m, 0, &self->far.domain));
	owner_listen(_metadata, &self->far, PEER_IP4, 16);
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
}

FIXTURE_SETUP(scenario)
{
	/* A test before may have failed with a part of the topology down. */
	ASSERT_EQ(0, shell("topology_up"));
	far_open(_metadata, self);
	arena_make(_metadata, &self->a, LENGTH);
	/* The peer finds that nobody listens yet, and answers. */
	peer_start(_metadata, &self->p, OWNER_IP4, PORT, NULL);
	peer_answer(_metadata, &self->p);
}

FIXTURE_TEARDOWN(scenario)
{
	peer_stop(&self->p, SIGKILL);
	owner_close(&self->far);
	arena_free(&self->a);
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_FILE));
}

/* Faults */

TEST_F_TIMEOUT(scenario, nothing_goes_wrong, LIMIT_S)
{
	live(_metadata, self);
}

TEST_F_TIMEOUT(scenario, I7_I8_any_place_may_fail, 2 * SOAK_S)
{
	unsigned int stride = sweep_stride(PLACES_K), tried = 0;
	unsigned int nth = 1 + sweep_first(PLACES_K);

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	for (self->hit = true; self->hit; nth += stride) {
		self->nth = nth;
		live(_metadata, self);
		tried++;
	}
	TH_LOG("%u places, each %u. of them", tried - 1, stride);
	ASSERT_LT(100, nth);
}

/*
 * Points of kernel/inject.c that a life passes, and how many passages a check
 * tries
 */
static const struct {
	char name[16];
	unsigned int check;
} points[] = {
	{ "post_send", 3 },
	{ "work_request", 3 },
	/* Limit of the wait for a completion that does not come */
	{ "completion", 1 },
	{ "queue_create", 3 },
	{ "queue_connect", 3 },
	{ "alloc_mr", 3 },
	{ "map_mr", 3 },
	{ "dereg_mr", 3 },
	{ "notifier", 3 },
	{ "create_id", 3 },
	{ "bind_addr", 3 },
	{ "listen", 3 },
	{ "resolve_addr", 3 },
	{ "resolve_route", 3 },
	{ "create_qp", 3 },
	{ "connect", 3 },
	{ "accept", 3 },
	{ "addr_error", 3 },
	{ "route_error", 3 },
	{ "unreachable", 3 },
	{ "rejected", 3 },
};

/*
 * The fault hits any thread that passes the point, handlers and workers
 * included; true if one did
 */
static bool live_with_fault(struct __test_metadata *_metadata,
			    FIXTURE_DATA(scenario) *self, const char *point,
			    unsigned int skip)
{
	bool met;

	self->point = point;
	fault_order(point, skip, 1);
	live(_metadata, self);
	met = !fault_pending(point);
	fault_cancel(point);
	return met;
}

TEST_F_TIMEOUT(scenario, I7_I8_device_and_network_may_fail, SOAK_S)
{
	unsigned int i, skip, stride, met;

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	for (i = 0; i < ARRAY_LEN(points); i++) {
		/* A debug kernel takes one of those passages. */
		stride = sweep_stride(points[i].check);
		met = 0;
		for (skip = sweep_first(points[i].check);
		     skip < times(points[i].check, 1000); skip += stride) {
			if (!live_with_fault(_metadata, self, points[i].name,
					     skip))
				break;
			met++;
		}
		TH_LOG("%s: %u times", points[i].name, met);
		ASSERT_TRUE(met || stride > 1);
	}
}

/* Expect that each call fails with ENODEV, and that no object is left. */
static void device_is_gone(struct __test_metadata *_metadata,
			   FIXTURE_DATA(scenario) *self, const char *last)
{
	unsigned int i;

	for (i = 1; i < ARRAY_LEN(steps); i++)
		ASSERT_EQ(-ENODEV, steps[i].call(self))
			TH_LOG("%s, after %s", steps[i].name, last);
	ASSERT_EQ(0, vm_pin(0));
	owner_close(&self->o);
	owner_close(&self->far);
	ASSERT_EQ(0, state_count(IB_MEMREG_OBJECT_FILE));
}

TEST_F_TIMEOUT(scenario, I7_device_vanishes_after_any_step, SOAK_S)
{
	/*
	 * The slowest step on a debug kernel is to remove devices and make them
	 * again.
	 */
	unsigned int n = 1 + sweep_first(REMOVALS_K);

	for (; n <= ARRAY_LEN(steps); n += sweep_stride(REMOVALS_K)) {
		take_steps(_metadata, self, n);
		TH_LOG("after %s", steps[n - 1].name);
		ASSERT_EQ(0, shell("rxe_down owner"));
		device_is_gone(_metadata, self, steps[n - 1].name);
		ASSERT_EQ(0, shell("rmmod ib_memreg && module_load"));
		ASSERT_EQ(0, shell("rxe_up owner && await 60 rxe_ready owner"));
		far_open(_metadata, self);
	}
	live(_metadata, self);
}

PEER_HARNESS_MAIN
