// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Work requests of all connections, posted by as few calls as can be */
#include <errno.h>
#include <string.h>

#include "blkd.h"

struct ib_memreg_wr *batch_next(struct blkd *b)
{
	if (b->batch.count == BATCH)
		batch_flush(b);
	return &b->batch.wrs[b->batch.count++];
}

struct ib_memreg_blk_reply *batch_reply(struct blkd *b)
{
	return &b->batch.replies[b->batch.count - 1];
}

struct ib_memreg_sge *batch_sges(struct blkd *b)
{
	return b->batch.sges[b->batch.count - 1];
}

/*
 * Free the resources of a reply that was not posted; @conn is NULL if it has
 * gone. Until the endpoint is destroyed, WRITEs that were posted before the
 * failing one may read the pages of the slab.
 */
static void unposted(struct blkd *b, struct conn *conn,
		     const struct ib_memreg_wr *wr)
{
	enum wr_kind kind = wr_kind(wr->user_data);
	uint32_t page = wr_page(wr->user_data);
	uint32_t pages = wr_pages(wr->user_data);

	if (kind != WR_REPLY && kind != WR_LAST_REPLY)
		return;
	if (conn)
		conn->replies--;
	if (pages && conn)
		slab_keep(&b->slab, &conn->kept, page, pages);
	else if (pages)
		slab_give(&b->slab, page, pages);
}

/* Drop work requests for connections that are broken off */
static unsigned int drop_broken_off(struct blkd *b, unsigned int from)
{
	unsigned int i, to = from;

	for (i = from; i < b->batch.count; i++) {
		struct ib_memreg_wr *wr = &b->batch.wrs[i];
		struct conn *c = conn_find(b, wr->target_id);

		if (!c || c->broken_off)
			unposted(b, c, wr);
		else
			b->batch.wrs[to++] = *wr;
	}
	return to;
}

/*
 * A work request cannot be posted, as its connection has ended or will end.
 * Post no more on this connection, also not in a later batch: a reply would
 * claim that all work was done.
 */
static void break_off(struct blkd *b, uint32_t target, const char *why)
{
	struct conn *c = conn_find(b, target);

	if (c) {
		conn_break(b, c, why);
		c->broken_off = true;
	}
	b->broken_off = true;
}

void batch_flush(struct blkd *b)
{
	unsigned int taken, from = 0;
	int ret;

	if (b->broken_off)
		b->batch.count = drop_broken_off(b, 0);
	while (from < b->batch.count) {
		taken = 0;
		b->stats.submits++;
		ret = memreg_submit(b->m, b->batch.wrs + from,
				    b->batch.count - from, &taken);
		if (!ret)
			break;
		from += taken;
		if (ret == -ENODEV) {
			b->gone = true;
			break;
		}
		if (ret != -ENOTCONN && ret != -ENOENT && ret != -EINTR)
			fail("%s", memreg_reason());
		if (ret == -EINTR)
			continue;
		break_off(b, b->batch.wrs[from].target_id,
			  ret == -ENOTCONN ? "" : "it can't be served");
		b->batch.count = drop_broken_off(b, from);
	}
	b->batch.count = 0;
}
