// SPDX-License-Identifier: GPL-2.0-only
/*
 * Listeners, and connection requests of peers: making an endpoint for a
 * request, and accepting or rejecting it.
 */
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <rdma/ib_cm.h>

#include "conn/address.h"
#include "conn/backlog.h"
#include "conn/teardown_queue.h"
#include "conn/teardown.h"
#include "conn/endpoint.h"
#include "conn/event.h"
#include "conn/listener.h"
#include "conn/qp.h"
#include "conn/trace.h"
#include "core.h"
#include "device.h"
#include "inject.h"
#include "keys/domain.h"
#include "stats.h"

/* Make an endpoint for a peer's request. */
static struct memreg_endpoint *
memreg_request_alloc(struct memreg_listener *listener, struct rdma_cm_id *id,
		     const struct rdma_conn_param *conn)
{
	struct ib_device_attr *attrs = &id->device->attrs;
	struct memreg_endpoint *ep;

	/*
	 * A worker of the RDMA CM must not reclaim memory for one user's
	 * cgroup.
	 */
	ep = memreg_endpoint_alloc(listener->file, GFP_NOWAIT | __GFP_ACCOUNT |
						   __GFP_NOWARN);
	if (!ep)
		return NULL;
	ep->id = id;
	ep->listener = listener;
	ep->listener_id = listener->obj.id;
	ep->state = IB_MEMREG_ENDPOINT_REQUESTED;
	ep->outcome = IB_MEMREG_EVENT_DISCONNECTED;
	ep->responder_resources = min_t(int, conn->responder_resources,
					attrs->max_qp_rd_atom);
	ep->initiator_depth = min_t(int, conn->initiator_depth,
				    attrs->max_qp_init_rd_atom);
	memreg_addr_from_kernel(&ep->peer, &id->route.addr.dst_addr, id);
	memreg_endpoint_keep_data(ep, conn->private_data,
				  conn->private_data_len);
	return ep;
}

/*
 * Take over a peer's request. If this returns an error, the RDMA CM rejects the
 * request, and destroys the new id. The handlers of both ids are locked.
 */
static int memreg_listener_request(struct memreg_listener *listener,
				   struct rdma_cm_id *id,
				   const struct rdma_conn_param *conn)
{
	struct memreg_endpoint *ep;
	struct mem_cgroup *memcg;

	/* A wildcard address listens on all devices. */
	if (id->device != listener->file->mdev->ibdev)
		return -ENODEV;
	if (!memreg_backlog_take(listener))
		return -ECONNREFUSED;
	memcg = set_active_memcg(listener->memcg);
	ep = memreg_request_alloc(listener, id, conn);
	set_active_memcg(memcg);
	if (!ep) {
		memreg_backlog_give(listener);
		return -ENOMEM;
	}
	id->context = ep;
	id->event_handler = memreg_endpoint_handler;
	trace_memreg_endpoint_state(ep);
	memreg_event_post(ep, IB_MEMREG_EVENT_CONNECT_REQUEST);
	memreg_object_publish(ep->file, &ep->obj);
	return 0;
}

static int memreg_listener_handler(struct rdma_cm_id *id,
				   struct rdma_cm_event *event)
{
	/* The context of a new id is that of the id that listened. */
	struct memreg_listener *listener = id->context;
	int ret = 0;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		ret = memreg_listener_request(listener, id,
					      &event->param.conn);
	/* On failure the RDMA CM rejects the request. */
	if (ret)
		memreg_count(listener->file->mdev,
			     IB_MEMREG_STAT_ENDPOINTS_REJECTED, 1);
	return ret;
}

static void memreg_listener_destroy(struct memreg_file *file,
				    struct memreg_object *obj)
{
	struct memreg_listener *listener =
		container_of(obj, struct memreg_listener, obj);

	rdma_destroy_id(listener->id);
	memreg_uncharge(&listener->charge, file->mdev);
	atomic_dec(&file->listeners);
	memreg_listener_put(listener);
}

static void memreg_listener_info(struct memreg_object *obj,
				 struct ib_memreg_object *info)
{
	/* LIST reports no details of a listener. */
}

const struct memreg_object_ops memreg_listener_ops = {
	.type = IB_MEMREG_OBJECT_LISTENER,
	.destroy = memreg_listener_destroy,
	.info = memreg_listener_info,
};

