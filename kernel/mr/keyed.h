/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Local work on memory of an MR: by DMA addresses, or by keys where the memory
 * may have to be revoked. Private declarations of kernel/mr/keyed.c.
 */
#ifndef _MEMREG_MR_KEYED_H
#define _MEMREG_MR_KEYED_H

#include "mr/mr.h"
#include "pages/region.h"

int memreg_keyed_sges(const struct memreg_kmr *mr, u64 offset, u64 *length,
		      struct ib_sge *sges, int max);
u32 memreg_keyed_fragments(const struct memreg_kmr *mr, u64 offset, u64 length);

/**
 * memreg_mr_sges() - List a range of an MR for a work request
 * @mr: The MR
 * @first: Entry that memreg_region_find() returns for @offset
 * @offset: First byte
 * @length: In: bytes, from 1; the range is inside the MR. Out: bytes that did
 *	not fit in the list
 * @lkey: Key for DMA addresses
 * @sges: The list
 * @max: Entries that the list has room for
 *
 * Return: number of entries.
 */
static inline int memreg_mr_sges(const struct memreg_kmr *mr, u32 first,
				 u64 offset, u64 *length, u32 lkey,
				 struct ib_sge *sges, int max)
{
	if (mr->region->keyed)
		return memreg_keyed_sges(mr, offset, length, sges, max);
	return memreg_region_sges(mr->region, first, offset, length, lkey,
				  sges, max);
}

/* Count the SGEs of a range of an MR, of one byte at least. */
static inline u32 memreg_mr_fragments(const struct memreg_kmr *mr, u32 first,
				      u64 offset, u64 length)
{
	if (mr->region->keyed)
		return memreg_keyed_fragments(mr, offset, length);
	return memreg_region_fragments(mr->region, first, offset, length);
}

#endif /* _MEMREG_MR_KEYED_H */
