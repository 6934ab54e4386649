// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each event moves exactly the counters that it should move, and is traced with
 * what it is about, in order. A table of steps has what makes each event, and
 * both of these; the tracepoints go to a trace buffer of the test's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "ends.h"
#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "net.h"
#include "owner.h"
#include "peer.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define INSTANCE	TRACEFS "/instances/memreg-test"
#define EVENTS		INSTANCE "/events/ib_memreg"
#define LENGTH		(4 * PAGE)
#define BATCH		8
#define COUNTERS							\
	(IB_MEMREG_STAT_DEMAND_WAIT + IB_MEMREG_DEMAND_WAITS - 1)
#define WAIT(i)		(IB_MEMREG_STAT_DEMAND_WAIT + (i))
#define NOBODY		65534
#define MAX_ROUNDS	1000
#define REST_US		2000	/* for which nobody gets a key anew */

/* The counters at one time, by their ids. */
struct counters {
	__u64 of[COUNTERS + 1];
};

FIXTURE(events) {
	struct owner o;
	int fd;
	__u32 mr;
	__u32 windows[BATCH];
	struct ib_memreg_bind binds[BATCH];
	char *memory;
	char *other;	/* as much, of which nothing is registered */
	/* What steps are about, besides */
	int file;
	__u32 made;
	__u32 made_in;
	__u32 endpoint;
	__u32 rkey;
	char *at;
	struct peer peer;
	struct link link;
	struct ring ring;
	/* The trace; NULL before it is read for the first time */
	bool traced;
	char *text;
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
		   FIXTURE_DATA(events) *self, __u32 stat)
{
	struct counters now;

	ASSERT_EQ(0, counters_get(self->fd, &now));
	return now.of[stat] - self->before.of[stat];
}

/* Counters are compared with their values from here on. */
static void look(struct __test_metadata *_metadata, FIXTURE_DATA(events) *self)
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
			 FIXTURE_DATA(events) *self, const struct move *moves)
{
	struct counters now;
	__u64 by, faults;
	unsigned int i;

	ASSERT_EQ(0, counters_get(self->fd, &now));
	faults = now.of[IB_MEMREG_STAT_DEMAND_FAULTS] -
		 self->before.of[IB_MEMREG_STAT_DEMAND_FAULTS];
	for (; moves->stat; moves++) {
		by = now.of[moves->stat] - self->before.of[moves->stat];
		EXPECT_TRUE(moves->more ? by >= moves->by : by == moves->by)
			TH_LOG("counter %u: %llu instead of %llu", moves->stat,
			       (unsigned long long)by,
			       (unsigned long long)moves->by);
		now.of[moves->stat] = self->before.of[moves->stat];
	}
	/* Each fault is in one class of the times that they take. */
	for (i = 0, by = 0; i < IB_MEMREG_DEMAND_WAITS; i++) {
		by += now.of[WAIT(i)] - self->before.of[WAIT(i)];
		now.of[WAIT(i)] = self->before.of[WAIT(i)];
	}
	EXPECT_EQ(faults, by);
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
		       FIXTURE_DATA(events) *self, __u32 stat, __u64 by)
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

/*
 * The trace
 */

static void trace_enable(struct __test_metadata *_metadata,
			 FIXTURE_DATA(events) *self, bool on)
{
	if (self->traced)
		ASSERT_EQ(0, file_write(EVENTS "/enable", on ? "1" : "0"));
}

static void trace_clear(struct __test_metadata *_metadata)
{
	int fd = open(INSTANCE "/trace", O_WRONLY | O_TRUNC);

	ASSERT_LE(0, fd);
	close(fd);
}

/* Read the trace of memreg; it stays in the buffer. */
static void trace_read(struct __test_metadata *_metadata,
		       FIXTURE_DATA(events) *self)
{
	FILE *f = fopen(INSTANCE "/trace", "r");
	size_t size = 0;

	ASSERT_NE(NULL, f);
	free(self->text);
	self->text = NULL;
	ASSERT_LT(0, getdelim(&self->text, &size, '\0', f));
	fclose(f);
}

/*
 * Replace what is in braces in @format: ids and addresses of what the last
 * steps were about
 */
static void fill_in(FIXTURE_DATA(events) *self, const char *format, char *to,
		    size_t size)
{
	const struct {
		const char *name, *as;
		unsigned long value;
	} fields[] = {
		{ "{domain}", "%lu", self->made_in },
		{ "{mr}", "%lu", self->made },
		{ "{window}", "%lu", self->windows[0] },
		{ "{endpoint}", "%lu", self->endpoint },
		{ "{ring}", "%lu", self->ring.id },
		{ "{rkey}", "0x%08lx", self->rkey },
		{ "{key}", "%#lx", self->rkey },
		{ "{iova}", "%#lx", self->binds[0].out_iova },
		{ "{addr}", "%#lx", (uintptr_t)self->at },
		{ "{next}", "%#lx", (uintptr_t)self->at + PAGE },
		{ "{third}", "%#lx", (uintptr_t)self->at + 2 * PAGE },
	};
	unsigned int i;
	size_t n;

	while (*format && size > 1) {
		for (i = 0; i < ARRAY_LEN(fields); i++) {
			n = strlen(fields[i].name);
			if (strncmp(format, fields[i].name, n))
				continue;
			format += n;
			n = snprintf(to, size, fields[i].as, fields[i].value);
			to += n;
			size -= n;
			break;
		}
		if (i < ARRAY_LEN(fields))
			continue;
		*to++ = *format++;
		size--;
	}
	*to = '\0';
}

/*
 * Are these strings, up to NULL, in lines of the trace in this order? Other
 * lines may be in between. An empty string goes back to the first line; what
 * begins with '!' may be nowhere. Returns the string that is not as it should
 * be, or NULL.
 */
static const char *not_traced(FIXTURE_DATA(events) *self,
			      const char *const *expected)
{
	static char line[256];
	const char *at = self->text;

	for (; *expected; expected++) {
		fill_in(self, *expected, line, sizeof(line));
		if (*line == '!') {
			if (strstr(self->text, line + 1))
				return line;
			continue;
		}
		if (!*line) {
			at = self->text;
			continue;
		}
		at = strstr(at, line);
		if (!at)
			return line;
		at = strchrnul(at, '\n');
	}
	return NULL;
}

