// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Domains and memory regions */
#include <errno.h>

#include "internal.h"

EXPORT int memreg_domain_create(struct memreg *m, unsigned int port,
				uint32_t *domain)
{
	struct ib_memreg_domain_create arg = {
		.size = sizeof(arg),
		.port = port,
	};
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_DOMAIN_CREATE, &arg,
			   "domain_create");
	if (ret)
		return memreg__about_number(ret, "port", port);
	*domain = arg.out_domain_id;
	return 0;
}

static struct memreg_demand_info
demand_info(const struct ib_memreg_demand_stats *stats, const __u64 *wait)
{
	struct memreg_demand_info info = {
		.pinned = stats->pinned,
		.pinned_max = stats->pinned_max,
		.faults = stats->faults,
		.hits = stats->hits,
		.invalidations = stats->invalidations,
		.prefetches = stats->prefetches,
		.prefetch_hits = stats->prefetch_hits,
	};
	unsigned int i;

	for (i = 0; i < IB_MEMREG_DEMAND_WAITS; i++)
		info.wait[i] = wait[i];
	return info;
}

EXPORT int memreg_domain_query(struct memreg *m, uint32_t domain,
			       struct memreg_domain_info *info)
{
	struct ib_memreg_domain_query arg = {
		.size = sizeof(arg),
		.domain_id = domain,
	};
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_DOMAIN_QUERY, &arg,
			   "domain_query");
	if (ret)
		return memreg__about_id(ret, "domain", domain);
	*info = (struct memreg_domain_info) {
		.port = arg.out_port,
		.working = arg.out_working,
		.rebuilds = arg.out_rebuilds,
	};
	return 0;
}

static int about_register(int err, const struct ib_memreg_mr_register *arg)
{
	if (err == -ENOENT)
		return memreg__about_id(err, "domain", arg->domain_id);
	if (err == -EBADF)
		return memreg__about_number(err, "descriptor",
					    (unsigned int)arg->fd);
	if (arg->flags & IB_MEMREG_MR_FD)
		return memreg__about_ids(err, "descriptor",
					 (unsigned int)arg->fd, "offset",
					 arg->addr, "length", arg->length);
	return memreg__about_memory(err, (void *)(uintptr_t)arg->addr,
				    arg->length, arg->access);
}

/* Register as described by @arg, except for its size and iova fields */
static int register_mr(struct memreg *m, struct ib_memreg_mr_register *arg,
		       const char *what, struct memreg_mr *mr)
{
	int ret;

	arg->size = sizeof(*arg);
	if (arg->flags & IB_MEMREG_MR_IOVA)
		arg->iova = mr->iova;
	ret = memreg__call(m->fd, IB_MEMREG_IOC_MR_REGISTER, arg, what);
	if (ret)
		return about_register(ret, arg);
	*mr = (struct memreg_mr) {
		.id = arg->out_mr_id,
		.domain = arg->domain_id,
		.addr = (void *)(uintptr_t)arg->addr,
		.length = arg->length,
		.iova = arg->iova,
		.lkey = arg->out_lkey,
		.rkey = arg->out_rkey,
		.segments = arg->out_segments,
		.access = arg->access,
	};
	return 0;
}

EXPORT int memreg_mr_register(struct memreg *m, uint32_t domain, void *addr,
			      size_t length, uint32_t access, uint32_t flags,
			      struct memreg_mr *mr)
{
	struct ib_memreg_mr_register arg = {
		.flags = flags,
		.domain_id = domain,
		.access = access,
		.addr = to_u64(addr),
		.length = length,
	};

	return register_mr(m, &arg, "mr_register", mr);
}

EXPORT int memreg_mr_register_watched(struct memreg *m, uint32_t domain,
				      void *addr, size_t length,
				      uint32_t access, uint32_t flags,
				      struct memreg_status *status,
				      struct memreg_mr *mr,
				      struct memreg_watch *watch)
{
	struct ib_memreg_mr_register arg = {
		.flags = flags,
		.domain_id = domain,
		.access = access,
		.addr = to_u64(addr),
		.length = length,
		.status_id = memreg__status_id(status),
	};
	int ret;

	ret = register_mr(m, &arg, "mr_register_watched", mr);
	if (ret)
		return ret;
	watch->id = 0;
	memreg__watch_slot(status, arg.out_slot, arg.out_generation, watch);
	return 0;
}

EXPORT int memreg_mr_register_fd(struct memreg *m, uint32_t domain, int fd,
				 uint64_t offset, uint64_t length,
				 uint32_t access, uint32_t flags,
				 struct memreg_mr *mr)
{
	struct ib_memreg_mr_register arg = {
		.flags = flags | IB_MEMREG_MR_FD,
		.domain_id = domain,
		.access = access,
		.addr = offset,
		.length = length,
		.fd = fd,
	};

	return register_mr(m, &arg, "mr_register_fd", mr);
}

