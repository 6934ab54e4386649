// SPDX-License-Identifier: GPL-2.0-only
/*
 * Guards, when the kernel changes memory by itself, or when mappings beside an
 * MR change. Pinned pages stay mapped, so most of these events must not kill
 * keys. Where the kernel announces a change that it does not make, an MR may be
 * lost, but then it is SPURIOUS: never STALE, and its keys never lead to pages
 * that are not mapped.
 *
 * time limit: 240
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "reclaim.h"
#include "state.h"
#include "test.h"

#define ACCESS		(LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE)
#define LENGTH		(64 * PAGE)
/* An event is decided within a second: Documentation/overview.rst. */
#define BOUND_MS	1000
#define SLACK_MS	4000

FIXTURE(neighbours) {
	int fd;
	__u32 domain;
	__u32 mr;
	char *memory;
	size_t length;
	int file;
};

FIXTURE_SETUP(neighbours)
{
	self->file = -1;
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
}

FIXTURE_TEARDOWN(neighbours)
{
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
	if (self->memory)
		mem_free(self->memory, self->length);
	if (self->file >= 0)
		close(self->file);
}

/*
 * MRs and their states
 */

/*
 * Map private memory of equal base pages. KSM merges those that are not pinned.
 */
static void private_memory(struct __test_metadata *_metadata,
			   FIXTURE_DATA(neighbours) *self, size_t length)
{
	self->length = length;
	self->memory = mem_alloc(length);
	ASSERT_NE(NULL, self->memory);
	ASSERT_EQ(0, madvise(self->memory, length, MADV_NOHUGEPAGE));
	memset(self->memory, 0x5a, length);
}

static void shared_memory(struct __test_metadata *_metadata,
			  FIXTURE_DATA(neighbours) *self, size_t length)
{
	self->length = length;
	self->file = memfd_create("neighbours", MFD_CLOEXEC);
	ASSERT_LE(0, self->file);
	ASSERT_EQ(0, ftruncate(self->file, length));
	self->memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED,
			    self->file, 0);
	ASSERT_NE(MAP_FAILED, self->memory);
	memset(self->memory, 0x5a, length);
}

static void register_it(struct __test_metadata *_metadata,
			FIXTURE_DATA(neighbours) *self, size_t offset,
			size_t length)
{
	ASSERT_EQ(0, raw_register(self->fd, self->domain,
				  self->memory + offset, length, ACCESS,
				  &self->mr));
}

static struct ib_memreg_mr_query query(struct __test_metadata *_metadata,
				       FIXTURE_DATA(neighbours) *self)
{
	RAW(mr_query, cmd, .mr_id = self->mr);

	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_QUERY, &cmd));
	return cmd;
}

static __u32 state_now(struct __test_metadata *_metadata,
		       FIXTURE_DATA(neighbours) *self)
{
	return query(_metadata, self).out_state;
}

/*
 * State of the MR once the bound on decisions has passed: nothing else shows
 * that all events are decided. If a look comes late, on a busy machine, the MR
 * is stale for a moment before.
 */
static __u32 settled_state(struct __test_metadata *_metadata,
			   FIXTURE_DATA(neighbours) *self)
{
	long end = now_ms() + BOUND_MS + BOUND_MS / 10;
	__u32 state;

	do {
		usleep(10000);
		state = state_now(_metadata, self);
	} while (state != IB_MEMREG_MR_SPURIOUS &&
		 now_ms() < (state == IB_MEMREG_MR_STALE ? end + SLACK_MS :
							   end));
	return state;
}

#define EXPECT_LIVE()							\
	EXPECT_EQ(IB_MEMREG_MR_LIVE, settled_state(_metadata, self))

/* Spurious or live, and MR_QUERY reports which. */
#define EXPECT_PAGES_STAY(_what)					\
	do {								\
		__u32 _state = settled_state(_metadata, self);		\
									\
		EXPECT_NE(IB_MEMREG_MR_STALE, _state);			\
		TH_LOG("%s: the MR is %s, %llu suspects", _what,	\
		       _state == IB_MEMREG_MR_LIVE ? "live" : "spurious", \
		       query(_metadata, self).out_suspects);		\
	} while (0)

