// SPDX-License-Identifier: GPL-2.0-only
/*
 * MRs on demand: a stock peer exchanges data with memory that is pinned when it
 * is used, whatever became of its mapping in between, and the counters say what
 * happened.
 *
 * time limit: 400
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "demand.h"

static const __u8 zeros[LEN];

/* Memory that was never touched is sent, and received into. */
TEST_F_TIMEOUT(demand, memory_that_was_never_touched, LIMIT_S)
{
	peer_gets(_metadata, self, self->mr, PAGE + 100, zeros, 3 * PAGE);
	adds_up(_metadata, self, 1);
	/* To send the same bytes again, or a part of them, causes no fault. */
	peer_gets(_metadata, self, self->mr, PAGE + 100, zeros, 3 * PAGE);
	peer_gets(_metadata, self, self->mr, 2 * PAGE, zeros, 8);
	adds_up(_metadata, self, 1);
	/* To receive into pages that are pinned for reading causes a fault. */
	peer_sends(_metadata, self, self->mr, 2 * PAGE, self->mem + 2 * PAGE,
		   300, 7);
	adds_up(_metadata, self, 2);
	/*
	 * Only pages that work requests named were pinned, and one more while
	 * the fault replaced those that were pinned for reading.
	 */
	EXPECT_GE(5 + 1,
		  query(_metadata, self, self->mr).out_demand.pinned_max);
	peer_gets(_metadata, self, self->mr, 2 * PAGE, self->mem + 2 * PAGE,
		  300);
	EXPECT_TRUE(filled(self->mem + 2 * PAGE, 300, 0, 7));
}

/* One MR_ADVISE with many ranges: mapped, not mapped, and empty */
TEST_F_TIMEOUT(demand, many_ranges_in_a_call, LIMIT_S)
{
	struct ib_memreg_sge sges[3] = {
		{ .mr_id = self->mr, .offset = 5, .length = 100 },
		{ .mr_id = self->mr, .offset = LEN, .length = 0 },
		{ .mr_id = self->mr, .offset = LEN - 9, .length = 9 },
	};
	struct ib_memreg_wr wrs[8];
	struct ibv_wc wc;
	unsigned int i;

	fill(self->mem, LEN, 3);
	for (i = 0; i < 8; i++) {
		ASSERT_EQ(0, stock_recv(self->stock, i * PAGE, PAGE));
		wrs[i] = WR(SEND, self->to, SGE(self->mr, i * PAGE, PAGE),
			    .flags = SIGNALED);
	}
	wrs[3] = WR(SEND, self->to, SGES(sges, 3), .flags = SIGNALED);
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 8));
	for (i = 0; i < 8; i++) {
		completes(_metadata, self, OP(SEND));
		ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
		EXPECT_EQ(i == 3 ? 109 : PAGE, wc.byte_len);
		if (i != 3)
			EXPECT_EQ(0, memcmp(self->stock->mem + i * PAGE,
					    self->mem + i * PAGE, PAGE));
	}
	EXPECT_EQ(0, memcmp(self->stock->mem + 3 * PAGE, self->mem + 5, 100));
	EXPECT_EQ(0, memcmp(self->stock->mem + 3 * PAGE + 100,
			    self->mem + LEN - 9, 9));
	/* Page 0 is there twice. */
	self->uses = 9;
	adds_up(_metadata, self, 8);
}

/*
 * A work request that fails in the middle of a call leaves those before it as
 * they are.
 */
TEST_F_TIMEOUT(demand, a_bad_one_among_good_ones, LIMIT_S)
{
	struct ib_memreg_wr wrs[3] = {
		WR(SEND, self->to, SGE(self->mr, 0, 64), .flags = SIGNALED),
		WR(SEND, self->to, SGE(self->mr, LEN, 1), .flags = SIGNALED),
		WR(SEND, self->to, SGE(self->mr, 0, 64), .flags = SIGNALED),
	};
	struct ibv_wc wc;

	ASSERT_EQ(0, stock_recv(self->stock, 0, 64));
	EXPECT_FAIL(EINVAL, RANGE, raw_submit(self->link.fd, wrs, 3));
	EXPECT_EQ(1, raw_taken());
	completes(_metadata, self, OP(SEND));
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	/* Nothing is mapped there any more. */
	ASSERT_EQ(0, munmap(self->mem + PAGE, PAGE));
	wrs[1].sge.offset = PAGE;
	ASSERT_EQ(0, stock_recv(self->stock, 0, 64));
	EXPECT_FAIL(EFAULT, UNMAPPED, raw_submit(self->link.fd, wrs, 3));
	EXPECT_EQ(1, raw_taken());
	completes(_metadata, self, OP(SEND));
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	/*
	 * After mmap(2) at the same address the new pages are pinned and used.
	 */
	ASSERT_NE(MAP_FAILED, mmap(self->mem + PAGE, PAGE, PROT_RW,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
				   0));
	memset(self->mem + PAGE, 9, PAGE);
	peer_gets(_metadata, self, self->mr, PAGE, self->mem + PAGE, PAGE);
}

