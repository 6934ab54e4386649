// SPDX-License-Identifier: GPL-2.0-only
/*
 * I7: the owner is killed with SIGKILL at random points, while two peers read
 * and write and three of its threads make calls. Nothing may be left of it.
 *
 * A second process shares the owner's address space, and lives on: as the
 * address space stays, only the close of the file can release the pages.
 *
 * The seed is printed; MEMREG_SEED repeats it.
 *
 * time limit: 240
 * soak in parts: 2
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include "harness.h"
#include "memreg.h"
#include "net.h"
#include "peer.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define PORT		7471
#define ARENA_LEN	(64 * PAGE)
#define SERVED		(16 * PAGE)	/* the window that peers use */
#define WINDOWS		32

/* Memory that test and owner share */
struct shared {
	pid_t watcher;
};

FIXTURE(kill)
{
	struct shared *shared;
	uint8_t *mem;
	struct peer peers[2];
	pid_t owner;
	unsigned int seed;
};

/*
 * The owner
 */

static struct memreg *handle;
static uint32_t domain;
static uint8_t *memory;
static struct memreg_grant served;

static void must(int ret)
{
	if (!ret)
		return;
	fprintf(stderr, "# owner: %s\n", memreg_reason());
	_exit(1);
}

static void serve(void)
{
	struct ib_memreg_bind bind = { .length = SERVED, .access = REMOTE_RW };
	struct memreg_mr mr;

	must(memreg_mr_register(handle, domain, memory, SERVED, FOR_WINDOWS, 0,
				&mr));
	must(memreg_window_alloc(handle, domain, IB_MEMREG_WINDOW_TYPE1,
				 SERVED, &bind.window_id, 1));
	bind.mr_id = mr.id;
	must(memreg_window_bind(handle, domain, &bind));
	served.iova = bind.out_iova;
	served.length = bind.length;
	served.rkey = bind.out_rkey;
	served.access = bind.access;
}

/* Registers and deregisters, one key and several */
static void *churn_mrs(void *arg)
{
	unsigned int i;

	for (i = 1;; i++) {
		size_t len = 1 + i * 7919 % (ARENA_LEN - SERVED);
		struct memreg_mr mr;

		must(memreg_mr_register(handle, domain, memory + SERVED, len,
					FOR_WINDOWS | (i % 2 ? REMOTE_RW : 0),
					0, &mr));
		must(memreg_mr_deregister(handle, mr.id));
	}
	return arg;
}

/* Binds and revokes in batches */
static void *churn_windows(void *arg)
{
	struct ib_memreg_bind binds[WINDOWS] = { 0 };
	uint32_t windows[WINDOWS];
	struct memreg_mr mr;
	unsigned int i;

	must(memreg_mr_register(handle, domain, memory + SERVED,
				ARENA_LEN - SERVED, FOR_WINDOWS, 0, &mr));
	must(memreg_window_alloc(handle, domain, IB_MEMREG_WINDOW_TYPE1, PAGE,
				 windows, WINDOWS));
	for (i = 0; i < WINDOWS; i++) {
		binds[i].window_id = windows[i];
		binds[i].mr_id = mr.id;
		binds[i].offset = i * 1000;
		binds[i].length = PAGE;
		binds[i].access = REMOTE_RW;
	}
	for (i = 0;; i++) {
		must(memreg_window_bind_batch(handle, domain, binds, WINDOWS,
					      NULL));
		must((i % 2 ? memreg_window_revoke_batch :
			      memreg_window_revoke_relaxed)
			(handle, domain, windows, WINDOWS, NULL));
	}
	return arg;
}

static void accept_peers(void)
{
	uint8_t data[MEMREG_GRANT_SIZE];
	struct ib_memreg_event event;

	memreg_grant_encode(&served, data);
	for (;;) {
		must(memreg_get_event(handle, &event, -1));
		if (event.type == IB_MEMREG_EVENT_CONNECT_REQUEST)
			memreg_accept(handle, event.endpoint_id, domain, data,
				      sizeof(data));
		else if (event.type == IB_MEMREG_EVENT_DISCONNECTED)
			must(memreg_destroy(handle, event.endpoint_id));
	}
}

