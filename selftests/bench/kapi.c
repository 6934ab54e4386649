// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pools of kernel modules: a module of the bench, kernel/tests/kbench.c, takes
 * and puts MRs of ours, and of the RDMA core, and is a client that does I/O with
 * them. It is loaded when it is first needed, and unloaded in the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench.h"

#define MODULE		"ib_memreg_bench"
#define PARAMETERS	"/sys/module/" MODULE "/parameters/"

/* Taken and put in one measurement, by each CPU. */
#define PAIRS		20000
/* I/Os of one measurement. */
#define IOS		512

/**
 * struct pool - Whose pool, on how many CPUs
 * @name: Name that the module knows it by
 * @cpus: CPUs that take and put at the same time
 */
struct pool {
	const char *name;
	unsigned int cpus;
};

static void unload(void)
{
	if (syscall(SYS_delete_module, MODULE, O_NONBLOCK))
		fail("delete_module", errno);
}

/* The module that was built along with this program, if it was. */
static int open_module(void)
{
	struct utsname host;
	char path[512], *dir;
	ssize_t n;

	if (uname(&host))
		return -1;
	n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	if (n < 0)
		return -1;
	path[n] = 0;
	dir = strstr(path, "/selftests/bench/bench");
	if (!dir)
		return -1;
	n = dir - path;
	snprintf(dir, sizeof(path) - (size_t)n, "/kernel-%s/" MODULE ".ko",
		 host.release);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int kapi_available(void)
{
	int fd = open_module();

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static int load(void)
{
	static int loaded;
	char options[128];
	int fd, ret;

	if (loaded)
		return 0;
	fd = open_module();
	if (fd < 0)
		return fail(MODULE, errno);
	snprintf(options, sizeof(options), "device=%s", bench_device());
	ret = (int)syscall(SYS_finit_module, fd, options, 0);
	if (ret)
		fail("finit_module", errno);
	close(fd);
	if (ret)
		return -1;
	loaded = 1;
	return atexit(unload);
}

/* Have the module measure something. Returns the cost of each of @n. */
static int measure(const struct op *op, const char *parameter,
		   const char *what, unsigned int n, double *cost)
{
	char path[256];
	double ns, cycles;
	FILE *file;
	int fd, got, ret = 0;

	if (load())
		return -1;
	snprintf(path, sizeof(path), PARAMETERS "%s", parameter);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return fail(path, errno);
	if (write(fd, what, strlen(what)) < 0)
		ret = fail(op->name, errno);
	close(fd);
	file = ret ? NULL : fopen(PARAMETERS "cost", "re");
	if (!file)
		return -1;
	got = fscanf(file, "%lf %lf", &ns, &cycles);
	fclose(file);
	if (got != 2)
		return fail(PARAMETERS "cost", EIO);
	*cost = (instructions ? cycles / 1e3 : ns / 1e3) / n;
	return 0;
}

static int measure_pool(const struct op *op, double *cost)
{
	const struct pool *pool = op->data;
	unsigned int pairs = bench_count(PAIRS, 1);
	char what[64];

	snprintf(what, sizeof(what), "%s %u %u", pool->name, pool->cpus, pairs);
	return measure(op, "run", what, pairs, cost);
}

/**
 * struct client - A client that does I/O of 4 KiB
 * @name: Whose pool
 * @depth: I/Os at a time
 * @count: MRs that the pool begins with
 */
struct client {
	const char *name;
	unsigned int depth;
	unsigned int count;
};

static int measure_client(const struct op *op, double *cost)
{
	const struct client *client = op->data;
	unsigned int ios = bench_count(IOS, 1);
	char what[64];

	snprintf(what, sizeof(what), "%s %u %u %u", client->name,
		 client->depth, ios, client->count);
	return measure(op, "client", what, ios, cost);
}

static const struct pool memreg_1cpu = { "memreg", 1 };
static const struct pool memreg_2cpu = { "memreg", 2 };
static const struct pool core_1cpu = { "core", 1 };
static const struct pool core_2cpu = { "core", 2 };

#define POOL_OP(_name)							\
	{								\
		.name = #_name "_pool",					\
		.cost = measure_pool,					\
		.each = 1,						\
		.data = &_name,						\
	}

static const struct client core_4k = { "core", 1, 1 };
static const struct client memreg_4k = { "memreg", 1, 2 };
static const struct client core_4k_qd16 = { "core", 16, 16 };
static const struct client memreg_4k_qd16 = { "memreg", 16, 32 };
static const struct client memreg_4k_small = { "memreg", 16, 1 };

#define CLIENT_OP(_name)						\
	{								\
		.name = #_name "_client",				\
		.cost = measure_client,					\
		.each = 1,						\
		.data = &_name,						\
	}

const struct op kapi_ops[] = {
	POOL_OP(core_1cpu),
	POOL_OP(memreg_1cpu),
	CLIENT_OP(core_4k),
	CLIENT_OP(memreg_4k),
	CLIENT_OP(core_4k_qd16),
	CLIENT_OP(memreg_4k_qd16),
	CLIENT_OP(memreg_4k_small),
	{}
};

/* Where instructions are counted there is one CPU. */
const struct op kapi_2cpu_ops[] = {
	POOL_OP(core_2cpu),
	POOL_OP(memreg_2cpu),
	{}
};
