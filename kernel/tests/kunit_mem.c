// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the memory plane, for features that the kernel's software
 * devices lack: keys that list pieces which begin and end at any byte
 * (IB_MR_TYPE_SG_GAPS), and MRs that cannot be destroyed.
 *
 * The real registration path makes the keys: the device executes the work
 * requests that the domain's registration queue posts to it, and then serves as
 * the peer: it reads and writes by I/O address and rkey, and refuses what the
 * key's list does not have.
 */
#include <kunit/test.h>
#include <kunit/visibility.h>
#include <linux/cgroup_rdma.h>
#include <linux/completion.h>
#include <linux/iopoll.h>
#include <linux/kthread.h>
#include <linux/random.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "device.h"
#include "keys/domain.h"
#include "keys/frwr.h"
#include "keys/key.h"
#include "keys/kill.h"
#include "keys/regq.h"
#include "mr/composition.h"
#include "mr/mr.h"
#include "pages/region.h"
#include "stats.h"
#include "tests/kunit_sw.h"

/*
 * A test has a device, a domain on it, and three MRs whose pages are those of
 * one block, in any order.
 */

/**
 * struct memreg_mem - State of a test
 * @sw: The device
 * @mdev: Its memreg_device
 * @file: The file whose domain it is
 * @domain: The domain
 * @block: Memory
 * @leaves: MRs without keys
 * @mr: The composition, while there is one
 * @parts: Parts of the composition
 * @nr_parts: Their number
 * @length: Bytes of the parts
 * @want: The expected bytes
 * @got: The actual bytes
 * @copy: Expected contents of @block
 */
struct memreg_mem {
	struct memreg_sw *sw;
	struct memreg_kdevice mdev;
	struct memreg_file file;
	struct memreg_domain domain;
	u8 *block;
	struct memreg_kmr leaves[MEMREG_SW_LEAVES];
	struct memreg_kmr mr;
	struct memreg_part parts[MEMREG_SW_ENTRIES];
	u32 nr_parts;
	u64 length;
	u8 want[MEMREG_SW_BYTES];
	u8 got[MEMREG_SW_BYTES];
	u8 copy[MEMREG_SW_BYTES];
};

static void memreg_mem_release(struct memreg_region *region)
{
}

static const struct memreg_source memreg_mem_source = {
	.release = memreg_mem_release,
};

static void memreg_mem_leaf(struct kunit *test, struct memreg_kmr *leaf,
			    const u8 *pages)
{
	struct memreg_mem *t = test->priv;
	struct memreg_region *region;
	u32 i;

	region = memreg_region_alloc(&t->mdev, &memreg_mem_source, 0,
				     MEMREG_SW_LEAF, true);
	KUNIT_ASSERT_NOT_NULL(test, region);
	leaf->region = region;
	region->sgl = kcalloc(MEMREG_SW_LEAF_PAGES, sizeof(*region->sgl),
			      GFP_KERNEL);
	region->offsets = kcalloc(MEMREG_SW_LEAF_PAGES, sizeof(u64),
				  GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, region->sgl);
	KUNIT_ASSERT_NOT_NULL(test, region->offsets);
	region->nents = MEMREG_SW_LEAF_PAGES;
	sg_init_table(region->sgl, region->nents);
	for (i = 0; i < region->nents; i++) {
		sg_dma_address(&region->sgl[i]) =
			(uintptr_t)t->block + pages[i] * PAGE_SIZE;
		sg_dma_len(&region->sgl[i]) = PAGE_SIZE;
		region->offsets[i] = i * PAGE_SIZE;
	}
	leaf->domain = &t->domain;
	leaf->length = MEMREG_SW_LEAF;
	refcount_set(&leaf->obj.users, 1);
}

static void memreg_mem_shuffle(u8 *list, unsigned int n)
{
	while (n > 1) {
		unsigned int i = get_random_u32_below(n--);

		swap(list[i], list[n]);
	}
}

