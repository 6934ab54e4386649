/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Listeners, and the requests of peers.
 */
#ifndef _MEMREG_CONN_LISTENER_H
#define _MEMREG_CONN_LISTENER_H

#include "core.h"

int memreg_listener_create_ioctl(struct memreg_ucmd *ucmd);
int memreg_endpoint_accept_ioctl(struct memreg_ucmd *ucmd);
int memreg_endpoint_reject_ioctl(struct memreg_ucmd *ucmd);
int memreg_endpoint_setup_ioctl(struct memreg_ucmd *ucmd);
extern const struct memreg_object_ops memreg_listener_ops;

#endif /* _MEMREG_CONN_LISTENER_H */
