// SPDX-License-Identifier: GPL-2.0-only
/*
 * memreg blkd, by a client that keeps to the protocol, and one that does not.
 * Each test has a server of its own.
 * time limit: 480
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blk.h"
#include "fault.h"
#include "harness.h"
#include "mem.h"
#include "memreg.h"
#include "raw.h"
#include "test.h"

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

/* Compare the contents of the file, or of memory by a read */
static bool medium_is(struct blk_conn *conn, uint64_t offset, uint32_t length,
		      unsigned int seed)
{
	uint8_t *mem = conn->client->mem + HALF;

	return !blk_read(conn, offset, length, HALF, 1) &&
	       filled(mem, length, 0, seed);
}

/*
 * Write in several segments, read in several others, and check that nothing
 * beside changes
 */
static bool goes_there_and_back(struct blk_conn *conn)
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
	uint8_t *mem = conn->client->mem;
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		uint32_t length = cases[i].length;

		fill(mem, length, i);
		memset(mem + HALF, 0xee, HALF);
		if (blk_write(conn, cases[i].offset, length, 0, cases[i].out) ||
		    blk_read(conn, cases[i].offset, length, HALF,
			     cases[i].in) ||
		    !filled(mem + HALF, length, 0, i) ||
		    (length < HALF && mem[HALF + length] != 0xee))
			return false;
	}
	return true;
}

TEST_F_TIMEOUT(blkd, reads_and_writes_move_the_right_bytes, LIMIT_S)
{
	EXPECT_TRUE(goes_there_and_back(&self->conn));
}

static bool zeros(const uint8_t *mem, size_t len)
{
	return !len || (!mem[0] && !memcmp(mem, mem + 1, len - 1));
}

static bool becomes_zero(struct blk_conn *conn, uint8_t flags)
{
	uint8_t *mem = conn->client->mem, *in = mem + HALF;

	fill(mem, 65536, flags);
	return !blk_write(conn, 0, 65536, 0, 1) &&
	       !blk_simple(conn, BLK(WRITE_ZEROES), 1536, 40960, flags) &&
	       !blk_read(conn, 0, 65536, HALF, 1) &&
	       filled(in, 1536, 0, flags) && zeros(in + 1536, 40960) &&
	       filled(in + 42496, 65536 - 42496, 42496, flags);
}

TEST_F_TIMEOUT(blkd, zeroes_are_read_and_the_rest_stays, LIMIT_S)
{
	EXPECT_TRUE(becomes_zero(&self->conn, 0));
	EXPECT_TRUE(becomes_zero(&self->conn, BLK(NO_UNMAP)));
}

TEST_F_TIMEOUT(blkd, discard_gives_space_back_and_the_rest_stays, LIMIT_S)
{
	uint8_t *mem = self->client.mem;
	struct stat before, after;
	int ret;

	fill(mem, HALF, 1);
	ASSERT_EQ(0, blk_write(&self->conn, 0, HALF, 0, 1));
	ASSERT_EQ(0, fstat(self->fd, &before));
	ret = blk_simple(&self->conn, BLK(DISCARD), 65536, 262144, 0);
	EXPECT_TRUE(medium_is(&self->conn, 0, 65536, 1));
	if (variant->memory) {
		EXPECT_EQ(BLK(UNSUPPORTED), ret);
		return;
	}
	EXPECT_EQ(0, ret);
	ASSERT_EQ(0, fstat(self->fd, &after));
	EXPECT_EQ(before.st_blocks - 512, after.st_blocks);
}

TEST_F_TIMEOUT(blkd, flush_nop_and_fua_are_answered, LIMIT_S)
{
	struct blk_message msg;
	int fua = variant->memory ? BLK(UNSUPPORTED) : 0;

	EXPECT_EQ(0, blk_simple(&self->conn, BLK(NOP), 0, 0, 0));
	EXPECT_EQ(0, blk_simple(&self->conn, BLK(FLUSH), 0, 0, 0));
	EXPECT_EQ(fua, blk_simple(&self->conn, BLK(WRITE_ZEROES), 0, 512,
				  BLK(FUA)));
	fill(self->client.mem, 4096, 9);
	ASSERT_EQ(0, blk_transfer(&self->conn, BLK(WRITE), 8192, 4096, 0, 1,
				  &msg));
	msg.cmd.flags = BLK(FUA);
	EXPECT_EQ(fua, blk_do(&self->conn, &msg));
	EXPECT_EQ(!variant->memory, medium_is(&self->conn, 8192, 4096, 9));
}

TEST_F_TIMEOUT(blkd, what_is_not_within_the_capacity_is_refused, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	uint8_t *mem = self->client.mem;

	EXPECT_EQ(CAPACITY, conn->welcome.capacity);
	memset(mem, 0x5a, 8192);
	EXPECT_EQ(BLK(RANGE), blk_read(conn, CAPACITY, 512, 0, 1));
	EXPECT_EQ(BLK(RANGE), blk_read(conn, CAPACITY - 512, 1024, 0, 2));
	EXPECT_EQ(BLK(RANGE), blk_write(conn, -512ULL, 1024, 0, 1));
	EXPECT_EQ(BLK(RANGE), blk_write(conn, 1ULL << 40, 512, 0, 1));
	EXPECT_EQ(BLK(RANGE), blk_simple(conn, BLK(WRITE_ZEROES), 512,
					 CAPACITY, 0));
	EXPECT_EQ(0x5a, mem[0]);
	EXPECT_EQ(0x5a, mem[1023]);
	EXPECT_EQ(0, blk_read(conn, CAPACITY - 512, 512, 0, 1));
}

TEST_F_TIMEOUT(blkd, replies_tell_of_a_new_capacity, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;

	if (variant->memory)
		SKIP(return, "it keeps its size");
	ASSERT_EQ(0, ftruncate(self->fd, 2 * CAPACITY + 100));
	EXPECT_EQ(0, blk_simple(conn, BLK(NOP), 0, 0, 0));
	EXPECT_EQ(2 * CAPACITY, conn->welcome.capacity);
	fill(self->client.mem, 4096, 3);
	EXPECT_EQ(0, blk_write(conn, 2 * CAPACITY - 4096, 4096, 0, 1));
	ASSERT_EQ(0, ftruncate(self->fd, CAPACITY / 2));
	EXPECT_EQ(0, blk_simple(conn, BLK(NOP), 0, 0, 0));
	EXPECT_EQ(CAPACITY / 2, conn->welcome.capacity);
	EXPECT_EQ(BLK(RANGE), blk_read(conn, CAPACITY / 2, 512, 0, 1));
}

/* The client's READ may fail before the server has looked at the size. */
TEST_F_TIMEOUT(blkd, a_file_that_shrinks_does_not_hurt, LIMIT_S)
{
	int ret;

	if (variant->memory)
		SKIP(return, "it keeps its size");
	ASSERT_EQ(0, ftruncate(self->fd, 4096));
	ret = blk_read(&self->conn, 65536, 4096, 0, 1);
	EXPECT_EQ(BLK(RANGE), ret);
	EXPECT_EQ(4096, self->conn.welcome.capacity);
	EXPECT_EQ(0, blk_read(&self->conn, 0, 4096, 0, 1));
}

/* Nor does it become longer again. */
TEST_F_TIMEOUT(blkd, a_write_leaves_a_file_as_short_as_it_is, LIMIT_S)
{
	struct stat st;

	if (variant->memory)
		SKIP(return, "it keeps its size");
	ASSERT_EQ(0, ftruncate(self->fd, 8192));
	EXPECT_EQ(BLK(RANGE), blk_write(&self->conn, 65536, 4096, 0, 1));
	EXPECT_EQ(8192, self->conn.welcome.capacity);
	ASSERT_EQ(0, ftruncate(self->fd, 4096));
	EXPECT_EQ(BLK(RANGE), blk_simple(&self->conn, BLK(WRITE_ZEROES), 4096,
					 4096, BLK(NO_UNMAP)));
	ASSERT_EQ(0, fstat(self->fd, &st));
	EXPECT_EQ(4096, st.st_size);
	EXPECT_EQ(0, blk_write(&self->conn, 0, 4096, 0, 1));
}

/*
 * Rules
 */

/* Connect the fixture's client again, in a new epoch. */
static int again(struct blk_conn *conn)
{
	struct blk_client *client = conn->client;
	uint32_t epoch = conn->epoch + 1;

	blk_disconnect(conn);
	return blk_connect(client, epoch, conn);
}

struct rule {
	const char *name;
	uint8_t opcode;
	void (*violate)(struct blk_message *msg);
};

#define VIOLATE(_name, ...)						\
	static void _name(struct blk_message *msg)			\
	{								\
		__VA_ARGS__;						\
	}

VIOLATE(no_seq, msg->cmd.seq = 0)
VIOLATE(odd_offset, msg->cmd.offset = htobe64(100))
VIOLATE(odd_length, msg->cmd.length = htobe32(4000);
	msg->segs[0].length = htobe32(4000))
VIOLATE(too_long, msg->cmd.length = htobe32((1 << 20) + 512);
	msg->segs[0].length = htobe32((1 << 20) + 512))
