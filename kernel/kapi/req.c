// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests of other kernel modules: memory registered for one I/O of a peer.
 *
 * Normal operation
 *
 * A request is mapped to as many MRs as it needs. Their REG_MRs go to the send
 * queue together with the caller's SEND, unsignalled: the queue executes in
 * order, and a work request that fails or is flushed has a completion,
 * signalled or not. When the answer has come, the keys that the peer has not
 * invalidated are killed by LOCAL_INVs, of which the last one is signalled: it
 * succeeds only if all before it have, the SEND included. Then the memory is
 * unmapped, and the MRs are idle again.
 *
 * What has to happen before a request is done is counted in @pending: the end
 * that the caller makes of it, the completion of a SEND that is signalled, that
 * of the last LOCAL_INV.
 *
 * Work requests of the caller's own
 *
 * ib_memreg_req_post_wrs() puts REG_MRs in front of work requests whose
 * completions are the caller's. If a LOCAL_INV is posted, its completion shows
 * that they have completed. If the peer has invalidated all keys, none is: the
 * REG_MRs have been executed then, since the key worked, but nothing shows that
 * the device has done with them.
 *
 * - When the queue is flushed, some drivers report all work requests that no
 *   signalled one behind them has completed, executed or not. By then the
 *   request may be gone, and the MR another's. So these REG_MRs have a
 *   completion of their own that nothing follows from. If one fails, the
 *   LOCAL_INV is flushed, or the request is aborted.
 * - The device may send the message again, for which it may repeat the REG_MRs
 *   before it (MEMREG_QUIRK_REPEATS_REG_MR), of MRs that it has pointers to.
 *   There a LOCAL_INV is posted in any case, as that waits for all before it.
 *
 * A post and an answer
 *
 * An answer can arrive before the post returns, and a peer can send one without
 * a request, while the driver still reads the work requests. So the post holds
 * a lock in the request, and every handler takes it: an answer waits until the
 * post has returned, and counts only if all work requests were posted. One
 * answer counts; the caller that handles it has the request to itself from
 * there on.
 *
 * Lists of posted requests
 *
 * A request is on a list of the CPU that posted it, from the begin of the post
 * until it is done, so that all requests of a QP can be aborted. The lock of
 * that list also decides, once and for all, whether a request is done: whoever
 * waits for it is either on its list of waiters when that is taken away, or
 * sees that it is IDLE. Waiters are on the stacks of those who wait, so nothing
 * of a request is read after done(), which may free it or post it again.
 *
 * done() is called in a read-side critical section of RCU that begins before
 * the request leaves the list: ib_memreg_pool_abort(), which cannot find these
 * requests any more, waits for a grace period.
 *
 * Lock order: list of a CPU, request.
 *
 * Failure
 *
 * If any work request of a request fails or is flushed, the state of its MRs is
 * unknown (I4). A worker destroys them, unmaps the memory, and calls done(). It
 * needs no queue. To have others take their place is left to the pool's worker,
 * since that takes memory, and this may be what memory is waiting for. The same
 * is done to MRs whose keys are dead though packets may be in flight (I1).
 *
 * If LOCAL_INVs can't be posted, no completion reports the end of the SEND and
 * of the LOCAL_INVs that were posted. The worker then first ends the
 * connection, by draining the send queue.
 *
 * Other work requests may still complete after that: only wr_cqe and status of
 * a bad completion mean anything, so the last LOCAL_INV has a completion of its
 * own, and cannot be taken for a REG_MR that was flushed.
 */
#include <linux/completion.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>

#include "inject.h"
#include "kapi/kapi.h"
#include "kapi/trace.h"
#include "keys/fastmr.h"

static void memreg_req_work(struct work_struct *work);

/*
 * Held by calls of done(). Not RCU: what a worker calls may look whether it may
 * sleep, as the end of a bio does in some file systems.
 */
DEFINE_STATIC_SRCU(memreg_req_srcu);

/* Flags of a request, besides enum ib_memreg_req_flags. */
#define MEMREG_REQ_LOCAL	BIT(8)	/* LOCAL_INV was used */
#define MEMREG_REQ_DRAIN	BIT(9)	/* The worker is to drain the queue */
#define MEMREG_REQ_OWN_WRS	BIT(10)	/* ib_memreg_req_post_wrs() */

/**
 * struct memreg_req_waiter - A thread that waits until a request is done
 * @next: Next one that waits for the same request, or NULL
 * @done: Completed after done()
 * @status: Argument of done()
 */
