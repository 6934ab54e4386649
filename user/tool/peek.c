// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memreg peek and memreg poke: read what a peer grants, and write there. It is
 * the other side of memreg serve, or of any program that accepts connections
 * with a grant as memreg_grant_encode() writes it.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "link.h"
#include "record.h"

#define PORT_DEFAULT	7471
#define LENGTH_DEFAULT	64

/* Bytes that go in one piece */
#define CHUNK		(1 << 20)

struct peek {
	/* as the options have it */
	const char *device;
	const char *address;
	uint16_t port;
	uint32_t timeout_ms;
	const char *text;	/* to be written, or NULL: standard input */
	uint64_t offset;
	uint64_t length;
	uint64_t interval;	/* nanoseconds, or 0 */
	uint64_t count;		/* of intervals, or 0 */
	bool length_given;
	bool raw;
	bool json;
	bool poke;

	struct link link;
	struct memreg_grant grant;
	char *chunk;
	struct memreg_mr mr;	/* of @chunk */
};

/* The peer's grant */

static int check_access(const struct peek *p)
{
	uint32_t needed = p->poke ? IB_MEMREG_ACCESS_REMOTE_WRITE :
				    IB_MEMREG_ACCESS_REMOTE_READ;
	char text[ACCESS_TEXT];

	if (p->grant.access & needed)
		return EXIT_GOOD;
	return fail("the peer doesn't grant to %s, but: %s",
		    p->poke ? "write" : "read",
		    access_text(p->grant.access, text));
}

/* As much as there is, if no length was given */
static int check_range(struct peek *p)
{
	uint64_t have = p->grant.length;
	uint64_t left = p->offset < have ? have - p->offset : 0;

	if (!left)
		return fail("the peer grants %" PRIu64 " bytes, and none at %"
			    PRIu64, have, p->offset);
	if (!p->length_given && !p->poke && p->length > left)
		p->length = left;
	if (p->length <= left)
		return EXIT_GOOD;
	return fail("the peer grants %" PRIu64 " bytes, and not %" PRIu64
		    " from %" PRIu64 " on", have, p->length, p->offset);
}

static int connect_peer(struct peek *p)
{
	struct ib_memreg_event event;
	int ret;

	ret = link_connect(&p->link, p->address, p->port, p->timeout_ms,
			   &event);
	if (ret != EXIT_GOOD)
		return ret;
	if (memreg_grant_decode(event.private_data, event.private_data_len,
				&p->grant))
		return fail("what listens there is not `memreg serve`: %s",
			    memreg_reason());
	ret = check_access(p);
	return ret == EXIT_GOOD ? check_range(p) : ret;
}

