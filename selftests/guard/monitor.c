// SPDX-License-Identifier: GPL-2.0-only
/*
 * Monitors and status tables: a call that changes a mapping changes the
 * generations of its monitors before it returns, and other calls do not; no
 * generation is ever repeated; and only the process that the table was made for
 * sees it. The tests need no device, except those of slots of MRs.
 *
 * time limit: 240
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "reclaim.h"
#include "state.h"
#include "test.h"

#define SLOTS		300
#define LOG		64
#define WIDE		IB_MEMREG_MONITOR_WIDE

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif

FIXTURE(monitor) {
	int fd;
	struct status_map map;
};

FIXTURE_SETUP(monitor)
{
	self->fd = raw_open();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, status_create(self->fd, SLOTS, LOG, &self->map));
}

FIXTURE_TEARDOWN(monitor)
{
	status_unmap(&self->map);
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
}

static struct ib_memreg_monitor range(const void *addr, size_t length,
				      __u32 access)
{
	return (struct ib_memreg_monitor){
		.addr = (uintptr_t)addr,
		.length = length,
		.access = access,
	};
}

static int watch(FIXTURE_DATA(monitor) *self, const void *addr, size_t length,
		 struct ib_memreg_monitor *monitor)
{
	*monitor = range(addr, length, LOCAL_WRITE);
	return raw_monitor(self->fd, self->map.id, monitor, 1);
}

static bool is_ok(const FIXTURE_DATA(monitor) *self,
		  const struct ib_memreg_monitor *monitor)
{
	return status_generation(&self->map, monitor->out_slot) ==
	       monitor->out_generation;
}

static __u64 load(const __u64 *from)
{
	return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

/* Number of checks that have ended, whether or not they found a change */
static __u64 looks(const FIXTURE_DATA(monitor) *self)
{
	return status_changes(&self->map) + load(&self->map.head->unchanged);
}

/* Wait for a check. Two suspect events may be handled by one check. */
static bool looked(const FIXTURE_DATA(monitor) *self, __u64 before)
{
	int64_t end = now_ms() + 10000;

	while (now_ms() < end)
		if (looks(self) != before)
			return true;
	return false;
}

/*
 * Events
 */

/* Expected effect of an event on watched memory */
enum outcome { NOTHING, GONE, GONE_AFTER_LOOK, NOTHING_AFTER_LOOK };

enum kind { ANON, SHARED, THP, HUGETLB };

/**
 * struct place - Memory that something happens to
 * @at: Its first byte, which is at a page; there is a page before and behind
 * @length: Bytes
 * @page: Bytes of a page
 * @fd: Its file, if it has one
 */
struct place {
	char *at;
	size_t length;
	size_t page;
	int fd;
};

FIXTURE(event) {
	FIXTURE_DATA(monitor) m;
	struct place place;
};

FIXTURE_VARIANT(event) {
	enum kind kind;
	enum outcome outcome;
	int (*happen)(struct place *place);
};

