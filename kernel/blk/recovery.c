// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recovery of lost connections, and the end of a device.
 *
 *	CONNECTING --enabled--> LIVE --broken--> RECOVERING --> LIVE
 *					 |	  ^
 *					 v	  |
 *				       FAILED ----+ (by its worker)
 *
 * A completion with an error, an event of the RDMA CM, an invalid answer, or a
 * request without an answer leads to a call of memreg_blk_broken(), which
 * queues the worker that does all further steps:
 *
 *	1. blk-mq is quiesced: no more commands are sent.
 *	2. The QPs are drained and destroyed, the keys of all commands die, and
 *	   with them go pools, PDs and ids (conn.c). Only then:
 *	3. requests that were not answered are requeued, with their sequence
 *	   numbers, or fail if they were requeued too often.
 *	4. The worker connects again, in a new epoch, and unquiesces blk-mq; or
 *	   it tries again later, with twice the delay each time, unless the
 *	   server has answered a command in between. If the connection has not
 *	   lasted for as long as the least delay, it waits for that.
 *	5. If this takes longer than fail_after seconds, I/O fails until the
 *	   worker succeeds.
 *
 * Writeback may depend on the recovery, so the worker has a rescuer and
 * allocates with GFP_NOIO. The module has no influence on the workers of the
 * RDMA CM and of drivers.
 *
 * The end: while a device is being stopped, a loss of the connection fails I/O
 * at once, without a recovery. So the disk can be removed both with a live
 * server, to which dirty data is still written, and with a dead one.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/sched/mm.h>

#include "blk.h"

#define MEMREG_BLK_DELAY_MIN	(HZ / 10)
#define MEMREG_BLK_DELAY_MAX	(10 * HZ)

/**
 * memreg_blk_live() - Allow I/O to begin, or to continue
 * @blk: The device, which is connected
 */
void memreg_blk_live(struct memreg_blk *blk)
{
	/* After a loss, find out at once if the new connection is useful. */
	unsigned long first = atomic64_read(&blk->stats.losses) ? 0 :
			      blk->keep_alive * HZ;
	bool broken;

	blk->live_since = jiffies;
	spin_lock_irq(&blk->state_lock);
	broken = blk->broken;
	memreg_blk_set_state(blk, broken ? MEMREG_BLK_RECOVERING :
					   MEMREG_BLK_LIVE);
	spin_unlock_irq(&blk->state_lock);
	/* The connection broke before the worker could be queued for it. */
	if (broken)
		mod_delayed_work(blk->wq, &blk->recover, 0);
	else
		mod_delayed_work(blk->wq, &blk->alive, first);
}

/* Restart requests that wait, or were requeued: they are sent, or fail. */
static void memreg_blk_go_on(struct memreg_blk *blk)
{
	if (!blk->quiesced)
		return;
	blk->quiesced = false;
	blk_mq_unquiesce_queue(blk->disk->queue);
	/* No requests of a removed disk were requeued. */
	if (blk->requeued)
		blk_mq_kick_requeue_list(blk->disk->queue);
	blk->requeued = false;
}

/* The connection was useful until now: the next delay is the least one. */
static void memreg_blk_was_good(struct memreg_blk *blk)
{
	blk->lost_at = jiffies;
	blk->delay = MEMREG_BLK_DELAY_MIN;
}

static bool memreg_blk_answered(const struct memreg_blk *blk)
{
	unsigned int i;

	for (i = 0; i < blk->nr_live; i++)
		if (READ_ONCE(blk->live[i].answered))
			return true;
	return false;
}

/*
 * Steps 1 to 3. Returns true if the connection was useful, and the worker may
 * connect again at once: if an answer came by it, as it does not from a server
 * that ends each connection at once, and it has lasted for a while.
 */
static bool memreg_blk_lost(struct memreg_blk *blk)
{
	bool good = memreg_blk_answered(blk);
	unsigned long lost_at = jiffies;
	unsigned int i;

	atomic64_inc(&blk->stats.losses);
	if (good)
		memreg_blk_was_good(blk);
	blk_mq_quiesce_queue(blk->disk->queue);
	blk->quiesced = true;
	memreg_blk_disconnect(blk);
	for (i = 0; i < blk->nr_live; i++)
		memreg_blk_ios_settle(&blk->live[i]);
	return good && time_after(lost_at,
				  blk->live_since + MEMREG_BLK_DELAY_MIN);
}

static bool memreg_blk_expired(const struct memreg_blk *blk)
{
	return READ_ONCE(blk->stopping) || !memreg_blk_left(blk);
}

static void memreg_blk_fail(struct memreg_blk *blk)
{
	if (memreg_blk_is(blk, MEMREG_BLK_FAILED))
		return;
	spin_lock_irq(&blk->state_lock);
	memreg_blk_set_state(blk, MEMREG_BLK_FAILED);
	spin_unlock_irq(&blk->state_lock);
	pr_info("%s: no connection, I/O fails\n", blk->disk->disk_name);
	memreg_blk_go_on(blk);
}

