// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * verbs_peer: a stock RDMA peer, of librdmacm and libibverbs alone.
 *
 * It connects to an owner of memory, takes the grant from the private data of
 * the answer, does the RDMA reads, writes and atomics that its input requests,
 * and reports how each completed. The format of the grant is all that it shares
 * with memreg: 32 bytes in network byte order:
 *
 *	offset	bytes
 *	0	4	magic number 0x6d726567, "mreg"
 *	4	2	version, 1
 *	6	2	access flags, as of ibv_reg_mr(3)
 *	8	8	first I/O address
 *	16	8	length in bytes
 *	24	4	rkey
 *	28	4	reserved, to be ignored
 *
 * Commands stand on the command line, or come line by line on standard input
 * with --interactive. Each one prints exactly one line, that begins with its
 * name and goes on with KEY=VALUE words; see verbs_peer(1).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define GRANT_MAGIC	0x6d726567
#define GRANT_VERSION	1
#define SEND_QUEUE	256
#define DATA_SHOWN	64
#define DATA_SENT	56	/* private data that a request carries */
#define WORDS_MAX	8
#define LINE_MAX_	4096
#define GRACE_MS	1000	/* for outcomes, after the owner disconnected */
#define RESOLVE_MS	1000

enum {
	EXIT_OK,
	EXIT_UNEXPECTED,	/* an operation ended otherwise than expected */
	EXIT_USAGE,
	EXIT_NO_CONNECTION,
};

/* Statuses beyond those of enum ibv_wc_status */
enum {
	STATUS_TIMEOUT = 1000,
	STATUS_POST_ERROR,
	STATUS_NOT_CONNECTED,
	STATUS_REJECTED,
	STATUS_UNREACHABLE,
	STATUS_ADDRESS_ERROR,
	STATUS_CONNECT_ERROR,
	STATUS_TOO_LONG,
	STATUS_BUSY,
	STATUS_NOT_RUNNING,
	STATUS_LOCAL_ERROR,
};

static const struct status {
	int value;
	const char *name;
	const char *alias;
} statuses[] = {
	{ IBV_WC_SUCCESS, "success", "ok" },
	{ IBV_WC_LOC_LEN_ERR, "local-length-error", NULL },
	{ IBV_WC_LOC_QP_OP_ERR, "local-qp-operation-error", NULL },
	{ IBV_WC_LOC_PROT_ERR, "local-protection-error", NULL },
	{ IBV_WC_WR_FLUSH_ERR, "flushed", "flush" },
	{ IBV_WC_BAD_RESP_ERR, "bad-response", NULL },
	{ IBV_WC_LOC_ACCESS_ERR, "local-access-error", NULL },
	{ IBV_WC_REM_INV_REQ_ERR, "remote-invalid-request", "invalid" },
	{ IBV_WC_REM_ACCESS_ERR, "remote-access-error", "access" },
	{ IBV_WC_REM_OP_ERR, "remote-operation-error", NULL },
	{ IBV_WC_RETRY_EXC_ERR, "retry-exceeded", "retry" },
	{ IBV_WC_RNR_RETRY_EXC_ERR, "rnr-retry-exceeded", "rnr" },
	{ IBV_WC_REM_ABORT_ERR, "remote-aborted", NULL },
	{ IBV_WC_FATAL_ERR, "fatal-error", NULL },
	{ IBV_WC_GENERAL_ERR, "general-error", NULL },
	{ STATUS_TIMEOUT, "timeout", NULL },
	{ STATUS_POST_ERROR, "post-error", NULL },
	{ STATUS_NOT_CONNECTED, "not-connected", NULL },
	{ STATUS_REJECTED, "rejected", NULL },
	{ STATUS_UNREACHABLE, "unreachable", NULL },
	{ STATUS_ADDRESS_ERROR, "address-error", NULL },
	{ STATUS_CONNECT_ERROR, "connect-error", NULL },
	{ STATUS_TOO_LONG, "too-long", NULL },
	{ STATUS_BUSY, "busy", NULL },
	{ STATUS_NOT_RUNNING, "not-running", NULL },
	{ STATUS_LOCAL_ERROR, "local-error", NULL },
};

struct options {
	struct sockaddr_storage dst;
	struct sockaddr_storage src;
	bool has_src;
	bool interactive;
	bool reconnect;
	int timeout_ms;
	int connect_timeout_ms;
	unsigned int depth;
	uint8_t ack_timeout;
	uint8_t retries;
	uint8_t rnr_retries;
	size_t buffer;
	uint64_t base;		/* added to every offset */
	uint8_t data[DATA_SENT];
	uint8_t data_len;
};

/* The owner's grant; each field may be overridden by an option */
struct grant {
	uint64_t iova;
	uint64_t length;
	uint32_t rkey;
	uint32_t access;
};

/* One kind of request, repeated until it fails or is stopped */
struct stream {
	bool running;
	bool stopping;
	enum ibv_wr_opcode opcode;
	uint64_t offset;
	size_t length;
	uint64_t first;		/* wr_id; lower ones are left over */
	unsigned int outstanding;
	uint64_t count;
	int status;
	int64_t began;
};

struct peer {
	struct options opt;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char *buf;
	bool connected;
	int64_t flush_at;	/* the owner disconnected: when to follow */
	bool ever_connected;
	const char *step;	/* of connecting */
	int reason;		/* of the last event: why it failed */
	uint8_t data[256];	/* private data of the answer */
	uint8_t data_len;
	struct grant grant;
	struct grant override;
	bool has_iova, has_length, has_rkey;
	struct stream stream;
	uint64_t wr_id;		/* of the last request; others are left over */
	int status;		/* of the last operation */
	bool unchecked;		/* no expect has looked at it yet */
	bool unexpected;	/* something ended otherwise than expected */
	bool quit;
	char line[LINE_MAX_];	/* of standard input, not yet used */
	size_t line_len;
	bool eof;
};

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int ms_until(int64_t end)
{
	int64_t left = end - now_ms();

	if (left < 0)
		return 0;
	return left > 1000000 ? 1000000 : (int)left;
}

