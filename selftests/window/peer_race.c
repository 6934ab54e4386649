// SPDX-License-Identifier: GPL-2.0-only
/*
 * I3: a peer writes as fast as it can while its window is taken away. As soon
 * as the owner's call has returned the owner writes all of the window, and that
 * must stay.
 *
 * A device handles the packets of a connection in their order. So once the peer
 * has its access error, none of the packets before is under way, and the memory
 * can be looked at for the last time.
 *
 * It takes luck for a packet to be under way just then. So one is also held
 * there, where that can be done.
 *
 * time limit: 600
 * soak in parts: 5
 */
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "module.h"
#include "net.h"
#include "owner.h"
#include "peer.h"
#include "raw.h"
#include "test.h"

#define SPAN	(16 * PAGE)
#define BATCH	8
#define WAYS	5	/* tests, each with its way of revoking */

FIXTURE(race)
{
	struct owner o;
	struct arena a;
	struct memreg_mr mr;
	uint32_t window;
	struct peer p;
	uint32_t endpoint;
	uint32_t batch[BATCH];	/* windows that are revoked in one call */
	bool strict;		/* the device's own promise */
	void *alias;		/* the memory at an address that goes */
	_Atomic bool taken;	/* by the first of two who try */
};

FIXTURE_SETUP(race)
{
	uint64_t strict;

	owner_open(_metadata, &self->o);
	ASSERT_EQ(0, memreg_query_cap(self->o.m,
				      IB_MEMREG_CAP_STRICT_INVALIDATE,
				      &strict));
	self->strict = strict;
	arena_make(_metadata, &self->a, SPAN + 2 * PAGE);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain, self->a.mem,
					self->a.len, FOR_WINDOWS, 0,
					&self->mr));
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, "-d 16");
	self->endpoint = owner_admit(_metadata, &self->o, &self->p,
				     self->o.domain, NULL);
}

FIXTURE_TEARDOWN(race)
{
	peer_stop(&self->p, 0);
	owner_close(&self->o);
	arena_free(&self->a);
}

static void bind_window(struct __test_metadata *_metadata,
			FIXTURE_DATA(race) *self)
{
	struct ib_memreg_bind bind = {
		.window_id = self->window,
		.mr_id = self->mr.id,
		.offset = PAGE,
		.length = SPAN,
		.access = REMOTE_RW,
	};
	struct memreg_grant g;

	owner_bind(_metadata, &self->o, self->o.domain, &bind, &g);
	peer_ask(_metadata, &self->p, "iova 0x%llx", bind.out_iova);
	peer_ask(_metadata, &self->p, "rkey 0x%x", g.rkey);
}

static void begin_writes(struct __test_metadata *_metadata,
			 FIXTURE_DATA(race) *self, unsigned int byte)
{
	bind_window(_metadata, self);
	peer_ask(_metadata, &self->p, "start write 0 %lu %u", SPAN, byte);
	ASSERT_PEER("success", &self->p);
	memset(self->a.copy + PAGE, (int)byte, SPAN);
}

static void begin_reads(struct __test_metadata *_metadata,
			FIXTURE_DATA(race) *self)
{
	bind_window(_metadata, self);
	peer_ask(_metadata, &self->p, "start read 0 %lu", SPAN);
	ASSERT_PEER("success", &self->p);
}

/*
 * Number of bytes that changed after the owner had revoked the window and
 * written all
 */
static size_t late_bytes(struct __test_metadata *_metadata,
			 FIXTURE_DATA(race) *self)
{
	size_t i, late = 0;

	peer_ask(_metadata, &self->p, "join %d", LIMIT_MS / 2);
	ASSERT_PEER("remote-access-error", &self->p);
	for (i = 0; i < self->a.len; i++)
		late += self->a.mem[i] != self->a.copy[i];
	return late;
}

/*
 * Have the peer write while @take takes the window away. Returns the number of
 * late bytes.
 */
static size_t race_once(struct __test_metadata *_metadata,
			FIXTURE_DATA(race) *self,
			int (*take)(FIXTURE_DATA(race) *self),
			unsigned int round)
{
	size_t late;

	begin_writes(_metadata, self, 0x80 + round % 64);
	ASSERT_EQ(0, take(self))
		TH_LOG("%s", memreg_reason());
	arena_fill(&self->a, round);
	late = late_bytes(_metadata, self);
	self->endpoint = owner_admit_again(_metadata, &self->o, &self->p,
					   self->endpoint);
	return late;
}

