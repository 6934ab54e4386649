// SPDX-License-Identifier: GPL-2.0-only
/*
 * Many objects alive at once: a hundred thousand bound windows on ten thousand
 * MRs, in a thousand domains, with a thousand connections (fewer without
 * --full). All of them work, and all are destroyed, one by one or by close.
 *
 * What a call costs must not depend on how many objects are merely alive. It is
 * measured with few and with many of them, in nanoseconds, which under
 * `vm --icount` are instructions.
 *
 * time limit: 300
 * beside others: counted
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "harness.h"
#include "mem.h"
#include "net.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "test.h"

#define SPAN		(16 * PAGE)
#define ARENA		(16UL << 20)
#define BATCH		IB_MEMREG_BATCH_MAX
#define ACCESS		(LOCAL_WRITE | MW_BIND)
/* Connections that are being made at a time. */
#define CONNECTS	16
/*
 * Allowed cost of a call with many objects, as a multiple of its cost with few,
 * plus a constant. Many means a hundred or a thousand times as many windows,
 * and ten times as many of the other objects.
 */
#define TIMES		3
#define SLACK_NS	20000
/* How long to wait for a moment at which the machine is not busy. */
#define QUIET_NS	(60 * 1000000000L)

/* Number of objects of each kind, wanted or present. */
struct counts {
	unsigned int domains;
	unsigned int mrs;
	unsigned int windows;
	unsigned int endpoints;
};

/* A connection with queues at the owner's end, and where it may write. */
struct wire {
	struct ring ring;
	__u32 owner;
	__u32 peer;
	__u32 mr;
	__u64 iova;
	__u32 rkey;
};

/* Windows that were bound in one call. */
struct batch {
	__u32 domain;
	__u32 count;
	__u32 ids[BATCH];
};

FIXTURE(scale) {
	int fd;
	int peer;
	__u32 peer_domain;
	__u32 listener;
	__be16 port;
	char *memory;
	struct counts few, many, now;
	__u32 *domains;
	__u32 *mrs;
	__u32 *endpoints;
	struct batch *batches;
	unsigned int nbatches;
	struct wire wire;
};

static long meminfo(const char *name)
{
	FILE *f = fopen("/proc/meminfo", "r");
	char line[128], format[64];
	long kib = -1;

	snprintf(format, sizeof(format), "%s: %%ld kB", name);
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, format, &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

static int listen_on_owner(FIXTURE_DATA(scale) *self)
{
	RAW(listener_create, cmd, .backlog = IB_MEMREG_BACKLOG_MAX,
	    .addr = { .family = AF_INET });
	int ret;

	inet_pton(AF_INET, OWNER_IP4, cmd.addr.ip);
	ret = raw_call(self->fd, IB_MEMREG_IOC_LISTENER_CREATE, &cmd);
	self->listener = cmd.out_listener_id;
	self->port = cmd.addr.port;
	return ret;
}

FIXTURE_SETUP(scale)
{
	static const struct counts sizes[2][2] = {
		{ { 10, 100, 100, 10 }, { 100, 1000, 10000, 50 } },
		{ { 100, 100, 100, 100 }, { 1000, 10000, 100000, 1000 } },
	};

	self->few = sizes[test_full()][0];
	self->many = sizes[test_full()][1];
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	self->peer = raw_open_peer();
	ASSERT_LE(0, self->peer);
	ASSERT_EQ(0, raw_domain(self->peer, &self->peer_domain));
	ASSERT_EQ(0, listen_on_owner(self));
	self->memory = mem_alloc(ARENA);
	ASSERT_NE(NULL, self->memory);
	memset(self->memory, 1, ARENA);
	self->domains = calloc(self->many.domains, sizeof(__u32));
	self->mrs = calloc(self->many.mrs, sizeof(__u32));
	self->endpoints = calloc(self->many.endpoints, sizeof(__u32));
	/*
	 * Windows are added in two steps, either of which may end with a batch
	 * that is not full.
	 */
	self->batches = calloc(self->many.windows / BATCH + 2,
			       sizeof(struct batch));
	ASSERT_TRUE(self->domains && self->mrs && self->endpoints &&
		    self->batches);
}

FIXTURE_TEARDOWN(scale)
{
	EXPECT_EQ(0, close(self->peer));
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_FILE));
	mem_free(self->memory, ARENA);
	free(self->domains);
	free(self->mrs);
	free(self->endpoints);
	free(self->batches);
}

