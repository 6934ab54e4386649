// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * memreg serve --export: what an application with queue pairs of its own gets.
 * Connections are of librdmacm, queue pairs and protection domains of
 * libibverbs, and peers have the key of an export that is registered there. All
 * peers of an export have the same key: it is revoked for all of them, and a
 * peer that comes later gets another export, in another protection domain, so
 * that its key is none for the others. An export ends with its last peer.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "../verbs/memreg-verbs.h"
#include "serve.h"

#define BACKLOG		16

/* The memory in a protection domain, for one or more peers */
struct share {
	struct ibv_pd *pd;
	struct ibv_cq *cq;	/* queue pairs have one; nothing comes in */
	struct memreg_export export;
	struct memreg_export_mr mr;	/* @export in @pd */
	bool registered;	/* @mr */
	unsigned int peers;
	int64_t since;		/* when the first peer was accepted */
};

/*
 * Shares
 */

/* Revoke first: then no driver has the memory when the export is destroyed */
static void share_free(struct server *s, struct share *share)
{
	uint32_t id = share->export.id;

	if (s->share == share)
		s->share = NULL;
	if (id)
		check_end(memreg_export_revoke(s->m, &id, 1, NULL));
	if (share->registered && memreg_export_deregister(&share->mr))
		fail("the export can't be deregistered");
	if (id)
		check_end(memreg_export_destroy(s->m, id));
	if (share->cq)
		ibv_destroy_cq(share->cq);
	if (share->pd)
		ibv_dealloc_pd(share->pd);
	free(share);
}

/* NULL, or why there is none */
static const char *share_make(struct server *s, struct share *share,
			      struct ibv_context *verbs)
{
	int ret;

	share->pd = ibv_alloc_pd(verbs);
	share->cq = ibv_create_cq(verbs, 1, NULL, NULL, 0);
	if (!share->pd || !share->cq)
		return strerror(errno);
	if (memreg_export(s->m, s->mr.id, 0, s->mr.length, &share->export))
		return memreg_reason();
	/* the flags of remote access have the same values */
	ret = memreg_export_register(share->pd, share->export.fd, 0, s->size,
				     (uintptr_t)s->memory,
				     (int)s->access | IBV_ACCESS_LOCAL_WRITE,
				     &share->mr);
	close(share->export.fd);
	if (ret)
		return strerror(-ret);
	share->registered = true;
	return NULL;
}

/* That of the other peers, unless it was revoked, or went with the memory */
static const char *share_get(struct server *s, struct peer *p,
			     struct ibv_context *verbs)
{
	const char *why = NULL;

	if (!memory_is_there(s, "export"))
		return "what it served is gone";
	if (!s->share) {
		s->share = calloc(1, sizeof(*s->share));
		if (!s->share)
			return strerror(ENOMEM);
		why = share_make(s, s->share, verbs);
	}
	if (why) {
		share_free(s, s->share);
		return why;
	}
	p->share = s->share;
	p->share->peers++;
	return NULL;
}

bool export_revoke(struct server *s, struct peer *p,
		   void (*report)(const struct server *s, const struct peer *p))
{
	struct share *share = p->share;
	int ret = memreg_export_revoke(s->m, &share->export.id, 1, NULL);

	if (ret)
		fail("%s", memreg_reason());
	/* also if that fails, it is none for the next peer */
	if (s->share == share)
		s->share = NULL;
	for (p = s->peers; p; p = p->next) {
		if (p->share != share)
			continue;
		if (p->revoke_at >= 0)
			p->revoke_at = ret ? now_ms() + RETRY_MS : -1;
		if (!ret && p->bound) {
			p->bound = false;
			report(s, p);
		}
	}
	return !ret;
}

void exports_revoke(struct server *s,
		    void (*report)(const struct server *s,
				   const struct peer *p))
{
	struct peer *p;

	for (p = s->peers; p; p = p->next)
		if (p->share && p->bound && !export_revoke(s, p, report))
			break;
}

/*
 * Listening
 */

int exports_check(struct server *s)
{
	struct memreg_device device;
	uint64_t can;

	if (memreg_query_cap(s->m, IB_MEMREG_CAP_EXPORT_REGISTER, &can) ||
	    memreg_query_device(s->m, &device))
		return fail("%s", memreg_reason());
	if (can)
		return EXIT_GOOD;
	return fail("--export: the driver of %s can't import memory that is revoked later (`memreg caps`: export-register), as those of irdma and mlx5 can; without --export each peer gets a window",
		    device.name);
}

/* Is it of another device? One that only has a wildcard is of none yet. */
static bool is_foreign(struct server *s, const struct rdma_cm_id *id)
{
	struct memreg_device device;

	return id->verbs && (memreg_query_device(s->m, &device) ||
			     strcmp(ibv_get_device_name(id->verbs->device),
				    device.name));
}

