// SPDX-License-Identifier: GPL-2.0-only
/*
 * Leases: windows that end at a deadline, whatever their owner does. A stock
 * peer READs until it is refused: not before the deadline, and, posted a second
 * after it, in any case.
 *
 * time limit: 600
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "memreg_fixture.h"
#include "net.h"
#include "stock.h"

#define LEN		(16 * PAGE)
#define SECOND		(1000 * MS)
/* A READ that is posted that long after the deadline is refused. */
#define BOUND		SECOND
#define FAR		(~0ULL)
#define MANY		1024U
#define BATCH		IB_MEMREG_BATCH_MAX

/* Bytes that the peer reads */
#define SOME		64U

FIXTURE(lease) {
	struct link link;
	int fd;
	__u32 domain;
	__u8 *mem;
	__u32 mr;
	__u32 windows[MANY];
	__u32 lease;
};

FIXTURE_SETUP(lease)
{
	unsigned int i;

	ASSERT_EQ(0, link_open(&self->link, LEN));
	self->fd = self->link.fd;
	self->domain = self->link.domain;
	ASSERT_EQ(0, link_memory(&self->link, LEN, FOR_WINDOWS, &self->mem,
				 &self->mr));
	for (i = 0; i < MANY; i += BATCH)
		ASSERT_EQ(0, raw_windows(self->fd, self->domain, LEN,
					 &self->windows[i], BATCH));
}

FIXTURE_TEARDOWN(lease)
{
	link_close(&self->link);
	EXPECT_EQ(0, vm_pin(0));
	mem_free(self->mem, LEN);
}

static struct ib_memreg_bind entry(const FIXTURE_DATA(lease) *self,
				   unsigned int window, __u32 lease)
{
	return (struct ib_memreg_bind) {
		.window_id = self->windows[window],
		.mr_id = self->mr,
		.length = PAGE,
		.access = REMOTE_READ,
		.lease_id = lease,
	};
}

static int bind_one(const FIXTURE_DATA(lease) *self, unsigned int window,
		    __u32 lease)
{
	struct ib_memreg_bind bind = entry(self, window, lease);

	return raw_bind(self->fd, self->domain, &bind, 1);
}

/* The next event is the end of a lease: its id, or -errno */
static int next_end(int fd)
{
	__u32 lease;
	int ret = raw_await(fd, IB_MEMREG_EVENT_LEASE_ENDED, &lease);

	return ret ?: (int)lease;
}

static bool no_event(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 0;
}

/* What LIST says of an object; its type is 0 if there is none. */
static struct ib_memreg_object look(__u32 id)
{
	struct ib_memreg_object found = {};
	struct state state;
	__u32 i;

	if (state_get(&state))
		return found;
	for (i = 0; i < state.count; i++)
		if (state.objects[i].id == id)
			found = state.objects[i];
	state_free(&state);
	return found;
}

static __u32 windows_bound(void)
{
	struct state now;
	__u32 i, n = 0;

	if (state_get(&now))
		return ~0U;
	for (i = 0; i < now.count; i++)
		n += now.objects[i].type == IB_MEMREG_OBJECT_WINDOW &&
		     now.objects[i].u.window.bound;
	state_free(&now);
	return n;
}

/**
 * struct reads - READs of a peer until one is refused
 * @stock: The peer
 * @iova: Address
 * @rkey: Key
 * @posted: Time before the last one was posted
 * @done: Time after it has completed
 * @successes: Number of those that succeeded
 */
struct reads {
	struct stock *stock;
	__u64 iova;
	__u32 rkey;
	uint64_t posted;
	uint64_t done;
	unsigned int successes;
};

/* Have the peer READ once. */
static int read_once(struct reads *r)
{
	int ret;

	r->posted = boottime_ns();
	ret = stock_read(r->stock, 0, SOME, r->iova, r->rkey);
	r->done = boottime_ns();
	r->successes += ret == IBV_WC_SUCCESS;
	return ret;
}

