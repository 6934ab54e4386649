// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keys: making and killing them, in batches.
 *
 * A key is made of an FRWR (frwr.c), which is mapped to the key's range and
 * registered by the domain's queue (regq.c). Before its work request is posted,
 * memreg_keys_announce() puts the FRWR on its region's list, where a guard
 * finds it and can have the key killed (kill.c) at any time. An owner that
 * revokes a key, or destroys it, waits for its death, and then makes the FRWR
 * idle or has it destroyed.
 */
#include <kunit/visibility.h>
#include <linux/sched/signal.h>
#include <linux/wait_bit.h>

#include "device.h"
#include "keys/domain.h"
#include "keys/fastmr.h"
#include "keys/frwr.h"
#include "keys/key.h"
#include "keys/kill.h"
#include "keys/regq.h"
#include "keys/trace.h"
#include "pages/region.h"
#include "quirks.h"
#include "stats.h"

/* How often a failed registration is retried with other FRWRs. */
#define MEMREG_REGISTER_ATTEMPTS	3

/* Wait while a key is DYING; frwr_lock is dropped meanwhile. */
static void memreg_key_await(struct memreg_key *key)
{
	spinlock_t *lock = &key->region->mdev->frwr_lock;
	struct memreg_frwr *frwr = key->frwr;

	lockdep_assert_held(lock);

	while (memreg_frwr_state(frwr) == MEMREG_FRWR_DYING) {
		spin_unlock(lock);
		memreg_kill_await(frwr);
		spin_lock(lock);
	}
}

/* Take over an FRWR whose key the caller itself kills, or has killed. */
static void memreg_key_claim(struct memreg_key *key)
{
	struct memreg_frwr *frwr = key->frwr;

	lockdep_assert_held(&key->region->mdev->frwr_lock);

	/* A key that no work request could kill dies along with its FRWR. */
	if (frwr->state == MEMREG_FRWR_LIVE ||
	    frwr->state == MEMREG_FRWR_FAILED)
		memreg_count(key->region->mdev, IB_MEMREG_STAT_KEYS_KILLED, 1);
	if (frwr->state != MEMREG_FRWR_HELD)
		memreg_frwr_move(frwr, &key->region->frwrs);
	frwr->state = MEMREG_FRWR_HELD;
	WRITE_ONCE(frwr->abort, NULL);
	trace_memreg_key_claim(frwr);
}

/* Make the FRWR behind a dead key idle. It stays on its region's list. */
static void memreg_key_set_idle(struct memreg_key *key, u64 now)
{
	memreg_frwr_set_idle(key->frwr, now);
	key->frwr = NULL;
}

/*
 * Access flags for the device. REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE
 * (IB specification, 10.6.3.1), which gives a window no local access, as no
 * call returns the lkey of a window.
 */
static int memreg_key_access(const struct memreg_key *key)
{
	int access = key->access & MEMREG_FRWR_ACCESS;

	if (access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC))
		access |= IB_ACCESS_LOCAL_WRITE;
	return access;
}

/* Point a key's FRWR to its range, and prepare the REG_MR. */
static int memreg_key_map(struct memreg_key *key)
{
	struct memreg_frwr *frwr = key->frwr;
	struct ib_mr *mr = frwr->fast.mr;
	int ret;

	if (memreg_frwr_maps(frwr, key)) {
		key->page_shift = frwr->page_shift;
	} else {
		ret = memreg_frwr_map(frwr, key);
		if (ret)
			return ret;
	}
	mr->iova = key->iova;
	memreg_fastmr_prepare_reg(&frwr->fast, memreg_key_access(key));
	key->lkey = mr->lkey;
	key->rkey = mr->rkey;
	trace_memreg_frwr_map(frwr, key);
	return 0;
}

/* Take and map an FRWR for each of these keys, and put it in a batch. */
static int memreg_keys_map(struct memreg_domain *domain,
			   struct memreg_key **keys, unsigned int count,
			   struct memreg_batch *batch)
{
	unsigned int i;
	int ret;

