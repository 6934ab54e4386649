// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connections: an RC QP for each hardware queue, by the RDMA CM.
 *
 * All connections are made and destroyed together, with their PDs, pools and
 * CQs: each attempt starts from scratch, since the address may be on another
 * RDMA device by then. Handlers only record events. The task that enables the
 * device, and later the recovery's worker, does all the work, in this order:
 *
 *	address resolved -> PD, pool, reserve, mappings, CQ, QP
 *	-> route resolved -> receives posted -> connected -> welcome checked
 *
 * In reverse, receives are drained before the send queue. After the last
 * receive was flushed no answer can lead to a LOCAL_INV any more, so that
 * draining the send queue then covers all posted work requests. The ids are
 * destroyed last: the removal of an RDMA device waits for them, and then no
 * other object of this module is left on the device.
 */
#include <linux/slab.h>
#include <linux/string.h>

#include "blk.h"
#include "cm.h"

/* Milliseconds for an address or a route; a step of connecting takes longer
 * only if the RDMA CM raises no event at all.
 */
#define MEMREG_BLK_RESOLVE_MS	2000
#define MEMREG_BLK_STEP		(10 * HZ)

/*
 * The server must have receives posted; RNR retries are unlimited, and commands
 * time out instead.
 */
#define MEMREG_BLK_RETRY	7
#define MEMREG_BLK_RNR_RETRY	6

/* The pool starts with MRs for this number of requests of a queue. */
#define MEMREG_BLK_POOL_DEPTH	16

/*
 * Events of the RDMA CM
 */

static void memreg_blk_notify(struct memreg_blk_queue *queue, int status)
{
	queue->cm_status = status;
	/* Pairs with memreg_blk_notified(). */
	smp_store_release(&queue->cm_event, true);
	wake_up(&queue->blk->wait);
}

static int memreg_blk_established(struct memreg_blk_queue *queue,
				  const struct rdma_conn_param *conn)
{
	return memreg_blk_welcome(queue, conn->private_data,
				  conn->private_data ?
				  conn->private_data_len : 0);
}

static int memreg_blk_rejected(struct memreg_blk_queue *queue,
			       struct rdma_cm_event *event)
{
	const void *data;
	u8 length = 0;

	data = rdma_consumer_reject_data(queue->id, event, &length);
	memreg_blk_refusal(queue->blk, data, length);
	return -ECONNREFUSED;
}

/*
 * An error before the connection is established is an error of the current
 * step.
 */
static int memreg_blk_failed(struct memreg_blk_queue *queue,
			     const struct rdma_cm_event *event)
{
	memreg_blk_say(queue->blk, "can't connect: %s, error %d",
		       rdma_event_msg(event->event), event->status);
	return event->event == RDMA_CM_EVENT_ADDR_ERROR ||
	       event->event == RDMA_CM_EVENT_ROUTE_ERROR ?
	       -EHOSTUNREACH : -ECONNREFUSED;
}

static int memreg_blk_handler(struct rdma_cm_id *id,
			      struct rdma_cm_event *event)
{
	struct memreg_blk_queue *queue = id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		memreg_blk_notify(queue, 0);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		memreg_blk_notify(queue, memreg_blk_established
				(queue, &event->param.conn));
		break;
	case RDMA_CM_EVENT_REJECTED:
		memreg_blk_notify(queue, memreg_blk_rejected(queue, event));
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		memreg_blk_notify(queue, memreg_blk_failed(queue, event));
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		/* DISCONNECTED, ADDR_CHANGE, DEVICE_REMOVAL */
		memreg_blk_broken(queue->blk, "queue %u: %s", queue->index,
				  rdma_event_msg(event->event));
	}
	return 0;
}

static bool memreg_blk_notified(const struct memreg_blk_queue *queue)
{
	/* Pairs with memreg_blk_notify(). */
	return smp_load_acquire(&queue->cm_event);
}

/*
 * Wait for the event of a step, unless I/O has to fail before: the server may
 * be slow to accept.
 */
