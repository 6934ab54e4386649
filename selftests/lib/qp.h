/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ends of connections that libibverbs makes without a connection manager, in
 * whatever protection domain: so keys of libraries that keep their QPs for
 * themselves can be used as a peer would. Functions return 0 or -errno.
 */
#ifndef SELFTESTS_QP_H
#define SELFTESTS_QP_H

#include <stdint.h>
#include <infiniband/verbs.h>

/**
 * struct qp_addr - Number and address that the other end must know
 * @qpn: Number of the QP
 * @gid: GID that it is reached by
 */
struct qp_addr {
	uint32_t qpn;
	union ibv_gid gid;
};

/**
 * struct qp_end - An end
 * @pd: Its protection domain, of the caller's
 * @cq: Its completion queue
 * @qp: The QP
 * @gid_index: Index of @addr.gid
 * @addr: Address to pass to the other end
 */
struct qp_end {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int gid_index;
	struct qp_addr addr;
};

/* The device of that name, or NULL */
struct ibv_context *qp_device(const char *name);

int qp_open(struct qp_end *end, struct ibv_pd *pd);
int qp_connect(struct qp_end *end, const struct qp_addr *other);
void qp_close(struct qp_end *end);

/*
 * IBV_WR_RDMA_READ or WRITE of @mr's first @length bytes; wait. The status that
 * it ended with, or -errno.
 */
int qp_do(struct qp_end *end, enum ibv_wr_opcode opcode, struct ibv_mr *mr,
	  uint32_t length, uint64_t addr, uint32_t rkey);

#endif /* SELFTESTS_QP_H */
