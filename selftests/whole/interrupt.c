// SPDX-License-Identifier: GPL-2.0-only
/*
 * Signals during long calls: batches that wait for a registration queue, MRs of
 * many segments, LIST. A fatal signal ends the call, which has been done
 * completely or not at all (I8), even if another process has the file open. Any
 * other signal has no effect.
 *
 * time limit: 200
 */
#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define THREADS		16
#define BATCHERS	12
#define BATCH		IB_MEMREG_BATCH_MAX
#define LENGTH		(16 * PAGE)
#define LARGE		(10UL << 20)
#define ACCESS		(LOCAL_WRITE | MW_BIND)
#define IN_LINE_S		150

/* Progress of the test, in memory that both processes share. */
struct progress {
	atomic_uint rounds[THREADS];
	atomic_int failed;
};

FIXTURE(interrupt) {
	int fd;
	__u32 domain;
	char *memory;
	__u32 mr;
	__u32 windows[BATCHERS][BATCH];
	struct progress *progress;
};

FIXTURE_SETUP(interrupt)
{
	unsigned int i;

	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	self->memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->memory);
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, LENGTH,
				  ACCESS, &self->mr));
	for (i = 0; i < BATCHERS; i++)
		ASSERT_EQ(0, raw_windows(self->fd, self->domain, LENGTH,
					 self->windows[i], BATCH));
	self->progress = mmap(NULL, sizeof(*self->progress),
			      PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->progress);
}

FIXTURE_TEARDOWN(interrupt)
{
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
	EXPECT_EQ(0, state_count(IB_MEMREG_OBJECT_FILE));
	munmap(self->memory, LENGTH);
	munmap(self->progress, sizeof(*self->progress));
}

/*
 * Work that takes long
 */

static int bind_some(FIXTURE_DATA(interrupt) *self, const __u32 *windows,
		     unsigned int count)
{
	struct ib_memreg_bind binds[BATCH] = {};
	unsigned int i;

	for (i = 0; i < count; i++) {
		binds[i].window_id = windows[i];
		binds[i].mr_id = self->mr;
		binds[i].length = LENGTH;
		binds[i].access = REMOTE_READ | REMOTE_WRITE;
	}
	return raw_bind(self->fd, self->domain, binds, count);
}

static int bind_batch(FIXTURE_DATA(interrupt) *self, const __u32 *windows)
{
	return bind_some(self, windows, BATCH);
}

static int work_batch(FIXTURE_DATA(interrupt) *self, unsigned int thread)
{
	return bind_batch(self, self->windows[thread]) ?:
	       raw_revoke_relaxed(self->fd, self->domain,
				  self->windows[thread], BATCH);
}

/* Registering pins it, and makes many keys. */
static int work_large(FIXTURE_DATA(interrupt) *self, unsigned int thread)
{
	static __thread char *large;
	__u32 mr;

	(void)thread;
	if (!large)
		large = mem_scattered(LARGE);
	if (!large)
		return -ENOMEM;
	return raw_register(self->fd, self->domain, large, LARGE,
			    LOCAL_WRITE | REMOTE_WRITE, &mr) ?:
	       raw_destroy(self->fd, mr);
}

static int work_list(FIXTURE_DATA(interrupt) *self, unsigned int thread)
{
	struct state state;
	int ret = state_get(&state);

	(void)self;
	(void)thread;
	state_free(&state);
	return ret;
}

struct worker {
	FIXTURE_DATA(interrupt) *self;
	unsigned int thread;
};

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct progress *progress = worker->self->progress;
	int ret = 0;

	while (!ret && !atomic_load(&progress->failed)) {
		if (worker->thread < BATCHERS)
			ret = work_batch(worker->self, worker->thread);
		else if (worker->thread < THREADS - 1)
			ret = work_large(worker->self, worker->thread);
		else
			ret = work_list(worker->self, worker->thread);
		atomic_fetch_add(&progress->rounds[worker->thread], 1);
	}
	atomic_store(&progress->failed, ret);
	return NULL;
}

/* Run all threads until the process is killed or a call fails. */
static void work_in_threads(FIXTURE_DATA(interrupt) *self)
{
	struct worker workers[THREADS];
	pthread_t threads[THREADS];
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker) { self, i };
		if (pthread_create(&threads[i], NULL, work, &workers[i]))
			abort();
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void await_rounds(struct __test_metadata *_metadata,
			 FIXTURE_DATA(interrupt) *self, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		while (atomic_load(&self->progress->rounds[i]) < n) {
			ASSERT_EQ(0, atomic_load(&self->progress->failed));
			usleep(100);
		}
	}
}

/*
 * Signals that end the process
 */

FIXTURE_VARIANT(interrupt)
{
	int signal;
};

FIXTURE_VARIANT_ADD(interrupt, SIGKILL)
{
	.signal = SIGKILL,
};

FIXTURE_VARIANT_ADD(interrupt, SIGINT)
{
	.signal = SIGINT,
};

