// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pools: each key reaches its buffer and no byte besides (I6), recycled keys
 * are dead (I3) and a call that fails recycles none (I8); and the library takes
 * no buffer twice, with threads, forks and kills, and without a system call.
 *
 * time limit: 240
 */
#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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

/*
 * Raw pools
 */

struct table {
	const struct ib_memreg_pool_table *head;
	const struct ib_memreg_pool_entry *entries;
	size_t size;
};

static int create(int fd, struct ib_memreg_pool_create *cmd)
{
	cmd->size = sizeof(*cmd);
	return raw_call(fd, IB_MEMREG_IOC_POOL_CREATE, cmd);
}

static int map_table(const struct ib_memreg_pool_create *cmd,
		     struct table *table)
{
	table->size = cmd->out_table_size;
	table->head = mmap(NULL, table->size, PROT_READ, MAP_SHARED,
			   cmd->out_table_fd, 0);
	if (table->head == MAP_FAILED)
		return -errno;
	table->entries = (const void *)(table->head + 1);
	return 0;
}

static int recycle(int fd, __u32 mr, const __u32 *indices, __u32 count,
		   __u32 flags, __u32 *bad)
{
	RAW(pool_recycle, cmd, .flags = flags, .mr_id = mr, .count = count,
	    .indices = (uintptr_t)indices);
	int ret = raw_call(fd, IB_MEMREG_IOC_POOL_RECYCLE, &cmd);

	if (bad)
		*bad = cmd.out_index;
	return ret;
}

FIXTURE(pool) {
	int fd;
	__u32 domain;
	__u32 mr;
	int memory;
	struct table table;
	struct state before;
};

#define COUNT	8U
#define SIZE	(2 * PAGE)

FIXTURE_SETUP(pool)
{
	struct ib_memreg_pool_create cmd = {
		.flags = IB_MEMREG_MR_FD,
		.access = ACCESS,
		.count = COUNT,
		.buffer_size = SIZE,
	};

	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	self->memory = raw_memory(self->fd, COUNT * SIZE, 0);
	ASSERT_LE(0, self->memory);
	cmd.domain_id = self->domain;
	cmd.fd = self->memory;
	ASSERT_EQ(0, create(self->fd, &cmd));
	self->mr = cmd.out_mr_id;
	ASSERT_EQ(0, map_table(&cmd, &self->table));
	EXPECT_EQ(0, close(cmd.out_table_fd));
	ASSERT_EQ(0, state_get(&self->before));
}

FIXTURE_TEARDOWN(pool)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, raw_destroy(self->fd, self->mr));
	EXPECT_EQ(0, munmap((void *)self->table.head, self->table.size));
	EXPECT_EQ(0, close(self->memory));
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
}

TEST_F(pool, the_table_and_the_segments_tell_the_same_keys)
{
	struct ib_memreg_segment segments[COUNT];
	RAW(mr_query, query, .mr_id = self->mr, .count = COUNT,
	    .segments = (uintptr_t)segments);
	__u32 i, k;

	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &query));
	ASSERT_EQ(COUNT, query.count);
	EXPECT_EQ(IB_MEMREG_POOL_VERSION, self->table.head->version);
	EXPECT_EQ(COUNT, self->table.head->count);
	EXPECT_EQ(sizeof(*self->table.entries), self->table.head->entry_size);
	EXPECT_EQ(IB_MEMREG_POOL_LIVE, self->table.head->state);
	EXPECT_EQ(SIZE, self->table.head->buffer_size);
	EXPECT_EQ(SIZE, self->table.head->stride);
	for (i = 0; i < COUNT; i++) {
		EXPECT_EQ(i * SIZE, self->table.entries[i].iova);
		EXPECT_EQ(segments[i].iova, self->table.entries[i].iova);
		EXPECT_EQ(SIZE, segments[i].length);
		EXPECT_EQ(segments[i].rkey, self->table.entries[i].rkey);
		EXPECT_EQ(0, self->table.entries[i].sequence & 1);
		for (k = 0; k < i; k++)
			EXPECT_NE(segments[k].rkey, segments[i].rkey);
	}
}

