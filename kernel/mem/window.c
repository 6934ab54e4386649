// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows: revocable grants on a part of an MR.
 *
 * A window belongs to a domain, and is bound to a range of an MR, of whichever
 * domain, under a key of the window's own domain. Each bind takes a fresh FRWR
 * and so has a fresh rkey.
 *
 * Whoever wants to change a window's state claims it first, by taking it from
 * IDLE to BUSY to bind it, or from BOUND to BUSY to revoke it; who comes
 * second finds it busy. Nothing is held while a claimed window's key is made
 * or killed but the claim, so calls on different windows run side by side, and
 * there is no order among windows to be kept. A claim is always taken with a
 * reference, so that a window that is being destroyed is claimed by nobody.
 *
 * A window may be granted to an endpoint; then it is on the endpoint's list
 * while it is bound, and is revoked when the connection ends. That claims it as
 * ENDING, for which a call that revokes it waits: a peer chooses when to leave,
 * and must not have its owner's calls fail by that. Who has claimed a window as
 * ENDING waits for no other, so neither does anybody for ever.
 *
 * Type 2B
 *
 * Such a window is bound, and ended, by work requests on the send queue of an
 * endpoint, to which it is granted. While it is bound it is found by its rkey,
 * in memreg_endpoint.bound: what the peer invalidates is believed only if it is
 * there (I5). The key works from when the device does the REG_MR, which is
 * known only when that completes; until then the FRWR says whom to cut if the
 * memory goes (memreg_frwr.cut). A peer that knows the rkey may have
 * invalidated it before we know: then the window is doomed, and ends when the
 * REG_MR has completed. As a peer that guesses may even have been faster than
 * the REG_MR, nothing but destroying the MR makes sure of such a key's death.
 */
#include <linux/hash.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait_bit.h>

#include "conn/closing.h"
#include "conn/endpoint.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/trace.h"
#include "core.h"
#include "device.h"
#include "mem/domain.h"
#include "mem/frwr.h"
#include "mem/key.h"
#include "mem/mr.h"
#include "mem/region.h"
#include "mem/trace.h"
#include "mem/window.h"
#include "quirks.h"
#include "stats.h"

/* Most that the end of a window is waited for which a peer has invalidated. */
#define MEMREG_DOOMED_MS	1000

#define MEMREG_WINDOW_ACCESS						\
	(IB_MEMREG_ACCESS_REMOTE_WRITE | IB_MEMREG_ACCESS_REMOTE_READ |	\
	 IB_MEMREG_ACCESS_REMOTE_ATOMIC |				\
	 IB_MEMREG_ACCESS_FLUSH_GLOBAL |				\
	 IB_MEMREG_ACCESS_FLUSH_PERSISTENT | IB_MEMREG_ACCESS_ZERO_BASED)

enum memreg_window_state {
	MEMREG_WINDOW_IDLE,
	MEMREG_WINDOW_BUSY,
	MEMREG_WINDOW_ENDING,
	MEMREG_WINDOW_BOUND,
};

/**
 * struct memreg_window - A window
 * @obj: Head
 * @domain: Its domain
 * @type: enum ib_memreg_window_type
 * @max_span: Bytes that it covers at most
 * @doomed: The peer has invalidated the key, but it may not work yet;
 *	memreg_bindings.lock
 * @bound_node: In memreg_endpoint.bound, in which it is found by @key; is not
 *	there if it is of type 1; memreg_bindings.lock
 * @state: enum memreg_window_state; the fields below belong to who claimed it
 * @mr: MR that it is bound to; keeps a reference
 * @mr_id: Its id, for LIST
 * @endpoint: Endpoint that it is granted to, or NULL; changed with grant_lock
 * @grant_node: In memreg_grants.windows; grant_lock
 * @key: Its key
 */
struct memreg_window {
	struct memreg_object obj;
	struct memreg_domain *domain;
	u32 type;
	u64 max_span;
	bool doomed;
	struct hlist_node bound_node;
	atomic_t state;
	struct memreg_mr *mr;
	u32 mr_id;
	struct memreg_endpoint *endpoint;
	struct list_head grant_node;
	struct memreg_key key;
};

static struct memreg_window *to_window(struct memreg_object *obj)
{
	return container_of(obj, struct memreg_window, obj);
}

static bool memreg_window_claim(struct memreg_window *window,
				enum memreg_window_state from)
{
	return atomic_cmpxchg(&window->state, from, MEMREG_WINDOW_BUSY) == from;
}

/* The same for the end of its endpoint's connection. */
static bool memreg_window_claim_ending(struct memreg_window *window)
{
	return atomic_cmpxchg(&window->state, MEMREG_WINDOW_BOUND,
			      MEMREG_WINDOW_ENDING) == MEMREG_WINDOW_BOUND;
}

static void memreg_window_unclaim(struct memreg_window *window,
				  enum memreg_window_state to)
{
	atomic_set_release(&window->state, to);
}

/* Trace what becomes of a claimed window. */
static void memreg_window_trace_bind(const struct memreg_window *window)
{
	trace_memreg_window_bind(window->domain, window->obj.id,
				 window->mr_id, &window->key);
}

static void memreg_window_trace_revoke(const struct memreg_window *window)
{
	trace_memreg_window_revoke(window->domain, window->obj.id,
				   window->mr_id, &window->key);
}

/* The same, and count it. */
static void memreg_window_tell_revoke(const struct memreg_window *window)
{
	memreg_count(window->domain->mdev, IB_MEMREG_STAT_WINDOWS_REVOKED, 1);
	memreg_window_trace_revoke(window);
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
	INIT_HLIST_NODE(&window->bound_node);
	window->type = cmd->type;
	window->max_span = cmd->max_span;
	window->domain = domain;
	ret = memreg_object_alloc(ucmd->file, &window->obj,
				  IB_MEMREG_OBJECT_WINDOW);
	if (ret) {
		kfree(window);
		return ERR_PTR(ret);
	}
	return window;
}

