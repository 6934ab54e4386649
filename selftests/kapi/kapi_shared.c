// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sample of a client whose memory stays registered, kernel/samples/shared.c,
 * in the network namespace of the owner, with a server of librdmacm and
 * libibverbs. selftests/run checks that the client leaves nothing behind.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "module.h"
#include "net.h"
#include "stock.h"

#define MODULE	"ib_memreg_shared"
#define TEXT	"what-it-shares"

/* Where things are in the server's memory */
#define AT_MESSAGE	0
#define AT_TEXT		256
#define SIZE		4096

/* Message of the client: struct ib_memreg_seg of <rdma/memreg_pool.h> */
struct message {
	uint64_t iova;
	uint32_t length;
	uint32_t rkey;
};

FIXTURE(shared)
{
	int module;
	struct stock server;
	struct message message;
};

FIXTURE_SETUP(shared)
{
	self->module = test_module_open(MODULE);
	if (self->module < 0)
		SKIP(return, MODULE ".ko was not built");
	ASSERT_EQ(0, stock_open(&self->server, SIZE));
}

FIXTURE_TEARDOWN(shared)
{
	if (self->module < 0)
		return;
	syscall(SYS_delete_module, MODULE, O_NONBLOCK);
	stock_close(&self->server);
	close(self->module);
}

/* Load the module, which stays, and take its message. */
static void begin(struct __test_metadata *_metadata,
		  FIXTURE_DATA(shared) *self)
{
	struct stock *s = &self->server;
	char options[96];
	struct ibv_wc wc;
	int status;
	pid_t pid;

	snprintf(options, sizeof(options),
		 "server=" PEER_IP4 " port=%u text=" TEXT, be16toh(s->port));
	pid = fork();
	ASSERT_LE(0, pid);
	if (pid == 0)
		_exit(syscall(SYS_finit_module, self->module, options, 0) ?
		      errno : 0);
	ASSERT_EQ(0, stock_request(s));
	ASSERT_EQ(0, stock_recv(s, AT_MESSAGE, sizeof(self->message)));
	ASSERT_EQ(0, stock_accept(s));
	ASSERT_EQ(0, stock_established(s));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	ASSERT_EQ(0, stock_next(&s->received, &wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	ASSERT_EQ(sizeof(self->message), wc.byte_len);
	memcpy(&self->message, s->mem + AT_MESSAGE, sizeof(self->message));
}

static int read_text(FIXTURE_DATA(shared) *self)
{
	memset(self->server.mem + AT_TEXT, 0, sizeof(TEXT));
	return stock_read(&self->server, AT_TEXT, sizeof(TEXT),
			  self->message.iova, self->message.rkey);
}

TEST_F(shared, key_works_until_the_module_is_removed)
{
	unsigned int i;

	begin(_metadata, self);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(IBV_WC_SUCCESS, read_text(self));
		EXPECT_STREQ(TEXT, (char *)self->server.mem + AT_TEXT);
	}
	EXPECT_EQ(0, syscall(SYS_delete_module, MODULE, O_NONBLOCK));
	EXPECT_EQ(0, stock_await(&self->server, RDMA_CM_EVENT_DISCONNECTED));
}

TEST_F(shared, I1_key_dies_if_the_server_has_left)
{
	begin(_metadata, self);
	EXPECT_EQ(IBV_WC_SUCCESS, read_text(self));
	stock_disconnect(&self->server);
	EXPECT_EQ(0, syscall(SYS_delete_module, MODULE, O_NONBLOCK));
}

TEST_F(shared, I7_device_goes)
{
	begin(_metadata, self);
	EXPECT_EQ(0, shell("rxe_down owner"));
	EXPECT_EQ(0, stock_await(&self->server, RDMA_CM_EVENT_DISCONNECTED));
	EXPECT_EQ(0, syscall(SYS_delete_module, MODULE, O_NONBLOCK));
	EXPECT_EQ(0, shell("rxe_up owner && await 60 rxe_ready owner"));
}

TEST_HARNESS_MAIN
