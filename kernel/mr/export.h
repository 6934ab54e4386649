/* SPDX-License-Identifier: GPL-2.0-only */
/* Exports of MRs: what has an id. See kernel/mr/export.c. */
#ifndef _MEMREG_MR_EXPORT_H
#define _MEMREG_MR_EXPORT_H

#include "core.h"

struct memreg_kexport;
struct memreg_kmr;
struct memreg_kstatus;
struct memreg_lease;

/**
 * struct memreg_export_obj - An export of a part of an MR
 * @obj: Head
 * @reachable: 1 if it holds a reference of itself, as importers may reach the
 *	memory; taken away by xchg()
 * @mr: The MR; holds a reference, given up by xchg() when the export has ended
 * @mr_id: Id of the MR
 * @addr: Address in user space, or offset in a descriptor
 * @export: The dma-buf
 * @status: Status table in which it has a slot, or NULL; holds a reference
 * @slot: Index of the slot
 * @lease: The lease that it ends with, or NULL; holds a reference; grant_lock
 * @lease_id: Id of @lease, or 0, for LIST
 * @lease_node: In memreg_lease.exports or @ending of that; grant_lock
 */
struct memreg_export_obj {
	struct memreg_object obj;
	u32 reachable;
	struct memreg_kmr *mr;
	u32 mr_id;
	u64 addr;
	struct memreg_kexport *export;
	struct memreg_kstatus *status;
	u32 slot;
	struct memreg_lease *lease;
	u32 lease_id;
	struct list_head lease_node;
};

int memreg_export_create_ioctl(struct memreg_ucmd *ucmd);
int memreg_export_revoke_ioctl(struct memreg_ucmd *ucmd);
void memreg_export_obj_lease_end(struct memreg_file *file,
				 struct memreg_export_obj *granted,
				 unsigned long until);

#endif /* _MEMREG_MR_EXPORT_H */
