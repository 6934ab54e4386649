// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows: bound and revoked alone and in batches, all or none (I8), with
 * rkeys that don't come back (I9), by the thousand, and by many threads at
 * once.
 *
 * time limit: 300
 */
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define BATCH		IB_MEMREG_BATCH_MAX
#define SPAN		(16 * PAGE)

FIXTURE(window) {
	int fd;
	__u32 domain;
	__u32 other_domain;
	__u32 mr;
	__u32 other_mr;
	/* Without MW_BIND. */
	__u32 plain_mr;
	__u32 other_window;
	__u32 ids[BATCH];
	struct ib_memreg_bind binds[BATCH];
	char *memory;
	struct state before;
};

FIXTURE_SETUP(window)
{
	const __u32 access = LOCAL_WRITE | MW_BIND;

	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	self->memory = mem_alloc(SPAN);
	ASSERT_NE(NULL, self->memory);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, raw_domain(self->fd, &self->other_domain));
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, SPAN,
				  access, &self->mr));
	ASSERT_EQ(0, raw_register(self->fd, self->other_domain, self->memory,
				  SPAN, access, &self->other_mr));
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, SPAN,
				  LOCAL_WRITE, &self->plain_mr));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, SPAN, self->ids,
				 BATCH));
	ASSERT_EQ(0, raw_windows(self->fd, self->other_domain, SPAN,
				 &self->other_window, 1));
	ASSERT_EQ(0, state_get(&self->before));
}

FIXTURE_TEARDOWN(window)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
}

/* Good entries for the first windows, each of another range. */
static struct ib_memreg_bind *fill_binds(FIXTURE_DATA(window) *self,
					 __u32 count)
{
	__u32 i;

	memset(self->binds, 0, sizeof(self->binds));
	for (i = 0; i < count; i++) {
		self->binds[i].window_id = self->ids[i];
		self->binds[i].mr_id = self->mr;
		self->binds[i].offset = i;
		self->binds[i].length = PAGE;
		self->binds[i].access = REMOTE_READ | REMOTE_WRITE;
	}
	return self->binds;
}

static __u32 windows_bound(void)
{
	struct state now;
	__u32 i, n = 0;

	if (!state_get(&now))
		for (i = 0; i < now.count; i++)
			n += now.objects[i].type == IB_MEMREG_OBJECT_WINDOW &&
			     now.objects[i].u.window.bound == 1;
	state_free(&now);
	return n;
}

static int revoke_all(FIXTURE_DATA(window) *self)
{
	return raw_revoke(self->fd, self->domain, self->ids, BATCH);
}

TEST_F(window, batches_of_all_sizes)
{
	static const __u32 counts[] = { 1, 2, 3, 16, 100, 255, 256 };
	const __u64 memory = (uintptr_t)self->memory;
	struct ib_memreg_bind *binds;
	unsigned int i, k, n;

	for (n = 0; n < ARRAY_LEN(counts); n++) {
		binds = fill_binds(self, counts[n]);
		ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds,
				      counts[n]));
		for (i = 0; i < counts[n]; i++) {
			EXPECT_EQ(memory + i, binds[i].out_iova);
			EXPECT_NE(0, binds[i].out_rkey);
			for (k = 0; k < i; k++)
				ASSERT_NE(binds[k].out_rkey,
					  binds[i].out_rkey);
		}
		EXPECT_EQ(counts[n], windows_bound());
		ASSERT_EQ(0, raw_revoke(self->fd, self->domain, self->ids,
					counts[n]));
		EXPECT_EQ(0, windows_bound());
	}
}

/**
 * struct bad - An entry that makes a batch fail
 * @err: With this errno
 * @reason: And this reason
 * @spoil: Makes a good entry such a bad one
 */
struct bad {
	int err;
	__u32 reason;
	void (*spoil)(FIXTURE_DATA(window) *self, struct ib_memreg_bind *bind);
};

#define BAD(_name, _assignment)						\
	static void spoil_##_name(FIXTURE_DATA(window) *self,		\
				  struct ib_memreg_bind *bind)		\
	{								\
		(void)self;						\
		bind->_assignment;					\
	}

BAD(window, window_id = 0)
BAD(window_type, window_id = self->mr)
BAD(window_domain, window_id = self->other_window)
BAD(twice, window_id = self->ids[9])
BAD(bound, window_id = self->ids[BATCH - 1])
BAD(mr, mr_id = 0)
BAD(mr_access, mr_id = self->plain_mr)
BAD(length, length = 0)
BAD(range, offset = SPAN - PAGE + 1)
BAD(wraps, offset = ~0ULL)
BAD(span, length = SPAN + 1)
BAD(access, access = 0)
BAD(endpoint, endpoint_id = self->mr)
BAD(lease, lease_id = self->mr)

