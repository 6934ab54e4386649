// SPDX-License-Identifier: GPL-2.0-only
/*
 * Commands: from a request to the server, and back to blk-mq.
 *
 * Each hardware queue has a command for each tag, with all its resources: a
 * place in mapped memory, and MRs from a pool with a reserve. So I/O allocates
 * no memory, and waits only for MRs: if there are too few, blk-mq tries again
 * when the pool says that there are more.
 *
 *	IDLE --send--> SENT --answer--> ANSWERED --done()--> IDLE, ended
 *			 |
 *			 +--recovery, done()--> ENDED
 *				--settle--> IDLE, requeued or failed
 *
 * A command leaves SENT once: by the completion of a receive, if the command's
 * ib_memreg_req waits for an answer, which it does once, and not before all of
 * it is posted; or when the recovery aborts all that the QP had, after it was
 * drained.
 *
 * A request goes back to blk-mq only when the pool says by done() that its keys
 * are dead and its memory is unmapped, so that the server can no longer write
 * to it.
 */
#include <linux/bvec.h>
#include <linux/gfp.h>
#include <linux/slab.h>

#include "blk.h"

/*
 * Memory
 */

static size_t memreg_blk_cmds_size(const struct memreg_blk_queue *queue)
{
	return queue->blk->depth * MEMREG_BLK_CMD_SIZE;
}

static size_t memreg_blk_replies_size(const struct memreg_blk_queue *queue)
{
	return queue->blk->depth * MEMREG_BLK_REPLY_SIZE;
}

/* Memory for the data of messages, each piece by itself: there may be much. */
static int memreg_blk_alloc_data(struct memreg_blk_queue *queue)
{
	size_t size = queue->blk->inline_max;
	unsigned int i;

	for (i = 0; size && i < queue->blk->depth; i++) {
		void **out = &queue->ios[i].data, **in = &queue->recvs[i].data;

		*out = alloc_pages_exact(size, GFP_KERNEL | __GFP_ZERO);
		*in = alloc_pages_exact(size, GFP_KERNEL | __GFP_ZERO);
		if (!*out || !*in)
			return -ENOMEM;
	}
	return 0;
}

static void memreg_blk_free_data(struct memreg_blk_queue *queue)
{
	size_t size = queue->blk->inline_max;
	unsigned int i;

	for (i = 0; i < queue->blk->depth; i++) {
		if (queue->ios && queue->ios[i].data)
			free_pages_exact(queue->ios[i].data, size);
		if (queue->recvs && queue->recvs[i].data)
			free_pages_exact(queue->recvs[i].data, size);
	}
}

/**
 * memreg_blk_queue_alloc() - Allocate the memory that a queue has for its whole
 * life
 * @queue: The queue, zeroed except for its device and index
 *
 * Return: 0 or -ENOMEM; either way memreg_blk_queue_free() undoes it.
 */
int memreg_blk_queue_alloc(struct memreg_blk_queue *queue)
{
	unsigned int depth = queue->blk->depth, i;

	queue->ios = kvcalloc(depth, sizeof(*queue->ios), GFP_KERNEL);
	queue->recvs = kvcalloc(depth, sizeof(*queue->recvs), GFP_KERNEL);
	queue->cmds = alloc_pages_exact(memreg_blk_cmds_size(queue),
					GFP_KERNEL | __GFP_ZERO);
	queue->replies = alloc_pages_exact(memreg_blk_replies_size(queue),
					   GFP_KERNEL | __GFP_ZERO);
	if (!queue->ios || !queue->recvs || !queue->cmds || !queue->replies)
		return -ENOMEM;
	for (i = 0; i < depth; i++) {
		queue->ios[i].queue = queue;
		queue->ios[i].tag = i;
		queue->recvs[i].queue = queue;
		queue->recvs[i].cqe.done = memreg_blk_recv_done;
	}
	return memreg_blk_alloc_data(queue);
}

/**
 * memreg_blk_queue_free() - Free the memory of a queue
 * @queue: The queue, which is not connected
 */
