// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Registration caches.
 *
 * A hit takes no lock and makes no call: the index leads to an entry, one
 * atomic addition takes a reference of it, and the status table shows whether
 * the entry is still valid. All other work is done under a lock, which is
 * dropped for calls of the operations and of the kernel: an entry that is being
 * registered belongs to the caller alone until it is complete, and one that is
 * being deregistered can no longer be found.
 *
 * An entry that is given up is removed from the index, and retires with its
 * last reference: the thread that drops it puts the entry on a list, without a
 * lock, so that signal handlers can call memreg_cache_put(). The next call that
 * is not a hit deregisters the entries on the list.
 *
 * Which entry goes if there is no room is found by a clock: the hand passes
 * over those that were found since it came by last, and over those in use.
 *
 * The cache itself is in a mapping that the kernel wipes in a child of
 * fork(2), as it does the status table.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"

#define DEFAULT_ENTRIES	65536
#define CHUNK		64	/* entries that are allocated at once */
#define ATTEMPTS	64	/* to register memory that keeps changing */
#define FULL_ATTEMPTS	1000	/* to find room */
#define ROOM_NS		2000000	/* wait of one of these */
#define REAP_BATCH	32	/* entries whose watches end with one call */

/**
 * struct memreg_cache - A cache
 * @index: Finds entries; read without the lock; no top in a child
 * @dead: Entries to be deregistered; without the lock
 * @lock: Protects what follows
 * @alive: 1; 0 in a child of the process that made it
 * @m: The handle; constant, as are the next ones
 * @attr: Attributes of the cache
 * @status: Status table, which shows the valid entries
 * @page: Bytes of a page
 * @groups: Number of groups in the table
 * @group: Their generations when the table was last looked through
 * @changes: Changes of the table then
 * @by_slot: Entries that can be found, by their slots
 * @all: All entries that were ever allocated
 * @allocated: Number of these
 * @hand: The hand of the clock, in @all
 * @free: Entries that are free
 * @entries: Entries in use
 * @bytes: Bytes that they have
 * @busy: Threads that are registering or deregistering entries, and may so
 *	make room
 * @room: Signalled when one of them is done
 * @stat: Counters, except hits, which the entries count
 */
struct memreg_cache {
	struct memreg__index index;
	struct memreg__entry *_Atomic dead;
	pthread_mutex_t lock;
	uint32_t alive;
	struct memreg *m;
	struct memreg_cache_attr attr;
	struct memreg_status *status;
	uint64_t page;
	uint32_t groups;
	uint64_t *group;
	uint64_t changes;
	struct memreg__entry **by_slot;
	struct memreg__entry **all;
	uint32_t allocated;
	uint32_t hand;
	struct memreg__entry *free;
	uint64_t entries;
	uint64_t bytes;
	uint32_t busy;
	pthread_cond_t room;
	struct memreg_cache_stat stat;
};

/* Times that this thread is @busy: a callback may call a cache. */
static __thread unsigned int inside;

/**
 * struct request - Arguments of memreg_cache_get()
 * @start: First address
 * @end: First address behind it
 * @from: First address to register on a miss
 * @to: First address behind that
 * @merge: Try to have more of it
 */
struct request {
	uint64_t start;
	uint64_t end;
	uint64_t from;
	uint64_t to;
	bool merge;
};

/*
 * References
 */

static struct memreg__entry *entry_of(const struct memreg_cached *cached)
{
	return (struct memreg__entry *)((uintptr_t)cached -
			offsetof(struct memreg__entry, cached));
}

/* Put an entry in the list of the dead */
static void bury(struct memreg_cache *cache, struct memreg__entry *entry)
{
	entry->next = atomic_load_explicit(&cache->dead, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&cache->dead,
						      &entry->next, entry,
						      memory_order_release,
						      memory_order_relaxed))
		;
}

/* Retire an entry, once, if it has no references and cannot be found. */
static __attribute__((noinline, cold)) void
try_retire(struct memreg_cache *cache, struct memreg__entry *entry,
	   uint64_t refs)
{
	while (!(refs & (REFS | LIVE | RETIRED))) {
		if (atomic_compare_exchange_weak(&entry->refs, &refs,
						 refs | RETIRED)) {
			bury(cache, entry);
			return;
		}
	}
}

