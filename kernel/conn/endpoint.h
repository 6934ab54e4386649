/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Endpoints: RDMA CM connections.
 */
#ifndef _MEMREG_CONN_ENDPOINT_H
#define _MEMREG_CONN_ENDPOINT_H

#include <linux/completion.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <rdma/rdma_cm.h>

#include "conn/teardown_queue.h"
#include "core.h"
#include "mr/grants.h"

struct cred;
struct memreg_domain;
struct memreg_queue;
struct memreg_srq;

/*
 * RNR retries that the peer uses are limited, so that its SENDs fail if no
 * receive is posted here. The peer sets the limit for SENDs from here; 7 would
 * mean no limit.
 */
#define MEMREG_RNR_RETRY	6

/* READs and atomics in flight in either direction, if the device allows. */
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
 *	with a reference
 * @id: RDMA CM id; NULL only if it turned out to belong to another device
 * @listener: Listener in whose backlog this request has a place, or NULL;
 *	handler lock, and event_lock to clear it
 * @listener_id: Id of the listener that it came from, or 0 on the side that
 *	connects
 * @grants: Windows that end with it
 * @send: Its send queue, or NULL
 * @recv: Its receive queue, or NULL
 * @srq: Shared receive queue that it takes buffers from, or NULL; holds a
 *	reference
 * @srq_qp: QP that takes the buffers; only used as a lookup key, never
 *	dereferenced
 * @srq_node: In memreg_queue.srq_users of the shared queue, while there may be
 *	completions of @srq_qp; memreg_kring.lock
 * @setup: Taken to make queues and a QP for a request, outside of the handler
 *	lock, and by the worker to make the endpoint CLOSED
 * @queued: The queues are set up, and do not change any more: release and
 *	acquire
 * @begun: Completed when ENDPOINT_CONNECT no longer uses @id
 * @state: enum ib_memreg_endpoint_state; changed under the handler lock
 * @up: The connection is or was accepted or established; handler lock
 * @sendable: The QP is, or was, in a state to send
 * @failing: The QP has announced that it moves to the error state by itself
 * @refused: It does so because of a request of the peer
 * @outcome: Event that reports the end; handler lock, final once CLOSED
 * @published: The endpoint can be found, so its events may be read; event_lock
 * @pending: Bitmap of the enum ib_memreg_event_type that are not read yet;
 *	event_lock
 * @event_node: In memreg_file.events; event_lock
 * @status: Status of the outcome; written before the event is posted
 * @peer: Address of the peer
 * @private_data: Private data from the peer, written before its event is
 *	posted; on the side that connects, at first the private data to send
 * @private_data_len: Length of @private_data
 * @user_data: User data that was set for it, or 0; event_lock, or READ_ONCE()
 *	without
 * @responder_resources: READs in flight from the peer that the peer requests
 * @initiator_depth: READs in flight to the peer that the peer accepts
 * @cred: Credentials of the caller of ENDPOINT_CONNECT, to make the QP;
 *	otherwise NULL
 * @connect_until: Jiffies until which ENDPOINT_CONNECT, or the peer's
 *	confirmation after ENDPOINT_ACCEPT, may take
 * @due: Steps of connecting to be taken, MEMREG_CONNECT_*
 * @teardown: State of the end of its connection
 * @charge: QP in the rdma cgroup
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
	struct hlist_node srq_node;
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
	struct memreg_teardown teardown;
	struct memreg_charge charge;
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