VIOLATE(newer_epoch, msg->cmd.epoch = htobe32(be32toh(msg->cmd.epoch) + 1))
VIOLATE(older_epoch, msg->cmd.epoch = htobe32(be32toh(msg->cmd.epoch) - 1))
VIOLATE(no_opcode, msg->cmd.opcode = 6)
VIOLATE(opcode_255, msg->cmd.opcode = 255)
VIOLATE(flag_fua, msg->cmd.flags = BLK(FUA))
VIOLATE(flag_no_unmap, msg->cmd.flags = BLK(NO_UNMAP))
VIOLATE(flag_unknown, msg->cmd.flags = 4)
VIOLATE(reserved, msg->cmd.reserved = htobe16(1))
VIOLATE(empty_seg, msg->segs[0].length = 0)
VIOLATE(sum_less, msg->segs[0].length = htobe32(3584))
VIOLATE(sum_more, msg->segs[0].length = htobe32(4608))
VIOLATE(sum_wraps, msg->cmd.nr_segs = htobe16(3);
	msg->segs[1].length = htobe32(-2048U);
	msg->segs[2].length = htobe32(2048))
VIOLATE(seg_wraps, msg->segs[0].addr = htobe64(-4095ULL))
VIOLATE(no_seg, msg->cmd.nr_segs = 0)
VIOLATE(with_offset, msg->cmd.offset = htobe64(512))
VIOLATE(with_length, msg->cmd.length = htobe32(512))
VIOLATE(with_seg, msg->cmd.nr_segs = htobe16(1);
	msg->segs[0].length = htobe32(4096))

static const struct rule rules[] = {
	{ "no sequence number", BLK(READ), no_seq },
	{ "an offset within a block", BLK(READ), odd_offset },
	{ "a part of a block", BLK(READ), odd_length },
	{ "more than max_length", BLK(READ), too_long },
	{ "more than max_length", BLK(WRITE), too_long },
	{ "a newer epoch", BLK(READ), newer_epoch },
	{ "an older epoch", BLK(WRITE), older_epoch },
	{ "an unknown opcode", BLK(NOP), no_opcode },
	{ "an unknown opcode", BLK(NOP), opcode_255 },
	{ "FUA of READ", BLK(READ), flag_fua },
	{ "FUA of FLUSH", BLK(FLUSH), flag_fua },
	{ "NO_UNMAP of WRITE", BLK(WRITE), flag_no_unmap },
	{ "an unknown flag", BLK(WRITE), flag_unknown },
	{ "an unknown flag", BLK(NOP), flag_unknown },
	{ "a reserved field", BLK(NOP), reserved },
	{ "an empty segment", BLK(READ), empty_seg },
	{ "segments too short", BLK(WRITE), sum_less },
	{ "segments too long", BLK(READ), sum_more },
	{ "segments whose sum wraps", BLK(WRITE), sum_wraps },
	{ "a segment that wraps", BLK(READ), seg_wraps },
	{ "no segment", BLK(READ), no_seg },
	{ "NOP with an offset", BLK(NOP), with_offset },
	{ "NOP with a length", BLK(NOP), with_length },
	{ "NOP with a segment", BLK(NOP), with_seg },
	{ "FLUSH with an offset", BLK(FLUSH), with_offset },
	{ "FLUSH with a length", BLK(FLUSH), with_length },
	{ "WRITE_ZEROES with a segment", BLK(WRITE_ZEROES), with_seg },
};

static int make(struct blk_conn *conn, uint8_t opcode, struct blk_message *msg)
{
	if (opcode == BLK(READ) || opcode == BLK(WRITE))
		return blk_transfer(conn, opcode, 0, 4096, 0, 1, msg);
	*msg = blk_command(conn, opcode, 0, 0);
	return 0;
}

TEST_F_TIMEOUT(blkd, each_broken_rule_ends_the_connection_and_no_other, LIMIT_S)
{
	struct ib_memreg_blk_reply reply;
	struct blk_client bad;
	struct blk_message msg;
	struct blk_conn conn;
	unsigned int i;

	fill(self->client.mem, 4096, 5);
	ASSERT_EQ(0, blk_write(&self->conn, 0, 4096, 0, 1));
	ASSERT_EQ(0, blk_open(&bad, &self->server, 0x22));
	ASSERT_EQ(0, blk_connect(&bad, 1, &conn));
	for (i = 0; i < ARRAY_LEN(rules); i++) {
		TH_LOG("%s", rules[i].name);
		memset(bad.mem, 0x77, 8192);
		ASSERT_EQ(0, make(&conn, rules[i].opcode, &msg));
		rules[i].violate(&msg);
		ASSERT_EQ(0, blk_send(&conn, &msg, blk_size(&msg)));
		ASSERT_EQ(0, blk_reply(&conn, &reply, NULL));
		EXPECT_EQ(BLK(INVALID), reply.status);
		EXPECT_EQ(0, reply.length);
		EXPECT_EQ(be16toh(msg.cmd.tag), reply.tag);
		EXPECT_EQ(0, blk_await_end(&conn));
		EXPECT_EQ(0x77, bad.mem[0]);
		EXPECT_TRUE(medium_is(&self->conn, 0, 4096, 5));
		ASSERT_EQ(0, again(&conn));
	}
	blk_disconnect(&conn);
	blk_close(&bad);
}

TEST_F_TIMEOUT(blkd, messages_that_are_no_commands_end_the_connection, LIMIT_S)
{
	static const size_t lengths[] = {
		0, 1, 31, sizeof(struct ib_memreg_blk_cmd) +
		17 * sizeof(struct ib_memreg_blk_seg),
	};
	struct blk_conn *conn = &self->conn;
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(lengths); i++) {
		msg = blk_command(conn, BLK(NOP), 0, 0);
		ASSERT_EQ(0, blk_send(conn, &msg, lengths[i]));
		EXPECT_EQ(-ECONNRESET, blk_reply(conn, &reply, NULL));
		EXPECT_EQ(0, blk_await_end(conn));
		ASSERT_EQ(0, again(conn));
	}
	EXPECT_EQ(0, blk_simple(conn, BLK(NOP), 0, 0, 0));
}

TEST_F_TIMEOUT(blkd, messages_of_a_wrong_length_are_invalid, LIMIT_S)
{
	static const int more[] = { 1, -1, 16, -16 };
	struct blk_conn *conn = &self->conn;
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(more); i++) {
		ASSERT_EQ(0, make(conn, BLK(READ), &msg));
		ASSERT_EQ(0, blk_send(conn, &msg, blk_size(&msg) + more[i]));
		ASSERT_EQ(0, blk_reply(conn, &reply, NULL));
		EXPECT_EQ(BLK(INVALID), reply.status);
		EXPECT_EQ(0, blk_await_end(conn));
		ASSERT_EQ(0, again(conn));
	}
}

/*
 * Send a WRITE that takes long, so that it is in progress when the next message
 * arrives.
 */
static int send_long(struct blk_conn *conn, struct blk_message *msg)
{
	int ret = blk_transfer(conn, BLK(WRITE), 0, HALF, 0, 4, msg);

	return ret ? ret : blk_send(conn, msg, blk_size(msg));
}

TEST_F_TIMEOUT(blkd, a_tag_that_is_in_flight_is_invalid, LIMIT_S)
{
	struct ib_memreg_blk_reply reply;
	struct blk_message one, two;
	unsigned int tries = 100;

	do {
		two = blk_command(&self->conn, BLK(NOP), 0, 0);
		ASSERT_EQ(0, send_long(&self->conn, &one));
		two.cmd.tag = one.cmd.tag;
		ASSERT_EQ(0, blk_send(&self->conn, &two, blk_size(&two)));
		ASSERT_EQ(0, blk_reply(&self->conn, &reply, NULL));
		if (!reply.status)	/* the long one, which went first */
			ASSERT_EQ(0, blk_reply(&self->conn, &reply, NULL));
		/*
		 * If the first command ended before the second arrived, try
		 * again.
		 */
	} while (!reply.status && --tries);
	EXPECT_EQ(BLK(INVALID), reply.status);
	EXPECT_EQ(0, blk_await_end(&self->conn));
}

TEST_F_TIMEOUT(blkd, a_key_that_is_not_good_ends_the_connection, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;
	uint8_t opcode;

	fill(self->client.mem, 4096, 1);
	ASSERT_EQ(0, blk_write(conn, 0, 4096, 0, 1));
	for (opcode = BLK(READ); opcode <= BLK(WRITE); opcode++) {
		ASSERT_EQ(0, make(conn, opcode, &msg));
		msg.segs[0].addr = htobe64(be64toh(msg.segs[0].addr) + 1);
		ASSERT_EQ(0, blk_send(conn, &msg, blk_size(&msg)));
		EXPECT_EQ(-ECONNRESET, blk_reply(conn, &reply, NULL));
		EXPECT_EQ(0, blk_await_end(conn));
		ASSERT_EQ(0, again(conn));
		EXPECT_TRUE(medium_is(conn, 0, 4096, 1));
	}
}

