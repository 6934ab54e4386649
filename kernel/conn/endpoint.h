/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Endpoints: RDMA CM connections.
 */
#ifndef _MEMREG_CONN_ENDPOINT_H
#define _MEMREG_CONN_ENDPOINT_H

#include <linux/completion.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/rhashtable-types.h>
#include <linux/types.h>
#include <rdma/rdma_cm.h>

#include "conn/closer.h"
#include "core.h"
#include "mem/window.h"

struct cred;
struct memreg_domain;
struct memreg_queue;
struct memreg_srq;

/*
 * If we post no receives, a SEND of the peer's ends with an error, not never.
 * What becomes of ours is for the peer to say, and 7 is for ever.
 */
#define MEMREG_RNR_RETRY	6

/* READs and atomics at a time, in either direction, if the device can. */
#define MEMREG_RD_ATOM		16

/* Bits of memreg_endpoint.due: resolve the address; make the QP; connect it. */
#define MEMREG_CONNECT_RESOLVE	0
#define MEMREG_CONNECT_QP	1
#define MEMREG_CONNECT_ASK	2

struct memreg_listener;

/**
 * struct memreg_endpoint - A connection, or a peer's request for one
 * @obj: Head
 * @file: The file
 * @domain: Domain of its QP, or NULL before the request is accepted; set once,
 *	and kept by a reference
 * @id: RDMA CM id; NULL only if it turned out to be of another device
 * @listener: Its backlog has a place taken by this request, or NULL; handler
 *	lock, and event_lock to take it away
 * @listener_id: Id of the listener that it came from, or 0 on the side that
 *	connects
 * @grants: Windows that end with it
 * @send: Its send queue, or NULL
 * @recv: Its receive queue, or NULL
 * @srq: Shared receive queue that it takes buffers from, or NULL; keeps a
 *	reference
 * @srq_qp: QP that takes them; only its address means anything
 * @srq_node: In memreg_queue.takers of the shared queue, while there may be
 *	completions of @srq_qp
 * @setup: Taken to make queues and a QP for a request, outside of the handler
 *	lock, and by the worker to make the endpoint CLOSED
 * @queued: The queues are what they will be: release and acquire
 * @begun: ENDPOINT_CONNECT has let go of @id
 * @state: enum ib_memreg_endpoint_state; changed under the handler lock
 * @up: The peer is, or was, in: accepted or established; handler lock
 * @sendable: The QP is, or was, one that may send
 * @failing: The QP said that it goes to error, by itself
 * @refused: It does so because of what the peer has asked for
 * @outcome: Event that reports the end; handler lock, final once CLOSED
 * @published: It can be found, so its events may be read; event_lock
 * @pending: Bitmap of enum ib_memreg_event_type that wait to be read;
 *	event_lock
 * @event_node: In memreg_file.events; event_lock
 * @status: Of the outcome; written before that is posted
 * @peer: Address of the peer
 * @private_data: What the peer sent, written before the event that reports it
 *	is posted; on the side that connects at first what is to be sent
 * @private_data_len: Its length
 * @user_data: What the user gave it, or 0; event_lock, and READ_ONCE() without
 * @responder_resources: READs from the peer at a time that it asks for
 * @initiator_depth: READs to the peer at a time that it takes
 * @cred: Of the caller of ENDPOINT_CONNECT, to make the QP with; otherwise NULL
 * @connect_until: Jiffies until which ENDPOINT_CONNECT may take
 * @due: Steps of connecting to be taken, MEMREG_CONNECT_*
 * @closing: Its end
 * @charge: QP in the rdma cgroup
 * @rcu: Who looks for another one in memreg_queue.takers may be at it
 */
struct memreg_endpoint {
	struct memreg_object obj;
	struct memreg_file *file;
	struct memreg_domain *domain;
	struct rdma_cm_id *id;
	struct memreg_listener *listener;
	u32 listener_id;
	struct memreg_grants grants;
	struct memreg_queue *send;
	struct memreg_queue *recv;
	struct memreg_srq *srq;
	const struct ib_qp *srq_qp;
	struct rhash_head srq_node;
	struct mutex setup;
	bool queued;
	struct completion begun;
	u32 state;
	bool up;
	bool sendable;
	bool failing;
	bool refused;
	u32 outcome;
	bool published;
	unsigned long pending;
	struct list_head event_node;
	s32 status;
	struct ib_memreg_addr peer;
	u8 private_data[IB_MEMREG_PRIVATE_DATA_MAX];
	u32 private_data_len;
	u64 user_data;
	u8 responder_resources;
	u8 initiator_depth;
	const struct cred *cred;
	unsigned long connect_until;
	unsigned long due;
	struct memreg_closing closing;
	struct memreg_charge charge;
	struct rcu_head rcu;
};

struct memreg_endpoint *memreg_endpoint_alloc(struct memreg_file *file,
					      gfp_t gfp);
struct memreg_endpoint *memreg_endpoint_get(struct memreg_ucmd *ucmd, u32 id);
void memreg_endpoint_keep_data(struct memreg_endpoint *ep, const void *data,
			       u32 len);
int memreg_endpoint_handler(struct rdma_cm_id *id, struct rdma_cm_event *event);
int memreg_endpoint_disconnect_ioctl(struct memreg_ucmd *ucmd);
int memreg_set_user_data_ioctl(struct memreg_ucmd *ucmd);
extern const struct memreg_object_ops memreg_endpoint_ops;

#endif /* _MEMREG_CONN_ENDPOINT_H */