static void memreg_window_alloc_undo(struct memreg_ucmd *ucmd,
				     struct memreg_window **windows, u32 count)
{
	while (count--) {
		memreg_object_abort(ucmd->file, &windows[count]->obj);
		kfree(windows[count]);
	}
}

static int memreg_window_alloc_all(struct memreg_ucmd *ucmd,
				   struct memreg_domain *domain,
				   struct memreg_window **windows)
{
	struct ib_memreg_window_alloc *cmd = ucmd->cmd;
	u32 __user *ids = u64_to_user_ptr(cmd->ids);
	u32 i;

	for (i = 0; i < cmd->count; i++) {
		windows[i] = memreg_window_new(ucmd, domain);
		if (IS_ERR(windows[i])) {
			int ret = PTR_ERR(windows[i]);

			memreg_window_alloc_undo(ucmd, windows, i);
			return ret;
		}
		if (put_user(windows[i]->obj.id, &ids[i])) {
			memreg_window_alloc_undo(ucmd, windows, i + 1);
			return -EFAULT;
		}
	}
	/* Nothing can fail any more. */
	for (i = 0; i < cmd->count; i++) {
		refcount_inc(&domain->obj.users);
		memreg_object_finalize(ucmd->file, &windows[i]->obj);
	}
	return 0;
}

/* ioctl(IB_MEMREG_IOC_WINDOW_ALLOC) */
int memreg_window_alloc(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_window_alloc *cmd = ucmd->cmd;
	struct memreg_window **windows;
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
	windows = kmalloc_array(cmd->count, sizeof(*windows), GFP_KERNEL);
	ret = windows ? memreg_window_alloc_all(ucmd, domain, windows) :
			-ENOMEM;
	kfree(windows);
	memreg_domain_put(domain);
	return ret;
}

/*
 * Batches
 */

/* Entries of a call that are looked at together. */
#define MEMREG_CHUNK	16

/**
 * struct memreg_window_batch - Windows that a call has claimed
 * @domain: Domain of all of them
 * @count: Their number
 * @windows: The windows, each with a reference
 * @keys: Room for pointers to their keys
 * @endpoints: Endpoints that they are to be granted to, each NULL or with a
 *	reference; only to bind
 * @ids: What names them; only to revoke
 *
 * While user space is waited for, no window is both claimed and tied to an
 * endpoint, whose end would wait for it.
 */
struct memreg_window_batch {
	struct memreg_domain *domain;
	u32 count;
	struct memreg_window **windows;
	struct memreg_key **keys;
	union {
		struct memreg_endpoint **endpoints;
		u32 *ids;
	};
};

/**
 * struct memreg_chunk - Some of the windows that a call names
 * @count: Their number
 * @next: The first that was not looked at
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
	/* All arrays in one piece. */
	batch->windows = kmalloc_array(count, 3 * sizeof(void *), GFP_KERNEL);
	if (!batch->windows) {
		memreg_domain_put(batch->domain);
		return -ENOMEM;
	}
	batch->keys = (void *)(batch->windows + count);
	batch->endpoints = (void *)(batch->keys + count);
	return 0;
}

static void memreg_windows_fini(struct memreg_window_batch *batch)
{
	kfree(batch->windows);
	memreg_domain_put(batch->domain);
}

/* Copy entries of a call, as many as can be. Returns how many. */
static u32 memreg_entries_copy(void *entries, u64 from, u32 count, size_t size)
{
	size_t left = copy_from_user(entries, u64_to_user_ptr(from),
				     count * size);

	return (count * size - left) / size;
}

/*
 * Find the windows that the next entries of a call name: in either sort of
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

/* Let go of the windows that were not looked at. */
static void memreg_chunk_drop(struct memreg_chunk *chunk)
{
	for (; chunk->next < chunk->count; chunk->next++)
		if (chunk->objs[chunk->next])
			memreg_object_put(chunk->objs[chunk->next]);
}

/*
 * The window that the next entry names, which must be of the batch's domain and
 * of type 1; its reference is the caller's.
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
	if (to_window(obj)->domain != batch->domain) {
		memreg_object_put(obj);
		return ERR_PTR(memreg_fail(ucmd, -EINVAL,
					   IB_MEMREG_REASON_DOMAIN));
	}
	if (to_window(obj)->type != IB_MEMREG_WINDOW_TYPE1) {
		memreg_object_put(obj);
		return ERR_PTR(memreg_fail(ucmd, -EINVAL,
					   IB_MEMREG_REASON_WINDOW_TYPE));
	}
	return to_window(obj);
}

/* Let go of the windows of a batch. */
static void memreg_batch_put(struct memreg_window_batch *batch)
{
	u32 i;

	for (i = 0; i < batch->count; i++)
		memreg_object_put(&batch->windows[i]->obj);
}

/* The same, and of the endpoints that they were to be granted to. */
static void memreg_batch_put_bind(struct memreg_window_batch *batch)
{
	u32 i;

	for (i = 0; i < batch->count; i++)
		if (batch->endpoints[i])
			memreg_object_put(&batch->endpoints[i]->obj);
	memreg_batch_put(batch);
}

/*
 * Ties to endpoints
 */

/* Tie a claimed window to an endpoint, with the grant_lock held. */
static void memreg_window_tie_locked(struct memreg_window *window,
				     struct memreg_endpoint *ep)
{
	window->endpoint = ep;
	/* So that memreg_window_revoke_plain() finds them first. */
	if (window->type == IB_MEMREG_WINDOW_TYPE1)
		list_add(&window->grant_node, &ep->grants.windows);
	else
		list_add_tail(&window->grant_node, &ep->grants.windows);
}

/* The same, unless the endpoint's connection is over. */
static bool memreg_window_tie(struct memreg_file *file,
			      struct memreg_window *window,
			      struct memreg_endpoint *ep)
{
	bool open;

	spin_lock(&file->grant_lock);
	open = !ep->grants.closed;
	if (open)
		memreg_window_tie_locked(window, ep);
	spin_unlock(&file->grant_lock);
	return open;
}

/*
 * Untie a claimed window. The endpoint's destroyer looks at the list under
 * the lock, so the endpoint is there as long as the lock is held.
 */
