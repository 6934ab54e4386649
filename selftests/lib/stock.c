// SPDX-License-Identifier: GPL-2.0-only
/* The other end of a connection: librdmacm and libibverbs, and no memreg. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem.h"
#include "net.h"
#include "stock.h"
#include "test.h"

#define QUEUE		256
#define STOCK_SGES	4
#define MR_ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | \
			 IBV_ACCESS_MW_BIND)

/* An id belongs to the network namespace in which its maker is at that time. */
struct new_id {
	struct rdma_event_channel *events;
	struct rdma_cm_id **id;
};

static int create_id_here(void *arg)
{
	struct new_id *new = arg;

	return rdma_create_id(new->events, new->id, NULL, RDMA_PS_TCP) ?
	       -errno : 0;
}

static int create_id(struct stock *s, struct rdma_cm_id **id)
{
	struct new_id new = { .events = s->events, .id = id };

	return in_peer_netns(create_id_here, &new);
}

static struct sockaddr *address(struct sockaddr_in *in, const char *ip,
				__be16 port)
{
	memset(in, 0, sizeof(*in));
	in->sin_family = AF_INET;
	in->sin_port = port;
	inet_pton(AF_INET, ip, &in->sin_addr);
	return (struct sockaddr *)in;
}

static int listen_on_peer(struct stock *s)
{
	struct sockaddr_in in;
	int ret = create_id(s, &s->listener);

	if (ret)
		return ret;
	if (rdma_bind_addr(s->listener, address(&in, PEER_IP4, 0)) ||
	    rdma_listen(s->listener, 1024))
		return -errno;
	s->port = rdma_get_src_port(s->listener);
	return 0;
}

