// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connections: all actions of a stock peer and of the owner on the RDMA CM, and
 * the events that the owner reads.
 *
 * time limit: 300
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "fault.h"
#include "harness.h"
#include "memreg.h"
#include "module.h"
#include "net.h"
#include "owner.h"
#include "peer.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#define FREE_PORT	7999
#define REJ_INVALID_SERVICE_ID	8
#define REJ_CONSUMER		28

FIXTURE(cm)
{
	struct owner o;
	struct peer p;
};

FIXTURE_SETUP(cm)
{
	owner_open(_metadata, &self->o);
}

FIXTURE_TEARDOWN(cm)
{
	/*
	 * Close the owner's file first, which ends the connection: the peer may
	 * be waiting for that.
	 */
	owner_close(&self->o);
	peer_stop(&self->p, 0);
}

static uint32_t await_request(struct __test_metadata *_metadata,
			      FIXTURE_DATA(cm) *self,
			      struct ib_memreg_event *event)
{
	return owner_await(_metadata, &self->o,
			   IB_MEMREG_EVENT_CONNECT_REQUEST, event);
}

/* A peer, and its request */
static uint32_t request(struct __test_metadata *_metadata,
			FIXTURE_DATA(cm) *self, struct peer *p,
			const char *options)
{
	peer_start(_metadata, p, OWNER_IP4, self->o.port, options);
	return await_request(_metadata, self, NULL);
}

/* A peer, and its connection */
static uint32_t connected(struct __test_metadata *_metadata,
			  FIXTURE_DATA(cm) *self)
{
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	return owner_admit(_metadata, &self->o, &self->p, self->o.domain,
			   NULL);
}

static void make_data(uint8_t *data, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 7 + 1);
}

static void to_hex(char *hex, const uint8_t *data, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		sprintf(hex + 2 * i, "%02x", data[i]);
}

/* Expect that the peer has received what make_data() makes, perhaps padded. */
static void check_data(struct __test_metadata *_metadata, struct peer *p,
		       size_t len)
{
	uint8_t data[IB_MEMREG_PRIVATE_DATA_MAX];
	char hex[2 * sizeof(data) + 1];

	make_data(data, len);
	to_hex(hex, data, len);
	peer_ask(_metadata, p, "private-data");
	ASSERT_LE(len, peer_number(p, "length"));
	ASSERT_EQ(0, strncmp(hex, peer_value(p, "data"), 2 * len));
}

/*
 * Answering
 */

TEST_F_TIMEOUT(cm, accept_and_request_carry_private_data, LIMIT_S)
{
	uint8_t data[IB_MEMREG_PRIVATE_DATA_MAX];
	char options[2 * sizeof(data) + 8] = "-p ";
	struct ib_memreg_event event;
	uint64_t in, out;
	uint32_t endpoint;

	ASSERT_EQ(0, memreg_query_cap(self->o.m, IB_MEMREG_CAP_CONNECT_DATA,
				      &in));
	ASSERT_EQ(0, memreg_query_cap(self->o.m, IB_MEMREG_CAP_ACCEPT_DATA,
				      &out));
	make_data(data, sizeof(data));
	to_hex(options + 3, data, in);
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, options);
	endpoint = await_request(_metadata, self, &event);
	ASSERT_EQ(self->o.listener, event.listener_id);
	ASSERT_LE(in, event.private_data_len);
	ASSERT_EQ(0, memcmp(data, event.private_data, in));

	/*
	 * Too much private data fails, and the request can still be accepted.
	 */
	ASSERT_EQ(-EINVAL, memreg_accept(self->o.m, endpoint, self->o.domain,
					 data, out + 1));
	ASSERT_EQ(0, memreg_accept(self->o.m, endpoint, self->o.domain, data,
				   out));
	owner_await(_metadata, &self->o, IB_MEMREG_EVENT_ESTABLISHED, &event);
	ASSERT_EQ(endpoint, event.endpoint_id);
	ASSERT_EQ(0, event.private_data_len);
	peer_answer(_metadata, &self->p);
	check_data(_metadata, &self->p, out);
	ASSERT_EQ(-ENOTCONN, memreg_accept(self->o.m, endpoint, self->o.domain,
					   NULL, 0));
	ASSERT_EQ(-ENOTCONN, memreg_reject(self->o.m, endpoint, NULL, 0));
}

/* The RDMA CM may handle a peer's DREQ before the RTU that was sent first */
TEST_F_TIMEOUT(cm, end_that_overtakes_the_confirmation, LIMIT_S)
{
	struct ib_memreg_event event;
	uint32_t endpoint;

	if (!fault_injection())
		SKIP(return, "this kernel can't inject faults");
	endpoint = request(_metadata, self, &self->p, NULL);
	fault_order("disconnected", 0, 1);
	owner_accept(_metadata, &self->o, endpoint, self->o.domain, NULL);
	ASSERT_FALSE(fault_pending("disconnected"));
	owner_await(_metadata, &self->o, IB_MEMREG_EVENT_DISCONNECTED, &event);
	ASSERT_EQ(endpoint, event.endpoint_id);
}

TEST_F_TIMEOUT(cm, reject_carries_private_data, LIMIT_S)
{
	uint8_t data[IB_MEMREG_PRIVATE_DATA_MAX];
	uint32_t endpoint;
	uint64_t max;

	ASSERT_EQ(0, memreg_query_cap(self->o.m, IB_MEMREG_CAP_REJECT_DATA,
				      &max));
	make_data(data, sizeof(data));
	endpoint = request(_metadata, self, &self->p, NULL);
	ASSERT_EQ(-EINVAL, memreg_reject(self->o.m, endpoint, data, max + 1));
	ASSERT_EQ(0, memreg_reject(self->o.m, endpoint, data, max));
	peer_answer(_metadata, &self->p);
	ASSERT_PEER("rejected", &self->p);
	ASSERT_EQ(REJ_CONSUMER, peer_number(&self->p, "reason"));
	check_data(_metadata, &self->p, max);
	ASSERT_EQ(-ENOENT, memreg_destroy(self->o.m, endpoint));
	owner_no_event(_metadata, &self->o);
}

