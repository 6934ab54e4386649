/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ties between regions whose keys die together. Private declarations of
 * kernel/pages/tie.c; the lock order is in core.h.
 */
#ifndef _MEMREG_PAGES_TIE_H
#define _MEMREG_PAGES_TIE_H

#include <linux/list.h>
#include <linux/types.h>

struct memreg_region;

/**
 * struct memreg_tie - A leaf in a composition
 * @node: In memreg_region.ties of the leaf; frwr_lock
 * @whole: Region of the composition
 * @leaf: Region of the leaf
 */
struct memreg_tie {
	struct list_head node;
	struct memreg_region *whole;
	struct memreg_region *leaf;
};

bool memreg_tie_make(struct memreg_tie *tie, struct memreg_region *whole,
		     struct memreg_region *leaf);
void memreg_tie_remove(struct memreg_tie *tie);
struct memreg_tie *memreg_tie_next(struct memreg_region *leaf,
				   struct memreg_tie *tie);

#endif /* _MEMREG_PAGES_TIE_H */