static struct memreg_listener *memreg_listener_alloc(struct memreg_ucmd *ucmd,
						     u32 backlog)
{
	struct memreg_listener *listener;
	int ret;

	listener = kzalloc(sizeof(*listener), GFP_KERNEL_ACCOUNT);
	if (!listener)
		return ERR_PTR(-ENOMEM);
	listener->file = ucmd->file;
	listener->backlog = backlog;
	listener->memcg = get_mem_cgroup_from_mm(current->mm);
	refcount_set(&listener->refs, 1);
	listener->id = memreg_id_create(ucmd->file, memreg_listener_handler,
					listener);
	if (IS_ERR(listener->id)) {
		ret = PTR_ERR(listener->id);
		goto err_put;
	}
	ret = memreg_object_alloc(ucmd->file, &listener->obj,
				  &memreg_listener_ops);
	if (ret)
		goto err_id;
	return listener;

err_id:
	rdma_destroy_id(listener->id);
err_put:
	memreg_listener_put(listener);
	return ERR_PTR(ret);
}

/* Make a listener, charged, and counted against the limit of the file. */
static struct memreg_listener *memreg_listener_new(struct memreg_ucmd *ucmd,
						   u32 backlog)
{
	struct memreg_charge charge = {};
	struct memreg_listener *listener;
	int ret;

	if (!atomic_add_unless(&ucmd->file->listeners, 1,
			       IB_MEMREG_LISTENERS_MAX))
		return ERR_PTR(memreg_fail(ucmd, -ENOSPC,
					   IB_MEMREG_REASON_COUNT));
	ret = memreg_charge(&charge, ucmd->mdev, false);
	if (ret) {
		listener = ERR_PTR(memreg_charge_reason(ucmd, ret));
		goto err_count;
	}
	listener = memreg_listener_alloc(ucmd, backlog);
	if (IS_ERR(listener))
		goto err_charge;
	listener->charge = charge;
	return listener;

err_charge:
	memreg_uncharge(&charge, ucmd->mdev);
err_count:
	atomic_dec(&ucmd->file->listeners);
	return listener;
}

/* Bind to an address, and fill in the port for the user. */
static int memreg_listener_bind(struct memreg_ucmd *ucmd,
				struct memreg_listener *listener)
{
	struct ib_memreg_listener_create *cmd = ucmd->cmd;
	struct rdma_cm_id *id = listener->id;
	struct ib_memreg_addr bound;
	int ret;

	ret = rdma_set_reuseaddr(id, 1);
	if (ret)
		return memreg_fail_address(ucmd, ret);
	ret = memreg_id_bind(ucmd, id, &cmd->addr);
	if (ret)
		return ret;
	memreg_addr_from_kernel(&bound, &id->route.addr.src_addr, id);
	cmd->addr.port = bound.port;
	cmd->out_listener_id = listener->obj.id;
	return memreg_respond(ucmd, sizeof(*cmd));
}

/* ioctl(IB_MEMREG_IOC_LISTENER_CREATE) */
int memreg_listener_create_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_listener_create *cmd = ucmd->cmd;
	struct memreg_listener *listener;
	__be16 port = cmd->addr.port;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->backlog || cmd->backlog > IB_MEMREG_BACKLOG_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	if (!memreg_addr_valid(&cmd->addr))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ADDRESS);

	listener = memreg_listener_new(ucmd, cmd->backlog);
	if (IS_ERR(listener))
		return PTR_ERR(listener);
	memreg_object_made(ucmd, &listener->obj);
	ret = memreg_listener_bind(ucmd, listener);
	if (ret)
		return ret;
	/* The answer is copied to the user: now requests of peers may come. */
	ret = memreg_inject(MEMREG_INJECT_LISTEN) ?:
	      rdma_listen(listener->id, cmd->backlog);
	if (ret) {
		/* The address is valid, so the port is in use. */
		if (ret == -EADDRNOTAVAIL)
			ret = -EADDRINUSE;
		ret = memreg_fail_address(ucmd, ret);
		/* Restore the port, so that the same call can be repeated. */
		cmd->addr.port = port;
		if (memreg_respond(ucmd, sizeof(*cmd)))
			ret = -EFAULT;
	}
	return ret;
}

/*
 * Answering requests
 */

/*
 * Begin to answer a request: make other calls that answer it, and its end,
 * wait. Its handlers still run, and may report its end meanwhile.
 */
static int memreg_request_begin(struct memreg_ucmd *ucmd,
				struct memreg_endpoint *ep)
{
	if (mutex_lock_killable(&ep->setup))
		return -EINTR;
	if (ep->listener_id &&
	    READ_ONCE(ep->state) == IB_MEMREG_ENDPOINT_REQUESTED)
		return 0;
	mutex_unlock(&ep->setup);
	return memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
}

static void memreg_request_end(struct memreg_endpoint *ep)
{
	mutex_unlock(&ep->setup);
}

