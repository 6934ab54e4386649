/* SPDX-License-Identifier: GPL-2.0-only */
/* MR_COMPOSE: MRs that are composed of pieces of other MRs. */
#ifndef _MEMREG_MR_COMPOSE_H
#define _MEMREG_MR_COMPOSE_H

struct memreg_ucmd;

int memreg_mr_compose_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_MR_COMPOSE_H */
