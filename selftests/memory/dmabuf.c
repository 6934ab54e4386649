// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of descriptors of any kind: the bytes that a peer reaches, and the end
 * of keys and local work when the exporter takes the memory away (I1); refusals
 * by exporters, which change nothing (I8); and importers of memory objects.
 *
 * The exporters that take memory away, and the importer, are of a module of the
 * tests. On kernels that faults can be injected to, soft-RoCE is ordered to
 * take the way of devices with DMA of their own as well.
 *
 * time limit: 600
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/dma-buf.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ends.h"
#include "fake.h"
#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "net.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define LEN		(15 * PAGE)	/* blocks of 8, 4, 2 and 1 pages */
#define ACCESS		(LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE |	\
			 REMOTE_ATOMIC | MW_BIND)
#define RING_ENTRY	128
#define INSTANCE	TRACEFS "/instances/memreg-dmabuf"

/*
 * Kinds of memory
 */

enum kind {
	SMALL_BLOCKS, CONTIGUOUS, MAPPED_HUGE, READ_ONLY, UDMABUF, HEAP,
	FAKE_STATIC, FAKE, FAKE_DMA, FAKE_UNPINNED, FAKE_REFUSES,
};

/**
 * struct memory - Memory of a kind
 * @kind: The kind
 * @fake: The module, or -1
 * @owner: Writable descriptor, to prepare and check accesses
 * @fd: Descriptor to register
 * @length: Bytes
 * @at: @owner, mapped
 */
struct memory {
	enum kind kind;
	int fake;
	int owner;
	int fd;
	size_t length;
	uint8_t *at;
};

static size_t length_of(enum kind kind)
{
	return kind == MAPPED_HUGE ? 2 * HUGE :
	       kind == CONTIGUOUS ? 16 * PAGE : LEN;
}

static int memory_fd(struct memory *m, int file)
{
	switch (m->kind) {
	case UDMABUF:
		return udmabuf_export(m->length);
	case HEAP:
		return heap_export(m->length);
	case FAKE_STATIC:
		return fake_export(m->fake, m->length, MEMREG_FAKE_STATIC);
	case FAKE:
	case FAKE_DMA:
	case FAKE_REFUSES:
		return fake_export(m->fake, m->length, 0);
	case FAKE_UNPINNED:
		return fake_export(m->fake, m->length, MEMREG_FAKE_STATIC |
				   MEMREG_FAKE_REVOKES);
	default:
		return raw_memory(file, m->length, m->kind == CONTIGUOUS ?
				  IB_MEMREG_MEMORY_CONTIGUOUS : 0);
	}
}

/* 0, or -errno: -ENOENT and -ENODEV where there is no such memory. */
static int memory_make(struct memory *m, enum kind which, int file)
{
	m->kind = which;
	m->length = length_of(which);
	m->fake = -1;
	if (which >= FAKE_DMA && !fault_injection())
		return -ENODEV;
	if (which >= FAKE_STATIC) {
		m->fake = fake_open();
		if (m->fake < 0)
			return m->fake;
	}
	m->owner = memory_fd(m, file);
	if (m->owner < 0)
		return m->owner;
	m->fd = which == READ_ONLY ? raw_memory_dup(file, m->owner) : m->owner;
	m->at = which == MAPPED_HUGE ? mem_map_huge(m->owner, m->length) :
				      mem_map(m->owner, m->length, PROT_RW);
	if (which >= FAKE_DMA)
		fault_order("dmabuf_map", 0, -1);
	if (which == FAKE_REFUSES && fake_fail(m->fake, m->owner,
					       MEMREG_FAKE_PIN, -EOPNOTSUPP))
		return -EIO;
	return m->fd < 0 ? m->fd : m->at ? 0 : -ENOMEM;
}

static void memory_close(struct memory *m)
{
	if (m->kind >= FAKE_DMA)
		fault_cancel("dmabuf_map");
	if (m->at)
		munmap(m->at, m->length);
	if (m->fd >= 0 && m->fd != m->owner)
		close(m->fd);
	if (m->owner >= 0)
		close(m->owner);
	if (m->fake >= 0)
		close(m->fake);
}

/* Does the device do DMA, or does the CPU copy for it? */
static bool has_dma(int file)
{
	struct ib_memreg_cap_entry caps[64];
	RAW(device_query, cmd, .count = ARRAY_LEN(caps),
	    .caps = (uintptr_t)caps);
	__u32 i;

	if (raw_call(file, IB_MEMREG_IOC_DEVICE_QUERY, &cmd))
		return false;
	for (i = 0; i < cmd.count && i < ARRAY_LEN(caps); i++)
		if (caps[i].cap == IB_MEMREG_CAP_DMABUF)
			return caps[i].backing == IB_MEMREG_BACKING_DEVICE;
	return false;
}

static bool is_revocable(const struct memory *m)
{
	return m->kind >= FAKE;
}

/* Accesses of a peer */

/**
 * struct end - A peer, and memory that is registered for it
 * @link: Their connection
 * @stock: The peer
 * @ring: Completions of this end
 * @m: The memory
 * @access: Access flags that it can be registered with
 * @mr: The MR, or the last one
 */
struct end {
	struct link link;
	struct stock *stock;
	struct ring ring;
	struct memory m;
	__u32 access;
	struct ib_memreg_mr_register mr;
};

/* As memory_make(). */
static int end_open(struct end *e, enum kind kind)
{
	struct ib_memreg_queues queues;
	int ret;

	e->access = kind == READ_ONLY ? REMOTE_READ | MW_BIND : ACCESS;
	ret = link_open(&e->link, length_of(kind));
	if (ret)
		return ret;
	e->stock = &e->link.stock;
	ret = memory_make(&e->m, kind, e->link.fd);
	if (ret)
		return ret;
	ret = ring_create(e->link.fd, &e->ring, 64, RING_ENTRY, 0, -1);
	if (ret)
		return ret;
	queues = queues_on(e->ring.id, 16, 16, 2, 0);
	return link_up(&e->link, &queues, true);
}

/*
 * Close the connection, and expect that no exporter's memory is in use any
 * more.
 */
static void end_close(struct __test_metadata *_metadata, struct end *e)
{
	struct memreg_fake_control state;

	link_close(&e->link);
	ring_unmap(&e->ring);
	if (e->m.kind >= FAKE_STATIC && e->m.at) {
		EXPECT_EQ(0, fake_control(e->m.fake, e->m.owner,
					  MEMREG_FAKE_LOOK, &state));
		EXPECT_EQ(0, state.out_attached);
		EXPECT_EQ(0, state.out_pinned);
		EXPECT_EQ(0, state.out_mapped);
		EXPECT_EQ(0, state.out_vmapped);
	}
	memory_close(&e->m);
	EXPECT_EQ(0, vm_pin(0));
}

FIXTURE(dmabuf) {
	struct end end;
};

FIXTURE_VARIANT(dmabuf) {
	enum kind kind;
};

#define KIND(_name, _kind)						\
	FIXTURE_VARIANT_ADD(dmabuf, _name) { .kind = (_kind) }

KIND(small_blocks, SMALL_BLOCKS);
KIND(contiguous, CONTIGUOUS);
KIND(mapped_huge, MAPPED_HUGE);
KIND(read_only, READ_ONLY);
KIND(udmabuf, UDMABUF);
KIND(system_heap, HEAP);
KIND(foreign, FAKE_STATIC);
KIND(revocable, FAKE);
KIND(revocable_dma, FAKE_DMA);

FIXTURE_SETUP(dmabuf)
{
	int ret = end_open(&self->end, variant->kind);

	if (ret == -ENOENT || ret == -ENODEV)
		SKIP(return, "there is no such memory here");
	ASSERT_EQ(0, ret);
}

FIXTURE_TEARDOWN(dmabuf)
{
	end_close(_metadata, &self->end);
}

