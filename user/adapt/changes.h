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
 * @owner: The process that made it, or failed to
 * @epoch: Tables made so far; a position in a log is good in its epoch only
 */
struct changes {
	struct memreg *m;
	struct memreg_status *status;
	struct memreg_watch wide;
	int owner;
	uint64_t epoch;
};

/*
 * Make the table, with @slots for watches of the caller, while there is none;
 * other threads may look at it as soon as it is there. Returns 0 or -errno,
 * with memreg_reason(); on failure nothing is left.
 */
int changes_open(struct changes *c, uint32_t slots);

/* Close the table of the parent, in a child process just after fork(2). */
void changes_close_in_child(struct changes *c);

/*
 * Can the table not be used any more, because the process is a child of the one
 * that made it, or because the program has closed the descriptors that it did
 * not open, as daemons do? All that is known by the table has to be taken for
 * changed then. False if there is no table, and it was this process that failed
 * to make it.
 */
bool changes_are_over(const struct changes *c);

/*
 * Make another table in place of one that is over. Returns 0 or -errno, as
 * changes_open(); then there is none.
 */
int changes_renew(struct changes *c, uint32_t slots);

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
int changes_await(const struct changes *c, const void *addr, size_t length);

/*
 * Has any of [@start, @end) changed since @position? Also true where it is not
 * known: if the log has lost that, or in a child of the process that made the
 * table.
 */
bool changes_since(const struct changes *c, uint64_t position, uint64_t start,
		   uint64_t end);

#endif /* MEMREG_ADAPT_CHANGES_H */
