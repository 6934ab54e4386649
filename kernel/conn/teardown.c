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
 * leave room for others, see user_work.c: a file with thousands of connections
 * that end at once is served along with the others, not before them. A guard
 * requests the end by a work_struct of the endpoint, on a workqueue for that
 * alone. Such an endpoint skips stages that only serve the peer, and goes
 * before others of its file.
 */
#include <linux/jiffies.h>

#include "cm.h"
#include "conn/teardown_queue.h"
#include "conn/teardown.h"
#include "conn/complete.h"
#include "conn/endpoint.h"
#include "conn/event.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/srq.h"
#include "core.h"
#include "device.h"
#include "mr/grants.h"
#include "mr/window.h"

/*
 * Longest wait for a QP to reach the error state after it has announced that.
 */
#define MEMREG_ERROR_WAIT		(HZ / 5)

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
static void memreg_teardown_abort_work(struct work_struct *work)
{
	struct memreg_endpoint *ep =
		container_of(work, struct memreg_endpoint, teardown.abort);

	WRITE_ONCE(ep->teardown.urgent, true);
	memreg_endpoint_close(ep);
}

static void memreg_teardown_timer(struct timer_list *timer)
{
	memreg_teardown_step(container_of(timer, struct memreg_endpoint,
					  teardown.timer));
}

/* Has the stage timed out, or is the end urgent? */
static bool memreg_teardown_hurries(const struct memreg_teardown *teardown)
{
	return READ_ONCE(teardown->urgent) ||
	       time_after_eq(jiffies, teardown->until);
}

/* Actions of stages */

/* Make an endpoint CLOSED, so that nothing brings the connection up. */
static void memreg_teardown_end(struct memreg_endpoint *ep)
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

/* Leave a shared queue, as the QP is destroyed. */
static void memreg_teardown_leave(struct memreg_endpoint *ep)
{
	struct memreg_queue *queue = ep->srq->queue;

	/* Report the receives that the endpoint has taken under its id. */
	memreg_ring_flush(queue->ring);
	/*
	 * No completion is left to look it up, and no other QP at its address
	 * has joined.
	 */
	spin_lock_irq(&queue->ring->lock);
	hlist_del_init(&ep->srq_node);
	queue->srq_users.count--;
	spin_unlock_irq(&queue->ring->lock);
	wake_up_all(&queue->wait);
}

/*
 * Destroy the QP, if there is one, so that no packet of the peer is accepted.
 */
static void memreg_teardown_destroy_qp(struct memreg_endpoint *ep)
{
	if (!ep->id->qp)
		return;
	memreg_cm_destroy_qp(ep->id);
	if (ep->srq)
		memreg_teardown_leave(ep);
}

/* Make the QP, if there is one, flush all posted work requests. */
static int memreg_teardown_flush(struct memreg_endpoint *ep)
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
static void memreg_teardown_abandon(struct memreg_endpoint *ep)
{
	struct memreg_queue *queues[] = { ep->send, ep->recv };
	unsigned int i;

	memreg_teardown_destroy_qp(ep);
	for (i = 0; i < ARRAY_SIZE(queues); i++) {
		if (!queues[i])
			continue;
		/*
		 * A QP that never reached a state in which it flushes was not
		 * drained.
		 */
		memreg_queue_flush_early(queues[i]);
		memreg_ring_flush(queues[i]->ring);
		memreg_queue_abandon(queues[i]);
	}
}

/* Cut the peer off from the QP, if there is one. */
static void memreg_teardown_disconnect(struct memreg_endpoint *ep)
{
	struct memreg_teardown *teardown = &ep->teardown;

	teardown->undone = rdma_disconnect(ep->id);
	if (ep->recv)
		memreg_queue_flush_early(ep->recv);
	teardown->until = jiffies + MEMREG_DRAIN;
	WRITE_ONCE(teardown->draining, true);
	/*
	 * The last completion either sees @draining, or is seen by this step.
	 */
	smp_mb();
	if (memreg_teardown_flush(ep))
		memreg_teardown_abandon(ep);
}

static bool memreg_teardown_drained(struct memreg_endpoint *ep)
{
	return (!ep->send || memreg_queue_is_idle(ep->send)) &&
	       (!ep->recv || memreg_queue_is_idle(ep->recv));
}

