// SPDX-License-Identifier: GPL-2.0-only
/*
 * Submission: an array of work requests from a user, for one or several
 * endpoints, becomes chains of work requests for their QPs.
 *
 * A call processes its array in chunks. First it copies all data in user space
 * that a chunk refers to, as user space must not be accessed with a queue's
 * lock held. Then it checks consecutive work requests for the same queue one by
 * one, and puts them on a chain that is posted by one call. Each work request
 * takes a slot, an entry of the ring, and references of its MRs before it is
 * put on the chain; after that only the post can fail, which returns the first
 * work request that was not posted. Work requests that were not posted release
 * what they took.
 *
 * Local memory is passed to the device by DMA addresses under the PD's
 * local_dma_lkey: the range was checked against an MR, whose pages are pinned
 * until the completion (I6). A READ or WRITE of more pieces than the device
 * takes in a work request is split into parts, each in a slot of its own.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "conn/closer.h"
#include "conn/endpoint.h"
#include "conn/extents.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/slot.h"
#include "conn/srq.h"
#include "conn/submit.h"
#include "conn/submit_wr.h"
#include "conn/uring.h"
#include "conn/window_2b.h"
#include "core.h"
#include "device.h"
#include "inject.h"
#include "mem/demand.h"
#include "mem/domain.h"
#include "mem/frwr.h"
#include "mem/key.h"
#include "mem/keyed.h"
#include "mem/mr.h"
#include "mem/region.h"
#include "quirks.h"
#include "stats.h"

/* Most bytes of inline data of the work requests of a chunk. */
#define MEMREG_SUBMIT_DATA	(MEMREG_SUBMIT_CHUNK * IB_MEMREG_INLINE_MAX)

/* Most work requests on a chain, and most parts of one work request. */
#define MEMREG_CHAIN		32

/*
 * At least one of so many work requests of a send queue is signalled by the
 * device, give or take a chain: this limits the number of slots that one
 * completion ends, and frees room that other work requests may wait for.
 */
#define MEMREG_SIGNAL_EVERY	64

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

/*
 * Get scratch memory: each file keeps one; a call that finds it in use
 * allocates another. A file keeps only memory that is charged to the process
 * that bound it. Another process, to which the file was passed, may use that
 * memory, but does not stay charged after its call.
 */

static struct memreg_scratch *memreg_scratch_get(struct memreg_file *file)
{
	struct memreg_scratch *s = xchg(&file->scratch, NULL);

	if (s)
		return s;
	s = kvmalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);
	if (s)
		s->keep = file->pid == task_tgid(current);
	return s;
}

static void memreg_scratch_put(struct memreg_file *file,
			       struct memreg_scratch *s)
{
	kvfree(s->keep ? xchg(&file->scratch, s) : s);
}

/*
 * Copying
 */

/* Position for the next SGEs and inline data, and the room left. */
struct memreg_side {
	u32 sges;
	u32 data;
};

/*
 * Copy the inline data of a work request, or its SGEs if it has more than one.
 * Returns -ENOBUFS if this chunk has no room left for them, but a new chunk
 * would.
 */
static int memreg_load_side(struct memreg_sub *sub, u32 i,
			    struct memreg_side *side)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	void __user *from = u64_to_user_ptr(wr->sges);
	void *to;

	if (wr->flags & IB_MEMREG_WR_INLINE) {
		if (wr->length > IB_MEMREG_INLINE_MAX)
			return memreg_fail(sub->ucmd, -EINVAL,
					   IB_MEMREG_REASON_INLINE);
		to = sub->s->data + side->data;
		sub->s->side[i] = to;
		side->data += wr->length;
		return copy_from_user(to, from, wr->length) ? -EFAULT : 0;
	}
	if (wr->num_sge > IB_MEMREG_SGE_MAX)
		return memreg_fail(sub->ucmd, -EINVAL, IB_MEMREG_REASON_SGES);
	if (side->sges + wr->num_sge > MEMREG_SUBMIT_SGES)
		return -ENOBUFS;
	to = &sub->s->sges[side->sges];
	sub->s->side[i] = to;
	side->sges += wr->num_sge;
	return copy_from_user(to, from, wr->num_sge *
			      sizeof(struct ib_memreg_sge)) ? -EFAULT : 0;
}

/* Check that the key of a BIND can be written back to the user. */
static int memreg_load_answer(struct memreg_sub *sub, u32 i,
			      struct ib_memreg_wr __user *from)
{
	sub->answers = true;
	return put_user(0, &from[i].rkey) || put_user(0, &from[i].remote_addr) ?
	       -EFAULT : 0;
}

/*
 * Copy the next work requests of a call, as many as fit. Fails only if the
 * first one cannot be copied.
 */
static int memreg_load(struct memreg_sub *sub, u32 taken)
{
	struct ib_memreg_wr __user *from = sub->wrs + taken;
	const struct ib_memreg_wr *wr = sub->s->wrs;
	struct memreg_side side = {};
	size_t size, left;
	u32 i, count;
	int ret;

	size = min_t(u32, sub->count - taken, MEMREG_SUBMIT_CHUNK) *
	       sizeof(*from);
	left = copy_from_user(sub->s->wrs, from, size);
	count = (size - left) / sizeof(*from);
	sub->answers = false;
	ret = -EFAULT;
	for (i = 0; i < count; i++, wr++) {
		ret = 0;
		if (wr->num_sge > 1 || wr->flags & IB_MEMREG_WR_INLINE)
			ret = memreg_load_side(sub, i, &side);
		if (!ret && wr->opcode == IB_MEMREG_OP_BIND)
			ret = memreg_load_answer(sub, i, from);
		if (ret)
			break;
	}
	sub->loaded = i;
	if (!i)
		return ret;
	/*
	 * The error is reported when this work request is the first of a chunk.
	 */
	return memreg_fail(sub->ucmd, 0, IB_MEMREG_REASON_NONE);
}

/*
 * Opcodes that need resources of the peer; without these they never complete.
 */
#define MEMREG_OPS_ANSWERED					\
	(BIT_ULL(IB_MEMREG_OP_READ) |				\
	 BIT_ULL(IB_MEMREG_OP_CMP_AND_SWP) |			\
	 BIT_ULL(IB_MEMREG_OP_FETCH_AND_ADD) |			\
	 BIT_ULL(IB_MEMREG_OP_ATOMIC_WRITE))

/*
 * Local memory
 */

/* Find an MR; holds a reference until the next one is looked up. */
static noinline struct memreg_kmr *memreg_sub_find_mr(struct memreg_sub *sub,
						      u32 id)
{
	struct memreg_object *obj;

	obj = memreg_object_get(sub->ucmd->file, id, IB_MEMREG_OBJECT_MR);
	if (!obj)
		return ERR_PTR(memreg_fail(sub->ucmd, -ENOENT,
					   IB_MEMREG_REASON_ID));
	if (sub->mr)
		memreg_object_put(&sub->mr->obj);
	sub->mr = container_of(obj, struct memreg_kmr, obj);
	sub->first = 0;
	return sub->mr;
}

