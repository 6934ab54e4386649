// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Guarding the registrations of programs that know nothing of memreg.
 *
 * Preloaded, or linked in front of libibverbs, the library stands in front of
 * the functions that register memory. It is not linked to libibverbs: a program
 * that does not use it loads nothing. Where the driver of the device imports
 * revocable dma-bufs, a registration is made of an export, as in guarded.c.
 * Otherwise it is passed on as it is, and watched, so that it is known how many
 * went stale.
 *
 * What a guarded registration has in libibverbs changes with ibv_rereg_mr(3),
 * but not the address that the program knows it by. Therefore the program gets
 * a structure of this library's, which no provider needs to see: what would
 * bring it there, as binding windows does, is not guarded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "next.h"
#include "pins.h"

/* The header of libibverbs defines macros of these names. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

EXPORT typeof(ibv_reg_mr) ibv_reg_mr;
EXPORT typeof(ibv_reg_mr_iova) ibv_reg_mr_iova;
EXPORT typeof(ibv_reg_mr_iova2) ibv_reg_mr_iova2;
EXPORT typeof(ibv_reg_dmabuf_mr) ibv_reg_dmabuf_mr;
EXPORT typeof(ibv_rereg_mr) ibv_rereg_mr;
EXPORT typeof(ibv_dereg_mr) ibv_dereg_mr;
EXPORT typeof(memreg_verbs_query) memreg_verbs_query;

/* What the kernel takes for registrations of dma-bufs */
#define GUARDED_ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
			 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
			 IBV_ACCESS_RELAXED_ORDERING)

enum mode {
	FALLBACK,
	STRICT,
	OFF
};

/* Functions of libibverbs, with the index of enum form */
enum form {
	REG_MR,
	REG_MR_IOVA,
	REG_MR_IOVA2,
	REG_DMABUF_MR,
	REREG_MR,
	DEREG_MR
};

static struct next functions[] = {
	[REG_MR] = { .name = "ibv_reg_mr" },
	[REG_MR_IOVA] = { .name = "ibv_reg_mr_iova" },
	[REG_MR_IOVA2] = { .name = "ibv_reg_mr_iova2" },
	[REG_DMABUF_MR] = { .name = "ibv_reg_dmabuf_mr" },
	[REREG_MR] = { .name = "ibv_rereg_mr" },
	[DEREG_MR] = { .name = "ibv_dereg_mr" },
};

static enum mode mode;
static struct memreg_verbs_stat counted;
static typeof(memreg_before_pin) *adapters;

/* This thread is in a libibverbs, which calls exported functions of its own. */
static __thread bool inside;

void say(const char *what, const char *why)
{
	static bool said;

	if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		fprintf(stderr, "libmemreg-verbs: not guarded: %s: %s\n", what,
			why);
}

static void count(uint64_t *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

static void *next(enum form form, const void *caller)
{
	void *found = next_of(&functions[form], caller);

	if (!found)
		errno = ENOSYS;
	return found;
}

/*
 * Beginning
 */

static void take_lock(void)
{
	pthread_mutex_lock(&verbs_lock);
}

static void drop_lock(void)
{
	pthread_mutex_unlock(&verbs_lock);
}

static void begin_child(void)
{
	guard_forget_all();
	memset(&counted, 0, sizeof(counted));
	drop_lock();
}

static void begin_once(void)
{
	const char *value = getenv("MEMREG_VERBS") ?: "fallback";

	mode = !strcmp(value, "strict") ? STRICT :
	       !strcmp(value, "off") ? OFF : FALLBACK;
	if (mode == FALLBACK && strcmp(value, "fallback"))
		say("MEMREG_VERBS is neither strict, fallback nor off", value);
	adapters = dlsym(RTLD_NEXT, "memreg_before_pin");
	pthread_atfork(take_lock, drop_lock, begin_child);
}

static enum mode begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, begin_once);
	return mode;
}

/*
 * Passing on
 */

static struct ibv_mr *call_next(enum form form, const struct request *r,
				const void *caller)
{
	typeof(ibv_reg_mr_iova2) *iova2 = next(form, caller);
	typeof(ibv_reg_mr_iova) *iova = (void *)iova2;
	typeof(ibv_reg_mr) *plain = (void *)iova2;
	int access = (int)r->access;
	bool was_inside = inside;
	struct ibv_mr *mr;

	if (!plain)
		return NULL;
	inside = true;
	if (form == REG_MR)
		mr = plain(r->pd, r->addr, r->length, access);
	else if (form == REG_MR_IOVA)
		mr = iova(r->pd, r->addr, r->length, r->iova, access);
	else
		mr = iova2(r->pd, r->addr, r->length, r->iova, r->access);
	inside = was_inside;
	return mr;
}

/*
 * Watch memory before it is registered, if that is possible. What is on demand
 * follows the mapping, and is never stale.
 */
