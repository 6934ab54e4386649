// SPDX-License-Identifier: GPL-2.0-only
/*
 * Inline receive: a message that fits is in the completion entry, and the
 * buffer that was posted for it is as it was; a longer one is in the buffer.
 * Entries of either size, the feature on and off, an endpoint's own receives
 * and shared ones.
 *
 * time limit: 300
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define LEN		(16 * PAGE)
#define STOCK_LEN	(1UL << 20)

FIXTURE(inline_receive)
{
	struct link link;
	struct stock *stock;
	struct ring ring;
	__u8 *mem;
	__u32 mr;
	__u32 to;	/* where receives are posted */
	size_t limit;	/* of what is in an entry */
	unsigned int seed;
};

FIXTURE_VARIANT(inline_receive)
{
	__u32 entry_size;
	__u32 flags;
	bool shared;
};

FIXTURE_VARIANT_ADD(inline_receive, of_32) {
	.entry_size = 64,
};

FIXTURE_VARIANT_ADD(inline_receive, of_96) {
	.entry_size = 128,
};

FIXTURE_VARIANT_ADD(inline_receive, off_in_64) {
	.entry_size = 64,
	.flags = IB_MEMREG_QUEUES_NO_INLINE_RECEIVE,
};

FIXTURE_VARIANT_ADD(inline_receive, off_in_128) {
	.entry_size = 128,
	.flags = IB_MEMREG_QUEUES_NO_INLINE_RECEIVE,
};

FIXTURE_VARIANT_ADD(inline_receive, shared_of_96) {
	.entry_size = 128,
	.shared = true,
};

FIXTURE_VARIANT_ADD(inline_receive, shared_off) {
	.entry_size = 64,
	.flags = IB_MEMREG_QUEUES_NO_INLINE_RECEIVE,
	.shared = true,
};

static size_t limit_of(const FIXTURE_VARIANT(inline_receive) *variant)
{
	if (variant->flags & IB_MEMREG_QUEUES_NO_INLINE_RECEIVE)
		return 0;
	return variant->entry_size - offsetof(struct ib_memreg_cqe, data);
}

FIXTURE_SETUP(inline_receive)
{
	struct ib_memreg_queues queues = { .flags = variant->flags };
	struct link *l = &self->link;

	ASSERT_EQ(0, link_open(l, STOCK_LEN));
	self->stock = &l->stock;
	ASSERT_EQ(0, link_memory(l, LEN, LOCAL_WRITE, &self->mem, &self->mr));
	ASSERT_EQ(0, ring_create(l->fd, &self->ring, 64, variant->entry_size, 0,
				 -1));
	if (variant->shared) {
		ASSERT_EQ(0, raw_srq(l->fd, l->domain, self->ring.id, 32, 4,
				     variant->flags, &queues.srq_id));
	} else {
		queues.recv_ring_id = self->ring.id;
		queues.max_recv = 32;
		queues.max_recv_sge = 4;
	}
	ASSERT_EQ(0, link_up(l, &queues, true));
	self->to = queues.srq_id ?: l->endpoint;
	self->limit = limit_of(variant);
}

FIXTURE_TEARDOWN(inline_receive)
{
	EXPECT_EQ(0, ring_count(&self->ring));
	EXPECT_EQ(0, state_users(self->mr));
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
	mem_free(self->mem, LEN);
}

static __u64 stat_of(struct __test_metadata *_metadata,
		     FIXTURE_DATA(inline_receive) *self, __u32 stat)
{
	__u64 value = 0;

	EXPECT_EQ(0, raw_stat(self->link.fd, stat, &value));
	return value;
}

/* Pieces of memory for a message */
struct pieces {
	unsigned int count;
	struct ib_memreg_sge sges[4];
};

/*
 * Does the message fit in an entry? Not if inline receive is off (no limit),
 * nor if the posted buffer is too small for the message.
 */
static bool fits(const FIXTURE_DATA(inline_receive) *self,
		 const struct pieces *p, size_t len)
{
	size_t room = 0;
	unsigned int i;

	for (i = 0; i < p->count; i++)
		room += p->sges[i].length;
	return room && self->limit && len <= self->limit;
}