static void map_anew(struct __test_metadata *_metadata, __u8 *mem, __u8 byte)
{
	ASSERT_EQ((void *)mem, mmap(mem, LEN, PROT_RW, MAP_PRIVATE |
				    MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	memset(mem, byte, LEN);
}

static __u64 invalidations(struct __test_metadata *_metadata,
			   FIXTURE_DATA(demand) *self)
{
	return query(_metadata, self, self->mr).out_demand.invalidations;
}

/* After the mapping changed, a work request reads the new pages. */
TEST_F_TIMEOUT(demand, I2_what_is_used_is_what_is_mapped, LIMIT_S)
{
	__u8 *moved;

	memset(self->mem, 1, LEN);
	peer_gets(_metadata, self, self->mr, 0, self->mem, LEN);
	ASSERT_EQ(0, munmap(self->mem, LEN));
	EXPECT_EQ(1, invalidations(_metadata, self));
	EXPECT_FAIL(EFAULT, UNMAPPED, post_send(self, self->mr, 0, 8));
	map_anew(_metadata, self->mem, 2);
	peer_gets(_metadata, self, self->mr, 0, self->mem, LEN);
	/* Over it, without a gap */
	map_anew(_metadata, self->mem, 3);
	EXPECT_EQ(2, invalidations(_metadata, self));
	peer_gets(_metadata, self, self->mr, 0, self->mem, LEN);
	/* Only a part of it */
	ASSERT_EQ(0, madvise(self->mem + PAGE, PAGE, MADV_DONTNEED));
	EXPECT_EQ(3, invalidations(_metadata, self));
	peer_gets(_metadata, self, self->mr, PAGE, zeros, PAGE);
	/* Away, and something else in its place */
	moved = mremap(self->mem, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED,
		       mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0));
	ASSERT_NE(MAP_FAILED, (void *)moved);
	map_anew(_metadata, self->mem, 4);
	peer_gets(_metadata, self, self->mr, 0, self->mem, LEN);
	ASSERT_EQ(0, munmap(moved, LEN));
	/* A SEND of memory that is mapped with PROT_NONE is refused. */
	ASSERT_EQ(0, mprotect(self->mem, LEN, PROT_NONE));
	EXPECT_FAIL(EFAULT, NOT_READABLE, post_send(self, self->mr, 0, 8));
	ASSERT_EQ(0, mprotect(self->mem, LEN, PROT_RW));
	peer_gets(_metadata, self, self->mr, 0, self->mem, LEN);
	adds_up(_metadata, self, 6);
}

/*
 * After fork(2) parent and child have pages of their own, whether pinned before
 * or not.
 */
TEST_F_TIMEOUT(demand, I2_copies_of_a_child_are_its_own, LIMIT_S)
{
	int up[2], down[2];
	char c = 0;
	pid_t child;

	memset(self->mem, 1, LEN);
	peer_gets(_metadata, self, self->mr, 0, self->mem, PAGE);
	ASSERT_EQ(0, pipe(up));
	ASSERT_EQ(0, pipe(down));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		memset(self->mem, 2, LEN);
		if (write(up[1], &c, 1) != 1 || read(down[0], &c, 1) != 1)
			_exit(1);
		/* What the parent received is not here. */
		_exit(self->mem[0] != 2 || self->mem[PAGE] != 2 ||
		      self->mem[2 * PAGE] != 2);
	}
	ASSERT_EQ(1, read(up[0], &c, 1));
	peer_gets(_metadata, self, self->mr, 0, self->mem, 2 * PAGE);
	EXPECT_EQ(1, self->mem[0]);
	peer_sends(_metadata, self, self->mr, 0, self->mem, PAGE, 5);
	peer_sends(_metadata, self, self->mr, 2 * PAGE, self->mem + 2 * PAGE,
		   PAGE, 6);
	ASSERT_EQ(1, write(down[1], &c, 1));
	ASSERT_TRUE(child_ended(child, &_metadata->exit_code));
}

/* Other kinds of memory */
FIXTURE(kinds)
{
	FIXTURE_DATA(demand) all;
	int file;
	__u8 *mem;
	__u32 mr;
	size_t len;
};

FIXTURE_VARIANT(kinds)
{
	int flags;		/* of mmap() */
	int prot;
	unsigned int memfd;	/* flags of it, or ~0 */
	bool disk;
	size_t len;
};

FIXTURE_VARIANT_ADD(kinds, shmem) {
	.flags = MAP_SHARED, .prot = PROT_RW, .memfd = 0, .len = LEN,
};

FIXTURE_VARIANT_ADD(kinds, shared_anonymous) {
	.flags = MAP_SHARED | MAP_ANONYMOUS, .prot = PROT_RW, .memfd = ~0U,
	.len = LEN,
};

FIXTURE_VARIANT_ADD(kinds, hugetlb) {
	.flags = MAP_SHARED, .prot = PROT_RW, .memfd = MFD_HUGETLB,
	.len = 2 * HUGE,
};

FIXTURE_VARIANT_ADD(kinds, private_file) {
	.flags = MAP_PRIVATE, .prot = PROT_RW, .memfd = ~0U, .disk = true,
	.len = LEN,
};

FIXTURE_VARIANT_ADD(kinds, file) {
	.flags = MAP_SHARED, .prot = PROT_READ, .memfd = ~0U, .disk = true,
	.len = LEN,
};

static int kinds_file(unsigned int memfd, bool disk)
{
	char name[] = "/var/tmp/memreg-demand-XXXXXX";
	int fd;

	if (!disk)
		return memfd == ~0U ? -1 : memfd_create("demand", memfd);
	fd = mkstemp(name);
	if (fd >= 0)
		unlink(name);
	return fd;
}

/* A file that was written, and whose mapping nobody has touched */
static void kinds_write_file(struct __test_metadata *_metadata,
			     FIXTURE_DATA(kinds) *self)
{
	__u8 *map;

	if (self->file < 0)
		return;
	ASSERT_EQ(0, ftruncate(self->file, self->len));
	map = mmap(NULL, self->len, PROT_RW, MAP_SHARED, self->file, 0);
	ASSERT_NE(MAP_FAILED, (void *)map);
	fill(map, self->len, 4);
	ASSERT_EQ(0, munmap(map, self->len));
}

