// SPDX-License-Identifier: GPL-2.0-only
/*
 * Work requests of each kind, on endpoints that connected and on endpoints that
 * accepted, with a stock end of librdmacm and libibverbs as the other side: the
 * data that arrives there is the data that was sent, to the byte.
 *
 * time limit: 300
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ends.h"
#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define LEN		(64 * PAGE)
#define BIG		(1UL << 20)
#define MESSAGE		4096UL	/* where they are made short */

FIXTURE(submit)
{
	struct link link;
	struct stock *stock;
	struct ring ring;
	__u8 *mem;
	__u32 mr;
	__u32 to;		/* the endpoint */
	struct state before;
};

FIXTURE_VARIANT(submit)
{
	bool connects;
};

FIXTURE_VARIANT_ADD(submit, connecting) {
	.connects = true,
};

FIXTURE_VARIANT_ADD(submit, accepting) {
	.connects = false,
};

static struct ib_memreg_queues queues_of(const FIXTURE_DATA(submit) *self)
{
	return queues_on(self->ring.id, 300, 64, IB_MEMREG_SGE_MAX,
			 IB_MEMREG_INLINE_MAX);
}

static int register_it(FIXTURE_DATA(submit) *self, void *mem, size_t len,
		       __u32 *mr)
{
	return raw_register(self->link.fd, self->link.domain, mem, len,
			    LOCAL_WRITE, mr);
}

FIXTURE_SETUP(submit)
{
	struct ib_memreg_queues queues;

	ASSERT_EQ(0, link_open(&self->link, HUGE));
	self->stock = &self->link.stock;
	ASSERT_EQ(0, link_memory(&self->link, LEN, LOCAL_WRITE, &self->mem,
				 &self->mr));
	fill(self->stock->mem, HUGE, 2);
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 1024, 64, 0, -1));
	queues = queues_of(self);
	ASSERT_EQ(0, link_up(&self->link, &queues, variant->connects));
	self->to = self->link.endpoint;
	ASSERT_EQ(0, state_get(&self->before));
}

/*
 * All posted work requests have completed, and no object counts them any more.
 */
FIXTURE_TEARDOWN(submit)
{
	EXPECT_EQ(0, ring_count(&self->ring));
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
	mem_free(self->mem, LEN);
}

static __u64 stock_addr(const FIXTURE_DATA(submit) *self, size_t offset)
{
	return (uintptr_t)self->stock->mem + offset;
}

/* The next entry reports that this work request succeeded. */
static void completed(struct __test_metadata *_metadata,
		      FIXTURE_DATA(submit) *self, const struct ib_memreg_wr *wr,
		      union entry *entry)
{
	union entry local;

	entry = entry ?: &local;
	ASSERT_EQ(0, ring_next(&self->ring, entry));
	ASSERT_EQ(IB_MEMREG_WC_SUCCESS, entry->cqe.status);
	EXPECT_EQ(wr->user_data, entry->cqe.user_data);
	EXPECT_EQ(self->to, entry->cqe.endpoint_data);
	EXPECT_EQ(wr->opcode, entry->cqe.opcode);
	EXPECT_EQ(0, entry->cqe.flags & IB_MEMREG_CQE_STALE);
}

/* Submit it signalled, and wait for it. */
static void done(struct __test_metadata *_metadata, FIXTURE_DATA(submit) *self,
		 struct ib_memreg_wr wr)
{
	static __u64 user_data = 0x123456789abcdef0;
	union entry entry;

	wr.user_data = user_data++;
	wr.flags |= SIGNALED;
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1)) {
		TH_LOG("reason %u", raw_reason());
	}
	ASSERT_EQ(1, raw_taken());
	completed(_metadata, self, &wr, &entry);
	switch (wr.opcode) {
	case OP(READ):
	case OP(CMP_AND_SWP):
	case OP(FETCH_AND_ADD):
		break;
	default:
		EXPECT_EQ(0, entry.cqe.byte_len);
	}
}

/* The stock end has received a message. */
static void received(struct __test_metadata *_metadata,
		     FIXTURE_DATA(submit) *self, struct ibv_wc *wc, size_t len)
{
	ASSERT_EQ(0, stock_next(&self->stock->received, wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc->status);
	ASSERT_EQ(len, wc->byte_len);
}

/* Flags of a completion without the one that reports a GRH */
static unsigned int wc_flags(const struct ibv_wc *wc)
{
	return wc->wc_flags & ~IBV_WC_GRH;
}

/*
 * Operations
 */

TEST_F_TIMEOUT(submit, send_arrives, LIMIT_S)
{
	static const size_t sizes[] = { 1, 63, 1000, 1024, 1025, 4096, 30001 };
	struct ibv_wc wc;
	size_t i, at;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		at = 17 * i + 3;
		ASSERT_EQ(0, stock_recv(self->stock, 0, BIG));
		done(_metadata, self,
		     WR(SEND, self->to, SGE(self->mr, at, sizes[i])));
		received(_metadata, self, &wc, sizes[i]);
		EXPECT_EQ(IBV_WC_RECV, wc.opcode);
		EXPECT_EQ(0, wc_flags(&wc));
		EXPECT_TRUE(filled(self->stock->mem, sizes[i], at, 1));
		EXPECT_TRUE(filled(self->stock->mem + sizes[i], 100, sizes[i],
				   2));
		fill(self->stock->mem, HUGE, 2);
	}
}

TEST_F_TIMEOUT(submit, send_with_imm_arrives, LIMIT_S)
{
	struct ibv_wc wc;

	ASSERT_EQ(0, stock_recv(self->stock, 0, BIG));
	done(_metadata, self, WR(SEND_WITH_IMM, self->to, .ex = htobe32(77),
				 SGE(self->mr, 5, 333)));
	received(_metadata, self, &wc, 333);
	EXPECT_EQ(IBV_WC_WITH_IMM, wc_flags(&wc));
	EXPECT_EQ(htobe32(77), wc.imm_data);
	EXPECT_TRUE(filled(self->stock->mem, 333, 5, 1));
}

