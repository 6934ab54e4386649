/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The keys of an MR.
 */
#ifndef _MEMREG_MR_MR_KEYS_H
#define _MEMREG_MR_MR_KEYS_H

#include <linux/types.h>

struct memreg_file;
struct memreg_kmr;
struct memreg_ucmd;

int memreg_mr_key_reason(struct memreg_ucmd *ucmd, int err);
int memreg_mr_give_keys(struct memreg_ucmd *ucmd, struct memreg_kmr *mr);
void memreg_mr_kill_keys(struct memreg_kmr *mr);
void memreg_mrs_invalidated(struct memreg_file *file, u32 rkey);

#endif /* _MEMREG_MR_MR_KEYS_H */
