// SPDX-License-Identifier: GPL-2.0-only
/*
 * Domains: a protection domain with a registration queue (regq.c), which makes
 * and kills its keys, and with FRWRs (frwr.c), of which the keys are made.
 */
#include <linux/cred.h>
#include <linux/slab.h>

#include "core.h"
#include "device.h"
#include "keys/domain.h"
#include "keys/fastmr.h"
#include "keys/frwr.h"
#include "keys/kill.h"
#include "keys/regq.h"
#include "keys/trace.h"
#include "quirks.h"

/* Domains that are checked in one hold of domains_lock. */
#define MEMREG_DOMAINS_CHECKED	32

/* Number of GID changes so far, on all devices. */
static atomic_t memreg_gid_changes;

static bool memreg_domain_has_fence(const struct memreg_domain *domain)
{
	return domain->mdev->quirks & MEMREG_QUIRK_REPEATS_REG_MR;
}

static int memreg_domain_charge(struct memreg_domain *domain)
{
	unsigned int i, count = ARRAY_SIZE(domain->charges);
	int ret;

	if (!memreg_domain_has_fence(domain))
		count--;
	for (i = 0; i < count; i++) {
		ret = memreg_charge(&domain->charges[i], domain->mdev, false);
		if (ret)
			return ret;
	}
	return 0;
}

static void memreg_domain_uncharge(struct memreg_domain *domain)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(domain->charges); i++)
		memreg_uncharge(&domain->charges[i], domain->mdev);
}

/* Free a domain whose verbs objects are not built yet, or gone. */
static void memreg_domain_release(struct memreg_domain *domain)
{
	put_cred(domain->cred);
	kfree(domain);
}

static struct memreg_domain *memreg_domain_alloc(struct memreg_file *file,
						 u32 port)
{
	struct memreg_domain *domain;

	domain = kzalloc(sizeof(*domain), GFP_KERNEL_ACCOUNT);
	if (!domain)
		return NULL;
	domain->file = file;
	domain->mdev = file->mdev;
	domain->cred = get_current_cred();
	domain->port = port;
	memreg_regq_init(domain);
	memreg_kill_init(domain);
	memreg_frwr_init_domain(domain);
	return domain;
}

/* Create the MR that is never given a key: see memreg_send_fence(). */
static int memreg_domain_create_fence(struct memreg_domain *domain)
{
	if (!memreg_domain_has_fence(domain))
		return 0;
	return memreg_fastmr_alloc(&domain->fence, domain->pd,
				   IB_MR_TYPE_MEM_REG, 1, NULL);
}

/* Build the verbs objects of a domain. On failure nothing is left of them. */
static int memreg_domain_build(struct memreg_domain *domain)
{
	struct memreg_kdevice *mdev = domain->mdev;
	int ret;

	ret = memreg_domain_charge(domain);
	if (ret)
		goto err_charge;
	domain->pd = ib_alloc_pd(mdev->ibdev, 0);
	if (IS_ERR(domain->pd)) {
		ret = PTR_ERR(domain->pd) == -ENOMEM ? -ENOMEM : -ENOSPC;
		goto err_charge;
	}
	ret = memreg_domain_create_fence(domain);
	if (ret)
		goto err_pd;
	ret = memreg_regq_create(domain);
	if (ret)
		goto err_fence;
	spin_lock(&mdev->domains_lock);
	domain->gid_change = atomic_read(&memreg_gid_changes);
	list_add_tail(&domain->device_node, &mdev->domains);
	spin_unlock(&mdev->domains_lock);
	/* The GID may have changed before this domain was in the list. */
	memreg_regq_check(domain);
	return 0;

err_fence:
	memreg_fastmr_destroy(&domain->fence);
err_pd:
	ib_dealloc_pd(domain->pd);
err_charge:
	memreg_domain_uncharge(domain);
	return ret;
}

static void memreg_domain_free(struct memreg_domain *domain)
{
	struct memreg_kdevice *mdev = domain->mdev;

	spin_lock(&mdev->domains_lock);
	list_del(&domain->device_node);
	spin_unlock(&mdev->domains_lock);
	memreg_frwr_forget_domain(domain);
	timer_shutdown_sync(&domain->stall);
	memreg_user_work_disable(&domain->rebuild);
	memreg_user_work_disable(&domain->kill);
	timer_shutdown_sync(&domain->reap_timer);
	memreg_user_work_disable(&domain->reap);
	memreg_frwr_drain_domain(domain);
	memreg_regq_destroy(domain);
	memreg_fastmr_destroy(&domain->fence);
	ib_dealloc_pd(domain->pd);
	memreg_domain_uncharge(domain);
	memreg_domain_release(domain);
}

/*
 * Check some domains that were not checked since the last change. A checked
 * domain moves to the end of the list, so all behind it are checked, too.
 */
