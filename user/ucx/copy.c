// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The copies of UCX in a process.
 *
 * A copy is recognised by its functions, which may be in files of any names, by
 * the version that goes with them, and by what it does: before its first cache
 * is made, a cache of the adapter's own shows that memory that was unmapped is
 * not found again.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "copy.h"

#define BATCH	64

/* No cache is larger. */
#define CACHE_SIZE_MAX	65536

/* The cache that this thread is making a proof with, and what was learnt */
static __thread const void *proving;
static __thread size_t learnt;

static bool is_known(void (*get_version)(unsigned int *major,
					 unsigned int *minor,
					 unsigned int *release))
{
	unsigned int major, minor, release;

	get_version(&major, &minor, &release);
	return major == UCX_MAJOR && minor >= UCX_MINOR_MIN &&
	       minor <= UCX_MINOR_MAX;
}

bool copy_knows_caller(const void *caller)
{
	void *get_version = next_in(caller, "ucp_get_version");

	return !get_version || is_known(get_version);
}

const char *copy_find(struct copy *copy, typeof(ucs_rcache_create) *create)
{
	void *version;

	copy->create = create;
	copy->destroy = next_in(create, "ucs_rcache_destroy");
	copy->get = next_in(create, "ucs_rcache_get");
	copy->put = next_in(create, "ucs_rcache_region_put");
	copy->pgtable_lookup = next_in(create, "ucs_pgtable_lookup");
	copy->vm_munmap = next_find("ucm_vm_munmap", create);
	copy->set_external_event = next_find("ucm_set_external_event", create);
	if (!copy->destroy || !copy->get || !copy->put ||
	    !copy->pgtable_lookup || !copy->vm_munmap ||
	    !copy->set_external_event)
		return "functions of it were not found";
	version = next_beside("ucs_rcache_create", create, "ucp_get_version");
	return version && is_known(version) ? NULL :
					      "its version is not known";
}

void copy_learn(const void *pgtable)
{
	size_t offset = (uintptr_t)pgtable - (uintptr_t)proving;

	if (proving && offset < CACHE_SIZE_MAX)
		learnt = offset;
}

/*
 * The cache of the proof
 */

static signed char count_reg(void *context, void *rcache, void *arg,
			     void *region, uint16_t flags)
{
	(void)rcache;
	(void)arg;
	(void)region;
	(void)flags;
	++*(unsigned int *)context;
	return UCS_OK;
}

static void no_dereg(void *context, void *rcache, void *region)
{
	(void)context;
	(void)rcache;
	(void)region;
}

static void no_merge(void *context, void *rcache, void *arg, void *region)
{
	(void)arg;
	no_dereg(context, rcache, region);
}

static void no_dump(void *context, void *rcache, void *region, char *buf,
		    size_t max)
{
	no_dereg(context, rcache, region);
	if (max)
		*buf = 0;
}

static const struct ucx_rcache_ops ops = {
	.mem_reg = count_reg,
	.mem_dereg = no_dereg,
	.merge = no_merge,
	.dump_region = no_dump,
};

/* Look memory up. Returns false if UCX fails. */
static bool look_up(const struct copy *copy, void *rcache, void *at,
		    size_t length)
{
	void *region;

	if (copy->get(rcache, at, length, 1, PROT_READ | PROT_WRITE, NULL,
		      &region) != UCS_OK)
		return false;
	copy->put(rcache, region);
	return true;
}

/*
 * Map memory where other memory was, or anywhere, by system calls, which no
 * hook sees.
 */
static void *map(void *at, size_t length)
{
	long got = syscall(SYS_mmap, at, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE |
			   (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);

	return got < 0 && got > -4096 ? NULL : (void *)got;
}

/* Unmap memory, and report what was logged since, as is done later. */
static bool unmap_and_report(const struct copy *copy, struct changes *changes,
			     void *at, size_t length)
{
	uint64_t position = changes_position(changes);
	struct ib_memreg_change some[BATCH];
	unsigned int i, n;

	if (syscall(SYS_munmap, at, length))
		return false;
	do {
		n = BATCH;
		if (memreg_status_log(changes->status, &position, some, &n))
			return false;
		for (i = 0; i < n; i++)
			copy->vm_munmap((void *)(uintptr_t)some[i].start,
					some[i].end - some[i].start);
	} while (n == BATCH);
	return true;
}

static const char *prove(struct copy *copy, struct changes *changes,
			 void *rcache, const unsigned int *registered,
			 void **at, size_t length)
{
	if (!*at || !look_up(copy, rcache, *at, length) ||
	    !look_up(copy, rcache, *at, length) || *registered != 1)
		return "a cache of it keeps nothing";
	if (!learnt)
		return "its lookups don't pass here";
	copy->pgtable = learnt;
	if (!unmap_and_report(copy, changes, *at, length))
		return "the log has lost changes";
	*at = map(*at, length);
	if (!*at || !look_up(copy, rcache, *at, length))
		return "a cache of it can't be looked up";
	return *registered == 2 ? NULL : "it does not see changes";
}

const char *copy_prove(struct copy *copy, struct changes *changes,
		       void *stats_parent)
{
	size_t length = (size_t)sysconf(_SC_PAGESIZE);
	unsigned int registered = 0;
	const struct ucx_rcache_params params = {
		.region_struct_size = UCX_REGION_SIZE,
		.ucm_events = UCM_EVENT_VM_UNMAPPED | UCM_EVENT_FLAG_NO_INSTALL,
		.ucm_event_priority = 1000,
		.ops = &ops,
		.context = &registered,
		.flags = UCS_RCACHE_FLAG_NO_PFN_CHECK,
		.max_regions = ULONG_MAX,
		.max_size = SIZE_MAX,
		.max_unreleased = SIZE_MAX,
	};
	const char *wrong;
	void *rcache, *at;

	if (copy->create(&params, "memreg", stats_parent, &rcache) != UCS_OK)
		return "it makes no cache";
	at = map(NULL, length);
	learnt = 0;
	proving = rcache;
	wrong = prove(copy, changes, rcache, &registered, &at, length);
	proving = NULL;
	copy->destroy(rcache);
	if (at)
		syscall(SYS_munmap, at, length);
	return wrong;
}
