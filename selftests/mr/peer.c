// SPDX-License-Identifier: GPL-2.0-only
/*
 * Accesses of a stock verbs peer that keys allow, and accesses that they
 * refuse.
 *
 * After each access that must be refused the peer has a remote access error,
 * all of the owner's memory is as it was, and the connection is over, for which
 * the owner gets one event. So that bounds are seen to hold to the byte, the MR
 * begins and ends inside of pages that belong to the owner, as windows do.
 *
 * time limit: 240
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "net.h"
#include "owner.h"
#include "peer.h"
#include "raw.h"
#include "test.h"

#define ARENA_LEN	(24 * PAGE)
#define MR_AT		1000UL	/* of the memory; not a page's start */
#define MR_LEN		(ARENA_LEN - 2 * MR_AT)
#define WINDOW_AT	3336UL	/* of the MR; aligned for atomics, no more */
#define WINDOW_LEN	20001UL

FIXTURE(peer)
{
	struct owner o;
	struct arena a;
	struct memreg_mr mr;
	uint32_t window;
	struct memreg_grant g;	/* what the peer uses now */
	size_t at;		/* where that begins in the memory */
	struct peer p;
	uint32_t endpoint;
};

static struct ib_memreg_bind bind_of(const FIXTURE_DATA(peer) *self,
				     uint32_t access)
{
	return (struct ib_memreg_bind) {
		.window_id = self->window,
		.mr_id = self->mr.id,
		.offset = WINDOW_AT,
		.length = WINDOW_LEN,
		.access = access,
	};
}

/* Let the peer use a grant, which begins at @at in the memory. */
static void point(struct __test_metadata *_metadata, FIXTURE_DATA(peer) *self,
		  const struct memreg_grant *g, size_t at)
{
	self->g = *g;
	self->at = at;
	peer_ask(_metadata, &self->p, "iova 0x%llx",
		 (unsigned long long)g->iova);
	peer_ask(_metadata, &self->p, "rkey 0x%x", g->rkey);
}

/* Bind the window as described, and let the peer use it */
static void grant(struct __test_metadata *_metadata, FIXTURE_DATA(peer) *self,
		  struct ib_memreg_bind *bind)
{
	struct memreg_grant g;

	owner_bind(_metadata, &self->o, self->o.domain, bind, &g);
	point(_metadata, self, &g, MR_AT + bind->offset);
}

static void revoke_it(struct __test_metadata *_metadata,
		      FIXTURE_DATA(peer) *self)
{
	ASSERT_EQ(0, memreg_window_revoke(self->o.m, self->o.domain,
					  self->window))
		TH_LOG("%s", memreg_reason());
}

static void regrant(struct __test_metadata *_metadata, FIXTURE_DATA(peer) *self,
		    uint32_t access)
{
	struct ib_memreg_bind bind = bind_of(self, access);

	revoke_it(_metadata, self);
	grant(_metadata, self, &bind);
}

static void connect_peer(struct __test_metadata *_metadata,
			 FIXTURE_DATA(peer) *self)
{
	self->endpoint = owner_admit(_metadata, &self->o, &self->p,
				     self->o.domain, NULL);
}

/* An access error has ended the connection: the owner gets one event */
static void reconnect(struct __test_metadata *_metadata,
		      FIXTURE_DATA(peer) *self)
{
	peer_ask(_metadata, &self->p, "disconnect");
	ASSERT_EQ(self->endpoint,
		  owner_await(_metadata, &self->o,
			      IB_MEMREG_EVENT_DISCONNECTED, NULL));
	ASSERT_EQ(0, memreg_destroy(self->o.m, self->endpoint));
	owner_no_event(_metadata, &self->o);
	peer_tell(_metadata, &self->p, "conn");
	connect_peer(_metadata, self);
}

