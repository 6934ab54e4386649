// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Coming together: addresses and the devices that have them, listening, how
 * long a peer is waited for, and why there is no connection.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "link.h"

/* Milliseconds between two reports that there is no answer yet */
#define PROGRESS_MS	5000

/* Time beyond the timeout for the kernel to report how an attempt ended */
#define PATIENCE_MS	10000

/* Private data of a rejection: why, for the user at the other end */
#define REFUSAL_MAGIC	UINT32_C(0x6d72656a)	/* "mrej" */
#define REFUSAL_TEXT	100

struct refusal {
	uint32_t magic;		/* network byte order */
	char text[REFUSAL_TEXT];
};

_Static_assert(sizeof(struct refusal) == REFUSAL_SIZE, "as link.h has it");

/*
 * Addresses
 */

static void set_port(struct sockaddr *sa, uint16_t port)
{
	in_port_t value = htons(port);
	size_t at = sa->sa_family == AF_INET ?
		offsetof(struct sockaddr_in, sin_port) :
		offsetof(struct sockaddr_in6, sin6_port);

	memcpy((char *)sa + at, &value, sizeof(value));
}

struct addrinfo *resolve(const char *address, uint16_t port, bool passive)
{
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = passive ? AI_PASSIVE : 0,
	};
	struct addrinfo *list = NULL;
	int ret;

	if (!*address) {
		fail("the address is empty");
		return NULL;
	}
	ret = getaddrinfo(address, NULL, &hints, &list);
	if (ret)
		fail("the address '%.80s': %s", address, gai_strerror(ret));
	else
		set_port(list->ai_addr, port);
	return list;
}

