// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A connection that moves data: an endpoint with a send and a receive queue,
 * whose completions come in one ring.
 */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "link.h"

/* Silence of a peer that is connected */
#define SILENCE_S	30
#define RING_ENTRIES	64
#define RING_ENTRY_SIZE	64
#define MEMORY		4096

_Static_assert(LINK_MESSAGES * LINK_MESSAGE <= MEMORY, "they fit");

/* Making and ending a connection */

int link_open(struct link *l, struct memreg *m)
{
	*l = (struct link) { .m = m };
	l->messages = aligned_alloc(MEMORY, MEMORY);
	if (!l->messages)
		return fail("%s", strerror(ENOMEM));
	if (memreg_domain_create(m, 0, &l->domain) ||
	    memreg_mr_register(m, l->domain, l->messages, MEMORY,
			       IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &l->mr) ||
	    memreg_ring_create(m, RING_ENTRIES, RING_ENTRY_SIZE, -1, 0,
			       &l->ring))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

void check_end(int ret)
{
	if (ret && ret != -ENODEV)
		fail("%s", memreg_reason());
}

void link_close(struct link *l)
{
	if (l->endpoint)
		check_end(memreg_destroy(l->m, l->endpoint));
	if (l->ring.shared)
		check_end(memreg_ring_destroy(l->m, &l->ring));
	if (l->mr.id)
		check_end(memreg_mr_deregister(l->m, l->mr.id));
	free(l->messages);
}

static struct ib_memreg_queues queues_of(const struct link *l)
{
	return (struct ib_memreg_queues) {
		.send_ring_id = l->ring.id,
		.recv_ring_id = l->ring.id,
		.max_send = LINK_SENDS,
		.max_recv = LINK_MESSAGES,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.max_inline = LINK_MESSAGE,
	};
}

/*
 * Before the peer can send anything. If it has rejected the connection already,
 * an event says so.
 */
static int post_receives(struct link *l)
{
	struct ib_memreg_wr wrs[LINK_MESSAGES];
	unsigned int i;

	for (i = 0; i < LINK_MESSAGES; i++)
		link_prep_recv(l, &wrs[i], i);
	return link_submit(l, wrs, LINK_MESSAGES) == LINK_FAILED ?
		EXIT_FAILED : EXIT_GOOD;
}

int link_connect(struct link *l, const char *address, uint16_t port,
		 uint32_t timeout_ms, struct ib_memreg_event *event)
{
	struct addrinfo *at = resolve(address, port, false);
	struct ib_memreg_queues queues = queues_of(l);
	int ret;

	if (!at)
		return EXIT_FAILED;
	ret = memreg_connect_queues(l->m, l->domain, at->ai_addr, NULL,
				    timeout_ms, NULL, 0, &queues,
				    &l->endpoint);
	freeaddrinfo(at);
	if (ret)
		return fail("%s", memreg_reason());
	ret = post_receives(l);
	return ret == EXIT_GOOD ?
		await_connection(l->m, l->endpoint, timeout_ms, event) : ret;
}

int link_accept(struct link *l, const struct ib_memreg_event *event)
{
	struct ib_memreg_queues queues = queues_of(l);
	struct ib_memreg_event outcome;
	int ret;

	l->endpoint = event->endpoint_id;
	if (memreg_setup(l->m, l->endpoint, l->domain, &queues))
		return fail("%s", memreg_reason());
	ret = post_receives(l);
	if (ret != EXIT_GOOD)
		return ret;
	if (memreg_accept(l->m, l->endpoint, l->domain, NULL, 0))
		return fail("%s", memreg_reason());
	return await_connection(l->m, l->endpoint, TIMEOUT_DEFAULT_MS,
				&outcome);
}

/*
 * Work
 */

void link_prep_recv(struct link *l, struct ib_memreg_wr *wr, uint64_t slot)
{
	memreg_prep_recv(wr, l->endpoint, l->mr.id, slot * LINK_MESSAGE,
			 LINK_MESSAGE, slot);
}

const void *link_message(const struct link *l, const struct ib_memreg_cqe *cqe)
{
	return cqe->flags & IB_MEMREG_CQE_INLINE ?
		memreg_cqe_data(cqe) :
		l->messages + cqe->user_data * LINK_MESSAGE;
}

enum link_result link_submit(struct link *l, struct ib_memreg_wr *wrs,
			     unsigned int count)
{
	unsigned int i, taken;
	int ret = memreg_submit(l->m, wrs, count, &taken);

	for (i = 0; i < taken; i++)
		if (wrs[i].opcode == IB_MEMREG_OP_RECV ||
		    wrs[i].flags & IB_MEMREG_WR_SIGNALED)
			l->pending++;
	if (!ret)
		return LINK_GOOD;
	if (ret == -ENOTCONN)
		return LINK_OVER;
	fail("%s", memreg_reason());
	return LINK_FAILED;
}

/* The next completion, of any outcome */
static enum link_result take(struct link *l, struct ib_memreg_cqe *cqe)
{
	const struct ib_memreg_cqe *next;
	int ret;

	while (!(next = memreg_ring_peek(&l->ring))) {
		ret = memreg_ring_wait(&l->ring, 1, SILENCE_S * NS_PER_S, NULL);
		if (!ret || ret == -EINTR)
			continue;
		if (ret == -ETIMEDOUT)
			fail("the peer has been silent for %d s", SILENCE_S);
		else
			fail("%s", memreg_reason());
		return LINK_FAILED;
	}
	*cqe = *next;
	memreg_ring_seen(&l->ring, 1);
	/* what was not signalled completes if it fails, and was not counted */
	if (l->pending)
		l->pending--;
	return LINK_GOOD;
}

/*
 * The connection broke. The completion that shows why may come after flushed
 * ones: read all pending completions to find it.
 */
static enum link_result find_cause(struct link *l, struct ib_memreg_cqe *cqe)
{
	enum link_result ret;

	for (;;) {
		if (cqe->status != IB_MEMREG_WC_SUCCESS &&
		    cqe->status != IB_MEMREG_WC_WR_FLUSH_ERR) {
			fail_completion(cqe);
			return LINK_FAILED;
		}
		if (!l->pending)
			return LINK_OVER;
		ret = take(l, cqe);
		if (ret != LINK_GOOD)
			return ret;
	}
}

enum link_result link_await(struct link *l, uint16_t opcode,
			    struct ib_memreg_cqe *cqe)
{
	enum link_result ret;

	do {
		ret = take(l, cqe);
		if (ret != LINK_GOOD)
			return ret;
		if (cqe->status != IB_MEMREG_WC_SUCCESS)
			return find_cause(l, cqe);
	} while (cqe->opcode != opcode);
	return LINK_GOOD;
}
