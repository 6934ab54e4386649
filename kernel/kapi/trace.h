/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints of the API for other modules: see ../trace.h. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_memreg

#if !defined(_MEMREG_KAPI_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MEMREG_KAPI_TRACE_H

#include <linux/tracepoint.h>

#include "kapi/kapi.h"

TRACE_DEFINE_ENUM(MEMREG_MR_IDLE);
TRACE_DEFINE_ENUM(MEMREG_MR_DEAD);
TRACE_DEFINE_ENUM(MEMREG_MR_POSTED);
TRACE_DEFINE_ENUM(MEMREG_MR_REMOTE);
TRACE_DEFINE_ENUM(MEMREG_MR_LOCAL);

#define memreg_show_mr_state(_state)					\
	__print_symbolic(_state,					\
			 { MEMREG_MR_IDLE, "idle" },			\
			 { MEMREG_MR_DEAD, "dead" },			\
			 { MEMREG_MR_POSTED, "posted" },		\
			 { MEMREG_MR_REMOTE, "remote" },		\
			 { MEMREG_MR_LOCAL, "local" })

DECLARE_EVENT_CLASS(memreg_pool_mr,
	TP_PROTO(const struct ib_memreg_mr *mr),
	TP_ARGS(mr),
	TP_STRUCT__entry(
		__string(pool, mr->pool->name)
		__field(u32, dev)
		__field(u32, rkey)
		__field(u32, state)
	),
	TP_fast_assign(
		__assign_str(pool);
		__entry->dev = mr->pool->pd->device->index;
		__entry->rkey = mr->fast.mr->rkey;
		__entry->state = mr->state;
	),
	TP_printk("dev=%u pool=%s rkey=0x%08x state=%s", __entry->dev,
		  __get_str(pool), __entry->rkey,
		  memreg_show_mr_state(__entry->state))
);

#define MEMREG_POOL_MR_EVENT(_name)					\
	DEFINE_EVENT(memreg_pool_mr, memreg_##_name,			\
		     TP_PROTO(const struct ib_memreg_mr *mr),		\
		     TP_ARGS(mr))

MEMREG_POOL_MR_EVENT(pool_take);
MEMREG_POOL_MR_EVENT(pool_put);
MEMREG_POOL_MR_EVENT(pool_replace);

DECLARE_EVENT_CLASS(memreg_req_mr,
	TP_PROTO(const struct ib_memreg_mr *mr),
	TP_ARGS(mr),
	TP_STRUCT__entry(
		__string(pool, mr->pool->name)
		__field(u64, cookie)
		__field(u32, dev)
		__field(u32, rkey)
		__field(u32, state)
	),
	TP_fast_assign(
		__assign_str(pool);
		__entry->cookie = mr->req->cookie;
		__entry->dev = mr->pool->pd->device->index;
		__entry->rkey = mr->fast.mr->rkey;
		__entry->state = mr->state;
	),
	TP_printk("dev=%u pool=%s cookie=0x%llx rkey=0x%08x state=%s",
		  __entry->dev, __get_str(pool), __entry->cookie,
		  __entry->rkey, memreg_show_mr_state(__entry->state))
);

#define MEMREG_REQ_MR_EVENT(_name)					\
	DEFINE_EVENT(memreg_req_mr, memreg_##_name,			\
		     TP_PROTO(const struct ib_memreg_mr *mr),		\
		     TP_ARGS(mr))

MEMREG_REQ_MR_EVENT(req_register);
MEMREG_REQ_MR_EVENT(req_invalidate);

TRACE_EVENT(memreg_req_map,
	TP_PROTO(const struct ib_memreg_mr *mr),
	TP_ARGS(mr),
	TP_STRUCT__entry(
		__string(pool, mr->pool->name)
		__field(u64, cookie)
		__field(u64, iova)
		__field(u32, dev)
		__field(u32, rkey)
		__field(u32, length)
		__field(u32, nents)
		__field(u32, access)
	),
	TP_fast_assign(
		__assign_str(pool);
		__entry->cookie = mr->req->cookie;
		__entry->iova = mr->fast.mr->iova;
		__entry->dev = mr->pool->pd->device->index;
		__entry->rkey = mr->fast.mr->rkey;
		__entry->length = mr->length;
		__entry->nents = mr->nents;
		__entry->access = mr->fast.wr.access;
	),
	TP_printk("dev=%u pool=%s cookie=0x%llx rkey=0x%08x iova=0x%llx length=%u nents=%u access=0x%x",
		  __entry->dev, __get_str(pool), __entry->cookie,
		  __entry->rkey, __entry->iova, __entry->length,
		  __entry->nents, __entry->access)
);

TRACE_EVENT(memreg_req_fail,
	TP_PROTO(const struct ib_memreg_req *req, const struct ib_wc *wc),
	TP_ARGS(req, wc),
	TP_STRUCT__entry(
		__string(pool, req->pool->name)
		__field(u64, cookie)
		__field(u32, dev)
		__field(u32, status)
		__field(u32, vendor_err)
	),
	TP_fast_assign(
		__assign_str(pool);
		__entry->cookie = req->cookie;
		__entry->dev = req->pool->pd->device->index;
		__entry->status = wc->status;
		__entry->vendor_err = wc->vendor_err;
	),
	TP_printk("dev=%u pool=%s cookie=0x%llx wc_status=%u vendor_err=0x%x",
		  __entry->dev, __get_str(pool), __entry->cookie,
		  __entry->status, __entry->vendor_err)
);

TRACE_EVENT(memreg_req_bogus,
	TP_PROTO(const struct ib_memreg_req *req, u32 rkey),
	TP_ARGS(req, rkey),
	TP_STRUCT__entry(
		__string(pool, req->pool->name)
		__field(u64, cookie)
		__field(u32, dev)
		__field(u32, rkey)
	),
	TP_fast_assign(
		__assign_str(pool);
		__entry->cookie = req->cookie;
		__entry->dev = req->pool->pd->device->index;
		__entry->rkey = rkey;
	),
	TP_printk("dev=%u pool=%s cookie=0x%llx rkey=0x%08x", __entry->dev,
		  __get_str(pool), __entry->cookie, __entry->rkey)
);

#endif /* _MEMREG_KAPI_TRACE_H */

/* Kbuild has kernel/ among the directories that headers are looked for in. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH kapi
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