static char *map_place(enum kind kind, struct place *p)
{
	char *at;

	p->page = kind == HUGETLB || kind == THP ? HUGE : PAGE;
	p->length = 4 * p->page;
	switch (kind) {
	case THP:
		return mem_thp(p->length);
	case HUGETLB:
		return mem_hugetlb(p->length);
	case SHARED:
		p->fd = memfd_create("memreg", MFD_CLOEXEC);
		if (p->fd < 0 || ftruncate(p->fd, p->length))
			return NULL;
		at = mmap(NULL, p->length, PROT_RW, MAP_SHARED, p->fd, 0);
		break;
	default:
		at = mmap(NULL, p->length, PROT_RW,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	return at == MAP_FAILED ? NULL : at;
}

FIXTURE_SETUP(event)
{
	self->place.fd = -1;
	/* New pages that another CPU keeps for a while are not paged out. */
	ASSERT_EQ(0, stay_here());
	self->place.at = map_place(variant->kind, &self->place);
	if (!self->place.at && variant->kind == THP)
		SKIP(return, "no huge pages to be had");
	ASSERT_NE(NULL, self->place.at);
	memset(self->place.at, 1, self->place.length);
	self->m.fd = raw_open();
	ASSERT_LE(0, self->m.fd);
	ASSERT_EQ(0, status_create(self->m.fd, SLOTS, LOG, &self->m.map));
}

FIXTURE_TEARDOWN(event)
{
	status_unmap(&self->m.map);
	EXPECT_EQ(0, close(self->m.fd));
	if (self->place.fd >= 0)
		close(self->place.fd);
	munmap(self->place.at, self->place.length);
	if (variant->kind == HUGETLB)
		file_write("/proc/sys/vm/nr_hugepages", "0");
}

static int do_munmap(struct place *p)
{
	return munmap(p->at, p->length);
}

static int do_munmap_raw(struct place *p)
{
	return syscall(SYS_munmap, p->at, p->length);
}

static int do_munmap_a_page(struct place *p)
{
	return munmap(p->at + p->page, p->page);
}

static void *unmap_thread(void *arg)
{
	return (void *)(long)do_munmap_raw(arg);
}

static int do_munmap_by_thread(struct place *p)
{
	pthread_t thread;
	void *ret;

	if (pthread_create(&thread, NULL, unmap_thread, p))
		return -1;
	pthread_join(thread, &ret);
	return (long)ret;
}

static int do_map_over(struct place *p)
{
	return mmap(p->at, p->page, PROT_RW,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	       p->at;
}

static int do_mremap_away(struct place *p)
{
	char *to = mremap(p->at, p->length, 2 * p->length, MREMAP_MAYMOVE);

	/* If mremap(2) has grown the mapping where it is, move that. */
	if (to == p->at)
		to = mremap(p->at, p->length, p->length,
			    MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
	return to == MAP_FAILED || to == p->at || munmap(to, p->length);
}

static int do_mremap_onto(struct place *p)
{
	char *from = mmap(NULL, p->page, PROT_RW,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return from == MAP_FAILED ||
	       mremap(from, p->page, p->page, MREMAP_MAYMOVE | MREMAP_FIXED,
		      p->at) != p->at;
}

static int do_dontneed(struct place *p)
{
	return syscall(SYS_madvise, p->at, p->length, MADV_DONTNEED);
}

static int do_free(struct place *p)
{
	return madvise(p->at, p->length, MADV_FREE);
}

static int do_punch_hole(struct place *p)
{
	return fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 p->page, p->page);
}

static int do_truncate(struct place *p)
{
	return ftruncate(p->fd, p->page);
}

static int do_protect(struct place *p)
{
	return mprotect(p->at, p->length, PROT_READ);
}

static int do_protect_all(struct place *p)
{
	return mprotect(p->at, p->page, PROT_NONE);
}

/*
 * The mapping is read-only for a moment that is too short for the worker to
 * find it.
 */
static int do_unprotect(struct place *p)
{
	return mprotect(p->at, p->length, PROT_RW | PROT_EXEC);
}

static int do_touch(struct place *p)
{
	memset(p->at, 2, p->length);
	return 0;
}

static int do_fork(struct place *p)
{
	pid_t child = fork();
	int status;

	if (!child) {
		/* There are no huge pages for copies. */
		if (p->page == PAGE)
			memset(p->at, 3, p->length);
		_exit(munmap(p->at, p->length));
	}
	return child < 0 || waitpid(child, &status, 0) != child || status;
}

static int do_mlock(struct place *p)
{
	return mlock(p->at, p->length) || munlock(p->at, p->length);
}

static int do_clear_refs(struct place *p)
{
	(void)p;
	return file_write("/proc/self/clear_refs", "4") && errno != EINVAL;
}

static int do_map_elsewhere(struct place *p)
{
	char *at = mmap(NULL, p->length, PROT_RW,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return -1;
	memset(at, 1, p->length);
	return munmap(at, p->length);
}

static int do_pageout(struct place *p)
{
	return madvise(p->at, p->length, MADV_PAGEOUT);
}

/*
 * Write-protection by userfaultfd: the protection of pages changes, as by a
 * NUMA scan, and not that of the mapping.
 */
static int do_userfaultfd_wp(struct place *p)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { .start = (uintptr_t)p->at, .len = p->length },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	struct uffdio_writeprotect wp = {
		.range = reg.range,
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC), ret;

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) ||
	    ioctl(fd, UFFDIO_REGISTER, &reg))
		return -1;
	ret = ioctl(fd, UFFDIO_WRITEPROTECT, &wp);
	wp.mode = 0;
	ret |= ioctl(fd, UFFDIO_WRITEPROTECT, &wp);
	close(fd);
	return ret;
}

#define EVENT(_kind, _outcome, _what)					\
	FIXTURE_VARIANT_ADD(event, _kind##_##_what) {			\
		.kind = _kind, .outcome = _outcome, .happen = do_##_what, \
	}

/* clang-format off */
EVENT(ANON, GONE, munmap);
EVENT(ANON, GONE, munmap_raw);
EVENT(ANON, GONE, munmap_a_page);
EVENT(ANON, GONE, munmap_by_thread);
EVENT(ANON, GONE, map_over);
EVENT(ANON, GONE, mremap_away);
EVENT(ANON, GONE, mremap_onto);
EVENT(ANON, GONE, dontneed);
EVENT(ANON, GONE, free);
EVENT(ANON, GONE_AFTER_LOOK, protect);
EVENT(ANON, GONE_AFTER_LOOK, protect_all);
EVENT(ANON, NOTHING_AFTER_LOOK, unprotect);
EVENT(ANON, NOTHING_AFTER_LOOK, userfaultfd_wp);
EVENT(ANON, NOTHING, touch);
EVENT(ANON, NOTHING, fork);
EVENT(ANON, NOTHING, mlock);
EVENT(ANON, NOTHING, clear_refs);
EVENT(ANON, NOTHING, map_elsewhere);
EVENT(SHARED, GONE, munmap);
EVENT(SHARED, GONE, map_over);
EVENT(SHARED, GONE, mremap_away);
EVENT(SHARED, GONE, dontneed);
EVENT(SHARED, GONE, punch_hole);
EVENT(SHARED, GONE, truncate);
EVENT(SHARED, GONE_AFTER_LOOK, protect);
EVENT(SHARED, NOTHING_AFTER_LOOK, pageout);
EVENT(SHARED, NOTHING, fork);
EVENT(THP, GONE, munmap);
EVENT(THP, GONE, munmap_a_page);
EVENT(THP, GONE, map_over);
EVENT(THP, GONE, dontneed);
EVENT(THP, GONE_AFTER_LOOK, protect);
EVENT(HUGETLB, GONE, munmap);
EVENT(HUGETLB, GONE, munmap_a_page);
EVENT(HUGETLB, GONE, map_over);
EVENT(HUGETLB, GONE, dontneed);
EVENT(HUGETLB, GONE_AFTER_LOOK, protect);
/* fork(2) of huge pages announces a change of all of the range. */
EVENT(HUGETLB, GONE, fork);
/* clang-format on */

TEST_F(event, I2_generation_changes_before_the_call_returns)
{
	FIXTURE_DATA(monitor) *m = &self->m;
	struct ib_memreg_monitor monitor;
	__u64 changes, before;

	ASSERT_EQ(0, watch(m, self->place.at, self->place.length, &monitor));
	EXPECT_TRUE(is_ok(m, &monitor));
	EXPECT_NE(0, monitor.out_generation);
	changes = status_changes(&m->map);
	before = looks(m);

	ASSERT_EQ(0, variant->happen(&self->place));
	switch (variant->outcome) {
	case NOTHING:
		EXPECT_TRUE(is_ok(m, &monitor));
		EXPECT_EQ(changes, status_changes(&m->map));
		EXPECT_EQ(0, load(&m->map.head->suspects));
		break;
	case GONE:
		EXPECT_FALSE(is_ok(m, &monitor));
		EXPECT_LT(changes, status_changes(&m->map));
		break;
	case GONE_AFTER_LOOK:
		EXPECT_LT(0, load(&m->map.head->suspects));
		EXPECT_TRUE(looked(m, before));
		EXPECT_FALSE(is_ok(m, &monitor));
		break;
	case NOTHING_AFTER_LOOK:
		EXPECT_TRUE(looked(m, before));
		EXPECT_TRUE(is_ok(m, &monitor));
		EXPECT_EQ(changes, status_changes(&m->map));
	}
}

/*
 * Changes beside the range of a monitor do not count. Changes of any page that
 * has a byte of it do.
 */
TEST_F(monitor, neighbours_do_not_matter)
{
	struct ib_memreg_monitor monitor;
	char *mem = mem_alloc(8 * PAGE);

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, watch(self, mem + 2 * PAGE + 7, PAGE, &monitor));
	EXPECT_EQ(0, munmap(mem + PAGE, PAGE));
	EXPECT_EQ(0, munmap(mem + 4 * PAGE, PAGE));
	EXPECT_TRUE(is_ok(self, &monitor));
	EXPECT_EQ(0, munmap(mem + 3 * PAGE, PAGE));
	EXPECT_FALSE(is_ok(self, &monitor));
	mem_free(mem, 8 * PAGE);
}

TEST_F(monitor, memory_need_not_be_mapped)
{
	struct ib_memreg_monitor monitor;
	char *mem = mem_alloc(4 * PAGE);

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, munmap(mem, 4 * PAGE));
	ASSERT_EQ(0, watch(self, mem, 4 * PAGE, &monitor));
	ASSERT_EQ(mem, mmap(mem, 4 * PAGE, PROT_RW, MAP_PRIVATE |
			    MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
	memset(mem, 1, PAGE);
	EXPECT_TRUE(is_ok(self, &monitor));
	EXPECT_EQ(0, munmap(mem, 4 * PAGE));
	EXPECT_FALSE(is_ok(self, &monitor));
}

TEST_F(monitor, access_that_was_not_asked_for_may_go)
{
	struct ib_memreg_monitor monitor;
	char *mem = mem_alloc(PAGE);

	ASSERT_NE(NULL, mem);
	monitor = range(mem, PAGE, 0);
	ASSERT_EQ(0, raw_monitor(self->fd, self->map.id, &monitor, 1));
	EXPECT_EQ(0, mprotect(mem, PAGE, PROT_READ));
	EXPECT_TRUE(looked(self, 0));
	EXPECT_TRUE(is_ok(self, &monitor));
	EXPECT_EQ(0, mprotect(mem, PAGE, PROT_NONE));
	EXPECT_TRUE(looked(self, 1));
	EXPECT_FALSE(is_ok(self, &monitor));
	EXPECT_EQ(0, munmap(mem, PAGE));
}

/*
 * The end of a process
 */

/* A descriptor of another process */
static int take_fd(pid_t pid, int fd)
{
	int pidfd = syscall(SYS_pidfd_open, pid, 0), ret;

	ret = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	close(pidfd);
	return ret;
}

/*
 * A child that watches its memory and waits for a byte before it ends, by
 * execve(2) if it is to. Returns its pid.
 */
static pid_t watching_child(int fd, bool exec, int *descriptor, int *go)
{
	int say[2], hear[2];
	pid_t child;

	if (pipe(say) || pipe(hear))
		return -1;
	child = fork();
	if (!child) {
		struct ib_memreg_monitor monitor;
		struct status_map map;
		char *mem = mem_alloc(PAGE), byte;

		monitor = range(mem, PAGE, 0);
		if (status_create(fd, 1, 0, &map) ||
		    raw_monitor(fd, map.id, &monitor, 1) ||
		    write(say[1], &map.fd, sizeof(map.fd)) < 0 ||
		    read(hear[0], &byte, 1) != 1)
			_exit(1);
		if (exec)
			execl("/bin/true", "true", NULL);
		_exit(exec);
	}
	close(say[1]);
	close(hear[0]);
	*go = hear[1];
	if (read(say[0], descriptor, sizeof(*descriptor)) !=
	    sizeof(*descriptor))
		return -1;
	close(say[0]);
	return child;
}

static void end_of_process(struct __test_metadata *_metadata,
			   FIXTURE_DATA(monitor) *self, bool exec)
{
	int descriptor, go, fd, status;
	struct pollfd wait;
	__u64 changes;
	pid_t child;

	child = watching_child(self->fd, exec, &descriptor, &go);
	ASSERT_LT(0, child);
	fd = take_fd(child, descriptor);
	ASSERT_LE(0, fd);
	wait = (struct pollfd){ .fd = fd, .events = POLLIN };
	EXPECT_EQ(0, poll(&wait, 1, 0));
	ASSERT_EQ(1, write(go, "", 1));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(1, poll(&wait, 1, 0));
	EXPECT_EQ(8, read(fd, &changes, sizeof(changes)));
	EXPECT_LT(0, changes);
	close(fd);
	close(go);
}

TEST_F(monitor, exit_is_a_change)
{
	end_of_process(_metadata, self, false);
}

TEST_F(monitor, execve_is_a_change)
{
	end_of_process(_metadata, self, true);
}

/*
 * Tables
 */

TEST_F(monitor, table_can_be_read_by_its_process_alone)
{
	struct ib_memreg_monitor monitor;
	char *mem = mem_alloc(PAGE);

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, watch(self, mem, PAGE, &monitor));
	IN_CHILD {
		const struct ib_memreg_status_table *again;

		EXPECT_EQ(0, self->map.head->version);
		EXPECT_EQ(0, status_generation(&self->map,
					       monitor.out_slot));
		again = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, self->map.fd,
			     0);
		ASSERT_NE(MAP_FAILED, again);
		EXPECT_EQ(0, again->version);
		EXPECT_FAIL(EPERM, PROCESS,
			    raw_monitor(self->fd, self->map.id, &monitor, 1));
	}
	EXPECT_TRUE(is_ok(self, &monitor));
	EXPECT_EQ(IB_MEMREG_STATUS_VERSION, self->map.head->version);
	mem_free(mem, PAGE);
}