void memreg_blk_queue_free(struct memreg_blk_queue *queue)
{
	memreg_blk_free_data(queue);
	if (queue->replies)
		free_pages_exact(queue->replies,
				 memreg_blk_replies_size(queue));
	if (queue->cmds)
		free_pages_exact(queue->cmds, memreg_blk_cmds_size(queue));
	kvfree(queue->recvs);
	kvfree(queue->ios);
}

/*
 * The state of a command
 *
 * A reader that sees a new state of a command also sees all earlier writes to
 * the command. Where no other context can change the state, plain accesses are
 * enough.
 */

static bool memreg_blk_io_is(const struct memreg_blk_io *io,
			     enum memreg_blk_io_state state)
{
	/* Pairs with memreg_blk_io_becomes(). */
	return smp_load_acquire(&io->state) == state;
}

static void memreg_blk_io_becomes(struct memreg_blk_io *io,
				  enum memreg_blk_io_state state)
{
	/* Pairs with memreg_blk_io_is(). */
	smp_store_release(&io->state, state);
}

/*
 * The end of a command
 */

static void memreg_blk_complete(struct request *rq)
{
	const struct memreg_blk_queue *queue = rq->mq_hctx->driver_data;
	struct memreg_blk_io *io = &queue->ios[rq->tag];
	blk_status_t status = io->status;

	if (status)
		atomic64_inc(&queue->blk->stats.failed);
	/* The tag may be used again from here on, before blk-mq knows. */
	io->rq = NULL;
	memreg_blk_io_becomes(io, MEMREG_BLK_IO_IDLE);
	blk_mq_end_request(rq, status);
}

/* In softirq context, or in a worker of the pool. */
static void memreg_blk_done(struct ib_memreg_req *req, int status)
{
	struct memreg_blk_io *io = container_of(req, struct memreg_blk_io, req);
	struct memreg_blk_queue *queue = io->queue;

	/* Without an answer it was aborted. */
	if (READ_ONCE(io->state) == MEMREG_BLK_IO_SENT) {
		memreg_blk_io_becomes(io, MEMREG_BLK_IO_ENDED);
		return;
	}
	atomic_dec(&queue->ending);
	if (io->rq)
		blk_mq_complete_request_direct(io->rq, memreg_blk_complete);
	else
		memreg_blk_io_becomes(io, MEMREG_BLK_IO_IDLE);
}

static void memreg_blk_error(struct ib_memreg_req *req, const struct ib_wc *wc)
{
	struct memreg_blk_io *io = container_of(req, struct memreg_blk_io, req);

	memreg_blk_broken(io->queue->blk, "queue %u can't send: %s",
			  io->queue->index, ib_wc_status_msg(wc->status));
}

static const struct ib_memreg_req_ops memreg_blk_req_ops = {
	.done = memreg_blk_done,
	.error = memreg_blk_error,
};

/**
 * memreg_blk_ios_ready() - Prepare commands for a new pool
 * @queue: The queue; none of its commands is in use
 */
void memreg_blk_ios_ready(struct memreg_blk_queue *queue)
{
	unsigned int i;

	for (i = 0; i < queue->blk->depth; i++)
		ib_memreg_req_init(&queue->ios[i].req, queue->pool,
				   queue->reserve, &memreg_blk_req_ops);
}

/*
 * Sending
 */

/*
 * The SEND of a command without memory is always signalled: the data in its
 * message must not change before the SEND has completed.
 */
