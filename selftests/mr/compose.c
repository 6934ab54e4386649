// SPDX-License-Identifier: GPL-2.0-only
/*
 * Compositions: the bytes of any pieces in any order, compared with the result
 * of memcpy(), by work requests of the owner, by keys of a stock peer and by
 * windows; no other byte (I6); and the keys die when the mapping of any piece
 * goes, before its pages are released (I1, I2).
 *
 * time limit: 300
 * soak in parts: 5
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define READ_WRITE	(PROT_READ | PROT_WRITE)
#define MRS		4U
#define PAGES		16UL	/* of each MR */
#define LENGTH		(PAGES * PAGE)
#define TOTAL		(MRS * LENGTH)
#define LEAF		(LOCAL_WRITE | MW_BIND)
#define PEER		(REMOTE_READ | REMOTE_WRITE)

static int compose(int fd, struct ib_memreg_mr_compose *cmd)
{
	cmd->size = sizeof(*cmd);
	return raw_call(fd, IB_MEMREG_IOC_MR_COMPOSE, cmd);
}

FIXTURE(compose) {
	struct link link;
	struct ring ring;
	uint8_t *mem;
	__u32 mrs[MRS];
	unsigned int seed;
};

static int connect_link(FIXTURE_DATA(compose) *self)
{
	struct ib_memreg_queues queues = {
		.max_send = 64,
		.max_send_sge = 1,
		.send_ring_id = self->ring.id,
	};

	return link_up(&self->link, &queues, true);
}

FIXTURE_SETUP(compose)
{
	unsigned int i;

	self->seed = test_seed();
	ASSERT_EQ(0, link_open(&self->link, TOTAL));
	self->mem = mem_alloc(TOTAL);
	ASSERT_NE(NULL, self->mem);
	for (i = 0; i < MRS; i++)
		ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain,
					  self->mem + i * LENGTH, LENGTH, LEAF,
					  &self->mrs[i]));
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 256, 64, 0, -1));
	ASSERT_EQ(0, connect_link(self));
}

FIXTURE_TEARDOWN(compose)
{
	ring_unmap(&self->ring);
	link_close(&self->link);
	mem_free(self->mem, TOTAL);
	EXPECT_EQ(0, vm_pin(0));
}

static void reconnect(struct __test_metadata *_metadata,
		      FIXTURE_DATA(compose) *self)
{
	stock_disconnect(&self->link.stock);
	ASSERT_EQ(0, raw_await(self->link.fd, IB_MEMREG_EVENT_DISCONNECTED,
			       NULL));
	ASSERT_EQ(0, raw_destroy(self->link.fd, self->link.endpoint));
	ASSERT_EQ(0, connect_link(self));
}

/*
 * References
 */

/* Offset in the memory of each byte of a composition */
struct reference {
	size_t length;
	size_t *at;
};

static void reference_add(struct reference *ref, size_t at, size_t length)
{
	size_t i;

	ref->at = realloc(ref->at, (ref->length + length) * sizeof(*ref->at));
	for (i = 0; i < length; i++)
		ref->at[ref->length++] = at + i;
}

/* All blocks of a piece, from the outermost dimension inwards */
static void reference_piece(struct reference *ref,
			    const struct ib_memreg_piece *piece, int dim,
			    size_t at)
{
	__u32 i;

	if (dim < 0) {
		reference_add(ref, at, piece->length);
		return;
	}
	for (i = 0; i < piece->count[dim]; i++)
		reference_piece(ref, piece, dim - 1,
				at + i * piece->stride[dim]);
}

static uint32_t rnd(FIXTURE_DATA(compose) *self, uint32_t n)
{
	return (uint32_t)rand_r(&self->seed) % n;
}

/*
 * Choose a random piece of an MR, with offset, length and strides that are
 * multiples of @align.
 */
static void random_piece(FIXTURE_DATA(compose) *self, unsigned int *mr,
			 struct ib_memreg_piece *piece, size_t align)
{
	size_t room = LENGTH / align, span, most;
	__u32 d;

	memset(piece, 0, sizeof(*piece));
	*mr = rnd(self, MRS);
	piece->mr_id = self->mrs[*mr];
	piece->dims = rnd(self, 4);
	span = 1 + rnd(self, align == PAGE ? 2 : 300);
	piece->length = span * align;
	for (d = 0; d < piece->dims; d++) {
		piece->count[d] = 1 + rnd(self, 3);
		most = (room - span) / piece->count[d];
		piece->stride[d] = rnd(self, most / 2 + 1) * align;
		span += (piece->count[d] - 1) * piece->stride[d] / align;
	}
	piece->offset = rnd(self, room - span + 1) * align;
}

static bool has_twice(const struct reference *ref)
{
	uint8_t *there = calloc(1, TOTAL);
	bool twice = false;
	size_t i;

	for (i = 0; i < ref->length && !twice; i++) {
		twice = there[ref->at[i]];
		there[ref->at[i]] = 1;
	}
	free(there);
	return twice;
}

/* Make one random composition, and check its bytes */

#define PIECES	6U

