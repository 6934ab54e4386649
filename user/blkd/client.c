// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Clients: connection requests, and the identities behind them.
 *
 * A client that has disconnected is remembered, with the outcomes of its last
 * commands, as it may come back. When there are too many clients, the one that
 * has been away the longest is forgotten.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "blkd.h"

/* The request in our byte order */
struct hello {
	uint16_t version;
	uint16_t queue;
	uint16_t queues;
	uint16_t depth;
	uint32_t epoch;
	uint16_t inline_max;
	const uint8_t *client;
	char name[IB_MEMREG_BLK_EXPORT_MAX + 1];
};

/* A name may have zeros only at its end */
static bool take_name(struct hello *h, const char *name)
{
	size_t i, len = strnlen(name, IB_MEMREG_BLK_EXPORT_MAX);

	for (i = len; i < IB_MEMREG_BLK_EXPORT_MAX; i++)
		if (name[i])
			return false;
	memcpy(h->name, name, len);
	h->name[len] = '\0';
	return true;
}

static enum ib_memreg_blk_status
parse_hello(const struct ib_memreg_event *event, struct hello *h,
	    struct ib_memreg_blk_hello *wire)
{
	if (event->private_data_len < sizeof(*wire))
		return IB_MEMREG_BLK_INVALID;
	memcpy(wire, event->private_data, sizeof(*wire));
	if (be32toh(wire->magic) != IB_MEMREG_BLK_MAGIC)
		return IB_MEMREG_BLK_INVALID;
	if (be16toh(wire->version) != IB_MEMREG_BLK_VERSION)
		return IB_MEMREG_BLK_UNSUPPORTED;
	h->queue = be16toh(wire->queue);
	h->queues = be16toh(wire->queues);
	h->depth = be16toh(wire->depth);
	h->epoch = be32toh(wire->epoch);
	h->inline_max = be16toh(wire->inline_max);
	h->client = wire->client;
	if (!h->queues || h->queues > IB_MEMREG_BLK_QUEUES_MAX ||
	    h->queue >= h->queues || !h->depth ||
	    h->depth > IB_MEMREG_BLK_DEPTH_MAX || !h->epoch ||
	    h->inline_max > IB_MEMREG_BLK_INLINE_MAX ||
	    wire->reserved || !take_name(h, wire->name))
		return IB_MEMREG_BLK_INVALID;
	return IB_MEMREG_BLK_OK;
}

static struct export *find_export(struct blkd *b, const char *name)
{
	unsigned int i;

	if (!*name)
		return b->nr_exports == 1 ? &b->exports[0] : NULL;
	for (i = 0; i < b->nr_exports; i++)
		if (!strcmp(b->exports[i].name, name))
			return &b->exports[i];
	return NULL;
}

/*
 * The table of known clients
 */

static struct client *find_client(const struct blkd *b, const uint8_t *id)
{
	struct client *c;

	for (c = b->clients; c; c = c->next)
		if (!memcmp(c->id, id, sizeof(c->id)))
			return c;
	return NULL;
}

static void free_client(struct blkd *b, struct client *client)
{
	struct client **at = &b->clients;

	while (*at != client)
		at = &(*at)->next;
	*at = client->next;
	b->nr_clients--;
	free(client->outcomes);
	free(client);
}

static bool make_place(struct blkd *b)
{
	struct client *c, *oldest = NULL;

	if (b->nr_clients < b->options.clients_max)
		return true;
	for (c = b->clients; c; c = c->next)
		if (!c->conns && (!oldest || c->seen < oldest->seen))
			oldest = c;
	if (!oldest)
		return false;
	say("client %s: forgotten, there are too many", oldest->name);
	free_client(b, oldest);
	return true;
}

static struct client *new_client(struct blkd *b, const struct hello *h)
{
	struct client *c = make_place(b) ? calloc(1, sizeof(*c)) : NULL;
	unsigned int i;

	if (!c)
		return NULL;
	c->outcomes = calloc(1, sizeof(*c->outcomes));
	if (!c->outcomes) {
		free(c);
		return NULL;
	}
	memcpy(c->id, h->client, sizeof(c->id));
	for (i = 0; i < 4; i++)
		snprintf(c->name + 2 * i, 3, "%02x", c->id[i]);
	c->seen = now_ns();
	c->next = b->clients;
	b->clients = c;
	b->nr_clients++;
	return c;
}

/*
 * Epochs
 */

static enum ib_memreg_blk_status check_epoch(const struct client *c,
					     const struct hello *h,
					     const struct export *export)
{
	if (h->epoch < c->epoch)
		return IB_MEMREG_BLK_OLD_EPOCH;
	if (h->epoch > c->epoch)
		return IB_MEMREG_BLK_OK;
	if (export != c->export || h->queues != c->queues ||
	    c->used & UINT64_C(1) << h->queue)
		return IB_MEMREG_BLK_INVALID;
	return IB_MEMREG_BLK_OK;
}

/*
 * All connections of older ones end before this returns, be they for another
 * export
 */
static void begin_epoch(struct blkd *b, struct client *client,
			const struct hello *h, struct export *export)
{
	struct conn *c;

	client->epoch = h->epoch;
	client->export = export;
	client->queues = h->queues;
	client->used = 0;
	for (c = b->conns; c; c = c->next)
		if (c->client == client && c->state == CONN_UP)
			conn_end(b, c);
	client->commands = 0;
	client->bytes = 0;
}

static enum ib_memreg_blk_status admit(struct blkd *b, const struct hello *h,
				       const struct ib_memreg_event *event)
{
	struct export *export = find_export(b, h->name);
	struct client *client = find_client(b, h->client);
	enum ib_memreg_blk_status status;
	uint16_t depth = h->depth;
	struct conn *c;

	if (!export)
		return IB_MEMREG_BLK_NO_EXPORT;
	if (b->stopping || h->queues > b->options.queues_max)
		return IB_MEMREG_BLK_BUSY;
	if (!client)
		client = new_client(b, h);
	if (!client)
		return IB_MEMREG_BLK_BUSY;
	status = check_epoch(client, h, export);
	if (status != IB_MEMREG_BLK_OK)
		return status;
	if (h->epoch > client->epoch)
		begin_epoch(b, client, h, export);
	if (depth > b->options.depth_max)
		depth = (uint16_t)b->options.depth_max;
	c = conn_new(b, client, event, depth);
	if (!c)
		return IB_MEMREG_BLK_BUSY;
	client->used |= UINT64_C(1) << h->queue;
	c->export = export;
	c->epoch = h->epoch;
	c->queue = h->queue;
	c->inline_max = h->inline_max;
	if (c->inline_max > b->options.inline_max)
		c->inline_max = (uint16_t)b->options.inline_max;
	return IB_MEMREG_BLK_OK;
}

void client_request(struct blkd *b, const struct ib_memreg_event *event)
{
	struct ib_memreg_blk_hello wire;
	struct hello h = { 0 };
	enum ib_memreg_blk_status status = parse_hello(event, &h, &wire);
	char who[ADDRESS_TEXT];

	if (status == IB_MEMREG_BLK_OK)
		status = admit(b, &h, event);
	if (status != IB_MEMREG_BLK_OK)
		conn_refuse(b, event->endpoint_id,
			    address_text(&event->peer, who), status);
}

void clients_free(struct blkd *b)
{
	while (b->clients)
		free_client(b, b->clients);
}
