// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Commands, from the message to the reply.
 *
 * A command begins when its connection has room for all its work requests, and
 * a buffer is free if its data needs one; until then it waits. Then:
 *
 *	READ		read into the buffer	-> WRITEs, and the reply behind
 *	READ, memory				-> WRITEs, and the reply behind
 *	WRITE		-> READs, completion, write out of the buffer -> reply
 *	WRITE, memory	-> READs, and the reply, which is fenced
 *	others		do it			-> reply
 *
 * A READ or WRITE whose data is in a message is one of the others: a READ's
 * data goes out with the reply, from the buffer or from memory, and a WRITE's
 * stays where it came in until it is done.
 *
 * What is behind an arrow goes out in one call, with the receive for the next
 * command.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "blkd.h"

static bool in_memory(const struct cmd *c)
{
	return c->conn->export->kind == EXPORT_MEMORY;
}

/* Does a command transfer data by its segments? */
static bool moves(const struct cmd *c)
{
	return c->status == IB_MEMREG_BLK_OK && !c->replayed && c->nr_segs &&
	       cmd_has_data(c);
}

/* Is the data of a command sent along with its reply? */
static bool replies_with_data(const struct cmd *c)
{
	return c->status == IB_MEMREG_BLK_OK && cmd_inline(c) &&
	       c->opcode == IB_MEMREG_BLK_READ;
}

/*
 * Pieces: what one work request moves
 */

struct piece {
	unsigned int seg;
	uint32_t done;		/* of that segment */
	uint64_t local;		/* where in our memory */
	uint32_t length;
};

/*
 * Position of the next piece; all 0 at first, except where it is in our memory
 */
static bool next_piece(const struct blkd *b, const struct cmd *c,
		       struct piece *p)
{
	p->local += p->length;
	p->done += p->length;
	if (p->done == c->segs[p->seg].length) {
		p->seg++;
		p->done = 0;
	}
	if (p->seg == c->nr_segs)
		return false;
	p->length = c->segs[p->seg].length - p->done;
	if (p->length > b->chunk)
		p->length = b->chunk;
	return true;
}

/*
 * Places of the send queue that the segments need, each in as many parts as its
 * pages make
 */
static uint32_t room_for(const struct blkd *b, const struct cmd *c)
{
	struct piece p = { .local = in_memory(c) ? c->offset : 0 };
	uint32_t pages, room = 1;

	if (!moves(c))
		return room;
	while (next_piece(b, c, &p)) {
		pages = (uint32_t)((p.local % BLKD_PAGE + p.length +
				    BLKD_PAGE - 1) / BLKD_PAGE);
		room += (pages + b->fragments - 1) / b->fragments;
	}
	return room;
}

/*
 * Prepare READs or WRITEs for all segments. Returns the last one, for the
 * caller to signal.
 */
static struct ib_memreg_wr *post_pieces(struct blkd *b, const struct cmd *c)
{
	struct piece p = {
		.local = in_memory(c) ? c->offset :
					(uint64_t)c->page * BLKD_PAGE,
	};
	uint32_t mr = in_memory(c) ? c->conn->export->mr.id :
				     b->slab.mr.id;
	struct ib_memreg_wr *wr = NULL;

	while (next_piece(b, c, &p)) {
		const struct seg *s = &c->segs[p.seg];

		wr = batch_next(b);
		if (c->opcode == IB_MEMREG_BLK_READ)
			memreg_prep_write(wr, c->conn->endpoint, mr, p.local,
					  p.length, s->addr + p.done, s->rkey);
		else
			memreg_prep_read(wr, c->conn->endpoint, mr, p.local,
					 p.length, s->addr + p.done, s->rkey);
	}
	return wr;
}

/*
 * Room and buffers
 */

void cmd_give_buffer(struct blkd *b, struct cmd *c)
{
	if (!c->pages)
		return;
	slab_give(&b->slab, c->page, c->pages);
	c->pages = 0;
	b->freed = true;
}

static bool take_buffer(struct blkd *b, struct cmd *c)
{
	uint32_t pages = (c->length + BLKD_PAGE - 1) / BLKD_PAGE;

	if (b->hungry || !slab_take(&b->slab, pages, &c->page)) {
		b->hungry = true;
		return false;
	}
	c->pages = pages;
	c->data = b->slab.memory + (size_t)c->page * BLKD_PAGE;
	return true;
}

