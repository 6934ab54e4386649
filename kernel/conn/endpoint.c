// SPDX-License-Identifier: GPL-2.0-only
/*
 * Listeners and endpoints: RDMA CM connections whose peers reach the keys of a
 * domain.
 *
 * An endpoint is an RC QP in the domain's PD, so that any RDMA CM peer can
 * READ, WRITE and do atomics by the keys that it was told of in private data,
 * and it is what windows may be tied to: they end with its connection. It has
 * queues, for work of the user's own, if the user asked for them (submit.c).
 *
 * The life of an endpoint
 *
 *	REQUESTED	The handler of a listener made it for a peer. It takes
 *			a place of the listener's backlog until it is accepted
 *			or destroyed, even if the peer gives up before that:
 *			peers can't make us own more than the backlog.
 *	CONNECTING	Accepted, or CONNECT was called. Address and route are
 *			resolved, and the QP is made, by the handler.
 *	CONNECTED	Both sides agreed.
 *	CLOSED		It is over, or it never came up. That is final.
 *
 * Whoever sees the end of a connection (a handler, an asynchronous event of the
 * QP in any context, a completion, the user) asks for it, and a worker takes
 * the endpoint through its end in stages: see closing.c.
 *
 * Who may do what where
 *
 * State changes under the handler lock of the RDMA CM id, which handlers have
 * and everybody else takes by rdma_lock_handler(). Handlers run in workers that
 * the RDMA CM has for all users: they take spinlocks and may allocate an
 * endpoint, and leave all else to the endpoint's own worker. They never take
 * memreg_file.lock or destroy an id. The worker never takes memreg_file.lock,
 * as calls and removal wait for it with that lock held. Events of the QP do no
 * more than ask for a step.
 *
 * Ids are destroyed with their endpoint or listener, with no lock that
 * handlers take, and that waits for handlers and never for user space. Only an
 * id that turns out to be of another device goes at once, by the worker: the
 * removal of that device waits for it, and removes nothing of this file. Our
 * own device's removal reaches us as an ib_client first, which destroys all
 * that the file has.
 */
#include <linux/cred.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <net/ipv6.h>
#include <rdma/ib_cm.h>

#include "conn/closing.h"
#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/srq.h"
#include "conn/trace.h"
#include "core.h"
#include "device.h"
#include "inject.h"
#include "mem/domain.h"
#include "mem/window.h"
#include "stats.h"

/* Milliseconds of an attempt to resolve an address. */
#define MEMREG_RESOLVE_MS	1000U

/*
 * If we post no receives, a SEND of the peer's ends with an error, not never.
 * What becomes of ours is for the peer to say, and 7 is for ever.
 */
#define MEMREG_RNR_RETRY	6

/* For a peer if we have no receive: 0.64 ms, IB specification 9.7.5. */
#define MEMREG_RNR_TIMER	12

/* READs and atomics at a time, in either direction, if the device can. */
#define MEMREG_RD_ATOM		16

/**
 * struct memreg_listener - Takes connection requests from peers
 * @obj: Head
 * @file: The file
 * @id: RDMA CM id
 * @refs: One of the object, one of each request that has a place
 * @backlog: Places
 * @taken: Places that are taken
 * @memcg: Memory cgroup of the maker, which requests are charged to
 * @charge: Listener in the rdma cgroup
 * @user_data: For the events of its requests; memreg_file.event_lock
 */
struct memreg_listener {
	struct memreg_object obj;
	struct memreg_file *file;
	struct rdma_cm_id *id;
	refcount_t refs;
	u32 backlog;
	atomic_t taken;
	struct mem_cgroup *memcg;
	struct memreg_charge charge;
	u64 user_data;
};

/*
 * Addresses and errors
 */

static bool memreg_addr_link_local(const struct ib_memreg_addr *addr)
{
	struct in6_addr in6;

	memcpy(&in6, addr->ip, sizeof(in6));
	return addr->family == AF_INET6 &&
	       ipv6_addr_type(&in6) & IPV6_ADDR_LINKLOCAL;
}

/* An address is zero wherever its family has no use for the field. */
static bool memreg_addr_valid(const struct ib_memreg_addr *addr)
{
	switch (addr->family) {
	case AF_INET:
		return !addr->scope_id &&
		       !memchr_inv(addr->ip + 4, 0, sizeof(addr->ip) - 4);
	case AF_INET6:
		return memreg_addr_link_local(addr) == !!addr->scope_id;
	default:
		return false;
	}
}

static bool memreg_addr_any(const struct ib_memreg_addr *addr)
{
	return !memchr_inv(addr->ip, 0, sizeof(addr->ip));
}

/* Does an address say nothing about a device? */
static bool memreg_addr_anywhere(const struct ib_memreg_addr *addr)
{
	struct in6_addr in6;

	memcpy(&in6, addr->ip, sizeof(in6));
	return memreg_addr_any(addr) || (addr->family == AF_INET ?
					 addr->ip[0] == IN_LOOPBACKNET :
					 ipv6_addr_loopback(&in6));
}

static void memreg_addr_to_sockaddr(const struct ib_memreg_addr *addr,
				    struct sockaddr_storage *ss)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *in = (struct sockaddr_in *)ss;

	memset(ss, 0, sizeof(*ss));
	ss->ss_family = addr->family;
	if (addr->family == AF_INET) {
		in->sin_port = addr->port;
		memcpy(&in->sin_addr, addr->ip, sizeof(in->sin_addr));
	} else {
		in6->sin6_port = addr->port;
		in6->sin6_scope_id = addr->scope_id;
		memcpy(&in6->sin6_addr, addr->ip, sizeof(in6->sin6_addr));
	}
}