TEST_F_TIMEOUT(cm, peer_beyond_the_backlog_is_rejected, LIMIT_S)
{
	struct peer more[3] = { 0 };
	uint32_t first, second;

	ASSERT_EQ(0, memreg_destroy(self->o.m, self->o.listener));
	owner_listen(_metadata, &self->o, OWNER_IP4, 2);
	first = request(_metadata, self, &self->p, NULL);
	second = request(_metadata, self, &more[0], NULL);
	peer_start(_metadata, &more[1], OWNER_IP4, self->o.port, NULL);
	peer_answer(_metadata, &more[1]);
	ASSERT_PEER("rejected", &more[1]);
	owner_no_event(_metadata, &self->o);

	/* Each answer makes room for one */
	owner_accept(_metadata, &self->o, first, self->o.domain, NULL);
	peer_answer(_metadata, &self->p);
	first = request(_metadata, self, &more[2], NULL);
	ASSERT_EQ(0, memreg_reject(self->o.m, second, NULL, 0));
	ASSERT_EQ(0, memreg_destroy(self->o.m, first));
	peer_answer(_metadata, &more[0]);
	ASSERT_PEER("rejected", &more[0]);
	peer_answer(_metadata, &more[2]);
	ASSERT_PEER("rejected", &more[2]);
	peer_tell(_metadata, &more[1], "conn");
	owner_admit(_metadata, &self->o, &more[1], self->o.domain, NULL);
	peer_stop(&more[0], 0);
	peer_stop(&more[1], 0);
	peer_stop(&more[2], 0);
}

TEST_F_TIMEOUT(cm, destroying_a_request_or_its_listener, LIMIT_S)
{
	uint32_t endpoint = request(_metadata, self, &self->p, NULL);
	struct peer other;

	ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	peer_answer(_metadata, &self->p);
	ASSERT_PEER("rejected", &self->p);
	owner_no_event(_metadata, &self->o);

	/* A request survives the listener that it came from */
	endpoint = request(_metadata, self, &other, NULL);
	ASSERT_EQ(0, memreg_destroy(self->o.m, self->o.listener));
	peer_tell(_metadata, &self->p, "conn");
	peer_answer(_metadata, &self->p);
	ASSERT_PEER("rejected", &self->p);
	ASSERT_EQ(REJ_INVALID_SERVICE_ID, peer_number(&self->p, "reason"));
	owner_accept(_metadata, &self->o, endpoint, self->o.domain, NULL);
	peer_answer(_metadata, &other);
	peer_stop(&other, 0);
}

TEST_F_TIMEOUT(cm, I7_close_with_requests_pending, LIMIT_S)
{
	struct peer other;

	request(_metadata, self, &self->p, NULL);
	/* The owner closes without having read the event of this request */
	peer_start(_metadata, &other, OWNER_IP4, self->o.port, NULL);
	ASSERT_EQ(1, poll(&(struct pollfd) {
		.fd = memreg_fd(self->o.m), .events = POLLIN }, 1, LIMIT_MS));
	owner_close(&self->o);
	peer_answer(_metadata, &self->p);
	ASSERT_PEER("rejected", &self->p);
	peer_answer(_metadata, &other);
	ASSERT_PEER("rejected", &other);
	peer_stop(&other, 0);
}

TEST_F_TIMEOUT(cm, peer_that_gives_up_its_request, LIMIT_S)
{
	uint32_t endpoint = request(_metadata, self, &self->p, NULL);

	peer_stop(&self->p, SIGKILL);
	ASSERT_EQ(endpoint, owner_await(_metadata, &self->o,
					IB_MEMREG_EVENT_DISCONNECTED, NULL));
	ASSERT_EQ(-ENOTCONN, memreg_accept(self->o.m, endpoint,
					   self->o.domain, NULL, 0));
	ASSERT_EQ(-ENOTCONN, memreg_reject(self->o.m, endpoint, NULL, 0));
	ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	owner_no_event(_metadata, &self->o);
}

TEST_F_TIMEOUT(cm, peer_connects_over_ipv6, LIMIT_S)
{
	struct ib_memreg_event event;
	uint8_t ip[16];

	inet_pton(AF_INET6, PEER_IP6, ip);
	owner_listen(_metadata, &self->o, OWNER_IP6, 4);
	peer_start(_metadata, &self->p, OWNER_IP6, self->o.port, NULL);
	await_request(_metadata, self, &event);
	ASSERT_EQ(AF_INET6, event.peer.family);
	ASSERT_EQ(0, memcmp(ip, event.peer.ip, sizeof(ip)));
	owner_accept(_metadata, &self->o, event.endpoint_id, self->o.domain,
		     NULL);
	peer_answer(_metadata, &self->p);
	ASSERT_EQ(0, strncmp(self->p.line, "connected ", 10));
}

/* The owner's link-local address, as the peer's host has it */
static void link_local(char *ip, size_t size)
{
	struct ifaddrs *all = NULL, *at;

	ip[0] = '\0';
	if (getifaddrs(&all))
		return;
	for (at = all; at; at = at->ifa_next) {
		struct sockaddr_in6 *in6 = (void *)at->ifa_addr;

		if (in6 && in6->sin6_family == AF_INET6 &&
		    !strcmp(at->ifa_name, "mr_owner") &&
		    IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)) {
			inet_ntop(AF_INET6, &in6->sin6_addr, ip, size);
			strcat(ip, "%mr_peer");
		}
	}
	freeifaddrs(all);
}