/* The peer reads what it wrote, and has written nothing else */
static void good(struct __test_metadata *_metadata, FIXTURE_DATA(peer) *self,
		 uint64_t offset, uint64_t length)
{
	uint8_t *copy = self->a.copy + self->at + offset;
	static uint8_t seed;
	uint64_t i;

	seed += 29;
	peer_ask(_metadata, &self->p, "fill %lu %lu %u", offset, length, seed);
	ASSERT_PEER("success", &self->p);
	for (i = 0; i < length; i++)
		copy[i] = (uint8_t)(seed + i);
	arena_check(_metadata, &self->a);
	peer_ask(_metadata, &self->p, "read %lu %lu", offset, length);
	ASSERT_PEER("success", &self->p);
	ASSERT_EQ(crc32_of(copy, length), peer_number(&self->p, "crc32"));
}

#define REFUSED(self, ...)						\
	do {								\
		peer_ask(_metadata, &(self)->p, __VA_ARGS__);		\
		ASSERT_PEER("remote-access-error", &(self)->p);		\
		arena_check(_metadata, &(self)->a);			\
		reconnect(_metadata, self);				\
	} while (0)

/* A key that serves nothing */
static void dead(struct __test_metadata *_metadata, FIXTURE_DATA(peer) *self,
		 uint32_t rkey)
{
	peer_ask(_metadata, &self->p, "rkey 0x%x", rkey);
	REFUSED(self, "read 0 16");
	REFUSED(self, "write 0 16 0xee");
}

FIXTURE_SETUP(peer)
{
	struct ib_memreg_bind bind;

	owner_open(_metadata, &self->o);
	arena_make(_metadata, &self->a, ARENA_LEN);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain,
					self->a.mem + MR_AT, MR_LEN,
					FOR_WINDOWS, 0, &self->mr))
		TH_LOG("%s", memreg_reason());
	ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
					 IB_MEMREG_WINDOW_TYPE1, MR_LEN,
					 &self->window, 1));
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	connect_peer(_metadata, self);
	bind = bind_of(self, REMOTE_RW);
	grant(_metadata, self, &bind);
}

FIXTURE_TEARDOWN(peer)
{
	peer_stop(&self->p, 0);
	owner_close(&self->o);
	arena_free(&self->a);
}

/*
 * Good uses
 */

TEST_F_TIMEOUT(peer, window_serves_any_size_at_any_offset, LIMIT_S)
{
	static const uint64_t sizes[] = {
		1, 2, 7, 64, 255, 1023, 1024, 1025, 4095, 4096, 4097, 9999,
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		good(_metadata, self, 0, sizes[i]);
		good(_metadata, self, 1 + 77 * i, sizes[i]);
		good(_metadata, self, WINDOW_LEN - sizes[i], sizes[i]);
	}
	good(_metadata, self, 0, WINDOW_LEN);
}

struct range {
	uint64_t offset, length;
};

/* Windows on parts of an MR serve those to the byte, and not one more */
static void serve_ranges(struct __test_metadata *_metadata,
			 FIXTURE_DATA(peer) *self, uint32_t mr,
			 const struct range *ranges, size_t count)
{
	struct ib_memreg_bind bind;
	size_t i;

	for (i = 0; i < count; i++) {
		bind = bind_of(self, REMOTE_RW);
		bind.mr_id = mr;
		bind.offset = ranges[i].offset;
		bind.length = ranges[i].length;
		revoke_it(_metadata, self);
		grant(_metadata, self, &bind);
		good(_metadata, self, 0, bind.length);
		REFUSED(self, "write -1 1 0xee");
		REFUSED(self, "write %llu 1 0xee", bind.length);
	}
}

/* I6: a window ends at its last byte, in the middle of a page and of the MR. */
TEST_F_TIMEOUT(peer, I6_window_begins_and_ends_at_any_byte, LIMIT_S)
{
	static const struct range ranges[] = {
		{ 0, 1 }, { 1, 3 }, { 3095, 1 }, { 3095, 2 }, { 3096, 4096 },
		{ 3097, 4094 }, { 500, 12289 }, { MR_LEN - 1, 1 },
		{ 0, MR_LEN },
	};

	serve_ranges(_metadata, self, self->mr.id, ranges, ARRAY_LEN(ranges));
}