static void memreg_addr_from_sockaddr(struct ib_memreg_addr *addr,
				      const struct sockaddr_storage *ss,
				      const struct rdma_cm_id *id)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
	const struct sockaddr_in *in = (const struct sockaddr_in *)ss;

	memset(addr, 0, sizeof(*addr));
	addr->family = ss->ss_family;
	if (ss->ss_family == AF_INET) {
		addr->port = in->sin_port;
		memcpy(addr->ip, &in->sin_addr, sizeof(in->sin_addr));
	} else {
		addr->port = in6->sin6_port;
		addr->scope_id = in6->sin6_scope_id;
		memcpy(addr->ip, &in6->sin6_addr, sizeof(in6->sin6_addr));
	}
	/* The RDMA CM has the scope of a peer's address with the device. */
	if (!addr->scope_id && memreg_addr_link_local(addr))
		addr->scope_id = id->route.addr.dev_addr.bound_dev_if;
}

/* An errno of the RDMA CM as our ABI has it. */
static int memreg_cm_errno(int err)
{
	switch (err) {
	case -ENOMEM:
	case -ENOSPC:
	case -EACCES:
	case -EPERM:
	case -EADDRINUSE:
	case -EADDRNOTAVAIL:
	case -ENETDOWN:
	case -ENETUNREACH:
	case -EHOSTDOWN:
	case -EHOSTUNREACH:
	case -ETIMEDOUT:
	case -ECONNREFUSED:
	case -ECONNRESET:
		return err;
	case -ENODEV:
		/* There is such an address, but no RDMA device has it. */
		return -EADDRNOTAVAIL;
	default:
		return -EPROTO;
	}
}

static int memreg_fail_address(struct memreg_ucmd *ucmd, int err)
{
	err = memreg_cm_errno(err);
	return err == -ENOMEM ? err :
		memreg_fail(ucmd, err, IB_MEMREG_REASON_ADDRESS);
}

static struct rdma_cm_id *memreg_id_create(struct memreg_file *file,
					   rdma_cm_event_handler handler,
					   void *context)
{
	int ret = memreg_inject(MEMREG_INJECT_CREATE_ID);

	return ret ? ERR_PTR(ret) :
		     rdma_create_id(file->net, handler, context, RDMA_PS_TCP,
				    IB_QPT_RC);
}

/* Give an id a local address, which must not be another device's. */
static int memreg_id_bind(struct memreg_ucmd *ucmd, struct rdma_cm_id *id,
			  const struct ib_memreg_addr *addr)
{
	struct sockaddr_storage ss;
	int ret;

	memreg_addr_to_sockaddr(addr, &ss);
	ret = memreg_inject(MEMREG_INJECT_BIND_ADDR) ?:
	      rdma_bind_addr(id, (struct sockaddr *)&ss);
	if (ret == -EACCES)
		return memreg_fail(ucmd, -EPERM, IB_MEMREG_REASON_ADDRESS);
	/*
	 * The RDMA CM says so of a port in use, too, if either address is a
	 * wildcard. It looks at the port when it has found the address.
	 */
	if (ret == -EADDRNOTAVAIL && (memreg_addr_anywhere(addr) ||
				      id->route.addr.dev_addr.dev_type))
		ret = -EADDRINUSE;
	if (ret)
		return memreg_fail_address(ucmd, ret);
	if (id->device && id->device != ucmd->mdev->ibdev)
		return memreg_fail(ucmd, -EADDRNOTAVAIL,
				   IB_MEMREG_REASON_ADDRESS);
	return 0;
}

static int memreg_private_data_get(struct memreg_ucmd *ucmd, void *data,
				   u64 from, u32 len, u32 max)
{
	if (len > max)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_PRIVATE_DATA);
	return copy_from_user(data, u64_to_user_ptr(from), len) ? -EFAULT : 0;
}

/*
 * Events
 *
 * They need no memory of their own: each endpoint has each of them once.
 */

static void memreg_event_link(struct memreg_endpoint *ep)
{
	lockdep_assert_held(&ep->file->event_lock);

	if (ep->published && ep->pending && list_empty(&ep->event_node))
		list_add_tail(&ep->event_node, &ep->file->events);
}

/**
 * memreg_event_post() - Let the user read an event
 * @ep: The endpoint, whose fields that the event reports are complete
 * @type: enum ib_memreg_event_type
 */
