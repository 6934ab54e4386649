/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Asking for the end of a connection.
 */
#ifndef _MEMREG_CONN_CLOSER_H
#define _MEMREG_CONN_CLOSER_H

#include <linux/completion.h>
#include <linux/list.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

#include "core.h"

struct memreg_endpoint;

/**
 * enum memreg_stage - How far the end of a connection has come, see closing.c
 * @MEMREG_STAGE_STANDS: Nobody has asked for it.
 * @MEMREG_STAGE_SETTLE: The QP goes to error by itself.
 * @MEMREG_STAGE_REFUSE: The peer is to see why.
 * @MEMREG_STAGE_DRAIN: What was posted is being flushed.
 * @MEMREG_STAGE_DETACH: The QP lets go of a shared receive queue.
 * @MEMREG_STAGE_OVER: All is done.
 */
enum memreg_stage {
	MEMREG_STAGE_STANDS,
	MEMREG_STAGE_SETTLE,
	MEMREG_STAGE_REFUSE,
	MEMREG_STAGE_DRAIN,
	MEMREG_STAGE_DETACH,
	MEMREG_STAGE_OVER,
};

/**
 * struct memreg_closing - The end of an endpoint's connection
 * @node: In memreg_closer.ready; memreg_closer.lock
 * @shut: No step is taken any more; memreg_closer.lock
 * @work: Takes a step
 * @cut: What a guard queues whose key a BIND may still make
 * @timer: Asks for a step
 * @go_on: What a step does before anybody has asked for the end: it connects;
 *	NULL on the side that accepts
 * @stage: How far it has come; the worker's
 * @until: Jiffies when that stage ends in any case; the worker's
 * @undone: Errno of the RDMA CM, which has not disconnected; the worker's
 * @asked: The connection is to end
 * @urgent: Nothing is done for the peer alone, and others of the file can wait
 * @left: The peer has disconnected, or our user is done
 * @last_wqe: The QP takes no more of the shared queue's
 * @draining: The last completion of a queue is to ask for a step
 * @quiet: The user knows of the end already; handler lock, or destroying
 * @over: The last stage is reached
 */
struct memreg_closing {
	struct list_head node;
	bool shut;
	struct work_struct work;
	struct work_struct cut;
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
	struct completion over;
};

int memreg_closer_init(void);
void memreg_closer_exit(void);
void memreg_closer_done(struct memreg_closer *closer);
void memreg_closing_step(struct memreg_endpoint *ep);
void memreg_closing_alarm(struct memreg_endpoint *ep, unsigned long expires);
void memreg_endpoint_close(struct memreg_endpoint *ep);

#endif /* _MEMREG_CONN_CLOSER_H */
