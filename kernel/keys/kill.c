// SPDX-License-Identifier: GPL-2.0-only
/*
 * Killing keys: by LOCAL_INV on the registration queue of their domain, or
 * along with their MR, which a worker destroys.
 *
 * A guard that kills a key delays the task that unmaps the memory, and a key
 * that is dying already delays the guard. So from the moment at which a key
 * stops being LIVE, its death depends on the device and on workers of this
 * module, and never on the task that has started it: that task may be preempted
 * for any time.
 *
 * Normal operation
 *
 * memreg_kill_invalidate() takes an FRWR from LIVE to DYING and appends it to
 * memreg_domain.dying. From there LOCAL_INVs are posted in batches of up to
 * MEMREG_BATCH, in slots of the send queue that are reserved for them. Up
 * to two batches are in flight: while the device processes one, new entries of
 * the list are collected for the other. The task that adds to the list posts;
 * if both batches are in flight, the completion interrupt of the first one
 * posts. That interrupt also counts each key as dead, and sets the FRWR back to
 * HELD for its owner.
 *
 * A guard adds all keys to its region at once, whatever their number. An owner
 * that revokes first waits until the list is short, and until then its keys
 * stay LIVE, so that the keys of a guard never wait behind a long list of an
 * owner's keys.
 *
 * A guard also finds the keys that are being made. If the REG_MR of a key is
 * not posted, its batch never is. Otherwise the key is DYING at once,
 * and where the end of the batch is polled, it is appended to
 * memreg_domain.dying.
 *
 * An owner that destroys a key along with its FRWR leaves that to the worker if
 * the key is LIVE and a guard may have to wait for it: memreg_kill_destroy().
 *
 * Failure
 *
 * An FRWR whose LOCAL_INV failed or was flushed, or whose queue does not work,
 * is appended to memreg_domain.to_destroy, and the worker destroys its MR. A
 * guard does not wait for the worker.
 *
 * What a notifier waits for
 *
 * For the device, and for no task. A guard starts the killing of all keys to
 * its region at once, and keys that an owner is revoking already die without a
 * further step of the owner. On kernels with two-pass notifiers all guards of
 * an unmap start killing in the first pass, and wait in the second; on others,
 * one guard waits after the other.
 *
 * A notifier waits for at most MEMREG_WATCH_TIMEOUT, counted from the arrival
 * of the event, so that all guards of an unmap have the same deadline. If the
 * process unmaps its own memory, or exits, the notifier waits on as long as
 * keys keep dying. A task of another process, such as one that truncates a
 * file, does not. After such tasks have waited for MEMREG_WATCH_TIMEOUT in
 * MEMREG_KILL_WINDOW, in one wait or in several, none of them waits for this
 * address space for MEMREG_KILL_GIVEN_UP: a process with many mappings, of one
 * file or of several, can thus delay another process only once.
 *
 * When a process is killed, its address space is torn down before its files are
 * closed, so guards kill the keys to its memory first. Closing the file then
 * destroys the remaining keys, and those to memory without a guard, by
 * memreg_object_destroy_all().
 *
 * Keys that are alive when a wait times out die a little later: the stalled
 * queue is rebuilt, and a worker destroys the MRs. A guard does not wait for a
 * queue that is being rebuilt, either. Until the worker is done the peer may
 * reach the old pages, which stay pinned, but no other pages.
 */
#include <kunit/visibility.h>
#include <linux/wait_bit.h>

#include "device.h"
#include "keys/domain.h"
#include "keys/fastmr.h"
#include "keys/frwr.h"
#include "keys/kill.h"
#include "keys/regq.h"
#include "keys/trace.h"
#include "pages/region.h"
#include "pages/tie.h"
#include "pages/trace.h"
#include "stats.h"
#include "watch/watch.h"

/* Length of the list up to which an owner may add keys. */
#define MEMREG_KILL_SHORT	MEMREG_BATCH

