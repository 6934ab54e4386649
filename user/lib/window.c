// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Windows: allocate, bind, grant, revoke */
#include <errno.h>

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

	int ret = memreg__call(m->fd, IB_MEMREG_IOC_WINDOW_ALLOC, &arg,
			       "window_alloc");

	switch (ret ? memreg_reason_code() : IB_MEMREG_REASON_NONE) {
	case IB_MEMREG_REASON_ID:
		return memreg__about_id(ret, "domain", domain);
	case IB_MEMREG_REASON_COUNT:
		return memreg__about_number(ret, "windows", count);
	case IB_MEMREG_REASON_SPAN:
		if (max_span)
			memreg__because("the span is more than one key of this device covers",
					"`memreg caps` shows it: a window has 4096 bytes less; use several");
		else
			memreg__because("the span is 0", NULL);
		return memreg__about_number(ret, "bytes", max_span);
	case IB_MEMREG_REASON_WINDOW_TYPE:
		return memreg__about_number(ret, "type", type);
	default:
		return ret;
	}
}

/* Name in the error's message the range or the objects of a failed bind. */
static int about_bind(int err, const struct ib_memreg_bind *bind)
{
	switch (memreg_reason_code()) {
	case IB_MEMREG_REASON_ZERO_LENGTH:
	case IB_MEMREG_REASON_WRAPS:
	case IB_MEMREG_REASON_RANGE:
	case IB_MEMREG_REASON_SPAN:
	case IB_MEMREG_REASON_ZERO_BASED:
		return memreg__about_ids(err, "MR", bind->mr_id, "offset",
					 bind->offset, "length", bind->length);
	default:
		return memreg__about_ids(err, "window", bind->window_id, "MR",
					 bind->mr_id, "endpoint",
					 bind->endpoint_id);
	}
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
	if (!ret || memreg_reason_code() == IB_MEMREG_REASON_COUNT)
		return memreg__about_number(ret, "windows", count);
	/* an array that the kernel can't read is not read here either */
	if (arg.out_index >= count || ret == -EFAULT)
		return memreg__about_id(ret, "domain", domain);
	return about_bind(ret, binds + arg.out_index);
}

EXPORT int memreg_window_bind(struct memreg *m, uint32_t domain,
			      struct ib_memreg_bind *bind)
{
	return memreg_window_bind_batch(m, domain, bind, 1, NULL);
}

/* Destroy the window if the failing memreg_window_grant() has made it. */
static int fail_grant(struct memreg *m, struct ib_memreg_bind *bind, bool made,
		      int err)
{
	struct ib_memreg_destroy arg = {
		.size = sizeof(arg),
		.id = bind->window_id,
	};

	if (!made)
		return err;
	memreg__undo(m->fd, IB_MEMREG_IOC_DESTROY, &arg);
	bind->window_id = 0;
	return err;
}

EXPORT int memreg_window_grant(struct memreg *m, uint32_t domain,
			       struct ib_memreg_bind *bind, void *data)
{
	bool make = !bind->window_id;
	struct memreg_grant grant;
	int ret = 0;

	if (make)
		ret = memreg_window_alloc(m, domain, IB_MEMREG_WINDOW_TYPE1,
					  bind->length, &bind->window_id, 1);
	if (ret)
		return ret;
	ret = memreg_window_bind(m, domain, bind);
	if (ret)
		return fail_grant(m, bind, make, ret);
	grant = (struct memreg_grant) {
		.iova = bind->out_iova,
		.length = bind->length,
		.rkey = bind->out_rkey,
		.access = bind->access,
	};
	memreg_grant_encode(&grant, data);
	return 0;
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
	if (!ret || memreg_reason_code() == IB_MEMREG_REASON_COUNT)
		return memreg__about_number(ret, "windows", count);
	if (arg.out_index >= count || ret == -EFAULT)
		return memreg__about_id(ret, "domain", domain);
	return memreg__about_id(ret, "window", windows[arg.out_index]);
}

EXPORT int memreg_window_revoke_batch(struct memreg *m, uint32_t domain,
				      const uint32_t *windows,
				      unsigned int count, unsigned int *failed)
{
	return revoke(m, domain, windows, count, failed, 0);
}

EXPORT int memreg_window_revoke_relaxed(struct memreg *m, uint32_t domain,
					const uint32_t *windows,
					unsigned int count,
					unsigned int *failed)
{
	return revoke(m, domain, windows, count, failed,
		      IB_MEMREG_REVOKE_RELAXED);
}

EXPORT int memreg_window_revoke(struct memreg *m, uint32_t domain,
				uint32_t window)
{
	return memreg_window_revoke_batch(m, domain, &window, 1, NULL);
}
