// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The server's thread moves to the CPU that handles its completions.
 *
 * If the thread sleeps on another CPU, each completion has to interrupt that
 * CPU, and often has to wake it from an idle state. With one command at a time,
 * each of the two CPUs then spends most of the time of a command on waiting for
 * the other, and nothing runs in parallel. So after AWAY_MAX such commands in a
 * row the thread moves to the CPU of the completions. The scheduler may move
 * the thread again.
 *
 * If several commands complete together the thread stays: two CPUs in parallel
 * serve them faster.
 */
#define _GNU_SOURCE
#include <sched.h>

#include "blkd.h"

#define AWAY_MAX	2	/* completions on another CPU: then move */

/*
 * Move this thread to @cpu, unless its affinity mask excludes @cpu. The mask is
 * then set back, so that the scheduler may move the thread again.
 */
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
