// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exports: grants on queue pairs of the application's own, that a call or the
 * end of the mapping revokes (I1, I2). The owner registers them in a protection
 * domain of libibverbs, where the driver can, and its peer is libibverbs alone;
 * the importers that misbehave are of a module of the tests.
 *
 * time limit: 600
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../user/verbs/memreg-verbs.h"
#include "fake.h"
#include "harness.h"
#include "memreg_fixture.h"
#include "module.h"
#include "net.h"
#include "qp.h"

#define LEN		(16 * PAGE)
#define FIRST		(2 * PAGE)	/* offset of the export in the MR */
#define SIZE		(8 * PAGE)	/* its length */
#define RW		(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			 IBV_ACCESS_REMOTE_WRITE)

/**
 * struct app - Two connected ends of libibverbs on the device
 * @context: The device
 * @pd: Protection domain of both
 * @owner: The end of the owner
 * @peer: The end of its peer
 * @buffer: Memory of the peer
 * @mr: All of it
 */
struct app {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct qp_end owner;
	struct qp_end peer;
	uint8_t *buffer;
	struct ibv_mr *mr;
};

/* Connect the ends, once more after an access that was refused. */
static int app_connect(struct app *app)
{
	int ret;

	qp_close(&app->owner);
	qp_close(&app->peer);
	ret = qp_open(&app->owner, app->pd) ?: qp_open(&app->peer, app->pd);
	ret = ret ?: qp_connect(&app->owner, &app->peer.addr);
	return ret ?: qp_connect(&app->peer, &app->owner.addr);
}

static int app_open(struct app *app)
{
	memset(app, 0, sizeof(*app));
	app->context = qp_device(test_device());
	app->pd = app->context ? ibv_alloc_pd(app->context) : NULL;
	app->buffer = mem_alloc(LEN);
	if (!app->pd || !app->buffer)
		return -ENODEV;
	app->mr = ibv_reg_mr(app->pd, app->buffer, LEN, RW);
	return app->mr ? app_connect(app) : -errno;
}

static void app_close(struct app *app)
{
	qp_close(&app->owner);
	qp_close(&app->peer);
	ibv_dereg_mr(app->mr);
	ibv_dealloc_pd(app->pd);
	ibv_close_device(app->context);
	mem_free(app->buffer, LEN);
}

/* The peer's access: 0, or the status that it failed with */
static int app_write(struct app *app, uint32_t length, uint64_t addr,
		     uint32_t rkey)
{
	return qp_do(&app->peer, IBV_WR_RDMA_WRITE, app->mr, length, addr,
		     rkey);
}

static int app_read(struct app *app, uint32_t length, uint64_t addr,
		    uint32_t rkey)
{
	return qp_do(&app->peer, IBV_WR_RDMA_READ, app->mr, length, addr, rkey);
}

/*
 * An owner of memory and of an MR of all of it. @export and @dmabuf are those
 * of the last share().
 */
FIXTURE(export) {
	int fd;
	int fake;
	__u32 domain;
	__u32 mr;
	__u32 export;
	int dmabuf;
	uint8_t *at;
	uint64_t addr;
	long pinned;
	bool registers;
};

FIXTURE_SETUP(export)
{
	__u64 can = 0;

	self->dmabuf = -1;
	self->pinned = pages_pinned();
	self->fake = fake_open();
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_EXPORT, &can));
	if (!can)
		SKIP(return, "this kernel can't have importers let go");
	ASSERT_EQ(0, raw_cap(self->fd, IB_MEMREG_CAP_EXPORT_REGISTER, &can));
	self->registers = can;
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	self->at = mem_alloc(LEN);
	ASSERT_NE(NULL, self->at);
	self->addr = (uintptr_t)self->at + FIRST;
	fill(self->at, LEN, 1);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->at, LEN,
				  LOCAL_WRITE, &self->mr));
}

FIXTURE_TEARDOWN(export)
{
	if (self->dmabuf >= 0)
		close(self->dmabuf);
	if (self->fd >= 0)
		close(self->fd);
	if (self->fake >= 0)
		close(self->fake);
	if (self->at)
		mem_free(self->at, LEN);
	AWAIT(pages_pinned() == self->pinned);
}

static int share(FIXTURE_DATA(export) *self)
{
	if (self->dmabuf >= 0)
		close(self->dmabuf);
	self->dmabuf = raw_export(self->fd, self->mr, FIRST, SIZE,
				  &self->export);
	return self->dmabuf < 0 ? self->dmabuf : 0;
}

static int end_it(FIXTURE_DATA(export) *self)
{
	return raw_unexport(self->fd, &self->export, 1);
}

/* The LIST entry of an export; its type is 0 if there is none. */
static struct ib_memreg_object look(FIXTURE_DATA(export) *self)
{
	struct ib_memreg_object found = {};
	struct state state;
	__u32 i;

	if (state_get(&state))
		return found;
	for (i = 0; i < state.count; i++)
		if (state.objects[i].type == IB_MEMREG_OBJECT_EXPORT &&
		    state.objects[i].id == self->export)
			found = state.objects[i];
	state_free(&state);
	return found;
}

/*
 * On the application's own queue pairs
 */

#define NEEDS_REGISTRATION						\
	do {								\
		if (!self->registers)					\
			SKIP(return, "the driver imports no dma-bufs that can be revoked"); \
	} while (0)