static const char *status_name(int value)
{
	size_t i;

	for (i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].value == value)
			return statuses[i].name;
	return "unknown";
}

static const struct status *find_status(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (!strcmp(statuses[i].name, name) ||
		    (statuses[i].alias && !strcmp(statuses[i].alias, name)))
			return &statuses[i];
	return NULL;
}

/* One line of output, complete before the next command is looked at */
__attribute__((format(printf, 1, 2)))
static void say(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

/* Of zlib, gzip, Ethernet */
static uint32_t crc32_of(const char *data, size_t len)
{
	uint32_t crc = ~0U;
	int bit;

	while (len--) {
		crc ^= (uint8_t)*data++;
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

static void to_hex(char *out, const char *data, size_t len)
{
	size_t i;

	*out = '\0';
	for (i = 0; i < len; i++)
		sprintf(out + 2 * i, "%02x", (uint8_t)data[i]);
}

/* Up to @max bytes; false unless all of @hex is pairs of digits */
static bool from_hex(const char *hex, void *out, size_t max, size_t *len)
{
	uint8_t *bytes = out;
	unsigned int byte;

	for (*len = 0; *len < max && isxdigit((unsigned char)hex[0]) &&
	     isxdigit((unsigned char)hex[1]); hex += 2) {
		if (sscanf(hex, "%2x", &byte) != 1)
			return false;
		bytes[(*len)++] = (uint8_t)byte;
	}
	return !*hex;
}

/* Decimal, 0x hexadecimal, and negative: offsets may go below the window */
static bool parse(const char *word, uint64_t *value)
{
	const char *digits = word + (*word == '-');
	int base = strncasecmp(digits, "0x", 2) ? 10 : 16;
	char *end;

	errno = 0;
	if (digits != word)
		*value = (uint64_t)strtoll(word, &end, base);
	else
		*value = strtoull(word, &end, base);
	return end != word && !*end && !errno;
}

/*
 * Connection
 */

/*
 * The owner's response to an outstanding request, such as a remote access
 * error, may have arrived but not been processed yet.
 */
static void disconnected(struct peer *p)
{
	if (!p->connected)
		return;
	p->connected = false;
	p->flush_at = now_ms() + GRACE_MS;
}

/*
 * Move the QP to the error state, so that outstanding work requests are flushed
 */
static void flush(struct peer *p)
{
	if (p->connected || p->flush_at)
		rdma_disconnect(p->id);
	p->connected = false;
	p->flush_at = 0;
}

static void handle_event(struct peer *p, enum rdma_cm_event_type event)
{
	switch (event) {
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		disconnected(p);
		break;
	default:
		break;
	}
}

/* Take the events that are there, once the connection is up */
static void take_events(struct peer *p)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(p->events, &event)) {
		enum rdma_cm_event_type type = event->event;

		rdma_ack_cm_event(event);
		handle_event(p, type);
	}
}

static void tear_down(struct peer *p)
{
	flush(p);
	p->stream.running = false;
	if (p->id && p->id->qp)
		rdma_destroy_qp(p->id);
	if (p->mr)
		ibv_dereg_mr(p->mr);
	if (p->cq)
		ibv_destroy_cq(p->cq);
	if (p->channel)
		ibv_destroy_comp_channel(p->channel);
	if (p->pd)
		ibv_dealloc_pd(p->pd);
	if (p->id)
		rdma_destroy_id(p->id);
	if (p->events)
		rdma_destroy_event_channel(p->events);
	p->mr = NULL;
	p->cq = NULL;
	p->channel = NULL;
	p->pd = NULL;
	p->id = NULL;
	p->events = NULL;
}

static int event_status(const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		return STATUS_REJECTED;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return STATUS_ADDRESS_ERROR;
	case RDMA_CM_EVENT_UNREACHABLE:
		return STATUS_UNREACHABLE;
	default:
		return STATUS_CONNECT_ERROR;
	}
}

static void take_data(struct peer *p, const struct rdma_cm_event *event)
{
	p->data_len = event->param.conn.private_data_len;
	if (p->data_len)
		memcpy(p->data, event->param.conn.private_data, p->data_len);
}

static void take_grant(struct peer *p)
{
	struct {
		uint32_t magic;
		uint16_t version;
		uint16_t access;
		uint64_t iova;
		uint64_t length;
		uint32_t rkey;
		uint32_t reserved;
	} wire;

	memset(&p->grant, 0, sizeof(p->grant));
	if (p->data_len < sizeof(wire))
		return;
	memcpy(&wire, p->data, sizeof(wire));
	if (ntohl(wire.magic) != GRANT_MAGIC ||
	    ntohs(wire.version) != GRANT_VERSION)
		return;
	p->grant.iova = be64toh(wire.iova);
	p->grant.length = be64toh(wire.length);
	p->grant.rkey = ntohl(wire.rkey);
	p->grant.access = ntohs(wire.access);
}

