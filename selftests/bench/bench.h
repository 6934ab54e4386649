/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of the bench share. An operation is something that is
 * measured: mr_window.c, pool.c, rereg.c, demand.c, export.c, cache.c and data.c
 * have those of memreg; verbs.c, verbs_data.c and perftest.c what they are compared
 * to; kapi.c both, in the kernel; and bench.c the clock.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stddef.h>

#define PIECE		65536UL		/* bytes of an MR or of a window */
#define PIECES		256UL		/* as many windows are on one MR */
/* Of an MR that is large: soft-RoCE registers no whole GiB for a user. */
#define LARGE_LENGTH	((1UL << 30) - (2UL << 20))

/**
 * struct op - Something to be measured
 * @name: Name
 * @setup: Make what all rounds need, and run often enough for a steady state;
 *	or NULL
 * @prepare: Called before each run, not measured; or NULL
 * @run: The measured operation
 * @finish: Called after each run, not measured; or NULL
 * @cost: Do it and return what one costs, in place of the three before; or NULL
 * @each: Registrations, windows or the like in one run
 * @alone: It is measured by itself, not round by round with the others
 * @large: It takes long, and has fewer rounds, of its own kind
 * @data: Parameters of the functions
 *
 * The functions return 0, or -1 after an error message.
 */
struct op {
	const char *name;
	int (*setup)(const struct op *op);
	int (*prepare)(const struct op *op);
	int (*run)(const struct op *op);
	int (*finish)(const struct op *op);
	int (*cost)(const struct op *op, double *cost);
	unsigned int each;
	int alone;
	int large;
	const void *data;
};

extern const struct op memreg_ops[];
extern const struct op pool_ops[];
extern const struct op pool_2cpu_ops[];
extern const struct op rereg_ops[];
extern const struct op demand_ops[];
extern const struct op cache_ops[];
extern const struct op cache_2cpu_ops[];
extern const struct op data_ops[];
extern const struct op verbs_ops[];
extern const struct op verbs_data_ops[];
extern const struct op perftest_ops[];
extern const struct op kapi_ops[];
extern const struct op kapi_2cpu_ops[];
extern const struct op export_ops[];
extern const struct op export_many_ops[];

/* Is there the module that @kapi_ops need? */
int kapi_available(void);

/*
 * Can parts of MRs be exported here, and with @registers, can an application
 * register them in a protection domain of its own?
 */
int export_available(int registers);

/*
 * Set by the command line: how many there are of what is large, and how many
 * windows are bound before anything is measured: keys rest until they are used
 * again (kernel/keys/frwr.c). Data is moved so many times fewer.
 */
extern unsigned int live_windows, guards, warm_up, fewer;

/* @count divided by `fewer`, in whole multiples of @batch, one at least */
unsigned int bench_count(unsigned int count, unsigned int batch);

/* The clock: thousands of instructions if they are counted, or microseconds. */
extern int instructions;
double bench_now(void);

/*
 * Have threads do something, each on a CPU of its own. They begin together, and
 * it takes as long as the last of them does: @cost. @run gets @arg and the
 * number of its thread, and returns 0 or -1.
 */
#define BENCH_THREADS_MAX	2
int bench_threads(unsigned int n, int (*run)(void *arg, unsigned int thread),
		  void *arg, double *cost);

/* Print an error message, and return -1. */
int fail(const char *what, int err);
int fail_memreg(void);

const char *bench_device(void);

/*
 * Memory of touched pages: of 4 KiB, no two of which are neighbours, or huge
 * ones. NULL if it can't be had.
 */
void *memory_pages(size_t length);
void *memory_huge(size_t length);

/* Largest memory of MRs, of memreg and of verbs. */
#define MR_LENGTH_MAX	(1UL << 20)
void *mr_memory(void);

#endif /* BENCH_H */
