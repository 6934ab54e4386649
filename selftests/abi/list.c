// SPDX-License-Identifier: GPL-2.0-only
/*
 * LIST reports every object exactly once, only to callers that may see it, in
 * entries of the caller's size.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define NOBODY		65534
#define WINDOWS		40

FIXTURE(list) {
	int fd;
	__u32 domain;
	__u32 mr;
	__u32 windows[WINDOWS];
	char *memory;
	/* A second file, which is not bound to a device */
	int reader;
};

FIXTURE_SETUP(list)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	self->reader = raw_open();
	ASSERT_LE(0, self->reader);
	self->memory = mem_alloc(4 * PAGE);
	ASSERT_NE(NULL, self->memory);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory,
				  3 * PAGE, LOCAL_WRITE | MW_BIND | REMOTE_READ,
				  &self->mr));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, 2 * PAGE,
				 self->windows, WINDOWS));
}

FIXTURE_TEARDOWN(list)
{
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, close(self->reader));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_FILE));
}

/* Find an object of the only file in LIST's report. */
static bool find(__u32 id, struct ib_memreg_object *object)
{
	struct state now;
	bool found = false;
	__u32 i;

	if (state_get(&now))
		return false;
	for (i = 0; i < now.count; i++) {
		if (now.objects[i].id == id) {
			*object = now.objects[i];
			found = true;
		}
	}
	state_free(&now);
	return found;
}

TEST_F(list, reports_each_object_once_whatever_the_room)
{
	static const __u32 rooms[] = { 1, 2, 3, 7, 42, 43, 44, 1000 };
	struct ib_memreg_object objects[1000];
	int times[WINDOWS + 10];
	unsigned int i, k;
	__u32 total;

	for (i = 0; i < ARRAY_LEN(rooms); i++) {
		RAW(list, cmd, .objects = (uintptr_t)objects,
		    .object_size = sizeof(objects[0]));

		memset(times, 0, sizeof(times));
		total = 0;
		do {
			cmd.count = rooms[i];
			ASSERT_EQ(0, raw_call(self->reader, IB_MEMREG_IOC_LIST,
					      &cmd));
			ASSERT_LE(cmd.count, rooms[i]);
			for (k = 0; k < cmd.count; k++) {
				ASSERT_GT(ARRAY_LEN(times), objects[k].id);
				times[objects[k].id]++;
			}
			total += cmd.count;
		} while (cmd.count);
		EXPECT_EQ(3 + WINDOWS, total);
		EXPECT_EQ(1, times[0]);
		EXPECT_EQ(1, times[self->domain]);
		EXPECT_EQ(1, times[self->mr]);
		for (k = 0; k < WINDOWS; k++)
			EXPECT_EQ(1, times[self->windows[k]]);
	}
}

