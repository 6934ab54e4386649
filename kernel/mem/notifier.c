// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interval notifiers, the first of an address space included.
 *
 * To insert the first notifier of an address space, the kernel locks each of
 * its mappings, and the reverse mappings of all files and memory in it, under a
 * mutex of the whole kernel. Everybody who starts a program wants some of these
 * locks, those of the C library for example. Two kinds of process would hold
 * them for long: one of which a thread is in a page fault, which holds the lock
 * of a mapping and may wait for a file system in user space; and one that gets
 * little CPU time. Hence the caller locks its mappings before the kernel begins
 * with the rest, and a worker of high priority does the rest for it: that takes
 * as long as it takes to lock all mappings, of which the sysctl
 * vm.max_map_count is the limit.
 */
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>

#include "mem/notifier.h"

/**
 * struct memreg_first - The first notifier of an address space, to be inserted
 * @work: Work of the worker
 * @notifier: The notifier
 * @mm: The address space; the caller holds its mmap_lock for writing
 * @start: First address
 * @length: Bytes
 * @ops: Operations
 * @ret: Result
 */
struct memreg_first {
	struct work_struct work;
	struct mmu_interval_notifier *notifier;
	struct mm_struct *mm;
	unsigned long start;
	unsigned long length;
	const struct mmu_interval_notifier_ops *ops;
	int ret;
};

static struct workqueue_struct *memreg_first_wq;

/* Lockdep has to know that the worker holds the lock in the caller's place. */
static void memreg_first_work(struct work_struct *work)
{
	struct memreg_first *first =
		container_of(work, struct memreg_first, work);

	rwsem_acquire(&first->mm->mmap_lock.dep_map, 0, 1, _THIS_IP_);
	first->ret = mmu_interval_notifier_insert_locked(first->notifier,
							 first->mm,
							 first->start,
							 first->length,
							 first->ops);
	rwsem_release(&first->mm->mmap_lock.dep_map, _THIS_IP_);
}

static void memreg_first_insert(struct memreg_first *first)
{
	INIT_WORK_ONSTACK(&first->work, memreg_first_work);
	rwsem_release(&first->mm->mmap_lock.dep_map, _THIS_IP_);
	queue_work(memreg_first_wq, &first->work);
	flush_work(&first->work);
	rwsem_acquire(&first->mm->mmap_lock.dep_map, 0, 1, _THIS_IP_);
	destroy_work_on_stack(&first->work);
}

/* Lock all mappings, until mmap_lock is dropped. */
static int memreg_first_lock_mappings(struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	struct vma_iterator vmi;
	int ret = 0;

	vma_iter_init(&vmi, mm, 0);
	for_each_vma(vmi, vma) {
#ifdef MEMREG_VMA_KILLABLE
		ret = vma_start_write_killable(vma);
#else
		vma_start_write(vma);
#endif
		if (!ret && fatal_signal_pending(current))
			ret = -EINTR;
		if (ret)
			break;
		cond_resched();
	}
	return ret;
}

/**
 * memreg_notifier_insert_first() - Insert an interval notifier into an address
 * space that has had no notifier
 * @notifier: The notifier
 * @mm: Address space of the current process
 * @start: First address
 * @length: Bytes
 * @ops: Its operations
 *
 * Context: may sleep. Takes mmap_lock, and waits for page faults in @mm.
 * Return: 0, -ENOMEM, or -EINTR after a fatal signal.
 */
int memreg_notifier_insert_first(struct mmu_interval_notifier *notifier,
				 struct mm_struct *mm, unsigned long start,
				 unsigned long length,
				 const struct mmu_interval_notifier_ops *ops)
{
	struct memreg_first first = {
		.notifier = notifier,
		.mm = mm,
		.start = start,
		.length = length,
		.ops = ops,
	};
	int ret;

	if (mmap_write_lock_killable(mm))
		return -EINTR;
	ret = memreg_first_lock_mappings(mm);
	if (!ret) {
		memreg_first_insert(&first);
		ret = first.ret;
	}
	mmap_write_unlock(mm);
	return ret;
}

int __init memreg_notifier_init(void)
{
	/*
	 * One thread: the kernel's mutex admits one at a time. A task that
	 * waits for it holds its mmap_lock, so no new thread may have to be
	 * made for it under memory pressure.
	 */
	memreg_first_wq = alloc_workqueue("memreg_first",
					  WQ_UNBOUND | WQ_HIGHPRI |
					  WQ_MEM_RECLAIM, 1);
	return memreg_first_wq ? 0 : -ENOMEM;
}

void memreg_notifier_exit(void)
{
	destroy_workqueue(memreg_first_wq);
}
