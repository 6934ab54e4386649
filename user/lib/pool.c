// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Pools of buffers, each with a key of its own.
 *
 * Free buffers are on stacks, linked by their indices. A thread has a stack of
 * its own as long as there are no more threads than stacks, so that threads
 * don't wait for a cache line; when it is empty the others are tried. All free
 * buffers can be found by any thread, whatever became of the one that gave
 * them.
 *
 * The head of a stack has a tag that moves with each push and pop. A pop reads
 * the link of the first buffer while others may pop that: the link may be one
 * of another stack then, but the tag has moved and the exchange fails. Links
 * are never freed as long as the pool lives, and a tag comes round after 2^32
 * changes, which would all have to happen between a load and an exchange.
 *
 * All of that is private memory of the process, in a mapping that the kernel
 * wipes in a child of fork(2): a buffer is never handed out by two processes.
 * The kernel reads none of it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#define NIL		UINT32_MAX
#define STACKS_MAX	16
#define CACHE_LINE	64

/**
 * struct stack - Free buffers
 * @head: Index of the first one, or NIL; above it, in 32 bits, the tag
 */
struct stack {
	_Alignas(CACHE_LINE) _Atomic uint64_t head;
};

/**
 * struct memreg_pool - A pool
 * @alive: 1; 0 in a child of the process that made it, as are all other fields
 * @count: Buffers
 * @mask: Number of stacks, a power of two, less 1
 * @shift: Logarithm of @stride if it is a power of two, otherwise 0
 * @stride: Bytes from one buffer to the next
 * @base: The first buffer
 * @out: For each buffer, whether it is taken
 * @next: For each buffer that is free, the next one of its stack
 * @entries: For each buffer, its keys
 * @table: What the entries are a part of
 * @table_size: Bytes that are mapped of it
 * @size: Bytes of this mapping
 * @slab: The memory, if it was made with the pool, or NULL
 * @slab_size: Bytes of it
 * @reserved: The address space of @slab belongs to the caller of
 *	memreg__pool_create_at(), and is only lent
 * @m: The handle
 * @mr: All of it as an MR
 * @buffer_size: Bytes of a buffer
 * @stacks: Free buffers
 */
struct memreg_pool {
	uint32_t alive;
	uint32_t count;
	uint32_t mask;
	uint32_t shift;
	uint64_t stride;
	char *base;
	_Atomic uint8_t *out;
	_Atomic uint32_t *next;
	const struct ib_memreg_pool_entry *entries;
	const struct ib_memreg_pool_table *table;
	size_t table_size;
	size_t size;
	void *slab;
	size_t slab_size;
	bool reserved;
	struct memreg *m;
	struct memreg_mr mr;
	uint64_t buffer_size;
	struct stack stacks[];
};

/*
 * Taking and giving
 */

/* Threads that have used a pool, and the number of this one, from 1 */
static _Atomic uint32_t threads;
static __thread uint32_t thread __attribute__((tls_model("initial-exec")));

static uint32_t own_stack(void)
{
	if (!thread)
		thread = atomic_fetch_add_explicit(&threads, 1,
						   memory_order_relaxed) + 1;
	return thread;
}

/* What comes after @head once @index is the first one */
static uint64_t after(uint64_t head, uint32_t index)
{
	return ((head >> 32) + 1) << 32 | index;
}

static uint32_t pop(struct memreg_pool *pool, struct stack *stack)
{
	uint64_t head = atomic_load_explicit(&stack->head,
					     memory_order_acquire);
	uint32_t next;

	do {
		if ((uint32_t)head == NIL)
			return NIL;
		next = atomic_load_explicit(&pool->next[(uint32_t)head],
					    memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&stack->head, &head,
							after(head, next),
							memory_order_acquire,
							memory_order_acquire));
	return (uint32_t)head;
}

static void push(struct memreg_pool *pool, struct stack *stack, uint32_t index)
{
	uint64_t head = atomic_load_explicit(&stack->head,
					     memory_order_relaxed);

	do {
		atomic_store_explicit(&pool->next[index], (uint32_t)head,
				      memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&stack->head, &head,
							after(head, index),
							memory_order_release,
							memory_order_relaxed));
}