/*
 * Growing
 */

static void grow_domains(struct __test_metadata *_metadata,
			 FIXTURE_DATA(scale) *self, unsigned int n)
{
	for (; self->now.domains < n; self->now.domains++)
		ASSERT_EQ(0, raw_domain(self->fd,
					&self->domains[self->now.domains])) {
			TH_LOG("domain %u", self->now.domains);
		}
}

/* Register up to @n MRs, which overlap, as there is not enough memory. */
static void grow_mrs(struct __test_metadata *_metadata,
		     FIXTURE_DATA(scale) *self, unsigned int n)
{
	for (; self->now.mrs < n; self->now.mrs++) {
		unsigned int i = self->now.mrs;
		size_t offset = i * PAGE % (ARENA - SPAN);

		ASSERT_EQ(0, raw_register(self->fd,
					  self->domains[i % self->now.domains],
					  self->memory + offset, SPAN, ACCESS,
					  &self->mrs[i])) {
			TH_LOG("MR %u", i);
		}
	}
}

static int bind_batch(FIXTURE_DATA(scale) *self, const struct batch *batch)
{
	struct ib_memreg_bind binds[BATCH] = {};
	__u32 i;

	for (i = 0; i < batch->count; i++) {
		binds[i].window_id = batch->ids[i];
		binds[i].mr_id = self->mrs[batch->ids[i] % self->now.mrs];
		binds[i].length = SPAN;
		binds[i].access = REMOTE_READ | REMOTE_WRITE;
	}
	return raw_bind(self->fd, batch->domain, binds, batch->count);
}

static void grow_windows(struct __test_metadata *_metadata,
			 FIXTURE_DATA(scale) *self, unsigned int n)
{
	while (self->now.windows < n) {
		struct batch *batch = &self->batches[self->nbatches];

		batch->domain =
			self->domains[self->nbatches % self->now.domains];
		batch->count = n - self->now.windows < BATCH ?
			       n - self->now.windows : BATCH;
		ASSERT_EQ(0, raw_windows(self->fd, batch->domain, SPAN,
					 batch->ids, batch->count)) {
			TH_LOG("window %u", self->now.windows);
		}
		ASSERT_EQ(0, bind_batch(self, batch)) {
			TH_LOG("window %u, reason %u", self->now.windows,
			       raw_reason());
		}
		self->now.windows += batch->count;
		self->nbatches++;
	}
}

static void next_event(struct __test_metadata *_metadata, int fd,
		       struct ib_memreg_event *event)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	ASSERT_EQ(1, poll(&pfd, 1, LIMIT_MS));
	ASSERT_EQ(sizeof(*event), read(fd, event, sizeof(*event)));
}

/* Wait for @n events of this type, and drop others. */
static void await_events(struct __test_metadata *_metadata, int fd, __u32 type,
			 unsigned int n)
{
	struct ib_memreg_event event;

	while (n) {
		next_event(_metadata, fd, &event);
		ASSERT_TRUE(event.type == type ||
			    event.type == IB_MEMREG_EVENT_DISCONNECTED) {
			TH_LOG("event %u, status %d", event.type,
			       event.status);
		}
		n -= event.type == type;
	}
}

static int peer_connects(FIXTURE_DATA(scale) *self, __u32 *endpoint)
{
	RAW(endpoint_connect, cmd, .domain_id = self->peer_domain,
	    .timeout_ms = 20000,
	    .addr = { .family = AF_INET, .port = self->port });
	int ret;

	inet_pton(AF_INET, OWNER_IP4, cmd.addr.ip);
	ret = raw_call(self->peer, IB_MEMREG_IOC_ENDPOINT_CONNECT, &cmd);
	*endpoint = cmd.out_endpoint_id;
	return ret;
}

