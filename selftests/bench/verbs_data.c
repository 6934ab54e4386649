// SPDX-License-Identifier: GPL-2.0-only
/*
 * The baseline for moving data through memreg: the same transfers by
 * libibverbs, with the same far end, and with a process that sleeps until a
 * work request completes. perftest can't sleep for READ and WRITE, and has no
 * measurement of windows of type 2 that a message carries and its answer
 * invalidates.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "bench.h"
#include "link.h"

#define REMOTE	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE)
#define TIMEOUT_MS	30000
#define SENDS		512
#define MESSAGE		64	/* bytes of each receive */
#define SIGNAL		32	/* of so many messages, one is signalled */

/**
 * struct verbs_link - A connection of libibverbs
 * @channel: Of its events
 * @id: The connection
 * @pd: Protection domain
 * @comp: Of its completions
 * @cq: Completion queue for both directions
 * @memory: Receives, one behind the other
 * @mr: MR on it
 * @grant: Grant of the far end
 * @sent: Messages
 */
struct verbs_link {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	char *memory;
	struct ibv_mr *mr;
	struct memreg_grant grant;
	unsigned int sent;
};

static int verbs_await(struct verbs_link *v, enum rdma_cm_event_type type,
		       struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	int ret;

	if (rdma_get_cm_event(v->channel, &event))
		return fail("rdma_get_cm_event", errno);
	ret = event->event == type ? 0 :
	      fail(rdma_event_str(event->event), ENOTCONN);
	if (id)
		*id = event->id;
	rdma_ack_cm_event(event);
	return ret;
}

static int verbs_receive(struct verbs_link *v, uint64_t piece)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)v->memory + piece * MESSAGE,
		.length = MESSAGE,
		.lkey = v->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = piece, .sg_list = &sge, .num_sge = 1,
	};
	struct ibv_recv_wr *bad;
	int ret = ibv_post_recv(v->id->qp, &wr, &bad);

	return ret ? fail("ibv_post_recv", ret) : 0;
}

/* The connection is up; the far end may have granted something. */
static int verbs_established(struct verbs_link *v)
{
	struct rdma_cm_event *event;
	int ret = 0;

	if (rdma_get_cm_event(v->channel, &event))
		return fail("rdma_get_cm_event", errno);
	if (event->event == RDMA_CM_EVENT_ESTABLISHED)
		memreg_grant_decode(event->param.conn.private_data,
				    event->param.conn.private_data_len,
				    &v->grant);
	else
		ret = fail(rdma_event_str(event->event), ENOTCONN);
	rdma_ack_cm_event(event);
	return ret;
}

/*
 * Make the queues, and post receives, for a connection that is not yet
 * established.
 */
static int verbs_make(struct verbs_link *v)
{
	struct ibv_qp_init_attr attr = {
		.cap.max_send_wr = SENDS,
		.cap.max_recv_wr = RECEIVES,
		.cap.max_send_sge = 1,
		.cap.max_recv_sge = 1,
		.cap.max_inline_data = MESSAGE,
		.qp_type = IBV_QPT_RC,
	};
	unsigned int i;

	v->pd = ibv_alloc_pd(v->id->verbs);
	v->comp = ibv_create_comp_channel(v->id->verbs);
	v->cq = ibv_create_cq(v->id->verbs, SENDS + RECEIVES, NULL, v->comp, 0);
	if (!v->pd || !v->comp || !v->cq)
		return fail("ibv_create_cq", errno);
	attr.send_cq = v->cq;
	attr.recv_cq = v->cq;
	if (rdma_create_qp(v->id, v->pd, &attr))
		return fail("rdma_create_qp", errno);
	v->memory = memory_pages(1 << 20);
	if (!v->memory)
		return fail("memory", ENOMEM);
	v->mr = ibv_reg_mr(v->pd, v->memory, 1 << 20,
			   REMOTE | IBV_ACCESS_MW_BIND);
	if (!v->mr)
		return fail("ibv_reg_mr", errno);
	for (i = 0; i < RECEIVES; i++)
		if (verbs_receive(v, i))
			return -1;
	return ibv_req_notify_cq(v->cq, 0) ?
	       fail("ibv_req_notify_cq", errno) : 0;
}