/* The owner WRITEs the composition to the peer, and READs it from there. */
static void check_local(struct __test_metadata *_metadata,
			FIXTURE_DATA(compose) *self, __u32 mr,
			const struct reference *ref, bool writes)
{
	struct stock *s = &self->link.stock;
	union entry entry;
	size_t i;

	fill(self->mem, TOTAL, 1);
	memset(s->mem, 0, ref->length);
	struct ib_memreg_wr wr = WR(WRITE, self->link.endpoint,
				    .flags = SIGNALED,
				    .remote_addr = (uintptr_t)s->mem,
				    .rkey = s->mr->rkey,
				    SGE(mr, 0, ref->length));
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	ASSERT_EQ(0, entry.cqe.status);
	for (i = 0; i < ref->length; i++)
		ASSERT_EQ(pattern(ref->at[i], 1), s->mem[i]);
	if (!writes)
		return;
	fill(s->mem, ref->length, 2);
	wr.opcode = IB_MEMREG_OP_READ;
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	ASSERT_EQ(0, entry.cqe.status);
	for (i = 0; i < ref->length; i++) {
		ASSERT_EQ(pattern(i, 2), self->mem[ref->at[i]]);
		self->mem[ref->at[i]] = pattern(ref->at[i], 1);
	}
	ASSERT_TRUE(filled(self->mem, TOTAL, 0, 1));
}

/* The peer reads, and writes, each segment by its key. */
static void check_peer(struct __test_metadata *_metadata,
		       FIXTURE_DATA(compose) *self, __u32 mr, __u32 nr,
		       const struct reference *ref, bool writes)
{
	struct ib_memreg_segment *segments = calloc(nr, sizeof(*segments));
	RAW(mr_query, query, .mr_id = mr, .count = nr,
	    .segments = (uintptr_t)segments);
	struct stock *s = &self->link.stock;
	size_t at = 0, i;
	__u32 k;

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_QUERY, &query));
	ASSERT_EQ(nr, query.count);
	fill(self->mem, TOTAL, 1);
	for (k = 0; k < nr; k++) {
		size_t length = segments[k].length;

		ASSERT_EQ(IBV_WC_SUCCESS,
			  stock_read(s, 0, length, segments[k].iova,
				     segments[k].rkey));
		for (i = 0; i < length; i++)
			ASSERT_EQ(pattern(ref->at[at + i], 1), s->mem[i]);
		if (writes) {
			fill(s->mem, length, 2);
			ASSERT_EQ(IBV_WC_SUCCESS,
				  stock_write(s, 0, length, segments[k].iova,
					      segments[k].rkey));
		}
		for (i = 0; writes && i < length; i++) {
			uint8_t *byte = &self->mem[ref->at[at + i]];

			ASSERT_EQ(pattern(i, 2), *byte);
			*byte = pattern(ref->at[at + i], 1);
		}
		at += length;
	}
	EXPECT_EQ(ref->length, at);
	ASSERT_TRUE(filled(self->mem, TOTAL, 0, 1));
	free(segments);
}

/*
 * Do all runs of memory but the first begin, and all but the last end, at
 * pages?
 */
static bool is_smooth(const struct reference *ref)
{
	size_t i;

	for (i = 1; i < ref->length; i++)
		if (ref->at[i] != ref->at[i - 1] + 1 &&
		    ((ref->at[i] | (ref->at[i - 1] + 1)) & (PAGE - 1)))
			return false;
	return true;
}

/* Does the device list pieces that begin and end at any byte? */
static bool takes_gaps(int fd)
{
	__u64 value = 0;

	return !raw_cap(fd, IB_MEMREG_CAP_SG_GAPS, &value) && value;
}

static void one_key(struct __test_metadata *_metadata,
		    FIXTURE_DATA(compose) *self,
		    struct ib_memreg_mr_compose cmd,
		    const struct reference *ref)
{
	cmd.flags = IB_MEMREG_COMPOSE_ONE_KEY;
	if (is_smooth(ref) || takes_gaps(self->link.fd)) {
		ASSERT_EQ(0, compose(self->link.fd, &cmd));
		EXPECT_EQ(1, cmd.out_segments);
		ASSERT_EQ(0, raw_destroy(self->link.fd, cmd.out_mr_id));
	} else {
		EXPECT_FAIL(EOPNOTSUPP, GAPS, compose(self->link.fd, &cmd));
	}
}

/*
 * Make a composition and compare it with @ref. Returns its id, or 0 if the call
 * refused it with the right reason.
 */
static __u32 check_composition(struct __test_metadata *_metadata,
			       FIXTURE_DATA(compose) *self,
			       struct ib_memreg_piece *pieces, __u32 count,
			       const struct reference *ref)
{
	RAW(mr_compose, cmd, .domain_id = self->link.domain, .count = count,
	    .pieces = (uintptr_t)pieces, .access = LEAF | PEER);
	bool writes = !has_twice(ref);
	int ret;

	ret = compose(self->link.fd, &cmd);
	if (!writes) {
		EXPECT_EQ(-EINVAL, ret);
		EXPECT_EQ(IB_MEMREG_REASON_TWICE, raw_reason());
		cmd.access = MW_BIND | REMOTE_READ;
		ret = compose(self->link.fd, &cmd);
	}
	EXPECT_EQ(0, ret) TH_LOG("reason %u", raw_reason());
	if (ret)
		return 0;
	EXPECT_EQ(ref->length, cmd.out_length);
	check_local(_metadata, self, cmd.out_mr_id, ref, writes);
	check_peer(_metadata, self, cmd.out_mr_id, cmd.out_segments, ref,
		   writes);
	one_key(_metadata, self, cmd, ref);
	return cmd.out_mr_id;
}

/*
 * Compose parts of a composition. The outer one is still right when the inner
 * one is destroyed.
 */
