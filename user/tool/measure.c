// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memreg bw and memreg lat: how fast data moves, and how long it takes. The
 * client asks by the private data of its request for what it wants to do; the
 * server grants a window on memory, and takes or answers messages.
 */
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "link.h"

#define PORT_DEFAULT	"7175"
#define MAGIC		UINT32_C(0x6d656173)
#define TIMEOUT_MS	30000
#define TIMEOUT_NS	(TIMEOUT_MS * UINT64_C(1000000))
#define SIZE_MAX_	(UINT64_C(1) << 20)
#define DEPTH_MAX	128
#define SAMPLES		(UINT64_C(1) << 20)
#define PROGRESS	500000000	/* nanoseconds between two of it */
#define PLOT_WIDTH	50
#define PLOT_ROWS	16

enum op { OP_WRITE, OP_READ, OP_SEND };

static const char *const op_names[] = { "write", "read", "send" };

/* What the client asks for: private data of its request */
struct request {
	uint32_t magic;
	uint32_t op;
	uint32_t size;
	uint32_t depth;
	uint32_t echo;		/* messages are to be answered */
};

struct measure {
	/* as the options have it */
	const char *device;
	const char *address;
	const char *port;
	uint64_t count;		/* operations, or 0 */
	uint64_t seconds;	/* or 0 */
	uint64_t size;
	uint64_t depth;
	enum op op;
	bool server;
	bool lat;

	struct memreg *m;
	uint32_t domain;
	uint32_t endpoint;
	struct memreg_ring ring;
	struct memreg_mr mr;
	char *memory;
	struct memreg_grant grant;
	uint64_t done;
	int64_t start, shown, end;	/* nanoseconds */
	bool progress;
	uint32_t *samples;		/* nanoseconds each, of lat */
};

/*
 * From nothing to a connection, and back
 */

/* A slot for each that is outstanding in either direction */
static uint64_t memory_of(const struct measure *s)
{
	uint64_t slots = s->op == OP_SEND ? 2 * s->depth + 1 : 1;

	return slots * s->size;
}