/* Expect that the peer can READ until the deadline, and not after it. */
static void reads_until(struct __test_metadata *_metadata, struct reads *r,
			uint64_t deadline)
{
	int status;

	do {
		status = read_once(r);
		if (status == IBV_WC_SUCCESS)
			ASSERT_LT(r->posted, deadline + BOUND);
	} while (status == IBV_WC_SUCCESS);
	ASSERT_EQ(IBV_WC_REM_ACCESS_ERR, status);
	ASSERT_GE(r->done, deadline);
}

/* Connect, and bind a window under a new lease that ends then. */
static struct reads grant(struct __test_metadata *_metadata,
			  FIXTURE_DATA(lease) *self, uint64_t in)
{
	struct ib_memreg_bind bind;

	EXPECT_EQ(0, link_up(&self->link, NULL, true));
	EXPECT_EQ(0, raw_lease(self->fd, boottime_ns() + in, &self->lease));
	bind = entry(self, 0, self->lease);
	EXPECT_EQ(0, raw_bind(self->fd, self->domain, &bind, 1))
		TH_LOG("reason %u", raw_reason());
	return (struct reads) {
		.stock = &self->link.stock,
		.iova = bind.out_iova,
		.rkey = bind.out_rkey,
	};
}

static uint64_t deadline_of(__u32 lease)
{
	return look(lease).u.lease.deadline;
}

TEST_F(lease, peer_reads_until_the_deadline)
{
	struct reads r = grant(_metadata, self, 3 * SECOND);

	reads_until(_metadata, &r, deadline_of(self->lease));
	EXPECT_LT(0, r.successes);
	EXPECT_EQ((int)self->lease, next_end(self->fd));
	EXPECT_EQ(0, windows_bound());
	/* The window is as one that was revoked. */
	EXPECT_EQ(0, raw_revoke(self->fd, self->domain, self->windows, 1));
	EXPECT_EQ(0, bind_one(self, 0, 0));
	EXPECT_EQ(0, raw_destroy(self->fd, self->lease));
	EXPECT_EQ(0, raw_revoke(self->fd, self->domain, self->windows, 1));
	EXPECT_EQ(0, raw_destroy(self->fd, self->mr));
}

TEST_F(lease, renewals_to_later_and_earlier_times_count)
{
	struct reads r = grant(_metadata, self, 10 * SECOND);
	uint64_t first = deadline_of(self->lease), deadline;

	/* Beyond the first deadline */
	ASSERT_EQ(0, raw_renew(self->fd, self->lease, FAR));
	while (boottime_ns() < first + 100 * MS)
		ASSERT_EQ(IBV_WC_SUCCESS, read_once(&r));
	EXPECT_EQ(0, look(self->lease).u.lease.ended);
	deadline = boottime_ns() + 200 * MS;
	ASSERT_EQ(0, raw_renew(self->fd, self->lease, deadline));
	reads_until(_metadata, &r, deadline);
	EXPECT_EQ((int)self->lease, next_end(self->fd));
	EXPECT_FAIL(ESTALE, LEASE_ENDED, raw_renew(self->fd, self->lease, FAR));
}

/* From the deadline on, also if nothing was revoked yet */
TEST_F(lease, renewals_never_revive)
{
	uint64_t deadline, before;
	unsigned int i;
	int ret;

	for (i = 0; i < test_rounds(200); i++) {
		deadline = boottime_ns() + i % 20 * MS / 4;
		ASSERT_EQ(0, raw_lease(self->fd, deadline, &self->lease));
		do {
			before = boottime_ns();
			ret = raw_renew(self->fd, self->lease, deadline);
			if (!ret)
				ASSERT_GT(deadline, before);
		} while (!ret);
		ASSERT_LE(deadline, boottime_ns());
		EXPECT_EQ(-ESTALE, ret);
		EXPECT_FAIL(ESTALE, LEASE_ENDED,
			    raw_renew(self->fd, self->lease, FAR));
		EXPECT_FAIL(ESTALE, LEASE_ENDED,
			    bind_one(self, 0, self->lease));
		ASSERT_EQ((int)self->lease, next_end(self->fd));
		EXPECT_FAIL(ESTALE, LEASE_ENDED,
			    raw_renew(self->fd, self->lease, FAR));
		EXPECT_EQ(0, raw_destroy(self->fd, self->lease));
	}
	EXPECT_TRUE(no_event(self->fd));
}

