// SPDX-License-Identifier: GPL-2.0-only
/*
 * Re-registration: an MR gets new memory, another domain or other access flags,
 * and keeps its id.
 *
 * In verbs a re-registration that fails leaves the MR undefined, and drivers
 * undo the old registration before they make the new one. Here the new
 * registration is an unpublished MR of its own, complete up to the answer to
 * the user. Then the id names the new MR instead of the old one, in one step
 * under the lock of the ids, and only if nothing but this call uses the old
 * one: no work request, no window, no other call. Only then do the old keys
 * die. Before that step a failure destroys the new MR; after it nothing can
 * fail. No field of an MR that others can find ever changes.
 *
 * Memory that is kept
 *
 * If the memory and its write permission stay the same, the region moves from
 * the old MR to the new one. For a moment both MRs have keys on the region, and
 * its guard can kill both.
 *
 * If the memory changes, the new MR has a region and a guard of its own. Pages
 * that both ranges contain need not be pinned again, if the old region's guard
 * has seen no event that could have taken them away: the new region lists them,
 * and takes over their pin and charge along with the id. See
 * memreg_region_share().
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/guard.h"
#include "mr/demand.h"
#include "mr/mr.h"
#include "mr/mr_keys.h"
#include "mr/reap.h"
#include "mr/rereg.h"
#include "mr/trace.h"
#include "pages/region.h"
#include "stats.h"

#define MEMREG_REREG_KNOWN						\
	(IB_MEMREG_REREG_TRANSLATION | IB_MEMREG_REREG_DOMAIN |		\
	 IB_MEMREG_REREG_ACCESS)

static int memreg_rereg_check(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_mr_reregister *cmd = ucmd->cmd;
	u32 what = cmd->flags;

	if (what & ~MEMREG_REREG_KNOWN)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	/* A parameter that is not changed must be 0. */
	if (cmd->reserved ||
	    (!(what & IB_MEMREG_REREG_TRANSLATION) &&
	     (cmd->mr_flags || cmd->addr || cmd->length || cmd->fd)) ||
	    (!(what & IB_MEMREG_REREG_DOMAIN) && cmd->domain_id) ||
	    (!(what & IB_MEMREG_REREG_ACCESS) && cmd->access))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!what)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_FLAGS);
	return 0;
}

/* The same as memreg_rereg_same_memory() for an MR on demand. */
static void memreg_rereg_same_demand(const struct memreg_kmr *old,
				     struct ib_memreg_mr_register *reg)
{
	reg->flags = IB_MEMREG_MR_ON_DEMAND;
	if (!old->implicit)
		return;
	reg->flags |= IB_MEMREG_MR_IMPLICIT;
	reg->addr = 0;
	reg->length = 0;
}

/* Fill in the parameters of a registration of an MR's present memory. */
static void memreg_rereg_same_memory(const struct memreg_kmr *old,
				     struct ib_memreg_mr_register *reg)
{
	const struct memreg_region *region = old->region;

	reg->addr = old->addr;
	reg->length = old->length;
	if (old->demand) {
		memreg_rereg_same_demand(old, reg);
	} else if (region->dmabuf) {
		reg->flags = IB_MEMREG_MR_FD;
		/*
		 * -1 stands for the old MR's dma-buf: see memreg_mr_dmabuf().
		 */
		reg->fd = -1;
	} else if (!region->guard.active) {
		reg->flags = IB_MEMREG_MR_UNGUARDED;
	}
	if ((old->access | reg->access) & IB_MEMREG_ACCESS_ZERO_BASED)
		return;
	reg->flags |= IB_MEMREG_MR_IOVA;
	reg->iova = old->iova;
}

/* Fill in all parameters of the new MR, as for a registration. */
static int memreg_rereg_describe(struct memreg_ucmd *ucmd,
				 const struct memreg_kmr *old,
				 struct ib_memreg_mr_register *reg)
{
	const struct ib_memreg_mr_reregister *cmd = ucmd->cmd;

