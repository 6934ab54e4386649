// SPDX-License-Identifier: GPL-2.0-only
/*
 * MRs on demand and what becomes of memory between one use and the next: it is
 * in swap, merged with equal pages, moved, made part of a huge page or split
 * off one, or write-protected by a userfaultfd. A stock peer gets, and changes,
 * what the owner sees. Then the whole address space: ranges at random, mapped
 * and not, and a terabyte of which little is used.
 *
 * time limit: 300
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "demand.h"
#include "reclaim.h"

static __u8 copy[LEN];

/*
 * Put an MR on demand of @mem in place of the fixture's, which adds_up() looks
 * at.
 */
static void demand_on(struct __test_metadata *_metadata,
		      FIXTURE_DATA(demand) *self, void *mem, size_t length)
{
	ASSERT_EQ(0, register_mr(self, mem, length, LOCAL_WRITE, ON_DEMAND,
				 &self->mr));
	self->uses = 0;
}

/*
 * Unpin all pages of the MR, so that the kernel can move them or swap them out.
 */
static void let_go(struct __test_metadata *_metadata,
		   FIXTURE_DATA(demand) *self, size_t length)
{
	struct ib_memreg_range range = RANGE(self->mr, 0, length);

	ASSERT_EQ(1, advise(self, ADVICE(DROP), 0, &range, 1));
	ASSERT_EQ(0, query(_metadata, self, self->mr).out_pinned);
}

/*
 * The peer receives what the owner has in memory, and the owner what the peer
 * sends.
 */
static void exchange(struct __test_metadata *_metadata,
		     FIXTURE_DATA(demand) *self, const __u8 *mem,
		     unsigned int seed)
{
	peer_gets(_metadata, self, self->mr, 0, copy, LEN);
	peer_sends(_metadata, self, self->mr, PAGE + 9, mem + PAGE + 9,
		   2 * PAGE, seed);
	/* No byte has changed but those that the peer has sent. */
	EXPECT_EQ(0, memcmp(mem, copy, PAGE + 9));
	EXPECT_EQ(0, memcmp(mem + 3 * PAGE + 9, copy + 3 * PAGE + 9,
			    LEN - 3 * PAGE - 9));
	EXPECT_EQ(IB_MEMREG_MR_LIVE,
		  query(_metadata, self, self->mr).out_state);
}

/*
 * Swap
 */

static void page_out(struct __test_metadata *_metadata,
		     FIXTURE_DATA(demand) *self, __u8 *mem)
{
	fill(mem, LEN, 3);
	memcpy(copy, mem, LEN);
	peer_gets(_metadata, self, self->mr, 0, copy, LEN);
	let_go(_metadata, self, LEN);
	ASSERT_EQ(0, madvise(mem, LEN, MADV_PAGEOUT));
	EXPECT_EQ((long)LEN >> 10, swapped_kib(mem));
	exchange(_metadata, self, mem, 4);
	EXPECT_EQ(0, swapped_kib(mem));
	let_go(_metadata, self, LEN);
	/* A message arrives in a page that was paged out. */
	ASSERT_EQ(0, madvise(mem, LEN, MADV_PAGEOUT));
	peer_sends(_metadata, self, self->mr, 5 * PAGE, mem + 5 * PAGE, 100,
		   5);
	EXPECT_EQ(0, memcmp(mem + 5 * PAGE + 100, copy + 5 * PAGE + 100,
			    PAGE - 100));
	/*
	 * Faults: all of the memory to send, pages to receive into, and the
	 * page that was paged out
	 */
	adds_up(_metadata, self, 4);
}

TEST_F_TIMEOUT(demand, private_memory_in_swap, LIMIT_S)
{
	const char *missing = swap_on();
	__u8 *mem = mem_alloc(LEN);

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, stay_here());
	ASSERT_EQ(0, madvise(mem, LEN, MADV_NOHUGEPAGE));
	demand_on(_metadata, self, mem, LEN);
	page_out(_metadata, self, mem);
	mem_free(mem, LEN);
	EXPECT_EQ(0, swap_off());
}

TEST_F_TIMEOUT(demand, shared_memory_in_swap, LIMIT_S)
{
	const char *missing = swap_on();
	int file = memfd_create("demand", MFD_CLOEXEC);
	__u8 *mem;

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, stay_here());
	ASSERT_LE(0, file);
	ASSERT_EQ(0, ftruncate(file, LEN));
	mem = mmap(NULL, LEN, PROT_RW, MAP_SHARED, file, 0);
	ASSERT_NE(MAP_FAILED, (void *)mem);
	demand_on(_metadata, self, mem, LEN);
	page_out(_metadata, self, mem);
	munmap(mem, LEN);
	close(file);
	EXPECT_EQ(0, swap_off());
}

