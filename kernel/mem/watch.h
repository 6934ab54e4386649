/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Watches: what mmu notifiers announce of a mapping, and whether it is so.
 */
#ifndef _MEMREG_MEM_WATCH_H
#define _MEMREG_MEM_WATCH_H

#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "device.h"
#include "mem/event.h"
#include "mem/status.h"

struct memreg_watch;
struct page;

/**
 * struct memreg_space - The watches of an address space on a device
 * @mdev: The device
 * @mm: The address space, which the owner of each watch keeps
 * @node: In memreg_device.spaces; frwr_lock
 * @users: Watches; frwr_lock
 * @suspects: Those that the worker is to look at, by memreg_watch.suspect_node;
 *	frwr_lock
 * @looking: The one that it is looking at, or NULL
 * @gave_up_until: Jiffies until which no other process waits for keys to this
 *	address space to die, as one did in vain; frwr_lock
 * @look: The worker
 */
struct memreg_space {
	struct memreg_device *mdev;
	struct mm_struct *mm;
	struct hlist_node node;
	unsigned int users;
	struct list_head suspects;
	struct memreg_watch *looking;
	unsigned long gave_up_until;
	struct delayed_work look;
};

/**
 * struct memreg_look - A look at the mapping
 * @active: There is one, or it is due
 * @by_kernel: A kernel thread takes pages away, not of reclaim
 * @start: Where to look
 * @end: Where to look
 * @next: The next address
 * @suspects: memreg_watch.suspects when it began
 */
struct memreg_look {
	bool active;
	bool by_kernel;
	unsigned long start;
	unsigned long end;
	unsigned long next;
	unsigned long suspects;
};

/* How long a notifier waits for what it has asked for. */
#define MEMREG_WATCH_TIMEOUT	HZ

/**
 * struct memreg_watch_ops - What is watched
 * @compare: Go on with a look for so many pages at most, by
 *	memreg_watch_page(). Context: may sleep, with the mmap_lock held.
 * @stale: The mapping went. Context: with frwr_lock held.
 * @suspect: The mapping is to be looked at; or NULL. Context: with frwr_lock
 *	held.
 * @gone: The same, afterwards, without the lock: have keys killed. Returns
 *	whether a notifier is to wait. May be called several times.
 * @wait: Wait in a notifier until jiffies are so many. Context: may sleep.
 */
struct memreg_watch_ops {
	enum memreg_verdict (*compare)(struct memreg_watch *watch,
				       struct memreg_look *look,
				       unsigned int *pages);
	void (*stale)(struct memreg_watch *watch);
	void (*suspect)(struct memreg_watch *watch);
	bool (*gone)(struct memreg_watch *watch);
	void (*wait)(struct memreg_watch *watch, unsigned long deadline);
};

/**
 * struct memreg_watch - Watches a mapping
 * @ops: What is watched
 * @mdev: Device whose frwr_lock it is under
 * @mm: The address space
 * @addr: Address
 * @length: Bytes
 * @start: First page of the range
 * @end: Behind the last one
 * @writable: What is mapped is to be writable
 * @notifier: Of the range
 * @finish: Second pass of the notifier
 * @finish_used: @finish is in use; frwr_lock
 * @deadline: Jiffies until which @finish waits; of who uses it
 * @active: @notifier is inserted
 * @settled: There are pages, and they were those of the mapping; frwr_lock
 * @stale: The mapping went, or may have gone for all that could be found out;
 *	no key to what is watched is made any more; frwr_lock
 * @doubtful: @stale, by an event that may have changed nothing; frwr_lock
 * @spurious: @stale, but the pages were found to be mapped still; frwr_lock
 * @generation: Times that @stale was set; frwr_lock
 * @status: Table in which there is a slot that changes with @generation, or
 *	NULL; frwr_lock
 * @slot: The slot
 * @suspects: Events that call for a look; frwr_lock
 * @cleared: Value of @suspects at the last look that found nothing; frwr_lock
 * @suspect_since: Jiffies of the first of them; frwr_lock
 * @space: Of @mm; keeps a user
 * @suspect_node: In @space's list, or in that of its worker; frwr_lock
 * @due: Where to look next; frwr_lock
 * @look: The look that goes on, the worker's
 */
struct memreg_watch {
	const struct memreg_watch_ops *ops;
	struct memreg_device *mdev;
	struct mm_struct *mm;
	u64 addr;
	u64 length;
	unsigned long start;
	unsigned long end;
	bool writable;
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
	struct memreg_status *status;
	u32 slot;
	unsigned long suspects;
	unsigned long cleared;
	unsigned long suspect_since;
	struct memreg_space *space;
	struct list_head suspect_node;
	struct memreg_look due;
	struct memreg_look look;
};

int memreg_watch_init(void);
void memreg_watch_exit(void);
int memreg_watch_insert(struct memreg_watch *watch,
			const struct memreg_watch_ops *ops,
			struct mm_struct *mm, u64 addr, u64 length,
			bool writable);
void memreg_watch_remove(struct memreg_watch *watch);
int memreg_watch_end(struct memreg_watch *watch, unsigned long seq);
void memreg_watch_recheck(struct memreg_watch *watch);
enum memreg_verdict memreg_watch_page(struct memreg_watch *watch,
				      const struct memreg_look *look,
				      unsigned long addr, struct page *page);

/* Whatever memreg_watch_page() does: it is above those who hand it pages. */
typedef enum memreg_verdict (*memreg_watch_page_fn)(struct memreg_watch *watch,
						const struct memreg_look *look,
						unsigned long addr,
						struct page *page);

static inline bool memreg_look_is_through(const struct memreg_look *look)
{
	return look->next >= look->end;
}

/**
 * memreg_watch_set_stale() - Note that a mapping went
 * @watch: The watch, with frwr_lock held
 *
 * Return: false if it had gone before.
 */
static inline bool memreg_watch_set_stale(struct memreg_watch *watch)
{
	lockdep_assert_held(&watch->mdev->frwr_lock);

	if (watch->stale)
		return false;
	WRITE_ONCE(watch->stale, true);
	WRITE_ONCE(watch->generation, watch->generation + 1);
	if (watch->status)
		memreg_status_change(watch->status, watch->slot);
	return true;
}

/**
 * memreg_watch_begin() - Begin to look at the mapping
 * @watch: The watch
 *
 * Return: what memreg_watch_end() wants.
 */
static inline unsigned long memreg_watch_begin(struct memreg_watch *watch)
{
	if (!watch->active)
		return 0;
	return mmu_interval_read_begin(&watch->notifier);
}

#endif /* _MEMREG_MEM_WATCH_H */
