/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints of watches: see kernel/trace.h. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_memreg

#if !defined(_MEMREG_WATCH_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MEMREG_WATCH_TRACE_H

#include <linux/tracepoint.h>

#include "device.h"
#include "watch/watch.h"

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
	TP_PROTO(const struct memreg_kwatch *watch,
		 const struct mmu_notifier_range *range,
		 enum memreg_verdict verdict),
	TP_ARGS(watch, range, verdict),
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
		__entry->addr = watch->addr;
		__entry->length = watch->length;
		__entry->start = range->start;
		__entry->end = range->end;
		__entry->dev = watch->mdev->ibdev->index;
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
	TP_PROTO(const struct memreg_kwatch *watch,
		 enum ib_memreg_stat_id outcome),
	TP_ARGS(watch, outcome),
	TP_STRUCT__entry(
		__field(u64, addr)
		__field(u64, length)
		__field(u32, dev)
		__field(u32, outcome)
	),
	TP_fast_assign(
		__entry->addr = watch->addr;
		__entry->length = watch->length;
		__entry->dev = watch->mdev->ibdev->index;
		__entry->outcome = outcome;
	),
	TP_printk("dev=%u addr=0x%llx length=%llu outcome=%s", __entry->dev,
		  __entry->addr, __entry->length,
		  memreg_show_outcome(__entry->outcome))
);

#endif /* _MEMREG_WATCH_TRACE_H */

/* Kbuild adds kernel/ to the include path. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH watch
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
