// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pools at the limits of RLIMIT_MEMLOCK, of the user, and of the control groups
 * for rdma and memory: at each step a call that exceeds a limit fails with the
 * right reason and changes nothing (I8), and in the end no charge is left (I7).
 *
 * time limit: 240
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define ACCESS		(LOCAL_WRITE | REMOTE_READ)
#define COUNT		8U
#define SIZE		(2 * PAGE)

/* A uid that no other process has. */
#define NOBODY		61236

FIXTURE(limits) {
	struct memreg *m;
	uint32_t domain;
	struct state before;
};

FIXTURE_SETUP(limits)
{
	ASSERT_EQ(0, memreg_open(test_device(), &self->m));
	ASSERT_EQ(0, memreg_domain_create(self->m, 0, &self->domain));
	ASSERT_EQ(0, state_get(&self->before));
}

FIXTURE_TEARDOWN(limits)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	memreg_close(self->m);
	EXPECT_EQ(0, vm_pin(0));
}

static int make(struct memreg *m, uint32_t domain, uint32_t count, void *addr,
		struct memreg_pool **pool)
{
	struct memreg_pool_attr attr = {
		.buffer_size = SIZE,
		.stride = addr ? SIZE : 0,
		.count = count,
		.access = ACCESS,
		.node = IB_MEMREG_NODE_DEVICE,
		.addr = addr,
	};

	return memreg_pool_create(m, domain, &attr, pool);
}

/* Number of open descriptors: a call that fails must not leave one. */
static int open_files(void)
{
	int fd, n = 0;

	for (fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void lock_at_most(struct __test_metadata *_metadata, size_t bytes)
{
	struct rlimit limit = { .rlim_cur = bytes, .rlim_max = bytes };

	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	ASSERT_EQ(0, setgroups(0, NULL));
	ASSERT_EQ(0, setresuid(NOBODY, NOBODY, NOBODY));
}

#define EXPECT_LIB(_err, _reason, _call)				\
	do {								\
		EXPECT_EQ(-(_err), _call);				\
		EXPECT_EQ(IB_MEMREG_REASON_##_reason,			\
			  memreg_reason_code());			\
	} while (0)

/* Memory that the library makes for the pool is charged to the user. */
TEST_F(limits, I8_memory_of_the_user)
{
	struct memreg_pool *pool, *more;
	struct state state;
	int files;

	IN_CHILD {
		lock_at_most(_metadata, COUNT * SIZE);
		files = open_files();
		/* What LIST reports to this user is only what the user has. */
		ASSERT_EQ(0, state_get(&state));
		EXPECT_LIB(ENOMEM, MEMLOCK,
			   make(self->m, self->domain, COUNT + 1, NULL,
				&pool));
		EXPECT_EQ(files, open_files());
		EXPECT_TRUE(state_same(&state));
		ASSERT_EQ(0, make(self->m, self->domain, COUNT, NULL, &pool));
		EXPECT_LIB(ENOMEM, MEMLOCK,
			   make(self->m, self->domain, 1, NULL, &more));
		EXPECT_EQ(0, memreg_pool_destroy(pool));
		ASSERT_EQ(0, make(self->m, self->domain, COUNT, NULL, &pool));
		EXPECT_EQ(0, memreg_pool_destroy(pool));
		EXPECT_EQ(files, open_files());
		EXPECT_TRUE(state_same(&state));
		state_free(&state);
	}
	IN_CHILD {
		lock_at_most(_metadata, 0);
		EXPECT_LIB(EPERM, MEMLOCK,
			   make(self->m, self->domain, 1, NULL, &pool));
	}
}

/*
 * Memory of the caller is pinned, and counts against the limit as pinned
 * memory.
 */
TEST_F(limits, I8_memory_of_the_caller)
{
	char *memory = mem_alloc(COUNT * SIZE);
	struct memreg_pool *pool;
	struct state state;

	ASSERT_NE(NULL, memory);
	IN_CHILD {
		lock_at_most(_metadata, COUNT * SIZE - PAGE);
		ASSERT_EQ(0, state_get(&state));
		EXPECT_LIB(ENOMEM, MEMLOCK,
			   make(self->m, self->domain, COUNT, memory, &pool));
		EXPECT_TRUE(state_same(&state));
		ASSERT_EQ(0, make(self->m, self->domain, COUNT - 1, memory,
				  &pool));
		EXPECT_EQ((long)((COUNT - 1) * SIZE / PAGE), vm_pin(0));
		EXPECT_EQ(0, memreg_pool_destroy(pool));
		EXPECT_EQ(0, vm_pin(0));
		EXPECT_TRUE(state_same(&state));
		state_free(&state);
	}
	mem_free(memory, COUNT * SIZE);
}

/*
 * Control groups
 */

#define CGROUP		"/sys/fs/cgroup/memreg-pools"

FIXTURE(groups) {
	struct state before;
};

static int domain_objects;

FIXTURE_SETUP(groups)
{
	domain_objects = raw_domain_objects();
	ASSERT_EQ(0, state_get(&self->before));
	if (!cgroup_make(CGROUP, "+rdma +memory"))
		SKIP(return, "there are no control groups for rdma and memory");
}

FIXTURE_TEARDOWN(groups)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, rmdir(CGROUP));
}

