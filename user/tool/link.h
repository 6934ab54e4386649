/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A connection that moves data, for subcommands that have one */
#ifndef MEMREG_TOOL_LINK_H
#define MEMREG_TOOL_LINK_H

#include "number.h"
#include "tool.h"

/* Sizes of its queues: enough for one operation at a time */
#define LINK_SENDS	16
#define LINK_MESSAGES	2	/* receives */
#define LINK_MESSAGE	32	/* bytes of a message, either way */

struct link {
	struct memreg *m;
	uint32_t domain;
	uint32_t endpoint;
	unsigned int pending;	/* completions that are to come */
	struct memreg_ring ring;
	struct memreg_mr mr;	/* of @messages */
	char *messages;		/* LINK_MESSAGES slots of LINK_MESSAGE bytes */
};

enum link_result {
	LINK_GOOD,
	LINK_FAILED,		/* a complaint was made */
	LINK_OVER,		/* the connection ended */
};

/* Make its domain, ring and memory; the exit status, as of the next two */
int link_open(struct link *l, struct memreg *m);

/* Connect; @event gets what the peer accepted with */
int link_connect(struct link *l, const char *address, uint16_t port,
		 uint32_t timeout_ms, struct ib_memreg_event *event);

/* Accept the request that @event is */
int link_accept(struct link *l, const struct ib_memreg_event *event);

/* End the connection, and free its objects; allowed in every state */
void link_close(struct link *l);

/* Print an error if an object could not be ended, unless its device is gone */
void check_end(int ret);

/* Post work requests, all of them */
enum link_result link_submit(struct link *l, struct ib_memreg_wr *wrs,
			     unsigned int count);

/*
 * Wait for the completion of a work request with this opcode, skipping
 * successful completions of others. Prints an error for a failure, and for a
 * timeout.
 */
enum link_result link_await(struct link *l, uint16_t opcode,
			    struct ib_memreg_cqe *cqe);

/* Prepare to receive a message into a slot, which is free again */
void link_prep_recv(struct link *l, struct ib_memreg_wr *wr, uint64_t slot);

/* The message that a RECV completed with; its slot is @cqe->user_data */
const void *link_message(const struct link *l,
			 const struct ib_memreg_cqe *cqe);

/* Resolve; to be freed by freeaddrinfo(). NULL after a complaint */
struct addrinfo *resolve(const char *address, uint16_t port, bool passive);

/*
 * Open a device: the one that is named, or the one that has @address if it is
 * @passive, otherwise the one that leads to it, or the only one. Returns the
 * exit status, EXIT_FAILED after a complaint.
 */
int open_device(const char *device, const char *address, bool passive,
		struct memreg **m);

/* The same, then do something with it, and close it */
int with_device_at(const char *device, const char *address, bool passive,
		   int (*run)(struct memreg *m, void *ctx), void *ctx);

/* Milliseconds that a peer has to answer, from an option and without it */
#define TIMEOUT_DEFAULT_MS	30000
int take_timeout(const char *word, uint32_t *ms);

/*
 * Wait until an endpoint is connected, and report now and then that it is not;
 * EXIT_FAILED after a complaint about the cause. ENDPOINT_CONNECT had the same
 * timeout.
 */
int await_connection(struct memreg *m, uint32_t endpoint, uint32_t timeout_ms,
		     struct ib_memreg_event *event);

/*
 * Turn the peer of a CONNECT_REQUEST away with a reason, which a tool of ours
 * shows to the user there, and complain of it here.
 */
void refuse_peer(struct memreg *m, const struct ib_memreg_event *request,
		 const char *reason);

/*
 * Complain that a peer is turned away, and write the private data of a
 * rejection that tells the user there: REFUSAL_SIZE bytes.
 */
#define REFUSAL_SIZE	104
void write_refusal(const struct ib_memreg_addr *peer, const char *reason,
		   void *data);

/* Warn if any host can connect to this address */
void warn_of_anybody(const struct ib_memreg_addr *bound);

/*
 * Listen, with a warning if any host can connect. Returns the listener and its
 * address, or 0 after an error message.
 */
uint32_t listen_at(struct memreg *m, const char *address, uint16_t port,
		   unsigned int backlog, struct ib_memreg_addr *bound);

/* Complain about a work request that failed */
int fail_completion(const struct ib_memreg_cqe *cqe);

/* "192.0.2.1:7471"; @buf holds ADDRESS_TEXT bytes */
#define ADDRESS_TEXT 1080
const char *address_text(const struct ib_memreg_addr *addr, char *buf);

/* "192.0.2.1 port 7471", in @buf, which holds as many */
const char *place_text(const struct ib_memreg_addr *addr, char *buf);

#endif /* MEMREG_TOOL_LINK_H */
