// SPDX-License-Identifier: GPL-2.0-only
/*
 * Guards: a peer writes as fast as it can while the mapping of the memory is
 * removed. As soon as the call that removes it has returned, the old keys are
 * refused, and no write of the peer reaches the memory that is mapped there
 * now.
 *
 * time limit: 480
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "net.h"
#include "owner.h"
#include "peer.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define SPAN	(64 * PAGE)
#define FILLER	0x5a
/*
 * An event is decided within a second: Documentation/overview.rst. A machine
 * that is slow gets more time.
 */
#define BOUND_MS	1000
#define SLACK_MS	4000
/* However many guards a process had */
#define EXIT_MS		10000

#define INSTANCE	TRACEFS "/instances/memreg-guard"
#define EVENT		INSTANCE "/events/ib_memreg/memreg_guard_event"

FIXTURE(guard)
{
	struct owner o;
	int file;		/* memfd behind the memory, or -1 */
	uint8_t *mem;
	struct memreg_mr mr;
	uint32_t window;
	struct ib_memreg_bind bind;
	struct peer p;
	uint32_t endpoint;
};

/* Ways to take away at least the first page of the memory */
static int by_munmap(FIXTURE_DATA(guard) *self)
{
	return munmap(self->mem, PAGE);
}

static int by_mremap(FIXTURE_DATA(guard) *self)
{
	uint8_t *to = mmap(NULL, SPAN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	if (to == MAP_FAILED)
		return -1;
	return mremap(self->mem, SPAN, SPAN, MREMAP_MAYMOVE | MREMAP_FIXED,
		      to) == to ? 0 : -1;
}

static int by_map_fixed(FIXTURE_DATA(guard) *self)
{
	return mmap(self->mem, SPAN, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		    0) == self->mem ? 0 : -1;
}

static int by_dontneed(FIXTURE_DATA(guard) *self)
{
	return madvise(self->mem, PAGE, MADV_DONTNEED);
}

static int by_truncate(FIXTURE_DATA(guard) *self)
{
	return ftruncate(self->file, 0);
}

static int by_punch_hole(FIXTURE_DATA(guard) *self)
{
	return fallocate(self->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 0, PAGE);
}

struct job {
	int (*take)(FIXTURE_DATA(guard) *self);
	FIXTURE_DATA(guard) *self;
	int result;
};

static void *run_job(void *arg)
{
	struct job *job = arg;

	job->result = job->take(job->self);
	return NULL;
}

static int by_this_thread(struct job *job)
{
	run_job(job);
	return job->result;
}

static int by_other_thread(struct job *job)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run_job, job))
		return -1;
	pthread_join(thread, NULL);
	return job->result;
}

static int by_other_process(struct job *job)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(job->take(job->self) ? 1 : 0);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return status;
}

static int run_child(void *job)
{
	run_job(job);
	return 0;
}

/* Do the job in another process that shares our address space. */
static int by_other_process_here(struct job *job)
{
	static uint8_t stack[1 << 16] __attribute__((aligned(16)));
	pid_t pid = clone(run_child, stack + sizeof(stack), CLONE_VM | SIGCHLD,
			  job);
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return -1;
	return job->result;
}

FIXTURE_VARIANT(guard)
{
	int (*take)(FIXTURE_DATA(guard) *self);
	int (*who)(struct job *job);
	bool file;
};

#define WAY(_name, _take, _who, _file)					\
	FIXTURE_VARIANT_ADD(guard, _name)				\
	{								\
		.take = _take, .who = _who, .file = _file,		\
	}

WAY(munmap, by_munmap, by_this_thread, false);
WAY(munmap_of_file, by_munmap, by_this_thread, true);
WAY(munmap_by_thread, by_munmap, by_other_thread, false);
WAY(munmap_by_process, by_munmap, by_other_process_here, false);
WAY(mremap, by_mremap, by_this_thread, false);
WAY(mremap_by_thread, by_mremap, by_other_thread, false);
WAY(mremap_by_process, by_mremap, by_other_process_here, false);
WAY(map_fixed, by_map_fixed, by_this_thread, false);
WAY(map_fixed_by_thread, by_map_fixed, by_other_thread, true);
WAY(map_fixed_by_process, by_map_fixed, by_other_process_here, false);
WAY(dontneed, by_dontneed, by_this_thread, false);
WAY(dontneed_by_thread, by_dontneed, by_other_thread, false);
WAY(dontneed_by_process, by_dontneed, by_other_process_here, false);
WAY(truncate, by_truncate, by_this_thread, true);
WAY(truncate_by_thread, by_truncate, by_other_thread, true);
WAY(truncate_by_process, by_truncate, by_other_process, true);
WAY(punch_hole_by_process, by_punch_hole, by_other_process, true);

