// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The thread that serves runs where completions are reported.
 *
 * A thread that sleeps on another CPU than that has its CPU interrupted for
 * each command, and often brought out of an idle state. With commands one at a
 * time, each of two CPUs then spends most of a command on waiting for the
 * other, and nothing runs in parallel. So after some of those in a row the
 * thread moves to the CPU that wakes it. The scheduler may move it again, as
 * any thread.
 *
 * Where several commands come at a time, parallel CPUs are worth more.
 */
#define _GNU_SOURCE
#include <sched.h>

#include "blkd.h"

#define AWAY_MAX	2	/* commands that wake it on another CPU */

/* If that CPU is one that the administrator lets it run on. */
static void move_to(struct blkd *b, unsigned int cpu)
{
	cpu_set_t allowed, one;

	if (cpu >= CPU_SETSIZE ||
	    sched_getaffinity(0, sizeof(allowed), &allowed) ||
	    !CPU_ISSET(cpu, &allowed))
		return;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		return;
	sched_setaffinity(0, sizeof(allowed), &allowed);
	b->stats.moves++;
}

void follow_completions(struct blkd *b, unsigned int completions)
{
	unsigned int cpu = memreg_ring_cpu(&b->ring);

	if (completions > 1 || cpu == (unsigned int)sched_getcpu()) {
		b->away = 0;
	} else if (++b->away == AWAY_MAX) {
		b->away = 0;
		move_to(b, cpu);
	}
}