static void memreg_window_untie(struct memreg_file *file,
				struct memreg_window *window)
{
	/* Only who has claimed it ties or unties it. */
	if (!window->endpoint)
		return;
	spin_lock(&file->grant_lock);
	list_del_init(&window->grant_node);
	if (wq_has_sleeper(&window->endpoint->grants.wait))
		wake_up_all(&window->endpoint->grants.wait);
	window->endpoint = NULL;
	spin_unlock(&file->grant_lock);
}

/* Leave windows that were claimed to be revoked as they were. */
static void memreg_batch_unclaim(struct memreg_file *file,
				 struct memreg_window_batch *batch)
{
	u32 i;

	spin_lock(&file->grant_lock);
	for (i = 0; i < batch->count; i++) {
		struct memreg_endpoint *ep = batch->windows[i]->endpoint;

		memreg_window_unclaim(batch->windows[i], MEMREG_WINDOW_BOUND);
		/* An endpoint that is closing waits to claim it. */
		if (ep)
			wake_up_all(&ep->grants.wait);
	}
	spin_unlock(&file->grant_lock);
}

/*
 * Let claimed windows be BOUND, and granted, unless the connection of one of
 * their endpoints is over.
 */
static bool memreg_batch_publish(struct memreg_file *file,
				 struct memreg_window_batch *batch)
{
	bool open = true;
	u32 i;

	spin_lock(&file->grant_lock);
	for (i = 0; i < batch->count; i++) {
		struct memreg_endpoint *ep = batch->endpoints[i];

		if (ep && ep->grants.closed)
			open = false;
	}
	for (i = 0; open && i < batch->count; i++) {
		if (batch->endpoints[i])
			memreg_window_tie_locked(batch->windows[i],
						 batch->endpoints[i]);
		memreg_window_trace_bind(batch->windows[i]);
		memreg_window_unclaim(batch->windows[i], MEMREG_WINDOW_BOUND);
	}
	if (open)
		memreg_count(batch->domain->mdev, IB_MEMREG_STAT_WINDOWS_BOUND,
			     batch->count);
	spin_unlock(&file->grant_lock);
	return open;
}

/*
 * Binding
 */

static int memreg_bind_check_mr(struct memreg_ucmd *ucmd,
				const struct memreg_mr *mr, u32 access)
{
	u32 remote = access & ~IB_MEMREG_ACCESS_ZERO_BASED;
	u32 flush = access & (IB_MEMREG_ACCESS_FLUSH_GLOBAL |
			      IB_MEMREG_ACCESS_FLUSH_PERSISTENT);

	/* It may become stale at any time: this is not the last word on it. */
	if (READ_ONCE(mr->region->guard.stale))
		return memreg_fail(ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
	if (access & ~MEMREG_WINDOW_ACCESS || !remote)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ACCESS);
	if (!(mr->access & IB_MEMREG_ACCESS_MW_BIND) ||
	    flush & ~mr->access ||
	    (access & (IB_MEMREG_ACCESS_REMOTE_WRITE |
		       IB_MEMREG_ACCESS_REMOTE_ATOMIC) &&
	     !(mr->access & IB_MEMREG_ACCESS_LOCAL_WRITE)))
		return memreg_fail(ucmd, -EACCES, IB_MEMREG_REASON_ACCESS_MR);
	if (remote & ~memreg_access_supported(ucmd->mdev))
		return memreg_fail(ucmd, -EOPNOTSUPP,
				   IB_MEMREG_REASON_ACCESS_DEVICE);
	return 0;
}

/* Check a range, and describe the key for it. */
static int memreg_bind_describe(struct memreg_ucmd *ucmd,
				struct memreg_window *window,
				struct memreg_mr *mr,
				const struct ib_memreg_bind *bind)
{
	struct memreg_key *key = &window->key;
	u64 end;

	if (!bind->length)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_ZERO_LENGTH);
	if (check_add_overflow(bind->offset, bind->length, &end))
		return memreg_fail(ucmd, -EOVERFLOW, IB_MEMREG_REASON_WRAPS);
	if (end > mr->length)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RANGE);
	if (bind->length > window->max_span)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_SPAN);

	key->region = mr->region;
	key->offset = bind->offset;
	key->length = bind->length;
	key->iova = mr->iova + bind->offset;
	key->access = bind->access;
	/* Drivers look at the last mapping's access when they map. */
	key->once = bind->access & IB_MEMREG_ACCESS_FLUSH_PERSISTENT;
	if (bind->access & IB_MEMREG_ACCESS_ZERO_BASED) {
		if (key->iova & (MEMREG_PAGE_SIZE - 1))
			return memreg_fail(ucmd, -EINVAL,
					   IB_MEMREG_REASON_IOVA);
		key->iova = 0;
	}
	key->page_shift = 0;
	return 0;
}

/* Find the endpoint that the next window of a batch is to be granted to. */
static int memreg_bind_endpoint(struct memreg_ucmd *ucmd,
				struct memreg_window_batch *batch, u32 id)
{
	struct memreg_domain *domain;
	struct memreg_endpoint *ep;
	struct memreg_object *obj;
	int ret;

	batch->endpoints[batch->count] = NULL;
	if (!id)
		return 0;
	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_ENDPOINT);
	if (!obj)
		return memreg_fail(ucmd, -ENOENT, IB_MEMREG_REASON_ID);
	ep = container_of(obj, struct memreg_endpoint, obj);
	domain = READ_ONCE(ep->domain);
	if (domain && domain != batch->domain) {
		ret = memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_DOMAIN);
	} else if (READ_ONCE(ep->grants.closed)) {
		/* If it ends later, that is found when all is published. */
		ret = memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
	} else {
		batch->endpoints[batch->count] = ep;
		return 0;
	}
	memreg_object_put(obj);
	return ret;
}

/* Keep an MR that the call keeps as well, if it allows the access asked for. */
static struct memreg_mr *memreg_bind_keep_mr(struct memreg_ucmd *ucmd,
					     struct memreg_mr *mr, u32 access)
{
	int ret = memreg_bind_check_mr(ucmd, mr, access);

