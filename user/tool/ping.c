// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memreg ping: data goes back and forth, as with rping of rdma-core, whose
 * protocol this is. A round:
 *
 *	client				server
 *	fills the source
 *	sends address, key, size   ->	RDMA READs the source
 *				   <-	go ahead
 *	sends those of the sink    ->	RDMA WRITEs what it has read
 *	compares both		   <-	go ahead
 *
 * All messages have 16 bytes; only the arrival of the server's messages
 * matters. Source and sink begin with "rdma-ping-N: ", N counting the rounds
 * from 0, and end with a 0.
 */
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "link.h"

#define PORT_DEFAULT	7174
#define BYTES_DEFAULT	64
#define BYTES_MIN	64
#define BYTES_MAX	65536

/* Nanoseconds between two lines of progress */
#define PROGRESS	100000000

/* The letters that the data is filled up with */
#define LETTER_FIRST	'A'
#define LETTERS		('z' - 'A' + 1)

struct message {
	uint64_t addr;
	uint32_t rkey;
	uint32_t size;
};

_Static_assert(sizeof(struct message) == 16, "as rping has it");
_Static_assert(sizeof(struct message) <= LINK_MESSAGE, "there is room");

/* Objects of which the client has two */
enum { SOURCE, SINK };

struct buffer {
	char *data;
	struct memreg_mr mr;
	uint32_t window;
	uint64_t iova;		/* these two are for the peer */
	uint32_t rkey;
};

enum keys { KEYS_TYPE1, KEYS_TYPE2B, KEYS_MR };

struct ping {
	/* as the options have it */
	const char *device;
	const char *address;
	uint16_t port;
	uint32_t timeout_ms;
	uint64_t count;		/* rounds, or 0 */
	uint64_t size;		/* bytes; 0: the default */
	enum keys keys;
	bool server;
	bool verify;
	bool json;

	struct link link;
	struct buffer buffers[2];	/* the server has but the first */
	char peer[ADDRESS_TEXT];
	int64_t slot;		/* of the link, to be posted again; or -1 */
	bool progress;		/* somebody looks at a terminal */

	uint64_t rounds;
	int64_t start;		/* these are times in nanoseconds */
	int64_t shown;
	int64_t min, max, sum;
};

static int stop;

static void on_signal(int signo)
{
	(void)signo;
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
}

