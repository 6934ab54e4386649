// SPDX-License-Identifier: GPL-2.0-only
/*
 * Remote procedure calls with <rdma/memreg_pool.h>, in the manner of NFS/RDMA:
 * each call has a list of pages that the server reads and one that it writes,
 * and all calls are on their way at once. The server is to write what it has
 * read with all bits inverted, and to answer with the number of the call.
 *
 *	insmod ib_memreg_rpc.ko server=192.0.2.2 port=7471 calls=8
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "conn.h"

#define RPC_PAGES	3	/* of each list */
#define RPC_MRS		2	/* of each list: an MR takes two pages */

static char *server = "", *port = "7471";
static unsigned int calls = 8;
module_param(server, charp, 0400);
module_param(port, charp, 0400);
module_param(calls, uint, 0400);

struct rpc_call {
	struct {
		__be32 xid;
		__be32 reads;	/* the first segments; the others are written */
		struct ib_memreg_seg segs[2 * RPC_MRS];
	} message;
	__be32 answer __aligned(ARCH_DMA_MINALIGN);
	/* The device does not reach what follows. */
	u64 dma __aligned(ARCH_DMA_MINALIGN);
	struct page *pages[2 * RPC_PAGES];
	struct ib_memreg_req req;
	struct ib_cqe send_cqe, recv_cqe;
	bool sent, answered, done;
} __aligned(ARCH_DMA_MINALIGN);

#define RPC_ANSWER	offsetof(struct rpc_call, answer)
#define RPC_DMA		offsetof(struct rpc_call, dma)

static struct sample_conn rpc_conn;
static struct rpc_call *rpc_calls;
static atomic_t rpc_seen;	/* times that MRs became available */

static void rpc_available(void *context)
{
	atomic_inc(&rpc_seen);
	wake_up_all(&rpc_conn.wait);
}

/* The pages are the caller's again. */
static void rpc_done(struct ib_memreg_req *req, int status)
{
	/* Pairs with rpc_is_over(). */
	smp_store_release(&container_of(req, struct rpc_call, req)->done, true);
	wake_up_all(&rpc_conn.wait);
}

static const struct ib_memreg_req_ops rpc_ops = { .done = rpc_done };

/* The message is the caller's again. */
static void rpc_send_done(struct ib_cq *cq, struct ib_wc *wc)
{
	/* Pairs with rpc_is_over(). */
	smp_store_release(&container_of(wc->wr_cqe, struct rpc_call,
					send_cqe)->sent, true);
	wake_up_all(&rpc_conn.wait);
}

/* Whichever receive it came to, the answer says whose it is. */
static void rpc_recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rpc_call *call = container_of(wc->wr_cqe, struct rpc_call,
					     recv_cqe);
	u32 xid;

	if (wc->status != IB_WC_SUCCESS || wc->byte_len != sizeof(call->answer))
		return sample_lost(&rpc_conn);
	ib_dma_sync_single_for_cpu(cq->device, call->dma + RPC_ANSWER,
				   sizeof(call->answer), DMA_BIDIRECTIONAL);
	xid = be32_to_cpu(call->answer);
	call = &rpc_calls[xid];
	if (xid >= calls || ib_memreg_req_answered(&call->req, wc))
		return sample_lost(&rpc_conn);
	call->answered = true;
	ib_memreg_req_end(&call->req, rpc_conn.id->qp);
}

/* Map both lists. If one is refused, neither is mapped. */
static int rpc_map(struct rpc_call *call)
{
	struct page **page = call->pages;
	unsigned int list, i;
	int ret = 0;

	for (list = 0; list < 2 && !ret; list++) {
		call->message.reads = cpu_to_be32(call->req.nr_mrs);
		ret = ib_memreg_req_begin(&call->req, RPC_MRS, list ?
					  DMA_FROM_DEVICE : DMA_TO_DEVICE);
		for (i = 0; i < RPC_PAGES && !ret; i++)
			ret = ib_memreg_req_add(&call->req, *page++, 0,
						PAGE_SIZE);
		ret = ret ?: ib_memreg_req_commit(&call->req);
	}
	return ret;
}

