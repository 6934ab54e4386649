// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows of type 2B: bound and ended on the send queue of an endpoint.
 *
 * A window of type 2B is bound, and ended, by work requests on the send queue
 * of an endpoint, to which it is granted. While it is bound it can be found by
 * its rkey in memreg_grants.bound: an invalidation by the peer counts only if
 * the rkey is there (I5). The key works once the device has executed the
 * REG_MR, which the module learns only when that completes; until then
 * memreg_frwr.cut ends the endpoint if the region becomes stale. A peer that
 * knows the rkey may have invalidated it before the completion was handled:
 * then the window is doomed, and ends when the REG_MR has completed. A peer
 * that guesses the rkey may even invalidate it before the REG_MR is executed,
 * so only destroying the MR makes sure that the key of a doomed window is dead.
 */
#include <linux/delay.h>
#include <linux/sched/signal.h>

#include "conn/closer.h"
#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/slot.h"
#include "conn/trace.h"
#include "conn/window_2b.h"
#include "core.h"
#include "device.h"
#include "mem/bindings.h"
#include "mem/domain.h"
#include "mem/frwr.h"
#include "mem/key.h"
#include "mem/mr.h"
#include "mem/window.h"
#include "quirks.h"
#include "stats.h"

/* Longest wait for the end of a window that a peer has invalidated. */
#define MEMREG_DOOMED_MS	1000

static struct memreg_window *memreg_post_window(struct memreg_ucmd *ucmd,
						struct memreg_endpoint *ep,
						u32 id)
{
	struct memreg_object *obj;
	u32 reason;

	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_WINDOW);
	if (!obj)
		return ERR_PTR(memreg_fail(ucmd, -ENOENT,
					   IB_MEMREG_REASON_ID));
	if (memreg_to_window(obj)->type != IB_MEMREG_WINDOW_TYPE2B)
		reason = IB_MEMREG_REASON_WINDOW_TYPE;
	else if (memreg_to_window(obj)->domain != ep->domain)
		reason = IB_MEMREG_REASON_DOMAIN;
	else
		return memreg_to_window(obj);
	memreg_object_put(obj);
	return ERR_PTR(memreg_fail(ucmd, -EINVAL, reason));
}

/* Make the key of a claimed window that has its MR. */
static int memreg_post_make(struct memreg_ucmd *ucmd,
			    struct memreg_endpoint *ep,
			    struct memreg_window *window)
{
	int ret;

	ret = memreg_key_prepare(ep->domain, &window->key, &ep->closing.cut);
	if (ret == -ESTALE)
		ucmd->reason = IB_MEMREG_REASON_STALE;
	if (ret)
		return memreg_charge_reason(ucmd, ret);
	memreg_bound_add(&ep->grants.bound, window);
	return 0;
}

static int memreg_post_claimed(struct memreg_ucmd *ucmd,
			       struct memreg_endpoint *ep,
			       struct memreg_window *window,
			       struct memreg_kmr *mr,
			       const struct ib_memreg_bind *bind)
{
	int ret;

	mr = mr ? memreg_bind_keep_mr(ucmd, mr, bind->access) :
		  memreg_bind_find_mr(ucmd, bind);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	/*
	 * No pages can be pinned here: the extent would have been found before.
	 */
	ret = mr->demand ? memreg_fail(ucmd, -EAGAIN,
				       IB_MEMREG_REASON_UNSTEADY) :
			   memreg_bind_describe(ucmd, window, mr, bind);
	if (ret)
		goto err_put;
	if (!memreg_window_tie(ucmd->file, window, &ep->grants)) {
		ret = memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
		goto err_put;
	}
	ret = memreg_post_make(ucmd, ep, window);
	if (ret)
		goto err_untie;
	window->mr = mr;
	window->mr_id = mr->obj.id;
	memreg_mr_count_windows(mr, 1);
	return 0;

err_untie:
	memreg_window_untie(ucmd->file, window);
err_put:
	memreg_object_put(&mr->obj);
	return ret;
}

