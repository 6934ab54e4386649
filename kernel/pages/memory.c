// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory objects: kernel pages behind a file descriptor.
 *
 * The descriptor is a dma-buf, so that it can be mapped, passed to another
 * process, registered by memreg in any number of files, and imported by any
 * driver of the kernel that takes dma-bufs. A region of this module uses the
 * pages without attaching: it only needs a reference of the dma-buf.
 *
 * The pages come in blocks of the page allocator. Along the memory each block
 * is as large as the one before it or smaller, so each begins at an offset that
 * is a multiple of its own size: a block is aligned alike in the memory object
 * and in physical memory. A block of PMD size is mapped by one PMD if the
 * virtual address is congruent to the offset; the fault handler only has to
 * return the page.
 *
 * Each page is charged once, to the user and the memory cgroup of the process
 * that made the object, until the last dma-buf over the memory is released: the
 * last of its descriptors, mappings, regions and attachments. Regions and other
 * users of the memory are not charged for it again.
 *
 * Several dma-bufs can share the same memory: the mode of a descriptor applies
 * to all uses of its dma-buf, so a read-only descriptor is one of a second
 * dma-buf.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pgtable.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "core.h"
#include "device.h"
#include "pages/charge.h"
#include "pages/memory.h"
#include "pages/region.h"
#include "watch/monitor_dmabuf.h"

#ifdef MEMREG_EXPORT_NS_STRING
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif

/*
 * Largest useful order: a PMD maps such a block, and nothing maps a larger one.
 */
#define MEMREG_MEMORY_ORDER	min(PMD_SHIFT - PAGE_SHIFT, MAX_PAGE_ORDER)

/**
 * struct memreg_block - Physically contiguous pages
 * @page: First page
 * @first: Index of @page in the memory
 */
struct memreg_block {
	struct page *page;
	unsigned long first;
};

/**
 * struct memreg_kmemory - The memory of a memory object
 * @refs: One for each dma-buf over it
 * @user: User that is charged for it
 * @npages: Number of system pages
 * @lock: Protects @attachments and the fields of each; taken inside of dma_resv
 * @attachments: Attachments of all its dma-bufs, by memreg_attachment.node
 * @order: Order of its smallest block
 * @nr_blocks: Number of @blocks
 * @blocks: The blocks, in order
 */
struct memreg_kmemory {
	refcount_t refs;
	struct user_struct *user;
	unsigned long npages;
	struct mutex lock;
	struct list_head attachments;
	unsigned int order;
	u32 nr_blocks;
	struct memreg_block blocks[] __counted_by(nr_blocks);
};

/**
 * struct memreg_attachment - Attachment of another driver's device
 * @node: In memreg_kmemory.attachments
 * @dev: The device
 * @table: The pages, listed for @dev
 * @direction: What @table is mapped for; DMA_NONE while it is not mapped
 */
struct memreg_attachment {
	struct list_head node;
	struct device *dev;
	struct sg_table table;
	enum dma_data_direction direction;
};

/*
 * Pages
 */

/* Find the block that contains a page. */
static const struct memreg_block *
memreg_memory_find(const struct memreg_kmemory *memory, unsigned long index)
{
	u32 low = 0, high = memory->nr_blocks, mid;

	while (high - low > 1) {
		mid = low + (high - low) / 2;
		if (memory->blocks[mid].first <= index)
			low = mid;
		else
			high = mid;
	}
	return &memory->blocks[low];
}

/* Index of the page behind a block. */
static unsigned long memreg_block_end(const struct memreg_kmemory *memory,
				      const struct memreg_block *block)
{
	return block + 1 < memory->blocks + memory->nr_blocks ?
	       block[1].first : memory->npages;
}

/*
 * Find the contiguous run of pages that begins at a page, @max pages at most.
 * Returns the number of pages.
 */
static unsigned long memreg_memory_run(const struct memreg_kmemory *memory,
				       unsigned long index, unsigned long max,
				       struct page **page)
{
	const struct memreg_block *block = memreg_memory_find(memory, index);
	unsigned long end = memreg_block_end(memory, block);