static int memreg_blk_step(struct memreg_blk_queue *queue, const char *what)
{
	struct memreg_blk *blk = queue->blk;
	unsigned long most = min_t(unsigned long, MEMREG_BLK_STEP,
				   memreg_blk_left(blk));

	if (!wait_event_timeout(blk->wait,
				memreg_blk_notified(queue) ||
				READ_ONCE(blk->broken) ||
				READ_ONCE(blk->stopping), most)) {
		memreg_blk_say(blk, "no answer: %s", what);
		return -ETIMEDOUT;
	}
	if (!memreg_blk_notified(queue))
		return -ECONNRESET;
	return queue->cm_status;
}

/* Reset the event before a step begins. */
static void memreg_blk_step_begin(struct memreg_blk_queue *queue)
{
	queue->cm_event = false;
	queue->cm_status = 0;
}

/*
 * PDs and pools
 */

/*
 * If the largest request needs more MRs than a command has segments, reduce the
 * size of requests; not possible once the disk exists.
 */
static int memreg_blk_limits(struct memreg_blk_queue *queue)
{
	struct memreg_blk *blk = queue->blk;
	unsigned int mrs = DIV_ROUND_UP(memreg_blk_pieces(blk),
					ib_memreg_pool_pages(queue->pool));

	if (!blk->known)
		blk->max_mrs = min_t(unsigned int, mrs, IB_MEMREG_BLK_SEGS_MAX);
	if (mrs <= blk->max_mrs || !blk->known)
		return 0;
	memreg_blk_say(blk, "the RDMA device has shorter MRs now");
	return -EMEDIUMTYPE;
}

/* Requests for which there were too few MRs are sent again. */
static void memreg_blk_available(void *context)
{
	struct memreg_blk_queue *queue = context;

	blk_mq_run_hw_queue(queue->hctx, true);
}

static struct ib_memreg_pool *
memreg_blk_create_pool(struct memreg_blk_queue *queue)
{
	const struct memreg_blk *blk = queue->blk;
	unsigned int pages = memreg_blk_pieces(blk), most, each;
	struct ib_memreg_pool_attr attr = {
		.name = memreg_blk_name(blk),
		.max_pages = pages,
		.numa_node = NUMA_NO_NODE,
		.available = memreg_blk_available,
		.context = queue,
	};

	most = ib_memreg_max_pages(queue->pd->device);
	each = most ? DIV_ROUND_UP(pages, most) : 1;
	attr.count = each * min(blk->depth, MEMREG_BLK_POOL_DEPTH);
	attr.max_count = each * blk->depth;
	return ib_memreg_pool_create(queue->pd, &attr);
}

/*
 * Each queue has a PD of its own, and with it a pool: a key works by the one
 * connection that it was made for, and no queue waits for another's MRs.
 */
