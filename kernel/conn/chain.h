/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Chains of work requests for a queue.
 */
#ifndef _MEMREG_CONN_CHAIN_H
#define _MEMREG_CONN_CHAIN_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "conn/sub.h"

struct memreg_domain;
struct memreg_queue;
struct memreg_slot;

int memreg_sub_lock(struct memreg_sub *sub, struct memreg_queue *queue);
void memreg_sub_unreserve(struct memreg_sub *sub);
int memreg_sub_reserve_more(struct memreg_sub *sub, u32 i, u32 parts);
void memreg_sub_begin(struct memreg_sub *sub, struct memreg_queue *queue,
		      struct memreg_domain *domain, u32 max, u32 end);
void memreg_slot_describe(struct memreg_sub *sub, struct memreg_slot *slot,
			  u32 i);
int memreg_chain_post(struct memreg_sub *sub,
		      int (*post)(struct memreg_sub *sub, const void **bad),
		      u32 *taken);

/* Reserve room for a work request. */
static inline int memreg_sub_reserve(struct memreg_sub *sub, u32 i, u32 parts)
{
	if (sub->room < parts)
		return memreg_sub_reserve_more(sub, i, parts);
	sub->room -= parts;
	return 0;
}

/* Append a slot's work request to the chain. The caller fills it in. */
static inline union memreg_device_wr *
memreg_chain_add(struct memreg_sub *sub, struct memreg_slot *slot, u32 owner)
{
	union memreg_device_wr *wr = &sub->s->device_wrs[sub->nr];

	/* Posting cuts off the link of the last work request. */
	wr->send.next = &wr[1].send;
	sub->s->slots[sub->nr] = slot;
	sub->s->owners[sub->nr] = owner;
	sub->nr++;
	return wr;
}

#endif /* _MEMREG_CONN_CHAIN_H */
