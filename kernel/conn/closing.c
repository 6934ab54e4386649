// SPDX-License-Identifier: GPL-2.0-only
/*
 * The end of a connection, in stages.
 *
 * Handlers, events of the QP, completions, guards and calls all request the end
 * by memreg_endpoint_close(), in any context. A step of the endpoint then runs
 * in a worker: it goes through the stages below as far as possible without
 * waiting, and returns. A stage that has to wait depends on a completion, an
 * event or the timer, which schedules the next step. So no step waits for a
 * peer, and a peer that prolongs each stage occupies no worker.
 *
 *	STANDS	The connection is being made, or is up. The steps of
 *		ENDPOINT_CONNECT, and its time limit, run here as well, as
 *		handlers must not take long: the handlers of all users share
 *		the RDMA CM's workers.
 *	SETTLE	The QP is moving to the error state by itself, and must send
 *		the peer the reason before another step ends the connection.
 *	REFUSE	The peer gets time to see that one of its requests was refused.
 *	DRAIN	The QP is in the error state, and flushes all posted work
 *		requests.
 *	DETACH	The QP stops taking buffers from a shared receive queue.
 *	OVER	Windows are revoked, and the event is posted to the user.
 *	PARTED	The QP and the id are destroyed, as the endpoint is to be. A
 *		worker does that, as handlers of the id may be waiting, and
 *		with them those of all users.
 *
 * The endpoint is CLOSED, and keys of its windows of type 1 are dead, before
 * SETTLE. A window of type 2B may have its REG_MR on the send queue, so its key
 * is destroyed after DRAIN.
 *
 * Which user can delay another
 *
 * A step may still sleep on locks that the device, or calls of the same file,
 * hold. So a file runs only a few steps at a time, and a user only as many as
 * leave room for others, see turns.c: a file with thousands of connections that
 * end at once is served along with the others, not before them. A guard
 * requests the end by a work_struct of the endpoint, on a workqueue for that
 * alone. Such an endpoint skips stages that only serve the peer, and goes
 * before others of its file.
 */
#include <linux/jiffies.h>

#include "cm.h"
#include "conn/closer.h"
#include "conn/closing.h"
#include "conn/complete.h"
#include "conn/endpoint.h"
#include "conn/event.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/srq.h"
#include "core.h"
#include "device.h"
#include "mem/window.h"

/*
 * Longest wait for a QP to reach the error state after it has announced that.
 */
#define MEMREG_SETTLE		(HZ / 5)

/* Longest wait for a peer to see that a request of it was refused. */
#define MEMREG_REFUSE		HZ

/* Longest wait for a device to flush work requests. */
#define MEMREG_DRAIN		(10 * HZ)

/* Longest wait for the QP's event that it takes no more buffers. */
#define MEMREG_LAST_WQE		(10 * HZ)

/*
 * Steps
 */

/* End a connection because a BIND on its send queue must not make its key. */
static void memreg_closing_cut(struct work_struct *work)
{
	struct memreg_endpoint *ep =
		container_of(work, struct memreg_endpoint, closing.cut);

	WRITE_ONCE(ep->closing.urgent, true);
	memreg_endpoint_close(ep);
}

static void memreg_closing_timer(struct timer_list *timer)
{
	memreg_closing_step(container_of(timer, struct memreg_endpoint,
					 closing.timer));
}

/* Has the stage timed out, or is the end urgent? */
static bool memreg_closing_hurries(const struct memreg_closing *closing)
{
	return READ_ONCE(closing->urgent) ||
	       time_after_eq(jiffies, closing->until);
}

/* Actions of stages */

/* Make an endpoint CLOSED, so that nothing brings the connection up. */
static void memreg_closing_end(struct memreg_endpoint *ep)
{
	mutex_lock(&ep->setup);
	rdma_lock_handler(ep->id);
	memreg_endpoint_set_closed(ep);
	rdma_unlock_handler(ep->id);
	if (ep->send)
		memreg_queue_close(ep->send);
	if (ep->recv)
		memreg_queue_close(ep->recv);
	mutex_unlock(&ep->setup);
}

/*
 * Destroy the QP, if there is one, so that no packet of the peer is accepted.
 */
static void memreg_closing_destroy_qp(struct memreg_endpoint *ep)
{
	if (!ep->id->qp)
		return;
	memreg_cm_destroy_qp(ep->id);
	if (ep->srq)
		memreg_queue_leave(ep->srq->queue, ep);
}

/* Make the QP, if there is one, flush all posted work requests. */
static int memreg_closing_flush(struct memreg_endpoint *ep)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	int ret;

	if (!ep->id->qp)
		return 0;
	ret = ib_modify_qp(ep->id->qp, &attr, IB_QP_STATE);
	if (!ret && ep->send)
		ret = memreg_queue_mark(ep->send, ep->id->qp);
	return ret;
}

/* The device has not flushed the work requests: give up, and destroy the QP. */
static void memreg_closing_abandon(struct memreg_endpoint *ep)
{
	memreg_closing_destroy_qp(ep);
	if (ep->send)
		memreg_queue_abandon(ep->send);
	if (ep->recv)
		memreg_queue_abandon(ep->recv);
}

