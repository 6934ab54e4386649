/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Status tables: memory in which a process sees which registrations are valid.
 */
#ifndef _MEMREG_WATCH_STATUS_H
#define _MEMREG_WATCH_STATUS_H

#include <linux/list.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "core.h"
#include "usermem.h"

struct memreg_space;

/**
 * struct memreg_kstatus - A status table
 * @obj: Head; monitors, and MRs that have a slot, hold references
 * @refs: One for the object, one for its descriptor, one for each queued worker
 * @mm: The address space that it describes; holds a reference
 * @space: The memreg_space of @mm
 * @lock: Protects the fields below, and the memory @shared; taken by mmu
 *	notifiers
 * @slots: Number of slots
 * @next: Slot at which the search for a free one starts
 * @used: Bitmap of the slots in use
 * @wide: It has a wide monitor
 * @seen: Number of changes that the last read of the descriptor returned
 * @wait: Readers and pollers of the descriptor
 * @wake: Work that wakes @wait
 * @memory: The memory that the process maps; other processes map a page of
 *	zeros
 * @shared: The same
 * @slot: The slots in @shared
 * @groups: The groups in @shared
 * @log: The log in @shared
 */
struct memreg_kstatus {
	struct memreg_object obj;
	refcount_t refs;
	struct mm_struct *mm;
	struct memreg_space *space;
	spinlock_t lock;
	u32 slots;
	u32 next;
	unsigned long *used;
	bool wide;
	u64 seen;
	wait_queue_head_t wait;
	struct work_struct wake;
	struct memreg_usermem memory;
	struct ib_memreg_status_table *shared;
	struct ib_memreg_status_slot *slot;
	u64 *groups;
	struct ib_memreg_change *log;
};

int memreg_status_create_ioctl(struct memreg_ucmd *ucmd);
struct memreg_kstatus *memreg_status_get(struct memreg_ucmd *ucmd, u32 id);
void memreg_status_put(struct memreg_kstatus *status);
struct memreg_kstatus *memreg_status_reserve(struct memreg_ucmd *ucmd, u32 id,
					     u32 *slot);
int memreg_status_take_slot(struct memreg_kstatus *status, u32 *slot);
void memreg_status_give_slot(struct memreg_kstatus *status, u32 slot);
void __memreg_status_change(struct memreg_kstatus *status, u32 slot);
void memreg_status_change(struct memreg_kstatus *status, u32 slot);
void memreg_status_log_range(struct memreg_kstatus *status, u64 start, u64 end);
void memreg_status_suspect(struct memreg_kstatus *status, u32 slot);
void memreg_status_wake(struct memreg_kstatus *status);

/* The generation of a slot that the caller owns. */
static inline u64 memreg_status_generation(const struct memreg_kstatus *status,
					   u32 slot)
{
	return READ_ONCE(status->slot[slot].generation);
}

/* Increment a counter that the process reads in a table, whose lock is held. */
static inline void memreg_status_count(struct memreg_kstatus *status,
				       __u64 *counter)
{
	lockdep_assert_held(&status->lock);
	/* A reader of the new value sees all writes before it. */
	smp_store_release(counter, *counter + 1);
}

extern const struct memreg_object_ops memreg_status_ops;

#endif /* _MEMREG_WATCH_STATUS_H */