	*page = block->page + (index - block->first);
	while (end - index < max &&
	       page_to_pfn(block[1].page) ==
	       page_to_pfn(*page) + (end - index))
		end = memreg_block_end(memory, ++block);
	return min(end - index, max);
}

/*
 * List a range of pages in as few entries as the device allows, or count them.
 */
static u32 memreg_memory_list(const struct memreg_kmemory *memory,
			      unsigned long index, unsigned long npages,
			      unsigned long max, struct scatterlist *sg)
{
	unsigned long end = index + npages, n;
	struct page *page;
	u32 count;

	for (count = 0; index < end; index += n, count++) {
		n = memreg_memory_run(memory, index, min(end - index, max),
				      &page);
		if (!sg)
			continue;
		sg_set_page(sg, page, n << PAGE_SHIFT, 0);
		sg = sg_next(sg);
	}
	return count;
}

static int memreg_memory_table(const struct memreg_kmemory *memory,
			       unsigned long index, unsigned long npages,
			       size_t max_seg, struct sg_table *table)
{
	/* Lengths of entries have 32 bits. */
	unsigned long max = min_t(size_t, max_seg, SZ_1G) >> PAGE_SHIFT;
	u32 count;
	int ret;

	count = memreg_memory_list(memory, index, npages, max ?: 1, NULL);
	ret = sg_alloc_table(table, count, GFP_KERNEL_ACCOUNT);
	if (!ret)
		memreg_memory_list(memory, index, npages, max ?: 1, table->sgl);
	return ret;
}

/*
 * The memory
 */

static void memreg_blocks_free(struct list_head *folios)
{
	struct folio *folio, *next;

	list_for_each_entry_safe(folio, next, folios, lru) {
		list_del(&folio->lru);
		folio_put(folio);
	}
}

/*
 * Allocate a block of order *@order, or of a smaller one down to @min; *@order
 * is lowered to the order that was found.
 */
static struct folio *memreg_block_alloc(unsigned int min, unsigned int *order,
					int node)
{
	gfp_t gfp = GFP_USER | __GFP_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
	struct folio *folio;

	for (;; (*order)--) {
		/* Fail rather than invoke the OOM killer. */
		gfp_t try = gfp | (*order > min ? __GFP_NORETRY :
						  __GFP_RETRY_MAYFAIL);

		folio = node == NUMA_NO_NODE ?
			folio_alloc(try, *order) :
			__folio_alloc_node(try, *order, node);
		if (folio || *order == min)
			return folio;
	}
}

/* Allocate all blocks. Returns the number of blocks, -ENOMEM or -EINTR. */
static long memreg_blocks_alloc(unsigned long npages, unsigned int min,
				int node, struct list_head *folios)
{
	unsigned int order = max_t(unsigned int, min, MEMREG_MEMORY_ORDER);
	struct folio *folio;
	long count;

	for (count = 0; npages; count++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		order = min_t(unsigned int, order, ilog2(npages));
		folio = memreg_block_alloc(min, &order, node);
		if (!folio)
			return -ENOMEM;
		list_add_tail(&folio->lru, folios);
		npages -= 1UL << order;
		cond_resched();
	}
	return count;
}

static struct memreg_kmemory *memreg_memory_wrap(struct list_head *folios,
						 u32 count)
{
	struct memreg_kmemory *memory;
	struct folio *folio, *next;
	u32 i = 0;

	memory = kvzalloc(struct_size(memory, blocks, count),
			  GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!memory)
		return NULL;
	refcount_set(&memory->refs, 1);
	mutex_init(&memory->lock);
	INIT_LIST_HEAD(&memory->attachments);
	memory->nr_blocks = count;
	list_for_each_entry_safe(folio, next, folios, lru) {
		list_del_init(&folio->lru);
		memory->blocks[i].page = folio_page(folio, 0);
		memory->blocks[i++].first = memory->npages;
		/*
		 * To map a folio by a PMD, the kernel checks its position in
		 * the file.
		 */
		folio->index = memory->npages;
		memory->npages += folio_nr_pages(folio);
		memory->order = folio_order(folio);
	}
	return memory;
}

