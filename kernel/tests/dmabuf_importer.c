// SPDX-License-Identifier: GPL-2.0-only
/*
 * An importer of dma-bufs for tests: all that a driver does with one, for a
 * device whose DMA addresses are physical ones.
 */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/highmem.h>
#include <linux/iosys-map.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "dmabuf.h"

/**
 * struct memreg_importer - An imported dma-buf
 * @lock: Protects all fields; those of mappings also dma_resv
 * @dmabuf: The dma-buf, or NULL
 * @attach: The attachment
 * @dynamic: It is notified, and has pinned
 * @let_go: enum memreg_fake_let_go
 * @direction: DMA direction that @table is mapped for
 * @table: Mapped for the device
 * @map: Mapped for the kernel
 */
struct memreg_importer {
	struct mutex lock;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	bool dynamic;
	u32 let_go;
	enum dma_data_direction direction;
	struct sg_table *table;
	struct iosys_map map;
};

/* Give up all mappings; dma_resv is held. */
static void memreg_importer_unmap(struct memreg_importer *importer)
{
	if (iosys_map_is_set(&importer->map))
		dma_buf_vunmap(importer->dmabuf, &importer->map);
	iosys_map_clear(&importer->map);
	if (importer->table)
		dma_buf_unmap_attachment(importer->attach, importer->table,
					 importer->direction);
	importer->table = NULL;
}

/* Memory objects never move, and exports end. */
static void memreg_importer_invalidate(struct dma_buf_attachment *attach)
{
	struct memreg_importer *importer = attach->importer_priv;

	WARN_ON(importer->let_go == MEMREG_FAKE_NEVER_TOLD);
	if (importer->let_go == MEMREG_FAKE_AT_ONCE)
		memreg_importer_unmap(importer);
}

#ifdef MEMREG_DMABUF_MOVE_NOTIFY
#define invalidate_mappings	move_notify
#endif

static const struct dma_buf_attach_ops memreg_importer_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = memreg_importer_invalidate,
};

struct memreg_importer *memreg_importer_new(void)
{
	struct memreg_importer *importer;

	importer = kzalloc(sizeof(*importer), GFP_KERNEL);
	if (importer)
		mutex_init(&importer->lock);
	return importer;
}

static void memreg_importer_undo(struct memreg_importer *importer)
{
	struct dma_buf *dmabuf = importer->dmabuf;

	dma_resv_lock(dmabuf->resv, NULL);
	memreg_importer_unmap(importer);
	if (importer->dynamic)
		dma_buf_unpin(importer->attach);
	importer->dynamic = false;
	dma_resv_unlock(dmabuf->resv);
	if (importer->attach)
		dma_buf_detach(dmabuf, importer->attach);
	importer->attach = NULL;
	dma_buf_put(dmabuf);
	importer->dmabuf = NULL;
}

void memreg_importer_free(struct memreg_importer *importer)
{
	if (importer->dmabuf)
		memreg_importer_undo(importer);
	kfree(importer);
}

static int memreg_importer_attach(struct memreg_importer *importer,
				  struct device *dev, bool dynamic)
{
	struct dma_buf_attachment *attach;

	attach = dynamic ? dma_buf_dynamic_attach(importer->dmabuf, dev,
						  &memreg_importer_ops,
						  importer) :
			   dma_buf_attach(importer->dmabuf, dev);
	if (IS_ERR(attach))
		return PTR_ERR(attach);
	importer->attach = attach;
	return 0;
}

static int memreg_importer_map(struct memreg_importer *importer, bool dynamic)
{
	struct dma_resv *resv = importer->dmabuf->resv;
	struct sg_table *table;
	int ret = 0;

	dma_resv_lock(resv, NULL);
	if (dynamic)
		ret = dma_buf_pin(importer->attach);
	importer->dynamic = dynamic && !ret;
	if (!ret) {
		table = dma_buf_map_attachment(importer->attach,
					       importer->direction);
		ret = PTR_ERR_OR_ZERO(table);
		if (!ret)
			importer->table = table;
	}
	dma_resv_unlock(resv);
	return ret;
}

