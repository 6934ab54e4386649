// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What commands and work requests need of connections, which conn.c makes and
 * ends: finding one, the positions of its messages, and having it end
 */
#include "blkd.h"

struct conn *conn_find(const struct blkd *b, uint32_t endpoint)
{
	struct conn *c = b->buckets[endpoint % BUCKETS];

	while (c && c->endpoint != endpoint)
		c = c->bucket;
	return c;
}

/* Room that the largest command needs, with any segments */
uint32_t conn_min_send(const struct blkd *b)
{
	uint32_t pieces = IB_MEMREG_BLK_SEGS_MAX +
			  b->options.max_length / b->chunk + 1;
	uint32_t pages = b->options.max_length / BLKD_PAGE + 2 * pieces;

	return pieces + pages / b->fragments + 2;
}

size_t conn_message_at(const struct conn *c, uint32_t slot)
{
	return (size_t)slot * c->message;
}

/*
 * There are as many replies as the send queue has places. So when a reply is
 * used again, its last work request has completed, as that had a place, too.
 */
size_t conn_reply_at(struct conn *c)
{
	uint32_t nr = c->reply_next;

	c->reply_next = nr + 1 < c->max_send ? nr + 1 : 0;
	return c->replies_at + nr * sizeof(struct ib_memreg_blk_reply);
}

void conn_break(struct blkd *b, struct conn *c, const char *why)
{
	if (c->broken || c->state == CONN_ENDED)
		return;
	c->broken = why;
	b->ending = true;
}
