/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Submission of work requests.
 */
#ifndef _MEMREG_CONN_SUBMIT_H
#define _MEMREG_CONN_SUBMIT_H

#include <linux/types.h>

struct memreg_device;
struct memreg_file;
struct memreg_ucmd;
struct memreg_uring;

int memreg_submit(struct memreg_ucmd *ucmd);
int memreg_submit_wrs(struct memreg_ucmd *ucmd, struct memreg_uring *uring,
		      u64 wrs, u32 count, u32 *taken);
bool memreg_submit_writes(u16 opcode);
void memreg_submit_free(struct memreg_file *file);
u64 memreg_submit_opcodes(struct memreg_device *mdev);

#endif /* _MEMREG_CONN_SUBMIT_H */
