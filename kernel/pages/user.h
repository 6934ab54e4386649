/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Regions of user memory.
 */
#ifndef _MEMREG_PAGES_USER_H
#define _MEMREG_PAGES_USER_H

#include <linux/types.h>

#include "pages/region.h"
#include "watch/watch.h"

struct memreg_ucmd;

enum memreg_verdict memreg_region_compare(struct memreg_region *region,
					  struct memreg_look *look,
					  unsigned int *pages,
					  memreg_watch_page_fn page);
struct memreg_region *memreg_region_new(struct memreg_ucmd *ucmd, u64 addr,
					u64 length, bool writable);
int memreg_region_fault(struct memreg_ucmd *ucmd, unsigned long addr,
			unsigned long npages, bool write);
int memreg_region_fault_nowait(struct memreg_ucmd *ucmd);
unsigned long memreg_region_present(unsigned long addr, unsigned long npages);

#endif /* _MEMREG_PAGES_USER_H */
