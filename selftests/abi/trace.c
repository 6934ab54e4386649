// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tracepoints are there, can be turned on and off at any time, and record
 * what happens in the order in which it happens. They go to a trace buffer of
 * the test's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "ends.h"
#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "ring.h"
#include "stock.h"
#include "test.h"

#define INSTANCE	TRACEFS "/instances/memreg-test"
#define EVENTS		INSTANCE "/events/ib_memreg"
#define LENGTH		(4 * PAGE)
#define MAX_ROUNDS	1000
#define REST_US		2000	/* for which nobody gets a key anew */

FIXTURE(trace) {
	int fd;
	__u32 domain;
	char *memory;
	char *text;
};

FIXTURE_SETUP(trace)
{
	if (!tracefs_there())
		SKIP(return, "this kernel has no tracefs");
	/* Remove the instance of a test that was killed. */
	rmdir(INSTANCE);
	ASSERT_EQ(0, mkdir(INSTANCE, 0700));
	ASSERT_EQ(0, access(EVENTS, F_OK));
	self->memory = mem_alloc(LENGTH);
	ASSERT_NE(NULL, self->memory);
	memset(self->memory, 1, LENGTH);
}

FIXTURE_TEARDOWN(trace)
{
	free(self->text);
	EXPECT_EQ(0, file_write(EVENTS "/enable", "0"));
	EXPECT_EQ(0, rmdir(INSTANCE));
}

static void trace_on(struct __test_metadata *_metadata)
{
	ASSERT_EQ(0, file_write(EVENTS "/enable", "1"));
}

/* Read the trace of memreg; it stays in the buffer. */
static void trace_read(struct __test_metadata *_metadata,
		       FIXTURE_DATA(trace) *self)
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
 * Expect these strings, up to NULL, in lines of the trace in this order. Other
 * lines may be in between.
 */
static void expect_order(struct __test_metadata *_metadata,
			 FIXTURE_DATA(trace) *self, const char *const *events)
{
	const char *at;

	trace_read(_metadata, self);
	for (at = self->text; *events; events++) {
		at = strstr(at, *events);
		ASSERT_NE(NULL, at)
			TH_LOG("no '%s' there in\n%s", *events, self->text);
		at = strchr(at, '\n');
		ASSERT_NE(NULL, at);
	}
}

#define ORDER(...)							\
	expect_order(_metadata, self,					\
		     (const char *const[]){ __VA_ARGS__, NULL })

/* Format a text, which is valid until the 16th call after this one. */
__attribute__((format(printf, 1, 2)))
static const char *text(const char *format, ...)
{
	static char texts[16][256];
	static unsigned int next;
	char *to = texts[next++ % 16];
	va_list ap;

	va_start(ap, format);
	vsnprintf(to, sizeof(texts[0]), format, ap);
	va_end(ap);
	return to;
}

/* Wait until it has been traced. */
static void await_trace(struct __test_metadata *_metadata,
			FIXTURE_DATA(trace) *self, const char *event)
{
	unsigned int i;

	trace_read(_metadata, self);
	for (i = 0; i < LIMIT_MS / 10 && !strstr(self->text, event); i++) {
		usleep(10000);
		trace_read(_metadata, self);
	}
	ASSERT_NE(NULL, strstr(self->text, event))
		TH_LOG("no '%s' there in\n%s", event, self->text);
}

static void make_domain(struct __test_metadata *_metadata,
			FIXTURE_DATA(trace) *self)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
}

TEST_F(trace, events_are_those_that_are_documented)
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
		"window_revoke", "endpoint_state", "complete",
		"bogus_invalidate", "pool_take", "pool_put", "pool_replace",
		"req_map", "req_register", "req_invalidate", "req_fail",
		"req_bogus",
	};
	unsigned int i;
	glob_t found;

	for (i = 0; i < ARRAY_LEN(events); i++) {
		EXPECT_EQ(0, access(text(EVENTS "/memreg_%s/format",
					 events[i]), R_OK))
			TH_LOG("event %u", i);
	}
	ASSERT_EQ(0, glob(EVENTS "/memreg_*", 0, NULL, &found));
	EXPECT_EQ(ARRAY_LEN(events), found.gl_pathc);
	globfree(&found);
}

