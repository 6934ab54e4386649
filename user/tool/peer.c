// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The peers of memreg serve. Each gets a window for its own connection, and
 * unless --shared is given a domain of its own, so that no other peer can use
 * its key. With a pool each peer gets a buffer instead, as long as there are
 * any, and the key ends when it is replaced.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

static struct peer *find_peer(const struct server *s, uint32_t id)
{
	struct peer *p;

	for (p = s->peers; p; p = p->next)
		if (p->id == id)
			return p;
	return NULL;
}

/* Recycle the buffer of a peer, so that its key is dead, and the data gone */
static int recycle(struct server *s, struct peer *p)
{
	int ret = memreg_pool_recycle(s->pool, &p->buffer, 1, 0);

	if (!ret)
		p->bound = false;
	return ret;
}

/* A buffer whose key cannot be replaced is not given to another peer */
static void give_buffer(struct server *s, struct peer *p)
{
	if (p->bound && recycle(s, p))
		fail("%s", memreg_reason());
	else if (memreg_pool_give(s->pool, p->buffer))
		fail("the buffer of peer %" PRIu32 " was given before", p->id);
}

void peer_free(struct server *s, struct peer *p)
{
	struct peer **at;

	for (at = &s->peers; *at; at = &(*at)->next) {
		if (*at != p)
			continue;
		*at = p->next;
		break;
	}
	if (p->buffer)
		give_buffer(s, p);
	if (p->conn)
		export_peer_free(s, p);
	if (p->window && memreg_window_free(s->m, p->window))
		fail("%s", memreg_reason());
	if (p->domain && p->domain != s->domain &&
	    memreg_domain_destroy(s->m, p->domain))
		fail("%s", memreg_reason());
	free(p);
}

/* Bind a window for the endpoint, and write the grant of it */
static int grant(struct server *s, struct peer *p, void *data)
{
	struct ib_memreg_bind bind = {
		.window_id = p->window,
		.mr_id = s->mr.id,
		.length = s->mr.length,
		.access = s->access,
		.endpoint_id = p->id,
	};
	int ret = 0;

	if (s->shared)
		p->domain = s->domain;
	else if (!p->domain)
		ret = memreg_domain_create(s->m, 0, &p->domain);
	if (!ret)
		ret = memreg_window_grant(s->m, p->domain, &bind, data);
	if (ret)
		return ret;
	p->window = bind.window_id;
	p->bound = true;
	p->rkey = bind.out_rkey;
	return 0;
}

/* Take a buffer for the peer, and write the grant of it */
static int grant_buffer(struct server *s, struct peer *p, void *data)
{
	struct memreg_grant entry;
	int ret;

	p->domain = s->domain;
	ret = memreg_pool_take(s->pool, &p->buffer);
	if (!ret)
		ret = memreg_pool_entry(s->pool, p->buffer, &entry);
	if (ret)
		return ret;
	entry.access = s->access;
	memreg_grant_encode(&entry, data);
	p->bound = true;
	p->rkey = entry.rkey;
	return 0;
}

/* The memory may have gone, and be there again: then it is tried once more */
static int grant_or_renew(struct server *s, struct peer *p, void *data)
{
	int ret;

	if (s->pool)
		return grant_buffer(s, p, data);
	ret = grant(s, p, data);
	return ret == -ESTALE && renew_memory(s) ? grant(s, p, data) : ret;
}

/* Why a peer could not be let in */
static const char *why_not(const struct server *s, const struct peer *p)
{
	if (s->failed)
		return "what it served is gone";
	if (s->pool && !p->buffer)
		return "all buffers are taken";
	return memreg_reason();
}

/* Whether or not the peer confirms that */
void peer_accepted(const struct server *s, struct peer *p)
{
	p->since = now_ms();
	if (s->revoke_after >= 0)
		p->revoke_at = p->since + s->revoke_after;
}

struct peer *peer_add(struct server *s, uint32_t id,
		      const struct ib_memreg_addr *from)
{
	struct peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->id = id;
	p->revoke_at = -1;
	p->next = s->peers;
	s->peers = p;
	address_text(from, p->address);
	return p;
}