/* Export, and register in the application's protection domain. */
static int grant(FIXTURE_DATA(export) *self, struct app *app,
		 struct memreg_export_mr *mr)
{
	int ret = share(self);

	return ret ?: memreg_export_register(app->pd, self->dmabuf, 0, SIZE,
					     self->addr, RW, mr);
}

TEST_F(export, a_driver_that_can_not_refuses)
{
	struct memreg_export_mr mr;
	struct app app;

	if (self->registers)
		SKIP(return, "this one can");
	ASSERT_EQ(0, app_open(&app));
	switch (grant(self, &app, &mr)) {
	case -EOPNOTSUPP:
		break;
	case 0:
		EXPECT_EQ(0, memreg_export_deregister(&mr));
		app_close(&app);
		SKIP(return, "it can, but memreg does not know that");
	default:
		EXPECT_TRUE(false);
	}
	app_close(&app);
}

TEST_F(export, I6_the_peer_reaches_every_byte_and_no_other)
{
	struct memreg_export_mr mr;
	struct app app;

	NEEDS_REGISTRATION;
	ASSERT_EQ(0, app_open(&app));
	ASSERT_EQ(0, grant(self, &app, &mr));
	EXPECT_EQ(0, close(self->dmabuf));
	self->dmabuf = -1;
	fill(app.buffer, LEN, 2);
	EXPECT_EQ(0, app_write(&app, SIZE, self->addr, mr.rkey));
	EXPECT_TRUE(filled(self->at, FIRST, 0, 1));
	EXPECT_TRUE(filled(self->at + FIRST, SIZE, 0, 2));
	EXPECT_TRUE(filled(self->at + FIRST + SIZE, LEN - FIRST - SIZE,
			   FIRST + SIZE, 1));
	fill(self->at + FIRST, SIZE, 3);
	EXPECT_EQ(0, app_read(&app, SIZE, self->addr, mr.rkey));
	EXPECT_TRUE(filled(app.buffer, SIZE, 0, 3));

	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  app_read(&app, 2, self->addr + SIZE - 1, mr.rkey));
	ASSERT_EQ(0, app_connect(&app));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  app_write(&app, 2, self->addr - 1, mr.rkey));
	EXPECT_TRUE(filled(self->at, FIRST, 0, 1));

	EXPECT_EQ(1, look(self).u.exported.importers);
	EXPECT_EQ(0, memreg_export_deregister(&mr));
	EXPECT_EQ(0, look(self).u.exported.importers);
	EXPECT_EQ(IB_MEMREG_EXPORT_LIVE, look(self).u.exported.state);
	app_close(&app);
}

TEST_F(export, I1_the_peer_is_refused_after_each_end)
{
	struct memreg_export_mr mr;
	struct app app;
	int end;

	NEEDS_REGISTRATION;
	ASSERT_EQ(0, app_open(&app));
	for (end = 0; end < 4; end++) {
		ASSERT_EQ(0, grant(self, &app, &mr));
		ASSERT_EQ(0, app_connect(&app));
		ASSERT_EQ(0, app_write(&app, SIZE, self->addr, mr.rkey));
		switch (end) {
		case 0:
			EXPECT_EQ(0, end_it(self));
			break;
		case 1:
			EXPECT_EQ(0, raw_destroy(self->fd, self->export));
			break;
		case 2:
			mem_free(self->at, LEN);
			self->at = NULL;
			EXPECT_EQ(IB_MEMREG_EXPORT_ENDED,
				  look(self).u.exported.state);
			EXPECT_EQ(IB_MEMREG_MR_STALE,
				  raw_mr_state(self->fd, self->mr));
			EXPECT_FAIL(ESTALE, STALE,
				    raw_export(self->fd, self->mr, FIRST, SIZE,
					       &(__u32){ 0 }));
			self->at = mem_alloc(LEN);
			ASSERT_NE(NULL, self->at);
			self->addr = (uintptr_t)self->at + FIRST;
			break;
		case 3:
			EXPECT_EQ(0, close(self->fd));
			self->fd = -1;
			break;
		}
		fill(self->at, LEN, 4);
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
			  app_write(&app, SIZE, self->addr, mr.rkey));
		EXPECT_TRUE(filled(self->at, LEN, 0, 4));
		EXPECT_EQ(0, memreg_export_deregister(&mr));
		EXPECT_EQ(-ENODEV, memreg_export_register(app.pd, self->dmabuf,
							  0, SIZE, self->addr,
							  RW, &mr));
		if (end != 2)
			continue;
		EXPECT_EQ(0, end_it(self));
		EXPECT_EQ(0, raw_destroy(self->fd, self->mr));
		ASSERT_EQ(0, raw_register(self->fd, self->domain, self->at, LEN,
					  LOCAL_WRITE, &self->mr));
	}
	app_close(&app);
}

/**
 * struct accessor - A peer that READs or WRITEs until it is refused
 * @app: The ends
 * @opcode: IBV_WR_RDMA_READ or IBV_WR_RDMA_WRITE
 * @addr: Where to
 * @rkey: With which key
 * @done: Accesses that were done
 * @status: What the last one failed with
 */
struct accessor {
	struct app *app;
	enum ibv_wr_opcode opcode;
	uint64_t addr;
	uint32_t rkey;
	atomic_uint done;
	int status;
};

