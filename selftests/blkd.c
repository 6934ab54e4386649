// SPDX-License-Identifier: GPL-2.0-only
/* memreg blkd, by a client that keeps to the protocol, and one that does not */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blk.h"
#include "kselftest_harness.h"

#define CAPACITY	(4U << 20)
#define PATH		"/dev/shm/memreg-blkd"
#define HALF		(BLK_MEMORY / 4)	/* of the client's data */

static int make_file(off_t size)
{
	int fd = open(PATH, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd >= 0 && ftruncate(fd, size)) {
		close(fd);
		return -errno;
	}
	return fd < 0 ? -errno : fd;
}

FIXTURE(blkd)
{
	struct blk_server server;
	struct blk_client client;
	struct blk_conn conn;
	int fd;
};

FIXTURE_VARIANT(blkd)
{
	const char *args[8];
	bool memory;
};

FIXTURE_VARIANT_ADD(blkd, file)
{
	.args = { PATH },
};

FIXTURE_VARIANT_ADD(blkd, memory)
{
	.args = { "--size", "4M" },
	.memory = true,
};

FIXTURE_SETUP(blkd)
{
	self->fd = make_file(CAPACITY);
	ASSERT_GE(self->fd, 0);
	ASSERT_EQ(0, blk_serve(&self->server, variant->args));
	ASSERT_EQ(0, blk_open(&self->client, &self->server, 0x11));
	ASSERT_EQ(0, blk_connect(&self->client, 1, &self->conn));
}

FIXTURE_TEARDOWN(blkd)
{
	blk_disconnect(&self->conn);
	blk_close(&self->client);
	EXPECT_EQ(0, blk_end(&self->server));
	close(self->fd);
	unlink(PATH);
}

TEST_F(blkd, reads_and_writes_move_the_right_bytes)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
		unsigned int out, in;
	} cases[] = {
		{ 0, 512, 1, 1 },
		{ 4096, 4096, 1, 1 },
		{ 1536, 8192, 3, 1 },
		{ CAPACITY - 65536, 65536, 4, 5 },
		{ 512, 262144 - 512, 16, 16 },
		{ 4096, HALF, 2, 1 },
	};
	uint8_t *mem = self->client.mem;
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		uint32_t length = cases[i].length;

		fill(mem, length, i);
		ASSERT_EQ(0, blk_write(&self->conn, cases[i].offset, length, 0,
				       cases[i].out));
		memset(mem + HALF, 0xee, HALF);
		ASSERT_EQ(0, blk_read(&self->conn, cases[i].offset, length,
				      HALF, cases[i].in));
		ASSERT_TRUE(filled(mem + HALF, length, 0, i));
		if (length < HALF)
			ASSERT_EQ(0xee, mem[HALF + length]);
	}
}

TEST_HARNESS_MAIN