/* Workers and handlers may trace their part a little later. */
static void expect_trace(struct __test_metadata *_metadata,
			 FIXTURE_DATA(events) *self,
			 const char *const *expected)
{
	int64_t end = now_ms() + LIMIT_MS / 10;
	const char *missing;

	if (!self->traced)
		return;
	trace_read(_metadata, self);
	while ((missing = not_traced(self, expected)) && *missing != '!' &&
	       now_ms() < end) {
		poll(NULL, 0, 10);
		trace_read(_metadata, self);
	}
	EXPECT_EQ(NULL, missing)
		TH_LOG("'%s' in\n%s", missing, self->text);
}

/*
 * Steps
 */

typedef void maker(struct __test_metadata *_metadata,
		   FIXTURE_DATA(events) *self);

/* Declare what makes an event. */
#define MAKER(_name)							\
	static void _name(struct __test_metadata *_metadata,		\
			  FIXTURE_DATA(events) *self)

/* Declare a call, which returns 0, that makes an event. */
#define MAKES(_name, _call)						\
	MAKER(_name)							\
	{								\
		ASSERT_EQ(0, _call);					\
	}

/**
 * struct step - An event
 * @make: Makes it
 * @moves: Counters that it moves, ended by 0; no other may
 * @trace: What is traced, as not_traced() takes it
 */
struct step {
	maker *make;
	struct move moves[20];
	const char *trace[12];
};

#define MOVES(...)	{ __VA_ARGS__ { 0, 0, false } }
#define TRACES(...)	{ __VA_ARGS__ }

static void run_steps(struct __test_metadata *_metadata,
		      FIXTURE_DATA(events) *self, const struct step *step)
{
	for (; step->make && !_metadata->exit_code; step++) {
		look(_metadata, self);
		if (self->traced)
			trace_clear(_metadata);
		step->make(_metadata, self);
		expect_moves(_metadata, self, step->moves);
		expect_trace(_metadata, self, step->trace);
	}
}

/* The steps of a test, in order */
#define STEPS(...)							\
	run_steps(_metadata, self,					\
		  (const struct step[]){ __VA_ARGS__, { NULL, { }, { } } })

static bool weak_invalidate(FIXTURE_DATA(events) *self)
{
	__u64 strict = 1;

	raw_cap(self->fd, IB_MEMREG_CAP_STRICT_INVALIDATE, &strict);
	return !strict;
}

FIXTURE_SETUP(events)
{
	self->traced = tracefs_there();
	/* Remove the instance of a test that was killed. */
	rmdir(INSTANCE);
	if (self->traced)
		ASSERT_EQ(0, mkdir(INSTANCE, 0700));
	trace_enable(_metadata, self, true);
	owner_open(_metadata, &self->o);
	self->fd = memreg_fd(self->o.m);
	self->memory = touched(LENGTH);
	self->other = touched(LENGTH);
	ASSERT_NE(NULL, self->memory);
	ASSERT_NE(NULL, self->other);
	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, self->memory,
				  LENGTH, MW_BIND | LOCAL_WRITE, &self->mr));
	ASSERT_EQ(0, raw_windows(self->fd, self->o.domain, LENGTH,
				 self->windows, BATCH));
	self->made = self->mr;
	self->made_in = self->o.domain;
	self->at = self->memory;
	look(_metadata, self);
}

FIXTURE_TEARDOWN(events)
{
	owner_close(&self->o);
	EXPECT_EQ(0, vm_pin(0));
	free(self->text);
	trace_enable(_metadata, self, false);
	EXPECT_TRUE(!self->traced || !rmdir(INSTANCE));
}

static int bind_in(FIXTURE_DATA(events) *self, __u32 domain, __u32 *windows,
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

static int bind_all(FIXTURE_DATA(events) *self)
{
	return bind_in(self, self->o.domain, self->windows, self->mr);
}

static int revoke_all(FIXTURE_DATA(events) *self, __u32 flags)
{
	RAW(window_revoke, cmd, .flags = flags, .domain_id = self->o.domain,
	    .count = BATCH, .ids = (uintptr_t)self->windows);

	return raw_call(self->fd, IB_MEMREG_IOC_WINDOW_REVOKE, &cmd);
}

/*
 * The call
 */

TEST_F(events, reports_each_counter_once_and_as_many_as_fit)
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

/*
 * Counters are sums that reveal nothing about single users: see the UAPI
 * header.
 */
TEST_F(events, whoever_may_bind_may_read)
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

TEST_F(events, library_reports_the_same)
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

MAKER(register_keyed)
{
	self->at = self->other + 1;
	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, self->at,
				  LENGTH - 1, REMOTE_READ, &self->made));
}

MAKER(register_local)
{
	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, self->at, PAGE,
				  LOCAL_WRITE, &self->made));
}

MAKES(deregister, raw_destroy(self->fd, self->made))

TEST_F(events, mr_its_pages_and_its_key)
{
	STEPS({
		register_keyed,
		MOVES(BY(MRS_REGISTERED, 1) BY(PAGES_PINNED, LENGTH / PAGE)
		      BY(KEYS_MADE, 1) BY(FRWRS_ALLOCATED, 1) ONE_BATCH(1)),
		TRACES("memreg_region_pin: dev=", "memreg_frwr_alloc: ",
		       "memreg_batch_post: ", "memreg_batch_end: ",
		       "memreg_mr_register: file=")
	}, {
		deregister,
		MOVES(BY(MRS_DEREGISTERED, 1) BY(PAGES_UNPINNED, LENGTH / PAGE)
		      BY(KEYS_KILLED, 1) BY(FRWRS_DESTROYED, 1)),
		TRACES("memreg_mr_deregister: file=", "memreg_frwr_destroy: ",
		       "memreg_region_unpin: ")
	});
}