static void *access_on(void *arg)
{
	struct accessor *a = arg;

	do {
		a->status = qp_do(&a->app->peer, a->opcode, a->app->mr, SIZE,
				  a->addr, a->rkey);
		atomic_fetch_add(&a->done, !a->status);
	} while (!a->status);
	return NULL;
}

/**
 * struct grantor - Who exports memory of a file, which others can map as well
 * @fd: Its file of memreg
 * @at: Its mapping
 * @mr: An MR of all of it
 * @lease: A lease
 * @export: The export, under the lease
 * @dmabuf: Its descriptor
 */
struct grantor {
	int fd;
	uint8_t *at;
	__u32 mr;
	__u32 lease;
	__u32 export;
	int dmabuf;
};

static int grantor_open(struct grantor *g, int memory)
{
	__u32 domain;
	int ret;

	g->at = mem_map(memory, LEN, PROT_READ | PROT_WRITE);
	g->fd = raw_open_bound();
	if (!g->at || g->fd < 0)
		return -ENOMEM;
	ret = raw_domain(g->fd, &domain) ?:
	      raw_register(g->fd, domain, g->at, LEN, LOCAL_WRITE, &g->mr) ?:
	      raw_lease(g->fd, ~0ULL, &g->lease);
	if (ret)
		return ret;
	g->dmabuf = raw_export_leased(g->fd, g->mr, FIRST, SIZE, g->lease,
				      &g->export);
	return g->dmabuf < 0 ? g->dmabuf : 0;
}

/* In a process of its own, to be killed; this one takes the descriptor. */
static pid_t grantor_fork(struct grantor *g, int memory)
{
	int pipes[2], pidfd;
	pid_t child;

	g->dmabuf = -1;
	if (pipe(pipes))
		return -1;
	child = fork();
	if (!child) {
		if (grantor_open(g, memory) ||
		    write(pipes[1], g, sizeof(*g)) != sizeof(*g))
			_exit(1);
		for (;;)
			pause();
	}
	close(pipes[1]);
	pidfd = syscall(SYS_pidfd_open, child, 0);
	if (read(pipes[0], g, sizeof(*g)) == sizeof(*g))
		g->dmabuf = syscall(SYS_pidfd_getfd, pidfd, g->dmabuf, 0);
	close(pipes[0]);
	close(pidfd);
	return child;
}

enum end_by {
	BY_REVOKE, BY_UNMAP, BY_CLOSE, BY_SIGKILL, BY_REMOVAL, BY_LEASE
};

FIXTURE(race) {
	struct app app;
	struct grantor grantor;
	int memory;
	uint8_t *at;
	long pinned;
};

FIXTURE_VARIANT(race) {
	enum end_by by;
	unsigned int rounds;
	unsigned int soak;
};

FIXTURE_VARIANT_ADD(race, revoke) {
	.by = BY_REVOKE, .rounds = 50, .soak = 4000,
};

FIXTURE_VARIANT_ADD(race, munmap) {
	.by = BY_UNMAP, .rounds = 30, .soak = 3000,
};

FIXTURE_VARIANT_ADD(race, close) {
	.by = BY_CLOSE, .rounds = 10, .soak = 1500,
};

FIXTURE_VARIANT_ADD(race, SIGKILL) {
	.by = BY_SIGKILL, .rounds = 10, .soak = 1500,
};

FIXTURE_VARIANT_ADD(race, lease) {
	.by = BY_LEASE, .rounds = 30, .soak = 3000,
};

FIXTURE_VARIANT_ADD(race, removal) {
	.by = BY_REMOVAL, .rounds = 2, .soak = 50,
};

FIXTURE_SETUP(race)
{
	int fd = raw_open_bound();
	__u64 can = 0;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, raw_cap(fd, IB_MEMREG_CAP_EXPORT_REGISTER, &can));
	EXPECT_EQ(0, close(fd));
	self->pinned = pages_pinned();
	self->memory = memfd_create("race", MFD_CLOEXEC);
	ASSERT_LE(0, self->memory);
	ASSERT_EQ(0, ftruncate(self->memory, LEN));
	self->at = mem_map(self->memory, LEN, PROT_READ | PROT_WRITE);
	ASSERT_NE(NULL, self->at);
	if (!can)
		SKIP(return, "the driver imports no dma-bufs that can be revoked");
	ASSERT_EQ(0, app_open(&self->app));
}

FIXTURE_TEARDOWN(race)
{
	munmap(self->at, LEN);
	close(self->memory);
	AWAIT(pages_pinned() == self->pinned);
}

/* End the grant. The keys are dead when this returns. */
static int end_grant(struct grantor *g, enum end_by by, pid_t child)
{
	switch (by) {
	case BY_REVOKE:
		return raw_unexport(g->fd, &g->export, 1);
	case BY_UNMAP:
		return munmap(g->at, LEN) ? -errno : 0;
	case BY_CLOSE:
		return close(g->fd) ? -errno : 0;
	case BY_SIGKILL:
		return kill(child, SIGKILL) ||
		       waitpid(child, NULL, 0) != child ? -errno : 0;
	case BY_REMOVAL:
		return shell("rxe_down owner");
	case BY_LEASE:
		return raw_renew(g->fd, g->lease, boottime_ns()) ?:
		       raw_await(g->fd, IB_MEMREG_EVENT_LEASE_ENDED, NULL);
	}
	return -EINVAL;
}

