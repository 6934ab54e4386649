/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The end of a connection, in stages.
 */
#ifndef _MEMREG_CONN_TEARDOWN_H
#define _MEMREG_CONN_TEARDOWN_H

struct memreg_endpoint;

void memreg_teardown_begin(struct memreg_endpoint *ep);
void memreg_teardown_await(struct memreg_endpoint *ep);
void memreg_teardown_finish(struct memreg_endpoint *ep);

#endif /* _MEMREG_CONN_TEARDOWN_H */
