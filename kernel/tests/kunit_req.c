// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of requests; and the module of all KUnit tests.
 */
#include <kunit/visibility.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "kapi/kapi.h"
#include "tests/kunit_fake.h"

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

/* The one call that ends a request returns true; the others do nothing. */
static void memreg_test_req_ended_twice(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_posted(&t->req));
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_end(&t->req, &t->fake->qp));
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_end(&t->req, NULL));
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_abort(&t->req));
	KUNIT_EXPECT_EQ(test, 0, ib_memreg_req_wait(&t->req));
	KUNIT_EXPECT_EQ(test, 2, t->req.nr_mrs);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_posted(&t->req));
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_end(&t->req, &t->fake->qp));
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_end(&t->req, &t->fake->qp));
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_end(&t->req, NULL));
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_abort(&t->req));
	KUNIT_EXPECT_EQ(test, 5, t->fake->nr_posted);
	KUNIT_EXPECT_EQ(test, 0, t->dones);
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_posted(&t->req));
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_posted(&t->req));
	memreg_test_expect_done(test, 0);
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_abort(&t->req));
	KUNIT_EXPECT_EQ(test, 0, ib_memreg_req_wait(&t->req));
	KUNIT_EXPECT_EQ(test, 0, t->dones);
	memreg_test_expect_idle(test, 2, 0);
	KUNIT_EXPECT_EQ(test, 2, memreg_test_stats(t).local_invalidated);
}

#ifdef kunit_warning_suppress
/* To unmap a request that is posted is refused. */
static void memreg_test_req_unmapped_early(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	kunit_warning_suppress(test) {
		ib_memreg_req_unmap(&t->req);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_EQ(test, 2, t->req.nr_mrs);
	memreg_fake_complete(t->fake, UINT_MAX);
	ib_memreg_req_end(&t->req, &t->fake->qp);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 2, 0);
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

/* A wait returns what done() got, after done(). */
static void memreg_test_req_waits(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct task_struct *task;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	memreg_fake_complete(t->fake, UINT_MAX);
	/* With nobody to complete it, it takes the worker. */
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_end(&t->req, NULL));
	KUNIT_EXPECT_EQ(test, 0, ib_memreg_req_wait(&t->req));
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 2, 2);
	memreg_test_reconnect(t);

	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	task = kthread_run(memreg_test_completer, t, "memreg-completer");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, task);
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_end(&t->req, &t->fake->qp));
	KUNIT_EXPECT_EQ(test, 0, ib_memreg_req_wait(&t->req));
	kthread_stop(task);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 2, 2);
	/* To wait twice is no error. */
	KUNIT_EXPECT_EQ(test, 0, ib_memreg_req_wait(&t->req));
}

/* A request without done() is only waited for. */
static void memreg_test_req_without_done(struct kunit *test)
{
	static const struct ib_memreg_req_ops none;
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 2, 0, 1, 0);
	ib_memreg_req_init(&t->req, t->pool, NULL, &none);
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	memreg_fake_flush(t->fake);
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_abort(&t->req));
	ib_memreg_req_wait(&t->req);
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_posted(&t->req));
	memreg_test_expect_idle(test, 2, 2);
}

/**
 * struct memreg_test_ender - One of several threads that end a request
 * @work: Runs in a worker
 * @t: The test
 * @waiting: Number of threads that have not come to the start
 * @abort: Aborts it
 * @won: It was the one that has ended it
 */
struct memreg_test_ender {
	struct work_struct work;
	struct memreg_test *t;
	atomic_t *waiting;
	bool abort;
	bool won;
};

#define MEMREG_TEST_ENDERS	3
#define MEMREG_TEST_RACES	100

static void memreg_test_ender(struct work_struct *work)
{
	struct memreg_test_ender *ender =
		container_of(work, struct memreg_test_ender, work);
	struct memreg_test *t = ender->t;

	atomic_dec(ender->waiting);
	while (atomic_read(ender->waiting))
		cond_resched();
	ender->won = ender->abort ? ib_memreg_req_abort(&t->req) :
				    ib_memreg_req_end(&t->req, NULL);
	ib_memreg_req_wait(&t->req);
}