static int memreg_blk_create_pd(struct memreg_blk_queue *queue)
{
	struct ib_device *device = queue->id->device;
	struct memreg_blk *blk = queue->blk;
	struct ib_memreg_pool *pool;
	struct ib_pd *pd;

	/*
	 * The limits of MRs that were found with the first queue hold for all.
	 */
	if (device != blk->live[0].id->device)
		return -ENODEV;
	pd = ib_alloc_pd(device, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	queue->pd = pd;
	pool = memreg_blk_create_pool(queue);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	mutex_lock(&blk->conn_lock);
	queue->pool = pool;
	mutex_unlock(&blk->conn_lock);
	return memreg_blk_limits(queue);
}

static void memreg_blk_add_stats(struct ib_memreg_pool_stats *to,
				 const struct ib_memreg_pool_stats *from)
{
	to->taken += from->taken;
	to->empty += from->empty;
	to->grown += from->grown;
	to->shrunk += from->shrunk;
	to->replaced += from->replaced;
	to->remote_invalidated += from->remote_invalidated;
	to->local_invalidated += from->local_invalidated;
	to->bogus += from->bogus;
}

static void memreg_blk_destroy_pd(struct memreg_blk_queue *queue)
{
	struct ib_memreg_pool *pool = queue->pool;
	struct memreg_blk *blk = queue->blk;
	struct ib_memreg_pool_stats stats;

	if (pool) {
		mutex_lock(&blk->conn_lock);
		ib_memreg_pool_query(pool, &stats);
		memreg_blk_add_stats(&blk->past, &stats);
		queue->pool = NULL;
		mutex_unlock(&blk->conn_lock);
		ib_memreg_pool_destroy(pool);
	}
	if (queue->pd)
		ib_dealloc_pd(queue->pd);
	queue->pd = NULL;
}

/**
 * memreg_blk_query() - Read the statistics of a device's pools
 * @blk: The device
 * @stats: Filled in: the MRs of the present pools, and counters over all pools
 *   so far
 */
void memreg_blk_query(struct memreg_blk *blk,
		      struct ib_memreg_pool_stats *stats)
{
	struct ib_memreg_pool_stats one;
	unsigned int i;

	mutex_lock(&blk->conn_lock);
	*stats = blk->past;
	for (i = 0; blk->live && i < blk->nr_live; i++) {
		if (!blk->live[i].pool)
			continue;
		ib_memreg_pool_query(blk->live[i].pool, &one);
		stats->total += one.total;
		stats->idle += one.idle;
		memreg_blk_add_stats(stats, &one);
	}
	mutex_unlock(&blk->conn_lock);
}

/*
 * One queue
 */

static void memreg_blk_unmap_data(struct memreg_blk_queue *queue,
				  unsigned int count)
{
	struct ib_device *device = queue->id->device;
	size_t size = queue->blk->inline_max;

	while (count--) {
		ib_dma_unmap_single(device, queue->ios[count].data_dma, size,
				    DMA_TO_DEVICE);
		ib_dma_unmap_single(device, queue->recvs[count].data_dma, size,
				    DMA_FROM_DEVICE);
	}
}

static bool memreg_blk_map_one(struct ib_device *device, void *mem, size_t size,
			       enum dma_data_direction dir, u64 *dma)
{
	*dma = ib_dma_map_single(device, mem, size, dir);
	return !ib_dma_mapping_error(device, *dma);
}

/* The data of commands and of answers, if there is any. */
static int memreg_blk_map_data(struct memreg_blk_queue *queue)
{
	struct ib_device *device = queue->id->device;
	size_t size = queue->blk->inline_max;
	unsigned int i;

	for (i = 0; size && i < queue->blk->depth; i++) {
		struct memreg_blk_recv *recv = &queue->recvs[i];
		struct memreg_blk_io *io = &queue->ios[i];

		if (!memreg_blk_map_one(device, io->data, size, DMA_TO_DEVICE,
					&io->data_dma))
			break;
		if (memreg_blk_map_one(device, recv->data, size,
				       DMA_FROM_DEVICE, &recv->data_dma))
			continue;
		ib_dma_unmap_single(device, io->data_dma, size, DMA_TO_DEVICE);
		break;
	}
	if (!size || i == queue->blk->depth)
		return 0;
	memreg_blk_unmap_data(queue, i);
	return -ENOMEM;
}

static int memreg_blk_map_messages(struct memreg_blk_queue *queue)
{
	struct ib_device *device = queue->id->device;
	unsigned int depth = queue->blk->depth;

	queue->cmds_dma = ib_dma_map_single(device, queue->cmds,
					    depth * MEMREG_BLK_CMD_SIZE,
					    DMA_TO_DEVICE);
	if (ib_dma_mapping_error(device, queue->cmds_dma))
		return -ENOMEM;
	queue->replies_dma = ib_dma_map_single(device, queue->replies,
					       depth * MEMREG_BLK_REPLY_SIZE,
					       DMA_FROM_DEVICE);
	if (ib_dma_mapping_error(device, queue->replies_dma))
		goto unmap_cmds;
	if (memreg_blk_map_data(queue))
		goto unmap_replies;
	queue->mapped = true;
	return 0;

unmap_replies:
	ib_dma_unmap_single(device, queue->replies_dma,
			    depth * MEMREG_BLK_REPLY_SIZE, DMA_FROM_DEVICE);
unmap_cmds:
	ib_dma_unmap_single(device, queue->cmds_dma,
			    depth * MEMREG_BLK_CMD_SIZE, DMA_TO_DEVICE);
	return -ENOMEM;
}

static void memreg_blk_unmap_messages(struct memreg_blk_queue *queue)
{
	struct ib_device *device = queue->id->device;
	unsigned int depth = queue->blk->depth;

	if (!queue->mapped)
		return;
	if (queue->blk->inline_max)
		memreg_blk_unmap_data(queue, depth);
	ib_dma_unmap_single(device, queue->cmds_dma,
			    depth * MEMREG_BLK_CMD_SIZE, DMA_TO_DEVICE);
	ib_dma_unmap_single(device, queue->replies_dma,
			    depth * MEMREG_BLK_REPLY_SIZE, DMA_FROM_DEVICE);
	queue->mapped = false;
}

/*
 * Completions
 *
 * They are taken in softirqs, some at a time. A CQ of the RDMA core's
 * (ib_alloc_cq()) does the same, but a softirq that is raised by a driver which
 * reports completions in a process waits for ksoftirqd to be woken, and to run.
 * An irq_work makes the softirq run at once. As with a CQ of the core, no other
 * code polls, and each work request has a done function.
 *
 * What is sent has a CQ of its own, which is polled before the one of receives:
 * when an answer comes, the SEND of its command has completed, but for an
 * acknowledgment that is late. So the CQ raises an event only while a command
 * that is answered waits for its SEND or for LOCAL_INVs: one command at a time
 * takes one event instead of two. A work request that fails makes the QP flush
 * its receives, which do.
 */

/* Completions that are taken before other softirqs may run. */
#define MEMREG_BLK_BUDGET	256

/* Profiles for lib/dim: microseconds, and completions, per interrupt. */
static const struct {
	u16 usec;
	u16 comps;
} memreg_blk_profiles[RDMA_DIM_PARAMS_NUM_PROFILES] = {
	{ 1, 1 }, { 1, 4 }, { 2, 4 }, { 2, 8 }, { 4, 8 },
	{ 16, 8 }, { 16, 16 }, { 32, 16 }, { 32, 32 },
};

/* lib/dim has chosen another profile. */
static void memreg_blk_moderate(struct work_struct *work)
{
	struct dim *dim = container_of(work, struct dim, work);
	struct memreg_blk_queue *queue =
		container_of(dim, struct memreg_blk_queue, dim);

	dim->state = DIM_START_MEASURE;
	rdma_set_cq_moderation(queue->cq,
			       memreg_blk_profiles[dim->profile_ix].comps,
			       memreg_blk_profiles[dim->profile_ix].usec);
}

/* Arm a CQ. Returns true if it has completions already. */
static bool memreg_blk_arm(struct ib_cq *cq)
{
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP |
				IB_CQ_REPORT_MISSED_EVENTS) > 0;
}

