/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * MRs on demand: their pages are pinned when work uses them, not at
 * registration.
 */
#ifndef _MEMREG_MEM_DEMAND_H
#define _MEMREG_MEM_DEMAND_H

#include <linux/atomic.h>
#include <linux/interval_tree.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "mem/demand_stats.h"
#include "mem/mr.h"

struct memreg_demand_space;
struct memreg_region;
struct memreg_squeeze;
struct memreg_ucmd;

/**
 * struct memreg_demand - The pinned extents of an MR on demand
 * @mr: The MR; each extent keeps a reference of it
 * @space: MRs on demand of the same address space
 * @node: In memreg_demand_space.demands; memreg_demand_space.lock
 * @room: In memreg_demand_space.rooms; memreg_demand_space.lock
 * @lru: In the shrinker's list, among those of its memory cgroup
 * @squeeze: The cgroup whose reclaim waits until the worker has released the
 *	idle extents of this MR, or NULL. memreg_squeeze_lock
 * @lock: Protects the fields below, except @stats
 * @tree: Extents that memreg_demand_find() may return, by address
 * @idle: The extents of @tree, least recently used first
 * @gone: Extents whose mapping changed; released when their last user has put
 *	them
 * @nr: Number of extents in both lists
 * @left: Extents that the worker has still to check before the next MR gets its
 *	turn
 * @releasing: Extents that were taken off the lists and are being released
 * @stats: Counters
 */
struct memreg_demand {
	struct memreg_kmr *mr;
	struct memreg_demand_space *space;
	struct list_head node;
	struct list_head room;
	struct list_head lru;
	struct memreg_squeeze *squeeze;
	spinlock_t lock;
	struct rb_root_cached tree;
	struct list_head idle;
	struct list_head gone;
	unsigned int nr;
	unsigned int left;
	atomic_t releasing;
	struct memreg_demand_stats stats;
};

/**
 * enum memreg_demand_why - Why a range is pinned
 * @MEMREG_DEMAND_USE: A work request or a window uses it now
 * @MEMREG_DEMAND_PREFETCH: MR_ADVISE asked for it ahead of use
 */
enum memreg_demand_why {
	MEMREG_DEMAND_USE,
	MEMREG_DEMAND_PREFETCH,
};

int memreg_demand_module_init(void);
void memreg_demand_module_exit(void);
int memreg_demand_begin(struct memreg_ucmd *ucmd, struct memreg_kmr *mr,
			bool writable);
void memreg_demand_end(struct memreg_kmr *mr);
void memreg_demand_idle(struct memreg_demand *demand);
unsigned long memreg_demand_make_room(struct mm_struct *mm,
				      unsigned long npages);
struct memreg_kmr *memreg_demand_find(struct memreg_kmr *mr, u64 offset,
				      u64 length, bool write);
struct memreg_kmr *memreg_demand_pin(struct memreg_ucmd *ucmd,
				     struct memreg_kmr *mr, u64 offset,
				     u64 length, bool write,
				     enum memreg_demand_why why);
struct memreg_kmr *memreg_demand_get(struct memreg_ucmd *ucmd,
				     struct memreg_kmr *mr, u64 offset,
				     u64 length, bool write);
void memreg_demand_count_use(struct memreg_kmr *extent);
int memreg_demand_fault(struct memreg_ucmd *ucmd);
u64 memreg_demand_drop(struct memreg_kmr *mr, u64 offset, u64 length);

/* Does an extent contain this range of its MR? */
static inline bool memreg_extent_has(const struct memreg_kmr *extent,
				     u64 offset, u64 length)
{
	/* An offset before the extent wraps to more than any length. */
	return offset + extent->skip < extent->length &&
	       length <= extent->length - (offset + extent->skip);
}

#endif /* _MEMREG_MEM_DEMAND_H */