TEST_F(events, mr_without_remote_access_has_no_key)
{
	STEPS({
		register_local,
		MOVES(BY(MRS_REGISTERED, 1) BY(PAGES_PINNED, 1)),
		TRACES("memreg_region_pin: dev=",
		       " mr={mr} domain={domain} addr={addr} length=4096 access=0x1 keys=0",
		       "!memreg_batch_post: ")
	}, {
		deregister,
		MOVES(BY(MRS_DEREGISTERED, 1) BY(PAGES_UNPINNED, 1)),
		TRACES("memreg_mr_deregister: file=", "memreg_region_unpin: ",
		       "!memreg_batch_post: ")
	});
}

/*
 * Pinning maps the pages. If such a change is announced while it goes on,
 * pinning starts again.
 */
TEST_F(events, registering_anew_is_no_revocation)
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

MAKER(bind_batch)
{
	ASSERT_EQ(0, bind_all(self));
	self->rkey = self->binds[0].out_rkey;
}

MAKES(revoke_relaxed, revoke_all(self, IB_MEMREG_REVOKE_RELAXED))
MAKES(revoke_strict, revoke_all(self, 0))

TEST_F(events, windows_in_a_batch)
{
	STEPS({
		bind_batch,
		MOVES(BY(WINDOWS_BOUND, BATCH) BY(KEYS_MADE, BATCH)
		      BY(FRWRS_ALLOCATED, BATCH) ONE_BATCH(BATCH)),
		TRACES("memreg_frwr_alloc: ",
		       "rkey={rkey} iova={iova} length=4096 access=0x4",
		       "memreg_batch_post: ", "memreg_batch_end: ",
		       "memreg_key_publish: file=",
		       " window={window} domain={domain} mr={mr} rkey={rkey}")
	}, {
		revoke_relaxed,
		MOVES(BY(WINDOWS_REVOKED, BATCH) BY(KEYS_KILLED, BATCH)
		      ONE_BATCH(BATCH)),
		TRACES("memreg_key_claim: ", "memreg_batch_post: ",
		       "memreg_batch_end: ", "memreg_frwr_idle: ",
		       "memreg_window_revoke: ")
	}, {
		/* Not an error, and without effect */
		revoke_strict, MOVES(),
		TRACES("!memreg_key_", "!memreg_window_")
	});
}

TEST_F(events, revoke_destroys_where_invalidation_is_weak)
{
	bind_batch(_metadata, self);
	if (weak_invalidate(self))
		STEPS({
			revoke_strict,
			MOVES(BY(WINDOWS_REVOKED, BATCH) BY(KEYS_KILLED, BATCH)
			      BY(FRWRS_DESTROYED, BATCH)),
			TRACES("memreg_key_claim: ", "memreg_frwr_destroy: ",
			       "", "memreg_window_revoke: ")
		});
	else
		STEPS({
			revoke_strict,
			MOVES(BY(WINDOWS_REVOKED, BATCH) BY(KEYS_KILLED, BATCH)
			      ONE_BATCH(BATCH)),
			TRACES("memreg_key_claim: ", "memreg_frwr_idle: ",
			       "memreg_window_revoke: ")
		});
}

MAKES(destroy_window, raw_destroy(self->fd, self->windows[0]))

TEST_F(events, destroying_a_bound_window_revokes_it)
{
	bind_batch(_metadata, self);
	STEPS({
		destroy_window,
		MOVES(BY(WINDOWS_REVOKED, 1) BY(KEYS_KILLED, 1)
		      BY(FRWRS_DESTROYED, 1)),
		TRACES("memreg_key_claim: ", "memreg_frwr_destroy: ", "",
		       " window={window} domain={domain} mr={mr} rkey={rkey}")
	});
}

MAKER(calls_that_fail)
{
	char *memory = self->other;
	__u32 mr;

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
}

TEST_F(events, I8_calls_that_fail_count_nothing)
{
	STEPS({
		calls_that_fail, MOVES(),
		TRACES("!memreg_mr_", "!memreg_key_", "!memreg_window_")
	});
}

/* Keys of windows come from a list of idle ones once that is long enough. */
static void bind_until(struct __test_metadata *_metadata,
		       FIXTURE_DATA(events) *self, __u32 mr, __u32 stat)
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
			     FIXTURE_DATA(events) *self)
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

TEST_F_TIMEOUT(events, idle_frwrs_are_reused, LIMIT_S)
{
	bind_until(_metadata, self, self->mr, IB_MEMREG_STAT_FRWRS_REUSED);
	EXPECT_EQ(0, moved(_metadata, self, IB_MEMREG_STAT_FRWRS_FOREIGN));
	expect_destroyed(_metadata, self);
	EXPECT_EQ(moved(_metadata, self, IB_MEMREG_STAT_KEYS_MADE),
		  moved(_metadata, self, IB_MEMREG_STAT_FRWRS_REUSED) +
		  moved(_metadata, self, IB_MEMREG_STAT_FRWRS_ALLOCATED));
}

TEST_F_TIMEOUT(events, I1_frwrs_of_other_memory_are_destroyed, LIMIT_S)
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
TEST_F_TIMEOUT(events, idle_frwrs_of_ranges_in_turn_are_reused, LIMIT_S)
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
TEST_F_TIMEOUT(events, I6_frwrs_of_another_range_are_destroyed, LIMIT_S)
{
	if (!weak_invalidate(self))
		SKIP(return, "this device waits for packets");
	bind_until(_metadata, self, self->mr, IB_MEMREG_STAT_FRWRS_REUSED);
	self->offset = PAGE;
	self->step = 1;
	bind_until(_metadata, self, self->mr, IB_MEMREG_STAT_FRWRS_FOREIGN);
	expect_destroyed(_metadata, self);
}

MAKES(destroy_domain, raw_destroy(self->fd, self->made_in))

/* Destroying a domain destroys its idle FRWRs, also those for another's MRs. */
TEST_F(events, idle_frwrs_go_with_their_domain)
{
	__u32 domain, windows[BATCH], i;

	ASSERT_EQ(0, raw_domain(self->fd, &domain));
	ASSERT_EQ(0, raw_windows(self->fd, domain, LENGTH, windows, BATCH));
	ASSERT_EQ(0, bind_in(self, domain, windows, self->mr));
	ASSERT_EQ(0, raw_revoke_relaxed(self->fd, domain, windows, BATCH));
	for (i = 0; i < BATCH; i++)
		ASSERT_EQ(0, raw_destroy(self->fd, windows[i]));
	self->made_in = domain;
	STEPS({
		destroy_domain,
		MOVES(BY(FRWRS_REAPED, BATCH) BY(FRWRS_DESTROYED, BATCH)),
		TRACES("memreg_frwr_destroy: file=")
	});
}

