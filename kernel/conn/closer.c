// SPDX-License-Identifier: GPL-2.0-only
/*
 * Asking for the end of a connection, in any context, and the places that the
 * endpoints of a file share for the steps to it: closing.c has the steps.
 */
#include <linux/jiffies.h>

#include "conn/closer.h"
#include "conn/endpoint.h"
#include "core.h"

/* Steps of a file that run at a time; urgent ones have as many more. */
#define MEMREG_CLOSERS		4U

static struct workqueue_struct *memreg_close_wq;

int __init memreg_closer_init(void)
{
	memreg_close_wq = alloc_workqueue("memreg_close",
					  WQ_UNBOUND | WQ_MEM_RECLAIM,
					  WQ_MAX_ACTIVE);
	return memreg_close_wq ? 0 : -ENOMEM;
}

void memreg_closer_exit(void)
{
	destroy_workqueue(memreg_close_wq);
}

/* Queue steps that wait, the urgent ones of which are first. */
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
		/* One that is queued and has not begun finds all there is. */
		if (queue_work(memreg_close_wq, &closing->work))
			closer->running++;
	}
}

/**
 * memreg_closer_done() - A step has ended, or will not be taken
 * @closer: Of the endpoint's file
 */
void memreg_closer_done(struct memreg_closer *closer)
{
	spin_lock_irq(&closer->lock);
	closer->running--;
	memreg_closer_run(closer);
	spin_unlock_irq(&closer->lock);
}

/**
 * memreg_closing_step() - Have an endpoint take a step
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
 * memreg_endpoint_close() - Have a connection end
 * @ep: Its endpoint
 *
 * Context: any.
 */
void memreg_endpoint_close(struct memreg_endpoint *ep)
{
	WRITE_ONCE(ep->closing.asked, true);
	memreg_closing_step(ep);
}

/**
 * memreg_closing_alarm() - Have an endpoint take a step in any case
 * @ep: The endpoint
 * @expires: Jiffies when it is to; replaces the last alarm
 */
void memreg_closing_alarm(struct memreg_endpoint *ep, unsigned long expires)
{
	mod_timer(&ep->closing.timer, expires);
}