/* Wait for one event of the connection manager; 0 if it is @want */
static int await(struct peer *p, enum rdma_cm_event_type want, int64_t end)
{
	struct pollfd pfd = { .fd = p->events->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	int status = 0;

	while (rdma_get_cm_event(p->events, &event)) {
		if (errno != EAGAIN && errno != EINTR)
			return STATUS_LOCAL_ERROR;
		if (poll(&pfd, 1, ms_until(end)) == 0)
			return STATUS_TIMEOUT;
	}
	if (event->event == RDMA_CM_EVENT_ESTABLISHED ||
	    event->event == RDMA_CM_EVENT_REJECTED)
		take_data(p, event);
	p->reason = event->status;
	if (event->event != want)
		status = event_status(event);
	rdma_ack_cm_event(event);
	return status;
}

static int set_nonblock(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static int make_queues(struct peer *p)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {
			.max_send_wr = SEND_QUEUE,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	p->pd = ibv_alloc_pd(p->id->verbs);
	p->channel = ibv_create_comp_channel(p->id->verbs);
	if (!p->pd || !p->channel || set_nonblock(p->channel->fd))
		return STATUS_LOCAL_ERROR;
	p->cq = ibv_create_cq(p->id->verbs, SEND_QUEUE + 1, NULL, p->channel,
			      0);
	p->mr = ibv_reg_mr(p->pd, p->buf, p->opt.buffer,
			   IBV_ACCESS_LOCAL_WRITE);
	if (!p->cq || !p->mr)
		return STATUS_LOCAL_ERROR;
	attr.send_cq = p->cq;
	attr.recv_cq = p->cq;
	return rdma_create_qp(p->id, p->pd, &attr) ? STATUS_LOCAL_ERROR : 0;
}

/*
 * The first resolution may time out although the answer to its ARP request has
 * come: ask again, after a part of the time that there is.
 */
static int resolve_address(struct peer *p, int64_t end)
{
	struct sockaddr *src = p->opt.has_src ?
		(struct sockaddr *)&p->opt.src : NULL;
	int status, ms;

	do {
		ms = ms_until(end);
		if (ms > RESOLVE_MS)
			ms = RESOLVE_MS;
		if (rdma_resolve_addr(p->id, src,
				      (struct sockaddr *)&p->opt.dst, ms))
			return STATUS_ADDRESS_ERROR;
		status = await(p, RDMA_CM_EVENT_ADDR_RESOLVED, end);
	} while (status == STATUS_ADDRESS_ERROR && p->reason == -ETIMEDOUT &&
		 now_ms() < end);
	return status;
}

static int resolve(struct peer *p, int64_t end)
{
	int status;

	p->step = "resolve-address";
	p->events = rdma_create_event_channel();
	if (!p->events || set_nonblock(p->events->fd))
		return STATUS_LOCAL_ERROR;
	if (rdma_create_id(p->events, &p->id, NULL, RDMA_PS_TCP))
		return STATUS_LOCAL_ERROR;
	status = resolve_address(p, end);
	if (status)
		return status;
	/* how long an acknowledgment may take; 4.096 us * 2^n */
	rdma_set_option(p->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			&p->opt.ack_timeout, sizeof(p->opt.ack_timeout));
	p->step = "resolve-route";
	if (rdma_resolve_route(p->id, p->opt.connect_timeout_ms))
		return STATUS_ADDRESS_ERROR;
	return await(p, RDMA_CM_EVENT_ROUTE_RESOLVED, end);
}

static int try_connect(struct peer *p)
{
	int64_t end = now_ms() + p->opt.connect_timeout_ms;
	struct rdma_conn_param param = {
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = p->opt.retries,
		.rnr_retry_count = p->opt.rnr_retries,
		.private_data = p->opt.data,
		.private_data_len = p->opt.data_len,
	};
	int status;

	status = resolve(p, end);
	if (status)
		return status;
	p->step = "make-queues";
	status = make_queues(p);
	if (status)
		return status;
	p->step = "connect";
	if (rdma_connect(p->id, &param))
		return STATUS_LOCAL_ERROR;
	return await(p, RDMA_CM_EVENT_ESTABLISHED, end);
}

static void say_rejected(const struct peer *p)
{
	char hex[2 * DATA_SHOWN + 1];

	to_hex(hex, (const char *)p->data,
	       p->data_len < DATA_SHOWN ? p->data_len : DATA_SHOWN);
	say("connect status=rejected reason=%d data=%s", p->reason, hex);
}

static void finish(struct peer *p, int status)
{
	p->status = status;
	p->unchecked = true;
}

static void connect_peer(struct peer *p)
{
	int status;

	tear_down(p);
	p->data_len = 0;
	errno = 0;
	status = try_connect(p);
	finish(p, status);
	take_grant(p);
	if (status) {
		if (status == STATUS_REJECTED)
			say_rejected(p);
		else
			say("connect status=%s step=%s errno=%d",
			    status_name(status), p->step,
			    status == STATUS_LOCAL_ERROR ? errno : 0);
		tear_down(p);
		return;
	}
	p->connected = true;
	p->ever_connected = true;
	say("connected iova=0x%" PRIx64 " length=%" PRIu64
	    " rkey=0x%" PRIx32 " access=0x%" PRIx32,
	    p->grant.iova, p->grant.length, p->grant.rkey, p->grant.access);
}

/*
 * Requests
 */

static struct grant in_use(const struct peer *p)
{
	struct grant g = p->grant;

	if (p->has_iova)
		g.iova = p->override.iova;
	if (p->has_length)
		g.length = p->override.length;
	if (p->has_rkey)
		g.rkey = p->override.rkey;
	return g;
}

static int post(struct peer *p, const struct ibv_send_wr *request,
		size_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)p->buf,
		.length = (uint32_t)length,
		.lkey = p->mr->lkey,
	};
	struct ibv_send_wr wr = *request, *bad;

	wr.wr_id = ++p->wr_id;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.sg_list = &sge;
	wr.num_sge = length ? 1 : 0;
	return ibv_post_send(p->id->qp, &wr, &bad) ? STATUS_POST_ERROR : 0;
}

/*
 * Wait until there may be a completion, an event or input, or @end is reached.
 * The caller has found the completion queue empty.
 */
