// SPDX-License-Identifier: GPL-2.0-only
/*
 * Registration caches: a cache returns only registrations of the memory that is
 * mapped at present, after any change of the mapping; also with callbacks that
 * fail, call back or unmap, at limits, and with forks, signals and threads.
 *
 * Most tests use operations that record the contents of the memory when it was
 * registered, as a pin keeps the pages: comparing finds a cache that returns
 * stale entries. With MRs a stock peer compares.
 *
 * time limit: 240
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define ALIVE		0x11f3

/**
 * struct made - A registration by operations
 * @alive: ALIVE, until it is deregistered
 * @version: Version of the contents when it was registered
 * @addr: The memory
 * @length: Bytes of it
 */
struct made {
	uint32_t alive;
	uint64_t version;
	char *addr;
	size_t length;
};

/**
 * struct maker - Behaviour of the callbacks of a test's cache
 * @cache: The cache
 * @registered: Number of present registrations
 * @calls: Number of registrations
 * @fail: Errno that registering fails with, or 0
 * @fail_over: Number of registrations from which on it fails with ENOMEM, or 0
 * @keep: Errno that deregistering fails with, or 0
 * @unmap: The callback unmaps the memory that it registers
 * @recurse: The callback gets a registration of this address from the cache
 * @refused: Registering memory at this address fails
 * @gate: Deregistering waits until this is unlocked, or NULL
 * @waits: It does
 */
struct maker {
	struct memreg_cache *cache;
	_Atomic int registered;
	_Atomic int calls;
	int fail;
	int fail_over;
	int keep;
	bool unmap;
	char *recurse;
	char *refused;
	pthread_mutex_t *gate;
	_Atomic bool waits;
};

static int make(void *arg, void *addr, size_t length, void **handle)
{
	struct maker *maker = arg;
	struct made *made, as = {
		.alive = ALIVE, .addr = addr, .length = length,
	};

	maker->calls++;
	if (maker->fail)
		return maker->fail;
	if (addr == maker->refused)
		return -EPERM;
	if (maker->fail_over && maker->registered >= maker->fail_over)
		return -ENOMEM;
	as.version = __atomic_load_n((uint64_t *)addr, __ATOMIC_RELAXED);
	if (maker->unmap &&
	    mmap(addr, length, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS |
		 MAP_FIXED, -1, 0) != addr)
		return -EIO;
	if (maker->recurse) {
		const struct memreg_cached *other;
		char *at = maker->recurse;

		maker->recurse = NULL;
		if (memreg_cache_get(maker->cache, at, PAGE, &other))
			return -EIO;
		memreg_cache_put(maker->cache, other);
	}
	made = malloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	*made = as;
	maker->registered++;
	*handle = made;
	return 0;
}

static int unmake(void *arg, void *handle)
{
	struct maker *maker = arg;
	struct made *made = handle;

	if (maker->keep)
		return maker->keep;
	if (maker->gate) {
		maker->waits = true;
		pthread_mutex_lock(maker->gate);
		pthread_mutex_unlock(maker->gate);
	}
	if (made->alive != ALIVE)
		abort();
	made->alive = 0;
	free(made);
	maker->registered--;
	return 0;
}

static const struct memreg_cache_ops ops = {
	.register_memory = make,
	.deregister = unmake,
};

/* Rounds of a check, fewer on a debug kernel, or of a soak */
static unsigned int rounds_of(unsigned int check, unsigned int soak)
{
	return test_full() ? times(check, soak) : test_rounds(check);
}

FIXTURE(cache) {
	struct memreg *m;
	struct memreg_cache *cache;
	struct maker maker;
	char *mem;
	size_t length;
};

static int create(FIXTURE_DATA(cache) *self, uint32_t entries, uint64_t bytes,
		  uint32_t flags)
{
	const struct memreg_cache_attr attr = {
		.ops = &ops,
		.arg = &self->maker,
		.access = LOCAL_WRITE,
		.flags = flags,
		.max_entries = entries,
		.max_bytes = bytes,
	};
	int ret;

	if (self->cache) {
		ret = memreg_cache_destroy(self->cache);
		if (ret)
			return ret;
	}
	ret = memreg_cache_create(self->m, &attr, &self->cache);
	self->maker.cache = self->cache;
	return ret;
}

FIXTURE_SETUP(cache)
{
	ASSERT_EQ(0, memreg_open_unbound(&self->m));
	ASSERT_EQ(0, create(self, 0, 0, 0));
	self->length = 64 * PAGE;
	self->mem = mem_alloc(self->length);
	ASSERT_NE(NULL, self->mem);
	memset(self->mem, 1, self->length);
}

