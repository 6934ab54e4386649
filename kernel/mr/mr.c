// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory regions in the sense of verbs: pages registered in a domain.
 * Their keys are in mr_keys.c.
 */
#include <kunit/visibility.h>
#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/frwr.h"
#include "keys/guard.h"
#include "keys/key.h"
#include "mr/buffer_pool.h"
#include "mr/composition.h"
#include "mr/demand.h"
#include "mr/dmabuf.h"
#include "mr/mr.h"
#include "mr/mr_keys.h"
#include "mr/reap.h"
#include "mr/trace.h"
#include "pages/memory.h"
#include "pages/region.h"
#include "pages/user.h"
#include "quirks.h"
#include "stats.h"
#include "watch/monitor_dmabuf.h"
#include "watch/status.h"
#include "watch/watch.h"

/* The values are those of verbs. */
static_assert((int)IB_MEMREG_ACCESS_LOCAL_WRITE == IB_ACCESS_LOCAL_WRITE);
static_assert((int)IB_MEMREG_ACCESS_REMOTE_WRITE == IB_ACCESS_REMOTE_WRITE);
static_assert((int)IB_MEMREG_ACCESS_REMOTE_READ == IB_ACCESS_REMOTE_READ);
static_assert((int)IB_MEMREG_ACCESS_REMOTE_ATOMIC == IB_ACCESS_REMOTE_ATOMIC);
static_assert((int)IB_MEMREG_ACCESS_MW_BIND == IB_ACCESS_MW_BIND);
static_assert((int)IB_MEMREG_ACCESS_ZERO_BASED == IB_ZERO_BASED);
static_assert((int)IB_MEMREG_ACCESS_FLUSH_GLOBAL == IB_ACCESS_FLUSH_GLOBAL);
static_assert((int)IB_MEMREG_ACCESS_FLUSH_PERSISTENT ==
	      IB_ACCESS_FLUSH_PERSISTENT);
static_assert((int)IB_MEMREG_ACCESS_RELAXED_ORDERING ==
	      IB_ACCESS_RELAXED_ORDERING);

/**
 * memreg_mr_check_access() - Check access flags of an MR
 * @ucmd: Call that has the flags
 * @access: The flags
 *
 * Return: 0, -EINVAL, or -EOPNOTSUPP if the device does not support one of
 * them.
 */
int memreg_mr_check_access(struct memreg_ucmd *ucmd, u32 access)
{
	if (access & ~MEMREG_ACCESS_ALL)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ACCESS);
	if (access & ~ucmd->mdev->access)
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_ACCESS_DEVICE);
	/* As ib_check_mr_access() and the IB specification, 10.6.3.1. */
	if (access & IB_MEMREG_ACCESS_LOCAL_WRITE)
		return 0;
	if (access & IB_MEMREG_ACCESS_REMOTE_WRITE)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_REMOTE_WRITE);
	if (access & IB_MEMREG_ACCESS_REMOTE_ATOMIC)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_REMOTE_ATOMIC);
	return 0;
}

#define MEMREG_MR_DEMAND	(IB_MEMREG_MR_ON_DEMAND | IB_MEMREG_MR_IMPLICIT)

/*
 * Can an MR on demand have this remote access, by a key whose pages the device
 * faults in? Drivers differ in what they take for implicit MRs, and soft-RoCE
 * takes the I/O address for the address.
 */
static bool memreg_mr_paging_possible(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;

	if (cmd->flags & IB_MEMREG_MR_IMPLICIT ||
	    cmd->access & IB_MEMREG_ACCESS_ZERO_BASED ||
	    (cmd->flags & IB_MEMREG_MR_IOVA && cmd->iova != cmd->addr))
		return false;
	return !(cmd->access & MEMREG_ACCESS_REMOTE &
		 ~memreg_paged_access(ucmd->mdev->ibdev));
}

/* Which flag contradicts that an MR is on demand, or 0 */
static u32 memreg_mr_demand_reason(const struct ib_memreg_mr_register *cmd)
{
	if (!(cmd->flags & IB_MEMREG_MR_ON_DEMAND))
		return IB_MEMREG_REASON_IMPLICIT;
	if (cmd->flags & IB_MEMREG_MR_UNGUARDED)
		return IB_MEMREG_REASON_ON_DEMAND_UNGUARDED;
	if (cmd->flags & IB_MEMREG_MR_FD)
		return IB_MEMREG_REASON_ON_DEMAND_FD;
	return IB_MEMREG_REASON_NONE;
}

