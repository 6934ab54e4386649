// SPDX-License-Identifier: GPL-2.0-only
/*
 * The registration queue of a domain: an RC QP that is connected to itself and
 * carries only REG_MR and LOCAL_INV. Registration therefore depends on no peer,
 * and no peer can break it.
 *
 * Batches are posted to it in batch.c; what is here makes it, ends batches that
 * have completed, and makes it anew.
 *
 * Recovery
 *
 * One failed work request moves the QP to the error state, which flushes the
 * work requests behind it. The first bad completion marks the queue BROKEN, so
 * that no call posts any more. A worker then drains the QP, destroys it, ends
 * the batches that have no completion (because the driver took a post only in
 * part), and connects a new QP. The worker does not reset the old QP, as no
 * other user of ib_core resets RC QPs: those of irdma never work again, those
 * of bnxt_re repeat the completions of earlier work requests, and those of rxe
 * may be in the error state again at once. An FRWR whose work request failed or
 * was flushed gets the error as its status; its owner destroys it, as its state
 * is unknown (I4), and repeats the work with another FRWR. If no QP can be
 * created or connected (for example because the port has no usable GID), the
 * queue is DOWN, and its next user makes the worker try again.
 *
 * Only wr_cqe and status of a failed completion are reliable.
 */
#include <kunit/visibility.h>
#include <linux/cred.h>
#include <linux/etherdevice.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>

#include "inject.h"
#include "keys/domain.h"
#include "keys/frwr.h"
#include "keys/kill.h"
#include "keys/regq.h"
#include "keys/trace.h"
#include "stats.h"

/*
 * Connecting the QP to itself
 */

/*
 * Prefer the GID of a configured IP address: a default GID that is in use keeps
 * its slot of the GID table busy after a change of the MAC address.
 */
static bool memreg_gid_is_ip(const struct ib_gid_attr *attr)
{
	const struct in6_addr *addr = (const struct in6_addr *)attr->gid.raw;

	return attr->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP &&
	       !(ipv6_addr_type(addr) & IPV6_ADDR_LINKLOCAL);
}

/*
 * Find the GID of a port to connect by. The caller puts the returned attribute.
 */
static const struct ib_gid_attr *memreg_find_gid(struct ib_device *ibdev,
						 u32 port)
{
	const struct ib_gid_attr *attr, *any = NULL;
	u32 i;

	for (i = 0; i < ibdev->port_data[port].immutable.gid_tbl_len; i++) {
		attr = rdma_get_gid_attr(ibdev, port, i);
		if (IS_ERR(attr))
			continue;
		if (!rdma_protocol_roce(ibdev, port) ||
		    memreg_gid_is_ip(attr)) {
			if (any)
				rdma_put_gid_attr(any);
			return attr;
		}
		if (any)
			rdma_put_gid_attr(attr);
		else
			any = attr;
	}
	return any ?: ERR_PTR(-ENETDOWN);
}

/* Fill in an address vector from a port to the same port. */
static int memreg_loopback_av(struct ib_device *ibdev, u32 port,
			      const struct ib_gid_attr *gid,
			      struct rdma_ah_attr *ah)
{
	struct ib_port_attr attr;
	int ret;

	ah->type = rdma_ah_find_type(ibdev, port);
	rdma_ah_set_port_num(ah, port);
	rdma_ah_set_grh(ah, (union ib_gid *)&gid->gid, 0, gid->index, 1, 0);
	/*
	 * ib_modify_qp() resolves the MAC address for QPs of user space only.
	 */
	if (ah->type == RDMA_AH_ATTR_TYPE_ROCE)
		return rdma_read_gid_l2_fields(gid, NULL, ah->roce.dmac);

	ret = ib_query_port(ibdev, port, &attr);
	if (ret)
		return ret;
	rdma_ah_set_dlid(ah, attr.lid);
	return 0;
}

static int memreg_regq_to_init(struct memreg_domain *domain)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = domain->port,
	};

	return ib_modify_qp(domain->qp, &attr,
			    IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
			    IB_QP_ACCESS_FLAGS);
}