TEST_F_TIMEOUT(submit, send_with_inv_ends_the_peers_window, LIMIT_S)
{
	struct ib_memreg_wr wr;
	union entry entry;
	struct ibv_wc wc;
	uint32_t rkey;

	ASSERT_EQ(0, stock_bind(self->stock, 4096, 8192,
				IBV_ACCESS_REMOTE_WRITE, &rkey));
	done(_metadata, self, WR(WRITE, self->to, SGE(self->mr, 0, 100),
				 .remote_addr = stock_addr(self, 4096),
				 .rkey = rkey));
	EXPECT_TRUE(filled(self->stock->mem + 4096, 100, 0, 1));
	ASSERT_EQ(0, stock_recv(self->stock, 0, 100));
	done(_metadata, self, WR(SEND_WITH_INV, self->to, .ex = rkey,
				 SGE(self->mr, 9, 50)));
	received(_metadata, self, &wc, 50);
	/*
	 * Of the two flags for this, rxe gives user space that of the kernel.
	 */
	EXPECT_NE(0, wc_flags(&wc));
	EXPECT_EQ(rkey, wc.invalidated_rkey);
	EXPECT_TRUE(filled(self->stock->mem, 50, 9, 1));

	/* The key is dead. */
	wr = WR(WRITE, self->to, SGE(self->mr, 0, 100), .flags = SIGNALED,
		.remote_addr = stock_addr(self, 4096), .rkey = rkey);
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(IB_MEMREG_WC_REM_ACCESS_ERR, entry.cqe.status);
}

TEST_F_TIMEOUT(submit, write_arrives, LIMIT_S)
{
	static const size_t sizes[] = { 1, 2, 1023, 4097, 65537 };
	size_t i, at, to;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		at = 4001 * i + 1;
		to = 513 * i + 7;
		done(_metadata, self,
		     WR(WRITE, self->to, SGE(self->mr, at, sizes[i]),
			.remote_addr = stock_addr(self, to),
			.rkey = self->stock->mr->rkey));
		EXPECT_TRUE(filled(self->stock->mem, to, 0, 2));
		EXPECT_TRUE(filled(self->stock->mem + to, sizes[i], at, 1));
		EXPECT_TRUE(filled(self->stock->mem + to + sizes[i], 4096,
				   to + sizes[i], 2));
		fill(self->stock->mem, HUGE, 2);
	}
}

TEST_F_TIMEOUT(submit, write_with_imm_arrives, LIMIT_S)
{
	struct ibv_wc wc;

	ASSERT_EQ(0, stock_recv(self->stock, 8192, 0));
	done(_metadata, self, WR(WRITE_WITH_IMM, self->to,
				 SGE(self->mr, 3, 4100),
				 .remote_addr = stock_addr(self, 99),
				 .rkey = self->stock->mr->rkey,
				 .ex = htobe32(0x01020304)));
	received(_metadata, self, &wc, 4100);
	EXPECT_EQ(IBV_WC_RECV_RDMA_WITH_IMM, wc.opcode);
	EXPECT_EQ(IBV_WC_WITH_IMM, wc_flags(&wc));
	EXPECT_EQ(htobe32(0x01020304), wc.imm_data);
	EXPECT_TRUE(filled(self->stock->mem + 99, 4100, 3, 1));
}

TEST_F_TIMEOUT(submit, read_arrives, LIMIT_S)
{
	static const size_t sizes[] = { 1, 2, 1023, 4097, 65537 };
	struct ib_memreg_wr wr;
	union entry entry;
	size_t i, at, from;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		at = 4001 * i + 1;
		from = 513 * i + 7;
		wr = WR(READ, self->to, SGE(self->mr, at, sizes[i]),
			.flags = SIGNALED,
			.remote_addr = stock_addr(self, from),
			.rkey = self->stock->mr->rkey);
		ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
		completed(_metadata, self, &wr, &entry);
		EXPECT_EQ(sizes[i], entry.cqe.byte_len);
		EXPECT_TRUE(filled(self->mem, at, 0, 1));
		EXPECT_TRUE(filled(self->mem + at, sizes[i], from, 2));
		EXPECT_TRUE(filled(self->mem + at + sizes[i], 4096,
				   at + sizes[i], 1));
		fill(self->mem, LEN, 1);
	}
}

/* 8 bytes of either end */
static __u64 *word(void *mem, size_t offset)
{
	return (__u64 *)((__u8 *)mem + offset);
}

TEST_F_TIMEOUT(submit, atomics_work, LIMIT_S)
{
	__u64 *there = word(self->stock->mem, 4096);
	__u64 *here = word(self->mem, 16);

	*there = 0x1122334455667788;
	done(_metadata, self, WR(FETCH_AND_ADD, self->to, SGE(self->mr, 16, 8),
				 .remote_addr = (uintptr_t)there,
				 .rkey = self->stock->mr->rkey,
				 .compare_add = 0x100000001));
	EXPECT_EQ(0x1122334455667788, *here);
	EXPECT_EQ(0x1122334555667789, *there);
	done(_metadata, self, WR(CMP_AND_SWP, self->to, SGE(self->mr, 16, 8),
				 .remote_addr = (uintptr_t)there,
				 .rkey = self->stock->mr->rkey,
				 .compare_add = 1, .swap = 2));
	EXPECT_EQ(0x1122334555667789, *here);
	EXPECT_EQ(0x1122334555667789, *there);
	done(_metadata, self, WR(CMP_AND_SWP, self->to, SGE(self->mr, 16, 8),
				 .remote_addr = (uintptr_t)there,
				 .rkey = self->stock->mr->rkey,
				 .compare_add = 0x1122334555667789,
				 .swap = 42));
	EXPECT_EQ(0x1122334555667789, *here);
	EXPECT_EQ(42, *there);
	/* The bytes around the 8 bytes are unchanged. */
	EXPECT_TRUE(filled(self->mem, 16, 0, 1));
	EXPECT_TRUE(filled(self->mem + 24, 4096, 24, 1));
}

/* Post a receive of several pieces of memory, which begin at odd places. */
static void recv_pieces(struct __test_metadata *_metadata,
			FIXTURE_DATA(submit) *self, struct ib_memreg_wr *wr)
{
	static const struct { size_t offset, length; } pieces[] = {
		{ 1, 7 }, { 4090, 20 }, { 100, 0 }, { 8193, 5000 },
		{ 60001, 25000 },
	};
	struct ib_memreg_sge sges[ARRAY_LEN(pieces)];
	size_t i;

	for (i = 0; i < ARRAY_LEN(pieces); i++)
		sges[i] = (struct ib_memreg_sge) {
			.mr_id = self->mr,
			.offset = pieces[i].offset,
			.length = pieces[i].length,
		};
	*wr = WR(RECV, self->to, SGES(sges, ARRAY_LEN(pieces)),
		 .user_data = 0xabc);
	ASSERT_EQ(0, raw_submit(self->link.fd, wr, 1)) {
		TH_LOG("reason %u", raw_reason());
	}
}