/* An answer that adds to @ending is taken here, so it is seen below; or by
 * memreg_blk_drain(), which needs no events any more when it returns.
 */
static void memreg_blk_poll(struct work_struct *work)
{
	struct memreg_blk_queue *queue =
		container_of(work, struct memreg_blk_queue, poll);
	int sent = ib_process_cq_direct(queue->send_cq, MEMREG_BLK_BUDGET);
	int n = ib_process_cq_direct(queue->cq, MEMREG_BLK_BUDGET);

	if (sent == MEMREG_BLK_BUDGET || n == MEMREG_BLK_BUDGET ||
	    memreg_blk_arm(queue->cq) ||
	    (atomic_read(&queue->ending) && memreg_blk_arm(queue->send_cq)))
		queue_work(system_bh_wq, &queue->poll);
	if (queue->cq->device->use_cq_dim)
		rdma_dim(&queue->dim, n);
}

static void memreg_blk_interrupt(struct irq_work *work)
{
	struct memreg_blk_queue *queue =
		container_of(work, struct memreg_blk_queue, interrupt);

	queue_work(system_bh_wq, &queue->poll);
}

static void memreg_blk_completion(struct ib_cq *cq, void *context)
{
	struct memreg_blk_queue *queue = context;

	if (in_interrupt())
		queue_work(system_bh_wq, &queue->poll);
	else
		irq_work_queue(&queue->interrupt);
}