TEST_F(monitor, I6_table_can_not_be_written)
{
	void *at;

	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_RW, MAP_SHARED,
				   self->map.fd, 0));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE,
				   self->map.fd, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, self->map.size + PAGE, PROT_READ,
				   MAP_SHARED, self->map.fd, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_SHARED,
				   self->map.fd, self->map.size));
	EXPECT_EQ(EINVAL, errno);
	at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, self->map.fd,
		  self->map.size - PAGE);
	ASSERT_NE(MAP_FAILED, at);
	EXPECT_EQ(-1, mprotect(at, PAGE, PROT_RW));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(0, munmap(at, PAGE));
}

static int try_table(int fd, __u32 slots, __u32 log_entries)
{
	struct status_map map;
	int ret = status_create(fd, slots, log_entries, &map);

	if (ret)
		return ret;
	status_unmap(&map);
	return raw_destroy(fd, map.id);
}

TEST_F(monitor, tables_have_limits)
{
	EXPECT_FAIL(EINVAL, COUNT, try_table(self->fd, 0, 0));
	EXPECT_FAIL(EINVAL, COUNT,
		    try_table(self->fd, IB_MEMREG_STATUS_SLOTS_MAX + 1, 0));
	EXPECT_FAIL(EINVAL, LOG, try_table(self->fd, 1, 3));
	EXPECT_FAIL(EINVAL, LOG,
		    try_table(self->fd, 1, 2 * IB_MEMREG_STATUS_LOG_MAX));
	EXPECT_EQ(0, try_table(self->fd, IB_MEMREG_STATUS_SLOTS_MAX,
			       IB_MEMREG_STATUS_LOG_MAX));
	EXPECT_EQ(0, try_table(self->fd, 1, 1));
}

