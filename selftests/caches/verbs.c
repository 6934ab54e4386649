// SPDX-License-Identifier: GPL-2.0-only
/*
 * Find the protection domains in which libraries register: this program
 * interposes the functions of libibverbs that libraries call to register, so
 * that its own peer can use the keys.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "app.h"

/* infiniband/verbs.h defines a macro of the function's name. */
#undef ibv_reg_mr

#define KEYS	4096

static struct {
	uint32_t rkey;
	struct ibv_pd *pd;
} keys[KEYS];
static unsigned int n_keys;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct ibv_mr *remember(struct ibv_mr *mr)
{
	pthread_mutex_lock(&lock);
	if (mr) {
		keys[n_keys % KEYS].rkey = mr->rkey;
		keys[n_keys % KEYS].pd = mr->pd;
		n_keys++;
	}
	pthread_mutex_unlock(&lock);
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	typeof(ibv_reg_mr) *real = dlsym(RTLD_NEXT, "ibv_reg_mr");

	return remember(real(pd, addr, length, access));
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	typeof(ibv_reg_mr_iova2) *real = dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");

	return remember(real(pd, addr, length, iova, access));
}

struct ibv_pd *pd_of_key(uint32_t rkey)
{
	struct ibv_pd *pd = NULL;
	unsigned int i;

	pthread_mutex_lock(&lock);
	for (i = n_keys; !pd && i-- && n_keys - i <= KEYS;)
		if (keys[i % KEYS].rkey == rkey)
			pd = keys[i % KEYS].pd;
	pthread_mutex_unlock(&lock);
	return pd;
}

uint32_t key_among(const void *bytes, size_t length)
{
	uint32_t rkey = 0;
	unsigned int i;

	pthread_mutex_lock(&lock);
	for (i = n_keys; !rkey && i-- && n_keys - i <= KEYS;)
		if (memmem(bytes, length, &keys[i % KEYS].rkey,
			   sizeof(rkey)))
			rkey = keys[i % KEYS].rkey;
	pthread_mutex_unlock(&lock);
	return rkey;
}
