/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The depth of monitors: how many watch one page of an address space.
 */
#ifndef _MEMREG_MEM_DEPTH_H
#define _MEMREG_MEM_DEPTH_H

#include <linux/types.h>

struct interval_tree_node;
struct memreg_depth;
struct mm_struct;

struct memreg_depth *memreg_depth_get(struct mm_struct *mm);
void memreg_depth_put(struct memreg_depth *depth);
bool memreg_depth_add(struct memreg_depth *depth,
		      struct interval_tree_node *node, unsigned long start,
		      unsigned long length);
void memreg_depth_remove(struct memreg_depth *depth,
			 struct interval_tree_node *node);

#endif /* _MEMREG_MEM_DEPTH_H */