void memreg_event_post(struct memreg_endpoint *ep, u32 type)
{
	struct memreg_file *file = ep->file;

	spin_lock(&file->event_lock);
	ep->pending |= BIT(type);
	memreg_event_link(ep);
	spin_unlock(&file->event_lock);
	wake_up(&file->wait);
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

/* Called with event_lock held, which keeps a listener that is there. */
static u64 memreg_event_user_data(const struct memreg_endpoint *ep)
{
	if (!ep->user_data && ep->listener)
		return ep->listener->user_data;
	return ep->user_data;
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

/* Take the first event that waits. An endpoint's own come in their order. */
static bool memreg_event_pop(struct memreg_file *file,
			     struct ib_memreg_event *event)
{
	struct memreg_endpoint *ep;
	u32 type;

	spin_lock(&file->event_lock);
	ep = list_first_entry_or_null(&file->events, struct memreg_endpoint,
				      event_node);
	if (ep) {
		type = __ffs(ep->pending);
		memreg_event_fill(event, ep, type);
		ep->pending &= ~BIT(type);
		if (!ep->pending)
			list_del_init(&ep->event_node);
	}
	spin_unlock(&file->event_lock);
	return ep;
}

/* Nobody got the event after all. It is void if its endpoint went meanwhile. */
static void memreg_event_put_back(struct memreg_file *file,
				  const struct ib_memreg_event *event)
{
	struct memreg_object *obj;

	obj = memreg_object_get(file, event->endpoint_id,
				IB_MEMREG_OBJECT_ENDPOINT);
	if (!obj)
		return;
	memreg_event_post(container_of(obj, struct memreg_endpoint, obj),
			  event->type);
	memreg_object_put(obj);
}

/**
 * memreg_event_read() - Copy events to user space
 * @file: File, whose lock is held for reading
 * @to: Where to copy them
 *
 * Only whole records are copied, and one that can't be copied is not lost.
 *
 * Return: bytes copied; -EINVAL if there is no room for one record; -EAGAIN if
 * none is there; -EFAULT.
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
 * Backlogs
 */

static void memreg_listener_put(struct memreg_listener *listener)
{
	if (!refcount_dec_and_test(&listener->refs))
		return;
	mem_cgroup_put(listener->memcg);
	kfree(listener);
}

/*
 * Handlers of several devices may be at this at a time. What the RDMA CM has of
 * a request is charged to nobody, so there is a limit for each file, too.
 */
static bool memreg_backlog_take(struct memreg_listener *listener)
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

static void memreg_backlog_give(struct memreg_listener *listener)
{
	atomic_dec(&listener->file->requests);
	atomic_dec(&listener->taken);
	memreg_listener_put(listener);
}

/* A request waits no more. The listener may be destroyed already. */
static void memreg_endpoint_answered(struct memreg_endpoint *ep)
{
	struct memreg_listener *listener;

	/* A reader of events may be looking at the listener. */
	spin_lock(&ep->file->event_lock);
	listener = ep->listener;
	ep->listener = NULL;
	spin_unlock(&ep->file->event_lock);
	if (listener)
		memreg_backlog_give(listener);
}

/*
 * States
 */

/* An endpoint changes its state. Handler lock, but for its first one. */
static void memreg_endpoint_set_state(struct memreg_endpoint *ep, u32 state)
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

/* The connection that we asked for did not come up. Handler lock. */
static void memreg_endpoint_fail(struct memreg_endpoint *ep, u32 outcome,
				 int status)
{
	/* On a connection that is up, or accepted, it is just over. */
	if (ep->state == IB_MEMREG_ENDPOINT_CONNECTING &&
	    ep->outcome == IB_MEMREG_EVENT_ERROR) {
		ep->outcome = outcome;
		ep->status = status;
	}
	memreg_endpoint_close(ep);
}

/* Asynchronous events of the QP, in any context. */
static void memreg_endpoint_qp_event(struct ib_event *event, void *context)
{
	struct memreg_endpoint *ep = context;

	switch (event->event) {
	case IB_EVENT_COMM_EST:
		rdma_notify(ep->id, event->event);
		break;
	case IB_EVENT_QP_LAST_WQE_REACHED:
		/* The QP is in error, and there may be no other event. */
		WRITE_ONCE(ep->closing.last_wqe, true);
		memreg_endpoint_close(ep);
		break;
	case IB_EVENT_QP_REQ_ERR:
	case IB_EVENT_QP_ACCESS_ERR:
		WRITE_ONCE(ep->refused, true);
		fallthrough;
	case IB_EVENT_QP_FATAL:
		WRITE_ONCE(ep->failing, true);
		memreg_endpoint_close(ep);
		break;
	default:
		break;
	}
}

/* Milliseconds that connecting may still take, from 1. */
static unsigned int memreg_endpoint_time_left(const struct memreg_endpoint *ep)
{
	long left = ep->connect_until - jiffies;

	return left > 0 ? jiffies_to_msecs(left) : 1;
}

/*
 * Resolve the peer's address. The RDMA CM may miss that the answer of a
 * neighbour it did not know has come, and finds it if asked again: so each
 * attempt has but a part of the time that there is.
 */
static int memreg_endpoint_resolve_addr(struct memreg_endpoint *ep)
{
	struct sockaddr_storage dst;

	memreg_addr_to_sockaddr(&ep->peer, &dst);
	return memreg_inject(MEMREG_INJECT_RESOLVE_ADDR) ?:
	       rdma_resolve_addr(ep->id, NULL, (struct sockaddr *)&dst,
				 min(memreg_endpoint_time_left(ep),
				     MEMREG_RESOLVE_MS));
}

/*
 * Endpoints
 */

static struct memreg_endpoint *memreg_endpoint_alloc(struct memreg_file *file,
						     gfp_t gfp)
{
	struct memreg_endpoint *ep;

	ep = kzalloc(sizeof(*ep), gfp);
	if (!ep)
		return NULL;
	ep->file = file;
	INIT_LIST_HEAD(&ep->grants.windows);
	init_waitqueue_head(&ep->grants.wait);
	init_completion(&ep->begun);
	memreg_bindings_init(&ep->bound);
	INIT_LIST_HEAD(&ep->event_node);
	memreg_closing_begin(&ep->closing);
	if (memreg_object_alloc_gfp(file, &ep->obj, IB_MEMREG_OBJECT_ENDPOINT,
				    gfp)) {
		kfree(ep);
		return NULL;
	}
	return ep;
}

/* Let the user find an endpoint, and read of what became of it so far. */
static void memreg_endpoint_publish(struct memreg_endpoint *ep)
{
	struct memreg_file *file = ep->file;

	/* Another thread could find and destroy it at once. */
	refcount_inc(&ep->obj.users);
	memreg_object_finalize(file, &ep->obj);
	spin_lock(&file->event_lock);
	ep->published = true;
	memreg_event_link(ep);
	/* Who reads of it may destroy it: we are not at work on it any more. */
	memreg_object_put(&ep->obj);
	spin_unlock(&file->event_lock);
	wake_up(&file->wait);
}

static struct memreg_endpoint *memreg_endpoint_get(struct memreg_ucmd *ucmd,
						   u32 id)
{
	struct memreg_object *obj;

	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_ENDPOINT);
	if (!obj) {
		ucmd->reason = IB_MEMREG_REASON_ID;
		return ERR_PTR(-ENOENT);
	}
	return container_of(obj, struct memreg_endpoint, obj);
}

/*
 * Queues
 */

static int memreg_queues_check_flags(struct memreg_ucmd *ucmd,
				     const struct ib_memreg_queues *q)
{
	if (q->flags & ~IB_MEMREG_QUEUES_NO_INLINE_RECEIVE)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (q->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (q->max_inline > IB_MEMREG_INLINE_MAX ||
	    (q->max_inline && !q->send_ring_id))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_INLINE);
	if (q->srq_id && q->recv_ring_id)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RING);
	return 0;
}

