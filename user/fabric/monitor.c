// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The memory monitor that libfabric imports.
 *
 * libfabric calls valid() at each lookup, so no notification is needed: a
 * lookup does not return a registration whose memory has changed, and drops it.
 * This file calls no function of libfabric.
 *
 * libfabric subscribes after it has registered, so a change in between would be
 * missed. Therefore a wide watch logs all changes, and subscribe() checks those
 * of the range since a time before the memory was pinned: if there is one, it
 * fails, and libfabric uses the registration once and does not cache it. If
 * this library interposes ibv_reg_mr(3), that time is known exactly, see
 * pins.c; otherwise the time of this thread's last call is used, which is
 * earlier and can only find more changes.
 *
 * Several domains may have registrations of one range, and valid() is not
 * passed the domain. So as long as one domain holds a registration from before
 * a change, no other registration of the same range is cached.
 *
 * libfabric makes these calls with its mm_lock held, which its own memory hooks
 * take, and with mm_state_lock. This file has no hooks, allocates memory only
 * at the start, and holds @lock only over system calls.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "changes.h"
#include "memreg-fabric.h"
#include "monitor.h"
#include "next.h"
#include "subs.h"

/**
 * struct thread - Records of a thread
 * @epoch: Epoch of the positions; 0 if there are none
 * @pinned: Position in the log before memory was pinned, if @has_pinned
 * @here: Position when it last called this file
 * @refused: Its last call was a subscribe() that failed; libfabric then calls
 *	unsubscribe() for the same memory
 * @addr: Address of the memory that was refused
 * @length: Its length in bytes
 * @has_pinned: See @pinned
 */
struct thread {
	uint64_t epoch;
	uint64_t pinned;
	uint64_t here;
	uint64_t addr;
	uint64_t length;
	bool refused;
	bool has_pinned;
};

static __thread struct thread thread;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct changes changes;
static struct memreg_fabric_stat counted;
static uint64_t page;
static uint64_t began;		/* position in the log when it was made */

/*
 * Unmap a table whose descriptors the program has closed: nothing looks at it
 * without the lock. That of a parent process is not dead, and stays mapped.
 */
static void drop_table(void)
{
	struct memreg_status_info info;

	memreg_status_query(changes.status, &info);
	if (info.state != IB_MEMREG_STATUS_DEAD)
		return;
	memreg_status_destroy(changes.status);
	__atomic_store_n(&changes.status, NULL, __ATOMIC_RELEASE);
}

/*
 * Make a table, without subscriptions, while there is none, or in place of one
 * that is over. The lock is held.
 */
static int open_changes(void)
{
	int ret;

	if (changes.status && !changes_are_over(&changes))
		return 0;
	if (changes.status)
		drop_table();
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	ret = subs_init();
	if (!ret)
		ret = changes_renew(&changes, SUBS_MAX);
	if (!ret)
		began = changes_position(&changes);
	return ret;
}

void monitor_before_pin(const void *addr, size_t length)
{
	if (!changes_status(&changes))
		return;
	pthread_mutex_lock(&lock);
	/*
	 * Only the first log position since this thread's last subscribe()
	 * counts.
	 */
	if (!open_changes() &&
	    !(thread.has_pinned && thread.epoch == changes.epoch)) {
		thread.pinned = changes_position(&changes);
		thread.epoch = changes.epoch;
		thread.here = thread.pinned;
		thread.has_pinned = !addr || !length ||
				    !changes_await(&changes, addr, length);
	}
	pthread_mutex_unlock(&lock);
}

/*
 * Has a range changed since before this thread pinned it? Also true if no
 * position is known that is early enough: the first table is made before any
 * domain is opened, but a later one may be made after memory was pinned.
 */
static bool changed_since_pin(uint64_t start, uint64_t end)
{
	uint64_t position = began;

	if (thread.epoch == changes.epoch)
		position = thread.has_pinned ? thread.pinned : thread.here;
	else if (thread.epoch || changes.epoch != 1)
		return true;
	return changes_since(&changes, position, start, end);
}

/* The lock is held. */
static void note_here(void)
{
	thread.has_pinned = false;
	if (!changes.status)
		return;
	thread.here = changes_position(&changes);
	thread.epoch = changes.epoch;
}

static void take_lock(void)
{
	pthread_mutex_lock(&lock);
}

static void drop_lock(void)
{
	pthread_mutex_unlock(&lock);
}

int monitor_prepare(void)
{
	static bool prepared;
	int ret;

	pthread_mutex_lock(&lock);
	ret = open_changes();
	if (!ret && !prepared)
		pthread_atfork(take_lock, drop_lock, drop_lock);
	prepared |= !ret;
	pthread_mutex_unlock(&lock);
	return ret;
}