static int watch(void *arg)
{
	for (;;)
		pause();
	return !!arg;
}

/*
 * The watcher inherits the descriptors that are open now, and none that the
 * owner opens later. The kernel stores the watcher's pid, as the owner may be
 * killed before it does anything else.
 */
static void start_watcher(struct shared *shared)
{
	static char stack[16384] __attribute__((aligned(16)));

	clone(watch, stack + sizeof(stack),
	      CLONE_VM | CLONE_PARENT_SETTID | SIGCHLD, NULL, &shared->watcher);
}

static void own(struct shared *shared)
{
	struct sockaddr_storage ss;
	uint32_t listener;
	pthread_t thread;

	start_watcher(shared);
	must(memreg_open(OWNER_DEVICE, &handle));
	must(memreg_domain_create(handle, 0, &domain));
	serve();
	must(memreg_listen(handle, ip_address(OWNER_IP4, PORT, &ss), 16,
			   &listener));
	pthread_create(&thread, NULL, churn_mrs, NULL);
	pthread_create(&thread, NULL, churn_windows, NULL);
	accept_peers();
}

/*
 * The test
 */

FIXTURE_SETUP(kill)
{
	const char *seed = getenv("MEMREG_SEED");

	self->seed = seed ? strtoul(seed, NULL, 0) : (unsigned int)now_ms();
	TH_LOG("MEMREG_SEED=%u", self->seed);
	srand(self->seed);
	/* When the owner is dead this process becomes the watcher's parent. */
	ASSERT_EQ(0, prctl(PR_SET_CHILD_SUBREAPER, 1));
	self->shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->shared);
	self->mem = mmap(NULL, ARENA_LEN, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->mem);
	memory = self->mem;
	/*
	 * The peers start before there is a listener, so their first attempt
	 * fails.
	 */
	peer_start(_metadata, &self->peers[0], OWNER_IP4, PORT, "-r 6 -d 4");
	peer_start(_metadata, &self->peers[1], OWNER_IP4, PORT, "-r 6 -d 4");
	peer_answer(_metadata, &self->peers[0]);
	peer_answer(_metadata, &self->peers[1]);
}

FIXTURE_TEARDOWN(kill)
{
	peer_stop(&self->peers[0], 0);
	peer_stop(&self->peers[1], 0);
}

static void start_owner(struct __test_metadata *_metadata,
			FIXTURE_DATA(kill) *self)
{
	self->shared->watcher = 0;
	self->owner = fork();
	ASSERT_LE(0, self->owner);
	if (!self->owner) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		own(self->shared);
		_exit(1);
	}
}

/* Connect as soon as it listens */
static void use(struct __test_metadata *_metadata, FIXTURE_DATA(kill) *self,
		struct peer *p, const char *work)
{
	int64_t end = now_ms() + LIMIT_MS;

	do {
		ASSERT_GT(end, now_ms());
		ASSERT_EQ(0, waitpid(self->owner, NULL, WNOHANG));
		peer_ask(_metadata, p, "conn");
	} while (strncmp(p->line, "connected ", 10));
	peer_ask(_metadata, p, "start %s", work);
	ASSERT_PEER("success", p);
}

static void kill_owner(struct __test_metadata *_metadata,
		       FIXTURE_DATA(kill) *self)
{
	int status;

	usleep(rand() % 50000);
	ASSERT_EQ(0, kill(self->owner, SIGKILL));
	ASSERT_EQ(self->owner, waitpid(self->owner, &status, 0));
	ASSERT_TRUE(WIFSIGNALED(status));
}

