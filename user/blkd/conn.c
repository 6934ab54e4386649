// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Connections. One that ends goes in two steps: its endpoint is destroyed at
 * once, after which nothing is posted any more; and it is forgotten when the
 * completions that came with that were taken, and no thread works for it.
 * Until then no newer epoch of its client is accepted.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "blkd.h"

/* Replies that can wait for their completion beyond one for each command */
#define SPARE	2

static struct conn **bucket_of(struct blkd *b, uint32_t endpoint)
{
	return &b->buckets[endpoint % BUCKETS];
}

/*
 * Coming
 */

struct conn *conn_new(struct blkd *b, struct client *client,
		      const struct ib_memreg_event *event, uint16_t depth)
{
	struct conn *c = calloc(1, sizeof(*c) +
				(depth + 1u) * sizeof(c->cmds[0]));
	struct conn **bucket = bucket_of(b, event->endpoint_id);
	unsigned int i;

	if (!c)
		return NULL;
	for (i = 0; i <= depth; i++) {
		c->cmds[i].next = c->free;
		c->free = &c->cmds[i];
	}
	c->depth = depth;
	c->client = client;
	c->endpoint = event->endpoint_id;
	address_text(&event->peer, c->address);
	c->bucket = *bucket;
	*bucket = c;
	c->next = b->conns;
	b->conns = c;
	client->conns++;
	b->ending = true;	/* to be looked at */
	return c;
}

void conn_refuse(struct blkd *b, uint32_t endpoint, const char *who,
		 enum ib_memreg_blk_status status)
{
	static const char *const why[] = {
		[IB_MEMREG_BLK_UNSUPPORTED] = "it speaks another version",
		[IB_MEMREG_BLK_INVALID] = "its request is not valid",
		[IB_MEMREG_BLK_NO_EXPORT] = "there is no export of that name",
		[IB_MEMREG_BLK_OLD_EPOCH] = "it has connected anew since",
		[IB_MEMREG_BLK_BUSY] = "there is no room for it",
	};
	struct ib_memreg_blk_refusal refusal = {
		.magic = htobe32(IB_MEMREG_BLK_MAGIC),
		.version = htobe16(IB_MEMREG_BLK_VERSION),
		.status = htobe16((uint16_t)status),
	};

	b->stats.refused++;
	say("%s is refused: %s", who, why[status]);
	/* if the peer has gone meanwhile, destroy the rest of the endpoint */
	if (memreg_reject(b->m, endpoint, &refusal, sizeof(refusal)))
		memreg_destroy(b->m, endpoint);
}

static int post_receives(struct blkd *b, struct conn *c)
{
	struct ib_memreg_wr wrs[BATCH];
	uint32_t slot = 0, n;
	int ret = 0;

	while (slot <= c->depth && !ret) {
		for (n = 0; n < BATCH && slot <= c->depth; n++, slot++)
			cmd_prep_recv(c, &wrs[n], slot);
		ret = memreg_submit(b->m, wrs, n, NULL);
	}
	return ret;
}

/* Messages and replies are in a row: each begins where its fields are aligned,
 * and no reply goes over a page's end.
 */
static int get_memory(struct blkd *b, struct conn *c)
{
	const uint32_t unit = sizeof(struct ib_memreg_blk_reply);
	size_t bytes;

	_Static_assert(BLKD_PAGE % sizeof(struct ib_memreg_blk_reply) == 0,
		       "replies fill pages");
	c->message = (uint32_t)(sizeof(struct ib_memreg_blk_cmd) +
				(c->inline_max > BLKD_SEGS ? c->inline_max :
							     BLKD_SEGS));
	c->message = (c->message + unit - 1) / unit * unit;
	c->replies_at = conn_message_at(c, c->depth + 1u);
	bytes = c->replies_at;
	if (c->inline_max)
		bytes += c->max_send * sizeof(struct ib_memreg_blk_reply);
	bytes = (bytes + BLKD_PAGE - 1) / BLKD_PAGE * BLKD_PAGE;
	c->messages = aligned_alloc(BLKD_PAGE, bytes);
	if (!c->messages)
		return -ENOMEM;
	return memreg_mr_register(b->m, b->domain, c->messages, bytes,
				  IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &c->mr);
}