/* FRWRs that a worker destroys before it requeues itself, for other domains. */
#define MEMREG_KILL_SLICE	32

/*
 * Tasks of other processes that have waited for an address space for
 * MEMREG_WATCH_TIMEOUT in this time have waited too long.
 */
#define MEMREG_KILL_WINDOW	(2 * HZ)

/* How long no other process waits for an address space after that. */
#define MEMREG_KILL_GIVEN_UP	(10 * HZ)

/* Keys that are handled in one hold of the lock. */
#define MEMREG_KILL_KEYS	32

/* How long an owner waits before it has the queue checked for a stall. */
#define MEMREG_KILL_PATIENCE	(10 * HZ)

/* Count and trace the end of an FRWR's MR. */
static void memreg_frwr_note_destroy(struct memreg_frwr *frwr)
{
	trace_memreg_frwr_destroy(frwr);
	memreg_count(frwr->domain->mdev, IB_MEMREG_STAT_FRWRS_DESTROYED, 1);
	if (frwr->fast.status)
		memreg_count(frwr->domain->mdev, IB_MEMREG_STAT_FRWRS_FAILED,
			     1);
}

/**
 * memreg_frwr_destroy_mr() - Destroy an FRWR's MR, which kills its key in any
 * state
 * @frwr: FRWR that the caller has claimed
 *
 * If the driver fails to destroy the MR, the pages of all regions that the
 * device has now are leaked: this key might reach them (I1).
 *
 * Context: may sleep, and may allocate.
 */
void memreg_frwr_destroy_mr(struct memreg_frwr *frwr)
{
	if (frwr->fast.mr)
		memreg_frwr_note_destroy(frwr);
	if (memreg_fastmr_destroy(&frwr->fast))
		atomic_inc(&frwr->domain->mdev->leaked_mrs);
	if (frwr->holds && atomic_dec_and_test(&frwr->holds->held))
		wake_up_var(&frwr->holds->held);
	frwr->holds = NULL;
}

/*
 * Count a key as dead for the guards of a region, which may be gone afterwards.
 */
static void memreg_region_killed(struct memreg_region *region)
{
	if (atomic_dec_and_test(&region->killing))
		wake_up_var(&region->killing);
}

/* A key is dead: return the FRWR and the region to their owner. */
static void memreg_kill_done(struct memreg_frwr *frwr)
{
	if (frwr->awaited)
		memreg_region_killed(frwr->region);
	memreg_count(frwr->domain->mdev, IB_MEMREG_STAT_KEYS_KILLED, 1);
	/* Pairs with memreg_frwr_state(). */
	smp_store_release(&frwr->state, MEMREG_FRWR_HELD);
	/*
	 * Pairs with the waiter, which enters the wait queue before it checks
	 * the state.
	 */
	smp_mb();
	wake_up_var(&frwr->state);
}

/* Have the worker destroy the MR of an FRWR. */
static void memreg_kill_defer(struct memreg_frwr *frwr)
{
	struct memreg_domain *domain = frwr->domain;

	lockdep_assert_held(&domain->sq_lock);

	list_add_tail(&frwr->node, &domain->to_destroy);
	/* The worker queues itself, and takes one place of its user at most. */
	if (!domain->killing)
		memreg_user_work_queue(&domain->kill);
	domain->killing = true;
}

/*
 * Have the worker destroy the MR of a key that no work request can kill any
 * more. No guard waits for it.
 */
static void memreg_kill_fail(struct memreg_frwr *frwr)
{
	WRITE_ONCE(frwr->fast.status, -EIO);
	if (frwr->awaited)
		memreg_region_killed(frwr->region);
	frwr->awaited = false;
	memreg_kill_defer(frwr);
}

/*
 * Invalidating
 */

/* Fill a batch from the list of dying keys. */
static void memreg_kill_fill(struct memreg_domain *domain,
			     struct memreg_batch *batch)
{
	struct memreg_frwr *frwr;

