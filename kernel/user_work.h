/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Work that may wait for tasks of its user: each user has a limited number of
 * workers.
 */
#ifndef _MEMREG_USER_WORK_H
#define _MEMREG_USER_WORK_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>

/**
 * enum memreg_work_kind - Kinds of work
 * @MEMREG_WORK_CLOSE: Steps to the end of connections
 * @MEMREG_WORK_RING: Completions that do not end in an interrupt
 * @MEMREG_WORK_FILE: Files that another user closes last
 * @MEMREG_WORK_DMABUF: Imports that an exporter did not wait for
 * @MEMREG_WORK_EXPORT: Exports that end
 * @MEMREG_WORK_DEMAND: Pages on demand to be unpinned
 * @MEMREG_WORK_REAP: Idle FRWRs to be destroyed
 * @MEMREG_WORK_KILL: MRs to be destroyed, as their keys have to die
 * @MEMREG_WORK_LEASE: Leases that end
 * @MEMREG_WORK_REBUILD: Registration queues to be rebuilt; none of these work
 *	items waits for another
 * @MEMREG_WORK_KINDS: Number of kinds
 */
enum memreg_work_kind {
	MEMREG_WORK_CLOSE,
	MEMREG_WORK_RING,
	MEMREG_WORK_FILE,
	MEMREG_WORK_DMABUF,
	MEMREG_WORK_EXPORT,
	MEMREG_WORK_DEMAND,
	MEMREG_WORK_REAP,
	MEMREG_WORK_KILL,
	MEMREG_WORK_LEASE,
	MEMREG_WORK_REBUILD,
	MEMREG_WORK_KINDS
};

/**
 * struct memreg_user_works - Work of a user on a workqueue
 * @lock: Protects the fields below; with interrupts off
 * @running: Work items that are queued, or under way
 * @waiting: Work items that wait for others to end, by memreg_user_work.node
 */
struct memreg_user_works {
	spinlock_t lock;
	unsigned int running;
	struct list_head waiting;
};

/**
 * struct memreg_user - A user
 * @node: In the table of users
 * @uid: The user
 * @refs: Open files, exports, and address spaces with MRs on demand
 * @exports: Exports, and monitors of dma-bufs
 * @works: The user's work, by enum memreg_work_kind
 */
struct memreg_user {
	struct hlist_node node;
	kuid_t uid;
	unsigned int refs;
	atomic_t exports;
	struct memreg_user_works works[MEMREG_WORK_KINDS];
};

/**
 * struct memreg_user_work - A work item of a user
 * @work: The work item, whose function calls memreg_user_work_end() last
 * @node: In memreg_user_works.waiting
 * @kind: Its kind
 * @works: That of the user
 */
struct memreg_user_work {
	struct work_struct work;
	struct list_head node;
	enum memreg_work_kind kind;
	struct memreg_user_works *works;
};

int memreg_user_works_init(void);
void memreg_user_works_exit(void);
void memreg_user_works_flush(enum memreg_work_kind kind);
bool memreg_work_queue(enum memreg_work_kind kind, struct work_struct *work);
kuid_t memreg_user_uid(void);
struct memreg_user *memreg_user_get(kuid_t uid);
void memreg_user_hold(struct memreg_user *user);
void memreg_user_put(struct memreg_user *user);
void memreg_user_work_init(struct memreg_user_work *work,
			   struct memreg_user *user,
			   enum memreg_work_kind kind, work_func_t func);
bool memreg_user_work_queue(struct memreg_user_work *work);
void memreg_user_work_end(struct memreg_user_work *work);
bool memreg_user_work_disable(struct memreg_user_work *work);

#endif /* _MEMREG_USER_WORK_H */