static void check_nested(struct __test_metadata *_metadata,
			 FIXTURE_DATA(compose) *self, __u32 mr,
			 const struct reference *ref)
{
	struct ib_memreg_piece pieces[2] = { { .mr_id = mr }, { .mr_id = mr } };
	struct reference nested = {};
	RAW(mr_compose, cmd, .domain_id = self->link.domain, .count = 2,
	    .pieces = (uintptr_t)pieces, .access = MW_BIND | REMOTE_READ);
	unsigned int i;
	size_t k;

	for (i = 0; i < 2; i++) {
		pieces[i].length = 1 + rnd(self, ref->length);
		pieces[i].offset = rnd(self, ref->length - pieces[i].length +
					     1);
		for (k = 0; k < pieces[i].length; k++)
			reference_add(&nested, ref->at[pieces[i].offset + k],
				      1);
	}
	if (nested.length <= TOTAL) {
		ASSERT_EQ(0, compose(self->link.fd, &cmd));
		ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
		check_local(_metadata, self, cmd.out_mr_id, &nested, false);
		check_peer(_metadata, self, cmd.out_mr_id, cmd.out_segments,
			   &nested, false);
		mr = cmd.out_mr_id;
	}
	free(nested.at);
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
}

TEST_F_TIMEOUT(compose, I6_random_compositions_are_as_memcpy_makes_them, 10000)
{
	unsigned int round, rounds = times(test_chosen() ? 20 : 60, 10000);
	unsigned int mr, i, count;
	struct ib_memreg_piece pieces[PIECES];
	struct reference ref;
	__u32 id;

	ksft_print_msg("seed %u\n", self->seed);
	for (round = 0; round < rounds && !_metadata->exit_code; round++) {
		ref = (struct reference){};
		count = 1 + rnd(self, PIECES);
		for (i = 0; i < count; i++) {
			random_piece(self, &mr, &pieces[i],
				     round % 3 ? 1 : PAGE);
			reference_piece(&ref, &pieces[i],
					(int)pieces[i].dims - 1,
					mr * LENGTH + pieces[i].offset);
		}
		if (ref.length <= TOTAL) {
			id = check_composition(_metadata, self, pieces, count,
					       &ref);
			if (id)
				check_nested(_metadata, self, id, &ref);
		}
		free(ref.at);
	}
}

/*
 * Life
 */

/* The first page of each MR */
static void first_pages(FIXTURE_DATA(compose) *self,
			struct ib_memreg_piece *pieces)
{
	unsigned int i;

	memset(pieces, 0, MRS * sizeof(*pieces));
	for (i = 0; i < MRS; i++) {
		pieces[i].mr_id = self->mrs[i];
		pieces[i].length = PAGE;
	}
}

TEST_F(compose, what_it_is_made_of_stays)
{
	RAW(mr_reregister, rereg, .flags = IB_MEMREG_REREG_ACCESS,
	    .access = LOCAL_WRITE);
	struct ib_memreg_piece pieces[MRS];
	RAW(mr_compose, cmd, .domain_id = self->link.domain, .count = MRS,
	    .pieces = (uintptr_t)pieces, .access = PEER | LEAF);
	long pinned = vm_pin(0);

	first_pages(self, pieces);
	ASSERT_EQ(0, compose(self->link.fd, &cmd));
	EXPECT_EQ(pinned, vm_pin(0));
	EXPECT_FAIL(EBUSY, COMPOSED, raw_destroy(self->link.fd,
						 self->mrs[1]));
	rereg.mr_id = self->mrs[1];
	EXPECT_FAIL(EBUSY, COMPOSED,
		    raw_call(self->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			     &rereg));
	rereg.mr_id = cmd.out_mr_id;
	EXPECT_FAIL(EINVAL, COMPOSED,
		    raw_call(self->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			     &rereg));
	ASSERT_EQ(0, raw_destroy(self->link.fd, cmd.out_mr_id));
	ASSERT_EQ(0, raw_destroy(self->link.fd, self->mrs[1]));
	/* This composition is left for the close of the file to destroy. */
	pieces[1].mr_id = self->mrs[0];
	pieces[1].offset = PAGE;
	ASSERT_EQ(0, compose(self->link.fd, &cmd));
}

struct key {
	__u64 iova;
	__u32 rkey;
};

/* How memory under a piece goes */
enum way { UNMAP, MAP_OVER, DONTNEED, MOVE, WAYS };