static void memreg_mem_new_device(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	struct memreg_sw *sw = ib_alloc_device(memreg_sw, ibdev);

	KUNIT_ASSERT_NOT_NULL(test, sw);
	t->sw = sw;
	ib_set_device_ops(&sw->ibdev, &memreg_sw_ops);
	sw->ibdev.attrs.device_cap_flags = IB_DEVICE_MEM_MGT_EXTENSIONS;
	sw->ibdev.attrs.kernel_cap_flags = IBK_LOCAL_DMA_LKEY |
					   IBK_SG_GAPS_REG;
#ifdef CONFIG_CGROUP_RDMA
	sw->ibdev.cg_device.name = "memreg_sw";
	rdmacg_register_device(&sw->ibdev.cg_device);
#endif
	spin_lock_init(&sw->lock);
	INIT_LIST_HEAD(&sw->mrs);
	sw->room = UINT_MAX;
	sw->qp.device = &sw->ibdev;
	sw->cq.device = &sw->ibdev;
	sw->domain = &t->domain;
	sw->pd = ib_alloc_pd(&sw->ibdev, 0);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, sw->pd);
}

static void memreg_mem_new_domain(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	struct memreg_kdevice *mdev = &t->mdev;
	struct memreg_domain *domain = &t->domain;

	mdev->ibdev = &t->sw->ibdev;
	mdev->stats = alloc_percpu(struct memreg_stats);
	KUNIT_ASSERT_TRUE(test, !!mdev->stats);
	mdev->max_pages = MEMREG_SW_ENTRIES;
	mdev->page_sizes = PAGE_SIZE;
	mdev->sg_gaps = true;
	spin_lock_init(&mdev->frwr_lock);
	INIT_LIST_HEAD(&mdev->spare_domains);
	t->file.mdev = mdev;
	t->file.user = memreg_user_get(GLOBAL_ROOT_UID);
	KUNIT_ASSERT_NOT_NULL(test, t->file.user);
	domain->file = &t->file;
	domain->mdev = mdev;
	domain->pd = t->sw->pd;
	domain->cq = &t->sw->cq;
	domain->qp = &t->sw->qp;
	memreg_regq_init(domain);
	memreg_kill_init(domain);
	memreg_frwr_init_domain(domain);
}

static int memreg_mem_init(struct kunit *test)
{
	struct memreg_mem *t = kvzalloc(sizeof(*t), GFP_KERNEL);
	u8 pages[BIT(MEMREG_SW_ORDER)];
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, t);
	test->priv = t;
	memreg_mem_new_device(test);
	memreg_mem_new_domain(test);
	t->block = (u8 *)__get_free_pages(GFP_KERNEL, MEMREG_SW_ORDER);
	KUNIT_ASSERT_NOT_NULL(test, t->block);
	get_random_bytes(t->block, MEMREG_SW_BYTES);
	memcpy(t->copy, t->block, MEMREG_SW_BYTES);
	for (i = 0; i < ARRAY_SIZE(pages); i++)
		pages[i] = i;
	memreg_mem_shuffle(pages, ARRAY_SIZE(pages));
	for (i = 0; i < MEMREG_SW_LEAVES; i++)
		memreg_mem_leaf(test, &t->leaves[i],
				pages + i * MEMREG_SW_LEAF_PAGES);
	return 0;
}

/* No test leaves an MR of the device. */
static void memreg_mem_exit(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	unsigned int i;

	if (t->mr.region)
		memreg_mr_unmake(&t->mr);
	for (i = 0; i < MEMREG_SW_LEAVES; i++)
		if (t->leaves[i].region)
			memreg_region_release(t->leaves[i].region);
	memreg_frwr_forget_domain(&t->domain);
	memreg_user_work_disable(&t->domain.kill);
	timer_shutdown_sync(&t->domain.reap_timer);
	memreg_user_work_disable(&t->domain.reap);
	memreg_frwr_drain_domain(&t->domain);
	irq_work_sync(&t->domain.irq);
	KUNIT_EXPECT_TRUE(test, list_empty(&t->sw->mrs));
	free_pages((unsigned long)t->block, MEMREG_SW_ORDER);
	memreg_user_put(t->file.user);
	free_percpu(t->mdev.stats);
	ib_dealloc_pd(t->sw->pd);
#ifdef CONFIG_CGROUP_RDMA
	rdmacg_unregister_device(&t->sw->ibdev.cg_device);
#endif
	ib_dealloc_device(&t->sw->ibdev);
	kvfree(t);
}

