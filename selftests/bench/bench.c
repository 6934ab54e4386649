// SPDX-License-Identifier: GPL-2.0-only
/*
 * What registering, granting and revoking memory costs, and moving data, by
 * memreg and by libibverbs.
 *
 * Each round measures every operation once, so that what disturbs the machine
 * disturbs all of them; those that take long come afterwards, in rounds of
 * their own, and what needs the machine for itself comes last. Prints a line
 * for each operation, or for those that are named:
 *
 *	result NAME UNIT MEDIAN LOWEST HIGHEST ROUNDS
 *
 * The unit is us, microseconds, or ki, thousands of instructions: there the
 * time stamp counter is read, which counts them in a guest with --icount.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "../lib/mem.h"
#include "../lib/test.h"
#include "bench.h"

#define OPS_MAX		128
#define ROUNDS_MAX	10000
#define FEWER_MAX	32

unsigned int live_windows = 100000, guards = 10000, warm_up = 1024;
unsigned int fewer = 1;

/**
 * struct result - An operation and what was measured
 * @op: The operation
 * @cost: Cost of each round
 * @rounds: Number of rounds
 */
struct result {
	const struct op *op;
	double cost[ROUNDS_MAX];
	unsigned int rounds;
};

static struct result results[OPS_MAX];
static unsigned int nr_results;
int instructions;
static unsigned int rounds = 21, repeats = 16, rounds_large = 5;
static unsigned int rounds_data = 5;

int fail(const char *what, int err)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(err));
	return -1;
}

const char *bench_device(void)
{
	return test_device();
}

/*
 * Touch every second page first: physically adjacent pages then go to every
 * second page, and adjacent pages of the range are not physically adjacent.
 */
void *memory_pages(size_t length)
{
	char *memory = mem_alloc(length);
	size_t at;

	if (!memory)
		return NULL;
	madvise(memory, length, MADV_NOHUGEPAGE);
	/* After a fork, a child would get copies of pinned pages. */
	madvise(memory, length, MADV_DONTFORK);
	for (at = 0; at < length; at += 2 * PAGE)
		memory[at] = 1;
	for (at = PAGE; at < length; at += 2 * PAGE)
		memory[at] = 1;
	return memory;
}

void *memory_huge(size_t length)
{
	void *memory = mem_thp(length);

	if (memory)
		madvise(memory, length, MADV_DONTFORK);
	return memory;
}

void *mr_memory(void)
{
	static void *memory;

	if (!memory)
		memory = memory_pages(MR_LENGTH_MAX);
	return memory;
}

unsigned int bench_count(unsigned int count, unsigned int batch)
{
	count = count / fewer / batch * batch;
	return count ? count : batch;
}

