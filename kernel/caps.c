// SPDX-License-Identifier: GPL-2.0-only
/*
 * DEVICE_QUERY: the capabilities and limits of a device and of this module, and
 * the mechanism behind each.
 */
#include <linux/uaccess.h>

#include "caps.h"
#include "conn/address.h"
#include "conn/queue.h"
#include "conn/ring.h"
#include "conn/submit_wr.h"
#include "conn/uring.h"
#include "core.h"
#include "device.h"
#include "mr/advise.h"
#include "pages/export.h"
#include "pages/memory.h"
#include "quirks.h"

/* Number of capabilities that DEVICE_QUERY lists. */
#define MEMREG_CAPS	IB_MEMREG_CAP_LEASE

#define CAP(_cap, _backing, _value)					\
	{								\
		.cap = IB_MEMREG_CAP_##_cap,				\
		.backing = IB_MEMREG_BACKING_##_backing,		\
		.value = (_value),					\
	}
#define CAP_BY(_cap, _value, _backing)					\
	{								\
		.cap = IB_MEMREG_CAP_##_cap,				\
		.backing = (_backing),					\
		.value = (_value),					\
	}
#define CAP_IF(_cap, _have, _backing)					\
	{								\
		.cap = IB_MEMREG_CAP_##_cap,				\
		.backing = (_have) ? IB_MEMREG_BACKING_##_backing :	\
				     IB_MEMREG_BACKING_NONE,		\
		.value = (_have),					\
	}

/* Can an application register exports in a PD of the device? */
static bool memreg_exports_registrable(const struct memreg_kdevice *mdev)
{
	return memreg_exports_possible() &&
	       mdev->quirks & MEMREG_QUIRK_REVOCABLE_IMPORT &&
	       mdev->ibdev->ops.reg_user_mr_dmabuf;
}

static u32 memreg_caps_list(struct memreg_kdevice *mdev,
			    struct ib_memreg_cap_entry *caps)
{
	const struct ib_device_attr *attrs = &mdev->ibdev->attrs;
	bool strict = !(mdev->quirks & MEMREG_QUIRK_WEAK_INV);
	bool order = !(mdev->quirks & MEMREG_QUIRK_RELAXED_ORDERING);
	bool virt = ib_uses_virt_dma(mdev->ibdev);
	bool paging = memreg_paged_access(mdev->ibdev);
	const struct ib_memreg_cap_entry all[] = {
		CAP(KEY_PAGES, FRWR, mdev->max_pages),
		CAP(KEY_SPAN, FRWR, (u64)mdev->max_pages * MEMREG_PAGE_SIZE),
		CAP(PAGE_SIZES, FRWR, mdev->page_sizes),
		CAP(ACCESS, FRWR, mdev->access),
		CAP(WINDOW_TYPE1, FRWR, 1),
		CAP(WINDOW_TYPE2B, FRWR, 1),
		CAP(INLINE_RECEIVE, KERNEL, MEMREG_INLINE_RECEIVE),
		CAP_IF(STRICT_INVALIDATE, strict, DEVICE),
		CAP(MAX_MR, DEVICE, attrs->max_mr),
		CAP(MAX_QP, DEVICE, attrs->max_qp),
		CAP(CONNECT_DATA, KERNEL, MEMREG_CONNECT_DATA),
		CAP(ACCEPT_DATA, KERNEL, MEMREG_ACCEPT_DATA),
		CAP(REJECT_DATA, KERNEL, MEMREG_REJECT_DATA),
		CAP(OPCODES, DEVICE, memreg_submit_opcodes(mdev)),
		CAP(FRAGMENTS, DEVICE, memreg_fragments(mdev)),
		CAP(QUEUE, DEVICE, memreg_queue_depth(mdev)),
		CAP(RING, KERNEL, memreg_ring_max(mdev)),
		CAP_IF(URING, memreg_uring_there(), KERNEL),
		CAP(MESSAGE, DEVICE, mdev->longest),
		CAP_IF(WRITE_ORDER, order, DEVICE),
		CAP(CONTIGUOUS, KERNEL, MEMREG_MEMORY_BLOCK_MAX),
		CAP_BY(DMABUF, 1, virt ? IB_MEMREG_BACKING_KERNEL :
					 IB_MEMREG_BACKING_DEVICE),
		CAP(POOL, FRWR, min_t(u32, IB_MEMREG_POOL_MAX, attrs->max_mr)),
		CAP_IF(SG_GAPS, mdev->sg_gaps, FRWR),
		CAP(ODP_EXPLICIT, KERNEL, 1),
		CAP(ODP_IMPLICIT, KERNEL, 1),
		CAP(ADVISE, KERNEL, MEMREG_ADVISE_ALL),
		CAP_IF(ODP_KEYS, paging, DEVICE),
		CAP_IF(EXPORT, memreg_exports_possible(), KERNEL),
		CAP_IF(EXPORT_REGISTER, memreg_exports_registrable(mdev),
		       DEVICE),
		CAP(LEASE, KERNEL, 1),
	};

	BUILD_BUG_ON(ARRAY_SIZE(all) != MEMREG_CAPS);
	memcpy(caps, all, sizeof(all));
	return ARRAY_SIZE(all);
}

/* ioctl(IB_MEMREG_IOC_DEVICE_QUERY) */
int memreg_device_query_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_cap_entry caps[MEMREG_CAPS];
	struct ib_memreg_device_query *cmd = ucmd->cmd;
	u32 count;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);

	count = memreg_caps_list(ucmd->mdev, caps);
	if (copy_to_user(u64_to_user_ptr(cmd->caps), caps,
			 min(count, cmd->count) * sizeof(caps[0])))
		return -EFAULT;
	cmd->count = count;
	cmd->out_index = ucmd->mdev->ibdev->index;
	cmd->out_ports = ucmd->mdev->ibdev->phys_port_cnt;
	memreg_device_name(ucmd->mdev, cmd->out_name, sizeof(cmd->out_name));
	return memreg_respond(ucmd, sizeof(*cmd));
}
