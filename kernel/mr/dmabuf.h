/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Regions of dma-bufs. Declarations of kernel/mr/dmabuf.c; the lock order is
 * in core.h.
 */
#ifndef _MEMREG_MR_DMABUF_H
#define _MEMREG_MR_DMABUF_H

#include <linux/types.h>

struct dma_buf;
struct memreg_region;
struct memreg_ucmd;

struct memreg_region *memreg_dmabuf_region(struct memreg_ucmd *ucmd,
					   struct dma_buf *dmabuf, u64 offset,
					   u64 length, bool writable);

#endif /* _MEMREG_MR_DMABUF_H */
