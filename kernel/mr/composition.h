/* SPDX-License-Identifier: GPL-2.0-only */
/* Regions that are composed of other regions. */
#ifndef _MEMREG_MR_COMPOSITION_H
#define _MEMREG_MR_COMPOSITION_H

#include <linux/types.h>

struct memreg_key;
struct memreg_kmr;
struct memreg_region;
struct memreg_tie;
struct memreg_ucmd;

/* Access flags for which a composition must contain each byte only once. */
#define MEMREG_ACCESS_WRITES						\
	(IB_MEMREG_ACCESS_LOCAL_WRITE | IB_MEMREG_ACCESS_REMOTE_WRITE |	\
	 IB_MEMREG_ACCESS_REMOTE_ATOMIC)

/**
 * struct memreg_part - A piece of a leaf in a composition
 * @leaf: The leaf, of which the composition has a reference
 * @from: First byte in the leaf's region
 * @offset: First byte in the composition
 * @length: Bytes
 */
struct memreg_part {
	struct memreg_kmr *leaf;
	u64 from;
	u64 offset;
	u64 length;
};

/**
 * struct memreg_composition - The parts that a region is composed of
 * @nr_parts: Number of @parts
 * @nr_ties: Number of @ties that are made
 * @parts: The pieces, in order
 * @leaves: The leaves, each of them once; the first @nr_ties with references
 * @ties: Ties to the leaves, in the same order
 * @unaligned: A bit for each entry of the region's list, set if no key spans
 *	the boundary in front of the entry
 */
struct memreg_composition {
	u32 nr_parts;
	u32 nr_ties;
	struct memreg_part *parts;
	struct memreg_kmr **leaves;
	struct memreg_tie *ties;
	unsigned long *unaligned;
};

struct memreg_region *
memreg_composition_region(struct memreg_ucmd *ucmd,
			  const struct memreg_part *parts, u32 nr_parts,
			  u64 length, u32 access);
u32 memreg_composition_find(const struct memreg_composition *comp, u64 offset);
u32 memreg_composition_nr_keys(const struct memreg_kmr *mr);
void memreg_composition_keys(struct memreg_kmr *mr);
u32 memreg_composition_reason(const struct memreg_region *region, u64 offset,
			      u64 length);
bool memreg_composition_grant(struct memreg_key *key);
u64 memreg_composition_iova(const struct memreg_region *region, u64 offset,
			    u64 iova);
void memreg_region_write(struct memreg_region *region, u64 offset,
			 const void *data, size_t length);

#endif /* _MEMREG_MR_COMPOSITION_H */
