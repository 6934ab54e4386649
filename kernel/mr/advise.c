// SPDX-License-Identifier: GPL-2.0-only
/*
 * MR_ADVISE: pin ranges of MRs on demand in advance, or unpin them.
 *
 * Pages that are pinned in advance are in an extent like any other, which is
 * idle until it is used: see demand.c. Faults are taken as described there,
 * after leaving the file.
 */
#include <linux/mm.h>
#include <linux/rwsem.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "core.h"
#include "device.h"
#include "mr/advise.h"
#include "mr/demand.h"
#include "mr/mr.h"
#include "mr/reap.h"
#include "pages/region.h"
#include "pages/user.h"

/* How often a range is faulted in if its pages keep being taken away. */
#define MEMREG_ADVISE_FAULTS	8

/* Check a range of an MR. */
static int memreg_advise_check(struct memreg_ucmd *ucmd,
			       const struct memreg_kmr *mr,
			       const struct ib_memreg_range *range)
{
	struct ib_memreg_mr_advise *cmd = ucmd->cmd;
	int ret;

	if (!mr->demand)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_NOT_ON_DEMAND);
	ret = memreg_mr_check_part(ucmd, mr, range->offset, range->length);
	if (ret)
		return ret;
	if (cmd->advice == IB_MEMREG_ADVICE_PREFETCH_NO_FAULT &&
	    range->length > IB_MEMREG_NO_FAULT_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SPAN);
	if (cmd->advice == IB_MEMREG_ADVICE_PREFETCH_WRITE &&
	    !(mr->access & IB_MEMREG_ACCESS_LOCAL_WRITE))
		return memreg_fail(ucmd, -EACCES,
				   IB_MEMREG_REASON_LOCAL_WRITE);
	return 0;
}

/* Pages of the ABI */
static u64 memreg_advise_pages(u64 npages)
{
	return npages << (PAGE_SHIFT - MEMREG_PAGE_SHIFT);
}

/* Pin a range that is present, unless it is pinned already. */
static int memreg_advise_pin(struct memreg_ucmd *ucmd, struct memreg_kmr *mr,
			     struct ib_memreg_range *range, u64 offset,
			     u64 length, bool write)
{
	struct memreg_kmr *extent;

	extent = memreg_demand_find(mr, offset, length, write);
	if (!extent) {
		extent = memreg_demand_pin(ucmd, mr, offset, length, write,
					   MEMREG_DEMAND_PREFETCH);
		if (IS_ERR(extent))
			return PTR_ERR(extent);
		range->out_pages += memreg_advise_pages(extent->pinned);
	}
	memreg_object_put(&extent->obj);
	return 0;
}

/* Pin the pages of a range that are present. */
static int memreg_advise_present(struct memreg_ucmd *ucmd,
				 struct memreg_kmr *mr,
				 struct ib_memreg_range *range)
{
	unsigned long base = mr->region->addr;
	unsigned long addr = (base + range->offset) & PAGE_MASK;
	unsigned long end = PAGE_ALIGN(base + range->offset + range->length);
	unsigned long n;
	u64 from, to;
	int ret = 0;

	if (current->mm != mr->region->mm)
		return memreg_fail(ucmd, -EFAULT, IB_MEMREG_REASON_PROCESS);
	/* The removal of the device may wait for the lock. */
	while (addr < end && (!ret || ucmd->fault.needed) &&
	       !rwsem_is_contended(&ucmd->file->lock)) {
		if (fatal_signal_pending(current))
			return -EINTR;
		ucmd->fault.needed = false;
		ret = 0;
		n = memreg_region_present(addr, (end - addr) >> PAGE_SHIFT);
		from = max(addr, base + (unsigned long)range->offset);
		to = min(addr + (n << PAGE_SHIFT), base +
			 (unsigned long)(range->offset + range->length));
		if (n)
			ret = memreg_advise_pin(ucmd, mr, range, from - base,
						to - from, false);
		/* Skip pages that cannot be pinned without a fault. */
		addr += (n + 1) << PAGE_SHIFT;
		cond_resched();
	}
	if (!ucmd->fault.needed)
		return ret;
	ucmd->fault.needed = false;
	return memreg_fail(ucmd, 0, IB_MEMREG_REASON_NONE);
}

