// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program of libibverbs alone: library/verbs_preload.sh runs it with and
 * without libmemreg-verbs in front of it. Its argument is what it does; it
 * prints what happened. Both ends of its connection are its own. As a plugin of
 * host.c it does unmap().
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem.h"
#include "qp.h"
#include "test.h"

#define LEN		(16 * PAGE)
#define RW		(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			 IBV_ACCESS_REMOTE_WRITE)
#define THREADS		4
#define MANY		100

#define CHECK(_what)							\
	do {								\
		if (_what)						\
			break;						\
		printf("line %d: not %s, errno %d\n", __LINE__, #_what,	\
		       errno);						\
		exit(1);						\
	} while (0)

static struct {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct qp_end owner;
	struct qp_end peer;
	struct ibv_mr *mr;	/* memory of the peer */
	uint8_t *buffer;
} app;

/* Connect the ends in a protection domain, also after an access was refused. */
static void connect_in(struct ibv_pd *pd)
{
	qp_close(&app.owner);
	qp_close(&app.peer);
	CHECK(!qp_open(&app.owner, pd) && !qp_open(&app.peer, app.pd));
	CHECK(!qp_connect(&app.owner, &app.peer.addr));
	CHECK(!qp_connect(&app.peer, &app.owner.addr));
}

static void open_all(void)
{
	memset(&app, 0, sizeof(app));
	app.context = qp_device(test_device());
	CHECK(app.context);
	app.pd = ibv_alloc_pd(app.context);
	app.buffer = mem_alloc(LEN);
	CHECK(app.pd && app.buffer);
	app.mr = ibv_reg_mr(app.pd, app.buffer, LEN, RW);
	CHECK(app.mr);
	connect_in(app.pd);
}

static int write_to(uint64_t addr, uint32_t length, uint32_t rkey)
{
	return qp_do(&app.peer, IBV_WR_RDMA_WRITE, app.mr, length, addr, rkey);
}

static int read_from(uint64_t addr, uint32_t length, uint32_t rkey)
{
	return qp_do(&app.peer, IBV_WR_RDMA_READ, app.mr, length, addr, rkey);
}

