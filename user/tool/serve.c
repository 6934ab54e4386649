// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg serve: grant windows on memory to the peers that connect */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "serve.h"

#define SHOW_DEFAULT	64
#define PORT_DEFAULT	7471

static int begin_to_listen(struct server *s)
{
	struct memreg_device device;
	struct ib_memreg_addr bound;

	if (memreg_query_device(s->m, &device))
		return fail("%s", memreg_reason());
	if (s->exports) {
		if (exports_listen(s, &bound) != EXIT_GOOD)
			return EXIT_FAILED;
	} else {
		s->listener = listen_at(s->m, s->address, s->port, 16, &bound);
		if (!s->listener)
			return EXIT_FAILED;
	}
	report_serving(s, device.name, &bound);
	return EXIT_GOOD;
}

/*
 * Commands on standard input
 */

/* Parse a number of a command; false after an error message */
static bool parse(const struct server *s, const char *word,
		  const struct number *n, uint64_t *value)
{
	const char *why;

	if (read_number(word, n, value, &why))
		return true;
	report_text(s, "%s", why);
	return false;
}

static bool parse_peer(const struct server *s, const char *word, uint32_t *id)
{
	static const struct number peer = { "PEER", UNIT_COUNT, 1, UINT32_MAX };
	uint64_t n = 0;

	if (word && strcmp(word, "all") && !parse(s, word, &peer, &n))
		return false;
	*id = (uint32_t)n;
	return true;
}

static void show(struct server *s, const char *from, const char *bytes)
{
	const struct number start = { "OFFSET", UNIT_BYTES, 0, s->size };
	static const struct number length = {
		"LENGTH", UNIT_BYTES, 0, UINT64_MAX,
	};
	uint64_t offset = 0, len = SHOW_DEFAULT;

	if ((from && !parse(s, from, &start, &offset)) ||
	    (bytes && !parse(s, bytes, &length, &len)))
		return;
	if (!memory_is_there(s, "show"))
		return;
	if (len > s->size - offset)
		len = s->size - offset;
	report_shown(s, offset, len);
}

static void set(struct server *s, const char *at, const char *text)
{
	const struct number start = { "OFFSET", UNIT_BYTES, 0, s->size };
	uint64_t offset;

	if (!at || !text) {
		report_text(s, "set needs OFFSET and TEXT");
		return;
	}
	if (!may_write(s)) {
		report_text(s, "set: %s is mapped read-only; --access read,write maps it otherwise",
			    s->file);
		return;
	}
	if (!parse(s, at, &start, &offset))
		return;
	if (strlen(text) > s->size - offset) {
		report_text(s, "set: %zu bytes at %" PRIu64
			    " end behind the %" PRIu64 " that are served",
			    strlen(text), offset, s->size);
		return;
	}
	if (!memory_is_there(s, "set"))
		return;
	memcpy(s->memory + offset, text, strlen(text));
	report_set(s, offset, strlen(text));
}

static void command_peers(struct server *s, const char *who,
			  void (*act)(struct server *s, uint32_t id))
{
	uint32_t id;

	if (parse_peer(s, who, &id))
		act(s, id);
}

static void fail_command(const struct server *s, const char *word)
{
	static const char *const words[] = {
		"revoke", "disconnect", "list", "show", "set", "quit",
	};
	struct suggestion nearest = { .word = word };
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		suggest(&nearest, words[i]);
	if (nearest.name)
		report_text(s, "there is no command %.20s: did you mean %s?",
			    word, nearest.name);
	else
		report_text(s, "there is no command %.20s, but revoke [PEER|all], disconnect [PEER|all], list, show [OFFSET [LENGTH]], set OFFSET TEXT, quit",
			    word);
}

