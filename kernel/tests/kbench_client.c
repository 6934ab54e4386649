// SPDX-License-Identifier: GPL-2.0-only
/*
 * What an I/O of 4 KiB costs a client in the kernel that registers its memory
 * with <rdma/memreg_pool.h>, next to the same client with ib_mr_pool and FRWR
 * code of its own, in the manner of nvme-rdma. And a test: whose the memory is
 * when callers are killed while the connection ends.
 *
 * Client and server are two QPs of one device, which are connected to each
 * other. The client sends the key of a page. The server writes there, and
 * answers by a SEND_WITH_INV.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/random.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/memreg_pool.h>
#include <rdma/mr_pool.h>

#include "tests/kbench.h"

#define CLIENT_DEPTH	64
#define CLIENT_PAGES	16	/* that an MR can map */
#define CLIENT_LIMIT	(20 * HZ)

/**
 * struct client_msg - What the client sends, and the server receives
 * @seg: Memory to write to
 * @index: Of the I/O, which is the answer
 */
struct client_msg {
	struct ib_memreg_seg seg;
	u32 index;
};

/**
 * struct client_buf - What the device reads and writes for an I/O
 * @sent: Message of the client
 * @got: Message that the server has received
 * @answer: Answer of the server
 * @answered: Answer that the client has received
 */
struct client_buf {
	struct client_msg sent;
	struct client_msg got;
	u32 answer;
	u32 answered;
};

/**
 * struct client_io - An I/O of the client, and one of the server
 * @client: Both
 * @sg: The page
 * @req: Its registration with memreg
 * @mr: Its registration without
 * @reg_cqe: REG_MR of @mr
 * @send_cqe: SEND of the client
 * @recv_cqe: Receive of the client
 * @pending: Without memreg: SEND and answer, whichever comes first
 * @busy: The I/O has begun and not ended
 * @server_recv: Receive of the server
 * @server_send: SEND of the server
 */
struct client_io {
	struct client *client;
	struct scatterlist sg;
	struct ib_memreg_req req;
	struct ib_mr *mr;
	struct ib_cqe reg_cqe;
	struct ib_cqe send_cqe;
	struct ib_cqe recv_cqe;
	atomic_t pending;
	bool busy;
	struct ib_cqe server_recv;
	struct ib_cqe server_send;
};

/**
 * struct client - Client and server
 * @pd: Protection domain
 * @memreg: It registers with memreg
 * @depth: I/Os at a time
 * @pool: Pool of memreg
 * @cq: CQs of client and server
 * @qp: Likewise
 * @mrs: Pool of the core, whose lock is that of the client's QP
 * @bufs: Of each I/O
 * @dma: Their address
 * @page: The server writes this
 * @from: Its address
 * @lost: Something failed
 * @wait: An I/O has ended, or MRs have become available
 * @available: Number of times that they have
 * @kill: Ends all requests, as callers do that are killed
 * @killed: Requests that it has ended, and nobody else
 * @ios: I/Os
 */
struct client {
	struct ib_pd *pd;
	bool memreg;
	unsigned int depth;
	struct ib_memreg_pool *pool;
	struct ib_cq *cq[2];
	struct ib_qp *qp[2];
	struct list_head mrs;
	struct client_buf *bufs;
	u64 dma;
	struct page *page;
	u64 from;
	bool lost;
	wait_queue_head_t wait;
	atomic_t available;
	struct work_struct kill;
	unsigned int killed;
	struct client_io ios[CLIENT_DEPTH];
};

static void client_fail(struct client *c)
{
	WRITE_ONCE(c->lost, true);
	wake_up_all(&c->wait);
}

/* I/O address of a member of an I/O's buffer. */
#define client_addr(_c, _i, _member)					\
	((_c)->dma + (_i) * sizeof(struct client_buf) +			\
	 offsetof(struct client_buf, _member))

static int client_post_recv(struct client *c, unsigned int end, u64 addr,
			    u32 length, struct ib_cqe *cqe)
{
	struct ib_sge sge = {
		.addr = addr, .length = length, .lkey = c->pd->local_dma_lkey,
	};
	struct ib_recv_wr recv = {
		.wr_cqe = cqe, .sg_list = &sge, .num_sge = 1,
	};

	return ib_post_recv(c->qp[end], &recv, NULL);
}

