// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ranges that are wrong, in each call that takes a range, of each kind of MR:
 * the errno and the reason depend on the range alone, and nothing is pinned.
 *
 * time limit: 300
 */
#include "demand.h"
#include "state.h"

#define SPAN		(2 * PAGE)

/* An MR of LEN bytes, or of more; its length is in @length. */
struct kind {
	const char *name;
	__u32 flags;
	int (*make)(FIXTURE_DATA(demand) *self, const struct kind *kind,
		    __u32 *mr, __u64 *length);
};

static int make_registered(FIXTURE_DATA(demand) *self, const struct kind *kind,
			   __u32 *mr, __u64 *length)
{
	*length = LEN - 100;
	return register_mr(self, self->mem + 50, *length, FOR_WINDOWS,
			   kind->flags, mr);
}

static int make_implicit(FIXTURE_DATA(demand) *self, const struct kind *kind,
			 __u32 *mr, __u64 *length)
{
	RAW(mr_register, cmd, .flags = kind->flags, .access = FOR_WINDOWS,
	    .domain_id = self->link.domain);
	int ret = raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &cmd);

	*mr = cmd.out_mr_id;
	*length = cmd.length;
	return ret;
}

static int make_object(FIXTURE_DATA(demand) *self, const struct kind *kind,
		       __u32 *mr, __u64 *length)
{
	struct ib_memreg_mr_register cmd = {};
	int ret, fd = raw_memory(self->link.fd, LEN, 0);

	(void)kind;
	if (fd < 0)
		return fd;
	*length = LEN - 100;
	ret = raw_register_fd(self->link.fd, self->link.domain, fd, 50, *length,
			      FOR_WINDOWS, &cmd);
	*mr = cmd.out_mr_id;
	close(fd);
	return ret;
}

static int make_pool(FIXTURE_DATA(demand) *self, const struct kind *kind,
		     __u32 *mr, __u64 *length)
{
	RAW(pool_create, cmd, .domain_id = self->link.domain,
	    .access = FOR_WINDOWS | REMOTE_READ, .count = 4,
	    .addr = (uintptr_t)self->mem, .buffer_size = PAGE,
	    .stride = 4 * PAGE);
	int ret = raw_call(self->link.fd, IB_MEMREG_IOC_POOL_CREATE, &cmd);

	(void)kind;
	if (!ret)
		close(cmd.out_table_fd);
	*mr = cmd.out_mr_id;
	*length = 13 * PAGE;
	return ret;
}

static int compose(FIXTURE_DATA(demand) *self,
		   struct ib_memreg_piece *pieces, __u32 count, __u32 *mr)
{
	RAW(mr_compose, cmd, .domain_id = self->link.domain,
	    .access = FOR_WINDOWS, .count = count,
	    .pieces = (uintptr_t)pieces);
	int ret = raw_call(self->link.fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd);

	*mr = cmd.out_mr_id;
	return ret;
}

static int make_composition(FIXTURE_DATA(demand) *self,
			    const struct kind *kind, __u32 *mr, __u64 *length)
{
	struct ib_memreg_piece pieces[2] = {};
	int ret;

	ret = register_mr(self, self->mem, LEN, FOR_WINDOWS, kind->flags,
			  &pieces[0].mr_id);
	if (ret)
		return ret;
	pieces[0].offset = LEN / 2;
	pieces[0].length = LEN / 2;
	pieces[1] = pieces[0];
	pieces[1].offset = 0;
	*length = LEN;
	return compose(self, pieces, 2, mr);
}

static const struct kind kinds[] = {
	{ "pinned", 0, make_registered },
	{ "unguarded", IB_MEMREG_MR_UNGUARDED, make_registered },
	{ "on demand", ON_DEMAND, make_registered },
	{ "implicit", ON_DEMAND | IMPLICIT, make_implicit },
	{ "a memory object", 0, make_object },
	{ "a pool", 0, make_pool },
	{ "a composition", 0, make_composition },
};

