// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Memory objects: descriptors that are memory */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

/*
 * Alignment at which the kernel can map memory by a PMD. On systems with
 * another PMD size only this gain is lost.
 */
#define HUGE_SIZE	(2UL << 20)

EXPORT int memreg_memory_create(struct memreg *m, size_t length, int node,
				uint32_t flags, struct memreg_memory *memory)
{
	struct ib_memreg_memory_create arg = {
		.size = sizeof(arg),
		.flags = flags,
		.node = node,
		.length = length,
	};
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_MEMORY_CREATE, &arg,
			   "memory_create");
	if (ret)
		return ret;
	*memory = (struct memreg_memory) {
		.fd = arg.out_fd,
		.length = arg.length,
		.blocks = arg.out_blocks,
		.block_size = 1ULL << arg.out_block_shift,
	};
	return 0;
}

EXPORT int memreg_memory_dup(struct memreg *m, int fd, int *out)
{
	struct ib_memreg_memory_dup arg = { .size = sizeof(arg), .fd = fd };
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_MEMORY_DUP, &arg,
			   "memory_dup");
	if (!ret)
		*out = arg.out_fd;
	return ret;
}

/* Unmap the reserved addresses before and behind a range */
static void trim(char *all, size_t all_length, char *at, size_t length)
{
	if (at > all)
		munmap(all, (size_t)(at - all));
	if (at + length < all + all_length)
		munmap(at + length, (size_t)(all + all_length - at) - length);
}

/*
 * Reserve address space, at any address or in place of what is mapped at @at.
 * No core dump has it: gcore(1) would write zeros.
 */
void *memreg__reserve(void *at, size_t length)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
		    (at ? MAP_FIXED : 0);
	void *space = mmap(at, length, PROT_NONE, flags, -1, 0);

	if (space != MAP_FAILED)
		madvise(space, length, MADV_DONTDUMP);
	return space;
}

/*
 * Map a descriptor at an address that huge entries can map, within address
 * space reserved for it. The space above is left free, as an earlier mapping
 * may have left a page table there.
 */
static void *map_aligned(int fd, size_t length, int prot)
{
	size_t all_length = length + 2 * HUGE_SIZE;
	char *all, *at;

	all = memreg__reserve(NULL, all_length);
	if (all == MAP_FAILED)
		return all;
	at = all + (-(uintptr_t)all & (HUGE_SIZE - 1));
	if (mmap(at, length, prot, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED) {
		int err = errno;

		munmap(all, all_length);
		errno = err;
		return MAP_FAILED;
	}
	trim(all, all_length, at, length);
	return at;
}

EXPORT int memreg_memory_map(int fd, int prot, void **addr, size_t *length)
{
	off_t size = lseek(fd, 0, SEEK_END);
	void *at;

	if (size <= 0)
		return memreg__fail("memory_map", size ? -errno : -EINVAL,
				    "the descriptor is not one of memory");
	at = (size_t)size < HUGE_SIZE ?
		mmap(NULL, (size_t)size, prot, MAP_SHARED, fd, 0) :
		map_aligned(fd, (size_t)size, prot);
	if (at == MAP_FAILED)
		return memreg__fail("memory_map", -errno,
				    "the memory can't be mapped");
	*addr = at;
	if (length)
		*length = (size_t)size;
	return 0;
}
