// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page faults in files of a file system in user space, whose server may take as
 * long as it likes, or never answer. Only the call that registers such memory
 * waits for it: neither the removal of the device nor the end of the process
 * does.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "net.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define DIR		"/mnt"
#define FILE_INO	2
#define AHEAD		4		/* pages of readahead */
#define APART		64		/* pages between those that are used */
#define LEN		(8 * APART * PAGE)
#define HELD		8

/*
 * The server: a thread with the kernel's protocol and one file
 */

/**
 * struct server - The file system
 * @fd: Where it reads requests; -1 if there is none
 * @thread: That which reads
 * @silent: Keep READs, and do not answer them yet
 * @fails: Answer READs with EIO
 * @keeps_statfs: Do not answer STATFS
 * @reads: Number of READs that have come
 * @statfs: Number of STATFS that have come
 * @lock: Protects @held and @nheld
 * @held: READs that are kept
 * @nheld: Number of them
 */
struct server {
	int fd;
	pthread_t thread;
	atomic_bool silent;
	atomic_bool fails;
	atomic_bool keeps_statfs;
	atomic_uint reads;
	atomic_uint statfs;
	pthread_mutex_t lock;
	struct {
		uint64_t unique;
		uint32_t size;
	} held[HELD];
	unsigned int nheld;
};

static void reply(struct server *s, uint64_t unique, int error,
		  const void *data, size_t size)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + size),
		.error = error,
		.unique = unique,
	};
	struct iovec iov[] = {
		{ &out, sizeof(out) },
		{ (void *)(uintptr_t)data, size },
	};

	if (writev(s->fd, iov, 2) < 0 && errno != ENOENT && errno != ENODEV)
		perror("FUSE");
}

static void reply_data(struct server *s, uint64_t unique, uint32_t size)
{
	static const char data[AHEAD * PAGE];

	reply(s, unique, 0, data, size < sizeof(data) ? size : sizeof(data));
}

static void do_read(struct server *s, const struct fuse_in_header *in)
{
	const struct fuse_read_in *read = (const void *)(in + 1);

	pthread_mutex_lock(&s->lock);
	if (s->silent && s->nheld < HELD) {
		s->held[s->nheld].unique = in->unique;
		s->held[s->nheld++].size = read->size;
	} else if (s->fails) {
		reply(s, in->unique, -EIO, NULL, 0);
	} else {
		reply_data(s, in->unique, read->size);
	}
	pthread_mutex_unlock(&s->lock);
	atomic_fetch_add(&s->reads, 1);
}

static void do_statfs(struct server *s, const struct fuse_in_header *in)
{
	const struct fuse_statfs_out out = { .st.bsize = PAGE };

	if (!s->keeps_statfs)
		reply(s, in->unique, 0, &out, sizeof(out));
	atomic_fetch_add(&s->statfs, 1);
}

static struct fuse_attr attr_of(uint64_t ino)
{
	return (struct fuse_attr) {
		.ino = ino,
		.size = ino == FILE_INO ? LEN : 0,
		.mode = ino == FILE_INO ? S_IFREG | 0600 : S_IFDIR | 0700,
		.nlink = 1,
	};
}

static void do_init(struct server *s, const struct fuse_in_header *in)
{
	const struct fuse_init_in *init = (const void *)(in + 1);
	const struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = init->minor < FUSE_KERNEL_MINOR_VERSION ?
			 init->minor : FUSE_KERNEL_MINOR_VERSION,
		.max_readahead = AHEAD * PAGE,
		.flags = FUSE_ASYNC_READ,
		.max_write = PAGE,
	};

	reply(s, in->unique, 0, &out, sizeof(out));
}

