/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ib_memreg for other kernel modules: pools of fast registration MRs, and
 * requests that register memory for one I/O of a peer.
 */

/**
 * DOC: The life of a request
 *
 * ::
 *
 *	ib_memreg_init_qp()		before the CQ and the QP are made
 *	ib_memreg_req_init()		once, wherever the request is embedded
 *	ib_memreg_req_map_sg()		take MRs, map the memory for DMA; a
 *					second call maps the other direction;
 *					or ib_memreg_req_begin(), _add() for
 *					each piece of it, and _commit()
 *	ib_memreg_req_segs()		what to send to the peer
 *	ib_memreg_req_post()		REG_MR for each MR, and the caller's
 *					SEND, in one ib_post_send(); or
 *					ib_memreg_req_post_wrs(), in front of
 *					work requests of the caller's own
 *	...				the peer moves the data, and answers
 *	ib_memreg_req_answered()	check the answer, and the key that the
 *					peer has invalidated
 *	ib_memreg_req_end()		kill the keys that are still valid
 *	ib_memreg_req_ops.done()	the memory is the caller's again
 *
 * done() is called exactly once for each request that was posted: after every
 * key is dead, the memory is unmapped, and the SEND has completed, so that the
 * device does not read its buffer again for a retransmission. After the loss of
 * a connection the caller drains its queues (ib_drain_rq(), then ib_drain_sq(),
 * since handling an answer may post work requests), and then calls
 * ib_memreg_pool_abort(), which returns when all requests of the QP are done;
 * or ib_memreg_req_abort() for each. To end a request that another thread may
 * end, too, needs no lock, but that it stays until both have returned: one of
 * them does, and both may wait for done() with ib_memreg_req_wait().
 *
 * A key is dead before its memory is unmapped, whatever happens. An MR whose
 * work request failed or was flushed is in an unknown state: it is destroyed,
 * which kills the key in any state, and another takes its place. This needs
 * neither a live QP nor the caller's context. On a device whose LOCAL_INV does
 * not wait for packets in flight (rxe), each MR is destroyed after its key was
 * killed, by the peer or locally. If the driver fails to destroy an MR for 200
 * ms, the kernel warns, and the memory is unmapped in spite of it.
 *
 * Functions that are not documented to sleep may be called where ib_post_send()
 * may be called: in any context, with interrupts on or off, but not in an NMI
 * (Documentation/infiniband/core_locking.rst of the kernel). On hns, whose
 * driver allocates memory for each mapping, ib_memreg_req_map_*() and
 * ib_memreg_req_commit() may be called only where memory may be allocated.
 *
 * A request is mapped and posted by one caller at a time. Its answer and its
 * completions may come at any time: the caller needs no lock against these, nor
 * against a peer that sends an answer twice or without a request.
 *
 * Exported GPL only, in the namespace IB_MEMREG.
 */
#ifndef _RDMA_MEMREG_POOL_H
#define _RDMA_MEMREG_POOL_H

#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/dma-direction.h>
#include <linux/spinlock_types.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

struct bio_vec;
struct ib_memreg_mr;
struct ib_memreg_pool;
struct ib_memreg_reserve;
struct memreg_req_waiter;
struct page;
struct scatterlist;

/*
 * Pools
 */

/**
 * enum ib_memreg_pool_flags - Flags of a pool
 * @IB_MEMREG_POOL_SG_GAPS: Use MRs that take scatterlists with gaps, on devices
 *	that have such MRs (IBK_SG_GAPS_REG); other devices ignore the flag, and
 *	a request takes one more MR at each gap
 */
enum ib_memreg_pool_flags {
	IB_MEMREG_POOL_SG_GAPS		= BIT(0),
};

