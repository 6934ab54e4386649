// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memreg blkd: serve files, disks and memory as block devices, by the protocol
 * of <rdma/ib_memreg_blk.h>.
 *
 * A turn of the loop takes all completions that there are, does what they call
 * for, and posts what comes of that in one call. When there is nothing to do it
 * looks at the ring for a while before it sleeps: for as long as that has paid
 * of late.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "blkd.h"

#define STR_(x)		#x
#define STR(x)		STR_(x)

#define RING_MAX	32768u
#define RING_ENTRY	128	/* so that commands of 4 segments fit in */
#define BACKLOG		256
#define CHUNK		(1u << 20)
#define SECOND		INT64_C(1000000000)
#define STOP_TIME	(5 * SECOND)
#define REFRESH		SECOND
#define POLL_FIRST	5000	/* ns that it looks at first */
#define TURNS		64	/* after as many, events are looked at */

struct loop {
	struct blkd *b;
	int epoll;
	int signals;
	int64_t looking;	/* ns that it looks before it sleeps */
	int64_t worked;		/* when there was something to do */
	int64_t refresh_at;
	int64_t stats_at;
	int64_t stop_at;
	bool end;
	int ret;
};

/*
 * Making ready
 */

static int query_limits(struct blkd *b)
{
	uint64_t fragments, queue, ring;

	if (memreg_query_cap(b->m, IB_MEMREG_CAP_FRAGMENTS, &fragments) ||
	    memreg_query_cap(b->m, IB_MEMREG_CAP_QUEUE, &queue) ||
	    memreg_query_cap(b->m, IB_MEMREG_CAP_RING, &ring))
		return fail("%s", memreg_reason());
	b->fragments = fragments ? (uint32_t)fragments : 1;
	b->queue_max = (uint32_t)queue;
	/* a work request has 32 parts at most */
	b->chunk = 31 * b->fragments * BLKD_PAGE;
	if (b->chunk > CHUNK)
		b->chunk = CHUNK;
	if (memreg_ring_create(b->m, ring < RING_MAX ? (uint32_t)ring :
						       RING_MAX,
			       RING_ENTRY, -1, IB_MEMREG_RING_NO_MODERATION,
			       &b->ring))
		return fail("%s", memreg_reason());
	if (conn_min_send(b) > b->queue_max)
		return fail("the queues of this device are too short for commands of %"
			    PRIu32 " bytes; use --max-length",
			    b->options.max_length);
	return EXIT_GOOD;
}

static int get_buffers(struct blkd *b)
{
	unsigned int i;

	for (i = 0; i < b->nr_exports; i++)
		if (b->exports[i].kind != EXPORT_MEMORY)
			return slab_open(&b->slab, b->m, b->domain,
					 b->options.buffers);
	return EXIT_GOOD;
}

static void say_export(const struct export *e)
{
	say("export %s: %s, %" PRIu64 " bytes in blocks of %" PRIu32 "%s%s%s",
	    e->name, e->path, e->capacity, e->block_size,
	    e->flags & IB_MEMREG_BLK_READ_ONLY ? ", read only" : "",
	    e->flags & IB_MEMREG_BLK_WRITE_CACHE ? ", write cache" : "",
	    e->flags & IB_MEMREG_BLK_HAS_DISCARD ? ", discard" : "");
}

static int begin_to_listen(struct blkd *b)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	struct memreg_device device;
	struct addrinfo *list = resolve(b->options.address, b->options.port,
					true);
	unsigned int i;
	int ret;

	if (!list)
		return EXIT_FAILED;
	ret = memreg_listen(b->m, list->ai_addr, BACKLOG, &b->listener);
	if (!ret)
		getnameinfo(list->ai_addr, list->ai_addrlen, host,
			    sizeof(host), port, sizeof(port),
			    NI_NUMERICHOST | NI_NUMERICSERV);
	freeaddrinfo(list);
	if (ret || memreg_query_device(b->m, &device))
		return fail("%s", memreg_reason());
	for (i = 0; i < b->nr_exports; i++)
		say_export(&b->exports[i]);
	say("serving on %s, address %s port %s", device.name, host, port);
	return EXIT_GOOD;
}

