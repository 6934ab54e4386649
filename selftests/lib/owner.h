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
/* With one domain, and a listener at IPv4's address */
void owner_open(struct __test_metadata *_metadata, struct owner *o);
void owner_close(struct owner *o);

/* The next event is of this type; returns its endpoint. */
uint32_t owner_await(struct __test_metadata *_metadata, struct owner *o,
		     uint32_t type, struct ib_memreg_event *event);
void owner_no_event(struct __test_metadata *_metadata, struct owner *o);

/* Accept a request with a grant, which may be NULL. */
void owner_accept(struct __test_metadata *_metadata, struct owner *o,
		  uint32_t endpoint, uint32_t domain,
		  const struct memreg_grant *g);
/* Let in a peer that is about to connect; returns its endpoint. */
uint32_t owner_admit(struct __test_metadata *_metadata, struct owner *o,
		     struct peer *p, uint32_t domain,
		     const struct memreg_grant *g);
/* After an access error a peer connects anew. Returns its new endpoint. */
uint32_t owner_admit_again(struct __test_metadata *_metadata, struct owner *o,
			   struct peer *p, uint32_t endpoint);
/* Bind one window, for an endpoint or for 0, and describe the grant. */
void owner_bind(struct __test_metadata *_metadata, struct owner *o,
		uint32_t domain, struct ib_memreg_bind *bind,
		struct memreg_grant *g);

#endif /* SELFTESTS_OWNER_H */
