// SPDX-License-Identifier: GPL-2.0-only
/* Registration caches, and monitors. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <memreg.h>

#include "../lib/test.h"
#include "bench.h"

#define FEW		100U	/* entries of a cache */
#define MANY		100000U
#define UNMAPPED	64UL	/* pages of the memory that is unmapped */
#define UNMAPS		200U
#define KEYS		4096U	/* addresses that are drawn before */
#define OFTEN		64U	/* times that a thread looks all of them up */
#define WATCHES		1024U

/*
 * Child processes do all measurements, as a process with monitors pays for them
 * whenever it maps or unmaps memory.
 */
static struct {
	struct memreg *m;
	struct memreg_status *status;
} own;

/**
 * struct job - A measurement by a child
 * @run: Measure it
 * @n: Entries, threads, or monitors
 */
struct job {
	int (*run)(unsigned int n, double *cost);
	unsigned int n;
};

static int open_all(void)
{
	if (memreg_open_unbound(&own.m) ||
	    memreg_status_create(own.m, 65536, 0, &own.status))
		return fail_memreg();
	return 0;
}

static int job_cost(const struct op *op, double *cost)
{
	const struct job *job = op->data;
	int pipes[2], status, ret;
	pid_t child;

	if (pipe(pipes))
		return fail("pipe", errno);
	child = fork();
	if (!child) {
		ret = open_all() || job->run(job->n, cost) ||
		      write(pipes[1], cost, sizeof(*cost)) != sizeof(*cost);
		_exit(ret);
	}
	close(pipes[1]);
	ret = child < 0 || read(pipes[0], cost, sizeof(*cost)) !=
	      sizeof(*cost) || waitpid(child, &status, 0) != child || status;
	close(pipes[0]);
	return ret ? fail("a child", 0) : 0;
}

/*
 * Hits
 */

/* Register nothing: the benchmark measures the cache alone. */
static int pretend(void *arg, void *addr, size_t length, void **handle)
{
	(void)arg;
	(void)length;
	*handle = addr;
	return 0;
}

static int pretend_no_more(void *arg, void *handle)
{
	(void)arg;
	(void)handle;
	return 0;
}

static const struct memreg_cache_ops pretended = {
	.register_memory = pretend,
	.deregister = pretend_no_more,
};

static struct memreg_cache *fill_cache(unsigned int entries, char *memory)
{
	struct memreg_cache_attr attr = {
		.ops = &pretended,
		.max_entries = entries,
	};
	const struct memreg_cached *cached;
	struct memreg_cache *cache;
	unsigned int i;

	if (memreg_cache_create(own.m, &attr, &cache))
		return NULL;
	for (i = 0; i < entries; i++) {
		if (memreg_cache_get(cache, memory + i * PIECE, PIECE,
				     &cached))
			return NULL;
		memreg_cache_put(cache, cached);
	}
	return cache;
}

/**
 * struct hits - What is looked up, again and again
 * @cache: The cache
 * @keys: Addresses to look up, in a random order
 */
struct hits {
	struct memreg_cache *cache;
	void *keys[KEYS];
};

/* The second one begins in the middle, that they don't go hand in hand. */
static int hit_all(void *arg, unsigned int thread)
{
	const struct hits *hits = arg;
	const struct memreg_cached *cached;
	unsigned int i;

	for (i = 0; i < KEYS; i++) {
		if (memreg_cache_get(hits->cache,
				     hits->keys[(i + thread * KEYS / 2) % KEYS],
				     PIECE, &cached))
			return fail_memreg();
		memreg_cache_put(hits->cache, cached);
	}
	return 0;
}