TEST_F(pool, I8_create_refuses_bad_shapes)
{
	struct ib_memreg_pool_create good = {
		.flags = IB_MEMREG_MR_FD,
		.domain_id = self->domain,
		.access = ACCESS,
		.count = COUNT,
		.buffer_size = SIZE,
		.fd = self->memory,
	}, cmd;
	__u64 span;

	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_KEY_SPAN, &span));
#define TRY(_field, _value)						\
	({								\
		cmd = good;						\
		cmd._field = (_value);					\
		create(self->fd, &cmd);					\
	})
	EXPECT_FAIL(EINVAL, COUNT, TRY(count, 0));
	EXPECT_FAIL(EINVAL, COUNT, TRY(count, IB_MEMREG_POOL_MAX + 1));
	EXPECT_FAIL(EINVAL, COUNT, TRY(count, ~0U));
	EXPECT_FAIL(EINVAL, RANGE, TRY(count, COUNT + 1));
	EXPECT_FAIL(EINVAL, ZERO_LENGTH, TRY(buffer_size, 0));
	EXPECT_FAIL(EINVAL, SPAN, TRY(buffer_size, span + 1));
	EXPECT_FAIL(EOVERFLOW, WRAPS, TRY(buffer_size, ~0ULL));
	EXPECT_FAIL(EINVAL, STRIDE, TRY(stride, SIZE - 1));
	EXPECT_FAIL(EOVERFLOW, WRAPS, TRY(stride, ~0ULL));
	EXPECT_FAIL(EINVAL, RANGE, TRY(stride, SIZE + 1));
	EXPECT_FAIL(EINVAL, RANGE, TRY(addr, 1));
	EXPECT_FAIL(EOVERFLOW, WRAPS, TRY(addr, ~0ULL));
	EXPECT_FAIL(ENOENT, ID, TRY(domain_id, 99));
	EXPECT_FAIL(EBADF, FD, TRY(fd, -1));
	EXPECT_FAIL(EINVAL, REMOTE_WRITE, TRY(access, REMOTE_WRITE));
#undef TRY
}

TEST_F(pool, I8_recycle_refuses_bad_indices_and_changes_no_key)
{
	__u32 rkeys[COUNT], indices[IB_MEMREG_BATCH_MAX + 1] = { 0, 1, 2 };
	__u32 i, bad, mr;
	void *memory = mem_alloc(PAGE);

	for (i = 0; i < COUNT; i++)
		rkeys[i] = self->table.entries[i].rkey;
	indices[2] = 1;
	EXPECT_FAIL(EINVAL, TWICE, recycle(self->fd, self->mr, indices, 3, 0,
					   &bad));
	EXPECT_EQ(2, bad);
	indices[1] = COUNT;
	EXPECT_FAIL(EINVAL, RANGE, recycle(self->fd, self->mr, indices, 3, 0,
					   &bad));
	EXPECT_EQ(1, bad);
	indices[0] = ~0U;
	EXPECT_FAIL(EINVAL, RANGE, recycle(self->fd, self->mr, indices, 1, 0,
					   &bad));
	EXPECT_EQ(0, bad);
	EXPECT_FAIL(EINVAL, COUNT, recycle(self->fd, self->mr, indices, 0, 0,
					   NULL));
	EXPECT_FAIL(EINVAL, COUNT,
		    recycle(self->fd, self->mr, indices,
			    IB_MEMREG_BATCH_MAX + 1, 0, NULL));
	EXPECT_FAIL(EFAULT, NONE, recycle(self->fd, self->mr, NULL, 1, 0,
					  NULL));
	EXPECT_FAIL(ENOENT, ID, recycle(self->fd, self->domain, indices, 1, 0,
					NULL));
	ASSERT_EQ(0, raw_register(self->fd, self->domain, memory, PAGE,
				  REMOTE_READ, &mr));
	EXPECT_FAIL(EINVAL, POOL, recycle(self->fd, mr, indices, 1, 0, NULL));
	EXPECT_EQ(0, raw_destroy(self->fd, mr));
	for (i = 0; i < COUNT; i++)
		EXPECT_EQ(rkeys[i], self->table.entries[i].rkey);
	mem_free(memory, PAGE);
}

