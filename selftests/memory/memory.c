// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory objects: the uses of a descriptor, the bytes that a peer reaches (I6),
 * the user who is charged and the time of the charge (I7), and invalid input,
 * which changes nothing (I8).
 *
 * time limit: 240
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ends.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define LEN		(15 * PAGE)	/* blocks of 8, 4, 2 and 1 pages */
#define ACCESS		(LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE |	\
			 REMOTE_ATOMIC | MW_BIND)

/* A uid that no other process has, and its RLIMIT_MEMLOCK. */
#define NOBODY		61234
#define MAY_LOCK	(4 * MiB)

FIXTURE(memory) {
	int fd;
	__u32 domain;
	struct state before;
};

FIXTURE_SETUP(memory)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, state_get(&self->before));
}

FIXTURE_TEARDOWN(memory)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
}

static int create(FIXTURE_DATA(memory) *self,
		  struct ib_memreg_memory_create *cmd)
{
	cmd->size = sizeof(*cmd);
	return raw_call(self->fd, IB_MEMREG_IOC_MEMORY_CREATE, cmd);
}

static int try_create(FIXTURE_DATA(memory) *self, __u64 length, __u32 flags,
		      __s32 node)
{
	struct ib_memreg_memory_create cmd = {
		.length = length,
		.flags = flags,
		.node = node,
	};
	int ret = create(self, &cmd);

	return ret ?: close(cmd.out_fd);
}

/* Value of a line of smaps in KiB, for the mapping at an address, or -1 */
static long smaps(const void *addr, const char *key)
{
	unsigned long start, end;
	bool found = false;
	long value = -1;
	char line[512];
	FILE *f;

	f = fopen("/proc/self/smaps", "re");
	if (!f)
		return -1;
	while (value < 0 && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			found = start <= (uintptr_t)addr &&
				(uintptr_t)addr < end;
		else if (found && !strncmp(line, key, strlen(key)))
			value = strtol(line + strlen(key) + 1, NULL, 10);
	}
	fclose(f);
	return value;
}

static bool zeros(const char *at, size_t length)
{
	return !*at && !memcmp(at, at + 1, length - 1);
}

TEST_F(memory, is_zeroed_and_of_the_blocks_that_the_answer_tells)
{
	struct ib_memreg_memory_create cmd = { .length = LEN - 5 };
	char *at;

	ASSERT_EQ(0, create(self, &cmd));
	EXPECT_EQ(LEN, cmd.length);
	EXPECT_LE(4, cmd.out_blocks);
	EXPECT_EQ(12, cmd.out_block_shift);
	EXPECT_EQ(FD_CLOEXEC, fcntl(cmd.out_fd, F_GETFD));
	EXPECT_EQ(O_RDWR, fcntl(cmd.out_fd, F_GETFL) & O_ACCMODE);
	at = mem_map(cmd.out_fd, LEN, PROT_RW);
	ASSERT_NE(NULL, at);
	EXPECT_TRUE(zeros(at, LEN));
	memset(at, 0xa5, LEN);
	EXPECT_EQ(0, munmap(at, LEN));
	EXPECT_EQ(0, close(cmd.out_fd));

	/* The contents of one object are not visible in the next one. */
	ASSERT_EQ(0, create(self, &cmd));
	at = mem_map(cmd.out_fd, LEN, PROT_RW);
	ASSERT_NE(NULL, at);
	EXPECT_TRUE(zeros(at, LEN));
	EXPECT_EQ(0, munmap(at, LEN));
	EXPECT_EQ(0, close(cmd.out_fd));
}

TEST_F(memory, contiguous_is_one_block_or_nothing)
{
	struct ib_memreg_memory_create cmd = {
		.length = 3 * PAGE,
		.flags = IB_MEMREG_MEMORY_CONTIGUOUS,
	};
	__u64 most;

	ASSERT_EQ(0, create(self, &cmd));
	EXPECT_EQ(4 * PAGE, cmd.length);
	EXPECT_EQ(1, cmd.out_blocks);
	EXPECT_EQ(14, cmd.out_block_shift);
	EXPECT_EQ(0, close(cmd.out_fd));
	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_CONTIGUOUS, &most));
	EXPECT_FAIL(EINVAL, CONTIGUOUS,
		    try_create(self, most + 1, cmd.flags, -1));
}

