/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * MRs on demand: their pages are pinned when work uses them, not at
 * registration.
 */
#ifndef _MEMREG_MR_DEMAND_H
#define _MEMREG_MR_DEMAND_H

#include <linux/atomic.h>
#include <linux/interval_tree.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <uapi/rdma/ib_memreg.h>

#include "device.h"
#include "mr/mr.h"

struct memreg_demand_space;
struct memreg_region;
struct memreg_ucmd;

/**
 * enum memreg_demand_event - What is counted as often as it happens
 * @MEMREG_DEMAND_FAULT: A range had to be pinned to be used
 * @MEMREG_DEMAND_HIT: A range was pinned when it was used
 * @MEMREG_DEMAND_INVALIDATION: The mapping of an extent changed
 * @MEMREG_DEMAND_PREFETCHED: An extent was pinned by advice
 * @MEMREG_DEMAND_PREFETCH_HIT: One of those was used
 * @MEMREG_DEMAND_EVENTS: Number of the others
 *
 * In the order of their counters in enum ib_memreg_stat_id.
 */
enum memreg_demand_event {
	MEMREG_DEMAND_FAULT,
	MEMREG_DEMAND_HIT,
	MEMREG_DEMAND_INVALIDATION,
	MEMREG_DEMAND_PREFETCHED,
	MEMREG_DEMAND_PREFETCH_HIT,
	MEMREG_DEMAND_EVENTS,
};

/**
 * struct memreg_demand_stats - Counters of an MR on demand
 * @pages: Pages that are pinned
 * @events: By enum memreg_demand_event
 * @wait: Faults by the time that they took
 */
struct memreg_demand_stats {
	struct memreg_demand_pages pages;
	atomic64_t events[MEMREG_DEMAND_EVENTS];
	atomic64_t wait[IB_MEMREG_DEMAND_WAITS];
};

/**
 * struct memreg_demand - The pinned extents of an MR on demand
 * @mr: The MR; each extent keeps a reference of it
 * @space: MRs on demand of the same address space
 * @node: In memreg_demand_space.demands; memreg_demand_space.lock
 * @room: In memreg_demand_space.rooms; memreg_demand_space.lock
 * @lru: In the shrinker's list, among those of its memory cgroup
 * @shrink: Memory is short: the worker releases idle extents of any age; no
 *	lock
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
	bool shrink;
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
void memreg_demand_stats_read(struct memreg_demand_stats *stats,
			      struct ib_memreg_demand_stats *to);
int memreg_demand_fault(struct memreg_ucmd *ucmd);

/* Does an extent contain this range of its MR? */
static inline bool memreg_extent_has(const struct memreg_kmr *extent,
				     u64 offset, u64 length)
{
	/* An offset before the extent wraps to more than any length. */
	return offset + extent->skip < extent->length &&
	       length <= extent->length - (offset + extent->skip);
}

#endif /* _MEMREG_MR_DEMAND_H */