/* Threads end, abort and wait: one of them ends it, and done() comes once. */
static void memreg_test_req_end_races(struct kunit *test)
{
	struct memreg_test_ender *enders;
	struct memreg_test *t = test->priv;
	unsigned int i, round, won;
	atomic_t waiting;

	enders = kunit_kcalloc(test, MEMREG_TEST_ENDERS, sizeof(*enders),
			       GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, enders);
	memreg_test_pool(test, 1, 0, 1, 0);
	for (round = 0; round < MEMREG_TEST_RACES; round++) {
		memreg_test_map(test, 1);
		KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
		memreg_fake_complete(t->fake, UINT_MAX);
		atomic_set(&waiting, MEMREG_TEST_ENDERS);
		for (i = 0; i < MEMREG_TEST_ENDERS; i++) {
			INIT_WORK(&enders[i].work, memreg_test_ender);
			enders[i].t = t;
			enders[i].waiting = &waiting;
			enders[i].abort = (i + round) & 1;
			queue_work(system_unbound_wq, &enders[i].work);
		}
		won = 0;
		for (i = 0; i < MEMREG_TEST_ENDERS; i++) {
			flush_work(&enders[i].work);
			won += enders[i].won;
		}
		KUNIT_EXPECT_EQ(test, 1, won);
		KUNIT_EXPECT_FALSE(test, ib_memreg_req_posted(&t->req));
		memreg_test_expect_done(test, t->status);
		memreg_test_reconnect(t);
	}
	memreg_test_expect_idle(test, 1, MEMREG_TEST_RACES);
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

/*
 * All posted requests of a queue pair are aborted, whatever has become of them,
 * and done; others are not.
 */
static void memreg_test_pool_abort(struct kunit *test)
{
	enum { UNPOSTED, OTHER, POSTED, PARTIAL, ANSWERED, ENDED, N };
	struct memreg_test *t = test->priv;
	struct ib_qp other = { .device = &t->fake->ibdev };
	struct ib_send_wr send = { .opcode = IB_WR_SEND };
	struct memreg_test_one *ones;
	struct ib_wc wc = memreg_test_wc(t);
	unsigned int i;
	int ret;

	ones = kunit_kcalloc(test, N, sizeof(*ones), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, ones);
	memreg_test_pool(test, N, 0, 1, 0);
	memreg_test_separate(t, 1);
	for (i = 0; i < N; i++) {
		init_completion(&ones[i].done);
		ib_memreg_req_init(&ones[i].req, t->pool, NULL,
				   &memreg_test_one_ops);
		KUNIT_ASSERT_EQ(test, 0,
				ib_memreg_req_map_sg(&ones[i].req, t->sgl, 1,
						     1, DMA_FROM_DEVICE));
		if (i == UNPOSTED)
			continue;
		if (i == PARTIAL)
			t->fake->take = 1;
		ret = ib_memreg_req_post(&ones[i].req,
					 i == OTHER ? &other : &t->fake->qp,
					 &send, 0);
		KUNIT_ASSERT_EQ(test, i == PARTIAL ? -ENOTCONN : 0, ret);
	}
	KUNIT_EXPECT_EQ(test, 0,
			ib_memreg_req_answered(&ones[ANSWERED].req, &wc));
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_end(&ones[ENDED].req,
						  &t->fake->qp));
	memreg_fake_flush(t->fake);
	ib_memreg_pool_abort(t->pool, &t->fake->qp);
	for (i = POSTED; i < N; i++) {
		KUNIT_EXPECT_TRUE(test, try_wait_for_completion(&ones[i].done));
		KUNIT_EXPECT_EQ(test, -ECONNABORTED, ones[i].status);
		KUNIT_EXPECT_FALSE(test, completion_done(&ones[i].done));
	}
	KUNIT_EXPECT_EQ(test, 1, ones[UNPOSTED].req.nr_mrs);
	KUNIT_EXPECT_FALSE(test, completion_done(&ones[OTHER].done));
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_posted(&ones[OTHER].req));
	ib_memreg_pool_abort(t->pool, &other);
	KUNIT_EXPECT_TRUE(test, completion_done(&ones[OTHER].done));
	/* There are none left. */
	ib_memreg_pool_abort(t->pool, &t->fake->qp);
	ib_memreg_req_unmap(&ones[UNPOSTED].req);
	memreg_test_expect_idle(test, N, N - 1);
}

