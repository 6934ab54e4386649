// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A file goes to a peer, with everything that moves data in one io_uring: it
 * is read into a registered buffer, sent from there, received into such a
 * buffer and written from there. Nothing is copied or registered for RDMA.
 *
 *	uring DEVICE -l ADDRESS PORT >COPY	receive
 *	uring DEVICE ADDRESS PORT <FILE		send
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
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

/* Do what was prepared, and wait for it */
static int run(void)
{
	struct io_uring_cqe *cqe;
	int res = io_uring_submit_and_wait(&uring, 1);

	if (res < 0)
		errx(1, "io_uring: %s", strerror(-res));
	io_uring_peek_cqe(&uring, &cqe);
	res = cqe->res;
	io_uring_cqe_seen(&uring, cqe);
	return res;
}

/* Do a work request with the first bytes of the buffer */
static int command(struct memreg *m, struct ib_memreg_wr *wr, uint32_t length)
{
	struct ib_memreg_uring_submit submit = {
		.wrs = (uintptr_t)wr,
		.count = 1,
	};
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring);

	wr->num_sge = 1;
	wr->sge.offset = (uintptr_t)buffer;
	wr->sge.length = length;
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, memreg_fd(m), NULL, 0, 0);
	sqe->cmd_op = IB_MEMREG_URING_SUBMIT;
	sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
	sqe->buf_index = 0;
	memcpy(sqe->cmd, &submit, sizeof(submit));
	return run();
}

static void receive_all(struct memreg *m, uint32_t endpoint)
{
	struct ib_memreg_wr wr;
	int length;

	for (;;) {
		memreg_prep_recv(&wr, endpoint, 0, 0, 0, 0);
		length = command(m, &wr, CHUNK);
		if (length < 0)
			break;
		io_uring_prep_write_fixed(io_uring_get_sqe(&uring),
					  STDOUT_FILENO, buffer, length, -1, 0);
		if (run() != length)
			errx(1, "the copy can't be written");
	}
	/* The sender is done. */
	if (length != -ECANCELED && length != -ENOTCONN)
		errx(1, "receive: %s", strerror(-length));
}

static void send_all(struct memreg *m, uint32_t endpoint)
{
	struct ib_memreg_wr wr;
	int length, res;

	for (;;) {
		io_uring_prep_read_fixed(io_uring_get_sqe(&uring), STDIN_FILENO,
					 buffer, CHUNK, -1, 0);
		length = run();
		if (length <= 0)
			break;
		memreg_prep_send(&wr, endpoint, 0, 0, 0);
		res = command(m, &wr, length);
		if (res < 0)
			errx(1, "send: %s", strerror(-res));
	}
	if (length)
		errx(1, "the file can't be read: %s", strerror(-length));
	must(memreg_disconnect(m, endpoint));
}

static void await(struct memreg *m, uint32_t type, struct ib_memreg_event *ev)
{
	must(memreg_get_event(m, ev, -1));
	if (ev->type != type)
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
		await(m, IB_MEMREG_EVENT_CONNECT_REQUEST, &event);
		id = event.endpoint_id;
		must(memreg_setup(m, id, domain, &queues));
		must(memreg_accept(m, id, domain, NULL, 0));
	} else {
		must(memreg_connect_queues(m, domain, (struct sockaddr *)&at,
					   NULL, 5000, NULL, 0, &queues, &id));
	}
	await(m, IB_MEMREG_EVENT_ESTABLISHED, &event);
	if (listening)
		receive_all(m, id);
	else
		send_all(m, id);
	io_uring_queue_exit(&uring);
	memreg_close(m);
	memreg_ring_destroy(NULL, &ring);
	return 0;
}
