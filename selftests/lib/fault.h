/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fault injection: faults of the kernel (memory, copies from and to user
 * space), and the module's own points in kernel/inject.c.
 *
 * There are two ways. fail_nth_arm() makes the nth fault point of any kind fail
 * that the calling thread passes; workers, handlers and softirqs are not
 * affected. fault_order() makes one point of the module fail, in any thread.
 */
#ifndef SELFTESTS_FAULT_H
#define SELFTESTS_FAULT_H

#include <stdbool.h>

/* Can this kernel do that? Call it first, in each thread. */
bool fault_injection(void);

void fail_nth_arm(unsigned int nth);

/*
 * Did the fault happen since it was ordered? No more happen from here on. If
 * it did not, @left is the number of places that are still to be passed.
 */
bool fail_nth_disarm(unsigned int *left);

/* All places with --full; otherwise every @stride-th, if the kernel is slow. */
unsigned int fail_nth_stride(unsigned int stride);

/* Pass @point @skip times, then fail @times times; -1 is always. */
void fault_order(const char *point, unsigned int skip, int times);

/* Are more of these faults to happen? */
bool fault_pending(const char *point);

void fault_cancel(const char *point);

#endif /* SELFTESTS_FAULT_H */