TEST_F(monitor, I8_batches_are_made_whole_or_not_at_all)
{
	struct ib_memreg_monitor m[4], good;
	char *mem = mem_alloc(PAGE);
	__u32 ids[IB_MEMREG_BATCH_MAX + 1] = {}, i;

	ASSERT_NE(NULL, mem);
	good = range(mem, PAGE, LOCAL_WRITE);
	for (i = 0; i < 4; i++)
		m[i] = good;
#define WRONG(_err, _reason, _field, _value)				\
	do {								\
		m[2]._field = _value;					\
		EXPECT_FAIL(_err, _reason, raw_monitor(self->fd,	\
			    self->map.id, m, 4));			\
		EXPECT_EQ(2, raw_index());				\
		m[2] = good;						\
	} while (0)
	WRONG(EINVAL, ZERO_LENGTH, length, 0);
	WRONG(EOVERFLOW, WRAPS, length, ~0ULL);
	WRONG(EFAULT, RANGE, length, 1ULL << 62);
	WRONG(EFAULT, RANGE, addr, 0xffff888000000000);
	WRONG(EOVERFLOW, WRAPS, addr, ~0ULL);
	WRONG(EINVAL, ACCESS, access, REMOTE_READ);
	WRONG(EOPNOTSUPP, FLAGS, flags, 1U << 31);
	WRONG(EINVAL, RANGE, flags, WIDE);
#undef WRONG
	EXPECT_FAIL(ENOENT, ID, raw_monitor(self->fd, 4711, m, 4));
	EXPECT_FAIL(EINVAL, COUNT, raw_monitor(self->fd, self->map.id, m, 0));
	EXPECT_FAIL(EINVAL, COUNT, raw_monitor(self->fd, self->map.id, m,
					       IB_MEMREG_BATCH_MAX + 1));
	EXPECT_FAIL(EFAULT, NONE, raw_monitor(self->fd, self->map.id,
					      (void *)PAGE, 1));

	ASSERT_EQ(0, raw_monitor(self->fd, self->map.id, m, 4));
	for (i = 0; i < 4; i++)
		ids[i] = m[i].out_monitor_id;
	ids[4] = self->map.id;
	EXPECT_FAIL(ENOENT, ID, raw_unmonitor(self->fd, ids, 5));
	EXPECT_EQ(4, raw_index());
	ids[4] = ids[1];
	EXPECT_FAIL(ENOENT, ID, raw_unmonitor(self->fd, ids, 5));
	EXPECT_EQ(4, raw_index());
	EXPECT_FAIL(EINVAL, COUNT, raw_unmonitor(self->fd, ids, 0));
	EXPECT_FAIL(EINVAL, COUNT, raw_unmonitor(self->fd, ids,
						 IB_MEMREG_BATCH_MAX + 1));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->fd, self->map.id));
	for (i = 0; i < 4; i++)
		EXPECT_TRUE(is_ok(self, &m[i]));
	EXPECT_EQ(0, raw_unmonitor(self->fd, ids, 4));
	for (i = 0; i < 4; i++)
		EXPECT_FALSE(is_ok(self, &m[i]));
	EXPECT_FAIL(ENOENT, ID, raw_unmonitor(self->fd, ids, 1));
	EXPECT_EQ(0, raw_destroy(self->fd, self->map.id));
	mem_free(mem, PAGE);
}

TEST_F(monitor, slots_come_back_and_generations_do_not)
{
	struct ib_memreg_monitor m[SLOTS], more;
	__u64 highest[SLOTS] = {};
	char *mem = mem_alloc(2 * PAGE);
	__u32 ids[SLOTS], i, round;

	ASSERT_NE(NULL, mem);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < SLOTS; i++)
			m[i] = range(mem + i % 2 * PAGE, PAGE, 0);
		ASSERT_EQ(0, raw_monitor(self->fd, self->map.id, m, 256));
		ASSERT_EQ(0, raw_monitor(self->fd, self->map.id, m + 256,
					 SLOTS - 256));
		EXPECT_EQ(-ENOSPC, watch(self, mem, PAGE, &more));
		EXPECT_EQ(IB_MEMREG_REASON_SLOTS, raw_reason());
		for (i = 0; i < SLOTS; i++) {
			ids[i] = m[i].out_monitor_id;
			ASSERT_GT(SLOTS, m[i].out_slot);
			EXPECT_LT(highest[m[i].out_slot], m[i].out_generation);
			highest[m[i].out_slot] = m[i].out_generation;
		}
		EXPECT_EQ(0, raw_unmonitor(self->fd, ids, 256));
		EXPECT_EQ(0, raw_unmonitor(self->fd, ids + 256, SLOTS - 256));
		for (i = 0; i < SLOTS; i++) {
			EXPECT_FALSE(is_ok(self, &m[i]));
			EXPECT_LT(highest[i],
				  status_generation(&self->map, i));
		}
	}
	mem_free(mem, 2 * PAGE);
}

