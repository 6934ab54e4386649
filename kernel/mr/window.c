// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows: revocable grants on a part of an MR.
 *
 * A window belongs to a domain, and is bound to a range of an MR of any domain,
 * under a key of the window's own domain. Each bind takes a fresh FRWR and so
 * has a fresh rkey.
 *
 * To change a window's state, a call claims the window first, by taking it from
 * IDLE to BUSY to bind it, or from BOUND to BUSY to revoke it; a second call
 * fails with EBUSY. While the key of a claimed window is made or killed, the
 * call holds only the claim and no lock, so calls on different windows run
 * concurrently, and there is no lock order among windows. A claim is always
 * taken with a reference, so a window that is being destroyed cannot be
 * claimed.
 *
 * Grants to endpoints, and the end of a binding, are in grants.c.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/wait_bit.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/key.h"
#include "mr/bindings.h"
#include "mr/composition.h"
#include "mr/demand.h"
#include "mr/grants.h"
#include "mr/lease.h"
#include "mr/mr.h"
#include "mr/trace.h"
#include "mr/window.h"
#include "pages/region.h"
#include "stats.h"

#define MEMREG_WINDOW_ACCESS						\
	(IB_MEMREG_ACCESS_REMOTE_WRITE | IB_MEMREG_ACCESS_REMOTE_READ |	\
	 IB_MEMREG_ACCESS_REMOTE_ATOMIC |				\
	 IB_MEMREG_ACCESS_FLUSH_GLOBAL |				\
	 IB_MEMREG_ACCESS_FLUSH_PERSISTENT | IB_MEMREG_ACCESS_ZERO_BASED)

/**
 * memreg_window_trace_bind() - Trace that a window is bound
 * @window: Window that the caller has claimed
 */
void memreg_window_trace_bind(const struct memreg_window *window)
{
	trace_memreg_window_bind(window->domain, window->obj.id,
				 window->mr_id, &window->key);
}

/*
 * Allocation
 */

static struct memreg_window *memreg_window_new(struct memreg_ucmd *ucmd,
					       struct memreg_domain *domain)
{
	struct ib_memreg_window_alloc *cmd = ucmd->cmd;
	struct memreg_window *window;
	int ret;

	window = kzalloc(sizeof(*window), GFP_KERNEL_ACCOUNT);
	if (!window)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&window->grant_node);
	INIT_LIST_HEAD(&window->lease_node);
	INIT_HLIST_NODE(&window->bound_node);
	window->type = cmd->type;
	window->max_span = cmd->max_span;
	window->domain = domain;
	ret = memreg_object_alloc(ucmd->file, &window->obj,
				  &memreg_window_ops);
	if (ret) {
		kfree(window);
		return ERR_PTR(ret);
	}
	refcount_inc(&domain->obj.users);
	return window;
}

static int memreg_window_alloc_all(struct memreg_ucmd *ucmd,
				   struct memreg_domain *domain)
{
	struct ib_memreg_window_alloc *cmd = ucmd->cmd;
	u32 __user *ids = u64_to_user_ptr(cmd->ids);
	struct memreg_window *window;
	u32 i;

	for (i = 0; i < cmd->count; i++) {
		window = memreg_window_new(ucmd, domain);
		if (IS_ERR(window))
			return PTR_ERR(window);
		memreg_object_made(ucmd, &window->obj);
		if (put_user(window->obj.id, &ids[i]))
			return -EFAULT;
	}
	return 0;
}

/* ioctl(IB_MEMREG_IOC_WINDOW_ALLOC) */
int memreg_window_alloc_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_window_alloc *cmd = ucmd->cmd;
	struct memreg_domain *domain;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->type != IB_MEMREG_WINDOW_TYPE1 &&
	    cmd->type != IB_MEMREG_WINDOW_TYPE2B)
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_WINDOW_TYPE);
	if (!cmd->count || cmd->count > IB_MEMREG_BATCH_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	if (!cmd->max_span || cmd->max_span > (u64)(ucmd->mdev->max_pages - 1)
					      << MEMREG_PAGE_SHIFT)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SPAN);

	domain = memreg_domain_get(ucmd, cmd->domain_id);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	ret = memreg_window_alloc_all(ucmd, domain);
	memreg_domain_put(domain);
	return ret;
}

