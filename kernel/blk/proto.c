// SPDX-License-Identifier: GPL-2.0-only
/*
 * Messages of the protocol, and the checks of received ones.
 *
 * A server is not trusted to follow the protocol: each message is checked
 * completely before any field of it is used, and an invalid message ends the
 * connection. The server chooses the data of a READ, but not where the data
 * goes.
 */
#include <linux/log2.h>
#include <linux/string.h>

#include "blk.h"

/* Largest physical block size that is accepted from a server. */
#define MEMREG_BLK_PHYSICAL_MAX	BIT(20)

#define MEMREG_BLK_FLAGS \
	(IB_MEMREG_BLK_READ_ONLY | IB_MEMREG_BLK_WRITE_CACHE | \
	 IB_MEMREG_BLK_HAS_FUA | IB_MEMREG_BLK_HAS_DISCARD | \
	 IB_MEMREG_BLK_HAS_ZEROES)

/**
 * memreg_blk_hello() - Fill in the private data of a connection request
 * @queue: The queue to connect
 * @hello: Filled in
 */
void memreg_blk_hello(const struct memreg_blk_queue *queue,
		      struct ib_memreg_blk_hello *hello)
{
	const struct memreg_blk *blk = queue->blk;

	*hello = (struct ib_memreg_blk_hello) {
		.magic = cpu_to_be32(IB_MEMREG_BLK_MAGIC),
		.version = cpu_to_be16(IB_MEMREG_BLK_VERSION),
		.queue = cpu_to_be16(queue->index),
		.queues = cpu_to_be16(blk->nr_live),
		.depth = cpu_to_be16(blk->depth),
		.epoch = cpu_to_be32(blk->epoch),
		.inline_max = cpu_to_be16(blk->inline_max),
	};
	memcpy(hello->client, blk->client, sizeof(hello->client));
	memcpy(hello->name, blk->export_name, sizeof(hello->name));
}

/*
 * The answer to a connection request
 */

static bool memreg_blk_multiple(u64 value, u32 of)
{
	return !(value & (of - 1));
}

/*
 * Check an export. Returns an error message, or NULL. Block sizes come first,
 * as other fields are multiples of them.
 */
static const char *memreg_blk_export_check(const struct memreg_blk_export *e,
					   const struct memreg_blk *blk)
{
	if (!is_power_of_2(e->block_size) || e->block_size < SECTOR_SIZE ||
	    e->block_size > 4096)
		return "block size";
	if (!is_power_of_2(e->physical_block_size) ||
	    e->physical_block_size < e->block_size)
		return "physical block size";
	if (e->capacity > S64_MAX ||
	    !memreg_blk_multiple(e->capacity, e->block_size))
		return "capacity";
	if (!e->max_length || e->max_length > IB_MEMREG_BLK_LENGTH_MAX ||
	    !memreg_blk_multiple(e->max_length, e->block_size))
		return "length of commands";
	if (e->flags & ~MEMREG_BLK_FLAGS)
		return "flags";
	if (!e->max_segs || e->max_segs > IB_MEMREG_BLK_SEGS_MAX)
		return "number of segments";
	if (!e->depth || e->depth > blk->depth)
		return "depth";
	if (e->inline_max > blk->inline_max)
		return "length of data in messages";
	return NULL;
}

/**
 * memreg_blk_welcome() - Check and parse the private data of an acceptance
 * @queue: The queue; its export is filled in
 * @data: Private data, of any content
 * @length: Length of the data; the RDMA CM may add zeros
 *
 * Return: 0, or -EPROTO with the reason logged.
 */
