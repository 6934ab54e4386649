// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Send a file to a peer, with all steps that move data in one io_uring: read it
 * into a registered buffer, send it from there, receive it into a registered
 * buffer and write it from there. No data is copied, and no memory is
 * registered for RDMA.
 *
 * A message needs a receive that was posted before: an empty message announces
 * each to the sender. An empty message of the sender is the end of the file.
 *
 *	uring DEVICE -l ADDRESS PORT >COPY	receive
 *	uring DEVICE ADDRESS PORT <FILE		send
 */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <liburing.h>
#include <memreg.h>

#define CHUNK 65536

static char buffer[CHUNK] __attribute__((aligned(4096)));
static struct io_uring uring;

static void must(int result)
{
	if (result)
		errx(1, "%s", memreg_reason());
}

/* At most one of each is in flight; user_data identifies it. */
enum { RECEIVE, OTHER };
static int results[2];
static int done[2];

/* Do what was prepared, and wait for one of the two */
static int result_of(unsigned int which)
{
	struct io_uring_cqe *cqe;
	int res;

	while (!done[which]) {
		res = io_uring_submit_and_wait(&uring, 1);
		if (res < 0)
			errx(1, "io_uring: %s", strerror(-res));
		while (!io_uring_peek_cqe(&uring, &cqe)) {
			results[cqe->user_data] = cqe->res;
			done[cqe->user_data] = 1;
			io_uring_cqe_seen(&uring, cqe);
		}
	}
	done[which] = 0;
	return results[which];
}

/* Prepare a work request with the first bytes of the buffer, or without any */
static void prepare(struct memreg *m, struct ib_memreg_wr *wr, uint32_t length,
		    unsigned int which)
{
	struct ib_memreg_uring_submit submit = {
		.wrs = (uintptr_t)wr,
		.count = 1,
	};
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring);

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, memreg_fd(m), NULL, 0, 0);
	sqe->user_data = which;
	sqe->cmd_op = IB_MEMREG_URING_SUBMIT;
	wr->num_sge = !!length;
	if (length) {
		wr->sge.offset = (uintptr_t)buffer;
		wr->sge.length = length;
		sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
		sqe->buf_index = 0;
	}
	memcpy(sqe->cmd, &submit, sizeof(submit));
}

/* A pipe may take less at a time */
static void write_all(int length)
{
	struct io_uring_sqe *sqe;
	int at, res;

	for (at = 0; at < length; at += res) {
		sqe = io_uring_get_sqe(&uring);
		io_uring_prep_write_fixed(sqe, STDOUT_FILENO, buffer + at,
					  length - at, -1, 0);
		sqe->user_data = OTHER;
		res = result_of(OTHER);
		if (res <= 0)
			errx(1, "the copy can't be written");
	}
}

static void receive_all(struct memreg *m, uint32_t endpoint)
{
	struct ib_memreg_wr receive, ready;
	int length;

	do {
		memreg_prep_recv(&receive, endpoint, 0, 0, 0, 0);
		prepare(m, &receive, CHUNK, RECEIVE);
		memreg_prep_send(&ready, endpoint, 0, 0, 0);
		prepare(m, &ready, 0, OTHER);
		length = result_of(OTHER);
		if (!length)
			length = result_of(RECEIVE);
		if (length < 0)
			errx(1, "receive: %s", strerror(-length));
		write_all(length);
	} while (length);
}

/* Wait for the peer to be ready, and be ready for its next word */
static void await_ready(struct memreg *m, struct ib_memreg_wr *wr)
{
	int res = result_of(RECEIVE);

	if (res)
		errx(1, "the receiver: %s", strerror(-res));
	prepare(m, wr, 0, RECEIVE);
}

static int read_some(void)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring);

	io_uring_prep_read_fixed(sqe, STDIN_FILENO, buffer, CHUNK, -1, 0);
	sqe->user_data = OTHER;
	return result_of(OTHER);
}

static void send_all(struct memreg *m, uint32_t endpoint,
		     struct ib_memreg_wr *ready)
{
	struct ib_memreg_wr wr;
	int length, res;

	do {
		await_ready(m, ready);
		length = read_some();
		if (length < 0)
			errx(1, "the file can't be read: %s",
			     strerror(-length));
		memreg_prep_send(&wr, endpoint, 0, 0, 0);
		prepare(m, &wr, length, OTHER);
		res = result_of(OTHER);
		if (res < 0)
			errx(1, "send: %s", strerror(-res));
	} while (length);
	must(memreg_disconnect(m, endpoint));
}

/*
 * Wait for the next event of the connection; other peers may request
 * connections meanwhile
 */
static void await(struct memreg *m, uint32_t endpoint, uint32_t type)
{
	struct ib_memreg_event event;

	do {
		must(memreg_get_event(m, &event, -1));
	} while (event.endpoint_id != endpoint);
	if (event.type != type)
		errx(1, "no connection");
}

int main(int argc, char **argv)
{
	int listening = argc > 2 && !strcmp(argv[2], "-l");
	struct iovec iov = { buffer, CHUNK };
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct ib_memreg_queues queues = {
		.max_send = 1, .max_recv = 1,
		.max_send_sge = 1, .max_recv_sge = 1,
	};
	struct ib_memreg_event event;
	struct ib_memreg_wr ready;
	struct memreg_ring ring;
	uint32_t domain, id;
	struct memreg *m;

	if (argc != 4 + listening ||
	    inet_pton(AF_INET, argv[2 + listening], &at.sin_addr) != 1)
		errx(2, "usage: uring DEVICE [-l] ADDRESS PORT");
	at.sin_port = htons(atoi(argv[3 + listening]));
	if (io_uring_queue_init(2, &uring, 0) ||
	    io_uring_register_buffers(&uring, &iov, 1))
		errx(1, "no io_uring");

	/* The completion ring stays empty, but is counted on. */
	must(memreg_open(argv[1], &m));
	must(memreg_domain_create(m, 0, &domain));
	must(memreg_ring_create(m, 4, 64, -1, 0, &ring));
	queues.send_ring_id = ring.id;
	queues.recv_ring_id = ring.id;
	if (listening) {
		must(memreg_listen(m, (struct sockaddr *)&at, 1, &id));
		must(memreg_get_event(m, &event, -1));
		id = event.endpoint_id;
		must(memreg_setup(m, id, domain, &queues));
		must(memreg_accept(m, id, domain, NULL, 0));
	} else {
		must(memreg_connect_queues(m, domain, (struct sockaddr *)&at,
					   NULL, 5000, NULL, 0, &queues, &id));
		memreg_prep_recv(&ready, id, 0, 0, 0, 0);
		prepare(m, &ready, 0, RECEIVE);
		if (io_uring_submit(&uring) != 1)
			errx(1, "io_uring");
	}
	await(m, id, IB_MEMREG_EVENT_ESTABLISHED);
	if (listening)
		receive_all(m, id);
	else
		send_all(m, id, &ready);
	/* The sender ends it, when it knows that the receiver has all. */
	await(m, id, IB_MEMREG_EVENT_DISCONNECTED);
	io_uring_queue_exit(&uring);
	memreg_close(m);
	memreg_ring_destroy(NULL, &ring);
	return 0;
}
