/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declarations that pool.c and req.c share: the internals of
 * <rdma/memreg_pool.h>.
 */
#ifndef _MEMREG_KAPI_H
#define _MEMREG_KAPI_H

#include <linux/percpu.h>
#include <linux/scatterlist.h>
#include <rdma/memreg_pool.h>

#include "core.h"
#include "mem/fastmr.h"

#ifdef MEMREG_EXPORT_NS_STRING
#define MEMREG_NS	"IB_MEMREG"
#else
#define MEMREG_NS	IB_MEMREG
#endif

/*
 * The head of a stack of slots: the number of the first one, and above it a tag
 * that each change advances.
 */
#define MEMREG_STACK_BITS	20
#define MEMREG_STACK_INDEX	((s64)BIT_ULL(MEMREG_STACK_BITS) - 1)
#define MEMREG_STACK_TAG	((s64)BIT_ULL(MEMREG_STACK_BITS))

/**
 * enum memreg_mr_state - Known state of an MR's key
 * @MEMREG_MR_IDLE: The MR is the pool's, and its key is dead.
 * @MEMREG_MR_DEAD: It is dead, and no work request is about to change that.
 * @MEMREG_MR_POSTED: The peer may use it: its REG_MR is posted.
 * @MEMREG_MR_REMOTE: The peer has invalidated it.
 * @MEMREG_MR_LOCAL: Its LOCAL_INV is posted.
 */
enum memreg_mr_state {
	MEMREG_MR_IDLE,
	MEMREG_MR_DEAD,
	MEMREG_MR_POSTED,
	MEMREG_MR_REMOTE,
	MEMREG_MR_LOCAL,
};

/**
 * struct ib_memreg_mr - An MR of a pool
 * @fast: The MR; without one while it waits to be replaced
 * @pool: Its pool
 * @index: Its slot
 * @state: enum memreg_mr_state
 * @req: Request that has it
 * @next: Next one of that request, or NULL
 * @inv_cqe: Completion of its LOCAL_INV, if it is the last one of its request
 * @node: In ib_memreg_pool.hollow, while it has no MR
 * @nents: Entries of @sgl in use
 * @mapped: The memory is mapped for DMA
 * @dir: Direction of the peer's accesses
 * @pages: Pages that they touch
 * @length: Bytes
 * @sgl: The memory that it maps; ib_memreg_pool.max_pages entries
 */
struct ib_memreg_mr {
	struct memreg_fastmr fast;
	struct ib_memreg_pool *pool;
	u32 index;
	enum memreg_mr_state state;
	struct ib_memreg_req *req;
	struct ib_memreg_mr *next;
	struct ib_cqe inv_cqe;
	struct llist_node node;
	u32 nents;
	bool mapped;
	enum dma_data_direction dir;
	u32 pages;
	u32 length;
	struct scatterlist sgl[];
};

/**
 * struct memreg_mrpool_slot - A place in a pool for an MR. A slot is never
 *	freed before the pool, as other CPUs may still access it
 * @mr: The MR, or NULL if the slot is empty
 * @next: Index of the next one on the stack that it is on, or 0
 * @depth: Slots on that stack from this one on
 */
struct memreg_mrpool_slot {
	struct ib_memreg_mr *mr;
	u32 next;
	u32 depth;
};

/**
 * struct memreg_mrpool_cache - A CPU's own of a pool
 * @stack: MRs that it keeps; any CPU may take from it
 * @taken: MRs that were taken on this CPU; these only count
 * @empty: Times that there was none
 * @remote_invalidated: Keys that peers invalidated
 * @local_invalidated: Keys that LOCAL_INV invalidated
 * @bogus: Keys that were not those of a request
 */
struct memreg_mrpool_cache {
	atomic64_t stack;
	u64 taken;
	u64 empty;
	u64 remote_invalidated;
	u64 local_invalidated;
	u64 bogus;
} ____cacheline_aligned;

/* Count what happened on this CPU. Context: any. */
#define memreg_mrpool_count(_pool, _counter, _n)			\
	this_cpu_add((_pool)->caches->_counter, (_n))

