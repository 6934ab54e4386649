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
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

#include "changes.h"
#include "memreg-fabric.h"
#include "pins.h"
#include "subs.h"

/**
 * struct thread - Records of a thread
 * @pinned: Position in the log before memory was pinned, if @has_pinned
 * @here: Position when it last called this file, if @was_here
 * @refused: Its last call was a subscribe() that failed; libfabric then calls
 *	unsubscribe() for the same memory
 * @addr: Address of the memory that was refused
 * @length: Its length in bytes
 * @has_pinned: See @pinned
 * @was_here: See @here
 */
struct thread {
	uint64_t pinned;
	uint64_t here;
	uint64_t addr;
	uint64_t length;
	bool refused;
	bool has_pinned;
	bool was_here;
};

static __thread struct thread thread;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct changes changes;
static struct memreg_fabric_stat counted;
static uint64_t page;
static uint64_t began;		/* position in the log when it was made */
static bool imported;

void before_pin(const void *addr, size_t length)
{
	/*
	 * Only the first log position since this thread's last subscribe()
	 * counts.
	 */
	if (thread.has_pinned)
		return;
	pthread_mutex_lock(&lock);
	if (changes.status) {
		thread.pinned = changes_position(&changes);
		thread.has_pinned = !addr || !length ||
				    !changes_settle(&changes, addr, length);
	}
	pthread_mutex_unlock(&lock);
}

/* A position in the log before all that this thread may still ask about */
static uint64_t position_before_pin(void)
{
	if (thread.has_pinned)
		return thread.pinned;
	return thread.was_here ? thread.here : began;
}

/* The lock is held. */
static void note_here(void)
{
	thread.has_pinned = false;
	if (!changes.status)
		return;
	thread.here = changes_position(&changes);
	thread.was_here = true;
}

static int open_changes(void)
{
	int ret;

	/* A child process that opens a domain: the table is the parent's. */
	if (changes.status && changes.owner != getpid())
		changes_close(&changes);
	if (changes.status)
		return 0;
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	ret = subs_init();
	if (!ret)
		ret = changes_open(&changes, SUBS_MAX);
	if (!ret)
		began = changes_position(&changes);
	return ret;
}

/* Called with mm_state_lock, before the first domain is opened. */
static int start(struct fid_mem_monitor *monitor)
{
	int ret;

	(void)monitor;
	pthread_mutex_lock(&lock);
	ret = open_changes();
	pthread_mutex_unlock(&lock);
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
	if (!changes_since(&changes, position_before_pin(), start, end))
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
	    changes_since(&changes, position_before_pin(), sub->addr,
			  sub->addr + sub->length))
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
	sub = subs_find(at, length);
	if (!changes.status)
		ret = -FI_ENODEV;
	else
		ret = sub ? share(sub) : add(at, length);
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
		 * still uses it.
		 */
		if (changes.owner == getpid())
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

static struct fid_mem_monitor monitor = {
	.fid.fclass = FI_CLASS_MEM_MONITOR,
	.export_ops = &ops,
};

static int refuse(int err, const char *why)
{
	fprintf(stderr, "libmemreg-fabric: not in use: %s\n", why);
	return err;
}

static void take_lock(void)
{
	pthread_mutex_lock(&lock);
}

static void drop_lock(void)
{
	pthread_mutex_unlock(&lock);
}

static int import(void)
{
	int ret;

	/* libfabric would silently use the monitor that the variable names. */
	if (getenv("FI_MR_CACHE_MONITOR"))
		return refuse(-EBUSY, "FI_MR_CACHE_MONITOR is set");
	ret = start(&monitor);
	if (ret)
		return refuse(ret, "there is no status table");
	ret = fi_import(FI_VERSION(1, 13), "mr_cache", NULL, 0, 0,
			&monitor.fid, NULL);
	if (ret == -FI_EBUSY)
		return refuse(-EBUSY,
			      "a domain is open, or there is another monitor");
	if (ret)
		return refuse(-ENOSYS, "libfabric imports no monitors");
	pthread_atfork(take_lock, drop_lock, drop_lock);
	return 0;
}

EXPORT int memreg_fabric_import(void)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	int ret = 0;

	pthread_mutex_lock(&once);
	if (!imported)
		ret = import();
	if (!ret)
		imported = true;
	pthread_mutex_unlock(&once);
	return ret;
}

EXPORT void memreg_fabric_query(struct memreg_fabric_stat *stat)
{
	pthread_mutex_lock(&lock);
	*stat = counted;
	pthread_mutex_unlock(&lock);
}

/* A program that links to this library calls memreg_fabric_import() itself. */
__attribute__((constructor)) static void preloaded(void)
{
	const char *preload = getenv("LD_PRELOAD");

	if (preload && strstr(preload, "libmemreg-fabric"))
		memreg_fabric_import();
}
