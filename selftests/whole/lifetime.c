// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lifetimes of objects: files that are passed to, inherited by and closed by
 * other processes, processes that die, and limits that they reach. In the end
 * nothing is pinned or charged (I7).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define NOBODY		65534
#define LENGTH		(4 * PAGE)

FIXTURE(lifetime) {
	char *memory;
	struct state before;
};

FIXTURE_SETUP(lifetime)
{
	self->memory = mem_alloc(64 * PAGE);
	ASSERT_NE(NULL, self->memory);
	ASSERT_EQ(0, state_get(&self->before));
	ASSERT_EQ(0, self->before.count);
}

FIXTURE_TEARDOWN(lifetime)
{
	EXPECT_TRUE(state_same(&self->before));
	EXPECT_EQ(0, vm_pin(0));
	state_free(&self->before);
}

/**
 * struct owner - A file with one of everything
 * @fd: The file
 * @id: A domain, or a status table
 * @mr: An MR of LENGTH bytes
 * @window: A window that is bound to it
 */
struct owner {
	int fd;
	__u32 domain;
	__u32 mr;
	__u32 window;
};

static int owner_fill(struct owner *owner, void *memory)
{
	struct ib_memreg_bind bind = { .length = PAGE, .access = REMOTE_READ };
	int ret;

	ret = raw_domain(owner->fd, &owner->domain);
	if (!ret)
		ret = raw_register(owner->fd, owner->domain, memory, LENGTH,
				   LOCAL_WRITE | MW_BIND | REMOTE_READ,
				   &owner->mr);
	if (!ret)
		ret = raw_windows(owner->fd, owner->domain, LENGTH,
				  &owner->window, 1);
	bind.window_id = owner->window;
	bind.mr_id = owner->mr;
	return ret ?: raw_bind(owner->fd, owner->domain, &bind, 1);
}

static int owner_open(struct owner *owner, void *memory)
{
	owner->fd = raw_open_bound();
	return owner->fd < 0 ? owner->fd : owner_fill(owner, memory);
}

static void owner_destroy(struct __test_metadata *_metadata,
			  const struct owner *owner)
{
	EXPECT_EQ(0, raw_destroy(owner->fd, owner->window));
	EXPECT_EQ(0, raw_destroy(owner->fd, owner->mr));
	EXPECT_EQ(0, raw_destroy(owner->fd, owner->domain));
}

/* Pages that LIST shows for all files. */
static long pages_listed(void)
{
	struct state now;
	long pages = 0;
	__u32 i;

	if (!state_get(&now))
		for (i = 0; i < now.count; i++)
			if (now.objects[i].type == IB_MEMREG_OBJECT_FILE)
				pages += now.objects[i].u.file.pinned;
	state_free(&now);
	return pages;
}

TEST_F(lifetime, closing_gives_everything_back)
{
	struct owner owner;

	ASSERT_EQ(0, owner_open(&owner, self->memory));
	EXPECT_EQ(4, vm_pin(0));
	EXPECT_EQ(0, close(owner.fd));
	EXPECT_EQ(0, vm_pin(0));
}

TEST_F(lifetime, the_last_of_two_descriptors_counts)
{
	struct owner owner;
	int again;

	ASSERT_EQ(0, owner_open(&owner, self->memory));
	again = dup(owner.fd);
	ASSERT_LE(0, again);
	EXPECT_EQ(0, close(owner.fd));
	EXPECT_EQ(4, vm_pin(0));
	owner.fd = again;
	owner_destroy(_metadata, &owner);
	EXPECT_EQ(0, close(again));
}

/* A child makes objects in a file that its parent has open, too. */
TEST_F(lifetime, objects_of_a_child_outlive_it_with_the_file)
{
	struct owner *owner = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, owner);
	owner->fd = raw_open_bound();
	ASSERT_LE(0, owner->fd);
	IN_CHILD {
		ASSERT_EQ(0, owner_fill(owner, self->memory));
		EXPECT_EQ(4, vm_pin(0));
	}
	/* The child's address space is gone, and its pages are still pinned. */
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(4, pages_listed());
	EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_MR));
	owner_destroy(_metadata, owner);
	EXPECT_EQ(0, pages_listed());
	EXPECT_EQ(0, close(owner->fd));
	munmap(owner, PAGE);
}

