/* SPDX-License-Identifier: GPL-2.0-only */
/* What the modules add to the RDMA CM. */
#ifndef _MEMREG_CM_H
#define _MEMREG_CM_H

#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/**
 * memreg_cm_destroy_qp() - Destroy the QP of an RDMA CM id
 * @id: The id, of which no other call of this module is using the QP
 *
 * rdma_destroy_qp() holds a mutex that the handlers of the RDMA CM, which are
 * in line for all users, take to change the QP's state. But ib_destroy_qp()
 * waits for tasks that list the QP by netlink, however little CPU time these
 * get. So take the QP from the id first. The RDMA CM looks at rdma_cm_id.qp in
 * its handlers, and in calls.
 *
 * Context: may sleep; the caller does not hold the id's handler_mutex.
 */
static inline void memreg_cm_destroy_qp(struct rdma_cm_id *id)
{
	struct ib_qp *qp;

	rdma_lock_handler(id);
	qp = id->qp;
	id->qp = NULL;
	rdma_unlock_handler(id);
	ib_destroy_qp(qp);
}

#endif /* _MEMREG_CM_H */