/*
 * The kernel on its own account
 */

/* Equal pages are merged, except pinned ones. */
TEST_F_TIMEOUT(neighbours, I2_KSM_leaves_the_mr_live, 240)
{
	if (!ksm_on())
		SKIP(return, "this kernel has no KSM");
	private_memory(_metadata, self, 2 * LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	memset(self->memory + LENGTH, 0xa5, LENGTH);
	ASSERT_EQ(0, madvise(self->memory, self->length, MADV_MERGEABLE));
	ASSERT_TRUE(ksm_scans(4));
	/*
	 * KSM merged the half that is not registered, so it tried the other
	 * half.
	 */
	EXPECT_LT(0, file_number("/sys/kernel/mm/ksm/pages_sharing"));
	EXPECT_LT(0, query(_metadata, self).out_suspects);
	TH_LOG("%llu suspects, %ld pages merged",
	       query(_metadata, self).out_suspects,
	       file_number("/sys/kernel/mm/ksm/pages_sharing"));
	EXPECT_LIVE();
	ASSERT_EQ(0, file_write("/sys/kernel/mm/ksm/run", "2"));
	EXPECT_LIVE();
}

/*
 * Half of the file is registered. Pages that are not go to swap, which shows
 * that the kernel tried. A fault brings them back, and the same page is there.
 */
TEST_F_TIMEOUT(neighbours, I2_paging_out_shmem_leaves_the_mr_live, 240)
{
	const char *missing = swap_on();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, stay_here());
	shared_memory(_metadata, self, 2 * LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	ASSERT_EQ(0, madvise(self->memory, self->length, MADV_PAGEOUT));
	TH_LOG("%llu suspects, %ld KiB paged out",
	       query(_metadata, self).out_suspects,
	       swapped_kib(self->memory));
	EXPECT_LT(0, query(_metadata, self).out_suspects);
	EXPECT_EQ((long)LENGTH >> 10, swapped_kib(self->memory));
	EXPECT_LIVE();
	EXPECT_EQ(0x5a, self->memory[0]);
	EXPECT_LIVE();
	EXPECT_EQ(0, swap_off());
}

#define READERS		3

/*
 * Processes that keep the inode of a file locked for most of the time, by a
 * read-only descriptor, on any CPU
 */
static void keep_inode_locked(struct __test_metadata *_metadata, int file,
			      pid_t *pids)
{
	cpu_set_t cpus;
	char path[32];
	int fd, i;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, fd);
	for (i = 0; i < READERS; i++) {
		pids[i] = fork();
		ASSERT_LE(0, pids[i]);
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memset(&cpus, 0xff, sizeof(cpus));
		sched_setaffinity(0, sizeof(cpus), &cpus);
		while (lseek(fd, 0, SEEK_HOLE) >= 0)
			;
		_exit(1);
	}
	close(fd);
}

static __u64 looks_without_result(struct __test_metadata *_metadata,
				  FIXTURE_DATA(neighbours) *self)
{
	__u64 n = 0;

	EXPECT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_GUARD_LATER, &n));
	return n;
}

/*
 * Processes that may only read a file cannot end an MR on its pages. The file
 * has no hole, so it takes long to look for one.
 */
TEST_F_TIMEOUT(neighbours, I2_readers_of_the_file_leave_the_mr_live, 240)
{
	const char *missing = swap_on();
	pid_t pids[READERS];
	__u64 later;
	int i;

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, stay_here());
	shared_memory(_metadata, self, 64 * LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	keep_inode_locked(_metadata, self->file, pids);
	later = looks_without_result(_metadata, self);
	ASSERT_EQ(0, madvise(self->memory, LENGTH, MADV_PAGEOUT));
	EXPECT_LT(0, query(_metadata, self).out_suspects);
	EXPECT_LIVE();
	EXPECT_EQ(later, looks_without_result(_metadata, self));
	for (i = 0; i < READERS; i++) {
		EXPECT_EQ(0, kill(pids[i], SIGKILL));
		EXPECT_EQ(pids[i], waitpid(pids[i], NULL, 0));
	}
	EXPECT_EQ(0, swap_off());
}

