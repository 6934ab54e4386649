// SPDX-License-Identifier: GPL-2.0-only
/*
 * Uses of a pool's buffers besides their keys: in SGEs of work requests, as
 * receive buffers beside inline receive, and under windows of both types (I6);
 * and no key of a buffer works once threads have recycled it (I3).
 *
 * time limit: 240
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "raw.h"
#include "ring.h"
#include "stock.h"
#include "test.h"

#define ACCESS		(LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE |	\
			 REMOTE_ATOMIC | MW_BIND)
#define COUNT		8U
#define SIZE		5000UL		/* not even a multiple of a page */
#define STRIDE		5056UL		/* what the library makes of that */
#define LEN		(COUNT * STRIDE)

FIXTURE(use) {
	struct link link;
	struct stock *stock;
	struct ring ring;
	struct memreg *m;
	struct memreg_pool *pool;
	struct memreg_mr mr;
	char *at;		/* all of the pool */
	char *buffers[COUNT];	/* all taken, in order */
};

static int connect_up(FIXTURE_DATA(use) *self)
{
	struct ib_memreg_queues queues = {
		.send_ring_id = self->ring.id,
		.recv_ring_id = self->ring.id,
		.max_send = 16,
		.max_recv = 16,
		.max_send_sge = 2,
		.max_recv_sge = 2,
	};

	return link_up(&self->link, &queues, true);
}

/* Connect again after a refused access, which has ended the connection. */
static int connect_again(FIXTURE_DATA(use) *self)
{
	union entry entry;

	stock_disconnect(self->stock);
	if (raw_destroy(self->link.fd, self->link.endpoint))
		return -1;
	while (ring_count(&self->ring))
		ring_next(&self->ring, &entry);
	return connect_up(self);
}

FIXTURE_SETUP(use)
{
	struct memreg_pool_attr attr = {
		.buffer_size = SIZE,
		.count = COUNT,
		.access = ACCESS,
		.node = IB_MEMREG_NODE_DEVICE,
	};
	unsigned int i;
	void *buffer;

	ASSERT_EQ(0, link_open(&self->link, LEN));
	self->stock = &self->link.stock;
	ASSERT_EQ(0, memreg_open_fd(dup(self->link.fd), &self->m));
	ASSERT_EQ(0, memreg_pool_create(self->m, self->link.domain, &attr,
					&self->pool));
	ASSERT_EQ(0, memreg_pool_mr(self->pool, &self->mr));
	self->at = self->mr.addr;
	for (i = 0; i < COUNT; i++) {
		ASSERT_EQ(0, memreg_pool_take(self->pool, &buffer));
		self->buffers[((char *)buffer - self->at) / STRIDE] = buffer;
	}
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 64, 64, 0, -1));
	ASSERT_EQ(0, connect_up(self));
	fill(self->at, LEN - (STRIDE - SIZE), 1);
}

FIXTURE_TEARDOWN(use)
{
	stock_close(self->stock);
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->link.endpoint));
	EXPECT_EQ(0, memreg_pool_destroy(self->pool));
	memreg_close(self->m);
	close(self->link.fd);
	ring_unmap(&self->ring);
}

static size_t offset_of(unsigned int i)
{
	return i * STRIDE;
}

/* Expect that no byte has changed but @len of them from @from on. */
static void rest_is_same(struct __test_metadata *_metadata,
			 FIXTURE_DATA(use) *self, size_t from, size_t len)
{
	size_t all = LEN - (STRIDE - SIZE);

	EXPECT_TRUE(filled(self->at, from, 0, 1));
	EXPECT_TRUE(filled(self->at + from + len, all - from - len, from + len,
			   1));
}

static void submit_one(struct __test_metadata *_metadata,
		       FIXTURE_DATA(use) *self, struct ib_memreg_wr wr)
{
	wr.flags |= SIGNALED;
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1)) {
		TH_LOG("reason %u", raw_reason());
	}
}