static int register_range(struct end *e, size_t offset,
			  size_t length, __u32 access)
{
	return raw_register_fd(e->link.fd, e->link.domain, e->m.fd,
			       offset, length, access, &e->mr);
}

/* Edges of pages, of blocks and of the memory, and the middle of pages. */
static const struct {
	size_t offset, length;	/* length 0: to the end, less the offset */
} ranges[] = {
	{ 0, 0 }, { 1, 0 }, { PAGE - 1, 2 }, { PAGE, PAGE },
	{ 7 * PAGE + 100, PAGE }, { 3 * PAGE - 3, 5 * PAGE + 6 },
};

/*
 * Expect that the peer reads all bytes of a range, that it writes them if the
 * access allows it, and that no other byte changes.
 */
static void reach(struct __test_metadata *_metadata,
		  struct end *e, size_t offset, size_t length,
		  __u64 iova, __u32 rkey)
{
	const struct reach r = {
		.mem = e->m.at, .total = e->m.length,
		.offset = offset, .length = length,
		.iova = iova, .rkey = rkey,
		.read_only = !(e->access & REMOTE_WRITE),
	};

	stock_reaches(_metadata, e->stock, &r);
}

TEST_F(dmabuf, I6_the_peer_reaches_every_byte_and_no_other)
{
	struct end *e = &self->end;
	size_t i, offset, length;

	for (i = 0; i < ARRAY_LEN(ranges); i++) {
		offset = ranges[i].offset;
		length = ranges[i].length ?: e->m.length - 2 * offset;
		ASSERT_EQ(0, register_range(e, offset, length,
					    e->access));
		reach(_metadata, e, offset, length, e->mr.iova,
		      e->mr.out_rkey);
		EXPECT_EQ(0, raw_destroy(e->link.fd, e->mr.out_mr_id));
	}
	/* A byte behind is out of reach. */
	fill(e->m.at, e->m.length, 1);
	ASSERT_EQ(0, register_range(e, PAGE, PAGE, e->access));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  e->access & REMOTE_WRITE ?
		  stock_write(e->stock, 0, PAGE, e->mr.iova + 1,
			      e->mr.out_rkey) :
		  stock_read(e->stock, 0, PAGE, e->mr.iova + 1,
			     e->mr.out_rkey));
	EXPECT_TRUE(filled(e->m.at, e->m.length, 0, 1));
}

TEST_F(dmabuf, I6_by_a_read_only_key_nothing_is_written)
{
	struct end *e = &self->end;
	ASSERT_EQ(0, register_range(e, 0, e->m.length, REMOTE_READ));
	fill(e->m.at, e->m.length, 1);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(e->stock, 0, 8, e->mr.iova,
			      e->mr.out_rkey));
	EXPECT_TRUE(filled(e->m.at, e->m.length, 0, 1));
	if (e->m.kind == READ_ONLY)
		EXPECT_FAIL(EACCES, READ_ONLY,
			    register_range(e, 0, PAGE, LOCAL_WRITE));
}

TEST_F(dmabuf, I6_the_peers_atomics_reach_it)
{
	struct end *e = &self->end;
	static const size_t offsets[] = { 0, PAGE - 8, PAGE, 5 * PAGE + 256 };
	struct ibv_send_wr wr;
	__u64 before, now;
	size_t i;

	ASSERT_EQ(0, register_range(e, 0, e->m.length, e->access));
	fill(e->m.at, e->m.length, 1);
	for (i = 0; i < ARRAY_LEN(offsets); i++) {
		wr = (struct ibv_send_wr) {
			.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.wr.atomic.compare_add = 7,
			.wr.atomic.remote_addr = e->mr.iova + offsets[i],
			.wr.atomic.rkey = e->mr.out_rkey,
		};
		memcpy(&before, e->m.at + offsets[i], sizeof(before));
		if (!(e->access & REMOTE_ATOMIC)) {
			EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
				  stock_do(e->stock, &wr, 0, 8));
			break;
		}
		ASSERT_EQ(IBV_WC_SUCCESS, stock_do(e->stock, &wr, 0, 8));
		memcpy(&now, e->m.at + offsets[i], sizeof(now));
		EXPECT_EQ(before + 7, now);
		EXPECT_EQ(0, memcmp(e->stock->mem, &before, 8));
		memcpy(e->m.at + offsets[i], &before, sizeof(before));
	}
	EXPECT_TRUE(filled(e->m.at, e->m.length, 0, 1));
}

static int bind_window(struct end *e, size_t offset,
		       size_t length, struct ib_memreg_bind *bind)
{
	*bind = (struct ib_memreg_bind) {
		.mr_id = e->mr.out_mr_id,
		.offset = offset,
		.length = length,
		.access = e->access & (REMOTE_READ | REMOTE_WRITE),
	};
	return raw_windows(e->link.fd, e->link.domain, length,
			   &bind->window_id, 1) ?:
	       raw_bind(e->link.fd, e->link.domain, bind, 1);
}

TEST_F(dmabuf, I6_windows_end_at_their_bytes)
{
	struct end *e = &self->end;
	struct ib_memreg_bind bind;
	size_t i, offset, length;

	ASSERT_EQ(0, register_range(e, 0, e->m.length,
				    e->access & (LOCAL_WRITE | MW_BIND)));
	for (i = 1; i < ARRAY_LEN(ranges); i++) {
		offset = ranges[i].offset;
		length = ranges[i].length ?: 14 * PAGE;
		ASSERT_EQ(0, bind_window(e, offset, length, &bind));
		reach(_metadata, e, offset, length, bind.out_iova,
		      bind.out_rkey);
		EXPECT_EQ(0, raw_destroy(e->link.fd, bind.window_id));
	}
	ASSERT_EQ(0, bind_window(e, PAGE, PAGE, &bind));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_read(e->stock, 0, PAGE, bind.out_iova + 1,
			     bind.out_rkey));
}

/*
 * Local work moves bytes out of the memory by SEND and WRITE, and into it by
 * READ and RECV.
 */
TEST_F(dmabuf, local_work_reaches_it)
{
	struct end *e = &self->end;
	size_t at = PAGE - 5, length = 2 * PAGE, rest = at + length;
	struct stock *s = e->stock;
	uint8_t *mem = e->m.at;
	union entry entry;
	struct ib_memreg_wr wr;

	/*
	 * An MR without remote access has keys only if its memory can be
	 * revoked.
	 */
	ASSERT_EQ(0, register_range(e, 0, e->m.length,
				    e->access & LOCAL_WRITE));
	EXPECT_EQ(is_revocable(&e->m), e->mr.out_segments);
	fill(mem, e->m.length, 3);
	wr = WR(WRITE, e->link.endpoint,
		SGE(e->mr.out_mr_id, at, length), .flags = SIGNALED,
		.remote_addr = (uintptr_t)s->mem, .rkey = s->mr->rkey);
	ASSERT_EQ(0, raw_submit(e->link.fd, &wr, 1));
	ASSERT_EQ(0, ring_next(&e->ring, &entry));
	EXPECT_EQ(0, entry.cqe.status);
	EXPECT_TRUE(filled(s->mem, length, at, 3));
	if (!(e->access & LOCAL_WRITE))
		return;
	fill(s->mem, e->m.length, 4);
	wr.opcode = OP(READ);
	ASSERT_EQ(0, raw_submit(e->link.fd, &wr, 1));
	ASSERT_EQ(0, ring_next(&e->ring, &entry));
	EXPECT_EQ(0, entry.cqe.status);
	EXPECT_TRUE(filled(mem, at, 0, 3));
	EXPECT_TRUE(filled(mem + at, length, 0, 4));
	EXPECT_TRUE(filled(mem + rest, e->m.length - rest, rest, 3));
}

/*
 * Receives go to the memory. If it is used by key, no data is put in the entry,
 * as the CPU must not copy from there.
 */