static int go_away(uint8_t *page, enum way way)
{
	switch (way) {
	case UNMAP:
		return munmap(page, PAGE);
	case MAP_OVER:
		return mmap(page, PAGE, READ_WRITE, MAP_PRIVATE |
			    MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page ? 0 : -1;
	case DONTNEED:
		return madvise(page, PAGE, MADV_DONTNEED);
	default:
		return mremap(page, PAGE, PAGE, MREMAP_MAYMOVE |
			      MREMAP_DONTUNMAP) == MAP_FAILED ? -1 : 0;
	}
}

/* Map the memory of MR @i again, and register it in place of the stale one. */
static void restore(struct __test_metadata *_metadata,
		    FIXTURE_DATA(compose) *self, unsigned int i)
{
	uint8_t *at = self->mem + i * LENGTH;

	ASSERT_EQ(0, raw_destroy(self->link.fd, self->mrs[i]));
	ASSERT_EQ(at, mmap(at, LENGTH, READ_WRITE, MAP_PRIVATE |
			   MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	memset(at, 0, LENGTH);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, at, LENGTH,
				  LEAF, &self->mrs[i]));
}

/*
 * A composition, another one of that, and a window on the first: all keys are
 * dead when the call that takes the memory away returns.
 */
TEST_F_TIMEOUT(compose, I2_keys_die_with_the_memory_of_any_piece, 120)
{
	struct ib_memreg_piece pieces[MRS], whole = { .length = MRS * PAGE };
	struct ib_memreg_bind bind = { .length = MRS * PAGE,
				       .access = REMOTE_READ };
	struct stock *s = &self->link.stock;
	unsigned int way, i, k;

	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, MRS * PAGE,
				 &bind.window_id, 1));
	for (way = 0; way < WAYS && !_metadata->exit_code; way++) {
		RAW(mr_compose, one, .domain_id = self->link.domain,
		    .count = MRS, .pieces = (uintptr_t)pieces,
		    .access = PEER | LEAF);
		RAW(mr_compose, two, .domain_id = self->link.domain,
		    .count = 1, .pieces = (uintptr_t)&whole,
		    .access = REMOTE_READ);
		RAW(mr_query, query);
		struct key keys[3];

		first_pages(self, pieces);
		ASSERT_EQ(0, compose(self->link.fd, &one));
		whole.mr_id = one.out_mr_id;
		bind.mr_id = one.out_mr_id;
		ASSERT_EQ(0, compose(self->link.fd, &two));
		ASSERT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind,
				      1));
		keys[0] = (struct key) { one.iova, one.out_rkey };
		keys[1] = (struct key) { two.iova, two.out_rkey };
		keys[2] = (struct key) { bind.out_iova, bind.out_rkey };
		for (k = 0; k < 3; k++)
			ASSERT_EQ(IBV_WC_SUCCESS,
				  stock_read(s, 0, MRS * PAGE, keys[k].iova,
					     keys[k].rkey));
		i = way % MRS;
		ASSERT_EQ(0, go_away(self->mem + i * LENGTH, way));
		for (k = 0; k < 3; k++) {
			/* An address in a piece whose memory is still mapped */
			EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
				  stock_read(s, 0, 8, keys[k].iova +
					     (i + 1) % MRS * PAGE,
					     keys[k].rkey));
			reconnect(_metadata, self);
		}
		query.mr_id = two.out_mr_id;
		ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_QUERY,
				      &query));
		EXPECT_EQ(IB_MEMREG_MR_STALE, query.out_state);
		EXPECT_FAIL(ESTALE, STALE, compose(self->link.fd, &two));
		ASSERT_EQ(0, raw_revoke(self->link.fd, self->link.domain,
					&bind.window_id, 1));
		ASSERT_EQ(0, raw_destroy(self->link.fd, one.out_mr_id));
		ASSERT_EQ(0, raw_destroy(self->link.fd, two.out_mr_id));
		restore(_metadata, self, i);
	}
}

TEST_F(compose, windows_span_pieces_that_are_pages)
{
	struct ib_memreg_piece pieces[MRS];
	RAW(mr_compose, cmd, .domain_id = self->link.domain, .count = MRS,
	    .pieces = (uintptr_t)pieces, .access = LEAF);
	struct ib_memreg_bind bind = { .access = PEER };
	struct stock *s = &self->link.stock;
	size_t i;

	first_pages(self, pieces);
	/* The last boundary is rough. */
	pieces[MRS - 1].offset = 5;
	ASSERT_EQ(0, compose(self->link.fd, &cmd));
	EXPECT_EQ(0, cmd.out_segments);
	bind.mr_id = cmd.out_mr_id;
	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, MRS * PAGE,
				 &bind.window_id, 1));
	bind.length = (MRS - 1) * PAGE + 1;
	if (takes_gaps(self->link.fd)) {
		ASSERT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind,
				      1));
		fill(self->mem, TOTAL, 1);
		ASSERT_EQ(IBV_WC_SUCCESS,
			  stock_read(s, 0, bind.length, bind.out_iova,
				     bind.out_rkey));
		EXPECT_EQ(pattern((MRS - 1) * LENGTH + 5, 1),
			  s->mem[bind.length - 1]);
		ASSERT_EQ(0, raw_revoke(self->link.fd, self->link.domain,
					&bind.window_id, 1));
	} else {
		EXPECT_FAIL(EOPNOTSUPP, GAPS,
			    raw_bind(self->link.fd, self->link.domain, &bind,
				     1));
	}
	bind.offset = 100;
	bind.length = (MRS - 1) * PAGE - 100;
	ASSERT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind, 1));
	fill(self->mem, TOTAL, 1);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, bind.length, bind.out_iova,
					     bind.out_rkey));
	for (i = 0; i < bind.length; i++)
		ASSERT_EQ(pattern((i + 100) / PAGE * LENGTH + (i + 100) % PAGE,
				  1), s->mem[i]);
	ASSERT_EQ(0, raw_revoke(self->link.fd, self->link.domain,
				&bind.window_id, 1));
	/*
	 * A window that begins in the last piece, whose memory does not begin
	 * at a page
	 */
	bind.offset = (MRS - 1) * PAGE + 1;
	bind.length = PAGE - 1;
	ASSERT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind, 1));
	EXPECT_EQ(6, bind.out_iova % PAGE);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, bind.length, bind.out_iova,
					     bind.out_rkey));
	EXPECT_TRUE(filled(s->mem, bind.length, (MRS - 1) * LENGTH + 6, 1));
	ASSERT_EQ(0, raw_revoke(self->link.fd, self->link.domain,
				&bind.window_id, 1));
}

/*
 * Bad input
 */

TEST_F(compose, I8_what_can_not_be_is_refused)
{
	struct ib_memreg_piece pieces[2], good = { .mr_id = self->mrs[0],
						   .length = PAGE };
	RAW(mr_compose, right, .domain_id = self->link.domain, .count = 1,
	    .pieces = (uintptr_t)pieces, .access = LEAF | PEER);
	struct ib_memreg_mr_compose cmd;
	struct state before;
	__u32 other, plain;

	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, self->mem,
				  PAGE, REMOTE_READ, &plain));
	ASSERT_EQ(0, raw_domain(self->link.fd, &other));
	ASSERT_EQ(0, state_get(&before));
#define CALL(_field, _value)						\
	({								\
		pieces[0] = good;					\
		pieces[1] = good;					\
		cmd = right;						\
		cmd._field = (_value);					\
		compose(self->link.fd, &cmd);				\
	})
