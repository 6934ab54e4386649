/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Domains: a protection domain, its registration queue, and the FRWRs that its
 * keys are made of.
 */
#ifndef _MEMREG_MEM_DOMAIN_H
#define _MEMREG_MEM_DOMAIN_H

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
#include "mem/fastmr.h"
#include "mem/regq.h"

/* The largest pages that windows are made of. */
#define MEMREG_PAGE_SHIFT_MAX	30

/*
 * Classes of FRWRs: class k holds 2^k pages at any offset, 2^k + 1 entries.
 * Behind those, for each larger size of pages one of two entries: drivers size
 * page lists by bytes, and not while packets may still be in flight.
 */
#define MEMREG_CLASS_LARGE	(ilog2(MEMREG_MAX_PAGES) + 1)
#define MEMREG_CLASSES							\
	(MEMREG_CLASS_LARGE + MEMREG_PAGE_SHIFT_MAX - MEMREG_PAGE_SHIFT)

/* Lists by which idle FRWRs are found that map a range already. */
#define MEMREG_MAPPED_BITS	8

/**
 * struct memreg_idle - Idle FRWRs of a class
 * @frwrs: They, the one that rests longest first; frwr_lock
 * @count: Their number; written with frwr_lock
 * @ended: Grants that ended: times that one became idle; frwr_lock
 */
struct memreg_idle {
	struct list_head frwrs;
	unsigned int count;
	u64 ended;
};

/**
 * struct memreg_domain - A PD with its registration queue
 * @obj: Head
 * @file: The file
 * @mdev: The device
 * @cred: Of the process that made the domain, to make QPs with
 * @pd: Protection domain
 * @fence: An MR that is never given a key, where MEMREG_QUIRK_REPEATS_REG_MR is
 * @cq: Completions of @qp
 * @qp: RC QP connected to itself; carries REG_MR and LOCAL_INV only. The
 *	worker's, and NULL while none can be had, if @state is not READY
 * @qpn: Number of the last one, for LIST and traces
 * @port: Port of @qp
 * @gid: GID that @qp is connected by, to see when it goes
 * @gid_index: Its index
 * @sq_mutex: Taken by who waits for room on the queue, so that the first to
 *	come is the first to be served
 * @sq_lock: Protects the fields down to @doomed
 * @state: State of the queue
 * @sq_free: Work requests that may be posted to make keys
 * @attempts: Rebuilds that ended, either way
 * @rebuilt: Rebuilds that succeeded
 * @inflight: Batches posted, oldest first
 * @kills: Batches that kill keys; one that is not @ended is in flight
 * @dying: FRWRs whose keys the next of those are to kill
 * @nr_dying: Their number; written with @sq_lock
 * @doomed: FRWRs whose MRs @kill is to destroy
 * @give_up: Fails the keys in @dying, as the queue takes no more work requests.
 *	Context: may sleep.
 * @cq_lock: Taken to poll @cq: completions are taken in order
 * @irq: Polls @cq
 * @sq_wait: Waits for @sq_free or @state to change
 * @rebuild: Worker that makes another queue of one that broke
 * @stall: Looks whether a queue works that nobody waits for
 * @kill_mutex: Taken by an owner to wait for @nr_dying to be few
 * @kill_wait: Waits for that
 * @kill: Worker that destroys MRs whose keys have to die
 * @idle: Idle FRWRs by class
 * @mapped: Those of them that map a range, by its hash, in the same order;
 *	frwr_lock
 * @reap: Worker that gives back FRWRs which have been idle for long
 * @squeeze: It is to give back those that have not been, too
 * @connections: Endpoints that are in it, from before each has a QP until it
 *	has none, and none of its completions is left
 * @spares: Idle FRWRs that need not be there; written with frwr_lock
 * @spare_node: In memreg_device.spare_domains while there are any; frwr_lock
 * @device_node: In memreg_device.domains
 * @gid_change: The last change of a GID that was looked at;
 *	memreg_device.domains_lock
 * @charges: PD, CQ, QP
 */
struct memreg_domain {
	struct memreg_object obj;
	struct memreg_file *file;
	struct memreg_device *mdev;
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
	unsigned long attempts;
	unsigned long rebuilt;
	struct list_head inflight;
	struct memreg_batch kills[MEMREG_KILL_BATCHES];
	struct list_head dying;
	unsigned int nr_dying;
	struct list_head doomed;
	void (*give_up)(struct memreg_domain *domain);
	spinlock_t cq_lock;
	struct irq_work irq;
	wait_queue_head_t sq_wait;
	struct work_struct rebuild;
	struct timer_list stall;
	struct mutex kill_mutex;
	wait_queue_head_t kill_wait;
	struct work_struct kill;
	struct memreg_idle idle[MEMREG_CLASSES];
	struct list_head mapped[1U << MEMREG_MAPPED_BITS];
	struct delayed_work reap;
	bool squeeze;
	atomic_t connections;
	long spares;
	struct list_head spare_node;
	struct list_head device_node;
	unsigned int gid_change;
	struct memreg_charge charges[3];
};

int memreg_domain_create_ioctl(struct memreg_ucmd *ucmd);
void memreg_domain_gid_change(struct memreg_device *mdev);
extern const struct memreg_object_ops memreg_domain_ops;

/**
 * memreg_domain_get() - Find a domain and keep it
 * @ucmd: Call that names it
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
 * memreg_domain_put() - Let go of a domain
 * @domain: The domain
 */
static inline void memreg_domain_put(struct memreg_domain *domain)
{
	memreg_object_put(&domain->obj);
}

#endif /* _MEMREG_MEM_DOMAIN_H */