/* Has a failing QP reached the error state? rxe raises the event earlier. */
static bool memreg_teardown_qp_failed(struct memreg_endpoint *ep)
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
static void memreg_teardown_drop_id(struct memreg_endpoint *ep)
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

static enum memreg_stage memreg_stage_active(struct memreg_endpoint *ep)
{
	struct memreg_teardown *teardown = &ep->teardown;
	void (*go_on)(struct memreg_endpoint *ep) = READ_ONCE(teardown->go_on);

	if (!READ_ONCE(teardown->asked) && go_on)
		go_on(ep);
	if (!READ_ONCE(teardown->asked))
		return MEMREG_STAGE_ACTIVE;
	memreg_teardown_end(ep);
	if (READ_ONCE(ep->failing) && ep->id->qp) {
		teardown->until = jiffies + MEMREG_ERROR_WAIT;
		memreg_window_revoke_plain(ep->file, &ep->grants);
		return MEMREG_STAGE_ERROR;
	}
	memreg_teardown_disconnect(ep);
	memreg_window_revoke_plain(ep->file, &ep->grants);
	return MEMREG_STAGE_DRAIN;
}

/*
 * A QP that refuses a request sends the peer a NAK and moves to the error state
 * by itself. rxe raises its event before it does either. To move the QP first
 * would leave the peer with a flushed request and no reason.
 */
static enum memreg_stage memreg_stage_error(struct memreg_endpoint *ep)
{
	if (!memreg_teardown_hurries(&ep->teardown) &&
	    !memreg_teardown_qp_failed(ep)) {
		memreg_teardown_alarm(ep, jiffies + 1);
		return MEMREG_STAGE_ERROR;
	}
	ep->teardown.until = jiffies + MEMREG_REFUSE;
	return MEMREG_STAGE_REFUSE;
}

/*
 * A disconnect must not overtake the refusal: wait for the peer to disconnect.
 */
static enum memreg_stage memreg_stage_refuse(struct memreg_endpoint *ep)
{
	struct memreg_teardown *teardown = &ep->teardown;

	if (READ_ONCE(ep->refused) && !READ_ONCE(teardown->left) &&
	    !memreg_teardown_hurries(teardown)) {
		memreg_teardown_alarm(ep, teardown->until);
		return MEMREG_STAGE_REFUSE;
	}
	memreg_teardown_disconnect(ep);
	return MEMREG_STAGE_DRAIN;
}

/*
 * A device may fail to flush posted work requests: rxe's receiver is off for
 * good if memory was short when the QP got ready to receive.
 */
static enum memreg_stage memreg_stage_drain(struct memreg_endpoint *ep)
{
	struct memreg_teardown *teardown = &ep->teardown;

	if (!memreg_teardown_drained(ep)) {
		if (time_before(jiffies, teardown->until)) {
			memreg_teardown_alarm(ep, teardown->until);
			return MEMREG_STAGE_DRAIN;
		}
		/*
		 * The completion may be queued behind one that is being
		 * handled.
		 */
		if (ep->send)
			memreg_ring_flush(ep->send->ring);
		if (ep->recv)
			memreg_ring_flush(ep->recv->ring);
		if (!memreg_teardown_drained(ep))
			memreg_teardown_abandon(ep);
	}
	if (ep->send)
		memreg_queue_sync(ep->send);
	if (ep->recv)
		memreg_queue_sync(ep->recv);
	teardown->until = jiffies + MEMREG_LAST_WQE;
	return MEMREG_STAGE_DETACH;
}

/* Buffers that the QP took from a shared queue have completed, or are lost. */
static enum memreg_stage memreg_stage_detach(struct memreg_endpoint *ep)
{
	struct memreg_teardown *teardown = &ep->teardown;

	if (ep->srq && ep->id->qp && !READ_ONCE(teardown->last_wqe) &&
	    time_before(jiffies, teardown->until)) {
		memreg_teardown_alarm(ep, teardown->until);
		return MEMREG_STAGE_DETACH;
	}
	if (ep->srq)
		memreg_ring_flush(ep->srq->queue->ring);
	if (teardown->undone)
		memreg_teardown_destroy_qp(ep);
	memreg_teardown_drop_id(ep);
	memreg_window_revoke_granted(ep->file, &ep->grants);
	if (!READ_ONCE(teardown->quiet))
		memreg_event_post(ep, ep->outcome);
	complete_all(&teardown->over);
	return MEMREG_STAGE_OVER;
}

