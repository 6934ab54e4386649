// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of pools.
 */
#include <kunit/visibility.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/shrinker.h>
#include <linux/slab.h>

#include "kapi/kapi.h"
#include "tests/kunit_fake.h"

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
		KUNIT_EXPECT_EQ(test, pages[i][0],
				ib_memreg_max_pages(&t->fake->ibdev));
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
	KUNIT_EXPECT_EQ(test, 512U, ib_memreg_max_pages(&t->fake->ibdev));
	t->fake->ibdev.attrs.device_cap_flags = 0;
	KUNIT_EXPECT_EQ(test, 0U, ib_memreg_max_pages(&t->fake->ibdev));
}

/* MRs are on the node that the pool is for. */
static void memreg_test_pool_node(struct kunit *test)
{
	struct ib_memreg_pool_attr attr = { .name = "node", .count = 4 };
	struct memreg_test *t = test->priv;
	struct ib_memreg_pool *pool;
	struct ib_memreg_mr *mr;
	int node;

	/* One that is not online is no error. */
	for_each_node(node) {
		attr.numa_node = node;
		pool = ib_memreg_pool_create(t->fake->pd, &attr);
		KUNIT_ASSERT_NOT_ERR_OR_NULL(test, pool);
		KUNIT_EXPECT_EQ(test, node, pool->numa_node);
		mr = ib_memreg_mr_get(pool);
		KUNIT_ASSERT_NOT_NULL(test, mr);
		if (node_online(node))
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

static long memreg_test_fill_slots(void *arg)
{
	struct ib_memreg_mr *mrs[8];
	struct memreg_test *t = arg;
	unsigned int n = memreg_test_take_all(t, mrs, 8);

	memreg_test_put_all(mrs, n);
	return n;
}

/* MRs in another CPU's slots are available to all CPUs. */
static void memreg_test_pool_steal(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[9];
	int cpu;

	memreg_test_pool(test, 8, 0, 1, 0);
	for_each_online_cpu(cpu) {
		KUNIT_EXPECT_EQ(test, 8,
				work_on_cpu(cpu, memreg_test_fill_slots, t));
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

static void memreg_test_pool_shrunk(struct kunit *test)
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
static void memreg_test_pools_shrunk(struct kunit *test)
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
	/* A few idle MRs may stay in the slots of CPUs. */
	stats = memreg_test_stats(t);
	KUNIT_EXPECT_GE(test, stats.total, 4);
	KUNIT_EXPECT_LE(test, stats.total,
			4 + t->pool->nr_slots * num_possible_cpus());
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
 * @rounds: Number of rounds
 * @clashes: Times that another thread had an MR that was taken
 * @empty: Times that there was none
 */
struct memreg_test_user {
	struct memreg_test *t;
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

	for (round = 0; round < user->rounds; round++) {
		n = memreg_test_take_all(user->t, mrs,
					 1 + round % MEMREG_TEST_USER_MRS);
		user->empty += !n;
		/* Without a request, the flag is the test's. */
		for (i = 0; i < n; i++)
			user->clashes += xchg(&mrs[i]->mapped, true);
		if (!(round % 64))
			cond_resched();
		for (i = 0; i < n; i++)
			xchg(&mrs[i]->mapped, false);
		memreg_test_put_all(mrs, n);
	}
	return 0;
}

/* Statistics count idle MRs, by whatever path they got there. */
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
 * Waiting for MRs
 */

/* Try to map a piece that takes so many MRs. */
static int memreg_test_try(struct memreg_test *t, struct ib_memreg_req *req,
			   unsigned int mrs)
{
	sg_init_table(t->sgl, 1);
	sg_set_page(t->sgl, t->pages, mrs * PAGE_SIZE, 0);
	return ib_memreg_req_map_sg(req, t->sgl, 1, mrs, DMA_FROM_DEVICE);
}

/* One more request, which is only mapped. */
static struct ib_memreg_req *memreg_test_req_new(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_req *req;

	req = kunit_kzalloc(test, sizeof(*req), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, req);
	ib_memreg_req_init(req, t->pool, t->reserve, &memreg_test_ops);
	return req;
}

/* One call, when as many are idle as the smallest refused request needs. */
static void memreg_test_wanted(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[6];
	struct ib_memreg_req *other;
	unsigned int n;

	memreg_test_pool(test, 6, 0, 1, 0);
	other = memreg_test_req_new(test);
	n = memreg_test_take_all(t, mrs, 5);
	KUNIT_ASSERT_EQ(test, 5, n);
	KUNIT_EXPECT_EQ(test, -EAGAIN, memreg_test_try(t, other, 4));
	KUNIT_EXPECT_EQ(test, -EAGAIN, memreg_test_try(t, &t->req, 3));
	KUNIT_EXPECT_EQ(test, -EAGAIN, memreg_test_try(t, other, 4));
	/* What they have given back themselves is no reason to call. */
	memreg_test_settle(t);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&t->available));
	KUNIT_EXPECT_EQ(test, 1, memreg_test_stats(t).idle);
	ib_memreg_mr_put(mrs[--n]);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&t->available));
	ib_memreg_mr_put(mrs[--n]);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&t->available));
	/* Nobody waits until a request is refused again. */
	ib_memreg_mr_put(mrs[--n]);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&t->available));
	KUNIT_EXPECT_EQ(test, 0, memreg_test_try(t, &t->req, 3));
	KUNIT_EXPECT_EQ(test, -EAGAIN, memreg_test_try(t, other, 4));
	ib_memreg_req_unmap(&t->req);
	KUNIT_EXPECT_EQ(test, 2, atomic_read(&t->available));
	KUNIT_EXPECT_EQ(test, 0, memreg_test_try(t, other, 4));
	ib_memreg_req_unmap(other);
	memreg_test_put_all(mrs, n);
	memreg_test_settle(t);
	KUNIT_EXPECT_EQ(test, 2, atomic_read(&t->available));
	memreg_test_expect_idle(test, 6, 0);
}

