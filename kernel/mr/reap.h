/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Release of the idle extents of MRs on demand.
 */
#ifndef _MEMREG_MR_REAP_H
#define _MEMREG_MR_REAP_H

#include <linux/atomic.h>
#include <linux/interval_tree.h>
#include <linux/list.h>
#include <linux/list_lru.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/types.h>

#include "mr/demand.h"
#include "mr/mr.h"
#include "user_work.h"

struct mm_struct;
struct shrinker;

/*
 * Bits of memreg_extent.state, cleared by the first use: made by that use, or
 * by MR_ADVISE
 */
#define MEMREG_EXTENT_FRESH	0
#define MEMREG_EXTENT_PREFETCHED	1

/**
 * struct memreg_extent - Some pages of an MR on demand
 * @mr: What work requests and windows hold references to; @demand holds one
 *	until the extent is taken off its list
 * @demand: MR on demand that it belongs to
 * @tree_node: In memreg_demand.tree; memreg_demand.lock
 * @node: In memreg_demand.idle or memreg_demand.gone; memreg_demand.lock
 * @gone: It is not in memreg_demand.tree any more; memreg_demand.lock
 * @used: Jiffies of its last use; memreg_demand.lock
 * @state: MEMREG_EXTENT_*
 */
struct memreg_extent {
	struct memreg_kmr mr;
	struct memreg_demand *demand;
	struct interval_tree_node tree_node;
	struct list_head node;
	bool gone;
	unsigned long used;
	unsigned long state;
};

/**
 * struct memreg_demand_space - MRs on demand of an address space
 * @node: In memreg_demand_spaces; memreg_demand_spaces_lock
 * @mm: The address space; the MRs hold references to it
 * @users: References of the MRs and of callers; memreg_demand_spaces_lock
 * @lock: Protects the fields below; memreg_demand.lock nests in it
 * @demands: The MRs; the worker serves the first, then moves it to the tail
 * @rooms: The MRs again, in the order of memreg_demand_make_room()
 * @nr: Number of MRs
 * @left: MRs that the worker has still to serve in this round
 * @extents_left: An MR that was served in this round has extents left: another
 *	round follows after MEMREG_DEMAND_PERIOD
 * @again: Start a new round of all MRs at once; no lock
 * @pinned: System pages that the MRs have pinned, used or idle; no lock
 * @retired: Extents were retired since this round began: another round follows
 *	after MEMREG_DEMAND_DELAY; no lock
 * @user: The user who has registered the first one
 * @reap: Releases idle extents
 * @timer: Queues @reap
 */
struct memreg_demand_space {
	struct hlist_node node;
	struct mm_struct *mm;
	unsigned int users;
	spinlock_t lock;
	struct list_head demands;
	struct list_head rooms;
	unsigned int nr;
	unsigned int left;
	bool extents_left;
	bool again;
	atomic_long_t pinned;
	bool retired;
	struct memreg_user *user;
	struct memreg_user_work reap;
	struct timer_list timer;
};

extern struct list_lru memreg_demand_lru;
extern struct shrinker *memreg_demand_shrinker;

struct memreg_demand_space *memreg_demand_space_get(struct mm_struct *mm);
void memreg_demand_space_put(struct memreg_demand_space *space);
void memreg_demand_space_look_soon(struct memreg_demand_space *space);
void memreg_demand_space_look_later(struct memreg_demand_space *space);
void memreg_extent_count_pin(struct memreg_extent *extent);
bool memreg_extent_take(struct memreg_extent *extent, struct list_head *taken);
unsigned long memreg_demand_release(struct list_head *taken);
int memreg_demand_shrinker_init(void);
void memreg_demand_idle(struct memreg_demand *demand);
bool memreg_demand_can_make_room(struct mm_struct *mm, unsigned long npages);
unsigned long memreg_demand_make_room(struct mm_struct *mm,
				      unsigned long npages);
u64 memreg_demand_drop(struct memreg_kmr *mr, u64 offset, u64 length);

#endif /* _MEMREG_MR_REAP_H */