	if (ret)
		return ERR_PTR(ret);
	refcount_inc(&mr->obj.users);
	return mr;
}

/* Find an entry's MR, and check that it allows the access asked for. */
static struct memreg_mr *memreg_bind_find_mr(struct memreg_ucmd *ucmd,
					     const struct ib_memreg_bind *bind)
{
	struct memreg_object *obj;
	struct memreg_mr *mr;
	int ret;

	obj = memreg_object_get(ucmd->file, bind->mr_id, IB_MEMREG_OBJECT_MR);
	if (!obj)
		return ERR_PTR(memreg_fail(ucmd, -ENOENT,
					   IB_MEMREG_REASON_ID));
	mr = container_of(obj, struct memreg_mr, obj);
	ret = memreg_bind_check_mr(ucmd, mr, bind->access);
	if (!ret)
		return mr;
	memreg_object_put(obj);
	return ERR_PTR(ret);
}

/* Often it is as with the entry before. */
static struct memreg_mr *memreg_bind_mr(struct memreg_ucmd *ucmd,
					const struct memreg_window_batch *batch,
					const struct ib_memreg_bind *bind)
{
	const struct memreg_window *last;

	if (!batch->count)
		return memreg_bind_find_mr(ucmd, bind);
	last = batch->windows[batch->count - 1];
	if (last->mr_id != bind->mr_id || last->key.access != bind->access)
		return memreg_bind_find_mr(ucmd, bind);
	refcount_inc(&last->mr->obj.users);
	return last->mr;
}

/* Look at one entry: on success the window is claimed, and has its MR. */
static int memreg_bind_prepare(struct memreg_ucmd *ucmd,
			       struct memreg_window_batch *batch,
			       struct memreg_window *window,
			       const struct ib_memreg_bind *bind)
{
	struct memreg_mr *mr;
	int ret;

	if (bind->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	mr = memreg_bind_mr(ucmd, batch, bind);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	if (!memreg_window_claim(window, MEMREG_WINDOW_IDLE)) {
		ret = memreg_fail(ucmd, -EBUSY, IB_MEMREG_REASON_BOUND_WINDOW);
		goto err_put;
	}
	ret = memreg_bind_describe(ucmd, window, mr, bind);
	if (!ret)
		ret = memreg_bind_endpoint(ucmd, batch, bind->endpoint_id);
	if (ret)
		goto err_unclaim;
	window->mr = mr;
	window->mr_id = mr->obj.id;
	atomic_inc(&mr->windows);
	return 0;

err_unclaim:
	memreg_window_unclaim(window, MEMREG_WINDOW_IDLE);
err_put:
	memreg_object_put(&mr->obj);
	return ret;
}

/*
 * Windows of an endpoint by their rkeys
 */

static struct hlist_head *memreg_bindings_list(struct hlist_head *lists,
					       u32 bits, u32 rkey)
{
	/* What is below is another one with each use of the same FRWR. */
	return &lists[hash_32(rkey >> 8, bits)];
}

/**
 * memreg_bindings_init() - Begin with no windows
 * @bound: Windows of type 2B
 */
void memreg_bindings_init(struct memreg_bindings *bound)
{
	spin_lock_init(&bound->lock);
	bound->bits = MEMREG_BINDINGS_BITS;
	bound->count = 0;
	bound->lists = bound->first;
	memset(bound->first, 0, sizeof(bound->first));
}

/**
 * memreg_bindings_fini() - Free the lists
 * @bound: Windows of type 2B, of which there are none any more
 */
void memreg_bindings_fini(struct memreg_bindings *bound)
{
	WARN_ON(bound->count);
	if (bound->lists != bound->first)
		kvfree(bound->lists);
}

/*
 * Have four times as many lists. If there is no memory for them, those that
 * there are get longer. Whoever binds holds the lock of the send queue.
 */
static void memreg_bindings_grow(struct memreg_bindings *bound)
{
	u32 i, bits = bound->bits + 2;
	struct hlist_head *lists, *old = bound->lists;
	struct memreg_window *window;
	struct hlist_node *next;

	lists = kvcalloc(1U << bits, sizeof(*lists),
			 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!lists)
		return;
	spin_lock_irq(&bound->lock);
	for (i = 0; i < 1U << bound->bits; i++)
		hlist_for_each_entry_safe(window, next, &old[i], bound_node) {
			hlist_del(&window->bound_node);
			hlist_add_head(&window->bound_node,
				       memreg_bindings_list(lists, bits,
							    window->key.rkey));
		}
	bound->lists = lists;
	bound->bits = bits;
	spin_unlock_irq(&bound->lock);
	if (old != bound->first)
		kvfree(old);
}

/* The window that is bound with this rkey, or NULL; the lock is held. */
static struct memreg_window *memreg_bound_find(struct memreg_bindings *bound,
					       u32 rkey)
{
	struct memreg_window *window;

	lockdep_assert_held(&bound->lock);

	hlist_for_each_entry(window, memreg_bindings_list(bound->lists,
							  bound->bits, rkey),
			     bound_node)
		if (window->key.rkey == rkey)
			return window;
	return NULL;
}

static void memreg_bound_add(struct memreg_bindings *bound,
			     struct memreg_window *window)
{
	/* Who takes one away needs no more lists. */
	if (data_race(bound->count) >> bound->bits &&
	    bound->bits < MEMREG_BINDINGS_BITS_MAX)
		memreg_bindings_grow(bound);
	spin_lock_irq(&bound->lock);
	hlist_add_head(&window->bound_node,
		       memreg_bindings_list(bound->lists, bound->bits,
					    window->key.rkey));
	bound->count++;
	spin_unlock_irq(&bound->lock);
}

/* Let a window not be found any more; the lock is held. */
static void memreg_bound_remove(struct memreg_bindings *bound,
				struct memreg_window *window)
{
	lockdep_assert_held(&bound->lock);

	if (hlist_unhashed(&window->bound_node))
		return;
	hlist_del_init(&window->bound_node);
	bound->count--;
}

/* The peer's invalidations mean this window no more. */
static void memreg_window_forget(struct memreg_window *window)
{
	struct memreg_bindings *bound = &window->endpoint->bound;

	spin_lock_irq(&bound->lock);
	memreg_bound_remove(bound, window);
	window->doomed = false;
	spin_unlock_irq(&bound->lock);
}

/*
 * A claimed window whose key is dead, and which was forgotten if it is of type
 * 2B, is bound to nothing any more.
 */
static void memreg_window_unbind(struct memreg_file *file,
				 struct memreg_window *window)
{
	bool type2 = window->type == IB_MEMREG_WINDOW_TYPE2B;
	struct memreg_mr *mr = window->mr;

	memreg_window_untie(file, window);
	window->mr = NULL;
	atomic_dec(&mr->windows);
	memreg_object_put(&mr->obj);
	memreg_window_unclaim(window, MEMREG_WINDOW_IDLE);
	/* One of type 2B keeps itself while it is bound. */
	if (type2)
		memreg_object_put(&window->obj);
}

/* Claim the windows of some entries one by one, up to the first bad one. */
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
	if (!ret && !memreg_batch_publish(ucmd->file, batch))
		ret = memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
	if (ret)
		memreg_keys_revoke(batch->domain, batch->keys, batch->count);
	return ret;
}

