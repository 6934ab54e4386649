// SPDX-License-Identifier: GPL-2.0-only
/*
 * An exporter of dma-bufs for tests: it fails, moves and revokes as it is asked
 * to, and frees what it took away, so that KASAN sees who still reaches it.
 *
 * Its memory is allocated by vmalloc(). It maps the memory for devices as
 * virtual DMA does: the DMA address of a page is its kernel address.
 */
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/iosys-map.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

#include "dmabuf.h"

#ifdef MEMREG_DMABUF_MOVE_NOTIFY
#define dma_buf_invalidate_mappings	dma_buf_move_notify
#endif

#define MEMREG_FAKE_TIMEOUT	(60 * HZ)

/**
 * struct memreg_fake - Exported memory
 * @mem: The memory, or NULL if it is gone; dma_resv
 * @size: Bytes
 * @flags: enum memreg_fake_flags
 * @fail: enum memreg_fake_callback
 * @err: Errno that the operations in @fail return
 * @attached: Importers
 * @pinned: Pins; dma_resv
 * @mapped: Mappings for devices; dma_resv
 * @vmapped: There is one for the kernel; dma_resv
 * @wait: Waits for there to be none
 * @fence: Fence of a move of the memory, or NULL
 */
struct memreg_fake {
	void *mem;
	size_t size;
	u32 flags;
	u32 fail;
	int err;
	atomic_t attached;
	unsigned int pinned;
	unsigned int mapped;
	bool vmapped;
	wait_queue_head_t wait;
	struct dma_fence *fence;
};

/*
 * Callbacks
 */

static int memreg_fake_fails(const struct memreg_fake *fake, u32 callback)
{
	return READ_ONCE(fake->fail) & callback ? READ_ONCE(fake->err) : 0;
}

static int memreg_fake_attach(struct dma_buf *dmabuf,
			      struct dma_buf_attachment *attach)
{
	struct memreg_fake *fake = dmabuf->priv;
	int ret = memreg_fake_fails(fake, MEMREG_FAKE_ATTACH);

	if (!ret && fake->flags & MEMREG_FAKE_REVOKES && !attach->importer_ops)
		ret = -EOPNOTSUPP;
	if (!ret)
		atomic_inc(&fake->attached);
	return ret;
}

static void memreg_fake_detach(struct dma_buf *dmabuf,
			       struct dma_buf_attachment *attach)
{
	struct memreg_fake *fake = dmabuf->priv;

	atomic_dec(&fake->attached);
}

static int memreg_fake_pin(struct dma_buf_attachment *attach)
{
	struct memreg_fake *fake = attach->dmabuf->priv;
	int ret = memreg_fake_fails(fake, MEMREG_FAKE_PIN);

	dma_resv_assert_held(attach->dmabuf->resv);
	if (!ret && !fake->mem)
		ret = -ENODEV;
	if (ret)
		return ret;
	if (fake->flags & MEMREG_FAKE_NOISY)
		dma_buf_invalidate_mappings(attach->dmabuf);
	fake->pinned++;
	return 0;
}

static void memreg_fake_unpin(struct dma_buf_attachment *attach)
{
	struct memreg_fake *fake = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	WARN_ON(!fake->pinned);
	fake->pinned--;
}

/* Two pages are in pieces of odd lengths: of that and what is missing. */
#define MEMREG_FAKE_ODD_LENGTH	100

static void memreg_fake_fill(const struct memreg_fake *fake,
			     struct sg_table *table)
{
	struct scatterlist *sg;
	unsigned int i, skip;

	for_each_sgtable_sg(table, sg, i) {
		struct page *page = vmalloc_to_page(fake->mem + i * PAGE_SIZE);

		skip = fake->flags & MEMREG_FAKE_ODD && i & 1 ?
		       MEMREG_FAKE_ODD_LENGTH : 0;
		sg_set_page(sg, page, PAGE_SIZE - skip, skip);
		/* With virtual DMA */
		sg_dma_address(sg) = (uintptr_t)page_address(page) + skip;
		sg_dma_len(sg) = PAGE_SIZE - skip;
	}
}

