// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tracepoints are there, can be turned on and off at any time, and tell
 * what happens in the order in which it happens. They go to a trace buffer of
 * the test's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "kselftest_harness.h"
#include "memreg_fixture.h"

#define TRACEFS		"/sys/kernel/tracing"
#define INSTANCE	TRACEFS "/instances/memreg-test"
#define EVENTS		INSTANCE "/events/ib_memreg"
#define LENGTH		(4 * PAGE)

FIXTURE(trace) {
	int fd;
	__u32 domain;
	char *memory;
	char *text;
};

/* Where nobody has mounted it, this test does, for itself. */
static bool tracefs_there(void)
{
	if (!access(TRACEFS "/instances", F_OK))
		return true;
	return !unshare(CLONE_NEWNS) &&
	       !mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("tracefs", TRACEFS, "tracefs", 0, NULL);
}

FIXTURE_SETUP(trace)
{
	if (!tracefs_there())
		SKIP(return, "this kernel has no tracefs");
	/* That of a test that was killed. */
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

/* What was traced, as far as it is about memreg; it stays in the buffer. */
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
 * Each of these, up to NULL, is in a line of its own, after the one before it.
 * Others may be in between.
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

/* A text that is put together; good until the 16th one after it. */
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
		"mr_register", "mr_deregister", "window_bind",
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

TEST_F(trace, life_of_a_window_in_order)
{
	struct ib_memreg_bind bind = {
		.offset = 5, .length = PAGE, .access = REMOTE_READ,
	};

	trace_on(_metadata);
	make_domain(_metadata, self);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, LENGTH,
				  MW_BIND, &bind.mr_id));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, LENGTH,
				 &bind.window_id, 1));
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, &bind, 1));
	ASSERT_EQ(0, raw_revoke(self->fd, self->domain, &bind.window_id, 1));
	ASSERT_EQ(0, raw_destroy(self->fd, bind.mr_id));
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