/* Called with mm_state_lock, before the first domain is opened. */
static int start(struct fid_mem_monitor *monitor)
{
	int ret = monitor_prepare();

	(void)monitor;
	if (ret)
		fprintf(stderr, "libmemreg-fabric: %s\n", memreg_reason());
	return ret;
}

/*
 * All registrations were unsubscribed; the table is kept for the next domain.
 */
static void stop(struct fid_mem_monitor *monitor)
{
	(void)monitor;
}

static int watch(struct sub *sub)
{
	uint64_t start = sub->addr & ~(page - 1);
	uint64_t end = (sub->addr + sub->length + page - 1) & ~(page - 1);
	struct memreg_range range = {
		.addr = (void *)(uintptr_t)start,
		.length = end - start,
		.access = IB_MEMREG_ACCESS_LOCAL_WRITE,
	};
	int ret = memreg_watch(changes.status, &range, 1, &sub->watch);

	if (ret)
		return ret;
	/* Changes from here on change the generation. */
	if (!changed_since_pin(start, end))
		return 0;
	memreg_unwatch(changes.status, &sub->watch, 1);
	return -FI_EAGAIN;
}

static int add(uint64_t addr, uint64_t length)
{
	struct sub *sub = subs_add(addr, length);
	int ret;

	if (!sub)
		return -FI_ENOSPC;
	ret = watch(sub);
	if (ret)
		subs_remove(sub);
	else
		sub->refs = 1;
	return ret;
}

/* Another domain subscribes to the same range, and keeps its watch. */
static int share(struct sub *sub)
{
	if (!memreg_watch_ok(&sub->watch) ||
	    changed_since_pin(sub->addr, sub->addr + sub->length))
		return -FI_EAGAIN;
	sub->refs++;
	return 0;
}

static int subscribe(struct fid_mem_monitor *monitor, const void *addr,
		     size_t length)
{
	uint64_t at = (uintptr_t)addr;
	struct sub *sub;
	int ret;

	(void)monitor;
	pthread_mutex_lock(&lock);
	ret = open_changes();
	if (!ret) {
		sub = subs_find(at, length);
		ret = sub ? share(sub) : add(at, length);
	}
	if (ret)
		counted.refused++;
	else
		counted.subscribed++;
	note_here();
	pthread_mutex_unlock(&lock);
	thread.refused = ret;
	thread.addr = at;
	thread.length = length;
	return ret;
}

/*
 * libfabric calls unsubscribe() also for a range that it could not subscribe
 * to.
 */
static bool was_refused(uint64_t addr, uint64_t length)
{
	bool refused = thread.refused && thread.addr == addr &&
		       thread.length == length;

	thread.refused = false;
	return refused;
}

static void unsubscribe(struct fid_mem_monitor *monitor, const void *addr,
			size_t length)
{
	struct sub *sub;

	(void)monitor;
	if (was_refused((uintptr_t)addr, length))
		return;
	pthread_mutex_lock(&lock);
	sub = subs_find((uintptr_t)addr, length);
	if (sub && !--sub->refs) {
		/*
		 * In a child process the watch belongs to the parent, which
		 * still uses it. If the program has closed the descriptors of
		 * the table, the watch has ended with that, and their numbers
		 * may be those of other files by now.
		 */
		if (!changes_are_over(&changes))
			memreg_unwatch(changes.status, &sub->watch, 1);
		subs_remove(sub);
	}
	pthread_mutex_unlock(&lock);
}

static bool valid(struct fid_mem_monitor *monitor, const void *addr,
		  size_t length)
{
	const struct sub *sub;
	bool ok;

	(void)monitor;
	pthread_mutex_lock(&lock);
	sub = subs_find((uintptr_t)addr, length);
	ok = sub && memreg_watch_ok(&sub->watch);
	if (!ok) {
		counted.stale++;
		/* It registers anew. */
		note_here();
	}
	pthread_mutex_unlock(&lock);
	return ok;
}

static struct fi_ops_mem_monitor ops = {
	.size = sizeof(struct fi_ops_mem_monitor),
	.start = start,
	.stop = stop,
	.subscribe = subscribe,
	.unsubscribe = unsubscribe,
	.valid = valid,
};

struct fi_ops_mem_monitor *monitor_ops(void)
{
	return &ops;
}

EXPORT void memreg_fabric_query(struct memreg_fabric_stat *stat)
{
	pthread_mutex_lock(&lock);
	*stat = counted;
	pthread_mutex_unlock(&lock);
}
