// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Connections: addresses, listen, accept, reject, connect, events */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

static int from_sockaddr(const struct sockaddr *sa, struct ib_memreg_addr *addr)
{
	struct sockaddr_in6 in6;
	struct sockaddr_in in;

	memset(addr, 0, sizeof(*addr));
	addr->family = sa->sa_family;
	switch (sa->sa_family) {
	case AF_INET:
		memcpy(&in, sa, sizeof(in));
		addr->port = in.sin_port;
		memcpy(addr->ip, &in.sin_addr, sizeof(in.sin_addr));
		return 0;
	case AF_INET6:
		memcpy(&in6, sa, sizeof(in6));
		addr->port = in6.sin6_port;
		addr->scope_id = in6.sin6_scope_id;
		memcpy(addr->ip, &in6.sin6_addr, sizeof(in6.sin6_addr));
		return 0;
	default:
		return -EINVAL;
	}
}

static int get_address(const struct sockaddr *sa, struct ib_memreg_addr *addr,
		       const char *what)
{
	if (!sa)
		return memreg__fail(what, -EINVAL, "the address is NULL");
	if (!from_sockaddr(sa, addr))
		return 0;
	memreg__fail_code(what, -EINVAL, IB_MEMREG_REASON_ADDRESS);
	return memreg__about_address(-EINVAL, addr);
}

/* Name the address that a failed call was given, if it may be the cause. */
static int about_address(int err, const struct ib_memreg_addr *addr)
{
	switch (-err) {
	case EADDRINUSE:
	case EADDRNOTAVAIL:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ETIMEDOUT:
	case EPERM:
		return memreg__about_address(err, addr);
	case EINVAL:
		return memreg_reason_code() == IB_MEMREG_REASON_ADDRESS ?
			memreg__about_address(err, addr) : err;
	default:
		return err;
	}
}

EXPORT int memreg_addr_from_sockaddr(const struct sockaddr *sa,
				     struct ib_memreg_addr *addr)
{
	struct ib_memreg_addr tmp;
	int ret;

	ret = get_address(sa, &tmp, "addr_from_sockaddr");
	if (!ret)
		*addr = tmp;
	return ret;
}

EXPORT int memreg_addr_to_sockaddr(const struct ib_memreg_addr *addr,
				   struct sockaddr_storage *sa, socklen_t *len)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in in = { .sin_family = AF_INET };
	socklen_t size;

	switch (addr->family) {
	case AF_INET:
		in.sin_port = addr->port;
		memcpy(&in.sin_addr, addr->ip, sizeof(in.sin_addr));
		size = sizeof(in);
		memset(sa, 0, sizeof(*sa));
		memcpy(sa, &in, size);
		break;
	case AF_INET6:
		in6.sin6_port = addr->port;
		in6.sin6_scope_id = addr->scope_id;
		memcpy(&in6.sin6_addr, addr->ip, sizeof(in6.sin6_addr));
		size = sizeof(in6);
		memset(sa, 0, sizeof(*sa));
		memcpy(sa, &in6, size);
		break;
	default:
		memreg__fail_code("addr_to_sockaddr", -EINVAL,
				  IB_MEMREG_REASON_ADDRESS);
		return memreg__about_address(-EINVAL, addr);
	}
	if (len)
		*len = size;
	return 0;
}

static void set_port(struct sockaddr *sa, in_port_t port)
{
	size_t at = sa->sa_family == AF_INET ?
		offsetof(struct sockaddr_in, sin_port) :
		offsetof(struct sockaddr_in6, sin6_port);

	memcpy((char *)sa + at, &port, sizeof(port));
}

EXPORT int memreg_listen(struct memreg *m, struct sockaddr *addr,
			 unsigned int backlog, uint32_t *listener)
{
	struct ib_memreg_listener_create arg = {
		.size = sizeof(arg),
		.backlog = backlog,
	};
	int ret;

	ret = get_address(addr, &arg.addr, "listen");
	if (ret)
		return ret;
	ret = memreg__call(m->fd, IB_MEMREG_IOC_LISTENER_CREATE, &arg,
			   "listen");
	if (ret && memreg_reason_code() == IB_MEMREG_REASON_COUNT)
		return memreg__about_number(ret, "backlog", backlog);
	if (ret)
		return about_address(ret, &arg.addr);
	set_port(addr, arg.addr.port);
	*listener = arg.out_listener_id;
	return 0;
}

static int check_data_len(size_t len, const char *what)
{
	if (len <= UINT16_MAX)
		return 0;
	memreg__fail_code(what, -EINVAL, IB_MEMREG_REASON_PRIVATE_DATA);
	return memreg__about_number(-EINVAL, "bytes", len);
}

/* Name the ids of a failed call with private data. */
static int about_peer(int err, size_t len, uint32_t endpoint, uint32_t domain)
{
	if (err && memreg_reason_code() == IB_MEMREG_REASON_PRIVATE_DATA)
		return memreg__about_number(err, "bytes", len);
	return memreg__about_ids(err, "endpoint", endpoint, "domain", domain,
				 NULL, 0);
}

