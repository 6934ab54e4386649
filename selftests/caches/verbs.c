// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which protection domains libraries register in: this program stands in front
 * of the functions of libibverbs by which they do, so that a peer of its own can
 * use the keys.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

/* The header has a macro in front of it. */
#undef ibv_reg_mr

#define KEYS	4096

static struct {
	uint32_t rkey;
	struct ibv_pd *pd;
} keys[KEYS];
static unsigned int n_keys;

static struct ibv_mr *remember(struct ibv_mr *mr)
{
	if (mr) {
		keys[n_keys % KEYS].rkey = mr->rkey;
		keys[n_keys % KEYS].pd = mr->pd;
		n_keys++;
	}
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	typeof(&ibv_reg_mr) real = (typeof(&ibv_reg_mr))
		dlsym(RTLD_NEXT, "ibv_reg_mr");

	return remember(real(pd, addr, length, access));
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	typeof(&ibv_reg_mr_iova2) real = (typeof(&ibv_reg_mr_iova2))
		dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");

	return remember(real(pd, addr, length, iova, access));
}

struct ibv_pd *pd_of_key(uint32_t rkey)
{
	unsigned int i;

	for (i = n_keys; i-- && n_keys - i <= KEYS;)
		if (keys[i % KEYS].rkey == rkey)
			return keys[i % KEYS].pd;
	return NULL;
}

uint32_t key_among(const void *bytes, size_t length)
{
	unsigned int i;

	for (i = n_keys; i-- && n_keys - i <= KEYS;)
		if (memmem(bytes, length, &keys[i % KEYS].rkey,
			   sizeof(keys[0].rkey)))
			return keys[i % KEYS].rkey;
	return 0;
}
