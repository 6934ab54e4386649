// SPDX-License-Identifier: GPL-2.0-only
/*
 * The registration queue breaks at the worst moments: when keys have to die
 * because the mapping changes, or because the owner revokes them, and when the
 * queue cannot be rebuilt. Faults are injected at the points of
 * kernel/inject.c; a stock peer writes all the time.
 *
 * time limit: 240
 */
#include <signal.h>

#include "fault.h"
#include "harness.h"
#include "memreg.h"
#include "net.h"
#include "owner.h"
#include "peer.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define SPAN		(16 * PAGE)
#define WINDOWS		4
#define FILLER		0x5a
/* Many more windows than a domain keeps idle FRWRs for */
#define GRANTS		200

/*
 * What a change of the mapping may wait for, with few keys: 1 s for them, 1 s
 * for room (Documentation/overview.rst), and time for a slow machine. Calls
 * wait for 10 s before they give up on the queue, which then is rebuilt.
 */
#define UNMAP_MS	9000
#define REVOKE_MS	18000

FIXTURE(broken)
{
	struct owner o;
	int file;
	uint8_t *mem;
	long pinned;		/* pages of the system, without ours */
	struct memreg_mr mr;
	uint32_t windows[WINDOWS];
	struct ib_memreg_bind binds[WINDOWS];
	struct peer p;
	uint32_t endpoint;
};

static int bind_windows(FIXTURE_DATA(broken) *self, unsigned int first,
			unsigned int count)
{
	unsigned int i;

	for (i = first; i < first + count; i++)
		self->binds[i] = (struct ib_memreg_bind) {
			.window_id = self->windows[i],
			.mr_id = self->mr.id,
			.length = SPAN,
			.access = REMOTE_RW,
		};
	return memreg_window_bind_batch(self->o.m, self->o.domain,
					self->binds + first, count, NULL);
}

typedef int revoke_fn(struct memreg *m, uint32_t domain,
		      const uint32_t *windows, unsigned int count,
		      unsigned int *failed);

static int revoke_windows(FIXTURE_DATA(broken) *self, unsigned int first,
			  unsigned int count)
{
	return memreg_window_revoke_batch(self->o.m, self->o.domain,
					  self->windows + first, count, NULL);
}

static void own(struct __test_metadata *_metadata, FIXTURE_DATA(broken) *self)
{
	self->mem = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_SHARED,
			 self->file, 0);
	ASSERT_NE(MAP_FAILED, self->mem);
	memset(self->mem, FILLER, SPAN);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain, self->mem,
					SPAN, FOR_WINDOWS | REMOTE_RW, 0,
					&self->mr))
		TH_LOG("%s", memreg_reason());
	/* The last one stays free */
	ASSERT_EQ(0, bind_windows(self, 0, WINDOWS - 1));
}

FIXTURE_SETUP(broken)
{
	struct memreg_grant g = { .length = SPAN, .access = REMOTE_RW };

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	owner_open(_metadata, &self->o);
	self->file = memfd_create("broken", MFD_CLOEXEC);
	ASSERT_LE(0, self->file);
	ASSERT_EQ(0, ftruncate(self->file, SPAN));
	ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
					 IB_MEMREG_WINDOW_TYPE1, SPAN,
					 self->windows, WINDOWS));
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, "-d 8");
	self->endpoint = owner_await(_metadata, &self->o,
				     IB_MEMREG_EVENT_CONNECT_REQUEST, NULL);
	self->pinned = pages_pinned();
	own(_metadata, self);
	g.iova = self->binds[0].out_iova;
	g.rkey = self->binds[0].out_rkey;
	owner_accept(_metadata, &self->o, self->endpoint, self->o.domain, &g);
	peer_answer(_metadata, &self->p);
}

FIXTURE_TEARDOWN(broken)
{
	peer_stop(&self->p, 0);
	owner_close(&self->o);
	munmap(self->mem, SPAN);
	close(self->file);
	EXPECT_EQ(0, vm_pin(0));
}

/*
 * Ways to break it
 */

struct fault {
	const char *point;
	unsigned int skip;
	int times;
};

FIXTURE_VARIANT(broken)
{
	struct fault fault;
	const char *down;	/* it is broken already, and stays so by this */
	bool slow;		/* whoever meets the fault has patience */
	bool truncate;		/* rather than unmap */
};