#define PIECE(_field, _value)						\
	({								\
		pieces[0] = good;					\
		pieces[1] = good;					\
		pieces[0]._field = (_value);				\
		cmd = right;						\
		compose(self->link.fd, &cmd);				\
	})
#define STRIDED(_stride, _count)					\
	({								\
		pieces[0] = good;					\
		pieces[0].dims = 1;					\
		pieces[0].stride[0] = (_stride);			\
		pieces[0].count[0] = (_count);				\
		cmd = right;						\
		compose(self->link.fd, &cmd);				\
	})
	EXPECT_FAIL(EOPNOTSUPP, FLAGS, CALL(flags, 1U << 31));
	EXPECT_FAIL(EINVAL, COUNT, CALL(count, 0));
	EXPECT_FAIL(EINVAL, COUNT, CALL(count, IB_MEMREG_COMPOSE_MAX + 1));
	EXPECT_FAIL(EFAULT, NONE, CALL(pieces, 8));
	EXPECT_FAIL(ENOENT, ID, CALL(domain_id, 0));
	EXPECT_FAIL(EINVAL, DOMAIN, CALL(domain_id, other));
	EXPECT_FAIL(EINVAL, REMOTE_WRITE, CALL(access, REMOTE_WRITE));
	EXPECT_FAIL(EINVAL, TWICE, CALL(count, 2));
	EXPECT_EQ(2, cmd.out_index);
	EXPECT_FAIL(EINVAL, IOVA, (pieces[0] = good, cmd = right,
				   cmd.flags = IB_MEMREG_COMPOSE_IOVA,
				   cmd.iova = 1,
				   compose(self->link.fd, &cmd)));
	EXPECT_FAIL(EINVAL, IOVA_WRAPS, (cmd = right,
					 cmd.flags = IB_MEMREG_COMPOSE_IOVA,
					 cmd.iova = -PAGE,
					 compose(self->link.fd, &cmd)));
	cmd.access |= ZERO_BASED;
	EXPECT_FAIL(EINVAL, IOVA_ZERO_BASED, compose(self->link.fd, &cmd));
	EXPECT_FAIL(EINVAL, ZERO_BASED, (pieces[0].offset = 8, cmd = right,
					 cmd.access |= ZERO_BASED,
					 compose(self->link.fd, &cmd)));
	EXPECT_FAIL(ENOENT, ID, PIECE(mr_id, 0));
	EXPECT_EQ(0, cmd.out_index);
	EXPECT_FAIL(ENOENT, ID, PIECE(mr_id, self->link.domain));
	EXPECT_FAIL(EACCES, ACCESS_MR, PIECE(mr_id, plain));
	EXPECT_FAIL(EINVAL, ZERO_LENGTH, PIECE(length, 0));
	EXPECT_FAIL(EINVAL, RANGE, PIECE(length, LENGTH + 1));
	EXPECT_FAIL(EINVAL, RANGE, PIECE(offset, LENGTH));
	EXPECT_FAIL(EOVERFLOW, WRAPS, PIECE(offset, ~0ULL));
	EXPECT_FAIL(EINVAL, STRIDE, PIECE(dims, IB_MEMREG_PIECE_DIMS + 1));
	EXPECT_FAIL(EINVAL, COUNT, PIECE(dims, 1));
	EXPECT_FAIL(EINVAL, RESERVED, PIECE(stride[0], 1));
	EXPECT_FAIL(EINVAL, RESERVED, PIECE(count[3], 1));
	EXPECT_FAIL(EOVERFLOW, WRAPS, STRIDED(1ULL << 62, 5));
	EXPECT_FAIL(EOVERFLOW, WRAPS, STRIDED(~0ULL, 2));
	EXPECT_FAIL(EINVAL, RANGE, STRIDED(PAGE, PAGES + 1));
	EXPECT_FAIL(EINVAL, COUNT, STRIDED(0, ~0U));
	EXPECT_FAIL(EINVAL, TWICE, STRIDED(PAGE - 1, 2));
	EXPECT_TRUE(state_same(&before));
	state_free(&before);
	ASSERT_EQ(0, raw_destroy(self->link.fd, plain));
}

/*
 * Compose a piece with one dimension of @count blocks, and one block in all
 * others.
 */
static int compose_dim(FIXTURE_DATA(compose) *self, __u32 dim, __u64 stride,
		       __u32 count)
{
	struct ib_memreg_piece piece = {
		.mr_id = self->mrs[0], .length = PAGE,
		.dims = IB_MEMREG_PIECE_DIMS, .count = { 1, 1, 1, 1 },
		.stride = { PAGE, PAGE, PAGE, PAGE },
	};
	RAW(mr_compose, cmd, .domain_id = self->link.domain, .count = 1,
	    .pieces = (uintptr_t)&piece);
	int ret;

	piece.stride[dim] = stride;
	piece.count[dim] = count;
	ret = compose(self->link.fd, &cmd);
	return ret ?: raw_destroy(self->link.fd, cmd.out_mr_id);
}