/*
 * Depth
 */

TEST_F_TIMEOUT(blkd, as_many_commands_as_the_depth_are_answered, SOAK_S)
{
	struct blk_conn *conn = &self->conn;
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;
	uint64_t sum = 0, i, round;

	ASSERT_EQ(8, conn->depth);
	for (round = 0; round < test_rounds(12); round++) {
		for (i = 0; i < 8; i++) {
			ASSERT_EQ(0, blk_transfer(conn, i % 2 ? BLK(READ) :
						  BLK(WRITE), i * 16384, 16384,
						  i * 16384, i % 2 ? 16 : 2,
						  &msg));
			ASSERT_EQ(0, blk_send(conn, &msg, blk_size(&msg)));
			sum += be64toh(msg.cmd.seq);
		}
		for (i = 0; i < 8; i++) {
			ASSERT_EQ(0, blk_reply(conn, &reply, NULL));
			EXPECT_EQ(BLK(OK), reply.status);
			EXPECT_EQ(16384, reply.length);
			sum -= reply.seq;
		}
		EXPECT_EQ(0, sum);
	}
}

TEST_F_TIMEOUT(blkd, more_commands_than_the_depth_end_the_connection, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	struct ib_memreg_blk_hello hello = blk_hello(&self->client, 2);
	struct blk_message msg, second;
	struct ib_memreg_blk_reply reply;
	unsigned int tries = 100;
	int ret;

	blk_disconnect(conn);
	hello.depth = htobe16(1);
	ASSERT_EQ(0, blk_ask(&self->client, &hello, sizeof(hello), conn));
	ASSERT_EQ(1, conn->depth);
	do {
		second = blk_command(conn, BLK(NOP), 0, 0);
		ASSERT_EQ(0, send_long(conn, &msg));
		ASSERT_EQ(0, blk_send(conn, &second, blk_size(&second)));
		/*
		 * Skip the reply to the first command, which may have been sent
		 * already.
		 */
		do {
			ret = blk_reply(conn, &reply, NULL);
		} while (!ret && reply.seq == be64toh(msg.cmd.seq));
		/*
		 * If the first command ended before the second arrived, try
		 * again.
		 */
	} while (!ret && --tries);
	EXPECT_EQ(-ECONNRESET, ret);
	EXPECT_EQ(0, blk_await_end(conn));
}

/*
 * Retries and epochs
 */

/* The same command in the epoch of @conn, with keys that are good there */
static int retry(struct blk_conn *conn, const struct blk_message *before)
{
	struct blk_message msg;
	int ret;

	ret = make(conn, before->cmd.opcode, &msg);
	if (ret)
		return ret;
	msg.cmd.seq = before->cmd.seq;
	msg.cmd.offset = before->cmd.offset;
	msg.cmd.length = before->cmd.length;
	return blk_do(conn, &msg);
}

TEST_F_TIMEOUT(blkd, a_command_that_was_done_is_not_done_again, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	uint8_t *mem = self->client.mem;
	struct blk_message write, zeroes;

	fill(mem, 4096, 1);
	ASSERT_EQ(0, make(conn, BLK(WRITE), &write));
	ASSERT_EQ(0, blk_do(conn, &write));
	zeroes = blk_command(conn, BLK(WRITE_ZEROES), 8192, 4096);
	ASSERT_EQ(0, blk_do(conn, &zeroes));
	fill(mem, 4096, 2);
	ASSERT_EQ(0, blk_write(conn, 0, 4096, 0, 1));
	ASSERT_EQ(0, blk_write(conn, 8192, 4096, 0, 1));

	ASSERT_EQ(0, again(conn));
	fill(mem, 4096, 1);
	EXPECT_EQ(0, retry(conn, &write));
	EXPECT_EQ(0, retry(conn, &zeroes));
	EXPECT_TRUE(medium_is(conn, 0, 4096, 2));
	EXPECT_TRUE(medium_is(conn, 8192, 4096, 2));

	/* and in the next epoch neither */
	ASSERT_EQ(0, again(conn));
	EXPECT_EQ(0, retry(conn, &write));
	EXPECT_TRUE(medium_is(conn, 0, 4096, 2));
}

TEST_F_TIMEOUT(blkd,
	       a_command_that_was_not_done_is_done_when_it_comes_again, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	struct blk_message write;

	ASSERT_EQ(0, make(conn, BLK(WRITE), &write));
	ASSERT_EQ(0, blk_simple(conn, BLK(WRITE_ZEROES), 0, 4096, 0));
	ASSERT_EQ(0, again(conn));
	fill(self->client.mem, 4096, 7);
	EXPECT_EQ(0, retry(conn, &write));
	EXPECT_TRUE(medium_is(conn, 0, 4096, 7));
}

/* Send @count commands that change the medium. All have to succeed. */
static int change(struct blk_conn *conn, unsigned int count)
{
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;
	unsigned int sent = 0, answered;
	int ret = 0;

	for (answered = 0; answered < count && !ret; answered++) {
		for (; sent < count && sent < answered + conn->depth; sent++) {
			msg = blk_command(conn, BLK(WRITE_ZEROES), 65536, 512);
			ret = blk_send(conn, &msg, blk_size(&msg));
			if (ret)
				return ret;
		}
		ret = blk_reply(conn, &reply, NULL);
		if (!ret)
			ret = reply.status;
	}
	return ret;
}

TEST_F_TIMEOUT(blkd, as_many_commands_are_remembered_as_the_protocol_has,
	       SOAK_S)
{
	struct blk_conn *conn = &self->conn;
	struct blk_message zeroes;

	if (!test_full())
		SKIP(return, "it takes 16384 commands: --full");
	zeroes = blk_command(conn, BLK(WRITE_ZEROES), 0, 4096);
	ASSERT_EQ(0, blk_do(conn, &zeroes));
	fill(self->client.mem, 4096, 1);
	ASSERT_EQ(0, blk_write(conn, 0, 4096, 0, 1));
	ASSERT_EQ(0, change(conn, BLK(REMEMBERED) - 2));
	ASSERT_EQ(0, again(conn));
	ASSERT_EQ(0, retry(conn, &zeroes));
	EXPECT_TRUE(medium_is(conn, 0, 4096, 1));
	ASSERT_EQ(0, change(conn, 1));
	ASSERT_EQ(0, again(conn));
	ASSERT_EQ(0, retry(conn, &zeroes));
	EXPECT_EQ(0, blk_read(conn, 0, 4096, HALF, 1));
	EXPECT_TRUE(zeros(self->client.mem + HALF, 4096));
}

TEST_F_TIMEOUT(blkd, a_number_is_used_once_in_an_epoch, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;

	ASSERT_EQ(0, blk_write(conn, 0, 4096, 0, 1));
	ASSERT_EQ(0, make(conn, BLK(WRITE), &msg));
	msg.cmd.seq = htobe64(be64toh(msg.cmd.seq) - 1);
	ASSERT_EQ(0, blk_send(conn, &msg, blk_size(&msg)));
	ASSERT_EQ(0, blk_reply(conn, &reply, NULL));
	EXPECT_EQ(BLK(INVALID), reply.status);
	EXPECT_EQ(0, blk_await_end(conn));
}

/*
 * A command that is sent again after the connection ended is executed once,
 * whether or not it was before.
 */
TEST_F_TIMEOUT(blkd, a_command_without_an_answer_is_done_once, SOAK_S)
{
	struct blk_conn *conn = &self->conn;
	struct blk_message msg;
	unsigned int i;

	for (i = 0; i < test_rounds(12); i++) {
		fill(self->client.mem, 4096, i);
		ASSERT_EQ(0, make(conn, BLK(WRITE), &msg));
		ASSERT_EQ(0, blk_send(conn, &msg, blk_size(&msg)));
		if (i % 2)
			usleep(i % 12 * 300);
		ASSERT_EQ(0, again(conn));
		ASSERT_EQ(0, retry(conn, &msg));
		EXPECT_TRUE(medium_is(conn, 0, 4096, i));
	}
}

TEST_F_TIMEOUT(blkd, a_new_epoch_ends_the_connections_of_the_old_one, LIMIT_S)
{
	struct blk_client *client = &self->client;
	struct ib_memreg_blk_hello hello = blk_hello(client, 5);
	struct blk_conn old[2], new;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		hello.queues = htobe16(2);
		hello.queue = htobe16(i);
		ASSERT_EQ(0, blk_ask(client, &hello, sizeof(hello), &old[i]));
		ASSERT_EQ(0, blk_simple(&old[i], BLK(NOP), 0, 0, 0));
	}
	/* the one of the fixture was of epoch 1 */
	EXPECT_EQ(0, blk_await_end(&self->conn));
	ASSERT_EQ(0, blk_connect(client, 6, &new));
	EXPECT_EQ(0, blk_await_end(&old[0]));
	EXPECT_EQ(0, blk_await_end(&old[1]));
	for (i = 0; i < 2; i++)
		blk_disconnect(&old[i]);
	EXPECT_EQ(0, blk_simple(&new, BLK(NOP), 0, 0, 0));
	EXPECT_EQ(BLK(OLD_EPOCH), blk_connect(client, 5, &old[0]));
	EXPECT_EQ(BLK(OLD_EPOCH), blk_connect(client, 1, &old[0]));
	EXPECT_EQ(BLK(INVALID), blk_connect(client, 6, &old[0]));
	EXPECT_EQ(0, blk_simple(&new, BLK(NOP), 0, 0, 0));
	blk_disconnect(&new);
}

