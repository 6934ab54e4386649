// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connections of ours, and the far ends that are ours as well.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/raw.h"
#include "bench.h"
#include "link.h"

#define RING		2048
#define SENDS		512
#define TIMEOUT_MS	30000
#define RECEIVE		64	/* bytes of each piece */
#define BATCH		32	/* so many receives are posted anew together */
#define SIGNAL		32	/* of so many answers, one is signalled */

/* Length of the granted memory. */
#define GRANT		(1UL << 20)

/*
 * Processes
 */

#define FARS_MAX	8

/* A pipe by which a far end reports that it listens. */
static int ready_pipe[2];

/* Far ends that run, to be killed when the bench ends. */
static pid_t fars[FARS_MAX];
static unsigned int nr_fars;

int enter_peer(void)
{
	int fd = open("/run/netns/memreg-peer", O_RDONLY | O_CLOEXEC);
	int ret = fd < 0 || setns(fd, CLONE_NEWNET) ? errno : 0;

	if (fd >= 0)
		close(fd);
	return ret ? fail("namespace of the peer", ret) : 0;
}

const char *far_device(void)
{
	return getenv("MEMREG_PEER_DEVICE") ?: "rxe_peer";
}

void far_ready(void)
{
	if (write(ready_pipe[1], "", 1) != 1)
		exit(1);
	close(ready_pipe[1]);
}

static void far_main(const struct far *far)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(ready_pipe[0]);
	_exit(enter_peer() || far->serve(far) ? 1 : 0);
}

static void far_stop(void)
{
	while (nr_fars) {
		kill(fars[--nr_fars], SIGKILL);
		waitpid(fars[nr_fars], NULL, 0);
	}
}

int far_start(const struct far *far)
{
	pid_t child;
	char c;
	int n;

	if (nr_fars == FARS_MAX || (!nr_fars && atexit(far_stop)))
		return fail("far ends", ENOSPC);
	if (pipe(ready_pipe))
		return fail("pipe", errno);
	child = fork();
	if (child < 0)
		return fail("fork", errno);
	if (!child)
		far_main(far);
	fars[nr_fars++] = child;
	close(ready_pipe[1]);
	n = (int)read(ready_pipe[0], &c, 1);
	close(ready_pipe[0]);
	return n == 1 ? 0 : fail("far end", ECHILD);
}

/*
 * Connections
 */

static int link_open(struct link *link, const char *device, size_t length)
{
	link->memory = memory_pages(length);
	if (!link->memory)
		return fail("memory", ENOMEM);
	if (memreg_open(device, &link->m) ||
	    memreg_domain_create(link->m, 0, &link->domain) ||
	    memreg_mr_register(link->m, link->domain, link->memory, length,
			       LOCAL_WRITE | MW_BIND, 0, &link->mr) ||
	    memreg_ring_create(link->m, RING, 128, -1, link->ring_flags,
			       &link->ring))
		return fail_memreg();
	return 0;
}

static struct ib_memreg_queues link_queues(const struct link *link)
{
	return (struct ib_memreg_queues) {
		.send_ring_id = link->ring.id,
		.recv_ring_id = link->ring.id,
		.max_send = SENDS,
		.max_recv = RECEIVES,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.max_inline = RECEIVE,
	};
}

void link_prep_recv(const struct link *link, struct ib_memreg_wr *wr,
		    uint64_t piece)
{
	memreg_prep_recv(wr, link->endpoint, link->mr.id, piece * RECEIVE,
			 RECEIVE, piece);
}

static int link_receive(struct link *link, unsigned int count)
{
	struct ib_memreg_wr wr;
	unsigned int i;

	for (i = 0; i < count; i++) {
		link_prep_recv(link, &wr, i);
		if (memreg_submit(link->m, &wr, 1, NULL))
			return fail_memreg();
	}
	return 0;
}

static int link_await(struct link *link, unsigned int type,
		      struct ib_memreg_event *event)
{
	if (memreg_get_event(link->m, event, TIMEOUT_MS))
		return fail_memreg();
	return event->type == type ? 0 : fail("connection", ENOTCONN);
}

static struct sockaddr_in far_address(const struct far *far)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_port = htons(far->port),
	};

	inet_pton(AF_INET, PEER_ADDRESS, &at.sin_addr);
	return at;
}

int link_connect(struct link *link, const struct far *far, size_t length,
		 unsigned int receives)
{
	struct sockaddr_in at = far_address(far);
	struct ib_memreg_queues queues;
	struct ib_memreg_event event;

	if (far_start(far) || link_open(link, bench_device(), length))
		return -1;
	queues = link_queues(link);
	if (memreg_connect_queues(link->m, link->domain,
				  (struct sockaddr *)&at, NULL, TIMEOUT_MS,
				  NULL, 0, &queues, &link->endpoint))
		return fail_memreg();
	if (link_receive(link, receives) ||
	    link_await(link, IB_MEMREG_EVENT_ESTABLISHED, &event))
		return -1;
	/* Not every far end grants something. */
	memreg_grant_decode(event.private_data, event.private_data_len,
			    &link->grant);
	return 0;
}

