/* SPDX-License-Identifier: GPL-2.0-only */
/* Domains: a protection domain, its registration queue, and its FRWRs. */
#ifndef _MEMREG_KEYS_DOMAIN_H
#define _MEMREG_KEYS_DOMAIN_H

#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "core.h"
#include "device.h"
#include "keys/fastmr.h"
#include "keys/regq.h"
#include "user_work.h"

/*
 * Classes of FRWRs. Class k is for 2^k pages at any offset, so its page list
 * has 2^k + 1 entries. Above those classes there is one for each larger page
 * size, with two entries. An FRWR keeps one page size, as drivers lay out its
 * list in bytes, and the layout must not change while packets may still be in
 * flight.
 */
#define MEMREG_CLASS_LARGE	(ilog2(MEMREG_MAX_PAGES) + 1)
#define MEMREG_CLASSES							\
	(MEMREG_CLASS_LARGE + MEMREG_PAGE_SHIFT_MAX - MEMREG_PAGE_SHIFT)

/* Hash bits of the table that finds idle FRWRs by the range they map. */
#define MEMREG_MAPPED_BITS	8

/**
 * struct memreg_idle - Idle FRWRs of a class
 * @frwrs: The FRWRs, least recently used first; frwr_lock
 * @count: Number of @frwrs; written with frwr_lock
 * @ended: Number of times that an FRWR became idle; frwr_lock
 */
struct memreg_idle {
	struct list_head frwrs;
	unsigned int count;
	u64 ended;
};

/**
 * struct memreg_domain - A PD with its registration queue
 * @obj: Head
 * @file: File that owns it
 * @mdev: The device
 * @cred: Credentials of the process that made the domain, to create QPs
 * @pd: Protection domain
 * @fence: An MR that is never given a key; only with
 *	MEMREG_QUIRK_REPEATS_REG_MR
 * @cq: Completions of @qp
 * @qp: RC QP connected to itself; carries REG_MR and LOCAL_INV only. While
 *	@state is not READY, it belongs to the rebuild worker, and is NULL if
 *	the last rebuild failed
 * @qpn: Number of the last QP, for LIST and traces
 * @port: Port of @qp
 * @gid: GID that @qp is connected by, to notice its removal
 * @gid_index: Index of @gid
 * @sq_mutex: Held by the thread that waits for room on the queue, so that
 *	threads are served in order
 * @sq_lock: Protects the fields down to @killing
 * @state: State of the queue
 * @sq_free: Free slots of the send queue for work requests that make keys
 * @rebuilds_begun: Rebuilds that began
 * @rebuilds_ended: Rebuilds that ended, either way
 * @rebuilt: Rebuilds that succeeded
 * @inflight: Batches posted, oldest first
 * @kills: Batches that kill keys; a batch without its @ended set is in flight
 * @dying: FRWRs whose keys the next batch in @kills is to kill
 * @nr_dying: Number of FRWRs in @dying; written with @sq_lock
 * @to_destroy: FRWRs whose MRs the worker @kill is to destroy
 * @killing: @kill is queued, or under way
 * @cq_lock: Taken to poll @cq: completions are taken in order
 * @irq: Polls @cq
 * @sq_wait: Wait queue for changes of @sq_free or @state
 * @rebuild: Worker that rebuilds a broken queue
 * @stall: Timer that detects a stalled queue which no thread waits for
 * @kill_mutex: Held by the owner that waits for @nr_dying to fall
 * @kill_wait: Wait queue for that
 * @kill: Worker that destroys MRs whose keys have to die
 * @idle: Idle FRWRs by class
 * @mapped: Idle FRWRs that map a range, by its hash, in the same order;
 *	frwr_lock
 * @retired: Number of FRWRs that were taken off @idle and are being destroyed
 * @reap_timer: Queues @reap
 * @reap: Worker that destroys FRWRs which have been idle for long
 * @squeeze: Memory is short: @reap destroys spare FRWRs of any age
 * @connections: Endpoints of the domain, each counted from before it has a QP
 *	until its QP and all its completions are gone
 * @spares: Idle FRWRs above the minimum, which can be destroyed; written with
 *	frwr_lock
 * @spare_node: In memreg_kdevice.spare_domains while @spares is not 0;
 *	frwr_lock
 * @device_node: In memreg_kdevice.domains
 * @gid_change: Number of the last GID change that was checked;
 *	memreg_kdevice.domains_lock
 * @charges: Charges of the PD, the CQ, the QP and @fence, if there is one, to
 *	the rdma cgroup
 */
struct memreg_domain {
	struct memreg_object obj;
	struct memreg_file *file;
	struct memreg_kdevice *mdev;
	const struct cred *cred;
	struct ib_pd *pd;
	struct memreg_fastmr fence;
	struct ib_cq *cq;
	struct ib_qp *qp;
	u32 qpn;
	u32 port;
	union ib_gid gid;
	u32 gid_index;
	struct mutex sq_mutex;
	spinlock_t sq_lock;
	enum memreg_regq_state state;
	unsigned int sq_free;
	unsigned long rebuilds_begun;
	unsigned long rebuilds_ended;
	unsigned long rebuilt;
	struct list_head inflight;
	struct memreg_batch kills[MEMREG_KILL_BATCHES];
	struct list_head dying;
	unsigned int nr_dying;
	struct list_head to_destroy;
	bool killing;
	spinlock_t cq_lock;
	struct irq_work irq;
	wait_queue_head_t sq_wait;
	struct memreg_user_work rebuild;
	struct timer_list stall;
	struct mutex kill_mutex;
	wait_queue_head_t kill_wait;
	struct memreg_user_work kill;
	struct memreg_idle idle[MEMREG_CLASSES];
	struct list_head mapped[1U << MEMREG_MAPPED_BITS];
	atomic_t retired;
	struct timer_list reap_timer;
	struct memreg_user_work reap;
	bool squeeze;
	atomic_t connections;
	long spares;
	struct list_head spare_node;
	struct list_head device_node;
	unsigned int gid_change;
	struct memreg_charge charges[4];
};

int memreg_domain_create_ioctl(struct memreg_ucmd *ucmd);
int memreg_domain_query_ioctl(struct memreg_ucmd *ucmd);
void memreg_domain_event(struct ib_event_handler *handler,
			 struct ib_event *event);
extern const struct memreg_object_ops memreg_domain_ops;

/**
 * memreg_domain_get() - Find a domain and keep it
 * @ucmd: Call that names the domain
 * @id: Its id
 *
 * Return: the domain, or ERR_PTR(-ENOENT) with the reason set.
 */
static inline struct memreg_domain *
memreg_domain_get(struct memreg_ucmd *ucmd, u32 id)
{
	struct memreg_object *obj;

	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_DOMAIN);
	if (!obj) {
		ucmd->reason = IB_MEMREG_REASON_ID;
		return ERR_PTR(-ENOENT);
	}
	return container_of(obj, struct memreg_domain, obj);
}

/**
 * memreg_domain_put() - Drop a reference of a domain
 * @domain: The domain
 */
static inline void memreg_domain_put(struct memreg_domain *domain)
{
	memreg_object_put(&domain->obj);
}

#endif /* _MEMREG_KEYS_DOMAIN_H */