static void watch(struct guard *guard, const struct request *r)
{
	memset(guard, 0, sizeof(*guard));
	if (r->addr && r->length && !(r->access & IBV_ACCESS_ON_DEMAND))
		guard_watch(guard, r);
}

/*
 * Have libibverbs register, and watch if that is possible. @guard holds nothing
 * if this fails.
 */
static struct ibv_mr *pass_on(struct guard *guard, enum form form,
			      const struct request *r, const void *caller)
{
	struct ibv_mr *mr;
	int err;

	watch(guard, r);
	mr = call_next(form, r, caller);
	if (mr) {
		count(&counted.passed);
		return mr;
	}
	err = errno;
	guard_end(guard);
	errno = err;
	return NULL;
}

static struct ibv_mr *register_passed(enum form form, const struct request *r,
				      const void *caller)
{
	struct reg *reg = calloc(1, sizeof(*reg));
	struct ibv_mr *mr;

	if (!reg)
		return call_next(form, r, caller);
	mr = pass_on(&reg->guard, form, r, caller);
	if (!mr || !reg->guard.device) {
		free(reg);
		return mr;
	}
	reg->shown = mr;
	reg->access = r->access;
	table_add(reg);
	return mr;
}

/*
 * Guarding
 */

static bool is_guardable(const struct request *r)
{
	if (!r->addr || !r->length)
		say("an MR of no memory", "it is passed on");
	else if (r->access & ~(unsigned int)GUARDED_ACCESS)
		say("an MR with MW_BIND, ON_DEMAND or other flags",
		    "it is passed on");
	else
		return true;
	return false;
}

/* Returns 0, or -errno if it can't be guarded. */
static int guard_memory(struct guard *guard, const struct request *r,
			const void *caller)
{
	typeof(ibv_reg_dmabuf_mr) *reg_dmabuf;

	if (!is_guardable(r))
		return -EOPNOTSUPP;
	reg_dmabuf = next(REG_DMABUF_MR, caller);
	if (!reg_dmabuf) {
		say("this libibverbs", "it registers no dma-bufs");
		return -EOPNOTSUPP;
	}
	if (adapters)
		adapters(caller, r->addr, r->length);
	return guard_make(guard, r, reg_dmabuf);
}

/* In strict mode this is the errno for what can't be guarded. */
static int strict_errno(int err)
{
	return err == -ENOMEM ? ENOMEM : EOPNOTSUPP;
}

/* Let the program see what it has. */
static void show(struct reg *reg, const struct request *r)
{
	const struct memreg_export_mr *verbs = &reg->guard.verbs;

	reg->mr = (struct ibv_mr) {
		.context = r->pd->context,
		.pd = r->pd,
		.addr = r->addr,
		.length = r->length,
		.handle = verbs->mr ? verbs->mr->handle : verbs->handle,
		.lkey = verbs->lkey,
		.rkey = verbs->rkey,
	};
	reg->access = r->access;
	reg->iova = r->iova;
	reg->shown = &reg->mr;
}

static struct reg *register_guarded(const struct request *r, const void *caller,
				    int *err)
{
	struct reg *reg = calloc(1, sizeof(*reg));

	*err = reg ? guard_memory(&reg->guard, r, caller) : -ENOMEM;
	if (*err) {
		free(reg);
		return NULL;
	}
	count(&counted.guarded);
	show(reg, r);
	table_add(reg);
	return reg;
}

static struct ibv_mr *reg_mr(enum form form, const struct request *r,
			     const void *caller)
{
	enum mode asked = begin();
	struct reg *reg;
	int err;

	if (inside || asked == OFF)
		return call_next(form, r, caller);
	reg = register_guarded(r, caller, &err);
	if (reg)
		return reg->shown;
	if (asked == FALLBACK)
		return register_passed(form, r, caller);
	errno = strict_errno(err);
	return NULL;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	const struct request r = { pd, addr, length, (uintptr_t)addr,
				   (unsigned int)access };

	return reg_mr(REG_MR, &r, __builtin_return_address(0));
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
			       uint64_t iova, int access)
{
	const struct request r = { pd, addr, length, iova,
				   (unsigned int)access };

	return reg_mr(REG_MR_IOVA, &r, __builtin_return_address(0));
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	const struct request r = { pd, addr, length, iova, access };

	return reg_mr(REG_MR_IOVA2, &r, __builtin_return_address(0));
}

/* Only for memreg_export_register(3) in this library */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t length, uint64_t iova, int fd,
				 int access)
{
	const void *caller = __builtin_return_address(0);
	typeof(ibv_reg_dmabuf_mr) *found = next(REG_DMABUF_MR, caller);

	return found ? found(pd, offset, length, iova, fd, access) : NULL;
}

/*
 * Deregistering
 */

