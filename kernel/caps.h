/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DEVICE_QUERY: the capabilities and limits of a device and of this module, and
 * the mechanism behind each.
 */
#ifndef _MEMREG_CAPS_H
#define _MEMREG_CAPS_H

struct memreg_ucmd;

int memreg_device_query_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_CAPS_H */