/* ioctl(IB_MEMREG_IOC_WINDOW_BIND) */
int memreg_window_bind(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_window_bind *cmd = ucmd->cmd;
	struct memreg_window_batch batch;
	u32 i;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	cmd->out_index = cmd->count;
	ret = memreg_windows_init(ucmd, &batch, cmd->domain_id, cmd->count);
	if (ret) {
		memreg_respond(ucmd, sizeof(*cmd));
		return ret;
	}
	ret = memreg_bind_prepare_all(ucmd, &batch);
	if (!ret)
		ret = memreg_bind_all(ucmd, &batch);
	if (ret) {
		for (i = 0; i < batch.count; i++)
			memreg_window_unbind(ucmd->file, batch.windows[i]);
		/* If this fails, too, the entry's index is lost, no more. */
		memreg_respond(ucmd, sizeof(*cmd));
	}
	memreg_batch_put_bind(&batch);
	memreg_windows_fini(&batch);
	return ret;
}

/*
 * Revoking
 */

/* Claim a window if it is bound, but wait if its connection is ending. */
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

/* Claim a window of a call; its reference is the batch's then. */
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
	memreg_object_put(&window->obj);
	return ret == -EBUSY ?
		memreg_fail(ucmd, ret, IB_MEMREG_REASON_IN_USE) : ret;
}

/*
 * Claim the bound windows of a call, up to the first bad entry. As many of its
 * ids as @known could be copied.
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

/*
 * Kill the keys of claimed windows, and let the windows be idle. @keys is room
 * for as many pointers.
 */
static void memreg_revoke_claimed(struct memreg_file *file,
				  struct memreg_domain *domain,
				  struct memreg_window **windows,
				  struct memreg_key **keys, u32 count,
				  bool relaxed)
{
	u32 i, left = 0, gone = count;

	for (i = 0; i < count; i++) {
		struct memreg_window *window = windows[i];

		if (window->type != IB_MEMREG_WINDOW_TYPE2B) {
			keys[left++] = &window->key;
			continue;
		}
		/* A REG_MR on an endpoint's queue may have been flushed. */
		memreg_window_forget(window);
		keys[--gone] = &window->key;
	}
	memreg_keys_destroy(keys + gone, count - gone);
	if (relaxed)
		memreg_keys_revoke_relaxed(domain, keys, left);
	else
		memreg_keys_revoke(domain, keys, left);
	memreg_count(domain->mdev, IB_MEMREG_STAT_WINDOWS_REVOKED, count);
	for (i = 0; i < count; i++) {
		memreg_window_trace_revoke(windows[i]);
		memreg_window_unbind(file, windows[i]);
	}
}

/* ioctl(IB_MEMREG_IOC_WINDOW_REVOKE) */
int memreg_window_revoke(struct memreg_ucmd *ucmd)
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
	/* Once keys are being killed, nothing may fail any more. */
	ret = memreg_respond(ucmd, sizeof(*cmd));
	if (!ret)
		ret = memreg_revoke_prepare_all(ucmd, &batch, known);
	if (!ret) {
		memreg_revoke_claimed(ucmd->file, batch.domain, batch.windows,
				      batch.keys, batch.count,
				      cmd->flags & IB_MEMREG_REVOKE_RELAXED);
	} else {
		memreg_batch_unclaim(ucmd->file, &batch);
		/* If this fails, too, the entry's index is lost, no more. */
		memreg_respond(ucmd, sizeof(*cmd));
	}
	memreg_batch_put(&batch);
	memreg_windows_fini(&batch);
	return ret;
}

/* Windows that are revoked in one go when a connection ends. */
#define MEMREG_GRANTS_BATCH	32

/*
 * Claim some of the windows that are granted to an endpoint which is closing,
 * or of those of type 1 among them. Returns their number, 0 if others are at
 * work on what is left, and -1 if nothing is left.
 */
static int memreg_grants_claim(struct memreg_file *file,
			       struct memreg_endpoint *ep, bool plain,
			       struct memreg_window **windows)
{
	struct memreg_window *window;
	int n = 0;

	spin_lock(&file->grant_lock);
	WRITE_ONCE(ep->grants.closed, true);
	list_for_each_entry(window, &ep->grants.windows, grant_node) {
		if (n == MEMREG_GRANTS_BATCH)
			break;
		if (plain && window->type != IB_MEMREG_WINDOW_TYPE1)
			break;
		/* Before it was accepted, any domain's windows would do. */
		if (n && window->domain != windows[0]->domain)
			break;
		/* One without users is being destroyed, and revoked by that. */
		if (!refcount_inc_not_zero(&window->obj.users))
			continue;
		if (memreg_window_claim_ending(window))
			windows[n++] = window;
		else
			memreg_object_put(&window->obj);
	}
	if (!n && list_empty(&ep->grants.windows))
		n = -1;
	spin_unlock(&file->grant_lock);
	return n;
}

