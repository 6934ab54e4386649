// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include <infiniband/verbs.h>
#include <memreg.h>

#define LENGTH	65536

/* The cache that there is; it has one entry, and now a watch with it. */
struct entry {
	void *addr;
	struct ibv_mr *mr;
	struct memreg_watch watch;
};

static void forget(struct memreg_status *status, struct entry *entry)
{
	ibv_dereg_mr(entry->mr);
	memreg_unwatch(status, &entry->watch, 1);
	entry->mr = NULL;
}

static int fill_in(struct memreg_status *status, struct ibv_pd *pd,
		   struct entry *entry)
{
	const struct memreg_range range = {
		.addr = entry->addr,
		.length = LENGTH,
		.access = IB_MEMREG_ACCESS_LOCAL_WRITE,
	};
	int ret = memreg_watch(status, &range, 1, &entry->watch);

	if (ret)
		return ret;
	entry->mr = ibv_reg_mr(pd, entry->addr, LENGTH, IBV_ACCESS_LOCAL_WRITE);
	if (entry->mr)
		return 0;
	ret = -errno;
	memreg_unwatch(status, &entry->watch, 1);
	return ret;
}

/* Memory that changes between watching and looking is registered again. */
static int get(struct memreg_status *status, struct ibv_pd *pd,
	       struct entry *entry)
{
	int ret = 0;

	while (!ret && (!entry->mr || !memreg_watch_ok(&entry->watch))) {
		if (entry->mr)
			forget(status, entry);
		ret = fill_in(status, pd, entry);
	}
	return ret;
}

static void *map(void *at, int flags)
{
	return mmap(at, LENGTH, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *device = list && *list ? ibv_open_device(*list) :
						     NULL;
	struct ibv_pd *pd = device ? ibv_alloc_pd(device) : NULL;
	struct entry entry = { .addr = map(NULL, 0) };
	struct memreg_status *status;
	struct memreg *m;
	uint32_t first;

	if (!pd || memreg_open_unbound(&m) ||
	    memreg_status_create(m, 1024, 0, &status) ||
	    get(status, pd, &entry))
		return 1;
	first = entry.mr->rkey;
	if (get(status, pd, &entry) || entry.mr->rkey != first)
		return 1;
	munmap(entry.addr, LENGTH);
	map(entry.addr, MAP_FIXED);
	if (get(status, pd, &entry))
		return 1;
	printf("%s\n", entry.mr->rkey == first ? "stale" : "registered anew");
	forget(status, &entry);
	memreg_status_destroy(status);
	memreg_close(m);
	return 0;
}
