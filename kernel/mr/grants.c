// SPDX-License-Identifier: GPL-2.0-only
/*
 * Grants: the windows of an endpoint, and their end.
 *
 * A window may be granted to an endpoint: it is then on the endpoint's list
 * while it is bound, and is revoked when the connection ends. The end of the
 * connection claims the window as ENDING, and a call that revokes the window
 * waits for that: a peer can disconnect at any time, and this must not make
 * calls of the window's owner fail. A task that has claimed a window as ENDING
 * waits for no other task, so the wait is bounded. The end of a lease claims
 * windows in the same way: see lease.c.
 */
#include <linux/list.h>
#include <linux/timekeeping.h>
#include <linux/wait.h>
#include <linux/wait_bit.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/key.h"
#include "mr/bindings.h"
#include "mr/grants.h"
#include "mr/lease.h"
#include "mr/mr.h"
#include "mr/trace.h"
#include "mr/window.h"
#include "stats.h"

/**
 * memreg_grants_init() - Initialize the list of an endpoint's windows
 * @grants: The list of a new endpoint
 * @obj: The endpoint
 * @abort: Work that ends its connection
 */
void memreg_grants_init(struct memreg_grants *grants,
			struct memreg_object *obj, struct work_struct *abort)
{
	grants->obj = obj;
	grants->abort = abort;
	obj->grants = grants;
	INIT_LIST_HEAD(&grants->windows);
	INIT_LIST_HEAD(&grants->claimed);
	init_waitqueue_head(&grants->wait);
	memreg_bindings_init(&grants->bound);
}

/**
 * memreg_grants_abort() - End a connection, as a window must not stay bound
 * @grants: The endpoint's windows
 *
 * Context: with memreg_file.grant_lock held, and a window tied to the endpoint.
 */
void memreg_grants_abort(struct memreg_grants *grants)
{
	memreg_work_queue(MEMREG_WORK_KILL, grants->abort);
}

/*
 * Ties to endpoints
 */

/* Tie a claimed window to an endpoint, with the grant_lock held. */
void memreg_window_tie_locked(struct memreg_window *window,
			      struct memreg_grants *grants)
{
	window->grants = grants;
	/* At the front, where memreg_window_revoke_plain() searches. */
	if (window->type == IB_MEMREG_WINDOW_TYPE1)
		list_move(&window->grant_node, &grants->windows);
	else
		list_move_tail(&window->grant_node, &grants->windows);
}

/**
 * memreg_window_give_back() - Release the claim of the end of a lease, if the
 * window stays bound for now
 * @window: Window that the caller has claimed; memreg_file.grant_lock is held
 */
void memreg_window_give_back(struct memreg_window *window)
{
	struct memreg_grants *grants = window->grants;

	if (grants)
		memreg_window_tie_locked(window, grants);
	/* From here on the window belongs to whoever claims it. */
	memreg_window_unclaim(window, MEMREG_WINDOW_BOUND);
	/* An endpoint that is closing waits to claim the window. */
	if (grants && wq_has_sleeper(&grants->wait))
		wake_up_all(&grants->wait);
}

/**
 * memreg_window_return() - Release the claim of a window that stays bound
 * @window: Window that the caller has claimed; memreg_file.grant_lock is held
 */
void memreg_window_return(struct memreg_window *window)
{
	if (window->lease)
		memreg_lease_return(window->lease, &window->lease_node);
	memreg_window_give_back(window);
}

static bool memreg_grants_are_gone(const struct memreg_grants *grants)
{
	return list_empty(&grants->windows) && list_empty(&grants->claimed);
}

/**
 * memreg_window_tie() - Grant a window to an endpoint
 * @file: The file
 * @window: Window that the caller has claimed
 * @grants: The endpoint's windows
 *
 * Return: false if the endpoint's connection has ended.
 */
bool memreg_window_tie(struct memreg_file *file, struct memreg_window *window,
		       struct memreg_grants *grants)
{
	bool open;

	spin_lock(&file->grant_lock);
	open = !grants->closed;
	if (open)
		memreg_window_tie_locked(window, grants);
	spin_unlock(&file->grant_lock);
	return open;
}

/**
 * memreg_window_tie_lease() - Have a window end with its lease
 * @file: The file
 * @window: Window that the caller has claimed; it need not have a lease
 *
 * Return: false if the time of the lease is over.
 */
bool memreg_window_tie_lease(struct memreg_file *file,
			     struct memreg_window *window)
{
	struct memreg_lease *lease = window->lease;
	bool over;

