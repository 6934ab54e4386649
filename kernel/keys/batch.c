// SPDX-License-Identifier: GPL-2.0-only
/*
 * Batches: work requests that are posted together to the registration queue of
 * a domain.
 *
 * memreg_batch_run() posts the work requests of a batch in one go, only the
 * last of them signalled, and waits until that one completes. An RC send queue
 * works in order, so the last one succeeds only if all have; a work request
 * that fails or is flushed has a completion of its own, signalled or not.
 *
 * Completions are polled in two places: in an irq_work that the device's
 * completion event schedules on the same CPU, as a driver may raise the event
 * with its own lock held; and by the task that waits for a batch, once before
 * it sleeps. Nothing else depends on that task being scheduled: the next
 * LOCAL_INVs are posted, and dead keys are counted, where completions are
 * polled (kernel/keys/kill.c).
 */
#include "inject.h"
#include "keys/domain.h"
#include "keys/frwr.h"
#include "keys/regq.h"
#include "keys/trace.h"
#include "stats.h"

/* How long a batch may take before the queue is considered stalled. */
#define MEMREG_BATCH_TIMEOUT	(10 * HZ)

/*
 * State of the queue
 */

/**
 * memreg_regq_break() - Mark a queue as broken
 * @domain: The domain
 *
 * The queue takes no more work until the worker has rebuilt it.
 *
 * Context: any, with sq_lock held.
 */
void memreg_regq_break(struct memreg_domain *domain)
{
	lockdep_assert_held(&domain->sq_lock);

	if (domain->state != MEMREG_REGQ_READY)
		return;
	WRITE_ONCE(domain->state, MEMREG_REGQ_BROKEN);
	memreg_count(domain->mdev, IB_MEMREG_STAT_QUEUE_BREAKS, 1);
	trace_memreg_queue_broken(domain);
	memreg_user_work_queue(&domain->rebuild);
}

/**
 * memreg_regq_kick() - Schedule a rebuild if the queue is DOWN
 * @domain: The domain
 *
 * Context: any, with sq_lock held.
 */
void memreg_regq_kick(struct memreg_domain *domain)
{
	lockdep_assert_held(&domain->sq_lock);

	if (domain->state == MEMREG_REGQ_DOWN)
		memreg_user_work_queue(&domain->rebuild);
}

/**
 * memreg_regq_stall() - Rebuild a queue if its oldest batch is stalled
 * @domain: The domain
 * @patience: Time that a batch may take, in jiffies
 *
 * A queue executes in order, so it works if its oldest batch is younger than
 * @patience.
 *
 * Context: any.
 */
void memreg_regq_stall(struct memreg_domain *domain, unsigned long patience)
{
	struct memreg_batch *batch;
	unsigned long flags;

	spin_lock_irqsave(&domain->sq_lock, flags);
	batch = list_first_entry_or_null(&domain->inflight,
					 struct memreg_batch, node);
	if (batch && time_after_eq(jiffies, batch->posted + patience))
		memreg_regq_break(domain);
	spin_unlock_irqrestore(&domain->sq_lock, flags);
}

/**
 * memreg_regq_stall_timer() - Check a queue for a stall
 * @timer: Timer of the domain
 */
void memreg_regq_stall_timer(struct timer_list *timer)
{
	struct memreg_domain *domain =
		container_of(timer, struct memreg_domain, stall);

	memreg_regq_stall(domain, MEMREG_REGQ_STUCK);
	if (!list_empty_careful(&domain->inflight))
		memreg_regq_stall_later(domain);
}

/**
 * memreg_regq_stall_later() - Check a queue for a stall later
 * @domain: Domain whose queue the caller does not wait for
 *
 * If the oldest batch makes no progress, the queue is rebuilt within three
 * seconds.
 *
 * Context: any.
 */
void memreg_regq_stall_later(struct memreg_domain *domain)
{
	if (!timer_pending(&domain->stall))
		mod_timer(&domain->stall, jiffies + HZ);
}

/* Completions per section with interrupts off; one can end 32 keys. */
#define MEMREG_POLL_BUDGET	8

/**
 * memreg_regq_poll_some() - Poll some completions
 * @domain: The domain
 *
 * Context: any.
 * Return: true if there may be more; otherwise the next completion raises an
 * event.
 */
bool memreg_regq_poll_some(struct memreg_domain *domain)
{
	unsigned int n = 0;
	unsigned long flags;
	struct ib_cq *cq;
	struct ib_wc wc;
	bool more;

	spin_lock_irqsave(&domain->cq_lock, flags);
	cq = domain->cq;
	while (cq && n < MEMREG_POLL_BUDGET && ib_poll_cq(cq, 1, &wc) > 0) {
		wc.wr_cqe->done(cq, &wc);
		n++;
	}
	more = cq && (n == MEMREG_POLL_BUDGET ||
		      ib_req_notify_cq(cq, IB_CQ_NEXT_COMP |
				       IB_CQ_REPORT_MISSED_EVENTS) > 0);
	spin_unlock_irqrestore(&domain->cq_lock, flags);
	return more;
}

/**
 * memreg_regq_poll() - Poll all completions, and request an event for the next
 * @domain: The domain
 *
 * Context: process.
 */
void memreg_regq_poll(struct memreg_domain *domain)
{
	while (memreg_regq_poll_some(domain))
		;
}

/*
 * Posting
 */

