// SPDX-License-Identifier: GPL-2.0-only
/*
 * No user waits for another user's program: truncating a file that another user
 * has mapped and registered takes about the same time whatever that user's
 * program is doing, and however little CPU time it gets. Nor does the time
 * depend on the number of pollers of a status table, on the number of mappings
 * to check in another process, or on the number of domains with spare FRWRs.
 * Measurements are compared within the same run.
 *
 * time limit: 600
 * beside others: no
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define CROWD		60
/*
 * Windows of each member: enough that a member is in the middle of killing keys
 * for much of its time, and few enough that killing them all takes far less
 * than a second, the limit of a guard's wait.
 */
#define WINDOWS		8
#define HOGS_PER_CPU	2
#define HOGS_MAX	64
#define MANY		2000
#define FEW		10
/* Most kernel threads that the module may cause, for any actions of users. */
#define KTHREADS	8
/* Allowed ratio of the time with a disturbance to the time without. */
#define RATIO		3
#define LONG_S		500
/* Slots of a status table that change, and pollers of the table's descriptor */
#define MONITORS	IB_MEMREG_MONITOR_DEPTH
#define SLOTTED_MRS	64
#define POLLERS		2000
/* Mappings of a process of each crowd, and monitors of all these mappings */
#define MAPPINGS	10000
#define FEW_MAPPINGS	1500
#define LOOKERS		IB_MEMREG_MONITOR_DEPTH
/* Domains, FRWRs that each is made to have, and FRWRs that a domain keeps */
#define DOMAINS		40
#define SPARES		256
#define KEPT		64
/*
 * Threads of the module that destroy spare FRWRs, for any number of domains:
 * two of a user, and two whose turn has ended, but which have not returned
 */
#define REAPERS		4
/* MRs on demand that have an idle page, and MRs that have none */
#define DEMANDS		400
#define IDLE_DEMANDS	30000
/* Pages that a process may pin, and how often it has to make room for others */
#define ROOM		16
#define TIMES_ROOM	20
#define NOBODY		65534
/* Files that a process has registered, each in a domain of its own */
#define FILES		6

/* Memory that the processes share. */
struct shared {
	atomic_uint ready;
	atomic_int failed;
	atomic_long took;
	atomic_ulong hogs[HOGS_MAX];
};

/* Wait until so many other processes are ready. */
static void await_ready(struct __test_metadata *_metadata,
			struct shared *shared, unsigned int n)
{
	int64_t end = now_ms() + 3 * LIMIT_MS;

	while (atomic_load(&shared->ready) < n) {
		ASSERT_EQ(0, atomic_load(&shared->failed));
		ASSERT_GT(end, now_ms());
		usleep(1000);
	}
	ASSERT_EQ(0, atomic_load(&shared->failed));
}

/* Programs that need all of the CPUs */
struct hogs {
	pid_t pids[HOGS_MAX];
	unsigned int n;
};

