// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Outcomes of the last commands of a client that changed data. They stand in
 * the order in which they were done, and the oldest goes first; chains by the
 * sequence number find one. Links count from 1.
 */
#include "blkd.h"

#define ENTRIES	IB_MEMREG_BLK_REMEMBERED

_Static_assert(ENTRIES < UINT16_MAX, "links have 16 bits");

static uint16_t *chain_of(struct outcomes *o, uint64_t seq)
{
	return &o->first[seq % ENTRIES];
}

const struct outcome *outcomes_find(const struct outcomes *o, uint64_t seq)
{
	uint16_t at;

	for (at = o->first[seq % ENTRIES]; at; at = o->of[at - 1].next)
		if (o->of[at - 1].seq == seq)
			return &o->of[at - 1];
	return NULL;
}

static void unlink_entry(struct outcomes *o, uint16_t nr)
{
	uint16_t *at = chain_of(o, o->of[nr - 1].seq);

	while (*at != nr)
		at = &o->of[*at - 1].next;
	*at = o->of[nr - 1].next;
}

void outcomes_add(struct outcomes *o, uint64_t seq, uint32_t epoch,
		  uint16_t status)
{
	uint16_t nr = (uint16_t)(o->count % ENTRIES + 1);
	uint16_t *first;

	if (o->count >= ENTRIES)
		unlink_entry(o, nr);
	first = chain_of(o, seq);
	o->of[nr - 1] = (struct outcome) {
		.seq = seq,
		.epoch = epoch,
		.status = status,
		.next = *first,
	};
	*first = nr;
	if (++o->count == 2 * ENTRIES)
		o->count = ENTRIES;
}