static void grantor_close(struct grantor *g, enum end_by by)
{
	close(g->dmabuf);
	if (by == BY_SIGKILL)
		return;
	if (by != BY_CLOSE)
		close(g->fd);
	if (by != BY_UNMAP)
		munmap(g->at, LEN);
}

/*
 * No byte of a WRITE is late, and no READ sees what was written afterwards,
 * through another mapping of the pages. A process that was killed has closed
 * its files when it can be waited for; they are given up at once or by a task
 * that follows.
 */
static void race(struct __test_metadata *_metadata, FIXTURE_DATA(race) *self,
		 enum end_by by, enum ibv_wr_opcode opcode, unsigned int before)
{
	struct grantor *g = &self->grantor;
	struct app *app = &self->app;
	struct memreg_export_mr mr;
	struct accessor a;
	pthread_t thread;
	pid_t child = 0;

	ASSERT_EQ(0, app_connect(app));
	if (by == BY_SIGKILL)
		child = grantor_fork(g, self->memory);
	else
		ASSERT_EQ(0, grantor_open(g, self->memory));
	ASSERT_LE(0, g->dmabuf);
	fill(self->at, LEN, 5);
	fill(app->buffer, LEN, 5);
	ASSERT_EQ(0, memreg_export_register(app->pd, g->dmabuf, 0, SIZE, FIRST,
					    RW, &mr));
	a = (struct accessor) {
		.app = app,
		.opcode = opcode,
		.addr = FIRST,
		.rkey = mr.rkey,
	};
	ASSERT_EQ(0, pthread_create(&thread, NULL, access_on, &a));
	AWAIT(atomic_load(&a.done) > before);
	EXPECT_EQ(0, end_grant(g, by, child));
	fill(self->at, LEN, 6);
	EXPECT_EQ(0, pthread_join(thread, NULL));
	EXPECT_NE(0, a.status);
	if (by != BY_REMOVAL)
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, a.status);
	EXPECT_TRUE(filled(self->at, LEN, 0, 6));
	EXPECT_TRUE(filled(app->buffer, SIZE,
			   opcode == IBV_WR_RDMA_READ ? FIRST : 0, 5));
	if (by != BY_REMOVAL)
		EXPECT_EQ(0, memreg_export_deregister(&mr));
	grantor_close(g, by);
}

TEST_F_TIMEOUT(race, I1_no_byte_is_late, SOAK_S)
{
	unsigned int i, rounds = times(variant->rounds, variant->soak);

	for (i = 0; i < rounds && !_metadata->exit_code; i++) {
		race(_metadata, self, variant->by,
		     i & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i / 2 % 4);
		if (variant->by != BY_REMOVAL)
			continue;
		app_close(&self->app);
		ASSERT_EQ(0, shell("rxe_up owner && await 60 rxe_ready owner"));
		ASSERT_EQ(0, app_open(&self->app));
	}
	app_close(&self->app);
}

/*
 * Of memory that is pinned once: in files of memreg, on any device
 */

TEST_F(export, one_pin_for_many_files_that_end_together)
{
	struct ib_memreg_mr_register mrs[3];
	__u32 domains[3];
	int files[3], i;

	ASSERT_EQ(0, share(self));
	for (i = 0; i < 3; i++) {
		files[i] = i == 2 ? raw_open_peer() : raw_open_bound();
		ASSERT_LE(0, files[i]);
		ASSERT_EQ(0, raw_domain(files[i], &domains[i]));
		ASSERT_EQ(0, raw_register_fd(files[i], domains[i], self->dmabuf,
					     0, SIZE, LOCAL_WRITE | REMOTE_RW,
					     &mrs[i]));
	}
	EXPECT_EQ(self->pinned + (long)(LEN / PAGE), pages_pinned());
	EXPECT_EQ(LEN / PAGE, vm_pin(0));
	EXPECT_EQ(3, look(self).u.exported.importers);
	mem_free(self->at, LEN);
	self->at = NULL;
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(IB_MEMREG_MR_STALE,
			  raw_mr_state(files[i], mrs[i].out_mr_id));
		EXPECT_EQ(0, close(files[i]));
	}
	EXPECT_EQ(IB_MEMREG_EXPORT_ENDED, look(self).u.exported.state);
}

/*
 * Rules
 */

TEST_F(export, its_mr_lasts_until_it_is_revoked)
{
	ASSERT_EQ(0, share(self));
	EXPECT_FAIL(EBUSY, EXPORTED, raw_destroy(self->fd, self->mr));
	EXPECT_EQ(self->mr, look(self).u.exported.mr_id);
	EXPECT_EQ(self->addr, look(self).u.exported.addr);
	EXPECT_EQ(SIZE, look(self).u.exported.length);
	EXPECT_EQ(0, look(self).users);
	EXPECT_EQ(0, end_it(self));
	EXPECT_EQ(0, end_it(self));
	EXPECT_EQ(IB_MEMREG_EXPORT_ENDED, look(self).u.exported.state);
	EXPECT_EQ(0, raw_destroy(self->fd, self->mr));
	EXPECT_EQ(self->pinned, pages_pinned());
	EXPECT_EQ(0, raw_destroy(self->fd, self->export));
	EXPECT_FAIL(ENOENT, ID, end_it(self));
}