static struct ib_cq *memreg_blk_create_cq(struct memreg_blk_queue *queue,
					  unsigned int entries)
{
	struct ib_device *device = queue->id->device;
	struct ib_cq_init_attr attr = {
		.cqe = entries,
		.comp_vector = queue->index % device->num_comp_vectors,
	};

	return ib_create_cq(device, memreg_blk_completion, NULL, queue, &attr);
}

/* memreg_blk_destroy_cqs() undoes it, whether it succeeds or not. */
static int memreg_blk_create_cqs(struct memreg_blk_queue *queue,
				 unsigned int sends, unsigned int receives)
{
	struct ib_cq *cq;

	init_irq_work(&queue->interrupt, memreg_blk_interrupt);
	INIT_WORK(&queue->poll, memreg_blk_poll);
	INIT_WORK(&queue->dim.work, memreg_blk_moderate);
	queue->dim.state = DIM_START_MEASURE;
	queue->dim.tune_state = DIM_GOING_RIGHT;
	queue->dim.profile_ix = RDMA_DIM_START_PROFILE;
	atomic_set(&queue->ending, 0);
	cq = memreg_blk_create_cq(queue, sends);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	queue->send_cq = cq;
	cq = memreg_blk_create_cq(queue, receives);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	queue->cq = cq;
	ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
	return 0;
}

/*
 * The CQs are no longer in use, but a driver may still be raising a last event,
 * which has no effect any more.
 */
static void memreg_blk_destroy_cqs(struct memreg_blk_queue *queue)
{
	if (!queue->send_cq)
		return;
	irq_work_sync(&queue->interrupt);
	disable_work_sync(&queue->poll);
	cancel_work_sync(&queue->dim.work);
	if (queue->cq)
		ib_destroy_cq(queue->cq);
	ib_destroy_cq(queue->send_cq);
	irq_work_sync(&queue->interrupt);
	queue->cq = NULL;
	queue->send_cq = NULL;
}

/*
 * With one extra receive for draining. The data of a message is an SGE of its
 * own.
 */
static int memreg_blk_create_qp(struct memreg_blk_queue *queue)
{
	struct memreg_blk *blk = queue->blk;
	struct ib_device *device = queue->id->device;
	struct ib_qp_init_attr attr = {
		.qp_context = queue,
		.cap.max_recv_wr = blk->depth + 1,
		.cap.max_send_sge = blk->inline_max ? 2 : 1,
		.cap.max_recv_sge = blk->inline_max ? 2 : 1,
		.qp_type = IB_QPT_RC,
	};
	int ret;

	ret = ib_memreg_init_qp(device, &attr, blk->depth, blk->max_mrs);
	if (ret < 0)
		return ret;
	ret = memreg_blk_create_cqs(queue, ret, attr.cap.max_recv_wr);
	if (ret)
		return ret;
	attr.send_cq = queue->send_cq;
	attr.recv_cq = queue->cq;
	ret = rdma_create_qp(queue->id, queue->pd, &attr);
	queue->qp = ret ? NULL : queue->id->qp;
	return ret;
}

/*
 * Create the objects of a queue, once the address is resolved to an RDMA
 * device.
 */
static int memreg_blk_create(struct memreg_blk_queue *queue)
{
	struct ib_memreg_reserve *reserve;
	int ret;

	ret = memreg_blk_create_pd(queue);
	if (ret)
		return ret;
	reserve = ib_memreg_reserve_create(queue->pool, queue->blk->max_mrs);
	if (IS_ERR(reserve))
		return PTR_ERR(reserve);
	queue->reserve = reserve;
	memreg_blk_ios_ready(queue);
	ret = memreg_blk_map_messages(queue);
	if (ret)
		return ret;
	return memreg_blk_create_qp(queue);
}

