// SPDX-License-Identifier: GPL-2.0-only
/*
 * The registration queue while the network below it changes: binds succeed or
 * fail with ENETDOWN, and work again when the network does. A queue whose GID
 * is removed is rebuilt, which LIST counts.
 *
 * time limit: 300
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>

#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define NETDEV		"mr_owner"
#define WINDOWS		4

/* As lib/topology.sh has them. */
static const char restore[] =
	"ip link set " NETDEV " up;"
	" ip addr replace 192.0.2.1/24 dev " NETDEV ";"
	" ip addr replace fd00:6d72::1/64 dev " NETDEV " nodad";

FIXTURE(recovery) {
	int fd;
	__u32 domain;
	__u32 mr;
	__u32 windows[WINDOWS];
	char *memory;
	pthread_t thread;
	/* Shared with the thread that binds. */
	bool stop;
	unsigned long bound;
	unsigned long down;
	int unexpected;
};

static int bind_and_revoke(FIXTURE_DATA(recovery) *self)
{
	struct ib_memreg_bind binds[WINDOWS] = {};
	int i, ret;

	for (i = 0; i < WINDOWS; i++) {
		binds[i].window_id = self->windows[i];
		binds[i].mr_id = self->mr;
		binds[i].length = PAGE;
		binds[i].access = REMOTE_READ;
	}
	ret = raw_bind(self->fd, self->domain, binds, WINDOWS);
	/* Revoking cannot fail, in any state of the queue. */
	return ret ?: raw_revoke_relaxed(self->fd, self->domain, self->windows,
					 WINDOWS);
}

static void *keep_binding(void *arg)
{
	FIXTURE_DATA(recovery) *self = arg;
	int ret;

	while (!__atomic_load_n(&self->stop, __ATOMIC_RELAXED)) {
		ret = bind_and_revoke(self);
		if (!ret)
			__atomic_add_fetch(&self->bound, 1, __ATOMIC_RELAXED);
		else if (ret == -ENETDOWN)
			__atomic_add_fetch(&self->down, 1, __ATOMIC_RELAXED);
		else
			self->unexpected = ret;
	}
	return NULL;
}

FIXTURE_SETUP(recovery)
{
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	self->memory = mem_alloc(PAGE);
	ASSERT_NE(NULL, self->memory);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	ASSERT_EQ(0, raw_register(self->fd, self->domain, self->memory, PAGE,
				  MW_BIND, &self->mr));
	ASSERT_EQ(0, raw_windows(self->fd, self->domain, PAGE, self->windows,
				 WINDOWS));
	ASSERT_EQ(0, pthread_create(&self->thread, NULL, keep_binding, self));
}

FIXTURE_TEARDOWN(recovery)
{
	EXPECT_EQ(0, system(restore));
	self->stop = true;
	EXPECT_EQ(0, pthread_join(self->thread, NULL));
	EXPECT_EQ(0, self->unexpected);
	ksft_print_msg("%lu times bound, %lu times down\n", self->bound,
		       self->down);
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
}

/* Wait until binds have succeeded that began after this call. */
static bool binds_again(FIXTURE_DATA(recovery) *self)
{
	unsigned long before = __atomic_load_n(&self->bound, __ATOMIC_RELAXED);
	int i;

	for (i = 0; i < 3000; i++) {
		if (__atomic_load_n(&self->bound, __ATOMIC_RELAXED) >
		    before + 2)
			return true;
		poll(NULL, 0, 10);
	}
	return false;
}

/* The domain's entry of LIST. */
static struct ib_memreg_object domain_now(void)
{
	struct ib_memreg_object domain = {};
	struct state now;
	__u32 i;

	if (!state_get(&now))
		for (i = 0; i < now.count; i++)
			if (now.objects[i].type == IB_MEMREG_OBJECT_DOMAIN)
				domain = now.objects[i];
	state_free(&now);
	return domain;
}

static bool rebuilt_since(__u64 before)
{
	int i;

	for (i = 0; i < 3000; i++) {
		if (domain_now().u.domain.rebuilds > before)
			return true;
		poll(NULL, 0, 10);
	}
	return false;
}

/*
 * Is the queue up within the limit? It may be rebuilt a moment after the
 * address came back.
 */
static bool queue_is_up(void)
{
	int i;

	for (i = 0; i < 3000; i++) {
		if (domain_now().u.domain.working == 1)
			return true;
		poll(NULL, 0, 10);
	}
	return false;
}

TEST_F_TIMEOUT(recovery, link_down_and_up, SOAK_S)
{
	unsigned int round;

	ASSERT_TRUE(binds_again(self));
	for (round = 0; round < test_rounds(4); round++) {
		ASSERT_EQ(0, system("ip link set " NETDEV " down"));
		ASSERT_EQ(0, system(restore));
		EXPECT_TRUE(binds_again(self));
		EXPECT_EQ(0, self->unexpected);
	}
	EXPECT_TRUE(queue_is_up());
}

TEST_F_TIMEOUT(recovery, queue_is_rebuilt_when_its_address_goes, SOAK_S)
{
	__u64 rebuilt;
	unsigned int round;

	ASSERT_TRUE(binds_again(self));
	for (round = 0; round < test_rounds(4); round++) {
		rebuilt = domain_now().u.domain.rebuilds;
		ASSERT_EQ(0, system("ip addr flush dev " NETDEV
				    " scope global"));
		EXPECT_TRUE(rebuilt_since(rebuilt));
		/* A link-local GID is left, or the bind fails with ENETDOWN. */
		ASSERT_EQ(0, system(restore));
		EXPECT_TRUE(binds_again(self));
		EXPECT_EQ(0, self->unexpected);
	}
	EXPECT_TRUE(queue_is_up());
}

static bool read_mac(char mac[18])
{
	FILE *f = popen("ip -o link show " NETDEV, "r");
	char line[512] = "", *at;
	bool found = false;

	if (f && fgets(line, sizeof(line), f)) {
		at = strstr(line, "link/ether ");
		found = at && sscanf(at, "link/ether %17s", mac) == 1;
	}
	if (f)
		pclose(f);
	return found;
}

TEST_F_TIMEOUT(recovery, MAC_address_changes, SOAK_S)
{
	static const char set[] = "ip link set " NETDEV " address %s";
	char mac[18] = "", command[64];
	unsigned int round;

	ASSERT_TRUE(read_mac(mac));
	ASSERT_TRUE(binds_again(self));
	for (round = 0; round < test_rounds(4); round++) {
		snprintf(command, sizeof(command), set,
			 round % 2 ? mac : "02:00:00:00:00:01");
		ASSERT_EQ(0, system(command));
		EXPECT_TRUE(binds_again(self));
		EXPECT_EQ(0, self->unexpected);
	}
	snprintf(command, sizeof(command), set, mac);
	ASSERT_EQ(0, system(command));
}

/* While the network changes, a new domain either works or is not made. */
TEST_F_TIMEOUT(recovery, domains_come_and_go_meanwhile, SOAK_S)
{
	__u32 domain;
	unsigned int round;
	int ret;

	for (round = 0; round < test_rounds(8); round++) {
		ASSERT_EQ(0, system(round % 2 ? restore :
				    "ip link set " NETDEV " down"));
		ret = raw_domain(self->fd, &domain);
		EXPECT_TRUE(!ret || ret == -ENETDOWN) {
			TH_LOG("%d", ret);
		}
		if (!ret)
			ASSERT_EQ(0, raw_destroy(self->fd, domain));
	}
	EXPECT_TRUE(binds_again(self));
}

TEST_HARNESS_MAIN
