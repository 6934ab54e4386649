// SPDX-License-Identifier: GPL-2.0-only
/*
 * Open files: their numbers, and their lifetime.
 */
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "core.h"

/* Threads of the workqueue below. */
#define MEMREG_THREADS	4

struct workqueue_struct *memreg_wq;

int __init memreg_file_init(void)
{
	memreg_wq = alloc_workqueue("memreg", WQ_UNBOUND | WQ_MEM_RECLAIM,
				    MEMREG_THREADS);
	return memreg_wq ? 0 : -ENOMEM;
}

void memreg_file_exit(void)
{
	destroy_workqueue(memreg_wq);
}

/* All open files, by number; numbers are allocated cyclically. */
static struct xarray memreg_files =
	XARRAY_INIT(memreg_files, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
static u32 memreg_next_number;

/**
 * memreg_file_put() - Drop a reference of a file
 * @file: The file; freed with its last reference
 */
void memreg_file_put(struct memreg_file *file)
{
	if (refcount_dec_and_test(&file->refs)) {
		kvfree(file->scratch);
		put_pid(file->pid);
		memreg_user_put(file->user);
		kfree(file);
	}
}

/**
 * memreg_file_next() - Find an open file by its number
 * @number: Number to start at
 *
 * Return: the file with the least number from @number on, with a reference;
 * NULL if there is none.
 */
struct memreg_file *memreg_file_next(u32 number)
{
	unsigned long index = number;
	struct memreg_file *file;

	xa_lock(&memreg_files);
	file = xa_find(&memreg_files, &index, ULONG_MAX, XA_PRESENT);
	if (file)
		refcount_inc(&file->refs);
	xa_unlock(&memreg_files);
	return file;
}

static void memreg_file_wake_work(struct work_struct *work)
{
	struct memreg_file *file = container_of(work, struct memreg_file, wake);

	wake_up_all(&file->wait);
	memreg_file_put(file);
}

/**
 * memreg_file_wake() - Wake readers and pollers of a file by a worker
 * @file: The file
 *
 * The cost to the caller, which may be a handler of the RDMA CM, does not
 * depend on the number of waiters.
 *
 * Context: any in which a spinlock may be taken.
 */
void memreg_file_wake(struct memreg_file *file)
{
	if (!wq_has_sleeper(&file->wait))
		return;
	/* Reference of the worker; the caller can rely on another. */
	refcount_inc(&file->refs);
	if (!queue_work(memreg_wq, &file->wake))
		refcount_dec(&file->refs);
}

/**
 * memreg_file_new() - Allocate a file that is not bound to a device yet
 *
 * Return: the file; ERR_PTR(-ENOMEM) or ERR_PTR(-EBUSY).
 */
struct memreg_file *memreg_file_new(void)
{
	struct memreg_file *file;
	int ret;

	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return ERR_PTR(-ENOMEM);
	file->user = memreg_user_get(memreg_user_uid());
	if (!file->user) {
		kfree(file);
		return ERR_PTR(-ENOMEM);
	}
	init_rwsem(&file->lock);
	refcount_set(&file->refs, 1);
	xa_init_flags(&file->objects, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
	spin_lock_init(&file->grant_lock);
	spin_lock_init(&file->event_lock);
	INIT_LIST_HEAD(&file->events);
	INIT_LIST_HEAD(&file->ended_leases);
	init_waitqueue_head(&file->wait);
	INIT_WORK(&file->wake, memreg_file_wake_work);
	spin_lock_init(&file->teardowns.lock);
	INIT_LIST_HEAD(&file->teardowns.ready);
	INIT_LIST_HEAD(&file->device_node);

	ret = xa_alloc_cyclic(&memreg_files, &file->number, file,
			      xa_limit_31b, &memreg_next_number,
			      GFP_KERNEL_ACCOUNT);
	if (ret < 0) {
		memreg_user_put(file->user);
		kfree(file);
		return ERR_PTR(ret);
	}
	return file;
}

/**
 * memreg_file_hide() - Hide a file from memreg_file_next()
 * @file: File that is being closed
 */
void memreg_file_hide(struct memreg_file *file)
{
	xa_erase(&memreg_files, file->number);
}