static void serve_one(struct server *s, const struct fuse_in_header *in)
{
	const struct fuse_entry_out entry = {
		.nodeid = FILE_INO, .entry_valid = 1000, .attr_valid = 1000,
		.attr = attr_of(FILE_INO),
	};
	const struct fuse_attr_out attr = {
		.attr_valid = 1000, .attr = attr_of(in->nodeid),
	};
	const struct fuse_open_out open = {};

	switch (in->opcode) {
	case FUSE_INIT:
		do_init(s, in);
		break;
	case FUSE_LOOKUP:
		reply(s, in->unique, 0, &entry, sizeof(entry));
		break;
	case FUSE_GETATTR:
		reply(s, in->unique, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
		reply(s, in->unique, 0, &open, sizeof(open));
		break;
	case FUSE_READ:
		do_read(s, in);
		break;
	case FUSE_STATFS:
		do_statfs(s, in);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		reply(s, in->unique, -ENOSYS, NULL, 0);
	}
}

static void *serve(void *arg)
{
	static uint64_t in[(FUSE_MIN_READ_BUFFER + PAGE) / 8];
	struct server *s = arg;
	ssize_t n;

	do {
		n = read(s->fd, in, sizeof(in));
		if (n > 0)
			serve_one(s, (const void *)in);
	} while (n > 0 || errno == EINTR || errno == ENOENT);
	return NULL;
}

/* Answer the READs that were kept, and those that come from now on. */
static void server_answers(struct server *s)
{
	pthread_mutex_lock(&s->lock);
	s->silent = false;
	while (s->nheld) {
		s->nheld--;
		reply_data(s, s->held[s->nheld].unique,
			   s->held[s->nheld].size);
	}
	pthread_mutex_unlock(&s->lock);
}

/* In a mount namespace of this test. Returns 0 or -errno. */
static int server_begin(struct server *s)
{
	char options[80];

	*s = (struct server) {
		.fd = open("/dev/fuse", O_RDWR | O_CLOEXEC),
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	if (s->fd < 0)
		return -errno;
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40000,user_id=0,group_id=0", s->fd);
	if (unshare(CLONE_NEWNS) ||
	    mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("memreg", DIR, "fuse", 0, options))
		return -errno;
	return -pthread_create(&s->thread, NULL, serve, s);
}

/* All that waits for the server fails, and the server ends. */
static void server_end(struct server *s)
{
	if (s->fd < 0)
		return;
	umount2(DIR, MNT_FORCE | MNT_DETACH);
	pthread_join(s->thread, NULL);
	close(s->fd);
	s->fd = -1;
}

/*
 * The calls
 */

FIXTURE(fuse)
{
	struct server server;
	char *good;	/* a page that is there */
	char *map;	/* the file */
	int fd;
	__u32 domain;
	bool gone;	/* the device was */
};

FIXTURE_SETUP(fuse)
{
	int fd, ret;

	self->gone = false;
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	self->good = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			  MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->good);
	ret = server_begin(&self->server);
	if (ret == -ENOENT || ret == -ENODEV)
		SKIP(return, "this kernel has no FUSE");
	ASSERT_EQ(0, ret);
	fd = open(DIR "/file", O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, fd);
	self->map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->map);
	close(fd);
}

FIXTURE_TEARDOWN(fuse)
{
	server_end(&self->server);
	if (self->fd >= 0)
		close(self->fd);
	munmap(self->map, LEN);
	munmap(self->good, PAGE);
	EXPECT_EQ(0, vm_pin(0));
	if (self->gone)
		EXPECT_EQ(0, shell("rxe_up owner && await 60 rxe_ready owner"));
}

static int register_page(FIXTURE_DATA(fuse) *self)
{
	__u32 mr;

	return raw_register(self->fd, self->domain, self->map, PAGE, 0, &mr);
}

static int reregister_page(FIXTURE_DATA(fuse) *self)
{
	RAW(mr_reregister, cmd, .flags = IB_MEMREG_REREG_TRANSLATION,
	    .addr = (uintptr_t)self->map + APART * PAGE, .length = PAGE);
	int ret;

	ret = raw_register(self->fd, self->domain, self->good, PAGE, 0,
			   &cmd.mr_id);
	return ret ?: raw_call(self->fd, IB_MEMREG_IOC_MR_REREGISTER, &cmd);
}

/* A thread that makes one call */
struct caller {
	FIXTURE_DATA(fuse) *self;
	pthread_t thread;
	int (*call)(FIXTURE_DATA(fuse) *self);
	int ret;
	__u32 reason;
};

static void *caller_run(void *arg)
{
	struct caller *c = arg;

	c->ret = c->call(c->self);
	c->reason = raw_reason();
	return NULL;
}

/* Have a thread make a call, and wait until the server has a request of it. */
static void caller_begin(struct __test_metadata *_metadata, struct caller *c,
			 FIXTURE_DATA(fuse) *self,
			 int (*call)(FIXTURE_DATA(fuse) *self),
			 atomic_uint *requests)
{
	unsigned int before = atomic_load(requests);

	c->self = self;
	c->call = call;
	ASSERT_EQ(0, pthread_create(&c->thread, NULL, caller_run, c));
	AWAIT(atomic_load(requests) > before);
}

/* The removal of the device */
struct removal {
	pthread_t thread;
	int ret;
	atomic_bool ended;
};

static void *removal_run(void *arg)
{
	struct removal *r = arg;

	r->ret = shell("rxe_down owner");
	r->ended = true;
	return NULL;
}