/* Make a memory object of blocks of at least order @min. */
static struct memreg_kmemory *memreg_memory_new(struct memreg_ucmd *ucmd,
						unsigned long npages,
						unsigned int min, int node)
{
	struct user_struct *user = current_user();
	struct memreg_kmemory *memory;
	LIST_HEAD(folios);
	long ret;

	ret = memreg_memory_charge(user, npages);
	if (ret)
		return ERR_PTR(memreg_fail(ucmd, ret,
					   IB_MEMREG_REASON_MEMLOCK));
	ret = memreg_blocks_alloc(npages, min, node, &folios);
	if (ret < 0) {
		if (ret == -ENOMEM && min)
			ucmd->reason = IB_MEMREG_REASON_CONTIGUOUS;
		goto err;
	}
	memory = memreg_memory_wrap(&folios, ret);
	if (!memory) {
		ret = -ENOMEM;
		goto err;
	}
	memory->user = get_uid(user);
	return memory;

err:
	memreg_blocks_free(&folios);
	atomic_long_sub(npages, &user->locked_vm);
	return ERR_PTR(ret);
}

static void memreg_memory_put(struct memreg_kmemory *memory)
{
	u32 i;

	if (!refcount_dec_and_test(&memory->refs))
		return;
	for (i = 0; i < memory->nr_blocks; i++) {
		/*
		 * A page that another user has pinned stays, and is charged to
		 * that user.
		 */
		folio_put(page_folio(memory->blocks[i].page));
		cond_resched();
	}
	atomic_long_sub(memory->npages, &memory->user->locked_vm);
	free_uid(memory->user);
	kvfree(memory);
}

/*
 * The dma-buf
 */

static bool memreg_dmabuf_writable(const struct dma_buf *dmabuf)
{
	return dmabuf->file->f_mode & FMODE_WRITE;
}

