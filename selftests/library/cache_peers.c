// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that map, unmap, get, let a peer read and write, and put, at random:
 * the peer reads the memory that is mapped, and its writes arrive there and
 * nowhere else. The caches are libmemreg's, over its MRs and over
 * ibv_reg_mr(3); and one without invalidation, which must fail the test.
 *
 * time limit: 240
 * soak in parts: 4
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "net.h"
#include "qp.h"
#include "raw.h"
#include "ring.h"
#include "state.h"
#include "stock.h"
#include "test.h"

#define READ_WRITE	(PROT_READ | PROT_WRITE)
#define THREADS		4
#define PLACES		16
#define PLACE		(2 * PAGE)

enum kind { MRS, VERBS, PLAIN };

/**
 * struct user - A thread, its memory and its peer
 * @self: Fixture, shared by all threads
 * @stock: The peer, of memreg's MRs
 * @endpoint: Endpoint that @stock is connected to
 * @server: QP of the owner, for keys of libibverbs
 * @client: QP of the peer, for keys of libibverbs
 * @pd: Protection domain of @client
 * @mr: Its memory
 * @buffer: Memory of the peer
 * @places: PLACES ranges of memory, which the cache registers
 * @used: Version of the contents of each place, 0 if it was never used
 * @believed: Registration of each place in the cache without invalidation
 * @aside: Memory of a place after it was moved away, or NULL
 * @aside_version: Version of the contents of @aside
 * @seed: Seed of its random numbers
 * @rounds: Number of rounds to do
 * @wrong: Times that the peer read other data than the contents, or that its
 *   write did not arrive
 * @outside: Times that a write of the peer arrived elsewhere
 * @failed: Number of calls that failed
 */
struct user {
	struct _test_data_peers *self;
	struct stock stock;
	__u32 endpoint;
	struct qp_end server;
	struct qp_end client;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *buffer;
	char *places;
	unsigned int used[PLACES];
	struct ibv_mr *believed[PLACES];
	char *aside;
	unsigned int aside_version;
	unsigned int seed;
	unsigned int rounds;
	unsigned int wrong;
	unsigned int outside;
	unsigned int failed;
};

/**
 * struct key - A key as a peer receives it
 * @iova: I/O address of the place
 * @rkey: The key
 * @cached: The registration, if it is of a cache of libmemreg's
 */
struct key {
	uint64_t iova;
	uint32_t rkey;
	const struct memreg_cached *cached;
};

FIXTURE(peers) {
	enum kind kind;
	struct memreg *m;
	struct memreg_cache *cache;
	int fd;
	__u32 domain;
	__be16 port;
	struct ring ring;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct user users[THREADS];
};

FIXTURE_VARIANT(peers) {
	enum kind kind;
};

FIXTURE_VARIANT_ADD(peers, mrs) {
	.kind = MRS,
};

FIXTURE_VARIANT_ADD(peers, verbs) {
	.kind = VERBS,
};

FIXTURE_VARIANT_ADD(peers, plain) {
	.kind = PLAIN,
};

#define VERBS_ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			 IBV_ACCESS_REMOTE_WRITE)

static int reg(void *pd, void *addr, size_t length, void **handle)
{
	*handle = ibv_reg_mr(pd, addr, length, VERBS_ACCESS);
	return *handle ? 0 : -errno;
}

static int dereg(void *pd, void *handle)
{
	(void)pd;
	return -ibv_dereg_mr(handle);
}

static const struct memreg_cache_ops ops = { reg, dereg };

/*
 * Caches and peers
 */

static int open_mrs(FIXTURE_DATA(peers) *self)
{
	int ret;

	self->fd = raw_open_bound();
	if (self->fd < 0)
		return self->fd;
	ret = raw_domain(self->fd, &self->domain);
	ret = ret ?: ring_create(self->fd, &self->ring, 256, 64, 0, -1);
	ret = ret ?: raw_listen(self->fd, &self->port);
	return ret ?: memreg_open_fd(dup(self->fd), &self->m);
}

static int open_verbs(FIXTURE_DATA(peers) *self)
{
	self->context = qp_device(test_device());
	self->pd = self->context ? ibv_alloc_pd(self->context) : NULL;
	return self->pd ? memreg_open_unbound(&self->m) : -ENODEV;
}

static int open_cache(FIXTURE_DATA(peers) *self)
{
	const struct memreg_cache_attr attr = {
		.ops = self->kind == MRS ? NULL : &ops,
		.arg = self->pd,
		.domain = self->domain,
		.access = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE,
		/* Fewer entries than places, so that some are evicted. */
		.max_entries = THREADS * PLACES * 3 / 4,
	};

	return memreg_cache_create(self->m, &attr, &self->cache);
}