/* Accept @n requests, and wait until their connections are established. */
static void accept_all(struct __test_metadata *_metadata,
		       FIXTURE_DATA(scale) *self, __u32 *endpoints,
		       unsigned int n)
{
	unsigned int accepted = 0, up = 0;
	struct ib_memreg_event event;

	while (up < n) {
		next_event(_metadata, self->fd, &event);
		if (event.type == IB_MEMREG_EVENT_CONNECT_REQUEST) {
			RAW(endpoint_accept, cmd,
			    .endpoint_id = event.endpoint_id,
			    .domain_id = self->domains[event.endpoint_id %
						       self->now.domains]);

			ASSERT_EQ(0, raw_call(self->fd,
					      IB_MEMREG_IOC_ENDPOINT_ACCEPT,
					      &cmd));
			endpoints[accepted++] = event.endpoint_id;
		} else if (event.type == IB_MEMREG_EVENT_ESTABLISHED) {
			up++;
		} else {
			ASSERT_EQ(IB_MEMREG_EVENT_DISCONNECTED, event.type);
		}
	}
}

static void grow_endpoints(struct __test_metadata *_metadata,
			   FIXTURE_DATA(scale) *self, unsigned int n)
{
	while (self->now.endpoints < n) {
		unsigned int i, step = n - self->now.endpoints;
		__u32 endpoint;

		if (step > CONNECTS)
			step = CONNECTS;
		for (i = 0; i < step; i++)
			ASSERT_EQ(0, peer_connects(self, &endpoint));
		accept_all(_metadata, self,
			   &self->endpoints[self->now.endpoints], step);
		await_events(_metadata, self->peer,
			     IB_MEMREG_EVENT_ESTABLISHED, step);
		self->now.endpoints += step;
	}
}

static void grow(struct __test_metadata *_metadata, FIXTURE_DATA(scale) *self,
		 const struct counts *to)
{
	long before = meminfo("MemAvailable");

	grow_domains(_metadata, self, to->domains);
	grow_mrs(_metadata, self, to->mrs);
	grow_windows(_metadata, self, to->windows);
	grow_endpoints(_metadata, self, to->endpoints);
	TH_LOG("%u domains, %u MRs, %u bound windows, %u connections",
	       to->domains, to->mrs, to->windows, to->endpoints);
	TH_LOG("they took %ld MiB; %ld MiB of %ld MiB are left",
	       (before - meminfo("MemAvailable")) >> 10,
	       meminfo("MemAvailable") >> 10, meminfo("MemTotal") >> 10);
}

/* Cost of calls */

static int connect_with_queues(FIXTURE_DATA(scale) *self, __u32 *owner,
			       __u32 *peer)
{
	const struct ib_memreg_queues queues = {
		.send_ring_id = self->wire.ring.id,
		.recv_ring_id = self->wire.ring.id,
		.max_send = 8,
		.max_recv = 8,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.max_inline = 32,
	};

	return peer_connects(self, peer) ?:
	       raw_await(self->fd, IB_MEMREG_EVENT_CONNECT_REQUEST, owner) ?:
	       raw_setup(self->fd, *owner, self->domains[0], &queues) ?:
	       raw_accept(self->fd, *owner, self->domains[0]) ?:
	       raw_await(self->fd, IB_MEMREG_EVENT_ESTABLISHED, NULL) ?:
	       raw_await(self->peer, IB_MEMREG_EVENT_ESTABLISHED, NULL);
}

/* So that no event is left. */
static int disconnect(FIXTURE_DATA(scale) *self, __u32 owner, __u32 peer)
{
	return raw_destroy(self->fd, owner) ?:
	       raw_await(self->peer, IB_MEMREG_EVENT_DISCONNECTED, NULL) ?:
	       raw_destroy(self->peer, peer);
}

static void wire_make(struct __test_metadata *_metadata,
		      FIXTURE_DATA(scale) *self)
{
	RAW(mr_register, cmd, .domain_id = self->peer_domain,
	    .access = LOCAL_WRITE | REMOTE_WRITE,
	    .addr = (uintptr_t)self->memory, .length = PAGE);
	struct wire *wire = &self->wire;

	ASSERT_EQ(0, ring_create(self->fd, &wire->ring, 16, 64, 0, -1));
	ASSERT_EQ(0, connect_with_queues(self, &wire->owner, &wire->peer));
	ASSERT_EQ(0, raw_call(self->peer, IB_MEMREG_IOC_MR_REGISTER, &cmd));
	wire->mr = cmd.out_mr_id;
	wire->iova = (uintptr_t)self->memory;
	wire->rkey = cmd.out_rkey;
}

