/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Extents of MRs on demand that work requests are about to use.
 */
#ifndef _MEMREG_CONN_EXTENTS_H
#define _MEMREG_CONN_EXTENTS_H

#include <linux/types.h>
#include <uapi/rdma/ib_memreg.h>

struct memreg_kmr;
struct memreg_ucmd;

/* Work requests in a chunk of a call. */
#define MEMREG_SUBMIT_CHUNK	32

/* SGEs in a chunk, of work requests that have more than one. */
#define MEMREG_SUBMIT_SGES	64

/**
 * struct memreg_extents - The extents that some work requests need
 * @nr: Number of @held
 * @missed: An extent is missing, and the caller must not wait for it
 * @mr: MR on demand that was found last, with a reference; or NULL
 * @held: The extents, each with a reference
 * @of_wr: Extent for the only SGE of each work request, or for the range that
 *	it binds a window to; NULL if its MR is not on demand
 * @of_sge: Extents for the other SGEs
 */
struct memreg_extents {
	u32 nr;
	bool missed;
	struct memreg_kmr *mr;
	struct memreg_kmr *held[MEMREG_SUBMIT_CHUNK + MEMREG_SUBMIT_SGES];
	struct memreg_kmr *of_wr[MEMREG_SUBMIT_CHUNK];
	struct memreg_kmr *of_sge[MEMREG_SUBMIT_SGES];
};

/**
 * struct memreg_chunk_wrs - The work requests of a chunk
 * @wrs: The work requests
 * @sges: SGEs of those that have more than one
 * @side: Index in @sges of the first SGE of each work request
 * @count: Number of @wrs
 */
struct memreg_chunk_wrs {
	struct ib_memreg_wr *wrs;
	struct ib_memreg_sge *sges;
	const void *const *side;
	u32 count;
};

int memreg_extents_hold(struct memreg_ucmd *ucmd, struct memreg_extents *ex,
			struct memreg_chunk_wrs *chunk, bool wait);
void memreg_extents_drop(struct memreg_extents *ex);

#endif /* _MEMREG_CONN_EXTENTS_H */
