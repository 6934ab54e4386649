/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fast registration MRs: the part that MRs and windows of users share with
 * requests of other kernel modules. The steps of each registration are inline
 * here.
 */
#ifndef _MEMREG_KEYS_FASTMR_H
#define _MEMREG_KEYS_FASTMR_H

#include <rdma/ib_verbs.h>

#include "inject.h"

/**
 * struct memreg_fastmr - A fast registration MR, and the work request that
 *	makes or kills its key
 * @mr: The MR, or NULL
 * @status: Outcome of the work request: 0, or a negative errno if it failed and
 *	the state of the MR is unknown (I4)
 * @cqe: Completion of @wr
 * @wr: The work request
 */
struct memreg_fastmr {
	struct ib_mr *mr;
	int status;
	struct ib_cqe cqe;
	struct ib_reg_wr wr;
};

int memreg_fastmr_alloc(struct memreg_fastmr *fast, struct ib_pd *pd,
			enum ib_mr_type type, u32 pages,
			void (*done)(struct ib_cq *cq, struct ib_wc *wc));
int memreg_fastmr_destroy(struct memreg_fastmr *fast);

/*
 * Point an MR whose key is dead to memory that is mapped for DMA. Returns
 * -EINVAL if the page list cannot take all of it; the list is undefined then.
 */
static inline int memreg_fastmr_map(struct memreg_fastmr *fast,
				    struct scatterlist *sgl, u32 nents,
				    u32 page_size)
{
	int mapped = memreg_inject(MEMREG_INJECT_MAP_MR) ?:
		     ib_map_mr_sg(fast->mr, sgl, nents, NULL, page_size);

	if (mapped == nents)
		return 0;
	return mapped < 0 ? mapped : -EINVAL;
}

/* Prepare the REG_MR, with a new key byte each time. */
static inline void memreg_fastmr_prepare_reg(struct memreg_fastmr *fast,
					     int access)
{
	struct ib_mr *mr = fast->mr;

	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	fast->wr.wr.opcode = IB_WR_REG_MR;
	fast->wr.key = mr->rkey;
	fast->wr.access = access;
}

/* Prepare the LOCAL_INV. It replaces the REG_MR, which must be on no queue. */
static inline void memreg_fastmr_prepare_inv(struct memreg_fastmr *fast)
{
	fast->wr.wr.opcode = IB_WR_LOCAL_INV;
	fast->wr.wr.ex.invalidate_rkey = fast->mr->rkey;
}

#endif /* _MEMREG_KEYS_FASTMR_H */
