// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* JSON for programs: records, one object a line */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "record.h"
#include "tool.h"

static const char *between;

void record_begin(void)
{
	putchar('{');
	between = "";
}

void record_event(const char *event)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	record_begin();
	printf("\"time_seconds\":%" PRId64 ".%03ld", (int64_t)now.tv_sec,
	       now.tv_nsec / 1000000);
	between = ",";
	record_string("event", event, 64);
}

void record_number(const char *name, uint64_t value)
{
	printf("%s\"%s\":%" PRIu64, between, name, value);
	between = ",";
}

void record_milli(const char *name, int64_t thousandths)
{
	printf("%s\"%s\":%" PRId64 ".%03" PRId64, between, name,
	       thousandths / 1000, thousandths % 1000);
	between = ",";
}

void record_bool(const char *name, bool value)
{
	printf("%s\"%s\":%s", between, name, value ? "true" : "false");
	between = ",";
}

void record_string(const char *name, const char *s, size_t max)
{
	fputs(between, stdout);
	print_json_string(name, s, max);
	between = ",";
}

void record_access(uint32_t access)
{
	printf("%s\"access\":", between);
	print_json_access(access);
	between = ",";
}

void record_hex(const char *name, const void *data, uint64_t len)
{
	const unsigned char *byte = data;

	printf("%s\"%s\":\"", between, name);
	for (; len; len--)
		printf("%02x", *byte++);
	putchar('"');
	between = ",";
}

void record_end(void)
{
	puts("}");
	fflush(stdout);
}