TEST_F_TIMEOUT(peer, window_serves_atomics, LIMIT_S)
{
	uint64_t value = 0x1122334455667788;

	regrant(_metadata, self, IB_MEMREG_ACCESS_REMOTE_ATOMIC);
	memcpy(self->a.mem + self->at + 8, &value, 8);
	peer_ask(_metadata, &self->p, "fetchadd 8 0x10");
	ASSERT_PEER("success", &self->p);
	ASSERT_EQ(value, peer_number(&self->p, "old"));
	value += 0x10;
	peer_ask(_metadata, &self->p, "cmpswap 8 1 2");
	ASSERT_EQ(value, peer_number(&self->p, "old"));
	peer_ask(_metadata, &self->p, "cmpswap 8 0x%lx 0x55", value);
	ASSERT_EQ(value, peer_number(&self->p, "old"));
	value = 0x55;
	memcpy(self->a.copy + self->at + 8, &value, 8);
	arena_check(_metadata, &self->a);
}

TEST_F_TIMEOUT(peer, zero_based_window_begins_at_0, LIMIT_S)
{
	struct ib_memreg_bind bind =
		bind_of(self, REMOTE_RW | IB_MEMREG_ACCESS_ZERO_BASED);

	/* A window with an address of 0 has to begin at a page. */
	bind.offset = PAGE - MR_AT;
	revoke_it(_metadata, self);
	grant(_metadata, self, &bind);
	ASSERT_EQ(0, self->g.iova);
	good(_metadata, self, 0, WINDOW_LEN);
	good(_metadata, self, 4099, 1);
	REFUSED(self, "read -1 1");
	REFUSED(self, "read -1 2");
	REFUSED(self, "write %lu 1 0xee", WINDOW_LEN);
}

/* Register a part of the memory for the peer's use, and point it there */
static void serve_mr(struct __test_metadata *_metadata,
		     FIXTURE_DATA(peer) *self, struct memreg_mr *mr, size_t at,
		     uint32_t access, uint32_t flags)
{
	struct memreg_grant g;

	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain,
					self->a.mem + at, 3 * PAGE + 100,
					access, flags, mr))
		TH_LOG("%s", memreg_reason());
	ASSERT_EQ(1, mr->segments);
	g = (struct memreg_grant) { .iova = mr->iova, .rkey = mr->rkey };
	point(_metadata, self, &g, at);
}

TEST_F_TIMEOUT(peer, mr_serves_at_its_own_address, LIMIT_S)
{
	struct memreg_mr mr;

	serve_mr(_metadata, self, &mr, 333,
		 REMOTE_RW | IB_MEMREG_ACCESS_LOCAL_WRITE, 0);
	ASSERT_EQ((uintptr_t)self->a.mem + 333, mr.iova);
	good(_metadata, self, 0, mr.length);
	REFUSED(self, "write -1 1 0xee");
	REFUSED(self, "write %lu 1 0xee", mr.length);
	REFUSED(self, "fetchadd 3 1");
}

TEST_F_TIMEOUT(peer, mr_serves_from_0, LIMIT_S)
{
	struct memreg_mr mr;

	serve_mr(_metadata, self, &mr, 4 * PAGE,
		 REMOTE_RW | IB_MEMREG_ACCESS_LOCAL_WRITE |
		 IB_MEMREG_ACCESS_ZERO_BASED, 0);
	ASSERT_EQ(0, mr.iova);
	good(_metadata, self, 0, mr.length);
	REFUSED(self, "write -1 1 0xee");
	REFUSED(self, "write %lu 1 0xee", mr.length);
}

TEST_F_TIMEOUT(peer, mr_serves_at_the_address_asked_for, LIMIT_S)
{
	struct memreg_mr mr = { .iova = 0xabcdef000000 + 333 };

	serve_mr(_metadata, self, &mr, 333,
		 REMOTE_RW | IB_MEMREG_ACCESS_LOCAL_WRITE, IB_MEMREG_MR_IOVA);
	ASSERT_EQ(0xabcdef000000 + 333, mr.iova);
	good(_metadata, self, 0, mr.length);
	REFUSED(self, "write -1 1 0xee");
	REFUSED(self, "write %lu 1 0xee", mr.length);
}