FIXTURE(bounded) {
	int fd;
	int file;
	struct shared *shared;
	struct hogs hogs;
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

static void hogs_end(struct hogs *hogs)
{
	while (hogs->n) {
		kill(hogs->pids[--hogs->n], SIGKILL);
		waitpid(hogs->pids[hogs->n], NULL, 0);
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
	hogs_end(&self->hogs);
	crowd_end(self);
	EXPECT_EQ(0, close(self->fd));
	close(self->file);
	munmap(self->shared, sizeof(*self->shared));
}

static void hog(atomic_ulong *count)
{
	for (;;)
		atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

/* Start processes that keep all CPUs busy, and wait until each has run. */
static void hogs_begin(struct __test_metadata *_metadata, struct shared *shared,
		       struct hogs *hogs)
{
	unsigned int i, n = HOGS_PER_CPU * sysconf(_SC_NPROCESSORS_ONLN);
	int64_t end = now_ms() + LIMIT_MS;

	ASSERT_GE(HOGS_MAX, n);
	for (i = 0; i < n; i++) {
		atomic_store(&shared->hogs[i], 0);
		hogs->pids[i] = fork();
		ASSERT_LE(0, hogs->pids[i]);
		if (!hogs->pids[i])
			hog(&shared->hogs[i]);
		hogs->n++;
	}
	for (i = 0; i < n; i++)
		while (atomic_load(&shared->hogs[i]) < 1000000) {
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

/*
 * Register the page without a key of the MR's own. A task that kills such a key
 * may take all other keys of the domain with it; here the guard is to find all
 * of them alive.
 */
static int register_it(struct member *member)
{
	return raw_register(member->fd, member->domain, member->page, PAGE,
			    MW_BIND, &member->mr);
}

/* Count the member as ready, or note its error. */
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

/* Run at idle priority */
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

/* Microseconds that a truncation takes */
static int64_t truncate_takes(struct __test_metadata *_metadata, int file)
{
	int64_t t = now_us();

	EXPECT_EQ(0, ftruncate(file, 0));
	return now_us() - t;
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
	await_ready(_metadata, self->shared, CROWD);
	hogs_begin(_metadata, self->shared, &self->hogs);
	t = truncate_takes(_metadata, self->file);
	hogs_end(&self->hogs);
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
 * While the hogs have the CPUs, the keys that the crowd is killing die long
 * before the crowd runs again. On a busy machine a round may fail to show it,
 * so there are several.
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
	struct hogs hogs;
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
	hogs_end(&self->hogs);
	EXPECT_EQ(0, close(self->fd));
	close(self->file);
	munmap(self->shared, sizeof(*self->shared));
}

/*
 * Number of kernel threads whose current or last work item is on the given
 * workqueue of this module, or on any of its workqueues.
 */
static unsigned int our_kthreads(const char *queue)
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
		    strstr(comm, queue))
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
	int64_t t;
	pid_t pid;

	file_fill(_metadata, self->file);
	atomic_store(&self->shared->ready, 0);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		own_many(self->shared, self->file, n);
	await_ready(_metadata, self->shared, 1);
	t = truncate_takes(_metadata, self->file);
	*kthreads = our_kthreads("memreg");
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

/*
 * Comparisons in rounds: the shortest time of each kind counts, as the least
 * disturbed one
 */

#define ROUNDS		3

struct compared {
	int64_t few;
	int64_t many;
	unsigned int rounds;
};

static void compare(struct __test_metadata *_metadata, struct compared *c,
		    int64_t few, int64_t many)
{
	TH_LOG("%lld us, and %lld us with little", (long long)many,
	       (long long)few);
	c->few = c->rounds && c->few < few ? c->few : few;
	c->many = c->rounds && c->many < many ? c->many : many;
	c->rounds++;
}

static bool compared(const struct compared *c, int64_t end)
{
	return c->rounds >= ROUNDS &&
	       (c->many <= RATIO * c->few || now_ms() > end);
}

/* Make domains with spare FRWRs, which the shrinker destroys */

static void make_spares(struct __test_metadata *_metadata, int fd, __u32 mr)
{
	struct ib_memreg_bind binds[SPARES];
	__u32 domain, windows[SPARES];
	unsigned int i;

	ASSERT_EQ(0, raw_domain(fd, &domain));
	ASSERT_EQ(0, raw_windows(fd, domain, PAGE, windows, SPARES));
	for (i = 0; i < SPARES; i++)
		binds[i] = (struct ib_memreg_bind) {
			.window_id = windows[i], .mr_id = mr, .length = PAGE,
			.access = REMOTE_READ,
		};
	ASSERT_EQ(0, raw_bind(fd, domain, binds, SPARES));
	ASSERT_EQ(0, raw_revoke_relaxed(fd, domain, windows, SPARES));
}

/*
 * The most work items with a function of the given name that are executed at a
 * time
 */

#define INSTANCE	TRACEFS "/instances/bounded"
#define EVENTS		INSTANCE "/events/workqueue/workqueue_execute_"

static void works_trace(struct __test_metadata *_metadata)
{
	ASSERT_TRUE(tracefs_there());
	ASSERT_TRUE(!mkdir(INSTANCE, 0700) || errno == EEXIST);
	ASSERT_EQ(0, file_write(EVENTS "start/enable", "1"));
	ASSERT_EQ(0, file_write(EVENTS "end/enable", "1"));
}

static unsigned int works_at_a_time(struct __test_metadata *_metadata,
				    const char *function)
{
	unsigned int now = 0, most = 0, n = 0;
	char line[512], name[128];
	FILE *f;

	ASSERT_EQ(0, file_write(INSTANCE "/tracing_on", "0"));
	f = fopen(INSTANCE "/trace", "r");
	ASSERT_NE(NULL, f);
	snprintf(name, sizeof(name), ": function %s", function);
	while (fgets(line, sizeof(line), f)) {
		if (!strstr(line, name))
			continue;
		if (strstr(line, "workqueue_execute_start:"))
			now++, n++;
		else if (now)
			now--;
		most = now > most ? now : most;
	}
	fclose(f);
	ASSERT_EQ(0, rmdir(INSTANCE));
	TH_LOG("%u work items, %u at a time", n, most);
	EXPECT_LT(0, n);
	return most;
}

/*
 * Each domain has a work item, and few threads execute all of these. The hogs
 * make each work item take longer than one turn of its thread on a CPU.
 */
TEST_F_TIMEOUT(many, domains_that_shrink_make_no_crowd, LONG_S)
{
	int64_t end = now_ms() + LIMIT_MS;
	unsigned int i;
	__u64 before, reaped;
	__u32 domain, mr;
	char *page;

	page = mem_alloc(PAGE);
	ASSERT_EQ(0, raw_domain(self->fd, &domain));
	ASSERT_EQ(0, raw_register(self->fd, domain, page, PAGE, MW_BIND, &mr));
	for (i = 0; i < DOMAINS; i++)
		make_spares(_metadata, self->fd, mr);
	ASSERT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_FRWRS_REAPED, &before));
	works_trace(_metadata);
	hogs_begin(_metadata, self->shared, &self->hogs);
	do {
		ASSERT_GT(end, now_ms());
		ASSERT_EQ(0, file_write("/proc/sys/vm/drop_caches", "2"));
		ASSERT_EQ(0, raw_stat(self->fd, IB_MEMREG_STAT_FRWRS_REAPED,
				      &reaped));
	} while (reaped - before < DOMAINS * (SPARES - KEPT));
	hogs_end(&self->hogs);
	EXPECT_GE(REAPERS, works_at_a_time(_metadata, "memreg_frwr_reap"));
	mem_free(page, PAGE);
}

/*
 * Memory on demand
 */

static int demand_one(int fd, __u32 domain, void *mem, __u64 length, __u32 *mr)
{
	RAW(mr_register, cmd, .flags = IB_MEMREG_MR_ON_DEMAND,
	    .domain_id = domain, .access = LOCAL_WRITE,
	    .addr = (uintptr_t)mem, .length = length);
	int ret = raw_call(fd, IB_MEMREG_IOC_MR_REGISTER, &cmd);

	*mr = cmd.out_mr_id;
	return ret;
}

static int demand_page(int fd, __u32 mr, __u64 offset)
{
	struct ib_memreg_range range = {
		.mr_id = mr, .offset = offset, .length = PAGE,
	};
	RAW(mr_advise, cmd, .flags = IB_MEMREG_ADVISE_WAIT, .count = 1,
	    .advice = IB_MEMREG_ADVICE_PREFETCH_WRITE,
	    .ranges = (uintptr_t)&range);
	int ret = raw_call(fd, IB_MEMREG_IOC_MR_ADVISE, &cmd);

	return ret ?: -(int)range.out_error;
}

/* An address space has one thread that unpins, whatever the number of MRs. */
TEST_F_TIMEOUT(many, MRs_on_demand_that_shrink_make_no_crowd, LONG_S)
{
	int64_t end = now_ms() + LIMIT_MS;
	char *page = mem_alloc(PAGE);
	__u32 domain, mr;
	unsigned int i;

	ASSERT_NE(NULL, page);
	ASSERT_EQ(0, raw_domain(self->fd, &domain));
	works_trace(_metadata);
	for (i = 0; i < DEMANDS; i++) {
		ASSERT_EQ(0, demand_one(self->fd, domain, page, PAGE, &mr));
		ASSERT_EQ(0, demand_page(self->fd, mr, 0));
	}
	while (vm_pin(0)) {
		ASSERT_GT(end, now_ms());
		ASSERT_EQ(0, file_write("/proc/sys/vm/drop_caches", "2"));
	}
	EXPECT_EQ(1, works_at_a_time(_metadata, "memreg_demand_reap"));
	mem_free(page, PAGE);
}

/* A process that has many MRs on demand, and uses none of them */
static void own_demands(struct shared *shared)
{
	int ret, fd = raw_open_bound();
	char *page = mem_alloc(PAGE);
	unsigned int n = IDLE_DEMANDS;
	__u32 domain, mr;

	ret = raw_domain(fd, &domain);
	while (!ret && n--)
		ret = demand_one(fd, domain, page, PAGE, &mr);
	atomic_store(&shared->failed, ret);
	atomic_store(&shared->ready, 1);
	for (;;)
		pause();
}

/*
 * A process that may pin so many pages, and has pinned them on demand,
 * registers others, for which these give way. Microseconds that it takes.
 */
static int64_t make_room(void)
{
	struct rlimit limit = { ROOM * PAGE, ROOM * PAGE };
	char *mem = mem_alloc(2 * ROOM * PAGE);
	int64_t t, all = 0;
	__u32 domain, demand, mr;
	unsigned int i, page;
	int fd, ret;

	fd = raw_open_bound();
	ret = raw_domain(fd, &domain) ?:
	      demand_one(fd, domain, mem, ROOM * PAGE, &demand);
	if (ret || setrlimit(RLIMIT_MEMLOCK, &limit) || seteuid(NOBODY))
		return -1;
	for (i = 0; i < TIMES_ROOM; i++) {
		for (page = 0; page < ROOM; page++)
			if (demand_page(fd, demand, page * PAGE))
				return -1;
		t = now_us();
		ret = raw_register(fd, domain, mem + ROOM * PAGE, PAGE, 0,
				   &mr);
		all += now_us() - t;
		if (ret || raw_destroy(fd, mr))
			return -1;
	}
	return all;
}

static int64_t make_room_in_child(struct __test_metadata *_metadata,
				  FIXTURE_DATA(many) *self)
{
	int64_t took;

	IN_CHILD {
		took = make_room();
		atomic_store(&self->shared->took, took);
		EXPECT_LT(0, took);
	}
	return atomic_load(&self->shared->took);
}

TEST_F_TIMEOUT(many, room_is_made_whatever_others_have_on_demand, LONG_S)
{
	int64_t alone = 0, took, end;
	struct compared c = {};
	unsigned int i;
	pid_t pid;

	for (i = 0; i < ROUNDS; i++) {
		took = make_room_in_child(_metadata, self);
		alone = i && alone < took ? alone : took;
	}
	atomic_store(&self->shared->ready, 0);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		own_demands(self->shared);
	await_ready(_metadata, self->shared, 1);
	end = now_ms() + 2 * LIMIT_MS;
	do {
		took = make_room_in_child(_metadata, self);
		compare(_metadata, &c, alone, took);
	} while (!compared(&c, end));
	EXPECT_GE(RATIO * c.few, c.many);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Descriptors that are passed to other users */

/*
 * Another user is the last to close the file, and reports how long the close
 * took.
 */
static void close_as_nobody(struct shared *shared, int fd)
{
	int64_t t;

	if (seteuid(NOBODY))
		_exit(1);
	while (!atomic_load(&shared->ready))
		usleep(100);
	t = now_us();
	close(fd);
	atomic_store(&shared->took, now_us() - t);
	_exit(0);
}

static int64_t close_takes(struct __test_metadata *_metadata,
			   FIXTURE_DATA(many) *self, unsigned int n)
{
	int status, fd = raw_open_bound();
	void *page = mem_alloc(PAGE);
	int64_t end = now_ms() + LIMIT_MS;
	__u32 domain, mr;
	pid_t pid;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, raw_domain(fd, &domain));
	while (n--)
		ASSERT_EQ(0, raw_register(fd, domain, page, PAGE, REMOTE_READ,
					  &mr));
	atomic_store(&self->shared->ready, 0);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		close_as_nobody(self->shared, fd);
	close(fd);
	atomic_store(&self->shared->ready, 1);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	/* All pages are unpinned some time later. */
	while (vm_pin(0)) {
		ASSERT_GT(end, now_ms());
		usleep(1000);
	}
	mem_free(page, PAGE);
	return atomic_load(&self->shared->took);
}

TEST_F_TIMEOUT(many, close_by_another_user_waits_for_nothing, LONG_S)
{
	int64_t few, t, end = now_ms() + LIMIT_MS;
	struct compared c = {};

	do {
		few = close_takes(_metadata, self, FEW);
		t = close_takes(_metadata, self, MANY / 2);
		compare(_metadata, &c, few, t);
	} while (!compared(&c, end));
	EXPECT_GE(RATIO * c.few, c.many);
}

/*
 * Many who poll a status table
 */

static int poll_often(int fd, unsigned int n)
{
	struct epoll_event event = { .events = EPOLLIN };
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	const struct rlimit files = { 1 << 15, 1 << 15 };

	setrlimit(RLIMIT_NOFILE, &files);
	while (n--)
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, dup(fd), &event))
			return -errno;
	return 0;
}

