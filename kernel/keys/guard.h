/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guards: when the user's mapping goes, the keys to its pages die.
 */
#ifndef _MEMREG_KEYS_GUARD_H
#define _MEMREG_KEYS_GUARD_H

#include "pages/region.h"
#include "watch/watch.h"

extern const struct memreg_watch_ops memreg_guard_ops;

bool memreg_guard_revoke(struct memreg_region *region);
u64 memreg_guard_adopt(struct memreg_region *region,
		       struct memreg_region *old, u64 since);

/* Watch a region of the current process, which has no pages yet. */
static inline int memreg_guard_insert(struct memreg_region *region)
{
	return memreg_watch_insert(&region->guard, &memreg_guard_ops,
				   region->mm, region->addr, region->length,
				   region->writable);
}

/* Stop watching a region. */
static inline void memreg_guard_remove(struct memreg_region *region)
{
	memreg_watch_remove(&region->guard);
}

static inline unsigned long memreg_guard_begin(struct memreg_region *region)
{
	return memreg_watch_begin(&region->guard);
}

static inline int memreg_guard_end(struct memreg_region *region,
				   unsigned long seq)
{
	return memreg_watch_end(&region->guard, seq);
}

static inline void memreg_guard_recheck(struct memreg_region *region)
{
	memreg_watch_recheck(&region->guard);
}

#endif /* _MEMREG_KEYS_GUARD_H */