/*
 * A call that was refused can be made again without the index that was wrong.
 */
TEST_F(pool, recycle_changes_the_keys_that_it_names)
{
	__u32 rkeys[COUNT], sequence, indices[] = { 5, 0, 7, 5 };
	__u32 i, relaxed;

	for (relaxed = 0; relaxed < 2; relaxed++) {
		for (i = 0; i < COUNT; i++)
			rkeys[i] = self->table.entries[i].rkey;
		sequence = self->table.entries[5].sequence;
		EXPECT_FAIL(EINVAL, TWICE,
			    recycle(self->fd, self->mr, indices, 4, 0, NULL));
		ASSERT_EQ(0, recycle(self->fd, self->mr, indices, 3,
				     relaxed ? IB_MEMREG_RECYCLE_RELAXED : 0,
				     NULL));
		for (i = 0; i < COUNT; i++) {
			EXPECT_EQ(i != 5 && i != 0 && i != 7,
				  rkeys[i] == self->table.entries[i].rkey);
			EXPECT_NE(0, self->table.entries[i].rkey);
		}
		EXPECT_NE(sequence, self->table.entries[5].sequence);
		EXPECT_EQ(0, self->table.entries[5].sequence & 1);
	}
	/* The first rkey is what LIST shows. */
	state_free(&self->before);
	ASSERT_EQ(0, state_get(&self->before));
}

TEST_F(pool, the_table_can_only_be_read)
{
	struct ib_memreg_pool_create cmd = {
		.flags = IB_MEMREG_MR_FD,
		.domain_id = self->domain,
		.access = ACCESS,
		.count = COUNT,
		.buffer_size = SIZE,
		.fd = self->memory,
	};
	struct table table = {};
	__u32 i;

	ASSERT_EQ(0, create(self->fd, &cmd));
#define BAD_MAP(_err, _size, _prot, _flags, _offset)			\
	do {								\
		EXPECT_EQ(MAP_FAILED, mmap(NULL, _size, _prot, _flags,	\
					   cmd.out_table_fd, _offset));	\
		EXPECT_EQ(_err, errno);					\
	} while (0)
	BAD_MAP(EACCES, PAGE, PROT_RW, MAP_SHARED, 0);
	BAD_MAP(EINVAL, PAGE, PROT_RW, MAP_PRIVATE, 0);
	BAD_MAP(EINVAL, PAGE, PROT_READ, MAP_PRIVATE, 0);
	BAD_MAP(EINVAL, cmd.out_table_size + PAGE, PROT_READ, MAP_SHARED, 0);
	BAD_MAP(EINVAL, PAGE, PROT_READ, MAP_SHARED,
		(off_t)cmd.out_table_size);
#undef BAD_MAP
	ASSERT_EQ(0, map_table(&cmd, &table));
	EXPECT_EQ(0, close(cmd.out_table_fd));
	EXPECT_EQ(-1, mprotect((void *)table.head, table.size, PROT_RW));
	EXPECT_EQ(EACCES, errno);
	EXPECT_NE(0, table.entries[0].rkey);
	EXPECT_EQ(0, raw_destroy(self->fd, cmd.out_mr_id));
	EXPECT_EQ(IB_MEMREG_POOL_DEAD, table.head->state);
	for (i = 0; i < COUNT; i++)
		EXPECT_EQ(0, table.entries[i].rkey);
	EXPECT_EQ(0, munmap((void *)table.head, table.size));
}

