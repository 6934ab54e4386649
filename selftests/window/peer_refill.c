// SPDX-License-Identifier: GPL-2.0-only
/*
 * I1: five peers write as fast as they can while the keys that they use are
 * ended, in each way in which an owner ends keys or the mapping that they are
 * to. As soon as the owner's call has returned, the owner writes all of the
 * pages through another mapping of them, and that must stay.
 *
 * time limit: 600
 */
#include <string.h>
#include <sys/mman.h>

#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "net.h"
#include "owner.h"
#include "peer.h"
#include "raw.h"
#include "test.h"

#define PEERS	5U
#define SPAN	(16 * PAGE)
#define KEYS	(REMOTE_RW | IB_MEMREG_ACCESS_LOCAL_WRITE)

FIXTURE(refill)
{
	struct owner o;
	struct arena a;
	struct memreg_mr mr;
	uint8_t *at;		/* the memory at an address that goes */
	uint8_t *elsewhere;
	uint32_t windows[PEERS];
	struct peer peers[PEERS];
	uint32_t endpoints[PEERS];
	bool strict;
};

FIXTURE_SETUP(refill)
{
	uint64_t strict;
	unsigned int i;

	owner_open(_metadata, &self->o);
	ASSERT_EQ(0, memreg_query_cap(self->o.m,
				      IB_MEMREG_CAP_STRICT_INVALIDATE,
				      &strict));
	self->strict = strict;
	arena_make(_metadata, &self->a, SPAN);
	self->elsewhere = mmap(NULL, SPAN, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->elsewhere);
	for (i = 0; i < PEERS; i++) {
		peer_start(_metadata, &self->peers[i], OWNER_IP4, self->o.port,
			   "-d 16");
		self->endpoints[i] = owner_admit(_metadata, &self->o,
						 &self->peers[i],
						 self->o.domain, NULL);
	}
}

FIXTURE_TEARDOWN(refill)
{
	unsigned int i;

	for (i = 0; i < PEERS; i++)
		peer_stop(&self->peers[i], 0);
	owner_close(&self->o);
	arena_free(&self->a);
}

FIXTURE_VARIANT(refill)
{
	int (*end)(FIXTURE_DATA(refill) *self);
	bool windows;
};

#define WAY(_name, _end, _windows)					\
	FIXTURE_VARIANT_ADD(refill, _name) {				\
		.end = (_end), .windows = (_windows),			\
	}

static int revoke_all(FIXTURE_DATA(refill) *self)
{
	return memreg_window_revoke_batch(self->o.m, self->o.domain,
					  self->windows, PEERS, NULL);
}

static int destroy_all(FIXTURE_DATA(refill) *self)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < PEERS && !ret; i++)
		ret = memreg_window_free(self->o.m, self->windows[i]);
	return ret;
}

static int unmap(FIXTURE_DATA(refill) *self)
{
	return munmap(self->at, SPAN);
}

static int unmap_some(FIXTURE_DATA(refill) *self)
{
	return munmap(self->at + 3 * PAGE, PAGE);
}

static int map_on_top(FIXTURE_DATA(refill) *self)
{
	return mmap(self->at, SPAN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
		    MAP_FIXED, -1, 0) == MAP_FAILED;
}

static int discard(FIXTURE_DATA(refill) *self)
{
	return madvise(self->at, SPAN, MADV_DONTNEED);
}

static int move(FIXTURE_DATA(refill) *self)
{
	return mremap(self->at, SPAN, SPAN, MREMAP_MAYMOVE | MREMAP_FIXED,
		      self->elsewhere) == MAP_FAILED;
}

static int deregister(FIXTURE_DATA(refill) *self)
{
	return memreg_mr_deregister(self->o.m, self->mr.id);
}

static int lose_access(FIXTURE_DATA(refill) *self)
{
	struct memreg_rereg_attr attr = {
		.what = IB_MEMREG_REREG_ACCESS,
		.access = IB_MEMREG_ACCESS_LOCAL_WRITE,
	};

	return memreg_mr_reregister(self->o.m, &attr, &self->mr, NULL);
}