struct memreg_req_waiter {
	struct memreg_req_waiter *next;
	struct completion done;
	int status;
};

/**
 * ib_memreg_req_init() - Initialise a request
 * @req: The request, which is part of the caller's own
 * @pool: Pool that it takes MRs from
 * @reserve: Reserve that it takes MRs from if the pool has none, or NULL
 * @ops: Callbacks; must stay as long as the request is used
 *
 * The request may then be used any number of times. There is no counterpart
 * that frees it.
 *
 * Context: any.
 */
void ib_memreg_req_init(struct ib_memreg_req *req, struct ib_memreg_pool *pool,
			struct ib_memreg_reserve *reserve,
			const struct ib_memreg_req_ops *ops)
{
	memset(req, 0, sizeof(*req));
	req->pool = pool;
	req->reserve = reserve;
	req->ops = ops;
	spin_lock_init(&req->lock);
	INIT_WORK(&req->work, memreg_req_work);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_init, MEMREG_NS);

/*
 * The end
 */

/*
 * The request is the caller's again, and may be gone as soon as this returns.
 * Returns those who wait for it.
 */
static struct memreg_req_waiter *memreg_req_leave(struct ib_memreg_req *req)
{
	struct memreg_mrpool_cpu *cpu = per_cpu_ptr(req->pool->cpus, req->cpu);
	struct memreg_req_waiter *waiters;
	unsigned long irq;

	spin_lock_irqsave(&cpu->lock, irq);
	list_del(&req->node);
	waiters = req->waiters;
	req->waiters = NULL;
	/* An abort, or an answer that comes again, may be looking. */
	WRITE_ONCE(req->state, MEMREG_REQ_IDLE);
	spin_unlock_irqrestore(&cpu->lock, irq);
	return waiters;
}

static void memreg_req_wake(struct memreg_req_waiter *waiter, int status)
{
	struct memreg_req_waiter *next;

	for (; waiter; waiter = next) {
		/* Its stack may be gone when it is awake. */
		next = waiter->next;
		waiter->status = status;
		complete(&waiter->done);
	}
}

/* The caller owns the request again. It may be gone afterwards. */
static void memreg_req_call_done(struct ib_memreg_req *req)
{
	const struct ib_memreg_req_ops *ops = req->ops;
	struct memreg_req_waiter *waiters;
	int idx, status = req->status;

	/* See ib_memreg_pool_abort(). */
	idx = srcu_read_lock(&memreg_req_srcu);
	waiters = memreg_req_leave(req);
	if (ops->done)
		ops->done(req, status);
	memreg_req_wake(waiters, status);
	srcu_read_unlock(&memreg_req_srcu, idx);
}

/* Is an MR to be destroyed before its memory is unmapped? */
static bool memreg_mr_is_lost(const struct ib_memreg_mr *mr)
{
	return mr->req->unknown || mr->pool->weak & BIT(mr->state);
}

/* Is there such an MR? */
static bool memreg_req_is_lost(const struct ib_memreg_req *req)
{
	const struct ib_memreg_mr *mr;

	if (req->unknown)
		return true;
	if (likely(!req->pool->weak))
		return false;
	for (mr = req->first; mr; mr = mr->next)
		if (memreg_mr_is_lost(mr))
			return true;
	return false;
}

/* End a request some of whose MRs must be destroyed. */
static void memreg_req_reclaim(struct ib_memreg_req *req)
{
	struct ib_memreg_mr *mr, *next, **lost = &req->first;
	struct ib_memreg_mr *first;

	for (mr = req->first; mr; mr = mr->next)
		if (memreg_mr_is_lost(mr))
			memreg_fastmr_destroy(&mr->fast);
	for (mr = req->first; mr; mr = next) {
		next = mr->next;
		memreg_mr_unmap(mr);
		mr->state = MEMREG_MR_DEAD;
		if (mr->fast.mr) {
			memreg_mrpool_put_mr(mr);
		} else {
			*lost = mr;
			lost = &mr->next;
		}
	}
	*lost = NULL;
	first = req->first;
	req->first = NULL;
	req->last = NULL;
	req->nr_mrs = 0;
	memreg_mrpool_check_wanted(req->pool);
	memreg_req_call_done(req);

	for (mr = first; mr; mr = next) {
		next = mr->next;
		memreg_mrpool_replace_later(mr);
	}
}

static void memreg_req_queue(struct ib_memreg_req *req)
{
	memreg_mrpool_enter(req->pool);
	queue_work(memreg_req_wq, &req->work);
}

