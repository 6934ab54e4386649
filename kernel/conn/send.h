/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Submission to send queues.
 */
#ifndef _MEMREG_CONN_SEND_H
#define _MEMREG_CONN_SEND_H

#include <linux/types.h>

struct memreg_endpoint;
struct memreg_sub;

bool memreg_endpoint_queued(const struct memreg_endpoint *ep);
int memreg_submit_sends(struct memreg_sub *sub, struct memreg_endpoint *ep,
			u32 from, u32 to, u32 *taken);

#endif /* _MEMREG_CONN_SEND_H */
