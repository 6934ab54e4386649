// SPDX-License-Identifier: GPL-2.0-only
/*
 * Address spaces: the one registry of those that are watched, and the workers
 * that check their mappings.
 *
 * Guards and monitors learn from mmu notifiers that a mapping may have changed:
 * see kernel/watch/watch.c. What is suspect then is put on the list of its
 * address space, and a worker checks it after MEMREG_LOOK_DELAY. It checks
 * MEMREG_LOOK_PAGES pages at a time, and then goes behind others.
 *
 * The worker waits for nobody. It tries to take the mmap_lock once in a turn;
 * what can't be checked without the lock is added again by its @look, with a
 * delay, until that gives up: see memreg_look_is_futile().
 */
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/oom.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "core.h"
#include "watch/space.h"

#define MEMREG_SPACES_BITS	8

/* All address spaces, by the hash of their mm. */
static DEFINE_SPINLOCK(memreg_spaces_lock);
static struct hlist_head memreg_spaces[1U << MEMREG_SPACES_BITS];

/*
 * The worker
 */

/* The next one to check, which is not freed until it was checked. */
static struct memreg_suspect *memreg_space_next(struct memreg_space *space,
						struct list_head *list)
{
	struct memreg_suspect *suspect;

	spin_lock(&space->lock);
	suspect = list_first_entry_or_null(list, struct memreg_suspect, node);
	if (suspect)
		list_del_init(&suspect->node);
	WRITE_ONCE(space->looking, suspect);
	spin_unlock(&space->lock);
	return suspect;
}

static void memreg_space_done(struct memreg_space *space)
{
	/* Pairs with memreg_suspect_remove(). */
	smp_store_release(&space->looking, NULL);
	/*
	 * Pairs with the waiter, which enters the wait queue before it checks.
	 */
	smp_mb();
	wake_up_var(&space->looking);
}

/*
 * Check what is on a list until that is empty, or the turn is over. Returns
 * false if the mapping can't be checked now.
 */
static bool memreg_space_look(struct memreg_space *space,
			      struct list_head *list)
{
	unsigned int pages = MEMREG_LOOK_PAGES;
	struct memreg_suspect *suspect;
	enum memreg_verdict verdict;
	bool alive, locked;

	/* An address space that is exiting loses all of its mappings. */
	alive = mmget_not_zero(space->mm);
	locked = alive && mmap_read_trylock(space->mm);
	while (pages && (suspect = memreg_space_next(space, list))) {
		/* The OOM reaper takes pages away without an event. */
		if (!alive || check_stable_address_space(space->mm))
			verdict = MEMREG_GONE;
		else
			verdict = locked ? MEMREG_SAME : MEMREG_SUSPECT;
		suspect->look(suspect, verdict, &pages);
		memreg_space_done(space);
		cond_resched();
	}
	if (locked)
		mmap_read_unlock(space->mm);
	if (alive)
		mmput_async(space->mm);
	return locked || !alive;
}

static void memreg_space_work(struct work_struct *work)
{
	struct memreg_space *space =
		container_of(work, struct memreg_space, work.work);
	LIST_HEAD(list);
	bool checked;

	spin_lock(&space->lock);
	list_splice_init(&space->suspects, &list);
	spin_unlock(&space->lock);
	checked = memreg_space_look(space, &list);
	spin_lock(&space->lock);
	if (!list_empty(&list)) {
		list_splice(&list, &space->suspects);
		mod_delayed_work(memreg_wq, &space->work,
				 checked ? 0 : MEMREG_LOOK_DELAY);
	}
	spin_unlock(&space->lock);
}

/**
 * memreg_suspect_add() - Have the worker check a part of a mapping
 * @suspect: What to check; it may be on the list already, or be checked now
 * @delay: Jiffies from now on; 0: go on with a check whose turn was over
 *
 * Context: any but interrupts; spinlocks may be held.
 */
