// SPDX-License-Identifier: GPL-2.0-only
/*
 * The keys of an MR: made, killed, and invalidated by a peer.
 *
 * An MR with remote access has keys: one if its pages fit in the page list of
 * an FRWR, with larger pages where the memory is contiguous, and otherwise
 * several, each for the next piece of the MR's range of iovas. An MR without
 * remote access has no keys, but windows can be bound to it, as a window has
 * its own key.
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/frwr.h"
#include "keys/key.h"
#include "keys/regq.h"
#include "mr/buffer_pool.h"
#include "mr/composition.h"
#include "mr/mr.h"
#include "mr/mr_keys.h"
#include "pages/region.h"
#include "quirks.h"

/* Find the page size, and the most bytes under one key. */
static u64 memreg_mr_key_span(struct memreg_kmr *mr, u8 *shift)
{
	struct memreg_kdevice *mdev = mr->domain->mdev;
	u64 sizes = mdev->page_sizes | MEMREG_PAGE_SIZE;
	u64 pages;

	*shift = MEMREG_PAGE_SHIFT;
	pages = ((mr->iova & (MEMREG_PAGE_SIZE - 1)) + mr->length +
		 MEMREG_PAGE_SIZE - 1) >> MEMREG_PAGE_SHIFT;
	/* Pages are large enough if two of them cover the MR. */
	if (mr->region->dmabuf)
		sizes &= GENMASK_ULL(max(fls64(mr->length - 1),
					 MEMREG_PAGE_SHIFT), 0);
	/*
	 * User memory is seldom contiguous: search for larger pages only if
	 * needed.
	 */
	if (pages > mdev->max_pages || mr->region->dmabuf)
		*shift = memreg_region_page_shift(mr->region, 0, mr->length,
						  mr->iova, sizes);
	return memreg_key_span(mdev, shift);
}

static int memreg_mr_alloc_keys(struct memreg_kmr *mr, u32 nkeys)
{
	mr->keys = kvcalloc(nkeys, sizeof(*mr->keys),
			    GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!mr->keys)
		return -ENOMEM;
	mr->nkeys = nkeys;
	return 0;
}

/* One key for each buffer. */
static int memreg_mr_divide_pool(struct memreg_kmr *mr)
{
	u32 i;

	if (memreg_mr_alloc_keys(mr, mr->pool->count))
		return -ENOMEM;
	for (i = 0; i < mr->nkeys; i++)
		memreg_pool_key(mr, i, &mr->keys[i]);
	return 0;
}

static int memreg_mr_divide_composition(struct memreg_kmr *mr)
{
	if (memreg_mr_alloc_keys(mr, memreg_composition_nr_keys(mr)))
		return -ENOMEM;
	memreg_composition_keys(mr);
	return 0;
}

/* Divide the MR's range among its keys. */
static int memreg_mr_divide(struct memreg_kmr *mr)
{
	u64 span, offset, mask;
	u8 shift;
	u32 i;

	span = memreg_mr_key_span(mr, &shift);
	mask = BIT_ULL(shift) - 1;
	if (memreg_mr_alloc_keys(mr, div64_u64((mr->iova & mask) + mr->length +
					       span - 1, span)))
		return -ENOMEM;
	for (i = 0, offset = 0; i < mr->nkeys; i++) {
		struct memreg_key *key = &mr->keys[i];

		key->region = mr->region;
		key->offset = offset;
		key->iova = mr->iova + offset;
		key->length = min(span - (key->iova & mask),
				  mr->length - offset);
		key->access = mr->access;
		key->page_shift = shift;
		/*
		 * Make the FRWRs for one use: where destroying is cheaper than
		 * invalidating one by one; for a long list of large pages,
		 * which no other key could reuse; and for memory that an
		 * exporter may take away, as revocation destroys its MRs.
		 */
		key->once = mr->domain->mdev->quirks & MEMREG_QUIRK_WEAK_INV ||
			    shift > MEMREG_PAGE_SHIFT || mr->region->keyed;
		offset += key->length;
	}
	return 0;
}

/**
 * memreg_mr_kill_keys() - Kill all keys of an MR
 * @mr: The MR; without keys afterwards
 *
 * Context: may sleep. Never fails.
 */
void memreg_mr_kill_keys(struct memreg_kmr *mr)
{
	struct memreg_key *keys[MEMREG_BATCH];
	u32 i, n = 0;

	for (i = 0; i < mr->nkeys; i++) {
		keys[n++] = &mr->keys[i];
		if (n == ARRAY_SIZE(keys) || i + 1 == mr->nkeys) {
			memreg_keys_destroy(keys, n);
			n = 0;
		}
	}
	kvfree(mr->keys);
	mr->keys = NULL;
	mr->nkeys = 0;
}