static void drop(struct memreg_cache *cache, struct memreg__entry *entry,
		 uint64_t what)
{
	uint64_t refs = atomic_fetch_sub_explicit(&entry->refs, what,
						  memory_order_acq_rel) - what;

	if (__builtin_expect(!(refs & (REFS | LIVE | RETIRED)), 0))
		try_retire(cache, entry, refs);
}

/* Does an entry contain all of a range? Not if the range is empty or wraps. */
static bool has_all(const struct memreg__entry *entry, uint64_t start,
		    size_t length)
{
	uint64_t offset = start - memreg__entry_start(entry);

	return offset < entry->cached.length &&
	       length - 1 < entry->cached.length - offset;
}

/* Take a reference of an entry if it is valid for a range. */
static inline __attribute__((always_inline))
bool hold(struct memreg_cache *cache, struct memreg__entry *entry,
	  uint64_t start, size_t length)
{
	uint64_t refs = atomic_fetch_add_explicit(&entry->refs,
						  HIT_ONE + REF_ONE,
						  memory_order_acquire);

	if (__builtin_expect((refs & (LIVE | MANY)) == LIVE &&
			     has_all(entry, start, length) &&
			     memreg_watch_ok(&entry->cached.watch), 1))
		return true;
	drop(cache, entry, HIT_ONE + REF_ONE);
	return false;
}

/* Make an entry one that no thread can find any more. The lock is held. */
static void unlink_entry(struct memreg_cache *cache,
			 struct memreg__entry *entry, uint64_t *why)
{
	uint64_t refs;

	memreg__index_remove(&cache->index, entry);
	cache->by_slot[entry->cached.watch.slot] = NULL;
	refs = atomic_fetch_sub(&entry->refs, LIVE) - LIVE;
	try_retire(cache, entry, refs);
	if (why)
		(*why)++;
}

static bool is_live(const struct memreg__entry *entry)
{
	return atomic_load(&entry->refs) & LIVE;
}

/*
 * Making and ending registrations; without the lock
 */

/* The lock is held. */
static void begin_work(struct memreg_cache *cache)
{
	cache->busy++;
	inside++;
}

static void end_work(struct memreg_cache *cache)
{
	pthread_mutex_lock(&cache->lock);
	cache->busy--;
	inside--;
	pthread_cond_broadcast(&cache->room);
	pthread_mutex_unlock(&cache->lock);
}

/*
 * Wait for a thread that may make room, with the lock held, though not for
 * long: its callback may be waiting for this thread. Returns false if no thread
 * may.
 */
static bool await_room(struct memreg_cache *cache)
{
	struct timespec until;
	int state;

	if (!cache->busy || inside)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += ROOM_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	/* A thread that is cancelled here would leave the lock locked. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_cond_timedwait(&cache->room, &cache->lock, &until);
	pthread_setcancelstate(state, &state);
	return true;
}

static int undo_registration(struct memreg_cache *cache,
			     struct memreg__entry *entry)
{
	const struct memreg_cache_ops *ops = cache->attr.ops;
	int ret;

	if (!entry->registered)
		return 0;
	/* All MRs of the handle went with the table. */
	if (!ops && memreg__status_is_dead(cache->status)) {
		entry->registered = false;
		return 0;
	}
	ret = ops ? ops->deregister(cache->attr.arg, entry->cached.handle) :
		    memreg_mr_deregister(cache->m, entry->cached.mr.id);
	/* Removal of the device has deregistered all of its MRs. */
	if (!ops && (ret == -ENODEV || ret == -ENOENT))
		ret = 0;
	if (!ret)
		entry->registered = false;
	return ret;
}