FIXTURE_SETUP(kinds)
{
	__u32 access = variant->prot & PROT_WRITE ? LOCAL_WRITE : 0;

	if (variant->memfd == MFD_HUGETLB)
		ASSERT_EQ(0, file_write("/proc/sys/vm/nr_hugepages", "4"));
	demand_setup(_metadata, &self->all, NULL);
	self->len = variant->len;
	self->file = kinds_file(variant->memfd, variant->disk);
	kinds_write_file(_metadata, self);
	self->mem = mmap(NULL, self->len, variant->prot, variant->flags,
			 self->file, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->mem);
	ASSERT_EQ(0, register_mr(&self->all, self->mem, self->len, access,
				 ON_DEMAND, &self->mr));
}

FIXTURE_TEARDOWN(kinds)
{
	munmap(self->mem, self->len);
	if (self->file >= 0)
		close(self->file);
	demand_teardown(_metadata, &self->all, NULL);
	if (variant->memfd == MFD_HUGETLB)
		EXPECT_EQ(0, file_write("/proc/sys/vm/nr_hugepages", "0"));
}

TEST_F_TIMEOUT(kinds, are_used_as_they_are, LIMIT_S)
{
	size_t at = self->len - 3 * PAGE + 50;
	struct ib_memreg_mr_query q;
	__u8 copy[2 * PAGE];

	/* Read the file, so that no page of the mapping is touched. */
	memset(copy, 0, sizeof(copy));
	if (self->file >= 0)
		ASSERT_EQ(sizeof(copy), pread(self->file, copy, sizeof(copy),
					      at));
	peer_gets(_metadata, &self->all, self->mr, at, copy, sizeof(copy));
	if (variant->prot & PROT_WRITE)
		peer_sends(_metadata, &self->all, self->mr, at + 9,
			   self->mem + at + 9, PAGE, 8);
	peer_gets(_metadata, &self->all, self->mr, at, self->mem + at,
		  sizeof(copy));
	q = query(_metadata, &self->all, self->mr);
	EXPECT_EQ(variant->prot & PROT_WRITE ? 3 : 2,
		  q.out_demand.faults + q.out_demand.hits);
	EXPECT_EQ(IB_MEMREG_MR_LIVE, q.out_state);
	if (self->file < 0 || variant->flags & MAP_PRIVATE)
		return;
	ASSERT_EQ(sizeof(copy), pread(self->file, copy, sizeof(copy), at));
	EXPECT_EQ(0, memcmp(copy, self->mem + at, sizeof(copy)));
}

/* Punching a hole in the file unpins the pages that were in it. */
TEST_F_TIMEOUT(kinds, I2_holes_are_seen, LIMIT_S)
{
	if (self->file < 0 || variant->disk)
		return;
	peer_gets(_metadata, &self->all, self->mr, 0, self->mem, PAGE);
	ASSERT_EQ(0, fallocate(self->file, FALLOC_FL_PUNCH_HOLE |
			       FALLOC_FL_KEEP_SIZE, 0, self->len));
	peer_gets(_metadata, &self->all, self->mr, 0, zeros, PAGE);
}

/*
 * Wait until @pages are pinned, as idle ones are released. Returns what is
 * pinned then.
 */
static __u64 wait_for_pinned(struct __test_metadata *_metadata,
			     FIXTURE_DATA(demand) *self, __u64 pages)
{
	int64_t end = now_ms() + WAIT_MS;
	__u64 now;

	do {
		now = query(_metadata, self, self->mr).out_pinned;
	} while (now > pages && now_ms() < end && !usleep(10000));
	return now;
}

/*
 * Windows
 */

static int bind_window(FIXTURE_DATA(demand) *self, __u32 window, __u32 mr,
		       __u64 offset, __u64 length, __u32 access,
		       struct ib_memreg_bind *bind)
{
	*bind = (struct ib_memreg_bind) {
		.window_id = window, .mr_id = mr, .offset = offset,
		.length = length, .access = access,
	};
	return raw_bind(self->link.fd, self->link.domain, bind, 1);
}

/*
 * A window pins its range. When the mapping goes, the window's key dies, and
 * the MR lives on.
 */
TEST_F_TIMEOUT(demand, I1_windows_pin_what_they_are_on, LIMIT_S)
{
	struct stock *s = self->stock;
	struct ib_memreg_bind bind;
	__u32 window;

	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, LEN,
				 &window, 1));
	ASSERT_EQ(0, bind_window(self, window, self->mr, PAGE + 10, 2 * PAGE,
				 REMOTE_READ | REMOTE_WRITE, &bind));
	EXPECT_EQ((uintptr_t)self->mem + PAGE + 10, bind.out_iova);
	EXPECT_EQ(1, query(_metadata, self, self->mr).out_windows);
	EXPECT_EQ(3, query(_metadata, self, self->mr).out_pinned);
	EXPECT_FAIL(EBUSY, WINDOWS_BOUND, raw_destroy(self->link.fd, self->mr));
	fill(s->mem, 2 * PAGE, 5);
	EXPECT_EQ(0, stock_write(s, 0, 2 * PAGE, bind.out_iova, bind.out_rkey));
	EXPECT_TRUE(filled(self->mem + PAGE + 10, 2 * PAGE, 0, 5));
	memset(s->mem, 0, 2 * PAGE);
	EXPECT_EQ(0, stock_read(s, 0, 2 * PAGE, bind.out_iova, bind.out_rkey));
	EXPECT_TRUE(filled(s->mem, 2 * PAGE, 0, 5));
	/*
	 * Pages of a window stay pinned when others, which are idle, have been
	 * released.
	 */
	peer_gets(_metadata, self, self->mr, 8 * PAGE, zeros, PAGE);
	EXPECT_EQ(3, wait_for_pinned(_metadata, self, 3));
	ASSERT_EQ(0, raw_revoke(self->link.fd, self->link.domain, &window, 1));
	EXPECT_EQ(0, query(_metadata, self, self->mr).out_windows);
	/* Anew, and then the memory goes */
	ASSERT_EQ(0, bind_window(self, window, self->mr, PAGE, PAGE,
				 REMOTE_READ, &bind));
	ASSERT_EQ(0, munmap(self->mem, LEN));
	map_anew(_metadata, self->mem, 6);
	EXPECT_EQ(IB_MEMREG_MR_LIVE,
		  query(_metadata, self, self->mr).out_state);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, stock_read(s, 0, 8, bind.out_iova,
						    bind.out_rkey));
}