/*
 * Revoke two windows: the module may revoke a single one by destroying its MR.
 */
TEST_F(trace, life_of_a_window_in_order)
{
	struct ib_memreg_bind bind, binds[2];
	__u32 i, mr, windows[2];

	trace_on(_metadata);
	make_domain(_metadata, self);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, LENGTH,
				  MW_BIND, &mr));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, LENGTH, windows, 2));
	for (i = 0; i < 2; i++)
		binds[i] = (struct ib_memreg_bind) {
			.window_id = windows[i], .mr_id = mr, .offset = 5,
			.length = PAGE, .access = REMOTE_READ,
		};
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, 2));
	bind = binds[0];
	ASSERT_EQ(0, raw_revoke_relaxed(self->fd, self->domain, windows, 2));
	ASSERT_EQ(0, raw_destroy(self->fd, mr));
	ASSERT_EQ(0, close(self->fd));

	ORDER("memreg_file_bind: ",
	      "memreg_domain_create: file=",
	      "memreg_region_pin: dev=",
	      text(" addr=%#lx length=%lu access=0x10 keys=0",
		   (unsigned long)self->memory, LENGTH),
	      "memreg_frwr_alloc: ",
	      text("rkey=0x%08x iova=%#llx length=4096 access=0x4",
		   bind.out_rkey, bind.out_iova),
	      "memreg_batch_post: ",
	      "memreg_batch_end: ",
	      "memreg_key_publish: file=",
	      text(" window=%u domain=%u mr=%u rkey=0x%08x", bind.window_id,
		   self->domain, bind.mr_id, bind.out_rkey),
	      "memreg_key_claim: ",
	      "memreg_batch_post: ",
	      "memreg_batch_end: ",
	      "memreg_frwr_idle: ",
	      "memreg_window_revoke: ",
	      "memreg_mr_deregister: file=",
	      "memreg_region_unpin: ",
	      "memreg_domain_destroy: ",
	      "memreg_file_close: ");
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
TEST_F_TIMEOUT(trace, I9_key_rests_before_it_is_used_again, LIMIT_S)
{
	struct ib_memreg_bind binds[32];
	struct rests rests = { 0 };
	unsigned int i, rounds = 0;
	__u64 before, reused = 0;
	__u32 mr, windows[32];
	char *line, *save;

	make_domain(_metadata, self);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, LENGTH,
				  MW_BIND, &mr));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, LENGTH, windows, 32));
	ASSERT_EQ(0, file_write(INSTANCE "/trace_clock", "mono"));
	ASSERT_EQ(0, file_write(EVENTS "/memreg_frwr_idle/enable", "1"));
	ASSERT_EQ(0, file_write(EVENTS "/memreg_frwr_reuse/enable", "1"));
	ASSERT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_FRWRS_REUSED, &before));
	for (; reused < 2000 && rounds < MAX_ROUNDS; rounds++) {
		for (i = 0; i < 32; i++)
			binds[i] = (struct ib_memreg_bind) {
				.window_id = windows[i], .mr_id = mr,
				.length = PAGE, .access = REMOTE_READ,
			};
		ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, 32));
		ASSERT_EQ(0, raw_revoke_relaxed(self->fd, self->domain,
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
				TH_LOG("'%s'", line);
			}
	TH_LOG("%u of %u taken early, of %u", rests.early, rests.taken,
	       rests.known);
	EXPECT_LE(2000, rests.taken);
	EXPECT_GE(rests.taken, 10 * rests.early);
	EXPECT_EQ(0, close(self->fd));
}