static int memreg_blk_request(struct memreg_blk_queue *queue)
{
	struct ib_device *device = queue->id->device;
	struct ib_memreg_blk_hello hello;
	struct rdma_conn_param param = {
		.private_data = &hello,
		.private_data_len = sizeof(hello),
		/*
		 * For a WRITE the server reads from this side; this side never
		 * reads.
		 */
		.responder_resources = min(device->attrs.max_qp_rd_atom,
					   U8_MAX),
		.retry_count = MEMREG_BLK_RETRY,
		.rnr_retry_count = MEMREG_BLK_RNR_RETRY,
	};
	unsigned int i;
	int ret;

	for (i = 0; i < queue->blk->depth; i++) {
		ret = memreg_blk_post_recv(&queue->recvs[i]);
		if (ret)
			return ret;
	}
	memreg_blk_hello(queue, &hello);
	memreg_blk_step_begin(queue);
	queue->asked = true;
	ret = rdma_connect(queue->id, &param);
	if (!ret)
		ret = memreg_blk_step(queue, "connecting");
	WRITE_ONCE(queue->up, !ret);
	return ret;
}

static int memreg_blk_resolve(struct memreg_blk_queue *queue)
{
	int ret;

	memreg_blk_step_begin(queue);
	ret = rdma_resolve_addr(queue->id, NULL,
				(struct sockaddr *)&queue->blk->addr,
				MEMREG_BLK_RESOLVE_MS);
	return ret ?: memreg_blk_step(queue, "resolving the address");
}

static int memreg_blk_route(struct memreg_blk_queue *queue)
{
	int ret;

	memreg_blk_step_begin(queue);
	ret = rdma_resolve_route(queue->id, MEMREG_BLK_RESOLVE_MS);
	return ret ?: memreg_blk_step(queue, "resolving the route");
}