/*
 * BIND a window and SEND its key in one call, on memory that was not mapped
 * yet.
 */
TEST_F_TIMEOUT(demand, window_bound_on_the_send_queue, LIMIT_S)
{
	struct ib_memreg_wr wrs[2];
	struct ibv_wc wc;
	__u32 window;

	ASSERT_EQ(0, raw_windows_2b(self->link.fd, self->link.domain, LEN,
				    &window, 1));
	ASSERT_EQ(0, stock_recv(self->stock, 0, 64));
	wrs[0] = WR(BIND, self->to, .window_id = window,
		    .access = REMOTE_WRITE, .flags = SIGNALED);
	wrs[0].sge.mr_id = self->mr;
	wrs[0].sge.offset = 3 * PAGE + 8;
	wrs[0].sge.length = 5000;
	wrs[1] = WR(SEND, self->to, SGE(self->mr, 0, 64), .flags = SIGNALED);
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 2))
		TH_LOG("reason %u", raw_reason());
	completes(_metadata, self, OP(BIND));
	completes(_metadata, self, OP(SEND));
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	fill(self->stock->mem, 5000, 9);
	EXPECT_EQ(0, stock_write(self->stock, 0, 5000, wrs[0].remote_addr,
				 wrs[0].rkey));
	EXPECT_TRUE(filled(self->mem + 3 * PAGE + 8, 5000, 0, 9));
	self->uses = 2;
	adds_up(_metadata, self, 2);
	wrs[0] = WR(INVALIDATE, self->to, .window_id = window,
		    .flags = SIGNALED);
	ASSERT_EQ(0, raw_submit(self->link.fd, wrs, 1));
	completes(_metadata, self, OP(INVALIDATE));
	EXPECT_EQ(0, query(_metadata, self, self->mr).out_windows);
}

/*
 * The whole address space
 */

TEST_F_TIMEOUT(demand, implicit_is_all_there_is, LIMIT_S)
{
	static __u8 data[PAGE] = "in the data segment";
	__u8 stack[300] = "on the stack";
	struct ib_memreg_bind bind;
	__u32 all, window;
	__u64 top;

	ASSERT_EQ(0, register_mr(self, NULL, 0, LOCAL_WRITE | MW_BIND,
				 ON_DEMAND | IMPLICIT, &all));
	peer_gets(_metadata, self, all, (uintptr_t)data, data, sizeof(data));
	peer_gets(_metadata, self, all, (uintptr_t)stack, stack,
		  sizeof(stack));
	peer_sends(_metadata, self, all, (uintptr_t)self->mem + 11,
		   self->mem + 11, 3 * PAGE, 3);
	EXPECT_FAIL(EFAULT, UNMAPPED, post_send(self, all, PAGE, 8));
	top = query(_metadata, self, all).out_length;
	EXPECT_LT(1ULL << 40, top);
	EXPECT_FAIL(EFAULT, UNMAPPED, post_send(self, all, top - 8, 8));
	EXPECT_FAIL(EINVAL, RANGE, post_send(self, all, ~0ULL - 8, 8));
	peer_gets(_metadata, self, all, (uintptr_t)data, data, sizeof(data));
	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, LEN,
				 &window, 1));
	ASSERT_EQ(0, bind_window(self, window, all, (uintptr_t)data + 3, 16,
				 REMOTE_READ, &bind));
	EXPECT_EQ((uintptr_t)data + 3, bind.out_iova);
	EXPECT_EQ(0, stock_read(self->stock, 0, 16, bind.out_iova,
				bind.out_rkey));
	EXPECT_EQ(0, memcmp(self->stock->mem, data + 3, 16));
	EXPECT_EQ(IB_MEMREG_MR_LIVE, query(_metadata, self, all).out_state);
}

/*
 * Registration
 */

TEST_F_TIMEOUT(demand, registration_needs_no_mapping, LIMIT_S)
{
	__u64 length = 1ULL << 40;
	__u8 *reserved;
	__u32 mr;

	reserved = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
			MAP_NORESERVE, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)reserved);
	ASSERT_EQ(0, munmap(reserved, length));
	ASSERT_EQ(0, register_mr(self, reserved, length, LOCAL_WRITE,
				 ON_DEMAND, &mr));
	EXPECT_EQ(self->pinned, vm_pin(0));
	EXPECT_EQ(0, query(_metadata, self, mr).out_pinned);
	EXPECT_FAIL(EFAULT, UNMAPPED, post_send(self, mr, length / 2, 8));
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
}

