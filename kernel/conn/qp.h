/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queues of an endpoint, and its QP.
 */
#ifndef _MEMREG_CONN_QP_H
#define _MEMREG_CONN_QP_H

struct ib_memreg_queues;
struct memreg_domain;
struct memreg_endpoint;
struct memreg_ucmd;

int memreg_queues_check(struct memreg_ucmd *ucmd,
			const struct ib_memreg_queues *q);
int memreg_queues_make(struct memreg_ucmd *ucmd, struct memreg_endpoint *ep,
		       const struct memreg_domain *domain,
		       const struct ib_memreg_queues *q);
void memreg_queues_free(struct memreg_endpoint *ep);
int memreg_queues_ready(struct memreg_endpoint *ep);
int memreg_endpoint_create_qp(struct memreg_endpoint *ep,
			      struct memreg_domain *domain);

#endif /* _MEMREG_CONN_QP_H */