	memreg_batch_init(batch, domain);
	ret = memreg_frwr_take(domain, keys, count);
	for (i = 0; !ret && i < count; i++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		ret = memreg_key_map(keys[i]);
		if (!ret)
			memreg_batch_add(batch, keys[i]->frwr);
	}
	return ret;
}

/* Destroy the FRWR behind a key that is claimed. */
static void memreg_key_free(struct memreg_key *key)
{
	memreg_frwr_destroy(key->frwr);
	key->frwr = NULL;
}

/* Destroy the FRWRs that failed, and move their keys to the front. */
static unsigned int memreg_keys_sort_failed(struct memreg_key **keys,
					    unsigned int count)
{
	unsigned int i, failed = 0;

	for (i = 0; i < count; i++) {
		if (!keys[i]->frwr->fast.status)
			continue;
		memreg_key_destroy(keys[i]);
		swap(keys[failed], keys[i]);
		failed++;
	}
	return failed;
}

/* Count and trace a key that works, while nothing can destroy its MR. */
static void memreg_key_note(struct memreg_frwr *frwr)
{
	lockdep_assert_held(&frwr->domain->mdev->frwr_lock);

	memreg_count(frwr->domain->mdev, IB_MEMREG_STAT_KEYS_MADE, 1);
	trace_memreg_key_publish(frwr);
}

/*
 * Let guards find keys: those that are about to be made (MAKING), or that work
 * or may work already (LIVE), which publishes them. Fails if one of the regions
 * is stale: then the caller destroys all the keys.
 */
static int memreg_keys_announce(struct memreg_domain *domain,
				struct memreg_key **keys, unsigned int count,
				enum memreg_frwr_state state)
{
	unsigned int i;

	spin_lock(&domain->mdev->frwr_lock);
	for (i = 0; i < count; i++) {
		struct memreg_frwr *frwr = keys[i]->frwr;

		memreg_frwr_lock_break(domain->mdev, i);
		if (keys[i]->region->guard.stale)
			break;
		frwr->state = state;
		memreg_frwr_move(frwr, &keys[i]->region->live);
		if (state == MEMREG_FRWR_LIVE)
			memreg_key_note(frwr);
	}
	spin_unlock(&domain->mdev->frwr_lock);
	return i < count ? -ESTALE : 0;
}

/*
 * Publish keys that were made. Fails if a guard has killed one, or is going to:
 * then the caller destroys all the keys.
 */
static int memreg_keys_publish(struct memreg_domain *domain,
			       struct memreg_key **keys, unsigned int count)
{
	unsigned int i;
	int ret = 0;

	spin_lock(&domain->mdev->frwr_lock);
	for (i = 0; i < count; i++) {
		struct memreg_frwr *frwr = keys[i]->frwr;

		memreg_frwr_lock_break(domain->mdev, i);
		if (keys[i]->region->guard.stale)
			ret = -ESTALE;
		if (memreg_frwr_state(frwr) != MEMREG_FRWR_MAKING)
			continue;
		frwr->state = MEMREG_FRWR_LIVE;
		memreg_key_note(frwr);
	}
	spin_unlock(&domain->mdev->frwr_lock);
	return ret;
}

/*
 * Make keys once, by a batch that is not freed while a key is MAKING. Returns
 * the number of keys that failed in @failed, and moves them to the front.
 */
static int memreg_keys_try(struct memreg_domain *domain,
			   struct memreg_key **keys, unsigned int count,
			   struct memreg_batch *batch, unsigned int *failed)
{
	int ret, err;

	ret = memreg_keys_map(domain, keys, count, batch);
	if (!ret)
		ret = memreg_keys_announce(domain, keys, count,
					   MEMREG_FRWR_MAKING);
	if (ret)
		return ret;
	ret = memreg_batch_run(batch);
	*failed = ret ? memreg_keys_sort_failed(keys, count) : 0;
	err = memreg_keys_publish(domain, keys + *failed, count - *failed);
	return err ?: ret;
}