/* Fork a child that waits until the other end of a pipe is closed. */
static pid_t child_that_waits(int *end)
{
	int pipes[2];
	pid_t child;
	char c;

	if (pipe2(pipes, O_CLOEXEC))
		return -1;
	child = fork();
	if (!child) {
		close(pipes[1]);
		if (read(pipes[0], &c, 1))
			_exit(1);
		_exit(0);
	}
	close(pipes[0]);
	*end = pipes[1];
	return child;
}

/*
 * Pages stay charged to the process that registered them until the child closes
 * the file.
 */
TEST_F(lifetime, child_keeps_the_parent_s_objects)
{
	struct owner owner;
	int end, status;
	pid_t child;

	ASSERT_EQ(0, owner_open(&owner, self->memory));
	child = child_that_waits(&end);
	ASSERT_LE(0, child);
	EXPECT_EQ(0, close(owner.fd));
	EXPECT_EQ(4, vm_pin(0));
	EXPECT_EQ(0, vm_pin(child));
	EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_WINDOW));
	EXPECT_EQ(0, close(end));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_WINDOW));
}

static int send_fd(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {}, c = 0;
	struct iovec iov = { &c, 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
	return sendmsg(socket, &msg, 0) == 1 ? 0 : -errno;
}

static int receive_fd(int socket)
{
	char control[CMSG_SPACE(sizeof(int))], c;
	struct iovec iov = { &c, 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	int fd;

	if (recvmsg(socket, &msg, MSG_CMSG_CLOEXEC) != 1 ||
	    !CMSG_FIRSTHDR(&msg))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	return fd;
}

/*
 * A process receives the file by a socket, registers its own memory in it, and
 * exits.
 */
TEST_F(lifetime, file_sent_to_another_process)
{
	int sockets[2], status;
	struct owner owner;
	__u32 mr = 0;
	pid_t child;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		int fd = receive_fd(sockets[1]);
		__u32 domain;

		ASSERT_LE(0, fd);
		ASSERT_EQ(0, raw_domain(fd, &domain));
		ASSERT_EQ(0, raw_register(fd, domain, self->memory, 2 * PAGE,
					  REMOTE_READ, &mr));
		EXPECT_EQ(2, vm_pin(0));
		ASSERT_EQ(sizeof(mr), write(sockets[1], &mr, sizeof(mr)));
		_exit(_metadata->exit_code);
	}
	ASSERT_EQ(0, owner_open(&owner, self->memory));
	ASSERT_EQ(0, send_fd(sockets[0], owner.fd));
	ASSERT_EQ(sizeof(mr), read(sockets[0], &mr, sizeof(mr)));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(4, vm_pin(0));
	EXPECT_EQ(6, pages_listed());
	EXPECT_EQ(0, raw_destroy(owner.fd, mr));
	EXPECT_EQ(4, pages_listed());
	EXPECT_EQ(0, close(owner.fd));
	close(sockets[0]);
	close(sockets[1]);
}

/* Fork a child that makes objects and then executes another program. */
static pid_t child_that_executes(void *memory, bool close_on_exec, int *end)
{
	int in[2], done[2];
	struct owner owner;
	pid_t child;
	char c;

	if (pipe2(in, O_CLOEXEC) || pipe2(done, O_CLOEXEC))
		return -1;
	child = fork();
	if (!child) {
		if (owner_open(&owner, memory))
			_exit(1);
		if (!close_on_exec)
			fcntl(owner.fd, F_SETFD, 0);
		dup2(in[0], 0);
		execlp("cat", "cat", NULL);
		_exit(1);
	}
	close(in[0]);
	close(done[1]);
	/* execve(2) closes the pipe. */
	if (read(done[0], &c, 1))
		return -1;
	close(done[0]);
	*end = in[1];
	return child;
}

TEST_F(lifetime, execution_closes_the_file)
{
	int end, status;
	pid_t child;

	child = child_that_executes(self->memory, true, &end);
	ASSERT_LE(0, child);
	EXPECT_TRUE(state_same(&self->before));
	EXPECT_EQ(0, vm_pin(child));
	close(end);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
}

/*
 * After execve(2) the pages of the old address space are not charged to the new
 * one.
 */
TEST_F(lifetime, file_kept_open_across_execution)
{
	int end, status;
	pid_t child;

	child = child_that_executes(self->memory, false, &end);
	ASSERT_LE(0, child);
	EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_MR));
	EXPECT_EQ(4, pages_listed());
	EXPECT_EQ(0, vm_pin(child));
	close(end);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_F(lifetime, handle_of_a_descriptor_closes_by_execution)
{
	int fd = raw_open_bound();
	struct memreg *m;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, fcntl(fd, F_SETFD, 0));
	ASSERT_EQ(0, memreg_open_fd(fd, &m));
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	EXPECT_TRUE(fcntl(fd, F_GETFL) & O_NONBLOCK);
	memreg_close(m);
}