/*
 * The server
 */

static void server_send_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client_io *io = container_of(wc->wr_cqe, struct client_io,
					    server_send);

	if (wc->status != IB_WC_SUCCESS)
		client_fail(io->client);
}

static int server_answer(struct client *c, struct client_io *io,
			 const struct client_msg *msg)
{
	unsigned int i = io - c->ios;
	struct ib_sge data = {
		.addr = c->from, .length = msg->seg.length,
		.lkey = c->pd->local_dma_lkey,
	};
	struct ib_sge answer = {
		.addr = client_addr(c, i, answer), .length = sizeof(u32),
		.lkey = c->pd->local_dma_lkey,
	};
	struct ib_send_wr send = {
		.wr_cqe = &io->server_send, .send_flags = IB_SEND_SIGNALED,
		.opcode = IB_WR_SEND_WITH_INV, .sg_list = &answer, .num_sge = 1,
		.ex.invalidate_rkey = msg->seg.rkey,
	};
	struct ib_rdma_wr write = {
		.wr = {
			.wr_cqe = &io->server_send, .opcode = IB_WR_RDMA_WRITE,
			.sg_list = &data, .num_sge = 1, .next = &send,
		},
		.remote_addr = msg->seg.iova, .rkey = msg->seg.rkey,
	};

	c->bufs[i].answer = msg->index;
	ib_dma_sync_single_for_device(c->pd->device, answer.addr,
				      answer.length, DMA_BIDIRECTIONAL);
	return ib_post_send(c->qp[1], &write.wr, NULL);
}

static void server_recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client_io *io = container_of(wc->wr_cqe, struct client_io,
					    server_recv);
	struct client *c = io->client;
	unsigned int i = io - c->ios;
	u64 addr = client_addr(c, i, got);
	struct client_msg msg;

	if (wc->status != IB_WC_SUCCESS)
		return client_fail(c);
	ib_dma_sync_single_for_cpu(c->pd->device, addr, sizeof(msg),
				   DMA_BIDIRECTIONAL);
	msg = c->bufs[i].got;
	if (client_post_recv(c, 1, addr, sizeof(msg), &io->server_recv) ||
	    server_answer(c, io, &msg))
		client_fail(c);
}

/*
 * The client
 */

static void client_io_done(struct client_io *io)
{
	/* Pairs with client_next(). */
	smp_store_release(&io->busy, false);
	wake_up(&io->client->wait);
}

/* With memreg */

static void client_req_done(struct ib_memreg_req *req, int status)
{
	struct client_io *io = container_of(req, struct client_io, req);

	if (status)
		client_fail(io->client);
	client_io_done(io);
}

static const struct ib_memreg_req_ops client_req_ops = {
	.done = client_req_done,
};

static void client_available(void *context)
{
	struct client *c = context;

	atomic_inc(&c->available);
	wake_up(&c->wait);
}

static int client_req_post(struct client_io *io, struct client_msg *msg,
			   struct ib_send_wr *send)
{
	struct client *c = io->client;
	int ret, seen;

	do {
		seen = atomic_read(&c->available);
		ret = ib_memreg_req_map_sg(&io->req, &io->sg, 1, 1,
					   DMA_FROM_DEVICE);
	} while (ret == -EAGAIN &&
		 wait_event_timeout(c->wait,
				    atomic_read(&c->available) != seen ||
				    READ_ONCE(c->lost), CLIENT_LIMIT) &&
		 !READ_ONCE(c->lost));
	if (ret)
		return ret;
	ib_memreg_req_segs(&io->req, &msg->seg, 1);
	return ib_memreg_req_post(&io->req, c->qp[0], send,
				  IB_MEMREG_REQ_REMOTE_INV);
}

static void client_req_answered(struct client_io *io, struct ib_wc *wc)
{
	if (ib_memreg_req_answered(&io->req, wc))
		client_fail(io->client);
	else
		ib_memreg_req_end(&io->req, io->client->qp[0]);
}

/* With code of its own */

static void client_mr_unmap(struct client_io *io)
{
	struct client *c = io->client;

	ib_dma_unmap_sg(c->pd->device, &io->sg, 1, DMA_FROM_DEVICE);
	ib_mr_pool_put(c->qp[0], &c->mrs, io->mr);
	io->mr = NULL;
}