/* A queue has all of ring, depth and SGEs, or none of them. */
static int memreg_queues_check_size(struct memreg_ucmd *ucmd, u32 ring_id,
				    u32 depth, u32 max_sge)
{
	if (!ring_id != !depth || depth > memreg_queue_depth(ucmd->mdev))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	if (!ring_id != !max_sge || max_sge > IB_MEMREG_SGE_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SGES);
	return 0;
}

static int memreg_queues_check(struct memreg_ucmd *ucmd,
			       const struct ib_memreg_queues *q)
{
	int ret;

	ret = memreg_queues_check_flags(ucmd, q);
	if (!ret)
		ret = memreg_queues_check_size(ucmd, q->send_ring_id,
					       q->max_send, q->max_send_sge);
	if (!ret)
		ret = memreg_queues_check_size(ucmd, q->recv_ring_id,
					       q->max_recv, q->max_recv_sge);
	return ret;
}

static int memreg_queues_make_send(struct memreg_ucmd *ucmd,
				   struct memreg_endpoint *ep,
				   const struct ib_memreg_queues *q)
{
	struct memreg_ring *ring;

	if (!q->send_ring_id)
		return 0;
	ring = memreg_ring_get(ucmd, q->send_ring_id);
	if (IS_ERR(ring))
		return PTR_ERR(ring);
	if (!atomic_add_unless(&ring->senders, 1, ring->max_senders)) {
		memreg_ring_put(ring);
		return memreg_fail(ucmd, -EAGAIN, IB_MEMREG_REASON_RING_FULL);
	}
	ep->send = memreg_queue_alloc(ucmd->mdev, ring, ep, true, q->max_send,
				      q->max_send_sge, q->max_inline);
	if (ep->send)
		return 0;
	atomic_dec(&ring->senders);
	memreg_ring_put(ring);
	return -ENOMEM;
}

static int memreg_queues_make_recv(struct memreg_ucmd *ucmd,
				   struct memreg_endpoint *ep,
				   const struct ib_memreg_queues *q)
{
	struct memreg_ring *ring;
	u32 buffer = 0;

	if (!q->recv_ring_id)
		return 0;
	ring = memreg_ring_get(ucmd, q->recv_ring_id);
	if (IS_ERR(ring))
		return PTR_ERR(ring);
	if (!(q->flags & IB_MEMREG_QUEUES_NO_INLINE_RECEIVE))
		buffer = memreg_ring_data_size(ring);
	ep->recv = memreg_queue_alloc(ucmd->mdev, ring, ep, false, q->max_recv,
				      q->max_recv_sge, buffer);
	if (ep->recv)
		return 0;
	memreg_ring_put(ring);
	return -ENOMEM;
}

static int memreg_queues_take_srq(struct memreg_ucmd *ucmd,
				  struct memreg_endpoint *ep,
				  const struct memreg_domain *domain, u32 id)
{
	struct memreg_object *obj;
	struct memreg_srq *srq;

	if (!id)
		return 0;
	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_SRQ);
	if (!obj)
		return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	srq = container_of(obj, struct memreg_srq, obj);
	if (srq->domain != domain) {
		memreg_object_put(obj);
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_DOMAIN);
	}
	ep->srq = srq;
	return 0;
}

/* Give back queues on which nothing is posted. */
static void memreg_queues_free(struct memreg_endpoint *ep)
{
	memreg_queue_free(ep->file->mdev, ep->send);
	memreg_queue_free(ep->file->mdev, ep->recv);
	if (ep->srq)
		memreg_object_put(&ep->srq->obj);
	ep->send = NULL;
	ep->recv = NULL;
	ep->srq = NULL;
}

/* Make what was asked for and found good; on failure nothing is left of it. */
static int memreg_queues_make(struct memreg_ucmd *ucmd,
			      struct memreg_endpoint *ep,
			      const struct memreg_domain *domain,
			      const struct ib_memreg_queues *q)
{
	int ret;

	ret = memreg_queues_make_send(ucmd, ep, q);
	if (!ret)
		ret = memreg_queues_make_recv(ucmd, ep, q);
	if (!ret)
		ret = memreg_queues_take_srq(ucmd, ep, domain, q->srq_id);
	if (ret)
		memreg_queues_free(ep);
	return ret;
}