#define WAY(_name, _point, _skip, ...)					\
	FIXTURE_VARIANT_ADD(broken, _name)				\
	{								\
		.fault = { _point, _skip, 1 }, __VA_ARGS__		\
	}

WAY(post_fails, "post_send", 0, .down = NULL);
WAY(post_fails_in_part, "post_send", 2, .down = NULL);
/* The queue does not accept the work request that marks its end, either. */
FIXTURE_VARIANT_ADD(broken, post_and_drain_fail)
{
	.fault = { "post_send", 2, 2 },
};

WAY(work_fails, "work_request", 0, .down = NULL);
WAY(work_fails_midway, "work_request", 2, .truncate = true);
WAY(completion_is_lost, "completion", 0, .slow = true);
WAY(queue_is_down, "work_request", 0, .down = "queue_connect");
WAY(no_queue_can_be_had, "work_request", 0, .down = "queue_create");

static void order(const struct fault *fault)
{
	fault_order(fault->point, fault->skip, fault->times);
}

/* Wait until the injected fault has hit a work request of the worker's. */
static void fault_is_met(struct __test_metadata *_metadata,
			 const struct fault *fault)
{
	int64_t end = now_ms() + LIMIT_MS;

	while (fault_pending(fault->point)) {
		ASSERT_GT(end, now_ms());
		usleep(1000);
	}
}

/* The queue fails, and can't be rebuilt */
static void take_down(struct __test_metadata *_metadata,
		      FIXTURE_DATA(broken) *self, const char *down,
		      const struct fault *fault)
{
	fault_order(down, 0, -1);
	order(fault);
	ASSERT_EQ(-ENETDOWN, bind_windows(self, WINDOWS - 1, 1));
	fault_is_met(_metadata, fault);
}

static void no_more_faults(void)
{
	static const char *const points[] = {
		"post_send", "work_request", "completion", "queue_create",
		"queue_connect",
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(points); i++)
		fault_cancel(points[i]);
}

/* Guarantees that hold nevertheless */

/* A key that cannot be invalidated in time is destroyed soon afterwards */
static void await_refusal(struct __test_metadata *_metadata,
			  FIXTURE_DATA(broken) *self, uint32_t rkey)
{
	int64_t end = now_ms() + LIMIT_MS;

	peer_ask(_metadata, &self->p, "iova 0x%llx", self->binds[0].out_iova);
	peer_ask(_metadata, &self->p, "rkey 0x%x", rkey);
	do {
		ASSERT_GT(end, now_ms());
		self->endpoint = owner_admit_again(_metadata, &self->o,
						   &self->p, self->endpoint);
		peer_ask(_metadata, &self->p, "write 0 8 1");
	} while (!strcmp("success", peer_value(&self->p, "status")));
	ASSERT_PEER("remote-access-error", &self->p);
}

static void mr_is_stale(struct __test_metadata *_metadata,
			FIXTURE_DATA(broken) *self)
{
	struct memreg_mr_info info;

	ASSERT_EQ(0, memreg_mr_query(self->o.m, self->mr.id, &info, NULL,
				     NULL));
	ASSERT_EQ(IB_MEMREG_MR_STALE, info.state);
	ASSERT_EQ(1, info.generation);
	/*
	 * The pages of the MR are pinned still, so that the peer can reach no
	 * others.
	 */
	ASSERT_EQ(SPAN / PAGE, info.pinned);
	ASSERT_EQ(SPAN / PAGE, vm_pin(0));
	ASSERT_LE(SPAN / PAGE, pages_pinned() - self->pinned);
}

static void in_time(struct __test_metadata *_metadata, int64_t since,
		    int64_t bound)
{
	int64_t t = now_ms() - since;

	TH_LOG("returned after %lld ms", (long long)t);
	EXPECT_GE(bound, t);
}

