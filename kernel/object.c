// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ids of objects, and the lifetime of objects.
 *
 * An object is made in three steps: memreg_object_alloc() reserves its id,
 * which no lookup finds yet; the call does everything that can fail, the copy
 * of the answer to the user included; memreg_object_publish() makes it findable
 * and cannot fail. A call does the first two, and hands the object to
 * memreg_object_made() when it is complete. What the call returns then decides:
 * main publishes the object or aborts it. A call that fails before that gives
 * the id back by memreg_object_abort().
 *
 * One reference count, @users, decides over the lifetime: one reference of the
 * object itself, one for each object that depends on it, and one for each call
 * that is running on it. All but the first are taken while the object can be
 * found, or by a holder of another reference. Destroying takes the count from
 * one to zero under the xarray's lock and removes the id in the same step: a
 * lookup either takes its reference before that, and destroying fails, or finds
 * nothing. Putting a reference is the last access of its holder to the object,
 * hence destroying needs no second count to wait for.
 */
#include <linux/sched.h>

#include "core.h"

/*
 * Reserve an id. Ids are cyclic, so that a stale one does not soon name another
 * object.
 */
static int memreg_id_alloc(struct memreg_file *file, u32 *id, gfp_t gfp)
{
	int ret = xa_alloc_cyclic(&file->objects, id, XA_ZERO_ENTRY,
				  xa_limit_31b, &file->next_id, gfp);

	return ret < 0 ? ret : 0;
}

/* Reserve no id as the anchor any more, but @id, or none if @id is 0. */
static void memreg_anchor_set(struct memreg_file *file, u32 id)
{
	u32 old = xchg(&file->anchor, id);

	if (old)
		xa_erase(&file->objects, old);
}

/*
 * Have the anchor in the xarray node that an id is in. A user who makes and
 * destroys one object at a time would otherwise have that node, and those above
 * it, allocated and freed with each object. Without memory, there is no anchor.
 */
static void memreg_anchor_move(struct memreg_file *file, u32 id, gfp_t gfp)
{
	u32 anchor;

	if (READ_ONCE(file->anchor) >> XA_CHUNK_SHIFT == id >> XA_CHUNK_SHIFT)
		return;
	if (!memreg_id_alloc(file, &anchor, gfp | __GFP_NOWARN))
		memreg_anchor_set(file, anchor);
}

/**
 * memreg_object_alloc_gfp() - Reserve an id for an object
 * @file: File that is to own it
 * @obj: The object
 * @ops: Operations of its type
 * @gfp: GFP flags for the entry of the id
 *
 * Return: 0 or -ENOMEM.
 */
int memreg_object_alloc_gfp(struct memreg_file *file, struct memreg_object *obj,
			    const struct memreg_object_ops *ops, gfp_t gfp)
{
	int ret;

	obj->type = ops->type;
	obj->ops = ops;
	refcount_set(&obj->users, 1);
	ret = memreg_id_alloc(file, &obj->id, gfp);
	if (!ret)
		memreg_anchor_move(file, obj->id, gfp);
	return ret;
}

/**
 * memreg_object_abort() - Free the id of an object that was not published
 * @file: File
 * @obj: The object; its memory stays with the caller
 */
void memreg_object_abort(struct memreg_file *file, struct memreg_object *obj)
{
	void *old = xa_erase(&file->objects, obj->id);

	/* A reserved entry reads as NULL. */
	WARN_ON(old);
}

static void memreg_object_store(struct memreg_file *file,
				struct memreg_object *obj)
{
	XA_STATE(xas, &file->objects, obj->id);
	void *old;

	xa_lock(&file->objects);
	old = xas_store(&xas, obj);
	xa_unlock(&file->objects);
	/* The entry is reserved, so storing it needs no memory. */
	WARN_ON(old != XA_ZERO_ENTRY);
}

/**
 * memreg_object_publish() - Make an object findable by its id
 * @file: File
 * @obj: The object, complete; may be gone when this returns
 */
void memreg_object_publish(struct memreg_file *file, struct memreg_object *obj)
{
	if (!obj->ops->published) {
		memreg_object_store(file, obj);
		return;
	}
	/* Another thread could find and destroy it at once. */
	refcount_inc(&obj->users);
	memreg_object_store(file, obj);
	obj->ops->published(file, obj);
}

