// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ranges and access flags of MRs and windows: which are valid, and the bytes
 * that keys of valid ones cover (I6).
 */
#include <errno.h>
#include <sys/ioctl.h>

#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define KNOWN_ACCESS	(LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ |	\
			 REMOTE_ATOMIC | MW_BIND | ZERO_BASED |		\
			 IB_MEMREG_ACCESS_FLUSH_GLOBAL |		\
			 IB_MEMREG_ACCESS_FLUSH_PERSISTENT |		\
			 IB_MEMREG_ACCESS_RELAXED_ORDERING)
#define REMOTE_ACCESS	(REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC |	\
			 IB_MEMREG_ACCESS_FLUSH_GLOBAL |		\
			 IB_MEMREG_ACCESS_FLUSH_PERSISTENT)

FIXTURE(ranges) {
	int fd;
	__u32 domain;
	__u64 span;
	__u32 access;
	char *memory;
	struct state before;
};

FIXTURE_SETUP(ranges)
{
	__u64 access;

	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_KEY_SPAN, &self->span));
	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_ACCESS, &access));
	self->access = access;
	self->memory = mem_alloc(16 * PAGE);
	ASSERT_NE(NULL, self->memory);
	ASSERT_EQ(0, state_get(&self->before));
}

FIXTURE_TEARDOWN(ranges)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
}

/* Register with all parameters; the answer is in @cmd. */
static int reg(FIXTURE_DATA(ranges) *self, struct ib_memreg_mr_register *cmd)
{
	cmd->size = sizeof(*cmd);
	cmd->domain_id = self->domain;
	return raw_call(self->fd, IB_MEMREG_IOC_MR_REGISTER, cmd);
}

/* Register a range for a peer to read, and destroy it again if that works. */
static int try_range(FIXTURE_DATA(ranges) *self, __u64 addr, __u64 length)
{
	struct ib_memreg_mr_register cmd = {
		.addr = addr,
		.length = length,
		.access = REMOTE_READ,
	};
	int ret = reg(self, &cmd);

	return ret ?: raw_destroy(self->fd, cmd.out_mr_id);
}

/* The keyed segments of an MR follow one another and cover all of it. */
static void check_segments(struct __test_metadata *_metadata,
			   FIXTURE_DATA(ranges) *self,
			   const struct ib_memreg_mr_register *mr)
{
	struct ib_memreg_segment segments[16] = {};
	RAW(mr_query, query, .mr_id = mr->out_mr_id,
	    .count = ARRAY_LEN(segments) - 1, .segments = (uintptr_t)segments);
	__u64 at = mr->iova;
	__u32 i, k;

	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &query));
	ASSERT_EQ(mr->out_segments, query.count);
	ASSERT_GT(ARRAY_LEN(segments), query.count);
	for (i = 0; i < query.count; i++) {
		EXPECT_EQ(at, segments[i].iova);
		EXPECT_NE(0, segments[i].length);
		EXPECT_NE(0, segments[i].rkey);
		for (k = 0; k < i; k++)
			EXPECT_NE(segments[k].rkey, segments[i].rkey);
		at += segments[i].length;
	}
	EXPECT_EQ(mr->iova + mr->length, at);
	EXPECT_EQ(mr->out_rkey, segments[0].rkey);
	EXPECT_EQ(mr->out_lkey, segments[0].lkey);
	/* Nothing is written behind the last one. */
	EXPECT_EQ(0, segments[query.count].length);
	EXPECT_EQ(mr->addr, query.out_addr);
	EXPECT_EQ(mr->length, query.out_length);
	EXPECT_EQ(mr->iova, query.out_iova);
	EXPECT_EQ(mr->access, query.out_access);
	EXPECT_EQ(self->domain, query.out_domain_id);
	EXPECT_EQ(IB_MEMREG_MR_LIVE, query.out_state);
	EXPECT_EQ(0, query.out_windows);
	EXPECT_EQ(vm_pin(0), (long)query.out_pinned);
}

TEST_F(ranges, zero_length_is_EINVAL)
{
	__u64 memory = (uintptr_t)self->memory;

	EXPECT_FAIL(EINVAL, ZERO_LENGTH, try_range(self, memory, 0));
	EXPECT_FAIL(EINVAL, ZERO_LENGTH, try_range(self, 0, 0));
	EXPECT_FAIL(EINVAL, ZERO_LENGTH, try_range(self, ~0ULL, 0));
}