/* An MR on demand is always guarded, and seldom has a key of its own. */
static int memreg_mr_check_demand(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	u32 reason;

	if (!(cmd->flags & MEMREG_MR_DEMAND))
		return 0;
	reason = memreg_mr_demand_reason(cmd);
	if (reason)
		return memreg_fail(ucmd, -EINVAL, reason);
	if (cmd->access & MEMREG_ACCESS_REMOTE &&
	    !memreg_mr_paging_possible(ucmd))
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_DEVICE_PAGING);
	if (!(cmd->flags & IB_MEMREG_MR_IMPLICIT))
		return 0;
	if (cmd->addr || cmd->length)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_IMPLICIT_RANGE);
	cmd->length = current->mm->task_size;
	return 0;
}

static int memreg_mr_check_flags(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	int ret;

	if (cmd->flags & ~(IB_MEMREG_MR_IOVA | IB_MEMREG_MR_UNGUARDED |
			   IB_MEMREG_MR_FD | MEMREG_MR_DEMAND))
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->fd && !(cmd->flags & IB_MEMREG_MR_FD))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	ret = memreg_mr_check_access(ucmd, cmd->access);
	return ret ?: memreg_mr_check_demand(ucmd);
}

/* Check the range and find its iova. */
static int memreg_mr_check_range(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	u64 end;

	if (!cmd->length)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_ZERO_LENGTH);
	if (check_add_overflow(cmd->addr, cmd->length, &end) ||
	    end > ULONG_MAX || PAGE_ALIGN(end) < end)
		return memreg_fail(ucmd, -EOVERFLOW, IB_MEMREG_REASON_WRAPS);
	if (cmd->access & IB_MEMREG_ACCESS_ZERO_BASED) {
		if (cmd->flags & IB_MEMREG_MR_IOVA)
			return memreg_fail(ucmd, -EINVAL,
					   IB_MEMREG_REASON_IOVA_ZERO_BASED);
		if (cmd->addr & (MEMREG_PAGE_SIZE - 1))
			return memreg_fail(ucmd, -EINVAL,
					   IB_MEMREG_REASON_ZERO_BASED);
		cmd->iova = 0;
	} else if (!(cmd->flags & IB_MEMREG_MR_IOVA)) {
		cmd->iova = cmd->addr;
	}
	if ((cmd->iova ^ cmd->addr) & (MEMREG_PAGE_SIZE - 1))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_IOVA);
	if (check_add_overflow(cmd->iova, cmd->length, &end))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_IOVA_WRAPS);
	return 0;
}

/**
 * memreg_mr_check() - Check the parameters of an MR, and find its iova
 * @ucmd: Call with a struct ib_memreg_mr_register
 *
 * Return: 0, -EINVAL, -EOVERFLOW or -EOPNOTSUPP.
 */
int memreg_mr_check(struct memreg_ucmd *ucmd)
{
	return memreg_mr_check_flags(ucmd) ?: memreg_mr_check_range(ucmd);
}

/**
 * memreg_mr_alloc() - Allocate an MR without region and keys
 * @ucmd: Call with a struct ib_memreg_mr_register that memreg_mr_check() has
 *   passed
 * @domain: Domain of the MR, which takes no reference
 *
 * Return: the MR, which the caller frees by kfree() if it is not made; or NULL.
 */
struct memreg_kmr *memreg_mr_alloc(struct memreg_ucmd *ucmd,
				   struct memreg_domain *domain)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	struct memreg_kmr *mr;

	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return NULL;
	mr->domain = domain;
	mr->addr = cmd->addr;
	mr->iova = cmd->iova;
	mr->length = cmd->length;
	mr->access = cmd->access;
	mr->implicit = cmd->flags & IB_MEMREG_MR_IMPLICIT;
	return mr;
}