/* Destroy an object that was not published. */
static void memreg_object_undo(struct memreg_file *file,
			       struct memreg_object *obj)
{
	memreg_object_abort(file, obj);
	if (obj->ops->abort)
		obj->ops->abort(file, obj);
	else
		obj->ops->destroy(file, obj);
}

/**
 * memreg_objects_finish() - Publish or abort what a call has made
 * @ucmd: The call, with its file's lock held
 * @ret: Errno that the call returns, or 0
 */
void memreg_objects_finish(struct memreg_ucmd *ucmd, int ret)
{
	struct memreg_object *obj, *next;

	for (obj = ucmd->made; obj; obj = next) {
		next = obj->made;
		if (ret)
			memreg_object_undo(ucmd->file, obj);
		else
			memreg_object_publish(ucmd->file, obj);
	}
}

/**
 * memreg_object_get() - Find an object and keep it
 * @file: File
 * @id: Its id, from user space
 * @type: Type that it must have
 *
 * Return: the object, or NULL if there is none of that type.
 */
struct memreg_object *memreg_object_get(struct memreg_file *file, u32 id,
					u32 type)
{
	XA_STATE(xas, &file->objects, id);
	struct memreg_object *obj;

	xa_lock(&file->objects);
	obj = xas_load(&xas);
	/* An id that is only reserved so far. */
	if (xa_is_zero(obj))
		obj = NULL;
	if (obj && obj->type == type)
		refcount_inc(&obj->users);
	else
		obj = NULL;
	xa_unlock(&file->objects);
	return obj;
}

/**
 * memreg_object_next() - Find the next object of a type
 * @file: The file
 * @type: Type
 * @id: The object has this id or a higher one; set to the one behind its id
 *
 * Context: may sleep.
 * Return: the object, with a reference; NULL if there is no other.
 */
struct memreg_object *memreg_object_next(struct memreg_file *file, u32 type,
					 unsigned long *id)
{
	struct memreg_object *obj;
	bool found = false;

	do {
		xa_lock(&file->objects);
		obj = xa_find(&file->objects, id, ULONG_MAX, XA_PRESENT);
		found = obj && obj->type == type;
		if (found)
			refcount_inc(&obj->users);
		xa_unlock(&file->objects);
		++*id;
		cond_resched();
	} while (obj && !found);
	return obj;
}

/**
 * memreg_objects_get() - Find many objects and keep them
 * @file: File
 * @type: Type that they must have
 * @ids: The first id, from user space
 * @stride: Bytes from one id to the next
 * @count: Number of ids
 * @objs: Filled in with the objects; NULL for an id without an object of that
 *   type
 *
 * Consecutive ids are cheap: they are found by one walk of the xarray.
 */
void memreg_objects_get(struct memreg_file *file, u32 type, const u32 *ids,
			size_t stride, u32 count, struct memreg_object **objs)
{
	XA_STATE(xas, &file->objects, 0);
	struct memreg_object *obj;
	void *entry = NULL;
	u32 i;

	xa_lock(&file->objects);
	for (i = 0; i < count; i++, ids = (const void *)ids + stride) {
		if (i && *ids == xas.xa_index + 1) {
			entry = xas_next(&xas);
		} else {
			xas_set(&xas, *ids);
			entry = xas_load(&xas);
		}
		/* An id that is only reserved so far. */
		obj = xa_is_zero(entry) ? NULL : entry;
		if (obj && obj->type == type)
			refcount_inc(&obj->users);
		else
			obj = NULL;
		objs[i] = obj;
	}
	xa_unlock(&file->objects);
}

/* Take the last reference, if the object has no other users. */
static bool memreg_object_last(struct memreg_object *obj)
{
	if (!refcount_dec_if_one(&obj->users))
		return false;
	/* Pairs with the release in refcount_dec() of memreg_object_put(). */
	smp_acquire__after_ctrl_dep();
	return true;
}

static u32 memreg_object_busy(const struct memreg_object *obj)
{
	const struct memreg_object_ops *ops = obj->ops;

	return ops->busy ? ops->busy(obj) : IB_MEMREG_REASON_IN_USE;
}

/**
 * memreg_object_replace() - Make an id name another object of the same type
 * @file: File
 * @old: The object that the id names now; the caller holds a reference
 * @obj: The object that it names from here on, complete
 * @reason: Reason of a failure
 *
 * On success the caller gets a second reference of @obj, and has to destroy
 * @old, which has no other users and can no longer be found.
 *
 * Return: 0, or -EBUSY if @old has users besides the caller.
 */