static void wire_end(struct __test_metadata *_metadata,
		     FIXTURE_DATA(scale) *self)
{
	struct wire *wire = &self->wire;

	ASSERT_EQ(0, disconnect(self, wire->owner, wire->peer));
	ASSERT_EQ(0, raw_destroy(self->peer, wire->mr));
	ring_unmap(&wire->ring);
	ASSERT_EQ(0, raw_destroy(self->fd, wire->ring.id));
}

static int probe_bind(FIXTURE_DATA(scale) *self)
{
	static struct batch batch;
	int ret = 0;

	if (!batch.count) {
		batch.domain = self->domains[0];
		batch.count = 32;
		ret = raw_windows(self->fd, batch.domain, SPAN, batch.ids, 32);
	}
	return ret ?: bind_batch(self, &batch) ?:
	       raw_revoke(self->fd, batch.domain, batch.ids, 32);
}

static int probe_window(FIXTURE_DATA(scale) *self)
{
	__u32 id;

	return raw_windows(self->fd, self->domains[0], SPAN, &id, 1) ?:
	       raw_destroy(self->fd, id);
}

static int probe_register(FIXTURE_DATA(scale) *self)
{
	__u32 mr;

	return raw_register(self->fd, self->domains[0], self->memory, SPAN,
			    ACCESS, &mr) ?: raw_destroy(self->fd, mr);
}

static int probe_domain(FIXTURE_DATA(scale) *self)
{
	__u32 domain;

	return raw_domain(self->fd, &domain) ?:
	       raw_destroy(self->fd, domain);
}

static int probe_query(FIXTURE_DATA(scale) *self)
{
	RAW(mr_query, cmd, .mr_id = self->mrs[0]);

	return raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &cmd);
}

static int probe_list(FIXTURE_DATA(scale) *self)
{
	struct ib_memreg_object objects[32];
	RAW(list, cmd, .count = 1, .objects = (uintptr_t)objects,
	    .object_size = sizeof(objects[0]));
	int ret = raw_call(self->fd, IB_MEMREG_IOC_LIST, &cmd);

	/* Begin in the middle of the list, at the last MR. */
	cmd.count = ARRAY_LEN(objects);
	cmd.cursor = (__u64)objects[0].file << 32 |
		     self->mrs[self->now.mrs - 1];
	return ret ?: raw_call(self->fd, IB_MEMREG_IOC_LIST, &cmd);
}

static int probe_file(FIXTURE_DATA(scale) *self)
{
	int fd = raw_open_bound();

	(void)self;
	return fd < 0 ? fd : close(fd);
}

/* A guard's work is part of this. */
static int probe_unmap(FIXTURE_DATA(scale) *self)
{
	char *addr = mem_alloc(PAGE);
	__u32 mr;

	return raw_register(self->fd, self->domains[0], addr, PAGE,
			    LOCAL_WRITE | REMOTE_WRITE, &mr) ?:
	       munmap(addr, PAGE) ?: raw_destroy(self->fd, mr);
}

/* Until its entry is there. */
static int probe_write(FIXTURE_DATA(scale) *self)
{
	struct ib_memreg_wr wr = WR(WRITE, self->wire.owner,
				    INLINE_DATA(&self->now, 8),
				    .flags = SIGNALED | INLINE,
				    .remote_addr = self->wire.iova,
				    .rkey = self->wire.rkey);
	union entry entry;

	return raw_submit(self->fd, &wr, 1) ?:
	       ring_next(&self->wire.ring, &entry) ?:
	       -(entry.cqe.status != IB_MEMREG_WC_SUCCESS);
}

static int probe_connection(FIXTURE_DATA(scale) *self)
{
	__u32 owner, peer;

	return connect_with_queues(self, &owner, &peer) ?:
	       disconnect(self, owner, peer);
}

static const struct {
	const char *name;
	int (*call)(FIXTURE_DATA(scale) *self);
} probes[] = {
	{ "bind and revoke 32 windows", probe_bind },
	{ "allocate and destroy a window", probe_window },
	{ "register and deregister 64 KiB", probe_register },
	{ "register, unmap and deregister 4 KiB", probe_unmap },
	{ "query an MR", probe_query },
	{ "list 32 objects", probe_list },
	{ "create and destroy a domain", probe_domain },
	{ "open, bind and close a file", probe_file },
	{ "submit a write and take its entry", probe_write },
	{ "connect, accept and disconnect", probe_connection },
};