MAKER(open_file)
{
	self->file = raw_open_bound();
	ASSERT_LE(0, self->file);
	ASSERT_EQ(0, raw_domain(self->file, &self->made_in));
}

MAKES(close_file, close(self->file))

TEST_F(events, file_and_its_domain)
{
	STEPS({
		open_file, MOVES(),
		TRACES("memreg_file_bind: ", "memreg_domain_create: file=",
		       "!memreg_domain_destroy: ")
	}, {
		close_file, MOVES(),
		TRACES("memreg_domain_destroy: ", "memreg_file_close: ")
	});
}

/* Every object that was made is counted as ended, by whatever ended it. */
static void expect_balance(struct __test_metadata *_metadata,
			   FIXTURE_DATA(events) *self)
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

static int use_a_file(FIXTURE_DATA(events) *self)
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

TEST_F(events, I7_close_ends_all_that_was_made)
{
	int fd = use_a_file(self);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, close(fd));
	expect_balance(_metadata, self);
}

TEST_F(events, I7_process_that_is_killed_ends_all_that_it_made)
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
	FIXTURE_DATA(events) *self = arg;
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

TEST_F_TIMEOUT(events, nothing_is_lost_when_all_cpus_count, 3600)
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

MAKES(unmap_page, munmap(self->memory, PAGE))
MAKES(unmap_another, munmap(self->memory + PAGE, PAGE))

TEST_F(events, I2_unmap)
{
	bind_batch(_metadata, self);
	STEPS({
		unmap_page,
		MOVES(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_REVOCATIONS, 1)
		      BY(KEYS_KILLED, BATCH) ONE_BATCH(BATCH)),
		TRACES("memreg_guard_event: dev=", "memreg_region_stale: ",
		       "memreg_batch_post: ", "memreg_batch_end: ")
	}, {
		/* The MR is stale already. */
		unmap_another, MOVES(AT_LEAST(GUARD_EVENTS, 1)),
		TRACES("!memreg_region_stale: ")
	}, {
		revoke_relaxed, MOVES(BY(WINDOWS_REVOKED, BATCH)),
		TRACES("memreg_window_revoke: ")
	}, {
		deregister,
		MOVES(BY(MRS_DEREGISTERED, 1) BY(PAGES_UNPINNED, LENGTH / PAGE)
		      AT_LEAST(FRWRS_DESTROYED, 0) AT_LEAST(FRWRS_REAPED, 0)),
		TRACES("memreg_mr_deregister: ", "memreg_region_unpin: ")
	});
}

/* What the guard was called for, and what it decides */
TEST_F(events, I2_unmap_of_memory_with_a_key)
{
	ASSERT_EQ(0, raw_destroy(self->fd, self->mr));
	ASSERT_EQ(0, raw_register(self->fd, self->o.domain, self->memory,
				  LENGTH, REMOTE_READ, &self->made));
	STEPS({
		unmap_page,
		MOVES(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_REVOCATIONS, 1)
		      BY(KEYS_KILLED, 1) ONE_BATCH(1)),
		TRACES(" addr={addr} length=16384 event=unmap start={addr} end={next} verdict=revoke",
		       "memreg_region_stale: ", "memreg_batch_post: ",
		       "memreg_batch_end: ")
	}, {
		deregister,
		MOVES(BY(MRS_DEREGISTERED, 1) BY(PAGES_UNPINNED, LENGTH / PAGE)
		      BY(FRWRS_DESTROYED, 1)),
		TRACES("memreg_mr_deregister: ", "memreg_frwr_destroy: ",
		       "memreg_region_unpin: ")
	});
}

MAKER(allow_more)
{
	ASSERT_EQ(0, mprotect(self->memory, LENGTH,
			      PROT_READ | PROT_WRITE | PROT_EXEC));
	await_move(_metadata, self, IB_MEMREG_STAT_GUARD_UNCHANGED, 1);
}

/*
 * If the look comes late, the limit on its delay has revoked the MR already.
 */
MAKER(allow_less)
{
	ASSERT_EQ(0, mprotect(self->memory, LENGTH, PROT_READ));
	await_move(_metadata, self, IB_MEMREG_STAT_GUARD_GONE, 1);
	await_move(_metadata, self, IB_MEMREG_STAT_GUARD_REVOCATIONS, 1);
}

/* After an event that may have changed nothing, the mapping is checked. */
TEST_F_TIMEOUT(events, I2_looks_at_a_mapping, LIMIT_S)
{
	STEPS({
		allow_more,
		MOVES(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_SUSPECTS, 1)
		      BY(GUARD_UNCHANGED, 1) AT_LEAST(GUARD_LATER, 0)),
		TRACES("verdict=suspect",
		       " addr={addr} length=16384 outcome=unchanged",
		       "!memreg_region_stale: ")
	}, {
		allow_less,
		MOVES(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_SUSPECTS, 1)
		      BY(GUARD_GONE, 1) BY(GUARD_REVOCATIONS, 1)
		      AT_LEAST(GUARD_LATER, 0)),
		TRACES("verdict=suspect",
		       " addr={addr} length=16384 outcome=gone",
		       "memreg_region_stale: ")
	});
}

/* The mapping may be written and not read. */
TEST_F_TIMEOUT(events, look_at_what_is_only_written, LIMIT_S)
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
static int queried_state(FIXTURE_DATA(events) *self, __u32 mr)
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
TEST_F_TIMEOUT(events, revocation_for_nothing_is_counted, LIMIT_S)
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
			FIXTURE_DATA(events) *self, __u64 before)
{
	__u64 breaks = moved(_metadata, self, IB_MEMREG_STAT_QUEUE_BREAKS);

	return breaks == rebuilt() - before &&
	       breaks == moved(_metadata, self, IB_MEMREG_STAT_QUEUE_REBUILDS);
}

