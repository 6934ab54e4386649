/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The end of a connection, in stages.
 */
#ifndef _MEMREG_CONN_CLOSING_H
#define _MEMREG_CONN_CLOSING_H

struct memreg_endpoint;

void memreg_closing_begin(struct memreg_endpoint *ep);
void memreg_closing_await(struct memreg_endpoint *ep);
void memreg_closing_finish(struct memreg_endpoint *ep);

#endif /* _MEMREG_CONN_CLOSING_H */