static long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

/*
 * Measure the best of several tries, as other programs disturb some; @cost is
 * the best so far, or 0.
 */
static void measure_one(struct __test_metadata *_metadata,
			FIXTURE_DATA(scale) *self, unsigned int i, long *cost)
{
	unsigned int round;

	for (round = 0; round < 10; round++) {
		long ns = now_ns();

		ASSERT_EQ(0, probes[i].call(self)) {
			TH_LOG("%s", probes[i].name);
		}
		ns = now_ns() - ns;
		if (!*cost || ns < *cost)
			*cost = ns;
	}
}

static void measure(struct __test_metadata *_metadata,
		    FIXTURE_DATA(scale) *self, long *cost)
{
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(probes); i++) {
		cost[i] = 0;
		measure_one(_metadata, self, i, &cost[i]);
	}
}

/*
 * A busy machine has quiet moments, in which a good implementation is fast; one
 * that walks lists is always slow.
 */
static void expect_no_more(struct __test_metadata *_metadata,
			   FIXTURE_DATA(scale) *self, unsigned int i, long few,
			   long *many)
{
	long most = TIMES * few + SLACK_NS, end = now_ns() + QUIET_NS;

	while (*many >= most && now_ns() < end)
		measure_one(_metadata, self, i, many);
	EXPECT_GT(most, *many) {
		TH_LOG("%s", probes[i].name);
	}
}

static void compare(struct __test_metadata *_metadata,
		    FIXTURE_DATA(scale) *self, const long *few, long *many)
{
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(probes); i++) {
		expect_no_more(_metadata, self, i, few[i], &many[i]);
		TH_LOG("%s: %ld with few, %ld with many, ratio %.2f",
		       probes[i].name, few[i], many[i],
		       (double)many[i] / few[i]);
	}
}

/*
 * Giving back
 */

static void give_back_windows(struct __test_metadata *_metadata,
			      FIXTURE_DATA(scale) *self)
{
	unsigned int i;
	__u32 n;

	for (i = 0; i < self->nbatches; i++) {
		struct batch *batch = &self->batches[i];

		/* Destroy every other batch while its windows are bound. */
		if (i % 2)
			ASSERT_EQ(0, raw_revoke(self->fd, batch->domain,
						batch->ids, batch->count));
		for (n = 0; n < batch->count; n++)
			ASSERT_EQ(0, raw_destroy(self->fd, batch->ids[n]));
	}
	self->nbatches = 0;
	self->now.windows = 0;
}

static void give_back(struct __test_metadata *_metadata,
		      FIXTURE_DATA(scale) *self)
{
	unsigned int i;

	for (i = 0; i < self->now.endpoints; i++)
		ASSERT_EQ(0, raw_destroy(self->fd, self->endpoints[i]));
	give_back_windows(_metadata, self);
	for (i = 0; i < self->now.mrs; i++)
		ASSERT_EQ(0, raw_destroy(self->fd, self->mrs[i]));
	/* The first domain has the windows of the calls that are measured. */
	for (i = 1; i < self->now.domains; i++)
		ASSERT_EQ(0, raw_destroy(self->fd, self->domains[i]));
}

TEST_F_TIMEOUT(scale, calls_with_many_alive, SOAK_S)
{
	long few[ARRAY_LEN(probes)], many[ARRAY_LEN(probes)];
	__u64 max_mr, max_qp;

	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_MAX_MR, &max_mr));
	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_MAX_QP, &max_qp));
	TH_LOG("the device has %llu MRs and %llu QPs",
	       (unsigned long long)max_mr, (unsigned long long)max_qp);
	grow(_metadata, self, &self->few);
	wire_make(_metadata, self);
	measure(_metadata, self, few);
	grow(_metadata, self, &self->many);
	measure(_metadata, self, many);
	compare(_metadata, self, few, many);
	wire_end(_metadata, self);

	ASSERT_EQ(self->many.mrs, state_count(IB_MEMREG_OBJECT_MR));
	ASSERT_EQ(self->many.windows + 32,
		  state_count(IB_MEMREG_OBJECT_WINDOW));
	give_back(_metadata, self);
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_MR));
	EXPECT_EQ(32, state_count(IB_MEMREG_OBJECT_WINDOW));
	/* The peer's is the other one. */
	EXPECT_EQ(2, state_count(IB_MEMREG_OBJECT_DOMAIN));
	await_events(_metadata, self->peer, IB_MEMREG_EVENT_DISCONNECTED,
		     self->many.endpoints);
}