/* memreg imports it for another file, whose MR is stale at the end. */
TEST_F(export, it_ends_with_its_lease)
{
	struct ib_memreg_mr_register mr;
	int other = raw_open_bound();
	__u32 domain, lease, ended;

	ASSERT_EQ(0, raw_domain(other, &domain));
	ASSERT_EQ(0, raw_lease(self->fd, ~0ULL, &lease));
	self->dmabuf = raw_export_leased(self->fd, self->mr, FIRST, SIZE,
					 lease, &self->export);
	ASSERT_LE(0, self->dmabuf);
	EXPECT_EQ(lease, look(self).u.exported.lease_id);
	ASSERT_EQ(0, raw_register_fd(other, domain, self->dmabuf, 0, SIZE,
				     REMOTE_READ, &mr));
	EXPECT_FAIL(EBUSY, LEASE_GRANTS, raw_destroy(self->fd, lease));
	EXPECT_EQ(IB_MEMREG_MR_LIVE, raw_mr_state(other, mr.out_mr_id));
	ASSERT_EQ(0, raw_renew(self->fd, lease, boottime_ns() + 100 * MS));
	ASSERT_EQ(0, raw_await(self->fd, IB_MEMREG_EVENT_LEASE_ENDED, &ended));
	EXPECT_EQ(lease, ended);
	EXPECT_EQ(IB_MEMREG_MR_STALE, raw_mr_state(other, mr.out_mr_id));
	EXPECT_EQ(IB_MEMREG_EXPORT_ENDED, look(self).u.exported.state);
	EXPECT_FAIL(ESTALE, LEASE_ENDED,
		    raw_export_leased(self->fd, self->mr, FIRST, SIZE, lease,
				      &(__u32){ 0 }));
	/* As after a revoke, it keeps nothing. */
	EXPECT_EQ(0, raw_destroy(self->fd, self->mr));
	EXPECT_EQ(0, close(other));
	EXPECT_EQ(0, raw_destroy(self->fd, lease));
	EXPECT_EQ(0, raw_destroy(self->fd, self->export));
}

TEST_F(export, I8_under_a_lease_that_ended_or_is_none)
{
	__u32 lease, export;

	ASSERT_EQ(0, raw_lease(self->fd, ~0ULL, &lease));
	EXPECT_FAIL(ENOENT, ID,
		    raw_export_leased(self->fd, self->mr, FIRST, SIZE,
				      self->mr, &export));
	EXPECT_FAIL(EINVAL, EXPORT_PAGES,
		    raw_export_leased(self->fd, self->mr, 1, SIZE, lease,
				      &export));
	self->dmabuf = raw_export_leased(self->fd, self->mr, FIRST, SIZE,
					 lease, &self->export);
	ASSERT_LE(0, self->dmabuf);
	EXPECT_EQ(0, end_it(self));
	EXPECT_EQ(0, raw_destroy(self->fd, self->export));
	EXPECT_EQ(0, raw_destroy(self->fd, lease));
	ASSERT_EQ(0, raw_lease(self->fd, 0, &lease));
	EXPECT_FAIL(ESTALE, LEASE_ENDED,
		    raw_export_leased(self->fd, self->mr, FIRST, SIZE, lease,
				      &export));
	EXPECT_EQ(0, raw_destroy(self->fd, lease));
}

TEST_F(export, access_that_was_given_up_is_not_exported)
{
	RAW(mr_reregister, cmd, .flags = IB_MEMREG_REREG_ACCESS,
	    .mr_id = self->mr);

	ASSERT_EQ(0, share(self));
	EXPECT_EQ(-EBUSY, raw_call(self->fd, IB_MEMREG_IOC_MR_REREGISTER,
				   &cmd));
	ASSERT_EQ(0, end_it(self));
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_MR_REREGISTER, &cmd));
	EXPECT_FAIL(EACCES, LOCAL_WRITE,
		    raw_export(self->fd, self->mr, 0, PAGE, &(__u32){ 0 }));
}

TEST_F(export, I8_what_can_not_be_exported)
{
	__u32 id, read_only, all[2];
	struct ib_memreg_mr_register reg = { 0 };
	struct state before;

	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->at, LEN, 0,
				  &read_only));
	ASSERT_EQ(0, share(self));
	ASSERT_EQ(0, state_get(&before));
	EXPECT_FAIL(ENOENT, ID,
		    raw_export(self->fd, self->export, 0, PAGE, &id));
	EXPECT_FAIL(EACCES, LOCAL_WRITE,
		    raw_export(self->fd, read_only, 0, PAGE, &id));
	EXPECT_FAIL(EINVAL, ZERO_LENGTH,
		    raw_export(self->fd, self->mr, 0, 0, &id));
	EXPECT_FAIL(EINVAL, RANGE,
		    raw_export(self->fd, self->mr, PAGE, LEN, &id));
	EXPECT_FAIL(EOVERFLOW, WRAPS,
		    raw_export(self->fd, self->mr, PAGE, -PAGE, &id));
	EXPECT_FAIL(EINVAL, EXPORT_PAGES,
		    raw_export(self->fd, self->mr, 1, PAGE, &id));
	EXPECT_FAIL(EINVAL, EXPORT_PAGES,
		    raw_export(self->fd, self->mr, 0, PAGE - 1, &id));
	all[0] = self->export;
	all[1] = self->mr;
	EXPECT_FAIL(ENOENT, ID, raw_unexport(self->fd, all, 2));
	EXPECT_EQ(1, raw_index());
	EXPECT_FAIL(EINVAL, COUNT, raw_unexport(self->fd, all, 0));
	EXPECT_EQ(-EFAULT, raw_unexport(self->fd, NULL, 2));
	EXPECT_TRUE(state_same(&before));
	state_free(&before);

	/* The memory of an export is not exported again, nor composed. */
	ASSERT_EQ(0, raw_register_fd(self->fd, self->domain, self->dmabuf, 0,
				     SIZE, LOCAL_WRITE, &reg));
	EXPECT_FAIL(EOPNOTSUPP, EXPORT_MEMORY,
		    raw_export(self->fd, reg.out_mr_id, 0, PAGE, &id));
	EXPECT_FAIL(EINVAL, RANGE,
		    raw_register_fd(self->fd, self->domain, self->dmabuf, PAGE,
				    SIZE, LOCAL_WRITE, &reg));
}