static vm_fault_t memreg_memory_fault(struct vm_fault *vmf)
{
	struct memreg_kmemory *memory = vmf->vma->vm_private_data;

	if (vmf->pgoff >= memory->npages)
		return VM_FAULT_SIGBUS;
	memreg_memory_run(memory, vmf->pgoff, 1, &vmf->page);
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct memreg_memory_vm_ops = {
	.fault = memreg_memory_fault,
};

static int memreg_dmabuf_mmap(struct dma_buf *dmabuf,
			      struct vm_area_struct *vma)
{
	/* VM_SHARED is not set if the descriptor is read-only. */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	/* The file, which the mapping keeps, keeps the memory. */
	vma->vm_private_data = dmabuf->priv;
	vma->vm_ops = &memreg_memory_vm_ops;
	vm_flags_set(vma, VM_DONTEXPAND);
	return 0;
}

static int memreg_dmabuf_attach(struct dma_buf *dmabuf,
				struct dma_buf_attachment *attachment)
{
	struct memreg_kmemory *memory = dmabuf->priv;
	struct memreg_attachment *mine;
	int ret;

	mine = kzalloc(sizeof(*mine), GFP_KERNEL_ACCOUNT);
	if (!mine)
		return -ENOMEM;
	ret = memreg_memory_table(memory, 0, memory->npages,
				  dma_get_max_seg_size(attachment->dev),
				  &mine->table);
	if (ret) {
		kfree(mine);
		return ret;
	}
	mine->dev = attachment->dev;
	mine->direction = DMA_NONE;
	attachment->priv = mine;
	mutex_lock(&memory->lock);
	list_add(&mine->node, &memory->attachments);
	mutex_unlock(&memory->lock);
	return 0;
}

static void memreg_dmabuf_detach(struct dma_buf *dmabuf,
				 struct dma_buf_attachment *attachment)
{
	struct memreg_attachment *mine = attachment->priv;
	struct memreg_kmemory *memory = dmabuf->priv;

	mutex_lock(&memory->lock);
	list_del(&mine->node);
	mutex_unlock(&memory->lock);
	sg_free_table(&mine->table);
	kfree(mine);
}

static struct sg_table *memreg_dmabuf_map(struct dma_buf_attachment *attachment,
					  enum dma_data_direction direction)
{
	struct memreg_attachment *mine = attachment->priv;
	struct memreg_kmemory *memory = attachment->dmabuf->priv;
	int ret = -EBUSY;

	/* No other check keeps an importer from writing. */
	if (direction != DMA_TO_DEVICE &&
	    !memreg_dmabuf_writable(attachment->dmabuf))
		return ERR_PTR(-EACCES);
	/* What others write meanwhile is to stay, also with bounce buffers. */
	if (direction == DMA_FROM_DEVICE)
		direction = DMA_BIDIRECTIONAL;
	mutex_lock(&memory->lock);
	if (mine->direction == DMA_NONE)
		ret = dma_map_sgtable(mine->dev, &mine->table, direction, 0);
	if (!ret)
		mine->direction = direction;
	mutex_unlock(&memory->lock);
	return ret ? ERR_PTR(ret) : &mine->table;
}

static void memreg_dmabuf_unmap(struct dma_buf_attachment *attachment,
				struct sg_table *table,
				enum dma_data_direction direction)
{
	struct memreg_attachment *mine = attachment->priv;
	struct memreg_kmemory *memory = attachment->dmabuf->priv;

	mutex_lock(&memory->lock);
	dma_unmap_sgtable(mine->dev, table, mine->direction, 0);
	mine->direction = DMA_NONE;
	mutex_unlock(&memory->lock);
}

/*
 * Users may ask for any direction, even with a descriptor to read. A bounce
 * buffer of a device that only reads is older than the memory may be: so what
 * counts is the direction that the table was mapped for.
 */
static int memreg_dmabuf_begin_cpu(struct dma_buf *dmabuf,
				   enum dma_data_direction direction)
{
	struct memreg_kmemory *memory = dmabuf->priv;
	struct memreg_attachment *each;

	mutex_lock(&memory->lock);
	list_for_each_entry(each, &memory->attachments, node)
		if (each->direction != DMA_NONE)
			dma_sync_sgtable_for_cpu(each->dev, &each->table,
						 each->direction);
	mutex_unlock(&memory->lock);
	return 0;
}

static int memreg_dmabuf_end_cpu(struct dma_buf *dmabuf,
				 enum dma_data_direction direction)
{
	struct memreg_kmemory *memory = dmabuf->priv;
	struct memreg_attachment *each;

	mutex_lock(&memory->lock);
	list_for_each_entry(each, &memory->attachments, node)
		if (each->direction != DMA_NONE)
			dma_sync_sgtable_for_device(each->dev, &each->table,
						    each->direction);
	mutex_unlock(&memory->lock);
	return 0;
}

static int memreg_dmabuf_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct memreg_kmemory *memory = dmabuf->priv;
	struct page **pages;
	unsigned long i;
	void *addr;

	pages = kvmalloc_array(memory->npages, sizeof(*pages),
			       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!pages)
		return -ENOMEM;
	for (i = 0; i < memory->npages; i++)
		memreg_memory_run(memory, i, 1, &pages[i]);
	addr = vmap(pages, memory->npages, VM_MAP,
		    memreg_dmabuf_writable(dmabuf) ? PAGE_KERNEL :
						     PAGE_KERNEL_RO);
	kvfree(pages);
	if (!addr)
		return -ENOMEM;
	iosys_map_set_vaddr(map, addr);
	return 0;
}

static void memreg_dmabuf_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	vunmap(map->vaddr);
}

static void memreg_dmabuf_release(struct dma_buf *dmabuf)
{
	memreg_memory_put(dmabuf->priv);
}