/**
 * struct ib_memreg_pool - Fast registration MRs of a PD
 * @caches: Cache of each CPU
 * @chunks: Slots, in arrays of MEMREG_POOL_CHUNK, which are never freed before
 *	the pool
 * @list: Idle MRs that are in no cache
 * @missing: MRs that the reserves have lent
 * @kicked: @work is on its way
 * @weak: States of keys, as bits, in which packets may still be in flight
 *	though the key is dead
 * @sg_gaps: Its MRs take pieces with gaps
 * @batch: MRs that move between a cache and @list at a time
 * @max_pages: Pages that an MR holds
 * @max_seg: Most bytes of an entry of a scatterlist
 * @low: Below so many on @list the worker is to get more
 * @idle_low: Fewest MRs on @list since @age_next was set
 * @pd: Protection domain
 * @name: Names it in traces
 * @numa_node: NUMA node of its memory
 * @count: Minimum number of MRs
 * @max_count: Maximum number of MRs
 * @reserved: MRs of reserves, beyond both; @mutex
 * @total: MRs that there are; @mutex
 * @nr_slots: Slots that are there; @mutex
 * @nr_chunks: Room in @chunks
 * @empty_slots: Slots without an MR
 * @mutex: Taken to add and to remove MRs
 * @reserve_lock: Protects @reserves, and the return of MRs to them
 * @reserves: All reserves; the one that was served last is the last one
 * @hollow: Slots whose MR was destroyed, and has to be allocated again
 * @nr_hollow: Their number
 * @works: Workers of requests that are in the pool's code
 * @closing: The pool is being destroyed: no more MRs are allocated for it.
 * @squeeze: Memory is short: free all MRs above the minimum
 * @age_next: Jiffies at which idle MRs are freed
 * @refill: Worker that allocates what is @hollow
 * @work: Worker that makes it grow and shrink
 * @node: In the list of all pools, which the shrinker goes through
 * @grown: For statistics; @mutex
 * @shrunk: For statistics; @mutex
 * @replaced: For statistics
 */
struct ib_memreg_pool {
	struct memreg_mrpool_cache __percpu *caches;
	struct memreg_mrpool_slot **chunks;
	atomic_t missing;
	bool kicked;
	u8 weak;
	bool sg_gaps;
	u32 batch;
	u32 max_pages;
	u32 max_seg;
	u32 low;
	u32 idle_low;
	struct ib_pd *pd;
	char *name;
	int numa_node;
	u32 count;
	u32 max_count;

	atomic64_t list ____cacheline_aligned;

	u32 reserved ____cacheline_aligned;
	u32 total;
	u32 nr_slots;
	u32 nr_chunks;
	atomic64_t empty_slots;
	struct mutex mutex;
	raw_spinlock_t reserve_lock;
	struct list_head reserves;
	struct llist_head hollow;
	atomic_t nr_hollow;
	atomic_t works;
	bool closing;
	bool squeeze;
	unsigned long age_next;
	struct delayed_work refill;
	struct delayed_work work;
	struct list_head node;
	u64 grown;
	u64 shrunk;
	atomic64_t replaced;
};

/**
 * struct ib_memreg_reserve - MRs for the requests of one queue
 * @pool: The pool
 * @node: In ib_memreg_pool.reserves
 * @count: MRs that it is to have
 * @stack: MRs in the reserve
 */
struct ib_memreg_reserve {
	struct ib_memreg_pool *pool;
	struct list_head node;
	u32 count;
	atomic64_t stack;
};

int memreg_kapi_init(void (*done)(struct ib_cq *cq, struct ib_wc *wc));
void memreg_kapi_exit(void);

extern struct workqueue_struct *memreg_req_wq;
extern struct shrinker *memreg_mrpool_shrinker;

struct ib_memreg_mr *memreg_mrpool_take_mr(struct ib_memreg_pool *pool,
					   struct ib_memreg_reserve *reserve);
void memreg_mrpool_replace_later(struct ib_memreg_mr *mr);
void memreg_mrpool_kick(struct ib_memreg_pool *pool);
void memreg_mr_done(struct ib_cq *cq, struct ib_wc *wc);

/* A worker is in the pool's code until memreg_mrpool_leave(). */
static inline void memreg_mrpool_enter(struct ib_memreg_pool *pool)
{
	atomic_inc(&pool->works);
}

static inline void memreg_mrpool_leave(struct ib_memreg_pool *pool)
{
	/* The pool may be freed once works is 0; only its address is used. */
	if (atomic_dec_and_test(&pool->works))
		wake_up_var(&pool->works);
}

#endif /* _MEMREG_KAPI_H */