static void idle(struct peer *p, bool want_input, int64_t end)
{
	struct pollfd pfd[3] = {
		{ .fd = want_input ? STDIN_FILENO : -1, .events = POLLIN },
		{ .fd = p->channel ? p->channel->fd : -1, .events = POLLIN },
		{ .fd = p->events ? p->events->fd : -1, .events = POLLIN },
	};
	struct ibv_cq *cq;
	void *context;

	if (p->flush_at && now_ms() >= p->flush_at)
		flush(p);
	if (p->flush_at && p->flush_at < end)
		end = p->flush_at;
	if (poll(pfd, 3, ms_until(end)) <= 0)
		return;
	if (p->channel && !ibv_get_cq_event(p->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	if (p->events)
		take_events(p);
}

/* Is there a completion? If there is none, the queue is armed for idle() */
static bool take_completion(struct peer *p, struct ibv_wc *wc)
{
	if (!p->cq)
		return false;
	if (ibv_poll_cq(p->cq, 1, wc) > 0)
		return true;
	return !ibv_req_notify_cq(p->cq, 0) && ibv_poll_cq(p->cq, 1, wc) > 0;
}

static int do_wr(struct peer *p, struct ibv_send_wr *wr, size_t length)
{
	int64_t end = now_ms() + p->opt.timeout_ms;
	struct ibv_wc wc;
	int status;

	if (!p->id)
		return STATUS_NOT_CONNECTED;
	if (p->stream.running)
		return STATUS_BUSY;
	if (length > p->opt.buffer)
		return STATUS_TOO_LONG;
	take_events(p);
	status = post(p, wr, length);
	if (status)
		return status;
	for (;;) {
		while (take_completion(p, &wc))
			if (wc.wr_id == p->wr_id)
				return wc.status;
		if (now_ms() >= end)
			return STATUS_TIMEOUT;
		idle(p, false, end);
	}
}

static int rdma_op(struct peer *p, enum ibv_wr_opcode opcode, uint64_t offset,
		   size_t length)
{
	struct grant g = in_use(p);
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.wr.rdma = {
			.remote_addr = g.iova + p->opt.base + offset,
			.rkey = g.rkey,
		},
	};

	return do_wr(p, &wr, length);
}

static void report(struct peer *p, const char *op, uint64_t offset,
		   uint64_t length, int status)
{
	finish(p, status);
	say("%s offset=%" PRId64 " length=%" PRIu64 " status=%s", op,
	    (int64_t)offset, length, status_name(status));
}

/* The arguments of a command, as words and, where they are such, numbers */
struct args {
	int count;
	char *word[WORDS_MAX];
	uint64_t n[WORDS_MAX];
};

static void cmd_read(struct peer *p, struct args *a)
{
	size_t shown = a->n[1] < DATA_SHOWN ? a->n[1] : DATA_SHOWN;
	char hex[2 * DATA_SHOWN + 1];
	int status;

	if (a->n[1] <= p->opt.buffer && !p->stream.running)
		memset(p->buf, 0xa5, a->n[1]);
	status = rdma_op(p, IBV_WR_RDMA_READ, a->n[0], a->n[1]);
	if (status) {
		report(p, "read", a->n[0], a->n[1], status);
		return;
	}
	finish(p, status);
	to_hex(hex, p->buf, shown);
	say("read offset=%" PRId64 " length=%" PRIu64
	    " status=success crc32=0x%08" PRIx32 " data=%s", (int64_t)a->n[0],
	    a->n[1], crc32_of(p->buf, a->n[1]), hex);
}

static void cmd_write(struct peer *p, struct args *a)
{
	if (a->n[1] <= p->opt.buffer && !p->stream.running)
		memset(p->buf, (int)a->n[2], a->n[1]);
	report(p, "write", a->n[0], a->n[1],
	       rdma_op(p, IBV_WR_RDMA_WRITE, a->n[0], a->n[1]));
}

static void cmd_fill(struct peer *p, struct args *a)
{
	size_t i;

	if (a->n[1] <= p->opt.buffer && !p->stream.running)
		for (i = 0; i < a->n[1]; i++)
			p->buf[i] = (char)(a->n[2] + i);
	report(p, "fill", a->n[0], a->n[1],
	       rdma_op(p, IBV_WR_RDMA_WRITE, a->n[0], a->n[1]));
}

static void cmd_writehex(struct peer *p, struct args *a)
{
	size_t len = 0;

	if (!p->stream.running &&
	    !from_hex(a->word[1], p->buf, p->opt.buffer, &len)) {
		say("error writehex: not an even number of hex digits");
		p->unexpected = true;
		return;
	}
	report(p, "writehex", a->n[0], len,
	       rdma_op(p, IBV_WR_RDMA_WRITE, a->n[0], len));
}

static void atomic(struct peer *p, const char *name, struct ibv_send_wr *wr,
		   uint64_t offset)
{
	struct grant g = in_use(p);
	uint64_t old;
	int status;

	wr->wr.atomic.remote_addr = g.iova + p->opt.base + offset;
	wr->wr.atomic.rkey = g.rkey;
	status = do_wr(p, wr, sizeof(old));
	if (status) {
		report(p, name, offset, sizeof(old), status);
		return;
	}
	finish(p, status);
	memcpy(&old, p->buf, sizeof(old));
	say("%s offset=%" PRId64 " length=8 status=success old=0x%" PRIx64,
	    name, (int64_t)offset, old);
}

static void cmd_cmpswap(struct peer *p, struct args *a)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.wr.atomic = { .compare_add = a->n[1], .swap = a->n[2] },
	};

	atomic(p, "cmpswap", &wr, a->n[0]);
}

static void cmd_fetchadd(struct peer *p, struct args *a)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic = { .compare_add = a->n[1] },
	};

	atomic(p, "fetchadd", &wr, a->n[0]);
}

static void cmd_send(struct peer *p, struct args *a)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };

	report(p, "send", 0, a->n[0], do_wr(p, &wr, a->n[0]));
}

