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
 * Distance between the fault points that are tried: 1 with --full, otherwise
 * @stride if the kernel is slow
 */
unsigned int fail_nth_stride(unsigned int stride);

/*
 * Have a point of the module let @skip passages succeed and the next @times
 * fail; -1 is all.
 */
void fault_order(const char *point, unsigned int skip, int times);

/* Are more of these faults to happen? */
bool fault_pending(const char *point);

void fault_cancel(const char *point);

#endif /* SELFTESTS_FAULT_H */