static const struct dma_buf_ops memreg_dmabuf_ops = {
	.attach = memreg_dmabuf_attach,
	.detach = memreg_dmabuf_detach,
	.map_dma_buf = memreg_dmabuf_map,
	.unmap_dma_buf = memreg_dmabuf_unmap,
	.begin_cpu_access = memreg_dmabuf_begin_cpu,
	.end_cpu_access = memreg_dmabuf_end_cpu,
	.mmap = memreg_dmabuf_mmap,
	.vmap = memreg_dmabuf_vmap,
	.vunmap = memreg_dmabuf_vunmap,
	.release = memreg_dmabuf_release,
};

/*
 * Make a dma-buf over a memory object. It takes over the caller's reference.
 *
 * It has an inode of its own, without a link, as that of memfd_create(2): core
 * dumps have the mapping as shared anonymous memory.
 */
static struct dma_buf *memreg_memory_export(struct memreg_kmemory *memory,
					    int flags)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;

	info.ops = &memreg_dmabuf_ops;
	info.size = (size_t)memory->npages << PAGE_SHIFT;
	info.flags = flags;
	info.priv = memory;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf))
		memreg_memory_put(memory);
	else
		clear_nlink(file_inode(dmabuf->file));
	return dmabuf;
}

/**
 * memreg_dmabuf_respond() - Answer a call with a descriptor of a dma-buf
 * @ucmd: The call
 * @size: Size of the structure that this module knows
 * @dmabuf: The dma-buf, whose reference the descriptor takes over on success
 * @out_fd: Where the answer has the number of the descriptor
 *
 * The last step of a call, which cannot be undone.
 *
 * Return: 0, -EMFILE or -EFAULT.
 */
int memreg_dmabuf_respond(struct memreg_ucmd *ucmd, size_t size,
			  struct dma_buf *dmabuf, s32 *out_fd)
{
	int fd, ret;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	*out_fd = fd;
	ret = memreg_respond(ucmd, size);
	if (ret) {
		put_unused_fd(fd);
		return ret;
	}
	fd_install(fd, dmabuf->file);
	return 0;
}

/**
 * memreg_memory_is() - Is a dma-buf one of a memory object?
 * @dmabuf: The dma-buf
 *
 * Return: true if it is.
 */
bool memreg_memory_is(const struct dma_buf *dmabuf)
{
	return dmabuf->ops == &memreg_dmabuf_ops;
}

/**
 * memreg_memory_get() - Get the dma-buf of a memory object by its descriptor
 * @ucmd: Call that names it
 * @fd: The descriptor
 *
 * Return: the dma-buf; ERR_PTR(-EBADF), or ERR_PTR(-EOPNOTSUPP) if it is not
 * one of a memory object.
 */
struct dma_buf *memreg_memory_get(struct memreg_ucmd *ucmd, int fd)
{
	struct dma_buf *dmabuf = memreg_dmabuf_get(ucmd, fd);

	if (IS_ERR(dmabuf) || memreg_memory_is(dmabuf))
		return dmabuf;
	dma_buf_put(dmabuf);
	return ERR_PTR(memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_FOREIGN));
}

/*
 * Regions
 */

/* The region took its reference of the dma-buf when it was made. */
static int memreg_memory_populate(struct memreg_ucmd *ucmd,
				  struct memreg_region *region)
{
	u64 end = PAGE_ALIGN(region->addr + region->length);
	unsigned long first = region->addr >> PAGE_SHIFT;

	return memreg_memory_table(region->dmabuf->priv, first,
				   (end >> PAGE_SHIFT) - first,
				   ib_dma_max_seg_size(region->mdev->ibdev),
				   &region->sgt.sgt);
}

/*
 * Keep the reference if a key may still reach the pages, so that they are not
 * reused.
 */
static void memreg_memory_release(struct memreg_region *region)
{
	sg_free_table(&region->sgt.sgt);
	dma_buf_put(region->dmabuf);
}

const struct memreg_source memreg_memory_source = {
	.populate = memreg_memory_populate,
	.release = memreg_memory_release,
};

/*
 * Calls
 */

