// SPDX-License-Identifier: GPL-2.0-only
/*
 * Monitors of dma-bufs: the generation changes when the exporter takes the
 * memory away, and not otherwise; a monitor neither pins nor maps, and nothing
 * of it is left at the exporter. The exporter is a module of the tests, or
 * memreg itself.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define SLOTS		64
#define LEN		(16 * PAGE)
#define DMABUF		IB_MEMREG_MONITOR_DMABUF

FIXTURE(monitor_dmabuf) {
	int fd;
	int fake;
	struct status_map map;
};

FIXTURE_SETUP(monitor_dmabuf)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	self->fake = fake_open();
	ASSERT_LE(0, self->fake);
	ASSERT_EQ(0, status_create(self->fd, SLOTS, 0, &self->map));
}

FIXTURE_TEARDOWN(monitor_dmabuf)
{
	status_unmap(&self->map);
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, close(self->fake));
	EXPECT_EQ(0, vm_pin(0));
}

static struct ib_memreg_monitor of_dmabuf(int dmabuf)
{
	return (struct ib_memreg_monitor){
		.addr = (unsigned int)dmabuf,
		.flags = DMABUF,
	};
}

static int watch(FIXTURE_DATA(monitor_dmabuf) *self, int dmabuf,
		 struct ib_memreg_monitor *monitor)
{
	*monitor = of_dmabuf(dmabuf);
	return raw_monitor(self->fd, self->map.id, monitor, 1);
}

static bool is_ok(const FIXTURE_DATA(monitor_dmabuf) *self,
		  const struct ib_memreg_monitor *monitor)
{
	return status_generation(&self->map, monitor->out_slot) ==
	       monitor->out_generation;
}

/* Importers that are attached, or -errno */
static int attached(FIXTURE_DATA(monitor_dmabuf) *self, int dmabuf)
{
	struct memreg_fake_control state;
	int ret = fake_control(self->fake, dmabuf, MEMREG_FAKE_LOOK, &state);

	return ret ?: (int)state.out_attached;
}

/*
 * What the exporter does changes the generation before the call ends that makes
 * it, and wakes readers.
 */
static void taken_away(struct __test_metadata *_metadata,
		       FIXTURE_DATA(monitor_dmabuf) *self, __u32 flags, __u32 op)
{
	int dmabuf = fake_export(self->fake, LEN, flags);
	struct pollfd pfd = { .fd = self->map.fd, .events = POLLIN };
	struct ib_memreg_monitor monitor;
	struct memreg_fake_control state;
	__u64 changes;

	ASSERT_LE(0, dmabuf);
	ASSERT_EQ(0, watch(self, dmabuf, &monitor));
	ASSERT_EQ(0, fake_control(self->fake, dmabuf, MEMREG_FAKE_LOOK,
				  &state));
	EXPECT_EQ(1, state.out_attached);
	EXPECT_EQ(0, state.out_pinned);
	EXPECT_EQ(0, state.out_mapped);
	EXPECT_TRUE(is_ok(self, &monitor));
	EXPECT_EQ(0, poll(&pfd, 1, 0));

	ASSERT_EQ(0, fake_control(self->fake, dmabuf, op, &state));
	EXPECT_FALSE(is_ok(self, &monitor));
	EXPECT_EQ(1, state.out_at_once);
	EXPECT_EQ(1, poll(&pfd, 1, 10000));
	EXPECT_EQ(sizeof(changes), read(self->map.fd, &changes,
					sizeof(changes)));
	EXPECT_EQ(status_changes(&self->map), changes);

	EXPECT_EQ(0, raw_unmonitor(self->fd, &monitor.out_monitor_id, 1));
	EXPECT_EQ(0, attached(self, dmabuf));
	EXPECT_EQ(0, close(dmabuf));
}

TEST_F(monitor_dmabuf, it_changes_when_the_memory_moves)
{
	taken_away(_metadata, self, 0, MEMREG_FAKE_MOVE);
}

TEST_F(monitor_dmabuf, it_changes_when_the_memory_goes)
{
	taken_away(_metadata, self, 0, MEMREG_FAKE_UNPLUG);
	taken_away(_metadata, self, MEMREG_FAKE_STATIC | MEMREG_FAKE_REVOKES,
		   MEMREG_FAKE_UNPLUG);
}

/*
 * Nothing that others do changes it: another importer, that the descriptor is
 * closed, a move of other memory.
 */