TEST_F_TIMEOUT(neighbours, I2_paging_out_private_memory_leaves_the_mr_live, 240)
{
	const char *missing = swap_on();

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, stay_here());
	private_memory(_metadata, self, 2 * LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	ASSERT_EQ(0, madvise(self->memory, self->length, MADV_PAGEOUT));
	EXPECT_EQ((long)LENGTH >> 10, swapped_kib(self->memory));
	EXPECT_LIVE();
	EXPECT_EQ(0, swap_off());
}

/* A page that was read from swap stays in the swap cache as well. */
TEST_F_TIMEOUT(neighbours, I2_paging_out_again_leaves_the_mr_live, 240)
{
	const char *missing = slow_swap_on();
	volatile char *byte;
	size_t i;

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, stay_here());
	private_memory(_metadata, self, LENGTH);
	ASSERT_EQ(0, madvise(self->memory, self->length, MADV_PAGEOUT));
	EXPECT_EQ((long)LENGTH >> 10, swapped_kib(self->memory));
	for (byte = self->memory, i = 0; i < LENGTH; i += PAGE)
		EXPECT_EQ(0x5a, byte[i]);
	register_it(_metadata, self, 0, LENGTH);
	/* Pages that are still being written to swap stay mapped. */
	AWAIT(!madvise(self->memory, self->length, MADV_PAGEOUT) &&
	      query(_metadata, self).out_suspects);
	TH_LOG("%llu suspects, %ld KiB paged out",
	       query(_metadata, self).out_suspects,
	       swapped_kib(self->memory));
	EXPECT_LIVE();
	/* A fault brings the same page back. */
	for (i = 0; i < LENGTH; i += PAGE)
		byte[i]++;
	EXPECT_LIVE();
	ASSERT_EQ(0, raw_destroy(self->fd, self->mr));
	EXPECT_EQ(0, slow_swap_off());
}

/*
 * The machine is busy
 */

#define BUSY_LENGTH	(32 * MiB)
#define WQ_CPUS		"/sys/devices/virtual/workqueue/cpumask"

/**
 * struct busy - Threads that keep something busy
 * @memory: Memory of which one thread changes the protection
 * @stop_cpu: The thread that leaves others no CPU is to end
 * @stop_lock: The thread that holds mmap_lock is to end
 * @cpu: The former
 * @lock: The latter
 */
struct busy {
	char *memory;
	atomic_bool stop_cpu;
	atomic_bool stop_lock;
	pthread_t cpu;
	pthread_t lock;
};

static int run_on(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	return sched_setaffinity(0, sizeof(cpus), &cpus);
}

static void *take_cpu(void *arg)
{
	const struct sched_param highest = { .sched_priority = 99 };
	struct busy *busy = arg;

	if (run_on(1) || sched_setscheduler(0, SCHED_FIFO, &highest))
		return (void *)-1;
	while (!atomic_load(&busy->stop_cpu))
		;
	return NULL;
}

/* Changing the protection of many pages takes long, with mmap_lock held. */
static void *hold_mmap_lock(void *arg)
{
	struct busy *busy = arg;
	int prot = PROT_READ;

	if (run_on(0))
		return (void *)-1;
	while (!atomic_load(&busy->stop_lock)) {
		if (mprotect(busy->memory, BUSY_LENGTH, prot))
			return (void *)-1;
		prot ^= PROT_WRITE;
	}
	return NULL;
}

/* Leave the workers no CPU but 1, and that one to real-time tasks alone. */
static bool workers_on_cpu_1(void)
{
	file_write("/proc/sys/kernel/sched_rt_runtime_us", "-1");
	file_write("/sys/kernel/debug/sched/fair_server/cpu1/runtime", "0");
	return !file_write(WQ_CPUS, "2");
}

static void workers_on_all_cpus(void)
{
	file_write(WQ_CPUS, "f");
	file_write("/sys/kernel/debug/sched/fair_server/cpu1/runtime",
		   "50000000");
	file_write("/proc/sys/kernel/sched_rt_runtime_us", "950000");
}

