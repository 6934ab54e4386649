/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints of MRs, memory on demand and windows: see kernel/trace.h. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_memreg

#if !defined(_MEMREG_MR_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MEMREG_MR_TRACE_H

#include <linux/tracepoint.h>

#include "core.h"
#include "keys/domain.h"
#include "keys/key.h"
#include "mr/lease.h"
#include "mr/mr.h"
#include "pages/region.h"

/*
 * MRs and windows
 */

DECLARE_EVENT_CLASS(memreg_mr,
	TP_PROTO(const struct memreg_kmr *mr),
	TP_ARGS(mr),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u64, length)
		__field(u32, file)
		__field(u32, mr)
		__field(u32, domain)
		__field(u32, access)
		__field(u32, keys)
	),
	TP_fast_assign(
		__entry->addr = mr->addr;
		__entry->length = mr->length;
		__entry->file = mr->domain->file->number;
		__entry->mr = mr->obj.id;
		__entry->domain = mr->domain->obj.id;
		__entry->access = mr->access;
		__entry->keys = mr->nkeys;
	),
	TP_printk("file=%u mr=%u domain=%u addr=0x%llx length=%llu access=0x%x keys=%u",
		  __entry->file, __entry->mr, __entry->domain, __entry->addr,
		  __entry->length, __entry->access, __entry->keys)
);

#define MEMREG_MR_EVENT(_name)						\
	DEFINE_EVENT(memreg_mr, memreg_##_name,				\
		     TP_PROTO(const struct memreg_kmr *mr),		\
		     TP_ARGS(mr))

MEMREG_MR_EVENT(mr_register);
MEMREG_MR_EVENT(mr_reregister);
MEMREG_MR_EVENT(mr_deregister);

/*
 * Memory on demand: an extent has the id of its MR
 */

DECLARE_EVENT_CLASS(memreg_extent,
	TP_PROTO(const struct memreg_kmr *extent),
	TP_ARGS(extent),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u64, length)
		__field(u32, file)
		__field(u32, mr)
		__field(u32, domain)
		__field(bool, write)
	),
	TP_fast_assign(
		__entry->addr = extent->addr;
		__entry->length = extent->length;
		__entry->file = extent->domain->file->number;
		__entry->mr = extent->obj.id;
		__entry->domain = extent->domain->obj.id;
		__entry->write = extent->region->writable;
	),
	TP_printk("file=%u mr=%u domain=%u addr=0x%llx length=%llu write=%d",
		  __entry->file, __entry->mr, __entry->domain, __entry->addr,
		  __entry->length, __entry->write)
);

#define MEMREG_EXTENT_EVENT(_name)					\
	DEFINE_EVENT(memreg_extent, memreg_##_name,			\
		     TP_PROTO(const struct memreg_kmr *extent),		\
		     TP_ARGS(extent))

MEMREG_EXTENT_EVENT(demand_prefetch);
MEMREG_EXTENT_EVENT(demand_hit);
MEMREG_EXTENT_EVENT(demand_invalidate);
MEMREG_EXTENT_EVENT(demand_evict);

TRACE_EVENT(memreg_demand_fault,
	TP_PROTO(const struct memreg_kmr *extent, u64 ns),
	TP_ARGS(extent, ns),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u64, length)
		__field(u64, ns)
		__field(u32, file)
		__field(u32, mr)
		__field(u32, domain)
		__field(bool, write)
	),
	TP_fast_assign(
		__entry->addr = extent->addr;
		__entry->length = extent->length;
		__entry->ns = ns;
		__entry->file = extent->domain->file->number;
		__entry->mr = extent->obj.id;
		__entry->domain = extent->domain->obj.id;
		__entry->write = extent->region->writable;
	),
	TP_printk("file=%u mr=%u domain=%u addr=0x%llx length=%llu write=%d ns=%llu",
		  __entry->file, __entry->mr, __entry->domain, __entry->addr,
		  __entry->length, __entry->write, __entry->ns)
);

TRACE_EVENT(memreg_demand_miss,
	TP_PROTO(const struct memreg_kmr *mr, u64 addr, u64 length, bool write),
	TP_ARGS(mr, addr, length, write),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u64, length)
		__field(u32, file)
		__field(u32, mr)
		__field(u32, domain)
		__field(bool, write)
	),
	TP_fast_assign(
		__entry->addr = addr;
		__entry->length = length;
		__entry->file = mr->domain->file->number;
		__entry->mr = mr->obj.id;
		__entry->domain = mr->domain->obj.id;
		__entry->write = write;
	),
	TP_printk("file=%u mr=%u domain=%u addr=0x%llx length=%llu write=%d",
		  __entry->file, __entry->mr, __entry->domain, __entry->addr,
		  __entry->length, __entry->write)
);

DECLARE_EVENT_CLASS(memreg_window,
	TP_PROTO(const struct memreg_domain *domain, u32 window, u32 mr,
		 const struct memreg_key *key),
	TP_ARGS(domain, window, mr, key),
	TP_STRUCT__entry(
		__field(u64, iova)
		__field(u64, length)
		__field(u32, file)
		__field(u32, window)
		__field(u32, domain)
		__field(u32, mr)
		__field(u32, rkey)
		__field(u32, access)
	),
	TP_fast_assign(
		__entry->iova = key->iova;
		__entry->length = key->length;
		__entry->file = domain->file->number;
		__entry->window = window;
		__entry->domain = domain->obj.id;
		__entry->mr = mr;
		__entry->rkey = key->rkey;
		__entry->access = key->access;
	),
	TP_printk("file=%u window=%u domain=%u mr=%u rkey=0x%08x iova=0x%llx length=%llu access=0x%x",
		  __entry->file, __entry->window, __entry->domain,
		  __entry->mr, __entry->rkey, __entry->iova, __entry->length,
		  __entry->access)
);

#define MEMREG_WINDOW_EVENT(_name)					\
	DEFINE_EVENT(memreg_window, memreg_##_name,			\
		     TP_PROTO(const struct memreg_domain *domain,	\
			      u32 window, u32 mr,			\
			      const struct memreg_key *key),		\
		     TP_ARGS(domain, window, mr, key))

MEMREG_WINDOW_EVENT(window_bind);
MEMREG_WINDOW_EVENT(window_revoke);

TRACE_EVENT(memreg_lease_expire,
	TP_PROTO(const struct memreg_lease *lease, u64 late),
	TP_ARGS(lease, late),
	TP_STRUCT__entry(
		__field(u64, deadline)
		__field(u64, late)
		__field(u32, file)
		__field(u32, lease)
		__field(u32, grants)
	),
	TP_fast_assign(
		__entry->deadline = lease->deadline;
		__entry->late = late;
		__entry->file = lease->file->number;
		__entry->lease = lease->obj.id;
		__entry->grants = READ_ONCE(lease->grants);
	),
	TP_printk("file=%u lease=%u grants=%u deadline=%llu late=%llu",
		  __entry->file, __entry->lease, __entry->grants,
		  __entry->deadline, __entry->late)
);

#endif /* _MEMREG_MR_TRACE_H */

/* Kbuild adds kernel/ to the include path. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH mr
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
