// SPDX-License-Identifier: GPL-2.0-only
/* Each call changes exactly the counters that it should change. */
#include <pthread.h>
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

#define LENGTH		(4 * PAGE)
#define BATCH		8
#define COUNTERS							\
	(IB_MEMREG_STAT_DEMAND_WAIT + IB_MEMREG_DEMAND_WAITS - 1)
#define NOBODY		65534

/* The counters at one time, by their ids. */
struct counters {
	__u64 of[COUNTERS + 1];
};

FIXTURE(stat) {
	struct owner o;
	int fd;
	__u32 mr;
	__u32 windows[BATCH];
	struct ib_memreg_bind binds[BATCH];
	char *memory;
	struct counters before;
	__u64 offset;	/* of what is bound, in its MR */
	__u64 step;	/* from one batch to the next */
};

static int counters_get(int fd, struct counters *c)
{
	struct ib_memreg_stat_entry stats[COUNTERS] = {};
	RAW(device_stat, cmd, .count = COUNTERS, .stats = (uintptr_t)stats);
	int ret = raw_call(fd, IB_MEMREG_IOC_DEVICE_STAT, &cmd);
	unsigned int i;

	for (i = 0; !ret && i < COUNTERS; i++)
		c->of[stats[i].stat] = stats[i].value;
	return ret;
}

/* Change of a counter since look() last read all of them */
static __u64 moved(struct __test_metadata *_metadata,
		   FIXTURE_DATA(stat) *self, __u32 stat)
{
	struct counters now;

	ASSERT_EQ(0, counters_get(self->fd, &now));
	return now.of[stat] - self->before.of[stat];
}

/* Counters are compared with their values from here on. */
static void look(struct __test_metadata *_metadata, FIXTURE_DATA(stat) *self)
{
	ASSERT_EQ(0, counters_get(self->fd, &self->before));
}

/* The change that a counter must show, or its minimum if @more. */
struct move {
	__u32 stat;
	__u64 by;
	bool more;
};

static void expect_moves(struct __test_metadata *_metadata,
			 FIXTURE_DATA(stat) *self, const struct move *moves)
{
	struct counters now;
	unsigned int i;
	__u64 by;

	ASSERT_EQ(0, counters_get(self->fd, &now));
	for (; moves->stat; moves++) {
		by = now.of[moves->stat] - self->before.of[moves->stat];
		EXPECT_TRUE(moves->more ? by >= moves->by : by == moves->by)
			TH_LOG("counter %u: %llu instead of %llu", moves->stat,
			       (unsigned long long)by,
			       (unsigned long long)moves->by);
		now.of[moves->stat] = self->before.of[moves->stat];
	}
	/*
	 * The kernel may announce any number of changes of mappings, and does
	 * so at each fork(2).
	 */
	now.of[IB_MEMREG_STAT_GUARD_EVENTS] =
		self->before.of[IB_MEMREG_STAT_GUARD_EVENTS];
	for (i = 1; i <= COUNTERS; i++) {
		EXPECT_EQ(self->before.of[i], now.of[i])
			TH_LOG("counter %u, which was not to move", i);
	}
	look(_metadata, self);
}

/* These moved, and no others. */
#define MOVED(...)							\
	expect_moves(_metadata, self,					\
		     (const struct move[]){ __VA_ARGS__ { 0, 0, false } })
#define BY(_stat, _by)		{ IB_MEMREG_STAT_##_stat, _by, false },
#define AT_LEAST(_stat, _by)	{ IB_MEMREG_STAT_##_stat, _by, true },
#define ONE_BATCH(_n)		BY(BATCHES, 1) BY(WORK_REQUESTS, _n)

/* Wait until a counter has changed by @by. */
static void await_move(struct __test_metadata *_metadata,
		       FIXTURE_DATA(stat) *self, __u32 stat, __u64 by)
{
	int64_t end = now_ms() + LIMIT_MS;

	while (moved(_metadata, self, stat) < by) {
		ASSERT_GT(end, now_ms());
		poll(NULL, 0, 1);
	}
}

/* Memory whose pages are mapped already, so that pinning announces no change */
static char *touched(size_t length)
{
	char *memory = mem_alloc(length);

	return memory ? memset(memory, 1, length) : NULL;
}

static bool weak_invalidate(FIXTURE_DATA(stat) *self)
{
	__u64 strict = 1;

	raw_cap(self->fd, IB_MEMREG_CAP_STRICT_INVALIDATE, &strict);
	return !strict;
}

FIXTURE_SETUP(stat)
{
	owner_open(_metadata, &self->o);
	self->fd = memreg_fd(self->o.m);
	self->memory = touched(LENGTH);
	ASSERT_NE(NULL, self->memory);
	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, self->memory,
				  LENGTH, MW_BIND | LOCAL_WRITE, &self->mr));
	ASSERT_EQ(0, raw_windows(self->fd, self->o.domain, LENGTH,
				 self->windows, BATCH));
	look(_metadata, self);
}

