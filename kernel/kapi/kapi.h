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
#include "keys/fastmr.h"

#ifdef MEMREG_EXPORT_NS_STRING
#define MEMREG_NS	"IB_MEMREG"
#else
#define MEMREG_NS	IB_MEMREG
#endif

/* Slots of a CPU: they fill a cache line. */
#define MEMREG_POOL_SLOTS	8U

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
 * @all: In ib_memreg_pool.mrs
 * @state: enum memreg_mr_state
 * @req: Request that has it
 * @next: Next one of that request, or of the list of idle MRs, or NULL
 * @inv_cqe: Completion of its LOCAL_INV, if it is the last one of its request
 * @node: In ib_memreg_pool.to_replace, while it has no MR
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
	struct list_head all;
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
	struct scatterlist *sgl;
};

/**
 * struct memreg_mrpool_idle - A list of idle MRs
 * @first: The one that was put last, or NULL
 * @count: Their number
 *
 * Protected by ib_memreg_pool.lock.
 */
struct memreg_mrpool_idle {
	struct ib_memreg_mr *first;
	u32 count;
};

/**
 * struct memreg_mrpool_cpu - What a CPU has of a pool
 * @slots: Idle MRs that it keeps, or NULL; any CPU may take from them
 * @lock: Protects @posted, and whether a request that was posted on this CPU
 *	has ended: see req.c
 * @posted: Requests that were posted on this CPU and are not done
 * @taken: MRs that were taken on this CPU; these only count
 * @empty: Times that there was none
 * @remote_invalidated: Keys that peers invalidated
 * @local_invalidated: Keys that LOCAL_INV invalidated
 * @bogus: Keys that were not those of a request
 */
struct memreg_mrpool_cpu {
	struct ib_memreg_mr *slots[MEMREG_POOL_SLOTS];
	spinlock_t lock;
	struct list_head posted;
	u64 taken;
	u64 empty;
	u64 remote_invalidated;
	u64 local_invalidated;
	u64 bogus;
} ____cacheline_aligned;

/* Count what happened on this CPU. Context: any. */
#define memreg_mrpool_count(_pool, _counter, _n)			\
	this_cpu_add((_pool)->cpus->_counter, (_n))

/**
 * struct ib_memreg_pool - Fast registration MRs of a PD
 * @cpus: Slots and counters of each CPU
 * @missing: MRs that the reserves have lent; @lock to change it
 * @wanted: Minimum of the MRs that refused requests need, or 0 if none waits;
 *	@lock to change it
 * @available: As of struct ib_memreg_pool_attr
 * @context: Its argument
 * @kicked: @work is on its way
 * @weak: States of keys, as bits, in which packets may still be in flight
 *	though the key is dead
 * @repeats_reg: MEMREG_QUIRK_REPEATS_REG_MR
 * @sg_gaps: Its MRs take pieces with gaps
 * @nr_slots: Slots of a CPU that are used, which become more as the pool grows;
 *	half of them move to and from @idle at a time
 * @max_pages: Pages that an MR holds
 * @max_seg: Most bytes of an entry of a scatterlist
 * @low: Below so many in @idle the worker is to get more
 * @pd: Protection domain
 * @name: Names it in traces
 * @numa_node: NUMA node of its memory
 * @count: Minimum number of MRs
 * @max_count: Maximum number of MRs
 * @reserved: MRs of reserves, beyond both; @mutex
 * @total: MRs that there are; @mutex
 * @mrs: All MRs; @mutex
 * @mutex: Taken to add and to remove MRs
 * @lock: Protects the lists of idle MRs, and @reserves
 * @idle: Idle MRs that are in no slot and in no reserve; @lock
 * @idle_low: Minimum of their number since @age_next was set; @lock
 * @lacking: Maximum of the MRs that requests needed which were refused since
 *	the pool grew last; @lock
 * @reserves: All reserves; the one that was served last is the last one
 * @to_replace: MRs that were destroyed, and have to be allocated again
 * @nr_to_replace: Their number
 * @works: Workers of requests that are in the pool's code
 * @closing: The pool is being destroyed: no more MRs are allocated for it.
 * @shrink: Memory is short: free all MRs above the minimum
 * @age_next: Jiffies at which idle MRs are freed
 * @refill: Worker that allocates what is @to_replace
 * @work: Worker that makes it grow and shrink
 * @node: In the list of all pools, which the shrinker goes through
 * @grown: For statistics; @mutex
 * @shrunk: For statistics; @mutex
 * @replaced: For statistics
 */