/* Post the receives that were there before the QP. */
static int memreg_queue_post_early(struct memreg_endpoint *ep)
{
	u32 lkey = ep->id->qp->pd->local_dma_lkey;
	struct ib_sge sges[MEMREG_FRAGMENTS];
	struct memreg_slot *slot, *next;
	struct llist_node *list;
	int ret = 0;

	lockdep_assert_held(&ep->recv->lock);

	list = llist_reverse_order(llist_del_all(&ep->recv->early));
	llist_for_each_entry_safe(slot, next, list, node) {
		struct ib_recv_wr wr = {
			.wr_cqe = &slot->cqe,
			.sg_list = sges,
		};

		wr.num_sge = memreg_slot_build_recv(slot, lkey, sges,
						    MEMREG_FRAGMENTS);
		if (!ret)
			ret = ib_post_recv(ep->id->qp, &wr, NULL);
		/* What the QP does not take is flushed when the queue ends. */
		if (ret)
			llist_add(&slot->node, &ep->recv->early);
	}
	return ret;
}

/* There is a QP: from here on queues are posted to. */
static int memreg_queues_ready(struct memreg_endpoint *ep)
{
	int ret = 0;

	if (ep->send || ep->recv || ep->srq)
		rdma_set_min_rnr_timer(ep->id, MEMREG_RNR_TIMER);
	if (ep->send) {
		mutex_lock(&ep->send->lock);
		ep->send->ready = !ep->send->closed;
		mutex_unlock(&ep->send->lock);
	}
	if (ep->recv) {
		mutex_lock(&ep->recv->lock);
		ret = memreg_queue_post_early(ep);
		ep->recv->ready = !ep->recv->closed;
		mutex_unlock(&ep->recv->lock);
	}
	return ret;
}

static int memreg_endpoint_try_qp(struct memreg_endpoint *ep,
				  struct memreg_domain *domain)
{
	/* A queue that nothing is posted to has nothing to complete either. */
	struct ib_qp_init_attr attr = {
		.event_handler = memreg_endpoint_qp_event,
		.qp_context = ep,
		.send_cq = ep->send ? ep->send->ring->cq : domain->cq,
		.recv_cq = ep->recv ? ep->recv->ring->cq : domain->cq,
		.cap = {
			/* One more for memreg_queue_mark(). */
			.max_send_wr = ep->send ? ep->send->depth + 1 : 1,
			.max_recv_wr = ep->recv ? ep->recv->depth : 1,
			.max_send_sge = ep->send ? ep->send->fragments : 1,
			.max_recv_sge = ep->recv ? ep->recv->fragments : 1,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};

	if (ep->srq) {
		attr.srq = ep->srq->queue->srq;
		attr.recv_cq = ep->srq->queue->ring->cq;
		attr.cap.max_recv_wr = 0;
		attr.cap.max_recv_sge = 0;
	}
	return memreg_inject(MEMREG_INJECT_CREATE_QP) ?:
	       rdma_create_qp(ep->id, domain->pd, &attr);
}

/*
 * Devices bound the bytes of a queue, too, and say ENOMEM or EINVAL: mlx5 has
 * no room for 30 pieces in each of 8192 work requests.
 */
static bool memreg_queue_narrow(struct memreg_queue *queue, int err)
{
	if (!queue || queue->fragments <= queue->max_sge ||
	    (err != -ENOMEM && err != -EINVAL))
		return false;
	WRITE_ONCE(queue->fragments, max(queue->fragments / 2, queue->max_sge));
	return true;
}

/* The RDMA CM takes the QP through its states. */
static int memreg_endpoint_create_qp(struct memreg_endpoint *ep,
				     struct memreg_domain *domain)
{
	int ret;

	do {
		ret = memreg_endpoint_try_qp(ep, domain);
	} while (ret && memreg_queue_narrow(ep->send, ret));
	/* Drivers have no errno of their own for a limit that is reached. */
	if (ret)
		return ret == -ENOMEM ? ret : -ENOSPC;
	ret = ep->srq ? memreg_queue_join(ep->srq->queue, ep) : 0;
	if (ret)
		rdma_destroy_qp(ep->id);
	return ret;
}

/* Let go of the domain of an endpoint that has no QP any more. */
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
	memreg_closing_finish(ep);
	if (ep->id) {
		memreg_endpoint_destroy_qp(ep);
		/* A request that was not answered is rejected by this. */
		rdma_destroy_id(ep->id);
	}
	memreg_window_revoke_granted(file, ep);

	/* Nobody posts any more. */
	spin_lock(&file->event_lock);
	list_del_init(&ep->event_node);
	spin_unlock(&file->event_lock);

	memreg_endpoint_answered(ep);
	memreg_uncharge(&ep->charge, file->mdev);
	memreg_queues_free(ep);
	memreg_bindings_fini(&ep->bound);
	if (ep->domain)
		memreg_endpoint_leave(ep->domain);
	if (ep->cred)
		put_cred(ep->cred);
	kfree_rcu(ep, rcu);
}

static void memreg_endpoint_info(struct memreg_object *obj,
				 struct ib_memreg_object *info)
{
	struct memreg_endpoint *ep =
		container_of(obj, struct memreg_endpoint, obj);
	struct memreg_domain *domain = READ_ONCE(ep->domain);

	info->state = READ_ONCE(ep->state);
	info->domain_id = domain ? domain->obj.id : 0;
	info->parent_id = ep->listener_id;
}

const struct memreg_object_ops memreg_endpoint_ops = {
	.destroy = memreg_endpoint_destroy,
	.info = memreg_endpoint_info,
};

/*
 * What the RDMA CM tells of an endpoint
 */

/* Keep what the peer sent. IB pads it, so its length is the most there is. */
static void memreg_endpoint_keep_data(struct memreg_endpoint *ep,
				      const void *data, u32 len)
{
	if (!data)
		len = 0;
	ep->private_data_len = min_t(u32, len, sizeof(ep->private_data));
	if (ep->private_data_len)
		memcpy(ep->private_data, data, ep->private_data_len);
}

