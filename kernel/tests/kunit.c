// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of pools and requests, on a device that exists in name only: its
 * queue pair records posted work requests, and executes or flushes them when a
 * test says so; posts fail where a test requests it. So each failure can be
 * tested at each step.
 *
 * The device also watches: a key that is made while it works, and memory that
 * was unmapped before its key died, are counted as violations.
 */
#include <kunit/test.h>
#include <kunit/visibility.h>
#include <linux/bvec.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/shrinker.h>
#include <linux/slab.h>

#include "kapi/kapi.h"

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
 * @signalled: Completes in any case
 * @cqe: Its completion
 */
struct memreg_fake_wr {
	enum ib_wr_opcode opcode;
	u32 rkey;
	struct ib_mr *mr;
	bool signalled;
	struct ib_cqe *cqe;
};

/**
 * struct memreg_fake_mr - An MR of the device
 * @ibmr: Head
 * @node: In memreg_fake.mrs
 * @valid: Its key works
 * @key: The key
 * @lingers: The key is dead, but packets may be about that passed its check
 * @owner: The MR that it belongs to, once it was mapped
 */
struct memreg_fake_mr {
	struct ib_mr ibmr;
	struct list_head node;
	bool valid;
	u32 key;
	bool lingers;
	struct ib_memreg_mr *owner;
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

struct memreg_fake_pd {
	struct ib_pd ibpd;
};

static struct memreg_fake *to_fake(struct ib_device *ibdev)
{
	return container_of(ibdev, struct memreg_fake, ibdev);
}

static struct memreg_fake_mr *to_fake_mr(struct ib_mr *mr)
{
	return container_of(mr, struct memreg_fake_mr, ibmr);
}

static int memreg_fake_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int memreg_fake_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static struct ib_mr *memreg_fake_alloc_mr(struct ib_pd *pd,
					  enum ib_mr_type type, u32 max_sg)
{
	struct memreg_fake *fake = to_fake(pd->device);
	struct memreg_fake_mr *mr;

	if (atomic_dec_if_positive(&fake->fail_allocs) >= 0)
		return ERR_PTR(-EMFILE);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	spin_lock_irq(&fake->lock);
	fake->allocs++;
	fake->next_key += 0x100;
	mr->ibmr.rkey = fake->next_key;
	mr->ibmr.lkey = fake->next_key;
	list_add(&mr->node, &fake->mrs);
	spin_unlock_irq(&fake->lock);
	return &mr->ibmr;
}

/* A key dies: the memory behind it must still be mapped. */
static void memreg_fake_kill(struct memreg_fake *fake,
			     struct memreg_fake_mr *mr)
{
	lockdep_assert_held(&fake->lock);

	if (!mr->valid)
		return;
	mr->valid = false;
	fake->live--;
	if (!mr->owner || !mr->owner->mapped)
		fake->violations++;
}

static int memreg_fake_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct memreg_fake *fake = to_fake(ibmr->device);
	struct memreg_fake_mr *mr = to_fake_mr(ibmr);

	spin_lock_irq(&fake->lock);
	memreg_fake_kill(fake, mr);
	if (mr->lingers && !mr->owner->mapped)
		fake->violations++;
	list_del(&mr->node);
	spin_unlock_irq(&fake->lock);
	kfree(mr);
	return 0;
}

static int memreg_fake_set_page(struct ib_mr *mr, u64 addr)
{
	return 0;
}

/* One entry for each piece. */
static int memreg_fake_map_gaps(struct ib_mr *mr, struct scatterlist *sgl,
				int nents)
{
	struct scatterlist *sg;
	int i;

	mr->iova = sg_dma_address(sgl);
	mr->length = 0;
	for_each_sg(sgl, sg, nents, i)
		mr->length += sg_dma_len(sg);
	return nents;
}

static int memreg_fake_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sgl,
				 int nents, unsigned int *offset)
{
	struct memreg_fake *fake = to_fake(ibmr->device);
	struct memreg_fake_mr *mr = to_fake_mr(ibmr);

	mr->owner = (void *)sgl - offsetof(struct ib_memreg_mr, sgl);
	spin_lock_bh(&fake->lock);
	/* To map a valid MR would change what its key reaches. */
	fake->violations += mr->valid;
	spin_unlock_bh(&fake->lock);
	if (fake->fail_map)
		return -ENOMEM;
	if (ibmr->type == IB_MR_TYPE_SG_GAPS)
		return memreg_fake_map_gaps(ibmr, sgl, nents);
	return ib_sg_to_pages(ibmr, sgl, nents, offset, memreg_fake_set_page);
}

/* Let another CPU come to the lock that the poster holds, or have none. */
static void memreg_fake_pause(struct memreg_fake *fake)
{
	ktime_t end = ktime_add_ms(ktime_get(), MEMREG_FAKE_PAUSE_MS);

	WRITE_ONCE(fake->paused, true);
	while (!spin_is_contended(fake->pause_for) &&
	       ktime_before(ktime_get(), end))
		cpu_relax();
}

static int memreg_fake_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
				 const struct ib_send_wr **bad)
{
	struct memreg_fake *fake = to_fake(qp->device);
	struct memreg_fake_wr *to;

	fake->posts++;
	for (; wr; wr = wr->next) {
		if (!fake->take || fake->nr_posted == MEMREG_FAKE_WRS) {
			*bad = wr;
			fake->take = UINT_MAX;
			return -ENOMEM;
		}
		fake->take--;
		to = &fake->wrs[fake->nr_posted];
		to->opcode = wr->opcode;
		to->signalled = wr->send_flags & IB_SEND_SIGNALED;
		to->cqe = wr->wr_cqe;
		to->rkey = wr->ex.invalidate_rkey;
		to->mr = NULL;
		if (wr->opcode == IB_WR_REG_MR) {
			to->rkey = reg_wr(wr)->key;
			to->mr = reg_wr(wr)->mr;
		}
		/* The work request may be completed at once. */
		smp_store_release(&fake->nr_posted, fake->nr_posted + 1);
		if (fake->pause_for && !fake->paused)
			memreg_fake_pause(fake);
	}
	fake->take = UINT_MAX;
	return 0;
}

static struct memreg_fake_mr *memreg_fake_find(struct memreg_fake *fake,
					       u32 rkey)
{
	struct memreg_fake_mr *mr;

	lockdep_assert_held(&fake->lock);

	list_for_each_entry(mr, &fake->mrs, node)
		if (mr->valid && mr->key == rkey)
			return mr;
	return NULL;
}

static bool memreg_fake_reg(struct memreg_fake *fake,
			    const struct memreg_fake_wr *wr)
{
	struct memreg_fake_mr *mr = to_fake_mr(wr->mr);

	if (mr->valid || mr->lingers || mr->ibmr.rkey != wr->rkey) {
		fake->violations++;
		return false;
	}
	mr->valid = true;
	mr->key = wr->rkey;
	fake->live++;
	return true;
}

/* Have a key killed, by the peer or by a work request. */
static bool memreg_fake_inv(struct memreg_fake *fake, u32 rkey)
{
	struct memreg_fake_mr *mr = memreg_fake_find(fake, rkey);

	if (!mr)
		return false;
	memreg_fake_kill(fake, mr);
	mr->lingers = fake->weak;
	return true;
}

static bool memreg_fake_execute(struct memreg_fake *fake,
				const struct memreg_fake_wr *wr)
{
	bool done = true;

	spin_lock_bh(&fake->lock);
	if (wr->opcode == IB_WR_REG_MR)
		done = memreg_fake_reg(fake, wr);
	else if (wr->opcode == IB_WR_LOCAL_INV)
		done = memreg_fake_inv(fake, wr->rkey);
	spin_unlock_bh(&fake->lock);
	return done;
}

/* Complete up to @n work requests, as far as there are any. */
static void memreg_fake_complete(struct memreg_fake *fake, unsigned int n)
{
	struct ib_wc wc = { .qp = &fake->qp };
	struct memreg_fake_wr *wr;

	/* Of what is counted as posted all is written. */
	while (n-- && fake->nr_done < smp_load_acquire(&fake->nr_posted)) {
		wr = &fake->wrs[fake->nr_done++];
		if (fake->error || !memreg_fake_execute(fake, wr)) {
			fake->error = true;
			wc.status = IB_WC_WR_FLUSH_ERR;
		} else {
			wc.status = IB_WC_SUCCESS;
		}
		if (!wr->signalled && wc.status == IB_WC_SUCCESS)
			continue;
		wc.wr_cqe = wr->cqe;
		local_bh_disable();
		wr->cqe->done(&fake->cq, &wc);
		local_bh_enable();
	}
}

static void memreg_fake_flush(struct memreg_fake *fake)
{
	fake->error = true;
	memreg_fake_complete(fake, UINT_MAX);
}

static void memreg_fake_drain_sq(struct ib_qp *qp)
{
	struct memreg_fake *fake = to_fake(qp->device);

	fake->drains++;
	memreg_fake_flush(fake);
}

/* There are no receives: the tests act as the peer that answers. */
static void memreg_fake_drain_rq(struct ib_qp *qp)
{
}

static const struct ib_device_ops memreg_fake_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.alloc_pd = memreg_fake_alloc_pd,
	.dealloc_pd = memreg_fake_dealloc_pd,
	.alloc_mr = memreg_fake_alloc_mr,
	.dereg_mr = memreg_fake_dereg_mr,
	.map_mr_sg = memreg_fake_map_mr_sg,
	.post_send = memreg_fake_post_send,
	.drain_sq = memreg_fake_drain_sq,
	.drain_rq = memreg_fake_drain_rq,
	INIT_RDMA_OBJ_SIZE(ib_pd, memreg_fake_pd, ibpd),
};

/*
 * A test has a device, a pool on it, one request, and memory.
 */

