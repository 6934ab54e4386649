// SPDX-License-Identifier: GPL-2.0-only
/*
 * What MRs on demand do is counted for each MR and for the device, and all who
 * report it report the same.
 *
 * time limit: 200
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "demand.h"
#include "memreg.h"
#include "state.h"

#define STATS	IB_MEMREG_STAT_DEMAND_FAULTS
#define NR_STATS							\
	(IB_MEMREG_STAT_DEMAND_WAIT + IB_MEMREG_DEMAND_WAITS - STATS)

#define MOST_PINNED	IB_MEMREG_STAT_DEMAND_PINNED_MAX

static const __u8 zeros[LEN];

static __u64 sum_of(const __u64 *wait)
{
	__u64 sum = 0;
	int i;

	for (i = 0; i < IB_MEMREG_DEMAND_WAITS; i++)
		sum += wait[i];
	return sum;
}

/* Pages that are pinned after use(), and the most that were */
#define LAST		4
#define MOST		7

/*
 * Use an MR so that each counter moves: 3 faults, 2 hits, a prefetch, an
 * invalidation.
 */
static void use(struct __test_metadata *_metadata, FIXTURE_DATA(demand) *self,
		__u32 mr, __u8 *mem)
{
	struct ib_memreg_range range = RANGE(mr, 4 * PAGE, 2 * PAGE);
	__u64 pinned = MOST;
	unsigned int i;

	peer_gets(_metadata, self, mr, 0, zeros, 3 * PAGE);
	peer_gets(_metadata, self, mr, PAGE, zeros, PAGE);
	peer_sends(_metadata, self, mr, 8 * PAGE, mem + 8 * PAGE, 100, 1);
	ASSERT_EQ(1, advise(self, ADVICE(PREFETCH), 0, &range, 1));
	ASSERT_EQ(0, range.out_error);
	peer_gets(_metadata, self, mr, 4 * PAGE, zeros, 2 * PAGE);
	ASSERT_EQ(0, madvise(mem, PAGE, MADV_DONTNEED));
	peer_gets(_metadata, self, mr, PAGE, zeros, PAGE);
	/*
	 * Idle pages are released after a time, but for those of the latest
	 * use.
	 */
	for (i = 0; i < LIMIT_MS / 10 && pinned > LAST; i++) {
		usleep(10000);
		pinned = query(_metadata, self, mr).out_pinned;
	}
	ASSERT_GE(LAST, pinned);
}

static void used(struct __test_metadata *_metadata,
		 const struct ib_memreg_demand_stats *stats,
		 const __u64 *wait)
{
	EXPECT_EQ(3, stats->faults);
	EXPECT_EQ(2, stats->hits);
	EXPECT_EQ(1, stats->invalidations);
	EXPECT_EQ(1, stats->prefetches);
	EXPECT_EQ(1, stats->prefetch_hits);
	EXPECT_EQ(3, sum_of(wait));
	EXPECT_GE(LAST, stats->pinned);
	EXPECT_GE(MOST, stats->pinned_max);
	EXPECT_LE(MOST - 1, stats->pinned_max);
}

static const struct ib_memreg_object *
find(const struct state *state, __u32 type, __u32 id)
{
	__u32 i;

	for (i = 0; i < state->count; i++)
		if (state->objects[i].type == type &&
		    state->objects[i].id == id)
			return &state->objects[i];
	return NULL;
}

/* Does `memreg list` print a line that matches @pattern? */
static bool tool_lists(const char *options, const char *pattern)
{
	char *tool = strdup(tree_path("build/user/tool/memreg"));
	int ret = shell("%s list %s | grep -qE \"%s\"", tool, options,
			pattern);

	free(tool);
	return !ret;
}

