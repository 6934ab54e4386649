// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The index of a registration cache: a table of two levels leads to a leaf for
 * each 2 MiB of memory.
 *
 * A leaf has two views of the entries with bytes in its memory. The writer has
 * a list, in order of their first addresses. Readers have a map, from each page
 * to one entry: of the entries that contain the page, the one that ends last,
 * as it contains all bytes from the page on that any other of them has. The map
 * is rebuilt from the list, 64 KiB at a time, where the list changes. If a part
 * of the map cannot be allocated, readers find no entry there, and search the
 * list under the lock.
 *
 * Large entries are in an array, which readers and the writer search.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "cache.h"

#define LEAF_FIRST	4U	/* room in the list of a leaf to begin with */

int memreg__index_init(struct memreg__index *index)
{
	index->top = calloc(1 << TOP_SHIFT, sizeof(*index->top));
	return index->top ? 0 : -ENOMEM;
}

static struct memreg__part *part_of(const struct memreg__leaf *leaf,
				    unsigned int i)
{
	uintptr_t found = atomic_load_explicit(&leaf->part[i],
					       memory_order_relaxed);

	return found & WHOLE ? NULL : (struct memreg__part *)found;
}

static void free_leaf(struct memreg__leaf *leaf)
{
	unsigned int i;

	if (!leaf)
		return;
	for (i = 0; i < LEAF_PARTS; i++)
		free(part_of(leaf, i));
	free(leaf->entries);
	free(leaf);
}

static void free_mid(struct memreg__mid *mid)
{
	unsigned int i;

	if (!mid)
		return;
	for (i = 0; i < 1 << MID_SHIFT; i++)
		free_leaf(atomic_load(&mid->leaf[i]));
	free(mid);
}

void memreg__index_free(struct memreg__index *index)
{
	struct memreg__part *part;
	unsigned int i;

	if (!index->top)
		return;
	for (i = 0; i < 1 << TOP_SHIFT; i++)
		free_mid(atomic_load(&index->top[i]));
	while ((part = index->spare)) {
		index->spare = part->next;
		free(part);
	}
	free(index->top);
	index->top = NULL;
}

static uint64_t piece_after(uint64_t addr)
{
	return ((addr >> LEAF_SHIFT) + 1) << LEAF_SHIFT;
}

/*
 * The map of readers
 */

/* Allocate a part without entries */
static struct memreg__part *new_part(struct memreg__index *index)
{
	struct memreg__part *part = index->spare;

	if (!part)
		return calloc(1, sizeof(*part));
	index->spare = part->next;
	return part;
}

static void spare_part(struct memreg__index *index, struct memreg__part *part)
{
	unsigned int i;

	if (!part)
		return;
	for (i = 0; i < PART_PAGES; i++)
		atomic_store_explicit(&part->page[i], NULL,
				      memory_order_relaxed);
	part->next = index->spare;
	index->spare = part;
}

static unsigned int part_index(uint64_t addr)
{
	return (addr >> PART_SHIFT) & (LEAF_PARTS - 1);
}

/* Let the pages of a part that an entry has lead to it, if it ends last. */
static void offer_pages(struct memreg__entry **pages, uint64_t start,
			struct memreg__entry *entry)
{
	uint64_t from = memreg__entry_start(entry);
	uint64_t end = memreg__entry_end(entry);
	uint64_t page = from > start ? (from - start) >> PAGE_SHIFT : 0;

	for (; page < PART_PAGES && start + (page << PAGE_SHIFT) < end; page++)
		if (!pages[page] || memreg__entry_end(pages[page]) < end)
			pages[page] = entry;
}

/*
 * Find the entry for each page of the part that begins at @start. Returns true
 * if all pages have the same entry, or none.
 */
static bool look_up_pages(const struct memreg__leaf *leaf, uint64_t start,
			  struct memreg__entry **pages)
{
	uint64_t end = start + (UINT64_C(1) << PART_SHIFT);
	uint32_t i;

	for (i = 0; i < leaf->count; i++) {
		if (memreg__entry_start(leaf->entries[i]) >= end)
			break;
		if (memreg__entry_end(leaf->entries[i]) > start)
			offer_pages(pages, start, leaf->entries[i]);
	}
	for (i = 1; i < PART_PAGES; i++)
		if (pages[i] != pages[0])
			return false;
	return true;
}

/* Make the map of the part that begins at an address. */
static void map_part(struct memreg__index *index, struct memreg__leaf *leaf,
		     uint64_t start)
{
	struct memreg__entry *pages[PART_PAGES] = { NULL };
	struct memreg__part *old = part_of(leaf, part_index(start));
	struct memreg__part *part = NULL;
	uintptr_t found = 0;
	unsigned int i;

	if (look_up_pages(leaf, start, pages)) {
		if (pages[0])
			found = (uintptr_t)pages[0] + WHOLE;
	} else {
		part = old ? old : new_part(index);
		found = (uintptr_t)part;
	}
	for (i = 0; part && i < PART_PAGES; i++)
		atomic_store_explicit(&part->page[i], pages[i],
				      memory_order_relaxed);
	/* Readers see what is in it. */
	atomic_store_explicit(&leaf->part[part_index(start)], found,
			      memory_order_release);
	if (old != part)
		spare_part(index, old);
}

