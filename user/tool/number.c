// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The numbers that people write: values, units, ranges */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "number.h"
#include "tool.h"

struct suffix {
	const char *name;
	uint64_t factor;
};

static const struct suffix no_suffixes[] = { { "", 1 }, { NULL, 0 } };

static const struct suffix byte_suffixes[] = {
	{ "", 1 },
	{ "K", UINT64_C(1) << 10 },
	{ "M", UINT64_C(1) << 20 },
	{ "G", UINT64_C(1) << 30 },
	{ "T", UINT64_C(1) << 40 },
	{ NULL, 0 },
};

static const struct suffix second_suffixes[] = {
	{ "", NS_PER_S },
	{ "us", NS_PER_US },
	{ "ms", NS_PER_MS },
	{ "s", NS_PER_S },
	{ "m", 60 * NS_PER_S },
	{ "h", 3600 * NS_PER_S },
	{ NULL, 0 },
};

static const struct suffix microsecond_suffixes[] = {
	{ "", NS_PER_US },
	{ "us", NS_PER_US },
	{ "ms", NS_PER_MS },
	{ "s", NS_PER_S },
	{ NULL, 0 },
};

static const struct {
	const char *noun;	/* of the range: "1 to 4 bytes" */
	const char *suffixes;	/* that may follow, for people */
	const struct suffix *list;
	uint64_t factor;	/* of a bare number */
} units[] = {
	[UNIT_COUNT] = { "", "", no_suffixes, 1 },
	[UNIT_BYTES] = { " bytes", "K, M, G or T", byte_suffixes, 1 },
	[UNIT_PORT] = { "", "", no_suffixes, 1 },
	[UNIT_SECONDS] = { " seconds", "us, ms, s, m or h", second_suffixes,
			   NS_PER_S },
	[UNIT_MICROSECONDS] = { " microseconds", "us, ms or s",
				microsecond_suffixes, NS_PER_US },
};

const char *exact_bytes(uint64_t n, char *buf, size_t size)
{
	static const char names[] = "\0KMGT";
	unsigned int i = 0;

	for (; n && !(n & 1023) && i < 4; i++)
		n >>= 10;
	snprintf(buf, size, "%" PRIu64 "%.1s", n, names + i);
	return buf;
}

const char *human_bytes(double n, char *buf, size_t size)
{
	static const char *const names[] = { "bytes", "KiB", "MiB", "GiB",
					     "TiB" };
	unsigned int i = 0;

	for (; n >= 1024 && i < 4; i++)
		n /= 1024;
	snprintf(buf, size, "%.*f %s", !i || n >= 100 ? 0 : n >= 10 ? 1 : 2, n,
		 names[i]);
	return buf;
}

/* A bound as it would be written: bytes with a unit, times in their own */
static const char *bound_text(const struct number *n, uint64_t value, char *buf,
			      size_t size)
{
	uint64_t factor = units[n->unit].factor;

	if (n->unit == UNIT_BYTES)
		return exact_bytes(value, buf, size);
	if (value % factor)
		snprintf(buf, size, "%g", (double)value / (double)factor);
	else
		snprintf(buf, size, "%" PRIu64, value / factor);
	return buf;
}

/* "--size 12x: "x" is no unit; it takes 1 to 1M bytes" */
static const char *explain(const char *word, const struct number *n,
			   const char *fault)
{
	static char line[256];
	const char *noun = units[n->unit].noun;
	char low[32], high[32];

	bound_text(n, n->min, low, sizeof(low));
	bound_text(n, n->max, high, sizeof(high));
	if (n->max >= INT64_MAX)
		snprintf(line, sizeof(line),
			 "%s '%.80s': %s; it takes %s or more%s", n->what,
			 word, fault, low, noun);
	else
		snprintf(line, sizeof(line),
			 "%s '%.80s': %s; it takes %s to %s%s", n->what, word,
			 fault, low, high, noun);
	return line;
}

