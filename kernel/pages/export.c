// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exports: a part of a region as a dma-buf that can be revoked.
 *
 * An application registers the dma-buf in a protection domain of its own, by
 * ibv_reg_dmabuf_mr(3), and grants peers access on its own queue pairs. The
 * driver imports the memory for that; whoever revokes the export has all
 * importers let go of it. So only importers are admitted that promise to do so
 * within bounded time: see dma_buf_attach_revocable(). The memory stays where
 * it is: it was pinned when the region was made, and is pinned once, whatever
 * the number of exports and importers.
 *
 * The end
 *
 * An export goes from LIVE to ENDING when a call revokes it, or when a guard
 * finds that the user's mapping has gone. It goes to ENDED when no importer has
 * the memory mapped, and only then gives up its reference of the region: pages
 * that an importer may reach stay pinned and charged, even if the MR and its
 * file are gone, and the device as well (I1).
 *
 * A worker tells the importers. It needs dma_resv, which an importer may hold
 * for any time, and which no mmu notifier can take, as memory is allocated with
 * it held. Those who wait for the end of an export wait for at most a second,
 * and a guard as for keys: an export that is ENDING counts in
 * memreg_region.killing. If an importer is late, the end comes with its last
 * unmap.
 *
 * A dma-buf that has ENDED is an empty shell, and whoever has its descriptor
 * can keep it.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/wait_bit.h>

#include "core.h"
#include "device.h"
#include "pages/export.h"
#include "pages/region.h"
#include "pages/trace.h"
#include "stats.h"
#include "watch/status.h"

/* LIVE exports that a guard revokes in one hold of the lock. */
#define MEMREG_EXPORT_KILLS	32

#ifdef MEMREG_DMABUF_REVOCABLE
/**
 * memreg_exports_possible() - Has this kernel what exports need?
 *
 * Return: true if importers can be asked whether they can be revoked.
 */
bool memreg_exports_possible(void)
{
	return true;
}
#else
#define dma_buf_attach_revocable(attach)	false
#define dma_buf_invalidate_mappings		dma_buf_move_notify

bool memreg_exports_possible(void)
{
	return false;
}
#endif

/*
 * The end
 */

static void memreg_export_set_state(struct memreg_export *export,
				    enum memreg_export_state state)
{
	lockdep_assert_held(&export->mdev->frwr_lock);

	/* Pairs with memreg_export_wait(). */
	smp_store_release(&export->state, state);
}

/* No importer reaches the memory, and none will. */
static void memreg_export_end(struct memreg_export *export)
{
	struct memreg_region *region = export->region;
	bool ending;

	spin_lock(&export->mdev->frwr_lock);
	ending = export->state == MEMREG_EXPORT_ENDING;
	memreg_export_set_state(export, MEMREG_EXPORT_ENDED);
	spin_unlock(&export->mdev->frwr_lock);
	if (!ending)
		return;
	if (atomic_dec_and_test(&region->killing))
		wake_up_var(&region->killing);
	wake_up_var(&export->state);
	memreg_region_put(region);
}

/* Have the importers let go. Called once more when the last of them is late. */
static void memreg_export_work(struct work_struct *work)
{
	struct memreg_export *export =
		container_of(work, struct memreg_export, work.work);
	struct dma_buf *dmabuf = export->dmabuf;
	bool reached;

	dma_resv_lock(dmabuf->resv, NULL);
	if (!export->revoked) {
		export->revoked = true;
		dma_buf_invalidate_mappings(dmabuf);
	}
	reached = export->mapped;
	export->late = reached;
	dma_resv_unlock(dmabuf->resv);
	if (!reached)
		memreg_export_end(export);
	memreg_user_work_end(&export->work);
	dma_buf_put(dmabuf);
}

/* The caller makes sure that the dma-buf is there. */
static void memreg_export_queue(struct memreg_export *export)
{
	struct dma_buf *dmabuf = export->dmabuf;

	get_dma_buf(dmabuf);
	if (!memreg_user_work_queue(&export->work))
		dma_buf_put(dmabuf);
}

static void memreg_export_revoke_locked(struct memreg_export *export)
{
	lockdep_assert_held(&export->mdev->frwr_lock);

	if (export->state != MEMREG_EXPORT_LIVE)
		return;
	if (export->status)
		memreg_status_change(export->status, export->slot);
	list_del(&export->node);
	atomic_inc(&export->region->killing);
	export->deadline = jiffies + MEMREG_EXPORT_TIMEOUT;
	memreg_export_set_state(export, MEMREG_EXPORT_ENDING);
	memreg_export_queue(export);
}

/**
 * memreg_export_revoke() - Begin to end an export
 * @export: The export, which may have ended already
 *
 * Context: any in which a spinlock may be taken.
 */
void memreg_export_revoke(struct memreg_export *export)
{
	spin_lock(&export->mdev->frwr_lock);
	memreg_export_revoke_locked(export);
	spin_unlock(&export->mdev->frwr_lock);
}

