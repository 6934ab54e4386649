// SPDX-License-Identifier: GPL-2.0-only
/*
 * The time that spinlocks are held, and interrupts are off, does not depend on
 * the size of a user's requests: kernel/tests/spans.c measures by the function
 * tracer, and each kind of work is done with few and with many objects.
 * Measurements are compared within the same run.
 *
 * time limit: 600
 * beside others: counted
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "module.h"
#include "net.h"
#include "raw.h"
#include "ring.h"
#include "test.h"

#define MODULE		"ib_memreg_spans"
#define FILE_SPANS	"/sys/kernel/debug/memreg_spans"
#define SGES_MAX	16
/* Work requests of one call */
#define SUBMITTED	64
#define BATCH		IB_MEMREG_BATCH_MAX
/* The longest span with many may be as many times as long as that with few. */
#define RATIO		3
/* How often each is done at least */
#define ROUNDS		times(3, 5)
/* Functions that take locks, at most */
#define FUNCTIONS	256

/*
 * The module
 */

/* Find the range of addresses that has all functions of ib_memreg. */
static bool text_of_memreg(unsigned long *start, unsigned long *end)
{
	FILE *f = fopen("/proc/kallsyms", "r");
	unsigned long address;
	char type, line[512];

	*start = ~0UL;
	*end = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (!strstr(line, "\t[ib_memreg]") ||
		    sscanf(line, "%lx %c", &address, &type) != 2 ||
		    (type != 't' && type != 'T'))
			continue;
		*start = address < *start ? address : *start;
		*end = address > *end ? address : *end;
	}
	if (f)
		fclose(f);
	return *start < *end;
}

static bool spans_load(void)
{
	unsigned long start, end;
	char parameters[128];

	if (!text_of_memreg(&start, &end))
		return false;
	/* kallsyms has no end of the last function: assume less than a page. */
	snprintf(parameters, sizeof(parameters), "start=%lu end=%lu", start,
		 end + PAGE);
	return test_module_load(MODULE, parameters);
}

/*
 * Measurements of some rounds. A round that other programs of the host have
 * disturbed is of no use, so of a function's longest span in each round the
 * shortest one counts, if the function took the lock in most rounds.
 *
 * @now: the longest span in the round that is being done, 0 if none
 */
struct measured {
	unsigned int rounds;
	unsigned int count;
	struct {
		char function[64];
		unsigned int rounds;
		long longest;
		long now;
	} sites[FUNCTIONS];
};

static void measured_add(struct measured *m, const char *function, long ns)
{
	unsigned int i;

	for (i = 0; i < m->count; i++)
		if (!strcmp(m->sites[i].function, function))
			break;
	if (i == FUNCTIONS)
		return;
	if (i == m->count) {
		snprintf(m->sites[i].function, sizeof(m->sites[i].function),
			 "%s", function);
		m->sites[i].longest = LONG_MAX;
		m->count++;
	}
	if (ns > m->sites[i].now)
		m->sites[i].now = ns;
}

/* Take what the module has measured since the last reset. */
static void measured_read(struct measured *m)
{
	FILE *f = fopen(FILE_SPANS, "r");
	char line[512], function[64];
	long ns;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%ld %*d %63s", &ns, function) == 2 && ns)
			measured_add(m, function, ns);
	if (f)
		fclose(f);
}

/* End a round. */
static void measured_round(struct measured *m)
{
	unsigned int i;

	m->rounds++;
	for (i = 0; i < m->count; i++) {
		if (!m->sites[i].now)
			continue;
		m->sites[i].rounds++;
		if (m->sites[i].now < m->sites[i].longest)
			m->sites[i].longest = m->sites[i].now;
		m->sites[i].now = 0;
	}
}

/* The longest span of all functions, and the name of its function */
static long measured_longest(const struct measured *m, const char **where)
{
	long longest = 0;
	unsigned int i;

	*where = "none";
	for (i = 0; i < m->count; i++) {
		if (m->sites[i].rounds <= m->rounds / 2 ||
		    m->sites[i].longest <= longest)
			continue;
		longest = m->sites[i].longest;
		*where = m->sites[i].function;
	}
	return longest;
}

/*
 * Work
 */

FIXTURE(spans) {
	int fd;
	__u32 domain;
	char *memory;
	__u32 mr;
	__u32 *ids;
	struct link link;
	struct ring ring;
	struct status_map status;
};

FIXTURE_VARIANT(spans)
{
	void (*prepare)(struct __test_metadata *_metadata,
			FIXTURE_DATA(spans) *self, unsigned int n);
	void (*work)(struct __test_metadata *_metadata,
		     FIXTURE_DATA(spans) *self, unsigned int n);
	void (*undo)(struct __test_metadata *_metadata,
		     FIXTURE_DATA(spans) *self, unsigned int n);
	unsigned int few;
	unsigned int many;
};