static int memreg_blk_post(struct memreg_blk_io *io)
{
	struct memreg_blk_queue *queue = io->queue;
	u32 lkey = queue->pd->local_dma_lkey;
	struct ib_sge sges[2] = {
		{
			.addr = queue->cmds_dma + io->tag * MEMREG_BLK_CMD_SIZE,
			.length = sizeof(struct ib_memreg_blk_cmd) +
				  io->req.nr_mrs *
				  sizeof(struct ib_memreg_blk_seg),
			.lkey = lkey,
		},
		{ .addr = io->data_dma, .length = io->carried, .lkey = lkey },
	};
	struct ib_send_wr send = {
		.opcode = IB_WR_SEND,
		.sg_list = sges,
		.num_sge = io->carried ? 2 : 1,
	};
	int ret, i;

	for (i = 0; i < send.num_sge; i++)
		ib_dma_sync_single_for_device(queue->qp->device, sges[i].addr,
					      sges[i].length, DMA_TO_DEVICE);
	/* Before the post, so that an answer finds the state SENT. */
	WRITE_ONCE(io->state, MEMREG_BLK_IO_SENT);
	ret = ib_memreg_req_post(&io->req, queue->qp, &send,
				 io->req.nr_mrs ? IB_MEMREG_REQ_REMOTE_INV : 0);
	if (!ret)
		return 0;
	if (ret != -ENOTCONN)
		WRITE_ONCE(io->state, MEMREG_BLK_IO_IDLE);
	memreg_blk_broken(queue->blk, "queue %u can't post: error %d",
			  queue->index, ret);
	/* A command that was posted in part has to be aborted. */
	return ret == -ENOTCONN ? 0 : ret;
}

static int memreg_blk_opcode(const struct request *rq, u8 *flags)
{
	*flags = rq->cmd_flags & REQ_FUA ? IB_MEMREG_BLK_FUA : 0;
	switch (req_op(rq)) {
	case REQ_OP_READ:
		*flags = 0;
		return IB_MEMREG_BLK_READ;
	case REQ_OP_WRITE:
		return IB_MEMREG_BLK_WRITE;
	case REQ_OP_WRITE_ZEROES:
		if (rq->cmd_flags & REQ_NOUNMAP)
			*flags |= IB_MEMREG_BLK_NO_UNMAP;
		return IB_MEMREG_BLK_WRITE_ZEROES;
	case REQ_OP_DISCARD:
		*flags = 0;
		return IB_MEMREG_BLK_DISCARD;
	case REQ_OP_FLUSH:
		*flags = 0;
		return IB_MEMREG_BLK_FLUSH;
	default:
		return -EOPNOTSUPP;
	}
}

/*
 * A request that is sent again keeps its sequence number, as blk-mq does not
 * change the data of a prepared request.
 */
static void memreg_blk_number(struct memreg_blk *blk, struct request *rq)
{
	struct memreg_blk_rq *mine = blk_mq_rq_to_pdu(rq);

	if (rq->rq_flags & RQF_DONTPREP)
		return;
	mine->seq = atomic64_inc_return(&blk->seq);
	mine->retries = 0;
	rq->rq_flags |= RQF_DONTPREP;
}

static int memreg_blk_map(struct memreg_blk_io *io, struct request *rq)
{
	struct req_iterator iter;
	struct bio_vec bvec;
	int ret;

	if (!blk_rq_nr_phys_segments(rq))
		return 0;
	ret = ib_memreg_req_begin(&io->req, io->queue->blk->max_mrs,
				  rq_dma_dir(rq));
	if (ret)
		return ret;
	rq_for_each_bvec(bvec, rq, iter) {
		ret = ib_memreg_req_add(&io->req, bvec.bv_page, bvec.bv_offset,
					bvec.bv_len);
		if (ret)
			return ret;
	}
	return ib_memreg_req_commit(&io->req);
}

/* Copy what a request writes to @data, or what it reads from there. */
static void memreg_blk_copy(struct request *rq, char *data)
{
	struct req_iterator iter;
	struct bio_vec bvec;

	rq_for_each_segment(bvec, rq, iter) {
		if (rq_data_dir(rq) == WRITE)
			memcpy_from_bvec(data, &bvec);
		else
			memcpy_to_bvec(&bvec, data);
		data += bvec.bv_len;
	}
}

/* Put the data of a request in a message, or register its memory. */
static int memreg_blk_prepare_data(struct memreg_blk_io *io, struct request *rq)
{
	u32 length = blk_rq_bytes(rq);

	if (length > io->queue->export.inline_max)
		return memreg_blk_map(io, rq);
	if (rq_data_dir(rq) == WRITE) {
		memreg_blk_copy(rq, io->data);
		io->carried = length;
	} else {
		io->wanted = length;
	}
	return 0;
}