/* ENDPOINT_CONNECT takes the address that an event gives, with its scope. */
TEST_F_TIMEOUT(cm, link_local_peer_comes_with_its_scope, LIMIT_S)
{
	RAW(endpoint_connect, cmd, .domain_id = self->o.domain,
	    .timeout_ms = 1000);
	struct ib_memreg_event event;
	char ip[INET6_ADDRSTRLEN + 16];

	link_local(ip, sizeof(ip));
	if (!ip[0])
		SKIP(return, "no link-local address");
	owner_listen(_metadata, &self->o, NULL, 4);
	peer_start(_metadata, &self->p, ip, self->o.port, NULL);
	await_request(_metadata, self, &event);
	ASSERT_EQ(AF_INET6, event.peer.family);
	EXPECT_EQ(if_nametoindex("mr_owner"), event.peer.scope_id);
	cmd.addr = event.peer;
	owner_accept(_metadata, &self->o, event.endpoint_id, self->o.domain,
		     NULL);
	peer_answer(_metadata, &self->p);
	ASSERT_EQ(0, strncmp(self->p.line, "connected ", 10));
	/* The call takes the address; that nobody listens there shows later. */
	EXPECT_EQ(0, raw_call(memreg_fd(self->o.m),
			      IB_MEMREG_IOC_ENDPOINT_CONNECT, &cmd));
}

TEST_F_TIMEOUT(cm, wildcard_addresses_listen, LIMIT_S)
{
	struct ib_memreg_event event;
	struct sockaddr_storage ss;
	struct ib_memreg_addr peer;
	uint8_t ip[16] = { 0 };

	inet_pton(AF_INET, PEER_IP4, ip);
	owner_listen(_metadata, &self->o, "0.0.0.0", 4);
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	await_request(_metadata, self, &event);
	ASSERT_EQ(self->o.listener, event.listener_id);
	ASSERT_EQ(AF_INET, event.peer.family);
	ASSERT_EQ(0, memcmp(ip, event.peer.ip, sizeof(ip)));
	ASSERT_EQ(0, memreg_addr_from_sockaddr(ip_address(PEER_IP4, 0, &ss),
					       &peer));
	peer.port = event.peer.port;
	ASSERT_EQ(0, memcmp(&peer, &event.peer, sizeof(peer)));
}

TEST_F(cm, port_in_use_and_foreign_address)
{
	struct sockaddr_storage ss;
	uint32_t listener;

	ASSERT_EQ(-EADDRINUSE,
		  memreg_listen(self->o.m, ip_address(OWNER_IP4, self->o.port,
						      &ss), 1, &listener));
	ASSERT_EQ(-EADDRNOTAVAIL,
		  memreg_listen(self->o.m, ip_address(PEER_IP4, 0, &ss), 1,
				&listener));
	/* A port that is taken on all addresses is taken on each. */
	ASSERT_EQ(0, memreg_listen(self->o.m, ip_address("0.0.0.0", FREE_PORT,
							 &ss), 1, &listener));
	ASSERT_EQ(-EADDRINUSE,
		  memreg_listen(self->o.m, ip_address(OWNER_IP4, FREE_PORT,
						      &ss), 1, &listener));
	ASSERT_EQ(-EADDRINUSE,
		  memreg_listen(self->o.m, ip_address("127.0.0.1", FREE_PORT,
						      &ss), 1, &listener));
}

/*
 * Connecting
 */

static int try_connect(FIXTURE_DATA(cm) *self, const char *src, const char *ip,
		       unsigned int port, uint32_t *endpoint)
{
	struct sockaddr_storage to, from;

	return memreg_connect(self->o.m, self->o.domain,
			      ip_address(ip, port, &to),
			      src ? ip_address(src, 0, &from) : NULL, 5000,
			      "hello", 5, endpoint);
}

/* A stock server; connecting to it fails until it listens */
static pid_t start_rping(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!enter_namespace("memreg-peer"))
		execlp("rping", "rping", "-s", "-a", PEER_IP4, "-p", "7998",
		       NULL);
	_exit(127);
}

