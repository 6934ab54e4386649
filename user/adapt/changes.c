// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A status table with a log of all changes of the address space */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "changes.h"

/* Changes that the log keeps for a thread that sleeps, of 16 bytes each */
#define LOG_ENTRIES	IB_MEMREG_STATUS_LOG_MAX
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
	c->epoch++;
	__atomic_store_n(&c->status, new.status, __ATOMIC_RELEASE);
	return 0;
}

/* Names of the files of a table and of a handle */
#define STATUS_FILE	"anon_inode:[memreg-status]"
#define MEMREG_FILE	"/dev/infiniband/memreg"

/* Does a descriptor still lead to the file that is named so? */
static bool leads_to(int fd, const char *name)
{
	char path[32], link[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link));
	return n == (ssize_t)strlen(name) && !memcmp(link, name, (size_t)n);
}

void changes_close_in_child(struct changes *c)
{
	if (!c->status)
		return;
	/*
	 * The table is the parent's: only its mapping and the descriptors go.
	 * If the parent has closed these, they may be the program's own by now.
	 */
	if (leads_to(memreg_status_fd(c->status), STATUS_FILE) &&
	    leads_to(memreg_fd(c->m), MEMREG_FILE)) {
		memreg_status_destroy(c->status);
		memreg_close(c->m);
	}
	c->status = NULL;
	c->m = NULL;
}

static bool is_dead(const struct memreg_status *status)
{
	struct memreg_status_info info;

	memreg_status_query(status, &info);
	return info.state == IB_MEMREG_STATUS_DEAD;
}

bool changes_are_over(const struct changes *c)
{
	if (c->owner != getpid())
		return true;
	return c->status && is_dead(c->status);
}

int changes_renew(struct changes *c, uint32_t slots)
{
	/*
	 * The table stays mapped, as other threads may be looking at it.
	 * Nothing is closed: the descriptors are closed, or their numbers are
	 * those of files of the program.
	 */
	__atomic_store_n(&c->status, NULL, __ATOMIC_RELEASE);
	c->m = NULL;
	return changes_open(c, slots);
}

uint64_t changes_position(const struct changes *c)
{
	struct memreg_status_info info;

	memreg_status_query(c->status, &info);
	return info.logged;
}

int changes_await(const struct changes *c, const void *addr, size_t length)
{
	struct memreg_range range = {
		.addr = (void *)(uintptr_t)addr,
		.length = length,
	};
	struct memreg_status *status = changes_status(c);
	struct memreg_watch watch;
	int ret = -ENODEV;

	/* The descriptors of a table that is over may be those of others. */
	if (status && c->owner == getpid() && !is_dead(status))
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