TEST_F(lease, deadline_that_is_over_ends_a_lease_at_once)
{
	__u32 other;

	ASSERT_EQ(0, raw_lease(self->fd, 0, &self->lease));
	EXPECT_EQ(1, look(self->lease).u.lease.ended);
	EXPECT_EQ((int)self->lease, next_end(self->fd));
	ASSERT_EQ(0, raw_lease(self->fd, FAR, &other));
	ASSERT_EQ(0, bind_one(self, 0, other));
	EXPECT_EQ(1, look(other).u.lease.grants);
	ASSERT_EQ(0, raw_renew(self->fd, other, 1));
	EXPECT_EQ((int)other, next_end(self->fd));
	EXPECT_EQ(0, windows_bound());
	EXPECT_EQ(0, look(other).u.lease.grants);
}

TEST_F(lease, event_comes_once)
{
	struct ib_memreg_event event;
	__u64 before, now;
	__u32 id;

	ASSERT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_LEASES_EXPIRED,
			      &before));
	ASSERT_EQ(0, raw_lease(self->fd, 1, &self->lease));
	AWAIT(!no_event(self->fd));
	EXPECT_EQ(-1, read(self->fd, (void *)PAGE, sizeof(event)));
	EXPECT_EQ(EFAULT, errno);
	ASSERT_EQ(sizeof(event), read(self->fd, &event, sizeof(event)));
	EXPECT_EQ(IB_MEMREG_EVENT_LEASE_ENDED, event.type);
	EXPECT_EQ(self->lease, event.endpoint_id);
	EXPECT_EQ(self->lease, event.user_data);
	EXPECT_EQ(0, event.listener_id);
	EXPECT_TRUE(no_event(self->fd));
	EXPECT_EQ(0, raw_destroy(self->fd, self->lease));
	EXPECT_TRUE(no_event(self->fd));
	/* It vanishes with the lease. */
	ASSERT_EQ(0, raw_lease(self->fd, 1, &id));
	AWAIT(!no_event(self->fd));
	EXPECT_EQ(0, raw_destroy(self->fd, id));
	EXPECT_TRUE(no_event(self->fd));
	/* A lease that is destroyed in time does not expire. */
	ASSERT_EQ(0, raw_lease(self->fd, FAR, &id));
	EXPECT_EQ(0, raw_destroy(self->fd, id));
	ASSERT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_LEASES_EXPIRED, &now));
	EXPECT_EQ(before + 2, now);
}

TEST_F(lease, destroyed_with_windows_is_EBUSY)
{
	__u32 id;

	ASSERT_EQ(0, raw_lease(self->fd, FAR, &id));
	ASSERT_EQ(0, bind_one(self, 0, id));
	ASSERT_EQ(0, bind_one(self, 1, id));
	EXPECT_EQ(2, look(id).u.lease.grants);
	EXPECT_EQ(id, look(self->windows[1]).u.window.lease_id);
	EXPECT_FAIL(EBUSY, LEASE_GRANTS, raw_destroy(self->fd, id));
	EXPECT_EQ(0, raw_revoke(self->fd, self->domain, self->windows, 1));
	EXPECT_FAIL(EBUSY, LEASE_GRANTS, raw_destroy(self->fd, id));
	EXPECT_EQ(0, raw_destroy(self->fd, self->windows[1]));
	EXPECT_EQ(0, look(id).u.lease.grants);
	EXPECT_EQ(0, raw_destroy(self->fd, id));
	EXPECT_TRUE(no_event(self->fd));
}