TEST_F(ranges, wrapping_is_EOVERFLOW)
{
	__u64 memory = (uintptr_t)self->memory;

	EXPECT_FAIL(EOVERFLOW, WRAPS, try_range(self, memory, ~0ULL));
	EXPECT_FAIL(EOVERFLOW, WRAPS, try_range(self, memory, -memory));
	EXPECT_FAIL(EOVERFLOW, WRAPS, try_range(self, 1, ~0ULL));
	EXPECT_FAIL(EOVERFLOW, WRAPS, try_range(self, ~0ULL, 1));
	/*
	 * The end of the address space: rounded up to pages the range would
	 * wrap.
	 */
	EXPECT_FAIL(EOVERFLOW, WRAPS, try_range(self, 0, ~0ULL));
	EXPECT_FAIL(EOVERFLOW, WRAPS, try_range(self, ~0ULL - 1, 1));
}

TEST_F(ranges, I8_huge_length_fails_and_pins_nothing)
{
	char *page = mem_alloc(2 * PAGE);
	__u64 memory = (uintptr_t)page;

	/* Nothing is mapped behind it. */
	ASSERT_NE(NULL, page);
	mem_free(page + PAGE, PAGE);
	/* More pages than a scatterlist counts. */
	EXPECT_FAIL(ENOMEM, TOO_LONG, try_range(self, memory, -memory - PAGE));
	EXPECT_FAIL(ENOMEM, TOO_LONG, try_range(self, memory, PAGE << 32));
	EXPECT_FAIL(ENOMEM, TOO_LONG, try_range(self, memory, 1ULL << 62));
	/* Fewer, but there is no such memory. */
	EXPECT_FAIL(EFAULT, UNMAPPED,
		    try_range(self, memory, (PAGE << 32) - PAGE));
	EXPECT_FAIL(EFAULT, UNMAPPED, try_range(self, memory, PAGE << 31));
	/* The kernel's half. */
	EXPECT_FAIL(EFAULT, UNMAPPED, try_range(self, 1ULL << 63, PAGE));
	EXPECT_FAIL(EFAULT, UNMAPPED, try_range(self, -2 * PAGE, PAGE));
	EXPECT_FAIL(EFAULT, UNMAPPED, try_range(self, 0, PAGE));
	mem_free(page, PAGE);
}

TEST_F(ranges, I6_unaligned_start_and_length_are_exact)
{
	static const __u32 starts[] = { 0, 1, 7, 2048, 4095 };
	static const __u32 lengths[] = { 1, 2, 4095, 4096, 4097, 8191, 8192 };
	unsigned int i, k;

	for (i = 0; i < ARRAY_LEN(starts); i++) {
		for (k = 0; k < ARRAY_LEN(lengths); k++) {
			struct ib_memreg_mr_register mr = {
				.addr = (uintptr_t)self->memory + starts[i],
				.length = lengths[k],
				.access = REMOTE_READ,
			};
			__u32 end = starts[i] + lengths[k];

			ASSERT_EQ(0, reg(self, &mr));
			EXPECT_EQ(mr.addr, mr.iova);
			EXPECT_EQ(1, mr.out_segments);
			EXPECT_EQ((end + PAGE - 1) / PAGE, vm_pin(0));
			check_segments(_metadata, self, &mr);
			ASSERT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
		}
	}
}

TEST_F(ranges, iova_as_asked_for)
{
	struct ib_memreg_mr_register mr = {
		.flags = IB_MEMREG_MR_IOVA,
		.addr = (uintptr_t)self->memory + 5,
		.length = 3 * PAGE,
		.access = REMOTE_READ,
		.iova = 0xabc0000000005,
	};

	ASSERT_EQ(0, reg(self, &mr));
	EXPECT_EQ(0xabc0000000005, mr.iova);
	check_segments(_metadata, self, &mr);
	EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));

	/* The highest one there is. */
	mr.iova = 5 - 4 * PAGE;
	ASSERT_EQ(0, reg(self, &mr));
	check_segments(_metadata, self, &mr);
	EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));

	/* Without IB_MEMREG_MR_IOVA the field is output only. */
	mr.flags = 0;
	mr.iova = 1;
	ASSERT_EQ(0, reg(self, &mr));
	EXPECT_EQ(mr.addr, mr.iova);
	EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
}