TEST_F(monitor, groups_say_which_ones)
{
	struct ib_memreg_monitor m[SLOTS];
	__u64 before[SLOTS / IB_MEMREG_STATUS_GROUP + 1];
	char *mem = mem_alloc(SLOTS * PAGE);
	__u32 i, group;

	ASSERT_NE(NULL, mem);
	for (i = 0; i < SLOTS; i++)
		ASSERT_EQ(0, watch(self, mem + i * PAGE, PAGE, &m[i]));
	for (i = 0; i < ARRAY_LEN(before); i++)
		before[i] = load(&self->map.groups[i]);
	EXPECT_EQ(0, munmap(mem + 100 * PAGE, 2 * PAGE));
	EXPECT_EQ(2, status_changes(&self->map));
	for (i = 0; i < SLOTS; i++)
		EXPECT_EQ(i != 100 && i != 101, is_ok(self, &m[i]));
	group = m[100].out_slot / IB_MEMREG_STATUS_GROUP;
	for (i = 0; i < ARRAY_LEN(before); i++)
		EXPECT_EQ(i == group || i == m[101].out_slot /
			  IB_MEMREG_STATUS_GROUP,
			  load(&self->map.groups[i]) != before[i]);
	mem_free(mem, SLOTS * PAGE);
}

static void *read_changes(void *arg)
{
	__u64 changes = 0;

	return (void *)(read(*(int *)arg, &changes, sizeof(changes)) ==
			sizeof(changes) ? changes : ~0UL);
}

TEST_F(monitor, descriptor_waits_for_changes)
{
	struct pollfd wait = { .fd = self->map.fd, .events = POLLIN };
	struct ib_memreg_monitor monitor;
	char *mem = mem_alloc(2 * PAGE);
	pthread_t thread;
	__u64 changes;
	void *ret;

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, watch(self, mem, 2 * PAGE, &monitor));
	EXPECT_EQ(0, poll(&wait, 1, 0));
	ASSERT_EQ(0, pthread_create(&thread, NULL, read_changes,
				    &self->map.fd));
	EXPECT_EQ(0, munmap(mem, PAGE));
	ASSERT_EQ(0, pthread_join(thread, &ret));
	EXPECT_EQ(1, (long)ret);
	EXPECT_EQ(0, poll(&wait, 1, 0));
	EXPECT_EQ(0, munmap(mem + PAGE, PAGE));
	EXPECT_EQ(1, poll(&wait, 1, -1));
	EXPECT_EQ(POLLIN, wait.revents);
	EXPECT_EQ(-1, read(self->map.fd, &changes, 7));
	EXPECT_EQ(EINVAL, errno);
	/*
	 * The next read(2) returns what could not be copied to the user's
	 * buffer.
	 */
	EXPECT_EQ(-1, read(self->map.fd, (void *)PAGE,
			   sizeof(changes)));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(1, poll(&wait, 1, 0));
	EXPECT_EQ(8, read(self->map.fd, &changes, sizeof(changes)));
	EXPECT_EQ(2, changes);
	ASSERT_EQ(0, fcntl(self->map.fd, F_SETFL, O_NONBLOCK));
	EXPECT_EQ(-1, read(self->map.fd, &changes, sizeof(changes)));
	EXPECT_EQ(EAGAIN, errno);
}

TEST_F(monitor, closing_the_file_ends_all_of_it)
{
	struct pollfd wait = { .fd = self->map.fd, .events = POLLIN };
	struct ib_memreg_monitor monitor;
	char *mem = mem_alloc(PAGE);
	__u64 changes, last;

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, watch(self, mem, PAGE, &monitor));
	EXPECT_EQ(0, close(self->fd));
	EXPECT_FALSE(is_ok(self, &monitor));
	EXPECT_EQ(IB_MEMREG_STATUS_DEAD, self->map.head->state);
	EXPECT_EQ(1, poll(&wait, 1, 0));
	EXPECT_EQ(POLLIN | POLLHUP, wait.revents);
	EXPECT_EQ(8, read(self->map.fd, &changes, sizeof(changes)));
	EXPECT_EQ(0, read(self->map.fd, &changes, sizeof(changes)));
	last = status_generation(&self->map, monitor.out_slot);
	EXPECT_EQ(0, munmap(mem, PAGE));
	EXPECT_EQ(last, status_generation(&self->map, monitor.out_slot));
	self->fd = raw_open();
}

/*
 * The log
 */

TEST_F(monitor, wide_monitors_log_every_change)
{
	const struct ib_memreg_change *log = (const void *)
		((const char *)self->map.head + self->map.head->log_offset);
	struct ib_memreg_monitor wide = { .flags = WIDE }, more = wide;
	char *mem = mem_alloc(3 * PAGE);
	__u64 head;
	__u32 i;

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, raw_monitor(self->fd, self->map.id, &wide, 1));
	EXPECT_FAIL(EBUSY, LOG, raw_monitor(self->fd, self->map.id, &more, 1));
	head = load(&self->map.head->log_head);
	EXPECT_EQ(0, munmap(mem + PAGE, PAGE));
	EXPECT_EQ(head + 1, load(&self->map.head->log_head));
	EXPECT_EQ((uintptr_t)mem + PAGE, log[head % LOG].start);
	EXPECT_EQ((uintptr_t)mem + 2 * PAGE, log[head % LOG].end);
	for (i = 0; i < LOG + 5; i++)
		EXPECT_EQ(0, madvise(mem, PAGE, MADV_DONTNEED));
	EXPECT_EQ(head + LOG + 6, load(&self->map.head->log_head));
	EXPECT_EQ((uintptr_t)mem, log[head % LOG].start);
	EXPECT_EQ(0, raw_destroy(self->fd, wide.out_monitor_id));
	head = load(&self->map.head->log_head);
	mem_free(mem, 3 * PAGE);
	EXPECT_EQ(head, load(&self->map.head->log_head));
	EXPECT_EQ(0, raw_monitor(self->fd, self->map.id, &more, 1));
}

