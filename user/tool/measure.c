// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memreg bw and memreg lat: bandwidth and latency. The client describes the
 * measurement in the private data of its request; the server grants a window on
 * memory of its own, and receives or answers messages.
 */
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"

#define PORT_DEFAULT	7175
#define SILENCE_S	30
#define PROGRESS	500000000	/* nanoseconds between two of it */
#define SIZES_FACTOR	4		/* between two of --all */

/*
 * From nothing to a connection, and back
 */

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

static int post_receive(struct measure *s, uint64_t slot)
{
	struct ib_memreg_wr wr;

	measure_prep_receive(s, &wr, slot);
	if (memreg_submit(s->m, &wr, 1, NULL))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

static int begin_to_connect(struct measure *s)
{
	struct addrinfo *at = resolve(s->address, s->port, false);
	struct measure_request request = {
		.magic = htobe32(MEASURE_MAGIC),
		.op = htobe32(s->op),
		.size = htobe32((uint32_t)s->size),
		.depth = htobe32((uint32_t)s->depth),
		.echo = htobe32(s->lat),
	};
	struct ib_memreg_queues queues = measure_queues(s);
	int ret;

	if (!at)
		return EXIT_FAILED;
	ret = memreg_connect_queues(s->m, s->domain, at->ai_addr, NULL,
				    s->timeout_ms, &request, sizeof(request),
				    &queues, &s->endpoint);
	freeaddrinfo(at);
	return ret ? fail("%s", memreg_reason()) : EXIT_GOOD;
}

/* Refuse any other program that accepts, and write nothing to its memory */
static int take_answer(struct measure *s, const struct ib_memreg_event *event)
{
	struct measure_answer answer;
	char at[ADDRESS_TEXT];

	if (event->private_data_len >= sizeof(answer)) {
		memcpy(&answer, event->private_data, sizeof(answer));
		if (be32toh(answer.magic) == MEASURE_MAGIC &&
		    !memreg_grant_decode(answer.grant, sizeof(answer.grant),
					 &s->grant))
			return EXIT_GOOD;
	}
	return fail("the program at %s is not `memreg %s --server`, and nothing was sent to it",
		    address_text(&event->peer, at), s->lat ? "lat" : "bw");
}

static int connect_server(struct measure *s)
{
	struct ib_memreg_event event;
	int ret = measure_open(s);

	if (ret == EXIT_GOOD)
		ret = begin_to_connect(s);
	if (ret == EXIT_GOOD)
		ret = measure_post_receives(s);
	if (ret == EXIT_GOOD)
		ret = await_connection(s->m, s->endpoint, s->timeout_ms,
				       &event);
	return ret == EXIT_GOOD ? take_answer(s, &event) : ret;
}

/*
 * The client
 */

static bool over(const struct measure *s, uint64_t posted)
{
	if (s->count)
		return posted >= s->count;
	/* One is done, however late we are. */
	return posted &&
	       now_ns() - s->start >= (int64_t)s->duration;
}

static void show_progress(struct measure *s)
{
	int64_t now = now_ns();

	if (!s->progress || now - s->shown < PROGRESS)
		return;
	s->shown = now;
	fprintf(stderr, "\r%" PRIu64 " operations in %.1f s, %.3f MiB/s ",
		s->done, (double)(now - s->start) / 1e9, measure_rate(s, now));
}

/* Take one successful completion */
static int take(struct measure *s, struct ib_memreg_cqe *cqe)
{
	const struct ib_memreg_cqe *next;
	int ret;

	while (!(next = memreg_ring_peek(&s->ring))) {
		ret = memreg_ring_wait(&s->ring, 1, SILENCE_S * NS_PER_S, NULL);
		if (ret == -ETIMEDOUT)
			return fail("the peer has been silent for %d s",
				    SILENCE_S);
		/* a process that was stopped and continued gets -EINTR */
		if (ret && ret != -EINTR)
			return fail("%s", memreg_reason());
	}
	*cqe = *next;
	memreg_ring_seen(&s->ring, 1);
	return cqe->status ? fail_completion(cqe) : EXIT_GOOD;
}

/*
 * Post until the wanted number is in flight, or the queue is full: a work
 * request of many pieces takes several places of the queue.
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

	measure_prep(s, &wr);
	while (s->done < posted || !over(s, posted)) {
		ret = post(s, &wr, &posted);
		if (ret != EXIT_GOOD)
			return ret;
		/* The time is over, and nothing that was posted is left. */
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

	if (!s->samples)
		s->samples = calloc(MEASURE_SAMPLES, sizeof(*s->samples));
	if (!s->samples)
		return fail("%s", strerror(ENOMEM));
	measure_prep(s, &wr);
	while (!over(s, s->done) && s->done < MEASURE_SAMPLES) {
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

/* Measure one size, and print the result */
static int run_size(struct measure *s, uint64_t size)
{
	int ret;

	s->now = size;
	s->done = 0;
	s->start = now_ns();
	s->shown = s->start;
	ret = s->lat ? run_lat(s) : run_bw(s);
	s->end = now_ns();
	if (s->shown != s->start)
		fprintf(stderr, "\r%60s\r", "");
	return ret == EXIT_GOOD ? measure_report(s) : ret;
}

static int run_client(struct measure *s)
{
	uint64_t size = s->all ? 1 : s->size;
	int ret = connect_server(s);

	s->progress = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
	for (; ret == EXIT_GOOD && size <= s->size; size *= SIZES_FACTOR)
		ret = run_size(s, size);
	return ret;
}

static int run(struct memreg *m, void *ctx)
{
	struct measure *s = ctx;
	int ret;

	s->m = m;
	if (memreg_domain_create(m, 0, &s->domain))
		return fail("%s", memreg_reason());
	ret = s->server ? measure_serve(s) : run_client(s);
	measure_close(s);
	return ret;
}

/*
 * Options
 */

#define OPTIONS \
	"  -S, --server          wait for a client on ADDRESS (0.0.0.0), serve it, end\n" \
	"  -d, --device DEVICE   RDMA device (that of ADDRESS, or the only one)\n" \
	"  -p, --port PORT       of the server (7175)\n" \
	"  -T, --timeout TIME    for the server to answer: 0.1 to 60 seconds (30)\n" \
	"  -o, --op OP           write (default), read or send\n" \
	"  -s, --size BYTES      1 to 1M (64K for bw, 64 for lat)\n" \
	"  -a, --all             all sizes from 1, by factors of 4, to --size (1M)\n" \
	"  -c, --count N         end after so many operations of a size\n" \
	"  -D, --duration TIME   end after so long with a size (2 seconds)\n" \
	"  -j, --json            a JSON object a line for each size\n"

#define WRITES \
	"It WRITEs to memory of the server at the other end, `memreg %s --server`,\n" \
	"and refuses to send anything to any other program.\n\n"

static void usage_bw(void)
{
	puts("usage: memreg bw [OPTIONS] ADDRESS\n"
	     "       memreg bw --server [OPTIONS] [ADDRESS]\n"
	     "Measure how fast data moves to or from a server.");
	printf(WRITES, "bw");
	puts(OPTIONS
	     "  -q, --depth N         outstanding operations, 1 to 128 (16)\n"
	     "  -h, --help");
}

static void usage_lat(void)
{
	puts("usage: memreg lat [OPTIONS] ADDRESS\n"
	     "       memreg lat --server [OPTIONS] [ADDRESS]\n"
	     "Measure how long one operation takes; with send, a message and its answer.");
	printf(WRITES, "lat");
	puts(OPTIONS
	     "  -h, --help");
}

static int set_op(struct measure *s)
{
	unsigned int i;

	for (i = 0; i <= OP_SEND; i++) {
		if (strcmp(optarg, measure_ops[i]))
			continue;
		s->op = (enum op)i;
		return EXIT_GOOD;
	}
	return bad_usage("--op '%.80s': it takes write, read or send", optarg);
}

static int set_number(struct measure *s, int opt)
{
	const struct number size = {
		"--size", UNIT_BYTES, 1, MEASURE_SIZE_MAX,
	}, count = {
		"--count", UNIT_COUNT, 1,
		s->lat ? MEASURE_SAMPLES : UINT32_MAX,
	}, duration = {
		"--duration", UNIT_SECONDS, NS_PER_MS, 86400 * NS_PER_S,
	}, depth = {
		"--depth", UNIT_COUNT, 1, MEASURE_DEPTH_MAX,
	};

	switch (opt) {
	case 's':
		return take_number(optarg, &size, &s->size);
	case 'c':
		return take_number(optarg, &count, &s->count);
	case 'D':
		return take_number(optarg, &duration, &s->duration);
	default:
		return take_number(optarg, &depth, &s->depth);
	}
}

static int set_option(void *ctx, int opt)
{
	struct measure *s = ctx;

	switch (opt) {
	case 'S':
		s->server = true;
		return EXIT_GOOD;
	case 'a':
		s->all = true;
		return EXIT_GOOD;
	case 'j':
		s->json = true;
		return EXIT_GOOD;
	case 'd':
		s->device = optarg;
		return EXIT_GOOD;
	case 'p':
		return take_port(optarg, false, &s->port);
	case 'T':
		return take_timeout(optarg, &s->timeout_ms);
	case 'o':
		return set_op(s);
	default:
		return set_number(s, opt);
	}
}

/* Set options that were not given */
static void set_defaults(struct measure *s)
{
	if (!s->address)
		s->address = "0.0.0.0";
	if (!s->size)
		s->size = s->all ? MEASURE_SIZE_MAX : s->lat ? 64 : 65536;
	if (!s->depth)
		s->depth = s->lat ? 1 : 16;
	if (!s->count && !s->duration)
		s->duration = 2 * NS_PER_S;
}

static int measure_main(int argc, char **argv, const struct syntax *syntax,
			bool lat)
{
	struct measure s = {
		.port = PORT_DEFAULT,
		.timeout_ms = TIMEOUT_DEFAULT_MS,
		.lat = lat,
	};
	int ret = parse_options(argc, argv, syntax, &s);

	if (ret >= 0)
		return ret;
	s.address = argv[optind];
	if (!s.address && !s.server)
		return bad_usage("the address of the server is missing");
	if (s.server && (s.size || s.count || s.duration || s.depth || s.op ||
			 s.all || s.json))
		return bad_usage("the client says what is measured");
	if (s.count && s.duration)
		return bad_usage("--count and --duration exclude each other");
	set_defaults(&s);
	return with_device_at(s.device, s.address, s.server, run, &s);
}

/* Options of bw; those of lat are the same without the first one, depth. */
static const struct option options[] = {
	{ "depth", required_argument, NULL, 'q' },
	{ "server", no_argument, NULL, 'S' },
	{ "device", required_argument, NULL, 'd' },
	{ "port", required_argument, NULL, 'p' },
	{ "timeout", required_argument, NULL, 'T' },
	{ "op", required_argument, NULL, 'o' },
	{ "size", required_argument, NULL, 's' },
	{ "all", no_argument, NULL, 'a' },
	{ "count", required_argument, NULL, 'c' },
	{ "duration", required_argument, NULL, 'D' },
	{ "json", no_argument, NULL, 'j' },
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
		.options = options + 1,
		.set = set_option,
		.usage = usage_lat,
		.words = 1,
	};

	return measure_main(argc, argv, &syntax, true);
}
