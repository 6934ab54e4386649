// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Keys and values, for clients like kv_get.c. A request is a key; the answer
 * grants a pooled buffer with the value to READ, until the next request.
 *
 * A key reaches all of its buffer: the pool wipes what a client has left before
 * another gets it. All clients share a domain, so any may read a value that is
 * granted to another; where they may not, give each a domain and a pool.
 */
#include <arpa/inet.h>
#include <err.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <memreg.h>

#define BUFFER 4096	/* bytes of a key, and of a value, at most */
#define CLIENTS 64	/* at once */
#define MAY (IB_MEMREG_ACCESS_LOCAL_WRITE | IB_MEMREG_ACCESS_REMOTE_READ)

static struct client {
	uint32_t id;		/* of its endpoint, or 0 */
	void *request;		/* where its next request goes */
	void *value;		/* what it may READ, or NULL */
} clients[CLIENTS];

static struct memreg *m;
static uint32_t domain;
static struct memreg_ring ring;
static struct memreg_pool *pool;
static struct memreg_mr mr;	/* all of the pool */
static char **pairs;		/* KEY=VALUE, and NULL at the end */

static void must(int result)
{
	if (result)
		errx(1, "%s", memreg_reason());
}

static struct client *find(uint32_t id)
{
	for (int i = 0; i < CLIENTS; i++)
		if (clients[i].id == id)
			return &clients[i];
	return NULL;
}

static const char *look_up(const char *key, size_t length)
{
	for (char **pair = pairs; *pair; pair++)
		if (!strncmp(*pair, key, length) && (*pair)[length] == '=')
			return *pair + length + 1;
	return "";
}

static int receive(const struct client *c)
{
	size_t offset = (char *)c->request - (char *)mr.addr;
	struct ib_memreg_wr wr;

	memreg_prep_recv(&wr, c->id, mr.id, offset, BUFFER, 0);
	return memreg_submit(m, &wr, 1, NULL);
}

/* Nobody reaches a buffer that is free, and nothing is in it. */
static void give_back(void **buffer)
{
	if (*buffer) {
		must(memreg_pool_recycle(pool, buffer, 1, 0));
		memreg_pool_give(pool, *buffer);
	}
	*buffer = NULL;
}

static void take_completion(const struct ib_memreg_cqe *cqe)
{
	struct client *c = find(cqe->endpoint_data);
	char data[MEMREG_GRANT_SIZE];
	struct memreg_grant grant;
	struct ib_memreg_wr wr;
	const char *value;

	if (!c || cqe->status || cqe->opcode != IB_MEMREG_OP_RECV)
		return;
	value = look_up(memreg_cqe_message(cqe, c->request), cqe->byte_len);
	give_back(&c->value);
	memreg_pool_take(pool, &c->value);
	memreg_pool_entry(pool, c->value, &grant);
	grant.length = strnlen(value, BUFFER);
	memcpy(c->value, value, grant.length);
	memreg_grant_encode(&grant, data);
	memreg_prep_send_inline(&wr, c->id, data, sizeof(data));
	memreg_wr_signal(&wr, 0);
	/* If it fails, the connection is over, and an event follows. */
	if (receive(c) || memreg_submit(m, &wr, 1, NULL))
		warnx("%s", memreg_reason());
}

static void take_event(uint32_t type, uint32_t id)
{
	bool asks = type == IB_MEMREG_EVENT_CONNECT_REQUEST;
	struct client *c = find(asks ? 0 : id);
	struct ib_memreg_queues queues = { .max_inline = 32,
		.send_ring_id = ring.id, .max_send = 4, .max_send_sge = 1,
		.recv_ring_id = ring.id, .max_recv = 2, .max_recv_sge = 1,
	};

	if (!asks && (!c || type == IB_MEMREG_EVENT_ESTABLISHED))
		return;
	if (asks && c) {
		c->id = id;
		memreg_pool_take(pool, &c->request);
		if (!memreg_setup(m, id, domain, &queues) && !receive(c) &&
		    !memreg_accept(m, id, domain, NULL, 0))
			return;
	}
	must(memreg_destroy(m, id));
	if (c) {
		give_back(&c->value);
		give_back(&c->request);
		c->id = 0;
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct memreg_pool_attr attr = {
		.buffer_size = BUFFER, .count = 2 * CLIENTS,
		.access = MAY, .flags = MEMREG_POOL_WIPE,
		.node = IB_MEMREG_NODE_DEVICE,
	};
	const struct ib_memreg_cqe *cqe;
	struct ib_memreg_event event;
	uint32_t listener;

	if (argc < 3)
		errx(2, "usage: kv DEVICE PORT [KEY=VALUE]...");
	at.sin_port = htons(atoi(argv[2]));
	pairs = argv + 3;
	must(memreg_open(argv[1], &m) ?: memreg_domain_create(m, 0, &domain));
	must(memreg_ring_create(m, 8 * CLIENTS, 64, -1, 0, &ring));
	must(memreg_pool_create(m, domain, &attr, &pool));
	must(memreg_pool_mr(pool, &mr));
	must(memreg_listen(m, (struct sockaddr *)&at, CLIENTS, &listener));
	struct pollfd fds[] = { { memreg_fd(m), POLLIN, 0 },
				{ ring.fd, POLLIN, 0 } };
	while (poll(fds, 2, -1) > 0) {
		while (!memreg_get_event(m, &event, 0))
			take_event(event.type, event.endpoint_id);
		for (; (cqe = memreg_ring_peek(&ring));
		     memreg_ring_seen(&ring, 1))
			take_completion(cqe);
	}
}