int memreg_object_replace(struct memreg_file *file, struct memreg_object *old,
			  struct memreg_object *obj, u32 *reason)
{
	XA_STATE(xas, &file->objects, old->id);

	obj->id = old->id;
	obj->type = old->type;
	obj->ops = old->ops;
	refcount_set(&obj->users, 2);
	xa_lock(&file->objects);
	/* Drop the caller's reference: the object's own one remains. */
	refcount_dec(&old->users);
	if (!memreg_object_last(old)) {
		refcount_inc(&old->users);
		*reason = memreg_object_busy(old);
		xa_unlock(&file->objects);
		return -EBUSY;
	}
	xas_store(&xas, obj);
	xa_unlock(&file->objects);
	return 0;
}

/*
 * Make a busy object drop the users that are its own doing and idle. Returns
 * true if destroying it is worth another try.
 */
static bool memreg_object_idle(struct memreg_file *file, u32 id, u32 type)
{
	struct memreg_object *obj = memreg_object_get(file, id, type);

	if (!obj)
		return false;
	obj->ops->idle(obj, false);
	memreg_object_put(obj);
	return true;
}

/* The same as memreg_object_destroy(), without a call of the idle operation. */
static int memreg_object_try_destroy(struct memreg_file *file, u32 id, u32 type,
				     const struct memreg_object_ops **ops,
				     u32 *reason)
{
	struct memreg_object *obj;

	*ops = NULL;
	xa_lock(&file->objects);
	obj = xa_load(&file->objects, id);
	if (!obj || (type && obj->type != type)) {
		xa_unlock(&file->objects);
		*reason = IB_MEMREG_REASON_ID;
		return -ENOENT;
	}
	*ops = obj->ops;
	if (!memreg_object_last(obj)) {
		*reason = memreg_object_busy(obj);
		xa_unlock(&file->objects);
		return -EBUSY;
	}
	__xa_erase(&file->objects, id);
	xa_unlock(&file->objects);

	(*ops)->destroy(file, obj);
	return 0;
}

/**
 * memreg_object_destroy() - Remove an object by its id, and destroy it
 * @file: File
 * @id: Its id, from user space
 * @type: Type that it must have, or 0 for any
 * @reason: Reason of a failure
 *
 * Return: 0, -ENOENT, or -EBUSY if it has users.
 */
int memreg_object_destroy(struct memreg_file *file, u32 id, u32 type,
			  u32 *reason)
{
	const struct memreg_object_ops *ops;
	int ret;

	ret = memreg_object_try_destroy(file, id, type, &ops, reason);
	if (ret == -EBUSY && ops->idle &&
	    memreg_object_idle(file, id, ops->type))
		ret = memreg_object_try_destroy(file, id, type, &ops, reason);
	return ret;
}

/* Take the last reference of an object, and its id: 0, -ENOENT or -EBUSY. */
static int memreg_object_claim(struct memreg_file *file, u32 type, u32 id,
			       struct memreg_object **obj)
{
	*obj = xa_load(&file->objects, id);
	if (!*obj || (*obj)->type != type)
		return -ENOENT;
	if (memreg_object_last(*obj))
		return 0;
	/*
	 * An object without users was claimed already: its id is there twice.
	 */
	return refcount_read(&(*obj)->users) ? -EBUSY : -ENOENT;
}

/*
 * Claim all objects, or none. Returns the number of ids that could be claimed.
 */
static int memreg_objects_claim(struct memreg_file *file, u32 type,
				const u32 *ids, struct memreg_object **objs,
				u32 count, u32 *index)
{
	u32 i, left;
	int ret = 0;

	xa_lock(&file->objects);
	for (i = 0; i < count && !ret; i++)
		ret = memreg_object_claim(file, type, ids[i], &objs[i]);
	if (!ret) {
		for (i = 0; i < count; i++)
			__xa_erase(&file->objects, ids[i]);
	} else {
		*index = --i;
		for (left = 0; left < i; left++)
			refcount_set(&objs[left]->users, 1);
	}
	xa_unlock(&file->objects);
	return ret;
}