/* Devices with virtual DMA have no mask. */
static bool memreg_fake_has_dma(const struct dma_buf_attachment *attach)
{
	return attach->dev->dma_mask;
}

static struct sg_table *memreg_fake_map(struct dma_buf_attachment *attach,
					enum dma_data_direction direction)
{
	struct memreg_fake *fake = attach->dmabuf->priv;
	unsigned int npages = fake->size >> PAGE_SHIFT;
	int ret = memreg_fake_fails(fake, MEMREG_FAKE_MAP);
	struct sg_table *table;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (!ret && !fake->mem)
		ret = -ENODEV;
	if (ret)
		return ERR_PTR(ret);
	if (fake->flags & MEMREG_FAKE_SHORT)
		npages--;
	table = kzalloc(sizeof(*table), GFP_KERNEL);
	if (!table)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table(table, npages, GFP_KERNEL);
	if (ret) {
		kfree(table);
		return ERR_PTR(ret);
	}
	memreg_fake_fill(fake, table);
	if (memreg_fake_has_dma(attach))
		ret = dma_map_sgtable(attach->dev, table, direction, 0);
	if (ret) {
		sg_free_table(table);
		kfree(table);
		return ERR_PTR(ret);
	}
	fake->mapped++;
	return table;
}

static void memreg_fake_unmap(struct dma_buf_attachment *attach,
			      struct sg_table *table,
			      enum dma_data_direction direction)
{
	struct memreg_fake *fake = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (memreg_fake_has_dma(attach))
		dma_unmap_sgtable(attach->dev, table, direction, 0);
	sg_free_table(table);
	kfree(table);
	fake->mapped--;
	wake_up(&fake->wait);
}

static int memreg_fake_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct memreg_fake *fake = dmabuf->priv;

	dma_resv_assert_held(dmabuf->resv);
	/* The kernel would complain of a failure; pinning has failed before. */
	if (WARN_ON(!fake->mem))
		return -ENODEV;
	if (fake->flags & MEMREG_FAKE_IOMEM)
		iosys_map_set_vaddr_iomem(map, (void __iomem *)fake->mem);
	else
		iosys_map_set_vaddr(map, fake->mem);
	fake->vmapped = true;
	return 0;
}

static void memreg_fake_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct memreg_fake *fake = dmabuf->priv;

	dma_resv_assert_held(dmabuf->resv);
	fake->vmapped = false;
	wake_up(&fake->wait);
}

static vm_fault_t memreg_fake_fault(struct vm_fault *vmf)
{
	struct dma_buf *dmabuf = vmf->vma->vm_private_data;
	struct memreg_fake *fake = dmabuf->priv;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	if (vmf->pgoff >= fake->size >> PAGE_SHIFT)
		return VM_FAULT_SIGBUS;
	dma_resv_lock(dmabuf->resv, NULL);
	if (fake->mem) {
		vmf->page = vmalloc_to_page(fake->mem +
					    (vmf->pgoff << PAGE_SHIFT));
		get_page(vmf->page);
		ret = 0;
	}
	dma_resv_unlock(dmabuf->resv);
	return ret;
}

static const struct vm_operations_struct memreg_fake_vm_ops = {
	.fault = memreg_fake_fault,
};

static int memreg_fake_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	vma->vm_private_data = dmabuf;
	vma->vm_ops = &memreg_fake_vm_ops;
	return 0;
}

static void memreg_fake_release(struct dma_buf *dmabuf)
{
	struct memreg_fake *fake = dmabuf->priv;

	WARN_ON(fake->pinned || fake->mapped || fake->vmapped ||
		atomic_read(&fake->attached));
	if (fake->fence) {
		dma_fence_signal(fake->fence);
		dma_fence_put(fake->fence);
	}
	vfree(fake->mem);
	kfree(fake);
}

#define MEMREG_FAKE_OPS							\
	.attach = memreg_fake_attach,					\
	.detach = memreg_fake_detach,					\
	.map_dma_buf = memreg_fake_map,					\
	.unmap_dma_buf = memreg_fake_unmap,				\
	.mmap = memreg_fake_mmap,					\
	.release = memreg_fake_release