/* Count the keys that LOCAL_INV has killed. */
static void memreg_req_count_local(const struct ib_memreg_req *req)
{
	const struct ib_memreg_mr *mr;
	unsigned int n = 0;

	for (mr = req->first; mr; mr = mr->next)
		n += mr->state == MEMREG_MR_LOCAL;
	memreg_mrpool_count(req->pool, local_invalidated, n);
}

/* One of the things that a request waits for has happened. */
static void memreg_req_put(struct ib_memreg_req *req)
{
	if (!atomic_dec_and_test(&req->pending))
		return;
	if (req->flags & MEMREG_REQ_LOCAL && !req->unknown)
		memreg_req_count_local(req);
	if (memreg_req_is_lost(req)) {
		memreg_req_queue(req);
		return;
	}
	memreg_req_release(req);
	memreg_req_call_done(req);
}

static void memreg_req_work(struct work_struct *work)
{
	struct ib_memreg_req *req =
		container_of(work, struct ib_memreg_req, work);
	struct ib_memreg_pool *pool = req->pool;
	/* The request may be what writes back the memory that is waited for. */
	unsigned int noio = memalloc_noio_save();

	if (req->flags & MEMREG_REQ_DRAIN) {
		req->flags &= ~MEMREG_REQ_DRAIN;
		ib_drain_sq(req->qp);
		/* This work comes again, since the MRs are unknown. */
		memreg_req_put(req);
	} else {
		memreg_req_reclaim(req);
	}
	memreg_mrpool_leave(pool);
	memalloc_noio_restore(noio);
}

/* A work request failed, or was flushed. */
static void memreg_req_failed(struct ib_memreg_req *req,
			      const struct ib_wc *wc)
{
	WRITE_ONCE(req->status, -ECONNABORTED);
	WRITE_ONCE(req->unknown, true);
	trace_memreg_req_fail(req, wc);
	if (req->ops->error)
		req->ops->error(req, wc);
}

/**
 * memreg_mr_done() - A work request of an MR completed, but the last LOCAL_INV
 * @cq: Completion queue
 * @wc: Completion; success is ignored
 */
void memreg_mr_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ib_memreg_mr *mr =
		container_of(wc->wr_cqe, struct ib_memreg_mr, fast.cqe);

	if (wc->status != IB_WC_SUCCESS)
		memreg_req_failed(mr->req, wc);
}

/* The last LOCAL_INV completed, and all that was posted before it. */
static void memreg_mr_inv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ib_memreg_mr *mr =
		container_of(wc->wr_cqe, struct ib_memreg_mr, inv_cqe);
	struct ib_memreg_req *req = mr->req;

	if (wc->status != IB_WC_SUCCESS)
		memreg_req_failed(req, wc);
	memreg_req_put(req);
}

/* A SEND completed. On success the last LOCAL_INV reports it as well. */
static void memreg_req_send_check(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ib_memreg_req *req =
		container_of(wc->wr_cqe, struct ib_memreg_req, send_cqe);

	if (wc->status != IB_WC_SUCCESS)
		memreg_req_failed(req, wc);
}

/* A SEND completed that is counted in @pending. */
static void memreg_req_send_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ib_memreg_req *req =
		container_of(wc->wr_cqe, struct ib_memreg_req, send_cqe);

	memreg_req_send_check(cq, wc);
	memreg_req_put(req);
}

/*
 * Posting
 */

/* A REG_MR in front of the caller's work requests completed: see above. */
static void memreg_reg_done(struct ib_cq *cq, struct ib_wc *wc)
{
}

static struct ib_cqe memreg_reg_cqe = { .done = memreg_reg_done };

/* Chain the REG_MRs of a request in front of other work requests. */
static struct ib_send_wr *memreg_req_chain(struct ib_memreg_req *req,
					   struct ib_send_wr *chain)
{
	struct ib_memreg_mr *mr;

	for (mr = req->first; mr; mr = mr->next) {
		struct ib_send_wr *wr = &mr->fast.wr.wr;

		mr->state = MEMREG_MR_POSTED;
		wr->wr_cqe = req->flags & MEMREG_REQ_OWN_WRS ?
				     &memreg_reg_cqe : &mr->fast.cqe;
		wr->send_flags = 0;
		wr->next = mr->next ? &mr->next->fast.wr.wr : chain;
		trace_memreg_req_register(mr);
	}
	return req->first ? &req->first->fast.wr.wr : chain;
}