/* Destroy all objects, and make them again with other memory. */
static void starts_over(struct __test_metadata *_metadata,
			FIXTURE_DATA(broken) *self)
{
	ASSERT_EQ(0, revoke_windows(self, 0, WINDOWS));
	ASSERT_EQ(0, memreg_mr_deregister(self->o.m, self->mr.id));
	ASSERT_EQ(0, vm_pin(0));
	no_more_faults();
	ASSERT_EQ(0, munmap(self->mem, SPAN));
	ASSERT_EQ(0, ftruncate(self->file, SPAN));
	own(_metadata, self);
	self->endpoint = owner_admit_again(_metadata, &self->o, &self->p,
					   self->endpoint);
	peer_ask(_metadata, &self->p, "iova 0x%llx", self->binds[1].out_iova);
	peer_ask(_metadata, &self->p, "rkey 0x%x", self->binds[1].out_rkey);
	peer_ask(_metadata, &self->p, "write 0 %lu 0x77", SPAN);
	ASSERT_PEER("success", &self->p);
	ASSERT_EQ(0x77, self->mem[SPAN - 1]);
}

TEST_F_TIMEOUT(broken, I1_I2_I4_mapping_goes_while_the_queue_breaks, LIMIT_S)
{
	uint32_t rkey = self->binds[1].out_rkey;
	int64_t t;
	size_t i;

	peer_ask(_metadata, &self->p, "start write 0 %lu 1", SPAN);
	ASSERT_PEER("success", &self->p);
	if (variant->down)
		take_down(_metadata, self, variant->down,
			  &variant->fault);
	else
		order(&variant->fault);
	t = now_ms();
	if (variant->truncate)
		ASSERT_EQ(0, ftruncate(self->file, 0));
	ASSERT_EQ(self->mem, mmap(self->mem, SPAN, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
				  0));
	in_time(_metadata, t, UNMAP_MS);
	memset(self->mem, FILLER, SPAN);
	mr_is_stale(_metadata, self);
	fault_is_met(_metadata, &variant->fault);

	peer_ask(_metadata, &self->p, "join %d", LIMIT_MS / 2);
	ASSERT_PEER("remote-access-error", &self->p);
	await_refusal(_metadata, self, rkey);
	await_refusal(_metadata, self, self->mr.rkey);
	for (i = 0; i < SPAN; i++)
		ASSERT_EQ(FILLER, self->mem[i]);
	mr_is_stale(_metadata, self);
	starts_over(_metadata, self);
}

/*
 * The module does not use a device's MR again whose work request failed or was
 * flushed.
 */
static void never_again(struct __test_metadata *_metadata,
			FIXTURE_DATA(broken) *self,
			const struct ib_memreg_bind *failed,
			unsigned int count)
{
	unsigned int i, j;

	for (i = 0; i < GRANTS; i++) {
		ASSERT_EQ(0, bind_windows(self, WINDOWS - 1, 1));
		for (j = 0; j < count; j++)
			ASSERT_NE(failed[j].out_rkey >> 8,
				  self->binds[WINDOWS - 1].out_rkey >> 8);
		ASSERT_EQ(0, revoke_windows(self, WINDOWS - 1, 1));
	}
}

/* Does this revoke take work requests? */
static bool takes_queue(FIXTURE_DATA(broken) *self, revoke_fn *revoke)
{
	uint64_t strict = 0;

	memreg_query_cap(self->o.m, IB_MEMREG_CAP_STRICT_INVALIDATE, &strict);
	return strict || revoke == memreg_window_revoke_relaxed;
}

static void revoke_while_it_breaks(struct __test_metadata *_metadata,
				   FIXTURE_DATA(broken) *self,
				   const FIXTURE_VARIANT(broken) *variant,
				   revoke_fn *revoke)
{
	struct ib_memreg_bind revoked[WINDOWS];
	/* Work requests before it may have succeeded */
	unsigned int first = variant->fault.skip;
	int64_t t;

	peer_ask(_metadata, &self->p, "start write 0 %lu 1", SPAN);
	ASSERT_PEER("success", &self->p);
	if (variant->down)
		take_down(_metadata, self, variant->down,
			  &variant->fault);
	else
		order(&variant->fault);
	memcpy(revoked, self->binds, sizeof(revoked));
	t = now_ms();
	ASSERT_EQ(0, revoke(self->o.m, self->o.domain, self->windows,
			    WINDOWS - 1, NULL));
	in_time(_metadata, t, REVOKE_MS);
	if (takes_queue(self, revoke))
		fault_is_met(_metadata, &variant->fault);
	peer_ask(_metadata, &self->p, "join %d", LIMIT_MS / 2);
	ASSERT_PEER("remote-access-error", &self->p);
	no_more_faults();
	never_again(_metadata, self, revoked + first, WINDOWS - 1 - first);
	starts_over(_metadata, self);
}

