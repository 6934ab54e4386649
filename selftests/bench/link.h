/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connections that data moves over: one end is the bench, in the network
 * namespace of the owner, the other a process in that of the peer.
 */
#ifndef BENCH_LINK_H
#define BENCH_LINK_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <memreg.h>

#define PEER_ADDRESS	"192.0.2.2"

/* Receives that a receiving side keeps posted. */
#define RECEIVES	512

/**
 * struct link - A connection of ours
 * @m: Handle
 * @domain: Domain
 * @endpoint: Endpoint, or 0
 * @ring_flags: enum ib_memreg_ring_flags of the ring
 * @ring: Ring for all that completes
 * @memory: Memory of pages of 4 KiB
 * @mr: MR on it
 * @grant: Grant of the peer
 */
struct link {
	struct memreg *m;
	uint32_t domain;
	uint32_t endpoint;
	uint32_t ring_flags;
	struct memreg_ring ring;
	char *memory;
	struct memreg_mr mr;
	struct memreg_grant grant;
};

/**
 * struct far - A far end
 * @serve: What it does, in a process of its own; it calls far_ready() once it
 *	listens, and returns when the connection has ended
 * @port: Port that it listens on
 */
struct far {
	int (*serve)(const struct far *far);
	uint16_t port;
};

/* Start a far end, and wait until it listens. It dies with the bench. */
int far_start(const struct far *far);
void far_ready(void);
const char *far_device(void);

/* Enter the network namespace of the peer. */
int enter_peer(void);

/* Connect to a far end, with receives posted for its messages. */
int link_connect(struct link *link, const struct far *far, size_t length,
		 unsigned int receives);

/* Prepare to receive into a piece of memory, which there are RECEIVES of. */
void link_prep_recv(const struct link *link, struct ib_memreg_wr *wr,
		    uint64_t piece);

/* Far ends of ours. */
int far_grant(const struct far *far);
int far_sink(const struct far *far);
int far_echo(const struct far *far);

/* One of libibverbs: it ends the key that each message has in it. */
int far_invalidate(const struct far *far);

#endif /* BENCH_LINK_H */
