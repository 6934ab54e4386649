// SPDX-License-Identifier: GPL-2.0-only
/*
 * For a test bench: soft-RoCE as an adapter that does DMA.
 *
 * Each rxe device has a device of its own, whose dma_map_ops are an IOMMU in
 * software:
 * - I/O addresses are never used again before all others have been, have an
 *   unmapped page between them, and are no kernel addresses.
 * - A range is aligned to its size, and list entries are merged where they
 *   adjoin, as by drivers/iommu/dma-iommu.c.
 *
 * Each access of the "adapter" is translated when it is made, and looked up
 * once more when it has ended. A page that is not mapped, not mapped any more,
 * not for that direction, or free is a DMA fault: it is counted, the first one
 * is warned of, and the work request fails.
 *
 * Whoever uses the device is to find what adapters have and soft-RoCE has not.
 * Parameters choose that, so that what a test needs is visible: MEMREG_ADAPTER
 * of selftests/lib/topology.sh passes them on.
 */
#include <linux/device/faux.h>
#include <linux/dma-map-ops.h>
#include <linux/iommu-dma.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>

#include "rxe.h"
#include "rxe_dma.h"

#ifndef CONFIG_ARCH_HAS_DMA_OPS
#error "set_dma_ops() does nothing: on x86 the kernel needs GART_IOMMU or XEN"
#endif

static bool dma = true;
module_param(dma, bool, 0400);
MODULE_PARM_DESC(dma, "DMA through an IOMMU in software; otherwise virtual DMA");

bool rxe_strict = true;
module_param_named(strict, rxe_strict, bool, 0400);
MODULE_PARM_DESC(strict, "Invalidations wait for accesses and mind the PD, a retry repeats no local work request, REG_MR takes a page list once");

static bool claim;
module_param(claim, bool, 0400);
MODULE_PARM_DESC(claim, "Claim to be strict, whatever it is");

bool rxe_gaps;
module_param_named(gaps, rxe_gaps, bool, 0400);
MODULE_PARM_DESC(gaps, "Fast registration of pieces that begin and end anywhere");

unsigned int rxe_pages = RXE_MAX_FMR_PAGE_LIST_LEN;
module_param_named(pages, rxe_pages, uint, 0400);
MODULE_PARM_DESC(pages, "Entries of the longest page list");

static unsigned int segment = SZ_2G;
module_param(segment, uint, 0400);
MODULE_PARM_DESC(segment, "Bytes of the longest DMA segment");

static unsigned int bits = 47;
module_param(bits, uint, 0400);
MODULE_PARM_DESC(bits, "Of an I/O address, from 32 to 47");

static bool bounce;
module_param(bounce, bool, 0400);
MODULE_PARM_DESC(bounce, "All mappings would need bounce buffers");

static bool need_sync;
module_param(need_sync, bool, 0400);
MODULE_PARM_DESC(need_sync, "dma_need_sync() is true, as after a bounce buffer or with DMA_API_DEBUG");

static bool quiet;
module_param(quiet, bool, 0400);
MODULE_PARM_DESC(quiet, "DMA faults are counted without a warning");

static atomic_long_t faults, mapped, merged;

static int rxe_dma_count_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%ld\n", atomic_long_read(kp->arg));
}

static const struct kernel_param_ops rxe_dma_count_ops = {
	.get = rxe_dma_count_get,
};

module_param_cb(faults, &rxe_dma_count_ops, &faults, 0400);
module_param_cb(mapped, &rxe_dma_count_ops, &mapped, 0400);
module_param_cb(merged, &rxe_dma_count_ops, &merged, 0400);

/* vendor_part_id of what keeps the promises of the specification */
#define RXE_DMA_PART	0x6d72

/**
 * struct rxe_dma - The IOMMU of an rxe device
 * @faux: What does the DMA
 * @parms: Of @faux
 * @mask: Of @faux
 * @table: By page of the I/O address: the physical page and the permissions
 * @lock: Protects @next
 * @next: Page of the I/O addresses that are given out next
 * @mapped: Entries of @table
 */
