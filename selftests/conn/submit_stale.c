// SPDX-License-Identifier: GPL-2.0-only
/*
 * MRs that become stale while work requests on them are posted: the work is
 * done on the old pages (I2), which stay pinned until then; the completion has
 * IB_MEMREG_CQE_STALE; and only then can the MR be destroyed.
 *
 * time limit: 240
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define LEN		(8 * PAGE)
#define STOCK_LEN	(1UL << 20)

FIXTURE(stale)
{
	struct link link;
	struct stock *stock;
	struct ring ring;
	int file;
	__u8 *mem;		/* what is registered, and goes */
	__u8 *behind;		/* the same pages of the file */
	__u32 mr;
	__u32 to;
	long pinned;
};

FIXTURE_SETUP(stale)
{
	struct ib_memreg_queues queues;

	ASSERT_EQ(0, link_open(&self->link, STOCK_LEN));
	self->stock = &self->link.stock;
	fill(self->stock->mem, STOCK_LEN, 2);
	self->file = memfd_create("stale", MFD_CLOEXEC);
	ASSERT_LE(0, self->file);
	ASSERT_EQ(0, ftruncate(self->file, LEN));
	self->mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED,
			 self->file, 0);
	self->behind = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED,
			    self->file, 0);
	ASSERT_TRUE(self->mem != MAP_FAILED && self->behind != MAP_FAILED);
	fill(self->mem, LEN, 1);
	self->pinned = vm_pin(0);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, self->mem,
				  LEN, LOCAL_WRITE, &self->mr));
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 64, 64, 0, -1));
	queues = queues_on(self->ring.id, 16, 16, 2, 0);
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
	self->to = self->link.endpoint;
}

FIXTURE_TEARDOWN(stale)
{
	munmap(self->mem, LEN);
	munmap(self->behind, LEN);
	close(self->file);
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
}

/* The state of the MR, or -errno */
/* The MR is pinned, and in use by posted work requests, so DESTROY fails. */
static void is_held(struct __test_metadata *_metadata,
		    FIXTURE_DATA(stale) *self, int users)
{
	EXPECT_EQ(IB_MEMREG_MR_STALE, raw_mr_state(self->link.fd, self->mr));
	EXPECT_EQ(users, state_users(self->mr));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->link.fd, self->mr));
	EXPECT_EQ(self->pinned + (long)(LEN / PAGE), vm_pin(0));
}

static void is_free(struct __test_metadata *_metadata,
		    FIXTURE_DATA(stale) *self)
{
	EXPECT_EQ(0, state_users(self->mr));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->mr));
	EXPECT_EQ(self->pinned, vm_pin(0));
}

static void done_stale(struct __test_metadata *_metadata,
		       FIXTURE_DATA(stale) *self, __u64 user_data, __u8 status)
{
	union entry entry;

	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(user_data, entry.cqe.user_data);
	EXPECT_EQ(status, entry.cqe.status);
	EXPECT_EQ(IB_MEMREG_CQE_STALE,
		  entry.cqe.flags & IB_MEMREG_CQE_STALE);
}

static void post_recv(struct __test_metadata *_metadata,
		      FIXTURE_DATA(stale) *self)
{
	struct ib_memreg_wr wr = WR(RECV, self->to,
				    SGE(self->mr, 100, LEN - 200),
				    .user_data = 1);

	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	EXPECT_EQ(1, state_users(self->mr));
}

/* A whole message goes to the old pages, and the completion is marked stale. */
static void message_lands_behind(struct __test_metadata *_metadata,
				 FIXTURE_DATA(stale) *self)
{
	is_held(_metadata, self, 1);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send(self->stock, 7, 10000));
	done_stale(_metadata, self, 1, IB_MEMREG_WC_SUCCESS);
	EXPECT_TRUE(filled(self->behind, 100, 0, 1));
	EXPECT_TRUE(filled(self->behind + 100, 10000, 7, 2));
	EXPECT_TRUE(filled(self->behind + 10100, LEN - 10100, 10100, 1));
	is_free(_metadata, self);
}

TEST_F_TIMEOUT(stale, I2_receive_is_done_on_unmapped_pages, LIMIT_S)
{
	post_recv(_metadata, self);
	ASSERT_EQ(0, munmap(self->mem, LEN));
	message_lands_behind(_metadata, self);
}

TEST_F_TIMEOUT(stale, I2_receive_is_done_on_moved_pages, LIMIT_S)
{
	void *place = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	__u8 *moved;

	ASSERT_NE(MAP_FAILED, place);
	post_recv(_metadata, self);
	moved = mremap(self->mem, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED,
		       place);
	ASSERT_EQ(place, moved);
	message_lands_behind(_metadata, self);
	EXPECT_EQ(0, memcmp(moved, self->behind, LEN));
	EXPECT_EQ(0, munmap(moved, LEN));
}

/* What is mapped at the address now does not change. */
TEST_F_TIMEOUT(stale, I6_receive_does_not_reach_what_was_mapped_over, LIMIT_S)
{
	post_recv(_metadata, self);
	ASSERT_EQ(self->mem, mmap(self->mem, LEN, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
				  0));
	fill(self->mem, LEN, 9);
	message_lands_behind(_metadata, self);
	EXPECT_TRUE(filled(self->mem, LEN, 0, 9));
}