/*
 * Pages that are merged, and moved
 */

TEST_F_TIMEOUT(demand, pages_that_were_merged, LIMIT_S)
{
	const char *sharing = "/sys/kernel/mm/ksm/pages_sharing";
	__u8 *mem, *other;

	if (!ksm_on())
		SKIP(return, "this kernel has no KSM");
	mem = mem_alloc(2 * LEN);
	ASSERT_NE(NULL, mem);
	other = mem + LEN;
	ASSERT_EQ(0, madvise(mem, 2 * LEN, MADV_NOHUGEPAGE));
	memset(mem, 0x5a, 2 * LEN);
	memset(copy, 0x5a, LEN);
	demand_on(_metadata, self, mem, LEN);
	ASSERT_EQ(0, madvise(mem, 2 * LEN, MADV_MERGEABLE));
	ASSERT_TRUE(ksm_scans(4));
	/* KSM has merged the pages of both areas, the MR's too, into one. */
	EXPECT_LE(2 * (long)(LEN / PAGE) - 1, file_number(sharing));
	exchange(_metadata, self, mem, 6);
	EXPECT_EQ(0, memcmp(other, copy, LEN));
	/* KSM does not merge pages that are pinned: the mapping keeps them. */
	ASSERT_TRUE(ksm_scans(4));
	peer_sends(_metadata, self, self->mr, 7 * PAGE, mem + 7 * PAGE, PAGE,
		   7);
	EXPECT_EQ(0, memcmp(other, copy, LEN));
	EXPECT_EQ(0, file_write("/sys/kernel/mm/ksm/run", "2"));
	peer_gets(_metadata, self, self->mr, 0, mem, LEN);
	mem_free(mem, 2 * LEN);
}

static __u64 frame(const void *addr)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	__u64 entry = 0;

	if (fd < 0)
		return 0;
	if (pread(fd, &entry, sizeof(entry), (uintptr_t)addr / PAGE * 8) !=
	    sizeof(entry))
		entry = 0;
	close(fd);
	return entry & ((1ULL << 55) - 1);
}

TEST_F_TIMEOUT(demand, pages_that_were_moved, LIMIT_S)
{
	__u64 before;

	ASSERT_EQ(0, madvise(self->mem, LEN, MADV_NOHUGEPAGE));
	fill(self->mem, LEN, 3);
	memcpy(copy, self->mem, LEN);
	peer_gets(_metadata, self, self->mr, 0, copy, LEN);
	let_go(_metadata, self, LEN);
	before = frame(self->mem + PAGE);
	if (madvise(self->mem + PAGE, PAGE, MADV_SOFT_OFFLINE))
		SKIP(return, "this kernel takes no pages offline");
	EXPECT_NE(before, frame(self->mem + PAGE));
	ASSERT_EQ(0, file_write("/proc/sys/vm/compact_memory", "1"));
	exchange(_metadata, self, self->mem, 4);
}

/*
 * Huge pages
 */

TEST_F_TIMEOUT(demand, pages_that_were_collapsed, LIMIT_S)
{
	__u8 *mem = mem_alloc(2 * HUGE), *start;

	ASSERT_NE(NULL, mem);
	start = (__u8 *)(((uintptr_t)mem + HUGE - 1) & -HUGE);
	ASSERT_EQ(0, madvise(mem, 2 * HUGE, MADV_NOHUGEPAGE));
	fill(start, HUGE, 3);
	memcpy(copy, start, LEN);
	demand_on(_metadata, self, start, HUGE);
	peer_gets(_metadata, self, self->mr, 0, copy, LEN);
	let_go(_metadata, self, HUGE);
	ASSERT_EQ(0, madvise(mem, 2 * HUGE, MADV_HUGEPAGE));
	if (madvise(start, HUGE, MADV_COLLAPSE))
		SKIP(return, "this kernel can't collapse pages on demand");
	exchange(_metadata, self, start, 4);
	EXPECT_TRUE(filled(start + LEN, HUGE - LEN, LEN, 3));
	mem_free(mem, 2 * HUGE);
}

TEST_F_TIMEOUT(demand, pages_that_were_split, LIMIT_S)
{
	__u8 *mem = mem_thp(HUGE), *last = mem + HUGE - PAGE;

	if (!mem)
		SKIP(return, "no transparent huge pages came");
	fill(mem, HUGE, 3);
	memcpy(copy, mem, LEN);
	demand_on(_metadata, self, mem, HUGE);
	peer_gets(_metadata, self, self->mr, 0, copy, LEN);
	peer_gets(_metadata, self, self->mr, HUGE - PAGE, last, PAGE);
	/*
	 * A change of protection splits the mapping of the huge page,
	 * MADV_DONTNEED then the page.
	 */
	ASSERT_EQ(0, mprotect(last, PAGE, PROT_READ));
	ASSERT_EQ(0, mprotect(last, PAGE, PROT_RW));
	exchange(_metadata, self, mem, 4);
	ASSERT_EQ(0, madvise(last, PAGE, MADV_DONTNEED));
	memset(copy, 0, PAGE);
	peer_gets(_metadata, self, self->mr, HUGE - PAGE, copy, PAGE);
	peer_gets(_metadata, self, self->mr, 0, mem, LEN);
	mem_free(mem, HUGE);
}