static const struct bad bads[] = {
	{ ENOENT, IB_MEMREG_REASON_ID, spoil_window },
	{ ENOENT, IB_MEMREG_REASON_ID, spoil_window_type },
	{ EINVAL, IB_MEMREG_REASON_DOMAIN, spoil_window_domain },
	{ EBUSY, IB_MEMREG_REASON_TWICE, spoil_twice },
	{ EBUSY, IB_MEMREG_REASON_BOUND_WINDOW, spoil_bound },
	{ ENOENT, IB_MEMREG_REASON_ID, spoil_mr },
	{ EACCES, IB_MEMREG_REASON_ACCESS_MR, spoil_mr_access },
	{ EINVAL, IB_MEMREG_REASON_ZERO_LENGTH, spoil_length },
	{ EINVAL, IB_MEMREG_REASON_RANGE, spoil_range },
	{ EOVERFLOW, IB_MEMREG_REASON_WRAPS, spoil_wraps },
	{ EINVAL, IB_MEMREG_REASON_RANGE, spoil_span },
	{ EINVAL, IB_MEMREG_REASON_NO_REMOTE, spoil_access },
	{ ENOENT, IB_MEMREG_REASON_ID, spoil_endpoint },
	{ ENOENT, IB_MEMREG_REASON_ID, spoil_lease },
};

/*
 * One window is bound before all batches that fail, and is still bound
 * afterwards.
 */
TEST_F(window, I8_bad_entry_binds_none_of_a_batch)
{
	static const __u32 places[] = { 0, 11, 19 };
	const __u32 count = 20;
	struct ib_memreg_bind *binds;
	struct state state;
	unsigned int i, k;

	binds = fill_binds(self, BATCH);
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, &binds[BATCH - 1], 1));
	ASSERT_EQ(0, state_get(&state));
	for (i = 0; i < ARRAY_LEN(bads); i++) {
		for (k = 0; k < ARRAY_LEN(places); k++) {
			/*
			 * The batch names the window of its tenth entry twice.
			 */
			if (bads[i].spoil == spoil_twice && !places[k])
				continue;
			binds = fill_binds(self, count);
			bads[i].spoil(self, &binds[places[k]]);
			ASSERT_EQ(-bads[i].err, raw_bind(self->fd, self->domain,
							 binds, count)) {
				TH_LOG("bad entry %u at %u", i, places[k]);
			}
			EXPECT_EQ(bads[i].reason, raw_reason());
			EXPECT_EQ(places[k], raw_index());
			ASSERT_TRUE(state_same(&state));
		}
	}
	state_free(&state);
	EXPECT_EQ(0, revoke_all(self));
}

TEST_F(window, index_is_count_if_no_entry_is_to_blame)
{
	struct ib_memreg_bind *binds = fill_binds(self, 3);

	EXPECT_FAIL(ENOENT, ID, raw_bind(self->fd, self->mr, binds, 3));
	EXPECT_EQ(3, raw_index());
	EXPECT_FAIL(ENOENT, ID, raw_revoke(self->fd, self->mr, self->ids, 3));
	EXPECT_EQ(3, raw_index());
}

TEST_F(window, bound_again_is_EBUSY)
{
	struct ib_memreg_bind *binds = fill_binds(self, 1);
	__u32 rkey;

	ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, 1));
	rkey = binds[0].out_rkey;
	EXPECT_FAIL(EBUSY, BOUND_WINDOW, raw_bind(self->fd, self->domain,
						  binds, 1));
	ASSERT_EQ(0, raw_revoke(self->fd, self->domain, self->ids, 1));
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, 1));
	EXPECT_NE(rkey, binds[0].out_rkey);
	ASSERT_EQ(0, raw_revoke(self->fd, self->domain, self->ids, 1));
}

TEST_F(window, revoking_again_is_no_error)
{
	struct ib_memreg_bind *binds = fill_binds(self, 2);
	int i;

	EXPECT_EQ(0, revoke_all(self));
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, 2));
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, revoke_all(self));
	EXPECT_EQ(0, windows_bound());
}