/* A batch under an ended lease binds none of its windows (I8). */
TEST_F(lease, I8_bind_under_an_ended_lease_changes_nothing)
{
	struct ib_memreg_bind binds[3];
	__u32 live, ended, i;

	ASSERT_EQ(0, raw_lease(self->fd, FAR, &live));
	ASSERT_EQ(0, raw_lease(self->fd, 0, &ended));
	for (i = 0; i < 3; i++)
		binds[i] = entry(self, i, i == 2 ? ended : live);
	EXPECT_FAIL(ESTALE, LEASE_ENDED,
		    raw_bind(self->fd, self->domain, binds, 3));
	EXPECT_EQ(2, raw_index());
	EXPECT_EQ(0, windows_bound());
	binds[2].lease_id = self->mr;
	EXPECT_FAIL(ENOENT, ID, raw_bind(self->fd, self->domain, binds, 3));
	EXPECT_EQ(2, raw_index());
	binds[2].lease_id = live;
	binds[2].endpoint_id = self->mr;
	EXPECT_FAIL(ENOENT, ID, raw_bind(self->fd, self->domain, binds, 3));
	EXPECT_EQ(0, look(live).u.lease.grants);
	EXPECT_EQ(0, look(live).users);
	EXPECT_EQ(0, raw_destroy(self->fd, live));
	EXPECT_EQ(0, raw_destroy(self->fd, ended));
}

/**
 * struct bad - A renewal that makes a batch fail
 * @err: With this errno
 * @reason: And this reason
 * @renewal: It; the lease is @live or @ended if its id is 0 or 1
 */
struct bad {
	int err;
	__u32 reason;
	struct ib_memreg_renewal renewal;
};

#define NO_ID	0x7fffffffU

TEST_F(lease, I8_bad_entry_renews_none_of_a_batch)
{
	static const struct bad bads[] = {
		{ ENOENT, IB_MEMREG_REASON_ID, { .lease_id = NO_ID } },
		{ EINVAL, IB_MEMREG_REASON_RESERVED, { .reserved = 1 } },
		{ ESTALE, IB_MEMREG_REASON_LEASE_ENDED, { .lease_id = 1 } },
	};
	struct ib_memreg_renewal renewals[4];
	__u32 live[4], ended, i, k, at;

	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, raw_lease(self->fd, FAR - i, &live[i]));
	ASSERT_EQ(0, raw_lease(self->fd, 0, &ended));
	for (i = 0; i < ARRAY_LEN(bads); i++) {
		for (at = 0; at < 4; at++) {
			for (k = 0; k < 4; k++)
				renewals[k] = (struct ib_memreg_renewal) {
					.lease_id = live[k],
				};
			renewals[at] = bads[i].renewal;
			if (renewals[at].lease_id <= 1)
				renewals[at].lease_id =
					renewals[at].lease_id ? ended :
								live[at];
			EXPECT_EQ(-bads[i].err,
				  raw_renew_all(self->fd, renewals, 4));
			EXPECT_EQ(bads[i].reason, raw_reason());
			EXPECT_EQ(at, raw_index());
			for (k = 0; k < 4; k++)
				EXPECT_EQ(0, look(live[k]).u.lease.ended);
		}
	}
	EXPECT_FAIL(EINVAL, COUNT, raw_renew_all(self->fd, renewals, 0));
	EXPECT_FAIL(EINVAL, COUNT, raw_renew_all(self->fd, renewals,
						 BATCH + 1));
	EXPECT_FAIL(EFAULT, NONE, raw_renew_all(self->fd, NULL, 1));
	EXPECT_EQ((int)ended, next_end(self->fd));
	EXPECT_TRUE(no_event(self->fd));
	/* Good ones, in one call; of one that is named twice the last counts */
	for (k = 0; k < 4; k++)
		renewals[k] = (struct ib_memreg_renewal) {
			.lease_id = live[k & 2],
			.deadline = k & 1 ? boottime_ns() + 3600 * SECOND : FAR,
		};
	ASSERT_EQ(0, raw_renew_all(self->fd, renewals, 4));
	EXPECT_EQ(renewals[1].deadline, deadline_of(live[0]));
	EXPECT_EQ(renewals[3].deadline, deadline_of(live[2]));
}

