// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counters of MRs on demand. An MR has its own, and counts for its domain as
 * well: those of the domain stay when the MR goes.
 */
#include <linux/math64.h>

#include "device.h"
#include "mem/demand_stats.h"

/**
 * memreg_demand_pages_pin() - Count pages that are pinned
 * @pages: The counters
 * @npages: System pages
 *
 * Return: how many more are pinned now than at any time before, or 0.
 */
unsigned long memreg_demand_pages_pin(struct memreg_demand_pages *pages,
				      unsigned long npages)
{
	long now = atomic_long_add_return(npages, &pages->now);
	long max = atomic_long_read(&pages->max);

	while (now > max)
		if (atomic_long_try_cmpxchg(&pages->max, &max, now))
			return now - max;
	return 0;
}

/**
 * memreg_demand_stats_class() - Find the class of the time that a fault took
 * @ns: Nanoseconds
 *
 * Return: index in memreg_demand_stats.wait. Each class but the last one ends
 * at four times the end of the one before.
 */
unsigned int memreg_demand_stats_class(u64 ns)
{
	unsigned int class = 0;

	for (ns = div_u64(ns, IB_MEMREG_DEMAND_WAIT_NS);
	     ns && class < IB_MEMREG_DEMAND_WAITS - 1; ns /= 4)
		class++;
	return class;
}

/**
 * memreg_demand_stats_read() - Report the counters, but for those of times
 * @stats: The counters, which may move meanwhile
 * @to: Where to
 */
void memreg_demand_stats_read(struct memreg_demand_stats *stats,
			      struct ib_memreg_demand_stats *to)
{
	const unsigned int shift = PAGE_SHIFT - MEMREG_PAGE_SHIFT;
	const atomic64_t *events = stats->events;

	*to = (struct ib_memreg_demand_stats) {
		.pinned = (u64)atomic_long_read(&stats->pages.now) << shift,
		.pinned_max = (u64)atomic_long_read(&stats->pages.max) << shift,
		.faults = atomic64_read(&events[MEMREG_DEMAND_FAULT]),
		.hits = atomic64_read(&events[MEMREG_DEMAND_HIT]),
		.invalidations =
			atomic64_read(&events[MEMREG_DEMAND_INVALIDATION]),
		.prefetches = atomic64_read(&events[MEMREG_DEMAND_PREFETCHED]),
		.prefetch_hits =
			atomic64_read(&events[MEMREG_DEMAND_PREFETCH_HIT]),
	};
}

/**
 * memreg_demand_stats_read_wait() - Report the counters of times
 * @stats: The counters
 * @to: Where to: an array of IB_MEMREG_DEMAND_WAITS
 */
void memreg_demand_stats_read_wait(struct memreg_demand_stats *stats,
				   u64 *to)
{
	unsigned int i;

	for (i = 0; i < IB_MEMREG_DEMAND_WAITS; i++)
		to[i] = atomic64_read(&stats->wait[i]);
}
