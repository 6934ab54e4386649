/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the module of the bench share. */
#ifndef _MEMREG_TESTS_KBENCH_H
#define _MEMREG_TESTS_KBENCH_H

#include <linux/types.h>

struct ib_pd;

/**
 * struct memreg_bench_cost - What a measurement took
 * @ns: Nanoseconds
 * @cycles: Cycles; under vm --icount, instructions
 */
struct memreg_bench_cost {
	u64 ns;
	u64 cycles;
};

void memreg_bench_begin(struct memreg_bench_cost *cost);
void memreg_bench_end(struct memreg_bench_cost *cost);

int memreg_bench_client(struct ib_pd *pd, bool memreg, unsigned int depth,
			unsigned int ios, unsigned int count,
			struct memreg_bench_cost *cost);
int memreg_bench_race(struct ib_pd *pd, unsigned int rounds,
		      unsigned int *killed);

#endif /* _MEMREG_TESTS_KBENCH_H */