TEST_F(monitor_dmabuf, it_stays_otherwise)
{
	int dmabuf = fake_export(self->fake, LEN, 0);
	int other = fake_export(self->fake, LEN, 0);
	int udmabuf = udmabuf_export(LEN), importer = fake_open();
	struct ib_memreg_monitor monitor, of_user;

	ASSERT_LE(0, dmabuf);
	ASSERT_LE(0, other);
	ASSERT_LE(0, udmabuf);
	ASSERT_LE(0, importer);
	ASSERT_EQ(0, watch(self, dmabuf, &monitor));
	ASSERT_EQ(0, watch(self, udmabuf, &of_user));
	EXPECT_EQ(0, fake_import(importer, dmabuf, true, true));
	EXPECT_EQ(0, close(importer));
	EXPECT_EQ(0, fake_control(self->fake, other, MEMREG_FAKE_MOVE, NULL));
	EXPECT_EQ(0, close(udmabuf));
	EXPECT_EQ(0, close(other));
	EXPECT_TRUE(is_ok(self, &monitor));
	EXPECT_TRUE(is_ok(self, &of_user));
	EXPECT_EQ(0, raw_unmonitor(self->fd, &of_user.out_monitor_id, 1));
	EXPECT_EQ(0, raw_unmonitor(self->fd, &monitor.out_monitor_id, 1));
	EXPECT_FALSE(is_ok(self, &monitor));
	EXPECT_EQ(0, attached(self, dmabuf));
	EXPECT_EQ(0, close(dmabuf));
}

/* memreg's own exports: revoked by a call, and by the end of the mapping */
TEST_F(monitor_dmabuf, I2_it_changes_when_an_export_ends)
{
	struct ib_memreg_monitor monitors[2];
	__u32 domain, mr, exports[2];
	int fds[2], i;
	void *at = mem_alloc(LEN);

	ASSERT_NE(NULL, at);
	ASSERT_EQ(0, raw_domain(self->fd, &domain));
	ASSERT_EQ(0, raw_register(self->fd, domain, at, LEN, LOCAL_WRITE, &mr));
	for (i = 0; i < 2; i++) {
		fds[i] = raw_export(self->fd, mr, 0, LEN, &exports[i]);
		if (fds[i] == -EOPNOTSUPP) {
			mem_free(at, LEN);
			SKIP(return, "this kernel has no exports");
		}
		ASSERT_LE(0, fds[i]);
		ASSERT_EQ(0, watch(self, fds[i], &monitors[i]));
	}
	EXPECT_EQ(0, raw_unexport(self->fd, &exports[0], 1));
	EXPECT_FALSE(is_ok(self, &monitors[0]));
	EXPECT_TRUE(is_ok(self, &monitors[1]));
	EXPECT_EQ(0, munmap(at, LEN));
	EXPECT_FALSE(is_ok(self, &monitors[1]));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(-EOPNOTSUPP, watch(self, fds[i], &monitors[0]));
		EXPECT_EQ(0, close(fds[i]));
	}
	mem_free(at, LEN);
}

/* LIST reports the number by which fstat() knows the dma-buf. */
TEST_F(monitor_dmabuf, it_is_known_by_its_inode)
{
	int dmabuf = fake_export(self->fake, LEN, 0), dup_;
	struct ib_memreg_monitor monitor;
	struct stat first, second;
	struct state state;
	__u32 i, found = 0;

	ASSERT_LE(0, dmabuf);
	dup_ = dup(dmabuf);
	ASSERT_EQ(0, watch(self, dmabuf, &monitor));
	EXPECT_EQ(0, fstat(dmabuf, &first));
	EXPECT_EQ(0, close(dmabuf));
	EXPECT_EQ(0, fstat(dup_, &second));
	EXPECT_EQ(first.st_ino, second.st_ino);
	EXPECT_EQ(first.st_dev, second.st_dev);
	ASSERT_EQ(0, state_get(&state));
	for (i = 0; i < state.count; i++) {
		const struct ib_memreg_object *o = &state.objects[i];

		if (o->type != IB_MEMREG_OBJECT_MONITOR)
			continue;
		found++;
		EXPECT_EQ(first.st_ino, o->u.monitor.dmabuf);
		EXPECT_EQ(LEN, o->u.monitor.length);
		EXPECT_EQ(self->map.id, o->u.monitor.status_id);
	}
	EXPECT_EQ(1, found);
	state_free(&state);
	EXPECT_EQ(0, raw_unmonitor(self->fd, &monitor.out_monitor_id, 1));
	EXPECT_EQ(0, attached(self, dup_));
	EXPECT_EQ(0, close(dup_));
}