/* Commands of an old epoch do not continue in a new one. */
TEST_F_TIMEOUT(blkd, what_an_old_epoch_began_does_not_land_in_the_new_one,
	       SOAK_S)
{
	struct blk_client *client = &self->client;
	struct blk_conn *conn = &self->conn, next;
	struct blk_message msg;
	unsigned int i;

	for (i = 0; i < test_rounds(6); i++) {
		fill(client->mem, HALF, 100);
		ASSERT_EQ(0, send_long(conn, &msg));
		ASSERT_EQ(0, blk_connect(client, conn->epoch + 1, &next));
		fill(client->mem + HALF, HALF, 1);
		ASSERT_EQ(0, blk_write(&next, 0, HALF, HALF, 1));
		EXPECT_EQ(0, blk_await_end(conn));
		blk_disconnect(conn);
		EXPECT_TRUE(medium_is(&next, 0, HALF, 1));
		*conn = next;
	}
}

/*
 * Data in the page cache outlives the server. Data in memory of the server does
 * not, and the server's instance changes.
 */
TEST_F_TIMEOUT(blkd,
	       the_instance_shows_if_data_may_be_lost_with_a_server, LIMIT_S)
{
	uint64_t before = self->conn.welcome.instance;

	fill(self->client.mem, 4096, 1);
	ASSERT_EQ(0, blk_write(&self->conn, 0, 4096, 0, 1));
	blk_disconnect(&self->conn);
	blk_close(&self->client);
	ASSERT_EQ(0, blk_end(&self->server));
	ASSERT_EQ(0, blk_serve(&self->server, variant->args));
	ASSERT_EQ(0, blk_open(&self->client, &self->server, 0x11));
	ASSERT_EQ(0, blk_connect(&self->client, 2, &self->conn));
	EXPECT_NE(0, before);
	EXPECT_NE(0, self->conn.welcome.instance);
	EXPECT_EQ(!variant->memory, before == self->conn.welcome.instance);
	EXPECT_EQ(!variant->memory, medium_is(&self->conn, 0, 4096, 1));
}

/*
 * Several
 */

TEST_F_TIMEOUT(blkd, several_clients_see_what_others_write, LIMIT_S)
{
	struct blk_client clients[3];
	struct blk_conn conns[3];
	unsigned int i, round;

	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, blk_open(&clients[i], &self->server, 0x30 + i));
		ASSERT_EQ(0, blk_connect(&clients[i], 1, &conns[i]));
	}
	for (round = 0; round < 5; round++)
		for (i = 0; i < 3; i++) {
			fill(clients[i].mem, 8192, round * 3 + i);
			ASSERT_EQ(0, blk_write(&conns[i], i * 4096, 8192, 0,
					       1));
			EXPECT_TRUE(medium_is(&conns[(i + 1) % 3], i * 4096,
					      8192, round * 3 + i));
		}
	for (i = 0; i < 3; i++) {
		blk_disconnect(&conns[i]);
		blk_close(&clients[i]);
	}
}

static void die_in_the_middle(const struct blk_server *server)
{
	struct blk_client client;
	struct blk_message msg;
	struct blk_conn conn;
	int i;

	if (blk_open(&client, server, 0x44) || blk_connect(&client, 1, &conn))
		_exit(1);
	raise(SIGSTOP);
	for (i = 0; i < 4; i++)
		if (send_long(&conn, &msg))
			_exit(1);
	kill(getpid(), SIGKILL);
}

/*
 * One end may disconnect before the other end is connected: of two messages,
 * the connection manager may take the second one first. Then nobody has come
 * or gone.
 */
TEST_F_TIMEOUT(blkd, a_client_that_dies_leaves_the_others_alone, LIMIT_S)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		die_in_the_middle(&self->server);
	ASSERT_EQ(pid, waitpid(pid, &status, WUNTRACED));
	ASSERT_TRUE(WIFSTOPPED(status));
	EXPECT_EQ(0, blk_says(&self->server, "client 44444444 from"));
	kill(pid, SIGCONT);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(0, blk_says(&self->server, "client 44444444: gone"));
	EXPECT_EQ(0, blk_simple(&self->conn, BLK(FLUSH), 0, 0, 0));
	EXPECT_EQ(0, blk_write(&self->conn, 0, HALF, 0, 16));
}

/*
 * Data in messages
 */

FIXTURE(blkd_inline)
{
	struct blk_server server;
	struct blk_client client;
	struct blk_conn conn;
	int fd;
};

FIXTURE_VARIANT(blkd_inline)
{
	const char *args[8];
	bool safe;
};

FIXTURE_VARIANT_ADD(blkd_inline, file)
{
	.args = { PATH },
};

FIXTURE_VARIANT_ADD(blkd_inline, file_by_threads)
{
	.args = { "--no-cache", PATH },
	.safe = true,
};

FIXTURE_VARIANT_ADD(blkd_inline, memory)
{
	.args = { "--size", "4M" },
};

FIXTURE_SETUP(blkd_inline)
{
	self->fd = make_file(CAPACITY);
	ASSERT_GE(self->fd, 0);
	ASSERT_EQ(0, blk_serve(&self->server, variant->args));
	ASSERT_EQ(0, blk_open(&self->client, &self->server, 0x11));
	ASSERT_EQ(0, blk_connect_inline(&self->client, 1, 4096, &self->conn));
	ASSERT_EQ(4096, self->conn.welcome.inline_max);
	ASSERT_EQ(variant->safe, !self->conn.welcome.instance);
}

FIXTURE_TEARDOWN(blkd_inline)
{
	blk_disconnect(&self->conn);
	blk_close(&self->client);
	EXPECT_EQ(0, blk_end(&self->server));
	close(self->fd);
	unlink(PATH);
}

static int again_inline(struct blk_conn *conn)
{
	struct blk_client *client = conn->client;
	uint32_t epoch = conn->epoch + 1;

	blk_disconnect(conn);
	return blk_connect_inline(client, epoch, 4096, conn);
}

/* Read the medium in a message, and by a segment */
static bool both_are(struct blk_conn *conn, uint64_t offset, uint32_t length,
		     unsigned int seed)
{
	return !blk_read_inline(conn, offset, length) &&
	       filled(conn->data, length, 0, seed) &&
	       medium_is(conn, offset, length, seed);
}

TEST_F_TIMEOUT(blkd_inline, data_goes_there_and_back, LIMIT_S)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
	} cases[] = {
		{ 0, 512 }, { 4096, 4096 }, { 1536, 4096 }, { 7680, 1024 },
		{ CAPACITY - 512, 512 }, { CAPACITY - 4096, 4096 },
	};
	struct blk_conn *conn = &self->conn;
	uint8_t *mem = self->client.mem;
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		fill(mem, 4096, i);
		EXPECT_EQ(0, blk_write_inline(conn, cases[i].offset,
					      cases[i].length, mem));
		EXPECT_TRUE(both_are(conn, cases[i].offset, cases[i].length,
				     i));
		fill(mem, 4096, 100 + i);
		EXPECT_EQ(0, blk_write(conn, cases[i].offset, cases[i].length,
				       0, 2));
		EXPECT_TRUE(both_are(conn, cases[i].offset, cases[i].length,
				     100 + i));
	}
	EXPECT_TRUE(goes_there_and_back(conn));
}

TEST_F_TIMEOUT(blkd_inline, what_fails_has_no_data_behind_it, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;

	EXPECT_EQ(BLK(RANGE), blk_read_inline(conn, CAPACITY, 512));
	EXPECT_EQ(BLK(RANGE), blk_read_inline(conn, CAPACITY - 512, 1024));
	EXPECT_EQ(BLK(RANGE), blk_write_inline(conn, CAPACITY - 512, 1024,
					       self->client.mem));
	EXPECT_EQ(BLK(RANGE), blk_write_inline(conn, -512ULL, 1024,
					       self->client.mem));
	EXPECT_EQ(0, blk_read_inline(conn, CAPACITY - 512, 512));
}

/* The buffers that the server replies from are used many times. */
TEST_F_TIMEOUT(blkd_inline, I1_replies_do_not_mix, SOAK_S)
{
	struct blk_conn *conn = &self->conn;
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;
	unsigned int i, round;
	uint64_t first;

	for (i = 0; i < 8; i++) {
		fill(self->client.mem, 4096, i);
		ASSERT_EQ(0, blk_write_inline(conn, i * 4096, 4096,
					      self->client.mem));
	}
	for (round = 0; round < test_rounds(120); round++) {
		first = self->client.seq + 1;
		for (i = 0; i < 8; i++) {
			msg = blk_command(conn, BLK(READ), i * 4096, 4096);
			ASSERT_EQ(0, blk_send(conn, &msg, blk_size(&msg)));
		}
		for (i = 0; i < 8; i++) {
			ASSERT_EQ(0, blk_reply(conn, &reply, NULL));
			ASSERT_EQ(BLK(OK), reply.status);
			ASSERT_EQ(4096, conn->data_len);
			ASSERT_TRUE(filled(conn->data, 4096, 0,
					   (unsigned int)(reply.seq - first)));
		}
	}
}