static int set_nonblock(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static int make_queue(struct ibv_context *verbs, struct stock_queue *q)
{
	q->channel = ibv_create_comp_channel(verbs);
	if (!q->channel || set_nonblock(q->channel->fd))
		return -errno;
	q->cq = ibv_create_cq(verbs, 2 * QUEUE, NULL, q->channel, 0);
	return q->cq ? 0 : -errno;
}

int stock_open(struct stock *s, size_t len)
{
	struct ibv_context *verbs;
	int ret;

	memset(s, 0, sizeof(*s));
	s->rnr_retry = 7;
	s->len = len;
	s->mem = mem_alloc(len);
	s->events = rdma_create_event_channel();
	if (!s->mem || !s->events || set_nonblock(s->events->fd))
		return -errno;
	ret = listen_on_peer(s);
	if (ret)
		return ret;
	verbs = s->listener->verbs;
	s->pd = ibv_alloc_pd(verbs);
	if (!s->pd)
		return -errno;
	s->mr = ibv_reg_mr(s->pd, s->mem, len, MR_ACCESS);
	if (!s->mr)
		return -errno;
	return make_queue(verbs, &s->sent) ?: make_queue(verbs, &s->received);
}

static void free_queue(struct stock_queue *q)
{
	if (q->cq)
		ibv_destroy_cq(q->cq);
	if (q->channel)
		ibv_destroy_comp_channel(q->channel);
}

void stock_close(struct stock *s)
{
	stock_disconnect(s);
	free_queue(&s->sent);
	free_queue(&s->received);
	if (s->mr)
		ibv_dereg_mr(s->mr);
	if (s->pd)
		ibv_dealloc_pd(s->pd);
	if (s->listener)
		rdma_destroy_id(s->listener);
	if (s->events)
		rdma_destroy_event_channel(s->events);
	if (s->mem)
		mem_free(s->mem, s->len);
	memset(s, 0, sizeof(*s));
}

/*
 * Connections
 */

/*
 * Take the next event. The id of a connection request becomes @s's connection.
 */
static int take_event(struct stock *s, struct rdma_cm_event **event)
{
	struct pollfd pfd = { .fd = s->events->fd, .events = POLLIN };

	while (rdma_get_cm_event(s->events, event)) {
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (poll(&pfd, 1, LIMIT_MS) == 0)
			return -ETIMEDOUT;
	}
	if ((*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		s->id = (*event)->id;
	return 0;
}

int stock_await(struct stock *s, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type got;
	int ret = take_event(s, &event);
	int status;

	if (ret)
		return ret;
	got = event->event;
	status = event->status;
	rdma_ack_cm_event(event);
	if (got == type)
		return 0;
	if (got == RDMA_CM_EVENT_REJECTED)
		return -ECONNREFUSED;
	fprintf(stderr, "# stock end: %s, status %d\n", rdma_event_str(got),
		status);
	return -EPROTO;
}

/*
 * Change the state of a QP. librdmacm would use the number of RNR retries that
 * the other end asks for; this uses the test's.
 */
static int qp_state(struct stock *s, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	if (rdma_init_qp_attr(s->id, &attr, &mask))
		return -errno;
	if (state == IBV_QPS_RTS)
		attr.rnr_retry = s->rnr_retry;
	return -ibv_modify_qp(s->qp, &attr, mask);
}

/* Set the state INIT again as well: only now the CM knows its attributes. */
static int qp_up(struct stock *s)
{
	return qp_state(s, IBV_QPS_INIT) ?: qp_state(s, IBV_QPS_RTR) ?:
	       qp_state(s, IBV_QPS_RTS);
}

static int make_qp(struct stock *s)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = s->sent.cq,
		.recv_cq = s->received.cq,
		.cap = {
			.max_send_wr = QUEUE,
			.max_recv_wr = QUEUE,
			.max_send_sge = STOCK_SGES,
			.max_recv_sge = STOCK_SGES,
		},
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = s->pd,
		.send_ops_flags = IBV_QP_EX_WITH_FLUSH |
				  IBV_QP_EX_WITH_ATOMIC_WRITE,
	};

	s->qp = ibv_create_qp_ex(s->pd->context, &attr);
	if (!s->qp) {
		/* Most devices have neither. */
		attr.comp_mask = IBV_QP_INIT_ATTR_PD;
		s->qp = ibv_create_qp_ex(s->pd->context, &attr);
	}
	return s->qp ? qp_state(s, IBV_QPS_INIT) : -errno;
}

int stock_connect(struct stock *s, const char *ip, __be16 port)
{
	struct rdma_conn_param param = {
		.responder_resources = s->no_reads ? 0 : 16,
		.initiator_depth = 16,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	struct sockaddr_in in;
	int ret = create_id(s, &s->id);

	if (ret)
		return ret;
	s->connects = true;
	if (rdma_resolve_addr(s->id, NULL, address(&in, ip, port), 20000))
		return -errno;
	ret = stock_await(s, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (ret)
		return ret;
	if (rdma_resolve_route(s->id, 20000))
		return -errno;
	ret = stock_await(s, RDMA_CM_EVENT_ROUTE_RESOLVED) ?: make_qp(s);
	if (ret)
		return ret;
	param.qp_num = s->qp->qp_num;
	return rdma_connect(s->id, &param) ? -errno : 0;
}

int stock_request(struct stock *s)
{
	s->connects = false;
	return stock_await(s, RDMA_CM_EVENT_CONNECT_REQUEST) ?: make_qp(s);
}

int stock_accept(struct stock *s)
{
	struct rdma_conn_param param = {
		.responder_resources = s->no_reads ? 0 : 16,
		.initiator_depth = 16,
		.rnr_retry_count = 7,
		.qp_num = s->qp->qp_num,
	};
	int ret = qp_up(s);

	if (ret)
		return ret;
	return rdma_accept(s->id, &param) ? -errno : 0;
}

int stock_answered(struct stock *s)
{
	return stock_await(s, RDMA_CM_EVENT_CONNECT_RESPONSE) ?: qp_up(s);
}

int stock_established(struct stock *s)
{
	int ret;

	if (!s->connects)
		return stock_await(s, RDMA_CM_EVENT_ESTABLISHED);
	ret = stock_answered(s);
	if (ret)
		return ret;
	return rdma_establish(s->id) ? -errno : 0;
}

/* Discard completions of the previous connection. */
static void drain(struct stock_queue *q)
{
	struct ibv_wc wc;

	while (q->cq && ibv_poll_cq(q->cq, 1, &wc) > 0)
		;
}

void stock_disconnect(struct stock *s)
{
	struct rdma_cm_event *event;

	if (!s->id)
		return;
	rdma_disconnect(s->id);
	if (s->mw)
		ibv_dealloc_mw(s->mw);
	if (s->qp)
		ibv_destroy_qp(s->qp);
	s->mw = NULL;
	s->qp = NULL;
	while (!rdma_get_cm_event(s->events, &event))
		rdma_ack_cm_event(event);
	rdma_destroy_id(s->id);
	s->id = NULL;
	drain(&s->sent);
	drain(&s->received);
}

/*
 * Work
 */

int stock_recv(struct stock *s, size_t offset, size_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->mem + offset,
		.length = len,
		.lkey = s->mr->lkey,
	};
	struct ibv_recv_wr *bad, wr = {
		.wr_id = offset,
		.sg_list = &sge,
		.num_sge = len ? 1 : 0,
	};

	return -ibv_post_recv(s->qp, &wr, &bad);
}

static void take_notification(struct stock_queue *q)
{
	struct ibv_cq *cq;
	void *context;

	if (!ibv_get_cq_event(q->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
}

int stock_next(struct stock_queue *q, struct ibv_wc *wc)
{
	struct pollfd pfd = { .fd = q->channel->fd, .events = POLLIN };

	for (;;) {
		if (ibv_poll_cq(q->cq, 1, wc) > 0)
			return 0;
		if (ibv_req_notify_cq(q->cq, 0))
			return -errno;
		if (ibv_poll_cq(q->cq, 1, wc) > 0)
			return 0;
		if (poll(&pfd, 1, LIMIT_MS) == 0)
			return -ETIMEDOUT;
		take_notification(q);
	}
}

int stock_post(struct stock *s, const struct ibv_send_wr *request,
	       size_t offset, size_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->mem + offset,
		.length = len,
		.lkey = s->mr->lkey,
	};
	struct ibv_send_wr wr = *request, *bad;

	wr.sg_list = &sge;
	wr.num_sge = len ? 1 : 0;
	return -ibv_post_send(s->qp, &wr, &bad);
}

/* Status of the only posted work request, which is signalled */
static int sent_status(struct stock *s)
{
	struct ibv_wc wc;
	int ret = stock_next(&s->sent, &wc);

	return ret ?: (int)wc.status;
}

int stock_do(struct stock *s, const struct ibv_send_wr *request, size_t offset,
	     size_t len)
{
	struct ibv_send_wr wr = *request;

	wr.send_flags |= IBV_SEND_SIGNALED;
	return stock_post(s, &wr, offset, len) ?: sent_status(s);
}

int stock_send(struct stock *s, size_t offset, size_t len)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };

	return stock_do(s, &wr, offset, len);
}

int stock_write(struct stock *s, size_t offset, size_t len, uint64_t addr,
		uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};

	return stock_do(s, &wr, offset, len);
}

