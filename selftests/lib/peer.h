/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Owner and peer: what tests need that have a stock verbs peer prove what the
 * owner's calls do.
 *
 * The test is the owner: it runs in the network namespace memreg-owner, and
 * uses the library. The peer is the example program verbs_peer, which knows
 * nothing of memreg; it runs in memreg-peer, takes commands through a pipe and
 * answers each with one line. Nothing waits without a limit.
 *
 * Functions that take _metadata fail the test themselves.
 */
#ifndef SELFTESTS_PEER_H
#define SELFTESTS_PEER_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "memreg.h"
#include "memreg_fixture.h"
#include "harness.h"

#define OWNER_DEVICE	"rxe_owner"
#define OWNER_IP4	"192.0.2.1"
#define OWNER_IP6	"fd00:6d72::1"
#define PEER_IP4	"192.0.2.2"
#define PEER_IP6	"fd00:6d72::2"

/* A limit, for an emulated machine that others use as well */
#define LIMIT_MS	60000
#define LIMIT_S		240

#define READ_WRITE	(IB_MEMREG_ACCESS_REMOTE_READ | \
			 IB_MEMREG_ACCESS_REMOTE_WRITE)
#define FOR_WINDOWS	(IB_MEMREG_ACCESS_LOCAL_WRITE | \
			 IB_MEMREG_ACCESS_MW_BIND)

/*
 * Surroundings
 */

/* A path in the source tree, in which this program is build/selftests/NAME */
static inline const char *tree_path(const char *path)
{
	static char full[PATH_MAX + 256];
	char exe[PATH_MAX] = "";

	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
		return path;
	snprintf(full, sizeof(full), "%s/../../%s", dirname(exe), path);
	return full;
}

/* Run a command of the shell that knows the functions of topology.sh */
__attribute__((format(printf, 1, 2)))
static inline int shell(const char *format, ...)
{
	char command[PATH_MAX + 1024];
	va_list ap;
	int n, status;

	n = snprintf(command, sizeof(command), "exec bash -c '. %s; ",
		     tree_path("selftests/lib/topology.sh"));
	va_start(ap, format);
	n += vsnprintf(command + n, sizeof(command) - n, format, ap);
	va_end(ap);
	snprintf(command + n, sizeof(command) - n, "' >&2");
	fflush(NULL);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline int enter_namespace(const char *name)
{
	char path[64];
	int fd, ret;

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = setns(fd, CLONE_NEWNET) ? -errno : 0;
	close(fd);
	return ret;
}

static inline void leave_topology(void)
{
	shell("topology_down");
}

/*
 * Every test process is a child of this one, and stays in its namespace. What
 * was there before stays.
 */
static inline void enter_topology(void)
{
	bool found = !shell("topology_ready");

	if (!found && shell("topology_up"))
		ksft_exit_fail_msg("no network for owner and peer\n");
	if (!found)
		atexit(leave_topology);
	if (enter_namespace("memreg-owner"))
		ksft_exit_fail_msg("no namespace of the owner\n");
}

#define PEER_HARNESS_MAIN						\
	int main(int argc, char **argv)					\
	{								\
		enter_topology();					\
		return test_harness_run(argc, argv);			\
	}

/*
 * Memory: a copy tells what it should hold
 */

struct arena {
	uint8_t *mem;
	uint8_t *copy;
	size_t len;
};

static inline uint8_t pattern(size_t i, unsigned int seed)
{
	return (uint8_t)((i * 2654435761U >> 13) + seed);
}

static inline void arena_fill(struct arena *a, unsigned int seed)
{
	size_t i;

	for (i = 0; i < a->len; i++)
		a->copy[i] = pattern(i, seed);
	memcpy(a->mem, a->copy, a->len);
}

/* Shared memory, so that it can be looked at after its owner's death */
static inline void arena_make(struct __test_metadata *_metadata,
			      struct arena *a, size_t len)
{
	a->len = len;
	a->mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, a->mem);
	a->copy = malloc(len);
	ASSERT_NE(NULL, a->copy);
	arena_fill(a, 0);
}

static inline void arena_free(struct arena *a)
{
	munmap(a->mem, a->len);
	free(a->copy);
}

/* All of it is as it should be, and not only where a peer was at work */
static inline void arena_check(struct __test_metadata *_metadata,
			       const struct arena *a)
{
	size_t i;

	if (!memcmp(a->mem, a->copy, a->len))
		return;
	for (i = 0; a->mem[i] == a->copy[i]; i++)
		;
	ASSERT_EQ(a->copy[i], a->mem[i])
		TH_LOG("byte %zu of %zu", i, a->len);
}