FIXTURE_TEARDOWN(stat)
{
	owner_close(&self->o);
	EXPECT_EQ(0, vm_pin(0));
}

static int bind_in(FIXTURE_DATA(stat) *self, __u32 domain, __u32 *windows,
		   __u32 mr)
{
	int i;

	memset(self->binds, 0, sizeof(self->binds));
	for (i = 0; i < BATCH; i++) {
		self->binds[i].window_id = windows[i];
		self->binds[i].mr_id = mr;
		self->binds[i].offset = self->offset;
		self->binds[i].length = PAGE;
		self->binds[i].access = REMOTE_READ;
	}
	return raw_bind(self->fd, domain, self->binds, BATCH);
}

static int bind_all(FIXTURE_DATA(stat) *self)
{
	return bind_in(self, self->o.domain, self->windows, self->mr);
}

static int revoke_all(FIXTURE_DATA(stat) *self, __u32 flags)
{
	RAW(window_revoke, cmd, .flags = flags, .domain_id = self->o.domain,
	    .count = BATCH, .ids = (uintptr_t)self->windows);

	return raw_call(self->fd, IB_MEMREG_IOC_WINDOW_REVOKE, &cmd);
}

/*
 * The call
 */

TEST_F(stat, reports_each_counter_once_and_as_many_as_fit)
{
	struct ib_memreg_stat_entry stats[COUNTERS + 8];
	RAW(device_stat, cmd, .stats = (uintptr_t)stats);
	__u32 room, i;

	for (room = 0; room <= COUNTERS + 8; room++) {
		memset(stats, 0xee, sizeof(stats));
		cmd.count = room;
		ASSERT_EQ(0,
			  raw_call(self->fd, IB_MEMREG_IOC_DEVICE_STAT, &cmd));
		EXPECT_EQ(COUNTERS, cmd.count);
		for (i = 0; i < ARRAY_LEN(stats); i++) {
			bool filled = i < room && i < COUNTERS;

			EXPECT_EQ(filled ? i + 1 : 0xeeeeeeee, stats[i].stat);
			EXPECT_EQ(filled ? 0 : 0xeeeeeeee, stats[i].reserved);
		}
	}
}

TEST_F(stat, array_that_is_not_mapped_is_EFAULT)
{
	char *memory = mem_alloc(2 * PAGE);
	RAW(device_stat, cmd, .count = 2);

	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, munmap(memory + PAGE, PAGE));
	EXPECT_FAIL(EFAULT, NONE,
		    raw_call(self->fd, IB_MEMREG_IOC_DEVICE_STAT, &cmd));
	/* The second entry is in the hole. */
	cmd.stats = (uintptr_t)memory + PAGE -
		    sizeof(struct ib_memreg_stat_entry);
	EXPECT_FAIL(EFAULT, NONE,
		    raw_call(self->fd, IB_MEMREG_IOC_DEVICE_STAT, &cmd));
	cmd.count = 1;
	EXPECT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_DEVICE_STAT, &cmd));
	mem_free(memory, PAGE);
}

/*
 * Counters are sums that reveal nothing about single users: see the UAPI
 * header.
 */
TEST_F(stat, whoever_may_bind_may_read)
{
	struct counters theirs = {};
	int fd;

	IN_CHILD {
		ASSERT_EQ(0, setresgid(NOBODY, NOBODY, NOBODY));
		ASSERT_EQ(0, setresuid(NOBODY, NOBODY, NOBODY));
		fd = raw_open_bound();
		ASSERT_LE(0, fd);
		EXPECT_EQ(0, counters_get(fd, &theirs));
		/* The fork is one. */
		theirs.of[IB_MEMREG_STAT_GUARD_EVENTS] =
			self->before.of[IB_MEMREG_STAT_GUARD_EVENTS];
		EXPECT_EQ(0, memcmp(&self->before, &theirs, sizeof(theirs)));
	}
}

TEST_F(stat, library_reports_the_same)
{
	struct ib_memreg_stat_entry stats[COUNTERS];
	unsigned int i, count = 0;

	ASSERT_EQ(0, memreg_stat(self->o.m, NULL, &count));
	ASSERT_EQ(COUNTERS, count);
	ASSERT_EQ(0, memreg_stat(self->o.m, stats, &count));
	for (i = 0; i < count; i++)
		EXPECT_EQ(self->before.of[stats[i].stat], stats[i].value);
	EXPECT_EQ(-EFAULT, memreg_stat(self->o.m, (void *)8, &count));
	EXPECT_STREQ("stat: a pointer is not mapped (EFAULT)",
		     memreg_reason());
}

/*
 * MRs and windows
 */

TEST_F(stat, mr_counts_itself_its_pages_and_its_key)
{
	char *memory = touched(LENGTH);
	__u32 mr;

	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, memory + 1,
				  LENGTH - 1, REMOTE_READ, &mr));
	MOVED(BY(MRS_REGISTERED, 1) BY(PAGES_PINNED, LENGTH / PAGE)
	      BY(KEYS_MADE, 1) BY(FRWRS_ALLOCATED, 1) ONE_BATCH(1));
	ASSERT_EQ(0, raw_destroy(self->fd, mr));
	MOVED(BY(MRS_DEREGISTERED, 1) BY(PAGES_UNPINNED, LENGTH / PAGE)
	      BY(KEYS_KILLED, 1) BY(FRWRS_DESTROYED, 1));
	mem_free(memory, LENGTH);
}

