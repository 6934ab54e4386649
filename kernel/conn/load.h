/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copying of work requests from user space.
 */
#ifndef _MEMREG_CONN_LOAD_H
#define _MEMREG_CONN_LOAD_H

#include <linux/types.h>

struct memreg_sub;

int memreg_load(struct memreg_sub *sub, u32 taken);

#endif /* _MEMREG_CONN_LOAD_H */
