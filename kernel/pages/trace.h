/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints of regions: see kernel/trace.h. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_memreg

#if !defined(_MEMREG_PAGES_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MEMREG_PAGES_TRACE_H

#include <linux/tracepoint.h>

#include "device.h"
#include "pages/region.h"

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
		__entry->dev = region->mdev->index;
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

#endif /* _MEMREG_PAGES_TRACE_H */

/* Kbuild adds kernel/ to the include path. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH pages
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
