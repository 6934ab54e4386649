/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A client of memreg blkd, in the peer's network namespace, for tests: it sends
 * what a test asks for, right or wrong, by libmemreg.
 *
 * Functions return 0 or -errno unless they say otherwise, and nothing waits
 * without a limit.
 */
#ifndef SELFTESTS_BLK_H
#define SELFTESTS_BLK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <rdma/ib_memreg_blk.h>

#include "memreg.h"

#define BLK_MEMORY	(2U << 20)
#define BLK_WINDOWS	8
#define BLK_MESSAGE	8192
#define BLK_ENDED	16

#define BLK(name)	IB_MEMREG_BLK_##name

/**
 * struct blk_server - memreg blkd, a child of the test
 * @pid: The process
 * @out: Pipe from its standard output
 * @port: Port that it listens on
 */
struct blk_server {
	pid_t pid;
	FILE *out;
	uint16_t port;
};

/* Start a server with these arguments, up to NULL. */
int blk_serve(struct blk_server *s, const char *const *args);
/* End the server by SIGTERM and wait. Returns its exit status, or -errno. */
int blk_end(struct blk_server *s);
/* Read lines of the server's output up to one that contains @text. */
int blk_says(struct blk_server *s, const char *text);

/**
 * struct blk_client - Who connects
 * @m: Handle
 * @domain: Domain
 * @ring: For everything
 * @mem: BLK_MEMORY bytes, in the middle of which are the messages
 * @mr: All of it
 * @to: The server
 * @id: The 16 bytes that identify it
 * @seq: The last sequence number that was used
 * @ended: Endpoints whose connections ended last
 * @nr_ended: Number of connections that have ended
 */
struct blk_client {
	struct memreg *m;
	uint32_t domain;
	struct memreg_ring ring;
	uint8_t *mem;
	struct memreg_mr mr;
	struct sockaddr_in to;
	uint8_t id[BLK(CLIENT_SIZE)];
	uint64_t seq;
	uint32_t ended[BLK_ENDED];
	unsigned int nr_ended;
};

int blk_open(struct blk_client *c, const struct blk_server *s, uint8_t id);
void blk_close(struct blk_client *c);

/**
 * struct blk_conn - A connection
 * @client: Whose
 * @endpoint: Its endpoint, or 0
 * @epoch: Its epoch
 * @asked: The depth that it asked for: as many receives are posted
 * @depth: Depth that the server granted
 * @welcome: The welcome that it was accepted with, in host byte order
 * @windows: Windows of type 2B, for first segments
 * @window: Number of windows bound so far
 * @greedy: It does not repost receives that were consumed
 * @data: Data behind the last reply
 * @data_len: Bytes of that
 */
struct blk_conn {
	struct blk_client *client;
	uint32_t endpoint;
	uint32_t epoch;
	uint16_t asked;
	uint16_t depth;
	struct ib_memreg_blk_welcome welcome;
	uint32_t windows[BLK_WINDOWS];
	unsigned int window;
	bool greedy;
	const uint8_t *data;
	uint32_t data_len;
};

/* Fill in a valid connection request for the first queue of one. */
struct ib_memreg_blk_hello blk_hello(const struct blk_client *c,
				     uint32_t epoch);
/*
 * Request a connection with @len bytes of private data. Returns 0; or a
 * positive enum ib_memreg_blk_status if the server rejects it with that; or
 * -errno.
 */
int blk_ask(struct blk_client *c, const struct ib_memreg_blk_hello *hello,
	    size_t len, struct blk_conn *conn);
int blk_connect(struct blk_client *c, uint32_t epoch, struct blk_conn *conn);
/* The same, with up to so many bytes of data in a message: 4096 at most */
int blk_connect_inline(struct blk_client *c, uint32_t epoch, uint16_t most,
		       struct blk_conn *conn);
void blk_disconnect(struct blk_conn *conn);

/* Fill in a valid command in big endian, with the next sequence number. */
struct blk_message {
	struct ib_memreg_blk_cmd cmd;
	struct ib_memreg_blk_seg segs[BLK(SEGS_MAX) + 1];
};

struct blk_message blk_command(struct blk_conn *conn, uint8_t opcode,
			       uint64_t offset, uint32_t length);
/* The same, with the memory from @mem on as @n segments */
int blk_transfer(struct blk_conn *conn, uint8_t opcode, uint64_t offset,
		 uint32_t length, size_t mem, unsigned int n,
		 struct blk_message *msg);
size_t blk_size(const struct blk_message *msg);
int blk_send(struct blk_conn *conn, const void *msg, size_t len);
/* Send a command without segments, and @len bytes of data behind it. */
int blk_send_data(struct blk_conn *conn, const struct blk_message *msg,
		  const void *data, size_t len);

/*
 * Wait for the next reply on this connection, in host byte order, and the rkey
 * that its message invalidated, or 0. Ignores replies on other connections of
 * the client. Returns -ECONNRESET if the connection ended.
 */
int blk_reply(struct blk_conn *conn, struct ib_memreg_blk_reply *reply,
	      uint32_t *rkey);
/* Wait for the end of the connection. */
int blk_await_end(struct blk_conn *conn);

/*
 * Send a command, wait for its reply, and check that the reply is consistent.
 * Returns its status. The data of a READ without segments is at @data of the
 * connection.
 */
int blk_do(struct blk_conn *conn, const struct blk_message *msg);
int blk_read(struct blk_conn *conn, uint64_t offset, uint32_t length,
	     size_t mem, unsigned int n);
int blk_write(struct blk_conn *conn, uint64_t offset, uint32_t length,
	      size_t mem, unsigned int n);
/*
 * Write from @data in a message, or read to the connection's @data by a
 * message.
 */
int blk_read_inline(struct blk_conn *conn, uint64_t offset, uint32_t length);
int blk_write_inline(struct blk_conn *conn, uint64_t offset, uint32_t length,
		     const void *data);
int blk_simple(struct blk_conn *conn, uint8_t opcode, uint64_t offset,
	       uint32_t length, uint8_t flags);

#endif /* SELFTESTS_BLK_H */