TEST_F(stat, mr_without_remote_access_has_no_key)
{
	__u32 mr;

	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, self->memory, PAGE,
				  LOCAL_WRITE, &mr));
	MOVED(BY(MRS_REGISTERED, 1) BY(PAGES_PINNED, 1));
	ASSERT_EQ(0, raw_destroy(self->fd, mr));
	MOVED(BY(MRS_DEREGISTERED, 1) BY(PAGES_UNPINNED, 1));
}

/*
 * Pinning maps the pages. If such a change is announced while it goes on,
 * pinning starts again.
 */
TEST_F(stat, registering_anew_is_no_revocation)
{
	char *memory = mem_alloc(LENGTH);
	__u32 mr;

	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, memory, LENGTH,
				  REMOTE_READ, &mr));
	EXPECT_EQ(1, moved(_metadata, self, IB_MEMREG_STAT_MRS_REGISTERED));
	EXPECT_EQ(0, moved(_metadata, self,
			   IB_MEMREG_STAT_GUARD_REVOCATIONS));
	ASSERT_EQ(0, raw_destroy(self->fd, mr));
	mem_free(memory, LENGTH);
}

TEST_F(stat, batch_of_windows_counts_each)
{
	ASSERT_EQ(0, bind_all(self));
	MOVED(BY(WINDOWS_BOUND, BATCH) BY(KEYS_MADE, BATCH)
	      BY(FRWRS_ALLOCATED, BATCH) ONE_BATCH(BATCH));
	ASSERT_EQ(0, revoke_all(self, IB_MEMREG_REVOKE_RELAXED));
	MOVED(BY(WINDOWS_REVOKED, BATCH) BY(KEYS_KILLED, BATCH)
	      ONE_BATCH(BATCH));
	/* Not an error, and without effect. */
	ASSERT_EQ(0, revoke_all(self, 0));
	MOVED();
}

TEST_F(stat, revoke_destroys_where_invalidation_is_weak)
{
	ASSERT_EQ(0, bind_all(self));
	look(_metadata, self);
	ASSERT_EQ(0, revoke_all(self, 0));
	if (weak_invalidate(self))
		MOVED(BY(WINDOWS_REVOKED, BATCH) BY(KEYS_KILLED, BATCH)
		      BY(FRWRS_DESTROYED, BATCH));
	else
		MOVED(BY(WINDOWS_REVOKED, BATCH) BY(KEYS_KILLED, BATCH)
		      ONE_BATCH(BATCH));
}

TEST_F(stat, destroying_a_bound_window_revokes_it)
{
	ASSERT_EQ(0, bind_all(self));
	look(_metadata, self);
	ASSERT_EQ(0, raw_destroy(self->fd, self->windows[0]));
	MOVED(BY(WINDOWS_REVOKED, 1) BY(KEYS_KILLED, 1)
	      BY(FRWRS_DESTROYED, 1));
}

TEST_F(stat, I8_calls_that_fail_count_nothing)
{
	char *memory = touched(2 * PAGE);
	__u32 mr;

	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, munmap(memory + PAGE, PAGE));
	EXPECT_EQ(-EFAULT, raw_register(self->fd, self->o.domain, memory,
					2 * PAGE, REMOTE_READ, &mr));
	EXPECT_EQ(-ENOENT, raw_register(self->fd, self->mr, memory, PAGE,
					REMOTE_READ, &mr));
	EXPECT_EQ(-ENOENT, bind_in(self, self->o.domain, self->windows,
				   self->windows[0]));
	/* All but the last one are good. */
	self->windows[BATCH - 1] = self->windows[0];
	EXPECT_EQ(-EBUSY, bind_all(self));
	MOVED();
	mem_free(memory, PAGE);
}

/* Keys of windows come from a list of idle ones once that is long enough. */
static void bind_until(struct __test_metadata *_metadata,
		       FIXTURE_DATA(stat) *self, __u32 mr, __u32 stat)
{
	int64_t end = now_ms() + LIMIT_MS;

	look(_metadata, self);
	while (!moved(_metadata, self, stat)) {
		ASSERT_GT(end, now_ms());
		ASSERT_EQ(0, bind_in(self, self->o.domain, self->windows, mr));
		ASSERT_EQ(0, revoke_all(self, IB_MEMREG_REVOKE_RELAXED));
		self->offset += self->step;
	}
}

/*
 * Wait until no more FRWRs are destroyed: a thread counts each one before it
 * destroys it.
 */
