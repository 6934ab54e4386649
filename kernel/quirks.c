// SPDX-License-Identifier: GPL-2.0-only
/*
 * What drivers get wrong, and what they are known to get right, each with the
 * evidence. A driver that is not listed is taken to follow the InfiniBand
 * specification, and gets nothing that has to be earned.
 */
#include <rdma/ib_user_ioctl_verbs.h>

#include "memreg.h"

static const struct {
	enum rdma_driver_id driver;
	unsigned long quirks;
} memreg_quirk_table[] = {
	/*
	 * rxe: rxe_invalidate_mr() stores the new state and returns. A packet
	 * that has passed check_rkey() copies on, without a lock, through the
	 * MR's page list; it holds a reference, for which ib_dereg_mr() waits.
	 * rxe_map_mr_sg() keeps a flat array with one entry for each system
	 * page, from kzalloc(). rxe_reg_user_mr() does not use its udata.
	 * rxe_invalidate_mr() and rxe_reg_fast_mr() leave the array alone.
	 * req_retry() goes back to the oldest work request that has not
	 * completed, and rxe_requester() does local ones again from there on:
	 * a REG_MR makes a key work that was killed, or fails if it works.
	 * Only LOCAL_INV waits for all before it (rxe_wqe_is_fenced()).
	 */
	{
		RDMA_DRIVER_RXE,
		MEMREG_QUIRK_WEAK_INV | MEMREG_QUIRK_SINGLE_KEY |
		MEMREG_QUIRK_FLAT_PAGE_LIST | MEMREG_QUIRK_KEEPS_PAGE_LIST |
		MEMREG_QUIRK_REPEATS_REG_MR,
	},
};

/**
 * memreg_quirks() - What is known of a device's driver
 * @ibdev: The device
 *
 * Return: bitmap of MEMREG_QUIRK_*.
 */
unsigned long memreg_quirks(struct ib_device *ibdev)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(memreg_quirk_table); i++)
		if (memreg_quirk_table[i].driver == ibdev->ops.driver_id)
			return memreg_quirk_table[i].quirks;
	return 0;
}
