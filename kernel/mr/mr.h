/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory regions in the sense of verbs: pages registered in a domain.
 */
#ifndef _MEMREG_MR_MR_H
#define _MEMREG_MR_MR_H

#include <linux/atomic.h>
#include <linux/overflow.h>

#include "core.h"
#include "keys/key.h"

struct memreg_demand;
struct memreg_domain;
struct memreg_kpool;
struct memreg_region;
struct memreg_kstatus;

/**
 * struct memreg_kmr - A region registered in a domain
 * @obj: Head
 * @domain: The domain
 * @region: The pages
 * @implicit: It is on demand, and of the whole address space
 * @addr: Address in user space
 * @iova: First I/O address
 * @length: Bytes
 * @access: enum ib_memreg_access
 * @pinned: System pages that the MR adds to memreg_file.pinned
 * @windows: Number of windows bound to it, or to an extent of it
 * @exports: Number of its exports that are not known to have ended
 * @pool: The pool that it is, or NULL
 * @demand: State of an MR on demand, or NULL. @region then has no pages, and
 *	work uses extents of the MR
 * @whole: MR on demand of which this MR is an extent, or NULL
 * @skip: Converts an offset in @whole to one in @region by addition; may wrap
 * @status: Status table in which it has a slot, or NULL; holds a reference
 * @slot: Index of the slot
 * @generation: Generation of the slot while it is LIVE
 * @invalidated: Number of @keys that peers have invalidated
 * @nkeys: Number of @keys
 * @keys: Keyed segments, in order
 */
struct memreg_kmr {
	struct memreg_object obj;
	struct memreg_domain *domain;
	struct memreg_region *region;
	bool implicit;
	u64 addr;
	u64 iova;
	u64 length;
	u32 access;
	unsigned long pinned;
	atomic_t windows;
	atomic_t exports;
	struct memreg_kpool *pool;
	struct memreg_demand *demand;
	struct memreg_kmr *whole;
	u64 skip;
	struct memreg_kstatus *status;
	u32 slot;
	u64 generation;
	u32 invalidated;
	u32 nkeys;
	struct memreg_key *keys;
};

/*
 * Add to the number of windows bound to an MR, or to the MR it is an extent of.
 */
static inline void memreg_mr_count_windows(struct memreg_kmr *mr, int n)
{
	atomic_add(n, mr->whole ? &mr->whole->windows : &mr->windows);
}

/**
 * memreg_mr_check_part() - Check that a range is inside an MR
 * @ucmd: Call that names the range
 * @mr: The MR
 * @offset: First byte
 * @length: Bytes
 *
 * Return: 0; -EINVAL or -EOVERFLOW, with the reason set.
 */
static inline int memreg_mr_check_part(struct memreg_ucmd *ucmd,
				       const struct memreg_kmr *mr, u64 offset,
				       u64 length)
{
	u64 end;

	if (!length)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_ZERO_LENGTH);
	if (check_add_overflow(offset, length, &end))
		return memreg_fail(ucmd, -EOVERFLOW, IB_MEMREG_REASON_WRAPS);
	if (end > mr->length)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RANGE);
	return 0;
}

struct memreg_kmr *memreg_mr_begin(struct memreg_ucmd *ucmd,
				   struct memreg_kpool *pool);
void memreg_mr_end_slot(struct memreg_kmr *mr);
int memreg_mr_check_access(struct memreg_ucmd *ucmd, u32 access);
int memreg_mr_check(struct memreg_ucmd *ucmd);
struct memreg_kmr *memreg_mr_alloc(struct memreg_ucmd *ucmd,
				   struct memreg_domain *domain);
int memreg_mr_make(struct memreg_ucmd *ucmd, struct memreg_kmr *mr,
		   struct memreg_kmr *old);
int memreg_mr_make_on(struct memreg_ucmd *ucmd, struct memreg_kmr *mr,
		      struct memreg_region *region);
void memreg_mr_unmake(struct memreg_kmr *mr);
void memreg_mr_free(struct memreg_kmr *mr);
void memreg_mr_segment(const struct memreg_kmr *mr, u32 i,
		       struct ib_memreg_segment *seg);
int memreg_mr_made(struct memreg_ucmd *ucmd, struct memreg_kmr *mr, int ret);
int memreg_mr_register_ioctl(struct memreg_ucmd *ucmd);
int memreg_mr_query_ioctl(struct memreg_ucmd *ucmd);
extern const struct memreg_object_ops memreg_mr_ops;

#endif /* _MEMREG_MR_MR_H */
