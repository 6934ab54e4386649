/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keys: lkeys and rkeys under which the device gives access to a part of a
 * region.
 */
#ifndef _MEMREG_KEYS_KEY_H
#define _MEMREG_KEYS_KEY_H

#include <linux/types.h>
#include <linux/workqueue.h>

struct memreg_domain;
struct memreg_frwr;
struct memreg_region;

/**
 * struct memreg_key - A key to be made, or made, for a part of a region
 * @region: The region
 * @offset: First byte
 * @length: Bytes
 * @first: Entry that memreg_region_find() returns for @offset; set by planning
 * @iova: First I/O address; its offset in a page is that of the memory
 * @access: enum ib_memreg_access
 * @page_shift: Page size of the key's page list; 0: choose the best one
 * @class: Class of FRWRs that the key is made of; set by planning
 * @pages: Entries of the list, pages or pieces; set by planning. A key is not
 *	planned if it gets an FRWR that maps the range already
 * @once: Make an FRWR for this key alone, and destroy it with the key
 * @gaps: The list has pieces that begin and end at any byte, not pages;
 *	@page_shift is unused, and @once is set
 * @frwr: The FRWR behind the key, or NULL
 * @lkey: Local key
 * @rkey: Remote key
 * @invalidated: A peer has invalidated it
 */
struct memreg_key {
	struct memreg_region *region;
	u64 offset;
	u64 length;
	u64 iova;
	u32 first;
	u32 access;
	u8 page_shift;
	u8 class;
	u32 pages;
	bool once;
	bool gaps;
	struct memreg_frwr *frwr;
	u32 lkey;
	u32 rkey;
	bool invalidated;
};

int memreg_keys_make(struct memreg_domain *domain, struct memreg_key **keys,
		     unsigned int count);
void memreg_keys_revoke(struct memreg_domain *domain, struct memreg_key **keys,
			unsigned int count);
void memreg_keys_revoke_relaxed(struct memreg_domain *domain,
				struct memreg_key **keys, unsigned int count);
void memreg_keys_destroy(struct memreg_key **keys, unsigned int count);
void memreg_key_destroy(struct memreg_key *key);
int memreg_key_prepare(struct memreg_domain *domain, struct memreg_key *key,
		       struct work_struct *abort);
bool memreg_key_invalidable(const struct memreg_key *key);
void memreg_key_retire(struct memreg_key *key);
int memreg_key_make_paged(struct memreg_domain *domain, struct memreg_key *key,
			  u64 addr);

#endif /* _MEMREG_KEYS_KEY_H */