static void command(struct server *s, char *line)
{
	char *save, *word = strtok_r(line, " \t\r\n", &save);
	char *first = word ? strtok_r(NULL, " \t\r\n", &save) : NULL;
	char *rest = first ? strtok_r(NULL, "\r\n", &save) : NULL;

	if (!word)
		return;
	if (!strcmp(word, "revoke"))
		command_peers(s, first, peers_revoke);
	else if (!strcmp(word, "disconnect"))
		command_peers(s, first, peers_disconnect);
	else if (!strcmp(word, "list"))
		peers_print(s);
	else if (!strcmp(word, "show"))
		show(s, first, rest);
	else if (!strcmp(word, "set"))
		set(s, first, rest);
	else if (!strcmp(word, "quit"))
		s->quit = true;
	else
		fail_command(s, word);
}

struct input {
	char text[1024];
	size_t len;
	bool drop;		/* the rest of the line */
};

/* Run the complete lines of the input; false at the end of file */
static bool take_input(struct server *s, struct input *in)
{
	ssize_t n = read(STDIN_FILENO, in->text + in->len,
			 sizeof(in->text) - 1 - in->len);
	char *end;

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	in->len += (size_t)n;
	while ((end = memchr(in->text, '\n', in->len))) {
		size_t used = (size_t)(end - in->text) + 1;

		*end = '\0';
		if (!in->drop)
			command(s, in->text);
		in->drop = false;
		in->len -= used;
		memmove(in->text, in->text + used, in->len);
	}
	if (in->len == sizeof(in->text) - 1) {
		if (!in->drop)
			report_text(s, "a command has %zu bytes at most",
				    sizeof(in->text) - 2);
		in->drop = true;
		in->len = 0;
	}
	return true;
}

/*
 * The loop
 */