static void done(struct __test_metadata *_metadata, FIXTURE_DATA(use) *self,
		 union entry *entry)
{
	ASSERT_EQ(0, ring_next(&self->ring, entry));
	ASSERT_EQ(IB_MEMREG_WC_SUCCESS, entry->cqe.status);
}

TEST_F(use, I6_buffers_are_gathered_by_sends_and_scattered_by_receives)
{
	struct ib_memreg_sge sges[] = {
		{ .mr_id = self->mr.id, .offset = offset_of(5),
		  .length = SIZE },
		{ .mr_id = self->mr.id, .offset = offset_of(2) + 3,
		  .length = 100 },
	};
	struct stock *s = self->stock;
	union entry entry;
	struct ibv_wc wc;

	ASSERT_EQ(0, stock_recv(s, 0, LEN));
	submit_one(_metadata, self, WR(SEND, self->link.endpoint,
				       SGES(sges, 2)));
	done(_metadata, self, &entry);
	ASSERT_EQ(0, stock_next(&s->received, &wc));
	EXPECT_EQ(SIZE + 100, wc.byte_len);
	EXPECT_TRUE(filled(s->mem, SIZE, offset_of(5), 1));
	EXPECT_TRUE(filled(s->mem + SIZE, 100, offset_of(2) + 3, 1));

	/*
	 * The peer's message goes to the same two buffers, in the other order.
	 */
	submit_one(_metadata, self, WR(RECV, self->link.endpoint,
				       SGES(sges, 2)));
	fill(s->mem, LEN, 2);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send(s, 0, SIZE + 100));
	done(_metadata, self, &entry);
	EXPECT_EQ(SIZE + 100, entry.cqe.byte_len);
	EXPECT_TRUE(filled(self->buffers[5], SIZE, 0, 2));
	EXPECT_TRUE(filled(self->buffers[2] + 3, 100, SIZE, 2));
	EXPECT_TRUE(filled(self->at, offset_of(2) + 3, 0, 1));
	EXPECT_TRUE(filled(self->buffers[2] + 103,
			   offset_of(5) - offset_of(2) - 103,
			   offset_of(2) + 103, 1));
	EXPECT_TRUE(filled(self->buffers[6] - (STRIDE - SIZE),
			   STRIDE, offset_of(5) + SIZE, 1));
}

static bool zeroed(const char *at, size_t len)
{
	return !*at && !memcmp(at, at + 1, len - 1);
}

TEST_F(use, buffers_of_a_pool_that_wipes_are_zeroed_when_recycled)
{
	struct memreg_pool_attr attr = {
		.buffer_size = SIZE,
		.count = 3,
		.access = ACCESS,
		.flags = MEMREG_POOL_WIPE,
		.node = IB_MEMREG_NODE_DEVICE,
	};
	struct memreg_pool *pool;
	struct memreg_mr mr;
	void *b[3];
	char *at;

	ASSERT_EQ(0, memreg_pool_create(self->m, self->link.domain, &attr,
					&pool));
	ASSERT_EQ(0, memreg_pool_mr(pool, &mr));
	at = mr.addr;
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, memreg_pool_take(pool, &b[i]));
	fill(at, mr.length, 1);

	/* A call that fails wipes nothing. */
	EXPECT_EQ(-EINVAL, memreg_pool_recycle(pool, (void *[]) { at, at }, 2,
					       0));
	EXPECT_TRUE(filled(at, mr.length, 0, 1));
	EXPECT_EQ(0, memreg_pool_recycle(pool, (void *[]) { at + STRIDE }, 1,
					 0));
	EXPECT_TRUE(filled(at, STRIDE, 0, 1));
	EXPECT_TRUE(zeroed(at + STRIDE, SIZE));
	EXPECT_TRUE(filled(at + STRIDE + SIZE, STRIDE,
			   STRIDE + SIZE, 1));
	EXPECT_EQ(0, memreg_pool_recycle(pool, (void *[]) {
		at, at + 2 * STRIDE }, 2, IB_MEMREG_RECYCLE_RELAXED));
	EXPECT_TRUE(zeroed(at, SIZE));
	EXPECT_TRUE(zeroed(at + 2 * STRIDE, SIZE));
	EXPECT_EQ(0, memreg_pool_destroy(pool));

	attr.access = REMOTE_READ;
	EXPECT_EQ(-EINVAL, memreg_pool_create(self->m, self->link.domain,
					      &attr, &pool));
	EXPECT_STREQ("pool_create: MEMREG_POOL_WIPE needs IB_MEMREG_ACCESS_LOCAL_WRITE (EINVAL)",
		     memreg_reason());
}