long memreg_importer_import(struct memreg_importer *importer,
			    struct device *dev,
			    const struct memreg_fake_import *cmd)
{
	struct dma_buf *dmabuf;
	int ret;

	if (cmd->let_go > MEMREG_FAKE_LATE)
		return -EINVAL;
	dmabuf = dma_buf_get(cmd->fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	mutex_lock(&importer->lock);
	if (importer->dmabuf) {
		mutex_unlock(&importer->lock);
		dma_buf_put(dmabuf);
		return -EBUSY;
	}
	importer->dmabuf = dmabuf;
	importer->let_go = cmd->let_go;
	importer->direction = cmd->write ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
	ret = memreg_importer_attach(importer, dev, cmd->dynamic);
	if (!ret)
		ret = memreg_importer_map(importer, cmd->dynamic);
	if (!ret && !importer->let_go)
		ret = dma_buf_vmap_unlocked(dmabuf, &importer->map);
	if (ret)
		memreg_importer_undo(importer);
	mutex_unlock(&importer->lock);
	return ret;
}

/* Write some bytes, or count those that are not as they should be. */
static u32 memreg_importer_bytes(u8 *at, size_t length, u32 seed, bool write)
{
	u32 wrong = 0;
	size_t i;

	for (i = 0; i < length; i++, seed++) {
		if (write)
			at[i] = seed;
		else
			wrong += at[i] != (u8)seed;
	}
	return wrong;
}

/* The same for what is behind DMA addresses. */
static u32 memreg_importer_dma(const struct sg_table *table, u32 seed,
			       bool write)
{
	struct scatterlist *sg;
	unsigned int i;
	u32 wrong = 0;

	for_each_sgtable_dma_sg(table, sg, i) {
		wrong += memreg_importer_bytes(phys_to_virt(sg_dma_address(sg)),
					       sg_dma_len(sg), seed, write);
		seed += sg_dma_len(sg);
	}
	return wrong;
}

/* Reach memory that may have been taken away. */
static int memreg_importer_reach(struct memreg_importer *importer,
				 struct memreg_fake_access *cmd)
{
	struct dma_resv *resv = importer->dmabuf->resv;
	int ret = -ENODEV;

	dma_resv_lock(resv, NULL);
	if (importer->table) {
		cmd->out_wrong = memreg_importer_dma(importer->table, cmd->seed,
						     cmd->write);
		ret = 0;
	}
	dma_resv_unlock(resv);
	return ret;
}

long memreg_importer_access(struct memreg_importer *importer,
			    struct memreg_fake_access *cmd)
{
	enum dma_data_direction direction = cmd->write ? DMA_BIDIRECTIONAL :
							 DMA_FROM_DEVICE;
	struct dma_buf *dmabuf;
	int ret = -EINVAL;

	mutex_lock(&importer->lock);
	dmabuf = importer->dmabuf;
	if (dmabuf && importer->let_go)
		ret = memreg_importer_reach(importer, cmd);
	else if (dmabuf)
		ret = dma_buf_begin_cpu_access(dmabuf, direction);
	if (!ret && !importer->let_go) {
		cmd->out_wrong = cmd->kernel ?
			memreg_importer_bytes(importer->map.vaddr, dmabuf->size,
					      cmd->seed, cmd->write) :
			memreg_importer_dma(importer->table, cmd->seed,
					    cmd->write);
		ret = dma_buf_end_cpu_access(dmabuf, direction);
	}
	mutex_unlock(&importer->lock);
	return ret;
}

/* Hold what exporters need to take memory away. */
long memreg_importer_hold(const struct memreg_fake_hold *cmd)
{
	struct dma_buf *dmabuf = dma_buf_get(cmd->fd);

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	dma_resv_lock(dmabuf->resv, NULL);
	msleep(cmd->ms);
	dma_resv_unlock(dmabuf->resv);
	dma_buf_put(dmabuf);
	return 0;
}