/* Begin to post a request; false if it is posted. */
static bool memreg_req_enter(struct ib_memreg_req *req, struct ib_qp *qp,
			     unsigned int flags)
{
	int i = raw_smp_processor_id();
	struct memreg_mrpool_cpu *cpu = per_cpu_ptr(req->pool->cpus, i);
	unsigned long irq;
	bool idle;

	spin_lock_irqsave(&cpu->lock, irq);
	idle = READ_ONCE(req->state) == MEMREG_REQ_IDLE;
	if (idle) {
		req->status = 0;
		req->unknown = false;
		req->flags = flags;
		req->qp = qp;
		WRITE_ONCE(req->cpu, i);
		/* Pairs with memreg_req_add_waiter(). */
		smp_store_release(&req->state, MEMREG_REQ_POSTING);
		list_add_tail(&req->node, &cpu->posted);
	}
	spin_unlock_irqrestore(&cpu->lock, irq);
	return idle;
}

/* Does the SEND of a request have to report its completion? */
static bool memreg_req_signals(const struct ib_memreg_req *req)
{
	/* Otherwise the last LOCAL_INV reports the SEND, too. */
	return !(req->flags & MEMREG_REQ_OWN_WRS) &&
	       (req->flags & IB_MEMREG_REQ_REMOTE_INV || !req->first);
}

/* Have the completion of a SEND be that of its request. */
static void memreg_req_arm_send(struct ib_memreg_req *req,
				struct ib_send_wr *send)
{
	bool signalled = memreg_req_signals(req);

	req->send_cqe.done = signalled ? memreg_req_send_done :
					 memreg_req_send_check;
	send->wr_cqe = &req->send_cqe;
	if (signalled)
		send->send_flags |= IB_SEND_SIGNALED;
	else
		send->send_flags &= ~IB_SEND_SIGNALED;
}

/*
 * Not all of a request could be posted. If nothing was, the caller still has to
 * take it off the list.
 */
static int memreg_req_post_failed(struct ib_memreg_req *req, int err,
				  bool nothing)
{
	struct ib_memreg_mr *mr;

	lockdep_assert_held(&req->lock);

	if (nothing) {
		for (mr = req->first; mr; mr = mr->next)
			mr->state = MEMREG_MR_DEAD;
		WRITE_ONCE(req->state, MEMREG_REQ_POSTING);
		return err == -ENOTCONN ? -EIO : err;
	}
	/* Of what counts, the SEND is the last, and was not posted. */
	atomic_set(&req->pending, 1);
	WRITE_ONCE(req->state, MEMREG_REQ_PARTIAL);
	return -ENOTCONN;
}

/*
 * Post the REG_MRs of a request, and @chain. If that fails, @bad becomes the
 * first work request of @chain that was not posted.
 */
static int memreg_req_do_post(struct ib_memreg_req *req,
			      struct ib_send_wr *chain,
			      const struct ib_send_wr **bad)
{
	const struct ib_memreg_mr *mr;
	struct ib_send_wr *first;
	unsigned long irq;
	int ret;

	spin_lock_irqsave(&req->lock, irq);
	WRITE_ONCE(req->state, MEMREG_REQ_POSTED);
	atomic_set(&req->pending, memreg_req_signals(req) ? 2 : 1);
	first = memreg_req_chain(req, chain);
	ret = memreg_inject_post_send(req->qp, first, bad);
	if (ret) {
		ret = memreg_req_post_failed(req, ret, *bad == first);
		for (mr = req->first; mr; mr = mr->next)
			if (*bad == &mr->fast.wr.wr)
				*bad = chain;
	}
	/* If that worked, the request may be gone as soon as it is unlocked. */
	spin_unlock_irqrestore(&req->lock, irq);
	if (ret && ret != -ENOTCONN)
		memreg_req_wake(memreg_req_leave(req), 0);
	return ret;
}

/**
 * ib_memreg_req_post() - Make the keys of a request, and send a message
 * @req: The request; it may be one that nothing is mapped to
 * @qp: Connected RC QP of the pool's device, with the room that
 *	ib_memreg_init_qp() makes; it stays until what was ended with it is
 *	done. Its completions are polled by the RDMA core, or by the caller
 *	(IB_POLL_DIRECT) in one thread at a time: see ib_memreg_req_end().
 * @send: The message, a single work request; its completion is the request's:
 *	@wr_cqe and IB_SEND_SIGNALED are set here
 * @flags: enum ib_memreg_req_flags
 *
 * The message covers all memory of the request, in both directions. The answer
 * may come, and end the request, before this returns: do not access the request
 * after a post that succeeded. The caller needs no lock.
 *
 * Context: any that ib_post_send() may be called in.
 * Return: 0: ib_memreg_req_ops.done() will be called once the caller has ended
 * or aborted the request. -ENOTCONN: the same, but only a part was posted, and
 * not the message: the caller must end the connection, drain the queue pair,
 * and abort the request; no answer counts. -EINVAL, also if @req is posted
 * already or being mapped, or another errno of the driver: nothing was posted,
 * and the request is as it was.
 */