/* It never goes stale, so its slot stays valid as long as it lives. */
TEST_F_TIMEOUT(demand, slot_is_valid_whatever_is_mapped, LIMIT_S)
{
	RAW(mr_register, mr, .flags = ON_DEMAND,
	    .domain_id = self->link.domain, .access = LOCAL_WRITE,
	    .addr = (uintptr_t)self->mem, .length = LEN);
	struct status_map map;

	ASSERT_EQ(0, status_create(self->link.fd, 1, 0, &map));
	mr.status_id = map.id;
	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REGISTER, &mr));
	EXPECT_NE(0, mr.out_generation);
	EXPECT_EQ(mr.out_generation, status_generation(&map, mr.out_slot));
	ASSERT_EQ(0, munmap(self->mem + PAGE, PAGE));
	EXPECT_EQ(mr.out_generation, status_generation(&map, mr.out_slot));
	EXPECT_EQ(IB_MEMREG_MR_LIVE,
		  query(_metadata, self, mr.out_mr_id).out_state);
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr.out_mr_id));
	EXPECT_NE(mr.out_generation, status_generation(&map, mr.out_slot));
	EXPECT_EQ(0, raw_destroy(self->link.fd, map.id));
	status_unmap(&map);
}

TEST_F_TIMEOUT(demand, what_it_cannot_be_is_refused, LIMIT_S)
{
	RAW(mr_compose, compose, .domain_id = self->link.domain, .count = 1);
	struct ib_memreg_piece piece = { .mr_id = self->mr, .length = PAGE };
	__u32 access[] = { REMOTE_READ, LOCAL_WRITE | REMOTE_WRITE,
			   LOCAL_WRITE | REMOTE_ATOMIC };
	unsigned int i;
	bool pages;
	__u32 mr;

	/* A device that pages by itself has such keys: see demand_keys. */
	pages = !register_mr(self, self->mem, LEN, access[0], ON_DEMAND, &mr);
	if (pages)
		ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	for (i = 0; !pages && i < ARRAY_LEN(access); i++)
		EXPECT_FAIL(EOPNOTSUPP, DEVICE_PAGING,
			    register_mr(self, self->mem, LEN, access[i],
					ON_DEMAND, &mr));
	EXPECT_FAIL(EOPNOTSUPP, DEVICE_PAGING,
		    register_mr(self, NULL, 0, REMOTE_READ,
				ON_DEMAND | IMPLICIT, &mr));
	EXPECT_FAIL(EINVAL, IMPLICIT, register_mr(self, self->mem, LEN, 0,
						  IMPLICIT, &mr));
	EXPECT_FAIL(EINVAL, ON_DEMAND_UNGUARDED,
		    register_mr(self, self->mem, LEN, 0, ON_DEMAND |
				IB_MEMREG_MR_UNGUARDED, &mr));
	EXPECT_FAIL(EINVAL, ON_DEMAND_FD,
		    register_mr(self, self->mem, LEN, 0, ON_DEMAND |
				IB_MEMREG_MR_FD, &mr));
	EXPECT_FAIL(EINVAL, IMPLICIT_RANGE,
		    register_mr(self, self->mem, LEN, 0, ON_DEMAND | IMPLICIT,
				&mr));
	EXPECT_FAIL(EINVAL, ZERO_LENGTH, register_mr(self, self->mem, 0, 0,
						     ON_DEMAND, &mr));
	compose.pieces = (uintptr_t)&piece;
	EXPECT_FAIL(EOPNOTSUPP, ON_DEMAND,
		    raw_call(self->link.fd, IB_MEMREG_IOC_MR_COMPOSE,
			     &compose));
	/* Without LOCAL_WRITE nothing is received there. */
	ASSERT_EQ(0, register_mr(self, self->mem, LEN, 0, ON_DEMAND, &mr));
	{
		struct ib_memreg_wr wr = WR(RECV, self->to, SGE(mr, 0, 8));

		EXPECT_FAIL(EACCES, LOCAL_WRITE,
			    raw_submit(self->link.fd, &wr, 1));
	}
	peer_gets(_metadata, self, mr, 0, self->mem, PAGE);
}

/* A child of the owner can use pages that are pinned, and cannot pin others. */
TEST_F_TIMEOUT(demand, only_its_process_pins, LIMIT_S)
{
	struct ib_memreg_bind bind;
	struct ibv_wc wc;
	__u32 window;

	memset(self->mem, 7, LEN);
	/* A window keeps its range pinned. */
	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, LEN,
				 &window, 1));
	ASSERT_EQ(0, bind_window(self, window, self->mr, 0, PAGE, REMOTE_READ,
				 &bind));
	ASSERT_EQ(0, stock_recv(self->stock, 0, 64));
	IN_CHILD {
		EXPECT_FAIL(EFAULT, PROCESS, post_send(self, self->mr, PAGE,
						       8));
		EXPECT_EQ(0, post_send(self, self->mr, 64, 64));
	}
	completes(_metadata, self, OP(SEND));
	ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
	EXPECT_EQ(0, memcmp(self->stock->mem, self->mem, 64));
}

