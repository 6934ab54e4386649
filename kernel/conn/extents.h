/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Extents of MRs on demand that work requests are about to use.
 */
#ifndef _MEMREG_CONN_EXTENTS_H
#define _MEMREG_CONN_EXTENTS_H

#include <linux/types.h>
#include <uapi/rdma/ib_memreg.h>

struct memreg_mr;
struct memreg_ucmd;

/* Work requests of a call that are looked at together. */
#define MEMREG_SUBMIT_CHUNK	32

/* Their SGEs, of those that have more than one. */
#define MEMREG_SUBMIT_SGES	64

/**
 * struct memreg_extents - The extents that some work requests need
 * @nr: Number of @held
 * @missed: An extent is missing, and the caller does not want to wait for it
 * @mr: MR on demand that was found last, with a reference; or NULL
 * @held: The extents, each with a reference
 * @of_wr: Those of the only SGE of each work request, or of the range that it
 *	binds a window to; NULL if that is of no MR on demand
 * @of_sge: Those of the other SGEs
 */
struct memreg_extents {
	u32 nr;
	bool missed;
	struct memreg_mr *mr;
	struct memreg_mr *held[MEMREG_SUBMIT_CHUNK + MEMREG_SUBMIT_SGES];
	struct memreg_mr *of_wr[MEMREG_SUBMIT_CHUNK];
	struct memreg_mr *of_sge[MEMREG_SUBMIT_SGES];
};

/**
 * struct memreg_chunk_wrs - Work requests that are looked at together
 * @wrs: The work requests
 * @sges: SGEs of those that have more than one
 * @side: Where those of each work request begin
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