/* Nobody overtakes who waits for the same */
static bool claim(struct blkd *b, struct cmd *c)
{
	uint32_t room = room_for(b, c);

	if (c->conn->starved || room > c->conn->room) {
		c->conn->starved = true;
		return false;
	}
	if ((moves(c) || replies_with_data(c)) && !in_memory(c) &&
	    !take_buffer(b, c))
		return false;
	c->room = (uint16_t)room;
	c->conn->room -= room;
	return true;
}

/*
 * The reply
 */

void cmd_prep_recv(struct conn *conn, struct ib_memreg_wr *wr, uint32_t slot)
{
	memreg_prep_recv(wr, conn->endpoint, conn->mr.id,
			 conn_message_at(conn, slot), conn->message,
			 wr_data(WR_RECV, (uint16_t)slot, 0, 0));
}

/* Must the reply wait for READs that were posted before it? */
static bool fenced(const struct cmd *c)
{
	return c->opcode == IB_MEMREG_BLK_WRITE && in_memory(c) && moves(c);
}

static void fill_reply(const struct cmd *c, struct ib_memreg_blk_reply *reply)
{
	bool ok = c->status == IB_MEMREG_BLK_OK;

	*reply = (struct ib_memreg_blk_reply) {
		.seq = htobe64(c->seq),
		.capacity = htobe64(c->conn->export->capacity),
		.length = htobe32(ok ? c->length : 0),
		.epoch = htobe32(c->conn->epoch),
		.tag = htobe16(c->tag),
		.status = htobe16(c->status),
	};
}

/* Signal a work request, so that its completion frees all pending room */
static void signal_room(struct conn *conn, struct ib_memreg_wr *wr,
			enum wr_kind kind, uint32_t page, uint32_t pages)
{
	memreg_wr_signal(wr, wr_data(kind, (uint16_t)conn->owed, page, pages));
	conn->owed = 0;
	if (!conn->replies++)
		conn->progress = now_ns();
}

/*
 * A reply is signalled if its command has a buffer, if it ends the connection,
 * or if it leaves less room than a command may need. The next signalled reply
 * frees the room of the others, so that they wake no thread.
 */
static void signal_reply(struct blkd *b, struct cmd *c, struct ib_memreg_wr *wr)
{
	struct conn *conn = c->conn;

	conn->owed += c->room;
	if (c->valid && !c->pages && !b->stopping &&
	    conn->room >= conn_min_send(b))
		return;
	signal_room(conn, wr, c->valid ? WR_REPLY : WR_LAST_REPLY, c->page,
		    c->pages);
	c->pages = 0;	/* they go with the reply */
}

/*
 * An empty WRITE needs no key, and the client does not notice it. Like a reply
 * it is signalled and needs room.
 */
void cmd_probe(struct blkd *b, struct conn *conn)
{
	struct ib_memreg_wr *wr = batch_next(b);

	memreg_prep_write(wr, conn->endpoint, 0, 0, 0, 0, 0);
	conn->room--;
	conn->owed++;
	signal_room(conn, wr, WR_REPLY, 0, 0);
	b->stats.probes++;
}

/* Where the data of a READ is */
static struct ib_memreg_sge local_data(const struct blkd *b,
				       const struct cmd *c)
{
	const struct export *e = c->conn->export;

	return (struct ib_memreg_sge) {
		.mr_id = in_memory(c) ? e->mr.id : b->slab.mr.id,
		.length = c->length,
		.offset = in_memory(c) ? c->offset :
					 (uint64_t)c->page * BLKD_PAGE,
	};
}

/*
 * Reply with the data behind the reply in place, as it is too long to be
 * copied.
 */
static void prep_data_reply(struct blkd *b, struct cmd *c,
			    struct ib_memreg_wr *wr)
{
	struct ib_memreg_sge *sges = batch_sges(b);
	struct conn *conn = c->conn;
	size_t at = conn_reply_at(conn);
	struct ib_memreg_blk_reply reply;