FIXTURE_TEARDOWN(cache)
{
	EXPECT_EQ(0, memreg_cache_destroy(self->cache));
	EXPECT_EQ(0, self->maker.registered);
	memreg_close(self->m);
	munmap(self->mem, self->length);
}

/* Get and put; the registration, or NULL */
static const struct made *touch(FIXTURE_DATA(cache) *self, char *addr,
				size_t length)
{
	const struct memreg_cached *cached;
	const struct made *made;

	if (memreg_cache_get(self->cache, addr, length, &cached))
		return NULL;
	made = cached->handle;
	if (made->alive != ALIVE || made->addr > addr ||
	    made->addr + made->length < addr + length)
		made = NULL;
	memreg_cache_put(self->cache, cached);
	return made;
}

static uint64_t counted(FIXTURE_DATA(cache) *self, size_t offset)
{
	struct memreg_cache_stat stat;

	if (memreg_cache_query(self->cache, &stat))
		return ~0ULL;
	return *(uint64_t *)((char *)&stat + offset);
}

#define COUNTED(_self, _what)						\
	counted(_self, offsetof(struct memreg_cache_stat, _what))

static bool map_anew(void *addr, size_t length, uint64_t version)
{
	char *at = mmap(addr, length, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS |
			MAP_FIXED, -1, 0);
	size_t i;

	for (i = 0; at == addr && i < length; i += PAGE)
		*(uint64_t *)(at + i) = version;
	return at == addr;
}

/* Pages of this process that are in memory, in KiB */
static long mem_resident(void)
{
	long size, resident = -1;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f) {
		if (fscanf(f, "%ld %ld", &size, &resident) != 2)
			resident = -1;
		fclose(f);
	}
	return resident * (long)(PAGE / 1024);
}

TEST_F(cache, what_it_has_is_found)
{
	const struct made *made = touch(self, self->mem + 10, 5 * PAGE);

	ASSERT_NE(NULL, made);
	EXPECT_EQ(self->mem, made->addr);
	EXPECT_EQ(6 * PAGE, made->length);
	EXPECT_EQ(made, touch(self, self->mem, 6 * PAGE));
	EXPECT_EQ(made, touch(self, self->mem + 5 * PAGE, 1));
	EXPECT_EQ(1, self->maker.calls);
	EXPECT_EQ(2, COUNTED(self, hits));
	EXPECT_EQ(1, COUNTED(self, misses));
	EXPECT_EQ(6 * PAGE, COUNTED(self, bytes));
	/* An entry for the whole range replaces the one for a part of it. */
	EXPECT_NE(NULL, touch(self, self->mem, 7 * PAGE));
	EXPECT_NE(NULL, touch(self, self->mem, 6 * PAGE));
	EXPECT_EQ(2, self->maker.calls);
	EXPECT_EQ(1, COUNTED(self, merges));
	EXPECT_EQ(0, memreg_cache_flush(self->cache, self->mem, 1));
	EXPECT_EQ(0, self->maker.registered);
	EXPECT_EQ(0, COUNTED(self, entries));
	EXPECT_EQ(0, COUNTED(self, bytes));
}

/* Get an entry that the cache has, and put it. Returns NULL if it has none. */
static const struct made *hit(FIXTURE_DATA(cache) *self, char *addr,
			      size_t length)
{
	const struct memreg_cached *cached;
	const struct made *made;

	if (memreg_cache_try_get(self->cache, addr, length, &cached))
		return NULL;
	made = cached->handle;
	memreg_cache_put(self->cache, cached);
	return made;
}

TEST_F(cache, what_overlaps_is_found_once_the_other_goes)
{
	char *shared = self->mem + 20 * PAGE;
	const struct made *first, *last;
	unsigned int page;

	first = touch(self, self->mem + PAGE, 40 * PAGE);
	last = touch(self, shared, 40 * PAGE);
	EXPECT_NE(first, last);
	for (page = 0; page < 21; page++) {
		EXPECT_EQ(last, hit(self, shared + page * PAGE, PAGE));
		EXPECT_EQ(first, hit(self, self->mem + PAGE, page * PAGE + 1));
	}
	EXPECT_EQ(NULL, hit(self, self->mem + PAGE, 59 * PAGE));
	/* The changed memory belongs to the entry that ends last. */
	ASSERT_TRUE(map_anew(self->mem + 50 * PAGE, PAGE, 1));
	EXPECT_EQ(first, touch(self, shared, 21 * PAGE));
	for (page = 0; page < 21; page++)
		EXPECT_EQ(first, hit(self, shared + page * PAGE, PAGE));
	EXPECT_EQ(NULL, hit(self, shared, 22 * PAGE));
	EXPECT_EQ(2, self->maker.calls);
	last = touch(self, shared, 40 * PAGE);
	EXPECT_EQ(last, hit(self, shared, PAGE));
	EXPECT_EQ(0, memreg_cache_flush(self->cache, self->mem + 50 * PAGE, 1));
	EXPECT_EQ(first, hit(self, shared, PAGE));
	EXPECT_EQ(0, memreg_cache_flush(self->cache, self->mem, 2 * PAGE));
	EXPECT_EQ(NULL, hit(self, shared, PAGE));
	EXPECT_EQ(3, self->maker.calls);
	EXPECT_EQ(0, self->maker.registered);
}

