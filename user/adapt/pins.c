// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * An adapter that is preloaded interposes the functions of libibverbs that pin
 * memory, as these do not say when they begin.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

#include <infiniband/verbs.h>

#include "next.h"
#include "pins.h"

/* libibverbs' header defines macros of these names. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

EXPORT typeof(ibv_reg_mr) ibv_reg_mr;
EXPORT typeof(ibv_reg_mr_iova2) ibv_reg_mr_iova2;
EXPORT typeof(ibv_reg_dmabuf_mr) ibv_reg_dmabuf_mr;
EXPORT typeof(before_pin) memreg_before_pin;

static void *next_or_fail(struct next *next, const void *caller)
{
	void *found = next_of(next, caller);

	if (!found)
		errno = ENOSYS;
	return found;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	static struct next next = { .name = "ibv_reg_mr" };
	const void *caller = __builtin_return_address(0);
	typeof(ibv_reg_mr) *real = next_or_fail(&next, caller);

	if (!real)
		return NULL;
	before_pin(caller, addr, length);
	return real(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	static struct next next = { .name = "ibv_reg_mr_iova2" };
	const void *caller = __builtin_return_address(0);
	typeof(ibv_reg_mr_iova2) *real = next_or_fail(&next, caller);

	if (!real)
		return NULL;
	before_pin(caller, addr, length);
	return real(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t length, uint64_t iova, int fd,
				 int access)
{
	static struct next next = { .name = "ibv_reg_dmabuf_mr" };
	const void *caller = __builtin_return_address(0);
	typeof(ibv_reg_dmabuf_mr) *real = next_or_fail(&next, caller);

	if (!real)
		return NULL;
	before_pin(caller, NULL, length);
	return real(pd, offset, length, iova, fd, access);
}

void memreg_before_pin(const void *caller, const void *addr, size_t length)
{
	typeof(memreg_before_pin) *next = dlsym(RTLD_NEXT, "memreg_before_pin");

	before_pin(caller, addr, length);
	if (next)
		next(caller, addr, length);
}