/*
 * Batches
 */

/* Entries of a call that are copied and looked up together. */
#define MEMREG_CHUNK	16

/**
 * struct memreg_window_batch - Windows that a call has claimed
 * @domain: Domain of all of them
 * @count: Number of windows
 * @windows: The windows, each with a reference
 * @keys: Room for pointers to their keys
 * @grants: The memreg_grants of the endpoints that the windows are granted to,
 *	each NULL or with a reference to its endpoint; only to bind
 * @ids: Ids of the windows; only to revoke
 *
 * While the call waits for user space, no window is both claimed and tied to an
 * endpoint, as the end of the endpoint would wait for the window.
 */
struct memreg_window_batch {
	struct memreg_domain *domain;
	u32 count;
	struct memreg_window **windows;
	struct memreg_key **keys;
	union {
		struct memreg_grants **grants;
		u32 *ids;
	};
};

/**
 * struct memreg_chunk - Some of the windows that a call names
 * @count: Number of windows
 * @next: Index of the first window that is not processed yet
 * @objs: The windows, each with a reference, or NULL
 */
struct memreg_chunk {
	u32 count;
	u32 next;
	struct memreg_object *objs[MEMREG_CHUNK];
};

static int memreg_windows_init(struct memreg_ucmd *ucmd,
			       struct memreg_window_batch *batch,
			       u32 domain_id, u32 count)
{
	memset(batch, 0, sizeof(*batch));
	if (!count || count > IB_MEMREG_BATCH_MAX)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_COUNT);
	batch->domain = memreg_domain_get(ucmd, domain_id);
	if (IS_ERR(batch->domain))
		return PTR_ERR(batch->domain);
	/* One allocation for all arrays. */
	batch->windows = kmalloc_array(count, 3 * sizeof(void *),
				       GFP_KERNEL_ACCOUNT);
	if (!batch->windows) {
		memreg_domain_put(batch->domain);
		return -ENOMEM;
	}
	batch->keys = (void *)(batch->windows + count);
	batch->grants = (void *)(batch->keys + count);
	return 0;
}

static void memreg_windows_fini(struct memreg_window_batch *batch)
{
	kfree(batch->windows);
	memreg_domain_put(batch->domain);
}

/* Copy as many entries of a call as possible. Returns their number. */
static u32 memreg_entries_copy(void *entries, u64 from, u32 count, size_t size)
{
	size_t left = copy_from_user(entries, u64_to_user_ptr(from),
				     count * size);

	return (count * size - left) / size;
}

/*
 * Look up the windows that the next entries of a call name. In both kinds of
 * array an entry begins with an id.
 */
static void memreg_chunk_load(struct memreg_ucmd *ucmd,
			      struct memreg_chunk *chunk, const void *entries,
			      u32 count, size_t size)
{
	static_assert(offsetof(struct ib_memreg_bind, window_id) == 0);
	chunk->count = min_t(u32, count, MEMREG_CHUNK);
	chunk->next = 0;
	memreg_objects_get(ucmd->file, IB_MEMREG_OBJECT_WINDOW, entries, size,
			   chunk->count, chunk->objs);
}

/* Put the windows that were not processed. */
static void memreg_chunk_drop(struct memreg_chunk *chunk)
{
	for (; chunk->next < chunk->count; chunk->next++)
		if (chunk->objs[chunk->next])
			memreg_object_put(chunk->objs[chunk->next]);
}

/*
 * The window that the next entry names, which must be of the batch's domain and
 * of type 1. The caller takes over its reference.
 */
static struct memreg_window *
memreg_chunk_next(struct memreg_ucmd *ucmd, struct memreg_chunk *chunk,
		  const struct memreg_window_batch *batch)
{
	struct memreg_object *obj;

	if (chunk->next == chunk->count)
		return ERR_PTR(-EFAULT);
	obj = chunk->objs[chunk->next++];
	if (!obj)
		return ERR_PTR(memreg_fail(ucmd, -ENOENT,
					   IB_MEMREG_REASON_ID));
	if (memreg_to_window(obj)->domain != batch->domain) {
		memreg_object_put(obj);
		return ERR_PTR(memreg_fail(ucmd, -EINVAL,
					   IB_MEMREG_REASON_DOMAIN));
	}
	if (memreg_to_window(obj)->type != IB_MEMREG_WINDOW_TYPE1) {
		memreg_object_put(obj);
		return ERR_PTR(memreg_fail(ucmd, -EINVAL,
					   IB_MEMREG_REASON_WINDOW_TYPE));
	}
	return memreg_to_window(obj);
}

