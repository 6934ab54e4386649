// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Leases: grants that end by themselves */
#include <errno.h>

#include "internal.h"

static int make_lease(struct memreg *m, struct ib_memreg_lease_create *arg,
		      const char *what, uint32_t *lease)
{
	int ret;

	arg->size = sizeof(*arg);
	ret = memreg__call(m->fd, IB_MEMREG_IOC_LEASE_CREATE, arg, what);
	if (!ret)
		*lease = arg->out_lease_id;
	return ret;
}

EXPORT int memreg_lease_create(struct memreg *m, uint64_t deadline_ns,
			       uint32_t *lease)
{
	struct ib_memreg_lease_create arg = { .deadline = deadline_ns };

	return make_lease(m, &arg, "lease_create", lease);
}

EXPORT int memreg_lease_create_watched(struct memreg *m, uint64_t deadline_ns,
				       struct memreg_status *status,
				       uint32_t *lease,
				       struct memreg_watch *watch)
{
	struct ib_memreg_lease_create arg = {
		.deadline = deadline_ns,
		.status_id = memreg__status_id(status),
	};
	int ret;

	ret = make_lease(m, &arg, "lease_create_watched", lease);
	if (ret)
		return ret;
	watch->id = 0;
	memreg__watch_slot(status, arg.out_slot, arg.out_generation, watch);
	return 0;
}

EXPORT int memreg_lease_renew_batch(struct memreg *m,
				    const struct ib_memreg_renewal *renewals,
				    unsigned int count, unsigned int *failed)
{
	struct ib_memreg_lease_renew arg = {
		.size = sizeof(arg),
		.count = count,
		.out_index = count,
		.renewals = to_u64(renewals),
	};
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_LEASE_RENEW, &arg,
			   "lease_renew");
	if (failed)
		*failed = arg.out_index;
	if (!ret || memreg_reason_code() == IB_MEMREG_REASON_COUNT)
		return memreg__about_number(ret, "renewals", count);
	if (arg.out_index >= count || ret == -EFAULT)
		return ret;
	return memreg__about_id(ret, "lease",
				renewals[arg.out_index].lease_id);
}

EXPORT int memreg_lease_renew(struct memreg *m, uint32_t lease,
			      uint64_t deadline_ns)
{
	const struct ib_memreg_renewal renewal = {
		.lease_id = lease,
		.deadline = deadline_ns,
	};

	return memreg_lease_renew_batch(m, &renewal, 1, NULL);
}
