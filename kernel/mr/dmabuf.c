// SPDX-License-Identifier: GPL-2.0-only
/*
 * dma-bufs of other exporters: GPU memory, udmabuf, DMA-BUF heaps.
 *
 * Two ways to the memory
 *
 * For a device that does DMA, the module imports the memory as any importer
 * does: attach, pin, map. The module then knows only DMA addresses, as the
 * memory may be out of reach of the CPU, in another PCI device: it has no
 * struct pages that could be copied to.
 *
 * With virtual DMA (soft-RoCE, siw) the CPU copies the data: there is no device
 * to map for, and the driver needs pages. They are taken from the exporter's
 * kernel mapping (vmap), which is kept for as long as the region lives; an export
 * of the module's own has a list of them. A
 * dma-buf without a kernel mapping, or of I/O memory, cannot be registered
 * there.
 *
 * Pages that stay, and pages that go
 *
 * An exporter without ->pin() never moves the memory that it exports: a region
 * of it needs no revocation, like one of a memory object. All other exporters
 * may take the memory away in spite of the pin, when a device is reset or
 * unplugged, or is assigned to a guest. So both ways attach to such an
 * exporter, the second one only to be notified, and the following holds on
 * every device (memreg_region.keyed):
 *
 *  - Local work on the memory uses keys (kernel/mr/keyed.c), as remote work
 *    does: only a key can be revoked.
 *  - Each key has an FRWR of its own, which counts in memreg_region.held from
 *    before the FRWR is mapped until its MR is destroyed, in each of its
 *    states: being made, live, on the queue of an endpoint, or being revoked.
 *    When the count is 0, no packet reaches the memory, on any driver, whatever
 *    the driver guarantees about LOCAL_INV.
 *  - The exporter revokes by ->invalidate_mappings(), in its own context and
 *    with dma_resv held. The callback marks the region stale, so that no more
 *    keys are made, and kills its keys. It then waits for @held to become 0,
 *    for at most the time that a guard waits, and releases the mapping and the
 *    pin before it returns. If the wait times out, a worker releases both
 *    later; the exporter has to wait for the end of the mapping in any case.
 *
 * The callback waits for no thread that may need dma_resv: MRs are destroyed by
 * a worker (kernel/keys/kill.c) and by their owners, which take dma_resv only
 * afterwards.
 *
 * Attachments, unlike mappings, outlive revocation, and end with the region. If
 * the driver could not destroy an MR, the mapping stays for good, like the
 * pages of other regions: see memreg_frwr_destroy_mr().
 *
 * Only keys are charged: the memory belongs to the exporter.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/wait_bit.h>

#include "core.h"
#include "device.h"
#include "inject.h"
#include "keys/guard.h"
#include "mr/dmabuf.h"
#include "pages/export.h"
#include "pages/memory.h"
#include "pages/region.h"

/* How long a registration waits for the fences of a move of the memory. */
#define MEMREG_DMABUF_PATIENCE	(10 * HZ)

/*
 * Share of the vmalloc area that one dma-buf may take: the kernel logs a
 * warning if vmap fails for lack of room.
 */
#define MEMREG_DMABUF_VMAP_MAX	((u64)VMALLOC_TOTAL / 16)

/**
 * struct memreg_import - A region's import of a dma-buf
 * @region: The region; NULL once it is gone, if an MR could not be destroyed;
 *   dma_resv
 * @attach: The module's attachment; NULL if the exporter never takes memory
 *   away and the device has no DMA
 * @direction: DMA direction that @table is mapped for
 * @table: The memory, mapped for a device; dma_resv
 * @map: The memory, mapped for the CPU; dma_resv
 * @taken: The pages were taken from an export; dma_resv
 * @pinned: The memory is pinned by @attach; dma_resv
 * @work: Releases the import if a callback's wait timed out
 */
struct memreg_import {
	struct memreg_region *region;
	struct dma_buf_attachment *attach;
	enum dma_data_direction direction;
	struct sg_table *table;
	struct iosys_map map;
	bool taken;
	bool pinned;
	struct memreg_user_work work;
};

/*
 * Letting go
 */