/*
 * Claim a window to bind it. The user may bind a doomed window again already,
 * once the peer has answered work that was posted after its BIND: that BIND is
 * about to complete, so wait for it.
 */
static bool memreg_post_claim(struct memreg_endpoint *ep,
			      struct memreg_window *window)
{
	unsigned int ms;

	for (ms = 0; ms < MEMREG_DOOMED_MS; ms++) {
		if (memreg_window_claim(window, MEMREG_WINDOW_IDLE))
			return true;
		/* The window may have ended just now. */
		if (!READ_ONCE(window->doomed))
			break;
		if (fatal_signal_pending(current))
			break;
		memreg_ring_flush(ep->send->ring);
		if (memreg_window_claim(window, MEMREG_WINDOW_IDLE))
			return true;
		usleep_range(1000, 2000);
	}
	return memreg_window_claim(window, MEMREG_WINDOW_IDLE);
}

/**
 * memreg_window_post_bind() - Prepare a BIND
 * @ucmd: Call that submits it
 * @ep: Endpoint whose send queue it is for, the queue's lock held
 * @wr: The work request
 * @mr: An MR that the call holds, which is used if it is the right one; or NULL
 * @slot: Its slot
 *
 * On success other calls see the window as bound.
 *
 * Context: may sleep.
 * Return: 0, or an errno that SUBMIT documents.
 */
int memreg_window_post_bind(struct memreg_ucmd *ucmd,
			    struct memreg_endpoint *ep,
			    const struct ib_memreg_wr *wr,
			    struct memreg_kmr *mr, struct memreg_slot *slot)
{
	const struct ib_memreg_bind bind = {
		.mr_id = wr->sge.mr_id,
		.offset = wr->sge.offset,
		.length = wr->sge.length,
		.access = wr->access,
	};
	struct memreg_window *window;
	int ret;

	window = memreg_post_window(ucmd, ep, wr->window_id);
	if (IS_ERR(window))
		return PTR_ERR(window);
	if (!memreg_post_claim(ep, window)) {
		ret = memreg_fail(ucmd, -EBUSY, IB_MEMREG_REASON_BOUND_WINDOW);
		goto err_put;
	}
	if (mr && mr->obj.id != bind.mr_id)
		mr = NULL;
	ret = memreg_post_claimed(ucmd, ep, window, mr, &bind);
	if (ret) {
		memreg_window_unclaim(window, MEMREG_WINDOW_IDLE);
		goto err_put;
	}
	slot->window = window;
	slot->window_id = window->obj.id;
	slot->rkey = window->key.rkey;
	memreg_count(ucmd->mdev, IB_MEMREG_STAT_WINDOWS_BOUND, 1);
	memreg_window_trace_bind(window);
	memreg_window_unclaim(window, MEMREG_WINDOW_BOUND);
	return 0;

err_put:
	memreg_object_put(&window->obj);
	return ret;
}

/* End a claimed window. @rests: its key is dead, and no packet is in flight. */
static void memreg_window_end(struct memreg_window *window, bool rests)
{
	struct memreg_file *file = window->domain->file;

	memreg_window_forget(window);
	if (rests)
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

/*
 * Release the claim of a window. If the peer has invalidated the window before
 * its BIND completed, and the BIND has completed meanwhile, end the window
 * here.
 */
static void memreg_window_let_go(struct memreg_window *window)
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
	mine = window && window->doomed && !READ_ONCE(window->key.frwr->cut) &&
	       memreg_window_claim(window, MEMREG_WINDOW_BOUND);
	spin_unlock_irq(&ep->grants.bound.lock);
	if (mine)
		memreg_window_end(window, false);
}

/* Claim a window to end it, if it is bound on this endpoint. */
static int memreg_post_claim_bound(struct memreg_ucmd *ucmd,
				   struct memreg_endpoint *ep,
				   struct memreg_window *window)
{
	bool mine, claimed = false;

