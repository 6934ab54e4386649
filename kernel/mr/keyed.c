// SPDX-License-Identifier: GPL-2.0-only
/*
 * Local work by key.
 *
 * A work request usually names local memory by DMA addresses under the PD's
 * local_dma_lkey, so an MR for local use alone needs no key. But a DMA address
 * in a posted work request cannot be revoked. So where the exporter of a
 * dma-buf may take the memory away while work is outstanding
 * (memreg_region.keyed), the MR always has keys, and work requests name I/O
 * addresses under them. Once the keys are dead, posted work requests fail with
 * a local protection error, and access no memory.
 *
 * Such an MR can be used for local work only on endpoints of its own domain, as
 * its keys work only there. And as the CPU must not touch the memory, a message
 * received there is not copied into its completion entry.
 */
#include "keys/key.h"
#include "mr/keyed.h"

/* Find the key that spans a byte. */
static u32 memreg_keyed_find(const struct memreg_kmr *mr, u64 offset)
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
 * @length: In: bytes, from 1; the range is inside the MR. Out: bytes that did
 *	not fit in the list
 * @sges: The list
 * @max: Entries that the list has room for
 *
 * Return: number of entries.
 */
int memreg_keyed_sges(const struct memreg_kmr *mr, u64 offset, u64 *length,
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
 * memreg_keyed_fragments() - Count the keys that span a range of an MR
 * @mr: MR whose region is keyed
 * @offset: First byte
 * @length: Bytes, from 1; the range is inside the MR
 *
 * Return: the number of keys.
 */
u32 memreg_keyed_fragments(const struct memreg_kmr *mr, u64 offset, u64 length)
{
	return memreg_keyed_find(mr, offset + length - 1) -
	       memreg_keyed_find(mr, offset) + 1;
}
