/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ib_memreg_blk: block devices on the memory or a file of a peer.
 *
 * It uses ib_memreg only through <rdma/memreg_pool.h>, as any other module.
 *
 * Each file uses those below it in this list:
 *
 *	configfs.c	the module, directories, attributes
 *	main.c		disks, blk-mq
 *	recovery.c	reconnection, keep-alive, end
 *	conn.c		connections: RDMA CM, QPs, PDs and pools
 *	io.c		commands: from the request to done() and back to blk-mq
 *	proto.c		what goes over the wire, and the checks of what comes
 *	state.c		state, loss of the connection, last error, capacity
 *
 * Locks, in the order in which they are taken
 *
 *	memreg_blk.lock		mutex: configuration, starting and stopping. The
 *				workers never take it, as stopping waits for
 *				them.
 *	memreg_blk.conn_lock	mutex: whether there are pools to be asked
 *	handler lock of an id	RDMA CM's. Nobody destroys an id with a lock
 *				that handlers take.
 *	memreg_blk.state_lock	spinlock, any context: state, broken
 *	memreg_blk.error_lock	spinlock, any context: error
 */
#ifndef _MEMREG_BLK_H
#define _MEMREG_BLK_H

#include <linux/atomic.h>
#include <linux/blk-mq.h>
#include <linux/configfs.h>
#include <linux/mutex.h>
#include <linux/siphash.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <rdma/ib_memreg_blk.h>
#include <rdma/ib_verbs.h>
#include <rdma/memreg_pool.h>
#include <rdma/rdma_cm.h>

#include "queue.h"

/* Most bytes of a READ or WRITE. */
#define MEMREG_BLK_IO_MAX	BIT(20)

/* Most bytes of a DISCARD or WRITE_ZEROES. */
#define MEMREG_BLK_RANGE_MAX	(256U << 20)

/*
 * Bytes of a queue's memory for one command and one answer. The space for an
 * answer is larger than needed, so that an answer which is slightly too long is
 * received and detected.
 */
#define MEMREG_BLK_CMD_SIZE \
	ALIGN(sizeof(struct ib_memreg_blk_cmd) + IB_MEMREG_BLK_SEGS_MAX * \
	      sizeof(struct ib_memreg_blk_seg), 64)
#define MEMREG_BLK_REPLY_SIZE	64

/* Limit of a command while others are answered, as a multiple of io_timeout. */
#define MEMREG_BLK_PATIENCE	4

/* One command of each queue is reserved for the keep-alive. */
#define MEMREG_BLK_DEPTH_MIN	2

#define MEMREG_BLK_ERROR_SIZE	128

/**
 * enum memreg_blk_state - State of a device
 * @MEMREG_BLK_DISABLED: Disabled, without a disk.
 * @MEMREG_BLK_CONNECTING: Being enabled.
 * @MEMREG_BLK_LIVE: Connected, I/O works.
 * @MEMREG_BLK_RECOVERING: The connection is lost, and I/O waits for another.
 * @MEMREG_BLK_FAILED: As RECOVERING, but for longer than fail_after: I/O fails.
 */
enum memreg_blk_state {
	MEMREG_BLK_DISABLED,
	MEMREG_BLK_CONNECTING,
	MEMREG_BLK_LIVE,
	MEMREG_BLK_RECOVERING,
	MEMREG_BLK_FAILED,
};

/**
 * struct memreg_blk_stats - Counters since the device was enabled
 * @connections: Times that all queues were connected
 * @losses: Times that a connection was lost
 * @timeouts: Commands that were not answered in time
 * @protocol_errors: Times that the server violated the protocol
 * @retries: Commands that were sent again
 * @failed: Commands that ended with an error, answered or not
 * @resizes: Times that the capacity changed
 */
struct memreg_blk_stats {
	atomic64_t connections;
	atomic64_t losses;
	atomic64_t timeouts;
	atomic64_t protocol_errors;
	atomic64_t retries;
	atomic64_t failed;
	atomic64_t resizes;
};

