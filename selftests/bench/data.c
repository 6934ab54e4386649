// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cost of moving data through libmemreg, compared with perftest
 * (perftest.c) and with a program on libibverbs (verbs_data.c). All use the
 * same number of outstanding work requests, signal at the same rate, and sleep
 * when there is nothing to do.
 */
#include <errno.h>
#include <string.h>
#include <memreg.h>

#include "../lib/raw.h"
#include "../lib/test.h"
#include "bench.h"
#include "link.h"

/* Bytes of the memory at the near end. */
#define LENGTH		(1UL << 20)

#define BATCH_MAX	32

/* There and back: of so many messages, one is signalled. */
#define SIGNAL		32
#define PING		64	/* bytes */

static const struct far granting = { far_grant, 7600 };
static const struct far draining = { far_sink, 7601 };
static const struct far echoing = { far_echo, 7602 };
static const struct far invalidating = { far_invalidate, 7603 };

static struct link to_granting, to_draining;
/* A program that waits for each answer gains nothing by completions in bulk. */
static struct link to_echoing = { .ring_flags = IB_MEMREG_RING_NO_MODERATION };
static struct link to_invalidating = {
	.ring_flags = IB_MEMREG_RING_NO_MODERATION,
};

/*
 * Much in one direction
 */

/**
 * struct flow - Work requests of one sort
 * @far: Far end
 * @link: Connection with it, made by the first that needs it
 * @opcode: enum ib_memreg_opcode
 * @size: Bytes of each
 * @batch: Work requests of a call; the last one is signalled
 * @depth: Most work requests that are outstanding; a multiple of @batch
 * @count: Work requests in all; a multiple of @batch
 * @strided: 0, or the bytes of each piece of the local memory, which then is a
 *	composition with one piece in each page
 * @on_demand: The local memory is an MR on demand
 * @apart: Bytes from the memory of one work request of a call to that of the
 *	next
 */
struct flow {
	const struct far *far;
	struct link *link;
	uint16_t opcode;
	uint32_t size;
	unsigned int batch;
	unsigned int depth;
	unsigned int count;
	uint32_t strided;
	int on_demand;
	size_t apart;
};

static struct memreg_mr composed, demanded;

/* Make one MR of the pieces, once. */
static int flow_compose(const struct flow *flow)
{
	const struct link *link = flow->link;
	struct ib_memreg_piece piece;

	if (!flow->strided || composed.id)
		return 0;
	piece = memreg_piece_2d(link->mr.id, 0, flow->strided, PAGE,
				flow->size / flow->strided);
	return memreg_mr_compose(link->m, link->domain, &piece, 1, 0, 0,
				 &composed) ? fail_memreg() : 0;
}

/* Register the memory on demand as well, once. */
static int flow_demand(const struct flow *flow)
{
	const struct link *link = flow->link;

	if (!flow->on_demand || demanded.id)
		return 0;
	return memreg_mr_register(link->m, link->domain, link->memory, LENGTH,
				  LOCAL_WRITE, IB_MEMREG_MR_ON_DEMAND,
				  &demanded) ? fail_memreg() : 0;
}

static int flow_setup(const struct op *op)
{
	const struct flow *flow = op->data;

	if (!flow->link->m && link_connect(flow->link, flow->far, LENGTH, 0))
		return -1;
	return flow_compose(flow) || flow_demand(flow) ? -1 : 0;
}

static uint32_t flow_mr(const struct flow *flow)
{
	if (flow->on_demand)
		return demanded.id;
	return flow->strided ? composed.id : flow->link->mr.id;
}

/* A batch, which can be submitted again and again. */
static void flow_prepare(const struct flow *flow, struct ib_memreg_wr *wrs)
{
	const struct link *link = flow->link;
	uint32_t mr = flow_mr(flow);
	const struct memreg_grant *to = &link->grant;
	unsigned int i;
	size_t at = 0;

	for (i = 0; i < flow->batch; i++, at += flow->apart) {
		if (flow->opcode == IB_MEMREG_OP_WRITE)
			memreg_prep_write(&wrs[i], link->endpoint, mr, at,
					  flow->size, to->iova, to->rkey);
		else if (flow->opcode == IB_MEMREG_OP_READ)
			memreg_prep_read(&wrs[i], link->endpoint, mr, at,
					 flow->size, to->iova, to->rkey);
		else
			memreg_prep_send(&wrs[i], link->endpoint, mr, at,
					 flow->size);
	}
	memreg_wr_signal(&wrs[i - 1], 0);
}

