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
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
	ret = fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, hints, &self->info);
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

TEST_F(fabric, open_domain_is_refused)
{
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