/*
 * userfaultfd
 */

/**
 * struct protector - Memory that is protected from being written to
 * @fd: The userfaultfd
 * @range: What it protects
 * @faults: Attempts to write that it has seen, after which nothing is
 */
struct protector {
	int fd;
	struct uffdio_range range;
	unsigned int faults;
};

static int protect(struct protector *p, __u64 mode)
{
	struct uffdio_writeprotect wp = { .range = p->range, .mode = mode };

	return ioctl(p->fd, UFFDIO_WRITEPROTECT, &wp);
}

/* Remove the protection from all of the range when the first write faults. */
static void *let_write(void *arg)
{
	struct protector *p = arg;
	struct pollfd pfd = { .fd = p->fd, .events = POLLIN };
	struct uffd_msg msg;

	if (poll(&pfd, 1, LIMIT_MS) == 1 &&
	    read(p->fd, &msg, sizeof(msg)) == sizeof(msg) &&
	    msg.event == UFFD_EVENT_PAGEFAULT &&
	    msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP)
		p->faults++;
	protect(p, 0);
	return NULL;
}

TEST_F_TIMEOUT(demand, memory_that_is_protected_by_userfaultfd, LIMIT_S)
{
	struct uffdio_api api = {
		.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP,
	};
	struct protector p = {
		.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC),
		.range = { .start = (uintptr_t)self->mem, .len = LEN },
	};
	struct uffdio_register reg = {
		.range = p.range, .mode = UFFDIO_REGISTER_MODE_WP,
	};
	unsigned int round;
	pthread_t thread;

	if (p.fd < 0 || ioctl(p.fd, UFFDIO_API, &api) ||
	    ioctl(p.fd, UFFDIO_REGISTER, &reg))
		SKIP(return, "this kernel has no write protection by userfaultfd");
	fill(self->mem, LEN, 3);
	memcpy(copy, self->mem, LEN);
	/*
	 * In the second round, the pages that were pinned for writing are still
	 * pinned.
	 */
	for (round = 1; round <= 2; round++) {
		ASSERT_EQ(0, protect(&p, UFFDIO_WRITEPROTECT_MODE_WP));
		peer_gets(_metadata, self, self->mr, 0, copy, LEN);
		EXPECT_EQ(round - 1, p.faults);
		ASSERT_EQ(0, pthread_create(&thread, NULL, let_write, &p));
		peer_sends(_metadata, self, self->mr, 2 * PAGE,
			   self->mem + 2 * PAGE, PAGE, 4);
		ASSERT_EQ(0, pthread_join(thread, NULL));
		EXPECT_EQ(round, p.faults);
		memcpy(copy, self->mem, LEN);
	}
	close(p.fd);
}

/*
 * The whole address space
 */

#define AREAS		64
#define AREA_PAGES	16
#define SLOT		(4 * PAGE)
#define BATCH		8

/* Map an area at a random address, with unmapped memory around it. */
static __u8 *map_area(unsigned int *seed)
{
	for (;;) {
		uintptr_t at = ((__u64)rand_r(seed) << 31 ^ rand_r(seed)) %
			       (1ULL << 46) & -PAGE;
		void *mem = mmap((void *)at, AREA_PAGES * PAGE, PROT_RW,
				 MAP_PRIVATE | MAP_ANONYMOUS |
				 MAP_FIXED_NOREPLACE, -1, 0);

		if (mem != MAP_FAILED)
			return mem;
	}
}

/*
 * Choose a range in an area, across the end of one, or in unmapped memory.
 * Returns true if all of it is mapped.
 */
static bool pick_range(__u8 *const *areas, unsigned int *seed, __u64 *at,
		       __u32 *length)
{
	__u32 room = AREA_PAGES * PAGE, offset = rand_r(seed) % room;

	*at = (uintptr_t)areas[rand_r(seed) % AREAS] + offset;
	*length = 1 + rand_r(seed) % SLOT;
	switch (rand_r(seed) % 8) {
	case 0:		/* far away */
		*at = (__u64)rand_r(seed) << 15;
		return false;
	case 1:		/* from the end */
		*at += room - offset;
		return false;
	}
	return offset + *length <= room;
}

