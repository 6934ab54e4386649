// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows of type 2B: bound and ended on the send queue of an endpoint.
 *
 * A window of type 2B is bound, and ended, by work requests on the send queue
 * of an endpoint, to which it is granted. While it is bound it can be found by
 * its rkey in memreg_grants.bound: an invalidation by the peer counts only if
 * the rkey is there (I5). The key works once the device has executed the
 * REG_MR, which the module learns only when that completes; until then
 * memreg_frwr.abort ends the endpoint if the region becomes stale. A peer that
 * knows the rkey may have invalidated it before the completion was handled:
 * then its end is deferred until the REG_MR has completed. A peer
 * that guesses the rkey may even invalidate it before the REG_MR is executed,
 * so only destroying the MR makes sure that the key of such a window is dead.
 *
 * What the submission of these work requests does is in window_post.c, and what
 * their completions do is here.
 */
#include "conn/teardown_queue.h"
#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/slot.h"
#include "conn/trace.h"
#include "conn/window_2b.h"
#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/frwr.h"
#include "keys/key.h"
#include "mr/bindings.h"
#include "mr/grants.h"
#include "mr/mr.h"
#include "mr/mr_keys.h"
#include "mr/window.h"
#include "quirks.h"
#include "stats.h"

/**
 * memreg_window_end() - End a claimed window
 * @window: The window
 * @idle: Its key is dead, and no packet is in flight
 *
 * Context: may sleep.
 */
void memreg_window_end(struct memreg_window *window, bool idle)
{
	struct memreg_file *file = window->domain->file;

	memreg_window_forget(window);
	if (idle)
		memreg_key_retire(&window->key);
	else
		memreg_key_destroy(&window->key);
	memreg_window_count_revoke(window);
	memreg_window_unbind(file, window);
}

/* Does LOCAL_INV wait for packets that were accepted before it? */
static bool memreg_window_inv_waits(const struct memreg_window *window)
{
	return !(window->domain->mdev->quirks & MEMREG_QUIRK_WEAK_INV);
}

/*
 * Does the peer's invalidation wait for packets that were accepted before it?
 * It is executed in order after the packets of its own connection. If the
 * domain has no other endpoint, no other packets use the key: destroying the
 * QPs of earlier endpoints has waited for their packets, and later endpoints
 * find the key dead.
 */
static bool memreg_window_remote_inv_waits(const struct memreg_window *window)
{
	return memreg_window_inv_waits(window) ||
	       atomic_read_acquire(&window->domain->connections) == 1;
}

/**
 * memreg_window_let_go() - Release the claim of a window
 * @window: The window
 *
 * If the peer has invalidated the window before its BIND completed, and the
 * BIND has completed meanwhile, the window is ended here.
 *
 * Context: may sleep.
 */
void memreg_window_let_go(struct memreg_window *window)
{
	struct memreg_endpoint *ep =
		container_of(window->grants, struct memreg_endpoint, grants);
	struct memreg_file *file = ep->file;
	u32 rkey = window->key.rkey;
	bool mine;

	spin_lock(&file->grant_lock);
	memreg_window_return(window);
	spin_unlock(&file->grant_lock);

	spin_lock_irq(&ep->grants.bound.lock);
	window = memreg_bound_find(&ep->grants.bound, rkey);
	mine = window && window->end_deferred &&
	       !READ_ONCE(window->key.frwr->abort) &&
	       memreg_window_claim(window, MEMREG_WINDOW_BOUND);
	spin_unlock_irq(&ep->grants.bound.lock);
	if (mine)
		memreg_window_end(window, false);
}

/**
 * memreg_window_bound() - Handle a successful BIND
 * @slot: Its slot
 *
 * Context: any.
 * Return: true if the caller has to call memreg_window_end_deferred().
 */
bool memreg_window_bound(const struct memreg_slot *slot)
{
	struct memreg_bindings *bound = &slot->queue->ep->grants.bound;
	struct memreg_window *window;
	unsigned long flags;
	bool end_deferred = false;

	spin_lock_irqsave(&bound->lock, flags);
	/*
	 * A window in the list still has its FRWR; one that is gone needs no
	 * action.
	 */
	window = memreg_bound_find(bound, slot->rkey);
	if (window) {
		end_deferred = window->end_deferred;
		if (!end_deferred)
			WRITE_ONCE(window->key.frwr->abort, NULL);
	}
	spin_unlock_irqrestore(&bound->lock, flags);
	return end_deferred;
}

/**
 * memreg_window_end_deferred() - End a window that its peer has invalidated
 * early
 * @slot: Slot of its BIND, which succeeded
 *
 * Context: may sleep.
 */
void memreg_window_end_deferred(const struct memreg_slot *slot)
{
	struct memreg_bindings *bound = &slot->queue->ep->grants.bound;
	struct memreg_window *window;
	bool mine;

	spin_lock_irq(&bound->lock);
	window = memreg_bound_find(bound, slot->rkey);
	/*
	 * If this fails, an INVALIDATE of the user in flight will end the
	 * window.
	 */
	mine = window && memreg_window_claim(window, MEMREG_WINDOW_BOUND);
	if (window && !mine)
		WRITE_ONCE(window->key.frwr->abort, NULL);
	spin_unlock_irq(&bound->lock);
	if (mine)
		memreg_window_end(window, false);
}

/**
 * memreg_window_invalidated() - An INVALIDATE completed
 * @slot: Its slot
 * @done: It succeeded; otherwise the connection has ended
 *
 * Context: may sleep.
 */
void memreg_window_invalidated(struct memreg_slot *slot, bool done)
{
	struct memreg_window *window = slot->window;

	slot->window = NULL;
	if (done)
		memreg_window_end(window, memreg_window_inv_waits(window));
	else
		memreg_window_let_go(window);
}

/**
 * memreg_window_remote_invalidate() - Handle a peer's report of an invalidated
 * key
 * @ep: Its endpoint, which is ended if the key was not granted to it
 * @rkey: The key
 *
 * Context: may sleep.
 * Return: id of the window that has ended, or will end when its BIND, or an
 * INVALIDATE of the user, has completed; 0 if there is no such window.
 */
u32 memreg_window_remote_invalidate(struct memreg_endpoint *ep, u32 rkey)
{
	struct memreg_kdevice *mdev = ep->file->mdev;
	struct memreg_window *window;
	bool mine = false;
	u32 id = 0;

	spin_lock_irq(&ep->grants.bound.lock);
	window = memreg_bound_find(&ep->grants.bound, rkey);
	/* A window ends only once. */
	if (window && !window->end_deferred) {
		id = window->obj.id;
		mine = !READ_ONCE(window->key.frwr->abort) &&
		       memreg_window_claim(window, MEMREG_WINDOW_BOUND);
		if (mine)
			memreg_bound_remove(&ep->grants.bound, window);
		else
			/*
			 * The BIND of the window, or the user's INVALIDATE,
			 * has yet to complete.
			 */
			WRITE_ONCE(window->end_deferred, true);
	}
	spin_unlock_irq(&ep->grants.bound.lock);
	if (mine)
		memreg_window_end(window,
				  memreg_window_remote_inv_waits(window));
	if (id) {
		memreg_count(mdev, IB_MEMREG_STAT_REMOTE_INVALIDATIONS, 1);
		return id;
	}
	memreg_count(mdev, IB_MEMREG_STAT_BOGUS_INVALIDATIONS, 1);
	trace_memreg_bogus_invalidate(ep, rkey);
	memreg_endpoint_close(ep);
	memreg_mrs_invalidated(ep->file, rkey);
	return 0;
}