/* Digits of @base; false if they are more than 64 bits */
static bool read_digits(const char **at, unsigned int base, uint64_t *value)
{
	unsigned int digit;

	for (*value = 0; isxdigit((unsigned char)**at); ++*at) {
		digit = isdigit((unsigned char)**at) ?
			(unsigned int)(**at - '0') :
			(unsigned int)(tolower((unsigned char)**at) - 'a' + 10);
		if (digit >= base)
			break;
		if (__builtin_mul_overflow(*value, base, value) ||
		    __builtin_add_overflow(*value, digit, value))
			return false;
	}
	return true;
}

/* Factor of a suffix, or 0; units of bytes may be in either case */
static uint64_t factor_of(const char *suffix, const struct number *n)
{
	const struct suffix *s;
	int other;

	for (s = units[n->unit].list; s->name; s++) {
		other = n->unit == UNIT_BYTES ? strcasecmp(suffix, s->name) :
						strcmp(suffix, s->name);
		if (!other)
			return s->factor;
	}
	return 0;
}

/*
 * The value that a fraction such as ".25" adds to a number with the factor
 * @factor
 */
static uint64_t read_fraction(const char **at, uint64_t factor)
{
	uint64_t part = factor, sum = 0;

	for (++*at; isdigit((unsigned char)**at); ++*at) {
		part /= 10;
		sum += part * (uint64_t)(**at - '0');
	}
	return sum;
}

/* The suffix of a number is what follows its digits, dot and digits */
static const char *skip_fraction(const char *at)
{
	if (*at == '.' && isdigit((unsigned char)at[1]))
		for (at++; isdigit((unsigned char)*at); at++)
			;
	return at;
}

/* NULL, or an error message for a word that does not begin with a sign */
static const char *parse(const char *word, const struct number *n,
			 uint64_t *value)
{
	bool hex = word[0] == '0' && (word[1] == 'x' || word[1] == 'X');
	bool time = n->unit == UNIT_SECONDS || n->unit == UNIT_MICROSECONDS;
	const char *at = word + (hex ? 2 : 0), *rest;
	static char fault[80];
	uint64_t factor, more = 0;

	if (!(hex ? isxdigit((unsigned char)*at) : isdigit((unsigned char)*at)))
		return "it is not a number";
	if (!read_digits(&at, hex ? 16 : 10, value))
		return "it has more than 64 bits";
	rest = time && !hex ? skip_fraction(at) : at;
	factor = factor_of(rest, n);
	if (!factor) {
		snprintf(fault, sizeof(fault), *units[n->unit].suffixes ?
			 "'%.20s' is no unit, which are %s" :
			 "'%.20s' is more than a number%s", rest,
			 units[n->unit].suffixes);
		return fault;
	}
	if (rest != at)
		more = read_fraction(&at, factor);
	if (__builtin_mul_overflow(*value, factor, value) ||
	    __builtin_add_overflow(*value, more, value))
		return "it has more than 64 bits";
	return NULL;
}

bool read_number(const char *word, const struct number *n, uint64_t *value,
		 const char **why)
{
	const char *fault = NULL;
	uint64_t parsed = 0;

	if (!*word)
		fault = "it is empty";
	else if (*word == '-' && isdigit((unsigned char)word[1]))
		fault = "it is negative";
	else
		fault = parse(word, n, &parsed);
	if (!fault && parsed < n->min)
		fault = "it is too small";
	if (!fault && parsed > n->max)
		fault = "it is too large";
	if (fault) {
		*why = explain(word, n, fault);
		return false;
	}
	*value = parsed;
	return true;
}

int take_number(const char *word, const struct number *n, uint64_t *value)
{
	const char *why;

	return read_number(word, n, value, &why) ? EXIT_GOOD :
						   bad_usage("%s", why);
}

int take_port(const char *word, bool zero, uint16_t *port)
{
	const struct number n = { "--port", UNIT_PORT, zero ? 0 : 1, 65535 };
	uint64_t value;
	int ret = take_number(word, &n, &value);

	if (ret == EXIT_GOOD)
		*port = (uint16_t)value;
	return ret;
}