struct rxe_dma {
	struct faux_device *faux;
	struct device_dma_parameters parms;
	u64 mask;
	struct xarray table;
	spinlock_t lock; /* of @next */
	unsigned long next;
	atomic_long_t mapped;
};

#define RXE_DMA_READ	1
#define RXE_DMA_WRITE	2
#define PROT(_entry)	(xa_to_value(_entry) & 3)
#define PFN(_entry)	(xa_to_value(_entry) >> 2)

/* Where addresses begin: above physical memory where there is room for that. */
#define RXE_DMA_FIRST	(BIT_ULL(bits > 44 ? 44 : bits - 4) >> PAGE_SHIFT)

static unsigned int prot_of(enum dma_data_direction dir)
{
	switch (dir) {
	case DMA_TO_DEVICE:
		return RXE_DMA_READ;
	case DMA_FROM_DEVICE:
		return RXE_DMA_WRITE;
	default:
		return RXE_DMA_READ | RXE_DMA_WRITE;
	}
}

static unsigned long pages_of(u64 addr, size_t size)
{
	return PFN_UP(offset_in_page(addr) + size);
}

/* Take a range of addresses. Nobody maps this many pages at a time. */
static u64 take(struct rxe_dma *d, unsigned long npages)
{
	unsigned long align = roundup_pow_of_two(npages), at, used;
	unsigned long flags;

	spin_lock_irqsave(&d->lock, flags);
	at = ALIGN(d->next, align);
	for (;;) {
		if (at + npages >= BIT_ULL(bits) >> PAGE_SHIFT)
			at = ALIGN(RXE_DMA_FIRST, align);
		used = at;
		if (!xa_find(&d->table, &used, at + npages, XA_PRESENT))
			break;
		at = ALIGN(used + 1, align);
	}
	d->next = at + npages + 1;
	spin_unlock_irqrestore(&d->lock, flags);
	return (u64)at << PAGE_SHIFT;
}

static void *change(struct rxe_dma *d, unsigned long index, void *entry)
{
	unsigned long flags;
	void *old;

	xa_lock_irqsave(&d->table, flags);
	old = __xa_store(&d->table, index, entry, GFP_ATOMIC);
	xa_unlock_irqrestore(&d->table, flags);
	return old;
}

static void clear(struct rxe_dma *d, u64 addr, size_t size,
		  enum dma_data_direction dir)
{
	unsigned long first = addr >> PAGE_SHIFT, n = pages_of(addr, size), i;

	for (i = 0; i < n; i++) {
		void *old = change(d, first + i, NULL);

		if (WARN(!old, "rxe_dma: unmap of %llx+%zx, not mapped\n", addr,
			 size))
			break;
		WARN(PROT(old) != prot_of(dir),
		     "rxe_dma: unmap of %llx in another direction\n", addr);
	}
	atomic_long_sub(i, &mapped);
	atomic_long_sub(i, &d->mapped);
}

static int set(struct rxe_dma *d, u64 addr, phys_addr_t phys, size_t size,
	       enum dma_data_direction dir)
{
	unsigned long first = addr >> PAGE_SHIFT, n = pages_of(addr, size), i;

	for (i = 0; i < n; i++)
		if (xa_is_err(change(d, first + i,
				     xa_mk_value((PHYS_PFN(phys) + i) << 2 |
						 prot_of(dir)))))
			break;
	atomic_long_add(i, &mapped);
	atomic_long_add(i, &d->mapped);
	if (i == n)
		return 0;
	if (i)
		clear(d, addr, (i << PAGE_SHIFT) - offset_in_page(addr), dir);
	return -ENOMEM;
}

/* What cannot be bounced fails, as by dma-direct and dma-iommu. */
static bool is_refused(unsigned long attrs)
{
	return bounce && attrs & DMA_ATTR_REQUIRE_COHERENT;
}

