// SPDX-License-Identifier: GPL-2.0-only
/*
 * ib_memreg_blk: the module, and its directories in configfs:
 * /sys/kernel/config/memreg_blk/NAME.
 *
 * The configuration changes only while a device is disabled.
 */

/**
 * DOC: Attributes of a block device
 *
 * A directory in /sys/kernel/config/memreg_blk is a device. Attributes that can
 * be written have the default in parentheses; EINVAL: that is no valid value;
 * EBUSY: the device is enabled.
 *
 * address
 *	Of the server: IPv4 or IPv6. There is no default.
 * port
 *	Of the server (7472).
 * export
 *	What is wanted of the server, up to 16 printable ASCII characters that
 *	are no blanks. Empty: the only export that there is ().
 * queues
 *	Hardware queues, each with a connection: 1 to 64, but not more than the
 *	machine has CPUs (one for each CPU, up to 4).
 * depth
 *	Commands of each queue that may be in flight: 2 to 256. One of them is
 *	for the keep-alive. The server may allow fewer (64).
 * io_timeout
 *	Seconds, 1 to 86400, after which the connection is given up if a command
 *	is not answered; four times as many if the server answers other commands
 *	of the queue, or the keep-alive, meanwhile (30).
 * keep_alive
 *	Seconds without an answer after which a queue asks its server for one, 1
 *	to 86400 (5).
 * fail_after
 *	Seconds without a connection after which I/O fails, 0 to 86400. -1: I/O
 *	waits until there is a connection, or until the device is disabled (60).
 * retries
 *	Times that a command is sent anew after its connection was lost, 0 to
 *	1000. Then it fails (5).
 * inline_max
 *	Reads and writes up to so many bytes, 0 to 16384, have their data in the
 *	message, not moved by RDMA. Each command takes twice that memory. The
 *	server may allow less (4096).
 * enabled
 *	1: it is, or is to be; 0: not. Writing 0, and removing the directory,
 *	remove the disk, whoever has it open.
 * state
 *	disabled, connecting, live, recovering (I/O waits), failed (I/O fails).
 * error
 *	What went wrong last, if the device isn't live.
 * disk
 *	Name of the disk in /dev. /sys/block/DISK/wwid is a name that stays,
 *	made of address, port and export as they are here.
 * stats
 *	Counters, a name and a number in each line.
 */

/**
 * DOC: Errors of enabling a block device
 *
 * What writing 1 to ``enabled`` fails with; ``error`` has the reason in words.
 * Another errno is that of the RDMA CM, of the device's driver, or of making
 * the disk.
 *
 * EINVAL
 *	There is no address, or what was written is neither 0 nor 1.
 * EBUSY
 *	It is enabled already.
 * EHOSTUNREACH
 *	The address can't be resolved, or there is no route to it.
 * ECONNREFUSED
 *	The server rejects, or is not reached, or connecting fails otherwise.
 * ETIMEDOUT
 *	The RDMA CM, or the server, answered nothing for 10 seconds.
 * EPROTO
 *	The server's welcome is not as the protocol wants it.
 * EMEDIUMTYPE
 *	The server's welcomes to the queues differ.
 * EOPNOTSUPP
 *	The server allows too little, or the RDMA device has no fast
 *	registration.
 * ENODEV
 *	The address led queues to different RDMA devices.
 * ECONNRESET
 *	The connection was lost while it was being enabled.
 * ENOMEM, ENOSPC
 *	There is no memory, or there are no more MRs.
 */

/**
 * DOC: Counters of a block device
 *
 * What ``stats`` has, counted since the device was enabled.
 *
 * commands
 *	Commands, keep-alives included, those sent anew not.
 * connections
 *	Times that all queues were connected.
 * losses
 *	Times that a connection was lost, and given up with all others of the
 *	device.
 * timeouts
 *	Commands that were not answered in time.
 * protocol-errors
 *	Times that the server did what it must not.
 * retries
 *	Commands that were sent anew.
 * failed
 *	Commands that ended with an error, answered or not. Not those that were
 *	never sent, since there was no connection.
 * resizes
 *	Times that the capacity changed.
 * mrs, mrs-idle
 *	MRs that there are, and those that nobody has.
 * mrs-taken
 *	MRs that were taken for requests.
 * mrs-missed
 *	Times that there was none.
 * mrs-added
 *	MRs that were added since there were too few.
 * mrs-given-back
 *	MRs that were given back, since nobody needed them.
 * mrs-replaced
 *	MRs that were destroyed: their state was unknown, or, on soft-RoCE,
 *	their key was killed.
 * remote-invalidated
 *	Keys that the server has killed, with its answers.
 * local-invalidated
 *	Keys that LOCAL_INV has killed.
 * bogus-invalidations
 *	Keys that a server claimed to have killed, and that were none of the
 *	request's.
 */
