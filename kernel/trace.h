/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints on every change of state in the core.
 *
 * Objects are named as LIST names them: by the number of their file and their
 * id. Devices are named by their index, as names change. Regions have no id,
 * and are named by their range of memory. A tracepoint that is off is a branch
 * that is not taken: what it tells is looked up inside of it.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_memreg

#if !defined(_MEMREG_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MEMREG_TRACE_H

#include <linux/tracepoint.h>

#include "kapi/kapi.h"
#include "memreg.h"

/*
 * Files
 */

TRACE_EVENT(memreg_file_bind,
	TP_PROTO(const struct memreg_file *file),
	TP_ARGS(file),
	TP_STRUCT__entry(
		__field(u32, file)
		__field(u32, dev)
	),
	TP_fast_assign(
		__entry->file = file->number;
		__entry->dev = file->mdev->ibdev->index;
	),
	TP_printk("file=%u dev=%u", __entry->file, __entry->dev)
);

TRACE_EVENT(memreg_file_close,
	TP_PROTO(const struct memreg_file *file),
	TP_ARGS(file),
	TP_STRUCT__entry(
		__field(u32, file)
	),
	TP_fast_assign(
		__entry->file = file->number;
	),
	TP_printk("file=%u", __entry->file)
);

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
		__entry->reserve = batch->reserve;
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
 * Regions and their guards
 */

DECLARE_EVENT_CLASS(memreg_region,
	TP_PROTO(const struct memreg_region *region),
	TP_ARGS(region),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u64, length)
		__field(unsigned long, pages)
		__field(u32, dev)
	),
	TP_fast_assign(
		__entry->addr = region->addr;
		__entry->length = region->length;
		__entry->pages = region->npages;
		__entry->dev = region->mdev->ibdev->index;
	),
	TP_printk("dev=%u addr=0x%llx length=%llu pages=%lu", __entry->dev,
		  __entry->addr, __entry->length, __entry->pages)
);

#define MEMREG_REGION_EVENT(_name)					\
	DEFINE_EVENT(memreg_region, memreg_##_name,			\
		     TP_PROTO(const struct memreg_region *region),	\
		     TP_ARGS(region))

MEMREG_REGION_EVENT(region_pin);
MEMREG_REGION_EVENT(region_unpin);
MEMREG_REGION_EVENT(region_stale);
MEMREG_REGION_EVENT(guard_timeout);

TRACE_DEFINE_ENUM(MMU_NOTIFY_UNMAP);
TRACE_DEFINE_ENUM(MMU_NOTIFY_CLEAR);
TRACE_DEFINE_ENUM(MMU_NOTIFY_PROTECTION_VMA);
TRACE_DEFINE_ENUM(MMU_NOTIFY_PROTECTION_PAGE);
TRACE_DEFINE_ENUM(MMU_NOTIFY_SOFT_DIRTY);
TRACE_DEFINE_ENUM(MMU_NOTIFY_RELEASE);
TRACE_DEFINE_ENUM(MMU_NOTIFY_MIGRATE);
TRACE_DEFINE_ENUM(MMU_NOTIFY_EXCLUSIVE);
TRACE_DEFINE_ENUM(MEMREG_SAME);
TRACE_DEFINE_ENUM(MEMREG_SUSPECT);
TRACE_DEFINE_ENUM(MEMREG_GONE);

#define memreg_show_mmu_event(_event)					\
	__print_symbolic(_event,					\
			 { MMU_NOTIFY_UNMAP, "unmap" },			\
			 { MMU_NOTIFY_CLEAR, "clear" },			\
			 { MMU_NOTIFY_PROTECTION_VMA, "protection-vma" }, \
			 { MMU_NOTIFY_PROTECTION_PAGE, "protection-page" }, \
			 { MMU_NOTIFY_SOFT_DIRTY, "soft-dirty" },	\
			 { MMU_NOTIFY_RELEASE, "release" },		\
			 { MMU_NOTIFY_MIGRATE, "migrate" },		\
			 { MMU_NOTIFY_EXCLUSIVE, "exclusive" })

#define memreg_show_verdict(_verdict)					\
	__print_symbolic(_verdict,					\
			 { MEMREG_SAME, "ignored" },			\
			 { MEMREG_SUSPECT, "suspect" },			\
			 { MEMREG_GONE, "revoke" })

TRACE_EVENT(memreg_guard_event,
	TP_PROTO(const struct memreg_region *region,
		 const struct mmu_notifier_range *range,
		 enum memreg_verdict verdict),
	TP_ARGS(region, range, verdict),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u64, length)
		__field(unsigned long, start)
		__field(unsigned long, end)
		__field(u32, dev)
		__field(u32, event)
		__field(u32, verdict)
	),
	TP_fast_assign(
		__entry->addr = region->addr;
		__entry->length = region->length;
		__entry->start = range->start;
		__entry->end = range->end;
		__entry->dev = region->mdev->ibdev->index;
		__entry->event = range->event;
		__entry->verdict = verdict;
	),
	TP_printk("dev=%u addr=0x%llx length=%llu event=%s start=0x%lx end=0x%lx verdict=%s",
		  __entry->dev, __entry->addr, __entry->length,
		  memreg_show_mmu_event(__entry->event), __entry->start,
		  __entry->end, memreg_show_verdict(__entry->verdict))
);

