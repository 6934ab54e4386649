// SPDX-License-Identifier: GPL-2.0-only
/* Faults to order; see fault.h. */
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "test.h"

#define DEBUGFS		"/sys/kernel/debug/"

/* The fail-nth file of each thread that injects faults, or -1 */
static __thread int fail_nth_fd = -1;

/* Write @text to all files that match a pattern. Returns false if none does. */
static bool write_all(const char *pattern, const char *text)
{
	glob_t found;
	bool ok;
	size_t i;

	ok = !glob(pattern, 0, NULL, &found);
	for (i = 0; ok && i < found.gl_pathc; i++)
		ok = !file_write(found.gl_pathv[i], text);
	globfree(&found);
	return ok;
}

bool fault_injection(void)
{
	/*
	 * Fail allocations of single pages and those that may wait, too, and do
	 * not log that.
	 */
	if (!write_all(DEBUGFS "fail*/ignore-gfp-*", "N") ||
	    !write_all(DEBUGFS "fail_page_alloc/min-order", "0") ||
	    !write_all(DEBUGFS "fail*/verbose", "0") ||
	    !write_all(DEBUGFS "fail_memreg/*/verbose", "0"))
		return false;
	if (fail_nth_fd < 0)
		fail_nth_fd = open("/proc/thread-self/fail-nth",
				   O_RDWR | O_CLOEXEC);
	return fail_nth_fd >= 0;
}

void fail_nth_arm(unsigned int nth)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", nth);
	if (pwrite(fail_nth_fd, text, strlen(text), 0) < 0)
		abort();
}

bool fail_nth_disarm(unsigned int *left)
{
	char text[16] = {};
	bool counted;

	/* These two copy, so it may happen to them instead. */
	counted = pread(fail_nth_fd, text, sizeof(text) - 1, 0) > 0;
	if (pwrite(fail_nth_fd, "0", 1, 0) < 0 &&
	    pwrite(fail_nth_fd, "0", 1, 0) < 0)
		abort();
	*left = counted ? atoi(text) : 1;
	return !*left;
}

unsigned int sweep_stride(unsigned int k)
{
	return debug_kernel() && !test_full() ? k : 1;
}

unsigned int sweep_first(unsigned int k)
{
	const char *offset = getenv("MEMREG_OFFSET");

	return offset ? strtoul(offset, NULL, 0) % sweep_stride(k) : 0;
}

static void point_write(const char *point, const char *file, int value)
{
	char path[128], text[16];

	snprintf(path, sizeof(path), DEBUGFS "fail_memreg/%s/%s", point, file);
	snprintf(text, sizeof(text), "%d", value);
	if (file_write(path, text))
		abort();
}

void fault_order(const char *point, unsigned int skip, int times)
{
	point_write(point, "times", times);
	point_write(point, "space", skip + 1);
	point_write(point, "probability", 100);
}

bool fault_pending(const char *point)
{
	char path[128];

	snprintf(path, sizeof(path), DEBUGFS "fail_memreg/%s/times", point);
	return file_number(path);
}

void fault_cancel(const char *point)
{
	point_write(point, "probability", 0);
}