/* A range, from an offset of the MR or from its end, and what is wrong */
static const struct {
	bool from_end;
	__u64 offset;
	__u32 length;
	int err;
	__u32 reason;
} ranges[] = {
	{ false, 0, 0, EINVAL, IB_MEMREG_REASON_ZERO_LENGTH },
	{ true, 0, 0, EINVAL, IB_MEMREG_REASON_ZERO_LENGTH },
	{ true, 1, 0, EINVAL, IB_MEMREG_REASON_ZERO_LENGTH },
	{ true, 0, 16, EINVAL, IB_MEMREG_REASON_RANGE },
	{ true, -6ULL, 16, EINVAL, IB_MEMREG_REASON_RANGE },
	{ true, 1, 1, EINVAL, IB_MEMREG_REASON_RANGE },
	{ false, 1ULL << 63, 16, EINVAL, IB_MEMREG_REASON_RANGE },
	{ false, -4ULL, 16, EOVERFLOW, IB_MEMREG_REASON_WRAPS },
	{ false, ~0ULL, 1, EOVERFLOW, IB_MEMREG_REASON_WRAPS },
	{ false, ~0ULL, ~0U, EOVERFLOW, IB_MEMREG_REASON_WRAPS },
};

/* The windows that ranges are tried with */
struct windows {
	__u32 type1;
	__u32 type2;
};

struct try {
	__u32 mr;
	__u64 offset;
	__u32 length;
};

static int by_call(FIXTURE_DATA(demand) *self, const struct windows *w,
		   struct try t)
{
	struct ib_memreg_bind bind = {
		.window_id = w->type1, .mr_id = t.mr, .offset = t.offset,
		.length = t.length, .access = REMOTE_RW,
	};

	return raw_bind(self->link.fd, self->link.domain, &bind, 1);
}

static int by_work_request(FIXTURE_DATA(demand) *self, const struct windows *w,
			   struct try t)
{
	struct ib_memreg_wr wr = WR(BIND, self->to, .window_id = w->type2,
				    .access = REMOTE_RW,
				    .sge = { .mr_id = t.mr, .offset = t.offset,
					     .length = t.length });

	return raw_submit(self->link.fd, &wr, 1);
}

static int by_send(FIXTURE_DATA(demand) *self, struct try t)
{
	return post_send(self, t.mr, t.offset, t.length);
}

static int by_recv(FIXTURE_DATA(demand) *self, struct try t)
{
	struct ib_memreg_wr wr = WR(RECV, self->to,
				    SGE(t.mr, t.offset, t.length));

	return raw_submit(self->link.fd, &wr, 1);
}

/* As the second of two SGEs */
static int by_sges(FIXTURE_DATA(demand) *self, struct try t)
{
	struct ib_memreg_sge sges[2] = {
		{ .mr_id = t.mr, .length = 8 },
		{ .mr_id = t.mr, .offset = t.offset, .length = t.length },
	};
	struct ib_memreg_wr wr;

	/* The first SGE must be mapped where the MR is all there is. */
	sges[0].mr_id = self->mr;
	wr = WR(SEND, self->to, SGES(sges, 2));
	return raw_submit(self->link.fd, &wr, 1);
}

static int by_piece(FIXTURE_DATA(demand) *self, struct try t)
{
	struct ib_memreg_piece piece = {
		.mr_id = t.mr, .offset = t.offset, .length = t.length,
	};
	__u32 mr;

	return compose(self, &piece, 1, &mr);
}

#define EXPECT_RANGE(_err, _reason, _call)				\
	do {								\
		ASSERT_EQ(-(_err), _call)				\
			TH_LOG("%s: %#llx + %u: reason %u", kind->name, \
			       t.offset, t.length, raw_reason());	\
		ASSERT_EQ((_reason), raw_reason())			\
			TH_LOG("%s: %#llx + %u", kind->name, t.offset,	\
			       t.length);				\
	} while (0)

