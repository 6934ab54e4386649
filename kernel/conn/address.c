// SPDX-License-Identifier: GPL-2.0-only
/*
 * Conversion of addresses, errnos and private data between the RDMA CM and the
 * ABI.
 */
#include <kunit/visibility.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <net/ipv6.h>
#include <rdma/rdma_cm.h>

#include "conn/address.h"
#include "core.h"
#include "device.h"
#include "inject.h"

static bool memreg_addr_link_local(const struct ib_memreg_addr *addr)
{
	struct in6_addr in6;

	memcpy(&in6, addr->ip, sizeof(in6));
	return addr->family == AF_INET6 &&
	       ipv6_addr_type(&in6) & IPV6_ADDR_LINKLOCAL;
}

/**
 * memreg_addr_valid() - Check an address from user space
 * @addr: The address; valid only if fields that its family does not use are 0
 *
 * Return: true if so.
 */
bool memreg_addr_valid(const struct ib_memreg_addr *addr)
{
	switch (addr->family) {
	case AF_INET:
		return !addr->scope_id &&
		       !memchr_inv(addr->ip + 4, 0, sizeof(addr->ip) - 4);
	case AF_INET6:
		return memreg_addr_link_local(addr) == !!addr->scope_id;
	default:
		return false;
	}
}

/**
 * memreg_addr_any() - Is an address a wildcard?
 * @addr: The address
 *
 * Return: true if so.
 */
bool memreg_addr_any(const struct ib_memreg_addr *addr)
{
	return !memchr_inv(addr->ip, 0, sizeof(addr->ip));
}

/* Does an address fit every device (a wildcard, or loopback)? */
static bool memreg_addr_anywhere(const struct ib_memreg_addr *addr)
{
	struct in6_addr in6;

	memcpy(&in6, addr->ip, sizeof(in6));
	return memreg_addr_any(addr) || (addr->family == AF_INET ?
					 addr->ip[0] == IN_LOOPBACKNET :
					 ipv6_addr_loopback(&in6));
}

/**
 * memreg_addr_to_kernel() - Convert an address of the ABI to a sockaddr
 * @addr: The address
 * @ss: Filled in
 */
void memreg_addr_to_kernel(const struct ib_memreg_addr *addr,
			   struct sockaddr_storage *ss)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *in = (struct sockaddr_in *)ss;

	memset(ss, 0, sizeof(*ss));
	ss->ss_family = addr->family;
	if (addr->family == AF_INET) {
		in->sin_port = addr->port;
		memcpy(&in->sin_addr, addr->ip, sizeof(in->sin_addr));
	} else {
		in6->sin6_port = addr->port;
		in6->sin6_scope_id = addr->scope_id;
		memcpy(&in6->sin6_addr, addr->ip, sizeof(in6->sin6_addr));
	}
}

/**
 * memreg_addr_from_kernel() - Convert a sockaddr to an address of the ABI
 * @addr: Filled in
 * @ss: The address
 * @id: RDMA CM id that has it
 */
void memreg_addr_from_kernel(struct ib_memreg_addr *addr,
			     const struct sockaddr_storage *ss,
			     const struct rdma_cm_id *id)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
	const struct sockaddr_in *in = (const struct sockaddr_in *)ss;

	memset(addr, 0, sizeof(*addr));
	addr->family = ss->ss_family;
	if (ss->ss_family == AF_INET) {
		addr->port = in->sin_port;
		memcpy(addr->ip, &in->sin_addr, sizeof(in->sin_addr));
	} else {
		addr->port = in6->sin6_port;
		addr->scope_id = in6->sin6_scope_id;
		memcpy(addr->ip, &in6->sin6_addr, sizeof(in6->sin6_addr));
	}
	/* The RDMA CM keeps the scope of a peer's address with the device. */
	if (!addr->scope_id && memreg_addr_link_local(addr))
		addr->scope_id = id->route.addr.dev_addr.bound_dev_if;
}

/**
 * memreg_cm_errno() - Convert an errno of the RDMA CM to one of the ABI
 * @err: The errno
 *
 * Return: an errno that the ABI documents.
 */
