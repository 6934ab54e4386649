/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Work that may wait for tasks of its user: users take turns at the workers.
 */
#ifndef _MEMREG_TURNS_H
#define _MEMREG_TURNS_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>

/**
 * enum memreg_turns_kind - Workqueues
 * @MEMREG_TURNS_CLOSE: Steps to the end of connections
 * @MEMREG_TURNS_RING: Completions that do not end in an interrupt
 * @MEMREG_TURNS_FILE: Files that another user closes last
 * @MEMREG_TURNS_DMABUF: Imports that an exporter did not wait for
 * @MEMREG_TURNS_DEMAND: Pages on demand to be unpinned
 * @MEMREG_TURNS_KILL: MRs to be destroyed, as their keys have to die
 * @MEMREG_TURNS_REBUILD: Registration queues to be rebuilt; none of these work
 *	items waits for another
 * @MEMREG_TURNS_REAP: Idle FRWRs to be destroyed
 * @MEMREG_TURNS_KINDS: Number of workqueues
 */
enum memreg_turns_kind {
	MEMREG_TURNS_CLOSE,
	MEMREG_TURNS_RING,
	MEMREG_TURNS_FILE,
	MEMREG_TURNS_DMABUF,
	MEMREG_TURNS_DEMAND,
	MEMREG_TURNS_KILL,
	MEMREG_TURNS_REBUILD,
	MEMREG_TURNS_REAP,
	MEMREG_TURNS_KINDS
};

/**
 * struct memreg_turns - Work of a user on a workqueue
 * @lock: Protects the fields below; with interrupts off
 * @running: Work items that are queued, or under way
 * @waiting: Work items that wait for others to end, by memreg_turn.node
 */
struct memreg_turns {
	spinlock_t lock;
	unsigned int running;
	struct list_head waiting;
};

/**
 * struct memreg_user - A user
 * @node: In the table of users
 * @uid: The user
 * @refs: Open files, and address spaces with MRs on demand
 * @turns: The user's work, by enum memreg_turns_kind
 */
struct memreg_user {
	struct hlist_node node;
	kuid_t uid;
	unsigned int refs;
	struct memreg_turns turns[MEMREG_TURNS_KINDS];
};

/**
 * struct memreg_turn - A work item of a user
 * @work: The work item, whose function calls memreg_turn_end() last
 * @node: In memreg_turns.waiting
 * @kind: Its workqueue
 * @turns: That of the user
 */
struct memreg_turn {
	struct work_struct work;
	struct list_head node;
	enum memreg_turns_kind kind;
	struct memreg_turns *turns;
};

int memreg_turns_init(void);
void memreg_turns_exit(void);
void memreg_turns_flush(enum memreg_turns_kind kind);
kuid_t memreg_user_uid(void);
struct memreg_user *memreg_user_get(kuid_t uid);
void memreg_user_put(struct memreg_user *user);
void memreg_turn_init(struct memreg_turn *turn, struct memreg_user *user,
		      enum memreg_turns_kind kind, work_func_t func);
bool memreg_turn_queue(struct memreg_turn *turn);
void memreg_turn_end(struct memreg_turn *turn);
bool memreg_turn_disable(struct memreg_turn *turn);

#endif /* _MEMREG_TURNS_H */