/*
 * A pool over the caller's memory is guarded as any MR: its keys die when the
 * mapping goes (I2).
 */
TEST_F(pool, over_memory_of_the_caller_it_is_guarded)
{
	char *memory = mem_alloc(COUNT * SIZE);
	struct ib_memreg_pool_create cmd = {
		.domain_id = self->domain,
		.access = ACCESS,
		.count = COUNT,
		.addr = (uintptr_t)memory + 3,
		.buffer_size = 100,
		.stride = SIZE,
	};
	__u32 index = 1;

	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, create(self->fd, &cmd));
	RAW(mr_query, query, .mr_id = cmd.out_mr_id);
	EXPECT_EQ(0, close(cmd.out_table_fd));
	EXPECT_EQ((uintptr_t)memory + 3, cmd.out_iova);
	EXPECT_EQ((long)((COUNT - 1) * SIZE / PAGE + 1), vm_pin(0));
	ASSERT_EQ(0, recycle(self->fd, cmd.out_mr_id, &index, 1, 0, NULL));
	ASSERT_EQ(0, munmap(memory + SIZE, PAGE));
	EXPECT_FAIL(ESTALE, STALE, recycle(self->fd, cmd.out_mr_id, &index, 1,
					   0, NULL));
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &query));
	EXPECT_EQ(IB_MEMREG_MR_STALE, query.out_state);
	EXPECT_EQ(0, raw_destroy(self->fd, cmd.out_mr_id));
	EXPECT_EQ(0, munmap(memory, SIZE));
	EXPECT_EQ(0, munmap(memory + SIZE + PAGE, (COUNT - 1) * SIZE - PAGE));
}

/* Accesses of peers */

FIXTURE(pool_peer) {
	struct link link;
	struct stock *stock;
	int memory;
	size_t length;
	uint8_t *at;
	__u32 mr;
	struct table table;
};

FIXTURE_VARIANT(pool_peer) {
	__u32 count;
	size_t size;
	size_t stride;
};

FIXTURE_VARIANT_ADD(pool_peer, many_in_a_page) {
	.count = 64, .size = 60, .stride = 64,
};

FIXTURE_VARIANT_ADD(pool_peer, across_pages) {
	.count = 8, .size = 5000, .stride = 5001,
};

FIXTURE_VARIANT_ADD(pool_peer, large) {
	.count = 8, .size = 64 * KiB, .stride = 64 * KiB,
};

FIXTURE_SETUP(pool_peer)
{
	struct ib_memreg_queues queues = {};
	struct ib_memreg_pool_create cmd = {
		.flags = IB_MEMREG_MR_FD,
		.access = ACCESS,
		.count = variant->count,
		.buffer_size = variant->size,
		.stride = variant->stride,
	};

	self->length = variant->count * variant->stride;
	ASSERT_EQ(0, link_open(&self->link, self->length));
	self->stock = &self->link.stock;
	self->memory = raw_memory(self->link.fd, self->length, 0);
	ASSERT_LE(0, self->memory);
	self->at = mmap(NULL, self->length, PROT_RW, MAP_SHARED,
			self->memory, 0);
	ASSERT_NE(MAP_FAILED, self->at);
	cmd.domain_id = self->link.domain;
	cmd.fd = self->memory;
	ASSERT_EQ(0, create(self->link.fd, &cmd));
	self->mr = cmd.out_mr_id;
	ASSERT_EQ(0, map_table(&cmd, &self->table));
	EXPECT_EQ(0, close(cmd.out_table_fd));
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
}

FIXTURE_TEARDOWN(pool_peer)
{
	munmap((void *)self->table.head, self->table.size);
	munmap(self->at, self->length);
	close(self->memory);
	link_close(&self->link);
}