/* Make up to MEMREG_BATCH keys. On failure some may have been made. */
static int memreg_keys_make_some(struct memreg_domain *domain,
				 struct memreg_key **keys, unsigned int count)
{
	unsigned int attempt = 0, left = count;
	struct memreg_batch batch;
	int ret;

	/* Only -EIO says that work requests have failed. */
	do {
		ret = memreg_keys_try(domain, keys, left, &batch, &left);
	} while (ret == -EIO && ++attempt < MEMREG_REGISTER_ATTEMPTS);
	return ret;
}

/**
 * memreg_keys_make() - Make keys, all or none of them
 * @domain: Domain in which they are to work
 * @keys: Descriptions of the keys, without FRWRs; reordered by the call
 * @count: Their number
 *
 * They are made in batches, one after the other. Nobody knows the keys yet, so
 * those of the first batches can be destroyed if a later one fails.
 *
 * Context: may sleep.
 * Return: 0; -ENOMEM, -ENOSPC or -EDQUOT if FRWRs cannot be allocated; -EINVAL
 * if the device cannot map a range; -ENETDOWN or -EIO if the queue does not
 * work; -ESTALE if a region became stale in the meantime; -EINTR if the task is
 * killed.
 */
int memreg_keys_make(struct memreg_domain *domain, struct memreg_key **keys,
		     unsigned int count)
{
	unsigned int i, n;
	int ret = 0;

	for (i = 0; !ret && i < count; i += n) {
		n = min(count - i, MEMREG_BATCH);
		ret = memreg_keys_make_some(domain, keys + i, n);
	}
	if (ret)
		for (i = 0; i < count; i++)
			memreg_key_destroy(keys[i]);
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_keys_make);

/* Can the FRWR of a dead key be reused? */
static bool memreg_key_reusable(const struct memreg_key *key)
{
	return !key->once && key->frwr->fast.mr && !key->frwr->fast.status;
}

/*
 * Start killing the LIVE keys of a domain, and claim the keys that guards could
 * not kill. With @destroy, the MRs are destroyed, too.
 */
static void memreg_keys_kill(struct memreg_domain *domain,
			     struct memreg_key **keys, unsigned int count,
			     bool destroy)
{
	unsigned int i;

	spin_lock(&domain->mdev->frwr_lock);
	for (i = 0; i < count; i++) {
		struct memreg_frwr *frwr = keys[i]->frwr;
		enum memreg_frwr_state state = memreg_frwr_state(frwr);

		if (state == MEMREG_FRWR_FAILED)
			memreg_key_claim(keys[i]);
		if (state != MEMREG_FRWR_LIVE)
			continue;
		WRITE_ONCE(frwr->abort, NULL);
		if (destroy)
			memreg_kill_destroy(frwr, true);
		else
			memreg_kill_invalidate(frwr);
	}
	memreg_kill_flush(domain);
	spin_unlock(&domain->mdev->frwr_lock);
}

/* Make the FRWRs behind some dead keys idle, or destroy them. */
static void memreg_keys_set_idle(struct memreg_domain *domain,
				 struct memreg_key **keys, unsigned int count)
{
	unsigned int i;
	u64 now;

	for (i = 0; i < count; i++) {
		memreg_kill_await(keys[i]->frwr);
		if (!memreg_key_reusable(keys[i]))
			memreg_key_free(keys[i]);
	}
	now = ktime_get_ns();
	spin_lock(&domain->mdev->frwr_lock);
	for (i = 0; i < count; i++)
		if (keys[i]->frwr)
			memreg_key_set_idle(keys[i], now);
	spin_unlock(&domain->mdev->frwr_lock);
}

