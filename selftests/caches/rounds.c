// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that change their memory, get registrations of ranges that overlap,
 * and let a peer read, at random: it must find what is there.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "app.h"
#include "mem.h"
#include "test.h"

#define READ_WRITE	(PROT_READ | PROT_WRITE)
#define THREADS		2
#define PLACES		8
#define PLACE		(4 * PAGE)

/**
 * struct user - A thread
 * @mem: PLACES of memory, one behind the other
 * @seed: Seed of its random numbers
 * @rounds: Number of rounds to do
 * @server: Server of its keys; none before the first key
 * @client: Peer of @server
 * @pd: Protection domain of @client
 * @mr: MR of @client on @buffer
 * @buffer: Buffer that @client reads into
 * @stale: Reads that returned other data than the memory has
 * @ret: 0, or what failed
 */
struct user {
	char *mem;
	unsigned int seed;
	unsigned int rounds;
	struct qp_end server;
	struct qp_end client;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	char *buffer;
	unsigned int stale;
	int ret;
};

/*
 * Held while a place is unmapped for a moment, so that no thread's mmap(2)
 * takes it
 */
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;

static int map_at(char *at)
{
	return mmap(at, PLACE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
		    MAP_FIXED, -1, 0) == at ? 0 : -errno;
}

static int change(char *at, unsigned int how)
{
	char *from;

	switch (how % 4) {
	case 0:
		return map_at(at);
	case 1:
		return syscall(SYS_madvise, at, PLACE, MADV_DONTNEED) ?
		       -errno : 0;
	case 2:
		return syscall(SYS_munmap, at, PLACE) ? -errno : map_at(at);
	default:
		from = mem_alloc(PLACE);
		return from && mremap(from, PLACE, PLACE, MREMAP_MAYMOVE |
				      MREMAP_FIXED, at) == at ? 0 : -errno;
	}
}

/* Connect a peer of the device on which the first key is good. */
static int connect_peer(struct user *u, struct ibv_pd *pd)
{
	int ret;

	u->pd = ibv_alloc_pd(pd->context);
	u->buffer = mem_alloc(PLACES * PLACE);
	if (!u->pd || !u->buffer)
		return -ENOMEM;
	u->mr = ibv_reg_mr(u->pd, u->buffer, PLACES * PLACE,
			   IBV_ACCESS_LOCAL_WRITE);
	if (!u->mr)
		return -errno;
	ret = qp_open(&u->server, pd) ?: qp_open(&u->client, u->pd);
	ret = ret ?: qp_connect(&u->server, &u->client.addr);
	return ret ?: qp_connect(&u->client, &u->server.addr);
}

static void disconnect_peer(struct user *u)
{
	qp_close(&u->client);
	qp_close(&u->server);
	if (u->mr)
		ibv_dereg_mr(u->mr);
	if (u->pd)
		ibv_dealloc_pd(u->pd);
	if (u->buffer)
		mem_free(u->buffer, PLACES * PLACE);
}

static int look(struct user *u, char *at, size_t length)
{
	struct app_key key;
	int ret = cache_get(at, length, &key);

	if (ret)
		return ret;
	if (!key.pd)
		ret = -EOPNOTSUPP;
	else if (!u->server.qp)
		ret = connect_peer(u, key.pd);
	if (!ret)
		ret = qp_do(&u->client, IBV_WR_RDMA_READ, u->mr, length,
			    key.iova, key.rkey);
	u->stale += !ret && memcmp(u->buffer, at, length);
	cache_put(&key);
	return ret > 0 ? -EREMOTEIO : ret;
}

static int one_round(struct user *u, unsigned int version)
{
	unsigned int n = rand_r(&u->seed) % PLACES;
	unsigned int places = 1 + rand_r(&u->seed) % (PLACES - n);
	char *at = u->mem + n * PLACE;
	int ret = 0;

	if (rand_r(&u->seed) % 2) {
		pthread_mutex_lock(&map_lock);
		ret = change(at, rand_r(&u->seed));
		pthread_mutex_unlock(&map_lock);
	}
	fill(at, PLACE, version);
	return ret ?: look(u, at, places * PLACE);
}

static void *user_thread(void *arg)
{
	struct user *u = arg;
	unsigned int i;

	for (i = 0; i < u->rounds && !u->ret; i++)
		u->ret = one_round(u, i + 1);
	return NULL;
}

int rounds_run(unsigned int seed, unsigned int rounds)
{
	struct user users[THREADS] = {};
	pthread_t threads[THREADS];
	unsigned int i;
	int ret = 0;

	for (i = 0; i < THREADS; i++) {
		users[i].mem = mem_alloc(PLACES * PLACE);
		users[i].seed = seed + i;
		users[i].rounds = rounds / THREADS;
		if (!users[i].mem || pthread_create(&threads[i], NULL,
						    user_thread, &users[i]))
			abort();
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		ret = ret ?: users[i].ret;
		ret = ret ?: users[i].stale ? -ESTALE : 0;
		disconnect_peer(&users[i]);
		mem_free(users[i].mem, PLACES * PLACE);
	}
	return ret;
}
