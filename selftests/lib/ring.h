/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Completion rings by the raw ABI, mapped. Functions return 0 or -errno unless
 * they say otherwise, and nothing waits without a limit.
 */
#ifndef SELFTESTS_RING_H
#define SELFTESTS_RING_H

#include <stddef.h>
#include <stdint.h>
#include <rdma/ib_memreg.h>

/**
 * struct ring - A completion ring, mapped
 * @fd: Its descriptor
 * @id: Its id in the file
 * @entries: Entries that it has
 * @entry_size: Bytes of each
 * @map_size: Bytes that are mapped
 * @shared: The mapped ring
 * @first: Entry 0
 * @consumed: Entries that were taken
 */
struct ring {
	int fd;
	__u32 id;
	__u32 entries;
	__u32 entry_size;
	size_t map_size;
	struct ib_memreg_ring *shared;
	const uint8_t *first;
	__u32 consumed;
};

/* A copy of an entry of either size; in a large one its data goes on. */
union entry {
	struct ib_memreg_cqe cqe;
	uint8_t bytes[128];
};

int ring_create(int fd, struct ring *ring, __u32 entries, __u32 entry_size,
		__u32 flags, int eventfd);
/*
 * Unmap the ring and close its descriptor. The ring goes on to exist in the
 * file.
 */
void ring_unmap(struct ring *ring);

/* Number of entries that can be read; entry @i of them; consume @n of them. */
__u32 ring_count(const struct ring *ring);
const struct ib_memreg_cqe *ring_entry(const struct ring *ring, __u32 i);
void ring_done(struct ring *ring, __u32 n);

/* RING_WAIT; @count may be NULL. */
int ring_wait(const struct ring *ring, __u32 min_count, __u64 timeout_ns,
	      __u32 *count);
/* Wait for an entry and take it. */
int ring_next(struct ring *ring, union entry *entry);
const uint8_t *entry_data(const union entry *entry);

#endif /* SELFTESTS_RING_H */