/* The peer reaches all of an MR, and nothing else of the memory around it. */
static void check_mr(const struct ibv_mr *mr, uint8_t *mem, uint64_t iova)
{
	uint8_t *at = mr->addr;
	uint32_t n = (uint32_t)mr->length;

	fill(mem, LEN, 1);
	fill(app.buffer, LEN, 2);
	CHECK(!write_to(iova, n, mr->rkey));
	CHECK(filled(at, n, 0, 2));
	CHECK(filled(mem, (size_t)(at - mem), 0, 1));
	CHECK(filled(at + n, LEN - n - (size_t)(at - mem),
		     n + (size_t)(at - mem), 1));
	fill(at, n, 3);
	CHECK(!read_from(iova, n, mr->rkey));
	CHECK(filled(app.buffer, n, 0, 3));
	CHECK(write_to(iova - 1, 2, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	connect_in(mr->pd);
	CHECK(write_to(iova + n - 1, 2, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	connect_in(mr->pd);
}

static void check_shown(struct ibv_mr *mr, void *at, size_t length)
{
	CHECK(mr);
	CHECK(mr->context == app.context && mr->pd == app.pd);
	CHECK(mr->addr == at && mr->length == length);
	CHECK(mr->lkey && mr->rkey);
}

/* Each form of the function, of memory that is no whole pages */
static void bytes(void)
{
	uint8_t *mem = mem_alloc(LEN), *at = mem + 100;
	uint64_t iova = (uintptr_t)at + (1ULL << 40);
	size_t n = LEN - 300;
	struct ibv_mr *mr;

	mr = ibv_reg_mr(app.pd, at, n, RW);
	check_shown(mr, at, n);
	check_mr(mr, mem, (uintptr_t)at);
	CHECK(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr(app.pd, at, n, RW | IBV_ACCESS_RELAXED_ORDERING);
	check_shown(mr, at, n);
	check_mr(mr, mem, (uintptr_t)at);
	CHECK(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr_iova(app.pd, at, n, iova, RW);
	check_shown(mr, at, n);
	check_mr(mr, mem, iova);
	CHECK(!ibv_dereg_mr(mr));
	/* an iova elsewhere in its page */
	mr = ibv_reg_mr_iova(app.pd, at, n, iova + 8, RW);
	printf("shifted iova: %s\n", mr ? "registered" : strerror(errno));
	CHECK(!mr || !ibv_dereg_mr(mr));
	mem_free(mem, LEN);
}

static void map_anew(uint8_t *mem)
{
	CHECK(!munmap(mem, LEN));
	CHECK(mmap(mem, LEN, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   -1, 0) == mem);
	fill(mem, LEN, 4);
}

/* Is a key served after the memory was unmapped, and other memory is there? */
static const char *end_of(const struct ibv_mr *mr, uint8_t *mem)
{
	int status;

	CHECK(!write_to((uintptr_t)mem, LEN, mr->rkey));
	map_anew(mem);
	status = write_to((uintptr_t)mem, LEN, mr->rkey);
	CHECK(!status || status == IBV_WC_REM_ACCESS_ERR);
	CHECK(filled(mem, LEN, 0, 4));
	if (status)
		connect_in(mr->pd);
	return status ? "refused" : "served";
}

static const char *unmap_once(void)
{
	uint8_t *mem = mem_alloc(LEN);
	struct ibv_mr *mr = ibv_reg_mr(app.pd, mem, LEN, RW), *again;
	const char *end;

	CHECK(mr);
	end = end_of(mr, mem);
	again = ibv_reg_mr(app.pd, mem, LEN, RW);
	CHECK(again);
	check_mr(again, mem, (uintptr_t)mem);
	CHECK(!ibv_dereg_mr(again));
	CHECK(!ibv_dereg_mr(mr));
	mem_free(mem, LEN);
	return end;
}

static void unmap(void)
{
	printf("old key: %s\n", unmap_once());
}

static void rereg(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(app.context);
	uint8_t *one = mem_alloc(LEN), *two = mem_alloc(LEN);
	struct ibv_mr *mr = ibv_reg_mr(app.pd, one, LEN, RW);
	const int input = IBV_REREG_MR_ERR_INPUT;

	CHECK(pd && mr);
	CHECK(input == ibv_rereg_mr(mr, 1 << 3, pd, two, LEN, RW));
	CHECK(input == ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				    NULL, LEN, 0));
	CHECK(input == ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0,
				    RW));
	if (ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, two, LEN,
			 0)) {
		printf("no rereg: errno %d\n", errno);
		exit(0);
	}
	check_shown(mr, two, LEN);
	check_mr(mr, two, (uintptr_t)two);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	CHECK(!read_from((uintptr_t)two, LEN, mr->rkey));
	CHECK(write_to((uintptr_t)two, LEN, mr->rkey) ==
	      IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS |
			    IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, RW));
	CHECK(mr->pd == pd);
	connect_in(pd);
	check_mr(mr, two, (uintptr_t)two);
	/* what can't be guarded, behind the same structure */
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW |
			    IBV_ACCESS_FLUSH_GLOBAL));
	check_mr(mr, two, (uintptr_t)two);
	/* a provider would bind windows to a structure of its own */
	if (ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW |
			 IBV_ACCESS_MW_BIND))
		CHECK(errno == EOPNOTSUPP);
	check_mr(mr, two, (uintptr_t)two);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS |
			    IBV_REREG_MR_CHANGE_TRANSLATION, NULL, one, LEN,
			    RW));
	check_mr(mr, one, (uintptr_t)one);
	/* what fails leaves the old one */
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			   (void *)PAGE, LEN, 0) == IBV_REREG_MR_ERR_CMD);
	check_mr(mr, one, (uintptr_t)one);
	printf("old key: %s\n", end_of(mr, one));
	CHECK(!ibv_dereg_mr(mr));
	connect_in(app.pd);
	CHECK(!ibv_dealloc_pd(pd));
	mem_free(one, LEN);
	mem_free(two, LEN);
}

/* A child with registrations of its own, on a device that it opens itself */
static void forked(void)
{
	uint8_t *mem = mem_alloc(LEN);
	struct ibv_mr *mr = ibv_reg_mr(app.pd, mem, LEN, RW);
	int status;
	pid_t child;

	CHECK(mr);
	fflush(stdout);
	child = fork();
	if (!child) {
		open_all();
		printf("child's old key: %s\n", unmap_once());
		exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	check_mr(mr, mem, (uintptr_t)mem);
	printf("parent's old key: %s\n", end_of(mr, mem));
	CHECK(!ibv_dereg_mr(mr));
	mem_free(mem, LEN);
}

/* A child that deregisters what its parent has: both have the same device. */
static void child_deregisters(void)
{
	uint8_t *mem = mem_alloc(LEN);
	struct ibv_mr *mr = ibv_reg_mr(app.pd, mem, LEN, RW);
	int status;
	pid_t child;

	CHECK(mr);
	fflush(stdout);
	child = fork();
	if (!child)
		_exit(ibv_dereg_mr(mr));
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	printf("child %d parent %d\n", WEXITSTATUS(status), ibv_dereg_mr(mr));
	mem_free(mem, LEN);
	printf("then: %s\n", unmap_once());
}

static void *register_many(void *arg)
{
	int flags = arg ? RW : RW | IBV_ACCESS_MW_BIND, i;
	uint8_t *mem;
	struct ibv_mr *mr;

	for (i = 0; i < MANY; i++) {
		mem = mem_alloc(LEN);
		CHECK(mem);
		mr = ibv_reg_mr(app.pd, mem, LEN, flags);
		check_shown(mr, mem, LEN);
		CHECK(!ibv_dereg_mr(mr));
		mem_free(mem, LEN);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[THREADS];
	size_t i;

	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&thread[i], NULL, register_many,
				      (void *)i));
	check_mr(app.mr, app.buffer, (uintptr_t)app.buffer);
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_join(thread[i], NULL));
}

