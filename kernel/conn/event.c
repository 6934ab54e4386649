// SPDX-License-Identifier: GPL-2.0-only
/* States of endpoints, and the events that users read. */
#include <linux/uio.h>

#include "conn/backlog.h"
#include "conn/teardown_queue.h"
#include "conn/endpoint.h"
#include "conn/event.h"
#include "conn/trace.h"
#include "core.h"
#include "mr/lease.h"
#include "stats.h"

/*
 * Events
 *
 * Events need no memory of their own: an endpoint has each of them at most
 * once, and a lease has one.
 */

/**
 * memreg_event_link() - Make the events of an endpoint readable
 * @ep: The endpoint; without events, this does nothing
 *
 * Context: with event_lock held.
 */
void memreg_event_link(struct memreg_endpoint *ep)
{
	lockdep_assert_held(&ep->file->event_lock);

	if (ep->published && ep->pending && list_empty(&ep->event_node))
		list_add_tail(&ep->event_node, &ep->file->events);
}

/**
 * memreg_event_post() - Post an event for the user to read
 * @ep: The endpoint; the fields that the event reports are filled in
 * @type: enum ib_memreg_event_type
 */
void memreg_event_post(struct memreg_endpoint *ep, u32 type)
{
	struct memreg_file *file = ep->file;

	spin_lock(&file->event_lock);
	ep->pending |= BIT(type);
	memreg_event_link(ep);
	spin_unlock(&file->event_lock);
	memreg_file_wake(file);
}

static bool memreg_event_has_data(struct memreg_endpoint *ep, u32 type)
{
	switch (type) {
	case IB_MEMREG_EVENT_CONNECT_REQUEST:
	case IB_MEMREG_EVENT_REJECTED:
		return true;
	case IB_MEMREG_EVENT_ESTABLISHED:
		return !ep->listener_id;
	default:
		return false;
	}
}

/*
 * Without user data, an endpoint has its id, as in completions. Called with
 * event_lock held, which keeps the listener from being freed.
 */
static u64 memreg_event_user_data(const struct memreg_endpoint *ep)
{
	u64 data = ep->user_data;

	if (!data && ep->listener)
		data = ep->listener->user_data;
	return data ?: ep->obj.id;
}

static void memreg_event_fill(struct ib_memreg_event *event,
			      struct memreg_endpoint *ep, u32 type)
{
	memset(event, 0, sizeof(*event));
	event->size = sizeof(*event);
	event->type = type;
	event->endpoint_id = ep->obj.id;
	event->listener_id = ep->listener_id;
	event->user_data = memreg_event_user_data(ep);
	event->peer = ep->peer;
	if (type == IB_MEMREG_EVENT_REJECTED || type == IB_MEMREG_EVENT_ERROR)
		event->status = ep->status;
	if (memreg_event_has_data(ep, type)) {
		event->private_data_len = ep->private_data_len;
		memcpy(event->private_data, ep->private_data,
		       ep->private_data_len);
	}
}

static void memreg_event_fill_lease(struct ib_memreg_event *event,
				    const struct memreg_lease *lease)
{
	memset(event, 0, sizeof(*event));
	event->size = sizeof(*event);
	event->type = IB_MEMREG_EVENT_LEASE_ENDED;
	event->endpoint_id = lease->obj.id;
	event->user_data = lease->obj.id;
}

/*
 * Take the first waiting event of an endpoint. The events of one endpoint come
 * in order.
 */
static bool memreg_event_pop_endpoint(struct memreg_file *file,
				      struct ib_memreg_event *event)
{
	struct memreg_endpoint *ep;
	u32 type;

	lockdep_assert_held(&file->event_lock);

	ep = list_first_entry_or_null(&file->events, struct memreg_endpoint,
				      event_node);
	if (ep) {
		type = __ffs(ep->pending);
		memreg_event_fill(event, ep, type);
		ep->pending &= ~BIT(type);
		if (!ep->pending)
			list_del_init(&ep->event_node);
	}
	return ep;
}

/* Take an event that waits. A lease has only one: endpoints get their turn. */
static bool memreg_event_pop(struct memreg_file *file,
			     struct ib_memreg_event *event)
{
	struct memreg_lease *lease;
	bool popped = true;