/* A revoke of one window takes another path in the module than one of many. */
TEST_F(window, relaxed_revoke)
{
	static const __u32 counts[] = { BATCH, 1, 2, 5, BATCH };
	struct ib_memreg_bind *binds = fill_binds(self, BATCH);
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(counts); i++) {
		ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds,
				      counts[i]));
		EXPECT_EQ(0, raw_revoke_relaxed(self->fd, self->domain,
						self->ids, counts[i]));
		EXPECT_EQ(0, windows_bound());
	}
	EXPECT_EQ(0, raw_revoke_relaxed(self->fd, self->domain, self->ids,
					BATCH));
}

TEST_F(window, I8_bad_entry_revokes_none_of_a_batch)
{
	__u32 ids[8];
	unsigned int i;

	ASSERT_EQ(0, raw_bind(self->fd, self->domain, fill_binds(self, 8), 8));
	for (i = 0; i < 8; i += 7) {
		memcpy(ids, self->ids, sizeof(ids));
		ids[i] = self->mr;
		EXPECT_FAIL(ENOENT, ID, raw_revoke(self->fd, self->domain, ids,
						   8));
		EXPECT_EQ(i, raw_index());
		ids[i] = self->other_window;
		EXPECT_FAIL(EINVAL, DOMAIN, raw_revoke(self->fd, self->domain,
						       ids, 8));
		EXPECT_EQ(i, raw_index());
	}
	memcpy(ids, self->ids, sizeof(ids));
	ids[5] = ids[2];
	EXPECT_FAIL(EBUSY, TWICE, raw_revoke(self->fd, self->domain, ids, 8));
	EXPECT_EQ(5, raw_index());
	EXPECT_EQ(8, windows_bound());
	EXPECT_EQ(0, revoke_all(self));
}

TEST_F(window, MR_of_another_domain_will_do)
{
	struct ib_memreg_bind *binds = fill_binds(self, 1);

	binds[0].mr_id = self->other_mr;
	ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, 1));
	EXPECT_FAIL(EBUSY, WINDOWS_BOUND, raw_destroy(self->fd,
						      self->other_mr));
	EXPECT_EQ(0, revoke_all(self));
	binds[0].window_id = self->other_window;
	EXPECT_FAIL(EINVAL, DOMAIN, raw_bind(self->fd, self->domain, binds,
					     1));
	ASSERT_EQ(0, raw_bind(self->fd, self->other_domain, binds, 1));
	EXPECT_FAIL(EINVAL, DOMAIN, raw_revoke(self->fd, self->domain,
					       &self->other_window, 1));
	EXPECT_EQ(0, raw_revoke(self->fd, self->other_domain,
				&self->other_window, 1));
}

struct gone {
	int fd;
	__u32 id;
	int ret;
};

static void *destroy_one(void *arg)
{
	struct gone *gone = arg;

	gone->ret = raw_destroy(gone->fd, gone->id);
	return NULL;
}

/*
 * An MR is destroyed along with the domain of windows that were bound to it, of
 * which it has idle MRs of the device.
 */
TEST_F(window, I7_domain_and_MR_go_together)
{
	unsigned int round, rounds = test_rounds(20), i;
	struct gone mr = { .fd = self->fd }, domain = { .fd = self->fd };
	struct ib_memreg_bind binds[8];
	pthread_t thread;
	__u32 ids[8];

	for (round = 0; round < rounds; round++) {
		ASSERT_EQ(0, raw_domain(self->fd, &domain.id));
		ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory,
					  SPAN, LOCAL_WRITE | MW_BIND, &mr.id));
		ASSERT_EQ(0, raw_windows(self->fd, domain.id, PAGE, ids, 8));
		for (i = 0; i < 8; i++)
			binds[i] = (struct ib_memreg_bind) {
				.window_id = ids[i], .mr_id = mr.id,
				.offset = i * PAGE, .length = PAGE,
				.access = REMOTE_READ,
			};
		ASSERT_EQ(0, raw_bind(self->fd, domain.id, binds, 8));
		ASSERT_EQ(0, raw_revoke_relaxed(self->fd, domain.id, ids, 8));
		for (i = 0; i < 8; i++)
			ASSERT_EQ(0, raw_destroy(self->fd, ids[i]));
		ASSERT_EQ(0, pthread_create(&thread, NULL, destroy_one, &mr));
		destroy_one(&domain);
		ASSERT_EQ(0, pthread_join(thread, NULL));
		EXPECT_EQ(0, domain.ret);
		EXPECT_EQ(0, mr.ret);
	}
}