/**
 * memreg_batch_post_locked() - Post a batch
 * @batch: Batch for which there is room
 *
 * From here on the batch ends by a completion, or by the worker that rebuilds
 * the queue.
 *
 * Context: any, with sq_lock held.
 */
void memreg_batch_post_locked(struct memreg_batch *batch)
{
	struct memreg_domain *domain = batch->domain;
	const struct ib_send_wr *bad;

	lockdep_assert_held(&domain->sq_lock);

	list_add_tail(&batch->node, &domain->inflight);
	memreg_count(domain->mdev, IB_MEMREG_STAT_BATCHES, 1);
	memreg_count(domain->mdev, IB_MEMREG_STAT_WORK_REQUESTS, batch->count);
	trace_memreg_batch_post(batch);
	batch->last->fast.wr.wr.send_flags = IB_SEND_SIGNALED;
	batch->begun = true;
	batch->posted = jiffies;
	/*
	 * A post that the driver took in part may have no signalled work
	 * request.
	 */
	if (memreg_inject_post_send(domain->qp, &batch->first->fast.wr.wr,
				    &bad))
		memreg_regq_break(domain);
}

/* Post a batch if the queue is READY and has room. */
static int memreg_batch_try_post(struct memreg_batch *batch)
{
	struct memreg_domain *domain = batch->domain;

	lockdep_assert_held(&domain->sq_lock);

	if (batch->spoiled)
		return -ESTALE;
	if (domain->state != MEMREG_REGQ_READY)
		return -EIO;
	if (domain->sq_free < batch->count)
		return -EAGAIN;
	domain->sq_free -= batch->count;
	memreg_batch_post_locked(batch);
	return 0;
}

/* Number of rebuilds that have begun so far */
static unsigned long memreg_regq_rebuilds(struct memreg_domain *domain)
{
	unsigned long begun;

	spin_lock_irq(&domain->sq_lock);
	begun = domain->rebuilds_begun;
	spin_unlock_irq(&domain->sq_lock);
	return begun;
}

/*
 * Post a batch, or fail it for good; returns false if the caller has to wait.
 * Only a rebuild that began after the first @begun ones says that the queue
 * cannot be had now: what made an earlier one fail may have gone. There is one
 * worker, so a caller waits for two rebuilds at most.
 */
static bool memreg_batch_decided(struct memreg_batch *batch,
				 unsigned long begun, int *ret)
{
	struct memreg_domain *domain = batch->domain;

	spin_lock_irq(&domain->sq_lock);
	*ret = memreg_batch_try_post(batch);
	if (*ret != -ESTALE && domain->state == MEMREG_REGQ_DOWN) {
		if (domain->rebuilds_ended > begun)
			*ret = -ENETDOWN;
		else
			memreg_regq_kick(domain);
	}
	spin_unlock_irq(&domain->sq_lock);
	return !*ret || *ret == -ENETDOWN || *ret == -ESTALE;
}

/*
 * Post a batch as soon as there is room. Returns -EINTR if the task is killed
 * while it waits.
 */
static int memreg_batch_post(struct memreg_batch *batch)
{
	struct memreg_domain *domain = batch->domain;
	unsigned long begun;
	int err, ret;

	if (mutex_lock_killable(&domain->sq_mutex))
		return -EINTR;
	batch->waiter = current;
	begun = memreg_regq_rebuilds(domain);
	err = wait_event_killable(domain->sq_wait,
				  memreg_batch_decided(batch, begun, &ret));
	mutex_unlock(&domain->sq_mutex);
	return err ? -EINTR : ret;
}

static bool memreg_batch_is_through(struct memreg_batch *batch)
{
	unsigned long flags;
	bool ended;

	spin_lock_irqsave(&batch->domain->sq_lock, flags);
	ended = batch->ended;
	spin_unlock_irqrestore(&batch->domain->sq_lock, flags);
	return ended;
}

static void memreg_batch_wait(struct memreg_batch *batch)
{
	long timeout = MEMREG_BATCH_TIMEOUT;

	/* A fast device has completed the batch by now. */
	memreg_regq_poll(batch->domain);
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		if (memreg_batch_is_through(batch))
			break;
		timeout = schedule_timeout(timeout);
		if (!timeout) {
			memreg_regq_stall(batch->domain,
					  MEMREG_BATCH_TIMEOUT);
			timeout = MEMREG_BATCH_TIMEOUT;
		}
	}
	__set_current_state(TASK_RUNNING);
}

/**
 * memreg_batch_run() - Run a batch on the registration queue, and wait
 * @batch: Batch of at most MEMREG_BATCH work requests
 *
 * Afterwards each FRWR's status is 0 if its work request succeeded, or a
 * negative errno if it failed or was never posted: -EINTR if the task was
 * killed while it waited for room, -ESTALE if a guard has found a key of the
 * batch before. The FRWRs stay in the batch.
 *
 * Context: may sleep.
 * Return: 0, or one of these statuses.
 */
int memreg_batch_run(struct memreg_batch *batch)
{
	struct memreg_frwr *frwr;
	int ret;

	if (!batch->count)
		return 0;
	ret = memreg_batch_post(batch);
	if (!ret) {
		memreg_batch_wait(batch);
		return batch->error;
	}
	for (frwr = batch->first; frwr; frwr = memreg_batch_next(frwr))
		frwr->fast.status = ret;
	return ret;
}