/* A revoke cannot fail: a key that it cannot invalidate, it destroys */
TEST_F_TIMEOUT(broken, I3_I4_revoke_while_the_queue_breaks, LIMIT_S)
{
	revoke_while_it_breaks(_metadata, self, variant,
			       memreg_window_revoke_batch);
}

TEST_F_TIMEOUT(broken, I3_I4_relaxed_revoke_while_the_queue_breaks, LIMIT_S)
{
	revoke_while_it_breaks(_metadata, self, variant,
			       memreg_window_revoke_relaxed);
}

/* An MR whose keys can't be made is not registered, and the cause is named. */
static void register_fails(struct __test_metadata *_metadata,
			   FIXTURE_DATA(broken) *self, int err,
			   const char *cause)
{
	struct memreg_mr mr;

	EXPECT_EQ(err, memreg_mr_register(self->o.m, self->o.domain, self->mem,
					  SPAN, FOR_WINDOWS | REMOTE_RW, 0,
					  &mr));
	EXPECT_EQ(IB_MEMREG_REASON_QUEUE, memreg_reason_code());
	EXPECT_NE(NULL, strstr(memreg_reason(), cause))
		TH_LOG("%s", memreg_reason());
}

/*
 * The bind tries again with other MRs of the device. If these fail as well it
 * binds no window.
 */
TEST_F_TIMEOUT(broken, I8_windows_are_bound_or_not, LIMIT_S)
{
	struct state before;

	ASSERT_EQ(0, revoke_windows(self, 0, WINDOWS - 1));
	ASSERT_EQ(0, state_get(&before));
	if (variant->down) {
		take_down(_metadata, self, variant->down,
			  &variant->fault);
		ASSERT_EQ(-ENETDOWN, bind_windows(self, 0, WINDOWS));
		register_fails(_metadata, self, -ENETDOWN,
			       "the registration queue is down");
	} else if (!variant->slow) {
		fault_order(variant->fault.point, 0, -1);
		ASSERT_EQ(-EIO, bind_windows(self, 0, WINDOWS));
		register_fails(_metadata, self, -EIO,
			       "the registration queue failed");
	}
	no_more_faults();
	if (!variant->down)
		order(&variant->fault);
	ASSERT_EQ(0, bind_windows(self, 0, WINDOWS));
	fault_is_met(_metadata, &variant->fault);
	ASSERT_EQ(0, revoke_windows(self, 0, WINDOWS));
	ASSERT_TRUE(state_same(&before));
	state_free(&before);
}

/*
 * Run another owner, with memory of its own, that is killed at once; reports
 * errors
 */