int ib_memreg_req_post(struct ib_memreg_req *req, struct ib_qp *qp,
		       struct ib_send_wr *send, unsigned int flags)
{
	const struct ib_send_wr *bad = NULL;

	if (flags & ~IB_MEMREG_REQ_REMOTE_INV || send->next ||
	    !memreg_req_enter(req, qp, flags))
		return -EINVAL;
	memreg_req_arm_send(req, send);
	return memreg_req_do_post(req, send, &bad);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_post, MEMREG_NS);

/**
 * ib_memreg_req_post_wrs() - Make the keys of a request in front of work
 * requests of the caller's own
 * @req: The request
 * @qp: As of ib_memreg_req_post()
 * @chain: Work requests to post behind the REG_MRs, or NULL if @req has MRs.
 *	They are not changed, and their completions are the caller's, signalled
 *	or not.
 * @bad_wr: Becomes the first one of @chain that was not posted, if that fails;
 *	may be NULL
 * @flags: enum ib_memreg_req_flags
 *
 * For callers that put several messages in one post, have one of several
 * signalled, or send no message at all. If a REG_MR fails, the QP is in error,
 * and all behind it is flushed; ib_memreg_req_ops.error() is called for
 * LOCAL_INVs only. done() means that the keys are dead and that the memory is
 * unmapped. It says nothing of the completions of @chain:
 *
 * - Without IB_MEMREG_REQ_REMOTE_INV, if @req has MRs and @status is 0, @chain
 *   has completed, as LOCAL_INVs complete after all that was posted before.
 * - Otherwise the device may still read the buffers of @chain, to send a
 *   message again. The caller waits for a signalled completion of @chain, or of
 *   later work requests, before it uses those again.
 *
 * The room on the queue has to suffice for all requests whose work requests
 * were not seen to complete: if one message of N is signalled, add N to the
 * @depth of ib_memreg_init_qp(), and room for the caller's other work requests.
 *
 * Context: any that ib_post_send() may be called in.
 * Return: as of ib_memreg_req_post(), where -ENOTCONN means that any part was
 * posted, up to @bad_wr; -EINVAL also if there is nothing to post.
 */
int ib_memreg_req_post_wrs(struct ib_memreg_req *req, struct ib_qp *qp,
			   struct ib_send_wr *chain,
			   const struct ib_send_wr **bad_wr, unsigned int flags)
{
	const struct ib_send_wr *bad = chain;
	int ret = -EINVAL;

	if (!(flags & ~IB_MEMREG_REQ_REMOTE_INV) && (chain || req->first) &&
	    memreg_req_enter(req, qp, flags | MEMREG_REQ_OWN_WRS))
		ret = memreg_req_do_post(req, chain, &bad);
	if (ret && bad_wr)
		*bad_wr = bad;
	return ret;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_post_wrs, MEMREG_NS);

/*
 * The answer
 */

/*
 * Mark the key that the peer has invalidated with its answer, if it is one that
 * it was granted (I5).
 */
static bool memreg_req_check_inv(struct ib_memreg_req *req,
				 const struct ib_wc *wc)
{
	struct ib_memreg_mr *mr;

	lockdep_assert_held(&req->lock);

	if (!(wc->wc_flags & IB_WC_WITH_INVALIDATE))
		return true;
	if (!(req->flags & IB_MEMREG_REQ_REMOTE_INV))
		return false;
	for (mr = req->first; mr; mr = mr->next) {
		if (mr->fast.mr->rkey != wc->ex.invalidate_rkey)
			continue;
		mr->state = MEMREG_MR_REMOTE;
		memreg_mrpool_count(req->pool, remote_invalidated, 1);
		trace_memreg_req_invalidate(mr);
		return true;
	}
	return false;
}