TEST_F(memory, I8_bad_input_is_refused)
{
	EXPECT_FAIL(EINVAL, ZERO_LENGTH, try_create(self, 0, 0, -1));
	EXPECT_FAIL(EINVAL, NODE, try_create(self, PAGE, 0, -3));
	EXPECT_FAIL(EINVAL, NODE, try_create(self, PAGE, 0, 0x7fffffff));
	EXPECT_FAIL(EOVERFLOW, WRAPS, try_create(self, ~0ULL, 0, -1));
	EXPECT_FAIL(EOVERFLOW, WRAPS, try_create(self, 1ULL << 63, 0, -1));
	EXPECT_FAIL(ENOMEM, NONE, try_create(self, 1ULL << 62, 0, -1));
	EXPECT_FAIL(EBADF, FD, raw_memory_dup(self->fd, -1));
	EXPECT_FAIL(EBADF, NOT_DMABUF, raw_memory_dup(self->fd, self->fd));
}

/*
 * The kernel checks offset and size of a mapping. The module refuses private
 * mappings.
 */
TEST_F(memory, bad_mappings_are_refused)
{
	int memory = raw_memory(self->fd, LEN, 0);
	int twin;
	char *at;

	ASSERT_LE(0, memory);
	twin = raw_memory_dup(self->fd, memory);
	ASSERT_LE(0, twin);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, LEN, PROT_READ, MAP_PRIVATE, memory,
				   0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, LEN + PAGE, PROT_READ, MAP_SHARED,
				   memory, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, memory,
				   LEN));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, mem_map(twin, LEN, PROT_RW));
	EXPECT_EQ(EACCES, errno);
	at = mem_map(twin, LEN, PROT_READ);
	ASSERT_NE(NULL, at);
	EXPECT_EQ(-1, mprotect(at, LEN, PROT_RW));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(MAP_FAILED, mremap(at, LEN, 2 * LEN, MREMAP_MAYMOVE));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(0, munmap(at, LEN));
	EXPECT_EQ(0, close(twin));
	EXPECT_EQ(0, close(memory));
}

TEST_F(memory, large_blocks_are_mapped_as_a_whole_and_in_parts)
{
	struct ib_memreg_memory_create cmd = { .length = 2 * HUGE };
	char *at;
	pid_t child;
	int status;

	ASSERT_EQ(0, create(self, &cmd));
	if (cmd.out_block_shift != 21) {
		close(cmd.out_fd);
		SKIP(return, "no blocks of that size could be had");
	}
	at = mem_map_huge(cmd.out_fd, 2 * HUGE);
	ASSERT_NE(NULL, at);
	memset(at, 1, 2 * HUGE);
	EXPECT_EQ(2 * HUGE / 1024, smaps(at, "FilePmdMapped:"));

	/* In parts, by another process, and again. */
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		memset(at, 2, 2 * HUGE);
		_exit(munmap(at + PAGE, PAGE) ||
		      mprotect(at + HUGE, PAGE, PROT_READ) ||
		      at[2 * PAGE] != 2 || at[HUGE] != 2);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(2, at[PAGE]);
	EXPECT_EQ(0, munmap(at + HUGE / 2, HUGE));
	at[HUGE / 2 - 1] = 3;
	at[HUGE + HUGE / 2] = 3;
	EXPECT_EQ(0, madvise(at, HUGE / 2, MADV_DONTNEED));
	EXPECT_EQ(3, at[HUGE / 2 - 1]);
	EXPECT_EQ(0, munmap(at, 2 * HUGE));
	EXPECT_EQ(0, close(cmd.out_fd));
}

TEST_F(memory, register_refuses_what_is_no_memory)
{
	struct ib_memreg_mr_register mr;
	int memory = raw_memory(self->fd, LEN, 0);

	ASSERT_LE(0, memory);
	EXPECT_FAIL(EBADF, FD, raw_register_fd(self->fd, self->domain, -1, 0,
					       PAGE, REMOTE_READ, &mr));
	EXPECT_FAIL(EBADF, NOT_DMABUF,
		    raw_register_fd(self->fd, self->domain, self->fd, 0, PAGE,
				    REMOTE_READ, &mr));
	EXPECT_EQ(0, close(memory));
	EXPECT_FAIL(EBADF, FD, raw_register_fd(self->fd, self->domain, memory,
					       0, PAGE, REMOTE_READ, &mr));
}

struct swapping {
	int memory;
	int number;	/* of a descriptor: the memory, or another, or none */
	_Atomic bool stop;
};

