// SPDX-License-Identifier: GPL-2.0-only
/* The table of calls, which lint compares with the header; see calls.h. */
#include <errno.h>
#include <stddef.h>
#include <rdma/ib_memreg.h>

#include "calls.h"
#include "test.h"

#define CALL_NUMBERED(_NAME, _num, _type, _reserved, ...)		\
	{								\
		.name = #_NAME,						\
		.num = _num,						\
		.size = sizeof(struct ib_memreg_##_type),		\
		.reserved = _reserved,					\
		__VA_ARGS__						\
	}
#define CALL(_NAME, _type, _reserved, ...)				\
	CALL_NUMBERED(_NAME, IB_MEMREG_IOC_##_NAME, _type, _reserved,	\
		      __VA_ARGS__)
#define RESERVED(_type)	offsetof(struct ib_memreg_##_type, reserved)
#define ERRORS(...)	.errors = { __VA_ARGS__ }

const struct call calls[] = {
	CALL(DEVICE_BIND, device_bind, NO_RESERVED, .unbound = true,
	     ERRORS(EINVAL, ENODEV, EBUSY, EOPNOTSUPP, EDQUOT, ENOMEM)),
	CALL(DEVICE_QUERY, device_query, NO_RESERVED, ERRORS(ENODEV, EFAULT)),
	CALL(DEVICE_STAT, device_stat, NO_RESERVED, ERRORS(ENODEV, EFAULT)),
	CALL(DESTROY, destroy, NO_RESERVED, .unbound = true,
	     ERRORS(ENOENT, EBUSY, ENODEV)),
	CALL(LIST, list, RESERVED(list), .unbound = true,
	     ERRORS(EINVAL, EFAULT, EINTR, ENOMEM)),
	CALL(SET_USER_DATA, set_user_data, NO_RESERVED,
	     ERRORS(ENOENT, EOPNOTSUPP, ENODEV)),
	CALL(DOMAIN_CREATE, domain_create, RESERVED(domain_create),
	     ERRORS(ENODEV, EINVAL, ENETDOWN, EDQUOT, ENOMEM, ENOSPC, EIO)),
	CALL(DOMAIN_QUERY, domain_query, NO_RESERVED,
	     ERRORS(ENOENT, EFAULT, ENODEV)),
	CALL(MR_REGISTER, mr_register, NO_RESERVED,
	     .flags = IB_MEMREG_MR_IOVA | IB_MEMREG_MR_UNGUARDED |
	      IB_MEMREG_MR_FD | IB_MEMREG_MR_ON_DEMAND | IB_MEMREG_MR_IMPLICIT,
	     ERRORS(EBADF, EACCES, EINVAL, EOVERFLOW, EFAULT, EOPNOTSUPP,
		    ENOMEM, ENOSPC, EPERM, EDQUOT, ENOENT, EAGAIN, EIO,
		    ENETDOWN, EINTR, ENODEV)),
	CALL(MR_REREGISTER, mr_reregister, RESERVED(mr_reregister),
	     .flags = IB_MEMREG_REREG_TRANSLATION | IB_MEMREG_REREG_DOMAIN |
	      IB_MEMREG_REREG_ACCESS,
	     ERRORS(EBADF, EACCES, EINVAL, EOVERFLOW, EFAULT, EOPNOTSUPP,
		    ENOMEM, ENOSPC, EPERM, EDQUOT, ENOENT, EAGAIN, EBUSY,
		    ESTALE, EIO, ENETDOWN, EINTR, ENODEV)),
	CALL(MR_COMPOSE, mr_compose, NO_RESERVED,
	     .flags = IB_MEMREG_COMPOSE_ONE_KEY | IB_MEMREG_COMPOSE_IOVA,
	     ERRORS(EINVAL, EOVERFLOW, ENOENT, EACCES, EOPNOTSUPP, ESTALE,
		    EFAULT, ENOMEM, ENOSPC, EDQUOT, EIO, ENETDOWN, EINTR,
		    ENODEV)),
	CALL(MR_QUERY, mr_query, RESERVED(mr_query),
	     ERRORS(ENOENT, EFAULT, ENODEV)),
	CALL(MR_ADVISE, mr_advise, NO_RESERVED,
	     .flags = IB_MEMREG_ADVISE_WAIT,
	     ERRORS(EINVAL, EFAULT, EINTR, ENODEV)),
	CALL(POOL_CREATE, pool_create, RESERVED(pool_create),
	     .flags = IB_MEMREG_MR_UNGUARDED | IB_MEMREG_MR_FD,
	     ERRORS(EBADF, EACCES, EINVAL, EOVERFLOW, EFAULT, EOPNOTSUPP,
		    ENOMEM, ENOSPC, EPERM, EDQUOT, ENOENT, EAGAIN, EIO,
		    ENETDOWN, EINTR, EMFILE, ENFILE, ENODEV)),
	CALL(POOL_RECYCLE, pool_recycle, NO_RESERVED,
	     .flags = IB_MEMREG_RECYCLE_RELAXED,
	     ERRORS(ENOENT, EINVAL, EFAULT, ENOMEM, ENOSPC, EDQUOT, ESTALE,
		    EIO, ENETDOWN, EINTR, ENODEV)),
	CALL(MEMORY_CREATE, memory_create, RESERVED(memory_create),
	     .flags = IB_MEMREG_MEMORY_CONTIGUOUS,
	     ERRORS(EINVAL, EOVERFLOW, ENOMEM, EPERM, EMFILE, ENFILE, EINTR,
		    EFAULT, ENODEV)),
	CALL(MEMORY_DUP, memory_dup, RESERVED(memory_dup),
	     ERRORS(EBADF, EOPNOTSUPP, ENOMEM, EMFILE, ENFILE, EFAULT,
		    ENODEV)),
	CALL(WINDOW_ALLOC, window_alloc, NO_RESERVED,
	     ERRORS(EINVAL, EOPNOTSUPP, ENOENT, ENOMEM, EFAULT, ENODEV)),
	CALL(WINDOW_BIND, window_bind, NO_RESERVED,
	     ERRORS(EINVAL, EOVERFLOW, ENOENT, EBUSY, EACCES, EOPNOTSUPP,
		    ENOTCONN, ESTALE, ENOMEM, ENOSPC, EDQUOT, EFAULT, EIO,
		    ENETDOWN, EINTR, ENODEV)),
	CALL(WINDOW_REVOKE, window_revoke, NO_RESERVED,
	     .flags = IB_MEMREG_REVOKE_RELAXED,
	     ERRORS(EINVAL, EOPNOTSUPP, ENOENT, EBUSY, EFAULT, ENOMEM, EINTR,
		    ENODEV)),
	CALL(EXPORT_CREATE, export_create, RESERVED(export_create),
	     ERRORS(EINVAL, EOVERFLOW, EOPNOTSUPP, ENOENT, EACCES, ESTALE,
		    EPERM, ENOSPC, ENOMEM, EMFILE, ENFILE, EFAULT, ENODEV)),
	CALL(EXPORT_REVOKE, export_revoke, RESERVED(export_revoke),
	     ERRORS(EINVAL, EOPNOTSUPP, ENOENT, ETIMEDOUT, EFAULT, ENOMEM,
		    ENODEV)),
	CALL(LEASE_CREATE, lease_create, NO_RESERVED,
	     ERRORS(EINVAL, ENOENT, EPERM, ENOSPC, ENOMEM, EFAULT, ENODEV)),
	CALL(LEASE_RENEW, lease_renew, RESERVED(lease_renew),
	     ERRORS(EINVAL, ENOENT, ESTALE, ENOMEM, EFAULT, ENODEV)),
	CALL(STATUS_CREATE, status_create, RESERVED(status_create),
	     .unbound = true,
	     ERRORS(EINVAL, ENOMEM, EMFILE, ENFILE, ENODEV)),
	CALL(MONITOR_CREATE, monitor_create, NO_RESERVED, .unbound = true,
	     ERRORS(EINVAL, EOVERFLOW, EFAULT, ENOENT, EPERM, EBUSY, EBADF,
		    EOPNOTSUPP, EMFILE, ENOSPC, ENOMEM, EINTR, ENODEV)),
	CALL(MONITOR_DESTROY, monitor_destroy, RESERVED(monitor_destroy),
	     .unbound = true,
	     ERRORS(EINVAL, ENOENT, EBUSY, ENOMEM, EFAULT, EINTR, ENODEV)),
	CALL(LISTENER_CREATE, listener_create, RESERVED(listener_create),
	     ERRORS(EINVAL, EADDRINUSE, EADDRNOTAVAIL, EPERM, EFAULT, ENODEV,
		    ENOMEM, ENOSPC, EDQUOT, EPROTO)),
	CALL(ENDPOINT_CONNECT, endpoint_connect, RESERVED(endpoint_connect),
	     ERRORS(EINVAL, EOPNOTSUPP, ENOENT, EAGAIN, EFAULT, ENOMEM,
		    EDQUOT, EPERM, EADDRINUSE, EADDRNOTAVAIL, EACCES,
		    ENETDOWN, ENETUNREACH, EHOSTDOWN, EHOSTUNREACH, ETIMEDOUT,
		    EPROTO, ENODEV)),
	CALL(ENDPOINT_SETUP, endpoint_setup, RESERVED(endpoint_setup),
	     ERRORS(EINVAL, EOPNOTSUPP, ENOENT, ENOTCONN, EBUSY, EAGAIN,
		    ENOMEM, ENOSPC, EDQUOT, ENODEV)),
	CALL(ENDPOINT_ACCEPT, endpoint_accept, NO_RESERVED,
	     ERRORS(EINVAL, ENOENT, ENOTCONN, EFAULT, ENOMEM, ENOSPC, EDQUOT,
		    ENODEV)),
	CALL(ENDPOINT_REJECT, endpoint_reject, RESERVED(endpoint_reject),
	     ERRORS(EINVAL, ENOENT, ENOTCONN, EFAULT, ENODEV)),
	CALL(ENDPOINT_DISCONNECT, endpoint_disconnect, NO_RESERVED,
	     ERRORS(ENOENT, ENOTCONN, ENODEV)),
	CALL(RING_CREATE, ring_create, NO_RESERVED,
	     .flags = IB_MEMREG_RING_NO_MODERATION,
	     ERRORS(EINVAL, EOPNOTSUPP, EBADF, EMFILE, ENFILE, ENOMEM, ENOSPC,
		    EDQUOT, EFAULT, ENODEV)),
	CALL(RING_WAIT, ring_wait, NO_RESERVED, .on = CALL_ON_RING,
	     ERRORS(EOPNOTSUPP, EINVAL, ETIMEDOUT, EINTR, ENODEV, EFAULT)),
	CALL(SRQ_CREATE, srq_create, NO_RESERVED,
	     .flags = IB_MEMREG_QUEUES_NO_INLINE_RECEIVE,
	     ERRORS(EINVAL, EOPNOTSUPP, ENOENT, ENOMEM, ENOSPC, EDQUOT,
		    EFAULT, ENODEV)),
	CALL(SUBMIT, submit, RESERVED(submit),
	     ERRORS(EINVAL, EOVERFLOW, ENOENT, ENOTCONN, EAGAIN, EACCES,
		    ESTALE, EMSGSIZE, EOPNOTSUPP, EBUSY, EFAULT, ENOMEM,
		    ENOSPC, EDQUOT, EINTR, EIO, ENODEV)),
	CALL_NUMBERED(URING_SUBMIT, IB_MEMREG_URING_SUBMIT, uring_submit,
		      NO_RESERVED, .on = CALL_BY_URING,
		      ERRORS(EINVAL, EOVERFLOW, ENOENT, ENOTCONN, EAGAIN,
			     EACCES, ESTALE, EMSGSIZE, EOPNOTSUPP, EBUSY,
			     EFAULT, ENOMEM, ENOSPC, EDQUOT, EINTR, EIO,
			     ENODEV, ECANCELED, EREMOTEIO, ETIMEDOUT)),
};

const unsigned int ncalls = ARRAY_LEN(calls);

const struct call *call_of(unsigned long num)
{
	const struct call *call;

	for (call = calls; call < calls + ncalls; call++)
		if (call->num == num)
			return call;
	return NULL;
}

static bool is_among(int err, const int *errors)
{
	while (*errors && *errors != err)
		errors++;
	return *errors;
}

bool call_documents(const struct call *call, int err)
{
	return err && is_among(err, call->errors);
}

bool call_may_fail_by_fault(unsigned long num, int err)
{
	/*
	 * The device, the RDMA CM or the table of descriptors has failed. All
	 * other errnos are about the arguments or the state of objects, which
	 * are good, or about limits, signals and changes that there are not.
	 */
	static const int failures[] = {
		ENOSPC, EIO, EMFILE, ENFILE, EADDRINUSE, EADDRNOTAVAIL,
		ENETUNREACH, EHOSTUNREACH, EPROTO, 0
	};
	const struct call *call = call_of(num);

	if (err == ENOMEM || err == EFAULT)
		return true;
	/* If not even a rejection could be sent, the request is over. */
	if (num == IB_MEMREG_IOC_ENDPOINT_ACCEPT && err == ENOTCONN)
		return true;
	return call && call_documents(call, err) && is_among(err, failures);
}