TEST_F(dmabuf, receives_reach_it)
{
	struct end *e = &self->end;
	static const size_t lengths[] = { 8, 100, PAGE + 10 };
	struct ib_memreg_sge sges[2];
	struct ib_memreg_wr wr;
	union entry entry;
	size_t i;

	ASSERT_EQ(0, register_range(e, 0, e->m.length,
				    e->access & LOCAL_WRITE));
	wr = WR(RECV, e->link.endpoint, SGE(e->mr.out_mr_id, 0, 8));
	if (!(e->access & LOCAL_WRITE)) {
		EXPECT_FAIL(EACCES, LOCAL_WRITE,
			    raw_submit(e->link.fd, &wr, 1));
		return;
	}
	for (i = 0; i < ARRAY_LEN(lengths); i++) {
		fill(e->m.at, e->m.length, 1);
		fill(e->stock->mem, e->m.length, 5 + i);
		sges[0] = (struct ib_memreg_sge) {
			.mr_id = e->mr.out_mr_id, .offset = PAGE - 4,
			.length = 6,
		};
		sges[1] = (struct ib_memreg_sge) {
			.mr_id = e->mr.out_mr_id, .offset = PAGE + 2,
			.length = 3 * PAGE,
		};
		wr = WR(RECV, e->link.endpoint, SGES(sges, 2));
		ASSERT_EQ(0, raw_submit(e->link.fd, &wr, 1));
		ASSERT_EQ(IBV_WC_SUCCESS, stock_send(e->stock, 0,
						     lengths[i]));
		ASSERT_EQ(0, ring_next(&e->ring, &entry));
		EXPECT_EQ(0, entry.cqe.status);
		EXPECT_EQ(lengths[i], entry.cqe.byte_len);
		if (entry.cqe.flags & IB_MEMREG_CQE_INLINE) {
			EXPECT_FALSE(is_revocable(&e->m));
			EXPECT_TRUE(filled(entry_data(&entry), lengths[i], 0,
					   5 + i));
			continue;
		}
		EXPECT_TRUE(filled(e->m.at, PAGE - 4, 0, 1));
		EXPECT_TRUE(filled(e->m.at + PAGE - 4, lengths[i], 0,
				   5 + i));
	}
}

/*
 * The exporter takes it away
 */

FIXTURE(revoked) {
	struct end end;
};

FIXTURE_VARIANT(revoked) {
	enum kind kind;
};

FIXTURE_VARIANT_ADD(revoked, by_cpu) {
	.kind = FAKE,
};

FIXTURE_VARIANT_ADD(revoked, by_dma) {
	.kind = FAKE_DMA,
};

FIXTURE_VARIANT_ADD(revoked, by_dma_without_pin) {
	.kind = FAKE_UNPINNED,
};

FIXTURE_VARIANT_ADD(revoked, by_dma_that_refuses_to_pin) {
	.kind = FAKE_REFUSES,
};

FIXTURE_SETUP(revoked)
{
	int ret = end_open(&self->end, variant->kind);

	if (ret == -ENOENT || ret == -ENODEV)
		SKIP(return, "there is no such memory here");
	ASSERT_EQ(0, ret);
}

FIXTURE_TEARDOWN(revoked)
{
	end_close(_metadata, &self->end);
}

static __u32 state_of(struct end *e)
{
	RAW(mr_query, query, .mr_id = e->mr.out_mr_id);

	return raw_call(e->link.fd, IB_MEMREG_IOC_MR_QUERY, &query) ? 0 :
	       query.out_state;
}

/*
 * Expect that nobody has the memory mapped or pinned any more, and that the MR
 * is stale.
 */
static void is_taken_away(struct __test_metadata *_metadata,
			  struct end *e,
			  const struct memreg_fake_control *state)
{
	EXPECT_EQ(1, state->out_attached);
	EXPECT_EQ(0, state->out_pinned);
	EXPECT_EQ(0, state->out_mapped);
	EXPECT_EQ(0, state->out_vmapped);
	EXPECT_EQ(IB_MEMREG_MR_STALE, state_of(e));
}

TEST_F(revoked, I1_keys_are_dead_before_the_exporter_has_it_back)
{
	struct end *e = &self->end;
	struct memreg_fake_control state;
	struct ib_memreg_bind bind;
	struct ib_memreg_wr wr;
	bool dma = e->m.kind >= FAKE_DMA || has_dma(e->link.fd);

	ASSERT_EQ(0, register_range(e, 0, e->m.length, ACCESS));
	ASSERT_EQ(0, bind_window(e, PAGE, PAGE, &bind));
	ASSERT_EQ(0, fake_control(e->m.fake, e->m.fd, MEMREG_FAKE_LOOK,
				  &state));
	EXPECT_EQ(e->m.kind < FAKE_UNPINNED, state.out_pinned);
	EXPECT_EQ(dma, state.out_mapped);
	EXPECT_EQ(!dma, state.out_vmapped);
	reach(_metadata, e, 0, e->m.length, e->mr.iova,
	      e->mr.out_rkey);
	fill(e->m.at, e->m.length, 1);
	ASSERT_EQ(0, fake_control(e->m.fake, e->m.fd, MEMREG_FAKE_MOVE,
				  &state));
	EXPECT_EQ(1, state.out_at_once);
	EXPECT_GT(10000, state.out_ms);
	is_taken_away(_metadata, e, &state);

	/* Neither new work, nor new keys. */
	wr = WR(SEND, e->link.endpoint, SGE(e->mr.out_mr_id, 0, 8));
	EXPECT_FAIL(ESTALE, STALE, raw_submit(e->link.fd, &wr, 1));
	EXPECT_EQ(0, raw_revoke(e->link.fd, e->link.domain,
				&bind.window_id, 1));
	EXPECT_FAIL(ESTALE, STALE, raw_bind(e->link.fd, e->link.domain,
					    &bind, 1));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(e->stock, 0, 8, e->mr.iova,
			      e->mr.out_rkey));
	EXPECT_TRUE(filled(e->m.at, e->m.length, 0, 1));
	EXPECT_EQ(0, raw_destroy(e->link.fd, e->mr.out_mr_id));

	/* After the move the memory can be registered again. */
	ASSERT_EQ(0, register_range(e, 0, e->m.length, ACCESS));
	EXPECT_EQ(IB_MEMREG_MR_LIVE, state_of(e));
	ASSERT_EQ(0, fake_control(e->m.fake, e->m.fd,
				  MEMREG_FAKE_UNPLUG, &state));
	EXPECT_EQ(1, state.out_at_once);
	is_taken_away(_metadata, e, &state);
	EXPECT_EQ(0, raw_destroy(e->link.fd, e->mr.out_mr_id));
	EXPECT_FAIL(EOPNOTSUPP, EXPORTER,
		    register_range(e, 0, e->m.length, ACCESS));
}

TEST_F(revoked, I1_window_keys_are_dead_before_the_exporter_has_it_back)
{
	struct end *e = &self->end;
	struct memreg_fake_control state;
	struct ib_memreg_bind bind;

	ASSERT_EQ(0, register_range(e, 0, e->m.length,
				    LOCAL_WRITE | MW_BIND));
	ASSERT_EQ(0, bind_window(e, PAGE, PAGE, &bind));
	reach(_metadata, e, PAGE, PAGE, bind.out_iova, bind.out_rkey);
	ASSERT_EQ(0, fake_control(e->m.fake, e->m.fd,
				  MEMREG_FAKE_MOVE, &state));
	EXPECT_EQ(1, state.out_at_once);
	is_taken_away(_metadata, e, &state);
	fill(e->m.at, e->m.length, 1);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(e->stock, 0, 8, bind.out_iova,
			      bind.out_rkey));
	EXPECT_TRUE(filled(e->m.at, e->m.length, 0, 1));
}

/* Entries of WINDOW_BIND that the module copies at a time */
#define BIND_COPY	16
/* Entries that fill a page */
#define BINDS_PAGE	(PAGE / sizeof(struct ib_memreg_bind) + 1)