TEST_F(cache, I2_what_has_changed_is_registered_anew)
{
	const struct memreg_cached *held, *again;

	ASSERT_TRUE(map_anew(self->mem, PAGE, 7));
	ASSERT_EQ(0, memreg_cache_get(self->cache, self->mem, PAGE, &held));
	EXPECT_TRUE(memreg_watch_ok(&held->watch));
	ASSERT_TRUE(map_anew(self->mem, PAGE, 8));
	EXPECT_FALSE(memreg_watch_ok(&held->watch));
	EXPECT_EQ(-EAGAIN, memreg_cache_try_get(self->cache, self->mem, PAGE,
						&again));
	ASSERT_EQ(0, memreg_cache_get(self->cache, self->mem, PAGE, &again));
	EXPECT_EQ(7, ((struct made *)held->handle)->version);
	EXPECT_EQ(8, ((struct made *)again->handle)->version);
	EXPECT_EQ(2, self->maker.registered);
	EXPECT_EQ(1, COUNTED(self, stale));
	EXPECT_EQ(-EBUSY, memreg_cache_destroy(self->cache));
	memreg_cache_put(self->cache, held);
	EXPECT_EQ(0, memreg_cache_flush(self->cache, NULL, 0));
	memreg_cache_put(self->cache, again);
}

TEST_F(cache, bad_ranges)
{
	const struct memreg_cached *cached;
	unsigned int i;

	/*
	 * In the first round the cache is empty, in the second it has an entry
	 * for the range.
	 */
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(-EINVAL, memreg_cache_get(self->cache, self->mem, 0,
						    &cached));
		EXPECT_EQ(-EOVERFLOW, memreg_cache_get(self->cache, self->mem,
						       SIZE_MAX, &cached));
		EXPECT_NE(NULL, touch(self, self->mem, 2 * PAGE));
	}
	EXPECT_EQ(1, self->maker.calls);
	EXPECT_EQ(-EFAULT, memreg_cache_get(self->cache,
					    (void *)0xffff888000000000, PAGE,
					    &cached));
	EXPECT_EQ(-EINVAL, create(self, IB_MEMREG_STATUS_SLOTS_MAX + 1, 0, 0));
	self->cache = NULL;
	EXPECT_EQ(-EINVAL, create(self, 0, 0, 1U << 31));
	EXPECT_EQ(0, create(self, 0, 0, 0));
}

TEST_F(cache, clock_lets_go_what_is_not_used)
{
	const struct made *first;
	unsigned int i;

	ASSERT_EQ(0, create(self, 4, 0, 0));
	first = touch(self, self->mem, PAGE);
	for (i = 1; i < 32; i++) {
		EXPECT_NE(NULL, touch(self, self->mem + 2 * i * PAGE, PAGE));
		EXPECT_EQ(first, touch(self, self->mem, PAGE));
		EXPECT_GE(4, self->maker.registered);
	}
	EXPECT_EQ(32, self->maker.calls);
	EXPECT_EQ(28, COUNTED(self, evictions));
}

/*
 * The kernel limits the monitors of a page. Windows that slide over it push
 * each other out, and nothing else.
 */
TEST_F(cache, windows_that_slide_keep_what_is_elsewhere)
{
	const unsigned int others = 200, windows = 512;
	const size_t length = 512 * PAGE;
	const struct memreg_cached *cached[IB_MEMREG_MONITOR_DEPTH + 1];
	char *other = mem_alloc(2 * others * PAGE);
	char *mem = mem_alloc(length + windows * PAGE);
	unsigned int i, calls;

	ASSERT_NE(NULL, other);
	ASSERT_NE(NULL, mem);
	for (i = 0; i < others; i++)
		EXPECT_NE(NULL, touch(self, other + 2 * i * PAGE, PAGE));
	for (i = 0; i < windows; i++)
		EXPECT_NE(NULL, touch(self, mem + i * PAGE, length));
	EXPECT_LT(0, COUNTED(self, evictions));
	calls = self->maker.calls;
	for (i = 0; i < others; i++)
		EXPECT_NE(NULL, touch(self, other + 2 * i * PAGE, PAGE));
	EXPECT_EQ(calls, self->maker.calls);
	/* Where all of them are in use, that is the reason. */
	EXPECT_EQ(0, memreg_cache_flush(self->cache, mem, SIZE_MAX));
	for (i = 0; i < IB_MEMREG_MONITOR_DEPTH; i++)
		ASSERT_EQ(0, memreg_cache_get(self->cache, mem + i * PAGE,
					      length, &cached[i]));
	EXPECT_EQ(-ENOSPC, memreg_cache_get(self->cache, mem + i * PAGE, length,
					    &cached[i]));
	EXPECT_EQ(IB_MEMREG_REASON_DEPTH, memreg_reason_code());
	while (i--)
		memreg_cache_put(self->cache, cached[i]);
	mem_free(mem, length + windows * PAGE);
	mem_free(other, 2 * others * PAGE);
}

