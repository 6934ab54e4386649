// SPDX-License-Identifier: GPL-2.0-only
/*
 * What MRs on demand do is counted for each MR, for its domain, and for the
 * device, and all who report it report the same.
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

static struct ib_memreg_domain_query
query_domain(struct __test_metadata *_metadata, FIXTURE_DATA(demand) *self,
	     __u32 domain)
{
	RAW(domain_query, cmd, .domain_id = domain);

	ASSERT_EQ(0, raw_call(self->link.fd, IB_MEMREG_IOC_DOMAIN_QUERY, &cmd));
	return cmd;
}

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
		 const __u64 *wait, __u64 times)
{
	EXPECT_EQ(3 * times, stats->faults);
	EXPECT_EQ(2 * times, stats->hits);
	EXPECT_EQ(1 * times, stats->invalidations);
	EXPECT_EQ(1 * times, stats->prefetches);
	EXPECT_EQ(1 * times, stats->prefetch_hits);
	EXPECT_EQ(3 * times, sum_of(wait));
	EXPECT_GE(LAST * times, stats->pinned);
	EXPECT_GE(MOST * times, stats->pinned_max);
	EXPECT_LE((MOST - 1) * !!times, stats->pinned_max);
}

/*
 * Does the domain report as many pinned pages as its MRs together, once the
 * number is stable?
 */
static bool pinned_adds_up(struct __test_metadata *_metadata,
			   FIXTURE_DATA(demand) *self, __u32 other)
{
	unsigned int i;
	__u64 sum;

	for (i = 0; i < LIMIT_MS / 10; i++) {
		sum = query(_metadata, self, self->mr).out_demand.pinned;
		if (other)
			sum += query(_metadata, self, other).out_demand.pinned;
		if (sum == query_domain(_metadata, self, self->link.domain)
			   .out_demand.pinned)
			return true;
		usleep(10000);
	}
	return false;
}

/*
 * A domain reports the sums over its MRs, those that are deregistered included.
 */
TEST_F_TIMEOUT(demand, domain_adds_up_its_mrs, LIMIT_S)
{
	struct ib_memreg_domain_query d;
	struct ib_memreg_mr_query q;
	__u32 mr, empty;
	__u64 max;
	__u8 *mem;

	mem = mmap(NULL, LEN, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)mem);
	ASSERT_EQ(0, register_mr(self, mem, LEN, LOCAL_WRITE, ON_DEMAND, &mr));
	ASSERT_EQ(0, raw_domain(self->link.fd, &empty));
	use(_metadata, self, self->mr, self->mem);
	d = query_domain(_metadata, self, self->link.domain);
	EXPECT_EQ(1, d.out_working);
	EXPECT_EQ(0, d.out_rebuilds);
	EXPECT_LE(1, d.out_port);
	used(_metadata, &d.out_demand, d.out_wait, 1);
	use(_metadata, self, mr, mem);
	q = query(_metadata, self, mr);
	used(_metadata, &q.out_demand, q.out_wait, 1);
	d = query_domain(_metadata, self, self->link.domain);
	used(_metadata, &d.out_demand, d.out_wait, 2);
	EXPECT_TRUE(pinned_adds_up(_metadata, self, mr));
	max = d.out_demand.pinned_max;
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	EXPECT_TRUE(pinned_adds_up(_metadata, self, 0));
	d = query_domain(_metadata, self, self->link.domain);
	used(_metadata, &d.out_demand, d.out_wait, 2);
	EXPECT_EQ(max, d.out_demand.pinned_max);
	d = query_domain(_metadata, self, empty);
	used(_metadata, &d.out_demand, d.out_wait, 0);
	ASSERT_EQ(0, munmap(mem, LEN));
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

/* Does LIST report of an MR and its domain what the queries do? */
static bool list_agrees(struct __test_metadata *_metadata,
			FIXTURE_DATA(demand) *self)
{
	const struct ib_memreg_object *mr, *domain;
	struct ib_memreg_domain_query d;
	struct ib_memreg_mr_query q;
	struct state state;
	bool same;

	ASSERT_EQ(0, state_get(&state));
	q = query(_metadata, self, self->mr);
	d = query_domain(_metadata, self, self->link.domain);
	mr = find(&state, IB_MEMREG_OBJECT_MR, self->mr);
	domain = find(&state, IB_MEMREG_OBJECT_DOMAIN, self->link.domain);
	ASSERT_TRUE(mr && domain);
	EXPECT_EQ(1, mr->u.mr.on_demand);
	same = !memcmp(&q.out_demand, &mr->u.mr.demand,
		       sizeof(q.out_demand)) &&
	       !memcmp(&d.out_demand, &domain->u.domain.demand,
		       sizeof(d.out_demand));
	state_free(&state);
	return same;
}