/* Lock an endpoint's handlers if it is an unanswered request. */
static int memreg_request_lock(struct memreg_ucmd *ucmd,
			       struct memreg_endpoint *ep)
{
	if (ep->listener_id) {
		rdma_lock_handler(ep->id);
		if (ep->state == IB_MEMREG_ENDPOINT_REQUESTED)
			return 0;
		rdma_unlock_handler(ep->id);
	}
	return memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
}

/* Would the RDMA CM still allow a QP to be connected? */
static bool memreg_request_alive(struct memreg_endpoint *ep)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT };
	int mask = 0;

	return !rdma_init_qp_attr(ep->id, &attr, &mask);
}

/*
 * Make queues and a QP for a request. On failure it stays an unanswered
 * request.
 */
static int memreg_request_build(struct memreg_ucmd *ucmd,
				struct memreg_endpoint *ep,
				struct memreg_domain *domain,
				const struct ib_memreg_queues *q)
{
	int ret;

	ret = memreg_queues_make(ucmd, ep, domain, q);
	if (ret)
		return ret;
	ret = memreg_endpoint_create_qp(ep, domain);
	if (ret) {
		memreg_queues_free(ep);
		/* Making the QP also fails if the peer has given up. */
		return ret == -ENOMEM || memreg_request_alive(ep) ? ret :
			memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
	}
	return 0;
}

static int memreg_request_join(struct memreg_ucmd *ucmd,
			       struct memreg_endpoint *ep,
			       struct memreg_domain *domain,
			       const struct ib_memreg_queues *q)
{
	int ret;

	ret = memreg_charge(&ep->charge, ucmd->mdev, false);
	if (ret)
		return memreg_charge_reason(ucmd, ret);
	atomic_inc(&domain->connections);
	ret = memreg_request_build(ucmd, ep, domain, q);
	if (ret) {
		atomic_fetch_dec_release(&domain->connections);
		memreg_uncharge(&ep->charge, ucmd->mdev);
		return ret;
	}
	refcount_inc(&domain->obj.users);
	WRITE_ONCE(ep->domain, domain);
	WRITE_ONCE(ep->grants.domain, domain);
	/* Cannot fail: no receive was submitted yet. */
	memreg_queues_ready(ep);
	/* SUBMIT uses the queues only after it has seen this. */
	smp_store_release(&ep->queued, true);
	return 0;
}

/* Join a domain, or check that it is the one that ENDPOINT_SETUP has joined. */
static int memreg_request_rejoin(struct memreg_ucmd *ucmd,
				 struct memreg_endpoint *ep,
				 struct memreg_domain *domain)
{
	static const struct ib_memreg_queues none;

	if (!ep->domain)
		return memreg_request_join(ucmd, ep, domain, &none);
	return ep->domain == domain ? 0 :
		memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_DOMAIN);
}

/*
 * End a connection that the peer has not confirmed in time. It can use its keys
 * meanwhile, and the RDMA CM waits for more than a minute, or as long as the
 * peer asks for.
 */
static void memreg_request_expire(struct memreg_endpoint *ep)
{
	rdma_lock_handler(ep->id);
	if (ep->state == IB_MEMREG_ENDPOINT_CONNECTING &&
	    time_after_eq(jiffies, ep->connect_until))
		memreg_endpoint_close(ep);
	rdma_unlock_handler(ep->id);
}

/* Have the endpoint's worker look at the time limit of the confirmation. */
static void memreg_request_limit(struct memreg_endpoint *ep)
{
	ep->connect_until = jiffies + msecs_to_jiffies(IB_MEMREG_ACCEPT_MAX_MS);
	WRITE_ONCE(ep->teardown.go_on, memreg_request_expire);
	memreg_teardown_alarm(ep, ep->connect_until);
}

/* Send the answer. The handlers are locked. */
static int memreg_request_answer(struct memreg_ucmd *ucmd,
				 struct memreg_endpoint *ep, const void *data,
				 u32 len)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = len,
		.responder_resources = ep->responder_resources,
		.initiator_depth = ep->initiator_depth,
		.rnr_retry_count = MEMREG_RNR_RETRY,
	};
	int ret;

	memreg_endpoint_answered(ep);
	WRITE_ONCE(ep->up, true);
	memreg_endpoint_set_state(ep, IB_MEMREG_ENDPOINT_CONNECTING);
	memreg_request_limit(ep);
	ret = memreg_inject(MEMREG_INJECT_ACCEPT) ?:
	      rdma_accept(ep->id, &param);
	if (ret) {
		/*
		 * The peer has given up, or the RDMA CM rejects the request
		 * now.
		 */
		memreg_endpoint_close(ep);
		return memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
	}
	/* The peer's first message may come before the ESTABLISHED event. */
	smp_store_release(&ep->sendable, true);
	return 0;
}