static bool memreg_blk_has_data(int opcode)
{
	return opcode == IB_MEMREG_BLK_READ || opcode == IB_MEMREG_BLK_WRITE;
}

/**
 * memreg_blk_send() - Send the command of a request
 * @queue: The queue of a device that is LIVE, or was a moment ago
 * @rq: The request, which is started
 *
 * Return: BLK_STS_OK; BLK_STS_RESOURCE to try again; or an error.
 */
blk_status_t memreg_blk_send(struct memreg_blk_queue *queue, struct request *rq)
{
	struct memreg_blk_io *io = &queue->ios[rq->tag];
	struct memreg_blk_rq *mine = blk_mq_rq_to_pdu(rq);
	int opcode, ret = 0;
	u8 flags;

	opcode = memreg_blk_opcode(rq, &flags);
	if (opcode < 0)
		return BLK_STS_NOTSUPP;
	if (WARN_ON_ONCE(!memreg_blk_io_is(io, MEMREG_BLK_IO_IDLE)))
		return BLK_STS_IOERR;
	memreg_blk_number(queue->blk, rq);
	io->carried = 0;
	io->wanted = 0;
	if (memreg_blk_has_data(opcode))
		ret = memreg_blk_prepare_data(io, rq);
	if (ret == -EAGAIN)
		return BLK_STS_RESOURCE;
	if (ret < 0)
		return BLK_STS_IOERR;
	io->rq = rq;
	io->seq = mine->seq;
	WRITE_ONCE(mine->sent, jiffies);
	if (opcode == IB_MEMREG_BLK_FLUSH)
		memreg_blk_cmd(io, opcode, flags, 0, 0);
	else
		memreg_blk_cmd(io, opcode, flags,
			       blk_rq_pos(rq) << SECTOR_SHIFT,
			       blk_rq_bytes(rq));
	if (!memreg_blk_post(io))
		return BLK_STS_OK;
	io->rq = NULL;
	ib_memreg_req_unmap(&io->req);
	return BLK_STS_RESOURCE;
}

/**
 * memreg_blk_may_wait() - May a late command continue to wait?
 * @queue: The queue
 * @sent: When it was sent, in jiffies; io_timeout seconds ago or more
 *
 * In any context.
 *
 * Return: true if the server answers other commands or the keep-alive
 * meanwhile, and MEMREG_BLK_PATIENCE times io_timeout has not passed yet.
 */
bool memreg_blk_may_wait(const struct memreg_blk_queue *queue,
			 unsigned long sent)
{
	unsigned long heard = READ_ONCE(queue->last_reply);
	unsigned long timeout = queue->blk->io_timeout * HZ;

	return time_before(jiffies, heard + timeout) &&
	       time_before(jiffies, sent + MEMREG_BLK_PATIENCE * timeout);
}

/**
 * memreg_blk_nop() - Send a keep-alive if one is due
 * @queue: The queue of a device that is LIVE, or was a moment ago
 *
 * Return: 0, or -ETIMEDOUT if the last keep-alive was not answered in time.
 */
int memreg_blk_nop(struct memreg_blk_queue *queue)
{
	struct memreg_blk *blk = queue->blk;
	struct memreg_blk_io *io = &queue->ios[blk->tag_set.queue_depth];
	unsigned long quiet = READ_ONCE(queue->last_reply) +
			      blk->keep_alive * HZ;

	if (!memreg_blk_io_is(io, MEMREG_BLK_IO_IDLE))
		return time_after(jiffies, io->asked + blk->io_timeout * HZ) &&
		       !memreg_blk_may_wait(queue, io->asked) ? -ETIMEDOUT : 0;
	/* A connection is useful once an answer has come by it. */
	if (READ_ONCE(queue->answered) && time_before(jiffies, quiet))
		return 0;
	io->seq = atomic64_inc_return(&blk->seq);
	io->asked = jiffies;
	memreg_blk_cmd(io, IB_MEMREG_BLK_NOP, 0, 0, 0);
	memreg_blk_post(io);
	return 0;
}