	fill_reply(c, &reply);
	memcpy(conn->messages + at, &reply, sizeof(reply));
	sges[0] = (struct ib_memreg_sge) {
		.mr_id = conn->mr.id,
		.length = sizeof(reply),
		.offset = at,
	};
	sges[1] = local_data(b, c);
	memreg_prep_send(wr, conn->endpoint, 0, 0, 0);
	memreg_wr_sges(wr, sges, 2);
}

static void prep_short_reply(struct blkd *b, struct cmd *c,
			     struct ib_memreg_wr *wr)
{
	struct ib_memreg_blk_reply *reply = batch_reply(b);

	fill_reply(c, reply);
	if (c->nr_segs)
		memreg_prep_send_inv(wr, c->conn->endpoint, 0, 0, 0,
				     c->segs[0].rkey);
	else
		memreg_prep_send(wr, c->conn->endpoint, 0, 0, 0);
	memreg_wr_inline(wr, reply, sizeof(*reply));
}

static void prep_reply(struct blkd *b, struct cmd *c)
{
	struct ib_memreg_wr *wr = batch_next(b);

	if (replies_with_data(c))
		prep_data_reply(b, c, wr);
	else
		prep_short_reply(b, c, wr);
	if (fenced(c))
		wr->flags |= IB_MEMREG_WR_FENCE;
	signal_reply(b, c, wr);
}

/* A command is done: once the client has the reply, it may send another one. */
static void retire(struct cmd *c)
{
	struct conn *conn = c->conn;

	conn->inflight--;
	if (c->valid)
		conn->tags[c->tag / 8] &= (uint8_t)~(1 << c->tag % 8);
	c->next = conn->free;
	conn->free = c;
}

static void reply(struct blkd *b, struct cmd *c)
{
	if (c->valid)
		cmd_prep_recv(c->conn, batch_next(b), c->slot);
	if (c->opcode == IB_MEMREG_BLK_READ && moves(c))
		post_pieces(b, c);
	else if (!replies_with_data(c))
		cmd_give_buffer(b, c);
	prep_reply(b, c);
	if (!fenced(c))
		retire(c);
}

/*
 * Doing it
 */

static void remember(struct cmd *c)
{
	struct client *client = c->conn->client;

	if (cmd_changes(c) && c->length)
		outcomes_add(client->outcomes, c->seq, c->conn->epoch,
			     c->status);
}

/* The medium has executed a command, or has failed to. */
static void done(struct blkd *b, struct cmd *c, int status)
{
	c->status = (uint16_t)status;
	if (status == IB_MEMREG_BLK_RANGE)
		export_refresh(c->conn->export);
	remember(c);
	stats_count(b, c);
	if (c->conn->state == CONN_UP)
		reply(b, c);
	else
		cmd_give_buffer(b, c);
}

static void do_medium(struct blkd *b, struct cmd *c)
{
	int ret = io_try(c->conn->export, c);

	if (ret != -EAGAIN) {
		done(b, c, ret);
		return;
	}
	c->conn->jobs++;
	jobs_add(b->jobs, c);
}

void cmd_job_done(struct blkd *b, struct cmd *c)
{
	c->conn->jobs--;
	b->ending |= c->conn->state == CONN_ENDED;
	done(b, c, c->status);
}

static void read_segments(struct blkd *b, struct cmd *c)
{
	memreg_wr_signal(post_pieces(b, c),
			 wr_data(WR_READ, (uint16_t)(c - c->conn->cmds), 0, 0));
	if (fenced(c))
		reply(b, c);
}

static void segments_were_read(struct blkd *b, struct cmd *c)
{
	if (fenced(c)) {
		remember(c);
		stats_count(b, c);
		retire(c);
	} else if (c->conn->state == CONN_UP) {
		do_medium(b, c);
	}
}

static void begin(struct blkd *b, struct cmd *c)
{
	if (c->status != IB_MEMREG_BLK_OK || c->replayed) {
		b->stats.replayed += c->replayed && c->valid;
		stats_count(b, c);
		reply(b, c);
	} else if (c->opcode == IB_MEMREG_BLK_NOP) {
		export_refresh(c->conn->export);
		done(b, c, IB_MEMREG_BLK_OK);
	} else if (c->opcode == IB_MEMREG_BLK_WRITE && moves(c)) {
		read_segments(b, c);
	} else if (c->opcode == IB_MEMREG_BLK_READ && in_memory(c)) {
		done(b, c, IB_MEMREG_BLK_OK);
	} else {
		do_medium(b, c);
	}
}

