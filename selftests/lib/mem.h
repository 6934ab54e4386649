/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory of many kinds, one pattern of bytes for all tests, and arenas, which
 * know what should be in them.
 */
#ifndef SELFTESTS_MEM_H
#define SELFTESTS_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

struct __test_metadata;

#define PROT_RW		(PROT_READ | PROT_WRITE)

/*
 * Memory to be released by mem_free(), or NULL. That of mem_scattered(), from 5
 * pages on, cannot be covered by pages larger than the base page.
 */
void *mem_alloc(size_t length);
void *mem_scattered(size_t length);
void *mem_hugetlb(size_t length);
void *mem_thp(size_t length);
/*
 * A shared mapping of all of a descriptor; mem_map_huge() aligns it for huge
 * entries.
 */
void *mem_map(int fd, size_t length, int prot);
void *mem_map_huge(int fd, size_t length);
void mem_free(void *addr, size_t length);

/* Memory no two pages of which are neighbours in physical memory */
void *mem_shuffled(size_t length);

/* Byte @i of the pattern with this seed */
static inline uint8_t pattern(size_t i, unsigned int seed)
{
	return (uint8_t)((i * 2654435761U >> 13) + seed);
}

void fill(void *mem, size_t len, unsigned int seed);
/*
 * Does the memory have the bytes that fill() makes from byte @from on? Prints
 * the first difference.
 */
bool filled(const void *mem, size_t len, size_t from, unsigned int seed);

/* The CRC-32 that verbs_peer prints for the data it read */
uint32_t crc32_of(const uint8_t *data, size_t len);

/**
 * struct arena - Memory with a copy of what it should hold
 * @mem: The memory, mapped shared: other processes see it after its owner's
 *   death
 * @copy: The expected contents
 * @len: Bytes of either
 *
 * Functions that take _metadata fail the test themselves.
 */
struct arena {
	uint8_t *mem;
	uint8_t *copy;
	size_t len;
};

void arena_make(struct __test_metadata *_metadata, struct arena *a, size_t len);
void arena_fill(struct arena *a, unsigned int seed);
/*
 * Check that all of the memory is as expected, not only where a peer has
 * accessed it.
 */
void arena_check(struct __test_metadata *_metadata, const struct arena *a);
void arena_free(struct arena *a);

/* A userfaultfd of all page faults in a range, or -errno */
int uffd_open(void *mem, size_t len);
/*
 * Wait for the next fault in the range of a userfaultfd: its page, or 0 if none
 * comes within the limit
 */
unsigned long uffd_next(int fd);
/* Answer the fault that uffd_next() has returned with a page: 0, or -errno */
int uffd_answer(int fd, unsigned long fault, const void *page);

#endif /* SELFTESTS_MEM_H */
