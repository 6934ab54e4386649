// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests for the end of a connection, from any context, and the scheduling of
 * the steps to it, of which a file runs only a few at a time. The steps are in
 * teardown.c.
 */
#include <linux/jiffies.h>

#include "conn/teardown_queue.h"
#include "conn/endpoint.h"
#include "core.h"

/* Steps of a file that run at a time, and as many urgent ones besides. */
#define MEMREG_CLOSERS		4U

/* Queue waiting steps, urgent ones first. */
static void memreg_teardown_queue_run(struct memreg_teardown_queue *queue)
{
	struct memreg_teardown *teardown;
	unsigned int places;

	lockdep_assert_held(&queue->lock);

	for (;;) {
		teardown = list_first_entry_or_null(&queue->ready,
						    struct memreg_teardown,
						    node);
		if (!teardown)
			break;
		places = READ_ONCE(teardown->urgent) ? 2 * MEMREG_CLOSERS :
						      MEMREG_CLOSERS;
		if (queue->running >= places)
			break;
		list_del_init(&teardown->node);
		/*
		 * A step that is queued already will find the new request when
		 * it runs.
		 */
		if (memreg_user_work_queue(&teardown->work))
			queue->running++;
	}
}

/**
 * memreg_teardown_queue_done() - Free the place of a step that has ended or is
 * cancelled
 * @queue: Closer of the endpoint's file
 */
void memreg_teardown_queue_done(struct memreg_teardown_queue *queue)
{
	spin_lock_irq(&queue->lock);
	queue->running--;
	memreg_teardown_queue_run(queue);
	spin_unlock_irq(&queue->lock);
}

/**
 * memreg_teardown_step() - Schedule a step of an endpoint
 * @ep: The endpoint
 *
 * Context: any.
 */
void memreg_teardown_step(struct memreg_endpoint *ep)
{
	struct memreg_teardown_queue *queue = &ep->file->teardowns;
	struct memreg_teardown *teardown = &ep->teardown;
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	if (!teardown->shut) {
		if (READ_ONCE(teardown->urgent))
			list_move(&teardown->node, &queue->ready);
		else if (list_empty(&teardown->node))
			list_add_tail(&teardown->node, &queue->ready);
		memreg_teardown_queue_run(queue);
	}
	spin_unlock_irqrestore(&queue->lock, flags);
}

/**
 * memreg_endpoint_close() - Request the end of a connection
 * @ep: Endpoint of the connection
 *
 * Context: any.
 */
void memreg_endpoint_close(struct memreg_endpoint *ep)
{
	WRITE_ONCE(ep->teardown.asked, true);
	memreg_teardown_step(ep);
}

/**
 * memreg_teardown_alarm() - Schedule a step of an endpoint at a given time
 * @ep: The endpoint
 * @expires: Jiffies of the step; replaces the last alarm
 */
void memreg_teardown_alarm(struct memreg_endpoint *ep, unsigned long expires)
{
	mod_timer(&ep->teardown.timer, expires);
}
