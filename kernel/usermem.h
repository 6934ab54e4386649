/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory of the kernel that user space maps through a descriptor. */
#ifndef _MEMREG_USERMEM_H
#define _MEMREG_USERMEM_H

#include <linux/types.h>

struct mm_struct;
struct page;
struct vm_area_struct;

/**
 * struct memreg_usermem - Memory that user space maps
 * @addr: The memory, which the file that is mapped keeps
 * @size: Bytes, a multiple of PAGE_SIZE
 * @mm: The only address space that sees it, or NULL: all do
 * @blank: What the others see at each page, if there is an @mm
 */
struct memreg_usermem {
	void *addr;
	size_t size;
	struct mm_struct *mm;
	struct page *blank;
};

void *memreg_usermem_alloc(struct memreg_usermem *mem, size_t size);
void memreg_usermem_free(struct memreg_usermem *mem);
int memreg_usermem_mmap(struct memreg_usermem *mem, struct vm_area_struct *vma);

#endif /* _MEMREG_USERMEM_H */
