// SPDX-License-Identifier: GPL-2.0-only
/* The process that is a stock peer. */
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include "net.h"
#include "peer.h"
#include "test.h"

static void peer_exec(const int in[2], const int out[2], const char *command)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(in[0], STDIN_FILENO);
	dup2(out[1], STDOUT_FILENO);
	if (!enter_namespace(PEER_NETNS))
		execl("/bin/sh", "sh", "-c", command, NULL);
	perror("sh");
	_exit(127);
}

void peer_start(struct __test_metadata *_metadata, struct peer *p,
		const char *ip, unsigned int port, const char *options)
{
	char command[PATH_MAX + 512];
	int in[2], out[2];

	/*
	 * The peer's time limit allows for the start of other peers before it
	 * is served.
	 */
	snprintf(command, sizeof(command),
		 "exec %s --interactive -t %u -c %u %s %s %u",
		 tree_path("build/user/peer/verbs_peer"), LIMIT_MS / 2,
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

/* Wait for the peer's exit, and kill it if that takes too long. */
static void peer_reap(struct peer *p)
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

void peer_stop(struct peer *p, int sig)
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

void peer_tell(struct __test_metadata *_metadata, struct peer *p,
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

/* Take a line from the output read so far */
static bool peer_take(struct peer *p)
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

const char *peer_answer(struct __test_metadata *_metadata, struct peer *p)
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

const char *peer_value(struct peer *p, const char *key)
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

uint64_t peer_number(struct peer *p, const char *key)
{
	return strtoull(peer_value(p, key), NULL, 0);
}