/**
 * struct memreg_test - State of a test
 * @fake: The device
 * @pool: The pool
 * @reserve: A reserve, if the test makes one
 * @req: The request
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

static void memreg_test_done(struct ib_memreg_req *req, int status)
{
	struct memreg_test *t = container_of(req, struct memreg_test, req);

	t->dones++;
	t->status = status;
	t->live = t->fake->live;
	t->open = t->fake->nr_posted - t->fake->nr_done;
	complete(&t->done);
}

static void memreg_test_error(struct ib_memreg_req *req,
			      const struct ib_wc *wc)
{
	struct memreg_test *t = container_of(req, struct memreg_test, req);

	t->errors++;
	t->late_errors += !!t->dones;
}

static const struct ib_memreg_req_ops memreg_test_ops = {
	.done = memreg_test_done,
	.error = memreg_test_error,
};

static struct memreg_fake *memreg_fake_new(struct kunit *test)
{
	struct memreg_fake *fake = ib_alloc_device(memreg_fake, ibdev);

	KUNIT_ASSERT_NOT_NULL(test, fake);
	ib_set_device_ops(&fake->ibdev, &memreg_fake_ops);
	fake->ibdev.attrs.device_cap_flags = IB_DEVICE_MEM_MGT_EXTENSIONS;
	fake->ibdev.attrs.kernel_cap_flags = IBK_LOCAL_DMA_LKEY |
					     IBK_SG_GAPS_REG;
	fake->ibdev.attrs.max_fast_reg_page_list_len = MEMREG_FAKE_PAGES;
	spin_lock_init(&fake->lock);
	INIT_LIST_HEAD(&fake->mrs);
	fake->take = UINT_MAX;
	fake->qp.device = &fake->ibdev;
	fake->qp.send_cq = &fake->cq;
	fake->pd = ib_alloc_pd(&fake->ibdev, 0);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, fake->pd);
	return fake;
}

static int memreg_test_init(struct kunit *test)
{
	struct memreg_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, t);
	test->priv = t;
	init_completion(&t->done);
	t->fake = memreg_fake_new(test);
	t->pages = alloc_pages(GFP_KERNEL | __GFP_RETRY_MAYFAIL,
			       MEMREG_TEST_ORDER);
	KUNIT_ASSERT_NOT_NULL(test, t->pages);
	return 0;
}

/* Everything is as it was; no test leaves an MR or a key. */
static void memreg_test_exit(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	if (t->reserve)
		ib_memreg_reserve_destroy(t->reserve);
	if (t->pool)
		ib_memreg_pool_destroy(t->pool);
	KUNIT_EXPECT_TRUE(test, list_empty(&t->fake->mrs));
	KUNIT_EXPECT_EQ(test, 0, t->fake->live);
	KUNIT_EXPECT_EQ(test, 0, t->fake->violations);
	KUNIT_EXPECT_EQ(test, 0, t->late_errors);
	__free_pages(t->pages, MEMREG_TEST_ORDER);
	ib_dealloc_pd(t->fake->pd);
	ib_dealloc_device(&t->fake->ibdev);
}

/* Make the pool, and initialise the request. */
static void memreg_test_pool(struct kunit *test, unsigned int count,
			     unsigned int max_count, unsigned int max_pages,
			     unsigned int flags)
{
	struct memreg_test *t = test->priv;
	const struct ib_memreg_pool_attr attr = {
		.name = "kunit",
		.count = count,
		.max_count = max_count,
		.max_pages = max_pages,
		.numa_node = NUMA_NO_NODE,
		.flags = flags,
	};
	struct ib_memreg_pool *pool = ib_memreg_pool_create(t->fake->pd, &attr);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, pool);
	t->pool = pool;
	ib_memreg_req_init(&t->req, pool, NULL, &memreg_test_ops);
}

static struct ib_memreg_pool_stats memreg_test_stats(struct memreg_test *t)
{
	struct ib_memreg_pool_stats stats;

	/* Let workers of requests come to their end. */
	wait_var_event(&t->pool->works, !atomic_read(&t->pool->works));
	ib_memreg_pool_query(t->pool, &stats);
	return stats;
}

/* Let the pool's workers do what they were called for. */
static void memreg_test_settle(struct memreg_test *t)
{
	wait_var_event(&t->pool->works, !atomic_read(&t->pool->works));
	flush_delayed_work(&t->pool->refill);
	flush_delayed_work(&t->pool->work);
}

/* @n pieces of a page each, with a page between any two. */
static void memreg_test_separate(struct memreg_test *t, unsigned int n)
{
	unsigned int i;

	sg_init_table(t->sgl, n);
	for (i = 0; i < n; i++)
		sg_set_page(&t->sgl[i], t->pages + 2 * i, PAGE_SIZE, 0);
}

/* Map so many MRs, which hold a page each. */
static void memreg_test_map(struct kunit *test, unsigned int mrs)
{
	struct memreg_test *t = test->priv;

	memreg_test_separate(t, mrs);
	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_map_sg(&t->req, t->sgl, mrs, mrs,
					     DMA_FROM_DEVICE));
	KUNIT_ASSERT_EQ(test, mrs, t->req.nr_mrs);
}

static int memreg_test_post(struct memreg_test *t, unsigned int flags)
{
	struct ib_send_wr send = { .opcode = IB_WR_SEND };

	return ib_memreg_req_post(&t->req, &t->fake->qp, &send, flags);
}

static u32 memreg_test_rkey(struct memreg_test *t, unsigned int i)
{
	struct ib_memreg_seg segs[16];

	return i < ib_memreg_req_segs(&t->req, segs, 16) ? segs[i].rkey : 0;
}

/* Completion of the receive of an answer. */
static struct ib_wc memreg_test_wc(struct memreg_test *t)
{
	return (struct ib_wc) {
		.status = IB_WC_SUCCESS,
		.opcode = IB_WC_RECV,
		.qp = &t->fake->qp,
	};
}

/* The peer answers. */
static int memreg_test_answer(struct memreg_test *t)
{
	struct ib_wc wc = memreg_test_wc(t);

	return ib_memreg_req_answered(&t->req, &wc);
}

/* The peer reports that it has invalidated a key. */
static int memreg_test_claim_inv(struct memreg_test *t, u32 rkey)
{
	struct ib_wc wc = memreg_test_wc(t);

	wc.wc_flags = IB_WC_WITH_INVALIDATE;
	wc.ex.invalidate_rkey = rkey;
	return ib_memreg_req_answered(&t->req, &wc);
}

/* The peer kills a key with its answer. */
static int memreg_test_remote_inv(struct memreg_test *t, u32 rkey)
{
	spin_lock_bh(&t->fake->lock);
	memreg_fake_inv(t->fake, rkey);
	spin_unlock_bh(&t->fake->lock);
	return memreg_test_claim_inv(t, rkey);
}

/* done() was called once, with this status, and all was as it should be. */
static void memreg_test_expect_done(struct kunit *test, int status)
{
	struct memreg_test *t = test->priv;

	KUNIT_ASSERT_NE(test, 0UL,
			wait_for_completion_timeout(&t->done,
						    MEMREG_TEST_TIMEOUT));
	memreg_test_settle(t);
	KUNIT_EXPECT_EQ(test, 1, t->dones);
	KUNIT_EXPECT_EQ(test, status, t->status);
	KUNIT_EXPECT_EQ(test, 0, t->live);
	KUNIT_EXPECT_EQ(test, 0, t->open);
	KUNIT_EXPECT_EQ(test, 0, t->req.nr_mrs);
	t->dones = 0;
}

/* All MRs are idle, and so many have been replaced so far. */
static void memreg_test_expect_idle(struct kunit *test, u64 total,
				    u64 replaced)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_pool_stats stats;

	memreg_test_settle(t);
	stats = memreg_test_stats(t);
	KUNIT_EXPECT_EQ(test, total, stats.total);
	KUNIT_EXPECT_EQ(test, total, stats.idle);
	KUNIT_EXPECT_EQ(test, replaced, stats.replaced);
}

/* The connection was lost, and there is another one. */
static void memreg_test_reconnect(struct memreg_test *t)
{
	t->fake->error = false;
	t->fake->nr_posted = 0;
	t->fake->nr_done = 0;
	t->fake->posts = 0;
	t->fake->drains = 0;
	t->errors = 0;
}

/*
 * Pools
 */

static void memreg_test_pool_attr(struct kunit *test)
{
	static const struct ib_memreg_pool_attr good = {
		.name = "good", .count = 1, .numa_node = NUMA_NO_NODE,
	};
	static const struct ib_memreg_pool_attr bad[] = {
		{ .name = "none", .numa_node = NUMA_NO_NODE },
		{ .name = "less", .count = 2, .max_count = 1,
		  .numa_node = NUMA_NO_NODE },
		{ .name = "many", .count = 1, .max_count = UINT_MAX,
		  .numa_node = NUMA_NO_NODE },
		{ .name = "flags", .count = 1, .flags = BIT(2),
		  .numa_node = NUMA_NO_NODE },
		{ .name = "node", .count = 1, .numa_node = MAX_NUMNODES },
		{ .name = "node", .count = 1, .numa_node = -2 },
	};
	static const enum rdma_driver_id unfit[] = {
		RDMA_DRIVER_HFI1, RDMA_DRIVER_SIW, RDMA_DRIVER_OCRDMA,
	};
	struct memreg_test *t = test->priv;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		KUNIT_EXPECT_PTR_EQ(test, ERR_PTR(-EINVAL),
				    ib_memreg_pool_create(t->fake->pd,
							  &bad[i]));
	atomic_set(&t->fake->fail_allocs, 1);
	KUNIT_EXPECT_PTR_EQ(test, ERR_PTR(-ENOSPC),
			    ib_memreg_pool_create(t->fake->pd, &good));
	for (i = 0; i < ARRAY_SIZE(unfit); i++) {
		t->fake->ibdev.ops.driver_id = unfit[i];
		KUNIT_EXPECT_PTR_EQ(test, ERR_PTR(-EOPNOTSUPP),
				    ib_memreg_pool_create(t->fake->pd, &good));
	}
	t->fake->ibdev.ops.driver_id = RDMA_DRIVER_UNKNOWN;
	t->fake->ibdev.attrs.device_cap_flags = 0;
	KUNIT_EXPECT_PTR_EQ(test, ERR_PTR(-EOPNOTSUPP),
			    ib_memreg_pool_create(t->fake->pd, &good));
}

static void memreg_test_pool_pages(struct kunit *test)
{
	static const unsigned int pages[][3] = {
		/* The device has, the pool wants, and gets. */
		{ 256, 0, 256 }, { 256, 100, 100 }, { 256, 1000, 256 },
		{ 1024, 0, 512 }, { 1024, 1024, 1024 }, { 1024, 1025, 512 },
	};
	struct memreg_test *t = test->priv;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(pages); i++) {
		t->fake->ibdev.attrs.max_fast_reg_page_list_len = pages[i][0];
		memreg_test_pool(test, 1, 0, pages[i][1], 0);
		KUNIT_EXPECT_EQ(test, pages[i][2],
				ib_memreg_pool_pages(t->pool));
		ib_memreg_pool_destroy(t->pool);
		t->pool = NULL;
	}
	/* irdma has more, but they can't be relied on. */
	t->fake->ibdev.ops.driver_id = RDMA_DRIVER_IRDMA;
	memreg_test_pool(test, 1, 0, 1024, 0);
	KUNIT_EXPECT_EQ(test, 512U, ib_memreg_pool_pages(t->pool));
}

/* MRs are on the node that the pool is for. */
static void memreg_test_pool_node(struct kunit *test)
{
	struct ib_memreg_pool_attr attr = { .name = "node", .count = 4 };
	struct memreg_test *t = test->priv;
	struct ib_memreg_pool *pool;
	struct ib_memreg_mr *mr;
	int node;

	for_each_online_node(node) {
		attr.numa_node = node;
		pool = ib_memreg_pool_create(t->fake->pd, &attr);
		KUNIT_ASSERT_NOT_ERR_OR_NULL(test, pool);
		KUNIT_EXPECT_EQ(test, node, pool->numa_node);
		mr = ib_memreg_mr_get(pool);
		KUNIT_ASSERT_NOT_NULL(test, mr);
		KUNIT_EXPECT_EQ(test, node,
				page_to_nid(is_vmalloc_addr(mr) ?
					    vmalloc_to_page(mr) :
					    virt_to_page(mr)));
		ib_memreg_mr_put(mr);
		ib_memreg_pool_destroy(pool);
	}
}