/* A message of the stock end that begins at @from lies in those pieces. */
static void in_pieces(struct __test_metadata *_metadata,
		      FIXTURE_DATA(submit) *self, size_t from, size_t len)
{
	EXPECT_EQ(self->mem[0], pattern(0, 1));
	EXPECT_TRUE(filled(self->mem + 1, 7, from, 2));
	EXPECT_TRUE(filled(self->mem + 8, 4082, 8, 1));
	EXPECT_TRUE(filled(self->mem + 4090, 20, from + 7, 2));
	EXPECT_TRUE(filled(self->mem + 4110, 8193 - 4110, 4110, 1));
	EXPECT_TRUE(filled(self->mem + 8193, 5000, from + 27, 2));
	EXPECT_TRUE(filled(self->mem + 13193, 60001 - 13193, 13193, 1));
	EXPECT_TRUE(filled(self->mem + 60001, len - 5027, from + 5027, 2));
	EXPECT_TRUE(filled(self->mem + 60001 + len - 5027, 4096,
			   60001 + len - 5027, 1));
}

TEST_F_TIMEOUT(submit, recv_takes_a_message, LIMIT_S)
{
	struct ib_memreg_wr wr;
	union entry entry;

	recv_pieces(_metadata, self, &wr);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send(self->stock, 55, 20001));
	completed(_metadata, self, &wr, &entry);
	EXPECT_EQ(20001, entry.cqe.byte_len);
	EXPECT_EQ(0, entry.cqe.flags);
	in_pieces(_metadata, self, 55, 20001);
}

TEST_F_TIMEOUT(submit, recv_takes_a_message_with_imm, LIMIT_S)
{
	struct ibv_send_wr send = {
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = htobe32(0xcafe),
	};
	struct ib_memreg_wr wr;
	union entry entry;

	recv_pieces(_metadata, self, &wr);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_do(self->stock, &send, 1, 20002));
	completed(_metadata, self, &wr, &entry);
	EXPECT_EQ(20002, entry.cqe.byte_len);
	EXPECT_EQ(IB_MEMREG_CQE_IMM, entry.cqe.flags);
	EXPECT_EQ(htobe32(0xcafe), entry.cqe.ex);
	in_pieces(_metadata, self, 1, 20002);
}

/* The entry names the WRITE_WITH_IMM, and the buffer is unchanged. */
TEST_F_TIMEOUT(submit, recv_is_taken_by_write_with_imm, LIMIT_S)
{
	RAW(mr_register, mr, .domain_id = self->link.domain,
	    .access = LOCAL_WRITE | REMOTE_WRITE,
	    .addr = (uintptr_t)self->mem, .length = LEN);
	struct ibv_send_wr write = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htobe32(31),
	};
	struct ib_memreg_wr wr;
	union entry entry;

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &mr));
	write.wr.rdma.remote_addr = mr.iova + 100000;
	write.wr.rdma.rkey = mr.out_rkey;
	recv_pieces(_metadata, self, &wr);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_do(self->stock, &write, 6, 777));
	wr.opcode = OP(WRITE_WITH_IMM);
	completed(_metadata, self, &wr, &entry);
	EXPECT_EQ(IB_MEMREG_CQE_IMM, entry.cqe.flags);
	EXPECT_EQ(htobe32(31), entry.cqe.ex);
	EXPECT_EQ(777, entry.cqe.byte_len);
	EXPECT_TRUE(filled(self->mem, 100000, 0, 1));
	EXPECT_TRUE(filled(self->mem + 100000, 777, 6, 2));
	EXPECT_TRUE(filled(self->mem + 100777, 4096, 100777, 1));
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr.out_mr_id));
}

TEST_F_TIMEOUT(submit, recv_too_short_ends_the_connection, LIMIT_S)
{
	struct ib_memreg_wr wr = WR(RECV, self->to, SGE(self->mr, 100, 500),
				    .user_data = 5);
	union entry entry;

	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	/* Which error it is depends on the device. */
	EXPECT_LT(IBV_WC_SUCCESS, stock_send(self->stock, 0, 501));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_TRUE(entry.cqe.status == IB_MEMREG_WC_LOC_LEN_ERR ||
		    entry.cqe.status == IB_MEMREG_WC_LOC_QP_OP_ERR);
	EXPECT_EQ(5, entry.cqe.user_data);
	EXPECT_TRUE(filled(self->mem, 100, 0, 1));
	EXPECT_TRUE(filled(self->mem + 600, 4096, 600, 1));
	ASSERT_EQ(0, raw_await(self->link.fd, IB_MEMREG_EVENT_DISCONNECTED,
			       NULL));
}

/*
 * Forms of memory
 */

TEST_F_TIMEOUT(submit, inline_data_is_copied_by_the_call, LIMIT_S)
{
	static const size_t sizes[] = { 0, 1, 31, 100, IB_MEMREG_INLINE_MAX };
	__u8 data[IB_MEMREG_INLINE_MAX];
	struct ib_memreg_wr wrs[3];
	struct ibv_wc wc;
	size_t i, n;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		n = sizes[i];
		fill(data, n, 9);
		ASSERT_EQ(0, stock_recv(self->stock, 0, 1000));
		ASSERT_EQ(0, stock_recv(self->stock, 1000, 1000));
		wrs[0] = WR(WRITE, self->to, .flags = INLINE,
			    INLINE_DATA(data, n), .rkey = self->stock->mr->rkey,
			    .remote_addr = stock_addr(self, 8001));
		wrs[1] = WR(SEND, self->to, .flags = INLINE,
			    INLINE_DATA(data, n));
		wrs[2] = WR(SEND_WITH_IMM, self->to, .flags = INLINE | SIGNALED,
			    INLINE_DATA(data, n), .ex = 8);
		ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 3)) {
			TH_LOG("reason %u", raw_reason());
		}
		memset(data, 0xee, sizeof(data));
		received(_metadata, self, &wc, n);
		received(_metadata, self, &wc, n);
		EXPECT_EQ(8, wc.imm_data);
		completed(_metadata, self, &wrs[2], NULL);
		EXPECT_TRUE(filled(self->stock->mem, n, 0, 9));
		EXPECT_TRUE(filled(self->stock->mem + 1000, n, 0, 9));
		EXPECT_TRUE(filled(self->stock->mem + 8001, n, 0, 9));
		EXPECT_TRUE(filled(self->stock->mem + 8001 + n, 100, 8001 + n,
				   2));
	}
}