/**
 * ib_memreg_req_answered() - The answer to a request has come
 * @req: The request that the message names, in whatever state it is
 * @wc: Completion of the receive that took the message
 *
 * Checks that @req waits for an answer by the queue pair of @wc, and that a key
 * that the peer says it has invalidated (IB_WC_WITH_INVALIDATE) is one of @req
 * that it was to invalidate. It does not read the message.
 *
 * If all of that is so, no other answer is: a second one is refused, as is one
 * while the request is not posted, or still being posted. The caller
 * takes what it wants from the message, and calls ib_memreg_req_end(); or, if
 * something is wrong with the message, it ends the connection, and calls
 * ib_memreg_req_abort() when that is drained.
 *
 * Context: any that ib_post_send() may be called in.
 * Return: 0; -ECONNABORTED if @wc is of a receive that failed; -EPROTO if this
 * is no answer that @req waits for. Then nothing has changed, and the caller
 * must end the connection: a peer may have killed any other key of ours.
 */
int ib_memreg_req_answered(struct ib_memreg_req *req, const struct ib_wc *wc)
{
	unsigned long irq;
	int ret = -EPROTO;

	/* Nothing else of a failed completion means anything. */
	if (wc->status != IB_WC_SUCCESS)
		return -ECONNABORTED;
	spin_lock_irqsave(&req->lock, irq);
	if (READ_ONCE(req->state) == MEMREG_REQ_POSTED &&
	    wc->opcode & IB_WC_RECV && wc->qp == req->qp &&
	    memreg_req_check_inv(req, wc)) {
		WRITE_ONCE(req->state, MEMREG_REQ_ANSWERED);
		ret = 0;
	}
	spin_unlock_irqrestore(&req->lock, irq);
	if (ret && wc->wc_flags & IB_WC_WITH_INVALIDATE) {
		memreg_mrpool_count(req->pool, bogus, 1);
		trace_memreg_req_bogus(req, wc->ex.invalidate_rkey);
	}
	return ret;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_answered, MEMREG_NS);

/*
 * Ending
 */

/* Is a LOCAL_INV to be posted for an MR? */
static bool memreg_mr_needs_inv(const struct ib_memreg_mr *mr)
{
	/* See "Work requests of the caller's own" above. */
	return mr->state == MEMREG_MR_POSTED ||
	       (mr->state == MEMREG_MR_REMOTE && mr->pool->repeats_reg &&
		mr->req->flags & MEMREG_REQ_OWN_WRS);
}

/* Prepare LOCAL_INVs for the keys of a request that work. */
static struct ib_send_wr *memreg_req_chain_inv(struct ib_memreg_req *req)
{
	struct ib_send_wr *first = NULL, **link = &first;
	struct ib_memreg_mr *mr, *last = NULL;

	for (mr = req->first; mr; mr = mr->next) {
		if (!memreg_mr_needs_inv(mr))
			continue;
		mr->state = MEMREG_MR_LOCAL;
		memreg_fastmr_prepare_inv(&mr->fast);
		*link = &mr->fast.wr.wr;
		link = &mr->fast.wr.wr.next;
		last = mr;
		trace_memreg_req_invalidate(mr);
	}
	*link = NULL;
	if (last) {
		last->inv_cqe.done = memreg_mr_inv_done;
		last->fast.wr.wr.wr_cqe = &last->inv_cqe;
		last->fast.wr.wr.send_flags = IB_SEND_SIGNALED;
	}
	return first;
}

/* Have the keys of a request killed that work. */
static void memreg_req_invalidate(struct ib_memreg_req *req, struct ib_qp *qp)
{
	struct ib_send_wr *first = memreg_req_chain_inv(req);
	const struct ib_send_wr *bad;

	if (first) {
		req->flags |= MEMREG_REQ_LOCAL;
		atomic_inc(&req->pending);
		if (memreg_inject_post_send(qp, first, &bad)) {
			/* Not posted: the caller waits for the drain. */
			atomic_dec(&req->pending);
			WRITE_ONCE(req->status, -ECONNABORTED);
			WRITE_ONCE(req->unknown, true);
			req->flags |= MEMREG_REQ_DRAIN;
			memreg_req_queue(req);
			return;
		}
	}
	memreg_req_put(req);
}

/*
 * Move a posted request to the state ENDED. Returns false if it is not posted,
 * or has ended already. If it returns true, the request stays until the caller
 * has called memreg_req_kill().
 */