/* Why a window of a call can't be claimed */
static u32 memreg_window_busy_reason(const struct memreg_window_batch *batch,
				     const struct memreg_window *window)
{
	u32 i;

	for (i = 0; i < batch->count; i++)
		if (batch->windows[i] == window)
			return IB_MEMREG_REASON_TWICE;
	return memreg_window_is_bound(window) ? IB_MEMREG_REASON_BOUND_WINDOW :
						IB_MEMREG_REASON_BUSY_WINDOW;
}

/* Put the windows of a batch. */
static void memreg_windows_put(struct memreg_window_batch *batch)
{
	u32 i;

	for (i = 0; i < batch->count; i++)
		memreg_object_put(&batch->windows[i]->obj);
}

/*
 * Put the windows of a batch, and the endpoints that they were to be granted
 * to.
 */
static void memreg_windows_put_bind(struct memreg_window_batch *batch)
{
	u32 i;

	for (i = 0; i < batch->count; i++)
		if (batch->grants[i])
			memreg_object_put(batch->grants[i]->obj);
	memreg_windows_put(batch);
}

/* Return windows that were claimed for a revoke to BOUND. */
static void memreg_windows_unclaim(struct memreg_file *file,
				   struct memreg_window_batch *batch)
{
	u32 i;

	spin_lock(&file->grant_lock);
	for (i = 0; i < batch->count; i++)
		memreg_window_return(batch->windows[i]);
	spin_unlock(&file->grant_lock);
}

/*
 * Has the connection of one of the windows' endpoints ended, or one of their
 * leases? With the grant_lock held.
 */
static int memreg_windows_check_ends(struct memreg_ucmd *ucmd,
				     const struct memreg_window_batch *batch)
{
	const struct memreg_lease *lease;
	u64 now = 0;
	u32 i;

	for (i = 0; i < batch->count; i++) {
		if (batch->grants[i] && batch->grants[i]->closed)
			return memreg_fail(ucmd, -ENOTCONN,
					   IB_MEMREG_REASON_STATE);
		lease = batch->windows[i]->lease;
		if (!lease)
			continue;
		now = now ?: ktime_get_boottime_ns();
		if (memreg_lease_is_over(lease, now))
			return memreg_fail(ucmd, -ESTALE,
					   IB_MEMREG_REASON_LEASE_ENDED);
	}
	return 0;
}

/* Make a claimed window BOUND, with the grant_lock held. */
static void memreg_window_publish(struct memreg_window *window,
				  struct memreg_grants *grants)
{
	if (grants)
		memreg_window_tie_locked(window, grants);
	if (window->lease)
		memreg_lease_tie(window->lease, &window->lease_node,
				 &window->lease->windows);
	memreg_window_trace_bind(window);
	memreg_window_unclaim(window, MEMREG_WINDOW_BOUND);
}

/* Make claimed windows BOUND, and grant them, all or none. */
static int memreg_windows_publish(struct memreg_ucmd *ucmd,
				  struct memreg_window_batch *batch)
{
	int ret;
	u32 i;

	spin_lock(&ucmd->file->grant_lock);
	ret = memreg_windows_check_ends(ucmd, batch);
	for (i = 0; !ret && i < batch->count; i++)
		memreg_window_publish(batch->windows[i], batch->grants[i]);
	if (!ret)
		memreg_count(batch->domain->mdev, IB_MEMREG_STAT_WINDOWS_BOUND,
			     batch->count);
	spin_unlock(&ucmd->file->grant_lock);
	return ret;
}

/*
 * Binding
 */

