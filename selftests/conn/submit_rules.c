// SPDX-License-Identifier: GPL-2.0-only
/*
 * Work requests that break a rule, one rule at a time, in the middle of a call
 * of valid ones (I6, I8): errno and reason are as documented, the work requests
 * before the invalid one are executed, the others are not, and nothing else has
 * changed.
 *
 * time limit: 300
 */
#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "net.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define LEN		(32 * PAGE)
#define STOCK_LEN	(1UL << 20)
#define MAX_SGE		4
#define MAX_INLINE	64

FIXTURE(rules)
{
	struct link link;
	struct stock *stock;
	struct ring ring;
	__u8 *mem;
	__u8 *page;		/* one, and behind it nothing is mapped */
	__u32 mr;
	__u32 read_only;	/* an MR without LOCAL_WRITE */
	__u32 windows[2];	/* of type 2B */
	__u32 to;		/* the endpoint */
	__u32 number;		/* of the next message */
};

static struct ib_memreg_queues queues_of(const FIXTURE_DATA(rules) *self)
{
	return queues_on(self->ring.id, 64, 16, MAX_SGE, MAX_INLINE);
}

FIXTURE_SETUP(rules)
{
	struct ib_memreg_queues queues;
	int fd;

	ASSERT_EQ(0, link_open(&self->link, STOCK_LEN));
	self->stock = &self->link.stock;
	fd = self->link.fd;
	self->page = mem_alloc(2 * PAGE);
	ASSERT_NE(NULL, self->page);
	ASSERT_EQ(0, munmap(self->page + PAGE, PAGE));
	fill(self->stock->mem, STOCK_LEN, 2);
	ASSERT_EQ(0, link_memory(&self->link, LEN, FOR_WINDOWS, &self->mem,
				 &self->mr));
	ASSERT_EQ(0, raw_register(fd, self->link.domain, self->mem, LEN,
				  MW_BIND, &self->read_only));
	ASSERT_EQ(0, raw_windows_2b(fd, self->link.domain, 4 * PAGE,
				    self->windows, 2));
	ASSERT_EQ(0, ring_create(fd, &self->ring, 256, 64, 0, -1));
	queues = queues_of(self);
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
	self->to = self->link.endpoint;
}

FIXTURE_TEARDOWN(rules)
{
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
	mem_free(self->mem, LEN);
	mem_free(self->page, PAGE);
}

/* A message that contains its number */
static struct ib_memreg_wr message(FIXTURE_DATA(rules) *self, __u32 *number,
				   __u16 flags)
{
	*number = self->number++;
	return WR(SEND, self->to, INLINE_DATA(number, sizeof(*number)),
		  .flags = INLINE | flags, .user_data = *number);
}

/* The next entry is that of a message. */
static void reported(struct __test_metadata *_metadata,
		     FIXTURE_DATA(rules) *self, __u32 number)
{
	union entry entry;

	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	EXPECT_EQ(OP(SEND), entry.cqe.opcode);
	EXPECT_EQ(number, entry.cqe.user_data);
}

/* The next message that the stock end receives is this one. */
static void arrived(struct __test_metadata *_metadata,
		    FIXTURE_DATA(rules) *self, __u32 number)
{
	struct ibv_wc wc;
	__u32 got;

	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	memcpy(&got, self->stock->mem + wc.wr_id, sizeof(got));
	EXPECT_EQ(number, got);
}

/*
 * Submit an invalid work request between valid ones. A last message proves that
 * no other came in between.
 */
static void refused(struct __test_metadata *_metadata,
		    FIXTURE_DATA(rules) *self, struct ib_memreg_wr bad, int err,
		    __u32 reason)
{
	struct ib_memreg_wr wrs[4], last;
	struct state before;
	__u32 n[4];
	int i, ret;

	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, stock_recv(self->stock, 64 * i, 64));
	wrs[0] = message(self, &n[0], SIGNALED);
	wrs[1] = message(self, &n[1], 0);
	wrs[2] = bad;
	wrs[2].user_data = ~0ULL;
	wrs[3] = message(self, &n[2], SIGNALED);
	last = message(self, &n[3], SIGNALED);
	ASSERT_EQ(0, state_get(&before));
	ret = raw_submit(self->link.fd, wrs, 4);
	EXPECT_EQ(-err, ret);
	EXPECT_EQ(reason, raw_reason());
	EXPECT_EQ(2, raw_taken());
	ASSERT_EQ(0, raw_submit(self->link.fd, &last, 1));
	reported(_metadata, self, n[0]);
	reported(_metadata, self, n[3]);
	EXPECT_EQ(0, ring_count(&self->ring));
	arrived(_metadata, self, n[0]);
	arrived(_metadata, self, n[1]);
	arrived(_metadata, self, n[3]);
	EXPECT_TRUE(state_same(&before));
	state_free(&before);
}

