// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Where memory is pinned: an adapter that is preloaded stands in front of the
 * functions of libibverbs that do.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

#include <infiniband/verbs.h>

#include "pins.h"

/* The header has macros in front of the first two. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

typedef struct ibv_mr *reg_mr_fn(struct ibv_pd *pd, void *addr, size_t length,
				 int access);
typedef struct ibv_mr *reg_mr_iova2_fn(struct ibv_pd *pd, void *addr,
				       size_t length, uint64_t iova,
				       unsigned int access);
typedef struct ibv_mr *reg_dmabuf_mr_fn(struct ibv_pd *pd, uint64_t offset,
					size_t length, uint64_t iova, int fd,
					int access);

EXPORT reg_mr_fn ibv_reg_mr;
EXPORT reg_mr_iova2_fn ibv_reg_mr_iova2;
EXPORT reg_dmabuf_mr_fn ibv_reg_dmabuf_mr;

/* libibverbs may be behind other libraries that stand in front of it. */
static void *next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		errno = ENOSYS;
	return found;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	static _Atomic(reg_mr_fn *) real;

	if (!real)
		real = (reg_mr_fn *)next("ibv_reg_mr");
	before_pin(addr, length);
	return real ? real(pd, addr, length, access) : NULL;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	static _Atomic(reg_mr_iova2_fn *) real;

	if (!real)
		real = (reg_mr_iova2_fn *)next("ibv_reg_mr_iova2");
	before_pin(addr, length);
	return real ? real(pd, addr, length, iova, access) : NULL;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t length, uint64_t iova, int fd,
				 int access)
{
	static _Atomic(reg_dmabuf_mr_fn *) real;

	if (!real)
		real = (reg_dmabuf_mr_fn *)next("ibv_reg_dmabuf_mr");
	before_pin(NULL, length);
	return real ? real(pd, offset, length, iova, fd, access) : NULL;
}