struct ib_memreg_pool {
	struct memreg_mrpool_cpu __percpu *cpus;
	u32 missing;
	u32 wanted;
	void (*available)(void *context);
	void *context;
	bool kicked;
	u8 weak;
	bool repeats_reg;
	bool sg_gaps;
	u32 nr_slots;
	u32 max_pages;
	u32 max_seg;
	u32 low;
	struct ib_pd *pd;
	char *name;
	int numa_node;
	u32 count;
	u32 max_count;

	raw_spinlock_t lock ____cacheline_aligned;
	u32 idle_low;
	u32 lacking;
	struct memreg_mrpool_idle idle;
	struct list_head reserves;

	u32 reserved ____cacheline_aligned;
	u32 total;
	struct list_head mrs;
	struct mutex mutex;
	struct llist_head to_replace;
	atomic_t nr_to_replace;
	atomic_t works;
	bool closing;
	bool shrink;
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
 * @wanted: As of the pool, of requests that have this reserve; the pool's lock
 * @idle: MRs in the reserve
 */
struct ib_memreg_reserve {
	struct ib_memreg_pool *pool;
	struct list_head node;
	u32 count;
	u32 wanted;
	struct memreg_mrpool_idle idle;
};

/**
 * enum memreg_req_state - Where a request is
 * @MEMREG_REQ_IDLE: It is the caller's, with memory mapped or without.
 * @MEMREG_REQ_MAPPING: The same, between ib_memreg_req_begin() and _commit().
 * @MEMREG_REQ_POSTING: It is being posted.
 * @MEMREG_REQ_POSTED: It waits for its answer.
 * @MEMREG_REQ_PARTIAL: A part of it was posted, and not the SEND: it waits for
 *	the connection to end.
 * @MEMREG_REQ_ANSWERED: The caller has the answer.
 * @MEMREG_REQ_ENDED: It waits for work requests, or for the worker.
 */
enum memreg_req_state {
	MEMREG_REQ_IDLE,
	MEMREG_REQ_MAPPING,
	MEMREG_REQ_POSTING,
	MEMREG_REQ_POSTED,
	MEMREG_REQ_PARTIAL,
	MEMREG_REQ_ANSWERED,
	MEMREG_REQ_ENDED,
};

int memreg_kapi_init(void (*done)(struct ib_cq *cq, struct ib_wc *wc));
void memreg_kapi_exit(void);

extern struct workqueue_struct *memreg_req_wq;
extern struct workqueue_struct *memreg_mrpool_wq;
/* Completion handler of an MR's work requests */
extern void (*memreg_mrpool_done)(struct ib_cq *cq, struct ib_wc *wc);
extern struct shrinker *memreg_mrpool_shrinker;

u32 memreg_slots_count(const struct memreg_mrpool_cpu *cpu);
int memreg_mrpool_fast(struct ib_memreg_mr *mr);
void memreg_mrpool_mr_free(struct ib_memreg_mr *mr);
u32 memreg_mrpool_low(const struct ib_memreg_pool *pool);
u32 memreg_mrpool_nr_slots(u32 total);
void memreg_mrpool_remove(struct ib_memreg_pool *pool,
			  struct ib_memreg_mr *mr);
struct ib_memreg_mr *memreg_mrpool_steal(struct ib_memreg_pool *pool);
struct ib_memreg_mr *memreg_mrpool_take_mr(struct ib_memreg_pool *pool,
					   struct ib_memreg_reserve *reserve);
void memreg_mrpool_put_mr(struct ib_memreg_mr *mr);
void memreg_mrpool_refuse(struct ib_memreg_pool *pool,
			  struct ib_memreg_reserve *reserve, u32 n);
void memreg_mrpool_wake(struct ib_memreg_pool *pool);
void memreg_mrpool_replace_later(struct ib_memreg_mr *mr);
void memreg_mrpool_kick(struct ib_memreg_pool *pool);
void memreg_mrpool_set_low(struct ib_memreg_pool *pool);
int memreg_mrpool_add(struct ib_memreg_pool *pool,
		      struct memreg_mrpool_idle *idle);
u32 memreg_mrpool_remove_some(struct ib_memreg_pool *pool,
			      struct memreg_mrpool_idle *idle, u32 n);
void memreg_mr_unmap(struct ib_memreg_mr *mr);
void memreg_req_release(struct ib_memreg_req *req);
void memreg_mr_done(struct ib_cq *cq, struct ib_wc *wc);

/* MRs were put: does a request wait for them? */
static inline void memreg_mrpool_check_wanted(struct ib_memreg_pool *pool)
{
	if (unlikely(READ_ONCE(pool->wanted)))
		memreg_mrpool_wake(pool);
}

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