static int memreg_regq_try_rtr(struct memreg_domain *domain)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTR,
		.path_mtu = IB_MTU_256,
		.dest_qp_num = domain->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
	};
	const struct ib_gid_attr *gid;
	int ret;

	gid = memreg_find_gid(domain->mdev->ibdev, domain->port);
	if (IS_ERR(gid))
		return PTR_ERR(gid);
	ret = memreg_loopback_av(domain->mdev->ibdev, domain->port, gid,
				 &attr.ah_attr);
	if (!ret)
		ret = ib_modify_qp(domain->qp, &attr,
				   IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU |
				   IB_QP_DEST_QPN | IB_QP_RQ_PSN |
				   IB_QP_MAX_DEST_RD_ATOMIC |
				   IB_QP_MIN_RNR_TIMER);
	domain->gid = gid->gid;
	domain->gid_index = gid->index;
	rdma_put_gid_attr(gid);
	return ret;
}

/* How often connecting is retried with another GID if the GID is removed. */
#define MEMREG_GID_ATTEMPTS	8

/* Is the errno that of a GID which is being deleted? Then try another one. */
static bool memreg_gid_went(int err)
{
	return err == -ENODATA || err == -ENODEV;
}

static int memreg_regq_to_rtr(struct memreg_domain *domain)
{
	unsigned int attempt = 0;
	int ret;

	do {
		ret = memreg_regq_try_rtr(domain);
	} while (memreg_gid_went(ret) && ++attempt < MEMREG_GID_ATTEMPTS);
	return memreg_gid_went(ret) ? -ENETDOWN : ret;
}

static int memreg_regq_to_rts(struct memreg_domain *domain)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTS,
		/* The QP sends no packets, so none can be lost. */
		.timeout = 0,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	return ib_modify_qp(domain->qp, &attr,
			    IB_QP_STATE | IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
			    IB_QP_RNR_RETRY | IB_QP_SQ_PSN |
			    IB_QP_MAX_QP_RD_ATOMIC);
}

static int memreg_regq_connect(struct memreg_domain *domain)
{
	int ret;

	ret = memreg_inject(MEMREG_INJECT_QUEUE_CONNECT);
	if (!ret)
		ret = memreg_regq_to_init(domain);
	if (!ret)
		ret = memreg_regq_to_rtr(domain);
	if (!ret)
		ret = memreg_regq_to_rts(domain);
	switch (ret) {
	case 0:
	case -ENOMEM:
	case -ENETDOWN:
		return ret;
	case -ENODEV:
		/* The network device has gone in the meantime. */
		return -ENETDOWN;
	default:
		return -EIO;
	}
}

/*
 * Completions
 */

/* All work requests of a batch have ended. */
static void memreg_batch_end(struct memreg_batch *batch)
{
	struct memreg_domain *domain = batch->domain;

	lockdep_assert_held(&domain->sq_lock);

	list_del(&batch->node);
	batch->ended = true;
	trace_memreg_batch_end(batch);
	if (!batch->waiter) {
		memreg_kill_ended(batch);
		return;
	}
	if (batch->spoiled)
		memreg_kill_spoiled(batch);
	domain->sq_free += batch->count;
	/*
	 * A waiter enters the wait queue before it checks for room, under the
	 * lock.
	 */
	if (waitqueue_active(&domain->sq_wait))
		wake_up(&domain->sq_wait);
	/*
	 * The batch is on the waiter's stack; the waiter checks it under the
	 * lock.
	 */
	wake_up_process(batch->waiter);
}

/**
 * memreg_regq_done() - Completion handler for work requests of FRWRs
 * @cq: Completion queue of its domain
 * @wc: Completion of the last work request of a batch, or of one that failed
 */
