/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A stock verbs peer that proves the effect of the owner's calls: the example
 * program verbs_peer, which does not use memreg. It runs in the peer's
 * namespace, takes commands through a pipe and answers each with one line.
 * Nothing waits without a limit.
 *
 * Functions that take _metadata fail the test themselves.
 */
#ifndef SELFTESTS_PEER_H
#define SELFTESTS_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "harness.h"

/**
 * struct peer - The process
 * @pid: Its id, or 0
 * @in: Its standard input
 * @out: Its standard output
 * @line: Its last answer
 * @rest: Output after the last line taken
 * @rest_len: Bytes of it
 */
struct peer {
	pid_t pid;
	int in;
	int out;
	char line[4096];
	char rest[4096];
	size_t rest_len;
};

/* Start a peer with further options, or NULL. It connects at once. */
void peer_start(struct __test_metadata *_metadata, struct peer *p,
		const char *ip, unsigned int port, const char *options);
/* Have the peer end and wait for it; by the signal @sig unless that is 0. */
void peer_stop(struct peer *p, int sig);

__attribute__((format(printf, 3, 4)))
void peer_tell(struct __test_metadata *_metadata, struct peer *p,
	       const char *format, ...);
/* Wait for its next line. */
const char *peer_answer(struct __test_metadata *_metadata, struct peer *p);

#define peer_ask(_metadata, p, ...)					\
	(peer_tell(_metadata, p, __VA_ARGS__), peer_answer(_metadata, p))

/* Value of a key in the peer's last answer, "" if it has none */
const char *peer_value(struct peer *p, const char *key);
uint64_t peer_number(struct peer *p, const char *key);

#define ASSERT_PEER(status, p)						\
	ASSERT_STREQ(status, peer_value(p, "status"))			\
		TH_LOG("the peer said: %s", (p)->line)

#endif /* SELFTESTS_PEER_H */