/**
 * struct memreg_test_slow - A request whose done() takes its time
 * @req: The request
 * @qp: Its queue pair
 * @begun: done() was called
 * @aborting: All requests are about to be aborted
 * @returned: done() is about to return
 */
struct memreg_test_slow {
	struct ib_memreg_req req;
	struct ib_qp *qp;
	bool begun;
	bool aborting;
	bool returned;
};

#define MEMREG_TEST_SLOW_MS	20

static void memreg_test_slow_done(struct ib_memreg_req *req, int status)
{
	struct memreg_test_slow *slow =
		container_of(req, struct memreg_test_slow, req);

	WRITE_ONCE(slow->begun, true);
	while (!READ_ONCE(slow->aborting))
		cpu_relax();
	mdelay(MEMREG_TEST_SLOW_MS);
	WRITE_ONCE(slow->returned, true);
}

static int memreg_test_slow_ender(void *arg)
{
	struct memreg_test_slow *slow = arg;

	ib_memreg_req_end(&slow->req, slow->qp);
	while (!kthread_should_stop())
		cond_resched();
	return 0;
}

/* A request that is IDLE already, but whose done() has not returned. */
static void memreg_test_pool_abort_waits_for_done(struct kunit *test)
{
	static const struct ib_memreg_req_ops ops = {
		.done = memreg_test_slow_done,
	};
	struct memreg_test *t = test->priv;
	struct ib_send_wr send = { .opcode = IB_WR_SEND };
	struct memreg_test_slow *slow;
	struct task_struct *task;

	if (num_online_cpus() < 2) {
		kunit_skip(test, "there is one CPU");
		return;
	}
	slow = kunit_kzalloc(test, sizeof(*slow), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, slow);
	memreg_test_pool(test, 1, 0, 1, 0);
	slow->qp = &t->fake->qp;
	ib_memreg_req_init(&slow->req, t->pool, NULL, &ops);
	KUNIT_ASSERT_EQ(test, 0, ib_memreg_req_post(&slow->req, slow->qp, &send,
						    0));
	memreg_fake_complete(t->fake, UINT_MAX);
	task = kthread_run(memreg_test_slow_ender, slow, "memreg-ender");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, task);
	while (!READ_ONCE(slow->begun))
		cond_resched();
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_posted(&slow->req));
	WRITE_ONCE(slow->aborting, true);
	ib_memreg_pool_abort(t->pool, slow->qp);
	KUNIT_EXPECT_TRUE(test, READ_ONCE(slow->returned));
	kthread_stop(task);
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
 * Work requests of the caller's own
 */

/**
 * struct memreg_test_own - Two messages behind REG_MRs
 * @cqe: Completion of both
 * @wrs: The first one is not signalled, the second one is
 * @completed: Times that one completed
 * @failed: Times that one failed
 */
struct memreg_test_own {
	struct ib_cqe cqe;
	struct ib_send_wr wrs[2];
	unsigned int completed;
	unsigned int failed;
};

static void memreg_test_own_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct memreg_test_own *own =
		container_of(wc->wr_cqe, struct memreg_test_own, cqe);

	own->completed++;
	own->failed += wc->status != IB_WC_SUCCESS;
}