static int memreg_bind_check_mr(struct memreg_ucmd *ucmd,
				const struct memreg_kmr *mr, u32 access)
{
	u32 remote = access & ~IB_MEMREG_ACCESS_ZERO_BASED;
	u32 flush = access & (IB_MEMREG_ACCESS_FLUSH_GLOBAL |
			      IB_MEMREG_ACCESS_FLUSH_PERSISTENT);

	/* An early check: the MR may still become stale at any time. */
	if (READ_ONCE(mr->region->guard.stale))
		return memreg_fail(ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
	if (access & ~MEMREG_WINDOW_ACCESS)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_WINDOW_ACCESS);
	if (!remote)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_NO_REMOTE);
	if (!(mr->access & IB_MEMREG_ACCESS_MW_BIND) ||
	    flush & ~mr->access ||
	    (access & (IB_MEMREG_ACCESS_REMOTE_WRITE |
		       IB_MEMREG_ACCESS_REMOTE_ATOMIC) &&
	     !(mr->access & IB_MEMREG_ACCESS_LOCAL_WRITE)))
		return memreg_fail(ucmd, -EACCES, IB_MEMREG_REASON_ACCESS_MR);
	if (remote & ~ucmd->mdev->access)
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_ACCESS_DEVICE);
	return 0;
}

/**
 * memreg_bind_check() - Check whether a window can be bound to a range of an MR
 * @ucmd: Call that asks for it
 * @mr: The MR, or an extent of it
 * @bind: Parameters of the bind
 *
 * Both ways to bind check a range by this function before any page of an MR on
 * demand is pinned for it.
 *
 * Return: 0, or an errno that WINDOW_BIND and SUBMIT document, with the reason
 * set.
 */
int memreg_bind_check(struct memreg_ucmd *ucmd, const struct memreg_kmr *mr,
		      const struct ib_memreg_bind *bind)
{
	int ret;

	ret = memreg_bind_check_mr(ucmd, mr, bind->access) ?:
	      memreg_mr_check_part(ucmd, mr->whole ?: mr, bind->offset,
				   bind->length);
	if (ret)
		return ret;
	/* No window is longer. */
	if (bind->length > (u64)ucmd->mdev->max_pages << MEMREG_PAGE_SHIFT)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SPAN);
	return 0;
}

/**
 * memreg_bind_describe() - Describe the key of a window for a range
 * @ucmd: Call that asks for it
 * @window: Window that the caller has claimed
 * @mr: The MR, or an extent of it that has the range
 * @bind: Parameters of the bind, which memreg_bind_check() has passed
 *
 * Return: 0; -EINVAL or -EOPNOTSUPP with the reason set.
 */
int memreg_bind_describe(struct memreg_ucmd *ucmd,
			 struct memreg_window *window, struct memreg_kmr *mr,
			 const struct ib_memreg_bind *bind)
{
	const struct memreg_kmr *whole = mr->whole ?: mr;
	struct memreg_key *key = &window->key;

	if (bind->length > window->max_span)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SPAN);

	key->region = mr->region;
	key->offset = bind->offset + mr->skip;
	key->length = bind->length;
	key->iova = whole->iova + bind->offset;
	key->access = bind->access;
	/*
	 * Make the FRWR for one use: for FLUSH_PERSISTENT, as drivers check the
	 * access of the previous mapping when they map; and for memory that may
	 * be taken away, as no idle FRWR may keep it.
	 */
	key->once = bind->access & IB_MEMREG_ACCESS_FLUSH_PERSISTENT ||
		    mr->region->keyed;
	key->gaps = false;
	key->page_shift = 0;
	if (mr->region->composition && !memreg_composition_grant(key))
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   memreg_composition_reason(mr->region,
							     key->offset,
							     key->length));
	if (bind->access & IB_MEMREG_ACCESS_ZERO_BASED) {
		if (key->iova & (MEMREG_PAGE_SIZE - 1))
			return memreg_fail(ucmd, -EINVAL,
					   IB_MEMREG_REASON_ZERO_BASED);
		key->iova = 0;
	}
	return 0;
}

/* Find the endpoint that the next window of a batch is to be granted to. */
static int memreg_bind_endpoint(struct memreg_ucmd *ucmd,
				struct memreg_window_batch *batch, u32 id)
{
	struct memreg_domain *domain;
	struct memreg_grants *grants;
	struct memreg_object *obj;
	int ret;