/* Does LIST report of an MR what the query does? */
static bool list_agrees(struct __test_metadata *_metadata,
			FIXTURE_DATA(demand) *self)
{
	const struct ib_memreg_object *mr;
	struct ib_memreg_mr_query q;
	struct state state;
	bool same;

	ASSERT_EQ(0, state_get(&state));
	q = query(_metadata, self, self->mr);
	mr = find(&state, IB_MEMREG_OBJECT_MR, self->mr);
	ASSERT_TRUE(mr);
	EXPECT_EQ(1, mr->u.mr.on_demand);
	same = !memcmp(&q.out_demand, &mr->u.mr.demand,
		       sizeof(q.out_demand));
	state_free(&state);
	return same;
}

static void read_stats(struct __test_metadata *_metadata,
		       FIXTURE_DATA(demand) *self, __u64 *stats)
{
	unsigned int i;

	for (i = 0; i < NR_STATS; i++)
		ASSERT_EQ(0, raw_stat(self->link.fd, STATS + i, &stats[i]));
}

/*
 * As no other MR on demand is used, the device's counters change as the MR's
 * do.
 */
static void device_agrees(struct __test_metadata *_metadata,
			  FIXTURE_DATA(demand) *self, const __u64 *before)
{
	struct ib_memreg_mr_query q = query(_metadata, self, self->mr);
	__u64 after[NR_STATS];
	unsigned int i;

	read_stats(_metadata, self, after);
#define MOVED(_stat)							\
	(after[IB_MEMREG_STAT_DEMAND_##_stat - STATS] -			\
	 before[IB_MEMREG_STAT_DEMAND_##_stat - STATS])
	EXPECT_EQ(q.out_demand.faults, MOVED(FAULTS));
	EXPECT_EQ(q.out_demand.hits, MOVED(HITS));
	EXPECT_EQ(q.out_demand.invalidations, MOVED(INVALIDATIONS));
	EXPECT_EQ(q.out_demand.prefetches, MOVED(PREFETCHES));
	EXPECT_EQ(q.out_demand.prefetch_hits, MOVED(PREFETCH_HITS));
	EXPECT_EQ(MOST, MOVED(PINNED));
	EXPECT_LE(MOST - LAST, MOVED(UNPINNED));
	for (i = 0; i < IB_MEMREG_DEMAND_WAITS; i++)
		EXPECT_EQ(q.out_wait[i], MOVED(WAIT + i));
#undef MOVED
}

/* LIST, and `memreg list`, report what the query does. */
static void lists_agree(struct __test_metadata *_metadata,
			FIXTURE_DATA(demand) *self)
{
	const char *most = " pinned on demand, 2[48].0 KiB at most, 3 faults$";
	const char *uses = ".on_demand.:.*.faults.:3,.hits.:2,";
	const char *changes =
		".invalidations.:1,.prefetches.:1,.prefetch_hits.:1";
	unsigned int i;

	/* Idle pages may go in between. */
	for (i = 0; i < 10 && !list_agrees(_metadata, self); i++)
		usleep(10000);
	EXPECT_GT(10, i);
	EXPECT_TRUE(tool_lists("--type mr", most));
	EXPECT_TRUE(tool_lists("--type mr --json", uses));
	EXPECT_TRUE(tool_lists("--type mr --json", changes));
}

/* An MR that is not on demand has none of these counters. */
static void pinned_mr_has_none(struct __test_metadata *_metadata, __u32 pinned)
{
	const struct ib_memreg_object *o;
	struct state state;

	ASSERT_EQ(0, state_get(&state));
	o = find(&state, IB_MEMREG_OBJECT_MR, pinned);
	ASSERT_NE(NULL, o);
	EXPECT_EQ(0, o->u.mr.on_demand);
	EXPECT_EQ(0, o->u.mr.demand.pinned_max);
	state_free(&state);
}

/*
 * The query, LIST, the tool and the device report the same, and each MR has its
 * own counters.
 */
TEST_F_TIMEOUT(demand, all_report_the_same, LIMIT_S)
{
	struct ib_memreg_mr_query q;
	__u64 before[NR_STATS];
	__u32 mr, pinned;
	__u8 *mem;

	mem = mmap(NULL, LEN, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)mem);
	ASSERT_EQ(0, register_mr(self, mem, LEN, LOCAL_WRITE, ON_DEMAND, &mr));
	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, self->mem,
				  PAGE, LOCAL_WRITE, &pinned));
	read_stats(_metadata, self, before);
	use(_metadata, self, self->mr, self->mem);
	adds_up(_metadata, self, 3);
	device_agrees(_metadata, self, before);
	lists_agree(_metadata, self);
	pinned_mr_has_none(_metadata, pinned);
	ASSERT_EQ(0, raw_destroy(self->link.fd, pinned));
	use(_metadata, self, mr, mem);
	q = query(_metadata, self, mr);
	used(_metadata, &q.out_demand, q.out_wait);
	q = query(_metadata, self, self->mr);
	used(_metadata, &q.out_demand, q.out_wait);
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	ASSERT_EQ(0, munmap(mem, LEN));
}

