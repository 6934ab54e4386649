// SPDX-License-Identifier: GPL-2.0-only
/* Memory of many kinds, and checks of its contents. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"
#include "mem.h"
#include "test.h"

/*
 * The kernel announces a CLEAR of all of the 2 MiB around the place where it
 * splits a mapping, whether or not there is a huge page. So a page on either
 * side stays free, and the flags are not those of other memory: what is mapped
 * later would be one mapping with this memory otherwise, and split off again.
 * Whole huge pages are aligned, and need neither.
 */
void *mem_alloc(size_t length)
{
	const size_t pages = (length + PAGE - 1) & ~(PAGE - 1);
	const size_t gap = pages % HUGE ? PAGE : 0;
	char *all = mmap(NULL, pages + 2 * gap, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *addr = all + gap;

	if (all == MAP_FAILED)
		return NULL;
	if (gap) {
		munmap(all, gap);
		munmap(addr + pages, gap);
		madvise(addr, pages, MADV_DONTDUMP);
	}
	return addr;
}

static bool map_page(char *addr, int fd, size_t offset)
{
	return mmap(addr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		    fd, offset) != MAP_FAILED;
}

/* Base pages of a file, a few of which are mapped in the wrong order */
void *mem_scattered(size_t length)
{
	int fd = memfd_create("scattered", MFD_CLOEXEC);
	char *addr = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, length))
		addr = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED,
			    fd, 0);
	if (addr != MAP_FAILED &&
	    (!map_page(addr, fd, PAGE) || !map_page(addr + PAGE, fd, 0) ||
	     !map_page(addr + 3 * PAGE, fd, 4 * PAGE) ||
	     !map_page(addr + 4 * PAGE, fd, 3 * PAGE)))
		addr = MAP_FAILED;
	close(fd);
	return addr == MAP_FAILED ? NULL : addr;
}