struct sharer {
	void *memory;
	int ready;
};

static int share_and_wait(void *arg)
{
	struct sharer *sharer = arg;
	struct owner owner;
	char c = owner_open(&owner, sharer->memory) ? 'n' : 'y';

	if (write(sharer->ready, &c, 1) == 1)
		for (;;)
			pause();
	return 1;
}

/*
 * The process that is killed shares the parent's address space, and has a file
 * table of its own.
 */
TEST_F(lifetime, I7_killed_while_sharing_memory)
{
	static _Alignas(16) char stack[1 << 16];
	struct sharer sharer = { .memory = self->memory };
	int pipes[2], status, round;
	pid_t child;
	char c;

	ASSERT_EQ(0, pipe(pipes));
	sharer.ready = pipes[1];
	for (round = 0; round < 10; round++) {
		child = clone(share_and_wait, stack + sizeof(stack),
			      CLONE_VM | SIGCHLD, &sharer);
		ASSERT_LE(0, child);
		ASSERT_EQ(1, read(pipes[0], &c, 1));
		ASSERT_EQ('y', c);
		EXPECT_EQ(4, vm_pin(0));
		ASSERT_EQ(0, kill(child, SIGKILL));
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_EQ(0, vm_pin(0));
	}
	close(pipes[0]);
	close(pipes[1]);
}

/*
 * RLIMIT_MEMLOCK
 */

static int limit_memlock(unsigned int pages)
{
	struct rlimit limit = { pages * PAGE, pages * PAGE };

	return setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(NOBODY) ||
	       setuid(NOBODY);
}

TEST_F(lifetime, memlock_limit_to_the_page)
{
	__u32 domain, mr, more;
	int fd;

	IN_CHILD {
		ASSERT_EQ(0, limit_memlock(16));
		fd = raw_open_bound();
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, raw_domain(fd, &domain));
		EXPECT_FAIL(ENOMEM, MEMLOCK,
			    raw_register(fd, domain, self->memory, 17 * PAGE,
					 REMOTE_READ, &mr));
		EXPECT_EQ(0, vm_pin(0));
		/* One byte more is one page more. */
		EXPECT_FAIL(ENOMEM, MEMLOCK,
			    raw_register(fd, domain, self->memory + PAGE - 1,
					 15 * PAGE + 2, REMOTE_READ, &mr));
		ASSERT_EQ(0, raw_register(fd, domain, self->memory, 16 * PAGE,
					  REMOTE_READ, &mr));
		EXPECT_EQ(16, vm_pin(0));
		EXPECT_FAIL(ENOMEM, MEMLOCK,
			    raw_register(fd, domain, self->memory, 1,
					 REMOTE_READ, &more));
		EXPECT_EQ(0, raw_destroy(fd, mr));

		ASSERT_EQ(0, raw_register(fd, domain, self->memory, 10 * PAGE,
					  REMOTE_READ, &mr));
		EXPECT_FAIL(ENOMEM, MEMLOCK,
			    raw_register(fd, domain, self->memory, 7 * PAGE,
					 REMOTE_READ, &more));
		EXPECT_EQ(0, raw_register(fd, domain, self->memory, 6 * PAGE,
					  REMOTE_READ, &more));
		EXPECT_EQ(16, vm_pin(0));
	}
}

TEST_F(lifetime, no_memlock_at_all_is_EPERM)
{
	__u32 domain, mr;
	int fd;

	IN_CHILD {
		ASSERT_EQ(0, limit_memlock(0));
		fd = raw_open_bound();
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, raw_domain(fd, &domain));
		EXPECT_FAIL(EPERM, MEMLOCK,
			    raw_register(fd, domain, self->memory, PAGE,
					 REMOTE_READ, &mr));
	}
}

