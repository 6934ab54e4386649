/* SPDX-License-Identifier: GPL-2.0-only */
/* MR_ADVISE: pin ranges of MRs on demand in advance, or unpin them. */
#ifndef _MEMREG_MR_ADVISE_H
#define _MEMREG_MR_ADVISE_H

#include <linux/bits.h>
#include <uapi/rdma/ib_memreg.h>

struct memreg_ucmd;

/* Mask of all advice. */
#define MEMREG_ADVISE_ALL						\
	(BIT(IB_MEMREG_ADVICE_PREFETCH) |				\
	 BIT(IB_MEMREG_ADVICE_PREFETCH_WRITE) |				\
	 BIT(IB_MEMREG_ADVICE_PREFETCH_NO_FAULT) |			\
	 BIT(IB_MEMREG_ADVICE_DROP))

int memreg_mr_advise_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_MR_ADVISE_H */