/* From now on the first signal ends the rounds, and the second the process */
static void catch_signals(void)
{
	struct sigaction action = {
		.sa_handler = on_signal,
		.sa_flags = SA_RESETHAND,
	};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

/*
 * Data
 */

/* Fill @data with the contents of round @n */
static void fill(char *data, uint64_t size, uint64_t n)
{
	unsigned int letter = (unsigned int)(n % LETTERS);
	uint64_t i = (uint64_t)snprintf(data, size, "rdma-ping-%d: ", (int)n);

	for (; i < size - 1; i++) {
		data[i] = (char)(LETTER_FIRST + letter);
		letter = (letter + 1) % LETTERS;
	}
	data[size - 1] = '\0';
}

static enum link_result compare(const struct ping *p, const char *is,
				const char *expected, uint64_t size)
{
	uint64_t i;

	for (i = 0; i < size; i++) {
		if (is[i] == expected[i])
			continue;
		fail("round %" PRIu64 ": byte %" PRIu64
		     " is 0x%02x, not 0x%02x", p->rounds, i,
		     (unsigned char)is[i], (unsigned char)expected[i]);
		return LINK_FAILED;
	}
	return LINK_GOOD;
}

/*
 * Memory and keys
 */

static int register_buffer(struct ping *p, struct buffer *b, uint32_t access)
{
	b->data = aligned_alloc(4096, BYTES_MAX);
	if (!b->data)
		return fail("%s", strerror(ENOMEM));
	memset(b->data, 0, BYTES_MAX);
	if (memreg_mr_register(p->link.m, p->link.domain, b->data, BYTES_MAX,
			       access, 0, &b->mr))
		return fail("%s", memreg_reason());
	b->iova = b->mr.iova;
	b->rkey = b->mr.rkey;
	return EXIT_GOOD;
}

static int register_client(struct ping *p)
{
	uint32_t source = IB_MEMREG_ACCESS_REMOTE_READ;
	uint32_t sink = IB_MEMREG_ACCESS_REMOTE_WRITE;
	int ret;

	if (p->keys != KEYS_MR) {
		source = IB_MEMREG_ACCESS_MW_BIND;
		sink = IB_MEMREG_ACCESS_MW_BIND;
	}
	ret = register_buffer(p, &p->buffers[SOURCE], source);
	if (ret != EXIT_GOOD)
		return ret;
	return register_buffer(p, &p->buffers[SINK],
			       sink | IB_MEMREG_ACCESS_LOCAL_WRITE);
}

/* Access flags of the window on a buffer */
static uint32_t window_access(int side)
{
	return side == SOURCE ? IB_MEMREG_ACCESS_REMOTE_READ :
				IB_MEMREG_ACCESS_REMOTE_WRITE;
}

/* Windows that end with the connection; those of type 2B are bound later */
static int make_windows(struct ping *p)
{
	struct ib_memreg_bind binds[2] = { 0 };
	uint32_t windows[2];
	int side;

	if (p->keys == KEYS_MR)
		return EXIT_GOOD;
	if (memreg_window_alloc(p->link.m, p->link.domain,
				p->keys == KEYS_TYPE1 ?
					IB_MEMREG_WINDOW_TYPE1 :
					IB_MEMREG_WINDOW_TYPE2B,
				BYTES_MAX, windows, 2))
		return fail("%s", memreg_reason());
	for (side = SOURCE; side <= SINK; side++) {
		p->buffers[side].window = windows[side];
		binds[side] = (struct ib_memreg_bind) {
			.window_id = windows[side],
			.mr_id = p->buffers[side].mr.id,
			.length = p->size,
			.access = window_access(side),
			.endpoint_id = p->link.endpoint,
		};
	}
	if (p->keys == KEYS_TYPE2B)
		return EXIT_GOOD;
	if (memreg_window_bind_batch(p->link.m, p->link.domain, binds, 2, NULL))
		return fail("%s", memreg_reason());
	for (side = SOURCE; side <= SINK; side++) {
		p->buffers[side].iova = binds[side].out_iova;
		p->buffers[side].rkey = binds[side].out_rkey;
	}
	return EXIT_GOOD;
}

static void free_buffers(struct ping *p)
{
	int i;

	for (i = SOURCE; i <= SINK; i++) {
		struct buffer *b = &p->buffers[i];

		if (b->mr.id)
			check_end(memreg_mr_deregister(p->link.m, b->mr.id));
		free(b->data);
	}
}

/*
 * Messages
 */

/* Prepare to receive again where the last message was, if not done yet */
static unsigned int prep_slot(struct ping *p, struct ib_memreg_wr *wr)
{
	if (p->slot < 0)
		return 0;
	link_prep_recv(&p->link, wr, (uint64_t)p->slot);
	p->slot = -1;
	return 1;
}

/* Wait for a message of the peer */
static enum link_result await_message(struct ping *p, struct message *msg)
{
	struct ib_memreg_cqe cqe;
	enum link_result ret = link_await(&p->link, IB_MEMREG_OP_RECV, &cqe);

	if (ret != LINK_GOOD)
		return ret;
	if (cqe.byte_len != sizeof(*msg)) {
		fail("the peer sent %" PRIu32 " bytes, and a message of rping has %zu",
		     cqe.byte_len, sizeof(*msg));
		return LINK_FAILED;
	}
	memcpy(msg, link_message(&p->link, &cqe), sizeof(*msg));
	p->slot = (int64_t)cqe.user_data;
	return LINK_GOOD;
}

/*
 * The client
 */

/* End the window that the message before came with */
static enum link_result end_window(struct ping *p, const struct buffer *b)
{
	struct ib_memreg_cqe cqe;
	struct ib_memreg_wr wr;
	enum link_result ret;

	memreg_prep_invalidate(&wr, p->link.endpoint, b->window);
	memreg_wr_signal(&wr, 0);
	ret = link_submit(&p->link, &wr, 1);
	if (ret != LINK_GOOD)
		return ret;
	return link_await(&p->link, IB_MEMREG_OP_INVALIDATE, &cqe);
}

/*
 * Send a buffer's key to the server, and wait until the server is done with the
 * buffer. A window of type 2B is bound by the same call that sends its key.
 */
static enum link_result offer(struct ping *p, int side)
{
	struct buffer *b = &p->buffers[side];
	struct message msg = {
		.addr = htobe64(b->iova),
		.rkey = htobe32(b->rkey),
		.size = htobe32((uint32_t)p->size),
	};
	struct ib_memreg_wr wrs[3];
	unsigned int n = prep_slot(p, wrs);
	enum link_result ret;

	if (p->keys == KEYS_TYPE2B) {
		memreg_prep_bind(&wrs[n], p->link.endpoint, b->window,
				 b->mr.id, 0, (uint32_t)p->size,
				 window_access(side));
		memreg_wr_insert_rkey(&wrs[n++],
				      offsetof(struct message, rkey));
	}
	memreg_prep_send_inline(&wrs[n], p->link.endpoint, &msg, sizeof(msg));
	if (side == SINK)	/* now and then, so that the ring has room */
		memreg_wr_signal(&wrs[n], 0);
	ret = link_submit(&p->link, wrs, n + 1);
	if (ret == LINK_GOOD)
		ret = await_message(p, &msg);
	if (ret == LINK_GOOD && p->keys == KEYS_TYPE2B)
		ret = end_window(p, b);
	return ret;
}

static void count_time(struct ping *p, int64_t ns)
{
	if (!p->rounds || ns < p->min)
		p->min = ns;
	if (ns > p->max)
		p->max = ns;
	p->sum += ns;
}

static enum link_result client_round(struct ping *p)
{
	int64_t start = now_ns();
	enum link_result ret;

	fill(p->buffers[SOURCE].data, p->size, p->rounds);
	ret = offer(p, SOURCE);
	if (ret == LINK_GOOD)
		ret = offer(p, SINK);
	if (ret != LINK_GOOD)
		return ret;
	count_time(p, now_ns() - start);
	if (!p->verify)
		return LINK_GOOD;
	return compare(p, p->buffers[SINK].data, p->buffers[SOURCE].data,
		       p->size);
}

/*
 * The server
 */

/* Wait for an offer, whose fields are then in our byte order */
static enum link_result await_offer(struct ping *p, struct message *msg)
{
	enum link_result ret = await_message(p, msg);

	if (ret != LINK_GOOD)
		return ret;
	msg->addr = be64toh(msg->addr);
	msg->rkey = be32toh(msg->rkey);
	msg->size = be32toh(msg->size);
	if (msg->size && msg->size <= BYTES_MAX)
		return LINK_GOOD;
	fail("the peer has %" PRIu32 " bytes for us, and %d are the most",
	     msg->size, BYTES_MAX);
	return LINK_FAILED;
}

static void prep_go_ahead(struct ping *p, struct ib_memreg_wr *wr)
{
	static const struct message go_ahead;

	memreg_prep_send_inline(wr, p->link.endpoint, &go_ahead,
				sizeof(go_ahead));
	memreg_wr_signal(wr, 0);
}

static enum link_result read_source(struct ping *p, const struct message *msg)
{
	const struct buffer *b = &p->buffers[SOURCE];
	struct ib_memreg_wr wrs[2];
	unsigned int n = prep_slot(p, wrs);
	struct ib_memreg_cqe cqe;
	enum link_result ret;
	char *expected;

	memreg_prep_read(&wrs[n], p->link.endpoint, b->mr.id, 0, msg->size,
			 msg->addr, msg->rkey);
	memreg_wr_signal(&wrs[n], 0);
	ret = link_submit(&p->link, wrs, n + 1);
	if (ret == LINK_GOOD)
		ret = link_await(&p->link, IB_MEMREG_OP_READ, &cqe);
	if (ret != LINK_GOOD || !p->verify)
		return ret;
	expected = p->buffers[SINK].data;
	fill(expected, msg->size, p->rounds);
	return compare(p, b->data, expected, msg->size);
}

/* The message is ordered behind the data, so there is no need to wait */
static enum link_result write_sink(struct ping *p, const struct message *msg,
				   uint32_t have)
{
	const struct buffer *b = &p->buffers[SOURCE];
	struct ib_memreg_wr wrs[3];
	unsigned int n = prep_slot(p, wrs);

	memreg_prep_write(&wrs[n++], p->link.endpoint, b->mr.id, 0,
			  msg->size < have ? msg->size : have, msg->addr,
			  msg->rkey);
	prep_go_ahead(p, &wrs[n++]);
	return link_submit(&p->link, wrs, n);
}

/* Serve a round; LINK_OVER if the client left before the round began */
static enum link_result server_round(struct ping *p)
{
	struct message source, sink;
	struct ib_memreg_wr wr;
	enum link_result ret;

	ret = await_offer(p, &source);
	if (ret != LINK_GOOD)
		return ret;
	p->size = source.size;
	ret = read_source(p, &source);
	if (ret == LINK_GOOD) {
		prep_go_ahead(p, &wr);
		ret = link_submit(&p->link, &wr, 1);
	}
	if (ret == LINK_GOOD)
		ret = await_offer(p, &sink);
	if (ret == LINK_GOOD)
		ret = write_sink(p, &sink, source.size);
	if (ret != LINK_OVER)
		return ret;
	fail("%s left in the middle of round %" PRIu64, p->peer, p->rounds);
	return LINK_FAILED;
}

/* Until the first peer comes, a signal simply ends the process */
static int await_peer(struct ping *p, struct ib_memreg_event *event)
{
	struct ib_memreg_addr bound;
	char text[ADDRESS_TEXT];
	uint32_t listener;

	listener = listen_at(p->link.m, p->address, p->port, 1, &bound);
	if (!listener)
		return EXIT_FAILED;
	printf("waiting on %s\n", place_text(&bound, text));
	fflush(stdout);
	do {
		if (memreg_get_event(p->link.m, event, -1))
			return fail("%s", memreg_reason());
	} while (event->type != IB_MEMREG_EVENT_CONNECT_REQUEST);
	/* nobody else is let in */
	if (memreg_destroy(p->link.m, listener))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

/*
 * Either
 */

static void show_progress(struct ping *p)
{
	int64_t now;

	if (!p->progress)
		return;
	now = now_ns();
	if (now - p->shown < PROGRESS)
		return;
	p->shown = now;
	printf("\r%" PRIu64 " rounds in %.1f s", p->rounds,
	       (double)(now - p->start) / 1e9);
	fflush(stdout);
}

/* Go on until there is a reason to end */
static enum link_result do_rounds(struct ping *p)
{
	enum link_result ret = LINK_GOOD;

	p->progress = isatty(STDOUT_FILENO) && !p->json;
	p->slot = -1;
	p->start = now_ns();
	catch_signals();
	while (ret == LINK_GOOD &&
	       !__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		if (!p->server && p->count && p->rounds == p->count)
			break;
		ret = p->server ? server_round(p) : client_round(p);
		if (ret == LINK_GOOD)
			p->rounds++;
		show_progress(p);
	}
	return ret;
}

static void sum_up_json(const struct ping *p)
{
	putchar('{');
	print_json_string("peer", p->peer, sizeof(p->peer));
	printf(",\"rounds\":%" PRIu64 ",\"size_bytes\":%" PRIu64
	       ",\"seconds\":%.9f,\"verified\":%s", p->rounds, p->size,
	       (double)(now_ns() - p->start) / 1e9,
	       p->verify ? "true" : "false");
	if (p->rounds && !p->server)
		printf(",\"min_ms\":%.6f,\"mean_ms\":%.6f,\"max_ms\":%.6f",
		       (double)p->min / 1e6,
		       (double)p->sum / (double)p->rounds / 1e6,
		       (double)p->max / 1e6);
	puts("}");
}

static void sum_up(const struct ping *p)
{
	if (p->json) {
		sum_up_json(p);
		return;
	}
	printf("%s%" PRIu64 " rounds of %" PRIu64 " bytes with %s in %.3f s%s\n",
	       p->progress ? "\r" : "", p->rounds, p->size, p->peer,
	       (double)(now_ns() - p->start) / 1e9,
	       p->verify ? ", verified" : "");
	if (p->rounds && !p->server)
		printf("round trip min/avg/max = %.3f/%.3f/%.3f ms\n",
		       (double)p->min / 1e6,
		       (double)p->sum / (double)p->rounds / 1e6,
		       (double)p->max / 1e6);
}

/* Whether that was a good end */
static int judge(const struct ping *p, enum link_result ended)
{
	if (ended == LINK_FAILED)
		return EXIT_FAILED;
	if (ended == LINK_OVER && !p->server)
		return fail("the connection with %s ended", p->peer);
	if (!p->rounds)
		return fail("there was no round");
	if (p->rounds < p->count)
		return fail("%" PRIu64 " rounds are missing",
			    p->count - p->rounds);
	return EXIT_GOOD;
}

static int connect_server(struct ping *p, struct ib_memreg_event *event)
{
	int ret = register_buffer(p, &p->buffers[SOURCE],
				  IB_MEMREG_ACCESS_LOCAL_WRITE);

	if (ret != EXIT_GOOD)
		return ret;
	/* only to compare with */
	p->buffers[SINK].data = malloc(BYTES_MAX);
	if (!p->buffers[SINK].data)
		return fail("%s", strerror(ENOMEM));
	ret = await_peer(p, event);
	return ret == EXIT_GOOD ? link_accept(&p->link, event) : ret;
}

static int connect_client(struct ping *p, struct ib_memreg_event *event)
{
	int ret = register_client(p);

	if (ret == EXIT_GOOD)
		ret = link_connect(&p->link, p->address, p->port,
				   p->timeout_ms, event);
	return ret == EXIT_GOOD ? make_windows(p) : ret;
}

static int run(struct memreg *m, void *ctx)
{
	struct ib_memreg_event event;
	enum link_result ended;
	struct ping *p = ctx;
	int ret;

	ret = link_open(&p->link, m);
	if (ret == EXIT_GOOD)
		ret = p->server ? connect_server(p, &event) :
				  connect_client(p, &event);
	if (ret == EXIT_GOOD) {
		address_text(&event.peer, p->peer);
		ended = do_rounds(p);
		sum_up(p);
		ret = judge(p, ended);
	}
	/* in this order: windows end with the connection */
	link_close(&p->link);
	free_buffers(p);
	return ret;
}

/*
 * Options
 */

static void usage(void)
{
	puts("usage: memreg ping [OPTIONS] ADDRESS\n"
	     "       memreg ping --server [OPTIONS] [ADDRESS]\n"
	     "Have data read and written back by a peer, again and again: by\n"
	     "`memreg ping --server` or `rping -s`, or with --server for a client,\n"
	     "`memreg ping` or `rping -c`. Status 0 means that all rounds went well.\n"
	     "The server WRITEs to a buffer that the client grants it, and nowhere else.\n\n"
	     "  -S, --server          wait for a client on ADDRESS (0.0.0.0), serve it, end\n"
	     "  -d, --device DEVICE   RDMA device (that of ADDRESS, or the only one)\n"
	     "  -p, --port PORT       of the server (7174)\n"
	     "  -T, --timeout TIME    for the server to answer: 0.1 to 60 seconds (30)\n"
	     "  -c, --count N         end after so many rounds; server: there must be as many\n"
	     "  -s, --size BYTES      64 to 65536 (64); the client says it\n"
	     "  -V, --verify          compare the data\n"
	     "  -j, --json            sum up as a JSON object\n"
	     "  -k, --keys KIND       what the client grants the server:\n"
	     "                          type1   a window of type 1 (default)\n"
	     "                          type2b  one of type 2B, bound anew for each message\n"
	     "                          mr      a key of the memory itself\n"
	     "  -h, --help");
}

static bool parse_keys(const char *word, enum keys *keys)
{
	static const char *const kinds[] = {
		[KEYS_TYPE1] = "type1",
		[KEYS_TYPE2B] = "type2b",
		[KEYS_MR] = "mr",
	};
	unsigned int i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(word, kinds[i]))
			continue;
		*keys = (enum keys)i;
		return true;
	}
	return false;
}