/* An entry of many pieces of memory makes no index of them. */
TEST_F(cache, large_ranges_cost_no_more_than_small_ones)
{
	const size_t length = 1UL << 40;
	const struct made *small, *large;
	char *mem = mmap(NULL, length, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS |
			 MAP_NORESERVE, -1, 0);
	long before = mem_resident();

	ASSERT_NE(MAP_FAILED, mem);
	small = touch(self, mem + 8 * PAGE, PAGE);
	ASSERT_NE(NULL, small);
	large = touch(self, mem, length);
	ASSERT_NE(NULL, large);
	EXPECT_EQ(1, COUNTED(self, merges));
	EXPECT_EQ(large, touch(self, mem + (length / 2), PAGE));
	EXPECT_EQ(large, touch(self, mem + 8 * PAGE, PAGE));
	EXPECT_EQ(large, touch(self, mem + length - PAGE, PAGE));
	EXPECT_GT(1024, mem_resident() - before);
	ASSERT_TRUE(map_anew(mem + 8 * PAGE, PAGE, 2));
	ASSERT_NE(NULL, touch(self, mem + 8 * PAGE, PAGE));
	EXPECT_EQ(1, COUNTED(self, stale));
	EXPECT_EQ(1, self->maker.registered);
	munmap(mem, length);
}

/* As a daemon does that closes all descriptors that it may have inherited */
TEST_F(cache, I2_program_closes_the_descriptors)
{
	const struct memreg_cached *cached;
	int fd;

	ASSERT_NE(NULL, touch(self, self->mem, PAGE));
	ASSERT_EQ(0, memreg_cache_get(self->cache, self->mem, PAGE, &cached));
	fd = memreg_fd(self->m);
	EXPECT_EQ(0, close(fd));
	EXPECT_EQ(fd, open("/dev/null", O_RDONLY));
	ASSERT_TRUE(map_anew(self->mem, PAGE, 2));
	EXPECT_EQ(-EAGAIN, memreg_cache_try_get(self->cache, self->mem, PAGE,
						&cached));
	EXPECT_EQ(NULL, touch(self, self->mem, PAGE));
	EXPECT_NE(NULL, strstr(memreg_reason(), "closed the descriptors"));
	EXPECT_EQ(-EBUSY, memreg_cache_destroy(self->cache));
	memreg_cache_put(self->cache, cached);
	EXPECT_EQ(0, memreg_cache_destroy(self->cache));
	EXPECT_EQ(0, self->maker.registered);
	self->cache = NULL;
}

TEST_F(cache, limits_hold)
{
	const struct memreg_cached *held[4], *more;
	unsigned int i;

	ASSERT_EQ(0, create(self, 0, 4 * PAGE, 0));
	EXPECT_EQ(-ENOSPC, memreg_cache_get(self->cache, self->mem, 5 * PAGE,
					    &more));
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, memreg_cache_get(self->cache, self->mem +
					      2 * i * PAGE, PAGE, &held[i]));
	EXPECT_EQ(-ENOSPC, memreg_cache_get(self->cache, self->mem + 20 * PAGE,
					    PAGE, &more));
	EXPECT_EQ(4 * PAGE, COUNTED(self, bytes));
	memreg_cache_put(self->cache, held[2]);
	EXPECT_EQ(0, memreg_cache_get(self->cache, self->mem + 20 * PAGE, PAGE,
				      &held[2]));
	for (i = 0; i < 4; i++)
		memreg_cache_put(self->cache, held[i]);
	EXPECT_NE(NULL, touch(self, self->mem, 4 * PAGE));
	EXPECT_EQ(1, COUNTED(self, entries));
	EXPECT_EQ(1, COUNTED(self, failures));
}

/**
 * struct getter - A thread that gets a registration
 * @cache: From this cache
 * @addr: Of the page at this address
 * @tid: Its thread, once it has begun
 * @ret: What memreg_cache_get() returned
 */
struct getter {
	struct memreg_cache *cache;
	char *addr;
	_Atomic pid_t tid;
	int ret;
};

