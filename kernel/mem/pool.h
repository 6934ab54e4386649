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

struct memreg_pool;

/**
 * struct memreg_pool_ops - What an MR asks of what makes it a pool
 * @key: Describe the key of the @i-th buffer
 * @die: Take all keys out of the table, as they are to be killed
 * @free: The MR is no more
 */
struct memreg_pool_ops {
	void (*key)(const struct memreg_mr *mr, u32 i, struct memreg_key *key);
	void (*die)(struct memreg_pool *pool);
	void (*free)(struct memreg_pool *pool);
};

/**
 * struct memreg_pool - What makes an MR a pool
 * @ops: What the MR asks of it
 * @count: Number of buffers
 * @buffer_size: Bytes of each
 * @stride: Bytes from one to the next
 * @lock: Protects memreg_mr.keys, but for whoever makes or frees them, the
 *	table, and @chosen
 * @table: What users see of the keys
 * @chosen: Buffers that a call has named so far; all 0 between calls
 */
struct memreg_pool {
	const struct memreg_pool_ops *ops;
	u32 count;
	u64 buffer_size;
	u64 stride;
	struct mutex lock;
	struct memreg_table *table;
	unsigned long *chosen;
};

int memreg_pool_create_ioctl(struct memreg_ucmd *ucmd);
int memreg_pool_recycle_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_POOL_H */