static int memreg_endpoint_addr_resolved(struct memreg_endpoint *ep)
{
	const struct cred *cred;
	int ret;

	if (ep->id->device != ep->file->mdev->ibdev)
		return -EADDRNOTAVAIL;
	/* Security modules decide on what the QP may do by who makes it. */
	cred = override_creds(ep->cred);
	ret = memreg_endpoint_create_qp(ep, ep->domain);
	revert_creds(cred);
	if (!ret)
		ret = memreg_queues_ready(ep);
	if (ret)
		return ret;
	return memreg_inject(MEMREG_INJECT_RESOLVE_ROUTE) ?:
	       rdma_resolve_route(ep->id, memreg_endpoint_time_left(ep));
}

static int memreg_endpoint_route_resolved(struct memreg_endpoint *ep)
{
	struct ib_device_attr *attrs = &ep->id->device->attrs;
	struct rdma_conn_param param = {
		.private_data = ep->private_data,
		.private_data_len = ep->private_data_len,
		.responder_resources = min(MEMREG_RD_ATOM,
					   attrs->max_qp_rd_atom),
		.initiator_depth = min(MEMREG_RD_ATOM,
				       attrs->max_qp_init_rd_atom),
		.retry_count = 7,
		.rnr_retry_count = MEMREG_RNR_RETRY,
	};

	return memreg_inject(MEMREG_INJECT_CONNECT) ?:
	       rdma_connect_locked(ep->id, &param);
}

/* Take the next step of connecting that is due. Handler lock. */
static int memreg_endpoint_next(struct memreg_endpoint *ep)
{
	if (test_and_clear_bit(MEMREG_CONNECT_QP, &ep->due))
		return memreg_endpoint_addr_resolved(ep);
	if (test_and_clear_bit(MEMREG_CONNECT_ASK, &ep->due))
		return memreg_endpoint_route_resolved(ep);
	return time_before(jiffies, ep->connect_until) ? 0 : -ETIMEDOUT;
}

/**
 * memreg_endpoint_go_on() - Go on with connecting
 * @ep: Endpoint in any state
 *
 * Called by the endpoint's worker when an event or the timer calls for it.
 */
void memreg_endpoint_go_on(struct memreg_endpoint *ep)
{
	int ret = 0;

	/* It is the peer's, or the user's, turn on the accepting side. */
	if (ep->listener_id)
		return;
	if (test_and_clear_bit(MEMREG_CONNECT_RESOLVE, &ep->due))
		ret = memreg_endpoint_resolve_addr(ep);
	rdma_lock_handler(ep->id);
	if (ep->state == IB_MEMREG_ENDPOINT_CONNECTING) {
		ret = ret ?: memreg_endpoint_next(ep);
		if (ret)
			memreg_endpoint_fail(ep, IB_MEMREG_EVENT_ERROR,
					     memreg_cm_errno(ret));
	}
	rdma_unlock_handler(ep->id);
}

/* Have the worker take a step of connecting, which a handler must not. */
static void memreg_endpoint_set_due(struct memreg_endpoint *ep, int step)
{
	set_bit(step, &ep->due);
	memreg_closing_step(ep);
}

static void memreg_endpoint_established(struct memreg_endpoint *ep,
					struct rdma_cm_event *event)
{
	if (ep->state != IB_MEMREG_ENDPOINT_CONNECTING) {
		/*
		 * The worker was faster, when the peer could not be told yet;
		 * the QP is in error since.
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
	/* What may be sent is known. */
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

	/* A peer that gives up its request may say so in these words, too. */
	if (ep->state == IB_MEMREG_ENDPOINT_CONNECTING && !ep->up) {
		data = rdma_consumer_reject_data(ep->id, event, &len);
		memreg_endpoint_keep_data(ep, data, len);
	}
	memreg_endpoint_fail(ep, IB_MEMREG_EVENT_REJECTED, event->status);
}

static int memreg_endpoint_handler(struct rdma_cm_id *id,
				   struct rdma_cm_event *event)
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
		/* Too late: there is no QP that the RDMA CM would use. */
		rdma_reject(id, NULL, 0, IB_CM_REJ_CONSUMER_DEFINED);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		memreg_endpoint_established(ep, event);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		WRITE_ONCE(ep->closing.left, true);
		memreg_endpoint_close(ep);
		break;
	default:
		break;
	}
	return 0;
}

/*
 * Listeners
 */

/* Make an endpoint of a peer's request. */
static struct memreg_endpoint *
memreg_request_alloc(struct memreg_listener *listener, struct rdma_cm_id *id,
		     const struct rdma_conn_param *conn)
{
	struct ib_device_attr *attrs = &id->device->attrs;
	struct memreg_endpoint *ep;

	/* The workers of the RDMA CM must not reclaim for one cgroup. */
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
	memreg_addr_from_sockaddr(&ep->peer, &id->route.addr.dst_addr, id);
	memreg_endpoint_keep_data(ep, conn->private_data,
				  conn->private_data_len);
	return ep;
}

/*
 * Own a peer's request, or reject it: the RDMA CM does that, and destroys the
 * new id, if this returns an error. Both ids' handlers are locked.
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
	memreg_endpoint_publish(ep);
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
	/* The RDMA CM rejects it then. */
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
	/* There is nothing to tell but that it is there. */
}

const struct memreg_object_ops memreg_listener_ops = {
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
				  IB_MEMREG_OBJECT_LISTENER);
	if (ret)
		goto err_id;
	return listener;

err_id:
	rdma_destroy_id(listener->id);
err_put:
	memreg_listener_put(listener);
	return ERR_PTR(ret);
}

/* The same, charged, and counted against the limit of the file. */
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