#include <linux/ctype.h>
#include <linux/inet.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <net/net_namespace.h>

#include "blk.h"

/* Seconds: of io_timeout, keep_alive and fail_after. */
#define MEMREG_BLK_SECONDS_MAX	86400

#define MEMREG_BLK_RETRIES_MAX	1000

static struct memreg_blk *to_memreg_blk(struct config_item *item)
{
	return container_of(to_config_group(item), struct memreg_blk, group);
}

static const char *const memreg_blk_states[] = {
	[MEMREG_BLK_DISABLED] = "disabled",
	[MEMREG_BLK_CONNECTING] = "connecting",
	[MEMREG_BLK_LIVE] = "live",
	[MEMREG_BLK_RECOVERING] = "recovering",
	[MEMREG_BLK_FAILED] = "failed",
};

/* Take the lock to change the configuration. */
static int memreg_blk_configure(struct memreg_blk *blk)
{
	mutex_lock(&blk->lock);
	if (memreg_blk_is(blk, MEMREG_BLK_DISABLED))
		return 0;
	mutex_unlock(&blk->lock);
	return -EBUSY;
}

/*
 * Numbers
 */

static ssize_t memreg_blk_store_number(struct memreg_blk *blk, int *field,
				       const char *page, size_t count, int min,
				       int max)
{
	int value, ret;

	ret = kstrtoint(page, 0, &value);
	if (ret || value < min || value > max)
		return -EINVAL;
	ret = memreg_blk_configure(blk);
	if (ret)
		return ret;
	*field = value;
	mutex_unlock(&blk->lock);
	return count;
}

#define MEMREG_BLK_NUMBER(_name, _min, _max)				\
static ssize_t memreg_blk_##_name##_show(struct config_item *item,	\
					 char *page)			\
{									\
	return sysfs_emit(page, "%d\n", to_memreg_blk(item)->_name);	\
}									\
									\
static ssize_t memreg_blk_##_name##_store(struct config_item *item,	\
					  const char *page,		\
					  size_t count)			\
{									\
	struct memreg_blk *blk = to_memreg_blk(item);			\
									\
	return memreg_blk_store_number(blk, &blk->_name, page, count,	\
				       _min, _max);			\
}									\
									\
CONFIGFS_ATTR(memreg_blk_, _name)

MEMREG_BLK_NUMBER(port, 1, U16_MAX);
MEMREG_BLK_NUMBER(queues, 1, IB_MEMREG_BLK_QUEUES_MAX);
MEMREG_BLK_NUMBER(depth, MEMREG_BLK_DEPTH_MIN, IB_MEMREG_BLK_DEPTH_MAX);
MEMREG_BLK_NUMBER(io_timeout, 1, MEMREG_BLK_SECONDS_MAX);
MEMREG_BLK_NUMBER(keep_alive, 1, MEMREG_BLK_SECONDS_MAX);
MEMREG_BLK_NUMBER(fail_after, -1, MEMREG_BLK_SECONDS_MAX);
MEMREG_BLK_NUMBER(retries, 0, MEMREG_BLK_RETRIES_MAX);
MEMREG_BLK_NUMBER(inline_max, 0, IB_MEMREG_BLK_INLINE_MAX);

/*
 * Names
 */

/* Copy a word without surrounding white space into a buffer. */
static int memreg_blk_word(char *to, size_t size, const char *page)
{
	char *line;

	while (isspace(*page))
		page++;
	if (strscpy(to, page, size) < 0)
		return -EINVAL;
	line = strim(to);
	for (; *line; line++)
		if (!isgraph(*line))
			return -EINVAL;
	return 0;
}

static ssize_t memreg_blk_address_show(struct config_item *item, char *page)
{
	struct memreg_blk *blk = to_memreg_blk(item);
	ssize_t ret;

	mutex_lock(&blk->lock);
	ret = sysfs_emit(page, "%s\n", blk->address);
	mutex_unlock(&blk->lock);
	return ret;
}

static ssize_t memreg_blk_address_store(struct config_item *item,
					const char *page, size_t count)
{
	struct memreg_blk *blk = to_memreg_blk(item);
	char word[sizeof(blk->address)];
	struct sockaddr_storage addr;
	int ret;

	ret = memreg_blk_word(word, sizeof(word), page);
	if (ret)
		return ret;
	ret = inet_pton_with_scope(current->nsproxy->net_ns, AF_UNSPEC, word,
				   NULL, &addr);
	if (ret)
		return -EINVAL;
	ret = memreg_blk_configure(blk);
	if (ret)
		return ret;
	strscpy(blk->address, word);
	mutex_unlock(&blk->lock);
	return count;
}

CONFIGFS_ATTR(memreg_blk_, address);