/* Prints the line, as there are many. */
#define REFUSED(_err, _reason, ...)					\
	do {								\
		refused(_metadata, self, __VA_ARGS__, _err,		\
			IB_MEMREG_REASON_##_reason);			\
		if (_metadata->exit_code == KSFT_FAIL) {		\
			TH_LOG("that was %s", #__VA_ARGS__);		\
			return;						\
		}							\
	} while (0)

/* Valid work requests, in which a test then breaks a rule */

static struct ib_memreg_wr good_send(const FIXTURE_DATA(rules) *self)
{
	return WR(SEND, self->to, SGE(self->mr, 0, 64));
}

static struct ib_memreg_wr good_inline(const FIXTURE_DATA(rules) *self)
{
	return WR(SEND, self->to, INLINE_DATA(self->page, MAX_INLINE),
		  .flags = INLINE);
}

static struct ib_memreg_wr good_recv(const FIXTURE_DATA(rules) *self)
{
	return WR(RECV, self->to, SGE(self->mr, 0, 64));
}

static struct ib_memreg_wr remote(const FIXTURE_DATA(rules) *self, __u16 opcode)
{
	struct ib_memreg_wr wr =
		WR(WRITE, self->to, SGE(self->mr, 0, 8),
		   .remote_addr = (uintptr_t)self->stock->mem,
		   .rkey = self->stock->mr->rkey);

	wr.opcode = opcode;
	return wr;
}

static struct ib_memreg_wr good_bind(const FIXTURE_DATA(rules) *self)
{
	return WR(BIND, self->to, .window_id = self->windows[0],
		  .access = REMOTE_READ | REMOTE_WRITE,
		  .sge = { .mr_id = self->mr, .offset = 100, .length = 64 });
}

static struct ib_memreg_wr good_invalidate(const FIXTURE_DATA(rules) *self)
{
	return WR(INVALIDATE, self->to, .window_id = self->windows[1]);
}

/* A copy with something else in it */
#define BUT(_wr, ...)							\
	({								\
		struct ib_memreg_wr wr = (_wr);				\
									\
		__VA_ARGS__;						\
		wr;							\
	})

TEST_F_TIMEOUT(rules, I8_targets_must_be_endpoints, LIMIT_S)
{
	struct ib_memreg_wr send = good_send(self), recv = good_recv(self);
	__u32 ids[] = {
		0, ~0U, 0x7fffffff, self->mr, self->link.domain, self->ring.id,
		self->windows[0],
	};
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(ids); i++) {
		REFUSED(ENOENT, ID, BUT(send, wr.target_id = ids[i]));
		REFUSED(ENOENT, ID, BUT(recv, wr.target_id = ids[i]));
	}
}

TEST_F_TIMEOUT(rules, I8_opcodes_must_be_known, LIMIT_S)
{
	struct ib_memreg_wr send = good_send(self);

	REFUSED(EINVAL, OPCODE, BUT(send, wr.opcode = 0));
	REFUSED(EINVAL, OPCODE, BUT(send, wr.opcode = 14));
	REFUSED(EINVAL, OPCODE, BUT(send, wr.opcode = 31));
	REFUSED(EINVAL, OPCODE, BUT(send, wr.opcode = 32));
	REFUSED(EINVAL, OPCODE, BUT(send, wr.opcode = 0xffff));
	REFUSED(EOPNOTSUPP, OPCODE_DEVICE, BUT(send, wr.opcode = OP(FLUSH)));
	REFUSED(EOPNOTSUPP, OPCODE_DEVICE,
		BUT(send, wr.opcode = OP(ATOMIC_WRITE)));
}

TEST_F_TIMEOUT(rules, I8_flags_must_be_known, LIMIT_S)
{
	struct ib_memreg_wr send = good_send(self), recv = good_recv(self);
	__u16 flag;

	for (flag = INSERT_RKEY << 1; flag; flag <<= 1) {
		REFUSED(EOPNOTSUPP, FLAGS, BUT(send, wr.flags = flag));
		REFUSED(EOPNOTSUPP, FLAGS,
			BUT(recv, wr.flags = flag | SIGNALED));
	}
}

/* A known flag is refused with an opcode that it does not belong to. */
TEST_F_TIMEOUT(rules, I8_flags_must_fit_the_opcode, LIMIT_S)
{
	struct ib_memreg_wr read = remote(self, OP(READ));

	REFUSED(EINVAL, FLAGS, BUT(read, wr.flags = SOLICITED));
	REFUSED(EINVAL, FLAGS, BUT(remote(self, OP(WRITE)),
				   wr.flags = SOLICITED));
	REFUSED(EINVAL, FLAGS, BUT(remote(self, OP(CMP_AND_SWP)),
				   wr.flags = SOLICITED));
	REFUSED(EINVAL, FLAGS, BUT(good_send(self), wr.flags = INSERT_RKEY));
	REFUSED(EINVAL, FLAGS, BUT(good_recv(self), wr.flags = FENCE));
	REFUSED(EINVAL, FLAGS, BUT(good_recv(self), wr.flags = SOLICITED));
	REFUSED(EINVAL, FLAGS, BUT(good_bind(self), wr.flags = SOLICITED));
}

/* Fields of a work request, and the opcodes that use them */
static const struct field {
	const char *name;
	size_t at, size;
	__u32 used;		/* mask of 1 << opcode */
} fields[] = {
#define FIELD(_name, _used) {						\
		.name = #_name,						\
		.at = offsetof(struct ib_memreg_wr, _name),		\
		.size = sizeof(((struct ib_memreg_wr *)NULL)->_name),	\
		.used = _used,						\
	}
#define USE(_op)	(1U << IB_MEMREG_OP_##_op)
#define ATOMICS		(USE(CMP_AND_SWP) | USE(FETCH_AND_ADD))
#define RDMA		(USE(WRITE) | USE(WRITE_WITH_IMM) | USE(READ) | ATOMICS)
	FIELD(ex, USE(SEND_WITH_IMM) | USE(SEND_WITH_INV) |
	      USE(WRITE_WITH_IMM)),
	FIELD(sges, 0),
	FIELD(remote_addr, RDMA | USE(BIND)),
	FIELD(rkey, RDMA | USE(BIND)),
	FIELD(length, 0),
	FIELD(compare_add, ATOMICS),
	FIELD(swap, USE(CMP_AND_SWP)),
	FIELD(window_id, USE(BIND) | USE(INVALIDATE)),
	FIELD(access, USE(BIND)),
	FIELD(insert_at, 0),
	FIELD(lease_id, USE(BIND)),
};

/* A good one of each opcode */
static struct ib_memreg_wr good_of(const FIXTURE_DATA(rules) *self,
				   __u16 opcode)
{
	switch (opcode) {
	case OP(SEND):
	case OP(SEND_WITH_IMM):
	case OP(SEND_WITH_INV):
		return BUT(good_send(self), wr.opcode = opcode);
	case OP(RECV):
		return good_recv(self);
	case OP(BIND):
		return good_bind(self);
	case OP(INVALIDATE):
		return good_invalidate(self);
	default:
		return remote(self, opcode);
	}
}

static void fields_unused(struct __test_metadata *_metadata,
			  FIXTURE_DATA(rules) *self, __u16 opcode)
{
	const struct field *f;
	struct ib_memreg_wr wr;
	size_t i;

	for (f = fields; f < fields + ARRAY_LEN(fields); f++) {
		if (f->used & (1U << opcode))
			continue;
		for (i = 0; i < f->size; i++) {
			wr = good_of(self, opcode);
			((__u8 *)&wr)[f->at + i] = 0x40;
			EXPECT_FAIL(EINVAL, RESERVED,
				    raw_submit(self->link.fd, &wr, 1));
			EXPECT_EQ(0, raw_taken());
			if (_metadata->exit_code == KSFT_FAIL) {
				TH_LOG("opcode %u, field %s", opcode, f->name);
				return;
			}
		}
	}
}