/* Revoke windows that were claimed, and let calls go on that wait for them. */
static void memreg_grants_revoke(struct memreg_file *file,
				 struct memreg_window **windows, int n)
{
	struct memreg_key *keys[MEMREG_GRANTS_BATCH];
	int i;

	for (i = 0; i < n; i++)
		keys[i] = &windows[i]->key;
	memreg_revoke_claimed(file, windows[0]->domain, windows, keys, n,
			      false);
	/* Calls may wait for them. */
	smp_mb();
	for (i = 0; i < n; i++) {
		wake_up_var(&windows[i]->state);
		memreg_object_put(&windows[i]->obj);
	}
}

/**
 * memreg_window_revoke_plain() - Revoke granted windows of type 1
 * @file: The file
 * @ep: Endpoint whose connection is over, and which may have work posted
 *
 * When this returns, the endpoint is granted no more windows, and of type 1 it
 * has none but those that other calls are at work on.
 *
 * Context: may sleep. Never fails, and allocates nothing.
 */
void memreg_window_revoke_plain(struct memreg_file *file,
				struct memreg_endpoint *ep)
{
	struct memreg_window *windows[MEMREG_GRANTS_BATCH];
	int n;

	for (;;) {
		n = memreg_grants_claim(file, ep, true, windows);
		if (n <= 0)
			return;
		memreg_grants_revoke(file, windows, n);
	}
}

/**
 * memreg_window_revoke_granted() - Revoke what was granted to an endpoint
 * @file: The file
 * @ep: Endpoint whose connection is over, and which has no work posted
 *
 * When this returns, the endpoint has no windows, and never will have any.
 *
 * Context: may sleep. Never fails, and allocates nothing.
 */
void memreg_window_revoke_granted(struct memreg_file *file,
				  struct memreg_endpoint *ep)
{
	struct memreg_window *windows[MEMREG_GRANTS_BATCH];
	int n;

	for (;;) {
		wait_event(ep->grants.wait,
			   (n = memreg_grants_claim(file, ep, false, windows)));
		if (n < 0)
			return;
		memreg_grants_revoke(file, windows, n);
	}
}

/*
 * Type 2B
 */

static struct memreg_window *memreg_post_window(struct memreg_ucmd *ucmd,
						struct memreg_endpoint *ep,
						u32 id)
{
	struct memreg_object *obj;
	u32 reason;

	obj = memreg_object_get(ucmd->file, id, IB_MEMREG_OBJECT_WINDOW);
	if (!obj)
		return ERR_PTR(memreg_fail(ucmd, -ENOENT,
					   IB_MEMREG_REASON_ID));
	if (to_window(obj)->type != IB_MEMREG_WINDOW_TYPE2B)
		reason = IB_MEMREG_REASON_WINDOW_TYPE;
	else if (to_window(obj)->domain != ep->domain)
		reason = IB_MEMREG_REASON_DOMAIN;
	else
		return to_window(obj);
	memreg_object_put(obj);
	return ERR_PTR(memreg_fail(ucmd, -EINVAL, reason));
}

/* Make the key of a claimed window that has its MR. */
static int memreg_post_make(struct memreg_ucmd *ucmd,
			    struct memreg_endpoint *ep,
			    struct memreg_window *window)
{
	int ret;

	ret = memreg_key_prepare(ep->domain, &window->key, &ep->closing.cut);
	if (ret == -ESTALE)
		ucmd->reason = IB_MEMREG_REASON_STALE;
	if (ret)
		return memreg_charge_reason(ucmd, ret);
	memreg_bound_add(&ep->bound, window);
	return 0;
}

static int memreg_post_claimed(struct memreg_ucmd *ucmd,
			       struct memreg_endpoint *ep,
			       struct memreg_window *window,
			       struct memreg_mr *mr,
			       const struct ib_memreg_bind *bind)
{
	int ret;

	mr = mr ? memreg_bind_keep_mr(ucmd, mr, bind->access) :
		  memreg_bind_find_mr(ucmd, bind);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	ret = memreg_bind_describe(ucmd, window, mr, bind);
	if (ret)
		goto err_put;
	if (!memreg_window_tie(ucmd->file, window, ep)) {
		ret = memreg_fail(ucmd, -ENOTCONN, IB_MEMREG_REASON_STATE);
		goto err_put;
	}
	ret = memreg_post_make(ucmd, ep, window);
	if (ret)
		goto err_untie;
	window->mr = mr;
	window->mr_id = mr->obj.id;
	atomic_inc(&mr->windows);
	return 0;

err_untie:
	memreg_window_untie(ucmd->file, window);
err_put:
	memreg_object_put(&mr->obj);
	return ret;
}

/*
 * Claim a window to bind it. The user may have been told already that one is
 * through which is only doomed: its BIND is about to complete, as the peer has
 * answered what came after it.
 */
static bool memreg_post_claim(struct memreg_endpoint *ep,
			      struct memreg_window *window)
{
	unsigned int ms;

	for (ms = 0; ms < MEMREG_DOOMED_MS; ms++) {
		if (memreg_window_claim(window, MEMREG_WINDOW_IDLE))
			return true;
		/* It may have ended just now. */
		if (!READ_ONCE(window->doomed))
			break;
		if (fatal_signal_pending(current))
			break;
		memreg_ring_flush(ep->send->ring);
		if (memreg_window_claim(window, MEMREG_WINDOW_IDLE))
			return true;
		usleep_range(1000, 2000);
	}
	return memreg_window_claim(window, MEMREG_WINDOW_IDLE);
}

/**
 * memreg_window_post_bind() - Prepare a BIND
 * @ucmd: Call that submits it
 * @ep: Endpoint whose send queue it is for, the queue's lock held
 * @wr: The work request
 * @mr: An MR that the call keeps, which may be the one that is meant, or NULL
 * @slot: Its slot
 *
 * On success the window is bound, for all that anybody else can tell.
 *
 * Context: may sleep.
 * Return: 0, or an errno that SUBMIT documents.
 */