/* Where a byte of a leaf is */
static u8 *memreg_mem_at(const struct memreg_kmr *leaf, u64 offset, u8 *block,
			 const u8 *base)
{
	const struct scatterlist *sg = &leaf->region->sgl[offset / PAGE_SIZE];

	return block + ((u8 *)(uintptr_t)sg_dma_address(sg) - base) +
	       offset % PAGE_SIZE;
}

/* Copy between the bytes of the parts, in a block, and a buffer. */
static void memreg_mem_reference(struct memreg_mem *t, u8 *block, u8 *data,
				 bool write)
{
	u64 offset;
	u32 i;

	for (i = 0; i < t->nr_parts; i++) {
		const struct memreg_part *part = &t->parts[i];

		for (offset = 0; offset < part->length; offset++) {
			u8 *at = memreg_mem_at(part->leaf,
					       part->from + offset, block,
						t->block);

			if (write)
				*at = *data++;
			else
				*data++ = *at;
		}
	}
}

static void memreg_mem_part(struct memreg_mem *t, unsigned int leaf, u64 from,
			    u64 length)
{
	t->parts[t->nr_parts++] = (struct memreg_part) {
		.leaf = &t->leaves[leaf],
		.from = from,
		.offset = t->length,
		.length = length,
	};
	t->length += length;
}

/* Up to @n parts of any bytes, none of them twice, in any order of leaves */
static void memreg_mem_random_parts(struct memreg_mem *t, unsigned int n)
{
	u64 from[MEMREG_SW_LEAVES] = {};

	t->nr_parts = 0;
	t->length = 0;
	while (t->nr_parts < n) {
		unsigned int leaf = get_random_u32_below(MEMREG_SW_LEAVES);
		u64 skip = get_random_u32_below(300);
		u64 length = 1 + get_random_u32_below(1500);

		from[leaf] += skip;
		if (from[leaf] + length > MEMREG_SW_LEAF)
			break;
		memreg_mem_part(t, leaf, from[leaf], length);
		from[leaf] += length;
	}
}

/* Make the composition of the parts, and its keys. */
static int memreg_mem_compose(struct memreg_mem *t)
{
	struct memreg_ucmd ucmd = { .file = &t->file, .mdev = &t->mdev };
	struct memreg_region *region;
	int ret;

	region = memreg_composition_region(&ucmd, t->parts, t->nr_parts,
					   t->length, MEMREG_SW_ACCESS);
	if (IS_ERR(region))
		return PTR_ERR(region);
	t->mr = (struct memreg_kmr) {
		.domain = &t->domain,
		.length = t->length,
		.access = MEMREG_SW_ACCESS,
		.iova = memreg_composition_iova(region, 0, 0),
	};
	ret = memreg_mr_make_on(&ucmd, &t->mr, region);
	if (ret)
		memreg_region_release(region);
	return ret;
}

/* A peer finds the bytes of a key's range, and no byte on either side of it. */
static void memreg_mem_check_key(struct kunit *test,
				 const struct memreg_key *key)
{
	struct memreg_mem *t = test->priv;
	struct memreg_sw *sw = t->sw;
	u8 one;

	memreg_mem_reference(t, t->block, t->want, false);
	memset(t->got, 0, key->length);
	KUNIT_ASSERT_EQ(test, 0, memreg_sw_access(sw, key->rkey, key->iova,
						  t->got, key->length, false));
	KUNIT_EXPECT_EQ(test, 0, memcmp(t->want + key->offset, t->got,
					key->length));
	KUNIT_EXPECT_EQ(test, -EACCES,
			memreg_sw_access(sw, key->rkey, key->iova - 1, &one, 1,
					 false));
	KUNIT_EXPECT_EQ(test, -EACCES,
			memreg_sw_access(sw, key->rkey,
					 key->iova + key->length, &one, 1,
					 false));
	/* The written data arrives, and no other byte changes. */
	memcpy(t->copy, t->block, MEMREG_SW_BYTES);
	get_random_bytes(t->got, key->length);
	memcpy(t->want + key->offset, t->got, key->length);
	memreg_mem_reference(t, t->copy, t->want, true);
	KUNIT_ASSERT_EQ(test, 0, memreg_sw_access(sw, key->rkey, key->iova,
						  t->got, key->length, true));
	KUNIT_EXPECT_EQ(test, 0, memcmp(t->copy, t->block, MEMREG_SW_BYTES));
}

