// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memreg bench pool: how fast buffers of a pool are taken and given back, and
 * how fast they get new keys, without a peer. The two measurements alternate,
 * until the time is over or a signal comes, so that both run under the same
 * conditions.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "number.h"
#include "tool.h"

#define SIZE_DEFAULT	65536
#define COUNT_DEFAULT	256
#define BATCH_DEFAULT	32
#define PROGRESS	500000000	/* nanoseconds between two of it */
#define TURN		10000000	/* nanoseconds of doing the same */
#define PAIRS		64		/* of take and give, timed together */

/*
 * Times are counted in buckets, which are an eighth of a power of two wide: the
 * error of a percentile is an eighth at most.
 */
#define PART_BITS	3
#define PARTS		(1U << PART_BITS)
#define BUCKETS		(64U * PARTS)

struct kind {
	const char *name;	/* of the row, and in JSON */
	uint64_t done;
	uint64_t calls;		/* that were timed */
	int64_t spent;		/* nanoseconds */
	uint64_t min, max;	/* nanoseconds of a call */
	uint64_t buckets[BUCKETS];
};

enum { TAKE_GIVE, RECYCLE, KINDS };

struct bench {
	/* as the options have it */
	const char *device;
	uint64_t size;
	uint64_t count;
	uint64_t batch;
	uint64_t duration;	/* nanoseconds, or 0 */
	bool json;

	struct memreg_pool *pool;
	void *taken[IB_MEMREG_BATCH_MAX];
	struct kind kinds[KINDS];
	bool progress;
	int64_t start, shown, end;	/* nanoseconds */
};

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

/*
 * Times
 */

static unsigned int bucket_of(uint64_t ns)
{
	unsigned int power;

	if (ns < PARTS)
		return (unsigned int)ns;
	power = 63 - (unsigned int)__builtin_clzll(ns);
	return (power - PART_BITS + 1) * PARTS +
	       (unsigned int)(ns >> (power - PART_BITS) & (PARTS - 1));
}

/* The least time that is counted there */
static uint64_t bucket_start(unsigned int bucket)
{
	unsigned int row = bucket / PARTS;

	if (!row)
		return bucket;
	return (uint64_t)(PARTS + bucket % PARTS) << (row - 1);
}

static void count_call(struct kind *kind, int64_t took, uint64_t done)
{
	uint64_t ns = took > 0 ? (uint64_t)took : 0;

	if (!kind->calls || ns < kind->min)
		kind->min = ns;
	if (ns > kind->max)
		kind->max = ns;
	kind->calls++;
	kind->done += done;
	kind->spent += took;
	kind->buckets[bucket_of(ns)]++;
}

static double percentile(const struct kind *kind, double part)
{
	uint64_t rank = (uint64_t)(part * (double)kind->calls), seen = 0;
	unsigned int i;

	for (i = 0; i < BUCKETS; i++) {
		seen += kind->buckets[i];
		if (seen > rank)
			break;
	}
	if (i == BUCKETS || bucket_start(i) < kind->min)
		return (double)(i == BUCKETS ? kind->max : kind->min);
	return (double)bucket_start(i);
}

static double rate(const struct kind *kind)
{
	return kind->spent ? (double)kind->done * 1e9 / (double)kind->spent :
			     0;
}

/* Kinds of times: of a pair, or of a call that recycles a batch */
static double unit(unsigned int i)
{
	return i == TAKE_GIVE ? PAIRS : 1;
}

/*
 * Doing it
 */

static int take_and_give(struct bench *b)
{
	void *buffer;
	unsigned int i;

	for (i = 0; i < PAIRS; i++)
		if (memreg_pool_take(b->pool, &buffer) ||
		    memreg_pool_give(b->pool, buffer))
			return fail("the pool has lost its buffers");
	return EXIT_GOOD;
}