static void cmd_send_inv(struct peer *p, struct args *a)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_INV,
		.invalidate_rkey = a->count > 1 ? (uint32_t)a->n[1] :
						  in_use(p).rkey,
	};

	report(p, "send-inv", 0, a->n[0], do_wr(p, &wr, a->n[0]));
}

/*
 * Streams
 */

static int stream_post(struct peer *p)
{
	struct stream *s = &p->stream;
	struct grant g = in_use(p);
	struct ibv_send_wr wr = {
		.opcode = s->opcode,
		.wr.rdma = {
			.remote_addr = g.iova + p->opt.base + s->offset,
			.rkey = g.rkey,
		},
	};
	int status = post(p, &wr, s->length);

	if (!status)
		s->outstanding++;
	return status;
}

static void stream_failed(struct stream *s, int status)
{
	if (!s->status)
		s->status = status;
	s->stopping = true;
}

/* Take the completions of a stream, and post a new work request for each */
static void stream_service(struct peer *p)
{
	struct stream *s = &p->stream;
	struct ibv_wc wc;
	int status;

	if (!s->running)
		return;
	while (take_completion(p, &wc)) {
		if (wc.wr_id < s->first)
			continue;
		s->outstanding--;
		if (wc.status != IBV_WC_SUCCESS) {
			stream_failed(s, wc.status);
			continue;
		}
		s->count++;
		status = s->stopping ? 0 : stream_post(p);
		if (status)
			stream_failed(s, status);
	}
}

/* Let it run until it has failed, @count operations are done, or @end */
static void stream_run(struct peer *p, uint64_t count, int64_t end)
{
	struct stream *s = &p->stream;

	for (;;) {
		stream_service(p);
		if (s->stopping || s->count >= count || now_ms() >= end)
			return;
		idle(p, false, end);
	}
}

/* Stop the stream and wait for outstanding work requests */
static void stream_drain(struct peer *p)
{
	int64_t end = now_ms() + p->opt.timeout_ms;
	struct stream *s = &p->stream;

	s->stopping = true;
	for (;;) {
		stream_service(p);
		if (!s->outstanding || now_ms() >= end)
			break;
		idle(p, false, end);
	}
	if (s->outstanding && !s->status)
		s->status = STATUS_TIMEOUT;
	s->running = false;
}

static int stream_begin(struct peer *p, const char *op, uint64_t offset,
			uint64_t length)
{
	struct stream *s = &p->stream;
	unsigned int i;
	int status;

	if (!p->id)
		return STATUS_NOT_CONNECTED;
	if (s->running)
		return STATUS_BUSY;
	if (length > p->opt.buffer)
		return STATUS_TOO_LONG;
	*s = (struct stream) {
		.running = true,
		.opcode = !strcmp(op, "read") ? IBV_WR_RDMA_READ :
						IBV_WR_RDMA_WRITE,
		.offset = offset,
		.length = length,
		.first = p->wr_id + 1,
		.began = now_ms(),
	};
	for (i = 0; i < p->opt.depth; i++) {
		status = stream_post(p);
		if (status)
			stream_failed(s, status);
	}
	return 0;
}

/* @a from @at on: read OFF LEN, or write OFF LEN BYTE */
static bool stream_args(struct peer *p, struct args *a, int at)
{
	bool write = !strcmp(a->word[at], "write");

	if (!write && strcmp(a->word[at], "read"))
		return false;
	if (a->count != at + (write ? 4 : 3))
		return false;
	if (write && a->n[at + 2] <= p->opt.buffer && !p->stream.running)
		memset(p->buf, (int)a->n[at + 3], a->n[at + 2]);
	return true;
}

static void stream_usage(struct peer *p, const char *name)
{
	say("error %s: read OFFSET LENGTH or write OFFSET LENGTH BYTE", name);
	p->unexpected = true;
}

static void stream_report(struct peer *p, const char *name)
{
	struct stream *s = &p->stream;
	int64_t ms = now_ms() - s->began;

	finish(p, s->status);
	say("%s op=%s offset=%" PRId64 " length=%zu count=%" PRIu64
	    " status=%s seconds=%" PRId64 ".%03d", name,
	    s->opcode == IBV_WR_RDMA_READ ? "read" : "write",
	    (int64_t)s->offset, s->length, s->count, status_name(s->status),
	    ms / 1000, (int)(ms % 1000));
}

static void cmd_loop(struct peer *p, struct args *a)
{
	int status;

	if (!stream_args(p, a, 1)) {
		stream_usage(p, "loop");
		return;
	}
	status = stream_begin(p, a->word[1], a->n[2], a->n[3]);
	if (status) {
		report(p, "loop", a->n[2], a->n[3], status);
		return;
	}
	stream_run(p, UINT64_MAX, now_ms() + (int64_t)a->n[0] * 1000);
	stream_drain(p);
	stream_report(p, "loop");
}

static void cmd_start(struct peer *p, struct args *a)
{
	int64_t end = now_ms() + p->opt.timeout_ms;
	int status;

	if (!stream_args(p, a, 0)) {
		stream_usage(p, "start");
		return;
	}
	status = stream_begin(p, a->word[0], a->n[1], a->n[2]);
	if (!status) {
		stream_run(p, 1, end);
		status = p->stream.status;
		if (!status && !p->stream.count)
			status = STATUS_TIMEOUT;
		if (status)
			stream_drain(p);
	}
	report(p, "start", a->n[1], a->n[2], status);
}

static void stream_end(struct peer *p, const char *name, int64_t end)
{
	if (!p->stream.running) {
		finish(p, STATUS_NOT_RUNNING);
		say("%s status=not-running", name);
		return;
	}
	stream_run(p, UINT64_MAX, end);
	stream_drain(p);
	stream_report(p, name);
}