/* Fill in as many SGEs as a work request takes; returns their bytes. */
static size_t odd_sges(FIXTURE_DATA(submit) *self, struct ib_memreg_sge *sges,
		       unsigned int n)
{
	size_t total = 0;
	unsigned int i;

	for (i = 0; i < n; i++) {
		sges[i] = (struct ib_memreg_sge) {
			.mr_id = self->mr,
			.offset = i * 3 * PAGE + 4096 - 7 * i - 1,
			.length = 37 * i * i % 301 + i % 2,
		};
		total += sges[i].length;
	}
	return total;
}

/* Are the bytes of these pieces one after the other in @row? */
static bool gathered(const __u8 *row, const struct ib_memreg_sge *sges,
		     unsigned int n, unsigned int seed)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (!filled(row, sges[i].length, sges[i].offset, seed))
			return false;
		row += sges[i].length;
	}
	return true;
}

TEST_F_TIMEOUT(submit, many_sges_are_gathered, LIMIT_S)
{
	struct ib_memreg_sge sges[IB_MEMREG_SGE_MAX];
	size_t total = odd_sges(self, sges, ARRAY_LEN(sges));
	struct ibv_wc wc;

	ASSERT_EQ(0, stock_recv(self->stock, 3, BIG));
	done(_metadata, self,
	     WR(SEND, self->to, SGES(sges, ARRAY_LEN(sges))));
	received(_metadata, self, &wc, total);
	EXPECT_TRUE(gathered(self->stock->mem + 3, sges, ARRAY_LEN(sges), 1));
	done(_metadata, self,
	     WR(WRITE, self->to, SGES(sges, ARRAY_LEN(sges)),
		.remote_addr = stock_addr(self, 65001),
		.rkey = self->stock->mr->rkey));
	EXPECT_TRUE(gathered(self->stock->mem + 65001, sges, ARRAY_LEN(sges),
			     1));
	EXPECT_TRUE(filled(self->stock->mem + 65001 + total, 4096,
			   65001 + total, 2));
}

TEST_F_TIMEOUT(submit, many_sges_are_scattered_to, LIMIT_S)
{
	struct ib_memreg_sge sges[IB_MEMREG_SGE_MAX];
	size_t from = 4097, i, end = 0;

	odd_sges(self, sges, ARRAY_LEN(sges));
	done(_metadata, self,
	     WR(READ, self->to, SGES(sges, ARRAY_LEN(sges)),
		.remote_addr = stock_addr(self, from),
		.rkey = self->stock->mr->rkey));
	for (i = 0; i < ARRAY_LEN(sges); i++) {
		EXPECT_TRUE(filled(self->mem + end, sges[i].offset - end, end,
				   1));
		EXPECT_TRUE(filled(self->mem + sges[i].offset, sges[i].length,
				   from, 2));
		from += sges[i].length;
		end = sges[i].offset + sges[i].length;
	}
	EXPECT_TRUE(filled(self->mem + end, LEN - end, end, 1));
}

TEST_F_TIMEOUT(submit, zero_lengths_work, LIMIT_S)
{
	struct ib_memreg_wr wr = WR(RECV, self->to);
	union entry entry;
	struct ibv_wc wc;

	ASSERT_EQ(0, stock_recv(self->stock, 0, 0));
	done(_metadata, self, WR(SEND, self->to));
	received(_metadata, self, &wc, 0);
	ASSERT_EQ(0, stock_recv(self->stock, 0, 100));
	done(_metadata, self, WR(SEND, self->to, SGE(self->mr, LEN, 0)));
	received(_metadata, self, &wc, 0);
	done(_metadata, self, WR(WRITE, self->to,
				 .remote_addr = stock_addr(self, 0),
				 .rkey = self->stock->mr->rkey));
	done(_metadata, self, WR(READ, self->to, SGE(self->mr, 0, 0),
				 .remote_addr = stock_addr(self, 0),
				 .rkey = self->stock->mr->rkey));
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send(self->stock, 0, 0));
	completed(_metadata, self, &wr, &entry);
	EXPECT_EQ(0, entry.cqe.byte_len);
	EXPECT_TRUE(filled(self->mem, LEN, 0, 1));
	EXPECT_TRUE(filled(self->stock->mem, HUGE, 0, 2));
}

/*
 * A transfer of more pieces than a work request of the device takes is split
 * into several.
 */
TEST_F_TIMEOUT(submit, scattered_memory_is_written_and_read, LIMIT_S)
{
	__u8 *mem = mem_shuffled(BIG);
	struct ibv_wc wc;
	__u32 mr;

	ASSERT_NE(NULL, mem);
	fill(mem, BIG, 5);
	ASSERT_EQ(0, register_it(self, mem, BIG, &mr));
	done(_metadata, self, WR(WRITE, self->to, SGE(mr, 1, BIG - 2),
				 .remote_addr = stock_addr(self, 3),
				 .rkey = self->stock->mr->rkey));
	EXPECT_TRUE(filled(self->stock->mem, 3, 0, 2));
	EXPECT_TRUE(filled(self->stock->mem + 3, BIG - 2, 1, 5));
	EXPECT_TRUE(filled(self->stock->mem + BIG + 1, 4096, BIG + 1, 2));
	fill(self->stock->mem, HUGE, 7);
	ASSERT_EQ(0, stock_recv(self->stock, 0, 0));
	done(_metadata, self, WR(WRITE_WITH_IMM, self->to, SGE(mr, 0, BIG),
				 .remote_addr = stock_addr(self, 0),
				 .rkey = self->stock->mr->rkey, .ex = 4));
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(4, wc.imm_data);
	EXPECT_TRUE(filled(self->stock->mem, BIG, 0, 5));
	fill(self->stock->mem, HUGE, 7);
	done(_metadata, self, WR(READ, self->to, SGE(mr, 5, BIG - 9),
				 .remote_addr = stock_addr(self, 4001),
				 .rkey = self->stock->mr->rkey));
	EXPECT_TRUE(filled(mem, 5, 0, 5));
	EXPECT_TRUE(filled(mem + 5, BIG - 9, 4001, 7));
	EXPECT_TRUE(filled(mem + BIG - 4, 4, BIG - 4, 5));
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	mem_free(mem, BIG);
}

