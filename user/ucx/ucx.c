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
 * - ucs_rcache_create(): before the first cache of a copy of UCX, a proof that
 *   the copy sees changes decides whether it is guarded.
 * - ucs_rcache_get(): the slow way to look up, and to register.
 * - ucs_pgtable_lookup(): called by the fast path, which is inline in libucp,
 *   after it has found the queue of unmapped regions empty. So if a change was
 *   logged since the last lookup of this thread, the lookup reports it, and
 *   fails: libucp then takes the slow path, which checks the queue.
 * - ucs_rcache_destroy(): the cache is forgotten.
 *
 * When a change is reported, UCX queues it, as in its own hooks, which may be
 * called in any context. A copy that can't be guarded is left as it is: its
 * calls are passed on, and nothing is reported to it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy.h"
#include "pins.h"
#include "ucx.h"

#define BATCH	64

/* More than user space has of addresses, with five levels of page tables */
#define EVERYTHING	((size_t)1 << 57)

/* Threads that can register concurrently; further ones have to try again. */
#define SLOTS	256

/* Pins that UCX may make before it makes a cache; after more it is rare */
#define FIRST_PINS	64

/* Caches that are guarded; others are not made. */
#define CACHES	256

/**
 * struct cache - A cache that is guarded
 * @pgtable: Its page table; NULL if this one is free
 * @rcache: Itself
 * @copy: The copy of UCX that it is of
 */
struct cache {
	const void *pgtable;
	const void *rcache;
	const struct copy *copy;
};

/**
 * struct ucx - What there is of UCX, and of its memory
 * @copy: The copies; written with @setup locked
 * @copies: Number of them; read without @lock
 * @cache: Caches that are guarded; written with @lock locked
 * @caches: Number of @cache that were ever used; read without @lock
 * @changes: The log
 * @drained: Position in the log up to which it has been reported
 * @doubts: Grows when the log was incomplete
 * @all: The log was incomplete, so report all memory as changed
 * @works: A copy is guarded; read without @lock
 */
static struct {
	struct copy copy[COPIES];
	unsigned int copies;
	struct cache cache[CACHES];
	unsigned int caches;
	struct changes changes;
	uint64_t drained;
	uint64_t doubts;
	bool all;
	bool works;
} ucx;

/* Held while a copy is looked at; @lock is taken inside. */
static pthread_mutex_t setup = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Changes that there had been when this thread last looked */
static __thread uint64_t seen;

static void say(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

/* One line on stderr */
static void say(const char *format, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	fprintf(stderr, "libmemreg-ucx: %s\n", line);
}

static bool works(void)
{
	return __atomic_load_n(&ucx.works, __ATOMIC_ACQUIRE);
}

/*
 * Reporting
 */

/* Copies may share a function, which is called once then. */
static bool reports_again(unsigned int i)
{
	unsigned int j;

	for (j = 0; j < i; j++)
		if (ucx.copy[j].guarded &&
		    ucx.copy[j].vm_munmap == ucx.copy[i].vm_munmap)
			return true;
	return false;
}

static void report(void *addr, size_t length)
{
	unsigned int i, n = __atomic_load_n(&ucx.copies, __ATOMIC_ACQUIRE);

	for (i = 0; i < n; i++)
		if (ucx.copy[i].guarded && !reports_again(i))
			ucx.copy[i].vm_munmap(addr, length);
}

/*
 * Make the table anew, and report all memory: registrations of a parent process
 * are not valid in its child, and changes are not known that came after the
 * program had closed the table's descriptors. Counts of changes begin anew, and
 * must not be those that a thread has seen. The lock is held.
 */
static int renew(void)
{
	struct memreg_status *before = ucx.changes.status;
	uint64_t n = before ? memreg_status_changes(before) : 0;

	__atomic_store_n(&ucx.doubts, ucx.doubts + n + 1, __ATOMIC_RELEASE);
	ucx.all = true;
	ucx.drained = 0;
	return changes_renew(&ucx.changes, SLOTS);
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
			report((void *)(uintptr_t)some[i].start,
			       some[i].end - some[i].start);
	} while (n == BATCH);
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
	if (changes_are_over(&ucx.changes) && renew())
		say("nothing is found in the cache: %s", memreg_reason());
	/* What comes after this is found by the next lookup. */
	seen = changes_now();
	if (ucx.changes.status)
		report_changes();
	if (ucx.all || !ucx.changes.status)
		report(NULL, EVERYTHING);
	ucx.all = false;
	pthread_mutex_unlock(&lock);
}

/*
 * Beginning
 */

static void take_lock(void)
{
	pthread_mutex_lock(&setup);
	pthread_mutex_lock(&lock);
}

static void drop_lock(void)
{
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&setup);
}