static int watch_by_monitors(int fd, __u32 status, void *page)
{
	struct ib_memreg_monitor monitors[MONITORS];
	unsigned int i;

	for (i = 0; i < MONITORS; i++)
		monitors[i] = (struct ib_memreg_monitor) {
			.addr = (uintptr_t)page, .length = PAGE,
		};
	return raw_monitor(fd, status, monitors, MONITORS);
}

static int watch_by_mrs(int fd, __u32 status, void *page)
{
	RAW(mr_register, cmd, .status_id = status, .access = REMOTE_READ,
	    .addr = (uintptr_t)page, .length = PAGE);
	unsigned int i;
	int ret;

	ret = raw_domain(fd, &cmd.domain_id);
	for (i = 0; !ret && i < SLOTTED_MRS; i++)
		ret = raw_call(fd, IB_MEMREG_IOC_MR_REGISTER, &cmd);
	return ret;
}

FIXTURE(polled) {
	int file;
	struct shared *shared;
};

FIXTURE_VARIANT(polled)
{
	int (*watch)(int fd, __u32 status, void *page);
};

FIXTURE_VARIANT_ADD(polled, monitors) { .watch = watch_by_monitors };
FIXTURE_VARIANT_ADD(polled, mrs) { .watch = watch_by_mrs };