TEST_F_TIMEOUT(blkd_inline, what_was_done_is_not_done_again, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	uint8_t *mem = self->client.mem;
	struct blk_message write;

	write = blk_command(conn, BLK(WRITE), 0, 4096);
	fill(mem, 4096, 1);
	ASSERT_EQ(0, blk_send_data(conn, &write, mem, 4096));
	ASSERT_EQ(0, blk_reply(conn, &(struct ib_memreg_blk_reply) {}, NULL));
	fill(mem, 4096, 2);
	ASSERT_EQ(0, blk_write_inline(conn, 0, 4096, mem));

	/* by a message again, and by a segment */
	ASSERT_EQ(0, again_inline(conn));
	fill(mem, 4096, 1);
	write.cmd.epoch = htobe32(conn->epoch);
	ASSERT_EQ(0, blk_send_data(conn, &write, mem, 4096));
	ASSERT_EQ(0, blk_reply(conn, &(struct ib_memreg_blk_reply) {}, NULL));
	EXPECT_TRUE(both_are(conn, 0, 4096, 2));
	ASSERT_EQ(0, again_inline(conn));
	fill(mem, 4096, 1);
	EXPECT_EQ(0, retry(conn, &write));
	EXPECT_TRUE(both_are(conn, 0, 4096, 2));
}

/*
 * A command that is sent again after the connection ended is executed once,
 * whether or not it was before.
 */
TEST_F_TIMEOUT(blkd_inline, what_was_not_answered_is_done_once, SOAK_S)
{
	struct blk_conn *conn = &self->conn;
	uint8_t *mem = self->client.mem;
	struct blk_message msg;
	unsigned int i;

	for (i = 0; i < test_rounds(8); i++) {
		fill(mem, 4096, i);
		msg = blk_command(conn, BLK(WRITE), 0, 4096);
		ASSERT_EQ(0, blk_send_data(conn, &msg, mem, 4096));
		if (i % 2)
			usleep(i % 8 * 300);
		ASSERT_EQ(0, again_inline(conn));
		ASSERT_EQ(0, retry(conn, &msg));
		EXPECT_TRUE(both_are(conn, 0, 4096, i));
	}
}

TEST_F_TIMEOUT(blkd_inline, each_broken_rule_ends_the_connection, LIMIT_S)
{
	static const struct {
		const char *name;
		uint8_t opcode;
		uint32_t length;	/* of the command */
		uint32_t sent;		/* behind it */
		uint16_t segs;
	} cases[] = {
		{ "less data than the command has", BLK(WRITE), 4096, 4095, 0 },
		{ "no data", BLK(WRITE), 512, 0, 0 },
		{ "more data than the command has", BLK(WRITE), 512, 1024, 0 },
		{ "one byte more", BLK(WRITE), 512, 513, 0 },
		{ "a part of a block", BLK(WRITE), 500, 500, 0 },
		{ "more than may be in a message", BLK(READ), 4608, 0, 0 },
		{ "much more", BLK(READ), -4096U, 0, 0 },
		{ "a length that wraps", BLK(WRITE), -512U, 512, 0 },
		{ "data behind a READ", BLK(READ), 512, 512, 0 },
		{ "data behind a NOP", BLK(NOP), 0, 512, 0 },
		{ "data behind WRITE_ZEROES", BLK(WRITE_ZEROES), 512, 512, 0 },
		{ "data behind a segment", BLK(WRITE), 512, 528, 1 },
		{ "data for segments", BLK(WRITE), 512, 512, 16 },
		{ "data of an empty WRITE", BLK(WRITE), 0, 512, 0 },
	};
	struct blk_conn *conn = &self->conn;
	uint8_t *mem = self->client.mem;
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;
	unsigned int i;

	fill(mem, 4096, 5);
	ASSERT_EQ(0, blk_write_inline(conn, 0, 4096, mem));
	for (i = 0; i < ARRAY_LEN(cases); i++) {
		TH_LOG("%s", cases[i].name);
		fill(mem, 4096, 6);
		msg = blk_command(conn, cases[i].opcode, 0, cases[i].length);
		msg.cmd.nr_segs = htobe16(cases[i].segs);
		ASSERT_EQ(0, blk_send_data(conn, &msg, mem, cases[i].sent));
		ASSERT_EQ(0, blk_reply(conn, &reply, NULL));
		EXPECT_EQ(BLK(INVALID), reply.status);
		EXPECT_EQ(0, reply.length);
		EXPECT_EQ(0, conn->data_len);
		EXPECT_EQ(0, blk_await_end(conn));
		ASSERT_EQ(0, again_inline(conn));
		EXPECT_TRUE(both_are(conn, 0, 4096, 5));
	}
}

/* A message is longer than the receives that the server has posted. */
TEST_F_TIMEOUT(blkd_inline,
	       a_message_that_is_too_long_ends_the_connection, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;

	msg = blk_command(conn, BLK(WRITE), 0, 4608);
	ASSERT_EQ(0, blk_send_data(conn, &msg, self->client.mem, 4608));
	EXPECT_EQ(-ECONNRESET, blk_reply(conn, &reply, NULL));
	EXPECT_EQ(0, blk_await_end(conn));
	ASSERT_EQ(0, again_inline(conn));
	EXPECT_EQ(0, blk_simple(conn, BLK(NOP), 0, 0, 0));
}

TEST_F_TIMEOUT(blkd_inline, the_smaller_limit_holds, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;

	blk_disconnect(conn);
	ASSERT_EQ(0, blk_connect_inline(&self->client, 2, 1024, conn));
	EXPECT_EQ(1024, conn->welcome.inline_max);
	EXPECT_EQ(0, blk_write_inline(conn, 0, 1024, self->client.mem));
	EXPECT_EQ(0, blk_read_inline(conn, 0, 1024));
	msg = blk_command(conn, BLK(READ), 0, 1536);
	ASSERT_EQ(0, blk_send(conn, &msg, blk_size(&msg)));
	ASSERT_EQ(0, blk_reply(conn, &reply, NULL));
	EXPECT_EQ(BLK(INVALID), reply.status);
	EXPECT_EQ(0, blk_await_end(conn));
	blk_disconnect(conn);
	ASSERT_EQ(0, blk_connect_inline(&self->client, 3, 16384, conn));
	EXPECT_EQ(4096, conn->welcome.inline_max);
	EXPECT_EQ(0, blk_read_inline(conn, 0, 4096));
}

/*
 * Work requests that can't be posted
 *
 * They are collected until there are 256. Several clients have 7 commands each,
 * of 16 segments: with the receive and the reply of each, those of the first
 * two are 252, and the first of the third does not fit in. The last client
 * keeps the server busy behind that, with as much as it may send.
 */

#define CLIENTS		6
#define READERS		5
#define COMMANDS	7
#define SEGMENTS	16
#define LENGTH		8192
#define WHOLE		(2 * COMMANDS)
#define DEPTH		64

FIXTURE(blkd_batch)
{
	struct blk_server server;
	struct blk_client clients[CLIENTS];
	struct blk_conn conns[CLIENTS];
	int fd;
};

FIXTURE_SETUP(blkd_batch)
{
	static const char *const args[] = { "--max-length", "4M", "memory:4M",
					    "file=" PATH, NULL };
	struct ib_memreg_blk_hello hello;
	unsigned int i;

	self->fd = make_file(CAPACITY);
	ASSERT_GE(self->fd, 0);
	ASSERT_EQ(0, blk_serve(&self->server, args));
	for (i = 0; i < CLIENTS; i++) {
		ASSERT_EQ(0, blk_open(&self->clients[i], &self->server,
				      0x11 + i));
		hello = blk_hello(&self->clients[i], 1);
		hello.depth = htobe16(DEPTH);
		hello.inline_max = htobe16(4096);
		strcpy(hello.name, i < READERS ? "memory" : "file");
		ASSERT_EQ(0, blk_ask(&self->clients[i], &hello, sizeof(hello),
				     &self->conns[i]));
	}
}

FIXTURE_TEARDOWN(blkd_batch)
{
	unsigned int i;

	for (i = 0; i < CLIENTS; i++) {
		blk_disconnect(&self->conns[i]);
		blk_close(&self->clients[i]);
	}
	EXPECT_EQ(0, blk_end(&self->server));
	close(self->fd);
	unlink(PATH);
}

/* Wait until the server has received @count messages. */
static int await_sent(struct blk_client *client, unsigned int count)
{
	struct memreg_ring *ring = &client->ring;
	int ret = 0;

	while (count && !ret) {
		ret = memreg_ring_wait(ring, 1, LIMIT_MS * MS, NULL);
		if (!ret) {
			count -= memreg_ring_peek(ring)->opcode == OP(SEND);
			memreg_ring_seen(ring, 1);
		}
	}
	return ret;
}