TEST_F(export, a_user_has_as_many_as_descriptors)
{
	struct rlimit limit = { .rlim_cur = 64, .rlim_max = 64 };
	__u32 id, made = 0;
	int fd;

	IN_CHILD {
		ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
		for (;;) {
			fd = raw_export(self->fd, self->mr, 0, PAGE, &id);
			if (fd < 0)
				break;
			close(fd);
			made++;
		}
		EXPECT_EQ(-EMFILE, fd);
		EXPECT_EQ(IB_MEMREG_REASON_EXPORTS, raw_reason());
		EXPECT_EQ(64, made);
	}
	EXPECT_EQ(64, state_count(IB_MEMREG_OBJECT_EXPORT));
}

/* What others keep of exports that are gone does not count. */
TEST_F(export, shells_are_not_the_owners)
{
	struct rlimit limit = { .rlim_cur = 64, .rlim_max = 64 };
	unsigned int i;
	__u32 id;
	int fd;

	IN_CHILD {
		ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
		for (i = 0; i < 40; i++) {
			ASSERT_LE(0, raw_export(self->fd, self->mr, 0, PAGE,
						&id));
			EXPECT_EQ(0, raw_destroy(self->fd, id));
		}
		for (i = 0; i < 40; i++) {
			fd = raw_export(self->fd, self->mr, 0, PAGE, &id);
			ASSERT_LE(0, fd);
			close(fd);
		}
	}
}

TEST_F(export, of_a_memory_object)
{
	int memory = raw_memory(self->fd, LEN, 0);
	struct ib_memreg_mr_register mr = {};
	uint8_t *at;

	if (self->fake == -ENOENT)
		SKIP(return, "no importer can be had here");
	ASSERT_LE(0, memory);
	at = mem_map(memory, LEN, PROT_RW);
	ASSERT_NE(NULL, at);
	ASSERT_EQ(0, raw_register_fd(self->fd, self->domain, memory, PAGE,
				     4 * PAGE, LOCAL_WRITE, &mr));
	self->dmabuf = raw_export(self->fd, mr.out_mr_id, PAGE, 2 * PAGE,
				  &self->export);
	ASSERT_LE(0, self->dmabuf);
	ASSERT_EQ(0, fake_import_export(self->fake, self->dmabuf,
					MEMREG_FAKE_AT_ONCE));
	ASSERT_EQ(0, fake_write(self->fake, false, 1));
	EXPECT_EQ(0, at[2 * PAGE - 1]);
	EXPECT_EQ(1, at[2 * PAGE]);
	EXPECT_EQ((uint8_t)(2 * PAGE), at[4 * PAGE - 1]);
	EXPECT_EQ(0, at[4 * PAGE]);
	EXPECT_EQ(0, end_it(self));
	EXPECT_EQ(-ENODEV, fake_write(self->fake, false, 2));
	munmap(at, LEN);
	close(memory);
}

/**
 * struct registrar - One who registers an export, and deregisters it
 * @fd: The file
 * @domain: Domain in it
 * @dmabuf: The export
 * @stop: Enough of that
 * @done: Times that it was registered
 */
struct registrar {
	int fd;
	__u32 domain;
	atomic_int dmabuf;
	atomic_bool stop;
	atomic_uint done;
};

static void *register_on(void *arg)
{
	struct ib_memreg_mr_register mr = {};
	struct registrar *r = arg;

	while (!atomic_load(&r->stop))
		if (!raw_register_fd(r->fd, r->domain, atomic_load(&r->dmabuf),
				     0, PAGE, LOCAL_WRITE | REMOTE_READ, &mr)) {
			atomic_fetch_add(&r->done, 1);
			raw_destroy(r->fd, mr.out_mr_id);
		}
	return NULL;
}