static const char *format_address(const struct ib_memreg_addr *addr,
				  const char *v4, const char *v6, char *buf)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	struct sockaddr_storage sa;
	socklen_t len;

	_Static_assert(sizeof(host) + sizeof(port) + 8 <= ADDRESS_TEXT,
		       "it fits");
	if (memreg_addr_to_sockaddr(addr, &sa, &len) ||
	    getnameinfo((struct sockaddr *)&sa, len, host, sizeof(host), port,
			sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		return strcpy(buf, "unknown address");
	strcpy(buf, sa.ss_family == AF_INET6 && *v6 == '[' ? "[" : "");
	strcat(buf, host);
	strcat(buf, sa.ss_family == AF_INET6 ? v6 + (*v6 == '[') : v4);
	return strcat(buf, port);
}

const char *address_text(const struct ib_memreg_addr *addr, char *buf)
{
	return format_address(addr, ":", "[]:", buf);
}

const char *place_text(const struct ib_memreg_addr *addr, char *buf)
{
	return format_address(addr, " port ", " port ", buf);
}

static bool is_wildcard(const struct ib_memreg_addr *addr)
{
	static const uint8_t any[sizeof(addr->ip)];

	return !memcmp(addr->ip, any, sizeof(any));
}

void warn_of_anybody(const struct ib_memreg_addr *bound)
{
	if (is_wildcard(bound))
		fprintf(stderr, "memreg: anybody who reaches this host may connect; --address ADDRESS listens on one address only\n");
}

uint32_t listen_at(struct memreg *m, const char *address, uint16_t port,
		   unsigned int backlog, struct ib_memreg_addr *bound)
{
	struct addrinfo *at = resolve(address, port, true);
	uint32_t listener = 0;

	if (!at)
		return 0;
	if (memreg_listen(m, at->ai_addr, backlog, &listener) ||
	    memreg_addr_from_sockaddr(at->ai_addr, bound))
		fail("%s", memreg_reason());
	freeaddrinfo(at);
	if (listener)
		warn_of_anybody(bound);
	return listener;
}

/*
 * The device of an address
 */

#define DEVICES_MAX	64

/* Can @device listen on an address? The RDMA CM knows whose it is. */
static bool has_address(const char *device,
			const struct sockaddr_storage *address)
{
	struct sockaddr_storage at = *address;	/* which gets a port */
	struct memreg *m;
	uint32_t listener;
	bool has;

	if (memreg_open(device, &m))
		return false;
	has = !memreg_listen(m, (struct sockaddr *)&at, 1, &listener);
	memreg_close(m);
	return has;
}

/* The local address from which packets to a peer are sent; nothing is sent */
static bool find_source(const struct addrinfo *peer,
			struct sockaddr_storage *source)
{
	int fd = socket(peer->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*source);
	bool found;

	if (fd < 0)
		return false;
	found = !connect(fd, peer->ai_addr, peer->ai_addrlen) &&
		!getsockname(fd, (struct sockaddr *)source, &len);
	close(fd);
	if (found)
		set_port((struct sockaddr *)source, 0);
	return found;
}

static int find_address(const char *address, bool passive,
			struct sockaddr_storage *sa)
{
	struct addrinfo *at = resolve(address, passive ? 0 : 1, passive);
	bool found = true;

	if (!at)
		return EXIT_FAILED;
	if (passive)
		memcpy(sa, at->ai_addr, at->ai_addrlen);
	else
		found = find_source(at, sa);
	freeaddrinfo(at);
	return found ? EXIT_GOOD :
		       fail("there is no route to '%.80s'", address);
}

/*
 * Find the only device with an address. A wildcard or a loopback address is one
 * of each device: then @name stays empty.
 */
static int find_device(const char *address, bool passive, char *name)
{
	struct memreg_device devices[DEVICES_MAX];
	unsigned int i, count = DEVICES_MAX, found = 0;
	struct sockaddr_storage sa = { .ss_family = AF_UNSPEC };
	int ret;

	if (memreg_list_devices(devices, &count) || count < 2)
		return EXIT_GOOD;
	ret = find_address(address, passive, &sa);
	if (ret != EXIT_GOOD)
		return ret;
	for (i = 0; i < count && i < DEVICES_MAX; i++) {
		if (!has_address(devices[i].name, &sa))
			continue;
		found++;
		strcpy(name, devices[i].name);
	}
	if (found > 1)
		*name = '\0';
	if (found)
		return EXIT_GOOD;
	return passive ?
		fail("no RDMA device here has the address '%.80s'", address) :
		fail("the route to '%.80s' is through no RDMA device",
		     address);
}

int open_device(const char *device, const char *address, bool passive,
		struct memreg **m)
{
	char name[IB_MEMREG_DEVICE_NAME_MAX] = "";
	int ret = memreg_open(device, m);

	if (ret == -ENODEV && !device) {
		ret = find_device(address, passive, name);
		if (ret != EXIT_GOOD)
			return ret;
		ret = memreg_open(*name ? name : NULL, m);
	}
	return ret ? fail("%s", memreg_reason()) : EXIT_GOOD;
}

int with_device_at(const char *device, const char *address, bool passive,
		   int (*run)(struct memreg *m, void *ctx), void *ctx)
{
	struct memreg *m;
	int ret = open_device(device, address, passive, &m);

	if (ret != EXIT_GOOD)
		return ret;
	ret = run(m, ctx);
	memreg_close(m);
	return ret;
}

/*
 * Waiting for a peer
 */

int take_timeout(const char *word, uint32_t *ms)
{
	static const struct number n = {
		"--timeout", UNIT_SECONDS, 100 * NS_PER_MS,
		IB_MEMREG_TIMEOUT_MAX_MS * NS_PER_MS,
	};
	uint64_t ns;
	int ret = take_number(word, &n, &ns);

	if (ret == EXIT_GOOD)
		*ms = (uint32_t)(ns / NS_PER_MS);
	return ret;
}

/* Print the reason that a rejecting program of memreg has sent */
static const char *refusal_text(const struct ib_memreg_event *event, char *buf)
{
	struct refusal refusal;

	if (event->private_data_len < sizeof(refusal))
		return NULL;
	memcpy(&refusal, event->private_data, sizeof(refusal));
	if (be32toh(refusal.magic) != REFUSAL_MAGIC || !*refusal.text)
		return NULL;
	return plain_text(refusal.text, sizeof(refusal.text), buf);
}

static int fail_event(const struct ib_memreg_event *event)
{
	char at[ADDRESS_TEXT], buf[REFUSAL_TEXT + 1];
	const char *why = NULL;

	address_text(&event->peer, at);
	if (event->type == IB_MEMREG_EVENT_REJECTED)
		why = refusal_text(event, buf);
	if (why)
		return fail("the program at %s turns us away: %s", at, why);
	return fail("no connection with %s: %s", at,
		    memreg_event_reason(event));
}

/* The next event of any endpoint within @ms; as memreg_get_event() */
static int next_event(struct memreg *m, struct ib_memreg_event *event,
		      uint32_t ms)
{
	int ret;

	do {
		ret = memreg_get_event(m, event, (int)ms);
	} while (ret == -EINTR);
	return ret;
}

static void report_waiting(int64_t ms)
{
	fprintf(stderr, "memreg: no answer for %d s, and still waiting\n",
		(int)(ms / 1000));
}

/* Other peers that ask meanwhile have to wait */
int await_connection(struct memreg *m, uint32_t endpoint, uint32_t timeout_ms,
		     struct ib_memreg_event *event)
{
	int64_t since = now_ns(), waited;
	uint32_t patience = 2 * timeout_ms + PATIENCE_MS;
	int ret;

	for (;;) {
		ret = next_event(m, event, PROGRESS_MS);
		if (!ret && event->endpoint_id == endpoint)
			break;
		if (ret && ret != -EAGAIN)
			return fail("%s", memreg_reason());
		waited = (now_ns() - since) / (int64_t)NS_PER_MS;
		if (waited >= patience)
			return fail("the peer did not answer within %d s; does `ping` reach its host?",
				    (int)(waited / 1000));
		if (ret)
			report_waiting(waited);
	}
	return event->type == IB_MEMREG_EVENT_ESTABLISHED ? EXIT_GOOD :
							    fail_event(event);
}

void write_refusal(const struct ib_memreg_addr *peer, const char *reason,
		   void *data)
{
	struct refusal refusal = { .magic = htobe32(REFUSAL_MAGIC) };
	char at[ADDRESS_TEXT];

	fail("the peer at %s is turned away: %s", address_text(peer, at),
	     reason);
	strncpy(refusal.text, reason, sizeof(refusal.text) - 1);
	memcpy(data, &refusal, sizeof(refusal));
}

void refuse_peer(struct memreg *m, const struct ib_memreg_event *request,
		 const char *reason)
{
	char data[REFUSAL_SIZE];

	write_refusal(&request->peer, reason, data);
	if (memreg_refuse(m, request->endpoint_id, data, sizeof(data)))
		fail("%s", memreg_reason());
}

int fail_completion(const struct ib_memreg_cqe *cqe)
{
	return fail("%s: %s", memreg_opcode_string(cqe->opcode),
		    memreg_cqe_reason(cqe));
}
