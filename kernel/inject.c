// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fault injection, on kernels with CONFIG_FAULT_INJECTION_DEBUG_FS; other
 * kernels compile none of this file.
 *
 * The kernel itself can inject failures of allocations and of user copies. This
 * file adds the failures of devices and of the network: posts that fail, work
 * requests that fail, completions that never come, connections that are not
 * established. Each point is an attribute of the kernel's fault injection, with
 * a directory of its name in debugfs under fail_memreg;
 * Documentation/fault-injection/fault-injection.rst of the kernel describes the
 * files there. In the context of a task, /proc/thread-self/fail-nth counts the
 * points as well.
 */
#include <linux/debugfs.h>
#include <linux/dcache.h>
#include <linux/fault-inject.h>
#include <rdma/ib_cm.h>

#include "inject.h"

/**
 * struct memreg_inject_attr - A fault injection point
 * @name: Name of its directory
 * @err: Errno that the injected call returns, or status of the injected event
 * @by_order: fail-nth does not count the point: it injects no failure, or costs
 *	seconds, and the thread that passes it may work for other users
 * @is_mode: The point stays on once it is set up, and is not counted
 * @attr: The kernel's attribute, which decides when the point fails
 */
struct memreg_inject_attr {
	const char *name;
	int err;
	bool by_order;
	bool is_mode;
	struct fault_attr attr;
};

#define MEMREG_INJECT_ATTR(_point, _name, _err, ...)			\
	[MEMREG_INJECT_##_point] = {					\
		.name = _name,						\
		.err = _err,						\
		.attr = FAULT_ATTR_INITIALIZER,				\
		__VA_ARGS__						\
	}

static struct memreg_inject_attr memreg_inject_attrs[] = {
	MEMREG_INJECT_ATTR(POST_SEND, "post_send", -ENOMEM),
	MEMREG_INJECT_ATTR(WORK_REQUEST, "work_request", -EIO),
	MEMREG_INJECT_ATTR(COMPLETION, "completion", -EIO, .by_order = true),
	MEMREG_INJECT_ATTR(SHORT_MESSAGES, "short_messages", -EMSGSIZE,
			   .by_order = true),
	MEMREG_INJECT_ATTR(QUEUE_CREATE, "queue_create", -ENOMEM),
	MEMREG_INJECT_ATTR(QUEUE_CONNECT, "queue_connect", -EIO),
	MEMREG_INJECT_ATTR(ALLOC_MR, "alloc_mr", -ENOSPC),
	MEMREG_INJECT_ATTR(MAP_MR, "map_mr", -ENOMEM),
	MEMREG_INJECT_ATTR(DEREG_MR, "dereg_mr", -ENOMEM),
	MEMREG_INJECT_ATTR(NOTIFIER, "notifier", -ENOMEM),
	MEMREG_INJECT_ATTR(CREATE_ID, "create_id", -ENOMEM),
	MEMREG_INJECT_ATTR(BIND_ADDR, "bind_addr", -EADDRINUSE),
	MEMREG_INJECT_ATTR(LISTEN, "listen", -EADDRINUSE),
	MEMREG_INJECT_ATTR(RESOLVE_ADDR, "resolve_addr", -ENETUNREACH),
	MEMREG_INJECT_ATTR(RESOLVE_ROUTE, "resolve_route", -EHOSTUNREACH),
	MEMREG_INJECT_ATTR(CREATE_QP, "create_qp", -ENOSPC),
	MEMREG_INJECT_ATTR(CONNECT, "connect", -EINVAL),
	MEMREG_INJECT_ATTR(ACCEPT, "accept", -EINVAL),
	MEMREG_INJECT_ATTR(ADDR_ERROR, "addr_error", -EHOSTUNREACH),
	MEMREG_INJECT_ATTR(ROUTE_ERROR, "route_error", -ETIMEDOUT),
	MEMREG_INJECT_ATTR(UNREACHABLE, "unreachable", -ETIMEDOUT),
	MEMREG_INJECT_ATTR(REJECTED, "rejected", IB_CM_REJ_TIMEOUT),
	MEMREG_INJECT_ATTR(DISCONNECTED, "disconnected", -ECONNRESET),
	MEMREG_INJECT_ATTR(DMABUF_MAP, "dmabuf_map", -EOPNOTSUPP,
			   .by_order = true, .is_mode = true),
};