/* Pin the pages of an MR, and make its keys. */
static int memreg_mr_populate(struct memreg_ucmd *ucmd, struct memreg_kmr *mr)
{
	int ret;

	ret = memreg_region_take(ucmd, mr->region);
	if (ret)
		return ret;
	mr->pinned = mr->region->npages;
	atomic64_add(mr->pinned, &mr->domain->file->pinned);
	return memreg_mr_give_keys(ucmd, mr);
}

/* Set the reason why the driver could not make the key of an MR on demand. */
static int memreg_mr_paged_reason(struct memreg_ucmd *ucmd, int err)
{
	switch (err) {
	case -EDQUOT:
		return memreg_charge_reason(ucmd, err);
	case -ENOMEM:
		return err;
	case -EINVAL:
		/*
		 * The range does not wrap, so this is soft-RoCE's errno for
		 * having no more MRs.
		 */
		return -ENOSPC;
	case -EINTR:
	case -ERESTARTSYS:
		return -EINTR;
	default:
		return memreg_fail(ucmd, -EFAULT, IB_MEMREG_REASON_PIN);
	}
}

/* Have the driver make the only key of an MR on demand. */
static int memreg_mr_paged_key(struct memreg_ucmd *ucmd, struct memreg_kmr *mr)
{
	struct memreg_key *key;
	int ret;

	key = kvzalloc(sizeof(*key), GFP_KERNEL_ACCOUNT);
	if (!key)
		return -ENOMEM;
	key->region = mr->region;
	key->iova = mr->iova;
	key->length = mr->length;
	key->access = mr->access;
	key->once = true;
	ret = memreg_key_make_paged(mr->domain, key, mr->addr);
	if (ret) {
		kvfree(key);
		return memreg_mr_paged_reason(ucmd, ret);
	}
	mr->keys = key;
	mr->nkeys = 1;
	return 0;
}

/* The keys are dead: no packet reaches the pages any more (I1). */
static void memreg_mr_release_region(struct memreg_region *region)
{
	memreg_guard_remove(region);
	memreg_frwr_drain_region(region);
	memreg_region_release(region);
}

/**
 * memreg_mr_unmake() - Release the keys and the region of an MR
 * @mr: The MR, complete or in part; has only its domain afterwards
 *
 * Context: may sleep. Never fails.
 */
void memreg_mr_unmake(struct memreg_kmr *mr)
{
	memreg_mr_kill_keys(mr);
	if (mr->demand)
		memreg_demand_end(mr);
	if (!mr->region)
		return;
	memreg_mr_release_region(mr->region);
	atomic64_sub(mr->pinned, &mr->domain->file->pinned);
	mr->pinned = 0;
	mr->region = NULL;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_mr_unmake);

/*
 * Get the dma-buf that a call names; -1 names the one of the old MR. Pools are
 * for memory objects: where the exporter may take memory away local work uses
 * keys, but a pool has none for the gaps between its buffers, and exchanges
 * those of the buffers while work is posted.
 */
static struct dma_buf *memreg_mr_dmabuf(struct memreg_ucmd *ucmd,
					const struct memreg_kmr *mr,
					struct memreg_kmr *old)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;

	if (mr->pool)
		return memreg_memory_get(ucmd, cmd->fd);
	if (!old || cmd->fd != -1)
		return memreg_dmabuf_get(ucmd, cmd->fd);
	get_dma_buf(old->region->dmabuf);
	return old->region->dmabuf;
}

/*
 * Make the region of an MR, without pages, from the memory that the call names.
 */
static int memreg_mr_make_region(struct memreg_ucmd *ucmd,
				 struct memreg_kmr *mr, struct memreg_kmr *old)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	bool writable = mr->access & IB_MEMREG_ACCESS_LOCAL_WRITE;
	struct memreg_region *region;
	struct dma_buf *dmabuf;

	if (!(cmd->flags & IB_MEMREG_MR_FD)) {
		mr->region = memreg_region_new(ucmd, mr->addr, mr->length,
					       writable);
		if (!mr->region)
			return -ENOMEM;
		if (old)
			memreg_region_share(mr->region, old->region);
		return 0;
	}
	dmabuf = memreg_mr_dmabuf(ucmd, mr, old);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	region = memreg_dmabuf_region(ucmd, dmabuf, mr->addr, mr->length,
				      writable);
	dma_buf_put(dmabuf);
	if (IS_ERR(region))
		return PTR_ERR(region);
	mr->region = region;
	return 0;
}

