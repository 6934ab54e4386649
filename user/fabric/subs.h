/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ranges of which libfabric caches registrations */
#ifndef MEMREG_FABRIC_SUBS_H
#define MEMREG_FABRIC_SUBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memreg.h"

/* Ranges that can be watched at once */
#define SUBS_MAX	65536

/**
 * struct sub - A range that registrations are kept of
 * @addr: First byte, as libfabric has it
 * @length: Bytes
 * @watch: Watch that shows if the mapping is still the registered one
 * @refs: Registrations of it, of several domains; 0 if free
 * @next: The next one of its bucket, or the next free one; 0 for none
 */
struct sub {
	uint64_t addr;
	uint64_t length;
	struct memreg_watch watch;
	uint32_t refs;
	uint32_t next;
};

/* Make an empty table. Nothing is allocated later. Returns 0 or -ENOMEM. */
int subs_init(void);

struct sub *subs_find(uint64_t addr, uint64_t length);
/*
 * Add a subscription, without a watch or references. Returns NULL if there is
 * no room.
 */
struct sub *subs_add(uint64_t addr, uint64_t length);
void subs_remove(struct sub *sub);

#endif /* MEMREG_FABRIC_SUBS_H */