/*
 * The GID of the registration queue goes, so the queue breaks, and is rebuilt
 * on another GID. When the GID is back, the queue may be moved to it again.
 */
TEST_F_TIMEOUT(events, queue_that_breaks_and_is_rebuilt_is_counted, LIMIT_S)
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

MAKER(bind_with_a_fault)
{
	fault_order("work_request", 0, 1);
	bind_batch(_metadata, self);
	fault_cancel("work_request");
}

/*
 * The first work request fails and the others are flushed; FRWRs that are made
 * anew serve the next bind.
 */
TEST_F_TIMEOUT(events, I4_frwrs_that_failed, LIMIT_S)
{
	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	STEPS({
		bind_with_a_fault,
		MOVES(BY(FRWRS_FAILED, BATCH) BY(FRWRS_DESTROYED, BATCH)
		      BY(FRWRS_ALLOCATED, 2 * BATCH) BY(BATCHES, 2)
		      BY(WORK_REQUESTS, 2 * BATCH) BY(QUEUE_BREAKS, 1)
		      BY(QUEUE_REBUILDS, 1) BY(KEYS_MADE, BATCH)
		      BY(WINDOWS_BOUND, BATCH)),
		TRACES("memreg_batch_post: ", "memreg_frwr_fail: file=",
		       "memreg_queue_broken: file=", "memreg_batch_end: ",
		       "memreg_queue_rebuilt: file=", "memreg_batch_post: ",
		       "memreg_batch_end: ",
		       " window={window} domain={domain} mr={mr} rkey={rkey}",
		       "!memreg_queue_down: ")
	});
}

MAKER(break_for_good)
{
	fault_order("queue_connect", 0, -1);
	fault_order("work_request", 0, 1);
	EXPECT_EQ(-ENETDOWN, bind_all(self));
	fault_cancel("work_request");
	fault_cancel("queue_connect");
}

TEST_F_TIMEOUT(events, I4_queue_that_stays_down, LIMIT_S)
{
	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	STEPS({
		break_for_good,
		MOVES(BY(QUEUE_BREAKS, 1) AT_LEAST(QUEUE_REBUILDS_FAILED, 1)
		      AT_LEAST(FRWRS_FAILED, BATCH)
		      AT_LEAST(FRWRS_ALLOCATED, BATCH)
		      AT_LEAST(FRWRS_DESTROYED, BATCH) AT_LEAST(BATCHES, 1)
		      AT_LEAST(WORK_REQUESTS, BATCH)),
		TRACES("memreg_frwr_fail: file=", "memreg_queue_broken: file=",
		       "memreg_queue_down: file=", "!memreg_key_publish: ")
	}, {
		bind_batch,
		MOVES(BY(QUEUE_REBUILDS, 1) BY(KEYS_MADE, BATCH)
		      BY(WINDOWS_BOUND, BATCH) AT_LEAST(FRWRS_ALLOCATED, 0)
		      AT_LEAST(FRWRS_DESTROYED, 0) AT_LEAST(BATCHES, 1)
		      AT_LEAST(WORK_REQUESTS, BATCH)),
		TRACES("memreg_queue_rebuilt: file=", "memreg_key_publish: ")
	});
}

/*
 * If a revoke killed some of the keys before, the guard would count fewer.
 */
MAKER(unmap_in_vain)
{
	fault_order("completion", 0, 1);
	ASSERT_EQ(0, munmap(self->memory, PAGE));
	fault_cancel("completion");
	EXPECT_EQ(1, moved(_metadata, self, IB_MEMREG_STAT_GUARD_TIMEOUTS));
	await_move(_metadata, self, IB_MEMREG_STAT_QUEUE_REBUILDS, 1);
	await_move(_metadata, self, IB_MEMREG_STAT_GUARD_KILLS, BATCH);
	revoke_strict(_metadata, self);
}

/*
 * The guard gives up its wait. Then the queue is rebuilt, and its keys die with
 * it.
 */
TEST_F_TIMEOUT(events, I1_wait_of_a_guard_that_runs_out, LIMIT_S)
{
	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	bind_batch(_metadata, self);
	STEPS({
		unmap_in_vain,
		MOVES(AT_LEAST(GUARD_EVENTS, 1) BY(GUARD_REVOCATIONS, 1)
		      BY(GUARD_TIMEOUTS, 1) BY(KEYS_KILLED, BATCH)
		      ONE_BATCH(BATCH) BY(QUEUE_BREAKS, 1)
		      BY(QUEUE_REBUILDS, 1) BY(FRWRS_FAILED, BATCH)
		      BY(FRWRS_DESTROYED, BATCH) BY(GUARD_KILLS, BATCH)
		      BY(WINDOWS_REVOKED, BATCH)),
		TRACES("memreg_guard_event: dev=", "memreg_region_stale: ",
		       "memreg_batch_post: ", "memreg_guard_timeout: ",
		       "memreg_queue_broken: ", "memreg_frwr_destroy: ")
	}, {
		deregister,
		MOVES(BY(MRS_DEREGISTERED, 1)
		      BY(PAGES_UNPINNED, LENGTH / PAGE)),
		TRACES("memreg_region_unpin: ")
	});
}

/*
 * Connections
 */

MAKER(admit)
{
	peer_start(_metadata, &self->peer, OWNER_IP4, self->o.port, NULL);
	self->endpoint = owner_admit(_metadata, &self->o, &self->peer,
				     self->o.domain, NULL);
}

MAKES(disconnect, memreg_disconnect(self->o.m, self->endpoint))
MAKES(destroy_endpoint, memreg_destroy(self->o.m, self->endpoint))

#define ESTABLISHED	{						\
	admit, MOVES(BY(ENDPOINTS_ESTABLISHED, 1)),			\
	TRACES(" domain=0 state=requested ",				\
	       " domain={domain} state=connecting ",			\
	       " domain={domain} state=connected status=0")		\
}

#define CLOSED		TRACES(" domain={domain} state=closed ")

TEST_F_TIMEOUT(events, connection_that_came_up_and_ended, LIMIT_S)
{
	STEPS(ESTABLISHED, {
		disconnect, MOVES(BY(ENDPOINTS_DISCONNECTED, 1)), CLOSED
	}, {
		destroy_endpoint, MOVES(), TRACES("!memreg_endpoint_state: ")
	});
	peer_stop(&self->peer, 0);
}