static bool memreg_req_begin_end(struct ib_memreg_req *req)
{
	enum memreg_req_state state;
	unsigned long irq;
	bool good;

	spin_lock_irqsave(&req->lock, irq);
	state = READ_ONCE(req->state);
	good = state == MEMREG_REQ_POSTED || state == MEMREG_REQ_PARTIAL ||
	       state == MEMREG_REQ_ANSWERED;
	if (good)
		WRITE_ONCE(req->state, MEMREG_REQ_ENDED);
	spin_unlock_irqrestore(&req->lock, irq);
	return good;
}

/* Kill the keys of an ending request that still work. */
static void memreg_req_kill(struct ib_memreg_req *req, struct ib_qp *qp)
{
	struct ib_memreg_mr *mr;

	if (qp) {
		memreg_req_invalidate(req, qp);
		return;
	}
	for (mr = req->first; mr; mr = mr->next)
		if (mr->state == MEMREG_MR_POSTED)
			WRITE_ONCE(req->unknown, true);
	memreg_req_put(req);
}

/**
 * ib_memreg_req_end() - End a request
 * @req: A request that is posted, after its answer has come, which
 *	ib_memreg_req_answered() has found good; not to be touched until done()
 *	is called, which may be before this returns
 * @qp: The queue pair that it was posted on; or NULL if that was drained, and
 *	is not to be used any more
 *
 * Keys that the peer did not invalidate are killed by LOCAL_INV. Without @qp,
 * and if that can't be posted, their MRs are destroyed in a worker; in the
 * latter case it also drains the send queue, which ends the connection. If the
 * CQ is one of IB_POLL_DIRECT the drain polls it: a caller that polls at the
 * same time may see completions in another order than that of the queue. This
 * takes a driver that refuses work requests for which there is room. Such a
 * caller polls until all that has been ended with a @qp is done.
 *
 * If the peer answers by other means than a message, such as by an RDMA WRITE
 * that the caller polls, ib_memreg_req_answered() is not needed.
 *
 * If several threads end or abort a request, one of them does. The request may
 * be neither freed nor posted again before the calls of all of them have
 * returned, and that of ib_memreg_req_answered(): a caller that has such threads
 * leaves this to the one that was there last. A thread that ends it for another
 * reason than its answer does so after the call that has posted it returned. An
 * answer that comes later is refused, and ends the connection. To wait until
 * the request is done, call ib_memreg_req_wait().
 *
 * Context: any that ib_post_send() may be called in. Never fails.
 * Return: true if this call has ended it; false if it was not posted, or if
 * another has ended it: then this does nothing.
 */
bool ib_memreg_req_end(struct ib_memreg_req *req, struct ib_qp *qp)
{
	if (!memreg_req_begin_end(req))
		return false;
	memreg_req_kill(req, qp);
	return true;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_end, MEMREG_NS);

/* End a request that is the caller's to end, with an error. */
static void memreg_req_do_abort(struct ib_memreg_req *req)
{
	WRITE_ONCE(req->status, -ECONNABORTED);
	memreg_req_kill(req, NULL);
}

/**
 * ib_memreg_req_abort() - End a request whose answer will not come
 * @req: A request that may be posted, answered or not
 *
 * The caller has ended the connection, and drained the queue pair. done() may
 * be called before this returns.
 *
 * Context: any that ib_post_send() may be called in. Never fails.
 * Return: true if this call has ended it; false if it was not posted, or if
 * another has ended it, so that done() follows anyway: then this does nothing.
 */
bool ib_memreg_req_abort(struct ib_memreg_req *req)
{
	if (!memreg_req_begin_end(req))
		return false;
	memreg_req_do_abort(req);
	return true;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_abort, MEMREG_NS);

/*
 * Waiting
 */

/**
 * ib_memreg_req_posted() - Is a request posted, and not done?
 * @req: The request
 *
 * Context: any.
 * Return: true from the begin of a post that succeeds, or that fails with
 * -ENOTCONN, until just before done() is called.
 */
bool ib_memreg_req_posted(const struct ib_memreg_req *req)
{
	return READ_ONCE(req->state) > MEMREG_REQ_MAPPING;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_posted, MEMREG_NS);

static void memreg_req_init_waiter(struct memreg_req_waiter *waiter)
{
	waiter->next = NULL;
	waiter->status = 0;
	init_completion(&waiter->done);
}

static void memreg_req_push_waiter(struct ib_memreg_req *req,
				   struct memreg_req_waiter *waiter)
{
	waiter->next = req->waiters;
	req->waiters = waiter;
}

/* Have a waiter woken when a request is done; false if it is not posted. */
static bool memreg_req_add_waiter(struct ib_memreg_req *req,
				  struct memreg_req_waiter *waiter)
{
	struct memreg_mrpool_cpu *cpu;
	bool posted, again;
	unsigned long irq;
	int i;

