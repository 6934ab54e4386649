/* SPDX-License-Identifier: GPL-2.0-only */
/* Watches: evaluate the mmu notifier events of a mapping. */
#ifndef _MEMREG_WATCH_WATCH_H
#define _MEMREG_WATCH_WATCH_H

#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/types.h>

#include "device.h"
#include "watch/event.h"
#include "watch/space.h"
#include "watch/status.h"

struct memreg_kwatch;
struct page;
struct scatterlist;

/**
 * struct memreg_look - A check of the mapping
 * @active: The check is due, or in progress
 * @by_kernel: A kernel thread other than reclaim takes pages away
 * @whole: The whole range is checked for a call, which missed events or doubts
 *	one
 * @start: First address
 * @end: Address behind the last one
 * @next: Next address to check
 * @suspects: Value of memreg_kwatch.suspects when the check began
 * @sg: Entry of the list of pages with which to go on; NULL: the first one
 * @sg_page: Number of the first page of @sg
 */
struct memreg_look {
	bool active;
	bool by_kernel;
	bool whole;
	unsigned long start;
	unsigned long end;
	unsigned long next;
	unsigned long suspects;
	struct scatterlist *sg;
	unsigned long sg_page;
};

/* How long a notifier waits for keys to die. */
#define MEMREG_WATCH_TIMEOUT	HZ

/**
 * struct memreg_watch_ops - Operations of a watch
 * @compare: Continue a check by calls of memreg_watch_page(), for at most as
 *	many pages as passed. Context: may sleep, with the mmap_lock held.
 * @stale: The mapping has changed; or NULL. Context: with frwr_lock held.
 * @suspect: A check of the mapping is due; or NULL. May be called several times
 *	for a check, and later than @gone. Extents of MRs on demand alone have
 *	it: they let their pages go instead of a check, in a file above watch.c.
 * @gone: Called after @stale without the lock: start killing keys. Returns true
 *	if the notifier has to wait. May be called several times.
 * @wait: Wait in a notifier for keys to die, until the given jiffies. Context:
 *	may sleep.
 */
struct memreg_watch_ops {
	enum memreg_verdict (*compare)(struct memreg_kwatch *watch,
				       struct memreg_look *look,
				       unsigned int *pages);
	void (*stale)(struct memreg_kwatch *watch);
	void (*suspect)(struct memreg_kwatch *watch);
	bool (*gone)(struct memreg_kwatch *watch);
	void (*wait)(struct memreg_kwatch *watch, unsigned long deadline);
};

/**
 * struct memreg_kwatch - A watch on a range of a mapping
 * @ops: Operations of the watch
 * @mdev: Device, whose frwr_lock protects the watch
 * @mm: The address space
 * @addr: Address
 * @length: Bytes
 * @start: First page of the range
 * @end: Address behind the last page
 * @writable: The mapping must be writable
 * @notifier: mmu interval notifier of the range
 * @finish: Second pass of the notifier
 * @finish_used: @finish is in use; frwr_lock
 * @deadline: Jiffies until which @finish waits; belongs to the user of @finish
 * @active: @notifier is inserted
 * @confirmed: The pages are pinned, and were found to be those of the mapping;
 *	frwr_lock
 * @stale: The mapping has changed, or may have; no more keys to the range are
 *	made; frwr_lock
 * @doubtful: @stale was set by an event that may have changed nothing;
 *	frwr_lock
 * @spurious: @stale is set, but the pages were found to be still mapped;
 *	frwr_lock
 * @ties: Number of other watches that become stale along with it; frwr_lock
 * @generation: Number of times that @stale was set; frwr_lock
 * @status: Status table with a slot that changes along with @generation, or
 *	NULL; frwr_lock
 * @slot: The slot
 * @suspects: Number of suspect events; frwr_lock
 * @cleared: Value of @suspects at the last check that found no change;
 *	frwr_lock
 * @suspect_since: Jiffies of the first suspect event since then; frwr_lock
 * @tries: Number of checks without a result since then; frwr_lock
 * @suspect: What the worker checks; counted in the users of its space
 * @due: The next check; frwr_lock
 * @look: The check in progress; belongs to the worker
 */
struct memreg_kwatch {
	const struct memreg_watch_ops *ops;
	struct memreg_kdevice *mdev;
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
	bool confirmed;
	bool stale;
	bool doubtful;
	bool spurious;
	unsigned int ties;
	u64 generation;
	struct memreg_kstatus *status;
	u32 slot;
	unsigned long suspects;
	unsigned long cleared;
	unsigned long suspect_since;
	unsigned int tries;
	struct memreg_suspect suspect;
	struct memreg_look due;
	struct memreg_look look;
};

int memreg_watch_insert(struct memreg_kwatch *watch,
			const struct memreg_watch_ops *ops,
			struct mm_struct *mm, u64 addr, u64 length,
			bool writable);
void memreg_watch_remove(struct memreg_kwatch *watch);
int memreg_watch_end(struct memreg_kwatch *watch, unsigned long seq);
void memreg_watch_recheck(struct memreg_kwatch *watch);
enum memreg_verdict memreg_watch_page(struct memreg_kwatch *watch,
				      const struct memreg_look *look,
				      unsigned long addr, struct page *page);

/* The type of memreg_watch_page(), which is passed to files below this one. */
typedef enum memreg_verdict (*memreg_watch_page_fn)(struct memreg_kwatch *watch,
						const struct memreg_look *look,
						unsigned long addr,
						struct page *page);

static inline bool memreg_look_is_through(const struct memreg_look *look)
{
	return look->next >= look->end;
}

/**
 * memreg_watch_set_stale() - Mark a watch as stale
 * @watch: The watch, with frwr_lock held
 *
 * Return: false if it was stale already.
 */
static inline bool memreg_watch_set_stale(struct memreg_kwatch *watch)
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
 * memreg_watch_begin() - Begin to pin pages of the mapping
 * @watch: The watch
 *
 * Return: the sequence number for memreg_watch_end().
 */
static inline unsigned long memreg_watch_begin(struct memreg_kwatch *watch)
{
	if (!watch->active)
		return 0;
	return mmu_interval_read_begin(&watch->notifier);
}

#endif /* _MEMREG_WATCH_WATCH_H */
