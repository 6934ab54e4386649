// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Results of memreg bw and memreg lat, for people and for programs */
#include <inttypes.h>
#include <stdlib.h>

#include "measure.h"

#define PLOT_WIDTH	50

/* From 0.1 us to 10 s, three for each power of ten: 1, 2 and 5 */
#define BUCKETS		25

double measure_rate(const struct measure *s, int64_t now)
{
	return (double)s->done * (double)s->now / 1048576 /
	       ((double)(now - s->start) / 1e9);
}

static double operations(const struct measure *s)
{
	return (double)s->done * 1e9 / (double)(s->end - s->start);
}

/*
 * How fast
 */

static void print_bw(const struct measure *s)
{
	char size[32];

	if (!s->all || s->now == 1)
		printf("%-6s %8s %6s %10s %10s %10s %12s\n", "op", "bytes",
		       "depth", "count", "seconds", "MiB/s", "op/s");
	printf("%-6s %8s %6" PRIu64 " %10" PRIu64 " %10.3f %10.3f %12.1f\n",
	       measure_ops[s->op], exact_bytes(s->now, size, sizeof(size)),
	       s->depth, s->done, (double)(s->end - s->start) / 1e9,
	       measure_rate(s, s->end), operations(s));
}

static void print_bw_json(const struct measure *s)
{
	printf("{\"op\":\"%s\",\"size_bytes\":%" PRIu64 ",\"depth\":%" PRIu64
	       ",\"count\":%" PRIu64 ",\"seconds\":%.9f",
	       measure_ops[s->op], s->now, s->depth, s->done,
	       (double)(s->end - s->start) / 1e9);
	printf(",\"bytes_per_second\":%.0f,\"operations_per_second\":%.3f}\n",
	       measure_rate(s, s->end) * 1048576, operations(s));
}

/*
 * How long
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

/* The nanoseconds that a bucket begins with; the first one begins with 0 */
static uint64_t bucket_start(unsigned int bucket)
{
	static const uint64_t steps[] = { 1, 2, 5 };
	uint64_t power = 100;
	unsigned int i;

	if (!bucket)
		return 0;
	for (i = 3; i <= bucket; i += 3)
		power *= 10;
	return steps[bucket % 3] * power;
}

struct buckets {
	uint64_t count[BUCKETS];
	uint64_t most;
	unsigned int first, last;	/* of those that are not empty */
};

/* The samples are in order */
static void fill_buckets(const struct measure *s, struct buckets *b)
{
	unsigned int now = 0;
	uint64_t i;

	*b = (struct buckets) { .most = 0 };
	for (i = 0; i < s->done; i++) {
		while (now + 1 < BUCKETS &&
		       s->samples[i] >= bucket_start(now + 1))
			now++;
		if (!i)
			b->first = now;
		b->last = now;
		if (++b->count[now] > b->most)
			b->most = b->count[now];
	}
}

static void plot(const struct measure *s)
{
	struct buckets b;
	unsigned int row;
	uint64_t i;

	fill_buckets(s, &b);
	for (row = b.first; row <= b.last; row++) {
		printf("from %10.1f us %8" PRIu64 " ",
		       (double)bucket_start(row) / 1e3, b.count[row]);
		for (i = 0; i < b.count[row] * PLOT_WIDTH / b.most; i++)
			putchar('#');
		putchar('\n');
	}
}

static void print_lat(const struct measure *s)
{
	char size[32];

	if (!s->all || s->now == 1)
		printf("%-6s %8s %10s %10s %10s %10s %10s %10s  (us)\n", "op",
		       "bytes", "count", "min", "median", "p99", "p99.9",
		       "max");
	printf("%-6s %8s %10" PRIu64 " %10.1f %10.1f %10.1f %10.1f %10.1f\n",
	       measure_ops[s->op], exact_bytes(s->now, size, sizeof(size)),
	       s->done, percentile(s, 0), percentile(s, 0.5),
	       percentile(s, 0.99), percentile(s, 0.999), percentile(s, 1));
	if (!s->all)
		plot(s);
}

static void print_lat_json(const struct measure *s)
{
	struct buckets b;
	unsigned int row;

	printf("{\"op\":\"%s\",\"size_bytes\":%" PRIu64 ",\"count\":%" PRIu64
	       ",\"min_us\":%.3f,\"median_us\":%.3f,\"p99_us\":%.3f",
	       measure_ops[s->op], s->now, s->done, percentile(s, 0),
	       percentile(s, 0.5), percentile(s, 0.99));
	printf(",\"p99_9_us\":%.3f,\"max_us\":%.3f,\"buckets\":[",
	       percentile(s, 0.999), percentile(s, 1));
	fill_buckets(s, &b);
	for (row = b.first; row <= b.last; row++)
		printf("%s{\"from_us\":%.1f,\"count\":%" PRIu64 "}",
		       row == b.first ? "" : ",",
		       (double)bucket_start(row) / 1e3, b.count[row]);
	puts("]}");
}

int measure_report(struct measure *s)
{
	if (!s->done)
		return fail("nothing was done in that time");
	if (s->lat)
		qsort(s->samples, s->done, sizeof(*s->samples), compare);
	if (s->json)
		(s->lat ? print_lat_json : print_bw_json)(s);
	else
		(s->lat ? print_lat : print_bw)(s);
	fflush(stdout);
	return EXIT_GOOD;
}
