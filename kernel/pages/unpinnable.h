/* SPDX-License-Identifier: GPL-2.0-only */
/* Why memory of the caller cannot be pinned. */
#ifndef _MEMREG_PAGES_UNPINNABLE_H
#define _MEMREG_PAGES_UNPINNABLE_H

#include <linux/types.h>

u32 memreg_unpinnable_reason(unsigned long addr, bool write);

#endif /* _MEMREG_PAGES_UNPINNABLE_H */