static ssize_t memreg_blk_export_show(struct config_item *item, char *page)
{
	struct memreg_blk *blk = to_memreg_blk(item);
	ssize_t ret;

	mutex_lock(&blk->lock);
	ret = sysfs_emit(page, "%.*s\n", IB_MEMREG_BLK_EXPORT_MAX,
			 blk->export_name);
	mutex_unlock(&blk->lock);
	return ret;
}

/* The name may fill its field to the end, without a final 0. */
static ssize_t memreg_blk_export_store(struct config_item *item,
				       const char *page, size_t count)
{
	struct memreg_blk *blk = to_memreg_blk(item);
	char word[IB_MEMREG_BLK_EXPORT_MAX + 2];
	int ret;

	ret = memreg_blk_word(word, sizeof(word), page);
	if (ret)
		return ret;
	if (strlen(word) > IB_MEMREG_BLK_EXPORT_MAX)
		return -EINVAL;
	ret = memreg_blk_configure(blk);
	if (ret)
		return ret;
	memset(blk->export_name, 0, sizeof(blk->export_name));
	memcpy(blk->export_name, word, strlen(word));
	mutex_unlock(&blk->lock);
	return count;
}

CONFIGFS_ATTR(memreg_blk_, export);

/* State */

static ssize_t memreg_blk_enabled_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%d\n", !memreg_blk_is(to_memreg_blk(item),
						       MEMREG_BLK_DISABLED));
}

static ssize_t memreg_blk_enabled_store(struct config_item *item,
					const char *page, size_t count)
{
	struct memreg_blk *blk = to_memreg_blk(item);
	unsigned int value;
	int ret;

	ret = kstrtouint(page, 0, &value);
	if (ret || value > 1)
		return -EINVAL;
	mutex_lock(&blk->lock);
	if (!value)
		memreg_blk_disable(blk);
	else if (!memreg_blk_is(blk, MEMREG_BLK_DISABLED))
		ret = -EBUSY;
	else
		ret = memreg_blk_enable(blk);
	mutex_unlock(&blk->lock);
	return ret ?: count;
}

CONFIGFS_ATTR(memreg_blk_, enabled);

static ssize_t memreg_blk_state_show(struct config_item *item, char *page)
{
	enum memreg_blk_state state = READ_ONCE(to_memreg_blk(item)->state);

	return sysfs_emit(page, "%s\n", memreg_blk_states[state]);
}

CONFIGFS_ATTR_RO(memreg_blk_, state);

static ssize_t memreg_blk_error_show(struct config_item *item, char *page)
{
	struct memreg_blk *blk = to_memreg_blk(item);
	ssize_t ret;

	spin_lock_irq(&blk->error_lock);
	ret = sysfs_emit(page, "%s%s", blk->error, blk->error[0] ? "\n" : "");
	spin_unlock_irq(&blk->error_lock);
	return ret;
}

CONFIGFS_ATTR_RO(memreg_blk_, error);

static ssize_t memreg_blk_disk_show(struct config_item *item, char *page)
{
	struct memreg_blk *blk = to_memreg_blk(item);
	ssize_t ret = 0;

	mutex_lock(&blk->lock);
	if (blk->disk)
		ret = sysfs_emit(page, "%s\n", blk->disk->disk_name);
	mutex_unlock(&blk->lock);
	return ret;
}

CONFIGFS_ATTR_RO(memreg_blk_, disk);

struct memreg_blk_line {
	const char *name;
	u64 value;
};

static ssize_t memreg_blk_emit(char *page, ssize_t at,
			       const struct memreg_blk_line *lines,
			       unsigned int count)
{
	ssize_t start = at;

	for (; count--; lines++)
		at += sysfs_emit_at(page, at, "%s %llu\n", lines->name,
				    lines->value);
	return at - start;
}

static ssize_t memreg_blk_emit_pool(char *page, ssize_t at,
				    const struct ib_memreg_pool_stats *pool)
{
	const struct memreg_blk_line lines[] = {
		{ "mrs", pool->total },
		{ "mrs-idle", pool->idle },
		{ "mrs-taken", pool->taken },
		{ "mrs-missed", pool->empty },
		{ "mrs-added", pool->grown },
		{ "mrs-given-back", pool->shrunk },
		{ "mrs-replaced", pool->replaced },
		{ "remote-invalidated", pool->remote_invalidated },
		{ "local-invalidated", pool->local_invalidated },
		{ "bogus-invalidations", pool->bogus },
	};

	return memreg_blk_emit(page, at, lines, ARRAY_SIZE(lines));
}

