/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What tests share that move data: the calls of memreg's end, completion rings,
 * and the other end, which is of librdmacm and libibverbs alone and knows
 * nothing of memreg. Both ends are in the process of the test, the other one in
 * the peer's network namespace.
 *
 * Functions return 0 or -errno unless they say otherwise, and nothing waits
 * without a limit.
 */
#ifndef SELFTESTS_DATA_H
#define SELFTESTS_DATA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "memreg_fixture.h"
#include "net.h"

/* Of net.h, test.h and mem.h by their older names */
#define OWNER_IP	OWNER_IP4
#define PEER_IP		PEER_IP4
#define WAIT_MS		LIMIT_MS
#define byte_at		pattern

#define OP(name)	IB_MEMREG_OP_##name
#define SIGNALED	IB_MEMREG_WR_SIGNALED
#define FENCE		IB_MEMREG_WR_FENCE
#define SOLICITED	IB_MEMREG_WR_SOLICITED
#define INLINE		IB_MEMREG_WR_INLINE
#define INSERT_RKEY	IB_MEMREG_WR_INSERT_RKEY

/* A work request; one SGE of it, or several; data to be sent inline. */
#define WR(_op, _target, ...)						\
	((struct ib_memreg_wr){						\
		.target_id = (_target),					\
		.opcode = IB_MEMREG_OP_##_op,				\
		##__VA_ARGS__						\
	})
#define SGE(_mr, _offset, _length)					\
	.num_sge = 1,							\
	.sge = { .mr_id = (_mr), .offset = (_offset), .length = (_length) }
#define SGES(_sges, _n)							\
	.num_sge = (_n), .sges = (uintptr_t)(_sges)
#define INLINE_DATA(_data, _n)						\
	.sges = (uintptr_t)(_data), .length = (_n)

/*
 * Rings
 */

/**
 * struct ring - A completion ring, mapped
 * @fd: Its descriptor
 * @id: Its id in the file
 * @entries: Entries that it has
 * @entry_size: Bytes of each
 * @map_size: Bytes that are mapped
 * @shared: What is mapped
 * @first: Entry 0
 * @consumed: Entries that were taken
 */
struct ring {
	int fd;
	__u32 id;
	__u32 entries;
	__u32 entry_size;
	size_t map_size;
	struct ib_memreg_ring *shared;
	const uint8_t *first;
	__u32 consumed;
};

/* A copy of an entry of either size; in a large one its data goes on. */
union entry {
	struct ib_memreg_cqe cqe;
	uint8_t bytes[128];
};

int ring_create(int fd, struct ring *ring, __u32 entries, __u32 entry_size,
		__u32 flags, int eventfd);
/* Unmap it and close its descriptor; the ring stays. */
void ring_unmap(struct ring *ring);

/* Entries that are there; entry @i of them; they are done with. */
__u32 ring_count(const struct ring *ring);
const struct ib_memreg_cqe *ring_entry(const struct ring *ring, __u32 i);
void ring_done(struct ring *ring, __u32 n);

/* RING_WAIT; @count may be NULL. */
int ring_wait(const struct ring *ring, __u32 min_count, __u64 timeout_ns,
	      __u32 *count);
/* Wait for an entry and take it. */
int ring_next(struct ring *ring, union entry *entry);
const uint8_t *entry_data(const union entry *entry);

/*
 * Calls
 */

int raw_submit(int fd, struct ib_memreg_wr *wrs, __u32 count);
/* Work requests that the last one of this thread posted */
__u32 raw_taken(void);
int raw_srq(int fd, __u32 domain, __u32 ring, __u32 max_recv, __u32 sges,
	    __u32 flags, __u32 *srq);
int raw_setup(int fd, __u32 endpoint, __u32 domain,
	      const struct ib_memreg_queues *queues);
int raw_accept(int fd, __u32 endpoint, __u32 domain);
int raw_listen(int fd, __be16 *port);
int raw_connect(int fd, __u32 domain, const char *ip, __be16 port,
		const struct ib_memreg_queues *queues, __u32 *endpoint);
int raw_disconnect(int fd, __u32 endpoint);
int raw_windows_2b(int fd, __u32 domain, __u64 span, __u32 *ids, __u32 count);
/* Events up to the first one of this type; -ECONNABORTED if that never comes */
int raw_await(int fd, __u32 type, __u32 *endpoint);
/* SGEs and windows that MRs of this id have, in whichever file; or -errno */
int raw_users(__u32 mr);

/*
 * The other end
 */

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
 * @events: Of the connection manager
 * @listener: Its listener
 * @port: Where that listens
 * @id: The connection
 * @qp: Its queue pair
 * @connects: It was this end that connected
 * @pd: Protection domain
 * @sent: Completions of what was sent
 * @received: Completions of what was received
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

/* It listens from now on. */
int stock_open(struct stock *s, size_t len);
void stock_close(struct stock *s);

/* Ask for a connection; wait for a request, accept it; wait until it is up */
int stock_connect(struct stock *s, const char *ip, __be16 port);
int stock_request(struct stock *s);
int stock_accept(struct stock *s);
int stock_established(struct stock *s);
/* The next event is of this type. */
int stock_await(struct stock *s, enum rdma_cm_event_type type);
/* End the connection, so that another one can follow. */
void stock_disconnect(struct stock *s);

/* A receive into its memory. Its wr_id is @offset. */
int stock_recv(struct stock *s, size_t offset, size_t len);
/* Wait for a completion. */
int stock_next(struct stock_queue *q, struct ibv_wc *wc);
/* Post with the memory described; and wait, for the status it ends with. */
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
/* Both -EOPNOTSUPP where the device has no such operation */
int stock_flush(struct stock *s, size_t len, uint64_t addr, uint32_t rkey,
		unsigned int level);
int stock_atomic_write(struct stock *s, uint64_t value, uint64_t addr,
		       uint32_t rkey);
/* Bind its window of type 2 to a part of its memory. */
int stock_bind(struct stock *s, size_t offset, size_t len, unsigned int access,
	       uint32_t *rkey);

/*
 * Both of them
 */

/**
 * struct link - A connection between an endpoint and a stock end
 * @fd: A file, open and bound
 * @domain: A domain of it
 * @port: Where it listens
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

/* Open file and stock end, and let both listen. */
int link_open(struct link *l, size_t stock_len);
/* The stock end first, if @l has no endpoint that the test gave away. */
void link_close(struct link *l);
/*
 * Begin to connect, from either end, to where both have queues in which
 * receives can be posted; then go on to where the connection is up.
 */
int link_begin(struct link *l, const struct ib_memreg_queues *queues,
	       bool connects);
int link_finish(struct link *l, bool connects);
int link_up(struct link *l, const struct ib_memreg_queues *queues,
	    bool connects);

#endif /* SELFTESTS_DATA_H */
