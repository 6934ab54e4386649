/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A hardware queue of a block device: its connection, and the commands that may
 * be in flight on it.
 */
#ifndef _MEMREG_BLK_QUEUE_H
#define _MEMREG_BLK_QUEUE_H

#include <linux/atomic.h>
#include <linux/blk-mq.h>
#include <linux/dim.h>
#include <linux/irq_work.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/memreg_pool.h>
#include <rdma/rdma_cm.h>

struct memreg_blk;
struct memreg_blk_queue;

/**
 * enum memreg_blk_io_state - State of a command, which decides who owns it
 * @MEMREG_BLK_IO_IDLE: Not in use.
 * @MEMREG_BLK_IO_SENT: Owned by the server.
 * @MEMREG_BLK_IO_ANSWERED: Owned by the pool, which kills its keys. Then the
 *   request goes to blk-mq.
 * @MEMREG_BLK_IO_ENDED: Aborted, and owned by the recovery, which requeues or
 *   fails the request.
 */
enum memreg_blk_io_state {
	MEMREG_BLK_IO_IDLE,
	MEMREG_BLK_IO_SENT,
	MEMREG_BLK_IO_ANSWERED,
	MEMREG_BLK_IO_ENDED,
};

/**
 * struct memreg_blk_io - A command that may be in flight, one for each tag
 * @req: Registration of its memory
 * @queue: Its queue
 * @state: enum memreg_blk_io_state; see "The state of a command" in io.c
 * @status: Status of the answer
 * @rq: blk-mq's request; NULL for a keep-alive
 * @seq: Sequence number
 * @length: Bytes that a valid answer must report as moved
 * @carried: Bytes of data behind the command in its message
 * @wanted: Bytes of data behind a valid answer
 * @data: Memory for the data behind the command, or NULL
 * @data_dma: @data on the device, if the queue's messages are mapped
 * @rkey: Key that the answer must have invalidated, if @req has MRs
 * @asked: When a keep-alive was sent, in jiffies
 * @tag: Index, and tag on the wire
 */
struct memreg_blk_io {
	struct ib_memreg_req req;
	struct memreg_blk_queue *queue;
	enum memreg_blk_io_state state;
	blk_status_t status;
	struct request *rq;
	u64 seq;
	u32 length;
	u32 carried;
	u32 wanted;
	void *data;
	u64 data_dma;
	u32 rkey;
	unsigned long asked;
	u16 tag;
};

/**
 * struct memreg_blk_rq - Data of a request that stay until it is answered
 * @seq: Sequence number
 * @sent: When it was sent last, in jiffies
 * @retries: Times that it was sent again
 */
struct memreg_blk_rq {
	u64 seq;
	unsigned long sent;
	unsigned int retries;
};

/**
 * struct memreg_blk_recv - A posted receive
 * @cqe: Completion
 * @queue: Its queue
 * @data: Memory for the data behind an answer, or NULL
 * @data_dma: @data on the device, if the queue's messages are mapped
 */
struct memreg_blk_recv {
	struct ib_cqe cqe;
	struct memreg_blk_queue *queue;
	void *data;
	u64 data_dma;
};

/**
 * struct memreg_blk_export - An export, as the server describes it
 * @capacity: Bytes
 * @flags: enum ib_memreg_blk_flags
 * @block_size: Bytes
 * @physical_block_size: Bytes
 * @max_length: Bytes of a READ or WRITE
 * @discard_granularity: Bytes, or 0
 * @max_segs: Segments of a command
 * @depth: Commands in flight on a connection
 * @inline_max: Most bytes of data in a message
 * @instance: As long as it is the same, no acknowledged data is lost
 */
struct memreg_blk_export {
	u64 capacity;
	u32 flags;
	u32 block_size;
	u32 physical_block_size;
	u32 max_length;
	u32 discard_granularity;
	u16 max_segs;
	u16 depth;
	u16 inline_max;
	u64 instance;
};

/**
 * struct memreg_blk_queue - A hardware queue and its connection
 * @blk: The device
 * @index: Index of the queue
 * @hctx: What blk-mq has for it, or NULL before there is a disk
 * @ios: Commands, one for each tag; the last is the keep-alive's
 * @recvs: Receives, as many
 * @cmds: MEMREG_BLK_CMD_SIZE for each tag
 * @replies: MEMREG_BLK_REPLY_SIZE for each receive
 * @last_reply: When the last answer came, or the wait for the first one began,
 *	in jiffies
 * @answered: An answer came by this connection.
 * @id: RDMA CM id, or NULL
 * @qp: QP, or NULL
 * @cq: CQ of its receives, or NULL
 * @send_cq: CQ of what it sends, or NULL
 * @ending: Commands that are answered and have not ended, and drains: these
 *	need events of @send_cq
 * @interrupt: Has @poll run at once
 * @poll: Takes completions, in softirqs
 * @dim: How many completions are put together, on devices that do so
 * @pd: PD, or NULL
 * @pool: Pool, or NULL
 * @reserve: MRs for one request at least, or NULL
 * @cmds_dma: @cmds on the device, if @mapped
 * @replies_dma: @replies on the device, if @mapped
 * @mapped: They are mapped, and all data.
 * @asked: The server was asked for a connection: the QP has to be drained.
 * @up: The server has accepted.
 * @cm_event: The handler has set @cm_status
 * @cm_status: 0 or what went wrong
 * @export: Answer of the server when it accepted
 */
struct memreg_blk_queue {
	struct memreg_blk *blk;
	unsigned int index;
	struct blk_mq_hw_ctx *hctx;
	struct memreg_blk_io *ios;
	struct memreg_blk_recv *recvs;
	void *cmds;
	void *replies;
	unsigned long last_reply;
	bool answered;

	struct rdma_cm_id *id;
	struct ib_qp *qp;
	struct ib_cq *cq;
	struct ib_cq *send_cq;
	atomic_t ending;
	struct irq_work interrupt;
	struct work_struct poll;
	struct dim dim;
	struct ib_pd *pd;
	struct ib_memreg_pool *pool;
	struct ib_memreg_reserve *reserve;
	u64 cmds_dma;
	u64 replies_dma;
	bool mapped;
	bool asked;
	bool up;
	bool cm_event;
	int cm_status;
	struct memreg_blk_export export;
};

#endif /* _MEMREG_BLK_QUEUE_H */