/* Take all that there is; returns their number. */
static unsigned int memreg_test_take_all(struct memreg_test *t,
					 struct ib_memreg_mr **mrs,
					 unsigned int max)
{
	unsigned int n = 0;

	while (n < max && (mrs[n] = ib_memreg_mr_get(t->pool)))
		n++;
	return n;
}

static void memreg_test_put_all(struct ib_memreg_mr **mrs, unsigned int n)
{
	while (n)
		ib_memreg_mr_put(mrs[--n]);
}

static void memreg_test_pool_exhausted(struct kunit *test)
{
	struct ib_memreg_mr *mrs[101];
	struct memreg_test *t = test->priv;
	struct ib_memreg_pool_stats stats;
	unsigned int i, j, round;

	memreg_test_pool(test, 100, 0, 1, 0);
	for (round = 1; round <= 3; round++) {
		KUNIT_ASSERT_EQ(test, 100, memreg_test_take_all(t, mrs, 101));
		for (i = 0; i < 100; i++)
			for (j = 0; j < i; j++)
				KUNIT_ASSERT_PTR_NE(test, mrs[i], mrs[j]);
		stats = memreg_test_stats(t);
		KUNIT_EXPECT_EQ(test, 0, stats.idle);
		KUNIT_EXPECT_EQ(test, 100 * round, stats.taken);
		KUNIT_EXPECT_EQ(test, round, stats.empty);
		memreg_test_put_all(mrs, 100);
		memreg_test_expect_idle(test, 100, 0);
	}
}

static long memreg_test_fill_cache(void *arg)
{
	struct ib_memreg_mr *mrs[8];
	struct memreg_test *t = arg;
	unsigned int n = memreg_test_take_all(t, mrs, 8);

	memreg_test_put_all(mrs, n);
	return n;
}

/* MRs in another CPU's cache are available to all CPUs. */
static void memreg_test_pool_steal(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[9];
	int cpu;

	memreg_test_pool(test, 8, 0, 1, 0);
	for_each_online_cpu(cpu) {
		KUNIT_EXPECT_EQ(test, 8,
				work_on_cpu(cpu, memreg_test_fill_cache, t));
		KUNIT_ASSERT_EQ(test, 8, memreg_test_take_all(t, mrs, 9));
		memreg_test_put_all(mrs, 8);
	}
}

static void memreg_test_pool_grows(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[65];
	struct ib_memreg_pool_stats stats;
	unsigned int n = 0, rounds = 0;

	memreg_test_pool(test, 4, 64, 1, 0);
	while (n < 64 && rounds++ < 64) {
		n += memreg_test_take_all(t, mrs + n, 65 - n);
		memreg_test_settle(t);
	}
	KUNIT_EXPECT_EQ(test, 64, n);
	KUNIT_EXPECT_NULL(test, ib_memreg_mr_get(t->pool));
	stats = memreg_test_stats(t);
	KUNIT_EXPECT_EQ(test, 64, stats.total);
	KUNIT_EXPECT_EQ(test, 60, stats.grown);
	memreg_test_put_all(mrs, n);
	memreg_test_expect_idle(test, 64, 0);
}

/* Grow a pool by using all that it may have. */
static void memreg_test_grow(struct kunit *test, unsigned int count,
			     unsigned int max_count)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[65];
	unsigned int n = 0, rounds = 0;

	memreg_test_pool(test, count, max_count, 1, 0);
	while (n < max_count && rounds++ < max_count) {
		n += memreg_test_take_all(t, mrs + n, max_count - n);
		memreg_test_settle(t);
	}
	memreg_test_put_all(mrs, n);
	KUNIT_ASSERT_EQ(test, max_count, n);
}

/* Memory is short: returns what the shrinker may free of all pools. */
static unsigned long memreg_test_shrink(struct kunit *test)
{
	struct shrink_control sc = { .gfp_mask = GFP_KERNEL };
	struct shrinker *shrinker = memreg_mrpool_shrinker;
	unsigned long count = shrinker->count_objects(shrinker, &sc);

	KUNIT_EXPECT_EQ(test, SHRINK_STOP,
			shrinker->scan_objects(shrinker, &sc));
	return count == SHRINK_EMPTY ? 0 : count;
}

static void memreg_test_pool_squeezed(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_pool_stats stats;

	memreg_test_grow(test, 4, 64);
	KUNIT_EXPECT_NE(test, 0, memreg_test_shrink(test));
	memreg_test_settle(t);
	stats = memreg_test_stats(t);
	KUNIT_EXPECT_EQ(test, 4, stats.total);
	KUNIT_EXPECT_EQ(test, 60, stats.shrunk);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_shrink(test));
}

/* There is one shrinker, and it finds the pools that there are. */
static void memreg_test_pools_squeezed(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_pool *first;

	memreg_test_grow(test, 4, 64);
	first = t->pool;
	memreg_test_grow(test, 8, 32);
	memreg_test_shrink(test);
	memreg_test_settle(t);
	KUNIT_EXPECT_EQ(test, 8, memreg_test_stats(t).total);
	ib_memreg_pool_destroy(t->pool);
	t->pool = first;
	memreg_test_settle(t);
	KUNIT_EXPECT_EQ(test, 4, memreg_test_stats(t).total);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_shrink(test));
}

/* MRs that were idle for a period are freed, down to the minimum. */
static void memreg_test_pool_ages(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[16];
	struct ib_memreg_pool_stats stats;
	unsigned int n, i;

	memreg_test_grow(test, 4, 64);
	n = memreg_test_take_all(t, mrs, 16);
	KUNIT_ASSERT_EQ(test, 16, n);
	for (i = 0; i < 8; i++) {
		t->pool->age_next = jiffies;
		memreg_mrpool_kick(t->pool);
		memreg_test_settle(t);
	}
	/* MRs in use are not idle. */
	stats = memreg_test_stats(t);
	KUNIT_EXPECT_GE(test, stats.total, 16);
	KUNIT_EXPECT_LT(test, stats.total, 64);
	KUNIT_EXPECT_EQ(test, 64 - stats.total, stats.shrunk);
	memreg_test_put_all(mrs, n);
	for (i = 0; i < 16; i++) {
		t->pool->age_next = jiffies;
		memreg_mrpool_kick(t->pool);
		memreg_test_settle(t);
	}
	/* A few idle MRs may stay in the caches of CPUs. */
	stats = memreg_test_stats(t);
	KUNIT_EXPECT_GE(test, stats.total, 4);
	KUNIT_EXPECT_LE(test, stats.total,
			4 + 2 * t->pool->batch * num_possible_cpus());
}

/* An MR that can't be allocated anew comes back when it can. */
static void memreg_test_pool_replaces_later(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_pool_stats stats;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	memreg_fake_flush(t->fake);
	atomic_set(&t->fake->fail_allocs, INT_MAX);
	ib_memreg_req_abort(&t->req);
	KUNIT_ASSERT_NE(test, 0UL,
			wait_for_completion_timeout(&t->done,
						    MEMREG_TEST_TIMEOUT));
	stats = memreg_test_stats(t);
	KUNIT_EXPECT_EQ(test, 0, stats.total);
	KUNIT_EXPECT_NULL(test, ib_memreg_mr_get(t->pool));
	atomic_set(&t->fake->fail_allocs, 5);
	while (atomic_read(&t->fake->fail_allocs))
		memreg_test_settle(t);
	memreg_test_settle(t);
	memreg_test_expect_idle(test, 2, 2);
}

/* A pool that grows may wait for memory; a replaced MR frees some. */
static void memreg_test_pool_replaces_meanwhile(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	memreg_fake_flush(t->fake);
	mutex_lock(&t->pool->mutex);
	memreg_mrpool_kick(t->pool);
	ib_memreg_req_abort(&t->req);
	KUNIT_EXPECT_NE(test, 0UL,
			wait_for_completion_timeout(&t->done,
						    MEMREG_TEST_TIMEOUT));
	wait_var_event(&t->pool->works, !atomic_read(&t->pool->works));
	flush_delayed_work(&t->pool->refill);
	KUNIT_EXPECT_EQ(test, 2, memreg_test_stats(t).idle);
	mutex_unlock(&t->pool->mutex);
	memreg_test_expect_idle(test, 2, 2);
}

static void memreg_test_reserve(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[5];
	unsigned int n;

	memreg_test_pool(test, 4, 0, 1, 0);
	t->reserve = ib_memreg_reserve_create(t->pool, 2);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, t->reserve);
	ib_memreg_req_init(&t->req, t->pool, t->reserve, &memreg_test_ops);
	memreg_test_expect_idle(test, 6, 0);

	/* Others don't get it, not even if they have nothing. */
	n = memreg_test_take_all(t, mrs, 5);
	KUNIT_EXPECT_EQ(test, 4, n);
	memreg_test_map(test, 2);
	memreg_test_separate(t, 1);

	/* MRs that are put go to the reserve first. */
	ib_memreg_mr_put(mrs[--n]);
	KUNIT_EXPECT_NULL(test, ib_memreg_mr_get(t->pool));
	ib_memreg_mr_put(mrs[--n]);
	KUNIT_EXPECT_NULL(test, ib_memreg_mr_get(t->pool));
	ib_memreg_mr_put(mrs[--n]);
	mrs[n] = ib_memreg_mr_get(t->pool);
	KUNIT_EXPECT_NOT_NULL(test, mrs[n++]);

	memreg_test_put_all(mrs, n);
	ib_memreg_req_unmap(&t->req);
	memreg_test_expect_idle(test, 6, 0);
	ib_memreg_reserve_destroy(t->reserve);
	t->reserve = NULL;
	memreg_test_expect_idle(test, 4, 0);
}

/* MRs of a reserve that were lost are replaced, and it has them again. */
static void memreg_test_reserve_replaced(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[3];
	unsigned int n, round;

	memreg_test_pool(test, 2, 0, 1, 0);
	t->reserve = ib_memreg_reserve_create(t->pool, 2);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, t->reserve);
	ib_memreg_req_init(&t->req, t->pool, t->reserve, &memreg_test_ops);
	n = memreg_test_take_all(t, mrs, 3);
	for (round = 1; round <= 3; round++) {
		memreg_test_map(test, 2);
		KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
		memreg_fake_flush(t->fake);
		ib_memreg_req_abort(&t->req);
		memreg_test_expect_done(test, -ECONNABORTED);
		KUNIT_EXPECT_NULL(test, ib_memreg_mr_get(t->pool));
		memreg_test_reconnect(t);
	}
	memreg_test_put_all(mrs, n);
	memreg_test_expect_idle(test, 4, 6);
}

/**
 * struct memreg_test_user - One of several threads that take and put MRs
 * concurrently
 * @t: The test
 * @owners: Thread that has the MR of each slot
 * @rounds: Number of rounds
 * @clashes: Times that another thread had an MR that was taken
 * @empty: Times that there was none
 */
struct memreg_test_user {
	struct memreg_test *t;
	atomic_t *owners;
	unsigned int rounds;
	unsigned int clashes;
	unsigned int empty;
};

#define MEMREG_TEST_USER_MRS	20