static int memreg_mr_describe_keys(struct memreg_kmr *mr)
{
	if (mr->pool)
		return memreg_mr_divide_pool(mr);
	if (mr->region->composition)
		return memreg_mr_divide_composition(mr);
	return memreg_mr_divide(mr);
}

/* Make the keys, a batch at a time. */
static int memreg_mr_make_keys(struct memreg_kmr *mr)
{
	struct memreg_key **batch;
	u32 done, n, i;
	int ret;

	ret = memreg_mr_describe_keys(mr);
	if (ret)
		return ret;
	n = min_t(u32, mr->nkeys, IB_MEMREG_BATCH_MAX);
	batch = kmalloc_array(n, sizeof(*batch), GFP_KERNEL_ACCOUNT);
	if (!batch) {
		ret = -ENOMEM;
		goto err_keys;
	}
	for (done = 0; done < mr->nkeys && !ret; done += n) {
		n = min_t(u32, mr->nkeys - done, IB_MEMREG_BATCH_MAX);
		for (i = 0; i < n; i++)
			batch[i] = &mr->keys[done + i];
		ret = fatal_signal_pending(current) ? -EINTR :
			memreg_keys_make(mr->domain, batch, n);
	}
	kfree(batch);
	if (!ret)
		return 0;
err_keys:
	memreg_mr_kill_keys(mr);
	return ret;
}

/**
 * memreg_mr_key_reason() - Set the reason why the keys of an MR could not be
 * made
 * @ucmd: Call that makes the MR
 * @err: Errno of memreg_keys_make()
 *
 * Return: @err.
 */
int memreg_mr_key_reason(struct memreg_ucmd *ucmd, int err)
{
	if (err == -EDQUOT)
		ucmd->reason = IB_MEMREG_REASON_CGROUP;
	else if (err == -EIO || err == -ENETDOWN)
		ucmd->reason = IB_MEMREG_REASON_QUEUE;
	else if (err == -ESTALE)
		ucmd->reason = IB_MEMREG_REASON_STALE;
	return err;
}

/**
 * memreg_mr_give_keys() - Make the keys that an MR needs for its access
 * @ucmd: Call that makes it
 * @mr: MR whose region has its pages
 *
 * Return: 0, or the errno of MR_REGISTER if keys cannot be made.
 */
int memreg_mr_give_keys(struct memreg_ucmd *ucmd, struct memreg_kmr *mr)
{
	if (mr->access & IB_MEMREG_ACCESS_FLUSH_PERSISTENT &&
	    !memreg_region_is_pmem(mr->region))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_NOT_PMEM);
	if (!(mr->access & MEMREG_ACCESS_REMOTE) && !mr->region->keyed)
		return 0;
	return memreg_mr_key_reason(ucmd, memreg_mr_make_keys(mr));
}

/* A peer has invalidated a key: is it one of this MR? Marks it if so. */
static bool memreg_mr_mark(struct memreg_kmr *mr, u32 rkey)
{
	u32 i;

	for (i = 0; i < mr->nkeys && mr->keys[i].rkey != rkey; i++)
		if (!(i % 1024))
			cond_resched();
	if (i == mr->nkeys)
		return false;
	if (!mr->keys[i].invalidated)
		WRITE_ONCE(mr->invalidated, mr->invalidated + 1);
	WRITE_ONCE(mr->keys[i].invalidated, true);
	if (mr->pool)
		memreg_pool_invalidated(mr->pool, i);
	return true;
}

/**
 * memreg_mrs_invalidated() - A peer has invalidated a key that is not that of a
 * window granted to it
 * @file: File of its endpoint
 * @rkey: The key
 *
 * If it is one of the keys of an MR, the MR is INVALIDATED from now on. Each
 * such report ends the peer's connection, which bounds the number of searches.
 *
 * Context: may sleep, in bounded time.
 */
void memreg_mrs_invalidated(struct memreg_file *file, u32 rkey)
{
	struct memreg_object *obj;
	unsigned long id = 0;
	struct memreg_kmr *mr;
	bool found = false;

	while (!found &&
	       (obj = memreg_object_next(file, IB_MEMREG_OBJECT_MR, &id))) {
		mr = container_of(obj, struct memreg_kmr, obj);
		/* The keys of all other MRs stay what they are. */
		if (mr->pool)
			mutex_lock(&mr->pool->lock);
		found = memreg_mr_mark(mr, rkey);
		if (mr->pool)
			mutex_unlock(&mr->pool->lock);
		memreg_object_put(obj);
	}
}
