// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Pools of buffers, each with a key of its own.
 *
 * Free buffers are on stacks, linked by their numbers. A thread has a stack of
 * its own as long as there are no more threads than stacks, so that threads do
 * not contend for a cache line; when its stack is empty a thread tries the
 * others. So every thread finds all free buffers, also those that an ended
 * thread has freed.
 *
 * The head of a stack has a tag that moves with each pop. A pop reads the link
 * of the first buffer while others may pop that: the link may be one of another
 * stack then, but the tag has moved and the exchange fails. For a buffer to be
 * first again it has to be popped in between, so a push need not move the tag.
 * Links are never freed as long as the pool lives, and a tag comes round after
 * 2^44 pops, which would all have to happen between a load and an exchange.
 *
 * A link is the difference of two heads, so that a pop is one addition. Numbers
 * begin with 1, so that a wiped pool has nothing to take and no buffers.
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
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#define STACKS_MAX	16
#define CACHE_LINE	64

/* A head: the number of the first buffer, or 0, and above it the tag */
#define NUMBER_BITS	20
#define NUMBER_MASK	(TAG - 1)
#define TAG		((uint64_t)1 << NUMBER_BITS)

_Static_assert(IB_MEMREG_POOL_MAX < NUMBER_MASK, "numbers fit");

/* Links of buffers that are not free; of no buffer, which is number 0 */
#define TAKEN		0
#define NO_BUFFER	1

/**
 * struct stack - Free buffers
 * @head: Its head
 */
struct stack {
	_Alignas(CACHE_LINE) _Atomic uint64_t head;
};

/**
 * struct memreg_pool - A pool
 * @alive: 1; 0 in a child of the process that made it, as are all other fields
 * @count: Buffers
 * @end: The first number that is none of a buffer
 * @own_mask: Mask for the offset of a thread's own stack
 * @origin: Address that buffer number 0 would have
 * @stride: Bytes from one buffer to the next
 * @shift: @stride is a multiple of 2 to this power, and of none above
 * @inverse: Inverse of the odd factor of @stride, modulo 2^64
 * @entries: For each buffer, its keys
 * @table: The mapped table, with the entries in it
 * @table_size: Bytes that are mapped of it
 * @size: Bytes of this mapping
 * @slab: The memory, if it was made with the pool, or NULL
 * @slab_size: Bytes of it
 * @wipe: Buffers are zeroed when they get new keys
 * @reserved: The address space of @slab belongs to the caller of
 *	memreg__pool_create_at(), and is only lent
 * @m: The handle
 * @mr: All of it as an MR
 * @buffer_size: Bytes of a buffer
 * @stacks: Free buffers: the first stack, and from STACKS_MAX on as many as
 *	there are threads to be kept apart
 * @links: For each number, the value to add to a head that names this buffer,
 *	to get a head that names the next one; or TAKEN
 */
struct memreg_pool {
	uint32_t alive;
	uint32_t count;
	uint64_t end;
	uint64_t own_mask;
	uintptr_t origin;
	uint64_t stride;
	uint32_t shift;
	uint64_t inverse;
	const struct ib_memreg_pool_entry *entries;
	const struct ib_memreg_pool_table *table;
	size_t table_size;
	size_t size;
	void *slab;
	size_t slab_size;
	bool wipe;
	bool reserved;
	struct memreg *m;
	struct memreg_mr mr;
	uint64_t buffer_size;
	struct stack stacks[2 * STACKS_MAX];
	_Atomic uint64_t links[];
};

/*
 * Taking and giving
 */

/* Threads that have looked for a free buffer on other stacks than the first */
static _Atomic uint32_t threads;

/*
 * Offset of this thread's stack from the first one in bytes, before the mask of
 * a pool is applied. Threads that have only freed buffers share the first
 * stack.
 */
#define OWN_BIT		(STACKS_MAX * sizeof(struct stack))
static __thread uint64_t own __attribute__((tls_model("initial-exec")));

static struct stack *own_stack(struct memreg_pool *pool)
{
	return (struct stack *)(void *)((char *)pool->stacks +
					(own & pool->own_mask));
}

/* A number, or 0 */
static inline uint64_t pop(struct memreg_pool *pool, struct stack *stack)
{
	uint64_t head = atomic_load_explicit(&stack->head,
					     memory_order_acquire);
	uint64_t number, link;

	do {
		number = head & NUMBER_MASK;
		if (!number)
			return 0;
		/* If another has popped it, the exchange is to see that. */
		link = atomic_load_explicit(&pool->links[number],
					    memory_order_acquire);
	} while (!atomic_compare_exchange_weak_explicit(&stack->head, &head,
							head + link,
							memory_order_acquire,
							memory_order_acquire));
	atomic_store_explicit(&pool->links[number], TAKEN,
			      memory_order_release);
	return number;
}