static int make_by_ops(struct memreg_cache *cache, struct memreg__entry *entry)
{
	const struct memreg_range range = {
		.addr = entry->cached.addr,
		.length = entry->cached.length,
		.access = cache->attr.access,
	};
	int ret;

	ret = memreg_watch(cache->status, &range, 1, &entry->cached.watch);
	if (ret)
		return ret;
	entry->watched = true;
	ret = cache->attr.ops->register_memory(cache->attr.arg,
					       entry->cached.addr,
					       entry->cached.length,
					       &entry->cached.handle);
	if (ret)
		return memreg__fail("cache_get", ret < 0 ? ret : -ret,
				    "the memory can't be registered");
	entry->registered = true;
	return memreg_watch_ok(&entry->cached.watch) ? 0 : -ESTALE;
}

static int make_mr(struct memreg_cache *cache, struct memreg__entry *entry)
{
	struct memreg_cached *cached = &entry->cached;
	int ret;

	ret = memreg_mr_register_watched(cache->m, cache->attr.domain,
					 cached->addr, cached->length,
					 cache->attr.access, 0, cache->status,
					 &cached->mr, &cached->watch);
	if (ret)
		return ret;
	entry->registered = true;
	return memreg_watch_ok(&cached->watch) ? 0 : -ESTALE;
}

static int make_registration(struct memreg_cache *cache,
			     struct memreg__entry *entry)
{
	/*
	 * A program that closes descriptors that it did not open may have given
	 * their numbers to files of its own.
	 */
	if (memreg__status_is_dead(cache->status))
		return memreg__fail("cache_get", -ENODEV,
				    "the device was removed, or the program has closed the descriptors of the cache");
	return cache->attr.ops ? make_by_ops(cache, entry) :
				 make_mr(cache, entry);
}

/* End watches; returns whether that was so */
static bool end_watches(struct memreg_cache *cache,
			const struct memreg_watch *watches, unsigned int n)
{
	int ret = 0;

	if (n && !memreg__status_is_dead(cache->status))
		ret = memreg_unwatch(cache->status, watches, n);
	return !ret || ret == -ENODEV || ret == -ENOENT;
}

static void free_entries(struct memreg_cache *cache,
			 struct memreg__entry **entries, unsigned int n)
{
	struct memreg__entry *entry;

	pthread_mutex_lock(&cache->lock);
	while (n--) {
		entry = entries[n];
		cache->entries--;
		cache->bytes -= entry->cached.length;
		entry->next = cache->free;
		cache->free = entry;
	}
	pthread_mutex_unlock(&cache->lock);
}

/* End the watches of entries that are not registered any more */
static int reap_batch(struct memreg_cache *cache,
		      struct memreg__entry **entries, unsigned int n)
{
	struct memreg_watch watches[REAP_BATCH];
	unsigned int i, watched = 0;

	for (i = 0; i < n; i++)
		if (entries[i]->watched)
			watches[watched++] = entries[i]->cached.watch;
	if (!end_watches(cache, watches, watched)) {
		for (i = 0; i < n; i++)
			bury(cache, entries[i]);
		return -EAGAIN;
	}
	for (i = 0; i < n; i++)
		entries[i]->watched = false;
	free_entries(cache, entries, n);
	return 0;
}

static struct memreg__entry *begin_to_reap(struct memreg_cache *cache)
{
	struct memreg__entry *entry;

	pthread_mutex_lock(&cache->lock);
	entry = atomic_exchange(&cache->dead, NULL);
	begin_work(cache);
	pthread_mutex_unlock(&cache->lock);
	return entry;
}

/* Deregister dead entries; an entry that cannot be deregistered stays dead */
static int reap(struct memreg_cache *cache)
{
	struct memreg__entry *entry, *next, *batch[REAP_BATCH];
	unsigned int n = 0;
	int ret = 0, err;

	if (!atomic_load(&cache->dead))
		return 0;
	entry = begin_to_reap(cache);
	for (; entry; entry = next) {
		next = entry->next;
		err = undo_registration(cache, entry);
		if (err) {
			ret = err;
			bury(cache, entry);
			continue;
		}
		batch[n++] = entry;
		if (n == REAP_BATCH) {
			ret = reap_batch(cache, batch, n) ?: ret;
			n = 0;
		}
	}
	if (n)
		ret = reap_batch(cache, batch, n) ?: ret;
	end_work(cache);
	return ret;
}

