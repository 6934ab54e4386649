// SPDX-License-Identifier: GPL-2.0-only
/*
 * The programs of perftest, as they come, either end being a process of its
 * own. They time themselves by the time stamp counter, so what they report is
 * taken, in the unit that is wanted: it leaves out how they begin and end.
 *
 * Those that can sleep until something completes do. The others, of READ and
 * WRITE, poll; so that they have only what is left of the CPU, both ends run
 * under SCHED_IDLE.
 */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "link.h"

#define WORDS_MAX	24
#define LINE_MAX_	256
#define TIMEOUT_MS	30000
#define TRIES		5

/* Port 18515 on any address, in state LISTEN, as /proc/net/tcp has it. */
#define LISTENS		":4853 00000000"
#define LISTENS_6	":4853 00000000000000000000000000000000:0000 0A"

/**
 * enum report - Columns of a report with the cost of an iteration
 * @RATE: MsgRate of the programs for bandwidth: millions a second
 * @BANDWIDTH: BW average of the same, MiB a second; it has more digits than the
 *	rate if the messages are long
 * @LATENCY: t_avg of those for latency: microseconds of half a round
 */
enum report { RATE, BANDWIDTH, LATENCY };

/**
 * struct perftest - A program and how it is called
 * @command: Command line at both ends; the number of iterations and the device
 *	are appended, and at the near end the address
 * @count: Iterations
 * @report: Column of its report to use
 */
struct perftest {
	const char *command;
	unsigned int count;
	enum report report;
};

/* Does not return. @out is the end of a pipe for its report. */
static void perftest_exec(const struct perftest *test, int far, int out)
{
	unsigned int n = 0, count = bench_count(test->count, 32);
	char line[LINE_MAX_], *words[WORDS_MAX + 1], *save, *word;

	if (dup2(out, STDOUT_FILENO) < 0 || (far && enter_peer()) ||
	    sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }))
		_exit(1);
	snprintf(line, sizeof(line), "%s -F -n %u -d %s %s", test->command,
		 count, far ? far_device() : bench_device(),
		 far ? "" : PEER_ADDRESS);
	for (word = strtok_r(line, " ", &save); word && n < WORDS_MAX;
	     word = strtok_r(NULL, " ", &save))
		words[n++] = word;
	words[n] = NULL;
	execvp(words[0], words);
	_exit(127);
}

/* Returns its process, or -1. @report: where to read what it reports. */
static pid_t perftest_start(const struct perftest *test, int far,
			    FILE **report)
{
	int ends[2];
	pid_t child;

	if (pipe(ends))
		return fail("pipe", errno);
	child = fork();
	if (!child)
		perftest_exec(test, far, ends[1]);
	close(ends[1]);
	*report = fdopen(ends[0], "r");
	return child < 0 || !*report ? fail("fork", errno) : child;
}

static int perftest_wait(const struct perftest *test, pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child || status)
		return fail(test->command, ECHILD);
	return 0;
}

static int file_has(pid_t process, const char *name, const char *text)
{
	char path[64], line[LINE_MAX_];
	int found = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/net/%s", process, name);
	file = fopen(path, "r");
	while (file && !found && fgets(line, sizeof(line), file))
		found = !!strstr(line, text);
	if (file)
		fclose(file);
	return found;
}

/* Wait until the far end listens, in its network namespace. */
static int perftest_listens(const struct perftest *test, pid_t far)
{
	unsigned int ms;

	for (ms = 0; ms < TIMEOUT_MS; ms += 10) {
		if (file_has(far, "tcp", LISTENS) ||
		    file_has(far, "tcp6", LISTENS_6))
			return 0;
		if (waitpid(far, NULL, WNOHANG))
			break;
		usleep(10000);
	}
	return fail(test->command, ETIMEDOUT);
}

/* Microseconds of an iteration, from a line of numbers; 0 if it has none. */
static double perftest_parse(const struct perftest *test, const char *line)
{
	double size, count, columns[4], us;

	if (sscanf(line, " %lf %lf %lf %lf %lf %lf", &size, &count, &columns[0],
		   &columns[1], &columns[2], &columns[3]) < 5)
		return 0;
	switch (test->report) {
	case RATE:
		us = 1 / columns[2];
		break;
	case BANDWIDTH:
		us = size / (1 << 20) / columns[1] * 1e6;
		break;
	default:
		us = 2 * columns[3];
	}
	return isfinite(us) ? us : 0;
}

/* Read a report to its end. Returns as perftest_parse(). */
static double perftest_read(const struct perftest *test, FILE *report)
{
	char line[LINE_MAX_];
	double us = 0, found;

	while (fgets(line, sizeof(line), report)) {
		found = perftest_parse(test, line);
		if (found > 0)
			us = found;
	}
	fclose(report);
	return us;
}

/* Of the time stamp counter, as perftest has it; 0 if that is not to be had. */
static double ticks_per_us(void)
{
	FILE *file = fopen("/proc/cpuinfo", "r");
	char line[LINE_MAX_];
	double mhz = 0;

	while (file && mhz <= 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, "cpu MHz", 7))
			mhz = atof(strchr(line, ':') + 1);
	if (file)
		fclose(file);
	return mhz;
}

/* @us: as perftest_parse() has it */
static int perftest_run(const struct perftest *test, double *us)
{
	FILE *far_report, *report;
	pid_t far, near;

	far = perftest_start(test, 1, &far_report);
	if (far < 0 || perftest_listens(test, far))
		return -1;
	near = perftest_start(test, 0, &report);
	if (near < 0)
		return -1;
	*us = perftest_read(test, report);
	perftest_read(test, far_report);
	return perftest_wait(test, near) || perftest_wait(test, far) ? -1 : 0;
}

/*
 * Each of these programs measures the frequency of the time stamp counter. If
 * it is preempted too often for that, it reports a rate of 0 or an infinite
 * time, and is run again.
 */
static int perftest_cost(const struct op *op, double *cost)
{
	const struct perftest *test = op->data;
	unsigned int tries = TRIES;
	double us;

	do {
		if (perftest_run(test, &us))
			return -1;
	} while (us <= 0 && --tries);
	if (us <= 0)
		return fail(test->command, EPROTO);
	*cost = instructions ? us * ticks_per_us() / 1e3 : us;
	return 0;
}

#define PERFTEST(_name, _report, _count, _command)			\
	{ .name = "perftest_" _name, .cost = perftest_cost,		\
	  .large = 1,							\
	  .data = &(const struct perftest){				\
		.command = _command, .count = (_count),			\
		.report = _report } }

const struct op perftest_ops[] = {
	PERFTEST("write_64k", BANDWIDTH, 128,
		 "ib_write_bw -s 65536 -t 16 -Q 1"),
	PERFTEST("read_64k", BANDWIDTH, 128,
		 "ib_read_bw -s 65536 -t 16 -Q 1 -o 16"),
	PERFTEST("write_1m", BANDWIDTH, 32,
		 "ib_write_bw -s 1048576 -t 16 -Q 1"),
	PERFTEST("read_1m", BANDWIDTH, 32,
		 "ib_read_bw -s 1048576 -t 16 -Q 1 -o 16"),
	PERFTEST("write_8b_batch32", RATE, 8192,
		 "ib_write_bw -s 8 -t 128 -Q 32 -l 32"),
	PERFTEST("send_8b_batch32", RATE, 8192,
		 "ib_send_bw -e -s 8 -t 128 -Q 32 -l 32"),
	PERFTEST("pingpong_64b", LATENCY, 1024, "ib_send_lat -e -s 64"),
	{ .name = NULL }
};
