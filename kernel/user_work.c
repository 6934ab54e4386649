// SPDX-License-Identifier: GPL-2.0-only
/*
 * Work that may wait for tasks of its user: each user has a limited number of
 * workers.
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

#include "user_work.h"

/**
 * struct memreg_work_limit - A workqueue
 * @name: Its name; NULL if it is that of the kind before, with items of which
 *	those of this kind do not wait for each other
 * @max: Work items of a user that are queued, or under way, of WQ_MAX_ACTIVE,
 *	which the kernel divides among the NUMA nodes
 * @flags: Flags of the workqueue besides those that all have
 */
struct memreg_work_limit {
	const char *name;
	unsigned int max;
	unsigned int flags;
};

static const struct memreg_work_limit memreg_work_limits[] = {
	[MEMREG_WORK_CLOSE] = { "memreg_close", 32 },
	[MEMREG_WORK_RING] = { "memreg_ring", 32 },
	[MEMREG_WORK_FILE] = { "memreg_file", 8 },
	[MEMREG_WORK_DMABUF] = { "memreg_dmabuf", 32 },
	[MEMREG_WORK_EXPORT] = { NULL, 32 },
	[MEMREG_WORK_DEMAND] = { "memreg_reap", 8 },
	[MEMREG_WORK_REAP] = { NULL, 2 },
	[MEMREG_WORK_KILL] = { "memreg_kill", 2, WQ_HIGHPRI },
	/* Keys have to die in time, and may need the work above for that. */
	[MEMREG_WORK_LEASE] = { "memreg_lease", 8, WQ_HIGHPRI },
	[MEMREG_WORK_REBUILD] = { "memreg_rebuild", 32 },
};

static struct workqueue_struct *memreg_work_wqs[MEMREG_WORK_KINDS];

static DEFINE_HASHTABLE(memreg_users, 8);
static DEFINE_SPINLOCK(memreg_users_lock);

/* Reclaim may be waiting for a key that such work kills. */
static struct workqueue_struct *
memreg_user_works_make_wq(const struct memreg_work_limit *limit)
{
	return alloc_workqueue("%s", WQ_UNBOUND | WQ_MEM_RECLAIM | limit->flags,
			       WQ_MAX_ACTIVE, limit->name);
}

/* Destroy the workqueues of the first @n kinds. */
static void memreg_user_works_destroy(unsigned int n)
{
	while (n--)
		if (memreg_work_limits[n].name)
			destroy_workqueue(memreg_work_wqs[n]);
}

int __init memreg_user_works_init(void)
{
	const struct memreg_work_limit *limit = memreg_work_limits;
	unsigned int i;

	for (i = 0; i < MEMREG_WORK_KINDS; i++, limit++) {
		memreg_work_wqs[i] = limit->name ?
				      memreg_user_works_make_wq(limit) :
				      memreg_work_wqs[i - 1];
		if (!memreg_work_wqs[i]) {
			memreg_user_works_destroy(i);
			return -ENOMEM;
		}
	}
	return 0;
}

void memreg_user_works_exit(void)
{
	memreg_user_works_destroy(MEMREG_WORK_KINDS);
}

/**
 * memreg_user_works_flush() - Wait for the work items of all users
 * @kind: Their workqueue; none is queued from outside of it any more
 *
 * Context: may sleep.
 */
void memreg_user_works_flush(enum memreg_work_kind kind)
{
	drain_workqueue(memreg_work_wqs[kind]);
}

/**
 * memreg_work_queue() - Queue a work item that waits for no task of a user
 * @kind: Its workqueue
 * @work: The work item, which counts for no user
 *
 * Context: any.
 * Return: false if it was queued already.
 */