/* Release the mapping and the pin. May be called twice. */
static void memreg_import_let_go(struct memreg_import *import)
{
	struct dma_buf *dmabuf = import->region->dmabuf;

	dma_resv_assert_held(dmabuf->resv);

	if (import->table)
		dma_buf_unmap_attachment(import->attach, import->table,
					 import->direction);
	import->table = NULL;
	if (iosys_map_is_set(&import->map))
		dma_buf_vunmap(dmabuf, &import->map);
	iosys_map_clear(&import->map);
	if (import->taken)
		memreg_export_give(dmabuf);
	import->taken = false;
	if (import->pinned)
		dma_buf_unpin(import->attach);
	import->pinned = false;
}

/* The keys have died after the callback's wait timed out. */
static void memreg_import_work(struct work_struct *work)
{
	struct memreg_import *import =
		container_of(work, struct memreg_import, work.work);
	/* Pairs with memreg_dmabuf_leak(), which waits for this. */
	struct memreg_region *region = READ_ONCE(import->region);

	if (region) {
		wait_var_event(&region->held, !atomic_read(&region->held));
		dma_resv_lock(region->dmabuf->resv, NULL);
		if (!memreg_region_has_leaked_mr(region))
			memreg_import_let_go(import);
		dma_resv_unlock(region->dmabuf->resv);
	}
	memreg_user_work_end(&import->work);
}

/* ->invalidate_mappings(): the exporter takes the memory away. */
static void memreg_dmabuf_invalidate(struct dma_buf_attachment *attach)
{
	struct memreg_import *import = attach->importer_priv;
	struct memreg_region *region = import->region;

	dma_resv_assert_held(attach->dmabuf->resv);

	/* Pinning may move the memory, before anything is mapped. */
	if (!region || (!import->table && !import->taken &&
			iosys_map_is_null(&import->map)))
		return;
	if (!memreg_guard_revoke(region))
		memreg_user_work_queue(&import->work);
	else if (!memreg_region_has_leaked_mr(region))
		memreg_import_let_go(import);
}

#ifdef MEMREG_DMABUF_MOVE_NOTIFY
#define invalidate_mappings	move_notify
#endif

static const struct dma_buf_attach_ops memreg_dmabuf_dma_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = memreg_dmabuf_invalidate,
};

/*
 * Without peer-to-peer, the exporter moves the memory to where the CPU reaches
 * it.
 */
static const struct dma_buf_attach_ops memreg_dmabuf_cpu_ops = {
	.invalidate_mappings = memreg_dmabuf_invalidate,
};

static void memreg_import_free(struct dma_buf *dmabuf,
			       struct memreg_import *import)
{
	dma_resv_lock(dmabuf->resv, NULL);
	memreg_import_let_go(import);
	dma_resv_unlock(dmabuf->resv);
	/* From here on no callback runs, and none queues the work. */
	if (import->attach)
		dma_buf_detach(dmabuf, import->attach);
	memreg_user_work_disable(&import->work);
	kfree(import);
}

/* An MR that cannot be destroyed may reach the memory: leak the import. */
static void memreg_dmabuf_leak(struct memreg_region *region)
{
	struct memreg_import *import = region->import;
	struct dma_resv *resv = region->dmabuf->resv;

	dma_resv_lock(resv, NULL);
	WRITE_ONCE(import->region, NULL);
	dma_resv_unlock(resv);
	memreg_user_work_disable(&import->work);
	/* The exporter may still call back into this module. */
	__module_get(THIS_MODULE);
}

static void memreg_dmabuf_release(struct memreg_region *region)
{
	if (region->import)
		memreg_import_free(region->dmabuf, region->import);
	sg_free_table(&region->sgt.sgt);
	dma_buf_put(region->dmabuf);
}

/*
 * Taking
 */

/* Errno of a wait that a signal has interrupted; the call may be restarted. */
static int memreg_interrupted(void)
{
	return fatal_signal_pending(current) ? -EINTR : -ERESTARTNOINTR;
}

/* Convert an exporter's errno to one of the ABI. */
static int memreg_exporter_error(struct memreg_ucmd *ucmd, int err)
{
	switch (err) {
	case -ENOMEM:
		return err;
	case -EINTR:
	case -ERESTARTSYS:
		return memreg_interrupted();
	case -EAGAIN:
	case -EBUSY:
		return memreg_fail(ucmd, -EAGAIN, IB_MEMREG_REASON_EXPORTER);
	default:
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_EXPORTER);
	}
}

/*
 * Attach to an exporter. One that pins memory on request may take it away all
 * the same. Of the others, one that accepts an importer which it cannot notify
 * never does; one that may (vfio-pci) refuses that.
 */