/*
 * mlockall(2) makes mapping a ring fail at RLIMIT_MEMLOCK; the ring is
 * destroyed again.
 */
TEST_F(lifetime, I8_ring_beyond_what_may_be_locked_is_EAGAIN)
{
	struct memreg_ring ring;
	struct memreg *m;

	IN_CHILD {
		ASSERT_EQ(0, limit_memlock(16));
		ASSERT_EQ(0, memreg_open(test_device(), &m));
		ASSERT_EQ(0, memreg_ring_create(m, 16, 64, -1, 0, &ring));
		ASSERT_EQ(0, memreg_ring_destroy(m, &ring));
		ASSERT_EQ(0, mlockall(MCL_FUTURE));
		EXPECT_EQ(-EAGAIN, memreg_ring_create(m, 4096, 64, -1, 0,
						      &ring));
		EXPECT_NE(NULL, strstr(memreg_reason(), "MCL_FUTURE"));
		ASSERT_EQ(0, munlockall());
		EXPECT_EQ(1, state_count(IB_MEMREG_OBJECT_FILE));
		EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_RING));
		ASSERT_EQ(0, memreg_ring_create(m, 4096, 64, -1, 0, &ring));
		memreg_close(m);
	}
}

/* CAP_IPC_LOCK knows no limit. */
TEST_F(lifetime, memlock_limit_is_not_for_root)
{
	struct rlimit limit = { 0, 0 };
	struct owner owner;

	IN_CHILD {
		ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &limit));
		EXPECT_EQ(0, owner_open(&owner, self->memory));
	}
}

/*
 * Control groups
 */

#define CGROUP		"/sys/fs/cgroup/memreg-test"

FIXTURE(cgroup) {
	char *memory;
	struct state before;
};

FIXTURE_SETUP(cgroup)
{
	self->memory = mem_alloc(64 * PAGE);
	ASSERT_NE(NULL, self->memory);
	ASSERT_EQ(0, state_get(&self->before));
	if (!cgroup_make(CGROUP, "+rdma +memory"))
		SKIP(return, "there are no control groups for rdma and memory");
}

FIXTURE_TEARDOWN(cgroup)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, rmdir(CGROUP));
}

static int enter_cgroup(const char *path)
{
	char name[128];

	snprintf(name, sizeof(name), "%s/cgroup.procs", path);
	return file_write(name, "0");
}

static int limit_rdma(const char *limits)
{
	char line[128];

	snprintf(line, sizeof(line), "%s %s", test_device(), limits);
	return file_write(CGROUP "/rdma.max", line);
}

static int limit_objects(int count)
{
	char limits[32];

	snprintf(limits, sizeof(limits), "hca_object=%d", count);
	return limit_rdma(limits);
}

/* Handles (0) or objects (1) that the group has, or -1. */
static int rdma_current(int which)
{
	FILE *f = fopen(CGROUP "/rdma.current", "r");
	char line[256], name[64];
	int counts[2] = { 0, 0 };

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s hca_handle=%d hca_object=%d", name,
			   &counts[0], &counts[1]) == 3 &&
		    !strcmp(name, test_device()))
			break;
		counts[0] = 0;
		counts[1] = 0;
	}
	fclose(f);
	return counts[which];
}

TEST_F(cgroup, handles_are_counted_and_limited)
{
	int fd, more;

	ASSERT_EQ(0, limit_rdma("hca_handle=1"));
	IN_CHILD {
		ASSERT_EQ(0, enter_cgroup(CGROUP));
		fd = raw_open_bound();
		ASSERT_LE(0, fd);
		EXPECT_EQ(1, rdma_current(0));
		more = raw_open();
		ASSERT_LE(0, more);
		EXPECT_FAIL(EDQUOT, CGROUP, raw_bind_device(more,
							    test_device()));
		EXPECT_EQ(1, rdma_current(0));
		EXPECT_EQ(0, close(fd));
		EXPECT_EQ(0, rdma_current(0));
		EXPECT_EQ(0, raw_bind_device(more, test_device()));
		EXPECT_EQ(1, rdma_current(0));
	}
	EXPECT_EQ(0, rdma_current(0));
}