static ssize_t memreg_blk_stats_show(struct config_item *item, char *page)
{
	struct memreg_blk *blk = to_memreg_blk(item);
	struct ib_memreg_pool_stats pool;
	const struct memreg_blk_line lines[] = {
		{ "commands", atomic64_read(&blk->seq) - blk->first },
		{ "connections", atomic64_read(&blk->stats.connections) },
		{ "losses", atomic64_read(&blk->stats.losses) },
		{ "timeouts", atomic64_read(&blk->stats.timeouts) },
		{ "protocol-errors",
		  atomic64_read(&blk->stats.protocol_errors) },
		{ "retries", atomic64_read(&blk->stats.retries) },
		{ "failed", atomic64_read(&blk->stats.failed) },
		{ "resizes", atomic64_read(&blk->stats.resizes) },
	};
	ssize_t at;

	memreg_blk_query(blk, &pool);
	at = memreg_blk_emit(page, 0, lines, ARRAY_SIZE(lines));
	return at + memreg_blk_emit_pool(page, at, &pool);
}

CONFIGFS_ATTR_RO(memreg_blk_, stats);

/*
 * Directories
 */

static struct configfs_attribute *memreg_blk_attrs[] = {
	&memreg_blk_attr_address,
	&memreg_blk_attr_port,
	&memreg_blk_attr_export,
	&memreg_blk_attr_queues,
	&memreg_blk_attr_depth,
	&memreg_blk_attr_io_timeout,
	&memreg_blk_attr_keep_alive,
	&memreg_blk_attr_fail_after,
	&memreg_blk_attr_retries,
	&memreg_blk_attr_inline_max,
	&memreg_blk_attr_enabled,
	&memreg_blk_attr_state,
	&memreg_blk_attr_error,
	&memreg_blk_attr_disk,
	&memreg_blk_attr_stats,
	NULL,
};

static void memreg_blk_release(struct config_item *item)
{
	kfree(to_memreg_blk(item));
}

static struct configfs_item_operations memreg_blk_item_ops = {
	.release = memreg_blk_release,
};

static const struct config_item_type memreg_blk_type = {
	.ct_item_ops = &memreg_blk_item_ops,
	.ct_attrs = memreg_blk_attrs,
	.ct_owner = THIS_MODULE,
};

static struct config_group *memreg_blk_make_group(struct config_group *group,
						  const char *name)
{
	struct memreg_blk *blk;

	blk = kzalloc(sizeof(*blk), GFP_KERNEL);
	if (!blk)
		return ERR_PTR(-ENOMEM);
	memreg_blk_init(blk);
	config_group_init_type_name(&blk->group, name, &memreg_blk_type);
	return &blk->group;
}

static void memreg_blk_drop_item(struct config_group *group,
				 struct config_item *item)
{
	struct memreg_blk *blk = to_memreg_blk(item);

	mutex_lock(&blk->lock);
	memreg_blk_disable(blk);
	mutex_unlock(&blk->lock);
	config_item_put(item);
}

static struct configfs_group_operations memreg_blk_group_ops = {
	.make_group = memreg_blk_make_group,
	.drop_item = memreg_blk_drop_item,
};

static const struct config_item_type memreg_blk_subsystem_type = {
	.ct_group_ops = &memreg_blk_group_ops,
	.ct_owner = THIS_MODULE,
};

static struct configfs_subsystem memreg_blk_subsystem = {
	.su_group = {
		.cg_item = {
			.ci_namebuf = "memreg_blk",
			.ci_type = &memreg_blk_subsystem_type,
		},
	},
};

static int memreg_blk_configfs_init(void)
{
	config_group_init(&memreg_blk_subsystem.su_group);
	mutex_init(&memreg_blk_subsystem.su_mutex);
	return configfs_register_subsystem(&memreg_blk_subsystem);
}

static void memreg_blk_configfs_exit(void)
{
	configfs_unregister_subsystem(&memreg_blk_subsystem);
}

/*
 * The module
 */

static int __init memreg_blk_module_init(void)
{
	int ret;

	memreg_blk_wq = alloc_workqueue("memreg_blk", WQ_UNBOUND, 0);
	if (!memreg_blk_wq)
		return -ENOMEM;
	ret = memreg_blk_configfs_init();
	if (ret)
		destroy_workqueue(memreg_blk_wq);
	return ret;
}

/* Every directory holds a reference to the module. */
static void __exit memreg_blk_module_exit(void)
{
	memreg_blk_configfs_exit();
	destroy_workqueue(memreg_blk_wq);
}

module_init(memreg_blk_module_init);
module_exit(memreg_blk_module_exit);

MODULE_DESCRIPTION("Block devices on the memory or a file of a peer, by RDMA");
MODULE_AUTHOR("The memreg developers");
MODULE_VERSION(MEMREG_VERSION);
MODULE_LICENSE("GPL");
#ifdef MEMREG_EXPORT_NS_STRING
MODULE_IMPORT_NS("IB_MEMREG");
#else
MODULE_IMPORT_NS(IB_MEMREG);
#endif
