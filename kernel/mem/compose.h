/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * MR_COMPOSE: MRs made of pieces of others.
 */
#ifndef _MEMREG_MEM_COMPOSE_H
#define _MEMREG_MEM_COMPOSE_H

struct memreg_ucmd;

int memreg_mr_compose_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_MEM_COMPOSE_H */