static void expect_destroyed(struct __test_metadata *_metadata,
			     FIXTURE_DATA(stat) *self)
{
	int64_t end = now_ms() + LIMIT_MS;
	__u64 gone;

	do {
		gone = moved(_metadata, self, IB_MEMREG_STAT_FRWRS_DESTROYED);
		gone -= moved(_metadata, self, IB_MEMREG_STAT_FRWRS_FOREIGN);
		gone -= moved(_metadata, self, IB_MEMREG_STAT_FRWRS_REAPED);
	} while (gone && now_ms() < end && !poll(NULL, 0, 1));
	EXPECT_EQ(0, gone);
}

TEST_F_TIMEOUT(stat, idle_frwrs_are_reused, LIMIT_S)
{
	bind_until(_metadata, self, self->mr, IB_MEMREG_STAT_FRWRS_REUSED);
	EXPECT_EQ(0, moved(_metadata, self, IB_MEMREG_STAT_FRWRS_FOREIGN));
	expect_destroyed(_metadata, self);
	EXPECT_EQ(moved(_metadata, self, IB_MEMREG_STAT_KEYS_MADE),
		  moved(_metadata, self, IB_MEMREG_STAT_FRWRS_REUSED) +
		  moved(_metadata, self, IB_MEMREG_STAT_FRWRS_ALLOCATED));
}

TEST_F_TIMEOUT(stat, I1_frwrs_of_other_memory_are_destroyed, LIMIT_S)
{
	char *memory = touched(2 * PAGE);
	__u32 mr;

	if (!weak_invalidate(self))
		SKIP(return, "this device waits for packets");
	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, memory, 2 * PAGE,
				  MW_BIND, &mr));
	bind_until(_metadata, self, self->mr, IB_MEMREG_STAT_FRWRS_REUSED);
	/*
	 * A domain keeps many FRWRs idle, in case the same ranges are used
	 * again.
	 */
	self->step = 1;
	bind_until(_metadata, self, mr, IB_MEMREG_STAT_FRWRS_FOREIGN);
	expect_destroyed(_metadata, self);
	ASSERT_EQ(0, raw_destroy(self->fd, mr));
	mem_free(memory, 2 * PAGE);
}

/* Two ranges that are granted in turn each find their own idle FRWR again. */
TEST_F_TIMEOUT(stat, idle_frwrs_of_ranges_in_turn_are_reused, LIMIT_S)
{
	const __u32 reused = IB_MEMREG_STAT_FRWRS_REUSED;
	unsigned int i;

	look(_metadata, self);
	for (i = 0; i < 300 || !moved(_metadata, self, reused); i++) {
		self->offset = i % 3 * PAGE;
		ASSERT_EQ(0, bind_in(self, self->o.domain, self->windows,
				     self->mr));
		ASSERT_EQ(0, revoke_all(self, IB_MEMREG_REVOKE_RELAXED));
	}
	EXPECT_EQ(0, moved(_metadata, self, IB_MEMREG_STAT_FRWRS_FOREIGN));
}

/*
 * soft-RoCE may still be copying by the FRWR's list of pages, so the list must
 * not change.
 */
TEST_F_TIMEOUT(stat, I6_frwrs_of_another_range_are_destroyed, LIMIT_S)
{
	if (!weak_invalidate(self))
		SKIP(return, "this device waits for packets");
	bind_until(_metadata, self, self->mr, IB_MEMREG_STAT_FRWRS_REUSED);
	self->offset = PAGE;
	self->step = 1;
	bind_until(_metadata, self, self->mr, IB_MEMREG_STAT_FRWRS_FOREIGN);
	expect_destroyed(_metadata, self);
}

/* Destroying a domain destroys its idle FRWRs, also those for another's MRs. */
TEST_F(stat, idle_frwrs_go_with_their_domain)
{
	__u32 domain, windows[BATCH], i;

	ASSERT_EQ(0, raw_domain(self->fd, &domain));
	ASSERT_EQ(0, raw_windows(self->fd, domain, LENGTH, windows, BATCH));
	ASSERT_EQ(0, bind_in(self, domain, windows, self->mr));
	ASSERT_EQ(0, raw_revoke_relaxed(self->fd, domain, windows, BATCH));
	for (i = 0; i < BATCH; i++)
		ASSERT_EQ(0, raw_destroy(self->fd, windows[i]));
	look(_metadata, self);
	ASSERT_EQ(0, raw_destroy(self->fd, domain));
	MOVED(BY(FRWRS_REAPED, BATCH) BY(FRWRS_DESTROYED, BATCH));
}

/* Every object that was made is counted as ended, by whatever ended it. */
static void expect_balance(struct __test_metadata *_metadata,
			   FIXTURE_DATA(stat) *self)
{
	static const __u32 pairs[][2] = {
		{ IB_MEMREG_STAT_KEYS_MADE, IB_MEMREG_STAT_KEYS_KILLED },
		{ IB_MEMREG_STAT_FRWRS_ALLOCATED,
		  IB_MEMREG_STAT_FRWRS_DESTROYED },
		{ IB_MEMREG_STAT_MRS_REGISTERED,
		  IB_MEMREG_STAT_MRS_DEREGISTERED },
		{ IB_MEMREG_STAT_PAGES_PINNED, IB_MEMREG_STAT_PAGES_UNPINNED },
		{ IB_MEMREG_STAT_WINDOWS_BOUND,
		  IB_MEMREG_STAT_WINDOWS_REVOKED },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(pairs); i++) {
		EXPECT_LT(0, moved(_metadata, self, pairs[i][0]));
		EXPECT_EQ(moved(_metadata, self, pairs[i][0]),
			  moved(_metadata, self, pairs[i][1]))
			TH_LOG("counter %u", pairs[i][0]);
	}
}