static void welcome(struct server *s, const struct ib_memreg_event *event)
{
	struct peer *p = peer_add(s, event->endpoint_id, &event->peer);
	char data[MEMREG_GRANT_SIZE];

	if (!p) {
		refuse_peer(s->m, event, strerror(ENOMEM));
		return;
	}
	if (!grant_or_renew(s, p, data) &&
	    !memreg_accept(s->m, p->id, p->domain, data, sizeof(data))) {
		peer_accepted(s, p);
		return;
	}
	refuse_peer(s->m, event, why_not(s, p));
	peer_free(s, p);
}

void peer_came(struct server *s, struct peer *p)
{
	p->up = true;
	p->since = now_ms();
	report_connected(s, p);
}

void peer_went(struct server *s, struct peer *p, const char *reason)
{
	if (p->up)
		report_gone(s, p, now_ms() - p->since);
	else
		report_failed(s, p, reason);
	if (s->once && p->up)
		s->quit = true;
	if (!p->conn && memreg_destroy(s->m, p->id))
		fail("%s", memreg_reason());
	peer_free(s, p);
}

void peers_event(struct server *s, const struct ib_memreg_event *event)
{
	struct peer *p;

	if (event->type == IB_MEMREG_EVENT_CONNECT_REQUEST) {
		welcome(s, event);
		return;
	}
	p = find_peer(s, event->endpoint_id);
	if (!p)
		return;
	if (event->type == IB_MEMREG_EVENT_ESTABLISHED)
		peer_came(s, p);
	else
		peer_went(s, p, memreg_event_reason(event));
}

/* If it fails, the peer is still to be revoked when its time comes */
static void revoke(struct server *s, struct peer *p)
{
	if (!p->bound) {
		p->revoke_at = -1;
		report_text(s, "peer %" PRIu32 ": has no %s any more", p->id,
			    s->pool ? "buffer" : "window");
		return;
	}
	if (p->share) {
		export_revoke(s, p, report_revoked);
		return;
	}
	if (s->pool ? recycle(s, p) :
		      memreg_window_revoke(s->m, p->domain, p->window)) {
		fail("peer %" PRIu32 ": %s", p->id, memreg_reason());
		return;
	}
	p->bound = false;
	p->revoke_at = -1;
	report_revoked(s, p);
}

static void disconnect(struct server *s, struct peer *p)
{
	if (p->conn)
		export_disconnect(s, p);
	else if (memreg_disconnect(s->m, p->id))
		fail("peer %" PRIu32 ": %s", p->id, memreg_reason());
}

/*
 * Call a function for one peer, or for all if @id is 0: also for one that was
 * accepted and is not connected yet, as it has its key
 */
static void for_peers(struct server *s, uint32_t id,
		      void (*act)(struct server *s, struct peer *p))
{
	struct peer *p, *next;
	bool found = !id;

	for (p = s->peers; p; p = next) {
		next = p->next;
		if (id && p->id != id)
			continue;
		found = true;
		act(s, p);
	}
	if (!found)
		report_text(s, "there is no peer %" PRIu32, id);
}

/* Peers have the key of an export in common */
void peers_revoke(struct server *s, uint32_t id)
{
	if (!s->exports)
		for_peers(s, id, revoke);
	else if (id)
		report_text(s, "revoke %" PRIu32 ": all peers have the same key, of one export; revoke all ends that",
			    id);
	else
		exports_revoke(s, report_revoked);
}

void peers_disconnect(struct server *s, uint32_t id)
{
	for_peers(s, id, disconnect);
}

void peers_print(const struct server *s)
{
	const struct peer *p;

	for (p = s->peers; p; p = p->next)
		report_peer(s, p);
	report_list_end(s);
}

int peers_expire(struct server *s)
{
	int64_t now = now_ms(), next = -1;
	struct peer *p;

	for (p = s->peers; p; p = p->next) {
		if (p->revoke_at >= 0 && p->revoke_at <= now) {
			p->revoke_at = now + RETRY_MS;
			revoke(s, p);
		}
		if (p->revoke_at >= 0 && (next < 0 || p->revoke_at < next))
			next = p->revoke_at;
	}
	if (next < 0)
		return -1;
	return next - now > 1000000 ? 1000000 : (int)(next - now);
}

void peers_end(struct server *s)
{
	while (s->peers) {
		if (!s->peers->conn)
			memreg_destroy(s->m, s->peers->id);
		peer_free(s, s->peers);
	}
}