static int hits_setup(struct hits *hits, unsigned int entries)
{
	unsigned int i, seed = 1;
	char *memory;

	memory = mmap(NULL, entries * PIECE, PROT_READ, MAP_PRIVATE |
		      MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return fail("mmap", errno);
	hits->cache = fill_cache(entries, memory);
	if (!hits->cache)
		return fail_memreg();
	for (i = 0; i < KEYS; i++)
		hits->keys[i] = memory +
				(unsigned int)rand_r(&seed) % entries * PIECE;
	/* The first time is not measured. */
	return hit_all(hits, 0);
}

static int hits_run(unsigned int entries, double *cost)
{
	static struct hits hits;
	double begin;

	if (hits_setup(&hits, entries))
		return -1;
	begin = bench_now();
	if (hit_all(&hits, 0))
		return -1;
	*cost = (bench_now() - begin) / KEYS;
	return 0;
}

static int hit_often(void *arg, unsigned int thread)
{
	unsigned int i;

	for (i = 0; i < OFTEN; i++)
		if (hit_all(arg, thread))
			return -1;
	return 0;
}

static int hitters_run(unsigned int threads, double *cost)
{
	static struct hits hits;

	if (hits_setup(&hits, FEW) ||
	    bench_threads(threads, hit_often, &hits, cost))
		return -1;
	*cost /= (double)OFTEN * KEYS * threads;
	return 0;
}

/*
 * Monitors
 */

static int watch_run(unsigned int each, double *cost)
{
	struct memreg_range ranges[32];
	struct memreg_watch watches[32];
	char *memory = mr_memory();
	unsigned int i, done;
	double begin;

	for (i = 0; i < each; i++)
		ranges[i] = (struct memreg_range){
			.addr = memory + i * PAGE,
			.length = PAGE,
		};
	begin = bench_now();
	for (done = 0; done < WATCHES; done += each)
		if (memreg_watch(own.status, ranges, each, watches) ||
		    memreg_unwatch(own.status, watches, each))
			return fail_memreg();
	*cost = (bench_now() - begin) / WATCHES;
	return 0;
}

/* Watch so many pages that stay. */
static int watch_elsewhere(unsigned int n)
{
	struct memreg_range range = { .length = PAGE };
	struct memreg_watch watch;
	unsigned int i;
	char *memory;

	memory = mmap(NULL, (n + 1) * PAGE, PROT_READ, MAP_PRIVATE |
		      MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return fail("mmap", errno);
	for (i = 0; i < n; i++) {
		range.addr = memory + i * PAGE;
		if (memreg_watch(own.status, &range, 1, &watch))
			return fail_memreg();
	}
	return 0;
}

/* What is unmapped is not watched. */
static int unmap_run(unsigned int n, double *cost)
{
	unsigned int i, times = bench_count(UNMAPS, 1);
	double begin;
	char *at;

	if (watch_elsewhere(n))
		return -1;
	*cost = 0;
	for (i = 0; i < times; i++) {
		at = mmap(NULL, UNMAPPED * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (at == MAP_FAILED)
			return fail("mmap", errno);
		begin = bench_now();
		if (munmap(at, UNMAPPED * PAGE))
			return fail("munmap", errno);
		*cost += bench_now() - begin;
	}
	*cost /= times;
	return 0;
}

#define JOB(_name, _run, _n, ...)					\
	{								\
		.name = _name,						\
		.cost = job_cost,					\
		.alone = 1,						\
		.data = &(const struct job){ .run = _run, .n = _n },	\
		__VA_ARGS__						\
	}

const struct op cache_ops[] = {
	JOB("memreg_cache_hit_100", hits_run, FEW),
	JOB("memreg_cache_hit_100000", hits_run, MANY, .large = 1),
	JOB("memreg_monitor_single", watch_run, 1),
	JOB("memreg_monitor_batch32", watch_run, 32),
	JOB("munmap_10000_monitors_elsewhere", unmap_run, 10000),
	JOB("munmap_no_monitors", unmap_run, 0),
	{ .name = NULL }
};

/* Where instructions are counted there is one CPU. */
const struct op cache_2cpu_ops[] = {
	JOB("memreg_cache_hit_1cpu", hitters_run, 1),
	JOB("memreg_cache_hit_2cpu", hitters_run, 2),
	{ .name = NULL }
};
