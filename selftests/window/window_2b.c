// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows of type 2B: bound by a work request, with the rkey in the message
 * that goes along; used by a stock end; ended by either side, by the
 * connection's end, or as the memory goes. After that the key serves nobody,
 * which a second connection of the same domain finds out.
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

#define LEN		(32 * PAGE)
#define STOCK_LEN	(1UL << 20)
#define AT		1003UL	/* of the MR; not a page's start */
#define SPAN		(4 * PAGE)
#define SOON		(256U * 64)	/* grants without the same key */

/* Message that announces a grant. The peer knows the address already. */
struct announcement {
	__be64 before;
	__be32 rkey;
	__be32 behind;
};

FIXTURE(window)
{
	struct link link;
	struct link other;	/* another connection of the domain */
	struct stock *stock;
	struct ring ring;
	__u8 *mem;
	__u32 mr;
	__u32 windows[64];
	__u32 to;
	__u32 receives;		/* what receives are posted to, if not @to */
	__u64 iova;		/* what the peer received last */
	__u32 rkey;
};

static struct ib_memreg_queues queues_of(const FIXTURE_DATA(window) *self)
{
	return queues_on(self->ring.id, 256, 16, 1,
			 sizeof(struct announcement));
}

FIXTURE_SETUP(window)
{
	struct ib_memreg_queues queues;

	ASSERT_EQ(0, link_open(&self->link, STOCK_LEN));
	self->stock = &self->link.stock;
	ASSERT_EQ(0, link_memory(&self->link, LEN, FOR_WINDOWS, &self->mem,
				 &self->mr));
	ASSERT_EQ(0, raw_windows_2b(self->link.fd, self->link.domain, SPAN,
				    self->windows, 64)) {
		TH_LOG("reason %u", raw_reason());
	}
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 1024, 64, 0, -1));
	queues = queues_of(self);
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
	self->other = self->link;
	ASSERT_EQ(0, stock_open(&self->other.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&self->other, &queues, false));
	self->to = self->link.endpoint;
}

FIXTURE_TEARDOWN(window)
{
	stock_close(&self->other.stock);
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
	mem_free(self->mem, LEN);
}

static struct ib_memreg_wr bind_wr(const FIXTURE_DATA(window) *self,
				   unsigned int i)
{
	return WR(BIND, self->to, .window_id = self->windows[i],
		  .access = REMOTE_READ | REMOTE_WRITE,
		  .sge = { .mr_id = self->mr, .offset = AT + i,
			   .length = SPAN - 100 });
}

/* Expect that the next entry of the ring reports success of this operation. */
static void done(struct __test_metadata *_metadata, FIXTURE_DATA(window) *self,
		 __u16 opcode, union entry *entry)
{
	union entry local;

	entry = entry ?: &local;
	ASSERT_EQ(0, ring_next(&self->ring, entry));
	ASSERT_EQ(IB_MEMREG_WC_SUCCESS, entry->cqe.status);
	ASSERT_EQ(opcode, entry->cqe.opcode);
}

/* Bind a window and announce it to the stock end, in one call. */
static void grant_by(struct __test_metadata *_metadata,
		     FIXTURE_DATA(window) *self, struct ib_memreg_wr bind)
{
	struct announcement msg = { .before = ~0ULL, .behind = ~0U };
	struct announcement *got = (void *)self->stock->mem;
	struct ib_memreg_wr wrs[2];
	struct ibv_wc wc;

	ASSERT_EQ(0, stock_recv(self->stock, 0, sizeof(msg)));
	wrs[0] = bind;
	wrs[0].flags |= INSERT_RKEY;
	wrs[0].insert_at = offsetof(struct announcement, rkey);
	wrs[1] = WR(SEND, self->to, INLINE_DATA(&msg, sizeof(msg)),
		    .flags = INLINE | SIGNALED);
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 2)) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	self->iova = wrs[0].remote_addr;
	self->rkey = be32toh(got->rkey);
	EXPECT_EQ(wrs[0].rkey, self->rkey);
	EXPECT_NE(0, self->rkey);
	EXPECT_EQ(~0ULL, got->before);
	EXPECT_EQ(~0U, got->behind);
	done(_metadata, self, OP(SEND), NULL);
}

static void grant(struct __test_metadata *_metadata, FIXTURE_DATA(window) *self)
{
	grant_by(_metadata, self, bind_wr(self, 0));
}

/* End the window, and wait until it is. */
static void owner_ends(struct __test_metadata *_metadata,
		       FIXTURE_DATA(window) *self)
{
	struct ib_memreg_wr end = WR(INVALIDATE, self->to,
				     .window_id = self->windows[0],
				     .flags = SIGNALED);

	ASSERT_EQ(0, raw_submit(self->link.fd, &end, 1)) {
		TH_LOG("reason %u", raw_reason());
	}
	done(_metadata, self, OP(INVALIDATE), NULL);
}

/*
 * Expect that a stock peer reaches exactly the bytes of the window by its key.
 */
static void serves(struct __test_metadata *_metadata,
		   FIXTURE_DATA(window) *self, struct stock *s, size_t at)
{
	const size_t len = SPAN - 100;

	fill(s->mem + PAGE, len, 7);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_write(s, PAGE, len, self->iova,
					      self->rkey));
	EXPECT_TRUE(filled(self->mem, at, 0, 1));
	EXPECT_TRUE(filled(self->mem + at, len, 0, 7));
	EXPECT_TRUE(filled(self->mem + at + len, PAGE, at + len, 1));
	fill(self->mem, LEN, 1);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(s, PAGE, len, self->iova,
					     self->rkey));
	EXPECT_TRUE(filled(s->mem + PAGE, len, at, 1));
}

/* Expect that an access by the key fails, which ends the connection. */
static void dead(struct __test_metadata *_metadata, FIXTURE_DATA(window) *self,
		 struct stock *s, bool writes)
{
	fill(s->mem + PAGE, 100, 7);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, writes ?
		  stock_write(s, PAGE, 100, self->iova, self->rkey) :
		  stock_read(s, PAGE, 100, self->iova, self->rkey));
	EXPECT_TRUE(filled(s->mem + PAGE, 100, 0, 7));
}

/*
 * A receive, and then the peer ends a window by its rkey. It does not wait
 * until that is acknowledged, which it never is if it ends the connection.
 */