static void open_it(struct __test_metadata *_metadata,
		    FIXTURE_DATA(spans) *self, unsigned int n)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	self->memory = mem_alloc(n * PAGE);
	ASSERT_NE(NULL, self->memory);
	self->ids = calloc(n, sizeof(*self->ids));
	ASSERT_NE(NULL, self->ids);
}

static void close_it(struct __test_metadata *_metadata,
		     FIXTURE_DATA(spans) *self, unsigned int n)
{
	if (self->fd >= 0)
		EXPECT_EQ(0, close(self->fd));
	if (self->memory)
		mem_free(self->memory, n * PAGE);
	free(self->ids);
}

static void windows_there(struct __test_metadata *_metadata,
			  FIXTURE_DATA(spans) *self, unsigned int n)
{
	open_it(_metadata, self, n);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory,
				  n * PAGE, MW_BIND, &self->mr));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, PAGE, self->ids, n));
}

static void bind_all(struct __test_metadata *_metadata,
		     FIXTURE_DATA(spans) *self, unsigned int n)
{
	struct ib_memreg_bind binds[BATCH] = {};
	unsigned int i;

	for (i = 0; i < n; i++)
		binds[i] = (struct ib_memreg_bind) {
			.window_id = self->ids[i], .mr_id = self->mr,
			.offset = i * PAGE, .length = PAGE,
			.access = REMOTE_READ,
		};
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, n));
}

static void windows_bound(struct __test_metadata *_metadata,
			  FIXTURE_DATA(spans) *self, unsigned int n)
{
	windows_there(_metadata, self, n);
	bind_all(_metadata, self, n);
}

static void revoke_relaxed(struct __test_metadata *_metadata,
			   FIXTURE_DATA(spans) *self, unsigned int n)
{
	ASSERT_EQ(0, raw_revoke_relaxed(self->fd, self->domain, self->ids, n));
}

static void windows_rested(struct __test_metadata *_metadata,
			   FIXTURE_DATA(spans) *self, unsigned int n)
{
	windows_bound(_metadata, self, n);
	revoke_relaxed(_metadata, self, n);
}

static void revoke_all(struct __test_metadata *_metadata,
		       FIXTURE_DATA(spans) *self, unsigned int n)
{
	ASSERT_EQ(0, raw_revoke(self->fd, self->domain, self->ids, n));
}

static void unmap_all(struct __test_metadata *_metadata,
		      FIXTURE_DATA(spans) *self, unsigned int n)
{
	(void)_metadata;
	mem_free(self->memory, n * PAGE);
	self->memory = NULL;
}

static void mrs_there(struct __test_metadata *_metadata,
		      FIXTURE_DATA(spans) *self, unsigned int n)
{
	unsigned int i;

	open_it(_metadata, self, n);
	/* All of them are of one page. */
	for (i = 0; i < n; i++)
		ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory,
					  PAGE, REMOTE_READ, &self->ids[i]));
}

static void close_file(struct __test_metadata *_metadata,
		       FIXTURE_DATA(spans) *self, unsigned int n)
{
	(void)n;
	ASSERT_EQ(0, close(self->fd));
	self->fd = -1;
}

/* FRWRs that each domain is made to have, and FRWRs that it keeps when idle */
#define SPARES		96
#define KEPT		64

/* Make domains with more idle FRWRs than they keep. */
static void domains_with_spares(struct __test_metadata *_metadata,
				FIXTURE_DATA(spans) *self, unsigned int n)
{
	struct ib_memreg_bind binds[BATCH] = {};
	__u32 domain, windows[BATCH];
	unsigned int i, k;

	open_it(_metadata, self, n);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, PAGE,
				  MW_BIND, &self->mr));
	for (i = 0; i < n; i++) {
		ASSERT_EQ(0, raw_domain(self->fd, &domain));
		ASSERT_EQ(0, raw_windows(self->fd, domain, PAGE, windows,
					 SPARES));
		for (k = 0; k < SPARES; k++)
			binds[k] = (struct ib_memreg_bind) {
				.window_id = windows[k], .mr_id = self->mr,
				.length = PAGE, .access = REMOTE_READ,
			};
		ASSERT_EQ(0, raw_bind(self->fd, domain, binds, SPARES));
		ASSERT_EQ(0, raw_revoke_relaxed(self->fd, domain, windows,
						SPARES));
	}
}

static void shrink(struct __test_metadata *_metadata,
		   FIXTURE_DATA(spans) *self, unsigned int n)
{
	int64_t end = now_ms() + LIMIT_MS;
	__u64 before, now;

	ASSERT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_FRWRS_REAPED, &before));
	do {
		ASSERT_GT(end, now_ms());
		ASSERT_EQ(0, file_write("/proc/sys/vm/drop_caches", "2"));
		ASSERT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_FRWRS_REAPED,
				      &now));
	} while (now - before < n * (SPARES - KEPT));
}

