// SPDX-License-Identifier: GPL-2.0-only
/*
 * MR_ADVISE: pin ranges of MRs on demand ahead, or let go of them.
 *
 * What is pinned ahead is an extent like others, that nobody uses yet: see
 * demand.c. Faults are taken as there, with the file left.
 */
#include <linux/mm.h>
#include <linux/rwsem.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "core.h"
#include "device.h"
#include "mem/advise.h"
#include "mem/demand.h"
#include "mem/mr.h"
#include "mem/region.h"

/* How often a range is faulted in whose pages keep going. */
#define MEMREG_ADVISE_FAULTS	8

/* Check a range of an MR that was found. */
static int memreg_advise_check(struct memreg_ucmd *ucmd,
			       const struct memreg_mr *mr,
			       const struct ib_memreg_range *range)
{
	struct ib_memreg_mr_advise *cmd = ucmd->cmd;
	u64 end;

	if (!mr->demand)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_NOT_ON_DEMAND);
	if (!range->length)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_ZERO_LENGTH);
	if (check_add_overflow(range->offset, range->length, &end))
		return memreg_fail(ucmd, -EOVERFLOW, IB_MEMREG_REASON_WRAPS);
	if (end > mr->length)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RANGE);
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
static int memreg_advise_pin(struct memreg_ucmd *ucmd, struct memreg_mr *mr,
			     struct ib_memreg_range *range, u64 offset,
			     u64 length, bool write)
{
	struct memreg_mr *extent;

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

/* Pin what is in memory of a range. */
static int memreg_advise_present(struct memreg_ucmd *ucmd, struct memreg_mr *mr,
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
	while (addr < end && (!ret || ucmd->fault.needed)) {
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
		/* Those that it can't be pinned without a fault are passed. */
		addr += (n + 1) << PAGE_SHIFT;
		cond_resched();
	}
	if (!ucmd->fault.needed)
		return ret;
	ucmd->fault.needed = false;
	return memreg_fail(ucmd, 0, IB_MEMREG_REASON_NONE);
}

/* Do with a range what can be done without a fault. */
static int memreg_advise_try(struct memreg_ucmd *ucmd, struct memreg_mr *mr,
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
	ret = memreg_advise_try(ucmd, container_of(obj, struct memreg_mr, obj),
				range);
	memreg_object_put(obj);
	return ret;
}

/* Do with a range what is to be done, with faults. */
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

/* Let the removal of the device in, if it waits. */
static int memreg_advise_yield(struct memreg_ucmd *ucmd)
{
	if (!rwsem_is_contended(&ucmd->file->lock))
		return 0;
	memreg_leave(ucmd);
	return memreg_enter(ucmd, true);
}

/* Copy a range, do what is to be done, and report that. */
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
	/* If this fails, too, the number is lost, no more. */
	if (memreg_respond(ucmd, sizeof(*cmd)) && !ret)
		ret = -EFAULT;
	return ret;
}