FIXTURE_SETUP(polled)
{
	self->file = memfd_create("polled", MFD_CLOEXEC);
	ASSERT_LE(0, self->file);
	self->shared = mmap(NULL, sizeof(*self->shared),
			    PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->shared);
}

FIXTURE_TEARDOWN(polled)
{
	close(self->file);
	munmap(self->shared, sizeof(*self->shared));
}

static void own_polled(struct shared *shared, int file, unsigned int pollers,
		       int (*watch)(int fd, __u32 status, void *page))
{
	char *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
	int ret, fd = raw_open_bound();
	struct status_map status;

	ret = status_create(fd, MONITORS, 0, &status) ?:
	      watch(fd, status.id, page) ?: poll_often(status.fd, pollers);
	atomic_store(&shared->failed, ret);
	atomic_store(&shared->ready, 1);
	for (;;)
		pause();
}

static int64_t truncate_polled(struct __test_metadata *_metadata,
			       FIXTURE_DATA(polled) *self,
			       const FIXTURE_VARIANT(polled) *variant,
			       unsigned int pollers)
{
	int64_t t;
	pid_t pid;

	file_fill(_metadata, self->file);
	atomic_store(&self->shared->ready, 0);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		own_polled(self->shared, self->file, pollers, variant->watch);
	await_ready(_metadata, self->shared, 1);
	t = truncate_takes(_metadata, self->file);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return t;
}

