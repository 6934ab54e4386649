/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DEVICE_QUERY: what a device and this module can do, and what backs it.
 */
#ifndef _MEMREG_CAPS_H
#define _MEMREG_CAPS_H

struct memreg_ucmd;

int memreg_device_query_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_CAPS_H */