static dma_addr_t rxe_map_phys(struct device *dev, phys_addr_t phys,
			       size_t size, enum dma_data_direction dir,
			       unsigned long attrs)
{
	struct rxe_dma *d = dev_get_drvdata(dev);
	u64 addr;

	if (is_refused(attrs))
		return DMA_MAPPING_ERROR;
	addr = take(d, pages_of(phys, size)) + offset_in_page(phys);
	return set(d, addr, phys, size, dir) ? DMA_MAPPING_ERROR : addr;
}

static void rxe_unmap_phys(struct device *dev, dma_addr_t addr, size_t size,
			   enum dma_data_direction dir, unsigned long attrs)
{
	clear(dev_get_drvdata(dev), addr, size, dir);
}

static void unmap_first(struct rxe_dma *d, struct scatterlist *sgl, int n,
			u64 addr, enum dma_data_direction dir)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, n, i) {
		clear(d, addr + offset_in_page(sg_phys(sg)), sg->length, dir);
		addr += (u64)pages_of(sg_phys(sg), sg->length) << PAGE_SHIFT;
	}
}

/*
 * Make DMA segments of entries that have been mapped at @addr and behind. Only
 * what begins and ends at pages adjoins.
 */
static int merge(struct device *dev, struct scatterlist *sgl, int nents,
		 u64 addr)
{
	u64 boundary = dma_get_seg_boundary(dev);
	size_t max = dma_get_max_seg_size(dev);
	struct scatterlist *sg, *to = NULL;
	u64 end = 1;
	int i, count = 0;

	for_each_sg(sgl, sg, nents, i) {
		u64 from = addr + offset_in_page(sg_phys(sg));
		unsigned int length = sg->length;

		sg_dma_address(sg) = DMA_MAPPING_ERROR;
		sg_dma_len(sg) = 0;
		if (from == end && sg_dma_len(to) + length <= max &&
		    from & boundary) {
			sg_dma_len(to) += length;
			atomic_long_inc(&merged);
		} else {
			to = to ? sg_next(to) : sgl;
			sg_dma_address(to) = from;
			sg_dma_len(to) = length;
			count++;
		}
		end = from + length;
		addr += (u64)pages_of(from, length) << PAGE_SHIFT;
	}
	return count;
}

static int rxe_map_sg(struct device *dev, struct scatterlist *sgl, int nents,
		      enum dma_data_direction dir, unsigned long attrs)
{
	struct rxe_dma *d = dev_get_drvdata(dev);
	unsigned long total = 0;
	struct scatterlist *sg;
	u64 base, addr;
	int i;

	if (is_refused(attrs))
		return -EIO;
	for_each_sg(sgl, sg, nents, i)
		total += pages_of(sg_phys(sg), sg->length);
	base = take(d, total);
	addr = base;
	for_each_sg(sgl, sg, nents, i) {
		if (set(d, addr + offset_in_page(sg_phys(sg)), sg_phys(sg),
			sg->length, dir)) {
			unmap_first(d, sgl, i, base, dir);
			return -ENOMEM;
		}
		addr += (u64)pages_of(sg_phys(sg), sg->length) << PAGE_SHIFT;
	}
	return merge(dev, sgl, nents, base);
}

static void rxe_unmap_sg(struct device *dev, struct scatterlist *sgl,
			 int nents, enum dma_data_direction dir,
			 unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		if (!sg_dma_len(sg))
			break;
		clear(dev_get_drvdata(dev), sg_dma_address(sg), sg_dma_len(sg),
		      dir);
	}
}

static int rxe_dma_supported(struct device *dev, u64 mask)
{
	return mask >= DMA_BIT_MASK(bits);
}

static const struct dma_map_ops rxe_dma_ops = {
	.map_phys = rxe_map_phys,
	.unmap_phys = rxe_unmap_phys,
	.map_sg = rxe_map_sg,
	.unmap_sg = rxe_unmap_sg,
	.dma_supported = rxe_dma_supported,
};

