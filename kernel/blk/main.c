// SPDX-License-Identifier: GPL-2.0-only
/*
 * Disks for blk-mq.
 *
 * The life of a device: its directory is made (configfs.c); it is enabled,
 * which connects and, by what the server reports of the export, makes a disk;
 * it is disabled, which removes the disk and disconnects.
 */
#include <linux/idr.h>
#include <linux/inet.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/random.h>
#include <net/net_namespace.h>

#include "blk.h"

static DEFINE_IDA(memreg_blk_numbers);

/*
 * blk-mq
 */

static int memreg_blk_init_hctx(struct blk_mq_hw_ctx *hctx, void *data,
				unsigned int index)
{
	struct memreg_blk *blk = data;

	blk->live[index].hctx = hctx;
	hctx->driver_data = &blk->live[index];
	return 0;
}

static blk_status_t memreg_blk_queue_rq(struct blk_mq_hw_ctx *hctx,
					const struct blk_mq_queue_data *bd)
{
	struct memreg_blk_queue *queue = hctx->driver_data;
	struct memreg_blk *blk = queue->blk;

	if (!memreg_blk_is(blk, MEMREG_BLK_LIVE))
		return memreg_blk_is(blk, MEMREG_BLK_RECOVERING) ?
		       BLK_STS_RESOURCE : BLK_STS_TRANSPORT;
	blk_mq_start_request(bd->rq);
	return memreg_blk_send(queue, bd->rq);
}

/*
 * A command can be taken back from the server only by ending the connection. If
 * commands are slow because many are in flight, starting over would make them
 * slower. The request may be about to be requeued, so that it has no tag any
 * more.
 */
static enum blk_eh_timer_return memreg_blk_timeout(struct request *rq)
{
	struct memreg_blk_queue *queue = rq->mq_hctx->driver_data;
	const struct memreg_blk_rq *mine = blk_mq_rq_to_pdu(rq);
	unsigned long sent = READ_ONCE(mine->sent);

	if (memreg_blk_may_wait(queue, sent))
		return BLK_EH_RESET_TIMER;
	atomic64_inc(&queue->blk->stats.timeouts);
	memreg_blk_broken(queue->blk, "queue %u: no answer in %lu seconds",
			  queue->index, (jiffies - sent) / HZ);
	return BLK_EH_RESET_TIMER;
}

static const struct blk_mq_ops memreg_blk_mq_ops = {
	.queue_rq = memreg_blk_queue_rq,
	.timeout = memreg_blk_timeout,
	.init_hctx = memreg_blk_init_hctx,
};

static const struct block_device_operations memreg_blk_fops = {
	.owner = THIS_MODULE,
};

static int memreg_blk_tag_set(struct memreg_blk *blk)
{
	struct blk_mq_tag_set *set = &blk->tag_set;

	memset(set, 0, sizeof(*set));
	set->ops = &memreg_blk_mq_ops;
	set->nr_hw_queues = blk->nr_live;
	set->queue_depth = blk->export.depth - 1;
	set->numa_node = NUMA_NO_NODE;
	set->cmd_size = sizeof(struct memreg_blk_rq);
	set->timeout = blk->io_timeout * HZ;
	set->driver_data = blk;
	set->flags = BLK_MQ_F_NO_SCHED_BY_DEFAULT;
#ifdef MEMREG_BLK_SHOULD_MERGE
	set->flags |= BLK_MQ_F_SHOULD_MERGE;
#endif
	return blk_mq_alloc_tag_set(set);
}

/* The server's granularity, unless a DISCARD could not be split by it. */
static u32 memreg_blk_granularity(const struct memreg_blk_export *e)
{
	u32 bytes = e->discard_granularity;

	if (!is_power_of_2(bytes) || bytes < e->block_size ||
	    bytes > MEMREG_BLK_RANGE_MAX)
		return e->block_size;
	return bytes;
}

/*
 * A request has no gaps at page boundaries, so that it needs no more MRs than
 * its number of pages requires.
 */
static struct queue_limits memreg_blk_queue_limits(const struct memreg_blk *blk)
{
	const struct memreg_blk_export *e = &blk->export;
	struct queue_limits lim = {
		.logical_block_size = e->block_size,
		.physical_block_size = e->physical_block_size,
		.max_hw_sectors = blk->io_max >> SECTOR_SHIFT,
		.max_segments = memreg_blk_pieces(blk),
		.virt_boundary_mask = PAGE_SIZE - 1,
	};

	if (e->flags & IB_MEMREG_BLK_WRITE_CACHE)
		lim.features |= BLK_FEAT_WRITE_CACHE;
	if (e->flags & IB_MEMREG_BLK_HAS_FUA)
		lim.features |= BLK_FEAT_FUA;
	if (e->flags & IB_MEMREG_BLK_HAS_DISCARD) {
		lim.max_hw_discard_sectors = MEMREG_BLK_RANGE_MAX >>
					     SECTOR_SHIFT;
		lim.discard_granularity = memreg_blk_granularity(e);
	}
	if (e->flags & IB_MEMREG_BLK_HAS_ZEROES)
		lim.max_write_zeroes_sectors = MEMREG_BLK_RANGE_MAX >>
					       SECTOR_SHIFT;
	return lim;
}