static struct sockaddr_in address(const struct far *far)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_port = htons(far->port),
	};

	inet_pton(AF_INET, PEER_ADDRESS, &at.sin_addr);
	return at;
}

static int verbs_connect(struct verbs_link *v, const struct far *far)
{
	struct rdma_conn_param param = {
		.responder_resources = 16, .initiator_depth = 16,
		.retry_count = 7, .rnr_retry_count = 7,
	};
	struct sockaddr_in at = address(far);

	if (far_start(far))
		return -1;
	v->channel = rdma_create_event_channel();
	if (!v->channel ||
	    rdma_create_id(v->channel, &v->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(v->id, NULL, (struct sockaddr *)&at, TIMEOUT_MS))
		return fail("rdma_resolve_addr", errno);
	if (verbs_await(v, RDMA_CM_EVENT_ADDR_RESOLVED, NULL))
		return -1;
	if (rdma_resolve_route(v->id, TIMEOUT_MS))
		return fail("rdma_resolve_route", errno);
	if (verbs_await(v, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL) ||
	    verbs_make(v))
		return -1;
	if (rdma_connect(v->id, &param))
		return fail("rdma_connect", errno);
	return verbs_established(v);
}

static int verbs_accept(struct verbs_link *v, const struct far *far)
{
	struct rdma_conn_param param = {
		.responder_resources = 16, .initiator_depth = 16,
		.rnr_retry_count = 7,
	};
	struct sockaddr_in at = address(far);
	struct rdma_cm_id *listener;

	v->channel = rdma_create_event_channel();
	if (!v->channel ||
	    rdma_create_id(v->channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&at) ||
	    rdma_listen(listener, 1))
		return fail("rdma_listen", errno);
	far_ready();
	if (verbs_await(v, RDMA_CM_EVENT_CONNECT_REQUEST, &v->id) ||
	    verbs_make(v))
		return -1;
	if (rdma_accept(v->id, &param))
		return fail("rdma_accept", errno);
	return verbs_await(v, RDMA_CM_EVENT_ESTABLISHED, NULL);
}

/* Sleep until something completes. */
static int verbs_sleep(struct verbs_link *v)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(v->comp, &cq, &context))
		return fail("ibv_get_cq_event", errno);
	ibv_ack_cq_events(cq, 1);
	if (ibv_req_notify_cq(cq, 0))
		return fail("ibv_req_notify_cq", errno);
	return 0;
}

/* The next message. Returns 1 for one, 0 if the connection is over, or -1. */
static int verbs_message(struct verbs_link *v, struct ibv_wc *wc)
{
	int n;

	for (;;) {
		n = ibv_poll_cq(v->cq, 1, wc);
		if (n < 0)
			return fail("ibv_poll_cq", EIO);
		if (n && wc->status == IBV_WC_WR_FLUSH_ERR)
			return 0;
		if (n && wc->status)
			return fail(ibv_wc_status_str(wc->status), EIO);
		if (n && wc->opcode == IBV_WC_RECV)
			return 1;
		if (!n && verbs_sleep(v))
			return -1;
	}
}

static int verbs_post(struct verbs_link *v, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad, *last = wr;
	int ret;

	while (last->next)
		last = last->next;
	last->send_flags |= IBV_SEND_INLINE;
	if (!(++v->sent % SIGNAL))
		last->send_flags |= IBV_SEND_SIGNALED;
	ret = ibv_post_send(v->id->qp, wr, &bad);
	return ret ? fail("ibv_post_send", ret) : 0;
}

/*
 * The far end
 */

static int invalidate(struct verbs_link *v, const struct ibv_wc *wc)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)v->memory, .length = sizeof(uint32_t),
		.lkey = v->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_INV, .sg_list = &sge, .num_sge = 1,
	};
	uint32_t rkey;

	memcpy(&rkey, v->memory + wc->wr_id * MESSAGE, sizeof(rkey));
	wr.invalidate_rkey = ntohl(rkey);
	return verbs_receive(v, wc->wr_id) || verbs_post(v, &wr) ? -1 : 0;
}

