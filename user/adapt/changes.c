// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A status table with a log of all changes of the address space */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "changes.h"

/* Changes that the log keeps for a thread that sleeps, of 16 bytes each */
#define LOG_ENTRIES	16384
#define BATCH		64

/*
 * Change the address space, so that the table has counted a change: only a
 * table that is not of this process has 0.
 */
static int make_first_change(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return at == MAP_FAILED || munmap(at, page) ? -errno : 0;
}

static int make_table(struct changes *c, uint32_t slots)
{
	const struct memreg_range everything = {
		.flags = IB_MEMREG_MONITOR_WIDE,
	};
	int ret;

	ret = memreg_open_unbound(&c->m);
	if (ret)
		return ret;
	/* one more, for the wide watch */
	ret = memreg_status_create(c->m, slots + 1, LOG_ENTRIES, &c->status);
	if (ret)
		goto close_handle;
	ret = memreg_watch(c->status, &everything, 1, &c->wide);
	if (ret)
		goto destroy_status;
	ret = make_first_change();
	if (ret)
		goto unwatch;
	return 0;

unwatch:
	memreg_unwatch(c->status, &c->wide, 1);
destroy_status:
	memreg_status_destroy(c->status);
close_handle:
	memreg_close(c->m);
	return ret;
}

int changes_open(struct changes *c, uint32_t slots)
{
	struct changes new = {};
	int ret;

	c->owner = getpid();
	ret = make_table(&new, slots);
	if (ret)
		return ret;
	c->m = new.m;
	c->wide = new.wide;
	__atomic_store_n(&c->status, new.status, __ATOMIC_RELEASE);
	return 0;
}

void changes_close(struct changes *c)
{
	if (!c->status)
		return;
	/*
	 * A child process only unmaps the table and closes its descriptor; the
	 * table is the parent's.
	 */
	if (c->owner == getpid())
		memreg_unwatch(c->status, &c->wide, 1);
	memreg_status_destroy(c->status);
	memreg_close(c->m);
	c->status = NULL;
	c->m = NULL;
}

uint64_t changes_position(const struct changes *c)
{
	struct memreg_status_info info;

	memreg_status_query(c->status, &info);
	return info.logged;
}

int changes_settle(const struct changes *c, const void *addr, size_t length)
{
	struct memreg_range range = {
		.addr = (void *)(uintptr_t)addr,
		.length = length,
	};
	struct memreg_status *status = changes_status(c);
	struct memreg_watch watch;
	int ret = -ENODEV;

	if (status)
		ret = memreg_watch(status, &range, 1, &watch);
	return ret ?: memreg_unwatch(status, &watch, 1);
}

static bool overlaps(const struct ib_memreg_change *change, uint64_t start,
		     uint64_t end)
{
	return change->start < end && change->end > start;
}

bool changes_since(const struct changes *c, uint64_t position, uint64_t start,
		   uint64_t end)
{
	struct ib_memreg_change some[BATCH];
	unsigned int i, n;

	do {
		n = BATCH;
		if (memreg_status_log(c->status, &position, some, &n))
			return true;
		for (i = 0; i < n; i++)
			if (overlaps(&some[i], start, end))
				return true;
	} while (n == BATCH);
	return false;
}