static int connect_stock(struct user *u)
{
	FIXTURE_DATA(peers) *self = u->self;
	const struct ib_memreg_queues queues = {
		.max_send = 4,
		.max_recv = 4,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.send_ring_id = self->ring.id,
		.recv_ring_id = self->ring.id,
	};
	int ret = stock_open(&u->stock, PLACE);

	ret = ret ?: stock_connect(&u->stock, OWNER_IP4, self->port);
	ret = ret ?: raw_await(self->fd, IB_MEMREG_EVENT_CONNECT_REQUEST,
			       &u->endpoint);
	ret = ret ?: raw_setup(self->fd, u->endpoint, self->domain, &queues);
	ret = ret ?: raw_accept(self->fd, u->endpoint, self->domain);
	ret = ret ?: stock_established(&u->stock);
	ret = ret ?: raw_await(self->fd, IB_MEMREG_EVENT_ESTABLISHED, NULL);
	u->buffer = u->stock.mem;
	return ret;
}

static int connect_verbs(struct user *u)
{
	FIXTURE_DATA(peers) *self = u->self;
	int ret;

	u->pd = ibv_alloc_pd(self->context);
	u->buffer = mem_alloc(PLACE);
	if (!u->pd || !u->buffer)
		return -ENOMEM;
	u->mr = ibv_reg_mr(u->pd, u->buffer, PLACE, IBV_ACCESS_LOCAL_WRITE);
	if (!u->mr)
		return -errno;
	ret = qp_open(&u->server, self->pd) ?: qp_open(&u->client, u->pd);
	ret = ret ?: qp_connect(&u->server, &u->client.addr);
	return ret ?: qp_connect(&u->client, &u->server.addr);
}

static int transfer(struct user *u, bool writes, const struct key *key)
{
	if (u->self->kind != MRS)
		return qp_do(&u->client, writes ? IBV_WR_RDMA_WRITE :
			     IBV_WR_RDMA_READ, u->mr, PLACE, key->iova,
			     key->rkey);
	return writes ? stock_write(&u->stock, 0, PLACE, key->iova, key->rkey) :
			stock_read(&u->stock, 0, PLACE, key->iova, key->rkey);
}

FIXTURE_SETUP(peers)
{
	unsigned int i;

	self->kind = variant->kind;
	ASSERT_EQ(0, self->kind == MRS ? open_mrs(self) : open_verbs(self));
	ASSERT_EQ(0, open_cache(self));
	for (i = 0; i < THREADS; i++) {
		struct user *u = &self->users[i];

		u->self = self;
		u->seed = test_seed() + i;
		u->places = mem_alloc(PLACES * PLACE);
		ASSERT_NE(NULL, u->places);
		ASSERT_EQ(0, self->kind == MRS ? connect_stock(u) :
						 connect_verbs(u));
	}
}

static void user_end(struct user *u)
{
	unsigned int i;

	for (i = 0; i < PLACES; i++)
		if (u->believed[i])
			ibv_dereg_mr(u->believed[i]);
	mem_free(u->places, PLACES * PLACE);
	if (u->aside)
		mem_free(u->aside, PLACE);
	if (u->self->kind == MRS) {
		stock_close(&u->stock);
		return;
	}
	qp_close(&u->client);
	qp_close(&u->server);
	ibv_dereg_mr(u->mr);
	ibv_dealloc_pd(u->pd);
	mem_free(u->buffer, PLACE);
}

FIXTURE_TEARDOWN(peers)
{
	unsigned int i;

	EXPECT_EQ(0, memreg_cache_destroy(self->cache));
	for (i = 0; i < THREADS; i++)
		user_end(&self->users[i]);
	memreg_close(self->m);
	if (self->kind == MRS) {
		ring_unmap(&self->ring);
		close(self->fd);
	} else {
		EXPECT_EQ(0, ibv_dealloc_pd(self->pd));
		EXPECT_EQ(0, ibv_close_device(self->context));
	}
	EXPECT_EQ(0, vm_pin(0));
}

/*
 * Rounds
 */

static bool has(const void *mem, unsigned int version)
{
	uint8_t expected[PLACE];

	fill(expected, PLACE, version);
	return !memcmp(mem, expected, PLACE);
}

static bool map_at(char *at)
{
	return mmap(at, PLACE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
		    MAP_FIXED, -1, 0) == at;
}

static bool unmap_and_map(char *at)
{
	return !syscall(SYS_munmap, at, PLACE) && map_at(at);
}

static bool move_onto(char *at)
{
	char *from = mem_alloc(PLACE);

	return from && mremap(from, PLACE, PLACE, MREMAP_MAYMOVE |
			      MREMAP_FIXED, at) == at;
}

