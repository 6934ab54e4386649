/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * FRWRs: the fast registration MRs that keys are made of.
 */
#ifndef _MEMREG_KEYS_FRWR_H
#define _MEMREG_KEYS_FRWR_H

#include <linux/list.h>
#include <linux/log2.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "device.h"
#include "keys/domain.h"
#include "keys/key.h"
#include "quirks.h"

struct memreg_region;

/* Access flags that are passed on to the device. */
#define MEMREG_FRWR_ACCESS						\
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |		\
	 IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC |		\
	 IB_ACCESS_FLUSH_GLOBAL | IB_ACCESS_FLUSH_PERSISTENT)

/*
 * An idle FRWR is reused only if so many others of its class became idle after
 * it (I9), and it has been idle for so long: by then packets that were accepted
 * before its key died have been processed.
 */
#define MEMREG_FIFO_DEPTH	64
#define MEMREG_FIFO_IDLE_NS	(2 * NSEC_PER_MSEC)

/*
 * Maximum number of bytes under one key where a page list is one allocation of
 * 16 bytes for each system page: larger allocations may fail.
 */
#define MEMREG_FLAT_KEY_SPAN	(32ULL << 20)

/**
 * enum memreg_frwr_state - The state of an FRWR, which decides who may change
 * it
 * @MEMREG_FRWR_HELD: Only its owner may use it: its key is dead.
 * @MEMREG_FRWR_IDLE: It is on its domain's idle list.
 * @MEMREG_FRWR_MAKING: @batch makes its key. A guard may claim the FRWR.
 * @MEMREG_FRWR_LIVE: Its key works. To kill the key, a call or a guard claims
 *	the FRWR by taking it out of this state.
 * @MEMREG_FRWR_DYING: Its key is being killed, by the device or by a worker.
 *	Once the key is dead, the owner may use the FRWR again.
 * @MEMREG_FRWR_FAILED: A guard could not kill its key, as the REG_MR may not
 *	have been executed yet: the end of the endpoint makes sure that it never
 *	is.
 */
enum memreg_frwr_state {
	MEMREG_FRWR_HELD,
	MEMREG_FRWR_IDLE,
	MEMREG_FRWR_MAKING,
	MEMREG_FRWR_LIVE,
	MEMREG_FRWR_DYING,
	MEMREG_FRWR_FAILED,
};

/**
 * struct memreg_frwr - A fast registration MR of a domain
 * @fast: The fast registration MR; without an ib_mr after it was destroyed for
 *	a guard. Its work request is linked to the next one of @batch
 * @domain: Its domain
 * @state: enum memreg_frwr_state; frwr_lock, but for the end of DYING
 * @awaited: While DYING, the FRWR is counted in memreg_region.killing
 * @class: Class that it idles in, or MEMREG_CLASSES if it is made for one use
 * @abort: Work that ends an endpoint, if the REG_MR is on its send queue and
 *	may not have been executed yet; NULL otherwise
 * @node: In memreg_domain.idle, with frwr_lock; in memreg_domain.dying or
 *	memreg_domain.to_destroy, with sq_lock; or in a local list of FRWRs to
 *	be destroyed
 * @mapped: The list of memreg_domain.mapped for its range
 * @mapped_node: In @mapped, while it is IDLE and @length is not 0; frwr_lock
 * @region: Region that it maps or mapped last, or NULL; frwr_lock
 * @offset: First byte of @region in its page list
 * @length: Bytes in its page list; 0 if the list cannot be reused
 * @iova: The iova that its page list was made for
 * @page_shift: Size of the pages in the list
 * @region_node: In memreg_region.live if it is MAKING or LIVE, otherwise in
 *	memreg_region.frwrs; frwr_lock
 * @idle_since: When it became idle, ktime_get_ns(); frwr_lock
 * @idle_number: memreg_idle.ended at that time; frwr_lock
 * @batch: Batch that has its work request
 * @holds: Region that counts it in @held until its MR is destroyed, or NULL
 * @charge: MR in the rdma cgroup
 */
struct memreg_frwr {
	struct memreg_fastmr fast;
	struct memreg_domain *domain;
	enum memreg_frwr_state state;
	bool awaited;
	u32 class;
	struct work_struct *abort;
	struct list_head node;
	struct list_head *mapped;
	struct list_head mapped_node;
	struct memreg_region *region;
	u64 offset;
	u64 length;
	u64 iova;
	u8 page_shift;
	struct hlist_node region_node;
	u64 idle_since;
	u64 idle_number;
	struct memreg_batch *batch;
	struct memreg_region *holds;
	struct memreg_charge charge;
};

int memreg_frwr_take(struct memreg_domain *domain, struct memreg_key **keys,
		     unsigned int count);
int memreg_frwr_take_paged(struct memreg_domain *domain,
			   struct memreg_key *key, u64 addr);
