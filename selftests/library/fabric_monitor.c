// SPDX-License-Identifier: GPL-2.0-only
/*
 * libmemreg-fabric, with the verbs provider of libfabric: which registrations
 * stay cached. A registration was cached if it has the key of the one before.
 *
 * This program stands in front of ibv_reg_mr(3), as does the library behind it,
 * so that memory changes just when it must not.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "test.h"

#ifndef HAVE_LIBFABRIC

TEST(libfabric)
{
	SKIP(return, "libfabric-dev is not installed");
}

#else

#include <infiniband/verbs.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include "../../user/fabric/memreg-fabric.h"

/* The header has a macro in front of it. */
#undef ibv_reg_mr

#define LENGTH	(16 * PAGE)
#define ACCESS	(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | \
		 FI_REMOTE_WRITE)

static bool change_before, change_after;

static void change(void *at)
{
	madvise(at, LENGTH, MADV_DONTNEED);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	typeof(ibv_reg_mr) *next = dlsym(RTLD_NEXT, "ibv_reg_mr");
	struct ibv_mr *mr;

	if (change_before)
		change(addr);
	mr = next(pd, addr, length, access);
	if (change_after)
		change(addr);
	return mr;
}

FIXTURE(fabric) {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	char *mem;
};

/* fi_getinfo() that the domain is opened with: by default the adapter's */
static typeof(fi_getinfo) *getinfo = fi_getinfo;

static int open_domain(FIXTURE_DATA(fabric) *self)
{
	struct fi_info *hints = fi_allocinfo();
	int ret;

	hints->fabric_attr->prov_name = strdup("verbs");
	hints->domain_attr->name = strdup(test_device());
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG | FI_RMA;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->mode = ~0ULL;
	ret = getinfo(FI_VERSION(1, 18), NULL, NULL, 0, hints, &self->info);
	fi_freeinfo(hints);
	ret = ret ?: fi_fabric(self->info->fabric_attr, &self->fabric, NULL);
	return ret ?: fi_domain(self->fabric, self->info, &self->domain, NULL);
}

FIXTURE_SETUP(fabric)
{
	change_before = false;
	change_after = false;
	self->mem = mem_alloc(LENGTH);
	ASSERT_NE(NULL, self->mem);
	memset(self->mem, 1, LENGTH);
}

FIXTURE_TEARDOWN(fabric)
{
	if (self->domain)
		EXPECT_EQ(0, fi_close(&self->domain->fid));
	if (self->fabric)
		EXPECT_EQ(0, fi_close(&self->fabric->fid));
	if (self->info)
		fi_freeinfo(self->info);
	mem_free(self->mem, LENGTH);
}

/* Register and release memory. Returns the key, or 0 */
static uint64_t touch(FIXTURE_DATA(fabric) *self, struct fid_domain *domain)
{
	struct fid_mr *mr;
	uint64_t key;

	if (fi_mr_reg(domain, self->mem, LENGTH, ACCESS, 0, 0, 0, &mr, NULL))
		return 0;
	key = fi_mr_key(mr);
	return fi_close(&mr->fid) ? 0 : key;
}

static struct memreg_fabric_stat stat(void)
{
	struct memreg_fabric_stat stat;

	memreg_fabric_query(&stat);
	return stat;
}

TEST_F(fabric, I2_what_has_changed_is_registered_anew)
{
	uint64_t first, second;
	unsigned int i;

	ASSERT_EQ(0, memreg_fabric_import());
	ASSERT_EQ(0, memreg_fabric_import());
	ASSERT_EQ(0, open_domain(self));
	first = touch(self, self->domain);
	ASSERT_NE(0, first);
	for (i = 0; i < test_rounds(300); i++) {
		EXPECT_EQ(first, touch(self, self->domain));
		change(self->mem);
		second = touch(self, self->domain);
		EXPECT_NE(0, second);
		EXPECT_NE(first, second);
		first = second;
	}
	EXPECT_EQ(0, stat().refused);
	EXPECT_EQ(i + 1, stat().subscribed);
	EXPECT_EQ(i, stat().stale);
}