static int make_ready(struct blkd *b)
{
	unsigned int i;
	int ret;

	if (memreg_open(b->options.device, &b->m) ||
	    memreg_domain_create(b->m, 0, &b->domain))
		return fail("%s", memreg_reason());
	ret = query_limits(b);
	for (i = 0; i < b->nr_exports && ret == EXIT_GOOD; i++)
		ret = export_register(&b->exports[i], b->m, b->domain);
	if (ret == EXIT_GOOD)
		ret = get_buffers(b);
	if (ret == EXIT_GOOD) {
		b->jobs = jobs_start(b->options.threads);
		ret = b->jobs ? begin_to_listen(b) : EXIT_FAILED;
	}
	return ret;
}

static void give_back(struct blkd *b)
{
	unsigned int i;

	jobs_end(b->jobs);
	for (i = 0; i < b->nr_exports; i++)
		if (b->exports[i].mr.id)
			check_end(memreg_mr_deregister(b->m,
						       b->exports[i].mr.id));
	slab_close(&b->slab, b->m);
	if (b->ring.shared)
		check_end(memreg_ring_destroy(b->m, &b->ring));
	memreg_close(b->m);
	clients_free(b);
}

/*
 * Events, signals, the time
 */

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void refresh(struct blkd *b)
{
	unsigned int i;

	for (i = 0; i < b->nr_exports; i++)
		if (export_refresh(&b->exports[i]))
			say("export %s: %" PRIu64 " bytes now",
			    b->exports[i].name, b->exports[i].capacity);
}

/* What was begun comes to its end; the second time, nothing is waited for */
static void stop(struct loop *l)
{
	struct blkd *b = l->b;

	if (b->stopping) {
		l->end = true;
		return;
	}
	say("stopping");
	b->stopping = true;
	l->stop_at = now_ns() + STOP_TIME;
	if (b->listener)
		check_end(memreg_destroy(b->m, b->listener));
	b->listener = 0;
}

static void take_signal(struct loop *l)
{
	struct signalfd_siginfo info;

	while (read(l->signals, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGUSR1:
			stats_say(l->b, "so far");
			break;
		case SIGHUP:
			refresh(l->b);
			break;
		default:
			stop(l);
		}
	}
}

static void take_events(struct loop *l)
{
	struct ib_memreg_event event;
	int ret;

	while (!(ret = memreg_get_event(l->b->m, &event, 0))) {
		if (event.type == IB_MEMREG_EVENT_CONNECT_REQUEST)
			client_request(l->b, &event);
		else
			conn_event(l->b, &event);
	}
	if (ret == -ENODEV)
		l->b->gone = true;
}

static void watch_time(struct loop *l)
{
	int64_t now = now_ns();

	if (now >= l->refresh_at) {
		l->refresh_at = now + REFRESH;
		refresh(l->b);
	}
	if (l->stats_at && now >= l->stats_at) {
		l->stats_at = now + l->b->options.stats_ns;
		stats_say(l->b, "so far");
	}
	if (l->b->stopping && now >= l->stop_at)
		l->end = true;
}

/* Milliseconds that it may sleep */
static int sleep_ms(const struct loop *l)
{
	int64_t until = INT64_MAX, now = now_ns();

	if (l->b->ending)
		return 0;
	if (l->b->conns)
		until = l->refresh_at;
	if (l->stats_at && l->stats_at < until)
		until = l->stats_at;
	if (l->b->stopping && l->stop_at < until)
		until = l->stop_at;
	if (until == INT64_MAX)
		return -1;
	return until > now ? (int)((until - now) / 1000000 + 1) : 0;
}

static void look_around(struct loop *l, int timeout)
{
	struct epoll_event events[4];
	int i, n = epoll_wait(l->epoll, events, 4, timeout);

	for (i = 0; i < n; i++) {
		if (events[i].data.fd == l->signals)
			take_signal(l);
		else if (events[i].data.fd == memreg_fd(l->b->m))
			take_events(l);
	}
	watch_time(l);
}

/*
 * The loop
 */

static unsigned int take_completions(struct blkd *b)
{
	union {
		struct ib_memreg_cqe cqe;
		char bytes[RING_ENTRY];
	} entry;
	const struct ib_memreg_cqe *next;
	unsigned int n = 0;

	/* the entry is given back first, so that there is room to post */
	while (n < RING_MAX && (next = memreg_ring_peek(&b->ring))) {
		memcpy(&entry, next, sizeof(entry));
		memreg_ring_seen(&b->ring, 1);
		cmd_completion(b, &entry.cqe);
		n++;
	}
	return n;
}

static unsigned int take_jobs(struct blkd *b)
{
	struct cmd *c, *next;
	unsigned int n = 0;

	for (c = jobs_take(b->jobs); c; c = next) {
		next = c->next;
		cmd_job_done(b, c);
		n++;
	}
	return n;
}