/* MRs of a reserve are available to its requests alone. */
static void memreg_test_wanted_reserve(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_req *mine, *others;
	struct ib_memreg_mr *mrs[3];
	unsigned int n;

	memreg_test_pool(test, 2, 0, 1, 0);
	others = memreg_test_req_new(test);
	t->reserve = ib_memreg_reserve_create(t->pool, 2);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, t->reserve);
	mine = memreg_test_req_new(test);
	ib_memreg_req_init(&t->req, t->pool, t->reserve, &memreg_test_ops);
	n = memreg_test_take_all(t, mrs, 3);
	KUNIT_ASSERT_EQ(test, 2, n);
	KUNIT_EXPECT_EQ(test, -EAGAIN, memreg_test_try(t, others, 1));
	KUNIT_EXPECT_EQ(test, 0, memreg_test_try(t, mine, 1));
	KUNIT_EXPECT_EQ(test, -EAGAIN, memreg_test_try(t, &t->req, 2));
	memreg_test_settle(t);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&t->available));
	/* The MR goes to the reserve. */
	ib_memreg_req_unmap(mine);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&t->available));
	KUNIT_EXPECT_EQ(test, -EAGAIN, memreg_test_try(t, others, 1));
	memreg_test_settle(t);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&t->available));
	KUNIT_EXPECT_EQ(test, 0, memreg_test_try(t, &t->req, 2));
	ib_memreg_req_unmap(&t->req);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&t->available));
	memreg_test_put_all(mrs, n);
	KUNIT_EXPECT_EQ(test, 2, atomic_read(&t->available));
}

/* A small pool is full-grown after a few requests that were refused. */
static void memreg_test_wanted_grows(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int refused = 0;
	int ret;

	memreg_test_pool(test, 1, 200, 1, 0);
	/* Pieces that it does not know of before they are added. */
	memreg_test_separate(t, 200);
	do {
		ret = ib_memreg_req_map_sg(&t->req, t->sgl, 200, 200,
					   DMA_FROM_DEVICE);
		refused += ret == -EAGAIN;
		memreg_test_settle(t);
		KUNIT_EXPECT_EQ(test, refused, atomic_read(&t->available));
	} while (ret == -EAGAIN && refused < 20);
	KUNIT_EXPECT_EQ(test, 0, ret);
	KUNIT_EXPECT_LE(test, refused, 8);
	ib_memreg_req_unmap(&t->req);
	KUNIT_EXPECT_EQ(test, 200, memreg_test_stats(t).total);
	KUNIT_EXPECT_EQ(test, min(200 / (2 * num_possible_cpus()),
				  MEMREG_POOL_SLOTS), t->pool->nr_slots);
}

/*
 * A request that waits gets what it needs, also if the shrinker has the pool
 * free MRs before that grows.
 */
static void memreg_test_wanted_shrunk(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_mr *mrs[2];

	memreg_test_pool(test, 2, 16, 1, 0);
	KUNIT_ASSERT_EQ(test, 2, memreg_test_take_all(t, mrs, 2));
	memreg_test_settle(t);
	mutex_lock(&t->pool->mutex);
	KUNIT_EXPECT_EQ(test, -EAGAIN, memreg_test_try(t, &t->req, 4));
	WRITE_ONCE(t->pool->shrink, true);
	mutex_unlock(&t->pool->mutex);
	KUNIT_EXPECT_NE(test, 0,
			wait_event_timeout(t->wait, atomic_read(&t->available),
					   MEMREG_TEST_TIMEOUT));
	KUNIT_EXPECT_EQ(test, 0, memreg_test_try(t, &t->req, 4));
	ib_memreg_req_unmap(&t->req);
	memreg_test_put_all(mrs, 2);
}

/**
 * struct memreg_test_client - One of several threads that wait for MRs
 * @t: The test
 * @req: Its request
 * @sgl: Memory of @mrs pages
 * @mrs: MRs that it needs
 * @rounds: Number of rounds
 * @refused: Times that it had to wait
 * @lost: Times that it has waited in vain
 * @ended: It has made all rounds, or waited in vain
 */
struct memreg_test_client {
	struct memreg_test *t;
	struct ib_memreg_req req;
	struct scatterlist sgl[4];
	unsigned int mrs;
	unsigned int rounds;
	unsigned int refused;
	unsigned int lost;
	struct completion ended;
};

