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
 * One can't be posted: its connection is over, or will be. All that is behind
 * it on the same one goes, too.
 */
static unsigned int drop_target(struct blkd *b, unsigned int from,
				const char *why)
{
	uint32_t target = b->batch.wrs[from].target_id;
	struct conn *c = conn_find(b, target);
	unsigned int i, to = from;

	if (c)
		conn_break(b, c, why);
	for (i = from; i < b->batch.count; i++) {
		if (b->batch.wrs[i].target_id == target)
			cmd_unposted(b, &b->batch.wrs[i]);
		else
			b->batch.wrs[to++] = b->batch.wrs[i];
	}
	return to;
}

void batch_flush(struct blkd *b)
{
	unsigned int taken, from = 0;
	int ret;

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
		if (ret != -EINTR)
			b->batch.count = drop_target(b, from,
						     ret == -ENOTCONN ?
						     "" : "it can't be served");
	}
	b->batch.count = 0;
}