TEST_F_TIMEOUT(export, I1_registration_races_with_the_end, SOAK_S)
{
	unsigned int i, rounds = times(100, 10000), done = 0;
	struct registrar r = { .fd = self->fd, .domain = self->domain };
	pthread_t thread;

	ASSERT_EQ(0, share(self));
	atomic_store(&r.dmabuf, self->dmabuf);
	ASSERT_EQ(0, pthread_create(&thread, NULL, register_on, &r));
	for (i = 0; i < rounds && !_metadata->exit_code; i++) {
		AWAIT(atomic_load(&r.done) != done);
		EXPECT_EQ(0, end_it(self));
		EXPECT_EQ(0, look(self).u.exported.importers);
		EXPECT_EQ(0, raw_destroy(self->fd, self->export));
		ASSERT_EQ(0, share(self));
		done = atomic_load(&r.done);
		atomic_store(&r.dmabuf, self->dmabuf);
	}
	atomic_store(&r.stop, true);
	EXPECT_EQ(0, pthread_join(thread, NULL));
}

TEST_F(export, I8_its_slot_changes_once)
{
	RAW(export_create, cmd, .mr_id = self->mr, .length = PAGE);
	struct status_map map;
	__u64 generation;

	ASSERT_EQ(0, status_create(self->fd, 4, 0, &map));
	cmd.status_id = map.id;
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_EXPORT_CREATE, &cmd));
	close(cmd.out_fd);
	generation = cmd.out_generation;
	EXPECT_EQ(generation, status_generation(&map, cmd.out_slot));
	EXPECT_EQ(-EBUSY, raw_destroy(self->fd, map.id));
	EXPECT_EQ(0, raw_unexport(self->fd, &cmd.out_export_id, 1));
	EXPECT_LT(generation, status_generation(&map, cmd.out_slot));
	generation = status_generation(&map, cmd.out_slot);
	mem_free(self->at, LEN);
	self->at = NULL;
	EXPECT_EQ(generation, status_generation(&map, cmd.out_slot));
	EXPECT_EQ(0, raw_destroy(self->fd, cmd.out_export_id));
	EXPECT_EQ(0, raw_destroy(self->fd, map.id));
	status_unmap(&map);
}

/*
 * Importers of the tests
 */

#define NEEDS_FAKE							\
	do {								\
		if (self->fake == -ENOENT)				\
			SKIP(return, "no importer can be had here");	\
		ASSERT_LE(0, self->fake);				\
	} while (0)

TEST_F(export, importers_that_can_not_let_go_are_refused)
{
	NEEDS_FAKE;
	ASSERT_EQ(0, share(self));
	EXPECT_EQ(-EOPNOTSUPP, fake_import(self->fake, self->dmabuf, false,
					   true));
	EXPECT_EQ(0, look(self).u.exported.importers);
	ASSERT_EQ(0, end_it(self));
	EXPECT_EQ(-ENODEV, fake_import_export(self->fake, self->dmabuf,
					      MEMREG_FAKE_AT_ONCE));
}

TEST_F(export, I1_an_importer_lets_go_before_the_call_returns)
{
	NEEDS_FAKE;
	ASSERT_EQ(0, share(self));
	ASSERT_EQ(0, fake_import_export(self->fake, self->dmabuf,
					MEMREG_FAKE_AT_ONCE));
	EXPECT_EQ(1, look(self).u.exported.importers);
	ASSERT_EQ(0, fake_write(self->fake, false, 7));
	EXPECT_EQ(7, self->at[FIRST]);
	EXPECT_EQ((uint8_t)(7 + SIZE - 1), self->at[FIRST + SIZE - 1]);
	ASSERT_EQ(0, end_it(self));
	EXPECT_EQ(0, look(self).u.exported.importers);
	EXPECT_EQ(-ENODEV, fake_write(self->fake, false, 8));
}

/* The pages are those of before, whatever their owner and its file do. */
TEST_F(export, I1_pages_stay_for_an_importer_that_is_late)
{
	NEEDS_FAKE;
	ASSERT_EQ(0, share(self));
	ASSERT_EQ(0, fake_import_export(self->fake, self->dmabuf,
					MEMREG_FAKE_LATE));
	ASSERT_EQ(0, fake_write(self->fake, false, 7));
	EXPECT_FAIL(ETIMEDOUT, EXPORT_LATE, end_it(self));
	EXPECT_EQ(0, raw_index());
	EXPECT_EQ(IB_MEMREG_EXPORT_ENDING, look(self).u.exported.state);
	EXPECT_FAIL(EBUSY, EXPORTED, raw_destroy(self->fd, self->mr));
	EXPECT_FAIL(EBUSY, EXPORT_LATE, raw_destroy(self->fd, self->export));
	mem_free(self->at, LEN);
	self->at = NULL;
	EXPECT_EQ(0, close(self->fd));
	self->fd = -1;
	EXPECT_EQ(self->pinned + (long)(LEN / PAGE), pages_pinned());
	EXPECT_EQ(0, fake_read(self->fake, false, 7));
	EXPECT_EQ(0, close(self->fake));
	self->fake = -1;
	AWAIT(pages_pinned() == self->pinned);
}

static __u64 waits_that_timed_out(FIXTURE_DATA(export) *self)
{
	__u64 value = 0;

	raw_stat(self->fd, IB_MEMREG_STAT_EXPORTS_LATE, &value);
	return value;
}

TEST_F(export, I7_a_late_importer_delays_its_owner_once)
{
	__u64 before;
	size_t i;

	NEEDS_FAKE;
	ASSERT_EQ(0, share(self));
	ASSERT_EQ(0, fake_import_export(self->fake, self->dmabuf,
					MEMREG_FAKE_LATE));
	before = waits_that_timed_out(self);
	for (i = 0; i < LEN; i += PAGE)
		EXPECT_EQ(0, munmap(self->at + i, PAGE));
	self->at = NULL;
	EXPECT_EQ(before + 1, waits_that_timed_out(self));
	EXPECT_EQ(IB_MEMREG_EXPORT_ENDING, look(self).u.exported.state);
}

