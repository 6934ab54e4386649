/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counters of MRs on demand, of an MR or of a domain.
 */
#ifndef _MEMREG_MEM_DEMAND_STATS_H
#define _MEMREG_MEM_DEMAND_STATS_H

#include <linux/atomic.h>
#include <linux/types.h>
#include <uapi/rdma/ib_memreg.h>

#include "device.h"

/**
 * enum memreg_demand_event - What is counted as often as it happens
 * @MEMREG_DEMAND_FAULT: A range had to be pinned to be used
 * @MEMREG_DEMAND_HIT: A range was pinned when it was used
 * @MEMREG_DEMAND_INVALIDATION: The mapping of an extent changed
 * @MEMREG_DEMAND_PREFETCHED: An extent was pinned by advice
 * @MEMREG_DEMAND_PREFETCH_HIT: One of those was used
 * @MEMREG_DEMAND_EVENTS: Number of the others
 *
 * In the order of their counters in enum ib_memreg_stat_id.
 */
enum memreg_demand_event {
	MEMREG_DEMAND_FAULT,
	MEMREG_DEMAND_HIT,
	MEMREG_DEMAND_INVALIDATION,
	MEMREG_DEMAND_PREFETCHED,
	MEMREG_DEMAND_PREFETCH_HIT,
	MEMREG_DEMAND_EVENTS,
};

/**
 * struct memreg_demand_stats - Counters of MRs on demand
 * @pages: Pages that are pinned
 * @events: By enum memreg_demand_event
 * @wait: Faults by the time that they took
 */
struct memreg_demand_stats {
	struct memreg_demand_pages pages;
	atomic64_t events[MEMREG_DEMAND_EVENTS];
	atomic64_t wait[IB_MEMREG_DEMAND_WAITS];
};

unsigned long memreg_demand_pages_pin(struct memreg_demand_pages *pages,
				      unsigned long npages);
unsigned int memreg_demand_stats_class(u64 ns);
void memreg_demand_stats_read(struct memreg_demand_stats *stats,
			      struct ib_memreg_demand_stats *to);
void memreg_demand_stats_read_wait(struct memreg_demand_stats *stats,
				   u64 *to);

#endif /* _MEMREG_MEM_DEMAND_STATS_H */