int far_invalidate(const struct far *far)
{
	struct verbs_link v = { .sent = 0 };
	struct ibv_wc wc;
	int ret;

	if (verbs_accept(&v, far))
		return -1;
	while ((ret = verbs_message(&v, &wc)) > 0)
		if (invalidate(&v, &wc))
			return -1;
	return ret;
}

/*
 * Much in one direction
 */

#define BATCH_MAX	64
#define STRIDE		4096UL
#define POLLS		1000

/**
 * struct verbs_flow - Work requests of one sort
 * @far: Far end, one of ours
 * @link: Connection with it, made by the first that needs it
 * @opcode: Opcode
 * @size: Bytes of each
 * @batch: So many in a post, of which the last one is signalled
 * @depth: So many outstanding at most, some batches
 * @count: So many in all, some batches
 * @strided: Those of a batch are in a page each, and count as one
 */
struct verbs_flow {
	const struct far *far;
	struct verbs_link *link;
	enum ibv_wr_opcode opcode;
	uint32_t size;
	unsigned int batch;
	unsigned int depth;
	unsigned int count;
	bool strided;
};

static const struct far granting = { far_grant, 7611 };
static const struct far draining = { far_sink, 7612 };
static struct verbs_link to_granting, to_draining;

static int flow_setup(const struct op *op)
{
	const struct verbs_flow *flow = op->data;

	return flow->link->id ? 0 : verbs_connect(flow->link, flow->far);
}

static void flow_prepare(const struct verbs_flow *flow, struct ibv_sge *sges,
			 struct ibv_send_wr *wrs)
{
	struct verbs_link *v = flow->link;
	unsigned int i, piece;

	for (i = 0; i < flow->batch; i++) {
		piece = flow->strided ? i : 0;
		sges[i] = (struct ibv_sge) {
			.addr = (uintptr_t)v->memory + piece * STRIDE,
			.length = flow->size,
			.lkey = v->mr->lkey,
		};
		wrs[i] = (struct ibv_send_wr) {
			.next = &wrs[i + 1], .sg_list = &sges[i], .num_sge = 1,
			.opcode = flow->opcode,
			.wr.rdma.remote_addr = v->grant.iova +
					       piece * flow->size,
			.wr.rdma.rkey = v->grant.rkey,
		};
	}
	wrs[i - 1].next = NULL;
	wrs[i - 1].send_flags = IBV_SEND_SIGNALED;
}

/* Take all completions that there are, and one at least. */
static int flow_reap(const struct verbs_flow *flow, unsigned int *done)
{
	struct ibv_wc wcs[16];
	int i, n, all = 0;

	for (;;) {
		n = ibv_poll_cq(flow->link->cq, 16, wcs);
		if (n < 0)
			return fail("ibv_poll_cq", EIO);
		for (i = 0; i < n; i++)
			if (wcs[i].status)
				return fail(ibv_wc_status_str(wcs[i].status),
					    EIO);
		all += n;
		*done += (unsigned int)n * flow->batch;
		if (!n && all)
			return 0;
		if (!n && verbs_sleep(flow->link))
			return -1;
	}
}

static int flow_run(const struct verbs_flow *flow, unsigned int count)
{
	struct ibv_send_wr wrs[BATCH_MAX], *bad;
	unsigned int posted = 0, done = 0;
	struct ibv_sge sges[BATCH_MAX];
	int ret;

	flow_prepare(flow, sges, wrs);
	while (done < count) {
		while (posted < count && posted - done < flow->depth) {
			ret = ibv_post_send(flow->link->id->qp, wrs, &bad);
			if (ret)
				return fail("ibv_post_send", ret);
			posted += flow->batch;
		}
		if (flow_reap(flow, &done))
			return -1;
	}
	return 0;
}

static int flow_cost(const struct op *op, double *cost)
{
	const struct verbs_flow *flow = op->data;
	unsigned int count = bench_count(flow->count, flow->batch);
	double begin = bench_now();

	if (flow_run(flow, count))
		return -1;
	if (flow->strided)
		count /= flow->batch;
	*cost = (bench_now() - begin) / count;
	return 0;
}

