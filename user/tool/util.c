// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Complaints, options, numbers, names */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
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
	fprintf(stderr, "Try `memreg%s%s --help`.\n", *subcommand ? " " : "",
		subcommand);
	return EXIT_USAGE;
}

/* "d:jh", as getopt has it */
static void write_letters(const struct option *options, char *letters,
			  size_t size)
{
	size_t len = 0;

	for (; options->name; options++) {
		if (options->val > 255 || len + 3 > size)
			continue;
		letters[len++] = (char)options->val;
		if (options->has_arg)
			letters[len++] = ':';
	}
	letters[len] = '\0';
}

int parse_options(int argc, char **argv, const struct syntax *syntax,
		  void *ctx)
{
	char letters[64];
	int opt, ret;

	write_letters(syntax->options, letters, sizeof(letters));
	while ((opt = getopt_long(argc, argv, letters, syntax->options,
				  NULL)) != -1) {
		if (opt == 'h') {
			syntax->usage();
			return EXIT_GOOD;
		}
		if (opt == '?')
			return bad_usage("bad option");
		ret = syntax->set(ctx, opt);
		if (ret != EXIT_GOOD)
			return ret;
	}
	if (argc - optind > syntax->words)
		return bad_usage("%s is one argument too many",
				 argv[optind + syntax->words]);
	return -1;
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

static int shift_of(char suffix)
{
	switch (suffix) {
	case '\0':
		return 0;
	case 'k': case 'K':
		return 10;
	case 'm': case 'M':
		return 20;
	case 'g': case 'G':
		return 30;
	default:
		return -1;
	}
}

bool parse_number(const char *word, uint64_t *value)
{
	bool hex = word[0] == '0' && (word[1] == 'x' || word[1] == 'X');
	unsigned long long n;
	char *end;
	int shift;

	if (*word < '0' || *word > '9')
		return false;
	errno = 0;
	n = strtoull(word, &end, hex ? 16 : 10);
	shift = shift_of(*end);
	if (errno || shift < 0 || (*end && end[1]) || n << shift >> shift != n)
		return false;
	*value = n << shift;
	return true;
}

const char *access_text(uint32_t access, char *buf)
{
	static const struct { uint32_t bit; const char *name; } names[] = {
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
	size_t i;

	*buf = '\0';
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!(access & names[i].bit))
			continue;
		if (*buf)
			strcat(buf, ",");
		strcat(buf, names[i].name);
	}
	return *buf ? buf : strcpy(buf, "none");
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