	lockdep_assert_held(&domain->sq_lock);

	memreg_batch_init(batch, domain);
	while (batch->count < MEMREG_BATCH &&
	       !list_empty(&domain->dying)) {
		frwr = list_first_entry(&domain->dying, struct memreg_frwr,
					node);
		list_del(&frwr->node);
		memreg_fastmr_prepare_inv(&frwr->fast);
		memreg_batch_add(batch, frwr);
	}
	WRITE_ONCE(domain->nr_dying, domain->nr_dying - batch->count);
}

/* Post as many batches as possible. */
static void memreg_kill_post(struct memreg_domain *domain)
{
	unsigned int i;

	lockdep_assert_held(&domain->sq_lock);

	for (i = 0; i < ARRAY_SIZE(domain->kills); i++) {
		if (!domain->kills[i].ended || list_empty(&domain->dying) ||
		    domain->state != MEMREG_REGQ_READY)
			continue;
		memreg_kill_fill(domain, &domain->kills[i]);
		memreg_batch_post_locked(&domain->kills[i]);
	}
	if (domain->nr_dying <= MEMREG_KILL_SHORT &&
	    wq_has_sleeper(&domain->kill_wait))
		wake_up(&domain->kill_wait);
}

/**
 * memreg_kill_ended() - Count the keys of a batch that kills keys as dead
 * @batch: Batch whose work requests have all ended
 *
 * Context: any, with sq_lock held.
 */
void memreg_kill_ended(struct memreg_batch *batch)
{
	struct memreg_frwr *frwr, *next;

	for (frwr = batch->first; frwr; frwr = next) {
		next = memreg_batch_next(frwr);
		if (frwr->fast.status)
			memreg_kill_fail(frwr);
		else
			memreg_kill_done(frwr);
	}
	memreg_kill_post(batch->domain);
}

/* Move an FRWR to DYING, so that no other call or guard kills its key. */
static void memreg_kill_claim(struct memreg_frwr *frwr, bool awaited)
{
	struct memreg_region *region = frwr->region;

	lockdep_assert_held(&region->mdev->frwr_lock);

	WARN_ON(frwr->state != MEMREG_FRWR_LIVE &&
		frwr->state != MEMREG_FRWR_MAKING);
	frwr->state = MEMREG_FRWR_DYING;
	frwr->awaited = awaited;
	if (awaited)
		atomic_inc(&region->killing);
	memreg_frwr_move(frwr, &region->frwrs);
	trace_memreg_key_claim(frwr);
}

/* Append an FRWR that is DYING to the list, or fail it. */
static void memreg_kill_append(struct memreg_frwr *frwr)
{
	struct memreg_domain *domain = frwr->domain;

	lockdep_assert_held(&domain->sq_lock);

	if (domain->state == MEMREG_REGQ_READY && !frwr->fast.status) {
		list_add_tail(&frwr->node, &domain->dying);
		WRITE_ONCE(domain->nr_dying, domain->nr_dying + 1);
	} else {
		memreg_regq_kick(domain);
		memreg_kill_fail(frwr);
	}
}

/**
 * memreg_kill_invalidate() - Kill a key by LOCAL_INV
 * @frwr: FRWR that is LIVE, and DYING from here on
 *
 * The caller has to call memreg_kill_flush() before it drops frwr_lock.
 *
 * Context: process, with frwr_lock held.
 */
void memreg_kill_invalidate(struct memreg_frwr *frwr)
{
	struct memreg_domain *domain = frwr->domain;
	unsigned long flags;

	memreg_kill_claim(frwr, true);
	spin_lock_irqsave(&domain->sq_lock, flags);
	memreg_kill_append(frwr);
	spin_unlock_irqrestore(&domain->sq_lock, flags);
}

/**
 * memreg_kill_flush() - Post the keys that memreg_kill_invalidate() has added
 * @domain: The domain
 *
 * Context: process, with frwr_lock held.
 */