/* All keys, which cover the composition without a hole */
static void memreg_mem_check(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	u64 offset = 0;
	u32 i;

	for (i = 0; i < t->mr.nkeys; i++) {
		KUNIT_EXPECT_EQ(test, offset, t->mr.keys[i].offset);
		memreg_mem_check_key(test, &t->mr.keys[i]);
		offset += t->mr.keys[i].length;
	}
	KUNIT_EXPECT_EQ(test, t->length, offset);
}

/* Unmaking an MR kills its keys. */
static void memreg_mem_end(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	struct memreg_key first = t->mr.keys[0];
	u8 one;

	memreg_mr_unmake(&t->mr);
	KUNIT_EXPECT_EQ(test, -EACCES,
			memreg_sw_access(t->sw, first.rkey, first.iova, &one, 1,
					 false));
}

/* Any bytes are under one key, as many pieces as the device can list. */
static void memreg_test_gaps_one_key(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	unsigned int round;

	for (round = 0; round < MEMREG_SW_ROUNDS; round++) {
		memreg_mem_random_parts(t, 1 + get_random_u32_below(30));
		KUNIT_ASSERT_EQ(test, 0, memreg_mem_compose(t));
		KUNIT_EXPECT_EQ(test, 1, t->mr.nkeys);
		memreg_mem_check(test);
		memreg_mem_end(test);
	}
	KUNIT_EXPECT_GT(test, t->sw->gaps, MEMREG_SW_ROUNDS / 2);
}

/* A longer composition has as few keys as possible. */
static void memreg_test_gaps_more_keys(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	unsigned int round;

	t->mdev.max_pages = 8;
	for (round = 0; round < MEMREG_SW_ROUNDS; round++) {
		memreg_mem_random_parts(t, 20);
		KUNIT_ASSERT_EQ(test, 0, memreg_mem_compose(t));
		KUNIT_EXPECT_LE(test, t->mr.nkeys,
				DIV_ROUND_UP(t->mr.region->nents, 8));
		memreg_mem_check(test);
		memreg_mem_end(test);
	}
}

/* A device that can't list pieces has a key for each. */
static void memreg_test_gaps_without(struct kunit *test)
{
	struct memreg_mem *t = test->priv;

	t->mdev.sg_gaps = false;
	memreg_mem_part(t, 0, 100, 200);
	memreg_mem_part(t, 1, 7, 1);
	memreg_mem_part(t, 2, PAGE_SIZE + 3, 1000);
	KUNIT_ASSERT_EQ(test, 0, memreg_mem_compose(t));
	KUNIT_EXPECT_EQ(test, 3, t->mr.nkeys);
	memreg_mem_check(test);
	memreg_mem_end(test);
	KUNIT_EXPECT_EQ(test, 0, t->sw->gaps);
}

/* Whole pages are listed as pages, by an FRWR that can be used again. */
static void memreg_test_gaps_pages(struct kunit *test)
{
	struct memreg_mem *t = test->priv;

	memreg_mem_part(t, 0, 50, PAGE_SIZE - 50);
	memreg_mem_part(t, 1, 0, PAGE_SIZE);
	memreg_mem_part(t, 2, PAGE_SIZE, 10);
	KUNIT_ASSERT_EQ(test, 0, memreg_mem_compose(t));
	KUNIT_EXPECT_EQ(test, 1, t->mr.nkeys);
	KUNIT_EXPECT_FALSE(test, t->mr.keys[0].gaps);
	KUNIT_EXPECT_FALSE(test, t->mr.keys[0].once);
	memreg_mem_check(test);
	memreg_mem_end(test);
	KUNIT_EXPECT_EQ(test, 0, t->sw->gaps);
}