	batch->grants[batch->count] = NULL;
	if (!id)
		return 0;
	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_ENDPOINT);
	if (!obj)
		return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	grants = obj->grants;
	domain = READ_ONCE(grants->domain);
	if (domain && domain != batch->domain) {
		ret = memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_DOMAIN);
	} else if (READ_ONCE(grants->closed)) {
		/*
		 * If the connection ends later, memreg_windows_publish() finds
		 * out.
		 */
		ret = memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
	} else {
		batch->grants[batch->count] = grants;
		return 0;
	}
	memreg_object_put(obj);
	return ret;
}

/**
 * memreg_bind_lease() - Find the lease that a window is to end with
 * @ucmd: Call that asks for it
 * @window: Window that the caller has claimed, and on failure later unties
 * @id: Id of the lease, or 0
 *
 * Return: 0; -ENOENT or -ESTALE with the reason set.
 */
int memreg_bind_lease(struct memreg_ucmd *ucmd, struct memreg_window *window,
		      u32 id)
{
	struct memreg_lease *lease = memreg_lease_get(ucmd, id);

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	window->lease = lease;
	window->lease_id = id;
	return 0;
}

/**
 * memreg_bind_keep_mr() - Take another reference of an MR that the call holds
 * @ucmd: The call
 * @mr: The MR
 * @bind: Parameters of the bind
 *
 * Return: the MR; an ERR_PTR() of memreg_bind_check().
 */
struct memreg_kmr *memreg_bind_keep_mr(struct memreg_ucmd *ucmd,
				       struct memreg_kmr *mr,
				       const struct ib_memreg_bind *bind)
{
	int ret = memreg_bind_check(ucmd, mr, bind);

	if (ret)
		return ERR_PTR(ret);
	refcount_inc(&mr->obj.users);
	return mr;
}

/**
 * memreg_bind_find_mr() - Find an MR, and take a reference
 * @ucmd: Call that names the MR
 * @bind: Parameters of the bind
 *
 * Return: the MR; an ERR_PTR() of memreg_bind_check(), or with the reason set
 * if there is none.
 */
struct memreg_kmr *memreg_bind_find_mr(struct memreg_ucmd *ucmd,
				       const struct ib_memreg_bind *bind)
{
	struct memreg_object *obj;
	struct memreg_kmr *mr;
	int ret;

	obj = memreg_object_get(ucmd->file, bind->mr_id, IB_MEMREG_OBJECT_MR);
	if (!obj)
		return ERR_PTR(memreg_fail(ucmd, -ENOENT,
					   IB_MEMREG_REASON_ID));
	mr = container_of(obj, struct memreg_kmr, obj);
	ret = memreg_bind_check(ucmd, mr, bind);
	if (!ret)
		return mr;
	memreg_object_put(obj);
	return ERR_PTR(ret);
}

/*
 * Find an MR; of one on demand, the extent that has the range, which pins the
 * pages.
 */
static struct memreg_kmr *memreg_bind_pin_mr(struct memreg_ucmd *ucmd,
					     const struct ib_memreg_bind *bind)
{
	bool write = bind->access & (IB_MEMREG_ACCESS_REMOTE_WRITE |
				     IB_MEMREG_ACCESS_REMOTE_ATOMIC);
	struct memreg_kmr *mr = memreg_bind_find_mr(ucmd, bind), *extent;

	if (IS_ERR(mr) || !mr->demand)
		return mr;
	extent = memreg_demand_get(ucmd, mr, bind->offset, bind->length, write);
	memreg_object_put(&mr->obj);
	return extent;
}

/* Get the MR of an entry, which is often that of the previous entry. */
static struct memreg_kmr *
memreg_bind_mr(struct memreg_ucmd *ucmd,
	       const struct memreg_window_batch *batch,
	       const struct ib_memreg_bind *bind)
{
	const struct memreg_window *last;

	if (!batch->count)
		return memreg_bind_pin_mr(ucmd, bind);
	last = batch->windows[batch->count - 1];
	if (last->mr_id != bind->mr_id || last->mr->whole)
		return memreg_bind_pin_mr(ucmd, bind);
	return memreg_bind_keep_mr(ucmd, last->mr, bind);
}