/* Send READs of adjacent parts into the second half of the memory. */
static int send_reads(struct blk_conn *conn)
{
	struct blk_message msg;
	unsigned int i;
	int ret = 0;

	memset(conn->client->mem + HALF, 0xee, COMMANDS * LENGTH);
	for (i = 0; i < COMMANDS && !ret; i++) {
		ret = blk_transfer(conn, BLK(READ), i * LENGTH, LENGTH,
				   HALF + i * LENGTH, SEGMENTS, &msg);
		if (!ret)
			ret = blk_send(conn, &msg, blk_size(&msg));
	}
	return ret ? ret : await_sent(conn->client, COMMANDS);
}

static int send_writes(struct blk_conn *conn)
{
	struct blk_message msg;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < DEPTH && !ret; i++) {
		msg = blk_command(conn, BLK(WRITE), i * 4096, 4096);
		ret = blk_send_data(conn, &msg, conn->client->mem, 4096);
	}
	return ret ? ret : await_sent(conn->client, DEPTH);
}

static int take_writes(struct blk_conn *conn)
{
	struct ib_memreg_blk_reply reply;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < DEPTH && !ret; i++) {
		ret = blk_reply(conn, &reply, NULL);
		if (!ret)
			ret = reply.status;
	}
	return ret;
}

/* Number of those reads that are answered before the connection ends, or -1 */
static int take_reads(struct blk_conn *conn, unsigned int seed)
{
	uint64_t first = conn->client->seq - COMMANDS + 1, nr;
	const uint8_t *in = conn->client->mem + HALF;
	struct ib_memreg_blk_reply reply;
	int taken;

	for (taken = 0; taken < COMMANDS; taken++) {
		if (blk_reply(conn, &reply, NULL))
			break;
		nr = reply.seq - first;
		if (reply.status || nr >= COMMANDS ||
		    !filled(in + nr * LENGTH, LENGTH, nr * LENGTH, seed))
			return -1;
	}
	return taken;
}

/*
 * The work request that fails is one of a command's; the rest of the command is
 * in the next batch.
 */
TEST_F_TIMEOUT(blkd_batch, a_command_that_lost_a_part_is_not_answered, LIMIT_S)
{
	int64_t end = now_ms() + LIMIT_MS;
	unsigned int i, ended = 0;
	int taken;

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	fill(self->clients[0].mem, COMMANDS * LENGTH, 3);
	ASSERT_EQ(0, blk_write(&self->conns[0], 0, COMMANDS * LENGTH, 0, 1));
	ASSERT_EQ(0, kill(self->server.pid, SIGSTOP));
	for (i = 0; i < READERS; i++)
		ASSERT_EQ(0, send_reads(&self->conns[i]));
	ASSERT_EQ(0, send_writes(&self->conns[READERS]));
	fault_order("post_send", WHOLE * (SEGMENTS + 1), 1);
	ASSERT_EQ(0, kill(self->server.pid, SIGCONT));
	/* Traffic of clients would count as well. */
	while (fault_pending("post_send") && now_ms() < end)
		poll(NULL, 0, 1);
	EXPECT_FALSE(fault_pending("post_send"));
	fault_cancel("post_send");
	for (i = 0; i < READERS; i++) {
		taken = take_reads(&self->conns[i], 3);
		EXPECT_LE(0, taken);
		if (taken == COMMANDS) {
			EXPECT_EQ(0, blk_simple(&self->conns[i], BLK(NOP), 0,
						0, 0));
			continue;
		}
		ended++;
		EXPECT_EQ(0, blk_await_end(&self->conns[i]));
	}
	EXPECT_EQ(1, ended);
	EXPECT_EQ(0, take_writes(&self->conns[READERS]));
}

/*
 * Disks
 */

FIXTURE(blkd_disk)
{
	struct blk_server server;
	struct blk_client client;
	struct blk_conn conn;
};

/* Few buffers, and one thread */
FIXTURE_SETUP(blkd_disk)
{
	static const char *const args[] = {
		"-B", "1M", "-t", "1", "disk=/dev/ram0", NULL,
	};

	if (system("modprobe brd rd_nr=1 rd_size=4096"))
		SKIP(return, "no disk in memory");
	ASSERT_EQ(0, blk_serve(&self->server, args));
	ASSERT_EQ(0, blk_open(&self->client, &self->server, 0x11));
	ASSERT_EQ(0, blk_connect(&self->client, 1, &self->conn));
}

FIXTURE_TEARDOWN(blkd_disk)
{
	blk_disconnect(&self->conn);
	blk_close(&self->client);
	EXPECT_EQ(0, blk_end(&self->server));
	EXPECT_EQ(0, system("rmmod brd"));
}

TEST_F_TIMEOUT(blkd_disk, does_what_files_do, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;

	EXPECT_EQ(CAPACITY, conn->welcome.capacity);
	EXPECT_TRUE(goes_there_and_back(conn));
	EXPECT_TRUE(becomes_zero(conn, 0));
	EXPECT_TRUE(becomes_zero(conn, BLK(NO_UNMAP)));
	EXPECT_TRUE(becomes_zero(conn, BLK(FUA)));
	EXPECT_EQ(0, blk_simple(conn, BLK(DISCARD), 65536, 65536, 0));
	EXPECT_EQ(0, blk_simple(conn, BLK(FLUSH), 0, 0, 0));
}

TEST_F_TIMEOUT(blkd_disk, data_waits_for_buffers, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	struct ib_memreg_blk_reply reply;
	struct blk_message msg;
	unsigned int i, round;

	for (round = 0; round < 3; round++) {
		fill(self->client.mem, HALF, round);
		for (i = 0; i < 6; i++)
			ASSERT_EQ(0, send_long(conn, &msg));
		for (i = 0; i < 6; i++) {
			ASSERT_EQ(0, blk_reply(conn, &reply, NULL));
			EXPECT_EQ(BLK(OK), reply.status);
		}
		EXPECT_TRUE(medium_is(conn, 0, HALF, round));
	}
}

/*
 * Media that fail
 */

#define FAILING		"/dev/shm/memreg-blkd-failing"
#define ROOM		(1U << 20)	/* that it has, of CAPACITY */

/* A disk whose writes end with an error when they are too many */
FIXTURE(blkd_failing)
{
	struct blk_server server;
	struct blk_client client;
	struct blk_conn conn;
	bool made;
	bool runs;
};

FIXTURE_VARIANT(blkd_failing)
{
	const char *args[4];
	bool no_cache;
};

FIXTURE_VARIANT_ADD(blkd_failing, cache)
{
	.args = { "disk=" FAILING "/loop" },
};

FIXTURE_VARIANT_ADD(blkd_failing, no_cache)
{
	.args = { "--no-cache", "disk=" FAILING "/loop" },
	.no_cache = true,
};

FIXTURE_SETUP(blkd_failing)
{
	if (system("modprobe loop"))
		SKIP(return, "no loop devices");
	/* Remove what a run left that failed in its set-up. */
	system("losetup -d $(readlink " FAILING "/loop) 2>/dev/null");
	system("umount " FAILING " 2>/dev/null");
	system("rmdir " FAILING " 2>/dev/null");
	ASSERT_EQ(0, system("mkdir " FAILING));
	ASSERT_EQ(0, system("mount -t tmpfs -o size=1m none " FAILING));
	self->made = !system("cd " FAILING " && truncate -s 4M disk && ln -s $(losetup -f --show disk) loop");
	ASSERT_TRUE(self->made);
	ASSERT_EQ(0, blk_serve(&self->server, variant->args));
	self->runs = true;
	ASSERT_EQ(0, blk_open(&self->client, &self->server, 0x11));
	ASSERT_EQ(0, blk_connect(&self->client, 1, &self->conn));
}

FIXTURE_TEARDOWN(blkd_failing)
{
	blk_disconnect(&self->conn);
	blk_close(&self->client);
	if (self->runs)
		blk_end(&self->server);
	if (self->made)
		EXPECT_EQ(0, system("losetup -d $(readlink " FAILING "/loop)"));
	EXPECT_EQ(0, system("umount " FAILING " && rmdir " FAILING));
}

/* Send more WRITEs than the medium has room for, before reading any reply. */
static int send_too_many(struct blk_conn *conn)
{
	struct blk_message msg;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < conn->depth && !ret; i++) {
		ret = blk_transfer(conn, BLK(WRITE), i * HALF, HALF, 0, 1,
				   &msg);
		if (!ret)
			ret = blk_send(conn, &msg, blk_size(&msg));
	}
	return ret;
}

/* How many replies of as many as the depth are good, or -1 */
static int good_replies(struct blk_conn *conn)
{
	struct ib_memreg_blk_reply reply;
	unsigned int i;
	int good = 0;

	for (i = 0; i < conn->depth; i++) {
		if (blk_reply(conn, &reply, NULL))
			return -1;
		good += reply.status == BLK(OK);
	}
	return good;
}