static struct dentry *memreg_inject_dir;

void __init memreg_inject_init(void)
{
	unsigned int i;

	/* Without debugfs there is still fail-nth. */
	memreg_inject_dir = debugfs_create_dir("fail_memreg", NULL);
	for (i = 0; i < ARRAY_SIZE(memreg_inject_attrs); i++)
		fault_create_debugfs_attr(memreg_inject_attrs[i].name,
					  memreg_inject_dir,
					  &memreg_inject_attrs[i].attr);
}

/* Before Linux 7.3 each attribute keeps its directory, for the log. */
static void memreg_inject_put_names(void)
{
#ifndef FAULT_ATTR_DNAME_LEN
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(memreg_inject_attrs); i++)
		dput(memreg_inject_attrs[i].attr.dname);
#endif
}

void memreg_inject_exit(void)
{
	debugfs_remove_recursive(memreg_inject_dir);
	memreg_inject_put_names();
}

/**
 * memreg_inject() - Inject a fault if one is due
 * @point: The point that the caller has reached
 *
 * Context: any.
 * Return: 0, or the errno or status to fail with.
 */
int memreg_inject(enum memreg_inject_point point)
{
	struct memreg_inject_attr *inject = &memreg_inject_attrs[point];

	if (inject->by_order && !inject->attr.probability)
		return 0;
	if (inject->is_mode)
		return inject->err;
	return should_fail(&inject->attr, 1) ? inject->err : 0;
}

/*
 * Make a work request fail, which moves the QP to the error state and flushes
 * the work requests behind it. No MR has the key 0 or can get it.
 */
static void memreg_inject_bad_key(struct ib_send_wr *wr)
{
	if (wr->opcode == IB_WR_REG_MR)
		container_of(wr, struct ib_reg_wr, wr)->key = 0;
	else if (wr->opcode == IB_WR_LOCAL_INV)
		wr->ex.invalidate_rkey = 0;
}

/**
 * memreg_inject_post_send() - ib_post_send() with faults
 * @qp: Registration queue
 * @first: Work requests. Any of them may be made to fail; or posting may stop
 *	at any of them, as if the driver had refused it
 * @bad: The first one that was not posted, if not all were
 *
 * Return: 0 or a negative errno.
 */
int memreg_inject_post_send(struct ib_qp *qp, struct ib_send_wr *first,
			    const struct ib_send_wr **bad)
{
	struct ib_send_wr *wr, *last = NULL;
	int ret = 0;

	for (wr = first; wr; last = wr, wr = wr->next) {
		ret = memreg_inject(MEMREG_INJECT_POST_SEND);
		if (ret)
			break;
		if (memreg_inject(MEMREG_INJECT_WORK_REQUEST))
			memreg_inject_bad_key(wr);
	}
	if (!ret)
		return ib_post_send(qp, first, bad);
	if (last) {
		last->next = NULL;
		ib_post_send(qp, first, bad);
		last->next = wr;
	}
	*bad = wr;
	return ret;
}

/* Error events that replace the event of a success. */
static const struct {
	enum rdma_cm_event_type good;
	enum rdma_cm_event_type bad;
	enum memreg_inject_point point;
} memreg_inject_events[] = {
	{ RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR,
	  MEMREG_INJECT_ADDR_ERROR },
	{ RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR,
	  MEMREG_INJECT_ROUTE_ERROR },
	{ RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_UNREACHABLE,
	  MEMREG_INJECT_UNREACHABLE },
	{ RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
	  MEMREG_INJECT_REJECTED },
	{ RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED,
	  MEMREG_INJECT_DISCONNECTED },
};

/**
 * memreg_inject_event() - Turn an event of an endpoint into an error
 * @event: The event, as the RDMA CM has it
 *
 * What the RDMA CM has done is not undone: the connection behaves as if the
 * error had come a moment after the success.
 */
void memreg_inject_event(struct rdma_cm_event *event)
{
	unsigned int i;
	int status;

	for (i = 0; i < ARRAY_SIZE(memreg_inject_events); i++) {
		if (event->event != memreg_inject_events[i].good)
			continue;
		status = memreg_inject(memreg_inject_events[i].point);
		if (status) {
			event->event = memreg_inject_events[i].bad;
			event->status = status;
		}
	}
}