TEST_F_TIMEOUT(cm, owner_connects_to_a_stock_listener, LIMIT_S)
{
	int64_t end = now_ms() + LIMIT_MS;
	struct ib_memreg_event event;
	pid_t pid = start_rping();
	uint32_t endpoint;

	do {
		ASSERT_GT(end, now_ms());
		ASSERT_EQ(0, try_connect(self, OWNER_IP4, PEER_IP4, 7998,
					 &endpoint))
			TH_LOG("%s", memreg_reason());
		ASSERT_EQ(0, memreg_get_event(self->o.m, &event, LIMIT_MS));
		ASSERT_EQ(endpoint, event.endpoint_id);
		if (event.type != IB_MEMREG_EVENT_ESTABLISHED) {
			ASSERT_EQ(IB_MEMREG_EVENT_REJECTED, event.type);
			ASSERT_EQ(REJ_INVALID_SERVICE_ID, event.status);
			ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
		}
	} while (event.type != IB_MEMREG_EVENT_ESTABLISHED);
	ASSERT_EQ(0, event.listener_id);
	ASSERT_EQ(0, memreg_disconnect(self->o.m, endpoint));
	ASSERT_EQ(endpoint, owner_await(_metadata, &self->o,
					IB_MEMREG_EVENT_DISCONNECTED, NULL));
	ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/*
 * Security modules decide on what a QP may do by the credentials with which it
 * is made: those of the caller, though workers make it. kernel/tests/creds.c
 * records them
 */

#define CREDS_MODULE	"ib_memreg_creds"
#define NOBODY		65534

#define AS_NOBODY(call)							\
	({								\
		int _ret;						\
									\
		ASSERT_EQ(0, seteuid(NOBODY));				\
		_ret = (call);						\
		ASSERT_EQ(0, seteuid(0));				\
		_ret;							\
	})

static void qps_forget(struct __test_metadata *_metadata)
{
	ASSERT_LE(0, file_write(test_module_parameter(CREDS_MODULE, "made"),
				"0"));
}

/* QPs that were made with these credentials since */
static unsigned int qps_made(struct __test_metadata *_metadata, unsigned int by)
{
	FILE *f = fopen(test_module_parameter(CREDS_MODULE, "made"), "r");
	unsigned int uid, n = 0;
	char line[128];

	ASSERT_NE(NULL, f);
	while (fgets(line, sizeof(line), f)) {
		ASSERT_EQ(1, sscanf(line, "%u ", &uid));
		n += uid == by;
	}
	fclose(f);
	return n;
}

static void check_qp(struct __test_metadata *_metadata)
{
	EXPECT_EQ(1, qps_made(_metadata, NOBODY));
	EXPECT_EQ(0, qps_made(_metadata, 0));
	qps_forget(_metadata);
}

/* Connect as nobody, until somebody listens. */
static uint32_t connect_as_nobody(struct __test_metadata *_metadata,
				  FIXTURE_DATA(cm) *self)
{
	int64_t end = now_ms() + LIMIT_MS;
	struct ib_memreg_event event;
	uint32_t endpoint;

	for (;;) {
		ASSERT_GT(end, now_ms());
		ASSERT_EQ(0, AS_NOBODY(try_connect(self, OWNER_IP4, PEER_IP4,
						   7998, &endpoint)));
		ASSERT_EQ(0, memreg_get_event(self->o.m, &event, LIMIT_MS));
		/*
		 * CONNECT makes the QP before the peer has answered, whatever
		 * the answer is.
		 */
		check_qp(_metadata);
		if (event.type == IB_MEMREG_EVENT_ESTABLISHED)
			return endpoint;
		ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	}
}

/* Take away the device's address, so that the domain's queue is rebuilt. */
static void rebuild_queues(struct __test_metadata *_metadata)
{
	int64_t end = now_ms() + LIMIT_MS;

	ASSERT_EQ(0, shell("ip -n %s addr flush dev %s scope global",
			   "memreg-owner", "mr_owner"));
	while (!qps_made(_metadata, NOBODY) || !qps_made(_metadata, 0)) {
		ASSERT_GT(end, now_ms());
		usleep(10000);
	}
	ASSERT_EQ(0, shell("addresses_up owner"));
}

TEST_F_TIMEOUT(cm, QPs_are_made_with_the_credentials_of_the_caller, LIMIT_S)
{
	uint32_t domain, endpoint;
	pid_t pid;

	if (!test_module_load(CREDS_MODULE, ""))
		SKIP(return, "this kernel has no kprobes");
	qps_forget(_metadata);
	ASSERT_EQ(0, AS_NOBODY(memreg_domain_create(self->o.m, 0, &domain)));
	check_qp(_metadata);

	endpoint = request(_metadata, self, &self->p, NULL);
	ASSERT_EQ(0, AS_NOBODY(memreg_accept(self->o.m, endpoint, domain, NULL,
					     0)));
	check_qp(_metadata);
	ASSERT_EQ(endpoint, owner_await(_metadata, &self->o,
					IB_MEMREG_EVENT_ESTABLISHED, NULL));

	pid = start_rping();
	endpoint = connect_as_nobody(_metadata, self);
	ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);

	/* The owner's own domain is root's. */
	qps_forget(_metadata);
	rebuild_queues(_metadata);
	test_module_unload(CREDS_MODULE);
}

TEST_F_TIMEOUT(cm, connection_refused, LIMIT_S)
{
	struct ib_memreg_event event;
	uint32_t endpoint;

	ASSERT_EQ(0, try_connect(self, NULL, PEER_IP4, FREE_PORT, &endpoint));
	ASSERT_EQ(endpoint, owner_await(_metadata, &self->o,
					IB_MEMREG_EVENT_REJECTED, &event));
	ASSERT_EQ(REJ_INVALID_SERVICE_ID, event.status);
	ASSERT_EQ(-ENOTCONN, memreg_disconnect(self->o.m, endpoint));
	ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	owner_no_event(_metadata, &self->o);
}

TEST_F_TIMEOUT(cm, addresses_that_nobody_has, LIMIT_S)
{
	struct ib_memreg_event event;
	uint32_t endpoint;

	ASSERT_EQ(0, try_connect(self, NULL, "192.0.2.77", FREE_PORT,
				 &endpoint));
	owner_await(_metadata, &self->o, IB_MEMREG_EVENT_ERROR, &event);
	ASSERT_EQ(endpoint, event.endpoint_id);
	ASSERT_EQ(-ETIMEDOUT, event.status);
	ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));

	/*
	 * Without a route, either the call fails at once or an event reports it
	 * later.
	 */
	switch (try_connect(self, NULL, "198.51.100.1", FREE_PORT,
			    &endpoint)) {
	case 0:
		owner_await(_metadata, &self->o, IB_MEMREG_EVENT_ERROR,
			    &event);
		ASSERT_EQ(-ENETUNREACH, event.status);
		break;
	case -ENETUNREACH:
		break;
	default:
		ASSERT_STREQ("", memreg_reason());
	}
	ASSERT_EQ(-EADDRNOTAVAIL, try_connect(self, "192.0.2.77", PEER_IP4,
					      FREE_PORT, &endpoint));
}