int memreg_window_post_bind(struct memreg_ucmd *ucmd,
			    struct memreg_endpoint *ep,
			    const struct ib_memreg_wr *wr,
			    struct memreg_mr *mr, struct memreg_slot *slot)
{
	const struct ib_memreg_bind bind = {
		.mr_id = wr->sge.mr_id,
		.offset = wr->sge.offset,
		.length = wr->sge.length,
		.access = wr->access,
	};
	struct memreg_window *window;
	int ret;

	window = memreg_post_window(ucmd, ep, wr->window_id);
	if (IS_ERR(window))
		return PTR_ERR(window);
	if (!memreg_post_claim(ep, window)) {
		ret = memreg_fail(ucmd, -EBUSY, IB_MEMREG_REASON_BOUND_WINDOW);
		goto err_put;
	}
	if (mr && mr->obj.id != bind.mr_id)
		mr = NULL;
	ret = memreg_post_claimed(ucmd, ep, window, mr, &bind);
	if (ret) {
		memreg_window_unclaim(window, MEMREG_WINDOW_IDLE);
		goto err_put;
	}
	slot->window = window;
	slot->window_id = window->obj.id;
	slot->rkey = window->key.rkey;
	memreg_count(ucmd->mdev, IB_MEMREG_STAT_WINDOWS_BOUND, 1);
	memreg_window_trace_bind(window);
	memreg_window_unclaim(window, MEMREG_WINDOW_BOUND);
	return 0;

err_put:
	memreg_object_put(&window->obj);
	return ret;
}

/* End a claimed window; @rests: its key is dead, and no packet in flight. */
static void memreg_window_end(struct memreg_window *window, bool rests)
{
	struct memreg_file *file = window->endpoint->file;

	memreg_window_forget(window);
	if (rests)
		memreg_key_retire(&window->key);
	else
		memreg_key_destroy(&window->key);
	memreg_window_tell_revoke(window);
	memreg_window_unbind(file, window);
}

/* Does LOCAL_INV wait for the packets that were accepted before? */
static bool memreg_window_inv_waits(const struct memreg_window *window)
{
	return !(window->domain->mdev->quirks & MEMREG_QUIRK_WEAK_INV);
}

/*
 * Does the peer's invalidation? It comes in order behind the packets of its own
 * connection. If no other endpoint is in the domain, there are no others:
 * destroying the QPs of those that were has waited for theirs, and those that
 * come find the key dead.
 */
static bool memreg_window_remote_inv_waits(const struct memreg_window *window)
{
	return memreg_window_inv_waits(window) ||
	       atomic_read_acquire(&window->domain->connections) == 1;
}

/*
 * A window that is claimed may be claimed again. If the peer has ended it while
 * its BIND was under way, and that has completed since, we do it.
 */
static void memreg_window_let_go(struct memreg_window *window)
{
	struct memreg_endpoint *ep = window->endpoint;
	struct memreg_file *file = ep->file;
	u32 rkey = window->key.rkey;
	bool mine;

	spin_lock(&file->grant_lock);
	memreg_window_unclaim(window, MEMREG_WINDOW_BOUND);
	/* An endpoint that is closing waits to claim it. */
	wake_up_all(&ep->grants.wait);
	spin_unlock(&file->grant_lock);

	spin_lock_irq(&ep->bound.lock);
	window = memreg_bound_find(&ep->bound, rkey);
	mine = window && window->doomed && !READ_ONCE(window->key.frwr->cut) &&
	       memreg_window_claim(window, MEMREG_WINDOW_BOUND);
	spin_unlock_irq(&ep->bound.lock);
	if (mine)
		memreg_window_end(window, false);
}

/* Claim a window to end it, if it is bound on this endpoint. */
static int memreg_post_claim_bound(struct memreg_ucmd *ucmd,
				   struct memreg_endpoint *ep,
				   struct memreg_window *window)
{
	bool mine, claimed = false;

	spin_lock(&ep->file->grant_lock);
	mine = window->endpoint == ep;
	if (mine)
		claimed = memreg_window_claim(window, MEMREG_WINDOW_BOUND);
	spin_unlock(&ep->file->grant_lock);
	if (!claimed)
		return memreg_fail(ucmd, -EBUSY,
				   IB_MEMREG_REASON_BOUND_WINDOW);
	if (memreg_key_invalidable(&window->key))
		return 0;
	memreg_window_let_go(window);
	return memreg_fail(ucmd, -ESTALE, IB_MEMREG_REASON_STALE);
}

/**
 * memreg_window_post_invalidate() - Prepare an INVALIDATE
 * @ucmd: Call that submits it
 * @ep: Endpoint whose send queue it is for, the queue's lock held
 * @wr: The work request
 * @slot: Its slot
 *
 * Return: 0, or an errno that SUBMIT documents.
 */
int memreg_window_post_invalidate(struct memreg_ucmd *ucmd,
				  struct memreg_endpoint *ep,
				  const struct ib_memreg_wr *wr,
				  struct memreg_slot *slot)
{
	struct memreg_window *window;
	int ret;

	window = memreg_post_window(ucmd, ep, wr->window_id);
	if (IS_ERR(window))
		return PTR_ERR(window);
	ret = memreg_post_claim_bound(ucmd, ep, window);
	if (!ret) {
		slot->window = window;
		slot->window_id = window->obj.id;
		slot->rkey = window->key.rkey;
	}
	/* The one that is bound keeps itself. */
	memreg_object_put(&window->obj);
	return ret;
}

/**
 * memreg_window_post_undo() - Take back a BIND or INVALIDATE
 * @slot: Its slot, which the device did not take
 *
 * Context: may sleep.
 */
void memreg_window_post_undo(struct memreg_slot *slot)
{
	struct memreg_window *window = slot->window;

	if (!window)
		return;
	if (slot->opcode == IB_MEMREG_OP_INVALIDATE) {
		memreg_window_let_go(window);
		return;
	}
	/* Nobody else has business with it while the queue's lock is held. */
	if (WARN_ON(!memreg_window_claim(window, MEMREG_WINDOW_BOUND)))
		return;
	memreg_window_end(window, false);
}