	if (!lease)
		return true;
	spin_lock(&file->grant_lock);
	over = memreg_lease_is_over(lease, ktime_get_boottime_ns());
	if (!over)
		memreg_lease_tie(lease, &window->lease_node, &lease->windows);
	spin_unlock(&file->grant_lock);
	return !over;
}

/* Untie a window from an endpoint, with the grant_lock held. */
static void memreg_window_untie_locked(struct memreg_window *window)
{
	struct memreg_grants *grants = window->grants;

	list_del_init(&window->grant_node);
	if (memreg_grants_are_gone(grants) && wq_has_sleeper(&grants->wait))
		wake_up_all(&grants->wait);
	window->grants = NULL;
}

/**
 * memreg_window_untie() - Undo memreg_window_tie(), and give up a lease
 * @file: The file
 * @window: Window that the caller has claimed; it need not be tied to an
 *   endpoint, nor have a lease
 *
 * The endpoint stays while the lock is held, as its destruction checks the list
 * under the lock.
 */
void memreg_window_untie(struct memreg_file *file,
			 struct memreg_window *window)
{
	/* Only the task that has claimed a window ties or unties it. */
	if (!window->grants && !window->lease)
		return;
	spin_lock(&file->grant_lock);
	if (window->grants)
		memreg_window_untie_locked(window);
	if (window->lease)
		memreg_lease_untie(window->lease, &window->lease_node);
	window->lease = NULL;
	spin_unlock(&file->grant_lock);
}

/*
 * The end of a binding
 */

static void memreg_window_trace_revoke(const struct memreg_window *window)
{
	trace_memreg_window_revoke(window->domain, window->obj.id,
				   window->mr_id, &window->key);
}

/**
 * memreg_window_count_revoke() - Count and trace that a window is revoked
 * @window: Window that the caller has claimed
 */
void memreg_window_count_revoke(const struct memreg_window *window)
{
	memreg_count(window->domain->mdev, IB_MEMREG_STAT_WINDOWS_REVOKED, 1);
	memreg_window_trace_revoke(window);
}

/**
 * memreg_window_unbind() - Make a window unbound and IDLE
 * @file: The file
 * @window: Window that the caller has claimed and whose key is dead; for type
 *	2B, after memreg_window_forget()
 */
void memreg_window_unbind(struct memreg_file *file,
			  struct memreg_window *window)
{
	bool type2 = window->type == IB_MEMREG_WINDOW_TYPE2B;
	struct memreg_kmr *mr = window->mr;

	memreg_window_untie(file, window);
	window->mr = NULL;
	memreg_mr_count_windows(mr, -1);
	memreg_object_put(&mr->obj);
	memreg_window_unclaim(window, MEMREG_WINDOW_IDLE);
	/* A window of type 2B holds a reference of itself while it is bound. */
	if (type2)
		memreg_object_put(&window->obj);
}

/*
 * Kill the keys of claimed windows, and make the windows IDLE. @keys has room
 * for as many pointers.
 */
void memreg_revoke_claimed(struct memreg_file *file,
			   struct memreg_domain *domain,
			   struct memreg_window **windows,
			   struct memreg_key **keys, u32 count, bool relaxed)
{
	u32 i, left = 0, gone = count;

	for (i = 0; i < count; i++) {
		struct memreg_window *window = windows[i];

		if (window->type != IB_MEMREG_WINDOW_TYPE2B) {
			keys[left++] = &window->key;
			continue;
		}
		/* A REG_MR on an endpoint's queue may have been flushed. */
		memreg_window_forget(window);
		keys[--gone] = &window->key;
	}
	memreg_keys_destroy(keys + gone, count - gone);
	if (relaxed)
		memreg_keys_revoke_relaxed(domain, keys, left);
	else
		memreg_keys_revoke(domain, keys, left);
	memreg_count(domain->mdev, IB_MEMREG_STAT_WINDOWS_REVOKED, count);
	for (i = 0; i < count; i++) {
		memreg_window_trace_revoke(windows[i]);
		memreg_window_unbind(file, windows[i]);
	}
}

/*
 * The end of a connection
 */

/* Windows that are looked at with the lock held. */
#define MEMREG_GRANTS_LOOK	64

/*
 * Claim a window at the end of its endpoint's connection. One that another call
 * has claimed is not looked at again, unless it returns.
 */