static void locked_out(struct __test_metadata *_metadata, struct peer *p)
{
	peer_ask(_metadata, p, "join %d", LIMIT_MS / 2);
	ASSERT_STRNE("success", peer_value(p, "status"));
	ASSERT_STRNE("timeout", peer_value(p, "status"));
}

/*
 * Expect that nothing is left in the address space, which the watcher still
 * has, nor in the module.
 */
static void nothing_is_left(struct __test_metadata *_metadata,
			    FIXTURE_DATA(kill) *self)
{
	pid_t watcher = self->shared->watcher;
	int type;

	for (type = IB_MEMREG_OBJECT_FILE; type <= IB_MEMREG_OBJECT_ENDPOINT;
	     type++)
		ASSERT_EQ(0, state_count(type));
	if (!watcher)
		return;
	ASSERT_EQ(0, vm_pin(watcher));
	ASSERT_EQ(0, kill(watcher, SIGKILL));
	ASSERT_EQ(watcher, waitpid(watcher, NULL, 0));
}

static void kill_once(struct __test_metadata *_metadata,
		      FIXTURE_DATA(kill) *self, bool early)
{
	start_owner(_metadata, self);
	if (!early) {
		use(_metadata, self, &self->peers[0], "write 0 30000 0x55");
		use(_metadata, self, &self->peers[1], "read 100 30000");
	}
	kill_owner(_metadata, self);
	if (!early) {
		locked_out(_metadata, &self->peers[0]);
		locked_out(_metadata, &self->peers[1]);
	}
	nothing_is_left(_metadata, self);
}

static long meminfo_kb(const char *what)
{
	char line[128], name[32];
	long kb = -1, value;
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%31[^:]: %ld", name, &value) == 2 &&
		    !strcmp(name, what))
			kb = value;
	if (f)
		fclose(f);
	return kb;
}

/*
 * Kernel memory in use, without what the kernel or KASAN frees under pressure
 */
static long kernel_kb(struct __test_metadata *_metadata)
{
	ASSERT_EQ(0, shell("echo 2 >/proc/sys/vm/drop_caches"));
	/* some have none */
	shell("echo 1 | tee /sys/kernel/slab/*/shrink >/dev/null 2>&1");
	return meminfo_kb("SUnreclaim");
}

/* A leaked file with what it has is some 100 KiB */
static long may_grow_kb(unsigned int n)
{
	long most = 8192 + 20 * (long)n, half_of_each = 40 * (long)n;

	return debug_kernel() || most < half_of_each ? most : half_of_each;
}

TEST_F_TIMEOUT(kill, I7_killed_owner_leaves_nothing, SOAK_S)
{
	const char *kernel = getenv("MEMREG_KERNEL") ?: "";
	unsigned int n = times(strcmp(kernel, "debug") ? 30 : 6, 500);
	unsigned int kills = 0, used = 0;
	long before = 0, after;
	int64_t end;
	bool early;

	/* Count only kills while peers are transferring */
	for (; used < n; used += !early, kills++) {
		early = rand() % 4 == 0;
		kill_once(_metadata, self, early);
		/* The first ones fill caches */
		if (kills == n / 5)
			before = kernel_kb(_metadata);
	}
	ASSERT_EQ(0, shell("! rdma resource show qp | grep memreg"));
	ASSERT_EQ(0, shell("! rdma resource show cm_id | grep memreg"));
	/* RCU frees memory late, so wait for it. A leak would not go away. */
	end = now_ms() + LIMIT_MS;
	do {
		after = kernel_kb(_metadata);
	} while (after - before >= may_grow_kb(n) && now_ms() < end);
	TH_LOG("slab memory: %ld KiB, %ld KiB %u kills before", after, before,
	       kills - n / 5);
	TH_LOG("killed %u times, %u of them while peers were at work", kills,
	       used);
	ASSERT_GT(may_grow_kb(n), after - before);
	ASSERT_EQ(0, shell("rmmod ib_memreg && module_load"));
}

PEER_HARNESS_MAIN