/*
 * A name that stays the same over detaching and reboots, unlike that of the
 * disk. It names the export by the server's address: no server is trusted to
 * have an identity that no other has. Its parts change only while there is no
 * disk.
 */
static ssize_t wwid_show(struct device *dev, struct device_attribute *attr,
			 char *page)
{
	const struct memreg_blk *blk = dev_to_disk(dev)->private_data;

	return sysfs_emit(page, "memreg-%s-%d%s%.*s\n", blk->address, blk->port,
			  blk->export_name[0] ? "-" : "",
			  IB_MEMREG_BLK_EXPORT_MAX, blk->export_name);
}

static DEVICE_ATTR_RO(wwid);

static struct attribute *memreg_blk_disk_attrs[] = {
	&dev_attr_wwid.attr,
	NULL,
};
ATTRIBUTE_GROUPS(memreg_blk_disk);

static int memreg_blk_alloc_disk(struct memreg_blk *blk)
{
	struct queue_limits lim = memreg_blk_queue_limits(blk);
	struct gendisk *disk;

	blk->disk_number = ida_alloc(&memreg_blk_numbers, GFP_KERNEL);
	if (blk->disk_number < 0)
		return blk->disk_number;
	disk = blk_mq_alloc_disk(&blk->tag_set, &lim, blk);
	if (IS_ERR(disk)) {
		ida_free(&memreg_blk_numbers, blk->disk_number);
		return PTR_ERR(disk);
	}
	snprintf(disk->disk_name, sizeof(disk->disk_name), "memregb%d",
		 blk->disk_number);
	disk->fops = &memreg_blk_fops;
	disk->private_data = blk;
	set_capacity(disk, atomic64_read(&blk->capacity) >> SECTOR_SHIFT);
	set_disk_ro(disk, blk->export.flags & IB_MEMREG_BLK_READ_ONLY);
	blk->disk = disk;
	return 0;
}

static void memreg_blk_free_disk(struct memreg_blk *blk)
{
	put_disk(blk->disk);
	blk->disk = NULL;
	ida_free(&memreg_blk_numbers, blk->disk_number);
	blk_mq_free_tag_set(&blk->tag_set);
}

static void memreg_blk_remove_disk(struct memreg_blk *blk, bool added)
{
	memreg_blk_stop(blk);
	if (added)
		del_gendisk(blk->disk);
	memreg_blk_stopped(blk);
	memreg_blk_free_disk(blk);
}

/*
 * The device is LIVE before the disk is added, as adding it reads the partition
 * table. The device cannot be disabled until that has ended, so a loss of the
 * connection fails I/O meanwhile.
 */
static int memreg_blk_add_disk(struct memreg_blk *blk)
{
	bool added;
	int ret;

	ret = memreg_blk_tag_set(blk);
	if (ret)
		return ret;
	ret = memreg_blk_alloc_disk(blk);
	if (ret) {
		blk_mq_free_tag_set(&blk->tag_set);
		return ret;
	}
	blk->stopping = true;
	memreg_blk_live(blk);
	ret = device_add_disk(NULL, blk->disk, memreg_blk_disk_groups);
	added = !ret;
	if (added)
		ret = memreg_blk_keep(blk);
	if (ret) {
		memreg_blk_remove_disk(blk, added);
		return ret;
	}
	/* The capacity may have changed since it was set. */
	memreg_blk_resize_later(blk);
	return 0;
}

/*
 * Enabling
 */

/*
 * Reset the state of earlier connections, except the client's identity, the
 * epoch and the sequence number: by these a server recognizes commands of
 * earlier connections, and ends them first.
 */
static void memreg_blk_reset(struct memreg_blk *blk)
{
	memset(&blk->stats, 0, sizeof(blk->stats));
	mutex_lock(&blk->conn_lock);
	memset(&blk->past, 0, sizeof(blk->past));
	mutex_unlock(&blk->conn_lock);
	atomic64_set(&blk->capacity, 0);
	blk->first = atomic64_read(&blk->seq);
	blk->known = false;
	blk->io_max = MEMREG_BLK_IO_MAX;
	blk->stopping = false;
	blk->quiesced = false;
	blk->requeued = false;
	blk->nr_live = min_t(unsigned int, blk->queues, nr_cpu_ids);
}

static void memreg_blk_set_live(struct memreg_blk *blk,
				struct memreg_blk_queue *live)
{
	mutex_lock(&blk->conn_lock);
	blk->live = live;
	mutex_unlock(&blk->conn_lock);
}

