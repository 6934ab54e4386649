/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Declarations of UCX that the adapter needs, from ucm/api/ucm.h,
 * ucs/memory/rcache.h and ucs/datastruct/pgtable.h, with void pointers in place
 * of types. They are the same from UCX 1.17 to 1.22.
 */
#ifndef MEMREG_UCX_UCX_H
#define MEMREG_UCX_UCX_H

#include <stddef.h>
#include <stdint.h>

#include "next.h"

#define UCX_MAJOR	1
#define UCX_MINOR_MIN	17
#define UCX_MINOR_MAX	22

#define UCS_OK			0
#define UCS_ERR_NO_MEMORY	(-4)

#define UCM_EVENT_VM_UNMAPPED		(1 << 17)
#define UCM_EVENT_FLAG_NO_INSTALL	(1 << 24)

#define UCS_RCACHE_FLAG_NO_PFN_CHECK	(1 << 0)

/* More than the structure of a region, which UCX places in it, has */
#define UCX_REGION_SIZE		1024

/* struct ucs_rcache_ops */
struct ucx_rcache_ops {
	signed char (*mem_reg)(void *context, void *rcache, void *arg,
			       void *region, uint16_t flags);
	void (*mem_dereg)(void *context, void *rcache, void *region);
	void (*merge)(void *context, void *rcache, void *arg, void *region);
	void (*dump_region)(void *context, void *rcache, void *region,
			    char *buf, size_t max);
};

/* struct ucs_rcache_params */
struct ucx_rcache_params {
	size_t region_struct_size;
	int ucm_events;
	int ucm_event_priority;
	const struct ucx_rcache_ops *ops;
	void *context;
	int flags;
	unsigned long max_regions;
	size_t max_size;
	size_t max_unreleased;
};

/*
 * The functions of UCX that the adapter interposes; they return a ucs_status_t.
 */
EXPORT signed char ucs_rcache_create(const void *params, const char *name,
				     void *stats_parent, void **rcache);
EXPORT void ucs_rcache_destroy(void *rcache);
EXPORT signed char ucs_rcache_get(void *rcache, void *address, size_t length,
				  size_t alignment, int prot, void *arg,
				  void **region);
EXPORT void *ucs_pgtable_lookup(const void *pgtable, unsigned long address);

#endif /* MEMREG_UCX_UCX_H */
