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
/* Is this a check on the debug kernel, which runs only chosen cases? */
bool test_chosen(void);
bool debug_kernel(void);
/* Time limit in seconds for a test that repeats something, often with --full */
#define SOAK_S		10000

/*
 * Number of rounds, of so many in a whole soak, that are this part's; @first is
 * set to the index of the first of them unless it is NULL.
 */
unsigned int test_share(unsigned int rounds, unsigned int *first);

/* Number of rounds: @check, or this part's share of @soak with --full */
static inline unsigned int times(unsigned int check, unsigned int soak)
{
	return test_full() ? test_share(soak, NULL) : check;
}

/* Factor by which a soak repeats tests that have no number of their own */
unsigned int test_times(void);
unsigned int test_repeat(unsigned int rounds);

/* As test_repeat(); fewer in a check on a debug kernel, which is slow */
unsigned int test_rounds(unsigned int rounds);

/* Seed of random numbers: MEMREG_SEED, or the time in seconds */
unsigned int test_seed(void);

/* Of a clock that only goes forwards */
int64_t now_us(void);
int64_t now_ms(void);
/* Nanoseconds of CLOCK_BOOTTIME */
uint64_t boottime_ns(void);

/* One line of a file as a number, or -1. */
long file_number(const char *path);
int file_write(const char *path, const char *text);

/* Pages that are pinned in the whole system */
long pages_pinned(void);

/*
 * Wait until a task is in this state, as /proc/PID/stat has it. Returns false
 * if that takes longer than LIMIT_MS.
 */
bool task_is(pid_t task, char state);

/*
 * Make a control group with these controllers ("+rdma +memory", for example),
 * unless there is one. Returns false if that is not possible.
 */
bool cgroup_make(const char *path, const char *controllers);

/* Is tracefs mounted? If not, this mounts it for this process alone. */
#define TRACEFS		"/sys/kernel/tracing"
bool tracefs_there(void);

/* Wait until a condition is true; that it takes too long fails the test. */
#define AWAIT(condition)						\
	do {								\
		int64_t _until = now_ms() + LIMIT_MS;			\
									\
		while (!(condition) && now_ms() < _until)		\
			usleep(1000);					\
		EXPECT_TRUE(condition);					\
	} while (0)

/*
 * Run the next block in a child and wait. Failed expectations there fail the
 * test.
 */
#define IN_CHILD							\
	for (pid_t _child = fork();					\
	     !_child || !child_ended(_child, &_metadata->exit_code);	\
	     _exit(_metadata->exit_code))

bool child_ended(pid_t child, int *exit_code);

#endif /* SELFTESTS_TEST_H */
