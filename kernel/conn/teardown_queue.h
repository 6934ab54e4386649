/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests for the end of a connection. */
#ifndef _MEMREG_CONN_TEARDOWN_QUEUE_H
#define _MEMREG_CONN_TEARDOWN_QUEUE_H

#include <linux/completion.h>
#include <linux/list.h>
#include <linux/timer.h>

#include "core.h"
#include "user_work.h"

struct memreg_endpoint;

/**
 * enum memreg_stage - Stages of the end of a connection, see teardown.c
 * @MEMREG_STAGE_ACTIVE: The end is not requested.
 * @MEMREG_STAGE_ERROR: The QP is moving to the error state by itself.
 * @MEMREG_STAGE_REFUSE: The peer gets time to see why.
 * @MEMREG_STAGE_DRAIN: Posted work requests are being flushed.
 * @MEMREG_STAGE_DETACH: The QP is leaving a shared receive queue.
 * @MEMREG_STAGE_OVER: The connection has ended.
 * @MEMREG_STAGE_DESTROYED: The QP and the id are destroyed.
 */
enum memreg_stage {
	MEMREG_STAGE_ACTIVE,
	MEMREG_STAGE_ERROR,
	MEMREG_STAGE_REFUSE,
	MEMREG_STAGE_DRAIN,
	MEMREG_STAGE_DETACH,
	MEMREG_STAGE_OVER,
	MEMREG_STAGE_DESTROYED,
};

/**
 * struct memreg_teardown - The end of an endpoint's connection
 * @node: In memreg_teardown_queue.ready; memreg_teardown_queue.lock
 * @shut: No more steps are scheduled; memreg_teardown_queue.lock
 * @work: Work that takes a step
 * @abort: Work that a guard queues if a BIND on the send queue may still make
 *	the guard's key
 * @timer: Schedules a step
 * @go_on: Called by a step before the end is requested: to connect, or to end
 *	what a peer does not confirm; NULL for a request
 * @stage: Stage that is reached; belongs to the worker
 * @until: Jiffies when that stage times out; belongs to the worker
 * @undone: Errno of the RDMA CM if it failed to disconnect; belongs to the
 *	worker
 * @asked: The end is requested
 * @urgent: Skip stages that only serve the peer, and go before other endpoints
 *	of the file
 * @left: The peer has disconnected, or our user has
 * @last_wqe: The QP takes no more buffers from the shared queue
 * @draining: The last completion of a queue schedules a step
 * @quiet: Post no event, as the user knows of the end; handler lock, or while
 *	destroying
 * @parts: The endpoint is being destroyed, and no call uses its id
 * @over: Completed when the connection has ended
 * @parted: Completed when the last stage is reached
 */
struct memreg_teardown {
	struct list_head node;
	bool shut;
	struct memreg_user_work work;
	struct work_struct abort;
	struct timer_list timer;
	void (*go_on)(struct memreg_endpoint *ep);
	enum memreg_stage stage;
	unsigned long until;
	int undone;
	bool asked;
	bool urgent;
	bool left;
	bool last_wqe;
	bool draining;
	bool quiet;
	bool parts;
	struct completion over;
	struct completion parted;
};

void memreg_teardown_queue_done(struct memreg_teardown_queue *queue);
void memreg_teardown_step(struct memreg_endpoint *ep);
void memreg_teardown_alarm(struct memreg_endpoint *ep, unsigned long expires);
void memreg_endpoint_close(struct memreg_endpoint *ep);

#endif /* _MEMREG_CONN_TEARDOWN_QUEUE_H */