static struct dma_buf_attachment *
memreg_import_attach_to(struct memreg_import *import, struct device *dev,
			bool by_dma)
{
	struct memreg_region *region = import->region;
	struct dma_buf_attachment *attach;

	if (!dma_buf_is_dynamic(region->dmabuf)) {
		attach = dma_buf_attach(region->dmabuf, dev);
		if (!IS_ERR(attach))
			return attach;
	}
	attach = dma_buf_dynamic_attach(region->dmabuf, dev,
					by_dma ? &memreg_dmabuf_dma_ops :
						 &memreg_dmabuf_cpu_ops,
					import);
	region->keyed = !IS_ERR(attach);
	return attach;
}

/* Attach to the exporter, if it may take memory away or the device has DMA. */
static int memreg_import_attach(struct memreg_ucmd *ucmd,
				struct memreg_import *import, bool by_dma)
{
	struct ib_device *ibdev = ucmd->mdev->ibdev;
	struct memreg_region *region = import->region;
	struct dma_buf_attachment *attach;

	if (!by_dma && !dma_buf_is_dynamic(region->dmabuf))
		return 0;
	/*
	 * The attachment only notifies: nothing is mapped if the device has no
	 * DMA.
	 */
	attach = memreg_import_attach_to(import, ibdev->dma_device ?:
					 &ibdev->dev, by_dma);
	if (IS_ERR(attach))
		return memreg_exporter_error(ucmd, PTR_ERR(attach));
	import->attach = attach;
	region->opaque = true;
	return 0;
}

/*
 * Pin the memory. Some exporters never do (uverbs, who waits for the end of the
 * mapping as all that revoke): the region then lives until the memory goes.
 */
static int memreg_import_pin(struct memreg_ucmd *ucmd,
			     struct memreg_import *import)
{
	int ret;

	if (!import->attach || !import->attach->importer_ops)
		return 0;
	ret = dma_buf_pin(import->attach);
	if (ret && ret != -EOPNOTSUPP)
		return memreg_exporter_error(ucmd, ret);
	import->pinned = !ret;
	return 0;
}

/* Wait until a move has ended that pinning or mapping may have begun. */
static int memreg_import_await_move(struct memreg_ucmd *ucmd,
				    struct memreg_import *import)
{
	struct dma_resv *resv = import->region->dmabuf->resv;
	long left;

	left = dma_resv_wait_timeout(resv, DMA_RESV_USAGE_KERNEL, true,
				     MEMREG_DMABUF_PATIENCE);
	return left > 0 ? 0 : memreg_exporter_error(ucmd, left ?: -EBUSY);
}

/*
 * List the DMA addresses of the range that the user named, or count them.
 * Returns the number of entries; 0 if the table is shorter than the range.
 */
static u32 memreg_import_list(struct memreg_region *region,
			      const struct sg_table *table, bool fill)
{
	u64 skip = region->addr, left = region->length, offset = 0;
	struct scatterlist *sg;
	unsigned int i;
	u32 n = 0;

	for_each_sgtable_dma_sg(table, sg, i) {
		u64 length = sg_dma_len(sg);

		if (skip >= length) {
			skip -= length;
			continue;
		}
		length = min(length - skip, left);
		if (fill) {
			region->sgl[n] = (struct scatterlist) {};
			sg_dma_address(&region->sgl[n]) =
				sg_dma_address(sg) + skip;
			sg_dma_len(&region->sgl[n]) = length;
			region->offsets[n] = offset;
		}
		n++;
		skip = 0;
		offset += length;
		left -= length;
		if (!left)
			return n;
	}
	return 0;
}

/*
 * Can keys be made of the list? Only its ends may be in the middle of a page.
 */
static bool memreg_import_is_whole(const struct memreg_region *region)
{
	u64 mask = 0;
	u32 i;

	for (i = 0; i < region->nents; i++) {
		const struct scatterlist *sg = &region->sgl[i];

		if (i)
			mask |= sg_dma_address(sg);
		if (i + 1 < region->nents)
			mask |= sg_dma_address(sg) + sg_dma_len(sg);
	}
	return !(mask & (MEMREG_PAGE_SIZE - 1)) &&
	       !((sg_dma_address(region->sgl) ^ region->addr) &
		 (MEMREG_PAGE_SIZE - 1));
}

/* Would the device reach bounce buffers in place of the memory? */
static bool memreg_import_is_copied(struct memreg_region *region)
{
	u32 i;

	for (i = 0; i < region->nents; i++)
		if (memreg_region_bounces(region->mdev->ibdev,
					  sg_dma_address(&region->sgl[i])))
			return true;
	return false;
}