/* Find an MR, often the one that was found last. */
static inline struct memreg_kmr *memreg_sub_mr(struct memreg_sub *sub, u32 id)
{
	if (sub->uring && sub->uring->mr)
		return sub->uring->mr;
	if (sub->mr && sub->mr->obj.id == id)
		return sub->mr;
	return memreg_sub_find_mr(sub, id);
}

/* The place of the extent for an SGE of this chunk. */
static struct memreg_kmr **memreg_sub_extent(struct memreg_sub *sub,
					     const struct ib_memreg_sge *sge)
{
	const struct ib_memreg_sge *sges = sub->s->sges;

	if (sge >= sges && sge < sges + MEMREG_SUBMIT_SGES)
		return &sub->s->extents.of_sge[sge - sges];
	return &sub->s->extents.of_wr[container_of(sge, struct ib_memreg_wr,
						   sge) - sub->s->wrs];
}

/* Find the extent or the MR that an SGE names, where there may be extents. */
static noinline struct memreg_kmr *
memreg_sub_target(struct memreg_sub *sub, const struct ib_memreg_sge *sge)
{
	struct memreg_kmr *mr = *memreg_sub_extent(sub, sge);

	if (!mr)
		mr = memreg_sub_mr(sub, sge->mr_id);
	if (mr != sub->looked) {
		sub->looked = mr;
		sub->first = 0;
	}
	return mr;
}

/* Fail because a range is not inside its MR. */
static noinline int memreg_bad_range(struct memreg_sub *sub,
				     const struct ib_memreg_sge *sge)
{
	u64 end;

	if (check_add_overflow(sge->offset, (u64)sge->length, &end))
		return memreg_fail(sub->ucmd, -EOVERFLOW,
				   IB_MEMREG_REASON_WRAPS);
	return memreg_fail(sub->ucmd, -EINVAL, IB_MEMREG_REASON_RANGE);
}

/* Check a range of an MR, and its access (I6). */
static inline int memreg_check_sge(struct memreg_sub *sub,
				   const struct memreg_kmr *mr,
				   const struct ib_memreg_sge *sge, bool write)
{
	if (mr->single)
		return memreg_fail(sub->ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_SINGLE_KEY);
	if (READ_ONCE(mr->region->guard.stale)) {
		sub->again = mr->whole;
		return memreg_fail(sub->ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
	}
	if (sge->offset > mr->length || sge->length > mr->length - sge->offset)
		return memreg_bad_range(sub, sge);
	if (write && !(mr->access & IB_MEMREG_ACCESS_LOCAL_WRITE))
		return memreg_fail(sub->ucmd, -EACCES,
				   IB_MEMREG_REASON_LOCAL_WRITE);
	/* The MR was registered after the extents of the chunk were found. */
	if (mr->demand && sge->length) {
		sub->again = true;
		return memreg_fail(sub->ucmd, -EAGAIN,
				   IB_MEMREG_REASON_UNSTEADY);
	}
	return 0;
}

static void memreg_unresolve(struct memreg_sub *sub)
{
	memreg_slot_sges_put(sub->s->resolved, sub->nr_resolved);
	sub->nr_resolved = 0;
}

/*
 * Find the MR that an SGE names, check its range, and find the entry of the
 * MR's memory in which the range begins: @first, unless the range is empty.
 */
static inline struct memreg_kmr *
memreg_sub_range(struct memreg_sub *sub, const struct ib_memreg_sge *sge,
		 bool write)
{
	struct memreg_kmr *mr = sub->on_demand ? memreg_sub_target(sub, sge) :
						memreg_sub_mr(sub, sge->mr_id);
	int ret;

	if (IS_ERR(mr))
		return mr;
	ret = memreg_check_sge(sub, mr, sge, write);
	if (ret)
		return ERR_PTR(ret);
	if (mr->region->keyed && mr->domain != sub->domain)
		return ERR_PTR(memreg_fail(sub->ucmd, -EINVAL,
					   IB_MEMREG_REASON_DOMAIN));
	/* Consecutive ranges are often in the same entry. */
	if (sge->length &&
	    !memreg_region_has(mr->region, sub->first, sge->offset))
		sub->first = memreg_region_find(mr->region, sge->offset);
	return mr;
}

/*
 * Find and check the range of an MR that an SGE names, and take a reference of
 * the MR.
 */
static int memreg_resolve_sge(struct memreg_sub *sub,
			      const struct ib_memreg_sge *sge, bool write)
{
	struct memreg_kmr *mr = memreg_sub_range(sub, sge, write);

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	if (!sge->length)
		return 0;
	sub->s->resolved[sub->nr_resolved] = (struct memreg_slot_sge) {
		.mr = mr, .length = sge->length, .first = sub->first,
		.offset = sge->offset,
	};
	memreg_slot_sge_keep(sub->s->resolved, sub->nr_resolved++);
	return 0;
}

/* Find the MRs of a work request, and check their ranges. */
static int memreg_resolve(struct memreg_sub *sub, u32 i, bool write)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	u32 n, count = wr->num_sge;
	const struct ib_memreg_sge *sge = count > 1 ? sub->s->side[i] :
						      &wr->sge;
	u64 total = 0;
	int ret;

	for (n = 0; n < count; n++, sge++) {
		ret = memreg_resolve_sge(sub, sge, write);
		total += sge->length;
		/* The limit of a message in the IB specification, 9.7.1. */
		if (!ret && total > SZ_2G)
			ret = memreg_fail(sub->ucmd, -EINVAL,
					  IB_MEMREG_REASON_SPAN);
		if (ret) {
			memreg_unresolve(sub);
			return ret;
		}
	}
	return 0;
}

/*
 * Get the DMA address of a range that memreg_sub_range() has found. Returns
 * false if the range is in more than one piece.
 */
static inline bool memreg_sub_piece(const struct memreg_sub *sub,
				    const struct memreg_kmr *mr,
				    const struct ib_memreg_sge *sge, u64 *addr)
{
	const struct memreg_region *region = mr->region;

	if (!sge->length || region->keyed ||
	    !memreg_region_has(region, sub->first,
			       sge->offset + sge->length - 1))
		return false;
	*addr = sg_dma_address(&region->sgl[sub->first]) + sge->offset -
		region->offsets[sub->first];
	return true;
}

/* Record the range as the only one of a slot. */
static inline void memreg_slot_keep(const struct memreg_sub *sub,
				    struct memreg_slot *slot,
				    struct memreg_kmr *mr,
				    const struct ib_memreg_sge *sge)
{
	refcount_inc(&mr->obj.users);
	slot->sges[0].mr = mr;
	slot->sges[0].length = sge->length;
	slot->sges[0].first = sub->first;
	slot->sges[0].offset = sge->offset;
	slot->nr_sges = 1;
}

/*
 * Chains
 */

static int memreg_sub_lock(struct memreg_sub *sub, struct memreg_queue *queue)
{
	if (sub->uring)
		return memreg_uring_lock(sub->uring, &queue->lock);
	return mutex_lock_killable(&queue->lock) ? -EINTR : 0;
}

static int memreg_no_room(struct memreg_sub *sub, int err)
{
	if (err == -ENOSPC)
		return memreg_fail(sub->ucmd, -EAGAIN,
				   IB_MEMREG_REASON_QUEUE_FULL);
	memreg_count(sub->ucmd->mdev, IB_MEMREG_STAT_RING_FULL, 1);
	return memreg_fail(sub->ucmd, -EAGAIN, IB_MEMREG_REASON_RING_FULL);
}