TEST_F(ranges, iova_that_does_not_fit_is_EINVAL)
{
	struct ib_memreg_mr_register mr = {
		.flags = IB_MEMREG_MR_IOVA,
		.addr = (uintptr_t)self->memory + 5,
		.length = 3 * PAGE,
		.access = REMOTE_READ,
		.iova = 4,
	};

	EXPECT_FAIL(EINVAL, IOVA, reg(self, &mr));
	mr.iova = 6 + PAGE;
	EXPECT_FAIL(EINVAL, IOVA, reg(self, &mr));
	mr.iova = 0;
	EXPECT_FAIL(EINVAL, IOVA, reg(self, &mr));
	/* It wraps. */
	mr.iova = 5 - 2 * PAGE;
	EXPECT_FAIL(EINVAL, IOVA_WRAPS, reg(self, &mr));
}

TEST_F(ranges, zero_based)
{
	struct ib_memreg_mr_register mr = {
		.addr = (uintptr_t)self->memory,
		.length = 3 * PAGE - 1,
		.access = REMOTE_READ | ZERO_BASED,
		.iova = 77,
	};

	ASSERT_EQ(0, reg(self, &mr));
	EXPECT_EQ(0, mr.iova);
	check_segments(_metadata, self, &mr);
	EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));

	mr.flags = IB_MEMREG_MR_IOVA;
	mr.iova = 0;
	EXPECT_FAIL(EINVAL, IOVA_ZERO_BASED, reg(self, &mr));
	mr.flags = 0;
	mr.addr++;
	EXPECT_FAIL(EINVAL, ZERO_BASED, reg(self, &mr));
}

/* Is each page of an MR a run of memory for the device as well? */
static bool is_scattered(FIXTURE_DATA(ranges) *self,
			 const struct ib_memreg_mr_register *mr)
{
	__u64 pages = (mr->addr % PAGE + mr->length + PAGE - 1) / PAGE;

	return raw_runs(self->fd, self->domain, mr->out_mr_id, mr->length) ==
	       pages;
}

TEST_F(ranges, I6_segments_tile_scattered_memory)
{
	const __u64 span = self->span;
	const __u64 lengths[] = {
		1, span - 4096, span - 1, span, span + 1, 2 * span - 100,
		2 * span, 2 * span + 1, 3 * span, 3 * span + 1
	};
	static const __u32 starts[] = { 0, 100, 4095 };
	char *memory = mem_scattered(3 * span + 2 * PAGE);
	unsigned int i, k;

	ASSERT_NE(NULL, memory);
	for (i = 0; i < ARRAY_LEN(starts); i++) {
		for (k = 0; k < ARRAY_LEN(lengths); k++) {
			struct ib_memreg_mr_register mr = {
				.addr = (uintptr_t)memory + starts[i],
				.length = lengths[k],
				.access = LOCAL_WRITE | REMOTE_WRITE,
			};
			__u64 end = starts[i] + lengths[k];

			ASSERT_EQ(0, reg(self, &mr));
			if (!is_scattered(self, &mr)) {
				ASSERT_EQ(0, raw_destroy(self->fd,
							 mr.out_mr_id));
				SKIP(return, "the device has the memory in one piece");
			}
			EXPECT_EQ((end + span - 1) / span, mr.out_segments);
			check_segments(_metadata, self, &mr);
			ASSERT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
		}
	}
	mem_free(memory, 3 * span + 2 * PAGE);
}

TEST_F(ranges, only_segments_that_there_is_room_for)
{
	struct ib_memreg_segment segments[2] = {};
	char *memory = mem_scattered(2 * self->span);
	struct ib_memreg_mr_register mr = {
		.addr = (uintptr_t)memory,
		.length = 2 * self->span,
		.access = REMOTE_READ,
	};
	RAW(mr_query, query, .count = 1, .segments = (uintptr_t)segments);

	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, reg(self, &mr));
	if (!is_scattered(self, &mr)) {
		ASSERT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
		SKIP(return, "the device has the memory in one piece");
	}
	query.mr_id = mr.out_mr_id;
	EXPECT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &query));
	EXPECT_EQ(2, query.count);
	EXPECT_EQ(self->span, segments[0].length);
	EXPECT_EQ(0, segments[1].length);
	EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
	mem_free(memory, 2 * self->span);
}