TEST_F_TIMEOUT(demand, I8_reregistered, LIMIT_S)
{
	RAW(mr_reregister, cmd, .mr_id = self->mr,
	    .flags = IB_MEMREG_REREG_ACCESS, .access = LOCAL_WRITE);
	__u8 *other = self->mem + 4 * PAGE;

	fill(self->mem, LEN, 2);
	peer_gets(_metadata, self, self->mr, 0, self->mem, PAGE);
	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			      &cmd));
	EXPECT_EQ(0, query(_metadata, self, self->mr).out_pinned);
	peer_gets(_metadata, self, self->mr, PAGE, self->mem + PAGE, PAGE);
	cmd.flags = IB_MEMREG_REREG_TRANSLATION;
	cmd.access = 0;
	cmd.mr_flags = ON_DEMAND;
	cmd.addr = (uintptr_t)other;
	cmd.length = PAGE;
	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			      &cmd));
	peer_gets(_metadata, self, self->mr, 0, other, PAGE);
	/*
	 * Re-register the MR as one that is pinned, and then on demand again.
	 */
	cmd.mr_flags = 0;
	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			      &cmd));
	EXPECT_EQ(1, query(_metadata, self, self->mr).out_pinned);
	peer_gets(_metadata, self, self->mr, 0, other, PAGE);
	EXPECT_EQ(0, query(_metadata, self, self->mr).out_demand.faults);
	cmd.mr_flags = ON_DEMAND;
	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			      &cmd));
	EXPECT_EQ(0, query(_metadata, self, self->mr).out_pinned);
	peer_gets(_metadata, self, self->mr, 0, other, PAGE);
}

/*
 * The end
 */

/*
 * An MR with idle pages can be deregistered, and one with posted work cannot.
 */
TEST_F_TIMEOUT(demand, I1_deregistered_with_all_it_has_pinned, LIMIT_S)
{
	struct ib_memreg_wr wr = WR(RECV, self->to, SGE(self->mr, 0, 100));

	peer_gets(_metadata, self, self->mr, PAGE, zeros, 4 * PAGE);
	EXPECT_LT(self->pinned, vm_pin(0));
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->link.fd, self->mr));
	ASSERT_EQ(0, stock_send(self->stock, 0, 100));
	completes(_metadata, self, OP(RECV));
	peer_gets(_metadata, self, self->mr, PAGE, zeros, 4 * PAGE);
	EXPECT_EQ(0, raw_destroy(self->link.fd, self->mr));
	EXPECT_EQ(self->pinned, vm_pin(0));
}

/*
 * A posted receive keeps its pages though they are unmapped, and its entry is
 * marked stale.
 */
TEST_F_TIMEOUT(demand, I1_work_keeps_its_pages, LIMIT_S)
{
	struct ib_memreg_wr wr = WR(RECV, self->to, SGE(self->mr, 0, 100));
	union entry entry;

	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, munmap(self->mem, LEN));
	map_anew(_metadata, self->mem, 3);
	EXPECT_EQ(1, query(_metadata, self, self->mr).out_pinned);
	ASSERT_EQ(0, stock_send(self->stock, 0, 100));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(IB_MEMREG_WC_SUCCESS, entry.cqe.status);
	EXPECT_TRUE(entry.cqe.flags & IB_MEMREG_CQE_STALE);
	EXPECT_EQ(3, self->mem[0]);
}

TEST_F_TIMEOUT(demand, idle_pages_go_when_they_are_old, LIMIT_S)
{
	peer_gets(_metadata, self, self->mr, 0, zeros, LEN);
	EXPECT_EQ(LEN / PAGE,
		  query(_metadata, self, self->mr).out_demand.pinned_max);
	EXPECT_EQ(0, wait_for_pinned(_metadata, self, 0));
	EXPECT_EQ(self->pinned, vm_pin(0));
	EXPECT_EQ(0, invalidations(_metadata, self));
	peer_gets(_metadata, self, self->mr, 0, zeros, LEN);
	adds_up(_metadata, self, 2);
}

/*
 * RLIMIT_MEMLOCK
 */

static int drop_ipc_lock(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data))
		return -errno;
	data[0].effective &= ~(1U << CAP_IPC_LOCK);
	data[0].permitted &= ~(1U << CAP_IPC_LOCK);
	return syscall(SYS_capset, &head, data) ? -errno : 0;
}

#define ROOM		(8UL << 20)
#define STEP		LEN	/* in any pages, one message */

/* Transfers go through a region that is much larger than RLIMIT_MEMLOCK. */
TEST_F_TIMEOUT(demand, idle_pages_give_way_to_others, SOAK_S)
{
	struct rlimit limit = { .rlim_cur = ROOM, .rlim_max = ROOM };
	size_t at, region = test_full() && !debug_kernel() ? 1UL << 30 :
							     64UL << 20;
	__u8 *mem = mem_alloc(region);
	__u32 mr, other, pinned;

	ASSERT_NE(NULL, mem);
	/*
	 * The pages that the stock end has pinned count against the same limit.
	 */
	limit.rlim_cur += vm_pin(0) * PAGE;
	limit.rlim_max = limit.rlim_cur;
	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	ASSERT_EQ(0, drop_ipc_lock());
	EXPECT_FAIL(ENOMEM, MEMLOCK,
		    raw_register(self->link.fd, self->link.domain, mem, region,
				 0, &pinned));
	ASSERT_EQ(0, register_mr(self, mem, region, LOCAL_WRITE, ON_DEMAND,
				 &mr));
	ASSERT_EQ(0, register_mr(self, mem, region, LOCAL_WRITE, ON_DEMAND,
				 &other));
	for (at = 0; at < region; at += STEP) {
		memset(mem + at, at / STEP + 1, STEP);
		peer_gets(_metadata, self, at / STEP % 2 ? mr : other, at,
			  mem + at, STEP);
		EXPECT_GE(limit.rlim_cur / PAGE, vm_pin(0));
	}
	EXPECT_LT(STEP / PAGE,
		  query(_metadata, self, mr).out_demand.pinned_max);
	EXPECT_GE(ROOM / PAGE,
		  query(_metadata, self, mr).out_demand.pinned_max);
	/* More than the limit at once */
	EXPECT_FAIL(ENOMEM, MEMLOCK,
		    post_send(self, mr, 0, ROOM + (1 << 20)));
	/*
	 * Registering other memory unpins idle pages, and takes their room
	 * under the limit.
	 */
	EXPECT_EQ(0, raw_register(self->link.fd, self->link.domain, mem,
				  ROOM - STEP, 0, &pinned));
	mem_free(mem, region);
}