static void *get_and_put(void *arg)
{
	const struct memreg_cached *cached;
	struct getter *getter = arg;

	getter->tid = gettid();
	getter->ret = memreg_cache_get(getter->cache, getter->addr, PAGE,
				       &cached);
	if (!getter->ret)
		memreg_cache_put(getter->cache, cached);
	return NULL;
}

/* Room that another thread is making is waited for, not taken for in use. */
TEST_F(cache, limits_wait_for_what_goes)
{
	struct getter first = {}, second = {};
	const struct memreg_cached *held;
	pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
	pthread_t threads[2];

	ASSERT_EQ(0, create(self, 2, 0, 0));
	ASSERT_EQ(0, memreg_cache_get(self->cache, self->mem, PAGE, &held));
	EXPECT_NE(NULL, touch(self, self->mem + 8 * PAGE, PAGE));
	first.cache = self->cache;
	first.addr = self->mem + 16 * PAGE;
	second.cache = self->cache;
	second.addr = self->mem + 24 * PAGE;
	self->maker.refused = first.addr;
	self->maker.gate = &gate;
	pthread_mutex_lock(&gate);
	ASSERT_EQ(0, pthread_create(&threads[0], NULL, get_and_put, &first));
	AWAIT(self->maker.waits);
	ASSERT_EQ(0, pthread_create(&threads[1], NULL, get_and_put, &second));
	AWAIT(second.tid && task_is(second.tid, 'S'));
	pthread_mutex_unlock(&gate);
	EXPECT_EQ(0, pthread_join(threads[0], NULL));
	EXPECT_EQ(0, pthread_join(threads[1], NULL));
	self->maker.gate = NULL;
	/* The second one may have been faster, and hold the room. */
	EXPECT_TRUE(first.ret == -EPERM || first.ret == -ENOSPC);
	EXPECT_EQ(0, second.ret);
	memreg_cache_put(self->cache, held);
}

/* One registration gives only so many references. */
TEST_F(cache, limits_of_references_are_seen)
{
	const struct memreg_cached *first, *other, *again;
	unsigned int i, n = 1;

	ASSERT_EQ(0, memreg_cache_get(self->cache, self->mem, PAGE, &first));
	for (;; n++) {
		ASSERT_EQ(0, memreg_cache_get(self->cache, self->mem, PAGE,
					      &other));
		if (other != first)
			break;
	}
	EXPECT_LE(1 << 19, n);
	EXPECT_EQ(2, self->maker.registered);
	EXPECT_EQ(0, memreg_cache_get(self->cache, self->mem, PAGE, &again));
	EXPECT_EQ(other, again);
	memreg_cache_put(self->cache, again);
	memreg_cache_put(self->cache, other);
	/* The first one stays until its last reference is put. */
	for (i = 1; i < n; i++)
		memreg_cache_put(self->cache, first);
	EXPECT_EQ(0, memreg_cache_flush(self->cache, NULL, 0));
	EXPECT_EQ(2, self->maker.registered);
	memreg_cache_put(self->cache, first);
	EXPECT_EQ(0, memreg_cache_flush(self->cache, NULL, 0));
	EXPECT_EQ(1, self->maker.registered);
}

TEST_F(cache, neighbours_are_merged_on_request)
{
	const struct made *made;

	ASSERT_EQ(0, create(self, 0, 0, MEMREG_CACHE_MERGE));
	touch(self, self->mem, 2 * PAGE);
	touch(self, self->mem + 4 * PAGE, 2 * PAGE);
	made = touch(self, self->mem + 2 * PAGE, 2 * PAGE);
	ASSERT_NE(NULL, made);
	EXPECT_EQ(self->mem, made->addr);
	EXPECT_EQ(6 * PAGE, made->length);
	EXPECT_EQ(1, COUNTED(self, entries));
	EXPECT_EQ(made, touch(self, self->mem, 6 * PAGE));
	EXPECT_EQ(1, self->maker.registered);
}

/*
 * Callbacks
 */

TEST_F(cache, I8_registering_fails)
{
	const struct memreg_cached *cached;

	self->maker.fail = -EPERM;
	EXPECT_EQ(-EPERM, memreg_cache_get(self->cache, self->mem, PAGE,
					   &cached));
	EXPECT_EQ(0, COUNTED(self, entries));
	self->maker.fail = 0;
	self->maker.fail_over = 8;
	for (char *at = self->mem; at < self->mem + 64 * PAGE; at += PAGE)
		EXPECT_NE(NULL, touch(self, at, PAGE));
	EXPECT_GE(8, self->maker.registered);
	EXPECT_EQ(0, memreg_cache_flush(self->cache, NULL, SIZE_MAX));
	self->maker.fail = -ENOMEM;
	EXPECT_EQ(-ENOMEM, memreg_cache_get(self->cache, self->mem, PAGE,
					    &cached));
	self->maker.fail = 0;
}

