// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nobody waits for somebody else's program: a user truncates a file that
 * another user has mapped and registered, and whatever that one does at the
 * moment, and however little of the CPUs it gets, it takes about as long as if
 * it did nothing. What is measured is compared within the same run.
 *
 * time limit: 600
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "memreg_fixture.h"

#define CROWD		60
/*
 * Windows of each member: it is to be between taking a key and its death for
 * much of its time, and to kill them all is to take far less than a second, for
 * which a guard waits at most.
 */
#define WINDOWS		8
#define HOGS_PER_CPU	2
#define HOGS_MAX	64
#define MANY		2000
#define FEW		10
/* Threads of ours that the kernel may make, whatever users do. */
#define KTHREADS	8
/* Times that what is disturbed may take of what is not. */
#define RATIO		3
#define LONG_S		500

/* What the processes share. */
struct shared {
	atomic_uint ready;
	atomic_int failed;
	atomic_ulong hogs[HOGS_MAX];
};

FIXTURE(bounded) {
	int fd;
	int file;
	struct shared *shared;
	pid_t hogs[HOGS_MAX];
	unsigned int nhogs;
	pid_t crowd;
};

FIXTURE_SETUP(bounded)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	self->file = memfd_create("bounded", MFD_CLOEXEC);
	ASSERT_LE(0, self->file);
	self->shared = mmap(NULL, sizeof(*self->shared),
			    PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->shared);
}

static void hogs_end(FIXTURE_DATA(bounded) *self)
{
	while (self->nhogs) {
		kill(self->hogs[--self->nhogs], SIGKILL);
		waitpid(self->hogs[self->nhogs], NULL, 0);
	}
}

static void crowd_end(FIXTURE_DATA(bounded) *self)
{
	if (self->crowd <= 0)
		return;
	kill(self->crowd, SIGKILL);
	waitpid(self->crowd, NULL, 0);
	self->crowd = 0;
}

FIXTURE_TEARDOWN(bounded)
{
	hogs_end(self);
	crowd_end(self);
	EXPECT_EQ(0, close(self->fd));
	close(self->file);
	munmap(self->shared, sizeof(*self->shared));
}

/*
 * Programs that need all of the CPUs
 */

static void hog(atomic_ulong *count)
{
	for (;;)
		atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

/* They have run when this returns. */
static void hogs_begin(struct __test_metadata *_metadata,
		       FIXTURE_DATA(bounded) *self)
{
	unsigned int i, n = HOGS_PER_CPU * sysconf(_SC_NPROCESSORS_ONLN);
	int64_t end = now_ms() + LIMIT_MS;

	ASSERT_GE(HOGS_MAX, n);
	for (i = 0; i < n; i++) {
		atomic_store(&self->shared->hogs[i], 0);
		self->hogs[i] = fork();
		ASSERT_LE(0, self->hogs[i]);
		if (!self->hogs[i])
			hog(&self->shared->hogs[i]);
		self->nhogs++;
	}
	for (i = 0; i < n; i++)
		while (atomic_load(&self->shared->hogs[i]) < 1000000) {
			ASSERT_GT(end, now_ms());
			usleep(1000);
		}
}

/*
 * A user with many MRs of a page that it may read
 */

struct member {
	pthread_t thread;
	struct shared *shared;
	int fd;
	char *page;
	void (*work)(struct member *member);
	__u32 domain;
	__u32 mr;
	__u32 windows[WINDOWS];
};

static int windows_alloc(struct member *member)
{
	return raw_windows(member->fd, member->domain, PAGE, member->windows,
			   WINDOWS);
}

static int bind_all(struct member *member)
{
	struct ib_memreg_bind binds[WINDOWS];
	unsigned int i;

	for (i = 0; i < WINDOWS; i++)
		binds[i] = (struct ib_memreg_bind) {
			.window_id = member->windows[i], .mr_id = member->mr,
			.length = PAGE, .access = REMOTE_READ,
		};
	return raw_bind(member->fd, member->domain, binds, WINDOWS);
}

static int revoke_all(struct member *member)
{
	return raw_revoke(member->fd, member->domain, member->windows, WINDOWS);
}

static int revoke_relaxed(struct member *member)
{
	return raw_revoke_relaxed(member->fd, member->domain, member->windows,
				  WINDOWS);
}

static int destroy_all(struct member *member)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; !ret && i < WINDOWS; i++)
		ret = raw_destroy(member->fd, member->windows[i]);
	return ret ?: windows_alloc(member);
}