static int measure_open(struct measure *s)
{
	uint64_t length = memory_of(s);

	s->memory = aligned_alloc(4096, (length + 4095) / 4096 * 4096);
	if (!s->memory)
		return fail("%s", strerror(ENOMEM));
	memset(s->memory, 0, length);
	if (memreg_mr_register(s->m, s->domain, s->memory, length,
			       IB_MEMREG_ACCESS_LOCAL_WRITE |
			       IB_MEMREG_ACCESS_MW_BIND, 0, &s->mr) ||
	    memreg_ring_create(s->m, 4 * DEPTH_MAX, 64, -1,
			       s->lat ? IB_MEMREG_RING_NO_MODERATION : 0,
			       &s->ring))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

static void measure_close(struct measure *s)
{
	if (s->endpoint && memreg_destroy(s->m, s->endpoint))
		fail("%s", memreg_reason());
	if (s->ring.shared && memreg_ring_destroy(s->m, &s->ring))
		fail("%s", memreg_reason());
	if (s->mr.id && memreg_mr_deregister(s->m, s->mr.id))
		fail("%s", memreg_reason());
	free(s->memory);
	free(s->samples);
}

static struct ib_memreg_queues queues_of(const struct measure *s)
{
	return (struct ib_memreg_queues) {
		.send_ring_id = s->ring.id,
		.recv_ring_id = s->ring.id,
		.max_send = 2 * DEPTH_MAX,
		.max_recv = 2 * DEPTH_MAX,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
}

/* Messages are received into slots behind the one that they are sent from */
static void prepare_receive(const struct measure *s, struct ib_memreg_wr *wr,
			    uint64_t slot)
{
	memreg_prep_recv(wr, s->endpoint, s->mr.id, (slot + 1) * s->size,
			 (uint32_t)s->size, slot);
}

static int post_receive(struct measure *s, uint64_t slot)
{
	struct ib_memreg_wr wr;

	prepare_receive(s, &wr, slot);
	if (memreg_submit(s->m, &wr, 1, NULL))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

static int post_receives(struct measure *s)
{
	uint64_t i;
	int ret = EXIT_GOOD;

	for (i = 0; s->op == OP_SEND && !ret && i < 2 * s->depth; i++)
		ret = post_receive(s, i);
	return ret;
}

static int await_established(struct measure *s, struct ib_memreg_event *event)
{
	char text[ADDRESS_TEXT];

	do {
		if (memreg_get_event(s->m, event, TIMEOUT_MS))
			return fail("%s", memreg_reason());
	} while (event->endpoint_id != s->endpoint);
	if (event->type == IB_MEMREG_EVENT_ESTABLISHED)
		return EXIT_GOOD;
	return fail("no connection with %s; does a server listen there?",
		    address_text(&event->peer, text));
}

static int connect_server(struct measure *s)
{
	struct addrinfo *at = resolve(s->address, s->port, false);
	struct request request = {
		.magic = htobe32(MAGIC),
		.op = htobe32(s->op),
		.size = htobe32((uint32_t)s->size),
		.depth = htobe32((uint32_t)s->depth),
		.echo = htobe32(s->lat),
	};
	struct ib_memreg_queues queues;
	struct ib_memreg_event event;
	int ret;

	if (!at)
		return EXIT_FAILED;
	ret = measure_open(s);
	queues = queues_of(s);
	if (ret == EXIT_GOOD &&
	    memreg_connect_queues(s->m, s->domain, at->ai_addr, NULL,
				  TIMEOUT_MS, &request, sizeof(request),
				  &queues, &s->endpoint))
		ret = fail("%s: %s", s->address, memreg_reason());
	freeaddrinfo(at);
	if (ret == EXIT_GOOD)
		ret = post_receives(s);
	if (ret == EXIT_GOOD)
		ret = await_established(s, &event);
	if (ret == EXIT_GOOD &&
	    memreg_grant_decode(event.private_data, event.private_data_len,
				&s->grant))
		ret = fail("what listens there is no server of ours");
	return ret;
}

/*
 * The client
 */

static void prepare(const struct measure *s, struct ib_memreg_wr *wr)
{
	uint32_t size = (uint32_t)s->size;

	switch (s->op) {
	case OP_WRITE:
		memreg_prep_write(wr, s->endpoint, s->mr.id, 0, size,
				  s->grant.iova, s->grant.rkey);
		break;
	case OP_READ:
		memreg_prep_read(wr, s->endpoint, s->mr.id, 0, size,
				 s->grant.iova, s->grant.rkey);
		break;
	default:
		memreg_prep_send(wr, s->endpoint, s->mr.id, 0, size);
	}
	memreg_wr_signal(wr, 0);
}

static bool over(const struct measure *s, uint64_t posted)
{
	if (s->count)
		return posted >= s->count;
	/* One is done, however late we are. */
	return posted &&
	       now_ns() - s->start >= (int64_t)s->seconds * 1000000000;
}

static double rate(const struct measure *s, int64_t now)
{
	return (double)s->done * (double)s->size / 1048576 /
	       ((double)(now - s->start) / 1e9);
}

static void show_progress(struct measure *s)
{
	int64_t now = now_ns();

	if (!s->progress || now - s->shown < PROGRESS)
		return;
	s->shown = now;
	printf("\r%" PRIu64 " operations in %.1f s, %.3f MiB/s ", s->done,
	       (double)(now - s->start) / 1e9, rate(s, now));
	fflush(stdout);
}

/* Take one completion that went well */
static int take(struct measure *s, struct ib_memreg_cqe *cqe)
{
	const struct ib_memreg_cqe *next;
	int ret;

	while (!(next = memreg_ring_peek(&s->ring))) {
		ret = memreg_ring_wait(&s->ring, 1, TIMEOUT_NS, NULL);
		/* as when it was stopped, and goes on */
		if (ret && ret != -EINTR)
			return fail("%s", memreg_reason());
	}
	*cqe = *next;
	memreg_ring_seen(&s->ring, 1);
	if (cqe->status)
		return fail("%s: %s", memreg_opcode_string(cqe->opcode),
			    memreg_wc_status_string(cqe->status));
	return EXIT_GOOD;
}

/*
 * Have as many under way as are to be, or as there is room for: one that is in
 * many pieces takes several places of the queue.
 */
static int post(struct measure *s, struct ib_memreg_wr *wr, uint64_t *posted)
{
	int ret;

	while (*posted - s->done < s->depth && !over(s, *posted)) {
		ret = memreg_submit(s->m, wr, 1, NULL);
		if (ret == -EAGAIN && *posted > s->done)
			break;
		if (ret)
			return fail("%s", memreg_reason());
		++*posted;
	}
	return EXIT_GOOD;
}

static int run_bw(struct measure *s)
{
	struct ib_memreg_cqe cqe;
	struct ib_memreg_wr wr;
	uint64_t posted = 0;
	int ret;

	prepare(s, &wr);
	while (s->done < posted || !over(s, posted)) {
		ret = post(s, &wr, &posted);
		if (ret != EXIT_GOOD)
			return ret;
		/* the time may run out before the first, or the next */
		if (s->done == posted)
			break;
		ret = take(s, &cqe);
		if (ret != EXIT_GOOD)
			return ret;
		s->done++;
		show_progress(s);
	}
	return EXIT_GOOD;
}

/* One operation, or a message and its answer */
static int once(struct measure *s, struct ib_memreg_wr *wr)
{
	unsigned int left = s->op == OP_SEND ? 2 : 1;
	struct ib_memreg_cqe cqe;
	int ret;

	if (memreg_submit(s->m, wr, 1, NULL))
		return fail("%s", memreg_reason());
	while (left--) {
		ret = take(s, &cqe);
		if (ret == EXIT_GOOD && cqe.opcode == IB_MEMREG_OP_RECV)
			ret = post_receive(s, cqe.user_data);
		if (ret != EXIT_GOOD)
			return ret;
	}
	return EXIT_GOOD;
}

static int run_lat(struct measure *s)
{
	struct ib_memreg_wr wr;
	int64_t begin, took;
	int ret;

	s->samples = calloc(SAMPLES, sizeof(*s->samples));
	if (!s->samples)
		return fail("%s", strerror(ENOMEM));
	prepare(s, &wr);
	while (!over(s, s->done) && s->done < SAMPLES) {
		begin = now_ns();
		ret = once(s, &wr);
		took = now_ns() - begin;
		if (ret != EXIT_GOOD)
			return ret;
		s->samples[s->done++] = took < UINT32_MAX ? (uint32_t)took :
							    UINT32_MAX;
		show_progress(s);
	}
	return EXIT_GOOD;
}

/*
 * The outcome
 */

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static double percentile(const struct measure *s, double part)
{
	uint64_t i = (uint64_t)(part * (double)(s->done - 1) + 0.5);

	return s->samples[i] / 1e3;
}

/* Rows of equal width from the least to the 99th percentile, and the rest */
static void plot(const struct measure *s)
{
	double low = percentile(s, 0), high = percentile(s, 0.99);
	double step = high > low ? (high - low) / PLOT_ROWS : 1;
	uint64_t rows[PLOT_ROWS + 1] = { 0 }, most = 1, i, row;

	for (i = 0; i < s->done; i++) {
		row = (uint64_t)((s->samples[i] / 1e3 - low) / step);
		rows[row < PLOT_ROWS ? row : PLOT_ROWS]++;
	}
	for (row = 0; row <= PLOT_ROWS; row++)
		if (rows[row] > most)
			most = rows[row];
	for (row = 0; row <= PLOT_ROWS; row++) {
		printf("%s%10.1f us %8" PRIu64 " ",
		       row < PLOT_ROWS ? "from " : "over ",
		       low + (double)row * step, rows[row]);
		for (i = 0; i < rows[row] * PLOT_WIDTH / most; i++)
			putchar('#');
		putchar('\n');
	}
}

static int report(struct measure *s)
{
	if (s->progress)
		putchar('\n');
	if (!s->done)
		return fail("nothing was done in that time");
	if (!s->lat) {
		printf("%-6s %8s %6s %10s %10s %10s %12s\n", "op", "bytes",
		       "depth", "count", "seconds", "MiB/s", "op/s");
		printf("%-6s %8" PRIu64 " %6" PRIu64 " %10" PRIu64
		       " %10.3f %10.3f %12.1f\n", op_names[s->op], s->size,
		       s->depth, s->done, (double)(s->end - s->start) / 1e9,
		       rate(s, s->end), (double)s->done * 1e9 /
		       (double)(s->end - s->start));
		return EXIT_GOOD;
	}
	qsort(s->samples, s->done, sizeof(*s->samples), compare);
	printf("%-6s %8s %10s %10s %10s %10s %10s %10s  (us)\n", "op", "bytes",
	       "count", "min", "median", "p99", "p99.9", "max");
	printf("%-6s %8" PRIu64 " %10" PRIu64 " %10.1f %10.1f %10.1f %10.1f %10.1f\n",
	       op_names[s->op], s->size, s->done, percentile(s, 0),
	       percentile(s, 0.5), percentile(s, 0.99), percentile(s, 0.999),
	       percentile(s, 1));
	plot(s);
	return EXIT_GOOD;
}

static int run_client(struct measure *s)
{
	int ret = connect_server(s);

	if (ret != EXIT_GOOD)
		return ret;
	s->progress = isatty(STDOUT_FILENO);
	s->start = now_ns();
	ret = s->lat ? run_lat(s) : run_bw(s);
	s->end = now_ns();
	return ret == EXIT_GOOD ? report(s) : ret;
}

/*
 * The server
 */

static int read_request(struct measure *s, const struct ib_memreg_event *event)
{
	struct request request;

	if (event->private_data_len < sizeof(request))
		return fail("the peer is no client of ours");
	memcpy(&request, event->private_data, sizeof(request));
	if (be32toh(request.magic) != MAGIC)
		return fail("the peer is no client of ours");
	s->size = be32toh(request.size);
	s->depth = be32toh(request.depth);
	s->lat = be32toh(request.echo);
	s->op = (enum op)be32toh(request.op);
	if (s->op > OP_SEND || !s->size || s->size > SIZE_MAX_ || !s->depth ||
	    s->depth > DEPTH_MAX)
		return fail("the peer asks for what there is not");
	return EXIT_GOOD;
}

static int accept_client(struct measure *s, const struct ib_memreg_event *event)
{
	struct ib_memreg_queues queues = queues_of(s);
	struct ib_memreg_bind bind = {
		.mr_id = s->mr.id,
		.length = s->size,
		.access = IB_MEMREG_ACCESS_REMOTE_READ |
			  IB_MEMREG_ACCESS_REMOTE_WRITE,
		.endpoint_id = event->endpoint_id,
	};
	char data[MEMREG_GRANT_SIZE];

	s->endpoint = event->endpoint_id;
	if (memreg_setup(s->m, s->endpoint, s->domain, &queues))
		return fail("%s", memreg_reason());
	if (post_receives(s) != EXIT_GOOD)
		return EXIT_FAILED;
	if (memreg_window_alloc(s->m, s->domain, IB_MEMREG_WINDOW_TYPE1,
				s->size, &bind.window_id, 1) ||
	    memreg_window_bind(s->m, s->domain, &bind))
		return fail("%s", memreg_reason());
	memreg_grant_encode(&(struct memreg_grant) {
		.iova = bind.out_iova,
		.length = bind.length,
		.rkey = bind.out_rkey,
		.access = bind.access,
	}, data);
	if (memreg_accept(s->m, s->endpoint, s->domain, data, sizeof(data)))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

/* Take a message, and answer it if that was asked for; as memreg_submit() */
static int serve_message(struct measure *s, const struct ib_memreg_cqe *cqe)
{
	struct ib_memreg_wr wrs[2];

	if (cqe->opcode != IB_MEMREG_OP_RECV)
		return 0;
	s->done++;
	prepare_receive(s, &wrs[0], cqe->user_data);
	prepare(s, &wrs[1]);
	return memreg_submit(s->m, wrs, s->lat ? 2 : 1, NULL);
}

/* The next completion tells that the client has gone, or of what went wrong */
static int judge_end(const struct ib_memreg_cqe *cqe)
{
	if (cqe->status == IB_MEMREG_WC_WR_FLUSH_ERR)
		return EXIT_GOOD;
	return fail("%s: %s", memreg_opcode_string(cqe->opcode),
		    memreg_wc_status_string(cqe->status));
}

/* Until the client goes: then what was to be received is flushed */
static int serve_messages(struct measure *s)
{
	const struct ib_memreg_cqe *next;
	struct ib_memreg_cqe cqe;
	int ret = 0;

	while (!ret) {
		ret = memreg_ring_wait(&s->ring, 1, IB_MEMREG_WAIT_FOREVER,
				       NULL);
		/* as when it was stopped, and goes on */
		if (ret == -EINTR)
			ret = 0;
		if (ret)
			break;
		next = memreg_ring_peek(&s->ring);
		if (!next)
			continue;
		if (next->status)
			return judge_end(next);
		cqe = *next;
		memreg_ring_seen(&s->ring, 1);
		ret = serve_message(s, &cqe);
	}
	/* It goes as soon as its last message has arrived. */
	return ret == -ENOTCONN ? EXIT_GOOD : fail("%s", memreg_reason());
}

/* Others may ask to be let in meanwhile, and give up */
static bool is_end(const struct measure *s, const struct ib_memreg_event *event)
{
	return event->endpoint_id == s->endpoint &&
	       event->type == IB_MEMREG_EVENT_DISCONNECTED;
}

/* What its first message did may be known before that it is connected */
static int serve(struct measure *s)
{
	struct ib_memreg_event event = { 0 };
	int ret = EXIT_GOOD;
	bool up = false;

	if (s->op == OP_SEND)
		ret = serve_messages(s);
	while (ret == EXIT_GOOD && !is_end(s, &event)) {
		if (memreg_get_event(s->m, &event, -1))
			return fail("%s", memreg_reason());
		up |= event.endpoint_id == s->endpoint &&
		      event.type == IB_MEMREG_EVENT_ESTABLISHED;
	}
	if (ret == EXIT_GOOD && !up && !s->done)
		ret = fail("the client has gone before it was connected");
	return ret;
}

static int run_server(struct measure *s)
{
	struct addrinfo *at = resolve(s->address, s->port, true);
	struct ib_memreg_event event;
	uint32_t listener;
	int ret;

	if (!at)
		return EXIT_FAILED;
	ret = memreg_listen(s->m, at->ai_addr, 1, &listener);
	freeaddrinfo(at);
	if (ret)
		return fail("%s", memreg_reason());
	printf("waiting on %s port %s\n", s->address, s->port);
	fflush(stdout);
	do {
		if (memreg_get_event(s->m, &event, -1))
			return fail("%s", memreg_reason());
	} while (event.type != IB_MEMREG_EVENT_CONNECT_REQUEST);
	ret = read_request(s, &event);
	if (ret == EXIT_GOOD)
		ret = measure_open(s);
	if (ret == EXIT_GOOD)
		ret = accept_client(s, &event);
	if (ret == EXIT_GOOD)
		ret = serve(s);
	if (ret == EXIT_GOOD)
		printf("served: %s of %" PRIu64 " bytes, %" PRIu64
		       " messages\n", op_names[s->op], s->size, s->done);
	return ret;
}

static int run(struct memreg *m, void *ctx)
{
	struct measure *s = ctx;
	int ret;

	s->m = m;
	if (memreg_domain_create(m, 0, &s->domain))
		return fail("%s", memreg_reason());
	ret = s->server ? run_server(s) : run_client(s);
	measure_close(s);
	return ret;
}

/*
 * Options
 */

#define OPTIONS \
	"  -S, --server          wait for a client on ADDRESS (0.0.0.0), serve it, end\n" \
	"  -d, --device DEVICE   RDMA device; may be left out if there is but one\n" \
	"  -p, --port PORT       of the server (7175)\n" \
	"  -o, --op OP           write (default), read or send\n" \
	"  -s, --size BYTES      1 to 1M (64K for bw, 64 for lat)\n" \
	"  -c, --count N         end after so many operations\n" \
	"  -D, --duration S      end after so many seconds (2)\n"

static void usage_bw(void)
{
	puts("usage: memreg bw [OPTIONS] ADDRESS\n"
	     "       memreg bw --server [OPTIONS] [ADDRESS]\n"
	     "Measure how fast data moves to or from a server.\n\n"
	     OPTIONS
	     "  -q, --depth N         outstanding operations, 1 to 128 (16)\n"
	     "  -h, --help");
}

static void usage_lat(void)
{
	puts("usage: memreg lat [OPTIONS] ADDRESS\n"
	     "       memreg lat --server [OPTIONS] [ADDRESS]\n"
	     "Measure how long one operation takes; with send, a message and its answer.\n\n"
	     OPTIONS
	     "  -h, --help");
}

static int set_op(struct measure *s)
{
	unsigned int i;

	for (i = 0; i <= OP_SEND; i++) {
		if (strcmp(optarg, op_names[i]))
			continue;
		s->op = (enum op)i;
		return EXIT_GOOD;
	}
	return bad_usage("an operation is write, read or send, not %s", optarg);
}

static int set_number(uint64_t *value, const char *what, uint64_t max)
{
	if (parse_number(optarg, value) && *value && *value <= max)
		return EXIT_GOOD;
	return bad_usage("a %s is 1 to %" PRIu64 ", not %s", what, max, optarg);
}

static int set_option(void *ctx, int opt)
{
	struct measure *s = ctx;

	switch (opt) {
	case 'S':
		s->server = true;
		return EXIT_GOOD;
	case 'd':
		s->device = optarg;
		return EXIT_GOOD;
	case 'p':
		s->port = optarg;
		return EXIT_GOOD;
	case 'o':
		return set_op(s);
	case 's':
		return set_number(&s->size, "size", SIZE_MAX_);
	case 'c':
		return set_number(&s->count, "count",
				  s->lat ? SAMPLES : UINT32_MAX);
	case 'D':
		return set_number(&s->seconds, "duration", 86400);
	default:
		if (s->lat)
			return bad_usage("only bw has a --depth");
		return set_number(&s->depth, "depth", DEPTH_MAX);
	}
}

static int measure_main(int argc, char **argv, const struct syntax *syntax,
			bool lat)
{
	struct measure s = { .port = PORT_DEFAULT, .lat = lat };
	int ret = parse_options(argc, argv, syntax, &s);

	if (ret >= 0)
		return ret;
	s.address = argv[optind];
	if (!s.address && !s.server)
		return bad_usage("the address of the server is missing");
	if (!s.address)
		s.address = "0.0.0.0";
	if (s.server && (s.size || s.count || s.seconds || s.depth || s.op))
		return bad_usage("the client says what is measured");
	if (s.count && s.seconds)
		return bad_usage("--count and --duration exclude each other");
	if (!s.size)
		s.size = lat ? 64 : 65536;
	if (!s.depth)
		s.depth = lat ? 1 : 16;
	if (!s.count && !s.seconds)
		s.seconds = 2;
	return with_device(s.device, run, &s);
}

static const struct option options[] = {
	{ "server", no_argument, NULL, 'S' },
	{ "device", required_argument, NULL, 'd' },
	{ "port", required_argument, NULL, 'p' },
	{ "op", required_argument, NULL, 'o' },
	{ "size", required_argument, NULL, 's' },
	{ "count", required_argument, NULL, 'c' },
	{ "duration", required_argument, NULL, 'D' },
	{ "depth", required_argument, NULL, 'q' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

int cmd_bw(int argc, char **argv)
{
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage_bw,
		.words = 1,
	};

	return measure_main(argc, argv, &syntax, false);
}

int cmd_lat(int argc, char **argv)
{
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage_lat,
		.words = 1,
	};

	return measure_main(argc, argv, &syntax, true);
}
