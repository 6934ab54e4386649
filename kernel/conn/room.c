// SPDX-License-Identifier: GPL-2.0-only
/*
 * The entries of completion rings, for the queues that report in them. The
 * rings themselves are in ring.c.
 *
 * @claimed counts the entries that were written, and those that are reserved
 * for work requests which have not completed. It is ahead of the user's index
 * by at most the number of entries in the ring, so no future completion can
 * overwrite an entry that the user has not read (I10). The completion queue has
 * as many entries, and hence room for all completions. The user's index in the
 * shared memory is read in one place, once for each decision, and is used only
 * if it is in the valid range.
 */
#include <linux/eventfd.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/slab.h>

#include "conn/ring.h"
#include "core.h"

/**
 * memreg_ring_claim() - Reserve entries
 * @ring: The ring
 * @count: Their number
 *
 * Context: any.
 * Return: true if there was room for all of them.
 */
bool memreg_ring_claim(struct memreg_kring *ring, u32 count)
{
	/* Read before @producer, so that a valid index is never ahead of it. */
	u32 consumer = smp_load_acquire(&ring->shared->consumer);
	u32 producer = READ_ONCE(ring->producer);
	int claimed = atomic_read(&ring->claimed);

	if (producer - consumer > ring->nr_entries)
		return false;
	do {
		if ((u32)claimed + count - consumer > ring->nr_entries)
			return false;
	} while (!atomic_try_cmpxchg(&ring->claimed, &claimed,
				     claimed + count));
	return true;
}

/**
 * memreg_ring_unclaim() - Release reserved entries that will not be written
 * @ring: The ring
 * @count: Their number
 *
 * Context: any.
 */
void memreg_ring_unclaim(struct memreg_kring *ring, u32 count)
{
	if (count)
		atomic_sub(count, &ring->claimed);
}

/**
 * memreg_ring_wake() - Make written entries visible to the user
 * @ring: The ring
 *
 * Context: any, with memreg_kring.lock held.
 */
void memreg_ring_wake(struct memreg_kring *ring)
{
	struct ib_memreg_ring *shared = ring->shared;
	bool more;

	lockdep_assert_held(&ring->lock);

	more = ring->shown != ring->producer;
	if (more)
		WRITE_ONCE(shared->cpu, raw_smp_processor_id());
	/* The entries become visible before the index that covers them. */
	smp_store_release(&shared->producer, ring->producer);
	/* memreg_ring_pending() counts only visible entries. */
	smp_store_release(&ring->shown, ring->producer);
	/* A sleeper either saw the old @shown, or sees this one. */
	if (wq_has_sleeper(&ring->wait))
		wake_up_poll(&ring->wait, EPOLLIN | EPOLLRDNORM);
	if (more && ring->eventfd &&
	    !(READ_ONCE(shared->flags) & IB_MEMREG_RING_QUIET))
		eventfd_signal(ring->eventfd);
}

/**
 * memreg_ring_hold() - Take a reference of the memory of a ring
 * @ring: Ring with a reference that the caller can rely on
 */
void memreg_ring_hold(struct memreg_kring *ring)
{
	refcount_inc(&ring->refs);
}

/**
 * memreg_ring_release() - Drop a reference of the memory of a ring
 * @ring: The ring
 *
 * Context: may sleep.
 */
void memreg_ring_release(struct memreg_kring *ring)
{
	if (!refcount_dec_and_test(&ring->refs))
		return;
	if (ring->eventfd)
		eventfd_ctx_put(ring->eventfd);
	memreg_usermem_free(&ring->memory);
	kfree(ring);
}

/**
 * memreg_ring_get() - Find a ring and take a reference
 * @ucmd: Call that names the ring
 * @id: Its id
 *
 * Return: the ring, or ERR_PTR(-ENOENT) with the reason set.
 */
struct memreg_kring *memreg_ring_get(struct memreg_ucmd *ucmd, u32 id)
{
	struct memreg_object *obj;

	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_RING);
	if (!obj) {
		ucmd->reason = IB_MEMREG_REASON_ID;
		return ERR_PTR(-ENOENT);
	}
	return container_of(obj, struct memreg_kring, obj);
}

/**
 * memreg_ring_put() - Drop a reference of a ring
 * @ring: The ring
 */
void memreg_ring_put(struct memreg_kring *ring)
{
	memreg_object_put(&ring->obj);
}