TEST_F_TIMEOUT(peer, read_only_memory_serves_reads, LIMIT_S)
{
	struct ib_memreg_bind bind = bind_of(self, REMOTE_RW);
	struct memreg_mr mr;

	ASSERT_EQ(0, mprotect(self->a.mem, ARENA_LEN, PROT_READ));
	serve_mr(_metadata, self, &mr, 333, IB_MEMREG_ACCESS_REMOTE_READ |
		 IB_MEMREG_ACCESS_MW_BIND, 0);
	peer_ask(_metadata, &self->p, "read 0 %lu", mr.length);
	ASSERT_EQ(crc32_of(self->a.copy + 333, mr.length),
		  peer_number(&self->p, "crc32"));
	REFUSED(self, "write 0 1 0xee");
	revoke_it(_metadata, self);
	bind.mr_id = mr.id;
	bind.length = 100;
	ASSERT_EQ(-EACCES, memreg_window_bind(self->o.m, self->o.domain,
					      &bind));
}

/* Use @mem in place of the fixture's memory. */
static void swap_arena(struct __test_metadata *_metadata,
		       FIXTURE_DATA(peer) *self, void *mem, size_t len)
{
	munmap(self->a.mem, self->a.len);
	free(self->a.copy);
	ASSERT_NE(MAP_FAILED, mem);
	self->a.mem = mem;
	self->a.len = len;
	self->a.copy = malloc(len);
	ASSERT_NE(NULL, self->a.copy);
	arena_fill(&self->a, 3);
}

static void serve_segments(struct __test_metadata *_metadata,
			   FIXTURE_DATA(peer) *self, struct memreg_mr *mr,
			   struct ib_memreg_segment *seg, unsigned int count)
{
	size_t at = MR_AT;
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct memreg_grant g = {
			.iova = seg[i].iova,
			.rkey = seg[i].rkey,
		};

		ASSERT_EQ(mr->iova + at - MR_AT, g.iova);
		point(_metadata, self, &g, at);
		good(_metadata, self, 0, 4097);
		good(_metadata, self, seg[i].length - 5000, 5000);
		REFUSED(self, "write -1 1 0xee");
		REFUSED(self, "write %llu 1 0xee", seg[i].length);
		at += seg[i].length;
	}
	ASSERT_EQ(mr->length, at - MR_AT);
}

/* Base pages that are faulted in out of order, and so are seldom contiguous */
static void *scattered_memory(size_t len)
{
	uint8_t *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t pages = len / PAGE, i;

	if (mem == MAP_FAILED)
		return mem;
	madvise(mem, len, MADV_NOHUGEPAGE);
	/*
	 * 257 is prime and does not divide the number of pages, so that each is
	 * touched once.
	 */
	for (i = 0; i < pages; i++)
		mem[i * 257 % pages * PAGE] = 1;
	return mem;
}

TEST_F_TIMEOUT(peer, I6_each_segment_of_an_mr_has_its_own_key, LIMIT_S)
{
	struct ib_memreg_segment seg[16];
	unsigned int count = ARRAY_LEN(seg);
	struct memreg_mr mr;
	uint64_t span;
	size_t len;

	ASSERT_EQ(0, memreg_query_cap(self->o.m, IB_MEMREG_CAP_KEY_SPAN,
				      &span));
	len = 2 * span + 3 * PAGE;
	swap_arena(_metadata, self, scattered_memory(len), len);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain,
					self->a.mem + MR_AT, len - 2 * MR_AT,
					REMOTE_RW |
					IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &mr))
		TH_LOG("%s", memreg_reason());
	ASSERT_EQ(0, memreg_mr_query(self->o.m, mr.id, NULL, seg, &count));
	ASSERT_EQ(mr.segments, count);
	if (raw_runs(memreg_fd(self->o.m), self->o.domain, mr.id, mr.length) ==
	    1)
		SKIP(return, "the device has the memory in one piece");
	ASSERT_LT(1, count);
	serve_segments(_metadata, self, &mr, seg, count);
}