/* A SEND is never split; DEVICE_QUERY returns the limit of pieces. */
TEST_F_TIMEOUT(submit, scattered_message_has_a_limit, LIMIT_S)
{
	__u8 *mem = mem_shuffled(BIG);
	struct ib_memreg_wr wr;
	struct ibv_wc wc;
	__u64 max;
	__u32 mr;

	ASSERT_EQ(0, raw_cap(self->link.fd, IB_MEMREG_CAP_FRAGMENTS, &max));
	ASSERT_LE(16, max);
	ASSERT_GT(BIG / PAGE, max);
	ASSERT_NE(NULL, mem);
	fill(mem, BIG, 5);
	ASSERT_EQ(0, register_it(self, mem, BIG, &mr));
	if (raw_runs(self->link.fd, self->link.domain, mr, BIG) <= max) {
		ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
		SKIP(return, "the device has the memory in one piece");
	}
	ASSERT_EQ(0, stock_recv(self->stock, 0, BIG));
	done(_metadata, self, WR(SEND, self->to, SGE(mr, 0, max * PAGE)));
	received(_metadata, self, &wc, max * PAGE);
	EXPECT_TRUE(filled(self->stock->mem, max * PAGE, 0, 5));
	wr = WR(SEND, self->to, SGE(mr, 0, max * PAGE + 1));
	EXPECT_FAIL(EMSGSIZE, FRAGMENTS, raw_submit(self->link.fd, &wr, 1));
	wr = WR(RECV, self->to, SGE(mr, 1, max * PAGE));
	EXPECT_FAIL(EMSGSIZE, FRAGMENTS, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	mem_free(mem, BIG);
}

TEST_F_TIMEOUT(submit, huge_memory_is_one_message, LIMIT_S)
{
	__u8 *mem = mem_thp(HUGE);
	struct ib_memreg_wr wr;
	union entry entry;
	struct ibv_wc wc;
	__u32 mr;

	if (!mem)
		SKIP(return, "there are no huge pages now");
	fill(mem, HUGE, 5);
	ASSERT_EQ(0, register_it(self, mem, HUGE, &mr));
	ASSERT_EQ(0, stock_recv(self->stock, 0, HUGE));
	done(_metadata, self, WR(SEND, self->to, SGE(mr, 1, BIG)));
	received(_metadata, self, &wc, BIG);
	EXPECT_TRUE(filled(self->stock->mem, BIG, 1, 5));
	wr = WR(RECV, self->to, SGE(mr, 3, BIG));
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	fill(self->stock->mem, HUGE, 6);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send(self->stock, 11, BIG));
	completed(_metadata, self, &wr, &entry);
	EXPECT_EQ(BIG, entry.cqe.byte_len);
	EXPECT_TRUE(filled(mem + 3, BIG, 11, 6));
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	mem_free(mem, HUGE);
}

/*
 * A transfer that is longer than a message is split into several, without gaps.
 */
TEST_F_TIMEOUT(submit, long_memory_is_written_and_read, LIMIT_S)
{
	const size_t len = 60001;
	struct ib_memreg_wr wr;
	struct ibv_wc wc;

	if (!fault_injection())
		SKIP(return, "no kernel to make the device's messages short");
	fault_order("short_messages", 0, -1);
	done(_metadata, self, WR(WRITE, self->to, SGE(self->mr, 5, len),
				 .remote_addr = stock_addr(self, 3),
				 .rkey = self->stock->mr->rkey));
	EXPECT_TRUE(filled(self->stock->mem, 3, 0, 2));
	EXPECT_TRUE(filled(self->stock->mem + 3, len, 5, 1));
	EXPECT_TRUE(filled(self->stock->mem + 3 + len, 4096, 3 + len, 2));
	ASSERT_EQ(0, stock_recv(self->stock, 0, 0));
	done(_metadata, self, WR(WRITE_WITH_IMM, self->to,
				 SGE(self->mr, 0, 3 * MESSAGE),
				 .remote_addr = stock_addr(self, BIG),
				 .rkey = self->stock->mr->rkey, .ex = 4));
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_TRUE(filled(self->stock->mem + BIG, 3 * MESSAGE, 0, 1));
	/*
	 * A transfer of as many messages as the module makes of one, all of
	 * full length
	 */
	done(_metadata, self, WR(WRITE, self->to,
				 SGE(self->mr, 0, 32 * MESSAGE),
				 .remote_addr = stock_addr(self, 0),
				 .rkey = self->stock->mr->rkey));
	EXPECT_TRUE(filled(self->stock->mem, 32 * MESSAGE, 0, 1));
	done(_metadata, self, WR(READ, self->to, SGE(self->mr, 7, len),
				 .remote_addr = stock_addr(self, BIG + 11),
				 .rkey = self->stock->mr->rkey));
	EXPECT_TRUE(filled(self->mem, 7, 0, 1));
	EXPECT_TRUE(filled(self->mem + 7, 3 * MESSAGE - 11, 11, 1));
	EXPECT_TRUE(filled(self->mem + 7 + 3 * MESSAGE - 11,
			   len - (3 * MESSAGE - 11), BIG + 3 * MESSAGE, 2));
	EXPECT_TRUE(filled(self->mem + 7 + len, 4096, 7 + len, 1));
	/* No more parts than with more pieces */
	wr = WR(WRITE, self->to, SGE(self->mr, 0, 40 * MESSAGE),
		.remote_addr = stock_addr(self, 0),
		.rkey = self->stock->mr->rkey);
	EXPECT_FAIL(EMSGSIZE, FRAGMENTS, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, stock_recv(self->stock, 0, BIG));
	done(_metadata, self, WR(SEND, self->to, SGE(self->mr, 1, MESSAGE)));
	received(_metadata, self, &wc, MESSAGE);
	wr = WR(SEND, self->to, SGE(self->mr, 1, MESSAGE + 1));
	EXPECT_FAIL(EMSGSIZE, SPAN, raw_submit(self->link.fd, &wr, 1));
	fault_cancel("short_messages");
}

/* The reason is not that of one behind it, which is bad as well. */
TEST_F_TIMEOUT(submit, what_the_device_refuses_has_no_reason, LIMIT_S)
{
	struct ib_memreg_wr wrs[] = {
		WR(WRITE, self->to, SGE(self->mr, 0, 8),
		   .remote_addr = stock_addr(self, 0),
		   .rkey = self->stock->mr->rkey),
		WR(SEND, self->to, .flags = 1 << 15),
	};

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	fault_order("post_send", 0, 1);
	EXPECT_FAIL(ENOMEM, NONE, raw_submit(self->link.fd, wrs, 2));
	EXPECT_FALSE(fault_pending("post_send"));
	fault_cancel("post_send");
	EXPECT_EQ(0, raw_taken());
	done(_metadata, self, wrs[0]);
}