/* Windows on any bytes of a composition */
static void memreg_test_gaps_windows(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	unsigned int round;

	memreg_mem_random_parts(t, 30);
	KUNIT_ASSERT_EQ(test, 0, memreg_mem_compose(t));
	for (round = 0; round < MEMREG_SW_ROUNDS; round++) {
		u64 offset = get_random_u32_below(t->length);
		struct memreg_key key = {
			.region = t->mr.region,
			.offset = offset,
			.length = 1 + get_random_u32_below(t->length - offset),
			.iova = t->mr.iova + offset,
			.access = MEMREG_SW_ACCESS,
		}, *keys = &key;
		u8 one;

		KUNIT_ASSERT_TRUE(test, memreg_composition_grant(&key));
		KUNIT_ASSERT_EQ(test, 0,
				memreg_keys_make(&t->domain, &keys, 1));
		memreg_mem_check_key(test, &key);
		memreg_key_destroy(&key);
		KUNIT_EXPECT_EQ(test, -EACCES,
				memreg_sw_access(t->sw, key.rkey, key.iova,
						 &one, 1, false));
	}
	memreg_mem_end(test);
}

/* A window on more pieces than can be listed, or where none can, is refused. */
static void memreg_test_gaps_windows_refused(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	struct memreg_key key = {};
	u32 i;

	for (i = 0; i < 5; i++)
		memreg_mem_part(t, i % 3, 10 + i * 50, 20);
	KUNIT_ASSERT_EQ(test, 0, memreg_mem_compose(t));
	key.region = t->mr.region;
	key.length = 100;
	t->mdev.max_pages = 4;
	KUNIT_EXPECT_FALSE(test, memreg_composition_grant(&key));
	key.length = 80;
	KUNIT_EXPECT_TRUE(test, memreg_composition_grant(&key));
	KUNIT_EXPECT_TRUE(test, key.gaps);
	t->mdev.sg_gaps = false;
	KUNIT_EXPECT_FALSE(test, memreg_composition_grant(&key));
	memreg_mem_end(test);
}

/* I8: no MR for one of the keys is none for all of them. */
static void memreg_test_gaps_no_mr(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	unsigned int n;

	t->mdev.max_pages = 4;
	memreg_mem_random_parts(t, 20);
	for (n = 0; n < 4; n++) {
		t->sw->room = n;
		KUNIT_EXPECT_EQ(test, -ENOSPC, memreg_mem_compose(t));
		KUNIT_EXPECT_PTR_EQ(test, NULL, t->mr.keys);
		KUNIT_EXPECT_TRUE(test, list_empty(&t->leaves[0].region->ties));
	}
	t->sw->room = UINT_MAX;
	KUNIT_ASSERT_EQ(test, 0, memreg_mem_compose(t));
	memreg_mem_check(test);
	memreg_mem_end(test);
}

/*
 * Keys that guards find while they are being made
 */

#define MEMREG_SW_LIMIT_US	(10 * USEC_PER_SEC)

/**
 * struct memreg_maker - A task that makes a key for each leaf
 * @t: The test
 * @keys: The keys
 * @ret: What memreg_keys_make() returned
 * @done: It has
 */
struct memreg_maker {
	struct memreg_mem *t;
	struct memreg_key keys[MEMREG_SW_LEAVES];
	int ret;
	struct completion done;
};

static int memreg_maker_run(void *arg)
{
	struct memreg_key *keys[MEMREG_SW_LEAVES];
	struct memreg_maker *maker = arg;
	unsigned int i;

	for (i = 0; i < MEMREG_SW_LEAVES; i++)
		keys[i] = &maker->keys[i];
	maker->ret = memreg_keys_make(&maker->t->domain, keys,
				      MEMREG_SW_LEAVES);
	complete(&maker->done);
	return 0;
}

static void memreg_maker_start(struct kunit *test, struct memreg_maker *maker)
{
	struct memreg_mem *t = test->priv;
	unsigned int i;

	maker->t = t;
	init_completion(&maker->done);
	for (i = 0; i < MEMREG_SW_LEAVES; i++)
		maker->keys[i] = (struct memreg_key) {
			.region = t->leaves[i].region,
			.length = MEMREG_SW_LEAF,
			.access = MEMREG_SW_ACCESS,
		};
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, kthread_run(memreg_maker_run, maker,
						       "memreg-maker"));
}

/* A notifier finds that the memory of the first leaf has changed. */
static bool memreg_mem_take_away(struct memreg_mem *t)
{
	struct memreg_region *region = t->leaves[0].region;

	spin_lock(&t->mdev.frwr_lock);
	region->guard.stale = true;
	spin_unlock(&t->mdev.frwr_lock);
	return memreg_kill_region(region);
}