static void *swap_descriptors(void *arg)
{
	struct swapping *s = arg;
	int other = open("/dev/null", O_RDWR | O_CLOEXEC);

	while (!s->stop) {
		dup2(s->memory, s->number);
		dup2(other, s->number);
		close(s->number);
	}
	close(other);
	return NULL;
}

/* Another thread closes and replaces a descriptor while calls take it. */
TEST_F(memory, I8_descriptors_that_are_closed_meanwhile)
{
	struct swapping s = { .memory = raw_memory(self->fd, LEN, 0) };
	unsigned int i, rounds = test_rounds(2000), done[2] = {};
	struct ib_memreg_mr_register mr;
	pthread_t swapper;
	int ret;

	ASSERT_LE(0, s.memory);
	s.number = fcntl(s.memory, F_DUPFD_CLOEXEC, 200);
	ASSERT_LE(0, s.number);
	ASSERT_EQ(0, pthread_create(&swapper, NULL, swap_descriptors, &s));
	for (i = 0; i < rounds && !_metadata->exit_code; i++) {
		ret = raw_register_fd(self->fd, self->domain, s.number, 0, LEN,
				      ACCESS, &mr);
		EXPECT_EQ(0, ret == -EBADF ? 0 : ret ?:
			  raw_destroy(self->fd, mr.out_mr_id));
		done[0] += !ret;
		ret = raw_memory_dup(self->fd, s.number);
		EXPECT_EQ(0, ret == -EBADF ? 0 : ret < 0 ? ret : close(ret));
		done[1] += ret >= 0;
	}
	s.stop = true;
	ASSERT_EQ(0, pthread_join(swapper, NULL));
	TH_LOG("%u registered, %u duplicated", done[0], done[1]);
	EXPECT_LT(0, done[0] + done[1]);
	EXPECT_EQ(0, close(s.memory));
}

TEST_F(memory, I8_register_checks_range_flags_and_rights)
{
	int memory = raw_memory(self->fd, LEN, 0);
	struct ib_memreg_mr_register mr;
	int twin;

#define TRY(_fd, _offset, _length, _access)				\
	raw_register_fd(self->fd, self->domain, _fd, _offset, _length,	\
			_access, &mr)
	ASSERT_LE(0, memory);
	twin = raw_memory_dup(self->fd, memory);
	ASSERT_LE(0, twin);
	EXPECT_FAIL(EINVAL, ZERO_LENGTH, TRY(memory, 0, 0, REMOTE_READ));
	EXPECT_FAIL(EINVAL, RANGE, TRY(memory, 0, LEN + 1, REMOTE_READ));
	EXPECT_FAIL(EINVAL, RANGE, TRY(memory, LEN, 1, REMOTE_READ));
	EXPECT_FAIL(EINVAL, RANGE, TRY(memory, 1ULL << 50, 1, REMOTE_READ));
	EXPECT_FAIL(EOVERFLOW, WRAPS, TRY(memory, ~0ULL, 2, REMOTE_READ));
	EXPECT_FAIL(EINVAL, NOT_PMEM,
		    TRY(memory, 0, LEN, IB_MEMREG_ACCESS_FLUSH_PERSISTENT));
	EXPECT_FAIL(EACCES, READ_ONLY, TRY(twin, 0, LEN, LOCAL_WRITE));
	EXPECT_FAIL(EINVAL, REMOTE_WRITE, TRY(twin, 0, LEN, REMOTE_WRITE));
#undef TRY
	mr.flags = 0;
	mr.access = REMOTE_READ;
	mr.fd = memory;
	EXPECT_FAIL(EINVAL, RESERVED,
		    raw_call(self->fd, IB_MEMREG_IOC_MR_REGISTER, &mr));
	EXPECT_EQ(0, close(twin));
	EXPECT_EQ(0, close(memory));
}

/* Nobody pins what nobody can take away. */
TEST_F(memory, an_MR_pins_nothing_and_outlives_descriptor_and_mapping)
{
	int memory = raw_memory(self->fd, HUGE, 0);
	struct ib_memreg_mr_register mr;
	char *at;

	ASSERT_LE(0, memory);
	at = mem_map(memory, HUGE, PROT_RW);
	ASSERT_NE(NULL, at);
	ASSERT_EQ(0, raw_register_fd(self->fd, self->domain, memory, 0, HUGE,
				     ACCESS, &mr));
	RAW(mr_query, query, .mr_id = mr.out_mr_id);
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, close(memory));
	EXPECT_EQ(0, munmap(at, HUGE));
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &query));
	EXPECT_EQ(IB_MEMREG_MR_LIVE, query.out_state);
	EXPECT_EQ(0, query.out_pinned);
	EXPECT_EQ(0, query.out_addr);
	EXPECT_EQ(HUGE, query.out_length);
	EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
}

