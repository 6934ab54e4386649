// SPDX-License-Identifier: GPL-2.0-only
/*
 * The state of a device, its last error, and its capacity: what all other files
 * report to.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/sched/mm.h>
#include <linux/stdarg.h>

#include "blk.h"

/* Workqueue for new capacities; no I/O waits for it. */
struct workqueue_struct *memreg_blk_wq;

/**
 * memreg_blk_say() - Log a failure
 * @blk: The device
 * @fmt: Format of the message; empty: log nothing
 *
 * In any context.
 */
void memreg_blk_say(struct memreg_blk *blk, const char *fmt, ...)
{
	unsigned long flags;
	va_list args;

	va_start(args, fmt);
	spin_lock_irqsave(&blk->error_lock, flags);
	vscnprintf(blk->error, sizeof(blk->error), fmt, args);
	spin_unlock_irqrestore(&blk->error_lock, flags);
	va_end(args);
}

/* DISABLED is final until the device is enabled again. */
void memreg_blk_set_state(struct memreg_blk *blk, enum memreg_blk_state state)
{
	lockdep_assert_held(&blk->state_lock);
	if (blk->state == MEMREG_BLK_DISABLED)
		return;
	/* Pairs with memreg_blk_is(). */
	smp_store_release(&blk->state, state);
}

/**
 * memreg_blk_broken() - Report an error of a connection
 * @blk: The device
 * @fmt: Format of the error; only the first one is logged
 *
 * In any context. All connections of the device are given up.
 */
void memreg_blk_broken(struct memreg_blk *blk, const char *fmt, ...)
{
	char text[MEMREG_BLK_ERROR_SIZE];
	unsigned long flags;
	bool first, live;
	va_list args;

	spin_lock_irqsave(&blk->state_lock, flags);
	first = !blk->broken;
	live = blk->state == MEMREG_BLK_LIVE;
	WRITE_ONCE(blk->broken, true);
	if (live)
		memreg_blk_set_state(blk, MEMREG_BLK_RECOVERING);
	spin_unlock_irqrestore(&blk->state_lock, flags);
	if (!first)
		return;
	va_start(args, fmt);
	vscnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	memreg_blk_say(blk, "%s", text);
	wake_up(&blk->wait);
	if (!live)
		return;
	pr_info_ratelimited("%s: connection lost: %s\n", blk->disk->disk_name,
			    text);
	mod_delayed_work(blk->wq, &blk->recover, 0);
}

/**
 * memreg_blk_left() - Time that I/O will still wait for a connection
 * @blk: The device
 *
 * Return: jiffies; the maximum if I/O waits without limit, or does not wait.
 */
unsigned long memreg_blk_left(const struct memreg_blk *blk)
{
	unsigned long end = blk->lost_at + blk->fail_after * HZ, now = jiffies;

	if (blk->fail_after < 0 || !memreg_blk_is(blk, MEMREG_BLK_RECOVERING))
		return MAX_JIFFY_OFFSET;
	return time_before(now, end) ? end - now : 0;
}

/*
 * Capacity
 */

/* Shortest interval between two notifications of a new capacity. */
#define MEMREG_BLK_RESIZE	HZ

void memreg_blk_resize_work(struct work_struct *work)
{
	struct memreg_blk *blk = container_of(work, struct memreg_blk,
					      resize.work);
	u64 capacity = atomic64_read(&blk->capacity);
	unsigned int noio = memalloc_noio_save();

	WRITE_ONCE(blk->resize_next, jiffies + MEMREG_BLK_RESIZE);
	if (set_capacity_and_notify(blk->disk, capacity >> SECTOR_SHIFT))
		atomic64_inc(&blk->stats.resizes);
	memalloc_noio_restore(noio);
}

/* A server may report another capacity with each of its answers. */
void memreg_blk_resize_later(struct memreg_blk *blk)
{
	unsigned long next = READ_ONCE(blk->resize_next), now = jiffies;

	queue_delayed_work(memreg_blk_wq, &blk->resize,
			   time_before(now, next) ? next - now : 0);
}

/**
 * memreg_blk_capacity() - Handle the capacity that the server reported
 * @blk: The device
 * @capacity: Bytes
 *
 * In any context. Answers on several queues may arrive in another order than
 * they were sent: the next keep-alive reports the final value.
 */
void memreg_blk_capacity(struct memreg_blk *blk, u64 capacity)
{
	if (atomic64_read(&blk->capacity) == capacity)
		return;
	atomic64_set(&blk->capacity, capacity);
	if (memreg_blk_is(blk, MEMREG_BLK_CONNECTING))
		return;
	memreg_blk_resize_later(blk);
}