/*
 * Receiving
 */

/**
 * memreg_blk_post_recv() - Post a receive
 * @recv: The receive, which is not posted; its queue has a QP
 *
 * Return: 0 or -errno.
 */
int memreg_blk_post_recv(struct memreg_blk_recv *recv)
{
	struct memreg_blk_queue *queue = recv->queue;
	u32 lkey = queue->pd->local_dma_lkey;
	u32 size = queue->blk->inline_max;
	struct ib_sge sges[2] = {
		{
			.addr = queue->replies_dma +
				(recv - queue->recvs) * MEMREG_BLK_REPLY_SIZE,
			.length = size ? sizeof(struct ib_memreg_blk_reply) :
					 MEMREG_BLK_REPLY_SIZE,
			.lkey = lkey,
		},
		{ .addr = recv->data_dma, .length = size, .lkey = lkey },
	};
	struct ib_recv_wr wr = {
		.wr_cqe = &recv->cqe,
		.sg_list = sges,
		.num_sge = size ? 2 : 1,
	};

	return ib_post_recv(queue->qp, &wr, NULL);
}

/* Copy the answer from a receive. */
static void memreg_blk_take(struct memreg_blk_recv *recv,
			    struct ib_memreg_blk_reply *reply)
{
	struct memreg_blk_queue *queue = recv->queue;
	size_t offset = (recv - queue->recvs) * MEMREG_BLK_REPLY_SIZE;
	struct ib_device *device = queue->cq->device;

	ib_dma_sync_single_for_cpu(device, queue->replies_dma + offset,
				   MEMREG_BLK_REPLY_SIZE, DMA_FROM_DEVICE);
	memcpy(reply, queue->replies + offset, sizeof(*reply));
	ib_dma_sync_single_for_device(device, queue->replies_dma + offset,
				      MEMREG_BLK_REPLY_SIZE, DMA_FROM_DEVICE);
}

/* Copy the data behind a valid answer to the request. */
static void memreg_blk_take_data(struct memreg_blk_recv *recv,
				 struct memreg_blk_io *io)
{
	struct ib_device *device = recv->queue->cq->device;

	ib_dma_sync_single_for_cpu(device, recv->data_dma, io->wanted,
				   DMA_FROM_DEVICE);
	memreg_blk_copy(io->rq, recv->data);
	ib_dma_sync_single_for_device(device, recv->data_dma, io->wanted,
				      DMA_FROM_DEVICE);
}

/*
 * Find the command of an answer, and move it to ANSWERED: the caller then ends
 * it. If the answer is invalid the command stays SENT, and the recovery aborts
 * it.
 */
static const char *memreg_blk_match(struct memreg_blk_queue *queue,
				    const struct ib_memreg_blk_reply *reply,
				    const struct ib_wc *wc,
				    struct memreg_blk_io **found)
{
	unsigned int tag = be16_to_cpu(reply->tag);
	struct memreg_blk_io *io;
	const char *wrong;

	if (tag >= queue->blk->depth)
		return "has a bad tag";
	io = &queue->ios[tag];
	if (READ_ONCE(io->state) != MEMREG_BLK_IO_SENT)
		return "has a tag that is not in flight";
	/* From here on no other context changes the command. */
	if (ib_memreg_req_answered(&io->req, wc))
		return "is none that its command waits for";
	wrong = memreg_blk_reply(io, reply, wc);
	if (!wrong)
		WRITE_ONCE(io->state, MEMREG_BLK_IO_ANSWERED);
	*found = io;
	return wrong;
}

static void memreg_blk_wrong(struct memreg_blk_queue *queue, const char *how)
{
	atomic64_inc(&queue->blk->stats.protocol_errors);
	memreg_blk_broken(queue->blk, "an answer on queue %u %s", queue->index,
			  how);
}