static u64 memreg_mem_stat(struct memreg_mem *t, u32 stat)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu_ptr(t->mdev.stats, cpu)->values[stat];
	return sum;
}

/* All keys are to be dead, and as many were counted as made. */
static void memreg_maker_end(struct kunit *test, struct memreg_maker *maker)
{
	struct memreg_mem *t = test->priv;
	unsigned int i;
	u8 one;

	wait_for_completion(&maker->done);
	KUNIT_EXPECT_EQ(test, -ESTALE, maker->ret);
	for (i = 0; i < MEMREG_SW_LEAVES; i++)
		KUNIT_EXPECT_EQ(test, -EACCES,
				memreg_sw_access(t->sw, maker->keys[i].rkey,
						 maker->keys[i].iova, &one, 1,
						 false));
	KUNIT_EXPECT_EQ(test, memreg_mem_stat(t, IB_MEMREG_STAT_KEYS_MADE),
			memreg_mem_stat(t, IB_MEMREG_STAT_KEYS_KILLED));
	KUNIT_EXPECT_EQ(test, 0,
			atomic_read(&t->leaves[0].region->killing));
}

/*
 * I2: a key that the device has made already dies without its owner: frwr_lock
 * keeps the owner from going on.
 */
static void memreg_test_kill_posted(struct kunit *test)
{
	struct memreg_maker *maker = kunit_kzalloc(test, sizeof(*maker),
						   GFP_KERNEL);
	struct memreg_mem *t = test->priv;
	atomic_t *killing = &t->leaves[0].region->killing;
	unsigned int made;
	int left;
	u8 one;

	KUNIT_ASSERT_NOT_NULL(test, maker);
	t->sw->held = true;
	memreg_maker_start(test, maker);
	KUNIT_EXPECT_EQ(test, 0,
			read_poll_timeout(READ_ONCE, made, made, 100,
					  MEMREG_SW_LIMIT_US, false,
					  t->sw->made));
	KUNIT_EXPECT_EQ(test, 0,
			memreg_sw_access(t->sw, maker->keys[0].rkey,
					 maker->keys[0].iova, &one, 1, false));
	KUNIT_EXPECT_TRUE(test, memreg_mem_take_away(t));
	KUNIT_EXPECT_EQ(test, 1, atomic_read(killing));
	spin_lock(&t->mdev.frwr_lock);
	WRITE_ONCE(t->sw->held, false);
	irq_work_queue(&t->domain.irq);
	read_poll_timeout_atomic(atomic_read, left, !left, 10,
				 MEMREG_SW_LIMIT_US, false, killing);
	spin_unlock(&t->mdev.frwr_lock);
	KUNIT_EXPECT_EQ(test, 0, left);
	memreg_maker_end(test, maker);
}

/* Does a guard find a key to the first leaf? */
static bool memreg_mem_has_key(struct memreg_mem *t)
{
	bool ret;

	spin_lock(&t->mdev.frwr_lock);
	ret = !hlist_empty(&t->leaves[0].region->live);
	spin_unlock(&t->mdev.frwr_lock);
	return ret;
}

static void memreg_mem_set_state(struct memreg_mem *t,
				 enum memreg_regq_state state)
{
	spin_lock_irq(&t->domain.sq_lock);
	WRITE_ONCE(t->domain.state, state);
	wake_up(&t->domain.sq_wait);
	spin_unlock_irq(&t->domain.sq_lock);
}

/* I2: a key that waits for its queue is not made once the memory is gone. */
static void memreg_test_kill_unposted(struct kunit *test)
{
	struct memreg_maker *maker = kunit_kzalloc(test, sizeof(*maker),
						   GFP_KERNEL);
	struct memreg_mem *t = test->priv;
	bool has;

	KUNIT_ASSERT_NOT_NULL(test, maker);
	memreg_mem_set_state(t, MEMREG_REGQ_BROKEN);
	memreg_maker_start(test, maker);
	KUNIT_EXPECT_EQ(test, 0,
			read_poll_timeout(memreg_mem_has_key, has, has, 100,
					  MEMREG_SW_LIMIT_US, false, t));
	KUNIT_EXPECT_FALSE(test, memreg_mem_take_away(t));
	memreg_mem_set_state(t, MEMREG_REGQ_READY);
	memreg_maker_end(test, maker);
	KUNIT_EXPECT_EQ(test, 0, t->sw->made);
	KUNIT_EXPECT_EQ(test, 0,
			memreg_mem_stat(t, IB_MEMREG_STAT_KEYS_MADE));
}

