/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The depth of monitors: how many watch one page of an address space.
 */
#ifndef _MEMREG_WATCH_DEPTH_H
#define _MEMREG_WATCH_DEPTH_H

#include <linux/types.h>

struct interval_tree_node;
struct memreg_space;

bool memreg_depth_add(struct memreg_space *space,
		      struct interval_tree_node *node, unsigned long start,
		      unsigned long length);
void memreg_depth_remove(struct memreg_space *space,
			 struct interval_tree_node *node);

#endif /* _MEMREG_WATCH_DEPTH_H */
