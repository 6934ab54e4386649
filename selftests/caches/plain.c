// SPDX-License-Identifier: GPL-2.0-only
/*
 * A cache without invalidation, over ibv_reg_mr(3): it always returns its
 * entries
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "app.h"
#include "test.h"

#define ENTRIES	256

static struct {
	char *at;
	size_t length;
	struct ibv_mr *mr;
} entries[ENTRIES];

static struct ibv_context *context;
static struct ibv_pd *pd;

int cache_open(const char *mode)
{
	(void)mode;
	context = qp_device(test_device());
	pd = context ? ibv_alloc_pd(context) : NULL;
	return pd ? 0 : -ENODEV;
}

static int get_locked(void *addr, size_t length, struct app_key *key)
{
	unsigned int i;

	for (i = 0; i < ENTRIES && entries[i].mr; i++)
		if (entries[i].at == addr && entries[i].length == length)
			break;
	if (i == ENTRIES)
		return -ENOSPC;
	if (!entries[i].mr) {
		entries[i].at = addr;
		entries[i].length = length;
		entries[i].mr = ibv_reg_mr(pd, addr, length,
					   IBV_ACCESS_LOCAL_WRITE |
					   IBV_ACCESS_REMOTE_WRITE |
					   IBV_ACCESS_REMOTE_READ);
	}
	if (!entries[i].mr)
		return -errno;
	*key = (struct app_key){
		.rkey = entries[i].mr->rkey,
		.iova = (uintptr_t)addr,
		.pd = pd,
	};
	return 0;
}

int cache_get(void *addr, size_t length, struct app_key *key)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int ret;

	pthread_mutex_lock(&lock);
	ret = get_locked(addr, length, key);
	pthread_mutex_unlock(&lock);
	return ret;
}

void cache_put(struct app_key *key)
{
	(void)key;
}

int cache_listen(uint32_t *port)
{
	(void)port;
	return -EOPNOTSUPP;
}

int cache_accept(void)
{
	return -EOPNOTSUPP;
}

void cache_close(void)
{
	unsigned int i;

	for (i = 0; i < ENTRIES && entries[i].mr; i++)
		ibv_dereg_mr(entries[i].mr);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
}
