/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connecting to a peer.
 */
#ifndef _MEMREG_CONN_CONNECT_H
#define _MEMREG_CONN_CONNECT_H

struct memreg_ucmd;

int memreg_endpoint_connect_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_CONN_CONNECT_H */