/* The peer reads and writes all of a buffer; no other byte changes. */
static void reach(struct __test_metadata *_metadata,
		  FIXTURE_DATA(pool_peer) *self, __u32 i)
{
	const struct ib_memreg_pool_entry *entry = &self->table.entries[i];
	const struct ib_memreg_pool_table *table = self->table.head;
	const struct reach r = {
		.mem = self->at, .total = self->length,
		.offset = i * table->stride, .length = table->buffer_size,
		.iova = entry->iova, .rkey = entry->rkey,
	};

	stock_reaches(_metadata, self->stock, &r);
}

TEST_F(pool_peer, I6_a_key_reaches_its_buffer_and_no_other_byte)
{
	const struct ib_memreg_pool_entry *entry = &self->table.entries[1];
	__u32 i;

	for (i = 0; i < variant->count; i += 1 + variant->count / 8)
		reach(_metadata, self, i);
	fill(self->at, self->length, 1);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(self->stock, 0, variant->size, entry->iova + 1,
			      entry->rkey));
	EXPECT_TRUE(filled(self->at, self->length, 0, 1));
}

TEST_F(pool_peer, I3_a_recycled_key_is_dead_and_its_successor_works)
{
	struct ib_memreg_pool_entry old = self->table.entries[3];
	__u32 indices[] = { 3, 2 };

	ASSERT_EQ(0, recycle(self->link.fd, self->mr, indices, 2, 0, NULL));
	reach(_metadata, self, 3);
	reach(_metadata, self, 2);
	reach(_metadata, self, 4);
	fill(self->at, self->length, 1);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(self->stock, 0, 8, old.iova, old.rkey));
	EXPECT_TRUE(filled(self->at, self->length, 0, 1));
}

/*
 * The library
 */

FIXTURE(taking) {
	struct memreg *m;
	uint32_t domain;
	struct memreg_pool *pool;
};

#define BUFFERS		64U
#define BUFFER_SIZE	1000U

static int make(FIXTURE_DATA(taking) *self)
{
	struct memreg_pool_attr attr = {
		.buffer_size = BUFFER_SIZE,
		.count = BUFFERS,
		.access = ACCESS,
		.node = IB_MEMREG_NODE_DEVICE,
	};

	return memreg_pool_create(self->m, self->domain, &attr, &self->pool);
}

FIXTURE_SETUP(taking)
{
	ASSERT_EQ(0, memreg_open(test_device(), &self->m));
	ASSERT_EQ(0, memreg_domain_create(self->m, 0, &self->domain));
	ASSERT_EQ(0, make(self));
}

FIXTURE_TEARDOWN(taking)
{
	EXPECT_EQ(0, memreg_pool_destroy(self->pool));
	memreg_close(self->m);
	EXPECT_EQ(0, vm_pin(0));
}