/*
 * Connect a guard that is not active yet to the slot. If a guard of an earlier
 * attempt was stale, it is gone: the slot's generation continues from here.
 */
static void memreg_mr_arm_slot(struct memreg_kmr *mr)
{
	if (!mr->status)
		return;
	mr->region->guard.status = mr->status;
	mr->region->guard.slot = mr->slot;
	mr->generation = memreg_status_generation(mr->status, mr->slot);
}

/* Register while the mapping is watched; -EAGAIN if it changed meanwhile. */
static int memreg_mr_try_make(struct memreg_ucmd *ucmd, struct memreg_kmr *mr,
			      struct memreg_kmr *old)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	unsigned long seq;
	int ret;

	ret = memreg_mr_make_region(ucmd, mr, old);
	if (ret)
		return ret;
	memreg_mr_arm_slot(mr);
	/* Memory behind a descriptor does not depend on any mapping. */
	if (!(cmd->flags & (IB_MEMREG_MR_UNGUARDED | IB_MEMREG_MR_FD))) {
		ret = memreg_guard_insert(mr->region);
		if (ret)
			goto err;
	}
	seq = memreg_guard_begin(mr->region);
	ret = memreg_mr_populate(ucmd, mr);
	if (!ret)
		ret = memreg_guard_end(mr->region, seq);
	if (!ret)
		return 0;
err:
	memreg_mr_unmake(mr);
	return ret;
}

/*
 * Were idle pages on demand of the process unpinned to make room under the
 * limit? An MR that replaces one with some of the pages is not charged for
 * these.
 */
static bool memreg_mr_made_room(struct memreg_ucmd *ucmd, bool replaces,
				int err)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	unsigned long npages = DIV_ROUND_UP(offset_in_page(cmd->addr) +
					    cmd->length, PAGE_SIZE);

	return err == -ENOMEM && ucmd->reason == IB_MEMREG_REASON_MEMLOCK &&
	       (replaces ||
		memreg_demand_can_make_room(current->mm, npages)) &&
	       memreg_demand_make_room(current->mm, npages);
}

/*
 * Make an MR on demand. If peers are to have access, the device faults in and
 * watches the pages of the key; those that work requests and windows name are
 * pinned as without it.
 */
static int memreg_mr_make_demand(struct memreg_ucmd *ucmd,
				 struct memreg_kmr *mr)
{
	int ret;

	ret = memreg_demand_begin(ucmd, mr, mr->access &
				  IB_MEMREG_ACCESS_LOCAL_WRITE);
	if (ret || !(mr->access & MEMREG_ACCESS_REMOTE))
		return ret;
	ret = memreg_mr_paged_key(ucmd, mr);
	if (ret)
		memreg_mr_unmake(mr);
	return ret;
}

/* How often registering starts over if the mapping changes meanwhile. */
#define MEMREG_MR_ATTEMPTS	8

/**
 * memreg_mr_make() - Pin the memory of an MR and make its keys
 * @ucmd: Call with the struct ib_memreg_mr_register that describes the MR
 * @mr: The MR; after a failure it has only its domain
 * @old: MR that @mr will replace, and whose pages it may share until then; or
 *	NULL
 *
 * Return: 0, or the errno of MR_REGISTER.
 */
int memreg_mr_make(struct memreg_ucmd *ucmd, struct memreg_kmr *mr,
		   struct memreg_kmr *old)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	unsigned int attempt;
	int ret;

	if (cmd->flags & IB_MEMREG_MR_ON_DEMAND)
		return memreg_mr_make_demand(ucmd, mr);
	for (attempt = 0; attempt < MEMREG_MR_ATTEMPTS; attempt++) {
		ret = memreg_mr_try_make(ucmd, mr, old);
		if (ret != -ESTALE && !memreg_mr_made_room(ucmd, old, ret))
			return ret;
		ucmd->reason = IB_MEMREG_REASON_NONE;
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return memreg_fail(ucmd, -EAGAIN, IB_MEMREG_REASON_UNSTEADY);
}