/*
 * Under the lock
 */

/* Give up entries that have changed since the last sweep of the status table */
static void sweep(struct memreg_cache *cache)
{
	uint64_t changes = memreg_status_changes(cache->status), now;
	struct memreg__entry *entry;
	uint32_t g, slot;

	if (changes == cache->changes)
		return;
	cache->changes = changes;
	for (g = 0; g < cache->groups; g++) {
		now = memreg__status_group(cache->status, g);
		if (now == cache->group[g])
			continue;
		cache->group[g] = now;
		for (slot = g * IB_MEMREG_STATUS_GROUP;
		     slot < (g + 1) * IB_MEMREG_STATUS_GROUP; slot++) {
			entry = cache->by_slot[slot];
			if (entry && !memreg_watch_ok(&entry->cached.watch))
				unlink_entry(cache, entry,
					     &cache->stat.stale);
		}
	}
}

/* Find an entry under the lock, and take a reference. */
static struct memreg__entry *find(struct memreg_cache *cache,
				  const struct request *request)
{
	struct memreg__entry *entry;
	uint32_t i = 0;

	while ((entry = memreg__index_overlap(&cache->index, request->start,
					      request->start, request->end,
					      &i)))
		if (hold(cache, entry, request->start,
			 request->end - request->start))
			return entry;
	return NULL;
}

/*
 * Evict an entry by the clock algorithm. Returns false if none can be evicted.
 */
static bool evict(struct memreg_cache *cache)
{
	struct memreg__entry *entry;
	uint64_t refs, turns;

	for (turns = 0; turns < 2 * (uint64_t)cache->allocated; turns++) {
		if (cache->hand >= cache->allocated)
			cache->hand = 0;
		entry = cache->all[cache->hand++];
		refs = atomic_load(&entry->refs);
		if (!(refs & LIVE) || refs & REFS)
			continue;
		if (refs >> HITS_SHIFT != entry->seen) {
			entry->seen = refs >> HITS_SHIFT;
			continue;
		}
		unlink_entry(cache, entry, &cache->stat.evictions);
		return true;
	}
	return false;
}

/* Evict entries until they have at least so many bytes, or no entry is left. */
static bool evict_bytes(struct memreg_cache *cache, uint64_t bytes)
{
	uint64_t before = cache->stat.evictions, n = 0;

	while (n < bytes && evict(cache))
		n += cache->bytes / (cache->entries ?: 1);
	return cache->stat.evictions != before;
}

static bool overlaps(const struct memreg__entry *entry,
		     const struct request *request)
{
	return memreg__entry_start(entry) < request->to &&
	       memreg__entry_end(entry) > request->from;
}

/*
 * The kernel has as many monitors of a page of the range as it allows: evict
 * entries that overlap the range and were not found since this was done last;
 * or else all of these that are not in use. Returns false if there are none.
 */
static bool evict_overlapping(struct memreg_cache *cache,
			      const struct request *request)
{
	uint64_t refs, before = cache->stat.evictions;
	struct memreg__entry *entry;
	uint32_t i, n;

	for (n = 0; n < 2 && cache->stat.evictions == before; n++) {
		for (i = 0; i < cache->allocated; i++) {
			entry = cache->all[i];
			refs = atomic_load(&entry->refs);
			if (!(refs & LIVE) || refs & REFS ||
			    !overlaps(entry, request))
				continue;
			if (refs >> HITS_SHIFT == entry->seen)
				unlink_entry(cache, entry,
					     &cache->stat.evictions);
			else
				entry->seen = refs >> HITS_SHIFT;
		}
	}
	return cache->stat.evictions != before;
}

static bool grow(struct memreg_cache *cache)
{
	struct memreg__entry *entries;
	unsigned int i;

	entries = aligned_alloc(_Alignof(struct memreg__entry),
				CHUNK * sizeof(*entries));
	if (!entries)
		return false;
	memset(entries, 0, CHUNK * sizeof(*entries));
	for (i = 0; i < CHUNK; i++) {
		atomic_init(&entries[i].refs, RETIRED);
		entries[i].next = cache->free;
		cache->free = &entries[i];
		cache->all[cache->allocated++] = &entries[i];
	}
	return true;
}