/* The index of a buffer, or NIL if that is none */
static uint32_t index_of(const struct memreg_pool *pool, const void *buffer)
{
	uint64_t offset = (uint64_t)((uintptr_t)buffer - (uintptr_t)pool->base);
	uint64_t index = pool->shift ? offset >> pool->shift :
				       offset / pool->stride;

	if (index >= pool->count || index * pool->stride != offset)
		return NIL;
	return (uint32_t)index;
}

EXPORT int memreg_pool_take(struct memreg_pool *pool, void **buffer)
{
	uint32_t own, index, i;

	if (!pool->alive)
		return -ECHILD;
	own = own_stack();
	for (i = 0; i <= pool->mask; i++) {
		index = pop(pool, &pool->stacks[(own + i) & pool->mask]);
		if (index == NIL)
			continue;
		atomic_store_explicit(&pool->out[index], 1,
				      memory_order_relaxed);
		*buffer = pool->base + index * pool->stride;
		return 0;
	}
	return -EAGAIN;
}

EXPORT int memreg_pool_give(struct memreg_pool *pool, void *buffer)
{
	uint32_t index;

	if (!pool->alive)
		return -ECHILD;
	index = index_of(pool, buffer);
	if (index == NIL ||
	    !atomic_exchange_explicit(&pool->out[index], 0,
				      memory_order_relaxed))
		return -EINVAL;
	push(pool, &pool->stacks[own_stack() & pool->mask], index);
	return 0;
}

EXPORT int memreg_pool_entry(struct memreg_pool *pool, const void *buffer,
			     struct memreg_grant *grant)
{
	const struct ib_memreg_pool_entry *entry;
	uint32_t index, sequence, rkey;
	uint64_t iova;

