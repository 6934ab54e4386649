/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the tests run: the network namespaces that lib/topology.sh makes, the
 * addresses in them, and the tree that the test's program was built in.
 */
#ifndef SELFTESTS_NET_H
#define SELFTESTS_NET_H

#include <sys/socket.h>

#define OWNER_NETNS	"memreg-owner"
#define PEER_NETNS	"memreg-peer"
#define OWNER_DEVICE	"rxe_owner"
#define OWNER_IP4	"192.0.2.1"
#define OWNER_IP6	"fd00:6d72::1"
#define PEER_IP4	"192.0.2.2"
#define PEER_IP6	"fd00:6d72::2"

/*
 * Absolute path of a file of the source tree; the tree is found from the path
 * of this program, build/selftests/NAME.
 */
const char *tree_path(const char *path);

/* Run a command of the shell, which knows the functions of topology.sh. */
__attribute__((format(printf, 1, 2)))
int shell(const char *format, ...);

/* One of those above; 0 or -errno. */
int enter_namespace(const char *name);
/*
 * Make a call in the peer's network namespace. Returns its result, or -errno.
 */
int in_peer_netns(int (*call)(void *arg), void *arg);

/*
 * Called by main(): makes the topology, unless it is there, and enters the
 * owner's namespace, for this process and all tests, which are its children.
 */
void enter_topology(void);

#define PEER_HARNESS_MAIN						\
	int main(int argc, char **argv)					\
	{								\
		enter_topology();					\
		return test_harness_run(argc, argv);			\
	}

/*
 * Socket address of a numeric IP address of either family, or IPv6's wildcard
 * if @ip is NULL
 */
struct sockaddr *ip_address(const char *ip, unsigned int port,
			    struct sockaddr_storage *ss);

#endif /* SELFTESTS_NET_H */