	spin_lock(&ep->file->grant_lock);
	mine = window->grants == &ep->grants;
	if (mine)
		claimed = memreg_window_claim(window, MEMREG_WINDOW_BOUND);
	spin_unlock(&ep->file->grant_lock);
	if (!claimed)
		return memreg_fail(ucmd, -EBUSY,
				   IB_MEMREG_REASON_BOUND_WINDOW);
	if (memreg_key_invalidable(&window->key))
		return 0;
	memreg_window_let_go(window);
	return memreg_fail(ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
}

/**
 * memreg_window_post_invalidate() - Prepare an INVALIDATE
 * @ucmd: Call that submits it
 * @ep: Endpoint whose send queue it is for, the queue's lock held
 * @wr: The work request
 * @slot: Its slot
 *
 * Return: 0, or an errno that SUBMIT documents.
 */
int memreg_window_post_invalidate(struct memreg_ucmd *ucmd,
				  struct memreg_endpoint *ep,
				  const struct ib_memreg_wr *wr,
				  struct memreg_slot *slot)
{
	struct memreg_window *window;
	int ret;

	window = memreg_post_window(ucmd, ep, wr->window_id);
	if (IS_ERR(window))
		return PTR_ERR(window);
	ret = memreg_post_claim_bound(ucmd, ep, window);
	if (!ret) {
		slot->window = window;
		slot->window_id = window->obj.id;
		slot->rkey = window->key.rkey;
	}
	/* A bound window holds a reference of itself. */
	memreg_object_put(&window->obj);
	return ret;
}

/**
 * memreg_window_post_undo() - Undo a BIND or INVALIDATE that was not posted
 * @slot: Its slot, which the device did not take
 *
 * Context: may sleep.
 */
void memreg_window_post_undo(struct memreg_slot *slot)
{
	struct memreg_window *window = slot->window;

	if (!window)
		return;
	if (slot->opcode == IB_MEMREG_OP_INVALIDATE) {
		memreg_window_let_go(window);
		return;
	}
	/* No other call can claim the window while the queue's lock is held. */
	if (WARN_ON(!memreg_window_claim(window, MEMREG_WINDOW_BOUND)))
		return;
	memreg_window_end(window, false);
}

/**
 * memreg_window_key() - Get the key of a window that will be posted
 * @window: Window of a slot, before the slot is posted
 *
 * Return: its key.
 */
const struct memreg_key *memreg_window_key(const struct memreg_window *window)
{
	return &window->key;
}

/**
 * memreg_window_bound() - Handle a successful BIND
 * @slot: Its slot
 *
 * Context: any.
 * Return: true if the caller has to call memreg_window_doomed().
 */
bool memreg_window_bound(const struct memreg_slot *slot)
{
	struct memreg_bindings *bound = &slot->queue->ep->grants.bound;
	struct memreg_window *window;
	unsigned long flags;
	bool doomed = false;

	spin_lock_irqsave(&bound->lock, flags);
	/*
	 * A window in the list still has its FRWR; one that is gone needs no
	 * action.
	 */
	window = memreg_bound_find(bound, slot->rkey);
	if (window) {
		doomed = window->doomed;
		if (!doomed)
			WRITE_ONCE(window->key.frwr->cut, NULL);
	}
	spin_unlock_irqrestore(&bound->lock, flags);
	return doomed;
}

/**
 * memreg_window_doomed() - End a window that its peer has invalidated early
 * @slot: Slot of its BIND, which succeeded
 *
 * Context: may sleep.
 */
void memreg_window_doomed(const struct memreg_slot *slot)
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
		WRITE_ONCE(window->key.frwr->cut, NULL);
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
 * @ep: Its endpoint, which is cut off if the key was not granted to it
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
	if (window && !window->doomed) {
		id = window->obj.id;
		mine = !READ_ONCE(window->key.frwr->cut) &&
		       memreg_window_claim(window, MEMREG_WINDOW_BOUND);
		if (mine)
			memreg_bound_remove(&ep->grants.bound, window);
		else
			/*
			 * The BIND of the window, or the user's INVALIDATE,
			 * has yet to complete.
			 */
			WRITE_ONCE(window->doomed, true);
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
	return 0;
}
