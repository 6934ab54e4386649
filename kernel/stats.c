// SPDX-License-Identifier: GPL-2.0-only
/*
 * Statistics: each CPU counts its own events on a device, and DEVICE_STAT adds
 * the counters up.
 */
#include <linux/uaccess.h>

#include "core.h"
#include "device.h"
#include "stats.h"

/* The sum of a counter over all CPUs, which may go on counting meanwhile. */
static u64 memreg_stats_sum(struct memreg_kdevice *mdev, u32 stat)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(mdev->stats, cpu)->values[stat]);
	return sum;
}

/* ioctl(IB_MEMREG_IOC_DEVICE_STAT) */
int memreg_device_stat_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_device_stat *cmd = ucmd->cmd;
	struct ib_memreg_stat_entry __user *stats = u64_to_user_ptr(cmd->stats);
	struct ib_memreg_stat_entry entry = {};
	u32 i;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);

	for (i = 0; i < min_t(u32, cmd->count, MEMREG_STATS - 1); i++) {
		entry.stat = i + 1;
		entry.value = memreg_stats_sum(ucmd->mdev, entry.stat);
		if (copy_to_user(&stats[i], &entry, sizeof(entry)))
			return -EFAULT;
	}
	cmd->count = MEMREG_STATS - 1;
	return memreg_respond(ucmd, sizeof(*cmd));
}
