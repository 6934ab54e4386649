// SPDX-License-Identifier: GPL-2.0-only
/*
 * Why memory of the caller cannot be pinned.
 *
 * The kernel answers -EFAULT to all of it. The mapping of the first page that
 * could not be pinned shows the cause, in the order in which the kernel checks:
 * what a mapping is, what it allows, and then whether its page can be had. The
 * mapping may have changed since; then the cause is that of the present one.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hugetlb_inline.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/statfs.h>
#include <uapi/rdma/ib_memreg.h>

#include "pages/unpinnable.h"

/* Is a page of a mapping behind the end of its file? */
static bool memreg_vma_is_short(const struct vm_area_struct *vma,
				unsigned long addr)
{
	u64 page = vma->vm_pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT);

	return page << PAGE_SHIFT >= i_size_read(file_inode(vma->vm_file));
}

/* The cause that a mapping of a file shows; 0: the page can't be had. */
static u32 memreg_vma_file_reason(struct vm_area_struct *vma,
				  unsigned long addr, bool write)
{
	const struct inode *inode = file_inode(vma->vm_file);

	if (inode->i_sb->s_magic == SECRETMEM_MAGIC)
		return IB_MEMREG_REASON_SECRET;
	if (vma_is_fsdax(vma))
		return IB_MEMREG_REASON_DAX;
	if (write && vma->vm_flags & VM_SHARED && vma->vm_ops &&
	    (vma->vm_ops->page_mkwrite || vma->vm_ops->pfn_mkwrite))
		return IB_MEMREG_REASON_FILE_WRITE;
	if (!S_ISREG(inode->i_mode))
		return IB_MEMREG_REASON_PIN;
	if (memreg_vma_is_short(vma, addr))
		return IB_MEMREG_REASON_FILE_END;
	return is_vm_hugetlb_page(vma) ? IB_MEMREG_REASON_HUGE_PAGES : 0;
}

static u32 memreg_vma_reason(struct vm_area_struct *vma, unsigned long addr,
			     bool write)
{
	if (!vma)
		return IB_MEMREG_REASON_UNMAPPED;
	if (vma->vm_flags & (VM_IO | VM_PFNMAP))
		return IB_MEMREG_REASON_IO_MEMORY;
	if (write && !(vma->vm_flags & VM_WRITE))
		return IB_MEMREG_REASON_NOT_WRITABLE;
	if (!write && !(vma->vm_flags & VM_READ))
		return IB_MEMREG_REASON_NOT_READABLE;
	if (!vma->vm_file)
		return IB_MEMREG_REASON_PIN;
	return memreg_vma_file_reason(vma, addr, write);
}

/* A file system provides no page of a file: has it no room for it? */
static u32 memreg_file_reason(struct file *file)
{
	struct kstatfs stat;

	if (!vfs_statfs(&file->f_path, &stat) && stat.f_blocks &&
	    !stat.f_bfree)
		return IB_MEMREG_REASON_FILE_FULL;
	return IB_MEMREG_REASON_FILE_ERROR;
}

/**
 * memreg_unpinnable_reason() - Find out why a page of the caller's memory
 * cannot be pinned
 * @addr: Address of the page, without pointer tags
 * @write: It was to be pinned for writing
 *
 * Context: may sleep, with mmap_lock taken; a fatal signal ends the wait.
 * Return: enum ib_memreg_reason.
 */
u32 memreg_unpinnable_reason(unsigned long addr, bool write)
{
	struct vm_area_struct *vma;
	struct file *file = NULL;
	u32 reason;

	if (mmap_read_lock_killable(current->mm))
		return IB_MEMREG_REASON_NONE;
	vma = vma_lookup(current->mm, addr);
	reason = memreg_vma_reason(vma, addr, write);
	if (!reason)
		file = get_file(vma->vm_file);
	mmap_read_unlock(current->mm);
	if (!file)
		return reason;
	reason = memreg_file_reason(file);
	fput(file);
	return reason;
}