/* A flow reaps all its work requests, so that none is left to complete. */
static int poll_cost(const struct op *op, double *cost)
{
	double begin = bench_now();
	struct ibv_wc wc;
	unsigned int i;

	(void)op;
	for (i = 0; i < POLLS; i++)
		if (ibv_poll_cq(to_granting.cq, 1, &wc))
			return fail("ibv_poll_cq", EBUSY);
	*cost = (bench_now() - begin) / POLLS;
	return 0;
}

static const struct verbs_flow to_poll = {
	.far = &granting, .link = &to_granting,
};

/*
 * Windows that go with a message
 */

static struct verbs_link near;
static struct ibv_mw *window;
static uint32_t window_rkey;

static int bind_once(void)
{
	uint32_t data;
	struct ibv_sge sge = {
		.addr = (uintptr_t)&data, .length = sizeof(data),
	};
	struct ibv_send_wr send = {
		.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
	};
	struct ibv_send_wr bind = {
		.opcode = IBV_WR_BIND_MW, .next = &send,
	};

	window->rkey = window_rkey;
	window_rkey = ibv_inc_rkey(window_rkey);
	data = htonl(window_rkey);
	bind.bind_mw.mw = window;
	bind.bind_mw.rkey = window_rkey;
	bind.bind_mw.bind_info.mr = near.mr;
	bind.bind_mw.bind_info.addr = (uintptr_t)near.memory + PIECE;
	bind.bind_mw.bind_info.length = PIECE;
	bind.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ |
						 IBV_ACCESS_REMOTE_WRITE;
	return verbs_post(&near, &bind);
}

static int bind_rounds(unsigned int count)
{
	struct ibv_wc wc;

	while (count--) {
		if (bind_once())
			return -1;
		if (verbs_message(&near, &wc) != 1)
			return fail("far end", ECONNRESET);
		/* rxe has the kernel's flag for it, which is another one. */
		if (wc.invalidated_rkey != window_rkey)
			return fail("invalidation", EPROTO);
		if (verbs_receive(&near, wc.wr_id))
			return -1;
	}
	return 0;
}

static int bind_setup(const struct op *op)
{
	static const struct far invalidating = { far_invalidate, 7610 };

	(void)op;
	if (near.id)
		return 0;
	if (verbs_connect(&near, &invalidating))
		return -1;
	window = ibv_alloc_mw(near.pd, IBV_MW_TYPE_2);
	if (!window)
		return fail("ibv_alloc_mw", errno);
	window_rkey = window->rkey;
	return bind_rounds(warm_up);
}

#define BINDS		1024

static int bind_cost(const struct op *op, double *cost)
{
	unsigned int count = bench_count(BINDS, 1);
	double begin = bench_now();

	(void)op;
	if (bind_rounds(count))
		return -1;
	*cost = (bench_now() - begin) / count;
	return 0;
}

#define FLOW(_name, _opcode, _size, _batch, _depth, _count, _to, ...)	\
	{ .name = "verbs_" _name, .setup = flow_setup,			\
	  .cost = flow_cost, .large = 1,				\
	  .data = &(const struct verbs_flow){				\
		.far = &_to, .link = &to_##_to,				\
		.opcode = IBV_WR_##_opcode, .size = (_size),		\
		.batch = (_batch), .depth = (_depth),			\
		.count = (_count), ##__VA_ARGS__ } }

const struct op verbs_data_ops[] = {
	FLOW("write_64k", RDMA_WRITE, 65536, 1, 16, 128, granting),
	FLOW("read_64k", RDMA_READ, 65536, 1, 16, 128, granting),
	FLOW("write_1m", RDMA_WRITE, 1 << 20, 1, 16, 32, granting),
	FLOW("read_1m", RDMA_READ, 1 << 20, 1, 16, 32, granting),
	FLOW("write_8b_batch32", RDMA_WRITE, 8, 32, 128, 8192, granting),
	FLOW("strided_write_64x1k", RDMA_WRITE, 1024, 64, 256, 8192, granting,
	     .strided = true),
	FLOW("send_8b_batch32", SEND, 8, 32, 128, 8192, draining),
	{ .name = "verbs_bind_send_inv", .setup = bind_setup,
	  .cost = bind_cost, .large = 1 },
	{ .name = "verbs_poll_empty", .setup = flow_setup,
	  .cost = poll_cost, .large = 1, .data = &to_poll },
	{ .name = NULL }
};
