/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Declarations that the files of the registration cache share.
 *
 * Readers take no lock. The memory that they access keeps its type for as long
 * as the cache lives: entries and parts of the index are reused, but only as
 * entries and parts. So a reader may follow an outdated pointer; it checks the
 * entry after it has taken a reference. At worst the reader misses an entry,
 * and searches again under the lock.
 */
#ifndef MEMREG_CACHE_H
#define MEMREG_CACHE_H

#include <stdatomic.h>

#include "internal.h"

/*
 * The references of an entry, its state, and how often it was found, in one
 * word: a hit changes nothing else.
 *
 * REFS: number of references, including those of readers that are still
 * checking. Nobody takes one more when MANY have been taken: the memory is
 * registered anew then, and the rest of REFS is for readers. LIVE: the entry
 * can be found; without this bit, it retires with its last reference. RETIRED:
 * the entry has to be deregistered, or is free.
 */
#define REF_ONE		UINT64_C(1)
#define REFS		((UINT64_C(1) << 20) - 1)
#define MANY		(UINT64_C(1) << 19)
#define LIVE		(UINT64_C(1) << 20)
#define RETIRED		(UINT64_C(1) << 21)
#define HITS_SHIFT	22
#define HIT_ONE		(UINT64_C(1) << HITS_SHIFT)

/**
 * struct memreg__entry - A registration, or room for one
 * @refs: See above
 * @cached: The part that users see; constant while the entry is not RETIRED
 * @seen: Hits when the hand of the clock came by
 * @next: Next entry in the list of dead or of free entries
 * @registered: It has to be deregistered
 * @watched: It has a watch that has to be ended
 */
struct memreg__entry {
	_Alignas(64) _Atomic uint64_t refs;
	struct memreg_cached cached;
	uint64_t seen;
	struct memreg__entry *next;
	bool registered;
	bool watched;
};

#define PAGE_SHIFT	12	/* what entries begin and end with, at least */
#define PART_SHIFT	16	/* a part of a piece of memory */
#define LEAF_SHIFT	21	/* a piece of memory */
#define MID_SHIFT	13	/* pieces that share a middle table */
#define TOP_SHIFT	14	/* middle tables: 48 bits of addresses in all */

#define PART_PAGES	(1U << (PART_SHIFT - PAGE_SHIFT))
#define LEAF_PARTS	(1U << (LEAF_SHIFT - PART_SHIFT))

/**
 * struct memreg__part - The map of readers for the pages of a part of a piece
 * @page: Of the entries that contain the page, the one that ends last, or NULL
 * @next: Next part in the list of free parts
 */
struct memreg__part {
	struct memreg__entry *_Atomic page[PART_PAGES];
	struct memreg__part *next;
};

/*
 * Flag in memreg__leaf.part: the rest of the value is an entry that contains
 * the whole part
 */
#define WHOLE		((uintptr_t)1)

/**
 * struct memreg__leaf - The entries that have bytes in one piece of memory
 * @part: The map of readers. For each part of the piece: a pointer to a struct
 *   memreg__part; or a pointer to an entry with the flag WHOLE; or 0
 * @capacity: Size of the array @entries
 * @count: Number of @entries; like @entries under the lock of the cache
 * @entries: The entries by their first addresses
 */
struct memreg__leaf {
	_Atomic uintptr_t part[LEAF_PARTS];
	uint32_t capacity;
	uint32_t count;
	struct memreg__entry **entries;
};

/** struct memreg__mid - Leaves, by the next bits of the address */
struct memreg__mid {
	struct memreg__leaf *_Atomic leaf[1 << MID_SHIFT];
};

/*
 * Entries of at least LARGE bytes have no leaves, of which they would need one
 * for each 2 MiB. There is room for LARGES; any more have leaves.
 */
#define LARGE		(UINT64_C(1) << 30)
#define LARGES		64

/**
 * struct memreg__index - Index of entries by address
 * @top: Middle tables, by the upper bits of the address
 * @spare: List of free parts
 * @larges: Number of @large that were ever used
 * @large: Large entries; NULL for none
 */
struct memreg__index {
	struct memreg__mid *_Atomic *top;
	struct memreg__part *spare;
	_Atomic uint32_t larges;
	struct memreg__entry *_Atomic large[LARGES];
};

static inline uint64_t memreg__entry_start(const struct memreg__entry *entry)
{
	return to_u64(entry->cached.addr);
}

static inline uint64_t memreg__entry_end(const struct memreg__entry *entry)
{
	return to_u64(entry->cached.addr) + entry->cached.length;
}

static inline bool memreg__entry_is_large(const struct memreg__entry *entry)
{
	return entry->cached.length >= LARGE;
}

static inline struct memreg__leaf *
memreg__index_leaf(const struct memreg__index *index, uint64_t addr)
{
	uint64_t piece = addr >> LEAF_SHIFT;
	struct memreg__mid *mid;

	if (piece >> MID_SHIFT >= 1 << TOP_SHIFT)
		return NULL;
	mid = atomic_load_explicit(&index->top[piece >> MID_SHIFT],
				   memory_order_acquire);
	if (!mid)
		return NULL;
	return atomic_load_explicit(&mid->leaf[piece & ((1 << MID_SHIFT) - 1)],
				    memory_order_acquire);
}

/*
 * Find the entry that may extend furthest from an address on, without the lock
 */
static inline struct memreg__entry *
memreg__index_find(const struct memreg__index *index, uint64_t addr)
{
	const struct memreg__leaf *leaf = memreg__index_leaf(index, addr);
	const struct memreg__part *part;
	uintptr_t found;

	if (!leaf)
		return NULL;
	found = atomic_load_explicit(&leaf->part[(addr >> PART_SHIFT) &
						 (LEAF_PARTS - 1)],
				     memory_order_acquire);
	if (found & WHOLE)
		return (struct memreg__entry *)(found - WHOLE);
	part = (const struct memreg__part *)found;
	if (!part)
		return NULL;
	return atomic_load_explicit(&part->page[(addr >> PAGE_SHIFT) &
						(PART_PAGES - 1)],
				    memory_order_relaxed);
}

/*
 * cache_index.c; with the lock of the cache held
 */

/* 0 or -ENOMEM */
int memreg__index_init(struct memreg__index *index);
void memreg__index_free(struct memreg__index *index);

/*
 * Publish an entry to readers. Returns 0; after -ENOMEM or -ERANGE readers do
 * not find it.
 */
int memreg__index_insert(struct memreg__index *index,
			 struct memreg__entry *entry);
void memreg__index_remove(struct memreg__index *index,
			  struct memreg__entry *entry);

/*
 * The first entry of a piece of memory, from *@i on, that overlaps a range; and
 * of large entries, anywhere
 */
struct memreg__entry *memreg__index_overlap(const struct memreg__index *index,
					    uint64_t addr, uint64_t start,
					    uint64_t end, uint32_t *i);

#endif /* MEMREG_CACHE_H */