MAKER(kill_peer)
{
	peer_stop(&self->peer, SIGKILL);
	owner_await(_metadata, &self->o, IB_MEMREG_EVENT_DISCONNECTED, NULL);
}

TEST_F_TIMEOUT(events, connection_that_the_peer_ended, LIMIT_S)
{
	admit(_metadata, self);
	STEPS({ kill_peer, MOVES(BY(ENDPOINTS_DISCONNECTED, 1)), CLOSED });
}

TEST_F_TIMEOUT(events, connection_that_was_destroyed, LIMIT_S)
{
	admit(_metadata, self);
	STEPS({
		destroy_endpoint, MOVES(BY(ENDPOINTS_DISCONNECTED, 1)),
		TRACES(" domain={domain} state=closed ")
	});
	peer_stop(&self->peer, 0);
}

MAKER(request)
{
	peer_start(_metadata, &self->peer, OWNER_IP4, self->o.port, NULL);
	self->endpoint = owner_await(_metadata, &self->o,
				     IB_MEMREG_EVENT_CONNECT_REQUEST, NULL);
}

MAKER(reject)
{
	ASSERT_EQ(0, memreg_reject(self->o.m, self->endpoint, NULL, 0));
	peer_answer(_metadata, &self->peer);
	ASSERT_PEER("rejected", &self->peer);
}

/* Destroying a request rejects it. */
MAKER(destroy_request)
{
	peer_tell(_metadata, &self->peer, "conn");
	self->endpoint = owner_await(_metadata, &self->o,
				     IB_MEMREG_EVENT_CONNECT_REQUEST, NULL);
	ASSERT_EQ(0, memreg_destroy(self->o.m, self->endpoint));
	peer_answer(_metadata, &self->peer);
}

TEST_F_TIMEOUT(events, requests_that_were_rejected, LIMIT_S)
{
	STEPS({
		request, MOVES(), TRACES(" domain=0 state=requested ")
	}, {
		reject, MOVES(BY(ENDPOINTS_REJECTED, 1)),
		TRACES(" domain=0 state=closed ")
	}, {
		destroy_request, MOVES(BY(ENDPOINTS_REJECTED, 1)),
		TRACES(" domain=0 state=requested ")
	});
	peer_stop(&self->peer, 0);
}

TEST_F_TIMEOUT(events, request_beyond_the_backlog, LIMIT_S)
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

static int connect_to(FIXTURE_DATA(events) *self, const char *ip, int ms)
{
	struct sockaddr_storage ss;

	return memreg_connect(self->o.m, self->o.domain, ip_address(ip, 9, &ss),
			      NULL, ms, NULL, 0, &self->endpoint);
}

/* Nobody listens there. */
MAKER(connect_in_vain)
{
	ASSERT_EQ(0, connect_to(self, PEER_IP4, LIMIT_MS));
	owner_await(_metadata, &self->o, IB_MEMREG_EVENT_REJECTED, NULL);
}

/* Nobody is there. */
MAKER(connect_to_nobody)
{
	ASSERT_EQ(0, connect_to(self, "192.0.2.99", 100));
	owner_await(_metadata, &self->o, IB_MEMREG_EVENT_ERROR, NULL);
}

TEST_F_TIMEOUT(events, connections_that_did_not_come_up, LIMIT_S)
{
	STEPS({
		connect_in_vain, MOVES(BY(ENDPOINTS_REJECTED, 1)), CLOSED
	}, {
		connect_to_nobody, MOVES(BY(ENDPOINTS_FAILED, 1)), CLOSED
	});
}

/*
 * Work on a connection
 */

MAKER(come_up)
{
	struct ib_memreg_queues queues;

	ASSERT_EQ(0, link_open(&self->link, PAGE));
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 16, 64, 0, -1));
	queues = queues_on(self->ring.id, 4, 4, 1, 8);
	ASSERT_EQ(0, link_up(&self->link, &queues, false));
	self->endpoint = self->link.endpoint;
	self->made_in = self->link.domain;
}

MAKER(write_one)
{
	struct ib_memreg_wr write = WR(WRITE, self->endpoint,
				       INLINE_DATA("message", 8),
				       .flags = SIGNALED | INLINE,
				       .user_data = 0x77,
				       .remote_addr =
					       (uintptr_t)self->link.stock.mem,
				       .rkey = self->link.stock.mr->rkey);

	ASSERT_EQ(0, raw_submit(self->link.fd, &write, 1));
	ASSERT_EQ(0, ring_wait(&self->ring, 1, LIMIT_MS * MS, NULL));
}

/* A receive, and an INVALIDATE of a key that no window has */
MAKER(end_a_bogus_key)
{
	RAW(mr_register, mr, .domain_id = self->link.domain,
	    .access = LOCAL_WRITE | REMOTE_WRITE,
	    .addr = (uintptr_t)self->memory, .length = LENGTH);
	struct ibv_send_wr send_inv = { .opcode = IBV_WR_SEND_WITH_INV };
	struct ib_memreg_wr recv;

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &mr));
	recv = WR(RECV, self->endpoint, SGE(mr.out_mr_id, 0, 8),
		  .user_data = 0x78);
	send_inv.invalidate_rkey = mr.out_rkey;
	self->rkey = mr.out_rkey;
	ASSERT_EQ(0, raw_submit(self->link.fd, &recv, 1));
	ASSERT_EQ(0, stock_post(&self->link.stock, &send_inv, 0, 8));
	ASSERT_EQ(0, raw_await(self->link.fd, IB_MEMREG_EVENT_DISCONNECTED,
			       NULL));
}

/* OP(WRITE), IB_MEMREG_WC_SUCCESS */
#define WRITE_COMPLETED							\
	"memreg_complete: ring={ring} endpoint={endpoint} user_data=0x77 opcode=4 status=0 "