/**
 * struct late_bind - A thread that binds BIND_COPY + 1 windows
 * @thread: The thread
 * @link: The file and domain
 * @binds: The entries
 * @ret: What the call returned
 * @reason: Its reason
 */
struct late_bind {
	pthread_t thread;
	const struct link *link;
	struct ib_memreg_bind *binds;
	int ret;
	__u32 reason;
};

static void *bind_late(void *arg)
{
	struct late_bind *late = arg;

	late->ret = raw_bind(late->link->fd, late->link->domain, late->binds,
			     BIND_COPY + 1);
	late->reason = raw_reason();
	return NULL;
}

/* Entries for new windows, all but the last one of the exporter's memory */
static void late_binds(struct __test_metadata *_metadata, struct end *e,
		       struct ib_memreg_bind *binds, __u32 other)
{
	__u32 windows[BIND_COPY + 1];
	unsigned int i;

	ASSERT_EQ(0, raw_windows(e->link.fd, e->link.domain, PAGE, windows,
				 BIND_COPY + 1));
	for (i = 0; i <= BIND_COPY; i++)
		binds[i] = (struct ib_memreg_bind) {
			.window_id = windows[i], .length = PAGE,
			.mr_id = i < BIND_COPY ? e->mr.out_mr_id : other,
			.access = REMOTE_READ,
		};
}

static __u64 work_requests(struct __test_metadata *_metadata, struct end *e)
{
	__u64 n = 0;

	EXPECT_EQ(0, raw_stat(e->link.fd, IB_MEMREG_STAT_WORK_REQUESTS, &n));
	return n;
}

/*
 * The memory goes after a call has checked it and before it makes keys, while
 * the copy of a later entry waits for a page fault: no key is made.
 */
TEST_F(revoked, I1_no_key_is_made_once_it_is_gone)
{
	struct ib_memreg_bind binds[BINDS_PAGE] = {};
	struct end *e = &self->end;
	struct late_bind late = { .link = &e->link };
	size_t first = BIND_COPY * sizeof(*binds);
	__u64 before;
	__u8 *area;
	__u32 other;
	int uffd;

	area = mmap(NULL, 3 * PAGE, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)area);
	ASSERT_EQ(0, raw_register(e->link.fd, e->link.domain, area + 2 * PAGE,
				  PAGE, LOCAL_WRITE | MW_BIND, &other));
	ASSERT_EQ(0, register_range(e, 0, e->m.length, LOCAL_WRITE | MW_BIND));
	/* Only the last entry is on the second page, which is missing. */
	late_binds(_metadata, e, binds, other);
	late.binds = (void *)(area + PAGE - first);
	memcpy(late.binds, binds, first);
	uffd = uffd_open(area + PAGE, PAGE);
	ASSERT_LE(0, uffd);

	ASSERT_EQ(0, pthread_create(&late.thread, NULL, bind_late, &late));
	ASSERT_EQ((unsigned long)area + PAGE, uffd_next(uffd));
	ASSERT_EQ(0, fake_control(e->m.fake, e->m.fd, MEMREG_FAKE_MOVE, NULL));
	before = work_requests(_metadata, e);
	binds[0] = binds[BIND_COPY];
	ASSERT_EQ(0, uffd_answer(uffd, (unsigned long)area + PAGE, binds));
	ASSERT_EQ(0, pthread_join(late.thread, NULL));
	EXPECT_EQ(-ESTALE, late.ret);
	EXPECT_EQ(IB_MEMREG_REASON_STALE, late.reason);
	EXPECT_EQ(before, work_requests(_metadata, e));
	close(uffd);
	EXPECT_EQ(0, raw_destroy(e->link.fd, other));
	munmap(area, 3 * PAGE);
}

/* Posted receives on revoked memory fail, as they go by a key that is dead. */
TEST_F(revoked, I1_posted_receives_fail_once_it_is_gone)
{
	struct end *e = &self->end;
	struct memreg_fake_control state;
	struct ib_memreg_wr wr;
	union entry entry;

	ASSERT_EQ(0, register_range(e, 0, e->m.length, LOCAL_WRITE));
	wr = WR(RECV, e->link.endpoint,
		SGE(e->mr.out_mr_id, 100, 2 * PAGE));
	ASSERT_EQ(0, raw_submit(e->link.fd, &wr, 1));
	fill(e->m.at, e->m.length, 1);
	ASSERT_EQ(0, fake_control(e->m.fake, e->m.fd, MEMREG_FAKE_MOVE,
				  &state));
	EXPECT_EQ(1, state.out_at_once);
	is_taken_away(_metadata, e, &state);
	EXPECT_NE(IBV_WC_SUCCESS, stock_send(e->stock, 0, PAGE));
	ASSERT_EQ(0, ring_next(&e->ring, &entry));
	EXPECT_NE(0, entry.cqe.status);
	EXPECT_TRUE(entry.cqe.flags & IB_MEMREG_CQE_STALE);
	EXPECT_TRUE(filled(e->m.at, e->m.length, 0, 1));
}

TEST_F(dmabuf, local_work_is_for_its_own_domain)
{
	struct end *e = &self->end;
	struct ib_memreg_mr_register mr;
	struct ib_memreg_wr wr;
	__u32 other;

	ASSERT_EQ(0, raw_domain(e->link.fd, &other));
	ASSERT_EQ(0, raw_register_fd(e->link.fd, other, e->m.fd, 0,
				     PAGE, 0, &mr));
	wr = WR(SEND, e->link.endpoint, SGE(mr.out_mr_id, 0, 8));
	if (is_revocable(&e->m)) {
		EXPECT_FAIL(EINVAL, DOMAIN, raw_submit(e->link.fd, &wr, 1));
		wr.opcode = OP(RECV);
		EXPECT_EQ(0, raw_destroy(e->link.fd, mr.out_mr_id));
		ASSERT_EQ(0, raw_register_fd(e->link.fd, other, e->m.fd,
					     0, PAGE, LOCAL_WRITE, &mr));
		wr.sge.mr_id = mr.out_mr_id;
		EXPECT_FAIL(EINVAL, DOMAIN, raw_submit(e->link.fd, &wr, 1));
	} else {
		ASSERT_EQ(0, stock_recv(e->stock, 0, 64));
		EXPECT_EQ(0, raw_submit(e->link.fd, &wr, 1));
	}
}

/*
 * Memory that the exporter never takes away can be composed, on any device. A
 * message that is received into the composition arrives whole.
 */
TEST_F(dmabuf, what_stays_can_be_composed)
{
	struct end *e = &self->end;
	struct ib_memreg_piece pieces[] = {
		{ .offset = PAGE, .length = PAGE }, { .length = PAGE },
	};
	RAW(mr_compose, cmd, .domain_id = e->link.domain, .count = 2,
	    .access = e->access, .pieces = (uintptr_t)pieces);
	struct ib_memreg_wr wr;
	union entry entry;

	if (is_revocable(&e->m))
		SKIP(return, "the exporter may take it away");
	ASSERT_EQ(0, register_range(e, 0, e->m.length, e->access));
	pieces[0].mr_id = e->mr.out_mr_id;
	pieces[1].mr_id = e->mr.out_mr_id;
	ASSERT_EQ(0, raw_call(e->link.fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd));
	fill(e->m.at, 2 * PAGE, 1);
	ASSERT_EQ(IBV_WC_SUCCESS,
		  stock_read(e->stock, 0, 2 * PAGE, cmd.iova, cmd.out_rkey));
	EXPECT_TRUE(filled(e->stock->mem, PAGE, PAGE, 1));
	EXPECT_TRUE(filled(e->stock->mem + PAGE, PAGE, 0, 1));
	if (!(e->access & LOCAL_WRITE))
		return;
	wr = WR(RECV, e->link.endpoint, SGE(cmd.out_mr_id, 0, 2 * PAGE));
	ASSERT_EQ(0, raw_submit(e->link.fd, &wr, 1));
	fill(e->stock->mem, PAGE + 8, 2);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_send(e->stock, 0, PAGE + 8));
	ASSERT_EQ(0, ring_next(&e->ring, &entry));
	EXPECT_EQ(PAGE + 8, entry.cqe.byte_len);
	EXPECT_TRUE(filled(e->m.at + PAGE, PAGE, 0, 2));
	EXPECT_TRUE(filled(e->m.at, 8, PAGE, 2));
	EXPECT_TRUE(filled(e->m.at + 8, PAGE - 8, 8, 1));
}