/**
 * memreg_export_wait() - Wait until no importer reaches an export's memory
 * @export: The export, which is not LIVE any more
 * @deadline: Jiffies until which to wait
 *
 * Context: may sleep, until @deadline.
 * Return: true if no importer reaches it, and none ever will; false if one is
 * late.
 */
bool memreg_export_wait(struct memreg_export *export, unsigned long deadline)
{
	long left = max((long)(deadline - jiffies), 0L);

	/* Pairs with memreg_export_set_state(). */
	if (wait_var_event_timeout(&export->state,
				   smp_load_acquire(&export->state) ==
				   MEMREG_EXPORT_ENDED, left))
		return true;
	memreg_count(export->mdev, IB_MEMREG_STAT_EXPORTS_LATE, 1);
	return false;
}

/**
 * memreg_exports_kill() - Begin to end all exports of a region
 * @region: Region that is stale, so that no more exports of it are made
 *
 * Context: may not sleep for long. memreg_region.killing counts the exports
 * that have not ended.
 */
void memreg_exports_kill(struct memreg_region *region)
{
	struct memreg_export *export, *next;
	unsigned int n;

	do {
		n = MEMREG_EXPORT_KILLS;
		spin_lock(&region->mdev->frwr_lock);
		list_for_each_entry_safe(export, next, &region->exports, node) {
			memreg_export_revoke_locked(export);
			if (!--n)
				break;
		}
		spin_unlock(&region->mdev->frwr_lock);
		cond_resched();
	} while (!n);
}

/*
 * The dma-buf
 */

/* The pages of an export, in an array for the caller to free by kvfree(). */
static struct page **memreg_export_pages(const struct memreg_export *export)
{
	unsigned long skip = export->first, n = 0, length, i;
	struct scatterlist *sg;
	struct page **pages;
	unsigned int entry;

	pages = kvmalloc_array(export->npages, sizeof(*pages),
			       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!pages)
		return NULL;
	for_each_sgtable_sg(&export->region->sgt.sgt, sg, entry) {
		length = sg->length >> PAGE_SHIFT;
		for (i = skip; i < length && n < export->npages; i++)
			pages[n++] = sg_page(sg) + i;
		if (n == export->npages)
			break;
		skip -= min(skip, length);
	}
	return pages;
}

static int memreg_export_attach(struct dma_buf *dmabuf,
				struct dma_buf_attachment *attach)
{
	struct memreg_export *export = dmabuf->priv;

	/* It may end at any time after this, which map notices. */
	if (READ_ONCE(export->state) != MEMREG_EXPORT_LIVE)
		return -ENODEV;
	return dma_buf_attach_revocable(attach) ? 0 : -EOPNOTSUPP;
}

/* The memory does not move: a pin needs nothing but an importer that lets go */
static int memreg_export_pin(struct dma_buf_attachment *attach)
{
	return dma_buf_attach_revocable(attach) ? 0 : -EOPNOTSUPP;
}

static void memreg_export_unpin(struct dma_buf_attachment *attach)
{
}

static struct sg_table *memreg_export_table(struct memreg_export *export,
					    struct device *dev)
{
	struct page **pages = memreg_export_pages(export);
	struct sg_table *table;
	int ret = -ENOMEM;

	table = kzalloc(sizeof(*table), GFP_KERNEL_ACCOUNT);
	if (pages && table)
		ret = sg_alloc_table_from_pages_segment(table, pages,
				export->npages, 0,
				export->npages << PAGE_SHIFT,
				dma_get_max_seg_size(dev), GFP_KERNEL_ACCOUNT);
	kvfree(pages);
	if (!ret)
		return table;
	kfree(table);
	return ERR_PTR(ret);
}

/* The attributes are those of other dma-bufs: importers sync if they have to */
static struct sg_table *memreg_export_map(struct dma_buf_attachment *attach,
					  enum dma_data_direction direction)
{
	struct memreg_export *export = attach->dmabuf->priv;
	struct sg_table *table;
	int ret;

	dma_resv_assert_held(attach->dmabuf->resv);

	if (export->revoked)
		return ERR_PTR(-ENODEV);
	table = memreg_export_table(export, attach->dev);
	if (IS_ERR(table))
		return table;
	ret = dma_map_sgtable(attach->dev, table, direction, 0);
	if (ret) {
		sg_free_table(table);
		kfree(table);
		return ERR_PTR(ret);
	}
	export->mapped++;
	return table;
}

/* An importer has let go. */
static void memreg_export_unmapped(struct memreg_export *export)
{
	dma_resv_assert_held(export->dmabuf->resv);

	if (!--export->mapped && export->late)
		memreg_export_queue(export);
}

static void memreg_export_unmap(struct dma_buf_attachment *attach,
				struct sg_table *table,
				enum dma_data_direction direction)
{
	dma_unmap_sgtable(attach->dev, table, direction, 0);
	sg_free_table(table);
	kfree(table);
	memreg_export_unmapped(attach->dmabuf->priv);
}