/* Post receives with as many SGEs as the ABI allows, to be flushed later. */
static void receives_posted(struct __test_metadata *_metadata,
			    FIXTURE_DATA(spans) *self, unsigned int n)
{
	struct ib_memreg_queues queues = {
		.max_recv = n, .max_recv_sge = SGES_MAX,
	};
	struct ib_memreg_sge sges[SGES_MAX];
	struct ib_memreg_wr wr;
	__u32 mr[SGES_MAX];
	unsigned int i;

	ASSERT_EQ(0, link_open(&self->link, PAGE));
	self->memory = mem_alloc(PAGE);
	for (i = 0; i < SGES_MAX; i++) {
		ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain,
					  self->memory, PAGE, LOCAL_WRITE,
					  &mr[i]));
		sges[i] = (struct ib_memreg_sge) {
			.mr_id = mr[i], .length = 8,
		};
	}
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, n, 64, 0, -1));
	queues.recv_ring_id = self->ring.id;
	ASSERT_EQ(0, link_up(&self->link, &queues, false));
	wr = WR(RECV, self->link.endpoint, SGES(sges, SGES_MAX));
	for (i = 0; i < n; i++)
		ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
}

static void flush_all(struct __test_metadata *_metadata,
		      FIXTURE_DATA(spans) *self, unsigned int n)
{
	ASSERT_EQ(0, raw_disconnect(self->link.fd, self->link.endpoint));
	ASSERT_EQ(0, ring_wait(&self->ring, n, LIMIT_MS * MS, NULL));
}

/* Post sends that are not signalled, with as many SGEs as the ABI allows. */
static void sends_room(struct __test_metadata *_metadata,
		       FIXTURE_DATA(spans) *self, unsigned int n)
{
	struct ib_memreg_queues queues = {
		.max_send = n, .max_send_sge = SGES_MAX,
	};

	ASSERT_EQ(0, link_open(&self->link, PAGE));
	self->memory = mem_alloc(PAGE);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain,
				  self->memory, PAGE, LOCAL_WRITE, &self->mr));
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, n, 64, 0, -1));
	queues.send_ring_id = self->ring.id;
	ASSERT_EQ(0, link_up(&self->link, &queues, false));
}

static void send_all(struct __test_metadata *_metadata,
		     FIXTURE_DATA(spans) *self, unsigned int n)
{
	struct ib_memreg_wr *wrs = calloc(n, sizeof(*wrs));
	struct ib_memreg_sge sges[SGES_MAX];
	unsigned int i;

	ASSERT_NE(NULL, wrs);
	for (i = 0; i < SGES_MAX; i++)
		sges[i] = (struct ib_memreg_sge) {
			.mr_id = self->mr, .offset = 64 * i, .length = 8,
		};
	for (i = 0; i < n; i++)
		wrs[i] = WR(WRITE, self->link.endpoint, SGES(sges, SGES_MAX),
			    .flags = i == n - 1 ? SIGNALED : 0,
			    .rkey = self->link.stock.mr->rkey,
			    .remote_addr = (uintptr_t)self->link.stock.mem);
	for (i = 0; i < n; i += SUBMITTED)
		ASSERT_EQ(0, raw_submit(self->link.fd, wrs + i, SUBMITTED));
	ASSERT_EQ(0, ring_wait(&self->ring, 1, LIMIT_MS * MS, NULL));
	free(wrs);
}

static void link_gone(struct __test_metadata *_metadata,
		      FIXTURE_DATA(spans) *self, unsigned int n)
{
	(void)_metadata;
	(void)n;
	link_close(&self->link);
	ring_unmap(&self->ring);
	mem_free(self->memory, PAGE);
}

static void monitors_there(struct __test_metadata *_metadata,
			   FIXTURE_DATA(spans) *self, unsigned int n)
{
	struct ib_memreg_monitor monitors[BATCH];
	unsigned int i, k;
	char *at;

	open_it(_metadata, self, n);
	at = self->memory;
	ASSERT_EQ(0, status_create(self->fd, n, 0, &self->status));
	/* A page can have as many monitors as a call makes. */
	for (i = 0; i < n; i += BATCH, at += PAGE) {
		for (k = 0; k < BATCH; k++)
			monitors[k] = (struct ib_memreg_monitor) {
				.addr = (uintptr_t)at,
				.length = PAGE,
			};
		ASSERT_EQ(0, raw_monitor(self->fd, self->status.id, monitors,
					 n - i < BATCH ? n - i : BATCH));
	}
}

static void monitors_gone(struct __test_metadata *_metadata,
			  FIXTURE_DATA(spans) *self, unsigned int n)
{
	status_unmap(&self->status);
	close_it(_metadata, self, n);
}

