/* SPDX-License-Identifier: GPL-2.0-only */
/* Fault injection, on kernels that are built for it. */
#ifndef _MEMREG_INJECT_H
#define _MEMREG_INJECT_H

#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* Fault injection points, on kernels that are built for fault injection. */
enum memreg_inject_point {
	MEMREG_INJECT_POST_SEND,
	MEMREG_INJECT_WORK_REQUEST,
	MEMREG_INJECT_COMPLETION,
	MEMREG_INJECT_SHORT_MESSAGES,
	MEMREG_INJECT_QUEUE_CREATE,
	MEMREG_INJECT_QUEUE_CONNECT,
	MEMREG_INJECT_ALLOC_MR,
	MEMREG_INJECT_MAP_MR,
	MEMREG_INJECT_DEREG_MR,
	MEMREG_INJECT_NOTIFIER,
	MEMREG_INJECT_CREATE_ID,
	MEMREG_INJECT_BIND_ADDR,
	MEMREG_INJECT_LISTEN,
	MEMREG_INJECT_RESOLVE_ADDR,
	MEMREG_INJECT_RESOLVE_ROUTE,
	MEMREG_INJECT_CREATE_QP,
	MEMREG_INJECT_CONNECT,
	MEMREG_INJECT_ACCEPT,
	MEMREG_INJECT_ADDR_ERROR,
	MEMREG_INJECT_ROUTE_ERROR,
	MEMREG_INJECT_UNREACHABLE,
	MEMREG_INJECT_REJECTED,
	MEMREG_INJECT_DISCONNECTED,
	MEMREG_INJECT_DMABUF_MAP,
};

#ifdef CONFIG_FAULT_INJECTION_DEBUG_FS
void memreg_inject_init(void);
void memreg_inject_exit(void);
int memreg_inject(enum memreg_inject_point point);
int memreg_inject_post_send(struct ib_qp *qp, struct ib_send_wr *first,
			    const struct ib_send_wr **bad);
void memreg_inject_event(struct rdma_cm_event *event);
#else
static inline void memreg_inject_init(void) {}
static inline void memreg_inject_exit(void) {}
static inline void memreg_inject_event(struct rdma_cm_event *event) {}

static inline int memreg_inject(enum memreg_inject_point point)
{
	return 0;
}

static inline int memreg_inject_post_send(struct ib_qp *qp,
					  struct ib_send_wr *first,
					  const struct ib_send_wr **bad)
{
	return ib_post_send(qp, first, bad);
}
#endif

#endif /* _MEMREG_INJECT_H */
