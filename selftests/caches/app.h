/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Applications that cache registrations, each by another cache, and map, unmap
 * and change memory as applications do. library/stale.c runs them, requests
 * each step through a socket, and is the peer.
 */
#ifndef SELFTESTS_CACHES_APP_H
#define SELFTESTS_CACHES_APP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qp.h"

/* Where the socket is */
#define APP_FD		3

#define SMALL_LENGTH	65536UL
#define HUGE_LENGTH	(2UL << 20)

/* Contents of the memory before a change, and afterwards */
#define OLD		17
#define NEW		93

/* Changes of the mapping */
enum change {
	CHANGE_LIBC,
	CHANGE_RAW,
	CHANGE_THREAD,
	CHANGE_AWAY,
	CHANGE_ONTO,
	CHANGE_FIXED,
	CHANGE_DONTNEED,
	CHANGE_HOLE,
	CHANGE_TRUNCATE,
	CHANGE_EXEC,
	CHANGE_EXIT,
	CHANGES_MAX
};

/**
 * enum app_step - Steps that an application is asked to do
 * @STEP_MAP: Map memory, fill it, get a registration, put it, and find it again
 * @STEP_CHANGE: Change the mapping, and fill it with something else; no answer
 *	if it is EXEC or EXIT
 * @STEP_GET: Get a registration
 * @STEP_PUT: Put it
 * @STEP_QP: Make a QP that serves the registration, connect it to @addr; or if
 *	memreg is to, listen
 * @STEP_ACCEPT: In that case, accept
 * @STEP_UNMAP: Unmap all of it
 * @STEP_ROUNDS: Do @rounds at random, see rounds.c; -ESTALE if any is stale
 * @STEP_END: Deregister all, and end
 */
enum app_step {
	STEP_MAP,
	STEP_CHANGE,
	STEP_GET,
	STEP_PUT,
	STEP_QP,
	STEP_ACCEPT,
	STEP_UNMAP,
	STEP_ROUNDS,
	STEP_END
};

/**
 * struct app_ask - What it is asked for
 * @step: enum app_step
 * @change: enum change
 * @huge: In huge pages
 * @seed: ROUNDS: of random numbers
 * @rounds: ROUNDS: how many
 * @addr: QP: the other end
 */
struct app_ask {
	uint32_t step;
	uint32_t change;
	uint32_t huge;
	uint32_t seed;
	uint32_t rounds;
	struct qp_addr addr;
};

/**
 * struct app_answer - What it answers
 * @ret: 0 or -errno
 * @rkey: MAP, GET: the key
 * @iova: MAP, GET: the I/O address
 * @port: QP, of memreg's MRs: where to connect to, by the RDMA CM; or 0
 * @addr: QP, otherwise: its end
 */
struct app_answer {
	int32_t ret;
	uint32_t rkey;
	uint64_t iova;
	uint32_t port;
	struct qp_addr addr;
};

/**
 * struct app_key - A registration
 * @rkey: Its key
 * @iova: I/O address of the first byte that was asked for
 * @pd: Protection domain in which it works; NULL for memreg's
 * @handle: Handle of the cache
 */
struct app_key {
	uint32_t rkey;
	uint64_t iova;
	struct ibv_pd *pd;
	void *handle;
};

/*
 * Functions of each application's cache, which return 0 or -errno. @mode is the
 * argument of the application, or "".
 */
int cache_open(const char *mode);
int cache_get(void *addr, size_t length, struct app_key *key);
void cache_put(struct app_key *key);
/*
 * For a cache of memreg's MRs: listen at a port in network byte order; accept.
 */
int cache_listen(uint32_t *port);
int cache_accept(void);
void cache_close(void);

/**
 * struct place - Memory that something is done to
 * @at: Its first byte
 * @length: Bytes
 * @fd: Its file, or -1
 * @flags: Flags of mmap(2), without MAP_FIXED
 * @aside: Address that the memory was moved to, or NULL
 */
struct place {
	char *at;
	size_t length;
	int fd;
	int flags;
	char *aside;
};

/* changes.c: map memory for a change; change it; unmap what there is */
int place_map(struct place *place, enum change change, bool huge);
int place_change(struct place *place, enum change change);
void place_unmap(struct place *place);

/* rounds.c: 0, -ESTALE, or what failed */
int rounds_run(unsigned int seed, unsigned int rounds);

/* verbs.c: the protection domain of a key that libibverbs has made, or NULL */
struct ibv_pd *pd_of_key(uint32_t rkey);
/* verbs.c: the key that is found in these bytes, or 0 */
uint32_t key_among(const void *bytes, size_t length);

#endif /* SELFTESTS_CACHES_APP_H */