TEST_F(window, destroyed_while_bound)
{
	struct ib_memreg_bind *binds = fill_binds(self, 1);
	RAW(mr_query, query, .mr_id = self->mr);
	__u32 window, i;

	for (i = 0; i < 100; i++) {
		ASSERT_EQ(0, raw_windows(self->fd, self->domain, PAGE, &window,
					 1));
		binds[0].window_id = window;
		ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, 1));
		ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY,
				      &query));
		EXPECT_EQ(1, query.out_windows);
		EXPECT_FAIL(EBUSY, WINDOWS_BOUND, raw_destroy(self->fd,
							      self->mr));
		ASSERT_EQ(0, raw_destroy(self->fd, window));
	}
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &query));
	EXPECT_EQ(0, query.out_windows);
}

TEST_F(window, I7_file_closed_with_windows_bound)
{
	struct ib_memreg_bind bind = { .length = PAGE, .access = REMOTE_READ };
	__u32 domain;
	int fd;

	fd = raw_open_bound();
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, raw_domain(fd, &domain));
	ASSERT_EQ(0, raw_register(fd, domain, self->memory, SPAN,
				  MW_BIND | REMOTE_READ, &bind.mr_id));
	ASSERT_EQ(0, raw_windows(fd, domain, SPAN, &bind.window_id, 1));
	ASSERT_EQ(0, raw_bind(fd, domain, &bind, 1));
	EXPECT_EQ(1, windows_bound());
	EXPECT_EQ(0, close(fd));
	EXPECT_TRUE(state_same(&self->before));
}

/*
 * I9
 */

/* Number of the last grant of each rkey; open addressing. */
struct rkeys {
	__u32 *rkey;
	__u32 *grant;
	__u32 size;
};

/* Note a grant; returns how many others came since the last one, or 0. */
static __u32 rkeys_note(struct rkeys *rkeys, __u32 rkey, __u32 grant)
{
	__u32 i = rkey * 2654435761U % rkeys->size, distance = 0;

	while (rkeys->rkey[i] && rkeys->rkey[i] != rkey)
		i = (i + 1) % rkeys->size;
	if (rkeys->rkey[i])
		distance = grant - rkeys->grant[i];
	rkeys->rkey[i] = rkey;
	rkeys->grant[i] = grant;
	return distance;
}

static void grant_many(struct __test_metadata *_metadata,
		       FIXTURE_DATA(window) *self,
		       int (*revoke)(int fd, __u32 domain, const __u32 *ids,
				     __u32 count))
{
	const __u32 grants = test_full() ? 500000 :
			     debug_kernel() ? 20000 : 45000;
	/* Smaller batches have shorter lists, and so earlier repeats. */
	const __u32 count = debug_kernel() ? 64 : 16;
	struct rkeys rkeys = { .size = 2 * grants };
	__u32 grant = 0, i, distance, repeats = 0, least = ~0U;

	rkeys.rkey = calloc(rkeys.size, sizeof(__u32));
	rkeys.grant = calloc(rkeys.size, sizeof(__u32));
	ASSERT_NE(NULL, rkeys.rkey);
	ASSERT_NE(NULL, rkeys.grant);
	while (grant < grants) {
		struct ib_memreg_bind *binds = fill_binds(self, count);

		ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, count));
		for (i = 0; i < count; i++) {
			distance = rkeys_note(&rkeys, binds[i].out_rkey,
					      ++grant);
			repeats += !!distance;
			if (distance && distance < least)
				least = distance;
		}
		ASSERT_EQ(0, revoke(self->fd, self->domain, self->ids, count));
	}
	ksft_print_msg("%u grants, %u repeated, none before %u others\n",
		       grant, repeats, repeats ? least : grant);
	EXPECT_LE(256 * 64, least);
	free(rkeys.rkey);
	free(rkeys.grant);
}

TEST_F_TIMEOUT(window, I9_rkeys_do_not_come_back_soon, SOAK_S)
{
	grant_many(_metadata, self, raw_revoke);
}

TEST_F_TIMEOUT(window, I9_rkeys_revoked_relaxed_do_not_come_back_soon, SOAK_S)
{
	grant_many(_metadata, self, raw_revoke_relaxed);
}

/*
 * Many
 */

/*
 * Bytes of available memory, after the slab caches have given back what they
 * can.
 */