static void live_and_die(const struct fault *fault, const char *down)
{
	uint8_t *mem = mmap(NULL, SPAN, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ib_memreg_bind bind = { .length = SPAN, .access = REMOTE_RW };
	struct memreg_mr mr;
	struct memreg *m;
	uint32_t domain;

	if (memreg_open(OWNER_DEVICE, &m) ||
	    memreg_domain_create(m, 0, &domain) ||
	    memreg_mr_register(m, domain, mem, SPAN, FOR_WINDOWS | REMOTE_RW,
			       0, &mr) ||
	    memreg_window_alloc(m, domain, IB_MEMREG_WINDOW_TYPE1, SPAN,
				&bind.window_id, 1))
		_exit(1);
	bind.mr_id = mr.id;
	if (down)
		fault_order(down, 0, -1);
	fault_order(fault->point, 0, fault->times);
	if (down && memreg_window_bind(m, domain, &bind) != -ENETDOWN)
		_exit(2);
	kill(getpid(), SIGKILL);
}

TEST_F_TIMEOUT(broken, I7_owner_is_killed_while_the_queue_breaks, LIMIT_S)
{
	long pinned = pages_pinned();
	pid_t pid = fork();
	int status;

	ASSERT_LE(0, pid);
	if (!pid)
		live_and_die(&variant->fault, variant->down);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_TRUE(WIFSIGNALED(status))
		TH_LOG("status %#x", status);
	fault_is_met(_metadata, &variant->fault);
	no_more_faults();
	ASSERT_EQ(pinned, pages_pinned());
	ASSERT_EQ(1, state_count(IB_MEMREG_OBJECT_FILE));
}

/*
 * The memory of many MRs is unmapped at once, while the registration queue
 * completes nothing. The first guard waits in vain, and the others do not wait
 * again.
 */

/* More MRs than a registration queue has room for */
#define MRS		100
/* If each guard waited, all would take 100 s. */
#define CROWD_MS	15000

FIXTURE(crowd)
{
	struct owner o;
	uint8_t *mem;
	uint32_t mrs[MRS];
};

FIXTURE_VARIANT(crowd)
{
	bool down;		/* nor can it be rebuilt */
};

FIXTURE_VARIANT_ADD(crowd, queue_is_rebuilt) { .down = false };
FIXTURE_VARIANT_ADD(crowd, queue_stays_down) { .down = true };

FIXTURE_SETUP(crowd)
{
	struct memreg_mr mr;
	unsigned int i;

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	owner_open(_metadata, &self->o);
	self->mem = mmap(NULL, MRS * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->mem);
	for (i = 0; i < MRS; i++) {
		ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain,
						self->mem + i * PAGE, PAGE,
						IB_MEMREG_ACCESS_LOCAL_WRITE |
						REMOTE_RW, 0, &mr));
		self->mrs[i] = mr.id;
	}
}

FIXTURE_TEARDOWN(crowd)
{
	no_more_faults();
	owner_close(&self->o);
	EXPECT_EQ(0, vm_pin(0));
}

static void all_stale(struct __test_metadata *_metadata,
		      FIXTURE_DATA(crowd) *self)
{
	struct memreg_mr_info info;
	unsigned int i;

	for (i = 0; i < MRS; i++) {
		ASSERT_EQ(0, memreg_mr_query(self->o.m, self->mrs[i], &info,
					     NULL, NULL));
		ASSERT_EQ(IB_MEMREG_MR_STALE, info.state);
		ASSERT_EQ(1, info.pinned);
	}
}

static uint64_t counter(struct __test_metadata *_metadata,
			FIXTURE_DATA(crowd) *self, uint32_t stat)
{
	__u64 value;

	ASSERT_EQ(0, raw_stat(memreg_fd(self->o.m), stat, &value));
	return value;
}

/* Wait until MRs whose completion was lost are destroyed */
static void await_deaths(struct __test_metadata *_metadata,
			 FIXTURE_DATA(crowd) *self, uint64_t before)
{
	int64_t end = now_ms() + LIMIT_MS;

	while (counter(_metadata, self, IB_MEMREG_STAT_KEYS_KILLED) <
	       before + MRS) {
		ASSERT_GT(end, now_ms());
		usleep(1000);
	}
}

TEST_F_TIMEOUT(crowd, I1_one_guard_waits_for_all_of_them, LIMIT_S)
{
	uint64_t waits, killed;
	unsigned int i;
	int64_t t;

	waits = counter(_metadata, self, IB_MEMREG_STAT_GUARD_TIMEOUTS);
	killed = counter(_metadata, self, IB_MEMREG_STAT_KEYS_KILLED);
	if (variant->down)
		fault_order("queue_connect", 0, -1);
	fault_order("completion", 0, -1);
	t = now_ms();
	ASSERT_EQ(0, munmap(self->mem, MRS * PAGE));
	in_time(_metadata, t, CROWD_MS);
	waits = counter(_metadata, self, IB_MEMREG_STAT_GUARD_TIMEOUTS) - waits;
	TH_LOG("%llu guards waited in vain", (unsigned long long)waits);
	EXPECT_LT(0, waits);
	all_stale(_metadata, self);
	await_deaths(_metadata, self, killed);
	no_more_faults();
	for (i = 0; i < MRS; i++)
		ASSERT_EQ(0, memreg_mr_deregister(self->o.m, self->mrs[i]));
	ASSERT_EQ(0, vm_pin(0));
}

PEER_HARNESS_MAIN