/* 8 MiB are more pages of 4096 bytes than a key has, and fewer huge ones. */
TEST_F(memory, keys_are_made_of_large_pages)
{
	struct ib_memreg_memory_create cmd = { .length = 8 * MiB };
	struct ib_memreg_mr_register mr;

	ASSERT_EQ(0, create(self, &cmd));
	ASSERT_EQ(0, raw_register_fd(self->fd, self->domain, cmd.out_fd, 0,
				     8 * MiB, ACCESS, &mr));
	if (cmd.out_block_shift == 21)
		EXPECT_EQ(1, mr.out_segments);
	EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
	EXPECT_EQ(0, close(cmd.out_fd));
}

/*
 * Charges
 */

static void be_nobody(struct __test_metadata *_metadata, size_t may_lock)
{
	struct rlimit limit = { .rlim_cur = may_lock, .rlim_max = may_lock };

	ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	ASSERT_EQ(0, setgroups(0, NULL));
	ASSERT_EQ(0, setresuid(NOBODY, NOBODY, NOBODY));
	/* A change of the user clears PDEATHSIG, so set it again. */
	ASSERT_EQ(0, prctl(PR_SET_PDEATHSIG, SIGKILL));
}

/* Expect that memory up to the limit can be had, and not one page more. */
static void all_is_free(struct __test_metadata *_metadata, int fd)
{
	int most = raw_memory(fd, MAY_LOCK, 0);

	ASSERT_LE(0, most);
	EXPECT_FAIL(ENOMEM, MEMLOCK, raw_memory(fd, PAGE, 0));
	EXPECT_EQ(0, close(most));
}

/* The charge ends with the last MR, after the descriptor and the mapping. */
TEST_F(memory, I7_the_user_is_charged_until_the_last_use_ends)
{
	struct ib_memreg_mr_register mr;
	int memory, twin;
	char *at;

	IN_CHILD {
		be_nobody(_metadata, MAY_LOCK);
		all_is_free(_metadata, self->fd);
		memory = raw_memory(self->fd, MAY_LOCK, 0);
		ASSERT_LE(0, memory);
		twin = raw_memory_dup(self->fd, memory);
		ASSERT_LE(0, twin);
		at = mem_map(memory, MAY_LOCK, PROT_RW);
		ASSERT_NE(NULL, at);
		ASSERT_EQ(0, raw_register_fd(self->fd, self->domain, memory, 0,
					     MAY_LOCK, REMOTE_READ, &mr));
		EXPECT_EQ(0, close(memory));
		EXPECT_FAIL(ENOMEM, MEMLOCK, raw_memory(self->fd, PAGE, 0));
		EXPECT_EQ(0, munmap(at, MAY_LOCK));
		EXPECT_FAIL(ENOMEM, MEMLOCK, raw_memory(self->fd, PAGE, 0));
		EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
		EXPECT_FAIL(ENOMEM, MEMLOCK, raw_memory(self->fd, PAGE, 0));
		EXPECT_EQ(0, close(twin));
		all_is_free(_metadata, self->fd);
	}
}

/* With an RLIMIT_MEMLOCK of 0 no memory object can be made. */
TEST_F(memory, who_may_lock_nothing_has_none)
{
	IN_CHILD {
		be_nobody(_metadata, 0);
		EXPECT_FAIL(EPERM, MEMLOCK, raw_memory(self->fd, PAGE, 0));
	}
}

struct shared {
	int ready[2];
	int fd;
	int memory;
	__u32 domain;
};

/* A process that uses the memory in all ways, until it is killed */
static void use_until_killed(struct shared *s, bool creates)
{
	struct ib_memreg_mr_register mr;
	char *at;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	s->fd = raw_open_bound();
	if (creates)
		s->memory = raw_memory(s->fd, MAY_LOCK, 0);
	at = mem_map(s->memory, MAY_LOCK, PROT_RW);
	if (s->fd < 0 || !at || raw_domain(s->fd, &s->domain) ||
	    raw_register_fd(s->fd, s->domain, s->memory, 0, MAY_LOCK, ACCESS,
			    &mr) || raw_memory_dup(s->fd, s->memory) < 0)
		_exit(1);
	memset(at, 1, MAY_LOCK);
	if (write(s->ready[1], "x", 1) == 1)
		pause();
	_exit(1);
}