TEST_F(cache, deregistering_fails)
{
	EXPECT_NE(NULL, touch(self, self->mem, PAGE));
	self->maker.keep = -EBUSY;
	EXPECT_EQ(-EBUSY, memreg_cache_flush(self->cache, self->mem, PAGE));
	EXPECT_EQ(-EBUSY, memreg_cache_destroy(self->cache));
	EXPECT_NE(NULL, touch(self, self->mem, PAGE));
	EXPECT_EQ(2, self->maker.registered);
	self->maker.keep = 0;
	EXPECT_EQ(0, memreg_cache_flush(self->cache, NULL, 0));
	EXPECT_EQ(1, self->maker.registered);
}

TEST_F(cache, I2_registering_unmaps_the_memory)
{
	const struct memreg_cached *cached;

	self->maker.unmap = true;
	EXPECT_EQ(-EAGAIN, memreg_cache_get(self->cache, self->mem, PAGE,
					    &cached));
	EXPECT_EQ(0, self->maker.registered);
	EXPECT_LT(1, COUNTED(self, restarts));
	self->maker.unmap = false;
	EXPECT_NE(NULL, touch(self, self->mem, PAGE));
}

TEST_F(cache, registering_asks_the_cache)
{
	self->maker.recurse = self->mem + 8 * PAGE;
	EXPECT_NE(NULL, touch(self, self->mem, PAGE));
	/*
	 * The callback gets the range that is being registered: one of the two
	 * registrations is given up.
	 */
	self->maker.recurse = self->mem + 16 * PAGE;
	EXPECT_NE(NULL, touch(self, self->mem + 16 * PAGE, PAGE));
	EXPECT_EQ(3, COUNTED(self, misses));
	EXPECT_EQ(0, memreg_cache_flush(self->cache, NULL, 0));
	EXPECT_EQ(3, self->maker.registered);
}

/*
 * Processes, signals, threads
 */

TEST_F(cache, child_has_none_of_it)
{
	const struct memreg_cached *held, *cached;

	ASSERT_EQ(0, memreg_cache_get(self->cache, self->mem, PAGE, &held));
	IN_CHILD {
		struct memreg_cache_stat stat;

		EXPECT_EQ(-ECHILD, memreg_cache_get(self->cache, self->mem,
						    PAGE, &cached));
		EXPECT_EQ(-EAGAIN, memreg_cache_try_get(self->cache, self->mem,
							PAGE, &cached));
		EXPECT_EQ(-ECHILD, memreg_cache_flush(self->cache, NULL, 0));
		EXPECT_EQ(-ECHILD, memreg_cache_query(self->cache, &stat));
		EXPECT_FALSE(memreg_watch_ok(&held->watch));
		memreg_cache_put(self->cache, held);
		EXPECT_EQ(-ECHILD, memreg_cache_destroy(self->cache));
	}
	EXPECT_TRUE(memreg_watch_ok(&held->watch));
	memreg_cache_put(self->cache, held);
	EXPECT_NE(NULL, touch(self, self->mem, PAGE));
	EXPECT_EQ(1, self->maker.calls);
}

static struct {
	FIXTURE_DATA(cache) *self;
	_Atomic unsigned long hits, misses;
} in_signal;

static void on_signal(int signal)
{
	const struct memreg_cached *cached;
	FIXTURE_DATA(cache) *self = in_signal.self;

	(void)signal;
	if (memreg_cache_try_get(self->cache, self->mem, PAGE, &cached)) {
		in_signal.misses++;
		return;
	}
	in_signal.hits++;
	memreg_cache_put(self->cache, cached);
}

TEST_F(cache, signal_handlers_find_and_put)
{
	const struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = {};
	struct sigaction action = { .sa_handler = on_signal,
				    .sa_flags = SA_RESTART };
	unsigned int i;

	in_signal.self = self;
	ASSERT_EQ(0, create(self, 4, 0, 0));
	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, NULL));
	for (i = 0; !in_signal.hits || !in_signal.misses || i < 1000; i++) {
		ASSERT_TRUE(map_anew(self->mem + i % 8 * PAGE, PAGE, i));
		ASSERT_NE(NULL, touch(self, self->mem + i % 8 * PAGE, PAGE));
	}
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
}

#define THREADS		4
#define PLACES		16
#define PLACE		(4 * PAGE)

/**
 * struct user - A thread that maps, gets and unmaps
 * @self: The cache
 * @alone: No other thread maps anything: it may leave a hole for a moment
 * @mem: PLACES of its own
 * @seed: Seed of its random numbers
 * @rounds: Number of rounds to do
 * @stale: Registrations that were not of the memory
 * @plain: Entries of a cache without invalidation
 * @failed: Calls that failed
 */
