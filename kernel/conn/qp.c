// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queues of an endpoint, and its QP.
 */
#include <linux/llist.h>
#include <rdma/rdma_cm.h>

#include "cm.h"
#include "conn/teardown_queue.h"
#include "conn/endpoint.h"
#include "conn/qp.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/slot.h"
#include "conn/srq.h"
#include "core.h"
#include "inject.h"
#include "keys/domain.h"

/* Delay for a peer if no receive is posted: 0.64 ms, IB specification 9.7.5. */
#define MEMREG_RNR_TIMER	12

static int memreg_queues_check_flags(struct memreg_ucmd *ucmd,
				     const struct ib_memreg_queues *q)
{
	if (q->flags & ~IB_MEMREG_QUEUES_NO_INLINE_RECEIVE)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (q->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (q->max_inline > IB_MEMREG_INLINE_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_INLINE);
	if (q->max_inline && !q->send_ring_id)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_QUEUE_SEND);
	if (q->srq_id && q->recv_ring_id)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RING);
	return 0;
}

/*
 * A queue has all of ring, depth and SGEs set, or none of them: otherwise the
 * call fails for @reason.
 */
static int memreg_queues_check_size(struct memreg_ucmd *ucmd, u32 ring_id,
				    u32 depth, u32 max_sge, u32 reason)
{
	if (!ring_id != !depth || !ring_id != !max_sge)
		return memreg_fail(ucmd, -EINVAL, reason);
	if (depth > memreg_queue_depth(ucmd->mdev))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	if (max_sge > IB_MEMREG_SGE_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SGES);
	return 0;
}

/**
 * memreg_queues_check() - Check the parameters of queues
 * @ucmd: Call that creates the queues
 * @q: The parameters
 *
 * Return: 0, or an errno with the reason set.
 */
int memreg_queues_check(struct memreg_ucmd *ucmd,
			const struct ib_memreg_queues *q)
{
	int ret;

	ret = memreg_queues_check_flags(ucmd, q);
	if (!ret)
		ret = memreg_queues_check_size(ucmd, q->send_ring_id,
					       q->max_send, q->max_send_sge,
					       IB_MEMREG_REASON_QUEUE_SEND);
	if (!ret)
		ret = memreg_queues_check_size(ucmd, q->recv_ring_id,
					       q->max_recv, q->max_recv_sge,
					       IB_MEMREG_REASON_QUEUE_RECV);
	return ret;
}

static int memreg_queues_make_send(struct memreg_ucmd *ucmd,
				   struct memreg_endpoint *ep,
				   const struct ib_memreg_queues *q)
{
	struct memreg_kring *ring;

	if (!q->send_ring_id)
		return 0;
	ring = memreg_ring_get(ucmd, q->send_ring_id);
	if (IS_ERR(ring))
		return PTR_ERR(ring);
	if (!atomic_add_unless(&ring->senders, 1, ring->max_senders)) {
		memreg_ring_put(ring);
		return memreg_fail(ucmd, -EAGAIN, IB_MEMREG_REASON_RING_FULL);
	}
	ep->send = memreg_queue_alloc(ucmd->mdev, ring, ep, true, q->max_send,
				      q->max_send_sge, q->max_inline);
	if (ep->send)
		return 0;
	atomic_dec(&ring->senders);
	memreg_ring_put(ring);
	return -ENOMEM;
}

static int memreg_queues_make_recv(struct memreg_ucmd *ucmd,
				   struct memreg_endpoint *ep,
				   const struct ib_memreg_queues *q)
{
	struct memreg_kring *ring;
	u32 buffer = 0;

	if (!q->recv_ring_id)
		return 0;
	ring = memreg_ring_get(ucmd, q->recv_ring_id);
	if (IS_ERR(ring))
		return PTR_ERR(ring);
	if (!(q->flags & IB_MEMREG_QUEUES_NO_INLINE_RECEIVE))
		buffer = memreg_ring_data_size(ring);
	ep->recv = memreg_queue_alloc(ucmd->mdev, ring, ep, false, q->max_recv,
				      q->max_recv_sge, buffer);
	if (ep->recv)
		return 0;
	memreg_ring_put(ring);
	return -ENOMEM;
}

