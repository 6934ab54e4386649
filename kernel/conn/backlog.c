// SPDX-License-Identifier: GPL-2.0-only
/*
 * Backlogs: each listener has a limited number of places for requests of peers.
 */
#include <linux/memcontrol.h>
#include <linux/slab.h>

#include "conn/backlog.h"
#include "conn/endpoint.h"

/**
 * memreg_listener_put() - Drop a reference of a listener
 * @listener: The listener, freed with its last reference
 */
void memreg_listener_put(struct memreg_listener *listener)
{
	if (!refcount_dec_and_test(&listener->refs))
		return;
	mem_cgroup_put(listener->memcg);
	kfree(listener);
}

/**
 * memreg_backlog_take() - Take a place for a request
 * @listener: The listener; the place holds a reference
 *
 * Handlers of several devices may call this concurrently. Memory of the RDMA CM
 * for a request is not charged to any cgroup, so there is a limit for each
 * file, too.
 *
 * Return: false if there is no place.
 */
bool memreg_backlog_take(struct memreg_listener *listener)
{
	if (!atomic_add_unless(&listener->file->requests, 1,
			       IB_MEMREG_BACKLOG_MAX))
		return false;
	if (!atomic_add_unless(&listener->taken, 1, listener->backlog)) {
		atomic_dec(&listener->file->requests);
		return false;
	}
	refcount_inc(&listener->refs);
	return true;
}

/**
 * memreg_backlog_give() - Free a place
 * @listener: The listener, which may be freed by this
 */
void memreg_backlog_give(struct memreg_listener *listener)
{
	atomic_dec(&listener->file->requests);
	atomic_dec(&listener->taken);
	memreg_listener_put(listener);
}

/**
 * memreg_endpoint_answered() - Free the place of a request that is answered
 * @ep: The request, whose listener may be destroyed already; if it has no
 *	place, this does nothing
 */
void memreg_endpoint_answered(struct memreg_endpoint *ep)
{
	struct memreg_listener *listener;

	/* A reader of events may access the listener under event_lock. */
	spin_lock(&ep->file->event_lock);
	listener = ep->listener;
	ep->listener = NULL;
	spin_unlock(&ep->file->event_lock);
	if (listener)
		memreg_backlog_give(listener);
}
