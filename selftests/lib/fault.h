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

/* Can this kernel inject faults? To be called first, in each thread. */
bool fault_injection(void);

void fail_nth_arm(unsigned int nth);

/*
 * Disarm. Returns whether the fault has happened; if not, @left is the number
 * of fault points that were still to be passed.
 */
bool fail_nth_disarm(unsigned int *left);

/*
 * A sweep has a fault happen at one place after the other: at each one, but on
 * a debug kernel, whose checkers are slow, at each @k-th in a check. It begins
 * at place sweep_first(), of which 0 is the first, and goes on by
 * sweep_stride(). MEMREG_OFFSET decides where it begins, so that k checks see
 * all places.
 */
#define SWEEP_K		8
unsigned int sweep_first(unsigned int k);
unsigned int sweep_stride(unsigned int k);

/*
 * Have a point of the module let @skip passages succeed and the next @times
 * fail; -1 is all.
 */
void fault_order(const char *point, unsigned int skip, int times);

/* Are more of these faults to happen? */
bool fault_pending(const char *point);

void fault_cancel(const char *point);

#endif /* SELFTESTS_FAULT_H */
