/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Leases: deadlines of windows and exports. See kernel/mr/lease.c.
 */
#ifndef _MEMREG_MR_LEASE_H
#define _MEMREG_MR_LEASE_H

#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/types.h>

#include "core.h"

struct memreg_kstatus;

/**
 * enum memreg_lease_state - State of a lease
 * @MEMREG_LEASE_LIVE: Its deadline has not come, as far as the worker knows
 * @MEMREG_LEASE_ENDED: Its worker revokes what is under it
 * @MEMREG_LEASE_CLOSED: It is being destroyed, or its file closes
 */
enum memreg_lease_state {
	MEMREG_LEASE_LIVE,
	MEMREG_LEASE_ENDED,
	MEMREG_LEASE_CLOSED,
};

/**
 * struct memreg_lease - A lease; memreg_file.grant_lock protects the fields
 * that change, but for @event_node
 * @obj: Head; each window and export holds a reference
 * @file: Its file
 * @deadline: Nanoseconds of CLOCK_BOOTTIME, at most KTIME_MAX
 * @state: enum memreg_lease_state
 * @reported: Its event was posted
 * @waits: The worker left a window of type 2B to a work request
 * @abort_at: Time from which no work request is waited for, once it has ended
 * @grants: Windows and exports that are tied to it
 * @windows: Its bound windows, by memreg_window.lease_node
 * @claimed: Those that somebody else had claimed when the worker came to them
 * @exports: Its exports, by memreg_export_obj.lease_node
 * @ending: Those that the worker has begun to end
 * @timer: Queues @work at the deadline
 * @work: Ends it
 * @status: Status table in which it has a slot, or NULL; holds a reference
 * @slot: Index of the slot
 * @event_node: In memreg_file.ended_leases while its event was not read;
 *	event_lock
 */
struct memreg_lease {
	struct memreg_object obj;
	struct memreg_file *file;
	u64 deadline;
	enum memreg_lease_state state;
	bool reported;
	bool waits;
	u64 abort_at;
	u32 grants;
	struct list_head windows;
	struct list_head claimed;
	struct list_head exports;
	struct list_head ending;
	struct hrtimer timer;
	struct memreg_user_work work;
	struct memreg_kstatus *status;
	u32 slot;
	struct list_head event_node;
};

/* What is under a lease: lease_grants.c */
struct memreg_lease *memreg_lease_get(struct memreg_ucmd *ucmd, u32 id);
bool memreg_lease_is_over(const struct memreg_lease *lease, u64 now);
void memreg_lease_tie(struct memreg_lease *lease, struct list_head *node,
		      struct list_head *list);
void memreg_lease_untie(struct memreg_lease *lease, struct list_head *node);
void memreg_lease_return(struct memreg_lease *lease, struct list_head *node);

/* The object: lease.c */
int memreg_lease_create_ioctl(struct memreg_ucmd *ucmd);
int memreg_lease_renew_ioctl(struct memreg_ucmd *ucmd);
void memreg_lease_event_post(struct memreg_lease *lease);
struct memreg_lease *memreg_lease_event_pop(struct memreg_file *file);

#endif /* _MEMREG_MR_LEASE_H */
