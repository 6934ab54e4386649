// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * libmemreg-ucx: the registration caches of UCX, made exact.
 *
 * UCX learns of unmapped memory from hooks on functions of libc. When
 * preloaded, this library takes over those events, and before each lookup
 * reports the changes that the kernel has logged: so a lookup finds no region
 * that was unmapped before it, by any code.
 *
 * UCX has no place for that, so its own functions are stood in front of:
 *
 * - ucs_rcache_create(): before the first cache there is a table with a log.
 * - ucs_rcache_get(): the slow way to look up, and to register.
 * - ucs_pgtable_lookup(): called by the fast path, which is inline in libucp,
 *   after it has found the queue of unmapped regions empty. So if a change was
 *   logged since the last lookup of this thread, the lookup reports it, and
 *   fails: libucp then takes the slow path, which checks the queue.
 *
 * When a change is reported, UCX queues it, as in its own hooks, which may be
 * called in any context.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "changes.h"
#include "pins.h"
#include "ucx.h"

#define BATCH	64

/* More than user space has of addresses, with five levels of page tables */
#define EVERYTHING	((size_t)1 << 57)

/* Threads that can register concurrently; further ones have to try again. */
#define SLOTS	256

/**
 * struct ucx - What there is of UCX, and of its memory
 * @vm_munmap: Reports to it what was unmapped
 * @rcache_create: Its functions of these names ...
 * @rcache_get: ...
 * @pgtable_lookup: ...
 * @changes: The log
 * @drained: Position in the log up to which it has been reported
 * @all: The log was incomplete, so report all memory as changed
 * @doubts: Number of times that the log was incomplete
 * @tried: It was tried to begin
 * @works: It has begun; read without @lock
 */
static struct {
	void (*vm_munmap)(void *addr, size_t length);
	typeof(ucs_rcache_create) *rcache_create;
	typeof(ucs_rcache_get) *rcache_get;
	typeof(ucs_pgtable_lookup) *pgtable_lookup;
	struct changes changes;
	uint64_t drained;
	uint64_t doubts;
	bool all;
	bool tried;
	bool works;
} ucx;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Changes that there had been when this thread last looked */
static __thread uint64_t seen;

static void complain(const char *what, const char *why)
{
	fprintf(stderr, "libmemreg-ucx: %s: %s\n", what, why);
}

/*
 * Find a function of a library of UCX. It is loaded, as it has loaded this one,
 * but maybe with RTLD_LOCAL, which the usual search does not see.
 */
static void *symbol_of(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
	void *found = handle ? dlsym(handle, name) : NULL;

	if (!found) {
		complain(library, name);
		abort();
	}
	return found;
}

static void find_functions(void)
{
	ucx.rcache_create = symbol_of("libucs.so.0", "ucs_rcache_create");
	ucx.rcache_get = symbol_of("libucs.so.0", "ucs_rcache_get");
	ucx.pgtable_lookup = symbol_of("libucs.so.0", "ucs_pgtable_lookup");
	ucx.vm_munmap = symbol_of("libucm.so.0", "ucm_vm_munmap");
}

static void need_functions(void)
{
	pthread_once(&once, find_functions);
}

static bool works(void)
{
	return __atomic_load_n(&ucx.works, __ATOMIC_ACQUIRE);
}

/*
 * Beginning
 */

static bool begin(void)
{
	const char *events = getenv("UCX_MEM_EVENTS");
	const char *hooks = getenv("UCX_MEM_MMAP_HOOK_MODE");
	void (*set_external_event)(int events);

	if (events && events[0] && strchr("nN0", events[0])) {
		complain("not in use", "UCX_MEM_EVENTS turns events off");
		return false;
	}
	if (changes_open(&ucx.changes, SLOTS)) {
		complain("not in use", memreg_reason());
		return false;
	}
	if (!hooks || strcmp(hooks, "none"))
		complain("UCX has installed its own hooks as well",
			 "set UCX_MEM_MMAP_HOOK_MODE=none");
	set_external_event = symbol_of("libucm.so.0",
				       "ucm_set_external_event");
	set_external_event(UCM_EVENT_VM_UNMAPPED);
	return true;
}

static void take_lock(void)
{
	pthread_mutex_lock(&lock);
}