TEST_F(list, reports_what_objects_are)
{
	struct ib_memreg_bind bind = {
		.window_id = self->windows[3],
		.mr_id = self->mr,
		.offset = 100,
		.length = 200,
		.access = REMOTE_WRITE,
	};
	struct ib_memreg_object object;

	ASSERT_EQ(0, prctl(PR_SET_NAME, "renamed"));
	ASSERT_TRUE(find(0, &object));
	EXPECT_EQ(IB_MEMREG_OBJECT_FILE, object.type);
	EXPECT_EQ(getpid(), object.pid);
	EXPECT_EQ(getuid(), object.uid);
	EXPECT_STREQ("list", object.comm);
	EXPECT_STREQ(test_device(), object.device);
	EXPECT_EQ(3, object.u.file.pinned);

	ASSERT_TRUE(find(self->domain, &object));
	EXPECT_EQ(IB_MEMREG_OBJECT_DOMAIN, object.type);
	EXPECT_EQ(1, object.u.domain.working);
	EXPECT_EQ(0, object.u.domain.rebuilds);
	EXPECT_EQ(1 + WINDOWS, object.users);

	ASSERT_TRUE(find(bind.window_id, &object));
	EXPECT_EQ(IB_MEMREG_OBJECT_WINDOW, object.type);
	EXPECT_EQ(0, object.u.window.bound);
	EXPECT_EQ(0, object.u.window.rkey);
	EXPECT_EQ(0, object.u.window.mr_id);
	EXPECT_EQ(self->domain, object.domain_id);

	ASSERT_EQ(0, raw_bind(self->fd, self->domain, &bind, 1));
	ASSERT_TRUE(find(bind.window_id, &object));
	EXPECT_EQ(1, object.u.window.bound);
	EXPECT_EQ(bind.out_rkey, object.u.window.rkey);
	EXPECT_EQ(bind.out_iova, object.u.window.iova);
	EXPECT_EQ(200, object.u.window.length);
	EXPECT_EQ(2 * PAGE, object.u.window.max_span);
	EXPECT_EQ(REMOTE_WRITE, object.u.window.access);
	EXPECT_EQ(self->mr, object.u.window.mr_id);

	ASSERT_TRUE(find(self->mr, &object));
	EXPECT_EQ(IB_MEMREG_OBJECT_MR, object.type);
	EXPECT_EQ(IB_MEMREG_MR_LIVE, object.u.mr.state);
	EXPECT_EQ((uintptr_t)self->memory, object.u.mr.addr);
	EXPECT_EQ(3 * PAGE, object.u.mr.length);
	EXPECT_EQ(LOCAL_WRITE | MW_BIND | REMOTE_READ, object.u.mr.access);
	EXPECT_NE(0, object.u.mr.rkey);
	EXPECT_EQ(1, object.users);

	/* LIST reports nothing of what a window was bound to before. */
	ASSERT_EQ(0, raw_revoke(self->fd, self->domain, &bind.window_id, 1));
	ASSERT_TRUE(find(bind.window_id, &object));
	EXPECT_EQ(0, object.u.window.bound);
	EXPECT_EQ(0, object.u.window.rkey);
	EXPECT_EQ(0, object.u.window.iova);
	EXPECT_EQ(0, object.u.window.length);
	EXPECT_EQ(0, object.u.window.mr_id);
	EXPECT_EQ(2 * PAGE, object.u.window.max_span);
}

TEST_F(list, files_that_are_not_bound_are_not_reported)
{
	int fd = raw_open();

	ASSERT_LE(0, fd);
	EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_FILE));
	EXPECT_EQ(0, close(fd));
}

TEST_F(list, has_bounds)
{
	struct ib_memreg_object object;
	RAW(list, cmd, .count = 0, .objects = (uintptr_t)&object,
	    .object_size = sizeof(object));

	EXPECT_FAIL(EINVAL, COUNT, raw_call(self->reader, IB_MEMREG_IOC_LIST,
					    &cmd));
	cmd.count = 1;
	cmd.object_size = 0;
	EXPECT_FAIL(EINVAL, SIZE, raw_call(self->reader, IB_MEMREG_IOC_LIST,
					   &cmd));
	/* The size of the first release. */
	cmd.object_size = sizeof(object) - 1;
	EXPECT_FAIL(EINVAL, SIZE, raw_call(self->reader, IB_MEMREG_IOC_LIST,
					   &cmd));
	cmd.object_size++;
	EXPECT_EQ(0, raw_call(self->reader, IB_MEMREG_IOC_LIST, &cmd));
	cmd.count = 1;
	cmd.cursor = 0;
	cmd.object_size = ~0U;
	EXPECT_FAIL(EINVAL, SIZE, raw_call(self->reader, IB_MEMREG_IOC_LIST,
					   &cmd));
	/* With a cursor behind the end of the list, LIST returns no entry. */
	cmd.object_size = sizeof(object);
	cmd.cursor = ~0ULL;
	EXPECT_EQ(0, raw_call(self->reader, IB_MEMREG_IOC_LIST, &cmd));
	EXPECT_EQ(0, cmd.count);
}