/* Race for a window that is made for the purpose, and destroyed. */
static size_t race(struct __test_metadata *_metadata, FIXTURE_DATA(race) *self,
		   int (*take)(FIXTURE_DATA(race) *self), unsigned int round)
{
	size_t late;

	ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
					 IB_MEMREG_WINDOW_TYPE1, SPAN,
					 &self->window, 1));
	late = race_once(_metadata, self, take, round);
	memreg_window_free(self->o.m, self->window);
	return late;
}

static int take_by_revoke(FIXTURE_DATA(race) *self)
{
	return memreg_window_revoke(self->o.m, self->o.domain, self->window);
}

static int take_by_batch_revoke(FIXTURE_DATA(race) *self)
{
	return memreg_window_revoke_batch(self->o.m, self->o.domain,
					  self->batch, BATCH, NULL);
}

static int take_by_relaxed_revoke(FIXTURE_DATA(race) *self)
{
	return memreg_window_revoke_relaxed(self->o.m, self->o.domain,
					    self->batch, BATCH, NULL);
}

static int take_by_destroy(FIXTURE_DATA(race) *self)
{
	return memreg_window_free(self->o.m, self->window);
}

/*
 * Number of rounds, and index of the first: with --full, 10,000 in all are
 * divided among the ways to take a window away.
 */
static unsigned int rounds(unsigned int *first)
{
	unsigned int n = 12;

	*first = 0;
	if (test_full())
		n = test_share(10000 / WAYS, first);
	/* Each part has random numbers of its own. */
	srand(1 + *first);
	return n;
}

TEST_F_TIMEOUT(race, I3_nothing_lands_after_revoke, 36000)
{
	unsigned int first, n = rounds(&first), i;

	for (i = first; i < first + n; i++)
		ASSERT_EQ(0, race(_metadata, self, take_by_revoke, i));
}

TEST_F_TIMEOUT(race, I3_nothing_lands_after_destroying_a_window, 36000)
{
	unsigned int first, n = rounds(&first), i;

	for (i = first; i < first + n; i++)
		ASSERT_EQ(0, race(_metadata, self, take_by_destroy, i));
}

/*
 * Most late bytes: without strict invalidation the device may finish the packet
 * that it is handling, of a page at most.
 */
static size_t may_land(const FIXTURE_DATA(race) *self)
{
	return self->strict ? 0 : PAGE;
}

/* Bind all windows of the batch but number @at, which the peer will use. */
static void bind_others(struct __test_metadata *_metadata,
			FIXTURE_DATA(race) *self, unsigned int at)
{
	struct ib_memreg_bind bind = {
		.mr_id = self->mr.id,
		.length = SPAN,
		.access = REMOTE_RW,
	};
	unsigned int i;

	for (i = 0; i < BATCH; i++) {
		bind.window_id = self->batch[i];
		if (i != at)
			ASSERT_EQ(0, memreg_window_bind(self->o.m,
							self->o.domain, &bind));
	}
}

/* Race for a window at a random place in a batch that one call takes away. */
static void race_many(struct __test_metadata *_metadata,
		      FIXTURE_DATA(race) *self,
		      int (*take)(FIXTURE_DATA(race) *self), size_t bound)
{
	unsigned int first, n = rounds(&first), late = 0, i;

	ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
					 IB_MEMREG_WINDOW_TYPE1, SPAN,
					 self->batch, BATCH));
	for (i = first; i < first + n; i++) {
		size_t bytes;

		bind_others(_metadata, self, i % BATCH);
		self->window = self->batch[i % BATCH];
		bytes = race_once(_metadata, self, take, i);
		ASSERT_GE(bound, bytes);
		late += bytes != 0;
	}
	TH_LOG("late packets in %u of %u rounds", late, n);
}

TEST_F_TIMEOUT(race, I3_nothing_lands_after_revoking_many, 36000)
{
	race_many(_metadata, self, take_by_batch_revoke, 0);
}

/*
 * On a device without strict invalidation, packets whose key was checked before
 * the revoke may land after it.
 */