/* One key covers more where the memory is contiguous. */
static void check_contiguous(struct __test_metadata *_metadata,
			     FIXTURE_DATA(ranges) *self, char *memory,
			     size_t length)
{
	struct ib_memreg_mr_register mr = {
		.addr = (uintptr_t)memory,
		.length = length,
		.access = LOCAL_WRITE | REMOTE_WRITE,
	};

	ASSERT_LT(self->span, length);
	ASSERT_EQ(0, reg(self, &mr));
	EXPECT_EQ(1, mr.out_segments);
	EXPECT_EQ(length / PAGE, vm_pin(0));
	check_segments(_metadata, self, &mr);
	EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));

	/* The MR begins and ends in the middle of a page. */
	mr.addr += 5000;
	mr.length -= 10001;
	ASSERT_EQ(0, reg(self, &mr));
	EXPECT_EQ(1, mr.out_segments);
	check_segments(_metadata, self, &mr);
	EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
}

TEST_F(ranges, hugetlb_needs_one_key)
{
	const size_t length = 8 * MiB;
	char *memory = mem_hugetlb(length);

	if (!memory)
		SKIP(return, "there are no huge pages to be had");
	check_contiguous(_metadata, self, memory, length);
	mem_free(memory, length);
}

TEST_F(ranges, transparent_huge_pages_need_one_key)
{
	const size_t length = 4 * MiB;
	char *memory = mem_thp(length);

	if (!memory)
		SKIP(return, "no transparent huge pages came");
	check_contiguous(_metadata, self, memory, length);
	mem_free(memory, length);
}

/* The errno that the header documents for access flags of MR_REGISTER. */
static int access_errno(__u32 access, __u32 supported, __u32 *reason)
{
	*reason = IB_MEMREG_REASON_ACCESS;
	if (access & ~KNOWN_ACCESS)
		return -EINVAL;
	*reason = IB_MEMREG_REASON_ACCESS_DEVICE;
	if (access & ~supported)
		return -EOPNOTSUPP;
	*reason = access & REMOTE_WRITE ? IB_MEMREG_REASON_REMOTE_WRITE :
					  IB_MEMREG_REASON_REMOTE_ATOMIC;
	if (access & (REMOTE_WRITE | REMOTE_ATOMIC) && !(access & LOCAL_WRITE))
		return -EINVAL;
	*reason = IB_MEMREG_REASON_NOT_PMEM;
	if (access & IB_MEMREG_ACCESS_FLUSH_PERSISTENT)
		return -EINVAL;
	return 0;
}

static void check_access(struct __test_metadata *_metadata,
			 FIXTURE_DATA(ranges) *self, __u32 access)
{
	struct ib_memreg_mr_register mr = {
		.addr = (uintptr_t)self->memory,
		.length = PAGE,
		.access = access,
	};
	__u32 reason;
	int err;

	err = access_errno(access, self->access, &reason);
	ASSERT_EQ(err, reg(self, &mr)) {
		TH_LOG("access %#x", access);
	}
	if (err) {
		ASSERT_EQ(reason, raw_reason()) {
			TH_LOG("access %#x", access);
		}
		return;
	}
	ASSERT_EQ(!!(access & REMOTE_ACCESS), mr.out_segments);
	ASSERT_EQ(!!(access & REMOTE_ACCESS), !!mr.out_rkey);
	ASSERT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
}

TEST_F_TIMEOUT(ranges, access_flags_in_all_combinations, 120)
{
	__u32 access = 0;

	/* All subsets of the known flags, and each unknown one. */
	do {
		check_access(_metadata, self, access);
		access = (access - KNOWN_ACCESS) & KNOWN_ACCESS;
	} while (access);
	for (access = 1; access; access <<= 1)
		if (!(access & KNOWN_ACCESS))
			check_access(_metadata, self, access | REMOTE_READ);
}

FIXTURE(windows) {
	int fd;
	__u32 domain;
	__u64 span;
	__u32 access;
	char *memory;
	size_t length;
	__u32 mr;
	__u32 window;
	struct state before;
};