/* Release reserved room that was not used. */
static void memreg_sub_unreserve(struct memreg_sub *sub)
{
	memreg_ring_unclaim(sub->queue->ring, sub->room);
	sub->room = 0;
}

/*
 * Reserve room for a work request, and at the same time for all those behind it
 * if there is enough.
 */
static int memreg_sub_reserve_more(struct memreg_sub *sub, u32 i, u32 parts)
{
	u32 all = parts + sub->end - i - 1;
	int ret;

	memreg_sub_unreserve(sub);
	ret = memreg_queue_reserve(sub->queue, all);
	if (ret && all > parts) {
		all = parts;
		ret = memreg_queue_reserve(sub->queue, all);
	}
	if (ret)
		return memreg_no_room(sub, ret);
	sub->room = all - parts;
	return 0;
}

/* Reserve room for a work request. */
static inline int memreg_sub_reserve(struct memreg_sub *sub, u32 i, u32 parts)
{
	if (sub->room < parts)
		return memreg_sub_reserve_more(sub, i, parts);
	sub->room -= parts;
	return 0;
}

/*
 * Begin with the work requests up to @end, which are for a queue whose lock is
 * held.
 */
static void memreg_sub_begin(struct memreg_sub *sub, struct memreg_queue *queue,
			     struct memreg_domain *domain, u32 max, u32 end)
{
	sub->queue = queue;
	sub->domain = domain;
	sub->lkey = domain->pd->local_dma_lkey;
	sub->max = max;
	sub->end = end;
	sub->room = 0;
}

/* Append a slot's work request to the chain. The caller fills it in. */
static inline union memreg_device_wr *
memreg_chain_add(struct memreg_sub *sub, struct memreg_slot *slot, u32 owner)
{
	union memreg_device_wr *wr = &sub->s->device_wrs[sub->nr];

	/* Posting cuts off the link of the last work request. */
	wr->send.next = &wr[1].send;
	sub->s->slots[sub->nr] = slot;
	sub->s->owners[sub->nr] = owner;
	sub->nr++;
	return wr;
}

/* Undo the work requests that were not posted, last one first. */
static void memreg_chain_undo(struct memreg_sub *sub, u32 from)
{
	while (sub->nr > from) {
		struct memreg_slot *slot = sub->s->slots[--sub->nr];

		if (sub->queue->send) {
			sub->queue->fenced = false;
			memreg_window_post_undo(slot);
		}
		memreg_queue_undo(slot);
	}
}

/* Index in the chain of the first work request that was not posted. */
static u32 memreg_chain_find(const struct memreg_sub *sub, const void *bad)
{
	u32 i;

	for (i = 0; i < sub->nr; i++)
		if (bad == &sub->s->device_wrs[i])
			return i;
	return 0;
}

/*
 * Is the slot that of the fence before a BIND, which counts for no work
 * request?
 */
static bool memreg_slot_is_fence(const struct memreg_slot *slot)
{
	/* SENDs are never split into parts. */
	return slot->part && slot->opcode == IB_MEMREG_OP_SEND;
}

/* Count the user's work requests whose last part is in the chain. */
static u32 memreg_chain_count(const struct memreg_sub *sub)
{
	u32 last = sub->nr - 1;

	return sub->s->owners[last] - sub->s->owners[0] +
	       !memreg_slot_is_fence(sub->s->slots[last]);
}

/* Signal the last work request of a chain if one is due. */
static void memreg_chain_signal(struct memreg_sub *sub)
{
	union memreg_device_wr *wrs = sub->s->device_wrs;
	struct memreg_queue *queue = sub->queue;
	u32 i;

	for (i = sub->nr; i; i--)
		if (wrs[i - 1].send.send_flags & IB_SEND_SIGNALED)
			break;
	queue->unsignalled = sub->nr - i + (i ? 0 : queue->unsignalled);
	/* The last work request of a command always completes. */
	if (sub->uring || queue->unsignalled >= MEMREG_SIGNAL_EVERY) {
		wrs[sub->nr - 1].send.send_flags |= IB_SEND_SIGNALED;
		queue->unsignalled = 0;
	}
}

/*
 * Post the chain, and begin a new one. If the post fails, @taken is the index
 * of the user's first work request that was not posted.
 */
static int memreg_chain_post(struct memreg_sub *sub,
			     int (*post)(struct memreg_sub *sub,
					 const void **bad), u32 *taken)
{
	const void *bad = sub->s->device_wrs;
	u32 from;
	int ret;

	if (!sub->nr)
		return 0;
	/* The link is the first member of send and receive work requests. */
	static_assert(!offsetof(struct ib_send_wr, next));
	static_assert(!offsetof(struct ib_recv_wr, next));
	sub->s->device_wrs[sub->nr - 1].send.next = NULL;
	if (sub->queue->send)
		memreg_chain_signal(sub);
	ret = post(sub, &bad);
	if (!ret) {
		memreg_count(sub->ucmd->mdev, IB_MEMREG_STAT_WRS_SUBMITTED,
			     memreg_chain_count(sub));
		sub->nr = 0;
		sub->nr_sges = 0;
		return 0;
	}
	from = memreg_chain_find(sub, bad);
	/*
	 * The signalled work request may not have been posted: signal the next
	 * one.
	 */
	sub->queue->unsignalled = MEMREG_SIGNAL_EVERY;
	*taken = sub->s->owners[from];
	/*
	 * A work request was posted only in part, or a command without its last
	 * work request, which is signalled.
	 */
	if (from && ((sub->uring && sub->queue->send) ||
		     (sub->s->owners[from - 1] == *taken &&
		      !memreg_slot_is_fence(sub->s->slots[from - 1]))))
		memreg_endpoint_close(sub->queue->ep);
	memreg_count(sub->ucmd->mdev, IB_MEMREG_STAT_WRS_SUBMITTED,
		     *taken - sub->s->owners[0]);
	memreg_chain_undo(sub, from);
	sub->nr = 0;
	sub->nr_sges = 0;
	/* Replace a reason that was set for a later work request. */
	return memreg_fail(sub->ucmd, ret == -ENOMEM ? ret : -EIO,
			   IB_MEMREG_REASON_NONE);
}

static int memreg_post_send(struct memreg_sub *sub, const void **bad)
{
	return memreg_inject_post_send(sub->queue->ep->id->qp,
				       &sub->s->device_wrs[0].send,
				       (const struct ib_send_wr **)bad);
}

static int memreg_post_recv(struct memreg_sub *sub, const void **bad)
{
	return ib_post_recv(sub->queue->ep->id->qp,
			    &sub->s->device_wrs[0].recv,
			    (const struct ib_recv_wr **)bad);
}

static int memreg_post_srq(struct memreg_sub *sub, const void **bad)
{
	return ib_post_srq_recv(sub->queue->srq, &sub->s->device_wrs[0].recv,
				(const struct ib_recv_wr **)bad);
}

/* Sends */