TEST_F(trace, I2_end_of_a_mapping_in_order)
{
	__u32 mr;

	make_domain(_metadata, self);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, LENGTH,
				  REMOTE_READ, &mr));
	trace_on(_metadata);
	ASSERT_EQ(0, munmap(self->memory, PAGE));
	ASSERT_EQ(0, raw_destroy(self->fd, mr));

	ORDER("memreg_guard_event: dev=",
	      "memreg_region_stale: ",
	      "memreg_batch_post: ",
	      "memreg_batch_end: ",
	      "memreg_mr_deregister: ",
	      "memreg_frwr_destroy: ",
	      "memreg_region_unpin: ");
	EXPECT_NE(NULL, strstr(self->text, "event=unmap"));
	EXPECT_NE(NULL, strstr(self->text, "verdict=revoke"));
	EXPECT_EQ(0, close(self->fd));
}

/* After an event that may have changed nothing, the mapping is checked. */
TEST_F_TIMEOUT(trace, I2_looks_at_a_mapping_in_order, LIMIT_S)
{
	const char *look = "memreg_guard_look: dev=";
	__u32 mr;

	make_domain(_metadata, self);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, LENGTH,
				  LOCAL_WRITE | REMOTE_READ, &mr));
	trace_on(_metadata);
	ASSERT_EQ(0, mprotect(self->memory, LENGTH,
			      PROT_READ | PROT_WRITE | PROT_EXEC));
	await_trace(_metadata, self, "outcome=unchanged");
	EXPECT_EQ(NULL, strstr(self->text, "memreg_region_stale: "));
	ASSERT_EQ(0, mprotect(self->memory, LENGTH, PROT_READ));
	await_trace(_metadata, self, "memreg_region_stale: ");
	ASSERT_EQ(0, raw_destroy(self->fd, mr));

	ORDER("verdict=suspect", look, "verdict=suspect", look,
	      "memreg_region_stale: ", "memreg_mr_deregister: ");
	ORDER("outcome=unchanged",
	      text(" addr=%#lx length=%lu outcome=gone",
		   (unsigned long)self->memory, LENGTH));
	EXPECT_EQ(0, close(self->fd));
}

/*
 * Memory on demand
 */

static void bind_page(struct __test_metadata *_metadata,
		      FIXTURE_DATA(trace) *self, __u32 mr, __u32 page)
{
	struct ib_memreg_bind bind = {
		.mr_id = mr, .offset = page * PAGE, .length = PAGE,
		.access = REMOTE_READ,
	};

	ASSERT_EQ(0, raw_windows(self->fd, self->domain, PAGE,
				 &bind.window_id, 1));
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, &bind, 1));
	ASSERT_EQ(0, raw_revoke(self->fd, self->domain, &bind.window_id, 1));
}

/*
 * Send from three pages on demand: one that was touched, one that was not, and
 * one that MR_ADVISE has pinned.
 */
TEST_F_TIMEOUT(trace, memory_on_demand_in_order, LIMIT_S)
{
	RAW(mr_register, reg, .flags = IB_MEMREG_MR_ON_DEMAND,
	    .access = LOCAL_WRITE | MW_BIND,
	    .addr = (uintptr_t)self->memory, .length = LENGTH);
	struct ib_memreg_range range = { .offset = 2 * PAGE, .length = PAGE };
	RAW(mr_advise, advise, .advice = IB_MEMREG_ADVICE_PREFETCH_WRITE,
	    .count = 1, .ranges = (uintptr_t)&range);
	char *memory = self->memory;
	const char *pages[3];
	unsigned int i;

	make_domain(_metadata, self);
	reg.domain_id = self->domain;
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_REGISTER, &reg));
	range.mr_id = reg.out_mr_id;
	ASSERT_EQ(0, madvise(memory + PAGE, PAGE, MADV_DONTNEED));
	trace_on(_metadata);
	bind_page(_metadata, self, reg.out_mr_id, 0);
	bind_page(_metadata, self, reg.out_mr_id, 0);
	bind_page(_metadata, self, reg.out_mr_id, 1);
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_ADVISE, &advise));
	bind_page(_metadata, self, reg.out_mr_id, 2);
	ASSERT_EQ(0, munmap(memory, PAGE));
	ASSERT_EQ(0, raw_destroy(self->fd, reg.out_mr_id));

	for (i = 0; i < 3; i++)
		pages[i] = text(" mr=%u domain=%u addr=%#lx length=%lu write=%d",
				reg.out_mr_id, self->domain,
				(unsigned long)memory + i * PAGE, PAGE, i == 2);
	ORDER("memreg_demand_fault: file=", "memreg_demand_hit: ",
	      "memreg_demand_miss: ", "memreg_demand_fault: ",
	      "memreg_demand_prefetch: ", "memreg_demand_hit: ",
	      "memreg_demand_invalidate: ", "memreg_demand_evict: ",
	      "memreg_mr_deregister: ");
	/* Which page, in the same order */
	ORDER(pages[0], pages[0], pages[1], pages[1], pages[2], pages[2],
	      pages[0]);
	ORDER(text("%s ns=", pages[0]), text("%s ns=", pages[1]));
	EXPECT_EQ(0, close(self->fd));
}

