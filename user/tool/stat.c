// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg stat: the counters of a device, or how fast they grow */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "number.h"
#include "tool.h"

#define STAT_ROOM	128

/* Lines between two headings of a table */
#define LINES		20

#define LONGER	"faults that took longer, and less"

/* Counters of frequent events have a column; the column of others is NULL */
static const struct {
	const char *name;
	const char *column;
	const char *what;
} names[] = {
	[IB_MEMREG_STAT_KEYS_MADE] = {
		"keys-made", "made", "keys that worked" },
	[IB_MEMREG_STAT_KEYS_KILLED] = {
		"keys-killed", "killed", "those that work no more" },
	[IB_MEMREG_STAT_BATCHES] = {
		"batches", NULL, "posted on registration queues" },
	[IB_MEMREG_STAT_WORK_REQUESTS] = {
		"work-requests", "wrs", "in them" },
	[IB_MEMREG_STAT_FRWRS_ALLOCATED] = {
		"frwrs-allocated", "alloc", "fast registration MRs made" },
	[IB_MEMREG_STAT_FRWRS_DESTROYED] = {
		"frwrs-destroyed", NULL, "those destroyed, for any reason" },
	[IB_MEMREG_STAT_FRWRS_REUSED] = {
		"frwrs-reused", "reuse", "taken again" },
	[IB_MEMREG_STAT_FRWRS_FOREIGN] = {
		"frwrs-foreign", NULL, "destroyed for another range's sake" },
	[IB_MEMREG_STAT_FRWRS_FAILED] = {
		"frwrs-failed", NULL, "destroyed as their state was unknown" },
	[IB_MEMREG_STAT_FRWRS_REAPED] = {
		"frwrs-reaped", NULL, "destroyed as they were idle" },
	[IB_MEMREG_STAT_QUEUE_BREAKS] = {
		"queue-breaks", NULL, "registration queues stopped working" },
	[IB_MEMREG_STAT_QUEUE_REBUILDS] = {
		"queue-rebuilds", NULL, "and were rebuilt" },
	[IB_MEMREG_STAT_QUEUE_REBUILDS_FAILED] = {
		"queue-rebuilds-failed", NULL, "or could not be" },
	[IB_MEMREG_STAT_GUARD_EVENTS] = {
		"guard-events", "events", "on memory that is guarded" },
	[IB_MEMREG_STAT_GUARD_REVOCATIONS] = {
		"guard-revocations", "stale", "MRs that became stale" },
	[IB_MEMREG_STAT_GUARD_SUSPECTS] = {
		"guard-suspects", NULL, "events to be looked into" },
	[IB_MEMREG_STAT_GUARD_UNCHANGED] = {
		"guard-unchanged", NULL, "looks: the memory is as it was" },
	[IB_MEMREG_STAT_GUARD_LATER] = {
		"guard-later", NULL, "looks: nothing found out yet" },
	[IB_MEMREG_STAT_GUARD_GONE] = {
		"guard-gone", NULL, "looks: the memory went" },
	[IB_MEMREG_STAT_GUARD_SPURIOUS] = {
		"guard-spurious", NULL, "looks: keys were killed for nothing" },
	[IB_MEMREG_STAT_GUARD_TIMEOUTS] = {
		"guard-timeouts", NULL, "waits for keys to die that ran out" },
	[IB_MEMREG_STAT_GUARD_KILLS] = {
		"guard-kills", NULL, "keys that a worker had to kill" },
	[IB_MEMREG_STAT_MRS_REGISTERED] = {
		"mrs-registered", "reg", "MRs" },
	[IB_MEMREG_STAT_MRS_DEREGISTERED] = {
		"mrs-deregistered", NULL, "MRs" },
	[IB_MEMREG_STAT_PAGES_PINNED] = {
		"pages-pinned", "pinned", "pages of 4096 bytes" },
	[IB_MEMREG_STAT_PAGES_UNPINNED] = {
		"pages-unpinned", NULL, "pages of 4096 bytes" },
	[IB_MEMREG_STAT_WINDOWS_BOUND] = {
		"windows-bound", "bound", "windows" },
	[IB_MEMREG_STAT_WINDOWS_REVOKED] = {
		"windows-revoked", "revoke", "windows" },
	[IB_MEMREG_STAT_ENDPOINTS_ESTABLISHED] = {
		"endpoints-established", NULL, "connections that came up" },
	[IB_MEMREG_STAT_ENDPOINTS_DISCONNECTED] = {
		"endpoints-disconnected", NULL, "those that ended" },
	[IB_MEMREG_STAT_ENDPOINTS_REJECTED] = {
		"endpoints-rejected", NULL, "requests turned away" },
	[IB_MEMREG_STAT_ENDPOINTS_FAILED] = {
		"endpoints-failed", NULL, "connections that did not come up" },
	[IB_MEMREG_STAT_WRS_SUBMITTED] = {
		"wrs-submitted", "submit", "work requests of users" },
	[IB_MEMREG_STAT_WRS_COMPLETED] = {
		"wrs-completed", NULL,
		"completions reported, in rings or by io_uring" },
	[IB_MEMREG_STAT_WRS_FAILED] = {
		"wrs-failed", "failed", "those that report a failure" },
	[IB_MEMREG_STAT_INLINE_RECEIVES] = {
		"inline-receives", NULL, "messages in completion entries" },
	[IB_MEMREG_STAT_INLINE_COPIES] = {
		"inline-copies", NULL, "messages too long for that" },
	[IB_MEMREG_STAT_REMOTE_INVALIDATIONS] = {
		"remote-invalidations", NULL, "windows ended by their peers" },
	[IB_MEMREG_STAT_BOGUS_INVALIDATIONS] = {
		"bogus-invalidations", NULL,
		"of keys not granted, which ended connections" },
	[IB_MEMREG_STAT_RING_FULL] = {
		"ring-full", NULL, "submissions that found no room in a ring" },
	[IB_MEMREG_STAT_MRS_REREGISTERED] = {
		"mrs-reregistered", NULL, "MRs given other memory or rights" },
	[IB_MEMREG_STAT_DEMAND_FAULTS] = {
		"demand-faults", NULL, "uses of memory on demand that pinned" },
	[IB_MEMREG_STAT_DEMAND_HITS] = {
		"demand-hits", NULL, "those that found it pinned" },
	[IB_MEMREG_STAT_DEMAND_INVALIDATIONS] = {
		"demand-invalidations", NULL,
		"times that it was let go as its mapping changed" },
	[IB_MEMREG_STAT_DEMAND_PREFETCHES] = {
		"demand-prefetches", NULL, "times that it was pinned ahead" },
	[IB_MEMREG_STAT_DEMAND_PREFETCH_HITS] = {
		"demand-prefetch-hits", NULL, "those that were used" },
	[IB_MEMREG_STAT_DEMAND_PINNED] = {
		"demand-pinned", NULL, "pages of 4096 bytes, on demand" },
	[IB_MEMREG_STAT_DEMAND_UNPINNED] = {
		"demand-unpinned", NULL, "pages of 4096 bytes, on demand" },
	[IB_MEMREG_STAT_DEMAND_PINNED_MAX] = {
		"demand-pinned-max", NULL, "those pinned at a time, at most" },
	[IB_MEMREG_STAT_EXPORTS_CREATED] = {
		"exports-created", NULL, "exports" },
	[IB_MEMREG_STAT_EXPORTS_LATE] = {
		"exports-late", NULL, "waits for importers that timed out" },
	[IB_MEMREG_STAT_LEASES_EXPIRED] = {
		"leases-expired", NULL, "leases whose deadline came" },
	[IB_MEMREG_STAT_DEMAND_WAIT + 0] = {
		"demand-wait-1us", NULL, "faults that took less" },
	[IB_MEMREG_STAT_DEMAND_WAIT + 1] = {
		"demand-wait-4us", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 2] = {
		"demand-wait-16us", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 3] = {
		"demand-wait-66us", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 4] = {
		"demand-wait-262us", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 5] = {
		"demand-wait-1ms", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 6] = {
		"demand-wait-4ms", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 7] = {
		"demand-wait-17ms", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 8] = {
		"demand-wait-67ms", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 9] = {
		"demand-wait-268ms", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 10] = {
		"demand-wait-1s", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 11] = {
		"demand-wait-4s", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 12] = {
		"demand-wait-17s", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 13] = {
		"demand-wait-69s", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 14] = {
		"demand-wait-275s", NULL, LONGER },
	[IB_MEMREG_STAT_DEMAND_WAIT + 15] = {
		"demand-wait-longer", NULL, "faults that took longer" },
};