void memreg_kill_flush(struct memreg_domain *domain)
{
	unsigned long flags;

	spin_lock_irqsave(&domain->sq_lock, flags);
	memreg_kill_post(domain);
	spin_unlock_irqrestore(&domain->sq_lock, flags);
}

/**
 * memreg_kill_line() - Wait for an owner's turn to kill keys by LOCAL_INV
 * @domain: Their domain
 *
 * On success the caller may kill up to MEMREG_BATCH keys, and then has to
 * call memreg_kill_leave().
 *
 * Return: 0, or -EINTR if the task is killed.
 */
int memreg_kill_line(struct memreg_domain *domain)
{
	if (mutex_lock_killable(&domain->kill_mutex))
		return -EINTR;
	if (!wait_event_killable(domain->kill_wait,
				 READ_ONCE(domain->nr_dying) <=
				 MEMREG_KILL_SHORT))
		return 0;
	mutex_unlock(&domain->kill_mutex);
	return -EINTR;
}

/**
 * memreg_kill_leave() - End an owner's turn to kill keys
 * @domain: Domain for which memreg_kill_line() returned 0
 */
void memreg_kill_leave(struct memreg_domain *domain)
{
	mutex_unlock(&domain->kill_mutex);
}

/* Keys that are given up in one hold of sq_lock. */
#define MEMREG_KILL_GIVE_UP	64

static bool memreg_kill_give_up_some(struct memreg_domain *domain)
{
	unsigned int n = MEMREG_KILL_GIVE_UP;
	struct memreg_frwr *frwr;
	bool more;

	spin_lock_irq(&domain->sq_lock);
	while (n && !list_empty(&domain->dying)) {
		frwr = list_first_entry(&domain->dying, struct memreg_frwr,
					node);
		list_del(&frwr->node);
		WRITE_ONCE(domain->nr_dying, domain->nr_dying - 1);
		memreg_kill_fail(frwr);
		n--;
	}
	more = !list_empty(&domain->dying);
	wake_up(&domain->kill_wait);
	spin_unlock_irq(&domain->sq_lock);
	return more;
}

/**
 * memreg_kill_give_up() - Fail all dying keys of a domain
 * @domain: Domain whose queue is not READY
 *
 * Context: process.
 */
void memreg_kill_give_up(struct memreg_domain *domain)
{
	while (memreg_kill_give_up_some(domain))
		cond_resched();
}

/*
 * Destroying
 */

/**
 * memreg_kill_destroy() - Have a worker kill a key along with its MR
 * @frwr: FRWR that is LIVE, and DYING from here on
 * @awaited: Guards wait for the death of the key
 *
 * Context: process, with frwr_lock held.
 */
void memreg_kill_destroy(struct memreg_frwr *frwr, bool awaited)
{
	struct memreg_domain *domain = frwr->domain;
	unsigned long flags;

	memreg_kill_claim(frwr, awaited);
	spin_lock_irqsave(&domain->sq_lock, flags);
	memreg_kill_defer(frwr);
	spin_unlock_irqrestore(&domain->sq_lock, flags);
}

static struct memreg_frwr *memreg_kill_next(struct memreg_domain *domain)
{
	struct memreg_frwr *frwr;

	spin_lock_irq(&domain->sq_lock);
	frwr = list_first_entry_or_null(&domain->to_destroy, struct memreg_frwr,
					node);
	if (frwr)
		list_del(&frwr->node);
	spin_unlock_irq(&domain->sq_lock);
	return frwr;
}