/* The CRC-32 that verbs_peer tells of what it read */
static inline uint32_t crc32_of(const uint8_t *data, size_t len)
{
	static uint32_t table[256];
	uint32_t crc = ~0U, c;
	int i, bit;

	for (i = 0; i < 256 && !table[255]; i++) {
		for (bit = 0, c = i; bit < 8; bit++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
		table[i] = c;
	}
	while (len--)
		crc = table[(crc ^ *data++) & 0xff] ^ crc >> 8;
	return ~crc;
}

/*
 * The peer
 */

struct peer {
	pid_t pid;
	int in;			/* its standard input */
	int out;		/* its standard output */
	char line[4096];	/* its last answer */
	char rest[4096];	/* what came after it */
	size_t rest_len;
};

static inline void peer_exec(const int in[2], const int out[2],
			     const char *command)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(in[0], STDIN_FILENO);
	dup2(out[1], STDOUT_FILENO);
	if (!enter_namespace("memreg-peer"))
		execl("/bin/sh", "sh", "-c", command, NULL);
	perror("sh");
	_exit(127);
}

/* Start it with options, which may be NULL; it tries to connect at once */
static inline void peer_start(struct __test_metadata *_metadata,
			      struct peer *p, const char *ip, unsigned int port,
			      const char *options)
{
	char command[PATH_MAX + 512];
	int in[2], out[2];

	/* It may have to wait while others are begun. */
	snprintf(command, sizeof(command),
		 "exec %s --interactive -t %u -c %u %s %s %u",
		 tree_path("build/user/examples/verbs_peer"), LIMIT_MS / 2,
		 2 * LIMIT_MS, options ?: "", ip, port);
	ASSERT_EQ(0, pipe2(in, O_CLOEXEC));
	ASSERT_EQ(0, pipe2(out, O_CLOEXEC));
	memset(p, 0, sizeof(*p));
	p->pid = fork();
	ASSERT_LE(0, p->pid);
	if (!p->pid)
		peer_exec(in, out, command);
	close(in[0]);
	close(out[1]);
	p->in = in[1];
	p->out = out[0];
}

/* Wait for it, and don't let it live if that takes too long */
static inline void peer_reap(struct peer *p)
{
	struct pollfd pfd = {
		.fd = (int)syscall(SYS_pidfd_open, p->pid, 0),
		.events = POLLIN,
	};

	if (pfd.fd < 0 || poll(&pfd, 1, LIMIT_MS) != 1)
		kill(p->pid, SIGKILL);
	if (pfd.fd >= 0)
		close(pfd.fd);
	waitpid(p->pid, NULL, 0);
}

/* End it; without its being asked if @sig is not 0 */
static inline void peer_stop(struct peer *p, int sig)
{
	if (!p->pid)
		return;
	close(p->in);
	if (sig)
		kill(p->pid, sig);
	peer_reap(p);
	close(p->out);
	p->pid = 0;
}

__attribute__((format(printf, 3, 4)))
static inline void peer_tell(struct __test_metadata *_metadata, struct peer *p,
			     const char *format, ...)
{
	char line[2048];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(line, sizeof(line) - 1, format, ap);
	va_end(ap);
	line[n++] = '\n';
	ASSERT_EQ(n, write(p->in, line, n));
}

/* Take a line out of what was read */
static inline bool peer_take(struct peer *p)
{
	char *end = memchr(p->rest, '\n', p->rest_len);
	size_t n;

	if (!end)
		return false;
	n = end - p->rest;
	memcpy(p->line, p->rest, n);
	p->line[n++] = '\0';
	p->rest_len -= n;
	memmove(p->rest, p->rest + n, p->rest_len);
	return true;
}

/* Wait for its next line */
static inline const char *peer_answer(struct __test_metadata *_metadata,
				      struct peer *p)
{
	struct pollfd pfd = { .fd = p->out, .events = POLLIN };
	ssize_t n;

	while (!peer_take(p)) {
		ASSERT_EQ(1, poll(&pfd, 1, LIMIT_MS))
			TH_LOG("the peer's last line: %s", p->line);
		n = read(p->out, p->rest + p->rest_len,
			 sizeof(p->rest) - p->rest_len);
		ASSERT_LT(0, n)
			TH_LOG("the peer's last line: %s", p->line);
		p->rest_len += n;
	}
	return p->line;
}

#define peer_ask(_metadata, p, ...)					\
	(peer_tell(_metadata, p, __VA_ARGS__), peer_answer(_metadata, p))

/* Value of a key in its last answer, "" if there is none */
static inline const char *peer_value(struct peer *p, const char *key)
{
	static char value[4096];
	char word[32], *at;

	snprintf(word, sizeof(word), " %s=", key);
	at = strstr(p->line, word);
	value[0] = '\0';
	if (at)
		sscanf(at + strlen(word), "%4095s", value);
	return value;
}

static inline uint64_t peer_number(struct peer *p, const char *key)
{
	return strtoull(peer_value(p, key), NULL, 0);
}

#define ASSERT_PEER(status, p)						\
	ASSERT_STREQ(status, peer_value(p, "status"))			\
		TH_LOG("the peer said: %s", (p)->line)

/*
 * The owner
 */

struct owner {
	struct memreg *m;
	uint32_t domain;
	uint32_t listener;
	unsigned int port;
};