/* Schedule the next attempt, not later than the time when I/O has to fail. */
static void memreg_blk_again(struct memreg_blk *blk)
{
	unsigned long delay = min(blk->delay, memreg_blk_left(blk));

	blk->delay = min(2 * blk->delay, (unsigned long)MEMREG_BLK_DELAY_MAX);
	if (!READ_ONCE(blk->stopping))
		queue_delayed_work(blk->wq, &blk->recover, delay);
}

static void memreg_blk_recover(struct memreg_blk *blk)
{
	bool now = true;

	if (memreg_blk_is(blk, MEMREG_BLK_LIVE) ||
	    memreg_blk_is(blk, MEMREG_BLK_DISABLED))
		return;
	if (blk->connected)
		now = memreg_blk_lost(blk);
	if (now && !memreg_blk_expired(blk) && !memreg_blk_connect(blk)) {
		pr_info_ratelimited("%s: connected again\n",
				    blk->disk->disk_name);
		memreg_blk_live(blk);
		memreg_blk_go_on(blk);
		return;
	}
	if (memreg_blk_expired(blk))
		memreg_blk_fail(blk);
	memreg_blk_again(blk);
}

static void memreg_blk_recover_work(struct work_struct *work)
{
	struct memreg_blk *blk = container_of(to_delayed_work(work),
					      struct memreg_blk, recover);
	unsigned int noio = memalloc_noio_save();

	memreg_blk_recover(blk);
	memalloc_noio_restore(noio);
}

/* Never runs concurrently with the recovery, so the queues do not change. */
static void memreg_blk_alive_work(struct work_struct *work)
{
	struct memreg_blk *blk = container_of(to_delayed_work(work),
					      struct memreg_blk, alive);
	unsigned int i;

	if (!memreg_blk_is(blk, MEMREG_BLK_LIVE))
		return;
	for (i = 0; i < blk->nr_live; i++) {
		if (!memreg_blk_nop(&blk->live[i]))
			continue;
		atomic64_inc(&blk->stats.timeouts);
		memreg_blk_broken(blk, "the server doesn't answer");
		return;
	}
	queue_delayed_work(blk->wq, &blk->alive, blk->keep_alive * HZ);
}

/**
 * memreg_blk_recovery_init() - Prepare the workers of a device
 * @blk: The device
 */
void memreg_blk_recovery_init(struct memreg_blk *blk)
{
	INIT_DELAYED_WORK(&blk->recover, memreg_blk_recover_work);
	INIT_DELAYED_WORK(&blk->alive, memreg_blk_alive_work);
}

/**
 * memreg_blk_keep() - Recover from losses from now on
 * @blk: The device, which was live when memreg_blk.stopping was set
 *
 * Return: 0, or -ECONNRESET if the connection was lost meanwhile.
 */
int memreg_blk_keep(struct memreg_blk *blk)
{
	bool lost;

	spin_lock_irq(&blk->state_lock);
	lost = blk->broken;
	if (!lost) {
		memreg_blk_was_good(blk);
		WRITE_ONCE(blk->stopping, false);
	}
	spin_unlock_irq(&blk->state_lock);
	return lost ? -ECONNRESET : 0;
}

/**
 * memreg_blk_stop() - Do not recover from losses from now on
 * @blk: The device
 *
 * I/O ends within io_timeout seconds, or MEMREG_BLK_PATIENCE times as many if
 * the server answers any command; it fails at once if the device is not
 * connected.
 */
void memreg_blk_stop(struct memreg_blk *blk)
{
	WRITE_ONCE(blk->stopping, true);
	wake_up(&blk->wait);
	if (!memreg_blk_is(blk, MEMREG_BLK_LIVE))
		mod_delayed_work(blk->wq, &blk->recover, 0);
}

/**
 * memreg_blk_stopped() - Release the connections of a stopped device
 * @blk: The device, which was stopped, and has no I/O any more
 *
 * May sleep. When it returns, no worker of the device runs.
 */
void memreg_blk_stopped(struct memreg_blk *blk)
{
	/* A loss that is seen from here on does not queue the worker. */
	spin_lock_irq(&blk->state_lock);
	memreg_blk_set_state(blk, MEMREG_BLK_DISABLED);
	spin_unlock_irq(&blk->state_lock);
	/*
	 * In this order, as a recovery that just succeeds queues the other
	 * work.
	 */
	cancel_delayed_work_sync(&blk->recover);
	cancel_delayed_work_sync(&blk->alive);
	memreg_blk_disconnect(blk);
	cancel_delayed_work_sync(&blk->resize);
}
