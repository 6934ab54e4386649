// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bugs and proven abilities of drivers, each with the evidence. A driver that
 * is not listed is assumed to follow the InfiniBand specification, and to have
 * none of the abilities that need evidence.
 *
 * A driver is trusted with keys whose pages the device faults in
 * (MEMREG_QUIRK_DEVICE_PAGING) only after the test demand_keys has passed on
 * it. A kernel module can have such keys: ib_reg_user_mr() takes
 * IB_ACCESS_ON_DEMAND with a PD of the kernel, as net/rds does, where the
 * driver sets IBK_ON_DEMAND_PAGING. Two drivers do:
 * - rxe: __rxe_odp_mr_copy() copies from and to the beginning of each page,
 *   whatever the offset in it. rxe_odp_map_range_and_lock() takes the I/O
 *   address for an address in the range: another one is outside of its list of
 *   pages. The test bench's adapter has neither fault, and is trusted.
 * - mlx5: nothing of memreg has run on it.
 */
#include <linux/minmax.h>
#include <rdma/ib_memreg.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_verbs.h>

#include "quirks.h"

/*
 * vendor_part_id of the test bench's adapter, which is soft-RoCE without its
 * faults; upstream's has 0.
 */
#define MEMREG_RXE_ADAPTER	0x6d72

static const struct {
	enum rdma_driver_id driver;
	unsigned long quirks;
	/* Of those with this vendor_part_id alone; 0: of all others */
	u32 part;
} memreg_quirk_table[] = {
	/*
	 * rxe: rxe_invalidate_mr() stores the new state and returns. The
	 * handler of a packet that has passed check_rkey() goes on copying,
	 * without a lock, through the MR's page list; it holds a reference, for
	 * which ib_dereg_mr() waits. rxe_map_mr_sg() keeps a flat array with
	 * one entry for each system page, from kzalloc(). rxe_invalidate_mr()
	 * and rxe_reg_fast_mr() do not change the array. req_retry() goes back
	 * to the oldest work request that has not completed, and
	 * rxe_requester() executes local work requests again from there on: a
	 * repeated REG_MR revives a key that was killed, or fails if the key is
	 * valid. Only LOCAL_INV waits for all before it (rxe_wqe_is_fenced()).
	 */
	{
		RDMA_DRIVER_RXE,
		MEMREG_QUIRK_WEAK_INV | MEMREG_QUIRK_FLAT_PAGE_LIST |
		MEMREG_QUIRK_KEEPS_PAGE_LIST | MEMREG_QUIRK_REPEATS_REG_MR,
	},
	{
		RDMA_DRIVER_RXE,
		MEMREG_QUIRK_DEVICE_PAGING | MEMREG_QUIRK_REVOCABLE_IMPORT,
		.part = MEMREG_RXE_ADAPTER,
	},
	/*
	 * hfi1: rvt_invalidate_rkey() stores the new state and returns, as in
	 * rxe; but only the first packet of a message has its key checked: see
	 * hfi1_rc_rcv(). A peer that withholds the others writes to the pages
	 * when it likes, and rvt_dereg_mr() gives up after five seconds.
	 */
	{ RDMA_DRIVER_HFI1, MEMREG_QUIRK_UNFIT },
	/*
	 * siw: siw_invalidate_stag() does the same, and siw_dereg_mr() waits
	 * neither for siw_proc_write() nor for a READ that is being answered.
	 */
	{ RDMA_DRIVER_SIW, MEMREG_QUIRK_UNFIT },
	/*
	 * ocrdma: ocrdma_build_reg() uses the MR's iova as the DMA address of
	 * the first byte. The iova of a user's MR is another address.
	 */
	{ RDMA_DRIVER_OCRDMA, MEMREG_QUIRK_UNFIT },
	/*
	 * erdma: erdma_map_mr_sg() ignores the page size, and erdma_alloc_mr()
	 * gives the device PAGE_SIZE. vmw_pvrdma: pvrdma_alloc_mr() does the
	 * same.
	 */
	{ RDMA_DRIVER_ERDMA, MEMREG_QUIRK_SYSTEM_PAGES },
	{ RDMA_DRIVER_VMW_PVRDMA, MEMREG_QUIRK_SYSTEM_PAGES },
	/*
	 * irdma: for a page list that is longer than a page, irdma_get_pble()
	 * makes a table of tables if it has no contiguous memory. REG_MR in
	 * irdma_post_send() takes that table for the list. Nor does it pass on
	 * the access flag for atomics.
	 * irdma_umem_dmabuf_revoke() ends a user MR.
	 */
	{
		RDMA_DRIVER_IRDMA,
		MEMREG_QUIRK_SHORT_PAGE_LISTS | MEMREG_QUIRK_NO_ATOMIC |
		MEMREG_QUIRK_REVOCABLE_IMPORT,
	},
	/*
	 * qedr: qedr_prepare_reg() passes 32 bits of the length. bnxt_re: so
	 * does bnxt_qplib_post_send(), as struct bnxt_qplib_swqe has no more.
	 */
	{ RDMA_DRIVER_QEDR, MEMREG_QUIRK_SHORT_KEYS },
	{ RDMA_DRIVER_BNXT_RE, MEMREG_QUIRK_SHORT_KEYS },
	/*
	 * mlx5: mlx5_set_umr_free_mkey() enables relaxed ordering, and
	 * frwr_mkey_mask() does not let REG_MR change that.
	 * mlx5_ib_dmabuf_attach_ops has a callback that revokes user MRs.
	 */
	{
		RDMA_DRIVER_MLX5,
		MEMREG_QUIRK_RELAXED_ORDERING |
		(IS_ENABLED(CONFIG_INFINIBAND_ON_DEMAND_PAGING) ?
		 MEMREG_QUIRK_REVOCABLE_IMPORT : 0),
	},
};