static int listen_here(struct server *s, const struct addrinfo *at)
{
	s->channel = rdma_create_event_channel();
	if (!s->channel ||
	    fcntl(s->channel->fd, F_SETFL, O_NONBLOCK) ||
	    rdma_create_id(s->channel, &s->listen_id, NULL, RDMA_PS_TCP))
		return fail("librdmacm: %s", strerror(errno));
	if (rdma_bind_addr(s->listen_id, at->ai_addr) ||
	    rdma_listen(s->listen_id, BACKLOG))
		return fail("listen on '%.80s', port %" PRIu16 ": %s",
			    s->address, s->port, strerror(errno));
	if (is_foreign(s, s->listen_id))
		return fail("the address '%.80s' is of another device, %s",
			    s->address,
			    ibv_get_device_name(s->listen_id->verbs->device));
	return EXIT_GOOD;
}

int exports_listen(struct server *s, struct ib_memreg_addr *bound)
{
	struct addrinfo *at = resolve(s->address, s->port, true);
	int ret;

	if (!at)
		return EXIT_FAILED;
	ret = listen_here(s, at);
	freeaddrinfo(at);
	if (ret == EXIT_GOOD &&
	    memreg_addr_from_sockaddr(rdma_get_local_addr(s->listen_id),
				      bound))
		ret = fail("%s", memreg_reason());
	if (ret == EXIT_GOOD)
		warn_of_anybody(bound);
	return ret;
}

int exports_fd(const struct server *s)
{
	return s->channel ? s->channel->fd : -1;
}

void exports_end(struct server *s)
{
	if (s->listen_id)
		rdma_destroy_id(s->listen_id);
	if (s->channel)
		rdma_destroy_event_channel(s->channel);
	s->listen_id = NULL;
	s->channel = NULL;
}

/*
 * Connections
 */

static const char *make_queue_pair(struct peer *p)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = p->share->cq,
		.recv_cq = p->share->cq,
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	return rdma_create_qp(p->conn, p->share->pd, &attr) ? strerror(errno) :
							      NULL;
}

/* With the grant in the private data */
static const char *accept_peer(const struct server *s, struct peer *p)
{
	struct memreg_grant grant = {
		.iova = (uintptr_t)s->memory,
		.length = s->size,
		.rkey = p->share->mr.rkey,
		.access = s->access,
	};
	char data[MEMREG_GRANT_SIZE];
	struct rdma_conn_param param = {
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.private_data = data,
		.private_data_len = sizeof(data),
	};

	memreg_grant_encode(&grant, data);
	if (rdma_accept(p->conn, &param))
		return strerror(errno);
	p->rkey = grant.rkey;
	p->bound = true;
	return NULL;
}

static void refuse(struct rdma_cm_id *id, const struct ib_memreg_addr *from,
		   const char *why)
{
	char data[REFUSAL_SIZE];

	write_refusal(from, why, data);
	if (rdma_reject(id, data, sizeof(data)))
		fail("reject: %s", strerror(errno));
}

/* The time until it is revoked begins with the first peer */
static void accepted(const struct server *s, struct peer *p)
{
	peer_accepted(s, p);
	if (p->share->peers == 1)
		p->share->since = p->since;
	if (p->revoke_at >= 0)
		p->revoke_at += p->share->since - p->since;
}

static void welcome(struct server *s, struct rdma_cm_id *id)
{
	struct ib_memreg_addr from = { 0 };
	const char *why = NULL;
	struct peer *p;

	memreg_addr_from_sockaddr(rdma_get_peer_addr(id), &from);
	p = peer_add(s, ++s->last_peer, &from);
	if (!p) {
		refuse(id, &from, strerror(ENOMEM));
		rdma_destroy_id(id);
		return;
	}
	p->conn = id;
	id->context = p;
	if (is_foreign(s, id))
		why = "it came by a device that does not serve";
	why = why ?: share_get(s, p, id->verbs);
	why = why ?: make_queue_pair(p);
	why = why ?: accept_peer(s, p);
	if (!why) {
		accepted(s, p);
		return;
	}
	refuse(id, &from, why);
	peer_free(s, p);
}

void export_disconnect(struct server *s, struct peer *p)
{
	if (!p->up)
		peer_went(s, p, "it was disconnected");
	else if (rdma_disconnect(p->conn))
		fail("peer %" PRIu32 ": %s", p->id, strerror(errno));
}

void export_peer_free(struct server *s, struct peer *p)
{
	if (p->conn->qp)
		rdma_destroy_qp(p->conn);
	if (p->share && !--p->share->peers)
		share_free(s, p->share);
	/* with the last id of a device that is gone librdmacm closes it */
	rdma_destroy_id(p->conn);
}

static void handle(struct server *s, struct rdma_cm_id *id,
		   enum rdma_cm_event_type type)
{
	struct peer *p = id->context;

	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		welcome(s, id);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		peer_came(s, p);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		if (p)
			peer_went(s, p, rdma_event_str(type));
		break;
	default:
		break;
	}
}

/* An id cannot be destroyed before its event is acknowledged */
void exports_events(struct server *s)
{
	enum rdma_cm_event_type type;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	while (!s->quit && !rdma_get_cm_event(s->channel, &event)) {
		type = event->event;
		id = event->id;
		rdma_ack_cm_event(event);
		handle(s, id, type);
	}
}