/* Apply the advice to a range as far as possible without a fault. */
static int memreg_advise_try(struct memreg_ucmd *ucmd, struct memreg_kmr *mr,
			     struct ib_memreg_range *range)
{
	struct ib_memreg_mr_advise *cmd = ucmd->cmd;
	int ret;

	ret = memreg_advise_check(ucmd, mr, range);
	if (ret)
		return ret;
	switch (cmd->advice) {
	case IB_MEMREG_ADVICE_DROP:
		range->out_pages =
			memreg_advise_pages(memreg_demand_drop(mr,
							       range->offset,
							       range->length));
		return 0;
	case IB_MEMREG_ADVICE_PREFETCH_NO_FAULT:
		return memreg_advise_present(ucmd, mr, range);
	default:
		return memreg_advise_pin(ucmd, mr, range, range->offset,
					 range->length, cmd->advice ==
					 IB_MEMREG_ADVICE_PREFETCH_WRITE);
	}
}

static int memreg_advise_find(struct memreg_ucmd *ucmd,
			      struct ib_memreg_range *range)
{
	struct memreg_object *obj;
	int ret;

	if (range->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	obj = memreg_object_get(ucmd->file, range->mr_id, IB_MEMREG_OBJECT_MR);
	if (!obj)
		return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	ret = memreg_advise_try(ucmd, container_of(obj, struct memreg_kmr, obj),
				range);
	memreg_object_put(obj);
	return ret;
}

/* Apply the advice to a range, with faults. */
static int memreg_advise_range(struct memreg_ucmd *ucmd,
			       struct ib_memreg_range *range)
{
	struct ib_memreg_mr_advise *cmd = ucmd->cmd;
	unsigned int faults;
	int ret;

	for (faults = 0; ; faults++) {
		ret = memreg_advise_find(ucmd, range);
		if (ret != -EAGAIN || !ucmd->fault.needed ||
		    faults == MEMREG_ADVISE_FAULTS)
			break;
		if (cmd->flags & IB_MEMREG_ADVISE_WAIT)
			ret = memreg_demand_fault(ucmd);
		else if (!faults)
			ret = memreg_region_fault_nowait(ucmd);
		else
			break;
		if (ret)
			break;
	}
	ucmd->fault = (struct memreg_fault) {};
	return ret;
}

/*
 * Drop the file's lock for a moment, if the removal of the device waits for it.
 */
static int memreg_advise_yield(struct memreg_ucmd *ucmd)
{
	if (!rwsem_is_contended(&ucmd->file->lock))
		return 0;
	memreg_leave(ucmd);
	return memreg_enter(ucmd, true);
}

/* Copy a range from the user, apply the advice, and report the outcome. */
static int memreg_advise_one(struct memreg_ucmd *ucmd,
			     struct ib_memreg_range __user *user)
{
	struct ib_memreg_range range;
	int ret;

	if (copy_from_user(&range, user, sizeof(range)))
		return -EFAULT;
	range.out_pages = 0;
	ucmd->reason = IB_MEMREG_REASON_NONE;
	ret = memreg_advise_range(ucmd, &range);
	if (ucmd->away || ret == -EINTR)
		return ret;
	range.out_error = -ret;
	range.out_reason = ret ? ucmd->reason : IB_MEMREG_REASON_NONE;
	ucmd->reason = IB_MEMREG_REASON_NONE;
	if (copy_to_user(user, &range, sizeof(range)))
		return -EFAULT;
	return memreg_advise_yield(ucmd);
}

/* ioctl(IB_MEMREG_IOC_MR_ADVISE) */
int memreg_mr_advise_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_mr_advise *cmd = ucmd->cmd;
	struct ib_memreg_range __user *ranges = u64_to_user_ptr(cmd->ranges);
	int ret = 0;
	u32 i;

	if (cmd->flags & ~IB_MEMREG_ADVISE_WAIT)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->advice > IB_MEMREG_ADVICE_DROP ||
	    !(BIT(cmd->advice) & MEMREG_ADVISE_ALL))
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ADVICE);
	if (!cmd->count || cmd->count > IB_MEMREG_BATCH_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	for (i = 0; i < cmd->count && !ret; i++)
		ret = memreg_advise_one(ucmd, &ranges[i]);
	cmd->out_done = ret ? i - 1 : i;
	/* If this copy fails as well, only the number of ranges is lost. */
	if (memreg_respond(ucmd, sizeof(*cmd)) && !ret)
		ret = -EFAULT;
	return ret;
}