static int memreg_export_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct memreg_export *export = dmabuf->priv;
	struct page **pages;
	void *addr;

	dma_resv_assert_held(dmabuf->resv);

	if (export->revoked)
		return -ENODEV;
	pages = memreg_export_pages(export);
	if (!pages)
		return -ENOMEM;
	addr = vmap(pages, export->npages, VM_MAP, PAGE_KERNEL);
	kvfree(pages);
	if (!addr)
		return -ENOMEM;
	iosys_map_set_vaddr(map, addr);
	export->mapped++;
	return 0;
}

static void memreg_export_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	vunmap(map->vaddr);
	memreg_export_unmapped(dmabuf->priv);
}

static void memreg_export_free(struct memreg_export *export)
{
	atomic_dec(&export->user->exports);
	memreg_user_put(export->user);
	memreg_device_put(export->mdev);
	kfree(export);
}

/* The object is gone, and had it revoked; no work is queued any more. */
static void memreg_export_release(struct dma_buf *dmabuf)
{
	memreg_export_free(dmabuf->priv);
}

static const struct dma_buf_ops memreg_export_ops = {
	.attach = memreg_export_attach,
	.pin = memreg_export_pin,
	.unpin = memreg_export_unpin,
	.map_dma_buf = memreg_export_map,
	.unmap_dma_buf = memreg_export_unmap,
	.vmap = memreg_export_vmap,
	.vunmap = memreg_export_vunmap,
	.release = memreg_export_release,
};

/*
 * The life of an export
 */

static struct dma_buf *memreg_export_dmabuf(struct memreg_export *export)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);

	info.ops = &memreg_export_ops;
	info.size = (size_t)export->npages << PAGE_SHIFT;
	info.flags = O_RDWR;
	info.priv = export;
	return dma_buf_export(&info);
}

/**
 * memreg_export_new() - Make an export, which importers cannot map yet
 * @ucmd: Call that asks for it
 * @region: The region, with pages that have a struct page and do not go away
 * @offset: First byte in the region, at the beginning of a page
 * @length: Bytes, whole pages
 *
 * As a dma-buf is a file that needs no descriptor, a user can have as many
 * exports as descriptors.
 *
 * Return: the export, for memreg_export_begin() or memreg_export_put();
 * ERR_PTR(-ENOMEM), ERR_PTR(-EMFILE), or ERR_PTR(-ENFILE).
 */
struct memreg_export *memreg_export_new(struct memreg_ucmd *ucmd,
					struct memreg_region *region,
					u64 offset, u64 length)
{
	struct memreg_export *export;
	struct dma_buf *dmabuf;

	export = kzalloc(sizeof(*export), GFP_KERNEL_ACCOUNT);
	if (!export)
		return ERR_PTR(-ENOMEM);
	export->user = memreg_user_get(ucmd->file->user->uid);
	if (!export->user) {
		kfree(export);
		return ERR_PTR(-ENOMEM);
	}
	export->mdev = region->mdev;
	memreg_device_get(export->mdev);
	export->region = region;
	export->first = (offset_in_page(region->addr) + offset) >> PAGE_SHIFT;
	export->npages = length >> PAGE_SHIFT;
	export->state = MEMREG_EXPORT_ENDED;
	memreg_user_work_init(&export->work, export->user, MEMREG_WORK_DMABUF,
			      memreg_export_work);
	if (atomic_inc_return(&export->user->exports) > rlimit(RLIMIT_NOFILE))
		dmabuf = ERR_PTR(memreg_fail(ucmd, -EMFILE,
					     IB_MEMREG_REASON_EXPORTS));
	else
		dmabuf = memreg_export_dmabuf(export);
	if (IS_ERR(dmabuf)) {
		memreg_export_free(export);
		return ERR_CAST(dmabuf);
	}
	export->dmabuf = dmabuf;
	return export;
}

/**
 * memreg_export_begin() - Let importers map an export
 * @ucmd: Call that asks for it
 * @export: The export, new
 * @status: Status table with a slot for it, or NULL
 * @slot: The slot
 *
 * Return: 0; -ESTALE if the memory has gone.
 */
int memreg_export_begin(struct memreg_ucmd *ucmd, struct memreg_export *export,
			struct memreg_kstatus *status, u32 slot)
{
	struct memreg_region *region = export->region;
	int ret = 0;

	spin_lock(&export->mdev->frwr_lock);
	if (region->guard.stale) {
		ret = memreg_fail(ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
	} else {
		memreg_region_get(region);
		export->status = status;
		export->slot = slot;
		list_add(&export->node, &region->exports);
		memreg_export_set_state(export, MEMREG_EXPORT_LIVE);
	}
	spin_unlock(&export->mdev->frwr_lock);
	return ret;
}

/**
 * memreg_export_forget_slot() - Have no slot of a status table change any more
 * @export: The export
 */
void memreg_export_forget_slot(struct memreg_export *export)
{
	spin_lock(&export->mdev->frwr_lock);
	export->status = NULL;
	spin_unlock(&export->mdev->frwr_lock);
}

/**
 * memreg_export_put() - Give up an export
 * @export: The export, ENDED or ENDING; importers that are late keep it, and
 *	the pages
 */
void memreg_export_put(struct memreg_export *export)
{
	dma_buf_put(export->dmabuf);
}
