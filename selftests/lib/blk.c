// SPDX-License-Identifier: GPL-2.0-only
/* A client of memreg blkd, and its server */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blk.h"
#include "mem.h"
#include "net.h"
#include "raw.h"
#include "test.h"
#include "mem.h"
#include "net.h"
#include "raw.h"
#include "test.h"

#define MESSAGES	(BLK_MEMORY / 2)	/* where those sent are */
#define PLACES		64
#define REPLIES		(MESSAGES + PLACES * BLK_MESSAGE)
#define REPLY_MAX	(sizeof(struct ib_memreg_blk_reply) + 4096)
#define RING_ENTRIES	2048
#define MAX_SEND	600
#define WINDOW_SPAN	(BLK_MEMORY / 2)
#define SAID_MAX	(1 << 20)	/* by the server, until that is read */

/*
 * The server
 */

int blk_says(struct blk_server *s, const char *text)
{
	struct pollfd pfd = { .fd = fileno(s->out), .events = POLLIN };
	char line[1024];

	/* The pipe is unbuffered, so that poll(2) sees all that was written. */
	while (poll(&pfd, 1, LIMIT_MS) > 0) {
		if (!fgets(line, sizeof(line), s->out))
			return -EPIPE;
		printf("# %s", line);
		if (strstr(line, " port ")) {
			char *port = strstr(line, " port ") + 6;

			s->port = (uint16_t)atoi(port);
		}
		if (strstr(line, text))
			return 0;
	}
	return -ETIMEDOUT;
}

static void run_server(const char *const *args, int out)
{
	const char *argv[32] = { "memreg", "blkd", "-d", test_device(), "-p",
				 "0" };
	int n = 6;

	while (*args && n < 31)
		argv[n++] = *args++;
	/* If its set-up fails a test ends without blk_end(). */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	_exit(127);
}

int blk_serve(struct blk_server *s, const char *const *args)
{
	int ends[2];

	/*
	 * The pipe takes all output, so that the child never waits for this
	 * process, which may be waiting for its answer.
	 */
	if (pipe2(ends, O_CLOEXEC) ||
	    fcntl(ends[1], F_SETPIPE_SZ, SAID_MAX) < 0)
		return -errno;
	s->pid = fork();
	if (!s->pid)
		run_server(args, ends[1]);
	close(ends[1]);
	s->out = fdopen(ends[0], "r");
	if (s->pid < 0 || !s->out)
		return -errno;
	setvbuf(s->out, NULL, _IONBF, 0);
	return blk_says(s, "serving on");
}

