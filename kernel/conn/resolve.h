/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Local memory of work requests.
 */
#ifndef _MEMREG_CONN_RESOLVE_H
#define _MEMREG_CONN_RESOLVE_H

#include <linux/types.h>

#include "conn/slot.h"
#include "conn/sub.h"
#include "mr/mr.h"
#include "pages/region.h"

struct memreg_kmr *memreg_sub_range(struct memreg_sub *sub,
				    const struct ib_memreg_sge *sge,
				    bool write);
int memreg_resolve(struct memreg_sub *sub, u32 i, bool write);
void memreg_unresolve(struct memreg_sub *sub);

/*
 * Get the DMA address of a range that memreg_sub_range() has found. Returns
 * false if the range is in more than one piece.
 */
static inline bool memreg_sub_piece(const struct memreg_sub *sub,
				    const struct memreg_kmr *mr,
				    const struct ib_memreg_sge *sge, u64 *addr)
{
	const struct memreg_region *region = mr->region;

	if (!sge->length || region->keyed ||
	    !memreg_region_has(region, sub->first,
			       sge->offset + sge->length - 1))
		return false;
	*addr = sg_dma_address(&region->sgl[sub->first]) + sge->offset -
		region->offsets[sub->first];
	return true;
}

/* Record the range as the only one of a slot. */
static inline void memreg_slot_keep(const struct memreg_sub *sub,
				    struct memreg_slot *slot,
				    struct memreg_kmr *mr,
				    const struct ib_memreg_sge *sge)
{
	refcount_inc(&mr->obj.users);
	slot->sges[0].mr = mr;
	slot->sges[0].length = sge->length;
	slot->sges[0].first = sub->first;
	slot->sges[0].offset = sge->offset;
	slot->nr_sges = 1;
}

#endif /* _MEMREG_CONN_RESOLVE_H */