#define NAMES (sizeof(names) / sizeof(names[0]))

struct options {
	const char *device;
	uint64_t interval;	/* in nanoseconds, or 0 */
	uint64_t count;		/* of intervals, or 0 */
	bool json;
};

/* The counters at one time */
struct sample {
	struct ib_memreg_stat_entry stats[STAT_ROOM];
	unsigned int count;
	struct timespec at;
};

static int take(struct memreg *m, struct sample *s)
{
	s->count = STAT_ROOM;
	clock_gettime(CLOCK_MONOTONIC, &s->at);
	if (memreg_stat(m, s->stats, &s->count))
		return fail("%s", memreg_reason());
	if (s->count > STAT_ROOM)
		s->count = STAT_ROOM;
	return EXIT_GOOD;
}

static const char *name_of(uint32_t stat, char *buf, size_t size)
{
	if (stat < NAMES && names[stat].name)
		return names[stat].name;
	snprintf(buf, size, "counter-%" PRIu32, stat);
	return buf;
}

static void print_table(const struct memreg_device *device,
			const struct sample *s)
{
	char buf[32];
	unsigned int i;

	printf("device %s, index %" PRIu32 "\n\n", device->name,
	       device->index);
	printf("%-22s %14s  %s\n", "COUNTER", "VALUE", "WHAT");
	for (i = 0; i < s->count; i++)
		printf("%-22s %14" PRIu64 "  %s\n",
		       name_of(s->stats[i].stat, buf, sizeof(buf)),
		       (uint64_t)s->stats[i].value,
		       s->stats[i].stat < NAMES ?
		       names[s->stats[i].stat].what : "");
}

