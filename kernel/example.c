// SPDX-License-Identifier: GPL-2.0-only
/*
 * A client that reads blocks from a server, which writes them to its memory and
 * answers with SEND_WITH_INV.
 */
#include "example.h"

/* The memory is ours again. If there was no answer, @status still says so. */
static void example_read_done(struct ib_memreg_req *req, int status)
{
	struct example_read *read = container_of(req, struct example_read, req);

	complete(&read->done);
}

/* Somebody who may sleep is to call example_disconnect(). */
static void example_lost(struct example_client *client)
{
	WRITE_ONCE(client->lost, true);
}

static void example_read_error(struct ib_memreg_req *req,
			       const struct ib_wc *wc)
{
	struct example_read *read = container_of(req, struct example_read, req);

	example_lost(read->client);
}

static const struct ib_memreg_req_ops example_read_ops = {
	.done = example_read_done,
	.error = example_read_error,
};

/* Once. */
void example_read_init(struct example_read *read, struct example_client *client)
{
	read->client = client;
	init_completion(&read->done);
	ib_memreg_req_init(&read->req, client->pool, client->reserve,
			   &example_read_ops);
}

static int example_read_post(struct example_read *read)
{
	struct example_client *client = read->client;
	struct ib_send_wr send = {
		.opcode = IB_WR_SEND,
		.sg_list = &read->sge,
		.num_sge = 1,
	};
	int ret;

	/* Nobody would abort what is posted after the drain. */
	spin_lock_bh(&client->lock);
	ret = client->closing ? -ESHUTDOWN :
	      ib_memreg_req_post(&read->req, client->qp, &send,
				 IB_MEMREG_REQ_REMOTE_INV);
	spin_unlock_bh(&client->lock);
	return ret;
}

/* -EAGAIN: again after a while, even if no other one is on its way. */
int example_read_send(struct example_read *read, struct scatterlist *sgl,
		      int nents)
{
	struct example_message *message = read->message;
	struct ib_device *device = read->client->qp->device;
	int ret;

	read->status = -ECONNABORTED;
	ret = ib_memreg_req_map_sg(&read->req, sgl, nents, EXAMPLE_MRS,
				   DMA_FROM_DEVICE);
	if (ret)
		return ret;
	message->nr_segs = ib_memreg_req_segs(&read->req, message->segs,
					      EXAMPLE_MRS);
	ib_dma_sync_single_for_device(device, read->sge.addr, read->sge.length,
				      DMA_TO_DEVICE);
	ret = example_read_post(read);
	if (ret)
		example_lost(read->client);
	if (ret == -ENOTCONN)
		return 0;	/* it is aborted with all others */
	if (ret)
		ib_memreg_req_unmap(&read->req);
	return ret;
}

/* In softirq context; whatever the server says, it is for one that waits. */
void example_answered(struct example_client *client, const struct ib_wc *wc,
		      const struct example_answer *answer)
{
	struct example_read *read;

	if (answer->read >= EXAMPLE_READS) {
		example_lost(client);
		return;
	}
	read = &client->reads[answer->read];
	if (ib_memreg_req_answered(&read->req, wc)) {
		example_lost(client);	/* it is aborted then */
		return;
	}
	read->status = answer->status;
	ib_memreg_req_end(&read->req, client->qp);
}

/* May sleep. What was not answered is aborted. Reads may be done only after it
 * has returned: who gives back what they use waits for each that was sent.
 */
void example_disconnect(struct example_client *client)
{
	struct example_read *read;

	spin_lock_bh(&client->lock);
	client->closing = true;
	spin_unlock_bh(&client->lock);
	/* In this order: an answer that is taken posts. */
	ib_drain_rq(client->qp);
	ib_drain_sq(client->qp);
	for (read = client->reads; read < client->reads + EXAMPLE_READS; read++)
		ib_memreg_req_abort(&read->req);
}
