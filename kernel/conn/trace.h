/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints of the connection plane: see ../trace.h.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_memreg

#if !defined(_MEMREG_CONN_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MEMREG_CONN_TRACE_H

#include <linux/tracepoint.h>

#include "conn/endpoint.h"
#include "conn/queue.h"
#include "core.h"
#include "keys/domain.h"

/*
 * Endpoints
 */

TRACE_DEFINE_ENUM(IB_MEMREG_ENDPOINT_REQUESTED);
TRACE_DEFINE_ENUM(IB_MEMREG_ENDPOINT_CONNECTING);
TRACE_DEFINE_ENUM(IB_MEMREG_ENDPOINT_CONNECTED);
TRACE_DEFINE_ENUM(IB_MEMREG_ENDPOINT_CLOSED);

#define memreg_show_endpoint_state(_state)				\
	__print_symbolic(_state,					\
			 { IB_MEMREG_ENDPOINT_REQUESTED, "requested" },	\
			 { IB_MEMREG_ENDPOINT_CONNECTING, "connecting" }, \
			 { IB_MEMREG_ENDPOINT_CONNECTED, "connected" },	\
			 { IB_MEMREG_ENDPOINT_CLOSED, "closed" })

TRACE_EVENT(memreg_endpoint_state,
	TP_PROTO(const struct memreg_endpoint *ep),
	TP_ARGS(ep),
	TP_STRUCT__entry(
		__field(u32, file)
		__field(u32, endpoint)
		__field(u32, listener)
		__field(u32, domain)
		__field(u32, state)
		__field(int, status)
	),
	TP_fast_assign(
		__entry->file = ep->file->number;
		__entry->endpoint = ep->obj.id;
		__entry->listener = ep->listener_id;
		__entry->domain = ep->domain ? ep->domain->obj.id : 0;
		__entry->state = ep->state;
		__entry->status = ep->status;
	),
	TP_printk("file=%u endpoint=%u listener=%u domain=%u state=%s status=%d",
		  __entry->file, __entry->endpoint, __entry->listener,
		  __entry->domain, memreg_show_endpoint_state(__entry->state),
		  __entry->status)
);

/*
 * Work of users
 */

TRACE_EVENT(memreg_complete,
	TP_PROTO(const struct memreg_slot *slot,
		 const struct memreg_endpoint *ep,
		 const struct ib_memreg_cqe *cqe),
	TP_ARGS(slot, ep, cqe),
	TP_STRUCT__entry(
		__field(u32, ring)
		__field(u32, endpoint)
		__field(u64, user_data)
		__field(u32, opcode)
		__field(u32, status)
		__field(u32, flags)
		__field(u32, byte_len)
	),
	TP_fast_assign(
		__entry->ring = slot->queue->ring->obj.id;
		__entry->endpoint = ep ? ep->obj.id : 0;
		__entry->user_data = cqe->user_data;
		__entry->opcode = cqe->opcode;
		__entry->status = cqe->status;
		__entry->flags = cqe->flags;
		__entry->byte_len = cqe->byte_len;
	),
	TP_printk("ring=%u endpoint=%u user_data=%#llx opcode=%u status=%u flags=%#x byte_len=%u",
		  __entry->ring, __entry->endpoint, __entry->user_data,
		  __entry->opcode, __entry->status, __entry->flags,
		  __entry->byte_len)
);

TRACE_EVENT(memreg_bogus_invalidate,
	TP_PROTO(const struct memreg_endpoint *ep, u32 rkey),
	TP_ARGS(ep, rkey),
	TP_STRUCT__entry(
		__field(u32, file)
		__field(u32, endpoint)
		__field(u32, rkey)
	),
	TP_fast_assign(
		__entry->file = ep->file->number;
		__entry->endpoint = ep->obj.id;
		__entry->rkey = rkey;
	),
	TP_printk("file=%u endpoint=%u rkey=%#x",
		  __entry->file, __entry->endpoint, __entry->rkey)
);

#endif /* _MEMREG_CONN_TRACE_H */

/* Kbuild adds kernel/ to the include path. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH conn
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