static void peer_invalidates(struct __test_metadata *_metadata,
			     FIXTURE_DATA(window) *self, __u32 rkey)
{
	const struct ibv_send_wr send_inv = {
		.opcode = IBV_WR_SEND_WITH_INV,
		.invalidate_rkey = rkey,
	};
	struct ib_memreg_wr wr = WR(RECV, self->receives ?: self->to,
				    SGE(self->mr, LEN - 64, 64));

	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, stock_post(self->stock, &send_inv, 0, 8));
}

/* Is the window bound, by what LIST reports? */
static int bound(FIXTURE_DATA(window) *self, unsigned int w)
{
	struct state now;
	int ret = state_get(&now);
	__u32 i;

	for (i = 0; !ret && i < now.count; i++)
		if (now.objects[i].type == IB_MEMREG_OBJECT_WINDOW &&
		    now.objects[i].id == self->windows[w])
			ret = 10 + now.objects[i].u.window.bound;
	state_free(&now);
	return ret < 10 ? ret ?: -ENOENT : ret - 10;
}

/*
 * Good uses
 */

TEST_F_TIMEOUT(window, window_serves_from_the_message_on, LIMIT_S)
{
	grant(_metadata, self);
	EXPECT_EQ((uintptr_t)self->mem + AT, self->iova);
	serves(_metadata, self, self->stock, AT);
	EXPECT_EQ(1, bound(self, 0));
	EXPECT_EQ(0, bound(self, 1));
	/* And not one byte more */
	self->iova += SPAN - 100 - 50;
	dead(_metadata, self, self->stock, true);
	EXPECT_TRUE(filled(self->mem, LEN, 0, 1));
}

/* A window covers pieces of a composition, which begin and end at pages. */
TEST_F_TIMEOUT(window, any_part_of_a_composition_is_granted, LIMIT_S)
{
	struct ib_memreg_piece pieces[] = {
		{ .mr_id = self->mr, .offset = 2 * PAGE, .length = PAGE },
		{ .mr_id = self->mr, .offset = PAGE, .length = PAGE },
		{ .mr_id = self->mr, .offset = 10, .length = 90 },
	};
	RAW(mr_compose, cmd, .domain_id = self->link.domain,
	    .count = ARRAY_LEN(pieces), .pieces = (uintptr_t)pieces,
	    .access = LOCAL_WRITE | MW_BIND);
	struct ib_memreg_wr bind = WR(BIND, self->to, .access = REMOTE_READ,
				      .window_id = self->windows[0],
				      .sge = { .offset = 100 });
	struct stock *s = self->stock;

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd));
	bind.sge.mr_id = cmd.out_mr_id;
	bind.sge.length = 2 * PAGE - 150;
	grant_by(_metadata, self, bind);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, 2 * PAGE - 150, self->iova,
					     self->rkey));
	EXPECT_TRUE(filled(s->mem, PAGE - 100, 2 * PAGE + 100, 1));
	EXPECT_TRUE(filled(s->mem + PAGE - 100, PAGE - 50, PAGE, 1));
	owner_ends(_metadata, self);
	/*
	 * One byte of the last piece would make the list one that no key of the
	 * device can have.
	 */
	bind.sge.length = 2 * PAGE - 99;
	EXPECT_FAIL(EOPNOTSUPP, GAPS, raw_submit(self->link.fd, &bind, 1));
	dead(_metadata, self, s, false);
	EXPECT_EQ(0, raw_destroy(self->link.fd, cmd.out_mr_id));
}

/*
 * A key works in its whole domain; a domain for each peer excludes other peers.
 */
TEST_F_TIMEOUT(window, key_serves_the_domain, LIMIT_S)
{
	grant(_metadata, self);
	serves(_metadata, self, &self->other.stock, AT);
}

TEST_F_TIMEOUT(window, key_does_not_serve_another_domain, LIMIT_S)
{
	struct ib_memreg_queues queues = queues_of(self);
	struct link link = self->link;

	ASSERT_EQ(0, raw_domain(link.fd, &link.domain));
	ASSERT_EQ(0, stock_open(&link.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&link, &queues, true));
	grant(_metadata, self);
	dead(_metadata, self, &link.stock, false);
	serves(_metadata, self, self->stock, AT);
	stock_close(&link.stock);
}

TEST_F_TIMEOUT(window, access_is_what_was_granted, LIMIT_S)
{
	struct ib_memreg_wr bind = bind_wr(self, 0);

	bind.access = REMOTE_READ;
	grant_by(_metadata, self, bind);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(self->stock, 0, 100, self->iova,
					     self->rkey));
	EXPECT_TRUE(filled(self->stock->mem, 100, AT, 1));
	dead(_metadata, self, self->stock, true);
	EXPECT_TRUE(filled(self->mem, LEN, 0, 1));
}

TEST_F_TIMEOUT(window, zero_based_window_begins_at_0, LIMIT_S)
{
	struct ib_memreg_wr bind = bind_wr(self, 0);

	bind.access |= ZERO_BASED;
	bind.sge.offset = 2 * PAGE;
	grant_by(_metadata, self, bind);
	EXPECT_EQ(0, self->iova);
	serves(_metadata, self, self->stock, 2 * PAGE);
}

TEST_F_TIMEOUT(window, bind_alone_has_an_entry, LIMIT_S)
{
	struct ib_memreg_wr bind = bind_wr(self, 3);
	union entry entry;

	bind.flags = SIGNALED;
	bind.user_data = 99;
	ASSERT_EQ(0, raw_submit(self->link.fd, &bind, 1));
	done(_metadata, self, OP(BIND), &entry);
	EXPECT_EQ(99, entry.cqe.user_data);
	EXPECT_EQ(self->windows[3], entry.cqe.window_id);
	EXPECT_EQ(self->to, entry.cqe.endpoint_data);
	self->rkey = bind.rkey;
	self->iova = bind.remote_addr;
	EXPECT_EQ((uintptr_t)self->mem + AT + 3, self->iova);
	serves(_metadata, self, self->stock, AT + 3);
}

