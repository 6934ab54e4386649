/* SPDX-License-Identifier: GPL-2.0-only */
/* Ids of objects, and the lifetime of objects. See object.c. */
#ifndef _MEMREG_OBJECT_H
#define _MEMREG_OBJECT_H

#include <linux/gfp.h>
#include <linux/refcount.h>
#include <linux/types.h>

struct ib_memreg_object;
struct memreg_file;
struct memreg_grants;
struct memreg_object;
struct memreg_ucmd;

/**
 * struct memreg_object_ops - Operations of a type of objects
 * @type: enum ib_memreg_object_type
 * @destroy: Release all resources of the object, and free it. Never fails.
 * @idle: Drop references that the object itself has caused and that no call is
 *	using; or NULL. If @closing, the file closes and all of them are
 *	dropped. Context: may sleep; nobody destroys the object meanwhile.
 * @abort: Destroy an object that was never published; or NULL: @destroy does
 * @published: Called once the object can be found; or NULL. Gets a reference,
 *	so that the object is not destroyed meanwhile, and puts it.
 * @busy: Reason to give when the object has users; NULL: IN_USE
 * @info: Fill in the object's LIST entry. Called with the xarray's lock.
 *
 * The types are above this file, so what only one of them needs is an operation
 * as well: @idle is that of MRs, exports and leases, @published that of
 * endpoints, exports and leases.
 */
struct memreg_object_ops {
	u32 type;
	void (*destroy)(struct memreg_file *file, struct memreg_object *obj);
	void (*idle)(struct memreg_object *obj, bool closing);
	void (*abort)(struct memreg_file *file, struct memreg_object *obj);
	void (*published)(struct memreg_file *file, struct memreg_object *obj);
	u32 (*busy)(const struct memreg_object *obj);
	void (*info)(struct memreg_object *obj, struct ib_memreg_object *info);
};

/**
 * struct memreg_object - Head of everything that has an id
 * @id: Id in its file
 * @type: enum ib_memreg_object_type
 * @ops: Operations of its type
 * @users: One of its own, one for each object that depends on it, and one for
 *	each call that is running on it. The thread that takes the count from
 *	one to zero destroys the object.
 * @depends: It holds references of objects of its own type, so that it has to
 *	be destroyed before them
 * @grants: The windows that end with the object; only endpoints have them
 * @made: Next object that the same call has made, see memreg_ucmd.made
 */
struct memreg_object {
	u32 id;
	u32 type;
	const struct memreg_object_ops *ops;
	refcount_t users;
	bool depends;
	struct memreg_grants *grants;
	struct memreg_object *made;
};

int memreg_object_alloc_gfp(struct memreg_file *file, struct memreg_object *obj,
			    const struct memreg_object_ops *ops, gfp_t gfp);
void memreg_object_abort(struct memreg_file *file, struct memreg_object *obj);
void memreg_object_publish(struct memreg_file *file, struct memreg_object *obj);
void memreg_objects_finish(struct memreg_ucmd *ucmd, int ret);
int memreg_object_replace(struct memreg_file *file, struct memreg_object *old,
			  struct memreg_object *obj, u32 *reason);
struct memreg_object *memreg_object_next(struct memreg_file *file, u32 type,
					 unsigned long *id);
struct memreg_object *memreg_object_get(struct memreg_file *file, u32 id,
					u32 type);
void memreg_objects_get(struct memreg_file *file, u32 type, const u32 *ids,
			size_t stride, u32 count, struct memreg_object **objs);
int memreg_destroy_ioctl(struct memreg_ucmd *ucmd);
int memreg_object_destroy(struct memreg_file *file, u32 id, u32 type,
			  u32 *reason);
int memreg_objects_destroy(struct memreg_ucmd *ucmd, u32 type, const u32 *ids,
			   struct memreg_object **objs, u32 count, u32 *index);
void memreg_object_destroy_all(struct memreg_file *file);

/* The same for a call. */
static inline int memreg_object_alloc(struct memreg_file *file,
				      struct memreg_object *obj,
				      const struct memreg_object_ops *ops)
{
	return memreg_object_alloc_gfp(file, obj, ops, GFP_KERNEL_ACCOUNT);
}

/* Drop a reference of an object, which must not be accessed afterwards. */
static inline void memreg_object_put(struct memreg_object *obj)
{
	/* Never the last reference: only destroying drops the object's own. */
	refcount_dec(&obj->users);
}

#endif /* _MEMREG_OBJECT_H */