TRACE_DEFINE_ENUM(IB_MEMREG_STAT_GUARD_UNCHANGED);
TRACE_DEFINE_ENUM(IB_MEMREG_STAT_GUARD_LATER);
TRACE_DEFINE_ENUM(IB_MEMREG_STAT_GUARD_GONE);
TRACE_DEFINE_ENUM(IB_MEMREG_STAT_GUARD_SPURIOUS);

#define memreg_show_outcome(_outcome)					\
	__print_symbolic(_outcome,					\
			 { IB_MEMREG_STAT_GUARD_UNCHANGED, "unchanged" }, \
			 { IB_MEMREG_STAT_GUARD_LATER, "later" },	\
			 { IB_MEMREG_STAT_GUARD_GONE, "gone" },		\
			 { IB_MEMREG_STAT_GUARD_SPURIOUS, "spurious" })

TRACE_EVENT(memreg_guard_look,
	TP_PROTO(const struct memreg_region *region,
		 enum ib_memreg_stat_id outcome),
	TP_ARGS(region, outcome),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u64, length)
		__field(u32, dev)
		__field(u32, outcome)
	),
	TP_fast_assign(
		__entry->addr = region->addr;
		__entry->length = region->length;
		__entry->dev = region->mdev->ibdev->index;
		__entry->outcome = outcome;
	),
	TP_printk("dev=%u addr=0x%llx length=%llu outcome=%s", __entry->dev,
		  __entry->addr, __entry->length,
		  memreg_show_outcome(__entry->outcome))
);

/*
 * MRs and windows
 */

DECLARE_EVENT_CLASS(memreg_mr,
	TP_PROTO(const struct memreg_mr *mr),
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
		     TP_PROTO(const struct memreg_mr *mr),		\
		     TP_ARGS(mr))

MEMREG_MR_EVENT(mr_register);
MEMREG_MR_EVENT(mr_deregister);

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

/*
 * Pools and requests of other modules
 */

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
		__field(u32, index)
		__field(u32, rkey)
		__field(u32, state)
	),
	TP_fast_assign(
		__assign_str(pool);
		__entry->dev = mr->pool->pd->device->index;
		__entry->index = mr->index;
		__entry->rkey = mr->fast.mr->rkey;
		__entry->state = mr->state;
	),
	TP_printk("dev=%u pool=%s mr=%u rkey=0x%08x state=%s", __entry->dev,
		  __get_str(pool), __entry->index, __entry->rkey,
		  memreg_show_mr_state(__entry->state))
);

#define MEMREG_POOL_MR_EVENT(_name)					\
	DEFINE_EVENT(memreg_pool_mr, memreg_##_name,			\
		     TP_PROTO(const struct ib_memreg_mr *mr),		\
		     TP_ARGS(mr))

MEMREG_POOL_MR_EVENT(pool_take);
MEMREG_POOL_MR_EVENT(pool_put);
MEMREG_POOL_MR_EVENT(pool_replace);
MEMREG_POOL_MR_EVENT(req_register);
MEMREG_POOL_MR_EVENT(req_invalidate);

TRACE_EVENT(memreg_req_map,
	TP_PROTO(const struct ib_memreg_mr *mr),
	TP_ARGS(mr),
	TP_STRUCT__entry(
		__string(pool, mr->pool->name)
		__field(u64, iova)
		__field(u32, dev)
		__field(u32, index)
		__field(u32, rkey)
		__field(u32, length)
		__field(u32, nents)
		__field(u32, access)
	),
	TP_fast_assign(
		__assign_str(pool);
		__entry->iova = mr->fast.mr->iova;
		__entry->dev = mr->pool->pd->device->index;
		__entry->index = mr->index;
		__entry->rkey = mr->fast.mr->rkey;
		__entry->length = mr->length;
		__entry->nents = mr->nents;
		__entry->access = mr->fast.wr.access;
	),
	TP_printk("dev=%u pool=%s mr=%u rkey=0x%08x iova=0x%llx length=%u nents=%u access=0x%x",
		  __entry->dev, __get_str(pool), __entry->index,
		  __entry->rkey, __entry->iova, __entry->length,
		  __entry->nents, __entry->access)
);

TRACE_EVENT(memreg_req_fail,
	TP_PROTO(const struct ib_memreg_req *req, const struct ib_wc *wc),
	TP_ARGS(req, wc),
	TP_STRUCT__entry(
		__string(pool, req->pool->name)
		__field(u32, dev)
		__field(u32, status)
		__field(u32, vendor_err)
	),
	TP_fast_assign(
		__assign_str(pool);
		__entry->dev = req->pool->pd->device->index;
		__entry->status = wc->status;
		__entry->vendor_err = wc->vendor_err;
	),
	TP_printk("dev=%u pool=%s wc_status=%u vendor_err=0x%x", __entry->dev,
		  __get_str(pool), __entry->status, __entry->vendor_err)
);

TRACE_EVENT(memreg_req_bogus,
	TP_PROTO(const struct ib_memreg_req *req, u32 rkey),
	TP_ARGS(req, rkey),
	TP_STRUCT__entry(
		__string(pool, req->pool->name)
		__field(u32, dev)
		__field(u32, rkey)
	),
	TP_fast_assign(
		__assign_str(pool);
		__entry->dev = req->pool->pd->device->index;
		__entry->rkey = rkey;
	),
	TP_printk("dev=%u pool=%s rkey=0x%08x", __entry->dev, __get_str(pool),
		  __entry->rkey)
);

#endif /* _MEMREG_TRACE_H */

/* Kbuild has this directory among those that headers are looked for in. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