static int recycle(struct bench *b)
{
	if (memreg_pool_recycle(b->pool, b->taken, (unsigned int)b->batch,
				IB_MEMREG_RECYCLE_RELAXED))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

static bool over(const struct bench *b, int64_t now)
{
	return interrupted ||
	       (b->duration && now - b->start >= (int64_t)b->duration);
}

/* Each is done once at least, so that there is something to show. */
static int take_turn(struct bench *b, unsigned int i)
{
	struct kind *kind = &b->kinds[i];
	int64_t begin = now_ns(), last = begin, now;
	int ret;

	do {
		ret = i == TAKE_GIVE ? take_and_give(b) : recycle(b);
		if (ret != EXIT_GOOD)
			return ret;
		now = now_ns();
		count_call(kind, now - last, i == TAKE_GIVE ? PAIRS : b->batch);
		last = now;
	} while (now - begin < TURN && !over(b, now));
	return EXIT_GOOD;
}

static void show_progress(struct bench *b)
{
	int64_t now = now_ns();

	if (!b->progress || now - b->shown < PROGRESS)
		return;
	b->shown = now;
	fprintf(stderr,
		"\r%.1f s: %.0f taken and given, %.0f recycled a second ",
		(double)(now - b->start) / 1e9, rate(&b->kinds[TAKE_GIVE]),
		rate(&b->kinds[RECYCLE]));
}

static int measure(struct bench *b)
{
	unsigned int i;
	int ret = EXIT_GOOD;

	b->start = now_ns();
	b->shown = b->start;
	do {
		for (i = 0; i < KINDS && ret == EXIT_GOOD; i++)
			ret = take_turn(b, i);
		show_progress(b);
	} while (ret == EXIT_GOOD && !over(b, now_ns()));
	b->end = now_ns();
	if (b->shown != b->start)
		fprintf(stderr, "\r%70s\r", "");
	return ret;
}

/* Results */

static void print_table(const struct bench *b)
{
	unsigned int i;

	printf("%-10s %12s %12s %10s %10s %10s %10s %10s  (us)\n", "op",
	       "count", "per second", "min", "median", "p99", "p99.9", "max");
	for (i = 0; i < KINDS; i++) {
		const struct kind *k = &b->kinds[i];
		double us = 1e3 * unit(i);

		printf("%-10s %12" PRIu64
		       " %12.0f %10.3f %10.3f %10.3f %10.3f %10.3f\n", k->name,
		       k->done, rate(k), (double)k->min / us,
		       percentile(k, 0.5) / us, percentile(k, 0.99) / us,
		       percentile(k, 0.999) / us, (double)k->max / us);
	}
}

static void print_json(const struct bench *b)
{
	unsigned int i;

	printf("{\"bench\":\"pool\",\"size_bytes\":%" PRIu64
	       ",\"buffers\":%" PRIu64 ",\"batch\":%" PRIu64
	       ",\"seconds\":%.9f", b->size, b->count, b->batch,
	       (double)(b->end - b->start) / 1e9);
	for (i = 0; i < KINDS; i++) {
		const struct kind *k = &b->kinds[i];
		double us = 1e3 * unit(i);

		printf(",\"%s\":{\"count\":%" PRIu64 ",\"per_second\":%.3f",
		       k->name, k->done, rate(k));
		printf(",\"min_us\":%.4f,\"median_us\":%.4f",
		       (double)k->min / us, percentile(k, 0.5) / us);
		printf(",\"p99_us\":%.4f,\"p99_9_us\":%.4f,\"max_us\":%.4f}",
		       percentile(k, 0.99) / us, percentile(k, 0.999) / us,
		       (double)k->max / us);
	}
	puts("}");
}

static int take_batch(struct bench *b)
{
	uint64_t i;

	for (i = 0; i < b->batch; i++)
		if (memreg_pool_take(b->pool, &b->taken[i]))
			return fail("the pool has too few buffers");
	return EXIT_GOOD;
}

static int run(struct memreg *m, void *ctx)
{
	struct bench *b = ctx;
	struct memreg_pool_attr attr = {
		.buffer_size = b->size,
		.count = (uint32_t)b->count,
		.access = IB_MEMREG_ACCESS_LOCAL_WRITE |
			  IB_MEMREG_ACCESS_REMOTE_READ |
			  IB_MEMREG_ACCESS_REMOTE_WRITE,
		.node = IB_MEMREG_NODE_DEVICE,
	};
	uint32_t domain;
	int ret;

	if (memreg_domain_create(m, 0, &domain) ||
	    memreg_pool_create(m, domain, &attr, &b->pool))
		return fail("%s", memreg_reason());
	ret = take_batch(b);
	if (ret == EXIT_GOOD)
		ret = measure(b);
	if (ret == EXIT_GOOD)
		(b->json ? print_json : print_table)(b);
	if (memreg_pool_destroy(b->pool))
		ret = fail("%s", memreg_reason());
	return ret;
}

/*
 * Options
 */

static void usage(void)
{
	puts("usage: memreg bench pool [OPTIONS]\n"
	     "Measure how fast buffers of a pool are taken and given, and get other keys,\n"
	     "until the time is over, or SIGINT. Nobody is needed at the other end.\n\n"
	     "  -d, --device DEVICE   RDMA device; may be left out if there is but one\n"
	     "  -s, --size BYTES      of a buffer (64K)\n"
	     "  -c, --count N         buffers of the pool (256)\n"
	     "  -b, --batch N         buffers that one call recycles, 1 to 256 (32)\n"
	     "  -D, --duration TIME   end after so long (without: at SIGINT)\n"
	     "  -j, --json            a JSON object\n"
	     "  -h, --help");
}

static int set_option(void *ctx, int opt)
{
	static const struct number size = {
		"--size", UNIT_BYTES, 1, UINT64_C(1) << 31,
	}, count = {
		"--count", UNIT_COUNT, 2, IB_MEMREG_POOL_MAX,
	}, batch = {
		"--batch", UNIT_COUNT, 1, IB_MEMREG_BATCH_MAX,
	}, duration = {
		"--duration", UNIT_SECONDS, NS_PER_MS, 86400 * NS_PER_S,
	};
	struct bench *b = ctx;

	switch (opt) {
	case 'd':
		b->device = optarg;
		return EXIT_GOOD;
	case 's':
		return take_number(optarg, &size, &b->size);
	case 'c':
		return take_number(optarg, &count, &b->count);
	case 'b':
		return take_number(optarg, &batch, &b->batch);
	case 'D':
		return take_number(optarg, &duration, &b->duration);
	default:
		b->json = true;
		return EXIT_GOOD;
	}
}

static int bench_pool(struct bench *b)
{
	struct sigaction act = { .sa_handler = interrupt };

	if (b->batch >= b->count)
		return bad_usage("--batch %" PRIu64 ": of %" PRIu64
				 " buffers, at least one is to be free",
				 b->batch, b->count);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	b->progress = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
	return with_device(b->device, run, b);
}

int cmd_bench(int argc, char **argv)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "size", required_argument, NULL, 's' },
		{ "count", required_argument, NULL, 'c' },
		{ "batch", required_argument, NULL, 'b' },
		{ "duration", required_argument, NULL, 'D' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
		.words = 1,
	};
	static struct bench b = {
		.size = SIZE_DEFAULT,
		.count = COUNT_DEFAULT,
		.batch = BATCH_DEFAULT,
		.kinds = { { .name = "take_give" }, { .name = "recycle" } },
	};
	int ret = parse_options(argc, argv, &syntax, &b);

	if (ret >= 0)
		return ret;
	if (!argv[optind])
		return bad_usage("what is to be measured is missing: pool");
	if (strcmp(argv[optind], "pool"))
		return bad_usage("'%.80s' can't be measured, but pool",
				 argv[optind]);
	return bench_pool(&b);
}