static void try(const char *what, void *at, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(app.pd, at, length, access);

	printf("%s: %s\n", what, mr ? "registered" : strerror(errno));
	CHECK(!mr || !ibv_dereg_mr(mr));
}

/* What is not guarded. The last one goes stale where it is not. */
static void odd(void)
{
	uint8_t *mem = mem_alloc(LEN);
	uint8_t *fixed = mmap(NULL, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);
	struct ibv_mr *mr;

	CHECK(mem && fixed != MAP_FAILED);
	try("window", mem, LEN, RW | IBV_ACCESS_MW_BIND);
	try("zero based", mem, LEN, RW | IBV_ACCESS_ZERO_BASED);
	try("flush", mem, LEN, RW | IBV_ACCESS_FLUSH_GLOBAL);
	try("on demand", mem, LEN, RW | IBV_ACCESS_ON_DEMAND);
	try("implicit", NULL, SIZE_MAX, RW | IBV_ACCESS_ON_DEMAND);
	try("no bytes", mem, 0, RW);
	try("read-only", fixed, LEN, IBV_ACCESS_REMOTE_READ);
	try("read-only for writing", fixed, LEN, RW);
	try("not mapped", (void *)PAGE, LEN, RW);
	try("beyond all addresses", mem, SIZE_MAX, RW);
	try("remote write alone", mem, LEN, IBV_ACCESS_REMOTE_WRITE);
	mr = ibv_reg_mr(app.pd, mem, LEN, RW | IBV_ACCESS_MW_BIND);
	CHECK(mr);
	map_anew(mem);
	CHECK(!ibv_dereg_mr(mr));
	mem_free(mem, LEN);
	munmap(fixed, LEN);
}

/* Programs that register more than they may have open files */
static void many(void)
{
	struct rlimit limit = { .rlim_cur = 64, .rlim_max = 64 };
	uint8_t *mem = mem_alloc(LEN);
	struct ibv_mr *mr[MANY];
	int i;

	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	for (i = 0; i < MANY; i++) {
		mr[i] = ibv_reg_mr(app.pd, mem, LEN, RW);
		CHECK(mr[i]);
	}
	check_mr(mr[0], mem, (uintptr_t)mem);
	check_mr(mr[MANY - 1], mem, (uintptr_t)mem);
	for (i = 0; i < MANY; i++)
		CHECK(!ibv_dereg_mr(mr[i]));
	mem_free(mem, LEN);
}

/* A program that closes all files, as daemons do, and begins again */
static void closes(void)
{
	uint8_t *mem = mem_alloc(LEN);

	CHECK(ibv_reg_mr(app.pd, mem, LEN, RW));
	CHECK(!close_range(3, ~0U, 0));
	open_all();
	unmap();
}

static void once(void)
{
	try("once", app.buffer, LEN, RW);
}

static void nothing(void)
{
}

/* What libmemreg-verbs has counted, if it is there */
static void print_counters(void)
{
	struct {
		uint64_t guarded, passed, stale;
	} stat;
	void (*query)(void *stat) = dlsym(RTLD_DEFAULT, "memreg_verbs_query");

	if (!query || !getenv("COUNTERS"))
		return;
	query(&stat);
	printf("guarded %ju passed %ju stale %ju\n", (uintmax_t)stat.guarded,
	       (uintmax_t)stat.passed, (uintmax_t)stat.stale);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "bytes", bytes },
	{ "unmap", unmap },
	{ "rereg", rereg },
	{ "forked", forked },
	{ "child_deregisters", child_deregisters },
	{ "threads", threads },
	{ "odd", odd },
	{ "many", many },
	{ "closes", closes },
	{ "once", once },
	{ "nothing", nothing },
};

int run(void)
{
	open_all();
	unmap();
	return 0;
}

int main(int argc, char **argv)
{
	size_t i;

	for (i = 0; argc > 1 && i < ARRAY_LEN(cases); i++) {
		if (strcmp(cases[i].name, argv[1]))
			continue;
		if (strcmp(argv[1], "nothing"))
			open_all();
		cases[i].run();
		print_counters();
		return 0;
	}
	return 2;
}
