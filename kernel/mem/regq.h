/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Registration queues, which execute the work requests that make and kill keys.
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

/* Age from which a batch counts as stalled when a wait for it times out. */
#define MEMREG_REGQ_STUCK	(HZ * 9 / 10)

/* Work requests in flight on a registration queue. */
#define MEMREG_SQ_DEPTH		IB_MEMREG_BATCH_MAX

/*
 * Size of each of the batches that kill keys, which have slots of their own:
 * see mem/kill.c.
 */
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
 * @first: First FRWR of the batch, or NULL
 * @last: Last FRWR of the batch
 * @unposted: First FRWR whose work request is not posted yet, or NULL; sq_lock
 * @count: Number of FRWRs
 * @through: Called with sq_lock held when a batch of memreg_domain.kills, which
 *	kills keys, has ended; NULL for a batch that makes keys
 * @spoiled: A guard has found some of the keys that the batch makes: called
 *	with sq_lock held when it has ended; NULL otherwise. The batch is not
 *	posted any more if it was not yet
 * @begun: Posted, at least in part; sq_lock
 * @ended: All work requests have ended; sq_lock
 * @error: 0, or the status of a work request that failed; final once @ended
 * @posted: Jiffies when the last part of it was posted
 * @waiter: Task that waits for @ended, for a batch that makes keys
 */
struct memreg_batch {
	struct list_head node;
	struct memreg_domain *domain;
	struct memreg_frwr *first;
	struct memreg_frwr *last;
	struct memreg_frwr *unposted;
	unsigned int count;
	void (*through)(struct memreg_batch *batch);
	void (*spoiled)(struct memreg_batch *batch);
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
void memreg_batch_push_spoiled(struct memreg_domain *domain);
void memreg_regq_kick(struct memreg_domain *domain);
void memreg_regq_stall(struct memreg_domain *domain, unsigned long patience);
void memreg_regq_stall_later(struct memreg_domain *domain);
void memreg_regq_done(struct ib_cq *cq, struct ib_wc *wc);

#endif /* _MEMREG_MEM_REGQ_H */