/* A late importer delays the report of the end of a lease, but not the end. */
TEST_F(export, I7_a_late_importer_and_a_lease)
{
	__u32 lease;

	NEEDS_FAKE;
	ASSERT_EQ(0, raw_lease(self->fd, ~0ULL, &lease));
	self->dmabuf = raw_export_leased(self->fd, self->mr, FIRST, SIZE,
					 lease, &self->export);
	ASSERT_LE(0, self->dmabuf);
	ASSERT_EQ(0, fake_import_export(self->fake, self->dmabuf,
					MEMREG_FAKE_LATE));
	ASSERT_EQ(0, raw_renew(self->fd, lease, 0));
	ASSERT_EQ(0, raw_await(self->fd, IB_MEMREG_EVENT_LEASE_ENDED, NULL));
	EXPECT_EQ(IB_MEMREG_EXPORT_ENDING, look(self).u.exported.state);
	EXPECT_EQ(0, raw_destroy(self->fd, lease));
	EXPECT_FAIL(EBUSY, EXPORT_LATE, raw_destroy(self->fd, self->export));
	EXPECT_EQ(0, close(self->fake));
	self->fake = -1;
	AWAIT(look(self).u.exported.state == IB_MEMREG_EXPORT_ENDED);
	EXPECT_EQ(0, raw_destroy(self->fd, self->export));
}

TEST_F(export, a_late_importer_that_let_go_is_forgotten)
{
	NEEDS_FAKE;
	ASSERT_EQ(0, share(self));
	ASSERT_EQ(0, fake_import_export(self->fake, self->dmabuf,
					MEMREG_FAKE_LATE));
	EXPECT_FAIL(ETIMEDOUT, EXPORT_LATE, end_it(self));
	EXPECT_EQ(0, close(self->fake));
	self->fake = -1;
	EXPECT_EQ(0, end_it(self));
	EXPECT_EQ(0, raw_destroy(self->fd, self->mr));
	EXPECT_EQ(0, raw_destroy(self->fd, self->export));
}

struct holder {
	int fake;
	int dmabuf;
	atomic_int task;
	atomic_bool over;
};

/* Hold for longer than anything is to wait. */
static void *hold(void *arg)
{
	struct holder *h = arg;

	atomic_store(&h->task, gettid());
	fake_hold(h->fake, h->dmabuf, 6000);
	atomic_store(&h->over, true);
	return NULL;
}

/* Nobody waits for the lock of a dma-buf for as long as somebody likes. */
TEST_F(export, I7_a_held_lock_delays_nobody_for_long)
{
	struct holder h = { .fake = self->fake };
	pthread_t thread;

	NEEDS_FAKE;
	ASSERT_EQ(0, share(self));
	h.dmabuf = self->dmabuf;
	ASSERT_EQ(0, pthread_create(&thread, NULL, hold, &h));
	AWAIT(atomic_load(&h.task));
	/* It sleeps there, and takes the lock without a wait. */
	EXPECT_TRUE(task_is(atomic_load(&h.task), 'D'));
	EXPECT_FAIL(ETIMEDOUT, EXPORT_LATE, end_it(self));
	mem_free(self->at, LEN);
	self->at = NULL;
	EXPECT_EQ(0, close(self->fd));
	self->fd = -1;
	EXPECT_FALSE(atomic_load(&h.over));
	EXPECT_EQ(0, pthread_join(thread, NULL));
}

/* Those that hold an export when its owner is killed keep only a shell. */
TEST_F(export, I7_SIGKILL_of_the_owner)
{
	int pipes[2], ready;
	pid_t child;

	NEEDS_FAKE;
	ASSERT_EQ(0, share(self));
	ASSERT_EQ(0, fake_import_export(self->fake, self->dmabuf,
					MEMREG_FAKE_AT_ONCE));
	ASSERT_EQ(0, pipe(pipes));
	child = fork();
	if (!child) {
		/* An owner of its own; the file of the test is closed here. */
		int fake = fake_open(), fd = raw_open_bound(), dmabuf;
		__u32 domain, mr, id;
		uint8_t *at = mem_alloc(LEN);

		if (raw_domain(fd, &domain) ||
		    raw_register(fd, domain, at, LEN, LOCAL_WRITE, &mr))
			_exit(1);
		dmabuf = raw_export(fd, mr, 0, LEN, &id);
		if (dmabuf < 0 || fake_import_export(fake, dmabuf,
						     MEMREG_FAKE_AT_ONCE))
			_exit(1);
		if (write(pipes[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(pipes[1]);
	EXPECT_EQ(1, read(pipes[0], &ready, 1));
	close(pipes[0]);
	EXPECT_EQ(0, kill(child, SIGKILL));
	EXPECT_EQ(child, waitpid(child, NULL, 0));
	AWAIT(pages_pinned() == self->pinned + (long)(LEN / PAGE));
	EXPECT_EQ(IB_MEMREG_EXPORT_LIVE, look(self).u.exported.state);
}

TEST_HARNESS_MAIN
