// SPDX-License-Identifier: GPL-2.0-only
/*
 * Registration caches after a change of the mapping: the registrations that
 * they return, and the data that a peer reads by old keys, for caches in common
 * use and for memreg's. The applications are those of caches/, and this program
 * is the peer.
 *
 * For each kind of change: an application maps memory, fills it, gets a
 * registration and puts it. It changes the mapping, and fills the memory with
 * other data. The peer reads by the old key: does the read succeed? The
 * application gets a registration again. The peer reads by that key: does it
 * read the new data?
 *
 * For changes by exec or exit of the process, another process holds its RDMA
 * files open, as a parent that forked it might: keys live as long as these
 * files.
 *
 * time limit: 900
 * soak in parts: 4
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../caches/app.h"
#include "harness.h"
#include "mem.h"
#include "net.h"
#include "raw.h"
#include "stock.h"
#include "test.h"

static const char *const texts[] = {
	[CHANGE_LIBC] = "munmap + mmap of libc",
	[CHANGE_RAW] = "munmap + mmap, raw",
	[CHANGE_THREAD] = "the same by a thread",
	[CHANGE_AWAY] = "mremap away",
	[CHANGE_ONTO] = "mremap onto it",
	[CHANGE_FIXED] = "MAP_FIXED over it",
	[CHANGE_DONTNEED] = "MADV_DONTNEED, raw",
	[CHANGE_HOLE] = "hole punched",
	[CHANGE_TRUNCATE] = "truncated",
	[CHANGE_EXEC] = "exec",
	[CHANGE_EXIT] = "exit",
};

/* An answer that takes longer does not come. */
#define ANSWER_MS	60000
#define HELD_MAX	16

/**
 * struct column - An application, and its expected results
 * @name: Its head in the table
 * @text: What it is, in the summary
 * @program: In caches/
 * @mode: Its argument
 * @preload: Adapter, below build/user; or NULL
 * @env: Variables, up to NULL
 * @answer_ms: An answer that takes longer does not come
 * @is_ours: No registration may be stale
 * @keys_die: No old key may be served
 * @by_export: Only where the driver registers exports
 */
struct column {
	const char *name;
	const char *text;
	const char *program;
	const char *mode;
	const char *preload;
	const char *env[4];
	int answer_ms;
	bool is_ours;
	bool keys_die;
	bool by_export;
};

#define UCX_TLS		"UCX_TLS=rc_verbs,self"

static const struct column columns[] = {
	{ .name = "plain",
	  .text = "a cache over ibv_reg_mr() that looks at nothing",
	  .program = "plain", },
	{ .name = "memhooks",
	  .text = "libfabric, FI_MR_CACHE_MONITOR=memhooks",
	  .program = "fabric",
	  .env = { "FI_MR_CACHE_MONITOR=memhooks" }, },
	/* It can hang. */
	{ .name = "uffd",
	  .text = "libfabric, FI_MR_CACHE_MONITOR=userfaultfd",
	  .program = "fabric", .answer_ms = 5000,
	  .env = { "FI_MR_CACHE_MONITOR=userfaultfd" }, },
	{ .name = "UCX",
	  .text = "UCX",
	  .program = "ucx", .env = { UCX_TLS }, },
	{ .name = "MRs",
	  .text = "the cache of libmemreg, over memreg's MRs",
	  .program = "ours", .is_ours = true,
	  .keys_die = true, },
	{ .name = "verbs",
	  .text = "the cache of libmemreg, over ibv_reg_mr()",
	  .program = "ours", .mode = "verbs",
	  .is_ours = true, },
	{ .name = "exports",
	  .text = "the cache of libmemreg, over exports",
	  .program = "ours", .mode = "exports",
	  .is_ours = true, .keys_die = true, .by_export = true, },
	{ .name = "verbs+",
	  .text = "the same over ibv_reg_mr(), with libmemreg-verbs",
	  .program = "ours", .mode = "verbs",
	  .preload = "verbs/libmemreg-verbs.so.0",
	  .env = { "MEMREG_VERBS=strict" },
	  .is_ours = true, .keys_die = true, .by_export = true, },
	{ .name = "fabric+",
	  .text = "libfabric with libmemreg-fabric",
	  .program = "fabric", .is_ours = true,
	  .preload = "fabric/libmemreg-fabric.so.0", },
	{ .name = "UCX+",
	  .text = "UCX with libmemreg-ucx",
	  .program = "ucx", .is_ours = true,
	  .preload = "ucx/libmemreg-ucx.so.0",
	  .env = { UCX_TLS, "UCX_MEM_MMAP_HOOK_MODE=none" }, },
};

