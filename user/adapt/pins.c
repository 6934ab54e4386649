// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * An adapter that is preloaded interposes the functions of libibverbs that pin
 * memory, as these do not say when they begin.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

#include <infiniband/verbs.h>

#include "pins.h"

/* libibverbs' header defines macros of these names. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

EXPORT typeof(ibv_reg_mr) ibv_reg_mr;
EXPORT typeof(ibv_reg_mr_iova2) ibv_reg_mr_iova2;
EXPORT typeof(ibv_reg_dmabuf_mr) ibv_reg_dmabuf_mr;

/* Other preloaded libraries may interpose them as well: call the next one. */
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
	static typeof(ibv_reg_mr) *_Atomic real;

	if (!real)
		real = next("ibv_reg_mr");
	before_pin(addr, length);
	return real ? real(pd, addr, length, access) : NULL;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	static typeof(ibv_reg_mr_iova2) *_Atomic real;

	if (!real)
		real = next("ibv_reg_mr_iova2");
	before_pin(addr, length);
	return real ? real(pd, addr, length, iova, access) : NULL;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t length, uint64_t iova, int fd,
				 int access)
{
	static typeof(ibv_reg_dmabuf_mr) *_Atomic real;

	if (!real)
		real = next("ibv_reg_dmabuf_mr");
	before_pin(NULL, length);
	return real ? real(pd, offset, length, iova, fd, access) : NULL;
}
