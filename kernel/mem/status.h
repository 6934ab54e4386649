/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Status tables: what a process sees of the validity of registrations.
 */
#ifndef _MEMREG_MEM_STATUS_H
#define _MEMREG_MEM_STATUS_H

#include <linux/list.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "core.h"

struct page;

/**
 * struct memreg_status - A status table
 * @obj: Head; its users are monitors, and MRs that have a slot
 * @refs: One of the object, one of its descriptor, one of each worker that is
 *	to come
 * @mm: The address space that it is about; kept
 * @lock: Protects the fields below, and all that is in @shared; taken by mmu
 *	notifiers
 * @size: Bytes that can be mapped
 * @slots: Number of slots
 * @next: Where to look for a free slot
 * @used: Slots that are not free
 * @wide: It has a wide monitor
 * @seen: The number of changes that was last read from the descriptor
 * @wait: Readers and pollers of the descriptor
 * @wake: Wakes them
 * @suspects: Monitors to look at: see kernel/mem/monitor.c
 * @suspect_node: In its list of tables that have some
 * @shared: What the process sees
 * @slot: The slots in @shared
 * @groups: The groups in @shared
 * @log: The log in @shared
 * @blank: What all others see
 */
struct memreg_status {
	struct memreg_object obj;
	refcount_t refs;
	struct mm_struct *mm;
	spinlock_t lock;
	size_t size;
	u32 slots;
	u32 next;
	unsigned long *used;
	bool wide;
	u64 seen;
	wait_queue_head_t wait;
	struct work_struct wake;
	struct list_head suspects;
	struct list_head suspect_node;
	struct ib_memreg_status_table *shared;
	struct ib_memreg_status_slot *slot;
	u64 *groups;
	struct ib_memreg_change *log;
	struct page *blank;
};

int memreg_status_init(void);
void memreg_status_exit(void);
int memreg_status_create_ioctl(struct memreg_ucmd *ucmd);
void memreg_status_hold(struct memreg_status *status);
void memreg_status_release(struct memreg_status *status);
struct memreg_status *memreg_status_get(struct memreg_ucmd *ucmd, u32 id);
void memreg_status_put(struct memreg_status *status);
int memreg_status_take_slot(struct memreg_status *status, u32 *slot);
void memreg_status_give_slot(struct memreg_status *status, u32 slot);
void __memreg_status_change(struct memreg_status *status, u32 slot);
void memreg_status_change(struct memreg_status *status, u32 slot);
void memreg_status_log_range(struct memreg_status *status, u64 start, u64 end);
void memreg_status_suspect(struct memreg_status *status, u32 slot);
void memreg_status_wake(struct memreg_status *status);

/* The generation of a slot that the caller has. */
static inline u64 memreg_status_generation(const struct memreg_status *status,
					   u32 slot)
{
	return READ_ONCE(status->slot[slot].generation);
}

/* Add one to what the process reads of a table. Its lock is held. */
static inline void memreg_status_count(struct memreg_status *status,
				       __u64 *counter)
{
	lockdep_assert_held(&status->lock);
	/* Whoever reads it sees what was written before. */
	smp_store_release(counter, *counter + 1);
}

extern const struct memreg_object_ops memreg_status_ops;

#endif /* _MEMREG_MEM_STATUS_H */