static pid_t user_start(struct shared *s, bool creates)
{
	pid_t child;
	char c;

	child = fork();
	if (!child)
		use_until_killed(s, creates);
	if (child < 0 || read(s->ready[0], &c, 1) != 1)
		return -1;
	return child;
}

static void user_kill(struct __test_metadata *_metadata, pid_t child)
{
	EXPECT_EQ(0, kill(child, SIGKILL));
	EXPECT_EQ(child, waitpid(child, NULL, 0));
}

/* The sharer has the creator's descriptor; either process may end first. */
TEST_F(memory, I7_SIGKILL_of_creator_and_sharer_in_either_order)
{
	bool creator_first;
	pid_t pids[2];
	int i;

	for (i = 0; i < 2; i++) {
		creator_first = i;
		IN_CHILD {
			struct shared s;

			be_nobody(_metadata, MAY_LOCK);
			ASSERT_EQ(0, pipe2(s.ready, O_CLOEXEC));
			s.memory = raw_memory(self->fd, MAY_LOCK, 0);
			ASSERT_LE(0, s.memory);
			pids[0] = user_start(&s, false);
			ASSERT_LT(0, pids[0]);
			pids[1] = user_start(&s, false);
			ASSERT_LT(0, pids[1]);
			EXPECT_EQ(0, close(s.memory));
			user_kill(_metadata, pids[creator_first]);
			EXPECT_FAIL(ENOMEM, MEMLOCK,
				    raw_memory(self->fd, PAGE, 0));
			user_kill(_metadata, pids[!creator_first]);
			all_is_free(_metadata, self->fd);
			pids[0] = user_start(&s, true);
			ASSERT_LT(0, pids[0]);
			EXPECT_FAIL(ENOMEM, MEMLOCK,
				    raw_memory(self->fd, PAGE, 0));
			user_kill(_metadata, pids[0]);
			all_is_free(_metadata, self->fd);
		}
	}
}

/* Accesses of a peer */

FIXTURE(memory_peer) {
	struct link link;
	struct stock *stock;
	struct ring ring;
	int memory;
	int twin;
	size_t length;
	uint8_t *at;
};

FIXTURE_VARIANT(memory_peer) {
	size_t length;
	bool huge;
};

/*
 * Memory in blocks of several sizes, in one block, and in blocks that are
 * mapped huge
 */
FIXTURE_VARIANT_ADD(memory_peer, small_blocks) {
	.length = LEN,
};

FIXTURE_VARIANT_ADD(memory_peer, one_block) {
	.length = 16 * PAGE,
};

FIXTURE_VARIANT_ADD(memory_peer, huge_blocks) {
	.length = 2 * HUGE,
	.huge = true,
};

FIXTURE_SETUP(memory_peer)
{
	struct ib_memreg_queues queues;

	self->length = variant->length;
	ASSERT_EQ(0, link_open(&self->link, self->length));
	self->stock = &self->link.stock;
	self->memory = raw_memory(self->link.fd, self->length, 0);
	ASSERT_LE(0, self->memory);
	self->twin = raw_memory_dup(self->link.fd, self->memory);
	ASSERT_LE(0, self->twin);
	self->at = (uint8_t *)(variant->huge ?
			       mem_map_huge(self->memory, self->length) :
			       mem_map(self->memory, self->length, PROT_RW));
	ASSERT_NE(NULL, self->at);
	fill(self->at, self->length, 1);
	ASSERT_EQ(0, ring_create(self->link.fd, &self->ring, 64, 64, 0, -1));
	queues = queues_on(self->ring.id, 16, 16, 1, 0);
	ASSERT_EQ(0, link_up(&self->link, &queues, true));
}

FIXTURE_TEARDOWN(memory_peer)
{
	munmap(self->at, self->length);
	close(self->memory);
	close(self->twin);
	link_close(&self->link);
	ring_unmap(&self->ring);
	EXPECT_EQ(0, vm_pin(0));
}

