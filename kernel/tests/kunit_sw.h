/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device in software whose MRs list any bytes.
 */
#ifndef _MEMREG_TESTS_KUNIT_SW_H
#define _MEMREG_TESTS_KUNIT_SW_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#define MEMREG_SW_ENTRIES	64
#define MEMREG_SW_COMPLETIONS	512
#define MEMREG_SW_ORDER		4
#define MEMREG_SW_BYTES		(PAGE_SIZE << MEMREG_SW_ORDER)
#define MEMREG_SW_LEAVES	3
#define MEMREG_SW_LEAF_PAGES	4
#define MEMREG_SW_LEAF		(MEMREG_SW_LEAF_PAGES * PAGE_SIZE)
#define MEMREG_SW_ROUNDS	200
#define MEMREG_SW_ACCESS						\
	(IB_MEMREG_ACCESS_LOCAL_WRITE | IB_MEMREG_ACCESS_REMOTE_WRITE |	\
	 IB_MEMREG_ACCESS_REMOTE_READ)

/**
 * struct memreg_sw_mr - An MR of the device
 * @ibmr: Head
 * @node: In memreg_sw.mrs
 * @max: Entries that it has room for
 * @nr: Entries that it has
 * @addr: Their addresses, each of a page unless the MR has gaps
 * @bytes: Their lengths
 * @valid: Its key works
 * @key: The key
 */
struct memreg_sw_mr {
	struct ib_mr ibmr;
	struct list_head node;
	u32 max;
	u32 nr;
	u64 addr[MEMREG_SW_ENTRIES];
	u32 bytes[MEMREG_SW_ENTRIES];
	bool valid;
	u32 key;
};

/**
 * struct memreg_sw - The device
 * @ibdev: Head
 * @pd: Its protection domain
 * @cq: Completion queue of the registration queue
 * @qp: Queue pair of that
 * @domain: The domain whose they are
 * @lock: Protects the fields below
 * @mrs: MRs
 * @gaps: MRs with gaps that were allocated
 * @room: MRs that can be had before there are no more
 * @dereg_err: Errno that destroying an MR fails with, or 0
 * @held: It gives out no completions
 * @cqes: Work requests that have completed
 * @made: Number of those, ever
 * @taken: Number of completions that were polled
 * @next_key: Key of the next MR
 */
struct memreg_sw {
	struct ib_device ibdev;
	struct ib_pd *pd;
	struct ib_cq cq;
	struct ib_qp qp;
	struct memreg_domain *domain;
	spinlock_t lock;
	struct list_head mrs;
	unsigned int gaps;
	unsigned int room;
	int dereg_err;
	bool held;
	struct ib_cqe *cqes[MEMREG_SW_COMPLETIONS];
	unsigned int made;
	unsigned int taken;
	u32 next_key;
};

extern const struct ib_device_ops memreg_sw_ops;
int memreg_sw_access(struct memreg_sw *sw, u32 key, u64 iova, u8 *data,
		     u64 length, bool write);

#endif /* _MEMREG_TESTS_KUNIT_SW_H */