TEST_F(use, I6_buffers_are_written_from_and_read_into)
{
	struct stock *s = self->stock;
	union entry entry;

	submit_one(_metadata, self,
		   WR(WRITE, self->link.endpoint,
		      SGE(self->mr.id, offset_of(1), SIZE),
		      .remote_addr = (uintptr_t)s->mem, .rkey = s->mr->rkey));
	done(_metadata, self, &entry);
	EXPECT_TRUE(filled(s->mem, SIZE, offset_of(1), 1));
	fill(s->mem, LEN, 3);
	submit_one(_metadata, self,
		   WR(READ, self->link.endpoint,
		      SGE(self->mr.id, offset_of(6), SIZE),
		      .remote_addr = (uintptr_t)s->mem, .rkey = s->mr->rkey));
	done(_metadata, self, &entry);
	EXPECT_TRUE(filled(self->buffers[6], SIZE, 0, 3));
	rest_is_same(_metadata, self, offset_of(6), SIZE);
}

/* A message that fits is in the entry, and a longer one in the buffer. */
TEST_F(use, I6_inline_receive_leaves_longer_messages_in_the_buffer)
{
	static const size_t lengths[] = { 1, 32, 33, 64, SIZE };
	struct stock *s = self->stock;
	union entry entry;
	size_t i, len;

	fill(s->mem, LEN, 4);
	for (i = 0; i < ARRAY_LEN(lengths); i++) {
		len = lengths[i];
		submit_one(_metadata, self,
			   WR(RECV, self->link.endpoint,
			      SGE(self->mr.id, offset_of(3), SIZE)));
		ASSERT_EQ(IBV_WC_SUCCESS, stock_send(s, 0, len));
		done(_metadata, self, &entry);
		EXPECT_EQ(len, entry.cqe.byte_len);
		if (entry.cqe.flags & IB_MEMREG_CQE_INLINE) {
			EXPECT_LE(len, sizeof(entry.cqe.data));
			EXPECT_TRUE(filled(entry_data(&entry), len, 0, 4));
			rest_is_same(_metadata, self, offset_of(3), 0);
		} else {
			EXPECT_LT(sizeof(entry.cqe.data), len);
			EXPECT_TRUE(filled(self->buffers[3], len, 0, 4));
			rest_is_same(_metadata, self, offset_of(3), len);
		}
		fill(self->at, LEN - (STRIDE - SIZE), 1);
	}
}

/* The peer reads and writes all of a range; no other byte changes. */
static void reach(struct __test_metadata *_metadata, FIXTURE_DATA(use) *self,
		  size_t offset, size_t len, __u64 iova, __u32 rkey)
{
	struct stock *s = self->stock;

	fill(self->at, LEN - (STRIDE - SIZE), 1);
	memset(s->mem, 0, LEN);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, len, iova, rkey));
	EXPECT_TRUE(filled(s->mem, len, offset, 1));
	fill(s->mem, LEN, 2);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_write(s, 0, len, iova, rkey));
	EXPECT_TRUE(filled(self->at + offset, len, 0, 2));
	rest_is_same(_metadata, self, offset, len);
	fill(self->at, LEN - (STRIDE - SIZE), 1);
}

/*
 * The buffers' size is no divisor of a page, so that some have a page boundary
 * inside.
 */