/* All or none are made, of dma-bufs and ranges in one call. */
TEST_F(monitor_dmabuf, I8_one_that_fails_undoes_the_others)
{
	int dmabuf = fake_export(self->fake, LEN, 0);
	struct ib_memreg_monitor monitors[3];
	struct state before;
	char at[64];

	ASSERT_LE(0, dmabuf);
	monitors[0] = of_dmabuf(dmabuf);
	monitors[1] = (struct ib_memreg_monitor){
		.addr = (uintptr_t)at, .length = sizeof(at),
	};
	monitors[2] = of_dmabuf(self->fd);
	ASSERT_EQ(0, state_get(&before));
	EXPECT_EQ(-EBADF, raw_monitor(self->fd, self->map.id, monitors, 3));
	EXPECT_EQ(2, raw_index());
	EXPECT_EQ(IB_MEMREG_REASON_NOT_DMABUF, raw_reason());
	EXPECT_TRUE(state_same(&before));
	EXPECT_EQ(0, attached(self, dmabuf));
	monitors[2] = of_dmabuf(dmabuf);
	EXPECT_EQ(0, raw_monitor(self->fd, self->map.id, monitors, 3));
	EXPECT_EQ(2, attached(self, dmabuf));
	/* What the file has, it gives back when it is closed. */
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, attached(self, dmabuf));
	self->fd = raw_open_bound();
	state_free(&before);
	EXPECT_EQ(0, close(dmabuf));
}

TEST_F(monitor_dmabuf, I8_bad_input)
{
	int dmabuf = fake_export(self->fake, LEN, 0);
	struct ib_memreg_monitor good = of_dmabuf(dmabuf);
	const struct {
		__u64 addr, length;
		__u32 access, flags;
		int err;
		__u32 reason;
	} cases[] = {
		{ good.addr, 0, 0, DMABUF | IB_MEMREG_MONITOR_WIDE,
		  -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS },
		{ good.addr, 0, 0, DMABUF | 4, -EOPNOTSUPP,
		  IB_MEMREG_REASON_FLAGS },
		{ good.addr, 0, LOCAL_WRITE, DMABUF, -EINVAL,
		  IB_MEMREG_REASON_ACCESS },
		{ good.addr, LEN, 0, DMABUF, -EINVAL, IB_MEMREG_REASON_RANGE },
		{ good.addr | 1ULL << 32, 0, 0, DMABUF, -EBADF,
		  IB_MEMREG_REASON_FD },
		{ 1023, 0, 0, DMABUF, -EBADF, IB_MEMREG_REASON_FD },
		{ 1ULL << 31, 0, 0, DMABUF, -EBADF, IB_MEMREG_REASON_FD },
	};
	struct state before;
	size_t i;

	ASSERT_LE(0, dmabuf);
	ASSERT_EQ(0, state_get(&before));
	for (i = 0; i < ARRAY_LEN(cases); i++) {
		struct ib_memreg_monitor monitor = {
			.addr = cases[i].addr,
			.length = cases[i].length,
			.access = cases[i].access,
			.flags = cases[i].flags,
		};

		EXPECT_EQ(cases[i].err, raw_monitor(self->fd, self->map.id,
						    &monitor, 1))
			TH_LOG("case %zu", i);
		EXPECT_EQ(cases[i].reason, raw_reason())
			TH_LOG("case %zu", i);
	}
	EXPECT_EQ(0, fake_fail(self->fake, dmabuf, MEMREG_FAKE_ATTACH,
			       -ENODEV));
	EXPECT_EQ(-EOPNOTSUPP, raw_monitor(self->fd, self->map.id, &good, 1));
	EXPECT_EQ(IB_MEMREG_REASON_EXPORTER, raw_reason());
	EXPECT_TRUE(state_same(&before));
	EXPECT_EQ(0, attached(self, dmabuf));
	state_free(&before);
	EXPECT_EQ(0, close(dmabuf));
}

/* The exporter has to know for which device. */
TEST_F(monitor_dmabuf, I8_a_file_that_is_not_bound)
{
	int fd = raw_open(), dmabuf = fake_export(self->fake, LEN, 0);
	struct ib_memreg_monitor monitor = of_dmabuf(dmabuf);
	struct status_map map;

	ASSERT_LE(0, fd);
	ASSERT_LE(0, dmabuf);
	ASSERT_EQ(0, status_create(fd, 1, 0, &map));
	EXPECT_EQ(-ENODEV, raw_monitor(fd, map.id, &monitor, 1));
	EXPECT_EQ(IB_MEMREG_REASON_NOT_BOUND, raw_reason());
	EXPECT_EQ(0, attached(self, dmabuf));
	status_unmap(&map);
	EXPECT_EQ(0, close(fd));
	EXPECT_EQ(0, close(dmabuf));
}