/* Edges of pages, of blocks and of the memory, and the middle of pages. */
static const struct {
	size_t offset, length;	/* length 0: to the end, less the offset */
} ranges[] = {
	{ 0, 0 }, { 1, 0 }, { PAGE - 1, 2 }, { PAGE, PAGE },
	{ 7 * PAGE + 100, PAGE }, { 3 * PAGE - 3, 5 * PAGE + 6 },
};

/*
 * The peer reads all bytes of a range, and writes all of them with another
 * pattern; no other byte changes.
 */
static void reach(struct __test_metadata *_metadata,
		  FIXTURE_DATA(memory_peer) *self, size_t offset, size_t length,
		  __u64 iova, __u32 rkey)
{
	const struct reach r = {
		.mem = self->at, .total = self->length,
		.offset = offset, .length = length,
		.iova = iova, .rkey = rkey,
	};

	stock_reaches(_metadata, self->stock, &r);
}

TEST_F(memory_peer, I6_the_peer_reaches_every_byte_and_no_other)
{
	struct ib_memreg_mr_register mr;
	size_t i, offset, length;

	for (i = 0; i < ARRAY_LEN(ranges); i++) {
		offset = ranges[i].offset;
		length = ranges[i].length ?: self->length - 2 * offset;
		ASSERT_EQ(0, raw_register_fd(self->link.fd, self->link.domain,
					     self->memory, offset, length,
					     ACCESS, &mr));
		EXPECT_EQ(1, mr.out_segments);
		reach(_metadata, self, offset, length, mr.iova, mr.out_rkey);
		EXPECT_EQ(0, raw_destroy(self->link.fd, mr.out_mr_id));
	}
	fill(self->at, self->length, 1);
	/* The peer cannot write behind the range of the MR, nor before it. */
	ASSERT_EQ(0, raw_register_fd(self->link.fd, self->link.domain,
				     self->memory, PAGE, PAGE, ACCESS, &mr));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(self->stock, 0, PAGE, mr.iova + 1, mr.out_rkey));
	EXPECT_TRUE(filled(self->at + 2 * PAGE, PAGE, 2 * PAGE, 1));
}

TEST_F(memory_peer, I6_a_byte_before_is_out_of_reach)
{
	struct ib_memreg_mr_register mr;

	ASSERT_EQ(0, raw_register_fd(self->link.fd, self->link.domain,
				     self->memory, PAGE, PAGE, ACCESS, &mr));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(self->stock, 0, 8, mr.iova - 1, mr.out_rkey));
	EXPECT_TRUE(filled(self->at, self->length, 0, 1));
}

TEST_F(memory_peer, atomics_windows_and_local_work_reach_it)
{
	struct ib_memreg_bind bind = {
		.offset = PAGE - 8,
		.length = PAGE,
		.access = REMOTE_READ | REMOTE_WRITE,
	};
	struct ibv_send_wr add = {
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic.compare_add = 7,
	};
	struct ib_memreg_mr_register mr;
	struct ib_memreg_wr wr;
	union entry entry;
	__u64 old, now;

	ASSERT_EQ(0, raw_register_fd(self->link.fd, self->link.domain,
				     self->memory, 0, self->length, ACCESS,
				     &mr));
	memcpy(&old, self->at + PAGE, sizeof(old));
	add.wr.atomic.remote_addr = mr.iova + PAGE;
	add.wr.atomic.rkey = mr.out_rkey;
	ASSERT_EQ(IBV_WC_SUCCESS, stock_do(self->stock, &add, 0, 8));
	memcpy(&now, self->at + PAGE, sizeof(now));
	EXPECT_EQ(old + 7, now);

	bind.mr_id = mr.out_mr_id;
	ASSERT_EQ(0, raw_windows(self->link.fd, self->link.domain, 2 * PAGE,
				 &bind.window_id, 1));
	ASSERT_EQ(0, raw_bind(self->link.fd, self->link.domain, &bind, 1));
	reach(_metadata, self, PAGE - 8, PAGE, bind.out_iova, bind.out_rkey);
	EXPECT_EQ(0, raw_revoke(self->link.fd, self->link.domain,
				&bind.window_id, 1));

	/*
	 * A WRITE sends bytes of the memory to the peer, and a READ fetches
	 * bytes into it.
	 */
	wr = WR(WRITE, self->link.endpoint,
		SGE(mr.out_mr_id, PAGE - 5, 2 * PAGE), .flags = SIGNALED,
		.remote_addr = (uintptr_t)self->stock->mem,
		.rkey = self->stock->mr->rkey);
	fill(self->at, self->length, 3);
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(0, entry.cqe.status);
	EXPECT_TRUE(filled(self->stock->mem, 2 * PAGE, PAGE - 5, 3));
	wr.opcode = OP(READ);
	fill(self->at, self->length, 4);
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1));
	ASSERT_EQ(0, ring_next(&self->ring, &entry));
	EXPECT_EQ(0, entry.cqe.status);
	EXPECT_TRUE(filled(self->at, PAGE - 5, 0, 4));
	EXPECT_TRUE(filled(self->at + PAGE - 5, 2 * PAGE, PAGE - 5, 3));
	EXPECT_TRUE(filled(self->at + 3 * PAGE - 5,
			   self->length - 3 * PAGE + 5, 3 * PAGE - 5, 4));
}

