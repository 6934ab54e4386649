/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pools: MRs with one key for each of many buffers. Private declarations of
 * kernel/mem/pool.c; the lock order is in core.h.
 */
#ifndef _MEMREG_POOL_H
#define _MEMREG_POOL_H

#include <linux/mutex.h>
#include <linux/types.h>

struct memreg_key;
struct memreg_kmr;
struct memreg_table;
struct memreg_ucmd;

struct memreg_kpool;

/**
 * struct memreg_pool_ops - Operations of a pool that its MR calls
 * @key: Describe the key of the @i-th buffer
 * @die: Clear all keys in the table, before they are killed
 * @free: Free the pool, along with its MR
 */
struct memreg_pool_ops {
	void (*key)(const struct memreg_kmr *mr, u32 i, struct memreg_key *key);
	void (*die)(struct memreg_kpool *pool);
	void (*free)(struct memreg_kpool *pool);
};

/**
 * struct memreg_kpool - The part of an MR that makes it a pool
 * @ops: Operations that the MR calls
 * @count: Number of buffers
 * @buffer_size: Bytes of each
 * @stride: Bytes from the start of one buffer to the next
 * @lock: Protects memreg_kmr.keys once they are made and until they are freed,
 *	the table, and @chosen
 * @table: The table that the user maps
 * @chosen: Buffers that a call has named so far; all 0 between calls
 */
struct memreg_kpool {
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