/* Fields that do not change must be 0 in the structure */
static void rereg_arg(const struct memreg_rereg_attr *attr,
		      struct ib_memreg_mr_reregister *arg)
{
	if (attr->what & IB_MEMREG_REREG_DOMAIN)
		arg->domain_id = attr->domain;
	if (attr->what & IB_MEMREG_REREG_ACCESS)
		arg->access = attr->access;
	if (!(attr->what & IB_MEMREG_REREG_TRANSLATION))
		return;
	arg->mr_flags = attr->flags;
	arg->length = attr->length;
	if (attr->flags & IB_MEMREG_MR_IOVA)
		arg->iova = attr->iova;
	if (attr->flags & IB_MEMREG_MR_FD) {
		arg->fd = attr->fd;
		arg->addr = attr->offset;
	} else {
		arg->addr = to_u64(attr->addr);
	}
}

/* Objects that a failure refers to */
static int rereg_about(int ret, const struct ib_memreg_mr_reregister *arg)
{
	if (ret == -ENOENT && arg->domain_id)
		return ret;
	if (ret == -ENOENT)
		return memreg__about_id(ret, "MR", arg->mr_id);
	if (ret && arg->length && !(arg->mr_flags & IB_MEMREG_MR_FD))
		return memreg__about_memory(ret, (void *)(uintptr_t)arg->addr,
					    arg->length, arg->access);
	return ret;
}

EXPORT int memreg_mr_reregister(struct memreg *m,
				const struct memreg_rereg_attr *attr,
				struct memreg_mr *mr, uint64_t *kept)
{
	struct ib_memreg_mr_reregister arg = {
		.size = sizeof(arg),
		.flags = attr->what,
		.mr_id = mr->id,
	};
	int ret;

	rereg_arg(attr, &arg);
	ret = memreg__call(m->fd, IB_MEMREG_IOC_MR_REREGISTER, &arg,
			   "mr_reregister");
	if (ret)
		return rereg_about(ret, &arg);
	if (attr->what & IB_MEMREG_REREG_DOMAIN)
		mr->domain = attr->domain;
	if (attr->what & IB_MEMREG_REREG_ACCESS)
		mr->access = attr->access;
	if (attr->what & IB_MEMREG_REREG_TRANSLATION) {
		mr->addr = (void *)(uintptr_t)arg.addr;
		mr->length = attr->length;
	}
	mr->iova = arg.iova;
	mr->lkey = arg.out_lkey;
	mr->rkey = arg.out_rkey;
	mr->segments = arg.out_segments;
	if (kept)
		*kept = arg.out_kept;
	return 0;
}

EXPORT int memreg_advise(struct memreg *m, uint32_t advice, uint32_t flags,
			 struct ib_memreg_range *ranges, unsigned int count)
{
	struct ib_memreg_mr_advise arg = {
		.size = sizeof(arg),
		.flags = flags,
		.advice = advice,
		.count = count,
		.ranges = to_u64(ranges),
	};
	unsigned int i;
	int ret, failed = 0;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_MR_ADVISE, &arg, "advise");
	if (ret && memreg_reason_code() == IB_MEMREG_REASON_COUNT)
		return memreg__about_number(ret, "ranges", count);
	if (ret)
		return memreg__about_number(ret, "advice", advice);
	for (i = 0; i < count; i++)
		failed += !!ranges[i].out_error;
	return failed;
}

/* Only MR_QUERY's segments have the keys: ask for one at least */
static int query_mr(struct memreg *m, struct ib_memreg_mr_query *arg,
		    struct ib_memreg_segment *first,
		    const struct ib_memreg_segment *segments)
{
	int ret;

	if (!arg->count) {
		arg->count = 1;
		arg->segments = to_u64(first);
	}
	ret = memreg__call(m->fd, IB_MEMREG_IOC_MR_QUERY, arg, "mr_query");
	memreg__about_id(ret, "MR", arg->mr_id);
	if (!ret && arg->count && arg->segments == to_u64(segments))
		*first = segments[0];
	return ret;
}

EXPORT int memreg_mr_query(struct memreg *m, uint32_t mr,
			   struct memreg_mr_info *info,
			   struct ib_memreg_segment *segments,
			   unsigned int *count)
{
	struct ib_memreg_segment first = { 0 };
	struct ib_memreg_mr_query arg = {
		.size = sizeof(arg),
		.mr_id = mr,
		.count = count ? *count : 0,
		.segments = to_u64(segments),
	};
	int ret;

	ret = query_mr(m, &arg, &first, segments);
	if (ret)
		return ret;
	if (count)
		*count = arg.count;
	if (!info)
		return 0;
	*info = (struct memreg_mr_info) {
		.mr = {
			.id = mr,
			.domain = arg.out_domain_id,
			.addr = (void *)(uintptr_t)arg.out_addr,
			.length = arg.out_length,
			.iova = arg.out_iova,
			.lkey = first.lkey,
			.rkey = first.rkey,
			.segments = arg.count,
			.access = arg.out_access,
		},
		.state = arg.out_state,
		.windows = arg.out_windows,
		.pinned = arg.out_pinned,
		.generation = arg.out_generation,
		.suspects = arg.out_suspects,
		.demand = demand_info(&arg.out_demand, arg.out_wait),
	};
	return 0;
}