/*
 * Submit work requests: those before the first on unmapped memory are sent, and
 * that one is refused. Returns the number of those that were handled.
 */
static unsigned int send_some(struct __test_metadata *_metadata,
			      FIXTURE_DATA(demand) *self,
			      struct ib_memreg_wr *wrs, const bool *good,
			      unsigned int n)
{
	unsigned int i, taken = 0;
	struct ibv_wc wc;

	while (taken < n && good[taken])
		taken++;
	for (i = 0; i < taken; i++)
		ASSERT_EQ(0, stock_recv(self->stock, i * SLOT, SLOT));
	if (taken == n) {
		ASSERT_EQ(0, raw_submit(self->link.fd, wrs, n));
	} else {
		ASSERT_EQ(-EFAULT, raw_submit(self->link.fd, wrs, n));
		ASSERT_EQ(IB_MEMREG_REASON_UNMAPPED, raw_reason());
		ASSERT_EQ(taken, raw_taken());
	}
	for (i = 0; i < taken; i++) {
		completes(_metadata, self, OP(SEND));
		ASSERT_EQ(0, stock_next(&self->stock->received, &wc));
		ASSERT_EQ(wrs[i].sge.length, wc.byte_len);
		EXPECT_EQ(0, memcmp(self->stock->mem + i * SLOT,
				    (void *)(uintptr_t)wrs[i].sge.offset,
				    wc.byte_len));
	}
	return taken == n ? n : taken + 1;
}

/* Work requests on unmapped ranges fail, and no others fail with them. */
TEST_F_TIMEOUT(demand, ranges_at_random_in_all_there_is, SOAK_S)
{
	unsigned int seed = test_seed(), done = 0, missing = 0;
	unsigned int i, n, from, ranges = times(1000, 10000);
	struct ib_memreg_wr wrs[BATCH];
	__u8 *areas[AREAS];
	bool good[BATCH];
	__u32 length, all;
	__u64 at;

	TH_LOG("seed %u", seed);
	ASSERT_EQ(0, register_mr(self, NULL, 0, LOCAL_WRITE,
				 ON_DEMAND | IMPLICIT, &all));
	for (i = 0; i < AREAS; i++) {
		areas[i] = map_area(&seed);
		fill(areas[i], AREA_PAGES * PAGE, i);
	}
	while (done < ranges) {
		n = 1 + rand_r(&seed) % BATCH;
		for (i = 0; i < n; i++) {
			good[i] = pick_range(areas, &seed, &at, &length);
			missing += !good[i];
			wrs[i] = WR(SEND, self->to, SGE(all, at, length),
				    .flags = SIGNALED);
		}
		for (from = 0; from < n;)
			from += send_some(_metadata, self, wrs + from,
					  good + from, n - from);
		done += n;
	}
	TH_LOG("%u ranges, %u of them not mapped", done, missing);
	EXPECT_LT(0, missing);
	EXPECT_EQ(IB_MEMREG_MR_LIVE, query(_metadata, self, all).out_state);
	for (i = 0; i < AREAS; i++)
		munmap(areas[i], AREA_PAGES * PAGE);
}

static long resident_kib(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[128];
	long kib = -1;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmRSS: %ld kB", &kib);
	if (f)
		fclose(f);
	return kib;
}

#define RESERVED	(1ULL << 40)
#define USED		1000

/* An MR on demand of a terabyte takes as much memory as is used of it. */
TEST_F_TIMEOUT(demand, little_of_a_terabyte, LIMIT_S)
{
	unsigned int i, seed = test_seed();
	long before = resident_kib();
	struct ib_memreg_mr_query q;
	__u64 at;
	__u8 *mem;

	TH_LOG("seed %u", seed);
	mem = mmap(NULL, RESERVED, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS |
		   MAP_NORESERVE, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)mem);
	ASSERT_EQ(0, madvise(mem, RESERVED, MADV_NOHUGEPAGE));
	demand_on(_metadata, self, mem, RESERVED);
	EXPECT_EQ(self->pinned, vm_pin(0));
	for (i = 0; i < USED; i++) {
		at = ((__u64)rand_r(&seed) << 12 ^ rand_r(&seed)) % RESERVED &
		     -PAGE;
		peer_sends(_metadata, self, self->mr, at, mem + at, 64, i);
	}
	q = query(_metadata, self, self->mr);
	EXPECT_GE(USED, q.out_demand.pinned_max);
	EXPECT_GE(self->pinned + USED, vm_pin(0));
	EXPECT_GE(before + (USED + 64) * (long)PAGE / 1024,
		  resident_kib());
	adds_up(_metadata, self, q.out_demand.faults);
	munmap(mem, RESERVED);
}

TEST_HARNESS_MAIN