/**
 * struct ib_memreg_pool_attr - Parameters of a pool
 * @name: Names the pool in traces; copied
 * @max_pages: Pages of PAGE_SIZE that one MR can map; 0, or more than the
 *	device supports (ib_memreg_max_pages()): as many as it supports, up to
 *	512. An MR takes 32 bytes of memory for each, so that mapping allocates
 *	nothing.
 * @count: MRs that are allocated at once, and that the pool does not shrink
 *	below; at least 1
 * @max_count: MRs that it may grow to, up to 1,048,576; 0: @count
 * @numa_node: NUMA node to allocate its memory from, or NUMA_NO_NODE. As with
 *	kmalloc_node(), another is used if it has no memory, or is not online.
 * @flags: enum ib_memreg_pool_flags
 * @available: A request that was refused with -EAGAIN may be mapped now: as
 *	many MRs are idle as the smallest of those that were refused needs, as
 *	far as its memory had been added. All of them are to be tried again, as
 *	none is remembered. Called in any context that ib_post_send() may be
 *	called in, also by functions that give MRs back, such as
 *	ib_memreg_req_unmap() and ib_memreg_req_end(), in the context of their
 *	caller; until ib_memreg_pool_destroy() returns. It should queue a work
 *	item, or call blk_mq_run_hw_queues(), and not map requests itself. May
 *	be NULL.
 * @context: Argument of @available
 *
 * @available may be called before the call that was refused has returned. So a
 * caller that keeps such requests on a list puts the request there, and then
 * queues the work item that tries all of the list: if one is refused again, a
 * call of @available follows that finds it there.
 */
struct ib_memreg_pool_attr {
	const char *name;
	unsigned int max_pages;
	unsigned int count;
	unsigned int max_count;
	int numa_node;
	unsigned int flags;
	void (*available)(void *context);
	void *context;
};

/**
 * struct ib_memreg_pool_stats - Statistics of a pool; all but the first two
 *	only grow
 * @total: MRs in the pool now
 * @idle: MRs in the pool now that are not taken
 * @taken: MRs that were taken
 * @empty: Times that no MR was idle when one was needed
 * @grown: MRs that were added because there were too few
 * @shrunk: MRs that were freed after being idle for long
 * @replaced: MRs that were destroyed as their state was unknown, or because
 *	packets might have been in flight, and replaced
 * @remote_invalidated: Keys that peers have invalidated
 * @local_invalidated: Keys that LOCAL_INV has invalidated
 * @bogus: Invalidations that peers reported of keys that were not granted to
 *	them
 */
struct ib_memreg_pool_stats {
	u64 total;
	u64 idle;
	u64 taken;
	u64 empty;
	u64 grown;
	u64 shrunk;
	u64 replaced;
	u64 remote_invalidated;
	u64 local_invalidated;
	u64 bogus;
};

struct ib_memreg_pool *
ib_memreg_pool_create(struct ib_pd *pd, const struct ib_memreg_pool_attr *attr);
void ib_memreg_pool_destroy(struct ib_memreg_pool *pool);
unsigned int ib_memreg_max_pages(const struct ib_device *ibdev);
unsigned int ib_memreg_pool_pages(const struct ib_memreg_pool *pool);
void ib_memreg_pool_query(struct ib_memreg_pool *pool,
			  struct ib_memreg_pool_stats *stats);

/* For benchmarks only: requests take MRs themselves. */
struct ib_memreg_mr *ib_memreg_mr_get(struct ib_memreg_pool *pool);
void ib_memreg_mr_put(struct ib_memreg_mr *mr);

struct ib_memreg_reserve *
ib_memreg_reserve_create(struct ib_memreg_pool *pool, unsigned int count);
void ib_memreg_reserve_destroy(struct ib_memreg_reserve *reserve);

/*
 * Requests
 */

/**
 * struct ib_memreg_seg - Segment of memory to send to a peer
 * @iova: First I/O address
 * @length: Bytes
 * @rkey: Key
 */
struct ib_memreg_seg {
	u64 iova;
	u32 length;
	u32 rkey;
};

struct ib_memreg_req;

/**
 * struct ib_memreg_req_ops - Callbacks of a request
 * @done: The request has ended, and may be used again or freed. @status is 0,
 *	or -ECONNABORTED if one of its work requests failed or was flushed or if
 *	it was aborted: the connection has to be ended then. An answer of the
 *	peer remains valid in spite of that, as @status says nothing about the
 *	data. Called in softirq context, in a worker, or by ib_memreg_req_end(),
 *	ib_memreg_req_abort() or ib_memreg_pool_abort() in the context of their
 *	caller; always in a read-side critical section of RCU, so it may not
 *	sleep. May be NULL if the caller waits for its requests
 *	(ib_memreg_req_wait()).
 * @error: A work request failed with the status in @wc; the connection has to
 *	be ended. May be called several times for a request, always before
 *	done(), also while the request waits for its answer. Called in the
 *	context of the CQ. May be NULL.
 */
struct ib_memreg_req_ops {
	void (*done)(struct ib_memreg_req *req, int status);
	void (*error)(struct ib_memreg_req *req, const struct ib_wc *wc);
};