EXPORT int memreg_accept(struct memreg *m, uint32_t endpoint, uint32_t domain,
			 const void *data, size_t len)
{
	struct ib_memreg_endpoint_accept arg = {
		.size = sizeof(arg),
		.endpoint_id = endpoint,
		.domain_id = domain,
		.private_data_len = (uint32_t)len,
		.private_data = to_u64(data),
	};
	int ret;

	ret = check_data_len(len, "accept");
	if (ret)
		return ret;
	ret = memreg__call(m->fd, IB_MEMREG_IOC_ENDPOINT_ACCEPT, &arg,
			   "accept");
	return about_peer(ret, len, endpoint, domain);
}

EXPORT int memreg_reject(struct memreg *m, uint32_t endpoint, const void *data,
			 size_t len)
{
	struct ib_memreg_endpoint_reject arg = {
		.size = sizeof(arg),
		.endpoint_id = endpoint,
		.private_data_len = (uint32_t)len,
		.private_data = to_u64(data),
	};
	int ret;

	ret = check_data_len(len, "reject");
	if (ret)
		return ret;
	ret = memreg__call(m->fd, IB_MEMREG_IOC_ENDPOINT_REJECT, &arg,
			   "reject");
	return about_peer(ret, len, endpoint, 0);
}

EXPORT int memreg_refuse(struct memreg *m, uint32_t endpoint, const void *data,
			 size_t len)
{
	int ret = memreg_reject(m, endpoint, data, len);

	return ret == -ENOTCONN ? memreg_destroy(m, endpoint) : ret;
}

/* The queues that the caller requests, with the flags from the environment */
static struct ib_memreg_queues queues_of(const struct ib_memreg_queues *queues)
{
	struct ib_memreg_queues q = *queues;

	if (q.recv_ring_id || q.srq_id)
		q.flags = memreg__queues_flags(q.flags);
	return q;
}

static uint32_t ring_of(const struct ib_memreg_queues *q)
{
	return q->send_ring_id ? q->send_ring_id : q->recv_ring_id;
}

/* Name in the error's message the limit that the queues exceed, or the ring. */
static int about_queues(int err, const struct ib_memreg_queues *q)
{
	switch (memreg_reason_code()) {
	case IB_MEMREG_REASON_QUEUE_SEND:
		return memreg__about_ids(err, "ring", q->send_ring_id,
					 "max_send", q->max_send,
					 "max_send_sge", q->max_send_sge);
	case IB_MEMREG_REASON_QUEUE_RECV:
		return memreg__about_ids(err, "ring", q->recv_ring_id,
					 "max_recv", q->max_recv,
					 "max_recv_sge", q->max_recv_sge);
	case IB_MEMREG_REASON_COUNT:
		return memreg__about_ids(err, "max_send", q->max_send,
					 "max_recv", q->max_recv, NULL, 0);
	case IB_MEMREG_REASON_SGES:
		return memreg__about_ids(err, "max_send_sge", q->max_send_sge,
					 "max_recv_sge", q->max_recv_sge, NULL,
					 0);
	case IB_MEMREG_REASON_INLINE:
		return memreg__about_number(err, "max_inline", q->max_inline);
	default:
		return memreg__about_ids(err, "ring", q->recv_ring_id,
					 "shared receive queue", q->srq_id,
					 NULL, 0);
	}
}

static int about_connect(int err, const struct ib_memreg_endpoint_connect *arg)
{
	switch (memreg_reason_code()) {
	case IB_MEMREG_REASON_COUNT:
	case IB_MEMREG_REASON_SGES:
	case IB_MEMREG_REASON_INLINE:
	case IB_MEMREG_REASON_RING:
	case IB_MEMREG_REASON_QUEUE_SEND:
	case IB_MEMREG_REASON_QUEUE_RECV:
		return about_queues(err, &arg->queues);
	case IB_MEMREG_REASON_ID:
	case IB_MEMREG_REASON_DOMAIN:
		return memreg__about_ids(err, "domain", arg->domain_id, "ring",
					 ring_of(&arg->queues),
					 "shared receive queue",
					 arg->queues.srq_id);
	case IB_MEMREG_REASON_RING_FULL:
		return memreg__about_id(err, "ring", ring_of(&arg->queues));
	case IB_MEMREG_REASON_PRIVATE_DATA:
		return memreg__about_number(err, "bytes",
					    arg->private_data_len);
	case IB_MEMREG_REASON_TIMEOUT:
		return memreg__about_number(err, "timeout", arg->timeout_ms);
	default:
		/* to come from an address that this device doesn't have */
		return about_address(err, err == -EADDRNOTAVAIL &&
				     arg->src.family ? &arg->src : &arg->addr);
	}
}