static long memory_available(void)
{
	static const char shrink[] =
		"for f in /sys/kernel/slab/*/shrink; do echo 1 >$f; done";
	char line[128];
	long kib = -1;
	FILE *f;

	if (system(shrink))
		return -1;
	f = fopen("/proc/meminfo", "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %ld kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib << 10;
}

/* 100,000 windows of 64 KiB fit in 1 GiB: each may have 10 KiB. */
TEST_F_TIMEOUT(window, thousands_bound_at_once, SOAK_S)
{
	const __u32 total = test_full() ? 100000 :
			    debug_kernel() ? 1000 : 10000;
	struct ib_memreg_bind binds[BATCH];
	__u32 *ids = calloc(total, sizeof(*ids));
	__u32 n, i, count;
	long before, each;

	ASSERT_NE(NULL, ids);
	before = memory_available();
	ASSERT_LT(0, before);
	for (n = 0; n < total; n += count) {
		count = total - n < BATCH ? total - n : BATCH;
		ASSERT_EQ(0, raw_windows(self->fd, self->domain, SPAN, &ids[n],
					 count));
		memcpy(binds, fill_binds(self, BATCH), sizeof(binds));
		for (i = 0; i < count; i++) {
			binds[i].window_id = ids[n + i];
			binds[i].offset = 0;
			binds[i].length = SPAN;
		}
		ASSERT_EQ(0, raw_bind(self->fd, self->domain, binds, count));
	}
	each = (before - memory_available()) / (long)total;
	EXPECT_EQ(total, windows_bound());
	ksft_print_msg("%u windows bound, %ld bytes each\n", total, each);
	/* A debug kernel adds redzones and stack traces to each allocation. */
	if (!debug_kernel())
		EXPECT_GT(10 << 10, each);
	for (i = 0; i < total; i++)
		ASSERT_EQ(0, raw_destroy(self->fd, ids[i]));
	free(ids);
}

/*
 * Races
 */

#define THREADS		8
#define SHARED_WINDOWS	24
#define SHARED_MRS	4

/**
 * struct race - Objects that threads race for
 * @fd: File
 * @domain: Domain of the windows
 * @memory: Memory of the MRs
 * @windows: Ids, replaced as windows are destroyed
 * @mrs: Ids, likewise
 * @rounds: Calls of each thread
 * @failed: A call that failed as it must not: its errno, and a letter
 */
struct race {
	int fd;
	__u32 domain;
	void *memory;
	__u32 windows[SHARED_WINDOWS];
	__u32 mrs[SHARED_MRS];
	unsigned int rounds;
	int failed;
	char what;
};

static bool allowed(int ret, const int *errors)
{
	while (*errors)
		if (ret == -*errors++)
			return true;
	return !ret;
}

/* Errors that are possible while other threads use the same objects. */
static const int in_the_way[] = { EBUSY, ENOENT, 0 };

static void expect(struct race *race, char what, int ret, const int *errors)
{
	if (allowed(ret, errors))
		return;
	race->failed = ret;
	race->what = what;
}

static __u32 *any(__u32 *ids, unsigned int count, unsigned int *seed)
{
	return &ids[rand_r(seed) % count];
}

static void race_bind(struct race *race, unsigned int *seed)
{
	struct ib_memreg_bind binds[4] = {};
	unsigned int i, count = 1 + rand_r(seed) % 4;

	for (i = 0; i < count; i++) {
		binds[i].window_id = *any(race->windows, SHARED_WINDOWS, seed);
		binds[i].mr_id = *any(race->mrs, SHARED_MRS, seed);
		binds[i].length = SPAN;
		binds[i].access = REMOTE_READ;
	}
	expect(race, 'b', raw_bind(race->fd, race->domain, binds, count),
	       in_the_way);
}

static void race_revoke(struct race *race, unsigned int *seed)
{
	unsigned int i, count = 1 + rand_r(seed) % 4;
	__u32 ids[4];

	for (i = 0; i < count; i++)
		ids[i] = *any(race->windows, SHARED_WINDOWS, seed);
	expect(race, 'r', raw_revoke(race->fd, race->domain, ids, count),
	       in_the_way);
}

/*
 * Destroy a window. The thread that succeeds allocates another one in its
 * place.
 */
static void race_window(struct race *race, unsigned int *seed)
{
	__u32 *slot = any(race->windows, SHARED_WINDOWS, seed);
	int ret = raw_destroy(race->fd, *slot);

	expect(race, 'd', ret, in_the_way);
	if (!ret)
		expect(race, 'a', raw_windows(race->fd, race->domain, SPAN,
					      slot, 1), in_the_way + 2);
}

static void race_mr(struct race *race, unsigned int *seed)
{
	__u32 *slot = any(race->mrs, SHARED_MRS, seed);
	int ret = raw_destroy(race->fd, *slot);

	expect(race, 'D', ret, in_the_way);
	if (!ret)
		expect(race, 'R', raw_register(race->fd, race->domain,
					       race->memory, SPAN,
					       MW_BIND | REMOTE_READ, slot),
		       in_the_way + 2);
}

static void race_query(struct race *race, unsigned int *seed)
{
	RAW(mr_query, query, .mr_id = *any(race->mrs, SHARED_MRS, seed));

	expect(race, 'q', raw_call(race->fd, IB_MEMREG_IOC_MR_QUERY, &query),
	       in_the_way + 1);
}

static void *race_thread(void *arg)
{
	struct race *race = arg;
	unsigned int seed = (uintptr_t)&seed, i;

	for (i = 0; i < race->rounds && !race->failed; i++) {
		switch (rand_r(&seed) % 8) {
		case 0:
			race_window(race, &seed);
			break;
		case 1:
			race_mr(race, &seed);
			break;
		case 2:
			race_query(race, &seed);
			break;
		case 3:
		case 4:
			race_revoke(race, &seed);
			break;
		default:
			race_bind(race, &seed);
		}
	}
	return NULL;
}

TEST_F_TIMEOUT(window, threads_that_race_get_documented_errors, SOAK_S)
{
	struct race race = {
		.fd = self->fd,
		.domain = self->domain,
		.memory = self->memory,
		.rounds = test_rounds(600),
	};
	pthread_t threads[THREADS];
	unsigned int i;

	ASSERT_EQ(0, raw_windows(race.fd, race.domain, SPAN, race.windows,
				 SHARED_WINDOWS));
	for (i = 0; i < SHARED_MRS; i++)
		ASSERT_EQ(0, raw_register(race.fd, race.domain, race.memory,
					  SPAN, MW_BIND, &race.mrs[i]));
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, race_thread,
					    &race));
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	EXPECT_EQ(0, race.failed) {
		TH_LOG("it was call '%c'", race.what);
	}
	/* All threads of the race have ended. */
	ASSERT_EQ(0, raw_revoke(race.fd, race.domain, race.windows,
				SHARED_WINDOWS));
	for (i = 0; i < SHARED_WINDOWS; i++)
		EXPECT_EQ(0, raw_destroy(race.fd, race.windows[i]));
	for (i = 0; i < SHARED_MRS; i++)
		EXPECT_EQ(0, raw_destroy(race.fd, race.mrs[i]));
}