void memreg_regq_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct memreg_frwr *frwr =
		container_of(wc->wr_cqe, struct memreg_frwr, fast.cqe);
	struct memreg_domain *domain = frwr->domain;
	struct memreg_batch *batch = frwr->batch;
	unsigned long flags;

	spin_lock_irqsave(&domain->sq_lock, flags);
	if (wc->status != IB_WC_SUCCESS) {
		WRITE_ONCE(frwr->fast.status, -EIO);
		batch->error = -EIO;
		trace_memreg_frwr_fail(frwr, wc->status);
		memreg_regq_break(domain);
	}
	if (frwr == batch->last && !memreg_inject(MEMREG_INJECT_COMPLETION))
		memreg_batch_end(batch);
	spin_unlock_irqrestore(&domain->sq_lock, flags);
}

static void memreg_regq_irq(struct irq_work *irq)
{
	struct memreg_domain *domain =
		container_of(irq, struct memreg_domain, irq);

	/* Interrupts are enabled between the rounds. */
	if (memreg_regq_poll_some(domain))
		irq_work_queue(irq);
}

/* Completion event. rxe calls this with the lock held that polling takes. */
static void memreg_regq_event(struct ib_cq *cq, void *context)
{
	struct memreg_domain *domain = context;

	irq_work_queue(&domain->irq);
}

/*
 * End a batch that gets no completion: how many of its work requests were
 * executed is unknown.
 */
static void memreg_batch_abandon(struct memreg_batch *batch)
{
	struct memreg_frwr *frwr;

	for (frwr = batch->first; frwr; frwr = memreg_batch_next(frwr))
		WRITE_ONCE(frwr->fast.status, -EIO);
	batch->error = -EIO;
	memreg_batch_end(batch);
}

/*
 * Recovery
 */

/*
 * Is the QP connected by the GID that would be chosen now? If the port has no
 * GID at all, the QP is left as it is: loopback needs no network.
 */
static bool memreg_gid_valid(struct memreg_domain *domain)
{
	const struct ib_gid_attr *gid;
	bool same;

	gid = memreg_find_gid(domain->mdev->ibdev, domain->port);
	if (IS_ERR(gid))
		return true;
	same = gid->index == domain->gid_index &&
	       !memcmp(&gid->gid, &domain->gid, sizeof(gid->gid));
	rdma_put_gid_attr(gid);
	return same;
}

/*
 * Does the queue need a rebuild? If so, no call posts until the worker is done.
 */
static bool memreg_regq_needs_rebuild(struct memreg_domain *domain)
{
	bool stale = !memreg_gid_valid(domain);
	bool ret;

	spin_lock_irq(&domain->sq_lock);
	if (stale && domain->state == MEMREG_REGQ_READY) {
		WRITE_ONCE(domain->state, MEMREG_REGQ_BROKEN);
		memreg_count(domain->mdev, IB_MEMREG_STAT_QUEUE_BREAKS, 1);
		trace_memreg_queue_broken(domain);
	}
	ret = domain->state != MEMREG_REGQ_READY;
	if (ret)
		domain->rebuilds_begun++;
	spin_unlock_irq(&domain->sq_lock);
	return ret;
}

/**
 * struct memreg_drain - The last work request of a QP that is drained
 * @cqe: Its completion
 * @done: It was flushed
 */
struct memreg_drain {
	struct ib_cqe cqe;
	struct completion done;
};

/* Interval of polling while the queue is drained, in case no event comes. */
#define MEMREG_DRAIN_POLL	(HZ / 10)

static void memreg_regq_drained(struct ib_cq *cq, struct ib_wc *wc)
{
	complete(&container_of(wc->wr_cqe, struct memreg_drain, cqe)->done);
}

/* Like ib_drain_sq(), but polls the completion queue itself. */
static void memreg_regq_drain(struct memreg_domain *domain)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct memreg_drain drain = { .cqe.done = memreg_regq_drained };
	struct ib_rdma_wr wr = {
		.wr.opcode = IB_WR_RDMA_WRITE,
		.wr.wr_cqe = &drain.cqe,
		.wr.send_flags = IB_SEND_SIGNALED,
	};

	init_completion(&drain.done);
	/*
	 * A device that has failed may refuse the post or the change of state.
	 */
	if (ib_modify_qp(domain->qp, &attr, IB_QP_STATE) ||
	    memreg_inject(MEMREG_INJECT_POST_SEND) ||
	    ib_post_send(domain->qp, &wr.wr, NULL))
		return;
	while (!wait_for_completion_timeout(&drain.done, MEMREG_DRAIN_POLL))
		memreg_regq_poll(domain);
}