/* Map, and wait for MRs if there are too few; false if none came. */
static bool memreg_test_client_map(struct memreg_test_client *client)
{
	struct memreg_test *t = client->t;
	int seen;

	for (;;) {
		seen = atomic_read(&t->available);
		if (ib_memreg_req_map_sg(&client->req, client->sgl,
					 client->mrs, client->mrs,
					 DMA_FROM_DEVICE) != -EAGAIN)
			return true;
		client->refused++;
		if (!wait_event_timeout(t->wait,
					atomic_read(&t->available) != seen,
					MEMREG_TEST_TIMEOUT))
			return false;
	}
}

static int memreg_test_client(void *arg)
{
	struct memreg_test_client *client = arg;
	unsigned int i;

	for (i = 0; i < client->rounds && !client->lost; i++) {
		if (memreg_test_client_map(client)) {
			cond_resched();
			ib_memreg_req_unmap(&client->req);
		} else {
			client->lost++;
		}
	}
	complete(&client->ended);
	return 0;
}

#define MEMREG_TEST_CLIENTS	5

static void memreg_test_client_init(struct memreg_test_client *client,
				    struct memreg_test *t, unsigned int i)
{
	unsigned int j;

	client->t = t;
	client->rounds = 2000;
	init_completion(&client->ended);
	client->mrs = 1 + i % 4;
	ib_memreg_req_init(&client->req, t->pool, i & 1 ? t->reserve : NULL,
			   &memreg_test_ops);
	sg_init_table(client->sgl, client->mrs);
	for (j = 0; j < client->mrs; j++)
		sg_set_page(&client->sgl[j], t->pages + 2 * j, PAGE_SIZE, 0);
}

/* Whoever is refused is woken when there are enough MRs. */
static void memreg_test_wanted_concurrent(struct kunit *test)
{
	struct task_struct *tasks[MEMREG_TEST_CLIENTS];
	struct memreg_test_client *clients;
	struct memreg_test *t = test->priv;
	unsigned int i, refused = 0;

	clients = kunit_kcalloc(test, MEMREG_TEST_CLIENTS, sizeof(*clients),
				GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, clients);
	memreg_test_pool(test, 4, 0, 1, 0);
	t->reserve = ib_memreg_reserve_create(t->pool, 4);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, t->reserve);
	for (i = 0; i < MEMREG_TEST_CLIENTS; i++) {
		memreg_test_client_init(&clients[i], t, i);
		tasks[i] = kthread_create(memreg_test_client, &clients[i],
					  "memreg-client-%u", i);
		KUNIT_ASSERT_NOT_ERR_OR_NULL(test, tasks[i]);
		get_task_struct(tasks[i]);
		wake_up_process(tasks[i]);
	}
	for (i = 0; i < MEMREG_TEST_CLIENTS; i++) {
		/* A thread that is stopped too early does not begin. */
		wait_for_completion(&clients[i].ended);
		kthread_stop(tasks[i]);
		put_task_struct(tasks[i]);
		KUNIT_EXPECT_EQ(test, 0, clients[i].lost);
		refused += clients[i].refused;
	}
	kunit_info(test, "%u refused, %d calls", refused,
		   atomic_read(&t->available));
	memreg_test_expect_idle(test, 8, 0);
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

static struct kunit_case memreg_test_pool_cases[] = {
	KUNIT_CASE(memreg_test_pool_attr),
	KUNIT_CASE(memreg_test_pool_pages),
	KUNIT_CASE(memreg_test_pool_node),
	KUNIT_CASE(memreg_test_pool_quirk),
	KUNIT_CASE(memreg_test_pool_exhausted),
	KUNIT_CASE(memreg_test_pool_steal),
	KUNIT_CASE(memreg_test_pool_grows),
	KUNIT_CASE(memreg_test_pool_shrunk),
	KUNIT_CASE(memreg_test_pools_shrunk),
	KUNIT_CASE(memreg_test_pool_ages),
	KUNIT_CASE(memreg_test_pool_replaces_later),
	KUNIT_CASE(memreg_test_pool_replaces_meanwhile),
	KUNIT_CASE(memreg_test_reserve),
	KUNIT_CASE(memreg_test_reserve_replaced),
	KUNIT_CASE(memreg_test_pool_counts),
#ifdef kunit_warning_suppress
	KUNIT_CASE(memreg_test_pool_put_twice),
#endif
	KUNIT_CASE(memreg_test_pool_concurrent),
	KUNIT_CASE(memreg_test_wanted),
	KUNIT_CASE(memreg_test_wanted_reserve),
	KUNIT_CASE(memreg_test_wanted_grows),
	KUNIT_CASE(memreg_test_wanted_shrunk),
	KUNIT_CASE(memreg_test_wanted_concurrent),
	{}
};

static struct kunit_suite memreg_test_pool_suite = {
	.name = "ib_memreg_pool",
	.init = memreg_test_init,
	.exit = memreg_test_exit,
	.test_cases = memreg_test_pool_cases,
};

kunit_test_suites(&memreg_test_pool_suite);
