// SPDX-License-Identifier: GPL-2.0-only
/* Completion rings. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "raw.h"
#include "ring.h"
#include "test.h"

int ring_create(int fd, struct ring *ring, __u32 entries, __u32 entry_size,
		__u32 flags, int eventfd)
{
	RAW(ring_create, cmd, .flags = flags, .entries = entries,
	    .entry_size = entry_size, .eventfd = eventfd);
	int ret = raw_call(fd, IB_MEMREG_IOC_RING_CREATE, &cmd);
	void *map;

	memset(ring, 0, sizeof(*ring));
	ring->fd = -1;
	if (ret)
		return ret;
	ring->fd = cmd.out_fd;
	ring->id = cmd.out_ring_id;
	ring->entries = cmd.entries;
	ring->entry_size = entry_size;
	ring->map_size = cmd.out_map_size;
	map = mmap(NULL, cmd.out_map_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		   cmd.out_fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	ring->shared = map;
	ring->first = (uint8_t *)map + cmd.out_entries_offset;
	return 0;
}

void ring_unmap(struct ring *ring)
{
	if (ring->shared)
		munmap(ring->shared, ring->map_size);
	if (ring->fd >= 0)
		close(ring->fd);
	ring->shared = NULL;
	ring->fd = -1;
}

__u32 ring_count(const struct ring *ring)
{
	return __atomic_load_n(&ring->shared->producer, __ATOMIC_ACQUIRE) -
	       ring->consumed;
}

const struct ib_memreg_cqe *ring_entry(const struct ring *ring, __u32 i)
{
	size_t at = (ring->consumed + i) & (ring->entries - 1);

	return (const void *)(ring->first + at * ring->entry_size);
}

void ring_done(struct ring *ring, __u32 n)
{
	ring->consumed += n;
	__atomic_store_n(&ring->shared->consumer, ring->consumed,
			 __ATOMIC_RELEASE);
}

int ring_wait(const struct ring *ring, __u32 min_count, __u64 timeout_ns,
	      __u32 *count)
{
	RAW(ring_wait, cmd, .min_count = min_count, .timeout_ns = timeout_ns);
	int ret = raw_call(ring->fd, IB_MEMREG_IOC_RING_WAIT, &cmd);

	if (count)
		*count = cmd.out_count;
	return ret;
}

int ring_next(struct ring *ring, union entry *entry)
{
	int ret = ring_wait(ring, 1, LIMIT_MS * MS, NULL);

	if (ret)
		return ret;
	if (!ring_count(ring))
		return -ENODATA;
	memset(entry, 0, sizeof(*entry));
	memcpy(entry, ring_entry(ring, 0), ring->entry_size);
	ring_done(ring, 1);
	return 0;
}

const uint8_t *entry_data(const union entry *entry)
{
	return entry->bytes + offsetof(struct ib_memreg_cqe, data);
}