/*
 * A region of all pages of the block from the last to the first, but for some
 * bytes, whose entries an IOMMU has merged.
 */

#define MEMREG_TEST_MERGED	BIT(MEMREG_SW_ORDER)
#define MEMREG_TEST_SKIPPED	100
#define MEMREG_TEST_MESSAGE	(2 * PAGE_SIZE)

static int memreg_merged_populate(struct memreg_ucmd *ucmd,
				  struct memreg_region *region)
{
	struct memreg_mem *t = container_of(ucmd->file, struct memreg_mem,
					    file);
	struct page *pages[MEMREG_TEST_MERGED];
	unsigned int i;
	int ret;

	for (i = 0; i < MEMREG_TEST_MERGED; i++)
		pages[i] = virt_to_page(t->block + MEMREG_SW_BYTES -
					(i + 1) * PAGE_SIZE);
	ret = sg_alloc_table_from_pages(&region->sgt.sgt, pages,
					MEMREG_TEST_MERGED, 0, MEMREG_SW_BYTES,
					GFP_KERNEL);
	if (ret)
		return ret;
	region->sgt.sgt.nents = 1;
	return memreg_region_list_alloc(region, 1);
}

static void memreg_merged_release(struct memreg_region *region)
{
	sg_free_table(&region->sgt.sgt);
}

static const struct memreg_source memreg_merged_source = {
	.maps = true,
	.populate = memreg_merged_populate,
	.release = memreg_merged_release,
};

/* Write to a random range, and to where that is in the expected contents. */
static void memreg_merged_write(struct memreg_mem *t,
				struct memreg_region *region)
{
	u32 length = get_random_u32_inclusive(1, MEMREG_TEST_MESSAGE);
	u32 offset = get_random_u32_inclusive(0, region->length - length);
	u32 i, at;

	get_random_bytes(t->got, length);
	memreg_region_write(region, offset, t->got, length);
	for (i = 0; i < length; i++) {
		at = MEMREG_TEST_SKIPPED + offset + i;
		at = MEMREG_SW_BYTES - PAGE_SIZE - (at & PAGE_MASK) +
		     offset_in_page(at);
		t->copy[at] = t->got[i];
	}
}

/* What the CPU writes arrives where the device's entries say nothing of it. */
static void memreg_test_merged(struct kunit *test)
{
	struct memreg_mem *t = test->priv;
	struct memreg_ucmd ucmd = { .file = &t->file, .mdev = &t->mdev };
	struct memreg_region *region;
	unsigned int i;

	region = memreg_region_alloc(&t->mdev, &memreg_merged_source,
				     MEMREG_TEST_SKIPPED, MEMREG_SW_BYTES -
				     2 * MEMREG_TEST_SKIPPED, true);
	KUNIT_ASSERT_NOT_NULL(test, region);
	KUNIT_ASSERT_EQ(test, 0, memreg_region_take(&ucmd, region));
	for (i = 0; i < 200; i++)
		memreg_merged_write(t, region);
	KUNIT_EXPECT_EQ(test, 0, memcmp(t->block, t->copy, MEMREG_SW_BYTES));
	memreg_region_release(region);
}

#ifdef kunit_warning_suppress
/*
 * MRs that can't be destroyed
 */

static unsigned int memreg_test_given_back;

static int memreg_counted_populate(struct memreg_ucmd *ucmd,
				   struct memreg_region *region)
{
	int ret = memreg_region_list_alloc(region, 1);

	if (ret)
		return ret;
	sg_init_table(region->sgl, 1);
	sg_dma_address(region->sgl) = region->addr;
	sg_dma_len(region->sgl) = region->length;
	region->offsets[0] = 0;
	return 0;
}

static void memreg_counted_release(struct memreg_region *region)
{
	memreg_test_given_back += region->npages - region->nr_donated;
}

/* Counts the pages that are released, without those of another region. */
static const struct memreg_source memreg_counted_source = {
	.maps = true,
	.populate = memreg_counted_populate,
	.release = memreg_counted_release,
};

