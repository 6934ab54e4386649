/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared receive queues: a queue of buffers for many endpoints of a domain. */
#ifndef _MEMREG_CONN_SRQ_H
#define _MEMREG_CONN_SRQ_H

#include "conn/queue.h"
#include "core.h"
#include "device.h"

struct memreg_domain;

/**
 * struct memreg_srq - A shared receive queue
 * @obj: Head
 * @domain: Its domain; holds a reference
 * @queue: The posted receives
 * @charge: SRQ in the rdma cgroup
 */
struct memreg_srq {
	struct memreg_object obj;
	struct memreg_domain *domain;
	struct memreg_queue *queue;
	struct memreg_charge charge;
};

/* SGEs that the device takes in a receive of a shared queue. */
static inline u32 memreg_srq_fragments(struct memreg_kdevice *mdev)
{
	return min_t(u32, memreg_fragments(mdev),
		     mdev->ibdev->attrs.max_srq_sge);
}

int memreg_srq_create_ioctl(struct memreg_ucmd *ucmd);
extern const struct memreg_object_ops memreg_srq_ops;

#endif /* _MEMREG_CONN_SRQ_H */