static bool is_full(const struct memreg_cache *cache, uint64_t length)
{
	return cache->entries >= cache->attr.max_entries ||
	       (cache->attr.max_bytes &&
		cache->bytes + length > cache->attr.max_bytes);
}

static int fail_full(void)
{
	return memreg__fail("cache_get", -ENOSPC,
			    "the limits of the cache are reached by what is in use");
}

/*
 * Give up entries to make room. Returns false if the limits are reached by what
 * is in use.
 */
static bool make_room(struct memreg_cache *cache, uint64_t length)
{
	return evict_bytes(cache, length) || atomic_load(&cache->dead) ||
	       await_room(cache);
}

/*
 * Take a free entry for a new registration. -EAGAIN: an entry was given up to
 * make room, and has to be deregistered first.
 */
static int reserve(struct memreg_cache *cache, const struct request *request,
		   struct memreg__entry **out)
{
	uint64_t length = request->to - request->from;
	struct memreg__entry *entry;

	if (is_full(cache, length))
		return make_room(cache, length) ? -EAGAIN : fail_full();
	if (!cache->free && !grow(cache))
		return memreg__fail_code("cache_get", -ENOMEM, 0);
	begin_work(cache);
	entry = cache->free;
	cache->free = entry->next;
	cache->entries++;
	cache->bytes += length;
	entry->cached.addr = (void *)(uintptr_t)request->from;
	entry->cached.length = length;
	entry->cached.handle = NULL;
	entry->seen = atomic_load(&entry->refs) >> HITS_SHIFT;
	*out = entry;
	return 0;
}

/* Extend a range to register by adjoining ranges in the cache */
static void extend(struct memreg_cache *cache, struct request *request,
		   uint64_t addr)
{
	struct memreg__entry *entry;
	uint32_t i = 0;

	while ((entry = memreg__index_overlap(&cache->index, addr, addr,
					      addr + 1, &i))) {
		uint64_t start = memreg__entry_start(entry);
		uint64_t end = memreg__entry_end(entry);

		if (start < request->from)
			request->from = start;
		if (end > request->to)
			request->to = end;
	}
}

static void merge(struct memreg_cache *cache, struct request *request)
{
	const struct request exact = *request;

	if (!request->merge)
		return;
	extend(cache, request, request->from - 1);
	extend(cache, request, request->to - 1);
	extend(cache, request, request->to);
	if (cache->attr.max_bytes &&
	    request->to - request->from > cache->attr.max_bytes)
		*request = exact;
}

/* The same where the new entry is large: look at all entries. */
static void swallow_all(struct memreg_cache *cache,
			const struct memreg__entry *by)
{
	struct memreg__entry *entry;
	uint32_t i;

	for (i = 0; i < cache->allocated; i++) {
		entry = cache->all[i];
		if (is_live(entry) &&
		    memreg__entry_start(entry) >= memreg__entry_start(by) &&
		    memreg__entry_end(entry) <= memreg__entry_end(by))
			unlink_entry(cache, entry, &cache->stat.merges);
	}
}

/* Retire the entries that a new entry, which is not live yet, contains. */
static void swallow(struct memreg_cache *cache, struct memreg__entry *by)
{
	uint64_t start = memreg__entry_start(by), end = memreg__entry_end(by);
	struct memreg__entry *entry;
	uint64_t addr = start;
	uint32_t i = 0;

	if (memreg__entry_is_large(by)) {
		swallow_all(cache, by);
		return;
	}
	while (addr < end) {
		entry = memreg__index_overlap(&cache->index, addr, start, end,
					      &i);
		if (!entry) {
			addr = ((addr >> LEAF_SHIFT) + 1) << LEAF_SHIFT;
			i = 0;
		} else if (memreg__entry_start(entry) >= start &&
			   memreg__entry_end(entry) <= end) {
			unlink_entry(cache, entry, &cache->stat.merges);
			i = 0;
		}
	}
}

/*
 * Publish a registration, of which the caller has a reference. One that cannot
 * be published is valid, but will not be found again.
 */