/**
 * memreg_objects_destroy() - Remove many objects, all or none of them
 * @ucmd: The call
 * @type: Type that they must have
 * @ids: Their ids, from user space
 * @objs: Room for as many pointers
 * @count: Number of ids
 * @index: Index of the invalid id; written if the call fails
 *
 * Return: 0; -ENOENT if an id has no such object or is there twice; -EBUSY if
 * an object has users.
 */
int memreg_objects_destroy(struct memreg_ucmd *ucmd, u32 type, const u32 *ids,
			   struct memreg_object **objs, u32 count, u32 *index)
{
	int ret;
	u32 i;

	ret = memreg_objects_claim(ucmd->file, type, ids, objs, count, index);
	if (ret)
		return memreg_fail(ucmd, ret, ret == -ENOENT ?
				   IB_MEMREG_REASON_ID :
				   IB_MEMREG_REASON_IN_USE);
	for (i = 0; i < count; i++) {
		objs[i]->ops->destroy(ucmd->file, objs[i]);
		cond_resched();
	}
	return 0;
}

/* ioctl(IB_MEMREG_IOC_DESTROY) */
int memreg_destroy_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_destroy *cmd = ucmd->cmd;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	return memreg_object_destroy(ucmd->file, cmd->id, 0, &ucmd->reason);
}

/* Destroy the objects of a type that depend on others of it, or the others. */
static void memreg_object_destroy_some(struct memreg_file *file, u32 type,
				       bool depends)
{
	struct memreg_object *obj;
	unsigned long id;

	xa_for_each(&file->objects, id, obj) {
		cond_resched();
		if (obj->type != type || obj->depends != depends)
			continue;
		if (obj->ops->idle)
			obj->ops->idle(obj, true);
		if (WARN_ON(!memreg_object_last(obj)))
			continue;
		xa_erase(&file->objects, id);
		obj->ops->destroy(file, obj);
	}
}

/* Have the objects of a type begin to end. */
static void memreg_object_idle_type(struct memreg_file *file, u32 type)
{
	struct memreg_object *obj;
	unsigned long id;

	xa_for_each(&file->objects, id, obj) {
		cond_resched();
		if (obj->type == type)
			obj->ops->idle(obj, true);
	}
}

static void memreg_object_destroy_type(struct memreg_file *file, u32 type)
{
	memreg_object_destroy_some(file, type, true);
	memreg_object_destroy_some(file, type, false);
}

/* Bitmap of the types of which a file has objects. */
static unsigned int memreg_object_types(struct memreg_file *file)
{
	struct memreg_object *obj;
	unsigned int types = 0;
	unsigned long id;

	xa_for_each(&file->objects, id, obj) {
		types |= 1U << obj->type;
		cond_resched();
	}
	return types;
}

/**
 * memreg_object_destroy_all() - Destroy all objects of a file
 * @file: File, on which no call is running and none can begin
 *
 * The order: end the connections to peers, then kill keys and end exports, then
 * release pages.
 */
void memreg_object_destroy_all(struct memreg_file *file)
{
	static const u32 order[] = {
		IB_MEMREG_OBJECT_ENDPOINT,
		IB_MEMREG_OBJECT_SRQ,
		IB_MEMREG_OBJECT_RING,
		IB_MEMREG_OBJECT_WINDOW,
		IB_MEMREG_OBJECT_EXPORT,
		IB_MEMREG_OBJECT_LEASE,
		IB_MEMREG_OBJECT_MR,
		IB_MEMREG_OBJECT_DOMAIN,
		IB_MEMREG_OBJECT_MONITOR,
		IB_MEMREG_OBJECT_STATUS,
	};
	unsigned int i, types;

	memreg_object_destroy_type(file, IB_MEMREG_OBJECT_LISTENER);
	/* From here on no connection request makes an endpoint. */
	types = memreg_object_types(file);
	/* Importers let go while connections end. */
	if (types & 1U << IB_MEMREG_OBJECT_EXPORT)
		memreg_object_idle_type(file, IB_MEMREG_OBJECT_EXPORT);
	/* Their workers use windows and exports. */
	if (types & 1U << IB_MEMREG_OBJECT_LEASE)
		memreg_object_idle_type(file, IB_MEMREG_OBJECT_LEASE);
	for (i = 0; i < ARRAY_SIZE(order); i++)
		if (types & 1U << order[i])
			memreg_object_destroy_type(file, order[i]);
	memreg_anchor_set(file, 0);
	WARN_ON(!xa_empty(&file->objects));
}