static int memreg_test_user(void *arg)
{
	struct ib_memreg_mr *mrs[MEMREG_TEST_USER_MRS];
	struct memreg_test_user *user = arg;
	unsigned int i, n, round;
	atomic_t *owner;

	for (round = 0; round < user->rounds; round++) {
		n = memreg_test_take_all(user->t, mrs,
					 1 + round % MEMREG_TEST_USER_MRS);
		user->empty += !n;
		for (i = 0; i < n; i++) {
			owner = &user->owners[mrs[i]->index];
			user->clashes += atomic_inc_return(owner) != 1;
		}
		if (!(round % 64))
			cond_resched();
		for (i = 0; i < n; i++)
			atomic_dec(&user->owners[mrs[i]->index]);
		memreg_test_put_all(mrs, n);
	}
	return 0;
}

/*
 * A CPU that stopped between its look at a stack and its exchange must find the
 * head changed, even if the same MR is on top after 2^24 changes.
 */
static void memreg_test_pool_tag(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mr;
	atomic64_t *stack;
	s64 seen, now;

	memreg_test_pool(test, 1, 0, 1, 0);
	mr = ib_memreg_mr_get(t->pool);
	KUNIT_ASSERT_NOT_NULL(test, mr);
	/* All that follows is on the cache of one CPU. */
	migrate_disable();
	stack = &raw_cpu_ptr(t->pool->caches)->stack;
	ib_memreg_mr_put(mr);
	seen = atomic64_read(stack);
	atomic64_add((BIT_ULL(24) - 2) * MEMREG_STACK_TAG, stack);
	mr = ib_memreg_mr_get(t->pool);
	if (mr)
		ib_memreg_mr_put(mr);
	now = atomic64_read(stack);
	migrate_enable();
	KUNIT_EXPECT_NOT_NULL(test, mr);
	KUNIT_EXPECT_EQ(test, seen & MEMREG_STACK_INDEX,
			now & MEMREG_STACK_INDEX);
	KUNIT_EXPECT_NE(test, seen, now);
	memreg_test_expect_idle(test, 1, 0);
}

/* Statistics count the MRs on stacks, by whatever path they got there. */
static void memreg_test_pool_counts(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[64];
	unsigned int i;

	memreg_test_pool(test, 64, 0, 1, 0);
	for (i = 0; i < 64; i++) {
		mrs[i] = ib_memreg_mr_get(t->pool);
		KUNIT_ASSERT_NOT_NULL(test, mrs[i]);
		KUNIT_EXPECT_EQ(test, 63 - i, memreg_test_stats(t).idle);
	}
	while (i) {
		ib_memreg_mr_put(mrs[--i]);
		KUNIT_EXPECT_EQ(test, 64 - i, memreg_test_stats(t).idle);
	}
}

#ifdef kunit_warning_suppress
/* An MR that is put twice, or with a key that may work, is refused. */
static void memreg_test_pool_put_twice(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[3];

	memreg_test_pool(test, 2, 0, 1, 0);
	mrs[0] = ib_memreg_mr_get(t->pool);
	KUNIT_ASSERT_NOT_NULL(test, mrs[0]);
	ib_memreg_mr_put(mrs[0]);
	kunit_warning_suppress(test) {
		ib_memreg_mr_put(mrs[0]);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	memreg_test_expect_idle(test, 2, 0);
	KUNIT_EXPECT_EQ(test, 2, memreg_test_take_all(t, mrs, 3));
	KUNIT_EXPECT_PTR_NE(test, mrs[0], mrs[1]);
	memreg_test_put_all(mrs, 2);

	memreg_test_map(test, 1);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	memreg_fake_complete(t->fake, UINT_MAX);
	kunit_warning_suppress(test) {
		ib_memreg_mr_put(t->req.first);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, 1, memreg_test_stats(t).idle);
	ib_memreg_req_end(&t->req, &t->fake->qp);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 2, 0);
}
#endif

/*
 * Several threads on each CPU map and end requests, while the pool grows and
 * the shrinker takes from it.
 */
static void memreg_test_pool_concurrent(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct memreg_test_user users[6] = {};
	struct task_struct *tasks[6];
	unsigned int i;

	memreg_test_pool(test, 8, 48, 1, 0);
	for (i = 0; i < ARRAY_SIZE(users); i++) {
		users[i].t = t;
		users[i].rounds = 4000;
		users[i].owners = i ? users[0].owners :
				      kunit_kcalloc(test, 1024,
						    sizeof(atomic_t),
						    GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, users[i].owners);
		tasks[i] = kthread_create(memreg_test_user, &users[i],
					  "memreg-test-%u", i);
		KUNIT_ASSERT_NOT_ERR_OR_NULL(test, tasks[i]);
		get_task_struct(tasks[i]);
		wake_up_process(tasks[i]);
	}
	for (i = 0; i < 50; i++) {
		memreg_test_shrink(test);
		memreg_test_settle(t);
	}
	for (i = 0; i < ARRAY_SIZE(users); i++) {
		kthread_stop(tasks[i]);
		put_task_struct(tasks[i]);
		KUNIT_EXPECT_EQ(test, 0, users[i].clashes);
	}
	memreg_test_settle(t);
	memreg_test_expect_idle(test, memreg_test_stats(t).total, 0);
}

/*
 * Mapping
 */

/* Map @nents pieces of t->sgl; expect these lengths of MRs, up to 0. */
static void memreg_test_expect_map(struct kunit *test, unsigned int nents,
				   unsigned int max_mrs, const u32 *lengths)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_seg segs[16];
	unsigned int i, n;

	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_map_sg(&t->req, t->sgl, nents, max_mrs,
					     DMA_BIDIRECTIONAL));
	n = ib_memreg_req_segs(&t->req, segs, ARRAY_SIZE(segs));
	KUNIT_EXPECT_EQ(test, t->req.nr_mrs, n);
	for (i = 0; i < n && lengths[i]; i++)
		KUNIT_EXPECT_EQ(test, lengths[i], segs[i].length);
	KUNIT_EXPECT_EQ(test, i, n);
	KUNIT_EXPECT_EQ(test, 0, lengths[i]);
	ib_memreg_req_unmap(&t->req);
}

/* 1 MiB in pages that are nowhere near each other. */
static void memreg_test_map_256_pages(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 1, 0, 256, 0);
	memreg_test_separate(t, 256);
	memreg_test_expect_map(test, 256, 1, (const u32[]){ SZ_1M, 0 });
	memreg_test_expect_idle(test, 1, 0);
}

static void memreg_test_map_contiguous(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int i;

	memreg_test_pool(test, 1, 0, 256, 0);
	sg_init_table(t->sgl, 256);
	for (i = 0; i < 256; i++)
		sg_set_page(&t->sgl[i], t->pages + i, PAGE_SIZE, 0);
	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_map_sg(&t->req, t->sgl, 256, 1,
					     DMA_TO_DEVICE));
	/* Pages that adjoin are a single entry, which is faster to map. */
	KUNIT_EXPECT_EQ(test, 1, t->req.first->nents);
	KUNIT_EXPECT_EQ(test, 256, t->req.first->pages);
	KUNIT_EXPECT_EQ(test, SZ_1M, t->req.first->length);
	KUNIT_EXPECT_EQ(test, IB_ACCESS_REMOTE_READ,
			t->req.first->fast.wr.access);
	ib_memreg_req_unmap(&t->req);
}

/* Pieces that begin and end in the middle of pages that they share. */
static void memreg_test_map_adjacent(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 2, 0, 4, 0);
	sg_init_table(t->sgl, 3);
	sg_set_page(&t->sgl[0], t->pages, 1000, 500);
	sg_set_page(&t->sgl[1], t->pages, 3 * PAGE_SIZE, 1500);
	sg_set_page(&t->sgl[2], t->pages + 3, PAGE_SIZE, 1500);
	/* Four pages, from where the first one begins; and what is left. */
	memreg_test_expect_map(test, 3, 2, (const u32[]){
			       4 * PAGE_SIZE - 500, 1500, 0 });
}

static void memreg_test_map_large_piece(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 5, 0, 4, 0);
	sg_init_table(t->sgl, 1);
	sg_set_page(&t->sgl[0], t->pages, 16 * PAGE_SIZE, 0);
	memreg_test_expect_map(test, 1, 4, (const u32[]){
			       4 * PAGE_SIZE, 4 * PAGE_SIZE, 4 * PAGE_SIZE,
			       4 * PAGE_SIZE, 0 });
	/* An entry is split where a page ends, wherever the entry begins. */
	sg_set_page(&t->sgl[0], t->pages, 16 * PAGE_SIZE, 512);
	memreg_test_expect_map(test, 1, 5, (const u32[]){
			       4 * PAGE_SIZE - 512, 4 * PAGE_SIZE,
			       4 * PAGE_SIZE, 4 * PAGE_SIZE, 512, 0 });
	/* An offset beyond the page is that of another one. */
	sg_set_page(&t->sgl[0], t->pages, 4 * PAGE_SIZE, 3 * PAGE_SIZE);
	memreg_test_expect_map(test, 1, 1,
			       (const u32[]){ 4 * PAGE_SIZE, 0 });
	memreg_test_expect_idle(test, 5, 0);
}

/* Pieces with a gap between any two. */
static void memreg_test_gaps(struct memreg_test *t)
{
	sg_init_table(t->sgl, 3);
	sg_set_page(&t->sgl[0], t->pages, 1000, 0);
	sg_set_page(&t->sgl[1], t->pages + 2, 1000, 200);
	sg_set_page(&t->sgl[2], t->pages + 4, PAGE_SIZE, 0);
}

static void memreg_test_map_gaps(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 3, 0, 4, 0);
	memreg_test_gaps(t);
	memreg_test_expect_map(test, 3, 3,
			       (const u32[]){ 1000, 1000, PAGE_SIZE, 0 });
	/* Not a gap: the first one may begin anywhere, the last one end. */
	sg_set_page(&t->sgl[0], t->pages, 1000, PAGE_SIZE - 1000);
	sg_set_page(&t->sgl[1], t->pages + 2, PAGE_SIZE, 0);
	sg_set_page(&t->sgl[2], t->pages + 4, 10, 0);
	memreg_test_expect_map(test, 3, 1,
			       (const u32[]){ 1010 + PAGE_SIZE, 0 });
}

static void memreg_test_map_sg_gaps(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 3, 0, 4, IB_MEMREG_POOL_SG_GAPS);
	memreg_test_gaps(t);
	memreg_test_expect_map(test, 3, 1,
			       (const u32[]){ 2000 + PAGE_SIZE, 0 });
	ib_memreg_pool_destroy(t->pool);
	/* Without SG_GAPS the device needs an MR for each gap. */
	t->fake->ibdev.attrs.kernel_cap_flags &= ~IBK_SG_GAPS_REG;
	memreg_test_pool(test, 3, 0, 4, IB_MEMREG_POOL_SG_GAPS);
	memreg_test_expect_map(test, 3, 3,
			       (const u32[]){ 1000, 1000, PAGE_SIZE, 0 });
}

