// SPDX-License-Identifier: GPL-2.0-only
/*
 * The connection of a sample: what has to be there before requests are posted,
 * and in which order it goes. client.c has the same for itself.
 */
#include <linux/inet.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>

#include "conn.h"

void sample_lost(struct sample_conn *conn)
{
	WRITE_ONCE(conn->lost, true);
	wake_up_all(&conn->wait);
}

static int sample_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct sample_conn *conn = id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_DISCONNECTED:
		sample_lost(conn);
		return 0;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		/* The core waits for sample_close(). */
		sample_lost(conn);
		conn->status = -ENODEV;
		break;
	default:
		conn->status = event->status ? -ECONNREFUSED : 0;
	}
	complete(&conn->step);
	return 0;
}

/* Wait for the end of a step, if it could begin. */
static int sample_step(struct sample_conn *conn, int ret)
{
	if (!ret && !wait_for_completion_timeout(&conn->step, SAMPLE_LIMIT))
		return -ETIMEDOUT;
	return ret ?: conn->status;
}

/* As many receives as requests, and one for a drain. */
static int sample_create_qp(struct sample_conn *conn, unsigned int depth,
			    unsigned int max_mrs)
{
	struct ib_qp_init_attr attr = {
		.cap = { .max_recv_wr = depth + 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IB_QPT_RC,
	};
	int ret;

	ret = ib_memreg_init_qp(conn->id->device, &attr, depth, max_mrs);
	if (ret < 0)
		return ret;
	conn->cq = ib_alloc_cq(conn->id->device, conn, ret + depth + 1, 0,
			       IB_POLL_SOFTIRQ);
	if (IS_ERR(conn->cq))
		return PTR_ERR(conn->cq);
	attr.send_cq = conn->cq;
	attr.recv_cq = conn->cq;
	return rdma_create_qp(conn->id, conn->pd, &attr);
}

/* Find the device by which the server is reached. */
static int sample_resolve(struct sample_conn *conn, const char *server,
			  const char *port)
{
	struct net *net = current->nsproxy->net_ns;
	struct sockaddr_storage addr;

	init_completion(&conn->step);
	init_waitqueue_head(&conn->wait);
	conn->id = rdma_create_id(net, sample_event, conn, RDMA_PS_TCP,
				  IB_QPT_RC);
	return PTR_ERR_OR_ZERO(conn->id) ?:
	       inet_pton_with_scope(net, AF_UNSPEC, server, port, &addr) ?:
	       sample_step(conn, rdma_resolve_addr(conn->id, NULL,
						   (struct sockaddr *)&addr,
						   5000));
}

/*
 * Make all that is on a device, for @depth requests of @max_mrs MRs. Whatever
 * it returns, sample_close() undoes it.
 */
int sample_open(struct sample_conn *conn, const char *server, const char *port,
		const struct ib_memreg_pool_attr *pool, unsigned int depth,
		unsigned int max_mrs)
{
	int ret = sample_resolve(conn, server, port);

	if (ret)
		return ret;
	conn->pd = ib_alloc_pd(conn->id->device, 0);
	if (IS_ERR(conn->pd))
		return PTR_ERR(conn->pd);
	conn->pool = ib_memreg_pool_create(conn->pd, pool);
	if (IS_ERR(conn->pool))
		return PTR_ERR(conn->pool);
	return sample_create_qp(conn, depth, max_mrs);
}

int sample_post_recv(struct sample_conn *conn, struct ib_cqe *cqe, u64 addr,
		     u32 length)
{
	struct ib_sge sge = {
		.addr = addr, .length = length,
		.lkey = conn->pd->local_dma_lkey,
	};
	struct ib_recv_wr recv = {
		.wr_cqe = cqe, .sg_list = &sge, .num_sge = !!length,
	};

	return ib_post_recv(conn->id->qp, &recv, NULL);
}

/* Connect, once receives are posted. */
int sample_connect(struct sample_conn *conn)
{
	struct rdma_conn_param param = {
		.retry_count = 7, .rnr_retry_count = 7,
		.responder_resources = 4,
	};

	int ret = sample_step(conn, rdma_resolve_route(conn->id, 5000)) ?:
		  sample_step(conn, rdma_connect(conn->id, &param));

	/* The peer may have accepted too late: no receive is to complete. */
	if (ret)
		rdma_destroy_qp(conn->id);
	return ret;
}

/* End the connection: no key works afterwards, and all requests are done. */
void sample_disconnect(struct sample_conn *conn)
{
	struct ib_qp *qp = conn->id->qp;

	rdma_disconnect(conn->id);
	ib_drain_rq(qp);	/* first: an answer that is taken posts */
	ib_drain_sq(qp);
	ib_memreg_pool_abort(conn->pool, qp);
}

/* Undo sample_open(), after sample_disconnect() if it was connected. */
void sample_close(struct sample_conn *conn)
{
	if (IS_ERR_OR_NULL(conn->id))
		return;
	if (conn->id->qp)
		rdma_destroy_qp(conn->id);
	if (!IS_ERR_OR_NULL(conn->cq))
		ib_free_cq(conn->cq);
	if (!IS_ERR_OR_NULL(conn->pool))
		ib_memreg_pool_destroy(conn->pool);
	if (!IS_ERR_OR_NULL(conn->pd))
		ib_dealloc_pd(conn->pd);
	rdma_destroy_id(conn->id);
}
