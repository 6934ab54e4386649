// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fast registration MRs: what windows and MRs of users and requests of other
 * modules have in common. What is done for each registration is inline in
 * memreg.h; here is what may sleep.
 */
#include "memreg.h"

/**
 * memreg_fastmr_alloc() - Allocate the MR of a fast registration MR
 * @fast: Where it is to be; without an MR
 * @pd: Protection domain
 * @type: IB_MR_TYPE_MEM_REG or IB_MR_TYPE_SG_GAPS
 * @pages: Entries of its page list
 * @done: Takes completions of the work requests in @fast
 *
 * Context: may sleep.
 * Return: 0, -ENOMEM, or -ENOSPC if the device has no more of them.
 */
int memreg_fastmr_alloc(struct memreg_fastmr *fast, struct ib_pd *pd,
			enum ib_mr_type type, u32 pages,
			void (*done)(struct ib_cq *cq, struct ib_wc *wc))
{
	int ret = memreg_inject(MEMREG_INJECT_ALLOC_MR);
	struct ib_mr *mr;

	mr = ret ? ERR_PTR(ret) : ib_alloc_mr(pd, type, pages);
	/* Drivers have many names for having no more MRs. */
	if (IS_ERR(mr))
		return PTR_ERR(mr) == -ENOMEM ? -ENOMEM : -ENOSPC;
	fast->mr = mr;
	fast->status = 0;
	fast->cqe.done = done;
	/* What is the same in every work request. */
	fast->wr.wr.wr_cqe = &fast->cqe;
	fast->wr.mr = mr;
	return 0;
}

/**
 * memreg_fastmr_destroy() - Kill the key, whatever state it is in
 * @fast: Nothing happens if it has no MR
 *
 * When this returns, no packet reaches memory through the key, on any driver.
 *
 * Context: may sleep, and may allocate.
 */
void memreg_fastmr_destroy(struct memreg_fastmr *fast)
{
	if (fast->mr)
		WARN_ON(ib_dereg_mr(fast->mr));
	fast->mr = NULL;
}