#define MEMREG_FAKE_OPS_PIN						\
	.pin = memreg_fake_pin,						\
	.unpin = memreg_fake_unpin
#define MEMREG_FAKE_OPS_VMAP						\
	.vmap = memreg_fake_vmap,					\
	.vunmap = memreg_fake_vunmap

/* By the first two flags. */
static const struct dma_buf_ops memreg_fake_ops[] = {
	[0] = {
		MEMREG_FAKE_OPS, MEMREG_FAKE_OPS_PIN, MEMREG_FAKE_OPS_VMAP,
	},
	[MEMREG_FAKE_STATIC] = {
		MEMREG_FAKE_OPS, MEMREG_FAKE_OPS_VMAP,
	},
	[MEMREG_FAKE_NO_VMAP] = {
		MEMREG_FAKE_OPS, MEMREG_FAKE_OPS_PIN,
	},
	[MEMREG_FAKE_STATIC | MEMREG_FAKE_NO_VMAP] = {
		MEMREG_FAKE_OPS,
	},
};

/*
 * Calls
 */

static struct memreg_fake *memreg_fake_new(size_t size, u32 flags)
{
	struct memreg_fake *fake = kzalloc(sizeof(*fake), GFP_KERNEL);

	if (!fake)
		return NULL;
	fake->mem = vmalloc_user(size);
	if (!fake->mem) {
		kfree(fake);
		return NULL;
	}
	fake->size = size;
	fake->flags = flags;
	init_waitqueue_head(&fake->wait);
	return fake;
}

/* Make a dma-buf. */
long memreg_fake_export(struct memreg_fake_export *cmd)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct memreg_fake *fake;
	struct dma_buf *dmabuf;
	int fd;

	if (!cmd->length || cmd->length > SZ_64M)
		return -EINVAL;
	fake = memreg_fake_new(PAGE_ALIGN(cmd->length), cmd->flags);
	if (!fake)
		return -ENOMEM;
	info.ops = &memreg_fake_ops[cmd->flags &
				    (ARRAY_SIZE(memreg_fake_ops) - 1)];
	info.size = fake->size;
	info.flags = cmd->flags & MEMREG_FAKE_READ_ONLY ? O_RDONLY : O_RDWR;
	info.priv = fake;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		vfree(fake->mem);
		kfree(fake);
		return PTR_ERR(dmabuf);
	}
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	cmd->out_fd = fd;
	return fd < 0 ? fd : 0;
}

static bool memreg_fake_is_free(struct memreg_fake *fake)
{
	return !READ_ONCE(fake->mapped) && !READ_ONCE(fake->vmapped);
}

/* Take the memory away from all importers, and from user space. */
static int memreg_fake_take_away(struct dma_buf *dmabuf,
				 struct memreg_fake_control *cmd)
{
	struct memreg_fake *fake = dmabuf->priv;
	ktime_t start = ktime_get();
	long left;

	dma_resv_lock(dmabuf->resv, NULL);
	dma_buf_invalidate_mappings(dmabuf);
	dma_resv_wait_timeout(dmabuf->resv, DMA_RESV_USAGE_BOOKKEEP, false,
			      MEMREG_FAKE_TIMEOUT);
	cmd->out_at_once = memreg_fake_is_free(fake);
	dma_resv_unlock(dmabuf->resv);
	left = wait_event_timeout(fake->wait, memreg_fake_is_free(fake),
				  MEMREG_FAKE_TIMEOUT);
	cmd->out_ms = ktime_ms_delta(ktime_get(), start);
	return left ? 0 : -ETIMEDOUT;
}

static int memreg_fake_move(struct dma_buf *dmabuf,
			    struct memreg_fake_control *cmd, bool for_good)
{
	struct memreg_fake *fake = dmabuf->priv;
	void *to = NULL, *from;
	int ret;