/*
 * A change of a slot has to wake each poller of the table: the notifier leaves
 * that to a worker.
 */
TEST_F_TIMEOUT(polled, I2_notifier_wakes_no_pollers, LONG_S)
{
	int64_t alone, t, end = now_ms() + LIMIT_MS;
	struct compared c = {};

	do {
		alone = truncate_polled(_metadata, self, variant, 0);
		t = truncate_polled(_metadata, self, variant, POLLERS);
		compare(_metadata, &c, alone, t);
	} while (!compared(&c, end));
	EXPECT_GE(RATIO * c.few, c.many);
}

/*
 * Much to look at
 */

FIXTURE(looks) {
	struct shared *shared;
	char *page;
	int fd;
	struct status_map status;
	struct ib_memreg_monitor monitor;
	pid_t crowds[2];
};

FIXTURE_SETUP(looks)
{
	memset(self->crowds, 0, sizeof(self->crowds));
	self->shared = mmap(NULL, sizeof(*self->shared),
			    PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->shared);
	self->page = mem_alloc(PAGE);
	self->fd = raw_open();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, status_create(self->fd, 1, 0, &self->status));
	self->monitor = (struct ib_memreg_monitor) {
		.addr = (uintptr_t)self->page, .length = PAGE,
		.access = LOCAL_WRITE,
	};
	ASSERT_EQ(0, raw_monitor(self->fd, self->status.id, &self->monitor, 1));
}