/* Each message has the key of the window that was bound right before it. */
TEST_F_TIMEOUT(window, many_are_bound_in_one_call, LIMIT_S)
{
	struct ib_memreg_wr wrs[128];
	struct announcement *got;
	unsigned int i;
	struct ibv_wc wc;

	for (i = 0; i < 64; i++) {
		static struct announcement msg;

		ASSERT_EQ(0, stock_recv(self->stock, 16 * i, 16));
		wrs[2 * i] = bind_wr(self, i);
		wrs[2 * i].flags = INSERT_RKEY;
		wrs[2 * i].insert_at = offsetof(struct announcement, rkey);
		wrs[2 * i + 1] = WR(SEND, self->to,
				    INLINE_DATA(&msg, sizeof(msg)),
				    .flags = INLINE | (i == 63 ? SIGNALED : 0));
	}
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 128)) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
	for (i = 0; i < 64; i++) {
		ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	}
	done(_metadata, self, OP(SEND), NULL);
	for (i = 0; i < 64; i += 7) {
		got = (void *)(self->stock->mem + 16 * i);
		EXPECT_EQ(wrs[2 * i].rkey, be32toh(got->rkey));
		self->rkey = wrs[2 * i].rkey;
		self->iova = wrs[2 * i].remote_addr;
		EXPECT_EQ((uintptr_t)self->mem + AT + i, self->iova);
		serves(_metadata, self, &self->other.stock, AT + i);
	}
}

/*
 * Leases
 */

/* Read events until the lease has ended, and, if @id, its connection. */
static void await_ends(struct __test_metadata *_metadata,
		       FIXTURE_DATA(window) *self, __u32 lease, __u32 id)
{
	struct ib_memreg_event event;
	struct pollfd pfd = { .fd = self->link.fd, .events = POLLIN };

	while (lease || id) {
		ASSERT_EQ(1, poll(&pfd, 1, LIMIT_MS));
		ASSERT_EQ(sizeof(event), read(pfd.fd, &event, sizeof(event)));
		if (event.type == IB_MEMREG_EVENT_LEASE_ENDED) {
			EXPECT_EQ(lease, event.endpoint_id);
			lease = 0;
		} else {
			EXPECT_EQ(IB_MEMREG_EVENT_DISCONNECTED, event.type);
			EXPECT_EQ(id, event.endpoint_id);
			id = 0;
		}
	}
}

TEST_F_TIMEOUT(window, lease_ends_the_key_and_not_the_connection, LIMIT_S)
{
	struct ib_memreg_wr bind = bind_wr(self, 0);
	__u32 rkey;

	ASSERT_EQ(0, raw_lease(self->link.fd, ~0ULL, &bind.lease_id));
	grant_by(_metadata, self, bind);
	serves(_metadata, self, self->stock, AT);
	EXPECT_FAIL(EBUSY, LEASE_GRANTS,
		    raw_destroy(self->link.fd, bind.lease_id));
	ASSERT_EQ(0, raw_renew(self->link.fd, bind.lease_id,
			       boottime_ns() + 100 * MS));
	await_ends(_metadata, self, bind.lease_id, 0);
	EXPECT_EQ(0, bound(self, 0));
	rkey = self->rkey;
	/* The connection goes on, and the window can be bound again. */
	grant(_metadata, self);
	serves(_metadata, self, self->stock, AT);
	EXPECT_NE(rkey, self->rkey);
	self->rkey = rkey;
	dead(_metadata, self, &self->other.stock, false);
	dead(_metadata, self, self->stock, true);
	EXPECT_EQ(0, raw_destroy(self->link.fd, bind.lease_id));
}

TEST_F_TIMEOUT(window, I8_lease_that_ended_binds_nothing, LIMIT_S)
{
	struct ib_memreg_wr bind = bind_wr(self, 0);

	ASSERT_EQ(0, raw_lease(self->link.fd, 0, &bind.lease_id));
	EXPECT_FAIL(ESTALE, LEASE_ENDED, raw_submit(self->link.fd, &bind, 1));
	EXPECT_EQ(0, bound(self, 0));
	EXPECT_EQ(0, raw_destroy(self->link.fd, bind.lease_id));
	bind.lease_id = self->mr;
	EXPECT_FAIL(ENOENT, ID, raw_submit(self->link.fd, &bind, 1));
	EXPECT_EQ(0, bound(self, 0));
	grant(_metadata, self);
	serves(_metadata, self, self->stock, AT);
}

TEST_F_TIMEOUT(window, either_side_ends_it_before_the_lease, LIMIT_S)
{
	struct ib_memreg_wr bind = bind_wr(self, 0);

	ASSERT_EQ(0, raw_lease(self->link.fd, ~0ULL, &bind.lease_id));
	grant_by(_metadata, self, bind);
	owner_ends(_metadata, self);
	AWAIT(bound(self, 0) == 0);
	grant_by(_metadata, self, bind);
	peer_invalidates(_metadata, self, self->rkey);
	AWAIT(bound(self, 0) == 0);
	EXPECT_EQ(0, raw_destroy(self->link.fd, bind.lease_id));
}

/*
 * The peer has no receive for a message, so what is behind it waits: the lease
 * ends the connection rather than to wait with it.
 */
TEST_F_TIMEOUT(window, bind_that_the_peer_delays_ends_with_the_lease, LIMIT_S)
{
	static const char msg[8];
	struct ib_memreg_wr wrs[] = {
		WR(SEND, self->to, INLINE_DATA(msg, sizeof(msg)),
		   .flags = INLINE | SIGNALED),
		bind_wr(self, 0),
	};

	ASSERT_EQ(0, raw_lease(self->link.fd, boottime_ns() + 2000 * MS,
			       &wrs[1].lease_id));
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 2));
	EXPECT_EQ(1, bound(self, 0));
	await_ends(_metadata, self, wrs[1].lease_id, self->to);
	EXPECT_EQ(0, bound(self, 0));
	self->rkey = wrs[1].rkey;
	self->iova = wrs[1].remote_addr;
	dead(_metadata, self, &self->other.stock, true);
	EXPECT_EQ(0, raw_destroy(self->link.fd, wrs[1].lease_id));
}

#define NOT_READY	"/sys/class/infiniband/rxe_owner/ports/1/hw_counters/" \
			"rcvd_rnr_err"

/* Wait until the peer has sent another RNR NAK */
static void await_not_ready(struct __test_metadata *_metadata, long before)
{
	int i;

	for (i = 0; i < LIMIT_MS && file_number(NOT_READY) == before; i++)
		usleep(1000);
	ASSERT_LT(before, file_number(NOT_READY));
}