int blk_end(struct blk_server *s)
{
	int status, ret;

	kill(s->pid, SIGTERM);
	ret = blk_says(s, "end:");
	while (!ret)
		ret = blk_says(s, "\n");
	fclose(s->out);
	if (waitpid(s->pid, &status, 0) < 0)
		return -errno;
	if (ret != -EPIPE)
		return ret;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

/*
 * The client
 */

/* A handle connects from the network namespace in which it was opened. */
static int open_here(void *m)
{
	return memreg_open(getenv("MEMREG_PEER_DEVICE"), m);
}

int blk_open(struct blk_client *c, const struct blk_server *s, uint8_t id)
{
	int ret;

	memset(c, 0, sizeof(*c));
	memset(c->id, id, sizeof(c->id));
	c->to.sin_family = AF_INET;
	c->to.sin_port = htons(s->port);
	inet_pton(AF_INET, OWNER_IP4, &c->to.sin_addr);
	/*
	 * Base pages of a file, as fork(2) would not leave private huge pages
	 * as they are
	 */
	c->mem = mem_scattered(BLK_MEMORY);
	if (!c->mem)
		return -ENOMEM;
	ret = in_peer_netns(open_here, &c->m);
	if (!ret)
		ret = memreg_domain_create(c->m, 0, &c->domain);
	if (!ret)
		ret = memreg_mr_register(c->m, c->domain, c->mem, BLK_MEMORY,
					 LOCAL_WRITE | REMOTE_WRITE |
					 REMOTE_READ | MW_BIND, 0, &c->mr);
	if (!ret)
		ret = memreg_ring_create(c->m, RING_ENTRIES, 64, -1, 0,
					 &c->ring);
	return ret;
}

void blk_close(struct blk_client *c)
{
	memreg_close(c->m);
	if (c->ring.shared)
		memreg_ring_destroy(NULL, &c->ring);
	if (c->mem)
		mem_free(c->mem, BLK_MEMORY);
	memset(c, 0, sizeof(*c));
}

/*
 * Connections
 */

struct ib_memreg_blk_hello blk_hello(const struct blk_client *c, uint32_t epoch)
{
	struct ib_memreg_blk_hello h = {
		.magic = htobe32(BLK(MAGIC)),
		.version = htobe16(BLK(VERSION)),
		.queues = htobe16(1),
		.depth = htobe16(8),
		.epoch = htobe32(epoch),
	};

	memcpy(h.client, c->id, sizeof(h.client));
	return h;
}

static void take_welcome(struct blk_conn *conn, const void *data)
{
	struct ib_memreg_blk_welcome w;

	memcpy(&w, data, sizeof(w));
	conn->welcome = (struct ib_memreg_blk_welcome) {
		.magic = be32toh(w.magic),
		.version = be16toh(w.version),
		.depth = be16toh(w.depth),
		.capacity = be64toh(w.capacity),
		.flags = be32toh(w.flags),
		.block_size = be32toh(w.block_size),
		.physical_block_size = be32toh(w.physical_block_size),
		.max_length = be32toh(w.max_length),
		.discard_granularity = be32toh(w.discard_granularity),
		.max_segs = be16toh(w.max_segs),
		.inline_max = be16toh(w.inline_max),
		.instance = be64toh(w.instance),
	};
	conn->depth = conn->welcome.depth;
}

static int status_of_refusal(const struct ib_memreg_event *event)
{
	struct ib_memreg_blk_refusal r;

	memcpy(&r, event->private_data, sizeof(r));
	if (event->private_data_len < sizeof(r) ||
	    be32toh(r.magic) != BLK(MAGIC) ||
	    be16toh(r.version) != BLK(VERSION))
		return -EPROTO;
	return be16toh(r.status);
}

/* Remember which connections have ended, as each end is reported once. */
static int next_event(struct blk_client *c, struct ib_memreg_event *event)
{
	int ret = memreg_get_event(c->m, event, LIMIT_MS);

	if (!ret && event->type == IB_MEMREG_EVENT_DISCONNECTED)
		c->ended[c->nr_ended++ % BLK_ENDED] = event->endpoint_id;
	return ret;
}

static int await_answer(struct blk_conn *conn)
{
	struct ib_memreg_event event;
	int ret;

	do {
		ret = next_event(conn->client, &event);
		if (ret)
			return ret;
	} while (event.endpoint_id != conn->endpoint);
	switch (event.type) {
	case IB_MEMREG_EVENT_ESTABLISHED:
		take_welcome(conn, event.private_data);
		return conn->welcome.magic == BLK(MAGIC) ? 0 : -EPROTO;
	case IB_MEMREG_EVENT_REJECTED:
		return status_of_refusal(&event);
	default:
		return -ECONNABORTED;
	}
}

/*
 * A receive is identified by the index of its buffer, which later receives
 * reuse.
 */
static int post_receives(struct blk_conn *conn, unsigned int n)
{
	struct ib_memreg_wr wrs[IB_MEMREG_BATCH_MAX];
	static unsigned int place;
	unsigned int i;
	size_t at;

	for (i = 0; i < n; i++) {
		at = REPLIES + place++ % PLACES * BLK_MESSAGE;
		memreg_prep_recv(&wrs[i], conn->endpoint, conn->client->mr.id,
				 at, REPLY_MAX, at);
	}
	return memreg_submit(conn->client->m, wrs, n, NULL);
}

int blk_ask(struct blk_client *c, const struct ib_memreg_blk_hello *hello,
	    size_t len, struct blk_conn *conn)
{
	struct ib_memreg_queues queues = {
		.send_ring_id = c->ring.id,
		.recv_ring_id = c->ring.id,
		.max_send = MAX_SEND,
		.max_recv = IB_MEMREG_BATCH_MAX,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
	int ret;

	memset(conn, 0, sizeof(*conn));
	conn->client = c;
	conn->epoch = be32toh(hello->epoch);
	ret = memreg_window_alloc(c->m, c->domain, IB_MEMREG_WINDOW_TYPE2B,
				  WINDOW_SPAN, conn->windows, BLK_WINDOWS);
	if (!ret)
		ret = memreg_connect_queues(c->m, c->domain,
					    (struct sockaddr *)&c->to, NULL,
					    10000, hello, len, &queues,
					    &conn->endpoint);
	conn->asked = be16toh(hello->depth);
	if (!conn->asked || conn->asked > 128)
		conn->asked = 128;
	if (!ret)
		ret = post_receives(conn, conn->asked);
	if (ret == -ENOTCONN)	/* it was refused already */
		ret = 0;
	if (!ret)
		ret = await_answer(conn);
	if (ret)
		blk_disconnect(conn);
	return ret;
}

int blk_connect(struct blk_client *c, uint32_t epoch, struct blk_conn *conn)
{
	struct ib_memreg_blk_hello hello = blk_hello(c, epoch);

	return blk_ask(c, &hello, sizeof(hello), conn);
}

int blk_connect_inline(struct blk_client *c, uint32_t epoch, uint16_t most,
		       struct blk_conn *conn)
{
	struct ib_memreg_blk_hello hello = blk_hello(c, epoch);

	hello.inline_max = htobe16(most);
	return blk_ask(c, &hello, sizeof(hello), conn);
}

void blk_disconnect(struct blk_conn *conn)
{
	unsigned int i;

	if (conn->endpoint)
		memreg_destroy(conn->client->m, conn->endpoint);
	for (i = 0; i < BLK_WINDOWS; i++)
		if (conn->windows[i])
			memreg_window_free(conn->client->m, conn->windows[i]);
	memset(conn->windows, 0, sizeof(conn->windows));
	conn->endpoint = 0;
}

/*
 * Commands
 */

struct blk_message blk_command(struct blk_conn *conn, uint8_t opcode,
			       uint64_t offset, uint32_t length)
{
	uint64_t seq = ++conn->client->seq;

	return (struct blk_message) {
		.cmd = {
			.seq = htobe64(seq),
			.offset = htobe64(offset),
			.length = htobe32(length),
			.epoch = htobe32(conn->epoch),
			.tag = htobe16((uint16_t)(seq * 7)),
			.opcode = opcode,
		},
	};
}

/*
 * Bind the window for the first segment, whose key the server's reply may
 * invalidate.
 */
static int bind_window(struct blk_conn *conn, size_t mem, uint32_t length,
		       uint32_t *rkey)
{
	uint32_t window = conn->windows[conn->window++ % BLK_WINDOWS];
	struct ib_memreg_wr wr;
	int ret;

	memreg_prep_bind(&wr, conn->endpoint, window, conn->client->mr.id, mem,
			 length, REMOTE_READ | REMOTE_WRITE);
	ret = memreg_submit(conn->client->m, &wr, 1, NULL);
	*rkey = wr.rkey;
	return ret;
}

int blk_transfer(struct blk_conn *conn, uint8_t opcode, uint64_t offset,
		 uint32_t length, size_t mem, unsigned int n,
		 struct blk_message *msg)
{
	uint32_t rkey, done = 0, part;
	unsigned int i;
	int ret;

	*msg = blk_command(conn, opcode, offset, length);
	msg->cmd.nr_segs = htobe16((uint16_t)n);
	for (i = 0; i < n; i++) {
		/* odd lengths, but for the last one */
		part = i + 1 < n ? (length / n) | 1 : length - done;
		rkey = conn->client->mr.rkey;
		ret = i ? 0 : bind_window(conn, mem, part, &rkey);
		if (ret)
			return ret;
		msg->segs[i] = (struct ib_memreg_blk_seg) {
			.addr = htobe64((uintptr_t)conn->client->mem + mem +
					done),
			.length = htobe32(part),
			.rkey = htobe32(rkey),
		};
		done += part;
	}
	return 0;
}

size_t blk_size(const struct blk_message *msg)
{
	return sizeof(msg->cmd) +
	       be16toh(msg->cmd.nr_segs) * sizeof(msg->segs[0]);
}

/*
 * Each command has a place of its own for its message, which may be sent again.
 */
static int send_both(struct blk_conn *conn, const void *msg, size_t len,
		     const void *data, size_t data_len)
{
	static unsigned int place;
	size_t at = MESSAGES + place++ % PLACES * BLK_MESSAGE;
	struct ib_memreg_wr wr;

	memcpy(conn->client->mem + at, msg, len);
	if (data_len)
		memcpy(conn->client->mem + at + len, data, data_len);
	memreg_prep_send(&wr, conn->endpoint, conn->client->mr.id, at,
			 (uint32_t)(len + data_len));
	memreg_wr_signal(&wr, 0);
	return memreg_submit(conn->client->m, &wr, 1, NULL);
}

int blk_send(struct blk_conn *conn, const void *msg, size_t len)
{
	return send_both(conn, msg, len, NULL, 0);
}

int blk_send_data(struct blk_conn *conn, const struct blk_message *msg,
		  const void *data, size_t len)
{
	return send_both(conn, msg, sizeof(msg->cmd), data, len);
}

static void take_reply(const struct ib_memreg_blk_reply *r,
		       struct ib_memreg_blk_reply *reply)
{
	*reply = (struct ib_memreg_blk_reply) {
		.seq = be64toh(r->seq),
		.capacity = be64toh(r->capacity),
		.length = be32toh(r->length),
		.epoch = be32toh(r->epoch),
		.tag = be16toh(r->tag),
		.status = be16toh(r->status),
		.reserved = r->reserved,
	};
}

/* Copy a reply, and the data behind it, from the receive buffer. */
static void take_message(struct blk_conn *conn, const struct ib_memreg_cqe *cqe,
			 struct ib_memreg_blk_reply *reply)
{
	const uint8_t *at = cqe->flags & IB_MEMREG_CQE_INLINE ?
			    (const uint8_t *)cqe->data :
			    conn->client->mem + cqe->user_data;
	struct ib_memreg_blk_reply wire;

	memcpy(&wire, at, sizeof(wire));
	take_reply(&wire, reply);
	conn->data = conn->client->mem + cqe->user_data + sizeof(wire);
	conn->data_len = cqe->byte_len - (uint32_t)sizeof(wire);
}

int blk_reply(struct blk_conn *conn, struct ib_memreg_blk_reply *reply,
	      uint32_t *rkey)
{
	struct memreg_ring *ring = &conn->client->ring;
	struct ib_memreg_cqe cqe;
	int ret;

	for (;;) {
		ret = memreg_ring_wait(ring, 1, LIMIT_MS * MS, NULL);
		if (ret)
			return ret;
		cqe = *memreg_ring_peek(ring);
		memreg_ring_seen(ring, 1);
		if (cqe.endpoint_data != conn->endpoint)
			continue;
		if (cqe.status != IB_MEMREG_WC_SUCCESS)
			return -ECONNRESET;
		if (cqe.opcode != IB_MEMREG_OP_RECV)
			continue;
		if (cqe.byte_len < sizeof(*reply))
			return -EPROTO;
		take_message(conn, &cqe, reply);
		if (rkey)
			*rkey = cqe.flags & IB_MEMREG_CQE_INVALIDATED ?
				cqe.ex : 0;
		ret = conn->greedy ? 0 : post_receives(conn, 1);
		return ret == -ENOTCONN ? 0 : ret;	/* it was the last */
	}
}

static bool has_ended(const struct blk_conn *conn)
{
	unsigned int i;

	for (i = 0; i < BLK_ENDED; i++)
		if (conn->client->ended[i] == conn->endpoint)
			return true;
	return false;
}

int blk_await_end(struct blk_conn *conn)
{
	struct ib_memreg_event event;
	int ret = 0;

	while (!ret && !has_ended(conn))
		ret = next_event(conn->client, &event);
	return ret;
}

/* Wait for the reply to a command that was sent. */
static int answer_to(struct blk_conn *conn, const struct blk_message *msg)
{
	struct ib_memreg_blk_reply reply;
	bool segs = msg->cmd.nr_segs;
	bool behind = !segs && msg->cmd.opcode == BLK(READ);
	uint32_t rkey;
	int ret;

	ret = blk_reply(conn, &reply, &rkey);
	if (ret)
		return ret;
	if (reply.seq != be64toh(msg->cmd.seq) ||
	    reply.tag != be16toh(msg->cmd.tag) || reply.epoch != conn->epoch ||
	    reply.reserved ||
	    reply.length != (reply.status ? 0 : be32toh(msg->cmd.length)) ||
	    conn->data_len != (behind ? reply.length : 0) ||
	    rkey != (segs ? be32toh(msg->segs[0].rkey) : 0))
		return -EPROTO;
	conn->welcome.capacity = reply.capacity;
	return reply.status;
}

int blk_do(struct blk_conn *conn, const struct blk_message *msg)
{
	int ret = blk_send(conn, msg, blk_size(msg));

	return ret ? ret : answer_to(conn, msg);
}

int blk_read_inline(struct blk_conn *conn, uint64_t offset, uint32_t length)
{
	struct blk_message msg = blk_command(conn, BLK(READ), offset, length);

	return blk_do(conn, &msg);
}

int blk_write_inline(struct blk_conn *conn, uint64_t offset, uint32_t length,
		     const void *data)
{
	struct blk_message msg = blk_command(conn, BLK(WRITE), offset, length);
	int ret = blk_send_data(conn, &msg, data, length);

	return ret ? ret : answer_to(conn, &msg);
}

int blk_read(struct blk_conn *conn, uint64_t offset, uint32_t length,
	     size_t mem, unsigned int n)
{
	struct blk_message msg;
	int ret = blk_transfer(conn, BLK(READ), offset, length, mem, n, &msg);

	return ret ? ret : blk_do(conn, &msg);
}

int blk_write(struct blk_conn *conn, uint64_t offset, uint32_t length,
	      size_t mem, unsigned int n)
{
	struct blk_message msg;
	int ret = blk_transfer(conn, BLK(WRITE), offset, length, mem, n, &msg);

	return ret ? ret : blk_do(conn, &msg);
}

int blk_simple(struct blk_conn *conn, uint8_t opcode, uint64_t offset,
	       uint32_t length, uint8_t flags)
{
	struct blk_message msg = blk_command(conn, opcode, offset, length);

	msg.cmd.flags = flags;
	return blk_do(conn, &msg);
}