static int open_signals(void)
{
	sigset_t set_;

	sigemptyset(&set_);
	sigaddset(&set_, SIGINT);
	sigaddset(&set_, SIGTERM);
	sigaddset(&set_, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set_, NULL);
	/* the terminal's input is not for us in the background: EIO then */
	signal(SIGTTIN, SIG_IGN);
	return signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void take_signal(struct server *s, int fd)
{
	struct signalfd_siginfo info;

	if (read(fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGUSR1)
		peers_revoke(s, 0);
	else
		s->quit = true;
}

static int take_events(struct server *s)
{
	struct ib_memreg_event event;
	int ret;

	while (!s->quit && !(ret = memreg_get_event(s->m, &event, 0)))
		peers_event(s, &event);
	if (!s->quit && ret != -EAGAIN && ret != -EINTR)
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

static int loop(struct server *s, int signals)
{
	struct pollfd pfd[4] = {
		{ .fd = memreg_fd(s->m), .events = POLLIN },
		{ .fd = signals, .events = POLLIN },
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = exports_fd(s), .events = POLLIN },
	};
	struct input in = { .len = 0 };
	int ret = EXIT_GOOD;

	while (!s->quit && ret == EXIT_GOOD) {
		if (poll(pfd, 4, peers_expire(s)) < 0) {
			if (errno == EINTR)
				continue;
			return fail("poll: %s", strerror(errno));
		}
		if (pfd[1].revents)
			take_signal(s, signals);
		/* without input it goes on, until a signal ends it */
		if (pfd[2].revents && !take_input(s, &in))
			pfd[2].fd = -1;
		if (pfd[3].revents)
			exports_events(s);
		if (pfd[0].revents)
			ret = take_events(s);
	}
	return ret;
}

static int serve(struct server *s)
{
	int ret, signals = open_signals();

	if (signals < 0)
		return fail("signalfd: %s", strerror(errno));
	ret = open_device(s->device, s->address, true, &s->m);
	if (ret != EXIT_GOOD)
		return ret;
	if (s->exports)
		ret = exports_check(s);
	if (ret == EXIT_GOOD)
		ret = make_memory(s);
	if (ret == EXIT_GOOD)
		ret = begin_to_listen(s);
	if (ret == EXIT_GOOD) {
		ret = loop(s, signals);
		peers_end(s);
		report_end(s);
	}
	exports_end(s);
	if (memreg_pool_destroy(s->pool))
		ret = fail("%s", memreg_reason());
	memreg_close(s->m);
	close(signals);
	if (s->fd >= 0)
		close(s->fd);
	return s->failed ? EXIT_FAILED : ret;
}

/*
 * Options
 */

static void usage(void)
{
	puts("usage: memreg serve [OPTIONS]\n"
	     "Register memory, listen, and grant a window on it to each peer that\n"
	     "connects: accepted with 32 bytes of private data that hold address, length\n"
	     "and rkey, see libmemreg(7). Reports who comes and goes, until SIGINT or SIGTERM.\n"
	     "Peers may READ, and WRITE as well unless it is a file's memory: see --access.\n\n"
	     "  -d, --device DEVICE     RDMA device (that of ADDRESS, or the only one)\n"
	     "  -a, --address ADDRESS   to listen on (0.0.0.0: anybody may connect)\n"
	     "  -p, --port PORT         to listen on; 0 takes a free one (7471)\n"
	     "  -f, --file PATH         serve a file's memory, read-only unless --access says\n"
	     "                          otherwise, for which it must be on tmpfs or hugetlbfs\n"
	     "  -s, --size BYTES        serve as much; K, M, G may follow (1M, or the file's)\n"
	     "  -P, --pool COUNTxSIZE   serve buffers of a pool: each peer gets one of its own,\n"
	     "                          as long as there are any, instead of a window\n"
	     "      --export            serve on queue pairs of libibverbs: all peers get the\n"
	     "                          key of an export; `memreg caps` has export-register\n"
	     "  -r, --read-only         the same as --access read\n"
	     "  -A, --access LIST       of read, write, atomic (read,write; of a file: read)\n"
	     "  -t, --revoke-after TIME revoke each window so long after its peer came\n"
	     "      --domain-per-peer   a key is good for its own peer only (default)\n"
	     "      --shared            one domain for all peers\n"
	     "  -1, --once              end when the first peer has gone\n"
	     "  -j, --json              report in JSON objects, one a line\n"
	     "  -h, --help\n\n"
	     "SIGUSR1 revokes all windows, or the export. Commands on standard input, one a line:\n"
	     "  revoke [PEER|all]       kill the rkey of a peer; its connection stays\n"
	     "  disconnect [PEER|all]   end the connection, too\n"
	     "  list                    peers\n"
	     "  show [OFFSET [LENGTH]]  what is in the memory\n"
	     "  set OFFSET TEXT         put something there\n"
	     "  quit");
}

static uint32_t access_flag(const char *word)
{
	if (!strcmp(word, "read"))
		return IB_MEMREG_ACCESS_REMOTE_READ;
	if (!strcmp(word, "write"))
		return IB_MEMREG_ACCESS_REMOTE_WRITE;
	if (!strcmp(word, "atomic"))
		return IB_MEMREG_ACCESS_REMOTE_ATOMIC;
	return 0;
}

static int parse_access(char *list, uint32_t *access)
{
	char *save, *word;
	uint32_t flag;

	*access = 0;
	for (word = strtok_r(list, ",", &save); word;
	     word = strtok_r(NULL, ",", &save)) {
		flag = access_flag(word);
		if (!flag)
			return bad_usage("--access '%.80s': it takes read, write and atomic, with commas between",
					 word);
		*access |= flag;
	}
	return *access ? EXIT_GOOD :
		bad_usage("--access '': it takes read, write and atomic, with commas between");
}

/* COUNTxSIZE */
static int parse_pool(char *word, struct server *s)
{
	static const struct number count = {
		"--pool COUNT", UNIT_COUNT, 1, IB_MEMREG_POOL_MAX,
	}, size = {
		"--pool SIZE", UNIT_BYTES, 1, UINT64_C(1) << 31,
	};
	char *x = strchr(word, 'x');
	int ret;

	if (!x)
		return bad_usage("--pool '%.80s': it takes COUNTxSIZE, such as 64x4K",
				 word);
	*x = '\0';
	ret = take_number(word, &count, &s->buffers);
	return ret == EXIT_GOOD ?
		take_number(x + 1, &size, &s->buffer_size) : ret;
}

static int set_revoke_after(struct server *s)
{
	static const struct number time = {
		"--revoke-after", UNIT_SECONDS, 0, 1000000000 * NS_PER_S,
	};
	uint64_t ns;
	int ret = take_number(optarg, &time, &ns);

	if (ret == EXIT_GOOD)
		s->revoke_after = (int64_t)(ns / NS_PER_MS);
	return ret;
}

enum { OPT_PER_PEER = 256, OPT_SHARED, OPT_EXPORT };

static const struct option options[] = {
	{ "device", required_argument, NULL, 'd' },
	{ "address", required_argument, NULL, 'a' },
	{ "port", required_argument, NULL, 'p' },
	{ "file", required_argument, NULL, 'f' },
	{ "size", required_argument, NULL, 's' },
	{ "pool", required_argument, NULL, 'P' },
	{ "export", no_argument, NULL, OPT_EXPORT },
	{ "read-only", no_argument, NULL, 'r' },
	{ "access", required_argument, NULL, 'A' },
	{ "revoke-after", required_argument, NULL, 't' },
	{ "domain-per-peer", no_argument, NULL, OPT_PER_PEER },
	{ "shared", no_argument, NULL, OPT_SHARED },
	{ "once", no_argument, NULL, '1' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static int set_option(void *ctx, int opt)
{
	static const struct number size = {
		"--size", UNIT_BYTES, 1, INT64_MAX,
	};
	struct server *s = ctx;

	switch (opt) {
	case 'd':
		s->device = optarg;
		return EXIT_GOOD;
	case 'a':
		s->address = optarg;
		return EXIT_GOOD;
	case 'p':
		return take_port(optarg, true, &s->port);
	case 'f':
		s->file = optarg;
		return EXIT_GOOD;
	case 's':
		return take_number(optarg, &size, &s->size);
	case 'P':
		return parse_pool(optarg, s);
	case 'r':
		s->access = IB_MEMREG_ACCESS_REMOTE_READ;
		return EXIT_GOOD;
	case 'A':
		return parse_access(optarg, &s->access);
	case 't':
		return set_revoke_after(s);
	case OPT_PER_PEER:
	case OPT_SHARED:
		s->shared = opt == OPT_SHARED;
		s->per_peer = opt == OPT_PER_PEER;
		return EXIT_GOOD;
	case OPT_EXPORT:
		s->exports = true;
		return EXIT_GOOD;
	case 'j':
		s->json = true;
		return EXIT_GOOD;
	default:
		s->once = true;
		return EXIT_GOOD;
	}
}

int cmd_serve(int argc, char **argv)
{
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
	};
	struct server s = {
		.address = "0.0.0.0",
		.port = PORT_DEFAULT,
		.fd = -1,
		.revoke_after = -1,
	};
	int ret = parse_options(argc, argv, &syntax, &s);

	if (ret >= 0)
		return ret;
	if (s.exports && (s.buffers || s.per_peer || s.shared))
		return bad_usage("--export has one export for all peers: --pool, --domain-per-peer and --shared are not for it");
	if (s.buffers && (s.file || s.size || s.per_peer))
		return bad_usage("--pool has memory, and one domain, of its own: --file, --size and --domain-per-peer are not for it");
	if (s.buffers)
		s.shared = true;
	/* a file is not written to by chance */
	if (!s.access)
		s.access = IB_MEMREG_ACCESS_REMOTE_READ |
			   (s.file ? 0 : IB_MEMREG_ACCESS_REMOTE_WRITE);
	s.mr.access = s.exports ? 0 : IB_MEMREG_ACCESS_MW_BIND;
	/* an export is of memory that may be written to */
	if (!s.file || s.exports || s.access & ~IB_MEMREG_ACCESS_REMOTE_READ)
		s.mr.access |= IB_MEMREG_ACCESS_LOCAL_WRITE;
	return serve(&s);
}