static void memreg_test_map_bvec(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_seg segs[2];
	struct bio_vec bvecs[2];

	memreg_test_pool(test, 2, 0, 1, 0);
	bvec_set_page(&bvecs[0], t->pages, 100, 10);
	bvec_set_page(&bvecs[1], t->pages + 2, 200, 20);
	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_map_bvec(&t->req, bvecs, 2, 2,
					       DMA_FROM_DEVICE));
	KUNIT_EXPECT_EQ(test, 2, ib_memreg_req_segs(&t->req, segs, 2));
	KUNIT_EXPECT_EQ(test, 100, segs[0].length);
	KUNIT_EXPECT_EQ(test, 200, segs[1].length);
	KUNIT_EXPECT_EQ(test, 10, offset_in_page(segs[0].iova));
	KUNIT_EXPECT_EQ(test, 20, offset_in_page(segs[1].iova));
	KUNIT_EXPECT_NE(test, segs[0].rkey, segs[1].rkey);
	KUNIT_EXPECT_EQ(test, 1, ib_memreg_req_segs(&t->req, segs, 1));
	KUNIT_EXPECT_EQ(test,
			IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
			t->req.first->fast.wr.access);
	ib_memreg_req_unmap(&t->req);
}

/* A failed map leaves no MR taken and nothing mapped, and can be repeated. */
static void memreg_test_map_fails(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mr;

	memreg_test_pool(test, 4, 0, 1, 0);
	memreg_test_separate(t, 5);
#define FAILS(_err, _nents, _max, _dir)					\
	do {								\
		KUNIT_EXPECT_EQ(test, _err,				\
				ib_memreg_req_map_sg(&t->req, t->sgl,	\
						     _nents, _max, _dir)); \
		KUNIT_EXPECT_EQ(test, 0, t->req.nr_mrs);		\
		memreg_test_expect_idle(test, 4, 0);			\
	} while (0)
	FAILS(-EAGAIN, 5, 5, DMA_TO_DEVICE);
	FAILS(-EMSGSIZE, 5, 4, DMA_TO_DEVICE);
	FAILS(-EMSGSIZE, 1, 0, DMA_TO_DEVICE);
	FAILS(-EINVAL, 0, 4, DMA_TO_DEVICE);
	FAILS(-EINVAL, 1, 4, DMA_NONE);
	t->fake->fail_map = true;
	FAILS(-EIO, 4, 4, DMA_TO_DEVICE);
	t->fake->fail_map = false;
	t->sgl[2].length = 0;
	FAILS(-EINVAL, 4, 4, DMA_TO_DEVICE);
#undef FAILS
	memreg_test_map(test, 4);
	mr = ib_memreg_mr_get(t->pool);
	KUNIT_EXPECT_NULL(test, mr);
	ib_memreg_req_unmap(&t->req);
	ib_memreg_req_unmap(&t->req);
	memreg_test_expect_idle(test, 4, 0);
}

/*
 * Memory that the peer reads, and memory that it writes
 */

/* Map @reads pages that the peer reads, and @writes that it writes. */
static void memreg_test_map_both(struct kunit *test, unsigned int reads,
				 unsigned int writes)
{
	struct memreg_test *t = test->priv;

	memreg_test_separate(t, reads + writes);
	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_map_sg(&t->req, t->sgl, reads, reads,
					     DMA_TO_DEVICE));
	KUNIT_ASSERT_EQ(test, reads, t->req.nr_mrs);
	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_map_sg(&t->req, t->sgl + reads, writes,
					     writes, DMA_FROM_DEVICE));
	KUNIT_ASSERT_EQ(test, reads + writes, t->req.nr_mrs);
}

/* One post for both; the peer may do no more than it is to do. */
static void memreg_test_both_one_post(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	const struct memreg_fake_wr *wrs = t->fake->wrs;
	struct ib_memreg_mr *mr;
	unsigned int i;

	memreg_test_pool(test, 5, 0, 1, 0);
	memreg_test_map_both(test, 2, 3);
	for (mr = t->req.first, i = 0; mr; mr = mr->next, i++)
		KUNIT_EXPECT_EQ(test, mr->fast.wr.access, i < 2 ?
				IB_ACCESS_REMOTE_READ :
				IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	KUNIT_EXPECT_EQ(test, 1, t->fake->posts);
	KUNIT_ASSERT_EQ(test, 6, t->fake->nr_posted);
	for (i = 0; i < 5; i++)
		KUNIT_EXPECT_EQ(test, memreg_test_rkey(t, i), wrs[i].rkey);
	KUNIT_EXPECT_EQ(test, IB_WR_SEND, wrs[5].opcode);
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_EQ(test, 5, t->fake->live);
	ib_memreg_req_end(&t->req, &t->fake->qp);
	KUNIT_EXPECT_EQ(test, 2, t->fake->posts);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 5, 0);
}

/* Added memory begins with an MR of its own, also where it would go on. */
static void memreg_test_both_segs(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_seg segs[4];
	struct bio_vec bvec;

	memreg_test_pool(test, 4, 0, 4, 0);
	sg_init_table(t->sgl, 1);
	sg_set_page(t->sgl, t->pages, PAGE_SIZE, 0);
	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_map_sg(&t->req, t->sgl, 1, 1,
					     DMA_TO_DEVICE));
	bvec_set_page(&bvec, t->pages + 1, 5 * PAGE_SIZE, 0);
	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_map_bvec(&t->req, &bvec, 1, 2,
					       DMA_TO_DEVICE));
	KUNIT_ASSERT_EQ(test, 3, ib_memreg_req_segs(&t->req, segs, 4));
	KUNIT_EXPECT_EQ(test, PAGE_SIZE, segs[0].length);
	KUNIT_EXPECT_EQ(test, 4 * PAGE_SIZE, segs[1].length);
	KUNIT_EXPECT_EQ(test, PAGE_SIZE, segs[2].length);
	ib_memreg_req_unmap(&t->req);
	memreg_test_expect_idle(test, 4, 0);
}

/* I8: if memory can't be added, the request is as it was, and can be posted. */
static void memreg_test_both_fails(struct kunit *test)
{
	static const int errs[] = { -EAGAIN, -EMSGSIZE, -EIO, -EINVAL };
	struct memreg_test *t = test->priv;
	unsigned int round;
	u32 rkeys[2];
	int ret;

	memreg_test_pool(test, 4, 0, 1, 0);
	for (round = 0; round < 4; round++) {
		memreg_test_map(test, 2);
		rkeys[0] = memreg_test_rkey(t, 0);
		rkeys[1] = memreg_test_rkey(t, 1);
		memreg_test_separate(t, 4);
		t->fake->fail_map = round == 2;
		if (round == 3)
			t->sgl[1].length = 0;
		ret = ib_memreg_req_map_sg(&t->req, t->sgl, round ? 2 : 3,
					   round == 1 ? 1 : 3, DMA_TO_DEVICE);
		t->fake->fail_map = false;
		KUNIT_EXPECT_EQ(test, errs[round], ret);
		KUNIT_EXPECT_EQ(test, 2, t->req.nr_mrs);
		KUNIT_EXPECT_EQ(test, 2, memreg_test_stats(t).idle);
		KUNIT_EXPECT_EQ(test, rkeys[0], memreg_test_rkey(t, 0));
		KUNIT_EXPECT_EQ(test, rkeys[1], memreg_test_rkey(t, 1));
		KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
		KUNIT_EXPECT_EQ(test, 3, t->fake->nr_posted);
		memreg_fake_complete(t->fake, UINT_MAX);
		ib_memreg_req_end(&t->req, &t->fake->qp);
		memreg_fake_complete(t->fake, UINT_MAX);
		memreg_test_expect_done(test, 0);
		memreg_test_reconnect(t);
	}
	memreg_test_expect_idle(test, 4, 0);
}

/* I4: after a flush at any step, the MRs of both directions are replaced. */
static void memreg_test_both_flush(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int good, n = 0;

	memreg_test_pool(test, 3, 0, 1, 0);
	/* Three REG_MRs, a SEND; and three LOCAL_INVs. */
	for (good = 0; good < 7; good++) {
		memreg_test_map_both(test, 1, 2);
		KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
		memreg_fake_complete(t->fake, good);
		if (good >= 4) {
			ib_memreg_req_end(&t->req, &t->fake->qp);
			memreg_fake_complete(t->fake, good - 4);
		}
		memreg_fake_flush(t->fake);
		if (good < 4)
			ib_memreg_req_abort(&t->req);
		memreg_test_expect_done(test, -ECONNABORTED);
		memreg_test_expect_idle(test, 3, 3 * ++n);
		memreg_test_reconnect(t);
	}
}

/* I8: a post that fails, in whichever direction, at each of its places. */
static void memreg_test_both_post_fails(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int taken;

	memreg_test_pool(test, 3, 0, 1, 0);
	for (taken = 0; taken < 4; taken++) {
		memreg_test_map_both(test, 2, 1);
		t->fake->take = taken;
		KUNIT_EXPECT_EQ(test, taken ? -ENOTCONN : -ENOMEM,
				memreg_test_post(t, 0));
		memreg_fake_flush(t->fake);
		KUNIT_EXPECT_EQ(test, 0, t->dones);
		if (taken) {
			ib_memreg_req_abort(&t->req);
			memreg_test_expect_done(test, -ECONNABORTED);
		} else {
			ib_memreg_req_unmap(&t->req);
		}
		memreg_test_expect_idle(test, 3, 3 * taken);
		memreg_test_reconnect(t);
	}
}

/*
 * Requests
 */

/* One post: the REG_MRs, then the SEND; another: the LOCAL_INVs. */
static void memreg_test_req_local(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	const struct memreg_fake_wr *wrs = t->fake->wrs;
	unsigned int i;

	memreg_test_pool(test, 4, 0, 1, 0);
	memreg_test_map(test, 4);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	KUNIT_EXPECT_EQ(test, 1, t->fake->posts);
	KUNIT_ASSERT_EQ(test, 5, t->fake->nr_posted);
	for (i = 0; i < 4; i++) {
		KUNIT_EXPECT_EQ(test, IB_WR_REG_MR, wrs[i].opcode);
		KUNIT_EXPECT_EQ(test, memreg_test_rkey(t, i), wrs[i].rkey);
		KUNIT_EXPECT_FALSE(test, wrs[i].signalled);
	}
	KUNIT_EXPECT_EQ(test, IB_WR_SEND, wrs[4].opcode);
	KUNIT_EXPECT_FALSE(test, wrs[4].signalled);
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_EQ(test, 4, t->fake->live);

	ib_memreg_req_end(&t->req, &t->fake->qp);
	KUNIT_EXPECT_EQ(test, 2, t->fake->posts);
	KUNIT_ASSERT_EQ(test, 9, t->fake->nr_posted);
	for (i = 5; i < 9; i++) {
		KUNIT_EXPECT_EQ(test, IB_WR_LOCAL_INV, wrs[i].opcode);
		KUNIT_EXPECT_EQ(test, wrs[i - 5].rkey, wrs[i].rkey);
		KUNIT_EXPECT_EQ(test, i == 8, wrs[i].signalled);
	}
	memreg_fake_complete(t->fake, 3);
	KUNIT_EXPECT_EQ(test, 0, t->dones);
	memreg_fake_complete(t->fake, 1);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 4, 0);
	KUNIT_EXPECT_EQ(test, 4, memreg_test_stats(t).local_invalidated);
	KUNIT_EXPECT_EQ(test, 4, t->fake->allocs);
}

