// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests for the end of a connection, from any context, and the scheduling of
 * the steps to it, of which a file runs only a few at a time. The steps are in
 * closing.c.
 */
#include <linux/jiffies.h>

#include "conn/closer.h"
#include "conn/endpoint.h"
#include "core.h"

/* Steps of a file that run at a time, and as many urgent ones besides. */
#define MEMREG_CLOSERS		4U

/* Queue waiting steps, urgent ones first. */
static void memreg_closer_run(struct memreg_closer *closer)
{
	struct memreg_closing *closing;
	unsigned int places;

	lockdep_assert_held(&closer->lock);

	for (;;) {
		closing = list_first_entry_or_null(&closer->ready,
						   struct memreg_closing, node);
		if (!closing)
			break;
		places = READ_ONCE(closing->urgent) ? 2 * MEMREG_CLOSERS :
						      MEMREG_CLOSERS;
		if (closer->running >= places)
			break;
		list_del_init(&closing->node);
		/*
		 * A step that is queued already will find the new request when
		 * it runs.
		 */
		if (memreg_turn_queue(&closing->turn))
			closer->running++;
	}
}

/**
 * memreg_closer_done() - Free the place of a step that has ended or is
 * cancelled
 * @closer: Closer of the endpoint's file
 */
void memreg_closer_done(struct memreg_closer *closer)
{
	spin_lock_irq(&closer->lock);
	closer->running--;
	memreg_closer_run(closer);
	spin_unlock_irq(&closer->lock);
}

/**
 * memreg_closing_step() - Schedule a step of an endpoint
 * @ep: The endpoint
 *
 * Context: any.
 */
void memreg_closing_step(struct memreg_endpoint *ep)
{
	struct memreg_closer *closer = &ep->file->closer;
	struct memreg_closing *closing = &ep->closing;
	unsigned long flags;

	spin_lock_irqsave(&closer->lock, flags);
	if (!closing->shut) {
		if (READ_ONCE(closing->urgent))
			list_move(&closing->node, &closer->ready);
		else if (list_empty(&closing->node))
			list_add_tail(&closing->node, &closer->ready);
		memreg_closer_run(closer);
	}
	spin_unlock_irqrestore(&closer->lock, flags);
}

/**
 * memreg_endpoint_close() - Request the end of a connection
 * @ep: Endpoint of the connection
 *
 * Context: any.
 */
void memreg_endpoint_close(struct memreg_endpoint *ep)
{
	WRITE_ONCE(ep->closing.asked, true);
	memreg_closing_step(ep);
}

/**
 * memreg_closing_alarm() - Schedule a step of an endpoint at a given time
 * @ep: The endpoint
 * @expires: Jiffies of the step; replaces the last alarm
 */
void memreg_closing_alarm(struct memreg_endpoint *ep, unsigned long expires)
{
	mod_timer(&ep->closing.timer, expires);
}