/* A counter of the device */
static uint64_t counter(struct __test_metadata *_metadata, struct owner *o,
			uint32_t stat)
{
	__u64 value;

	ASSERT_EQ(0, raw_stat(memreg_fd(o->m), stat, &value));
	return value;
}

static uint8_t *make_memory(struct __test_metadata *_metadata, bool file,
			    int *fd)
{
	uint8_t *mem;

	*fd = -1;
	if (file) {
		*fd = memfd_create("guard", MFD_CLOEXEC);
		ASSERT_LE(0, *fd);
		ASSERT_EQ(0, ftruncate(*fd, SPAN));
	}
	mem = mmap(NULL, SPAN, PROT_READ | PROT_WRITE,
		   file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, *fd, 0);
	ASSERT_NE(MAP_FAILED, mem);
	memset(mem, FILLER, SPAN);
	return mem;
}

static uint32_t mr_state(struct __test_metadata *_metadata,
			 FIXTURE_DATA(guard) *self)
{
	struct memreg_mr_info info;

	ASSERT_EQ(0, memreg_mr_query(self->o.m, self->mr.id, &info, NULL,
				     NULL));
	ASSERT_EQ(info.state != IB_MEMREG_MR_LIVE, info.generation);
	return info.state;
}

FIXTURE_SETUP(guard)
{
	struct memreg_grant g;

	owner_open(_metadata, &self->o);
	self->mem = make_memory(_metadata, variant->file, &self->file);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain, self->mem,
					SPAN, FOR_WINDOWS | REMOTE_RW, 0,
					&self->mr))
		TH_LOG("%s", memreg_reason());
	ASSERT_EQ(0, memreg_window_alloc(self->o.m, self->o.domain,
					 IB_MEMREG_WINDOW_TYPE1, SPAN,
					 &self->window, 1));
	self->bind = (struct ib_memreg_bind) {
		.window_id = self->window,
		.mr_id = self->mr.id,
		.length = SPAN,
		.access = REMOTE_RW,
	};
	owner_bind(_metadata, &self->o, self->o.domain, &self->bind, &g);
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, "-d 8");
	self->endpoint = owner_admit(_metadata, &self->o, &self->p,
				     self->o.domain, &g);
}

FIXTURE_TEARDOWN(guard)
{
	peer_stop(&self->p, 0);
	owner_close(&self->o);
	munmap(self->mem, SPAN);
	if (self->file >= 0)
		close(self->file);
}

/* Expect that the peer can access neither end of the range by the key. */
static void refused(struct __test_metadata *_metadata,
		    FIXTURE_DATA(guard) *self, uint32_t rkey)
{
	size_t offsets[] = { 0, SPAN - 8 };
	size_t i;

	for (i = 0; i < ARRAY_LEN(offsets); i++) {
		self->endpoint = owner_admit_again(_metadata, &self->o,
						   &self->p, self->endpoint);
		peer_ask(_metadata, &self->p, "iova 0x%llx",
			 self->bind.out_iova);
		peer_ask(_metadata, &self->p, "rkey 0x%x", rkey);
		peer_ask(_metadata, &self->p, "write %zu 8 1", offsets[i]);
		ASSERT_PEER("remote-access-error", &self->p);
	}
}