static int memreg_queues_take_srq(struct memreg_ucmd *ucmd,
				  struct memreg_endpoint *ep,
				  const struct memreg_domain *domain, u32 id)
{
	struct memreg_object *obj;
	struct memreg_srq *srq;

	if (!id)
		return 0;
	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_SRQ);
	if (!obj)
		return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	srq = container_of(obj, struct memreg_srq, obj);
	if (srq->domain != domain) {
		memreg_object_put(obj);
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_DOMAIN);
	}
	ep->srq = srq;
	return 0;
}

/**
 * memreg_queues_free() - Free the queues of an endpoint
 * @ep: Endpoint without posted work requests
 */
void memreg_queues_free(struct memreg_endpoint *ep)
{
	memreg_queue_free(ep->file->mdev, ep->send);
	memreg_queue_free(ep->file->mdev, ep->recv);
	if (ep->srq)
		memreg_object_put(&ep->srq->obj);
	ep->send = NULL;
	ep->recv = NULL;
	ep->srq = NULL;
}

/**
 * memreg_queues_make() - Make the queues of an endpoint
 * @ucmd: Call that creates the queues
 * @ep: The endpoint, which has no queues after a failure
 * @domain: Its domain
 * @q: Parameters that memreg_queues_check() has passed
 *
 * Return: 0, or an errno with the reason set.
 */
int memreg_queues_make(struct memreg_ucmd *ucmd, struct memreg_endpoint *ep,
		       const struct memreg_domain *domain,
		       const struct ib_memreg_queues *q)
{
	int ret;

	ret = memreg_queues_make_send(ucmd, ep, q);
	if (!ret)
		ret = memreg_queues_make_recv(ucmd, ep, q);
	if (!ret)
		ret = memreg_queues_take_srq(ucmd, ep, domain, q->srq_id);
	if (ret)
		memreg_queues_free(ep);
	return ret;
}

/* Post the receives that were submitted before the QP was made. */
static int memreg_queue_post_early(struct memreg_endpoint *ep)
{
	u32 lkey = ep->id->qp->pd->local_dma_lkey;
	struct ib_sge sges[MEMREG_FRAGMENTS];
	struct memreg_slot *slot, *next;
	struct llist_node *list;
	int ret = 0;

	lockdep_assert_held(&ep->recv->lock);

	list = llist_reverse_order(llist_del_all(&ep->recv->early));
	llist_for_each_entry_safe(slot, next, list, node) {
		struct ib_recv_wr wr = {
			.wr_cqe = &slot->cqe,
			.sg_list = sges,
		};

		wr.num_sge = memreg_slot_build_recv(slot, lkey, sges,
						    MEMREG_FRAGMENTS);
		if (!ret)
			ret = ib_post_recv(ep->id->qp, &wr, NULL);
		/*
		 * Receives that the QP does not take are flushed when the queue
		 * ends.
		 */
		if (ret)
			llist_add(&slot->node, &ep->recv->early);
	}
	return ret;
}

/**
 * memreg_queues_ready() - Allow posting to an endpoint's queues
 * @ep: Endpoint that has a QP
 *
 * Return: 0, or the errno of posting a receive that was submitted before the QP
 * was made.
 */
int memreg_queues_ready(struct memreg_endpoint *ep)
{
	int ret = 0;

	if (ep->send || ep->recv || ep->srq)
		rdma_set_min_rnr_timer(ep->id, MEMREG_RNR_TIMER);
	if (ep->send) {
		mutex_lock(&ep->send->lock);
		ep->send->ready = !ep->send->closed;
		mutex_unlock(&ep->send->lock);
	}
	if (ep->recv) {
		mutex_lock(&ep->recv->lock);
		ret = memreg_queue_post_early(ep);
		ep->recv->ready = !ep->recv->closed;
		mutex_unlock(&ep->recv->lock);
	}
	return ret;
}