struct user {
	FIXTURE_DATA(cache) *self;
	bool alone;
	char *mem;
	unsigned int seed;
	unsigned int rounds;
	unsigned int stale;
	unsigned int plain;
	unsigned int failed;
};

/* Replace the memory of a place, so that it has other contents. */
static bool change(struct user *u, char *at, uint64_t version)
{
	char *from;

	switch (rand_r(&u->seed) % 4) {
	case 0:
		return !(u->alone && syscall(SYS_munmap, at, PLACE)) &&
		       map_anew(at, PLACE, version);
	case 1:
		if (syscall(SYS_madvise, at, PLACE, MADV_DONTNEED))
			return false;
		*(uint64_t *)at = version;
		return true;
	case 2:
		from = mem_alloc(PLACE);
		if (!from)
			return false;
		*(uint64_t *)from = version;
		return mremap(from, PLACE, PLACE, MREMAP_MAYMOVE |
			      MREMAP_FIXED, at) == at;
	default:
		return map_anew(at, PLACE, version);
	}
}

static void use(struct user *u, char *at, uint64_t version)
{
	const struct memreg_cached *cached;
	const struct made *made;

	if (memreg_cache_get(u->self->cache, at, PAGE, &cached)) {
		u->failed++;
		return;
	}
	made = cached->handle;
	if (made->alive != ALIVE || made->addr != at ||
	    made->version != version)
		u->stale++;
	memreg_cache_put(u->self->cache, cached);
}

static void *user_thread(void *arg)
{
	uint64_t version = 1, versions[PLACES] = {}, plain[PLACES] = {};
	struct user *u = arg;
	unsigned int i, n;
	char *at;

	for (i = 0; i < u->rounds && !u->failed; i++) {
		n = rand_r(&u->seed) % PLACES;
		at = u->mem + n * PLACE;
		if (!versions[n] || rand_r(&u->seed) % 4 == 0) {
			versions[n] = version++;
			u->failed += !change(u, at, versions[n]);
		}
		use(u, at, versions[n]);
		if (!plain[n])
			plain[n] = versions[n];
		u->plain += plain[n] != versions[n];
	}
	return NULL;
}

TEST_F_TIMEOUT(cache, I2_random_rounds_of_threads, 600)
{
	unsigned int i, rounds = rounds_of(8000, 100000) / THREADS;
	struct user users[THREADS];
	pthread_t threads[THREADS];

	/* Fewer entries than places, so that some are evicted. */
	ASSERT_EQ(0, create(self, THREADS * PLACES * 3 / 4, 0, 0));
	for (i = 0; i < THREADS; i++) {
		users[i] = (struct user){
			.self = self,
			.mem = mem_alloc(PLACES * PLACE),
			.seed = test_seed() + i,
			.rounds = rounds,
		};
		ASSERT_NE(NULL, users[i].mem);
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, user_thread,
					    &users[i]));
	}
	for (i = 0; i < THREADS; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
		EXPECT_EQ(0, users[i].failed);
		EXPECT_EQ(0, users[i].stale);
		/*
		 * A cache without invalidation must fail here, or this is no
		 * test.
		 */
		EXPECT_LT(0, users[i].plain);
		mem_free(users[i].mem, PLACES * PLACE);
	}
	TH_LOG("%u rounds: %lu hits, %lu misses, %lu stale, %lu evicted",
	       rounds * THREADS, (unsigned long)COUNTED(self, hits),
	       (unsigned long)COUNTED(self, misses),
	       (unsigned long)COUNTED(self, stale),
	       (unsigned long)COUNTED(self, evictions));
	EXPECT_LT(0, COUNTED(self, evictions));
}

/*
 * Get and put ranges that do not change, which all threads share: each
 * registration in use is alive.
 */
static void *sharing_thread(void *arg)
{
	struct user *u = arg;
	unsigned int i;

	for (i = 0; i < u->rounds; i++)
		if (!touch(u->self, u->mem + rand_r(&u->seed) % 64 * PAGE,
			   PAGE))
			u->failed++;
	return NULL;
}

TEST_F_TIMEOUT(cache, threads_share_and_evict, 600)
{
	struct user users[THREADS];
	pthread_t threads[THREADS];
	unsigned int i;

	ASSERT_EQ(0, create(self, 16, 0, 0));
	for (i = 0; i < THREADS; i++) {
		users[i] = (struct user){
			.self = self,
			.mem = self->mem,
			.seed = test_seed() + i,
			.rounds = rounds_of(4000, 100000),
		};
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, sharing_thread,
					    &users[i]));
	}
	for (i = 0; i < THREADS; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
		EXPECT_EQ(0, users[i].failed);
	}
	EXPECT_GE(16, self->maker.registered);
}

