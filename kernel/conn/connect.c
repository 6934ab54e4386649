// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connecting to a peer: ENDPOINT_CONNECT begins it, and the endpoint's worker
 * takes the further steps when handlers of the RDMA CM request them.
 */
#include <linux/cred.h>
#include <linux/uaccess.h>
#include <rdma/rdma_cm.h>

#include "conn/address.h"
#include "conn/teardown_queue.h"
#include "conn/connect.h"
#include "conn/endpoint.h"
#include "conn/event.h"
#include "conn/qp.h"
#include "core.h"
#include "device.h"
#include "inject.h"
#include "keys/domain.h"

/* Time limit of one attempt to resolve an address, in milliseconds. */
#define MEMREG_RESOLVE_MS	1000U

/* Time left for connecting, in milliseconds, at least 1. */
static unsigned int memreg_endpoint_time_left(const struct memreg_endpoint *ep)
{
	long left = ep->connect_until - jiffies;

	return left > 0 ? jiffies_to_msecs(left) : 1;
}

/*
 * Resolve the peer's address. The RDMA CM may miss the answer of a neighbour
 * that was not in the table, and finds it on a second attempt: so each attempt
 * gets only a part of the time left.
 */
static int memreg_endpoint_resolve_addr(struct memreg_endpoint *ep)
{
	struct sockaddr_storage dst;

	memreg_addr_to_kernel(&ep->peer, &dst);
	return memreg_inject(MEMREG_INJECT_RESOLVE_ADDR) ?:
	       rdma_resolve_addr(ep->id, NULL, (struct sockaddr *)&dst,
				 min(memreg_endpoint_time_left(ep),
				     MEMREG_RESOLVE_MS));
}

/*
 * Make the QP, once the address and with it the device is known. This may wait
 * for memory, so it is done without the handler lock: workers of the RDMA CM,
 * which all users share, wait for that lock.
 */
static int memreg_endpoint_make_qp(struct memreg_endpoint *ep)
{
	const struct cred *cred;
	int ret;

	if (ep->id->device != ep->file->mdev->ibdev)
		return -EADDRNOTAVAIL;
	/*
	 * Security modules decide by the creator's credentials what a QP may
	 * do.
	 */
	cred = override_creds(ep->cred);
	ret = memreg_endpoint_create_qp(ep, ep->domain);
	revert_creds(cred);
	return ret ?: memreg_queues_ready(ep);
}

static int memreg_endpoint_resolve_route(struct memreg_endpoint *ep)
{
	return memreg_inject(MEMREG_INJECT_RESOLVE_ROUTE) ?:
	       rdma_resolve_route(ep->id, memreg_endpoint_time_left(ep));
}

static int memreg_endpoint_route_resolved(struct memreg_endpoint *ep)
{
	struct ib_device_attr *attrs = &ep->id->device->attrs;
	struct rdma_conn_param param = {
		.private_data = ep->private_data,
		.private_data_len = ep->private_data_len,
		.responder_resources = min(MEMREG_RD_ATOM,
					   attrs->max_qp_rd_atom),
		.initiator_depth = min(MEMREG_RD_ATOM,
				       attrs->max_qp_init_rd_atom),
		.retry_count = 7,
		.rnr_retry_count = MEMREG_RNR_RETRY,
	};

	return memreg_inject(MEMREG_INJECT_CONNECT) ?:
	       rdma_connect_locked(ep->id, &param);
}

/*
 * Take the next step of connecting that is due. Called with the handler lock
 * held.
 */
static int memreg_endpoint_next(struct memreg_endpoint *ep, bool made_qp)
{
	if (made_qp)
		return memreg_endpoint_resolve_route(ep);
	if (test_and_clear_bit(MEMREG_CONNECT_ASK, &ep->due))
		return memreg_endpoint_route_resolved(ep);
	return time_before(jiffies, ep->connect_until) ? 0 : -ETIMEDOUT;
}

/*
 * Continue connecting. The endpoint's worker calls this after an event or the
 * timer.
 */
static void memreg_endpoint_go_on(struct memreg_endpoint *ep)
{
	bool made_qp = false;
	int ret = 0;

	if (test_and_clear_bit(MEMREG_CONNECT_RESOLVE, &ep->due))
		ret = memreg_endpoint_resolve_addr(ep);
	if (!ret && test_and_clear_bit(MEMREG_CONNECT_QP, &ep->due)) {
		ret = memreg_endpoint_make_qp(ep);
		made_qp = !ret;
	}
	rdma_lock_handler(ep->id);
	if (ep->state == IB_MEMREG_ENDPOINT_CONNECTING) {
		ret = ret ?: memreg_endpoint_next(ep, made_qp);
		if (ret)
			memreg_endpoint_fail(ep, IB_MEMREG_EVENT_ERROR,
					     memreg_cm_errno(ret));
	}
	rdma_unlock_handler(ep->id);
}

