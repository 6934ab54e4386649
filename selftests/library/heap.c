// SPDX-License-Identifier: GPL-2.0-only
/*
 * Heaps of the library: memory of any size is allocated only once, aligned, and
 * its key reaches that memory and no other (I6); impossible allocations, and
 * frees of memory that is not the heap's, fail and change nothing (I8).
 *
 * time limit: 240
 */
#include <errno.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "raw.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define ACCESS		(LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | MW_BIND)

/* A uid that no other process has, and its RLIMIT_MEMLOCK. */
#define NOBODY		61235
#define MAY_LOCK	(3 * MiB)

FIXTURE(heap) {
	struct memreg *m;
	uint32_t domain;
	struct memreg_heap *heap;
};

static int make(FIXTURE_DATA(heap) *self, uint32_t domain, size_t limit,
		struct memreg_heap **heap)
{
	struct memreg_heap_attr attr = {
		.access = ACCESS,
		.node = IB_MEMREG_NODE_DEVICE,
		.limit = limit,
	};

	return memreg_heap_create(self->m, domain, &attr, heap);
}

FIXTURE_SETUP(heap)
{
	ASSERT_EQ(0, memreg_open(test_device(), &self->m));
	ASSERT_EQ(0, memreg_domain_create(self->m, 0, &self->domain));
	ASSERT_EQ(0, make(self, self->domain, 0, &self->heap));
}

FIXTURE_TEARDOWN(heap)
{
	EXPECT_EQ(0, memreg_heap_destroy(self->heap));
	memreg_close(self->m);
	EXPECT_EQ(0, vm_pin(0));
}

static size_t rounded(size_t size)
{
	size_t power = 64;

	while (power < size)
		power *= 2;
	return power;
}

static void check_one(struct __test_metadata *_metadata,
		      FIXTURE_DATA(heap) *self, const char *ptr, size_t size)
{
	struct memreg_allocation where;
	struct memreg_mr mr;

	ASSERT_EQ(0, memreg_alloc_query(self->heap, ptr, &where));
	ASSERT_EQ(0, memreg_pool_mr(where.pool, &mr));
	EXPECT_EQ(0, (uintptr_t)ptr % rounded(size));
	EXPECT_EQ(mr.id, where.mr);
	EXPECT_EQ(ptr, (char *)mr.addr + where.offset);
	EXPECT_EQ(mr.iova + where.offset, where.grant.iova);
	EXPECT_EQ(rounded(size), where.grant.length);
	EXPECT_EQ(ACCESS, where.grant.access);
	EXPECT_NE(0, where.grant.rkey);
}

TEST_F(heap, memory_of_any_size_is_aligned_registered_and_zeroed_once)
{
	static const size_t sizes[] = {
		1, 63, 64, 65, 1000, PAGE - 1, PAGE, PAGE + 1, 64 * KiB, MiB,
		MiB + 1, 2 * MiB,
	};
	char *ptrs[ARRAY_LEN(sizes)];
	size_t i;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		ASSERT_EQ(0, memreg_alloc(self->heap, sizes[i],
					  (void **)&ptrs[i]));
		check_one(_metadata, self, ptrs[i], sizes[i]);
		EXPECT_EQ(0, ptrs[i][0]);
		EXPECT_EQ(0, ptrs[i][sizes[i] - 1]);
		fill(ptrs[i], rounded(sizes[i]), i);
	}
	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		EXPECT_TRUE(filled(ptrs[i], rounded(sizes[i]), 0, i));
		EXPECT_EQ(0, memreg_free(self->heap, ptrs[i]));
	}
}

TEST_F(heap, I8_what_is_no_memory_of_it_is_refused)
{
	struct memreg_allocation where;
	char *ptr, *other;
	void *none = &where;

	EXPECT_EQ(-EINVAL, memreg_alloc(self->heap, 0, &none));
	EXPECT_EQ(IB_MEMREG_REASON_ZERO_LENGTH, memreg_reason_code());
	EXPECT_EQ(-EINVAL, memreg_alloc(self->heap, 2 * MiB + 1, &none));
	EXPECT_EQ(IB_MEMREG_REASON_SPAN, memreg_reason_code());
	EXPECT_EQ(-EINVAL, memreg_alloc(self->heap, SIZE_MAX, &none));
	EXPECT_EQ(&where, none);
	EXPECT_EQ(0, memreg_free(self->heap, NULL));
	EXPECT_EQ(-EINVAL, memreg_free(self->heap, &where));
	EXPECT_EQ(-EINVAL, memreg_alloc_query(self->heap, NULL, &where));
	ASSERT_EQ(0, memreg_alloc(self->heap, 100, (void **)&ptr));
	ASSERT_EQ(0, memreg_alloc(self->heap, PAGE, (void **)&other));
	EXPECT_EQ(-EINVAL, memreg_free(self->heap, ptr + 1));
	EXPECT_EQ(-EINVAL, memreg_free(self->heap, ptr + 64));
	EXPECT_EQ(-EINVAL, memreg_free(self->heap, ptr - 2 * MiB));
	EXPECT_EQ(-EINVAL, memreg_free(self->heap, other + 4 * MiB));
	EXPECT_EQ(-EINVAL, memreg_alloc_query(self->heap, ptr + 8, &where));
	/*
	 * An address behind the slab's buffers, which is in front of the next
	 * slab
	 */
	EXPECT_EQ(-EINVAL, memreg_free(self->heap, ptr + MiB));
	EXPECT_EQ(0, memreg_free(self->heap, ptr));
	EXPECT_EQ(-EINVAL, memreg_free(self->heap, ptr));
	EXPECT_EQ(0, memreg_free(self->heap, other));
}

