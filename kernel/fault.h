/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory that a call has to fault in before it can go on.
 */
#ifndef _MEMREG_FAULT_H
#define _MEMREG_FAULT_H

#include <linux/types.h>

/**
 * struct memreg_fault - Memory of the caller that a call has to fault in
 * @needed: The call failed for lack of it, and for nothing else
 * @write: It is to be written to
 * @addr: First page
 * @npages: System pages
 * @since: Nanoseconds of the monotonic clock at which it was found missing
 */
struct memreg_fault {
	bool needed;
	bool write;
	unsigned long addr;
	unsigned long npages;
	u64 since;
};

#endif /* _MEMREG_FAULT_H */
