/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files of memreg serve share */
#ifndef MEMREG_TOOL_SERVE_H
#define MEMREG_TOOL_SERVE_H

#include "link.h"

struct rdma_cm_id;
struct rdma_event_channel;
struct share;

/* Milliseconds until what could not be revoked is tried again */
#define RETRY_MS	1000

/* A peer that was accepted, and has its key; or one that is to be */
struct peer {
	struct peer *next;
	uint32_t id;		/* of its endpoint; or counted, if exporting */
	struct rdma_cm_id *conn;	/* instead of an endpoint, or NULL */
	struct share *share;	/* the export whose key it has, or NULL */
	uint32_t domain;
	uint32_t window;
	void *buffer;		/* of the pool, or NULL */
	uint32_t rkey;
	bool up;
	bool bound;		/* its key is good, until the connection ends */
	int64_t since;		/* when it came up, or was accepted */
	int64_t revoke_at;	/* -1: never by itself */
	char address[ADDRESS_TEXT];
};

struct server {
	/* as the options have it */
	const char *device;
	const char *address;
	uint16_t port;
	const char *file;
	uint64_t size;		/* bytes; 0: the default, or the file's */
	uint64_t buffers;	/* of a pool; 0: a window for each peer */
	uint64_t buffer_size;	/* bytes of each */
	bool exports;		/* on connections of librdmacm */
	uint32_t access;	/* of the windows; 0: not said */
	int64_t revoke_after;	/* milliseconds, or -1 */
	bool shared;		/* one domain for all peers */
	bool per_peer;		/* a domain for each was asked for */
	bool once;		/* end when the first peer has gone */
	bool json;		/* report in records */

	struct memreg *m;
	int fd;			/* of the file, or -1 */
	char *memory;
	uint32_t domain;	/* of the MR, and of the peers if shared */
	struct memreg_mr mr;
	struct memreg_pool *pool;	/* @mr is all of it; or NULL */
	uint32_t listener;
	struct rdma_event_channel *channel;	/* if exporting */
	struct rdma_cm_id *listen_id;
	struct share *share;	/* for the next peer, or NULL */
	uint32_t last_peer;	/* number of the peer that came last */
	struct peer *peers;
	bool quit;
	bool failed;		/* why it quits */
};

/* serve_memory.c: memory */
int64_t now_ms(void);

/*
 * The MR is stale, for example because its file was truncated: register the
 * memory again. False after an error message if that fails, and the server has
 * to end.
 */
bool renew_memory(struct server *s);
/*
 * After a truncation the file's memory is gone, and is not to be touched: false
 * then, unless it could be registered again. @word is what needs it.
 */
bool memory_is_there(struct server *s, const char *word);
/* May the memory be written to? */
bool may_write(const struct server *s);
/* Make the memory or the pool, as the options have it; the exit status */
int make_memory(struct server *s);
/* End the windows or exports of all peers, so that the MR has none */
void peers_unbind(struct server *s);

/* peer.c: peers, from request to end */
void peers_event(struct server *s, const struct ib_memreg_event *event);
/* Add a peer; NULL if there is no memory */
struct peer *peer_add(struct server *s, uint32_t id,
		      const struct ib_memreg_addr *from);
/* It has been accepted, and has its key from now on */
void peer_accepted(const struct server *s, struct peer *p);
/* It is connected; the connection is over, or has failed for a reason */
void peer_came(struct server *s, struct peer *p);
void peer_went(struct server *s, struct peer *p, const char *reason);
/* Free a peer whose connection is over, or has never been */
void peer_free(struct server *s, struct peer *p);
void peers_revoke(struct server *s, uint32_t id);	/* 0: all */
void peers_disconnect(struct server *s, uint32_t id);	/* 0: all */
void peers_print(const struct server *s);

/* Revoke where the time has come; milliseconds until the next, or -1 */
int peers_expire(struct server *s);

/* End all connections and free what belongs to them */
void peers_end(struct server *s);

/*
 * serve_export.c: with --export, the connections are of librdmacm, and peers
 * have the key of an export instead of a window
 */

/* Can the device have that? The exit status, after a complaint */
int exports_check(struct server *s);
int exports_listen(struct server *s, struct ib_memreg_addr *bound);
/* For poll(2), or -1 */
int exports_fd(const struct server *s);
void exports_events(struct server *s);
/* End the connection of a peer, or only begin to if it is up */
void export_disconnect(struct server *s, struct peer *p);
/* Free what a peer has of this */
void export_peer_free(struct server *s, struct peer *p);
/*
 * Revoke the export that a peer has the key of, and report that for each peer
 * that has it; false after a complaint
 */
bool export_revoke(struct server *s, struct peer *p,
		   void (*report)(const struct server *s,
				  const struct peer *p));
/* The same for all exports */
void exports_revoke(struct server *s,
		    void (*report)(const struct server *s,
				   const struct peer *p));
void exports_end(struct server *s);

/* serve_report.c: what happens, for people or in records of JSON */
void report_serving(const struct server *s, const char *device,
		    const struct ib_memreg_addr *bound);
void report_end(const struct server *s);
/* Report that the memory is registered again, or that it is stale */
void report_memory(const struct server *s, bool there);
void report_connected(const struct server *s, const struct peer *p);
void report_gone(const struct server *s, const struct peer *p, int64_t ms);
void report_failed(const struct server *s, const struct peer *p,
		   const char *reason);
void report_revoked(const struct server *s, const struct peer *p);
void report_window_gone(const struct server *s, const struct peer *p);
/* For the command that lists them all, which ends with the second */
void report_peer(const struct server *s, const struct peer *p);
void report_list_end(const struct server *s);
void report_shown(const struct server *s, uint64_t offset, uint64_t len);
void report_set(const struct server *s, uint64_t offset, uint64_t len);

/* Report text for people only, such as an error in a command */
void report_text(const struct server *s, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif /* MEMREG_TOOL_SERVE_H */
