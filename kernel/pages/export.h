/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Exports: a part of a region as a dma-buf that can be revoked. Private
 * declarations of kernel/pages/export.c; the lock order is in core.h.
 */
#ifndef _MEMREG_PAGES_EXPORT_H
#define _MEMREG_PAGES_EXPORT_H

#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/types.h>

#include "user_work.h"

struct dma_buf;
struct memreg_kdevice;
struct memreg_kstatus;
struct memreg_region;
struct memreg_ucmd;
struct page;

/* How long a revoke waits for importers to let go of the memory. */
#define MEMREG_EXPORT_TIMEOUT	HZ

/**
 * enum memreg_export_state - State of an export
 * @MEMREG_EXPORT_LIVE: Importers may attach to it, and map it
 * @MEMREG_EXPORT_ENDING: None may attach, and importers are notified
 * @MEMREG_EXPORT_ENDED: None reaches the memory
 */
enum memreg_export_state {
	MEMREG_EXPORT_LIVE,
	MEMREG_EXPORT_ENDING,
	MEMREG_EXPORT_ENDED,
};

/**
 * struct memreg_kexport - A part of a region as a dma-buf; freed with that
 * @region: The region; holds a reference until it is ENDED
 * @mdev: Device of the region; holds a reference
 * @dmabuf: The dma-buf
 * @npages: Number of system pages
 * @pages: The pages
 * @node: In memreg_region.exports while it is LIVE; frwr_lock
 * @given_up: Its object is gone; frwr_lock
 * @state: enum memreg_export_state; frwr_lock
 * @deadline: Jiffies until which those wait who destroy it
 * @told: Its importers are, or were, told to let go, and nobody maps it any
 *	more; dma_resv
 * @late: Its importers were told to let go, and some have not; dma_resv
 * @mapped: Number of mappings that importers have; dma_resv
 * @status: Status table with a slot that changes when it ends, or NULL; the
 *	owner's as long as it is LIVE
 * @slot: The slot
 * @user: Its user; holds a reference
 * @work: Ends it; holds a reference of @dmabuf while it is queued
 */
struct memreg_kexport {
	struct memreg_region *region;
	struct memreg_kdevice *mdev;
	struct dma_buf *dmabuf;
	unsigned long npages;
	struct page **pages;
	struct list_head node;
	bool given_up;
	enum memreg_export_state state;
	unsigned long deadline;
	bool told;
	bool late;
	unsigned int mapped;
	struct memreg_kstatus *status;
	u32 slot;
	struct memreg_user *user;
	struct memreg_user_work work;
};

bool memreg_exports_possible(void);
struct memreg_kexport *memreg_export_new(struct memreg_ucmd *ucmd,
					struct memreg_region *region,
					u64 offset, u64 length);
int memreg_export_begin(struct memreg_ucmd *ucmd, struct memreg_kexport *export,
			struct memreg_kstatus *status, u32 slot);
void memreg_export_revoke(struct memreg_kexport *export);
bool memreg_export_wait(struct memreg_kexport *export, unsigned long deadline);
void memreg_export_put(struct memreg_kexport *export);
struct page **memreg_export_take(struct dma_buf *dmabuf);
void memreg_export_give(struct dma_buf *dmabuf);
bool memreg_export_is(const struct dma_buf *dmabuf);
bool memreg_exports_kill(struct memreg_region *region);
void memreg_exports_wait(struct memreg_region *region);

#endif /* _MEMREG_PAGES_EXPORT_H */