static int memreg_test_post_own(struct memreg_test *t,
				struct memreg_test_own *own,
				const struct ib_send_wr **bad,
				unsigned int flags)
{
	memset(own, 0, sizeof(*own));
	own->cqe.done = memreg_test_own_done;
	own->wrs[0].opcode = IB_WR_SEND;
	own->wrs[0].wr_cqe = &own->cqe;
	own->wrs[0].next = &own->wrs[1];
	own->wrs[1].opcode = IB_WR_SEND;
	own->wrs[1].wr_cqe = &own->cqe;
	own->wrs[1].send_flags = IB_SEND_SIGNALED;
	return ib_memreg_req_post_wrs(&t->req, &t->fake->qp, own->wrs, bad,
				      flags);
}

/* They are posted as they are, behind the REG_MRs. */
static void memreg_test_wrs_unchanged(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	const struct memreg_fake_wr *wrs = t->fake->wrs;
	struct memreg_test_own own;
	const struct ib_send_wr *bad = NULL;
	unsigned int i;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post_own(t, &own, &bad, 0));
	KUNIT_EXPECT_NULL(test, bad);
	KUNIT_EXPECT_EQ(test, 1, t->fake->posts);
	KUNIT_ASSERT_EQ(test, 4, t->fake->nr_posted);
	for (i = 0; i < 4; i++) {
		KUNIT_EXPECT_EQ(test, i < 2 ? IB_WR_REG_MR : IB_WR_SEND,
				wrs[i].opcode);
		KUNIT_EXPECT_EQ(test, i == 3, wrs[i].signalled);
	}
	KUNIT_EXPECT_PTR_EQ(test, &own.cqe, wrs[2].cqe);
	KUNIT_EXPECT_PTR_EQ(test, &own.cqe, wrs[3].cqe);
	KUNIT_EXPECT_EQ(test, 0, own.wrs[0].send_flags);
	KUNIT_EXPECT_EQ(test, IB_SEND_SIGNALED, own.wrs[1].send_flags);
	KUNIT_EXPECT_EQ(test, -EINVAL,
			memreg_test_post_own(t, &own, &bad, 0));
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_EQ(test, 1, own.completed);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_answer(t));
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_end(&t->req, &t->fake->qp));
	KUNIT_EXPECT_EQ(test, 0, t->dones);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	KUNIT_EXPECT_EQ(test, 1, own.completed);
	memreg_test_expect_idle(test, 2, 0);
}

/* done() does not wait for them, if the peer has killed the key. */
static void memreg_test_wrs_remote_inv(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct memreg_test_own own;

	memreg_test_pool(test, 1, 0, 1, 0);
	memreg_test_map(test, 1);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post_own
			(t, &own, NULL, IB_MEMREG_REQ_REMOTE_INV));
	/* The REG_MR and the first message; the answer is faster. */
	memreg_fake_complete(t->fake, 2);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_remote_inv
			(t, memreg_test_rkey(t, 0)));
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_end(&t->req, &t->fake->qp));
	KUNIT_EXPECT_EQ(test, 1, t->dones);
	KUNIT_EXPECT_EQ(test, 1, t->open);
	KUNIT_EXPECT_EQ(test, 3, t->fake->nr_posted);
	KUNIT_EXPECT_EQ(test, 0, own.completed);
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_EQ(test, 1, own.completed);
	memreg_test_expect_idle(test, 1, 0);
}

/* A flush reports REG_MRs that were executed, when the request is gone. */
static void memreg_test_wrs_late_flush(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR };
	struct memreg_test_own own;
	unsigned int i;

	memreg_test_pool(test, 1, 0, 1, 0);
	for (i = 0; i < 2; i++) {
		memreg_test_map(test, 1);
		KUNIT_ASSERT_EQ(test, 0, memreg_test_post_own
				(t, &own, NULL, IB_MEMREG_REQ_REMOTE_INV));
		memreg_fake_complete(t->fake, 2);
		KUNIT_EXPECT_EQ(test, 0, memreg_test_remote_inv
				(t, memreg_test_rkey(t, 0)));
		/* That of the request before. */
		if (i)
			wc.wr_cqe->done(&t->fake->cq, &wc);
		KUNIT_EXPECT_TRUE(test,
				  ib_memreg_req_end(&t->req, &t->fake->qp));
		KUNIT_EXPECT_EQ(test, 0, t->errors);
		wc.wr_cqe = t->fake->wrs[0].cqe;
		memreg_fake_complete(t->fake, UINT_MAX);
		KUNIT_EXPECT_EQ(test, 0, t->status);
		KUNIT_EXPECT_EQ(test, i + 1, t->dones);
		memreg_test_reconnect(t);
	}
	memreg_test_expect_idle(test, 1, 0);
}

