// SPDX-License-Identifier: GPL-2.0-only
/*
 * Long-lived mappings are never synced: what would need that is refused, and
 * nothing else. The adapter of the test bench can have the DMA API tell that
 * all mappings need syncs, as it does with DMA_API_DEBUG or after one bounce
 * buffer (need_sync), and can fail all mappings that are to be coherent, as if
 * they needed bounce buffers (bounce).
 */
#include <stdio.h>
#include <unistd.h>

#include "fake.h"
#include "harness.h"
#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define ADAPTER	"/sys/module/rdma_rxe/parameters/"

FIXTURE(coherent) {
	int fd;
	__u32 domain;
	void *memory;
};

FIXTURE_SETUP(coherent)
{
	if (access(ADAPTER "bounce", F_OK))
		SKIP(return, "the device's mappings are as they are");
	self->fd = raw_open_bound();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, raw_domain(self->fd, &self->domain));
	self->memory = mem_alloc(4 * PAGE);
	ASSERT_NE(NULL, self->memory);
}

FIXTURE_TEARDOWN(coherent)
{
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin(0));
}

static bool is_set(const char *parameter)
{
	FILE *file = fopen(parameter, "r");
	bool ret = file && fgetc(file) == 'Y';

	if (file)
		fclose(file);
	return ret;
}

/* User memory is refused if it would be bounced. */
TEST_F(coherent, I8_user_memory_that_would_be_bounced)
{
	struct state before;
	__u32 mr;

	ASSERT_EQ(0, state_get(&before));
	if (is_set(ADAPTER "bounce"))
		EXPECT_FAIL(EOPNOTSUPP, NOT_COHERENT,
			    raw_register(self->fd, self->domain, self->memory,
					 4 * PAGE, REMOTE_READ, &mr));
	else
		EXPECT_EQ(0, raw_register(self->fd, self->domain, self->memory,
					  4 * PAGE, REMOTE_READ, &mr) ?:
			     raw_destroy(self->fd, mr));
	EXPECT_TRUE(state_same(&before));
	state_free(&before);
}

/* Memory of other exporters, which map it, is taken. */
TEST_F(coherent, memory_of_other_exporters)
{
	struct ib_memreg_mr_register mr;
	int dmabuf = udmabuf_export(4 * PAGE);

	if (dmabuf < 0)
		SKIP(return, "there is no udmabuf");
	ASSERT_EQ(0, raw_register_fd(self->fd, self->domain, dmabuf, 0,
				     4 * PAGE, REMOTE_READ, &mr));
	EXPECT_EQ(0, raw_destroy(self->fd, mr.out_mr_id));
	EXPECT_EQ(0, close(dmabuf));
}

TEST_HARNESS_MAIN
