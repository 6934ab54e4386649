/* SPDX-License-Identifier: GPL-2.0-only */
/* User memory that a call has to fault in before it can go on. */
#ifndef _MEMREG_FAULT_H
#define _MEMREG_FAULT_H

#include <linux/types.h>

/**
 * struct memreg_fault - User memory that a call has to fault in
 * @needed: The call failed only because this memory is not present
 * @write: Fault in for writing
 * @addr: First page
 * @npages: Number of system pages
 * @since: When the memory was found missing: monotonic clock, in nanoseconds
 */
struct memreg_fault {
	bool needed;
	bool write;
	unsigned long addr;
	unsigned long npages;
	u64 since;
};

#endif /* _MEMREG_FAULT_H */