TEST_F_TIMEOUT(rules, I8_fields_without_use_must_be_0, LIMIT_S)
{
	struct state before;
	__u16 opcode;

	ASSERT_EQ(0, state_get(&before));
	for (opcode = OP(SEND); opcode <= OP(INVALIDATE); opcode++)
		fields_unused(_metadata, self, opcode);
	EXPECT_EQ(0, ring_count(&self->ring));
	EXPECT_TRUE(state_same(&before));
	state_free(&before);
	REFUSED(EINVAL, RESERVED, BUT(good_send(self), wr.lease_id = 1));
	REFUSED(EINVAL, RESERVED, BUT(good_recv(self), wr.lease_id = 1));
	REFUSED(EINVAL, RESERVED, BUT(good_send(self), wr.num_sge = 0));
	REFUSED(EINVAL, RESERVED, BUT(good_inline(self), wr.sge.mr_id = 1));
	REFUSED(EINVAL, RESERVED, BUT(good_inline(self), wr.sge.offset = 1));
	REFUSED(EINVAL, RESERVED,
		BUT(good_invalidate(self), wr.sge.length = 1));
}

/*
 * Local memory
 */

TEST_F_TIMEOUT(rules, I8_sges_must_be_as_many_as_there_can_be, LIMIT_S)
{
	struct ib_memreg_sge sges[IB_MEMREG_SGE_MAX + 1];
	struct ib_memreg_wr send = WR(SEND, self->to, SGES(sges, MAX_SGE + 1));
	struct ib_memreg_wr recv = WR(RECV, self->to, SGES(sges, MAX_SGE + 1));
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(sges); i++)
		sges[i] = (struct ib_memreg_sge) {
			.mr_id = self->mr,
			.offset = 64 * i,
			.length = 8,
		};
	REFUSED(EINVAL, SGES, send);
	REFUSED(EINVAL, SGES, BUT(send, wr.num_sge = ARRAY_LEN(sges)));
	REFUSED(EINVAL, SGES, BUT(send, wr.num_sge = ~0U));
	REFUSED(EINVAL, SGES, recv);
	REFUSED(EINVAL, SGES, BUT(recv, wr.num_sge = 0x80000000));
	/* Fields that the operation does not use must be 0 */
	REFUSED(EINVAL, RESERVED, BUT(good_inline(self), wr.num_sge = 1));
	REFUSED(EINVAL, RESERVED, BUT(good_bind(self), wr.num_sge = 1));
	REFUSED(EINVAL, RESERVED, BUT(good_invalidate(self), wr.num_sge = 1));
	REFUSED(EINVAL, ATOMIC_SGES,
		BUT(remote(self, OP(CMP_AND_SWP)), wr.num_sge = 2,
		    wr.sge = (struct ib_memreg_sge) {},
		    wr.sges = (uintptr_t)sges));
	REFUSED(EINVAL, ATOMIC_SGES,
		BUT(remote(self, OP(FETCH_AND_ADD)), wr.num_sge = 0,
		    wr.sge = (struct ib_memreg_sge) {}));
}

TEST_F_TIMEOUT(rules, I6_ranges_must_lie_in_the_mr, LIMIT_S)
{
	static const struct {
		__u64 offset;
		__u32 length;
		bool wraps;
	} ranges[] = {
		{ 0, LEN + 1, false }, { LEN, 1, false }, { 1, LEN, false },
		{ LEN - 1, 2, false }, { LEN + 1, 0, false },
		{ 0, ~0U, false }, { 1ULL << 32, 1, false },
		{ 1ULL << 63, 1, false }, { ~0ULL, 0, false },
		{ ~0ULL, 1, true }, { ~0ULL, ~0U, true },
		{ -(__u64)LEN, LEN, true },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(ranges); i++) {
		struct ib_memreg_sge sge = {
			.mr_id = self->mr,
			.offset = ranges[i].offset,
			.length = ranges[i].length,
		};

		if (ranges[i].wraps) {
			REFUSED(EOVERFLOW, WRAPS,
				BUT(good_send(self), wr.sge = sge));
			REFUSED(EOVERFLOW, WRAPS,
				BUT(good_recv(self), wr.sge = sge));
		} else {
			REFUSED(EINVAL, RANGE,
				BUT(good_send(self), wr.sge = sge));
			REFUSED(EINVAL, RANGE,
				BUT(good_recv(self), wr.sge = sge));
		}
	}
}

/* An invalid SGE among several releases the references that the others took. */
TEST_F_TIMEOUT(rules, I6_each_range_must_lie_in_the_mr, LIMIT_S)
{
	struct ib_memreg_sge sges[MAX_SGE];
	unsigned int bad, i;

	for (bad = 0; bad < MAX_SGE; bad++) {
		for (i = 0; i < MAX_SGE; i++)
			sges[i] = (struct ib_memreg_sge) {
				.mr_id = self->mr,
				.offset = i == bad ? LEN - 7 : 8 * i,
				.length = 8,
			};
		REFUSED(EINVAL, RANGE, WR(SEND, self->to, SGES(sges, MAX_SGE)));
		REFUSED(EINVAL, RANGE, WR(RECV, self->to, SGES(sges, MAX_SGE)));
		sges[bad].mr_id = self->windows[0];
		REFUSED(ENOENT, ID, WR(SEND, self->to, SGES(sges, MAX_SGE)));
		sges[bad].mr_id = self->read_only;
		sges[bad].offset = 0;
		REFUSED(EACCES, LOCAL_WRITE,
			WR(RECV, self->to, SGES(sges, MAX_SGE)));
	}
}

TEST_F_TIMEOUT(rules, I6_mrs_must_be_the_files_own, LIMIT_S)
{
	int other = raw_open_bound();
	__u32 domain, mr, i;

	ASSERT_LE(0, other);
	/* Ids of the other file that this one does not have */
	ASSERT_EQ(0, raw_domain(other, &domain));
	for (i = 0; i < 40; i++)
		ASSERT_EQ(0, raw_register(other, domain, self->mem, LEN,
					  LOCAL_WRITE | MW_BIND, &mr));
	REFUSED(ENOENT, ID, BUT(good_send(self), wr.sge.mr_id = mr));
	REFUSED(ENOENT, ID, BUT(good_recv(self), wr.sge.mr_id = mr));
	REFUSED(ENOENT, ID, BUT(good_bind(self), wr.sge.mr_id = mr));
	REFUSED(ENOENT, ID, BUT(good_send(self), wr.sge.mr_id = 0));
	REFUSED(ENOENT, ID, BUT(good_send(self), wr.sge.mr_id = self->to));
	EXPECT_EQ(0, close(other));
}