static uint32_t entries_of(const struct conn *c)
{
	return c->max_send + c->depth + 1;
}

/* All queues complete in one ring, which is as long as the device allows. */
static int claim_entries(struct blkd *b, struct conn *c)
{
	uint32_t entries;

	c->max_send = SPARE * c->depth + conn_min_send(b);
	if (c->max_send > b->queue_max)
		c->max_send = b->queue_max;
	entries = entries_of(c);
	if (b->claimed + entries <= b->ring.entries) {
		b->claimed += entries;
		return 0;
	}
	c->max_send = 0;
	say("one more connection of depth %u takes %" PRIu32
	    " completions, and %" PRIu32 " of %" PRIu32
	    " are free: fewer queues, or a lower --depth-max, take less",
	    c->depth, entries, b->ring.entries - b->claimed, b->ring.entries);
	return -ENOSPC;
}

static int give_queues(struct blkd *b, struct conn *c)
{
	struct ib_memreg_queues queues = {
		.send_ring_id = b->ring.id,
		.recv_ring_id = b->ring.id,
		.max_recv = c->depth + 1u,
		.max_send_sge = 2,
		.max_recv_sge = 1,
		.max_inline = sizeof(struct ib_memreg_blk_reply),
	};
	int ret;

	ret = claim_entries(b, c);
	if (ret)
		return ret;
	c->room = c->max_send;
	queues.max_send = c->max_send;
	ret = get_memory(b, c);
	if (!ret)
		ret = memreg_setup(b->m, c->endpoint, b->domain, &queues);
	return ret ? ret : post_receives(b, c);
}

static struct ib_memreg_blk_welcome welcome_of(const struct blkd *b,
					       const struct conn *c)
{
	const struct export *e = c->export;

	return (struct ib_memreg_blk_welcome) {
		.magic = htobe32(IB_MEMREG_BLK_MAGIC),
		.version = htobe16(IB_MEMREG_BLK_VERSION),
		.depth = htobe16(c->depth),
		.capacity = htobe64(e->capacity),
		.flags = htobe32(e->flags),
		.block_size = htobe32(e->block_size),
		.physical_block_size = htobe32(e->physical),
		.max_length = htobe32(b->options.max_length),
		.discard_granularity = htobe32(e->granularity),
		.max_segs = htobe16(IB_MEMREG_BLK_SEGS_MAX),
		.inline_max = htobe16(c->inline_max),
		.instance = htobe64(e->instance),
	};
}

static void unhash(struct blkd *b, struct conn *c)
{
	struct conn **at = bucket_of(b, c->endpoint);

	while (*at != c)
		at = &(*at)->bucket;
	*at = c->bucket;
}

/* Refuse a client's connection. */
static void turn_away(struct blkd *b, struct conn *c,
		      enum ib_memreg_blk_status status)
{
	char who[sizeof(c->client->name) + ADDRESS_TEXT + 32];

	snprintf(who, sizeof(who), "client %s from %s", c->client->name,
		 c->address);
	conn_refuse(b, c->endpoint, who, status);
	c->state = CONN_ENDED;
	c->ended = b->turn;
	b->ending = true;
}

static void accept_conn(struct blkd *b, struct conn *c)
{
	struct ib_memreg_blk_welcome welcome;
	int ret;

	export_refresh(c->export);
	ret = give_queues(b, c);
	if (!ret) {
		welcome = welcome_of(b, c);
		c->state = CONN_UP;
		ret = memreg_accept(b->m, c->endpoint, b->domain, &welcome,
				    sizeof(welcome));
	}
	if (!ret) {
		b->stats.accepted++;
		return;
	}
	if (ret != -ENOTCONN && ret != -ENOSPC)
		fail("%s", memreg_reason());
	turn_away(b, c, IB_MEMREG_BLK_BUSY);
}

static void established(struct conn *c)
{
	struct client *client = c->client;

	if (c->state != CONN_UP || c->established)
		return;
	c->established = true;
	c->heard = now_ns();
	if (!client->up++)
		say("client %s from %s: connected to %s, epoch %" PRIu32
		    ", %u queues, depth %u", client->name, c->address,
		    c->export->name, client->epoch, client->queues, c->depth);
}

