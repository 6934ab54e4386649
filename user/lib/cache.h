/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the files of the registration cache share.
 *
 * Readers take no lock. All that they can come upon is of a type that its
 * memory keeps as long as the cache lives: entries and leaves are used again,
 * but for nothing else. So a reader may follow a pointer that is out of date;
 * what it finds there is checked after it holds a reference of the entry. At
 * worst it finds nothing, and looks again under the lock.
 */
#ifndef MEMREG_CACHE_H
#define MEMREG_CACHE_H

#include <stdatomic.h>

#include "internal.h"

/*
 * The references of an entry, its state, and how often it was found, in one
 * word: a hit changes nothing else.
 *
 * REFS: who holds it, or tries to.
 * LIVE: it can be found; without, it goes when the last reference does.
 * RETIRED: it went: it is to be deregistered, or is free.
 */
#define REF_ONE		UINT64_C(1)
#define REFS		((UINT64_C(1) << 20) - 1)
#define LIVE		(UINT64_C(1) << 20)
#define RETIRED		(UINT64_C(1) << 21)
#define HITS_SHIFT	22
#define HIT_ONE		(UINT64_C(1) << HITS_SHIFT)

/**
 * struct memreg__entry - A registration, or room for one
 * @refs: See above
 * @cached: What users see; constant while it is not RETIRED
 * @seen: Hits when the hand of the clock came by
 * @next: In the list of those that are dead, or free
 * @registered: It is to be deregistered
 * @watched: It has a watch that is to be ended
 */
struct memreg__entry {
	_Alignas(64) _Atomic uint64_t refs;
	struct memreg_cached cached;
	uint64_t seen;
	struct memreg__entry *next;
	bool registered;
	bool watched;
};

/**
 * struct memreg__item - An entry in a leaf
 * @start: First address of the entry
 * @end: First address behind it
 * @entry: The entry
 */
struct memreg__item {
	_Atomic uint64_t start;
	_Atomic uint64_t end;
	struct memreg__entry *_Atomic entry;
};

/**
 * struct memreg__leaf - The entries that have bytes in one piece of memory
 * @capacity: Room for so many; never changes
 * @count: So many there are
 * @next: In the list of those that are free
 * @items: The entries by their first addresses
 */
struct memreg__leaf {
	uint32_t capacity;
	_Atomic uint32_t count;
	struct memreg__leaf *next;
	struct memreg__item items[];
};

#define LEAF_SHIFT	21	/* a piece of memory */
#define MID_SHIFT	13	/* pieces that share a middle table */
#define TOP_SHIFT	14	/* middle tables: 48 bits of addresses in all */
#define LEAF_CLASSES	16	/* leaves have a power of two of items */

/** struct memreg__mid - Leaves, by the next bits of the address */
struct memreg__mid {
	struct memreg__leaf *_Atomic leaf[1 << MID_SHIFT];
};

/**
 * struct memreg__index - Finds entries by addresses
 * @top: Middle tables, by the upper bits of the address
 * @spare: Leaves that are free, by the logarithms of their capacities
 */
struct memreg__index {
	struct memreg__mid *_Atomic *top;
	struct memreg__leaf *spare[LEAF_CLASSES];
};

/* Entries before the nearest one that a reader looks at */
#define INDEX_BACK	4

static inline uint64_t memreg__entry_start(const struct memreg__entry *entry)
{
	return to_u64(entry->cached.addr);
}

static inline uint64_t memreg__entry_end(const struct memreg__entry *entry)
{
	return to_u64(entry->cached.addr) + entry->cached.length;
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

/* The last item that begins at or before an address; n is not 0 */
static inline const struct memreg__item *
memreg__leaf_nearest(const struct memreg__leaf *leaf, uint32_t n, uint64_t addr)
{
	const struct memreg__item *at = leaf->items;
	uint32_t half;

	for (; n > 1; n -= half) {
		half = n / 2;
		if (atomic_load_explicit(&at[half].start,
					 memory_order_relaxed) <= addr)
			at += half;
	}
	return at;
}

/* Find an entry that may have all of a range, without the lock */
static inline struct memreg__entry *
memreg__index_find(const struct memreg__index *index, uint64_t start,
		   uint64_t end)
{
	const struct memreg__leaf *leaf = memreg__index_leaf(index, start);
	const struct memreg__item *at;
	uint32_t n;
	int back;

	if (!leaf)
		return NULL;
	n = atomic_load_explicit(&leaf->count, memory_order_relaxed);
	if (!n)
		return NULL;
	at = memreg__leaf_nearest(leaf, n, start);
	for (back = 0; back < INDEX_BACK; back++, at--) {
		if (atomic_load_explicit(&at->start, memory_order_relaxed) <=
		    start &&
		    atomic_load_explicit(&at->end, memory_order_relaxed) >=
		    end)
			return atomic_load_explicit(&at->entry,
						    memory_order_relaxed);
		if (at == leaf->items)
			break;
	}
	return NULL;
}

/*
 * cache_index.c; with the lock of the cache held
 */

/* 0 or -ENOMEM */
int memreg__index_init(struct memreg__index *index);
void memreg__index_free(struct memreg__index *index);

/* Let readers find an entry: 0, or -ENOMEM or -ERANGE and they find it not */
int memreg__index_insert(struct memreg__index *index,
			 struct memreg__entry *entry);
void memreg__index_remove(struct memreg__index *index,
			  struct memreg__entry *entry);

/* The first entry of a piece of memory, from *@i on, that overlaps a range */
struct memreg__entry *memreg__index_overlap(const struct memreg__index *index,
					    uint64_t addr, uint64_t start,
					    uint64_t end, uint32_t *i);

#endif /* MEMREG_CACHE_H */