TEST_F(compose, I8_products_of_each_dimension)
{
	struct ib_memreg_piece piece = { .mr_id = self->mrs[0], .length = PAGE,
					 .dims = IB_MEMREG_PIECE_DIMS };
	RAW(mr_compose, cmd, .domain_id = self->link.domain, .count = 1,
	    .pieces = (uintptr_t)&piece);
	struct state before;
	__u32 d;

	ASSERT_EQ(0, state_get(&before));
	for (d = 0; d < IB_MEMREG_PIECE_DIMS; d++) {
		EXPECT_EQ(0, compose_dim(self, d, PAGE, PAGES));
		EXPECT_FAIL(EINVAL, RANGE, compose_dim(self, d, PAGE,
						       PAGES + 1));
		EXPECT_FAIL(EINVAL, RANGE, compose_dim(self, d, 1ULL << 32,
						       ~0U));
		EXPECT_FAIL(EINVAL, RANGE,
			    compose_dim(self, d, ~0ULL - 2 * PAGE, 2));
		EXPECT_FAIL(EOVERFLOW, WRAPS,
			    compose_dim(self, d, ~0ULL - PAGE + 1, 2));
		EXPECT_FAIL(EOVERFLOW, WRAPS, compose_dim(self, d, ~0ULL, 2));
		EXPECT_FAIL(EOVERFLOW, WRAPS, compose_dim(self, d, 1ULL << 33,
							  ~0U));
		EXPECT_FAIL(EOVERFLOW, WRAPS, compose_dim(self, d, 1ULL << 63,
							  3));
		EXPECT_FAIL(EINVAL, COUNT, compose_dim(self, d, PAGE, 0));
	}
	/* No product wraps, but their sum does. */
	for (d = 0; d < IB_MEMREG_PIECE_DIMS; d++) {
		piece.stride[d] = 1ULL << 62;
		piece.count[d] = 2;
	}
	EXPECT_FAIL(EOVERFLOW, WRAPS, compose(self->link.fd, &cmd));
	piece.count[3] = 1;
	EXPECT_FAIL(EINVAL, RANGE, compose(self->link.fd, &cmd));
	/*
	 * So many blocks that a loop over them would not end in any bearable
	 * time
	 */
	for (d = 0; d < IB_MEMREG_PIECE_DIMS; d++) {
		piece.stride[d] = 0;
		piece.count[d] = ~0U;
	}
	EXPECT_FAIL(EINVAL, COUNT, compose(self->link.fd, &cmd));
	EXPECT_TRUE(state_same(&before));
	state_free(&before);
}

/* A composition has IB_MEMREG_COMPOSE_MAX runs of memory at most. */
TEST_F(compose, I8_runs_are_limited)
{
	struct ib_memreg_piece pieces[2] = {
		{ .mr_id = self->mrs[0], .length = 1, .dims = 1,
		  .stride = { 2 }, .count = { IB_MEMREG_COMPOSE_MAX } },
		{ .mr_id = self->mrs[1], .length = 1 },
	};
	RAW(mr_compose, cmd, .domain_id = self->link.domain, .count = 1,
	    .pieces = (uintptr_t)pieces);
	struct state before;

	ASSERT_EQ(0, state_get(&before));
	ASSERT_EQ(0, compose(self->link.fd, &cmd));
	EXPECT_EQ(IB_MEMREG_COMPOSE_MAX, cmd.out_entries);
	/* As a piece, the composition counts for all of its runs. */
	pieces[0] = (struct ib_memreg_piece){ .mr_id = cmd.out_mr_id,
					      .length = cmd.out_length };
	cmd.count = 2;
	EXPECT_FAIL(EINVAL, COUNT, compose(self->link.fd, &cmd));
	ASSERT_EQ(0, raw_destroy(self->link.fd, pieces[0].mr_id));
	pieces[0] = pieces[1];
	pieces[0].dims = 1;
	pieces[0].stride[0] = 2;
	pieces[0].count[0] = IB_MEMREG_COMPOSE_MAX + 1;
	cmd.count = 1;
	EXPECT_FAIL(EINVAL, COUNT, compose(self->link.fd, &cmd));
	EXPECT_TRUE(state_same(&before));
	state_free(&before);
}

#define OBJECT		(8 * MiB)

/* Compose ranges of an MR under one key. */
static int compose_one(FIXTURE_DATA(compose) *self, __u32 access,
		       struct ib_memreg_piece *pieces, __u32 count,
		       struct ib_memreg_mr_compose *cmd)
{
	*cmd = (struct ib_memreg_mr_compose) {
		.flags = IB_MEMREG_COMPOSE_ONE_KEY,
		.domain_id = self->link.domain, .access = access,
		.count = count, .pieces = (uintptr_t)pieces,
	};
	return compose(self->link.fd, cmd);
}

/* A peer reads, by the only key, the bytes from @from on of a pattern. */
static void reads_all(struct __test_metadata *_metadata,
		      FIXTURE_DATA(compose) *self, __u64 iova, __u32 rkey,
		      __u64 length, __u64 from)
{
	struct stock *s = &self->link.stock;
	__u64 done, n;

	for (done = 0; done < length; done += n) {
		n = length - done < TOTAL ? length - done : TOTAL;
		ASSERT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, n, iova + done,
						     rkey));
		ASSERT_TRUE(filled(s->mem, n, from + done, 3));
	}
}

/* A composition of a range needs no more keys than an MR of it. */
static void one_range(struct __test_metadata *_metadata,
		      FIXTURE_DATA(compose) *self, int memory, __u32 leaf,
		      __u64 offset, __u64 length)
{
	struct ib_memreg_piece piece = { .mr_id = leaf, .offset = offset,
					 .length = length };
	struct ib_memreg_mr_register mr = {};
	struct ib_memreg_mr_compose cmd;
	int ret;

	ASSERT_EQ(0, raw_register_fd(self->link.fd, self->link.domain, memory,
				     offset, length, REMOTE_READ, &mr));
	ret = compose_one(self, REMOTE_READ, &piece, 1, &cmd);
	if (mr.out_segments > 1 && ret) {
		EXPECT_FAIL(EOPNOTSUPP, KEY_PAGES, ret);
	} else {
		ASSERT_EQ(0, ret)
			TH_LOG("%llu + %llu: reason %u", offset, length,
			       raw_reason());
		EXPECT_EQ(1, cmd.out_segments);
		EXPECT_GT(IB_MEMREG_COMPOSE_IOVA_MAX, cmd.iova);
		reads_all(_metadata, self, cmd.iova, cmd.out_rkey, length,
			  offset);
		ASSERT_EQ(0, raw_destroy(self->link.fd, cmd.out_mr_id));
	}
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr.out_mr_id));
}

