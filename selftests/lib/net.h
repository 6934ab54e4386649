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

/* A path in the source tree, in which this program is build/selftests/NAME. */
const char *tree_path(const char *path);

/* Run a command of the shell, which knows the functions of topology.sh. */
__attribute__((format(printf, 1, 2)))
int shell(const char *format, ...);

/* One of those above; 0 or -errno. */
int enter_namespace(const char *name);
/* What @call returns in the peer's namespace, or -errno. */
int in_peer_netns(int (*call)(void *arg), void *arg);

/*
 * For a main(): every test process is its child, and stays in the owner's
 * namespace. A topology that was there before stays.
 */
void enter_topology(void);

#define PEER_HARNESS_MAIN						\
	int main(int argc, char **argv)					\
	{								\
		enter_topology();					\
		return test_harness_run(argc, argv);			\
	}

/* An IP address of either kind; NULL is IPv6's wildcard. */
struct sockaddr *ip_address(const char *ip, unsigned int port,
			    struct sockaddr_storage *ss);

#endif /* SELFTESTS_NET_H */
