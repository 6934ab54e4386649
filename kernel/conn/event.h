/* SPDX-License-Identifier: GPL-2.0-only */
/* States of endpoints, and the events that users read. */
#ifndef _MEMREG_CONN_EVENT_H
#define _MEMREG_CONN_EVENT_H

#include <linux/types.h>

struct iov_iter;
struct memreg_endpoint;
struct memreg_file;

ssize_t memreg_event_read(struct memreg_file *file, struct iov_iter *to);
void memreg_event_post(struct memreg_endpoint *ep, u32 type);
void memreg_event_link(struct memreg_endpoint *ep);
void memreg_endpoint_set_state(struct memreg_endpoint *ep, u32 state);
void memreg_endpoint_set_closed(struct memreg_endpoint *ep);
void memreg_endpoint_fail(struct memreg_endpoint *ep, u32 outcome, int status);

#endif /* _MEMREG_CONN_EVENT_H */