static int register_it(struct member *member)
{
	return raw_register(member->fd, member->domain, member->page, PAGE,
			    REMOTE_READ | MW_BIND, &member->mr);
}

/* Once it has done so, it is ready. */
static void be_ready(struct member *member, int ret)
{
	if (ret)
		atomic_store(&member->shared->failed, ret);
	atomic_fetch_add(&member->shared->ready, 1);
}

static void stay(struct member *member)
{
	be_ready(member, bind_all(member));
	for (;;)
		pause();
}

/* With what CPU nobody else wants */
static void be_idle(void)
{
	struct sched_param param = {};

	if (sched_setscheduler(0, SCHED_IDLE, &param))
		abort();
}

static void end_windows(struct member *member,
			int (*end)(struct member *member))
{
	int ret = bind_all(member) ?: end(member);

	be_idle();
	be_ready(member, ret);
	while (!bind_all(member) && !end(member))
		;
	for (;;)
		pause();
}

static void revoke_windows(struct member *member)
{
	end_windows(member, revoke_all);
}

static void revoke_windows_relaxed(struct member *member)
{
	end_windows(member, revoke_relaxed);
}

static void destroy_windows(struct member *member)
{
	end_windows(member, destroy_all);
}

static void *member_run(void *arg)
{
	struct member *member = arg;
	int ret;

	ret = raw_domain(member->fd, &member->domain) ?:
	      register_it(member) ?: windows_alloc(member);
	if (ret) {
		be_ready(member, ret);
		return NULL;
	}
	member->work(member);
	return NULL;
}

static void crowd_run(struct shared *shared, int file,
		      void (*work)(struct member *member))
{
	char *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
	static struct member members[CROWD];
	int fd = raw_open_bound();
	unsigned int i;

	for (i = 0; i < CROWD; i++) {
		members[i] = (struct member) {
			.shared = shared, .fd = fd, .page = page,
			.work = work,
		};
		if (page == MAP_FAILED || fd < 0 ||
		    pthread_create(&members[i].thread, NULL, member_run,
				   &members[i]))
			be_ready(&members[i], -EIO);
	}
	for (;;)
		pause();
}

static void file_fill(struct __test_metadata *_metadata, int file)
{
	ASSERT_EQ(0, ftruncate(file, PAGE));
	ASSERT_EQ(1, pwrite(file, "x", 1, 0));
}

static void await_ready(struct __test_metadata *_metadata,
			FIXTURE_DATA(bounded) *self, unsigned int n)
{
	int64_t end = now_ms() + LIMIT_MS;

	while (atomic_load(&self->shared->ready) < n) {
		ASSERT_GT(end, now_ms());
		usleep(1000);
	}
	ASSERT_EQ(0, atomic_load(&self->shared->failed));
}

/* Microseconds that a truncation takes while all of the crowd does this. */
static int64_t truncate_among(struct __test_metadata *_metadata,
			      FIXTURE_DATA(bounded) *self,
			      void (*work)(struct member *member))
{
	int64_t t;

	file_fill(_metadata, self->file);
	atomic_store(&self->shared->ready, 0);
	self->crowd = fork();
	ASSERT_LE(0, self->crowd);
	if (!self->crowd)
		crowd_run(self->shared, self->file, work);
	await_ready(_metadata, self, CROWD);
	hogs_begin(_metadata, self);
	t = now_us();
	ASSERT_EQ(0, ftruncate(self->file, 0));
	t = now_us() - t;
	hogs_end(self);
	crowd_end(self);
	return t;
}

FIXTURE_VARIANT(bounded)
{
	void (*work)(struct member *member);
};

FIXTURE_VARIANT_ADD(bounded, revoke) { .work = revoke_windows };
FIXTURE_VARIANT_ADD(bounded, relaxed) { .work = revoke_windows_relaxed };
FIXTURE_VARIANT_ADD(bounded, destroy) { .work = destroy_windows };

