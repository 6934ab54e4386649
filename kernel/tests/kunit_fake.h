/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device that exists in name only, and what a test of pools and requests has.
 */
#ifndef _MEMREG_TESTS_KUNIT_FAKE_H
#define _MEMREG_TESTS_KUNIT_FAKE_H

#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/scatterlist.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>
#include <rdma/memreg_pool.h>

struct ib_memreg_mr;

#define MEMREG_FAKE_WRS		512
#define MEMREG_FAKE_PAGES	512
#define MEMREG_FAKE_PAUSE_MS	2000
#define MEMREG_TEST_ORDER	9
#define MEMREG_TEST_TIMEOUT	(20 * HZ)

/**
 * struct memreg_fake_wr - A work request that was posted
 * @opcode: Its opcode
 * @rkey: Key to be made or killed
 * @mr: MR of the key to be made
 * @owner: The MR of the pool that it belongs to
 * @signalled: Completes in any case
 * @cqe: Its completion
 */
struct memreg_fake_wr {
	enum ib_wr_opcode opcode;
	u32 rkey;
	struct ib_mr *mr;
	const struct ib_memreg_mr *owner;
	bool signalled;
	struct ib_cqe *cqe;
};

/**
 * struct memreg_fake - The device
 * @ibdev: Head
 * @pd: Its protection domain
 * @cq: Completion queue; only its address is used
 * @qp: Queue pair
 * @lock: Protects @mrs, and the validity of keys
 * @mrs: MRs
 * @live: Keys that work
 * @violations: Things that must never be
 * @wrs: Work requests that were posted
 * @nr_posted: Their number
 * @nr_done: Number of work requests that have completed
 * @posts: Calls that posted something, or tried to
 * @take: Work requests of the next post that are taken, before it fails
 * @error: The queue pair is in error
 * @drains: Times that it was drained
 * @allocs: MRs that were allocated
 * @fail_allocs: Number of allocations that will fail
 * @fail_map: Mapping fails
 * @weak: Invalidations, local and remote, do not wait for packets in flight
 * @pause_for: A post waits behind its first work request until another CPU
 *	waits for this lock
 * @paused: It has done so
 * @next_key: Key of the next MR
 */
struct memreg_fake {
	struct ib_device ibdev;
	struct ib_pd *pd;
	struct ib_cq cq;
	struct ib_qp qp;
	spinlock_t lock;
	struct list_head mrs;
	unsigned int live;
	unsigned int violations;
	struct memreg_fake_wr wrs[MEMREG_FAKE_WRS];
	unsigned int nr_posted;
	unsigned int nr_done;
	unsigned int posts;
	unsigned int take;
	bool error;
	unsigned int drains;
	unsigned int allocs;
	atomic_t fail_allocs;
	bool fail_map;
	bool weak;
	spinlock_t *pause_for;
	bool paused;
	u32 next_key;
};

/**
 * struct memreg_test - State of a test
 * @fake: The device
 * @pool: The pool
 * @reserve: A reserve, if the test makes one
 * @req: The request
 * @available: Times that the pool has called that there are MRs
 * @wait: Woken then
 * @pages: Pages in a row
 * @sgl: Scatterlist for the memory of a test
 * @dones: Times that done() was called
 * @errors: Times that error() was called
 * @late_errors: Errors that were reported after done()
 * @status: Argument of done()
 * @live: Keys that worked when done() was called
 * @open: Work requests that had not completed then
 * @done: Completed by done()
 */
struct memreg_test {
	struct memreg_fake *fake;
	struct ib_memreg_pool *pool;
	struct ib_memreg_reserve *reserve;
	struct ib_memreg_req req;
	atomic_t available;
	wait_queue_head_t wait;
	struct page *pages;
	struct scatterlist sgl[MEMREG_FAKE_PAGES];
	unsigned int dones;
	unsigned int errors;
	unsigned int late_errors;
	int status;
	unsigned int live;
	unsigned int open;
	struct completion done;
};

bool memreg_fake_inv(struct memreg_fake *fake, u32 rkey);
void memreg_fake_complete(struct memreg_fake *fake, unsigned int n);
void memreg_fake_flush(struct memreg_fake *fake);
extern const struct ib_memreg_req_ops memreg_test_ops;
int memreg_test_init(struct kunit *test);
void memreg_test_exit(struct kunit *test);
void memreg_test_pool(struct kunit *test, unsigned int count,
		      unsigned int max_count, unsigned int max_pages,
		      unsigned int flags);
struct ib_memreg_pool_stats memreg_test_stats(struct memreg_test *t);
void memreg_test_settle(struct memreg_test *t);
void memreg_test_separate(struct memreg_test *t, unsigned int n);
void memreg_test_map(struct kunit *test, unsigned int mrs);
int memreg_test_post(struct memreg_test *t, unsigned int flags);
u32 memreg_test_rkey(struct memreg_test *t, unsigned int i);
struct ib_wc memreg_test_wc(struct memreg_test *t);
int memreg_test_answer(struct memreg_test *t);
int memreg_test_claim_inv(struct memreg_test *t, u32 rkey);
int memreg_test_remote_inv(struct memreg_test *t, u32 rkey);
void memreg_test_expect_done(struct kunit *test, int status);
void memreg_test_expect_idle(struct kunit *test, u64 total, u64 replaced);
void memreg_test_reconnect(struct memreg_test *t);

#endif /* _MEMREG_TESTS_KUNIT_FAKE_H */
