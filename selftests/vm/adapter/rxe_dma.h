/* SPDX-License-Identifier: GPL-2.0-only */
/* Soft-RoCE as an adapter that does DMA: see rxe_dma.c. */
#ifndef _RXE_DMA_H
#define _RXE_DMA_H

#include <linux/types.h>

struct device;
struct page;
struct rxe_dev;

extern bool rxe_strict;
extern bool rxe_gaps;
extern unsigned int rxe_pages;

int rxe_dma_create(struct rxe_dev *rxe, const char *name);
void rxe_dma_destroy(struct rxe_dev *rxe);
struct device *rxe_dma_device(struct rxe_dev *rxe);
u32 rxe_dma_part(void);
struct page *rxe_dma_page(struct rxe_dev *rxe, u64 addr, bool write);
struct page *rxe_dma_begin(struct rxe_dev *rxe, u32 key, u64 addr, bool write);
int rxe_dma_end(struct rxe_dev *rxe, u32 key, u64 addr, bool write,
		struct page *page);

#endif /* _RXE_DMA_H */
