// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fast registration MRs: the part that MRs and windows of users share with
 * requests of other kernel modules. The steps of each registration are inline
 * in fastmr.h; the functions here may sleep.
 */
#include <linux/delay.h>

#include "inject.h"
#include "keys/fastmr.h"

/**
 * memreg_fastmr_alloc() - Allocate the ib_mr of a fast registration MR
 * @fast: Gets the MR; has none yet
 * @pd: Protection domain
 * @type: IB_MR_TYPE_MEM_REG or IB_MR_TYPE_SG_GAPS
 * @pages: Entries of its page list
 * @done: Completion handler of the work requests in @fast
 *
 * Context: may sleep.
 * Return: 0, -ENOMEM, or -ENOSPC if the device has no more MRs.
 */
int memreg_fastmr_alloc(struct memreg_fastmr *fast, struct ib_pd *pd,
			enum ib_mr_type type, u32 pages,
			void (*done)(struct ib_cq *cq, struct ib_wc *wc))
{
	int ret = memreg_inject(MEMREG_INJECT_ALLOC_MR);
	struct ib_mr *mr;

	mr = ret ? ERR_PTR(ret) : ib_alloc_mr(pd, type, pages);
	/* Drivers return various errnos if they have no more MRs. */
	if (IS_ERR(mr))
		return PTR_ERR(mr) == -ENOMEM ? -ENOMEM : -ENOSPC;
	fast->mr = mr;
	fast->status = 0;
	fast->cqe.done = done;
	/* The fields that are the same in every work request. */
	fast->wr.wr.wr_cqe = &fast->cqe;
	fast->wr.mr = mr;
	return 0;
}

/* How often ib_dereg_mr() is tried if the driver lacks a resource for it. */
#define MEMREG_DEREG_ATTEMPTS	10
#define MEMREG_DEREG_PAUSE_MS	20

/* Is the error transient? irdma may be out of commands, for example. */
static bool memreg_dereg_again(int err)
{
	return err == -ENOMEM || err == -EAGAIN || err == -EBUSY;
}

static int memreg_dereg(struct ib_mr *mr)
{
	return memreg_inject(MEMREG_INJECT_DEREG_MR) ?: ib_dereg_mr(mr);
}

/**
 * memreg_fastmr_destroy() - Kill the key, whatever state it is in
 * @fast: The MR; without an ib_mr, this does nothing
 *
 * After this has returned 0, no packet reaches memory through the key, on any
 * driver. Otherwise the driver could not destroy the MR: a warning is logged,
 * the MR is leaked, and its key may still work.
 *
 * Context: may sleep, and may allocate.
 * Return: 0 or a negative errno.
 */
int memreg_fastmr_destroy(struct memreg_fastmr *fast)
{
	unsigned int attempt = 0;
	int ret;

	if (!fast->mr)
		return 0;
	do {
		if (attempt)
			msleep(MEMREG_DEREG_PAUSE_MS);
		ret = memreg_dereg(fast->mr);
	} while (memreg_dereg_again(ret) && ++attempt < MEMREG_DEREG_ATTEMPTS);
	WARN(ret, "memreg: %s can't destroy an MR: %d\n",
	     dev_name(&fast->mr->device->dev), ret);
	fast->mr = NULL;
	return ret;
}
