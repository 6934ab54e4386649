// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memreg blkd: serve files, disks and memory as block devices, by the protocol
 * of <rdma/ib_memreg_blk.h>.
 *
 * A turn of the loop takes all pending completions, handles them, and posts the
 * resulting work requests in one call. When there is nothing to do it polls the
 * ring for a while before it sleeps: for as long as polling was successful
 * lately.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "blkd.h"

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
	bool slept;		/* until there were completions */
	int64_t refresh_at;
	int64_t stats_at;
	int64_t stop_at;
	bool end;
	int ret;
};

/*
 * Making ready
 */

/* A message is one work request, with pages that it may begin within */
static void limit_inline(struct blkd *b)
{
	uint32_t most = b->fragments > 2 ? (b->fragments - 2) * BLKD_PAGE : 0;

	if (b->options.inline_max > most)
		b->options.inline_max = most;
}

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
	limit_inline(b);
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

/*
 * Report a state to the service manager that $NOTIFY_SOCKET is of, as
 * sd_notify(3) does.
 */
static void notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (!len || len >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, len);
	if (*path == '@')
		to.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 ||
	    sendto(fd, state, strlen(state), MSG_NOSIGNAL,
		   (struct sockaddr *)&to,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) <
	    0)
		fail("$NOTIFY_SOCKET: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
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
	struct memreg_device device;
	struct ib_memreg_addr bound;
	char at[ADDRESS_TEXT];
	unsigned int i;

	if (memreg_query_device(b->m, &device))
		return fail("%s", memreg_reason());
	if (!listen_at(b->m, b->options.address, b->options.port, BACKLOG,
		       &bound))
		return EXIT_FAILED;
	for (i = 0; i < b->nr_exports; i++)
		say_export(&b->exports[i]);
	say("serving on %s, address %s", device.name,
	    place_text(&bound, at));
	notify("READY=1");
	return EXIT_GOOD;
}

static int make_ready(struct blkd *b)
{
	unsigned int i;
	int ret;

	ret = open_device(b->options.device, b->options.address, true, &b->m);
	if (ret != EXIT_GOOD)
		return ret;
	if (memreg_domain_create(b->m, 0, &b->domain))
		return fail("%s", memreg_reason());
	ret = query_limits(b);
	for (i = 0; i < b->nr_exports && ret == EXIT_GOOD; i++)
		ret = export_register(&b->exports[i], b->m, b->domain);
	if (ret == EXIT_GOOD)
		ret = get_buffers(b);
	if (ret == EXIT_GOOD) {
		b->jobs = jobs_start(b->options.threads, b->nr_exports);
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
	/* a write beyond RLIMIT_FSIZE fails, and is no reason to die */
	signal(SIGXFSZ, SIG_IGN);
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

/*
 * Finish commands in progress; on a second signal, without waiting for replies.
 * The port is kept until then, so that no other server can use it before:
 * pending writes of threads could land after newer writes that the other server
 * gets.
 */
static void stop(struct loop *l)
{
	struct blkd *b = l->b;

	if (b->stopping) {
		l->end = true;
		return;
	}
	say("stopping");
	notify("STOPPING=1");
	b->stopping = true;
	l->stop_at = now_ns() + STOP_TIME;
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

static unsigned int take_completions(struct blkd *b)
{
	union {
		struct ib_memreg_cqe cqe;
		char bytes[RING_ENTRY];
	} entry;
	const struct ib_memreg_cqe *next;
	unsigned int n = 0;

	/* the entry is released first, so that there is room to post */
	while (n < RING_MAX && (next = memreg_ring_peek(&b->ring))) {
		memcpy(&entry, next, sizeof(entry));
		memreg_ring_seen(&b->ring, 1);
		cmd_completion(b, &entry.cqe);
		n++;
	}
	return n;
}

static void watch_time(struct loop *l)
{
	int64_t now = now_ns();

	if (now >= l->refresh_at) {
		l->refresh_at = now + REFRESH;
		refresh(l->b);
		/* what came by now counts, though it was not seen yet */
		take_completions(l->b);
		conns_watch(l->b, now);
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

/* How many things there were to do */
static unsigned int turn(struct blkd *b)
{
	unsigned int n = take_completions(b) + take_jobs(b);

	b->turn++;
	cmds_run_waiting(b);
	batch_flush(b);
	conns_advance(b);
	return n;
}

/*
 * There is nothing to do. Poll before sleeping, for longer if polling was
 * successful last time.
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
	l->slept = true;
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
	unsigned int turns = 0, n;

	while (!l->end && !b->gone) {
		n = turn(b);
		if (n) {
			l->worked = now_ns();
			if (l->slept)
				follow_completions(b, n);
			l->slept = false;
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

/* End all connections, and process completions until none is left. */
static void end_conns(struct blkd *b)
{
	struct pollfd pfd = { .fd = jobs_fd(b->jobs), .events = POLLIN };

	conns_end(b);
	while (b->conns)
		if (!turn(b) && !b->ending)
			poll(&pfd, 1, -1);
}

static int sync_exports(struct blkd *b)
{
	int ret = EXIT_GOOD;
	unsigned int i;

	for (i = 0; i < b->nr_exports; i++)
		if (!io_end(&b->exports[i]))
			ret = EXIT_FAILED;
	return ret;
}

int blkd_serve(struct blkd *b)
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
		ret = sync_exports(b);
		stats_say(b, "end");
		if (l.ret)
			ret = l.ret;
	}
	give_back(b);
	close(l.epoll);
	close(l.signals);
	return ret;
}