int memreg_blk_welcome(struct memreg_blk_queue *queue, const void *data,
		       unsigned int length)
{
	struct memreg_blk_export *e = &queue->export;
	struct ib_memreg_blk_welcome w;
	const char *wrong = NULL;

	if (length < sizeof(w)) {
		wrong = "size";
		goto out;
	}
	memcpy(&w, data, sizeof(w));
	*e = (struct memreg_blk_export) {
		.capacity = be64_to_cpu(w.capacity),
		.flags = be32_to_cpu(w.flags),
		.block_size = be32_to_cpu(w.block_size),
		.physical_block_size = be32_to_cpu(w.physical_block_size),
		.max_length = be32_to_cpu(w.max_length),
		.discard_granularity = be32_to_cpu(w.discard_granularity),
		.max_segs = be16_to_cpu(w.max_segs),
		.depth = be16_to_cpu(w.depth),
		.inline_max = be16_to_cpu(w.inline_max),
		.instance = be64_to_cpu(w.instance),
	};
	if (be32_to_cpu(w.magic) != IB_MEMREG_BLK_MAGIC)
		wrong = "magic number";
	else if (be16_to_cpu(w.version) != IB_MEMREG_BLK_VERSION)
		wrong = "version";
	else
		wrong = memreg_blk_export_check(e, queue->blk);
	e->physical_block_size = min_t(u32, e->physical_block_size,
				       MEMREG_BLK_PHYSICAL_MAX);
out:
	if (!wrong)
		return 0;
	atomic64_inc(&queue->blk->stats.protocol_errors);
	memreg_blk_say(queue->blk, "the server's welcome has a bad %s", wrong);
	return -EPROTO;
}

/**
 * memreg_blk_welcome_fits() - Check that an export still fits the disk
 * @blk: The device, whose export is known
 * @export: The export that the server offers now
 *
 * Block size, flags and instance must be the same, and limits suffice. The
 * capacity, the physical block size and the granularity of discards may change;
 * the disk keeps the latter two as they were. Data in messages may be switched
 * on or off with each connection.
 *
 * Return: 0, or -EMEDIUMTYPE with the reason logged.
 */
int memreg_blk_welcome_fits(struct memreg_blk *blk,
			    const struct memreg_blk_export *export)
{
	const struct memreg_blk_export *was = &blk->export;
	const char *wrong = NULL;

	if (export->block_size != was->block_size)
		wrong = "block size";
	else if (export->flags != was->flags)
		wrong = "flags";
	else if (export->max_length < blk->io_max)
		wrong = "length of commands";
	else if (export->max_segs < blk->max_mrs)
		wrong = "number of segments";
	else if (export->depth < was->depth)
		wrong = "depth";
	if (!wrong && export->instance == was->instance)
		return 0;
	if (wrong)
		memreg_blk_say(blk,
			       "the export is another one: its %s has changed",
			       wrong);
	else
		memreg_blk_say(blk,
			       "the server was started anew, and may have lost what was written");
	return -EMEDIUMTYPE;
}

/**
 * memreg_blk_refusal() - Log the server's reason for a rejection
 * @blk: The device
 * @data: Private data, of any content, or NULL
 * @length: Length of the data
 */
void memreg_blk_refusal(struct memreg_blk *blk, const void *data,
			unsigned int length)
{
	struct ib_memreg_blk_refusal r;

	if (data && length >= sizeof(r)) {
		memcpy(&r, data, sizeof(r));
		if (be32_to_cpu(r.magic) != IB_MEMREG_BLK_MAGIC)
			length = 0;
	}
	if (!data || length < sizeof(r)) {
		memreg_blk_say(blk, "nobody serves block devices there");
		return;
	}
	switch (be16_to_cpu(r.status)) {
	case IB_MEMREG_BLK_UNSUPPORTED:
		memreg_blk_say(blk, "the server speaks version %u, and we %u",
			       be16_to_cpu(r.version), IB_MEMREG_BLK_VERSION);
		break;
	case IB_MEMREG_BLK_NO_EXPORT:
		memreg_blk_say(blk, "the server has no such export");
		break;
	case IB_MEMREG_BLK_OLD_EPOCH:
		memreg_blk_say(blk, "the server knows a newer epoch");
		break;
	case IB_MEMREG_BLK_BUSY:
		memreg_blk_say(blk,
			       "the server has too many clients or connections");
		break;
	default:
		memreg_blk_say(blk, "the server refuses: status %u",
			       be16_to_cpu(r.status));
	}
}

/*
 * Commands and answers
 */

/**
 * memreg_blk_cmd() - Write a command
 * @io: The command, with its number; its memory is mapped if it has any
 * @opcode: enum ib_memreg_blk_opcode
 * @flags: enum ib_memreg_blk_cmd_flags
 * @offset: First byte
 * @length: Bytes
 *
 * Records in @io the answer to expect.
 */