/**
 * struct app - An application that runs
 * @column: The application's column
 * @pid: Its process; 0 if there is none
 * @fd: Socket
 * @connected: The peer has a connection to it
 */
struct app {
	const struct column *column;
	pid_t pid;
	int fd;
	bool connected;
};

/**
 * struct seen - The observed effects of a change
 * @ret: 0, or -errno: -ETIMEDOUT if the application hung
 * @stale: The registration got after the change is not of the mapped memory
 * @served: The old key was served
 */
struct seen {
	int ret;
	bool stale;
	bool served;
};

FIXTURE(stale) {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *mem;
	struct qp_end end;
	struct stock stock;
	struct app app;
	uint8_t old[SMALL_LENGTH];
	uint8_t new[SMALL_LENGTH];
};

FIXTURE_SETUP(stale)
{
	ASSERT_EQ(0, file_write("/proc/sys/vm/nr_hugepages", "24"));
	self->context = qp_device(test_device());
	ASSERT_NE(NULL, self->context);
	self->pd = ibv_alloc_pd(self->context);
	ASSERT_NE(NULL, self->pd);
	self->mem = mem_alloc(SMALL_LENGTH);
	ASSERT_NE(NULL, self->mem);
	self->mr = ibv_reg_mr(self->pd, self->mem, SMALL_LENGTH,
			      IBV_ACCESS_LOCAL_WRITE);
	ASSERT_NE(NULL, self->mr);
	ASSERT_EQ(0, stock_open(&self->stock, SMALL_LENGTH));
	fill(self->old, SMALL_LENGTH, OLD);
	fill(self->new, SMALL_LENGTH, NEW);
}

static void app_kill(struct app *app)
{
	if (app->pid) {
		kill(app->pid, SIGKILL);
		waitpid(app->pid, NULL, 0);
		close(app->fd);
	}
	app->pid = 0;
}

FIXTURE_TEARDOWN(stale)
{
	app_kill(&self->app);
	qp_close(&self->end);
	stock_close(&self->stock);
	EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	mem_free(self->mem, SMALL_LENGTH);
	EXPECT_EQ(0, ibv_dealloc_pd(self->pd));
	EXPECT_EQ(0, ibv_close_device(self->context));
	EXPECT_EQ(0, file_write("/proc/sys/vm/nr_hugepages", "0"));
}

/*
 * Applications
 */

static const char *build(void)
{
	return getenv("BUILD") ?: "build";
}

static bool registers_exports(void)
{
	int fd = raw_open_bound();
	__u64 can = 0;

	raw_cap(fd, IB_MEMREG_CAP_EXPORT_REGISTER, &can);
	close(fd);
	return can;
}

static bool is_there_for(const struct column *column)
{
	char path[512];

	if (column->by_export && !registers_exports())
		return false;
	snprintf(path, sizeof(path), "%s/selftests/caches/%s", build(),
		 column->program);
	if (access(path, X_OK))
		return false;
	snprintf(path, sizeof(path), "%s/user/%s", build(),
		 column->preload ?: "");
	return !access(path, F_OK);
}

/* In the child */
static void app_exec(const struct column *column, int fd)
{
	char path[512], preload[512];
	const char *const *env;

	snprintf(path, sizeof(path), "%s/selftests/caches/%s", build(),
		 column->program);
	snprintf(preload, sizeof(preload), "%s/user/%s", build(),
		 column->preload ?: "");
	if (column->preload)
		setenv("LD_PRELOAD", preload, 1);
	for (env = column->env; *env; env++)
		putenv((char *)(uintptr_t)*env);
	if (dup2(fd, APP_FD) == APP_FD)
		execl(path, column->program, column->mode, NULL);
	_exit(127);
}

static int await_answer(struct app *app, struct app_answer *answer, int ms)
{
	struct pollfd pfd = { .fd = app->fd, .events = POLLIN };

	if (poll(&pfd, 1, ms) != 1)
		return -ETIMEDOUT;
	if (recv(app->fd, answer, sizeof(*answer), 0) != sizeof(*answer))
		return -ECONNRESET;
	return answer->ret;
}

static int take_answer(struct app *app, struct app_answer *answer)
{
	return await_answer(app, answer, app->column->answer_ms ?: ANSWER_MS);
}