static int use_a_file(FIXTURE_DATA(stat) *self)
{
	__u32 domain, mr, windows[BATCH];
	int fd = raw_open_bound();
	int ret, own = self->fd;

	if (fd < 0)
		return fd;
	ret = raw_domain(fd, &domain);
	ret = ret ?: raw_register(fd, domain, self->memory, LENGTH,
				  MW_BIND | REMOTE_READ, &mr);
	ret = ret ?: raw_windows(fd, domain, LENGTH, windows, BATCH);
	self->fd = fd;
	ret = ret ?: bind_in(self, domain, windows, mr);
	ret = ret ?: raw_revoke(fd, domain, windows, BATCH / 2);
	self->fd = own;
	return ret ?: fd;
}

TEST_F(stat, I7_close_ends_all_that_was_made)
{
	int fd = use_a_file(self);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, close(fd));
	expect_balance(_metadata, self);
}

TEST_F(stat, I7_process_that_is_killed_ends_all_that_it_made)
{
	pid_t pid = fork();
	int status;

	ASSERT_LE(0, pid);
	if (!pid) {
		if (use_a_file(self) >= 0)
			kill(getpid(), SIGKILL);
		_exit(1);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_TRUE(WIFSIGNALED(status));
	expect_balance(_metadata, self);
}

static void *bind_and_revoke(void *arg)
{
	FIXTURE_DATA(stat) *self = arg;
	struct ib_memreg_bind bind = {
		.mr_id = self->mr, .length = PAGE, .access = REMOTE_READ,
	};
	unsigned int i;

	if (raw_windows(self->fd, self->o.domain, PAGE, &bind.window_id, 1))
		return (void *)1;
	for (i = 0; i < test_rounds(200); i++)
		if (raw_bind(self->fd, self->o.domain, &bind, 1) ||
		    raw_revoke(self->fd, self->o.domain, &bind.window_id, 1))
			return (void *)1;
	return NULL;
}

TEST_F_TIMEOUT(stat, nothing_is_lost_when_all_cpus_count, 3600)
{
	const unsigned int n = 4 * test_rounds(200);
	pthread_t threads[4];
	void *failed;
	int i;

	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL,
					    bind_and_revoke, self));
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], &failed));
		EXPECT_EQ(NULL, failed);
	}
	EXPECT_EQ(n, moved(_metadata, self, IB_MEMREG_STAT_WINDOWS_BOUND));
	EXPECT_EQ(n, moved(_metadata, self, IB_MEMREG_STAT_WINDOWS_REVOKED));
	EXPECT_EQ(n, moved(_metadata, self, IB_MEMREG_STAT_KEYS_MADE));
	EXPECT_EQ(n, moved(_metadata, self, IB_MEMREG_STAT_KEYS_KILLED));
	/* Keys that are revoked at the same time may die in one batch. */
	EXPECT_GE(2 * n, moved(_metadata, self, IB_MEMREG_STAT_BATCHES));
	EXPECT_LE(n, moved(_metadata, self, IB_MEMREG_STAT_BATCHES));
	/* A revoke destroys where invalidation is weak. */
	EXPECT_EQ(weak_invalidate(self) ? n : 2 * n,
		  moved(_metadata, self, IB_MEMREG_STAT_WORK_REQUESTS));
}

/*
 * Guards
 */

TEST_F(stat, I2_unmap_counts_a_revocation)
{
	ASSERT_EQ(0, bind_all(self));
	look(_metadata, self);
	ASSERT_EQ(0, munmap(self->memory, PAGE));
	MOVED(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_REVOCATIONS, 1)
	      BY(KEYS_KILLED, BATCH) ONE_BATCH(BATCH));
	/* The MR is stale already. */
	ASSERT_EQ(0, munmap(self->memory + PAGE, PAGE));
	MOVED(AT_LEAST(GUARD_EVENTS, 1));
	ASSERT_EQ(0, revoke_all(self, IB_MEMREG_REVOKE_RELAXED));
	MOVED(BY(WINDOWS_REVOKED, BATCH));
}

TEST_F_TIMEOUT(stat, look_that_finds_nothing_is_counted, LIMIT_S)
{
	ASSERT_EQ(0, mprotect(self->memory, LENGTH,
			      PROT_READ | PROT_WRITE | PROT_EXEC));
	await_move(_metadata, self, IB_MEMREG_STAT_GUARD_UNCHANGED, 1);
	MOVED(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_SUSPECTS, 1)
	      BY(GUARD_UNCHANGED, 1) AT_LEAST(GUARD_LATER, 0));
}