/* A device that may repeat REG_MRs: LOCAL_INV waits for what is behind them. */
static void memreg_test_wrs_weak(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct memreg_test_own own;

	memreg_test_weak(t);
	memreg_test_pool(test, 1, 0, 1, 0);
	memreg_test_map(test, 1);
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post_own
			(t, &own, NULL, IB_MEMREG_REQ_REMOTE_INV));
	memreg_fake_complete(t->fake, 2);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_remote_inv
			(t, memreg_test_rkey(t, 0)));
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_end(&t->req, &t->fake->qp));
	memreg_test_settle(t);
	KUNIT_EXPECT_EQ(test, 0, t->dones);
	KUNIT_ASSERT_EQ(test, 4, t->fake->nr_posted);
	KUNIT_EXPECT_EQ(test, IB_WR_LOCAL_INV, t->fake->wrs[3].opcode);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 1, 1);
}

/* Either side may be absent, but not both. */
static void memreg_test_wrs_none(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct memreg_test_own own;

	memreg_test_pool(test, 1, 0, 1, 0);
	KUNIT_EXPECT_EQ(test, -EINVAL,
			ib_memreg_req_post_wrs(&t->req, &t->fake->qp, NULL,
					       NULL, 0));
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_posted(&t->req));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			memreg_test_post_own(t, &own, NULL, BIT(1)));
	KUNIT_EXPECT_EQ(test, 0, t->fake->posts);

	KUNIT_ASSERT_EQ(test, 0, memreg_test_post_own(t, &own, NULL, 0));
	KUNIT_EXPECT_EQ(test, 2, t->fake->nr_posted);
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_end(&t->req, &t->fake->qp));
	KUNIT_EXPECT_EQ(test, 1, t->dones);
	t->dones = 0;
	reinit_completion(&t->done);
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_EQ(test, 1, own.completed);

	memreg_test_map(test, 1);
	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_post_wrs(&t->req, &t->fake->qp, NULL,
					       NULL, 0));
	KUNIT_EXPECT_EQ(test, 3, t->fake->nr_posted);
	memreg_fake_complete(t->fake, UINT_MAX);
	KUNIT_EXPECT_EQ(test, 1, t->fake->live);
	KUNIT_EXPECT_TRUE(test, ib_memreg_req_end(&t->req, &t->fake->qp));
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 1, 0);
}