static int post(FIXTURE_DATA(inline_receive) *self, const struct pieces *p)
{
	struct ib_memreg_wr wr = WR(RECV, self->to, SGES(p->sges, p->count),
				    .user_data = 0x77);

	if (p->count < 2)
		wr.sges = 0;
	if (p->count == 1)
		wr.sge = p->sges[0];
	return raw_submit(self->link.fd, &wr, 1);
}

/* The pieces hold the message, and nothing else has changed. */
static void pieces_hold(struct __test_metadata *_metadata,
			FIXTURE_DATA(inline_receive) *self,
			const struct pieces *p, size_t len)
{
	__u8 *expected = malloc(LEN);
	size_t done = 0, n, i;
	unsigned int piece;

	ASSERT_NE(NULL, expected);
	fill(expected, LEN, 1);
	for (piece = 0; piece < p->count && done < len; piece++) {
		n = p->sges[piece].length;
		n = n < len - done ? n : len - done;
		for (i = 0; i < n; i++)
			expected[p->sges[piece].offset + i] =
				pattern(done + i, self->seed);
		done += n;
	}
	EXPECT_EQ(len, done);
	EXPECT_EQ(0, memcmp(expected, self->mem, LEN)) {
		for (i = 0; expected[i] == self->mem[i]; i++)
			;
		TH_LOG("byte %zu is %#x, should be %#x", i, self->mem[i],
		       expected[i]);
	}
	free(expected);
	fill(self->mem, LEN, 1);
}

/* A message of so many bytes, for a buffer of such pieces */
static void receive(struct __test_metadata *_metadata,
		    FIXTURE_DATA(inline_receive) *self, const struct pieces *p,
		    size_t len, bool imm)
{
	struct ibv_send_wr send = {
		.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.imm_data = htobe32(0x5500 + len),
	};
	union entry entry;

	ASSERT_EQ(0, post(self, p)) {
		TH_LOG("reason %u", raw_reason());
	}
	self->seed++;
	fill(self->stock->mem, len, self->seed);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_do(self->stock, &send, 0, len));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	ASSERT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	EXPECT_EQ(0x77, entry.cqe.user_data);
	EXPECT_EQ(self->link.endpoint, entry.cqe.endpoint_data);
	EXPECT_EQ(len, entry.cqe.byte_len);
	EXPECT_EQ(imm, !!(entry.cqe.flags & IB_MEMREG_CQE_IMM));
	EXPECT_EQ(imm ? htobe32(0x5500 + len) : 0, entry.cqe.ex);
	EXPECT_EQ(fits(self, p, len),
		  !!(entry.cqe.flags & IB_MEMREG_CQE_INLINE));
	if (fits(self, p, len)) {
		EXPECT_TRUE(filled(entry_data(&entry), len, 0, self->seed));
		EXPECT_TRUE(filled(self->mem, LEN, 0, 1));
	} else {
		pieces_hold(_metadata, self, p, len);
	}
}

static const size_t sizes[] = {
	0, 1, 31, 32, 33, 64, 95, 96, 97, 128, 1024, 1025, 4096, 10000,
};

TEST_F_TIMEOUT(inline_receive, messages_around_the_limit_arrive, LIMIT_S)
{
	struct pieces p = {
		.count = 1,
		.sges = { { .mr_id = self->mr, .offset = 4091,
			    .length = 12000 } },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		receive(_metadata, self, &p, sizes[i], false);
		receive(_metadata, self, &p, sizes[i], true);
	}
}

/* The head of a longer message goes to several pieces, some of them empty. */
TEST_F_TIMEOUT(inline_receive, messages_in_pieces_arrive, LIMIT_S)
{
	struct pieces p = {
		.count = 4,
		.sges = {
			{ .mr_id = self->mr, .offset = 8190, .length = 5 },
			{ .mr_id = self->mr, .offset = 99, .length = 0 },
			{ .mr_id = self->mr, .offset = 4095, .length = 40 },
			{ .mr_id = self->mr, .offset = 12289,
			  .length = 12000 },
		},
	};
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(sizes); i++)
		receive(_metadata, self, &p, sizes[i], i % 2);
}