/* Map the pages of one piece of memory that an entry contains. */
static void map_piece(struct memreg__index *index,
		      const struct memreg__entry *entry, uint64_t addr)
{
	struct memreg__leaf *leaf = memreg__index_leaf(index, addr);
	uint64_t end = memreg__entry_end(entry), behind = piece_after(addr);

	if (end > behind)
		end = behind;
	for (addr &= -(UINT64_C(1) << PART_SHIFT); leaf && addr < end;
	     addr += UINT64_C(1) << PART_SHIFT)
		map_part(index, leaf, addr);
}

/*
 * The list of the writer
 */

/* The leaf of an address */
static struct memreg__leaf *make_leaf(struct memreg__index *index,
				      uint64_t addr)
{
	struct memreg__mid *_Atomic *top;
	struct memreg__leaf *leaf = memreg__index_leaf(index, addr);
	uint64_t piece = addr >> LEAF_SHIFT;
	struct memreg__mid *mid;

	if (leaf)
		return leaf;
	top = &index->top[piece >> MID_SHIFT];
	mid = atomic_load(top);
	if (!mid) {
		mid = calloc(1, sizeof(*mid));
		if (!mid)
			return NULL;
		atomic_store(top, mid);
	}
	leaf = calloc(1, sizeof(*leaf));
	if (leaf)
		atomic_store(&mid->leaf[piece & ((1 << MID_SHIFT) - 1)], leaf);
	return leaf;
}

static bool has_room(struct memreg__leaf *leaf)
{
	uint32_t capacity = leaf->capacity ? 2 * leaf->capacity : LEAF_FIRST;
	struct memreg__entry **entries;

	if (leaf->count < leaf->capacity)
		return true;
	entries = realloc(leaf->entries, capacity * sizeof(*entries));
	if (!entries)
		return false;
	leaf->entries = entries;
	leaf->capacity = capacity;
	return true;
}

static int insert_piece(struct memreg__index *index,
			struct memreg__entry *entry, uint64_t addr)
{
	struct memreg__leaf *leaf = make_leaf(index, addr);
	uint64_t start = memreg__entry_start(entry);
	uint32_t i;

	if (!leaf || !has_room(leaf))
		return -ENOMEM;
	for (i = leaf->count; i; i--) {
		if (memreg__entry_start(leaf->entries[i - 1]) <= start)
			break;
		leaf->entries[i] = leaf->entries[i - 1];
	}
	leaf->entries[i] = entry;
	leaf->count++;
	return 0;
}

static void remove_piece(struct memreg__index *index,
			 struct memreg__entry *entry, uint64_t addr)
{
	struct memreg__leaf *leaf = memreg__index_leaf(index, addr);
	uint32_t i, n = leaf ? leaf->count : 0;

	for (i = 0; i < n; i++)
		if (leaf->entries[i] == entry)
			break;
	if (i == n)
		return;
	leaf->count--;
	for (; i < leaf->count; i++)
		leaf->entries[i] = leaf->entries[i + 1];
	map_piece(index, entry, addr);
}

/*
 * Large entries
 */

static bool insert_large(struct memreg__index *index,
			 struct memreg__entry *entry)
{
	uint32_t i, n = atomic_load(&index->larges);

	for (i = 0; i < n; i++)
		if (!atomic_load(&index->large[i]))
			break;
	if (i == LARGES)
		return false;
	atomic_store(&index->large[i], entry);
	if (i == n)
		atomic_store(&index->larges, n + 1);
	return true;
}

static bool remove_large(struct memreg__index *index,
			 const struct memreg__entry *entry)
{
	uint32_t i, n = atomic_load(&index->larges);

	for (i = 0; i < n; i++) {
		if (atomic_load(&index->large[i]) == entry) {
			atomic_store(&index->large[i], NULL);
			return true;
		}
	}
	return false;
}

int memreg__index_insert(struct memreg__index *index,
			 struct memreg__entry *entry)
{
	uint64_t start = memreg__entry_start(entry), addr, undo;
	uint64_t end = memreg__entry_end(entry);

	if (memreg__entry_is_large(entry) && insert_large(index, entry))
		return 0;
	if ((end - 1) >> (LEAF_SHIFT + MID_SHIFT + TOP_SHIFT))
		return -ERANGE;
	for (addr = start; addr < end; addr = piece_after(addr)) {
		if (!insert_piece(index, entry, addr))
			continue;
		for (undo = start; undo < addr; undo = piece_after(undo))
			remove_piece(index, entry, undo);
		return -ENOMEM;
	}
	for (addr = start; addr < end; addr = piece_after(addr))
		map_piece(index, entry, addr);
	return 0;
}

void memreg__index_remove(struct memreg__index *index,
			  struct memreg__entry *entry)
{
	uint64_t end = memreg__entry_end(entry), addr;

	if (memreg__entry_is_large(entry) && remove_large(index, entry))
		return;
	for (addr = memreg__entry_start(entry); addr < end;
	     addr = piece_after(addr))
		remove_piece(index, entry, addr);
}

struct memreg__entry *memreg__index_overlap(const struct memreg__index *index,
					    uint64_t addr, uint64_t start,
					    uint64_t end, uint32_t *i)
{
	struct memreg__leaf *leaf = memreg__index_leaf(index, addr);
	uint32_t count = leaf ? leaf->count : 0;
	struct memreg__entry *entry;

	while (*i < count + atomic_load(&index->larges)) {
		entry = leaf && *i < count ? leaf->entries[*i] :
			atomic_load(&index->large[*i - count]);
		++*i;
		if (entry && memreg__entry_start(entry) < end &&
		    memreg__entry_end(entry) > start)
			return entry;
	}
	return NULL;
}