TEST_F_TIMEOUT(rules, I6_memory_must_allow_local_writes, LIMIT_S)
{
	static const __u16 opcodes[] = {
		OP(READ), OP(CMP_AND_SWP), OP(FETCH_AND_ADD),
	};
	unsigned int i;

	REFUSED(EACCES, LOCAL_WRITE,
		BUT(good_recv(self), wr.sge.mr_id = self->read_only));
	for (i = 0; i < ARRAY_LEN(opcodes); i++)
		REFUSED(EACCES, LOCAL_WRITE,
			BUT(remote(self, opcodes[i]),
			    wr.sge.mr_id = self->read_only));
}

TEST_F_TIMEOUT(rules, I6_memory_must_not_be_stale, LIMIT_S)
{
	void *mem = mem_alloc(4 * PAGE);
	__u32 mr;

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, mem,
				  4 * PAGE, LOCAL_WRITE | MW_BIND, &mr));
	mem_free(mem, 4 * PAGE);
	REFUSED(ESTALE, STALE, BUT(good_send(self), wr.sge.mr_id = mr));
	REFUSED(ESTALE, STALE, BUT(good_recv(self), wr.sge.mr_id = mr));
	REFUSED(ESTALE, STALE, BUT(remote(self, OP(READ)), wr.sge.mr_id = mr));
	REFUSED(ESTALE, STALE, BUT(good_bind(self), wr.sge.mr_id = mr));
	EXPECT_EQ(0, raw_destroy(self->link.fd, mr));
}

TEST_F_TIMEOUT(rules, I8_messages_must_not_be_too_scattered, LIMIT_S)
{
	size_t len = STOCK_LEN;
	__u8 *mem = mem_shuffled(len);
	__u64 max;
	__u32 mr;

	ASSERT_EQ(0, raw_cap(self->link.fd, IB_MEMREG_CAP_FRAGMENTS, &max));
	ASSERT_NE(NULL, mem);
	ASSERT_GT(len / PAGE, max);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, mem, len,
				  LOCAL_WRITE, &mr));
	if (raw_runs(self->link.fd, self->link.domain, mr, len) <= max)
		SKIP(return, "the device has the memory in one piece");
	REFUSED(EMSGSIZE, FRAGMENTS,
		WR(SEND, self->to, SGE(mr, 0, max * PAGE + 1)));
	REFUSED(EMSGSIZE, FRAGMENTS,
		WR(RECV, self->to, SGE(mr, 1, max * PAGE)));
	EXPECT_EQ(0, raw_destroy(self->link.fd, mr));
	mem_free(mem, len);
}

/*
 * No message is longer than 2 GiB, even if its SGEs name the same bytes again
 * and again. The memory is whole huge pages: its mapping may grow by what is
 * mapped beside it, and be split there.
 */
TEST_F_TIMEOUT(rules, I8_messages_must_not_be_too_long, LIMIT_S)
{
	size_t len = (2UL << 30) / IB_MEMREG_SGE_MAX + PAGE;
	struct ib_memreg_queues queues = queues_of(self);
	struct ib_memreg_sge sges[IB_MEMREG_SGE_MAX];
	const size_t whole = (len + HUGE - 1) & -HUGE;
	struct link link = self->link;
	void *mem = mem_alloc(whole);
	unsigned int i;
	__u32 mr;

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, raw_register(link.fd, link.domain, mem, len, LOCAL_WRITE,
				  &mr));
	queues.max_send_sge = IB_MEMREG_SGE_MAX;
	queues.max_recv_sge = IB_MEMREG_SGE_MAX;
	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&link, &queues, false));
	for (i = 0; i < ARRAY_LEN(sges); i++)
		sges[i] = (struct ib_memreg_sge) {
			.mr_id = mr,
			.length = len,
		};
	REFUSED(EINVAL, SPAN,
		WR(SEND, link.endpoint, SGES(sges, ARRAY_LEN(sges))));
	REFUSED(EINVAL, SPAN,
		WR(RECV, link.endpoint, SGES(sges, ARRAY_LEN(sges))));
	REFUSED(EINVAL, SPAN,
		WR(WRITE, link.endpoint, SGES(sges, ARRAY_LEN(sges)),
		   .remote_addr = (uintptr_t)link.stock.mem,
		   .rkey = link.stock.mr->rkey));
	stock_close(&link.stock);
	ASSERT_EQ(0, raw_destroy(link.fd, link.endpoint));
	EXPECT_EQ(0, raw_destroy(link.fd, mr));
	mem_free(mem, whole);
}

TEST_F_TIMEOUT(rules, I8_inline_data_must_fit, LIMIT_S)
{
	struct ib_memreg_wr in = good_inline(self);

	REFUSED(EINVAL, INLINE, BUT(in, wr.length = MAX_INLINE + 1));
	REFUSED(EINVAL, INLINE, BUT(in, wr.length = ~0U));
	REFUSED(EINVAL, INLINE_OPCODE,
		BUT(remote(self, OP(READ)), wr.flags = INLINE, wr.num_sge = 0,
		    wr.length = 8, wr.sge = (struct ib_memreg_sge) {},
		    wr.sges = (uintptr_t)self->page));
	REFUSED(EINVAL, INLINE_OPCODE, BUT(in, wr.opcode = OP(RECV)));
}

TEST_F_TIMEOUT(rules, I8_pointers_must_be_mapped, LIMIT_S)
{
	__u64 hole = (uintptr_t)self->page + PAGE;

	REFUSED(EFAULT, NONE, BUT(good_inline(self), wr.sges = hole));
	REFUSED(EFAULT, NONE, BUT(good_inline(self),
				  wr.sges = hole - MAX_INLINE + 1));
	REFUSED(EFAULT, NONE, BUT(good_inline(self), wr.sges = 0));
	REFUSED(EFAULT, NONE, BUT(good_inline(self), wr.sges = ~0ULL - 4));
	REFUSED(EFAULT, NONE, BUT(good_inline(self),
				  wr.sges = 0xffff888000000000));
	REFUSED(EFAULT, NONE, WR(SEND, self->to, SGES(hole, 2)));
	REFUSED(EFAULT, NONE,
		WR(RECV, self->to,
		   SGES(hole - 2 * sizeof(struct ib_memreg_sge) + 1, 2)));
	REFUSED(EFAULT, NONE, WR(SEND, self->to, SGES(0, 2)));
}

