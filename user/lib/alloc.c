// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Heaps: memory of any size that is registered before it is used.
 *
 * A heap reserves address space and cuts it into slots. A slot that is in use
 * has a slab: a pool of buffers of one size, a power of two. So the slot of an
 * address, and with it the pool that frees the buffer, follows from the address
 * alone. The heap keeps no data about an allocation beyond those of the pool
 * about a buffer.
 *
 * Slabs are made when one is needed, and live as long as the heap. All slabs of
 * a size are on a list to which slabs are only added, in front, under the lock.
 * So a thread that walks it needs none.
 *
 * As with pools, a child of fork(2) has neither the memory nor the heap.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "internal.h"

#define SLOT_SHIFT	21
#define SLOT_SIZE	((size_t)1 << SLOT_SHIFT)
#define SHIFT_MIN	6
#define CLASSES		(SLOT_SHIFT - SHIFT_MIN + 1)

/* Most buffers of a slab: each needs an MR of the device if peers reach it */
#define SLAB_BUFFERS	256U

#define LIMIT_DEFAULT	((size_t)1 << 30)
#define LIMIT_MAX	((size_t)1 << 40)

/**
 * struct slot - A part of the address space of a heap
 * @pool: Its slab
 * @mr: Id of the slab's MR
 * @size_class: Class of the buffer size, from class_of()
 * @next: Number of the next slot of the same class, or 0
 */
struct slot {
	struct memreg_pool *pool;
	uint32_t mr;
	uint32_t size_class;
	uint32_t next;
};

/**
 * struct memreg_heap - A heap
 * @alive: 1; 0 in a child of the process that made it, as are all other fields
 * @limit: Slots that there are, numbered from 1
 * @used: Slots that have a slab, the first ones; written under @lock
 * @size_max: Bytes of an allocation, at most
 * @size: Bytes of this mapping
 * @base: Address of the first slot, a multiple of SLOT_SIZE
 * @space: The reserved address space, in which the slots are
 * @space_size: Bytes of that
 * @m: The handle
 * @domain: The domain
 * @attr: Attributes that the user has requested
 * @lock: Held to make a slab
 * @first: For each class, the slot that was filled last, or 0; written under
 *	@lock
 * @given: For each class, a slot that has got a buffer back, or 0
 * @slots: Slots, from number 1
 */
struct memreg_heap {
	uint32_t alive;
	uint32_t limit;
	_Atomic uint32_t used;
	size_t size_max;
	size_t size;
	char *base;
	void *space;
	size_t space_size;
	struct memreg *m;
	uint32_t domain;
	struct memreg_heap_attr attr;
	pthread_mutex_t lock;
	_Atomic uint32_t first[CLASSES];
	_Atomic uint32_t given[CLASSES];
	struct slot slots[];
};

static const char *const of_parent = "the heap is that of the parent process";

static struct slot *slot_at(struct memreg_heap *heap, uint32_t number)
{
	return &heap->slots[number - 1];
}

/*
 * Size class: 0 for the smallest buffers, and 1 more each time that they are
 * twice as large
 */
static uint32_t class_of(size_t size)
{
	if (size <= (size_t)1 << SHIFT_MIN)
		return 0;
	return (uint32_t)(64 - __builtin_clzll(size - 1)) - SHIFT_MIN;
}

static size_t size_of(uint32_t size_class)
{
	return (size_t)1 << (size_class + SHIFT_MIN);
}

/*
 * Slabs
 */

static int make_pool(struct memreg_heap *heap, uint32_t size_class, char *at,
		     struct slot *slot)
{
	size_t size = size_of(size_class);
	size_t fit = SLOT_SIZE / size;
	struct memreg_pool_attr attr = {
		.buffer_size = size,
		.count = fit < SLAB_BUFFERS ? (uint32_t)fit : SLAB_BUFFERS,
		.access = heap->attr.access,
		.node = heap->attr.node,
	};
	struct memreg_mr mr;
	int ret;