static void memreg_kill_work(struct work_struct *work)
{
	struct memreg_domain *domain =
		container_of(work, struct memreg_domain, kill.work);
	unsigned int n = MEMREG_KILL_SLICE;
	struct memreg_frwr *frwr;

	while (n-- && (frwr = memreg_kill_next(domain))) {
		if (frwr->fast.status)
			memreg_count(domain->mdev, IB_MEMREG_STAT_GUARD_KILLS,
				     1);
		memreg_frwr_destroy_mr(frwr);
		memreg_kill_done(frwr);
	}
	spin_lock_irq(&domain->sq_lock);
	domain->killing = !list_empty(&domain->to_destroy);
	if (domain->killing)
		memreg_user_work_queue(&domain->kill);
	spin_unlock_irq(&domain->sq_lock);
	memreg_user_work_end(&domain->kill);
}

/**
 * memreg_kill_await() - Wait until the key of an FRWR is dead
 * @frwr: FRWR that the caller owns
 *
 * Context: may sleep. The wait is bounded: for the device, or for the rebuild
 * of the queue and a worker.
 */
void memreg_kill_await(struct memreg_frwr *frwr)
{
	while (!wait_var_event_timeout(&frwr->state,
				       memreg_frwr_state(frwr) !=
				       MEMREG_FRWR_DYING,
				       MEMREG_KILL_PATIENCE))
		memreg_regq_stall(frwr->domain, MEMREG_KILL_PATIENCE);
}

/*
 * Keys that are being made
 */

/* The REG_MR of a key that is DYING has ended: kill the key. */
static void memreg_kill_made(struct memreg_frwr *frwr)
{
	if (frwr->holds && !frwr->fast.status)
		memreg_kill_defer(frwr);
	else
		memreg_kill_append(frwr);
}

/**
 * memreg_kill_spoiled() - Kill the keys of a batch that guards have found
 * meanwhile
 * @batch: Batch that makes keys and whose work requests have all ended
 *
 * Context: any, with sq_lock held.
 */
void memreg_kill_spoiled(struct memreg_batch *batch)
{
	struct memreg_frwr *frwr, *next;

	for (frwr = batch->first; frwr; frwr = next) {
		next = memreg_batch_next(frwr);
		if (memreg_frwr_state(frwr) == MEMREG_FRWR_DYING)
			memreg_kill_made(frwr);
	}
	memreg_kill_post(batch->domain);
}

/* Kill a key whose batch was posted. */
static void memreg_kill_posted(struct memreg_frwr *frwr)
{
	struct memreg_domain *domain = frwr->domain;
	struct memreg_batch *batch = frwr->batch;

	lockdep_assert_held(&domain->sq_lock);

	/* A guard does not wait for a queue that is being rebuilt. */
	memreg_kill_claim(frwr, !frwr->holds &&
			  domain->state == MEMREG_REGQ_READY);
	memreg_count(domain->mdev, IB_MEMREG_STAT_KEYS_MADE, 1);
	if (batch->ended) {
		memreg_kill_made(frwr);
		return;
	}
	batch->spoiled = true;
}

/* Kill a key that is being made. Its batch stays while frwr_lock is held. */
static void memreg_kill_making(struct memreg_frwr *frwr)
{
	struct memreg_domain *domain = frwr->domain;
	unsigned long flags;

	lockdep_assert_held(&domain->mdev->frwr_lock);

	spin_lock_irqsave(&domain->sq_lock, flags);
	if (frwr->batch->begun) {
		memreg_kill_posted(frwr);
	} else {
		frwr->batch->spoiled = true;
		frwr->state = MEMREG_FRWR_HELD;
		memreg_frwr_move(frwr, &frwr->region->frwrs);
		wake_up(&domain->sq_wait);
	}
	spin_unlock_irqrestore(&domain->sq_lock, flags);
}

/*
 * All keys to a region
 */

/*
 * Fail a key whose REG_MR may still be on an endpoint's queue: only the end of
 * that queue makes sure that the REG_MR is never executed. A worker ends the
 * endpoint, which then destroys the FRWR.
 */
