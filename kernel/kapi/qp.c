// SPDX-License-Identifier: GPL-2.0-only
/*
 * Room for requests on queue pairs.
 */
#include <linux/math64.h>

#include "kapi/kapi.h"

/* Work requests that a request may have on the queue at once. */
static u64 memreg_req_wrs(unsigned int max_mrs)
{
	return 2ULL * max_mrs + 1;
}

/* Work requests of requests for which there is room beside the caller's. */
static s64 memreg_qp_room(const struct ib_device *ibdev,
			  const struct ib_qp_init_attr *attr)
{
	/* One is that of a drain. */
	return (s64)min(ibdev->attrs.max_qp_wr, ibdev->attrs.max_cqe) -
	       attr->cap.max_send_wr - 1;
}

/**
 * ib_memreg_max_depth() - Number of requests that can be posted at a time
 * @ibdev: Device of the QP
 * @attr: As of ib_memreg_init_qp(), which has not been called for it
 * @max_mrs: MRs of a request, at most, all its memory together
 *
 * Context: any.
 * Return: the largest depth with which ib_memreg_init_qp() succeeds, or 0.
 */
unsigned int ib_memreg_max_depth(const struct ib_device *ibdev,
				 const struct ib_qp_init_attr *attr,
				 unsigned int max_mrs)
{
	s64 room = memreg_qp_room(ibdev, attr);

	return room > 0 ? div64_u64(room, memreg_req_wrs(max_mrs)) : 0;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_max_depth, MEMREG_NS);

/**
 * ib_memreg_init_qp() - Make room for requests in the attributes of a QP
 * @ibdev: Device of the QP
 * @attr: Attributes for creating the QP. Room for the requests is added to
 *	@max_send_wr, which may count other work of the caller already; and
 *	IB_SIGNAL_REQ_WR is set.
 * @depth: Requests that are posted at a time, at most
 * @max_mrs: MRs of a request, at most, all its memory together
 *
 * Call this before the send CQ is made: flushed work requests complete,
 * signalled or not, so there may be a completion for each. The room is for
 * REG_MRs, the SEND and LOCAL_INVs, which may all be on the queue at once, and
 * for the work request of ib_drain_sq(). The caller adds room for receives, and
 * for SGEs of its messages.
 *
 * Context: any.
 * Return: the most entries of the send CQ that the QP's work requests can take,
 * which is @max_send_wr now; -EINVAL if @depth is 0; -ENOSPC if the device has
 * no such queues: ib_memreg_max_depth() returns how many requests would fit.
 * Nothing has changed then.
 */
int ib_memreg_init_qp(const struct ib_device *ibdev,
		      struct ib_qp_init_attr *attr, unsigned int depth,
		      unsigned int max_mrs)
{
	if (!depth)
		return -EINVAL;
	if (depth > ib_memreg_max_depth(ibdev, attr, max_mrs))
		return -ENOSPC;
	attr->cap.max_send_wr += depth * memreg_req_wrs(max_mrs) + 1;
	attr->sq_sig_type = IB_SIGNAL_REQ_WR;
	return attr->cap.max_send_wr;
}
EXPORT_SYMBOL_NS_GPL(ib_memreg_init_qp, MEMREG_NS);
