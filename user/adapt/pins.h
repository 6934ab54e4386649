/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pinning of memory in other registration caches */
#ifndef MEMREG_ADAPT_PINS_H
#define MEMREG_ADAPT_PINS_H

#include <stddef.h>

/*
 * Called in each adapter: this thread is about to pin memory at @addr, or of a
 * dma-buf if that is NULL, by a call that returns to @caller.
 */
void before_pin(const void *caller, const void *addr, size_t length);

/*
 * The same for all adapters from this one on, by libmemreg-verbs, which pins
 * memory without the functions that adapters stand in front of. Exported.
 */
void memreg_before_pin(const void *caller, const void *addr, size_t length);

#endif /* MEMREG_ADAPT_PINS_H */