TEST_F_TIMEOUT(compose, keys_have_the_pages_that_the_memory_allows, LIMIT_S)
{
	static const struct { __u64 offset, length; } ranges[] = {
		{ 0, 2 * MiB }, { 0, 2 * MiB + PAGE }, { 0, OBJECT },
		{ PAGE, 2 * MiB }, { 4097, 5 * MiB }, { 3 * MiB, 3 * MiB + 1 },
	};
	struct ib_memreg_mr_register leaf = {};
	struct ib_memreg_piece halves[2];
	struct ib_memreg_mr_compose cmd;
	unsigned int i;
	int memory;
	void *map;

	memory = raw_memory(self->link.fd, OBJECT, 0);
	ASSERT_LE(0, memory);
	map = mem_map(memory, OBJECT, PROT_RW);
	ASSERT_NE(NULL, map);
	fill(map, OBJECT, 3);
	ASSERT_EQ(0, raw_register_fd(self->link.fd, self->link.domain, memory,
				     0, OBJECT, LEAF, &leaf));
	for (i = 0; i < ARRAY_LEN(ranges); i++)
		one_range(_metadata, self, memory, leaf.out_mr_id,
			  ranges[i].offset, ranges[i].length);
	/* The two halves, the second one first */
	for (i = 0; i < 2; i++)
		halves[i] = (struct ib_memreg_piece) {
			.mr_id = leaf.out_mr_id,
			.offset = OBJECT / 2 * !i, .length = OBJECT / 2,
		};
	ASSERT_EQ(0, compose_one(self, REMOTE_READ, halves, 2, &cmd))
		TH_LOG("reason %u", raw_reason());
	reads_all(_metadata, self, cmd.iova, cmd.out_rkey, OBJECT / 2,
		  OBJECT / 2);
	reads_all(_metadata, self, cmd.iova + OBJECT / 2, cmd.out_rkey,
		  OBJECT / 2, 0);
	ASSERT_EQ(0, raw_destroy(self->link.fd, cmd.out_mr_id));
	ASSERT_EQ(0, raw_destroy(self->link.fd, leaf.out_mr_id));
	EXPECT_EQ(0, munmap(map, OBJECT));
	EXPECT_EQ(0, close(memory));
}

/* Memory without larger pages has as many segments as it needs. */
TEST_F_TIMEOUT(compose, I8_pages_of_a_key_are_limited, LIMIT_S)
{
	struct ib_memreg_piece piece = {};
	struct ib_memreg_mr_compose cmd;
	__u64 span, length;
	void *memory;

	ASSERT_EQ(0, raw_cap(self->link.fd, IB_MEMREG_CAP_KEY_SPAN, &span));
	length = 2 * span;
	memory = mem_scattered(length);
	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, memory,
				  length, LEAF, &piece.mr_id));
	if (raw_runs(self->link.fd, self->link.domain, piece.mr_id, length) <
	    length / PAGE)
		SKIP(return, "the device has the memory in one piece");
	piece.length = span;
	EXPECT_EQ(0, compose_one(self, REMOTE_READ, &piece, 1, &cmd));
	EXPECT_EQ(0, raw_destroy(self->link.fd, cmd.out_mr_id));
	piece.length = span + 1;
	EXPECT_FAIL(EOPNOTSUPP, KEY_PAGES,
		    compose_one(self, REMOTE_READ, &piece, 1, &cmd));
	cmd.flags = 0;
	ASSERT_EQ(0, compose(self->link.fd, &cmd));
	EXPECT_EQ(2, cmd.out_segments);
	EXPECT_EQ(0, raw_destroy(self->link.fd, cmd.out_mr_id));
	EXPECT_EQ(0, raw_destroy(self->link.fd, piece.mr_id));
	mem_free(memory, length);
}

/*
 * A window behind a boundary inside a page has the I/O address at which a peer
 * reaches its first byte: its offset in a page is that of the memory.
 */
TEST_F(compose, window_behind_a_rough_boundary)
{
	struct ib_memreg_piece pieces[2] = {
		{ .mr_id = self->mrs[0], .length = 1003 },
		{ .mr_id = self->mrs[1], .offset = 941, .length = PAGE },
	};
	RAW(mr_compose, cmd, .domain_id = self->link.domain, .count = 2,
	    .pieces = (uintptr_t)pieces, .access = LEAF);
	struct ib_memreg_bind bind = { .offset = 1003 + 7, .length = 100,
				       .access = REMOTE_READ };

	fill(self->mem, TOTAL, 5);
	ASSERT_EQ(0, compose(self->link.fd, &cmd));
	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, PAGE,
				 &bind.window_id, 1));
	bind.mr_id = cmd.out_mr_id;
	ASSERT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind, 1));
	EXPECT_EQ((941 + 7) % PAGE, bind.out_iova % PAGE);
	EXPECT_LE(cmd.iova + bind.offset, bind.out_iova);
	EXPECT_GT(cmd.iova + bind.offset + PAGE, bind.out_iova);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(&self->link.stock, 0, 100,
					     bind.out_iova, bind.out_rkey));
	EXPECT_TRUE(filled(self->link.stock.mem, 100, LENGTH + 941 + 7, 5));
	ASSERT_EQ(0, raw_destroy(self->link.fd, bind.window_id));
	ASSERT_EQ(0, raw_destroy(self->link.fd, cmd.out_mr_id));
}

/*
 * The library: a cube's faces move to the peer and come back as its halo, each
 * way by one work request.
 */