/* Process one entry: on success the window is claimed, and has its MR. */
static int memreg_bind_prepare(struct memreg_ucmd *ucmd,
			       struct memreg_window_batch *batch,
			       struct memreg_window *window,
			       const struct ib_memreg_bind *bind)
{
	struct memreg_kmr *mr;
	int ret;

	mr = memreg_bind_mr(ucmd, batch, bind);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	if (!memreg_window_claim(window, MEMREG_WINDOW_IDLE)) {
		ret = memreg_fail(ucmd, -EBUSY,
				  memreg_window_busy_reason(batch, window));
		goto err_put;
	}
	ret = memreg_bind_describe(ucmd, window, mr, bind);
	if (!ret)
		ret = memreg_bind_lease(ucmd, window, bind->lease_id);
	if (!ret)
		ret = memreg_bind_endpoint(ucmd, batch, bind->endpoint_id);
	if (ret)
		goto err_unclaim;
	window->mr = mr;
	window->mr_id = mr->obj.id;
	memreg_mr_count_windows(mr, 1);
	return 0;

err_unclaim:
	memreg_window_untie(ucmd->file, window);
	memreg_window_unclaim(window, MEMREG_WINDOW_IDLE);
err_put:
	memreg_object_put(&mr->obj);
	return ret;
}

/* Claim the windows of some entries in order, up to the first invalid entry. */
static int memreg_bind_prepare_some(struct memreg_ucmd *ucmd,
				    struct memreg_window_batch *batch)
{
	struct ib_memreg_window_bind *cmd = ucmd->cmd;
	struct ib_memreg_bind binds[MEMREG_CHUNK];
	struct memreg_window *window;
	struct memreg_chunk chunk;
	u32 i, n, count = min_t(u32, cmd->count - batch->count, MEMREG_CHUNK);
	int ret = 0;

	n = memreg_entries_copy(binds, cmd->binds +
				batch->count * sizeof(binds[0]), count,
				sizeof(binds[0]));
	memreg_chunk_load(ucmd, &chunk, binds, n, sizeof(binds[0]));
	for (i = 0; i < count; i++) {
		window = memreg_chunk_next(ucmd, &chunk, batch);
		if (IS_ERR(window)) {
			ret = PTR_ERR(window);
			break;
		}
		ret = memreg_bind_prepare(ucmd, batch, window, &binds[i]);
		if (ret) {
			memreg_object_put(&window->obj);
			break;
		}
		batch->windows[batch->count] = window;
		batch->keys[batch->count++] = &window->key;
	}
	memreg_chunk_drop(&chunk);
	return ret;
}

static int memreg_bind_prepare_all(struct memreg_ucmd *ucmd,
				   struct memreg_window_batch *batch)
{
	struct ib_memreg_window_bind *cmd = ucmd->cmd;
	int ret = 0;

	while (!ret && batch->count < cmd->count)
		ret = memreg_bind_prepare_some(ucmd, batch);
	cmd->out_index = batch->count;
	return ret;
}

static int memreg_bind_answer(struct memreg_ucmd *ucmd,
			      struct memreg_window_batch *batch)
{
	struct ib_memreg_window_bind *cmd = ucmd->cmd;
	struct ib_memreg_bind __user *binds = u64_to_user_ptr(cmd->binds);
	u32 i;

	if (!user_write_access_begin(binds, batch->count * sizeof(*binds)))
		return -EFAULT;
	for (i = 0; i < batch->count; i++) {
		const struct memreg_key *key = &batch->windows[i]->key;

		unsafe_put_user(key->iova, &binds[i].out_iova, err_fault);
		unsafe_put_user(key->rkey, &binds[i].out_rkey, err_fault);
	}
	user_write_access_end();
	return memreg_respond(ucmd, sizeof(*cmd));

err_fault:
	user_write_access_end();
	return -EFAULT;
}

static int memreg_bind_all(struct memreg_ucmd *ucmd,
			   struct memreg_window_batch *batch)
{
	int ret;