TEST_F(cache, many_entries)
{
	const unsigned int n = test_rounds(20000);
	char *mem = mmap(NULL, 2UL * n * PAGE, PROT_RW, MAP_PRIVATE |
			 MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned int i;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < n; i++)
		ASSERT_NE(NULL, touch(self, mem + (i * 7919UL % n) * 2 * PAGE,
				      PAGE));
	EXPECT_EQ(n, self->maker.calls);
	for (i = 0; i < n; i++)
		ASSERT_NE(NULL, touch(self, mem + 2UL * i * PAGE, PAGE));
	EXPECT_EQ(n, self->maker.calls);
	EXPECT_EQ(n, COUNTED(self, hits));
	ASSERT_EQ(0, munmap(mem, 2UL * n * PAGE));
	EXPECT_EQ(0, memreg_cache_flush(self->cache, NULL, 0));
	EXPECT_EQ(0, self->maker.registered);
	EXPECT_EQ(n, COUNTED(self, stale));
}

/*
 * A cache of MRs, and a stock peer
 */

FIXTURE(cache_peer) {
	struct link link;
	struct ring ring;
	struct memreg *m;
	struct memreg_cache *cache;
	char *mem;
};

FIXTURE_SETUP(cache_peer)
{
	struct ib_memreg_queues queues = {
		.max_send = 16,
		.max_recv = 16,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
	struct memreg_cache_attr attr = {
		.access = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE,
		.max_entries = PLACES / 2,
	};

	ASSERT_EQ(0, link_open(&self->link, PLACE));
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 64, 64, 0, -1));
	queues.send_ring_id = self->ring.id;
	queues.recv_ring_id = self->ring.id;
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
	ASSERT_EQ(0, memreg_open_fd(dup(self->link.fd), &self->m));
	attr.domain = self->link.domain;
	ASSERT_EQ(0, memreg_cache_create(self->m, &attr, &self->cache));
	self->mem = mem_alloc(PLACES * PLACE);
	ASSERT_NE(NULL, self->mem);
}

FIXTURE_TEARDOWN(cache_peer)
{
	EXPECT_EQ(0, memreg_cache_destroy(self->cache));
	memreg_close(self->m);
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
}

/* The peer reads the present contents, and its writes arrive there. */
static bool transfer(FIXTURE_DATA(cache_peer) *self, char *at, unsigned int n)
{
	struct stock *s = &self->link.stock;
	const struct memreg_cached *cached;
	uint64_t iova;
	bool good;

	fill(at, PLACE, n);
	if (memreg_cache_get(self->cache, at, PLACE, &cached))
		return false;
	iova = cached->mr.iova + (at - (char *)cached->mr.addr);
	memset(s->mem, 0, PLACE);
	good = !stock_read(s, 0, PLACE, iova, cached->mr.rkey) &&
	       filled(s->mem, PLACE, 0, n);
	fill(s->mem, PLACE, n + 1);
	good = good && !stock_write(s, 0, PLACE, iova, cached->mr.rkey) &&
	       filled(at, PLACE, 0, n + 1);
	memreg_cache_put(self->cache, cached);
	return good;
}

TEST_F_TIMEOUT(cache_peer, I2_peer_finds_what_is_mapped, 600)
{
	unsigned int i, n, rounds = rounds_of(300, 3000);
	struct user u = { .alone = true, .seed = test_seed() };
	struct memreg_cache_stat stat;
	char *at;

	for (i = 0; i < rounds; i++) {
		n = rand_r(&u.seed) % PLACES;
		at = self->mem + n * PLACE;
		if (rand_r(&u.seed) % 2)
			ASSERT_TRUE(change(&u, at, i));
		ASSERT_TRUE(transfer(self, at, i));
	}
	ASSERT_EQ(0, memreg_cache_query(self->cache, &stat));
	EXPECT_LT(0, stat.hits);
	EXPECT_LT(0, stat.stale);
	EXPECT_LT(0, stat.evictions);
}

TEST_F(cache_peer, I2_old_keys_are_not_served)
{
	const struct memreg_cached *cached;
	uint64_t iova;
	uint32_t rkey;

	ASSERT_EQ(0, memreg_cache_get(self->cache, self->mem, PLACE, &cached));
	iova = cached->mr.iova;
	rkey = cached->mr.rkey;
	EXPECT_EQ(0, stock_read(&self->link.stock, 0, PLACE, iova, rkey));
	ASSERT_TRUE(map_anew(self->mem, PLACE, 3));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_read(&self->link.stock, 0, PLACE, iova, rkey));
	memreg_cache_put(self->cache, cached);
}

TEST_HARNESS_MAIN