/* Huge pages, unless there are none now */
static void *huge_memory(size_t len)
{
	size_t huge = 2UL << 20;
	uint8_t *mem = mmap(NULL, len + huge, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return mem;
	mem = (uint8_t *)(((uintptr_t)mem + huge - 1) & ~(huge - 1));
	madvise(mem, len, MADV_HUGEPAGE);
	return mem;
}

TEST_F_TIMEOUT(peer, I6_huge_pages_are_served_to_the_byte, LIMIT_S)
{
	struct ib_memreg_segment seg;
	unsigned int count = 1;
	size_t len = 4UL << 20;
	struct memreg_mr mr;

	swap_arena(_metadata, self, huge_memory(len), len);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain,
					self->a.mem + MR_AT, len - 2 * MR_AT,
					REMOTE_RW |
					IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &mr))
		TH_LOG("%s", memreg_reason());
	if (mr.segments != 1)
		SKIP(return, "the memory is in no huge pages");
	ASSERT_EQ(0, memreg_mr_query(self->o.m, mr.id, NULL, &seg, &count));
	serve_segments(_metadata, self, &mr, &seg, count);
	/* Across the border between two of them */
	good(_metadata, self, (2UL << 20) - MR_AT - 5, 4107);
}

/*
 * The device's page size for a key depends on the length: each length is
 * granted twice.
 */
TEST_F_TIMEOUT(peer, I6_windows_on_huge_pages_are_served_to_the_byte, LIMIT_S)
{
	static const struct range ranges[] = {
		{ 65536 - MR_AT, 65536 }, { 0, 65536 },
		{ 131072 - MR_AT, 65536 }, { 8192 - MR_AT, 8192 },
		{ 7, 8193 }, { 65535 - MR_AT, 4098 },
		{ (2UL << 20) - MR_AT - 5, 65536 },
	};
	size_t len = 4UL << 20;
	struct memreg_mr mr;
	unsigned int i;

	swap_arena(_metadata, self, huge_memory(len), len);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain,
					self->a.mem + MR_AT, len - 2 * MR_AT,
					FOR_WINDOWS, 0, &mr))
		TH_LOG("%s", memreg_reason());
	for (i = 0; i < 2; i++)
		serve_ranges(_metadata, self, mr.id, ranges,
			     ARRAY_LEN(ranges));
}

/*
 * Wrong uses
 */

TEST_F_TIMEOUT(peer, read_only_window_refuses_writes_and_atomics, LIMIT_S)
{
	regrant(_metadata, self, IB_MEMREG_ACCESS_REMOTE_READ);
	peer_ask(_metadata, &self->p, "read 0 %lu", WINDOW_LEN);
	ASSERT_EQ(crc32_of(self->a.copy + self->at, WINDOW_LEN),
		  peer_number(&self->p, "crc32"));
	REFUSED(self, "write 0 1 0xee");
	REFUSED(self, "write 0 %lu 0xee", WINDOW_LEN);
	REFUSED(self, "fetchadd 0 1");
	REFUSED(self, "cmpswap 0 0 1");
}

TEST_F_TIMEOUT(peer, write_only_window_refuses_reads_and_atomics, LIMIT_S)
{
	regrant(_metadata, self, IB_MEMREG_ACCESS_REMOTE_WRITE);
	peer_ask(_metadata, &self->p, "write 0 100 0x77");
	ASSERT_PEER("success", &self->p);
	memset(self->a.copy + self->at, 0x77, 100);
	arena_check(_metadata, &self->a);
	REFUSED(self, "read 0 1");
	REFUSED(self, "fetchadd 0 1");
	REFUSED(self, "cmpswap 0 0 1");
}

TEST_F_TIMEOUT(peer, atomic_window_refuses_reads_and_writes, LIMIT_S)
{
	regrant(_metadata, self, IB_MEMREG_ACCESS_REMOTE_ATOMIC);
	REFUSED(self, "read 0 8");
	REFUSED(self, "write 0 8 0xee");
	/* Aligned, but it ends beyond the window */
	REFUSED(self, "fetchadd %lu 1", WINDOW_LEN & ~7UL);
	REFUSED(self, "fetchadd -8 1");
	regrant(_metadata, self, REMOTE_RW);
	REFUSED(self, "fetchadd 0 1");
	REFUSED(self, "cmpswap 0 0 1");
}