static void publish(struct memreg_cache *cache, struct memreg__entry *entry)
{
	bool found;

	swallow(cache, entry);
	found = !memreg__index_insert(&cache->index, entry);
	if (found)
		cache->by_slot[entry->cached.watch.slot] = entry;
	atomic_fetch_add(&entry->refs,
			 (found ? LIVE : 0) + REF_ONE - RETIRED);
	cache->stat.misses++;
}

/* Publish the registration, unless another thread was faster. */
static struct memreg__entry *publish_or_find(struct memreg_cache *cache,
					     struct memreg__entry *entry,
					     const struct request *request)
{
	struct memreg__entry *other;

	pthread_mutex_lock(&cache->lock);
	other = find(cache, request);
	if (!other)
		publish(cache, entry);
	pthread_mutex_unlock(&cache->lock);
	if (!other)
		return entry;
	bury(cache, entry);
	return other;
}

/*
 * Calls
 */

/*
 * Find an entry, or take a free one: 0, with *@found true if it was found;
 * -EAGAIN to repeat the call
 */
static int find_or_reserve(struct memreg_cache *cache, struct request *request,
			   struct memreg__entry **entry, bool *found)
{
	int ret = 0;

	pthread_mutex_lock(&cache->lock);
	sweep(cache);
	*entry = find(cache, request);
	*found = *entry;
	if (!*found) {
		merge(cache, request);
		ret = reserve(cache, request, entry);
	}
	pthread_mutex_unlock(&cache->lock);
	return ret;
}

/*
 * After a failure to register, make room. Returns 0 if it is worth another
 * attempt.
 */
static int after_failure(struct memreg_cache *cache, struct request *request,
			 int err)
{
	bool again;

	if (err == -ESTALE) {
		pthread_mutex_lock(&cache->lock);
		cache->stat.restarts++;
		pthread_mutex_unlock(&cache->lock);
		return 0;
	}
	if (request->merge) {
		request->merge = false;
		request->from = request->start & -cache->page;
		request->to = (request->end + cache->page - 1) & -cache->page;
		return 0;
	}
	if (err != -ENOMEM && err != -ENOSPC)
		return err;
	pthread_mutex_lock(&cache->lock);
	if (memreg_reason_code() == IB_MEMREG_REASON_DEPTH)
		again = evict_overlapping(cache, request);
	else
		again = evict_bytes(cache, request->to - request->from);
	pthread_mutex_unlock(&cache->lock);
	return again ? 0 : err;
}

static int get_slowly(struct memreg_cache *cache, struct request *request,
		      struct memreg__entry **entry)
{
	unsigned int attempts = 0, full = 0;
	int ret, err = -ESTALE;
	bool found, made;

	while (attempts < ATTEMPTS && full < FULL_ATTEMPTS) {
		ret = find_or_reserve(cache, request, entry, &found);
		/* A failure to deregister is reported by a later call. */
		(void)reap(cache);
		if (ret == -EAGAIN) {
			full++;
			continue;
		}
		if (ret || found)
			return ret;
		attempts++;
		ret = make_registration(cache, *entry);
		if (!ret)
			*entry = publish_or_find(cache, *entry, request);
		else
			bury(cache, *entry);
		end_work(cache);
		made = !ret;
		err = ret;
		if (ret)
			ret = after_failure(cache, request, ret);
		/* An entry whose range another one contains is not kept. */
		(void)reap(cache);
		if (made || ret)
			return ret;
	}
	if (full == FULL_ATTEMPTS)
		return fail_full();
	if (err != -ESTALE)
		return err;
	return memreg__fail_code("cache_get", -EAGAIN,
				 IB_MEMREG_REASON_UNSTEADY);
}

static int fail_child(const char *what)
{
	return memreg__fail(what, -ECHILD,
			    "the cache is that of the parent process");
}

