// SPDX-License-Identifier: GPL-2.0-only
/*
 * Re-registration and compositions at the limits of RLIMIT_MEMLOCK and of the
 * control groups for rdma and memory: a call that exceeds a limit fails with
 * the right reason and changes nothing (I8), and in the end no charge is left
 * (I7).
 *
 * time limit: 300
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define TRANSLATION	IB_MEMREG_REREG_TRANSLATION
#define DOMAIN		IB_MEMREG_REREG_DOMAIN
#define ACCESS		IB_MEMREG_REREG_ACCESS

#define PAGES		16UL
#define LENGTH		(PAGES * PAGE)

/* A uid that no other process has. */
#define NOBODY		61237

static int rereg(int fd, struct ib_memreg_mr_reregister *cmd)
{
	cmd->size = sizeof(*cmd);
	return raw_call(fd, IB_MEMREG_IOC_MR_REREGISTER, cmd);
}

/* Re-register an MR on other pages of the memory. */
static int move(int fd, __u32 mr, void *mem, size_t first, size_t pages)
{
	RAW(mr_reregister, cmd, .flags = TRANSLATION, .mr_id = mr,
	    .addr = (uintptr_t)mem + first * PAGE, .length = pages * PAGE);

	return rereg(fd, &cmd);
}

/*
 * RLIMIT_MEMLOCK
 */

FIXTURE(memlock) {
	int fd;
	__u32 domain;
	void *mem;
};

FIXTURE_SETUP(memlock)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	self->mem = mem_alloc(LENGTH);
	ASSERT_NE(NULL, self->mem);
}

FIXTURE_TEARDOWN(memlock)
{
	EXPECT_EQ(0, close(self->fd));
	mem_free(self->mem, LENGTH);
	EXPECT_EQ(0, vm_pin(0));
}

static void lock_at_most(struct __test_metadata *_metadata, size_t pages)
{
	struct rlimit limit = { .rlim_cur = pages * PAGE,
				.rlim_max = pages * PAGE };

	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	ASSERT_EQ(0, setgroups(0, NULL));
	ASSERT_EQ(0, setresuid(NOBODY, NOBODY, NOBODY));
}

/* Pages of both states are charged once; all other pages at the same time. */
TEST_F(memlock, I8_old_and_new_pages_are_within_it)
{
	RAW(mr_reregister, access, .flags = ACCESS,
	    .access = LOCAL_WRITE | REMOTE_READ);
	struct state state;
	__u32 mr;

	IN_CHILD {
		lock_at_most(_metadata, 12);
		ASSERT_EQ(0, raw_register(self->fd, self->domain, self->mem,
					  8 * PAGE, LOCAL_WRITE, &mr));
		ASSERT_EQ(0, state_get(&state));
		EXPECT_FAIL(ENOMEM, MEMLOCK,
			    move(self->fd, mr, self->mem, 0, 13));
		EXPECT_FAIL(ENOMEM, MEMLOCK,
			    move(self->fd, mr, self->mem, 8, 5));
		EXPECT_FAIL(ENOMEM, MEMLOCK,
			    move(self->fd, mr, self->mem, 0, 16));
		EXPECT_TRUE(state_same(&state));
		EXPECT_EQ(0, move(self->fd, mr, self->mem, 0, 12));
		EXPECT_EQ(12, vm_pin(0));
		/*
		 * The limit is used up, and a change of access alone pins no
		 * page.
		 */
		access.mr_id = mr;
		EXPECT_EQ(0, rereg(self->fd, &access));
		EXPECT_EQ(12, access.out_kept);
		EXPECT_EQ(0, move(self->fd, mr, self->mem, 4, 8));
		EXPECT_EQ(0, move(self->fd, mr, self->mem, 0, 4));
		EXPECT_EQ(0, move(self->fd, mr, self->mem, 8, 8));
		EXPECT_EQ(8, vm_pin(0));
		EXPECT_EQ(0, raw_destroy(self->fd, mr));
		EXPECT_EQ(0, vm_pin(0));
		state_free(&state);
	}
}