/*
 * One event, after which the worker gets no CPU for longer than the bound; the
 * first look is refused, and the next one is not. Returns the number of looks
 * that were refused.
 */
static __u64 look_late(struct __test_metadata *_metadata,
		       FIXTURE_DATA(neighbours) *self, struct busy *busy)
{
	__u64 before = looks_without_result(_metadata, self);
	int64_t end = now_ms() + BOUND_MS + BOUND_MS / 5;
	void *failed;

	atomic_store(&busy->stop_cpu, false);
	atomic_store(&busy->stop_lock, false);
	EXPECT_EQ(0, pthread_create(&busy->cpu, NULL, take_cpu, busy));
	EXPECT_EQ(0, pthread_create(&busy->lock, NULL, hold_mmap_lock, busy));
	/* The event is one that changes nothing for the MR. */
	EXPECT_EQ(0, mprotect(self->memory, LENGTH, PROT_READ | PROT_WRITE |
			      PROT_EXEC));
	while (now_ms() < end)
		usleep(10000);
	atomic_store(&busy->stop_cpu, true);
	EXPECT_EQ(0, pthread_join(busy->cpu, &failed));
	EXPECT_EQ(NULL, failed);
	for (end = now_ms() + 100; now_ms() < end; usleep(1000))
		if (looks_without_result(_metadata, self) > before)
			break;
	atomic_store(&busy->stop_lock, true);
	EXPECT_EQ(0, pthread_join(busy->lock, &failed));
	EXPECT_EQ(NULL, failed);
	EXPECT_EQ(0, mprotect(self->memory, LENGTH, PROT_READ | PROT_WRITE));
	return looks_without_result(_metadata, self) - before;
}

/* Rounds, of which at least one has a look that is refused */
#define LATE_ROUNDS	10