/* A message is sent anew, and windows are bound behind it. */
TEST_F_TIMEOUT(window, messages_wait_for_receives, LIMIT_S)
{
	static struct announcement msg;
	struct ib_memreg_wr wrs[8];
	long before = file_number(NOT_READY);
	unsigned int i;
	struct ibv_wc wc;

	for (i = 0; i < 8; i += 2) {
		wrs[i] = bind_wr(self, i);
		wrs[i].flags = INSERT_RKEY;
		wrs[i].insert_at = offsetof(struct announcement, rkey);
		wrs[i + 1] = WR(SEND, self->to,
				INLINE_DATA(&msg, sizeof(msg)),
				.flags = INLINE | (i == 6 ? SIGNALED : 0));
	}
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 8)) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
	await_not_ready(_metadata, before);
	await_not_ready(_metadata, before + 1);
	for (i = 0; i < 8; i += 2)
		ASSERT_EQ(0, stock_recv(self->stock, 16 * i, 16));
	for (i = 0; i < 8; i += 2) {
		ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	}
	done(_metadata, self, OP(SEND), NULL);
	for (i = 0; i < 8; i += 2) {
		struct announcement *got = (void *)(self->stock->mem + 16 * i);

		self->rkey = be32toh(got->rkey);
		EXPECT_EQ(wrs[i].rkey, self->rkey);
		self->iova = wrs[i].remote_addr;
		serves(_metadata, self, &self->other.stock, AT + i);
	}
}

/* Bound, used, announced, ended: in one call, in that order */
TEST_F_TIMEOUT(window, I3_bound_and_ended_in_one_call, LIMIT_S)
{
	struct announcement msg = {};
	struct ib_memreg_wr wrs[3];
	unsigned int i;
	struct ibv_wc wc;

	for (i = 0; i < 10; i++) {
		ASSERT_EQ(0, stock_recv(self->stock, 0, sizeof(msg)));
		wrs[0] = bind_wr(self, 0);
		wrs[0].flags = INSERT_RKEY;
		wrs[1] = WR(SEND, self->to, INLINE_DATA(&msg, sizeof(msg)),
			    .flags = INLINE);
		wrs[2] = WR(INVALIDATE, self->to, .flags = SIGNALED,
			    .window_id = self->windows[0]);
		ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 3)) {
			TH_LOG("taken %u, reason %u", raw_taken(),
			       raw_reason());
		}
		done(_metadata, self, OP(INVALIDATE), NULL);
		ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		EXPECT_EQ(0, bound(self, 0));
	}
	self->rkey = wrs[0].rkey;
	self->iova = wrs[0].remote_addr;
	dead(_metadata, self, self->stock, true);
	EXPECT_TRUE(filled(self->mem, LEN, 0, 1));
}

/* RDMA FLUSH and ATOMIC WRITE, which only stock peers can post */

/* Grant a part of an MR, from its first aligned byte, for these accesses. */
static void grant_for(struct __test_metadata *_metadata,
		      FIXTURE_DATA(window) *self, __u32 mr, __u32 access)
{
	struct ib_memreg_wr bind = bind_wr(self, 0);

	bind.access = access;
	bind.sge.mr_id = mr;
	bind.sge.offset = 1008;
	grant_by(_metadata, self, bind);
}

/*
 * With FLUSH_GLOBAL a peer can flush each byte of the window and none beside
 * it; without the flag, none.
 */
TEST_F_TIMEOUT(window, I6_peer_flushes_what_it_may, LIMIT_S)
{
	const __u32 flush = IB_MEMREG_ACCESS_FLUSH_GLOBAL;
	const size_t len = SPAN - 100;
	struct stock *s = self->stock;
	__u32 mr;
	int ret;

	ret = raw_register(self->link.fd, self->link.domain, self->mem, LEN,
			   LOCAL_WRITE | MW_BIND | flush, &mr);
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no FLUSH");
	ASSERT_EQ(0, ret);
	grant_for(_metadata, self, mr, REMOTE_WRITE | flush);
	fill(s->mem + PAGE, len, 7);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_write(s, PAGE, len, self->iova,
					      self->rkey));
	ASSERT_EQ(IBV_WC_SUCCESS, stock_flush(s, len, self->iova, self->rkey,
					      IBV_FLUSH_RANGE));
	ASSERT_EQ(IBV_WC_SUCCESS, stock_flush(s, 1, self->iova + len - 1,
					      self->rkey, IBV_FLUSH_RANGE));
	ASSERT_EQ(IBV_WC_SUCCESS, stock_flush(s, 0, 0, self->rkey,
					      IBV_FLUSH_MR));
	EXPECT_TRUE(filled(self->mem, 1008, 0, 1));
	EXPECT_TRUE(filled(self->mem + 1008, len, 0, 7));
	EXPECT_TRUE(filled(self->mem + 1008 + len, PAGE, 1008 + len, 1));
	/*
	 * Another peer of the domain that has the key can flush, too; not one
	 * byte more.
	 */
	ASSERT_EQ(IBV_WC_SUCCESS,
		  stock_flush(&self->other.stock, 1, self->iova + len - 1,
			      self->rkey, IBV_FLUSH_RANGE));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_flush(&self->other.stock, 2, self->iova + len - 1,
			      self->rkey, IBV_FLUSH_RANGE));
	owner_ends(_metadata, self);
	grant_for(_metadata, self, mr, REMOTE_READ | REMOTE_WRITE);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_flush(s, 1, self->iova, self->rkey, IBV_FLUSH_RANGE));
}

/* As far as it may WRITE */
TEST_F_TIMEOUT(window, I6_peer_writes_8_bytes_at_once, LIMIT_S)
{
	const __u64 value = 0x1122334455667788;
	struct stock *s = self->stock;
	__u64 got;
	int ret;

	grant_for(_metadata, self, self->mr, REMOTE_WRITE);
	ret = stock_atomic_write(s, value, self->iova + 16, self->rkey);
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no ATOMIC_WRITE");
	ASSERT_EQ(IBV_WC_SUCCESS, ret);
	EXPECT_TRUE(filled(self->mem, 1024, 0, 1));
	memcpy(&got, self->mem + 1024, 8);
	EXPECT_EQ(value, got);
	EXPECT_TRUE(filled(self->mem + 1032, SPAN, 1032, 1));
	owner_ends(_metadata, self);
	grant_for(_metadata, self, self->mr, REMOTE_READ);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_atomic_write(s, value, self->iova, self->rkey));
	EXPECT_TRUE(filled(self->mem, 1024, 0, 1));
}

/*
 * Ends
 */