static int limit_objects(unsigned int most)
{
	char line[128];

	snprintf(line, sizeof(line), "%s hca_object=%u", test_device(), most);
	return file_write(CGROUP "/rdma.max", line);
}

/* HCA objects that the group has, or -1 */
static int objects(void)
{
	FILE *f = fopen(CGROUP "/rdma.current", "re");
	char line[256], name[64];
	int handles, found = 0, n;

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s hca_handle=%d hca_object=%d", name,
			   &handles, &n) == 3 && !strcmp(name, test_device()))
			found = n;
	fclose(f);
	return found;
}

static int enter(void)
{
	return file_write(CGROUP "/cgroup.procs", "0");
}

static void open_domain(struct __test_metadata *_metadata, struct memreg **m,
			uint32_t *domain)
{
	ASSERT_EQ(0, enter());
	ASSERT_EQ(0, memreg_open(test_device(), m));
	ASSERT_EQ(0, memreg_domain_create(*m, 0, domain));
	EXPECT_EQ(domain_objects, objects());
}

/* Each key takes an HCA object: with fewer objects than keys the call fails. */
TEST_F(groups, I8_objects_are_limited_at_each_step)
{
	struct memreg_pool *pool;
	struct state state;
	struct memreg *m;
	uint32_t domain;
	unsigned int i;

	IN_CHILD {
		ASSERT_EQ(0, limit_objects(domain_objects));
		open_domain(_metadata, &m, &domain);
		ASSERT_EQ(0, state_get(&state));
		for (i = 0; i < COUNT; i++) {
			ASSERT_EQ(0, limit_objects(domain_objects + i));
			EXPECT_LIB(EDQUOT, CGROUP,
				   make(m, domain, COUNT, NULL, &pool));
			EXPECT_EQ(domain_objects, objects());
			EXPECT_TRUE(state_same(&state));
		}
		ASSERT_EQ(0, limit_objects(domain_objects + COUNT));
		ASSERT_EQ(0, make(m, domain, COUNT, NULL, &pool));
		EXPECT_EQ(domain_objects + (int)COUNT, objects());
		EXPECT_EQ(0, memreg_pool_destroy(pool));
		EXPECT_TRUE(state_same(&state));
		state_free(&state);
		memreg_close(m);
	}
	EXPECT_EQ(0, objects());
}

/*
 * A recycle makes new keys before the old ones die, so at the limit it fails
 * and the old keys still work.
 */