/* Map the memory for the device. It may have no struct pages. */
static int memreg_import_map(struct memreg_ucmd *ucmd,
			     struct memreg_import *import)
{
	struct memreg_region *region = import->region;
	struct sg_table *table;
	u32 n;

	table = dma_buf_map_attachment(import->attach, import->direction);
	if (IS_ERR(table))
		return memreg_exporter_error(ucmd, PTR_ERR(table));
	import->table = table;
	n = memreg_import_list(region, table, false);
	if (!n)
		return memreg_exporter_error(ucmd, -EINVAL);
	if (memreg_region_list_alloc(region, n))
		return -ENOMEM;
	memreg_import_list(region, table, true);
	sg_mark_end(&region->sgl[n - 1]);
	if (memreg_import_is_copied(region))
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_NOT_COHERENT);
	return memreg_import_is_whole(region) ? 0 :
	       memreg_exporter_error(ucmd, -EINVAL);
}

/* The pages of a kernel mapping, or NULL if an address has no struct page. */
static struct page **memreg_vmap_pages(void *addr, unsigned long count)
{
	struct page **pages;
	unsigned long i;

	pages = kvmalloc_array(count, sizeof(*pages),
			       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!pages)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < count; i++, addr += PAGE_SIZE) {
		pages[i] = is_vmalloc_addr(addr) ? vmalloc_to_page(addr) : NULL;
		if (!pages[i] || !pfn_valid(page_to_pfn(pages[i]))) {
			kvfree(pages);
			return NULL;
		}
	}
	return pages;
}

/* Make the region's table of pages, from the first one on. */
static int memreg_import_table(struct memreg_region *region,
			       struct page **pages, u64 size)
{
	return sg_alloc_table_from_pages_segment(&region->sgt.sgt, pages,
			size >> PAGE_SHIFT, 0, size,
			ib_dma_max_seg_size(region->mdev->ibdev),
			GFP_KERNEL_ACCOUNT);
}

/* Bytes of the system pages that a region touches */
static u64 memreg_import_size(const struct memreg_region *region)
{
	return PAGE_ALIGN(region->addr + region->length) -
	       (region->addr & PAGE_MASK);
}

/* Take the pages of an export. */
static int memreg_import_export(struct memreg_ucmd *ucmd,
				struct memreg_import *import)
{
	struct memreg_region *region = import->region;
	struct page **pages = memreg_export_take(region->dmabuf);

	if (IS_ERR(pages))
		return memreg_exporter_error(ucmd, PTR_ERR(pages));
	import->taken = true;
	return memreg_import_table(region, pages + (region->addr >> PAGE_SHIFT),
				   memreg_import_size(region));
}

/* List the pages of the range that the user named. */
static int memreg_import_pages(struct memreg_ucmd *ucmd,
			       struct memreg_import *import)
{
	struct memreg_region *region = import->region;
	u64 first = region->addr & PAGE_MASK;
	u64 size = memreg_import_size(region);
	struct page **pages = NULL;
	int ret;

	if (size >> PAGE_SHIFT > UINT_MAX)
		return -ENOMEM;
	if (!import->map.is_iomem)
		pages = memreg_vmap_pages(import->map.vaddr + first,
					  size >> PAGE_SHIFT);
	if (IS_ERR(pages))
		return PTR_ERR(pages);
	if (!pages)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_NO_CPU);
	ret = memreg_import_table(region, pages, size);
	kvfree(pages);
	return ret;
}

/* Map the memory for the CPU. */
static int memreg_import_vmap(struct memreg_ucmd *ucmd,
			      struct memreg_import *import)
{
	struct dma_buf *dmabuf = import->region->dmabuf;
	int ret;

	if (memreg_export_is(dmabuf))
		return memreg_import_export(ucmd, import);
	if (!dmabuf->ops->vmap)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_NO_CPU);
	if (dmabuf->size > MEMREG_DMABUF_VMAP_MAX)
		return -ENOMEM;
	ret = dma_buf_vmap(dmabuf, &import->map);
	if (ret) {
		iosys_map_clear(&import->map);
		return memreg_exporter_error(ucmd, ret);
	}
	return memreg_import_pages(ucmd, import);
}

static int memreg_import_take(struct memreg_ucmd *ucmd,
			      struct memreg_region *region, bool by_dma)
{
	struct dma_resv *resv = region->dmabuf->resv;
	struct memreg_import *import;
	int ret;