static void cmd_stop(struct peer *p, struct args *a)
{
	(void)a;
	stream_end(p, "stop", 0);
}

static void cmd_join(struct peer *p, struct args *a)
{
	stream_end(p, "join", now_ms() + (int64_t)a->n[0]);
}

static void cmd_progress(struct peer *p, struct args *a)
{
	(void)a;
	stream_service(p);
	say("progress count=%" PRIu64 " status=%s", p->stream.count,
	    status_name(p->stream.running ? p->stream.status :
					    STATUS_NOT_RUNNING));
}

/*
 * Other commands
 */

static void say_use(const struct peer *p, const char *name)
{
	struct grant g = in_use(p);

	say("%s iova=0x%" PRIx64 " length=%" PRIu64 " rkey=0x%" PRIx32, name,
	    g.iova, g.length, g.rkey);
}

static void cmd_rkey(struct peer *p, struct args *a)
{
	p->has_rkey = true;
	p->override.rkey = (uint32_t)a->n[0];
	say_use(p, "rkey");
}

static void cmd_iova(struct peer *p, struct args *a)
{
	p->has_iova = true;
	p->override.iova = a->n[0];
	say_use(p, "iova");
}

static void cmd_length(struct peer *p, struct args *a)
{
	p->has_length = true;
	p->override.length = a->n[0];
	say_use(p, "length");
}

static void cmd_grant(struct peer *p, struct args *a)
{
	(void)a;
	p->has_iova = false;
	p->has_length = false;
	p->has_rkey = false;
	say_use(p, "grant");
}

static void cmd_private_data(struct peer *p, struct args *a)
{
	char hex[2 * sizeof(p->data) + 1];

	(void)a;
	to_hex(hex, (const char *)p->data, p->data_len);
	say("private-data length=%u data=%s", p->data_len, hex);
}

static void cmd_conn(struct peer *p, struct args *a)
{
	(void)a;
	connect_peer(p);
}

static void cmd_disconnect(struct peer *p, struct args *a)
{
	(void)a;
	tear_down(p);
	say("disconnect status=success");
}

static void cmd_state(struct peer *p, struct args *a)
{
	(void)a;
	if (p->events)
		take_events(p);
	say("state connected=%s qpn=0x%" PRIx32, p->connected ? "yes" : "no",
	    p->id && p->id->qp ? p->id->qp->qp_num : 0);
}

/* Wait for the end of the connection */
static void cmd_wait(struct peer *p, struct args *a)
{
	int64_t end = now_ms() + (a->count ? (int64_t)a->n[0] :
					     p->opt.timeout_ms);
	struct ibv_wc wc;

	while (p->connected && now_ms() < end) {
		if (p->stream.running)
			stream_service(p);
		else
			while (take_completion(p, &wc))
				;
		idle(p, false, end);
	}
	say("wait event=%s", p->connected ? "none" : "disconnected");
}

static void check_last(struct peer *p)
{
	if (p->unchecked && p->status)
		p->unexpected = true;
	p->unchecked = false;
}

static void cmd_expect(struct peer *p, struct args *a)
{
	const struct status *want = find_status(a->word[0]);
	bool any = !strcmp(a->word[0], "any");
	bool match = any || (want && want->value == p->status);

	p->unchecked = false;
	if (!match)
		p->unexpected = true;
	say("expect status=%s got=%s result=%s",
	    any ? "any" : want ? want->name : a->word[0],
	    status_name(p->status), match ? "match" : "mismatch");
}

static void cmd_quit(struct peer *p, struct args *a)
{
	(void)a;
	p->quit = true;
	say("quit");
}

static void cmd_pause(struct peer *p, struct args *a);

static const struct command {
	const char *name;
	int min, max;		/* number of arguments */
	void (*run)(struct peer *p, struct args *a);
	const char *usage;
	bool op;		/* an operation that --reconnect is for */
} commands[] = {
	{ "read", 2, 2, cmd_read, "OFFSET LENGTH", true },
	{ "write", 3, 3, cmd_write, "OFFSET LENGTH BYTE", true },
	{ "fill", 3, 3, cmd_fill, "OFFSET LENGTH SEED", true },
	{ "writehex", 2, 2, cmd_writehex, "OFFSET HEXDIGITS", true },
	{ "cmpswap", 3, 3, cmd_cmpswap, "OFFSET COMPARE SWAP", true },
	{ "fetchadd", 2, 2, cmd_fetchadd, "OFFSET ADD", true },
	{ "send", 1, 1, cmd_send, "LENGTH", true },
	{ "send-inv", 1, 2, cmd_send_inv, "LENGTH [RKEY]", true },
	{ "loop", 4, 5, cmd_loop,
	  "SECONDS read|write OFFSET LENGTH [BYTE]", true },
	{ "start", 3, 4, cmd_start, "read|write OFFSET LENGTH [BYTE]", true },
	{ "progress", 0, 0, cmd_progress, "", false },
	{ "join", 1, 1, cmd_join, "MILLISECONDS", false },
	{ "stop", 0, 0, cmd_stop, "", false },
	{ "expect", 1, 1, cmd_expect, "STATUS|any", false },
	{ "wait", 0, 1, cmd_wait, "[MILLISECONDS]", false },
	{ "pause", 0, 0, cmd_pause, "", false },
	{ "rkey", 1, 1, cmd_rkey, "RKEY", false },
	{ "iova", 1, 1, cmd_iova, "ADDRESS", false },
	{ "length", 1, 1, cmd_length, "BYTES", false },
	{ "grant", 0, 0, cmd_grant, "", false },
	{ "private-data", 0, 0, cmd_private_data, "", false },
	{ "conn", 0, 0, cmd_conn, "", false },
	{ "reconnect", 0, 0, cmd_conn, "", false },
	{ "disconnect", 0, 0, cmd_disconnect, "", false },
	{ "state", 0, 0, cmd_state, "", false },
	{ "quit", 0, 0, cmd_quit, "", false },
};

