// SPDX-License-Identifier: GPL-2.0-only
/*
 * The limits of pinned memory: user memory counts in the address space that it
 * is pinned from, as for verbs, and memory objects count for the user who made
 * them. Both are limited by RLIMIT_MEMLOCK, unless the caller has CAP_IPC_LOCK.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>

#include "pages/charge.h"
#include "pages/region.h"

/* Do so many pinned pages exceed the caller's limit? */
static bool memreg_pinned_too_much(u64 pinned)
{
	return pinned > rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT &&
	       !capable(CAP_IPC_LOCK);
}

int memreg_user_charge(struct memreg_region *region)
{
	s64 pinned;

	region->charged = region->npages - region->nr_donated;
	pinned = atomic64_add_return(region->charged, &region->mm->pinned_vm);
	if (memreg_pinned_too_much(pinned)) {
		atomic64_sub(region->charged, &region->mm->pinned_vm);
		region->charged = 0;
		return -ENOMEM;
	}
	return 0;
}

int memreg_memory_charge(struct user_struct *user, unsigned long npages)
{
	unsigned long limit = LONG_MAX, sum;
	long old;

	if (!capable(CAP_IPC_LOCK))
		limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	old = atomic_long_read(&user->locked_vm);
	do {
		sum = old + npages;
		if (sum > limit)
			return -ENOMEM;
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &old, sum));
	return 0;
}