TEST_F(heap, I8_at_its_limit_nothing_changes_and_what_is_freed_is_used)
{
	void *a, *b, *c = self;
	struct memreg_heap *heap;

	EXPECT_EQ(-EINVAL, make(self, self->domain, (1UL << 40) + 1, &heap));
	ASSERT_EQ(0, make(self, self->domain, 3 * MiB, &heap));
	ASSERT_EQ(0, memreg_alloc(heap, 2 * MiB, &a));
	ASSERT_EQ(0, memreg_alloc(heap, 2 * MiB, &b));
	EXPECT_EQ(-ENOMEM, memreg_alloc(heap, 2 * MiB, &c));
	EXPECT_NE(NULL, strstr(memreg_reason(), "limit"));
	EXPECT_EQ(-ENOMEM, memreg_alloc(heap, 1, &c));
	EXPECT_EQ(self, c);
	EXPECT_EQ(0, memreg_free(heap, a));
	ASSERT_EQ(0, memreg_alloc(heap, MiB + 1, &c));
	EXPECT_EQ(a, c);
	EXPECT_EQ(0, memreg_free(heap, b));
	EXPECT_EQ(0, memreg_free(heap, c));
	EXPECT_EQ(0, memreg_heap_destroy(heap));
}

TEST_F(heap, slabs_are_added_when_all_are_taken)
{
	enum { N = 600 };
	void *ptrs[N], *again;
	unsigned int i, k;

	for (i = 0; i < N; i++) {
		ASSERT_EQ(0, memreg_alloc(self->heap, 200, &ptrs[i]));
		memset(ptrs[i], (int)i, 200);
		for (k = 0; k < i; k++)
			ASSERT_NE(ptrs[k], ptrs[i]);
	}
	for (i = 0; i < N; i++)
		EXPECT_EQ((char)i, *(char *)ptrs[i]);
	/* Memory that was freed is allocated again, in whichever slab it is. */
	for (i = 0; i < N; i += 50) {
		EXPECT_EQ(0, memreg_free(self->heap, ptrs[i]));
		ASSERT_EQ(0, memreg_alloc(self->heap, 256, &again));
		if (i < 512)
			EXPECT_EQ(ptrs[i], again);
		ptrs[i] = again;
	}
	for (i = 0; i < N; i++)
		EXPECT_EQ(0, memreg_free(self->heap, ptrs[i]));
}

TEST_F(heap, I8_what_the_kernel_refuses_is_reported_and_leaves_it_usable)
{
	struct rlimit limit = { MAY_LOCK, MAY_LOCK };
	struct memreg_heap *heap;
	void *ptr, *more = self;

	ASSERT_EQ(0, make(self, 99, 0, &heap));
	EXPECT_EQ(-ENOENT, memreg_alloc(heap, 1, &ptr));
	EXPECT_EQ(-ENOENT, memreg_alloc(heap, 1, &ptr));
	EXPECT_EQ(0, memreg_heap_destroy(heap));
	IN_CHILD {
		ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
		ASSERT_EQ(0, setgroups(0, NULL));
		ASSERT_EQ(0, setresuid(NOBODY, NOBODY, NOBODY));
		ASSERT_EQ(0, make(self, self->domain, 0, &heap));
		ASSERT_EQ(0, memreg_alloc(heap, 2 * MiB, &ptr));
		EXPECT_EQ(-ENOMEM, memreg_alloc(heap, 2 * MiB, &more));
		EXPECT_EQ(IB_MEMREG_REASON_MEMLOCK, memreg_reason_code());
		EXPECT_EQ(self, more);
		ASSERT_EQ(0, memreg_alloc(heap, 4, &more));
		EXPECT_EQ(0, memreg_free(heap, more));
		EXPECT_EQ(0, memreg_free(heap, ptr));
		ASSERT_EQ(0, memreg_alloc(heap, 2 * MiB, &more));
		EXPECT_EQ(ptr, more);
		EXPECT_EQ(0, memreg_heap_destroy(heap));
	}
}

