// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Received commands, and the checks of the protocol */
#include <endian.h>
#include <string.h>

#include "blkd.h"

/* Bytes of data behind the command */
static size_t carried(const struct cmd *c)
{
	return c->opcode == IB_MEMREG_BLK_WRITE && cmd_inline(c) ? c->length :
								   0;
}

/* Does the message end where its last segment or its data does? */
static bool take_segs(struct cmd *c, const struct ib_memreg_blk_cmd *wire,
		      uint32_t length)
{
	unsigned int i, n = be16toh(wire->nr_segs);

	c->nr_segs = 0;
	if (n > IB_MEMREG_BLK_SEGS_MAX ||
	    (n && length != sizeof(*wire) + n * sizeof(wire->segs[0])) ||
	    (!n && length != sizeof(*wire) + carried(c)))
		return false;
	for (i = 0; i < n; i++)
		c->segs[i] = (struct seg) {
			.addr = be64toh(wire->segs[i].addr),
			.length = be32toh(wire->segs[i].length),
			.rkey = be32toh(wire->segs[i].rkey),
		};
	c->nr_segs = (uint16_t)n;
	return true;
}

/*
 * Segments must be valid ranges of memory, and together as long as the command;
 * or there are none, and the data is in a message.
 */
static bool segs_good(const struct cmd *c)
{
	uint64_t sum = 0;
	unsigned int i;

	if (cmd_inline(c))
		return c->length <= c->conn->inline_max;
	for (i = 0; i < c->nr_segs; i++) {
		const struct seg *s = &c->segs[i];

		if (!s->length || s->addr + (s->length - 1) < s->addr)
			return false;
		sum += s->length;
	}
	return sum == (cmd_has_data(c) ? c->length : 0);
}

static bool flags_good(const struct cmd *c)
{
	static const uint8_t allowed[BLKD_OPCODES] = {
		[IB_MEMREG_BLK_WRITE] = IB_MEMREG_BLK_FUA,
		[IB_MEMREG_BLK_WRITE_ZEROES] = IB_MEMREG_BLK_FUA |
					       IB_MEMREG_BLK_NO_UNMAP,
	};

	return !(c->flags & ~allowed[c->opcode]);
}

static bool range_good(const struct blkd *b, const struct cmd *c)
{
	const struct export *e = c->conn->export;

	if (c->opcode == IB_MEMREG_BLK_NOP || c->opcode == IB_MEMREG_BLK_FLUSH)
		return !c->offset && !c->length;
	if ((c->offset | c->length) & (e->block_size - 1))
		return false;
	return !cmd_has_data(c) || c->length <= b->options.max_length;
}

static bool tag_free(const struct conn *conn, uint16_t tag)
{
	return !(conn->tags[tag / 8] & 1 << tag % 8);
}

static bool well_formed(const struct blkd *b, const struct cmd *c,
			const struct ib_memreg_blk_cmd *wire)
{
	return c->seq && !wire->reserved &&
	       be32toh(wire->epoch) == c->conn->epoch &&
	       c->opcode < BLKD_OPCODES && flags_good(c) && range_good(b, c) &&
	       segs_good(c) && tag_free(c->conn, c->tag);
}

/* Commands that the export does not support or allow */
static uint16_t check_export(const struct cmd *c)
{
	const struct export *e = c->conn->export;
	uint32_t need = 0;

	if (cmd_changes(c) && e->flags & IB_MEMREG_BLK_READ_ONLY)
		return IB_MEMREG_BLK_PERMISSION;
	if (c->flags & IB_MEMREG_BLK_FUA)
		need |= IB_MEMREG_BLK_HAS_FUA;
	if (c->opcode == IB_MEMREG_BLK_DISCARD)
		need |= IB_MEMREG_BLK_HAS_DISCARD;
	if (c->opcode == IB_MEMREG_BLK_WRITE_ZEROES)
		need |= IB_MEMREG_BLK_HAS_ZEROES;
	if (need & ~e->flags)
		return IB_MEMREG_BLK_UNSUPPORTED;
	if (c->offset > e->capacity || c->length > e->capacity - c->offset)
		return IB_MEMREG_BLK_RANGE;
	return IB_MEMREG_BLK_OK;
}

/*
 * The command was executed in an older epoch: reply with its outcome. Repeating
 * a command in the same epoch is not allowed.
 */
static bool check_memory(struct cmd *c)
{
	const struct outcomes *o = c->conn->client->outcomes;
	const struct outcome *before;

	if (!o || !cmd_changes(c))
		return true;
	before = outcomes_find(o, c->seq);
	if (!before)
		return true;
	c->replayed = true;
	c->status = before->status;
	return before->epoch != c->conn->epoch;
}

bool cmd_parse(const struct blkd *b, struct conn *conn, struct cmd *c,
	       const void *message, uint32_t length)
{
	const struct ib_memreg_blk_cmd *wire = message;

	if (length < sizeof(*wire))
		return false;
	c->conn = conn;
	c->seq = be64toh(wire->seq);
	c->offset = be64toh(wire->offset);
	c->length = be32toh(wire->length);
	c->tag = be16toh(wire->tag);
	c->opcode = wire->opcode;
	c->flags = wire->flags;
	c->status = IB_MEMREG_BLK_OK;
	c->replayed = false;
	c->valid = take_segs(c, wire, length) && well_formed(b, c, wire) &&
		   check_memory(c);
	if (!c->valid) {
		c->status = IB_MEMREG_BLK_INVALID;
		/* whatever those are, they are not for a key to be ended */
		if (!cmd_has_data(c))
			c->nr_segs = 0;
	} else if (!c->replayed) {
		c->status = check_export(c);
	}
	return true;
}