	spin_lock(&file->event_lock);
	lease = memreg_lease_event_pop(file);
	if (lease)
		memreg_event_fill_lease(event, lease);
	else
		popped = memreg_event_pop_endpoint(file, event);
	spin_unlock(&file->event_lock);
	return popped;
}

/*
 * Put back an event that could not be copied. It is dropped if its object has
 * gone meanwhile.
 */
static void memreg_event_put_back(struct memreg_file *file,
				  const struct ib_memreg_event *event)
{
	bool leased = event->type == IB_MEMREG_EVENT_LEASE_ENDED;
	struct memreg_object *obj;

	obj = memreg_object_get(file, event->endpoint_id,
				leased ? IB_MEMREG_OBJECT_LEASE :
					 IB_MEMREG_OBJECT_ENDPOINT);
	if (!obj)
		return;
	if (leased)
		memreg_lease_event_post(container_of(obj, struct memreg_lease,
						     obj));
	else
		memreg_event_post(container_of(obj, struct memreg_endpoint,
					       obj), event->type);
	memreg_object_put(obj);
}

/**
 * memreg_event_read() - Copy events to user space
 * @file: File, whose lock is held for reading
 * @to: Destination
 *
 * Only whole records are copied, and a record that cannot be copied is not
 * lost.
 *
 * Return: bytes copied; -EINVAL if there is no room for one record; -EAGAIN if
 * no event waits; -EFAULT.
 */
ssize_t memreg_event_read(struct memreg_file *file, struct iov_iter *to)
{
	struct ib_memreg_event event;
	ssize_t done = 0;

	if (iov_iter_count(to) < sizeof(event))
		return -EINVAL;
	while (iov_iter_count(to) >= sizeof(event)) {
		if (!memreg_event_pop(file, &event))
			break;
		if (!copy_to_iter_full(&event, sizeof(event), to)) {
			memreg_event_put_back(file, &event);
			return done ?: -EFAULT;
		}
		done += sizeof(event);
	}
	return done ?: -EAGAIN;
}

/*
 * States
 */

/**
 * memreg_endpoint_set_state() - Change an endpoint's state
 * @ep: The endpoint, whose handlers are locked, except for its first state
 * @state: enum ib_memreg_endpoint_state
 */
void memreg_endpoint_set_state(struct memreg_endpoint *ep, u32 state)
{
	WRITE_ONCE(ep->state, state);
	trace_memreg_endpoint_state(ep);
}

/**
 * memreg_endpoint_set_closed() - Make an endpoint CLOSED, and count its outcome
 * @ep: The endpoint, whose handlers are locked; it may be CLOSED already
 */
void memreg_endpoint_set_closed(struct memreg_endpoint *ep)
{
	enum ib_memreg_stat_id stat = IB_MEMREG_STAT_ENDPOINTS_FAILED;

	if (ep->state == IB_MEMREG_ENDPOINT_CLOSED)
		return;
	if (ep->state == IB_MEMREG_ENDPOINT_CONNECTED)
		stat = IB_MEMREG_STAT_ENDPOINTS_DISCONNECTED;
	else if (ep->state == IB_MEMREG_ENDPOINT_REQUESTED ||
		 ep->outcome == IB_MEMREG_EVENT_REJECTED)
		stat = IB_MEMREG_STAT_ENDPOINTS_REJECTED;
	memreg_count(ep->file->mdev, stat, 1);
	memreg_endpoint_set_state(ep, IB_MEMREG_ENDPOINT_CLOSED);
}

/**
 * memreg_endpoint_fail() - Record that connecting has failed
 * @ep: The endpoint, whose handlers are locked
 * @outcome: enum ib_memreg_event_type
 * @status: Status for the event
 */
void memreg_endpoint_fail(struct memreg_endpoint *ep, u32 outcome, int status)
{
	/* A connection that is up, or accepted, has just ended instead. */
	if (ep->state == IB_MEMREG_ENDPOINT_CONNECTING &&
	    ep->outcome == IB_MEMREG_EVENT_ERROR) {
		ep->outcome = outcome;
		ep->status = status;
	}
	memreg_endpoint_close(ep);
}
