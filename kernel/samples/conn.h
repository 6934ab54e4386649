/* SPDX-License-Identifier: GPL-2.0-only */
/* A connection of a sample: see conn.c. */
#ifndef _MEMREG_SAMPLES_CONN_H
#define _MEMREG_SAMPLES_CONN_H

#include <linux/completion.h>
#include <linux/wait.h>
#include <rdma/memreg_pool.h>
#include <rdma/rdma_cm.h>

#define SAMPLE_LIMIT	(20 * HZ)	/* for each step, and each answer */

/**
 * struct sample_conn - A connection to a server, and what requests need
 * @id: It, with a QP
 * @pd: PD of the QP
 * @pool: Pool of @pd
 * @cq: CQ of the QP
 * @status: Outcome of a step of connecting
 * @step: The step has ended
 * @lost: The server has disconnected, or broken a rule
 * @wait: Woken then, and by the sample
 */
struct sample_conn {
	struct rdma_cm_id *id;
	struct ib_pd *pd;
	struct ib_memreg_pool *pool;
	struct ib_cq *cq;
	int status;
	struct completion step;
	bool lost;
	wait_queue_head_t wait;
};

int sample_open(struct sample_conn *conn, const char *server, const char *port,
		const struct ib_memreg_pool_attr *pool, unsigned int depth,
		unsigned int max_mrs);
int sample_post_recv(struct sample_conn *conn, struct ib_cqe *cqe, u64 addr,
		     u32 length);
int sample_connect(struct sample_conn *conn);
void sample_lost(struct sample_conn *conn);
void sample_disconnect(struct sample_conn *conn);
void sample_close(struct sample_conn *conn);

#endif /* _MEMREG_SAMPLES_CONN_H */
