// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exports: registered in a protection domain of libibverbs, where the driver
 * can, and in several files of memreg.
 */
#include <errno.h>
#include <stdint.h>
#include <unistd.h>
#include <memreg.h>

#include "../../user/verbs/memreg-verbs.h"
#include "../lib/mem.h"
#include "../lib/qp.h"
#include "../lib/raw.h"
#include "bench.h"

#define REMOTE	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE)
#define FILES	4
#define SHARED	(64UL << 20)

static struct {
	struct ibv_pd *pd;
	struct memreg *m[FILES];
	uint32_t domain[FILES];
	struct memreg_mr mr;
} own;

static int open_file(unsigned int i)
{
	if (own.m[i])
		return 0;
	return memreg_open(bench_device(), &own.m[i]) ||
	       memreg_domain_create(own.m[i], 0, &own.domain[i]) ?
	       fail_memreg() : 0;
}

static int open_verbs(void)
{
	struct ibv_context *context;

	if (own.pd)
		return 0;
	context = qp_device(bench_device());
	own.pd = context ? ibv_alloc_pd(context) : NULL;
	return own.pd ? 0 : fail(bench_device(), ENODEV);
}

int export_available(int registers)
{
	uint32_t cap = registers ? IB_MEMREG_CAP_EXPORT_REGISTER :
				   IB_MEMREG_CAP_EXPORT;
	uint64_t can = 0;

	return !open_file(0) && !memreg_query_cap(own.m[0], cap, &can) && can;
}

/* A slow device may take more than the second that a call waits. */
static int end_export(const struct memreg_export *export)
{
	int ret;

	do
		ret = memreg_export_revoke(own.m[0], &export->id, 1, NULL);
	while (ret == -ETIMEDOUT);
	return ret ? fail_memreg() : 0;
}

/* Export an MR, register that, revoke it, and give all up. */
static int grant(uint32_t mr, void *addr, size_t length)
{
	struct memreg_export_mr keys;
	struct memreg_export export;
	int ret;

	if (memreg_export(own.m[0], mr, 0, length, &export))
		return fail_memreg();
	ret = memreg_export_register(own.pd, export.fd, 0, length,
				     (uintptr_t)addr, REMOTE, &keys);
	close(export.fd);
	if (ret)
		return fail("memreg_export_register", -ret);
	if (end_export(&export))
		return -1;
	ret = memreg_export_deregister(&keys);
	if (ret)
		return fail("memreg_export_deregister", -ret);
	return memreg_export_destroy(own.m[0], export.id) ? fail_memreg() : 0;
}

static int registered_setup(const struct op *op)
{
	(void)op;
	if (open_verbs() || open_file(0))
		return -1;
	return memreg_mr_register(own.m[0], own.domain[0], mr_memory(), PIECE,
				  LOCAL_WRITE, 0, &own.mr) ? fail_memreg() : 0;
}

static int registered_run(const struct op *op)
{
	(void)op;
	return grant(own.mr.id, mr_memory(), PIECE);
}

/* The same with registration in memreg before, and deregistration after it */
static int pin_and_grant(void *addr, size_t length)
{
	struct memreg_mr mr;

	if (memreg_mr_register(own.m[0], own.domain[0], addr, length,
			       LOCAL_WRITE, 0, &mr))
		return fail_memreg();
	if (grant(mr.id, addr, length))
		return -1;
	return memreg_mr_deregister(own.m[0], mr.id) ? fail_memreg() : 0;
}

static int pinned_setup(const struct op *op)
{
	(void)op;
	return open_verbs() ? -1 : open_file(0);
}

static int pinned_run(const struct op *op)
{
	(void)op;
	return pin_and_grant(mr_memory(), PIECE);
}

/* Huge pages, which are there only as long as they are needed. */
static void *large;

static int large_prepare(const struct op *op)
{
	large = memory_huge(LARGE_LENGTH);
	return large ? pinned_setup(op) : fail("memory", ENOMEM);
}

static int large_run(const struct op *op)
{
	(void)op;
	return pin_and_grant(large, LARGE_LENGTH);
}

static int large_finish(const struct op *op)
{
	(void)op;
	mem_free(large, LARGE_LENGTH);
	return 0;
}

/* One MR of 64 MiB, and exports of it in further files */
static int shared_prepare(const struct op *op)
{
	unsigned int i;

	for (i = 0; i < op->each; i++)
		if (open_file(i))
			return -1;
	large = memory_pages(SHARED);
	return large ? 0 : fail("memory", ENOMEM);
}

static int shared_run(const struct op *op)
{
	struct memreg_export export;
	struct memreg_mr mr[FILES];
	unsigned int i;

	if (memreg_mr_register(own.m[0], own.domain[0], large, SHARED,
			       LOCAL_WRITE | REMOTE_RW, 0, &mr[0]))
		return fail_memreg();
	if (op->each > 1 && memreg_export(own.m[0], mr[0].id, 0, SHARED,
					  &export))
		return fail_memreg();
	for (i = 1; i < op->each; i++)
		if (memreg_mr_register_fd(own.m[i], own.domain[i], export.fd,
					  0, SHARED, LOCAL_WRITE | REMOTE_RW,
					  0, &mr[i]))
			return fail_memreg();
	while (--i)
		if (memreg_mr_deregister(own.m[i], mr[i].id))
			return fail_memreg();
	if (op->each > 1) {
		close(export.fd);
		if (memreg_export_destroy(own.m[0], export.id))
			return fail_memreg();
	}
	return memreg_mr_deregister(own.m[0], mr[0].id) ? fail_memreg() : 0;
}

static int shared_finish(const struct op *op)
{
	(void)op;
	mem_free(large, SHARED);
	return 0;
}

/* One registration each, however many it is of */
static int shared_cost(const struct op *op, double *cost)
{
	double start;

	if (shared_prepare(op))
		return -1;
	start = bench_now();
	if (shared_run(op))
		return -1;
	*cost = bench_now() - start;
	return shared_finish(op);
}

const struct op export_ops[] = {
	{ .name = "memreg_export_64k", .setup = registered_setup,
	  .run = registered_run, .each = 1 },
	{ .name = "memreg_export_64k_pinned", .setup = pinned_setup,
	  .run = pinned_run, .each = 1 },
	{ .name = "memreg_export_1g", .prepare = large_prepare,
	  .run = large_run, .finish = large_finish, .each = 1, .alone = 1,
	  .large = 1 },
	{ .name = NULL }
};

const struct op export_many_ops[] = {
	{ .name = "memreg_mr_64m_1file", .cost = shared_cost, .each = 1,
	  .alone = 1, .large = 1 },
	{ .name = "memreg_mr_64m_4files", .cost = shared_cost, .each = FILES,
	  .alone = 1, .large = 1 },
	{ .name = NULL }
};