/* Memory without LOCAL_WRITE can be sent; MRs may be of another domain. */
TEST_F_TIMEOUT(submit, mrs_of_any_domain_serve, LIMIT_S)
{
	__u32 domain, mr;
	struct ibv_wc wc;

	ASSERT_EQ(0, raw_domain(self->link.fd, &domain));
	ASSERT_EQ(0, raw_register(self->link.fd, domain, self->mem + 100, 5000,
				  0, &mr));
	ASSERT_EQ(0, stock_recv(self->stock, 0, BIG));
	done(_metadata, self, WR(SEND, self->to, SGE(mr, 10, 4990)));
	received(_metadata, self, &wc, 4990);
	EXPECT_TRUE(filled(self->stock->mem, 4990, 110, 1));
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	ASSERT_EQ(0, raw_destroy(self->link.fd, domain));
}

/*
 * Flags and order
 */

/* A fenced SEND sends the data that the READ before it has fetched. */
TEST_F_TIMEOUT(submit, fence_waits_for_reads, LIMIT_S)
{
	struct ib_memreg_wr wrs[2];
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 10; i++) {
		fill(self->mem, 60000, 3);
		ASSERT_EQ(0, stock_recv(self->stock, 100000, 60000));
		wrs[0] = WR(READ, self->to, SGE(self->mr, 0, 60000),
			    .remote_addr = stock_addr(self, 1 + i),
			    .rkey = self->stock->mr->rkey);
		wrs[1] = WR(SEND, self->to, SGE(self->mr, 0, 60000),
			    .flags = FENCE | SIGNALED);
		ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 2));
		completed(_metadata, self, &wrs[1], NULL);
		received(_metadata, self, &wc, 60000);
		EXPECT_TRUE(filled(self->stock->mem + 100000, 60000, 1 + i,
				   2));
		fill(self->stock->mem, HUGE, 2);
	}
}

/* Is there a notification of the stock end's receive queue? */
static bool notified(FIXTURE_DATA(submit) *self)
{
	struct ibv_comp_channel *channel = self->stock->received.channel;
	struct pollfd pfd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&pfd, 1, 0) != 1)
		return false;
	if (!ibv_get_cq_event(channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	return true;
}

TEST_F_TIMEOUT(submit, solicited_raises_an_event, LIMIT_S)
{
	struct ibv_cq *cq = self->stock->received.cq;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, stock_recv(self->stock, 0, 100));
		ASSERT_EQ(0, ibv_req_notify_cq(cq, 1));
		done(_metadata, self, WR(SEND, self->to,
					 SGE(self->mr, 0, 100)));
		/*
		 * The WR completed, so the message was acknowledged, and the
		 * receive has completed.
		 */
		ASSERT_EQ(1, ibv_poll_cq(cq, 1, &wc));
		EXPECT_FALSE(notified(self));
		ASSERT_EQ(0, stock_recv(self->stock, 0, 100));
		done(_metadata, self, WR(SEND, self->to, .flags = SOLICITED,
					 SGE(self->mr, 0, 100)));
		ASSERT_EQ(1, ibv_poll_cq(cq, 1, &wc));
		EXPECT_TRUE(notified(self));
	}
	ASSERT_EQ(0, stock_recv(self->stock, 0, 0));
	ASSERT_EQ(0, ibv_req_notify_cq(cq, 1));
	done(_metadata, self, WR(WRITE_WITH_IMM, self->to, .flags = SOLICITED,
				 .remote_addr = stock_addr(self, 0),
				 .rkey = self->stock->mr->rkey));
	ASSERT_EQ(1, ibv_poll_cq(cq, 1, &wc));
	EXPECT_TRUE(notified(self));
}

TEST_F_TIMEOUT(submit, unsignalled_work_has_no_entry, LIMIT_S)
{
	struct ib_memreg_wr wrs[40];
	unsigned int i;

	for (i = 0; i < 40; i++)
		wrs[i] = WR(WRITE, self->to, SGE(self->mr, 100 * i, 100),
			    .remote_addr = stock_addr(self, 100 * i),
			    .rkey = self->stock->mr->rkey,
			    .flags = i % 13 == 12 || i == 39 ? SIGNALED : 0,
			    .user_data = i);
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 40));
	EXPECT_EQ(40, raw_taken());
	completed(_metadata, self, &wrs[12], NULL);
	completed(_metadata, self, &wrs[25], NULL);
	completed(_metadata, self, &wrs[38], NULL);
	completed(_metadata, self, &wrs[39], NULL);
	EXPECT_TRUE(filled(self->stock->mem, 4000, 0, 1));
}

/* Unsignalled work requests that fail, or are flushed, do have entries. */
TEST_F_TIMEOUT(submit, unsignalled_work_that_fails_has_an_entry, LIMIT_S)
{
	struct ib_memreg_wr wrs[5];
	union entry entry;
	unsigned int i;

	for (i = 0; i < 5; i++)
		wrs[i] = WR(WRITE, self->to, SGE(self->mr, 0, 100),
			    .remote_addr = stock_addr(self, 100 * i),
			    .rkey = self->stock->mr->rkey,
			    .user_data = 70 + i);
	wrs[2].remote_addr = stock_addr(self, HUGE - 50);
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 5));
	for (i = 2; i < 5; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		EXPECT_EQ(70 + i, entry.cqe.user_data);
		EXPECT_EQ(self->to, entry.cqe.endpoint_data);
		EXPECT_EQ(i == 2 ? IB_MEMREG_WC_REM_ACCESS_ERR :
				   IB_MEMREG_WC_WR_FLUSH_ERR,
			  entry.cqe.status);
	}
	ASSERT_EQ(0, raw_await(self->link.fd, IB_MEMREG_EVENT_DISCONNECTED,
			       NULL));
	EXPECT_TRUE(filled(self->stock->mem, 100, 0, 1));
	EXPECT_TRUE(filled(self->stock->mem + 100, 100, 0, 1));
	EXPECT_TRUE(filled(self->stock->mem + 200, HUGE - 200, 200, 2));
}