/* A first attempt is known to time out though the neighbour has answered */
TEST_F_TIMEOUT(cm, neighbour_that_is_not_known_yet, LIMIT_S)
{
	struct ib_memreg_event event;
	struct sockaddr_storage to;
	uint32_t endpoint;

	ASSERT_EQ(0, shell("ip -n memreg-owner neigh del %s dev mr_owner",
			   PEER_IP4));
	ASSERT_EQ(0, memreg_connect(self->o.m, self->o.domain,
				    ip_address(PEER_IP4, FREE_PORT, &to),
				    NULL, LIMIT_MS, NULL, 0, &endpoint));
	ASSERT_EQ(endpoint, owner_await(_metadata, &self->o,
					IB_MEMREG_EVENT_REJECTED, &event));
	ASSERT_EQ(REJ_INVALID_SERVICE_ID, event.status);
	ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	ASSERT_EQ(0, shell("addresses_up owner"));
}

/* A host that can be reached, and has no RDMA: the timeout is for all of it */
TEST_F_TIMEOUT(cm, timeout_bounds_the_whole_of_connecting, LIMIT_S)
{
	int64_t begun, asked = 1000;
	struct ib_memreg_event event;
	struct sockaddr_storage to;
	uint32_t endpoint;

	ASSERT_EQ(0, shell("rxe_down peer"));
	begun = now_ms();
	ASSERT_EQ(0, memreg_connect(self->o.m, self->o.domain,
				    ip_address(PEER_IP4, FREE_PORT, &to), NULL,
				    (unsigned int)asked, NULL, 0, &endpoint));
	ASSERT_EQ(endpoint, owner_await(_metadata, &self->o,
					IB_MEMREG_EVENT_ERROR, &event));
	EXPECT_EQ(-ETIMEDOUT, event.status);
	EXPECT_GT(20 * asked, now_ms() - begun);
	EXPECT_EQ(0, memreg_destroy(self->o.m, endpoint));
	ASSERT_EQ(0, shell("rxe_up peer && await 120 rxe_ready peer"));
}

/*
 * The endpoint is destroyed while its address is resolved, while it connects,
 * or when it has been refused.
 */
TEST_F_TIMEOUT(cm, endpoint_is_destroyed_while_it_connects, SOAK_S)
{
	unsigned int i;
	uint32_t endpoint;

	for (i = 0; i < test_repeat(10); i++) {
		ASSERT_EQ(0, try_connect(self, NULL, i % 2 ? PEER_IP4 :
					 "192.0.2.77", FREE_PORT, &endpoint));
		ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	}
	owner_no_event(_metadata, &self->o);
}

/*
 * Calls that wait for user space
 */

#define GRANTS		24
#define BEFORE_HOLE	16	/* what a call copies at a time */

/*
 * Two pages; a page fault on the second waits until the test provides the page.
 */
struct hole {
	char *page;
	int fd;
};

static bool hole_open(struct hole *h)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	h->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	h->page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (h->fd < 0 || h->page == MAP_FAILED)
		return false;
	memset(h->page, 0, PAGE);
	h->page += PAGE;
	reg.range.start = (uintptr_t)h->page;
	reg.range.len = PAGE;
	return !ioctl(h->fd, UFFDIO_API, &api) &&
	       !ioctl(h->fd, UFFDIO_REGISTER, &reg);
}

/* Somebody waits for the page */
static bool hole_is_awaited(struct hole *h)
{
	struct pollfd pfd = { .fd = h->fd, .events = POLLIN };
	struct uffd_msg msg;

	return poll(&pfd, 1, LIMIT_MS) == 1 &&
	       read(h->fd, &msg, sizeof(msg)) == sizeof(msg) &&
	       msg.event == UFFD_EVENT_PAGEFAULT;
}

static int hole_fill(struct hole *h, const void *data, size_t length)
{
	static char page[PAGE];
	struct uffdio_copy copy = {
		.dst = (uintptr_t)h->page, .src = (uintptr_t)page, .len = PAGE,
	};

	memcpy(page, data, length);
	return ioctl(h->fd, UFFDIO_COPY, &copy);
}

static void hole_close(struct hole *h)
{
	munmap(h->page - PAGE, 2 * PAGE);
	close(h->fd);
}

/* Windows that are granted to an endpoint which never will be connected */
struct grants {
	int fd;
	uint32_t domain;
	uint32_t endpoint;
	uint32_t ids[GRANTS];
	struct ib_memreg_bind binds[GRANTS];
	struct ib_memreg_bind *entries;
	uint32_t *revoked;
	int ret;
};

static void grants_make(struct __test_metadata *_metadata,
			FIXTURE_DATA(cm) *self, struct grants *g, void *memory)
{
	struct sockaddr_storage to;
	uint32_t mr, i;

	g->fd = memreg_fd(self->o.m);
	g->domain = self->o.domain;
	ASSERT_EQ(0, raw_register(g->fd, g->domain, memory, PAGE, MW_BIND,
				  &mr));
	ASSERT_EQ(0, raw_windows(g->fd, g->domain, PAGE, g->ids, GRANTS));
	/*
	 * The connection fails only after the call has reached the missing
	 * page.
	 */
	ASSERT_EQ(0, memreg_connect(self->o.m, self->o.domain,
				    ip_address("192.0.2.77", FREE_PORT, &to),
				    NULL, 8000, NULL, 0, &g->endpoint));
	for (i = 0; i < GRANTS; i++)
		g->binds[i] = (struct ib_memreg_bind) {
			.window_id = g->ids[i], .mr_id = mr, .length = PAGE,
			.access = REMOTE_READ, .endpoint_id = g->endpoint,
		};
}