static int prepare(const struct memreg_cache *cache, uint64_t start,
		   size_t length, struct request *request)
{
	uint64_t end;

	if (!cache->alive)
		return fail_child("cache_get");
	if (!length)
		return memreg__fail_code("cache_get", -EINVAL,
					 IB_MEMREG_REASON_ZERO_LENGTH);
	if (__builtin_add_overflow(start, length, &end) ||
	    end > -cache->page)
		return memreg__fail_code("cache_get", -EOVERFLOW,
					 IB_MEMREG_REASON_WRAPS);
	*request = (struct request) {
		.start = start,
		.end = end,
		.from = start & -cache->page,
		.to = (end + cache->page - 1) & -cache->page,
		.merge = cache->attr.flags & MEMREG_CACHE_MERGE,
	};
	if (cache->attr.max_bytes &&
	    request->to - request->from > cache->attr.max_bytes)
		return memreg__fail("cache_get", -ENOSPC,
				    "the memory is more than the cache may have");
	return 0;
}

/* Not inline, so that a hit does not pay for this function's stack frame. */
static __attribute__((noinline, cold)) int
get_or_fail(struct memreg_cache *cache, uint64_t start, size_t length,
	    const struct memreg_cached **cached)
{
	struct memreg__entry *entry;
	struct request request;
	int ret;

	ret = prepare(cache, start, length, &request);
	if (ret)
		return ret;
	ret = get_slowly(cache, &request, &entry);
	if (!ret) {
		*cached = &entry->cached;
		return 0;
	}
	pthread_mutex_lock(&cache->lock);
	cache->stat.failures++;
	pthread_mutex_unlock(&cache->lock);
	return ret;
}

static __attribute__((noinline)) struct memreg__entry *
try_get_large(struct memreg_cache *cache, uint64_t start, size_t length)
{
	uint32_t i, n = atomic_load_explicit(&cache->index.larges,
					     memory_order_acquire);
	struct memreg__entry *entry;

	for (i = 0; i < n; i++) {
		entry = atomic_load_explicit(&cache->index.large[i],
					     memory_order_acquire);
		if (entry && has_all(entry, start, length) &&
		    hold(cache, entry, start, length))
			return entry;
	}
	return NULL;
}

static inline __attribute__((always_inline)) struct memreg__entry *
try_get(struct memreg_cache *cache, uint64_t start, size_t length)
{
	struct memreg__entry *entry;

	if (__builtin_expect(!cache->index.top, 0))
		return NULL;
	entry = memreg__index_find(&cache->index, start);
	if (entry && hold(cache, entry, start, length))
		return entry;
	return try_get_large(cache, start, length);
}

EXPORT int memreg_cache_get(struct memreg_cache *cache, const void *addr,
			    size_t length, const struct memreg_cached **cached)
{
	struct memreg__entry *entry = try_get(cache, to_u64(addr), length);

	if (!entry)
		return get_or_fail(cache, to_u64(addr), length, cached);
	*cached = &entry->cached;
	return 0;
}

EXPORT int memreg_cache_try_get(struct memreg_cache *cache, const void *addr,
				size_t length,
				const struct memreg_cached **cached)
{
	struct memreg__entry *entry = try_get(cache, to_u64(addr), length);

	if (!entry)
		return -EAGAIN;
	*cached = &entry->cached;
	return 0;
}

EXPORT void memreg_cache_put(struct memreg_cache *cache,
			     const struct memreg_cached *cached)
{
	/* A child process has nothing to release. */
	if (cache->index.top)
		drop(cache, entry_of(cached), REF_ONE);
}

EXPORT int memreg_cache_flush(struct memreg_cache *cache, const void *addr,
			      size_t length)
{
	uint64_t start = to_u64(addr), end;
	struct memreg__entry *entry;
	uint32_t i;

	if (!cache->alive)
		return fail_child("cache_flush");
	if (__builtin_add_overflow(start, length, &end))
		end = UINT64_MAX;
	pthread_mutex_lock(&cache->lock);
	sweep(cache);
	for (i = 0; i < cache->allocated && length; i++) {
		entry = cache->all[i];
		if (is_live(entry) && memreg__entry_start(entry) < end &&
		    memreg__entry_end(entry) > start)
			unlink_entry(cache, entry, NULL);
	}
	pthread_mutex_unlock(&cache->lock);
	return reap(cache);
}

