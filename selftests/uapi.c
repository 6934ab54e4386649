// SPDX-License-Identifier: GPL-2.0-only
/*
 * The form of the ABI: sizes, unknown numbers and flags, reserved fields, bad
 * pointers, ids of the wrong type. Each call that fails has the documented
 * errno and reason, and has changed nothing. Runs as a 32-bit program, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include "kselftest_harness.h"
#include "memreg_fixture.h"

FIXTURE(unbound) {
	int fd;
};

FIXTURE_SETUP(unbound)
{
	self->fd = raw_open();
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(unbound)
{
	EXPECT_EQ(0, close(self->fd));
}

TEST_F(unbound, binds_and_tells_of_the_device)
{
	RAW(bind_device, bind);
	RAW(query, query);

	strcpy(bind.name, test_device());
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_BIND_DEVICE, &bind));
	EXPECT_STREQ(test_device(), bind.name);
	ASSERT_EQ(0, raw_call(self->fd, IB_MEMREG_IOC_QUERY, &query));
	EXPECT_EQ(bind.out_index, query.out_index);
	EXPECT_STREQ(test_device(), query.out_name);
	EXPECT_LE(1, query.out_ports);
	EXPECT_LE(18, query.count);
}

TEST_F(unbound, registers_and_grants)
{
	struct ib_memreg_bind bind = {};
	__u32 domain, mr, window;
	void *addr;

	ASSERT_EQ(0, raw_bind_device(self->fd, test_device()));
	ASSERT_EQ(0, raw_domain(self->fd, &domain));
	addr = mem_alloc(16 * PAGE);
	ASSERT_NE(NULL, addr);
	ASSERT_EQ(0, raw_register(self->fd, domain, addr, 16 * PAGE,
				  LOCAL_WRITE | MW_BIND | REMOTE_READ, &mr));
	EXPECT_EQ(16, vm_pin(0));
	ASSERT_EQ(0, raw_windows(self->fd, domain, 8 * PAGE, &window, 1));
	bind.window_id = window;
	bind.mr_id = mr;
	bind.offset = 1000;
	bind.length = 5000;
	bind.access = REMOTE_READ;
	ASSERT_EQ(0, raw_bind(self->fd, domain, &bind, 1));
	EXPECT_EQ((uintptr_t)addr + 1000, bind.out_iova);
	EXPECT_NE(0, bind.out_rkey);
	ASSERT_EQ(0, raw_revoke(self->fd, domain, &window, 1));
	ASSERT_EQ(0, raw_destroy(self->fd, window));
	ASSERT_EQ(0, raw_destroy(self->fd, mr));
	EXPECT_EQ(0, vm_pin(0));
	ASSERT_EQ(0, raw_destroy(self->fd, domain));
}

TEST_HARNESS_MAIN