	if (!pool->alive)
		return -ECHILD;
	index = index_of(pool, buffer);
	if (index == NIL)
		return -EINVAL;
	entry = &pool->entries[index];
	do {
		sequence = __atomic_load_n(&entry->sequence, __ATOMIC_ACQUIRE);
		iova = __atomic_load_n(&entry->iova, __ATOMIC_RELAXED);
		rkey = __atomic_load_n(&entry->rkey, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (sequence & 1 ||
		 sequence != __atomic_load_n(&entry->sequence,
					     __ATOMIC_RELAXED));
	*grant = (struct memreg_grant) {
		.iova = iova,
		.length = pool->buffer_size,
		.rkey = rkey,
		.access = pool->mr.access,
	};
	return 0;
}

/*
 * Recycling
 */

EXPORT int memreg_pool_recycle(struct memreg_pool *pool, void *const *buffers,
			       unsigned int count, uint32_t flags)
{
	uint32_t indices[IB_MEMREG_BATCH_MAX];
	struct ib_memreg_pool_recycle arg = {
		.size = sizeof(arg),
		.flags = flags,
		.count = count,
		.indices = to_u64(indices),
	};
	unsigned int i;

	if (!pool->alive)
		return memreg__fail("pool_recycle", -ECHILD,
				    "the pool is that of the parent process");
	for (i = 0; i < count && i < IB_MEMREG_BATCH_MAX; i++) {
		indices[i] = index_of(pool, buffers[i]);
		if (indices[i] == NIL ||
		    !atomic_load_explicit(&pool->out[indices[i]],
					  memory_order_relaxed))
			return memreg__fail("pool_recycle", -EINVAL,
					    "not a buffer that was taken from this pool");
	}
	arg.mr_id = pool->mr.id;
	return memreg__call(pool->m->fd, IB_MEMREG_IOC_POOL_RECYCLE, &arg,
			    "pool_recycle");
}

/*
 * The life of a pool
 */

/* Put all buffers on the stacks, neighbours on the same one */
static void fill_stacks(struct memreg_pool *pool)
{
	uint64_t stacks = (uint64_t)pool->mask + 1;
	uint32_t i;

	for (i = 0; i <= pool->mask; i++)
		atomic_init(&pool->stacks[i].head, NIL);
	for (i = pool->count; i-- > 0;)
		push(pool, &pool->stacks[i * stacks / pool->count], i);
}

/* A stack for each CPU, but no more than there are buffers */
static uint32_t count_stacks(uint32_t count)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	uint32_t stacks = 1;

	while (stacks < STACKS_MAX && (long)stacks < cpus &&
	       2 * stacks <= count)
		stacks *= 2;
	return stacks;
}

static uint32_t shift_of(uint64_t stride)
{
	return stride & (stride - 1) ? 0 : (uint32_t)__builtin_ctzll(stride);
}

static size_t align(size_t size)
{
	return (size + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
}

/* What the pool keeps of its buffers, without any buffers so far */
static struct memreg_pool *new_pool(uint32_t count)
{
	uint32_t stacks = count_stacks(count);
	size_t head = sizeof(struct memreg_pool) +
		      stacks * sizeof(struct stack);
	size_t links = align(count * sizeof(uint32_t));
	size_t size = head + links + align(count);
	struct memreg_pool *pool;

	pool = mmap(NULL, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pool == MAP_FAILED)
		return NULL;
	if (madvise(pool, size, MADV_WIPEONFORK)) {
		munmap(pool, size);
		return NULL;
	}
	pool->size = size;
	pool->count = count;
	pool->mask = stacks - 1;
	pool->next = (void *)((char *)pool + head);
	pool->out = (void *)((char *)pool->next + links);
	return pool;
}

/* Address space that is only lent stays reserved. */
static void unmap_slab(struct memreg_pool *pool)
{
	if (pool->reserved)
		mmap(pool->slab, pool->slab_size, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		     -1, 0);
	else
		munmap(pool->slab, pool->slab_size);
}

static void unmap(struct memreg_pool *pool)
{
	if (pool->table)
		munmap((void *)(uintptr_t)pool->table, pool->table_size);
	if (pool->slab)
		unmap_slab(pool);
	munmap(pool, pool->size);
}

static int map_slab(struct memreg_pool *pool, void *at,
		    const struct memreg_memory *memory)
{
	const int prot = PROT_READ | PROT_WRITE;

	if (!at)
		return memreg_memory_map(memory->fd, prot, &pool->slab,
					 &pool->slab_size);
	if (mmap(at, memory->length, prot, MAP_SHARED | MAP_FIXED, memory->fd,
		 0) == MAP_FAILED)
		return memreg__fail("pool_create", -errno,
				    "the memory can't be mapped");
	pool->slab = at;
	pool->slab_size = memory->length;
	pool->reserved = true;
	return 0;
}

/* Memory for the buffers, of which a child of this process has none */
static int make_slab(struct memreg_pool *pool,
		     const struct memreg_pool_attr *attr, void *at, int *fd)
{
	struct memreg_memory memory;
	size_t length;
	int ret;

	if (__builtin_mul_overflow(pool->stride, (size_t)pool->count, &length))
		return memreg__fail_code("pool_create", -EOVERFLOW,
					 IB_MEMREG_REASON_WRAPS);
	ret = memreg_memory_create(pool->m, length, attr->node, 0, &memory);
	if (ret)
		return ret;
	ret = map_slab(pool, at, &memory);
	if (!ret && madvise(pool->slab, pool->slab_size, MADV_DONTFORK))
		ret = memreg__fail_code("pool_create", -errno, 0);
	if (ret) {
		close(memory.fd);
		return ret;
	}
	*fd = memory.fd;
	pool->base = pool->slab;
	return 0;
}

static int map_table(struct memreg_pool *pool, int fd, size_t size)
{
	/* Who reads it is not to take page faults. */
	void *at = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd,
			0);
	int err = errno;

	close(fd);
	if (at == MAP_FAILED)
		return memreg__fail("pool_create", -err,
				    "the table can't be mapped");
	pool->table = at;
	pool->table_size = size;
	pool->entries = (const void *)(pool->table + 1);
	return 0;
}

static int about_create(int err, const struct ib_memreg_pool_create *arg)
{
	switch (memreg_reason_code()) {
	case IB_MEMREG_REASON_ID:
		return memreg__about_id(err, "domain", arg->domain_id);
	case IB_MEMREG_REASON_ACCESS:
		memreg__cause_access(arg->access);
		break;
	}
	return memreg__about_ids(err, "buffers", arg->count, "bytes",
				 arg->buffer_size, "stride", arg->stride);
}

static int make_keys(struct memreg_pool *pool,
		     const struct memreg_pool_attr *attr, uint32_t domain,
		     int fd)
{
	struct ib_memreg_pool_create arg = {
		.size = sizeof(arg),
		.flags = attr->addr ? attr->flags : IB_MEMREG_MR_FD,
		.domain_id = domain,
		.access = attr->access,
		.count = pool->count,
		.addr = to_u64(attr->addr),
		.buffer_size = attr->buffer_size,
		.stride = pool->stride,
		.fd = attr->addr ? 0 : fd,
	};
	int ret;

	ret = memreg__call(pool->m->fd, IB_MEMREG_IOC_POOL_CREATE, &arg,
			   "pool_create");
	if (ret)
		return about_create(ret, &arg);
	pool->mr = (struct memreg_mr) {
		.id = arg.out_mr_id,
		.domain = domain,
		.addr = pool->base,
		.length = (pool->count - 1) * pool->stride +
			  attr->buffer_size,
		.iova = arg.out_iova,
		.access = attr->access,
	};
	ret = map_table(pool, arg.out_table_fd, arg.out_table_size);
	if (ret) {
		struct ib_memreg_destroy undo = {
			.size = sizeof(undo),
			.id = pool->mr.id,
		};

		memreg__undo(pool->m->fd, IB_MEMREG_IOC_DESTROY, &undo);
		return ret;
	}
	pool->mr.rkey = pool->entries[0].rkey;
	pool->mr.segments = pool->mr.rkey ? pool->count : 0;
	return 0;
}

/* Of what it was made of, the mappings keep what they need. */
static int make_all(struct memreg_pool *pool,
		    const struct memreg_pool_attr *attr, uint32_t domain,
		    void *at)
{
	int fd = -1, ret = 0;

	pool->base = attr->addr;
	if (!attr->addr)
		ret = make_slab(pool, attr, at, &fd);
	if (!ret)
		ret = make_keys(pool, attr, domain, fd);
	if (fd >= 0)
		close(fd);
	return ret;
}

static int check_shape(const struct memreg_pool_attr *attr)
{
	if (!attr->count || attr->count > IB_MEMREG_POOL_MAX)
		return memreg__fail_code("pool_create", -EINVAL,
					 IB_MEMREG_REASON_COUNT);
	if (!attr->buffer_size)
		return memreg__fail_code("pool_create", -EINVAL,
					 IB_MEMREG_REASON_ZERO_LENGTH);
	if (attr->stride && attr->stride < attr->buffer_size)
		return memreg__fail_code("pool_create", -EINVAL,
					 IB_MEMREG_REASON_STRIDE);
	if (attr->buffer_size > SIZE_MAX - CACHE_LINE)
		return memreg__fail_code("pool_create", -EOVERFLOW,
					 IB_MEMREG_REASON_WRAPS);
	return 0;
}

int memreg__pool_create_at(struct memreg *m, uint32_t domain,
			   const struct memreg_pool_attr *attr, void *at,
			   struct memreg_pool **out)
{
	struct memreg_pool *pool;
	int ret;

