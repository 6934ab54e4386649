/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Completion rings: memory that kernel and user share.
 */
#ifndef _MEMREG_CONN_RING_H
#define _MEMREG_CONN_RING_H

#include <linux/atomic.h>
#include <linux/dim.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "core.h"
#include "device.h"
#include "user_work.h"
#include "usermem.h"

struct eventfd_ctx;

/* Completions that are taken off a completion queue by one call. */
#define MEMREG_RING_WCS		8

/*
 * Slots that are handled with interrupts off; one with many SGEs counts for
 * several, see memreg_slot_cost().
 */
#define MEMREG_RING_BUDGET	64U

/**
 * struct memreg_kring - A completion ring
 * @obj: Head
 * @refs: One for the object, one for its descriptor
 * @mdev: The device; must not be used once @dead
 * @cq: Completion queue with as many entries, and one for each of @max_senders
 * @memory: The memory that user space maps
 * @shared: The same; entries included
 * @entries: The entries in @shared
 * @nr_entries: Number of entries, a power of two
 * @entry_size: Bytes of each
 * @max_senders: Most send queues that it can serve: for each, @cq has room for
 *	a marker
 * @senders: Send queues that it serves
 * @claimed: Number of entries written and reserved so far; wraps around
 * @producer: Number of entries written so far; wraps around; written with @lock
 * @shown: Number of entries that user space can see so far
 * @lock: Held to poll @cq
 * @dead: @cq is destroyed; @lock
 * @wcs: Completions that were taken off @cq; @lock
 * @taken: Completions that were reported so far, wrapping; @lock
 * @wc_next: Index of the first one in @wcs that is not handled; @lock
 * @wc_count: Number of completions in @wcs; @lock
 * @wc_handled: The completion at @wc_next was held, and can be handled now;
 *	@lock
 * @held: The completion at @wc_next needs a context that may sleep, and all
 *	others wait; @lock
 * @handling: A task is handling the held completion; @lock
 * @ended: Commands of io_uring that end as soon as the room of their slots is
 *	freed; @lock
 * @waiters: Number of tasks that sleep in RING_WAIT
 * @poller: Sleeping task that is woken to poll @cq, or NULL
 * @wait: Wait queue of tasks in RING_WAIT, and of pollers of the descriptor
 * @handled: Wait queue for the end of @handling
 * @eventfd: eventfd to signal, or NULL
 * @irq: Polls @cq as soon as interrupts are on
 * @work: Polls @cq if that takes long, or has to sleep
 * @timer: Polls @cq a little later
 * @delay_us: Delay of @timer in microseconds; 0: poll at once
 * @moderated: @delay_us, or the device's moderation, follows the load
 * @dim: State of the moderation
 * @charge: CQ in the rdma cgroup
 */
struct memreg_kring {
	struct memreg_object obj;
	refcount_t refs;
	struct memreg_kdevice *mdev;
	struct ib_cq *cq;
	struct memreg_usermem memory;
	struct ib_memreg_ring *shared;
	void *entries;
	u32 nr_entries;
	u32 entry_size;
	u32 max_senders;
	atomic_t senders;
	atomic_t claimed;
	u32 producer;
	u32 shown;
	spinlock_t lock;
	bool dead;
	struct ib_wc wcs[MEMREG_RING_WCS];
	u32 taken;
	unsigned int wc_next;
	unsigned int wc_count;
	bool wc_handled;
	bool held;
	bool handling;
	struct list_head ended;
	atomic_t waiters;
	struct task_struct *poller;
	wait_queue_head_t wait;
	wait_queue_head_t handled;
	struct eventfd_ctx *eventfd;
	struct irq_work irq;
	struct memreg_user_work work;
	struct hrtimer timer;
	u32 delay_us;
	bool moderated;
	struct dim dim;
	struct memreg_charge charge;
};

/* Most bytes of a message that an entry has room for. */
static inline u32 memreg_ring_data_size(const struct memreg_kring *ring)
{
	return ring->entry_size - offsetof(struct ib_memreg_cqe, data);
}

/* Most bytes of a message inside an entry of the larger size. */
#define MEMREG_INLINE_RECEIVE	(128 - offsetof(struct ib_memreg_cqe, data))

/* Entries of the largest ring. */
static inline u32 memreg_ring_max(struct memreg_kdevice *mdev)
{
	return rounddown_pow_of_two(min_t(u32, mdev->ibdev->attrs.max_cqe - 1,
					  IB_MEMREG_RING_ENTRIES_MAX));
}

int memreg_ring_create_ioctl(struct memreg_ucmd *ucmd);
void memreg_ring_hold(struct memreg_kring *ring);
void memreg_ring_release(struct memreg_kring *ring);
struct memreg_kring *memreg_ring_get(struct memreg_ucmd *ucmd, u32 id);
void memreg_ring_put(struct memreg_kring *ring);
bool memreg_ring_claim(struct memreg_kring *ring, u32 count);
void memreg_ring_unclaim(struct memreg_kring *ring, u32 count);
void memreg_ring_wake(struct memreg_kring *ring);
void memreg_ring_flush(struct memreg_kring *ring);
extern const struct memreg_object_ops memreg_ring_ops;

/*
 * Get the next reserved entry of a ring. The caller writes all of its fields
 * except the data. The user sees it after memreg_ring_wake().
 */
static inline struct ib_memreg_cqe *memreg_ring_entry(struct memreg_kring *ring)
{
	u32 index = ring->producer & (ring->nr_entries - 1);

	lockdep_assert_held(&ring->lock);

	WRITE_ONCE(ring->producer, ring->producer + 1);
	return ring->entries + (size_t)index * ring->entry_size;
}

#endif /* _MEMREG_CONN_RING_H */