	if ((fake->flags & (MEMREG_FAKE_STATIC | MEMREG_FAKE_REVOKES)) ==
	    MEMREG_FAKE_STATIC)
		return -EINVAL;
	if (!for_good) {
		to = vmalloc_user(fake->size);
		if (!to)
			return -ENOMEM;
	}
	ret = memreg_fake_take_away(dmabuf, cmd);
	dma_resv_lock(dmabuf->resv, NULL);
	from = fake->mem;
	/* Somebody may have come since. */
	if (!ret && !memreg_fake_is_free(fake))
		ret = -EBUSY;
	if (!ret) {
		if (from && to)
			memcpy(to, from, fake->size);
		fake->mem = to;
		unmap_mapping_range(dmabuf->file->f_mapping, 0, 0, 1);
	}
	dma_resv_unlock(dmabuf->resv);
	vfree(ret ? to : from);
	return ret;
}

static const char *memreg_fake_fence_name(struct dma_fence *fence)
{
	return "memreg_fake";
}

static const struct dma_fence_ops memreg_fake_fence_ops = {
	.get_driver_name = memreg_fake_fence_name,
	.get_timeline_name = memreg_fake_fence_name,
};

static DEFINE_SPINLOCK(memreg_fake_fence_lock);

static int memreg_fake_busy(struct dma_buf *dmabuf)
{
	struct memreg_fake *fake = dmabuf->priv;
	struct dma_fence *fence;
	int ret = -EBUSY;

	fence = kzalloc(sizeof(*fence), GFP_KERNEL);
	if (!fence)
		return -ENOMEM;
	dma_fence_init(fence, &memreg_fake_fence_ops, &memreg_fake_fence_lock,
		       dma_fence_context_alloc(1), 1);
	dma_resv_lock(dmabuf->resv, NULL);
	if (!fake->fence)
		ret = dma_resv_reserve_fences(dmabuf->resv, 1);
	if (!ret) {
		dma_resv_add_fence(dmabuf->resv, fence, DMA_RESV_USAGE_KERNEL);
		fake->fence = fence;
	}
	dma_resv_unlock(dmabuf->resv);
	if (ret)
		dma_fence_put(fence);
	return ret;
}

/* A thread that waits for the fence holds the lock. */
static int memreg_fake_idle(struct memreg_fake *fake)
{
	struct dma_fence *fence = xchg(&fake->fence, NULL);

	if (!fence)
		return -EINVAL;
	dma_fence_signal(fence);
	dma_fence_put(fence);
	return 0;
}

static int memreg_fake_do(struct dma_buf *dmabuf,
			  struct memreg_fake_control *cmd)
{
	struct memreg_fake *fake = dmabuf->priv;

	switch (cmd->op) {
	case MEMREG_FAKE_LOOK:
		return 0;
	case MEMREG_FAKE_FAIL:
		WRITE_ONCE(fake->err, cmd->err);
		WRITE_ONCE(fake->fail, cmd->arg);
		return 0;
	case MEMREG_FAKE_MOVE:
	case MEMREG_FAKE_UNPLUG:
		return memreg_fake_move(dmabuf, cmd,
					cmd->op == MEMREG_FAKE_UNPLUG);
	case MEMREG_FAKE_BUSY:
		return memreg_fake_busy(dmabuf);
	case MEMREG_FAKE_IDLE:
		return memreg_fake_idle(fake);
	default:
		return -EINVAL;
	}
}

static bool memreg_fake_is(const struct dma_buf *dmabuf)
{
	return dmabuf->ops >= memreg_fake_ops &&
	       dmabuf->ops < memreg_fake_ops + ARRAY_SIZE(memreg_fake_ops);
}

/* Have an exporter do something. */
long memreg_fake_control(struct memreg_fake_control *cmd)
{
	struct dma_buf *dmabuf = dma_buf_get(cmd->fd);
	struct memreg_fake *fake;
	int ret = -EINVAL;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	if (memreg_fake_is(dmabuf)) {
		ret = memreg_fake_do(dmabuf, cmd);
		fake = dmabuf->priv;
		cmd->out_attached = atomic_read(&fake->attached);
		cmd->out_pinned = READ_ONCE(fake->pinned);
		cmd->out_mapped = READ_ONCE(fake->mapped);
		cmd->out_vmapped = READ_ONCE(fake->vmapped);
	}
	dma_buf_put(dmabuf);
	return ret;
}