TEST_F_TIMEOUT(guard, I2_keys_are_dead_when_the_mapping_went, LIMIT_S)
{
	struct job job = { .take = variant->take, .self = self };
	uint64_t killed = counter(_metadata, &self->o,
				  IB_MEMREG_STAT_KEYS_KILLED);
	uint8_t *fresh;
	size_t i;

	ASSERT_EQ(IB_MEMREG_MR_LIVE, mr_state(_metadata, self));
	peer_ask(_metadata, &self->p, "start write 0 %lu 1", SPAN);
	ASSERT_PEER("success", &self->p);
	ASSERT_EQ(0, variant->who(&job));
	/* The MR's own, and the window's */
	ASSERT_EQ(killed + 2, counter(_metadata, &self->o,
				      IB_MEMREG_STAT_KEYS_KILLED));

	/*
	 * Memory that is mapped at the same address now is not reachable by the
	 * peer
	 */
	fresh = mmap(self->mem, SPAN, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	ASSERT_EQ(self->mem, fresh);
	memset(fresh, FILLER, SPAN);

	ASSERT_NE(IB_MEMREG_MR_LIVE, mr_state(_metadata, self));
	peer_ask(_metadata, &self->p, "join %d", LIMIT_MS / 2);
	ASSERT_PEER("remote-access-error", &self->p);
	refused(_metadata, self, self->bind.out_rkey);
	refused(_metadata, self, self->mr.rkey);
	for (i = 0; i < SPAN; i++)
		ASSERT_EQ(FILLER, fresh[i]);
}

TEST_F_TIMEOUT(guard, stale_mr_takes_no_windows_and_is_deregistered, LIMIT_S)
{
	struct job job = { .take = variant->take, .self = self };
	struct ib_memreg_bind bind = self->bind;

	ASSERT_EQ(0, variant->who(&job));
	ASSERT_EQ(-EBUSY, memreg_mr_deregister(self->o.m, self->mr.id));
	ASSERT_EQ(0, memreg_window_revoke(self->o.m, self->o.domain,
					  self->window));
	ASSERT_EQ(-ESTALE, memreg_window_bind(self->o.m, self->o.domain,
					      &bind));
	ASSERT_EQ(0, memreg_mr_deregister(self->o.m, self->mr.id));
	ASSERT_EQ(0, vm_pin(0));
}

/*
 * Without a peer
 */

FIXTURE(watch)
{
	struct owner o;
	int file;
	uint8_t *mem;
	struct memreg_mr mr;
};

FIXTURE_SETUP(watch)
{
	owner_open(_metadata, &self->o);
	self->mem = make_memory(_metadata, true, &self->file);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain, self->mem,
					SPAN, FOR_WINDOWS | REMOTE_RW, 0,
					&self->mr));
}

FIXTURE_TEARDOWN(watch)
{
	owner_close(&self->o);
	munmap(self->mem, SPAN);
	close(self->file);
}

static struct memreg_mr_info query(struct __test_metadata *_metadata,
				   FIXTURE_DATA(watch) *self)
{
	struct memreg_mr_info info;

	ASSERT_EQ(0, memreg_mr_query(self->o.m, self->mr.id, &info, NULL,
				     NULL));
	return info;
}

/* The memory was taken away at @t: its MR becomes stale soon after that. */
static void stale_in_time(struct __test_metadata *_metadata,
			  FIXTURE_DATA(watch) *self, int64_t t)
{
	while (query(_metadata, self).state != IB_MEMREG_MR_STALE) {
		ASSERT_GT(t + LIMIT_MS, now_ms());
		usleep(1000);
	}
	t = now_ms() - t;
	TH_LOG("stale after %lld ms", (long long)t);
	EXPECT_GE(BOUND_MS + SLACK_MS, t);
}

/* Wait until the worker has found the mapping unchanged. */
static void await_unchanged(struct __test_metadata *_metadata,
			    FIXTURE_DATA(watch) *self, uint64_t before)
{
	int64_t end = now_ms() + LIMIT_MS;

	while (counter(_metadata, &self->o,
		       IB_MEMREG_STAT_GUARD_UNCHANGED) == before) {
		ASSERT_GT(end, now_ms());
		usleep(1000);
	}
}

TEST_F_TIMEOUT(watch, fork_leaves_the_mr_live, LIMIT_S)
{
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid)
		_exit(0);
	self->mem[0]++;
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	ASSERT_EQ(IB_MEMREG_MR_LIVE, query(_metadata, self).state);
}

TEST_F_TIMEOUT(watch, unmapping_a_neighbour_leaves_the_mr_live, LIMIT_S)
{
	uint8_t *mem = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct memreg_mr_info info;
	struct memreg_mr mr;

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain, mem + PAGE,
					PAGE, REMOTE_RW |
					IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &mr));
	ASSERT_EQ(0, munmap(mem, PAGE));
	ASSERT_EQ(0, munmap(mem + 2 * PAGE, PAGE));
	ASSERT_EQ(0, memreg_mr_query(self->o.m, mr.id, &info, NULL, NULL));
	ASSERT_EQ(IB_MEMREG_MR_LIVE, info.state);
	ASSERT_EQ(0, munmap(mem + PAGE, PAGE));
	ASSERT_EQ(0, memreg_mr_query(self->o.m, mr.id, &info, NULL, NULL));
	ASSERT_EQ(IB_MEMREG_MR_STALE, info.state);
}