TEST_F_TIMEOUT(race, I3_nothing_is_accepted_after_relaxed_revoke, 36000)
{
	race_many(_metadata, self, take_by_relaxed_revoke, may_land(self));
}

/* A thread that takes the window away */
struct taker {
	pthread_t thread;
	FIXTURE_DATA(race) *self;
	int (*take)(FIXTURE_DATA(race) *self);
	unsigned int delay;
	unsigned int round;
	_Atomic pid_t tid;
	_Atomic bool done;
	int ret;
};

/*
 * Take the window away. The first of two threads whose call returns writes all
 * of the window.
 */
static void *take_and_write(void *arg)
{
	struct taker *t = arg;
	unsigned int i;

	t->tid = gettid();
	for (i = 0; i < t->delay; i++)
		atomic_thread_fence(memory_order_seq_cst);
	t->ret = t->take(t->self);
	if (!atomic_exchange(&t->self->taken, true))
		arena_fill(&t->self->a, t->round);
	t->done = true;
	return NULL;
}

/*
 * kernel/tests/hold.c, a module that knows soft-RoCE, holds a packet whose key
 * was checked and whose data was not copied yet.
 */

#define HOLD_MODULE	"ib_memreg_hold"
#define HOLD_PARAMETERS	"/sys/module/" HOLD_MODULE "/parameters/"

static bool hold_set(const char *value)
{
	FILE *f = fopen(HOLD_PARAMETERS "hold", "w");

	return f && fputs(value, f) >= 0 && !fclose(f);
}

static bool hold_is(const char *name, const char *value)
{
	FILE *f = fopen(name, "r");
	char line[64] = "";
	bool ret;

	ret = f && fgets(line, sizeof(line), f) && strstr(line, value);
	if (f)
		fclose(f);
	return ret;
}

/*
 * Is the thread, or the worker that destroys or invalidates the MR for it, in
 * the driver's wait for packets?
 */
static bool waits_for_packets(const struct taker *t)
{
	char path[64];
	bool ret = false;
	glob_t tasks;
	size_t i;

	snprintf(path, sizeof(path), "/proc/self/task/%d/wchan", t->tid);
	if (hold_is(path, "rxe_cleanup"))
		return true;
	if (glob("/proc/[0-9]*/wchan", 0, NULL, &tasks))
		return false;
	for (i = 0; i < tasks.gl_pathc && !ret; i++)
		ret = hold_is(tasks.gl_pathv[i], "rxe_cleanup") ||
		      hold_is(tasks.gl_pathv[i], "rxe_mr_wait_idle");
	globfree(&tasks);
	return ret;
}

/*
 * Hold a packet, and revoke its window. Returns the number of late bytes;
 * @returned is set if the call returned before the packet was released.
 */
static size_t race_with_held(struct __test_metadata *_metadata,
			     FIXTURE_DATA(race) *self,
			     int (*take)(FIXTURE_DATA(race) *self), bool reads,
			     bool *returned)
{
	struct taker t = { .self = self, .take = take, .round = 1 };
	int64_t end = now_ms() + LIMIT_MS;

	self->taken = false;
	if (reads)
		begin_reads(_metadata, self);
	else
		begin_writes(_metadata, self, 0x80);
	ASSERT_TRUE(hold_set(reads ? "2" : "1"));
	while (!hold_is(HOLD_PARAMETERS "held", "1")) {
		ASSERT_GT(end, now_ms());
		poll(NULL, 0, 1);
	}
	ASSERT_EQ(0, pthread_create(&t.thread, NULL, take_and_write, &t));
	while (!t.done && !waits_for_packets(&t)) {
		ASSERT_GT(end, now_ms());
		poll(NULL, 0, 1);
	}
	*returned = t.done;
	ASSERT_TRUE(hold_set("0"));
	pthread_join(t.thread, NULL);
	ASSERT_EQ(0, t.ret);
	ASSERT_TRUE(hold_is(HOLD_PARAMETERS "overdue", "0"));
	return late_bytes(_metadata, self);
}

/* Hold a packet of one window of a batch, and revoke the batch. */
static size_t race_many_with_held(struct __test_metadata *_metadata,
				  FIXTURE_DATA(race) *self,
				  int (*take)(FIXTURE_DATA(race) *self),
				  bool reads, bool *returned)
{
	size_t late;

	ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
					 IB_MEMREG_WINDOW_TYPE1, SPAN,
					 self->batch, BATCH));
	bind_others(_metadata, self, BATCH / 2);
	self->window = self->batch[BATCH / 2];
	late = race_with_held(_metadata, self, take, reads, returned);
	test_module_unload(HOLD_MODULE);
	return late;
}

