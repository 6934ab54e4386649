// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The command line of memreg blkd */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "blkd.h"

#define STR_(x)	#x
#define STR(x)	STR_(x)

static void usage(void)
{
	puts("usage: memreg blkd [OPTIONS] [NAME=]PATH...\n"
	     "       memreg blkd [OPTIONS] --size BYTES\n"
	     "Serve files, block devices, and memory (memory:BYTES as PATH) as block\n"
	     "devices to clients that connect: ib_memreg_blk of the kernel, or what speaks\n"
	     "the protocol of <rdma/ib_memreg_blk.h>. Until SIGINT or SIGTERM. What clients\n"
	     "write goes to what is served, unless --read-only is given.\n\n"
	     "  -d, --device DEVICE     RDMA device (that of ADDRESS, or the only one)\n"
	     "  -a, --address ADDRESS   to listen on (0.0.0.0: anybody may connect)\n"
	     "  -p, --port PORT         to listen on; 0 takes a free one ("
	     STR(IB_MEMREG_BLK_PORT) ")\n"
	     "  -s, --size BYTES        serve as much memory; K, M, G may follow\n"
	     "  -r, --read-only         refuse what changes something\n"
	     "  -b, --block-size BYTES  512 to 4096 (that of the disk, or 512)\n"
	     "  -n, --no-cache          files: what was answered is safe\n"
	     "  -w, --write-cache       memory: say that there is a cache, for tests\n"
	     "  -l, --max-length BYTES  most that a READ or WRITE may move (1M)\n"
	     "  -I, --inline-max BYTES  most data of a message, 0 to 16K; longer data is moved\n"
	     "                          by RDMA (4K)\n"
	     "  -q, --queues-max N      connections of a client (64)\n"
	     "  -D, --depth-max N       commands in flight on a connection (128)\n"
	     "  -c, --clients-max N     clients that are remembered (64)\n"
	     "  -B, --buffers BYTES     memory that data of files goes through (32M)\n"
	     "  -t, --threads N         for file I/O that blocks (8)\n"
	     "  -P, --poll USEC         look for commands so long, at most, before sleeping\n"
	     "                          (1000)\n"
	     "  -T, --timeout SECONDS   end connections of clients that take no replies, and\n"
	     "                          look for those that are silent (60)\n"
	     "  -i, --interval TIME    print statistics so often; SIGUSR1 does it at once\n"
	     "  -h, --help\n\n"
	     "SIGHUP looks at once whether files were resized; otherwise, that happens each\n"
	     "second.");
}