/*
 * Two processes share the memory. When one of them revokes its MR, or is
 * killed, the other's peer goes on.
 */
TEST_F(dmabuf, a_process_that_shares_it_is_killed_and_the_peer_goes_on)
{
	struct end *e = &self->end;
	struct ib_memreg_mr_register mr;
	int ready[2], fd, i;
	pid_t child;
	__u32 domain;
	char c;

	ASSERT_EQ(0, register_range(e, 0, e->m.length, e->access));
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, pipe2(ready, O_CLOEXEC));
		child = fork();
		ASSERT_LE(0, child);
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			fd = raw_open_bound();
			if (fd < 0 || raw_domain(fd, &domain) ||
			    raw_register_fd(fd, domain, e->m.fd, 0,
					    e->m.length, e->access,
					    &mr) ||
			    (i && raw_destroy(fd, mr.out_mr_id)) ||
			    write(ready[1], "x", 1) != 1)
				_exit(1);
			pause();
		}
		close(ready[1]);
		ASSERT_EQ(1, read(ready[0], &c, 1));
		close(ready[0]);
		reach(_metadata, e, 0, e->m.length, e->mr.iova,
		      e->mr.out_rkey);
		EXPECT_EQ(0, kill(child, SIGKILL));
		EXPECT_EQ(child, waitpid(child, NULL, 0));
		reach(_metadata, e, 0, e->m.length, e->mr.iova,
		      e->mr.out_rkey);
	}
}

/*
 * An MR that replaces another one is revoked as well; a composition cannot
 * contain it.
 */
TEST_F(revoked, it_can_be_re_registered_and_not_composed)
{
	struct end *e = &self->end;
	struct memreg_fake_control state;
	struct ib_memreg_piece piece = { .length = PAGE };
	RAW(mr_reregister, again, .flags = IB_MEMREG_REREG_ACCESS,
	    .access = ACCESS);
	RAW(mr_compose, compose, .domain_id = e->link.domain, .count = 1,
	    .access = LOCAL_WRITE, .pieces = (uintptr_t)&piece);

	ASSERT_EQ(0, register_range(e, 0, e->m.length, LOCAL_WRITE | MW_BIND));
	piece.mr_id = e->mr.out_mr_id;
	EXPECT_FAIL(EOPNOTSUPP, EXPORTER,
		    raw_call(e->link.fd, IB_MEMREG_IOC_MR_COMPOSE, &compose));
	again.mr_id = e->mr.out_mr_id;
	ASSERT_EQ(0, raw_call(e->link.fd, IB_MEMREG_IOC_MR_REREGISTER,
			      &again));
	reach(_metadata, e, 0, e->m.length, again.iova, again.out_rkey);
	ASSERT_EQ(0, fake_control(e->m.fake, e->m.fd, MEMREG_FAKE_MOVE,
				  &state));
	EXPECT_EQ(1, state.out_at_once);
	is_taken_away(_metadata, e, &state);
	again.iova = 0;
	EXPECT_FAIL(ESTALE, STALE, raw_call(e->link.fd,
					    IB_MEMREG_IOC_MR_REREGISTER,
					    &again));
}

/*
 * An exporter takes memory away while it is registered, bound or deregistered
 */

struct mover {
	pthread_t thread;
	int fake;
	int fd;
	atomic_bool stop;
	atomic_uint moves;
	int ret;
};

static void *keep_moving(void *arg)
{
	struct mover *mover = arg;
	int ret;

	while (!atomic_load(&mover->stop)) {
		ret = fake_control(mover->fake, mover->fd, MEMREG_FAKE_MOVE,
				   NULL);
		/* Somebody came before it was elsewhere. */
		if (ret && ret != -EBUSY)
			mover->ret = ret;
		atomic_fetch_add(&mover->moves, 1);
	}
	return NULL;
}

/* Is an errno allowed for memory that is being moved? */
static bool moves_away(int ret)
{
	return !ret || ret == -ESTALE || ret == -EAGAIN;
}

TEST_F(revoked, I1_keys_are_made_and_ended_while_it_moves)
{
	struct end *e = &self->end;
	struct mover mover = { .fake = e->m.fake, .fd = e->m.fd };
	unsigned int i, live = 0, bound = 0, rounds = test_rounds(100);
	struct ib_memreg_bind bind;
	int ret;

	ASSERT_EQ(0, pthread_create(&mover.thread, NULL, keep_moving, &mover));
	for (i = 0; i < rounds; i++) {
		ret = register_range(e, i % PAGE, 2 * PAGE, ACCESS);
		EXPECT_TRUE(moves_away(ret));
		if (ret)
			continue;
		live++;
		ret = bind_window(e, 0, PAGE, &bind);
		EXPECT_TRUE(moves_away(ret));
		bound += !ret;
		EXPECT_EQ(0, raw_destroy(e->link.fd, bind.window_id));
		EXPECT_EQ(0, raw_destroy(e->link.fd, e->mr.out_mr_id));
	}
	atomic_store(&mover.stop, true);
	pthread_join(mover.thread, NULL);
	EXPECT_EQ(0, mover.ret);
	EXPECT_LT(0, live);
	TH_LOG("%u of %u registered, %u bound, in %u moves", live, rounds,
	       bound, atomic_load(&mover.moves));
}

/* Refusals of exporters */

FIXTURE(refused) {
	int fd;
	__u32 domain;
	int fake;
	bool ordered;
	bool dma;
	struct state before;
};

FIXTURE_VARIANT(refused) {
	bool dma;
};

FIXTURE_VARIANT_ADD(refused, by_cpu) {
};

FIXTURE_VARIANT_ADD(refused, by_dma) {
	.dma = true,
};

FIXTURE_SETUP(refused)
{
	self->fake = fake_open();
	if (self->fake == -ENOENT || (variant->dma && !fault_injection()))
		SKIP(return, "no such exporter can be had here");
	ASSERT_LE(0, self->fake);
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	self->ordered = variant->dma;
	self->dma = variant->dma || has_dma(self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, state_get(&self->before));
	if (self->ordered)
		fault_order("dmabuf_map", 0, -1);
}

FIXTURE_TEARDOWN(refused)
{
	if (self->ordered)
		fault_cancel("dmabuf_map");
	if (self->before.objects)
		EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	close(self->fd);
	close(self->fake);
}

static int try_register(FIXTURE_DATA(refused) *self, int dmabuf,
			__u32 access)
{
	struct ib_memreg_mr_register mr;

	return raw_register_fd(self->fd, self->domain, dmabuf, 0, LEN, access,
			       &mr) ?: raw_destroy(self->fd, mr.out_mr_id);
}

/*
 * Register the memory of an exporter with these flags, and have the exporter
 * release it.
 */
static int try_flags(FIXTURE_DATA(refused) *self, __u32 flags, __u32 access)
{
	int dmabuf = fake_export(self->fake, LEN, flags);
	int ret;

	if (dmabuf < 0)
		return dmabuf;
	ret = try_register(self, dmabuf, access);
	close(dmabuf);
	return ret;
}

