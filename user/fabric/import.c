// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Making memreg the memory monitor of libfabric.
 *
 * This library is not linked to libfabric: a program that does not use it loads
 * nothing, and one that does gets the libfabric that it would have got. It
 * stands in front of fi_getinfo(3), which programs call before they open a
 * domain, and has the libfabric that the call is for import the monitor. A
 * process may have several.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <rdma/fi_errno.h>

#include "memreg-fabric.h"
#include "memreg.h"
#include "monitor.h"
#include "next.h"
#include "pins.h"

/* Copies of libfabric in one process; any more keep their own monitors. */
#define COPIES	8

/**
 * struct copy - A libfabric
 * @open: Its function fi_open(), which identifies it
 * @monitor: The monitor that it imports
 * @ret: 0 if it has imported that, or -errno
 */
struct copy {
	typeof(fi_open) *open;
	struct fid_mem_monitor monitor;
	int ret;
};

static struct copy copies[COPIES];
static unsigned int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

EXPORT typeof(fi_getinfo) fi_getinfo;

static int refuse(const struct copy *copy, int err, const char *why)
{
	fprintf(stderr, "libmemreg-fabric: not in use: %s: %s\n",
		next_path((const void *)copy->open), why);
	return err;
}

/* fi_import(3), of one libfabric */
static int open_and_import(struct copy *copy)
{
	struct fid *cache;
	int ret;

	ret = copy->open(FI_VERSION(1, 13), "mr_cache", NULL, 0, 0, &cache,
			 NULL);
	if (ret)
		return ret;
	ret = fi_import_fid(cache, &copy->monitor.fid, 0);
	fi_close(cache);
	return ret;
}

static int import(struct copy *copy)
{
	int ret;

	/* libfabric would silently use the monitor that the variable names. */
	if (getenv("FI_MR_CACHE_MONITOR"))
		return refuse(copy, -EBUSY, "FI_MR_CACHE_MONITOR is set");
	ret = monitor_prepare();
	if (ret)
		return refuse(copy, ret, memreg_reason());
	copy->monitor.fid.fclass = FI_CLASS_MEM_MONITOR;
	copy->monitor.export_ops = monitor_ops();
	ret = open_and_import(copy);
	if (ret == -FI_EBUSY)
		return refuse(copy, -EBUSY,
			      "a domain is open, or there is another monitor");
	if (ret)
		return refuse(copy, -ENOSYS, "it imports no monitors");
	return 0;
}

static struct copy *find_copy(typeof(fi_open) *open)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (copies[i].open == open)
			return &copies[i];
	return NULL;
}

/* The lock is held. */
static int import_once(typeof(fi_open) *open, bool again)
{
	struct copy *copy = find_copy(open);

	if (copy && (!copy->ret || !again))
		return copy->ret;
	if (!copy && count == COPIES)
		return -ENOSPC;
	copy = copy ?: &copies[count++];
	copy->open = open;
	copy->ret = import(copy);
	return copy->ret;
}

/* Before libfabric's own, which may look for RDMA devices */
static void import_into(const void *fabric)
{
	static __thread bool importing;
	typeof(fi_open) *open = next_in(fabric, "fi_open");

	/* libfabric calls it from within, too. */
	if (importing)
		return;
	importing = true;
	pthread_mutex_lock(&lock);
	if (open)
		import_once(open, false);
	pthread_mutex_unlock(&lock);
	importing = false;
}

int fi_getinfo(uint32_t version, const char *node, const char *service,
	       uint64_t flags, const struct fi_info *hints,
	       struct fi_info **info)
{
	static struct next next = { .name = "fi_getinfo" };
	typeof(fi_getinfo) *real = next_of(&next, __builtin_return_address(0));

	if (!real)
		return -FI_ENOSYS;
	import_into((const void *)real);
	return real(version, node, service, flags, hints, info);
}

/*
 * A program may have taken functions from libfabric by dlsym(3), or have loaded
 * it with RTLD_DEEPBIND: then it does not call the one above.
 */
static void saw_pin(const void *caller)
{
	static const void *last;
	typeof(fi_open) *open;
	bool missed;

	if (__atomic_exchange_n(&last, caller, __ATOMIC_RELAXED) == caller)
		return;
	open = next_in(caller, "fi_open");
	if (!open)
		return;
	pthread_mutex_lock(&lock);
	missed = !find_copy(open);
	if (missed && count < COPIES) {
		copies[count].open = open;
		copies[count].ret = refuse(&copies[count], -EBUSY,
					   "fi_getinfo() was not called here");
		count++;
	}
	pthread_mutex_unlock(&lock);
}

void before_pin(const void *caller, const void *addr, size_t length)
{
	saw_pin(caller);
	monitor_before_pin(addr, length);
}

EXPORT int memreg_fabric_import(void)
{
	const void *caller = __builtin_return_address(0);
	typeof(fi_open) *open = next_find("fi_open", caller);
	int ret;

	if (!open) {
		fprintf(stderr, "libmemreg-fabric: not in use: there is no libfabric\n");
		return -ENOSYS;
	}
	pthread_mutex_lock(&lock);
	ret = import_once(open, true);
	pthread_mutex_unlock(&lock);
	return ret;
}