/* Cut the peer off from the QP, if there is one. */
static void memreg_closing_disconnect(struct memreg_endpoint *ep)
{
	struct memreg_closing *closing = &ep->closing;

	closing->undone = rdma_disconnect(ep->id);
	if (ep->recv)
		memreg_queue_flush_early(ep->recv);
	closing->until = jiffies + MEMREG_DRAIN;
	WRITE_ONCE(closing->draining, true);
	/*
	 * The last completion either sees @draining, or is seen by this step.
	 */
	smp_mb();
	if (memreg_closing_flush(ep))
		memreg_closing_abandon(ep);
}

static bool memreg_closing_drained(struct memreg_endpoint *ep)
{
	return (!ep->send || memreg_queue_is_idle(ep->send)) &&
	       (!ep->recv || memreg_queue_is_idle(ep->recv));
}

/* Has a failing QP reached the error state? rxe raises the event earlier. */
static bool memreg_closing_settled(struct memreg_endpoint *ep)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	return ib_query_qp(ep->id->qp, &attr, IB_QP_STATE, &init) ||
	       attr.qp_state == IB_QPS_ERR;
}

/*
 * The address may resolve to another device. The removal of that device waits
 * for all its ids, and only their handlers learn of the removal, so destroy the
 * id now. The address may also be resolved at any time after the end.
 */
static void memreg_closing_drop_foreign(struct memreg_endpoint *ep)
{
	if (!ep->id || !ep->id->device ||
	    ep->id->device == ep->file->mdev->ibdev)
		return;
	/*
	 * Wait for an ENDPOINT_CONNECT that is using the id; no other can
	 * begin.
	 */
	wait_for_completion(&ep->begun);
	rdma_destroy_id(ep->id);
	ep->id = NULL;
}

/*
 * Stages: each function returns the next one, or the same to wait
 */

static enum memreg_stage memreg_stage_stands(struct memreg_endpoint *ep)
{
	struct memreg_closing *closing = &ep->closing;

	if (!READ_ONCE(closing->asked) && closing->go_on)
		closing->go_on(ep);
	if (!READ_ONCE(closing->asked))
		return MEMREG_STAGE_STANDS;
	memreg_closing_end(ep);
	if (READ_ONCE(ep->failing) && ep->id->qp) {
		closing->until = jiffies + MEMREG_SETTLE;
		memreg_window_revoke_plain(ep->file, &ep->grants);
		return MEMREG_STAGE_SETTLE;
	}
	memreg_closing_disconnect(ep);
	memreg_window_revoke_plain(ep->file, &ep->grants);
	return MEMREG_STAGE_DRAIN;
}

/*
 * A QP that refuses a request sends the peer a NAK and moves to the error state
 * by itself. rxe raises its event before it does either. To move the QP first
 * would leave the peer with a flushed request and no reason.
 */
static enum memreg_stage memreg_stage_settle(struct memreg_endpoint *ep)
{
	if (!memreg_closing_hurries(&ep->closing) &&
	    !memreg_closing_settled(ep)) {
		memreg_closing_alarm(ep, jiffies + 1);
		return MEMREG_STAGE_SETTLE;
	}
	ep->closing.until = jiffies + MEMREG_REFUSE;
	return MEMREG_STAGE_REFUSE;
}

/*
 * A disconnect must not overtake the refusal: wait for the peer to disconnect.
 */
static enum memreg_stage memreg_stage_refuse(struct memreg_endpoint *ep)
{
	struct memreg_closing *closing = &ep->closing;

	if (READ_ONCE(ep->refused) && !READ_ONCE(closing->left) &&
	    !memreg_closing_hurries(closing)) {
		memreg_closing_alarm(ep, closing->until);
		return MEMREG_STAGE_REFUSE;
	}
	memreg_closing_disconnect(ep);
	return MEMREG_STAGE_DRAIN;
}

/*
 * A device may fail to flush posted work requests: rxe's receiver is off for
 * good if memory was short when the QP got ready to receive.
 */
static enum memreg_stage memreg_stage_drain(struct memreg_endpoint *ep)
{
	struct memreg_closing *closing = &ep->closing;

	if (!memreg_closing_drained(ep)) {
		if (time_before(jiffies, closing->until)) {
			memreg_closing_alarm(ep, closing->until);
			return MEMREG_STAGE_DRAIN;
		}
		/*
		 * The completion may be queued behind one that is being
		 * settled.
		 */
		if (ep->send)
			memreg_ring_flush(ep->send->ring);
		if (ep->recv)
			memreg_ring_flush(ep->recv->ring);
		if (!memreg_closing_drained(ep))
			memreg_closing_abandon(ep);
	}
	if (ep->send)
		memreg_queue_sync(ep->send);
	if (ep->recv)
		memreg_queue_sync(ep->recv);
	closing->until = jiffies + MEMREG_LAST_WQE;
	return MEMREG_STAGE_DETACH;
}