void memreg_suspect_add(struct memreg_suspect *suspect, unsigned long delay)
{
	struct memreg_space *space = suspect->space;

	spin_lock(&space->lock);
	if (list_empty(&suspect->node))
		list_add_tail(&suspect->node, &space->suspects);
	spin_unlock(&space->lock);
	if (delay)
		queue_delayed_work(memreg_wq, &space->work, delay);
	else
		mod_delayed_work(memreg_wq, &space->work, 0);
}

/**
 * memreg_suspect_remove() - Have a part of a mapping not checked any more
 * @suspect: What nobody but the worker can add any more
 *
 * Waits until the worker is not checking it.
 * Context: may sleep.
 */
void memreg_suspect_remove(struct memreg_suspect *suspect)
{
	struct memreg_space *space = suspect->space;
	bool looking;

	/* The worker may add it again before it is done with it. */
	for (;;) {
		spin_lock(&space->lock);
		list_del_init(&suspect->node);
		/* Pairs with memreg_space_done(). */
		looking = smp_load_acquire(&space->looking) == suspect;
		spin_unlock(&space->lock);
		if (!looking)
			break;
		wait_var_event(&space->looking,
			       /* Likewise. */
			       smp_load_acquire(&space->looking) != suspect);
	}
}

/*
 * The registry
 */

static struct hlist_head *memreg_space_list(const struct mm_struct *mm)
{
	return &memreg_spaces[hash_ptr(mm, MEMREG_SPACES_BITS)];
}

static struct memreg_space *memreg_space_find(const struct mm_struct *mm)
{
	struct memreg_space *space;

	lockdep_assert_held(&memreg_spaces_lock);

	hlist_for_each_entry(space, memreg_space_list(mm), node) {
		if (space->mm == mm) {
			space->users++;
			return space;
		}
	}
	return NULL;
}

static struct memreg_space *memreg_space_new(struct mm_struct *mm)
{
	struct memreg_space *space;

	space = kzalloc(sizeof(*space), GFP_KERNEL_ACCOUNT);
	if (!space)
		return NULL;
	space->mm = mm;
	space->users = 1;
	spin_lock_init(&space->lock);
	INIT_LIST_HEAD(&space->suspects);
	space->monitors = RB_ROOT_CACHED;
	space->gave_up_until = jiffies;
	space->waited_since = jiffies;
	INIT_DELAYED_WORK(&space->work, memreg_space_work);
	return space;
}

/**
 * memreg_space_get() - Find or make the memreg_space of an address space
 * @mm: The address space, which the caller holds until memreg_space_put()
 *
 * Return: the memreg_space, or NULL if there is no memory.
 */
struct memreg_space *memreg_space_get(struct mm_struct *mm)
{
	struct memreg_space *space, *new;

	spin_lock(&memreg_spaces_lock);
	space = memreg_space_find(mm);
	spin_unlock(&memreg_spaces_lock);
	if (space)
		return space;
	new = memreg_space_new(mm);
	if (!new)
		return NULL;
	spin_lock(&memreg_spaces_lock);
	space = memreg_space_find(mm);
	if (!space)
		hlist_add_head(&new->node, memreg_space_list(mm));
	spin_unlock(&memreg_spaces_lock);
	if (!space)
		return new;
	kfree(new);
	return space;
}

/**
 * memreg_space_put() - Drop a reference of a memreg_space
 * @space: The memreg_space, from memreg_space_get(), or NULL
 *
 * Context: may sleep; not in a @look.
 */
void memreg_space_put(struct memreg_space *space)
{
	bool last;

	if (!space)
		return;
	spin_lock(&memreg_spaces_lock);
	last = !--space->users;
	if (last)
		hlist_del(&space->node);
	spin_unlock(&memreg_spaces_lock);
	if (!last)
		return;
	cancel_delayed_work_sync(&space->work);
	WARN_ON_ONCE(!RB_EMPTY_ROOT(&space->monitors.rb_root));
	kfree(space);
}