static void wrong_sges(struct __test_metadata *_metadata,
		       FIXTURE_DATA(demand) *self, const struct kind *kind,
		       struct try t, int err, __u32 reason)
{
	/* An SGE may be empty. */
	if (!t.length)
		return;
	EXPECT_RANGE(err, reason, by_send(self, t));
	EXPECT_RANGE(err, reason, by_recv(self, t));
	EXPECT_RANGE(err, reason, by_sges(self, t));
}

static void wrong_ranges(struct __test_metadata *_metadata,
			 FIXTURE_DATA(demand) *self, const struct kind *kind,
			 const struct windows *w, __u32 mr, __u64 length)
{
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(ranges); i++) {
		struct try t = {
			.mr = mr,
			.offset = ranges[i].offset +
				  (ranges[i].from_end ? length : 0),
			.length = ranges[i].length,
		};
		struct ib_memreg_range range = RANGE(mr, t.offset, t.length);
		int err = ranges[i].err;
		__u32 reason = ranges[i].reason;

		EXPECT_RANGE(err, reason, by_call(self, w, t));
		EXPECT_RANGE(err, reason, by_work_request(self, w, t));
		wrong_sges(_metadata, self, kind, t, err, reason);
		if (kind->flags & ON_DEMAND) {
			ASSERT_EQ(1, advise(self, ADVICE(PREFETCH), 0, &range,
					    1));
			ASSERT_EQ(err, (int)range.out_error);
			ASSERT_EQ(reason, range.out_reason);
		} else {
			EXPECT_RANGE(err, reason, by_piece(self, t));
		}
	}
}

/*
 * A range that is too long: for this window, or on demand, where it may be
 * pinned before, for all windows
 */
static void wrong_binds(struct __test_metadata *_metadata,
			FIXTURE_DATA(demand) *self, const struct kind *kind,
			const struct windows *w, __u32 mr)
{
	struct try t = { mr, 0, SPAN + 1 };
	__u64 span;

	ASSERT_EQ(0, raw_cap(self->link.fd, IB_MEMREG_CAP_KEY_SPAN, &span));
	if (kind->flags & IMPLICIT)
		t.length = span + 1;
	else if (kind->flags & ON_DEMAND)
		return;
	EXPECT_RANGE(EINVAL, IB_MEMREG_REASON_SPAN, by_call(self, w, t));
	EXPECT_RANGE(EINVAL, IB_MEMREG_REASON_SPAN,
		     by_work_request(self, w, t));
}

TEST_F_TIMEOUT(demand, I8_wrong_ranges_fail_alike_in_each_call, LIMIT_S)
{
	struct windows w;
	unsigned int i;

	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, SPAN,
				 &w.type1, 1));
	ASSERT_EQ(0, raw_windows_2b(self->link.fd, self->link.domain, SPAN,
				    &w.type2, 1));
	/* This pins the first SGE of those that have two. */
	peer_sends(_metadata, self, self->mr, 0, self->mem, 300, 3);
	peer_gets(_metadata, self, self->mr, 0, self->mem, 8);
	adds_up(_metadata, self, 1);
	for (i = 0; i < ARRAY_LEN(kinds); i++) {
		struct state before;
		__u64 length;
		long pinned;
		__u32 mr;

		ASSERT_EQ(0, kinds[i].make(self, &kinds[i], &mr, &length))
			TH_LOG("%s: reason %u", kinds[i].name, raw_reason());
		pinned = vm_pin(0);
		ASSERT_EQ(0, state_get(&before));
		wrong_ranges(_metadata, self, &kinds[i], &w, mr, length);
		EXPECT_EQ(pinned, vm_pin(0)) TH_LOG("%s", kinds[i].name);
		wrong_binds(_metadata, self, &kinds[i], &w, mr);
		EXPECT_TRUE(state_same(&before)) TH_LOG("%s", kinds[i].name);
		state_free(&before);
		ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	}
}

TEST_HARNESS_MAIN