int memreg_cm_errno(int err)
{
	switch (err) {
	case -ENOMEM:
	case -ENOSPC:
	case -EACCES:
	case -EPERM:
	case -EADDRINUSE:
	case -EADDRNOTAVAIL:
	case -ENETDOWN:
	case -ENETUNREACH:
	case -EHOSTDOWN:
	case -EHOSTUNREACH:
	case -ETIMEDOUT:
	case -ECONNREFUSED:
	case -ECONNRESET:
		return err;
	case -ENODEV:
		/* The address exists, but no RDMA device has it. */
		return -EADDRNOTAVAIL;
	default:
		return -EPROTO;
	}
}
EXPORT_SYMBOL_IF_KUNIT(memreg_cm_errno);

/**
 * memreg_fail_address() - Fail a call because of an address
 * @ucmd: The call
 * @err: Errno of the RDMA CM
 *
 * Return: the errno of the ABI.
 */
int memreg_fail_address(struct memreg_ucmd *ucmd, int err)
{
	err = memreg_cm_errno(err);
	return err == -ENOMEM ? err :
		memreg_fail(ucmd, err, IB_MEMREG_REASON_ADDRESS);
}

/**
 * memreg_id_create() - Make an RDMA CM id
 * @file: File whose network namespace it is in
 * @handler: Handler of its events
 * @context: Context for @handler
 *
 * Return: the id or an ERR_PTR().
 */
struct rdma_cm_id *memreg_id_create(struct memreg_file *file,
				    rdma_cm_event_handler handler,
				    void *context)
{
	int ret = memreg_inject(MEMREG_INJECT_CREATE_ID);

	return ret ? ERR_PTR(ret) :
		     rdma_create_id(file->net, handler, context, RDMA_PS_TCP,
				    IB_QPT_RC);
}

/**
 * memreg_id_bind() - Give an id a local address
 * @ucmd: Call that asks for it
 * @id: The id
 * @addr: The address, which must not belong to another device
 *
 * Return: 0, or an errno with the reason set.
 */
int memreg_id_bind(struct memreg_ucmd *ucmd, struct rdma_cm_id *id,
		   const struct ib_memreg_addr *addr)
{
	struct sockaddr_storage ss;
	int ret;

	memreg_addr_to_kernel(addr, &ss);
	ret = memreg_inject(MEMREG_INJECT_BIND_ADDR) ?:
	      rdma_bind_addr(id, (struct sockaddr *)&ss);
	if (ret == -EACCES)
		return memreg_fail(ucmd, -EPERM, IB_MEMREG_REASON_ADDRESS);
	/*
	 * The RDMA CM returns EADDRNOTAVAIL for a port in use as well, if
	 * either address is a wildcard. It checks the port only after it has
	 * found the address.
	 */
	if (ret == -EADDRNOTAVAIL && (memreg_addr_anywhere(addr) ||
				      id->route.addr.dev_addr.dev_type))
		ret = -EADDRINUSE;
	if (ret)
		return memreg_fail_address(ucmd, ret);
	if (id->device && id->device != ucmd->mdev->ibdev)
		return memreg_fail(ucmd, -EADDRNOTAVAIL,
				   IB_MEMREG_REASON_ADDRESS);
	return 0;
}

/**
 * memreg_private_data_get() - Copy private data of a call
 * @ucmd: The call
 * @data: Buffer for the copy
 * @from: Address in user space
 * @len: Its length
 * @max: Most bytes that the RDMA CM carries
 *
 * Return: 0, -EFAULT, or -EINVAL with the reason set.
 */
int memreg_private_data_get(struct memreg_ucmd *ucmd, void *data,
			    u64 from, u32 len, u32 max)
{
	if (len > max)
		return memreg_fail(ucmd, -EINVAL,
				   IB_MEMREG_REASON_PRIVATE_DATA);
	return copy_from_user(data, u64_to_user_ptr(from), len) ? -EFAULT : 0;
}