/*
 * The call
 */

static int memreg_connect_check(struct memreg_ucmd *ucmd,
				const struct ib_memreg_endpoint_connect *cmd)
{
	const struct ib_memreg_addr *src = &cmd->src;
	bool good;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	if (!cmd->timeout_ms || cmd->timeout_ms > IB_MEMREG_TIMEOUT_MAX_MS)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_TIMEOUT);
	ret = memreg_queues_check(ucmd, &cmd->queues);
	if (ret)
		return ret;
	good = memreg_addr_valid(&cmd->addr) && cmd->addr.port &&
	       !memreg_addr_any(&cmd->addr);
	if (src->family)
		good = good && memreg_addr_valid(src) &&
		       src->family == cmd->addr.family;
	else
		good = good && !memchr_inv(src, 0, sizeof(*src));
	return good ? 0 :
		memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_ADDRESS);
}

/* Make every check that needs no answer from the network. */
static int memreg_connect_prepare(struct memreg_ucmd *ucmd,
				  struct memreg_endpoint *ep)
{
	struct ib_memreg_endpoint_connect *cmd = ucmd->cmd;
	struct rdma_cm_id *id;
	int ret;

	memreg_endpoint_set_state(ep, IB_MEMREG_ENDPOINT_CONNECTING);
	/* The outcome, unless another one is set later. */
	ep->outcome = IB_MEMREG_EVENT_ERROR;
	ep->status = -ECONNRESET;
	ep->peer = cmd->addr;
	ep->cred = get_current_cred();
	ret = memreg_private_data_get(ucmd, ep->private_data,
				      cmd->private_data, cmd->private_data_len,
				      MEMREG_CONNECT_DATA);
	if (ret)
		return ret;
	ep->private_data_len = cmd->private_data_len;
	ret = memreg_queues_make(ucmd, ep, ep->domain, &cmd->queues);
	if (ret)
		return ret;
	ep->queued = true;
	ret = memreg_charge(&ep->charge, ucmd->mdev, false);
	if (ret)
		return memreg_charge_reason(ucmd, ret);
	id = memreg_id_create(ucmd->file, memreg_endpoint_handler, ep);
	if (IS_ERR(id))
		return PTR_ERR(id);
	ep->id = id;
	return cmd->src.family ? memreg_id_bind(ucmd, id, &cmd->src) : 0;
}

/*
 * Once this succeeds handlers may run, and the caller must not use the id: the
 * worker destroys the id if it belongs to another device.
 */
static int memreg_connect_begin(struct memreg_ucmd *ucmd,
				struct memreg_endpoint *ep, u32 timeout_ms)
{
	int ret;

	ep->connect_until = jiffies + msecs_to_jiffies(timeout_ms);
	memreg_teardown_alarm(ep, ep->connect_until);
	ret = memreg_endpoint_resolve_addr(ep);
	return ret ? memreg_fail_address(ucmd, ret) : 0;
}

/* ioctl(IB_MEMREG_IOC_ENDPOINT_CONNECT) */
int memreg_endpoint_connect_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_endpoint_connect *cmd = ucmd->cmd;
	struct memreg_domain *domain;
	struct memreg_endpoint *ep;
	int ret;

	ret = memreg_connect_check(ucmd, cmd);
	if (ret)
		return ret;
	domain = memreg_domain_get(ucmd, cmd->domain_id);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	ep = memreg_endpoint_alloc(ucmd->file, GFP_KERNEL_ACCOUNT);
	if (!ep) {
		memreg_domain_put(domain);
		return -ENOMEM;
	}
	ep->teardown.go_on = memreg_endpoint_go_on;
	/* The endpoint takes over the reference. */
	ep->domain = domain;
	ep->grants.domain = domain;
	atomic_inc(&domain->connections);
	memreg_object_made(ucmd, &ep->obj);
	ret = memreg_connect_prepare(ucmd, ep);
	if (ret)
		return ret;
	cmd->out_endpoint_id = ep->obj.id;
	ret = memreg_respond(ucmd, sizeof(*cmd));
	if (ret)
		return ret;
	/* The answer is copied to the user: now events may come. */
	ret = memreg_connect_begin(ucmd, ep, cmd->timeout_ms);
	complete_all(&ep->begun);
	return ret;
}