/* Pages that become writable are pinned anew before the old pins go. */
TEST_F(memlock, I8_pages_to_be_written_need_it_twice)
{
	RAW(mr_reregister, access, .flags = ACCESS,
	    .access = LOCAL_WRITE | REMOTE_WRITE);
	struct state state;
	size_t pages;

	for (pages = 15; pages <= 16; pages++) {
		IN_CHILD {
			lock_at_most(_metadata, pages);
			ASSERT_EQ(0, raw_register(self->fd, self->domain,
						  self->mem, 8 * PAGE,
						  REMOTE_READ, &access.mr_id));
			ASSERT_EQ(0, state_get(&state));
			if (pages < 16) {
				EXPECT_FAIL(ENOMEM, MEMLOCK,
					    rereg(self->fd, &access));
				EXPECT_TRUE(state_same(&state));
			} else {
				EXPECT_EQ(0, rereg(self->fd, &access));
			}
			EXPECT_EQ(8, vm_pin(0));
			EXPECT_EQ(0, raw_destroy(self->fd, access.mr_id));
			state_free(&state);
		}
	}
}

/*
 * Memory of a memory object is charged already, and no other memory is pinned.
 */
TEST_F(memlock, memory_objects_take_none_of_it)
{
	int memory = raw_memory(self->fd, LENGTH, 0);
	RAW(mr_reregister, cmd, .flags = TRANSLATION, .fd = memory,
	    .mr_flags = IB_MEMREG_MR_FD, .length = LENGTH);

	ASSERT_LE(0, memory);
	IN_CHILD {
		lock_at_most(_metadata, 1);
		ASSERT_EQ(0, raw_register(self->fd, self->domain, self->mem,
					  PAGE, LOCAL_WRITE, &cmd.mr_id));
		EXPECT_EQ(0, rereg(self->fd, &cmd));
		EXPECT_EQ(0, vm_pin(0));
		EXPECT_EQ(0, move(self->fd, cmd.mr_id, self->mem, 0, 1));
		EXPECT_FAIL(ENOMEM, MEMLOCK,
			    move(self->fd, cmd.mr_id, self->mem, 1, 1));
		EXPECT_EQ(1, vm_pin(0));
		EXPECT_EQ(0, raw_destroy(self->fd, cmd.mr_id));
	}
	EXPECT_EQ(0, close(memory));
}

/* A composition pins nothing. */
TEST_F(memlock, compositions_take_none_of_it)
{
	struct ib_memreg_piece piece = { .length = PAGE };
	RAW(mr_compose, cmd, .domain_id = self->domain, .count = 1,
	    .pieces = (uintptr_t)&piece, .access = REMOTE_READ);

	IN_CHILD {
		lock_at_most(_metadata, 2);
		ASSERT_EQ(0, raw_register(self->fd, self->domain, self->mem,
					  2 * PAGE, LOCAL_WRITE | MW_BIND,
					  &piece.mr_id));
		EXPECT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_COMPOSE,
				      &cmd));
		EXPECT_EQ(2, vm_pin(0));
		EXPECT_EQ(0, raw_destroy(self->fd, cmd.out_mr_id));
		EXPECT_EQ(0, raw_destroy(self->fd, piece.mr_id));
	}
}

/*
 * Control groups
 */

#define CGROUP		"/sys/fs/cgroup/memreg-changes"

FIXTURE(groups) {
	struct state before;
	int fd;
	__u32 domains[2];
};

