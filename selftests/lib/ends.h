/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Both ends of a connection: an endpoint of memreg and a stock end, a ring for
 * all completions, and memory with an MR. Functions return 0 or -errno unless
 * they say otherwise, and nothing waits without a limit.
 */
#ifndef SELFTESTS_ENDS_H
#define SELFTESTS_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <rdma/ib_memreg.h>

#include "harness.h"
#include "ring.h"
#include "stock.h"

/**
 * struct link - A connection between an endpoint and a stock end
 * @fd: A file, open and bound
 * @domain: A domain of it
 * @port: Port that it listens on
 * @endpoint: Its endpoint
 * @stock: The other end
 */
struct link {
	int fd;
	__u32 domain;
	__be16 port;
	__u32 endpoint;
	struct stock stock;
};

/* Open the file and the stock end, and have both listen. */
int link_open(struct link *l, size_t stock_len);
/* Close the stock end, which ends the connection, and then the file. */
void link_close(struct link *l);
/*
 * Connect in two steps, from either end: after link_begin() both ends have
 * queues in which receives can be posted; link_finish() establishes the
 * connection.
 */
int link_begin(struct link *l, const struct ib_memreg_queues *queues,
	       bool connects);
int link_finish(struct link *l, bool connects);
int link_up(struct link *l, const struct ib_memreg_queues *queues,
	    bool connects);

/* Parameters of a send and a receive queue that complete in one ring */
struct ib_memreg_queues queues_on(__u32 ring, __u32 max_send, __u32 max_recv,
				  __u32 sges, __u32 max_inline);

/* Allocate memory, fill it by seed 1, and register all of it. */
int link_memory(const struct link *l, size_t len, __u32 access, __u8 **mem,
		__u32 *mr);

/**
 * struct reach - Memory that a key is to reach
 * @mem: The memory
 * @total: Bytes of it
 * @offset: Offset of the memory that the key reaches
 * @length: Bytes that it reaches
 * @iova: Address of the first of these, for the peer
 * @rkey: The key
 * @read_only: It is not for writing
 */
struct reach {
	uint8_t *mem;
	size_t total;
	size_t offset;
	size_t length;
	__u64 iova;
	__u32 rkey;
	bool read_only;
};

/* Expect that the stock end reaches these bytes, and no others change. */
void stock_reaches(struct __test_metadata *_metadata, struct stock *s,
		   const struct reach *r);

#endif /* SELFTESTS_ENDS_H */