EXPORT int memreg_connect_queues(struct memreg *m, uint32_t domain,
				 const struct sockaddr *dst,
				 const struct sockaddr *src,
				 unsigned int timeout_ms, const void *data,
				 size_t len,
				 const struct ib_memreg_queues *queues,
				 uint32_t *endpoint)
{
	struct ib_memreg_endpoint_connect arg = {
		.size = sizeof(arg),
		.domain_id = domain,
		.timeout_ms = timeout_ms,
		.private_data_len = (uint32_t)len,
		.private_data = to_u64(data),
		.queues = queues_of(queues),
	};
	int ret;

	ret = check_data_len(len, "connect");
	if (ret)
		return ret;
	ret = get_address(dst, &arg.addr, "connect");
	if (ret)
		return ret;
	ret = src ? get_address(src, &arg.src, "connect") : 0;
	if (ret)
		return ret;
	ret = memreg__call(m->fd, IB_MEMREG_IOC_ENDPOINT_CONNECT, &arg,
			   "connect");
	if (ret)
		return about_connect(ret, &arg);
	*endpoint = arg.out_endpoint_id;
	return 0;
}

EXPORT int memreg_connect(struct memreg *m, uint32_t domain,
			  const struct sockaddr *dst,
			  const struct sockaddr *src, unsigned int timeout_ms,
			  const void *data, size_t len, uint32_t *endpoint)
{
	static const struct ib_memreg_queues none;

	return memreg_connect_queues(m, domain, dst, src, timeout_ms, data, len,
				     &none, endpoint);
}

EXPORT int memreg_setup(struct memreg *m, uint32_t endpoint, uint32_t domain,
			const struct ib_memreg_queues *queues)
{
	struct ib_memreg_endpoint_setup arg = {
		.size = sizeof(arg),
		.endpoint_id = endpoint,
		.domain_id = domain,
		.queues = queues_of(queues),
	};

	int ret = memreg__call(m->fd, IB_MEMREG_IOC_ENDPOINT_SETUP, &arg,
			       "setup");

	switch (ret ? memreg_reason_code() : IB_MEMREG_REASON_NONE) {
	case IB_MEMREG_REASON_COUNT:
	case IB_MEMREG_REASON_SGES:
	case IB_MEMREG_REASON_INLINE:
	case IB_MEMREG_REASON_RING:
	case IB_MEMREG_REASON_QUEUE_SEND:
	case IB_MEMREG_REASON_QUEUE_RECV:
		return about_queues(ret, &arg.queues);
	default:
		return memreg__about_ids(ret, "endpoint", endpoint, "domain",
					 domain, "ring", ring_of(&arg.queues));
	}
}

EXPORT int memreg_set_user_data(struct memreg *m, uint32_t id,
				uint64_t user_data)
{
	struct ib_memreg_set_user_data arg = {
		.size = sizeof(arg),
		.id = id,
		.user_data = user_data,
	};
	int ret = memreg__call(m->fd, IB_MEMREG_IOC_SET_USER_DATA, &arg,
			       "set_user_data");

	return memreg__about_id(ret, "listener or endpoint", id);
}

EXPORT int memreg_disconnect(struct memreg *m, uint32_t endpoint)
{
	struct ib_memreg_endpoint_disconnect arg = {
		.size = sizeof(arg),
		.endpoint_id = endpoint,
	};

	int ret = memreg__call(m->fd, IB_MEMREG_IOC_ENDPOINT_DISCONNECT, &arg,
			       "disconnect");

	return memreg__about_id(ret, "endpoint", endpoint);
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* 0 if there was an event, -EAGAIN if there was none */
static int read_event(struct memreg *m, struct ib_memreg_event *event)
{
	struct ib_memreg_event tmp;
	ssize_t n = read(m->fd, &tmp, sizeof(tmp));

	if (n < 0)
		return -errno;
	if ((size_t)n < sizeof(tmp))
		return -EPROTO;
	*event = tmp;
	return 0;
}

/* The milliseconds that are left of @timeout_ms until @end, for poll() */
static int left_ms(int timeout_ms, int64_t end)
{
	int64_t left;

	if (timeout_ms <= 0)
		return timeout_ms;
	left = end - now_ms();
	return left > 0 ? (int)left : 0;
}

static int wait_event(struct memreg *m, struct ib_memreg_event *event,
		      int timeout_ms)
{
	int64_t end = timeout_ms > 0 ? now_ms() + timeout_ms : 0;
	struct pollfd pfd = { .fd = m->fd, .events = POLLIN };
	int ret;

	for (;;) {
		ret = read_event(m, event);
		if (ret != -EAGAIN)
			return ret;
		ret = poll(&pfd, 1, left_ms(timeout_ms, end));
		if (ret < 0)
			return -errno;
		if (ret == 0)
			return -EAGAIN;
	}
}

EXPORT int memreg_get_event(struct memreg *m, struct ib_memreg_event *event,
			    int timeout_ms)
{
	int ret = wait_event(m, event, timeout_ms < 0 ? -1 : timeout_ms);

	switch (ret) {
	case 0:
		return 0;
	case -EAGAIN:
		memreg__fail("get_event", ret, "no event within the time");
		return memreg__about_number(ret, "milliseconds",
					    (uint64_t)timeout_ms);
	case -ENODEV:
		return memreg__fail_code("get_event", ret,
					 IB_MEMREG_REASON_DEVICE_GONE);
	default:
		return memreg__fail_code("get_event", ret, 0);
	}
}