FIXTURE_SETUP(groups)
{
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

static int open_in_group(FIXTURE_DATA(groups) *self)
{
	int ret = limit_objects(1000) ?: enter();

	if (ret)
		return ret;
	self->fd = raw_open_bound();
	return self->fd < 0 ? self->fd :
	       raw_domain(self->fd, &self->domains[0]) ?:
	       raw_domain(self->fd, &self->domains[1]);
}

/* A change that needs @keys more objects until it is done, and @after then */
static void change_at_limit(struct __test_metadata *_metadata,
			    FIXTURE_DATA(groups) *self,
			    struct ib_memreg_mr_reregister change,
			    unsigned int keys, int after)
{
	int base = objects();
	struct state state;
	unsigned int i;

	ASSERT_EQ(0, state_get(&state));
	for (i = 0; i < keys; i++) {
		struct ib_memreg_mr_reregister cmd = change;

		ASSERT_EQ(0, limit_objects(base + i));
		EXPECT_FAIL(EDQUOT, CGROUP, rereg(self->fd, &cmd));
		EXPECT_EQ(base, objects());
		EXPECT_TRUE(state_same(&state));
	}
	ASSERT_EQ(0, limit_objects(base + keys));
	EXPECT_EQ(0, rereg(self->fd, &change));
	EXPECT_EQ(after, objects());
	state_free(&state);
}

/* The new key is there before the old one dies, so it takes one object more. */
TEST_F(groups, I8_keys_of_a_changed_mr_are_limited)
{
	uint8_t *mem = mem_alloc(LENGTH);
	const int base = 2 * raw_domain_objects() + 1;
	__u32 what, mr;

	ASSERT_NE(NULL, mem);
	IN_CHILD {
		ASSERT_EQ(0, open_in_group(self));
		for (what = 1; what < 8; what++) {
			RAW(mr_reregister, cmd, .flags = what);

			ASSERT_EQ(0, limit_objects(1000));
			ASSERT_EQ(0, raw_register(self->fd, self->domains[0],
						  mem, PAGE, REMOTE_READ, &mr));
			ASSERT_EQ(base, objects());
			cmd.mr_id = mr;
			cmd.domain_id = what & DOMAIN ? self->domains[1] : 0;
			cmd.access = what & ACCESS ? LOCAL_WRITE | REMOTE_READ :
						     0;
			if (what & TRANSLATION) {
				cmd.addr = (uintptr_t)mem;
				cmd.length = LENGTH;
			}
			change_at_limit(_metadata, self, cmd, 1, base);
			EXPECT_EQ(0, raw_destroy(self->fd, mr));
		}
		EXPECT_EQ(0, close(self->fd));
	}
	EXPECT_EQ(0, objects());
	mem_free(mem, LENGTH);
}

/* Keys of an MR of memory: an IOMMU can make fewer pieces of it. */
static unsigned int keys_of(struct __test_metadata *_metadata, void *mem,
			    size_t length)
{
	RAW(mr_register, cmd, .access = REMOTE_READ, .addr = (uintptr_t)mem,
	    .length = length);
	int fd = raw_open_bound();

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, raw_domain(fd, &cmd.domain_id));
	ASSERT_EQ(0, raw_call(fd, IB_MEMREG_IOC_MR_REGISTER, &cmd));
	ASSERT_LT(0, cmd.out_segments);
	ASSERT_EQ(0, close(fd));
	return cmd.out_segments;
}

/* A long MR needs many keys, and gets all of them or none. */
TEST_F(groups, I8_the_last_of_many_keys_is_limited)
{
	RAW(mr_reregister, cmd, .flags = TRANSLATION);
	const int base = 2 * raw_domain_objects() + 1;
	unsigned int keys;
	size_t length;
	uint8_t *mem;
	__u64 pages;

	IN_CHILD {
		ASSERT_EQ(0, open_in_group(self));
		ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_KEY_PAGES,
				     &pages));
		length = 3 * pages * PAGE;
		mem = mem_scattered(length);
		ASSERT_NE(NULL, mem);
		ASSERT_EQ(0, raw_register(self->fd, self->domains[0], mem, PAGE,
					  REMOTE_READ, &cmd.mr_id));
		keys = keys_of(_metadata, mem, length);
		cmd.addr = (uintptr_t)mem;
		cmd.length = length;
		change_at_limit(_metadata, self, cmd, keys, base + keys - 1);
		EXPECT_EQ(0, raw_destroy(self->fd, cmd.mr_id));
		EXPECT_EQ(0, close(self->fd));
		mem_free(mem, length);
	}
	EXPECT_EQ(0, objects());
}

/* Pieces that need a key each */
#define PIECES		5U

static void rough_pieces(struct ib_memreg_piece *pieces, __u32 mr)
{
	unsigned int i;

	memset(pieces, 0, PIECES * sizeof(*pieces));
	for (i = 0; i < PIECES; i++) {
		pieces[i].mr_id = mr;
		pieces[i].offset = i * PAGE + 100 * i;
		pieces[i].length = 50;
	}
}

/* Keys of a composition of them: an IOMMU can make fewer pieces of them. */
static unsigned int keys_of_rough_pieces(struct __test_metadata *_metadata,
					 void *mem)
{
	struct ib_memreg_piece pieces[PIECES];
	RAW(mr_compose, cmd, .count = PIECES, .pieces = (uintptr_t)pieces,
	    .access = REMOTE_READ);
	int fd = raw_open_bound();
	__u32 mr;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, raw_domain(fd, &cmd.domain_id));
	ASSERT_EQ(0, raw_register(fd, cmd.domain_id, mem, LENGTH,
				  LOCAL_WRITE | MW_BIND, &mr));
	rough_pieces(pieces, mr);
	ASSERT_EQ(0, raw_call(fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd));
	ASSERT_LT(0, cmd.out_segments);
	ASSERT_EQ(0, close(fd));
	return cmd.out_segments;
}