TEST_F_TIMEOUT(events, I5_work_and_a_bogus_invalidation, LIMIT_S)
{
	STEPS({
		come_up, MOVES(BY(ENDPOINTS_ESTABLISHED, 1)),
		TRACES("domain=0 state=requested ",
		       "domain={domain} state=connecting ",
		       "domain={domain} state=connected status=0")
	}, {
		write_one, MOVES(BY(WRS_SUBMITTED, 1) BY(WRS_COMPLETED, 1)),
		TRACES(WRITE_COMPLETED)
	}, {
		end_a_bogus_key,
		MOVES(BY(MRS_REGISTERED, 1) BY(PAGES_PINNED, LENGTH / PAGE)
		      BY(KEYS_MADE, 1) BY(FRWRS_ALLOCATED, 1) ONE_BATCH(1)
		      BY(WRS_SUBMITTED, 1) BY(WRS_COMPLETED, 1)
		      BY(BOGUS_INVALIDATIONS, 1) BY(ENDPOINTS_DISCONNECTED, 1)
		      AT_LEAST(WRS_FAILED, 0) AT_LEAST(INLINE_RECEIVES, 0)
		      AT_LEAST(KEYS_KILLED, 0) AT_LEAST(FRWRS_DESTROYED, 0)),
		TRACES("memreg_bogus_invalidate: file=",
		       "domain={domain} state=closed ")
	});
	EXPECT_TRUE(!self->traced || strstr(self->text, " user_data=0x78 "));
	link_close(&self->link);
	ring_unmap(&self->ring);
}

/*
 * Memory on demand
 */

static int bind_page(FIXTURE_DATA(events) *self, __u32 page)
{
	struct ib_memreg_bind bind = {
		.window_id = self->windows[0], .mr_id = self->made,
		.offset = page * PAGE, .length = PAGE, .access = REMOTE_READ,
	};

	return raw_bind(self->fd, self->o.domain, &bind, 1) ?:
	       raw_revoke(self->fd, self->o.domain, self->windows, 1);
}

/* Of the second page nothing is there. */
MAKER(register_demand)
{
	RAW(mr_register, cmd, .flags = IB_MEMREG_MR_ON_DEMAND,
	    .domain_id = self->o.domain, .access = FOR_WINDOWS,
	    .addr = (uintptr_t)self->other, .length = LENGTH);

	ASSERT_EQ(0, madvise(self->other + PAGE, PAGE, MADV_DONTNEED));
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_REGISTER, &cmd));
	self->made = cmd.out_mr_id;
	self->at = self->other;
}

MAKES(use_first, bind_page(self, 0))
MAKES(use_second, bind_page(self, 1))
MAKES(use_third, bind_page(self, 2))

MAKER(prefetch_third)
{
	struct ib_memreg_range range = {
		.mr_id = self->made, .offset = 2 * PAGE, .length = PAGE,
	};
	RAW(mr_advise, cmd, .advice = IB_MEMREG_ADVICE_PREFETCH_WRITE,
	    .count = 1, .ranges = (uintptr_t)&range);

	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_ADVISE, &cmd));
	ASSERT_EQ(1, range.out_pages);
}

MAKES(unmap_first, munmap(self->other, PAGE))

#define OF_PAGE(_page, _write)						\
	" mr={mr} domain={domain} addr=" _page " length=4096 write=" _write
/*
 * A bind and a revoke, which destroys its FRWR where invalidation is weak. Idle
 * pages are unpinned after a time.
 */
#define A_GRANT								\
	BY(WINDOWS_BOUND, 1) BY(WINDOWS_REVOKED, 1) BY(KEYS_MADE, 1)	\
	BY(KEYS_KILLED, 1) BY(FRWRS_ALLOCATED, 1)			\
	AT_LEAST(FRWRS_DESTROYED, 0) AT_LEAST(BATCHES, 1)		\
	AT_LEAST(WORK_REQUESTS, 1) AT_LEAST(DEMAND_UNPINNED, 0)		\
	AT_LEAST(PAGES_UNPINNED, 0)
#define A_FAULT								\
	A_GRANT BY(DEMAND_FAULTS, 1) BY(DEMAND_PINNED, 1)		\
	BY(PAGES_PINNED, 1) AT_LEAST(DEMAND_PINNED_MAX, 0)

/*
 * Grants on three pages: one that was touched, one that was not, and one that
 * MR_ADVISE has pinned
 */
TEST_F_TIMEOUT(events, memory_on_demand, LIMIT_S)
{
	register_demand(_metadata, self);
	STEPS({
		use_first, MOVES(A_FAULT),
		TRACES(OF_PAGE("{addr}", "0 ns="), "!memreg_demand_hit: ")
	}, {
		use_first, MOVES(A_GRANT BY(DEMAND_HITS, 1)),
		TRACES(OF_PAGE("{addr}", "0"), "!memreg_demand_fault: ")
	}, {
		use_second, MOVES(A_FAULT),
		TRACES("memreg_demand_miss: file=", OF_PAGE("{next}", "0 ns="))
	}, {
		prefetch_third,
		MOVES(BY(DEMAND_PREFETCHES, 1) BY(DEMAND_PINNED, 1)
		      BY(PAGES_PINNED, 1) AT_LEAST(DEMAND_PINNED_MAX, 0)
		      AT_LEAST(DEMAND_UNPINNED, 0) AT_LEAST(PAGES_UNPINNED, 0)),
		TRACES(OF_PAGE("{third}", "1"))
	}, {
		use_third,
		MOVES(A_GRANT BY(DEMAND_HITS, 1) BY(DEMAND_PREFETCH_HITS, 1)),
		TRACES(OF_PAGE("{third}", "1"))
	});
	/* The pages of the latest use stay. */
	use_first(_metadata, self);
	STEPS({
		unmap_first,
		MOVES(BY(DEMAND_INVALIDATIONS, 1) AT_LEAST(DEMAND_UNPINNED, 0)
		      AT_LEAST(PAGES_UNPINNED, 0)),
		TRACES("memreg_demand_invalidate: file=",
		       "memreg_demand_evict: ")
	}, {
		deregister,
		MOVES(BY(MRS_DEREGISTERED, 1) AT_LEAST(DEMAND_UNPINNED, 0)
		      AT_LEAST(PAGES_UNPINNED, 0)),
		TRACES("memreg_mr_deregister: ")
	});
}