/* Take a slot of the status table that the call names, if it names one. */
static int memreg_mr_take_slot(struct memreg_ucmd *ucmd, struct memreg_kmr *mr)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	struct memreg_kstatus *status;

	status = memreg_status_reserve(ucmd, cmd->status_id, &mr->slot);
	if (IS_ERR_OR_NULL(status))
		return PTR_ERR_OR_ZERO(status);
	mr->status = status;
	/* That of an MR on demand, which no change of the mapping ends */
	mr->generation = memreg_status_generation(status, mr->slot);
	return 0;
}

/**
 * memreg_mr_end_slot() - Free the slot of an MR in a status table
 * @mr: The MR, with or without a slot
 */
void memreg_mr_end_slot(struct memreg_kmr *mr)
{
	struct memreg_region *region = mr->region;

	if (!mr->status)
		return;
	if (region) {
		spin_lock(&region->mdev->frwr_lock);
		region->guard.status = NULL;
		spin_unlock(&region->mdev->frwr_lock);
	}
	memreg_status_give_slot(mr->status, mr->slot);
	memreg_status_put(mr->status);
	mr->status = NULL;
}

/**
 * memreg_mr_make_on() - Make the keys of an MR on a region that has its pages
 * @ucmd: Call that asks for it
 * @mr: The MR; after a failure it has only its domain
 * @region: The region; becomes the MR's on success
 *
 * Return: 0; -ESTALE; or the errno of MR_REGISTER if keys cannot be made.
 */
int memreg_mr_make_on(struct memreg_ucmd *ucmd, struct memreg_kmr *mr,
		      struct memreg_region *region)
{
	int ret;

	if (READ_ONCE(region->guard.stale))
		return memreg_fail(ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
	mr->region = region;
	ret = memreg_mr_give_keys(ucmd, mr);
	if (ret) {
		memreg_mr_kill_keys(mr);
		mr->region = NULL;
	}
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(memreg_mr_make_on);

/**
 * memreg_mr_free() - Destroy an MR whose id is freed
 * @mr: The MR
 *
 * Context: may sleep. Never fails.
 */
void memreg_mr_free(struct memreg_kmr *mr)
{
	if (mr->pool)
		memreg_pool_die(mr->pool);
	memreg_mr_unmake(mr);
	memreg_mr_end_slot(mr);
	memreg_pool_free(mr->pool);
	memreg_domain_put(mr->domain);
	kfree(mr);
}

/**
 * memreg_mr_segment() - Describe a keyed segment
 * @mr: The MR
 * @i: Index of the segment
 * @seg: Filled in; without keys if a peer has invalidated them
 */
void memreg_mr_segment(const struct memreg_kmr *mr, u32 i,
		       struct ib_memreg_segment *seg)
{
	const struct memreg_key *key = &mr->keys[i];

	memset(seg, 0, sizeof(*seg));
	seg->iova = key->iova;
	seg->length = key->length;
	/* LIST may race with a peer's invalidation, which it may miss. */
	if (data_race(key->invalidated))
		return;
	/* LIST may race with a recycle of a pool's keys. */
	seg->lkey = data_race(key->lkey);
	/* Likewise. */
	seg->rkey = data_race(key->rkey);
}

static int memreg_mr_respond(struct memreg_ucmd *ucmd, struct memreg_kmr *mr)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	struct ib_memreg_segment seg = {};

	cmd->out_segments = mr->nkeys;
	if (cmd->out_segments)
		memreg_mr_segment(mr, 0, &seg);
	cmd->out_mr_id = mr->obj.id;
	cmd->out_slot = mr->slot;
	cmd->out_generation = mr->generation;
	cmd->out_lkey = seg.lkey;
	cmd->out_rkey = seg.rkey;
	return memreg_respond(ucmd, sizeof(*cmd));
}

/* Make an MR in a domain; takes over the caller's reference of the domain. */
static struct memreg_kmr *memreg_mr_create(struct memreg_ucmd *ucmd,
					   struct memreg_domain *domain,
					   struct memreg_kpool *pool)
{
	struct memreg_kmr *mr;
	int ret;