/* NUMA node to allocate from: the requested one, or the device's. */
static int memreg_memory_node(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_memory_create *cmd = ucmd->cmd;
	struct device *dma_device = ucmd->mdev->ibdev->dma_device;
	int node = cmd->node;

	if (node == IB_MEMREG_NODE_DEVICE)
		node = dma_device ? dev_to_node(dma_device) : NUMA_NO_NODE;
	if (node != NUMA_NO_NODE && !node_online(node))
		node = NUMA_NO_NODE;
	return node;
}

static int memreg_memory_check(struct memreg_ucmd *ucmd, u64 *npages)
{
	struct ib_memreg_memory_create *cmd = ucmd->cmd;
	u64 end;

	if (cmd->flags & ~IB_MEMREG_MEMORY_CONTIGUOUS)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->length)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_ZERO_LENGTH);
	if (cmd->node < IB_MEMREG_NODE_DEVICE || cmd->node >= MAX_NUMNODES ||
	    (cmd->node >= 0 && !node_online(cmd->node)))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_NODE);
	if (check_add_overflow(cmd->length, PAGE_SIZE - 1, &end) ||
	    end > LONG_MAX)
		return memreg_fail(ucmd, -EOVERFLOW, IB_MEMREG_REASON_WRAPS);
	*npages = end >> PAGE_SHIFT;
	if (cmd->flags & IB_MEMREG_MEMORY_CONTIGUOUS) {
		if (*npages > MEMREG_MEMORY_BLOCK_MAX >> PAGE_SHIFT)
			return memreg_fail(ucmd, -EINVAL,
					   IB_MEMREG_REASON_CONTIGUOUS);
		*npages = roundup_pow_of_two(*npages);
	}
	if (!can_do_mlock())
		return memreg_fail(ucmd, -EPERM, IB_MEMREG_REASON_MEMLOCK);
	/* Fail at once what page after page would fail in the end. */
	if (*npages > min(totalram_pages(), UINT_MAX))
		return -ENOMEM;
	return 0;
}

/* ioctl(IB_MEMREG_IOC_MEMORY_CREATE) */
int memreg_memory_create_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_memory_create *cmd = ucmd->cmd;
	struct memreg_kmemory *memory;
	struct dma_buf *dmabuf;
	unsigned int min = 0;
	u64 npages;
	int ret;

	ret = memreg_memory_check(ucmd, &npages);
	if (ret)
		return ret;
	if (cmd->flags & IB_MEMREG_MEMORY_CONTIGUOUS)
		min = ilog2(npages);
	memory = memreg_memory_new(ucmd, npages, min, memreg_memory_node(ucmd));
	if (IS_ERR(memory))
		return PTR_ERR(memory);
	cmd->length = (u64)npages << PAGE_SHIFT;
	cmd->out_blocks = memory->nr_blocks;
	cmd->out_block_shift = memory->order + PAGE_SHIFT;
	dmabuf = memreg_memory_export(memory, O_RDWR);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	ret = memreg_dmabuf_respond(ucmd, sizeof(*cmd), dmabuf, &cmd->out_fd);
	if (ret)
		dma_buf_put(dmabuf);
	return ret;
}

/* ioctl(IB_MEMREG_IOC_MEMORY_DUP) */
int memreg_memory_dup_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_memory_dup *cmd = ucmd->cmd;
	struct dma_buf *dmabuf, *twin;
	struct memreg_kmemory *memory;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	dmabuf = memreg_memory_get(ucmd, cmd->fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	memory = dmabuf->priv;
	refcount_inc(&memory->refs);
	twin = memreg_memory_export(memory, O_RDONLY);
	/* Tools that count memory by the number of its inode count it once. */
	if (!IS_ERR(twin))
		file_inode(twin->file)->i_ino = file_inode(dmabuf->file)->i_ino;
	dma_buf_put(dmabuf);
	if (IS_ERR(twin))
		return PTR_ERR(twin);
	ret = memreg_dmabuf_respond(ucmd, sizeof(*cmd), twin, &cmd->out_fd);
	if (ret)
		dma_buf_put(twin);
	return ret;
}