/*
 * The CPUs are somebody else's, so the keys that the crowd is killing are dead
 * long before it runs again. On a busy machine it may not show at first.
 */
TEST_F_TIMEOUT(bounded, I2_guard_waits_for_no_task, LONG_S)
{
	int64_t alone, t, end = now_ms() + LIMIT_MS;

	if (debug_kernel())
		SKIP(return, "rxe warns where its own worker gets no CPU");
	do {
		alone = truncate_among(_metadata, self, stay);
		t = truncate_among(_metadata, self, variant->work);
		TH_LOG("%lld us, and %lld us with nobody at work",
		       (long long)t, (long long)alone);
	} while (t > RATIO * alone && now_ms() < end);
	EXPECT_GE(RATIO * alone, t);
}

/*
 * Many guards of one page
 */

FIXTURE(many) {
	int fd;
	int file;
	struct shared *shared;
};

FIXTURE_SETUP(many)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	self->file = memfd_create("many", MFD_CLOEXEC);
	ASSERT_LE(0, self->file);
	self->shared = mmap(NULL, sizeof(*self->shared),
			    PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->shared);
}

FIXTURE_TEARDOWN(many)
{
	EXPECT_EQ(0, close(self->fd));
	close(self->file);
	munmap(self->shared, sizeof(*self->shared));
}

/* Threads of the kernel that do, or did last, what this module has to do. */
static unsigned int our_kthreads(void)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	unsigned int n = 0;
	char path[300], comm[64];
	FILE *f;

	while (proc && (entry = readdir(proc))) {
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(comm, sizeof(comm), f) &&
		    !strncmp(comm, "kworker/", 8) && comm[8] != 'R' &&
		    strstr(comm, "memreg"))
			n++;
		fclose(f);
	}
	if (proc)
		closedir(proc);
	return n;
}

static void own_many(struct shared *shared, int file, unsigned int n)
{
	char *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
	int ret, fd = raw_open_bound();
	__u32 domain, mr;

	ret = raw_domain(fd, &domain);
	while (!ret && n--)
		ret = raw_register(fd, domain, page, PAGE, REMOTE_READ, &mr);
	atomic_store(&shared->failed, ret);
	atomic_store(&shared->ready, 1);
	for (;;)
		pause();
}

/* Microseconds that it takes to truncate a page with so many guards */
static int64_t truncate_many(struct __test_metadata *_metadata,
			     FIXTURE_DATA(many) *self, unsigned int n,
			     unsigned int *kthreads)
{
	int64_t t, end = now_ms() + 3 * LIMIT_MS;
	pid_t pid;

	file_fill(_metadata, self->file);
	atomic_store(&self->shared->ready, 0);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		own_many(self->shared, self->file, n);
	while (!atomic_load(&self->shared->ready)) {
		ASSERT_GT(end, now_ms());
		usleep(1000);
	}
	ASSERT_EQ(0, atomic_load(&self->shared->failed));
	t = now_us();
	ASSERT_EQ(0, ftruncate(self->file, 0));
	t = now_us() - t;
	*kthreads = our_kthreads();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return t;
}

static __u64 breaks(struct __test_metadata *_metadata, FIXTURE_DATA(many) *self)
{
	__u64 value;

	ASSERT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_QUEUE_BREAKS, &value));
	return value;
}

/*
 * Each key has to die, so many cost more than few, but none of them more than
 * it would among few.
 */
TEST_F_TIMEOUT(many, I2_guards_of_one_page_make_no_crowd, LONG_S)
{
	__u64 before = breaks(_metadata, self);
	int64_t few, t, end = now_ms() + LIMIT_MS;
	unsigned int kthreads, most = 0;

	do {
		few = truncate_many(_metadata, self, FEW, &kthreads);
		t = truncate_many(_metadata, self, MANY, &kthreads);
		most = kthreads > most ? kthreads : most;
		TH_LOG("%d: %lld us, %d: %lld us, %u threads", FEW,
		       (long long)few, MANY, (long long)t, kthreads);
	} while (t > RATIO * few * MANY / FEW && now_ms() < end);
	EXPECT_GE(RATIO * few * MANY / FEW, t);
	EXPECT_GE(KTHREADS, most);
	EXPECT_EQ(before, breaks(_metadata, self));
}

TEST_HARNESS_MAIN
