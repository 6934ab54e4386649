/* SPDX-License-Identifier: GPL-2.0-only */
/* Bugs and proven abilities of drivers. */
#ifndef _MEMREG_QUIRKS_H
#define _MEMREG_QUIRKS_H

#include <linux/bits.h>
#include <linux/types.h>

struct ib_device;

/* LOCAL_INV completes while packets that passed the key check still copy. */
#define MEMREG_QUIRK_WEAK_INV		BIT(0)
/* Page lists are contiguous allocations of one entry per system page. */
#define MEMREG_QUIRK_FLAT_PAGE_LIST	BIT(1)
/* REG_MR may be posted again after LOCAL_INV with the page list as it was. */
#define MEMREG_QUIRK_KEEPS_PAGE_LIST	BIT(2)
/* A retransmission executes again a REG_MR that has not completed. */
#define MEMREG_QUIRK_REPEATS_REG_MR	BIT(3)
/* The driver breaks the guarantees of memreg: refuse the device. */
#define MEMREG_QUIRK_UNFIT		BIT(4)
/* Page lists have entries of PAGE_SIZE, whatever ib_map_mr_sg() is passed. */
#define MEMREG_QUIRK_SYSTEM_PAGES	BIT(5)
/* Page lists of more than 512 entries may be misread: see irdma. */
#define MEMREG_QUIRK_SHORT_PAGE_LISTS	BIT(6)
/* Writes through a key are always relaxed in order, even if not requested. */
#define MEMREG_QUIRK_RELAXED_ORDERING	BIT(7)
/* Keys cannot allow atomics, though the device has them. */
#define MEMREG_QUIRK_NO_ATOMIC		BIT(8)
/* Keys must be of less than 4 GiB. */
#define MEMREG_QUIRK_SHORT_KEYS		BIT(9)
/* Keys whose pages the device faults in are known to work. */
#define MEMREG_QUIRK_DEVICE_PAGING	BIT(10)
/* User MRs on dma-bufs can be revoked. */
#define MEMREG_QUIRK_REVOCABLE_IMPORT	BIT(11)

unsigned long memreg_quirks(const struct ib_device *ibdev);
u32 memreg_page_list_max(const struct ib_device *ibdev);
u32 memreg_paged_access(const struct ib_device *ibdev);

#endif /* _MEMREG_QUIRKS_H */