/* Values, or rates if there is an earlier sample */
static void print_json(const struct memreg_device *device,
		       const struct sample *s, const struct sample *before,
		       double seconds)
{
	char buf[32];
	unsigned int i;

	putchar('{');
	print_json_string("device", device->name, sizeof(device->name));
	printf(",\"index\":%" PRIu32, device->index);
	if (before)
		printf(",\"seconds\":%.3f", seconds);
	printf(",\"%s\":{", before ? "per_second" : "counters");
	for (i = 0; i < s->count; i++) {
		printf("%s\"%s\":", i ? "," : "",
		       name_of(s->stats[i].stat, buf, sizeof(buf)));
		if (before)
			printf("%.3f", (double)(s->stats[i].value -
						before->stats[i].value) /
			       seconds);
		else
			printf("%" PRIu64, (uint64_t)s->stats[i].value);
	}
	puts("}}");
}

static void print_heading(const struct sample *s)
{
	unsigned int i;

	for (i = 0; i < s->count; i++) {
		uint32_t stat = s->stats[i].stat;

		if (stat < NAMES && names[stat].column)
			printf(" %6s", names[stat].column);
	}
	putchar('\n');
}

static void print_rates(const struct sample *s, const struct sample *before,
			double seconds)
{
	unsigned int i;

	for (i = 0; i < s->count; i++) {
		uint32_t stat = s->stats[i].stat;

		if (stat < NAMES && names[stat].column)
			printf(" %6.0f", (double)(s->stats[i].value -
						  before->stats[i].value) /
			       seconds);
	}
	putchar('\n');
}