void memreg_blk_cmd(struct memreg_blk_io *io, u8 opcode, u8 flags, u64 offset,
		    u32 length)
{
	struct memreg_blk_queue *queue = io->queue;
	struct ib_memreg_blk_cmd *cmd = queue->cmds +
					io->tag * MEMREG_BLK_CMD_SIZE;
	struct ib_memreg_seg segs[IB_MEMREG_BLK_SEGS_MAX];
	unsigned int count, i;

	count = ib_memreg_req_segs(&io->req, segs, ARRAY_SIZE(segs));
	*cmd = (struct ib_memreg_blk_cmd) {
		.seq = cpu_to_be64(io->seq),
		.offset = cpu_to_be64(offset),
		.length = cpu_to_be32(length),
		.epoch = cpu_to_be32(queue->blk->epoch),
		.tag = cpu_to_be16(io->tag),
		.nr_segs = cpu_to_be16(count),
		.opcode = opcode,
		.flags = flags,
	};
	for (i = 0; i < count; i++)
		cmd->segs[i] = (struct ib_memreg_blk_seg) {
			.addr = cpu_to_be64(segs[i].iova),
			.length = cpu_to_be32(segs[i].length),
			.rkey = cpu_to_be32(segs[i].rkey),
		};
	io->length = length;
	io->rkey = count ? segs[0].rkey : 0;
}

/**
 * memreg_blk_reply_begin() - Check that a message can begin with an answer
 * @wc: Its successful completion
 *
 * Return: NULL, or an error message.
 */
const char *memreg_blk_reply_begin(const struct ib_wc *wc)
{
	if (wc->opcode != IB_WC_RECV || wc->wc_flags & IB_WC_WITH_IMM)
		return "is no SEND";
	if (wc->byte_len < sizeof(struct ib_memreg_blk_reply))
		return "has a bad size";
	return NULL;
}

/* INVALID may come for a command that the server could not even read. */
static const char *memreg_blk_reply_key(const struct memreg_blk_io *io,
					u16 status, const struct ib_wc *wc)
{
	if (wc->wc_flags & IB_WC_WITH_INVALIDATE) {
		if (!io->req.nr_mrs || wc->ex.invalidate_rkey != io->rkey)
			return "invalidates a key that is not its own";
		return NULL;
	}
	if (io->req.nr_mrs && status != IB_MEMREG_BLK_INVALID)
		return "doesn't invalidate the key";
	return NULL;
}

/**
 * memreg_blk_reply() - Check the answer to a command
 * @io: The command that has the answer's tag; only the caller uses it
 * @reply: A copy of the answer
 * @wc: Its completion, which memreg_blk_reply_begin() has passed
 *
 * Return: NULL, or an error message. In that case the connection has to end,
 * and the answer is ignored.
 */
const char *memreg_blk_reply(const struct memreg_blk_io *io,
			     const struct ib_memreg_blk_reply *reply,
			     const struct ib_wc *wc)
{
	const struct memreg_blk *blk = io->queue->blk;
	u64 capacity = be64_to_cpu(reply->capacity);
	u16 status = be16_to_cpu(reply->status);

	if (be64_to_cpu(reply->seq) != io->seq)
		return "has a bad sequence number";
	if (be32_to_cpu(reply->epoch) != blk->epoch)
		return "has a bad epoch";
	if (status > IB_MEMREG_BLK_INVALID)
		return "has a bad status";
	if (be32_to_cpu(reply->length) !=
	    (status == IB_MEMREG_BLK_OK ? io->length : 0))
		return "has a bad length";
	if (capacity > S64_MAX ||
	    !memreg_blk_multiple(capacity, blk->export.block_size))
		return "has a bad capacity";
	if (reply->reserved)
		return "has a reserved field";
	if (wc->byte_len != sizeof(*reply) +
	    (status == IB_MEMREG_BLK_OK ? io->wanted : 0))
		return "has a bad size";
	return memreg_blk_reply_key(io, status, wc);
}

/**
 * memreg_blk_status() - Convert an outcome to a status of blk-mq
 * @status: OK to INVALID of enum ib_memreg_blk_status
 *
 * Return: the status.
 */
blk_status_t memreg_blk_status(u16 status)
{
	switch (status) {
	case IB_MEMREG_BLK_OK:
		return BLK_STS_OK;
	case IB_MEMREG_BLK_NO_SPACE:
		return BLK_STS_NOSPC;
	case IB_MEMREG_BLK_PERMISSION:
		return BLK_STS_TARGET;
	case IB_MEMREG_BLK_UNSUPPORTED:
		return BLK_STS_NOTSUPP;
	default:
		return BLK_STS_IOERR;
	}
}
