/* SPDX-License-Identifier: GPL-2.0-only */
/* Monitors of dma-bufs; private declarations of kernel/watch/monitor_dmabuf.c */
#ifndef _MEMREG_WATCH_MONITOR_DMABUF_H
#define _MEMREG_WATCH_MONITOR_DMABUF_H

struct dma_buf;
struct ib_memreg_monitor;
struct memreg_kstatus;
struct memreg_ucmd;

struct dma_buf *memreg_dmabuf_get(struct memreg_ucmd *ucmd, int fd);
int memreg_dmabuf_monitor_make(struct memreg_ucmd *ucmd,
			       struct memreg_kstatus *status,
			       struct ib_memreg_monitor *arg);

#endif /* _MEMREG_WATCH_MONITOR_DMABUF_H */