/* The mapping may be written and not read. */
TEST_F_TIMEOUT(stat, look_at_what_is_only_written, LIMIT_S)
{
	char *memory = mmap(NULL, PAGE, PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	__u32 mr;

	ASSERT_NE(MAP_FAILED, memory);
	*memory = 1;
	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, memory, PAGE,
				  MW_BIND | LOCAL_WRITE, &mr));
	look(_metadata, self);
	ASSERT_EQ(0, mprotect(memory, PAGE, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, mprotect(memory, PAGE, PROT_WRITE));
	await_move(_metadata, self, IB_MEMREG_STAT_GUARD_UNCHANGED, 1);
	MOVED(AT_LEAST(GUARD_EVENTS, 1) AT_LEAST(GUARD_SUSPECTS, 1)
	      AT_LEAST(GUARD_UNCHANGED, 1) AT_LEAST(GUARD_LATER, 0));
	ASSERT_EQ(0, raw_destroy(self->fd, mr));
	mem_free(memory, PAGE);
}

TEST_F_TIMEOUT(stat, look_that_finds_the_memory_gone_is_counted, LIMIT_S)
{
	ASSERT_EQ(0, mprotect(self->memory, LENGTH, PROT_READ));
	/*
	 * If the look comes late, the limit on its delay has revoked the MR
	 * already.
	 */
	await_move(_metadata, self, IB_MEMREG_STAT_GUARD_GONE, 1);
	await_move(_metadata, self, IB_MEMREG_STAT_GUARD_REVOCATIONS, 1);
	MOVED(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_SUSPECTS, 1)
	      BY(GUARD_GONE, 1) BY(GUARD_REVOCATIONS, 1)
	      AT_LEAST(GUARD_LATER, 0));
}

/* State of an MR in LIST, or -1. */
static int listed_state(__u32 mr)
{
	struct state now;
	int state = -1;
	__u32 i;

	if (!state_get(&now))
		for (i = 0; i < now.count; i++)
			if (now.objects[i].type == IB_MEMREG_OBJECT_MR &&
			    now.objects[i].id == mr)
				state = now.objects[i].u.mr.state;
	state_free(&now);
	return state;
}

/* State of the MR from MR_QUERY, or -1. */
static int queried_state(FIXTURE_DATA(stat) *self, __u32 mr)
{
	RAW(mr_query, cmd, .mr_id = mr);

	return raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &cmd) ? -1 :
	       (int)cmd.out_state;
}

/* Is there a line of `memreg list` that is of this MR in this state? */
static bool tool_lists(__u32 mr, const char *state)
{
	char *tool = strdup(tree_path("build/user/tool/memreg"));
	int ret = shell("%s list | grep -E \" mr +%u +[0-9]+ +%s \"", tool, mr,
			state);

	free(tool);
	return !ret;
}

/*
 * The kernel splits a huge page because a part of it that is no MR's is
 * unmapped.
 */
TEST_F_TIMEOUT(stat, revocation_for_nothing_is_counted, LIMIT_S)
{
	const size_t huge = 2UL << 20;
	char *memory = mem_thp(huge);
	__u32 mr;

	if (!memory)
		SKIP(return, "no transparent huge pages came");
	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, memory, PAGE,
				  REMOTE_READ, &mr));
	EXPECT_EQ(IB_MEMREG_MR_LIVE, listed_state(mr));
	EXPECT_TRUE(tool_lists(mr, "live"));
	look(_metadata, self);
	ASSERT_EQ(0, munmap(memory + huge - PAGE, PAGE));
	MOVED(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_REVOCATIONS, 1)
	      BY(KEYS_KILLED, 1) ONE_BATCH(1));
	/* Nobody finds out before the owner asks. */
	EXPECT_EQ(IB_MEMREG_MR_STALE, listed_state(mr));
	EXPECT_EQ(IB_MEMREG_MR_SPURIOUS, queried_state(self, mr));
	MOVED(BY(GUARD_SPURIOUS, 1));
	EXPECT_EQ(IB_MEMREG_MR_SPURIOUS, listed_state(mr));
	EXPECT_TRUE(tool_lists(mr, "spurious"));
	EXPECT_TRUE(tool_lists(self->mr, "live"));
	mem_free(memory, huge - PAGE);
}