TEST_F(taking, each_buffer_is_taken_once_and_given_once)
{
	struct memreg_grant grants[BUFFERS];
	char *buffers[BUFFERS];
	struct memreg_mr mr;
	uint32_t i, k;
	void *more;

	ASSERT_EQ(0, memreg_pool_mr(self->pool, &mr));
	EXPECT_EQ(BUFFERS, mr.segments);
	for (i = 0; i < BUFFERS; i++) {
		ASSERT_EQ(0, memreg_pool_take(self->pool,
					      (void **)&buffers[i]));
		ASSERT_EQ(0, memreg_pool_entry(self->pool, buffers[i],
					       &grants[i]));
		EXPECT_EQ(mr.iova + (uint64_t)(buffers[i] - (char *)mr.addr),
			  grants[i].iova);
		EXPECT_EQ(BUFFER_SIZE, grants[i].length);
		EXPECT_EQ(ACCESS, grants[i].access);
		memset(buffers[i], 1, BUFFER_SIZE);
		for (k = 0; k < i; k++) {
			EXPECT_NE(buffers[k], buffers[i]);
			EXPECT_NE(grants[k].rkey, grants[i].rkey);
		}
	}
	EXPECT_EQ(-EAGAIN, memreg_pool_take(self->pool, &more));
	for (i = 0; i < BUFFERS; i++) {
		EXPECT_EQ(0, memreg_pool_give(self->pool, buffers[i]));
		EXPECT_EQ(-EINVAL, memreg_pool_give(self->pool, buffers[i]));
	}
	EXPECT_EQ(-EINVAL, memreg_pool_give(self->pool, NULL));
	EXPECT_EQ(-EINVAL, memreg_pool_give(self->pool, &more));
	EXPECT_EQ(0, memreg_pool_take(self->pool, &more));
	EXPECT_EQ(-EINVAL, memreg_pool_give(self->pool, (char *)more + 1));
	EXPECT_EQ(-EINVAL, memreg_pool_give(self->pool, (char *)mr.addr - 64));
	EXPECT_EQ(-EINVAL,
		  memreg_pool_give(self->pool, (char *)mr.addr +
				   BUFFERS * 1024));
	EXPECT_EQ(-EINVAL, memreg_pool_entry(self->pool, (char *)more + 1,
					     &grants[0]));
	EXPECT_EQ(0, memreg_pool_give(self->pool, more));
}

TEST_F(taking, recycle_takes_only_what_was_taken)
{
	struct memreg_grant before, after;
	void *buffers[3];

	ASSERT_EQ(0, memreg_pool_take(self->pool, &buffers[0]));
	ASSERT_EQ(0, memreg_pool_take(self->pool, &buffers[1]));
	ASSERT_EQ(0, memreg_pool_entry(self->pool, buffers[0], &before));
	ASSERT_EQ(0, memreg_pool_recycle(self->pool, buffers, 2, 0));
	ASSERT_EQ(0, memreg_pool_entry(self->pool, buffers[0], &after));
	EXPECT_NE(before.rkey, after.rkey);
	EXPECT_EQ(before.iova, after.iova);
	EXPECT_EQ(-EINVAL, memreg_pool_recycle(self->pool, buffers, 0, 0));
	buffers[2] = buffers[0];
	EXPECT_EQ(-EINVAL, memreg_pool_recycle(self->pool, buffers, 3, 0));
	buffers[2] = &before;
	EXPECT_EQ(-EINVAL, memreg_pool_recycle(self->pool, buffers, 3, 0));
	EXPECT_EQ(0, memreg_pool_give(self->pool, buffers[1]));
	EXPECT_EQ(-EINVAL, memreg_pool_recycle(self->pool, buffers, 2, 0));
	EXPECT_EQ(0, memreg_pool_give(self->pool, buffers[0]));
	ASSERT_EQ(0, memreg_pool_destroy(self->pool));
	ASSERT_EQ(0, make(self));
}

TEST_F(taking, a_child_can_do_nothing_with_it)
{
	struct memreg_grant grant;
	void *mine, *buffer;
	unsigned char there;

	ASSERT_EQ(0, memreg_pool_take(self->pool, &mine));
	IN_CHILD {
		EXPECT_EQ(-ECHILD, memreg_pool_take(self->pool, &buffer));
		EXPECT_EQ(-ECHILD, memreg_pool_give(self->pool, mine));
		EXPECT_EQ(-ECHILD, memreg_pool_entry(self->pool, mine,
						     &grant));
		EXPECT_EQ(-ECHILD, memreg_pool_recycle(self->pool, &mine, 1,
						       0));
		EXPECT_EQ(-ECHILD, memreg_pool_destroy(self->pool));
		/* The buffers are not mapped there. */
		EXPECT_EQ(-1, mincore((void *)((uintptr_t)mine & -PAGE), PAGE,
				      &there));
		EXPECT_EQ(ENOMEM, errno);
	}
	EXPECT_EQ(0, memreg_pool_give(self->pool, mine));
}