TEST_F(heap, a_child_can_do_nothing_with_it)
{
	struct memreg_allocation where;
	unsigned char there;
	void *mine, *ptr;

	ASSERT_EQ(0, memreg_alloc(self->heap, PAGE, &mine));
	IN_CHILD {
		EXPECT_EQ(-ECHILD, memreg_alloc(self->heap, PAGE, &ptr));
		EXPECT_EQ(-ECHILD, memreg_free(self->heap, mine));
		EXPECT_EQ(-ECHILD, memreg_alloc_query(self->heap, mine,
						      &where));
		EXPECT_EQ(-ECHILD, memreg_heap_destroy(self->heap));
		EXPECT_EQ(-1, mincore(mine, PAGE, &there));
		EXPECT_EQ(ENOMEM, errno);
	}
	EXPECT_EQ(0, memreg_free(self->heap, mine));
}

TEST_F(heap, with_a_window_bound_it_is_not_destroyed)
{
	struct memreg_allocation where;
	struct ib_memreg_bind bind = { .length = 100, .access = REMOTE_READ };
	struct memreg_heap *heap;
	void *ptr;

	ASSERT_EQ(0, make(self, self->domain, 0, &heap));
	ASSERT_EQ(0, memreg_alloc(heap, 100, &ptr));
	ASSERT_EQ(0, memreg_alloc_query(heap, ptr, &where));
	ASSERT_EQ(0, memreg_window_alloc(self->m, self->domain,
					 IB_MEMREG_WINDOW_TYPE1, 100,
					 &bind.window_id, 1));
	bind.mr_id = where.mr;
	bind.offset = where.offset;
	ASSERT_EQ(0, memreg_window_bind(self->m, self->domain, &bind));
	EXPECT_EQ(-EBUSY, memreg_heap_destroy(heap));
	ASSERT_EQ(0, memreg_window_free(self->m, bind.window_id));
	EXPECT_EQ(0, memreg_heap_destroy(heap));
}

/*
 * Allocate and free in a process that seccomp ends at its first system call but
 * exit(2).
 */
static void allocate_without_calls(FIXTURE_DATA(heap) *self)
{
	struct memreg_allocation where;
	unsigned int i, k, bad = 0;
	struct memreg_heap *heap;
	void *ptrs[32];

	if (make(self, self->domain, 0, &heap) ||
	    memreg_alloc(heap, 500, &ptrs[0]) || memreg_free(heap, ptrs[0]) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		_exit(2);
	for (k = 0; k < 100; k++) {
		for (i = 0; i < ARRAY_LEN(ptrs); i++)
			bad |= memreg_alloc(heap, 257 + i, &ptrs[i]) ||
			       memreg_alloc_query(heap, ptrs[i], &where);
		for (i = 0; i < ARRAY_LEN(ptrs); i++)
			bad |= !!memreg_free(heap, ptrs[i]);
		bad |= memreg_free(heap, ptrs[0]) != -EINVAL;
	}
	syscall(SYS_exit, bad);
}

TEST_F(heap, once_there_is_a_slab_there_is_no_system_call)
{
	int status;
	pid_t child = fork();

	ASSERT_LE(0, child);
	if (!child)
		allocate_without_calls(self);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFEXITED(status));
	EXPECT_EQ(0, WEXITSTATUS(status));
}

/*
 * Threads
 */

#define THREADS		4
#define HELD		16U

struct member {
	struct memreg_heap *heap;
	pthread_t thread;
	uint32_t number;
	uint32_t seed;
	uint32_t rounds;
	uint32_t bad;
};

struct held {
	uint32_t *at;
	size_t words;
};

static uint32_t pick(struct member *me, uint32_t n)
{
	me->seed = me->seed * 1103515245 + 12345;
	return (me->seed >> 16) % n;
}

/* Allocate memory, and write its owner into the first and the last word. */
static void allocate(struct member *me, struct held *held)
{
	held->words = 2 + pick(me, 1U << pick(me, 12));
	if (memreg_alloc(me->heap, held->words * sizeof(*held->at),
			 (void **)&held->at)) {
		me->bad++;
		held->at = NULL;
		return;
	}
	held->at[0] = me->number;
	held->at[held->words - 1] = me->number;
}

static void release(struct member *me, struct held *held)
{
	if (!held->at)
		return;
	if (held->at[0] != me->number ||
	    held->at[held->words - 1] != me->number)
		me->bad++;
	held->at[0] = 0;
	held->at[held->words - 1] = 0;
	if (memreg_free(me->heap, held->at))
		me->bad++;
	held->at = NULL;
}