static const struct command *find_command(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

/* Words that must not be numbers: an operation's name, a status, hex digits */
static bool is_text(const struct command *c, int i)
{
	return (c->run == cmd_loop && i == 1) ||
	       (c->run == cmd_start && i == 0) ||
	       (c->run == cmd_writehex && i == 1) || c->run == cmd_expect;
}

static bool run_command(struct peer *p, const struct command *c,
			struct args *a)
{
	int i;

	for (i = 0; i < a->count; i++) {
		if (is_text(c, i) || parse(a->word[i], &a->n[i]))
			continue;
		say("error %s: %s is not a number", c->name, a->word[i]);
		return false;
	}
	if (c->run != cmd_expect)
		check_last(p);
	if (c->op && p->opt.reconnect && p->status && !p->stream.running)
		connect_peer(p);
	c->run(p, a);
	return true;
}

/* One command of a line of its own, as --interactive has it */
static bool run_line(struct peer *p, char *line)
{
	struct args a = { 0 };
	const struct command *c;
	char *save, *word = strtok_r(line, " \t\r\n", &save);

	if (!word || *word == '#')
		return true;
	c = find_command(word);
	if (!c) {
		say("error %s: no such command", word);
		return false;
	}
	while (a.count < WORDS_MAX && (word = strtok_r(NULL, " \t\r\n", &save)))
		a.word[a.count++] = word;
	if (a.count < c->min || a.count > c->max) {
		say("error %s: usage: %s %s", c->name, c->name, c->usage);
		return false;
	}
	return run_command(p, c, &a);
}

/* Take a complete line from the input read so far; @out holds LINE_MAX_ */
static bool take_line(struct peer *p, char *out)
{
	char *end = memchr(p->line, '\n', p->line_len);
	size_t len;

	if (!end && !(p->eof && p->line_len) && p->line_len < LINE_MAX_ - 1)
		return false;
	len = end ? (size_t)(end - p->line) + 1 : p->line_len;
	memcpy(out, p->line, len);
	out[len] = '\0';
	p->line_len -= len;
	memmove(p->line, p->line + len, p->line_len);
	return true;
}

/* Wait for a line, while streams and events are served; false at the end */
static bool next_line(struct peer *p, char *out)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	struct ibv_wc wc;
	ssize_t n;

	while (!take_line(p, out)) {
		if (p->eof)
			return false;
		if (p->stream.running)
			stream_service(p);
		else
			while (take_completion(p, &wc))
				;
		idle(p, true, INT64_MAX);
		if (poll(&in, 1, 0) <= 0)
			continue;
		n = read(STDIN_FILENO, p->line + p->line_len,
			 LINE_MAX_ - 1 - p->line_len);
		if (n > 0)
			p->line_len += (size_t)n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			p->eof = true;
	}
	return true;
}

static void cmd_pause(struct peer *p, struct args *a)
{
	char line[LINE_MAX_];

	(void)a;
	say("pause event=%s", next_line(p, line) ? "line" : "end-of-file");
}

static void run_interactive(struct peer *p)
{
	char line[LINE_MAX_];

	while (!p->quit && next_line(p, line))
		run_line(p, line);
}

/* Commands as words, or several words of one command in one argument */
static bool run_script(struct peer *p, char **argv)
{
	while (*argv && !p->quit) {
		const struct command *c = find_command(*argv);
		struct args a = { 0 };
		uint64_t n;

		if (!c) {
			if (!run_line(p, *argv++))
				return false;
			continue;
		}
		argv++;
		while (*argv && a.count < c->max &&
		       (a.count < c->min || parse(*argv, &n)))
			a.word[a.count++] = *argv++;
		if (a.count < c->min) {
			say("error %s: usage: %s %s", c->name, c->name,
			    c->usage);
			return false;
		}
		if (!run_command(p, c, &a))
			return false;
	}
	return true;
}

/*
 * Options
 */

static void usage(FILE *out)
{
	size_t i;

	fputs("usage: verbs_peer [OPTIONS] ADDRESS PORT [COMMAND...]\n"
	      "Connect to the owner of a memory window, and use it.\n\n"
	      "  -i, --interactive          take commands from standard input\n"
	      "  -R, --reconnect            connect again before an operation, if the last failed\n"
	      "  -s, --source ADDRESS       address to connect from\n"
	      "  -k, --rkey RKEY            instead of the granted one\n"
	      "  -a, --iova ADDRESS         instead of the granted one\n"
	      "  -l, --length BYTES         instead of the granted one\n"
	      "  -o, --offset BYTES         to be added to every offset\n"
	      "  -p, --private-data HEX     to be sent with the request, 56 bytes at most\n"
	      "  -b, --buffer BYTES         longest operation (1048576)\n"
	      "  -d, --depth N              outstanding requests of loop and start (1)\n"
	      "  -t, --timeout MS           for an operation (10000)\n"
	      "  -c, --connect-timeout MS   for a connection (10000)\n"
	      "  -A, --ack-timeout N        4.096 us * 2^N for an acknowledgment (16)\n"
	      "  -r, --retry N              retries without an acknowledgment (7)\n"
	      "  -n, --rnr-retry N          retries when the receiver is not ready (3)\n"
	      "  -h, --help\n\n"
	      "Commands; without an operation's outcome being named by expect, success is expected:\n",
	      out);
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		fprintf(out, "  %s %s\n", commands[i].name, commands[i].usage);
	fputs("\nExit status: 0 all as expected, 1 not so, 2 bad usage, 3 no connection.\n",
	      out);
}