TEST_F(groups, I8_recycle_at_the_limit_leaves_the_old_keys)
{
	struct memreg_grant before[COUNT], after;
	struct memreg_pool *pool;
	struct memreg *m;
	void *buffers[COUNT];
	uint32_t domain;
	unsigned int i;

	ASSERT_EQ(0, limit_objects(domain_objects + COUNT));
	IN_CHILD {
		open_domain(_metadata, &m, &domain);
		ASSERT_EQ(0, make(m, domain, COUNT, NULL, &pool));
		for (i = 0; i < COUNT; i++) {
			ASSERT_EQ(0, memreg_pool_take(pool, &buffers[i]));
			ASSERT_EQ(0, memreg_pool_entry(pool, buffers[i],
						       &before[i]));
		}
		EXPECT_LIB(EDQUOT, CGROUP,
			   memreg_pool_recycle(pool, buffers, COUNT, 0));
		EXPECT_LIB(EDQUOT, CGROUP,
			   memreg_pool_recycle(pool, buffers, 1, 0));
		for (i = 0; i < COUNT; i++) {
			ASSERT_EQ(0, memreg_pool_entry(pool, buffers[i],
						       &after));
			EXPECT_EQ(before[i].rkey, after.rkey);
		}
		EXPECT_EQ(domain_objects + (int)COUNT, objects());
		ASSERT_EQ(0, limit_objects(domain_objects + 2 * COUNT));
		EXPECT_EQ(0, memreg_pool_recycle(pool, buffers, COUNT, 0));
		EXPECT_EQ(0, memreg_pool_destroy(pool));
		memreg_close(m);
	}
	EXPECT_EQ(0, objects());
}

TEST_F(groups, I7_SIGKILL_gives_all_objects_back)
{
	struct memreg_pool *pool;
	struct memreg *m;
	uint32_t domain;
	int status, ready[2];
	pid_t child;
	char c = 0;

	ASSERT_EQ(0, pipe2(ready, O_CLOEXEC));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		c = !enter() && !memreg_open(test_device(), &m) &&
		    !memreg_domain_create(m, 0, &domain) &&
		    !make(m, domain, COUNT, NULL, &pool);
		if (write(ready[1], &c, 1) == 1)
			pause();
		_exit(1);
	}
	ASSERT_EQ(1, read(ready[0], &c, 1));
	EXPECT_EQ(1, c);
	EXPECT_EQ(domain_objects + (int)COUNT, objects());
	EXPECT_EQ(0, kill(child, SIGKILL));
	EXPECT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, objects());
	close(ready[0]);
	close(ready[1]);
}

/*
 * Raise the group's memory limit step by step, from too little to enough.
 * Memory that is touched under the limit was touched before, so that the OOM
 * killer does not act.
 */
static int create_within(struct memreg *m, uint32_t domain, unsigned int kib,
			 int out)
{
	struct memreg_pool *pool;
	char line[32];
	int ret;

	snprintf(line, sizeof(line), "%uK", kib);
	if (file_write(CGROUP "/memory.max", line) || enter())
		return 1;
	ret = make(m, domain, 1024, NULL, &pool);
	if (write(out, "0", 1) != 1)
		return 1;
	return ret ?: memreg_pool_destroy(pool);
}

/* 8 MiB of buffers, and their descriptions */
#define MOST_KIB	(64 * 1024)

TEST_F_TIMEOUT(groups, I8_memory_is_limited_at_each_step, 240)
{
	struct memreg_pool *pool;
	struct state state;
	struct memreg *m;
	uint32_t domain;
	unsigned int kib, refused = 0;
	int out, ret = -ENOMEM;

	IN_CHILD {
		ASSERT_EQ(0, file_write("/proc/self/oom_score_adj", "-1000"));
		out = open("/sys/fs/cgroup/cgroup.procs", O_WRONLY | O_CLOEXEC);
		ASSERT_LE(0, out);
		ASSERT_EQ(0, memreg_open(test_device(), &m));
		ASSERT_EQ(0, memreg_domain_create(m, 0, &domain));
		ASSERT_EQ(0, make(m, domain, 1024, NULL, &pool));
		ASSERT_EQ(0, memreg_pool_destroy(pool));
		ASSERT_EQ(0, state_get(&state));
		for (kib = 1024; ret == -ENOMEM && kib <= MOST_KIB;
		     kib += test_full() ? 256 : 1536) {
			ret = create_within(m, domain, kib, out);
			refused += ret == -ENOMEM;
			EXPECT_TRUE(state_same(&state));
		}
		EXPECT_EQ(0, ret);
		EXPECT_LT(2, refused);
		TH_LOG("refused %u times, had with %u KiB", refused, kib);
		state_free(&state);
		memreg_close(m);
	}
}

TEST_HARNESS_MAIN