TEST_F(memory_peer, by_the_read_only_twin_the_peer_reads_and_does_not_write)
{
	struct ib_memreg_mr_register mr;
	struct stock *s = self->stock;

	ASSERT_EQ(0, raw_register_fd(self->link.fd, self->link.domain,
				     self->twin, 0, self->length, REMOTE_READ,
				     &mr));
	memset(s->mem, 0, self->length);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(s, 0, self->length, mr.iova,
					     mr.out_rkey));
	EXPECT_TRUE(filled(s->mem, self->length, 0, 1));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  stock_write(s, 0, 8, mr.iova, mr.out_rkey));
	EXPECT_TRUE(filled(self->at, self->length, 0, 1));
}

/*
 * Two processes share the memory, each with keys of its own. When one is
 * killed, the other's keys still work.
 */
TEST_F(memory_peer, a_process_that_shares_it_is_killed_and_the_peer_goes_on)
{
	struct ib_memreg_mr_register mr, other;
	int second = raw_open_bound();
	struct shared s = { .memory = self->memory };
	__u32 domain;
	pid_t child;

	ASSERT_LE(0, second);
	ASSERT_EQ(0, raw_domain(second, &domain));
	ASSERT_EQ(0, raw_register_fd(self->link.fd, self->link.domain,
				     self->memory, 0, self->length, ACCESS,
				     &mr));
	ASSERT_EQ(0, raw_register_fd(second, domain, self->memory, 0,
				     self->length, ACCESS, &other));
	EXPECT_NE(mr.out_rkey, other.out_rkey);
	ASSERT_EQ(0, pipe2(s.ready, O_CLOEXEC));
	if (self->length == MAY_LOCK) {
		child = user_start(&s, false);
		ASSERT_LT(0, child);
		user_kill(_metadata, child);
	}
	EXPECT_EQ(0, raw_destroy(second, other.out_mr_id));
	EXPECT_EQ(0, close(second));
	reach(_metadata, self, 0, self->length, mr.iova, mr.out_rkey);
	close(s.ready[0]);
	close(s.ready[1]);
}

struct reading {
	struct stock *stock;
	__u64 iova;
	__u32 rkey;
	_Atomic bool stop;
	_Atomic unsigned int done;
	_Atomic unsigned int bad;
};

static void *read_on(void *arg)
{
	struct reading *r = arg;

	while (!r->stop && !r->bad) {
		memset(r->stock->mem, 0, 2 * PAGE);
		r->bad += stock_read(r->stock, 0, 2 * PAGE, r->iova + 100,
				     r->rkey) != IBV_WC_SUCCESS ||
			  !filled(r->stock->mem, 2 * PAGE, 100, 1);
		r->done++;
	}
	return NULL;
}

/* Wait until the thread has begun another read and completed it. */
static bool reads_go_on(struct reading *r)
{
	unsigned int from = r->done;
	int64_t end = now_ms() + LIMIT_MS;

	while (r->done - from < 2 && !r->bad && now_ms() < end)
		usleep(1000);
	return r->done - from >= 2 && !r->bad;
}

/* Register the same memory by another file, and bind a window on it. */
static int share(int fd, int memory, size_t length, __u32 *domain, __u32 *mr,
		 __u32 *window)
{
	struct ib_memreg_mr_register reg;
	struct ib_memreg_bind bind = { .length = PAGE, .access = REMOTE_READ };
	int ret;

	ret = fd < 0 ? fd : raw_domain(fd, domain) ?:
	      raw_register_fd(fd, *domain, memory, 0, length, ACCESS, &reg) ?:
	      raw_windows(fd, *domain, PAGE, window, 1);
	if (ret)
		return ret;
	*mr = reg.out_mr_id;
	bind.mr_id = *mr;
	bind.window_id = *window;
	return raw_bind(fd, *domain, &bind, 1);
}

