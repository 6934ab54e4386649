/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The copies of UCX in a process, of any file names */
#ifndef MEMREG_UCX_COPY_H
#define MEMREG_UCX_COPY_H

#include <stdbool.h>
#include <stddef.h>

#include "changes.h"
#include "ucx.h"

/* Copies in one process; any more are left as they are. */
#define COPIES		8

/**
 * struct copy - A copy of UCX
 * @create: Its function ucs_rcache_create(), which identifies it
 * @destroy: Its other functions of caches ...
 * @get: ...
 * @put: ...
 * @pgtable_lookup: ...
 * @vm_munmap: Reports to it what was unmapped
 * @set_external_event: Has it install no hooks for an event
 * @pgtable: Offset of the page table in a cache
 * @guarded: Its caches are guarded; otherwise it is left as it is
 */
struct copy {
	typeof(ucs_rcache_create) *create;
	typeof(ucs_rcache_destroy) *destroy;
	typeof(ucs_rcache_get) *get;
	void (*put)(void *rcache, void *region);
	typeof(ucs_pgtable_lookup) *pgtable_lookup;
	void (*vm_munmap)(void *addr, size_t length);
	void (*set_external_event)(int events);
	size_t pgtable;
	bool guarded;
};

/*
 * Find the functions of a copy by one of them, and check that its version is a
 * known one. Returns NULL, or why it can't be guarded.
 */
const char *copy_find(struct copy *copy, typeof(ucs_rcache_create) *create);

/*
 * Is a library that makes a cache of a known version of UCX? True if it has no
 * version.
 */
bool copy_knows_caller(const void *caller);

/*
 * Prove that a copy sees changes: register memory in a cache made for that,
 * find it, unmap it, report that as is done later, and find it no more. Nothing
 * of the copy is changed. Returns NULL, or what is wrong.
 */
const char *copy_prove(struct copy *copy, struct changes *changes,
		       void *stats_parent);

/* A copy has looked up in a page table: if this thread proves it, take note. */
void copy_learn(const void *pgtable);

#endif /* MEMREG_UCX_COPY_H */