EXPORT int memreg_cache_query(struct memreg_cache *cache,
			      struct memreg_cache_stat *stat)
{
	uint32_t i;

	if (!cache->alive)
		return fail_child("cache_query");
	pthread_mutex_lock(&cache->lock);
	*stat = cache->stat;
	stat->entries = cache->entries;
	stat->bytes = cache->bytes;
	stat->hits = 0;
	for (i = 0; i < cache->allocated; i++)
		stat->hits += atomic_load(&cache->all[i]->refs) >> HITS_SHIFT;
	pthread_mutex_unlock(&cache->lock);
	return 0;
}

/*
 * Life
 */

static void free_cache(struct memreg_cache *cache)
{
	uint32_t i;

	for (i = 0; cache->all && i < cache->allocated; i += CHUNK)
		free(cache->all[i]);
	free(cache->all);
	free(cache->by_slot);
	free(cache->group);
	memreg__index_free(&cache->index);
	(void)memreg_status_destroy(cache->status);
	pthread_cond_destroy(&cache->room);
	pthread_mutex_destroy(&cache->lock);
	munmap(cache, sizeof(*cache));
}

static struct memreg_cache *new_cache(void)
{
	struct memreg_cache *cache;
	pthread_condattr_t clock;

	cache = mmap(NULL, sizeof(*cache), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (cache == MAP_FAILED)
		return NULL;
	if (madvise(cache, sizeof(*cache), MADV_WIPEONFORK)) {
		munmap(cache, sizeof(*cache));
		return NULL;
	}
	pthread_mutex_init(&cache->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&cache->room, &clock);
	pthread_condattr_destroy(&clock);
	return cache;
}

static int fill_cache(struct memreg_cache *cache)
{
	uint32_t slots = cache->attr.max_entries;
	int ret;

	ret = memreg_status_create(cache->m, slots, 0, &cache->status);
	if (ret)
		return ret;
	cache->groups = (slots + IB_MEMREG_STATUS_GROUP - 1) /
			IB_MEMREG_STATUS_GROUP;
	cache->group = calloc(cache->groups, sizeof(*cache->group));
	cache->by_slot = calloc(cache->groups * (size_t)IB_MEMREG_STATUS_GROUP,
				sizeof(*cache->by_slot));
	cache->all = calloc(slots + (size_t)CHUNK, sizeof(*cache->all));
	if (!cache->group || !cache->by_slot || !cache->all ||
	    memreg__index_init(&cache->index))
		return memreg__fail_code("cache_create", -ENOMEM, 0);
	return 0;
}

EXPORT int memreg_cache_create(struct memreg *m,
			       const struct memreg_cache_attr *attr,
			       struct memreg_cache **out)
{
	struct memreg_cache *cache;
	int ret;

	if (attr->flags & ~(uint32_t)MEMREG_CACHE_MERGE)
		return memreg__fail_code("cache_create", -EINVAL,
					 IB_MEMREG_REASON_FLAGS);
	if (attr->max_entries > IB_MEMREG_STATUS_SLOTS_MAX)
		return memreg__fail_code("cache_create", -EINVAL,
					 IB_MEMREG_REASON_COUNT);
	cache = new_cache();
	if (!cache)
		return memreg__fail_code("cache_create", -ENOMEM, 0);
	cache->m = m;
	cache->attr = *attr;
	cache->attr.max_entries = attr->max_entries ?: DEFAULT_ENTRIES;
	cache->page = (uint64_t)sysconf(_SC_PAGESIZE);
	ret = fill_cache(cache);
	if (ret) {
		free_cache(cache);
		return ret;
	}
	cache->alive = 1;
	*out = cache;
	return 0;
}

EXPORT int memreg_cache_destroy(struct memreg_cache *cache)
{
	int ret;

	if (!cache)
		return 0;
	if (!cache->alive)
		return fail_child("cache_destroy");
	ret = memreg_cache_flush(cache, NULL, SIZE_MAX);
	if (cache->entries)
		return ret ?: memreg__fail("cache_destroy", -EBUSY,
					   "registrations are in use");
	free_cache(cache);
	return 0;
}