	ret = memreg__pool_create_at(heap->m, heap->domain, &attr, at,
				     &slot->pool);
	if (ret)
		return ret;
	memreg_pool_mr(slot->pool, &mr);
	slot->mr = mr.id;
	slot->size_class = size_class;
	return 0;
}

static int add_slab(struct memreg_heap *heap, uint32_t size_class)
{
	uint32_t used = atomic_load_explicit(&heap->used,
					     memory_order_relaxed);
	struct slot *slot = &heap->slots[used];
	int ret;

	if (used == heap->limit) {
		memreg__fail("alloc", -ENOMEM, NULL);
		memreg__because("the heap has reached its limit",
				"memreg_heap_create() takes a higher one");
		return -ENOMEM;
	}
	ret = make_pool(heap, size_class, heap->base + used * SLOT_SIZE, slot);
	if (ret)
		return ret;
	slot->next = atomic_load_explicit(&heap->first[size_class],
					  memory_order_relaxed);
	atomic_store_explicit(&heap->used, used + 1, memory_order_release);
	atomic_store_explicit(&heap->first[size_class], used + 1,
			      memory_order_release);
	return 0;
}

/*
 * Add a slab, unless another thread has done so since @first was the first one
 * of its class. A thread that is cancelled must not keep the lock.
 */
static int grow(struct memreg_heap *heap, uint32_t size_class, uint32_t first)
{
	int ret = 0, state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&heap->lock);
	if (atomic_load_explicit(&heap->first[size_class],
				 memory_order_relaxed) == first)
		ret = add_slab(heap, size_class);
	pthread_mutex_unlock(&heap->lock);
	pthread_setcancelstate(state, NULL);
	return ret;
}

/*
 * Allocating and freeing
 */

static int take(struct memreg_heap *heap, uint32_t size_class, uint32_t first,
		void **ptr)
{
	uint32_t given = atomic_load_explicit(&heap->given[size_class],
					      memory_order_acquire);

	if (given && !memreg_pool_take(slot_at(heap, given)->pool, ptr))
		return 0;
	for (; first; first = slot_at(heap, first)->next)
		if (!memreg_pool_take(slot_at(heap, first)->pool, ptr))
			return 0;
	return -EAGAIN;
}

EXPORT int memreg_alloc(struct memreg_heap *heap, size_t size, void **ptr)
{
	uint32_t size_class, first;
	int ret;

	if (!heap->alive)
		return memreg__fail("alloc", -ECHILD, of_parent);
	if (!size)
		return memreg__fail_code("alloc", -EINVAL,
					 IB_MEMREG_REASON_ZERO_LENGTH);
	if (size > heap->size_max)
		return memreg__fail_code("alloc", -EINVAL,
					 IB_MEMREG_REASON_SPAN);
	size_class = class_of(size);
	do {
		first = atomic_load_explicit(&heap->first[size_class],
					     memory_order_acquire);
		if (!take(heap, size_class, first, ptr))
			return 0;
		ret = grow(heap, size_class, first);
	} while (!ret);
	return ret;
}

/* Number of the slot that has an address, or 0 */
static uint32_t slot_of(struct memreg_heap *heap, const void *ptr)
{
	uint64_t slot = ((uint64_t)(uintptr_t)ptr -
			 (uint64_t)(uintptr_t)heap->base) >> SLOT_SHIFT;

	/* Pairs with add_slab(): slots with lower numbers are complete. */
	if (slot >= atomic_load_explicit(&heap->used, memory_order_acquire))
		return 0;
	return (uint32_t)slot + 1;
}

EXPORT int memreg_free(struct memreg_heap *heap, void *ptr)
{
	_Atomic uint32_t *given;
	uint32_t number;
	int ret;

	if (!heap->alive)
		return -ECHILD;
	if (!ptr)
		return 0;
	number = slot_of(heap, ptr);
	if (!number)
		return -EINVAL;
	ret = memreg_pool_give(slot_at(heap, number)->pool, ptr);
	if (ret)
		return ret;
	given = &heap->given[slot_at(heap, number)->size_class];
	/*
	 * Most often the hint is right already, and not writing it keeps its
	 * cache line shared.
	 */
	if (atomic_load_explicit(given, memory_order_relaxed) != number)
		atomic_store_explicit(given, number, memory_order_release);
	return 0;
}

