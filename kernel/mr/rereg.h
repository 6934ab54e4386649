/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Re-registration of MRs. Private declarations of kernel/mr/rereg.c; the lock
 * order is in core.h.
 */
#ifndef _MEMREG_MR_REREG_H
#define _MEMREG_MR_REREG_H

struct memreg_ucmd;

int memreg_mr_reregister_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_MR_REREG_H */