static bool memreg_domain_check_some(struct memreg_kdevice *mdev,
				     unsigned int change)
{
	unsigned int n = MEMREG_DOMAINS_CHECKED;
	struct memreg_domain *domain;

	spin_lock(&mdev->domains_lock);
	while (n) {
		domain = list_first_entry_or_null(&mdev->domains,
						  struct memreg_domain,
						  device_node);
		if (!domain || (int)(domain->gid_change - change) >= 0)
			break;
		domain->gid_change = change;
		list_move_tail(&domain->device_node, &mdev->domains);
		memreg_regq_check(domain);
		n--;
	}
	spin_unlock(&mdev->domains_lock);
	return !n;
}

/**
 * memreg_domain_event() - Handle an event of a device
 * @handler: memreg_kdevice.event_handler
 * @event: The event; if a GID was added or removed, the registration queues of
 *	the device are checked, as one may be connected by it
 *
 * Context: may sleep.
 */
void memreg_domain_event(struct ib_event_handler *handler,
			 struct ib_event *event)
{
	struct memreg_kdevice *mdev =
		container_of(handler, struct memreg_kdevice, event_handler);
	unsigned int change;

	if (event->event != IB_EVENT_GID_CHANGE)
		return;
	change = atomic_inc_return(&memreg_gid_changes);
	while (memreg_domain_check_some(mdev, change))
		cond_resched();
}

/* ioctl(IB_MEMREG_IOC_DOMAIN_CREATE) */
int memreg_domain_create_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_domain_create *cmd = ucmd->cmd;
	struct memreg_domain *domain;
	u32 port;
	int ret;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	if (cmd->reserved)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_RESERVED);
	port = memreg_regq_port(ucmd->mdev->ibdev, cmd->port);
	if (!port)
		return memreg_fail(ucmd, -EINVAL, IB_MEMREG_REASON_PORT);

	domain = memreg_domain_alloc(ucmd->file, port);
	if (!domain)
		return -ENOMEM;
	ret = memreg_domain_build(domain);
	if (ret) {
		if (ret == -ENETDOWN)
			ucmd->reason = IB_MEMREG_REASON_PORT;
		else if (ret == -EIO)
			ucmd->reason = IB_MEMREG_REASON_QUEUE;
		memreg_charge_reason(ucmd, ret);
		memreg_domain_release(domain);
		return ret;
	}
	ret = memreg_object_alloc(ucmd->file, &domain->obj,
				  &memreg_domain_ops);
	if (ret) {
		memreg_domain_free(domain);
		return ret;
	}
	memreg_object_made(ucmd, &domain->obj);
	cmd->out_domain_id = domain->obj.id;
	ret = memreg_respond(ucmd, sizeof(*cmd));
	if (!ret)
		trace_memreg_domain_create(domain);
	return ret;
}

static bool memreg_domain_works(const struct memreg_domain *domain)
{
	return READ_ONCE(domain->state) == MEMREG_REGQ_READY;
}

/* ioctl(IB_MEMREG_IOC_DOMAIN_QUERY) */
int memreg_domain_query_ioctl(struct memreg_ucmd *ucmd)
{
	struct ib_memreg_domain_query *cmd = ucmd->cmd;
	struct memreg_domain *domain;

	if (cmd->flags)
		return memreg_fail(ucmd, -EOPNOTSUPP, IB_MEMREG_REASON_FLAGS);
	domain = memreg_domain_get(ucmd, cmd->domain_id);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	cmd->out_port = domain->port;
	cmd->out_working = memreg_domain_works(domain);
	cmd->out_rebuilds = READ_ONCE(domain->rebuilt);
	memreg_domain_put(domain);
	return memreg_respond(ucmd, sizeof(*cmd));
}

static void memreg_domain_abort(struct memreg_file *file,
				struct memreg_object *obj)
{
	memreg_domain_free(container_of(obj, struct memreg_domain, obj));
}

static void memreg_domain_destroy_obj(struct memreg_file *file,
				      struct memreg_object *obj)
{
	struct memreg_domain *domain =
		container_of(obj, struct memreg_domain, obj);

	trace_memreg_domain_destroy(domain);
	memreg_domain_free(domain);
}

static void memreg_domain_info(struct memreg_object *obj,
			       struct ib_memreg_object *info)
{
	struct memreg_domain *domain =
		container_of(obj, struct memreg_domain, obj);

	info->u.domain.working = memreg_domain_works(domain);
	info->u.domain.rebuilds = READ_ONCE(domain->rebuilt);
}

const struct memreg_object_ops memreg_domain_ops = {
	.type = IB_MEMREG_OBJECT_DOMAIN,
	.destroy = memreg_domain_destroy_obj,
	.abort = memreg_domain_abort,
	.info = memreg_domain_info,
};