/* A key that the driver has made cannot be killed by a work request. */
TEST_F_TIMEOUT(stat, key_that_a_worker_kills_is_counted, LIMIT_S)
{
	RAW(mr_register, cmd, .flags = IB_MEMREG_MR_SINGLE_KEY,
	    .domain_id = self->o.domain, .access = REMOTE_READ,
	    .length = LENGTH);
	char *memory = touched(LENGTH);
	__u64 can = 0;

	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_SINGLE_KEY, &can));
	if (!can)
		SKIP(return, "no such keys on this device");
	ASSERT_NE(NULL, memory);
	cmd.addr = (uintptr_t)memory;
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_REGISTER, &cmd));
	MOVED(BY(MRS_REGISTERED, 1) BY(PAGES_PINNED, LENGTH / PAGE)
	      BY(KEYS_MADE, 1));
	ASSERT_EQ(0, munmap(memory, LENGTH));
	await_move(_metadata, self, IB_MEMREG_STAT_GUARD_KILLS, 1);
	MOVED(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_REVOCATIONS, 1)
	      BY(GUARD_KILLS, 1) BY(KEYS_KILLED, 1));
	ASSERT_EQ(0, raw_destroy(self->fd, cmd.out_mr_id));
	MOVED(BY(MRS_DEREGISTERED, 1) BY(PAGES_UNPINNED, LENGTH / PAGE));
}

/*
 * The registration queue
 */

/* Number of rebuilds of the domain's queue, from LIST. */
static __u64 rebuilt(void)
{
	struct state now;
	__u64 times = 0;
	__u32 i;

	if (!state_get(&now))
		for (i = 0; i < now.count; i++)
			if (now.objects[i].type == IB_MEMREG_OBJECT_DOMAIN)
				times += now.objects[i].u.domain.rebuilds;
	state_free(&now);
	return times;
}

/*
 * Was the queue rebuilt each time that it broke, and does LIST report the same
 * number?
 */
static bool all_rebuilt(struct __test_metadata *_metadata,
			FIXTURE_DATA(stat) *self, __u64 before)
{
	__u64 breaks = moved(_metadata, self, IB_MEMREG_STAT_QUEUE_BREAKS);

	return breaks == rebuilt() - before &&
	       breaks == moved(_metadata, self, IB_MEMREG_STAT_QUEUE_REBUILDS);
}

/*
 * The GID of the registration queue goes, so the queue breaks, and is rebuilt
 * on another GID. When the GID is back, the queue may be moved to it again.
 */
TEST_F_TIMEOUT(stat, queue_that_breaks_and_is_rebuilt_is_counted, LIMIT_S)
{
	__u64 before = rebuilt();
	int64_t end;

	ASSERT_EQ(0, shell("ip addr flush dev mr_owner scope global"));
	await_move(_metadata, self, IB_MEMREG_STAT_QUEUE_BREAKS, 1);
	await_move(_metadata, self, IB_MEMREG_STAT_QUEUE_REBUILDS, 1);
	ASSERT_EQ(0, shell("addresses_up owner"));
	ASSERT_EQ(0, shell("await 60 topology_ready"));
	end = now_ms() + LIMIT_MS;
	while (!all_rebuilt(_metadata, self, before)) {
		ASSERT_GT(end, now_ms());
		poll(NULL, 0, 1);
	}
	EXPECT_EQ(0, moved(_metadata, self,
			   IB_MEMREG_STAT_QUEUE_REBUILDS_FAILED));
	ASSERT_EQ(0, bind_all(self));
}

/*
 * The first work request fails and the others are flushed; FRWRs that are made
 * anew serve the next bind.
 */
TEST_F_TIMEOUT(stat, I4_frwrs_that_failed_are_counted, LIMIT_S)
{
	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	fault_order("work_request", 0, 1);
	ASSERT_EQ(0, bind_all(self));
	fault_cancel("work_request");
	MOVED(BY(FRWRS_FAILED, BATCH) BY(FRWRS_DESTROYED, BATCH)
	      BY(FRWRS_ALLOCATED, 2 * BATCH) BY(BATCHES, 2)
	      BY(WORK_REQUESTS, 2 * BATCH) BY(QUEUE_BREAKS, 1)
	      BY(QUEUE_REBUILDS, 1) BY(KEYS_MADE, BATCH)
	      BY(WINDOWS_BOUND, BATCH));
}

/*
 * The guard gives up its wait. Then the queue is rebuilt, and its keys die with
 * it.
 */
TEST_F_TIMEOUT(stat, I1_wait_of_a_guard_that_runs_out_is_counted, LIMIT_S)
{
	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	ASSERT_EQ(0, bind_all(self));
	look(_metadata, self);
	fault_order("completion", 0, 1);
	ASSERT_EQ(0, munmap(self->memory, PAGE));
	fault_cancel("completion");
	EXPECT_EQ(1, moved(_metadata, self, IB_MEMREG_STAT_GUARD_TIMEOUTS));
	await_move(_metadata, self, IB_MEMREG_STAT_QUEUE_REBUILDS, 1);
	/*
	 * If a revoke killed some of the keys before, the guard would count
	 * fewer.
	 */
	await_move(_metadata, self, IB_MEMREG_STAT_GUARD_KILLS, BATCH);
	ASSERT_EQ(0, revoke_all(self, 0));
	MOVED(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_REVOCATIONS, 1)
	      BY(GUARD_TIMEOUTS, 1) BY(KEYS_KILLED, BATCH) ONE_BATCH(BATCH)
	      BY(QUEUE_BREAKS, 1) BY(QUEUE_REBUILDS, 1)
	      BY(FRWRS_FAILED, BATCH) BY(FRWRS_DESTROYED, BATCH)
	      BY(GUARD_KILLS, BATCH) BY(WINDOWS_REVOKED, BATCH));
}