/* What the limit can never allow unpins nothing to make room for it. */
TEST_F_TIMEOUT(demand, I8_more_than_the_limit_leaves_idle_pages, LIMIT_S)
{
	const size_t region = 64 * MiB, idle = 4 * MiB, more = 32 * MiB;
	__u64 room = ROOM + vm_pin(0) * PAGE;
	struct rlimit limit = { .rlim_cur = room, .rlim_max = room };
	struct ib_memreg_range range;
	__u8 *mem = mem_alloc(region);
	__u32 mr, other;

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	ASSERT_EQ(0, drop_ipc_lock());
	ASSERT_EQ(0, register_mr(self, mem, region, LOCAL_WRITE, ON_DEMAND,
				 &mr));
	range = RANGE(mr, 0, idle);
	ASSERT_EQ(1, advise(self, ADVICE(PREFETCH), WAIT, &range, 1));
	ASSERT_EQ(0, range.out_error);
	EXPECT_EQ(idle / PAGE, query(_metadata, self, mr).out_pinned);
	range = RANGE(mr, 0, more);
	ASSERT_EQ(1, advise(self, ADVICE(PREFETCH), WAIT, &range, 1));
	EXPECT_EQ(ENOMEM, range.out_error);
	EXPECT_EQ(IB_MEMREG_REASON_MEMLOCK, range.out_reason);
	EXPECT_FAIL(ENOMEM, MEMLOCK, post_send(self, mr, 0, more));
	EXPECT_FAIL(ENOMEM, MEMLOCK,
		    raw_register(self->link.fd, self->link.domain, mem, more,
				 0, &other));
	EXPECT_EQ(idle / PAGE, query(_metadata, self, mr).out_pinned);
	/* What it allows without them takes their room. */
	range = RANGE(mr, idle, ROOM - MiB);
	ASSERT_EQ(1, advise(self, ADVICE(PREFETCH), WAIT, &range, 1));
	EXPECT_EQ(0, range.out_error);
	EXPECT_EQ((ROOM - MiB) / PAGE, query(_metadata, self, mr).out_pinned);
	mem_free(mem, region);
}

#define RANGES	256U

struct unmapping {
	pthread_barrier_t begin;
	__u8 *mem;
};

static void *unmap_it(void *arg)
{
	struct unmapping *unmapping = arg;

	pthread_barrier_wait(&unmapping->begin);
	munmap(unmapping->mem, RANGES * PAGE);
	return NULL;
}

