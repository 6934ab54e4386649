/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pinning of memory in other registration caches */
#ifndef MEMREG_ADAPT_PINS_H
#define MEMREG_ADAPT_PINS_H

#include <stddef.h>

/* Marks each exported function */
#define EXPORT __attribute__((visibility("default")))

/*
 * Each adapter has one: this thread is about to pin memory, @addr, or that of a
 * dma-buf if NULL.
 */
void before_pin(const void *addr, size_t length);

#endif /* MEMREG_ADAPT_PINS_H */