TEST_F(taking, bad_attributes_are_refused)
{
	struct memreg_pool_attr good = {
		.buffer_size = BUFFER_SIZE,
		.count = BUFFERS,
		.access = ACCESS,
		.node = IB_MEMREG_NODE_DEVICE,
	}, attr;
	struct memreg_pool *pool;

#define TRY(_field, _value)						\
	({								\
		attr = good;						\
		attr._field = (_value);					\
		memreg_pool_create(self->m, self->domain, &attr, &pool); \
	})
	EXPECT_EQ(-EINVAL, TRY(count, 0));
	EXPECT_EQ(-EINVAL, TRY(count, IB_MEMREG_POOL_MAX + 1));
	EXPECT_EQ(-EINVAL, TRY(buffer_size, 0));
	EXPECT_EQ(-EOVERFLOW, TRY(buffer_size, SIZE_MAX));
	EXPECT_EQ(-EINVAL, TRY(stride, BUFFER_SIZE - 1));
	EXPECT_EQ(-EOVERFLOW, TRY(stride, SIZE_MAX));
	EXPECT_EQ(-EINVAL, TRY(access, REMOTE_WRITE));
	EXPECT_EQ(-EINVAL, TRY(node, 9999));
#undef TRY
}

/*
 * Take and give in a process that seccomp ends at its first system call but
 * exit(2).
 */
static void take_without_calls(FIXTURE_DATA(taking) *self)
{
	void *buffers[BUFFERS];
	struct memreg_grant grant;
	unsigned int i, k, bad = 0;

	if (make(self) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		_exit(2);
	for (k = 0; k < 100; k++) {
		for (i = 0; i < BUFFERS; i++)
			bad |= memreg_pool_take(self->pool, &buffers[i]) ||
			       memreg_pool_entry(self->pool, buffers[i],
						 &grant);
		bad |= memreg_pool_take(self->pool, &buffers[0]) != -EAGAIN;
		for (i = 1; i < BUFFERS; i++)
			bad |= !!memreg_pool_give(self->pool, buffers[i]);
		bad |= memreg_pool_give(self->pool, buffers[1]) != -EINVAL;
		/* The first buffer was not overwritten. */
		bad |= !!memreg_pool_give(self->pool, buffers[0]);
	}
	syscall(SYS_exit, bad);
}

TEST_F(taking, take_give_and_entry_make_no_system_call)
{
	int status;
	pid_t child = fork();

	ASSERT_LE(0, child);
	if (!child)
		take_without_calls(self);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFEXITED(status));
	EXPECT_EQ(0, WEXITSTATUS(status));
}

/*
 * Threads
 */

#define THREADS		4
#define HELD		8U

struct crowd {
	struct memreg_pool *pool;
	char *base;
	_Atomic uint32_t owners[BUFFERS];
	_Atomic uint32_t bad;
	_Atomic bool stop;
	uint32_t rounds;
	bool recycles;
};

struct member {
	struct crowd *crowd;
	pthread_t thread;
	uint32_t number;
	uint32_t seed;
};

static uint32_t pick(struct member *me, uint32_t n)
{
	me->seed = me->seed * 1103515245 + 12345;
	return (me->seed >> 16) % n;
}

/* Owner of a buffer. Buffers of 1000 bytes begin at multiples of 1024. */
static _Atomic uint32_t *owner(struct crowd *crowd, void *buffer)
{
	return &crowd->owners[((char *)buffer - crowd->base) / 1024];
}

static bool take_one(struct member *me, void **buffer)
{
	struct crowd *crowd = me->crowd;
	int ret = memreg_pool_take(crowd->pool, buffer);

	if (ret == -EAGAIN)
		return false;
	if (ret || atomic_exchange(owner(crowd, *buffer), me->number))
		crowd->bad++;
	return !ret;
}

