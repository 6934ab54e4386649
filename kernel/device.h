/* SPDX-License-Identifier: GPL-2.0-only */
/* RDMA devices, and the charges of their objects to rdma cgroups. */
#ifndef _MEMREG_DEVICE_H
#define _MEMREG_DEVICE_H

#include <linux/list.h>
#include <linux/refcount.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#include "core.h"

struct memreg_stats;
struct shrinker;

/* Most entries of a page list that an FRWR is allocated with: 16 MiB. */
#define MEMREG_MAX_PAGES	4096

/*
 * Most bytes of one SGE in a work request: devices have 31 bits, and mlx5 uses
 * the bit above them as a flag.
 */
#define MEMREG_PIECE_MAX	SZ_1G

#define MEMREG_ACCESS_REMOTE						\
	(IB_MEMREG_ACCESS_REMOTE_WRITE | IB_MEMREG_ACCESS_REMOTE_READ |	\
	 IB_MEMREG_ACCESS_REMOTE_ATOMIC |				\
	 IB_MEMREG_ACCESS_FLUSH_GLOBAL |				\
	 IB_MEMREG_ACCESS_FLUSH_PERSISTENT)

#define MEMREG_ACCESS_ALL						\
	(MEMREG_ACCESS_REMOTE | IB_MEMREG_ACCESS_LOCAL_WRITE |		\
	 IB_MEMREG_ACCESS_MW_BIND | IB_MEMREG_ACCESS_ZERO_BASED |	\
	 IB_MEMREG_ACCESS_RELAXED_ORDERING)

/**
 * struct memreg_demand_pages - Pages that are pinned for MRs on demand
 * @now: System pages that are pinned
 * @max: Most of them that were pinned at a time
 */
struct memreg_demand_pages {
	atomic_long_t now;
	atomic_long_t max;
};

/**
 * struct memreg_kdevice - An RDMA device, from add_one to remove_one and the
 *	last file that was bound to it
 * @ibdev: The device; not to be touched once @files was drained by removal
 * @index: Its index
 * @node: In the list of devices
 * @name: The present name of the device; @name_lock
 * @name_lock: Protects @name
 * @refs: One for the ib_client, one for each file, one for each export
 * @quirks: MEMREG_QUIRK_*
 * @max_pages: Entries of an FRWR's page list
 * @page_sizes: Bitmap of page sizes for FRWRs
 * @sg_gaps: FRWRs can list pieces that begin and end anywhere
 * @access: Mask of enum ib_memreg_access that the device supports
 * @longest: Longest message in bytes; less than 2 GiB
 * @leaked_mrs: MRs that the driver could not destroy
 * @files_lock: Protects @files and @gone
 * @files: Bound files, by memreg_file.device_node
 * @gone: remove_one has begun: no file may be bound any more
 * @frwr_lock: Protects the state and the lists of FRWRs, and regions' guards
 * @spares: Idle FRWRs above the minimum, which the shrinker can free; written
 *	with frwr_lock
 * @spare_domains: Domains with spare FRWRs, by memreg_domain.spare_node;
 *	frwr_lock
 * @shrinker: Frees idle FRWRs when memory is short
 * @event_handler: Listens to changes of GIDs
 * @domains_lock: Protects @domains
 * @domains: All domains, by memreg_domain.device_node
 * @demand: Pages for MRs on demand
 * @stats: Counters of memreg_count()
 */
struct memreg_kdevice {
	struct ib_device *ibdev;
	u32 index;
	struct list_head node;
	char name[IB_DEVICE_NAME_MAX];
	spinlock_t name_lock;
	refcount_t refs;
	unsigned long quirks;
	u32 max_pages;
	u64 page_sizes;
	bool sg_gaps;
	u32 access;
	u32 longest;
	atomic_t leaked_mrs;
	spinlock_t files_lock;
	struct list_head files;
	bool gone;
	spinlock_t frwr_lock;
	long spares;
	struct list_head spare_domains;
	struct shrinker *shrinker;
	struct ib_event_handler event_handler;
	spinlock_t domains_lock;
	struct list_head domains;
	struct memreg_demand_pages demand;
	struct memreg_stats __percpu *stats;
};

int memreg_device_init(int (*add)(struct memreg_kdevice *mdev));
void memreg_device_exit(void);
void memreg_device_get(struct memreg_kdevice *mdev);
void memreg_device_put(struct memreg_kdevice *mdev);
int memreg_device_bind_ioctl(struct memreg_ucmd *ucmd);
void memreg_device_unbind(struct memreg_file *file);
void memreg_device_name(struct memreg_kdevice *mdev, char *name, size_t size);
int memreg_charge(struct memreg_charge *charge, struct memreg_kdevice *mdev,
		  bool handle);
void memreg_uncharge(struct memreg_charge *charge, struct memreg_kdevice *mdev);
int memreg_charge_reason(struct memreg_ucmd *ucmd, int err);

#endif /* _MEMREG_DEVICE_H */
