// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interval notifiers, the first of an address space included.
 *
 * To insert the first notifier of an address space, the kernel locks each of
 * its mappings, and the reverse mappings of all files and memory in it, under a
 * mutex of the whole kernel. A thread in a page fault holds the lock of a
 * mapping, and may wait for a file system in user space. So the mappings are
 * locked before the kernel takes its mutex: the process waits for its own page
 * faults, and no other process waits behind it.
 */
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/sched/signal.h>

#include "watch/notifier.h"

/* Lock all mappings, until mmap_lock is dropped. */
static int memreg_notifier_lock_mappings(struct mm_struct *mm)
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
 * Return: 0; -ENOMEM; or -EINTR after any signal.
 */
int memreg_notifier_insert_first(struct mmu_interval_notifier *notifier,
				 struct mm_struct *mm, unsigned long start,
				 unsigned long length,
				 const struct mmu_interval_notifier_ops *ops)
{
	int ret;

	if (mmap_write_lock_killable(mm))
		return -EINTR;
	ret = memreg_notifier_lock_mappings(mm);
	if (!ret)
		ret = mmu_interval_notifier_insert_locked(notifier, mm, start,
							  length, ops);
	mmap_write_unlock(mm);
	return ret;
}