FIXTURE_TEARDOWN(looks)
{
	unsigned int i;

	for (i = 0; i < 2 && self->crowds[i] > 0; i++) {
		kill(self->crowds[i], SIGKILL);
		waitpid(self->crowds[i], NULL, 0);
	}
	status_unmap(&self->status);
	EXPECT_EQ(0, close(self->fd));
	mem_free(self->page, PAGE);
	munmap(self->shared, sizeof(*self->shared));
}

/* Make a number of mappings, each of a page. */
static int map_many(char **memory, unsigned int mappings)
{
	unsigned int i;
	char *at;

	at = mmap(NULL, mappings * PAGE, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return -errno;
	*memory = at;
	for (i = 1; i < mappings; i += 2)
		if (mprotect(at + i * PAGE, PAGE, PROT_READ))
			return -errno;
	return 0;
}

/* Make some mappings, and monitors of all of them. */
static int look_at_much(char **memory, unsigned int mappings)
{
	struct ib_memreg_monitor monitors[LOOKERS];
	int fd = raw_open(), ret = map_many(memory, mappings);
	struct status_map status;
	char *at = *memory;
	unsigned int i;

	if (ret)
		return ret;
	for (i = 0; i < LOOKERS; i++)
		monitors[i] = (struct ib_memreg_monitor) {
			.addr = (uintptr_t)at, .length = mappings * PAGE,
		};
	return status_create(fd, LOOKERS, 0, &status) ?:
	       raw_monitor(fd, status.id, monitors, LOOKERS);
}

/*
 * A process of crowd @which: whenever the test increments hogs[2 * which], it
 * changes its first mapping and its last one, and increments the counter behind
 * that.
 */
static void run_crowd_of_looks(struct shared *shared, unsigned int which,
			       unsigned int mappings)
{
	atomic_ulong *ask = &shared->hogs[2 * which];
	int protection = PROT_READ;
	unsigned int asked = 0;
	char *memory = NULL;
	int ret;

	ret = look_at_much(&memory, mappings);
	if (ret)
		atomic_store(&shared->failed, ret);
	atomic_fetch_add(&shared->ready, 1);
	while (!ret) {
		while (atomic_load(&ask[0]) == asked)
			usleep(100);
		asked++;
		mprotect(memory, PAGE, protection);
		mprotect(memory + (mappings - 2) * PAGE, PAGE, protection);
		protection ^= PROT_WRITE;
		atomic_store(&ask[1], asked);
	}
	for (;;)
		pause();
}

/* Microseconds from an mprotect(2) until the worker has found the change */
static int64_t look_takes(struct __test_metadata *_metadata,
			  FIXTURE_DATA(looks) *self)
{
	__u64 before = status_generation(&self->status, 0);
	int64_t t, end = now_ms() + LIMIT_MS;

	t = now_us();
	ASSERT_EQ(0, mprotect(self->page, PAGE, PROT_READ));
	while (status_generation(&self->status, 0) == before) {
		ASSERT_GT(end, now_ms());
		usleep(100);
	}
	t = now_us() - t;
	ASSERT_EQ(0, mprotect(self->page, PAGE, PROT_READ | PROT_WRITE));
	return t;
}

/*
 * The same while the worker has a crowd to check. The worker may begin with
 * this process, so the longer time of two counts.
 */
static int64_t look_takes_beside(struct __test_metadata *_metadata,
				 FIXTURE_DATA(looks) *self, unsigned int which)
{
	atomic_ulong *ask = &self->shared->hogs[2 * which];
	unsigned long asked = atomic_fetch_add(&ask[0], 1) + 1;
	int64_t end = now_ms() + LIMIT_MS, first, second;

	while (atomic_load(&ask[1]) < asked) {
		ASSERT_GT(end, now_ms());
		usleep(100);
	}
	first = look_takes(_metadata, self);
	second = look_takes(_metadata, self);
	return first > second ? first : second;
}

/*
 * A look waits for one turn of each other process, however many mappings that
 * has.
 */
TEST_F_TIMEOUT(looks, I2_look_waits_for_no_other_process, LONG_S)
{
	int64_t few, end;
	struct compared c = {};
	unsigned int i;

	for (i = 0; i < 2; i++) {
		self->crowds[i] = fork();
		ASSERT_LE(0, self->crowds[i]);
		if (!self->crowds[i])
			run_crowd_of_looks(self->shared, i, i ? MAPPINGS :
						 FEW_MAPPINGS);
	}
	await_ready(_metadata, self->shared, 2);
	end = now_ms() + 2 * LIMIT_MS;
	do {
		few = look_takes_beside(_metadata, self, 0);
		compare(_metadata, &c, few,
			look_takes_beside(_metadata, self, 1));
	} while (!compared(&c, end));
	EXPECT_GE(RATIO * c.few, c.many);
}

/* A truncation waits once for a process whose keys do not die in time */

FIXTURE(vain) {
	struct shared *shared;
	int fd;
	int files[FILES];
	pid_t owner;
};

FIXTURE_SETUP(vain)
{
	unsigned int i;

	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	self->shared = mmap(NULL, sizeof(*self->shared),
			    PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->shared);
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	for (i = 0; i < FILES; i++) {
		self->files[i] = memfd_create("vain", MFD_CLOEXEC);
		ASSERT_LE(0, self->files[i]);
		file_fill(_metadata, self->files[i]);
	}
}

FIXTURE_TEARDOWN(vain)
{
	unsigned int i;

	fault_cancel("completion");
	if (self->owner > 0) {
		kill(self->owner, SIGKILL);
		waitpid(self->owner, NULL, 0);
	}
	for (i = 0; i < FILES; i++)
		close(self->files[i]);
	EXPECT_EQ(0, close(self->fd));
	munmap(self->shared, sizeof(*self->shared));
}

static void own_files(struct shared *shared, const int *files)
{
	int ret = 0, fd = raw_open_bound();
	__u32 domain, mr;
	unsigned int i;
	void *page;

	for (i = 0; !ret && i < FILES; i++) {
		page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, files[i], 0);
		ret = raw_domain(fd, &domain) ?:
		      raw_register(fd, domain, page, PAGE, REMOTE_READ, &mr);
	}
	atomic_store(&shared->failed, ret);
	atomic_store(&shared->ready, 1);
	for (;;)
		pause();
}