int memreg_frwr_map(struct memreg_frwr *frwr,
		    const struct memreg_key *key);
void memreg_frwr_set_idle(struct memreg_frwr *frwr, u64 now);
void memreg_frwr_reap_later(struct memreg_domain *domain);
void memreg_frwr_destroy(struct memreg_frwr *frwr);
void memreg_frwr_drain_region(struct memreg_region *region);
void memreg_frwr_drain_domain(struct memreg_domain *domain);
void memreg_frwr_forget_domain(struct memreg_domain *domain);
void memreg_frwr_init_domain(struct memreg_domain *domain);
int memreg_frwr_shrinker(struct memreg_kdevice *mdev);

/**
 * memreg_key_span() - Bytes under one key
 * @mdev: The device
 * @shift: Logarithm of the page size; lowered to the largest one of use
 *
 * Return: maximum number of bytes, if the first is at the beginning of a page.
 */
static inline u64 memreg_key_span(const struct memreg_kdevice *mdev, u8 *shift)
{
	u64 span = (u64)mdev->max_pages << *shift;

	if (mdev->quirks & MEMREG_QUIRK_FLAT_PAGE_LIST &&
	    span > MEMREG_FLAT_KEY_SPAN) {
		*shift = min_t(u8, *shift, ilog2(MEMREG_FLAT_KEY_SPAN));
		span = MEMREG_FLAT_KEY_SPAN;
	}
	if (mdev->quirks & MEMREG_QUIRK_SHORT_KEYS)
		span = min_t(u64, span, SZ_2G);
	return span;
}

/**
 * memreg_batch_init() - Begin a batch of work requests
 * @batch: The batch
 * @domain: Domain of all its FRWRs
 */
static inline void memreg_batch_init(struct memreg_batch *batch,
				     struct memreg_domain *domain)
{
	batch->domain = domain;
	batch->first = NULL;
	batch->last = NULL;
	batch->count = 0;
	batch->spoiled = false;
	batch->begun = false;
	batch->ended = false;
	batch->error = 0;
	batch->waiter = NULL;
}

/**
 * memreg_batch_add() - Append an FRWR's work request to a batch
 * @batch: The batch
 * @frwr: FRWR of no other batch, with its work request prepared
 *
 * Only the last one is signalled.
 */
static inline void memreg_batch_add(struct memreg_batch *batch,
				    struct memreg_frwr *frwr)
{
	frwr->batch = batch;
	frwr->fast.status = 0;
	frwr->fast.wr.wr.send_flags = 0;
	frwr->fast.wr.wr.next = NULL;
	if (batch->last)
		batch->last->fast.wr.wr.next = &frwr->fast.wr.wr;
	else
		batch->first = frwr;
	batch->last = frwr;
	batch->count++;
}

/**
 * memreg_batch_next() - Iterate over a batch
 * @frwr: FRWR of a batch, beginning with @first
 *
 * Return: the next one, or NULL.
 */
static inline struct memreg_frwr *
memreg_batch_next(const struct memreg_frwr *frwr)
{
	struct ib_send_wr *next = frwr->fast.wr.wr.next;

	return next ? container_of(next, struct memreg_frwr,
				   fast.wr.wr) : NULL;
}

/* Does the page list of an FRWR hold a key's range? */
static inline bool memreg_frwr_maps(const struct memreg_frwr *frwr,
				    const struct memreg_key *key)
{
	return frwr->region == key->region && frwr->offset == key->offset &&
	       frwr->length == key->length && frwr->iova == key->iova;
}

/*
 * State of an FRWR that may be DYING. If it has left that state, all writes
 * before that are visible.
 */
static inline enum memreg_frwr_state
memreg_frwr_state(const struct memreg_frwr *frwr)
{
	/* Pairs with memreg_kill_done(). */
	return smp_load_acquire(&frwr->state);
}

/* Move an FRWR to another list of its region. */
static inline void memreg_frwr_move(struct memreg_frwr *frwr,
				    struct hlist_head *list)
{
	hlist_del_init(&frwr->region_node);
	hlist_add_head(&frwr->region_node, list);
}

/* Keys that are handled in one hold of frwr_lock. */
#define MEMREG_LOCK_KEYS	8

/**
 * memreg_frwr_lock_break() - Drop frwr_lock now and then
 * @mdev: Device whose lock it is
 * @i: Number of keys that the caller has handled
 *
 * Context: process, with frwr_lock held, which may be dropped meanwhile.
 */
static inline void memreg_frwr_lock_break(struct memreg_kdevice *mdev,
					  unsigned int i)
{
	if (!i || i % MEMREG_LOCK_KEYS)
		return;
	spin_unlock(&mdev->frwr_lock);
	cond_resched();
	spin_lock(&mdev->frwr_lock);
}

#endif /* _MEMREG_KEYS_FRWR_H */
