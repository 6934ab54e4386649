/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Monitors: address ranges that are watched on behalf of other registration
 * APIs.
 */
#ifndef _MEMREG_WATCH_MONITOR_H
#define _MEMREG_WATCH_MONITOR_H

struct memreg_object_ops;
struct memreg_ucmd;

int memreg_monitor_create_ioctl(struct memreg_ucmd *ucmd);
int memreg_monitor_destroy_ioctl(struct memreg_ucmd *ucmd);

extern const struct memreg_object_ops memreg_monitor_ops;

#endif /* _MEMREG_WATCH_MONITOR_H */
