/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An MR on demand and a stock peer that it exchanges messages with, for the
 * tests that include this.
 */
#ifndef SELFTESTS_DEMAND_H
#define SELFTESTS_DEMAND_H

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "harness.h"
#include "data.h"

#define LEN		(16 * PAGE)
#define STOCK_LEN	(1UL << 20)
#define ON_DEMAND	IB_MEMREG_MR_ON_DEMAND
#define IMPLICIT	IB_MEMREG_MR_IMPLICIT

FIXTURE(demand)
{
	struct link link;
	struct stock *stock;
	struct ring ring;
	__u8 *mem;
	__u32 mr;
	__u32 to;
	long pinned;
	__u64 uses;	/* of @mr so far */
};

static int register_mr(FIXTURE_DATA(demand) *self, void *addr, __u64 length,
		       __u32 access, __u32 flags, __u32 *mr)
{
	RAW(mr_register, cmd, .flags = flags, .domain_id = self->link.domain,
	    .access = access, .addr = (uintptr_t)addr, .length = length);
	int ret = raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &cmd);

	*mr = cmd.out_mr_id;
	return ret;
}

FIXTURE_SETUP(demand)
{
	struct ib_memreg_queues queues = {
		.max_send = 64,
		.max_recv = 64,
		.max_send_sge = 4,
		.max_recv_sge = 4,
	};

	ASSERT_EQ(0, link_open(&self->link, STOCK_LEN));
	self->stock = &self->link.stock;
	self->uses = 0;
	self->mem = mmap(NULL, LEN, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->mem);
	self->pinned = vm_pin(0);
	ASSERT_EQ(0, register_mr(self, self->mem, LEN, LOCAL_WRITE | MW_BIND,
				 ON_DEMAND, &self->mr));
	EXPECT_EQ(self->pinned, vm_pin(0));
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 256, 64, 0, -1));
	queues.send_ring_id = self->ring.id;
	queues.recv_ring_id = self->ring.id;
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
	self->to = self->link.endpoint;
}

FIXTURE_TEARDOWN(demand)
{
	munmap(self->mem, LEN);
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
}

static struct ib_memreg_mr_query query(struct __test_metadata *_metadata,
				       FIXTURE_DATA(demand) *self, __u32 mr)
{
	RAW(mr_query, cmd, .mr_id = mr);

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_QUERY, &cmd));
	return cmd;
}

/* Each use was a hit or a fault, and the MR lives. */
static void adds_up(struct __test_metadata *_metadata,
		    FIXTURE_DATA(demand) *self, __u64 faults)
{
	struct ib_memreg_mr_query q = query(_metadata, self, self->mr);
	__u64 waits = 0;
	int i;

	EXPECT_EQ(faults, q.out_demand.faults);
	EXPECT_EQ(self->uses, q.out_demand.faults + q.out_demand.hits);
	for (i = 0; i < IB_MEMREG_DEMAND_WAITS; i++)
		waits += q.out_wait[i];
	EXPECT_EQ(faults, waits);
	EXPECT_EQ(IB_MEMREG_MR_LIVE, q.out_state);
	EXPECT_EQ(0, q.out_generation);
	EXPECT_LE(q.out_pinned, q.out_demand.pinned_max);
}

/* Something was done, and completes well. */
static void completes(struct __test_metadata *_metadata,
		      FIXTURE_DATA(demand) *self, __u32 opcode)
{
	union entry entry;

	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	EXPECT_EQ(opcode, entry.cqe.opcode);
}

static int post_send(FIXTURE_DATA(demand) *self, __u32 mr, __u64 offset,
		     __u32 length)
{
	struct ib_memreg_wr wr = WR(SEND, self->to, SGE(mr, offset, length),
				    .flags = SIGNALED);

	return raw_submit(self->link.fd, &wr, 1);
}

/* The peer receives what it is sent of an MR. */
static void peer_gets(struct __test_metadata *_metadata,
		      FIXTURE_DATA(demand) *self, __u32 mr, __u64 offset,
		      const void *what, __u32 length)
{
	struct ibv_wc wc;

	memset(self->stock->mem, 0xa5, length);
	ASSERT_EQ(0, stock_recv(self->stock, 0, length));
	ASSERT_EQ(0, post_send(self, mr, offset, length))
		TH_LOG("reason %u", raw_reason());
	completes(_metadata, self, OP(SEND));
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(length, wc.byte_len);
	EXPECT_EQ(0, memcmp(self->stock->mem, what, length));
	if (mr == self->mr)
		self->uses++;
}

/* What the peer sends arrives in an MR. */
static void peer_sends(struct __test_metadata *_metadata,
		       FIXTURE_DATA(demand) *self, __u32 mr, __u64 offset,
		       const __u8 *where, __u32 length, unsigned int seed)
{
	struct ib_memreg_wr wr = WR(RECV, self->to, SGE(mr, offset, length));

	fill(self->stock->mem, length, seed);
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1))
		TH_LOG("reason %u", raw_reason());
	ASSERT_EQ(0, stock_send(self->stock, 0, length));
	completes(_metadata, self, OP(RECV));
	EXPECT_TRUE(filled(where, length, 0, seed));
	if (mr == self->mr)
		self->uses++;
}

static int advise(FIXTURE_DATA(demand) *self, __u32 advice, __u32 flags,
		  struct ib_memreg_range *ranges, __u32 count)
{
	RAW(mr_advise, cmd, .flags = flags, .advice = advice, .count = count,
	    .ranges = (uintptr_t)ranges);
	int ret = raw_call(self->link.fd, IB_MEMREG_IOC_MR_ADVISE, &cmd);

	return ret ?: (int)cmd.out_done;
}

#define RANGE(_mr, _offset, _length, ...)				\
	((struct ib_memreg_range){ .mr_id = (_mr), .offset = (_offset),	\
				   .length = (_length), ##__VA_ARGS__ })
#define ADVICE(name)	IB_MEMREG_ADVICE_##name
#define WAIT		IB_MEMREG_ADVISE_WAIT

#endif /* SELFTESTS_DEMAND_H */