/* The device is one as rxe is. */
static void memreg_test_weak(struct memreg_test *t)
{
	t->fake->ibdev.ops.driver_id = RDMA_DRIVER_RXE;
	t->fake->weak = true;
}

/*
 * I1: no invalidation waits for packets, so MRs are destroyed before the memory
 * is unmapped.
 */
static void memreg_test_req_weak_inv(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	u32 rkey;

	memreg_test_weak(t);
	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	rkey = memreg_test_rkey(t, 1);
	KUNIT_ASSERT_EQ(test, 0,
			memreg_test_post(t, IB_MEMREG_REQ_REMOTE_INV));
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_remote_inv(t, rkey));
	ib_memreg_req_end(&t->req, &t->fake->qp);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	/* One that the peer has killed, and one that we have. */
	memreg_test_expect_idle(test, 2, 2);
	KUNIT_EXPECT_EQ(test, 4, t->fake->allocs);
}

/*
 * I1: an MR whose key the peer has invalidated is replaced before the memory is
 * unmapped.
 */
static void memreg_test_req_weak_remote_inv(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	u32 rkey;

	memreg_test_weak(t);
	memreg_test_pool(test, 1, 0, 1, 0);
	memreg_test_map(test, 1);
	rkey = memreg_test_rkey(t, 0);
	KUNIT_ASSERT_EQ(test, 0,
			memreg_test_post(t, IB_MEMREG_REQ_REMOTE_INV));
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_remote_inv(t, rkey));
	ib_memreg_req_end(&t->req, &t->fake->qp);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 1, 1);
	KUNIT_EXPECT_EQ(test, 2, t->fake->allocs);
}

/* The quirk table decides which devices are weak. */
static void memreg_test_pool_quirk(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 1, 0, 1, 0);
	KUNIT_EXPECT_EQ(test, 0, t->pool->weak);
	ib_memreg_pool_destroy(t->pool);
	t->fake->ibdev.ops.driver_id = RDMA_DRIVER_RXE;
	memreg_test_pool(test, 1, 0, 1, 0);
	KUNIT_EXPECT_EQ(test, BIT(MEMREG_MR_LOCAL) | BIT(MEMREG_MR_REMOTE),
			t->pool->weak);
}

/* done() waits for the SEND, whichever comes first: it, or the answer. */
static void memreg_test_req_remote(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int early;
	u32 rkey;

	memreg_test_pool(test, 1, 0, 1, 0);
	for (early = 0; early < 2; early++) {
		memreg_test_map(test, 1);
		KUNIT_ASSERT_EQ(test, 0,
				memreg_test_post(t, IB_MEMREG_REQ_REMOTE_INV));
		KUNIT_EXPECT_TRUE(test, t->fake->wrs[1].signalled);
		memreg_fake_complete(t->fake, early ? 2 : 1);
		rkey = memreg_test_rkey(t, 0);
		KUNIT_EXPECT_EQ(test, 0, memreg_test_remote_inv(t, rkey));
		KUNIT_EXPECT_EQ(test, 0, t->dones);
		ib_memreg_req_end(&t->req, &t->fake->qp);
		KUNIT_EXPECT_EQ(test, early, t->dones);
		memreg_fake_complete(t->fake, UINT_MAX);
		memreg_test_expect_done(test, 0);
		/* There was nothing for LOCAL_INV to do. */
		KUNIT_EXPECT_EQ(test, 2, t->fake->nr_posted);
		memreg_test_reconnect(t);
	}
	memreg_test_expect_idle(test, 1, 0);
	KUNIT_EXPECT_EQ(test, 2, memreg_test_stats(t).remote_invalidated);
}

/* I5: a key that is not the request's, twice the same one, and unasked. */
static void memreg_test_req_bogus(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	u32 rkey;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	rkey = memreg_test_rkey(t, 1);
	/* An answer to a request that is not posted is refused. */
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_claim_inv(t, rkey));
	KUNIT_ASSERT_EQ(test, 0,
			memreg_test_post(t, IB_MEMREG_REQ_REMOTE_INV));
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_claim_inv(t, rkey + 1));
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_claim_inv(t, 0));
	KUNIT_EXPECT_EQ(test, 0, memreg_test_remote_inv(t, rkey));
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_claim_inv(t, rkey));
	ib_memreg_req_end(&t->req, &t->fake->qp);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_claim_inv(t, rkey));

	memreg_test_map(test, 1);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	rkey = memreg_test_rkey(t, 0);
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_claim_inv(t, rkey));
	ib_memreg_req_end(&t->req, &t->fake->qp);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 2, 0);
	KUNIT_EXPECT_EQ(test, 6, memreg_test_stats(t).bogus);
	KUNIT_EXPECT_EQ(test, 1, memreg_test_stats(t).remote_invalidated);
}

/* One answer counts, and none of a request that does not wait for it. */
static void memreg_test_req_answered_once(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 1, 0, 1, 0);
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_answer(t));
	memreg_test_map(test, 1);
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_answer(t));
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	/* Nothing has completed yet: the answer is faster. */
	KUNIT_EXPECT_EQ(test, 0, memreg_test_answer(t));
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_answer(t));
	KUNIT_EXPECT_EQ(test, 0, t->dones);
	ib_memreg_req_end(&t->req, &t->fake->qp);
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_answer(t));
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	KUNIT_EXPECT_EQ(test, -EPROTO, memreg_test_answer(t));
	memreg_test_expect_idle(test, 1, 0);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_stats(t).bogus);
}

/* I5: a completion that is no answer of this peer changes nothing. */
static void memreg_test_req_answered_by_other(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_qp other = { .device = &t->fake->ibdev };
	struct ib_wc wc;
	u32 rkey;

	memreg_test_pool(test, 1, 0, 1, 0);
	memreg_test_map(test, 1);
	rkey = memreg_test_rkey(t, 0);
	KUNIT_ASSERT_EQ(test, 0,
			memreg_test_post(t, IB_MEMREG_REQ_REMOTE_INV));
	memreg_fake_complete(t->fake, UINT_MAX);

	wc = memreg_test_wc(t);
	wc.wc_flags = IB_WC_WITH_INVALIDATE;
	wc.ex.invalidate_rkey = rkey;
	wc.qp = &other;
	KUNIT_EXPECT_EQ(test, -EPROTO, ib_memreg_req_answered(&t->req, &wc));
	wc.qp = &t->fake->qp;
	wc.opcode = IB_WC_SEND;
	KUNIT_EXPECT_EQ(test, -EPROTO, ib_memreg_req_answered(&t->req, &wc));
	wc.opcode = IB_WC_RECV;
	wc.status = IB_WC_WR_FLUSH_ERR;
	KUNIT_EXPECT_EQ(test, -ECONNABORTED,
			ib_memreg_req_answered(&t->req, &wc));
	KUNIT_EXPECT_EQ(test, 1, t->fake->live);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_stats(t).remote_invalidated);

	/* So the key is not taken for dead when the request ends. */
	ib_memreg_req_end(&t->req, &t->fake->qp);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	KUNIT_EXPECT_EQ(test, 1, memreg_test_stats(t).local_invalidated);
}

/**
 * struct memreg_test_race - An answer that comes while the request is posted
 * @t: The test
 * @ready: The peer runs
 * @ret: Return value for its answer
 */
struct memreg_test_race {
	struct memreg_test *t;
	struct completion ready;
	int ret;
};

static int memreg_test_racer(void *arg)
{
	struct memreg_test_race *race = arg;

	complete(&race->ready);
	while (!READ_ONCE(race->t->fake->paused) && !kthread_should_stop())
		cpu_relax();
	race->ret = memreg_test_answer(race->t);
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

/* Post with another CPU that answers while the driver takes work requests. */
static int memreg_test_post_race(struct kunit *test,
				 struct memreg_test_race *race)
{
	struct memreg_test *t = test->priv;
	struct task_struct *task;
	int ret;

	race->t = t;
	race->ret = 1;
	init_completion(&race->ready);
	task = kthread_create(memreg_test_racer, race, "memreg-racer");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, task);
	migrate_disable();
	kthread_bind(task, cpumask_any_but(cpu_online_mask,
					   smp_processor_id()));
	wake_up_process(task);
	wait_for_completion(&race->ready);
	t->fake->paused = false;
	t->fake->pause_for = &t->req.lock;
	ret = memreg_test_post(t, 0);
	t->fake->pause_for = NULL;
	migrate_enable();
	kthread_stop(task);
	return ret;
}

/* An answer waits for the post, and counts for nothing if that failed. */
static void memreg_test_req_answer_races(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct memreg_test_race race;
	unsigned int taken;

	if (num_online_cpus() < 2) {
		kunit_skip(test, "there is one CPU");
		return;
	}
	memreg_test_pool(test, 3, 0, 1, 0);
	memreg_test_map(test, 3);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_post_race(test, &race));
	KUNIT_EXPECT_TRUE(test, t->fake->paused);
	KUNIT_EXPECT_EQ(test, 0, race.ret);
	ib_memreg_req_end(&t->req, &t->fake->qp);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	memreg_test_reconnect(t);
	for (taken = 1; taken <= 3; taken++) {
		memreg_test_map(test, 3);
		t->fake->take = taken;
		KUNIT_EXPECT_EQ(test, -ENOTCONN,
				memreg_test_post_race(test, &race));
		KUNIT_EXPECT_TRUE(test, t->fake->paused);
		KUNIT_EXPECT_EQ(test, -EPROTO, race.ret);
		memreg_fake_flush(t->fake);
		KUNIT_EXPECT_EQ(test, 0, t->dones);
		ib_memreg_req_abort(&t->req);
		memreg_test_expect_done(test, -ECONNABORTED);
		memreg_test_expect_idle(test, 3, 3 * taken);
		memreg_test_reconnect(t);
	}
}

/* I4: the answer has killed one key; the LOCAL_INVs of the others fail. */
static void memreg_test_req_answered_flush(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int good;

	memreg_test_pool(test, 3, 0, 1, 0);
	for (good = 0; good < 2; good++) {
		memreg_test_map(test, 3);
		KUNIT_ASSERT_EQ(test, 0,
				memreg_test_post(t, IB_MEMREG_REQ_REMOTE_INV));
		memreg_fake_complete(t->fake, UINT_MAX);
		KUNIT_EXPECT_EQ(test, 0,
				memreg_test_remote_inv(t,
						       memreg_test_rkey(t, 1)));
		ib_memreg_req_end(&t->req, &t->fake->qp);
		KUNIT_EXPECT_EQ(test, 6, t->fake->nr_posted);
		memreg_fake_complete(t->fake, good);
		memreg_fake_flush(t->fake);
		memreg_test_expect_done(test, -ECONNABORTED);
		memreg_test_expect_idle(test, 3, 3 * (good + 1));
		memreg_test_reconnect(t);
	}
}

/* The message is not what was asked for: an answer that counts is aborted. */
static void memreg_test_req_answered_abort(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_answer(t));
	memreg_fake_flush(t->fake);
	ib_memreg_req_abort(&t->req);
	memreg_test_expect_done(test, -ECONNABORTED);
	memreg_test_expect_idle(test, 2, 2);
}