TEST_F(refused, I8_each_callback_that_fails)
{
	static const struct {
		int err, expected;
		__u32 reason;
	} errors[] = {
		{ ENOMEM, ENOMEM, IB_MEMREG_REASON_NONE },
		{ EBUSY, EAGAIN, IB_MEMREG_REASON_EXPORTER },
		{ EAGAIN, EAGAIN, IB_MEMREG_REASON_EXPORTER },
		{ ENODEV, EOPNOTSUPP, IB_MEMREG_REASON_EXPORTER },
		{ EINVAL, EOPNOTSUPP, IB_MEMREG_REASON_EXPORTER },
		{ EOPNOTSUPP, EOPNOTSUPP, IB_MEMREG_REASON_EXPORTER },
	};
	__u32 callback, last = self->dma ? MEMREG_FAKE_MAP : MEMREG_FAKE_PIN;
	int dmabuf = fake_export(self->fake, LEN, 0);
	struct memreg_fake_control state;
	size_t i;

	ASSERT_LE(0, dmabuf);
	for (callback = 1; callback <= last; callback <<= 1) {
		for (i = 0; i < ARRAY_LEN(errors); i++) {
			ASSERT_EQ(0, fake_fail(self->fake, dmabuf, callback,
					       -errors[i].err));
			/* It is then used as long as it does not move. */
			if (callback == MEMREG_FAKE_PIN &&
			    errors[i].err == EOPNOTSUPP) {
				EXPECT_EQ(0, try_register(self, dmabuf,
							  ACCESS));
				continue;
			}
			EXPECT_EQ(-errors[i].expected,
				  try_register(self, dmabuf, ACCESS));
			EXPECT_EQ(errors[i].reason, raw_reason());
		}
	}
	ASSERT_EQ(0, fake_fail(self->fake, dmabuf, 0, 0));
	EXPECT_EQ(0, try_register(self, dmabuf, ACCESS));
	ASSERT_EQ(0, fake_control(self->fake, dmabuf, MEMREG_FAKE_LOOK,
				  &state));
	EXPECT_EQ(0, state.out_attached);
	EXPECT_EQ(0, state.out_pinned);
	EXPECT_EQ(0, close(dmabuf));
}

TEST_F(refused, I8_memory_that_the_device_can_not_have)
{
	EXPECT_FAIL(EACCES, READ_ONLY,
		    try_flags(self, MEMREG_FAKE_READ_ONLY, LOCAL_WRITE));
	EXPECT_EQ(0, try_flags(self, MEMREG_FAKE_READ_ONLY, REMOTE_READ));
	EXPECT_FAIL(EINVAL, NOT_PMEM,
		    try_flags(self, 0, IB_MEMREG_ACCESS_FLUSH_PERSISTENT));
	EXPECT_EQ(0, try_flags(self, MEMREG_FAKE_NOISY, ACCESS));
	if (self->dma) {
		EXPECT_FAIL(EOPNOTSUPP, EXPORTER,
			    try_flags(self, MEMREG_FAKE_SHORT, ACCESS));
		EXPECT_FAIL(EOPNOTSUPP, EXPORTER,
			    try_flags(self, MEMREG_FAKE_ODD, ACCESS));
		EXPECT_EQ(0, try_flags(self, MEMREG_FAKE_NO_VMAP, ACCESS));
		EXPECT_EQ(0, try_flags(self, MEMREG_FAKE_STATIC, ACCESS));
		return;
	}
	EXPECT_FAIL(EOPNOTSUPP, NO_CPU,
		    try_flags(self, MEMREG_FAKE_NO_VMAP, ACCESS));
	EXPECT_FAIL(EOPNOTSUPP, NO_CPU,
		    try_flags(self, MEMREG_FAKE_STATIC | MEMREG_FAKE_NO_VMAP,
			      ACCESS));
	EXPECT_FAIL(EOPNOTSUPP, NO_CPU,
		    try_flags(self, MEMREG_FAKE_IOMEM, ACCESS));
}

/* Local work on such memory uses keys, which a pool's gaps have none of. */
TEST_F(refused, I6_pools_are_for_memory_objects)
{
	RAW(pool_create, cmd, .flags = IB_MEMREG_MR_FD,
	    .domain_id = self->domain, .access = ACCESS, .count = 4,
	    .buffer_size = 100, .stride = 256);

	cmd.fd = fake_export(self->fake, LEN, 0);
	ASSERT_LE(0, cmd.fd);
	EXPECT_FAIL(EOPNOTSUPP, FOREIGN,
		    raw_call(self->fd, IB_MEMREG_IOC_POOL_CREATE, &cmd));
	EXPECT_EQ(0, try_register(self, cmd.fd, ACCESS));
	EXPECT_EQ(0, close(cmd.fd));
}

TEST_F(refused, I8_descriptors_that_are_none)
{
	int dmabuf = fake_export(self->fake, LEN, 0);

	ASSERT_LE(0, dmabuf);
	EXPECT_FAIL(EOPNOTSUPP, FOREIGN, raw_memory_dup(self->fd, dmabuf));
	EXPECT_EQ(0, close(dmabuf));
	EXPECT_FAIL(EBADF, FD, try_register(self, dmabuf, ACCESS));
	EXPECT_FAIL(EBADF, NOT_DMABUF,
		    try_register(self, self->fake, ACCESS));
	EXPECT_FAIL(EBADF, FD, try_register(self, -1, ACCESS));
}

/* A registration that waits for the exporter, in a child */
static pid_t wait_for_exporter(FIXTURE_DATA(refused) *self, int dmabuf)
{
	pid_t child = fork();

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(try_register(self, dmabuf, ACCESS) ? errno : 0);
	}
	return child;
}

/*
 * Wait until the registration has pinned the descriptor, behind which it waits
 * for the exporter.
 */
static int until_pinned(FIXTURE_DATA(refused) *self, int dmabuf)
{
	int64_t end = now_ms() + LIMIT_MS;
	struct memreg_fake_control state = {};
	int ret;

	do {
		ret = fake_control(self->fake, dmabuf, MEMREG_FAKE_LOOK,
				   &state);
	} while (!ret && !state.out_pinned && now_ms() < end);
	return ret ?: state.out_pinned ? 0 : -ETIMEDOUT;
}

TEST_F(refused, I7_a_wait_for_the_exporter_ends)
{
	int dmabuf = fake_export(self->fake, LEN, 0);
	struct memreg_fake_control state;
	pid_t child;
	int status;

	ASSERT_LE(0, dmabuf);
	/* By the exporter. */
	ASSERT_EQ(0, fake_control(self->fake, dmabuf, MEMREG_FAKE_BUSY, NULL));
	child = wait_for_exporter(self, dmabuf);
	ASSERT_LT(0, child);
	ASSERT_EQ(0, until_pinned(self, dmabuf));
	ASSERT_EQ(0, fake_control(self->fake, dmabuf, MEMREG_FAKE_IDLE, NULL));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	/* By the end of the process. */
	ASSERT_EQ(0, fake_control(self->fake, dmabuf, MEMREG_FAKE_BUSY, NULL));
	child = wait_for_exporter(self, dmabuf);
	ASSERT_LT(0, child);
	ASSERT_EQ(0, until_pinned(self, dmabuf));
	EXPECT_EQ(0, kill(child, SIGKILL));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	ASSERT_EQ(0, fake_control(self->fake, dmabuf, MEMREG_FAKE_LOOK,
				  &state));
	EXPECT_EQ(0, state.out_attached);
	EXPECT_EQ(0, state.out_pinned);
	/* By itself. */
	EXPECT_FAIL(EAGAIN, EXPORTER, try_register(self, dmabuf, ACCESS));
	ASSERT_EQ(0, fake_control(self->fake, dmabuf, MEMREG_FAKE_IDLE, NULL));
	EXPECT_EQ(0, try_register(self, dmabuf, ACCESS));
	EXPECT_EQ(0, close(dmabuf));
}

/*
 * Importers of memory objects
 */

FIXTURE(importer) {
	int fd;
	int fake;
	int memory;
	int twin;
	size_t length;
	uint8_t *at;
};

FIXTURE_VARIANT(importer) {
	size_t length;
	bool dynamic;
};

FIXTURE_VARIANT_ADD(importer, plain) {
	.length = LEN,
};

FIXTURE_VARIANT_ADD(importer, dynamic) {
	.length = LEN,
	.dynamic = true,
};