/* Remove the device, within a limit; if it takes longer, the server ends. */
static void device_goes(struct __test_metadata *_metadata,
			FIXTURE_DATA(fuse) *self)
{
	struct removal r = {};

	self->gone = true;
	ASSERT_EQ(0, pthread_create(&r.thread, NULL, removal_run, &r));
	AWAIT(r.ended);
	server_end(&self->server);
	ASSERT_EQ(0, pthread_join(r.thread, NULL));
	EXPECT_EQ(0, r.ret);
}

/* A call waits for the server without a pin, and starts over. */
TEST_F_TIMEOUT(fuse, read_is_answered_late, LIMIT_S)
{
	static int (*const calls[])(FIXTURE_DATA(fuse) *self) = {
		register_page, reregister_page,
	};
	long pinned = pages_pinned();
	struct caller c;
	size_t i;

	for (i = 0; i < ARRAY_LEN(calls); i++) {
		self->server.silent = true;
		caller_begin(_metadata, &c, self, calls[i],
			     &self->server.reads);
		if (!i)
			EXPECT_EQ(pinned, pages_pinned());
		server_answers(&self->server);
		ASSERT_EQ(0, pthread_join(c.thread, NULL));
		EXPECT_EQ(0, c.ret);
	}
	EXPECT_EQ(pinned + 2, pages_pinned());
}

/* The cause is that the file system does not provide the page. */
TEST_F_TIMEOUT(fuse, I8_read_that_fails_is_FILE_ERROR, LIMIT_S)
{
	self->server.fails = true;
	EXPECT_EQ(-EFAULT, register_page(self));
	EXPECT_EQ(IB_MEMREG_REASON_FILE_ERROR, raw_reason());
	EXPECT_EQ(-EFAULT, reregister_page(self));
	EXPECT_EQ(IB_MEMREG_REASON_FILE_ERROR, raw_reason());
	self->server.fails = false;
	EXPECT_EQ(0, register_page(self));
}

TEST_F_TIMEOUT(fuse, I7_device_goes_while_reads_are_not_answered, LIMIT_S)
{
	struct caller calls[2];
	unsigned int i;

	self->server.silent = true;
	caller_begin(_metadata, &calls[0], self, register_page,
		     &self->server.reads);
	caller_begin(_metadata, &calls[1], self, reregister_page,
		     &self->server.reads);
	device_goes(_metadata, self);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, pthread_join(calls[i].thread, NULL));
		EXPECT_EQ(-ENODEV, calls[i].ret);
		EXPECT_EQ(IB_MEMREG_REASON_DEVICE_GONE, calls[i].reason);
	}
}

/* To name the cause, the call asks the file system whether it is full. */
TEST_F_TIMEOUT(fuse, I7_device_goes_while_statfs_is_not_answered, LIMIT_S)
{
	struct caller c;

	self->server.fails = true;
	self->server.keeps_statfs = true;
	caller_begin(_metadata, &c, self, register_page, &self->server.statfs);
	device_goes(_metadata, self);
	ASSERT_EQ(0, pthread_join(c.thread, NULL));
	EXPECT_EQ(-ENODEV, c.ret);
}

TEST_F_TIMEOUT(fuse, I7_closed_while_a_read_is_not_answered, LIMIT_S)
{
	long pinned = pages_pinned();
	struct caller c;

	self->server.silent = true;
	caller_begin(_metadata, &c, self, register_page, &self->server.reads);
	ASSERT_EQ(0, close(self->fd));
	self->fd = -1;
	server_answers(&self->server);
	ASSERT_EQ(0, pthread_join(c.thread, NULL));
	EXPECT_EQ(0, c.ret);
	/* The file ended behind the call. */
	AWAIT(pages_pinned() == pinned);
}

static void register_until_killed(FIXTURE_DATA(fuse) *self)
{
	self->fd = raw_open_bound();
	if (self->fd >= 0 && !raw_domain(self->fd, &self->domain))
		register_page(self);
	_exit(1);
}

TEST_F_TIMEOUT(fuse, I7_killed_while_a_read_is_not_answered, LIMIT_S)
{
	int status = 0;
	pid_t child;

	self->server.silent = true;
	child = fork();
	ASSERT_LE(0, child);
	if (!child)
		register_until_killed(self);
	AWAIT(atomic_load(&self->server.reads));
	ASSERT_EQ(0, kill(child, SIGKILL));
	AWAIT(waitpid(child, &status, WNOHANG) == child ||
	      WIFSIGNALED(status));
	EXPECT_EQ(SIGKILL, WTERMSIG(status));
}

TEST_HARNESS_MAIN
