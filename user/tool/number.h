/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The numbers that people write: the one parser of the tool */
#ifndef MEMREG_TOOL_NUMBER_H
#define MEMREG_TOOL_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Unit of a number. A suffix multiplies the number: K, M, G, T (powers of 1024)
 * for bytes; us, ms, s, m, h for times, which may also have a decimal fraction.
 * Values of times are in nanoseconds, also if a number without a suffix has
 * another unit.
 */
enum unit {
	UNIT_COUNT,
	UNIT_BYTES,
	UNIT_PORT,
	UNIT_SECONDS,
	UNIT_MICROSECONDS,
};

#define NS_PER_US	UINT64_C(1000)
#define NS_PER_MS	UINT64_C(1000000)
#define NS_PER_S	UINT64_C(1000000000)

struct number {
	const char *what;	/* "--size", as the user calls it */
	enum unit unit;
	uint64_t min, max;	/* of the value, so nanoseconds of a time */
};

/*
 * Read a number; false, with *@why (a string that lives until the next call) if
 * @word is none or out of range. Decimal, or hexadecimal after 0x.
 */
bool read_number(const char *word, const struct number *n, uint64_t *value,
		 const char **why);

/* The same, but complain; EXIT_GOOD or EXIT_USAGE */
int take_number(const char *word, const struct number *n, uint64_t *value);

/* A port: 0 only if @zero */
int take_port(const char *word, bool zero, uint16_t *port);

/* "64K", "1.5G", "1000": exact, in the largest unit that divides the number */
const char *exact_bytes(uint64_t n, char *buf, size_t size);

/* "1.4 MiB", for people: three digits, in the unit that fits */
const char *human_bytes(double n, char *buf, size_t size);

#endif /* MEMREG_TOOL_NUMBER_H */