static double seconds_between(const struct timespec *a,
			      const struct timespec *b)
{
	return (double)(b->tv_sec - a->tv_sec) +
	       (double)(b->tv_nsec - a->tv_nsec) / 1e9;
}

/* Sleep until @ns after the last sample, also if signals come */
static void sleep_after(const struct sample *s, uint64_t ns)
{
	struct timespec until = s->at;

	ns += (uint64_t)until.tv_nsec;
	until.tv_sec += (time_t)(ns / NS_PER_S);
	until.tv_nsec = (long)(ns % NS_PER_S);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until,
			       NULL) == EINTR)
		;
}

static int watch(struct memreg *m, const struct memreg_device *device,
		 const struct options *o)
{
	struct sample samples[2], *before, *now;
	uint64_t n;
	double seconds;

	if (take(m, &samples[0]))
		return EXIT_FAILED;
	for (n = 0; !o->count || n < o->count; n++) {
		before = &samples[n % 2];
		now = &samples[(n + 1) % 2];
		sleep_after(before, o->interval);
		if (take(m, now))
			return EXIT_FAILED;
		seconds = seconds_between(&before->at, &now->at);
		if (o->json) {
			print_json(device, now, before, seconds);
		} else {
			if (n % LINES == 0)
				print_heading(now);
			print_rates(now, before, seconds);
		}
		if (fflush(stdout))
			return fail("can't write: %s", strerror(errno));
	}
	return EXIT_GOOD;
}

static int show(struct memreg *m, const struct memreg_device *device,
		const struct options *o)
{
	struct sample s;

	if (take(m, &s))
		return EXIT_FAILED;
	if (o->json)
		print_json(device, &s, NULL, 0);
	else
		print_table(device, &s);
	return EXIT_GOOD;
}

static int run(struct memreg *m, void *ctx)
{
	const struct options *o = ctx;
	struct memreg_device device;

	if (memreg_query_device(m, &device))
		return fail("%s", memreg_reason());
	return o->interval ? watch(m, &device, o) : show(m, &device, o);
}

static void usage(void)
{
	puts("usage: memreg stat [-d DEVICE] [--json] [--interval TIME [--count N]]\n"
	     "Show what was done on an RDMA device by all of its users, in numbers.\n\n"
	     "  -d, --device DEVICE      RDMA device; may be left out if there is but one\n"
	     "  -i, --interval TIME      how much a second, again and again\n"
	     "  -c, --count N            end after so many intervals\n"
	     "  -j, --json               as JSON, with an interval an object a line\n"
	     "  -h, --help");
}

static int set_option(void *ctx, int opt)
{
	static const struct number interval = {
		"--interval", UNIT_SECONDS, NS_PER_S / 10, 86400 * NS_PER_S,
	}, count = {
		"--count", UNIT_COUNT, 1, UINT64_MAX,
	};
	struct options *o = ctx;

	switch (opt) {
	case 'd':
		o->device = optarg;
		return EXIT_GOOD;
	case 'i':
		return take_number(optarg, &interval, &o->interval);
	case 'c':
		return take_number(optarg, &count, &o->count);
	default:
		o->json = true;
		return EXIT_GOOD;
	}
}

int cmd_stat(int argc, char **argv)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "interval", required_argument, NULL, 'i' },
		{ "count", required_argument, NULL, 'c' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
	};
	struct options o = { 0 };
	int ret = parse_options(argc, argv, &syntax, &o);

	if (ret >= 0)
		return ret;
	if (o.count && !o.interval)
		return bad_usage("--count needs --interval");
	return with_device(o.device, run, &o);
}