	ret = memreg_keys_make(batch->domain, batch->keys, batch->count);
	if (ret) {
		if (ret == -EIO || ret == -ENETDOWN)
			ucmd->reason = IB_MEMREG_REASON_QUEUE;
		else if (ret == -ESTALE)
			ucmd->reason = IB_MEMREG_REASON_STALE;
		return memreg_charge_reason(ucmd, ret);
	}
	ret = memreg_bind_answer(ucmd, batch);
	if (!ret)
		ret = memreg_windows_publish(ucmd, batch);
	if (ret)
		memreg_keys_revoke(batch->domain, batch->keys, batch->count);
	return ret;
}

/* Count the use of MRs on demand. */
static void memreg_bind_count(const struct memreg_window_batch *batch)
{
	u32 i;

	for (i = 0; i < batch->count; i++)
		if (batch->windows[i]->mr->whole)
			memreg_demand_count_use(batch->windows[i]->mr);
}

static int memreg_window_try_bind(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_window_bind *cmd = ucmd->cmd;
	struct memreg_window_batch batch;
	u32 i;
	int ret;

	cmd->out_index = cmd->count;
	ret = memreg_windows_init(ucmd, &batch, cmd->domain_id, cmd->count);
	if (ret)
		return ret;
	ret = memreg_bind_prepare_all(ucmd, &batch);
	if (!ret) {
		memreg_bind_count(&batch);
		ret = memreg_bind_all(ucmd, &batch);
	}
	if (ret)
		for (i = 0; i < batch.count; i++)
			memreg_window_unbind(ucmd->file, batch.windows[i]);
	memreg_windows_put_bind(&batch);
	memreg_windows_fini(&batch);
	return ret;
}

/* How often a bind starts over for each of its ranges that are not present */
#define MEMREG_BIND_FAULTS	4

/* ioctl(IB_MEMREG_IOC_WINDOW_BIND) */
int memreg_window_bind_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_window_bind *cmd = ucmd->cmd;
	u32 faults = 0;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	for (;;) {
		ret = memreg_window_try_bind(ucmd);
		if (ret != -EAGAIN || !ucmd->fault.needed ||
		    faults++ / MEMREG_BIND_FAULTS >= cmd->count)
			break;
		ret = memreg_demand_fault(ucmd);
		if (ret)
			break;
	}
	/* If this copy fails as well, only the entry's index is lost. */
	if (ret)
		memreg_respond(ucmd, sizeof(*cmd));
	return ret;
}

/*
 * Revoking
 */

/*
 * Claim a window if it is bound. Waits while the end of a connection or of a
 * lease has it claimed.
 */
static int memreg_revoke_claim(struct memreg_window *window, bool *claimed)
{
	enum memreg_window_state state;

	do {
		*claimed = memreg_window_claim(window, MEMREG_WINDOW_BOUND);
		state = atomic_read(&window->state);
		if (*claimed || state == MEMREG_WINDOW_IDLE)
			return 0;
		if (state != MEMREG_WINDOW_ENDING)
			return -EBUSY;
	} while (!wait_var_event_killable(&window->state,
					  atomic_read(&window->state) !=
					  MEMREG_WINDOW_ENDING));
	return -EINTR;
}

/* Claim a window of a call, and move its reference to the batch. */
static int memreg_revoke_prepare(struct memreg_ucmd *ucmd,
				 struct memreg_window_batch *batch,
				 struct memreg_window *window)
{
	bool claimed = false;
	int ret;

	ret = memreg_revoke_claim(window, &claimed);
	if (claimed) {
		batch->windows[batch->count] = window;
		batch->keys[batch->count++] = &window->key;
		return 0;
	}
	if (ret == -EBUSY)
		memreg_fail(ucmd, ret,
			    memreg_window_busy_reason(batch, window));
	memreg_object_put(&window->obj);
	return ret;
}

/*
 * Claim the bound windows of a call, up to the first invalid entry. The first
 * @known ids could be copied.
 */
static int memreg_revoke_prepare_all(struct memreg_ucmd *ucmd,
				     struct memreg_window_batch *batch,
				     u32 known)
{
	struct ib_memreg_window_revoke *cmd = ucmd->cmd;
	struct memreg_window *window;
	struct memreg_chunk chunk;
	int ret = 0;
	u32 i;

	for (i = 0; i < cmd->count; i++) {
		if (i % MEMREG_CHUNK == 0)
			memreg_chunk_load(ucmd, &chunk, &batch->ids[i],
					  known - min(known, i),
					  sizeof(batch->ids[0]));
		window = memreg_chunk_next(ucmd, &chunk, batch);
		ret = IS_ERR(window) ? PTR_ERR(window) :
			memreg_revoke_prepare(ucmd, batch, window);
		if (ret)
			break;
	}
	cmd->out_index = i;
	memreg_chunk_drop(&chunk);
	return ret;
}

