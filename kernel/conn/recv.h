/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Submission of receives.
 */
#ifndef _MEMREG_CONN_RECV_H
#define _MEMREG_CONN_RECV_H

#include <linux/types.h>

struct memreg_domain;
struct memreg_queue;
struct memreg_sub;

int memreg_recvs_submit(struct memreg_sub *sub, struct memreg_queue *queue,
			struct memreg_domain *domain, u32 max, u32 from, u32 to,
			u32 *taken);
int memreg_submit_to_srq(struct memreg_sub *sub, u32 id, u32 from, u32 to,
			 u32 *taken);

#endif /* _MEMREG_CONN_RECV_H */