/*
 * An array that ends in an unmapped page: the work requests before it are
 * executed.
 */
TEST_F_TIMEOUT(rules, I8_array_must_be_mapped, LIMIT_S)
{
	struct ib_memreg_wr *wrs = (void *)(self->page + PAGE);
	__u32 n[2], taken, i;

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, stock_recv(self->stock, 64 * i, 64));
		wrs[-2 + (int)i] = message(self, &n[i], SIGNALED);
	}
	EXPECT_FAIL(EFAULT, NONE, raw_submit(self->link.fd, wrs - 2, 3));
	taken = raw_taken();
	ASSERT_GE(2, taken);
	for (i = 0; i < taken; i++)
		reported(_metadata, self, n[i]);
	EXPECT_FAIL(EFAULT, NONE, raw_submit(self->link.fd, wrs, 1));
	EXPECT_EQ(0, raw_taken());
	EXPECT_FAIL(EFAULT, NONE, raw_submit(self->link.fd, NULL, 1));
	EXPECT_EQ(0, raw_taken());
	EXPECT_EQ(0, ring_count(&self->ring));
}

TEST_F_TIMEOUT(rules, I8_count_must_be_in_bounds, LIMIT_S)
{
	struct ib_memreg_wr wr = good_send(self);
	RAW(submit, cmd, .wrs = (uintptr_t)&wr, .count = 1, .reserved = 1);

	EXPECT_FAIL(EINVAL, COUNT, raw_submit(self->link.fd, &wr, 0));
	EXPECT_EQ(0, raw_taken());
	EXPECT_FAIL(EINVAL, COUNT, raw_submit(self->link.fd, &wr,
					      IB_MEMREG_BATCH_MAX + 1));
	EXPECT_EQ(0, raw_taken());
	EXPECT_FAIL(EINVAL, RESERVED,
		    raw_call(self->link.fd, IB_MEMREG_IOC_SUBMIT, &cmd));
	EXPECT_EQ(0, ring_count(&self->ring));
}

TEST_F_TIMEOUT(rules, I8_atomics_must_be_aligned, LIMIT_S)
{
	static const __u16 opcodes[] = { OP(CMP_AND_SWP), OP(FETCH_AND_ADD) };
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(opcodes); i++) {
		struct ib_memreg_wr atomic = remote(self, opcodes[i]);

		REFUSED(EINVAL, ALIGN, BUT(atomic, wr.remote_addr += 1));
		REFUSED(EINVAL, ALIGN, BUT(atomic, wr.remote_addr += 4));
		REFUSED(EINVAL, ATOMIC_LENGTH, BUT(atomic, wr.sge.length = 7));
		REFUSED(EINVAL, ATOMIC_LENGTH, BUT(atomic, wr.sge.length = 0));
		REFUSED(EINVAL, ATOMIC_LENGTH, BUT(atomic, wr.sge.length = 16));
	}
}

/*
 * Windows
 */

TEST_F_TIMEOUT(rules, I8_windows_must_fit, LIMIT_S)
{
	struct ib_memreg_wr bind = good_bind(self);
	__u32 domain, type1, other;

	ASSERT_EQ(0, raw_domain(self->link.fd, &domain));
	ASSERT_EQ(0, raw_windows_2b(self->link.fd, domain, PAGE, &other, 1));
	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, PAGE, &type1,
				 1));
	REFUSED(ENOENT, ID, BUT(bind, wr.window_id = 0));
	REFUSED(ENOENT, ID, BUT(bind, wr.window_id = self->mr));
	REFUSED(EINVAL, DOMAIN, BUT(bind, wr.window_id = other));
	REFUSED(EINVAL, WINDOW_TYPE, BUT(bind, wr.window_id = type1));
	REFUSED(EINVAL, WINDOW_TYPE,
		BUT(good_invalidate(self), wr.window_id = type1));
	REFUSED(EINVAL, ZERO_LENGTH, BUT(bind, wr.sge.length = 0));
	REFUSED(EINVAL, SPAN, BUT(bind, wr.sge.length = 4 * PAGE + 1));
	REFUSED(EINVAL, RANGE, BUT(bind, wr.sge.offset = LEN - 63));
	REFUSED(EOVERFLOW, WRAPS, BUT(bind, wr.sge.offset = ~0ULL));
	REFUSED(EINVAL, NO_REMOTE, BUT(bind, wr.access = 0));
	REFUSED(EINVAL, WINDOW_ACCESS, BUT(bind, wr.access = LOCAL_WRITE));
	REFUSED(EINVAL, WINDOW_ACCESS, BUT(bind, wr.access |= 1U << 31));
	REFUSED(EACCES, ACCESS_MR,
		BUT(bind, wr.sge.mr_id = self->read_only));
	/* A key can be zero-based only if its range begins at a page. */
	REFUSED(EINVAL, ZERO_BASED, BUT(bind, wr.access |= ZERO_BASED));
}

static void bind_one(struct __test_metadata *_metadata,
		     FIXTURE_DATA(rules) *self, struct ib_memreg_wr wr)
{
	union entry entry;

	wr.flags |= SIGNALED;
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1)) {
		TH_LOG("reason %u", raw_reason());
	}
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	ASSERT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	EXPECT_EQ(wr.window_id, entry.cqe.window_id);
}

TEST_F_TIMEOUT(rules, I8_windows_must_not_be_bound, LIMIT_S)
{
	struct ib_memreg_wr bind = good_bind(self);
	struct ib_memreg_bind by_call = {
		.window_id = self->windows[0],
		.mr_id = self->mr,
		.length = 8,
		.access = REMOTE_READ,
	};
	struct ib_memreg_wr end;

	bind_one(_metadata, self, bind);
	REFUSED(EBUSY, BOUND_WINDOW, bind);
	EXPECT_EQ(-EBUSY, raw_destroy(self->link.fd, self->windows[0]));
	/* The calls for windows of type 1 refuse windows of type 2B. */
	EXPECT_FAIL(EINVAL, WINDOW_TYPE,
		    raw_revoke(self->link.fd, self->link.domain,
			       self->windows, 1));
	by_call.window_id = self->windows[1];
	EXPECT_FAIL(EINVAL, WINDOW_TYPE,
		    raw_bind(self->link.fd, self->link.domain, &by_call, 1));
	end = BUT(good_invalidate(self), wr.window_id = self->windows[0]);
	bind_one(_metadata, self, end);
	/* A window that is not bound cannot be ended. */
	REFUSED(EBUSY, UNBOUND_WINDOW, end);
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->windows[0]));
}