int stock_read(struct stock *s, size_t offset, size_t len, uint64_t addr,
	       uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};

	return stock_do(s, &wr, offset, len);
}

int stock_send_inv(struct stock *s, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_INV,
		.invalidate_rkey = rkey,
	};

	return stock_do(s, &wr, 0, 8);
}

/*
 * The extended QP, for operations that only it can post; NULL if the device has
 * none
 */
static struct ibv_qp_ex *begin_extended(struct stock *s)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(s->qp);

	if (!qp)
		return NULL;
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	return qp;
}

int stock_flush(struct stock *s, size_t len, uint64_t addr, uint32_t rkey,
		unsigned int level)
{
	struct ibv_qp_ex *qp = begin_extended(s);

	if (!qp)
		return -EOPNOTSUPP;
	ibv_wr_flush(qp, rkey, addr, len, IBV_FLUSH_GLOBAL, level);
	return -ibv_wr_complete(qp) ?: sent_status(s);
}

int stock_atomic_write(struct stock *s, uint64_t value, uint64_t addr,
		       uint32_t rkey)
{
	struct ibv_qp_ex *qp = begin_extended(s);

	if (!qp)
		return -EOPNOTSUPP;
	ibv_wr_atomic_write(qp, rkey, addr, &value);
	return -ibv_wr_complete(qp) ?: sent_status(s);
}

int stock_bind(struct stock *s, size_t offset, size_t len, unsigned int access,
	       uint32_t *rkey)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };
	int ret;

	if (!s->mw)
		s->mw = ibv_alloc_mw(s->pd, IBV_MW_TYPE_2);
	if (!s->mw)
		return -errno;
	wr.bind_mw.mw = s->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(s->mw->rkey);
	wr.bind_mw.bind_info.mr = s->mr;
	wr.bind_mw.bind_info.addr = (uintptr_t)s->mem + offset;
	wr.bind_mw.bind_info.length = len;
	wr.bind_mw.bind_info.mw_access_flags = access;
	ret = stock_do(s, &wr, 0, 0);
	if (!ret)
		s->mw->rkey = wr.bind_mw.rkey;
	*rkey = s->mw->rkey;
	return ret;
}