TEST_F_TIMEOUT(scale, I7_close_with_many_alive, SOAK_S)
{
	long ns;

	grow(_metadata, self, &self->many);
	ns = now_ns();
	ASSERT_EQ(0, close(self->fd));
	TH_LOG("close: %ld ms", (now_ns() - ns) / 1000000);
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_MR));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_WINDOW));
	EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_DOMAIN));
	await_events(_metadata, self->peer, IB_MEMREG_EVENT_DISCONNECTED,
		     self->many.endpoints);
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
}

/*
 * A guard with many keys takes long, although the queue works. If no batch ends
 * for a second, the module takes the queue for stalled, so on a busy machine
 * this needs several tries.
 */
TEST_F_TIMEOUT(scale, I2_unmap_under_many_windows, SOAK_S)
{
	long ns, before, more = 1;
	unsigned int i;

	grow_domains(_metadata, self, 1);
	for (i = 0; i < 5 && more; i++) {
		grow_mrs(_metadata, self, 1);
		grow_windows(_metadata, self, self->many.windows);
		before = state_rebuilds(self->domains[0]);
		ASSERT_LE(0, before);
		ns = now_ns();
		ASSERT_EQ(0, munmap(self->memory, ARENA));
		TH_LOG("munmap under %u windows: %ld ms", self->now.windows,
		       (now_ns() - ns) / 1000000);
		EXPECT_EQ(IB_MEMREG_MR_STALE,
			  raw_mr_state(self->fd, self->mrs[0]));
		more = state_rebuilds(self->domains[0]) - before;
		give_back_windows(_metadata, self);
		ASSERT_EQ(0, raw_destroy(self->fd, self->mrs[0]));
		self->now.mrs = 0;
		self->memory = mem_alloc(ARENA);
		ASSERT_NE(NULL, self->memory);
		memset(self->memory, 1, ARENA);
	}
	EXPECT_EQ(0, more);
}

/* MRs of the owner's device, as the RDMA core counts them; -1 if it can't. */
static long device_mrs(void)
{
	FILE *f = popen("rdma resource show", "r");
	long mrs = -1, n;
	char line[256], name[64];

	snprintf(name, sizeof(name), " %s: ", test_device());
	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, name) && strstr(line, " mr ") &&
		    sscanf(strstr(line, " mr "), " mr %ld", &n) == 1)
			mrs = n;
	if (f)
		pclose(f);
	return mrs;
}

/*
 * Make the kernel shrink its object caches, but not the inode cache: with the
 * inodes of programs it would drop their pages (selftests/vm/README.md).
 */
static int shrink_slabs(void)
{
	const char *pressure = "/proc/sys/vm/vfs_cache_pressure";
	int ret = file_write(pressure, "0") ?:
		  file_write("/proc/sys/vm/drop_caches", "2");

	return file_write(pressure, "100") ?: ret;
}

/* A domain's idle FRWRs beyond 64 are destroyed long before those 64. */
TEST_F_TIMEOUT(scale, I9_idle_keys_are_given_back_but_for_64, 600)
{
	const long age_ns = 20 * 1000000000L, idle = 4 * BATCH;
	__u32 domain, attempt, i;
	long since, mrs, rest;

	grow_domains(_metadata, self, 1);
	grow_mrs(_metadata, self, 1);
	domain = self->domains[0];
	/* The 64 idle FRWRs of the domain are in addition to the MRs in use. */
	rest = device_mrs() + 64;
	for (attempt = 0; attempt < 5; attempt++) {
		grow_windows(_metadata, self, idle);
		if (attempt)
			for (i = 0; i < self->nbatches; i++)
				ASSERT_EQ(0, bind_batch(self,
							&self->batches[i]));
		ASSERT_LE(idle, device_mrs());
		since = now_ns();
		for (i = 0; i < self->nbatches; i++)
			ASSERT_EQ(0, raw_revoke_relaxed(self->fd, domain,
							self->batches[i].ids,
							BATCH));
		ASSERT_EQ(0, shrink_slabs());
		do {
			mrs = device_mrs();
		} while ((mrs < 0 || mrs > rest) &&
			 now_ns() - since < age_ns);
		if (now_ns() - since < age_ns)
			break;
	}
	EXPECT_GT(5, attempt);
	EXPECT_EQ(rest, mrs);
}

