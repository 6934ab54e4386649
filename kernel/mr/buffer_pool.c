// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pools: many buffers of one size, each with a key of its own.
 *
 * A pool is an MR whose range is divided among keys in another way: one key for
 * each buffer, and none for the gaps between them. Work requests and windows
 * name the buffers by MR and offset. Only the user's library keeps track of
 * which buffers are in use; the kernel does not need to know, and trusts no
 * such information.
 *
 * The keys are in a table that the user maps read-only, so the library can
 * grant a buffer to a peer without a system call. Recycling gives buffers new
 * keys: all new keys work before the table shows them, and the table shows them
 * before the first old key dies, so that a failure leaves the old keys as they
 * were (I8).
 */
#include <linux/bitmap.h>
#include <linux/file.h>
#include <linux/nospec.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/key.h"
#include "mr/buffer_pool.h"
#include "mr/mr.h"
#include "mr/mr_keys.h"

/*
 * The pool
 */

static struct memreg_kpool *memreg_pool_new(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_pool_create *cmd = ucmd->cmd;
	struct memreg_kpool *pool;

	pool = kzalloc(sizeof(*pool), GFP_KERNEL_ACCOUNT);
	if (!pool)
		return NULL;
	mutex_init(&pool->lock);
	pool->count = cmd->count;
	pool->buffer_size = cmd->buffer_size;
	pool->stride = cmd->stride;
	pool->chosen = bitmap_zalloc(cmd->count, GFP_KERNEL_ACCOUNT);
	pool->table = memreg_table_new(pool);
	if (pool->chosen && pool->table)
		return pool;
	memreg_pool_free(pool);
	return NULL;
}

/* Can one key of small pages span a buffer at any offset? */
static bool memreg_pool_spans(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_pool_create *cmd = ucmd->cmd;
	u64 pages = ucmd->mdev->max_pages;

	if ((cmd->addr | cmd->stride) & (MEMREG_PAGE_SIZE - 1))
		pages--;
	return cmd->buffer_size <= pages << MEMREG_PAGE_SHIFT;
}

/* Check the shape and find the bytes from the first to the last buffer. */
static int memreg_pool_check(struct memreg_ucmd *ucmd, u64 *length)
{
	struct ib_memreg_pool_create *cmd = ucmd->cmd;

	if (cmd->flags & ~(IB_MEMREG_MR_UNGUARDED | IB_MEMREG_MR_FD))
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->count || cmd->count > IB_MEMREG_POOL_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	if (!cmd->buffer_size)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_ZERO_LENGTH);
	if (!cmd->stride)
		cmd->stride = cmd->buffer_size;
	if (cmd->stride < cmd->buffer_size)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_STRIDE);
	if (check_mul_overflow(cmd->stride, cmd->count - 1, length) ||
	    check_add_overflow(*length, cmd->buffer_size, length))
		return memreg_fail(ucmd, -EOVERFLOW, IB_MEMREG_REASON_WRAPS);
	if (!memreg_pool_spans(ucmd))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SPAN);
	return 0;
}

/* Make the MR, which takes over the pool in any case. */
static struct memreg_kmr *memreg_pool_make_mr(struct memreg_ucmd *ucmd,
					      struct memreg_kpool *pool,
					      u64 length)
{
	struct ib_memreg_pool_create *cmd = ucmd->cmd;
	struct ib_memreg_mr_register reg = {
		.flags = cmd->flags,
		.domain_id = cmd->domain_id,
		.access = cmd->access,
		.addr = cmd->addr,
		.length = length,
		.fd = cmd->fd,
	};
	struct memreg_ucmd sub = *ucmd;
	struct memreg_kmr *mr;

	sub.cmd = &reg;
	mr = memreg_mr_begin(&sub, pool);
	ucmd->reason = sub.reason;
	ucmd->fault = sub.fault;
	return mr;
}

/* Fill in the table and the answer, and install what the answer names. */
static int memreg_pool_respond(struct memreg_ucmd *ucmd, struct memreg_kmr *mr)
{
	struct ib_memreg_pool_create *cmd = ucmd->cmd;
	struct memreg_table *table = mr->pool->table;
	struct file *filp;
	int fd, ret;
	u32 i;

	for (i = 0; i < mr->pool->count; i++)
		memreg_table_write(table, i, mr->iova + i * mr->pool->stride,
				   mr->nkeys ? mr->keys[i].rkey : 0);
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	filp = memreg_table_file(table);
	if (IS_ERR(filp)) {
		put_unused_fd(fd);
		return PTR_ERR(filp);
	}
	cmd->out_mr_id = mr->obj.id;
	cmd->out_table_fd = fd;
	cmd->out_table_size = table->memory.size;
	cmd->out_iova = mr->iova;
	ret = memreg_respond(ucmd, sizeof(*cmd));
	if (ret) {
		fput(filp);
		put_unused_fd(fd);
		return ret;
	}
	fd_install(fd, filp);
	return 0;
}

/* ioctl(IB_MEMREG_IOC_POOL_CREATE) */
int memreg_pool_create_ioctl(struct memreg_ucmd *ucmd)
{
	struct memreg_kpool *pool;
	struct memreg_kmr *mr;
	u64 length;
	int ret;

	ret = memreg_pool_check(ucmd, &length);
	if (ret)
		return ret;
	pool = memreg_pool_new(ucmd);
	if (!pool)
		return -ENOMEM;
	mr = memreg_pool_make_mr(ucmd, pool, length);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	return memreg_mr_made(ucmd, mr, memreg_pool_respond(ucmd, mr));
}