TEST_F(use, I6_a_peer_reaches_every_byte_of_each_buffer_and_no_other)
{
	struct ibv_send_wr add = {
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic.compare_add = 7,
	};
	struct memreg_grant grant;
	__u64 old, now;
	unsigned int i;

	for (i = 0; i < COUNT; i++) {
		ASSERT_EQ(0, memreg_pool_entry(self->pool, self->buffers[i],
					       &grant));
		reach(_metadata, self, offset_of(i), SIZE, grant.iova,
		      grant.rkey);
	}
	/* The last word of the last one */
	memcpy(&old, self->buffers[i - 1] + SIZE - 8, sizeof(old));
	add.wr.atomic.remote_addr = grant.iova + SIZE - 8;
	add.wr.atomic.rkey = grant.rkey;
	ASSERT_EQ(IBV_WC_SUCCESS, stock_do(self->stock, &add, 0, 8));
	memcpy(&now, self->buffers[i - 1] + SIZE - 8, sizeof(now));
	EXPECT_EQ(old + 7, now);

	fill(self->at, LEN - (STRIDE - SIZE), 1);
	ASSERT_EQ(0, memreg_pool_entry(self->pool, self->buffers[4], &grant));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(self->stock, 0, 8, grant.iova + SIZE - 7,
			      grant.rkey));
	ASSERT_EQ(0, connect_again(self));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(self->stock, 0, 8, grant.iova - 1, grant.rkey));
	rest_is_same(_metadata, self, 0, 0);
}

/*
 * A window on a buffer has a key of its own, which a recycle of the buffer does
 * not change.
 */
TEST_F(use, I6_windows_of_type_1_are_bound_to_buffers)
{
	struct ib_memreg_bind bind = {
		.mr_id = self->mr.id,
		.offset = offset_of(2),
		.length = SIZE,
		.access = REMOTE_RW,
	};
	void *buffer = self->buffers[2];
	struct memreg_grant grant;

	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, SIZE,
				 &bind.window_id, 1));
	ASSERT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind, 1));
	reach(_metadata, self, offset_of(2), SIZE, bind.out_iova,
	      bind.out_rkey);
	ASSERT_EQ(0, memreg_pool_recycle(self->pool, &buffer, 1, 0));
	reach(_metadata, self, offset_of(2), SIZE, bind.out_iova,
	      bind.out_rkey);
	EXPECT_EQ(-EBUSY, memreg_pool_destroy(self->pool));
	ASSERT_EQ(0, memreg_pool_entry(self->pool, buffer, &grant));
	reach(_metadata, self, offset_of(2), SIZE, grant.iova, grant.rkey);
	ASSERT_EQ(0, raw_revoke(self->link.fd, self->link.domain,
				&bind.window_id, 1));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(self->stock, 0, 8, bind.out_iova,
			      bind.out_rkey));
	rest_is_same(_metadata, self, 0, 0);
}

TEST_F(use, I6_windows_of_type_2B_are_bound_to_buffers)
{
	struct ib_memreg_wr wr;
	union entry entry;
	__u32 window;

	ASSERT_EQ(0, raw_windows_2b(self->link.fd, self->link.domain, SIZE,
				    &window, 1));
	wr = WR(BIND, self->link.endpoint, .window_id = window,
		.access = REMOTE_RW, .flags = SIGNALED,
		.sge = { .mr_id = self->mr.id, .offset = offset_of(7),
			 .length = SIZE });
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	done(_metadata, self, &entry);
	reach(_metadata, self, offset_of(7), SIZE, wr.remote_addr, wr.rkey);
	EXPECT_EQ(-EBUSY, memreg_pool_destroy(self->pool));
	/*
	 * The peer ends the window by SEND_WITH_INV, and its message arrives in
	 * a buffer.
	 */
	submit_one(_metadata, self,
		   WR(RECV, self->link.endpoint,
		      SGE(self->mr.id, offset_of(0), SIZE)));
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send_inv(self->stock, wr.rkey));
	done(_metadata, self, &entry);
	EXPECT_EQ(window, entry.cqe.window_id);
	EXPECT_EQ(wr.rkey, entry.cqe.ex);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(self->stock, 0, 8, wr.remote_addr, wr.rkey));
	EXPECT_EQ(0, raw_destroy(self->link.fd, window));
}

