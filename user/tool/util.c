// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Complaints, names, bytes, time */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tool.h"

static const char *subcommand = "";

void set_subcommand(const char *name)
{
	subcommand = name;
}

static void complain(const char *format, va_list ap)
{
	fflush(stdout);
	fprintf(stderr, "memreg%s%s: ", *subcommand ? " " : "", subcommand);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
}

int fail(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	complain(format, ap);
	va_end(ap);
	return EXIT_FAILED;
}

int bad_usage(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	complain(format, ap);
	va_end(ap);
	return EXIT_USAGE;
}

int with_device(const char *device, int (*run)(struct memreg *m, void *ctx),
		void *ctx)
{
	struct memreg *m;
	int ret;

	if (memreg_open(device, &m))
		return fail("%s", memreg_reason());
	ret = run(m, ctx);
	memreg_close(m);
	return ret;
}

static const struct {
	uint32_t bit;
	const char *name;
} accesses[] = {
	{ IB_MEMREG_ACCESS_REMOTE_READ, "read" },
	{ IB_MEMREG_ACCESS_REMOTE_WRITE, "write" },
	{ IB_MEMREG_ACCESS_REMOTE_ATOMIC, "atomic" },
	{ IB_MEMREG_ACCESS_LOCAL_WRITE, "local-write" },
	{ IB_MEMREG_ACCESS_MW_BIND, "bind" },
	{ IB_MEMREG_ACCESS_ZERO_BASED, "zero-based" },
	{ IB_MEMREG_ACCESS_FLUSH_GLOBAL, "flush-global" },
	{ IB_MEMREG_ACCESS_FLUSH_PERSISTENT, "flush-persistent" },
	{ IB_MEMREG_ACCESS_RELAXED_ORDERING, "relaxed" },
};

#define ACCESSES	(sizeof(accesses) / sizeof(accesses[0]))

const char *access_text(uint32_t access, char *buf)
{
	size_t i;

	*buf = '\0';
	for (i = 0; i < ACCESSES; i++) {
		if (!(access & accesses[i].bit))
			continue;
		if (*buf)
			strcat(buf, ",");
		strcat(buf, accesses[i].name);
	}
	return *buf ? buf : strcpy(buf, "none");
}

void print_json_access(uint32_t access)
{
	const char *between = "";
	size_t i;

	putchar('[');
	for (i = 0; i < ACCESSES; i++) {
		if (!(access & accesses[i].bit))
			continue;
		printf("%s\"%s\"", between, accesses[i].name);
		between = ",";
	}
	putchar(']');
}

const char *plain_text(const char *s, size_t max, char *buf)
{
	size_t i;

	for (i = 0; i < max && s[i]; i++)
		buf[i] = s[i] >= 0x20 && s[i] <= 0x7e ? s[i] : '?';
	buf[i] = '\0';
	return buf;
}

void print_json_string(const char *name, const char *s, size_t max)
{
	size_t i;

	printf("\"%s\":\"", name);
	for (i = 0; i < max && s[i]; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c > 0x7e)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void print_hex_row(const unsigned char *row, uint64_t offset, size_t len)
{
	size_t i;

	printf("%08" PRIx64 " ", offset);
	for (i = 0; i < 16; i++) {
		if (i == 8)
			putchar(' ');
		if (i < len)
			printf(" %02x", row[i]);
		else
			printf("   ");
	}
	printf("  |");
	for (i = 0; i < len; i++)
		putchar(isprint(row[i]) ? row[i] : '.');
	puts("|");
}

void print_hex(const void *data, uint64_t offset, uint64_t len)
{
	const unsigned char *row = data;
	uint64_t n;

	for (; len; row += n, offset += n, len -= n) {
		n = len < 16 ? len : 16;
		print_hex_row(row, offset, n);
	}
}

void say(const char *format, ...)
{
	time_t now = time(NULL);
	struct tm tm;
	char text[16];
	va_list ap;

	localtime_r(&now, &tm);
	strftime(text, sizeof(text), "%H:%M:%S", &tm);
	printf("%s ", text);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

char *read_line(const char *path, char *buf, size_t size)
{
	FILE *file = fopen(path, "re");

	*buf = '\0';
	if (!file)
		return buf;
	if (!fgets(buf, (int)size, file))
		*buf = '\0';
	fclose(file);
	buf[strcspn(buf, "\n")] = '\0';
	return buf;
}

int check_output(void)
{
	bool good;

	errno = 0;
	good = !fflush(stdout) && !ferror(stdout);
	if (good)
		return EXIT_GOOD;
	return fail("can't write all of the output%s%s", errno ? ": " : "",
		    errno ? strerror(errno) : "");
}
