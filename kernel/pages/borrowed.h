/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Regions of pages that their owner keeps.
 */
#ifndef _MEMREG_PAGES_BORROWED_H
#define _MEMREG_PAGES_BORROWED_H

struct iov_iter;
struct memreg_region;
struct memreg_ucmd;

struct memreg_region *memreg_region_borrow(struct memreg_ucmd *ucmd,
					   const struct iov_iter *iter);
void memreg_region_return(struct memreg_region *region);

#endif /* _MEMREG_PAGES_BORROWED_H */