static void memreg_kill_abort(struct memreg_frwr *frwr,
			      struct work_struct *abort)
{
	frwr->state = MEMREG_FRWR_FAILED;
	frwr->fast.status = -EIO;
	memreg_frwr_move(frwr, &frwr->region->frwrs);
	memreg_work_queue(MEMREG_WORK_KILL, abort);
}

static void memreg_kill_one(struct memreg_frwr *frwr)
{
	struct work_struct *abort = READ_ONCE(frwr->abort);

	if (frwr->state == MEMREG_FRWR_MAKING)
		memreg_kill_making(frwr);
	else if (abort)
		memreg_kill_abort(frwr, abort);
	else if (frwr->holds)
		memreg_kill_destroy(frwr, false);
	else
		memreg_kill_invalidate(frwr);
}

/* Start killing some keys to a region. Returns true if there are more. */
static bool memreg_kill_some(struct memreg_region *region)
{
	unsigned int n = MEMREG_KILL_KEYS;
	struct memreg_domain *domain = NULL;
	struct memreg_frwr *frwr;
	struct hlist_node *next;

	lockdep_assert_held(&region->mdev->frwr_lock);

	hlist_for_each_entry_safe(frwr, next, &region->live, region_node) {
		if (!n--)
			break;
		if (domain && domain != frwr->domain)
			memreg_kill_flush(domain);
		domain = frwr->domain;
		memreg_kill_one(frwr);
	}
	if (domain)
		memreg_kill_flush(domain);
	return !hlist_empty(&region->live);
}

/**
 * memreg_kill_region() - Start killing all keys to a region
 * @region: Region that is stale, so that no more keys are made
 *
 * Context: process, may not sleep for long.
 * Return: true if some of the keys are not dead yet.
 */
bool memreg_kill_region(struct memreg_region *region)
{
	bool more;

	do {
		spin_lock(&region->mdev->frwr_lock);
		more = memreg_kill_some(region);
		spin_unlock(&region->mdev->frwr_lock);
		cond_resched();
	} while (more);
	return atomic_read(&region->killing);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_kill_region);

/* FRWRs that are searched for the queues that a guard waits for. */
#define MEMREG_KILL_STALLED	64

/* Check the queues that kill keys to a region for a stall. */
static void memreg_kill_stall_own(struct memreg_region *region, bool waited)
{
	unsigned int n = MEMREG_KILL_STALLED;
	struct memreg_domain *domain = NULL;
	struct memreg_frwr *frwr;

	spin_lock(&region->mdev->frwr_lock);
	hlist_for_each_entry(frwr, &region->frwrs, region_node) {
		if (!n--)
			break;
		if (frwr->domain == domain ||
		    memreg_frwr_state(frwr) != MEMREG_FRWR_DYING)
			continue;
		domain = frwr->domain;
		if (waited)
			memreg_regq_stall(domain, MEMREG_REGQ_STUCK);
		/* The next guard may not wait, and then detects no stall. */
		memreg_regq_stall_later(domain);
	}
	spin_unlock(&region->mdev->frwr_lock);
}

/*
 * A notifier returns before keys are dead. If it has waited for a stalled
 * queue, have the queue rebuilt, so that other notifiers do not wait for it as
 * well.
 */
static void memreg_kill_stall(struct memreg_region *region, bool waited)
{
	struct memreg_tie *tie = NULL;

	memreg_count(region->mdev, IB_MEMREG_STAT_GUARD_TIMEOUTS, 1);
	trace_memreg_guard_timeout(region);
	memreg_kill_stall_own(region, waited);
	while ((tie = memreg_tie_next(region, tie)))
		memreg_kill_stall_own(tie->whole, waited);
}

/**
 * memreg_kill_is_own() - Is a change made by the process that owns the memory, or
 * by its exit?
 * @region: Region of the memory
 *
 * A task that exits has files until it has dropped its own address space, and may
 * drop those of others along with its files. Threads of the kernel may do so at
 * any time.
 *
 * Return: true if it is.
 */