static bool is_bound(const struct state *state, __u32 window)
{
	__u32 i;

	for (i = 0; i < state->count; i++)
		if (state->objects[i].type == IB_MEMREG_OBJECT_WINDOW &&
		    state->objects[i].id == window)
			return state->objects[i].u.window.bound;
	return false;
}

/* Each batch is bound as a whole, or not at all. */
static unsigned int check_batches(struct __test_metadata *_metadata,
				  FIXTURE_DATA(interrupt) *self,
				  const struct state *now)
{
	unsigned int i, w, bound = 0;

	for (i = 0; i < BATCHERS; i++) {
		bool first = is_bound(now, self->windows[i][0]);

		for (w = 1; w < BATCH; w++)
			ASSERT_EQ(first,
				  is_bound(now, self->windows[i][w])) {
				TH_LOG("window %u of batch %u", w, i);
			}
		bound += first;
	}
	return bound;
}

/*
 * Undo what the killed process has completed: the file is open here, so that
 * its objects stay.
 */
static void clear_away(struct __test_metadata *_metadata,
		       FIXTURE_DATA(interrupt) *self, const struct state *now)
{
	unsigned int i;

	for (i = 0; i < BATCHERS; i++)
		ASSERT_EQ(0, raw_revoke(self->fd, self->domain,
					self->windows[i], BATCH));
	for (i = 0; i < now->count; i++)
		if (now->objects[i].type == IB_MEMREG_OBJECT_MR &&
		    now->objects[i].id != self->mr)
			ASSERT_EQ(0, raw_destroy(self->fd,
						 now->objects[i].id));
}

/* Returns how long it took to end, in ms. */
static long kill_at_work(struct __test_metadata *_metadata,
			 FIXTURE_DATA(interrupt) *self, int signal,
			 unsigned int rounds)
{
	int status;
	pid_t pid;
	long ms;

	memset(self->progress, 0, sizeof(*self->progress));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		work_in_threads(self);
		_exit(1);
	}
	await_rounds(_metadata, self, rounds);
	ms = now_ms();
	ASSERT_EQ(0, kill(pid, signal));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ms = now_ms() - ms;
	ASSERT_TRUE(WIFSIGNALED(status));
	ASSERT_EQ(signal, WTERMSIG(status));
	return ms;
}

TEST_F_TIMEOUT(interrupt, I8_killed_in_a_batch_it_is_done_or_not, SOAK_S)
{
	unsigned int i, bound = 0, rounds = test_rounds(4);
	struct state before, now;
	long ms, longest = 0;

	ASSERT_EQ(0, state_get(&before));
	for (i = 0; i < rounds; i++) {
		ms = kill_at_work(_metadata, self, variant->signal, 1 + i % 3);
		if (ms > longest)
			longest = ms;
		ASSERT_EQ(0, state_get(&now));
		bound += check_batches(_metadata, self, &now);
		clear_away(_metadata, self, &now);
		state_free(&now);
		ASSERT_TRUE(state_same(&before));
	}
	state_free(&before);
	TH_LOG("%u times killed: it took up to %ld ms; %u of %u batches were bound",
	       rounds, longest, bound, rounds * BATCHERS);
	/* All of it goes on to work. */
	for (i = 0; i < BATCHERS; i++)
		ASSERT_EQ(0, work_batch(self, i));
}

/*
 * Keys are made by 32 at a time. As many of these as there is room for on a
 * registration queue lose their completions, so that it takes no more until it
 * is rebuilt after 10 seconds. Other batches wait.
 */

#define PIECE		32
#define LOSERS		(BATCH / PIECE)

/**
 * struct loser - A call that binds some windows of the first batch
 * @self: The fixture
 * @windows: The windows
 * @thread: Makes the call
 * @ret: What that returned
 */
struct loser {
	FIXTURE_DATA(interrupt) *self;
	const __u32 *windows;
	pthread_t thread;
	int ret;
};

static void *bind_and_lose(void *arg)
{
	struct loser *loser = arg;

	loser->ret = bind_some(loser->self, loser->windows, PIECE);
	return NULL;
}

static void begin_to_lose(struct __test_metadata *_metadata,
			  FIXTURE_DATA(interrupt) *self, struct loser *losers)
{
	unsigned int i;

	fault_order("completion", 0, LOSERS);
	for (i = 0; i < LOSERS; i++) {
		losers[i] = (struct loser) {
			.self = self, .windows = self->windows[0] + i * PIECE,
		};
		ASSERT_EQ(0, pthread_create(&losers[i].thread, NULL,
					    bind_and_lose, &losers[i]));
	}
	while (fault_pending("completion"))
		usleep(1000);
}

/*
 * Cancel the fault, and expect that the calls which lost their completions
 * succeed.
 */
static void end_to_lose(struct __test_metadata *_metadata,
			struct loser *losers)
{
	unsigned int i;

	fault_cancel("completion");
	for (i = 0; i < LOSERS; i++) {
		ASSERT_EQ(0, pthread_join(losers[i].thread, NULL));
		ASSERT_EQ(0, losers[i].ret);
	}
}