/* Batches that overlap are bound by one thread as a whole, or by none. */
static void *race_batches(void *arg)
{
	struct race *race = arg;
	struct ib_memreg_bind binds[SHARED_WINDOWS] = {};
	unsigned int round, i, seed = (uintptr_t)&seed;
	int ret;

	for (round = 0; round < race->rounds && !race->failed; round++) {
		unsigned int first = rand_r(&seed) % SHARED_WINDOWS;

		for (i = 0; i < SHARED_WINDOWS; i++) {
			binds[i].window_id =
				race->windows[(first + i) % SHARED_WINDOWS];
			binds[i].mr_id = race->mrs[0];
			binds[i].length = PAGE;
			binds[i].access = REMOTE_READ;
		}
		ret = raw_bind(race->fd, race->domain, binds, SHARED_WINDOWS);
		expect(race, 'b', ret, in_the_way);
		/*
		 * All windows belong to this thread, so no other thread uses
		 * them.
		 */
		if (!ret)
			expect(race, 'r', raw_revoke(race->fd, race->domain,
						     race->windows,
						     SHARED_WINDOWS),
			       in_the_way + 2);
	}
	return NULL;
}

TEST_F_TIMEOUT(window, I8_batches_that_race_are_bound_as_a_whole, SOAK_S)
{
	struct race race = {
		.fd = self->fd,
		.domain = self->domain,
		.mrs = { self->mr },
		.rounds = test_rounds(200),
	};
	pthread_t threads[THREADS];
	unsigned int i;

	memcpy(race.windows, self->ids, sizeof(race.windows));
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, race_batches,
					    &race));
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	EXPECT_EQ(0, race.failed) {
		TH_LOG("it was call '%c'", race.what);
	}
	EXPECT_EQ(0, windows_bound());
}

TEST_HARNESS_MAIN