/* Asynchronous events of the QP, in any context. */
static void memreg_endpoint_qp_event(struct ib_event *event, void *context)
{
	struct memreg_endpoint *ep = context;

	switch (event->event) {
	case IB_EVENT_COMM_EST:
		rdma_notify(ep->id, event->event);
		break;
	case IB_EVENT_QP_LAST_WQE_REACHED:
		/*
		 * The QP is in the error state, and no other event may follow.
		 */
		WRITE_ONCE(ep->teardown.last_wqe, true);
		memreg_endpoint_close(ep);
		break;
	case IB_EVENT_QP_REQ_ERR:
	case IB_EVENT_QP_ACCESS_ERR:
		WRITE_ONCE(ep->refused, true);
		fallthrough;
	case IB_EVENT_QP_FATAL:
		WRITE_ONCE(ep->failing, true);
		memreg_endpoint_close(ep);
		break;
	default:
		break;
	}
}

static int memreg_endpoint_try_qp(struct memreg_endpoint *ep,
				  struct memreg_domain *domain)
{
	/*
	 * A side of the QP without a queue is given the domain's CQ, but has no
	 * completions.
	 */
	struct ib_qp_init_attr attr = {
		.event_handler = memreg_endpoint_qp_event,
		.qp_context = ep,
		.send_cq = ep->send ? ep->send->ring->cq : domain->cq,
		.recv_cq = ep->recv ? ep->recv->ring->cq : domain->cq,
		.cap = {
			/* One extra slot for memreg_queue_mark(). */
			.max_send_wr = ep->send ? ep->send->depth + 1 : 1,
			.max_recv_wr = ep->recv ? ep->recv->depth : 1,
			.max_send_sge = ep->send ? ep->send->fragments : 1,
			.max_recv_sge = ep->recv ? ep->recv->fragments : 1,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};

	if (ep->srq) {
		attr.srq = ep->srq->queue->srq;
		attr.recv_cq = ep->srq->queue->ring->cq;
		attr.cap.max_recv_wr = 0;
		attr.cap.max_recv_sge = 0;
	}
	return memreg_inject(MEMREG_INJECT_CREATE_QP) ?:
	       rdma_create_qp(ep->id, domain->pd, &attr);
}

/*
 * Devices also limit the bytes of a queue, and return ENOMEM or EINVAL: mlx5
 * has no room for 30 SGEs in each of 8192 work requests.
 */
static bool memreg_queue_narrow(struct memreg_queue *queue, int err)
{
	if (!queue || queue->fragments <= queue->max_sge ||
	    (err != -ENOMEM && err != -EINVAL))
		return false;
	WRITE_ONCE(queue->fragments, max(queue->fragments / 2, queue->max_sge));
	return true;
}

/**
 * memreg_endpoint_create_qp() - Make an endpoint's QP
 * @ep: Endpoint with an RDMA CM id, which changes the states of the QP
 * @domain: Its domain
 *
 * Return: 0, -ENOMEM or -ENOSPC.
 */
int memreg_endpoint_create_qp(struct memreg_endpoint *ep,
			      struct memreg_domain *domain)
{
	int ret;

	do {
		ret = memreg_endpoint_try_qp(ep, domain);
	} while (ret && memreg_queue_narrow(ep->send, ret));
	/* Drivers return various errnos if a limit is reached. */
	if (ret)
		return ret == -ENOMEM ? ret : -ENOSPC;
	ret = ep->srq ? memreg_queue_join(ep->srq->queue, ep) : 0;
	if (ret)
		memreg_cm_destroy_qp(ep->id);
	return ret;
}