	do {
		i = READ_ONCE(req->cpu);
		cpu = per_cpu_ptr(req->pool->cpus, i);
		spin_lock_irqsave(&cpu->lock, irq);
		/*
		 * Pairs with memreg_req_enter(). done() may have posted the
		 * request again, on another CPU: then it is on the list of
		 * that, whose lock is the one to take.
		 */
		posted = smp_load_acquire(&req->state) > MEMREG_REQ_MAPPING;
		again = posted && READ_ONCE(req->cpu) != i;
		if (posted && !again)
			memreg_req_push_waiter(req, waiter);
		spin_unlock_irqrestore(&cpu->lock, irq);
	} while (again);
	return posted;
}

/**
 * ib_memreg_req_wait() - Wait until a request is done
 * @req: A request that may be posted; it must not be freed before this is
 *	called, but may be by done()
 *
 * Somebody must end or abort the request, before or while this waits. It ends
 * nothing itself.
 *
 * When this returns, the keys are dead, and the memory is unmapped. If it has
 * waited, done() has returned, too. If the request was not posted any more when
 * this was called, a call of done() may still be running on another CPU:
 * ib_memreg_pool_abort() waits for that as well.
 *
 * Context: may sleep; not in done(), and not where the completions of the
 * request's QP are handled.
 * Return: the status that done() got: 0 or -ECONNABORTED; 0 if @req was not
 * posted.
 */
int ib_memreg_req_wait(struct ib_memreg_req *req)
{
	struct memreg_req_waiter waiter;

	might_sleep();
	memreg_req_init_waiter(&waiter);
	if (memreg_req_add_waiter(req, &waiter))
		wait_for_completion(&waiter.done);
	return waiter.status;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_req_wait, MEMREG_NS);

/* Find a request of a QP that nobody has ended, and be the one to end it. */
static struct ib_memreg_req *memreg_cpu_claim(struct memreg_mrpool_cpu *cpu,
					      const struct ib_qp *qp)
{
	struct ib_memreg_req *req, *found = NULL;
	unsigned long irq;

	spin_lock_irqsave(&cpu->lock, irq);
	list_for_each_entry(req, &cpu->posted, node) {
		if (req->qp != qp || !memreg_req_begin_end(req))
			continue;
		/* The next search need not pass it. */
		list_move_tail(&req->node, &cpu->posted);
		found = req;
		break;
	}
	spin_unlock_irqrestore(&cpu->lock, irq);
	return found;
}

/* Wait for one request of a QP; false if there is none. */
static bool memreg_cpu_wait(struct memreg_mrpool_cpu *cpu,
			    const struct ib_qp *qp)
{
	struct memreg_req_waiter waiter;
	struct ib_memreg_req *req;
	bool found = false;

	memreg_req_init_waiter(&waiter);
	spin_lock_irq(&cpu->lock);
	list_for_each_entry(req, &cpu->posted, node) {
		if (req->qp != qp)
			continue;
		memreg_req_push_waiter(req, &waiter);
		found = true;
		break;
	}
	spin_unlock_irq(&cpu->lock);
	if (found)
		wait_for_completion(&waiter.done);
	return found;
}

/**
 * ib_memreg_pool_abort() - End all requests of a QP, and wait for that
 * @pool: The pool
 * @qp: A queue pair that the caller has drained, and that nobody posts to any
 *	more; only its address is used
 *
 * Aborts the requests that were posted on @qp, answered or not. When this
 * returns, done() has returned for each request that was ever posted on @qp,
 * whoever has ended it.
 *
 * Context: may sleep; not in done(). Never fails.
 */
void ib_memreg_pool_abort(struct ib_memreg_pool *pool, struct ib_qp *qp)
{
	struct memreg_mrpool_cpu *cpu;
	struct ib_memreg_req *req;
	int i;

	might_sleep();
	for_each_possible_cpu(i) {
		cpu = per_cpu_ptr(pool->cpus, i);
		while ((req = memreg_cpu_claim(cpu, qp)))
			memreg_req_do_abort(req);
	}
	for_each_possible_cpu(i) {
		cpu = per_cpu_ptr(pool->cpus, i);
		while (memreg_cpu_wait(cpu, qp))
			;
	}
	/* For calls of done() whose requests had left the lists already. */
	synchronize_srcu(&memreg_req_srcu);
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_pool_abort, MEMREG_NS);
