/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Declarations of UCX that the adapter needs, from ucm/api/ucm.h,
 * ucs/memory/rcache.h and ucs/datastruct/pgtable.h, with void pointers in place
 * of types.
 */
#ifndef MEMREG_UCX_UCX_H
#define MEMREG_UCX_UCX_H

#include <stddef.h>

#include "pins.h"

#define UCM_EVENT_VM_UNMAPPED	(1 << 17)

/*
 * The functions of UCX that the adapter interposes; they return a ucs_status_t.
 */
EXPORT signed char ucs_rcache_create(const void *params, const char *name,
				     void *stats_parent, void **rcache);
EXPORT signed char ucs_rcache_get(void *rcache, void *address, size_t length,
				  size_t alignment, int prot, void *arg,
				  void **region);
EXPORT void *ucs_pgtable_lookup(const void *pgtable, unsigned long address);

#endif /* MEMREG_UCX_UCX_H */
