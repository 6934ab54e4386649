/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pools: MRs with one key for each of many buffers. Private declarations of
 * pool.c and pool_table.c; the lock order is in core.h.
 */
#ifndef _MEMREG_POOL_H
#define _MEMREG_POOL_H

#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/types.h>

#include "usermem.h"

struct file;
struct ib_memreg_pool_table;
struct memreg_key;
struct memreg_kmr;
struct memreg_ucmd;

/**
 * struct memreg_table - The table of a pool's keys, which the user maps
 * @refs: One for the pool, one for the file
 * @memory: The memory that the user maps; only the kernel writes to it
 * @shared: The same
 */
struct memreg_table {
	refcount_t refs;
	struct memreg_usermem memory;
	struct ib_memreg_pool_table *shared;
};

/**
 * struct memreg_kpool - The part of an MR that makes it a pool
 * @count: Number of buffers
 * @buffer_size: Bytes of each
 * @stride: Bytes from the start of one buffer to the next
 * @lock: Protects memreg_kmr.keys once they are made and until they are freed,
 *	the table, and @chosen
 * @table: The table that the user maps
 * @chosen: Buffers that a call has named so far; all 0 between calls
 */
struct memreg_kpool {
	u32 count;
	u64 buffer_size;
	u64 stride;
	struct mutex lock;
	struct memreg_table *table;
	unsigned long *chosen;
};

struct memreg_table *memreg_table_new(const struct memreg_kpool *pool);
struct file *memreg_table_file(struct memreg_table *table);
void memreg_table_write(struct memreg_table *table, u32 i, u64 iova, u32 rkey);
void memreg_pool_key(const struct memreg_kmr *mr, u32 i,
		     struct memreg_key *key);
void memreg_pool_invalidated(struct memreg_kpool *pool, u32 i);
void memreg_pool_die(struct memreg_kpool *pool);
void memreg_pool_free(struct memreg_kpool *pool);
int memreg_pool_create_ioctl(struct memreg_ucmd *ucmd);
int memreg_pool_recycle_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_POOL_H */