TEST_F(fabric, environment_that_libfabric_obeys_is_refused)
{
	ASSERT_EQ(0, setenv("FI_MR_CACHE_MONITOR", "memhooks", 1));
	EXPECT_EQ(-EBUSY, memreg_fabric_import());
	ASSERT_EQ(0, unsetenv("FI_MR_CACHE_MONITOR"));
	EXPECT_EQ(0, memreg_fabric_import());
}

TEST_F(fabric, program_that_calls_libfabric_need_not_call_it)
{
	uint64_t key;

	ASSERT_EQ(0, open_domain(self));
	key = touch(self, self->domain);
	EXPECT_NE(0, key);
	EXPECT_EQ(key, touch(self, self->domain));
	EXPECT_EQ(1, stat().subscribed);
}

/* As a program does that takes functions by dlsym(3) */
TEST_F(fabric, open_domain_is_refused)
{
	void *fabric = dlopen("libfabric.so.1", RTLD_LAZY | RTLD_NOLOAD);

	getinfo = dlsym(fabric, "fi_getinfo");
	ASSERT_NE(NULL, getinfo);
	ASSERT_EQ(0, open_domain(self));
	EXPECT_EQ(-EBUSY, memreg_fabric_import());
	EXPECT_NE(0, touch(self, self->domain));
	EXPECT_EQ(0, stat().subscribed);
}

TEST_F(fabric, I2_change_behind_the_pin_is_not_kept)
{
	uint64_t key;

	ASSERT_EQ(0, memreg_fabric_import());
	ASSERT_EQ(0, open_domain(self));
	change_after = true;
	key = touch(self, self->domain);
	EXPECT_NE(0, key);
	EXPECT_EQ(1, stat().refused);
	change_after = false;
	EXPECT_NE(key, touch(self, self->domain));
	EXPECT_EQ(1, stat().subscribed);
}

TEST_F(fabric, change_in_front_of_the_pin_is_no_reason)
{
	uint64_t key;

	ASSERT_EQ(0, memreg_fabric_import());
	ASSERT_EQ(0, open_domain(self));
	change_before = true;
	key = touch(self, self->domain);
	change_before = false;
	/* The change came before the registration, so that this is good. */
	EXPECT_EQ(key, touch(self, self->domain));
	EXPECT_EQ(0, stat().refused);
}

TEST_F(fabric, I2_domains_share_a_range)
{
	struct fid_domain *other;
	uint64_t a, b;

	ASSERT_EQ(0, memreg_fabric_import());
	ASSERT_EQ(0, open_domain(self));
	ASSERT_EQ(0, fi_domain(self->fabric, self->info, &other, NULL));
	a = touch(self, self->domain);
	b = touch(self, other);
	EXPECT_EQ(a, touch(self, self->domain));
	EXPECT_EQ(b, touch(self, other));
	EXPECT_EQ(2, stat().subscribed);
	change(self->mem);
	/*
	 * As long as the first domain has a registration from before the
	 * change, the monitor refuses to watch the range for this one.
	 */
	EXPECT_NE(b, touch(self, other));
	EXPECT_EQ(1, stat().refused);
	EXPECT_NE(a, touch(self, self->domain));
	a = touch(self, self->domain);
	b = touch(self, other);
	EXPECT_EQ(a, touch(self, self->domain));
	EXPECT_EQ(b, touch(self, other));
	EXPECT_EQ(1, stat().refused);
	EXPECT_EQ(0, fi_close(&other->fid));
	/* Closing one domain takes no registration from the other. */
	EXPECT_EQ(a, touch(self, self->domain));
}

#define HANDLE_FILE	"/dev/infiniband/memreg"
#define STATUS_FILE	"anon_inode:[memreg-status]"

/* The first descriptor that leads to the file that is named so, or -1 */
static int descriptor_of(const char *name)
{
	char path[32], link[64];
	ssize_t length;
	int fd;

	for (fd = 3; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, link, sizeof(link) - 1);
		link[length < 0 ? 0 : length] = 0;
		if (!strcmp(link, name))
			return fd;
	}
	return -1;
}