/* Buffers that the QP took from a shared queue have completed, or are lost. */
static enum memreg_stage memreg_stage_detach(struct memreg_endpoint *ep)
{
	struct memreg_closing *closing = &ep->closing;

	if (ep->srq && ep->id->qp && !READ_ONCE(closing->last_wqe) &&
	    time_before(jiffies, closing->until)) {
		memreg_closing_alarm(ep, closing->until);
		return MEMREG_STAGE_DETACH;
	}
	if (ep->srq)
		memreg_ring_flush(ep->srq->queue->ring);
	if (closing->undone)
		memreg_closing_destroy_qp(ep);
	memreg_closing_drop_foreign(ep);
	memreg_window_revoke_granted(ep->file, &ep->grants);
	if (!READ_ONCE(closing->quiet))
		memreg_event_post(ep, ep->outcome);
	complete_all(&closing->over);
	return MEMREG_STAGE_OVER;
}

static enum memreg_stage memreg_stage_over(struct memreg_endpoint *ep)
{
	struct memreg_closing *closing = &ep->closing;

	memreg_closing_drop_foreign(ep);
	/* Pairs with memreg_closing_finish(). */
	if (!smp_load_acquire(&closing->parts))
		return MEMREG_STAGE_OVER;
	if (ep->id) {
		memreg_closing_destroy_qp(ep);
		/* This rejects a request that was not answered. */
		rdma_destroy_id(ep->id);
		ep->id = NULL;
	}
	complete(&closing->parted);
	return MEMREG_STAGE_PARTED;
}

static enum memreg_stage memreg_stage_parted(struct memreg_endpoint *ep)
{
	return MEMREG_STAGE_PARTED;
}

static enum memreg_stage (*const memreg_stages[])(struct memreg_endpoint *) = {
	[MEMREG_STAGE_STANDS] = memreg_stage_stands,
	[MEMREG_STAGE_SETTLE] = memreg_stage_settle,
	[MEMREG_STAGE_REFUSE] = memreg_stage_refuse,
	[MEMREG_STAGE_DRAIN] = memreg_stage_drain,
	[MEMREG_STAGE_DETACH] = memreg_stage_detach,
	[MEMREG_STAGE_OVER] = memreg_stage_over,
	[MEMREG_STAGE_PARTED] = memreg_stage_parted,
};

static void memreg_closing_work(struct work_struct *work)
{
	struct memreg_endpoint *ep =
		container_of(work, struct memreg_endpoint, closing.turn.work);
	struct memreg_closer *closer = &ep->file->closer;
	enum memreg_stage stage;

	do {
		stage = ep->closing.stage;
		ep->closing.stage = memreg_stages[stage](ep);
	} while (ep->closing.stage != stage);
	memreg_closer_done(closer);
	memreg_turn_end(&ep->closing.turn);
}

/* Interface to other files */

/**
 * memreg_closing_begin() - Initialize the end of a connection
 * @ep: New endpoint
 */
void memreg_closing_begin(struct memreg_endpoint *ep)
{
	struct memreg_closing *closing = &ep->closing;

	INIT_LIST_HEAD(&closing->node);
	memreg_turn_init(&closing->turn, ep->file->user, MEMREG_TURNS_CLOSE,
			 memreg_closing_work);
	INIT_WORK(&closing->cut, memreg_closing_cut);
	timer_setup(&closing->timer, memreg_closing_timer, 0);
	init_completion(&closing->over);
	init_completion(&closing->parted);
	closing->stage = MEMREG_STAGE_STANDS;
}

/**
 * memreg_closing_await() - Wait until a connection has ended
 * @ep: Endpoint that the caller holds, and whose end is requested
 *
 * Context: may sleep, for at most the sum of the stages' limits.
 */
void memreg_closing_await(struct memreg_endpoint *ep)
{
	wait_for_completion(&ep->closing.over);
}

/**
 * memreg_closing_finish() - End a connection, destroy the QP and the id, and
 * prevent later steps
 * @ep: Endpoint that is being destroyed; it may have no id
 *
 * Skips stages that only serve the peer, and posts no event.
 *
 * Context: may sleep.
 */
void memreg_closing_finish(struct memreg_endpoint *ep)
{
	struct memreg_closer *closer = &ep->file->closer;
	struct memreg_closing *closing = &ep->closing;

	WRITE_ONCE(closing->quiet, true);
	WRITE_ONCE(closing->urgent, true);
	if (ep->id) {
		/* No call that has begun uses the id any more. */
		smp_store_release(&closing->parts, true);
		memreg_endpoint_close(ep);
		wait_for_completion(&closing->parted);
	}
	spin_lock_irq(&closer->lock);
	closing->shut = true;
	list_del_init(&closing->node);
	spin_unlock_irq(&closer->lock);
	disable_work_sync(&closing->cut);
	if (memreg_turn_disable(&closing->turn))
		memreg_closer_done(closer);
	timer_shutdown_sync(&closing->timer);
}