/*
 * The device counts the most pages that were pinned at a time since it is
 * there.
 */
TEST_F_TIMEOUT(demand, device_counts_the_most, LIMIT_S)
{
	struct ib_memreg_range range;
	__u64 before, more, after;
	__u8 *mem;
	__u32 mr;

	use(_metadata, self, self->mr, self->mem);
	ASSERT_EQ(0, raw_stat(self->link.fd, MOST_PINNED, &before));
	EXPECT_LE(MOST, before);
	range.length = (before + 1) * PAGE;
	mem = mem_alloc(range.length);
	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, register_mr(self, mem, range.length, LOCAL_WRITE,
				 ON_DEMAND, &mr));
	range = RANGE(mr, 0, range.length);
	ASSERT_EQ(1, advise(self, ADVICE(PREFETCH), WAIT, &range, 1));
	ASSERT_EQ(before + 1, range.out_pages);
	ASSERT_EQ(0, raw_stat(self->link.fd, MOST_PINNED, &more));
	EXPECT_LE(before + 1, more);
	EXPECT_GE(before + 1 + MOST, more);
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	use(_metadata, self, self->mr, self->mem);
	ASSERT_EQ(0, raw_stat(self->link.fd, MOST_PINNED, &after));
	EXPECT_EQ(more, after);
	mem_free(mem, (before + 1) * PAGE);
}

/* The library's calls */
TEST_F_TIMEOUT(demand, library_has_the_counters, LIMIT_S)
{
	struct ib_memreg_range range = { .length = LEN };
	struct memreg_domain_info d;
	struct memreg_mr_info info;
	struct memreg_mr mr;
	struct memreg *m;
	uint32_t domain;
	void *mem;

	mem = mmap(NULL, LEN, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, memreg_open(test_device(), &m));
	ASSERT_EQ(0, memreg_domain_create(m, 0, &domain));
	ASSERT_EQ(0, memreg_mr_register(m, domain, mem, LEN, LOCAL_WRITE,
					ON_DEMAND, &mr));
	range.mr_id = mr.id;
	ASSERT_EQ(0, memreg_advise(m, ADVICE(PREFETCH_WRITE), WAIT, &range, 1));
	ASSERT_EQ(0, memreg_mr_query(m, mr.id, &info, NULL, NULL));
	ASSERT_EQ(0, memreg_domain_query(m, domain, &d));
	EXPECT_EQ(LEN / PAGE, info.demand.pinned);
	EXPECT_EQ(1, info.demand.prefetches);
	EXPECT_EQ(LEN / PAGE, info.demand.pinned_max);
	EXPECT_TRUE(d.working);
	EXPECT_EQ(0, d.rebuilds);
	EXPECT_LE(1, d.port);
	ASSERT_EQ(0, memreg_mr_deregister(m, mr.id));
	memreg_close(m);
	ASSERT_EQ(0, munmap(mem, LEN));
}

TEST_HARNESS_MAIN
