/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A client of <rdma/memreg_pool.h> in short: the example of
 * Documentation/kernel-api.rst. KUnit's tests have a device and a server for
 * it.
 */
#ifndef _MEMREG_EXAMPLE_H
#define _MEMREG_EXAMPLE_H

#include <linux/completion.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>
#include <rdma/memreg_pool.h>

#define EXAMPLE_MRS	4	/* of a read, at most */
#define EXAMPLE_READS	4	/* in flight, at most */

/**
 * struct example_message - What the client sends
 * @block: Which block is wanted
 * @read: Told in the answer
 * @nr_segs: Segments
 * @segs: Where to
 */
struct example_message {
	u32 block;
	u32 read;
	u32 nr_segs;
	struct ib_memreg_seg segs[EXAMPLE_MRS];
};

/**
 * struct example_answer - What the server answers
 * @read: That of the message
 * @status: 0, or a negative errno
 */
struct example_answer {
	u32 read;
	s32 status;
};

struct example_client;

/**
 * struct example_read - A block that is read
 * @req: Its memory
 * @client: Whose it is
 * @message: What is sent, mapped for DMA
 * @sge: Where that is
 * @status: How it went, when it is done
 * @done: It is
 */
struct example_read {
	struct ib_memreg_req req;
	struct example_client *client;
	struct example_message *message;
	struct ib_sge sge;
	int status;
	struct completion done;
};

/**
 * struct example_client - A connection, and its reads
 * @qp: The connection
 * @pool: MRs
 * @reserve: Those for one read at least
 * @lock: Against posts when it ends
 * @lost: The connection has to end
 * @closing: It ends; who makes another one clears it
 * @reads: As many as may be in flight
 */
struct example_client {
	struct ib_qp *qp;
	struct ib_memreg_pool *pool;
	struct ib_memreg_reserve *reserve;
	spinlock_t lock;	/* closing */
	bool lost;
	bool closing;
	struct example_read reads[EXAMPLE_READS];
};

void example_read_init(struct example_read *read,
		       struct example_client *client);
int example_read_send(struct example_read *read, struct scatterlist *sgl,
		      int nents);
void example_answered(struct example_client *client, const struct ib_wc *wc,
		      const struct example_answer *answer);
void example_disconnect(struct example_client *client);

#endif
