// SPDX-License-Identifier: GPL-2.0-only
/*
 * A server of the block protocol that lies, by librdmacm and libibverbs: for
 * blk_liar.sh. Usage: blk_liar ADDRESS EVERY[:BYTES] LIE...
 *
 * With BYTES it puts up to so many bytes of data in messages, even if the
 * client offers less.
 *
 * It serves 8 MiB of memory to one client with one queue. After each EVERY
 * commands that move data it tells the next one of its lies; when it has told
 * all of them it is honest. "drop" is told by a connection that is established,
 * when another lie was told, and ends it. It prints a line when it serves, for
 * each lie, and for what becomes of those that are RDMA.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <err.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>
#include <rdma/ib_memreg_blk.h>
#include <rdma/rdma_cma.h>

#define DEPTH	16
#define SIZE	(8u << 20)
#define CHUNK	(1u << 20)
#define DATA	(IB_MEMREG_BLK_INLINE_MAX + 512)
#define MESSAGE	(sizeof(struct ib_memreg_blk_cmd) + DATA)

/* Ids of work requests that are no messages */
#define WR_DATA	1000
#define WR_LATE	1001

/* Seconds that a slow answer takes at least, until one of a keep-alive: more
 * than io_timeout, far less than the four times that it may take.
 */
#define SLOW	12

struct answer {
	struct ib_memreg_blk_reply reply;
	char more[DATA];
};

struct slow {
	struct answer *answer;
	uint32_t length;
	uint32_t rkey;
	time_t at;	/* when it is to be sent; 0: there is none */
};

struct liar {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_mr *messages_mr;
	struct ibv_mr *answers_mr;
	char *memory;
	char messages[DEPTH][MESSAGE];
	struct answer answers[2 * DEPTH];
	unsigned int next_answer;
	uint32_t epoch;
	uint32_t old_rkey;
	struct ib_memreg_blk_seg kept;
	bool is_kept;
	bool is_late;
	struct slow slow;
	bool up;
	unsigned int every;
	unsigned int inline_max;
	unsigned int commands;
	bool has_lied;
	bool wobbles;
	char **lies;
};

static void must(bool good, const char *what)
{
	if (!good)
		err(1, "%s", what);
}

static time_t now_s(void)
{
	struct timespec now;

	must(!clock_gettime(CLOCK_MONOTONIC, &now), "clock_gettime");
	return now.tv_sec;
}

/*
 * Work requests
 */

static void post_recv(struct liar *l, unsigned int place)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)l->messages[place],
		.length = MESSAGE,
		.lkey = l->messages_mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = place, .sg_list = &sge, .num_sge = 1,
	}, *bad;

	/* the end of the connection is reported elsewhere */
	ibv_post_recv(l->id->qp, &wr, &bad);
}

static void post_rdma(struct liar *l, enum ibv_wr_opcode opcode,
		      const struct ib_memreg_blk_seg *seg, char *local,
		      uint64_t mark)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)local,
		.length = be32toh(seg->length),
		.lkey = l->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = mark,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = mark == WR_LATE ? IBV_SEND_SIGNALED : 0,
		.wr.rdma.remote_addr = be64toh(seg->addr),
		.wr.rdma.rkey = be32toh(seg->rkey),
	}, *bad;

	if (!ibv_post_send(l->id->qp, &wr, &bad) && mark == WR_LATE)
		l->is_late = true;
}

/* Fenced: the data that was read is there first. */
static void post_answer(struct liar *l, struct answer *a, uint32_t length,
			uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)a,
		.length = length,
		.lkey = l->answers_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = WR_DATA,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = rkey ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
		.invalidate_rkey = rkey,
	}, *bad;

	ibv_post_send(l->id->qp, &wr, &bad);
}

/*
 * Commands
 */

static void move_data(struct liar *l, const struct ib_memreg_blk_cmd *cmd)
{
	char *at = l->memory + be64toh(cmd->offset);
	unsigned int i;

	for (i = 0; i < be16toh(cmd->nr_segs); i++) {
		post_rdma(l, cmd->opcode == IB_MEMREG_BLK_READ ?
			     IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
			  &cmd->segs[i], at, WR_DATA);
		at += be32toh(cmd->segs[i].length);
	}
}

static struct answer *new_answer(struct liar *l,
				 const struct ib_memreg_blk_cmd *cmd)
{
	struct answer *a = &l->answers[l->next_answer++ % (2 * DEPTH)];

	memset(&a->reply, 0, sizeof(a->reply));
	a->reply.seq = cmd->seq;
	a->reply.capacity = htobe64(l->wobbles && l->next_answer % 2 ?
				    SIZE - CHUNK : SIZE);
	a->reply.length = cmd->length;
	a->reply.epoch = cmd->epoch;
	a->reply.tag = cmd->tag;
	return a;
}