	*reg = (struct ib_memreg_mr_register) {
		.access = cmd->flags & IB_MEMREG_REREG_ACCESS ? cmd->access :
								old->access,
	};
	if (!(cmd->flags & IB_MEMREG_REREG_TRANSLATION)) {
		memreg_rereg_same_memory(old, reg);
		return 0;
	}
	if (cmd->mr_flags & IB_MEMREG_MR_FD && cmd->fd < 0)
		return memreg_fail(ucmd, -EBADF, IB_MEMREG_REASON_FD);
	reg->flags = cmd->mr_flags;
	reg->addr = cmd->addr;
	reg->length = cmd->length;
	reg->iova = cmd->iova;
	reg->fd = cmd->fd;
	return 0;
}

/* Can the new MR take over the region of the old one? */
static bool memreg_rereg_keeps_region(const struct memreg_ucmd *ucmd,
				      const struct memreg_kmr *old,
				      const struct memreg_kmr *mr)
{
	const struct ib_memreg_mr_reregister *cmd = ucmd->cmd;

	return !(cmd->flags & IB_MEMREG_REREG_TRANSLATION) && !old->demand &&
	       (old->region->writable ||
		!(mr->access & IB_MEMREG_ACCESS_LOCAL_WRITE));
}

/* Make the memory and the keys of the new MR. */
static int memreg_rereg_make(struct memreg_ucmd *ucmd,
			     struct ib_memreg_mr_register *reg,
			     struct memreg_kmr *old, struct memreg_kmr *mr)
{
	struct ib_memreg_mr_reregister *cmd = ucmd->cmd;
	struct memreg_ucmd sub = *ucmd;
	int ret;

	if (memreg_rereg_keeps_region(ucmd, old, mr))
		return memreg_mr_make_on(ucmd, mr, old->region);
	/* Memory can only be pinned in the caller's own address space. */
	if (!(cmd->flags & IB_MEMREG_REREG_TRANSLATION) && old->region->mm &&
	    old->region->mm != current->mm)
		return memreg_fail(ucmd, -EFAULT, IB_MEMREG_REASON_PROCESS);
	if (READ_ONCE(old->region->guard.stale) &&
	    !(cmd->flags & IB_MEMREG_REREG_TRANSLATION))
		return memreg_fail(ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
	sub.cmd = reg;
	ret = memreg_mr_make(&sub, mr, old);
	ucmd->reason = sub.reason;
	ucmd->fault = sub.fault;
	return ret;
}

/* Destroy a new MR that does not replace the old one. */
static void memreg_rereg_undo(struct memreg_kmr *old, struct memreg_kmr *mr)
{
	if (mr->region == old->region) {
		memreg_mr_kill_keys(mr);
		mr->region = NULL;
	}
	memreg_mr_unmake(mr);
}

/* Number of system pages that need not be pinned again. */
static u64 memreg_rereg_kept(const struct memreg_kmr *old,
			     const struct memreg_kmr *mr)
{
	return mr->region == old->region ? mr->region->npages :
					   mr->region->nr_donated;
}

static int memreg_rereg_respond(struct memreg_ucmd *ucmd,
				const struct memreg_kmr *old,
				const struct memreg_kmr *mr)
{
	struct ib_memreg_mr_reregister *cmd = ucmd->cmd;
	struct ib_memreg_segment seg = {};

	if (mr->nkeys)
		memreg_mr_segment(mr, 0, &seg);
	cmd->iova = mr->iova;
	cmd->out_lkey = seg.lkey;
	cmd->out_rkey = seg.rkey;
	cmd->out_segments = mr->nkeys;
	cmd->out_kept = memreg_rereg_kept(old, mr)
			<< (PAGE_SHIFT - MEMREG_PAGE_SHIFT);
	return memreg_respond(ucmd, sizeof(*cmd));
}

/*
 * Destroy the old MR, which has lost its id. The new MR takes over shared
 * pages.
 */
static void memreg_rereg_destroy(struct memreg_kmr *old, struct memreg_kmr *mr)
{
	memreg_mr_kill_keys(old);
	memreg_mr_end_slot(old);
	if (mr->region == old->region) {
		mr->pinned = old->pinned;
		old->pinned = 0;
		old->region = NULL;
	}
	memreg_mr_free(old);
}

/* Finish: the id names the new MR, and no step can fail any more. */
static void memreg_rereg_finish(struct memreg_ucmd *ucmd,
				struct memreg_kmr *old, struct memreg_kmr *mr,
				u64 generation)
{
	if (mr->region != old->region) {
		memreg_region_adopt(mr->region);
		/*
		 * The generation that MR_QUERY returns for the id must not go
		 * back.
		 */
		memreg_guard_adopt(mr->region, old->region, generation);
	}
	refcount_inc(&mr->domain->obj.users);
	memreg_count(ucmd->mdev, IB_MEMREG_STAT_MRS_REREGISTERED, 1);
	trace_memreg_mr_reregister(mr);
	memreg_rereg_destroy(old, mr);
	/*
	 * Our reference kept the new MR, and the pages that the old keys reach,
	 * until the old keys were dead.
	 */
	memreg_object_put(&mr->obj);
}

static int memreg_rereg_replace(struct memreg_ucmd *ucmd,
				struct ib_memreg_mr_register *reg,
				struct memreg_kmr *old, struct memreg_kmr *mr)
{
	struct ib_memreg_mr_reregister *cmd = ucmd->cmd;
	u64 generation = 0;
	int ret;