static int memreg_blk_alloc_queues(struct memreg_blk *blk)
{
	struct memreg_blk_queue *live;
	unsigned int i;
	int ret = 0;

	live = kvcalloc(blk->nr_live, sizeof(*live), GFP_KERNEL);
	if (!live)
		return -ENOMEM;
	memreg_blk_set_live(blk, live);
	/*
	 * Free all queues, including those that were not allocated completely.
	 */
	for (i = 0; i < blk->nr_live; i++) {
		live[i].blk = blk;
		live[i].index = i;
	}
	for (i = 0; i < blk->nr_live && !ret; i++)
		ret = memreg_blk_queue_alloc(&live[i]);
	return ret;
}

/*
 * Derive the client's identity: always the same one for a server, and a
 * different one for each, so that no server can use it at another server.
 */
static void memreg_blk_identify(struct memreg_blk *blk)
{
	u64 half[ARRAY_SIZE(blk->secret)];
	unsigned int i;

	static_assert(sizeof(half) == sizeof(blk->client));
	for (i = 0; i < ARRAY_SIZE(half); i++)
		half[i] = siphash(&blk->addr, sizeof(blk->addr),
				  &blk->secret[i]);
	memcpy(blk->client, half, sizeof(half));
}

static int memreg_blk_prepare(struct memreg_blk *blk)
{
	char port[6];
	int ret;

	memreg_blk_reset(blk);
	blk->net = get_net(current->nsproxy->net_ns);
	snprintf(port, sizeof(port), "%u", blk->port);
	memset(&blk->addr, 0, sizeof(blk->addr));
	ret = inet_pton_with_scope(blk->net, AF_UNSPEC, blk->address, port,
				   &blk->addr);
	if (ret) {
		memreg_blk_say(blk, "there is no valid address");
		return -EINVAL;
	}
	memreg_blk_identify(blk);
	blk->wq = alloc_ordered_workqueue("memreg_blk-%s", WQ_MEM_RECLAIM,
					  memreg_blk_name(blk));
	if (!blk->wq)
		return -ENOMEM;
	return memreg_blk_alloc_queues(blk);
}

static void memreg_blk_unprepare(struct memreg_blk *blk)
{
	struct memreg_blk_queue *live = blk->live;
	unsigned int i;

	memreg_blk_set_live(blk, NULL);
	for (i = 0; i < blk->nr_live && live; i++)
		memreg_blk_queue_free(&live[i]);
	kvfree(live);
	if (blk->wq)
		destroy_workqueue(blk->wq);
	blk->wq = NULL;
	put_net(blk->net);
}

static int memreg_blk_bring_up(struct memreg_blk *blk)
{
	int ret;

	ret = memreg_blk_connect(blk);
	if (ret)
		return ret;
	ret = memreg_blk_add_disk(blk);
	if (!ret)
		return 0;
	if (ret != -ECONNRESET)
		memreg_blk_say(blk, "can't make a disk: error %d", ret);
	memreg_blk_disconnect(blk);
	return ret;
}

/**
 * memreg_blk_enable() - Connect, and make a disk
 * @blk: The device, which is disabled
 *
 * May sleep. The device uses the network namespace of the caller.
 *
 * Return: 0 or -errno, with the reason logged.
 */
int memreg_blk_enable(struct memreg_blk *blk)
{
	int ret;

	lockdep_assert_held(&blk->lock);
	memreg_blk_say(blk, "%s", "");
	ret = memreg_blk_prepare(blk);
	if (ret == -ENOMEM)
		memreg_blk_say(blk, "there is not enough memory");
	if (!ret) {
		WRITE_ONCE(blk->state, MEMREG_BLK_CONNECTING);
		ret = memreg_blk_bring_up(blk);
	}
	if (ret) {
		WRITE_ONCE(blk->state, MEMREG_BLK_DISABLED);
		memreg_blk_unprepare(blk);
	}
	return ret;
}

/**
 * memreg_blk_disable() - Remove the disk, and disconnect
 * @blk: The device
 *
 * May sleep, for the time that memreg_blk_stop() documents.
 */
void memreg_blk_disable(struct memreg_blk *blk)
{
	lockdep_assert_held(&blk->lock);
	if (memreg_blk_is(blk, MEMREG_BLK_DISABLED))
		return;
	memreg_blk_remove_disk(blk, true);
	memreg_blk_unprepare(blk);
}

/**
 * memreg_blk_init() - Prepare a device
 * @blk: The device, zeroed
 */
void memreg_blk_init(struct memreg_blk *blk)
{
	mutex_init(&blk->lock);
	mutex_init(&blk->conn_lock);
	spin_lock_init(&blk->state_lock);
	spin_lock_init(&blk->error_lock);
	init_waitqueue_head(&blk->wait);
	INIT_DELAYED_WORK(&blk->resize, memreg_blk_resize_work);
	blk->resize_next = jiffies;
	memreg_blk_recovery_init(blk);
	get_random_bytes(blk->secret, sizeof(blk->secret));
	blk->port = IB_MEMREG_BLK_PORT;
	blk->queues = min_t(int, num_online_cpus(), 4);
	blk->depth = 64;
	blk->inline_max = 4096;
	blk->io_timeout = 30;
	blk->keep_alive = 5;
	blk->fail_after = 60;
	blk->retries = 5;
}
