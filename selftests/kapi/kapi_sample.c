// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sample of a kernel module that calls ib_memreg, kernel/samples/client.c,
 * in the network namespace of the owner, with a server of librdmacm and
 * libibverbs that follows the protocol, or breaks it. selftests/run checks that
 * the client leaves nothing behind.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "net.h"
#include "stock.h"

#define MODULE	"ib_memreg_sample"
#define TEXT	"/sys/module/" MODULE "/parameters/text"
#define HELLO	"written by the server"

/* Where things are in the server's memory */
#define AT_MESSAGE	0
#define AT_HELLO	256
#define AT_ANSWER	512
#define SIZE		4096

/* Message of the client: struct ib_memreg_seg of <rdma/memreg_pool.h> */
struct message {
	uint64_t iova;
	uint32_t length;
	uint32_t rkey;
};

static int open_module(void)
{
	struct utsname host;
	char path[4200];
	const char *build = getenv("BUILD");

	if (!build || uname(&host))
		return -1;
	snprintf(path, sizeof(path), "%s/kernel-%s/" MODULE ".ko", build,
		 host.release);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static bool loaded(void)
{
	return access(TEXT, F_OK) == 0;
}

FIXTURE(client)
{
	int module;
	pid_t pid;
	struct stock server;
	struct message message;
};

FIXTURE_SETUP(client)
{
	self->module = open_module();
	if (self->module < 0)
		SKIP(return, MODULE ".ko was not built");
	ASSERT_EQ(0, stock_open(&self->server, SIZE));
	strcpy((char *)self->server.mem + AT_HELLO, HELLO);
}

FIXTURE_TEARDOWN(client)
{
	if (self->module < 0)
		return;
	stock_close(&self->server);
	if (loaded())
		EXPECT_EQ(0, syscall(SYS_delete_module, MODULE, O_NONBLOCK));
	close(self->module);
}

/* Load the module, which does all that it does meanwhile. */
static void begin(struct __test_metadata *_metadata,
		  FIXTURE_DATA(client) *self)
{
	char options[64];

	snprintf(options, sizeof(options), "server=" PEER_IP4 " port=%u",
		 be16toh(self->server.port));
	self->pid = fork();
	ASSERT_LE(0, self->pid);
	if (self->pid == 0)
		_exit(syscall(SYS_finit_module, self->module, options, 0) ?
		      errno : 0);
}

/* Check the result of the client. */
static int end(FIXTURE_DATA(client) *self)
{
	int status;

	if (waitpid(self->pid, &status, 0) != self->pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* Connect, and take the message. */
static void greet(struct __test_metadata *_metadata,
		  FIXTURE_DATA(client) *self)
{
	struct stock *s = &self->server;
	struct ibv_wc wc;

	begin(_metadata, self);
	ASSERT_EQ(0, stock_request(s));
	ASSERT_EQ(0, stock_recv(s, AT_MESSAGE, sizeof(self->message)));
	ASSERT_EQ(0, stock_accept(s));
	ASSERT_EQ(0, stock_established(s));
	ASSERT_EQ(0, stock_next(&s->received, &wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	ASSERT_EQ(sizeof(self->message), wc.byte_len);
	memcpy(&self->message, s->mem + AT_MESSAGE, sizeof(self->message));
	ASSERT_LE(sizeof(HELLO), self->message.length);
}

/* Write the text to the client. */
static int write_text(FIXTURE_DATA(client) *self)
{
	return stock_write(&self->server, AT_HELLO, sizeof(HELLO),
			   self->message.iova, self->message.rkey);
}

/* An answer, with which the key may be killed */
static int answer(FIXTURE_DATA(client) *self, enum ibv_wr_opcode opcode,
		  uint32_t rkey, size_t length)
{
	struct ibv_send_wr wr = { .opcode = opcode, .invalidate_rkey = rkey };

	return stock_do(&self->server, &wr, AT_ANSWER, length);
}

/*
 * A good answer. The client disconnects as soon as it has it, and rxe sends no
 * ACK once a QP is in the error state, so only the client's result shows that
 * the answer arrived.
 */
static int last_answer(FIXTURE_DATA(client) *self, enum ibv_wr_opcode opcode,
		       uint32_t rkey)
{
	struct ibv_send_wr wr = { .opcode = opcode, .invalidate_rkey = rkey };

	return stock_post(&self->server, &wr, AT_ANSWER, 0);
}

static void has_text(struct __test_metadata *_metadata)
{
	char text[256] = "";
	FILE *file = fopen(TEXT, "re");

	ASSERT_NE(NULL, file);
	EXPECT_NE(NULL, fgets(text, sizeof(text), file));
	EXPECT_STREQ(HELLO "\n", text);
	fclose(file);
}

TEST_F(client, server_invalidates_the_key)
{
	greet(_metadata, self);
	EXPECT_EQ(IBV_WC_SUCCESS, write_text(self));
	EXPECT_EQ(0, last_answer(self, IBV_WR_SEND_WITH_INV,
				 self->message.rkey));
	EXPECT_EQ(0, end(self));
	has_text(_metadata);
}

TEST_F(client, client_invalidates_the_key)
{
	greet(_metadata, self);
	EXPECT_EQ(IBV_WC_SUCCESS, write_text(self));
	EXPECT_EQ(0, last_answer(self, IBV_WR_SEND, 0));
	EXPECT_EQ(0, end(self));
	has_text(_metadata);
}

TEST_F(client, I5_key_that_was_not_granted_ends_the_connection)
{
	greet(_metadata, self);
	EXPECT_EQ(IBV_WC_SUCCESS, write_text(self));
	answer(self, IBV_WR_SEND_WITH_INV, self->message.rkey ^ 1, 0);
	EXPECT_EQ(ECONNABORTED, end(self));
	EXPECT_FALSE(loaded());
}

TEST_F(client, answer_with_content_ends_the_connection)
{
	greet(_metadata, self);
	EXPECT_LT(IBV_WC_SUCCESS, answer(self, IBV_WR_SEND, 0, 8));
	EXPECT_EQ(ECONNABORTED, end(self));
	EXPECT_FALSE(loaded());
}

TEST_F(client, server_that_leaves_ends_the_request)
{
	greet(_metadata, self);
	EXPECT_EQ(IBV_WC_SUCCESS, write_text(self));
	stock_disconnect(&self->server);
	EXPECT_EQ(ECONNABORTED, end(self));
	EXPECT_FALSE(loaded());
}

TEST_F(client, server_that_refuses_is_an_error)
{
	begin(_metadata, self);
	ASSERT_EQ(0, stock_request(&self->server));
	EXPECT_EQ(0, rdma_reject(self->server.id, NULL, 0));
	EXPECT_EQ(ECONNREFUSED, end(self));
	EXPECT_FALSE(loaded());
}

TEST_F(client, bad_address_is_an_error)
{
	static const char options[] = "server=none port=1";

	EXPECT_NE(0, syscall(SYS_finit_module, self->module, options, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_FALSE(loaded());
}

TEST_HARNESS_MAIN