static void give_one(struct member *me, void *buffer)
{
	struct crowd *crowd = me->crowd;

	if (atomic_exchange(owner(crowd, buffer), 0) != me->number ||
	    memreg_pool_give(crowd->pool, buffer))
		crowd->bad++;
}

static void recycle_all(struct member *me, void **held, unsigned int n)
{
	struct memreg_grant before, after;

	if (!n)
		return;
	if (memreg_pool_entry(me->crowd->pool, held[0], &before) ||
	    memreg_pool_recycle(me->crowd->pool, held, n, 0) ||
	    memreg_pool_entry(me->crowd->pool, held[0], &after) ||
	    before.rkey == after.rkey)
		me->crowd->bad++;
}

static void *take_and_give(void *arg)
{
	struct member *me = arg;
	void *held[HELD];
	uint32_t i, k, n = 0;

	for (i = 0; i < me->crowd->rounds; i++) {
		if (me->crowd->recycles && !pick(me, 1000)) {
			recycle_all(me, held, n);
		} else if (n < HELD && pick(me, 2)) {
			n += take_one(me, &held[n]);
		} else if (n) {
			k = pick(me, n);
			give_one(me, held[k]);
			held[k] = held[--n];
		}
	}
	while (n)
		give_one(me, held[--n]);
	return NULL;
}

/* Fork children, which cannot take buffers, and which exit or are killed. */
static void *fork_and_kill(void *arg)
{
	struct crowd *crowd = arg;
	int status;
	pid_t child;
	void *buffer;

	while (!crowd->stop) {
		child = fork();
		if (!child) {
			if (memreg_pool_take(crowd->pool, &buffer) != -ECHILD)
				_exit(1);
			for (;;)
				pause();
		}
		if (child < 0 || kill(child, SIGKILL) ||
		    waitpid(child, &status, 0) != child ||
		    (WIFEXITED(status) && WEXITSTATUS(status)))
			crowd->bad++;
	}
	return NULL;
}

static void run_crowd(struct __test_metadata *_metadata, struct crowd *crowd)
{
	struct member members[THREADS];
	pthread_t forker;
	uint32_t i;

	ASSERT_EQ(0, pthread_create(&forker, NULL, fork_and_kill, crowd));
	for (i = 0; i < THREADS; i++) {
		members[i] = (struct member) {
			.crowd = crowd,
			.number = i + 1,
			.seed = test_seed() + i,
		};
		ASSERT_EQ(0, pthread_create(&members[i].thread, NULL,
					    take_and_give, &members[i]));
	}
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(members[i].thread, NULL));
	crowd->stop = true;
	ASSERT_EQ(0, pthread_join(forker, NULL));
}

/* Expect that each buffer can be taken exactly once. */
static void all_there(struct __test_metadata *_metadata, struct crowd *crowd)
{
	void *buffers[BUFFERS], *more;
	uint32_t i;

	for (i = 0; i < BUFFERS; i++) {
		ASSERT_EQ(0, memreg_pool_take(crowd->pool, &buffers[i]));
		EXPECT_EQ(0, atomic_exchange(owner(crowd, buffers[i]), 1));
	}
	EXPECT_EQ(-EAGAIN, memreg_pool_take(crowd->pool, &more));
	for (i = 0; i < BUFFERS; i++)
		EXPECT_EQ(0, memreg_pool_give(crowd->pool, buffers[i]));
}

TEST_F_TIMEOUT(taking, no_buffer_is_handed_out_twice, SOAK_S)
{
	struct crowd crowd = {
		.pool = self->pool,
		.rounds = times(100000, 10000000 / THREADS),
		.recycles = true,
	};
	struct memreg_mr mr;

	ASSERT_EQ(0, memreg_pool_mr(self->pool, &mr));
	crowd.base = mr.addr;
	run_crowd(_metadata, &crowd);
	EXPECT_EQ(0, crowd.bad);
	all_there(_metadata, &crowd);
}

TEST_HARNESS_MAIN