/* A window that is bound on one endpoint is none of another one's. */
TEST_F_TIMEOUT(rules, I8_windows_must_be_the_endpoints_own, LIMIT_S)
{
	struct ib_memreg_queues queues = queues_of(self);
	struct ib_memreg_wr bind = good_bind(self);
	struct link link = self->link;

	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&link, &queues, false));
	bind_one(_metadata, self, BUT(bind, wr.target_id = link.endpoint));
	REFUSED(EBUSY, UNBOUND_WINDOW,
		BUT(good_invalidate(self), wr.window_id = self->windows[0]));
	REFUSED(EBUSY, BOUND_WINDOW, bind);
	bind_one(_metadata, self, BUT(good_invalidate(self),
				      wr.window_id = self->windows[0],
				      wr.target_id = link.endpoint));
	stock_close(&link.stock);
}

/*
 * The place at which an rkey is to be inserted must be inside of the message.
 */
TEST_F_TIMEOUT(rules, I8_rkeys_must_have_a_place, LIMIT_S)
{
	__u32 places[] = { 1, 3, 4, 0x7fffffff, ~0U };
	struct ib_memreg_wr end = good_invalidate(self), wrs[2];
	struct state before;
	unsigned int i;
	__u32 n;

	ASSERT_EQ(0, state_get(&before));
	end.window_id = self->windows[0];
	wrs[0] = BUT(good_bind(self), wr.flags = INSERT_RKEY);
	for (i = 0; i <= ARRAY_LEN(places); i++) {
		wrs[1] = good_send(self);
		if (i < ARRAY_LEN(places)) {
			wrs[1] = message(self, &n, SIGNALED);
			wrs[0].insert_at = places[i];
		}
		/* The BIND before it is valid, so the window is bound. */
		EXPECT_EQ(-EINVAL, raw_submit(self->link.fd, wrs, 2));
		EXPECT_EQ(i < ARRAY_LEN(places) ?
			  IB_MEMREG_REASON_INSERT_AT :
			  IB_MEMREG_REASON_INSERT_MESSAGE, raw_reason());
		ASSERT_EQ(1, raw_taken());
		bind_one(_metadata, self, end);
		EXPECT_EQ(0, ring_count(&self->ring));
	}
	EXPECT_TRUE(state_same(&before));
	state_free(&before);
}

/* An INSERT_RKEY message carries IB_MEMREG_INSERTS_MAX rkeys at most. */
TEST_F_TIMEOUT(rules, I8_rkeys_must_not_be_too_many, LIMIT_S)
{
	struct ib_memreg_wr wrs[IB_MEMREG_INSERTS_MAX + 2], end;
	unsigned int i, n = IB_MEMREG_INSERTS_MAX;
	__u32 windows[IB_MEMREG_INSERTS_MAX + 1];
	__be32 rkeys[IB_MEMREG_INSERTS_MAX] = {};
	struct state before;

	ASSERT_GE(MAX_INLINE, sizeof(rkeys));
	ASSERT_EQ(0, raw_windows_2b(self->link.fd, self->link.domain, PAGE,
				    windows, n + 1));
	ASSERT_EQ(0, state_get(&before));
	for (i = 0; i <= n; i++)
		wrs[i] = BUT(good_bind(self), wr.window_id = windows[i],
			     wr.flags = INSERT_RKEY,
			     wr.insert_at = i % n * sizeof(rkeys[0]));
	wrs[n + 1] = WR(SEND, self->to, INLINE_DATA(rkeys, sizeof(rkeys)),
			.flags = INLINE | SIGNALED, .user_data = 5);
	EXPECT_FAIL(EINVAL, INSERTS, raw_submit(self->link.fd, wrs, n + 2));
	ASSERT_EQ(n, raw_taken());
	end = good_invalidate(self);
	for (i = 0; i < n; i++)
		bind_one(_metadata, self, BUT(end, wr.window_id = windows[i]));
	EXPECT_EQ(0, ring_count(&self->ring));
	EXPECT_TRUE(state_same(&before));
	state_free(&before);

	/* A message with the most rkeys has all of them. */
	wrs[n] = wrs[n + 1];
	ASSERT_EQ(0, stock_recv(self->stock, 0, sizeof(rkeys)));
	for (i = 0; i < n; i++) {
		wrs[i].rkey = 0;
		wrs[i].remote_addr = 0;
	}
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, n + 1)) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
	reported(_metadata, self, 5);
	memcpy(rkeys, self->stock->mem, sizeof(rkeys));
	for (i = 0; i < n; i++)
		EXPECT_EQ(wrs[i].rkey, be32toh(rkeys[i]));
}

/*
 * Room
 */

TEST_F_TIMEOUT(rules, I8_receive_queue_full_is_EAGAIN, LIMIT_S)
{
	struct ib_memreg_wr wrs[20];
	union entry entry;
	unsigned int i;

	for (i = 0; i < 20; i++)
		wrs[i] = BUT(good_recv(self), wr.user_data = i);
	EXPECT_FAIL(EAGAIN, QUEUE_FULL, raw_submit(self->link.fd, wrs, 20));
	ASSERT_EQ(16, raw_taken());
	REFUSED(EAGAIN, QUEUE_FULL, wrs[0]);
	EXPECT_EQ(16, state_users(self->mr));
	/* A message makes room for one. */
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send(self->stock, 0, 60));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(0, entry.cqe.user_data);
	EXPECT_FAIL(EAGAIN, QUEUE_FULL, raw_submit(self->link.fd, wrs, 2));
	EXPECT_EQ(1, raw_taken());
	EXPECT_EQ(16, state_users(self->mr));
}