TEST_F_TIMEOUT(peer, I6_access_out_of_range_is_refused, LIMIT_S)
{
	static const struct {
		long offset;
		unsigned long length;
	} ranges[] = {
		{ -1, 1 }, { -1, 2 }, { -1, WINDOW_LEN }, { WINDOW_LEN, 1 },
		{ WINDOW_LEN - 1, 2 }, { 0, WINDOW_LEN + 1 },
		{ 0, 500000 }, { -(long)WINDOW_AT, 1 },
		{ -(long)(WINDOW_AT + MR_AT), ARENA_LEN },
		{ WINDOW_LEN + 40 * PAGE, 8 },
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(ranges); i++) {
		REFUSED(self, "read %ld %lu", ranges[i].offset,
			ranges[i].length);
		REFUSED(self, "write %ld %lu 0xee", ranges[i].offset,
			ranges[i].length);
	}
	/* Addresses that wrap around */
	peer_ask(_metadata, &self->p, "iova 0xfffffffffffffff0");
	REFUSED(self, "read 0 16");
	REFUSED(self, "read 0 32");
	REFUSED(self, "write 0 32 0xee");
}

TEST_F_TIMEOUT(peer, key_of_another_domain_is_refused, LIMIT_S)
{
	struct ib_memreg_bind bind = bind_of(self, REMOTE_RW);
	struct memreg_grant g, own = self->g;
	struct memreg_mr mr;
	uint32_t domain;

	/*
	 * Keys of a window and of an MR in a second domain are refused on an
	 * endpoint of the first.
	 */
	ASSERT_EQ(0, memreg_domain_create(self->o.m, 0, &domain));
	ASSERT_EQ(0, memreg_window_alloc(self->o.m, domain,
					 IB_MEMREG_WINDOW_TYPE1, MR_LEN,
					 &bind.window_id, 1));
	owner_bind(_metadata, &self->o, domain, &bind, &g);
	dead(_metadata, self, g.rkey);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, domain, self->a.mem,
					ARENA_LEN, REMOTE_RW |
					IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &mr));
	dead(_metadata, self, mr.rkey);
	point(_metadata, self, &own, MR_AT + WINDOW_AT);
	good(_metadata, self, 0, 100);

	/*
	 * On an endpoint of the second domain the window works, and the MR's
	 * own key does not.
	 */
	self->o.domain = domain;
	reconnect(_metadata, self);
	dead(_metadata, self, own.rkey);
	point(_metadata, self, &g, MR_AT + WINDOW_AT);
	good(_metadata, self, 0, 100);
}

TEST_F_TIMEOUT(peer, I3_revoked_window_refuses_peer, LIMIT_S)
{
	good(_metadata, self, 0, 100);
	revoke_it(_metadata, self);
	dead(_metadata, self, self->g.rkey);
	REFUSED(self, "fetchadd 0 1");
}

TEST_F_TIMEOUT(peer, I3_windows_revoked_in_a_batch_refuse_peer, LIMIT_S)
{
	struct ib_memreg_bind binds[IB_MEMREG_BATCH_MAX];
	uint32_t windows[IB_MEMREG_BATCH_MAX];
	struct memreg_grant own = self->g;
	unsigned int i, n = ARRAY_LEN(windows);

	ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
					 IB_MEMREG_WINDOW_TYPE1, PAGE, windows,
					 n));
	for (i = 0; i < n; i++) {
		binds[i] = bind_of(self, REMOTE_RW);
		binds[i].window_id = windows[i];
		binds[i].length = 64;
		binds[i].offset = 64 * i;
	}
	ASSERT_EQ(0, memreg_window_bind_batch(self->o.m, self->o.domain, binds,
					      n, NULL));
	for (i = 0; i < n; i += 85) {
		struct memreg_grant g = {
			.iova = binds[i].out_iova,
			.rkey = binds[i].out_rkey,
		};

		point(_metadata, self, &g, MR_AT + binds[i].offset);
		good(_metadata, self, 0, 64);
	}
	/* All but the last one */
	ASSERT_EQ(0, memreg_window_revoke_batch(self->o.m, self->o.domain,
						windows, n - 1, NULL));
	good(_metadata, self, 0, 64);
	for (i = 0; i < n - 1; i += 127) {
		peer_ask(_metadata, &self->p, "iova 0x%llx",
			 binds[i].out_iova);
		dead(_metadata, self, binds[i].out_rkey);
	}
	point(_metadata, self, &own, MR_AT + WINDOW_AT);
	good(_metadata, self, 0, 64);
}