static void end(struct guard *guard)
{
	if (guard_is_stale(guard))
		count(&counted.stale);
	guard_end(guard);
}

static bool is_own(const struct reg *reg)
{
	return reg->shown == &reg->mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	const void *caller = __builtin_return_address(0);
	typeof(ibv_dereg_mr) *found = next(DEREG_MR, caller);
	struct reg *reg;
	int ret;

	if (!found)
		return ENOSYS;
	begin();
	/* Once it is deregistered another one may have the same address. */
	reg = table_take(mr);
	if (!reg)
		return found(mr);
	ret = is_own(reg) ?
	      -memreg__export_deregister(found, &reg->guard.verbs) : found(mr);
	if (ret) {
		table_add(reg);
		return ret;
	}
	end(&reg->guard);
	free(reg);
	return 0;
}

/*
 * Registering anew
 */

static bool is_rereg_valid(int flags, const struct request *r)
{
	if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		return false;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!r->length || !r->addr))
		return false;
	return !r->access || flags & IBV_REREG_MR_CHANGE_ACCESS;
}

/* Fill in what does not change. */
static void keep(struct request *r, int flags, const struct reg *reg)
{
	if (!(flags & IBV_REREG_MR_CHANGE_PD))
		r->pd = reg->shown->pd;
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		r->access = reg->access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		return;
	r->addr = reg->shown->addr;
	r->length = reg->shown->length;
	r->iova = reg->iova;
}

/* Guard it, or have libibverbs register it behind the program's structure. */
static int register_behind(struct guard *guard, const struct request *r,
			   const void *caller)
{
	int err = guard_memory(guard, r, caller);

	if (!err) {
		count(&counted.guarded);
		return 0;
	}
	if (mode == STRICT)
		return -strict_errno(err);
	guard->verbs.mr = pass_on(guard, REG_MR_IOVA2, r, caller);
	if (!guard->verbs.mr)
		return -errno;
	guard->verbs.lkey = guard->verbs.mr->lkey;
	guard->verbs.rkey = guard->verbs.mr->rkey;
	return 0;
}

/* The new registration is complete before the old one goes. */
static int rereg_own(struct reg *reg, int flags, struct request *r,
		     const void *caller)
{
	typeof(ibv_dereg_mr) *dereg = next(DEREG_MR, caller);
	struct guard new;
	int err;

	if (!dereg || !is_rereg_valid(flags, r)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	keep(r, flags, reg);
	/* A provider binds windows to structures of its own. */
	err = r->access & IBV_ACCESS_MW_BIND ? -EOPNOTSUPP :
	      register_behind(&new, r, caller);
	if (err) {
		errno = -err;
		return IBV_REREG_MR_ERR_CMD;
	}
	err = memreg__export_deregister(dereg, &reg->guard.verbs);
	if (err) {
		memreg__export_deregister(dereg, &new.verbs);
		guard_end(&new);
		errno = -err;
		return IBV_REREG_MR_ERR_CMD;
	}
	end(&reg->guard);
	reg->guard = new;
	show(reg, r);
	return 0;
}

static int rereg_next(struct ibv_mr *mr, int flags, const struct request *r,
		      const void *caller)
{
	typeof(ibv_rereg_mr) *found = next(REREG_MR, caller);

	return found ? found(mr, flags, r->pd, r->addr, r->length,
			     (int)r->access) : IBV_REREG_MR_ERR_CMD;
}

/* Of a registration that was passed on, the watch is made anew. */
static int rereg_passed(struct reg *reg, int flags, const struct request *r,
			const void *caller)
{
	struct request now = *r;
	struct guard new;
	int ret, err;

	keep(&now, flags, reg);
	watch(&new, &now);
	ret = rereg_next(reg->shown, flags, r, caller);
	err = errno;
	if (ret) {
		guard_end(&new);
	} else {
		end(&reg->guard);
		reg->guard = new;
		reg->access = now.access;
	}
	errno = err;
	return ret;
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access)
{
	const void *caller = __builtin_return_address(0);
	struct request r = { pd, addr, length, (uintptr_t)addr,
			     (unsigned int)access };
	struct reg *reg;
	int ret;

	begin();
	reg = table_take(mr);
	if (!reg)
		return rereg_next(mr, flags, &r, caller);
	ret = is_own(reg) ? rereg_own(reg, flags, &r, caller) :
			    rereg_passed(reg, flags, &r, caller);
	table_add(reg);
	return ret;
}

void memreg_verbs_query(struct memreg_verbs_stat *stat)
{
	*stat = (struct memreg_verbs_stat) {
		.guarded = __atomic_load_n(&counted.guarded, __ATOMIC_RELAXED),
		.passed = __atomic_load_n(&counted.passed, __ATOMIC_RELAXED),
		.stale = __atomic_load_n(&counted.stale, __ATOMIC_RELAXED) +
			 table_stale(),
	};
}
