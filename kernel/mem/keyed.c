// SPDX-License-Identifier: GPL-2.0-only
/*
 * Local work by key.
 *
 * A work request usually names local memory by DMA addresses, under the PD's
 * local_dma_lkey, which is good for all of them: an MR for local use alone
 * needs no key. A DMA address can't be taken back from a work request that was
 * posted. So where the exporter of a dma-buf may take the memory away while
 * work is outstanding (memreg_region.keyed), the MR always has keys, and work
 * requests name I/O addresses under them. Once the keys are dead, what was
 * posted fails with a local protection error, and reaches nothing.
 *
 * Such an MR is good for local work on endpoints of its own domain only, as the
 * keys are; and the CPU has no part in what is received there, so nothing of it
 * comes inside of a completion entry.
 */
#include "mem/key.h"
#include "mem/keyed.h"

/* Find the key that has a byte. */
static u32 memreg_keyed_find(const struct memreg_mr *mr, u64 offset)
{
	u32 low = 0, high = mr->nkeys, mid;

	while (high - low > 1) {
		mid = low + (high - low) / 2;
		if (mr->keys[mid].offset <= offset)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/**
 * memreg_keyed_sges() - List a range of an MR by keys, for a work request
 * @mr: MR whose region is keyed
 * @offset: First byte
 * @length: In: bytes, from 1; the range is inside the MR. Out: those of them
 *	that did not fit in the list
 * @sges: The list
 * @max: Entries that it has room for
 *
 * Return: number of entries.
 */
int memreg_keyed_sges(const struct memreg_mr *mr, u64 offset, u64 *length,
		      struct ib_sge *sges, int max)
{
	const struct memreg_key *key = &mr->keys[memreg_keyed_find(mr, offset)];
	u64 skip = offset - key->offset;
	int n;

	for (n = 0; n < max && *length; n++) {
		u64 part = min3(key->length - skip, *length,
				(u64)MEMREG_PIECE_MAX);

		sges[n].addr = key->iova + skip;
		sges[n].length = part;
		sges[n].lkey = key->lkey;
		*length -= part;
		skip += part;
		if (skip == key->length) {
			skip = 0;
			key++;
		}
	}
	return n;
}

/**
 * memreg_keyed_fragments() - In how many keys is a range of an MR?
 * @mr: MR whose region is keyed
 * @offset: First byte
 * @length: Bytes, from 1; the range is inside the MR
 *
 * Return: the number of keys.
 */
u32 memreg_keyed_fragments(const struct memreg_mr *mr, u64 offset, u64 length)
{
	return memreg_keyed_find(mr, offset + length - 1) -
	       memreg_keyed_find(mr, offset) + 1;
}