/**
 * memreg_window_key() - What stands behind a window that is to be posted
 * @window: Window of a slot, before the slot is posted
 *
 * Return: its key.
 */
const struct memreg_key *memreg_window_key(const struct memreg_window *window)
{
	return &window->key;
}

/**
 * memreg_window_bound() - A BIND succeeded
 * @slot: Its slot
 *
 * Context: any.
 * Return: whether memreg_window_doomed() is to be called.
 */
bool memreg_window_bound(const struct memreg_slot *slot)
{
	struct memreg_bindings *bound = &slot->queue->ep->bound;
	struct memreg_window *window;
	unsigned long flags;
	bool doomed = false;

	spin_lock_irqsave(&bound->lock, flags);
	/* What is there has its FRWR still, and if it is gone, all is well. */
	window = memreg_bound_find(bound, slot->rkey);
	if (window) {
		doomed = window->doomed;
		if (!doomed)
			WRITE_ONCE(window->key.frwr->cut, NULL);
	}
	spin_unlock_irqrestore(&bound->lock, flags);
	return doomed;
}

/**
 * memreg_window_doomed() - End a window whose peer was ahead of us
 * @slot: Slot of its BIND, which succeeded
 *
 * Context: may sleep.
 */
void memreg_window_doomed(const struct memreg_slot *slot)
{
	struct memreg_bindings *bound = &slot->queue->ep->bound;
	struct memreg_window *window;
	bool mine;

	spin_lock_irq(&bound->lock);
	window = memreg_bound_find(bound, slot->rkey);
	/* An INVALIDATE of ours that is on its way will end it otherwise. */
	mine = window && memreg_window_claim(window, MEMREG_WINDOW_BOUND);
	if (window && !mine)
		WRITE_ONCE(window->key.frwr->cut, NULL);
	spin_unlock_irq(&bound->lock);
	if (mine)
		memreg_window_end(window, false);
}

/**
 * memreg_window_invalidated() - An INVALIDATE completed
 * @slot: Its slot
 * @done: It succeeded; otherwise the connection is over
 *
 * Context: may sleep.
 */
void memreg_window_invalidated(struct memreg_slot *slot, bool done)
{
	struct memreg_window *window = slot->window;

	slot->window = NULL;
	if (done)
		memreg_window_end(window, memreg_window_inv_waits(window));
	else
		memreg_window_let_go(window);
}

/**
 * memreg_window_remote_invalidate() - A peer says that it invalidated a key
 * @ep: Its endpoint, which is cut off if the key was not granted to it
 * @rkey: The key
 *
 * Context: may sleep.
 * Return: id of the window that ended, or will as soon as its BIND, or an
 * INVALIDATE of ours, has completed; 0 if there is none.
 */
u32 memreg_window_remote_invalidate(struct memreg_endpoint *ep, u32 rkey)
{
	struct memreg_device *mdev = ep->file->mdev;
	struct memreg_window *window;
	bool mine = false;
	u32 id = 0;

	spin_lock_irq(&ep->bound.lock);
	window = memreg_bound_find(&ep->bound, rkey);
	/* It is ended once. */
	if (window && !window->doomed) {
		id = window->obj.id;
		mine = !READ_ONCE(window->key.frwr->cut) &&
		       memreg_window_claim(window, MEMREG_WINDOW_BOUND);
		if (mine)
			memreg_bound_remove(&ep->bound, window);
		else
			/* Its BIND or our INVALIDATE is yet to complete. */
			WRITE_ONCE(window->doomed, true);
	}
	spin_unlock_irq(&ep->bound.lock);
	if (mine)
		memreg_window_end(window,
				  memreg_window_remote_inv_waits(window));
	if (id) {
		memreg_count(mdev, IB_MEMREG_STAT_REMOTE_INVALIDATIONS, 1);
		return id;
	}
	memreg_count(mdev, IB_MEMREG_STAT_BOGUS_INVALIDATIONS, 1);
	trace_memreg_bogus_invalidate(ep, rkey);
	memreg_endpoint_close(ep);
	return 0;
}

/*
 * The object
 */

static void memreg_window_destroy(struct memreg_file *file,
				  struct memreg_object *obj)
{
	struct memreg_window *window = to_window(obj);

	/* Nobody claims it any more, as nobody gets a reference. */
	if (atomic_read(&window->state) == MEMREG_WINDOW_BOUND) {
		if (window->type == IB_MEMREG_WINDOW_TYPE2B)
			memreg_window_forget(window);
		memreg_key_destroy(&window->key);
		memreg_window_tell_revoke(window);
		memreg_window_unbind(file, window);
	}
	memreg_domain_put(window->domain);
	kfree(window);
}

static void memreg_window_info(struct memreg_object *obj,
			       struct ib_memreg_object *info)
{
	struct memreg_window *window = to_window(obj);
	struct memreg_key key;

	info->domain_id = window->domain->obj.id;
	info->length = window->max_span;
	/*
	 * The lock that is held keeps the window, but not its binding: what is
	 * told may be of the past, and must not be read through pointers that
	 * go with it.
	 */
	if (atomic_read_acquire(&window->state) != MEMREG_WINDOW_BOUND)
		return;
	info->state = 1;
	/* Who binds anew writes it: nobody acts on what is told here. */
	info->parent_id = data_race(window->mr_id);
	/* The same, and it may be of two bindings. */
	key = data_race(window->key);
	info->addr = key.iova;
	info->length = key.length;
	info->access = key.access;
	info->rkey = key.rkey;
}

/* Only one of type 2B keeps itself while it is bound. */
static u32 memreg_window_busy(const struct memreg_object *obj)
{
	const struct memreg_window *window =
		container_of(obj, struct memreg_window, obj);

	return window->type == IB_MEMREG_WINDOW_TYPE2B &&
	       atomic_read(&window->state) != MEMREG_WINDOW_IDLE ?
	       IB_MEMREG_REASON_BOUND_WINDOW : IB_MEMREG_REASON_IN_USE;
}

const struct memreg_object_ops memreg_window_ops = {
	.busy = memreg_window_busy,
	.destroy = memreg_window_destroy,
	.info = memreg_window_info,
};