/* Take all completions that there are, and one at least. */
static int flow_reap(const struct flow *flow, unsigned int *done)
{
	struct memreg_ring *ring = &flow->link->ring;
	const struct ib_memreg_cqe *cqe;

	if (memreg_ring_wait(ring, 1, IB_MEMREG_WAIT_FOREVER, NULL))
		return fail_memreg();
	while ((cqe = memreg_ring_peek(ring))) {
		if (cqe->status)
			return fail(memreg_wc_status_string(cqe->status), EIO);
		*done += flow->batch;
		memreg_ring_seen(ring, 1);
	}
	return 0;
}

static int flow_run(const struct flow *flow, unsigned int count)
{
	struct ib_memreg_wr wrs[BATCH_MAX];
	unsigned int posted = 0, done = 0;

	flow_prepare(flow, wrs);
	while (done < count) {
		while (posted < count && posted - done < flow->depth) {
			if (memreg_submit(flow->link->m, wrs, flow->batch,
					  NULL))
				return fail_memreg();
			posted += flow->batch;
		}
		if (flow_reap(flow, &done))
			return -1;
	}
	return 0;
}

static int flow_cost(const struct op *op, double *cost)
{
	const struct flow *flow = op->data;
	unsigned int count = bench_count(flow->count, flow->batch);
	double begin = bench_now();

	if (flow_run(flow, count))
		return -1;
	*cost = (bench_now() - begin) / count;
	return 0;
}

/*
 * There and back
 */

/**
 * struct rounds - Messages that are answered
 * @prepare: Prepare what begins a round; returns the number of work requests,
 *	of which the last is a SEND
 * @link: Connection
 * @count: Rounds
 */
struct rounds {
	unsigned int (*prepare)(struct ib_memreg_wr *wrs);
	struct link *link;
	unsigned int count;
};

/* Wait for an answer, and prepare to receive another one in its place. */
static int rounds_answer(struct link *link, struct ib_memreg_wr *wr)
{
	const struct ib_memreg_cqe *cqe;
	bool got = false;

	while (!got) {
		if (memreg_ring_wait(&link->ring, 1, IB_MEMREG_WAIT_FOREVER,
				     NULL))
			return fail_memreg();
		cqe = memreg_ring_peek(&link->ring);
		if (cqe->status)
			return fail(memreg_wc_status_string(cqe->status), EIO);
		got = cqe->opcode == IB_MEMREG_OP_RECV;
		if (got)
			link_prep_recv(link, wr, cqe->user_data);
		memreg_ring_seen(&link->ring, 1);
	}
	return 0;
}

/* A call for each round: the receive for the last answer goes with it. */
static int rounds_run(const struct rounds *rounds, unsigned int count)
{
	struct link *link = rounds->link;
	struct ib_memreg_wr wrs[4];
	unsigned int i, n, recv = 0;

	for (i = 1; i <= count; i++, recv = 1) {
		n = recv + rounds->prepare(&wrs[recv]);
		if (!(i % SIGNAL))
			memreg_wr_signal(&wrs[n - 1], 0);
		if (memreg_submit(link->m, wrs, n, NULL))
			return fail_memreg();
		if (rounds_answer(link, &wrs[0]))
			return -1;
	}
	return memreg_submit(link->m, wrs, 1, NULL) ? fail_memreg() : 0;
}

static int rounds_cost(const struct op *op, double *cost)
{
	const struct rounds *rounds = op->data;
	unsigned int count = bench_count(rounds->count, 1);
	double begin = bench_now();

	if (rounds_run(rounds, count))
		return -1;
	*cost = (bench_now() - begin) / count;
	return 0;
}

static unsigned int ping_prepare(struct ib_memreg_wr *wrs)
{
	static const char data[PING];

	memreg_prep_send_inline(&wrs[0], to_echoing.endpoint, data, PING);
	return 1;
}

static int ping_setup(const struct op *op)
{
	(void)op;
	return link_connect(&to_echoing, &echoing, LENGTH, RECEIVES);
}

/*
 * A window of type 2B is bound, its key goes out with a message, and the answer
 * ends it.
 */

static uint32_t window;

static unsigned int bind_prepare(struct ib_memreg_wr *wrs)
{
	const struct link *link = &to_invalidating;
	static const uint32_t room_for_rkey;

	memreg_prep_bind(&wrs[0], link->endpoint, window, link->mr.id, PIECE,
			 PIECE, REMOTE_READ | REMOTE_WRITE);
	memreg_wr_insert_rkey(&wrs[0], 0);
	memreg_prep_send_inline(&wrs[1], link->endpoint, &room_for_rkey,
				sizeof(room_for_rkey));
	return 2;
}