/*
 * Send as many FLUSHes as the connection is deep. Returns the number of those
 * that succeed, or -1.
 */
static int good_flushes(struct blk_conn *conn)
{
	struct blk_message msg;
	unsigned int i;

	for (i = 0; i < conn->depth; i++) {
		msg = blk_command(conn, BLK(FLUSH), 0, 0);
		if (blk_send(conn, &msg, blk_size(&msg)))
			return -1;
	}
	return good_replies(conn);
}

/*
 * Do all commands fail that have to after data was lost, on a range that the
 * medium has?
 */
static bool all_is_refused(struct blk_conn *conn)
{
	struct blk_message msg;

	if (blk_transfer(conn, BLK(WRITE), 0, 4096, 0, 1, &msg))
		return false;
	msg.cmd.flags = BLK(FUA);
	return good_flushes(conn) == 0 && blk_do(conn, &msg) == BLK(IO) &&
	       blk_simple(conn, BLK(WRITE_ZEROES), 0, 4096, BLK(FUA)) ==
	       BLK(IO);
}

/*
 * Write more than fits. Where writes go to the page cache all of them succeed,
 * and some of the data is lost.
 */
static void write_too_much(struct __test_metadata *_metadata,
			   struct blk_conn *conn, bool no_cache)
{
	int good;

	ASSERT_EQ(0, blk_write(conn, 0, 4096, 0, 1));
	ASSERT_EQ(0, send_too_many(conn));
	good = good_replies(conn);
	EXPECT_LE(0, good);
	EXPECT_EQ(no_cache, good < conn->depth);
}

TEST_F_TIMEOUT(blkd_failing, what_is_lost_is_not_safe_later, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;

	if (variant->no_cache)
		SKIP(return, "nothing is lost");
	write_too_much(_metadata, conn, false);
	EXPECT_EQ(0, good_flushes(conn));
	EXPECT_TRUE(all_is_refused(conn));
	EXPECT_EQ(0, blk_read(conn, 0, 4096, 0, 1));
	EXPECT_EQ(0, blk_simple(conn, BLK(NOP), 0, 0, 0));
	ASSERT_EQ(0, again(conn));
	EXPECT_TRUE(all_is_refused(conn));
	EXPECT_EQ(0, blk_write(conn, 0, 4096, 0, 1));
	self->runs = false;
	EXPECT_EQ(1, blk_end(&self->server));
}

/*
 * The error of a lost write goes to the client that has written, and to no
 * other.
 */
TEST_F_TIMEOUT(blkd_failing, what_was_reported_is_not_lost, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;
	unsigned int i;

	if (!variant->no_cache)
		SKIP(return, "what is lost was answered");
	write_too_much(_metadata, conn, true);
	EXPECT_EQ(conn->depth, good_flushes(conn));
	for (i = 0; i < 2 * conn->depth; i++)
		EXPECT_EQ(0, blk_write(conn, 0, 4096, 0, 1));
	EXPECT_EQ(0, blk_read(conn, 0, 4096, 0, 1));
	ASSERT_EQ(0, again(conn));
	EXPECT_EQ(0, blk_write(conn, 0, 4096, 0, 1));
	self->runs = false;
	EXPECT_EQ(0, blk_end(&self->server));
}

/*
 * No client has flushed. The server flushes at its end, and its exit status has
 * the error.
 */
TEST_F_TIMEOUT(blkd_failing,
	       the_exit_status_shows_what_was_not_written_back, LIMIT_S)
{
	if (variant->no_cache)
		SKIP(return, "there is nothing to be written back");
	ASSERT_EQ(0, send_too_many(&self->conn));
	EXPECT_EQ(self->conn.depth, good_replies(&self->conn));
	self->runs = false;
	EXPECT_EQ(1, blk_end(&self->server));
}

/* Files that a resource limit keeps from growing as long as their export */
FIXTURE(blkd_limited)
{
	struct blk_server server;
	struct blk_client client;
	struct blk_conn conn;
	int fd;
};

FIXTURE_VARIANT(blkd_limited)
{
	const char *args[4];
};

FIXTURE_VARIANT_ADD(blkd_limited, cache)
{
	.args = { PATH },
};

FIXTURE_VARIANT_ADD(blkd_limited, no_cache)
{
	.args = { "--no-cache", PATH },
};

FIXTURE_SETUP(blkd_limited)
{
	struct rlimit limit;

	self->fd = make_file(CAPACITY);
	ASSERT_GE(self->fd, 0);
	ASSERT_EQ(0, getrlimit(RLIMIT_FSIZE, &limit));
	limit.rlim_cur = ROOM;
	ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &limit));
	EXPECT_EQ(0, blk_serve(&self->server, variant->args));
	limit.rlim_cur = limit.rlim_max;
	ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &limit));
	ASSERT_EQ(0, blk_open(&self->client, &self->server, 0x11));
	ASSERT_EQ(0, blk_connect(&self->client, 1, &self->conn));
}

FIXTURE_TEARDOWN(blkd_limited)
{
	blk_disconnect(&self->conn);
	blk_close(&self->client);
	EXPECT_EQ(0, blk_end(&self->server));
	close(self->fd);
	unlink(PATH);
}

/* After a write beyond the limit, the server goes on and has lost nothing. */
TEST_F_TIMEOUT(blkd_limited,
	       a_write_beyond_the_limit_fails_and_no_more, LIMIT_S)
{
	struct blk_conn *conn = &self->conn;

	EXPECT_EQ(BLK(NO_SPACE), blk_write(conn, 2 * ROOM, 4096, 0, 1));
	EXPECT_EQ(BLK(NO_SPACE), blk_write(conn, 2 * ROOM, HALF, 0, 1));
	fill(self->client.mem, HALF, 5);
	EXPECT_EQ(0, blk_write(conn, 0, HALF, 0, 1));
	EXPECT_EQ(0, blk_simple(conn, BLK(FLUSH), 0, 0, 0));
	EXPECT_TRUE(medium_is(conn, 0, HALF, 5));
}

/*
 * Requests
 */

FIXTURE(blkd_named)
{
	struct blk_server server;
	struct blk_client client;
	int fd;
};

FIXTURE_SETUP(blkd_named)
{
	static const char *const args[] = {
		"--read-only", "--queues-max", "2", "--depth-max", "4",
		"--clients-max", "2", "--timeout", "10", "file=" PATH,
		"memory:64K",
		"sixteen_letters_=memory:1M", NULL,
	};

	self->fd = make_file(CAPACITY);
	ASSERT_GE(self->fd, 0);
	ASSERT_EQ(0, blk_serve(&self->server, args));
	ASSERT_EQ(0, blk_open(&self->client, &self->server, 0x11));
}

FIXTURE_TEARDOWN(blkd_named)
{
	blk_close(&self->client);
	EXPECT_EQ(0, blk_end(&self->server));
	close(self->fd);
	unlink(PATH);
}

static int ask_inline(struct blk_client *client, uint32_t epoch,
		      const char *name, uint16_t most, struct blk_conn *conn)
{
	struct ib_memreg_blk_hello hello = blk_hello(client, epoch);

	memcpy(hello.name, name, strnlen(name, sizeof(hello.name)));
	hello.inline_max = htobe16(most);
	return blk_ask(client, &hello, sizeof(hello), conn);
}

static int ask_for(struct blk_client *client, uint32_t epoch, const char *name,
		   struct blk_conn *conn)
{
	return ask_inline(client, epoch, name, 0, conn);
}

TEST_F_TIMEOUT(blkd_named, exports_are_told_apart, LIMIT_S)
{
	struct blk_client other, third;
	struct blk_conn conn, second;
	unsigned int tries = 100;
	int ret;

	ASSERT_EQ(0, blk_open(&other, &self->server, 0x12));
	ASSERT_EQ(0, blk_open(&third, &self->server, 0x13));
	EXPECT_EQ(BLK(NO_EXPORT), ask_for(&self->client, 1, "", &conn));
	EXPECT_EQ(BLK(NO_EXPORT), ask_for(&self->client, 1, "fil", &conn));
	ASSERT_EQ(0, ask_for(&self->client, 1, "file", &conn));
	EXPECT_EQ(CAPACITY, conn.welcome.capacity);
	EXPECT_EQ(4, conn.welcome.depth);
	EXPECT_EQ(512, conn.welcome.block_size);
	EXPECT_TRUE(conn.welcome.flags & BLK(READ_ONLY));
	EXPECT_EQ(0, conn.welcome.inline_max);
	EXPECT_EQ(0, conn.welcome.instance);
	EXPECT_EQ(0, blk_simple(&conn, BLK(NOP), 0, 0, 0));
	ASSERT_EQ(0, ask_for(&other, 1, "sixteen_letters_", &second));
	EXPECT_EQ(1 << 20, second.welcome.capacity);
	EXPECT_EQ(0, blk_says(&self->server, "client 12121212 from"));
	EXPECT_EQ(BLK(BUSY), ask_for(&third, 1, "memory", &second));

	blk_close(&other);
	EXPECT_EQ(0, blk_says(&self->server, "client 12121212: gone"));
	/*
	 * The server has room for another connection a moment after it has
	 * reported the end of one.
	 */
	do {
		ret = ask_for(&third, 1, "memory", &second);
	} while (ret == BLK(BUSY) && --tries);
	EXPECT_EQ(0, ret);
	EXPECT_EQ(65536, second.welcome.capacity);
	blk_close(&third);
	blk_disconnect(&conn);
}

