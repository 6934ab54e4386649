/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files of memreg serve share */
#ifndef MEMREG_TOOL_SERVE_H
#define MEMREG_TOOL_SERVE_H

#include "link.h"

struct peer;

struct server {
	/* as the options have it */
	const char *device;
	const char *address;
	uint16_t port;
	const char *file;
	uint64_t size;		/* bytes; 0: the default, or the file's */
	uint32_t access;	/* of the windows; 0: not said */
	int64_t revoke_after;	/* milliseconds, or -1 */
	bool shared;		/* one domain for all peers */
	bool once;		/* end when the first peer has gone */

	struct memreg *m;
	int fd;			/* of the file, or -1 */
	char *memory;
	uint32_t domain;	/* of the MR, and of the peers if shared */
	struct memreg_mr mr;
	uint32_t listener;
	struct peer *peers;
	bool quit;
	bool failed;		/* why it quits */
};

int64_t now_ms(void);

/*
 * The memory went, as when its file was truncated: register it anew. If that
 * can't be, the server is to end; false, and it was said.
 */
bool renew_memory(struct server *s);

/* peer.c: those who connect, from request to end */
void peers_event(struct server *s, const struct ib_memreg_event *event);
void peers_revoke(struct server *s, uint32_t id);	/* 0: all */
void peers_disconnect(struct server *s, uint32_t id);	/* 0: all */
void peers_print(const struct server *s);
/* Free the windows of all peers, so that nothing is bound to the memory */
void peers_unbind(struct server *s);

/* Revoke where the time has come; milliseconds until the next, or -1 */
int peers_expire(struct server *s);

/* End all connections and free what belongs to them */
void peers_end(struct server *s);

#endif /* MEMREG_TOOL_SERVE_H */