TEST_F_TIMEOUT(submit, a_full_call_is_in_order, LIMIT_S)
{
	struct ib_memreg_wr wrs[IB_MEMREG_BATCH_MAX];
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(wrs); i++)
		wrs[i] = WR(WRITE, self->to, SGE(self->mr, i, 64),
			    .remote_addr = stock_addr(self, 64 * i),
			    .rkey = self->stock->mr->rkey, .flags = SIGNALED,
			    .user_data = i);
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, ARRAY_LEN(wrs))) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
	EXPECT_EQ(ARRAY_LEN(wrs), raw_taken());
	for (i = 0; i < ARRAY_LEN(wrs); i++)
		completed(_metadata, self, &wrs[i], NULL);
	for (i = 0; i < ARRAY_LEN(wrs); i++)
		EXPECT_TRUE(filled(self->stock->mem + 64 * i, 64, i, 1));
}

/*
 * A window's whole life: bound, announced, and ended by the peer
 */

#define ROUNDS	64

/*
 * Post in one call a receive for the answer, the BIND of a window, and a
 * message with its rkey.
 */
static void offer(struct __test_metadata *_metadata, FIXTURE_DATA(submit) *self,
		  __u32 mr, __u32 window, unsigned int i)
{
	__be32 rkey = 0;
	struct ib_memreg_wr wrs[] = {
		WR(RECV, self->to, SGE(self->mr, 0, 64), .user_data = i),
		WR(BIND, self->to, .window_id = window, .flags = INSERT_RKEY,
		   .access = REMOTE_WRITE,
		   .sge = { .mr_id = mr, .offset = PAGE, .length = 100 }),
		WR(SEND, self->to, INLINE_DATA(&rkey, sizeof(rkey)),
		   .flags = INLINE | (i % 32 == 31 ? SIGNALED : 0),
		   .user_data = i),
	};

	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, ARRAY_LEN(wrs))) {
		TH_LOG("round %u, taken %u, reason %u", i, raw_taken(),
		       raw_reason());
	}
}

/* The stock end receives the key, writes by it, and ends it. */
static void use_offer(struct __test_metadata *_metadata,
		      FIXTURE_DATA(submit) *self, __u32 *rkey)
{
	struct ibv_wc wc;
	__be32 key;

	received(_metadata, self, &wc, sizeof(key));
	memcpy(&key, self->stock->mem + wc.wr_id, sizeof(key));
	*rkey = be32toh(key);
	EXPECT_EQ(IBV_WC_SUCCESS,
		  stock_write(self->stock, HUGE / 2, 100,
			      (uintptr_t)self->mem + PAGE, *rkey));
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send_inv(self->stock, *rkey));
}

/* One entry reports the end of the window, and one a signalled SEND. */
static void round_reported(struct __test_metadata *_metadata,
			   FIXTURE_DATA(submit) *self, __u32 window, __u32 rkey,
			   unsigned int i)
{
	unsigned int n, entries = i % 32 == 31 ? 2 : 1, ends = 0;
	union entry entry;

	for (n = 0; n < entries; n++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		ASSERT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
		EXPECT_EQ(i, entry.cqe.user_data);
		if (entry.cqe.opcode == OP(SEND))
			continue;
		EXPECT_EQ(OP(RECV), entry.cqe.opcode);
		EXPECT_EQ(IB_MEMREG_CQE_INVALIDATED | IB_MEMREG_CQE_INLINE,
			  entry.cqe.flags);
		EXPECT_EQ(window, entry.cqe.window_id);
		EXPECT_EQ(rkey, entry.cqe.ex);
		ends++;
	}
	EXPECT_EQ(1, ends);
	EXPECT_EQ(0, ring_count(&self->ring));
}

TEST_F_TIMEOUT(submit, window_goes_round_with_one_entry, LIMIT_S)
{
	__u32 mr, window, rkey;
	unsigned int i;

	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, self->mem,
				  LEN, LOCAL_WRITE | MW_BIND, &mr));
	ASSERT_EQ(0, raw_windows_2b(self->link.fd, self->link.domain, PAGE,
				    &window, 1));
	for (i = 0; i < ROUNDS && !_metadata->exit_code; i++) {
		fill(self->stock->mem + HUGE / 2, 100, i);
		ASSERT_EQ(0, stock_recv(self->stock, 1000, 64));
		offer(_metadata, self, mr, window, i);
		use_offer(_metadata, self, &rkey);
		round_reported(_metadata, self, window, rkey, i);
		EXPECT_TRUE(filled(self->mem + PAGE, 100, 0, i));
	}
	ASSERT_EQ(0, raw_destroy(self->link.fd, window));
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
}

/*
 * Several endpoints
 */

FIXTURE(several)
{
	struct link links[3];	/* the others have the file of the first */
	struct ring ring;
	struct ring other;
	__u8 *mem;
	__u32 mr;
};

#define LINKS	3

/*
 * Open links that share the file of the first; each has a stock end of its own.
 */
static int open_links(FIXTURE_DATA(several) *self)
{
	int ret = link_open(&self->links[0], HUGE);
	int i;

	for (i = 1; i < LINKS && !ret; i++) {
		self->links[i] = self->links[0];
		ret = stock_open(&self->links[i].stock, HUGE);
	}
	return ret;
}

FIXTURE_SETUP(several)
{
	int fd;

	ASSERT_EQ(0, open_links(self));
	fd = self->links[0].fd;
	ASSERT_EQ(0, link_memory(&self->links[0], LEN, LOCAL_WRITE, &self->mem,
				 &self->mr));
	ASSERT_EQ(0, ring_create(fd, &self->ring, 256, 64, 0, -1));
	ASSERT_EQ(0, ring_create(fd, &self->other, 256, 128, 0, -1));
}

FIXTURE_TEARDOWN(several)
{
	int i;

	for (i = 1; i < LINKS; i++)
		stock_close(&self->links[i].stock);
	link_close(&self->links[0]);
	ring_unmap(&self->ring);
	ring_unmap(&self->other);
	EXPECT_EQ(0, vm_pin(0));
	mem_free(self->mem, LEN);
}

static int connect_links(FIXTURE_DATA(several) *self, __u32 srq)
{
	struct ib_memreg_queues queues = {
		.send_ring_id = self->ring.id,
		.recv_ring_id = srq ? 0 : self->other.id,
		.srq_id = srq,
		.max_send = 64,
		.max_recv = srq ? 0 : 64,
		.max_send_sge = 2,
		.max_recv_sge = srq ? 0 : 2,
		.max_inline = 64,
	};
	int ret = 0;
	int i;

	for (i = 0; i < LINKS && !ret; i++)
		ret = link_up(&self->links[i], &queues, i % 2);
	return ret;
}

