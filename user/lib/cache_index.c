// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The index of a registration cache: a table of two levels leads to a leaf for
 * each 2 MiB of memory, with the entries that have bytes there in order of
 * their first addresses.
 *
 * One writer changes it, in place, while readers look at it: these may miss an
 * entry that is being moved, and look again under the lock. A leaf that is
 * full is replaced by a larger one. It is kept for another piece of memory,
 * since readers may still be in it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "cache.h"

#define LEAF_FIRST	2	/* logarithm of the capacity of the smallest */

int memreg__index_init(struct memreg__index *index)
{
	index->top = calloc(1 << TOP_SHIFT, sizeof(*index->top));
	return index->top ? 0 : -ENOMEM;
}

static void free_mid(struct memreg__mid *mid)
{
	unsigned int i;

	if (!mid)
		return;
	for (i = 0; i < 1 << MID_SHIFT; i++)
		free(atomic_load(&mid->leaf[i]));
	free(mid);
}

void memreg__index_free(struct memreg__index *index)
{
	struct memreg__leaf *leaf;
	unsigned int i;

	if (!index->top)
		return;
	for (i = 0; i < 1 << TOP_SHIFT; i++)
		free_mid(atomic_load(&index->top[i]));
	for (i = 0; i < LEAF_CLASSES; i++) {
		while ((leaf = index->spare[i])) {
			index->spare[i] = leaf->next;
			free(leaf);
		}
	}
	free(index->top);
	index->top = NULL;
}

static struct memreg__leaf *new_leaf(struct memreg__index *index,
				     unsigned int class)
{
	struct memreg__leaf *leaf;

	if (class >= LEAF_CLASSES)
		return NULL;
	leaf = index->spare[class];
	if (leaf) {
		index->spare[class] = leaf->next;
		atomic_store(&leaf->count, 0);
		return leaf;
	}
	leaf = calloc(1, sizeof(*leaf) +
		      ((size_t)1 << class) * sizeof(leaf->items[0]));
	if (leaf)
		leaf->capacity = 1U << class;
	return leaf;
}

static void spare_leaf(struct memreg__index *index, struct memreg__leaf *leaf)
{
	unsigned int class = (unsigned int)__builtin_ctz(leaf->capacity);

	leaf->next = index->spare[class];
	index->spare[class] = leaf;
}

static void set_item(struct memreg__item *item, uint64_t start, uint64_t end,
		     struct memreg__entry *entry)
{
	atomic_store_explicit(&item->start, start, memory_order_relaxed);
	atomic_store_explicit(&item->end, end, memory_order_relaxed);
	atomic_store_explicit(&item->entry, entry, memory_order_relaxed);
}

static void copy_item(struct memreg__item *to, struct memreg__item *from)
{
	set_item(to, atomic_load(&from->start), atomic_load(&from->end),
		 atomic_load(&from->entry));
}

/* Where the leaf of an address is, with the middle table that it is in */
static struct memreg__leaf *_Atomic *place_of(struct memreg__index *index,
					      uint64_t addr)
{
	uint64_t piece = addr >> LEAF_SHIFT;
	struct memreg__mid *mid;

	mid = atomic_load(&index->top[piece >> MID_SHIFT]);
	if (!mid) {
		mid = calloc(1, sizeof(*mid));
		if (!mid)
			return NULL;
		atomic_store(&index->top[piece >> MID_SHIFT], mid);
	}
	return &mid->leaf[piece & ((1 << MID_SHIFT) - 1)];
}

/* A leaf with room for one more, at that place */
static struct memreg__leaf *leaf_with_room(struct memreg__index *index,
					   struct memreg__leaf *_Atomic *place)
{
	struct memreg__leaf *leaf = atomic_load(place), *larger;
	uint32_t i, n = leaf ? atomic_load(&leaf->count) : 0;
	unsigned int class = LEAF_FIRST;

	if (leaf && n < leaf->capacity)
		return leaf;
	if (leaf)
		class = (unsigned int)__builtin_ctz(leaf->capacity) + 1;
	larger = new_leaf(index, class);
	if (!larger)
		return NULL;
	for (i = 0; i < n; i++)
		copy_item(&larger->items[i], &leaf->items[i]);
	atomic_store(&larger->count, n);
	/* readers see what is in it */
	atomic_store(place, larger);
	if (leaf)
		spare_leaf(index, leaf);
	return larger;
}

static int insert_piece(struct memreg__index *index,
			struct memreg__entry *entry, uint64_t addr)
{
	uint64_t start = memreg__entry_start(entry);
	struct memreg__leaf *_Atomic *place = place_of(index, addr);
	struct memreg__leaf *leaf;
	uint32_t i;

	leaf = place ? leaf_with_room(index, place) : NULL;
	if (!leaf)
		return -ENOMEM;
	i = atomic_load(&leaf->count);
	for (; i && atomic_load(&leaf->items[i - 1].start) > start; i--)
		copy_item(&leaf->items[i], &leaf->items[i - 1]);
	set_item(&leaf->items[i], start, memreg__entry_end(entry), entry);
	atomic_fetch_add(&leaf->count, 1);
	return 0;
}

static void remove_piece(struct memreg__index *index,
			 struct memreg__entry *entry, uint64_t addr)
{
	struct memreg__leaf *leaf = memreg__index_leaf(index, addr);
	uint32_t i, n;

	if (!leaf)
		return;
	n = atomic_load(&leaf->count);
	for (i = 0; i < n; i++)
		if (atomic_load(&leaf->items[i].entry) == entry)
			break;
	if (i == n)
		return;
	for (; i + 1 < n; i++)
		copy_item(&leaf->items[i], &leaf->items[i + 1]);
	atomic_store(&leaf->count, n - 1);
}

static uint64_t piece_after(uint64_t addr)
{
	return ((addr >> LEAF_SHIFT) + 1) << LEAF_SHIFT;
}

int memreg__index_insert(struct memreg__index *index,
			 struct memreg__entry *entry)
{
	uint64_t addr = memreg__entry_start(entry), undo = addr;
	uint64_t end = memreg__entry_end(entry);

	if ((end - 1) >> (LEAF_SHIFT + MID_SHIFT + TOP_SHIFT))
		return -ERANGE;
	for (; addr < end; addr = piece_after(addr)) {
		if (!insert_piece(index, entry, addr))
			continue;
		for (; undo < addr; undo = piece_after(undo))
			remove_piece(index, entry, undo);
		return -ENOMEM;
	}
	return 0;
}

void memreg__index_remove(struct memreg__index *index,
			  struct memreg__entry *entry)
{
	uint64_t end = memreg__entry_end(entry), addr;

	for (addr = memreg__entry_start(entry); addr < end;
	     addr = piece_after(addr))
		remove_piece(index, entry, addr);
}

struct memreg__entry *memreg__index_overlap(const struct memreg__index *index,
					    uint64_t addr, uint64_t start,
					    uint64_t end, uint32_t *i)
{
	struct memreg__leaf *leaf = memreg__index_leaf(index, addr);
	uint32_t n = leaf ? atomic_load(&leaf->count) : 0;

	for (; *i < n; (*i)++)
		if (atomic_load(&leaf->items[*i].start) < end &&
		    atomic_load(&leaf->items[*i].end) > start)
			return atomic_load(&leaf->items[(*i)++].entry);
	return NULL;
}
