/* SPDX-License-Identifier: GPL-2.0-only */
/* Address spaces: what of their mappings has to be checked, and who does. */
#ifndef _MEMREG_WATCH_SPACE_H
#define _MEMREG_WATCH_SPACE_H

#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "watch/event.h"

struct mm_struct;

/*
 * Pages that the worker checks in an address space before it requeues itself,
 * for other address spaces.
 */
#define MEMREG_LOOK_PAGES	1024

/**
 * struct memreg_suspect - A part of a mapping that the worker checks on demand
 * @space: The address space
 * @node: In memreg_space.suspects, or in the list of the worker;
 *	memreg_space.lock
 * @look: Check it. Gets MEMREG_SAME if the mmap_lock is held and the mapping
 *	can be checked; MEMREG_SUSPECT if the lock was taken; MEMREG_GONE if the
 *	address space is exiting or was reaped. Subtracts from @pages the number
 *	of pages that were checked. Context: may sleep.
 */
struct memreg_suspect {
	struct memreg_space *space;
	struct list_head node;
	void (*look)(struct memreg_suspect *suspect,
		     enum memreg_verdict verdict, unsigned int *pages);
};

/**
 * struct memreg_space - An address space that is watched
 * @node: In the hash table of all
 * @mm: The address space, which each of @users holds
 * @users: Number of watches and status tables; memreg_spaces_lock
 * @lock: Protects the fields below
 * @suspects: What the worker has to check, by memreg_suspect.node
 * @looking: What the worker is checking, or NULL; written by the worker
 * @monitors: Ranges of the monitors, in pages: see kernel/watch/depth.c
 * @gave_up_until: Jiffies until which no other process waits for keys to this
 *	address space to die, as they have waited too long
 * @waited: Jiffies for which they have waited since @waited_since, summed over
 *	all tasks
 * @waited_since: Jiffies
 * @work: The worker
 */
struct memreg_space {
	struct hlist_node node;
	struct mm_struct *mm;
	unsigned long users;
	spinlock_t lock;
	struct list_head suspects;
	struct memreg_suspect *looking;
	struct rb_root_cached monitors;
	unsigned long gave_up_until;
	unsigned long waited;
	unsigned long waited_since;
	struct delayed_work work;
};

struct memreg_space *memreg_space_get(struct mm_struct *mm);
void memreg_space_put(struct memreg_space *space);
void memreg_suspect_add(struct memreg_suspect *suspect, unsigned long delay);
void memreg_suspect_remove(struct memreg_suspect *suspect);

#endif /* _MEMREG_WATCH_SPACE_H */