TEST_F_TIMEOUT(blkd_named,
	       an_epoch_is_for_one_export_and_the_next_for_any, LIMIT_S)
{
	struct ib_memreg_blk_hello hello = blk_hello(&self->client, 1);
	struct blk_conn conn, second;

	hello.queues = htobe16(2);
	memcpy(hello.name, "file", 4);
	ASSERT_EQ(0, blk_ask(&self->client, &hello, sizeof(hello), &conn));
	memcpy(hello.name, "memory", 6);
	hello.queue = htobe16(1);
	EXPECT_EQ(BLK(INVALID), blk_ask(&self->client, &hello, sizeof(hello),
					&second));
	EXPECT_EQ(0, blk_simple(&conn, BLK(NOP), 0, 0, 0));
	EXPECT_EQ(CAPACITY, conn.welcome.capacity);

	hello.epoch = htobe32(2);
	ASSERT_EQ(0, blk_ask(&self->client, &hello, sizeof(hello), &second));
	EXPECT_EQ(65536, second.welcome.capacity);
	EXPECT_EQ(0, blk_await_end(&conn));
	EXPECT_EQ(0, blk_simple(&second, BLK(NOP), 0, 0, 0));
	EXPECT_EQ(65536, second.welcome.capacity);
	EXPECT_EQ(BLK(OLD_EPOCH), ask_for(&self->client, 1, "file", &conn));
	blk_disconnect(&second);
}

TEST_F_TIMEOUT(blkd_named, what_is_read_only_does_not_change, LIMIT_S)
{
	struct blk_conn conn;

	ASSERT_EQ(0, ask_for(&self->client, 1, "file", &conn));
	EXPECT_EQ(BLK(PERMISSION), blk_write(&conn, 0, 512, 0, 1));
	EXPECT_EQ(BLK(PERMISSION), blk_simple(&conn, BLK(DISCARD), 0, 4096,
					      0));
	EXPECT_EQ(BLK(PERMISSION), blk_simple(&conn, BLK(WRITE_ZEROES), 0,
					      4096, 0));
	EXPECT_EQ(0, blk_simple(&conn, BLK(FLUSH), 0, 0, 0));
	EXPECT_EQ(0, blk_read(&conn, 0, 4096, 0, 1));
	EXPECT_TRUE(zeros(self->client.mem, 4096));
	blk_disconnect(&conn);
	ASSERT_EQ(0, ask_inline(&self->client, 2, "file", 4096, &conn));
	EXPECT_EQ(BLK(PERMISSION), blk_write_inline(&conn, 0, 512,
						    self->client.mem));
	EXPECT_EQ(0, blk_simple(&conn, BLK(FLUSH), 0, 0, 0));
	blk_disconnect(&conn);
}

/*
 * The server must not wait without limit for a client that does not take its
 * replies.
 */
TEST_F_TIMEOUT(blkd_named, who_does_not_take_replies_is_left, LIMIT_S)
{
	struct blk_client other;
	struct blk_conn conn, second;
	struct blk_message msg;
	unsigned int i;

	ASSERT_EQ(0, blk_open(&other, &self->server, 0x12));
	ASSERT_EQ(0, ask_for(&other, 1, "file", &second));
	ASSERT_EQ(0, ask_for(&self->client, 1, "file", &conn));
	conn.greedy = true;
	for (i = 0; i < conn.asked; i++)
		ASSERT_EQ(0, blk_simple(&conn, BLK(NOP), 0, 0, 0));
	ASSERT_EQ(0, blk_transfer(&conn, BLK(READ), 0, 4096, 0, 1, &msg));
	ASSERT_EQ(0, blk_send(&conn, &msg, blk_size(&msg)));
	EXPECT_EQ(0, blk_await_end(&conn));
	EXPECT_EQ(0, blk_read(&second, 0, 4096, 0, 1));
	blk_disconnect(&conn);
	blk_close(&other);
}

/* Each client has two connections, as its ring is short. */
#define MANY	40

FIXTURE(blkd_deep)
{
	struct blk_server server;
};

FIXTURE_SETUP(blkd_deep)
{
	static const char *const args[] = { "memory:64K", "--depth-max", "256",
					    NULL };

	ASSERT_EQ(0, blk_serve(&self->server, args));
}

FIXTURE_TEARDOWN(blkd_deep)
{
	EXPECT_EQ(0, blk_end(&self->server));
}

/* The server's ring has room for the completions of some connections only. */
TEST_F_TIMEOUT(blkd_deep, connections_beyond_the_completions_are_refused,
	       SOAK_S)
{
	static struct blk_client clients[MANY];
	struct blk_conn conns[2 * MANY];
	struct ib_memreg_blk_hello hello;
	unsigned int n, opened = 0;
	int ret = 0;

	if (debug_kernel() && !test_full())
		SKIP(return, "it takes too long here");
	for (n = 0; n < 2 * MANY && !ret; n++) {
		if (n % 2 == 0)
			ASSERT_EQ(0, blk_open(&clients[opened++],
					      &self->server,
					      (uint8_t)(1 + n / 2)));
		hello = blk_hello(&clients[n / 2], 1);
		hello.queues = htobe16(2);
		hello.queue = htobe16(n % 2);
		hello.depth = htobe16(256);
		ret = blk_ask(&clients[n / 2], &hello, sizeof(hello),
			      &conns[n]);
	}
	EXPECT_EQ(BLK(BUSY), ret);
	EXPECT_LT(20, n);
	EXPECT_EQ(0, blk_says(&self->server, "lower --depth-max"));
	/* A client that is connected stays connected. */
	EXPECT_EQ(0, blk_simple(&conns[0], BLK(NOP), 0, 0, 0));
	while (opened)
		blk_close(&clients[--opened]);
}

#define HELLO(_name, ...)						\
	static void hello_##_name(struct ib_memreg_blk_hello *h)	\
	{								\
		__VA_ARGS__;						\
	}

HELLO(magic, h->magic = htobe32(0x6d726567))
HELLO(version, h->version = htobe16(1))
HELLO(version_2, h->version = htobe16(2))
HELLO(version_4, h->version = htobe16(4))
HELLO(version_0, h->version = 0)
HELLO(no_queues, h->queues = 0)
HELLO(queue, h->queue = htobe16(1))
HELLO(many_queues, h->queues = htobe16(65))
HELLO(more_queues, h->queues = htobe16(3))
HELLO(no_depth, h->depth = 0)
HELLO(depth, h->depth = htobe16(257))
HELLO(epoch, h->epoch = 0)
HELLO(reserved, h->reserved = htobe16(1))
HELLO(inline, h->inline_max = htobe16(BLK(INLINE_MAX) + 1))
HELLO(padding, h->name[15] = 'x')
HELLO(case, h->name[0] = 'F')

TEST_F_TIMEOUT(blkd_named, bad_requests_are_refused_with_the_reason, LIMIT_S)
{
	static const struct {
		void (*violate)(struct ib_memreg_blk_hello *h);
		int status;
	} cases[] = {
		{ hello_magic, BLK(INVALID) },
		{ hello_version, BLK(UNSUPPORTED) },
		{ hello_version_0, BLK(UNSUPPORTED) },
		{ hello_version_2, BLK(UNSUPPORTED) },
		{ hello_version_4, BLK(UNSUPPORTED) },
		{ hello_no_queues, BLK(INVALID) },
		{ hello_queue, BLK(INVALID) },
		{ hello_many_queues, BLK(INVALID) },
		{ hello_more_queues, BLK(BUSY) },
		{ hello_no_depth, BLK(INVALID) },
		{ hello_depth, BLK(INVALID) },
		{ hello_epoch, BLK(INVALID) },
		{ hello_reserved, BLK(INVALID) },
		{ hello_inline, BLK(INVALID) },
		{ hello_padding, BLK(INVALID) },
		{ hello_case, BLK(NO_EXPORT) },
	};
	struct ib_memreg_blk_hello hello;
	struct blk_conn conn;
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		hello = blk_hello(&self->client, 1);
		memcpy(hello.name, "file", 4);
		cases[i].violate(&hello);
		EXPECT_EQ(cases[i].status, blk_ask(&self->client, &hello,
						   sizeof(hello), &conn));
	}
	/* An empty hello, or one without a name. */
	EXPECT_EQ(BLK(INVALID), blk_ask(&self->client, &hello, 0, &conn));
	EXPECT_EQ(BLK(NO_EXPORT), blk_ask(&self->client, &hello,
					  offsetof(struct ib_memreg_blk_hello,
						   name), &conn));
	ASSERT_EQ(0, ask_for(&self->client, 1, "file", &conn));
	blk_disconnect(&conn);
}

TEST_HARNESS_MAIN
