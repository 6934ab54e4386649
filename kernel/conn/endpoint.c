// SPDX-License-Identifier: GPL-2.0-only
/*
 * Endpoints: RDMA CM connections whose peers can use the keys of a domain.
 *
 * An endpoint is an RC QP in the domain's PD, so any RDMA CM peer can READ,
 * WRITE and do atomics with the keys that it received in private data. Windows
 * may be tied to an endpoint, and then end with its connection. If the user
 * asks for queues, work requests can be submitted to it (submit.c).
 *
 * The life of an endpoint
 *
 *	REQUESTED	The handler of a listener made it for a peer. It takes
 *			a place of the listener's backlog until it is accepted
 *			or destroyed, even if the peer gives up before that:
 *			the backlog bounds the requests that peers can create.
 *	CONNECTING	Accepted, or ENDPOINT_CONNECT was called. Address and
 *			route are resolved, and the QP is made, by the worker.
 *	CONNECTED	Both sides agreed.
 *	CLOSED		It has ended, or was never established. This state is
 *			final.
 *
 * A handler, an asynchronous event of the QP in any context, a completion or a
 * call of the user requests the end of a connection, and a worker takes the
 * endpoint through the stages of its end: see teardown.c.
 *
 * Contexts and locks
 *
 * The state changes under the handler lock of the RDMA CM id, which the RDMA CM
 * holds when it calls a handler, and other code takes by rdma_lock_handler().
 * Handlers run in workers that the RDMA CM has for all users: they take
 * spinlocks and may allocate an endpoint, and leave all other work to the
 * endpoint's own worker. Handlers never take memreg_file.lock or destroy an id.
 * The worker never takes memreg_file.lock, as calls and removal wait for the
 * worker with that lock held. Events of the QP only schedule a step.
 *
 * A handler that waits for the handler lock blocks a worker that all users
 * share. So no code allocates memory with that lock held: calls that make
 * queues and a QP for a request hold memreg_endpoint.setup, which the
 * endpoint's own worker waits for before it closes the queues.
 *
 * An id is destroyed along with its endpoint or listener, without a lock that
 * handlers take; this waits for handlers, and never for user space. Only an id
 * that turns out to belong to another device is destroyed at once, by the
 * worker: the removal of that device waits for the id, and does not remove
 * objects of this file. The removal of the file's own device first calls this
 * module as an ib_client, which destroys all objects of the file.
 */
#include <linux/cred.h>
#include <linux/slab.h>
#include <rdma/ib_cm.h>

#include "conn/address.h"
#include "conn/backlog.h"
#include "conn/teardown_queue.h"
#include "conn/teardown.h"
#include "conn/endpoint.h"
#include "conn/event.h"
#include "conn/qp.h"
#include "core.h"
#include "device.h"
#include "inject.h"
#include "keys/domain.h"
#include "mr/bindings.h"
#include "mr/grants.h"
#include "mr/window.h"
#include "stats.h"

/*
 * Endpoints
 */

/**
 * memreg_endpoint_alloc() - Make an endpoint that is not published yet
 * @file: The file
 * @gfp: GFP flags
 *
 * Return: the endpoint, or NULL if there is no memory.
 */
struct memreg_endpoint *memreg_endpoint_alloc(struct memreg_file *file,
					      gfp_t gfp)
{
	struct memreg_endpoint *ep;

	ep = kzalloc(sizeof(*ep), gfp);
	if (!ep)
		return NULL;
	ep->file = file;
	memreg_grants_init(&ep->grants, &ep->obj, &ep->teardown.abort);
	init_completion(&ep->begun);
	mutex_init(&ep->setup);
	INIT_LIST_HEAD(&ep->event_node);
	memreg_teardown_begin(ep);
	if (memreg_object_alloc_gfp(file, &ep->obj, &memreg_endpoint_ops,
				    gfp)) {
		kfree(ep);
		return NULL;
	}
	return ep;
}

/* From here on events of the endpoint can be read, past ones included. */
static void memreg_endpoint_published(struct memreg_file *file,
				      struct memreg_object *obj)
{
	struct memreg_endpoint *ep =
		container_of(obj, struct memreg_endpoint, obj);

	spin_lock(&file->event_lock);
	ep->published = true;
	memreg_event_link(ep);
	/*
	 * A reader can destroy the endpoint once event_lock is dropped, so
	 * drop our reference first.
	 */
	memreg_object_put(obj);
	spin_unlock(&file->event_lock);
	memreg_file_wake(file);
}

