// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg bw --server and memreg lat --server: one client, to its end */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "measure.h"

/* NULL, or why this client is turned away */
static const char *read_request(struct measure *s,
				const struct ib_memreg_event *event)
{
	struct measure_request request;

	if (event->private_data_len < sizeof(request))
		return "this is a server of memreg bw and memreg lat";
	memcpy(&request, event->private_data, sizeof(request));
	if (be32toh(request.magic) != MEASURE_MAGIC)
		return "this is a server of memreg bw and memreg lat";
	s->size = be32toh(request.size);
	s->depth = be32toh(request.depth);
	s->lat = be32toh(request.echo);
	s->op = (enum op)be32toh(request.op);
	s->now = s->size;
	if (s->op > OP_SEND || !s->size || s->size > MEASURE_SIZE_MAX ||
	    !s->depth || s->depth > MEASURE_DEPTH_MAX)
		return "this server can't measure what was asked for";
	return NULL;
}

/* Wait for a client that requests a possible measurement; reject others */
static int await_client(struct measure *s, struct ib_memreg_event *event)
{
	const char *why;
	int ret;

	for (;;) {
		ret = memreg_get_event(s->m, event, -1);
		if (ret == -EINTR)
			continue;
		if (ret)
			return fail("%s", memreg_reason());
		if (event->type != IB_MEMREG_EVENT_CONNECT_REQUEST)
			continue;
		why = read_request(s, event);
		if (!why)
			return EXIT_GOOD;
		refuse_peer(s->m, event, why);
	}
}

static int accept_client(struct measure *s, const struct ib_memreg_event *event)
{
	struct measure_answer answer = { .magic = htobe32(MEASURE_MAGIC) };
	struct ib_memreg_queues queues = measure_queues(s);
	struct ib_memreg_bind bind = {
		.mr_id = s->mr.id,
		.length = s->size,
		.access = IB_MEMREG_ACCESS_REMOTE_READ |
			  IB_MEMREG_ACCESS_REMOTE_WRITE,
		.endpoint_id = event->endpoint_id,
	};

	s->endpoint = event->endpoint_id;
	if (memreg_setup(s->m, s->endpoint, s->domain, &queues))
		return fail("%s", memreg_reason());
	if (measure_post_receives(s) != EXIT_GOOD)
		return EXIT_FAILED;
	if (memreg_window_grant(s->m, s->domain, &bind, answer.grant) ||
	    memreg_accept(s->m, s->endpoint, s->domain, &answer,
			  sizeof(answer)))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

/* Take a message, and answer it if that was asked for; as memreg_submit() */
static int serve_message(struct measure *s, const struct ib_memreg_cqe *cqe)
{
	struct ib_memreg_wr wrs[2];

	if (cqe->opcode != IB_MEMREG_OP_RECV)
		return 0;
	s->done++;
	measure_prep_receive(s, &wrs[0], cqe->user_data);
	s->now = cqe->byte_len;
	measure_prep(s, &wrs[1]);
	return memreg_submit(s->m, wrs, s->lat ? 2 : 1, NULL);
}

/* The next completion reports that the client has gone, or a failure */
static int judge_end(const struct ib_memreg_cqe *cqe)
{
	if (cqe->status == IB_MEMREG_WC_WR_FLUSH_ERR)
		return EXIT_GOOD;
	return fail_completion(cqe);
}

/* Until the client goes: then what was to be received is flushed */
static int serve_messages(struct measure *s)
{
	const struct ib_memreg_cqe *next;
	struct ib_memreg_cqe cqe;
	int ret = 0;

	while (!ret) {
		ret = memreg_ring_wait(&s->ring, 1, IB_MEMREG_WAIT_FOREVER,
				       NULL);
		/* as when it was stopped, and goes on */
		if (ret == -EINTR)
			ret = 0;
		if (ret)
			break;
		next = memreg_ring_peek(&s->ring);
		if (!next)
			continue;
		if (next->status)
			return judge_end(next);
		cqe = *next;
		memreg_ring_seen(&s->ring, 1);
		ret = serve_message(s, &cqe);
	}
	/* The client leaves as soon as its last message has arrived. */
	return ret == -ENOTCONN ? EXIT_GOOD : fail("%s", memreg_reason());
}

/* Others may ask to be let in meanwhile, and give up */
static bool is_end(const struct measure *s, const struct ib_memreg_event *event)
{
	return event->endpoint_id == s->endpoint &&
	       event->type == IB_MEMREG_EVENT_DISCONNECTED;
}

/*
 * Serve one client. The completion of the client's first message may come
 * before the event that it is connected.
 */
static int serve(struct measure *s)
{
	struct ib_memreg_event event = { 0 };
	int ret = EXIT_GOOD;
	bool up = false;

	if (s->op == OP_SEND)
		ret = serve_messages(s);
	while (ret == EXIT_GOOD && !is_end(s, &event)) {
		if (memreg_get_event(s->m, &event, -1))
			return fail("%s", memreg_reason());
		up |= event.endpoint_id == s->endpoint &&
		      event.type == IB_MEMREG_EVENT_ESTABLISHED;
	}
	if (ret == EXIT_GOOD && !up && !s->done)
		ret = fail("the client has gone before it was connected");
	return ret;
}

int measure_serve(struct measure *s)
{
	struct ib_memreg_event event;
	struct ib_memreg_addr bound;
	char text[ADDRESS_TEXT], size[32];
	int ret;

	if (!listen_at(s->m, s->address, s->port, 1, &bound))
		return EXIT_FAILED;
	printf("waiting on %s\n", place_text(&bound, text));
	fflush(stdout);
	ret = await_client(s, &event);
	if (ret == EXIT_GOOD)
		ret = measure_open(s);
	if (ret == EXIT_GOOD)
		ret = accept_client(s, &event);
	if (ret == EXIT_GOOD)
		ret = serve(s);
	if (ret == EXIT_GOOD)
		printf("served: %s of %s bytes, %" PRIu64 " messages\n",
		       measure_ops[s->op],
		       exact_bytes(s->size, size, sizeof(size)), s->done);
	return ret;
}
