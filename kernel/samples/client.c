// SPDX-License-Identifier: GPL-2.0-only
/*
 * A whole client of <rdma/memreg_pool.h>: it sends a server the key of some
 * memory, and waits until the server has written there, and sent no bytes.
 *
 *	insmod ib_memreg_sample.ko server=192.0.2.2 port=7471
 *	cat /sys/module/ib_memreg_sample/parameters/text
 */
#include <linux/inet.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <rdma/memreg_pool.h>
#include <rdma/rdma_cm.h>

#define SAMPLE_LIMIT	20	/* seconds, for each step and the answer */

static char *server = "", *port = "7471", text[256];
module_param(server, charp, 0400);
module_param(port, charp, 0400);
module_param_string(text, text, sizeof(text), 0400);

struct sample {
	/* Memory that the device reads or writes has cache lines of its own. */
	struct ib_memreg_seg message __aligned(ARCH_DMA_MINALIGN);
	char text[sizeof(text)] __aligned(ARCH_DMA_MINALIGN);
	struct rdma_cm_id *id __aligned(ARCH_DMA_MINALIGN);
	int status;			/* of a step */
	struct completion step;		/* it ended */
	struct ib_pd *pd;
	struct ib_memreg_pool *pool;
	struct ib_memreg_req req;
	struct ib_sge sge;		/* of the message */
	struct ib_cq *cq;
	struct ib_cqe recv_cqe;		/* of the answer */
	bool answered;
};

static int sample_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct sample *s = id->context;

	s->status = event->status ||
		    event->event == RDMA_CM_EVENT_DEVICE_REMOVAL ?
			    -ECONNREFUSED : 0;
	complete(&s->step);
	return 0;
}

/*
 * Wait for the end of a step, if it could begin. A receive that is flushed ends
 * it, too, without a status, and the event of a refusal follows.
 */
static int sample_step(struct sample *s, int ret)
{
	if (!ret && !wait_for_completion_timeout(&s->step, SAMPLE_LIMIT * HZ))
		return -ETIMEDOUT;
	return ret ?: xchg(&s->status, -ECONNREFUSED);
}

/* The request knows whether this is the answer that it waits for. */
static void sample_recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct sample *s = container_of(wc->wr_cqe, struct sample, recv_cqe);

	if (!ib_memreg_req_answered(&s->req, wc)) {
		s->answered = true;
		ib_memreg_req_end(&s->req, s->id->qp);
	} else {
		complete(&s->step);
	}
}

static void sample_done(struct ib_memreg_req *req, int status)
{
	struct sample *s = container_of(req, struct sample, req);

	complete(&s->step);
}

static const struct ib_memreg_req_ops sample_ops = { .done = sample_done };

/* All that is on a device: the text is registered, the message written. */
static int sample_create(struct sample *s, struct ib_device *device)
{
	const struct ib_memreg_pool_attr pool = {
		.name = "sample", .count = 1, .numa_node = NUMA_NO_NODE,
	};
	struct ib_qp_init_attr attr = {
		.cap = { .max_recv_wr = 2 /* a drain */, .max_send_sge = 1 },
		.qp_type = IB_QPT_RC,
	};
	struct scatterlist sg;
	int ret;

	s->pd = ib_alloc_pd(device, 0);
	if (IS_ERR(s->pd))
		return PTR_ERR(s->pd);
	s->pool = ib_memreg_pool_create(s->pd, &pool);
	if (IS_ERR(s->pool))
		return PTR_ERR(s->pool);
	ib_memreg_req_init(&s->req, s->pool, NULL, &sample_ops);
	sg_init_one(&sg, s->text, sizeof(s->text));
	ret = ib_memreg_req_map_sg(&s->req, &sg, 1, 1, DMA_FROM_DEVICE);
	if (ret)
		return ret;
	ib_memreg_req_segs(&s->req, &s->message, 1);
	s->sge.addr = ib_dma_map_single(device, &s->message,
					sizeof(s->message), DMA_TO_DEVICE);
	if (ib_dma_mapping_error(device, s->sge.addr))
		return -ENOMEM;
	s->sge.length = sizeof(s->message);
	s->sge.lkey = s->pd->local_dma_lkey;
	ret = ib_memreg_init_qp(device, &attr, 1, 1);
	if (ret < 0)
		return ret;
	s->cq = ib_alloc_cq(device, s, ret + 2, 0, IB_POLL_SOFTIRQ);
	if (IS_ERR(s->cq))
		return PTR_ERR(s->cq);
	attr.send_cq = s->cq;
	attr.recv_cq = s->cq;
	return rdma_create_qp(s->id, s->pd, &attr);
}