static void *allocate_and_free(void *arg)
{
	struct held held[HELD] = {};
	struct member *me = arg;
	uint32_t i, k;

	for (i = 0; i < me->rounds; i++) {
		k = pick(me, HELD);
		if (held[k].at)
			release(me, &held[k]);
		else
			allocate(me, &held[k]);
	}
	for (k = 0; k < HELD; k++)
		release(me, &held[k]);
	return NULL;
}

TEST_F_TIMEOUT(heap, no_memory_is_handed_out_twice, SOAK_S)
{
	struct member members[THREADS];
	uint32_t i;

	for (i = 0; i < THREADS; i++) {
		members[i] = (struct member) {
			.heap = self->heap,
			.number = i + 1,
			.seed = test_seed() + i,
			.rounds = times(20000, 1000000),
		};
		ASSERT_EQ(0, pthread_create(&members[i].thread, NULL,
					    allocate_and_free, &members[i]));
	}
	for (i = 0; i < THREADS; i++) {
		ASSERT_EQ(0, pthread_join(members[i].thread, NULL));
		EXPECT_EQ(0, members[i].bad);
	}
}

/* Accesses of peers */

FIXTURE(heap_peer) {
	struct link link;
	struct memreg *m;
	struct memreg_heap *heap;
};

FIXTURE_SETUP(heap_peer)
{
	struct memreg_heap_attr attr = {
		.access = ACCESS,
		.node = IB_MEMREG_NODE_DEVICE,
	};
	struct ib_memreg_queues queues = {};

	ASSERT_EQ(0, link_open(&self->link, 4 * PAGE));
	ASSERT_EQ(0, memreg_open_fd(dup(self->link.fd), &self->m));
	ASSERT_EQ(0, memreg_heap_create(self->m, self->link.domain, &attr,
					&self->heap));
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
}

FIXTURE_TEARDOWN(heap_peer)
{
	EXPECT_EQ(0, memreg_heap_destroy(self->heap));
	memreg_close(self->m);
	link_close(&self->link);
}

/* The peer gets a grant of the middle one of three neighbours. */
TEST_F(heap_peer, I6_a_peer_reaches_all_of_it_and_nothing_of_its_neighbours)
{
	struct memreg_allocation where;
	struct stock *s = &self->link.stock;
	const size_t size = 256;
	char *ptrs[3], *low;
	unsigned int i;

	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, memreg_alloc(self->heap, size,
					  (void **)&ptrs[i]));
	low = ptrs[0] < ptrs[2] ? ptrs[0] : ptrs[2];
	ASSERT_EQ(ptrs[1], low + size);
	fill(low, 3 * size, 1);
	ASSERT_EQ(0, memreg_alloc_query(self->heap, ptrs[1], &where));
	memset(s->mem, 0, size);
	ASSERT_EQ(IBV_WC_SUCCESS,
		  stock_read(s, 0, size, where.grant.iova, where.grant.rkey));
	EXPECT_TRUE(filled(s->mem, size, size, 1));
	fill(s->mem, size, 2);
	ASSERT_EQ(IBV_WC_SUCCESS,
		  stock_write(s, 0, size, where.grant.iova, where.grant.rkey));
	EXPECT_TRUE(filled(low, size, 0, 1));
	EXPECT_TRUE(filled(low + size, size, 0, 2));
	EXPECT_TRUE(filled(low + 2 * size, size, 2 * size, 1));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(s, 0, size, where.grant.iova + 1,
			      where.grant.rkey));
	EXPECT_TRUE(filled(low + 2 * size, size, 2 * size, 1));
}

TEST_F(heap_peer, I3_recycled_by_its_pool_its_old_key_is_dead)
{
	struct memreg_allocation old, new;
	void *ptr;

	ASSERT_EQ(0, memreg_alloc(self->heap, PAGE, &ptr));
	fill(ptr, PAGE, 1);
	ASSERT_EQ(0, memreg_alloc_query(self->heap, ptr, &old));
	ASSERT_EQ(0, memreg_pool_recycle(old.pool, &ptr, 1, 0));
	ASSERT_EQ(0, memreg_alloc_query(self->heap, ptr, &new));
	EXPECT_NE(old.grant.rkey, new.grant.rkey);
	ASSERT_EQ(IBV_WC_SUCCESS,
		  stock_read(&self->link.stock, 0, PAGE, new.grant.iova,
			     new.grant.rkey));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(&self->link.stock, 0, 8, old.grant.iova,
			      old.grant.rkey));
	EXPECT_TRUE(filled(ptr, PAGE, 0, 1));
}

TEST_HARNESS_MAIN