/* Is a page in an entry of the log from @head on? */
static bool logged(const FIXTURE_DATA(monitor) *self, __u64 head,
		   const char *page)
{
	const struct ib_memreg_change *log = (const void *)
		((const char *)self->map.head + self->map.head->log_offset);
	__u64 i, now = load(&self->map.head->log_head);

	for (i = head; i < now; i++)
		if (log[i % LOG].start <= (uintptr_t)page &&
		    log[i % LOG].end > (uintptr_t)page)
			return true;
	return false;
}

/* Both changes of protection are suspect together, and one look serves both. */
TEST_F(monitor, wide_monitors_log_nothing_between_two_changes)
{
	struct ib_memreg_monitor wide = { .flags = WIDE };
	char *mem = mem_alloc(5 * PAGE);
	__u64 head;

	ASSERT_NE(NULL, mem);
	memset(mem, 1, 5 * PAGE);
	ASSERT_EQ(0, raw_monitor(self->fd, self->map.id, &wide, 1));
	head = load(&self->map.head->log_head);
	EXPECT_EQ(0, mprotect(mem, PAGE, PROT_NONE));
	EXPECT_EQ(0, mprotect(mem + 4 * PAGE, PAGE, PROT_READ));
	AWAIT(logged(self, head, mem) && logged(self, head, mem + 4 * PAGE));
	EXPECT_FALSE(logged(self, head, mem + 2 * PAGE));
	mem_free(mem, 5 * PAGE);
}

TEST_F(monitor, wide_monitors_need_a_log)
{
	struct ib_memreg_monitor wide = { .flags = WIDE };
	struct status_map map;

	ASSERT_EQ(0, status_create(self->fd, 1, 0, &map));
	EXPECT_FAIL(EINVAL, LOG, raw_monitor(self->fd, map.id, &wide, 1));
	status_unmap(&map);
}

/*
 * The number of monitors of one page
 */

#define DEPTH		IB_MEMREG_MONITOR_DEPTH
/* Most monitors of a page whose ranges differ */
#define NESTED		(3 * DEPTH * 36)
#define SMALL		1000

/* Add a monitor of some pages to a table with room for it. */
static int watch_by(int fd, __u32 table, const char *addr, size_t pages)
{
	struct ib_memreg_monitor monitor = range(addr, pages * PAGE, 0);

	return raw_monitor(fd, table, &monitor, 1);
}

/* Add as many monitors of some pages as may be, and return their number. */
static unsigned int watch_to_the_limit(FIXTURE_DATA(monitor) *self,
				       const char *addr, size_t pages)
{
	unsigned int n;

	for (n = 0; n <= DEPTH; n++)
		if (watch_by(self->fd, self->map.id, addr, pages))
			break;
	return n;
}

#define EXPECT_DEEP(_fd, _table, _addr, _pages)				\
	EXPECT_FAIL(ENOSPC, DEPTH, watch_by(_fd, _table, _addr, _pages))

TEST_F(monitor, page_has_a_limit_of_monitors)
{
	struct ib_memreg_monitor m[DEPTH], more[3];
	char *mem = mem_alloc(3 * PAGE);
	unsigned int i;

	ASSERT_NE(NULL, mem);
	for (i = 0; i < DEPTH; i++)
		m[i] = range(mem + PAGE, PAGE, 0);
	ASSERT_EQ(0, raw_monitor(self->fd, self->map.id, m, DEPTH));
	EXPECT_DEEP(self->fd, self->map.id, mem + PAGE, 1);
	EXPECT_EQ(0, raw_index());
	/* its last page, its first, and its middle one */
	EXPECT_DEEP(self->fd, self->map.id, mem, 2);
	EXPECT_DEEP(self->fd, self->map.id, mem + PAGE, 2);
	EXPECT_DEEP(self->fd, self->map.id, mem, 3);

	ASSERT_EQ(0, raw_destroy(self->fd, m[7].out_monitor_id));
	more[0] = range(mem, PAGE, 0);
	more[1] = range(mem + PAGE, PAGE, 0);
	more[2] = range(mem + PAGE, 1, 0);
	EXPECT_FAIL(ENOSPC, DEPTH,
		    raw_monitor(self->fd, self->map.id, more, 3));
	EXPECT_EQ(2, raw_index());
	for (i = 0; i < DEPTH; i++)
		EXPECT_EQ(i != 7, is_ok(self, &m[i]));
	/* None of the three is left: there is room for one again. */
	EXPECT_EQ(0, watch_by(self->fd, self->map.id, mem + PAGE, 1));
	EXPECT_DEEP(self->fd, self->map.id, mem + PAGE, 1);
	mem_free(mem, 3 * PAGE);
}