/* ioctl(IB_MEMREG_IOC_WINDOW_REVOKE) */
int memreg_window_revoke_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_window_revoke *cmd = ucmd->cmd;
	struct memreg_window_batch batch;
	u32 known;
	int ret;

	if (cmd->flags & ~IB_MEMREG_REVOKE_RELAXED)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	cmd->out_index = cmd->count;
	ret = memreg_windows_init(ucmd, &batch, cmd->domain_id, cmd->count);
	if (ret) {
		memreg_respond(ucmd, sizeof(*cmd));
		return ret;
	}
	known = memreg_entries_copy(batch.ids, cmd->ids, cmd->count,
				    sizeof(batch.ids[0]));
	/* Respond first: once keys are being killed, the call must not fail. */
	ret = memreg_respond(ucmd, sizeof(*cmd));
	if (!ret)
		ret = memreg_revoke_prepare_all(ucmd, &batch, known);
	if (!ret) {
		memreg_revoke_claimed(ucmd->file, batch.domain, batch.windows,
				      batch.keys, batch.count,
				      cmd->flags & IB_MEMREG_REVOKE_RELAXED);
	} else {
		memreg_windows_unclaim(ucmd->file, &batch);
		/*
		 * If this copy fails as well, only the entry's index is lost.
		 */
		memreg_respond(ucmd, sizeof(*cmd));
	}
	memreg_windows_put(&batch);
	memreg_windows_fini(&batch);
	return ret;
}

/*
 * The object
 */

static void memreg_window_destroy(struct memreg_file *file,
				  struct memreg_object *obj)
{
	struct memreg_window *window = memreg_to_window(obj);

	/* No call can claim the window any more, as none gets a reference. */
	if (atomic_read(&window->state) == MEMREG_WINDOW_BOUND) {
		if (window->type == IB_MEMREG_WINDOW_TYPE2B)
			memreg_window_forget(window);
		memreg_key_destroy(&window->key);
		memreg_window_count_revoke(window);
		memreg_window_unbind(file, window);
	}
	memreg_domain_put(window->domain);
	kfree(window);
}

static void memreg_window_info(struct memreg_object *obj,
			       struct ib_memreg_object *info)
{
	struct memreg_window *window = memreg_to_window(obj);
	struct memreg_key key;

	info->domain_id = window->domain->obj.id;
	info->u.window.max_span = window->max_span;
	/*
	 * The xarray's lock keeps the window, but not its binding: the entry
	 * may be outdated, and must not be read through pointers that end with
	 * the binding.
	 */
	if (atomic_read_acquire(&window->state) != MEMREG_WINDOW_BOUND)
		return;
	info->u.window.bound = 1;
	/* Racy against a concurrent bind; LIST output is informational. */
	info->u.window.mr_id = data_race(window->mr_id);
	info->u.window.lease_id = data_race(window->lease_id);
	/* Racy as well: the copy may mix two bindings. */
	key = data_race(window->key);
	info->u.window.iova = key.iova;
	info->u.window.length = key.length;
	info->u.window.access = key.access;
	info->u.window.rkey = key.rkey;
}

/* Only a window of type 2B holds a reference of itself while it is bound. */
static u32 memreg_window_busy(const struct memreg_object *obj)
{
	const struct memreg_window *window =
		container_of(obj, struct memreg_window, obj);

	return window->type == IB_MEMREG_WINDOW_TYPE2B &&
	       atomic_read(&window->state) != MEMREG_WINDOW_IDLE ?
	       IB_MEMREG_REASON_BOUND_WINDOW : IB_MEMREG_REASON_IN_USE;
}

const struct memreg_object_ops memreg_window_ops = {
	.type = IB_MEMREG_OBJECT_WINDOW,
	.busy = memreg_window_busy,
	.destroy = memreg_window_destroy,
	.info = memreg_window_info,
};
