/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The other end of a connection, in the process of the test and the peer's
 * network namespace: librdmacm and libibverbs, and no memreg. Functions return
 * 0 or -errno unless they say otherwise, and nothing waits without a limit.
 */
#ifndef SELFTESTS_STOCK_H
#define SELFTESTS_STOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/**
 * struct stock_queue - Completions
 * @channel: Their events
 * @cq: Their queue
 */
struct stock_queue {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
};

/**
 * struct stock - An end of librdmacm and libibverbs, with one connection
 * @events: Event channel of the connection manager
 * @listener: Its listener
 * @port: Port that @listener listens on
 * @id: The connection
 * @qp: Its queue pair
 * @connects: It was this end that connected
 * @pd: Protection domain
 * @sent: Completions of sends
 * @received: Completions of receives
 * @mem: Memory
 * @len: Bytes of it
 * @mr: All of it, for any use
 * @mw: Window of type 2, or NULL
 * @rnr_retry: How often it tries again to send if there is no receive; 7 is for
 *	ever
 * @no_reads: It lets the other end READ nothing, and do no atomics
 */
struct stock {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	__be16 port;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	bool connects;
	struct ibv_pd *pd;
	struct stock_queue sent;
	struct stock_queue received;
	uint8_t *mem;
	size_t len;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint8_t rnr_retry;
	bool no_reads;
};

/* Open an end, with memory, that listens until stock_close(). */
int stock_open(struct stock *s, size_t len);
void stock_close(struct stock *s);

/* Begin to connect */
int stock_connect(struct stock *s, const char *ip, __be16 port);
/* Wait for a connection request; accept it */
int stock_request(struct stock *s);
int stock_accept(struct stock *s);
/*
 * Wait until the other end has accepted, and make the QP ready, without a
 * confirmation
 */
int stock_answered(struct stock *s);
/* Wait until the connection is up, from either end */
int stock_established(struct stock *s);
/* The next event is of this type. */
int stock_await(struct stock *s, enum rdma_cm_event_type type);
/* End the connection, so that another one can follow. */
void stock_disconnect(struct stock *s);

/* A receive into its memory. Its wr_id is @offset. */
int stock_recv(struct stock *s, size_t offset, size_t len);
/* Wait for a completion. */
int stock_next(struct stock_queue *q, struct ibv_wc *wc);
/*
 * Post a work request on @len bytes at @offset of the memory. stock_do() and
 * the functions below also wait, and return the status of the completion.
 */
int stock_post(struct stock *s, const struct ibv_send_wr *request,
	       size_t offset, size_t len);
int stock_do(struct stock *s, const struct ibv_send_wr *request, size_t offset,
	     size_t len);
int stock_send(struct stock *s, size_t offset, size_t len);
int stock_write(struct stock *s, size_t offset, size_t len, uint64_t addr,
		uint32_t rkey);
int stock_read(struct stock *s, size_t offset, size_t len, uint64_t addr,
	       uint32_t rkey);
int stock_send_inv(struct stock *s, uint32_t rkey);
/* These return -EOPNOTSUPP where the device has no such operation. */
int stock_flush(struct stock *s, size_t len, uint64_t addr, uint32_t rkey,
		unsigned int level);
int stock_atomic_write(struct stock *s, uint64_t value, uint64_t addr,
		       uint32_t rkey);
/* Bind its window of type 2 to a part of its memory. */
int stock_bind(struct stock *s, size_t offset, size_t len, unsigned int access,
	       uint32_t *rkey);

#endif /* SELFTESTS_STOCK_H */