TEST_F_TIMEOUT(watch, protection_that_still_allows_is_seen_through, LIMIT_S)
{
	uint64_t before = counter(_metadata, &self->o,
				  IB_MEMREG_STAT_GUARD_UNCHANGED);
	int64_t t;

	ASSERT_EQ(0, mprotect(self->mem, SPAN,
			      PROT_READ | PROT_WRITE | PROT_EXEC));
	await_unchanged(_metadata, self, before);
	ASSERT_EQ(IB_MEMREG_MR_LIVE, query(_metadata, self).state);
	ASSERT_LT(0, query(_metadata, self).suspects);
	/* And it is still watched. */
	t = now_ms();
	ASSERT_EQ(0, mprotect(self->mem, SPAN, PROT_READ));
	stale_in_time(_metadata, self, t);
}

TEST_F_TIMEOUT(watch, protection_that_forbids_ends_the_mr, LIMIT_S)
{
	int64_t t = now_ms();

	ASSERT_EQ(0, mprotect(self->mem, PAGE, PROT_READ));
	stale_in_time(_metadata, self, t);
}

/* A loop device over the file, that is gone when it is closed; or -1 */
static int loop_open(int file)
{
	char command[128], path[64] = "";
	FILE *f;
	int fd;

	snprintf(command, sizeof(command),
		 "modprobe loop 2>/dev/null; losetup -f --show /proc/%d/fd/%d",
		 getpid(), file);
	f = popen(command, "r");
	if (!f || fscanf(f, "%63s", path) != 1)
		path[0] = '\0';
	if (f)
		pclose(f);
	if (!path[0])
		return -1;
	fd = open(path, O_RDWR | O_CLOEXEC);
	snprintf(command, sizeof(command), "losetup -d %s", path);
	if (system(command) && fd >= 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* A kernel thread punches the hole. */
static bool loop_discard(int loop)
{
	uint64_t range[] = { 0, SPAN };

	return loop >= 0 && !ioctl(loop, BLKDISCARD, range);
}

TEST_F_TIMEOUT(watch, discard_of_a_loop_device_ends_the_mr, LIMIT_S)
{
	int loop = loop_open(self->file);
	int64_t t;

	if (!loop_discard(loop))
		SKIP(return, "no loop device here that can discard");
	t = now_ms();
	stale_in_time(_metadata, self, t);
	ASSERT_LT(0, query(_metadata, self).suspects);
	close(loop);
}

/* Read the trace, and remove its instance. */
static void trace_take(struct __test_metadata *_metadata, char *text,
		       size_t size)
{
	FILE *f = fopen(INSTANCE "/trace", "r");

	ASSERT_NE(NULL, f);
	text[fread(text, 1, size - 1, f)] = '\0';
	fclose(f);
	ASSERT_EQ(0, file_write(EVENT "/enable", "0"));
	ASSERT_EQ(0, rmdir(INSTANCE));
}

/* Only the trace shows whether the worker has to look after an event. */
TEST_F_TIMEOUT(watch, event_of_a_kernel_thread_is_looked_into, LIMIT_S)
{
	int loop = loop_open(self->file);
	static char text[16384];

	if (!tracefs_there())
		SKIP(return, "this kernel has no tracefs");
	/* Remove the instance of a test that was killed */
	rmdir(INSTANCE);
	ASSERT_EQ(0, mkdir(INSTANCE, 0700));
	ASSERT_EQ(0, file_write(EVENT "/enable", "1"));
	if (!loop_discard(loop)) {
		rmdir(INSTANCE);
		SKIP(return, "no loop device here that can discard");
	}
	stale_in_time(_metadata, self, now_ms());
	trace_take(_metadata, text, sizeof(text));
	EXPECT_NE(NULL, strstr(text, "event=clear"));
	EXPECT_NE(NULL, strstr(text, "verdict=suspect"));
	EXPECT_EQ(NULL, strstr(text, "verdict=revoke"))
		TH_LOG("%s", text);
	close(loop);
}

TEST_F_TIMEOUT(watch, unguarded_mr_keeps_its_keys, LIMIT_S)
{
	uint8_t *mem = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct memreg_mr_info info;
	struct memreg_mr mr;

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, memreg_mr_register(self->o.m, self->o.domain, mem, PAGE,
					REMOTE_RW |
					IB_MEMREG_ACCESS_LOCAL_WRITE,
					IB_MEMREG_MR_UNGUARDED, &mr));
	ASSERT_EQ(0, munmap(mem, PAGE));
	ASSERT_EQ(0, memreg_mr_query(self->o.m, mr.id, &info, NULL, NULL));
	ASSERT_EQ(IB_MEMREG_MR_LIVE, info.state);
	ASSERT_EQ(0, memreg_mr_deregister(self->o.m, mr.id));
}

/*
 * Registering races with unmapping
 */

FIXTURE(churn)
{
	struct owner o;
	uint64_t *mem;
	bool stop;
	struct peer p;
};

FIXTURE_SETUP(churn)
{
	owner_open(_metadata, &self->o);
	self->mem = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->mem);
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	owner_admit(_metadata, &self->o, &self->p, self->o.domain, NULL);
	peer_ask(_metadata, &self->p, "iova 0x%llx",
		 (unsigned long long)(uintptr_t)self->mem);
}

