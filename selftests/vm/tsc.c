// SPDX-License-Identifier: GPL-2.0
/*
 * Print the frequency of this machine's time stamp counter in kHz. An emulated
 * guest has the same counter, but on a busy machine it may fail to find out
 * how fast it is, and then it keeps time by its timer interrupts alone.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

struct moment {
	uint64_t ticks;
	int64_t ns;
};

/* The least disturbed of several readings. */
static struct moment now(void)
{
	uint64_t best = UINT64_MAX, before, after;
	struct moment result = { 0 };
	struct timespec time;
	int i;

	for (i = 0; i < 20; i++) {
		before = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC_RAW, &time);
		after = __rdtsc();
		if (after - before >= best)
			continue;
		best = after - before;
		result.ticks = before + best / 2;
		result.ns = time.tv_sec * 1000000000LL + time.tv_nsec;
	}
	return result;
}

int main(void)
{
	struct moment start = now(), end;

	usleep(50000);
	end = now();
	printf("%.0f\n", (end.ticks - start.ticks) * 1e6 / (end.ns - start.ns));
}