/* Kill keys by work requests; see memreg_keys_revoke_relaxed(). */
static void memreg_keys_invalidate(struct memreg_domain *domain,
				   struct memreg_key **keys,
				   unsigned int count)
{
	unsigned int done, n;
	bool killed = false;

	for (done = 0; done < count; done += n) {
		n = min(count - done, MEMREG_BATCH);
		/* A task that is being killed does not wait for its turn. */
		killed = killed || memreg_kill_line(domain);
		memreg_keys_kill(domain, keys + done, n, killed);
		if (!killed)
			memreg_kill_leave(domain);
	}
	for (done = 0; done < count; done += n) {
		n = min(count - done, MEMREG_BATCH);
		memreg_keys_set_idle(domain, keys + done, n);
	}
	memreg_frwr_reap_later(domain);
}

/* May a guard wait for a key to die? */
static bool memreg_key_is_watched(const struct memreg_key *key)
{
	return key->region->guard.active || key->region->composition ||
	       key->region->keyed;
}

/* Have the worker destroy watched keys, and claim the other keys. */
static void memreg_keys_defer(struct memreg_key **keys, unsigned int count)
{
	spinlock_t *lock = &keys[0]->region->mdev->frwr_lock;
	unsigned int i;

	spin_lock(lock);
	for (i = 0; i < count; i++) {
		struct memreg_frwr *frwr = keys[i]->frwr;

		if (!frwr || memreg_frwr_state(frwr) == MEMREG_FRWR_DYING)
			continue;
		if (frwr->state != MEMREG_FRWR_LIVE ||
		    !memreg_key_is_watched(keys[i])) {
			memreg_key_claim(keys[i]);
			continue;
		}
		WRITE_ONCE(frwr->abort, NULL);
		memreg_kill_destroy(frwr, true);
	}
	spin_unlock(lock);
}

/**
 * memreg_keys_destroy() - Kill keys along with their FRWRs
 * @keys: Keys of one device; a key without an FRWR is left alone
 * @count: Their number
 *
 * When this returns, no packet reaches memory through the keys, on any driver.
 *
 * Context: may sleep. Never fails.
 */
void memreg_keys_destroy(struct memreg_key **keys, unsigned int count)
{
	unsigned int i, done, n;

	for (done = 0; done < count; done += n) {
		n = min(count - done, MEMREG_BATCH);
		memreg_keys_defer(keys + done, n);
	}
	for (i = 0; i < count; i++) {
		if (!keys[i]->frwr)
			continue;
		memreg_kill_await(keys[i]->frwr);
		memreg_key_free(keys[i]);
	}
}

/**
 * memreg_keys_revoke() - Kill keys, and wait for packets in flight
 * @domain: Their domain
 * @keys: Keys with FRWRs; without FRWRs afterwards
 * @count: Their number
 *
 * When this returns, no packet reaches memory through the keys, on any driver.
 *
 * Context: may sleep. Never fails.
 */
void memreg_keys_revoke(struct memreg_domain *domain, struct memreg_key **keys,
			unsigned int count)
{
	if (domain->mdev->quirks & MEMREG_QUIRK_WEAK_INV)
		memreg_keys_destroy(keys, count);
	else
		memreg_keys_invalidate(domain, keys, count);
}

/*
 * Fewest keys that are killed by LOCAL_INV rather than destroyed. A post and
 * its completion take a round trip through a worker on rxe, which costs as much
 * as destroying and allocating two MRs.
 */
#define MEMREG_INVALIDATE_MIN	2

/**
 * memreg_keys_revoke_relaxed() - Kill keys
 * @domain: Their domain
 * @keys: Keys with FRWRs; without FRWRs afterwards
 * @count: Their number
 *
 * When this returns, the device accepts no packet through the keys. On a device
 * with MEMREG_QUIRK_WEAK_INV, a packet that was accepted before may still land.
 *
 * Context: may sleep. Never fails.
 */
void memreg_keys_revoke_relaxed(struct memreg_domain *domain,
				struct memreg_key **keys, unsigned int count)
{
	if (count < MEMREG_INVALIDATE_MIN)
		memreg_keys_revoke(domain, keys, count);
	else
		memreg_keys_invalidate(domain, keys, count);
}