/* Two pages of the block from @page on */
static struct memreg_region *memreg_test_region(struct kunit *test, u32 page)
{
	struct memreg_mem *t = test->priv;
	struct memreg_ucmd ucmd = { .file = &t->file, .mdev = &t->mdev };
	struct memreg_region *region;

	region = memreg_region_alloc(&t->mdev, &memreg_counted_source,
				     (uintptr_t)t->block + page * PAGE_SIZE,
				     2 * PAGE_SIZE, true);
	KUNIT_ASSERT_NOT_NULL(test, region);
	region->npages = 2;
	region->guard.confirmed = true;
	KUNIT_ASSERT_EQ(test, 0, memreg_region_take(&ucmd, region));
	return region;
}

/* The key to a region whose MR can't be destroyed. */
static void memreg_test_lose_mr(struct kunit *test,
				struct memreg_region *region)
{
	struct memreg_mem *t = test->priv;
	struct memreg_key key = {
		.region = region,
		.length = region->length,
		.iova = region->addr,
		.access = MEMREG_SW_ACCESS,
		.once = true,
	}, *keys = &key;

	KUNIT_ASSERT_EQ(test, 0, memreg_keys_make(&t->domain, &keys, 1));
	t->sw->dereg_err = -EIO;
	kunit_warning_suppress(test) {
		memreg_key_destroy(&key);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	t->sw->dereg_err = 0;
}

/* As the device would not: so that the test leaves nothing. */
static void memreg_test_end_lost_mrs(struct memreg_mem *t)
{
	struct memreg_sw_mr *mr, *next;

	list_for_each_entry_safe(mr, next, &t->sw->mrs, node)
		ib_dereg_mr(&mr->ibmr);
}

/* The other region's last page becomes the first one of this one. */
static void memreg_test_adopt(struct memreg_region *region,
			      struct memreg_region *donor)
{
	region->donor = donor;
	region->donor_first = 1;
	region->nr_donated = 1;
	memreg_region_adopt(region);
}

/* I1: pages that a key may reach are never released, by any region. */
static void memreg_test_leaked_mr(struct kunit *test)
{
	struct memreg_region *first = memreg_test_region(test, 0);
	struct memreg_region *second = memreg_test_region(test, 1);
	struct memreg_mem *t = test->priv;
	struct memreg_region *third;

	memreg_test_given_back = 0;
	/* Made while the MR lived, and its heir before the MR was lost */
	memreg_test_adopt(second, first);
	memreg_test_lose_mr(test, first);
	memreg_region_release(first);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_given_back);
	/* An heir from after that, which has a page of the first one's heir */
	third = memreg_test_region(test, 2);
	memreg_test_adopt(third, second);
	memreg_region_release(second);
	memreg_region_release(third);
	KUNIT_EXPECT_EQ(test, 0, memreg_test_given_back);
	/* A region without such pages is released as usual. */
	memreg_region_release(memreg_test_region(test, 4));
	KUNIT_EXPECT_EQ(test, 2, memreg_test_given_back);
	memreg_test_end_lost_mrs(t);
}
#endif

static struct kunit_case memreg_mem_cases[] = {
	KUNIT_CASE_SLOW(memreg_test_gaps_one_key),
	KUNIT_CASE_SLOW(memreg_test_gaps_more_keys),
	KUNIT_CASE(memreg_test_gaps_without),
	KUNIT_CASE(memreg_test_gaps_pages),
	KUNIT_CASE_SLOW(memreg_test_gaps_windows),
	KUNIT_CASE(memreg_test_gaps_windows_refused),
	KUNIT_CASE(memreg_test_gaps_no_mr),
	KUNIT_CASE(memreg_test_kill_posted),
	KUNIT_CASE(memreg_test_kill_unposted),
	KUNIT_CASE(memreg_test_merged),
#ifdef kunit_warning_suppress
	KUNIT_CASE(memreg_test_leaked_mr),
#endif
	{}
};

static struct kunit_suite memreg_mem_suite = {
	.name = "ib_memreg_mem",
	.init = memreg_mem_init,
	.exit = memreg_mem_exit,
	.test_cases = memreg_mem_cases,
};

kunit_test_suites(&memreg_mem_suite);