/* Fill in the slot of the last, or only, part of a user's work request. */
static inline void memreg_slot_describe(struct memreg_sub *sub,
					struct memreg_slot *slot, u32 i)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];

	slot->user_data = wr->user_data;
	slot->opcode = wr->opcode;
	slot->signalled = wr->flags & IB_MEMREG_WR_SIGNALED ||
			  wr->opcode == IB_MEMREG_OP_RECV;
	if (!sub->uring)
		return;
	/* A command ends with its last work request. */
	slot->signalled |= sub->base + i + 1 == sub->count;
	memreg_uring_add(sub->uring, slot);
}

/* Flags for the device. */
static inline int memreg_send_flags(const struct ib_memreg_wr *wr,
				    const struct memreg_slot *slot, bool part,
				    u64 done)
{
	int flags = 0;

	if (slot->signalled && !part)
		flags |= IB_SEND_SIGNALED;
	/* Only the first part has to wait for earlier work. */
	if (wr->flags & IB_MEMREG_WR_FENCE && !done)
		flags |= IB_SEND_FENCE;
	if (wr->flags & IB_MEMREG_WR_SOLICITED && !part)
		flags |= IB_SEND_SOLICITED;
	return flags;
}

/*
 * Fill in a work request for the device, or a part of one, except its SGEs and
 * its window.
 */
static inline void memreg_fill_wr(union memreg_device_wr *to,
				  const struct memreg_opcode *op,
				  const struct ib_memreg_wr *wr,
				  struct memreg_slot *slot, bool part, u64 done)
{
	to->send.wr_cqe = &slot->cqe;
	to->send.opcode = part ? op->part : op->wr;
	to->send.send_flags = memreg_send_flags(wr, slot, part, done);
	/* Immediate data, an rkey, or 0 for opcodes with neither. */
	to->send.ex.invalidate_rkey = part ? 0 : wr->ex;
	if (op->atomic) {
		to->atomic.remote_addr = wr->remote_addr;
		to->atomic.compare_add = wr->compare_add;
		to->atomic.swap = wr->swap;
		to->atomic.compare_add_mask = 0;
		to->atomic.swap_mask = 0;
		to->atomic.rkey = wr->rkey;
	} else if (op->remote) {
		to->rdma.remote_addr = wr->remote_addr + done;
		to->rdma.rkey = wr->rkey;
	}
}

/* Progress of a work request that is split into parts. */
struct memreg_progress {
	u32 sge;
	u32 offset;
	u64 done;
};

/*
 * List as much of the local memory as a part can have. Returns the number of
 * SGEs. A slot, unless NULL, gets the ranges that they are from.
 */
static u32 memreg_sub_part(struct memreg_sub *sub, struct memreg_slot *slot,
			   struct ib_sge *sges, struct memreg_progress *at)
{
	u64 end = at->done + sub->longest;
	u32 n = 0;

	while (at->sge < sub->nr_resolved && n < sub->max && at->done < end) {
		const struct memreg_slot_sge *from = &sub->s->resolved[at->sge];
		struct memreg_region *region = from->mr->region;
		u64 offset = from->offset + at->offset;
		u64 left = min_t(u64, from->length - at->offset,
				 end - at->done);
		u64 all = left;

		n += memreg_mr_sges(from->mr, at->offset ?
				    memreg_region_find(region, offset) :
				    from->first, offset, &left, sub->lkey,
				    &sges[n], sub->max - n);
		if (slot) {
			slot->sges[slot->nr_sges] = *from;
			memreg_slot_sge_keep(slot->sges, slot->nr_sges++);
		}
		at->done += all - left;
		at->offset += all - left;
		if (at->offset == from->length) {
			at->offset = 0;
			at->sge++;
		}
	}
	return n;
}

/*
 * Count the parts of a work request that is longer than a message; returns
 * MEMREG_CHAIN + 1 for too many.
 */
static noinline u32 memreg_sub_parts_long(struct memreg_sub *sub)
{
	struct ib_sge sges[MEMREG_FRAGMENTS];
	struct memreg_progress at = {};
	u32 parts = 0;

	do {
		memreg_sub_part(sub, NULL, sges, &at);
		parts++;
	} while (at.sge < sub->nr_resolved && parts <= MEMREG_CHAIN);
	return parts;
}

/* Count the parts of the current work request. */
static u32 memreg_sub_parts(struct memreg_sub *sub, u64 *length)
{
	u32 n, pieces = 0;

	*length = 0;
	for (n = 0; n < sub->nr_resolved; n++) {
		const struct memreg_slot_sge *sge = &sub->s->resolved[n];

		pieces += memreg_mr_fragments(sge->mr, sge->first, sge->offset,
					      sge->length);
		*length += sge->length;
	}
	if (*length > sub->longest)
		return memreg_sub_parts_long(sub);
	return max(DIV_ROUND_UP(pieces, sub->max), 1U);
}

/* Fill in the local memory of a part, as much as it can have. */
static void memreg_fill_part(struct memreg_sub *sub, struct memreg_slot *slot,
			     union memreg_device_wr *to,
			     struct memreg_progress *at)
{
	struct ib_sge *sges = &sub->s->device_sges[sub->nr_sges];
	u32 n = memreg_sub_part(sub, slot, sges, at);

	to->send.sg_list = sges;
	to->send.num_sge = n;
	sub->nr_sges += n;
}

/* Put a work request with local memory on the chain, in as many parts. */
static int memreg_send_parts(struct memreg_sub *sub, u32 i, u32 *taken)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	const struct memreg_opcode *op = &memreg_opcodes[wr->opcode];
	struct memreg_progress at = {};
	u32 parts;
	u64 length;
	int ret;

	parts = memreg_sub_parts(sub, &length);
	if (length > sub->longest && !op->parts)
		return memreg_fail(sub->ucmd, -EMSGSIZE,
				   IB_MEMREG_REASON_SPAN);
	if (parts > 1 && (!op->parts || parts > MEMREG_CHAIN ||
			  parts > sub->queue->depth ||
			  parts > sub->queue->ring->nr_entries))
		return memreg_fail(sub->ucmd, -EMSGSIZE,
				   IB_MEMREG_REASON_FRAGMENTS);
	if (sub->nr + parts > MEMREG_CHAIN) {
		ret = memreg_chain_post(sub, memreg_post_send, taken);
		if (ret)
			return ret;
	}
	ret = memreg_sub_reserve(sub, i, parts);
	if (ret)
		return ret;
	do {
		struct memreg_slot *slot = memreg_queue_next(sub->queue);
		union memreg_device_wr *to = memreg_chain_add(sub, slot, i);
		u64 done = at.done;

		memreg_slot_describe(sub, slot, i);
		memreg_fill_part(sub, slot, to, &at);
		slot->part = at.sge < sub->nr_resolved;
		memreg_fill_wr(to, op, wr, slot, slot->part, done);
		if (op->write)
			slot->length = at.done;
		parts--;
	} while (at.sge < sub->nr_resolved);
	sub->room += parts;
	return 0;
}

/* Put any work request with local memory on the chain. */
static noinline int memreg_send_memory(struct memreg_sub *sub, u32 i,
				       u32 *taken)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	int ret;

	ret = memreg_resolve(sub, i, memreg_opcodes[wr->opcode].write);
	if (ret)
		return ret;
	ret = memreg_send_parts(sub, i, taken);
	memreg_unresolve(sub);
	return ret;
}