static int rpc_send(struct rpc_call *call)
{
	struct ib_sge sge = {
		.addr = call->dma, .length = sizeof(call->message),
		.lkey = rpc_conn.pd->local_dma_lkey,
	};
	struct ib_send_wr send = {
		.wr_cqe = &call->send_cqe, .send_flags = IB_SEND_SIGNALED,
		.opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1,
	};
	int ret, seen;

	do {	/* MRs may become available before the refusal returns. */
		seen = atomic_read(&rpc_seen);
		ret = rpc_map(call);
	} while (ret == -EAGAIN &&
		 wait_event_timeout(rpc_conn.wait,
				    atomic_read(&rpc_seen) != seen,
				    SAMPLE_LIMIT));
	if (ret)
		return ret;
	ib_memreg_req_segs(&call->req, call->message.segs, 2 * RPC_MRS);
	ib_dma_sync_single_for_device(rpc_conn.id->device, call->dma,
				      sizeof(call->message), DMA_BIDIRECTIONAL);
	return ib_memreg_req_post_wrs(&call->req, rpc_conn.id->qp, &send, NULL,
				      IB_MEMREG_REQ_REMOTE_INV);
}

/* Does the device need nothing of a call any more? */
static bool rpc_is_over(const struct rpc_call *call)
{
	/* Pairs with rpc_done() and rpc_send_done(). */
	return smp_load_acquire(&call->done) && smp_load_acquire(&call->sent);
}

static int rpc_finish(struct rpc_call *call)
{
	u8 want = ~(call - rpc_calls);
	unsigned int i;

	if (!wait_event_timeout(rpc_conn.wait, rpc_is_over(call) ||
				READ_ONCE(rpc_conn.lost), SAMPLE_LIMIT))
		return -ETIMEDOUT;
	if (!rpc_is_over(call) || !call->answered)
		return -ECONNABORTED;
	for (i = RPC_PAGES; i < 2 * RPC_PAGES; i++)
		if (memchr_inv(page_address(call->pages[i]), want, PAGE_SIZE))
			return -EBADMSG;
	return 0;
}

static int rpc_alloc(struct rpc_call *call, u32 xid)
{
	unsigned int i;

	call->send_cqe.done = rpc_send_done;
	call->recv_cqe.done = rpc_recv_done;
	call->message.xid = cpu_to_be32(xid);
	ib_memreg_req_init(&call->req, rpc_conn.pool, NULL, &rpc_ops);
	call->req.cookie = xid;
	call->req.iova_high = xid;
	for (i = 0; i < 2 * RPC_PAGES; i++) {
		call->pages[i] = alloc_page(GFP_KERNEL);
		if (!call->pages[i])
			return -ENOMEM;
		memset(page_address(call->pages[i]), xid, PAGE_SIZE);
	}
	call->dma = ib_dma_map_single(rpc_conn.id->device, call, RPC_DMA,
				      DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(rpc_conn.id->device, call->dma)) {
		call->dma = 0;
		return -ENOMEM;
	}
	return sample_post_recv(&rpc_conn, &call->recv_cqe,
				call->dma + RPC_ANSWER, sizeof(call->answer));
}

static void rpc_free(struct rpc_call *call)
{
	unsigned int i;

	if (call->pages[0])
		ib_memreg_req_unmap(&call->req);
	if (call->dma)
		ib_dma_unmap_single(rpc_conn.id->device, call->dma, RPC_DMA,
				    DMA_BIDIRECTIONAL);
	for (i = 0; i < 2 * RPC_PAGES && call->pages[i]; i++)
		__free_page(call->pages[i]);
}

static int rpc_exchange(void)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < calls && !ret; i++)
		ret = rpc_alloc(&rpc_calls[i], i);
	ret = ret ?: sample_connect(&rpc_conn);
	if (ret)
		return ret;
	for (i = 0; i < calls && !ret; i++)
		ret = rpc_send(&rpc_calls[i]);
	for (i = 0; i < calls && !ret; i++)
		ret = rpc_finish(&rpc_calls[i]);
	sample_disconnect(&rpc_conn);
	return ret;
}

/* The pool begins with a single MR. */
static int __init rpc_init(void)
{
	const struct ib_memreg_pool_attr pool = {
		.name = "rpc", .count = 1, .max_count = 2 * RPC_MRS * calls,
		.max_pages = 2, .numa_node = NUMA_NO_NODE,
		.available = rpc_available,
	};
	unsigned int i;
	int ret;

	rpc_calls = kcalloc(calls, sizeof(*rpc_calls), GFP_KERNEL);
	if (!rpc_calls)
		return -ENOMEM;
	ret = sample_open(&rpc_conn, server, port, &pool, calls, 2 * RPC_MRS);
	ret = ret ?: rpc_exchange();
	for (i = 0; i < calls; i++)
		rpc_free(&rpc_calls[i]);
	sample_close(&rpc_conn);
	kfree(rpc_calls);
	return ret;
}
module_init(rpc_init);
static void __exit rpc_exit(void) { }
module_exit(rpc_exit);
MODULE_INFO(import_ns, "IB_MEMREG");
MODULE_DESCRIPTION("Remote procedure calls with ib_memreg's kernel API");
MODULE_LICENSE("GPL");