/* Take an address, and tell the user the port. */
static int memreg_listener_bind(struct memreg_ucmd *ucmd,
				struct memreg_listener *listener)
{
	struct ib_memreg_listen *cmd = ucmd->cmd;
	struct rdma_cm_id *id = listener->id;
	struct ib_memreg_addr bound;
	int ret;

	ret = rdma_set_reuseaddr(id, 1);
	if (ret)
		return memreg_fail_address(ucmd, ret);
	ret = memreg_id_bind(ucmd, id, &cmd->addr);
	if (ret)
		return ret;
	memreg_addr_from_sockaddr(&bound, &id->route.addr.src_addr, id);
	cmd->addr.port = bound.port;
	cmd->out_listener_id = listener->obj.id;
	return memreg_respond(ucmd, sizeof(*cmd));
}

/* ioctl(IB_MEMREG_IOC_LISTEN) */
int memreg_endpoint_listen(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_listen *cmd = ucmd->cmd;
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
	ret = memreg_listener_bind(ucmd, listener);
	if (ret)
		goto err_abort;
	/* The user has the answer: now peers may come. */
	ret = memreg_inject(MEMREG_INJECT_LISTEN) ?:
	      rdma_listen(listener->id, cmd->backlog);
	if (ret) {
		/* The address is good, so somebody else has the port. */
		if (ret == -EADDRNOTAVAIL)
			ret = -EADDRINUSE;
		ret = memreg_fail_address(ucmd, ret);
		/* So that the same call can be made again. */
		cmd->addr.port = port;
		if (memreg_respond(ucmd, sizeof(*cmd)))
			ret = -EFAULT;
		goto err_abort;
	}
	memreg_object_finalize(ucmd->file, &listener->obj);
	return 0;

err_abort:
	memreg_object_abort(ucmd->file, &listener->obj);
	memreg_listener_destroy(ucmd->file, &listener->obj);
	return ret;
}

/*
 * Answering requests
 */

/* Lock an endpoint's handlers if it is a request that waits for an answer. */
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

/* Would the RDMA CM still let a QP be connected? */
static bool memreg_request_alive(struct memreg_endpoint *ep)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT };
	int mask = 0;

	return !rdma_init_qp_attr(ep->id, &attr, &mask);
}

/* Make queues and a QP for a request. On failure it is still a request. */
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
		/* A peer that gave up makes it fail, too. */
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
	/* No receive is there yet that could fail to be posted. */
	memreg_queues_ready(ep);
	/* Who submits looks at the queues only then. */
	smp_store_release(&ep->queued, true);
	return 0;
}

/* Join a domain, or find that it was the one to be joined by SETUP. */
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

static int memreg_request_accept(struct memreg_ucmd *ucmd,
				 struct memreg_endpoint *ep,
				 struct memreg_domain *domain,
				 const void *data, u32 len)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = len,
		.responder_resources = ep->responder_resources,
		.initiator_depth = ep->initiator_depth,
		.rnr_retry_count = MEMREG_RNR_RETRY,
	};
	int ret;

	ret = memreg_request_rejoin(ucmd, ep, domain);
	if (ret)
		return ret;
	memreg_endpoint_answered(ep);
	WRITE_ONCE(ep->up, true);
	memreg_endpoint_set_state(ep, IB_MEMREG_ENDPOINT_CONNECTING);
	ret = memreg_inject(MEMREG_INJECT_ACCEPT) ?:
	      rdma_accept(ep->id, &param);
	if (ret) {
		/* The peer gave up, or is told by the RDMA CM to. */
		memreg_endpoint_close(ep);
		return memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
	}
	/* The peer's first message may come before it says that it is up. */
	smp_store_release(&ep->sendable, true);
	return 0;
}

/*
 * ioctl(IB_MEMREG_IOC_ACCEPT). If not even the RDMA CM can send the answer,
 * the request is over: IB_MEMREG_EVENT_DISCONNECTED follows then as well.
 */
int memreg_endpoint_accept(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_accept *cmd = ucmd->cmd;
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
	ret = memreg_request_lock(ucmd, ep);
	if (ret)
		goto out_domain;
	ret = memreg_request_accept(ucmd, ep, domain, data,
				    cmd->private_data_len);
	rdma_unlock_handler(ep->id);
out_domain:
	memreg_domain_put(domain);
out_ep:
	memreg_object_put(&ep->obj);
	return ret;
}

/* ioctl(IB_MEMREG_IOC_SETUP) */
int memreg_endpoint_setup(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_setup *cmd = ucmd->cmd;
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
	ret = memreg_request_lock(ucmd, ep);
	if (ret)
		goto out_domain;
	if (ep->domain)
		ret = memreg_fail(ucmd, -EBUSY, IB_MEMREG_REASON_STATE);
	else
		ret = memreg_request_join(ucmd, ep, domain, &cmd->queues);
	rdma_unlock_handler(ep->id);
out_domain:
	memreg_domain_put(domain);
out_ep:
	memreg_object_put(&ep->obj);
	return ret;
}

/*
 * ioctl(IB_MEMREG_IOC_REJECT). The request is rejected even if its endpoint
 * can't be destroyed because another call is at work on it: what is left is
 * CLOSED and the user's to destroy.
 */
int memreg_endpoint_reject(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_reject *cmd = ucmd->cmd;
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
	/* It fails if the peer gave up, who needs no answer then. */
	rdma_reject(ep->id, data, cmd->private_data_len,
		    IB_CM_REJ_CONSUMER_DEFINED);
	memreg_endpoint_set_closed(ep);
	WRITE_ONCE(ep->closing.quiet, true);
	rdma_unlock_handler(ep->id);
	/* Another call may keep it, and what is posted must end even so. */
	memreg_endpoint_close(ep);
	memreg_closing_await(ep);
	memreg_object_put(&ep->obj);

	memreg_object_destroy(ucmd->file, cmd->endpoint_id,
			      IB_MEMREG_OBJECT_ENDPOINT, &reason);
	return 0;
}