static int set_option(void *ctx, int opt)
{
	static const struct number count = {
		"--count", UNIT_COUNT, 1, UINT64_MAX,
	};
	static const struct number size = {
		"--size", UNIT_BYTES, BYTES_MIN, BYTES_MAX,
	};
	struct ping *p = ctx;

	switch (opt) {
	case 'S':
		p->server = true;
		return EXIT_GOOD;
	case 'd':
		p->device = optarg;
		return EXIT_GOOD;
	case 'p':
		return take_port(optarg, false, &p->port);
	case 'T':
		return take_timeout(optarg, &p->timeout_ms);
	case 'c':
		return take_number(optarg, &count, &p->count);
	case 's':
		return take_number(optarg, &size, &p->size);
	case 'k':
		if (parse_keys(optarg, &p->keys))
			return EXIT_GOOD;
		return bad_usage("--keys '%.80s': it takes type1, type2b or mr",
				 optarg);
	case 'j':
		p->json = true;
		return EXIT_GOOD;
	default:
		p->verify = true;
		return EXIT_GOOD;
	}
}

int cmd_ping(int argc, char **argv)
{
	static const struct option options[] = {
		{ "server", no_argument, NULL, 'S' },
		{ "device", required_argument, NULL, 'd' },
		{ "port", required_argument, NULL, 'p' },
		{ "timeout", required_argument, NULL, 'T' },
		{ "count", required_argument, NULL, 'c' },
		{ "size", required_argument, NULL, 's' },
		{ "verify", no_argument, NULL, 'V' },
		{ "json", no_argument, NULL, 'j' },
		{ "keys", required_argument, NULL, 'k' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
		.words = 1,
	};
	struct ping p = {
		.port = PORT_DEFAULT,
		.timeout_ms = TIMEOUT_DEFAULT_MS,
	};
	int ret = parse_options(argc, argv, &syntax, &p);

	if (ret >= 0)
		return ret;
	p.address = argv[optind];
	if (!p.address && !p.server)
		return bad_usage("the address of the server is missing");
	if (!p.address)
		p.address = "0.0.0.0";
	if (p.size && p.server)
		return bad_usage("the client says the --size");
	if (!p.size)
		p.size = BYTES_DEFAULT;
	return with_device_at(p.device, p.address, p.server, run, &p);
}