/* What is pinned and idle goes with the MR, whatever happens to the mapping. */
TEST_F_TIMEOUT(demand, I7_destroyed_while_its_mapping_goes, LIMIT_S)
{
	struct ib_memreg_range ranges[RANGES];
	unsigned int round, rounds = test_rounds(20), i;
	struct unmapping unmapping;
	pthread_t thread;
	__u32 mr;

	pthread_barrier_init(&unmapping.begin, NULL, 2);
	for (round = 0; round < rounds; round++) {
		unmapping.mem = mmap(NULL, RANGES * PAGE, PROT_RW,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ASSERT_NE(MAP_FAILED, (void *)unmapping.mem);
		ASSERT_EQ(0, register_mr(self, unmapping.mem, RANGES * PAGE,
					 LOCAL_WRITE, ON_DEMAND, &mr));
		for (i = 0; i < RANGES; i++)
			ranges[i] = RANGE(mr, i * PAGE, PAGE);
		ASSERT_EQ(RANGES, advise(self, ADVICE(PREFETCH_WRITE), WAIT,
					 ranges, RANGES));
		EXPECT_EQ(RANGES, query(_metadata, self, mr).out_pinned);
		ASSERT_EQ(0, pthread_create(&thread, NULL, unmap_it,
					    &unmapping));
		pthread_barrier_wait(&unmapping.begin);
		EXPECT_EQ(0, raw_destroy(self->link.fd, mr));
		ASSERT_EQ(0, pthread_join(thread, NULL));
	}
	pthread_barrier_destroy(&unmapping.begin);
	EXPECT_EQ(self->pinned, vm_pin(0));
}

/*
 * Advice
 */

TEST_F_TIMEOUT(demand, prefetch_saves_the_faults, LIMIT_S)
{
	struct ib_memreg_range range = RANGE(self->mr, 0, LEN);
	struct ib_memreg_mr_query q;
	unsigned int i;

	ASSERT_EQ(1, advise(self, ADVICE(PREFETCH_WRITE), 0, &range, 1));
	EXPECT_EQ(0, range.out_error);
	EXPECT_EQ(LEN / PAGE, range.out_pages);
	for (i = 0; i < 8; i++)
		peer_sends(_metadata, self, self->mr, i * PAGE,
			   self->mem + i * PAGE, 100, i);
	adds_up(_metadata, self, 0);
	q = query(_metadata, self, self->mr);
	EXPECT_EQ(1, q.out_demand.prefetches);
	EXPECT_EQ(1, q.out_demand.prefetch_hits);
	/* It is there, for reading, too. */
	ASSERT_EQ(1, advise(self, ADVICE(PREFETCH), WAIT, &range, 1));
	EXPECT_EQ(0, range.out_error);
	EXPECT_EQ(0, range.out_pages);
	EXPECT_EQ(1, query(_metadata, self, self->mr).out_demand.prefetches);
	ASSERT_EQ(1, advise(self, ADVICE(DROP), 0, &range, 1));
	EXPECT_EQ(LEN / PAGE, range.out_pages);
	EXPECT_EQ(0, query(_metadata, self, self->mr).out_pinned);
	EXPECT_EQ(self->pinned, vm_pin(0));
}

TEST_F_TIMEOUT(demand, no_fault_faults_nothing_in, LIMIT_S)
{
	struct ib_memreg_range range = RANGE(self->mr, 0, LEN);
	unsigned char there[LEN / PAGE];
	unsigned int i, n = 0;

	ASSERT_EQ(1, advise(self, ADVICE(PREFETCH_NO_FAULT), 0, &range, 1));
	EXPECT_EQ(0, range.out_error);
	EXPECT_EQ(0, range.out_pages);
	for (i = 0; i < LEN / PAGE; i += 3, n++)
		self->mem[i * PAGE] = 1;
	ASSERT_EQ(1, advise(self, ADVICE(PREFETCH_NO_FAULT), 0, &range, 1));
	EXPECT_EQ(0, range.out_error);
	EXPECT_EQ(n, range.out_pages);
	EXPECT_EQ(n, query(_metadata, self, self->mr).out_pinned);
	ASSERT_EQ(0, mincore(self->mem, LEN, there));
	for (i = 0; i < LEN / PAGE; i++)
		EXPECT_EQ(i % 3 == 0, there[i] & 1);
	for (i = 0; i < LEN / PAGE; i += 3)
		peer_gets(_metadata, self, self->mr, i * PAGE,
			  self->mem + i * PAGE, PAGE);
	adds_up(_metadata, self, 0);
	EXPECT_EQ(n, query(_metadata, self, self->mr).out_demand.prefetch_hits);
}

TEST_F_TIMEOUT(demand, each_range_has_its_outcome, LIMIT_S)
{
	struct ib_memreg_range ranges[] = {
		RANGE(self->mr, 0, 8),
		RANGE(12345, 0, 8),
		RANGE(self->mr, LEN, 1),
		RANGE(self->mr, ~0ULL, 2),
		RANGE(self->mr, 0, 0),
		RANGE(self->mr, 0, 8, .reserved = 1),
		RANGE(0, 0, 8),
		RANGE(self->mr, 2 * PAGE, 8),
		RANGE(self->mr, PAGE, 8),
	};
	static const struct { __u32 error, reason; } expect[] = {
		{ 0, IB_MEMREG_REASON_NONE },
		{ ENOENT, IB_MEMREG_REASON_ID },
		{ EINVAL, IB_MEMREG_REASON_RANGE },
		{ EOVERFLOW, IB_MEMREG_REASON_WRAPS },
		{ EINVAL, IB_MEMREG_REASON_ZERO_LENGTH },
		{ EINVAL, IB_MEMREG_REASON_RESERVED },
		{ EINVAL, IB_MEMREG_REASON_NOT_ON_DEMAND },
		{ EFAULT, IB_MEMREG_REASON_UNMAPPED },
		{ 0, IB_MEMREG_REASON_NONE },
	};
	unsigned int i, wait;
	__u32 pinned;

	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, self->mem,
				  PAGE, 0, &pinned));
	ranges[6].mr_id = pinned;
	ASSERT_EQ(0, munmap(self->mem + 2 * PAGE, PAGE));
	for (wait = 0; wait < 2; wait++) {
		ASSERT_EQ(ARRAY_LEN(ranges),
			  advise(self, ADVICE(PREFETCH), wait ? WAIT : 0,
				 ranges, ARRAY_LEN(ranges)));
		for (i = 0; i < ARRAY_LEN(ranges); i++) {
			EXPECT_EQ(expect[i].error, ranges[i].out_error)
				TH_LOG("range %u", i);
			EXPECT_EQ(expect[i].reason, ranges[i].out_reason)
				TH_LOG("range %u", i);
			EXPECT_EQ(!wait && !expect[i].error,
				  ranges[i].out_pages);
		}
	}
}

TEST_F_TIMEOUT(demand, advice_is_checked, LIMIT_S)
{
	struct ib_memreg_range range = RANGE(self->mr, 0, 8);
	__u32 mr;

	EXPECT_FAIL(EINVAL, ADVICE, advise(self, 0, 0, &range, 1));
	EXPECT_FAIL(EINVAL, ADVICE, advise(self, ADVICE(DROP) + 1, 0, &range,
					   1));
	EXPECT_FAIL(EINVAL, ADVICE, advise(self, 64 + ADVICE(DROP), 0, &range,
					   1));
	EXPECT_FAIL(EOPNOTSUPP, FLAGS, advise(self, ADVICE(DROP), 2, &range,
					      1));
	EXPECT_FAIL(EINVAL, COUNT, advise(self, ADVICE(DROP), 0, &range, 0));
	EXPECT_FAIL(EINVAL, COUNT, advise(self, ADVICE(DROP), 0, &range,
					  IB_MEMREG_BATCH_MAX + 1));
	EXPECT_EQ(-EFAULT, advise(self, ADVICE(DROP), 0, NULL, 1));
	ASSERT_EQ(0, register_mr(self, self->mem, LEN, 0, ON_DEMAND, &mr));
	range.mr_id = mr;
	ASSERT_EQ(1, advise(self, ADVICE(PREFETCH_WRITE), 0, &range, 1));
	EXPECT_EQ(EACCES, range.out_error);
	EXPECT_EQ(IB_MEMREG_REASON_LOCAL_WRITE, range.out_reason);
}

TEST_HARNESS_MAIN
