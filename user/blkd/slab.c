// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Buffers of whole pages, from one piece of registered memory */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "blkd.h"

int slab_open(struct slab *slab, struct memreg *m, uint32_t domain,
	      uint64_t bytes)
{
	slab->pages = (uint32_t)(bytes / BLKD_PAGE);
	slab->used = calloc(slab->pages, 1);
	slab->runs = calloc(slab->pages, sizeof(*slab->runs));
	slab->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (slab->memory == MAP_FAILED)
		slab->memory = NULL;
	if (!slab->used || !slab->runs || !slab->memory) {
		return fail("%" PRIu64 " bytes of buffers: %s", bytes,
			    strerror(ENOMEM));
	}
	/* larger pages are fewer pieces for the device; others will do */
	madvise(slab->memory, bytes, MADV_HUGEPAGE);
	if (memreg_mr_register(m, domain, slab->memory, bytes,
			       IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &slab->mr))
		return fail("%" PRIu64 " bytes of buffers: %s", bytes,
			    memreg_reason());
	return EXIT_GOOD;
}

void slab_close(struct slab *slab, struct memreg *m)
{
	if (slab->mr.id)
		check_end(memreg_mr_deregister(m, slab->mr.id));
	if (slab->memory)
		munmap(slab->memory, (size_t)slab->pages * BLKD_PAGE);
	free(slab->used);
	free(slab->runs);
}

/* Index of the first of @n free pages in a row within [from, to), or @to */
static uint32_t find_pages(const struct slab *slab, uint32_t from, uint32_t to,
			   uint32_t pages)
{
	uint32_t at, found = 0;

	for (at = from; at < to; at++) {
		found = slab->used[at] ? 0 : found + 1;
		if (found == pages)
			return at + 1 - pages;
	}
	return to;
}

bool slab_take(struct slab *slab, uint32_t pages, uint32_t *page)
{
	uint32_t at = find_pages(slab, slab->next, slab->pages, pages);

	if (at == slab->pages) {
		at = find_pages(slab, 0, slab->pages, pages);
		if (at == slab->pages)
			return false;
	}
	memset(slab->used + at, 1, pages);
	/* what was used last is still in the caches of the CPU */
	slab->next = at;
	*page = at;
	return true;
}

void slab_give(struct slab *slab, uint32_t page, uint32_t pages)
{
	memset(slab->used + page, 0, pages);
	slab->next = page;
}

void slab_keep(struct slab *slab, uint32_t *kept, uint32_t page, uint32_t pages)
{
	slab->runs[page] = (struct slab_run) { .pages = pages, .next = *kept };
	*kept = page + 1;
}

void slab_give_kept(struct slab *slab, uint32_t *kept)
{
	uint32_t page;

	while (*kept) {
		page = *kept - 1;
		*kept = slab->runs[page].next;
		slab_give(slab, page, slab->runs[page].pages);
	}
}