FIXTURE_VARIANT_ADD(importer, of_huge_blocks) {
	.length = 2 * HUGE,
	.dynamic = true,
};

FIXTURE_SETUP(importer)
{
	self->fake = fake_open();
	if (self->fake == -ENOENT)
		SKIP(return, "no importer can be had here");
	ASSERT_LE(0, self->fake);
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	self->length = variant->length;
	self->memory = raw_memory(self->fd, self->length, 0);
	ASSERT_LE(0, self->memory);
	self->twin = raw_memory_dup(self->fd, self->memory);
	ASSERT_LE(0, self->twin);
	self->at = mem_map(self->memory, self->length, PROT_RW);
	ASSERT_NE(NULL, self->at);
}

FIXTURE_TEARDOWN(importer)
{
	munmap(self->at, self->length);
	close(self->twin);
	close(self->memory);
	close(self->fd);
	close(self->fake);
}

static bool counts_from(const uint8_t *at, size_t length, unsigned int seed)
{
	size_t i;

	for (i = 0; i < length; i++)
		if (at[i] != (uint8_t)(seed + i))
			return false;
	return true;
}

TEST_F(importer, device_kernel_and_user_see_the_same)
{
	ASSERT_EQ(0, fake_import(self->fake, self->memory, variant->dynamic,
				 true));
	EXPECT_EQ(-EBUSY, fake_import(self->fake, self->memory, false, true));
	ASSERT_EQ(0, fake_write(self->fake, false, 3));
	EXPECT_EQ(0, fake_read(self->fake, true, 3));
	EXPECT_TRUE(counts_from(self->at, self->length, 3));
	ASSERT_EQ(0, fake_write(self->fake, true, 4));
	EXPECT_EQ(0, fake_read(self->fake, false, 4));
	EXPECT_TRUE(counts_from(self->at, self->length, 4));
	memset(self->at, 0, self->length);
	EXPECT_LT(0, fake_read(self->fake, true, 4));
}

TEST_F(importer, the_read_only_twin_is_not_mapped_for_writing)
{
	EXPECT_EQ(-EACCES, fake_import(self->fake, self->twin,
				       variant->dynamic, true));
	ASSERT_EQ(0, fake_import(self->fake, self->twin, variant->dynamic,
				 false));
	ASSERT_EQ(0, fake_read(self->fake, true, 0) > 0 ? 0 : -1);
}

/* Take memory for the CPU, and give it back. */
static int cpu_access(int dmabuf, __u64 direction)
{
	struct dma_buf_sync begin = {
		.flags = DMA_BUF_SYNC_START | direction,
	};
	struct dma_buf_sync end = {
		.flags = DMA_BUF_SYNC_END | direction,
	};

	return ioctl(dmabuf, DMA_BUF_IOCTL_SYNC, &begin) ||
	       ioctl(dmabuf, DMA_BUF_IOCTL_SYNC, &end) ? -errno : 0;
}

/*
 * A bounce buffer of a device that only reads is not copied back over memory
 * that was written meanwhile, whatever a holder of the twin asks for.
 */
TEST_F(importer, what_a_device_reads_is_not_copied_back)
{
	if (!tracefs_there())
		SKIP(return, "this kernel has no tracefs");
	/* Remove the instance of a test that was killed. */
	rmdir(INSTANCE);
	ASSERT_EQ(0, mkdir(INSTANCE, 0700));
	EXPECT_EQ(0, fake_import(self->fake, self->twin, variant->dynamic,
				 false));
	EXPECT_EQ(0, file_write(INSTANCE "/events/dma/enable", "1"));
	EXPECT_EQ(0, cpu_access(self->twin, DMA_BUF_SYNC_READ));
	EXPECT_EQ(0, cpu_access(self->twin, DMA_BUF_SYNC_WRITE));
	EXPECT_EQ(0, cpu_access(self->memory, DMA_BUF_SYNC_RW));
	EXPECT_EQ(0, file_write(INSTANCE "/events/dma/enable", "0"));
	EXPECT_EQ(0, shell("[ $(grep -c 'dma_sync_sg.*memreg.*dir=TO_DEVICE' "
			   INSTANCE "/trace) = 6 ]"));
	EXPECT_EQ(0, shell("[ $(grep -c 'dma_sync_sg.*memreg.*dir=' "
			   INSTANCE "/trace) = 6 ]"));
	EXPECT_EQ(0, rmdir(INSTANCE));
}

/*
 * The charge against the user's limit lasts as long as the importer keeps the
 * memory.
 */
TEST_F(importer, I7_it_keeps_the_memory_until_it_lets_go)
{
	int memory = raw_memory(self->fd, self->length, 0);

	ASSERT_LE(0, memory);
	ASSERT_EQ(0, fake_import(self->fake, memory, variant->dynamic, true));
	EXPECT_EQ(0, close(memory));
	ASSERT_EQ(0, fake_write(self->fake, false, 9));
	EXPECT_EQ(0, fake_read(self->fake, true, 9));
}

/*
 * Users that keep memory
 */

/*
 * Number of lines of `memreg list --memory` with both the inode and @what, or
 * -1
 */
static int holders_shown(__u64 inode, const char *what)
{
	char line[512], number[32];
	FILE *f = popen("memreg list --memory", "re");
	int count = 0;

	if (!f)
		return -1;
	snprintf(number, sizeof(number), "%llu ", (unsigned long long)inode);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, number, strlen(number)) &&
		    strstr(line, what))
			count++;
	return pclose(f) ? -1 : count;
}

TEST(list_shows_who_keeps_memory)
{
	struct ib_memreg_mr_register mr;
	int fake = fake_open(), fd = raw_open_bound();
	int memory = raw_memory(fd, LEN, 0);
	struct stat status;
	char text[64];
	__u32 domain;
	uint8_t *at;

	ASSERT_LE(0, memory);
	ASSERT_EQ(0, raw_domain(fd, &domain));
	ASSERT_EQ(0, fstat(memory, &status));
	EXPECT_EQ(1, holders_shown(status.st_ino, ""));
	snprintf(text, sizeof(text), " descriptor %d", memory);
	EXPECT_EQ(1, holders_shown(status.st_ino, text));
	at = mem_map(memory, LEN, PROT_RW);
	ASSERT_NE(NULL, at);
	ASSERT_EQ(0, raw_register_fd(fd, domain, memory, 0, LEN, ACCESS, &mr));
	EXPECT_EQ(3, holders_shown(status.st_ino, "60.0 KiB"));
	EXPECT_EQ(0, close(memory));
	EXPECT_EQ(2, holders_shown(status.st_ino, ""));
	snprintf(text, sizeof(text), "0x%lx to ", (unsigned long)at);
	EXPECT_EQ(1, holders_shown(status.st_ino, text));
	EXPECT_EQ(0, munmap(at, LEN));
	snprintf(text, sizeof(text), " mr %u of file", mr.out_mr_id);
	EXPECT_EQ(1, holders_shown(status.st_ino, text));
	EXPECT_EQ(1, holders_shown(status.st_ino, ""));
	EXPECT_EQ(0, raw_destroy(fd, mr.out_mr_id));
	EXPECT_EQ(0, holders_shown(status.st_ino, ""));

	/* A driver alone */
	memory = raw_memory(fd, LEN, 0);
	ASSERT_LE(0, memory);
	ASSERT_EQ(0, fstat(memory, &status));
	ASSERT_EQ(0, fake_import(fake, memory, false, true));
	EXPECT_EQ(0, close(memory));
	EXPECT_EQ(!access("/sys/kernel/debug/dma_buf/bufinfo", R_OK),
		  holders_shown(status.st_ino, " kernel "));
	close(fake);
	close(fd);
}