/* Lies in a field of the answer: the value that the field is xored with. */
static const struct field {
	const char *name;
	size_t offset;
	uint8_t value;
} fields[] = {
	{ "seq", offsetof(struct ib_memreg_blk_reply, seq), 1 },
	{ "capacity", offsetof(struct ib_memreg_blk_reply, capacity) + 7, 1 },
	{ "length", offsetof(struct ib_memreg_blk_reply, length) + 2, 2 },
	{ "epoch", offsetof(struct ib_memreg_blk_reply, epoch) + 3, 1 },
	{ "tag", offsetof(struct ib_memreg_blk_reply, tag), 0x80 },
	{ "idle-tag", offsetof(struct ib_memreg_blk_reply, tag) + 1, 8 },
	{ "status", offsetof(struct ib_memreg_blk_reply, status), 1 },
	{ "error-length", offsetof(struct ib_memreg_blk_reply, status) + 1, 1 },
	{ "refusal", offsetof(struct ib_memreg_blk_reply, status) + 1,
	  IB_MEMREG_BLK_BUSY },
	{ "reserved", offsetof(struct ib_memreg_blk_reply, reserved) + 3, 1 },
};

static bool lie_by_field(const char *lie, struct answer *a)
{
	size_t i;

	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (!strcmp(lie, fields[i].name)) {
			((uint8_t *)&a->reply)[fields[i].offset] ^=
				fields[i].value;
			return true;
		}
	}
	return false;
}

static void set_error(struct answer *a, uint16_t status)
{
	a->reply.status = htobe16(status);
	a->reply.length = 0;
}

/* Bytes of data that a lie has too many of behind an answer */
static int lie_by_data(const char *lie)
{
	if (!strcmp(lie, "more-data"))
		return 512;
	if (!strcmp(lie, "byte-more"))
		return 1;
	if (!strcmp(lie, "less-data"))
		return -512;
	if (!strcmp(lie, "byte-less"))
		return -1;
	return 0;
}

/* Answer with a lie. The answer is to have @length bytes. */
static void lie(struct liar *l, const char *lie,
		const struct ib_memreg_blk_cmd *cmd, struct answer *a,
		uint32_t length, uint32_t rkey)
{
	printf("lie: %s\n", lie);
	if (!strcmp(lie, "leave"))
		exit(0);
	if (!strcmp(lie, "silent")) {
		l->kept = cmd->segs[0];
		l->is_kept = true;
		return;
	}
	if (!strcmp(lie, "slow")) {
		/* this second is not a whole one */
		l->slow = (struct slow){ a, length, rkey, now_s() + SLOW + 1 };
		return;
	}
	if (lie_by_data(lie))
		length += (uint32_t)lie_by_data(lie);
	else if (!strcmp(lie, "no-data"))
		length = sizeof(a->reply);
	else if (!strcmp(lie, "no-key"))
		rkey = 0;
	else if (!strcmp(lie, "key"))
		rkey = l->old_rkey;
	else if (!strcmp(lie, "short"))
		length = 16;
	else if (!strcmp(lie, "long"))
		length = 40;
	else if (!strcmp(lie, "too-long"))
		length = 65;
	else if (!strcmp(lie, "garbage"))
		memset(a, 0xa5, sizeof(a->reply));
	else if (!strcmp(lie, "io") || !strcmp(lie, "data-of-error"))
		set_error(a, IB_MEMREG_BLK_IO);
	else if (!strcmp(lie, "invalid"))
		set_error(a, IB_MEMREG_BLK_INVALID);
	else if (!strcmp(lie, "wobble"))
		l->wobbles = true;
	else if (strcmp(lie, "twice") && strcmp(lie, "late") &&
		 !lie_by_field(lie, a))
		errx(1, "there is no lie %s", lie);
	post_answer(l, a, length, rkey);
	if (!strcmp(lie, "twice"))
		post_answer(l, a, length, 0);
	if (!strcmp(lie, "late"))
		post_rdma(l, IBV_WR_RDMA_WRITE, &cmd->segs[0], l->memory,
			  WR_LATE);
}