/*
 * Recycling
 */

/**
 * struct memreg_recycle - Buffers that a call gives new keys
 * @keys: The fresh keys; then the old ones
 * @batch: Pointers to them, in any order
 * @indices: The buffers
 */
struct memreg_recycle {
	struct memreg_key keys[IB_MEMREG_BATCH_MAX];
	struct memreg_key *batch[IB_MEMREG_BATCH_MAX];
	u32 indices[IB_MEMREG_BATCH_MAX];
};

/*
 * Mark a buffer as named. Returns false if there is no such buffer; sets @twice
 * if it was marked before.
 */
static bool memreg_recycle_mark(struct memreg_kpool *pool, u32 *index,
				bool *twice)
{
	if (*index >= pool->count)
		return false;
	*index = array_index_nospec(*index, pool->count);
	*twice = __test_and_set_bit(*index, pool->chosen);
	return true;
}

/* Check that each index is in the pool and named only once. */
static int memreg_recycle_check(struct memreg_ucmd *ucmd,
				struct memreg_kpool *pool, u32 *indices)
{
	struct ib_memreg_pool_recycle *cmd = ucmd->cmd;
	bool twice = false;
	int ret = 0;
	u32 i;

	for (i = 0; i < cmd->count && !ret; i++) {
		cmd->out_index = i;
		if (!memreg_recycle_mark(pool, &indices[i], &twice))
			ret = memreg_fail(ucmd, -EINVAL,
					  IB_MEMREG_REASON_RANGE);
		else if (twice)
			ret = memreg_fail(ucmd, -EINVAL,
					  IB_MEMREG_REASON_TWICE);
	}
	/*
	 * Clear all marks. An index that failed is out of range, or was marked
	 * by an earlier entry.
	 */
	while (i--)
		if (indices[i] < pool->count)
			__clear_bit(array_index_nospec(indices[i], pool->count),
				    pool->chosen);
	return ret;
}

/* Exchange the keys, and write the new ones to the table. */
static void memreg_recycle_swap(struct memreg_kmr *mr,
				struct memreg_recycle *recycle, u32 count)
{
	u32 i, index;

	for (i = 0; i < count; i++) {
		index = recycle->indices[i];
		if (mr->keys[index].invalidated)
			WRITE_ONCE(mr->invalidated, mr->invalidated - 1);
		swap(mr->keys[index], recycle->keys[i]);
		recycle->batch[i] = &recycle->keys[i];
		memreg_table_write(mr->pool->table, index,
				   mr->keys[index].iova, mr->keys[index].rkey);
	}
}

static int memreg_pool_do_recycle(struct memreg_ucmd *ucmd,
				  struct memreg_kmr *mr,
				  struct memreg_recycle *recycle)
{
	struct ib_memreg_pool_recycle *cmd = ucmd->cmd;
	int ret;
	u32 i;

	ret = memreg_recycle_check(ucmd, mr->pool, recycle->indices);
	if (ret)
		return ret;
	for (i = 0; i < cmd->count; i++) {
		memreg_pool_key(mr, recycle->indices[i], &recycle->keys[i]);
		recycle->batch[i] = &recycle->keys[i];
	}
	ret = memreg_keys_make(mr->domain, recycle->batch, cmd->count);
	if (ret)
		return memreg_mr_key_reason(ucmd, ret);
	memreg_recycle_swap(mr, recycle, cmd->count);
	/* The table no longer shows the old keys: kill them. */
	if (cmd->flags & IB_MEMREG_RECYCLE_RELAXED)
		memreg_keys_revoke_relaxed(mr->domain, recycle->batch,
					   cmd->count);
	else
		memreg_keys_revoke(mr->domain, recycle->batch, cmd->count);
	return 0;
}

static int memreg_recycle_locked(struct memreg_ucmd *ucmd,
				 struct memreg_kmr *mr)
{
	struct ib_memreg_pool_recycle *cmd = ucmd->cmd;
	struct memreg_recycle *recycle;
	int ret = -EINTR;

	if (!mr->pool || !mr->nkeys)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_POOL);
	recycle = kvmalloc(sizeof(*recycle), GFP_KERNEL_ACCOUNT);
	if (!recycle)
		return -ENOMEM;
	if (copy_from_user(recycle->indices, u64_to_user_ptr(cmd->indices),
			   cmd->count * sizeof(u32))) {
		ret = -EFAULT;
	} else if (!mutex_lock_killable(&mr->pool->lock)) {
		ret = memreg_pool_do_recycle(ucmd, mr, recycle);
		mutex_unlock(&mr->pool->lock);
	}
	kvfree(recycle);
	return ret;
}

/* ioctl(IB_MEMREG_IOC_POOL_RECYCLE) */
int memreg_pool_recycle_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_pool_recycle *cmd = ucmd->cmd;
	struct memreg_object *obj;
	int ret;

	if (cmd->flags & ~IB_MEMREG_RECYCLE_RELAXED)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (!cmd->count || cmd->count > IB_MEMREG_BATCH_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	obj = memreg_object_get(ucmd->file, cmd->mr_id, IB_MEMREG_OBJECT_MR);
	if (!obj)
		return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	cmd->out_index = cmd->count;
	ret = memreg_recycle_locked(ucmd,
				    container_of(obj, struct memreg_kmr, obj));
	memreg_object_put(obj);
	/* On failure only the index of the entry that failed is returned. */
	if (ret == -EINVAL && memreg_respond(ucmd, sizeof(*cmd)))
		ret = -EFAULT;
	return ret;
}
