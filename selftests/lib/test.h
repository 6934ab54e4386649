/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parameters of a test run (devices, counts, a seed), limits that all tests
 * share, and properties of the machine. selftests/run sets the variables
 * MEMREG_* of the environment.
 */
#ifndef SELFTESTS_TEST_H
#define SELFTESTS_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE		4096UL
#define HUGE		(2 * MiB)	/* a page of that kind */
#define KiB		1024UL
#define MiB		(1024 * KiB)
#define ARRAY_LEN(a)	(sizeof(a) / sizeof((a)[0]))

/* Limits, long enough for an emulated and busy machine */
#define LIMIT_MS	60000
#define LIMIT_S		240
#define MS		1000000ULL	/* in nanoseconds */

const char *test_device(void);
bool test_full(void);
/* Only the cases that the debug kernel has in a check are run. */
bool test_chosen(void);
bool debug_kernel(void);
/* Seconds for a test that repeats something: with --full that takes long. */
#define SOAK_S		10000

/*
 * A soak may be run in parts: how many of so many rounds are this part's, and
 * which is the first of them (or NULL).
 */
unsigned int test_share(unsigned int rounds, unsigned int *first);

/* A number that a soak is to reach, and another one that will do for a check */
static inline unsigned int times(unsigned int check, unsigned int soak)
{
	return test_full() ? test_share(soak, NULL) : check;
}

/* What has no such number is done so many times as often in a soak. */
unsigned int test_times(void);
unsigned int test_repeat(unsigned int rounds);

/* The same, and in a check fewer times on a debug kernel, which is slow. */
unsigned int test_rounds(unsigned int rounds);

/* Of random numbers: MEMREG_SEED, or another one each second */
unsigned int test_seed(void);

/* Of a clock that only goes forwards */
int64_t now_us(void);
int64_t now_ms(void);

/* One line of a file as a number, or -1. */
long file_number(const char *path);
int file_write(const char *path, const char *text);

/* Where nobody has mounted it, this does, for this process alone. */
#define TRACEFS		"/sys/kernel/tracing"
bool tracefs_there(void);

/* Run the block that follows in a child, whose EXPECTs count, and wait. */
#define IN_CHILD							\
	for (pid_t _child = fork();					\
	     !_child || !child_ended(_child, &_metadata->exit_code);	\
	     _exit(_metadata->exit_code))

bool child_ended(pid_t child, int *exit_code);

#endif /* SELFTESTS_TEST_H */