/*
 * The table is the parent's. It goes before the child has threads that look at
 * it without the lock.
 */
static void drop_lock_in_child(void)
{
	changes_close_in_child(&ucx.changes);
	drop_lock();
}

/* Have the log, for a proof. Returns NULL, or why it can't be. */
static const char *have_log(void)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (!ucx.changes.status || changes_are_over(&ucx.changes))
		ret = renew();
	pthread_mutex_unlock(&lock);
	return ret ? memreg_reason() : NULL;
}

static const char *check_environment(void)
{
	const char *events = getenv("UCX_MEM_EVENTS");

	return events && events[0] && strchr("nN0", events[0]) ?
	       "UCX_MEM_EVENTS turns events off" : NULL;
}

static void mention_hooks(void)
{
	const char *hooks = getenv("UCX_MEM_MMAP_HOOK_MODE");

	if (!hooks || strcmp(hooks, "none"))
		say("UCX has installed its own hooks as well: set UCX_MEM_MMAP_HOOK_MODE=none");
}

/* A copy is guarded from now on. */
static void guard(struct copy *copy)
{
	copy->set_external_event(UCM_EVENT_VM_UNMAPPED);
	if (!works()) {
		mention_hooks();
		pthread_atfork(take_lock, drop_lock, drop_lock_in_child);
	}
	pthread_mutex_lock(&lock);
	copy->guarded = true;
	if (!works())
		ucx.drained = changes_position(&ucx.changes);
	__atomic_store_n(&ucx.works, true, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
}

/* Look at a copy before its first cache is made. @setup is locked. */
static struct copy *add_copy(typeof(ucs_rcache_create) *create,
			     void *stats_parent)
{
	struct copy *copy = &ucx.copy[ucx.copies];
	const char *why;

	if (ucx.copies == COPIES)
		return NULL;
	why = copy_find(copy, create);
	why = why ?: check_environment();
	why = why ?: have_log();
	why = why ?: copy_prove(copy, &ucx.changes, stats_parent);
	if (why)
		say("not in use: %s: %s", next_path((const void *)create), why);
	else
		guard(copy);
	__atomic_store_n(&ucx.copies, ucx.copies + 1, __ATOMIC_RELEASE);
	return copy;
}

/* The copy that a cache is made by, if it is guarded */
static const struct copy *copy_of(typeof(ucs_rcache_create) *create,
				  const void *caller, void *stats_parent)
{
	struct copy *copy = NULL;
	unsigned int i;

	pthread_mutex_lock(&setup);
	for (i = 0; i < ucx.copies; i++)
		if (ucx.copy[i].create == create)
			copy = &ucx.copy[i];
	copy = copy ?: add_copy(create, stats_parent);
	pthread_mutex_unlock(&setup);
	if (!copy || !copy->guarded)
		return NULL;
	if (copy_knows_caller(caller))
		return copy;
	say("not in use: %s: its version is not known", next_path(caller));
	return NULL;
}

/*
 * Caches
 */

static struct cache *free_cache(void)
{
	unsigned int i;

	for (i = 0; i < ucx.caches; i++)
		if (!ucx.cache[i].pgtable)
			return &ucx.cache[i];
	return ucx.caches < CACHES ? &ucx.cache[ucx.caches] : NULL;
}

/* Guard a cache. Returns false if there is no room. */
static bool add_cache(const struct copy *copy, const void *rcache)
{
	struct cache *cache;

	pthread_mutex_lock(&lock);
	cache = free_cache();
	if (cache) {
		cache->rcache = rcache;
		cache->copy = copy;
		__atomic_store_n(&cache->pgtable, (const char *)rcache +
				 copy->pgtable, __ATOMIC_RELEASE);
		if (cache == &ucx.cache[ucx.caches])
			__atomic_store_n(&ucx.caches, ucx.caches + 1,
					 __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return cache;
}

/* The cache of a page table, or NULL. It can't be destroyed meanwhile. */
static struct cache *cache_by_pgtable(const void *pgtable)
{
	unsigned int i, n = __atomic_load_n(&ucx.caches, __ATOMIC_ACQUIRE);

	for (i = 0; i < n; i++)
		if (__atomic_load_n(&ucx.cache[i].pgtable,
				    __ATOMIC_ACQUIRE) == pgtable)
			return &ucx.cache[i];
	return NULL;
}

static struct cache *cache_by_itself(const void *rcache)
{
	unsigned int i, n = __atomic_load_n(&ucx.caches, __ATOMIC_ACQUIRE);

	for (i = 0; i < n; i++)
		if (__atomic_load_n(&ucx.cache[i].pgtable, __ATOMIC_ACQUIRE) &&
		    ucx.cache[i].rcache == rcache)
			return &ucx.cache[i];
	return NULL;
}

/*
 * Copies whose calls don't come here, as with RTLD_DEEPBIND: they make their
 * caches without this library. The modules of UCX that pin memory come here all
 * the same, since UCX loads them itself. A copy without such a module is found
 * at the end.
 */

/* What is known */
static enum next_calls calls;

static pid_t process;

static void find_bypass(void)
{
	enum next_calls before, now;
	const char *path;

	now = next_calls_of("ucs_rcache_create", &path);
	before = __atomic_exchange_n(&calls, now, __ATOMIC_RELAXED);
	if (now == NEXT_ELSEWHERE && before != NEXT_ELSEWHERE)
		say("not in use: calls of %s don't pass it, as with RTLD_DEEPBIND",
		    path);
}

/*
 * Has it to be looked for at this pin? After libraries were loaded; and as long
 * as one of them has not called the function, at each of the first pins, and
 * then after twice as many as last time.
 */
static bool look_again(unsigned long loads, bool open)
{
	static unsigned long looked_at, pins;
	unsigned long n;

	if (__atomic_exchange_n(&looked_at, loads, __ATOMIC_RELAXED) != loads)
		return true;
	if (!open)
		return false;
	n = __atomic_add_fetch(&pins, 1, __ATOMIC_RELAXED);
	return n <= FIRST_PINS || !(n & (n - 1));
}

static void look_for_bypass(void)
{
	enum next_calls known = __atomic_load_n(&calls, __ATOMIC_RELAXED);

	if (known != NEXT_ELSEWHERE &&
	    look_again(next_loads(), known == NEXT_OPEN))
		find_bypass();
}

static void __attribute__((constructor)) begin(void)
{
	process = getpid();
}

/* A child of fork(2) that exits leaves this to its parent. */
static void __attribute__((destructor)) end(void)
{
	if (process == getpid() && calls != NEXT_ELSEWHERE)
		find_bypass();
}

/*
 * In front of UCX
 */

void before_pin(const void *caller, const void *addr, size_t length)
{
	(void)caller;
	look_for_bypass();
	if (!works() || !addr || !length ||
	    !changes_await(&ucx.changes, addr, length))
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
	static struct next next = { .name = "ucs_rcache_create" };
	const void *caller = __builtin_return_address(0);
	typeof(ucs_rcache_create) *create = next_of(&next, caller);
	const struct copy *copy;
	signed char ret;

	if (!create)
		return UCS_ERR_NO_MEMORY;
	copy = copy_of(create, caller, stats_parent);
	ret = create(params, name, stats_parent, rcache);
	if (ret != UCS_OK || !copy || add_cache(copy, *rcache))
		return ret;
	copy->destroy(*rcache);
	return UCS_ERR_NO_MEMORY;
}

void ucs_rcache_destroy(void *rcache)
{
	static struct next next = { .name = "ucs_rcache_destroy" };
	const void *caller = __builtin_return_address(0);
	typeof(ucs_rcache_destroy) *destroy = NULL;
	struct cache *cache = cache_by_itself(rcache);

	if (cache) {
		destroy = cache->copy->destroy;
		pthread_mutex_lock(&lock);
		__atomic_store_n(&cache->pgtable, NULL, __ATOMIC_RELEASE);
		pthread_mutex_unlock(&lock);
	}
	destroy = destroy ?: next_of(&next, caller);
	if (destroy)
		destroy(rcache);
}

signed char ucs_rcache_get(void *rcache, void *address, size_t length,
			   size_t alignment, int prot, void *arg, void **region)
{
	static struct next next = { .name = "ucs_rcache_get" };
	const void *caller = __builtin_return_address(0);
	const struct cache *cache = cache_by_itself(rcache);
	typeof(ucs_rcache_get) *get = cache ? cache->copy->get :
					      next_of(&next, caller);

	if (!get)
		return UCS_ERR_NO_MEMORY;
	if (cache && has_news())
		drain();
	return get(rcache, address, length, alignment, prot, arg, region);
}

/* UCX has other page tables, which this library knows nothing of. */
static void *look_up_other(const void *pgtable, unsigned long address,
			   const void *caller)
{
	static struct next next = { .name = "ucs_pgtable_lookup" };
	typeof(ucs_pgtable_lookup) *lookup = next_of(&next, caller);

	copy_learn(pgtable);
	return lookup ? lookup(pgtable, address) : NULL;
}

void *ucs_pgtable_lookup(const void *pgtable, unsigned long address)
{
	const struct cache *cache = cache_by_pgtable(pgtable);

	if (!cache)
		return look_up_other(pgtable, address,
				     __builtin_return_address(0));
	if (has_news()) {
		drain();
		return NULL;
	}
	return cache->copy->pgtable_lookup(pgtable, address);
}