/* Push a buffer whose link is no longer TAKEN, and was written for @head. */
static inline void push(struct memreg_pool *pool, struct stack *stack,
			uint64_t number, uint64_t head)
{
	uint64_t ahead = (head & NUMBER_MASK) - number;

	while (!atomic_compare_exchange_weak_explicit(&stack->head, &head,
						      head - ahead,
						      memory_order_release,
						      memory_order_relaxed)) {
		ahead = (head & NUMBER_MASK) - number;
		atomic_store_explicit(&pool->links[number], ahead + TAG,
				      memory_order_relaxed);
	}
}

/*
 * Pop a buffer from the stack of this thread, or else from any other stack. A
 * thread that comes here for the first time is assigned a stack.
 */
static uint64_t search(struct memreg_pool *pool)
{
	uint64_t stacks = pool->own_mask / sizeof(struct stack) + 1 -
			  STACKS_MAX;
	uint64_t first, number, i;

	if (!own)
		own = atomic_fetch_add_explicit(&threads, 1,
						memory_order_relaxed) *
		      sizeof(struct stack) | OWN_BIT;
	first = own / sizeof(struct stack);
	for (i = 0; i < stacks; i++) {
		number = pop(pool, &pool->stacks[STACKS_MAX +
						 (first + i) % stacks]);
		if (number)
			return number;
	}
	return pop(pool, pool->stacks);
}

/*
 * The number of the buffer at an address; 0, or @end or more, if the address is
 * not that of a buffer. The distance is divided exactly by the odd factor of
 * the stride, and then by its power of 2: a distance that is not a multiple
 * gives a number that is too large.
 */
static inline uint64_t number_of(const struct memreg_pool *pool,
				 const void *buffer)
{
	uint64_t quotient = ((uintptr_t)buffer - pool->origin) * pool->inverse;

	return quotient >> pool->shift | quotient << (-pool->shift & 63);
}

static void *address_of(const struct memreg_pool *pool, uint64_t number)
{
	return (void *)(pool->origin + number * pool->stride);
}

static __attribute__((noinline)) int take_any(struct memreg_pool *pool,
					      void **buffer)
{
	uint64_t number;

	if (!pool->alive)
		return -ECHILD;
	number = search(pool);
	if (!number)
		return -EAGAIN;
	*buffer = address_of(pool, number);
	return 0;
}

EXPORT int memreg_pool_take(struct memreg_pool *pool, void **buffer)
{
	uint64_t number = pop(pool, own_stack(pool));

	if (!number)
		return take_any(pool, buffer);
	*buffer = address_of(pool, number);
	return 0;
}

EXPORT int memreg_pool_give(struct memreg_pool *pool, void *buffer)
{
	uint64_t number = number_of(pool, buffer), taken = TAKEN, head;
	struct stack *stack;

	if (number >= pool->end)
		return pool->alive ? -EINVAL : -ECHILD;
	stack = own_stack(pool);
	head = atomic_load_explicit(&stack->head, memory_order_relaxed);
	if (!atomic_compare_exchange_strong_explicit(&pool->links[number],
						     &taken,
						     (head & NUMBER_MASK) -
						     number + TAG,
						     memory_order_relaxed,
						     memory_order_relaxed))
		return -EINVAL;
	push(pool, stack, number, head);
	return 0;
}

/* The number of a buffer, or 0 */
static uint64_t valid_number(const struct memreg_pool *pool,
			     const void *buffer)
{
	uint64_t number = number_of(pool, buffer);

	return number < pool->end ? number : 0;
}

EXPORT int memreg_pool_entry(struct memreg_pool *pool, const void *buffer,
			     struct memreg_grant *grant)
{
	const struct ib_memreg_pool_entry *entry;
	uint32_t sequence, rkey;
	uint64_t iova, number;

	if (!pool->alive)
		return -ECHILD;
	number = valid_number(pool, buffer);
	if (!number)
		return -EINVAL;
	entry = &pool->entries[number - 1];
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
	uint64_t number;
	unsigned int i;
	int ret;

	if (!pool->alive)
		return memreg__fail("pool_recycle", -ECHILD,
				    "the pool is that of the parent process");
	for (i = 0; i < count && i < IB_MEMREG_BATCH_MAX; i++) {
		number = valid_number(pool, buffers[i]);
		if (!number ||
		    atomic_load_explicit(&pool->links[number],
					 memory_order_relaxed) != TAKEN)
			return memreg__fail("pool_recycle", -EINVAL,
					    "not a buffer that was taken from this pool");
		indices[i] = (uint32_t)number - 1;
	}
	arg.mr_id = pool->mr.id;
	/* a late packet could write to the buffer after it was zeroed */
	if (pool->wipe)
		arg.flags &= ~(uint32_t)IB_MEMREG_RECYCLE_RELAXED;
	ret = memreg__call(pool->m->fd, IB_MEMREG_IOC_POOL_RECYCLE, &arg,
			   "pool_recycle");
	for (i = 0; i < count && !ret && pool->wipe; i++)
		memset(buffers[i], 0, pool->buffer_size);
	return memreg__about_id(ret, "MR", pool->mr.id);
}

