// SPDX-License-Identifier: GPL-2.0-only
/*
 * Submission of the work requests that bind and end windows of type 2B: see
 * window_2b.c.
 */
#include <linux/delay.h>
#include <linux/sched/signal.h>

#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/slot.h"
#include "conn/submit_wr.h"
#include "conn/window_2b.h"
#include "core.h"
#include "device.h"
#include "keys/key.h"
#include "mr/bindings.h"
#include "mr/grants.h"
#include "mr/mr.h"
#include "mr/window.h"
#include "stats.h"

/* Longest wait for the end of a window that a peer has invalidated. */
#define MEMREG_DEFERRED_MS	1000

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

	ret = memreg_key_prepare(ep->domain, &window->key, &ep->teardown.abort);
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

	mr = mr ? memreg_bind_keep_mr(ucmd, mr, bind) :
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
 * Claim a window to bind it. The user may bind such a window again already,
 * once the peer has answered work that was posted after its BIND: that BIND is
 * about to complete, so wait for it.
 */
static bool memreg_post_claim(struct memreg_endpoint *ep,
			      struct memreg_window *window)
{
	unsigned int ms;

	for (ms = 0; ms < MEMREG_DEFERRED_MS; ms++) {
		if (memreg_window_claim(window, MEMREG_WINDOW_IDLE))
			return true;
		/* The window may have ended just now. */
		if (!READ_ONCE(window->end_deferred))
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
	const struct ib_memreg_bind bind = memreg_wr_bind(wr);
	struct memreg_window *window;
	int ret;

	window = memreg_post_window(ucmd, ep, wr->window_id);
	if (IS_ERR(window))
		return PTR_ERR(window);
	if (!memreg_post_claim(ep, window)) {
		ret = memreg_fail(ucmd, -EBUSY,
				  memreg_window_is_bound(window) ?
				  IB_MEMREG_REASON_BOUND_WINDOW :
				  IB_MEMREG_REASON_BUSY_WINDOW);
		goto err_put;
	}
	if (mr && mr->obj.id != bind.mr_id)
		mr = NULL;
	ret = memreg_bind_lease(ucmd, window, wr->lease_id) ?:
	      memreg_post_claimed(ucmd, ep, window, mr, &bind);
	if (ret) {
		memreg_window_untie(ucmd->file, window);
		memreg_window_unclaim(window, MEMREG_WINDOW_IDLE);
		goto err_put;
	}
	memreg_count(ucmd->mdev, IB_MEMREG_STAT_WINDOWS_BOUND, 1);
	memreg_window_trace_bind(window);
	if (!memreg_window_tie_lease(ucmd->file, window)) {
		/* Gives up the reference as well. */
		memreg_window_end(window, false);
		return memreg_fail(ucmd, -ESTALE,
				   IB_MEMREG_REASON_LEASE_ENDED);
	}
	slot->window = window;
	slot->window_id = window->obj.id;
	slot->rkey = window->key.rkey;
	memreg_window_unclaim(window, MEMREG_WINDOW_BOUND);
	return 0;

err_put:
	memreg_object_put(&window->obj);
	return ret;
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
		return memreg_fail(ucmd, -EBUSY, mine ?
				   IB_MEMREG_REASON_BUSY_WINDOW :
				   IB_MEMREG_REASON_UNBOUND_WINDOW);
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
	struct memreg_file *file;
	bool mine;

	if (!window)
		return;
	if (slot->opcode == IB_MEMREG_OP_INVALIDATE) {
		memreg_window_let_go(window);
		return;
	}
	/*
	 * No other call can claim the window while the queue's lock is held.
	 * The end of its lease gives it back before it releases the grant_lock.
	 */
	file = slot->queue->ep->file;
	spin_lock(&file->grant_lock);
	mine = memreg_window_claim(window, MEMREG_WINDOW_BOUND);
	spin_unlock(&file->grant_lock);
	if (WARN_ON(!mine))
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
