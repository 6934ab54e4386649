// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of the kernel that user space maps through a descriptor: a completion
 * ring, a status table, the keys of a pool.
 *
 * Not remap_vmalloc_range(): its memory comes from vmalloc_user(), which is not
 * charged to a memory cgroup.
 */
#include <linux/mm.h>
#include <linux/vmalloc.h>

#include "usermem.h"

/**
 * memreg_usermem_alloc() - Allocate memory of zeros to be mapped
 * @mem: Set up
 * @size: Bytes; rounded up to whole pages
 *
 * Context: may sleep.
 * Return: the memory, or NULL.
 */
void *memreg_usermem_alloc(struct memreg_usermem *mem, size_t size)
{
	mem->size = PAGE_ALIGN(size);
	mem->addr = __vmalloc(mem->size, GFP_KERNEL_ACCOUNT | __GFP_ZERO |
					 __GFP_NOWARN);
	return mem->addr;
}

/**
 * memreg_usermem_free() - Free such memory
 * @mem: Memory that is not mapped, with its blank page; or none, as
 *	memreg_usermem_alloc() failed
 *
 * Context: may sleep.
 */
void memreg_usermem_free(struct memreg_usermem *mem)
{
	if (mem->blank)
		put_page(mem->blank);
	vfree(mem->addr);
}

static vm_fault_t memreg_usermem_fault(struct vm_fault *vmf)
{
	const struct memreg_usermem *mem = vmf->vma->vm_private_data;
	unsigned long offset = vmf->pgoff << PAGE_SHIFT;

	if (offset >= mem->size)
		return VM_FAULT_SIGBUS;
	vmf->page = !mem->mm || vmf->vma->vm_mm == mem->mm ?
		    vmalloc_to_page(mem->addr + offset) : mem->blank;
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct memreg_usermem_vm_ops = {
	.fault = memreg_usermem_fault,
};

/**
 * memreg_usermem_mmap() - Map such memory
 * @mem: The memory; it stays as long as the file that is mapped
 * @vma: The mapping
 *
 * A file that is not open for writing has no mapping that may become writable.
 *
 * Context: in an mmap() of the file.
 * Return: 0, or -EINVAL if the mapping is private or ends behind the memory.
 */
int memreg_usermem_mmap(struct memreg_usermem *mem, struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_MAYSHARE) ||
	    vma->vm_pgoff + vma_pages(vma) > mem->size >> PAGE_SHIFT)
		return -EINVAL;
	vma->vm_private_data = mem;
	vma->vm_ops = &memreg_usermem_vm_ops;
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	return 0;
}