static int app_start(struct app *app, const struct column *column)
{
	struct app_answer answer;
	int fds[2];

	*app = (struct app){ .column = column };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return -errno;
	app->pid = fork();
	if (!app->pid)
		app_exec(column, fds[1]);
	close(fds[1]);
	app->fd = fds[0];
	return take_answer(app, &answer);
}

static int app_tell(struct app *app, const struct app_ask *ask)
{
	return send(app->fd, ask, sizeof(*ask), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int app_ask(struct app *app, const struct app_ask *ask,
		   struct app_answer *answer)
{
	return app_tell(app, ask) ?: take_answer(app, answer);
}

static int app_do(struct app *app, enum app_step step, enum change change,
		  bool huge, struct app_answer *answer)
{
	const struct app_ask ask = {
		.step = step,
		.change = change,
		.huge = huge,
	};
	struct app_answer none;

	return app_ask(app, &ask, answer ?: &none);
}

/* End the application. Returns whether it exited by itself, with status 0. */
static int app_end(struct app *app)
{
	int status, ret = app_do(app, STEP_END, 0, false, NULL);

	if (!ret && waitpid(app->pid, &status, 0) == app->pid) {
		close(app->fd);
		app->pid = 0;
		return status ? -EIO : 0;
	}
	app_kill(app);
	return ret ?: -ECHILD;
}

/*
 * The peer
 */

static int connect_stock(FIXTURE_DATA(stale) *self, __be16 port)
{
	const struct app_ask accept = { .step = STEP_ACCEPT };
	struct app_answer answer;
	int ret;

	if (self->stock.id)
		stock_disconnect(&self->stock);
	ret = stock_connect(&self->stock, OWNER_IP4, port);
	ret = ret ?: app_tell(&self->app, &accept);
	ret = ret ?: stock_established(&self->stock);
	return ret ?: take_answer(&self->app, &answer);
}

static int peer_connect(FIXTURE_DATA(stale) *self)
{
	struct app_ask ask = { .step = STEP_QP };
	struct app_answer answer;
	int ret;

	qp_close(&self->end);
	ret = qp_open(&self->end, self->pd);
	if (ret)
		return ret;
	ask.addr = self->end.addr;
	ret = app_ask(&self->app, &ask, &answer);
	if (ret)
		return ret;
	ret = answer.port ? connect_stock(self, answer.port) :
			    qp_connect(&self->end, &answer.addr);
	self->app.connected = !ret;
	return ret;
}

/* Read by a key: 0 if the data is @expected, EEXIST if it is not, or -errno */
static int peer_read(FIXTURE_DATA(stale) *self, const struct app_answer *key,
		     const uint8_t *expected)
{
	struct stock *s = &self->stock;
	const uint8_t *found;
	int ret;

	if (!self->app.connected) {
		ret = peer_connect(self);
		if (ret)
			return ret;
	}
	/*
	 * The key is for the application's memory now, or for the earlier one:
	 * the application has reported which.
	 */
	found = s->id ? s->mem : self->mem;
	ret = s->id ? stock_read(s, 0, SMALL_LENGTH, key->iova, key->rkey) :
		      qp_do(&self->end, IBV_WR_RDMA_READ, self->mr,
			    SMALL_LENGTH, key->iova, key->rkey);
	if (ret) {
		self->app.connected = false;
		return -EREMOTEIO;
	}
	return memcmp(found, expected, SMALL_LENGTH) ? EEXIST : 0;
}

static void peer_disconnect(FIXTURE_DATA(stale) *self)
{
	if (self->stock.id)
		stock_disconnect(&self->stock);
	qp_close(&self->end);
	self->app.connected = false;
}

/*
 * A change
 */

static int see_same_process(FIXTURE_DATA(stale) *self, enum change change,
			    bool huge, struct seen *seen)
{
	struct app_answer old, new;
	int ret;

	ret = app_do(&self->app, STEP_MAP, change, huge, &old);
	ret = ret ?: peer_read(self, &old, self->old);
	ret = ret ?: app_do(&self->app, STEP_CHANGE, change, huge, NULL);
	if (ret)
		return ret;
	seen->served = peer_read(self, &old, self->old) >= 0;
	ret = app_do(&self->app, STEP_GET, change, huge, &new);
	if (ret)
		return ret;
	seen->stale = peer_read(self, &new, self->new) != 0;
	ret = app_do(&self->app, STEP_PUT, change, huge, NULL);
	return ret ?: app_do(&self->app, STEP_UNMAP, change, huge, NULL);
}

static bool is_rdma_file(pid_t pid, const char *fd)
{
	char path[320], link[256];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, fd);
	n = readlink(path, link, sizeof(link) - 1);
	if (n <= 0)
		return false;
	link[n] = 0;
	return !strncmp(link, "/dev/infiniband/", 16);
}

/*
 * Keep copies of the descriptors of a process's RDMA files, so that they stay
 * open when it exits. Returns their number, or -errno.
 */
static int hold_files(pid_t pid, int held[])
{
	int pidfd = syscall(SYS_pidfd_open, pid, 0), n = 0;
	struct dirent *entry;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (pidfd < 0 || !dir)
		return -errno;
	while ((entry = readdir(dir)) && n < HELD_MAX)
		if (is_rdma_file(pid, entry->d_name))
			held[n++] = syscall(SYS_pidfd_getfd, pidfd,
					    atoi(entry->d_name), 0);
	closedir(dir);
	close(pidfd);
	return n;
}

/* The application execs or exits. Its memory is gone when its socket closes. */
static int end_process(struct app *app, enum change change)
{
	const struct app_ask ask = { .step = STEP_CHANGE, .change = change };
	struct app_answer answer;
	int ret = app_tell(app, &ask);

	ret = ret ?: take_answer(app, &answer);
	return ret == -ECONNRESET ? 0 : ret ?: -EEXIST;
}

static int see_process_end(FIXTURE_DATA(stale) *self, enum change change,
			   bool huge, struct seen *seen)
{
	struct app *app = &self->app;
	struct app_answer old;
	int held[HELD_MAX], n, ret;

	ret = app_do(app, STEP_MAP, change, huge, &old);
	ret = ret ?: peer_read(self, &old, self->old);
	if (ret)
		return ret;
	n = hold_files(app->pid, held);
	if (n <= 0)
		return n ?: -ENOENT;
	ret = end_process(app, change);
	if (!ret)
		seen->served = peer_read(self, &old, self->old) >= 0;
	peer_disconnect(self);
	while (n--)
		close(held[n]);
	app_kill(app);
	return ret;
}

static bool ends_process(enum change change)
{
	return change == CHANGE_EXEC || change == CHANGE_EXIT;
}

static struct seen see(FIXTURE_DATA(stale) *self, const struct column *column,
		       enum change change, bool huge)
{
	struct seen seen = {};

	if (!self->app.pid)
		seen.ret = app_start(&self->app, column);
	if (!seen.ret)
		seen.ret = ends_process(change) ?
			   see_process_end(self, change, huge, &seen) :
			   see_same_process(self, change, huge, &seen);
	/* Start the next change with another application after any failure. */
	if (seen.ret < 0 || seen.ret == EEXIST) {
		app_kill(&self->app);
		peer_disconnect(self);
	}
	return seen;
}

/*
 * The table
 */

#define ROWS	(2 * CHANGES_MAX)
#define COLUMNS	ARRAY_LEN(columns)

static struct seen table[COLUMNS][ROWS];
static bool is_there[COLUMNS];

static const char *cell(const struct seen *seen, enum change change)
{
	if (seen->ret)
		return seen->ret == -ETIMEDOUT ? "hung" : "failed";
	if (ends_process(change))
		return seen->served ? "key" : "-";
	if (seen->stale)
		return seen->served ? "STALE key" : "STALE";
	return seen->served ? "key" : "-";
}

static void print_table(void)
{
	unsigned int row, c;

	printf("# STALE: stale after getting it again. key: the old key was served.\n");
	printf("# %-27s", "");
	for (c = 0; c < COLUMNS; c++)
		printf(" %-9s", columns[c].name);
	for (row = 0; row < ROWS; row++) {
		printf("\n# %-21s %-5s", texts[row / 2],
		       row % 2 ? "huge" : "");
		for (c = 0; c < COLUMNS; c++)
			printf(" %-9s", is_there[c] ?
			       cell(&table[c][row], row / 2) : "");
	}
	printf("\n");
	fflush(stdout);
}

/*
 * Number of rows of a column that were stale, or with @stale false whose old
 * key was served
 */
static unsigned int count(unsigned int c, bool stale)
{
	unsigned int row, n = 0;

	for (row = 0; row < ROWS; row++)
		n += !table[c][row].ret && (stale ? table[c][row].stale :
						    table[c][row].served);
	return n;
}

static unsigned int count_hung(unsigned int c)
{
	unsigned int row, n = 0;

	for (row = 0; row < ROWS; row++)
		n += table[c][row].ret == -ETIMEDOUT;
	return n;
}

/* For people: see `make stale`. */
static void print_summary(void)
{
	unsigned int c;

	printf("# Summary: of %u changes of a mapping, so many left\n", ROWS);
	printf("# %-52s %10s %12s %5s\n", "", "wrong data",
	       "old key good", "hung");
	for (c = 0; c < COLUMNS; c++)
		if (is_there[c])
			printf("# %-52s %10u %12u %5u\n", columns[c].text,
			       count(c, true), count(c, false), count_hung(c));
	printf("# End of the summary\n");
	fflush(stdout);
}

static unsigned int count_failed(unsigned int c)
{
	unsigned int row, n = 0;

	for (row = 0; row < ROWS; row++) {
		n += table[c][row].ret != 0;
		if (table[c][row].ret)
			printf("# %s: %s%s: %s\n", columns[c].name,
			       texts[row / 2], row % 2 ? ", huge" : "",
			       strerror(abs(table[c][row].ret)));
	}
	return n;
}

TEST_F_TIMEOUT(stale, I2_caches_beside_those_in_use, 1800)
{
	unsigned int row, c;

	for (c = 0; c < COLUMNS; c++) {
		is_there[c] = is_there_for(&columns[c]);
		for (row = 0; row < ROWS && is_there[c]; row++)
			table[c][row] = see(self, &columns[c], row / 2,
					    row % 2);
		if (self->app.pid)
			EXPECT_EQ(0, app_end(&self->app));
		peer_disconnect(self);
	}
	print_table();
	print_summary();
	for (c = 0; c < COLUMNS; c++) {
		if (!is_there[c] || !columns[c].is_ours)
			continue;
		EXPECT_EQ(0, count_failed(c));
		EXPECT_EQ(0, count(c, true));
		if (columns[c].keys_die)
			EXPECT_EQ(0, count(c, false));
	}
	/*
	 * The cache without invalidation has to fail, or the test proves
	 * nothing.
	 */
	EXPECT_EQ(0, count_failed(0));
	EXPECT_LT(0, count(0, true));
	EXPECT_LT(0, count(0, false));
}

/*
 * Run an application from its start to its exit, which must come within a
 * limit.
 */
static int run_once(FIXTURE_DATA(stale) *self, const struct column *column,
		    enum change change)
{
	struct seen seen = see(self, column, change, false);
	int ret = seen.ret;

	if (self->app.pid)
		ret = ret ?: app_end(&self->app);
	peer_disconnect(self);
	return ret ?: seen.stale ? -ESTALE : 0;
}

TEST_F_TIMEOUT(stale, adapters_never_hang, 36000)
{
	unsigned int i, c, runs = times(test_rounds(6), 1000);

	for (c = 0; c < COLUMNS; c++) {
		if (!columns[c].preload || !is_there_for(&columns[c]))
			continue;
		for (i = 0; i < runs; i++) {
			ASSERT_EQ(0, run_once(self, &columns[c],
					      i % CHANGES_MAX));
			if (i % 50 == 49 || i == runs - 1)
				ksft_print_msg("%s: %u runs\n",
					       columns[c].name, i + 1);
		}
	}
}

/* Threads, and ranges that overlap: see caches/rounds.c. */
TEST_F_TIMEOUT(stale, I2_random_rounds_of_adapters, 36000)
{
	const struct app_ask ask = {
		.step = STEP_ROUNDS,
		.seed = test_seed(),
		.rounds = times(test_rounds(400), 20000),
	};
	struct app_answer answer;
	unsigned int c;

	for (c = 0; c < COLUMNS; c++) {
		if (!columns[c].preload || !is_there_for(&columns[c]))
			continue;
		ASSERT_EQ(0, app_start(&self->app, &columns[c]));
		ASSERT_EQ(0, app_tell(&self->app, &ask));
		EXPECT_EQ(0, await_answer(&self->app, &answer, SOAK_S * 1000));
		ASSERT_EQ(0, app_end(&self->app));
	}
}

/* The same with random changes, which nobody reports to the peer */
TEST_F(stale, random_rounds_find_what_is_stale)
{
	const struct app_ask ask = { .step = STEP_ROUNDS, .rounds = 400, };
	struct app_answer answer;

	ASSERT_EQ(0, app_start(&self->app, &columns[0]));
	EXPECT_EQ(-ESTALE, app_ask(&self->app, &ask, &answer));
	ASSERT_EQ(0, app_end(&self->app));
}

TEST_HARNESS_MAIN