TEST_F(groups, I8_keys_of_compositions_are_limited)
{
	struct ib_memreg_piece pieces[PIECES];
	const unsigned int base = 2 * raw_domain_objects();
	RAW(mr_compose, cmd, .count = PIECES, .pieces = (uintptr_t)pieces,
	    .access = REMOTE_READ);
	void *mem = mem_alloc(LENGTH);
	struct state state;
	unsigned int i, keys;
	__u32 mr;

	ASSERT_NE(NULL, mem);
	keys = keys_of_rough_pieces(_metadata, mem);
	IN_CHILD {
		ASSERT_EQ(0, open_in_group(self));
		ASSERT_EQ(0, raw_register(self->fd, self->domains[0], mem,
					  LENGTH, LOCAL_WRITE | MW_BIND, &mr));
		rough_pieces(pieces, mr);
		cmd.domain_id = self->domains[0];
		ASSERT_EQ(0, state_get(&state));
		for (i = 0; i < keys; i++) {
			ASSERT_EQ(0, limit_objects(base + i));
			EXPECT_FAIL(EDQUOT, CGROUP,
				    raw_call(self->fd,
					     IB_MEMREG_IOC_MR_COMPOSE, &cmd));
			EXPECT_EQ((int)base, objects());
			EXPECT_TRUE(state_same(&state));
		}
		ASSERT_EQ(0, limit_objects(base + keys));
		EXPECT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_COMPOSE,
				      &cmd));
		EXPECT_EQ(keys, cmd.out_segments);
		EXPECT_EQ((int)(base + keys), objects());
		EXPECT_EQ(0, raw_destroy(self->fd, cmd.out_mr_id));
		EXPECT_EQ((int)base, objects());
		EXPECT_EQ(0, raw_destroy(self->fd, mr));
		EXPECT_EQ(0, close(self->fd));
		state_free(&state);
	}
	EXPECT_EQ(0, objects());
	mem_free(mem, LENGTH);
}

/*
 * A child that makes compositions of compositions, and re-registers an MR again
 * and again
 */
static void change_until_killed(FIXTURE_DATA(groups) *self, int ready)
{
	uint8_t *mem = mem_alloc(2 * LENGTH);
	struct ib_memreg_piece pieces[PIECES];
	RAW(mr_compose, cmd, .count = PIECES, .pieces = (uintptr_t)pieces,
	    .access = REMOTE_READ | MW_BIND);
	unsigned int turn = 0;
	__u32 mrs[2];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!mem || open_in_group(self) ||
	    raw_register(self->fd, self->domains[0], mem, LENGTH,
			 LOCAL_WRITE | MW_BIND, &mrs[0]) ||
	    raw_register(self->fd, self->domains[0], mem + LENGTH, PAGE,
			 REMOTE_READ, &mrs[1]))
		_exit(1);
	rough_pieces(pieces, mrs[0]);
	cmd.domain_id = self->domains[0];
	if (raw_call(self->fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd))
		_exit(2);
	memset(pieces, 0, sizeof(*pieces));
	pieces[0].mr_id = cmd.out_mr_id;
	pieces[0].length = 100;
	cmd.count = 1;
	if (raw_call(self->fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd) ||
	    write(ready, "1", 1) != 1)
		_exit(3);
	while (!move(self->fd, mrs[1], mem + LENGTH, turn % 2 * 8, 8))
		turn++;
	_exit(4);
}

TEST_F(groups, I7_SIGKILL_in_a_change_gives_all_back)
{
	unsigned int i, rounds = test_rounds(20);
	int status, ready[2];
	pid_t child;
	char c;

	ASSERT_EQ(0, pipe2(ready, O_CLOEXEC));
	for (i = 0; i < rounds; i++) {
		child = fork();
		ASSERT_LE(0, child);
		if (!child)
			change_until_killed(self, ready[1]);
		ASSERT_EQ(1, read(ready[0], &c, 1));
		EXPECT_LT(2 * raw_domain_objects(), objects());
		EXPECT_EQ(0, kill(child, SIGKILL));
		EXPECT_EQ(child, waitpid(child, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status));
		EXPECT_EQ(0, objects());
		EXPECT_TRUE(state_same(&self->before));
	}
	close(ready[0]);
	close(ready[1]);
}