/*
 * Count the HCA objects: a PD, a CQ, a QP and, on soft-RoCE, an MR for a
 * domain, an MR for each key.
 */
static void count_objects(struct __test_metadata *_metadata, char *memory)
{
	struct ib_memreg_bind binds[2] = {};
	__u32 domain, mr, keyed, ids[2], i;
	const int base = raw_domain_objects();
	int fd = raw_open_bound();

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, raw_domain(fd, &domain));
	EXPECT_EQ(base, rdma_current(1));
	ASSERT_EQ(0, raw_register(fd, domain, memory, PAGE, MW_BIND, &mr));
	EXPECT_EQ(base, rdma_current(1));
	ASSERT_EQ(0, raw_register(fd, domain, memory, PAGE, REMOTE_READ,
				  &keyed));
	EXPECT_EQ(base + 1, rdma_current(1));
	ASSERT_EQ(0, raw_windows(fd, domain, PAGE, ids, 2));
	EXPECT_EQ(base + 1, rdma_current(1));
	for (i = 0; i < 2; i++) {
		binds[i].window_id = ids[i];
		binds[i].mr_id = mr;
		binds[i].length = 1;
		binds[i].access = REMOTE_READ;
	}
	ASSERT_EQ(0, raw_bind(fd, domain, binds, 2));
	EXPECT_EQ(base + 3, rdma_current(1));
	EXPECT_EQ(0, raw_destroy(fd, ids[0]));
	EXPECT_EQ(base + 2, rdma_current(1));
	EXPECT_EQ(0, raw_destroy(fd, keyed));
	EXPECT_EQ(base + 1, rdma_current(1));
	EXPECT_EQ(0, raw_destroy(fd, ids[1]));
	EXPECT_EQ(0, raw_destroy(fd, mr));
	EXPECT_EQ(base, rdma_current(1));
	EXPECT_EQ(0, raw_destroy(fd, domain));
	EXPECT_EQ(0, rdma_current(1));
	EXPECT_EQ(0, close(fd));
}

TEST_F(cgroup, objects_are_counted)
{
	IN_CHILD {
		ASSERT_EQ(0, enter_cgroup(CGROUP));
		count_objects(_metadata, self->memory);
	}
	EXPECT_EQ(0, rdma_current(1));
}

/* The group may have the HCA objects of a domain and of one key. */
static void reach_limit(struct __test_metadata *_metadata, char *memory)
{
	struct ib_memreg_bind binds[3] = {};
	__u32 domain, more, mr, ids[3], i;
	const int base = raw_domain_objects();
	int fd = raw_open_bound();
	struct state state;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, raw_domain(fd, &domain));
	ASSERT_EQ(0, raw_register(fd, domain, memory, PAGE, MW_BIND, &mr));
	ASSERT_EQ(0, raw_windows(fd, domain, PAGE, ids, 3));
	for (i = 0; i < 3; i++) {
		binds[i].window_id = ids[i];
		binds[i].mr_id = mr;
		binds[i].length = 1;
		binds[i].access = REMOTE_READ;
	}
	ASSERT_EQ(0, state_get(&state));
	EXPECT_FAIL(EDQUOT, CGROUP, raw_domain(fd, &more));
	EXPECT_EQ(base, rdma_current(1));
	EXPECT_FAIL(EDQUOT, CGROUP, raw_bind(fd, domain, binds, 3));
	EXPECT_EQ(base, rdma_current(1));
	EXPECT_TRUE(state_same(&state));
	EXPECT_EQ(0, raw_bind(fd, domain, binds, 1));
	EXPECT_EQ(base + 1, rdma_current(1));
	EXPECT_FAIL(EDQUOT, CGROUP,
		    raw_register(fd, domain, memory, PAGE, REMOTE_READ,
				 &more));
	EXPECT_EQ(base + 1, rdma_current(1));
	EXPECT_EQ(1, vm_pin(0));
	state_free(&state);
	EXPECT_EQ(0, close(fd));
}

TEST_F(cgroup, I8_objects_are_limited)
{
	ASSERT_EQ(0, limit_objects(raw_domain_objects() + 1));
	IN_CHILD {
		ASSERT_EQ(0, enter_cgroup(CGROUP));
		reach_limit(_metadata, self->memory);
	}
	EXPECT_EQ(0, rdma_current(1));
}

