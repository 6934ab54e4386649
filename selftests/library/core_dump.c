// SPDX-License-Identifier: GPL-2.0-only
/*
 * Core dumps: the kernel writes memory objects, pools and what is allocated of
 * a heap, unless the owner says MADV_DONTDUMP. Nobody writes address space that
 * is only reserved.
 *
 * time limit: 240
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "memreg.h"
#include "raw.h"
#include "test.h"

#define PATTERN		"/proc/sys/kernel/core_pattern"
#define USES_PID	"/proc/sys/kernel/core_uses_pid"
#define CORE		"/dev/shm/memreg-core"
#define LEN		(64 * KiB)
#define HEAP		(1024 * MiB)

FIXTURE(core_dump)
{
	char pattern[256];
	char uses_pid[16];
	struct memreg *m;
	uint32_t domain;
	struct memreg_heap *heap;
	struct memreg_pool *pool;
	struct memreg_memory memory;
	/* of the heap, of the pool, of the memory object, and none of a core */
	void *allocated;
	void *taken;
	void *mapped;
	void *hidden;
};

static int map_object(FIXTURE_DATA(core_dump) *self, void **at)
{
	struct memreg_memory memory;
	size_t length;
	int ret;

	ret = memreg_memory_create(self->m, LEN, IB_MEMREG_NODE_DEVICE, 0,
				   &memory);
	if (ret)
		return ret;
	ret = memreg_memory_map(memory.fd, PROT_READ | PROT_WRITE, at,
				&length);
	close(memory.fd);
	return ret;
}

FIXTURE_SETUP(core_dump)
{
	const struct memreg_heap_attr heap = {
		.access = LOCAL_WRITE, .node = IB_MEMREG_NODE_DEVICE,
		.limit = HEAP,
	};
	const struct memreg_pool_attr pool = {
		.buffer_size = LEN, .count = 2, .access = LOCAL_WRITE,
		.node = IB_MEMREG_NODE_DEVICE,
	};
	FILE *f = fopen(PATTERN, "r");

	ASSERT_NE(NULL, f);
	ASSERT_NE(NULL, fgets(self->pattern, sizeof(self->pattern), f));
	fclose(f);
	snprintf(self->uses_pid, sizeof(self->uses_pid), "%ld",
		 file_number(USES_PID));
	ASSERT_EQ(0, memreg_open(test_device(), &self->m));
	ASSERT_EQ(0, memreg_domain_create(self->m, 0, &self->domain));
	ASSERT_EQ(0, memreg_heap_create(self->m, self->domain, &heap,
					&self->heap));
	ASSERT_EQ(0, memreg_alloc(self->heap, LEN, &self->allocated));
	ASSERT_EQ(0, memreg_pool_create(self->m, self->domain, &pool,
					&self->pool));
	ASSERT_EQ(0, memreg_pool_take(self->pool, &self->taken));
	ASSERT_EQ(0, map_object(self, &self->mapped));
	ASSERT_EQ(0, map_object(self, &self->hidden));
}

FIXTURE_TEARDOWN(core_dump)
{
	file_write(PATTERN, self->pattern);
	file_write(USES_PID, self->uses_pid);
	unlink(CORE);
	munmap(self->mapped, LEN);
	munmap(self->hidden, LEN);
	EXPECT_EQ(0, memreg_pool_give(self->pool, self->taken));
	EXPECT_EQ(0, memreg_pool_destroy(self->pool));
	EXPECT_EQ(0, memreg_free(self->heap, self->allocated));
	EXPECT_EQ(0, memreg_heap_destroy(self->heap));
	memreg_close(self->m);
}

/* Words that are in no program, as they are made when it runs */
static void write_words(void *at, unsigned int seed)
{
	uint32_t *words = at;
	size_t i;

	for (i = 0; i < LEN / sizeof(*words); i++)
		words[i] = (seed << 24 | 0x5a0000) + (uint32_t)i;
}

/* Is all of that in the core, in a row? */
static bool is_in(const void *core, size_t size, unsigned int seed)
{
	void *words = malloc(LEN);
	bool found;

	if (!words)
		return false;
	write_words(words, seed);
	found = memmem(core, size, words, LEN);
	free(words);
	return found;
}

/*
 * The memory belongs to the process itself, as a child of fork() has neither
 * pool nor heap: the vfork() child shares it, and dies with a core.
 */
static int die_in_child(void)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	int status;
	pid_t child;

	child = vfork();
	if (!child) {
		setrlimit(RLIMIT_CORE, &all);
		signal(SIGQUIT, SIG_DFL);
		kill(getpid(), SIGQUIT);
		_exit(1);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -errno;
	return WIFSIGNALED(status) && WCOREDUMP(status) ? 0 : -ENOMSG;
}

TEST_F_TIMEOUT(core_dump, has_memory_that_is_registered, 240)
{
	struct stat st;
	void *core;
	int fd;

	write_words(self->allocated, 1);
	write_words(self->taken, 2);
	write_words(self->mapped, 3);
	write_words(self->hidden, 4);
	ASSERT_EQ(0, madvise(self->hidden, LEN, MADV_DONTDUMP));
	/* It can't be taken back. */
	EXPECT_EQ(-1, madvise(self->hidden, LEN, MADV_DODUMP));
	EXPECT_EQ(EINVAL, errno);
	ASSERT_EQ(0, file_write(PATTERN, CORE));
	ASSERT_EQ(0, file_write(USES_PID, "0"));
	ASSERT_EQ(0, die_in_child());
	fd = open(CORE, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, fstat(fd, &st));
	TH_LOG("the core has %lld KiB", (long long)st.st_size >> 10);
	EXPECT_GT(HEAP / 8, (unsigned long)st.st_size);
	core = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	ASSERT_NE(MAP_FAILED, core);
	EXPECT_TRUE(is_in(core, (size_t)st.st_size, 1));
	EXPECT_TRUE(is_in(core, (size_t)st.st_size, 2));
	EXPECT_TRUE(is_in(core, (size_t)st.st_size, 3));
	EXPECT_FALSE(is_in(core, (size_t)st.st_size, 4));
	munmap(core, (size_t)st.st_size);
	close(fd);
}

/*
 * Debuggers read other flags of mappings than the kernel does: "dd" is the one
 * that both keep to.
 */
TEST_F(core_dump, has_no_address_space_that_is_reserved)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long start, end, size = 0;
	unsigned int reserved = 0;
	char line[512], *flags;

	ASSERT_NE(NULL, f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			size = end - start;
		flags = strstr(line, "VmFlags:");
		if (!flags || size < HEAP / 2)
			continue;
		reserved++;
		EXPECT_NE(NULL, strstr(flags, " dd")) {
			TH_LOG("%lx-%lx: %s", start, end, flags);
		}
	}
	fclose(f);
	EXPECT_LT(0, reserved);
}

TEST_HARNESS_MAIN
