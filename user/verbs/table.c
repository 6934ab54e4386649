// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Registrations by the structure that the program has: a hash table */
#include <stddef.h>

#include "guarded.h"

#define BUCKETS	4096

pthread_mutex_t verbs_lock = PTHREAD_MUTEX_INITIALIZER;

static struct reg *buckets[BUCKETS];

static struct reg **bucket_of(const struct ibv_mr *mr)
{
	uint64_t hash = (uintptr_t)mr * 0x9e3779b97f4a7c15ULL;

	return &buckets[(hash >> 32) % BUCKETS];
}

void table_add(struct reg *reg)
{
	struct reg **bucket = bucket_of(reg->shown);

	pthread_mutex_lock(&verbs_lock);
	reg->next = *bucket;
	*bucket = reg;
	pthread_mutex_unlock(&verbs_lock);
}

struct reg *table_take(const struct ibv_mr *mr)
{
	struct reg **at, *reg;

	pthread_mutex_lock(&verbs_lock);
	at = bucket_of(mr);
	while (*at && (*at)->shown != mr)
		at = &(*at)->next;
	reg = *at;
	if (reg)
		*at = reg->next;
	pthread_mutex_unlock(&verbs_lock);
	return reg;
}

uint64_t table_stale(void)
{
	const struct reg *reg;
	uint64_t stale = 0;
	unsigned int i;

	pthread_mutex_lock(&verbs_lock);
	for (i = 0; i < BUCKETS; i++)
		for (reg = buckets[i]; reg; reg = reg->next)
			stale += guard_is_stale(&reg->guard);
	pthread_mutex_unlock(&verbs_lock);
	return stale;
}