static void drop_lock(void)
{
	pthread_mutex_unlock(&lock);
}

/*
 * The table is the parent's. It goes before the child has threads that look at
 * it without the lock.
 */
static void drop_lock_in_child(void)
{
	changes_close(&ucx.changes);
	pthread_mutex_unlock(&lock);
}

/* Before the first cache, since it would have hooks installed */
static void try_begin(void)
{
	pthread_mutex_lock(&lock);
	if (!ucx.tried && begin()) {
		pthread_atfork(take_lock, drop_lock, drop_lock_in_child);
		ucx.drained = changes_position(&ucx.changes);
		__atomic_store_n(&ucx.works, true, __ATOMIC_RELEASE);
	}
	ucx.tried = true;
	pthread_mutex_unlock(&lock);
}

/*
 * Reporting
 */

static void report_all(void)
{
	ucx.vm_munmap(NULL, EVERYTHING);
	ucx.all = false;
}

/*
 * In a child process: report all memory, as the parent's registrations are not
 * valid here.
 */
static void begin_in_child(void)
{
	changes_close(&ucx.changes);
	ucx.all = true;
	if (changes_open(&ucx.changes, SLOTS))
		complain("nothing is found in the cache", memreg_reason());
	ucx.drained = 0;
}

/* What was logged. The lock is held. */
static void report_changes(void)
{
	struct ib_memreg_change some[BATCH];
	unsigned int i, n;

	do {
		n = BATCH;
		/*
		 * After -EOVERFLOW the next call reads on behind the changes
		 * that were lost.
		 */
		if (memreg_status_log(ucx.changes.status, &ucx.drained, some,
				      &n)) {
			ucx.all = true;
			n = 0;
		}
		for (i = 0; i < n; i++)
			ucx.vm_munmap((void *)(uintptr_t)some[i].start,
				      some[i].end - some[i].start);
	} while (n == BATCH);
	if (ucx.all)
		report_all();
}

/*
 * Number of changes, plus the doubts; 0, which is never a valid value, if the
 * table is not of this process
 */
static uint64_t changes_now(void)
{
	struct memreg_status *status = changes_status(&ucx.changes);
	uint64_t n = status ? memreg_status_changes(status) : 0;

	return n ? n + __atomic_load_n(&ucx.doubts, __ATOMIC_ACQUIRE) : 0;
}

static bool has_news(void)
{
	uint64_t now = changes_now();

	return __builtin_expect(now != seen || !now, 0);
}

/* Report what this thread has not seen, unless another one has by now. */
static void drain(void)
{
	pthread_mutex_lock(&lock);
	if (ucx.changes.owner != getpid())
		begin_in_child();
	/* What comes after this is found by the next lookup. */
	seen = changes_now();
	if (ucx.changes.status)
		report_changes();
	else
		report_all();
	pthread_mutex_unlock(&lock);
}

/*
 * In front of UCX
 */

void before_pin(const void *addr, size_t length)
{
	if (!works() || !addr || !length ||
	    !changes_settle(&ucx.changes, addr, length))
		return;
	/* UCX may be unpinning this range just now: report all memory, once. */
	pthread_mutex_lock(&lock);
	ucx.all = true;
	__atomic_store_n(&ucx.doubts, ucx.doubts + 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
}

signed char ucs_rcache_create(const void *params, const char *name,
			      void *stats_parent, void **rcache)
{
	need_functions();
	try_begin();
	return ucx.rcache_create(params, name, stats_parent, rcache);
}

signed char ucs_rcache_get(void *rcache, void *address, size_t length,
			   size_t alignment, int prot, void *arg, void **region)
{
	need_functions();
	if (works() && has_news())
		drain();
	return ucx.rcache_get(rcache, address, length, alignment, prot, arg,
			      region);
}

/* Others look up what is not of this kind, or look at the queue themselves. */
static bool is_libucp(const void *caller)
{
	Dl_info info;

	return dladdr(caller, &info) && info.dli_fname &&
	       strstr(info.dli_fname, "/libucp.so");
}

void *ucs_pgtable_lookup(const void *pgtable, unsigned long address)
{
	need_functions();
	if (works() && has_news() && is_libucp(__builtin_return_address(0))) {
		drain();
		return NULL;
	}
	return ucx.pgtable_lookup(pgtable, address);
}