/**
 * memreg_key_destroy() - Kill one key along with its FRWR
 * @key: The key, as for memreg_keys_destroy()
 *
 * Context: may sleep. Never fails.
 */
void memreg_key_destroy(struct memreg_key *key)
{
	memreg_keys_destroy(&key, 1);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_key_destroy);

/**
 * memreg_key_prepare() - Prepare a key whose REG_MR an endpoint's queue will
 * carry
 * @domain: Domain in which the key is to work
 * @key: Description of the key, without an FRWR
 * @abort: Work that ends the endpoint; queued if the region becomes stale
 *	before the REG_MR was executed
 *
 * From here on guards know of the key. If posting the REG_MR fails, the caller
 * calls memreg_key_destroy().
 *
 * Context: may sleep.
 * Return: 0; -ENOMEM, -ENOSPC or -EDQUOT if no FRWR can be allocated; -EINVAL
 * if the device cannot map the range; -ESTALE if the region is stale.
 */
int memreg_key_prepare(struct memreg_domain *domain, struct memreg_key *key,
		       struct work_struct *abort)
{
	int ret = memreg_frwr_take(domain, &key, 1);

	if (!ret)
		ret = memreg_key_map(key);
	if (!ret) {
		WRITE_ONCE(key->frwr->abort, abort);
		ret = memreg_keys_announce(domain, &key, 1,
					   MEMREG_FRWR_LIVE);
	}
	if (ret)
		memreg_key_destroy(key);
	return ret;
}

/**
 * memreg_key_invalidable() - Can a work request kill a key?
 * @key: Key with an FRWR
 *
 * Context: process, may not sleep.
 * Return: false if the LOCAL_INV of the key's guard failed, so that the MR has
 * been destroyed, or will be.
 */
bool memreg_key_invalidable(const struct memreg_key *key)
{
	struct memreg_kdevice *mdev = key->region->mdev;
	bool ret;

	spin_lock(&mdev->frwr_lock);
	/* The worker destroys MRs whose work request has failed. */
	ret = !READ_ONCE(key->frwr->fast.status) && key->frwr->fast.mr &&
	      memreg_frwr_state(key->frwr) != MEMREG_FRWR_FAILED;
	spin_unlock(&mdev->frwr_lock);
	return ret;
}

/**
 * memreg_key_retire() - Release the FRWR of a key that an invalidation has
 * killed
 * @key: Key with an FRWR; without one afterwards
 *
 * Context: may sleep. Never fails, and allocates nothing.
 */
void memreg_key_retire(struct memreg_key *key)
{
	struct memreg_domain *domain = key->frwr->domain;
	spinlock_t *lock = &domain->mdev->frwr_lock;

	spin_lock(lock);
	memreg_key_await(key);
	memreg_key_claim(key);
	if (memreg_key_reusable(key))
		memreg_key_set_idle(key, ktime_get_ns());
	spin_unlock(lock);
	if (key->frwr)
		memreg_key_free(key);
	memreg_frwr_reap_later(domain);
}

/**
 * memreg_key_make_paged() - Make a key to memory whose pages the device faults
 * in
 * @domain: Domain in which the key is to work
 * @key: Description of the key; its region has no pages, and never becomes
 *	stale
 * @addr: Address of the memory in the caller's address space
 *
 * Context: may sleep.
 * Return: 0; -EDQUOT, -ENOMEM, or the driver's errno.
 */
int memreg_key_make_paged(struct memreg_domain *domain, struct memreg_key *key,
			  u64 addr)
{
	int ret = memreg_frwr_take_paged(domain, key, addr);

	if (ret)
		return ret;
	key->lkey = key->frwr->fast.mr->lkey;
	key->rkey = key->frwr->fast.mr->rkey;
	ret = memreg_keys_announce(domain, &key, 1, MEMREG_FRWR_LIVE);
	if (ret)
		memreg_key_destroy(key);
	return ret;
}