static bool turn(struct blkd *b)
{
	unsigned int n = take_completions(b) + take_jobs(b);

	b->turn++;
	cmds_run_waiting(b);
	batch_flush(b);
	conns_settle(b);
	return n;
}

/*
 * Nothing to do. How long it looks before it sleeps depends on whether it would
 * have been worth while the last time.
 */
static void rest(struct loop *l)
{
	int64_t now = now_ns();
	int64_t most = l->b->options.poll_ns;

	if (!l->b->ending && l->b->conns && now - l->worked < l->looking) {
		sched_yield();
		return;
	}
	look_around(l, sleep_ms(l));
	if (!memreg_ring_ready(&l->b->ring))
		return;
	now = now_ns() - l->worked;
	if (now > most)
		l->looking /= 2;
	else if (now > l->looking)
		l->looking = l->looking ? 2 * l->looking : POLL_FIRST;
	if (l->looking > most)
		l->looking = most;
}

static void run(struct loop *l)
{
	struct blkd *b = l->b;
	unsigned int turns = 0;

	while (!l->end && !b->gone) {
		if (turn(b)) {
			l->worked = now_ns();
			if (++turns % TURNS == 0)
				look_around(l, 0);
		} else if (b->stopping && !conns_busy(b)) {
			l->end = true;
		} else {
			rest(l);
		}
	}
	if (b->gone)
		l->ret = fail("the RDMA device is gone");
}

static bool watch(struct loop *l, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return !epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event);
}

/* End connections, and take what comes of that, until none is left */
static void end_conns(struct blkd *b)
{
	conns_end(b);
	while (b->conns)
		if (!turn(b))
			sched_yield();
}

static void sync_exports(struct blkd *b)
{
	unsigned int i;

	for (i = 0; i < b->nr_exports; i++)
		if (b->exports[i].fd >= 0 &&
		    !(b->exports[i].flags & IB_MEMREG_BLK_READ_ONLY) &&
		    fdatasync(b->exports[i].fd))
			fail("%s: %s", b->exports[i].path, strerror(errno));
}

static int serve(struct blkd *b)
{
	struct loop l = { .b = b, .signals = open_signals() };
	int ret;

	l.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l.signals < 0 || l.epoll < 0)
		return fail("%s", strerror(errno));
	ret = make_ready(b);
	if (ret == EXIT_GOOD &&
	    (!watch(&l, l.signals) || !watch(&l, memreg_fd(b->m)) ||
	     !watch(&l, b->ring.fd) || !watch(&l, jobs_fd(b->jobs))))
		ret = fail("epoll: %s", strerror(errno));
	if (ret == EXIT_GOOD) {
		b->start = now_ns();
		l.stats_at = b->options.stats_ns ?
			     b->start + b->options.stats_ns : 0;
		run(&l);
		end_conns(b);
		sync_exports(b);
		stats_say(b, "end");
		ret = l.ret;
	}
	give_back(b);
	close(l.epoll);
	close(l.signals);
	return ret;
}

/*
 * Options
 */

