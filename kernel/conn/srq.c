// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shared receive queues: a queue of buffers for many endpoints of a domain.
 *
 * A posted receive belongs to no endpoint until a message takes it, so all
 * completions go to one ring, which the queue names. A device may lose a buffer
 * that it had taken when a connection broke; the lost receive is flushed when
 * the queue is destroyed, after the device's own queue is.
 */
#include <linux/slab.h>

#include "conn/complete.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/srq.h"
#include "core.h"
#include "device.h"
#include "keys/domain.h"

static int memreg_srq_check(struct memreg_ucmd *ucmd)
{
	const struct ib_device_attr *attrs = &ucmd->mdev->ibdev->attrs;
	struct ib_memreg_srq_create *cmd = ucmd->cmd;

	if (cmd->flags & ~IB_MEMREG_QUEUES_NO_INLINE_RECEIVE)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (!attrs->max_srq)
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_NO_QUEUE);
	if (!cmd->max_recv || cmd->max_recv > IB_MEMREG_QUEUE_MAX ||
	    cmd->max_recv > attrs->max_srq_wr)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	if (!cmd->max_recv_sge || cmd->max_recv_sge > IB_MEMREG_SGE_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SGES);
	return 0;
}

static int memreg_srq_make_queue(struct memreg_ucmd *ucmd,
				 struct memreg_srq *srq)
{
	struct ib_memreg_srq_create *cmd = ucmd->cmd;
	struct memreg_kring *ring;
	u32 buffer = 0;

	ring = memreg_ring_get(ucmd, cmd->ring_id);
	if (IS_ERR(ring))
		return PTR_ERR(ring);
	if (!(cmd->flags & IB_MEMREG_QUEUES_NO_INLINE_RECEIVE))
		buffer = memreg_ring_data_size(ring);
	srq->queue = memreg_queue_alloc(ucmd->mdev, ring, NULL, false,
					cmd->max_recv, cmd->max_recv_sge,
					buffer);
	if (srq->queue)
		return 0;
	memreg_ring_put(ring);
	return -ENOMEM;
}

static int memreg_srq_make(struct memreg_ucmd *ucmd, struct memreg_srq *srq)
{
	struct ib_memreg_srq_create *cmd = ucmd->cmd;
	struct ib_srq_init_attr attr = {
		.srq_type = IB_SRQT_BASIC,
		.attr = {
			.max_wr = cmd->max_recv,
			.max_sge = memreg_srq_fragments(ucmd->mdev),
		},
	};
	struct ib_srq *ibsrq;
	int ret;

	ret = memreg_charge(&srq->charge, ucmd->mdev, false);
	if (ret)
		return memreg_charge_reason(ucmd, ret);
	ret = memreg_srq_make_queue(ucmd, srq);
	if (ret)
		goto err_uncharge;
	ibsrq = ib_create_srq(srq->domain->pd, &attr);
	if (IS_ERR(ibsrq)) {
		ret = PTR_ERR(ibsrq) == -ENOMEM ? -ENOMEM : -ENOSPC;
		goto err_queue;
	}
	srq->queue->srq = ibsrq;
	srq->queue->ready = true;
	return 0;

err_queue:
	memreg_queue_free(ucmd->mdev, srq->queue);
err_uncharge:
	memreg_uncharge(&srq->charge, ucmd->mdev);
	return ret;
}

/* Release the parts of a shared receive queue, except its domain. */
static void memreg_srq_unmake(struct memreg_kdevice *mdev,
			      struct memreg_srq *srq)
{
	memreg_queue_close(srq->queue);
	ib_destroy_srq(srq->queue->srq);
	/* All receives that the device took have completed, or never will. */
	memreg_queue_flush_early(srq->queue);
	memreg_ring_flush(srq->queue->ring);
	memreg_queue_abandon(srq->queue);
	memreg_queue_free(mdev, srq->queue);
	memreg_uncharge(&srq->charge, mdev);
}

/* ioctl(IB_MEMREG_IOC_SRQ_CREATE) */
int memreg_srq_create_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_srq_create *cmd = ucmd->cmd;
	struct memreg_domain *domain;
	struct memreg_srq *srq;
	int ret;

	ret = memreg_srq_check(ucmd);
	if (ret)
		return ret;
	domain = memreg_domain_get(ucmd, cmd->domain_id);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	srq = kzalloc(sizeof(*srq), GFP_KERNEL_ACCOUNT);
	if (!srq) {
		ret = -ENOMEM;
		goto err_domain;
	}
	srq->domain = domain;
	ret = memreg_srq_make(ucmd, srq);
	if (ret)
		goto err_free;
	ret = memreg_object_alloc(ucmd->file, &srq->obj, &memreg_srq_ops);
	if (ret)
		goto err_unmake;
	memreg_object_made(ucmd, &srq->obj);
	cmd->out_srq_id = srq->obj.id;
	return memreg_respond(ucmd, sizeof(*cmd));

err_unmake:
	memreg_srq_unmake(ucmd->mdev, srq);
err_free:
	kfree(srq);
err_domain:
	memreg_domain_put(domain);
	return ret;
}

static void memreg_srq_destroy(struct memreg_file *file,
			       struct memreg_object *obj)
{
	struct memreg_srq *srq = container_of(obj, struct memreg_srq, obj);

	memreg_srq_unmake(file->mdev, srq);
	memreg_domain_put(srq->domain);
	kfree(srq);
}

static void memreg_srq_info(struct memreg_object *obj,
			    struct ib_memreg_object *info)
{
	struct memreg_srq *srq = container_of(obj, struct memreg_srq, obj);

	info->domain_id = srq->domain->obj.id;
	info->u.srq.ring_id = srq->queue->ring->obj.id;
	info->u.srq.posted = atomic_read(&srq->queue->posted);
}

const struct memreg_object_ops memreg_srq_ops = {
	.type = IB_MEMREG_OBJECT_SRQ,
	.destroy = memreg_srq_destroy,
	.info = memreg_srq_info,
};