void *mem_hugetlb(size_t length)
{
	const size_t huge = HUGE;
	char pages[32];
	void *addr;

	snprintf(pages, sizeof(pages), "%zu", length / huge);
	file_write("/proc/sys/vm/nr_hugepages", pages);
	addr = mmap(NULL, length, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	return addr == MAP_FAILED ? NULL : addr;
}

/* KiB of anonymous huge pages that this process has mapped */
static long thp_there(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	long kib = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "AnonHugePages: %ld kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

void *mem_thp(size_t length)
{
	const size_t huge = HUGE;
	long before = thp_there();
	char *addr = mem_alloc(length + huge), *start;

	if (!addr)
		return NULL;
	start = (char *)(((uintptr_t)addr + huge - 1) & ~(huge - 1));
	munmap(addr, start - addr);
	munmap(start + length, huge - (start - addr));
	madvise(start, length, MADV_HUGEPAGE);
	memset(start, 1, length);
	if (thp_there() - before == (long)(length >> 10))
		return start;
	mem_free(start, length);
	return NULL;
}

void *mem_map(int fd, size_t length, int prot)
{
	void *at = mmap(NULL, length, prot, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

void *mem_map_huge(int fd, size_t length)
{
	/*
	 * Reserve address space above as well, where an earlier mapping may
	 * have left a page table.
	 */
	char *at = mmap(NULL, length + 2 * HUGE, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	at += -(uintptr_t)at & (HUGE - 1);
	return mmap(at, length, PROT_RW, MAP_SHARED | MAP_FIXED, fd, 0) == at ?
	       at : NULL;
}

void mem_free(void *addr, size_t length)
{
	munmap(addr, length);
}

/*
 * Number of the page frame that an address of this process is mapped to, or 0
 */
static uint64_t frame_of(int pagemap, const uint8_t *addr)
{
	uint64_t entry;

	if (pread(pagemap, &entry, sizeof(entry),
		  (uintptr_t)addr / PAGE * sizeof(entry)) != sizeof(entry))
		return 0;
	return entry & ((1ULL << 55) - 1);
}

/*
 * Map pages of a file, which are all mapped at @from, to @addr one by one. No
 * page goes where its neighbour in physical memory is before it: the file has
 * pages to spare.
 */
static int map_shuffled(int fd, uint8_t *addr, size_t pages,
			const uint8_t *from, size_t file_pages)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	const size_t step = file_pages / 3 * 2 + 1;
	uint64_t last = 0, frame;
	size_t i, at, n = 0;

	for (i = 0; i < file_pages && n < pages; i++) {
		at = i * step % file_pages * PAGE;
		frame = frame_of(pagemap, from + at);
		if (!frame)
			break;
		if (frame == last + 1)
			continue;
		if (mmap(addr + n * PAGE, PAGE, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, fd, at) == MAP_FAILED)
			break;
		last = frame;
		n++;
	}
	close(pagemap);
	return n == pages ? 0 : -1;
}

void *mem_shuffled(size_t length)
{
	/*
	 * The number of pages of the file is a power of two, which has no odd
	 * divisor.
	 */
	size_t pages = length / PAGE, file_pages = 1, size;
	int fd = memfd_create("shuffled", MFD_CLOEXEC);
	uint8_t *from, *addr;

	while (file_pages < 2 * pages)
		file_pages *= 2;
	size = file_pages * PAGE;
	if (fd < 0 || ftruncate(fd, size))
		return NULL;
	from = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	addr = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	if (from == MAP_FAILED || addr == MAP_FAILED)
		return NULL;
	memset(from, 0, size);
	if (map_shuffled(fd, addr, pages, from, file_pages))
		addr = NULL;
	munmap(from, size);
	close(fd);
	return addr;
}

void fill(void *mem, size_t len, unsigned int seed)
{
	uint8_t *bytes = mem;
	size_t i;

	for (i = 0; i < len; i++)
		bytes[i] = pattern(i, seed);
}

bool filled(const void *mem, size_t len, size_t from, unsigned int seed)
{
	const uint8_t *bytes = mem;
	size_t i;

	for (i = 0; i < len && bytes[i] == pattern(from + i, seed); i++)
		;
	if (i == len)
		return true;
	fprintf(stderr, "# byte %zu of %zu is %#x, and should be %#x\n", i, len,
		bytes[i], pattern(from + i, seed));
	return false;
}

uint32_t crc32_of(const uint8_t *data, size_t len)
{
	static uint32_t table[256];
	uint32_t crc = ~0U, c;
	int i, bit;

	for (i = 0; i < 256 && !table[255]; i++) {
		for (bit = 0, c = i; bit < 8; bit++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
		table[i] = c;
	}
	while (len--)
		crc = table[(crc ^ *data++) & 0xff] ^ crc >> 8;
	return ~crc;
}

/*
 * Arenas
 */

void arena_fill(struct arena *a, unsigned int seed)
{
	size_t i;

	for (i = 0; i < a->len; i++)
		a->copy[i] = pattern(i, seed);
	memcpy(a->mem, a->copy, a->len);
}

/*
 * The memory is shared, so that this process can check it after its owner's
 * death.
 */
void arena_make(struct __test_metadata *_metadata, struct arena *a, size_t len)
{
	a->len = len;
	a->mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, a->mem);
	a->copy = malloc(len);
	ASSERT_NE(NULL, a->copy);
	arena_fill(a, 0);
}

void arena_free(struct arena *a)
{
	munmap(a->mem, a->len);
	free(a->copy);
}

/*
 * Check that all of the memory is as expected, not only where a peer has
 * accessed it
 */
void arena_check(struct __test_metadata *_metadata, const struct arena *a)
{
	size_t i;

	if (!memcmp(a->mem, a->copy, a->len))
		return;
	for (i = 0; a->mem[i] == a->copy[i]; i++)
		;
	ASSERT_EQ(a->copy[i], a->mem[i])
		TH_LOG("byte %zu of %zu", i, a->len);
}

int uffd_open(void *mem, size_t len)
{
	struct uffdio_register reg = {
		.range = { .start = (uintptr_t)mem, .len = len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (!ioctl(fd, UFFDIO_API, &api) && !ioctl(fd, UFFDIO_REGISTER, &reg))
		return fd;
	close(fd);
	return -EIO;
}

unsigned long uffd_next(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct uffd_msg msg;

	if (poll(&pfd, 1, LIMIT_MS) != 1 ||
	    read(fd, &msg, sizeof(msg)) != sizeof(msg))
		return 0;
	return msg.arg.pagefault.address & ~(PAGE - 1);
}

int uffd_answer(int fd, unsigned long fault, const void *page)
{
	struct uffdio_copy copy = {
		.dst = fault, .src = (uintptr_t)page, .len = PAGE,
	};

	if (!fault)
		return -ETIMEDOUT;
	return ioctl(fd, UFFDIO_COPY, &copy) ? -errno : 0;
}
