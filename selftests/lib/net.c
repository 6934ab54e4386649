// SPDX-License-Identifier: GPL-2.0-only
/* The network namespaces of owner and peer, and paths from a test's program. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "net.h"

const char *tree_path(const char *path)
{
	static char full[PATH_MAX + 256];
	char exe[PATH_MAX] = "";

	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
		return path;
	snprintf(full, sizeof(full), "%s/../../%s", dirname(exe), path);
	return full;
}

int shell(const char *format, ...)
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

int enter_namespace(const char *name)
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

static void leave_topology(void)
{
	shell("topology_down");
}

void enter_topology(void)
{
	bool found = !shell("topology_ready");

	if (!found && shell("topology_up"))
		ksft_exit_fail_msg("no network for owner and peer\n");
	if (!found)
		atexit(leave_topology);
	if (enter_namespace(OWNER_NETNS))
		ksft_exit_fail_msg("no namespace of the owner\n");
}

int in_peer_netns(int (*call)(void *arg), void *arg)
{
	int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int ret = here < 0 ? -errno : enter_namespace(PEER_NETNS);

	if (!ret) {
		ret = call(arg);
		/* Abort rather than go on in the wrong network namespace. */
		if (setns(here, CLONE_NEWNET))
			abort();
	}
	close(here);
	return ret;
}

struct sockaddr *ip_address(const char *ip, unsigned int port,
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