/*
 * Connections
 */

TEST_F_TIMEOUT(stat, connection_that_came_up_and_ended, LIMIT_S)
{
	struct peer p;
	__u32 ep;

	peer_start(_metadata, &p, OWNER_IP4, self->o.port, NULL);
	ep = owner_admit(_metadata, &self->o, &p, self->o.domain, NULL);
	MOVED(BY(ENDPOINTS_ESTABLISHED, 1));
	ASSERT_EQ(0, memreg_disconnect(self->o.m, ep));
	MOVED(BY(ENDPOINTS_DISCONNECTED, 1));
	ASSERT_EQ(0, memreg_destroy(self->o.m, ep));
	MOVED();
	peer_stop(&p, 0);
}

TEST_F_TIMEOUT(stat, connection_that_the_peer_ended, LIMIT_S)
{
	struct peer p;

	peer_start(_metadata, &p, OWNER_IP4, self->o.port, NULL);
	owner_admit(_metadata, &self->o, &p, self->o.domain, NULL);
	look(_metadata, self);
	peer_stop(&p, SIGKILL);
	owner_await(_metadata, &self->o, IB_MEMREG_EVENT_DISCONNECTED, NULL);
	MOVED(BY(ENDPOINTS_DISCONNECTED, 1));
}

TEST_F_TIMEOUT(stat, connection_that_was_destroyed, LIMIT_S)
{
	struct peer p;
	__u32 ep;

	peer_start(_metadata, &p, OWNER_IP4, self->o.port, NULL);
	ep = owner_admit(_metadata, &self->o, &p, self->o.domain, NULL);
	look(_metadata, self);
	ASSERT_EQ(0, memreg_destroy(self->o.m, ep));
	MOVED(BY(ENDPOINTS_DISCONNECTED, 1));
	peer_stop(&p, 0);
}

TEST_F_TIMEOUT(stat, requests_that_were_rejected, LIMIT_S)
{
	struct peer p;
	__u32 ep;

	peer_start(_metadata, &p, OWNER_IP4, self->o.port, NULL);
	ep = owner_await(_metadata, &self->o, IB_MEMREG_EVENT_CONNECT_REQUEST,
			 NULL);
	MOVED();
	ASSERT_EQ(0, memreg_reject(self->o.m, ep, NULL, 0));
	MOVED(BY(ENDPOINTS_REJECTED, 1));
	peer_answer(_metadata, &p);
	ASSERT_PEER("rejected", &p);

	/* Destroying a request rejects it. */
	peer_tell(_metadata, &p, "conn");
	ep = owner_await(_metadata, &self->o, IB_MEMREG_EVENT_CONNECT_REQUEST,
			 NULL);
	ASSERT_EQ(0, memreg_destroy(self->o.m, ep));
	MOVED(BY(ENDPOINTS_REJECTED, 1));
	peer_answer(_metadata, &p);
	peer_stop(&p, 0);
}

TEST_F_TIMEOUT(stat, request_beyond_the_backlog, LIMIT_S)
{
	struct peer first, second;

	ASSERT_EQ(0, memreg_destroy(self->o.m, self->o.listener));
	owner_listen(_metadata, &self->o, OWNER_IP4, 1);
	peer_start(_metadata, &first, OWNER_IP4, self->o.port, NULL);
	owner_await(_metadata, &self->o, IB_MEMREG_EVENT_CONNECT_REQUEST, NULL);
	peer_start(_metadata, &second, OWNER_IP4, self->o.port, NULL);
	peer_answer(_metadata, &second);
	ASSERT_PEER("rejected", &second);
	MOVED(BY(ENDPOINTS_REJECTED, 1));
	owner_close(&self->o);
	peer_stop(&first, 0);
	peer_stop(&second, 0);
	owner_open(_metadata, &self->o);
}

TEST_F_TIMEOUT(stat, connections_that_did_not_come_up, LIMIT_S)
{
	struct sockaddr_storage ss;
	__u32 ep;

	/* Nobody listens there. */
	ASSERT_EQ(0, memreg_connect(self->o.m, self->o.domain,
				    ip_address(PEER_IP4, 9, &ss), NULL,
				    LIMIT_MS, NULL, 0, &ep));
	owner_await(_metadata, &self->o, IB_MEMREG_EVENT_REJECTED, NULL);
	MOVED(BY(ENDPOINTS_REJECTED, 1));
	/* Nobody is there. */
	ASSERT_EQ(0, memreg_connect(self->o.m, self->o.domain,
				    ip_address("192.0.2.99", 9, &ss), NULL, 100,
				    NULL, 0, &ep));
	owner_await(_metadata, &self->o, IB_MEMREG_EVENT_ERROR, NULL);
	MOVED(BY(ENDPOINTS_FAILED, 1));
}

PEER_HARNESS_MAIN