TEST_F_TIMEOUT(rules, I8_send_queue_full_is_EAGAIN, LIMIT_S)
{
	struct ib_memreg_wr wrs[80];
	union entry entry;
	struct ibv_wc wc;
	unsigned int i;
	int ret;

	for (i = 0; i < 80; i++)
		wrs[i] = BUT(remote(self, OP(WRITE)), wr.user_data = i);
	EXPECT_EQ(0, raw_submit(self->link.fd, wrs, 60));
	wrs[60].flags = SIGNALED;
	EXPECT_EQ(0, raw_submit(self->link.fd, wrs + 60, 1));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(60, entry.cqe.user_data);
	wrs[60].flags = 0;
	/* There is no receive for the first, so the others wait. */
	wrs[0] = good_send(self);
	EXPECT_FAIL(EAGAIN, QUEUE_FULL, raw_submit(self->link.fd, wrs, 80));
	EXPECT_EQ(64, raw_taken());
	EXPECT_FAIL(EAGAIN, QUEUE_FULL, raw_submit(self->link.fd, wrs, 1));
	EXPECT_EQ(0, raw_taken());
	/* Once they are done there is room, though none was signalled. */
	ASSERT_EQ(0, stock_recv(self->stock, 0, 64));
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	do
		ret = raw_submit(self->link.fd, wrs + 1, 1);
	while (ret == -EAGAIN);
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, ring_count(&self->ring));
}

/*
 * States
 */

static void not_connected(struct __test_metadata *_metadata,
			  FIXTURE_DATA(rules) *self, bool connects)
{
	struct ib_memreg_queues queues = queues_of(self);
	struct ib_memreg_wr wr;
	struct link link = self->link;

	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, link_begin(&link, &queues, connects));
	wr = BUT(good_send(self), wr.target_id = link.endpoint);
	REFUSED(ENOTCONN, STATE, wr);
	wr = BUT(good_bind(self), wr.target_id = link.endpoint);
	REFUSED(ENOTCONN, STATE, wr);
	ASSERT_EQ(0, link_finish(&link, connects));
	/* Now it would be good. */
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	stock_close(&link.stock);
}

TEST_F_TIMEOUT(rules, I8_accepting_endpoint_must_be_accepted, LIMIT_S)
{
	not_connected(_metadata, self, false);
}

TEST_F_TIMEOUT(rules, I8_connecting_endpoint_must_be_established, LIMIT_S)
{
	not_connected(_metadata, self, true);
}

TEST_F_TIMEOUT(rules, I8_endpoint_must_not_be_closed, LIMIT_S)
{
	struct ib_memreg_queues queues = queues_of(self);
	struct link link = self->link;
	__u16 opcode;

	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&link, &queues, false));
	ASSERT_EQ(0, raw_disconnect(link.fd, link.endpoint));
	for (opcode = OP(SEND); opcode <= OP(BIND); opcode++)
		REFUSED(ENOTCONN, STATE,
			BUT(good_of(self, opcode),
			    wr.target_id = link.endpoint));
	stock_close(&link.stock);
	ASSERT_EQ(0, raw_destroy(link.fd, link.endpoint));
	REFUSED(ENOENT, ID, BUT(good_send(self), wr.target_id = link.endpoint));
}

/*
 * A READ or an atomic for which the other end has no resources would never
 * complete, nor what is posted behind it: it is refused.
 */
static void not_answered(struct __test_metadata *_metadata,
			 FIXTURE_DATA(rules) *self, bool connects)
{
	static const __u16 opcodes[] = {
		OP(READ), OP(CMP_AND_SWP), OP(FETCH_AND_ADD),
	};
	struct ib_memreg_queues queues = queues_of(self);
	struct link link = self->link;
	size_t i;

	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	link.stock.no_reads = true;
	ASSERT_EQ(0, link_up(&link, &queues, connects));
	for (i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
		REFUSED(EOPNOTSUPP, OPCODE_PEER,
			BUT(good_of(self, opcodes[i]),
			    wr.target_id = link.endpoint));
	stock_close(&link.stock);
	ASSERT_EQ(0, raw_destroy(link.fd, link.endpoint));
}

TEST_F_TIMEOUT(rules, I8_connecting_peer_must_take_reads, LIMIT_S)
{
	not_answered(_metadata, self, false);
}

TEST_F_TIMEOUT(rules, I8_accepting_peer_must_take_reads, LIMIT_S)
{
	not_answered(_metadata, self, true);
}

TEST_F_TIMEOUT(rules, I8_endpoint_must_have_the_queue, LIMIT_S)
{
	struct ib_memreg_queues queues = queues_of(self);
	struct link link = self->link;

	queues.recv_ring_id = 0;
	queues.max_recv = 0;
	queues.max_recv_sge = 0;
	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&link, &queues, false));
	REFUSED(EINVAL, NO_QUEUE,
		BUT(good_recv(self), wr.target_id = link.endpoint));
	stock_disconnect(&link.stock);
	queues = queues_of(self);
	queues.send_ring_id = 0;
	queues.max_send = 0;
	queues.max_send_sge = 0;
	queues.max_inline = 0;
	ASSERT_EQ(0, link_up(&link, &queues, false));
	REFUSED(EINVAL, NO_QUEUE,
		BUT(good_send(self), wr.target_id = link.endpoint));
	REFUSED(EINVAL, NO_QUEUE,
		BUT(good_bind(self), wr.target_id = link.endpoint));
	stock_close(&link.stock);
}

/* Receives are posted on the shared queue, and not on those who use it. */
TEST_F_TIMEOUT(rules, I8_shared_queue_takes_the_receives, LIMIT_S)
{
	struct ib_memreg_queues queues = queues_of(self);
	struct link link = self->link;
	__u32 srq;

	ASSERT_EQ(0, raw_srq(link.fd, link.domain, self->ring.id, 4, 1, 0,
			     &srq));
	queues.recv_ring_id = 0;
	queues.srq_id = srq;
	queues.max_recv = 0;
	queues.max_recv_sge = 0;
	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&link, &queues, true));
	REFUSED(EINVAL, NO_QUEUE,
		BUT(good_recv(self), wr.target_id = link.endpoint));
	REFUSED(EINVAL, OPCODE_QUEUE, BUT(good_send(self), wr.target_id = srq));
	REFUSED(EACCES, LOCAL_WRITE, BUT(good_recv(self), wr.target_id = srq,
					 wr.sge.mr_id = self->read_only));
	stock_close(&link.stock);
}

/*
 * Queues
 */

/*
 * ENDPOINT_CONNECT and ENDPOINT_SETUP refuse the same queues, and make no
 * object.
 */