TEST_F(lease, slot_changes_before_the_key_dies)
{
	RAW(lease_create, cmd);
	struct reads r = grant(_metadata, self, 3600 * SECOND);
	struct ib_memreg_bind bind;
	struct status_map map;
	uint64_t deadline, generation, before;
	int status;

	ASSERT_EQ(0, status_create(self->fd, 4, 0, &map));
	cmd.status_id = map.id;
	cmd.deadline = deadline = boottime_ns() + 2 * SECOND;
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_LEASE_CREATE, &cmd));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->fd, map.id));
	generation = cmd.out_generation;
	EXPECT_EQ(generation, status_generation(&map, cmd.out_slot));
	bind = entry(self, 1, cmd.out_lease_id);
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, &bind, 1));
	r.iova = bind.out_iova;
	r.rkey = bind.out_rkey;
	do {
		before = status_generation(&map, cmd.out_slot);
		if (before != generation)
			ASSERT_LE(deadline, boottime_ns());
		status = read_once(&r);
	} while (status == IBV_WC_SUCCESS);
	EXPECT_NE(generation, status_generation(&map, cmd.out_slot));
	EXPECT_LE(deadline, r.done);
	EXPECT_EQ((int)cmd.out_lease_id, next_end(self->fd));
	EXPECT_EQ(0, raw_destroy(self->fd, cmd.out_lease_id));
	EXPECT_EQ(0, raw_destroy(self->fd, map.id));
	status_unmap(&map);
}

TEST_F(lease, many_windows_end_together)
{
	struct ib_memreg_bind binds[BATCH];
	__u32 alive, others[2];
	unsigned int i, k, w;

	ASSERT_EQ(0, raw_lease(self->fd, FAR, &self->lease));
	ASSERT_EQ(0, raw_lease(self->fd, FAR, &alive));
	others[0] = 0;
	others[1] = alive;
	for (i = 0; i < MANY; i += BATCH) {
		for (k = 0; k < BATCH; k++) {
			w = i + k;
			binds[k] = entry(self, w, w < MANY - 24 ? self->lease :
							 others[w % 2]);
		}
		ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, BATCH));
	}
	EXPECT_EQ(MANY - 24, look(self->lease).u.lease.grants);
	ASSERT_EQ(0, raw_renew(self->fd, self->lease, boottime_ns()));
	EXPECT_EQ((int)self->lease, next_end(self->fd));
	EXPECT_EQ(24, windows_bound());
	EXPECT_EQ(12, look(alive).u.lease.grants);
	EXPECT_EQ(0, raw_destroy(self->fd, self->lease));
}

/*
 * The library, and the tool
 */

/* Does the first line that `memreg list` has of leases have this text? */
static bool tool_says(const char *options, const char *text)
{
	char command[4096], line[4096] = "";
	FILE *f;

	snprintf(command, sizeof(command), "%s list --type lease %s",
		 tree_path("build/user/tool/memreg"), options);
	f = popen(command, "r");
	while (f && fgets(line, sizeof(line), f) && !strstr(line, text))
		;
	if (f)
		pclose(f);
	return strstr(line, text);
}

