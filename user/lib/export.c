// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Exports: grants on queue pairs that are not memreg's */
#include <errno.h>

#include "internal.h"

static int make_export(struct memreg *m, struct ib_memreg_export_create *arg,
		       const char *what, struct memreg_export *export)
{
	int ret;

	arg->size = sizeof(*arg);
	ret = memreg__call(m->fd, IB_MEMREG_IOC_EXPORT_CREATE, arg, what);
	if (ret)
		return memreg__about_ids(ret, "MR", arg->mr_id, "offset",
					 arg->offset, "length", arg->length);
	export->id = arg->out_export_id;
	export->fd = arg->out_fd;
	return 0;
}

EXPORT int memreg_export(struct memreg *m, uint32_t mr, uint64_t offset,
			 uint64_t length, struct memreg_export *export)
{
	struct ib_memreg_export_create arg = {
		.mr_id = mr,
		.offset = offset,
		.length = length,
	};

	return make_export(m, &arg, "export", export);
}

EXPORT int memreg_export_leased(struct memreg *m, uint32_t mr, uint64_t offset,
				uint64_t length, uint32_t lease,
				struct memreg_export *export)
{
	struct ib_memreg_export_create arg = {
		.mr_id = mr,
		.offset = offset,
		.length = length,
		.lease_id = lease,
	};

	return make_export(m, &arg, "export_leased", export);
}

EXPORT int memreg_export_watched(struct memreg *m, uint32_t mr, uint64_t offset,
				 uint64_t length, struct memreg_status *status,
				 struct memreg_export *export,
				 struct memreg_watch *watch)
{
	struct ib_memreg_export_create arg = {
		.mr_id = mr,
		.offset = offset,
		.length = length,
		.status_id = memreg__status_id(status),
	};
	int ret;

	ret = make_export(m, &arg, "export_watched", export);
	if (ret)
		return ret;
	watch->id = 0;
	memreg__watch_slot(status, arg.out_slot, arg.out_generation, watch);
	return 0;
}

EXPORT int memreg_export_revoke(struct memreg *m, const uint32_t *exports,
				unsigned int count, unsigned int *failed)
{
	struct ib_memreg_export_revoke arg = {
		.size = sizeof(arg),
		.count = count,
		.out_index = count,
		.ids = to_u64(exports),
	};
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_EXPORT_REVOKE, &arg,
			   "export_revoke");
	if (failed)
		*failed = arg.out_index;
	if (!ret || memreg_reason_code() == IB_MEMREG_REASON_COUNT)
		return memreg__about_number(ret, "exports", count);
	if (arg.out_index >= count || ret == -EFAULT)
		return ret;
	return memreg__about_id(ret, "export", exports[arg.out_index]);
}
