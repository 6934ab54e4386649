/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Registration queues, which execute the work requests that make and kill keys.
 */
#ifndef _MEMREG_KEYS_REGQ_H
#define _MEMREG_KEYS_REGQ_H

#include <linux/list.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "core.h"

struct memreg_domain;
struct memreg_frwr;
struct task_struct;
struct timer_list;

/* Age from which a batch counts as stalled when a wait for it times out. */
#define MEMREG_REGQ_STUCK	(HZ * 9 / 10)

/* Work requests in flight on a registration queue. */
#define MEMREG_SQ_DEPTH		IB_MEMREG_BATCH_MAX

/* Work requests of a batch, all posted with interrupts off. */
#define MEMREG_BATCH		32

/* Batches that kill keys, which have slots of their own: see keys/kill.c. */
#define MEMREG_KILL_BATCHES	2
#define MEMREG_SQ_RESERVE	(MEMREG_BATCH * MEMREG_KILL_BATCHES)

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
 * @first: First FRWR of the batch, or NULL
 * @last: Last FRWR of the batch
 * @count: Number of FRWRs, at most MEMREG_BATCH
 * @spoiled: A guard has found some of the keys that the batch makes: it is not
 *	posted any more if it was not yet; sq_lock
 * @begun: Posted; sq_lock
 * @ended: All work requests have ended; sq_lock
 * @error: 0, or the status of a work request that failed; final once @ended
 * @posted: Jiffies when it was posted
 * @waiter: Task that waits for @ended, for a batch that makes keys; NULL for a
 *	batch of memreg_domain.kills, which kills keys
 */
struct memreg_batch {
	struct list_head node;
	struct memreg_domain *domain;
	struct memreg_frwr *first;
	struct memreg_frwr *last;
	unsigned int count;
	bool spoiled;
	bool begun;
	bool ended;
	int error;
	unsigned long posted;
	struct task_struct *waiter;
};

void memreg_regq_init(struct memreg_domain *domain);
int memreg_regq_create(struct memreg_domain *domain);
void memreg_regq_destroy(struct memreg_domain *domain);
void memreg_regq_check(struct memreg_domain *domain);
u32 memreg_regq_port(struct ib_device *ibdev, u32 wanted);
int memreg_batch_run(struct memreg_batch *batch);
void memreg_batch_post_locked(struct memreg_batch *batch);
void memreg_regq_kick(struct memreg_domain *domain);
void memreg_regq_break(struct memreg_domain *domain);
bool memreg_regq_poll_some(struct memreg_domain *domain);
void memreg_regq_poll(struct memreg_domain *domain);
void memreg_regq_stall(struct memreg_domain *domain, unsigned long patience);
void memreg_regq_stall_later(struct memreg_domain *domain);
void memreg_regq_stall_timer(struct timer_list *timer);
void memreg_regq_done(struct ib_cq *cq, struct ib_wc *wc);

#endif /* _MEMREG_KEYS_REGQ_H */
