// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device in software whose MRs list any bytes, for KUnit tests.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "keys/domain.h"
#include "tests/kunit_sw.h"

struct memreg_sw_pd {
	struct ib_pd ibpd;
};

static struct memreg_sw *to_sw(struct ib_device *ibdev)
{
	return container_of(ibdev, struct memreg_sw, ibdev);
}

static struct memreg_sw_mr *to_sw_mr(struct ib_mr *mr)
{
	return container_of(mr, struct memreg_sw_mr, ibmr);
}

static int memreg_sw_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int memreg_sw_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static struct ib_mr *memreg_sw_alloc_mr(struct ib_pd *pd, enum ib_mr_type type,
					u32 max)
{
	struct memreg_sw *sw = to_sw(pd->device);
	struct memreg_sw_mr *mr;

	if (max > MEMREG_SW_ENTRIES)
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->max = max;
	spin_lock_irq(&sw->lock);
	if (!sw->room) {
		spin_unlock_irq(&sw->lock);
		kfree(mr);
		return ERR_PTR(-EMFILE);
	}
	sw->room--;
	sw->gaps += type == IB_MR_TYPE_SG_GAPS;
	sw->next_key += 0x100;
	mr->ibmr.rkey = sw->next_key;
	mr->ibmr.lkey = sw->next_key;
	list_add(&mr->node, &sw->mrs);
	spin_unlock_irq(&sw->lock);
	return &mr->ibmr;
}

static int memreg_sw_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct memreg_sw *sw = to_sw(ibmr->device);
	struct memreg_sw_mr *mr = to_sw_mr(ibmr);

	if (sw->dereg_err)
		return sw->dereg_err;
	spin_lock_irq(&sw->lock);
	list_del(&mr->node);
	spin_unlock_irq(&sw->lock);
	kfree(mr);
	return 0;
}

static int memreg_sw_set_page(struct ib_mr *ibmr, u64 addr)
{
	struct memreg_sw_mr *mr = to_sw_mr(ibmr);

	if (mr->nr == mr->max)
		return -ENOMEM;
	mr->bytes[mr->nr] = ibmr->page_size;
	mr->addr[mr->nr++] = addr;
	return 0;
}

static int memreg_sw_map_gaps(struct memreg_sw_mr *mr, struct scatterlist *sgl,
			      int nents)
{
	struct scatterlist *sg;
	int i;

	mr->ibmr.iova = sg_dma_address(sgl);
	mr->ibmr.length = 0;
	for_each_sg(sgl, sg, nents, i) {
		if (mr->nr == mr->max)
			return i;
		mr->addr[mr->nr] = sg_dma_address(sg);
		mr->bytes[mr->nr++] = sg_dma_len(sg);
		mr->ibmr.length += sg_dma_len(sg);
	}
	return nents;
}

static int memreg_sw_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sgl,
			       int nents, unsigned int *offset)
{
	struct memreg_sw_mr *mr = to_sw_mr(ibmr);

	mr->nr = 0;
	if (ibmr->type == IB_MR_TYPE_SG_GAPS)
		return memreg_sw_map_gaps(mr, sgl, nents);
	return ib_sg_to_pages(ibmr, sgl, nents, offset, memreg_sw_set_page);
}

static struct memreg_sw_mr *memreg_sw_find(struct memreg_sw *sw, u32 key)
{
	struct memreg_sw_mr *mr;

	lockdep_assert_held(&sw->lock);

	list_for_each_entry(mr, &sw->mrs, node)
		if (mr->valid && mr->key == key)
			return mr;
	return NULL;
}

static void memreg_sw_execute(struct memreg_sw *sw, const struct ib_send_wr *wr)
{
	struct memreg_sw_mr *mr;

	if (wr->opcode == IB_WR_REG_MR) {
		mr = to_sw_mr(reg_wr(wr)->mr);
		mr->key = reg_wr(wr)->key;
		mr->valid = true;
		return;
	}
	mr = memreg_sw_find(sw, wr->ex.invalidate_rkey);
	if (mr)
		mr->valid = false;
}

static int memreg_sw_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			       const struct ib_send_wr **bad)
{
	struct memreg_sw *sw = to_sw(qp->device);
	unsigned long flags;

	spin_lock_irqsave(&sw->lock, flags);
	for (; wr; wr = wr->next) {
		memreg_sw_execute(sw, wr);
		if (wr->send_flags & IB_SEND_SIGNALED)
			sw->cqes[sw->made++ % MEMREG_SW_COMPLETIONS] =
				wr->wr_cqe;
	}
	spin_unlock_irqrestore(&sw->lock, flags);
	irq_work_queue(&sw->domain->irq);
	return 0;
}

static int memreg_sw_poll_cq(struct ib_cq *cq, int count, struct ib_wc *wc)
{
	struct memreg_sw *sw = to_sw(cq->device);
	unsigned long flags;
	int n = 0;

	spin_lock_irqsave(&sw->lock, flags);
	for (; n < count && sw->taken != sw->made && !sw->held; n++)
		wc[n] = (struct ib_wc) {
			.status = IB_WC_SUCCESS,
			.qp = &sw->qp,
			.wr_cqe = sw->cqes[sw->taken++ %
					   MEMREG_SW_COMPLETIONS],
		};
	spin_unlock_irqrestore(&sw->lock, flags);
	return n;
}

/* Each post has an event of its own. */
static int memreg_sw_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags f)
{
	return 0;
}

const struct ib_device_ops memreg_sw_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.alloc_pd = memreg_sw_alloc_pd,
	.dealloc_pd = memreg_sw_dealloc_pd,
	.alloc_mr = memreg_sw_alloc_mr,
	.dereg_mr = memreg_sw_dereg_mr,
	.map_mr_sg = memreg_sw_map_mr_sg,
	.post_send = memreg_sw_post_send,
	.poll_cq = memreg_sw_poll_cq,
	.req_notify_cq = memreg_sw_req_notify_cq,
	INIT_RDMA_OBJ_SIZE(ib_pd, memreg_sw_pd, ibpd),
};

/* Copy between a buffer and the entries of an MR, from a byte of them on. */
static void memreg_sw_copy(const struct memreg_sw_mr *mr, u64 skip, u8 *data,
			   u64 length, bool write)
{
	u32 i;

	for (i = 0; length; i++) {
		u64 n = min(mr->bytes[i] - min_t(u64, skip, mr->bytes[i]),
			    length);
		u8 *at = (u8 *)(uintptr_t)mr->addr[i] + skip;

		if (write)
			memcpy(at, data, n);
		else
			memcpy(data, at, n);
		skip -= min_t(u64, skip, mr->bytes[i]);
		data += n;
		length -= n;
	}
}

/*
 * Emulates accesses of a peer by a key. Pages may begin before the first byte
 * of a key.
 */
int memreg_sw_access(struct memreg_sw *sw, u32 key, u64 iova, u8 *data,
		     u64 length, bool write)
{
	struct memreg_sw_mr *mr;
	u64 skip;
	int ret = -EACCES;

	spin_lock_irq(&sw->lock);
	mr = memreg_sw_find(sw, key);
	if (mr && iova >= mr->ibmr.iova && length <= mr->ibmr.length &&
	    iova - mr->ibmr.iova <= mr->ibmr.length - length) {
		skip = iova - mr->ibmr.iova;
		if (mr->ibmr.type != IB_MR_TYPE_SG_GAPS)
			skip += mr->ibmr.iova & (mr->ibmr.page_size - 1);
		memreg_sw_copy(mr, skip, data, length, write);
		ret = 0;
	}
	spin_unlock_irq(&sw->lock);
	return ret;
}