/**
 * memreg_endpoint_get() - Find an endpoint and take a reference
 * @ucmd: Call that names the endpoint
 * @id: Its id
 *
 * Return: the endpoint, or ERR_PTR(-ENOENT) with the reason set.
 */
struct memreg_endpoint *memreg_endpoint_get(struct memreg_ucmd *ucmd, u32 id)
{
	struct memreg_object *obj;

	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_ENDPOINT);
	if (!obj) {
		ucmd->reason = IB_MEMREG_REASON_ID;
		return ERR_PTR(-ENOENT);
	}
	return container_of(obj, struct memreg_endpoint, obj);
}

/* Leave the domain of an endpoint whose QP is gone. */
static void memreg_endpoint_leave(struct memreg_domain *domain)
{
	/* No packet is in flight: see memreg_window_remote_inv_waits(). */
	atomic_fetch_dec_release(&domain->connections);
	memreg_domain_put(domain);
}

static void memreg_endpoint_destroy(struct memreg_file *file,
				    struct memreg_object *obj)
{
	struct memreg_endpoint *ep =
		container_of(obj, struct memreg_endpoint, obj);

	complete_all(&ep->begun);
	memreg_teardown_finish(ep);
	memreg_window_revoke_granted(file, &ep->grants);

	/* No event is posted any more. */
	spin_lock(&file->event_lock);
	list_del_init(&ep->event_node);
	spin_unlock(&file->event_lock);

	memreg_endpoint_answered(ep);
	memreg_uncharge(&ep->charge, file->mdev);
	memreg_queues_free(ep);
	memreg_bindings_fini(&ep->grants.bound);
	if (ep->domain)
		memreg_endpoint_leave(ep->domain);
	if (ep->cred)
		put_cred(ep->cred);
	kfree(ep);
}

static void memreg_endpoint_info(struct memreg_object *obj,
				 struct ib_memreg_object *info)
{
	struct memreg_endpoint *ep =
		container_of(obj, struct memreg_endpoint, obj);
	struct memreg_domain *domain = READ_ONCE(ep->domain);

	info->domain_id = domain ? domain->obj.id : 0;
	info->u.endpoint.state = READ_ONCE(ep->state);
	info->u.endpoint.listener_id = ep->listener_id;
}

const struct memreg_object_ops memreg_endpoint_ops = {
	.type = IB_MEMREG_OBJECT_ENDPOINT,
	.destroy = memreg_endpoint_destroy,
	.published = memreg_endpoint_published,
	.info = memreg_endpoint_info,
};

/*
 * Events of the RDMA CM for an endpoint
 */

/**
 * memreg_endpoint_keep_data() - Keep the private data of a peer
 * @ep: The endpoint
 * @data: The data, or NULL
 * @len: Length including the padding of InfiniBand, so the actual data may be
 *   shorter
 */
void memreg_endpoint_keep_data(struct memreg_endpoint *ep, const void *data,
			       u32 len)
{
	if (!data)
		len = 0;
	ep->private_data_len = min_t(u32, len, sizeof(ep->private_data));
	if (ep->private_data_len)
		memcpy(ep->private_data, data, ep->private_data_len);
}

/*
 * Schedule a step of connecting on the worker, as a handler must not take it.
 */
static void memreg_endpoint_set_due(struct memreg_endpoint *ep, int step)
{
	set_bit(step, &ep->due);
	memreg_teardown_step(ep);
}

static void memreg_endpoint_established(struct memreg_endpoint *ep,
					struct rdma_cm_event *event)
{
	if (ep->state != IB_MEMREG_ENDPOINT_CONNECTING) {
		/*
		 * The worker has closed the endpoint before the connection was
		 * established, when it could not send a DREQ; the QP has been
		 * in the error state since.
		 */
		rdma_disconnect(ep->id);
		return;
	}
	if (!ep->listener_id) {
		memreg_endpoint_keep_data(ep, event->param.conn.private_data,
					  event->param.conn.private_data_len);
		ep->initiator_depth = event->param.conn.initiator_depth;
	}
	ep->outcome = IB_MEMREG_EVENT_DISCONNECTED;
	WRITE_ONCE(ep->up, true);
	/* The limits of sends are known from here on. */
	smp_store_release(&ep->sendable, true);
	memreg_count(ep->file->mdev, IB_MEMREG_STAT_ENDPOINTS_ESTABLISHED, 1);
	memreg_endpoint_set_state(ep, IB_MEMREG_ENDPOINT_CONNECTED);
	memreg_event_post(ep, IB_MEMREG_EVENT_ESTABLISHED);
}