static void sample_destroy(struct sample *s)
{
	if (IS_ERR(s->id))
		return;
	if (s->id->qp)
		rdma_destroy_qp(s->id);
	if (!IS_ERR_OR_NULL(s->cq))
		ib_free_cq(s->cq);
	if (s->sge.length)
		ib_dma_unmap_single(s->id->device, s->sge.addr, s->sge.length,
				    DMA_TO_DEVICE);
	if (!IS_ERR_OR_NULL(s->pool)) {
		ib_memreg_req_unmap(&s->req);
		ib_memreg_pool_destroy(s->pool);
	}
	if (!IS_ERR_OR_NULL(s->pd))
		ib_dealloc_pd(s->pd);
	rdma_destroy_id(s->id);
}

static int sample_exchange(struct sample *s)
{
	struct ib_send_wr send = {
		.opcode = IB_WR_SEND, .sg_list = &s->sge, .num_sge = 1,
	};
	int ret = ib_memreg_req_post(&s->req, s->id->qp, &send,
				     IB_MEMREG_REQ_REMOTE_INV);

	sample_step(s, ret);
	rdma_disconnect(s->id);
	ib_drain_rq(s->id->qp);	/* first: an answer that is taken posts */
	ib_drain_sq(s->id->qp);
	ib_memreg_pool_abort(s->pool, s->id->qp); /* now the text is ours */
	return ret ?: s->answered ? 0 : -ECONNABORTED;
}

static int sample_connect(struct sample *s, struct net *net)
{
	struct rdma_conn_param param = { .retry_count = 7 };
	struct ib_recv_wr recv = { .wr_cqe = &s->recv_cqe };
	struct sockaddr_storage addr;
	struct sockaddr *sa = (struct sockaddr *)&addr;

	s->recv_cqe.done = sample_recv_done;
	return inet_pton_with_scope(net, AF_UNSPEC, server, port, &addr) ?:
	       sample_step(s, rdma_resolve_addr(s->id, NULL, sa, 5000)) ?:
	       sample_create(s, s->id->device) ?:
	       sample_step(s, rdma_resolve_route(s->id, 5000)) ?:
	       ib_post_recv(s->id->qp, &recv, NULL) ?:
	       sample_step(s, rdma_connect(s->id, &param));
}

static int __init sample_init(void)
{
	struct sample *s = kzalloc(sizeof(*s), GFP_KERNEL);
	struct net *net = current->nsproxy->net_ns;
	int ret;

	if (!s)
		return -ENOMEM;
	s->status = -ECONNREFUSED;
	init_completion(&s->step);
	s->id = rdma_create_id(net, sample_event, s, RDMA_PS_TCP, IB_QPT_RC);
	ret = PTR_ERR_OR_ZERO(s->id) ?: sample_connect(s, net) ?:
	      sample_exchange(s);
	sample_destroy(s);
	if (!ret)
		strscpy(text, s->text);
	kfree(s);
	return ret;
}
module_init(sample_init);
static void __exit sample_exit(void) { }
module_exit(sample_exit);
MODULE_INFO(import_ns, "IB_MEMREG");
MODULE_DESCRIPTION("A client of ib_memreg's kernel API");
MODULE_LICENSE("GPL");
