// SPDX-License-Identifier: GPL-2.0-only
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/swap.h>
#include <unistd.h>

#include "reclaim.h"
#include "test.h"

const char *swap_on(void)
{
	if (system("modprobe -q zram num_devices=1") ||
	    file_write("/sys/block/zram0/disksize", "67108864"))
		return "this kernel has no zram";
	if (system("mkswap -q /dev/zram0 >/dev/null") ||
	    swapon("/dev/zram0", 0))
		return "no swap on zram";
	return NULL;
}

int swap_off(void)
{
	return swapoff("/dev/zram0") ?:
	       file_write("/sys/block/zram0/reset", "1");
}

#define LOOP		"/dev/loop7"
#define LOOP_FILE	"/dev/shm/memreg-swap"

const char *slow_swap_on(void)
{
	if (system("modprobe -q loop max_loop=8; truncate -s 64M " LOOP_FILE
		   " && losetup " LOOP " " LOOP_FILE " && mkswap -q " LOOP
		   " >/dev/null"))
		return "no loop device that swap can be on";
	return swapon(LOOP, 0) ? "no swap on a loop device" : NULL;
}

int slow_swap_off(void)
{
	return swapoff(LOOP) ?: system("losetup -d " LOOP) ?: unlink(LOOP_FILE);
}

long swapped_kib(const void *memory)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long start;
	bool found = false;
	char line[512];
	long kib = -1;

	while (f && kib < 0 && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-", &start) == 1 && strchr(line, ' ') &&
		    start == (unsigned long)memory)
			found = true;
		if (found)
			sscanf(line, "Swap: %ld kB", &kib);
	}
	if (f)
		fclose(f);
	return kib;
}

int stay_here(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(sched_getcpu(), &cpus);
	return sched_setaffinity(0, sizeof(cpus), &cpus);
}

bool ksm_on(void)
{
	return !file_write("/sys/kernel/mm/ksm/run", "1") &&
	       !file_write("/sys/kernel/mm/ksm/sleep_millisecs", "20") &&
	       !file_write("/sys/kernel/mm/ksm/pages_to_scan", "10000");
}

bool ksm_scans(long n)
{
	const char *path = "/sys/kernel/mm/ksm/full_scans";
	int64_t end = now_ms() + LIMIT_MS;
	long from = file_number(path);

	while (file_number(path) < from + n) {
		if (now_ms() > end)
			return false;
		usleep(1000);
	}
	return true;
}