/* MRs of the device that were destroyed so that packets in flight have ended */
static __u64 destroyed(const FIXTURE_DATA(window) *self)
{
	__u64 n = 0;

	raw_stat(self->link.fd, IB_MEMREG_STAT_FRWRS_DESTROYED, &n);
	return n;
}

/* MRs to destroy for a window: none if the device itself waits for packets */
static __u64 one_if_weak(const FIXTURE_DATA(window) *self)
{
	__u64 strict = 1;

	raw_cap(self->link.fd, IB_MEMREG_CAP_STRICT_INVALIDATE, &strict);
	return !strict;
}

/*
 * The peer's invalidation ends a window whose key another connection may be
 * using.
 */
TEST_F_TIMEOUT(window, I3_peer_ends_it, LIMIT_S)
{
	__u64 gone = destroyed(self);
	__u64 before, after;
	union entry entry;
	__u32 old;

	grant(_metadata, self);
	old = self->rkey;
	ASSERT_EQ(0, raw_stat(self->link.fd,
			      IB_MEMREG_STAT_REMOTE_INVALIDATIONS, &before));
	peer_invalidates(_metadata, self, self->rkey);
	done(_metadata, self, OP(RECV), &entry);
	EXPECT_TRUE(entry.cqe.flags & IB_MEMREG_CQE_INVALIDATED);
	EXPECT_EQ(self->windows[0], entry.cqe.window_id);
	EXPECT_EQ(old, entry.cqe.ex);
	EXPECT_EQ(8, entry.cqe.byte_len);
	ASSERT_EQ(0, raw_stat(self->link.fd,
			      IB_MEMREG_STAT_REMOTE_INVALIDATIONS, &after));
	EXPECT_EQ(before + 1, after);
	EXPECT_EQ(gone + one_if_weak(self), destroyed(self));
	EXPECT_EQ(0, bound(self, 0));
	dead(_metadata, self, &self->other.stock, false);
	/* The window can be bound anew, and has another key then. */
	grant(_metadata, self);
	EXPECT_NE(old, self->rkey);
	serves(_metadata, self, self->stock, AT);
	self->rkey = old;
	dead(_metadata, self, self->stock, true);
	EXPECT_TRUE(filled(self->mem, LEN - 64, 0, 1));
}

/* A window ends by an invalidation of its own peer, and by no other's. */
TEST_F_TIMEOUT(window, I3_only_peer_of_the_domain_ends_it, LIMIT_S)
{
	union entry entry;
	__u64 gone;

	stock_close(&self->other.stock);
	ASSERT_EQ(0, raw_destroy(self->link.fd, self->other.endpoint));
	ASSERT_EQ(0, stock_open(&self->other.stock, STOCK_LEN));
	grant(_metadata, self);
	gone = destroyed(self);
	peer_invalidates(_metadata, self, self->rkey);
	done(_metadata, self, OP(RECV), &entry);
	EXPECT_TRUE(entry.cqe.flags & IB_MEMREG_CQE_INVALIDATED);
	EXPECT_EQ(gone, destroyed(self));
	EXPECT_EQ(0, bound(self, 0));
	dead(_metadata, self, self->stock, true);
}

/*
 * A shared receive queue finds the endpoint whose peer has ended a window,
 * while other endpoints come and go.
 */
TEST_F_TIMEOUT(window, I5_peer_ends_it_over_a_shared_queue, LIMIT_S)
{
	struct ib_memreg_queues queues = queues_of(self);
	struct link others[4];
	unsigned int i, round;
	union entry entry;

	stock_close(&self->other.stock);
	ASSERT_EQ(0, raw_destroy(self->link.fd, self->other.endpoint));
	ASSERT_EQ(0, raw_srq(self->link.fd, self->link.domain, self->ring.id,
			     16, 1, 0, &queues.srq_id));
	queues.recv_ring_id = 0;
	queues.max_recv = 0;
	queues.max_recv_sge = 0;
	ASSERT_EQ(0, stock_open(&self->other.stock, STOCK_LEN));
	ASSERT_EQ(0, link_up(&self->other, &queues, true));
	self->stock = &self->other.stock;
	self->to = self->other.endpoint;
	for (round = 0; round < 4; round++) {
		for (i = 0; i < ARRAY_LEN(others); i++) {
			others[i] = self->link;
			ASSERT_EQ(0, stock_open(&others[i].stock, STOCK_LEN));
			ASSERT_EQ(0, link_up(&others[i], &queues, true));
		}
		grant(_metadata, self);
		self->receives = queues.srq_id;
		peer_invalidates(_metadata, self, self->rkey);
		for (i = 0; i < ARRAY_LEN(others); i++) {
			stock_close(&others[i].stock);
			ASSERT_EQ(0, raw_destroy(self->link.fd,
						 others[i].endpoint));
		}
		done(_metadata, self, OP(RECV), &entry);
		EXPECT_TRUE(entry.cqe.flags & IB_MEMREG_CQE_INVALIDATED);
		EXPECT_EQ(self->windows[0], entry.cqe.window_id);
		EXPECT_EQ(self->to, entry.cqe.endpoint_data);
		EXPECT_EQ(0, bound(self, 0));
	}
}

/* The peer ends windows in another order than that in which they were bound. */
TEST_F_TIMEOUT(window, I5_peer_ends_those_it_means, LIMIT_S)
{
	struct ib_memreg_wr wrs[64];
	union entry entry;
	unsigned int i, w;

	for (i = 0; i < 64; i++)
		wrs[i] = bind_wr(self, i);
	wrs[63].flags = SIGNALED;
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 64)) {
		TH_LOG("taken %u, reason %u", raw_taken(), raw_reason());
	}
	done(_metadata, self, OP(BIND), NULL);
	for (i = 0; i < 64 && !_metadata->exit_code; i++) {
		w = i * 23 % 64;
		ASSERT_EQ(1, bound(self, w));
		peer_invalidates(_metadata, self, wrs[w].rkey);
		done(_metadata, self, OP(RECV), &entry);
		EXPECT_TRUE(entry.cqe.flags & IB_MEMREG_CQE_INVALIDATED);
		EXPECT_EQ(self->windows[w], entry.cqe.window_id);
		EXPECT_EQ(wrs[w].rkey, entry.cqe.ex);
		EXPECT_EQ(0, bound(self, w));
	}
	self->rkey = wrs[23].rkey;
	self->iova = wrs[23].remote_addr;
	dead(_metadata, self, &self->other.stock, true);
	EXPECT_TRUE(filled(self->mem, LEN - 64, 0, 1));
}