TEST_F_TIMEOUT(peer, I3_destroyed_window_refuses_peer, LIMIT_S)
{
	good(_metadata, self, 0, 100);
	ASSERT_EQ(0, memreg_window_free(self->o.m, self->window));
	dead(_metadata, self, self->g.rkey);
}

TEST_F_TIMEOUT(peer, I1_deregistered_mr_refuses_peer, LIMIT_S)
{
	struct memreg_mr mr;

	/*
	 * An MR that windows are bound to cannot be deregistered, and the
	 * windows still work.
	 */
	ASSERT_EQ(-EBUSY, memreg_mr_deregister(self->o.m, self->mr.id));
	good(_metadata, self, 0, 100);
	serve_mr(_metadata, self, &mr, 333,
		 REMOTE_RW | IB_MEMREG_ACCESS_LOCAL_WRITE, 0);
	good(_metadata, self, 0, 100);
	ASSERT_EQ(0, memreg_mr_deregister(self->o.m, mr.id));
	dead(_metadata, self, mr.rkey);
}

TEST_F_TIMEOUT(peer, I9_key_of_an_older_bind_is_refused, LIMIT_S)
{
	uint32_t old[4];
	size_t i;

	for (i = 0; i < ARRAY_LEN(old); i++) {
		old[i] = self->g.rkey;
		regrant(_metadata, self, REMOTE_RW);
	}
	for (i = 0; i < ARRAY_LEN(old); i++) {
		ASSERT_NE(self->g.rkey, old[i]);
		dead(_metadata, self, old[i]);
	}
	peer_ask(_metadata, &self->p, "rkey 0x%x", self->g.rkey);
	good(_metadata, self, 0, WINDOW_LEN);
}

TEST_F_TIMEOUT(peer, guessed_keys_are_refused, LIMIT_S)
{
	uint32_t rkey = self->g.rkey;
	uint32_t guesses[] = {
		(rkey & ~0xffU) | ((rkey + 1) & 0xff),
		(rkey & ~0xffU) | ((rkey - 1) & 0xff),
		rkey ^ 0x80, rkey + 0x100, rkey - 0x100, rkey ^ 0x80000000,
		0, ~0U,
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(guesses); i++)
		dead(_metadata, self, guesses[i]);
	peer_ask(_metadata, &self->p, "rkey 0x%x", rkey);
	good(_metadata, self, 0, 100);
}

/*
 * Windows that end with a connection
 */

static void tie_window(struct __test_metadata *_metadata,
		       FIXTURE_DATA(peer) *self)
{
	struct ib_memreg_bind bind = bind_of(self, REMOTE_RW);

	revoke_it(_metadata, self);
	bind.endpoint_id = self->endpoint;
	grant(_metadata, self, &bind);
	good(_metadata, self, 0, 100);
}

TEST_F_TIMEOUT(peer, I3_disconnect_revokes_the_endpoints_windows, LIMIT_S)
{
	tie_window(_metadata, self);
	ASSERT_EQ(0, memreg_disconnect(self->o.m, self->endpoint));
	peer_ask(_metadata, &self->p, "wait %d", LIMIT_MS / 2);
	ASSERT_STREQ("disconnected", peer_value(&self->p, "event"));
	reconnect(_metadata, self);
	dead(_metadata, self, self->g.rkey);
}

TEST_F_TIMEOUT(peer, I3_peers_disconnect_revokes_its_windows, LIMIT_S)
{
	tie_window(_metadata, self);
	reconnect(_metadata, self);
	dead(_metadata, self, self->g.rkey);
}

TEST_F_TIMEOUT(peer, I3_access_error_revokes_the_endpoints_windows, LIMIT_S)
{
	tie_window(_metadata, self);
	REFUSED(self, "write -1 1 0xee");
	dead(_metadata, self, self->g.rkey);
}