/*
 * Far ends
 */

static int far_bind(struct link *link, char *data)
{
	struct ib_memreg_bind bind = {
		.mr_id = link->mr.id,
		.length = GRANT,
		.access = REMOTE_READ | REMOTE_WRITE,
		.endpoint_id = link->endpoint,
	};

	if (memreg_window_alloc(link->m, link->domain, IB_MEMREG_WINDOW_TYPE1,
				GRANT, &bind.window_id, 1) ||
	    memreg_window_bind(link->m, link->domain, &bind))
		return fail_memreg();
	memreg_grant_encode(&(struct memreg_grant) {
		.iova = bind.out_iova,
		.length = bind.length,
		.rkey = bind.out_rkey,
		.access = bind.access,
	}, data);
	return 0;
}

/* Let the bench in, with a window on all of the memory. */
static int far_accept(const struct far *far, struct link *link,
		      unsigned int receives)
{
	struct sockaddr_in at = far_address(far);
	char data[MEMREG_GRANT_SIZE];
	struct ib_memreg_queues queues;
	struct ib_memreg_event event;
	uint32_t listener;

	if (link_open(link, far_device(), GRANT))
		return -1;
	if (memreg_listen(link->m, (struct sockaddr *)&at, 1, &listener))
		return fail_memreg();
	far_ready();
	if (link_await(link, IB_MEMREG_EVENT_CONNECT_REQUEST, &event))
		return -1;
	link->endpoint = event.endpoint_id;
	queues = link_queues(link);
	if (memreg_setup(link->m, link->endpoint, link->domain, &queues))
		return fail_memreg();
	if (link_receive(link, receives) || far_bind(link, data))
		return -1;
	if (memreg_accept(link->m, link->endpoint, link->domain, data,
			  sizeof(data)))
		return fail_memreg();
	return link_await(link, IB_MEMREG_EVENT_ESTABLISHED, &event);
}

/* Until the bench goes, it reads and writes. */
int far_grant(const struct far *far)
{
	struct link link = { .endpoint = 0 };
	struct ib_memreg_event event;

	if (far_accept(far, &link, 0))
		return -1;
	return memreg_get_event(link.m, &event, -1);
}

/* Post receives anew, some at a time. @n waits already. */
static int far_repost(struct link *link, const struct ib_memreg_cqe *cqe,
		      struct ib_memreg_wr *wrs, unsigned int *n)
{
	link_prep_recv(link, &wrs[(*n)++], cqe->user_data);
	if (*n < BATCH)
		return 0;
	*n = 0;
	return memreg_submit(link->m, wrs, BATCH, NULL) ? fail_memreg() : 0;
}

/* Take messages, until the connection is over. */
int far_sink(const struct far *far)
{
	const struct ib_memreg_cqe *cqe;
	struct ib_memreg_wr wrs[BATCH];
	struct link link = { .endpoint = 0 };
	unsigned int n = 0;

	if (far_accept(far, &link, RECEIVES))
		return -1;
	while (!memreg_ring_wait(&link.ring, 1, IB_MEMREG_WAIT_FOREVER,
				 NULL)) {
		while ((cqe = memreg_ring_peek(&link.ring))) {
			if (cqe->status)
				return 0;
			if (far_repost(&link, cqe, wrs, &n))
				return -1;
			memreg_ring_seen(&link.ring, 1);
		}
	}
	return fail_memreg();
}

/* Answer a message with the same contents. */
static int far_answer(struct link *link, const struct ib_memreg_cqe *cqe)
{
	struct ib_memreg_wr wrs[2];

	link_prep_recv(link, &wrs[0], cqe->user_data);
	memreg_prep_send_inline(&wrs[1], link->endpoint, memreg_cqe_data(cqe),
				cqe->byte_len);
	if (!(cqe->user_data % SIGNAL))
		memreg_wr_signal(&wrs[1], 0);
	return memreg_submit(link->m, wrs, 2, NULL) ? fail_memreg() : 0;
}

/* Answer messages, until the connection is over. */
int far_echo(const struct far *far)
{
	const struct ib_memreg_cqe *cqe;
	struct link link = { .ring_flags = IB_MEMREG_RING_NO_MODERATION };

	if (far_accept(far, &link, RECEIVES))
		return -1;
	while (!memreg_ring_wait(&link.ring, 1, IB_MEMREG_WAIT_FOREVER,
				 NULL)) {
		cqe = memreg_ring_peek(&link.ring);
		if (cqe->status)
			return 0;
		if (cqe->opcode == IB_MEMREG_OP_RECV && far_answer(&link, cqe))
			return -1;
		memreg_ring_seen(&link.ring, 1);
	}
	return fail_memreg();
}