/* The sends' entries go to one ring, the receives' to the other. */
TEST_F_TIMEOUT(several, one_call_serves_several_endpoints, LIMIT_S)
{
	int i, fd = self->links[0].fd;
	unsigned int seen[LINKS] = {};
	struct ib_memreg_wr wrs[4 * LINKS];
	union entry entry;
	struct ibv_wc wc;
	__u32 to;

	ASSERT_EQ(0, connect_links(self, 0));
	for (i = 0; i < 2 * LINKS; i++) {
		to = self->links[i % LINKS].endpoint;
		ASSERT_EQ(0, stock_recv(&self->links[i % LINKS].stock,
					PAGE * (i / LINKS), PAGE));
		wrs[2 * i] = WR(SEND, to, SGE(self->mr, 100 * i, 99),
				.flags = SIGNALED, .user_data = i);
		wrs[2 * i + 1] = WR(RECV, to,
				    SGE(self->mr, PAGE * (2 + i), 200),
				    .user_data = 100 + i);
	}
	ASSERT_EQ(0, raw_submit(fd, wrs, ARRAY_LEN(wrs))) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
	for (i = 0; i < 2 * LINKS; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		ASSERT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
		to = entry.cqe.user_data % LINKS;
		EXPECT_EQ(self->links[to].endpoint, entry.cqe.endpoint_data);
		/* In order, at each of them */
		EXPECT_EQ(seen[to]++, entry.cqe.user_data / LINKS);
	}
	for (i = 0; i < LINKS; i++) {
		struct stock *s = &self->links[i].stock;

		ASSERT_EQ(0, stock_next(&s->received, &wc));
		EXPECT_EQ(99, wc.byte_len);
		EXPECT_TRUE(filled(s->mem, 99, 100 * i, 1));
		ASSERT_EQ(0, stock_next(&s->received, &wc));
		EXPECT_TRUE(filled(s->mem + PAGE, 99, 100 * (i + LINKS), 1));
		fill(s->mem, PAGE, 20 + i);
		ASSERT_EQ(IBV_WC_SUCCESS, stock_send(s, 5, 150));
		ASSERT_EQ(0, ring_next(&self->other, &entry));
		EXPECT_EQ(self->links[i].endpoint, entry.cqe.endpoint_data);
		EXPECT_EQ(100 + i, entry.cqe.user_data);
		EXPECT_EQ(150, entry.cqe.byte_len);
		EXPECT_TRUE(filled(self->mem + PAGE * (2 + i), 150, 5,
				   20 + i));
	}
}

/*
 * An endpoint that receives a message takes a shared buffer, and the entry
 * names the endpoint.
 */
TEST_F_TIMEOUT(several, shared_receives_serve_several_endpoints, LIMIT_S)
{
	int i, fd = self->links[0].fd;
	struct ib_memreg_wr wrs[12];
	union entry entry;
	__u32 srq;

	ASSERT_EQ(0, raw_srq(fd, self->links[0].domain, self->other.id, 16, 1,
			     0, &srq)) {
		TH_LOG("reason %u", raw_reason());
	}
	ASSERT_EQ(0, connect_links(self, srq));
	for (i = 0; i < 12; i++)
		wrs[i] = WR(RECV, srq, SGE(self->mr, PAGE * (2 + i), PAGE),
			    .user_data = i);
	ASSERT_EQ(0, raw_submit(fd, wrs, 12)) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
	for (i = 0; i < 12; i++) {
		struct link *l = &self->links[i * 5 % LINKS];

		fill(l->stock.mem, PAGE, 30 + i);
		ASSERT_EQ(IBV_WC_SUCCESS, stock_send(&l->stock, i, 1000 + i));
		ASSERT_EQ(0, ring_next(&self->other, &entry));
		EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
		EXPECT_EQ(i, entry.cqe.user_data);
		EXPECT_EQ(l->endpoint, entry.cqe.endpoint_data);
		EXPECT_EQ(OP(RECV), entry.cqe.opcode);
		EXPECT_EQ(1000 + i, entry.cqe.byte_len);
		EXPECT_TRUE(filled(self->mem + PAGE * (2 + i), 1000 + i, i,
				   30 + i));
	}
	EXPECT_EQ(-EBUSY, raw_destroy(fd, srq));
	for (i = 0; i < LINKS; i++)
		ASSERT_EQ(0, raw_destroy(fd, self->links[i].endpoint));
	EXPECT_EQ(0, raw_destroy(fd, srq));
}

/*
 * Receives are posted before the peer can send, as the peer does not repeat
 * what finds no receive.
 */

static void early_receives(struct __test_metadata *_metadata, bool connects)
{
	struct ib_memreg_queues queues = {
		.max_recv = 8,
		.max_recv_sge = 1,
	};
	struct ib_memreg_wr wrs[3];
	union entry entry;
	struct ring ring;
	struct link link;
	__u8 *mem;
	__u32 mr;
	int i;

	ASSERT_EQ(0, link_open(&link, HUGE));
	link.stock.rnr_retry = 0;
	mem = mem_alloc(4 * PAGE);
	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, raw_register(link.fd, link.domain, mem, 4 * PAGE,
				  LOCAL_WRITE, &mr));
	ASSERT_EQ(0, ring_create(link.fd, &ring, 8, 64, 0, -1));
	queues.recv_ring_id = ring.id;
	ASSERT_EQ(0, link_begin(&link, &queues, connects));
	for (i = 0; i < 3; i++)
		wrs[i] = WR(RECV, link.endpoint, SGE(mr, PAGE * i, PAGE),
			    .user_data = i);
	ASSERT_EQ(0, raw_submit(link.fd, wrs, 3)) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
	ASSERT_EQ(0, link_finish(&link, connects));
	for (i = 0; i < 3; i++) {
		fill(link.stock.mem, PAGE, i);
		ASSERT_EQ(IBV_WC_SUCCESS, stock_send(&link.stock, 0, PAGE));
		ASSERT_EQ(0, ring_next(&ring, &entry));
		EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
		EXPECT_EQ(i, entry.cqe.user_data);
		EXPECT_TRUE(filled(mem + PAGE * i, PAGE, 0, i));
	}
	/* And without one there is an error. */
	EXPECT_EQ(IBV_WC_RNR_RETRY_EXC_ERR, stock_send(&link.stock, 0, PAGE));
	link_close(&link);
	ring_unmap(&ring);
	mem_free(mem, 4 * PAGE);
}

TEST(receives_before_accept_are_in_place)
{
	early_receives(_metadata, false);
}

TEST(receives_before_the_connection_are_in_place)
{
	early_receives(_metadata, true);
}

TEST_HARNESS_MAIN