TEST_F_TIMEOUT(window, I3_owner_ends_it, LIMIT_S)
{
	struct ib_memreg_wr wr = WR(INVALIDATE, self->to,
				    .window_id = self->windows[0],
				    .flags = SIGNALED, .user_data = 8);
	union entry entry;
	__u64 gone;
	__u32 old;

	grant(_metadata, self);
	old = self->rkey;
	gone = destroyed(self);
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	done(_metadata, self, OP(INVALIDATE), &entry);
	EXPECT_EQ(gone + one_if_weak(self), destroyed(self));
	EXPECT_EQ(8, entry.cqe.user_data);
	EXPECT_EQ(self->windows[0], entry.cqe.window_id);
	EXPECT_EQ(0, bound(self, 0));
	dead(_metadata, self, &self->other.stock, true);
	grant(_metadata, self);
	EXPECT_NE(old, self->rkey);
	self->rkey = old;
	dead(_metadata, self, self->stock, false);
	EXPECT_TRUE(filled(self->mem, LEN, 0, 1));
}

/*
 * Windows are bound and ended over and over, and no key comes back soon. The
 * rounds are more than a key's low byte has values, and with --full more than
 * there are idle keys.
 */
TEST_F_TIMEOUT(window, I9_keys_are_fresh, SOAK_S)
{
	unsigned int rounds = test_full() ? test_share(20000, NULL) : 300;
	unsigned int i, j;
	__u32 *seen = calloc(rounds, sizeof(*seen));

	ASSERT_NE(NULL, seen);
	for (i = 0; i < rounds && !_metadata->exit_code; i++) {
		grant(_metadata, self);
		for (j = i < SOON ? 0 : i - SOON; j < i; j++)
			if (seen[j] == self->rkey)
				break;
		ASSERT_EQ(i, j);
		seen[i] = self->rkey;
		owner_ends(_metadata, self);
	}
	free(seen);
}

enum ending {
	DISCONNECT, DESTROY, PEER_DISCONNECT, PEER_ERROR, PEER_GONE,
};

static void end_connection(struct __test_metadata *_metadata,
			   FIXTURE_DATA(window) *self, enum ending how)
{
	struct stock *s = self->stock;

	switch (how) {
	case DISCONNECT:
		ASSERT_EQ(0, raw_disconnect(self->link.fd, self->to));
		break;
	case DESTROY:
		ASSERT_EQ(0, raw_destroy(self->link.fd, self->to));
		return;
	case PEER_DISCONNECT:
		rdma_disconnect(s->id);
		break;
	case PEER_ERROR:
		stock_write(s, 0, 8, 0, 0);
		break;
	case PEER_GONE:
		stock_disconnect(s);
		break;
	}
	ASSERT_EQ(0, raw_await(self->link.fd, IB_MEMREG_EVENT_DISCONNECTED,
			       NULL));
}

static void ends_with_connection(struct __test_metadata *_metadata,
				 FIXTURE_DATA(window) *self, enum ending how)
{
	grant(_metadata, self);
	serves(_metadata, self, &self->other.stock, AT);
	end_connection(_metadata, self, how);
	dead(_metadata, self, &self->other.stock, how % 2);
	EXPECT_TRUE(filled(self->mem, LEN, 0, 1));
	EXPECT_EQ(0, bound(self, 0));
	/* Nothing holds MR and window any more. */
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->windows[0]));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->mr));
}

TEST_F_TIMEOUT(window, I3_disconnect_ends_it, LIMIT_S)
{
	ends_with_connection(_metadata, self, DISCONNECT);
}

TEST_F_TIMEOUT(window, I3_destroying_the_endpoint_ends_it, LIMIT_S)
{
	ends_with_connection(_metadata, self, DESTROY);
}

TEST_F_TIMEOUT(window, I3_peers_disconnect_ends_it, LIMIT_S)
{
	ends_with_connection(_metadata, self, PEER_DISCONNECT);
}

TEST_F_TIMEOUT(window, I3_peers_error_ends_it, LIMIT_S)
{
	ends_with_connection(_metadata, self, PEER_ERROR);
}

TEST_F_TIMEOUT(window, I3_peers_end_ends_it, LIMIT_S)
{
	ends_with_connection(_metadata, self, PEER_GONE);
}

/* A BIND that is flushed does not bind its window. */
TEST_F_TIMEOUT(window, I4_bind_that_was_flushed_leaves_no_key, LIMIT_S)
{
	struct ib_memreg_wr wrs[3];
	union entry entry;
	int i;

	/* There is no receive for the first, so the others wait. */
	wrs[0] = WR(SEND, self->to, SGE(self->mr, 0, 8), .user_data = 0);
	wrs[1] = bind_wr(self, 0);
	wrs[1].user_data = 1;
	wrs[2] = bind_wr(self, 1);
	wrs[2].user_data = 2;
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 3));
	self->rkey = wrs[1].rkey;
	self->iova = wrs[1].remote_addr;
	ASSERT_EQ(0, raw_disconnect(self->link.fd, self->to));
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, ring_next(&self->ring, &entry));
		EXPECT_EQ(i, entry.cqe.user_data);
		EXPECT_EQ(IB_MEMREG_WC_WR_FLUSH_ERR, entry.cqe.status);
	}
	EXPECT_EQ(0, bound(self, 0));
	EXPECT_EQ(0, bound(self, 1));
	dead(_metadata, self, &self->other.stock, true);
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->windows[0]));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->windows[1]));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->mr));
}

TEST_F_TIMEOUT(window, I8_bound_window_holds_its_mr, LIMIT_S)
{
	grant(_metadata, self);
	EXPECT_EQ(-EBUSY, raw_destroy(self->link.fd, self->windows[0]));
	EXPECT_FAIL(EBUSY, WINDOWS_BOUND,
		    raw_destroy(self->link.fd, self->mr));
	EXPECT_FAIL(EBUSY, IN_USE,
		    raw_destroy(self->link.fd, self->link.domain));
	serves(_metadata, self, self->stock, AT);
	owner_ends(_metadata, self);
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->windows[0]));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->mr));
}

/*
 * A window can be bound again only after the work request that ends it
 * completed.
 */