static const struct option long_options[] = {
	{ "interactive", no_argument, NULL, 'i' },
	{ "reconnect", no_argument, NULL, 'R' },
	{ "source", required_argument, NULL, 's' },
	{ "rkey", required_argument, NULL, 'k' },
	{ "iova", required_argument, NULL, 'a' },
	{ "length", required_argument, NULL, 'l' },
	{ "offset", required_argument, NULL, 'o' },
	{ "private-data", required_argument, NULL, 'p' },
	{ "buffer", required_argument, NULL, 'b' },
	{ "depth", required_argument, NULL, 'd' },
	{ "timeout", required_argument, NULL, 't' },
	{ "connect-timeout", required_argument, NULL, 'c' },
	{ "ack-timeout", required_argument, NULL, 'A' },
	{ "retry", required_argument, NULL, 'r' },
	{ "rnr-retry", required_argument, NULL, 'n' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static bool resolve_name(const char *node, const char *service,
			 struct sockaddr_storage *out)
{
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV,
	};
	struct addrinfo *list;
	int ret = getaddrinfo(node, service, &hints, &list);

	if (ret) {
		fprintf(stderr, "verbs_peer: %s%s%s: %s\n", node,
			service ? " " : "", service ? service : "",
			gai_strerror(ret));
		return false;
	}
	memcpy(out, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return true;
}

/* getaddrinfo() takes 75000 for 9464 */
static bool check_port(const char *word)
{
	uint64_t port;

	if (*word >= '0' && *word <= '9' && parse(word, &port) && port &&
	    port <= UINT16_MAX)
		return true;
	fprintf(stderr, "verbs_peer: %s is no port from 1 to 65535\n", word);
	return false;
}

static bool set_number(struct peer *p, int opt, uint64_t n)
{
	struct { int opt; uint64_t min, max; } limits[] = {
		{ 'k', 0, UINT32_MAX }, { 'b', 8, 1ULL << 30 },
		{ 'd', 1, SEND_QUEUE }, { 't', 1, 3600000 },
		{ 'c', 1, 3600000 }, { 'A', 1, 31 }, { 'r', 0, 7 },
		{ 'n', 0, 7 },
	};
	size_t i;

	for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (limits[i].opt == opt &&
		    (n < limits[i].min || n > limits[i].max))
			return false;
	switch (opt) {
	case 'k':
		p->has_rkey = true;
		p->override.rkey = (uint32_t)n;
		break;
	case 'a':
		p->has_iova = true;
		p->override.iova = n;
		break;
	case 'l':
		p->has_length = true;
		p->override.length = n;
		break;
	case 'o':
		p->opt.base = n;
		break;
	case 'b':
		p->opt.buffer = n;
		break;
	case 'd':
		p->opt.depth = (unsigned int)n;
		break;
	case 't':
		p->opt.timeout_ms = (int)n;
		break;
	case 'c':
		p->opt.connect_timeout_ms = (int)n;
		break;
	case 'A':
		p->opt.ack_timeout = (uint8_t)n;
		break;
	case 'r':
		p->opt.retries = (uint8_t)n;
		break;
	case 'n':
		p->opt.rnr_retries = (uint8_t)n;
		break;
	}
	return true;
}

static bool set_option(struct peer *p, int opt)
{
	uint64_t number;
	size_t n;

	switch (opt) {
	case 'i':
		p->opt.interactive = true;
		return true;
	case 'R':
		p->opt.reconnect = true;
		return true;
	case 's':
		p->opt.has_src = true;
		return resolve_name(optarg, NULL, &p->opt.src);
	case 'p':
		if (!from_hex(optarg, p->opt.data, DATA_SENT, &n))
			break;
		p->opt.data_len = (uint8_t)n;
		return true;
	case '?':
		return false;
	}
	if (opt != 'p' && parse(optarg, &number) &&
	    set_number(p, opt, number))
		return true;
	fprintf(stderr, "verbs_peer: -%c: %s is no good value\n", opt, optarg);
	return false;
}

static bool parse_options(struct peer *p, int argc, char **argv)
{
	int opt;

	/* '+': offsets among the commands may be negative */
	while ((opt = getopt_long(argc, argv, "+iRs:k:a:l:o:p:b:d:t:c:A:r:n:h",
				  long_options, NULL)) != -1) {
		if (opt == 'h') {
			usage(stdout);
			exit(EXIT_OK);
		}
		if (!set_option(p, opt))
			return false;
	}
	if (argc - optind < 2) {
		usage(stderr);
		return false;
	}
	return check_port(argv[optind + 1]) &&
	       resolve_name(argv[optind], argv[optind + 1], &p->opt.dst);
}

static int run(struct peer *p, char **commands_)
{
	bool good = true;

	connect_peer(p);
	if (p->opt.interactive)
		run_interactive(p);
	else if (p->connected || (*commands_ && p->status))
		good = run_script(p, commands_);
	check_last(p);
	if (!good)
		return EXIT_USAGE;
	if (!p->unexpected)
		return EXIT_OK;
	return p->ever_connected ? EXIT_UNEXPECTED : EXIT_NO_CONNECTION;
}

int main(int argc, char **argv)
{
	static struct peer peer = {
		.opt = {
			.timeout_ms = 10000,
			.connect_timeout_ms = 10000,
			.depth = 1,
			.ack_timeout = 16,
			.retries = 7,
			.rnr_retries = 3,
			.buffer = 1 << 20,
		},
	};
	int ret;

	if (!parse_options(&peer, argc, argv))
		return EXIT_USAGE;
	peer.buf = malloc(peer.opt.buffer);
	if (!peer.buf) {
		perror("verbs_peer: buffer");
		return EXIT_NO_CONNECTION;
	}
	ret = run(&peer, argv + optind + 2);
	tear_down(&peer);
	free(peer.buf);
	return ret;
}