bool memreg_kill_is_own(const struct memreg_region *region)
{
	if (current->flags & PF_KTHREAD)
		return false;
	return current->mm ? current->mm == region->mm : !!current->files;
}

/* Have tasks of other processes waited too long for this address space? */
static bool memreg_kill_gave_up(struct memreg_region *region)
{
	struct memreg_space *space = region->guard.suspect.space;
	bool ret;

	spin_lock(&space->lock);
	ret = time_before(jiffies, space->gave_up_until);
	spin_unlock(&space->lock);
	return ret;
}

/*
 * Count a wait of a task of another process, which began at @since; @dead: all
 * keys are dead.
 */
static void memreg_kill_waited(struct memreg_region *region,
			       unsigned long since, bool dead)
{
	struct memreg_space *space = region->guard.suspect.space;

	spin_lock(&space->lock);
	if (time_after(jiffies, space->waited_since + MEMREG_KILL_WINDOW)) {
		space->waited_since = jiffies;
		space->waited = 0;
	}
	space->waited += jiffies - since;
	if (!dead || space->waited >= MEMREG_WATCH_TIMEOUT)
		space->gave_up_until = jiffies + MEMREG_KILL_GIVEN_UP;
	spin_unlock(&space->lock);
}

static bool memreg_kill_wait_own(struct memreg_region *region,
				 unsigned long deadline)
{
	long left = max((long)(deadline - jiffies), 0L);

	return wait_var_event_timeout(&region->killing,
				      !atomic_read(&region->killing), left);
}

/*
 * Wait for keys to die until @deadline, in jiffies. Returns true if they died.
 */
static bool memreg_kill_wait_until(struct memreg_region *region,
				   unsigned long deadline)
{
	bool dead = memreg_kill_wait_own(region, deadline);
	struct memreg_tie *tie = NULL;

	while ((tie = memreg_tie_next(region, tie)))
		dead &= memreg_kill_wait_own(tie->whole, deadline);
	return dead;
}

/* Number of keys that are not dead yet */
static int memreg_kill_dying(struct memreg_region *region)
{
	int dying = atomic_read(&region->killing);
	struct memreg_tie *tie = NULL;

	while ((tie = memreg_tie_next(region, tie)))
		dying += atomic_read(&tie->whole->killing);
	return dying;
}

/**
 * memreg_kill_wait() - Wait in a notifier for the keys to a region to die
 * @region: The region; also waits for the keys to compositions that it is part
 *	of
 * @deadline: Jiffies, MEMREG_WATCH_TIMEOUT after the notifier's event
 *
 * Context: may sleep, in bounded time.
 */
void memreg_kill_wait(struct memreg_region *region, unsigned long deadline)
{
	bool dead, own = memreg_kill_is_own(region);
	unsigned long since = jiffies;
	int left;

	if (!own && memreg_kill_gave_up(region)) {
		if (memreg_kill_dying(region))
			memreg_kill_stall(region, false);
		return;
	}
	do {
		left = memreg_kill_dying(region);
		dead = memreg_kill_wait_until(region, deadline);
		deadline = jiffies + MEMREG_WATCH_TIMEOUT;
	} while (!dead && own && memreg_kill_dying(region) < left);
	if (!own)
		memreg_kill_waited(region, since, dead);
	if (!dead)
		memreg_kill_stall(region, true);
}

/**
 * memreg_kill_init() - Initialize the lists of keys to kill
 * @domain: New domain, whose file is set
 */
void memreg_kill_init(struct memreg_domain *domain)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(domain->kills); i++)
		domain->kills[i].ended = true;
	INIT_LIST_HEAD(&domain->dying);
	INIT_LIST_HEAD(&domain->to_destroy);
	mutex_init(&domain->kill_mutex);
	init_waitqueue_head(&domain->kill_wait);
	memreg_user_work_init(&domain->kill, domain->file->user,
			      MEMREG_WORK_KILL, memreg_kill_work);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_kill_init);