static void queues_refused(struct __test_metadata *_metadata,
			   FIXTURE_DATA(rules) *self, __u32 request,
			   const struct ib_memreg_queues *queues, int err,
			   __u32 reason)
{
	struct state before;
	__u32 endpoint;

	ASSERT_EQ(0, state_get(&before));
	EXPECT_EQ(-err, raw_setup(self->link.fd, request, self->link.domain,
				  queues));
	EXPECT_EQ(reason, raw_reason());
	EXPECT_EQ(-err, raw_connect(self->link.fd, self->link.domain, PEER_IP4,
				    self->stock->port, queues, &endpoint));
	EXPECT_EQ(reason, raw_reason());
	EXPECT_TRUE(state_same(&before));
	state_free(&before);
}

#define QUEUES(_err, _reason, ...)					\
	do {								\
		struct ib_memreg_queues q = queues_of(self);		\
									\
		__VA_ARGS__;						\
		queues_refused(_metadata, self, request, &q, _err,	\
			       IB_MEMREG_REASON_##_reason);		\
		if (_metadata->exit_code == KSFT_FAIL) {		\
			TH_LOG("that was %s", #__VA_ARGS__);		\
			return;						\
		}							\
	} while (0)

static void bad_queues(struct __test_metadata *_metadata,
		       FIXTURE_DATA(rules) *self, __u32 request)
{
	__u32 domain, srq;

	ASSERT_EQ(0, raw_domain(self->link.fd, &domain));
	ASSERT_EQ(0, raw_srq(self->link.fd, domain, self->ring.id, 4, 1, 0,
			     &srq));
	QUEUES(EOPNOTSUPP, FLAGS, q.flags = 2);
	QUEUES(EOPNOTSUPP, FLAGS, q.flags = 1U << 31);
	QUEUES(EINVAL, RESERVED, q.reserved = 1);
	QUEUES(ENOENT, ID, q.send_ring_id = ~0U);
	QUEUES(ENOENT, ID, q.recv_ring_id = self->mr);
	QUEUES(EINVAL, QUEUE_SEND, q.max_send = 0);
	QUEUES(EINVAL, COUNT, q.max_send = IB_MEMREG_QUEUE_MAX + 1);
	QUEUES(EINVAL, QUEUE_RECV, q.max_recv = 0);
	QUEUES(EINVAL, COUNT, q.max_recv = ~0U);
	QUEUES(EINVAL, QUEUE_SEND, q.max_send_sge = 0);
	QUEUES(EINVAL, QUEUE_RECV, q.max_recv_sge = 0);
	QUEUES(EINVAL, SGES, q.max_send_sge = IB_MEMREG_SGE_MAX + 1);
	QUEUES(EINVAL, SGES, q.max_recv_sge = IB_MEMREG_SGE_MAX + 1);
	QUEUES(EINVAL, INLINE, q.max_inline = IB_MEMREG_INLINE_MAX + 1);
	/* Without its ring a queue must have no room. */
	QUEUES(EINVAL, QUEUE_SEND, q.send_ring_id = 0);
	QUEUES(EINVAL, QUEUE_SEND, q.send_ring_id = 0; q.max_inline = 0);
	QUEUES(EINVAL, QUEUE_SEND, q.send_ring_id = 0; q.max_inline = 0;
	       q.max_send = 0);
	QUEUES(EINVAL, QUEUE_RECV, q.recv_ring_id = 0);
	QUEUES(EINVAL, QUEUE_RECV, q.recv_ring_id = 0; q.max_recv = 0);
	/* Either or */
	QUEUES(EINVAL, RING, q.srq_id = srq);
	QUEUES(EINVAL, DOMAIN, q.srq_id = srq; q.recv_ring_id = 0;
	       q.max_recv = 0; q.max_recv_sge = 0);
	QUEUES(ENOENT, ID, q.srq_id = self->mr; q.recv_ring_id = 0;
	       q.max_recv = 0; q.max_recv_sge = 0);
}

/* The structure can be read, and not be written to. */
TEST_F_TIMEOUT(rules, I8_what_cannot_be_answered_is_not_posted, LIMIT_S)
{
	RAW(submit, cmd, .count = 1);
	struct ib_memreg_wr wr, last;
	__u32 first_n, last_n;

	ASSERT_EQ(0, stock_recv(self->stock, 0, 64));
	wr = message(self, &first_n, SIGNALED);
	last = message(self, &last_n, SIGNALED);
	cmd.wrs = (uintptr_t)&wr;
	memcpy(self->page, &cmd, sizeof(cmd));
	ASSERT_EQ(0, mprotect(self->page, PAGE, PROT_READ));
	EXPECT_EQ(-1, ioctl(self->link.fd, IB_MEMREG_IOC_SUBMIT, self->page));
	EXPECT_EQ(EFAULT, errno);
	ASSERT_EQ(0, mprotect(self->page, PAGE, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, raw_submit(self->link.fd, &last, 1));
	reported(_metadata, self, last_n);
	arrived(_metadata, self, last_n);
	EXPECT_EQ(0, ring_count(&self->ring));
}

TEST_F_TIMEOUT(rules, I8_queues_must_be_in_bounds, LIMIT_S)
{
	struct ib_memreg_queues queues = queues_of(self);
	struct link link = self->link;
	__u32 domain;

	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, stock_connect(&link.stock, OWNER_IP4, link.port));
	ASSERT_EQ(0, raw_await(link.fd, IB_MEMREG_EVENT_CONNECT_REQUEST,
			       &link.endpoint));
	bad_queues(_metadata, self, link.endpoint);
	/* After those refusals valid queues are accepted, and only once. */
	ASSERT_EQ(0, raw_setup(link.fd, link.endpoint, link.domain, &queues));
	EXPECT_EQ(-EBUSY, raw_setup(link.fd, link.endpoint, link.domain,
				    &queues));
	ASSERT_EQ(0, raw_domain(link.fd, &domain));
	EXPECT_FAIL(EINVAL, DOMAIN,
		    raw_accept(link.fd, link.endpoint, domain));
	ASSERT_EQ(0, link_finish(&link, false));
	EXPECT_EQ(-ENOTCONN, raw_setup(link.fd, link.endpoint, link.domain,
				       &queues));
	stock_close(&link.stock);
}

TEST_HARNESS_MAIN