static int memreg_blk_queue_connect(struct memreg_blk_queue *queue)
{
	struct memreg_blk *blk = queue->blk;
	struct rdma_cm_id *id;
	int ret;

	id = rdma_create_id(blk->net, memreg_blk_handler, queue, RDMA_PS_TCP,
			    IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	queue->id = id;
	queue->asked = false;
	queue->up = false;
	queue->last_reply = jiffies;
	queue->answered = false;
	ret = memreg_blk_resolve(queue);
	if (ret)
		return ret;
	ret = memreg_blk_create(queue);
	if (ret)
		return ret;
	ret = memreg_blk_route(queue);
	if (ret)
		return ret;
	return memreg_blk_request(queue);
}

/*
 * Drain a queue, to which nothing is posted any more, end the commands that
 * were not answered, and wait for those that were. A QP that was never
 * connected has only receives, which it may not flush: rxe's receiver is off
 * for good if memory was short when the QP got ready to receive.
 */
static void memreg_blk_drain(struct memreg_blk_queue *queue)
{
	if (queue->up) {
		/* ib_drain_sq() does not poll this CQ, which has no events. */
		atomic_inc(&queue->ending);
		queue_work(system_bh_wq, &queue->poll);
		ib_drain_rq(queue->qp);
		ib_drain_sq(queue->qp);
		atomic_dec(&queue->ending);
		/* No key works, and no command uses the pool, from here on. */
		ib_memreg_pool_abort(queue->pool, queue->qp);
	}
	memreg_cm_destroy_qp(queue->id);
	queue->qp = NULL;
}

static void memreg_blk_destroy(struct memreg_blk_queue *queue)
{
	memreg_blk_destroy_cqs(queue);
	if (queue->reserve)
		ib_memreg_reserve_destroy(queue->reserve);
	queue->reserve = NULL;
	if (queue->id)
		memreg_blk_unmap_messages(queue);
	memreg_blk_destroy_pd(queue);
}

/*
 * All queues
 */

/*
 * The answer to the first queue holds for all queues. The smallest of the
 * depths is used.
 */
static int memreg_blk_learn(struct memreg_blk *blk)
{
	const struct memreg_blk_export *e = &blk->live[0].export;
	unsigned int depth = e->depth, pages, i;

	for (i = 1; i < blk->nr_live; i++)
		depth = min(depth, blk->live[i].export.depth);
	blk->max_mrs = min_t(unsigned int, blk->max_mrs, e->max_segs);
	pages = blk->max_mrs * ib_memreg_pool_pages(blk->live[0].pool);
	blk->io_max = min(blk->io_max, e->max_length);
	blk->io_max = min_t(u64, blk->io_max, (u64)(pages - 1) * PAGE_SIZE);
	blk->io_max = rounddown(blk->io_max, PAGE_SIZE);
	if (depth < MEMREG_BLK_DEPTH_MIN || blk->io_max < PAGE_SIZE) {
		memreg_blk_say(blk, "the server allows too little");
		return -EOPNOTSUPP;
	}
	blk->export = *e;
	blk->export.depth = depth;
	blk->known = true;
	return 0;
}

/* The queues of one connection are one device: block size and flags may not
 * differ, and limits must suffice.
 */
static int memreg_blk_agree(struct memreg_blk *blk)
{
	unsigned int i;
	int ret;

	if (!blk->known) {
		ret = memreg_blk_learn(blk);
		if (ret)
			return ret;
	}
	for (i = 0; i < blk->nr_live; i++) {
		ret = memreg_blk_welcome_fits(blk, &blk->live[i].export);
		if (ret)
			return ret;
	}
	memreg_blk_capacity(blk, blk->live[0].export.capacity);
	return 0;
}

static int memreg_blk_connect_all(struct memreg_blk *blk)
{
	unsigned int i;
	int ret;

	for (i = 0; i < blk->nr_live; i++) {
		ret = memreg_blk_queue_connect(&blk->live[i]);
		if (ret)
			return ret;
		if (READ_ONCE(blk->broken))
			return -ECONNRESET;
	}
	return memreg_blk_agree(blk);
}

/* Log a failure, unless it has been logged already. */
static void memreg_blk_say_first(struct memreg_blk *blk, int error)
{
	bool silent;

	spin_lock_irq(&blk->error_lock);
	silent = !blk->error[0];
	spin_unlock_irq(&blk->error_lock);
	if (silent)
		memreg_blk_say(blk, "can't connect: error %d", error);
}

/**
 * memreg_blk_connect() - Connect all queues
 * @blk: The device; it isn't connected
 *
 * May sleep, for some seconds; memreg_blk.stopping makes it fail early. The
 * reason of a failure is logged.
 *
 * Return: 0; or -errno, with all objects of the attempt destroyed.
 */
int memreg_blk_connect(struct memreg_blk *blk)
{
	int ret;

	blk->epoch++;
	WRITE_ONCE(blk->broken, false);
	memreg_blk_say(blk, "%s", "");
	blk->connected = true;
	ret = memreg_blk_connect_all(blk);
	if (!ret) {
		atomic64_inc(&blk->stats.connections);
		return 0;
	}
	memreg_blk_say_first(blk, ret);
	memreg_blk_disconnect(blk);
	return ret;
}

/**
 * memreg_blk_disconnect() - End all connections
 * @blk: The device, whose tag set is quiesced
 *
 * May sleep. No key works when it returns. Commands that were not answered wait
 * for memreg_blk_ios_settle().
 */
void memreg_blk_disconnect(struct memreg_blk *blk)
{
	struct memreg_blk_queue *queue, *end = blk->live + blk->nr_live;

	if (!blk->connected)
		return;
	/* Flushed completions from here on are not errors. */
	WRITE_ONCE(blk->broken, true);
	for (queue = blk->live; queue < end; queue++)
		if (queue->asked)
			rdma_disconnect(queue->id);
	for (queue = blk->live; queue < end; queue++)
		if (queue->qp)
			memreg_blk_drain(queue);
	for (queue = blk->live; queue < end; queue++)
		memreg_blk_destroy(queue);
	for (queue = blk->live; queue < end; queue++) {
		if (queue->id)
			rdma_destroy_id(queue->id);
		queue->id = NULL;
		queue->asked = false;
	}
	blk->connected = false;
}