/* LIST, and `memreg list`, report what the queries do. */
TEST_F_TIMEOUT(demand, list_has_the_counters, LIMIT_S)
{
	const char *most = " pinned on demand, 2[48].0 KiB at most, 3 faults$";
	const char *uses = ".on_demand.:.*.faults.:3,.hits.:2,";
	const char *changes =
		".invalidations.:1,.prefetches.:1,.prefetch_hits.:1";
	const struct ib_memreg_object *o;
	struct state state;
	unsigned int i;
	__u32 pinned;

	ASSERT_EQ(0, raw_register(self->link.fd, self->link.domain, self->mem,
				  PAGE, LOCAL_WRITE, &pinned));
	use(_metadata, self, self->mr, self->mem);
	/* Idle pages may go in between. */
	for (i = 0; i < 10 && !list_agrees(_metadata, self); i++)
		usleep(10000);
	EXPECT_GT(10, i);
	ASSERT_EQ(0, state_get(&state));
	o = find(&state, IB_MEMREG_OBJECT_MR, pinned);
	ASSERT_NE(NULL, o);
	EXPECT_EQ(0, o->u.mr.on_demand);
	EXPECT_EQ(0, o->u.mr.demand.pinned_max);
	state_free(&state);
	EXPECT_TRUE(tool_lists("--type mr", most));
	EXPECT_TRUE(tool_lists("--type domain", most));
	EXPECT_TRUE(tool_lists("--type mr --json", uses));
	EXPECT_TRUE(tool_lists("--type domain --json", changes));
	ASSERT_EQ(0, raw_destroy(self->link.fd, pinned));
}

static void read_stats(struct __test_metadata *_metadata,
		       FIXTURE_DATA(demand) *self, __u64 *stats)
{
	unsigned int i;

	for (i = 0; i < NR_STATS; i++)
		ASSERT_EQ(0, raw_stat(self->link.fd, STATS + i, &stats[i]));
}

/*
 * As there is only one domain, the device's counters change as the domain's do.
 */
TEST_F_TIMEOUT(demand, device_counts_the_same, LIMIT_S)
{
	__u64 before[NR_STATS], after[NR_STATS];
	struct ib_memreg_domain_query d;
	unsigned int i;

	read_stats(_metadata, self, before);
	use(_metadata, self, self->mr, self->mem);
	adds_up(_metadata, self, 3);
	d = query_domain(_metadata, self, self->link.domain);
	read_stats(_metadata, self, after);
#define MOVED(_stat)							\
	(after[IB_MEMREG_STAT_DEMAND_##_stat - STATS] -			\
	 before[IB_MEMREG_STAT_DEMAND_##_stat - STATS])
	EXPECT_EQ(d.out_demand.faults, MOVED(FAULTS));
	EXPECT_EQ(d.out_demand.hits, MOVED(HITS));
	EXPECT_EQ(d.out_demand.invalidations, MOVED(INVALIDATIONS));
	EXPECT_EQ(d.out_demand.prefetches, MOVED(PREFETCHES));
	EXPECT_EQ(d.out_demand.prefetch_hits, MOVED(PREFETCH_HITS));
	EXPECT_EQ(MOST, MOVED(PINNED));
	EXPECT_LE(MOST - LAST, MOVED(UNPINNED));
	for (i = 0; i < IB_MEMREG_DEMAND_WAITS; i++)
		EXPECT_EQ(d.out_wait[i], MOVED(WAIT + i));
#undef MOVED
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
	EXPECT_EQ(0, memcmp(&info.demand, &d.demand, sizeof(d.demand)));
	EXPECT_TRUE(d.working);
	EXPECT_EQ(0, d.rebuilds);
	EXPECT_LE(1, d.port);
	ASSERT_EQ(0, memreg_mr_deregister(m, mr.id));
	ASSERT_EQ(0, memreg_domain_query(m, domain, &d));
	EXPECT_EQ(0, d.demand.pinned);
	EXPECT_EQ(LEN / PAGE, d.demand.pinned_max);
	memreg_close(m);
	ASSERT_EQ(0, munmap(mem, LEN));
}

TEST_HARNESS_MAIN
