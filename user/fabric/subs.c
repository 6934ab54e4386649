// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Ranges of which libfabric caches registrations: a hash table in memory that
 * is mapped once, since libfabric calls with locks that allocating memory could
 * need.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "subs.h"

#define BUCKETS		16384

/**
 * struct subs - The table
 * @bucket: First ones of the buckets, by their numbers; 0 for none
 * @sub: All of them; number 0 is not used
 * @used: Number of entries that were ever used
 * @free: The first one that is free again, or 0
 */
struct subs {
	uint32_t bucket[BUCKETS];
	struct sub sub[SUBS_MAX + 1];
	uint32_t used;
	uint32_t free;
};

static struct subs *subs;

int subs_init(void)
{
	void *at;

	if (subs)
		munmap(subs, sizeof(*subs));
	subs = NULL;
	at = mmap(NULL, sizeof(*subs), PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	subs = at;
	return 0;
}

static uint32_t *bucket_of(uint64_t addr, uint64_t length)
{
	uint64_t hash = (addr ^ length << 7) * 0x9e3779b97f4a7c15ULL;

	return &subs->bucket[hash >> 32 & (BUCKETS - 1)];
}

struct sub *subs_find(uint64_t addr, uint64_t length)
{
	uint32_t at = subs ? *bucket_of(addr, length) : 0;

	while (at && (subs->sub[at].addr != addr ||
		      subs->sub[at].length != length))
		at = subs->sub[at].next;
	return at ? &subs->sub[at] : NULL;
}

struct sub *subs_add(uint64_t addr, uint64_t length)
{
	uint32_t *bucket = bucket_of(addr, length), at = subs->free;

	if (at)
		subs->free = subs->sub[at].next;
	else if (subs->used < SUBS_MAX)
		at = ++subs->used;
	else
		return NULL;
	subs->sub[at] = (struct sub){
		.addr = addr,
		.length = length,
		.next = *bucket,
	};
	*bucket = at;
	return &subs->sub[at];
}

void subs_remove(struct sub *sub)
{
	uint32_t *at = bucket_of(sub->addr, sub->length);
	uint32_t number = (uint32_t)(sub - subs->sub);

	while (*at != number)
		at = &subs->sub[*at].next;
	*at = sub->next;
	sub->next = subs->free;
	subs->free = number;
}
