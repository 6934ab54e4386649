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
 * it held. Those who wait for the end of an export wait for at most a second
 * after its beginning. Of notifiers only those of the owner's own changes do so.
 * A driver that is late thus delays the owner by a second for the change that
 * revokes, or for the file that closes, and nobody else. If an importer is late,
 * the end comes with its last unmap, and with what fences dma_resv has then:
 * drivers of GPUs may unmap before their device is done.
 *
 * A dma-buf that has ENDED is an empty shell, and whoever has its descriptor
 * can keep it.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
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

static void memreg_export_set_state(struct memreg_kexport *export,
				    enum memreg_export_state state)
{
	lockdep_assert_held(&export->mdev->frwr_lock);

	/* Pairs with memreg_export_wait(). */
	smp_store_release(&export->state, state);
}

/*
 * No importer reaches the memory, and none will. A task that sees ENDED may
 * release the region, and finds no reference of this export.
 */
static void memreg_export_end(struct memreg_kexport *export)
{
	struct memreg_region *region = export->region;
	bool last, given_up;

	spin_lock(&export->mdev->frwr_lock);
	atomic_dec(&region->ending);
	last = !refcount_dec_not_one(&region->users);
	given_up = export->given_up;
	memreg_export_set_state(export, MEMREG_EXPORT_ENDED);
	spin_unlock(&export->mdev->frwr_lock);
	/* Pairs with the waiters' set_current_state(). */
	smp_mb();
	/* These two use addresses, and nothing that is there. */
	wake_up_var(&region->ending);
	wake_up_var(&export->state);
	if (given_up)
		atomic_dec(&export->user->exports);
	if (last)
		memreg_region_put(region);
}

/* Have the importers let go; if one is late, called again when it has. */
static void memreg_export_work(struct work_struct *work)
{
	struct memreg_kexport *export =
		container_of(work, struct memreg_kexport, work.work);
	struct dma_buf *dmabuf = export->dmabuf;
	bool reached;

	dma_resv_lock(dmabuf->resv, NULL);
	if (!export->told) {
		export->told = true;
		dma_buf_invalidate_mappings(dmabuf);
	}
	reached = export->mapped;
	export->late = reached;
	/* Nobody adds a fence meanwhile. */
	if (!reached)
		dma_resv_wait_timeout(dmabuf->resv, DMA_RESV_USAGE_BOOKKEEP,
				      false, MAX_SCHEDULE_TIMEOUT);
	dma_resv_unlock(dmabuf->resv);
	if (!reached)
		memreg_export_end(export);
	memreg_user_work_end(&export->work);
	dma_buf_put(dmabuf);
}

/* The caller makes sure that the dma-buf is there. */
static void memreg_export_queue(struct memreg_kexport *export)
{
	get_dma_buf(export->dmabuf);
	memreg_user_work_queue(&export->work);
}

static void memreg_export_revoke_locked(struct memreg_kexport *export)
{
	lockdep_assert_held(&export->mdev->frwr_lock);

	if (export->state != MEMREG_EXPORT_LIVE)
		return;
	if (export->status)
		memreg_status_change(export->status, export->slot);
	list_del(&export->node);
	export->deadline = jiffies + MEMREG_EXPORT_TIMEOUT;
	WRITE_ONCE(export->region->ending_until, export->deadline);
	atomic_inc(&export->region->ending);
	memreg_export_set_state(export, MEMREG_EXPORT_ENDING);
	memreg_export_queue(export);
}

/**
 * memreg_export_revoke() - Begin to end an export
 * @export: The export, which may have ended already
 *
 * Context: any in which a spinlock may be taken.
 */
void memreg_export_revoke(struct memreg_kexport *export)
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
bool memreg_export_wait(struct memreg_kexport *export, unsigned long deadline)
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
 * Context: may not sleep for long.
 * Return: true if some have not ended, and the owner has to wait for them.
 */