/* The SEND has completed, or the answer has come. */
static void client_mr_step(struct client_io *io)
{
	if (!atomic_dec_and_test(&io->pending))
		return;
	client_mr_unmap(io);
	client_io_done(io);
}

static void client_reg_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client_io *io = container_of(wc->wr_cqe, struct client_io,
					    reg_cqe);

	if (wc->status != IB_WC_SUCCESS)
		client_fail(io->client);
}

static void client_send_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client_io *io = container_of(wc->wr_cqe, struct client_io,
					    send_cqe);

	if (wc->status != IB_WC_SUCCESS)
		client_fail(io->client);
	else
		client_mr_step(io);
}

static int client_mr_map(struct client_io *io)
{
	struct client *c = io->client;
	int nents;

	io->mr = ib_mr_pool_get(c->qp[0], &c->mrs);
	if (!io->mr)
		return -EAGAIN;
	nents = ib_dma_map_sg(c->pd->device, &io->sg, 1, DMA_FROM_DEVICE);
	if (!nents) {
		ib_mr_pool_put(c->qp[0], &c->mrs, io->mr);
		io->mr = NULL;
		return -EIO;
	}
	if (ib_map_mr_sg(io->mr, &io->sg, nents, NULL, PAGE_SIZE) < nents)
		return -EIO;
	ib_update_fast_reg_key(io->mr, ib_inc_rkey(io->mr->rkey));
	return 0;
}

static int client_mr_post(struct client_io *io, struct client_msg *msg,
			  struct ib_send_wr *send)
{
	struct ib_reg_wr reg = {
		.wr = {
			.wr_cqe = &io->reg_cqe, .opcode = IB_WR_REG_MR,
			.next = send,
		},
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
	};
	int ret = client_mr_map(io);

	if (ret)
		return ret;
	reg.mr = io->mr;
	reg.key = io->mr->rkey;
	msg->seg = (struct ib_memreg_seg) {
		.iova = io->mr->iova, .length = io->mr->length,
		.rkey = io->mr->rkey,
	};
	atomic_set(&io->pending, 2);
	send->wr_cqe = &io->send_cqe;
	send->send_flags = IB_SEND_SIGNALED;
	return ib_post_send(io->client->qp[0], &reg.wr, NULL);
}

static void client_mr_answered(struct client_io *io, struct ib_wc *wc)
{
	if (!(wc->wc_flags & IB_WC_WITH_INVALIDATE) ||
	    wc->ex.invalidate_rkey != io->mr->rkey)
		client_fail(io->client);
	else
		client_mr_step(io);
}

/* Both */

static void client_recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client_io *io = container_of(wc->wr_cqe, struct client_io,
					    recv_cqe);
	struct client *c = io->client;
	unsigned int i = io - c->ios;
	u64 addr = client_addr(c, i, answered);
	u32 index;

	if (wc->status != IB_WC_SUCCESS)
		return client_fail(c);
	ib_dma_sync_single_for_cpu(c->pd->device, addr, sizeof(u32),
				   DMA_BIDIRECTIONAL);
	index = c->bufs[i].answered;
	if (index >= c->depth || client_post_recv(c, 0, addr, sizeof(u32),
						  &io->recv_cqe))
		return client_fail(c);
	if (c->memreg)
		client_req_answered(&c->ios[index], wc);
	else
		client_mr_answered(&c->ios[index], wc);
}

static int client_begin(struct client *c, unsigned int i)
{
	struct client_io *io = &c->ios[i];
	struct client_msg *msg = &c->bufs[i].sent;
	struct ib_sge sge = {
		.addr = client_addr(c, i, sent), .length = sizeof(*msg),
		.lkey = c->pd->local_dma_lkey,
	};
	struct ib_send_wr send = {
		.opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1,
	};
	int ret;

	WRITE_ONCE(io->busy, true);
	msg->index = i;
	ret = c->memreg ? client_req_post(io, msg, &send) :
			  client_mr_post(io, msg, &send);
	if (ret)
		WRITE_ONCE(io->busy, false);
	return ret;
}

/* An I/O that is not on its way, or @depth. */
static unsigned int client_next(struct client *c)
{
	unsigned int i;

	for (i = 0; i < c->depth; i++)
		/* Pairs with client_io_done(). */
		if (!smp_load_acquire(&c->ios[i].busy))
			break;
	return i;
}