/* Lies about what a READ brings are for READs. */
static bool may_lie(const struct liar *l, const struct ib_memreg_blk_cmd *cmd)
{
	static const char *const reads[] = {
		"silent", "late", "slow", "no-data", "less-data", "byte-less",
		"data-of-error",
	};
	size_t i;

	if (!*l->lies || l->commands < l->every || !strcmp(*l->lies, "drop"))
		return false;
	for (i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
		if (!strcmp(*l->lies, reads[i]))
			return cmd->opcode == IB_MEMREG_BLK_READ;
	return true;
}

/*
 * Copy data from the command's message, or to behind the answer. Returns the
 * number of bytes behind the answer.
 */
static uint32_t copy_data(struct liar *l, const struct ib_memreg_blk_cmd *cmd,
			  struct answer *a)
{
	char *at = l->memory + be64toh(cmd->offset);
	uint32_t length = be32toh(cmd->length);

	if (length > l->inline_max)
		errx(1, "%u bytes of data in a message", length);
	if (cmd->opcode == IB_MEMREG_BLK_READ) {
		memcpy(a->more, at, length);
		return length;
	}
	memcpy(at, cmd + 1, length);
	return 0;
}

/* A keep-alive has come. */
static void slow_down(struct liar *l)
{
	if (!l->slow.at || now_s() < l->slow.at)
		return;
	l->slow.at = 0;
	printf("slow: answered\n");
	post_answer(l, l->slow.answer, l->slow.length, l->slow.rkey);
}

static void take_command(struct liar *l, unsigned int place)
{
	union {
		struct ib_memreg_blk_cmd cmd;
		char bytes[MESSAGE];
	} m;
	uint32_t length = sizeof(struct ib_memreg_blk_reply), rkey = 0;
	struct answer *a;
	bool moves, data;

	memcpy(&m, l->messages[place], MESSAGE);
	post_recv(l, place);
	a = new_answer(l, &m.cmd);
	moves = be16toh(m.cmd.nr_segs);
	data = m.cmd.opcode == IB_MEMREG_BLK_READ ||
	       m.cmd.opcode == IB_MEMREG_BLK_WRITE;
	/* the key of an earlier connection, on this one */
	if (l->is_kept && moves) {
		l->is_kept = false;
		post_rdma(l, IBV_WR_RDMA_WRITE, &l->kept, l->memory, WR_LATE);
	}
	if (moves) {
		move_data(l, &m.cmd);
		rkey = be32toh(m.cmd.segs[0].rkey);
	} else if (data) {
		length += copy_data(l, &m.cmd, a);
	}
	l->commands += data;
	if (data && may_lie(l, &m.cmd)) {
		l->commands = 0;
		l->has_lied = true;
		lie(l, *l->lies++, &m.cmd, a, length, rkey);
	} else {
		post_answer(l, a, length, rkey);
	}
	if (m.cmd.opcode == IB_MEMREG_BLK_NOP)
		slow_down(l);
	if (moves)
		l->old_rkey = rkey;
}

/* End the connection before it was of any use. */
static bool is_dropped(const struct liar *l)
{
	return l->has_lied && *l->lies && !strcmp(*l->lies, "drop");
}

static void take_completions(struct liar *l)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(l->cq, 1, &wc) > 0) {
		if (wc.wr_id == WR_LATE) {
			printf("late: %s\n", ibv_wc_status_str(wc.status));
			l->is_late = false;
		} else if (wc.wr_id < DEPTH && wc.status == IBV_WC_SUCCESS &&
			   l->up && !is_dropped(l)) {
			take_command(l, wc.wr_id);
		}
	}
}

/*
 * Connections
 */

static void create_qp(struct liar *l)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = 8 * DEPTH, .max_recv_wr = DEPTH,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
		.send_cq = l->cq,
		.recv_cq = l->cq,
		.qp_type = IBV_QPT_RC,
	};
	unsigned int i;

	must(!rdma_create_qp(l->id, l->pd, &attr), "rdma_create_qp");
	for (i = 0; i < DEPTH; i++)
		post_recv(l, i);
}

/* Otherwise the late command would be flushed, and its outcome unknown. */
static void await_late(struct liar *l)
{
	unsigned int i;

	for (i = 0; l->is_late && i < 500; i++) {
		poll(NULL, 0, 10);
		take_completions(l);
	}
}

static void hang_up(struct liar *l)
{
	if (!l->id)
		return;
	l->up = false;
	l->slow.at = 0;
	await_late(l);
	rdma_disconnect(l->id);
	rdma_destroy_qp(l->id);
	rdma_destroy_id(l->id);
	l->id = NULL;
	take_completions(l);
}