bool memreg_exports_kill(struct memreg_region *region)
{
	struct memreg_kexport *export, *next;
	unsigned int n;
	bool ending;

	do {
		n = MEMREG_EXPORT_KILLS;
		spin_lock(&region->mdev->frwr_lock);
		list_for_each_entry_safe(export, next, &region->exports, node) {
			memreg_export_revoke_locked(export);
			if (!--n)
				break;
		}
		ending = atomic_read(&region->ending) &&
			 time_before(jiffies, region->ending_until);
		spin_unlock(&region->mdev->frwr_lock);
		cond_resched();
	} while (!n);
	return ending;
}

/**
 * memreg_exports_wait() - Wait in a notifier for a region's exports to end
 * @region: The region
 *
 * Context: may sleep, until MEMREG_EXPORT_TIMEOUT after their end began.
 */
void memreg_exports_wait(struct memreg_region *region)
{
	long left = READ_ONCE(region->ending_until) - jiffies;

	if (left > 0 && !wait_var_event_timeout(&region->ending,
				    !atomic_read(&region->ending), left))
		memreg_count(region->mdev, IB_MEMREG_STAT_EXPORTS_LATE, 1);
}

/*
 * The dma-buf
 */

static bool memreg_export_is_live(const struct memreg_kexport *export)
{
	return READ_ONCE(export->state) == MEMREG_EXPORT_LIVE;
}

static int memreg_export_attach(struct dma_buf *dmabuf,
				struct dma_buf_attachment *attach)
{
	struct memreg_kexport *export = dmabuf->priv;

	if (!memreg_export_is_live(export))
		return -ENODEV;
	return dma_buf_attach_revocable(attach) ? 0 : -EOPNOTSUPP;
}

/* The memory never moves; an importer that maps late fails or is notified. */
static int memreg_export_pin(struct dma_buf_attachment *attach)
{
	return memreg_export_is_live(attach->dmabuf->priv) ? 0 : -ENODEV;
}

static void memreg_export_unpin(struct dma_buf_attachment *attach)
{
}

static struct sg_table *memreg_export_table(struct memreg_kexport *export,
					    struct device *dev)
{
	struct sg_table *table;
	int ret;

	table = kzalloc(sizeof(*table), GFP_KERNEL_ACCOUNT);
	if (!table)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table_from_pages_segment(table, export->pages,
						export->npages, 0,
						export->npages << PAGE_SHIFT,
						dma_get_max_seg_size(dev),
						GFP_KERNEL_ACCOUNT);
	if (!ret)
		return table;
	kfree(table);
	return ERR_PTR(ret);
}

/* The attributes are those of other dma-bufs: importers sync if they have to */
static struct sg_table *memreg_export_map(struct dma_buf_attachment *attach,
					  enum dma_data_direction direction)
{
	struct memreg_kexport *export = attach->dmabuf->priv;
	struct sg_table *table;
	int ret;

	dma_resv_assert_held(attach->dmabuf->resv);

	if (export->told)
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
static void memreg_export_unmapped(struct memreg_kexport *export)
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

static void memreg_export_free(struct memreg_kexport *export)
{
	kvfree(export->pages);
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
	.release = memreg_export_release,
};

/**
 * memreg_export_take() - Take the pages of an export for the CPU
 * @dmabuf: A dma-buf, with dma_resv held, and attached to
 *
 * As dma_buf_vmap(), which warns if it fails. The importer is notified by
 * ->invalidate_mappings() as if it had mapped the export.
 *
 * Return: the pages, until memreg_export_give(); ERR_PTR(-ENODEV) if the export
 * has ended.
 */
struct page **memreg_export_take(struct dma_buf *dmabuf)
{
	struct memreg_kexport *export = dmabuf->priv;

	dma_resv_assert_held(dmabuf->resv);