WAY(revoke, revoke_all, true);
WAY(destroy, destroy_all, true);
WAY(unmap, unmap, true);
WAY(unmap_some, unmap_some, true);
WAY(map_on_top, map_on_top, true);
WAY(discard, discard, true);
WAY(move, move, true);
WAY(unmap_mr, unmap, false);
WAY(unmap_some_mr, unmap_some, false);
WAY(map_on_top_mr, map_on_top, false);
WAY(discard_mr, discard, false);
WAY(move_mr, move, false);
WAY(deregister, deregister, false);
WAY(lose_access, lose_access, false);

/* Map the memory at a second address, and register it there. */
static void prepare(struct __test_metadata *_metadata,
		    FIXTURE_DATA(refill) *self, bool windows)
{
	self->at = mremap(self->a.mem, 0, SPAN, MREMAP_MAYMOVE);
	ASSERT_NE(MAP_FAILED, (void *)self->at);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain, self->at,
					SPAN, windows ? FOR_WINDOWS : KEYS, 0,
					&self->mr));
	if (windows)
		ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
						 IB_MEMREG_WINDOW_TYPE1, SPAN,
						 self->windows, PEERS));
}

static void start(struct __test_metadata *_metadata,
		  FIXTURE_DATA(refill) *self, unsigned int i, bool windows)
{
	struct ib_memreg_bind bind = {
		.window_id = self->windows[i],
		.mr_id = self->mr.id,
		.length = SPAN,
		.access = REMOTE_RW,
	};
	struct memreg_grant g = {
		.iova = self->mr.iova,
		.rkey = self->mr.rkey,
	};
	struct peer *p = &self->peers[i];

	if (windows)
		owner_bind(_metadata, &self->o, self->o.domain, &bind, &g);
	peer_ask(_metadata, p, "iova 0x%llx", (unsigned long long)g.iova);
	peer_ask(_metadata, p, "rkey 0x%x", g.rkey);
	peer_ask(_metadata, p, "start write 0 %lu %u", SPAN, 0x80 + i);
	ASSERT_PEER("success", p);
}

/* The owner's bytes that were overwritten, once all peers are out */
static size_t late_bytes(struct __test_metadata *_metadata,
			 FIXTURE_DATA(refill) *self)
{
	size_t i, late = 0;

	for (i = 0; i < PEERS; i++) {
		peer_ask(_metadata, &self->peers[i], "join %d", LIMIT_MS / 2);
		ASSERT_PEER("remote-access-error", &self->peers[i]);
	}
	for (i = 0; i < SPAN; i++)
		late += self->a.mem[i] != self->a.copy[i];
	return late;
}

static void clean_up(struct __test_metadata *_metadata,
		     FIXTURE_DATA(refill) *self, bool windows)
{
	unsigned int i;

	/* Some of that is gone already. */
	for (i = 0; windows && i < PEERS; i++)
		memreg_window_free(self->o.m, self->windows[i]);
	memreg_mr_deregister(self->o.m, self->mr.id);
	munmap(self->at, SPAN);
	ASSERT_EQ(self->elsewhere, mmap(self->elsewhere, SPAN, PROT_NONE,
					MAP_PRIVATE | MAP_ANONYMOUS |
					MAP_FIXED, -1, 0));
	for (i = 0; i < PEERS; i++)
		self->endpoints[i] = owner_admit_again(_metadata, &self->o,
						       &self->peers[i],
						       self->endpoints[i]);
}

/*
 * Without strict invalidation, the device may finish the packet of each peer
 * that it is handling, of a page at most.
 */
TEST_F_TIMEOUT(refill, I1_nothing_lands_in_pages_that_are_filled_again, 36000)
{
	unsigned int n = test_full() ? 100 : 3, round, i;
	size_t late;

	for (round = 0; round < n; round++) {
		prepare(_metadata, self, variant->windows);
		for (i = 0; i < PEERS; i++)
			start(_metadata, self, i, variant->windows);
		ASSERT_EQ(0, variant->end(self)) TH_LOG("%s", memreg_reason());
		arena_fill(&self->a, round);
		late = late_bytes(_metadata, self);
		EXPECT_GE(self->strict ? 0 : PEERS * PAGE, late);
		if (late)
			TH_LOG("round %u: %zu late bytes", round, late);
		clean_up(_metadata, self, variant->windows);
	}
}

PEER_HARNESS_MAIN
