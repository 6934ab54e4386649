// SPDX-License-Identifier: GPL-2.0-only
/* Parameters of a test run, and properties of the machine. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

const char *test_device(void)
{
	return getenv("MEMREG_DEVICE") ?: "";
}

bool test_full(void)
{
	const char *full = getenv("MEMREG_FULL");

	return full && !strcmp(full, "1");
}

bool test_chosen(void)
{
	const char *chosen = getenv("MEMREG_CHOSEN");

	return chosen && !strcmp(chosen, "1");
}

bool debug_kernel(void)
{
	return !access("/sys/kernel/debug/kmemleak", F_OK) ||
	       !access("/sys/kernel/debug/kcsan", F_OK);
}

unsigned int test_share(unsigned int rounds, unsigned int *first)
{
	const char *given = getenv("MEMREG_PART") ?: "1/1";
	unsigned int part, parts, before;

	if (sscanf(given, "%u/%u", &part, &parts) != 2 || !part ||
	    part > parts) {
		fprintf(stderr, "MEMREG_PART is %s, not PART/PARTS\n", given);
		exit(1);
	}
	before = (__u64)rounds * (part - 1) / parts;
	if (first)
		*first = before;
	return (__u64)rounds * part / parts - before;
}

unsigned int test_times(void)
{
	const char *given = getenv("MEMREG_TIMES");

	return given ? strtoul(given, NULL, 0) : 1;
}

unsigned int test_repeat(unsigned int rounds)
{
	return test_full() ? test_share(rounds * test_times(), NULL) : rounds;
}

unsigned int test_rounds(unsigned int rounds)
{
	return !test_full() && debug_kernel() && rounds > 3 ?
	       rounds / 4 : test_repeat(rounds);
}

unsigned int test_seed(void)
{
	const char *given = getenv("MEMREG_SEED");

	return given ? strtoul(given, NULL, 0) : (unsigned int)time(NULL);
}

int64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t now_ms(void)
{
	return now_us() / 1000;
}

uint64_t boottime_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

long file_number(const char *path)
{
	long value = -1;
	FILE *f = fopen(path, "r");

	if (!f)
		return -1;
	if (fscanf(f, "%ld", &value) != 1)
		value = -1;
	fclose(f);
	return value;
}

int file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	ssize_t n;
	int ret;

	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	ret = n < 0 ? -errno : 0;
	close(fd);
	return ret;
}

bool cgroup_make(const char *path, const char *controllers)
{
	if (file_write("/sys/fs/cgroup/cgroup.subtree_control", controllers))
		return false;
	return !mkdir(path, 0755) || errno == EEXIST;
}

long pages_pinned(void)
{
	FILE *f = fopen("/proc/vmstat", "r");
	long value, sum = 0;
	char name[64];

	/* Fold the counters of all CPUs */
	file_write("/proc/sys/vm/stat_refresh", "1");
	while (f && fscanf(f, "%63s %ld", name, &value) == 2) {
		if (!strcmp(name, "nr_foll_pin_acquired"))
			sum += value;
		else if (!strcmp(name, "nr_foll_pin_released"))
			sum -= value;
	}
	if (f)
		fclose(f);
	return sum;
}

bool task_is(pid_t task, char state)
{
	int64_t end = now_ms() + LIMIT_MS;
	char path[64], now = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", task);
	while (now != state && now_ms() < end) {
		f = fopen(path, "r");
		if (!f || fscanf(f, "%*d (%*[^)]) %c", &now) != 1)
			now = '?';
		if (f)
			fclose(f);
	}
	return now == state;
}

bool tracefs_there(void)
{
	if (!access(TRACEFS "/instances", F_OK))
		return true;
	return !unshare(CLONE_NEWNS) &&
	       !mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("tracefs", TRACEFS, "tracefs", 0, NULL);
}

/* Wait for a child. If it has failed, so has the test that calls this. */
bool child_ended(pid_t child, int *exit_code)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child || status)
		*exit_code = 1;
	return true;
}