/* Move the memory of a place aside: no write may arrive there any more. */
static bool move_aside(struct user *u, char *at, unsigned int version)
{
	char *aside = mem_alloc(PLACE);

	if (!aside || mremap(at, PLACE, PLACE, MREMAP_MAYMOVE | MREMAP_FIXED,
			     aside) != aside)
		return false;
	if (u->aside)
		mem_free(u->aside, PLACE);
	u->aside = aside;
	u->aside_version = version;
	return map_at(at);
}

static bool change_locked(struct user *u, unsigned int n)
{
	char *at = u->places + n * PLACE;

	switch (rand_r(&u->seed) % 5) {
	case 0:
		return map_at(at);
	case 1:
		return !syscall(SYS_madvise, at, PLACE, MADV_DONTNEED);
	case 2:
		return move_onto(at);
	case 3:
		return move_aside(u, at, u->used[n]);
	default:
		return unmap_and_map(at);
	}
}

/*
 * Change a place. Held meanwhile, a lock keeps other threads' mmap(2) from a
 * hole that exists for a moment.
 */
static bool change(struct user *u, unsigned int n)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	bool changed;

	pthread_mutex_lock(&lock);
	changed = change_locked(u, n);
	pthread_mutex_unlock(&lock);
	return changed;
}

static int believe(struct user *u, unsigned int n, struct key *key)
{
	char *at = u->places + n * PLACE;

	if (!u->believed[n])
		u->believed[n] = ibv_reg_mr(u->self->pd, at, PLACE,
					    VERBS_ACCESS);
	if (!u->believed[n])
		return -errno;
	*key = (struct key){
		.iova = (uintptr_t)at,
		.rkey = u->believed[n]->rkey,
	};
	return 0;
}

static int get(struct user *u, unsigned int n, struct key *key)
{
	FIXTURE_DATA(peers) *self = u->self;
	char *at = u->places + n * PLACE;
	const struct ibv_mr *mr;
	int ret;

	if (self->kind == PLAIN)
		return believe(u, n, key);
	ret = memreg_cache_get(self->cache, at, PLACE, &key->cached);
	if (ret)
		return ret;
	mr = key->cached->handle;
	key->rkey = self->kind == MRS ? key->cached->mr.rkey : mr->rkey;
	key->iova = self->kind == MRS ? key->cached->mr.iova +
		    (at - (char *)key->cached->mr.addr) : (uintptr_t)at;
	return 0;
}

/* The peer reads version @v of a place, and writes the one that follows. */
static void use(struct user *u, unsigned int n, unsigned int v)
{
	char *at = u->places + n * PLACE;
	struct key key = {};

	fill(at, PLACE, v);
	if (get(u, n, &key)) {
		u->failed++;
		return;
	}
	u->wrong += transfer(u, false, &key) || !has(u->buffer, v);
	fill(u->buffer, PLACE, v + 1);
	u->wrong += transfer(u, true, &key) || !has(at, v + 1);
	u->outside += u->aside && !has(u->aside, u->aside_version);
	if (key.cached)
		memreg_cache_put(u->self->cache, key.cached);
	u->used[n] = v + 1;
}

static void *user_thread(void *arg)
{
	struct user *u = arg;
	unsigned int i, n;

	for (i = 0; i < u->rounds && !u->failed; i++) {
		n = rand_r(&u->seed) % PLACES;
		if (u->used[n] && rand_r(&u->seed) % 2 && !change(u, n))
			u->failed++;
		use(u, n, 2 * i + 1);
	}
	return NULL;
}

TEST_F_TIMEOUT(peers, I2_random_rounds, 9000)
{
	unsigned int rounds = times(test_rounds(400), 100000) / THREADS;
	unsigned int i, wrong = 0, outside = 0;
	pthread_t threads[THREADS];

	if (self->kind == PLAIN && rounds > 1000)
		rounds = 1000;
	for (i = 0; i < THREADS; i++) {
		self->users[i].rounds = rounds;
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, user_thread,
					    &self->users[i]));
	}
	for (i = 0; i < THREADS; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
		EXPECT_EQ(0, self->users[i].failed);
		wrong += self->users[i].wrong;
		outside += self->users[i].outside;
	}
	TH_LOG("%u rounds: %u transfers wrong, memory elsewhere wrong %u times",
	       THREADS * rounds, wrong, outside);
	if (self->kind == PLAIN) {
		EXPECT_LT(0, wrong);
		EXPECT_LT(0, outside);
	} else {
		EXPECT_EQ(0, wrong);
		EXPECT_EQ(0, outside);
	}
}

TEST_HARNESS_MAIN
