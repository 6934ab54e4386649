// SPDX-License-Identifier: GPL-2.0-only
/*
 * Work that may wait for tasks of its user: users take turns at the workers.
 *
 * A work item may sleep on a lock that a call of its user holds, and that call
 * may get no CPU time. So each user has only a part of the room in the
 * workqueues, and further work items of the user wait for the end of others.
 */
#include <kunit/visibility.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "turns.h"

/**
 * struct memreg_turns_limit - A workqueue
 * @name: Its name
 * @max: Work items of a user that are queued, or under way, of WQ_MAX_ACTIVE,
 *	which the kernel divides among the NUMA nodes
 * @flags: Flags of the workqueue besides those that all have
 */
struct memreg_turns_limit {
	const char *name;
	unsigned int max;
	unsigned int flags;
};

static const struct memreg_turns_limit memreg_turns_limits[] = {
	[MEMREG_TURNS_CLOSE] = { "memreg_close", 32 },
	[MEMREG_TURNS_RING] = { "memreg_ring", 32 },
	[MEMREG_TURNS_FILE] = { "memreg_file", 8 },
	[MEMREG_TURNS_DMABUF] = { "memreg_dmabuf", 32 },
	[MEMREG_TURNS_DEMAND] = { "memreg_demand", 8 },
	[MEMREG_TURNS_KILL] = { "memreg_kill", 2, WQ_HIGHPRI },
	[MEMREG_TURNS_REBUILD] = { "memreg_rebuild", 32 },
	[MEMREG_TURNS_REAP] = { "memreg_reap", 2 },
};

static struct workqueue_struct *memreg_turns_wqs[MEMREG_TURNS_KINDS];

static DEFINE_HASHTABLE(memreg_users, 8);
static DEFINE_SPINLOCK(memreg_users_lock);

/* Reclaim may be waiting for a key that such work kills. */
static struct workqueue_struct *
memreg_turns_make_wq(const struct memreg_turns_limit *limit)
{
	return alloc_workqueue("%s", WQ_UNBOUND | WQ_MEM_RECLAIM | limit->flags,
			       WQ_MAX_ACTIVE, limit->name);
}

int __init memreg_turns_init(void)
{
	unsigned int i;

	for (i = 0; i < MEMREG_TURNS_KINDS; i++) {
		memreg_turns_wqs[i] =
			memreg_turns_make_wq(&memreg_turns_limits[i]);
		if (!memreg_turns_wqs[i])
			goto err;
	}
	return 0;

err:
	while (i--)
		destroy_workqueue(memreg_turns_wqs[i]);
	return -ENOMEM;
}

void memreg_turns_exit(void)
{
	unsigned int i;

	for (i = 0; i < MEMREG_TURNS_KINDS; i++)
		destroy_workqueue(memreg_turns_wqs[i]);
}

/**
 * memreg_turns_flush() - Wait for the work items of all users
 * @kind: Their workqueue; none is queued from outside of it any more
 *
 * Context: may sleep.
 */
void memreg_turns_flush(enum memreg_turns_kind kind)
{
	drain_workqueue(memreg_turns_wqs[kind]);
}

/*
 * Users
 */

/**
 * memreg_user_uid() - The user of the current process
 *
 * As one may have thousands of users in a namespace, all of them count as the
 * one who has made it; or if that is root, as the namespace's own root.
 *
 * Return: the user.
 */
kuid_t memreg_user_uid(void)
{
	struct user_namespace *ns = current_user_ns();
	kuid_t uid = current_euid();

	for (; ns != &init_user_ns; ns = ns->parent)
		uid = uid_eq(ns->owner, GLOBAL_ROOT_UID) ? make_kuid(ns, 0) :
							   ns->owner;
	return uid_valid(uid) ? uid : current_euid();
}

static struct memreg_user *memreg_user_new(kuid_t uid)
{
	struct memreg_user *user;
	unsigned int i;

	user = kzalloc(sizeof(*user), GFP_KERNEL_ACCOUNT);
	if (!user)
		return NULL;
	user->uid = uid;
	for (i = 0; i < MEMREG_TURNS_KINDS; i++) {
		spin_lock_init(&user->turns[i].lock);
		INIT_LIST_HEAD(&user->turns[i].waiting);
	}
	return user;
}

/* Find a user who has files, or else add @new. */
static struct memreg_user *memreg_user_find(struct memreg_user *new)
{
	struct memreg_user *user;
	u32 key = __kuid_val(new->uid);

	lockdep_assert_held(&memreg_users_lock);

	hash_for_each_possible(memreg_users, user, node, key)
		if (uid_eq(user->uid, new->uid))
			return user;
	hash_add(memreg_users, &new->node, key);
	return new;
}