TEST_F_TIMEOUT(window, I4_window_is_bound_again_only_when_it_ended, LIMIT_S)
{
	struct ib_memreg_wr wrs[3];
	union entry entry;
	struct ibv_wc wc;

	grant(_metadata, self);
	wrs[0] = WR(SEND, self->to, SGE(self->mr, 0, 8));
	wrs[1] = WR(INVALIDATE, self->to, .window_id = self->windows[0],
		    .flags = SIGNALED);
	wrs[2] = bind_wr(self, 0);
	EXPECT_FAIL(EBUSY, BUSY_WINDOW, raw_submit(self->link.fd, wrs, 3));
	EXPECT_EQ(2, raw_taken());
	EXPECT_EQ(-EBUSY, raw_destroy(self->link.fd, self->windows[0]));
	/* A second end of it is none. */
	EXPECT_FAIL(EBUSY, BUSY_WINDOW,
		    raw_submit(self->link.fd, &wrs[1], 1));
	ASSERT_EQ(0, stock_recv(self->stock, 0, 64));
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	done(_metadata, self, OP(INVALIDATE), &entry);
	grant(_metadata, self);
	serves(_metadata, self, self->stock, AT);
}

TEST_F_TIMEOUT(window, I1_unmap_ends_it, LIMIT_S)
{
	__u8 *mem = mem_alloc(4 * PAGE);
	struct ib_memreg_wr bind = bind_wr(self, 0);
	__u32 mr;

	ASSERT_NE(NULL, mem);
	fill(mem, 4 * PAGE, 1);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, mem,
				  4 * PAGE, LOCAL_WRITE | MW_BIND, &mr));
	bind.sge.mr_id = mr;
	bind.sge.offset = 10;
	bind.sge.length = 2 * PAGE;
	grant_by(_metadata, self, bind);
	EXPECT_EQ((uintptr_t)mem + 10, self->iova);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(self->stock, 0, 100, self->iova,
					     self->rkey));
	EXPECT_TRUE(filled(self->stock->mem, 100, 10, 1));
	mem_free(mem, 4 * PAGE);
	dead(_metadata, self, self->stock, false);
	dead(_metadata, self, &self->other.stock, true);
	ASSERT_EQ(0, raw_disconnect(self->link.fd, self->to));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->windows[0]));
	EXPECT_EQ(0, raw_destroy(self->link.fd, mr));
}

/* The memory goes while a posted BIND waits behind a message. */
TEST_F_TIMEOUT(window, I1_unmap_before_the_bind_ends_the_connection, LIMIT_S)
{
	__u8 *mem = mem_alloc(4 * PAGE);
	struct ib_memreg_wr wrs[2];
	union entry entry;
	__u32 mr;

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, mem,
				  4 * PAGE, LOCAL_WRITE | MW_BIND, &mr));
	wrs[0] = WR(SEND, self->to, SGE(self->mr, 0, 8));
	wrs[1] = bind_wr(self, 0);
	wrs[1].sge.mr_id = mr;
	wrs[1].sge.offset = 0;
	wrs[1].sge.length = PAGE;
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 2));
	self->rkey = wrs[1].rkey;
	self->iova = wrs[1].remote_addr;
	mem_free(mem, 4 * PAGE);
	ASSERT_EQ(0, raw_await(self->link.fd, IB_MEMREG_EVENT_DISCONNECTED,
			       NULL));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(IB_MEMREG_WC_WR_FLUSH_ERR, entry.cqe.status);
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_NE(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	dead(_metadata, self, &self->other.stock, true);
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->windows[0]));
	EXPECT_EQ(0, raw_destroy(self->link.fd, mr));
}

/*
 * I5: ends that are none
 */

/*
 * The peer invalidates a key that it was not granted, which ends the
 * connection.
 */
static void bogus(struct __test_metadata *_metadata, FIXTURE_DATA(window) *self,
		  __u32 rkey, bool counted)
{
	__u64 before, after;
	__u32 endpoint;

	ASSERT_EQ(0, raw_stat(self->link.fd,
			      IB_MEMREG_STAT_BOGUS_INVALIDATIONS, &before));
	peer_invalidates(_metadata, self, rkey);
	ASSERT_EQ(0, raw_await(self->link.fd, IB_MEMREG_EVENT_DISCONNECTED,
			       &endpoint));
	EXPECT_EQ(self->to, endpoint);
	ASSERT_EQ(0, raw_stat(self->link.fd,
			      IB_MEMREG_STAT_BOGUS_INVALIDATIONS, &after));
	EXPECT_EQ(before + counted, after);
	EXPECT_EQ(0, stock_await(self->stock, RDMA_CM_EVENT_DISCONNECTED));
}

/* The receive's entry does not have IB_MEMREG_CQE_INVALIDATED. */
static void nothing_ended(struct __test_metadata *_metadata,
			  FIXTURE_DATA(window) *self)
{
	union entry entry;

	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(OP(RECV), entry.cqe.opcode);
	EXPECT_EQ(0, entry.cqe.flags & IB_MEMREG_CQE_INVALIDATED);
	EXPECT_EQ(0, entry.cqe.window_id);
}

TEST_F_TIMEOUT(window, I5_key_of_an_mr_is_bogus, LIMIT_S)
{
	RAW(mr_register, mr, .domain_id = self->link.domain,
	    .access = LOCAL_WRITE | REMOTE_WRITE,
	    .addr = (uintptr_t)self->mem, .length = LEN);

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &mr));
	bogus(_metadata, self, mr.out_rkey, true);
	nothing_ended(_metadata, self);
	EXPECT_EQ(0, raw_destroy(self->link.fd, mr.out_mr_id));
}

/*
 * The MR says that its key is dead; with a new one, a second peer reads, and
 * windows on the MR are not affected.
 */