TEST(list_shows_a_read_only_descriptor_as_the_same_memory)
{
	struct ib_memreg_mr_register mr;
	struct stat status, of_reader;
	int fd = raw_open_bound(), memory, reader;
	__u32 domain;

	memory = raw_memory(fd, LEN, 0);
	ASSERT_LE(0, memory);
	ASSERT_EQ(0, raw_domain(fd, &domain));
	reader = raw_memory_dup(fd, memory);
	ASSERT_LE(0, reader);
	ASSERT_EQ(0, fstat(memory, &status));
	ASSERT_EQ(0, fstat(reader, &of_reader));
	EXPECT_EQ(status.st_ino, of_reader.st_ino);
	EXPECT_EQ(2, holders_shown(status.st_ino, " descriptor "));
	ASSERT_EQ(0, raw_register_fd(fd, domain, reader, 0, LEN, REMOTE_READ,
				     &mr));
	EXPECT_EQ(1, holders_shown(status.st_ino, " mr "));
	EXPECT_EQ(0, close(memory));
	EXPECT_EQ(2, holders_shown(status.st_ino, "60.0 KiB"));
	EXPECT_EQ(0, close(reader));
	EXPECT_EQ(1, holders_shown(status.st_ino, ""));
	close(fd);
}

/*
 * Charges of creator, sharer and importer
 */

/* A uid that no other process has, and its RLIMIT_MEMLOCK. */
#define NOBODY		61235
#define MAY_LOCK	(4UL << 20)
#define CGROUP		"/sys/fs/cgroup/memreg-dmabuf"

enum actor { CREATOR, SHARER, IMPORTER, ACTORS };

FIXTURE(charges) {
	int file;
	int memory;
	pid_t actors[ACTORS];
};

FIXTURE_SETUP(charges)
{
	if (!cgroup_make(CGROUP, "+rdma +memory"))
		SKIP(return, "there are no control groups for rdma and memory");
	self->file = raw_open_bound();
	ASSERT_LE(0, self->file);
}

FIXTURE_TEARDOWN(charges)
{
	EXPECT_EQ(0, close(self->file));
	EXPECT_EQ(0, rmdir(CGROUP));
}

static int become_nobody(void)
{
	struct rlimit limit = { MAY_LOCK, MAY_LOCK };

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgroups(0, NULL) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		return -errno;
	/* A change of the user clears PDEATHSIG, so set it again. */
	return prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/*
 * Can the user still lock exactly @length bytes, that is all or nothing of the
 * limit?
 */
static bool user_has(int file, size_t length)
{
	int status, memory;
	pid_t child = fork();

	if (!child) {
		if (become_nobody())
			_exit(2);
		memory = raw_memory(file, length, 0);
		_exit(memory == -ENOMEM ? 1 : memory < 0 ? 2 : 0);
	}
	return waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	       !WEXITSTATUS(status);
}

static int pass_fd(int to, int fd)
{
	char byte = 'x', control[CMSG_SPACE(sizeof(fd))] = "";
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	return sendmsg(to, &msg, 0) == 1 ? 0 : -errno;
}

static int take_fd(int from)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	int fd;

	if (recvmsg(from, &msg, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&msg))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* Use memory in each way that this kind of actor can. */
static int act(enum actor actor, int *memory)
{
	struct ib_memreg_mr_register mr;
	int fd, fake = actor == IMPORTER ? fake_open() : -1;
	__u32 domain;
	uint8_t *at;

	if (file_write(CGROUP "/cgroup.procs", "0") || become_nobody())
		return -1;
	if (actor == IMPORTER)
		return fake_import(fake, *memory, true, true);
	fd = raw_open_bound();
	if (actor == CREATOR)
		*memory = raw_memory(fd, MAY_LOCK, 0);
	at = mem_map(*memory, MAY_LOCK, PROT_RW);
	if (!at)
		return -1;
	memset(at, 1, MAY_LOCK);
	return raw_domain(fd, &domain) ?:
	       raw_register_fd(fd, domain, *memory, 0, MAY_LOCK, ACCESS,
			       &mr) ?:
	       raw_memory_dup(fd, *memory) < 0;
}

/*
 * Start an actor, which uses the memory until it is killed. A creator passes
 * the descriptor back.
 */
static int actor_start(FIXTURE_DATA(charges) *self, enum actor actor)
{
	int ends[2], memory = self->memory;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return -errno;
	self->actors[actor] = fork();
	if (!self->actors[actor]) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (act(actor, &memory) || pass_fd(ends[1], memory))
			_exit(1);
		pause();
	}
	close(ends[1]);
	memory = take_fd(ends[0]);
	close(ends[0]);
	if (memory < 0)
		return -ECHILD;
	if (actor == CREATOR)
		self->memory = memory;
	else
		close(memory);
	return 0;
}

static void actor_kill(struct __test_metadata *_metadata,
		       FIXTURE_DATA(charges) *self, enum actor actor)
{
	EXPECT_EQ(0, kill(self->actors[actor], SIGKILL));
	EXPECT_EQ(self->actors[actor],
		  waitpid(self->actors[actor], NULL, 0));
}

/* Handles and objects that the group has */
static int rdma_charges(void)
{
	int handles = 0, objects = 0, sum = 0;
	FILE *f = fopen(CGROUP "/rdma.current", "re");
	char line[256];

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s hca_handle=%d hca_object=%d", &handles,
			   &objects) == 2)
			sum += handles + objects;
	fclose(f);
	return sum;
}

/* Bytes of kernel memory that the group is charged for, after reclaim */
static long kernel_charges(void)
{
	FILE *f;
	char line[256];
	long bytes = -1;

	file_write(CGROUP "/memory.reclaim", "1G");
	f = fopen(CGROUP "/memory.stat", "re");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		sscanf(line, "kernel %ld", &bytes);
	fclose(f);
	return bytes;
}

/*
 * Each CPU keeps up to a page charged from which small objects are taken, and
 * a process that ends in the background may leave it there: see struct
 * memcg_stock_pcp and struct obj_stock of the kernel.
 */
static long charges_kept(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN) * (long)PAGE;
}

/*
 * Wait until the charges are no more than @bytes, as processes end in the
 * background. Returns them.
 */
static long kernel_charges_until(long bytes)
{
	int64_t end = now_ms() + LIMIT_MS;
	long now;

	do {
		now = kernel_charges();
	} while (now > bytes && now_ms() < end);
	return now;
}

TEST_F(charges, I7_SIGKILL_of_creator_sharer_and_importer_in_every_order)
{
	static const enum actor orders[][ACTORS] = {
		{ CREATOR, SHARER, IMPORTER }, { CREATOR, IMPORTER, SHARER },
		{ SHARER, CREATOR, IMPORTER }, { SHARER, IMPORTER, CREATOR },
		{ IMPORTER, CREATOR, SHARER }, { IMPORTER, SHARER, CREATOR },
	};
	long before = 0;
	size_t i;
	int n;

	n = fake_open();
	ASSERT_LE(0, n);
	close(n);
	for (i = 0; i < ARRAY_LEN(orders); i++) {
		EXPECT_TRUE(user_has(self->file, MAY_LOCK));
		ASSERT_EQ(0, actor_start(self, CREATOR));
		ASSERT_EQ(0, actor_start(self, SHARER));
		ASSERT_EQ(0, actor_start(self, IMPORTER));
		EXPECT_EQ(0, close(self->memory));
		EXPECT_LE((long)MAY_LOCK, kernel_charges());
		EXPECT_LT(0, rdma_charges());
		for (n = 0; n < ACTORS; n++) {
			EXPECT_FALSE(user_has(self->file, PAGE));
			actor_kill(_metadata, self, orders[i][n]);
		}
		EXPECT_TRUE(user_has(self->file, MAY_LOCK));
		EXPECT_EQ(0, rdma_charges());
		/*
		 * Pages that the first round leaves in caches stay in them. If
		 * each later round leaked a page, that would exceed the charges
		 * that CPUs keep.
		 */
		if (!i)
			before = kernel_charges() + charges_kept();
		EXPECT_GE(before, kernel_charges_until(before));
	}
}

TEST_HARNESS_MAIN