	ret = check_shape(attr);
	if (ret)
		return ret;
	pool = new_pool(attr->count);
	if (!pool)
		return memreg__fail_code("pool_create", -ENOMEM, 0);
	pool->m = m;
	pool->buffer_size = attr->buffer_size;
	pool->stride = attr->stride ?: align(attr->buffer_size);
	pool->shift = shift_of(pool->stride);
	ret = make_all(pool, attr, domain, at);
	if (ret) {
		unmap(pool);
		return ret;
	}
	fill_stacks(pool);
	pool->alive = 1;
	*out = pool;
	return 0;
}

EXPORT int memreg_pool_create(struct memreg *m, uint32_t domain,
			      const struct memreg_pool_attr *attr,
			      struct memreg_pool **out)
{
	return memreg__pool_create_at(m, domain, attr, NULL, out);
}

EXPORT int memreg_pool_mr(const struct memreg_pool *pool, struct memreg_mr *mr)
{
	if (!pool->alive)
		return memreg__fail("pool_mr", -ECHILD,
				    "the pool is that of the parent process");
	*mr = pool->mr;
	return 0;
}

EXPORT int memreg_pool_destroy(struct memreg_pool *pool)
{
	int ret;

	if (!pool)
		return 0;
	if (!pool->alive)
		return memreg__fail("pool_destroy", -ECHILD,
				    "the pool is that of the parent process");
	ret = memreg_mr_deregister(pool->m, pool->mr.id);
	/* With the device all that it had is gone. */
	if (ret && ret != -ENODEV && ret != -ENOENT)
		return ret;
	unmap(pool);
	return 0;
}