/*
 * Connecting
 */

static int memreg_connect_check(struct memreg_ucmd *ucmd,
				const struct ib_memreg_connect *cmd)
{
	const struct ib_memreg_addr *src = &cmd->src;
	bool good;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->timeout_ms || cmd->timeout_ms > IB_MEMREG_TIMEOUT_MAX_MS)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_TIMEOUT);
	ret = memreg_queues_check(ucmd, &cmd->queues);
	if (ret)
		return ret;
	good = memreg_addr_valid(&cmd->addr) && cmd->addr.port &&
	       !memreg_addr_any(&cmd->addr);
	if (src->family)
		good = good && memreg_addr_valid(src) &&
		       src->family == cmd->addr.family;
	else
		good = good && !memchr_inv(src, 0, sizeof(*src));
	return good ? 0 :
		memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ADDRESS);
}

/* All that can be told to fail before anything begins. */
static int memreg_connect_prepare(struct memreg_ucmd *ucmd,
				  struct memreg_endpoint *ep)
{
	struct ib_memreg_connect *cmd = ucmd->cmd;
	struct rdma_cm_id *id;
	int ret;

	memreg_endpoint_set_state(ep, IB_MEMREG_ENDPOINT_CONNECTING);
	/* For an end that nobody gives another reason for. */
	ep->outcome = IB_MEMREG_EVENT_ERROR;
	ep->status = -ECONNRESET;
	ep->peer = cmd->addr;
	ep->cred = get_current_cred();
	ret = memreg_private_data_get(ucmd, ep->private_data,
				      cmd->private_data, cmd->private_data_len,
				      MEMREG_CONNECT_DATA);
	if (ret)
		return ret;
	ep->private_data_len = cmd->private_data_len;
	ret = memreg_queues_make(ucmd, ep, ep->domain, &cmd->queues);
	if (ret)
		return ret;
	ep->queued = true;
	ret = memreg_charge(&ep->charge, ucmd->mdev, false);
	if (ret)
		return memreg_charge_reason(ucmd, ret);
	id = memreg_id_create(ucmd->file, memreg_endpoint_handler, ep);
	if (IS_ERR(id))
		return PTR_ERR(id);
	ep->id = id;
	return cmd->src.family ? memreg_id_bind(ucmd, id, &cmd->src) : 0;
}

/*
 * Once this succeeds handlers may be at work, and the id is not to be touched:
 * the worker destroys it if it is of another device.
 */
static int memreg_connect_begin(struct memreg_ucmd *ucmd,
				struct memreg_endpoint *ep, u32 timeout_ms)
{
	int ret;

	ep->connect_until = jiffies + msecs_to_jiffies(timeout_ms);
	memreg_closing_alarm(ep, ep->connect_until);
	ret = memreg_endpoint_resolve_addr(ep);
	return ret ? memreg_fail_address(ucmd, ret) : 0;
}

/* ioctl(IB_MEMREG_IOC_CONNECT) */
int memreg_endpoint_connect(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_connect *cmd = ucmd->cmd;
	struct memreg_domain *domain;
	struct memreg_endpoint *ep;
	int ret;

	ret = memreg_connect_check(ucmd, cmd);
	if (ret)
		return ret;
	domain = memreg_domain_get(ucmd, cmd->domain_id);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	ep = memreg_endpoint_alloc(ucmd->file, GFP_KERNEL_ACCOUNT);
	if (!ep) {
		memreg_domain_put(domain);
		return -ENOMEM;
	}
	/* The reference is the endpoint's from here on. */
	ep->domain = domain;
	atomic_inc(&domain->connections);
	ret = memreg_connect_prepare(ucmd, ep);
	if (ret)
		goto err_abort;
	cmd->out_endpoint_id = ep->obj.id;
	ret = memreg_respond(ucmd, sizeof(*cmd));
	if (ret)
		goto err_abort;
	/* The user has the answer: now events may come. */
	ret = memreg_connect_begin(ucmd, ep, cmd->timeout_ms);
	complete_all(&ep->begun);
	if (ret)
		goto err_abort;
	memreg_endpoint_publish(ep);
	return 0;

err_abort:
	memreg_object_abort(ucmd->file, &ep->obj);
	memreg_endpoint_destroy(ucmd->file, &ep->obj);
	return ret;
}

/* ioctl(IB_MEMREG_IOC_SET_USER_DATA) */
int memreg_endpoint_set_user_data(struct memreg_ucmd *ucmd)
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
	/* Completions look at that of an endpoint without the lock. */
	WRITE_ONCE(*user_data, cmd->user_data);
	spin_unlock(&file->event_lock);
	memreg_object_put(obj);
	return 0;
}

/* ioctl(IB_MEMREG_IOC_DISCONNECT) */
int memreg_endpoint_disconnect(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_disconnect *cmd = ucmd->cmd;
	struct memreg_endpoint *ep;
	int ret = 0;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	ep = memreg_endpoint_get(ucmd, cmd->endpoint_id);
	if (IS_ERR(ep))
		return PTR_ERR(ep);
	if (READ_ONCE(ep->up)) {
		WRITE_ONCE(ep->closing.left, true);
		memreg_endpoint_close(ep);
		memreg_closing_await(ep);
	} else {
		ret = memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
	}
	memreg_object_put(&ep->obj);
	return ret;
}