static void *stand_in_line(void *arg)
{
	struct worker *worker = arg;
	struct progress *progress = worker->self->progress;

	atomic_fetch_add(&progress->rounds[worker->thread], 1);
	bind_batch(worker->self, worker->self->windows[worker->thread]);
	return NULL;
}

/*
 * Bind all batches but the first, whose completions are lost, in threads that
 * wait until the process is killed.
 */
static void line_up(FIXTURE_DATA(interrupt) *self)
{
	struct worker workers[BATCHERS];
	pthread_t threads[BATCHERS];
	unsigned int i;

	for (i = 1; i < BATCHERS; i++) {
		workers[i] = (struct worker) { self, i };
		if (pthread_create(&threads[i], NULL, stand_in_line,
				   &workers[i]))
			abort();
	}
	for (i = 1; i < BATCHERS; i++)
		pthread_join(threads[i], NULL);
}

/* Is no task of a process about to do anything? */
static bool all_sleep(pid_t pid)
{
	char path[64], state;
	bool sleep = true;
	glob_t tasks;
	size_t i;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/*/stat", pid);
	if (glob(path, 0, NULL, &tasks))
		return false;
	for (i = 0; i < tasks.gl_pathc; i++) {
		f = fopen(tasks.gl_pathv[i], "r");
		sleep &= f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1 &&
			 strchr("SD", state);
		if (f)
			fclose(f);
	}
	globfree(&tasks);
	return sleep;
}

/* Returns how long it took to end, in ms. */
static long kill_in_line(struct __test_metadata *_metadata,
			 FIXTURE_DATA(interrupt) *self, int signal)
{
	unsigned int i;
	int status;
	pid_t pid;
	long ms;

	memset(self->progress, 0, sizeof(*self->progress));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		line_up(self);
		_exit(1);
	}
	for (i = 1; i < BATCHERS; i++)
		while (!atomic_load(&self->progress->rounds[i]))
			usleep(1000);
	/* Wait until all threads of the child sleep in their calls. */
	for (i = 0; i < 5000 && !all_sleep(pid); i++)
		usleep(1000);
	ms = now_ms();
	ASSERT_EQ(0, kill(pid, signal));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	return now_ms() - ms;
}

/*
 * Expect that the first call has bound its windows, and that those waiting
 * behind it have not.
 */
static void only_first_is_bound(struct __test_metadata *_metadata,
				FIXTURE_DATA(interrupt) *self)
{
	struct state now;
	unsigned int i;

	ASSERT_EQ(0, state_get(&now));
	EXPECT_EQ(1, check_batches(_metadata, self, &now));
	for (i = 1; i < BATCHERS; i++)
		EXPECT_FALSE(is_bound(&now, self->windows[i][0]));
	state_free(&now);
}

/*
 * If the process is dead before the module gives up the first call, the signal
 * has ended the calls that waited. A slow machine may take longer, so there are
 * several tries.
 */
TEST_F_TIMEOUT(interrupt, I8_killed_in_line_it_does_not_wait, IN_LINE_S)
{
	struct state before;
	struct loser losers[LOSERS];
	unsigned int i;
	bool met = false;
	long ms, rebuilds;

	if (!fault_injection())
		SKIP(return, "this kernel injects no faults");
	ASSERT_EQ(0, state_get(&before));
	for (i = 0; i < 5 && !met; i++) {
		rebuilds = state_rebuilds(self->domain);
		ASSERT_LE(0, rebuilds);
		begin_to_lose(_metadata, self, losers);
		ms = kill_in_line(_metadata, self, variant->signal);
		/* Until the queue is rebuilt, no waiting call proceeds. */
		met = state_rebuilds(self->domain) == rebuilds;
		end_to_lose(_metadata, losers);
		if (met)
			only_first_is_bound(_metadata, self);
		clear_away(_metadata, self, &before);
		ASSERT_TRUE(state_same(&before));
	}
	state_free(&before);
	EXPECT_TRUE(met);
	TH_LOG("it took %ld ms", ms);
	for (i = 0; i < BATCHERS; i++)
		ASSERT_EQ(0, work_batch(self, i));
}

/*
 * Signals that don't
 */

static atomic_uint alarms;

static void count_alarm(int signal)
{
	(void)signal;
	atomic_fetch_add(&alarms, 1);
}

TEST_F_TIMEOUT(interrupt, other_signals_change_nothing, SOAK_S)
{
	struct sigaction act = { .sa_handler = count_alarm };
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } };
	struct itimerval never = {};
	unsigned int i, rounds = test_rounds(8);

	(void)variant;
	ASSERT_EQ(0, sigaction(SIGALRM, &act, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, NULL));
	for (i = 0; i < rounds || !atomic_load(&alarms); i++) {
		ASSERT_EQ(0, work_batch(self, i % BATCHERS));
		ASSERT_EQ(0, work_list(self, 0));
	}
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &never, NULL));
	TH_LOG("%u signals in %u rounds", atomic_load(&alarms), i);
}

TEST_HARNESS_MAIN