static void memreg_endpoint_rejected(struct memreg_endpoint *ep,
				     struct rdma_cm_event *event)
{
	const void *data;
	u8 len;

	/* A peer that gives up its own request may send a reject, too. */
	if (ep->state == IB_MEMREG_ENDPOINT_CONNECTING && !ep->up) {
		data = rdma_consumer_reject_data(ep->id, event, &len);
		memreg_endpoint_keep_data(ep, data, len);
	}
	memreg_endpoint_fail(ep, IB_MEMREG_EVENT_REJECTED, event->status);
}

/**
 * memreg_endpoint_handler() - Handle an event of the RDMA CM
 * @id: Id of an endpoint
 * @event: The event
 *
 * Return: 0, so that the RDMA CM does not destroy the id.
 */
int memreg_endpoint_handler(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct memreg_endpoint *ep = id->context;

	memreg_inject_event(event);
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		memreg_endpoint_set_due(ep, MEMREG_CONNECT_QP);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		memreg_endpoint_set_due(ep, MEMREG_CONNECT_ASK);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
		if (event->status == -ETIMEDOUT &&
		    time_before(jiffies, ep->connect_until)) {
			memreg_endpoint_set_due(ep, MEMREG_CONNECT_RESOLVE);
			break;
		}
		fallthrough;
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		memreg_endpoint_fail(ep, IB_MEMREG_EVENT_ERROR,
				     memreg_cm_errno(event->status));
		break;
	case RDMA_CM_EVENT_REJECTED:
		memreg_endpoint_rejected(ep, event);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		/* Too late: the endpoint has no QP any more. */
		rdma_reject(id, NULL, 0, IB_CM_REJ_CONSUMER_DEFINED);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		memreg_endpoint_established(ep, event);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		/*
		 * The CM handles MADs on any CPU, and a DREQ may overtake the
		 * RTU before it: a peer that has sent one was connected.
		 */
		if (ep->listener_id &&
		    ep->state == IB_MEMREG_ENDPOINT_CONNECTING)
			memreg_endpoint_established(ep, event);
		fallthrough;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		WRITE_ONCE(ep->teardown.left, true);
		memreg_endpoint_close(ep);
		break;
	default:
		break;
	}
	return 0;
}

/* ioctl(IB_MEMREG_IOC_SET_USER_DATA) */
int memreg_set_user_data_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_set_user_data *cmd = ucmd->cmd;
	struct memreg_file *file = ucmd->file;
	struct memreg_object *obj;
	u64 *user_data;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	obj = memreg_object_get(file, cmd->id, IB_MEMREG_OBJECT_ENDPOINT);
	if (obj) {
		user_data = &container_of(obj, struct memreg_endpoint,
					  obj)->user_data;
	} else {
		obj = memreg_object_get(file, cmd->id,
					IB_MEMREG_OBJECT_LISTENER);
		if (!obj)
			return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
		user_data = &container_of(obj, struct memreg_listener,
					  obj)->user_data;
	}
	spin_lock(&file->event_lock);
	/* Completions read the user data of an endpoint without the lock. */
	WRITE_ONCE(*user_data, cmd->user_data);
	spin_unlock(&file->event_lock);
	memreg_object_put(obj);
	return 0;
}

/* ioctl(IB_MEMREG_IOC_ENDPOINT_DISCONNECT) */
int memreg_endpoint_disconnect_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_endpoint_disconnect *cmd = ucmd->cmd;
	struct memreg_endpoint *ep;
	int ret = 0;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	ep = memreg_endpoint_get(ucmd, cmd->endpoint_id);
	if (IS_ERR(ep))
		return PTR_ERR(ep);
	if (READ_ONCE(ep->up)) {
		WRITE_ONCE(ep->teardown.left, true);
		memreg_endpoint_close(ep);
		memreg_teardown_await(ep);
	} else {
		ret = memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
	}
	memreg_object_put(&ep->obj);
	return ret;
}