TEST_F_TIMEOUT(peer, I3_destroying_an_endpoint_revokes_its_windows, LIMIT_S)
{
	tie_window(_metadata, self);
	ASSERT_EQ(0, memreg_destroy(self->o.m, self->endpoint));
	peer_ask(_metadata, &self->p, "wait %d", LIMIT_MS / 2);
	ASSERT_STREQ("disconnected", peer_value(&self->p, "event"));
	owner_no_event(_metadata, &self->o);
	peer_tell(_metadata, &self->p, "conn");
	connect_peer(_metadata, self);
	dead(_metadata, self, self->g.rkey);
}

/* A window that is bound without an endpoint outlives each connection. */
TEST_F_TIMEOUT(peer, window_of_no_endpoint_survives_disconnect, LIMIT_S)
{
	ASSERT_EQ(0, memreg_disconnect(self->o.m, self->endpoint));
	reconnect(_metadata, self);
	good(_metadata, self, 0, WINDOW_LEN);
}

/*
 * The end of the file
 */

/* Another file on the same device, through which the old key is tried */
static void try_elsewhere(struct __test_metadata *_metadata,
			  FIXTURE_DATA(peer) *self)
{
	struct memreg_grant old = self->g;

	peer_ask(_metadata, &self->p, "wait %d", LIMIT_MS / 2);
	ASSERT_STREQ("disconnected", peer_value(&self->p, "event"));
	peer_ask(_metadata, &self->p, "read 0 16");
	ASSERT_STRNE("success", peer_value(&self->p, "status"));
	peer_stop(&self->p, 0);
	owner_open(_metadata, &self->o);
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	connect_peer(_metadata, self);
	point(_metadata, self, &old, self->at);
	dead(_metadata, self, old.rkey);
}

TEST_F_TIMEOUT(peer, I7_closed_files_keys_refuse_peer, LIMIT_S)
{
	good(_metadata, self, 0, 100);
	owner_close(&self->o);
	try_elsewhere(_metadata, self);
}

/* A process that makes all these objects, and is killed */
static void owner_process(struct __test_metadata *_metadata,
			  FIXTURE_DATA(peer) *self, int pipe)
{
	struct ib_memreg_bind bind;

	owner_open(_metadata, &self->o);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain,
					self->a.mem + MR_AT, MR_LEN,
					FOR_WINDOWS, 0, &self->mr));
	ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
					 IB_MEMREG_WINDOW_TYPE1, MR_LEN,
					 &self->window, 1));
	bind = bind_of(self, REMOTE_RW);
	owner_bind(_metadata, &self->o, self->o.domain, &bind, &self->g);
	ASSERT_EQ(sizeof(self->o), write(pipe, &self->o, sizeof(self->o)));
	self->endpoint = owner_await(_metadata, &self->o,
				     IB_MEMREG_EVENT_CONNECT_REQUEST, NULL);
	owner_accept(_metadata, &self->o, self->endpoint, self->o.domain,
		     &self->g);
	for (;;)
		pause();
}

TEST_F_TIMEOUT(peer, I7_killed_owners_keys_refuse_peer, LIMIT_S)
{
	struct memreg_grant g;
	int fd[2], status;
	pid_t pid;

	peer_stop(&self->p, 0);
	owner_close(&self->o);
	ASSERT_EQ(0, pipe2(fd, O_CLOEXEC));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		owner_process(_metadata, self, fd[1]);
	}
	close(fd[1]);
	ASSERT_EQ(sizeof(self->o), read(fd[0], &self->o, sizeof(self->o)));
	close(fd[0]);
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	peer_answer(_metadata, &self->p);
	g.iova = peer_number(&self->p, "iova");
	g.rkey = peer_number(&self->p, "rkey");
	point(_metadata, self, &g, MR_AT + WINDOW_AT);
	good(_metadata, self, 0, WINDOW_LEN);
	kill(pid, SIGKILL);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(SIGKILL, WTERMSIG(status));
	try_elsewhere(_metadata, self);
}

PEER_HARNESS_MAIN
