// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of mapping memory to requests.
 */
#include <kunit/visibility.h>
#include <linux/bvec.h>
#include <linux/slab.h>

#include "kapi/kapi.h"
#include "tests/kunit_fake.h"

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

/* Memory in any form: what is added is mapped as a list of it would be. */
static void memreg_test_map_added(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_seg segs[3];
	unsigned int i;

	memreg_test_pool(test, 3, 0, 2, 0);
	KUNIT_ASSERT_EQ(test, 0, ib_memreg_req_begin(&t->req, 3,
						     DMA_TO_DEVICE));
	for (i = 0; i < 3; i++)
		KUNIT_ASSERT_EQ(test, 0,
				ib_memreg_req_add(&t->req, t->pages + 2 * i,
						  0, PAGE_SIZE));
	KUNIT_ASSERT_EQ(test, 0, ib_memreg_req_add(&t->req, t->pages,
						   20 * PAGE_SIZE + 8, 100));
	/* It can't be posted, nor begun again, before it is mapped. */
	KUNIT_EXPECT_EQ(test, -EINVAL, memreg_test_post(t, 0));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			ib_memreg_req_begin(&t->req, 3, DMA_TO_DEVICE));
	KUNIT_EXPECT_FALSE(test, ib_memreg_req_posted(&t->req));
	KUNIT_EXPECT_EQ(test, 0, ib_memreg_req_wait(&t->req));
	KUNIT_ASSERT_EQ(test, 0, ib_memreg_req_commit(&t->req));
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_memreg_req_commit(&t->req));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			ib_memreg_req_add(&t->req, t->pages, 0, PAGE_SIZE));
	KUNIT_ASSERT_EQ(test, 3, ib_memreg_req_segs(&t->req, segs, 3));
	KUNIT_EXPECT_EQ(test, 2 * PAGE_SIZE, segs[0].length);
	KUNIT_EXPECT_EQ(test, PAGE_SIZE, segs[1].length);
	KUNIT_EXPECT_EQ(test, 100, segs[2].length);
	KUNIT_EXPECT_EQ(test, 8, offset_in_page(segs[2].iova));
	KUNIT_ASSERT_EQ(test, 0, memreg_test_post(t, 0));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			ib_memreg_req_begin(&t->req, 3, DMA_TO_DEVICE));
	memreg_fake_complete(t->fake, UINT_MAX);
	ib_memreg_req_end(&t->req, &t->fake->qp);
	memreg_fake_complete(t->fake, UINT_MAX);
	memreg_test_expect_done(test, 0);
	memreg_test_expect_idle(test, 3, 0);
}

/* A mapping that fails at any step has ended, and a new one can begin. */
static void memreg_test_map_added_fails(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	unsigned int round;
	int ret;

	memreg_test_pool(test, 2, 0, 1, 0);
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_memreg_req_commit(&t->req));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			ib_memreg_req_add(&t->req, t->pages, 0, 1));
	for (round = 0; round < 5; round++) {
		KUNIT_ASSERT_EQ(test, 0,
				ib_memreg_req_begin(&t->req, round == 1 ? 2 : 3,
						    DMA_FROM_DEVICE));
		ret = 0;
		if (round)
			ret = ib_memreg_req_add(&t->req, t->pages, 0,
						2 * PAGE_SIZE);
		KUNIT_EXPECT_EQ(test, 0, ret);
		if (round == 1 || round == 2)
			KUNIT_EXPECT_EQ(test, round == 1 ? -EMSGSIZE : -EAGAIN,
					ib_memreg_req_add(&t->req, t->pages,
							  0, PAGE_SIZE));
		if (round == 3)
			KUNIT_EXPECT_EQ(test, -EINVAL,
					ib_memreg_req_add(&t->req, t->pages,
							  0, 0));
		t->fake->fail_map = round == 4;
		KUNIT_EXPECT_EQ(test, round == 4 ? -EIO : -EINVAL,
				ib_memreg_req_commit(&t->req));
		t->fake->fail_map = false;
		KUNIT_EXPECT_EQ(test, 0, t->req.nr_mrs);
		memreg_test_expect_idle(test, 2, 0);
	}
	KUNIT_ASSERT_EQ(test, 0, ib_memreg_req_begin(&t->req, 1,
						     DMA_FROM_DEVICE));
	KUNIT_ASSERT_EQ(test, 0,
			ib_memreg_req_add(&t->req, t->pages, 0, PAGE_SIZE));
	ib_memreg_req_unmap(&t->req);
	memreg_test_expect_idle(test, 2, 0);
	memreg_test_map(test, 2);
	ib_memreg_req_unmap(&t->req);
}