static int bind_setup(const struct op *op)
{
	const struct rounds *rounds = op->data;
	struct link *link = rounds->link;

	if (link_connect(link, &invalidating, LENGTH, RECEIVES))
		return -1;
	if (memreg_window_alloc(link->m, link->domain,
				IB_MEMREG_WINDOW_TYPE2B, PIECE, &window, 1))
		return fail_memreg();
	return rounds_run(rounds, warm_up);
}

/*
 * The ring, without a system call
 */

#define POLLS		1000
#define ENTRIES		256

static int poll_cost(const struct op *op, double *cost)
{
	struct memreg_ring *ring = &to_granting.ring;
	double begin = bench_now();
	unsigned int i;

	(void)op;
	for (i = 0; i < POLLS; i++)
		if (memreg_ring_peek(ring))
			return fail("ring", EBUSY);
	*cost = (bench_now() - begin) / POLLS;
	return 0;
}

/* Fill the ring with as many completions. */
static int reap_prepare(const struct link *link, struct memreg_ring *ring)
{
	struct ib_memreg_wr wr;
	unsigned int i;

	memreg_prep_write(&wr, link->endpoint, link->mr.id, 0, 8,
			  link->grant.iova, link->grant.rkey);
	memreg_wr_signal(&wr, 0);
	for (i = 0; i < ENTRIES; i++)
		if (memreg_submit(link->m, &wr, 1, NULL))
			return fail_memreg();
	if (memreg_ring_wait(ring, ENTRIES, IB_MEMREG_WAIT_FOREVER, NULL))
		return fail_memreg();
	return 0;
}

static int reap_cost(const struct op *op, double *cost)
{
	struct memreg_ring *ring = &to_granting.ring;
	const struct ib_memreg_cqe *cqe;
	unsigned int i;
	double begin;

	(void)op;
	if (reap_prepare(&to_granting, ring))
		return -1;
	begin = bench_now();
	for (i = 0; i < ENTRIES; i++) {
		cqe = memreg_ring_peek(ring);
		if (!cqe || cqe->status)
			return fail("ring", EIO);
		memreg_ring_seen(ring, 1);
	}
	*cost = (bench_now() - begin) / ENTRIES;
	return 0;
}

/*
 * All of them
 */

static const struct flow to_poll = { .far = &granting, .link = &to_granting };

#define FLOW(_name, _opcode, _size, _batch, _depth, _count, _to, ...)	\
	{ .name = "memreg_" _name, .setup = flow_setup,			\
	  .cost = flow_cost, .large = 1,				\
	  .data = &(const struct flow){					\
		.far = &_to, .link = &to_##_to,				\
		.opcode = IB_MEMREG_OP_##_opcode, .size = (_size),	\
		.batch = (_batch), .depth = (_depth),			\
		.count = (_count), ##__VA_ARGS__ } }

#define ROUNDS(_name, _setup, _prepare, _to, _count)			\
	{ .name = "memreg_" _name, .setup = _setup,			\
	  .cost = rounds_cost, .large = 1,				\
	  .data = &(const struct rounds){				\
		.prepare = _prepare, .link = &to_##_to,			\
		.count = (_count) } }

#define RING(_name, _cost)						\
	{ .name = "memreg_ring_" _name, .setup = flow_setup,		\
	  .cost = _cost, .large = 1, .data = &to_poll }

const struct op data_ops[] = {
	FLOW("write_64k", WRITE, 65536, 1, 16, 128, granting),
	FLOW("read_64k", READ, 65536, 1, 16, 128, granting),
	FLOW("write_1m", WRITE, 1 << 20, 1, 16, 32, granting),
	FLOW("read_1m", READ, 1 << 20, 1, 16, 32, granting),
	FLOW("write_8b_batch32", WRITE, 8, 32, 128, 8192, granting),
	FLOW("strided_write_64x1k", WRITE, 65536, 1, 4, 128, granting,
	     .strided = 1024),
	FLOW("send_8b_batch32", SEND, 8, 32, 128, 8192, draining),
	FLOW("odp_send_8b_batch32", SEND, 8, 32, 128, 8192, draining,
	     .on_demand = 1),
	FLOW("odp_send_8b_batch32_pages", SEND, 8, 32, 128, 8192, draining,
	     .on_demand = 1, .apart = PAGE),
	ROUNDS("pingpong_64b", ping_setup, ping_prepare, echoing, 1024),
	ROUNDS("bind_send_inv", bind_setup, bind_prepare, invalidating, 1024),
	RING("poll_empty", poll_cost),
	RING("reap", reap_cost),
	{ .name = NULL }
};