	mr = memreg_mr_alloc(ucmd, domain);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->pool = pool;
	ret = memreg_mr_take_slot(ucmd, mr);
	if (ret)
		goto err_free;
	ret = memreg_object_alloc(ucmd->file, &mr->obj, &memreg_mr_ops);
	if (ret)
		goto err_slot;
	ret = memreg_mr_make(ucmd, mr, NULL);
	if (ret)
		goto err_abort;
	refcount_inc(&domain->obj.users);
	return mr;

err_abort:
	memreg_object_abort(ucmd->file, &mr->obj);
err_slot:
	memreg_mr_end_slot(mr);
err_free:
	kfree(mr);
	return ERR_PTR(ret);
}

/**
 * memreg_mr_begin() - Make an MR that is not published yet
 * @ucmd: Call that asks for it, with a struct ib_memreg_mr_register
 * @pool: The pool that the MR is to be, or NULL; the MR owns it from now on,
 *	and it is freed if the call fails
 *
 * Return: the MR, for memreg_mr_made(); or an ERR_PTR() of MR_REGISTER's errno.
 */
struct memreg_kmr *memreg_mr_begin(struct memreg_ucmd *ucmd,
				   struct memreg_kpool *pool)
{
	struct ib_memreg_mr_register *cmd = ucmd->cmd;
	struct memreg_domain *domain;
	struct memreg_kmr *mr;
	int ret;

	ret = memreg_mr_check(ucmd);
	if (ret)
		goto err;
	domain = memreg_domain_get(ucmd, cmd->domain_id);
	if (IS_ERR(domain)) {
		ret = PTR_ERR(domain);
		goto err;
	}
	mr = memreg_mr_create(ucmd, domain, pool);
	memreg_domain_put(domain);
	if (!IS_ERR(mr))
		return mr;
	ret = PTR_ERR(mr);
err:
	memreg_pool_free(pool);
	return ERR_PTR(ret);
}

/**
 * memreg_mr_made() - Hand an MR that a call has made to main
 * @ucmd: The call
 * @mr: The MR, complete
 * @ret: Errno that the call returns, or 0
 *
 * Return: @ret.
 */
int memreg_mr_made(struct memreg_ucmd *ucmd, struct memreg_kmr *mr, int ret)
{
	memreg_object_made(ucmd, &mr->obj);
	if (!ret) {
		memreg_count(ucmd->mdev, IB_MEMREG_STAT_MRS_REGISTERED, 1);
		trace_memreg_mr_register(mr);
	}
	return ret;
}

/* ioctl(IB_MEMREG_IOC_MR_REGISTER) */
int memreg_mr_register_ioctl(struct memreg_ucmd *ucmd)
{
	struct memreg_kmr *mr = memreg_mr_begin(ucmd, NULL);

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	return memreg_mr_made(ucmd, mr, memreg_mr_respond(ucmd, mr));
}

static int memreg_mr_copy_segments(struct memreg_kmr *mr, u64 to, u32 room)
{
	struct ib_memreg_segment __user *segments = u64_to_user_ptr(to);
	struct ib_memreg_segment seg;
	u32 i;

	for (i = 0; i < min(room, mr->nkeys); i++) {
		/*
		 * Not held over the copy to user space, which may take any
		 * time.
		 */
		if (mr->pool && mutex_lock_killable(&mr->pool->lock))
			return -EINTR;
		memreg_mr_segment(mr, i, &seg);
		if (mr->pool)
			mutex_unlock(&mr->pool->lock);
		if (copy_to_user(&segments[i], &seg, sizeof(seg)))
			return -EFAULT;
	}
	return 0;
}

static u32 memreg_mr_state(const struct memreg_kmr *mr)
{
	const struct memreg_kwatch *guard = &mr->region->guard;

	if (!READ_ONCE(guard->stale))
		return READ_ONCE(mr->invalidated) ? IB_MEMREG_MR_INVALIDATED :
						    IB_MEMREG_MR_LIVE;
	return READ_ONCE(guard->spurious) ? IB_MEMREG_MR_SPURIOUS :
					    IB_MEMREG_MR_STALE;
}

static void memreg_mr_query_demand(struct memreg_demand *demand,
				   struct ib_memreg_mr_query *cmd)
{
	unsigned int i;