/*
 * Tracepoints
 */

TEST_F(events, events_are_those_that_are_documented)
{
	static const char *const events[] = {
		"file_bind", "file_close", "domain_create", "domain_destroy",
		"queue_broken", "queue_rebuilt", "queue_down", "batch_post",
		"batch_end", "frwr_alloc", "frwr_reuse", "frwr_foreign",
		"frwr_map", "frwr_fail", "frwr_idle", "frwr_destroy",
		"key_publish", "key_claim", "region_pin", "region_unpin",
		"region_stale", "guard_event", "guard_look", "guard_timeout",
		"mr_register", "mr_reregister", "mr_deregister",
		"demand_fault", "demand_prefetch", "demand_miss", "demand_hit",
		"demand_invalidate", "demand_evict", "window_bind",
		"window_revoke", "lease_expire", "endpoint_state", "complete",
		"bogus_invalidate", "pool_take", "pool_put", "pool_replace",
		"req_map", "req_register", "req_invalidate", "req_fail",
		"req_bogus",
	};
	char path[256];
	unsigned int i;
	glob_t found;

	if (!self->traced)
		SKIP(return, "this kernel has no tracefs");
	for (i = 0; i < ARRAY_LEN(events); i++) {
		snprintf(path, sizeof(path), EVENTS "/memreg_%s/format",
			 events[i]);
		EXPECT_EQ(0, access(path, R_OK))
			TH_LOG("%s", path);
	}
	ASSERT_EQ(0, glob(EVENTS "/memreg_*", 0, NULL, &found));
	EXPECT_EQ(ARRAY_LEN(events), found.gl_pathc);
	globfree(&found);
}

/*
 * Idle times of device MRs: for each index of a key, which stays when the low
 * byte of the key changes, the time in microseconds at which its device MR
 * became idle. @taken counts reuses, and @early those after less than REST_US.
 */
struct rests {
	struct { __u32 index; __u64 since; } idle[4096];
	unsigned int known;
	unsigned int taken;
	unsigned int early;
};

/* One line of a trace, "... SECONDS.MICROS: memreg_frwr_idle: ... rkey=..." */
static bool rests_add(struct rests *r, const char *line)
{
	const char *event = strstr(line, ": memreg_frwr_");
	const char *rkey = strstr(line, " rkey=0x");
	unsigned long seconds, micros;
	const char *time = event;
	unsigned int i;
	__u32 index;
	__u64 now;

	if (!event || !rkey)
		return false;
	while (time > line && time[-1] != ' ')
		time--;
	if (sscanf(time, "%lu.%lu", &seconds, &micros) != 2)
		return false;
	now = seconds * 1000000 + micros;
	index = strtoul(rkey + strlen(" rkey="), NULL, 16) >> 8;
	for (i = 0; i < r->known && r->idle[i].index != index; i++)
		;
	if (strncmp(event, ": memreg_frwr_reuse", 19)) {
		if (i == ARRAY_LEN(r->idle))
			return false;
		r->idle[i].index = index;
		r->idle[i].since = now;
		r->known += i == r->known;
	} else if (i < r->known) {
		r->taken++;
		r->early += now - r->idle[i].since < REST_US;
	}
	return true;
}

/*
 * A key rests for 2 ms, even if windows come and go quickly. The kernel reads
 * the clock just before it writes the line of the trace, and an interrupt in
 * between makes the rest look shorter: allow one in ten. A debug kernel is so
 * slow that no key is reused sooner anyway.
 */
TEST_F_TIMEOUT(events, I9_key_rests_before_it_is_used_again, LIMIT_S)
{
	struct ib_memreg_bind binds[32];
	struct rests rests = { 0 };
	unsigned int i, rounds = 0;
	__u64 before, reused = 0;
	__u32 windows[32];
	char *line, *save;

	if (!self->traced)
		SKIP(return, "this kernel has no tracefs");
	trace_enable(_metadata, self, false);
	ASSERT_EQ(0, raw_windows(self->fd, self->o.domain, LENGTH, windows,
				 32));
	ASSERT_EQ(0, file_write(INSTANCE "/trace_clock", "mono"));
	ASSERT_EQ(0, file_write(EVENTS "/memreg_frwr_idle/enable", "1"));
	ASSERT_EQ(0, file_write(EVENTS "/memreg_frwr_reuse/enable", "1"));
	ASSERT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_FRWRS_REUSED, &before));
	for (; reused < 2000 && rounds < MAX_ROUNDS; rounds++) {
		for (i = 0; i < 32; i++)
			binds[i] = (struct ib_memreg_bind) {
				.window_id = windows[i], .mr_id = self->mr,
				.length = PAGE, .access = REMOTE_READ,
			};
		ASSERT_EQ(0, raw_bind(self->fd, self->o.domain, binds, 32));
		ASSERT_EQ(0, raw_revoke_relaxed(self->fd, self->o.domain,
						windows, 32));
		ASSERT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_FRWRS_REUSED,
				      &reused));
		reused -= before;
	}
	trace_read(_metadata, self);
	for (line = strtok_r(self->text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		if (*line != '#')
			ASSERT_TRUE(rests_add(&rests, line)) {
				TH_LOG("a line is no event of an FRWR");
			}
	TH_LOG("%u of %u taken early, of %u", rests.early, rests.taken,
	       rests.known);
	EXPECT_LE(2000, rests.taken);
	EXPECT_GE(rests.taken, 10 * rests.early);
}

TEST_F(events, nothing_is_traced_that_is_turned_off)
{
	if (!self->traced)
		SKIP(return, "this kernel has no tracefs");
	trace_enable(_metadata, self, false);
	trace_clear(_metadata);
	open_file(_metadata, self);
	ASSERT_EQ(0, file_write(EVENTS "/memreg_domain_destroy/enable", "1"));
	close_file(_metadata, self);
	trace_read(_metadata, self);
	EXPECT_NE(NULL, strstr(self->text, "memreg_domain_destroy: "));
	EXPECT_EQ(NULL, strstr(self->text, "memreg_domain_create: "));
	EXPECT_EQ(NULL, strstr(self->text, "memreg_file_"));
}

PEER_HARNESS_MAIN
