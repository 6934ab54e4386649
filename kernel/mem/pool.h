/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pools: MRs whose keys are each for one of many buffers. Private declarations
 * of kernel/mem/pool.c; the lock order is in core.h.
 */
#ifndef _MEMREG_POOL_H
#define _MEMREG_POOL_H

#include <linux/mutex.h>
#include <linux/types.h>

struct memreg_key;
struct memreg_mr;
struct memreg_table;
struct memreg_ucmd;

/**
 * struct memreg_pool - What makes an MR a pool
 * @count: Number of buffers
 * @buffer_size: Bytes of each
 * @stride: Bytes from one to the next
 * @lock: Protects memreg_mr.keys, but for whoever makes or frees them, the
 *	table, and @chosen
 * @table: What users see of the keys
 * @chosen: Buffers that a call has named so far; all 0 between calls
 */
struct memreg_pool {
	u32 count;
	u64 buffer_size;
	u64 stride;
	struct mutex lock;
	struct memreg_table *table;
	unsigned long *chosen;
};

int memreg_pool_create(struct memreg_ucmd *ucmd);
int memreg_pool_recycle(struct memreg_ucmd *ucmd);
void memreg_pool_key(const struct memreg_mr *mr, u32 i,
		     struct memreg_key *key);
void memreg_pool_die(struct memreg_pool *pool);
void memreg_pool_free(struct memreg_pool *pool);

#endif /* _MEMREG_POOL_H */