TEST_F(cgroup, limit_below_a_domain)
{
	__u32 domain;
	int fd;

	ASSERT_EQ(0, limit_objects(raw_domain_objects() - 1));
	IN_CHILD {
		ASSERT_EQ(0, enter_cgroup(CGROUP));
		fd = raw_open_bound();
		ASSERT_LE(0, fd);
		EXPECT_FAIL(EDQUOT, CGROUP, raw_domain(fd, &domain));
		EXPECT_EQ(0, rdma_current(1));
	}
}

/*
 * Charges are returned to the group that was charged, whichever process closes
 * the file.
 */
TEST_F(cgroup, charges_go_back_to_where_they_came_from)
{
	struct owner owner;

	owner.fd = raw_open_bound();
	ASSERT_LE(0, owner.fd);
	IN_CHILD {
		ASSERT_EQ(0, enter_cgroup(CGROUP));
		ASSERT_EQ(0, owner_fill(&owner, self->memory));
	}
	EXPECT_EQ(0, rdma_current(0));
	EXPECT_EQ(raw_domain_objects() + 2, rdma_current(1));
	EXPECT_EQ(0, close(owner.fd));
	EXPECT_EQ(0, rdma_current(1));
}

#define MOST_WINDOWS	(1 << 16)

/*
 * Allocate windows until the group has no memory left. Then leave the group, as
 * even opening a file takes memory. What is touched under the limit was touched
 * before.
 */
static int exhaust_memory(int fd, __u32 domain, __u32 *ids, __u32 *count)
{
	int ret = 0, out = open("/sys/fs/cgroup/cgroup.procs", O_WRONLY);

	*count = 0;
	memset(ids, 0xff, MOST_WINDOWS * sizeof(*ids));
	if (out < 0 || enter_cgroup(CGROUP))
		return 1;
	while (!ret && *count < MOST_WINDOWS) {
		ret = raw_windows(fd, domain, PAGE, ids + *count,
				  IB_MEMREG_BATCH_MAX);
		if (!ret)
			*count += IB_MEMREG_BATCH_MAX;
	}
	if (write(out, "0", 1) != 1)
		ret = 1;
	close(out);
	return ret;
}

TEST_F_TIMEOUT(cgroup, I8_kernel_memory_is_charged_and_limited, 120)
{
	__u32 *ids = mem_alloc(MOST_WINDOWS * sizeof(*ids));
	__u32 domain, count, i;
	int fd;

	ASSERT_NE(NULL, ids);
	ASSERT_EQ(0, file_write(CGROUP "/memory.max", "4M"));
	/* The OOM killer spares this process, so the call has to fail. */
	IN_CHILD {
		ASSERT_EQ(0, file_write("/proc/self/oom_score_adj", "-1000"));
		fd = raw_open_bound();
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, raw_domain(fd, &domain));
		ASSERT_EQ(-ENOMEM, exhaust_memory(fd, domain, ids, &count));
		EXPECT_EQ(count, state_count(IB_MEMREG_OBJECT_WINDOW));
		for (i = 0; i < count; i++)
			ASSERT_EQ(0, raw_destroy(fd, ids[i]));
		EXPECT_EQ(0, raw_windows(fd, domain, PAGE, ids, 1));
	}
}

/*
 * Threads that wait for a fault in what they pass to a call
 */

#define FAULTERS	128

/**
 * struct faulter - A thread that makes a call
 * @thread: The thread
 * @go: Lets all of the threads go on, when they are all there
 * @fd: The file
 * @domain: A domain
 * @array: Array to pass, where nobody handles faults
 * @call: The call
 * @ret: Result
 */
struct faulter {
	pthread_t thread;
	pthread_barrier_t *go;
	int fd;
	__u32 id;
	char *array;
	int (*call)(struct faulter *f);
	int ret;
};

static int compose_silent(struct faulter *f)
{
	RAW(mr_compose, cmd, .domain_id = f->id, .access = LOCAL_WRITE,
	    .count = IB_MEMREG_COMPOSE_MAX, .pieces = (uintptr_t)f->array);

	return raw_call(f->fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd);
}