static int make_chunk(struct peek *p)
{
	p->chunk = aligned_alloc(4096, CHUNK);
	if (!p->chunk)
		return fail("%s", strerror(ENOMEM));
	if (memreg_mr_register(p->link.m, p->link.domain, p->chunk, CHUNK,
			       IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &p->mr))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

/* READ into the chunk, or WRITE from there */
static int move(struct peek *p, uint64_t offset, uint32_t length)
{
	uint64_t addr = p->grant.iova + offset;
	struct ib_memreg_cqe cqe;
	struct ib_memreg_wr wr;
	enum link_result ret;

	if (p->poke)
		memreg_prep_write(&wr, p->link.endpoint, p->mr.id, 0, length,
				  addr, p->grant.rkey);
	else
		memreg_prep_read(&wr, p->link.endpoint, p->mr.id, 0, length,
				 addr, p->grant.rkey);
	memreg_wr_signal(&wr, 0);
	ret = link_submit(&p->link, &wr, 1);
	if (ret == LINK_GOOD)
		ret = link_await(&p->link, wr.opcode, &cqe);
	switch (ret) {
	case LINK_GOOD:
		return EXIT_GOOD;
	case LINK_OVER:
		return fail("the connection with the peer has ended");
	default:
		return EXIT_FAILED;
	}
}

/*
 * peek
 */

static void record_bytes(const void *data, uint64_t offset, uint64_t length)
{
	record_begin();
	record_number("offset_bytes", offset);
	record_number("length_bytes", length);
	record_hex("data_hex", data, length);
	record_end();
}

static int show(const struct peek *p, uint64_t offset, uint32_t length)
{
	if (p->raw)
		fwrite(p->chunk, 1, length, stdout);
	else if (p->json)
		record_bytes(p->chunk, offset, length);
	else
		print_hex(p->chunk, offset, length);
	if (fflush(stdout) || ferror(stdout))
		return fail("can't write: %s", strerror(errno));
	return EXIT_GOOD;
}

static int read_all(struct peek *p)
{
	uint64_t done;
	uint32_t n;
	int ret = EXIT_GOOD;

	for (done = 0; done < p->length && ret == EXIT_GOOD; done += n) {
		n = p->length - done < CHUNK ?
			(uint32_t)(p->length - done) : CHUNK;
		ret = move(p, p->offset + done, n);
		if (ret == EXIT_GOOD)
			ret = show(p, p->offset + done, n);
	}
	return ret;
}

/* Once, or again and again by the same connection and key */
static int peek(struct peek *p)
{
	struct timespec pause = {
		.tv_sec = (time_t)(p->interval / NS_PER_S),
		.tv_nsec = (long)(p->interval % NS_PER_S),
	};
	uint64_t n;
	int ret;

	ret = read_all(p);
	if (!p->interval)
		return ret;
	for (n = 1; ret == EXIT_GOOD && (!p->count || n < p->count); n++) {
		if (nanosleep(&pause, NULL))
			return fail("interrupted");
		if (!p->raw && !p->json)
			putchar('\n');
		ret = read_all(p);
	}
	return ret;
}

/*
 * poke
 */

/* The next bytes of standard input, up to a chunk; 0 at the end, or -1 */
static ssize_t read_input(char *buf)
{
	size_t len = 0;
	ssize_t n;

	while (len < CHUNK) {
		n = read(STDIN_FILENO, buf + len, CHUNK - len);
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	return (ssize_t)len;
}

static int write_input(struct peek *p)
{
	ssize_t n;
	int ret;

	for (;;) {
		n = read_input(p->chunk);
		if (n < 0)
			return fail("can't read: %s", strerror(errno));
		if (n == 0)
			return EXIT_GOOD;
		if ((uint64_t)n > p->grant.length - p->offset - p->length)
			return fail("there is more input than the %" PRIu64
				    " bytes that the peer grants",
				    (uint64_t)p->grant.length);
		ret = move(p, p->offset + p->length, (uint32_t)n);
		if (ret != EXIT_GOOD)
			return ret;
		p->length += (uint64_t)n;
	}
}

static int write_text(struct peek *p)
{
	uint64_t done;
	uint32_t n;
	int ret;

	for (done = 0; done < p->length; done += n) {
		n = p->length - done < CHUNK ?
			(uint32_t)(p->length - done) : CHUNK;
		memcpy(p->chunk, p->text + done, n);
		ret = move(p, p->offset + done, n);
		if (ret != EXIT_GOOD)
			return ret;
	}
	return EXIT_GOOD;
}

static void report_written(const struct peek *p)
{
	if (!p->json) {
		printf("%" PRIu64 " bytes written from %" PRIu64 " on\n",
		       p->length, p->offset);
		return;
	}
	record_begin();
	record_number("offset_bytes", p->offset);
	record_number("length_bytes", p->length);
	record_end();
}

static int poke(struct peek *p)
{
	int ret = p->text ? write_text(p) : write_input(p);

	if (ret == EXIT_GOOD)
		report_written(p);
	return ret;
}

/*
 * Either
 */

static int run(struct memreg *m, void *ctx)
{
	struct peek *p = ctx;
	int ret;

	ret = link_open(&p->link, m);
	if (ret == EXIT_GOOD)
		ret = make_chunk(p);
	if (ret == EXIT_GOOD)
		ret = connect_peer(p);
	if (ret == EXIT_GOOD)
		ret = p->poke ? poke(p) : peek(p);
	link_close(&p->link);
	if (p->mr.id)
		check_end(memreg_mr_deregister(m, p->mr.id));
	free(p->chunk);
	return ret;
}

static void usage_peek(void)
{
	puts("usage: memreg peek [OPTIONS] ADDRESS\n"
	     "Connect to `memreg serve` and show what is in the memory that it grants,\n"
	     "which is read by RDMA. It writes nothing there.\n\n"
	     "  -d, --device DEVICE      RDMA device (that of ADDRESS, or the only one)\n"
	     "  -p, --port PORT          of the peer (7471)\n"
	     "  -o, --offset BYTES       begin there, counted from the start of the grant (0)\n"
	     "  -l, --length BYTES       so many; K, M, G may follow (64, or what there is)\n"
	     "  -r, --raw                the bytes themselves instead of a table\n"
	     "  -j, --json               JSON objects, one a line for up to 1 MiB\n"
	     "  -i, --interval TIME      again and again, by the same connection and key\n"
	     "  -T, --timeout TIME       for the peer to answer: 0.1 to 60 seconds (30)\n"
	     "  -c, --count N            end after so many times\n"
	     "  -h, --help");
}

static void usage_poke(void)
{
	puts("usage: memreg poke [OPTIONS] ADDRESS [TEXT]\n"
	     "Connect to `memreg serve` and write to the memory that it grants, by RDMA:\n"
	     "TEXT, or all of standard input. What was there before is overwritten.\n\n"
	     "  -d, --device DEVICE   RDMA device (that of ADDRESS, or the only one)\n"
	     "  -p, --port PORT       of the peer (7471)\n"
	     "  -o, --offset BYTES    begin there, counted from the start of the grant (0)\n"
	     "  -T, --timeout TIME    for the peer to answer: 0.1 to 60 seconds (30)\n"
	     "  -j, --json            what was written, as a JSON object\n"
	     "  -h, --help");
}

static int set_option(void *ctx, int opt)
{
	static const struct number offset = {
		"--offset", UNIT_BYTES, 0, UINT64_MAX,
	}, length = {
		"--length", UNIT_BYTES, 1, UINT64_MAX,
	}, interval = {
		"--interval", UNIT_SECONDS, NS_PER_S / 10, 86400 * NS_PER_S,
	}, count = {
		"--count", UNIT_COUNT, 1, UINT64_MAX,
	};
	struct peek *p = ctx;

	switch (opt) {
	case 'd':
		p->device = optarg;
		return EXIT_GOOD;
	case 'p':
		return take_port(optarg, false, &p->port);
	case 'T':
		return take_timeout(optarg, &p->timeout_ms);
	case 'o':
		return take_number(optarg, &offset, &p->offset);
	case 'l':
		p->length_given = true;
		return take_number(optarg, &length, &p->length);
	case 'i':
		return take_number(optarg, &interval, &p->interval);
	case 'c':
		return take_number(optarg, &count, &p->count);
	case 'j':
		p->json = true;
		return EXIT_GOOD;
	default:
		p->raw = true;
		return EXIT_GOOD;
	}
}

static int start(int argc, char **argv, const struct syntax *syntax,
		 struct peek *p)
{
	int ret = parse_options(argc, argv, syntax, p);

	if (ret >= 0)
		return ret;
	if (optind == argc)
		return bad_usage("the address of the peer is missing");
	if (p->count && !p->interval)
		return bad_usage("--count needs --interval");
	if (p->raw && p->json)
		return bad_usage("--raw and --json exclude each other");
	p->address = argv[optind];
	p->text = argv[optind + 1];
	if (p->text)
		p->length = strlen(p->text);
	return with_device_at(p->device, p->address, false, run, p);
}

int cmd_peek(int argc, char **argv)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "port", required_argument, NULL, 'p' },
		{ "timeout", required_argument, NULL, 'T' },
		{ "offset", required_argument, NULL, 'o' },
		{ "length", required_argument, NULL, 'l' },
		{ "raw", no_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ "interval", required_argument, NULL, 'i' },
		{ "count", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage_peek,
		.words = 1,
	};
	struct peek p = {
		.port = PORT_DEFAULT,
		.timeout_ms = TIMEOUT_DEFAULT_MS,
		.length = LENGTH_DEFAULT,
	};

	return start(argc, argv, &syntax, &p);
}

int cmd_poke(int argc, char **argv)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "port", required_argument, NULL, 'p' },
		{ "timeout", required_argument, NULL, 'T' },
		{ "offset", required_argument, NULL, 'o' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage_poke,
		.words = 2,
	};
	struct peek p = {
		.port = PORT_DEFAULT,
		.timeout_ms = TIMEOUT_DEFAULT_MS,
		.poke = true,
	};

	return start(argc, argv, &syntax, &p);
}