/*
 * Connections and their work
 */

static void come_up(struct __test_metadata *_metadata, struct link *link,
		    struct ring *ring)
{
	struct ib_memreg_queues queues = {
		.max_send = 4, .max_recv = 4, .max_send_sge = 1,
		.max_recv_sge = 1, .max_inline = 8,
	};

	ASSERT_EQ(0, link_open(link, PAGE));
	ASSERT_EQ(0, ring_create(link->fd, ring, 16, 64, 0, -1));
	queues.send_ring_id = ring->id;
	queues.recv_ring_id = ring->id;
	ASSERT_EQ(0, link_up(link, &queues, false));
}

/* Post a signalled write and an INVALIDATE of a key that no window has. */
static void write_and_end(struct __test_metadata *_metadata, struct link *link,
			  const struct ring *ring, __u32 mr, __u32 rkey)
{
	struct ib_memreg_wr write = WR(WRITE, link->endpoint,
				       INLINE_DATA("message", 8),
				       .flags = SIGNALED | INLINE,
				       .user_data = 0x77,
				       .remote_addr =
					       (uintptr_t)link->stock.mem,
				       .rkey = link->stock.mr->rkey);
	struct ib_memreg_wr recv = WR(RECV, link->endpoint, SGE(mr, 0, 8),
				      .user_data = 0x78);
	const struct ibv_send_wr send_inv = {
		.opcode = IBV_WR_SEND_WITH_INV,
		.invalidate_rkey = rkey,
	};

	ASSERT_EQ(0, raw_submit(link->fd, &write, 1));
	ASSERT_EQ(0, ring_wait(ring, 1, LIMIT_MS * MS, NULL));
	ASSERT_EQ(0, raw_submit(link->fd, &recv, 1));
	ASSERT_EQ(0, stock_post(&link->stock, &send_inv, 0, 8));
	ASSERT_EQ(0, raw_await(link->fd, IB_MEMREG_EVENT_DISCONNECTED, NULL));
}

TEST_F_TIMEOUT(trace, I5_life_of_a_connection_in_order, LIMIT_S)
{
	RAW(mr_register, mr, .access = LOCAL_WRITE | REMOTE_WRITE,
	    .addr = (uintptr_t)self->memory, .length = LENGTH);
	struct link link;
	struct ring ring;
	__u32 ep;

	trace_on(_metadata);
	come_up(_metadata, &link, &ring);
	ep = link.endpoint;
	mr.domain_id = link.domain;
	ASSERT_EQ(0, raw_call(link.fd, IB_MEMREG_IOC_MR_REGISTER, &mr));
	write_and_end(_metadata, &link, &ring, mr.out_mr_id, mr.out_rkey);
	link_close(&link);
	ring_unmap(&ring);

	ORDER("domain=0 state=requested ",
	      text("domain=%u state=connecting ", link.domain),
	      text("domain=%u state=connected status=0", link.domain),
	      text("memreg_complete: ring=%u endpoint=%u user_data=0x77 opcode=%u status=%u ",
		   ring.id, ep, OP(WRITE), IB_MEMREG_WC_SUCCESS),
	      text(" endpoint=%u rkey=%#x", ep, mr.out_rkey),
	      text("domain=%u state=closed ", link.domain),
	      "memreg_file_close: ");
	EXPECT_NE(NULL, strstr(self->text, "memreg_endpoint_state: file="));
	EXPECT_NE(NULL, strstr(self->text, "memreg_bogus_invalidate: file="));
	EXPECT_NE(NULL, strstr(self->text, " user_data=0x78 "));
}

