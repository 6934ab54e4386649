/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints of domains, batches and FRWRs: see kernel/trace.h. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_memreg

#if !defined(_MEMREG_KEYS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MEMREG_KEYS_TRACE_H

#include <linux/tracepoint.h>

#include "core.h"
#include "keys/domain.h"
#include "keys/frwr.h"
#include "keys/key.h"

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
		__entry->reserve = !batch->waiter;
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

#endif /* _MEMREG_KEYS_TRACE_H */

/* Kbuild adds kernel/ to the include path. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH keys
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