static bool client_idle(struct client *c)
{
	unsigned int i;

	for (i = 0; i < c->depth; i++)
		/* Pairs with client_io_done(). */
		if (smp_load_acquire(&c->ios[i].busy))
			return false;
	return true;
}

static int client_run(struct client *c, unsigned int ios)
{
	unsigned int n, i;
	int ret;

	for (n = 0; n < ios; n++) {
		if (!wait_event_timeout(c->wait,
					(i = client_next(c)) < c->depth ||
					READ_ONCE(c->lost), CLIENT_LIMIT))
			return -ETIMEDOUT;
		if (READ_ONCE(c->lost))
			return -ECONNABORTED;
		ret = client_begin(c, i);
		if (ret)
			return ret;
	}
	if (!wait_event_timeout(c->wait, client_idle(c) || READ_ONCE(c->lost),
				CLIENT_LIMIT))
		return -ETIMEDOUT;
	return READ_ONCE(c->lost) ? -ECONNABORTED : 0;
}

/*
 * The connection
 */

static int client_create_qp(struct client *c, unsigned int end)
{
	struct ib_qp_init_attr attr = {
		.cap = { .max_recv_wr = c->depth + 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IB_QPT_RC, .sq_sig_type = IB_SIGNAL_REQ_WR,
	};
	struct ib_device *ibdev = c->pd->device;
	/*
	 * Two for an I/O, and for the server as many whose completions come
	 * after the next I/O has begun; and a drain.
	 */
	int wrs = (end ? 4 : 2) * c->depth + 1;

	attr.cap.max_send_wr = wrs;
	if (!end && c->memreg) {
		attr.cap.max_send_wr = 0;
		wrs = ib_memreg_init_qp(ibdev, &attr, c->depth, 1);
		if (wrs < 0)
			return wrs;
	}
	c->cq[end] = ib_alloc_cq(ibdev, c, wrs + c->depth + 1, 0,
				 IB_POLL_SOFTIRQ);
	if (IS_ERR(c->cq[end]))
		return PTR_ERR(c->cq[end]);
	attr.send_cq = c->cq[end];
	attr.recv_cq = c->cq[end];
	c->qp[end] = ib_create_qp(c->pd, &attr);
	return PTR_ERR_OR_ZERO(c->qp[end]);
}

static int client_modify_init(struct ib_qp *qp)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT, .port_num = 1,
		.qp_access_flags = IB_ACCESS_LOCAL_WRITE |
				   IB_ACCESS_REMOTE_WRITE |
				   IB_ACCESS_REMOTE_READ,
	};

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			    IB_QP_PORT | IB_QP_ACCESS_FLAGS);
}

/* To the same port, by its first GID, which is on a RoCE link. */
static int client_modify_rtr(struct ib_qp *qp, const struct ib_qp *peer)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTR, .path_mtu = IB_MTU_1024,
		.dest_qp_num = peer->qp_num, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
	};
	struct rdma_ah_attr *ah = &attr.ah_attr;
	const struct ib_gid_attr *gid;
	int ret;

	gid = rdma_get_gid_attr(qp->device, 1, 0);
	if (IS_ERR(gid))
		return PTR_ERR(gid);
	ah->type = rdma_ah_find_type(qp->device, 1);
	rdma_ah_set_port_num(ah, 1);
	rdma_ah_set_grh(ah, (union ib_gid *)&gid->gid, 0, gid->index, 1, 0);
	ret = rdma_read_gid_l2_fields(gid, NULL, ah->roce.dmac) ?:
	      ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_AV |
			   IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			   IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
	rdma_put_gid_attr(gid);
	return ret;
}

static int client_modify_rts(struct ib_qp *qp)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTS, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7, .max_rd_atomic = 1,
	};

	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_TIMEOUT |
			    IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN |
			    IB_QP_MAX_QP_RD_ATOMIC);
}

static int client_connect(struct client *c)
{
	unsigned int end;
	int ret = 0;

	for (end = 0; end < 2 && !ret; end++)
		ret = client_create_qp(c, end) ?: client_modify_init(c->qp[end]);
	for (end = 0; end < 2 && !ret; end++)
		ret = client_modify_rtr(c->qp[end], c->qp[!end]) ?:
		      client_modify_rts(c->qp[end]);
	return ret;
}