/* Drivers return various errnos if they are out of a resource. */
static int memreg_regq_errno(int err)
{
	return err == -ENOMEM ? -ENOMEM : -ENOSPC;
}

/* Create the QP and connect it. On failure the domain has no QP. */
static int memreg_regq_begin(struct memreg_domain *domain)
{
	struct ib_qp_init_attr attr = {
		.send_cq = domain->cq,
		.recv_cq = domain->cq,
		.cap = {
			/* One extra slot for memreg_regq_drain(). */
			.max_send_wr = MEMREG_SQ_DEPTH +
				       MEMREG_SQ_RESERVE + 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
		.port_num = domain->port,
	};
	struct ib_qp *qp;
	int ret;

	ret = memreg_inject(MEMREG_INJECT_QUEUE_CREATE);
	qp = ret ? ERR_PTR(ret) : ib_create_qp(domain->pd, &attr);
	if (IS_ERR(qp))
		return memreg_regq_errno(PTR_ERR(qp));
	domain->qp = qp;
	domain->qpn = qp->qp_num;
	ret = memreg_regq_connect(domain);
	if (ret) {
		ib_destroy_qp(qp);
		domain->qp = NULL;
	}
	return ret;
}

/* End the oldest batch of a destroyed queue, if there is one. */
static bool memreg_regq_abandon_one(struct memreg_domain *domain)
{
	struct memreg_batch *batch;

	spin_lock_irq(&domain->sq_lock);
	batch = list_first_entry_or_null(&domain->inflight,
					 struct memreg_batch, node);
	if (batch)
		memreg_batch_abandon(batch);
	spin_unlock_irq(&domain->sq_lock);
	return batch;
}

/* Destroy the QP, and end all posted batches. No call posts any more. */
static void memreg_regq_end(struct memreg_domain *domain)
{
	if (!domain->qp)
		return;
	memreg_regq_drain(domain);
	/*
	 * Not every driver removes the completions of a destroyed QP from the
	 * CQ.
	 */
	memreg_regq_poll(domain);
	ib_destroy_qp(domain->qp);
	domain->qp = NULL;
	/*
	 * No completion comes from here on, and after this poll no other thread
	 * is still handling one.
	 */
	memreg_regq_poll(domain);
	while (memreg_regq_abandon_one(domain))
		cond_resched();
}

/* Count and trace the outcome of a rebuild. */
static void memreg_regq_note(struct memreg_domain *domain, int err)
{
	if (err) {
		memreg_count(domain->mdev,
			     IB_MEMREG_STAT_QUEUE_REBUILDS_FAILED, 1);
		trace_memreg_queue_down(domain);
	} else {
		memreg_count(domain->mdev, IB_MEMREG_STAT_QUEUE_REBUILDS, 1);
		trace_memreg_queue_rebuilt(domain);
	}
}

/* Make a new queue, as no call posts to the old one any more. */
static void memreg_regq_renew(struct memreg_domain *domain)
{
	const struct cred *cred;
	int ret;

	memreg_kill_give_up(domain);
	memreg_regq_end(domain);
	/*
	 * Security modules decide by the creator's credentials what a QP may
	 * do.
	 */
	cred = override_creds(domain->cred);
	ret = memreg_regq_begin(domain);
	revert_creds(cred);

	spin_lock_irq(&domain->sq_lock);
	WRITE_ONCE(domain->state,
		   ret ? MEMREG_REGQ_DOWN : MEMREG_REGQ_READY);
	domain->rebuilds_ended++;
	if (!ret)
		WRITE_ONCE(domain->rebuilt, domain->rebuilt + 1);
	memreg_regq_note(domain, ret);
	spin_unlock_irq(&domain->sq_lock);
	wake_up_all(&domain->sq_wait);
}

static void memreg_regq_rebuild(struct work_struct *work)
{
	struct memreg_domain *domain =
		container_of(work, struct memreg_domain, rebuild.work);

	if (memreg_regq_needs_rebuild(domain))
		memreg_regq_renew(domain);
	memreg_user_work_end(&domain->rebuild);
}

/*
 * Making and destroying
 */

/* A last event may still be on its way, and finds no CQ then. */
static void memreg_regq_destroy_cq(struct memreg_domain *domain)
{
	struct ib_cq *cq = domain->cq;

	spin_lock_irq(&domain->cq_lock);
	domain->cq = NULL;
	spin_unlock_irq(&domain->cq_lock);
	ib_destroy_cq(cq);
	irq_work_sync(&domain->irq);
}

/**
 * memreg_regq_create() - Create the queue of a domain
 * @domain: Domain with a PD
 *
 * Return: 0; -ENOMEM or -ENOSPC if no QP can be created; -ENETDOWN or -EIO if
 * the QP cannot be connected.
 */
int memreg_regq_create(struct memreg_domain *domain)
{
	struct ib_cq_init_attr attr = {
		.cqe = MEMREG_SQ_DEPTH + MEMREG_SQ_RESERVE + 2,
	};
	int ret;

	attr.comp_vector = raw_smp_processor_id() %
			   max(domain->mdev->ibdev->num_comp_vectors, 1);
	domain->cq = ib_create_cq(domain->mdev->ibdev, memreg_regq_event,
				  NULL, domain, &attr);
	if (IS_ERR(domain->cq))
		return memreg_regq_errno(PTR_ERR(domain->cq));
	/* Request the first event. */
	memreg_regq_poll(domain);
	ret = memreg_regq_begin(domain);
	if (ret)
		memreg_regq_destroy_cq(domain);
	return ret;
}

/**
 * memreg_regq_destroy() - Destroy the queue of a domain
 * @domain: Domain whose workers have ended
 */
void memreg_regq_destroy(struct memreg_domain *domain)
{
	/* Nothing is in flight: each caller waits for its batch. */
	WARN_ON(!list_empty(&domain->inflight));
	if (domain->qp)
		ib_destroy_qp(domain->qp);
	memreg_regq_destroy_cq(domain);
}

/**
 * memreg_regq_init() - Initialize a domain without a queue
 * @domain: New domain, whose file is set
 */
void memreg_regq_init(struct memreg_domain *domain)
{
	mutex_init(&domain->sq_mutex);
	spin_lock_init(&domain->sq_lock);
	spin_lock_init(&domain->cq_lock);
	init_irq_work(&domain->irq, memreg_regq_irq);
	domain->sq_free = MEMREG_SQ_DEPTH;
	INIT_LIST_HEAD(&domain->inflight);
	init_waitqueue_head(&domain->sq_wait);
	memreg_user_work_init(&domain->rebuild, domain->file->user,
			      MEMREG_WORK_REBUILD, memreg_regq_rebuild);
	timer_setup(&domain->stall, memreg_regq_stall_timer, 0);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_regq_init);

/**
 * memreg_regq_check() - Schedule a check of the GID that a queue is connected
 * by
 * @domain: The domain
 *
 * Context: any.
 */
void memreg_regq_check(struct memreg_domain *domain)
{
	memreg_user_work_queue(&domain->rebuild);
}

/**
 * memreg_regq_port() - Choose the port of a queue
 * @ibdev: The device
 * @wanted: The requested port, or 0
 *
 * Return: that port, or the first one that has an address, or the first one;
 * 0 if there is no such port.
 */
u32 memreg_regq_port(struct ib_device *ibdev, u32 wanted)
{
	const struct ib_gid_attr *gid;
	u32 port;

	if (wanted)
		return rdma_is_port_valid(ibdev, wanted) ? wanted : 0;
	rdma_for_each_port(ibdev, port) {
		gid = memreg_find_gid(ibdev, port);
		if (!IS_ERR(gid)) {
			rdma_put_gid_attr(gid);
			return port;
		}
	}
	return rdma_start_port(ibdev);
}