/* A work request has one piece of memory. */
static __always_inline void memreg_send_piece(struct memreg_sub *sub,
					      union memreg_device_wr *to,
					      u64 addr, u32 length)
{
	struct ib_sge *sge = &sub->s->device_sges[sub->nr_sges++];

	sge->addr = addr;
	sge->length = length;
	sge->lkey = sub->lkey;
	to->send.sg_list = sge;
	to->send.num_sge = 1;
}

/* Put a plain work request on the chain: most are of one piece. */
static inline int memreg_send_plain(struct memreg_sub *sub, u32 i, u32 *taken)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	const struct memreg_opcode *op = &memreg_opcodes[wr->opcode];
	union memreg_device_wr *to;
	struct memreg_slot *slot;
	struct memreg_kmr *mr;
	u64 addr;
	int ret;

	mr = memreg_sub_range(sub, &wr->sge, op->write);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	if (!memreg_sub_piece(sub, mr, &wr->sge, &addr))
		return memreg_send_memory(sub, i, taken);
	ret = memreg_sub_reserve(sub, i, 1);
	if (ret)
		return ret;
	slot = memreg_queue_next(sub->queue);
	to = memreg_chain_add(sub, slot, i);
	memreg_slot_describe(sub, slot, i);
	memreg_slot_keep(sub, slot, mr, &wr->sge);
	memreg_fill_wr(to, op, wr, slot, false, 0);
	memreg_send_piece(sub, to, addr, wr->sge.length);
	if (op->write)
		slot->length = wr->sge.length;
	return 0;
}

/* Insert the pending rkeys into this message. */
static int memreg_insert_rkeys(struct memreg_sub *sub,
			       const struct ib_memreg_wr *wr, u32 i)
{
	u32 n;

	for (n = 0; n < sub->nr_inserts; n++) {
		const struct memreg_insert *insert = &sub->s->inserts[n];
		__be32 rkey = cpu_to_be32(insert->rkey);

		if (!(wr->flags & IB_MEMREG_WR_INLINE) ||
		    wr->length < sizeof(rkey) ||
		    insert->at > wr->length - sizeof(rkey))
			return memreg_fail(sub->ucmd, -EINVAL,
					   IB_MEMREG_REASON_INLINE);
		memcpy((void *)sub->s->side[i] + insert->at, &rkey,
		       sizeof(rkey));
	}
	sub->nr_inserts = 0;
	return 0;
}

/* Put a work request with inline data on the chain. */
static int memreg_send_inline(struct memreg_sub *sub, u32 i)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	union memreg_device_wr *to;
	struct memreg_slot *slot;
	int ret;

	ret = memreg_sub_reserve(sub, i, 1);
	if (ret)
		return ret;
	slot = memreg_queue_next(sub->queue);
	to = memreg_chain_add(sub, slot, i);
	memreg_slot_describe(sub, slot, i);
	memreg_fill_wr(to, &memreg_opcodes[wr->opcode], wr, slot, false, 0);
	to->send.sg_list = NULL;
	to->send.num_sge = 0;
	if (!wr->length)
		return 0;
	memcpy(memreg_slot_buffer(slot), sub->s->side[i], wr->length);
	ib_dma_sync_single_for_device(sub->ucmd->mdev->ibdev,
				      memreg_slot_buffer_dma(slot),
				      wr->length, DMA_BIDIRECTIONAL);
	memreg_send_piece(sub, to, memreg_slot_buffer_dma(slot), wr->length);
	return 0;
}

/*
 * Put a LOCAL_INV without effect on the chain, which waits for all work
 * requests before it.
 */
static void memreg_send_fence(struct memreg_sub *sub,
			      const struct memreg_endpoint *ep, u32 i,
			      int flags)
{
	struct memreg_slot *slot = memreg_queue_next(sub->queue);
	union memreg_device_wr *to = memreg_chain_add(sub, slot, i);

	/* If this LOCAL_INV fails, the BIND is reported as failed. */
	slot->opcode = IB_MEMREG_OP_SEND;
	slot->part = true;
	to->send.wr_cqe = &slot->cqe;
	to->send.opcode = IB_WR_LOCAL_INV;
	to->send.send_flags = flags;
	to->send.sg_list = NULL;
	to->send.num_sge = 0;
	to->send.ex.invalidate_rkey = ep->domain->fence.mr->rkey;
	sub->queue->fenced = true;
}

/*
 * Before a BIND, make sure that no earlier message can be retransmitted after
 * the BIND was executed, on a device that would execute the BIND again. If
 * there is room only for this fence, it still makes room, as the unsignalled
 * work requests before it complete with it.
 */
static int memreg_send_fenced(struct memreg_sub *sub,
			      const struct memreg_endpoint *ep, u32 i,
			      u32 *taken)
{
	int ret;

	if (!atomic_read(&sub->queue->posted)) {
		sub->queue->fenced = true;
		return memreg_sub_reserve(sub, i, 1);
	}
	if (sub->nr + 2 > MEMREG_CHAIN) {
		ret = memreg_chain_post(sub, memreg_post_send, taken);
		if (ret)
			return ret;
	}
	ret = memreg_sub_reserve(sub, i, 2);
	if (!ret)
		memreg_send_fence(sub, ep, i, 0);
	else if (!memreg_queue_reserve(sub->queue, 1))
		memreg_send_fence(sub, ep, i, IB_SEND_SIGNALED);
	return ret;
}

/*
 * Reserve room for a BIND with its fence, or for an INVALIDATE, which needs no
 * fence.
 */
static int memreg_send_reserve(struct memreg_sub *sub,
			       const struct memreg_endpoint *ep, u32 i,
			       u32 *taken)
{
	if (sub->ucmd->mdev->quirks & MEMREG_QUIRK_REPEATS_REG_MR &&
	    sub->s->wrs[i].opcode == IB_MEMREG_OP_BIND && !sub->queue->fenced)
		return memreg_send_fenced(sub, ep, i, taken);
	return memreg_sub_reserve(sub, i, 1);
}

/* Prepare a BIND to an MR or to an extent of one. */
static int memreg_send_bind(struct memreg_sub *sub, struct memreg_endpoint *ep,
			    u32 i, struct memreg_slot *slot)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	struct memreg_kmr *extent = NULL;
	int ret;

	if (sub->on_demand)
		extent = sub->s->extents.of_wr[i];
	ret = memreg_window_post_bind(sub->ucmd, ep, wr, extent ?: sub->mr,
				      slot);
	if ((ret == -ESTALE && extent) ||
	    (ret == -EAGAIN && sub->ucmd->reason == IB_MEMREG_REASON_UNSTEADY))
		sub->again = true;
	return ret;
}

/* Put a BIND or an INVALIDATE on the chain. Both are always signalled. */
static int memreg_send_window(struct memreg_sub *sub,
			      struct memreg_endpoint *ep, u32 i, u32 *taken)
{
	struct ib_memreg_wr *wr = &sub->s->wrs[i];
	union memreg_device_wr *to;
	struct memreg_slot *slot;
	int ret;