double bench_now(void)
{
	struct timespec ts;

	if (instructions)
		return (double)__rdtsc() / 1e3;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

struct bench_thread {
	pthread_t thread;
	pthread_barrier_t *barrier;
	unsigned int number;
	int (*run)(void *arg, unsigned int thread);
	void *arg;
	int failed;
};

static void *bench_thread(void *arg)
{
	struct bench_thread *me = arg;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(me->number, &cpus);
	me->failed = pthread_setaffinity_np(pthread_self(), sizeof(cpus),
					    &cpus);
	pthread_barrier_wait(me->barrier);
	if (!me->failed)
		me->failed = me->run(me->arg, me->number);
	pthread_barrier_wait(me->barrier);
	return NULL;
}

int bench_threads(unsigned int n, int (*run)(void *arg, unsigned int thread),
		  void *arg, double *cost)
{
	struct bench_thread threads[BENCH_THREADS_MAX] = { };
	pthread_barrier_t barrier;
	unsigned int i;
	int failed = 0;
	double begin;

	pthread_barrier_init(&barrier, NULL, n + 1);
	for (i = 0; i < n; i++) {
		threads[i] = (struct bench_thread){
			.barrier = &barrier,
			.number = i,
			.run = run,
			.arg = arg,
		};
		if (pthread_create(&threads[i].thread, NULL, bench_thread,
				   &threads[i]))
			return fail("pthread_create", EAGAIN);
	}
	pthread_barrier_wait(&barrier);
	begin = bench_now();
	pthread_barrier_wait(&barrier);
	*cost = bench_now() - begin;
	for (i = 0; i < n; i++) {
		pthread_join(threads[i].thread, NULL);
		failed |= threads[i].failed;
	}
	pthread_barrier_destroy(&barrier);
	return failed ? fail("a thread", 0) : 0;
}

static int measure_once(const struct op *op, double *cost)
{
	double begin;

	if (op->prepare && op->prepare(op))
		return -1;
	begin = bench_now();
	if (op->run(op))
		return -1;
	*cost += bench_now() - begin;
	return op->finish ? op->finish(op) : 0;
}

/*
 * Pause in which deferred work of the previous operation, such as RCU
 * callbacks, ends before the next one begins. Where instructions are counted,
 * idling takes no time.
 */
#define PAUSE_US	20000

/* What is not large is run often, so that the first time counts for little. */
static int measure(const struct op *op, double *cost)
{
	unsigned int times = op->large ? 1 : repeats, i;

	*cost = 0;
	usleep(PAUSE_US);
	if (op->cost)
		return op->cost(op, cost);
	for (i = 0; i < times; i++)
		if (measure_once(op, cost))
			return -1;
	*cost /= times * op->each;
	return 0;
}

static int setup(const struct op *op)
{
	double ignored;

	if (op->setup && op->setup(op))
		return -1;
	return op->large ? 0 : measure(op, &ignored);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void print_result(struct result *result)
{
	qsort(result->cost, result->rounds, sizeof(double), compare);
	printf("result %s %s %.3f %.3f %.3f %u\n", result->op->name,
	       instructions ? "ki" : "us", result->cost[result->rounds / 2],
	       result->cost[0], result->cost[result->rounds - 1],
	       result->rounds);
}

static int run_round(struct result *result)
{
	return measure(result->op, &result->cost[result->rounds++]);
}

/* Is the operation measured in the rounds of large operations, or of others? */
static int together(const struct op *op, int large)
{
	return !op->alone && op->large == large;
}

/* Round by round, all that don't need the machine for themselves. */
static int run_together(int large, unsigned int count)
{
	unsigned int round, i;

	for (i = 0; i < nr_results; i++) {
		if (!together(results[i].op, large))
			continue;
		printf("# %s: preparing\n", results[i].op->name);
		if (setup(results[i].op))
			return -1;
	}
	for (round = 0; round < count; round++) {
		printf("# round %u of %u\n", round + 1, count);
		for (i = 0; i < nr_results; i++)
			if (together(results[i].op, large) &&
			    run_round(&results[i]))
				return -1;
	}
	for (i = 0; i < nr_results; i++)
		if (together(results[i].op, large))
			print_result(&results[i]);
	return 0;
}

static int run_alone(struct result *result)
{
	printf("# %s: preparing\n", result->op->name);
	if (setup(result->op))
		return -1;
	while (result->rounds < (result->op->large ? rounds_large : rounds))
		if (run_round(result))
			return -1;
	print_result(result);
	return 0;
}

static int wanted(const struct op *op, char **names)
{
	if (!*names)
		return 1;
	for (; *names; names++)
		if (!strcmp(*names, op->name))
			return 1;
	return 0;
}

static void list(const struct op *ops, char **names)
{
	for (; ops->name; ops++) {
		if (!wanted(ops, names))
			continue;
		if (nr_results == OPS_MAX) {
			fprintf(stderr, "there is no room for %s\n", ops->name);
			exit(1);
		}
		results[nr_results++].op = ops;
	}
}

static int number(const char *word, unsigned int *n, unsigned int max)
{
	char *end;
	unsigned long value = strtoul(word, &end, 0);

	if (end == word || *end || !value || value > max)
		return -1;
	*n = (unsigned int)value;
	return 0;
}

static int parse(int argc, char **argv)
{
	int opt, ret = 0;

	while (!ret && (opt = getopt(argc, argv, "in:r:N:d:f:w:l:g:")) != -1) {
		switch (opt) {
		case 'i':
			instructions = 1;
			break;
		case 'n':
			ret = number(optarg, &rounds, ROUNDS_MAX);
			break;
		case 'r':
			ret = number(optarg, &repeats, 1000000);
			break;
		case 'N':
			ret = number(optarg, &rounds_large, ROUNDS_MAX);
			break;
		case 'd':
			ret = number(optarg, &rounds_data, ROUNDS_MAX);
			break;
		case 'f':
			ret = number(optarg, &fewer, FEWER_MAX);
			break;
		case 'w':
			ret = number(optarg, &warm_up, 1000000);
			break;
		case 'l':
			ret = number(optarg, &live_windows, 1000000);
			break;
		case 'g':
			ret = number(optarg, &guards, 1000000);
			break;
		default:
			ret = -1;
		}
	}
	return ret;
}

int main(int argc, char **argv)
{
	unsigned int i;

	if (parse(argc, argv)) {
		fputs("usage: bench [-i] [-n ROUNDS] [-r REPEATS] [-N ROUNDS_LARGE] [-d ROUNDS_DATA] [-f FEWER] [-w WARM_UP] [-l LIVE_WINDOWS] [-g GUARDS] [NAME]...\n",
		      stderr);
		return 2;
	}
	setlinebuf(stdout);
	list(verbs_ops, argv + optind);
	list(memreg_ops, argv + optind);
	list(pool_ops, argv + optind);
	list(rereg_ops, argv + optind);
	list(demand_ops, argv + optind);
	list(cache_ops, argv + optind);
	list(data_ops, argv + optind);
	list(verbs_data_ops, argv + optind);
	list(perftest_ops, argv + optind);
	if (export_available(0))
		list(export_many_ops, argv + optind);
	if (export_available(1))
		list(export_ops, argv + optind);
	if (kapi_available())
		list(kapi_ops, argv + optind);
	if (kapi_available() && !instructions)
		list(kapi_2cpu_ops, argv + optind);
	if (!instructions && sysconf(_SC_NPROCESSORS_ONLN) > 1) {
		list(pool_2cpu_ops, argv + optind);
		list(cache_2cpu_ops, argv + optind);
	}
	if (run_together(0, rounds) || run_together(1, rounds_data))
		return 1;
	for (i = 0; i < nr_results; i++)
		if (results[i].op->alone && run_alone(&results[i]))
			return 1;
	return 0;
}