static int monitor_silent(struct faulter *f)
{
	RAW(monitor_create, cmd, .status_id = f->id,
	    .count = IB_MEMREG_BATCH_MAX, .monitors = (uintptr_t)f->array);

	return raw_call(f->fd, IB_MEMREG_IOC_MONITOR_CREATE, &cmd);
}

static int prepare_domain(struct faulter *f)
{
	return raw_domain(f->fd, &f->id);
}

static int prepare_status(struct faulter *f)
{
	struct status_map map;
	int ret = status_create(f->fd, IB_MEMREG_BATCH_MAX, 0, &map);

	f->id = map.id;
	return ret;
}

static void *faulter_run(void *arg)
{
	struct faulter *f = arg;

	pthread_barrier_wait(f->go);
	f->ret = f->call(f);
	return NULL;
}

FIXTURE(silent) {
	struct state before;
};

FIXTURE_VARIANT(silent)
{
	int (*prepare)(struct faulter *f);
	int (*call)(struct faulter *f);
	size_t least;	/* bytes that a call holds meanwhile */
	int ret;	/* of the call, when it gets zeros */
};

FIXTURE_VARIANT_ADD(silent, compose) {
	.prepare = prepare_domain,
	.call = compose_silent,
	.least = IB_MEMREG_COMPOSE_MAX * sizeof(struct ib_memreg_piece),
	.ret = -ENOENT,
};

FIXTURE_VARIANT_ADD(silent, monitor) {
	.prepare = prepare_status,
	.call = monitor_silent,
	.least = IB_MEMREG_BATCH_MAX * sizeof(struct ib_memreg_monitor),
	.ret = -EINVAL,
};

FIXTURE_SETUP(silent)
{
	ASSERT_EQ(0, state_get(&self->before));
	if (!cgroup_make(CGROUP, "+memory"))
		SKIP(return, "there are no control groups for memory");
}

FIXTURE_TEARDOWN(silent)
{
	EXPECT_TRUE(state_same(&self->before));
	state_free(&self->before);
	EXPECT_EQ(0, rmdir(CGROUP));
}

static void faulters_begin(struct __test_metadata *_metadata,
			   struct faulter *faulters,
			   const struct faulter *like)
{
	unsigned int i;

	ASSERT_EQ(0, pthread_barrier_init(like->go, NULL, FAULTERS + 1));
	for (i = 0; i < FAULTERS; i++) {
		faulters[i] = *like;
		ASSERT_EQ(0, pthread_create(&faulters[i].thread, NULL,
					    faulter_run, &faulters[i]));
	}
}

/* Wait until all of them wait for a fault. */
static void faulters_await(struct __test_metadata *_metadata, int uffd)
{
	unsigned int i;

	for (i = 0; i < FAULTERS; i++)
		ASSERT_NE(0, uffd_next(uffd));
}

/*
 * What a call allocates is charged to its caller, also for the time that the
 * call waits for the caller's own memory. The charge of some pages of each CPU
 * is made ahead.
 */
TEST_F(silent, I8_memory_of_a_call_is_charged)
{
	static struct faulter faulters[FAULTERS];
	static pthread_barrier_t go;
	struct faulter like = { .go = &go, .call = variant->call };
	size_t length = MiB;
	long before;
	int i, uffd;

	IN_CHILD {
		ASSERT_EQ(0, enter_cgroup(CGROUP));
		like.fd = raw_open_bound();
		ASSERT_LE(0, like.fd);
		ASSERT_EQ(0, variant->prepare(&like));
		like.array = mmap(NULL, length, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ASSERT_NE(MAP_FAILED, (void *)like.array);
		uffd = uffd_open(like.array, length);
		ASSERT_LE(0, uffd);
		faulters_begin(_metadata, faulters, &like);
		before = file_number(CGROUP "/memory.current");
		pthread_barrier_wait(&go);
		faulters_await(_metadata, uffd);
		EXPECT_LE(before + (long)(FAULTERS * variant->least / 2),
			  file_number(CGROUP "/memory.current"));
		close(uffd);
		for (i = 0; i < FAULTERS; i++) {
			ASSERT_EQ(0, pthread_join(faulters[i].thread, NULL));
			EXPECT_EQ(variant->ret, faulters[i].ret);
		}
	}
}

TEST_HARNESS_MAIN