static void *bind_thread(void *arg)
{
	struct grants *g = arg;

	g->ret = raw_bind(g->fd, g->domain, g->entries, GRANTS);
	return NULL;
}

static void *revoke_thread(void *arg)
{
	struct grants *g = arg;
	RAW(window_revoke, cmd, .domain_id = g->domain, .count = GRANTS,
	    .ids = (uintptr_t)g->revoked);

	g->ret = raw_call(g->fd, IB_MEMREG_IOC_WINDOW_REVOKE, &cmd);
	return NULL;
}

/*
 * The end of a connection does not wait for a bind that waits for a page fault.
 */
TEST_F_TIMEOUT(cm, connection_ends_while_a_bind_waits, LIMIT_S)
{
	struct grants g = {};
	struct hole h = {};
	pthread_t thread;
	static char memory[PAGE] __attribute__((aligned(PAGE)));

	if (!hole_open(&h))
		SKIP(return, "no userfaultfd here");
	grants_make(_metadata, self, &g, memory);
	g.entries = (struct ib_memreg_bind *)h.page - BEFORE_HOLE;
	memcpy(g.entries, g.binds, BEFORE_HOLE * sizeof(g.binds[0]));
	ASSERT_EQ(0, pthread_create(&thread, NULL, bind_thread, &g));
	ASSERT_TRUE(hole_is_awaited(&h));
	ASSERT_EQ(g.endpoint, owner_await(_metadata, &self->o,
					  IB_MEMREG_EVENT_ERROR, NULL));
	ASSERT_EQ(0, hole_fill(&h, &g.binds[BEFORE_HOLE],
			       sizeof(g.binds) - BEFORE_HOLE *
			       sizeof(g.binds[0])));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	ASSERT_EQ(-ENOTCONN, g.ret);
	hole_close(&h);
	/* No window is bound: all can be. */
	for (int i = 0; i < GRANTS; i++)
		g.binds[i].endpoint_id = 0;
	ASSERT_EQ(0, raw_bind(g.fd, g.domain, g.binds, GRANTS));
}

TEST_F_TIMEOUT(cm, connection_ends_while_a_revoke_waits, LIMIT_S)
{
	struct grants g = {};
	struct hole h = {};
	pthread_t thread;
	static char memory[PAGE] __attribute__((aligned(PAGE)));

	if (!hole_open(&h))
		SKIP(return, "no userfaultfd here");
	grants_make(_metadata, self, &g, memory);
	ASSERT_EQ(0, raw_bind(g.fd, g.domain, g.binds, GRANTS));
	g.revoked = (uint32_t *)h.page - BEFORE_HOLE;
	memcpy(g.revoked, g.ids, BEFORE_HOLE * sizeof(g.ids[0]));
	ASSERT_EQ(0, pthread_create(&thread, NULL, revoke_thread, &g));
	ASSERT_TRUE(hole_is_awaited(&h));
	ASSERT_EQ(g.endpoint, owner_await(_metadata, &self->o,
					  IB_MEMREG_EVENT_ERROR, NULL));
	ASSERT_EQ(0, hole_fill(&h, &g.ids[BEFORE_HOLE], sizeof(g.ids) -
			       BEFORE_HOLE * sizeof(g.ids[0])));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	/* The endpoint's end has revoked them. */
	ASSERT_EQ(0, g.ret);
	hole_close(&h);
}

/*
 * The end
 */

#define LEAVERS		256

static void *disconnect_thread(void *arg)
{
	struct grants *g = arg;
	RAW(endpoint_disconnect, cmd, .endpoint_id = g->endpoint);

	g->ret = raw_call(g->fd, IB_MEMREG_IOC_ENDPOINT_DISCONNECT, &cmd);
	return NULL;
}

/*
 * Can the endpoint still be granted a window, as its connection is not ending?
 */
static bool takes_grants(struct grants *g, uint32_t mr, uint32_t spare)
{
	struct ib_memreg_bind bind = {
		.window_id = spare, .mr_id = mr, .length = PAGE,
		.access = REMOTE_READ, .endpoint_id = g->endpoint,
	};

	return !raw_bind(g->fd, g->domain, &bind, 1) &&
	       !raw_revoke(g->fd, g->domain, &spare, 1);
}

/*
 * Windows are revoked while the end of their connection is about to do so: that
 * is no error, as an owner can't know.
 */
TEST_F_TIMEOUT(cm, revoke_races_with_the_end_of_the_connection, LIMIT_S)
{
	struct grants g = { .fd = memreg_fd(self->o.m),
			    .domain = self->o.domain };
	static char memory[PAGE] __attribute__((aligned(PAGE)));
	static struct ib_memreg_bind binds[LEAVERS];
	uint32_t ids[LEAVERS + 1], mr, round, i;
	pthread_t thread;

	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	g.endpoint = owner_admit(_metadata, &self->o, &self->p, g.domain, NULL);
	ASSERT_EQ(0, raw_register(g.fd, g.domain, memory, PAGE, MW_BIND, &mr));
	ASSERT_EQ(0, raw_windows(g.fd, g.domain, PAGE, ids, LEAVERS));
	ASSERT_EQ(0, raw_windows(g.fd, g.domain, PAGE, &ids[LEAVERS], 1));
	for (round = 0; round < test_repeat(10); round++) {
		for (i = 0; i < LEAVERS; i++)
			binds[i] = (struct ib_memreg_bind) {
				.window_id = ids[i], .mr_id = mr,
				.length = PAGE, .access = REMOTE_READ,
				.endpoint_id = g.endpoint,
			};
		ASSERT_EQ(0, raw_bind(g.fd, g.domain, binds, LEAVERS));
		ASSERT_EQ(0, pthread_create(&thread, NULL, disconnect_thread,
					    &g));
		while (takes_grants(&g, mr, ids[LEAVERS]))
			;
		EXPECT_EQ(0, raw_revoke(g.fd, g.domain, ids, LEAVERS)) {
			TH_LOG("round %u, index %u, reason %u", round,
			       raw_index(), raw_reason());
		}
		/*
		 * All windows can be bound, as no thread has left one claimed.
		 */
		for (i = 0; i < LEAVERS; i++)
			binds[i].endpoint_id = 0;
		EXPECT_EQ(0, raw_bind(g.fd, g.domain, binds, LEAVERS));
		EXPECT_EQ(0, raw_revoke(g.fd, g.domain, ids, LEAVERS));
		ASSERT_EQ(0, pthread_join(thread, NULL));
		ASSERT_EQ(0, g.ret);
		g.endpoint = owner_admit_again(_metadata, &self->o, &self->p,
					       g.endpoint);
	}
}