/**
 * struct memreg_blk - A device, and its directory in configfs
 * @group: The directory
 * @lock: Protects the configuration, which only changes while it is disabled
 * @address: Address of the server, as written to configfs
 * @port: Port of the server
 * @export_name: Name of the export, padded with zeros
 * @queues: Number of hardware queues
 * @depth: Commands in flight on each queue, keep-alive included
 * @io_timeout: Seconds in which a command must be answered, if no other is
 * @keep_alive: Seconds without an answer after which a keep-alive is sent
 * @fail_after: Seconds without a connection after which I/O fails; -1: never
 * @retries: Number of times that a command is sent again
 * @inline_max: Most bytes of data in a message
 * @error_lock: Protects @error
 * @error: The last error, as text
 * @state_lock: Protects @state and @broken
 * @state: enum memreg_blk_state; also read without the lock where a stale value
 *	does no harm
 * @broken: The connection has to be given up. Cleared before connecting.
 * @stopping: It is being disabled, or a disk is being made; I/O fails once the
 *	connection is lost.
 * @wait: Wait queue for handlers, and for the end of commands
 * @wq: Ordered workqueue of @recover and @alive
 * @recover: Work that gives up a connection, and makes another
 * @alive: Work that sends keep-alives
 * @resize: Work that sets the new capacity of the disk
 * @resize_next: Jiffies before which @resize does not run again
 * @net: Network namespace
 * @addr: Address and port of the server
 * @secret: Secret that @client is derived from; lives as long as the directory
 * @client: This client's identity for the server at @addr
 * @epoch: Epoch of the connection; only grows, as @seq does
 * @seq: Last sequence number
 * @first: Value of @seq when the device was enabled
 * @nr_live: Number of queues in @live
 * @live: The queues
 * @connected: Connections, or parts of them, exist.
 * @conn_lock: Protects @live, the pools of these queues, and @past against
 *	stats
 * @past: Statistics of earlier pools
 * @known: @export is known, and a later connection must offer the same.
 * @export: Properties of the export
 * @capacity: Bytes, as the last answer had it
 * @io_max: Most bytes of a request
 * @max_mrs: Most MRs of a request
 * @live_since: When the connection was made, in jiffies
 * @lost_at: When the last useful connection was lost, in jiffies
 * @delay: Delay until the next attempt, in jiffies
 * @quiesced: The tag set is quiesced.
 * @requeued: Requests were requeued to blk-mq, to be sent again.
 * @disk: The disk, or NULL
 * @disk_number: Number in the name of the disk
 * @tag_set: blk-mq's
 * @stats: Counters
 */
struct memreg_blk {
	struct config_group group;
	struct mutex lock;	/* configuration */
	char address[64];
	int port;
	char export_name[IB_MEMREG_BLK_EXPORT_MAX];
	int queues;
	int depth;
	int io_timeout;
	int keep_alive;
	int fail_after;
	int retries;
	int inline_max;

	spinlock_t error_lock;	/* error */
	char error[MEMREG_BLK_ERROR_SIZE];

	spinlock_t state_lock;	/* state, broken */
	enum memreg_blk_state state;
	bool broken;
	bool stopping;

	wait_queue_head_t wait;
	struct workqueue_struct *wq;
	struct delayed_work recover;
	struct delayed_work alive;
	struct delayed_work resize;
	unsigned long resize_next;

	struct net *net;
	struct sockaddr_storage addr;
	siphash_key_t secret[2];
	u8 client[IB_MEMREG_BLK_CLIENT_SIZE];
	u32 epoch;
	atomic64_t seq;
	u64 first;
	unsigned int nr_live;
	struct memreg_blk_queue *live;
	bool connected;

	struct mutex conn_lock;	/* live, pools, past */
	struct ib_memreg_pool_stats past;

	bool known;
	struct memreg_blk_export export;
	atomic64_t capacity;
	unsigned int io_max;
	unsigned int max_mrs;

	unsigned long live_since;
	unsigned long lost_at;
	unsigned long delay;
	bool quiesced;
	bool requeued;

	struct gendisk *disk;
	int disk_number;
	struct blk_mq_tag_set tag_set;
	struct memreg_blk_stats stats;
};