FIXTURE_VARIANT_ADD(spans, bind) {
	.prepare = windows_there, .work = bind_all, .undo = close_it,
	.few = 32, .many = BATCH,
};

FIXTURE_VARIANT_ADD(spans, bind_again) {
	.prepare = windows_rested, .work = bind_all, .undo = close_it,
	.few = 32, .many = BATCH,
};

FIXTURE_VARIANT_ADD(spans, revoke) {
	.prepare = windows_bound, .work = revoke_all, .undo = close_it,
	.few = 32, .many = BATCH,
};

FIXTURE_VARIANT_ADD(spans, revoke_relaxed) {
	.prepare = windows_bound, .work = revoke_relaxed, .undo = close_it,
	.few = 32, .many = BATCH,
};

FIXTURE_VARIANT_ADD(spans, unmap_under_windows) {
	.prepare = windows_bound, .work = unmap_all, .undo = close_it,
	.few = 32, .many = BATCH,
};

FIXTURE_VARIANT_ADD(spans, unmap_under_mrs) {
	.prepare = mrs_there, .work = unmap_all, .undo = close_it,
	.few = 32, .many = BATCH,
};

FIXTURE_VARIANT_ADD(spans, close_with_mrs) {
	.prepare = mrs_there, .work = close_file, .undo = close_it,
	.few = 32, .many = BATCH,
};

FIXTURE_VARIANT_ADD(spans, close_with_windows) {
	.prepare = windows_rested, .work = close_file, .undo = close_it,
	.few = 32, .many = BATCH,
};

FIXTURE_VARIANT_ADD(spans, shrink) {
	.prepare = domains_with_spares, .work = shrink, .undo = close_it,
	.few = 8, .many = 48,
};

FIXTURE_VARIANT_ADD(spans, flush) {
	.prepare = receives_posted, .work = flush_all, .undo = link_gone,
	.few = 64, .many = 512,
};

FIXTURE_VARIANT_ADD(spans, send) {
	.prepare = sends_room, .work = send_all, .undo = link_gone,
	.few = 256, .many = 1024,
};

FIXTURE_VARIANT_ADD(spans, unmap_under_monitors) {
	.prepare = monitors_there, .work = unmap_all, .undo = monitors_gone,
	.few = 64, .many = 4096,
};

FIXTURE_VARIANT_ADD(spans, close_with_monitors) {
	.prepare = monitors_there, .work = close_file, .undo = monitors_gone,
	.few = 64, .many = 4096,
};

FIXTURE_SETUP(spans)
{
	if (debug_kernel())
		SKIP(return, "checkers take longer than what they check");
	ASSERT_EQ(0, enter_namespace("memreg-owner"));
	/*
	 * Load the tracer's module anew: it has the addresses of this
	 * ib_memreg.
	 */
	test_module_unload(MODULE);
	if (!spans_load())
		SKIP(return, "there is no function tracer to measure with");
}

FIXTURE_TEARDOWN(spans)
{
	(void)self;
	test_module_unload(MODULE);
}

/*
 * Do the work with @n objects, as often as it takes to do it with as many
 * objects as there are in the other case: the longest of more spans is longer.
 */
static void measure(struct __test_metadata *_metadata,
		    FIXTURE_DATA(spans) *self,
		    const FIXTURE_VARIANT(spans) *variant, unsigned int n,
		    struct measured *m)
{
	unsigned int i;

	for (i = 0; i < variant->many / n; i++) {
		memset(self, 0, sizeof(*self));
		variant->prepare(_metadata, self, n);
		EXPECT_EQ(0, file_write(FILE_SPANS, "0"));
		variant->work(_metadata, self, n);
		measured_read(m);
		variant->undo(_metadata, self, n);
	}
	measured_round(m);
}

/* On a busy machine a round may fail to show it, so there are several. */
TEST_F_TIMEOUT(spans, locks_are_held_as_long_with_few_as_with_many, 600)
{
	int64_t end = now_ms() + 2 * LIMIT_MS;
	static struct measured few, many;
	const char *few_where, *where;
	long few_ns, ns;

	do {
		measure(_metadata, self, variant, variant->few, &few);
		measure(_metadata, self, variant, variant->many, &many);
		few_ns = measured_longest(&few, &few_where);
		ns = measured_longest(&many, &where);
	} while (many.rounds < ROUNDS ||
		 (ns > RATIO * few_ns && now_ms() < end));
	TH_LOG("%u: %ld ns in %s, %u: %ld ns in %s; %u rounds", variant->few,
	       few_ns, few_where, variant->many, ns, where, many.rounds);
	EXPECT_LT(0, few_ns);
	EXPECT_GE(RATIO * few_ns, ns);
	EXPECT_EQ(0, file_number("/sys/module/" MODULE "/parameters/lost"));
}

PEER_HARNESS_MAIN