TEST_F(monitor_dmabuf, I8_slots_run_out)
{
	int dmabuf = fake_export(self->fake, LEN, 0);
	struct ib_memreg_monitor monitors[SLOTS + 1];
	int i;

	ASSERT_LE(0, dmabuf);
	for (i = 0; i <= SLOTS; i++)
		monitors[i] = of_dmabuf(dmabuf);
	EXPECT_EQ(-ENOSPC, raw_monitor(self->fd, self->map.id, monitors,
				       SLOTS + 1));
	EXPECT_EQ(IB_MEMREG_REASON_SLOTS, raw_reason());
	EXPECT_EQ(0, raw_monitor(self->fd, self->map.id, monitors, SLOTS));
	EXPECT_EQ(SLOTS, attached(self, dmabuf));
	EXPECT_EQ(0, fake_control(self->fake, dmabuf, MEMREG_FAKE_MOVE, NULL));
	for (i = 0; i < SLOTS; i++)
		EXPECT_FALSE(is_ok(self, &monitors[i]));
	EXPECT_EQ(0, close(dmabuf));
}

/* They keep files without descriptors, so there are as many as of these. */
TEST_F(monitor_dmabuf, I8_as_many_as_descriptors)
{
	int dmabuf = fake_export(self->fake, LEN, 0);
	struct ib_memreg_monitor monitors[SLOTS];
	struct rlimit limit, low;
	int i;

	ASSERT_LE(0, dmabuf);
	for (i = 0; i < SLOTS; i++)
		monitors[i] = of_dmabuf(dmabuf);
	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &limit));
	low = limit;
	low.rlim_cur = SLOTS - 1;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &low));
	EXPECT_EQ(-EMFILE, raw_monitor(self->fd, self->map.id, monitors,
				       SLOTS));
	EXPECT_EQ(SLOTS - 1, raw_index());
	EXPECT_EQ(IB_MEMREG_REASON_EXPORTS, raw_reason());
	EXPECT_EQ(0, raw_monitor(self->fd, self->map.id, monitors, SLOTS - 1));
	EXPECT_EQ(SLOTS - 1, attached(self, dmabuf));
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	EXPECT_EQ(0, close(dmabuf));
}

/**
 * struct mover - A thread that moves memory
 * @fake: The module
 * @dmabuf: The memory
 * @moves: Moves that have begun
 * @moved: Moves that have ended
 * @stop: It has to end
 */
struct mover {
	int fake;
	int dmabuf;
	atomic_ulong moves;
	atomic_ulong moved;
	atomic_bool stop;
};

static void *move(void *arg)
{
	struct mover *mover = arg;
	int ret = 0;

	while (!ret && !mover->stop) {
		mover->moves++;
		ret = fake_control(mover->fake, mover->dmabuf,
				   MEMREG_FAKE_MOVE, NULL);
		mover->moved++;
	}
	return (void *)(intptr_t)ret;
}

/*
 * Monitors come and go while the memory moves: one that was there before a move
 * began has changed when the move has ended, and no callback comes late.
 */
TEST_F(monitor_dmabuf, I2_they_come_and_go_while_it_moves)
{
	int i, dmabuf = fake_export(self->fake, LEN, 0);
	struct mover mover = { .fake = self->fake, .dmabuf = dmabuf };
	struct ib_memreg_monitor monitor;
	unsigned long begun;
	pthread_t thread;
	void *ret;

	ASSERT_LE(0, dmabuf);
	ASSERT_EQ(0, pthread_create(&thread, NULL, move, &mover));
	for (i = 0; i < 500; i++) {
		ASSERT_EQ(0, watch(self, dmabuf, &monitor));
		begun = mover.moves;
		if (i % 2)
			while (mover.moved <= begun && !mover.stop)
				sched_yield();
		if (i % 2)
			EXPECT_FALSE(is_ok(self, &monitor));
		ASSERT_EQ(0, raw_unmonitor(self->fd, &monitor.out_monitor_id,
					   1));
	}
	mover.stop = true;
	EXPECT_EQ(0, pthread_join(thread, &ret));
	EXPECT_EQ(NULL, ret);
	EXPECT_EQ(0, attached(self, dmabuf));
	EXPECT_EQ(0, close(dmabuf));
}

TEST_HARNESS_MAIN