TEST_F_TIMEOUT(window, I5_mr_says_that_its_key_is_invalidated, LIMIT_S)
{
	RAW(mr_register, mr, .domain_id = self->link.domain,
	    .access = FOR_WINDOWS | REMOTE_READ,
	    .addr = (uintptr_t)self->mem, .length = LEN);
	RAW(mr_query, query, .count = 1);
	RAW(mr_reregister, again, .flags = IB_MEMREG_REREG_ACCESS,
	    .access = FOR_WINDOWS | REMOTE_READ);
	struct ib_memreg_bind bind = { .length = PAGE, .access = REMOTE_READ };
	struct stock *s = &self->other.stock;
	struct ib_memreg_segment seg;

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &mr));
	bind.mr_id = mr.out_mr_id;
	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, PAGE,
				 &bind.window_id, 1));
	ASSERT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind, 1));
	EXPECT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, 100, mr.iova, mr.out_rkey));
	bogus(_metadata, self, mr.out_rkey, true);
	nothing_ended(_metadata, self);
	query.mr_id = mr.out_mr_id;
	query.segments = (uintptr_t)&seg;
	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_QUERY, &query));
	EXPECT_EQ(IB_MEMREG_MR_INVALIDATED, query.out_state);
	EXPECT_EQ(1, query.count);
	EXPECT_EQ(0, seg.rkey);
	EXPECT_EQ(0, query.out_generation);
	EXPECT_EQ(IB_MEMREG_MR_LIVE, raw_mr_state(self->link.fd, self->mr));
	EXPECT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, 100, bind.out_iova,
					     bind.out_rkey));
	ASSERT_EQ(0, raw_destroy(self->link.fd, bind.window_id));
	again.mr_id = mr.out_mr_id;
	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			      &again));
	EXPECT_EQ(IB_MEMREG_MR_LIVE,
		  raw_mr_state(self->link.fd, mr.out_mr_id));
	EXPECT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, 100, again.iova,
					     again.out_rkey));
	EXPECT_TRUE(filled(s->mem, 100, 0, 1));
	EXPECT_EQ(0, raw_destroy(self->link.fd, mr.out_mr_id));
}

/* A pool says which of its buffers, and gives that another key. */
TEST_F_TIMEOUT(window, I5_pool_says_which_key_is_invalidated, LIMIT_S)
{
	RAW(pool_create, pool, .domain_id = self->link.domain,
	    .access = REMOTE_READ, .count = 8, .addr = (uintptr_t)self->mem,
	    .buffer_size = PAGE);
	RAW(pool_recycle, recycle, .count = 1);
	const struct ib_memreg_pool_table *table;
	const struct ib_memreg_pool_entry *entries;
	struct stock *s = &self->other.stock;
	__u32 index = 3;

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_POOL_CREATE, &pool));
	table = mmap(NULL, pool.out_table_size, PROT_READ, MAP_SHARED,
		     pool.out_table_fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)table);
	entries = (const void *)(table + 1);
	bogus(_metadata, self, entries[index].rkey, true);
	nothing_ended(_metadata, self);
	EXPECT_EQ(IB_MEMREG_MR_INVALIDATED,
		  raw_mr_state(self->link.fd, pool.out_mr_id));
	EXPECT_EQ(0, entries[index].rkey);
	EXPECT_NE(0, entries[index + 1].rkey);
	EXPECT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, 100, entries[4].iova,
					     entries[4].rkey));
	recycle.mr_id = pool.out_mr_id;
	recycle.indices = (uintptr_t)&index;
	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_POOL_RECYCLE,
			      &recycle));
	EXPECT_EQ(IB_MEMREG_MR_LIVE,
		  raw_mr_state(self->link.fd, pool.out_mr_id));
	EXPECT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, 100, entries[index].iova,
					     entries[index].rkey));
	EXPECT_TRUE(filled(s->mem, 100, index * PAGE, 1));
	munmap((void *)table, pool.out_table_size);
	close(pool.out_table_fd);
	EXPECT_EQ(0, raw_destroy(self->link.fd, pool.out_mr_id));
}

static void type1(struct __test_metadata *_metadata, FIXTURE_DATA(window) *self,
		  __u32 endpoint)
{
	struct ib_memreg_bind bind = {
		.mr_id = self->mr,
		.length = PAGE,
		.access = REMOTE_READ,
		.endpoint_id = endpoint,
	};

	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, SPAN,
				 &bind.window_id, 1));
	ASSERT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind, 1));
	bogus(_metadata, self, bind.out_rkey, true);
	nothing_ended(_metadata, self);
	/*
	 * Whether or not the device executed it, the window can be revoked and
	 * bound again.
	 */
	EXPECT_EQ(0, raw_revoke(self->link.fd, self->link.domain,
				&bind.window_id, 1));
	bind.endpoint_id = 0;
	EXPECT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind, 1));
	self->rkey = bind.out_rkey;
	self->iova = bind.out_iova;
	EXPECT_EQ(IBV_WC_SUCCESS, stock_read(&self->other.stock, 0, 100,
					     self->iova, self->rkey));
	EXPECT_TRUE(filled(self->other.stock.mem, 100, 0, 1));
}

TEST_F_TIMEOUT(window, I5_key_of_a_window_of_type_1_is_bogus, LIMIT_S)
{
	type1(_metadata, self, 0);
}

/*
 * A window of type 1 is not the peer's to end, though the call that bound it
 * named this endpoint.
 */
TEST_F_TIMEOUT(window, I5_key_of_an_own_window_of_type_1_is_bogus, LIMIT_S)
{
	type1(_metadata, self, self->to);
}

TEST_F_TIMEOUT(window, I5_key_of_another_endpoint_is_bogus, LIMIT_S)
{
	struct ib_memreg_wr bind = bind_wr(self, 5);

	bind.target_id = self->other.endpoint;
	bind.flags = SIGNALED;
	ASSERT_EQ(0, raw_submit(self->link.fd, &bind, 1));
	done(_metadata, self, OP(BIND), NULL);
	bogus(_metadata, self, bind.rkey, true);
	nothing_ended(_metadata, self);
	/* The other endpoint's window can still be ended, and bound anew. */
	ASSERT_EQ(0, raw_destroy(self->link.fd, self->other.endpoint));
	EXPECT_EQ(0, bound(self, 5));
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->windows[5]));
}

TEST_F_TIMEOUT(window, I5_key_of_nothing_is_bogus, LIMIT_S)
{
	/* The device finds out by itself. */
	bogus(_metadata, self, 0x00fedc00, false);
	nothing_ended(_metadata, self);
}

TEST_F_TIMEOUT(window, I5_key_that_was_ended_is_bogus, LIMIT_S)
{
	__u32 endpoint;

	grant(_metadata, self);
	owner_ends(_metadata, self);
	peer_invalidates(_metadata, self, self->rkey);
	ASSERT_EQ(0, raw_await(self->link.fd, IB_MEMREG_EVENT_DISCONNECTED,
			       &endpoint));
	EXPECT_EQ(self->to, endpoint);
	nothing_ended(_metadata, self);
}

TEST_HARNESS_MAIN