TEST(library_and_tool)
{
	struct ib_memreg_renewal renewals[2] = {};
	struct ib_memreg_event event;
	struct memreg_status *status;
	struct memreg_watch watch;
	uint32_t lease, other;
	unsigned int failed;
	struct memreg *m;

	ASSERT_EQ(0, memreg_open(test_device(), &m));
	ASSERT_EQ(0, memreg_status_create(m, 4, 0, &status));
	ASSERT_EQ(0, memreg_lease_create_watched(m, FAR, status, &lease,
						 &watch));
	ASSERT_EQ(0, memreg_lease_create(m, FAR, &other));
	EXPECT_TRUE(memreg_watch_ok(&watch));
	EXPECT_TRUE(tool_says("", "never ends, 0 grants"));
	ASSERT_EQ(0, memreg_lease_renew(m, lease,
					boottime_ns() + 3600 * SECOND));
	EXPECT_TRUE(tool_says("", " s left, 0 grants"));
	EXPECT_TRUE(tool_says("--json", "\"state\":\"live\",\"deadline_ns\""));
	renewals[0].lease_id = other;
	renewals[0].deadline = FAR;
	renewals[1].lease_id = lease;
	ASSERT_EQ(0, memreg_lease_renew_batch(m, renewals, 2, &failed));
	EXPECT_EQ(2, failed);
	ASSERT_EQ(0, memreg_get_event(m, &event, LIMIT_MS));
	EXPECT_STREQ("LEASE_ENDED", memreg_event_string(event.type));
	EXPECT_EQ(lease, event.endpoint_id);
	EXPECT_FALSE(memreg_watch_ok(&watch));
	EXPECT_TRUE(tool_says("--state ended", "ended"));
	EXPECT_EQ(-ESTALE, memreg_lease_renew_batch(m, renewals, 2, &failed));
	EXPECT_EQ(1, failed);
	EXPECT_EQ(IB_MEMREG_REASON_LEASE_ENDED, memreg_reason_code());
	EXPECT_TRUE(strstr(memreg_reason(), "the time of the lease is over"))
		TH_LOG("%s", memreg_reason());
	EXPECT_EQ(0, memreg_lease_destroy(m, lease));
	EXPECT_EQ(0, memreg_lease_destroy(m, other));
	EXPECT_EQ(-ENOENT, memreg_lease_destroy(m, other));
	memreg_status_destroy(status);
	memreg_close(m);
}

/*
 * An owner that is a process of its own
 */

/**
 * struct offer - What it says of its memory
 * @port: Port that it listens on
 * @iova: Address of the window
 * @rkey: Its key
 * @deadline: Deadline of its lease
 */
struct offer {
	__be16 port;
	__u64 iova;
	__u32 rkey;
	uint64_t deadline;
};

#define OWNER_TRY(_call)						\
	do {								\
		if (_call)						\
			_exit(__LINE__ & 0x7f);				\
	} while (0)

/* Grant for so many nanoseconds, and wait for the end. */
static void own(int out, uint64_t in)
{
	struct ib_memreg_bind bind = { .length = PAGE, .access = REMOTE_READ };
	__u32 domain, endpoint, lease, ended;
	struct offer offer = {};
	int fd = raw_open_bound();
	void *mem = mem_alloc(LEN);

	OWNER_TRY(fd < 0 || !mem);
	OWNER_TRY(raw_domain(fd, &domain));
	OWNER_TRY(raw_register(fd, domain, mem, LEN, FOR_WINDOWS,
			       &bind.mr_id));
	OWNER_TRY(raw_windows(fd, domain, LEN, &bind.window_id, 1));
	OWNER_TRY(raw_listen(fd, &offer.port));
	OWNER_TRY(write(out, &offer, sizeof(offer)) != sizeof(offer));
	OWNER_TRY(raw_await(fd, IB_MEMREG_EVENT_CONNECT_REQUEST, &endpoint));
	offer.deadline = boottime_ns() + in;
	OWNER_TRY(raw_lease(fd, offer.deadline, &lease));
	bind.lease_id = lease;
	OWNER_TRY(raw_bind(fd, domain, &bind, 1));
	OWNER_TRY(raw_accept(fd, endpoint, domain));
	offer.iova = bind.out_iova;
	offer.rkey = bind.out_rkey;
	OWNER_TRY(write(out, &offer, sizeof(offer)) != sizeof(offer));
	OWNER_TRY(raw_await(fd, IB_MEMREG_EVENT_LEASE_ENDED, &ended));
	OWNER_TRY(ended != lease);
	_exit(0);
}