/* An IP address of either kind; NULL is IPv6's wildcard */
static inline struct sockaddr *ip_address(const char *ip, unsigned int port,
					  struct sockaddr_storage *ss)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *in = (struct sockaddr_in *)ss;

	memset(ss, 0, sizeof(*ss));
	if (ip && inet_pton(AF_INET, ip, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		return (struct sockaddr *)ss;
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	if (ip)
		inet_pton(AF_INET6, ip, &in6->sin6_addr);
	return (struct sockaddr *)ss;
}

static inline void owner_listen(struct __test_metadata *_metadata,
				struct owner *o, const char *ip,
				unsigned int backlog)
{
	struct sockaddr_storage ss;
	struct sockaddr *addr = ip_address(ip, 0, &ss);

	ASSERT_EQ(0, memreg_listen(o->m, addr, backlog, &o->listener))
		TH_LOG("%s", memreg_reason());
	/* The same place in both kinds of addresses */
	o->port = ntohs(((struct sockaddr_in *)addr)->sin_port);
}

/* With one domain, and a listener at IPv4's address */
static inline void owner_open(struct __test_metadata *_metadata,
			      struct owner *o)
{
	ASSERT_EQ(0, memreg_open(OWNER_DEVICE, &o->m))
		TH_LOG("%s", memreg_reason());
	ASSERT_EQ(0, memreg_domain_create(o->m, 0, &o->domain))
		TH_LOG("%s", memreg_reason());
	owner_listen(_metadata, o, OWNER_IP4, 16);
}

static inline void owner_close(struct owner *o)
{
	memreg_close(o->m);
	o->m = NULL;
}

/* The next event is of this type; returns its endpoint */
static inline uint32_t owner_await(struct __test_metadata *_metadata,
				   struct owner *o, uint32_t type,
				   struct ib_memreg_event *event)
{
	struct ib_memreg_event local;

	event = event ?: &local;
	ASSERT_EQ(0, memreg_get_event(o->m, event, LIMIT_MS))
		TH_LOG("no event of type %u: %s", type, memreg_reason());
	ASSERT_EQ(type, event->type)
		TH_LOG("endpoint %u, status %d", event->endpoint_id,
		       event->status);
	ASSERT_EQ(sizeof(*event), event->size);
	return event->endpoint_id;
}

static inline void owner_no_event(struct __test_metadata *_metadata,
				  struct owner *o)
{
	struct ib_memreg_event event;

	ASSERT_EQ(-EAGAIN, memreg_get_event(o->m, &event, 0))
		TH_LOG("event of type %u", event.type);
}

/* Accept a request with a grant, which may be NULL */
static inline void owner_accept(struct __test_metadata *_metadata,
				struct owner *o, uint32_t endpoint,
				uint32_t domain, const struct memreg_grant *g)
{
	uint8_t data[MEMREG_GRANT_SIZE];

	if (g)
		memreg_grant_encode(g, data);
	ASSERT_EQ(0, memreg_accept(o->m, endpoint, domain, data,
				   g ? sizeof(data) : 0))
		TH_LOG("%s", memreg_reason());
	owner_await(_metadata, o, IB_MEMREG_EVENT_ESTABLISHED, NULL);
}

/* Let in a peer that is about to connect; returns its endpoint */
static inline uint32_t owner_admit(struct __test_metadata *_metadata,
				   struct owner *o, struct peer *p,
				   uint32_t domain,
				   const struct memreg_grant *g)
{
	uint32_t endpoint;

	endpoint = owner_await(_metadata, o, IB_MEMREG_EVENT_CONNECT_REQUEST,
			       NULL);
	owner_accept(_metadata, o, endpoint, domain, g);
	peer_answer(_metadata, p);
	ASSERT_EQ(0, strncmp(p->line, "connected ", 10))
		TH_LOG("the peer said: %s", p->line);
	return endpoint;
}

/* After an access error a peer has to connect anew; returns its new endpoint */
static inline uint32_t owner_admit_again(struct __test_metadata *_metadata,
					 struct owner *o, struct peer *p,
					 uint32_t endpoint)
{
	peer_ask(_metadata, p, "disconnect");
	owner_await(_metadata, o, IB_MEMREG_EVENT_DISCONNECTED, NULL);
	ASSERT_EQ(0, memreg_destroy(o->m, endpoint));
	peer_tell(_metadata, p, "conn");
	return owner_admit(_metadata, o, p, o->domain, NULL);
}

/* Bind one window, for an endpoint or for 0, and describe the grant */
static inline void owner_bind(struct __test_metadata *_metadata,
			      struct owner *o, uint32_t domain,
			      struct ib_memreg_bind *bind,
			      struct memreg_grant *g)
{
	ASSERT_EQ(0, memreg_window_bind(o->m, domain, bind))
		TH_LOG("%s", memreg_reason());
	ASSERT_NE(0, bind->out_rkey);
	*g = (struct memreg_grant) {
		.iova = bind->out_iova,
		.length = bind->length,
		.rkey = bind->out_rkey,
		.access = bind->access,
	};
}

#endif /* SELFTESTS_PEER_H */