/* Commands that wait */

static void wait_for_room(struct blkd *b, struct cmd *c)
{
	c->next = NULL;
	*b->waiting_end = c;
	b->waiting_end = &c->next;
}

void cmds_run_waiting(struct blkd *b)
{
	struct cmd *c = b->waiting, *next;

	if (!c || !b->freed)
		return;
	b->freed = false;
	b->hungry = false;
	b->waiting = NULL;
	b->waiting_end = &b->waiting;
	for (next = c; next; next = next->next)
		next->conn->starved = false;
	for (; c; c = next) {
		next = c->next;
		if (claim(b, c))
			begin(b, c);
		else
			wait_for_room(b, c);
	}
}

void cmds_drop_waiting(struct blkd *b, const struct conn *conn)
{
	struct cmd **at = &b->waiting;

	while (*at) {
		if ((*at)->conn == conn)
			*at = (*at)->next;
		else
			at = &(*at)->next;
	}
	b->waiting_end = at;
	if (!b->waiting)
		b->hungry = false;
	b->freed = true;
}

/*
 * Completions
 */

static const void *message_of(const struct conn *conn,
			      const struct ib_memreg_cqe *cqe)
{
	if (cqe->flags & IB_MEMREG_CQE_INLINE)
		return memreg_cqe_data(cqe);
	return conn->messages + conn_message_at(conn, wr_low(cqe->user_data));
}

static void received(struct blkd *b, struct conn *conn,
		     const struct ib_memreg_cqe *cqe)
{
	struct cmd *c = conn->free;

	if (conn->state != CONN_UP || conn->broken || conn->last ||
	    b->stopping)
		return;
	if (++conn->inflight > conn->depth) {
		conn_break(b, conn, "more commands than it may send");
		return;
	}
	if (!cmd_parse(b, conn, c, message_of(conn, cqe), cqe->byte_len)) {
		conn_break(b, conn, "a message that is no command");
		return;
	}
	conn->free = c->next;
	c->slot = wr_low(cqe->user_data);
	c->data = conn->messages + conn_message_at(conn, c->slot) +
		  sizeof(struct ib_memreg_blk_cmd);
	c->start = now_ns();
	conn->heard = c->start;
	if (c->valid) {
		conn->tags[c->tag / 8] |= (uint8_t)(1 << c->tag % 8);
	} else {
		b->stats.invalid++;
		conn->last = true;
	}
	if (claim(b, c))
		begin(b, c);
	else
		wait_for_room(b, c);
}

static void replied(struct blkd *b, struct conn *conn, uint64_t data)
{
	if (wr_pages(data))
		slab_give(&b->slab, wr_page(data), wr_pages(data));
	b->freed = true;
	if (!conn)
		return;
	conn->replies--;
	conn->room += wr_low(data);
	conn->progress = now_ns();
	conn->heard = conn->progress;
}

void cmd_completion(struct blkd *b, const struct ib_memreg_cqe *cqe)
{
	struct conn *conn = conn_find(b, (uint32_t)cqe->endpoint_data);
	enum wr_kind kind = wr_kind(cqe->user_data);

	if (kind == WR_REPLY || kind == WR_LAST_REPLY)
		replied(b, conn, cqe->user_data);
	if (!conn)
		return;
	if (cqe->status != IB_MEMREG_WC_SUCCESS) {
		conn_break(b, conn, cqe->status == IB_MEMREG_WC_WR_FLUSH_ERR ?
			   "" : memreg_wc_status_string(cqe->status));
		return;
	}
	if (kind == WR_RECV)
		received(b, conn, cqe);
	else if (kind == WR_READ)
		segments_were_read(b, &conn->cmds[wr_low(cqe->user_data)]);
	else if (kind == WR_LAST_REPLY)
		conn_break(b, conn, "a command that is not valid");
}
