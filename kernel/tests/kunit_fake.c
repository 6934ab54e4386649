// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device that exists in name only, for KUnit tests of pools and requests: its
 * queue pair records posted work requests, and executes or flushes them when a
 * test says so; posts fail where a test requests it. So each failure can be
 * tested at each step.
 *
 * The device also watches: a key that is made while it works, and memory that
 * was unmapped before its key died, are counted as violations.
 */
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "kapi/kapi.h"
#include "tests/kunit_fake.h"

/**
 * struct memreg_fake_mr - An MR of the device
 * @ibmr: Head
 * @node: In memreg_fake.mrs
 * @valid: Its key works
 * @key: The key
 * @lingers: The key is dead, but packets may be about that passed its check
 * @owner: The MR of the pool that it belongs to, once its key was made
 */
struct memreg_fake_mr {
	struct ib_mr ibmr;
	struct list_head node;
	bool valid;
	u32 key;
	bool lingers;
	const struct ib_memreg_mr *owner;
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
			to->owner = container_of_const(reg_wr(wr),
						       struct ib_memreg_mr,
						       fast.wr);
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
	mr->owner = wr->owner;
	mr->key = wr->rkey;
	fake->live++;
	return true;
}

/* Have a key killed, by the peer or by a work request. */
bool memreg_fake_inv(struct memreg_fake *fake, u32 rkey)
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
		/* Weak devices do not look whether the key works. */
		done = memreg_fake_inv(fake, wr->rkey) || fake->weak;
	spin_unlock_bh(&fake->lock);
	return done;
}

/* Complete up to @n work requests, as far as there are any. */
void memreg_fake_complete(struct memreg_fake *fake, unsigned int n)
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

void memreg_fake_flush(struct memreg_fake *fake)
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

const struct ib_memreg_req_ops memreg_test_ops = {
	.done = memreg_test_done,
	.error = memreg_test_error,
};

static void memreg_test_available(void *context)
{
	struct memreg_test *t = context;

	atomic_inc(&t->available);
	wake_up_all(&t->wait);
}

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

int memreg_test_init(struct kunit *test)
{
	struct memreg_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, t);
	test->priv = t;
	init_completion(&t->done);
	init_waitqueue_head(&t->wait);
	t->fake = memreg_fake_new(test);
	t->pages = alloc_pages(GFP_KERNEL | __GFP_RETRY_MAYFAIL,
			       MEMREG_TEST_ORDER);
	KUNIT_ASSERT_NOT_NULL(test, t->pages);
	return 0;
}

/* Everything is as it was; no test leaves an MR or a key. */
void memreg_test_exit(struct kunit *test)
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
void memreg_test_pool(struct kunit *test, unsigned int count,
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
		.available = memreg_test_available,
		.context = t,
	};
	struct ib_memreg_pool *pool = ib_memreg_pool_create(t->fake->pd, &attr);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, pool);
	t->pool = pool;
	ib_memreg_req_init(&t->req, pool, NULL, &memreg_test_ops);
}

struct ib_memreg_pool_stats memreg_test_stats(struct memreg_test *t)
{
	struct ib_memreg_pool_stats stats;

	/* Let workers of requests come to their end. */
	wait_var_event(&t->pool->works, !atomic_read(&t->pool->works));
	ib_memreg_pool_query(t->pool, &stats);
	return stats;
}

/* Let the pool's workers do what they were called for. */
void memreg_test_settle(struct memreg_test *t)
{
	wait_var_event(&t->pool->works, !atomic_read(&t->pool->works));
	flush_delayed_work(&t->pool->refill);
	flush_delayed_work(&t->pool->work);
}

/* @n pieces of a page each, with a page between any two. */
void memreg_test_separate(struct memreg_test *t, unsigned int n)
{
	unsigned int i;

	sg_init_table(t->sgl, n);
	for (i = 0; i < n; i++)
		sg_set_page(&t->sgl[i], t->pages + 2 * i, PAGE_SIZE, 0);
}

/* Map so many MRs, which hold a page each. */
void memreg_test_map(struct kunit *test, unsigned int mrs)
{
	struct memreg_test *t = test->priv;

	memreg_test_separate(t, mrs);
	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_map_sg(&t->req, t->sgl, mrs, mrs,
					     DMA_FROM_DEVICE));
	KUNIT_ASSERT_EQ(test, mrs, t->req.nr_mrs);
}

int memreg_test_post(struct memreg_test *t, unsigned int flags)
{
	struct ib_send_wr send = { .opcode = IB_WR_SEND };

	return ib_memreg_req_post(&t->req, &t->fake->qp, &send, flags);
}

u32 memreg_test_rkey(struct memreg_test *t, unsigned int i)
{
	struct ib_memreg_seg segs[16];

	return i < ib_memreg_req_segs(&t->req, segs, 16) ? segs[i].rkey : 0;
}

/* Completion of the receive of an answer. */
struct ib_wc memreg_test_wc(struct memreg_test *t)
{
	return (struct ib_wc) {
		.status = IB_WC_SUCCESS,
		.opcode = IB_WC_RECV,
		.qp = &t->fake->qp,
	};
}

/* The peer answers. */
int memreg_test_answer(struct memreg_test *t)
{
	struct ib_wc wc = memreg_test_wc(t);

	return ib_memreg_req_answered(&t->req, &wc);
}

/* The peer reports that it has invalidated a key. */
int memreg_test_claim_inv(struct memreg_test *t, u32 rkey)
{
	struct ib_wc wc = memreg_test_wc(t);

	wc.wc_flags = IB_WC_WITH_INVALIDATE;
	wc.ex.invalidate_rkey = rkey;
	return ib_memreg_req_answered(&t->req, &wc);
}

/* The peer kills a key with its answer. */
int memreg_test_remote_inv(struct memreg_test *t, u32 rkey)
{
	spin_lock_bh(&t->fake->lock);
	memreg_fake_inv(t->fake, rkey);
	spin_unlock_bh(&t->fake->lock);
	return memreg_test_claim_inv(t, rkey);
}

/* done() was called once, with this status, and all was as it should be. */
void memreg_test_expect_done(struct kunit *test, int status)
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
void memreg_test_expect_idle(struct kunit *test, u64 total, u64 replaced)
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
void memreg_test_reconnect(struct memreg_test *t)
{
	t->fake->error = false;
	t->fake->nr_posted = 0;
	t->fake->nr_done = 0;
	t->fake->posts = 0;
	t->fake->drains = 0;
	t->errors = 0;
}