#define N		12UL	/* cells in each direction, with the halo */
#define INNER		(N - 4)
#define CELL		sizeof(double)
#define ROW		(N * CELL)
#define PLANE		(N * ROW)
#define FACES		6U
#define FACE_CELLS	(INNER * INNER)

/*
 * Describe the six layers of cells at @depth from each side of the cube,
 * without their edges.
 */
static void faces_of(uint32_t mr, size_t depth, struct ib_memreg_piece *faces)
{
	size_t near = depth, far = N - 1 - depth;

	faces[0] = memreg_piece_3d(mr, near * CELL + 2 * ROW + 2 * PLANE, CELL,
				   ROW, INNER, PLANE, INNER);
	faces[1] = memreg_piece_3d(mr, far * CELL + 2 * ROW + 2 * PLANE, CELL,
				   ROW, INNER, PLANE, INNER);
	faces[2] = memreg_piece_2d(mr, near * ROW + 2 * CELL + 2 * PLANE,
				   INNER * CELL, PLANE, INNER);
	faces[3] = memreg_piece_2d(mr, far * ROW + 2 * CELL + 2 * PLANE,
				   INNER * CELL, PLANE, INNER);
	faces[4] = memreg_piece_2d(mr, near * PLANE + 2 * CELL + 2 * ROW,
				   INNER * CELL, ROW, INNER);
	faces[5] = memreg_piece_2d(mr, far * PLANE + 2 * CELL + 2 * ROW,
				   INNER * CELL, ROW, INNER);
}

/* The value of a cell, which depends only on its position */
static double worth(size_t x, size_t y, size_t z)
{
	return (double)(x + 100 * y + 10000 * z);
}

static bool is_inner(size_t i)
{
	return i >= 2 && i < N - 2;
}

/* Move @faces of the cube to the peer, or from there. */
static void exchange(struct __test_metadata *_metadata,
		     FIXTURE_DATA(compose) *self, struct memreg *m,
		     const struct ib_memreg_piece *faces, uint32_t opcode)
{
	struct stock *s = &self->link.stock;
	struct memreg_grant ranges[FACES];
	struct ib_memreg_wr wrs[FACES];
	struct memreg_mr mr;
	union entry entry;
	unsigned int i;

	/*
	 * Neighbouring faces share the cells of an edge, so that their
	 * composition can only be read; halos share none.
	 */
	ASSERT_EQ(0, memreg_mr_compose(m, self->link.domain, faces, FACES,
				       opcode == IB_MEMREG_OP_READ ?
				       LOCAL_WRITE : 0, 0, &mr))
		TH_LOG("%s", memreg_reason());
	EXPECT_EQ(FACES * FACE_CELLS * CELL, mr.length);
	for (i = 0; i < FACES; i++)
		ranges[i] = (struct memreg_grant) {
			.iova = (uintptr_t)s->mem + i * FACE_CELLS * CELL,
			.length = FACE_CELLS * CELL,
			.rkey = s->mr->rkey,
		};
	EXPECT_EQ(-ENOSPC, memreg_transfer_plan(&mr, 0, ranges, FACES, opcode,
						self->link.endpoint, wrs, 0));
	EXPECT_EQ(-EINVAL, memreg_transfer_plan(&mr, 1, ranges, FACES, opcode,
						self->link.endpoint, wrs,
						FACES));
	EXPECT_EQ(-EINVAL, memreg_transfer_plan(&mr, 0, ranges, FACES,
						IB_MEMREG_OP_SEND,
						self->link.endpoint, wrs,
						FACES));
	ASSERT_EQ(1, memreg_transfer_plan(&mr, 0, ranges, FACES, opcode,
					  self->link.endpoint, wrs, FACES));
	ASSERT_EQ(0, memreg_submit(m, wrs, 1, NULL));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(0, entry.cqe.status);
	EXPECT_EQ(0, memreg_mr_deregister(m, mr.id));
}

TEST_F(compose, a_halo_is_exchanged_by_one_work_request_each_way)
{
	double (*cells)[N][N] = (void *)self->mem;
	struct ib_memreg_piece faces[FACES];
	size_t x, y, z;
	struct memreg *m;

	ASSERT_EQ(0, memreg_open_fd(fcntl(self->link.fd, F_DUPFD_CLOEXEC, 0),
				    &m));
	for (z = 0; z < N; z++)
		for (y = 0; y < N; y++)
			for (x = 0; x < N; x++)
				cells[z][y][x] = worth(x, y, z);
	faces_of(self->mrs[0], 2, faces);
	exchange(_metadata, self, m, faces, IB_MEMREG_OP_WRITE);
	faces_of(self->mrs[0], 1, faces);
	exchange(_metadata, self, m, faces, IB_MEMREG_OP_READ);
	for (z = 2; z < N - 2; z++)
		for (y = 2; y < N - 2; y++) {
			EXPECT_EQ(worth(2, y, z), cells[z][y][1]);
			EXPECT_EQ(worth(N - 3, y, z), cells[z][y][N - 2]);
			EXPECT_EQ(worth(y, 2, z), cells[z][1][y]);
			EXPECT_EQ(worth(y, N - 3, z), cells[z][N - 2][y]);
			EXPECT_EQ(worth(y, z, 2), cells[1][z][y]);
			EXPECT_EQ(worth(y, z, N - 3), cells[N - 2][z][y]);
		}
	for (z = 0; z < N; z++)
		for (y = 0; y < N; y++)
			for (x = 0; x < N; x++)
				if (is_inner(x) + is_inner(y) + is_inner(z) !=
				    2)
					EXPECT_EQ(worth(x, y, z),
						  cells[z][y][x]);
	memreg_close(m);
}

TEST_HARNESS_MAIN