/*
 * Most buffers that a pool can have, by the ABI's limit and the MRs of the
 * device
 */
static unsigned int most_buffers(struct __test_metadata *_metadata,
				 FIXTURE_DATA(scale) *self)
{
	__u64 most;

	EXPECT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_POOL, &most));
	return test_full() ? most : most / 16;
}

static double recycle_ns(struct __test_metadata *_metadata,
			 FIXTURE_DATA(scale) *self, __u32 mr, __u32 count)
{
	RAW(pool_recycle, cmd, .flags = IB_MEMREG_RECYCLE_RELAXED, .mr_id = mr,
	    .count = 32);
	__u32 indices[32], i, round;
	struct timespec begin, end;
	double ns, least = 0;

	cmd.indices = (uintptr_t)indices;
	for (round = 0; round < 20; round++) {
		for (i = 0; i < 32; i++)
			indices[i] = (round * 32 + i) * 7 % count;
		clock_gettime(CLOCK_MONOTONIC, &begin);
		EXPECT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_POOL_RECYCLE,
				      &cmd));
		clock_gettime(CLOCK_MONOTONIC, &end);
		ns = (end.tv_sec - begin.tv_sec) * 1e9 + end.tv_nsec -
		     begin.tv_nsec;
		if (!round || ns < least)
			least = ns;
	}
	return least / 32;
}

/*
 * Each buffer has a key of its own, and recycling the last one costs as much as
 * the first.
 */
TEST_F_TIMEOUT(scale, pool_of_as_many_buffers_as_there_can_be, SOAK_S)
{
	unsigned int count = most_buffers(_metadata, self);
	struct ib_memreg_pool_create cmd = {
		.size = sizeof(cmd),
		.flags = IB_MEMREG_MR_FD,
		.access = LOCAL_WRITE | REMOTE_READ,
		.count = count,
		.buffer_size = 64,
	};
	RAW(pool_recycle, recycle, .count = 2);
	const struct ib_memreg_pool_table *table;
	const struct ib_memreg_pool_entry *entries;
	__u32 indices[2] = { 0, count - 1 }, first, last;

	ASSERT_EQ(0, raw_domain(self->fd, &cmd.domain_id));
	cmd.fd = raw_memory(self->fd, (size_t)count * 64, 0);
	ASSERT_LE(0, cmd.fd);
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_POOL_CREATE, &cmd));
	table = mmap(NULL, cmd.out_table_size, PROT_READ, MAP_SHARED,
		     cmd.out_table_fd, 0);
	ASSERT_NE(MAP_FAILED, table);
	entries = (const void *)(table + 1);
	first = entries[0].rkey;
	last = entries[count - 1].rkey;
	EXPECT_NE(0, first);
	EXPECT_NE(0, last);
	EXPECT_NE(first, last);
	recycle.mr_id = cmd.out_mr_id;
	recycle.indices = (uintptr_t)indices;
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_POOL_RECYCLE, &recycle));
	EXPECT_NE(first, entries[0].rkey);
	EXPECT_NE(last, entries[count - 1].rkey);
	TH_LOG("%u buffers: %.0f ns to recycle one", count,
	       recycle_ns(_metadata, self, cmd.out_mr_id, count));
	EXPECT_EQ(0, raw_destroy(self->fd, cmd.out_mr_id));
	EXPECT_EQ(IB_MEMREG_POOL_DEAD, table->state);
	EXPECT_EQ(0, munmap((void *)table, cmd.out_table_size));
	EXPECT_EQ(0, close(cmd.out_table_fd));
	EXPECT_EQ(0, close(cmd.fd));
}

TEST_HARNESS_MAIN