	if (wr->flags & IB_MEMREG_WR_INSERT_RKEY &&
	    sub->nr_inserts == ARRAY_SIZE(sub->s->inserts))
		return memreg_fail(sub->ucmd, -EINVAL, IB_MEMREG_REASON_INLINE);
	ret = memreg_send_reserve(sub, ep, i, taken);
	if (ret)
		return ret;
	slot = memreg_queue_next(sub->queue);
	if (wr->opcode == IB_MEMREG_OP_BIND)
		ret = memreg_send_bind(sub, ep, i, slot);
	else
		ret = memreg_window_post_invalidate(sub->ucmd, ep, wr, slot);
	if (ret) {
		memreg_queue_undo(slot);
		return ret;
	}
	to = memreg_chain_add(sub, slot, i);
	memreg_slot_describe(sub, slot, i);
	if (wr->opcode == IB_MEMREG_OP_BIND) {
		const struct memreg_key *key = memreg_window_key(slot->window);

		to->reg.mr = key->frwr->fast.mr;
		to->reg.key = key->rkey;
		to->reg.access = key->frwr->fast.wr.access;
		/* Output fields, which the call copies to the user. */
		wr->rkey = key->rkey;
		wr->remote_addr = key->iova;
		if (wr->flags & IB_MEMREG_WR_INSERT_RKEY)
			sub->s->inserts[sub->nr_inserts++] =
				(struct memreg_insert) {
					.rkey = key->rkey, .at = wr->insert_at,
				};
	}
	memreg_fill_wr(to, &memreg_opcodes[wr->opcode], wr, slot, false, 0);
	to->send.sg_list = NULL;
	to->send.num_sge = 0;
	to->send.send_flags |= IB_SEND_SIGNALED;
	if (wr->opcode == IB_MEMREG_OP_INVALIDATE) {
		to->send.ex.invalidate_rkey = slot->rkey;
		/* An INVALIDATE is a LOCAL_INV, which acts as a fence. */
		sub->queue->fenced = true;
	}
	return 0;
}

/* Put one work request on the chain. */
static int memreg_send_one(struct memreg_sub *sub, struct memreg_endpoint *ep,
			   u32 i, u32 *taken)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[i];
	bool plain;
	int ret;

	ret = memreg_check_wr(sub->ucmd, sub->opcodes, sub->longest, sub->queue,
			      wr, &plain);
	if (ret)
		return ret;
	if (unlikely(!ep->initiator_depth) &&
	    MEMREG_OPS_ANSWERED & BIT_ULL(wr->opcode))
		return memreg_bad_opcode(sub->ucmd, wr);
	if (sub->nr == MEMREG_CHAIN) {
		ret = memreg_chain_post(sub, memreg_post_send, taken);
		if (ret)
			return ret;
	}
	if (!plain && memreg_opcodes[wr->opcode].window)
		return memreg_send_window(sub, ep, i, taken);
	sub->queue->fenced = false;
	if (sub->nr_inserts) {
		ret = memreg_insert_rkeys(sub, wr, i);
		if (ret)
			return ret;
	}
	if (plain)
		return memreg_send_plain(sub, i, taken);
	if (wr->flags & IB_MEMREG_WR_INLINE)
		return memreg_send_inline(sub, i);
	return memreg_send_memory(sub, i, taken);
}

/* Are an endpoint's queues set up? */
static bool memreg_endpoint_queued(const struct memreg_endpoint *ep)
{
	/*
	 * Pairs with the release of @queued: the queues do not change any more.
	 */
	return smp_load_acquire(&ep->queued);
}

