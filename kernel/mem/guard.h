/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guards: when the user's mapping goes, the keys to its pages die.
 */
#ifndef _MEMREG_MEM_GUARD_H
#define _MEMREG_MEM_GUARD_H

#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct memreg_device;
struct memreg_region;

/**
 * enum memreg_verdict - What an event says of the pages, or a look at the
 *	mapping
 * @MEMREG_SAME: They are where they were.
 * @MEMREG_SUSPECT: They may have gone.
 * @MEMREG_GONE: They are mapped no more.
 */
enum memreg_verdict {
	MEMREG_SAME,
	MEMREG_SUSPECT,
	MEMREG_GONE,
};

/**
 * struct memreg_space - The guarded regions of an address space on a device
 * @mdev: The device
 * @mm: The address space, which each region keeps
 * @node: In memreg_device.spaces; frwr_lock
 * @users: Regions; frwr_lock
 * @suspects: Those that the worker is to look at, by memreg_guard.suspect_node;
 *	frwr_lock
 * @looking: The one that it is looking at, or NULL
 * @look: The worker
 */
struct memreg_space {
	struct memreg_device *mdev;
	struct mm_struct *mm;
	struct hlist_node node;
	unsigned int users;
	struct list_head suspects;
	struct memreg_region *looking;
	struct delayed_work look;
};

/**
 * struct memreg_look - A look at the mapping
 * @active: There is one, or it is due
 * @by_kernel: A kernel thread takes pages away, not of reclaim
 * @start: Where to look
 * @end: Where to look
 * @next: The next address
 * @suspects: memreg_guard.suspects when it began
 */
struct memreg_look {
	bool active;
	bool by_kernel;
	unsigned long start;
	unsigned long end;
	unsigned long next;
	unsigned long suspects;
};

/**
 * struct memreg_guard - Watches a region's mapping, and kills its keys
 * @notifier: Of the region's range
 * @finish: Second pass of the notifier
 * @finish_used: @finish is in use; frwr_lock
 * @deadline: Jiffies until which @finish waits; of who uses it
 * @active: @notifier is inserted
 * @settled: The region has its pages, and they were those of the mapping;
 *	frwr_lock
 * @stale: The mapping went, or may have gone for all that could be found out;
 *	no key to the region is made any more; frwr_lock
 * @doubtful: @stale, by an event that may have changed nothing; frwr_lock
 * @spurious: @stale, but the pages were found to be mapped still; frwr_lock
 * @generation: Times that @stale was set; frwr_lock
 * @suspects: Events that call for a look; frwr_lock
 * @cleared: Value of @suspects at the last look that found nothing; frwr_lock
 * @suspect_since: Jiffies of the first of them; frwr_lock
 * @space: Of the region's mm; keeps a user
 * @suspect_node: In @space's list, or in that of its worker; frwr_lock
 * @due: Where to look next; frwr_lock
 * @look: The look that goes on, the worker's
 */
struct memreg_guard {
	struct mmu_interval_notifier notifier;
#ifdef MEMREG_TWO_PASS_NOTIFIERS
	struct mmu_interval_notifier_finish finish;
	bool finish_used;
	unsigned long deadline;
#endif
	bool active;
	bool settled;
	bool stale;
	bool doubtful;
	bool spurious;
	u64 generation;
	unsigned long suspects;
	unsigned long cleared;
	unsigned long suspect_since;
	struct memreg_space *space;
	struct list_head suspect_node;
	struct memreg_look due;
	struct memreg_look look;
};

int memreg_guard_init(void);
void memreg_guard_exit(void);
int memreg_guard_insert(struct memreg_region *region);
void memreg_guard_remove(struct memreg_region *region);
void memreg_guard_succeed(struct memreg_region *region,
			  struct memreg_region *old);
int memreg_guard_end(struct memreg_region *region, unsigned long seq);
void memreg_guard_recheck(struct memreg_region *region);

#endif /* _MEMREG_MEM_GUARD_H */