static __u64 vain_stat(struct __test_metadata *_metadata,
		       FIXTURE_DATA(vain) *self, __u32 stat)
{
	__u64 value;

	ASSERT_EQ(0, raw_stat(self->fd, stat, &value));
	return value;
}

/*
 * As no LOCAL_INV completes, each queue has to be rebuilt before its key is
 * dead.
 */
TEST_F_TIMEOUT(vain, I2_address_space_is_waited_for_once, LONG_S)
{
	int64_t first, rest = 0, end = now_ms() + LIMIT_MS;
	__u64 killed, waits;
	unsigned int i;

	self->owner = fork();
	ASSERT_LE(0, self->owner);
	if (!self->owner)
		own_files(self->shared, self->files);
	await_ready(_metadata, self->shared, 1);
	killed = vain_stat(_metadata, self, IB_MEMREG_STAT_KEYS_KILLED);
	waits = vain_stat(_metadata, self, IB_MEMREG_STAT_GUARD_TIMEOUTS);
	fault_order("completion", 0, -1);
	first = truncate_takes(_metadata, self->files[0]);
	for (i = 1; i < FILES; i++)
		rest += truncate_takes(_metadata, self->files[i]);
	TH_LOG("%lld us, and %lld us for %u others", (long long)first,
	       (long long)rest, FILES - 1);
	EXPECT_GT(first, rest);
	waits = vain_stat(_metadata, self, IB_MEMREG_STAT_GUARD_TIMEOUTS) -
		waits;
	EXPECT_LE(FILES, waits);
	/* All keys die, though no guard waits for them any longer. */
	while (vain_stat(_metadata, self, IB_MEMREG_STAT_KEYS_KILLED) <
	       killed + FILES) {
		ASSERT_GT(end, now_ms());
		usleep(10000);
	}
}

TEST_HARNESS_MAIN