static void accept_client(struct liar *l, struct rdma_cm_id *id,
			  const struct ib_memreg_blk_hello *hello)
{
	struct ib_memreg_blk_welcome w = {
		.magic = htobe32(IB_MEMREG_BLK_MAGIC),
		.version = htobe16(IB_MEMREG_BLK_VERSION),
		.depth = hello->depth,
		.capacity = htobe64(SIZE),
		.block_size = htobe32(512),
		.physical_block_size = htobe32(512),
		.max_length = htobe32(CHUNK),
		.max_segs = htobe16(IB_MEMREG_BLK_SEGS_MAX),
		.inline_max = htobe16(l->inline_max),
	};
	struct rdma_conn_param param = {
		.private_data = &w, .private_data_len = sizeof(w),
		.responder_resources = 1, .initiator_depth = 1,
		.rnr_retry_count = 7,
	};

	must(be16toh(hello->queues) == 1 && be16toh(hello->depth) <= DEPTH,
	     "the client has too much");
	hang_up(l);
	l->id = id;
	create_qp(l);
	l->up = true;
	must(!rdma_accept(id, &param), "rdma_accept");
}

static void established(struct liar *l)
{
	if (!is_dropped(l))
		return;
	printf("lie: %s\n", *l->lies++);
	hang_up(l);
}

static void take_event(struct liar *l)
{
	struct ib_memreg_blk_hello hello = { 0 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;

	must(!rdma_get_cm_event(l->events, &event), "rdma_get_cm_event");
	type = event->event;
	id = event->id;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST &&
	    event->param.conn.private_data_len >= sizeof(hello))
		memcpy(&hello, event->param.conn.private_data, sizeof(hello));
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		accept_client(l, id, &hello);
	else if (type == RDMA_CM_EVENT_ESTABLISHED && id == l->id)
		established(l);
	else if (type == RDMA_CM_EVENT_DISCONNECTED && id == l->id)
		hang_up(l);
}

static struct ibv_mr *reg(struct liar *l, void *at, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(l->pd, at, length,
				       IBV_ACCESS_LOCAL_WRITE);

	must(mr, "ibv_reg_mr");
	return mr;
}

static void begin(struct liar *l, const char *address)
{
	struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_port = htons(IB_MEMREG_BLK_PORT),
	};

	must(inet_pton(AF_INET, address, &in.sin_addr) == 1, "address");
	l->events = rdma_create_event_channel();
	must(l->events, "rdma_create_event_channel");
	must(!rdma_create_id(l->events, &l->listener, NULL, RDMA_PS_TCP) &&
	     !rdma_bind_addr(l->listener, (struct sockaddr *)&in) &&
	     !rdma_listen(l->listener, 4), "rdma_listen");
	l->pd = ibv_alloc_pd(l->listener->verbs);
	l->channel = ibv_create_comp_channel(l->listener->verbs);
	must(l->pd && l->channel, "ibv_alloc_pd");
	l->cq = ibv_create_cq(l->listener->verbs, 64 * DEPTH, NULL, l->channel,
			      0);
	must(l->cq, "ibv_create_cq");
	l->memory = calloc(1, SIZE);
	must(l->memory, "calloc");
	l->mr = reg(l, l->memory, SIZE);
	l->messages_mr = reg(l, l->messages, sizeof(l->messages));
	l->answers_mr = reg(l, l->answers, sizeof(l->answers));
}

int main(int argc, char **argv)
{
	static struct liar l;
	struct pollfd fds[2];
	struct ibv_cq *cq;
	void *context;

	if (argc < 3)
		errx(2, "usage: blk_liar ADDRESS EVERY[:BYTES] LIE...");
	setlinebuf(stdout);
	if (sscanf(argv[2], "%u:%u", &l.every, &l.inline_max) < 1 ||
	    l.inline_max > IB_MEMREG_BLK_INLINE_MAX)
		errx(2, "what is %s?", argv[2]);
	l.lies = argv + 3;
	begin(&l, argv[1]);
	printf("serving on %s\n", argv[1]);
	fds[0] = (struct pollfd) { .fd = l.events->fd, .events = POLLIN };
	fds[1] = (struct pollfd) { .fd = l.channel->fd, .events = POLLIN };
	for (;;) {
		must(!ibv_req_notify_cq(l.cq, 0), "ibv_req_notify_cq");
		take_completions(&l);
		must(poll(fds, 2, -1) > 0, "poll");
		if (fds[1].revents && !ibv_get_cq_event(l.channel, &cq,
							&context))
			ibv_ack_cq_events(cq, 1);
		take_completions(&l);
		if (fds[0].revents)
			take_event(&l);
	}
}