TEST_F_TIMEOUT(race, I3_revoke_waits_for_a_write_in_flight, LIMIT_S)
{
	bool returned;

	if (!test_module_load(HOLD_MODULE, ""))
		SKIP(return, "no packet can be held");
	EXPECT_EQ(0, race_many_with_held(_metadata, self, take_by_batch_revoke,
					 false, &returned));
	EXPECT_FALSE(returned);
}

TEST_F_TIMEOUT(race, I3_revoke_waits_for_a_read_in_flight, LIMIT_S)
{
	bool returned;

	if (!test_module_load(HOLD_MODULE, ""))
		SKIP(return, "no packet can be held");
	EXPECT_EQ(0, race_many_with_held(_metadata, self, take_by_batch_revoke,
					 true, &returned));
	EXPECT_FALSE(returned);
}

TEST_F_TIMEOUT(race, I3_destroying_waits_for_a_write_in_flight, LIMIT_S)
{
	bool returned;

	if (!test_module_load(HOLD_MODULE, ""))
		SKIP(return, "no packet can be held");
	EXPECT_EQ(0, race_many_with_held(_metadata, self, take_by_destroy,
					 false, &returned));
	EXPECT_FALSE(returned);
}

/*
 * A packet that is held lands after a relaxed revoke. This shows that packets
 * would land in the other tests, too, if those calls did not wait.
 */
TEST_F_TIMEOUT(race, I3_relaxed_revoke_waits_for_no_packet, LIMIT_S)
{
	bool returned;
	size_t late;

	if (self->strict || !test_module_load(HOLD_MODULE, ""))
		SKIP(return, "no packet can be held");
	late = race_many_with_held(_metadata, self, take_by_relaxed_revoke,
				   false, &returned);
	EXPECT_TRUE(returned);
	EXPECT_LT(0, late);
	EXPECT_GE(may_land(self), late);
}

/*
 * A revoke races with an unmap
 */

static int take_by_unmap(FIXTURE_DATA(race) *self)
{
	return munmap(self->alias, self->a.len) ? -errno : 0;
}

/* Have two threads take the window away at the same time. */
static void take_twice(struct __test_metadata *_metadata, struct taker *takers)
{
	unsigned int i;

	takers[0].self->taken = false;
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&takers[i].thread, NULL,
					    take_and_write, &takers[i]));
	for (i = 0; i < 2; i++)
		pthread_join(takers[i].thread, NULL);
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, takers[i].ret);
}

static size_t race_with_unmap(struct __test_metadata *_metadata,
			      FIXTURE_DATA(race) *self, unsigned int round)
{
	struct taker takers[2] = {
		{ .self = self, .round = round, .delay = rand() % 5000,
		  .take = take_by_revoke },
		{ .self = self, .round = round, .delay = rand() % 5000,
		  .take = take_by_unmap },
	};
	size_t late;

	self->alias = mremap(self->a.mem, 0, self->a.len, MREMAP_MAYMOVE);
	ASSERT_NE(MAP_FAILED, self->alias);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain, self->alias,
					self->a.len, FOR_WINDOWS, 0,
					&self->mr));
	ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
					 IB_MEMREG_WINDOW_TYPE1, SPAN,
					 &self->window, 1));
	begin_writes(_metadata, self, 0x80 + round % 64);
	take_twice(_metadata, takers);
	late = late_bytes(_metadata, self);
	ASSERT_EQ(0, memreg_window_free(self->o.m, self->window));
	ASSERT_EQ(0, memreg_destroy(self->o.m, self->mr.id));
	self->endpoint = owner_admit_again(_metadata, &self->o, &self->p,
					   self->endpoint);
	return late;
}

TEST_F_TIMEOUT(race, I2_I3_revoke_races_with_unmap, 36000)
{
	unsigned int first, n = rounds(&first), i;

	for (i = first; i < first + n; i++)
		ASSERT_GE(may_land(self), race_with_unmap(_metadata, self, i));
}

PEER_HARNESS_MAIN