EXPORT int memreg_alloc_query(struct memreg_heap *heap, const void *ptr,
			      struct memreg_allocation *allocation)
{
	struct memreg_grant grant;
	struct slot *slot;
	uint32_t number;
	int ret;

	if (!heap->alive)
		return -ECHILD;
	number = slot_of(heap, ptr);
	if (!number)
		return -EINVAL;
	slot = slot_at(heap, number);
	ret = memreg_pool_entry(slot->pool, ptr, &grant);
	if (ret)
		return ret;
	*allocation = (struct memreg_allocation) {
		.pool = slot->pool,
		.mr = slot->mr,
		.offset = ((uintptr_t)ptr - (uintptr_t)heap->base) &
			  (SLOT_SIZE - 1),
		.grant = grant,
	};
	return 0;
}

/*
 * The life of a heap
 */

/* Reserve address space without access. */
static int reserve(struct memreg_heap *heap)
{
	heap->space_size = ((size_t)heap->limit + 1) * SLOT_SIZE;
	heap->space = memreg__reserve(NULL, heap->space_size);
	if (heap->space == MAP_FAILED)
		return -errno;
	heap->base = (char *)heap->space +
		     (-(uintptr_t)heap->space & (SLOT_SIZE - 1));
	return 0;
}

/* A heap without any slabs, or NULL */
static struct memreg_heap *new_heap(size_t limit)
{
	size_t slots = (limit + SLOT_SIZE - 1) / SLOT_SIZE;
	size_t size = sizeof(struct memreg_heap) + slots * sizeof(struct slot);
	struct memreg_heap *heap;

	heap = mmap(NULL, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (heap == MAP_FAILED)
		return NULL;
	heap->limit = (uint32_t)slots;
	heap->size = size;
	if (madvise(heap, size, MADV_WIPEONFORK) || reserve(heap)) {
		munmap(heap, size);
		return NULL;
	}
	pthread_mutex_init(&heap->lock, NULL);
	return heap;
}

static void free_heap(struct memreg_heap *heap)
{
	pthread_mutex_destroy(&heap->lock);
	munmap(heap->space, heap->space_size);
	munmap(heap, heap->size);
}

/* Largest power of two that one key can span and a slot can have */
static int find_size_max(struct memreg *m, size_t *size)
{
	uint64_t span;
	int ret;

	ret = memreg_query_cap(m, IB_MEMREG_CAP_KEY_SPAN, &span);
	if (ret)
		return ret;
	*size = SLOT_SIZE;
	while (*size > span)
		*size /= 2;
	return 0;
}

EXPORT int memreg_heap_create(struct memreg *m, uint32_t domain,
			      const struct memreg_heap_attr *attr,
			      struct memreg_heap **out)
{
	size_t limit = attr->limit ?: LIMIT_DEFAULT, size_max;
	struct memreg_heap *heap;
	int ret;

	if (limit > LIMIT_MAX)
		return memreg__fail("heap_create", -EINVAL,
				    "the limit is more than 2^40 bytes");
	ret = find_size_max(m, &size_max);
	if (ret)
		return ret;
	heap = new_heap(limit);
	if (!heap)
		return memreg__fail_code("heap_create", -ENOMEM, 0);
	heap->m = m;
	heap->domain = domain;
	heap->attr = *attr;
	heap->size_max = size_max;
	heap->alive = 1;
	*out = heap;
	return 0;
}

EXPORT int memreg_heap_destroy(struct memreg_heap *heap)
{
	uint32_t i;
	int ret;

	if (!heap)
		return 0;
	if (!heap->alive)
		return memreg__fail("heap_destroy", -ECHILD, of_parent);
	for (i = 0; i < heap->used; i++) {
		ret = memreg_pool_destroy(heap->slots[i].pool);
		if (ret)
			return ret;
		heap->slots[i].pool = NULL;
	}
	free_heap(heap);
	return 0;
}