TEST_F(list, entries_larger_than_the_kernel_s)
{
	struct large {
		struct ib_memreg_object object;
		char tail[24];
	} objects[4];
	RAW(list, cmd, .count = 3, .objects = (uintptr_t)objects,
	    .object_size = sizeof(objects[0]));
	unsigned int i, k;

	memset(objects, 0xee, sizeof(objects));
	ASSERT_EQ(0, raw_call(self->reader, IB_MEMREG_IOC_LIST, &cmd));
	ASSERT_EQ(3, cmd.count);
	EXPECT_EQ(IB_MEMREG_OBJECT_FILE, objects[0].object.type);
	EXPECT_EQ(IB_MEMREG_OBJECT_DOMAIN, objects[1].object.type);
	EXPECT_EQ(IB_MEMREG_OBJECT_MR, objects[2].object.type);
	for (i = 0; i < 3; i++)
		for (k = 0; k < sizeof(objects[i].tail); k++)
			EXPECT_EQ(0, objects[i].tail[k]);
	/*
	 * LIST does not write behind the entries that the caller has room for.
	 */
	EXPECT_EQ((char)0xee, objects[3].tail[0]);
	EXPECT_EQ(0xeeeeeeee, objects[3].object.type);
}

TEST_F(list, other_users_see_nothing)
{
	IN_CHILD {
		ASSERT_EQ(0, setresgid(NOBODY, NOBODY, NOBODY));
		ASSERT_EQ(0, setresuid(NOBODY, NOBODY, NOBODY));
		EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_FILE));
		EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_MR));
	}
}

TEST_F(list, users_see_their_own_and_root_sees_all)
{
	int pipes[2];
	pid_t child;
	int status;
	char c;

	ASSERT_EQ(0, pipe(pipes));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		__u32 domain;
		int fd;

		ASSERT_EQ(0, setresuid(NOBODY, NOBODY, NOBODY));
		fd = raw_open_bound();
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, raw_domain(fd, &domain));
		EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_FILE));
		EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_DOMAIN));
		EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_WINDOW));
		/* Until it is killed. */
		ASSERT_EQ(1, write(pipes[1], "x", 1));
		pause();
	}
	ASSERT_EQ(1, read(pipes[0], &c, 1));
	EXPECT_EQ(2, state_count(IB_MEMREG_OBJECT_FILE));
	EXPECT_EQ(2, state_count(IB_MEMREG_OBJECT_DOMAIN));
	ASSERT_EQ(0, kill(child, SIGKILL));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_FILE));
}

/* By default, all network namespaces can see all RDMA devices. */
TEST_F(list, network_namespaces_that_share_devices_see_them)
{
	IN_CHILD {
		ASSERT_EQ(0, unshare(CLONE_NEWNET));
		EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_FILE));
	}
}

TEST_F(list, pid_of_another_pid_namespace_is_0)
{
	struct ib_memreg_object object = { .pid = -1 };
	int status;
	pid_t child;

	ASSERT_EQ(0, unshare(CLONE_NEWPID));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		ASSERT_TRUE(find(0, &object));
		EXPECT_EQ(0, object.pid);
		_exit(_metadata->exit_code);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
}

struct churn {
	int fd;
	__u32 domain;
	bool stop;
};

static void *come_and_go(void *arg)
{
	struct churn *churn = arg;
	__u32 ids[16];
	unsigned int i;

	while (!__atomic_load_n(&churn->stop, __ATOMIC_RELAXED)) {
		if (raw_windows(churn->fd, churn->domain, PAGE, ids, 16))
			return (void *)1;
		for (i = 0; i < 16; i++)
			if (raw_destroy(churn->fd, ids[i]))
				return (void *)1;
	}
	return NULL;
}

/*
 * Objects that stay are listed exactly once, while other objects come and go.
 */
TEST_F_TIMEOUT(list, objects_that_stay_are_listed_once_while_others_go,
	       SOAK_S)
{
	struct churn churn = { .fd = self->fd, .domain = self->domain };
	unsigned int round, i, k, seen;
	pthread_t thread;
	struct state now;
	void *failed;

	ASSERT_EQ(0, pthread_create(&thread, NULL, come_and_go, &churn));
	for (round = 0; round < test_rounds(100); round++) {
		ASSERT_EQ(0, state_get(&now));
		for (k = 0; k < WINDOWS; k++) {
			for (i = 0, seen = 0; i < now.count; i++)
				seen += now.objects[i].id == self->windows[k];
			ASSERT_EQ(1, seen);
		}
		state_free(&now);
	}
	__atomic_store_n(&churn.stop, true, __ATOMIC_RELAXED);
	ASSERT_EQ(0, pthread_join(thread, &failed));
	EXPECT_EQ(NULL, failed);
}

TEST_HARNESS_MAIN