static pid_t owner_fork(int *in, uint64_t deadline)
{
	int pipes[2];
	pid_t pid;

	if (pipe(pipes))
		return -1;
	pid = fork();
	if (!pid)
		own(pipes[1], deadline);
	close(pipes[1]);
	*in = pipes[0];
	return pid;
}

TEST(lease_ends_while_its_owner_is_stopped)
{
	struct offer offer = {};
	struct stock stock;
	struct reads r = { .stock = &stock };
	int in, status;
	pid_t pid = owner_fork(&in, 4 * SECOND);

	ASSERT_LT(0, pid);
	ASSERT_EQ(sizeof(offer), read(in, &offer, sizeof(offer)));
	ASSERT_EQ(0, stock_open(&stock, LEN));
	ASSERT_EQ(0, stock_connect(&stock, OWNER_IP4, offer.port));
	ASSERT_EQ(sizeof(offer), read(in, &offer, sizeof(offer)));
	ASSERT_EQ(0, stock_established(&stock));
	r.iova = offer.iova;
	r.rkey = offer.rkey;
	ASSERT_EQ(IBV_WC_SUCCESS, read_once(&r));
	ASSERT_EQ(0, kill(pid, SIGSTOP));
	ASSERT_TRUE(task_is(pid, 'T'));
	ASSERT_LT(boottime_ns(), offer.deadline)
		TH_LOG("the machine is too slow for this test");
	reads_until(_metadata, &r, offer.deadline);
	EXPECT_TRUE(task_is(pid, 'T'));
	ASSERT_EQ(0, kill(pid, SIGCONT));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	stock_close(&stock);
	close(in);
}

/*
 * Races
 */

#define RACERS	4
#define LEASES	4
#define RACED	16

/**
 * struct contest - What threads race for
 * @fd: A file
 * @domain: A domain
 * @mr: An MR
 * @windows: Windows of the domain
 * @leases: Ids of leases, or 0
 * @until: Time at which they end
 * @odd: A call failed with an errno that it may not have here
 * @bound: Binds that succeeded
 */
struct contest {
	int fd;
	__u32 domain;
	__u32 mr;
	__u32 windows[RACED];
	_Atomic __u32 leases[LEASES];
	uint64_t until;
	_Atomic int odd;
	_Atomic unsigned int bound;
};

static void check(struct contest *c, int ret, int a, int b, int d)
{
	if (ret && ret != -a && ret != -b && ret != -d)
		atomic_store(&c->odd, ret);
}

static void race_bind(struct contest *c, unsigned int *seed)
{
	struct ib_memreg_bind binds[4];
	unsigned int i, first = rand_r(seed) % (RACED - 4);
	__u32 lease = c->leases[rand_r(seed) % LEASES];
	int ret;

	for (i = 0; i < 4; i++)
		binds[i] = (struct ib_memreg_bind) {
			.window_id = c->windows[first + i],
			.mr_id = c->mr,
			.length = PAGE,
			.access = REMOTE_READ,
			.lease_id = lease,
		};
	ret = raw_bind(c->fd, c->domain, binds, 4);
	check(c, ret, ESTALE, EBUSY, ENOENT);
	c->bound += !ret;
}