/*
 * Threads
 */

#define THREADS		4
#define KEYS		64U

struct crowd {
	struct memreg_pool *pool;
	pthread_mutex_t lock;
	struct memreg_grant keys[KEYS];	/* that were recycled last */
	uint32_t recycled;
	_Atomic uint32_t bad;
	uint32_t rounds;
};

struct member {
	struct crowd *crowd;
	pthread_t thread;
	uint32_t seed;
};

static uint32_t pick(struct member *me, uint32_t n)
{
	me->seed = me->seed * 1103515245 + 12345;
	return (me->seed >> 16) % n;
}

static void recycle_one(struct member *me, void *buffer)
{
	struct crowd *crowd = me->crowd;
	struct memreg_grant old, new;

	pthread_mutex_lock(&crowd->lock);
	if (memreg_pool_entry(crowd->pool, buffer, &old) ||
	    memreg_pool_recycle(crowd->pool, &buffer, 1, 0) ||
	    memreg_pool_entry(crowd->pool, buffer, &new) ||
	    old.rkey == new.rkey || old.iova != new.iova)
		crowd->bad++;
	crowd->keys[crowd->recycled++ % KEYS] = old;
	pthread_mutex_unlock(&crowd->lock);
}

static void *take_recycle_give(void *arg)
{
	struct member *me = arg;
	void *buffer;
	uint32_t i;

	for (i = 0; i < me->crowd->rounds; i++) {
		if (memreg_pool_take(me->crowd->pool, &buffer))
			continue;
		if (!pick(me, 100))
			recycle_one(me, buffer);
		if (memreg_pool_give(me->crowd->pool, buffer))
			me->crowd->bad++;
	}
	return NULL;
}

/*
 * Check the keys that were recycled last: after more than 16384 later grants an
 * rkey may be in use again (I9).
 */
static void all_are_dead(struct __test_metadata *_metadata,
			 FIXTURE_DATA(use) *self, const struct crowd *crowd)
{
	uint32_t keys = crowd->recycled < KEYS ? crowd->recycled : KEYS;
	uint32_t i, step = test_full() ? 1 : 8;

	EXPECT_LT(0, keys);
	for (i = 0; i < keys; i += step) {
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
			  stock_write(self->stock, 0, 8, crowd->keys[i].iova,
				      crowd->keys[i].rkey)) {
			TH_LOG("key %u of %u", i, keys);
		}
		ASSERT_EQ(0, connect_again(self));
	}
	rest_is_same(_metadata, self, 0, 0);
}

TEST_F_TIMEOUT(use, I3_no_key_works_that_threads_have_recycled, SOAK_S)
{
	struct crowd crowd = {
		.pool = self->pool,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.rounds = times(2000, 100000),
	};
	struct member members[THREADS];
	struct memreg_grant grant;
	uint32_t i;

	for (i = 0; i < COUNT; i++)
		ASSERT_EQ(0, memreg_pool_give(self->pool, self->buffers[i]));
	for (i = 0; i < THREADS; i++) {
		members[i] = (struct member) {
			.crowd = &crowd,
			.seed = test_seed() + i,
		};
		ASSERT_EQ(0, pthread_create(&members[i].thread, NULL,
					    take_recycle_give, &members[i]));
	}
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(members[i].thread, NULL));
	EXPECT_EQ(0, crowd.bad);
	for (i = 0; i < COUNT; i++) {
		ASSERT_EQ(0, memreg_pool_entry(self->pool, self->buffers[i],
					       &grant));
		reach(_metadata, self, offset_of(i), SIZE, grant.iova,
		      grant.rkey);
	}
	all_are_dead(_metadata, self, &crowd);
}

TEST_HARNESS_MAIN