/**
 * memreg_user_get() - Find or make a user
 * @uid: The user
 *
 * Context: may sleep.
 * Return: the user, with a reference; or NULL if there is no memory.
 */
struct memreg_user *memreg_user_get(kuid_t uid)
{
	struct memreg_user *user, *new = memreg_user_new(uid);

	if (!new)
		return NULL;
	spin_lock(&memreg_users_lock);
	user = memreg_user_find(new);
	user->refs++;
	spin_unlock(&memreg_users_lock);
	if (user != new)
		kfree(new);
	return user;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_user_get);

/**
 * memreg_user_put() - Put a user
 * @user: The user, of whom the caller has no work items any more
 */
void memreg_user_put(struct memreg_user *user)
{
	bool last;

	spin_lock(&memreg_users_lock);
	last = !--user->refs;
	if (last)
		hash_del(&user->node);
	spin_unlock(&memreg_users_lock);
	if (last)
		kfree(user);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_user_put);

/*
 * Work items
 */

/**
 * memreg_turn_init() - Initialize a work item
 * @turn: The work item
 * @user: Its user
 * @kind: Its workqueue
 * @func: Its function
 */
void memreg_turn_init(struct memreg_turn *turn, struct memreg_user *user,
		      enum memreg_turns_kind kind, work_func_t func)
{
	INIT_WORK(&turn->work, func);
	INIT_LIST_HEAD(&turn->node);
	turn->kind = kind;
	turn->turns = &user->turns[kind];
}
EXPORT_SYMBOL_IF_KUNIT(memreg_turn_init);

/* Queue a work item, unless it is queued already. */
static bool memreg_turn_run(struct memreg_turn *turn)
{
	bool queued;

	lockdep_assert_held(&turn->turns->lock);

	queued = queue_work(memreg_turns_wqs[turn->kind], &turn->work);
	turn->turns->running += queued;
	return queued;
}

/* Have a work item wait, unless it is queued already. */
static bool memreg_turn_wait(struct memreg_turn *turn)
{
	lockdep_assert_held(&turn->turns->lock);

	/*
	 * As queue_work() does: a function that is yet to be called sees what
	 * the caller has written.
	 */
	smp_mb();
	if (work_pending(&turn->work))
		return false;
	list_add_tail(&turn->node, &turn->turns->waiting);
	return true;
}

/**
 * memreg_turn_queue() - Queue a work item
 * @turn: The work item
 *
 * Context: any.
 * Return: true if its function will be called once more than without this call.
 */
bool memreg_turn_queue(struct memreg_turn *turn)
{
	struct memreg_turns *turns = turn->turns;
	unsigned long flags;
	bool queued;

	spin_lock_irqsave(&turns->lock, flags);
	if (!list_empty(&turn->node))
		queued = false;
	else if (turns->running < memreg_turns_limits[turn->kind].max)
		queued = memreg_turn_run(turn);
	else
		queued = memreg_turn_wait(turn);
	spin_unlock_irqrestore(&turns->lock, flags);
	return queued;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_turn_queue);

/**
 * memreg_turn_end() - Let another work item of the user run
 * @turn: The one whose function is about to return
 */
void memreg_turn_end(struct memreg_turn *turn)
{
	struct memreg_turns *turns = turn->turns;
	struct memreg_turn *next;

	spin_lock_irq(&turns->lock);
	turns->running--;
	/* One that is being disabled does not take the place. */
	do {
		next = list_first_entry_or_null(&turns->waiting,
						struct memreg_turn, node);
		if (next)
			list_del_init(&next->node);
	} while (next && !memreg_turn_run(next));
	spin_unlock_irq(&turns->lock);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_turn_end);

/* Take a work item off the list. Returns whether it was there. */
static bool memreg_turn_cancel(struct memreg_turn *turn)
{
	struct memreg_turns *turns = turn->turns;
	bool waited;

	spin_lock_irq(&turns->lock);
	waited = !list_empty(&turn->node);
	list_del_init(&turn->node);
	spin_unlock_irq(&turns->lock);
	return waited;
}

/**
 * memreg_turn_disable() - Make sure that the function of a work item is not
 * running, and will not be called any more
 * @turn: The work item, which nobody queues any more, but for its function
 *
 * Context: may sleep, for as long as the function runs.
 * Return: true if the work item was queued.
 */
bool memreg_turn_disable(struct memreg_turn *turn)
{
	bool queued = memreg_turn_cancel(turn);

	if (disable_work_sync(&turn->work)) {
		memreg_turn_end(turn);
		queued = true;
	}
	/* Its function may have queued it again. */
	return memreg_turn_cancel(turn) || queued;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_turn_disable);