static void *racer(void *arg)
{
	struct contest *c = arg;
	unsigned int seed = (uintptr_t)&seed >> 12 ^ test_seed(), i;
	__u32 lease;
	int ret;

	while (boottime_ns() < c->until) {
		i = rand_r(&seed) % LEASES;
		lease = c->leases[i];
		switch (rand_r(&seed) % 6) {
		case 0:
			check(c, raw_revoke(c->fd, c->domain,
					    &c->windows[rand_r(&seed) %
							(RACED - 4)], 4),
			      EBUSY, 0, 0);
			break;
		case 1:
			ret = raw_renew(c->fd, lease, boottime_ns() +
					rand_r(&seed) % 40 * MS);
			check(c, ret, ESTALE, ENOENT, 0);
			break;
		case 2:
			ret = raw_destroy(c->fd, lease);
			check(c, ret, EBUSY, ENOENT, 0);
			if (ret)
				break;
			ret = raw_lease(c->fd, boottime_ns() +
					rand_r(&seed) % 100 * MS, &lease);
			check(c, ret, 0, 0, 0);
			if (!ret)
				c->leases[i] = lease;
			break;
		default:
			race_bind(c, &seed);
		}
	}
	return NULL;
}

/* Returns 0, or an unexpected -errno. */
static int contest_run(struct contest *c, uint64_t duration)
{
	pthread_t threads[RACERS];
	unsigned int i;
	__u32 lease;
	int ret = 0;

	for (i = 0; i < LEASES && !ret; i++) {
		ret = raw_lease(c->fd, boottime_ns() + i * MS, &lease);
		c->leases[i] = lease;
	}
	c->until = boottime_ns() + duration;
	for (i = 0; i < RACERS && !ret; i++)
		ret = -pthread_create(&threads[i], NULL, racer, c);
	while (i-- && !ret)
		pthread_join(threads[i], NULL);
	return ret ?: c->odd;
}

TEST_F_TIMEOUT(lease, calls_and_ends_race, SOAK_S)
{
	struct contest c = {
		.fd = self->fd, .domain = self->domain, .mr = self->mr,
	};
	unsigned int i;

	memcpy(c.windows, self->windows, sizeof(c.windows));
	EXPECT_EQ(0, contest_run(&c, times(6, 60) * SECOND));
	EXPECT_LT(0, c.bound);
	/* All end, and then nothing is bound that has a lease. */
	for (i = 0; i < LEASES; i++)
		raw_renew(self->fd, c.leases[i], 0);
	EXPECT_EQ(0, raw_revoke(self->fd, self->domain, self->windows, RACED));
	for (i = 0; i < LEASES; i++) {
		AWAIT(look(c.leases[i]).users == 0);
		EXPECT_EQ(1, look(c.leases[i]).u.lease.ended);
		EXPECT_EQ(0, raw_destroy(self->fd, c.leases[i]));
	}
	EXPECT_EQ(0, windows_bound());
	EXPECT_TRUE(no_event(self->fd));
	EXPECT_EQ(0, raw_destroy(self->fd, self->mr));
}

/* A child that is killed, or closes its file, while leases end */
static void contend(bool closes)
{
	struct contest c = {};
	void *mem = mem_alloc(LEN);

	c.fd = raw_open_bound();
	OWNER_TRY(c.fd < 0 || !mem);
	OWNER_TRY(raw_domain(c.fd, &c.domain));
	OWNER_TRY(raw_register(c.fd, c.domain, mem, LEN, FOR_WINDOWS, &c.mr));
	OWNER_TRY(raw_windows(c.fd, c.domain, LEN, c.windows, RACED));
	OWNER_TRY(contest_run(&c, closes ? 50 * MS : 3600 * SECOND));
	OWNER_TRY(close(c.fd));
	_exit(0);
}

TEST_F_TIMEOUT(lease, I7_ends_race_with_the_end_of_the_file, SOAK_S)
{
	unsigned int i, rounds = test_rounds(20);
	int status;
	pid_t pid;

	srand(test_seed());
	for (i = 0; i < rounds; i++) {
		pid = fork();
		if (!pid)
			contend(i & 1);
		ASSERT_LT(0, pid);
		if (!(i & 1)) {
			usleep(rand() % 200000);
			kill(pid, SIGKILL);
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		if (i & 1)
			EXPECT_EQ(0, status);
		AWAIT(state_count(IB_MEMREG_OBJECT_LEASE) == 0);
	}
}

TEST_HARNESS_MAIN
