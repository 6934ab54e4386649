/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory objects: kernel pages behind a descriptor. Private declarations of
 * kernel/pages/memory.c; the lock order is in core.h.
 */
#ifndef _MEMREG_MEMORY_H
#define _MEMREG_MEMORY_H

#include <linux/types.h>

struct dma_buf;
struct memreg_source;
struct memreg_ucmd;

/* Most bytes of a block: the largest allocation of the page allocator. */
#define MEMREG_MEMORY_BLOCK_MAX	(PAGE_SIZE << MAX_PAGE_ORDER)

int memreg_memory_create_ioctl(struct memreg_ucmd *ucmd);
int memreg_memory_dup_ioctl(struct memreg_ucmd *ucmd);
int memreg_dmabuf_respond(struct memreg_ucmd *ucmd, size_t size,
			  struct dma_buf *dmabuf, s32 *out_fd);
struct dma_buf *memreg_memory_get(struct memreg_ucmd *ucmd, int fd);
bool memreg_memory_is(const struct dma_buf *dmabuf);
extern const struct memreg_source memreg_memory_source;

#endif /* _MEMREG_MEMORY_H */