/* Submit work requests from @from on, up to @to, to an endpoint's queue. */
static int memreg_submit_sends(struct memreg_sub *sub,
			       struct memreg_endpoint *ep, u32 from, u32 to,
			       u32 *taken)
{
	u32 i = from;
	int ret, err;

	if (!memreg_endpoint_queued(ep) || !ep->send)
		return memreg_fail(sub->ucmd, -EINVAL,
				   IB_MEMREG_REASON_NO_QUEUE);
	ret = memreg_sub_lock(sub, ep->send);
	if (ret)
		return ret;
	memreg_sub_begin(sub, ep->send, ep->domain,
			 READ_ONCE(ep->send->fragments), to);
	/*
	 * Once @sendable is set, the limits that the peer agreed to are known.
	 */
	if (!ep->send->ready || !smp_load_acquire(&ep->sendable))
		ret = memreg_fail(sub->ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
	while (!ret && i < to) {
		ret = memreg_send_one(sub, ep, i, &i);
		if (!ret)
			i++;
	}
	memreg_sub_unreserve(sub);
	err = memreg_chain_post(sub, memreg_post_send, &i);
	mutex_unlock(&ep->send->lock);
	*taken = i;
	return err ?: ret;
}

/* Receives */

/* May the CPU copy the first bytes of a message to the user's memory? */
static inline bool memreg_slot_by_cpu(const struct memreg_slot *slot)
{
	u32 i;

	for (i = 0; i < slot->nr_sges; i++)
		if (slot->sges[i].mr->region->keyed)
			return false;
	return true;
}

/*
 * Put a receive, whose slot has its memory, on the chain, or on the list for a
 * later QP.
 */
static inline int memreg_recv_add(struct memreg_sub *sub,
				  struct memreg_slot *slot, u64 total, u32 i)
{
	struct ib_sge *sges = &sub->s->device_sges[sub->nr_sges];
	struct memreg_queue *queue = sub->queue;
	union memreg_device_wr *to;
	int n;

	memreg_slot_describe(sub, slot, i);
	/* An entry of io_uring has no room for a message. */
	if (!sub->uring && memreg_slot_by_cpu(slot))
		slot->bounce = min_t(u64, total, queue->buffer_size);
	if (slot->bounce == total && total)
		n = memreg_slot_bounce(slot, sub->lkey, sges);
	else
		n = memreg_slot_build_recv(slot, sub->lkey, sges, sub->max);
	if (n < 0) {
		memreg_queue_undo(slot);
		return memreg_fail(sub->ucmd, n, IB_MEMREG_REASON_FRAGMENTS);
	}
	/* The QP is not made yet. */
	if (!queue->ready) {
		llist_add(&slot->node, &queue->early);
		memreg_count(sub->ucmd->mdev, IB_MEMREG_STAT_WRS_SUBMITTED, 1);
		return 0;
	}
	to = memreg_chain_add(sub, slot, i);
	to->recv.wr_cqe = &slot->cqe;
	to->recv.sg_list = sges;
	to->recv.num_sge = n;
	sub->nr_sges += n;
	return 0;
}

/* Submit a receive of any number of SGEs. */
static noinline int memreg_recv_memory(struct memreg_sub *sub, u32 i)
{
	struct memreg_slot *slot;
	u64 total = 0;
	int ret;
	u32 n;

	ret = memreg_resolve(sub, i, true);
	if (ret)
		return ret;
	ret = memreg_sub_reserve(sub, i, 1);
	if (ret) {
		memreg_unresolve(sub);
		return ret;
	}
	slot = memreg_queue_next(sub->queue);
	for (n = 0; n < sub->nr_resolved; n++) {
		slot->sges[n] = sub->s->resolved[n];
		total += sub->s->resolved[n].length;
	}
	/* The slot takes over the references. */
	slot->nr_sges = n;
	sub->nr_resolved = 0;
	return memreg_recv_add(sub, slot, total, i);
}

/* Submit a plain receive. */
static inline int memreg_recv_plain(struct memreg_sub *sub, u32 i)
{
	const struct ib_memreg_sge *sge = &sub->s->wrs[i].sge;
	struct memreg_slot *slot;
	struct memreg_kmr *mr;
	int ret;

	mr = memreg_sub_range(sub, sge, true);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	ret = memreg_sub_reserve(sub, i, 1);
	if (ret)
		return ret;
	slot = memreg_queue_next(sub->queue);
	if (sge->length)
		memreg_slot_keep(sub, slot, mr, sge);
	return memreg_recv_add(sub, slot, sge->length, i);
}

/* Submit receives from @from on, up to @to, to a queue. */
static int memreg_recvs_submit(struct memreg_sub *sub,
			       struct memreg_queue *queue,
			       struct memreg_domain *domain, u32 max,
			       u32 from, u32 to, u32 *taken)
{
	u32 i = from;
	int ret, err;
	bool plain;

	ret = memreg_sub_lock(sub, queue);
	if (ret)
		return ret;
	memreg_sub_begin(sub, queue, domain, max, to);
	ret = queue->closed ? memreg_fail(sub->ucmd, -ENOTCONN,
					  IB_MEMREG_REASON_STATE) : 0;
	while (!ret && i < to) {
		ret = memreg_check_wr(sub->ucmd, sub->opcodes, sub->longest,
				      queue, &sub->s->wrs[i], &plain);
		if (!ret)
			ret = plain ? memreg_recv_plain(sub, i) :
				      memreg_recv_memory(sub, i);
		if (!ret)
			i++;
	}
	memreg_sub_unreserve(sub);
	err = memreg_chain_post(sub, queue->srq ? memreg_post_srq :
				memreg_post_recv, &i);
	mutex_unlock(&queue->lock);
	*taken = i;
	return err ?: ret;
}

static int memreg_submit_to_srq(struct memreg_sub *sub, u32 id, u32 from,
				u32 to, u32 *taken)
{
	struct memreg_object *obj;
	struct memreg_srq *srq;
	int ret;

	obj = memreg_object_get(sub->ucmd->file, id, IB_MEMREG_OBJECT_SRQ);
	if (!obj)
		return memreg_fail(sub->ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	srq = container_of(obj, struct memreg_srq, obj);
	if (sub->uring && sub->uring->fixed)
		/* A receive on a shared queue cannot be flushed alone. */
		ret = memreg_fail(sub->ucmd, -EOPNOTSUPP,
				  IB_MEMREG_REASON_OPCODE);
	else if (sub->s->wrs[from].opcode == IB_MEMREG_OP_RECV)
		ret = memreg_recvs_submit(sub, srq->queue, srq->domain,
					  memreg_srq_fragments(sub->ucmd->mdev),
					  from, to, taken);
	else
		ret = memreg_fail(sub->ucmd, -EINVAL, IB_MEMREG_REASON_OPCODE);
	memreg_object_put(obj);
	return ret;
}

/* Find an endpoint; holds a reference until the next one is looked up. */
static struct memreg_endpoint *memreg_sub_endpoint(struct memreg_sub *sub,
						   u32 id)
{
	struct memreg_object *obj;

	if (sub->ep && sub->ep->obj.id == id)
		return sub->ep;
	obj = memreg_object_get(sub->ucmd->file, id, IB_MEMREG_OBJECT_ENDPOINT);
	if (!obj)
		return NULL;
	if (sub->ep)
		memreg_object_put(&sub->ep->obj);
	sub->ep = container_of(obj, struct memreg_endpoint, obj);
	return sub->ep;
}

/* Submit work requests of one kind, sends or receives, to one target. */
static int memreg_submit_group(struct memreg_sub *sub, u32 from, u32 to,
			       u32 *taken)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[from];
	struct memreg_endpoint *ep;
	int ret;

	ep = memreg_sub_endpoint(sub, wr->target_id);
	if (!ep)
		return memreg_submit_to_srq(sub, wr->target_id, from, to,
					    taken);
	if (wr->opcode != IB_MEMREG_OP_RECV)
		ret = memreg_submit_sends(sub, ep, from, to, taken);
	else if (!memreg_endpoint_queued(ep) || !ep->recv)
		ret = memreg_fail(sub->ucmd, -EINVAL,
				  IB_MEMREG_REASON_NO_QUEUE);
	else
		ret = memreg_recvs_submit(sub, ep->recv, ep->domain,
					  memreg_fragments(sub->ucmd->mdev),
					  from, to, taken);
	return ret;
}

static bool memreg_wr_is_recv(const struct ib_memreg_wr *wr)
{
	return wr->opcode == IB_MEMREG_OP_RECV;
}

/* Find the end of a run of work requests for one queue. */
static u32 memreg_group_end(const struct memreg_sub *sub, u32 from)
{
	const struct ib_memreg_wr *wr = &sub->s->wrs[from];
	bool recv = memreg_wr_is_recv(wr);
	u32 target = wr->target_id;
	u32 i;

	for (i = from + 1; i < sub->loaded; i++) {
		wr++;
		if (wr->target_id != target || memreg_wr_is_recv(wr) != recv)
			break;
	}
	return i;
}

/* Copy the keys of BINDs to the user. */
static int memreg_submit_answer(struct memreg_sub *sub, u32 taken, u32 count)
{
	struct ib_memreg_wr __user *to = sub->wrs + taken;
	u32 i;

	for (i = 0; sub->answers && i < count; i++) {
		const struct ib_memreg_wr *wr = &sub->s->wrs[i];

		if (wr->opcode != IB_MEMREG_OP_BIND)
			continue;
		if (put_user(wr->rkey, &to[i].rkey) ||
		    put_user(wr->remote_addr, &to[i].remote_addr))
			return -EFAULT;
	}
	return 0;
}

/* Put all objects that the call has found. */
static void memreg_sub_let_go(struct memreg_sub *sub)
{
	if (sub->ep)
		memreg_object_put(&sub->ep->obj);
	if (sub->mr)
		memreg_object_put(&sub->mr->obj);
	sub->ep = NULL;
	sub->mr = NULL;
	sub->first = 0;
}

/* How often a chunk starts over without a work request being posted */
#define MEMREG_SUBMIT_FAULTS	(4 * (MEMREG_SUBMIT_CHUNK + MEMREG_SUBMIT_SGES))
#define MEMREG_SUBMIT_RETRIES	8

/*
 * Fault in missing memory. A command of io_uring with posted work requests
 * cannot leave the file, as it has to stay until these have ended.
 */
static int memreg_sub_fault(struct memreg_sub *sub)
{
	if (sub->faults++ == MEMREG_SUBMIT_FAULTS ||
	    (sub->uring && memreg_uring_is_posted(sub->uring)))
		return memreg_fail(sub->ucmd, -EAGAIN,
				   IB_MEMREG_REASON_UNSTEADY);
	memreg_sub_let_go(sub);
	return memreg_demand_fault(sub->ucmd);
}

static void memreg_sub_drop(struct memreg_sub *sub)
{
	if (!sub->on_demand)
		return;
	memreg_extents_drop(&sub->s->extents);
	sub->looked = NULL;
	sub->first = 0;
}

/*
 * Hold the extents of MRs on demand for a chunk. Sets @again if a fault was
 * taken meanwhile, and the chunk has to be copied again.
 */
static int memreg_sub_hold(struct memreg_sub *sub, bool *again)
{
	struct memreg_scratch *s = sub->s;
	struct memreg_chunk_wrs chunk = {
		.wrs = s->wrs, .sges = s->sges, .side = s->side,
	};
	int ret;

	*again = false;
	sub->loaded = min_not_zero(sub->loaded, sub->good);
	sub->good = 0;
	chunk.count = sub->loaded;
	sub->on_demand = atomic_read(&sub->ucmd->file->demands) &&
			 !(sub->uring && sub->uring->mr);
	if (!sub->on_demand)
		return 0;
	sub->looked = NULL;
	sub->first = 0;
	ret = memreg_extents_hold(sub->ucmd, &s->extents, &chunk,
				  !sub->uring ||
				  memreg_uring_may_wait(sub->uring));
	sub->loaded = chunk.count;
	if (!ret)
		return 0;
	memreg_sub_drop(sub);
	if (s->extents.missed)
		return memreg_uring_punt(sub->uring);
	if (ret == -EAGAIN && sub->ucmd->fault.needed) {
		ret = memreg_sub_fault(sub);
		*again = !ret;
	}
	if (!ret || sub->ucmd->away || !chunk.count)
		return ret;
	/* Submit the work requests before it first. */
	sub->good = chunk.count;
	*again = true;
	return memreg_fail(sub->ucmd, 0, IB_MEMREG_REASON_NONE);
}

/*
 * The memory of a work request has changed since its extent was found: find it
 * again.
 */
static int memreg_sub_retry(struct memreg_sub *sub, int err)
{
	if (!sub->again || (err != -ESTALE && err != -EAGAIN) ||
	    sub->retries++ == MEMREG_SUBMIT_RETRIES)
		return err;
	sub->again = false;
	return memreg_fail(sub->ucmd, 0, IB_MEMREG_REASON_NONE);
}

/* Submit the work requests of a chunk. Returns the number submitted in @at. */
static int memreg_submit_loaded(struct memreg_sub *sub, u32 *at)
{
	int ret = 0;

	*at = 0;
	while (!ret && *at < sub->loaded) {
		u32 end = memreg_group_end(sub, *at);
		u32 target = sub->s->wrs[*at].target_id;

		/* Keys are inserted only into messages to the same target. */
		if (sub->insert_target != target)
			sub->nr_inserts = 0;
		sub->insert_target = target;
		ret = memreg_submit_group(sub, *at, end, at);
	}
	return ret;
}

/* Submit the next chunk of a call's work requests. */
static int memreg_submit_chunk(struct memreg_sub *sub, u32 *taken)
{
	bool again;
	int ret, err;
	u32 at;

	ret = memreg_load(sub, *taken);
	if (!ret && sub->uring)
		ret = memreg_uring_look(sub->uring, sub->s->wrs, sub->loaded,
					*taken + sub->loaded < sub->count);
	if (!ret)
		ret = memreg_sub_hold(sub, &again);
	if (ret || again)
		return ret;
	sub->base = *taken;
	ret = memreg_submit_loaded(sub, &at);
	memreg_sub_drop(sub);
	err = memreg_submit_answer(sub, *taken, at);
	*taken += at;
	if (at) {
		sub->faults = 0;
		sub->retries = 0;
	}
	if (ret)
		ret = memreg_sub_retry(sub, ret);
	return ret ?: err;
}

/*
 * Fault in all memory that a command of io_uring needs before any of it is
 * posted. Other errors are found by the submission.
 */
static int memreg_submit_prepare(struct memreg_sub *sub)
{
	u32 done = 0;
	bool again;
	int ret;

	if (!sub->uring || sub->count <= MEMREG_SUBMIT_CHUNK ||
	    !memreg_uring_may_wait(sub->uring) ||
	    !atomic_read(&sub->ucmd->file->demands))
		return 0;
	while (done < sub->count) {
		if (memreg_load(sub, done))
			return 0;
		ret = memreg_sub_hold(sub, &again);
		if (ret)
			return sub->ucmd->away ? ret : 0;
		if (again)
			continue;
		memreg_sub_drop(sub);
		done += sub->loaded;
	}
	return 0;
}

/* Most bytes of a message. */
static u32 memreg_longest(const struct memreg_kdevice *mdev)
{
	if (memreg_inject(MEMREG_INJECT_SHORT_MESSAGES))
		return SZ_4K;
	return mdev->longest;
}

/**
 * memreg_submit_wrs() - Submit work requests
 * @ucmd: The call
 * @uring: The command, if it is one of io_uring; otherwise NULL
 * @wrs: Address of an array of struct ib_memreg_wr in user space
 * @count: Their number
 * @taken: Number of work requests that were posted, also on failure
 *
 * Return: 0, or a negative errno of struct ib_memreg_submit.
 */
int memreg_submit_wrs(struct memreg_ucmd *ucmd, struct memreg_uring *uring,
		      u64 wrs, u32 count, u32 *taken)
{
	struct memreg_sub sub;
	int ret;

	*taken = 0;
	if (!count || count > IB_MEMREG_BATCH_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	sub.s = memreg_scratch_get(ucmd->file);
	if (!sub.s)
		return -ENOMEM;
	sub.ucmd = ucmd;
	sub.uring = uring;
	sub.wrs = u64_to_user_ptr(wrs);
	sub.count = count;
	sub.opcodes = memreg_submit_opcodes(ucmd->mdev);
	sub.longest = memreg_longest(ucmd->mdev);
	sub.ep = NULL;
	sub.mr = NULL;
	sub.first = 0;
	sub.insert_target = 0;
	sub.nr_inserts = 0;
	sub.nr = 0;
	sub.nr_sges = 0;
	sub.nr_resolved = 0;
	sub.on_demand = false;
	sub.looked = NULL;
	sub.again = false;
	sub.good = 0;
	sub.faults = 0;
	sub.retries = 0;
	ret = memreg_submit_prepare(&sub);
	while (!ret && *taken < count)
		ret = memreg_submit_chunk(&sub, taken);
	memreg_sub_let_go(&sub);
	memreg_scratch_put(ucmd->file, sub.s);
	return ret;
}

static int memreg_submit_check(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_submit *cmd = ucmd->cmd;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	return 0;
}

/* ioctl(IB_MEMREG_IOC_SUBMIT) */
int memreg_submit_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_submit *cmd = ucmd->cmd;
	u32 taken;
	int ret;

	ret = memreg_submit_check(ucmd);
	/* Check that the answer can be written, with the most likely value. */
	cmd->out_taken = ret ? 0 : cmd->count;
	if (memreg_respond(ucmd, sizeof(*cmd)))
		return ret ?: -EFAULT;
	if (ret)
		return ret;
	ret = memreg_submit_wrs(ucmd, NULL, cmd->wrs, cmd->count, &taken);
	if (taken == cmd->count)
		return ret;
	cmd->out_taken = taken;
	if (memreg_respond(ucmd, sizeof(*cmd)) && !ret)
		ret = -EFAULT;
	return ret;
}
