// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that a server may read at any time, with <rdma/memreg_pool.h>: it is
 * registered once, by a REG_MR that is posted alone, and its key works until
 * the module is removed, whatever messages are sent meanwhile.
 *
 *	insmod ib_memreg_shared.ko server=192.0.2.2 port=7471 text=hello
 *	rmmod ib_memreg_shared
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "conn.h"

static char *server = "", *port = "7471", *text = "";
module_param(server, charp, 0400);
module_param(port, charp, 0400);
module_param(text, charp, 0400);

static struct sample_conn shared_conn;
static struct ib_memreg_req shared_req;
static struct page *shared_page;	/* which the server reads */
static struct ib_memreg_seg *shared_seg; /* the message: what it may read */
static u64 shared_dma;			/* its address on the device */
static DEFINE_MUTEX(shared_lock);	/* the connection begins, or ends */
static struct ib_device *shared_device;	/* which it is on, or NULL */

/* Nobody is called at the end: the module waits for it. */
static const struct ib_memreg_req_ops shared_ops;

/* The key works as soon as the REG_MR has been executed. */
static int shared_register(void)
{
	ib_memreg_req_init(&shared_req, shared_conn.pool, NULL, &shared_ops);
	return ib_memreg_req_begin(&shared_req, 1, DMA_TO_DEVICE) ?:
	       ib_memreg_req_add(&shared_req, shared_page, 0, PAGE_SIZE) ?:
	       ib_memreg_req_commit(&shared_req) ?:
	       ib_memreg_req_post_wrs(&shared_req, shared_conn.id->qp, NULL,
				      NULL, 0);
}

static void shared_send_done(struct ib_cq *cq, struct ib_wc *wc)
{
	if (wc->status != IB_WC_SUCCESS)
		sample_lost(&shared_conn);
}

/* A message of its own, which the queue executes after the REG_MR. */
static int shared_send(void)
{
	static struct ib_cqe cqe = { .done = shared_send_done };
	struct ib_sge sge = {
		.addr = shared_dma, .length = sizeof(*shared_seg),
		.lkey = shared_conn.pd->local_dma_lkey,
	};
	struct ib_send_wr send = {
		.wr_cqe = &cqe, .opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
	};

	ib_memreg_req_segs(&shared_req, shared_seg, 1);
	ib_dma_sync_single_for_device(shared_conn.id->device, shared_dma,
				      sizeof(*shared_seg), DMA_TO_DEVICE);
	return ib_post_send(shared_conn.id->qp, &send, NULL);
}

static int shared_open(void)
{
	const struct ib_memreg_pool_attr pool = {
		.name = "shared", .count = 1, .numa_node = NUMA_NO_NODE,
	};
	int ret;

	shared_page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	shared_seg = kzalloc(sizeof(*shared_seg), GFP_KERNEL);
	if (!shared_page || !shared_seg)
		return -ENOMEM;
	strscpy(page_address(shared_page), text, PAGE_SIZE);
	ret = sample_open(&shared_conn, server, port, &pool, 1, 1);
	if (ret)
		return ret;
	shared_dma = ib_dma_map_single(shared_conn.id->device, shared_seg,
				       sizeof(*shared_seg), DMA_TO_DEVICE);
	if (ib_dma_mapping_error(shared_conn.id->device, shared_dma)) {
		shared_dma = 0;
		return -ENOMEM;
	}
	return sample_connect(&shared_conn);
}

static void shared_close(void)
{
	if (shared_dma)
		ib_dma_unmap_single(shared_conn.id->device, shared_dma,
				    sizeof(*shared_seg), DMA_TO_DEVICE);
	sample_close(&shared_conn);
	if (shared_page)
		__free_page(shared_page);
	kfree(shared_seg);
}

static int shared_begin(void)
{
	int ret = shared_open();

	if (!ret) {
		ret = shared_register() ?: shared_send();
		if (!ret) {
			shared_device = shared_conn.id->device;
			return 0;
		}
		sample_disconnect(&shared_conn);
		ib_memreg_req_unmap(&shared_req);
	}
	shared_close();
	return ret;
}

/*
 * The key dies by a LOCAL_INV if the connection is still up, and by the end of
 * the MR if not: in both cases nothing reads the page when it is freed.
 */
static void shared_end(void)
{
	ib_memreg_req_end(&shared_req, shared_conn.id->qp);
	ib_memreg_req_wait(&shared_req);
	sample_disconnect(&shared_conn);
	shared_close();
	shared_device = NULL;
}

/* A device goes: the RDMA core waits until nothing of ours is on it. */
static void shared_remove(struct ib_device *ibdev, void *client_data)
{
	mutex_lock(&shared_lock);
	if (shared_device == ibdev)
		shared_end();
	mutex_unlock(&shared_lock);
}

static struct ib_client shared_client = {
	.name = "ib_memreg_shared", .remove = shared_remove,
};

static int __init shared_init(void)
{
	int ret = ib_register_client(&shared_client);

	if (ret)
		return ret;
	mutex_lock(&shared_lock);
	ret = shared_begin();
	mutex_unlock(&shared_lock);
	if (ret)
		ib_unregister_client(&shared_client);
	return ret;
}
module_init(shared_init);

/* Removes the client from each device, which ends the connection. */
static void __exit shared_exit(void)
{
	ib_unregister_client(&shared_client);
}
module_exit(shared_exit);
MODULE_INFO(import_ns, "IB_MEMREG");
MODULE_DESCRIPTION("Memory that is registered once with ib_memreg's kernel API");
MODULE_LICENSE("GPL");