static bool memreg_grants_claim_one(struct memreg_grants *grants,
				    struct memreg_window *window)
{
	/* A window without users is being destroyed, which revokes it. */
	if (refcount_inc_not_zero(&window->obj.users)) {
		if (memreg_window_claim_ending(window))
			return true;
		memreg_object_put(&window->obj);
	}
	list_move(&window->grant_node, &grants->claimed);
	return false;
}

/*
 * Claim some of the first windows, with the grant_lock held. Returns their
 * number, and the number of windows that were looked at in @looks.
 */
static int memreg_grants_claim_some(struct memreg_grants *grants, bool plain,
				    struct memreg_window **windows, int *looks)
{
	struct memreg_window *window, *next;
	int n = 0;

	list_for_each_entry_safe(window, next, &grants->windows, grant_node) {
		if (n == MEMREG_GRANTS_BATCH || *looks == MEMREG_GRANTS_LOOK)
			break;
		if (plain && window->type != IB_MEMREG_WINDOW_TYPE1)
			break;
		/*
		 * Before the endpoint was accepted, it could be granted windows
		 * of any domain.
		 */
		if (n && window->domain != windows[0]->domain)
			break;
		++*looks;
		if (memreg_grants_claim_one(grants, window))
			windows[n++] = window;
	}
	return n;
}

/*
 * Claim some windows that are granted to a closing endpoint, of any type or
 * only of type 1. Returns the number of windows claimed; 0 if other calls have
 * claimed all that are left; -1 if none are left.
 */
static int memreg_grants_claim(struct memreg_file *file,
			       struct memreg_grants *grants, bool plain,
			       struct memreg_window **windows)
{
	int n, looks;

	do {
		looks = 0;
		spin_lock(&file->grant_lock);
		WRITE_ONCE(grants->closed, true);
		n = memreg_grants_claim_some(grants, plain, windows, &looks);
		if (!n && memreg_grants_are_gone(grants))
			n = -1;
		spin_unlock(&file->grant_lock);
	} while (!n && looks);
	return n;
}

/**
 * memreg_grants_revoke() - Revoke windows at the end of a connection or a lease
 * @file: The file
 * @windows: Windows of one domain that were claimed as ENDING; gives up a
 *	reference of each, and wakes calls that wait for them
 * @n: Their number, 1 to MEMREG_GRANTS_BATCH
 */
void memreg_grants_revoke(struct memreg_file *file,
			  struct memreg_window **windows, int n)
{
	struct memreg_key *keys[MEMREG_GRANTS_BATCH];
	int i;

	for (i = 0; i < n; i++)
		keys[i] = &windows[i]->key;
	memreg_revoke_claimed(file, windows[0]->domain, windows, keys, n,
			      false);
	/*
	 * Pairs with calls that enter the wait queue before they check the
	 * state.
	 */
	smp_mb();
	for (i = 0; i < n; i++) {
		wake_up_var(&windows[i]->state);
		memreg_object_put(&windows[i]->obj);
	}
}

/**
 * memreg_window_revoke_plain() - Revoke granted windows of type 1
 * @file: The file
 * @grants: The list of an endpoint whose connection has ended; work may still
 *   be posted
 *
 * When this returns, the endpoint can be granted no more windows, and has none
 * of type 1 except those that other calls have claimed.
 *
 * Context: may sleep. Never fails, and allocates nothing.
 */
void memreg_window_revoke_plain(struct memreg_file *file,
				struct memreg_grants *grants)
{
	struct memreg_window *windows[MEMREG_GRANTS_BATCH];
	int n;

	for (;;) {
		n = memreg_grants_claim(file, grants, true, windows);
		if (n <= 0)
			return;
		memreg_grants_revoke(file, windows, n);
	}
}

/**
 * memreg_window_revoke_granted() - Revoke all windows that were granted to an
 * endpoint
 * @file: The file
 * @grants: The list of an endpoint whose connection has ended, with no work
 *   posted
 *
 * When this returns, the endpoint has no windows, and can be granted no more.
 *
 * Context: may sleep. Never fails, and allocates nothing.
 */
void memreg_window_revoke_granted(struct memreg_file *file,
				  struct memreg_grants *grants)
{
	struct memreg_window *windows[MEMREG_GRANTS_BATCH];
	int n;

	for (;;) {
		wait_event(grants->wait,
			   (n = memreg_grants_claim(file, grants, false,
						    windows)));
		if (n < 0)
			return;
		memreg_grants_revoke(file, windows, n);
	}
}