/**
 * struct memreg_test_one - One of several requests
 * @req: The request
 * @done: done() was called
 * @status: Argument of done()
 */
struct memreg_test_one {
	struct ib_memreg_req req;
	struct completion done;
	int status;
};

static void memreg_test_one_done(struct ib_memreg_req *req, int status)
{
	struct memreg_test_one *one =
		container_of(req, struct memreg_test_one, req);

	one->status = status;
	complete(&one->done);
}

static const struct ib_memreg_req_ops memreg_test_one_ops = {
	.done = memreg_test_one_done,
};

/* Map a page to each of several requests, and post as many as there are MRs. */
static struct memreg_test_one *memreg_test_several(struct kunit *test,
						   unsigned int n,
						   unsigned int mrs)
{
	struct memreg_test *t = test->priv;
	struct ib_send_wr send = { .opcode = IB_WR_SEND };
	struct memreg_test_one *ones;
	struct ib_memreg_req *req;
	unsigned int i;

	ones = kunit_kcalloc(test, n, sizeof(*ones), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, ones);
	memreg_test_pool(test, mrs, 0, 1, 0);
	memreg_test_separate(t, 1);
	for (i = 0; i < n; i++) {
		init_completion(&ones[i].done);
		req = &ones[i].req;
		ib_memreg_req_init(req, t->pool, NULL, &memreg_test_one_ops);
		KUNIT_ASSERT_EQ(test, i < mrs ? 0 : -EAGAIN,
				ib_memreg_req_map_sg(req, t->sgl, 1, 1,
						     DMA_FROM_DEVICE));
		if (i >= mrs)
			continue;
		KUNIT_ASSERT_EQ(test, 0, ib_memreg_req_post
				(req, &t->fake->qp, &send,
				 IB_MEMREG_REQ_REMOTE_INV));
	}
	return ones;
}

/*
 * One of several requests is answered before the connection is lost, with its
 * own key: that of another is refused (I5). All are aborted then.
 */
static void memreg_test_req_several(struct kunit *test)
{
	struct memreg_test_one *ones = memreg_test_several(test, 4, 3);
	struct memreg_test *t = test->priv;
	struct ib_wc wc = memreg_test_wc(t);
	unsigned int i;

	memreg_fake_complete(t->fake, UINT_MAX);
	wc.wc_flags = IB_WC_WITH_INVALIDATE;
	wc.ex.invalidate_rkey = ones[1].req.first->fast.mr->rkey;
	KUNIT_EXPECT_EQ(test, -EPROTO,
			ib_memreg_req_answered(&ones[0].req, &wc));
	KUNIT_EXPECT_EQ(test, -EPROTO,
			ib_memreg_req_answered(&ones[3].req, &wc));
	spin_lock_bh(&t->fake->lock);
	memreg_fake_inv(t->fake, wc.ex.invalidate_rkey);
	spin_unlock_bh(&t->fake->lock);
	KUNIT_EXPECT_EQ(test, 0, ib_memreg_req_answered(&ones[1].req, &wc));
	ib_memreg_req_end(&ones[1].req, &t->fake->qp);
	KUNIT_EXPECT_TRUE(test, try_wait_for_completion(&ones[1].done));
	KUNIT_EXPECT_EQ(test, 0, ones[1].status);

	memreg_fake_flush(t->fake);
	for (i = 0; i < 4; i++)
		ib_memreg_req_abort(&ones[i].req);
	for (i = 0; i < 3; i += 2) {
		KUNIT_EXPECT_NE(test, 0UL,
				wait_for_completion_timeout
				(&ones[i].done, MEMREG_TEST_TIMEOUT));
		KUNIT_EXPECT_EQ(test, -ECONNABORTED, ones[i].status);
	}
	memreg_test_expect_idle(test, 3, 2);
	KUNIT_EXPECT_FALSE(test, completion_done(&ones[1].done));
	KUNIT_EXPECT_FALSE(test, completion_done(&ones[3].done));
	KUNIT_EXPECT_EQ(test, 2, memreg_test_stats(t).bogus);
}

#ifdef kunit_warning_suppress
/* To end a request twice, or to unmap it too early, is refused. */
static void memreg_test_req_ended_twice(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	kunit_warning_suppress(test) {
		ib_memreg_req_end(&t->req, &t->fake->qp);
		KUNIT_EXPECT_EQ(test, -EINVAL,
				ib_memreg_req_end_sync(&t->req, NULL));
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 2);
	}
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	kunit_warning_suppress(test) {
		ib_memreg_req_unmap(&t->req);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, 2, t->req.nr_mrs);
	memreg_fake_complete(t->fake, UINT_MAX);
	ib_memreg_req_end(&t->req, &t->fake->qp);
	kunit_warning_suppress(test) {
		ib_memreg_req_end(&t->req, &t->fake->qp);
		KUNIT_EXPECT_EQ(test, -EINVAL,
				ib_memreg_req_end_sync(&t->req, NULL));
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 2);
	}
	ib_memreg_req_abort(&t->req);
	KUNIT_EXPECT_EQ(test, 0, t->dones);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 2, 0);
	KUNIT_EXPECT_EQ(test, 2, memreg_test_stats(t).local_invalidated);
}
#endif

/* I4: after a flush at each step, all MRs are replaced. */
static void memreg_test_req_flush(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int flags, good, n = 0;

	memreg_test_pool(test, 3, 0, 1, 0);
	for (flags = 0; flags < 2; flags++) {
		/* Three REG_MRs, a SEND; and three LOCAL_INVs. */
		for (good = 0; good < 7; good++) {
			memreg_test_map(test, 3);
			KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, flags));
			memreg_fake_complete(t->fake, good);
			if (good >= 4) {
				ib_memreg_req_end(&t->req, &t->fake->qp);
				memreg_fake_complete(t->fake, good - 4);
			}
			memreg_fake_flush(t->fake);
			KUNIT_EXPECT_GE(test, t->errors, 1);
			/* It is too late for that if there was an end. */
			if (good < 4)
				ib_memreg_req_abort(&t->req);
			memreg_test_expect_done(test, -ECONNABORTED);
			memreg_test_expect_idle(test, 3, 3 * ++n);
			memreg_test_reconnect(t);
		}
	}
}

/* The answer has come, but the queue is in error already. */
static void memreg_test_req_end_flushed(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int good;

	memreg_test_pool(test, 3, 0, 1, 0);
	for (good = 0; good < 4; good++) {
		memreg_test_map(test, 3);
		KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
		memreg_fake_complete(t->fake, good);
		t->fake->error = true;
		/* REG_MRs complete while LOCAL_INVs are posted. */
		ib_memreg_req_end(&t->req, &t->fake->qp);
		KUNIT_EXPECT_EQ(test, 0, t->dones);
		memreg_fake_flush(t->fake);
		memreg_test_expect_done(test, -ECONNABORTED);
		memreg_test_expect_idle(test, 3, 3 * (good + 1));
		memreg_test_reconnect(t);
	}
}

/*
 * I8: a request that was not posted is unchanged; one that was posted in part
 * has to be aborted.
 */
static void memreg_test_req_post_fails(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int taken, flags, n = 0;
	u32 rkey;

	memreg_test_pool(test, 3, 0, 1, 0);
	for (flags = 0; flags < 2; flags++) {
		memreg_test_map(test, 3);
		rkey = memreg_test_rkey(t, 0);
		t->fake->take = 0;
		KUNIT_EXPECT_EQ(test, -ENOMEM, memreg_test_post(t, flags));
		KUNIT_EXPECT_EQ(test, rkey, memreg_test_rkey(t, 0));
		KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, flags));
		memreg_fake_complete(t->fake, UINT_MAX);
		ib_memreg_req_end(&t->req, &t->fake->qp);
		memreg_fake_complete(t->fake, UINT_MAX);
		memreg_test_expect_done(test, 0);
		memreg_test_reconnect(t);

		for (taken = 1; taken <= 3; taken++) {
			memreg_test_map(test, 3);
			t->fake->take = taken;
			KUNIT_EXPECT_EQ(test, -ENOTCONN,
					memreg_test_post(t, flags));
			memreg_fake_flush(t->fake);
			KUNIT_EXPECT_EQ(test, 0, t->dones);
			ib_memreg_req_abort(&t->req);
			memreg_test_expect_done(test, -ECONNABORTED);
			memreg_test_expect_idle(test, 3, 3 * ++n);
			memreg_test_reconnect(t);
		}
	}
	memreg_test_map(test, 1);
	t->fake->take = 0;
	KUNIT_EXPECT_EQ(test, -ENOMEM, memreg_test_post(t, 0));
	ib_memreg_req_unmap(&t->req);
	memreg_test_expect_idle(test, 3, 3 * n);
}

/* LOCAL_INVs that can't be posted: the worker ends the connection. */
static void memreg_test_req_end_fails(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int taken, flags, n = 0;

	memreg_test_pool(test, 3, 0, 1, 0);
	for (flags = 0; flags < 2; flags++) {
		for (taken = 0; taken < 3; taken++) {
			memreg_test_map(test, 3);
			KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, flags));
			t->fake->take = taken;
			/* Not even the SEND has completed. */
			ib_memreg_req_end(&t->req, &t->fake->qp);
			memreg_test_expect_done(test, -ECONNABORTED);
			KUNIT_EXPECT_EQ(test, 1, t->fake->drains);
			memreg_test_expect_idle(test, 3, 3 * ++n);
			memreg_test_reconnect(t);
		}
	}
}

static void memreg_test_req_end_without_qp(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	memreg_fake_complete(t->fake, UINT_MAX);
	ib_memreg_req_end(&t->req, NULL);
	memreg_test_expect_done(test, 0);
	KUNIT_EXPECT_EQ(test, 3, t->fake->nr_posted);
	memreg_test_expect_idle(test, 2, 2);
}

static int memreg_test_completer(void *arg)
{
	struct memreg_test *t = arg;

	while (!kthread_should_stop()) {
		/* Work requests that another thread has posted. */
		if (smp_load_acquire(&t->fake->posts) > 1)
			memreg_fake_complete(t->fake, UINT_MAX);
		cond_resched();
	}
	return 0;
}

static void memreg_test_req_end_sync(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct task_struct *task;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	memreg_fake_complete(t->fake, UINT_MAX);
	/* With nobody to complete it, it takes the worker. */
	KUNIT_EXPECT_EQ(test, 0, ib_memreg_req_end_sync(&t->req, NULL));
	KUNIT_EXPECT_EQ(test, 1, t->dones);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 2, 2);
	memreg_test_reconnect(t);

	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	t->fake->take = 1;
	KUNIT_EXPECT_EQ(test, -ECONNABORTED,
			ib_memreg_req_end_sync(&t->req, &t->fake->qp));
	memreg_test_expect_done(test, -ECONNABORTED);
	memreg_test_expect_idle(test, 2, 4);
	memreg_test_reconnect(t);

	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	memreg_fake_complete(t->fake, UINT_MAX);
	task = kthread_run(memreg_test_completer, t, "memreg-completer");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, task);
	KUNIT_EXPECT_EQ(test, 0,
			ib_memreg_req_end_sync(&t->req, &t->fake->qp));
	kthread_stop(task);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 2, 4);
}

