/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Registration queues: what runs work requests that make and kill keys.
 */
#ifndef _MEMREG_MEM_REGQ_H
#define _MEMREG_MEM_REGQ_H

#include <linux/list.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "core.h"

struct memreg_domain;
struct memreg_frwr;
struct task_struct;

/* A batch that is as old when somebody gives up is stuck. */
#define MEMREG_REGQ_STUCK	(HZ * 9 / 10)

/* Work requests in flight on a registration queue. */
#define MEMREG_SQ_DEPTH		IB_MEMREG_BATCH_MAX

/* Besides those, batches of work requests that kill keys: see mem/kill.c. */
#define MEMREG_KILL_BATCH	32
#define MEMREG_KILL_BATCHES	2
#define MEMREG_SQ_RESERVE	(MEMREG_KILL_BATCH * MEMREG_KILL_BATCHES)

/**
 * enum memreg_regq_state - State of a registration queue
 * @MEMREG_REGQ_READY: It takes work.
 * @MEMREG_REGQ_BROKEN: A work request failed; the worker is rebuilding.
 * @MEMREG_REGQ_DOWN: It could not be rebuilt; the next user tries again.
 */
enum memreg_regq_state {
	MEMREG_REGQ_READY,
	MEMREG_REGQ_BROKEN,
	MEMREG_REGQ_DOWN,
};

/**
 * struct memreg_batch - Work requests that are posted together
 * @node: In memreg_domain.inflight; sq_lock
 * @domain: The domain
 * @first: The first of the FRWRs whose work requests they are, or NULL
 * @last: The last of them
 * @unposted: The first that is yet to be posted, or NULL; sq_lock
 * @count: Their number
 * @through: What is called, with sq_lock held, when they ended that kill keys,
 *	as one of memreg_domain.kills does; NULL if they make keys
 * @ended: All of them ended; sq_lock
 * @error: 0, or the status of one that failed; final once @ended
 * @posted: Jiffies when they were posted
 * @waiter: The task that waits for that, if they make keys
 */
struct memreg_batch {
	struct list_head node;
	struct memreg_domain *domain;
	struct memreg_frwr *first;
	struct memreg_frwr *last;
	struct memreg_frwr *unposted;
	unsigned int count;
	void (*through)(struct memreg_batch *batch);
	bool ended;
	int error;
	unsigned long posted;
	struct task_struct *waiter;
};

int memreg_regq_module_init(void);
void memreg_regq_module_exit(void);
void memreg_regq_init(struct memreg_domain *domain);
int memreg_regq_create(struct memreg_domain *domain);
void memreg_regq_destroy(struct memreg_domain *domain);
void memreg_regq_check(struct memreg_domain *domain);
u32 memreg_regq_port(struct ib_device *ibdev, u32 wanted);
int memreg_batch_run(struct memreg_batch *batch);
void memreg_batch_post_locked(struct memreg_batch *batch);
void memreg_regq_kick(struct memreg_domain *domain);
void memreg_regq_stall(struct memreg_domain *domain, unsigned long patience);
void memreg_regq_stall_later(struct memreg_domain *domain);
void memreg_regq_done(struct ib_cq *cq, struct ib_wc *wc);

#endif /* _MEMREG_MEM_REGQ_H */