/* No I/O is on its way afterwards, and no key works. */
static void client_disconnect(struct client *c)
{
	unsigned int end, i;

	for (end = 0; end < 2; end++) {
		if (IS_ERR_OR_NULL(c->qp[end]))
			continue;
		ib_drain_rq(c->qp[end]);	/* an answer may post */
		ib_drain_sq(c->qp[end]);
	}
	if (IS_ERR_OR_NULL(c->qp[0]))
		return;
	if (!IS_ERR_OR_NULL(c->pool))
		ib_memreg_pool_abort(c->pool, c->qp[0]);
	for (i = 0; i < c->depth; i++)
		if (c->ios[i].mr)
			client_mr_unmap(&c->ios[i]);
	if (!c->memreg)
		ib_mr_pool_destroy(c->qp[0], &c->mrs);
}

/*
 * All together
 */

static int client_create_mrs(struct client *c, unsigned int count)
{
	const struct ib_memreg_pool_attr attr = {
		.name = "client", .count = count, .max_count = c->depth * 2,
		.max_pages = CLIENT_PAGES, .numa_node = NUMA_NO_NODE,
		.available = client_available, .context = c,
	};

	if (!c->memreg)
		return ib_mr_pool_init(c->qp[0], &c->mrs, c->depth,
				       IB_MR_TYPE_MEM_REG, CLIENT_PAGES, 0);
	c->pool = ib_memreg_pool_create(c->pd, &attr);
	return PTR_ERR_OR_ZERO(c->pool);
}

static int client_create_buffers(struct client *c)
{
	struct ib_device *ibdev = c->pd->device;
	size_t length = c->depth * sizeof(*c->bufs);

	c->bufs = kzalloc(length, GFP_KERNEL);
	c->page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!c->bufs || !c->page)
		return -ENOMEM;
	c->dma = ib_dma_map_single(ibdev, c->bufs, length, DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(ibdev, c->dma)) {
		c->dma = 0;
		return -ENOMEM;
	}
	c->from = ib_dma_map_page(ibdev, c->page, 0, PAGE_SIZE, DMA_TO_DEVICE);
	if (ib_dma_mapping_error(ibdev, c->from)) {
		c->from = 0;
		return -ENOMEM;
	}
	return 0;
}

static int client_create_io(struct client *c, unsigned int i)
{
	struct client_io *io = &c->ios[i];
	struct page *page = alloc_page(GFP_KERNEL);

	if (!page)
		return -ENOMEM;
	io->client = c;
	io->reg_cqe.done = client_reg_done;
	io->send_cqe.done = client_send_done;
	io->recv_cqe.done = client_recv_done;
	io->server_recv.done = server_recv_done;
	io->server_send.done = server_send_done;
	sg_init_table(&io->sg, 1);
	sg_set_page(&io->sg, page, PAGE_SIZE, 0);
	if (c->memreg)
		ib_memreg_req_init(&io->req, c->pool, NULL, &client_req_ops);
	return client_post_recv(c, 0, client_addr(c, i, answered), sizeof(u32),
				&io->recv_cqe) ?:
	       client_post_recv(c, 1, client_addr(c, i, got),
				sizeof(struct client_msg), &io->server_recv);
}

static void client_destroy(struct client *c)
{
	struct ib_device *ibdev = c->pd->device;
	unsigned int i, end;

	client_disconnect(c);
	for (end = 0; end < 2; end++) {
		if (!IS_ERR_OR_NULL(c->qp[end]))
			ib_destroy_qp(c->qp[end]);
		if (!IS_ERR_OR_NULL(c->cq[end]))
			ib_free_cq(c->cq[end]);
	}
	for (i = 0; i < c->depth && c->ios[i].client; i++) {
		if (c->memreg)
			ib_memreg_req_unmap(&c->ios[i].req);
		__free_page(sg_page(&c->ios[i].sg));
	}
	if (!IS_ERR_OR_NULL(c->pool))
		ib_memreg_pool_destroy(c->pool);
	if (c->dma)
		ib_dma_unmap_single(ibdev, c->dma, c->depth * sizeof(*c->bufs),
				    DMA_BIDIRECTIONAL);
	if (c->from)
		ib_dma_unmap_page(ibdev, c->from, PAGE_SIZE, DMA_TO_DEVICE);
	if (c->page)
		__free_page(c->page);
	kfree(c->bufs);
	kvfree(c);
}