/*
 * A request is aborted once no answer came, and once the peer had killed one of
 * its keys: the first, the second or the third.
 */
static void memreg_test_req_abort(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int killed, n = 0;

	memreg_test_pool(test, 3, 0, 1, 0);
	/* An abort does nothing to a request that is not posted. */
	memreg_test_map(test, 3);
	ib_memreg_req_abort(&t->req);
	KUNIT_EXPECT_EQ(test, 3, t->req.nr_mrs);
	ib_memreg_req_unmap(&t->req);
	for (killed = 0; killed <= 3; killed++) {
		memreg_test_map(test, 3);
		KUNIT_ASSERT_EQ(test, 0,
				memreg_test_post(t, IB_MEMREG_REQ_REMOTE_INV));
		memreg_fake_complete(t->fake, 4);
		if (killed)
			KUNIT_EXPECT_EQ(test, 0, memreg_test_remote_inv
					(t, memreg_test_rkey(t, killed - 1)));
		memreg_fake_flush(t->fake);
		ib_memreg_req_abort(&t->req);
		memreg_test_expect_done(test, -ECONNABORTED);
		ib_memreg_req_abort(&t->req);
		KUNIT_EXPECT_EQ(test, 0, t->dones);
		memreg_test_expect_idle(test, 3, 3 * ++n);
		memreg_test_reconnect(t);
	}
}

static void memreg_test_req_without_memory(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 1, 0, 1, 0);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	KUNIT_EXPECT_EQ(test, 1, t->fake->nr_posted);
	KUNIT_EXPECT_TRUE(test, t->fake->wrs[0].signalled);
	ib_memreg_req_end(&t->req, &t->fake->qp);
	KUNIT_EXPECT_EQ(test, 0, t->dones);
	memreg_fake_complete(t->fake, 1);
	memreg_test_expect_done(test, 0);

	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	memreg_fake_flush(t->fake);
	ib_memreg_req_abort(&t->req);
	memreg_test_expect_done(test, -ECONNABORTED);
	memreg_test_expect_idle(test, 1, 0);
}

static void memreg_test_req_refuses(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_send_wr second = { .opcode = IB_WR_SEND };
	struct ib_send_wr send = { .opcode = IB_WR_SEND, .next = &second };

	memreg_test_pool(test, 1, 0, 1, 0);
	KUNIT_EXPECT_EQ(test, -EINVAL, memreg_test_post(t, BIT(1)));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			ib_memreg_req_post(&t->req, &t->fake->qp, &send, 0));
	KUNIT_EXPECT_EQ(test, 0, t->fake->posts);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	/* It is posted. */
	KUNIT_EXPECT_EQ(test, -EINVAL, memreg_test_post(t, 0));
	memreg_test_separate(t, 1);
	KUNIT_EXPECT_EQ(test, -EINVAL,
			ib_memreg_req_map_sg(&t->req, t->sgl, 1, 1,
					     DMA_TO_DEVICE));
	memreg_fake_complete(t->fake, 1);
	ib_memreg_req_end(&t->req, &t->fake->qp);
	memreg_test_expect_done(test, 0);
}

/*
 * Queues
 */

/* Room for requests and for the drain comes on top of the caller's own. */
static void memreg_test_init_qp(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_qp_init_attr attr = { .cap.max_send_wr = 3 };

	t->fake->ibdev.attrs.max_qp_wr = 1000;
	t->fake->ibdev.attrs.max_cqe = 1000;
	KUNIT_EXPECT_EQ(test, 3 + 10 * (2 * 4 + 1) + 1,
			ib_memreg_init_qp(&t->fake->ibdev, &attr, 10, 4));
	KUNIT_EXPECT_EQ(test, 94, attr.cap.max_send_wr);
	KUNIT_EXPECT_EQ(test, IB_SIGNAL_REQ_WR, attr.sq_sig_type);
	/* Requests without memory have a SEND. */
	KUNIT_EXPECT_EQ(test, 94 + 5 + 1,
			ib_memreg_init_qp(&t->fake->ibdev, &attr, 5, 0));
}

/* I8: more than the device has, and more than a number can hold. */
static void memreg_test_init_qp_refuses(struct kunit *test)
{
	static const unsigned int many[][2] = {
		{ 1, UINT_MAX }, { 1, BIT(31) }, { UINT_MAX, 1 },
		{ BIT(20), BIT(20) }, { UINT_MAX, 0 }, { UINT_MAX - 1, 0 },
		{ 333, 1 },
	};
	struct memreg_test *t = test->priv;
	struct ib_device *ibdev = &t->fake->ibdev;
	struct ib_qp_init_attr attr = { .cap.max_send_wr = 1 };
	unsigned int i;

	ibdev->attrs.max_qp_wr = 1000;
	ibdev->attrs.max_cqe = 1000;
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_memreg_init_qp(ibdev, &attr, 0, 1));
	for (i = 0; i < ARRAY_SIZE(many); i++)
		KUNIT_EXPECT_EQ(test, -ENOSPC,
				ib_memreg_init_qp(ibdev, &attr, many[i][0],
						  many[i][1]));
	/* The smaller one of both limits counts. */
	ibdev->attrs.max_cqe = 997;
	KUNIT_EXPECT_EQ(test, -ENOSPC,
			ib_memreg_init_qp(ibdev, &attr, 332, 1));
	KUNIT_EXPECT_EQ(test, 1, attr.cap.max_send_wr);
	KUNIT_EXPECT_EQ(test, IB_SIGNAL_ALL_WR, attr.sq_sig_type);
	ibdev->attrs.max_cqe = 998;
	KUNIT_EXPECT_EQ(test, 998, ib_memreg_init_qp(ibdev, &attr, 332, 1));
}

/* A request posts all that it may have on the queue, and a drain fits. */
static void memreg_test_init_qp_suffices(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_qp_init_attr attr = {};

	t->fake->ibdev.attrs.max_qp_wr = 1000;
	t->fake->ibdev.attrs.max_cqe = 1000;
	memreg_test_pool(test, 4, 0, 1, 0);
	KUNIT_ASSERT_GT(test, ib_memreg_init_qp(&t->fake->ibdev, &attr, 1, 4),
			0);
	memreg_test_map(test, 4);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	/* Nothing has completed: the answer was faster. */
	ib_memreg_req_end(&t->req, &t->fake->qp);
	KUNIT_EXPECT_EQ(test, attr.cap.max_send_wr, t->fake->nr_posted + 1);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
}

static struct kunit_case memreg_test_pool_cases[] = {
	KUNIT_CASE(memreg_test_pool_attr),
	KUNIT_CASE(memreg_test_pool_pages),
	KUNIT_CASE(memreg_test_pool_node),
	KUNIT_CASE(memreg_test_pool_quirk),
	KUNIT_CASE(memreg_test_pool_exhausted),
	KUNIT_CASE(memreg_test_pool_steal),
	KUNIT_CASE(memreg_test_pool_grows),
	KUNIT_CASE(memreg_test_pool_squeezed),
	KUNIT_CASE(memreg_test_pools_squeezed),
	KUNIT_CASE(memreg_test_pool_ages),
	KUNIT_CASE(memreg_test_pool_replaces_later),
	KUNIT_CASE(memreg_test_pool_replaces_meanwhile),
	KUNIT_CASE(memreg_test_reserve),
	KUNIT_CASE(memreg_test_reserve_replaced),
	KUNIT_CASE(memreg_test_pool_tag),
	KUNIT_CASE(memreg_test_pool_counts),
#ifdef kunit_warning_suppress
	KUNIT_CASE(memreg_test_pool_put_twice),
#endif
	KUNIT_CASE(memreg_test_pool_concurrent),
	{}
};

static struct kunit_suite memreg_test_pool_suite = {
	.name = "ib_memreg_pool",
	.init = memreg_test_init,
	.exit = memreg_test_exit,
	.test_cases = memreg_test_pool_cases,
};

static struct kunit_case memreg_test_req_cases[] = {
	KUNIT_CASE(memreg_test_map_256_pages),
	KUNIT_CASE(memreg_test_map_contiguous),
	KUNIT_CASE(memreg_test_map_adjacent),
	KUNIT_CASE(memreg_test_map_large_piece),
	KUNIT_CASE(memreg_test_map_gaps),
	KUNIT_CASE(memreg_test_map_sg_gaps),
	KUNIT_CASE(memreg_test_map_bvec),
	KUNIT_CASE(memreg_test_map_fails),
	KUNIT_CASE(memreg_test_both_one_post),
	KUNIT_CASE(memreg_test_both_segs),
	KUNIT_CASE(memreg_test_both_fails),
	KUNIT_CASE(memreg_test_both_flush),
	KUNIT_CASE(memreg_test_both_post_fails),
	KUNIT_CASE(memreg_test_req_local),
	KUNIT_CASE(memreg_test_req_weak_inv),
	KUNIT_CASE(memreg_test_req_weak_remote_inv),
	KUNIT_CASE(memreg_test_req_remote),
	KUNIT_CASE(memreg_test_req_bogus),
	KUNIT_CASE(memreg_test_req_answered_once),
	KUNIT_CASE(memreg_test_req_answered_by_other),
	KUNIT_CASE(memreg_test_req_answer_races),
	KUNIT_CASE(memreg_test_req_answered_flush),
	KUNIT_CASE(memreg_test_req_answered_abort),
	KUNIT_CASE(memreg_test_req_several),
#ifdef kunit_warning_suppress
	KUNIT_CASE(memreg_test_req_ended_twice),
#endif
	KUNIT_CASE(memreg_test_req_flush),
	KUNIT_CASE(memreg_test_req_end_flushed),
	KUNIT_CASE(memreg_test_req_post_fails),
	KUNIT_CASE(memreg_test_req_end_fails),
	KUNIT_CASE(memreg_test_req_end_without_qp),
	KUNIT_CASE(memreg_test_req_end_sync),
	KUNIT_CASE(memreg_test_req_abort),
	KUNIT_CASE(memreg_test_req_without_memory),
	KUNIT_CASE(memreg_test_req_refuses),
	KUNIT_CASE(memreg_test_init_qp),
	KUNIT_CASE(memreg_test_init_qp_refuses),
	KUNIT_CASE(memreg_test_init_qp_suffices),
	{}
};

static struct kunit_suite memreg_test_req_suite = {
	.name = "ib_memreg_req",
	.init = memreg_test_init,
	.exit = memreg_test_exit,
	.test_cases = memreg_test_req_cases,
};

kunit_test_suites(&memreg_test_pool_suite, &memreg_test_req_suite);

#ifdef MEMREG_EXPORT_NS_STRING
MODULE_IMPORT_NS("IB_MEMREG");
MODULE_IMPORT_NS("EXPORTED_FOR_KUNIT_TESTING");
#else
MODULE_IMPORT_NS(IB_MEMREG);
MODULE_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);
#endif
MODULE_DESCRIPTION("KUnit tests of ib_memreg");
MODULE_LICENSE("GPL");
