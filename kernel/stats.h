/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Statistics of a device.
 */
#ifndef _MEMREG_STATS_H
#define _MEMREG_STATS_H

#include <linux/percpu.h>

#include "device.h"

/* Size of an array that is indexed by counter id; ids start at 1. */
#define MEMREG_STATS							\
	(IB_MEMREG_STAT_DEMAND_WAIT + IB_MEMREG_DEMAND_WAITS)

/**
 * struct memreg_stats - The counters of one CPU for a device
 * @values: Counters, indexed by enum ib_memreg_stat_id
 */
struct memreg_stats {
	u64 values[MEMREG_STATS];
};

/* Count something that happened @n times. Context: any. */
static inline void memreg_count(struct memreg_kdevice *mdev,
				enum ib_memreg_stat_id stat, u64 n)
{
	this_cpu_add(mdev->stats->values[stat], n);
}

int memreg_device_stat_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_STATS_H */
