// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sample of a client with read and write lists, kernel/samples/rpc.c, in
 * the network namespace of the owner, with a server of librdmacm and libibverbs
 * that answers its calls in the wrong order, or not at all. selftests/run checks
 * that the client leaves nothing behind.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
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

#define MODULE	"ib_memreg_rpc"

/* As in the sample; each page has the number of the call in all bytes. */
#define CALLS	8
#define SEGS	4
#define BYTES	(3 * 4096)

/* Where things are in the server's memory */
#define AT_CALL(_i)	((_i) * 128)
#define AT_ANSWER	2048
#define AT_DATA		4096
#define SIZE		(AT_DATA + BYTES)

/* Message of the client */
struct call {
	uint32_t xid;
	uint32_t reads;
	struct {
		uint64_t iova;
		uint32_t length;
		uint32_t rkey;
	} segs[SEGS];
};

FIXTURE(rpc)
{
	int module;
	pid_t pid;
	struct stock server;
};

FIXTURE_SETUP(rpc)
{
	self->module = test_module_open(MODULE);
	if (self->module < 0)
		SKIP(return, MODULE ".ko was not built");
	ASSERT_EQ(0, stock_open(&self->server, SIZE));
}

FIXTURE_TEARDOWN(rpc)
{
	if (self->module < 0)
		return;
	stock_close(&self->server);
	syscall(SYS_delete_module, MODULE, O_NONBLOCK);
	close(self->module);
}

/* Load the module, which does all that it does meanwhile; take its calls. */
static void begin(struct __test_metadata *_metadata, FIXTURE_DATA(rpc) *self,
		  struct call *calls)
{
	struct stock *s = &self->server;
	char options[64];
	struct ibv_wc wc;
	unsigned int i;

	snprintf(options, sizeof(options), "server=" PEER_IP4 " port=%u calls=%u",
		 be16toh(s->port), CALLS);
	self->pid = fork();
	ASSERT_LE(0, self->pid);
	if (self->pid == 0)
		_exit(syscall(SYS_finit_module, self->module, options, 0) ?
		      errno : 0);
	ASSERT_EQ(0, stock_request(s));
	for (i = 0; i < CALLS; i++)
		ASSERT_EQ(0, stock_recv(s, AT_CALL(i), sizeof(*calls)));
	ASSERT_EQ(0, stock_accept(s));
	ASSERT_EQ(0, stock_established(s));
	for (i = 0; i < CALLS; i++) {
		ASSERT_EQ(0, stock_next(&s->received, &wc));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		ASSERT_EQ(sizeof(*calls), wc.byte_len);
		memcpy(&calls[i], s->mem + AT_CALL(i), sizeof(*calls));
	}
}

/* Check the result of the client. */
static int end(FIXTURE_DATA(rpc) *self)
{
	int status;

	if (waitpid(self->pid, &status, 0) != self->pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* Read what the call says, and write it inverted, with @flip in addition. */
static void work(struct __test_metadata *_metadata, FIXTURE_DATA(rpc) *self,
		 const struct call *call, uint8_t flip)
{
	unsigned int i, reads = be32toh(call->reads);
	struct stock *s = &self->server;
	size_t at = 0, j;

	ASSERT_EQ(2, reads);
	for (i = 0; i < SEGS; i++) {
		/* The sample has the number of the call in the upper half. */
		if (call->xid)
			EXPECT_EQ(be32toh(call->xid), call->segs[i].iova >> 32);
		if (i == reads) {
			ASSERT_EQ(BYTES, at);
			for (j = 0; j < BYTES; j++) {
				ASSERT_EQ((uint8_t)be32toh(call->xid),
					  s->mem[AT_DATA + j]);
				s->mem[AT_DATA + j] ^= 0xff ^ flip;
			}
			at = 0;
		}
		ASSERT_GE(BYTES, at + call->segs[i].length);
		ASSERT_EQ(IBV_WC_SUCCESS, (i < reads ? stock_read : stock_write)
			  (s, AT_DATA + at, call->segs[i].length,
			   call->segs[i].iova, call->segs[i].rkey));
		at += call->segs[i].length;
	}
	ASSERT_EQ(BYTES, at);
}

/*
 * Answer a call. The client may disconnect as soon as it has the last answer,
 * so only its result shows that that arrived.
 */
static int answer(FIXTURE_DATA(rpc) *self, uint32_t xid, uint32_t rkey,
		  bool last)
{
	struct ibv_send_wr wr = {
		.opcode = rkey ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
		.invalidate_rkey = rkey,
	};

	memcpy(self->server.mem + AT_ANSWER, &xid, sizeof(xid));
	return last ? stock_post(&self->server, &wr, AT_ANSWER, sizeof(xid)) :
		      stock_do(&self->server, &wr, AT_ANSWER, sizeof(xid));
}

TEST_F(rpc, calls_are_answered_in_any_order)
{
	struct call calls[CALLS];
	unsigned int i;

	begin(_metadata, self, calls);
	for (i = CALLS; i-- > 0;) {
		work(_metadata, self, &calls[i], 0);
		EXPECT_EQ(0, answer(self, calls[i].xid,
				    i & 1 ? calls[i].segs[i % SEGS].rkey : 0,
				    !i));
	}
	EXPECT_EQ(0, end(self));
}

TEST_F(rpc, wrong_data_is_seen)
{
	struct call calls[CALLS];
	unsigned int i;

	begin(_metadata, self, calls);
	for (i = 0; i < CALLS; i++) {
		work(_metadata, self, &calls[i], i == CALLS - 1);
		EXPECT_EQ(0, answer(self, calls[i].xid, 0, i == CALLS - 1));
	}
	EXPECT_EQ(EBADMSG, end(self));
}

TEST_F(rpc, I5_key_of_another_call_is_no_answer)
{
	struct call calls[CALLS];

	begin(_metadata, self, calls);
	work(_metadata, self, &calls[0], 0);
	answer(self, calls[0].xid, calls[1].segs[0].rkey, true);
	EXPECT_EQ(ECONNABORTED, end(self));
}

TEST_F(rpc, server_that_leaves_ends_the_calls)
{
	struct call calls[CALLS];

	begin(_metadata, self, calls);
	stock_disconnect(&self->server);
	EXPECT_EQ(ECONNABORTED, end(self));
}

TEST_HARNESS_MAIN