	memreg_demand_stats_read(&demand->stats, &cmd->out_demand);
	for (i = 0; i < IB_MEMREG_DEMAND_WAITS; i++)
		cmd->out_wait[i] = atomic64_read(&demand->stats.wait[i]);
	cmd->out_pinned = cmd->out_demand.pinned;
}

/* ioctl(IB_MEMREG_IOC_MR_QUERY) */
int memreg_mr_query_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_mr_query *cmd = ucmd->cmd;
	struct memreg_object *obj;
	struct memreg_kmr *mr;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	obj = memreg_object_get(ucmd->file, cmd->mr_id, IB_MEMREG_OBJECT_MR);
	if (!obj)
		return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	mr = container_of(obj, struct memreg_kmr, obj);
	memreg_guard_recheck(mr->region);

	ret = memreg_mr_copy_segments(mr, cmd->segments, cmd->count);
	if (ret)
		goto out;
	cmd->count = mr->nkeys;
	cmd->out_domain_id = mr->domain->obj.id;
	cmd->out_addr = mr->addr;
	cmd->out_length = mr->length;
	cmd->out_iova = mr->iova;
	cmd->out_access = mr->access;
	cmd->out_state = memreg_mr_state(mr);
	cmd->out_pinned = memreg_region_pages(mr->region);
	cmd->out_generation = READ_ONCE(mr->region->guard.generation);
	cmd->out_suspects = READ_ONCE(mr->region->guard.suspects);
	cmd->out_windows = atomic_read(&mr->windows);
	memset_startat(cmd, 0, out_demand);
	if (mr->demand)
		memreg_mr_query_demand(mr->demand, cmd);
	ret = memreg_respond(ucmd, sizeof(*cmd));
out:
	memreg_object_put(obj);
	return ret;
}

static void memreg_mr_destroy(struct memreg_file *file,
			      struct memreg_object *obj)
{
	struct memreg_kmr *mr = container_of(obj, struct memreg_kmr, obj);

	memreg_count(file->mdev, IB_MEMREG_STAT_MRS_DEREGISTERED, 1);
	trace_memreg_mr_deregister(mr);
	memreg_mr_free(mr);
}

/*
 * Release idle extents, so that they do not keep the MR from being destroyed.
 */
static void memreg_mr_idle(struct memreg_object *obj, bool closing)
{
	struct memreg_kmr *mr = container_of(obj, struct memreg_kmr, obj);

	if (mr->demand)
		memreg_demand_idle(mr->demand);
}

static void memreg_mr_abort(struct memreg_file *file,
			    struct memreg_object *obj)
{
	memreg_mr_free(container_of(obj, struct memreg_kmr, obj));
}

static void memreg_mr_info(struct memreg_object *obj,
			   struct ib_memreg_object *info)
{
	struct memreg_kmr *mr = container_of(obj, struct memreg_kmr, obj);
	struct ib_memreg_segment seg = {};

	if (mr->nkeys)
		memreg_mr_segment(mr, 0, &seg);
	info->domain_id = mr->domain->obj.id;
	info->u.mr = (struct ib_memreg_object_mr) {
		.addr = mr->addr,
		.length = mr->length,
		.state = memreg_mr_state(mr),
		.access = mr->access,
		.rkey = seg.rkey,
		.on_demand = !!mr->demand,
	};
	if (mr->demand)
		memreg_demand_stats_read(&mr->demand->stats,
					 &info->u.mr.demand);
	memreg_region_describe(mr->region, &info->u.mr);
}

/* The likely reason why an MR has users and cannot be destroyed. */
static u32 memreg_mr_busy(const struct memreg_object *obj)
{
	const struct memreg_kmr *mr = container_of(obj, struct memreg_kmr, obj);

	if (atomic_read(&mr->windows))
		return IB_MEMREG_REASON_WINDOWS_BOUND;
	if (atomic_read(&mr->exports))
		return IB_MEMREG_REASON_EXPORTED;
	return list_empty(&mr->region->ties) ? IB_MEMREG_REASON_IN_USE :
					       IB_MEMREG_REASON_COMPOSED;
}

const struct memreg_object_ops memreg_mr_ops = {
	.type = IB_MEMREG_OBJECT_MR,
	.destroy = memreg_mr_destroy,
	.idle = memreg_mr_idle,
	.abort = memreg_mr_abort,
	.info = memreg_mr_info,
	.busy = memreg_mr_busy,
};
