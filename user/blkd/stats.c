// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Statistics */
#include <inttypes.h>

#include "blkd.h"

static const char *const names[BLKD_OPCODES] = {
	[IB_MEMREG_BLK_NOP] = "nop",
	[IB_MEMREG_BLK_READ] = "read",
	[IB_MEMREG_BLK_WRITE] = "write",
	[IB_MEMREG_BLK_FLUSH] = "flush",
	[IB_MEMREG_BLK_DISCARD] = "discard",
	[IB_MEMREG_BLK_WRITE_ZEROES] = "zeroes",
};

void stats_count(struct blkd *b, const struct cmd *c)
{
	int64_t ns = now_ns() - c->start;
	struct op_stats *op;

	if (!c->valid)
		return;
	op = &b->stats.ops[c->opcode];
	op->count++;
	c->conn->client->commands++;
	op->sum += ns;
	if (ns > op->max)
		op->max = ns;
	if (c->status != IB_MEMREG_BLK_OK) {
		op->errors++;
	} else {
		op->bytes += c->length;
		c->conn->client->bytes += c->length;
	}
}

static void say_op(const struct blkd *b, unsigned int i)
{
	const struct op_stats *op = &b->stats.ops[i];

	if (op->count)
		say("  %-7s %" PRIu64 " commands, %" PRIu64 " failed, %" PRIu64
		    " bytes, %.1f us on average, %.1f at most", names[i],
		    op->count, op->errors, op->bytes,
		    (double)op->sum / (double)op->count / 1000,
		    (double)op->max / 1000);
}

void stats_say(const struct blkd *b, const char *title)
{
	const struct blkd_stats *s = &b->stats;
	const struct conn *c;
	unsigned int i, conns = 0;
	uint64_t commands = 0;

	for (c = b->conns; c; c = c->next)
		conns += c->established && c->state == CONN_UP;
	for (i = 0; i < BLKD_OPCODES; i++)
		commands += s->ops[i].count;
	say("%s: %" PRIu64 " commands in %.1f s, %" PRIu64
	    " submissions, %u connections, %u clients known, %" PRIu64
	    " accepted, %" PRIu64 " refused, %" PRIu64 " invalid, %" PRIu64
	    " done before, %" PRIu64 " probes, %" PRIu64 " moves", title,
	    commands, (double)(now_ns() - b->start) / 1e9, s->submits, conns,
	    b->nr_clients, s->accepted, s->refused, s->invalid, s->replayed,
	    s->probes, s->moves);
	for (i = 0; i < BLKD_OPCODES; i++)
		say_op(b, i);
}