TEST_F(monitor, tables_of_a_process_share_the_limit)
{
	char *mem = mem_alloc(PAGE);
	struct status_map map;
	int fd = raw_open();

	ASSERT_NE(NULL, mem);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, status_create(fd, DEPTH, LOG, &map));
	ASSERT_EQ(DEPTH, watch_to_the_limit(self, mem, 1));
	EXPECT_DEEP(fd, map.id, mem, 1);
	IN_CHILD {
		FIXTURE_DATA(monitor) own = { .fd = raw_open() };

		ASSERT_EQ(0, status_create(own.fd, SLOTS, 0, &own.map));
		EXPECT_EQ(DEPTH, watch_to_the_limit(&own, mem, 1));
		EXPECT_EQ(IB_MEMREG_REASON_DEPTH, raw_reason());
	}
	EXPECT_DEEP(fd, map.id, mem, 1);
	/* The monitors of a closed file do not count. */
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, watch_by(fd, map.id, mem, 1));
	status_unmap(&map);
	EXPECT_EQ(0, close(fd));
	self->fd = raw_open();
	mem_free(mem, PAGE);
}

TEST_F(monitor, wide_monitors_count)
{
	struct ib_memreg_monitor wide = { .flags = WIDE };
	char *mem = mem_alloc(PAGE);

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, raw_monitor(self->fd, self->map.id, &wide, 1));
	EXPECT_EQ(DEPTH - 1, watch_to_the_limit(self, mem, 1));
	EXPECT_EQ(IB_MEMREG_REASON_DEPTH, raw_reason());
	EXPECT_EQ(0, raw_destroy(self->fd, wide.out_monitor_id));
	EXPECT_EQ(0, watch_by(self->fd, self->map.id, mem, 1));
	EXPECT_DEEP(self->fd, self->map.id, mem, 1);
	mem_free(mem, PAGE);
}

TEST_F(monitor, large_range_contains_any_number_of_small_ones)
{
	char *mem = mem_alloc(SMALL * PAGE);
	struct status_map map;
	unsigned int i;

	ASSERT_NE(NULL, mem);
	ASSERT_EQ(0, status_create(self->fd, SMALL + 1, 0, &map));
	for (i = 0; i < SMALL; i++)
		ASSERT_EQ(0, watch_by(self->fd, map.id, mem + i * PAGE, 1));
	EXPECT_EQ(0, watch_by(self->fd, map.id, mem, SMALL));
	status_unmap(&map);
	mem_free(mem, SMALL * PAGE);
}

/*
 * Ranges around the page in the middle of some memory, each longer than the
 * last by some pages before it and some behind it. Returns their number.
 */
static unsigned int nest(struct __test_metadata *_metadata, const char *mem,
			 unsigned int before, unsigned int behind)
{
	const char *middle = mem + 2 * NESTED * PAGE;
	struct status_map map;
	unsigned int n;
	int fd = raw_open();

	ASSERT_EQ(0, status_create(fd, NESTED + 1, 0, &map));
	for (n = 0; n <= NESTED; n++)
		if (watch_by(fd, map.id, middle - n * before * PAGE,
			     n * (before + behind) + 1))
			break;
	EXPECT_EQ(IB_MEMREG_REASON_DEPTH, raw_reason());
	status_unmap(&map);
	EXPECT_EQ(0, close(fd));
	return n;
}

TEST_F(monitor, nested_ranges_have_a_limit)
{
	size_t size = (4 * NESTED + 1) * PAGE;
	unsigned int n;
	char *mem;

	mem = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
		   MAP_NORESERVE, -1, 0);
	ASSERT_NE(MAP_FAILED, mem);
	/* All have the same middle page, the same first one, or last one. */
	EXPECT_EQ(DEPTH, nest(_metadata, mem, 1, 1));
	EXPECT_EQ(DEPTH, nest(_metadata, mem, 0, 1));
	EXPECT_EQ(DEPTH, nest(_metadata, mem, 1, 0));
	n = nest(_metadata, mem, 1, 2);
	EXPECT_LT(DEPTH, n);
	EXPECT_GE(NESTED, n);
	mem_free(mem, size);
}

/*
 * Many at once
 */

/**
 * struct crowd - Threads that watch and unmap
 * @m: Fixture, with the table
 * @end: When to stop
 * @bad: A thread found an error
 */
struct crowd {
	FIXTURE_DATA(monitor) *m;
	int64_t end;
	bool bad;
};

/* Map, watch, unmap: the watch is never good afterwards. */
static void *crowd_thread(void *arg)
{
	struct crowd *c = arg;
	struct ib_memreg_monitor monitor;
	char *mem;

	while (now_ms() < c->end && !c->bad) {
		mem = mem_alloc(2 * PAGE);
		if (!mem || watch(c->m, mem, 2 * PAGE, &monitor))
			break;
		if (mprotect(mem, PAGE, PROT_READ) || munmap(mem, 2 * PAGE) ||
		    is_ok(c->m, &monitor) ||
		    raw_unmonitor(c->m->fd, &monitor.out_monitor_id, 1))
			c->bad = true;
	}
	return NULL;
}

TEST_F(monitor, threads_watch_and_unmap)
{
	struct crowd crowd = {
		.m = self,
		.end = now_ms() + (test_full() ? 60000 : 3000),
	};
	pthread_t threads[4];
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(threads); i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, crowd_thread,
					    &crowd));
	for (i = 0; i < ARRAY_LEN(threads); i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	EXPECT_FALSE(crowd.bad);
	EXPECT_EQ(0, raw_destroy(self->fd, self->map.id));
}

/*
 * Slots of MRs
 */

FIXTURE(mr_slot) {
	FIXTURE_DATA(monitor) m;
	__u32 domain;
	char *mem;
	struct ib_memreg_mr_register mr;
};

FIXTURE_SETUP(mr_slot)
{
	self->m.fd = raw_open();
	ASSERT_LE(0, self->m.fd);
	/*
	 * A status table that is made before the file is bound works
	 * afterwards, too.
	 */
	ASSERT_EQ(0, status_create(self->m.fd, 1, 0, &self->m.map));
	ASSERT_EQ(0, raw_bind_device(self->m.fd, test_device()));
	ASSERT_EQ(0, raw_domain(self->m.fd, &self->domain));
	self->mem = mem_alloc(4 * PAGE);
	ASSERT_NE(NULL, self->mem);
	self->mr = (struct ib_memreg_mr_register){
		.size = sizeof(self->mr),
		.domain_id = self->domain,
		.access = LOCAL_WRITE | REMOTE_READ,
		.addr = (uintptr_t)self->mem,
		.length = 4 * PAGE,
		.status_id = self->m.map.id,
	};
	ASSERT_EQ(0, raw_call(self->m.fd, IB_MEMREG_IOC_MR_REGISTER,
			      &self->mr));
}