/* Make the device that does the DMA of a new rxe. */
int rxe_dma_create(struct rxe_dev *rxe, const char *name)
{
	struct rxe_dma *d;
	struct device *dev;
	char own[64];

	if (!dma)
		return 0;
	if (bits < 32 || bits > 47)
		return -EINVAL;
	d = kzalloc_obj(*d);
	if (!d)
		return -ENOMEM;
	snprintf(own, sizeof(own), "rxe_dma_%s", name);
	d->faux = faux_device_create(own, NULL, NULL);
	if (!d->faux) {
		kfree(d);
		return -ENODEV;
	}
	dev = &d->faux->dev;
	xa_init_flags(&d->table, XA_FLAGS_LOCK_IRQ);
	spin_lock_init(&d->lock);
	d->next = RXE_DMA_FIRST;
	dev->dma_parms = &d->parms;
	dev->dma_mask = &d->mask;
	set_dma_ops(dev, &rxe_dma_ops);
	dev_set_drvdata(dev, d);
	rxe->dma = d;
	if (WARN_ON(dma_set_mask_and_coherent(dev, DMA_BIT_MASK(bits))))
		return -EIO;
	dma_set_max_seg_size(dev, segment);
	dma_set_seg_boundary(dev, U32_MAX);
	if (need_sync || bounce)
		dev_clear_dma_skip_sync(dev);
	return 0;
}

void rxe_dma_destroy(struct rxe_dev *rxe)
{
	struct rxe_dma *d = rxe->dma;

	if (!d)
		return;
	WARN(atomic_long_read(&d->mapped), "rxe_dma: %ld pages left mapped\n",
	     atomic_long_read(&d->mapped));
	atomic_long_sub(atomic_long_read(&d->mapped), &mapped);
	faux_device_destroy(d->faux);
	xa_destroy(&d->table);
	kfree(d);
	rxe->dma = NULL;
}

/* The device for DMA; NULL for virtual DMA. */
struct device *rxe_dma_device(struct rxe_dev *rxe)
{
	return rxe->dma ? &rxe->dma->faux->dev : NULL;
}

/* What tells drivers on top which one this is. */
u32 rxe_dma_part(void)
{
	return rxe_strict || claim ? RXE_DMA_PART : 0;
}

/* Translate an address; NULL if it is not mapped for that. */
struct page *rxe_dma_page(struct rxe_dev *rxe, u64 addr, bool write)
{
	void *entry;

	if (!rxe->dma)
		return ib_virt_dma_to_page(addr);
	entry = xa_load(&rxe->dma->table, addr >> PAGE_SHIFT);
	if (!entry || !(PROT(entry) & (write ? RXE_DMA_WRITE : RXE_DMA_READ)))
		return NULL;
	return pfn_to_page(PFN(entry));
}

static void report(u32 key, u64 addr, bool write, const char *what)
{
	atomic_long_inc(&faults);
	WARN_ONCE(!quiet, "rxe_dma: DMA fault: %s of %llx by key %x %s\n",
		  write ? "write" : "read", addr, key, what);
}

/* What the slab allocator has is without references, but has a type. */
static bool is_free(struct page *page)
{
	page = compound_head(page);
	return !page_count(page) && (!page_has_type(page) || PageBuddy(page));
}

/* Before an access: the page of an address. NULL: that was a DMA fault. */
struct page *rxe_dma_begin(struct rxe_dev *rxe, u32 key, u64 addr, bool write)
{
	struct page *page = rxe_dma_page(rxe, addr, write);

	if (page && (!rxe->dma || !is_free(page)))
		return page;
	report(key, addr, write, page ? "is of a free page" : "is not mapped");
	return NULL;
}

/* After it. -EFAULT: that was a DMA fault. */
int rxe_dma_end(struct rxe_dev *rxe, u32 key, u64 addr, bool write,
		struct page *page)
{
	if (rxe_dma_page(rxe, addr, write) == page)
		return 0;
	report(key, addr, write, "was unmapped meanwhile");
	return -EFAULT;
}