TEST_F_TIMEOUT(cm, owner_disconnects_and_gets_one_event, LIMIT_S)
{
	uint32_t endpoint = connected(_metadata, self);

	ASSERT_EQ(0, memreg_disconnect(self->o.m, endpoint));
	peer_ask(_metadata, &self->p, "wait %d", LIMIT_MS / 2);
	ASSERT_STREQ("disconnected", peer_value(&self->p, "event"));
	ASSERT_EQ(endpoint, owner_await(_metadata, &self->o,
					IB_MEMREG_EVENT_DISCONNECTED, NULL));
	ASSERT_EQ(0, memreg_disconnect(self->o.m, endpoint));
	peer_ask(_metadata, &self->p, "disconnect");
	ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	owner_no_event(_metadata, &self->o);
}

TEST_F_TIMEOUT(cm, peer_disconnects_and_owner_gets_one_event, LIMIT_S)
{
	uint32_t endpoint = connected(_metadata, self);

	peer_ask(_metadata, &self->p, "disconnect");
	ASSERT_EQ(endpoint, owner_await(_metadata, &self->o,
					IB_MEMREG_EVENT_DISCONNECTED, NULL));
	ASSERT_EQ(0, memreg_disconnect(self->o.m, endpoint));
	ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	owner_no_event(_metadata, &self->o);
}

TEST_F_TIMEOUT(cm, I8_domain_with_endpoints_is_busy, LIMIT_S)
{
	uint32_t endpoint = connected(_metadata, self);

	ASSERT_EQ(-EBUSY, memreg_domain_destroy(self->o.m, self->o.domain));
	ASSERT_EQ(0, memreg_destroy(self->o.m, endpoint));
	ASSERT_EQ(0, memreg_domain_destroy(self->o.m, self->o.domain));
}

/*
 * Many
 */

/*
 * Keep many connections to the owner, until the other end of @pipe is closed.
 */