/* The MR begins and ends within a page. */
FIXTURE_SETUP(windows)
{
	__u64 access;

	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_KEY_SPAN, &self->span));
	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_ACCESS, &access));
	self->access = access;
	self->length = 2 * self->span;
	self->memory = mem_alloc(self->length);
	ASSERT_NE(NULL, self->memory);
	self->length -= 200;
	self->memory += 100;
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory,
				  self->length, LOCAL_WRITE | MW_BIND,
				  &self->mr));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, self->span - PAGE,
				 &self->window, 1));
	ASSERT_EQ(0, state_get(&self->before));
}

FIXTURE_TEARDOWN(windows)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
}

/* Bind a window, check the answer, and revoke the window if that worked. */
static int try_bind(FIXTURE_DATA(windows) *self, struct ib_memreg_bind *bind)
{
	int ret;

	bind->window_id = self->window;
	if (!bind->mr_id)
		bind->mr_id = self->mr;
	if (!bind->access)
		bind->access = REMOTE_READ;
	ret = raw_bind(self->fd, self->domain, bind, 1);
	return ret ?: raw_revoke(self->fd, self->domain, &self->window, 1);
}

static int try_window(FIXTURE_DATA(windows) *self, __u64 offset, __u64 length)
{
	struct ib_memreg_bind bind = { .offset = offset, .length = length };

	return try_bind(self, &bind);
}

TEST_F(windows, I6_range_to_the_byte)
{
	const __u64 length = self->length;

	EXPECT_EQ(0, try_window(self, 0, 1));
	EXPECT_EQ(0, try_window(self, length - 1, 1));
	EXPECT_EQ(0, try_window(self, length - PAGE, PAGE));
	EXPECT_FAIL(EINVAL, ZERO_LENGTH, try_window(self, 0, 0));
	EXPECT_FAIL(EINVAL, ZERO_LENGTH, try_window(self, length, 0));
	EXPECT_FAIL(EINVAL, RANGE, try_window(self, length, 1));
	EXPECT_FAIL(EINVAL, RANGE, try_window(self, length - 1, 2));
	EXPECT_FAIL(EINVAL, RANGE, try_window(self, length - PAGE, PAGE + 1));
	EXPECT_FAIL(EINVAL, RANGE, try_window(self, 1ULL << 63, PAGE));
	EXPECT_FAIL(EOVERFLOW, WRAPS, try_window(self, ~0ULL, 1));
	EXPECT_FAIL(EOVERFLOW, WRAPS, try_window(self, 1, ~0ULL));
	EXPECT_FAIL(EOVERFLOW, WRAPS, try_window(self, -PAGE, PAGE));
}

TEST_F(windows, largest_span)
{
	const __u64 max = self->span - PAGE;
	struct ib_memreg_bind bind = { .length = 1, .access = REMOTE_READ };
	__u32 id;

	/*
	 * Windows at several offsets in a page, with page lists of one length
	 * or the next.
	 */
	EXPECT_EQ(0, try_window(self, 0, max));
	EXPECT_EQ(0, try_window(self, PAGE - 100, max));
	EXPECT_EQ(0, try_window(self, PAGE - 101, max));
	EXPECT_EQ(0, try_window(self, PAGE - 99, max));
	EXPECT_FAIL(EINVAL, SPAN, try_window(self, 0, max + 1));

	EXPECT_FAIL(EINVAL, SPAN, raw_windows(self->fd, self->domain, 0, &id,
					      1));
	EXPECT_FAIL(EINVAL, SPAN, raw_windows(self->fd, self->domain, max + 1,
					      &id, 1));
	EXPECT_FAIL(EINVAL, SPAN, raw_windows(self->fd, self->domain, ~0ULL,
					      &id, 1));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, 1, &id, 1));
	bind.window_id = id;
	bind.mr_id = self->mr;
	EXPECT_EQ(0, raw_bind(self->fd, self->domain, &bind, 1));
	EXPECT_EQ(0, raw_revoke(self->fd, self->domain, &id, 1));
	bind.length = 2;
	EXPECT_FAIL(EINVAL, SPAN, raw_bind(self->fd, self->domain, &bind, 1));
	EXPECT_EQ(0, raw_destroy(self->fd, id));
}