/* A message for a posted receive lands on the old pages of a truncated file. */
TEST_F_TIMEOUT(stale, I6_receive_on_truncated_pages_harms_nobody, LIMIT_S)
{
	post_recv(_metadata, self);
	ASSERT_EQ(0, ftruncate(self->file, 0));
	ASSERT_EQ(0, ftruncate(self->file, LEN));
	fill(self->behind, LEN, 9);
	is_held(_metadata, self, 1);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send(self->stock, 7, 10000));
	done_stale(_metadata, self, 1, IB_MEMREG_WC_SUCCESS);
	EXPECT_TRUE(filled(self->behind, LEN, 0, 9));
	is_free(_metadata, self);
}

/* All posted sends use the old pages. */
TEST_F_TIMEOUT(stale, I2_sends_are_done_with_unmapped_pages, LIMIT_S)
{
	struct ib_memreg_wr wrs[3];
	struct ibv_wc wc;
	int i;

	/* The first waits for a receive, and the others behind it. */
	wrs[0] = WR(SEND, self->to, SGE(self->mr, 5, 5000));
	wrs[1] = WR(WRITE, self->to, SGE(self->mr, 9, 6000),
		    .remote_addr = (uintptr_t)self->stock->mem + 40000,
		    .rkey = self->stock->mr->rkey);
	wrs[2] = WR(READ, self->to, SGE(self->mr, 8192, 3000),
		    .remote_addr = (uintptr_t)self->stock->mem + 90001,
		    .rkey = self->stock->mr->rkey);
	for (i = 0; i < 3; i++) {
		wrs[i].flags = SIGNALED;
		wrs[i].user_data = i;
	}
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 3));
	ASSERT_EQ(0, munmap(self->mem, LEN));
	is_held(_metadata, self, 3);
	ASSERT_EQ(0, stock_recv(self->stock, 0, 10000));
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	ASSERT_EQ(5000, wc.byte_len);
	for (i = 0; i < 3; i++)
		done_stale(_metadata, self, i, IB_MEMREG_WC_SUCCESS);
	EXPECT_TRUE(filled(self->stock->mem, 5000, 5, 1));
	EXPECT_TRUE(filled(self->stock->mem + 40000, 6000, 9, 1));
	EXPECT_TRUE(filled(self->behind, 8192, 0, 1));
	EXPECT_TRUE(filled(self->behind + 8192, 3000, 90001, 2));
	EXPECT_TRUE(filled(self->behind + 11192, LEN - 11192, 11192, 1));
	is_free(_metadata, self);
}

/*
 * One stale MR of two is enough to mark the completion; the other MR can be
 * destroyed.
 */
TEST_F_TIMEOUT(stale, one_of_several_mrs_counts, LIMIT_S)
{
	struct ib_memreg_sge sges[2];
	struct ib_memreg_wr wr = WR(RECV, self->to, SGES(sges, 2),
				    .user_data = 4);
	__u8 *other = mem_alloc(LEN);
	__u32 mr;

	ASSERT_NE(NULL, other);
	fill(other, LEN, 4);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, other, LEN,
				  LOCAL_WRITE, &mr));
	sges[0] = (struct ib_memreg_sge) { .mr_id = mr, .length = 1000 };
	sges[1] = (struct ib_memreg_sge) { .mr_id = self->mr, .length = 1000 };
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, munmap(self->mem, LEN));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->link.fd, mr));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->link.fd, self->mr));
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send(self->stock, 0, 1500));
	done_stale(_metadata, self, 4, IB_MEMREG_WC_SUCCESS);
	EXPECT_TRUE(filled(other, 1000, 0, 2));
	EXPECT_TRUE(filled(self->behind, 500, 1000, 2));
	EXPECT_TRUE(filled(self->behind + 500, LEN - 500, 500, 1));
	EXPECT_EQ(0, raw_destroy(self->link.fd, mr));
	mem_free(other, LEN);
	is_free(_metadata, self);
}

/*
 * Work that is not executed holds its pages until it is flushed, at the end of
 * the connection.
 */
TEST_F_TIMEOUT(stale, I1_flushed_work_holds_the_pages_until_then, LIMIT_S)
{
	struct ib_memreg_wr wr = WR(SEND, self->to, SGE(self->mr, 0, 100),
				    .user_data = 2);
	union entry entry;
	int i;

	post_recv(_metadata, self);
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, munmap(self->mem, LEN));
	is_held(_metadata, self, 2);
	ASSERT_EQ(0, raw_disconnect(self->link.fd, self->to));
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		EXPECT_EQ(IB_MEMREG_WC_WR_FLUSH_ERR, entry.cqe.status);
		EXPECT_TRUE(entry.cqe.flags & IB_MEMREG_CQE_STALE);
	}
	is_free(_metadata, self);
	EXPECT_TRUE(filled(self->behind, LEN, 0, 1));
}

/*
 * A completion has no such flag if the mapping still exists, or if the MR has
 * no guard.
 */
TEST_F_TIMEOUT(stale, memory_that_is_not_watched_is_never_stale, LIMIT_S)
{
	RAW(mr_register, mr, .domain_id = self->link.domain,
	    .flags = IB_MEMREG_MR_UNGUARDED, .access = LOCAL_WRITE,
	    .addr = (uintptr_t)self->mem, .length = LEN);
	struct ib_memreg_wr wr;
	union entry entry;

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &mr));
	wr = WR(RECV, self->to, SGE(mr.out_mr_id, 0, LEN));
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, munmap(self->mem, LEN));
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send(self->stock, 3, 5000));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	EXPECT_EQ(0, entry.cqe.flags);
	EXPECT_TRUE(filled(self->behind, 5000, 3, 2));
	EXPECT_EQ(0, raw_destroy(self->link.fd, mr.out_mr_id));
	is_free(_metadata, self);
}

TEST_HARNESS_MAIN