/* Buffers of any size take messages that fill them. */
TEST_F_TIMEOUT(inline_receive, messages_that_fill_the_buffer_arrive, LIMIT_S)
{
	struct pieces p = {
		.count = 1,
		.sges = { { .mr_id = self->mr, .offset = 4000 } },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		p.sges[0].length = sizes[i];
		receive(_metadata, self, &p, sizes[i], false);
	}
	p.count = 0;
	receive(_metadata, self, &p, 0, false);
}

/* I6: a message that is longer than the buffer is not received at all. */
TEST_F_TIMEOUT(inline_receive, I6_messages_longer_than_the_buffer_fail, LIMIT_S)
{
	struct pieces p = {
		.count = 1,
		.sges = { { .mr_id = self->mr, .offset = 4000,
			    .length = 200 } },
	};
	union entry entry;

	ASSERT_EQ(0, post(self, &p));
	/* Which error it is depends on the device. */
	EXPECT_LT(IBV_WC_SUCCESS, stock_send(self->stock, 0, 201));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_TRUE(entry.cqe.status == IB_MEMREG_WC_LOC_LEN_ERR ||
		    entry.cqe.status == IB_MEMREG_WC_LOC_QP_OP_ERR);
	EXPECT_TRUE(filled(self->mem, 4000, 0, 1));
	EXPECT_TRUE(filled(self->mem + 4200, LEN - 4200, 4200, 1));
}

/* Several at once: each entry has its own message. */
TEST_F_TIMEOUT(inline_receive, many_messages_arrive_in_order, LIMIT_S)
{
	struct pieces p = {
		.count = 1,
		.sges = { { .mr_id = self->mr, .length = 100 } },
	};
	union entry entry;
	unsigned int i;

	for (i = 0; i < 30; i++) {
		p.sges[0].offset = 500 * i;
		ASSERT_EQ(0, post(self, &p));
	}
	for (i = 0; i < 30; i++) {
		fill(self->stock->mem, 100, 10 + i);
		ASSERT_EQ(IBV_WC_SUCCESS,
			  stock_send(self->stock, 0, i % 3 ? 20 : 100));
	}
	for (i = 0; i < 30; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		ASSERT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
		EXPECT_TRUE(filled(entry.cqe.flags & IB_MEMREG_CQE_INLINE ?
				   entry_data(&entry) : self->mem + 500 * i,
				   entry.cqe.byte_len, 0, 10 + i));
		EXPECT_EQ(i % 3 ? 20 : 100, entry.cqe.byte_len);
	}
}

TEST_F_TIMEOUT(inline_receive, statistics_count_it, LIMIT_S)
{
	__u64 received = stat_of(_metadata, self,
				 IB_MEMREG_STAT_INLINE_RECEIVES);
	__u64 copied = stat_of(_metadata, self, IB_MEMREG_STAT_INLINE_COPIES);
	struct pieces p = {
		.count = 1,
		.sges = { { .mr_id = self->mr, .length = 4096 } },
	};
	unsigned int i;

	for (i = 0; i < 3; i++)
		receive(_metadata, self, &p, 20, false);
	for (i = 0; i < 5; i++)
		receive(_metadata, self, &p, 2000, false);
	EXPECT_EQ(received + (self->limit ? 3 : 0),
		  stat_of(_metadata, self, IB_MEMREG_STAT_INLINE_RECEIVES));
	EXPECT_EQ(copied + (self->limit ? 5 : 0),
		  stat_of(_metadata, self, IB_MEMREG_STAT_INLINE_COPIES));
}

TEST(capability_is_the_limit)
{
	int fd = raw_open_bound();
	__u64 value = 0;

	ASSERT_LE(0, fd);
	EXPECT_EQ(0, raw_cap(fd, IB_MEMREG_CAP_INLINE_RECEIVE, &value));
	EXPECT_EQ(96, value);
	EXPECT_EQ(0, close(fd));
}

TEST_HARNESS_MAIN