TEST_F(windows, io_addresses)
{
	struct ib_memreg_bind bind = { .offset = 12345, .length = 99 };

	EXPECT_EQ(0, try_bind(self, &bind));
	EXPECT_EQ((uintptr_t)self->memory + 12345, bind.out_iova);
	/* ZERO_BASED needs a range that begins at a page. */
	bind.access = REMOTE_READ | ZERO_BASED;
	EXPECT_FAIL(EINVAL, ZERO_BASED, try_bind(self, &bind));
	bind.offset = 3 * PAGE - 100;
	EXPECT_EQ(0, try_bind(self, &bind));
	EXPECT_EQ(0, bind.out_iova);
}

/* The errno that the header documents for access flags of a window. */
static int window_errno(FIXTURE_DATA(windows) *self, __u32 access, __u32 mr,
			__u32 *reason)
{
	const __u32 flush = IB_MEMREG_ACCESS_FLUSH_GLOBAL |
			    IB_MEMREG_ACCESS_FLUSH_PERSISTENT;

	*reason = IB_MEMREG_REASON_WINDOW_ACCESS;
	if (access & ~(REMOTE_ACCESS | ZERO_BASED))
		return -EINVAL;
	*reason = IB_MEMREG_REASON_NO_REMOTE;
	if (!(access & REMOTE_ACCESS))
		return -EINVAL;
	*reason = IB_MEMREG_REASON_ACCESS_MR;
	if (!(mr & MW_BIND) || access & flush & ~mr)
		return -EACCES;
	if (access & (REMOTE_WRITE | REMOTE_ATOMIC) && !(mr & LOCAL_WRITE))
		return -EACCES;
	*reason = IB_MEMREG_REASON_ACCESS_DEVICE;
	if (access & ~self->access)
		return -EOPNOTSUPP;
	return 0;
}

static void check_window_access(struct __test_metadata *_metadata,
				FIXTURE_DATA(windows) *self, __u32 mr,
				__u32 mr_access, __u32 access)
{
	struct ib_memreg_bind bind = {
		.window_id = self->window,
		.mr_id = mr,
		.length = PAGE,
		.access = access,
	};
	__u32 reason;
	int err;

	err = window_errno(self, access, mr_access, &reason);
	ASSERT_EQ(err, raw_bind(self->fd, self->domain, &bind, 1)) {
		TH_LOG("access %#x of an MR with %#x", access, mr_access);
	}
	if (err) {
		ASSERT_EQ(reason, raw_reason()) {
			TH_LOG("access %#x of an MR with %#x", access,
			       mr_access);
		}
		return;
	}
	ASSERT_NE(0, bind.out_rkey);
	ASSERT_EQ(0, raw_revoke(self->fd, self->domain, &self->window, 1));
}

TEST_F_TIMEOUT(windows, access_follows_the_MR, 120)
{
	const __u32 mr_access[] = {
		0, REMOTE_READ, LOCAL_WRITE | REMOTE_WRITE, MW_BIND,
		MW_BIND | REMOTE_READ, MW_BIND | LOCAL_WRITE,
		MW_BIND | LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ,
		MW_BIND | IB_MEMREG_ACCESS_FLUSH_GLOBAL,
	};
	const __u32 tried = REMOTE_ACCESS | ZERO_BASED | LOCAL_WRITE;
	unsigned int i;
	__u32 access, mr;

	for (i = 0; i < ARRAY_LEN(mr_access); i++) {
		if (mr_access[i] & ~self->access)
			continue;
		/*
		 * The ranges begin at a page, so that ZERO_BASED can be used
		 * with all other flags.
		 */
		ASSERT_EQ(0, raw_register(self->fd, self->domain,
					  self->memory + PAGE - 100, PAGE,
					  mr_access[i], &mr));
		access = 0;
		do {
			check_window_access(_metadata, self, mr, mr_access[i],
					    access);
			access = (access - tried) & tried;
		} while (access);
		check_window_access(_metadata, self, mr, mr_access[i],
				    MW_BIND | REMOTE_READ);
		check_window_access(_metadata, self, mr, mr_access[i],
				    1U << 31 | REMOTE_READ);
		ASSERT_EQ(0, raw_destroy(self->fd, mr));
	}
}

TEST_HARNESS_MAIN