/*
 * The limit of the memory cgroup grows step by step, from too little to enough.
 * The process is in the group only during the calls, which must not invoke the
 * OOM killer.
 */

#define MANY		24U	/* MRs, or compositions, at once */
#define MANY_PAGES	2048UL
#define MOST_KIB	(64 * 1024)

/*
 * A composition of the most pages that it can have, no two of which are
 * adjacent
 */
static int compose_pages(int fd, __u32 domain, __u32 mr, __u32 *id)
{
	struct ib_memreg_piece piece = {
		.mr_id = mr, .length = PAGE / 2, .dims = 1,
		.count = { MANY_PAGES }, .stride = { PAGE },
	};
	RAW(mr_compose, cmd, .domain_id = domain, .count = 1,
	    .pieces = (uintptr_t)&piece);
	int ret = raw_call(fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd);

	*id = cmd.out_mr_id;
	return ret;
}

static int compose_many(int fd, __u32 domain, __u32 mr)
{
	__u32 ids[MANY];
	unsigned int n;
	int ret = 0;

	for (n = 0; n < MANY; n++) {
		ret = compose_pages(fd, domain, mr, &ids[n]);
		if (ret)
			break;
	}
	while (n--)
		if (raw_destroy(fd, ids[n]))
			return 1;
	return ret;
}

/* Re-register MRs of one page with more pages, and then with one again. */
static int grow_many(int fd, void *mem, const __u32 *mrs)
{
	unsigned int n;
	int ret = 0;

	for (n = 0; n < MANY; n++) {
		ret = move(fd, mrs[n], mem, 0, MANY_PAGES);
		if (ret)
			break;
	}
	return ret;
}

/* Run grow_many() or the composing one with @kib of memory in the group. */
static int within(unsigned int kib, int out, int fd, __u32 domain, void *mem,
		  const __u32 *mrs, bool compose)
{
	char line[32];
	int ret;

	snprintf(line, sizeof(line), "%uK", kib);
	if (file_write(CGROUP "/memory.max", line) || enter())
		return 1;
	ret = compose ? compose_many(fd, domain, mrs[MANY]) :
			grow_many(fd, mem, mrs);
	return write(out, "0", 1) == 1 ? ret : 1;
}

static void memory_at_each_step(struct __test_metadata *_metadata, bool compose)
{
	int fd = raw_open_bound(), ret = -ENOMEM, out;
	void *mem = mem_shuffled(MANY_PAGES * PAGE);
	unsigned int kib, i, refused = 0;
	__u32 domain, mrs[MANY + 1];
	struct state state;

	ASSERT_LE(0, fd);
	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, file_write("/proc/self/oom_score_adj", "-1000"));
	out = open("/sys/fs/cgroup/cgroup.procs", O_WRONLY | O_CLOEXEC);
	ASSERT_LE(0, out);
	ASSERT_EQ(0, raw_domain(fd, &domain));
	for (i = 0; i < MANY; i++)
		ASSERT_EQ(0, raw_register(fd, domain, mem, PAGE, LOCAL_WRITE,
					  &mrs[i]));
	ASSERT_EQ(0, raw_register(fd, domain, mem, MANY_PAGES * PAGE,
				  LOCAL_WRITE, &mrs[MANY]));
	ASSERT_EQ(0, state_get(&state));
	for (kib = 512; ret == -ENOMEM && kib <= MOST_KIB; kib += 512) {
		ret = within(kib, out, fd, domain, mem, mrs, compose);
		refused += ret == -ENOMEM;
		for (i = 0; !compose && i < MANY; i++)
			ASSERT_EQ(0, move(fd, mrs[i], mem, 0, 1));
		EXPECT_TRUE(state_same(&state));
	}
	EXPECT_EQ(0, ret);
	EXPECT_LT(2, refused);
	TH_LOG("refused %u times, had with %u KiB", refused, kib);
	state_free(&state);
	EXPECT_EQ(0, close(fd));
	close(out);
	mem_free(mem, MANY_PAGES * PAGE);
}

TEST_F_TIMEOUT(groups, I8_memory_of_changed_mrs_is_limited_at_each_step, 240)
{
	IN_CHILD {
		memory_at_each_step(_metadata, false);
	}
}

TEST_F_TIMEOUT(groups, I8_memory_of_compositions_is_limited_at_each_step, 240)
{
	IN_CHILD {
		memory_at_each_step(_metadata, true);
	}
}

TEST_HARNESS_MAIN