/* I8: the caller is shown how much of its own was posted. */
static void memreg_test_wrs_post_fails(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	const struct ib_send_wr *bad;
	struct memreg_test_own own;
	unsigned int taken, n = 0;

	memreg_test_pool(test, 2, 0, 1, 0);
	for (taken = 0; taken < 4; taken++) {
		memreg_test_map(test, 2);
		t->fake->take = taken;
		KUNIT_EXPECT_EQ(test, taken ? -ENOTCONN : -ENOMEM,
				memreg_test_post_own(t, &own, &bad, 0));
		KUNIT_EXPECT_PTR_EQ(test, &own.wrs[taken == 3], bad);
		KUNIT_EXPECT_EQ(test, !!taken, ib_memreg_req_posted(&t->req));
		memreg_fake_flush(t->fake);
		KUNIT_EXPECT_EQ(test, taken == 3, own.failed);
		if (taken) {
			KUNIT_EXPECT_TRUE(test, ib_memreg_req_abort(&t->req));
			memreg_test_expect_done(test, -ECONNABORTED);
			n += 2;
		} else {
			ib_memreg_req_unmap(&t->req);
		}
		memreg_test_expect_idle(test, 2, n);
		memreg_test_reconnect(t);
	}
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

/* The largest depth is that which is accepted. */
static void memreg_test_max_depth(struct kunit *test)
{
	static const unsigned int depths[][3] = {
		/* The caller's own, MRs, requests */
		{ 0, 0, 999 }, { 1, 1, 332 }, { 0, 1, 333 }, { 3, 4, 110 },
		{ 0, 499, 1 }, { 1, 499, 0 }, { 0, UINT_MAX, 0 },
		{ 0, BIT(31), 0 }, { 999, 0, 0 }, { UINT_MAX, 0, 0 },
	};
	struct memreg_test *t = test->priv;
	struct ib_device *ibdev = &t->fake->ibdev;
	struct ib_qp_init_attr attr = {};
	unsigned int i, depth;

	ibdev->attrs.max_qp_wr = 1000;
	ibdev->attrs.max_cqe = 2000;
	for (i = 0; i < ARRAY_SIZE(depths); i++) {
		attr.cap.max_send_wr = depths[i][0];
		depth = ib_memreg_max_depth(ibdev, &attr, depths[i][1]);
		KUNIT_EXPECT_EQ(test, depths[i][2], depth);
		KUNIT_EXPECT_EQ(test, -ENOSPC,
				ib_memreg_init_qp(ibdev, &attr, depth + 1,
						  depths[i][1]));
		KUNIT_EXPECT_EQ(test, depths[i][0], attr.cap.max_send_wr);
		if (depth)
			KUNIT_EXPECT_GT(test, ib_memreg_init_qp
					(ibdev, &attr, depth, depths[i][1]),
					0);
	}
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

static struct kunit_case memreg_test_req_cases[] = {
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
	KUNIT_CASE(memreg_test_req_ended_twice),
#ifdef kunit_warning_suppress
	KUNIT_CASE(memreg_test_req_unmapped_early),
#endif
	KUNIT_CASE(memreg_test_req_flush),
	KUNIT_CASE(memreg_test_req_end_flushed),
	KUNIT_CASE(memreg_test_req_post_fails),
	KUNIT_CASE(memreg_test_req_end_fails),
	KUNIT_CASE(memreg_test_req_end_without_qp),
	KUNIT_CASE(memreg_test_req_waits),
	KUNIT_CASE(memreg_test_req_without_done),
	KUNIT_CASE(memreg_test_req_end_races),
	KUNIT_CASE(memreg_test_req_abort),
	KUNIT_CASE(memreg_test_pool_abort),
	KUNIT_CASE(memreg_test_pool_abort_waits_for_done),
	KUNIT_CASE(memreg_test_req_without_memory),
	KUNIT_CASE(memreg_test_req_refuses),
	KUNIT_CASE(memreg_test_wrs_unchanged),
	KUNIT_CASE(memreg_test_wrs_remote_inv),
	KUNIT_CASE(memreg_test_wrs_late_flush),
	KUNIT_CASE(memreg_test_wrs_weak),
	KUNIT_CASE(memreg_test_wrs_none),
	KUNIT_CASE(memreg_test_wrs_post_fails),
	KUNIT_CASE(memreg_test_init_qp),
	KUNIT_CASE(memreg_test_init_qp_refuses),
	KUNIT_CASE(memreg_test_max_depth),
	KUNIT_CASE(memreg_test_init_qp_suffices),
	{}
};

static struct kunit_suite memreg_test_req_suite = {
	.name = "ib_memreg_req",
	.init = memreg_test_init,
	.exit = memreg_test_exit,
	.test_cases = memreg_test_req_cases,
};

kunit_test_suites(&memreg_test_req_suite);

#ifdef MEMREG_EXPORT_NS_STRING
MODULE_IMPORT_NS("IB_MEMREG");
MODULE_IMPORT_NS("EXPORTED_FOR_KUNIT_TESTING");
#else
MODULE_IMPORT_NS(IB_MEMREG);
MODULE_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);
#endif
MODULE_DESCRIPTION("KUnit tests of ib_memreg");
MODULE_LICENSE("GPL");
