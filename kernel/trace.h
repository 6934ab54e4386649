/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints on the state of files. The tracepoints of each folder are in its
 * own trace.h.
 *
 * Objects are named as LIST names them: by the number of their file and their
 * id. Devices are named by their index, as names change. Regions have no id,
 * and are named by their range of memory. A tracepoint looks up its fields
 * itself, so that one that is off costs its caller no more than a branch that
 * is not taken.
 */
/**
 * DOC: Tracepoints
 *
 * Events of the system ib_memreg in tracefs. One that is off costs a branch
 * that is not taken. ``file`` and the ids (``domain``, ``mr``, ``window``,
 * ``lease``, ``endpoint``, ``listener``, ``ring``) are those of ``memreg
 * list``; ``dev`` is the index of the device; memory, which has no id of its
 * own, is named by ``addr`` and ``length``. memreg_complete has ids without
 * their file. The file ``format`` of each event has its fields, by which
 * filters name them.
 *
 * memreg_file_bind
 *	A file is bound to a device.
 * memreg_file_close
 *	A file was closed; all that it had is gone.
 * memreg_domain_create
 *	A domain was made.
 * memreg_domain_destroy
 *	A domain is about to be destroyed.
 * memreg_queue_broken
 *	A registration queue stops working. A worker follows.
 * memreg_queue_rebuilt
 *	The queue works again.
 * memreg_queue_down
 *	The queue could not be rebuilt.
 * memreg_batch_post
 *	Work requests are about to be posted; ``reserve`` if they kill keys, in
 *	room reserved for that.
 * memreg_batch_end
 *	All work requests of a batch have ended, one way or the other.
 * memreg_frwr_alloc
 *	A fast registration MR was made.
 * memreg_frwr_reuse
 *	An idle FRWR is taken.
 * memreg_frwr_foreign
 *	An idle FRWR is about to be destroyed, since it was for another range
 *	last.
 * memreg_frwr_map
 *	An FRWR is pointed to memory, or is already; ``rkey`` is the new key.
 * memreg_frwr_fail
 *	A work request of an FRWR failed; ``status``, printed as ``wc_status``,
 *	is from ``enum ib_wc_status``.
 * memreg_frwr_idle
 *	The key of an FRWR is dead, and the FRWR rests.
 * memreg_frwr_destroy
 *	An FRWR, or a driver's MR, is about to be destroyed.
 * memreg_key_publish
 *	A key works from now on, and guards know of it.
 * memreg_key_claim
 *	A call or a guard is about to kill a key, or a call takes back one that
 *	is dead.
 * memreg_region_pin
 *	Pages were pinned and mapped for the device.
 * memreg_region_unpin
 *	Pages were unpinned.
 * memreg_region_stale
 *	The memory went, or may have gone: no key to it is made any more, and
 *	those that there are die.
 * memreg_guard_event
 *	The kernel announces a change of guarded memory. ``event`` is what it
 *	announces, for the range from ``start`` to ``end``; ``verdict`` is what
 *	follows: ``revoke``, ``suspect`` or ``ignored``.
 * memreg_guard_look
 *	A worker, or MR_QUERY, looked at memory: the ``outcome`` is
 *	``unchanged``, ``later``, ``gone`` or ``spurious``, as the counters have
 *	it.
 * memreg_guard_timeout
 *	A wait for keys to die ran out.
 * memreg_mr_register
 *	An MR was registered.
 * memreg_mr_reregister
 *	An MR was changed: this is its new state.
 * memreg_mr_deregister
 *	An MR is about to be deregistered.
 * memreg_demand_fault
 *	A range of an MR on demand was not pinned when it was used, and an
 *	extent of its pages was made. It took ``ns`` nanoseconds, faults in user
 *	space included. ``write`` is 1 if the pages may be written to.
 * memreg_demand_prefetch
 *	An extent was made by advice.
 * memreg_demand_miss
 *	Pages are missing, or not as they are needed: the call lets go of all
 *	that it has, faults them in, and begins anew.
 * memreg_demand_hit
 *	A range was pinned when it was used, in the extent that is named.
 * memreg_demand_invalidate
 *	The mapping of an extent changed: the next use faults anew.
 * memreg_demand_evict
 *	Nobody uses an extent, and its pages are about to be unpinned.
 * memreg_window_bind
 *	A window is bound.
 * memreg_window_revoke
 *	A window was revoked.
 * memreg_lease_expire
 *	The deadline of a lease has come, ``late`` nanoseconds ago; what is
 *	granted under it is about to be revoked.
 * memreg_endpoint_state
 *	An endpoint has a new state.
 * memreg_complete
 *	A completion is reported, in a ring or to io_uring. ``opcode``,
 *	``status`` and ``flags`` are those of struct ib_memreg_cqe.
 * memreg_bogus_invalidate
 *	A peer invalidated ``rkey``, which it had not been granted. Its
 *	connection is ended.
 * memreg_pool_take
 *	An MR of a kernel module's ``pool`` is taken. ``index``, printed as
 *	``mr``, is its number there.
 * memreg_pool_put
 *	The MR is put back.
 * memreg_pool_replace
 *	The MR was destroyed, since its state was unknown or packets might have
 *	been in flight, and allocated anew.
 * memreg_req_map
 *	An MR was pointed to memory of a request; ``rkey`` is the new key.
 * memreg_req_register
 *	The REG_MR of that MR is about to be posted.
 * memreg_req_invalidate
 *	If ``state`` is ``remote``, the peer has invalidated the key. If it is
 *	``local``, LOCAL_INV is about to be posted.
 * memreg_req_fail
 *	A work request of a kernel module's request failed or was flushed;
 *	``status``, printed as ``wc_status``, is from ``enum ib_wc_status``.
 * memreg_req_bogus
 *	A peer said that it has invalidated ``rkey``, which is no key of the
 *	request that works.
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

/* Kbuild adds kernel/ to the include path. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