	if (export->told)
		return ERR_PTR(-ENODEV);
	export->mapped++;
	return export->pages;
}

/**
 * memreg_export_give() - Let go of the pages of an export
 * @dmabuf: The dma-buf, with dma_resv held
 */
void memreg_export_give(struct dma_buf *dmabuf)
{
	memreg_export_unmapped(dmabuf->priv);
}

/**
 * memreg_export_is() - Is a dma-buf an export?
 * @dmabuf: The dma-buf
 *
 * Return: true if it is.
 */
bool memreg_export_is(const struct dma_buf *dmabuf)
{
	return dmabuf->ops == &memreg_export_ops;
}

/*
 * The life of an export
 */

static struct dma_buf *memreg_export_dmabuf(struct memreg_kexport *export)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);

	info.ops = &memreg_export_ops;
	info.size = (size_t)export->npages << PAGE_SHIFT;
	info.flags = O_RDWR;
	info.priv = export;
	return dma_buf_export(&info);
}

/* List the pages from one of the region on. */
static void memreg_export_fill(struct memreg_kexport *export, unsigned long skip)
{
	unsigned long n = 0, length, i;
	struct scatterlist *sg;
	unsigned int entry;

	for_each_sgtable_sg(&export->region->sgt.sgt, sg, entry) {
		length = sg->length >> PAGE_SHIFT;
		for (i = skip; i < length && n < export->npages; i++)
			export->pages[n++] = sg_page(sg) + i;
		if (n == export->npages)
			break;
		skip -= min(skip, length);
	}
}

static struct memreg_kexport *memreg_export_alloc(struct memreg_ucmd *ucmd,
						 struct memreg_region *region,
						 unsigned long npages)
{
	struct memreg_kexport *export;

	export = kzalloc(sizeof(*export), GFP_KERNEL_ACCOUNT);
	if (!export)
		return NULL;
	export->pages = kvmalloc_array(npages, sizeof(*export->pages),
				       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!export->pages) {
		kfree(export);
		return NULL;
	}
	export->npages = npages;
	/*
	 * Both stay beyond the file. The region may have work of that user as
	 * well, if it is of an imported dma-buf.
	 */
	export->user = ucmd->file->user;
	memreg_user_hold(export->user);
	export->mdev = region->mdev;
	memreg_device_get(export->mdev);
	export->region = region;
	export->state = MEMREG_EXPORT_ENDED;
	memreg_user_work_init(&export->work, export->user, MEMREG_WORK_EXPORT,
			      memreg_export_work);
	return export;
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
struct memreg_kexport *memreg_export_new(struct memreg_ucmd *ucmd,
					struct memreg_region *region,
					u64 offset, u64 length)
{
	struct memreg_kexport *export;
	struct dma_buf *dmabuf;

	export = memreg_export_alloc(ucmd, region, length >> PAGE_SHIFT);
	if (!export)
		return ERR_PTR(-ENOMEM);
	memreg_export_fill(export, (offset_in_page(region->addr) + offset) >>
				   PAGE_SHIFT);
	if (atomic_inc_return(&export->user->exports) > rlimit(RLIMIT_NOFILE))
		dmabuf = ERR_PTR(memreg_fail(ucmd, -EMFILE,
					     IB_MEMREG_REASON_EXPORTS));
	else
		dmabuf = memreg_export_dmabuf(export);
	if (IS_ERR(dmabuf)) {
		atomic_dec(&export->user->exports);
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
int memreg_export_begin(struct memreg_ucmd *ucmd, struct memreg_kexport *export,
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
 * memreg_export_put() - Give up an export
 * @export: The export, ENDED or ENDING; importers that are late keep it, and
 *	the pages
 */
void memreg_export_put(struct memreg_kexport *export)
{
	bool ended;

	spin_lock(&export->mdev->frwr_lock);
	export->given_up = true;
	ended = export->state == MEMREG_EXPORT_ENDED;
	spin_unlock(&export->mdev->frwr_lock);
	/* A shell counts for those who keep it. */
	if (ended)
		atomic_dec(&export->user->exports);
	dma_buf_put(export->dmabuf);
}
