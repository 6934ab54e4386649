// SPDX-License-Identifier: GPL-2.0-only
/* Pools and memory objects. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <memreg.h>

#include "../lib/raw.h"
#include "bench.h"

#define ACCESS	(LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE)
#define TAKEN	32

static struct {
	struct memreg *m;
	uint32_t domain;
	struct memreg_pool *pool;
	void *taken[TAKEN];
	struct memreg_memory memory;	/* of a pool that is made */
	uint32_t made;
	struct memreg_memory large;
} own;

static int open_once(void)
{
	if (own.m)
		return 0;
	if (memreg_open(bench_device(), &own.m) ||
	    memreg_domain_create(own.m, 0, &own.domain))
		return fail_memreg();
	return 0;
}

/* A pool from which some buffers are taken */
static int pool_once(void)
{
	struct memreg_pool_attr attr = {
		.buffer_size = PIECE,
		.count = PIECES,
		.access = ACCESS,
		.node = IB_MEMREG_NODE_DEVICE,
	};
	unsigned int i;

	if (own.pool)
		return 0;
	if (open_once() ||
	    memreg_pool_create(own.m, own.domain, &attr, &own.pool))
		return fail_memreg();
	for (i = 0; i < TAKEN; i++)
		if (memreg_pool_take(own.pool, &own.taken[i]))
			return fail("memreg_pool_take", EAGAIN);
	return 0;
}

static int take_setup(const struct op *op)
{
	(void)op;
	return pool_once();
}

static int take_run(const struct op *op)
{
	unsigned int i;
	void *buffer;

	for (i = 0; i < op->each; i++)
		if (memreg_pool_take(own.pool, &buffer) ||
		    memreg_pool_give(own.pool, buffer))
			return fail("memreg_pool_take", EAGAIN);
	return 0;
}

#define PAIRS	200000U

static int take_many(void *arg, unsigned int thread)
{
	unsigned int i;
	void *buffer;

	(void)arg;
	(void)thread;
	for (i = 0; i < PAIRS; i++)
		if (memreg_pool_take(own.pool, &buffer) ||
		    memreg_pool_give(own.pool, buffer))
			return -1;
	return 0;
}

static int takers_cost(const struct op *op, double *cost)
{
	if (bench_threads(op->each, take_many, NULL, cost))
		return -1;
	*cost /= (double)PAIRS * op->each;
	return 0;
}

static int recycle_run(const struct op *op)
{
	if (memreg_pool_recycle(own.pool, own.taken, op->each,
				IB_MEMREG_RECYCLE_RELAXED))
		return fail_memreg();
	return 0;
}

static int recycle_setup(const struct op *op)
{
	unsigned int done;

	if (pool_once())
		return -1;
	for (done = 0; done < warm_up; done += op->each)
		if (recycle_run(op))
			return -1;
	return 0;
}

/*
 * Registering only: the memory is present already, as in the compared
 * operation.
 */

static int create_setup(const struct op *op)
{
	if (open_once())
		return -1;
	if (!own.memory.length &&
	    memreg_memory_create(own.m, op->each * PIECE,
				 IB_MEMREG_NODE_DEVICE, 0, &own.memory))
		return fail_memreg();
	return 0;
}

static int create_run(const struct op *op)
{
	RAW(pool_create, cmd, .flags = IB_MEMREG_MR_FD,
	    .domain_id = own.domain, .access = ACCESS, .count = op->each,
	    .buffer_size = PIECE, .fd = own.memory.fd);

	if (ioctl(memreg_fd(own.m), IB_MEMREG_IOC_POOL_CREATE, &cmd))
		return fail("POOL_CREATE", errno);
	own.made = cmd.out_mr_id;
	return close(cmd.out_table_fd);
}

static int create_finish(const struct op *op)
{
	(void)op;
	return memreg_mr_deregister(own.m, own.made) ? fail_memreg() : 0;
}

static int large_setup(const struct op *op)
{
	(void)op;
	if (open_once())
		return -1;
	if (!own.large.length &&
	    memreg_memory_create(own.m, LARGE_LENGTH, IB_MEMREG_NODE_DEVICE, 0,
				 &own.large))
		return fail_memreg();
	return 0;
}

static int large_run(const struct op *op)
{
	struct memreg_mr mr;

	(void)op;
	if (memreg_mr_register_fd(own.m, own.domain, own.large.fd, 0,
				  own.large.length, ACCESS, 0, &mr) ||
	    memreg_mr_deregister(own.m, mr.id))
		return fail_memreg();
	return 0;
}

static int large_finish(const struct op *op)
{
	(void)op;
	close(own.large.fd);
	own.large.length = 0;
	return 0;
}

const struct op pool_ops[] = {
	{ .name = "memreg_pool_take_give", .setup = take_setup,
	  .run = take_run, .each = 1000 },
	{ .name = "memreg_pool_recycle_64k_batch32", .setup = recycle_setup,
	  .run = recycle_run, .each = TAKEN },
	{ .name = "memreg_pool_create_1024x64k", .setup = create_setup,
	  .run = create_run, .finish = create_finish, .each = 1024,
	  .alone = 1, .large = 1 },
	{ .name = "memreg_mr_1g_memory", .prepare = large_setup,
	  .run = large_run, .finish = large_finish, .each = 1, .alone = 1,
	  .large = 1 },
	{ .name = NULL }
};

/* Where instructions are counted there is one CPU. */
const struct op pool_2cpu_ops[] = {
	{ .name = "memreg_pool_take_give_1cpu", .setup = take_setup,
	  .cost = takers_cost, .each = 1 },
	{ .name = "memreg_pool_take_give_2cpu", .setup = take_setup,
	  .cost = takers_cost, .each = 2 },
	{ .name = NULL }
};