/*
 * A registration queue that breaks
 */

static int bind_one(FIXTURE_DATA(trace) *self, struct ib_memreg_bind *bind)
{
	*bind = (struct ib_memreg_bind) {
		.length = PAGE, .access = REMOTE_READ,
	};
	return raw_register(self->fd, self->domain, self->memory, LENGTH,
			    MW_BIND, &bind->mr_id) ?:
	       raw_windows(self->fd, self->domain, LENGTH, &bind->window_id,
			   1) ?:
	       raw_bind(self->fd, self->domain, bind, 1);
}

TEST_F_TIMEOUT(trace, I4_queue_that_breaks_and_is_rebuilt, LIMIT_S)
{
	struct ib_memreg_bind bind;

	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	make_domain(_metadata, self);
	trace_on(_metadata);
	fault_order("work_request", 0, 1);
	ASSERT_EQ(0, bind_one(self, &bind));
	fault_cancel("work_request");
	EXPECT_EQ(0, close(self->fd));

	ORDER("memreg_batch_post: ",
	      "memreg_frwr_fail: file=",
	      "memreg_queue_broken: file=",
	      "memreg_batch_end: ",
	      "memreg_queue_rebuilt: file=",
	      "memreg_batch_post: ",
	      "memreg_batch_end: ",
	      text(" window=%u domain=%u mr=%u rkey=0x%08x", bind.window_id,
		   self->domain, bind.mr_id, bind.out_rkey));
	EXPECT_EQ(NULL, strstr(self->text, "memreg_queue_down: "));
}

TEST_F_TIMEOUT(trace, I4_queue_that_stays_down, LIMIT_S)
{
	struct ib_memreg_bind bind;

	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	make_domain(_metadata, self);
	trace_on(_metadata);
	fault_order("queue_connect", 0, -1);
	fault_order("work_request", 0, 1);
	EXPECT_EQ(-ENETDOWN, bind_one(self, &bind));
	fault_cancel("work_request");
	fault_cancel("queue_connect");
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, &bind, 1));
	EXPECT_EQ(0, close(self->fd));

	ORDER("memreg_frwr_fail: file=",
	      "memreg_queue_broken: file=",
	      "memreg_queue_down: file=",
	      "memreg_queue_rebuilt: file=",
	      "memreg_key_publish: ");
}

TEST_F_TIMEOUT(trace, I1_guard_that_waits_in_vain, LIMIT_S)
{
	struct ib_memreg_bind bind;

	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	make_domain(_metadata, self);
	ASSERT_EQ(0, bind_one(self, &bind));
	trace_on(_metadata);
	fault_order("completion", 0, 1);
	ASSERT_EQ(0, munmap(self->memory, PAGE));
	fault_cancel("completion");
	ASSERT_EQ(0, raw_revoke(self->fd, self->domain, &bind.window_id, 1));
	EXPECT_EQ(0, close(self->fd));

	ORDER("memreg_guard_event: dev=",
	      "memreg_region_stale: ",
	      "memreg_batch_post: ",
	      "memreg_guard_timeout: ",
	      "memreg_queue_broken: ",
	      "memreg_frwr_destroy: ",
	      "memreg_region_unpin: ");
}

TEST_F(trace, nothing_is_traced_that_is_turned_off)
{
	trace_on(_metadata);
	ASSERT_EQ(0, file_write(EVENTS "/enable", "0"));
	make_domain(_metadata, self);
	ASSERT_EQ(0, file_write(EVENTS "/memreg_domain_destroy/enable", "1"));
	ASSERT_EQ(0, close(self->fd));
	trace_read(_metadata, self);
	EXPECT_NE(NULL, strstr(self->text, "memreg_domain_destroy: "));
	EXPECT_EQ(NULL, strstr(self->text, "memreg_domain_create: "));
	EXPECT_EQ(NULL, strstr(self->text, "memreg_file_"));
}

TEST_HARNESS_MAIN