/**
 * struct ib_memreg_req - Memory registered for one I/O; embedded in the
 *	caller's own request. All fields are private except those described here
 * @nr_mrs: Number of MRs, and of segments; for the caller to read
 * @iova_high: For the caller to set before memory is mapped: if not 0, the
 *	upper half of the segments' I/O addresses, such as an identifier of the
 *	request that shows in a trace of packets. The lower half remains that of
 *	the DMA address.
 * @cookie: For the caller to set: shown by the tracepoints of the request
 */
struct ib_memreg_req {
	unsigned int nr_mrs;
	u32 iova_high;
	u64 cookie;

	/* private: */
	struct ib_memreg_pool *pool;
	struct ib_memreg_reserve *reserve;
	const struct ib_memreg_req_ops *ops;
	struct ib_memreg_mr *first;
	struct ib_memreg_mr *last;
	struct ib_qp *qp;
	struct list_head node;	/* while posted, in the list of @cpu */
	int cpu;
	struct ib_memreg_mr *before;	/* last MR at ib_memreg_req_begin() */
	struct ib_memreg_mr *filling;	/* MR that pieces are added to */
	unsigned int room;	/* MRs that it may still take */
	enum dma_data_direction dir;
	spinlock_t lock;	/* post, answer and end: state */
	unsigned int state;
	unsigned int flags;
	int status;
	bool unknown;
	atomic_t pending;
	struct ib_cqe send_cqe;
	struct work_struct work;
	struct memreg_req_waiter *waiters;
};

/**
 * enum ib_memreg_req_flags - How a request is posted
 * @IB_MEMREG_REQ_REMOTE_INV: The peer may invalidate one of the keys with its
 *	answer. ib_memreg_req_post() signals the SEND then: only its completion
 *	shows then that it has been sent. Without this flag the completion of
 *	the request's last LOCAL_INV shows that, and ib_memreg_req_answered()
 *	refuses an answer that has killed a key; a request without MRs has its
 *	SEND signalled in any case.
 */
enum ib_memreg_req_flags {
	IB_MEMREG_REQ_REMOTE_INV	= BIT(0),
};

void ib_memreg_req_init(struct ib_memreg_req *req, struct ib_memreg_pool *pool,
			struct ib_memreg_reserve *reserve,
			const struct ib_memreg_req_ops *ops);
int ib_memreg_req_begin(struct ib_memreg_req *req, unsigned int max_mrs,
			enum dma_data_direction dir);
int ib_memreg_req_add(struct ib_memreg_req *req, struct page *page,
		      unsigned int offset, unsigned int length);
int ib_memreg_req_commit(struct ib_memreg_req *req);
int ib_memreg_req_map_sg(struct ib_memreg_req *req, struct scatterlist *sgl,
			 unsigned int nents, unsigned int max_mrs,
			 enum dma_data_direction dir);
int ib_memreg_req_map_bvec(struct ib_memreg_req *req,
			   const struct bio_vec *bvecs, unsigned int count,
			   unsigned int max_mrs, enum dma_data_direction dir);
void ib_memreg_req_unmap(struct ib_memreg_req *req);
unsigned int ib_memreg_req_segs(const struct ib_memreg_req *req,
				struct ib_memreg_seg *segs, unsigned int max);
int ib_memreg_req_post(struct ib_memreg_req *req, struct ib_qp *qp,
		       struct ib_send_wr *send, unsigned int flags);
int ib_memreg_req_post_wrs(struct ib_memreg_req *req, struct ib_qp *qp,
			   struct ib_send_wr *chain,
			   const struct ib_send_wr **bad_wr,
			   unsigned int flags);
int ib_memreg_req_answered(struct ib_memreg_req *req, const struct ib_wc *wc);
bool ib_memreg_req_end(struct ib_memreg_req *req, struct ib_qp *qp);
bool ib_memreg_req_abort(struct ib_memreg_req *req);
bool ib_memreg_req_posted(const struct ib_memreg_req *req);
int ib_memreg_req_wait(struct ib_memreg_req *req);
void ib_memreg_pool_abort(struct ib_memreg_pool *pool, struct ib_qp *qp);
int ib_memreg_init_qp(const struct ib_device *ibdev,
		      struct ib_qp_init_attr *attr, unsigned int depth,
		      unsigned int max_mrs);
unsigned int ib_memreg_max_depth(const struct ib_device *ibdev,
				 const struct ib_qp_init_attr *attr,
				 unsigned int max_mrs);

#endif
