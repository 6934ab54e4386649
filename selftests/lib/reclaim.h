/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Changes that the kernel makes to memory by itself: swapping it out, merging
 * equal pages.
 */
#ifndef SELFTESTS_RECLAIM_H
#define SELFTESTS_RECLAIM_H

#include <stdbool.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE	101
#endif

/*
 * Enable swap on a compressed RAM disk of 64 MiB. Returns NULL, or the name of
 * a missing prerequisite
 */
const char *swap_on(void);
int swap_off(void);

/*
 * The same on a loop device. Pages that are read from there stay in the swap
 * cache, which those of a RAM disk leave at once.
 */
const char *slow_swap_on(void);
int slow_swap_off(void);

/*
 * KiB of the mapping that begins at @memory that are in swap, or -1 without
 * such a mapping
 */
long swapped_kib(const void *memory);

/*
 * Stay on this CPU. Pages that were touched on another CPU wait there to be put
 * on an LRU list, and MADV_PAGEOUT skips them. Returns 0 or -1.
 */
int stay_here(void);

/*
 * Switch on merging of equal pages by KSM. Returns false if the kernel has no
 * KSM.
 */
bool ksm_on(void);
/* Wait until KSM has scanned all memory @n times more. */
bool ksm_scans(long n);

#endif /* SELFTESTS_RECLAIM_H */