/*
 * Close the descriptors of the adapter, and nothing else: a program that closes
 * all has no RDMA any more.
 */
static unsigned int close_descriptors(void)
{
	return !close(descriptor_of(HANDLE_FILE)) +
	       !close(descriptor_of(STATUS_FILE));
}

/* Number of tables that are mapped */
static unsigned int tables(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		n += !!strstr(line, STATUS_FILE);
	if (maps)
		fclose(maps);
	return n;
}

TEST_F(fabric, I2_program_closes_the_descriptors)
{
	uint64_t first, second;

	ASSERT_EQ(0, memreg_fabric_import());
	ASSERT_EQ(0, open_domain(self));
	first = touch(self, self->domain);
	EXPECT_EQ(first, touch(self, self->domain));
	EXPECT_EQ(2, close_descriptors());
	change(self->mem);
	second = touch(self, self->domain);
	EXPECT_NE(first, second);
	/* The table is made anew. */
	first = touch(self, self->domain);
	EXPECT_EQ(first, touch(self, self->domain));
	change(self->mem);
	EXPECT_NE(first, touch(self, self->domain));
}

TEST_F(fabric, tables_whose_descriptors_were_closed_are_unmapped)
{
	unsigned int i;
	uint64_t key;

	ASSERT_EQ(0, memreg_fabric_import());
	ASSERT_EQ(0, open_domain(self));
	for (i = 0; i < 8; i++) {
		key = touch(self, self->domain);
		EXPECT_NE(0, key);
		EXPECT_EQ(key, touch(self, self->domain));
		EXPECT_EQ(1, tables());
		EXPECT_EQ(2, close_descriptors());
		change(self->mem);
	}
}

/*
 * What is forgotten after the program has closed the descriptors ends no watch
 * of the program's own, whose handle has the number of the adapter's by then.
 */
TEST_F(fabric, handle_of_the_program_keeps_its_watches)
{
	struct memreg_watch watches[8] = {};
	struct memreg_range ranges[8];
	struct memreg_status *status;
	struct memreg *m;
	unsigned int i;
	int handle;

	ASSERT_EQ(0, memreg_fabric_import());
	ASSERT_EQ(0, open_domain(self));
	ASSERT_NE(0, touch(self, self->domain));
	ASSERT_EQ(1, stat().subscribed);
	handle = descriptor_of(HANDLE_FILE);
	ASSERT_EQ(2, close_descriptors());
	ASSERT_EQ(0, memreg_open_unbound(&m));
	if (memreg_fd(m) != handle)
		ASSERT_EQ(handle, dup2(memreg_fd(m), handle));
	ASSERT_EQ(0, memreg_status_create(m, 8, 0, &status));
	/* Ids begin anew with each handle, so that these are the adapter's. */
	for (i = 0; i < 8; i++)
		ranges[i] = (struct memreg_range) {
			.addr = self->mem, .length = LENGTH,
		};
	ASSERT_EQ(0, memreg_watch(status, ranges, 8, watches));
	ASSERT_EQ(0, fi_close(&self->domain->fid));
	self->domain = NULL;
	EXPECT_EQ(0, memreg_unwatch(status, watches, 8));
	EXPECT_EQ(0, memreg_status_destroy(status));
	if (memreg_fd(m) != handle)
		close(handle);
	memreg_close(m);
}

TEST_F(fabric, child_begins_anew)
{
	ASSERT_EQ(0, memreg_fabric_import());
	IN_CHILD {
		uint64_t key;

		ASSERT_EQ(0, open_domain(self));
		/* Pages that it has for itself */
		memset(self->mem, 2, LENGTH);
		key = touch(self, self->domain);
		EXPECT_NE(0, key);
		EXPECT_EQ(key, touch(self, self->domain));
		change(self->mem);
		EXPECT_NE(key, touch(self, self->domain));
	}
	ASSERT_EQ(0, open_domain(self));
	EXPECT_NE(0, touch(self, self->domain));
	EXPECT_EQ(1, stat().subscribed);
}

#endif

TEST_HARNESS_MAIN
