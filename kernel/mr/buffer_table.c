// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of a pool's keys, which the user maps read-only, and what the MR
 * that is the pool needs of it. See pool.c.
 */
#include <linux/anon_inodes.h>
#include <linux/bitmap.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "core.h"
#include "keys/key.h"
#include "mr/buffer_pool.h"
#include "mr/mr.h"

static_assert(sizeof(struct ib_memreg_pool_table) == 64);
static_assert(sizeof(struct ib_memreg_pool_entry) == 16);

static struct ib_memreg_pool_entry *
memreg_table_entry(const struct memreg_table *table, u32 i)
{
	return (struct ib_memreg_pool_entry *)(table->shared + 1) + i;
}

static void memreg_table_put(struct memreg_table *table)
{
	if (!refcount_dec_and_test(&table->refs))
		return;
	memreg_usermem_free(&table->memory);
	kfree(table);
}

/**
 * memreg_table_new() - Make the table of a pool
 * @pool: The pool, with its shape
 *
 * Return: the table without keys, or NULL.
 */
struct memreg_table *memreg_table_new(const struct memreg_kpool *pool)
{
	struct memreg_table *table;
	size_t size;

	table = kzalloc(sizeof(*table), GFP_KERNEL_ACCOUNT);
	if (!table)
		return NULL;
	refcount_set(&table->refs, 1);
	size = sizeof(*table->shared) +
	       pool->count * sizeof(struct ib_memreg_pool_entry);
	table->shared = memreg_usermem_alloc(&table->memory, size);
	if (!table->shared) {
		kfree(table);
		return NULL;
	}
	table->shared->version = IB_MEMREG_POOL_VERSION;
	table->shared->count = pool->count;
	table->shared->entry_size = sizeof(struct ib_memreg_pool_entry);
	table->shared->buffer_size = pool->buffer_size;
	table->shared->stride = pool->stride;
	return table;
}

/**
 * memreg_table_write() - Write a key to the table
 * @table: The table
 * @i: Index of the buffer
 * @iova: Address of its first byte
 * @rkey: Its key, or 0
 *
 * The sequence number of the entry makes a concurrent reader retry.
 *
 * Context: the pool's lock is held.
 */
void memreg_table_write(struct memreg_table *table, u32 i, u64 iova,
			u32 rkey)
{
	struct ib_memreg_pool_entry *entry = memreg_table_entry(table, i);

	WRITE_ONCE(entry->sequence, entry->sequence + 1);
	/*
	 * Pairs with the read barrier of the reader: see struct
	 * ib_memreg_pool_entry.
	 */
	smp_wmb();
	WRITE_ONCE(entry->iova, iova);
	WRITE_ONCE(entry->rkey, rkey);
	/* Pairs with the reader's first load. */
	smp_store_release(&entry->sequence, entry->sequence + 1);
}

static int memreg_table_release(struct inode *inode, struct file *filp)
{
	memreg_table_put(filp->private_data);
	return 0;
}

static int memreg_table_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct memreg_table *table = filp->private_data;

	return memreg_usermem_mmap(&table->memory, vma);
}

static const struct file_operations memreg_table_fops = {
	.owner = THIS_MODULE,
	.release = memreg_table_release,
	.mmap = memreg_table_mmap,
};

/**
 * memreg_table_file() - Make a file that the user maps the table by
 * @table: The table
 *
 * Return: the file, or an ERR_PTR.
 */
struct file *memreg_table_file(struct memreg_table *table)
{
	struct file *filp;

	filp = anon_inode_getfile("[memreg-pool]", &memreg_table_fops, table,
				  O_RDONLY);
	if (!IS_ERR(filp))
		refcount_inc(&table->refs);
	return filp;
}

/*
 * What the MR calls
 */

/**
 * memreg_pool_key() - Describe the key of a buffer
 * @mr: MR of the pool
 * @i: Index of the buffer
 * @key: Filled in
 */
void memreg_pool_key(const struct memreg_kmr *mr, u32 i,
		     struct memreg_key *key)
{
	const struct memreg_kpool *pool = mr->pool;

	*key = (struct memreg_key) {
		.region = mr->region,
		.offset = i * pool->stride,
		.length = pool->buffer_size,
		.iova = mr->iova + i * pool->stride,
		.access = mr->access,
	};
}

/**
 * memreg_pool_invalidated() - Clear a key in the table, as a peer has
 * invalidated it
 * @pool: The pool, whose lock is held
 * @i: Index of the buffer
 */
void memreg_pool_invalidated(struct memreg_kpool *pool, u32 i)
{
	lockdep_assert_held(&pool->lock);

	memreg_table_write(pool->table, i, 0, 0);
}

/**
 * memreg_pool_die() - Clear all keys in the table, before they are killed
 * @pool: The pool
 */
void memreg_pool_die(struct memreg_kpool *pool)
{
	u32 i;

	mutex_lock(&pool->lock);
	WRITE_ONCE(pool->table->shared->state, IB_MEMREG_POOL_DEAD);
	for (i = 0; i < pool->count; i++)
		memreg_table_write(pool->table, i, 0, 0);
	mutex_unlock(&pool->lock);
}

/**
 * memreg_pool_free() - Free the pool of an MR, along with the MR
 * @pool: The pool, or NULL
 */
void memreg_pool_free(struct memreg_kpool *pool)
{
	if (!pool)
		return;
	if (pool->table)
		memreg_table_put(pool->table);
	bitmap_free(pool->chosen);
	mutex_destroy(&pool->lock);
	kfree(pool);
}
