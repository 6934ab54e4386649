/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints on every change of state in the core: files. Those of a folder
 * are in its trace.h.
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

#include "core.h"
#include "device.h"

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

#endif /* _MEMREG_TRACE_H */

/* Kbuild has kernel/ among the directories that headers are looked for in. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