	import = kzalloc(sizeof(*import), GFP_KERNEL_ACCOUNT);
	if (!import)
		return -ENOMEM;
	import->region = region;
	import->direction = region->writable ? DMA_BIDIRECTIONAL :
					       DMA_TO_DEVICE;
	memreg_user_work_init(&import->work, ucmd->file->user,
			      MEMREG_WORK_DMABUF, memreg_import_work);
	region->import = import;
	ret = memreg_import_attach(ucmd, import, by_dma);
	if (ret)
		return ret;
	if (dma_resv_lock_interruptible(resv, NULL))
		return memreg_interrupted();
	ret = memreg_import_pin(ucmd, import);
	if (!ret)
		ret = by_dma ? memreg_import_map(ucmd, import) :
			       memreg_import_vmap(ucmd, import);
	if (!ret)
		ret = memreg_import_await_move(ucmd, import);
	dma_resv_unlock(resv);
	return ret;
}

static int memreg_dmabuf_populate_dma(struct memreg_ucmd *ucmd,
				      struct memreg_region *region)
{
	return memreg_import_take(ucmd, region, true);
}

static int memreg_dmabuf_populate_cpu(struct memreg_ucmd *ucmd,
				      struct memreg_region *region)
{
	return memreg_import_take(ucmd, region, false);
}

/* Unknown, and the memory may move. */
static bool memreg_dmabuf_is_pmem(const struct memreg_region *region)
{
	return false;
}

static const struct memreg_source memreg_dmabuf_dma_source = {
	.maps = true,
	.populate = memreg_dmabuf_populate_dma,
	.release = memreg_dmabuf_release,
	.leak = memreg_dmabuf_leak,
	.is_pmem = memreg_dmabuf_is_pmem,
};

static const struct memreg_source memreg_dmabuf_cpu_source = {
	.populate = memreg_dmabuf_populate_cpu,
	.release = memreg_dmabuf_release,
	.leak = memreg_dmabuf_leak,
	.is_pmem = memreg_dmabuf_is_pmem,
};

/*
 * Choose the way to the memory by the device. Kernels with fault injection can
 * be set up to use the way of a device with DMA for virtual DMA, too: the
 * exporter of the selftests maps its memory for that.
 */
static const struct memreg_source *
memreg_dmabuf_source(const struct memreg_kdevice *mdev)
{
	return !ib_uses_virt_dma(mdev->ibdev) ||
	       memreg_inject(MEMREG_INJECT_DMABUF_MAP) ?
	       &memreg_dmabuf_dma_source : &memreg_dmabuf_cpu_source;
}

static int memreg_dmabuf_check(struct memreg_ucmd *ucmd,
			       const struct dma_buf *dmabuf, u64 end,
			       bool writable)
{
	if (end > dmabuf->size)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RANGE);
	if (writable && !(dmabuf->file->f_mode & FMODE_WRITE))
		return memreg_fail(ucmd, -EACCES, IB_MEMREG_REASON_READ_ONLY);
	return 0;
}

/**
 * memreg_dmabuf_region() - Make a region of the memory of a dma-buf
 * @ucmd: Call that asks for it
 * @dmabuf: The dma-buf, of this module or of another exporter; the region takes
 *	a reference of its own
 * @offset: First byte
 * @length: Bytes, from 1; the end does not wrap
 * @writable: The memory will be written to
 *
 * Return: the region, without pages; ERR_PTR(-EINVAL) if the range is not
 * inside the dma-buf, ERR_PTR(-EACCES), ERR_PTR(-ENOMEM).
 */
struct memreg_region *memreg_dmabuf_region(struct memreg_ucmd *ucmd,
					   struct dma_buf *dmabuf, u64 offset,
					   u64 length, bool writable)
{
	const struct memreg_source *source;
	struct memreg_region *region;
	int ret;

	ret = memreg_dmabuf_check(ucmd, dmabuf, offset + length, writable);
	if (ret)
		return ERR_PTR(ret);
	source = memreg_memory_is(dmabuf) ? &memreg_memory_source :
					    memreg_dmabuf_source(ucmd->mdev);
	region = memreg_region_alloc(ucmd->mdev, source, offset, length,
				     writable);
	if (!region)
		return ERR_PTR(-ENOMEM);
	get_dma_buf(dmabuf);
	region->dmabuf = dmabuf;
	return region;
}
