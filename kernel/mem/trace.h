/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints of the memory plane, except guards: see ../trace.h. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_memreg

#if !defined(_MEMREG_MEM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MEMREG_MEM_TRACE_H

#include <linux/tracepoint.h>

#include "core.h"
#include "mem/domain.h"
#include "mem/frwr.h"
#include "mem/key.h"
#include "mem/mr.h"
#include "mem/region.h"

/*
 * Domains and their registration queues
 */

DECLARE_EVENT_CLASS(memreg_domain,
	TP_PROTO(const struct memreg_domain *domain),
	TP_ARGS(domain),
	TP_STRUCT__entry(
		__field(u32, file)
		__field(u32, domain)
		__field(u32, port)
		__field(u32, qpn)
		__field(u32, gid_index)
	),
	TP_fast_assign(
		__entry->file = domain->file->number;
		__entry->domain = domain->obj.id;
		__entry->port = domain->port;
		__entry->qpn = domain->qpn;
		__entry->gid_index = domain->gid_index;
	),
	TP_printk("file=%u domain=%u port=%u qpn=%u gid_index=%u",
		  __entry->file, __entry->domain, __entry->port, __entry->qpn,
		  __entry->gid_index)
);

#define MEMREG_DOMAIN_EVENT(_name)					\
	DEFINE_EVENT(memreg_domain, memreg_##_name,			\
		     TP_PROTO(const struct memreg_domain *domain),	\
		     TP_ARGS(domain))

MEMREG_DOMAIN_EVENT(domain_create);
MEMREG_DOMAIN_EVENT(domain_destroy);
MEMREG_DOMAIN_EVENT(queue_broken);
MEMREG_DOMAIN_EVENT(queue_rebuilt);
MEMREG_DOMAIN_EVENT(queue_down);

DECLARE_EVENT_CLASS(memreg_batch,
	TP_PROTO(const struct memreg_batch *batch),
	TP_ARGS(batch),
	TP_STRUCT__entry(
		__field(u32, file)
		__field(u32, domain)
		__field(u32, count)
		__field(bool, reserve)
	),
	TP_fast_assign(
		__entry->file = batch->domain->file->number;
		__entry->domain = batch->domain->obj.id;
		__entry->count = batch->count;
		__entry->reserve = batch->through;
	),
	TP_printk("file=%u domain=%u count=%u%s", __entry->file,
		  __entry->domain, __entry->count,
		  __entry->reserve ? " reserve" : "")
);

#define MEMREG_BATCH_EVENT(_name)					\
	DEFINE_EVENT(memreg_batch, memreg_##_name,			\
		     TP_PROTO(const struct memreg_batch *batch),	\
		     TP_ARGS(batch))

MEMREG_BATCH_EVENT(batch_post);
MEMREG_BATCH_EVENT(batch_end);

/*
 * FRWRs and their keys
 */

DECLARE_EVENT_CLASS(memreg_frwr,
	TP_PROTO(const struct memreg_frwr *frwr),
	TP_ARGS(frwr),
	TP_STRUCT__entry(
		__field(u32, file)
		__field(u32, domain)
		__field(u32, rkey)
		__field(u32, class)
		__field(int, status)
	),
	TP_fast_assign(
		__entry->file = frwr->domain->file->number;
		__entry->domain = frwr->domain->obj.id;
		__entry->rkey = frwr->fast.mr ? frwr->fast.mr->rkey : 0;
		__entry->class = frwr->class;
		__entry->status = frwr->fast.status;
	),
	TP_printk("file=%u domain=%u rkey=0x%08x class=%u status=%d",
		  __entry->file, __entry->domain, __entry->rkey,
		  __entry->class, __entry->status)
);

#define MEMREG_FRWR_EVENT(_name)					\
	DEFINE_EVENT(memreg_frwr, memreg_##_name,			\
		     TP_PROTO(const struct memreg_frwr *frwr),		\
		     TP_ARGS(frwr))

MEMREG_FRWR_EVENT(frwr_alloc);
MEMREG_FRWR_EVENT(frwr_reuse);
MEMREG_FRWR_EVENT(frwr_foreign);
MEMREG_FRWR_EVENT(frwr_idle);
MEMREG_FRWR_EVENT(frwr_destroy);
MEMREG_FRWR_EVENT(key_publish);
MEMREG_FRWR_EVENT(key_claim);

TRACE_EVENT(memreg_frwr_map,
	TP_PROTO(const struct memreg_frwr *frwr, const struct memreg_key *key),
	TP_ARGS(frwr, key),
	TP_STRUCT__entry(
		__field(u64, iova)
		__field(u64, length)
		__field(u32, file)
		__field(u32, domain)
		__field(u32, rkey)
		__field(u32, access)
		__field(u32, page_shift)
	),
	TP_fast_assign(
		__entry->iova = key->iova;
		__entry->length = key->length;
		__entry->file = frwr->domain->file->number;
		__entry->domain = frwr->domain->obj.id;
		__entry->rkey = frwr->fast.mr->rkey;
		__entry->access = key->access;
		__entry->page_shift = key->page_shift;
	),
	TP_printk("file=%u domain=%u rkey=0x%08x iova=0x%llx length=%llu access=0x%x page_shift=%u",
		  __entry->file, __entry->domain, __entry->rkey,
		  __entry->iova, __entry->length, __entry->access,
		  __entry->page_shift)
);

TRACE_EVENT(memreg_frwr_fail,
	TP_PROTO(const struct memreg_frwr *frwr, enum ib_wc_status status),
	TP_ARGS(frwr, status),
	TP_STRUCT__entry(
		__field(u32, file)
		__field(u32, domain)
		__field(u32, rkey)
		__field(u32, status)
	),
	TP_fast_assign(
		__entry->file = frwr->domain->file->number;
		__entry->domain = frwr->domain->obj.id;
		__entry->rkey = frwr->fast.mr->rkey;
		__entry->status = status;
	),
	TP_printk("file=%u domain=%u rkey=0x%08x wc_status=%u", __entry->file,
		  __entry->domain, __entry->rkey, __entry->status)
);

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

#endif /* _MEMREG_MEM_TRACE_H */

/* Kbuild adds kernel/ to the include path. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH mem
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
