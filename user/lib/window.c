// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Windows: allocate, bind, revoke */
#include "internal.h"

EXPORT int memreg_window_alloc(struct memreg *m, uint32_t domain, uint32_t type,
			       uint64_t max_span, uint32_t *windows,
			       unsigned int count)
{
	struct ib_memreg_window_alloc arg = {
		.size = sizeof(arg),
		.domain_id = domain,
		.type = type,
		.count = count,
		.max_span = max_span,
		.ids = to_u64(windows),
	};

	return memreg__call(m->fd, IB_MEMREG_IOC_WINDOW_ALLOC, &arg,
			    "window_alloc");
}

EXPORT int memreg_window_bind_batch(struct memreg *m, uint32_t domain,
				    struct ib_memreg_bind *binds,
				    unsigned int count, unsigned int *failed)
{
	struct ib_memreg_window_bind arg = {
		.size = sizeof(arg),
		.domain_id = domain,
		.count = count,
		.out_index = count,
		.binds = to_u64(binds),
	};
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_WINDOW_BIND, &arg,
			   "window_bind");
	if (ret && failed)
		*failed = arg.out_index;
	return ret;
}

EXPORT int memreg_window_bind(struct memreg *m, uint32_t domain,
			      struct ib_memreg_bind *bind)
{
	return memreg_window_bind_batch(m, domain, bind, 1, NULL);
}

static int revoke(struct memreg *m, uint32_t domain, const uint32_t *windows,
		  unsigned int count, unsigned int *failed, uint32_t flags)
{
	struct ib_memreg_window_revoke arg = {
		.size = sizeof(arg),
		.flags = flags,
		.domain_id = domain,
		.count = count,
		.out_index = count,
		.ids = to_u64(windows),
	};
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_WINDOW_REVOKE, &arg,
			   "window_revoke");
	if (ret && failed)
		*failed = arg.out_index;
	return ret;
}

EXPORT int memreg_window_revoke_batch(struct memreg *m, uint32_t domain,
				      const uint32_t *windows,
				      unsigned int count, unsigned int *failed)
{
	return revoke(m, domain, windows, count, failed, 0);
}

EXPORT int memreg_window_revoke_strict(struct memreg *m, uint32_t domain,
				       const uint32_t *windows,
				       unsigned int count,
				       unsigned int *failed)
{
	return revoke(m, domain, windows, count, failed,
		      IB_MEMREG_REVOKE_STRICT);
}

EXPORT int memreg_window_revoke(struct memreg *m, uint32_t domain,
				uint32_t window)
{
	return memreg_window_revoke_batch(m, domain, &window, 1, NULL);
}