/*
 * The life of a pool
 */

/* Put all buffers on the stacks, neighbours on the same one */
static void fill_stacks(struct memreg_pool *pool)
{
	uint64_t stacks = pool->own_mask / sizeof(struct stack) + 1 -
			  STACKS_MAX;
	struct stack *stack;
	uint64_t head;
	uint32_t i;

	atomic_init(&pool->links[0], NO_BUFFER);
	for (i = pool->count; i > 0; i--) {
		stack = &pool->stacks[STACKS_MAX +
				      (i - 1) * stacks / pool->count];
		head = atomic_load_explicit(&stack->head,
					    memory_order_relaxed);
		atomic_init(&pool->links[i], (head & NUMBER_MASK) - i + TAG);
		push(pool, stack, i, head);
	}
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

static size_t align(size_t size)
{
	return (size + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
}

/*
 * Inverse modulo 2^64, by Newton's method: each step doubles the number of low
 * bits that are right, which is 3 at first.
 */
static uint64_t inverse_of(uint64_t odd)
{
	uint64_t inverse = odd;
	unsigned int bits;

	for (bits = 3; bits < 64; bits *= 2)
		inverse *= 2 - odd * inverse;
	return inverse;
}

static void set_stride(struct memreg_pool *pool, uint64_t stride)
{
	pool->stride = stride;
	pool->shift = (uint32_t)__builtin_ctzll(stride);
	pool->inverse = inverse_of(stride >> pool->shift);
}

/* Allocate the pool's data about its buffers, without any buffers so far */
static struct memreg_pool *new_pool(uint32_t count)
{
	size_t size = sizeof(struct memreg_pool) +
		      ((size_t)count + 1) * sizeof(uint64_t);
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
	pool->own_mask = (count_stacks(count) - 1) * sizeof(struct stack) |
			 OWN_BIT;
	return pool;
}

/* Address space that is only lent stays reserved. */
static void unmap_slab(struct memreg_pool *pool)
{
	if (pool->reserved)
		memreg__reserve(pool->slab, pool->slab_size);
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
	pool->mr.addr = pool->slab;
	return 0;
}

static int map_table(struct memreg_pool *pool, int fd, size_t size)
{
	/* Populated, so that readers take no page faults. */
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
	if (memreg_reason_code() == IB_MEMREG_REASON_ID)
		return memreg__about_id(err, "domain", arg->domain_id);
	return memreg__about_ids(err, "buffers", arg->count, "bytes",
				 arg->buffer_size, "stride", arg->stride);
}

static int make_keys(struct memreg_pool *pool,
		     const struct memreg_pool_attr *attr, uint32_t domain,
		     int fd)
{
	struct ib_memreg_pool_create arg = {
		.size = sizeof(arg),
		.flags = attr->addr ? attr->flags & ~MEMREG_POOL_WIPE :
				      IB_MEMREG_MR_FD,
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
	pool->mr.id = arg.out_mr_id;
	pool->mr.domain = domain;
	pool->mr.length = (pool->count - 1) * pool->stride + attr->buffer_size;
	pool->mr.iova = arg.out_iova;
	pool->mr.access = attr->access;
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

/* The descriptors can be closed: the mappings keep the memory and the table. */
static int make_all(struct memreg_pool *pool,
		    const struct memreg_pool_attr *attr, uint32_t domain,
		    void *at)
{
	int fd = -1, ret = 0;

	pool->mr.addr = attr->addr;
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
	if (attr->flags & MEMREG_POOL_WIPE &&
	    !(attr->access & IB_MEMREG_ACCESS_LOCAL_WRITE))
		return memreg__fail("pool_create", -EINVAL,
				    "MEMREG_POOL_WIPE needs IB_MEMREG_ACCESS_LOCAL_WRITE");
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
	pool->wipe = attr->flags & MEMREG_POOL_WIPE;
	set_stride(pool, attr->stride ?: align(attr->buffer_size));
	ret = make_all(pool, attr, domain, at);
	if (ret) {
		unmap(pool);
		return ret;
	}
	pool->origin = (uintptr_t)pool->mr.addr - pool->stride;
	pool->end = (uint64_t)pool->count + 1;
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