/*
 * Handle a failed receive. Unless it was flushed, its message was too long, or
 * had a key to invalidate that cannot be invalidated. If the server rejects the
 * connection, the RDMA CM flushes receives before it reports the rejection.
 */
static void memreg_blk_recv_failed(struct memreg_blk_queue *queue,
				   enum ib_wc_status status)
{
	if (status != IB_WC_WR_FLUSH_ERR)
		atomic64_inc(&queue->blk->stats.protocol_errors);
	else if (!READ_ONCE(queue->up))
		return;
	memreg_blk_broken(queue->blk, "queue %u can't receive: %s",
			  queue->index, ib_wc_status_msg(status));
}

/**
 * memreg_blk_recv_done() - Handle the completion of a receive
 * @cq: CQ of the queue
 * @wc: Completion
 *
 * In softirq context. Ends the answered command, if all of its work requests
 * have completed. The receive is posted again before that, so that another
 * command can take its place.
 */
void memreg_blk_recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct memreg_blk_recv *recv = container_of(wc->wr_cqe,
						    struct memreg_blk_recv,
						    cqe);
	struct memreg_blk_queue *queue = recv->queue;
	struct ib_memreg_blk_reply reply;
	struct memreg_blk_io *io;
	const char *wrong;
	u16 status;

	if (wc->status != IB_WC_SUCCESS) {
		memreg_blk_recv_failed(queue, wc->status);
		return;
	}
	/*
	 * Without a connection, the QP may be destroyed before this function
	 * returns.
	 */
	wrong = READ_ONCE(queue->up) ? memreg_blk_reply_begin(wc) :
				       "comes before the connection is up";
	if (!wrong) {
		memreg_blk_take(recv, &reply);
		wrong = memreg_blk_match(queue, &reply, wc, &io);
	}
	if (wrong) {
		memreg_blk_wrong(queue, wrong);
		return;
	}
	status = be16_to_cpu(reply.status);
	if (status == IB_MEMREG_BLK_OK && io->wanted)
		memreg_blk_take_data(recv, io);
	if (memreg_blk_post_recv(recv))
		memreg_blk_broken(queue->blk, "queue %u can't post receives",
				  queue->index);
	io->status = memreg_blk_status(status);
	WRITE_ONCE(queue->last_reply, jiffies);
	WRITE_ONCE(queue->answered, true);
	memreg_blk_capacity(queue->blk, be64_to_cpu(reply.capacity));
	if (status == IB_MEMREG_BLK_INVALID)
		memreg_blk_wrong(queue, "calls a command invalid");
	atomic_inc(&queue->ending);
	ib_memreg_req_end(&io->req, queue->qp);
}

/* The recovery, after the queue was quiesced and the QP destroyed */

static void memreg_blk_retry(struct memreg_blk *blk, struct request *rq)
{
	struct memreg_blk_rq *mine = blk_mq_rq_to_pdu(rq);

	if (mine->retries++ < blk->retries) {
		atomic64_inc(&blk->stats.retries);
		blk->requeued = true;
		blk_mq_requeue_request(rq, false);
		return;
	}
	atomic64_inc(&blk->stats.failed);
	blk_mq_end_request(rq, BLK_STS_TRANSPORT);
}

/**
 * memreg_blk_ios_settle() - Requeue or fail requests that were not answered
 * @queue: The queue, after memreg_blk_disconnect()
 *
 * Requeues them, to be sent again with the same sequence number, or fails them
 * if they were requeued too often.
 */
void memreg_blk_ios_settle(struct memreg_blk_queue *queue)
{
	struct memreg_blk_io *io;
	struct request *rq;
	unsigned int i;

	for (i = 0; i < queue->blk->depth; i++) {
		io = &queue->ios[i];
		if (READ_ONCE(io->state) != MEMREG_BLK_IO_ENDED)
			continue;
		rq = io->rq;
		io->rq = NULL;
		memreg_blk_io_becomes(io, MEMREG_BLK_IO_IDLE);
		if (rq)
			memreg_blk_retry(queue->blk, rq);
	}
}
