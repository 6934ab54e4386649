/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Code that the adapters for other registration caches share: a status table
 * with a log of all changes of the address space.
 */
#ifndef MEMREG_ADAPT_CHANGES_H
#define MEMREG_ADAPT_CHANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memreg.h"

/**
 * struct changes - A table, and its log
 * @m: Its handle
 * @status: The table; NULL while there is none
 * @wide: The watch that writes the log
 * @owner: The process that made it
 */
struct changes {
	struct memreg *m;
	struct memreg_status *status;
	struct memreg_watch wide;
	int owner;
};

/*
 * Make the table, with @slots for watches of the caller, while there is none;
 * other threads may look at it as soon as it is there. Returns 0 or -errno,
 * with memreg_reason(); on failure nothing is left.
 */
int changes_open(struct changes *c, uint32_t slots);
void changes_close(struct changes *c);

/* The table, or NULL, while another thread may be making it */
static inline struct memreg_status *changes_status(const struct changes *c)
{
	return __atomic_load_n(&c->status, __ATOMIC_ACQUIRE);
}

/* Number of changes so far: a position in the log to look from later */
uint64_t changes_position(const struct changes *c);

/*
 * A change is logged when it begins. Wait for changes of some memory that are
 * in progress, so that a caller that pins the memory afterwards pins the new
 * pages, and finds every later change in the log. Returns 0 or -errno.
 */
int changes_settle(const struct changes *c, const void *addr, size_t length);

/*
 * Has any of [@start, @end) changed since @position? Also true where it is not
 * known: if the log has lost that, or in a child of the process that made the
 * table.
 */
bool changes_since(const struct changes *c, uint64_t position, uint64_t start,
		   uint64_t end);

#endif /* MEMREG_ADAPT_CHANGES_H */