FIXTURE_TEARDOWN(mr_slot)
{
	status_unmap(&self->m.map);
	EXPECT_EQ(0, close(self->m.fd));
	EXPECT_EQ(0, vm_pin(0));
}

static bool mr_is_ok(const FIXTURE_DATA(mr_slot) *self)
{
	return status_generation(&self->m.map, self->mr.out_slot) ==
	       self->mr.out_generation;
}

TEST_F(mr_slot, I2_generation_changes_as_the_mr_goes_stale)
{
	EXPECT_TRUE(mr_is_ok(self));
	EXPECT_FAIL(EBUSY, IN_USE, raw_destroy(self->m.fd, self->m.map.id));
	EXPECT_EQ(0, munmap(self->mem + PAGE, PAGE));
	EXPECT_FALSE(mr_is_ok(self));
	EXPECT_EQ(1, status_changes(&self->m.map));
	EXPECT_EQ(0, raw_destroy(self->m.fd, self->mr.out_mr_id));
	EXPECT_EQ(0, raw_destroy(self->m.fd, self->m.map.id));
}

TEST_F(mr_slot, generation_changes_with_the_end_of_the_mr)
{
	struct ib_memreg_mr_register more = self->mr;

	EXPECT_FAIL(ENOSPC, SLOTS, raw_call(self->m.fd,
					    IB_MEMREG_IOC_MR_REGISTER, &more));
	more.status_id = self->domain;
	EXPECT_FAIL(ENOENT, ID, raw_call(self->m.fd,
					 IB_MEMREG_IOC_MR_REGISTER, &more));
	EXPECT_TRUE(mr_is_ok(self));
	EXPECT_EQ(0, raw_destroy(self->m.fd, self->mr.out_mr_id));
	EXPECT_FALSE(mr_is_ok(self));
	EXPECT_EQ(0, raw_call(self->m.fd, IB_MEMREG_IOC_MR_REGISTER,
			      &self->mr));
	EXPECT_TRUE(mr_is_ok(self));
}

/* A thread that makes many monitors while the test's memory changes */
struct many {
	FIXTURE_DATA(mr_slot) *self;
	struct status_map map;
	struct ib_memreg_monitor monitors[IB_MEMREG_BATCH_MAX];
	pid_t tid;
	bool go;
	int ret;
};

static void *make_many(void *arg)
{
	struct many *m = arg;

	__atomic_store_n(&m->tid, gettid(), __ATOMIC_RELEASE);
	while (!__atomic_load_n(&m->go, __ATOMIC_ACQUIRE))
		sched_yield();
	m->ret = raw_monitor(m->self->m.fd, m->map.id, m->monitors,
			     IB_MEMREG_BATCH_MAX);
	return NULL;
}

static void *unmap_all(void *arg)
{
	FIXTURE_DATA(mr_slot) *self = arg;

	munmap(self->mem, 4 * PAGE);
	return NULL;
}

/* Slots that were ever taken */
static unsigned int slots_used(const struct status_map *map, unsigned int n)
{
	unsigned int i, used = 0;

	for (i = 0; i < n; i++)
		used += status_generation(map, i) != 0;
	return used;
}

/*
 * The task that ends a change of the address space inserts the notifiers that
 * came meanwhile: one of each thread. As no LOCAL_INV completes, the change
 * here takes until the queue is rebuilt.
 */
TEST_F(mr_slot, one_monitor_waits_for_a_change)
{
	static struct many many;
	pthread_t maker, unmapper;
	unsigned int i;

	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	many = (struct many) { .self = self };
	for (i = 0; i < IB_MEMREG_BATCH_MAX; i++)
		many.monitors[i] = range(&many, PAGE, 0);
	ASSERT_EQ(0, status_create(self->m.fd, SLOTS, 0, &many.map));
	/* No thread can be made while memory is being unmapped. */
	ASSERT_EQ(0, pthread_create(&maker, NULL, make_many, &many));
	AWAIT(__atomic_load_n(&many.tid, __ATOMIC_ACQUIRE));
	fault_order("completion", 0, -1);
	ASSERT_EQ(0, pthread_create(&unmapper, NULL, unmap_all, self));
	AWAIT(!mr_is_ok(self));
	__atomic_store_n(&many.go, true, __ATOMIC_RELEASE);
	AWAIT(slots_used(&many.map, SLOTS));
	EXPECT_TRUE(task_is(many.tid, 'D'));
	EXPECT_EQ(1, slots_used(&many.map, SLOTS));
	fault_cancel("completion");
	ASSERT_EQ(0, pthread_join(unmapper, NULL));
	ASSERT_EQ(0, pthread_join(maker, NULL));
	EXPECT_EQ(0, many.ret);
	EXPECT_EQ(IB_MEMREG_BATCH_MAX, slots_used(&many.map, SLOTS));
	status_unmap(&many.map);
}

TEST_F(mr_slot, other_processes_have_no_slot)
{
	IN_CHILD {
		EXPECT_FAIL(EPERM, PROCESS,
			    raw_call(self->m.fd, IB_MEMREG_IOC_MR_REGISTER,
				     &self->mr));
	}
}

TEST_F(mr_slot, list_reports_tables_and_monitors)
{
	struct ib_memreg_monitor monitor;
	struct status_map map;

	EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_STATUS));
	ASSERT_EQ(0, status_create(self->m.fd, 1, 0, &map));
	monitor = range(self->mem, 2 * PAGE, 0);
	ASSERT_EQ(0, raw_monitor(self->m.fd, map.id, &monitor, 1));
	EXPECT_EQ(2, state_count(IB_MEMREG_OBJECT_STATUS));
	EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_MONITOR));
	status_unmap(&map);
}

TEST_HARNESS_MAIN