/* Entries of a page list that fit into one page: see irdma above */
#define MEMREG_SHORT_PAGE_LIST	512

/**
 * memreg_quirks() - Look up the quirks of a device's driver
 * @ibdev: The device
 *
 * Return: bitmap of MEMREG_QUIRK_*.
 */
unsigned long memreg_quirks(const struct ib_device *ibdev)
{
	unsigned long quirks = 0;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(memreg_quirk_table); i++) {
		if (memreg_quirk_table[i].driver != ibdev->ops.driver_id)
			continue;
		if (!memreg_quirk_table[i].part)
			quirks = memreg_quirk_table[i].quirks;
		else if (memreg_quirk_table[i].part ==
			 ibdev->attrs.vendor_part_id)
			return memreg_quirk_table[i].quirks;
	}
	return quirks;
}

/**
 * memreg_page_list_max() - Length of the page list that a device can register
 * @ibdev: The device
 *
 * Return: entries of the longest page list; 0 if the device has no fast
 * registration that works.
 */
u32 memreg_page_list_max(const struct ib_device *ibdev)
{
	unsigned long quirks = memreg_quirks(ibdev);
	u32 max = ibdev->attrs.max_fast_reg_page_list_len;

	if (!(ibdev->attrs.device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS) ||
	    quirks & MEMREG_QUIRK_UNFIT)
		return 0;
	if (quirks & MEMREG_QUIRK_SHORT_PAGE_LISTS)
		max = min_t(u32, max, MEMREG_SHORT_PAGE_LIST);
	return max;
}

/**
 * memreg_paged_access() - Remote access that keys may allow if the device
 * faults in their pages
 * @ibdev: The device
 *
 * Return: mask of IB_MEMREG_ACCESS_REMOTE_*; 0 if there are no such keys.
 */
u32 memreg_paged_access(const struct ib_device *ibdev)
{
	u32 ops = ibdev->attrs.odp_caps.per_transport_caps.rc_odp_caps;
	u32 access = 0;

	if (!(ibdev->attrs.kernel_cap_flags & IBK_ON_DEMAND_PAGING))
		return 0;
	if (!(memreg_quirks(ibdev) & MEMREG_QUIRK_DEVICE_PAGING))
		return 0;
	if (ops & IB_ODP_SUPPORT_READ)
		access |= IB_MEMREG_ACCESS_REMOTE_READ;
	if (ops & IB_ODP_SUPPORT_WRITE)
		access |= IB_MEMREG_ACCESS_REMOTE_WRITE;
	if (ops & IB_ODP_SUPPORT_ATOMIC)
		access |= IB_MEMREG_ACCESS_REMOTE_ATOMIC;
	return access;
}