/*
 * Going
 */

static void say_gone(const struct conn *c)
{
	const struct client *client = c->client;

	if (c->broken && *c->broken)
		say("client %s: queue %u ends: %s", client->name, c->queue,
		    c->broken);
	if (c->established && !client->up)
		say("client %s: gone, epoch %" PRIu32 ", %" PRIu64
		    " commands, %" PRIu64 " bytes", client->name, c->epoch,
		    client->commands, client->bytes);
}

void conn_end(struct blkd *b, struct conn *c)
{
	if (c->state == CONN_ENDED)
		return;
	c->state = CONN_ENDED;
	c->ended = b->turn;
	b->ending = true;
	check_end(memreg_destroy(b->m, c->endpoint));
	c->jobs -= jobs_cancel(b->jobs, c);
	cmds_drop_waiting(b, c);
	if (c->established)
		c->client->up--;
	say_gone(c);
}

static void forget(struct blkd *b, struct conn *c)
{
	struct conn **at = &b->conns;
	unsigned int i;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	unhash(b, c);
	for (i = 0; i <= c->depth; i++)
		cmd_give_buffer(b, &c->cmds[i]);
	if (c->kept) {
		slab_give_kept(&b->slab, &c->kept);
		b->freed = true;
	}
	if (c->max_send)
		b->claimed -= entries_of(c);
	if (c->mr.id)
		check_end(memreg_mr_deregister(b->m, c->mr.id));
	free(c->messages);
	c->client->conns--;
	c->client->seen = now_ns();
	free(c);
	b->ending = true;	/* somebody may have waited for that */
}

void conn_event(struct blkd *b, const struct ib_memreg_event *event)
{
	struct conn *c = conn_find(b, event->endpoint_id);

	if (!c)
		return;
	if (event->type == IB_MEMREG_EVENT_ESTABLISHED)
		established(c);
	else
		conn_end(b, c);
}

/*
 * Both
 */

/* Has the client no connection of an older epoch any more? */
static bool has_way(const struct blkd *b, const struct conn *c)
{
	const struct conn *other;

	for (other = b->conns; other; other = other->next)
		if (other->client == c->client && other->epoch < c->epoch)
			return false;
	return true;
}

static void advance(struct blkd *b, struct conn *c)
{
	switch (c->state) {
	case CONN_ASKED:
		if (c->epoch < c->client->epoch)
			turn_away(b, c, IB_MEMREG_BLK_OLD_EPOCH);
		else if (has_way(b, c))
			accept_conn(b, c);
		break;
	case CONN_UP:
		if (c->broken || c->epoch < c->client->epoch)
			conn_end(b, c);
		break;
	case CONN_ENDED:
		if (c->ended == b->turn)
			b->ending = true;
		else if (!c->jobs)
			forget(b, c);
		break;
	}
}

void conns_advance(struct blkd *b)
{
	struct conn *c, *next;

	if (!b->ending)
		return;
	b->ending = false;
	b->broken_off = false;
	for (c = b->conns; c; c = next) {
		next = c->next;
		advance(b, c);
	}
}

bool conns_busy(const struct blkd *b)
{
	const struct conn *c;

	for (c = b->conns; c; c = c->next)
		if (c->jobs ||
		    (c->state == CONN_UP && !c->broken &&
		     (c->inflight || c->replies)))
			return true;
	return false;
}

static void watch(struct blkd *b, struct conn *c, int64_t now)
{
	int64_t timeout = b->options.timeout_ns;

	if (c->replies) {
		if (now - c->progress > timeout)
			conn_break(b, c, "it takes nothing any more");
	} else if (c->established && c->room && now - c->heard > timeout) {
		cmd_probe(b, c);
	}
}

void conns_watch(struct blkd *b, int64_t now)
{
	struct conn *c;

	for (c = b->conns; c; c = c->next)
		if (c->state == CONN_UP && !c->broken)
			watch(b, c, now);
}

void conns_end(struct blkd *b)
{
	struct conn *c;

	for (c = b->conns; c; c = c->next)
		conn_end(b, c);
}