/* The caller chooses the upper half of I/O addresses. */
static void memreg_test_map_iova_high(struct kunit *test)
{
	struct memreg_test *t = test->priv;
	struct ib_memreg_seg plain[2], segs[2];
	unsigned int i;

	memreg_test_pool(test, 2, 0, 1, 0);
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 2, ib_memreg_req_segs(&t->req, plain, 2));
	ib_memreg_req_unmap(&t->req);
	t->req.iova_high = 0x12345678;
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 2, ib_memreg_req_segs(&t->req, segs, 2));
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, 0x12345678, upper_32_bits(segs[i].iova));
		KUNIT_EXPECT_EQ(test, lower_32_bits(plain[i].iova),
				lower_32_bits(segs[i].iova));
	}
	/* It stays until the caller changes it. */
	ib_memreg_req_unmap(&t->req);
	t->req.iova_high = 0;
	memreg_test_map(test, 2);
	KUNIT_ASSERT_EQ(test, 2, ib_memreg_req_segs(&t->req, segs, 2));
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, plain[i].iova, segs[i].iova);
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
	static const int errs[] = { -EMSGSIZE, -EIO, -EINVAL };
	struct memreg_test *t = test->priv;
	unsigned int round;
	u32 rkeys[2];
	int ret;

	memreg_test_pool(test, 4, 0, 1, 0);
	for (round = 0; round < 3; round++) {
		memreg_test_map(test, 2);
		rkeys[0] = memreg_test_rkey(t, 0);
		rkeys[1] = memreg_test_rkey(t, 1);
		memreg_test_separate(t, 4);
		t->fake->fail_map = round == 1;
		if (round == 2)
			t->sgl[1].length = 0;
		ret = ib_memreg_req_map_sg(&t->req, t->sgl, 2, round ? 2 : 1,
					   DMA_TO_DEVICE);
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

/* No request keeps MRs while it waits for more. */
static void memreg_test_both_refused(struct kunit *test)
{
	struct memreg_test *t = test->priv;

	memreg_test_pool(test, 4, 0, 1, 0);
	memreg_test_map(test, 2);
	memreg_test_separate(t, 3);
	KUNIT_EXPECT_EQ(test, -EAGAIN,
			ib_memreg_req_map_sg(&t->req, t->sgl, 3, 3,
					     DMA_TO_DEVICE));
	KUNIT_EXPECT_EQ(test, 0, t->req.nr_mrs);
	memreg_test_expect_idle(test, 4, 0);
	/* It needs five of four: there is nothing to try again for. */
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&t->available));
	memreg_test_map_both(test, 2, 2);
	ib_memreg_req_unmap(&t->req);
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

static struct kunit_case memreg_test_map_cases[] = {
	KUNIT_CASE(memreg_test_map_256_pages),
	KUNIT_CASE(memreg_test_map_contiguous),
	KUNIT_CASE(memreg_test_map_adjacent),
	KUNIT_CASE(memreg_test_map_large_piece),
	KUNIT_CASE(memreg_test_map_gaps),
	KUNIT_CASE(memreg_test_map_sg_gaps),
	KUNIT_CASE(memreg_test_map_bvec),
	KUNIT_CASE(memreg_test_map_iova_high),
	KUNIT_CASE(memreg_test_map_added),
	KUNIT_CASE(memreg_test_map_added_fails),
	KUNIT_CASE(memreg_test_map_fails),
	KUNIT_CASE(memreg_test_both_one_post),
	KUNIT_CASE(memreg_test_both_segs),
	KUNIT_CASE(memreg_test_both_fails),
	KUNIT_CASE(memreg_test_both_refused),
	KUNIT_CASE(memreg_test_both_flush),
	KUNIT_CASE(memreg_test_both_post_fails),
	{}
};

static struct kunit_suite memreg_test_map_suite = {
	.name = "ib_memreg_map",
	.init = memreg_test_init,
	.exit = memreg_test_exit,
	.test_cases = memreg_test_map_cases,
};

kunit_test_suites(&memreg_test_map_suite);