/*
 * A process registers the same memory, and is killed while the peer reads by
 * another key.
 */
static void share_and_be_killed(struct __test_metadata *_metadata, int memory,
				size_t length, struct reading *r)
{
	__u32 domain, mr, window;
	int ready[2];
	pid_t child;
	char c;

	ASSERT_EQ(0, pipe2(ready, O_CLOEXEC));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!share(raw_open_bound(), memory, length, &domain, &mr,
			   &window) && write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	EXPECT_EQ(1, read(ready[0], &c, 1));
	close(ready[0]);
	EXPECT_TRUE(reads_go_on(r));
	user_kill(_metadata, child);
	EXPECT_TRUE(reads_go_on(r));
}

/*
 * Other users of the memory revoke, deregister, close or are killed, while the
 * peer reads on.
 */
TEST_F_TIMEOUT(memory_peer, what_others_had_of_it_ends_and_the_peer_reads_on,
	       240)
{
	unsigned int i, rounds = test_rounds(10);
	struct ib_memreg_mr_register mr;
	struct reading r = { .stock = self->stock };
	__u32 domain, other, window;
	pthread_t reader;
	int second;

	ASSERT_EQ(0, raw_register_fd(self->link.fd, self->link.domain,
				     self->memory, 0, self->length, ACCESS,
				     &mr));
	r.iova = mr.iova;
	r.rkey = mr.out_rkey;
	ASSERT_EQ(0, pthread_create(&reader, NULL, read_on, &r));
	for (i = 0; i < rounds && !_metadata->exit_code; i++) {
		second = raw_open_bound();
		ASSERT_EQ(0, share(second, self->memory, self->length, &domain,
				   &other, &window));
		EXPECT_TRUE(reads_go_on(&r));
		EXPECT_EQ(0, raw_revoke(second, domain, &window, 1));
		EXPECT_TRUE(reads_go_on(&r));
		EXPECT_EQ(0, i % 2 ? raw_destroy(second, other) : 0);
		EXPECT_EQ(0, close(second));
		share_and_be_killed(_metadata, self->memory, self->length, &r);
	}
	r.stop = true;
	ASSERT_EQ(0, pthread_join(reader, NULL));
	EXPECT_EQ(0, r.bad);
}

/* The memory can be registered on a second device, with other rights. */
TEST_F(memory_peer, another_device_has_it_as_well)
{
	struct ib_memreg_mr_register mr, other;
	int second = raw_open_peer();
	__u32 domain;

	ASSERT_LE(0, second);
	ASSERT_EQ(0, raw_domain(second, &domain));
	ASSERT_EQ(0, raw_register_fd(second, domain, self->twin, 0,
				     self->length, REMOTE_READ, &other));
	EXPECT_EQ(1, other.out_segments);
	EXPECT_FAIL(EACCES, READ_ONLY,
		    raw_register_fd(second, domain, self->twin, 0,
				    self->length, LOCAL_WRITE, &mr));
	ASSERT_EQ(0, raw_register_fd(self->link.fd, self->link.domain,
				     self->memory, 0, self->length, ACCESS,
				     &mr));
	reach(_metadata, self, 0, self->length, mr.iova, mr.out_rkey);
	EXPECT_EQ(0, raw_destroy(second, other.out_mr_id));
	reach(_metadata, self, 0, self->length, mr.iova, mr.out_rkey);
	EXPECT_EQ(0, close(second));
	reach(_metadata, self, 0, self->length, mr.iova, mr.out_rkey);
}

/*
 * ibv_reg_mr(3) in a PD of the application takes the mapping like any other
 * memory.
 */
TEST_F(memory_peer, a_stock_program_registers_the_mapping)
{
	struct ibv_mr *mr = ibv_reg_mr(self->stock->pd, self->at, self->length,
				       IBV_ACCESS_LOCAL_WRITE |
				       IBV_ACCESS_REMOTE_READ);

	ASSERT_NE(NULL, mr);
	EXPECT_EQ((long)(self->length / PAGE) +
		  (long)(self->length / PAGE), vm_pin(0));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

TEST_HARNESS_MAIN
