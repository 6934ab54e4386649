// SPDX-License-Identifier: GPL-2.0-only
/*
 * MRs on demand: registering one, a use of memory that is not pinned, pinning
 * ahead, and letting go. What uses of pinned memory cost is in data.c.
 */
#include <errno.h>
#include <sys/mman.h>
#include <memreg.h>

#include "../lib/raw.h"
#include "../lib/test.h"
#include "bench.h"
#include "link.h"

#define ON_DEMAND	IB_MEMREG_MR_ON_DEMAND
#define FAULTS		16	/* of one measurement */

static const struct far echoing = { far_echo, 7620 };

static struct link link = { .ring_flags = IB_MEMREG_RING_NO_MODERATION };
static struct memreg_mr used;

/* The memory that others are measured with, on demand. */
static int demand_setup(const struct op *op)
{
	(void)op;
	if (used.id)
		return 0;
	if (!mr_memory())
		return fail("memory", ENOMEM);
	if (link_connect(&link, &echoing, PIECE, 0))
		return -1;
	return memreg_mr_register(link.m, link.domain, mr_memory(),
				  MR_LENGTH_MAX, LOCAL_WRITE, ON_DEMAND,
				  &used) ? fail_memreg() : 0;
}

/* Pin, or let go of, so much at its beginning, all of which is to be new. */
static int demand_advise(uint32_t advice, size_t length)
{
	struct ib_memreg_range range = { .mr_id = used.id, .length = length };

	if (memreg_advise(link.m, advice, 0, &range, 1))
		return fail_memreg();
	return range.out_pages == length / PAGE ? 0 : fail("pages", EBUSY);
}

/*
 * A use
 */

static int demand_receive(void)
{
	struct ib_memreg_wr wr;

	memreg_prep_recv(&wr, link.endpoint, used.id, 0, PIECE, 0);
	return memreg_submit(link.m, &wr, 1, NULL) ? fail_memreg() : 0;
}

/* Something arrives, and nothing is on its way any more. */
static int demand_answer(void)
{
	static const char data[8];
	const struct ib_memreg_cqe *cqe;
	struct ib_memreg_wr wr;
	unsigned int i;

	memreg_prep_send_inline(&wr, link.endpoint, data, sizeof(data));
	memreg_wr_signal(&wr, 0);
	if (memreg_submit(link.m, &wr, 1, NULL) ||
	    memreg_ring_wait(&link.ring, 2, IB_MEMREG_WAIT_FOREVER, NULL))
		return fail_memreg();
	for (i = 0; i < 2; i++) {
		cqe = memreg_ring_peek(&link.ring);
		if (cqe->status)
			return fail(memreg_wc_status_string(cqe->status), EIO);
		memreg_ring_seen(&link.ring, 1);
	}
	return 0;
}

/* A receive is posted, which pins, and what it has pinned is let go. */
static int fault_cost(const struct op *op, double *cost)
{
	double begin, total = 0;
	unsigned int i;

	(void)op;
	for (i = 0; i < FAULTS; i++) {
		begin = bench_now();
		if (demand_receive())
			return -1;
		total += bench_now() - begin;
		if (demand_answer())
			return -1;
		begin = bench_now();
		if (demand_advise(IB_MEMREG_ADVICE_DROP, PIECE))
			return -1;
		total += bench_now() - begin;
	}
	*cost = total / FAULTS;
	return 0;
}

/*
 * Advice
 */

static int prefetch_run(const struct op *op)
{
	(void)op;
	return demand_advise(IB_MEMREG_ADVICE_PREFETCH_WRITE, MR_LENGTH_MAX) ||
	       demand_advise(IB_MEMREG_ADVICE_DROP, MR_LENGTH_MAX) ? -1 : 0;
}

/*
 * Registering
 */

static void *large;

static int large_setup(const struct op *op)
{
	if (demand_setup(op))
		return -1;
	large = mmap(NULL, LARGE_LENGTH, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return large == MAP_FAILED ? fail("mmap", errno) : 0;
}

static int large_run(const struct op *op)
{
	struct memreg_mr mr;

	(void)op;
	if (memreg_mr_register(link.m, link.domain, large, LARGE_LENGTH,
			       LOCAL_WRITE, ON_DEMAND, &mr) ||
	    memreg_mr_deregister(link.m, mr.id))
		return fail_memreg();
	return 0;
}

const struct op demand_ops[] = {
	{ .name = "memreg_odp_fault_64k", .setup = demand_setup,
	  .cost = fault_cost, .each = 1 },
	{ .name = "memreg_odp_prefetch_1m", .setup = demand_setup,
	  .run = prefetch_run, .each = 1 },
	{ .name = "memreg_odp_register_1g", .setup = large_setup,
	  .run = large_run, .each = 1 },
	{ .name = NULL }
};