static void connect_many(unsigned int port, unsigned int count, int pipe)
{
	struct ibv_qp_init_attr attr = {
		.cap = { 1, 1, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	struct rdma_cm_id *id;
	char service[8], end;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(service, sizeof(service), "%u", port);
	if (enter_namespace("memreg-peer"))
		_exit(1);
	while (count--) {
		if (rdma_getaddrinfo(OWNER_IP4, service, &hints, &info) ||
		    rdma_create_ep(&id, info, NULL, &attr) ||
		    rdma_connect(id, NULL)) {
			perror("connect_many");
			_exit(1);
		}
		rdma_freeaddrinfo(info);
	}
	_exit(read(pipe, &end, 1) != 0);
}

TEST_F_TIMEOUT(cm, many_endpoints, SOAK_S)
{
	unsigned int count = times(64, 1000), i;
	struct ib_memreg_event event;
	int fd[2], status;
	pid_t pid;

	ASSERT_EQ(0, pipe(fd));
	pid = fork();
	if (!pid) {
		close(fd[1]);
		connect_many(self->o.port, count, fd[0]);
	}
	for (i = 0; i < count; i += event.type == IB_MEMREG_EVENT_ESTABLISHED) {
		ASSERT_EQ(0, memreg_get_event(self->o.m, &event, LIMIT_MS));
		if (event.type != IB_MEMREG_EVENT_CONNECT_REQUEST)
			continue;
		ASSERT_EQ(0, memreg_accept(self->o.m, event.endpoint_id,
					   self->o.domain, NULL, 0));
	}
	ASSERT_EQ(count, state_count(IB_MEMREG_OBJECT_ENDPOINT));
	close(fd[1]);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	/*
	 * Half of the endpoints are destroyed after the event of their end, the
	 * others before.
	 */
	for (i = 0; i < count / 2; i++) {
		owner_await(_metadata, &self->o, IB_MEMREG_EVENT_DISCONNECTED,
			    &event);
		ASSERT_EQ(0, memreg_destroy(self->o.m, event.endpoint_id));
	}
}

/*
 * Reading
 */

static void block(FIXTURE_DATA(cm) *self)
{
	int fd = memreg_fd(self->o.m);

	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

/* A thread that reads events from the owner's file */
struct reader {
	pthread_t thread;
	int fd;
	ssize_t ret;
	int error;
	struct ib_memreg_event event;
};

static void *read_one(void *arg)
{
	struct reader *r = arg;

	r->ret = read(r->fd, &r->event, sizeof(r->event));
	r->error = errno;
	return NULL;
}

static void start_reader(struct __test_metadata *_metadata,
			 FIXTURE_DATA(cm) *self, struct reader *r)
{
	r->fd = memreg_fd(self->o.m);
	ASSERT_EQ(0, pthread_create(&r->thread, NULL, read_one, r));
}

static void end_reader(struct __test_metadata *_metadata, struct reader *r)
{
	ASSERT_EQ(0, pthread_join(r->thread, NULL));
	ASSERT_EQ(sizeof(r->event), r->ret)
		TH_LOG("%s", strerror(r->error));
	ASSERT_EQ(IB_MEMREG_EVENT_CONNECT_REQUEST, r->event.type);
}

/* Wait until there are @count endpoints, without reading their events. */
static void await_endpoints(struct __test_metadata *_metadata,
			    unsigned int count)
{
	int64_t end = now_ms() + LIMIT_MS;

	while (state_count(IB_MEMREG_OBJECT_ENDPOINT) < count) {
		ASSERT_GT(end, now_ms());
		usleep(10000);
	}
}

/* Wait for requests at the listener, whose events may come later. */
static void await_requests(struct __test_metadata *_metadata,
			   FIXTURE_DATA(cm) *self, unsigned int count)
{
	await_endpoints(_metadata, count);
	ASSERT_EQ(0, memreg_destroy(self->o.m, self->o.listener));
}

TEST_F_TIMEOUT(cm, read_gives_whole_records_or_says_why_not, LIMIT_S)
{
	struct pollfd pfd = { .fd = memreg_fd(self->o.m), .events = POLLIN };
	struct ib_memreg_event events[3];
	struct peer other;
	void *nowhere;

	nowhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	ASSERT_NE(MAP_FAILED, nowhere);
	ASSERT_EQ(0, poll(&pfd, 1, 0));
	ASSERT_EQ(-1, read(pfd.fd, events, sizeof(events)));
	ASSERT_EQ(EAGAIN, errno);
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	ASSERT_EQ(1, poll(&pfd, 1, LIMIT_MS));
	ASSERT_EQ(POLLIN, pfd.revents);
	ASSERT_EQ(-1, read(pfd.fd, events, sizeof(events[0]) - 1));
	ASSERT_EQ(EINVAL, errno);
	ASSERT_EQ(-1, read(pfd.fd, nowhere, sizeof(events)));
	ASSERT_EQ(EFAULT, errno);
	ASSERT_EQ(1, poll(&pfd, 1, 0));

	/*
	 * The failed reads have consumed no event. The next read(2) returns
	 * two.
	 */
	peer_start(_metadata, &other, OWNER_IP4, self->o.port, NULL);
	await_requests(_metadata, self, 2);
	ASSERT_EQ(2 * sizeof(events[0]),
		  read(pfd.fd, events, sizeof(events) - 1));
	ASSERT_EQ(IB_MEMREG_EVENT_CONNECT_REQUEST, events[0].type);
	ASSERT_EQ(IB_MEMREG_EVENT_CONNECT_REQUEST, events[1].type);
	ASSERT_NE(events[0].endpoint_id, events[1].endpoint_id);
	ASSERT_EQ(0, poll(&pfd, 1, 0));
	peer_stop(&other, SIGKILL);
}

/*
 * If a read(2) faults in its second record it returns the first, and the next
 * read(2) returns the second.
 */
TEST_F_TIMEOUT(cm, fault_between_records_loses_none, LIMIT_S)
{
	struct ib_memreg_event *event, second;
	int fd = memreg_fd(self->o.m);
	struct peer other;
	uint8_t *mem;

	mem = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, munmap(mem + PAGE, PAGE));
	event = (struct ib_memreg_event *)(mem + PAGE) - 1;
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	peer_start(_metadata, &other, OWNER_IP4, self->o.port, NULL);
	await_requests(_metadata, self, 2);
	ASSERT_EQ(sizeof(*event), read(fd, event, 2 * sizeof(*event)));
	ASSERT_EQ(-1, read(fd, mem + PAGE - 8, sizeof(*event)));
	ASSERT_EQ(EFAULT, errno);
	ASSERT_EQ(sizeof(second), read(fd, &second, sizeof(second)));
	ASSERT_NE(event->endpoint_id, second.endpoint_id);
	peer_stop(&other, SIGKILL);
}

TEST_F_TIMEOUT(cm, blocked_reader_is_woken_by_an_event, LIMIT_S)
{
	struct reader r;

	block(self);
	start_reader(_metadata, self, &r);
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	end_reader(_metadata, &r);
}

TEST_F_TIMEOUT(cm, each_event_goes_to_one_of_two_readers, LIMIT_S)
{
	struct reader r[2];
	struct peer other;

	block(self);
	start_reader(_metadata, self, &r[0]);
	start_reader(_metadata, self, &r[1]);
	peer_start(_metadata, &self->p, OWNER_IP4, self->o.port, NULL);
	peer_start(_metadata, &other, OWNER_IP4, self->o.port, NULL);
	end_reader(_metadata, &r[0]);
	end_reader(_metadata, &r[1]);
	ASSERT_NE(r[0].event.endpoint_id, r[1].event.endpoint_id);
	peer_stop(&other, SIGKILL);
}

static void ignore(int sig)
{
	(void)sig;
}

TEST_F_TIMEOUT(cm, signal_interrupts_a_blocked_reader, LIMIT_S)
{
	struct sigaction action = { .sa_handler = ignore };
	struct itimerval timer = {
		.it_value = { .tv_usec = 50000 },
		.it_interval = { .tv_usec = 50000 },
	};
	struct ib_memreg_event event;

	block(self);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	ASSERT_EQ(-1, read(memreg_fd(self->o.m), &event, sizeof(event)));
	ASSERT_EQ(EINTR, errno);
	memset(&timer, 0, sizeof(timer));
	setitimer(ITIMER_REAL, &timer, NULL);
}

PEER_HARNESS_MAIN