static enum memreg_stage memreg_stage_over(struct memreg_endpoint *ep)
{
	struct memreg_teardown *teardown = &ep->teardown;

	memreg_teardown_drop_id(ep);
	/* Pairs with memreg_teardown_finish(). */
	if (!smp_load_acquire(&teardown->parts))
		return MEMREG_STAGE_OVER;
	if (ep->id) {
		memreg_teardown_destroy_qp(ep);
		/* This rejects a request that was not answered. */
		rdma_destroy_id(ep->id);
		ep->id = NULL;
	}
	complete(&teardown->parted);
	return MEMREG_STAGE_DESTROYED;
}

static enum memreg_stage memreg_stage_destroyed(struct memreg_endpoint *ep)
{
	return MEMREG_STAGE_DESTROYED;
}

static enum memreg_stage (*const memreg_stages[])(struct memreg_endpoint *) = {
	[MEMREG_STAGE_ACTIVE] = memreg_stage_active,
	[MEMREG_STAGE_ERROR] = memreg_stage_error,
	[MEMREG_STAGE_REFUSE] = memreg_stage_refuse,
	[MEMREG_STAGE_DRAIN] = memreg_stage_drain,
	[MEMREG_STAGE_DETACH] = memreg_stage_detach,
	[MEMREG_STAGE_OVER] = memreg_stage_over,
	[MEMREG_STAGE_DESTROYED] = memreg_stage_destroyed,
};

static void memreg_teardown_work(struct work_struct *work)
{
	struct memreg_endpoint *ep =
		container_of(work, struct memreg_endpoint, teardown.work.work);
	struct memreg_teardown_queue *queue = &ep->file->teardowns;
	enum memreg_stage stage;

	do {
		stage = ep->teardown.stage;
		ep->teardown.stage = memreg_stages[stage](ep);
	} while (ep->teardown.stage != stage);
	memreg_teardown_queue_done(queue);
	memreg_user_work_end(&ep->teardown.work);
}

/* Interface to other files */

/**
 * memreg_teardown_begin() - Initialize the end of a connection
 * @ep: New endpoint
 */
void memreg_teardown_begin(struct memreg_endpoint *ep)
{
	struct memreg_teardown *teardown = &ep->teardown;

	INIT_LIST_HEAD(&teardown->node);
	memreg_user_work_init(&teardown->work, ep->file->user,
			      MEMREG_WORK_CLOSE, memreg_teardown_work);
	INIT_WORK(&teardown->abort, memreg_teardown_abort_work);
	timer_setup(&teardown->timer, memreg_teardown_timer, 0);
	init_completion(&teardown->over);
	init_completion(&teardown->parted);
	teardown->stage = MEMREG_STAGE_ACTIVE;
}

/**
 * memreg_teardown_await() - Wait until a connection has ended
 * @ep: Endpoint that the caller holds, and whose end is requested
 *
 * Context: may sleep, for at most the sum of the stages' limits.
 */
void memreg_teardown_await(struct memreg_endpoint *ep)
{
	wait_for_completion(&ep->teardown.over);
}

/**
 * memreg_teardown_finish() - End a connection, destroy the QP and the id, and
 * prevent later steps
 * @ep: Endpoint that is being destroyed; it may have no id
 *
 * Skips stages that only serve the peer, and posts no event.
 *
 * Context: may sleep.
 */
void memreg_teardown_finish(struct memreg_endpoint *ep)
{
	struct memreg_teardown_queue *queue = &ep->file->teardowns;
	struct memreg_teardown *teardown = &ep->teardown;

	WRITE_ONCE(teardown->quiet, true);
	WRITE_ONCE(teardown->urgent, true);
	if (ep->id) {
		/* No call that has begun uses the id any more. */
		smp_store_release(&teardown->parts, true);
		memreg_endpoint_close(ep);
		wait_for_completion(&teardown->parted);
	}
	spin_lock_irq(&queue->lock);
	teardown->shut = true;
	list_del_init(&teardown->node);
	spin_unlock_irq(&queue->lock);
	disable_work_sync(&teardown->abort);
	if (memreg_user_work_disable(&teardown->work))
		memreg_teardown_queue_done(queue);
	timer_shutdown_sync(&teardown->timer);
}
