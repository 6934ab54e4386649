/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The owner of memory, which is the test itself, in the owner's namespace: it
 * uses the library, and lets a peer in.
 *
 * Functions that take _metadata fail the test themselves.
 */
#ifndef SELFTESTS_OWNER_H
#define SELFTESTS_OWNER_H

#include <stddef.h>
#include <stdint.h>

#include "harness.h"
#include "memreg.h"
#include "peer.h"

/**
 * struct owner - A handle with one domain and a listener
 * @m: The handle
 * @domain: The domain
 * @listener: The listener
 * @port: Port that it listens on
 */
struct owner {
	struct memreg *m;
	uint32_t domain;
	uint32_t listener;
	unsigned int port;
};

void owner_listen(struct __test_metadata *_metadata, struct owner *o,
		  const char *ip, unsigned int backlog);
/* Open a handle with one domain, and a listener at the owner's IPv4 address. */
void owner_open(struct __test_metadata *_metadata, struct owner *o);
void owner_close(struct owner *o);

/* Expect that the next event is of this type. Returns its endpoint. */
uint32_t owner_await(struct __test_metadata *_metadata, struct owner *o,
		     uint32_t type, struct ib_memreg_event *event);
void owner_no_event(struct __test_metadata *_metadata, struct owner *o);

/* Accept a request, with a grant in the private data unless @g is NULL. */
void owner_accept(struct __test_metadata *_metadata, struct owner *o,
		  uint32_t endpoint, uint32_t domain,
		  const struct memreg_grant *g);
/* Accept a peer that is about to connect. Returns its endpoint. */
uint32_t owner_admit(struct __test_metadata *_metadata, struct owner *o,
		     struct peer *p, uint32_t domain,
		     const struct memreg_grant *g);
/*
 * Accept a peer that connects again after an access error. Returns its new
 * endpoint.
 */
uint32_t owner_admit_again(struct __test_metadata *_metadata, struct owner *o,
			   struct peer *p, uint32_t endpoint);
/* Bind a window, for @bind's endpoint or for none, and fill in the grant. */
void owner_bind(struct __test_metadata *_metadata, struct owner *o,
		uint32_t domain, struct ib_memreg_bind *bind,
		struct memreg_grant *g);

#endif /* SELFTESTS_OWNER_H */
