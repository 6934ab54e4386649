/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A call of SUBMIT in progress.
 */
#ifndef _MEMREG_CONN_SUB_H
#define _MEMREG_CONN_SUB_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <uapi/rdma/ib_memreg.h>

#include "conn/extents.h"
#include "conn/queue.h"
#include "conn/slot.h"

struct memreg_domain;
struct memreg_endpoint;
struct memreg_kmr;
struct memreg_ucmd;
struct memreg_uring;

/* Maximum bytes of inline data of the work requests of a chunk. */
#define MEMREG_SUBMIT_DATA	(MEMREG_SUBMIT_CHUNK * IB_MEMREG_INLINE_MAX)

/* Most work requests on a chain, and most parts of one work request. */
#define MEMREG_CHAIN		32

/**
 * union memreg_device_wr - A work request for the device
 * @send: SENDs
 * @rdma: READ and WRITE
 * @atomic: Atomics
 * @reg: BIND
 * @recv: Receives
 */
union memreg_device_wr {
	struct ib_send_wr send;
	struct ib_rdma_wr rdma;
	struct ib_atomic_wr atomic;
	struct ib_reg_wr reg;
	struct ib_recv_wr recv;
};

/**
 * struct memreg_insert - An rkey that goes into the next message
 * @rkey: The rkey
 * @at: First byte of the inline data that it goes to
 */
struct memreg_insert {
	u32 rkey;
	u32 at;
};

/**
 * struct memreg_scratch - Room for a call to work in
 * @wrs: A chunk of the user's work requests
 * @side: Position of the inline data of each, or of its SGEs if it has more
 *	than one
 * @sges: SGEs of work requests that have more than one
 * @data: Their inline data
 * @device_wrs: A chain of work requests for the device
 * @device_sges: Their SGEs
 * @slots: Their slots
 * @owners: Index in @wrs of each slot's work request
 * @inserts: rkeys of BINDs to be inserted into the message behind them
 * @resolved: Local memory of the current work request
 * @extents: Extents of MRs on demand
 * @keep: Keep it in memreg_file.scratch; set when it is allocated
 *
 * Unlike variables on the stack, this memory is not initialized for each call.
 */
struct memreg_scratch {
	struct ib_memreg_wr wrs[MEMREG_SUBMIT_CHUNK];
	const void *side[MEMREG_SUBMIT_CHUNK];
	struct ib_memreg_sge sges[MEMREG_SUBMIT_SGES];
	u8 data[MEMREG_SUBMIT_DATA];
	union memreg_device_wr device_wrs[MEMREG_CHAIN];
	struct ib_sge device_sges[MEMREG_CHAIN * MEMREG_FRAGMENTS];
	struct memreg_slot *slots[MEMREG_CHAIN];
	u32 owners[MEMREG_CHAIN];
	struct memreg_insert inserts[IB_MEMREG_INSERTS_MAX];
	struct memreg_slot_sge resolved[IB_MEMREG_SGE_MAX];
	struct memreg_extents extents;
	bool keep;
};

/**
 * struct memreg_sub - A call of SUBMIT in progress
 * @ucmd: The call
 * @uring: The command, if it is one of io_uring; otherwise NULL
 * @wrs: The caller's array of work requests
 * @count: Their number
 * @opcodes: Mask of the opcodes that can be submitted
 * @longest: Bytes of a message, at most
 * @answers: The chunk has a BIND, whose key has to be returned
 * @base: Number of work requests before this chunk
 * @s: Scratch memory
 * @loaded: Work requests in the chunk
 * @ep: Endpoint that was found last, with a reference
 * @mr: MR that was found last, with a reference
 * @first: Entry of the MR's memory that was found last
 * @on_demand: The chunk may use MRs on demand: see memreg_scratch.extents
 * @looked: MR or extent that @first belongs to, if @on_demand
 * @again: The memory changed meanwhile: find its extents again
 * @good: Number of work requests of the next chunk before the first one whose
 *	memory cannot be pinned; 0 if there is no such one
 * @faults: Faults taken since a work request was posted
 * @retries: Times since then that extents were found again
 * @insert_target: Target whose next message the inserts are for
 * @nr_inserts: Number of memreg_scratch.inserts
 * @queue: Queue that the chain is for
 * @domain: Its domain
 * @lkey: Key for DMA addresses there
 * @max: SGEs that the device takes there
 * @end: End of the work requests of this chunk that are for @queue
 * @room: Slots and entries of the ring that are reserved and not used yet
 * @nr: Length of the chain
 * @nr_sges: SGEs in the chain
 * @nr_resolved: Number of memreg_scratch.resolved
 */
struct memreg_sub {
	struct memreg_ucmd *ucmd;
	struct memreg_uring *uring;
	struct ib_memreg_wr __user *wrs;
	u32 count;
	u64 opcodes;
	u32 longest;
	bool answers;
	u32 base;
	struct memreg_scratch *s;
	u32 loaded;
	struct memreg_endpoint *ep;
	struct memreg_kmr *mr;
	u32 first;
	bool on_demand;
	struct memreg_kmr *looked;
	bool again;
	u32 good;
	u32 faults;
	u32 retries;
	u32 insert_target;
	u32 nr_inserts;
	struct memreg_queue *queue;
	struct memreg_domain *domain;
	u32 lkey;
	u32 max;
	u32 end;
	u32 room;
	u32 nr;
	u32 nr_sges;
	u32 nr_resolved;
};

#endif /* _MEMREG_CONN_SUB_H */