FIXTURE_TEARDOWN(churn)
{
	peer_stop(&self->p, 0);
	owner_close(&self->o);
	munmap(self->mem, PAGE);
}

/*
 * Map the same page again and again, and write the number of its mapping into
 * it.
 */
static void *churn(void *arg)
{
	FIXTURE_DATA(churn) *self = arg;
	static uint64_t life;

	while (!__atomic_load_n(&self->stop, __ATOMIC_RELAXED)) {
		uint64_t *mem = mmap(self->mem, PAGE, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				     -1, 0);

		if (mem == MAP_FAILED)
			abort();
		*mem = ++life;
	}
	return NULL;
}

/* Register while that goes on. Returns true if the MR is live when it stops. */
static bool register_in_churn(struct __test_metadata *_metadata,
			      FIXTURE_DATA(churn) *self, struct memreg_mr *mr)
{
	struct memreg_mr_info info;
	pthread_t thread;
	int ret;

	self->stop = false;
	ASSERT_EQ(0, pthread_create(&thread, NULL, churn, self));
	ret = memreg_mr_register(self->o.m, self->o.domain, self->mem, PAGE,
				 REMOTE_RW | IB_MEMREG_ACCESS_LOCAL_WRITE, 0,
				 mr);
	__atomic_store_n(&self->stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	if (ret) {
		ASSERT_EQ(-EAGAIN, ret)
			TH_LOG("%s", memreg_reason());
		return false;
	}
	ASSERT_EQ(0, memreg_mr_query(self->o.m, mr->id, &info, NULL, NULL));
	if (info.state == IB_MEMREG_MR_LIVE)
		return true;
	ASSERT_EQ(0, memreg_mr_deregister(self->o.m, mr->id));
	return false;
}

/* The peer reads by the key of a live MR what the owner reads. */
TEST_F_TIMEOUT(churn, I2_what_is_live_is_what_is_mapped, SOAK_S)
{
	unsigned int i, live = 0, rounds = test_rounds(200);
	struct memreg_mr mr;
	uint32_t crc;

	/*
	 * Where the mapping changes faster than an MR can be made, more rounds
	 * are needed.
	 */
	for (i = 0; i < rounds || (!live && i < 10 * rounds); i++) {
		if (!register_in_churn(_metadata, self, &mr))
			continue;
		live++;
		peer_ask(_metadata, &self->p, "rkey 0x%x", mr.rkey);
		peer_ask(_metadata, &self->p, "read 0 8");
		ASSERT_PEER("success", &self->p);
		crc = crc32_of((uint8_t *)self->mem, 8);
		ASSERT_EQ(crc, peer_number(&self->p, "crc32"));
		ASSERT_EQ(0, memreg_mr_deregister(self->o.m, mr.id));
	}
	TH_LOG("%u of %u MRs were live when the churn ended", live, i);
	EXPECT_LT(0, live);
}

/* A munmap(2) or exit over many guards waits once, and not for each guard. */

static uint8_t *guarded_pages(struct memreg *m, uint32_t domain, uint32_t *ids,
			      unsigned int n)
{
	struct memreg_mr mr;
	unsigned int i;
	uint8_t *mem;

	mem = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return NULL;
	for (i = 0; i < n; i++) {
		if (memreg_mr_register(m, domain, mem + i * PAGE, PAGE,
				       IB_MEMREG_ACCESS_LOCAL_WRITE |
				       REMOTE_RW, 0, &mr))
			return NULL;
		ids[i] = mr.id;
	}
	return mem;
}

static void all_stale(struct __test_metadata *_metadata,
		      FIXTURE_DATA(watch) *self, const uint32_t *ids,
		      unsigned int n)
{
	struct memreg_mr_info info;
	unsigned int i;

	for (i = 0; i < n; i++) {
		ASSERT_EQ(0, memreg_mr_query(self->o.m, ids[i], &info, NULL,
					     NULL));
		ASSERT_EQ(IB_MEMREG_MR_STALE, info.state);
	}
}

static void deregister_all(struct __test_metadata *_metadata,
			   FIXTURE_DATA(watch) *self, const uint32_t *ids,
			   unsigned int n)
{
	while (n--)
		ASSERT_EQ(0, memreg_mr_deregister(self->o.m, ids[n]));
}

/* Unmap them all; returns how many microseconds that took */
static int64_t unmap_guards(struct __test_metadata *_metadata,
			    FIXTURE_DATA(watch) *self, uint32_t *ids,
			    unsigned int n)
{
	uint8_t *mem = guarded_pages(self->o.m, self->o.domain, ids, n);
	int64_t t;

	ASSERT_NE(NULL, mem);
	t = now_us();
	ASSERT_EQ(0, munmap(mem, n * PAGE));
	return now_us() - t;
}

/* Time of an exit that removes all mappings. The file stays open here. */
static int64_t exit_with_guards(struct __test_metadata *_metadata,
				FIXTURE_DATA(watch) *self, uint32_t *ids,
				unsigned int n)
{
	int ready[2], status;
	int64_t t;
	pid_t pid;
	char c;

	ASSERT_EQ(0, pipe(ready));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (!guarded_pages(self->o.m, self->o.domain, ids, n) ||
		    write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	close(ready[1]);
	ASSERT_EQ(1, read(ready[0], &c, 1));
	close(ready[0]);
	t = now_us();
	ASSERT_EQ(0, kill(pid, SIGKILL));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	t = now_us() - t;
	ASSERT_EQ(SIGKILL, WTERMSIG(status));
	return t;
}

typedef int64_t end_guards(struct __test_metadata *_metadata,
			   FIXTURE_DATA(watch) *self, uint32_t *ids,
			   unsigned int n);

/*
 * Time that @n calls of munmap(2) take one after the other, extrapolated from
 * @n / 10
 */
static int64_t unmap_one_by_one(struct __test_metadata *_metadata,
				FIXTURE_DATA(watch) *self, uint32_t *ids,
				unsigned int n)
{
	unsigned int i, some = n / 10;
	int64_t t = 0;

	for (i = 0; i < some; i++) {
		t += unmap_guards(_metadata, self, ids, 1);
		deregister_all(_metadata, self, ids, 1);
	}
	return t * n / some;
}

/*
 * Ending many together takes less than a third of the sum of ending each alone,
 * measured before and after; on a busy machine this may need several tries.
 * Returns the time in ms.
 */
static int64_t end_together(struct __test_metadata *_metadata,
			    FIXTURE_DATA(watch) *self, end_guards *end,
			    uint32_t *ids, unsigned int n)
{
	int64_t t, alone, after, limit = now_ms() + LIMIT_MS;

	do {
		alone = unmap_one_by_one(_metadata, self, ids, n);
		t = end(_metadata, self, ids, n);
		all_stale(_metadata, self, ids, n);
		deregister_all(_metadata, self, ids, n);
		after = unmap_one_by_one(_metadata, self, ids, n);
		alone = after < alone ? after : alone;
	} while (3 * t >= alone && now_ms() < limit);
	EXPECT_GT(alone, 3 * t);
	TH_LOG("%u guards: %lld ms, and %lld one by one", n,
	       (long long)t / 1000, (long long)alone / 1000);
	return t / 1000;
}

TEST_F_TIMEOUT(watch, I2_many_guards_end_together, SOAK_S)
{
	unsigned int n = times(debug_kernel() ? 200 : 2000, 10000);
	uint32_t *ids = mmap(NULL, n * sizeof(*ids), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, ids);
	end_together(_metadata, self, unmap_guards, ids, n);
	EXPECT_GT(EXIT_MS, end_together(_metadata, self, exit_with_guards, ids,
					n));
}

PEER_HARNESS_MAIN