static int client_create(struct client *c, unsigned int count)
{
	unsigned int i;
	int ret;

	init_waitqueue_head(&c->wait);
	INIT_LIST_HEAD(&c->mrs);
	ret = client_connect(c) ?: client_create_mrs(c, count) ?:
	      client_create_buffers(c);
	for (i = 0; i < c->depth && !ret; i++)
		ret = client_create_io(c, i);
	return ret;
}

static struct client *client_new(struct ib_pd *pd, bool memreg,
				 unsigned int depth)
{
	struct client *c = kvzalloc(sizeof(*c), GFP_KERNEL);

	if (!c)
		return NULL;
	c->pd = pd;
	c->memreg = memreg;
	c->depth = depth;
	return c;
}

/**
 * memreg_bench_client() - Measure a client in the kernel
 * @pd: Protection domain
 * @memreg: With memreg, and not with code of its own
 * @depth: I/Os at a time, up to 64
 * @ios: I/Os
 * @count: MRs that memreg's pool begins with; it may grow to 2 @depth
 * @cost: Set
 *
 * Return: 0 or a negative errno.
 */
int memreg_bench_client(struct ib_pd *pd, bool memreg, unsigned int depth,
			unsigned int ios, unsigned int count,
			struct memreg_bench_cost *cost)
{
	struct client *c;
	int ret;

	if (depth > CLIENT_DEPTH || count > 2 * depth)
		return -EINVAL;
	c = client_new(pd, memreg, depth);
	if (!c)
		return -ENOMEM;
	ret = client_create(c, count);
	if (!ret) {
		memreg_bench_begin(cost);
		ret = client_run(c, ios);
		memreg_bench_end(cost);
	}
	client_destroy(c);
	return ret;
}

/*
 * Kills
 */

#define CLIENT_KILLS	8	/* requests of a connection */
#define CLIENT_PATTERN	0x5a

/* The memory is the caller's when it has waited. */
static void client_kill(struct work_struct *work)
{
	struct client *c = container_of(work, struct client, kill);
	unsigned int i;

	for (i = 0; i < c->depth; i++) {
		struct client_io *io = &c->ios[i];

		c->killed += ib_memreg_req_end(&io->req, c->qp[0]);
		ib_memreg_req_wait(&io->req);
		memset(sg_virt(&io->sg), CLIENT_PATTERN, io->sg.length);
	}
}

/* What the server writes to all pages while requests end in three ways. */
static int client_race(struct client *c)
{
	unsigned int i;
	int ret = 0;

	INIT_WORK(&c->kill, client_kill);
	for (i = 0; i < c->depth && !ret; i++)
		ret = client_begin(c, i);
	if (!ret) {
		queue_work(system_unbound_wq, &c->kill);
		udelay(get_random_u32_below(500));
	}
	client_disconnect(c);
	flush_work(&c->kill);
	for (i = 0; i < c->depth && !ret; i++)
		if (memchr_inv(sg_virt(&c->ios[i].sg), CLIENT_PATTERN,
			       c->ios[i].sg.length))
			ret = -EBADMSG;
	return ret;
}

/**
 * memreg_bench_race() - End requests from several sides at once
 * @pd: Protection domain
 * @rounds: Connections, of 8 requests each
 * @killed: Set to the number of requests that a caller that was killed has ended
 *
 * The server answers them, a caller that is killed ends them, and the
 * connection ends.
 *
 * Return: 0; -EBADMSG if memory was written after it was the caller's; or
 * another negative errno.
 */
int memreg_bench_race(struct ib_pd *pd, unsigned int rounds,
		      unsigned int *killed)
{
	struct client *c;
	int ret = 0;

	*killed = 0;
	for (; rounds && !ret; rounds--) {
		c = client_new(pd, true, CLIENT_KILLS);
		if (!c)
			return -ENOMEM;
		ret = client_create(c, CLIENT_KILLS) ?: client_race(c);
		*killed += c->killed;
		client_destroy(c);
		cond_resched();
	}
	return ret;
}