static void usage(void)
{
	puts("usage: memreg blkd [OPTIONS] [NAME=]PATH...\n"
	     "       memreg blkd [OPTIONS] --size BYTES\n"
	     "Serve files, block devices, and memory (memory:BYTES as PATH) as block\n"
	     "devices to clients that connect: ib_memreg_blk of the kernel, or what speaks\n"
	     "the protocol of <rdma/ib_memreg_blk.h>. Until SIGINT or SIGTERM.\n\n"
	     "  -d, --device DEVICE     RDMA device; may be left out if there is but one\n"
	     "  -a, --address ADDRESS   to listen on (0.0.0.0)\n"
	     "  -p, --port PORT         to listen on; 0 takes a free one ("
	     STR(IB_MEMREG_BLK_PORT) ")\n"
	     "  -s, --size BYTES        serve as much memory; K, M, G may follow\n"
	     "  -r, --read-only         refuse what changes something\n"
	     "  -b, --block-size BYTES  512 to 4096 (that of the disk, or 512)\n"
	     "  -n, --no-cache          files: what was answered is safe\n"
	     "  -w, --write-cache       memory: say that there is a cache, for tests\n"
	     "  -l, --max-length BYTES  most that a READ or WRITE may move (1M)\n"
	     "  -q, --queues-max N      connections of a client (64)\n"
	     "  -D, --depth-max N       commands in flight on a connection (128)\n"
	     "  -c, --clients-max N     clients that are remembered (64)\n"
	     "  -B, --buffers BYTES     memory that data of files goes through (32M)\n"
	     "  -t, --threads N         for file I/O that blocks (8)\n"
	     "  -P, --poll USEC         look for commands so long, at most, before sleeping\n"
	     "                          (100)\n"
	     "  -i, --interval SECONDS  print statistics so often; SIGUSR1 does it at once\n"
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
	{ "queues-max", required_argument, NULL, 'q' },
	{ "depth-max", required_argument, NULL, 'D' },
	{ "clients-max", required_argument, NULL, 'c' },
	{ "buffers", required_argument, NULL, 'B' },
	{ "threads", required_argument, NULL, 't' },
	{ "poll", required_argument, NULL, 'P' },
	{ "interval", required_argument, NULL, 'i' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* Options that are numbers, and what they may be */
static const struct number {
	int opt;
	const char *what;
	uint64_t min, max;
	size_t offset;		/* in struct blkd_options */
	size_t size;		/* of the field */
	int64_t unit;
} numbers[] = {
#define NUMBER(_opt, _what, _min, _max, _field, _unit)			\
	{ _opt, _what, _min, _max, offsetof(struct blkd_options, _field), \
	  sizeof(((struct blkd_options *)0)->_field), _unit }
	NUMBER('s', "a size", 512, INT64_MAX, size, 1),
	NUMBER('b', "a block size", 512, 4096, block_size, 1),
	NUMBER('l', "a length", 4096, IB_MEMREG_BLK_LENGTH_MAX, max_length, 1),
	NUMBER('q', "a number of queues", 1, IB_MEMREG_BLK_QUEUES_MAX,
	       queues_max, 1),
	NUMBER('D', "a depth", 1, IB_MEMREG_BLK_DEPTH_MAX, depth_max, 1),
	NUMBER('c', "a number of clients", 1, 65536, clients_max, 1),
	NUMBER('B', "a size of buffers", 4096, UINT64_C(1) << 36, buffers, 1),
	NUMBER('t', "a number of threads", 1, 1024, threads, 1),
	NUMBER('P', "a time", 0, 1000000, poll_ns, 1000),
	NUMBER('i', "an interval", 1, 1000000, stats_ns, SECOND),
};

static int set_number(struct blkd_options *o, int opt)
{
	const struct number *n = numbers;
	uint64_t value;

	while (n->opt != opt)
		n++;
	if (!parse_number(optarg, &value) || value < n->min || value > n->max)
		return bad_usage("%s is not %s from %" PRIu64 " to %" PRIu64,
				 optarg, n->what, n->min, n->max);
	value *= (uint64_t)n->unit;
	if (n->size == sizeof(uint32_t)) {
		uint32_t small = (uint32_t)value;

		memcpy((char *)o + n->offset, &small, sizeof(small));
	} else {
		memcpy((char *)o + n->offset, &value, sizeof(value));
	}
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
		o->port = optarg;
		return EXIT_GOOD;
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
		return bad_usage("the block size must be a power of two");
	if (o->max_length % 4096)
		return bad_usage("--max-length must be a multiple of 4096");
	if (o->buffers < o->max_length)
		return bad_usage("--buffers must hold a command of --max-length at least");
	if (o->no_cache && o->write_cache)
		return bad_usage("either --no-cache or --write-cache");
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
	ret = export_open(e, spec, &b->options);
	b->nr_exports++;	/* to be closed in any case */
	for (i = 0; ret == EXIT_GOOD && i + 1 < b->nr_exports; i++)
		if (!strcmp(b->exports[i].name, e->name))
			ret = bad_usage("two exports are called %s; give them names with NAME=PATH",
					e->name);
	return ret;
}

static int open_exports(struct blkd *b, char **words)
{
	char memory[32];
	int ret = EXIT_GOOD;

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
	.port = STR(IB_MEMREG_BLK_PORT),
	.max_length = 1 << 20,
	.queues_max = IB_MEMREG_BLK_QUEUES_MAX,
	.depth_max = 128,
	.clients_max = 64,
	.threads = 8,
	.buffers = 32 << 20,
	.poll_ns = 100000,
};

int cmd_blkd(int argc, char **argv)
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
		ret = serve(b);
	while (b->nr_exports)
		export_close(&b->exports[--b->nr_exports]);
out:
	free(b);
	return ret;
}