/* main.c */
void memreg_blk_init(struct memreg_blk *blk);
int memreg_blk_enable(struct memreg_blk *blk);
void memreg_blk_disable(struct memreg_blk *blk);

/* io.c */
int memreg_blk_queue_alloc(struct memreg_blk_queue *queue);
void memreg_blk_queue_free(struct memreg_blk_queue *queue);
void memreg_blk_ios_ready(struct memreg_blk_queue *queue);
blk_status_t memreg_blk_send(struct memreg_blk_queue *queue,
			     struct request *rq);
int memreg_blk_nop(struct memreg_blk_queue *queue);
bool memreg_blk_may_wait(const struct memreg_blk_queue *queue,
			 unsigned long sent);
int memreg_blk_post_recv(struct memreg_blk_recv *recv);
void memreg_blk_recv_done(struct ib_cq *cq, struct ib_wc *wc);
void memreg_blk_ios_settle(struct memreg_blk_queue *queue);

/* proto.c */
void memreg_blk_hello(const struct memreg_blk_queue *queue,
		      struct ib_memreg_blk_hello *hello);
int memreg_blk_welcome(struct memreg_blk_queue *queue, const void *data,
		       unsigned int length);
int memreg_blk_welcome_fits(struct memreg_blk *blk,
			    const struct memreg_blk_export *export);
void memreg_blk_refusal(struct memreg_blk *blk, const void *data,
			unsigned int length);
void memreg_blk_cmd(struct memreg_blk_io *io, u8 opcode, u8 flags, u64 offset,
		    u32 length);
const char *memreg_blk_reply_begin(const struct ib_wc *wc);
const char *memreg_blk_reply(const struct memreg_blk_io *io,
			     const struct ib_memreg_blk_reply *reply,
			     const struct ib_wc *wc);
blk_status_t memreg_blk_status(u16 status);

/* conn.c */
int memreg_blk_connect(struct memreg_blk *blk);
void memreg_blk_disconnect(struct memreg_blk *blk);
void memreg_blk_query(struct memreg_blk *blk,
		      struct ib_memreg_pool_stats *stats);

/* recovery.c */
void memreg_blk_recovery_init(struct memreg_blk *blk);
void memreg_blk_live(struct memreg_blk *blk);
int memreg_blk_keep(struct memreg_blk *blk);
void memreg_blk_stop(struct memreg_blk *blk);
void memreg_blk_stopped(struct memreg_blk *blk);

/* state.c */
extern struct workqueue_struct *memreg_blk_wq;
__printf(2, 3) void memreg_blk_say(struct memreg_blk *blk, const char *fmt,
				   ...);
void memreg_blk_set_state(struct memreg_blk *blk, enum memreg_blk_state state);
__printf(2, 3) void memreg_blk_broken(struct memreg_blk *blk, const char *fmt,
				      ...);
unsigned long memreg_blk_left(const struct memreg_blk *blk);
void memreg_blk_resize_work(struct work_struct *work);
void memreg_blk_resize_later(struct memreg_blk *blk);
void memreg_blk_capacity(struct memreg_blk *blk, u64 capacity);

/**
 * memreg_blk_is() - Check the state of a device, without a lock
 * @blk: The device
 * @state: The state to compare with
 *
 * Return: true if the device is in that state; then all writes before the
 * change to it are visible.
 */
static inline bool memreg_blk_is(const struct memreg_blk *blk,
				 enum memreg_blk_state state)
{
	/* Pairs with memreg_blk_set_state(). */
	return smp_load_acquire(&blk->state) == state;
}

static inline const char *memreg_blk_name(const struct memreg_blk *blk)
{
	return config_item_name((struct config_item *)&blk->group.cg_item);
}

/*
 * Most pieces of a request, and most pages that it touches: it may begin and
 * end anywhere in a page.
 */
static inline unsigned int memreg_blk_pieces(const struct memreg_blk *blk)
{
	return blk->io_max / PAGE_SIZE + 1;
}

#endif /* _MEMREG_BLK_H */