bool memreg_work_queue(enum memreg_work_kind kind, struct work_struct *work)
{
	return queue_work(memreg_work_wqs[kind], work);
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
	for (i = 0; i < MEMREG_WORK_KINDS; i++) {
		spin_lock_init(&user->works[i].lock);
		INIT_LIST_HEAD(&user->works[i].waiting);
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
 * memreg_user_hold() - Keep a user
 * @user: The user, whom the caller or a file of the caller's keeps already
 */
void memreg_user_hold(struct memreg_user *user)
{
	spin_lock(&memreg_users_lock);
	user->refs++;
	spin_unlock(&memreg_users_lock);
}

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
 * memreg_user_work_init() - Initialize a work item
 * @work: The work item
 * @user: Its user
 * @kind: Its workqueue
 * @func: Its function
 */
void memreg_user_work_init(struct memreg_user_work *work,
			   struct memreg_user *user,
			   enum memreg_work_kind kind, work_func_t func)
{
	INIT_WORK(&work->work, func);
	INIT_LIST_HEAD(&work->node);
	work->kind = kind;
	work->works = &user->works[kind];
}
EXPORT_SYMBOL_IF_KUNIT(memreg_user_work_init);

/* Queue a work item, unless it is queued already. */
static bool memreg_user_work_run(struct memreg_user_work *work)
{
	bool queued;

	lockdep_assert_held(&work->works->lock);

	queued = queue_work(memreg_work_wqs[work->kind], &work->work);
	work->works->running += queued;
	return queued;
}

/* Have a work item wait, unless it is queued already. */
static bool memreg_user_work_wait(struct memreg_user_work *work)
{
	lockdep_assert_held(&work->works->lock);

	/*
	 * As queue_work() does: a function that is yet to be called sees what
	 * the caller has written.
	 */
	smp_mb();
	if (work_pending(&work->work))
		return false;
	list_add_tail(&work->node, &work->works->waiting);
	return true;
}

/**
 * memreg_user_work_queue() - Queue a work item
 * @work: The work item
 *
 * Context: any.
 * Return: true if its function will be called once more than without this call.
 */
bool memreg_user_work_queue(struct memreg_user_work *work)
{
	struct memreg_user_works *works = work->works;
	unsigned long flags;
	bool queued;

	spin_lock_irqsave(&works->lock, flags);
	if (!list_empty(&work->node))
		queued = false;
	else if (works->running < memreg_work_limits[work->kind].max)
		queued = memreg_user_work_run(work);
	else
		queued = memreg_user_work_wait(work);
	spin_unlock_irqrestore(&works->lock, flags);
	return queued;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_user_work_queue);

/**
 * memreg_user_work_end() - Let another work item of the user run
 * @work: The one whose function is about to return
 */
void memreg_user_work_end(struct memreg_user_work *work)
{
	struct memreg_user_works *works = work->works;
	struct memreg_user_work *next;

	spin_lock_irq(&works->lock);
	works->running--;
	/* One that is being disabled does not take the place. */
	do {
		next = list_first_entry_or_null(&works->waiting,
						struct memreg_user_work, node);
		if (next)
			list_del_init(&next->node);
	} while (next && !memreg_user_work_run(next));
	spin_unlock_irq(&works->lock);
}
EXPORT_SYMBOL_IF_KUNIT(memreg_user_work_end);

/* Take a work item off the list. Returns whether it was there. */
static bool memreg_user_work_cancel(struct memreg_user_work *work)
{
	struct memreg_user_works *works = work->works;
	bool waited;

	spin_lock_irq(&works->lock);
	waited = !list_empty(&work->node);
	list_del_init(&work->node);
	spin_unlock_irq(&works->lock);
	return waited;
}

/**
 * memreg_user_work_disable() - Make sure that the function of a work item is
 * not running, and will not be called any more
 * @work: The work item, which nobody queues any more, but for its function
 *
 * Context: may sleep, for as long as the function runs.
 * Return: true if the work item was queued.
 */
bool memreg_user_work_disable(struct memreg_user_work *work)
{
	bool queued = memreg_user_work_cancel(work);

	if (disable_work_sync(&work->work)) {
		memreg_user_work_end(work);
		queued = true;
	}
	/* Its function may have queued it again. */
	return memreg_user_work_cancel(work) || queued;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_user_work_disable);