static int memreg_request_accept(struct memreg_ucmd *ucmd,
				 struct memreg_endpoint *ep,
				 struct memreg_domain *domain,
				 const void *data, u32 len)
{
	int ret;

	ret = memreg_request_rejoin(ucmd, ep, domain);
	if (!ret)
		ret = memreg_request_lock(ucmd, ep);
	if (ret)
		return ret;
	ret = memreg_request_answer(ucmd, ep, data, len);
	rdma_unlock_handler(ep->id);
	return ret;
}

/*
 * ioctl(IB_MEMREG_IOC_ENDPOINT_ACCEPT). If the RDMA CM fails to send the
 * answer, the request has ended, and IB_MEMREG_EVENT_DISCONNECTED follows as
 * well.
 */
int memreg_endpoint_accept_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_endpoint_accept *cmd = ucmd->cmd;
	u8 data[MEMREG_ACCEPT_DATA];
	struct memreg_domain *domain;
	struct memreg_endpoint *ep;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	ret = memreg_private_data_get(ucmd, data, cmd->private_data,
				      cmd->private_data_len, sizeof(data));
	if (ret)
		return ret;
	ep = memreg_endpoint_get(ucmd, cmd->endpoint_id);
	if (IS_ERR(ep))
		return PTR_ERR(ep);
	domain = memreg_domain_get(ucmd, cmd->domain_id);
	if (IS_ERR(domain)) {
		ret = PTR_ERR(domain);
		goto out_ep;
	}
	ret = memreg_request_begin(ucmd, ep);
	if (ret)
		goto out_domain;
	ret = memreg_request_accept(ucmd, ep, domain, data,
				    cmd->private_data_len);
	memreg_request_end(ep);
out_domain:
	memreg_domain_put(domain);
out_ep:
	memreg_object_put(&ep->obj);
	return ret;
}

/* ioctl(IB_MEMREG_IOC_ENDPOINT_SETUP) */
int memreg_endpoint_setup_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_endpoint_setup *cmd = ucmd->cmd;
	struct memreg_domain *domain;
	struct memreg_endpoint *ep;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	ret = memreg_queues_check(ucmd, &cmd->queues);
	if (ret)
		return ret;
	ep = memreg_endpoint_get(ucmd, cmd->endpoint_id);
	if (IS_ERR(ep))
		return PTR_ERR(ep);
	domain = memreg_domain_get(ucmd, cmd->domain_id);
	if (IS_ERR(domain)) {
		ret = PTR_ERR(domain);
		goto out_ep;
	}
	ret = memreg_request_begin(ucmd, ep);
	if (ret)
		goto out_domain;
	if (ep->domain)
		ret = memreg_fail(ucmd, -EBUSY, IB_MEMREG_REASON_STATE);
	else
		ret = memreg_request_join(ucmd, ep, domain, &cmd->queues);
	memreg_request_end(ep);
out_domain:
	memreg_domain_put(domain);
out_ep:
	memreg_object_put(&ep->obj);
	return ret;
}

/*
 * ioctl(IB_MEMREG_IOC_ENDPOINT_REJECT). The request is rejected even if its
 * endpoint cannot be destroyed because another call is using it: the endpoint
 * is CLOSED then, and the user has to destroy it.
 */
int memreg_endpoint_reject_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_endpoint_reject *cmd = ucmd->cmd;
	u8 data[MEMREG_REJECT_DATA];
	struct memreg_endpoint *ep;
	u32 reason;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	ret = memreg_private_data_get(ucmd, data, cmd->private_data,
				      cmd->private_data_len, sizeof(data));
	if (ret)
		return ret;
	ep = memreg_endpoint_get(ucmd, cmd->endpoint_id);
	if (IS_ERR(ep))
		return PTR_ERR(ep);
	ret = memreg_request_lock(ucmd, ep);
	if (ret) {
		memreg_object_put(&ep->obj);
		return ret;
	}
	/* Fails if the peer has given up, which needs no answer then. */
	rdma_reject(ep->id, data, cmd->private_data_len,
		    IB_CM_REJ_CONSUMER_DEFINED);
	memreg_endpoint_set_closed(ep);
	WRITE_ONCE(ep->teardown.quiet, true);
	rdma_unlock_handler(ep->id);
	/*
	 * Another call may hold the endpoint, and its posted work must end even
	 * so.
	 */
	memreg_endpoint_close(ep);
	memreg_teardown_await(ep);
	memreg_object_put(&ep->obj);

	memreg_object_destroy(ucmd->file, cmd->endpoint_id,
			      IB_MEMREG_OBJECT_ENDPOINT, &reason);
	return 0;
}