static const struct option options[] = {
	{ "device", required_argument, NULL, 'd' },
	{ "address", required_argument, NULL, 'a' },
	{ "port", required_argument, NULL, 'p' },
	{ "size", required_argument, NULL, 's' },
	{ "read-only", no_argument, NULL, 'r' },
	{ "block-size", required_argument, NULL, 'b' },
	{ "no-cache", no_argument, NULL, 'n' },
	{ "write-cache", no_argument, NULL, 'w' },
	{ "max-length", required_argument, NULL, 'l' },
	{ "inline-max", required_argument, NULL, 'I' },
	{ "queues-max", required_argument, NULL, 'q' },
	{ "depth-max", required_argument, NULL, 'D' },
	{ "clients-max", required_argument, NULL, 'c' },
	{ "buffers", required_argument, NULL, 'B' },
	{ "threads", required_argument, NULL, 't' },
	{ "poll", required_argument, NULL, 'P' },
	{ "timeout", required_argument, NULL, 'T' },
	{ "interval", required_argument, NULL, 'i' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* Options with numbers, and their ranges */
static const struct option_number {
	int opt;
	struct number number;
	size_t offset;		/* in struct blkd_options */
	bool small;		/* the field has 32 bits */
} numbers[] = {
#define AT(_field) offsetof(struct blkd_options, _field)
	{ 's', { "--size", UNIT_BYTES, 512, INT64_MAX }, AT(size), false },
	{ 'b', { "--block-size", UNIT_BYTES, 512, 4096 }, AT(block_size),
	  true },
	{ 'l', { "--max-length", UNIT_BYTES, 4096, IB_MEMREG_BLK_LENGTH_MAX },
	  AT(max_length), true },
	{ 'I', { "--inline-max", UNIT_BYTES, 0, IB_MEMREG_BLK_INLINE_MAX },
	  AT(inline_max), true },
	{ 'q', { "--queues-max", UNIT_COUNT, 1, IB_MEMREG_BLK_QUEUES_MAX },
	  AT(queues_max), true },
	{ 'D', { "--depth-max", UNIT_COUNT, 1, IB_MEMREG_BLK_DEPTH_MAX },
	  AT(depth_max), true },
	{ 'c', { "--clients-max", UNIT_COUNT, 1, 65536 }, AT(clients_max),
	  true },
	{ 'B', { "--buffers", UNIT_BYTES, 4096, UINT64_C(1) << 36 },
	  AT(buffers), false },
	{ 't', { "--threads", UNIT_COUNT, 1, 1024 }, AT(threads), true },
	{ 'P', { "--poll", UNIT_MICROSECONDS, 0, NS_PER_S }, AT(poll_ns),
	  false },
	{ 'T', { "--timeout", UNIT_SECONDS, NS_PER_S, 1000000 * NS_PER_S },
	  AT(timeout_ns), false },
	{ 'i', { "--interval", UNIT_SECONDS, NS_PER_S, 1000000 * NS_PER_S },
	  AT(stats_ns), false },
};

static int set_number(struct blkd_options *o, int opt)
{
	const struct option_number *n = numbers;
	uint64_t value;
	uint32_t small;
	int ret;

	while (n->opt != opt)
		n++;
	ret = take_number(optarg, &n->number, &value);
	if (ret != EXIT_GOOD)
		return ret;
	small = (uint32_t)value;
	if (n->small)
		memcpy((char *)o + n->offset, &small, sizeof(small));
	else
		memcpy((char *)o + n->offset, &value, sizeof(value));
	return EXIT_GOOD;
}

static int set_option(void *ctx, int opt)
{
	struct blkd_options *o = ctx;

	switch (opt) {
	case 'd':
		o->device = optarg;
		return EXIT_GOOD;
	case 'a':
		o->address = optarg;
		return EXIT_GOOD;
	case 'p':
		return take_port(optarg, true, &o->port);
	case 'r':
		o->read_only = true;
		return EXIT_GOOD;
	case 'n':
		o->no_cache = true;
		return EXIT_GOOD;
	case 'w':
		o->write_cache = true;
		return EXIT_GOOD;
	default:
		return set_number(o, opt);
	}
}

static int check_options(const struct blkd_options *o, int words)
{
	if (o->block_size & (o->block_size - 1))
		return bad_usage("--block-size %" PRIu32 " is not a power of two",
				 o->block_size);
	if (o->max_length % 4096)
		return bad_usage("--max-length %" PRIu32 " is not a multiple of 4096",
				 o->max_length);
	if (o->buffers < o->max_length)
		return bad_usage("--buffers %" PRIu64 " must hold a command of "
				 "--max-length, %" PRIu32,
				 o->buffers, o->max_length);
	if (o->no_cache && o->write_cache)
		return bad_usage("--no-cache and --write-cache exclude each other");
	if (o->size && words)
		return bad_usage("--size is for memory: use it without a path, or memory:BYTES among paths");
	if (!o->size && !words)
		return bad_usage("what is to be served? A path, or --size");
	return EXIT_GOOD;
}

static int add_export(struct blkd *b, const char *spec)
{
	struct export *e = &b->exports[b->nr_exports];
	unsigned int i;
	int ret;

	if (b->nr_exports == BLKD_EXPORTS)
		return bad_usage("%d exports are the most", BLKD_EXPORTS);
	ret = export_open(e, b->exports, spec, &b->options);
	b->nr_exports++;	/* to be closed in any case */
	for (i = 0; ret == EXIT_GOOD && i + 1 < b->nr_exports; i++)
		if (!strcmp(b->exports[i].name, e->name))
			ret = bad_usage("two exports are called %s; give them names with NAME=PATH",
					e->name);
	return ret;
}

/* Each export is opened for each thread: 1024 files may be too few */
static void allow_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

static int open_exports(struct blkd *b, char **words)
{
	char memory[32];
	int ret = EXIT_GOOD;

	allow_files();
	if (b->options.size) {
		snprintf(memory, sizeof(memory), "memory:%" PRIu64,
			 b->options.size);
		return add_export(b, memory);
	}
	for (; *words && ret == EXIT_GOOD; words++)
		ret = add_export(b, *words);
	return ret;
}

static const struct blkd_options defaults = {
	.address = "0.0.0.0",
	.port = IB_MEMREG_BLK_PORT,
	.max_length = 1 << 20,
	.inline_max = 4096,
	.queues_max = IB_MEMREG_BLK_QUEUES_MAX,
	.depth_max = 128,
	.clients_max = 64,
	.threads = 8,
	.buffers = 32 << 20,
	.poll_ns = 1000000,
	.timeout_ns = INT64_C(60) * 1000000000,
};

int blkd_main(int argc, char **argv)
{
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
		.words = BLKD_EXPORTS,
	};
	struct blkd *b = calloc(1, sizeof(*b));
	int ret;

	if (!b)
		return fail("%s", strerror(ENOMEM));
	b->options = defaults;
	b->waiting_end = &b->waiting;
	ret = parse_options(argc, argv, &syntax, &b->options);
	if (ret < 0)
		ret = check_options(&b->options, argc - optind);
	else
		goto out;
	if (ret == EXIT_GOOD)
		ret = open_exports(b, argv + optind);
	if (ret == EXIT_GOOD)
		ret = blkd_serve(b);
	while (b->nr_exports)
		export_close(&b->exports[--b->nr_exports]);
out:
	free(b);
	return ret;
}
