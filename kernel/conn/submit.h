/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Submission of work requests.
 */
#ifndef _MEMREG_CONN_SUBMIT_H
#define _MEMREG_CONN_SUBMIT_H

#include <linux/types.h>

struct memreg_ucmd;
struct memreg_uring;

int memreg_submit_ioctl(struct memreg_ucmd *ucmd);
int memreg_submit_wrs(struct memreg_ucmd *ucmd, struct memreg_uring *uring,
		      u64 wrs, u32 count, u32 *taken);

#endif /* _MEMREG_CONN_SUBMIT_H */