TEST_F_TIMEOUT(neighbours, I2_looks_that_come_late_leave_the_mr_live, 240)
{
	struct busy busy = { .memory = mem_alloc(BUSY_LENGTH) };
	unsigned int round;
	__u64 refused = 0;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU alone");
	ASSERT_NE(NULL, busy.memory);
	ASSERT_EQ(0, madvise(busy.memory, BUSY_LENGTH, MADV_NOHUGEPAGE));
	memset(busy.memory, 1, BUSY_LENGTH);
	ASSERT_EQ(0, run_on(0));
	private_memory(_metadata, self, LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	if (!workers_on_cpu_1())
		SKIP(return, "workers can't be kept from a CPU");
	for (round = 0; !refused && round < LATE_ROUNDS; round++)
		refused = look_late(_metadata, self, &busy);
	workers_on_all_cpus();
	TH_LOG("%llu looks refused, in %u rounds", refused, round);
	EXPECT_LT(0, refused);
	EXPECT_LIVE();
	mem_free(busy.memory, BUSY_LENGTH);
}

#define CGROUP		"/sys/fs/cgroup/neighbours"

static const char *cgroup_enter(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	if (!cgroup_make(CGROUP, "+memory"))
		return "no memory cgroup";
	if (access(CGROUP "/memory.reclaim", W_OK))
		return "the memory cgroup has no memory.reclaim";
	if (file_write(CGROUP "/cgroup.procs", pid))
		return "can't enter a cgroup";
	return NULL;
}

/*
 * The memory of the MR is charged to the cgroup; the process's earlier memory
 * is charged to another one.
 */
TEST_F_TIMEOUT(neighbours, I2_reclaim_of_a_cgroup_leaves_the_mr_live, 240)
{
	const char *missing = swap_on() ?: cgroup_enter();
	char pid[16];

	if (missing)
		SKIP(return, "%s", missing);
	shared_memory(_metadata, self, 2 * LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	/*
	 * The write fails with EAGAIN, as half of the memory is pinned. A
	 * swappiness of 200 reclaims no pages of files.
	 */
	file_write(CGROUP "/memory.reclaim", "512K swappiness=200");
	TH_LOG("%llu suspects, %ld KiB paged out",
	       query(_metadata, self).out_suspects,
	       swapped_kib(self->memory));
	EXPECT_LT(0, swapped_kib(self->memory));
	EXPECT_LIVE();
	snprintf(pid, sizeof(pid), "%d", getpid());
	EXPECT_EQ(0, file_write("/sys/fs/cgroup/cgroup.procs", pid));
	EXPECT_EQ(0, swap_off());
}

/* Compaction tries to move pages of files, and finds that they are pinned. */
TEST_F_TIMEOUT(neighbours, compaction_leaves_the_pages, 240)
{
	shared_memory(_metadata, self, LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	if (file_write("/proc/sys/vm/compact_memory", "1"))
		SKIP(return, "this kernel can't compact memory");
	EXPECT_PAGES_STAY("compaction");
}

TEST_F_TIMEOUT(neighbours, I2_tracking_of_dirty_pages_leaves_the_mr_live, 240)
{
	private_memory(_metadata, self, LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	if (file_write("/proc/self/clear_refs", "4"))
		SKIP(return, "this kernel doesn't track dirty pages");
	self->memory[0]++;
	EXPECT_LIVE();
}

/*
 * Move the pages to another node, or if there is none to the node that they are
 * on.
 */
TEST_F_TIMEOUT(neighbours, moving_pages_leaves_them, 240)
{
	int nodes[] = { 1 }, status[] = { 0 };
	void *pages[1];

	private_memory(_metadata, self, LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	pages[0] = self->memory;
	if (access("/sys/devices/system/node/node1", F_OK))
		SKIP(return, "there is one NUMA node");
	syscall(SYS_move_pages, 0, 1, pages, nodes, status, 2 /* MOVE */);
	EXPECT_PAGES_STAY("move_pages");
}

/* fork: the child gets copies of private pages that are pinned */

static void fork_and_write(struct __test_metadata *_metadata,
			   FIXTURE_DATA(neighbours) *self)
{
	pid_t pid = fork();
	size_t i;

	ASSERT_LE(0, pid);
	if (!pid) {
		memset(self->memory, 1, self->length);
		_exit(0);
	}
	for (i = 0; i < self->length; i += PAGE)
		self->memory[i]++;
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
}

TEST_F_TIMEOUT(neighbours, I2_fork_leaves_private_base_pages_live, 240)
{
	private_memory(_metadata, self, LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	fork_and_write(_metadata, self);
	EXPECT_LIVE();
}

TEST_F_TIMEOUT(neighbours, I2_fork_leaves_shared_memory_live, 240)
{
	shared_memory(_metadata, self, LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	fork_and_write(_metadata, self);
	EXPECT_LIVE();
}

static void huge_memory(struct __test_metadata *_metadata,
			FIXTURE_DATA(neighbours) *self, size_t length)
{
	(void)_metadata;
	self->length = length;
	self->memory = mem_thp(length);
}

TEST_F_TIMEOUT(neighbours, fork_leaves_the_pages_of_a_huge_page, 240)
{
	huge_memory(_metadata, self, HUGE);
	if (!self->memory)
		SKIP(return, "no transparent huge pages came");
	register_it(_metadata, self, 0, HUGE);
	fork_and_write(_metadata, self);
	EXPECT_PAGES_STAY("fork with a huge page");
}

TEST_F_TIMEOUT(neighbours, I2_fork_without_the_memory_leaves_the_mr_live, 240)
{
	pid_t pid;

	huge_memory(_metadata, self, HUGE);
	if (!self->memory)
		SKIP(return, "no transparent huge pages came");
	ASSERT_EQ(0, madvise(self->memory, HUGE, MADV_DONTFORK));
	register_it(_metadata, self, 0, HUGE);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(0);
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_LIVE();
}

/* Changes of neighbouring memory, on the same huge page or on the next one */

static int neighbour_munmap(char *addr, size_t length)
{
	return munmap(addr, length);
}

static int neighbour_dontneed(char *addr, size_t length)
{
	return madvise(addr, length, MADV_DONTNEED);
}

static int neighbour_mprotect(char *addr, size_t length)
{
	return mprotect(addr, length, PROT_READ);
}

static int neighbour_mremap(char *addr, size_t length)
{
	void *to = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);

	return mremap(addr, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
		      to) == to ? munmap(to, length) : -1;
}

static const struct {
	const char *name;
	int (*change)(char *addr, size_t length);
} changes[] = {
	{ "munmap", neighbour_munmap },
	{ "MADV_DONTNEED", neighbour_dontneed },
	{ "mprotect", neighbour_mprotect },
	{ "mremap", neighbour_mremap },
};

/*
 * An MR on base pages. What splits its mapping in the same 2 MiB is announced as
 * a change of all of them, unless the MR has a mapping of its own.
 */
TEST_F_TIMEOUT(neighbours, splitting_a_mapping_leaves_the_pages, 240)
{
	unsigned int i;
	char *start;

	for (i = 0; i < 2 * ARRAY_LEN(changes); i++) {
		private_memory(_metadata, self, 2 * HUGE);
		start = (char *)(((uintptr_t)self->memory + HUGE - 1) & -HUGE);
		if (i & 1)
			ASSERT_EQ(0, mprotect(start + LENGTH, PAGE, PROT_NONE));
		register_it(_metadata, self, start - self->memory, LENGTH);
		ASSERT_EQ(0, changes[i / 2].change(start + HUGE - PAGE, PAGE));
		if (i & 1) {
			EXPECT_LIVE();
		} else {
			EXPECT_PAGES_STAY(changes[i / 2].name);
		}
		ASSERT_EQ(0, raw_destroy(self->fd, self->mr));
		mem_free(self->memory, self->length);
		self->memory = NULL;
	}
}

/* The MR is on the huge page of which another part changes. */
TEST_F_TIMEOUT(neighbours, splitting_a_huge_page_leaves_the_pages, 240)
{
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(changes); i++) {
		huge_memory(_metadata, self, HUGE);
		if (!self->memory)
			SKIP(return, "no transparent huge pages came");
		register_it(_metadata, self, 0, LENGTH);
		ASSERT_EQ(0, changes[i].change(self->memory + HUGE - PAGE,
					       PAGE));
		EXPECT_PAGES_STAY(changes[i].name);
		/*
		 * Whatever the state of the MR, its memory can be registered
		 * again.
		 */
		ASSERT_EQ(0, raw_destroy(self->fd, self->mr));
		register_it(_metadata, self, 0, LENGTH);
		EXPECT_EQ(IB_MEMREG_MR_LIVE, state_now(_metadata, self));
		ASSERT_EQ(0, raw_destroy(self->fd, self->mr));
		mem_free(self->memory, HUGE);
		self->memory = NULL;
	}
}

/*
 * The MR shares no huge page with what changes: it ends at one, or there are
 * none.
 */
static void neighbours_change(struct __test_metadata *_metadata,
			      FIXTURE_DATA(neighbours) *self, size_t offset,
			      size_t length)
{
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(changes); i++) {
		ASSERT_EQ(0, changes[i].change(self->memory + offset + length +
					       i * PAGE, PAGE));
		ASSERT_EQ(0, changes[i].change(self->memory + offset -
					       (i + 1) * PAGE, PAGE));
	}
	EXPECT_LIVE();
}

TEST_F_TIMEOUT(neighbours, I2_changes_beside_base_pages_leave_the_mr_live, 240)
{
	private_memory(_metadata, self, 3 * LENGTH);
	register_it(_metadata, self, LENGTH, LENGTH);
	neighbours_change(_metadata, self, LENGTH, LENGTH);
}

TEST_F_TIMEOUT(neighbours, I2_changes_beside_huge_pages_leave_the_mr_live, 240)
{
	huge_memory(_metadata, self, 3 * HUGE);
	if (!self->memory)
		SKIP(return, "no transparent huge pages came");
	register_it(_metadata, self, HUGE, HUGE);
	neighbours_change(_metadata, self, HUGE, HUGE);
}

/* khugepaged would make a huge page of base pages that are pinned. */
TEST_F_TIMEOUT(neighbours, collapsing_leaves_the_pages, 240)
{
	char *start;
	int ret;

	private_memory(_metadata, self, 2 * HUGE);
	start = (char *)(((uintptr_t)self->memory + HUGE - 1) & -HUGE);
	register_it(_metadata, self, start - self->memory, LENGTH);
	ASSERT_EQ(0, madvise(self->memory, self->length, MADV_HUGEPAGE));
	ret = madvise(start, HUGE, MADV_COLLAPSE);
	if (ret && errno == EINVAL)
		SKIP(return, "this kernel can't collapse pages on demand");
	EXPECT_NE(0, ret);
	EXPECT_PAGES_STAY("MADV_COLLAPSE");
}

/* MADV_FREE: notifiers see it as MADV_DONTNEED, but the pages stay mapped. */
TEST_F_TIMEOUT(neighbours, pages_that_may_be_freed_stay, 240)
{
	private_memory(_metadata, self, LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	ASSERT_EQ(0, madvise(self->memory, LENGTH, MADV_FREE));
	EXPECT_PAGES_STAY("MADV_FREE");
	/* The memory can be registered again. */
	ASSERT_EQ(0, raw_destroy(self->fd, self->mr));
	register_it(_metadata, self, 0, LENGTH);
	EXPECT_EQ(IB_MEMREG_MR_LIVE, state_now(_metadata, self));
}

/* Move pages to another address by UFFDIO_MOVE. Returns -errno on failure. */
static int move_by_userfaultfd(char *from, size_t length)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { .len = length },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffdio_move move = { .src = (uintptr_t)from, .len = length };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC), ret;
	void *to;

	to = mmap(NULL, length, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || to == MAP_FAILED || ioctl(fd, UFFDIO_API, &api))
		return -EOPNOTSUPP;
	reg.range.start = (uintptr_t)to;
	move.dst = (uintptr_t)to;
	if (ioctl(fd, UFFDIO_REGISTER, &reg))
		return -EOPNOTSUPP;
	ret = ioctl(fd, UFFDIO_MOVE, &move) ? -errno : 0;
	close(fd);
	munmap(to, length);
	return ret;
}

TEST_F_TIMEOUT(neighbours, pinned_pages_can_not_be_moved, 240)
{
	int ret;

	private_memory(_metadata, self, LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	ret = move_by_userfaultfd(self->memory, LENGTH);
	if (ret == -EOPNOTSUPP || ret == -EINVAL)
		SKIP(return, "this kernel moves no pages");
	EXPECT_EQ(-EBUSY, ret);
	EXPECT_PAGES_STAY("UFFDIO_MOVE");
}

TEST_F_TIMEOUT(neighbours, pinned_pages_can_not_be_taken_offline, 240)
{
	int ret;

	private_memory(_metadata, self, LENGTH);
	register_it(_metadata, self, 0, LENGTH);
	ret = madvise(self->memory, PAGE, MADV_SOFT_OFFLINE) ? -errno : 0;
	if (ret == -EINVAL || ret == -EOPNOTSUPP)
		SKIP(return, "this kernel takes no pages offline");
	EXPECT_NE(0, ret);
	EXPECT_PAGES_STAY("MADV_SOFT_OFFLINE");
}

/*
 * Protection that comes back: if the worker looks in between, the mapping does
 * not allow what the keys do, otherwise nothing has happened.
 */
TEST_F_TIMEOUT(neighbours, protection_that_comes_back_is_seen_or_not, 240)
{
	unsigned int i, live = 0, rounds = 5;

	private_memory(_metadata, self, LENGTH);
	for (i = 0; i < rounds; i++) {
		register_it(_metadata, self, 0, LENGTH);
		ASSERT_EQ(0, mprotect(self->memory, LENGTH, PROT_READ));
		ASSERT_EQ(0, mprotect(self->memory, LENGTH,
				      PROT_READ | PROT_WRITE));
		EXPECT_LT(0, query(_metadata, self).out_suspects);
		live += settled_state(_metadata, self) == IB_MEMREG_MR_LIVE;
		ASSERT_EQ(0, raw_destroy(self->fd, self->mr));
	}
	EXPECT_LT(0, live);
	TH_LOG("the MR was live %u of %u times", live, rounds);
}

TEST_HARNESS_MAIN