	ret = memreg_rereg_make(ucmd, reg, old, mr);
	if (ret)
		return ret;
	if (mr->region != old->region)
		generation = memreg_guard_adopt(mr->region, old->region, 0);
	/* Memory that was pinned again may be other memory than the MR had. */
	if (!(cmd->flags & IB_MEMREG_REREG_TRANSLATION) &&
	    READ_ONCE(old->region->guard.stale))
		ret = memreg_fail(ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
	if (!ret)
		ret = memreg_rereg_respond(ucmd, old, mr);
	if (!ret)
		ret = memreg_object_replace(ucmd->file, &old->obj, &mr->obj,
					    &ucmd->reason);
	if (ret)
		memreg_rereg_undo(old, mr);
	else
		memreg_rereg_finish(ucmd, old, mr, generation);
	return ret;
}

static int memreg_rereg_in_domain(struct memreg_ucmd *ucmd,
				  struct ib_memreg_mr_register *reg,
				  struct memreg_domain *domain,
				  struct memreg_kmr *old)
{
	struct memreg_ucmd sub = *ucmd;
	struct memreg_kmr *mr;
	int ret;

	sub.cmd = reg;
	ret = memreg_mr_check(&sub);
	if (ret)
		return memreg_fail(ucmd, ret, sub.reason);
	mr = memreg_mr_alloc(&sub, domain);
	if (!mr)
		return -ENOMEM;
	ret = memreg_rereg_replace(ucmd, reg, old, mr);
	if (ret)
		kfree(mr);
	return ret;
}

static int memreg_rereg_mr(struct memreg_ucmd *ucmd, struct memreg_kmr *old)
{
	struct ib_memreg_mr_reregister *cmd = ucmd->cmd;
	struct ib_memreg_mr_register reg;
	struct memreg_domain *domain;
	int ret;

	if (old->pool)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_POOL);
	if (old->region->composition)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COMPOSED);
	if (old->demand)
		memreg_demand_idle(old->demand);
	/*
	 * Only an early check: the users may change until the id is replaced.
	 */
	if (refcount_read(&old->obj.users) > 2)
		return memreg_fail(ucmd, -EBUSY,
				   memreg_mr_ops.busy(&old->obj));
	ret = memreg_rereg_describe(ucmd, old, &reg);
	if (ret)
		return ret;
	if (!(cmd->flags & IB_MEMREG_REREG_DOMAIN))
		return memreg_rereg_in_domain(ucmd, &reg, old->domain, old);
	domain = memreg_domain_get(ucmd, cmd->domain_id);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	ret = memreg_rereg_in_domain(ucmd, &reg, domain, old);
	memreg_domain_put(domain);
	return ret;
}

/* ioctl(IB_MEMREG_IOC_MR_REREGISTER) */
int memreg_mr_reregister_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_mr_reregister *cmd = ucmd->cmd;
	struct memreg_object *obj;
	int ret;

	ret = memreg_rereg_check(ucmd);
	if (ret)
		return ret;
	obj = memreg_object_get(ucmd->file, cmd->mr_id, IB_MEMREG_OBJECT_MR);
	if (!obj)
		return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	ret = memreg_rereg_mr(ucmd, container_of(obj, struct memreg_kmr, obj));
	/* If it succeeded, the object is gone. */
	if (ret)
		memreg_object_put(obj);
	return ret;
}
