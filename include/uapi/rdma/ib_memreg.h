/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The user ABI of ib_memreg: RDMA memory registration that is cheap,
 * revocable and safe.
 *
 * The terms (PD, MR, memory window, lkey, rkey) are those of the InfiniBand
 * Architecture Specification, volume 1, chapter 10.
 */
#ifndef _UAPI_RDMA_IB_MEMREG_H
#define _UAPI_RDMA_IB_MEMREG_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * DOC: From when on this may not change
 *
 * Version 1.0.0 of ib_memreg fixes this ABI. Until then a new MINOR version may
 * change anything in this header, so module, library and tool have to be of the
 * same one. From 1.0.0 on:
 *
 *  - The number of a call, the value of an enumerator, the layout of a
 *    structure and the meaning of a field stay what they are.
 *  - A structure grows by fields at its end, which are 0 for callers that do
 *    not know them. A reserved field may get a meaning in which 0 stands for
 *    what was before.
 *  - New calls, flags and enumerators take values that none had before.
 *
 * "The first release", below, is 1.0.0.
 */

/**
 * DOC: General ioctl format
 *
 * One device node, /dev/infiniband/memreg, serves every RDMA device. A file
 * opened on it must first be bound to an RDMA device by
 * IB_MEMREG_IOC_DEVICE_BIND. LIST, STATUS_CREATE, MONITOR_CREATE,
 * MONITOR_DESTROY and DESTROY also work on an unbound file.
 *
 * ioctl(2) makes calls, read(2) returns events, poll(2) waits for events, and
 * the last close(2) destroys every object of the file. The mode that the file
 * was opened with does not matter. Any number of threads may make calls on a
 * file concurrently. A completion ring and a status table have descriptors of
 * their own.
 *
 * Every ioctl takes a pointer to a structure whose first field, @size, is the
 * size that the caller was compiled with. The kernel accepts a smaller
 * structure (missing fields count as 0) down to the size of the first release,
 * and a larger one, of up to IB_MEMREG_SIZE_MAX bytes, if all bytes beyond the
 * kernel's own size are 0. The second field, @out_reason, is written by the
 * kernel if the call fails, with one of enum ib_memreg_reason; not if it
 * succeeds, nor with ENOTTY, nor if @size can't be read or is less than 8.
 * Structures have the same layout for 32-bit and 64-bit callers; pointers
 * travel as __aligned_u64. An unknown flag is EOPNOTSUPP (REASON_FLAGS); a
 * reserved field that is not 0 is EINVAL (REASON_RESERVED). All output fields
 * are ignored on input, and are undefined after a call that failed, unless
 * their description says otherwise; the same holds for arrays.
 *
 * Objects have ids from 1, in one space for all types, which are valid in the
 * file that made them. The kernel allocates ids in ascending order, and reuses
 * an id only after all other ids of 31 bits. 0 is no object.
 *
 * A call that fails changes nothing: it makes no object and no key, and pins no
 * memory. A call on an array processes all entries or none, except SUBMIT and
 * MR_ADVISE, which report the number of entries processed. The errno of a
 * failed call has one meaning:
 *
 *  - ENOTTY: This ioctl number is not known.
 *  - E2BIG: The structure is larger than the kernel's, and has a non-zero
 *    byte beyond what the kernel knows, or is larger than any.
 *  - EINVAL: A field is out of its documented range, @size is too small, or
 *    fields contradict each other.
 *  - EOPNOTSUPP: A flag or a feature that this kernel or this RDMA device
 *    does not have, or that the endpoint's peer has not agreed to.
 *  - EOVERFLOW: addr + length, or offset + length, wraps around.
 *  - EFAULT: A pointer in the structure, or the memory to be registered, is
 *    not mapped in the caller's address space, or not with the protection
 *    that the access flags need.
 *  - ENOENT: There is no object with this id and of this type in this file.
 *  - EBUSY: The object is in use: it has children, bound windows, or work
 *    requests, or another call is using it. Also: an action that is possible
 *    only once was done already, such as binding the file to a device.
 *  - ENOMEM: No kernel memory, or RLIMIT_MEMLOCK is reached.
 *  - EDQUOT: A limit of the caller's rdma cgroup is reached.
 *  - ENOSPC: The RDMA device has no more of such objects, or the file, the
 *    table or the range has as many as it may.
 *  - EACCES: The MR, or the descriptor of the memory, does not allow the
 *    requested access; or, from ENDPOINT_CONNECT and its event, a route forbids
 *    it.
 *  - EPERM: The caller may not lock memory, or may not listen on or connect
 *    from a port below 1024; or the status table is that of another process.
 *  - ENODEV: The file is not bound, there is no such RDMA device in the
 *    caller's network namespace, or the device is gone. Once the device is
 *    gone, all objects of the file are destroyed, status tables and monitors
 *    included, and every call except LIST and close fails with ENODEV.
 *  - ENOTCONN: The endpoint is not in a state in which this can be done.
 *  - EAGAIN: No event is there to read; there is no room for a work request,
 *    for its completion, or for one more queue in a ring; or the state of
 *    memory or device kept changing during the call: try again.
 *  - EMSGSIZE: A message consists of more pieces of memory than the device
 *    takes in one work request, or is longer than the longest message of the
 *    device.
 *  - EINTR: A signal arrived while the call waited; the call has changed
 *    nothing. Only a fatal signal interrupts an ioctl; any signal interrupts
 *    read(2).
 *  - ESTALE: The MR is stale: its memory was unmapped, or the mapping changed.
 *    Its keys are dead, and the MR can only be deregistered, or re-registered
 *    with other memory. Also: the lease has ended.
 *  - EIO: The RDMA device failed a work request, and did so again after the
 *    registration queue was rebuilt; or DOMAIN_CREATE cannot connect a
 *    registration queue; or the device refused a submitted work request.
 *  - ENETDOWN: The registration queue can't be built or rebuilt: usually, the
 *    port of the RDMA device has no usable address.
 *  - EBADF: The descriptor in the structure is not that of an eventfd or of a
 *    dma-buf, whichever the call needs.
 *  - EMFILE, ENFILE: There are too many open files.
 *  - EADDRINUSE, EADDRNOTAVAIL, ENETUNREACH, EHOSTDOWN, EHOSTUNREACH,
 *    ETIMEDOUT, ECONNREFUSED, ECONNRESET: as for connect(2) and bind(2).
 *    ETIMEDOUT also: the completions that RING_WAIT waited for did not come in
 *    time.
 *  - EPROTO: The RDMA CM failed a connection with an errno that is not in this
 *    list.
 *  - ECANCELED, EREMOTEIO: only for commands of io_uring; see struct
 *    ib_memreg_uring_submit.
 *
 * Every ioctl may fail with ENOTTY, E2BIG, EFAULT (the structure), EOPNOTSUPP
 * (flags), EINVAL (size, reserved) and EINTR, and every one but DEVICE_BIND and
 * LIST with ENODEV, whether or not they are among the errors that are listed
 * for it below.
 */

#define IB_MEMREG_IOC_MAGIC	0xBB

/**
 * enum ib_memreg_cmd - The calls, by number
 * @IB_MEMREG_CMD_DEVICE_BIND: Bind the file to a device.
 * @IB_MEMREG_CMD_DEVICE_QUERY: Capabilities and limits of the device.
 * @IB_MEMREG_CMD_DEVICE_STAT: Counters of the device.
 * @IB_MEMREG_CMD_DESTROY: Destroy an object of any type.
 * @IB_MEMREG_CMD_LIST: The live objects of all files.
 * @IB_MEMREG_CMD_SET_USER_DATA: Set the value that identifies an object in
 *   events.
 * @IB_MEMREG_CMD_DOMAIN_CREATE: Make a domain.
 * @IB_MEMREG_CMD_DOMAIN_QUERY: The state of a domain, and its counters.
 * @IB_MEMREG_CMD_MR_REGISTER: Register memory.
 * @IB_MEMREG_CMD_MR_REREGISTER: Change an MR.
 * @IB_MEMREG_CMD_MR_COMPOSE: Make an MR of parts of other MRs.
 * @IB_MEMREG_CMD_MR_QUERY: The keys and the state of an MR.
 * @IB_MEMREG_CMD_MR_ADVISE: Pin ranges of MRs on demand in advance, or unpin
 *   them.
 * @IB_MEMREG_CMD_POOL_CREATE: Register memory as many buffers.
 * @IB_MEMREG_CMD_POOL_RECYCLE: Give buffers of a pool other keys.
 * @IB_MEMREG_CMD_MEMORY_CREATE: Allocate memory that a descriptor names.
 * @IB_MEMREG_CMD_MEMORY_DUP: Make a read-only descriptor of such memory.
 * @IB_MEMREG_CMD_WINDOW_ALLOC: Make windows.
 * @IB_MEMREG_CMD_WINDOW_BIND: Bind windows of type 1.
 * @IB_MEMREG_CMD_WINDOW_REVOKE: Revoke windows of type 1.
 * @IB_MEMREG_CMD_STATUS_CREATE: Make a status table.
 * @IB_MEMREG_CMD_MONITOR_CREATE: Make monitors.
 * @IB_MEMREG_CMD_MONITOR_DESTROY: Destroy monitors.
 * @IB_MEMREG_CMD_LISTENER_CREATE: Listen for connections.
 * @IB_MEMREG_CMD_ENDPOINT_CONNECT: Begin to connect to a peer.
 * @IB_MEMREG_CMD_ENDPOINT_SETUP: Give queues to a peer's request.
 * @IB_MEMREG_CMD_ENDPOINT_ACCEPT: Accept a peer's request.
 * @IB_MEMREG_CMD_ENDPOINT_REJECT: Reject a peer's request.
 * @IB_MEMREG_CMD_ENDPOINT_DISCONNECT: End a connection.
 * @IB_MEMREG_CMD_RING_CREATE: Make a completion ring.
 * @IB_MEMREG_CMD_RING_WAIT: Wait for completions; on the ring's descriptor.
 * @IB_MEMREG_CMD_SRQ_CREATE: Make a shared receive queue.
 * @IB_MEMREG_CMD_SUBMIT: Submit work requests.
 * @IB_MEMREG_CMD_EXPORT_CREATE: Export a part of an MR as a dma-buf.
 * @IB_MEMREG_CMD_EXPORT_REVOKE: Revoke exports.
 * @IB_MEMREG_CMD_LEASE_CREATE: Make a lease.
 * @IB_MEMREG_CMD_LEASE_RENEW: Set the deadlines of leases.
 * @IB_MEMREG_CMD_URING_SUBMIT: Submit work requests by io_uring(7).
 *
 * Calls that are about objects of one type begin with its name, and their
 * numbers with a multiple of 8. Each has a structure of the same name, which is
 * struct ib_memreg_mr_register for IB_MEMREG_CMD_MR_REGISTER, and a number for
 * ioctl(2), which is IB_MEMREG_IOC_MR_REGISTER.
 */
enum ib_memreg_cmd {
	IB_MEMREG_CMD_DEVICE_BIND = 0x00,
	IB_MEMREG_CMD_DEVICE_QUERY = 0x01,
	IB_MEMREG_CMD_DEVICE_STAT = 0x02,
	IB_MEMREG_CMD_DESTROY = 0x08,
	IB_MEMREG_CMD_LIST = 0x09,
	IB_MEMREG_CMD_SET_USER_DATA = 0x0a,
	IB_MEMREG_CMD_DOMAIN_CREATE = 0x10,
	IB_MEMREG_CMD_DOMAIN_QUERY = 0x11,
	IB_MEMREG_CMD_MR_REGISTER = 0x18,
	IB_MEMREG_CMD_MR_REREGISTER = 0x19,
	IB_MEMREG_CMD_MR_COMPOSE = 0x1a,
	IB_MEMREG_CMD_MR_QUERY = 0x1b,
	IB_MEMREG_CMD_MR_ADVISE = 0x1c,
	IB_MEMREG_CMD_POOL_CREATE = 0x20,
	IB_MEMREG_CMD_POOL_RECYCLE = 0x21,
	IB_MEMREG_CMD_MEMORY_CREATE = 0x28,
	IB_MEMREG_CMD_MEMORY_DUP = 0x29,
	IB_MEMREG_CMD_WINDOW_ALLOC = 0x30,
	IB_MEMREG_CMD_WINDOW_BIND = 0x31,
	IB_MEMREG_CMD_WINDOW_REVOKE = 0x32,
	IB_MEMREG_CMD_STATUS_CREATE = 0x38,
	IB_MEMREG_CMD_MONITOR_CREATE = 0x40,
	IB_MEMREG_CMD_MONITOR_DESTROY = 0x41,
	IB_MEMREG_CMD_LISTENER_CREATE = 0x48,
	IB_MEMREG_CMD_ENDPOINT_CONNECT = 0x50,
	IB_MEMREG_CMD_ENDPOINT_SETUP = 0x51,
	IB_MEMREG_CMD_ENDPOINT_ACCEPT = 0x52,
	IB_MEMREG_CMD_ENDPOINT_REJECT = 0x53,
	IB_MEMREG_CMD_ENDPOINT_DISCONNECT = 0x54,
	IB_MEMREG_CMD_RING_CREATE = 0x58,
	IB_MEMREG_CMD_RING_WAIT = 0x59,
	IB_MEMREG_CMD_SRQ_CREATE = 0x60,
	IB_MEMREG_CMD_SUBMIT = 0x68,
	IB_MEMREG_CMD_EXPORT_CREATE = 0x70,
	IB_MEMREG_CMD_EXPORT_REVOKE = 0x71,
	IB_MEMREG_CMD_LEASE_CREATE = 0x78,
	IB_MEMREG_CMD_LEASE_RENEW = 0x79,
	IB_MEMREG_CMD_URING_SUBMIT = 0x80
};

/** IB_MEMREG_SIZE_MAX - most bytes of the structure of a call */
#define IB_MEMREG_SIZE_MAX	4096

/** IB_MEMREG_BATCH_MAX - most entries in one call that takes an array */
#define IB_MEMREG_BATCH_MAX	256

/** IB_MEMREG_POOL_MAX - most buffers of a pool */
#define IB_MEMREG_POOL_MAX	65536

/** IB_MEMREG_STATUS_SLOTS_MAX - most slots of a status table */
#define IB_MEMREG_STATUS_SLOTS_MAX	1048576

/** IB_MEMREG_STATUS_LOG_MAX - most entries of a status table's log */
#define IB_MEMREG_STATUS_LOG_MAX	65536

/** IB_MEMREG_STATUS_GROUP - slots of a status table that share a group */
#define IB_MEMREG_STATUS_GROUP	64

/** IB_MEMREG_MONITOR_DEPTH - most monitors that watch the same range */
#define IB_MEMREG_MONITOR_DEPTH	256

/** IB_MEMREG_RING_ENTRIES_MAX - most entries of a completion ring */
#define IB_MEMREG_RING_ENTRIES_MAX	65536

/** IB_MEMREG_QUEUE_MAX - most work requests on a send or receive queue */
#define IB_MEMREG_QUEUE_MAX	8192

/** IB_MEMREG_SGE_MAX - most SGEs of a work request */
#define IB_MEMREG_SGE_MAX	16

/** IB_MEMREG_INLINE_MAX - most bytes of inline data in a work request */
#define IB_MEMREG_INLINE_MAX	256

/** IB_MEMREG_INSERTS_MAX - most rkeys that are inserted into one message */
#define IB_MEMREG_INSERTS_MAX	16

/** IB_MEMREG_DEVICE_NAME_MAX - size of a device name, the final 0 included */
#define IB_MEMREG_DEVICE_NAME_MAX	64

/** IB_MEMREG_BACKLOG_MAX - most requests that wait at a file's listeners */
#define IB_MEMREG_BACKLOG_MAX	1024

/** IB_MEMREG_LISTENERS_MAX - most listeners of a file */
#define IB_MEMREG_LISTENERS_MAX	256

/** IB_MEMREG_TIMEOUT_MAX_MS - milliseconds that connecting may take at most */
#define IB_MEMREG_TIMEOUT_MAX_MS	60000

/**
 * IB_MEMREG_ACCEPT_MAX_MS - milliseconds in which a peer has to confirm that it
 * was accepted
 */
#define IB_MEMREG_ACCEPT_MAX_MS		30000

/** IB_MEMREG_PRIVATE_DATA_MAX - bytes of private data that an event can hold */
#define IB_MEMREG_PRIVATE_DATA_MAX	200

/**
 * enum ib_memreg_reason - The exact reason why a call failed
 * @IB_MEMREG_REASON_NONE: No reason beyond the errno.
 * @IB_MEMREG_REASON_SIZE: A size is smaller than in the first release.
 * @IB_MEMREG_REASON_FLAGS: An unknown flag is set.
 * @IB_MEMREG_REASON_RESERVED: A reserved field is not 0.
 * @IB_MEMREG_REASON_NOT_BOUND: The file is not bound to a device.
 * @IB_MEMREG_REASON_BOUND: The file is bound to a device already.
 * @IB_MEMREG_REASON_NO_DEVICE: No such device in this network namespace; or no
 *	name was given, and there is not exactly one; or the name has no final
 *	0.
 * @IB_MEMREG_REASON_DEVICE_GONE: The device was removed; RING_WAIT: or the ring
 *	is destroyed.
 * @IB_MEMREG_REASON_NO_FRWR: The device has no fast registration.
 * @IB_MEMREG_REASON_IWARP: A QP of an iWARP device can't be connected to
 *	itself, so there is no registration queue on it.
 * @IB_MEMREG_REASON_NOT_COHERENT: DMA of the device needs bounce buffers or
 *	cache maintenance, which long-lived registrations can't have.
 * @IB_MEMREG_REASON_PORT: No such port, or it has no address.
 * @IB_MEMREG_REASON_ID: No such object, or of another type.
 * @IB_MEMREG_REASON_IN_USE: The object has users, or a call is using it.
 * @IB_MEMREG_REASON_WINDOWS_BOUND: Windows are bound to the MR.
 * @IB_MEMREG_REASON_ZERO_LENGTH: A length of 0.
 * @IB_MEMREG_REASON_WRAPS: addr + length or offset + length wraps around.
 * @IB_MEMREG_REASON_ACCESS: An access flag is unknown.
 * @IB_MEMREG_REASON_ACCESS_DEVICE: The device does not support this access
 *	flag.
 * @IB_MEMREG_REASON_ACCESS_MR: The MR does not allow the access that the window
 *	requests (IB specification 10.6.7.2: a window needs MW_BIND on its MR,
 *	and a window that can be written needs LOCAL_WRITE there).
 * @IB_MEMREG_REASON_IOVA: The requested I/O address differs from the address
 *	of the memory in the offset within a page of 4096 bytes.
 * @IB_MEMREG_REASON_MEMLOCK: RLIMIT_MEMLOCK is reached.
 * @IB_MEMREG_REASON_PIN: The kernel can't pin a page of the memory, and its
 *	mapping shows none of the causes that have a reason of their own, from
 *	IB_MEMREG_REASON_UNMAPPED to IB_MEMREG_REASON_FILE_ERROR. All of these
 *	are about the first page that can't be pinned.
 * @IB_MEMREG_REASON_NOT_PMEM: FLUSH_PERSISTENT on memory that is not
 *	persistent.
 * @IB_MEMREG_REASON_SPAN: The span is more than one key of this device, or
 *	this window, covers, or a work request has more than 2 GiB, or a message
 *	more than IB_MEMREG_CAP_MESSAGE.
 * @IB_MEMREG_REASON_RANGE: The range is not inside the MR; or that of a monitor
 *	is not one of user space, or a wide monitor has one.
 * @IB_MEMREG_REASON_COUNT: The number of entries is 0 or over the limit, or
 *	there are as many listeners as a file may have.
 * @IB_MEMREG_REASON_BOUND_WINDOW: The window is bound.
 * @IB_MEMREG_REASON_DOMAIN: The object belongs to another domain.
 * @IB_MEMREG_REASON_ADDRESS: The address is not IPv4 or IPv6, or not of this
 *	device, or may not be used by this caller; or one to connect to is the
 *	wildcard address, or has port 0.
 * @IB_MEMREG_REASON_PRIVATE_DATA: More private data than the RDMA CM carries.
 * @IB_MEMREG_REASON_STATE: The endpoint is not in the right state.
 * @IB_MEMREG_REASON_CGROUP: A limit of the rdma cgroup is reached.
 * @IB_MEMREG_REASON_QUEUE: The registration queue failed.
 * @IB_MEMREG_REASON_WINDOW_TYPE: The device does not support windows of this
 *	type, or the call does not apply to them.
 * @IB_MEMREG_REASON_TIMEOUT: The timeout is 0 or over the limit.
 * @IB_MEMREG_REASON_STALE: The MR is stale: its memory was unmapped, or the
 *	mapping changed.
 * @IB_MEMREG_REASON_UNSTEADY: The mapping kept changing while it was being
 *	registered.
 * @IB_MEMREG_REASON_OPCODE: No such opcode.
 * @IB_MEMREG_REASON_OPCODE_DEVICE: The device, or its driver's interface for
 *	kernel users, lacks the opcode.
 * @IB_MEMREG_REASON_SGES: More SGEs than the queue was made for, or than
 *	IB_MEMREG_SGE_MAX; or a receive is to have none.
 * @IB_MEMREG_REASON_INLINE: More inline data than the queue was made for, or
 *	than IB_MEMREG_INLINE_MAX.
 * @IB_MEMREG_REASON_FRAGMENTS: The memory of a message is in too many pieces.
 * @IB_MEMREG_REASON_LOCAL_WRITE: The MR doesn't allow local writes.
 * @IB_MEMREG_REASON_QUEUE_FULL: No room on the send or receive queue.
 * @IB_MEMREG_REASON_RING_FULL: No room in the completion ring, or for one more
 *	send queue.
 * @IB_MEMREG_REASON_NO_QUEUE: The endpoint was made without that queue, or the
 *	device has no shared receive queues.
 * @IB_MEMREG_REASON_RING: Entries of a ring can't have this size, or an
 *	endpoint has both a shared receive queue and a ring for one of its own.
 * @IB_MEMREG_REASON_ALIGN: The remote address of an atomic is no multiple of 8.
 * @IB_MEMREG_REASON_EVENTFD: Not an eventfd.
 * @IB_MEMREG_REASON_DRIVER: The driver's way of registering memory breaks
 *	guarantees of memreg.
 * @IB_MEMREG_REASON_CONTIGUOUS: So much contiguous memory is not available now
 *	(ENOMEM), or never (EINVAL).
 * @IB_MEMREG_REASON_NODE: There is no such NUMA node.
 * @IB_MEMREG_REASON_FD: The descriptor is not open.
 * @IB_MEMREG_REASON_FOREIGN: The dma-buf is not a memory object of memreg;
 *	MEMORY_DUP and POOL_CREATE work only on those.
 * @IB_MEMREG_REASON_READ_ONLY: LOCAL_WRITE is asked for, and the descriptor is
 *	not open for writing.
 * @IB_MEMREG_REASON_STRIDE: Buffers of a pool overlap.
 * @IB_MEMREG_REASON_POOL: The MR is not a pool, or is a pool whose buffers have
 *	no keys; from MR_REREGISTER: the MR is a pool.
 * @IB_MEMREG_REASON_TWICE: A buffer or a window is named twice, or a
 *	composition that can be written contains a byte twice.
 * @IB_MEMREG_REASON_PROCESS: The memory, or the status table, is that of
 *	another process.
 * @IB_MEMREG_REASON_COMPOSED: The MR is a piece of a composition; from
 *	MR_REREGISTER also: the MR is a composition.
 * @IB_MEMREG_REASON_GAPS: One key can't span the range of a composition: pieces
 *	do not begin and end at multiples of 4096 bytes, and the device lacks
 *	IB_MEMREG_CAP_SG_GAPS.
 * @IB_MEMREG_REASON_SLOTS: All slots of the status table are in use.
 * @IB_MEMREG_REASON_LOG: The number of entries of a log is no power of two or
 *	over the limit; or a wide monitor is asked for on a status table that
 *	has no log (EINVAL), or that has one already (EBUSY).
 * @IB_MEMREG_REASON_EXPORTER: The exporter of the dma-buf refuses to attach the
 *	device, or to pin or map the memory: not now (EAGAIN), or not at all;
 *	from MR_COMPOSE: the exporter may take the memory of a piece away.
 * @IB_MEMREG_REASON_NO_CPU: The device is software, and the CPU does not reach
 *	the memory of the dma-buf.
 * @IB_MEMREG_REASON_ON_DEMAND: An MR on demand cannot be a piece of a
 *	composition.
 * @IB_MEMREG_REASON_NOT_ON_DEMAND: The MR is not on demand: all of it is
 *	pinned.
 * @IB_MEMREG_REASON_ADVICE: There is no such advice.
 * @IB_MEMREG_REASON_DEVICE_PAGING: Remote access to an MR on demand by keys of
 *	its own, for which the device would have to fault pages in by itself: no
 *	driver is known to do that well; nor for IB_MEMREG_MR_IMPLICIT, or with
 *	an iova that is not @addr (EOPNOTSUPP). See IB_MEMREG_CAP_ODP_KEYS.
 * @IB_MEMREG_REASON_DEPTH: IB_MEMREG_MONITOR_DEPTH monitors of the process
 *	watch the range's first, middle or last page already.
 * @IB_MEMREG_REASON_WINDOW_ACCESS: An access flag is set that a window can't
 *	have.
 * @IB_MEMREG_REASON_NO_REMOTE: The window has no remote access.
 * @IB_MEMREG_REASON_REMOTE_WRITE: REMOTE_WRITE is set without LOCAL_WRITE.
 * @IB_MEMREG_REASON_REMOTE_ATOMIC: REMOTE_ATOMIC is set without LOCAL_WRITE.
 * @IB_MEMREG_REASON_IOVA_WRAPS: iova + length wraps around.
 * @IB_MEMREG_REASON_IOVA_ZERO_BASED: An I/O address is given together with
 *	ZERO_BASED.
 * @IB_MEMREG_REASON_ZERO_BASED: A range that is ZERO_BASED does not begin at a
 *	multiple of 4096.
 * @IB_MEMREG_REASON_NOT_DMABUF: The descriptor is not one of a dma-buf.
 * @IB_MEMREG_REASON_ON_DEMAND_UNGUARDED: ON_DEMAND together with UNGUARDED.
 * @IB_MEMREG_REASON_ON_DEMAND_FD: ON_DEMAND together with IB_MEMREG_MR_FD.
 * @IB_MEMREG_REASON_IMPLICIT: IMPLICIT without ON_DEMAND.
 * @IB_MEMREG_REASON_IMPLICIT_RANGE: @addr or @length is not 0 with IMPLICIT.
 * @IB_MEMREG_REASON_TOO_LONG: An MR has more than 2^32 - 1 system pages.
 * @IB_MEMREG_REASON_UNMAPPED: Nothing is mapped at an address of the range.
 * @IB_MEMREG_REASON_NOT_READABLE: The mapping of the memory is not readable.
 * @IB_MEMREG_REASON_NOT_WRITABLE: LOCAL_WRITE is set, or a range is to be
 *	written, and the mapping of the memory is not writable.
 * @IB_MEMREG_REASON_IO_MEMORY: The mapping is one of a device's memory, or of
 *	other memory without struct page (VM_IO, VM_PFNMAP).
 * @IB_MEMREG_REASON_SECRET: The memory is that of memfd_secret(2).
 * @IB_MEMREG_REASON_DAX: The memory is that of a file that is mapped by DAX.
 * @IB_MEMREG_REASON_FILE_WRITE: The memory is to be written, and is a shared
 *	mapping of a file on a file system that has to know of each write; all
 *	but tmpfs and hugetlbfs are.
 * @IB_MEMREG_REASON_FILE_END: The memory is a mapping of a file, and a page of
 *	it is behind the end of the file.
 * @IB_MEMREG_REASON_HUGE_PAGES: There are too few free huge pages for a mapping
 *	of hugetlbfs or of MAP_HUGETLB.
 * @IB_MEMREG_REASON_FILE_FULL: The file system has no room for a page of the
 *	file that the memory is a mapping of.
 * @IB_MEMREG_REASON_FILE_ERROR: The file system provides no page of the file
 *	that the memory is a mapping of, for another cause: an access would
 *	raise SIGBUS.
 * @IB_MEMREG_REASON_BUSY_WINDOW: Another call is binding or revoking the
 *	window.
 * @IB_MEMREG_REASON_UNBOUND_WINDOW: The window to be invalidated is not bound
 *	on that endpoint.
 * @IB_MEMREG_REASON_QUEUE_SEND: Of a send queue's ring, depth and SGEs some are
 *	0, and not all; or max_inline is set without a send queue.
 * @IB_MEMREG_REASON_QUEUE_RECV: Of a receive queue's ring, depth and SGEs some
 *	are 0, and not all.
 * @IB_MEMREG_REASON_OPCODE_QUEUE: A shared receive queue takes only RECVs, and
 *	from io_uring none with a registered buffer.
 * @IB_MEMREG_REASON_OPCODE_PEER: A READ, an atomic or an ATOMIC_WRITE, and the
 *	endpoint's peer has agreed to none.
 * @IB_MEMREG_REASON_ATOMIC_SGES: An atomic has another number of SGEs than 1.
 * @IB_MEMREG_REASON_ATOMIC_LENGTH: The length of an atomic is not 8.
 * @IB_MEMREG_REASON_INLINE_OPCODE: The opcode takes no inline data.
 * @IB_MEMREG_REASON_INSERTS: More than IB_MEMREG_INSERTS_MAX rkeys are to be
 *	inserted into one message.
 * @IB_MEMREG_REASON_INSERT_MESSAGE: rkeys are to be inserted into a message
 *	without inline data.
 * @IB_MEMREG_REASON_INSERT_AT: An rkey is to be inserted behind the end of the
 *	inline data.
 * @IB_MEMREG_REASON_KEY_PAGES: One key can't span the range of a composition:
 *	the list of a key has IB_MEMREG_CAP_KEY_PAGES entries, and there are
 *	more pages, of the largest size that the memory allows, or more pieces
 *	with IB_MEMREG_CAP_SG_GAPS.
 * @IB_MEMREG_REASON_URING_TARGET: The work requests of a command of io_uring
 *	are for several targets.
 * @IB_MEMREG_REASON_URING_COUNT: A RECV, or a work request on a registered
 *	buffer of io_uring, is not the only one of its command.
 * @IB_MEMREG_REASON_URING_SGE: A work request on a registered buffer of
 *	io_uring has another number of SGEs than 1, or one with an mr_id.
 * @IB_MEMREG_REASON_EXPORT_KERNEL: The kernel can't ask importers of dma-bufs
 *	whether they can be revoked: it is too old.
 * @IB_MEMREG_REASON_EXPORT_MEMORY: Exports are not of MRs on demand, nor of
 *	compositions, nor of dma-bufs of other exporters that may take the
 *	memory away or that the CPU does not reach.
 * @IB_MEMREG_REASON_EXPORT_PAGES: An export is of whole pages of the system:
 *	its importers reach all of each page.
 * @IB_MEMREG_REASON_EXPORTS: The user has as many exports and monitors of
 *	dma-bufs as descriptors (RLIMIT_NOFILE).
 * @IB_MEMREG_REASON_EXPORTED: The MR has exports that were not revoked.
 * @IB_MEMREG_REASON_EXPORT_LATE: An importer of the export has not let go of
 *	the memory within a second. The pages stay pinned until it does: try
 *	again.
 * @IB_MEMREG_REASON_LEASE_ENDED: The time of the lease is over.
 * @IB_MEMREG_REASON_LEASE_GRANTS: Windows are bound under the lease, or exports
 *	under it were not revoked.
 */
enum ib_memreg_reason {
	IB_MEMREG_REASON_NONE = 0,
	IB_MEMREG_REASON_SIZE = 1,
	IB_MEMREG_REASON_FLAGS = 2,
	IB_MEMREG_REASON_RESERVED = 3,
	IB_MEMREG_REASON_NOT_BOUND = 4,
	IB_MEMREG_REASON_BOUND = 5,
	IB_MEMREG_REASON_NO_DEVICE = 6,
	IB_MEMREG_REASON_DEVICE_GONE = 7,
	IB_MEMREG_REASON_NO_FRWR = 8,
	IB_MEMREG_REASON_IWARP = 9,
	IB_MEMREG_REASON_NOT_COHERENT = 10,
	IB_MEMREG_REASON_PORT = 11,
	IB_MEMREG_REASON_ID = 12,
	IB_MEMREG_REASON_IN_USE = 13,
	IB_MEMREG_REASON_WINDOWS_BOUND = 14,
	IB_MEMREG_REASON_ZERO_LENGTH = 15,
	IB_MEMREG_REASON_WRAPS = 16,
	IB_MEMREG_REASON_ACCESS = 17,
	IB_MEMREG_REASON_ACCESS_DEVICE = 18,
	IB_MEMREG_REASON_ACCESS_MR = 19,
	IB_MEMREG_REASON_IOVA = 20,
	IB_MEMREG_REASON_MEMLOCK = 21,
	IB_MEMREG_REASON_PIN = 22,
	IB_MEMREG_REASON_NOT_PMEM = 23,
	IB_MEMREG_REASON_SPAN = 24,
	IB_MEMREG_REASON_RANGE = 25,
	IB_MEMREG_REASON_COUNT = 26,
	IB_MEMREG_REASON_BOUND_WINDOW = 27,
	IB_MEMREG_REASON_DOMAIN = 28,
	IB_MEMREG_REASON_ADDRESS = 29,
	IB_MEMREG_REASON_PRIVATE_DATA = 30,
	IB_MEMREG_REASON_STATE = 31,
	IB_MEMREG_REASON_CGROUP = 32,
	IB_MEMREG_REASON_QUEUE = 33,
	IB_MEMREG_REASON_WINDOW_TYPE = 34,
	IB_MEMREG_REASON_TIMEOUT = 35,
	IB_MEMREG_REASON_STALE = 36,
	IB_MEMREG_REASON_UNSTEADY = 37,
	IB_MEMREG_REASON_OPCODE = 38,
	IB_MEMREG_REASON_OPCODE_DEVICE = 39,
	IB_MEMREG_REASON_SGES = 40,
	IB_MEMREG_REASON_INLINE = 41,
	IB_MEMREG_REASON_FRAGMENTS = 42,
	IB_MEMREG_REASON_LOCAL_WRITE = 43,
	IB_MEMREG_REASON_QUEUE_FULL = 44,
	IB_MEMREG_REASON_RING_FULL = 45,
	IB_MEMREG_REASON_NO_QUEUE = 46,
	IB_MEMREG_REASON_RING = 47,
	IB_MEMREG_REASON_ALIGN = 48,
	IB_MEMREG_REASON_EVENTFD = 49,
	IB_MEMREG_REASON_DRIVER = 50,
	IB_MEMREG_REASON_CONTIGUOUS = 51,
	IB_MEMREG_REASON_NODE = 52,
	IB_MEMREG_REASON_FD = 53,
	IB_MEMREG_REASON_FOREIGN = 54,
	IB_MEMREG_REASON_READ_ONLY = 55,
	IB_MEMREG_REASON_STRIDE = 56,
	IB_MEMREG_REASON_POOL = 57,
	IB_MEMREG_REASON_TWICE = 58,
	IB_MEMREG_REASON_PROCESS = 59,
	IB_MEMREG_REASON_COMPOSED = 60,
	IB_MEMREG_REASON_GAPS = 61,
	IB_MEMREG_REASON_SLOTS = 62,
	IB_MEMREG_REASON_LOG = 63,
	IB_MEMREG_REASON_EXPORTER = 64,
	IB_MEMREG_REASON_NO_CPU = 65,
	IB_MEMREG_REASON_ON_DEMAND = 66,
	IB_MEMREG_REASON_NOT_ON_DEMAND = 67,
	IB_MEMREG_REASON_ADVICE = 68,
	IB_MEMREG_REASON_DEVICE_PAGING = 69,
	IB_MEMREG_REASON_DEPTH = 70,
	IB_MEMREG_REASON_WINDOW_ACCESS = 71,
	IB_MEMREG_REASON_NO_REMOTE = 72,
	IB_MEMREG_REASON_REMOTE_WRITE = 73,
	IB_MEMREG_REASON_REMOTE_ATOMIC = 74,
	IB_MEMREG_REASON_IOVA_WRAPS = 75,
	IB_MEMREG_REASON_IOVA_ZERO_BASED = 76,
	IB_MEMREG_REASON_ZERO_BASED = 77,
	IB_MEMREG_REASON_NOT_DMABUF = 78,
	IB_MEMREG_REASON_ON_DEMAND_UNGUARDED = 79,
	IB_MEMREG_REASON_ON_DEMAND_FD = 80,
	IB_MEMREG_REASON_IMPLICIT = 81,
	IB_MEMREG_REASON_IMPLICIT_RANGE = 82,
	IB_MEMREG_REASON_TOO_LONG = 83,
	IB_MEMREG_REASON_UNMAPPED = 84,
	IB_MEMREG_REASON_NOT_READABLE = 85,
	IB_MEMREG_REASON_NOT_WRITABLE = 86,
	IB_MEMREG_REASON_IO_MEMORY = 87,
	IB_MEMREG_REASON_SECRET = 88,
	IB_MEMREG_REASON_DAX = 89,
	IB_MEMREG_REASON_FILE_WRITE = 90,
	IB_MEMREG_REASON_FILE_END = 91,
	IB_MEMREG_REASON_HUGE_PAGES = 92,
	IB_MEMREG_REASON_FILE_FULL = 93,
	IB_MEMREG_REASON_FILE_ERROR = 94,
	IB_MEMREG_REASON_BUSY_WINDOW = 95,
	IB_MEMREG_REASON_UNBOUND_WINDOW = 96,
	IB_MEMREG_REASON_QUEUE_SEND = 97,
	IB_MEMREG_REASON_QUEUE_RECV = 98,
	IB_MEMREG_REASON_OPCODE_QUEUE = 99,
	IB_MEMREG_REASON_OPCODE_PEER = 100,
	IB_MEMREG_REASON_ATOMIC_SGES = 101,
	IB_MEMREG_REASON_ATOMIC_LENGTH = 102,
	IB_MEMREG_REASON_INLINE_OPCODE = 103,
	IB_MEMREG_REASON_INSERTS = 104,
	IB_MEMREG_REASON_INSERT_MESSAGE = 105,
	IB_MEMREG_REASON_INSERT_AT = 106,
	IB_MEMREG_REASON_KEY_PAGES = 107,
	IB_MEMREG_REASON_URING_TARGET = 108,
	IB_MEMREG_REASON_URING_COUNT = 109,
	IB_MEMREG_REASON_URING_SGE = 110,
	IB_MEMREG_REASON_EXPORT_KERNEL = 111,
	IB_MEMREG_REASON_EXPORT_MEMORY = 112,
	IB_MEMREG_REASON_EXPORT_PAGES = 113,
	IB_MEMREG_REASON_EXPORTS = 114,
	IB_MEMREG_REASON_EXPORTED = 115,
	IB_MEMREG_REASON_EXPORT_LATE = 116,
	IB_MEMREG_REASON_LEASE_ENDED = 117,
	IB_MEMREG_REASON_LEASE_GRANTS = 118
};

/**
 * enum ib_memreg_access - Access flags of MRs and windows
 * @IB_MEMREG_ACCESS_LOCAL_WRITE: Local work may write.
 * @IB_MEMREG_ACCESS_REMOTE_WRITE: Peers may RDMA WRITE; needs LOCAL_WRITE.
 * @IB_MEMREG_ACCESS_REMOTE_READ: Peers may RDMA READ.
 * @IB_MEMREG_ACCESS_REMOTE_ATOMIC: Peers may do atomics; needs LOCAL_WRITE.
 * @IB_MEMREG_ACCESS_MW_BIND: Windows may be bound to this MR.
 * @IB_MEMREG_ACCESS_ZERO_BASED: I/O addresses begin at 0. The memory must then
 *	begin at a multiple of 4096 bytes.
 * @IB_MEMREG_ACCESS_FLUSH_GLOBAL: Peers may FLUSH to global visibility.
 * @IB_MEMREG_ACCESS_FLUSH_PERSISTENT: Peers may FLUSH to persistence; the
 *	memory must be persistent.
 * @IB_MEMREG_ACCESS_RELAXED_ORDERING: A hint that writes may pass one another.
 *	As in verbs the flag is never an error; devices without relaxed ordering
 *	ignore it. Some devices reorder writes even without the flag: see
 *	IB_MEMREG_CAP_WRITE_ORDER.
 *
 * The values are those of enum ib_uverbs_access_flags; see ibv_reg_mr(3).
 * Local read is always allowed.
 */
enum ib_memreg_access {
	IB_MEMREG_ACCESS_LOCAL_WRITE = 1 << 0,
	IB_MEMREG_ACCESS_REMOTE_WRITE = 1 << 1,
	IB_MEMREG_ACCESS_REMOTE_READ = 1 << 2,
	IB_MEMREG_ACCESS_REMOTE_ATOMIC = 1 << 3,
	IB_MEMREG_ACCESS_MW_BIND = 1 << 4,
	IB_MEMREG_ACCESS_ZERO_BASED = 1 << 5,
	IB_MEMREG_ACCESS_FLUSH_GLOBAL = 1 << 8,
	IB_MEMREG_ACCESS_FLUSH_PERSISTENT = 1 << 9,
	IB_MEMREG_ACCESS_RELAXED_ORDERING = 1 << 20
};

/**
 * struct ib_memreg_addr - An IP address and a port of the RDMA CM
 * @family: AF_INET or AF_INET6
 * @port: Port in the port space RDMA_PS_TCP, network byte order
 * @scope_id: Scope of a link-local IPv6 address, 0 otherwise
 * @ip: The address in network byte order; IPv4 uses the first 4 bytes, and
 *	the others must be 0
 */
struct ib_memreg_addr {
	__u16 family;
	__be16 port;
	__u32 scope_id;
	__u8 ip[16];
};

/**
 * struct ib_memreg_device_bind - ioctl(IB_MEMREG_IOC_DEVICE_BIND)
 * @size: sizeof(struct ib_memreg_device_bind)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @out_index: Index of the device, unique among those present; names change,
 *	the index does not
 * @name: Name of the RDMA device, 0-terminated, such as "rxe0"; an empty name
 *	takes the only device of the namespace, and is ENODEV if there is none
 *	or more than one. On return: the name of the device.
 *
 * Bind this file to a device that the caller's network namespace may see, and
 * fix that network namespace as the one in which the file listens and connects.
 * A file can be bound only once, and stays bound.
 *
 * Errors: EINVAL (@name has no final 0), ENODEV, EBUSY (bound already),
 * EOPNOTSUPP (the device lacks fast registration, or is iWARP, or its driver
 * breaks guarantees of memreg; see @out_reason), EDQUOT (each bound file takes
 * an HCA handle), ENOMEM.
 */
struct ib_memreg_device_bind {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 out_index;
	char name[IB_MEMREG_DEVICE_NAME_MAX];
};

#define IB_MEMREG_IOC_DEVICE_BIND \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_DEVICE_BIND)

/**
 * enum ib_memreg_backing - The mechanism that provides a capability
 * @IB_MEMREG_BACKING_NONE: Nothing: it is not available.
 * @IB_MEMREG_BACKING_DEVICE: The RDMA device and its driver.
 * @IB_MEMREG_BACKING_FRWR: Fast registration work requests of the device.
 * @IB_MEMREG_BACKING_KERNEL: ib_memreg itself, in software.
 */
enum ib_memreg_backing {
	IB_MEMREG_BACKING_NONE = 0,
	IB_MEMREG_BACKING_DEVICE = 1,
	IB_MEMREG_BACKING_FRWR = 2,
	IB_MEMREG_BACKING_KERNEL = 3
};

/**
 * enum ib_memreg_cap - Capabilities and limits that DEVICE_QUERY returns
 * @IB_MEMREG_CAP_KEY_PAGES: Pages under one key: the length of the device's
 *	page list, at most 4096.
 * @IB_MEMREG_CAP_KEY_SPAN: Bytes under one key with pages of 4096 bytes. A
 *	window covers at most a page less, as it may begin inside a page.
 * @IB_MEMREG_CAP_PAGE_SIZES: Bitmap of the page sizes in bytes that a key can
 *	be made of.
 * @IB_MEMREG_CAP_ACCESS: Mask of the access flags that the device supports.
 * @IB_MEMREG_CAP_WINDOW_TYPE1: 1 if the device supports windows of type 1.
 * @IB_MEMREG_CAP_WINDOW_TYPE2B: 1 if the device supports windows of type 2B.
 * @IB_MEMREG_CAP_INLINE_RECEIVE: Bytes received in a completion entry of 128
 *	bytes (96); one of 64 bytes takes 64 less.
 * @IB_MEMREG_CAP_STRICT_INVALIDATE: 1 if a key's invalidation waits for the
 *	packets in flight, as the specification requires. Where it is 0, only
 *	destroying the key's MR waits for them; a revoke destroys the MR there,
 *	unless it has IB_MEMREG_REVOKE_RELAXED: see "What is known when a key
 *	has ended".
 * @IB_MEMREG_CAP_MAX_MR: MRs of the device. Segments, bound windows, buffers of
 *	a pool, idle MRs of domains and, on soft-RoCE, domains take one each.
 * @IB_MEMREG_CAP_MAX_QP: QPs of the device; a domain and an endpoint take one
 *	each.
 * @IB_MEMREG_CAP_CONNECT_DATA: Bytes of private data with ENDPOINT_CONNECT
 *	(56).
 * @IB_MEMREG_CAP_ACCEPT_DATA: Bytes of private data with ENDPOINT_ACCEPT (196).
 * @IB_MEMREG_CAP_REJECT_DATA: Bytes of private data with ENDPOINT_REJECT (148).
 * @IB_MEMREG_CAP_OPCODES: Mask of 1 << enum ib_memreg_opcode that can be
 *	submitted.
 * @IB_MEMREG_CAP_FRAGMENTS: Pieces of memory, contiguous for the device, in one
 *	work request, at most 32. A SEND cannot have more, a RECV with inline
 *	receive has one less, and a RECV on a shared receive queue may have
 *	fewer. A WRITE or READ with more pieces is split into several work
 *	requests, up to 32 times as many pieces. On a deep send queue the device
 *	may allow fewer pieces in each work request, but never fewer than the
 *	SGEs requested for the queue.
 * @IB_MEMREG_CAP_QUEUE: Work requests on a send or receive queue: one less than
 *	the device has, up to IB_MEMREG_QUEUE_MAX.
 * @IB_MEMREG_CAP_RING: Entries of a completion ring: one less than a completion
 *	queue of the device has, rounded down to a power of two, up to
 *	IB_MEMREG_RING_ENTRIES_MAX.
 * @IB_MEMREG_CAP_URING: 1 if IB_MEMREG_URING_SUBMIT works.
 * @IB_MEMREG_CAP_MESSAGE: Most bytes of a message on the device's ports, at
 *	most 1 GiB. No SEND can be longer; a longer WRITE or READ is split into
 *	several work requests.
 * @IB_MEMREG_CAP_WRITE_ORDER: 1 if a process that polls memory sees the writes
 *	of a peer in the order in which the peer made them, without
 *	IB_MEMREG_ACCESS_RELAXED_ORDERING. Where it is 0, the driver always
 *	allows writes to be reordered: wait for completions, which come after
 *	the data that they report.
 * @IB_MEMREG_CAP_CONTIGUOUS: Bytes of memory in one block, at most: see
 *	MEMORY_CREATE.
 * @IB_MEMREG_CAP_DMABUF: 1 if MR_REGISTER takes descriptors of dma-bufs of
 *	exporters other than memreg. Backed by the device, MR_REGISTER takes any
 *	memory that the exporter maps for the device; backed by ib_memreg, only
 *	memory that the CPU reaches.
 * @IB_MEMREG_CAP_POOL: Buffers of a pool.
 * @IB_MEMREG_CAP_SG_GAPS: 1 if one key can span pieces of a composition that
 *	begin and end inside of pages, as many as IB_MEMREG_CAP_KEY_PAGES.
 * @IB_MEMREG_CAP_ODP_EXPLICIT: 1 if MRs on demand can be registered: see
 *	IB_MEMREG_MR_ON_DEMAND.
 * @IB_MEMREG_CAP_ODP_IMPLICIT: 1 if the whole address space can be one MR: see
 *	IB_MEMREG_MR_IMPLICIT.
 * @IB_MEMREG_CAP_ADVISE: Mask of 1 << enum ib_memreg_advice that MR_ADVISE
 *	takes.
 * @IB_MEMREG_CAP_ODP_KEYS: 1 if MRs on demand can have remote access, by keys
 *	whose pages the device faults in. Such a key does not die when the
 *	mapping goes: from then on it is to what is mapped next. At present 1 on
 *	no device but that of the test bench: of the two drivers that make such
 *	keys, soft-RoCE (Linux 7.3) ignores offsets in pages, and memreg is
 *	untested on mlx5. Windows on MRs on demand work on all devices. What a
 *	device counts of its own faults is in "rdma statistic show mr".
 * @IB_MEMREG_CAP_EXPORT: 1 if parts of MRs can be exported: see EXPORT_CREATE.
 * @IB_MEMREG_CAP_EXPORT_REGISTER: 1 if an application can register exports in a
 *	protection domain of its own on this device, as its driver imports
 *	dma-bufs in a way that can be revoked: those of irdma and mlx5 do. 0
 *	also for rxe, which imports none, and for bnxt_re, efa, ionic and mana,
 *	which cannot be revoked.
 * @IB_MEMREG_CAP_LEASE: 1 if grants can end at a deadline: see LEASE_CREATE.
 */
enum ib_memreg_cap {
	IB_MEMREG_CAP_KEY_PAGES = 1,
	IB_MEMREG_CAP_KEY_SPAN = 2,
	IB_MEMREG_CAP_PAGE_SIZES = 3,
	IB_MEMREG_CAP_ACCESS = 4,
	IB_MEMREG_CAP_WINDOW_TYPE1 = 5,
	IB_MEMREG_CAP_WINDOW_TYPE2B = 6,
	IB_MEMREG_CAP_INLINE_RECEIVE = 7,
	IB_MEMREG_CAP_STRICT_INVALIDATE = 8,
	IB_MEMREG_CAP_MAX_MR = 9,
	IB_MEMREG_CAP_MAX_QP = 10,
	IB_MEMREG_CAP_CONNECT_DATA = 11,
	IB_MEMREG_CAP_ACCEPT_DATA = 12,
	IB_MEMREG_CAP_REJECT_DATA = 13,
	IB_MEMREG_CAP_OPCODES = 14,
	IB_MEMREG_CAP_FRAGMENTS = 15,
	IB_MEMREG_CAP_QUEUE = 16,
	IB_MEMREG_CAP_RING = 17,
	IB_MEMREG_CAP_URING = 18,
	IB_MEMREG_CAP_MESSAGE = 19,
	IB_MEMREG_CAP_WRITE_ORDER = 20,
	IB_MEMREG_CAP_CONTIGUOUS = 21,
	IB_MEMREG_CAP_DMABUF = 22,
	IB_MEMREG_CAP_POOL = 23,
	IB_MEMREG_CAP_SG_GAPS = 24,
	IB_MEMREG_CAP_ODP_EXPLICIT = 25,
	IB_MEMREG_CAP_ODP_IMPLICIT = 26,
	IB_MEMREG_CAP_ADVISE = 27,
	IB_MEMREG_CAP_ODP_KEYS = 28,
	IB_MEMREG_CAP_EXPORT = 29,
	IB_MEMREG_CAP_EXPORT_REGISTER = 30,
	IB_MEMREG_CAP_LEASE = 31
};

/**
 * struct ib_memreg_cap_entry - One capability
 * @cap: enum ib_memreg_cap
 * @backing: enum ib_memreg_backing
 * @value: Value, described at the capability; 0 where @backing is NONE
 */
struct ib_memreg_cap_entry {
	__u32 cap;
	__u32 backing;
	__aligned_u64 value;
};

/**
 * struct ib_memreg_device_query - ioctl(IB_MEMREG_IOC_DEVICE_QUERY)
 * @size: sizeof(struct ib_memreg_device_query)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @count: In: entries that @caps has room for. Out: number of entries that
 *	exist; only the first ones are written if there is room for fewer.
 * @caps: Pointer to an array of struct ib_memreg_cap_entry; unused if @count
 *	is 0
 * @out_index: Index of the device
 * @out_ports: Ports of the device, which count from 1
 * @out_name: The present name of the device
 *
 * Errors: ENODEV, EFAULT.
 */
struct ib_memreg_device_query {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 count;
	__aligned_u64 caps;
	__u32 out_index;
	__u32 out_ports;
	char out_name[IB_MEMREG_DEVICE_NAME_MAX];
};

#define IB_MEMREG_IOC_DEVICE_QUERY \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_DEVICE_QUERY)

/**
 * enum ib_memreg_stat_id - Counters of DEVICE_STAT, from the addition of the
 * device on
 * @IB_MEMREG_STAT_KEYS_MADE: Keys that worked: of MRs and of windows.
 * @IB_MEMREG_STAT_KEYS_KILLED: Keys that were killed. The difference is the
 *	number of keys that work now.
 * @IB_MEMREG_STAT_BATCHES: Batches of work requests posted on registration
 *	queues.
 * @IB_MEMREG_STAT_WORK_REQUESTS: Work requests in them: REG_MR and LOCAL_INV.
 *	Those of windows of type 2B go by other queues, and are not counted.
 * @IB_MEMREG_STAT_FRWRS_ALLOCATED: Fast registration MRs made by the device,
 *	and MRs whose pages it faults in: see IB_MEMREG_CAP_ODP_KEYS.
 * @IB_MEMREG_STAT_FRWRS_DESTROYED: Those destroyed, for any reason. The
 *	difference is the number that exists now, without one MR of each domain
 *	on soft-RoCE.
 * @IB_MEMREG_STAT_FRWRS_REUSED: Times that an idle fast registration MR was
 *	taken for a key.
 * @IB_MEMREG_STAT_FRWRS_FOREIGN: Fast registration MRs destroyed instead of
 *	being reused for a range other than their last one, where
 *	IB_MEMREG_CAP_STRICT_INVALIDATE is 0.
 * @IB_MEMREG_STAT_FRWRS_FAILED: Fast registration MRs destroyed because a work
 *	request of theirs failed or was flushed, so that their state was
 *	unknown.
 * @IB_MEMREG_STAT_FRWRS_REAPED: Fast registration MRs destroyed after being
 *	idle for long, or with their domain.
 * @IB_MEMREG_STAT_QUEUE_BREAKS: Times that a registration queue stopped
 *	working: a work request failed or took too long, or the GID was removed.
 * @IB_MEMREG_STAT_QUEUE_REBUILDS: Times that one was rebuilt.
 * @IB_MEMREG_STAT_QUEUE_REBUILDS_FAILED: Times that one could not be rebuilt.
 * @IB_MEMREG_STAT_GUARD_EVENTS: Events of the kernel on memory that is guarded,
 *	once for each MR.
 * @IB_MEMREG_STAT_GUARD_REVOCATIONS: MRs that became stale.
 * @IB_MEMREG_STAT_GUARD_SUSPECTS: Suspect events, after which the mapping is
 *	checked.
 * @IB_MEMREG_STAT_GUARD_UNCHANGED: Checks that found the memory unchanged.
 * @IB_MEMREG_STAT_GUARD_LATER: Checks without a result, so that another one
 *	followed.
 * @IB_MEMREG_STAT_GUARD_GONE: Checks that found the memory gone.
 * @IB_MEMREG_STAT_GUARD_SPURIOUS: Times that MR_QUERY found the memory
 *	unchanged although its keys had been killed.
 * @IB_MEMREG_STAT_GUARD_TIMEOUTS: Waits for keys to die that timed out.
 * @IB_MEMREG_STAT_GUARD_KILLS: Keys that no work request could kill, so that a
 *	worker destroyed their MRs.
 * @IB_MEMREG_STAT_MRS_REGISTERED: MRs registered.
 * @IB_MEMREG_STAT_MRS_DEREGISTERED: MRs deregistered, by a call or otherwise.
 * @IB_MEMREG_STAT_PAGES_PINNED: Pages of 4096 bytes pinned.
 * @IB_MEMREG_STAT_PAGES_UNPINNED: Pages of 4096 bytes unpinned.
 * @IB_MEMREG_STAT_WINDOWS_BOUND: Windows bound.
 * @IB_MEMREG_STAT_WINDOWS_REVOKED: Windows revoked, by a call or otherwise. If
 *	a guard kills the key, the window stays bound.
 * @IB_MEMREG_STAT_ENDPOINTS_ESTABLISHED: Connections that were established.
 * @IB_MEMREG_STAT_ENDPOINTS_DISCONNECTED: Established connections that ended.
 * @IB_MEMREG_STAT_ENDPOINTS_REJECTED: Requests for a connection that were
 *	rejected by either side, or given up before they were accepted.
 * @IB_MEMREG_STAT_ENDPOINTS_FAILED: Connections that were not established for
 *	another reason.
 * @IB_MEMREG_STAT_WRS_SUBMITTED: Work requests of users that were posted; one
 *	that is split into parts counts once.
 * @IB_MEMREG_STAT_WRS_COMPLETED: Completions of work requests that were
 *	reported, in a ring or by io_uring. A work request without SIGNALED that
 *	succeeds has none.
 * @IB_MEMREG_STAT_WRS_FAILED: Completions that report a failure: also flushed
 *	sends, but not receives that are flushed when their connection ends.
 * @IB_MEMREG_STAT_INLINE_RECEIVES: Messages delivered in completion entries.
 * @IB_MEMREG_STAT_INLINE_COPIES: Messages that were too long for a completion
 *	entry, so that their head was copied to the buffer.
 * @IB_MEMREG_STAT_REMOTE_INVALIDATIONS: Windows ended by their peers.
 * @IB_MEMREG_STAT_BOGUS_INVALIDATIONS: Invalidations by peers of keys that they
 *	had not been granted, each of which ended a connection.
 * @IB_MEMREG_STAT_RING_FULL: Submissions that failed because a ring had no
 *	room; those that failed because a queue had no room are not counted.
 * @IB_MEMREG_STAT_MRS_REREGISTERED: MRs changed by MR_REREGISTER, which counts
 *	them neither as registered nor as deregistered.
 * @IB_MEMREG_STAT_DEMAND_FAULTS: Ranges of MRs on demand that had to be pinned
 *	when they were used.
 * @IB_MEMREG_STAT_DEMAND_HITS: Ranges of MRs on demand that were already pinned
 *	when they were used.
 * @IB_MEMREG_STAT_DEMAND_INVALIDATIONS: Times that pages of an MR on demand
 *	were given up because their mapping changed.
 * @IB_MEMREG_STAT_DEMAND_PREFETCHES: Times that MR_ADVISE pinned pages.
 * @IB_MEMREG_STAT_DEMAND_PREFETCH_HITS: Such times after which some of the
 *	pages were used.
 * @IB_MEMREG_STAT_DEMAND_PINNED: Pages of 4096 bytes that were pinned for MRs
 *	on demand, of those that PAGES_PINNED counts.
 * @IB_MEMREG_STAT_DEMAND_UNPINNED: Those of them that were unpinned.
 * @IB_MEMREG_STAT_DEMAND_PINNED_MAX: The most of them that were pinned at a
 *	time.
 * @IB_MEMREG_STAT_EXPORTS_CREATED: Exports made.
 * @IB_MEMREG_STAT_EXPORTS_LATE: Waits for importers of exports that timed out.
 * @IB_MEMREG_STAT_LEASES_EXPIRED: Leases whose deadline came.
 * @IB_MEMREG_STAT_DEMAND_WAIT: Faults of MRs on demand by the time that they
 *	took: the first of IB_MEMREG_DEMAND_WAITS counters, whose ids follow one
 *	another. See IB_MEMREG_DEMAND_WAIT_NS.
 *
 * No counter ever decreases.
 */
enum ib_memreg_stat_id {
	IB_MEMREG_STAT_KEYS_MADE = 1,
	IB_MEMREG_STAT_KEYS_KILLED = 2,
	IB_MEMREG_STAT_BATCHES = 3,
	IB_MEMREG_STAT_WORK_REQUESTS = 4,
	IB_MEMREG_STAT_FRWRS_ALLOCATED = 5,
	IB_MEMREG_STAT_FRWRS_DESTROYED = 6,
	IB_MEMREG_STAT_FRWRS_REUSED = 7,
	IB_MEMREG_STAT_FRWRS_FOREIGN = 8,
	IB_MEMREG_STAT_FRWRS_FAILED = 9,
	IB_MEMREG_STAT_FRWRS_REAPED = 10,
	IB_MEMREG_STAT_QUEUE_BREAKS = 11,
	IB_MEMREG_STAT_QUEUE_REBUILDS = 12,
	IB_MEMREG_STAT_QUEUE_REBUILDS_FAILED = 13,
	IB_MEMREG_STAT_GUARD_EVENTS = 14,
	IB_MEMREG_STAT_GUARD_REVOCATIONS = 15,
	IB_MEMREG_STAT_GUARD_SUSPECTS = 16,
	IB_MEMREG_STAT_GUARD_UNCHANGED = 17,
	IB_MEMREG_STAT_GUARD_LATER = 18,
	IB_MEMREG_STAT_GUARD_GONE = 19,
	IB_MEMREG_STAT_GUARD_SPURIOUS = 20,
	IB_MEMREG_STAT_GUARD_TIMEOUTS = 21,
	IB_MEMREG_STAT_GUARD_KILLS = 22,
	IB_MEMREG_STAT_MRS_REGISTERED = 23,
	IB_MEMREG_STAT_MRS_DEREGISTERED = 24,
	IB_MEMREG_STAT_PAGES_PINNED = 25,
	IB_MEMREG_STAT_PAGES_UNPINNED = 26,
	IB_MEMREG_STAT_WINDOWS_BOUND = 27,
	IB_MEMREG_STAT_WINDOWS_REVOKED = 28,
	IB_MEMREG_STAT_ENDPOINTS_ESTABLISHED = 29,
	IB_MEMREG_STAT_ENDPOINTS_DISCONNECTED = 30,
	IB_MEMREG_STAT_ENDPOINTS_REJECTED = 31,
	IB_MEMREG_STAT_ENDPOINTS_FAILED = 32,
	IB_MEMREG_STAT_WRS_SUBMITTED = 33,
	IB_MEMREG_STAT_WRS_COMPLETED = 34,
	IB_MEMREG_STAT_WRS_FAILED = 35,
	IB_MEMREG_STAT_INLINE_RECEIVES = 36,
	IB_MEMREG_STAT_INLINE_COPIES = 37,
	IB_MEMREG_STAT_REMOTE_INVALIDATIONS = 38,
	IB_MEMREG_STAT_BOGUS_INVALIDATIONS = 39,
	IB_MEMREG_STAT_RING_FULL = 40,
	IB_MEMREG_STAT_MRS_REREGISTERED = 41,
	IB_MEMREG_STAT_DEMAND_FAULTS = 42,
	IB_MEMREG_STAT_DEMAND_HITS = 43,
	IB_MEMREG_STAT_DEMAND_INVALIDATIONS = 44,
	IB_MEMREG_STAT_DEMAND_PREFETCHES = 45,
	IB_MEMREG_STAT_DEMAND_PREFETCH_HITS = 46,
	IB_MEMREG_STAT_DEMAND_PINNED = 47,
	IB_MEMREG_STAT_DEMAND_UNPINNED = 48,
	IB_MEMREG_STAT_DEMAND_PINNED_MAX = 49,
	IB_MEMREG_STAT_EXPORTS_CREATED = 50,
	IB_MEMREG_STAT_EXPORTS_LATE = 51,
	IB_MEMREG_STAT_LEASES_EXPIRED = 52,
	IB_MEMREG_STAT_DEMAND_WAIT = 53
};

/**
 * struct ib_memreg_stat_entry - One counter
 * @stat: enum ib_memreg_stat_id
 * @reserved: 0
 * @value: Its value
 */
struct ib_memreg_stat_entry {
	__u32 stat;
	__u32 reserved;
	__aligned_u64 value;
};

/**
 * struct ib_memreg_device_stat - ioctl(IB_MEMREG_IOC_DEVICE_STAT)
 * @size: sizeof(struct ib_memreg_device_stat)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @count: In: entries that @stats has room for. Out: number of entries that
 *	exist; only the first ones are written if there is room for fewer.
 * @stats: Pointer to an array of struct ib_memreg_stat_entry; unused if @count
 *	is 0
 *
 * Return the counters of the device, which are sums over all of its users, as
 * those of a port in /sys/class/infiniband are. A user that can bind a file to
 * the device can read them: they contain no address, key or name, and do not
 * show which user did what. Counters are read one after the other, while calls
 * go on.
 *
 * Errors: ENODEV, EFAULT.
 */
struct ib_memreg_device_stat {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 count;
	__aligned_u64 stats;
};

#define IB_MEMREG_IOC_DEVICE_STAT \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_DEVICE_STAT)

/**
 * struct ib_memreg_destroy - ioctl(IB_MEMREG_IOC_DESTROY)
 * @size: sizeof(struct ib_memreg_destroy)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @id: Any object of this file: domain, MR, window, export, lease, listener,
 *	endpoint, ring, shared receive queue, status table, monitor
 *
 * Destroy an object. When the call returns, no key of the object works, and no
 * page that it pinned is pinned (by it). A window that is bound is revoked
 * first; one of type 2B can't be destroyed while it is bound. An endpoint is
 * disconnected first, and the windows that were granted to it are revoked; its
 * work requests that have not completed are flushed, and their completions are
 * in the ring when the call returns; its events that were not read vanish.
 * Requests that wait at a destroyed listener stay, and can be accepted. The
 * receives of a shared receive queue are flushed. An export is revoked first,
 * as by EXPORT_REVOKE. The event of a lease that was not read vanishes. The
 * memory of a ring stays mapped, and is freed when its descriptor and its
 * mappings are gone.
 *
 * Destroying one object never destroys another. The last close of the file, and
 * the removal of the device, destroy all of them: listeners, endpoints, shared
 * receive queues, rings, windows, exports, leases, MRs, domains.
 *
 * Destroying a window that is bound, or an MR with keys, waits on every device
 * until no packet uses the key. Destroying a window that was revoked before
 * waits for nothing.
 *
 * Errors: ENOENT; EBUSY while a domain has MRs, windows, endpoints or shared
 * receive queues, while an MR has bound windows, exports or work requests,
 * while an importer of an export has not let go of the memory within a second,
 * while a window of type 2B is bound, while a lease has bound windows or
 * exports that were not revoked, while a ring has endpoints or shared receive
 * queues, while a shared receive queue has endpoints, while a status table has
 * monitors, MRs, exports or leases, or while another call, or the end of a
 * window's connection or lease, is using the object: try again.
 */
struct ib_memreg_destroy {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 id;
};

#define IB_MEMREG_IOC_DESTROY	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_DESTROY)

/**
 * struct ib_memreg_set_user_data - ioctl(IB_MEMREG_IOC_SET_USER_DATA)
 * @size: sizeof(struct ib_memreg_set_user_data)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @id: Endpoint or listener
 * @user_data: Any value; 0 is as if none was given
 *
 * Give an endpoint or a listener a value, such as a pointer, that comes back in
 * the events that are read, and of an endpoint in the completions that come,
 * after the call has returned. The kernel does not interpret it.
 *
 * Errors: ENOENT, EOPNOTSUPP (flags), ENODEV.
 */
struct ib_memreg_set_user_data {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 id;
	__aligned_u64 user_data;
};

#define IB_MEMREG_IOC_SET_USER_DATA \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_SET_USER_DATA)

/**
 * enum ib_memreg_object_type - Kinds of objects
 * @IB_MEMREG_OBJECT_FILE: An open file that is bound to a device
 * @IB_MEMREG_OBJECT_DOMAIN: A domain
 * @IB_MEMREG_OBJECT_MR: An MR
 * @IB_MEMREG_OBJECT_WINDOW: A window
 * @IB_MEMREG_OBJECT_LISTENER: A listener
 * @IB_MEMREG_OBJECT_ENDPOINT: An endpoint
 * @IB_MEMREG_OBJECT_RING: A completion ring
 * @IB_MEMREG_OBJECT_SRQ: A shared receive queue
 * @IB_MEMREG_OBJECT_STATUS: A status table
 * @IB_MEMREG_OBJECT_MONITOR: A monitor
 * @IB_MEMREG_OBJECT_EXPORT: An export
 * @IB_MEMREG_OBJECT_LEASE: A lease
 */
enum ib_memreg_object_type {
	IB_MEMREG_OBJECT_FILE = 1,
	IB_MEMREG_OBJECT_DOMAIN = 2,
	IB_MEMREG_OBJECT_MR = 3,
	IB_MEMREG_OBJECT_WINDOW = 4,
	IB_MEMREG_OBJECT_LISTENER = 5,
	IB_MEMREG_OBJECT_ENDPOINT = 6,
	IB_MEMREG_OBJECT_RING = 7,
	IB_MEMREG_OBJECT_SRQ = 8,
	IB_MEMREG_OBJECT_STATUS = 9,
	IB_MEMREG_OBJECT_MONITOR = 10,
	IB_MEMREG_OBJECT_EXPORT = 11,
	IB_MEMREG_OBJECT_LEASE = 12
};

/**
 * enum ib_memreg_mr_state - State of an MR
 * @IB_MEMREG_MR_LIVE: Its keys work.
 * @IB_MEMREG_MR_STALE: Its memory was unmapped, or the mapping changed; its
 *	keys, and those of the windows that are bound to it, are dead. Its pages
 *	stay pinned until it is deregistered.
 * @IB_MEMREG_MR_SPURIOUS: As STALE, but the memory was found to be still
 *	mapped: the kernel had announced a change that it did not make. Register
 *	the memory again. Only MR_QUERY finds this out, if the process that owns
 *	the memory calls it.
 * @IB_MEMREG_MR_INVALIDATED: As LIVE, but a peer has invalidated a key of it,
 *	or several, by a SEND_WITH_INV, which has ended the connection of that
 *	peer. The segments of these keys, and the entries in the table of a
 *	pool, have the rkey 0. Windows are not affected, nor are work requests,
 *	but for those on a dma-buf that its exporter may take away.
 *	MR_REREGISTER, for example with the same access flags, makes new keys
 *	for the MR, and POOL_RECYCLE for buffers of a pool.
 */
enum ib_memreg_mr_state {
	IB_MEMREG_MR_LIVE = 1,
	IB_MEMREG_MR_STALE = 2,
	IB_MEMREG_MR_SPURIOUS = 3,
	IB_MEMREG_MR_INVALIDATED = 4
};

/**
 * enum ib_memreg_endpoint_state - State of an endpoint
 * @IB_MEMREG_ENDPOINT_REQUESTED: A peer's request, neither accepted nor
 *   rejected.
 * @IB_MEMREG_ENDPOINT_CONNECTING: Accepted or connecting, not yet established.
 * @IB_MEMREG_ENDPOINT_CONNECTED: Established.
 * @IB_MEMREG_ENDPOINT_CLOSED: Ended, or never established.
 */
enum ib_memreg_endpoint_state {
	IB_MEMREG_ENDPOINT_REQUESTED = 1,
	IB_MEMREG_ENDPOINT_CONNECTING = 2,
	IB_MEMREG_ENDPOINT_CONNECTED = 3,
	IB_MEMREG_ENDPOINT_CLOSED = 4
};

/** IB_MEMREG_DEMAND_WAITS - classes of the time that a fault takes */
#define IB_MEMREG_DEMAND_WAITS	16

/**
 * IB_MEMREG_DEMAND_WAIT_NS - limit of the first of these classes in
 * nanoseconds: a fault that takes less is in the first class; the limit of each
 * further class is four times that of the one before; the last class has no
 * limit
 */
#define IB_MEMREG_DEMAND_WAIT_NS	1024

/**
 * struct ib_memreg_demand_stats - Counters of an MR on demand
 * @pinned: Pages of 4096 bytes pinned now
 * @pinned_max: Most pages that were pinned at a time
 * @faults: Ranges that had to be pinned when they were used
 * @hits: Ranges that were already pinned when they were used
 * @invalidations: Times that pages were given up because their mapping changed
 * @prefetches: Times that MR_ADVISE pinned pages
 * @prefetch_hits: Such times after which some of the pages were used
 *
 * Each SGE that is not empty, and each range that a window is bound to, counts
 * as a use.
 */
struct ib_memreg_demand_stats {
	__aligned_u64 pinned;
	__aligned_u64 pinned_max;
	__aligned_u64 faults;
	__aligned_u64 hits;
	__aligned_u64 invalidations;
	__aligned_u64 prefetches;
	__aligned_u64 prefetch_hits;
};

/**
 * struct ib_memreg_object_file - Report of LIST on an open file
 * @pinned: Pages of 4096 bytes pinned by its MRs
 */
struct ib_memreg_object_file {
	__aligned_u64 pinned;
};

/**
 * struct ib_memreg_object_domain - Report of LIST on a domain
 * @rebuilds: Times that its registration queue was rebuilt
 * @working: 1 if its registration queue works
 * @reserved: 0
 */
struct ib_memreg_object_domain {
	__aligned_u64 rebuilds;
	__u32 working;
	__u32 reserved;
};

/**
 * struct ib_memreg_object_mr - Report of LIST on an MR
 * @addr: Address of the memory, or offset in that of a descriptor
 * @length: Bytes
 * @dmabuf: MR on a descriptor: number of the inode of its dma-buf, as shown by
 *	fstat(2), and for other processes' descriptors by /proc/PID/fdinfo; a
 *	read-only descriptor made by MEMORY_DUP has the same number. Otherwise 0
 * @state: enum ib_memreg_mr_state
 * @access: enum ib_memreg_access
 * @rkey: Remote key of the first segment, or 0
 * @on_demand: 1 for an MR on demand
 * @demand: All 0, but for MRs on demand
 */
struct ib_memreg_object_mr {
	__aligned_u64 addr;
	__aligned_u64 length;
	__aligned_u64 dmabuf;
	__u32 state;
	__u32 access;
	__u32 rkey;
	__u32 on_demand;
	struct ib_memreg_demand_stats demand;
};

/**
 * struct ib_memreg_object_window - Report of LIST on a window
 * @max_span: Bytes that it covers at most
 * @iova: First I/O address; this and all below are 0 if it is not bound
 * @length: Bytes that it covers
 * @access: enum ib_memreg_access
 * @rkey: Remote key, also if it is dead because the MR is not LIVE
 * @mr_id: MR that it is bound to
 * @bound: 1 if it is bound
 * @lease_id: Lease under which it is bound, or 0
 * @reserved: 0
 */
struct ib_memreg_object_window {
	__aligned_u64 max_span;
	__aligned_u64 iova;
	__aligned_u64 length;
	__u32 access;
	__u32 rkey;
	__u32 mr_id;
	__u32 bound;
	__u32 lease_id;
	__u32 reserved;
};

/**
 * struct ib_memreg_object_endpoint - Report of LIST on an endpoint
 * @state: enum ib_memreg_endpoint_state
 * @listener_id: The listener that it came from, or 0
 */
struct ib_memreg_object_endpoint {
	__u32 state;
	__u32 listener_id;
};

/**
 * struct ib_memreg_object_ring - Report of LIST on a completion ring
 * @entries: Its entries
 * @reserved: 0
 */
struct ib_memreg_object_ring {
	__u32 entries;
	__u32 reserved;
};

/**
 * struct ib_memreg_object_srq - Report of LIST on a shared receive queue
 * @ring_id: Its ring
 * @posted: Receives that are posted
 */
struct ib_memreg_object_srq {
	__u32 ring_id;
	__u32 posted;
};

/**
 * struct ib_memreg_object_status - Report of LIST on a status table
 * @slots: Its slots
 * @reserved: 0
 */
struct ib_memreg_object_status {
	__u32 slots;
	__u32 reserved;
};

/**
 * struct ib_memreg_object_monitor - Report of LIST on a monitor
 * @addr: First address; 0 of a dma-buf
 * @length: Bytes, as whole pages
 * @status_id: Its status table
 * @access: enum ib_memreg_access
 * @dmabuf: Number of the inode of its dma-buf, or 0
 */
struct ib_memreg_object_monitor {
	__aligned_u64 addr;
	__aligned_u64 length;
	__u32 status_id;
	__u32 access;
	__aligned_u64 dmabuf;
};

/**
 * enum ib_memreg_export_state - State of an export
 * @IB_MEMREG_EXPORT_LIVE: It can be registered.
 * @IB_MEMREG_EXPORT_ENDING: It was revoked, or its memory was unmapped, and an
 *	importer has not let go of the memory yet.
 * @IB_MEMREG_EXPORT_ENDED: It was revoked, or its memory was unmapped, and no
 *	importer reaches the memory.
 */
enum ib_memreg_export_state {
	IB_MEMREG_EXPORT_LIVE = 1,
	IB_MEMREG_EXPORT_ENDING = 2,
	IB_MEMREG_EXPORT_ENDED = 3
};

/**
 * struct ib_memreg_object_export - Report of LIST on an export
 * @addr: Address of the memory, or offset in that of a descriptor
 * @length: Bytes
 * @dmabuf: Number of the inode of its dma-buf, as in struct
 *	ib_memreg_object_mr: MRs of other devices on it have the same
 * @mr_id: Its MR, which is busy until the export is revoked
 * @state: enum ib_memreg_export_state
 * @importers: Mappings of the memory that importers have
 * @lease_id: Lease under which it was made, or 0
 */
struct ib_memreg_object_export {
	__aligned_u64 addr;
	__aligned_u64 length;
	__aligned_u64 dmabuf;
	__u32 mr_id;
	__u32 state;
	__u32 importers;
	__u32 lease_id;
};

/**
 * struct ib_memreg_object_lease - Report of LIST on a lease
 * @deadline: Its deadline, in nanoseconds of CLOCK_BOOTTIME
 * @grants: Windows that are bound under it, and exports that were not revoked
 * @ended: 1 if its time is over
 */
struct ib_memreg_object_lease {
	__aligned_u64 deadline;
	__u32 grants;
	__u32 ended;
};

/**
 * struct ib_memreg_object - A live object, as LIST reports it
 * @file: Number of the file that owns it, unique since the module was loaded
 * @id: Its id in that file; 0 for the file itself
 * @type: enum ib_memreg_object_type
 * @users: Domain: MRs, windows, endpoints and shared receive queues in it. MR:
 *	windows bound to it, its exports that were not revoked, and its SGEs in
 *	work requests that have not completed. Ring: queues that it serves. Shared receive queue: endpoints.
 *	Status table: its monitors, and MRs, exports and leases that have a slot
 *	in it. Lease: its windows and exports. Calls that are using it count as
 *	well
 * @pid: Process that bound the file, in the caller's pid namespace, or 0 if
 *	it is not visible there
 * @uid: User who bound the file, in the caller's user namespace
 * @device_index: Index of the device
 * @domain_id: Domain of an MR, window, endpoint or shared receive queue,
 *	otherwise 0
 * @comm: Name of the process that bound the file
 * @device: Name of the device
 * @u: Details by type; a listener has none
 * @u.file: Of IB_MEMREG_OBJECT_FILE
 * @u.domain: Of IB_MEMREG_OBJECT_DOMAIN
 * @u.mr: Of IB_MEMREG_OBJECT_MR
 * @u.window: Of IB_MEMREG_OBJECT_WINDOW
 * @u.endpoint: Of IB_MEMREG_OBJECT_ENDPOINT
 * @u.ring: Of IB_MEMREG_OBJECT_RING
 * @u.srq: Of IB_MEMREG_OBJECT_SRQ
 * @u.status: Of IB_MEMREG_OBJECT_STATUS
 * @u.monitor: Of IB_MEMREG_OBJECT_MONITOR
 * @u.exported: Of IB_MEMREG_OBJECT_EXPORT
 * @u.lease: Of IB_MEMREG_OBJECT_LEASE
 * @u.reserved: Room that no record outgrows; 0 behind each
 *
 * Remote keys are reported only to callers that could read the memory anyway:
 * those of the same user, or with CAP_SYS_ADMIN.
 */
struct ib_memreg_object {
	__u32 file;
	__u32 id;
	__u32 type;
	__u32 users;
	__s32 pid;
	__u32 uid;
	__u32 device_index;
	__u32 domain_id;
	char comm[16];
	char device[IB_MEMREG_DEVICE_NAME_MAX];
	union {
		struct ib_memreg_object_file file;
		struct ib_memreg_object_domain domain;
		struct ib_memreg_object_mr mr;
		struct ib_memreg_object_window window;
		struct ib_memreg_object_endpoint endpoint;
		struct ib_memreg_object_ring ring;
		struct ib_memreg_object_srq srq;
		struct ib_memreg_object_status status;
		struct ib_memreg_object_monitor monitor;
		struct ib_memreg_object_export exported;
		struct ib_memreg_object_lease lease;
		__aligned_u64 reserved[16];
	} u;
};

/**
 * struct ib_memreg_list - ioctl(IB_MEMREG_IOC_LIST)
 * @size: sizeof(struct ib_memreg_list)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @count: In: entries that @objects has room for, from 1. Out: entries
 *	written; 0 at the end of the list.
 * @cursor: 0 for the first call; then the value that the last call returned
 * @objects: Pointer to an array of struct ib_memreg_object
 * @object_size: sizeof(struct ib_memreg_object) of the caller, at least that of
 *	the first release, at most a page; the kernel fills that size in each
 *	entry, with 0 in fields it does not know
 * @reserved: Must be 0
 *
 * List the live objects of all files of the caller's user, or of all users with
 * CAP_SYS_ADMIN, on the devices that the caller's network namespace may see.
 * Works on a file that is not bound; objects of such files are not listed.
 * Objects that come and go during a sequence of calls may be missed; others are
 * reported exactly once.
 *
 * Errors: EINVAL, EFAULT, EINTR, ENOMEM.
 */
struct ib_memreg_list {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 count;
	__aligned_u64 cursor;
	__aligned_u64 objects;
	__u32 object_size;
	__u32 reserved;
};

#define IB_MEMREG_IOC_LIST	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_LIST)

/**
 * struct ib_memreg_domain_create - ioctl(IB_MEMREG_IOC_DOMAIN_CREATE)
 * @size: sizeof(struct ib_memreg_domain_create)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @port: Port of the device, from 1; 0 takes the first one that is usable
 * @out_domain_id: Id of the new domain
 * @reserved: Must be 0
 *
 * A domain is a protection domain with its registration queue. Keys made in a
 * domain work on the endpoints of that domain and nowhere else: with one domain
 * for each peer a key is good for one peer. A domain takes a PD, a CQ and a QP:
 * three HCA objects of the rdma cgroup; and an MR, a fourth, on soft-RoCE.
 *
 * Errors: ENODEV, EINVAL (no such port), ENETDOWN (the port has no GID),
 * EDQUOT, ENOMEM, ENOSPC, EIO (the queue could not be connected to itself).
 */
struct ib_memreg_domain_create {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 port;
	__u32 out_domain_id;
	__u32 reserved;
};

#define IB_MEMREG_IOC_DOMAIN_CREATE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_DOMAIN_CREATE)

/**
 * struct ib_memreg_domain_query - ioctl(IB_MEMREG_IOC_DOMAIN_QUERY)
 * @size: sizeof(struct ib_memreg_domain_query)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @domain_id: Domain
 * @out_port: Its port
 * @out_working: 1 if its registration queue works
 * @out_rebuilds: Times that its registration queue was rebuilt
 *
 * Errors: ENOENT, EFAULT, ENODEV.
 */
struct ib_memreg_domain_query {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 domain_id;
	__u32 out_port;
	__u32 out_working;
	__aligned_u64 out_rebuilds;
};

#define IB_MEMREG_IOC_DOMAIN_QUERY \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_DOMAIN_QUERY)

/**
 * enum ib_memreg_mr_flags - Flags of MR_REGISTER
 * @IB_MEMREG_MR_IOVA: Take @iova as the first I/O address; its offset in a
 *	page of 4096 bytes must be that of @addr. Not with ZERO_BASED.
 * @IB_MEMREG_MR_UNGUARDED: Don't watch the mapping: as with ibv_reg_mr(3) the
 *	keys stay on the pages that were mapped at registration, even if the
 *	mapping changes.
 * @IB_MEMREG_MR_FD: The memory is that of the dma-buf with the descriptor @fd,
 *	from offset @addr on, whether it is mapped or not.
 * @IB_MEMREG_MR_ON_DEMAND: Pin no pages at registration, but each page when it
 *	is used. Not with UNGUARDED or FD, nor with remote access flags unless
 *	IB_MEMREG_CAP_ODP_KEYS is 1: peers are granted windows.
 * @IB_MEMREG_MR_IMPLICIT: With ON_DEMAND: the MR is the whole address space of
 *	the caller. @addr and @length must be 0.
 */
enum ib_memreg_mr_flags {
	IB_MEMREG_MR_IOVA = 1 << 0,
	IB_MEMREG_MR_UNGUARDED = 1 << 1,
	IB_MEMREG_MR_FD = 1 << 2,
	IB_MEMREG_MR_ON_DEMAND = 1 << 3,
	IB_MEMREG_MR_IMPLICIT = 1 << 4
};

/**
 * struct ib_memreg_mr_register - ioctl(IB_MEMREG_IOC_MR_REGISTER)
 * @size: sizeof(struct ib_memreg_mr_register)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: enum ib_memreg_mr_flags
 * @domain_id: Domain in which the keys are to work
 * @access: enum ib_memreg_access
 * @fd: With IB_MEMREG_MR_FD a descriptor of a memory object, see
 *	MEMORY_CREATE, or of any other dma-buf. Otherwise 0
 * @addr: Address of the memory in the caller's address space, or with
 *	IB_MEMREG_MR_FD offset in the memory of @fd; any byte
 * @length: Bytes, from 1. With IB_MEMREG_MR_IMPLICIT, in: 0, out: bytes of the
 *	address space
 * @iova: In: the first I/O address, with IB_MEMREG_MR_IOVA. Out: the first
 *	I/O address; the same as @addr unless asked for otherwise.
 * @status_id: A status table of the caller's in which the MR is to have a slot,
 *	or 0
 * @out_mr_id: Id of the new MR
 * @out_lkey: Local key of the first segment, or 0; no call takes it, as work
 *	requests name memory by MR and offset
 * @out_rkey: Remote key of the first segment, or 0 without remote access
 * @out_segments: Number of keyed segments: 0 without remote access, unless the
 *	exporter of the memory may take it away; otherwise 1 up to the span of a
 *	key (IB_MEMREG_CAP_KEY_SPAN, or more where the memory is physically
 *	contiguous, as that of a memory object may be), and more for a longer
 *	range. MR_QUERY returns all of them.
 * @out_slot: The slot, or 0 without @status_id
 * @out_generation: Generation of the slot while the MR is LIVE
 *
 * Pin the memory for as long as the MR lives, charge it to the caller's
 * RLIMIT_MEMLOCK (every MR counts its pages, as with ibv_reg_mr(3)), and give
 * it keys if the access flags have remote access. Memory that is granted only
 * by windows needs no keys: register it with MW_BIND.
 *
 * The mapping is watched unless UNGUARDED: before a call of any process returns
 * that removes any of the mapping (munmap(2), mremap(2), a mmap(2) over it,
 * MADV_DONTNEED, truncation, ...), the MR's keys and those of its windows are
 * dead, and the MR is STALE. After an event that the kernel causes by itself,
 * or by mprotect(2), the mapping is checked first, within a second.
 *
 * An MR on a descriptor keeps the memory, independently of the descriptor and
 * of mappings: an MR on a memory object is never STALE, pins nothing and
 * charges nothing. Any number of MRs can be on the same memory, in other files,
 * processes and domains and on other devices, each with keys and access flags
 * of its own; the end of one does not affect the others. LOCAL_WRITE needs a
 * descriptor that is open for writing. Keys are made of pages as large as the
 * contiguity of the memory allows.
 *
 * A dma-buf of another exporter (GPU memory, udmabuf, a DMA-BUF heap) is used
 * without a copy for as long as the MR lives, and memreg charges it to no user.
 * Some exporters can take the memory away, for example when a device is reset
 * or unplugged. An MR on such memory has keys even without remote access, and
 * can be used for local work only on endpoints of its own domain; work requests
 * use its keys, and a message received in it is never inside a completion
 * entry. Once the exporter takes the memory away, the keys of the MR and those
 * of its windows are dead, the MR is STALE, and work that was posted fails with
 * a local protection error, as it does with a key of verbs that was destroyed.
 * With soft-RoCE the CPU copies the memory: it must be coherent, and a dma-buf
 * without a kernel mapping cannot be registered.
 *
 * An MR on demand pins nothing, charges nothing, and need not be mapped. The
 * pages of a range are pinned and charged when a work request or a window names
 * it, in the state that the memory has then: missing pages are faulted in, as
 * by an access of the caller. The pages stay pinned while they are used, and
 * afterwards until they have been idle for long, memory is short, or
 * RLIMIT_MEMLOCK leaves no room for other pages of the process. Pages under a
 * bound window stay pinned until the window is revoked. When the mapping
 * changes the pages are given up, with all keys to them dead as above, and the
 * next use faults again; the MR itself is never STALE. SUBMIT and WINDOW_BIND
 * fail with EFAULT for a range that is not mapped, or not with the needed
 * protection, or if the memory belongs to another process and is not pinned
 * yet; with ENOMEM if it cannot be charged; and with EAGAIN if its pages keep
 * changing while they are being pinned. MR_ADVISE pins in advance.
 *
 * With @status_id the MR has a slot in that table until it is deregistered or
 * registered anew, whose generation is @out_generation as long as the MR is
 * LIVE: a load and a compare give the same result as MR_QUERY, except that a
 * suspect mapping, and an MR that is INVALIDATED, still count as LIVE.
 *
 * Errors: EBADF (@fd), EACCES (@fd is read-only), EINVAL, EOVERFLOW (also:
 * @addr + @length is rounded up beyond all addresses), EFAULT (also: files of
 * most file systems cannot be pinned for writing; those of tmpfs and hugetlbfs
 * can), EOPNOTSUPP (also: the exporter refuses), ENOMEM, ENOSPC (also: no slot
 * is free), EPERM (RLIMIT_MEMLOCK is 0; or the table is of another process),
 * EDQUOT (each segment takes an HCA object), ENOENT, EAGAIN (the mapping kept
 * changing in 8 attempts, or the memory can't be pinned at the moment, or the
 * exporter is busy with it), EIO (keys could not be made in three attempts),
 * ENETDOWN, EINTR, ENODEV.
 */
struct ib_memreg_mr_register {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 domain_id;
	__u32 access;
	__s32 fd;
	__aligned_u64 addr;
	__aligned_u64 length;
	__aligned_u64 iova;
	__u32 status_id;
	__u32 out_mr_id;
	__u32 out_lkey;
	__u32 out_rkey;
	__u32 out_segments;
	__u32 out_slot;
	__aligned_u64 out_generation;
};

#define IB_MEMREG_IOC_MR_REGISTER \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_MR_REGISTER)

/**
 * enum ib_memreg_rereg - Properties that MR_REREGISTER changes
 * @IB_MEMREG_REREG_TRANSLATION: The memory, and the I/O addresses.
 * @IB_MEMREG_REREG_DOMAIN: The domain.
 * @IB_MEMREG_REREG_ACCESS: The access flags.
 *
 * The values are those of enum ibv_rereg_mr_flags; see ibv_rereg_mr(3).
 */
enum ib_memreg_rereg {
	IB_MEMREG_REREG_TRANSLATION = 1 << 0,
	IB_MEMREG_REREG_DOMAIN = 1 << 1,
	IB_MEMREG_REREG_ACCESS = 1 << 2
};

/**
 * struct ib_memreg_mr_reregister - ioctl(IB_MEMREG_IOC_MR_REREGISTER)
 * @size: sizeof(struct ib_memreg_mr_reregister)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: enum ib_memreg_rereg, one at least
 * @mr_id: The MR
 * @domain_id: With DOMAIN: domain in which the keys are to work. Otherwise 0
 * @access: With ACCESS: enum ib_memreg_access. Otherwise 0
 * @mr_flags: With TRANSLATION: enum ib_memreg_mr_flags. Otherwise 0
 * @fd: With IB_MEMREG_MR_FD: descriptor of a memory object. Otherwise 0
 * @addr: With TRANSLATION: as for MR_REGISTER. Otherwise 0
 * @length: With TRANSLATION: bytes, from 1. Otherwise 0
 * @iova: In: the first I/O address, with IB_MEMREG_MR_IOVA. Out: the first I/O
 *	address. Without TRANSLATION it stays, unless ZERO_BASED is set or
 *	cleared.
 * @out_lkey: Local key of the first segment, or 0
 * @out_rkey: Remote key of the first segment, or 0 without remote access
 * @out_segments: Number of keyed segments, as for MR_REGISTER
 * @reserved: Must be 0
 * @out_kept: Pages of 4096 bytes that the MR keeps without pinning them again:
 *	all of them if neither the memory nor the need to write to it changes;
 *	otherwise those that both ranges contain, if the memory is the caller's,
 *	was watched so far, and does not become writable. 0 for memory of a
 *	descriptor, as nothing of it is pinned
 *
 * Change an MR. Its new state is complete before its old keys die, and the id
 * changes from one to the other in one step: a call that fails leaves the MR as
 * it was, keys included. When a call that succeeds returns, the old keys are
 * dead, and pages that the MR no longer has are unpinned and uncharged; its
 * keys are always new. For a moment the pages of both states are pinned and
 * charged, those that are kept only once.
 *
 * Attributes that are not changed stay, the flags of MR_REGISTER included. A
 * STALE MR can get other memory by TRANSLATION, and is then LIVE again.
 *
 * An MR that windows are bound to, or that work requests use, can't be changed.
 * Nor can a pool.
 *
 * Errors: EBUSY; ESTALE (the MR is STALE, and TRANSLATION is not set); EFAULT
 * also: the memory has to be pinned again, because it becomes writable, and
 * belongs to another process; EINVAL also: a field is not 0 whose flag is not
 * set; the MR is a pool; and as MR_REGISTER.
 */
struct ib_memreg_mr_reregister {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 mr_id;
	__u32 domain_id;
	__u32 access;
	__u32 mr_flags;
	__s32 fd;
	__aligned_u64 addr;
	__aligned_u64 length;
	__aligned_u64 iova;
	__u32 out_lkey;
	__u32 out_rkey;
	__u32 out_segments;
	__u32 reserved;
	__aligned_u64 out_kept;
};

#define IB_MEMREG_IOC_MR_REREGISTER \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_MR_REREGISTER)

/** IB_MEMREG_NO_FAULT_MAX - most bytes of a range of PREFETCH_NO_FAULT */
#define IB_MEMREG_NO_FAULT_MAX	0x40000000

/**
 * enum ib_memreg_advice - Actions of MR_ADVISE on ranges of MRs on demand
 * @IB_MEMREG_ADVICE_PREFETCH: Pin the range for reading.
 * @IB_MEMREG_ADVICE_PREFETCH_WRITE: Pin the range for reading and writing.
 * @IB_MEMREG_ADVICE_PREFETCH_NO_FAULT: Pin the pages of the range that are
 *	present, for reading, and fault none in.
 * @IB_MEMREG_ADVICE_DROP: Unpin all pages that are not in use and that were
 *	pinned together with a byte of the range.
 *
 * The first three are those of ibv_advise_mr(3).
 */
enum ib_memreg_advice {
	IB_MEMREG_ADVICE_PREFETCH = 1,
	IB_MEMREG_ADVICE_PREFETCH_WRITE = 2,
	IB_MEMREG_ADVICE_PREFETCH_NO_FAULT = 3,
	IB_MEMREG_ADVICE_DROP = 4
};

/**
 * enum ib_memreg_advise_flags - Flags of MR_ADVISE
 * @IB_MEMREG_ADVISE_WAIT: Wait for pages that have to be read from a device, or
 *	that the handler of a userfaultfd has to provide. Without it, the reads
 *	are started, and the range fails with EAGAIN.
 */
enum ib_memreg_advise_flags {
	IB_MEMREG_ADVISE_WAIT = 1 << 0
};

/**
 * struct ib_memreg_range - A range of an MR on demand
 * @mr_id: The MR
 * @reserved: Must be 0
 * @offset: First byte
 * @length: Bytes, from 1
 * @out_pages: Pages of 4096 bytes that were pinned, or unpinned; 0 if all of
 *	them were pinned already
 * @out_error: errno, or 0: ENOENT, EINVAL, EOVERFLOW, EACCES (PREFETCH_WRITE
 *	without LOCAL_WRITE), EFAULT, ENOMEM, EPERM or EAGAIN
 * @out_reason: enum ib_memreg_reason of the error
 */
struct ib_memreg_range {
	__u32 mr_id;
	__u32 reserved;
	__aligned_u64 offset;
	__aligned_u64 length;
	__aligned_u64 out_pages;
	__u32 out_error;
	__u32 out_reason;
};

/**
 * struct ib_memreg_mr_advise - ioctl(IB_MEMREG_IOC_MR_ADVISE)
 * @size: sizeof(struct ib_memreg_mr_advise)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: enum ib_memreg_advise_flags
 * @advice: enum ib_memreg_advice
 * @count: Number of @ranges, 1 to IB_MEMREG_BATCH_MAX
 * @out_done: Number of ranges that were processed, if the call fails
 * @ranges: Pointer to an array of struct ib_memreg_range
 *
 * Advise what to do with ranges of MRs on demand, one after the other. Each
 * range has an outcome of its own; the call fails only if it cannot continue.
 * Pages that are pinned in advance are idle until they are used, and may be
 * unpinned like any idle page.
 *
 * Errors: EINVAL (no such advice, COUNT), EFAULT (@ranges), EINTR, ENODEV.
 */
struct ib_memreg_mr_advise {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 advice;
	__u32 count;
	__u32 out_done;
	__aligned_u64 ranges;
};

#define IB_MEMREG_IOC_MR_ADVISE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_MR_ADVISE)

/** IB_MEMREG_COMPOSE_MAX - most pieces of a composition, and runs of memory */
#define IB_MEMREG_COMPOSE_MAX	4096

/**
 * IB_MEMREG_COMPOSE_IOVA_MAX - I/O addresses of compositions whose caller has
 * requested none begin below
 */
#define IB_MEMREG_COMPOSE_IOVA_MAX	0x40000000

/** IB_MEMREG_PIECE_DIMS - most nested dimensions of a piece */
#define IB_MEMREG_PIECE_DIMS	4

/**
 * struct ib_memreg_piece - A part of an MR, or a strided pattern of parts
 * @mr_id: The MR, which may be a composition
 * @dims: Dimensions, up to IB_MEMREG_PIECE_DIMS; 0 is a single block
 * @offset: First byte of the first block in the MR
 * @length: Bytes of each block, from 1
 * @stride: For each dimension, the innermost one first: bytes from the
 *	beginning of a block, or of a row of the dimension before, to the next.
 *	Others must be 0.
 * @count: For each dimension the number of blocks or rows, from 1. Others must
 *	be 0.
 *
 * The blocks follow each other in the composition, those of the innermost
 * dimension first.
 */
struct ib_memreg_piece {
	__u32 mr_id;
	__u32 dims;
	__aligned_u64 offset;
	__aligned_u64 length;
	__aligned_u64 stride[IB_MEMREG_PIECE_DIMS];
	__u32 count[IB_MEMREG_PIECE_DIMS];
};

/**
 * enum ib_memreg_compose_flags - Flags of MR_COMPOSE
 * @IB_MEMREG_COMPOSE_ONE_KEY: Fail unless one key can span the whole
 *	composition.
 * @IB_MEMREG_COMPOSE_IOVA: Take @iova as the first I/O address.
 */
enum ib_memreg_compose_flags {
	IB_MEMREG_COMPOSE_ONE_KEY = 1 << 0,
	IB_MEMREG_COMPOSE_IOVA = 1 << 1
};

/**
 * struct ib_memreg_mr_compose - ioctl(IB_MEMREG_IOC_MR_COMPOSE)
 * @size: sizeof(struct ib_memreg_mr_compose)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: enum ib_memreg_compose_flags
 * @domain_id: Domain of the composition and of all MRs that its pieces are of
 * @access: enum ib_memreg_access
 * @count: Number of @pieces, 1 to IB_MEMREG_COMPOSE_MAX
 * @out_mr_id: Id of the new MR
 * @out_index: If the call fails because of a piece, its index; otherwise @count
 * @pieces: Pointer to an array of struct ib_memreg_piece
 * @iova: In: the first I/O address, with IB_MEMREG_COMPOSE_IOVA; its offset in
 *	a page of 4096 bytes must be that of the memory of the first piece. Out:
 *	the first I/O address; unless asked for otherwise, that of the first
 *	byte in its MR modulo IB_MEMREG_COMPOSE_IOVA_MAX
 * @out_length: Bytes of the composition
 * @out_lkey: Local key of the first segment, or 0
 * @out_rkey: Remote key of the first segment, or 0 without remote access
 * @out_segments: Number of keyed segments, or 0 without remote access
 * @out_entries: Number of runs of memory, each contiguous for the device, in it
 *
 * Make an MR of pieces of other MRs, one behind the other. It shares their
 * memory: it pins nothing, and only the kernel memory for its page list is
 * charged. Work requests and windows name ranges of it as of any MR.
 *
 * A key spans the boundary between two pieces only if the first ends and the
 * second begins at a multiple of 4096 bytes of memory. At each other boundary a
 * segment ends, and the I/O addresses of the next one begin at the offset in a
 * page that its memory has. MR_QUERY returns all segments. A window can't span
 * such a boundary. A key has up to IB_MEMREG_CAP_KEY_PAGES pages, of 4096 bytes
 * or, where these are too few up to the next such boundary, of a larger size
 * among IB_MEMREG_CAP_PAGE_SIZES if the memory is contiguous and its I/O
 * addresses have the same offset in such a page: as in an MR of the same range.
 * Where that is not enough, a segment ends as well. With
 * IB_MEMREG_CAP_SG_GAPS keys and windows span any boundary, of up to
 * IB_MEMREG_CAP_KEY_PAGES runs of memory each. Work requests of the MR's owner
 * span any boundary, on any device.
 *
 * While the composition exists, the MRs whose memory it uses cannot be
 * deregistered or re-registered. An MR that is itself a composition can: a
 * composition made of it depends only on the MRs underneath. When one of these
 * MRs becomes STALE, the composition does as well, and its keys die along with
 * the others.
 *
 * Remote access and MW_BIND need MW_BIND of each MR, LOCAL_WRITE needs
 * LOCAL_WRITE. Pieces may overlap if the composition cannot be written.
 *
 * Errors: EINVAL, EOVERFLOW, ENOENT, EACCES, EOPNOTSUPP (an MR is on demand, or
 * the exporter of its memory may take it away; or one key can't span it),
 * ESTALE, EFAULT (@pieces), ENOMEM, ENOSPC, EDQUOT, EIO, ENETDOWN, EINTR,
 * ENODEV.
 */
struct ib_memreg_mr_compose {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 domain_id;
	__u32 access;
	__u32 count;
	__u32 out_mr_id;
	__u32 out_index;
	__aligned_u64 pieces;
	__aligned_u64 iova;
	__aligned_u64 out_length;
	__u32 out_lkey;
	__u32 out_rkey;
	__u32 out_segments;
	__u32 out_entries;
};

#define IB_MEMREG_IOC_MR_COMPOSE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_MR_COMPOSE)

/**
 * struct ib_memreg_segment - A part of an MR under one key
 * @iova: First I/O address
 * @length: Bytes
 * @lkey: Local key; no call takes it, as work requests name memory by MR and
 *	offset
 * @rkey: Remote key; both are 0 after a peer has invalidated them
 */
struct ib_memreg_segment {
	__aligned_u64 iova;
	__aligned_u64 length;
	__u32 lkey;
	__u32 rkey;
};

/**
 * struct ib_memreg_mr_query - ioctl(IB_MEMREG_IOC_MR_QUERY)
 * @size: sizeof(struct ib_memreg_mr_query)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @mr_id: MR
 * @count: In: entries that @segments has room for. Out: segments of the MR;
 *	only the first ones are written if there is room for fewer.
 * @out_domain_id: Its domain
 * @segments: Pointer to an array of struct ib_memreg_segment; unused if
 *	@count is 0
 * @out_addr: Address, or offset, given at registration
 * @out_length: Bytes
 * @out_iova: First I/O address
 * @out_access: enum ib_memreg_access
 * @out_state: enum ib_memreg_mr_state
 * @out_pinned: Pages of 4096 bytes pinned and charged now
 * @out_windows: Windows bound to it now
 * @reserved: Must be 0
 * @out_generation: Number of times that the MR became stale: at least 1 while
 *	it is STALE or SPURIOUS
 * @out_suspects: Suspect events, after which the mapping was checked
 * @out_demand: All 0 unless the MR is on demand
 * @out_wait: Histogram of its faults by the time that pinning took: see
 *	IB_MEMREG_DEMAND_WAIT_NS
 *
 * Errors: ENOENT, EFAULT, ENODEV.
 */
struct ib_memreg_mr_query {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 mr_id;
	__u32 count;
	__u32 out_domain_id;
	__aligned_u64 segments;
	__aligned_u64 out_addr;
	__aligned_u64 out_length;
	__aligned_u64 out_iova;
	__u32 out_access;
	__u32 out_state;
	__aligned_u64 out_pinned;
	__u32 out_windows;
	__u32 reserved;
	__aligned_u64 out_generation;
	__aligned_u64 out_suspects;
	struct ib_memreg_demand_stats out_demand;
	__aligned_u64 out_wait[IB_MEMREG_DEMAND_WAITS];
};

#define IB_MEMREG_IOC_MR_QUERY	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_MR_QUERY)

/** IB_MEMREG_POOL_VERSION - version of struct ib_memreg_pool_table */
#define IB_MEMREG_POOL_VERSION	1

/**
 * enum ib_memreg_pool_state - State of a pool, in its table
 * @IB_MEMREG_POOL_LIVE: The pool exists.
 * @IB_MEMREG_POOL_DEAD: The pool is destroyed, and all rkeys are 0.
 */
enum ib_memreg_pool_state {
	IB_MEMREG_POOL_LIVE = 0,
	IB_MEMREG_POOL_DEAD = 1
};

/**
 * struct ib_memreg_pool_table - Header of a pool's table
 * @version: IB_MEMREG_POOL_VERSION
 * @count: Number of entries
 * @entry_size: Bytes of each; the first one follows this structure
 * @state: enum ib_memreg_pool_state
 * @buffer_size: Bytes of a buffer
 * @stride: Bytes from one buffer to the next
 * @reserved: 0
 */
struct ib_memreg_pool_table {
	__u32 version;
	__u32 count;
	__u32 entry_size;
	__u32 state;
	__aligned_u64 buffer_size;
	__aligned_u64 stride;
	__u32 reserved[8];
};

/**
 * struct ib_memreg_pool_entry - A buffer, in a pool's table
 * @iova: First I/O address
 * @rkey: Remote key; 0 without remote access, or after a peer has invalidated
 *	it
 * @sequence: Odd while the other fields change; a new even number afterwards
 *
 * To read an entry that another thread may recycle: load @sequence (acquire),
 * the fields, and, behind an acquire fence, @sequence again; start over if it
 * is odd or has changed.
 */
struct ib_memreg_pool_entry {
	__aligned_u64 iova;
	__u32 rkey;
	__u32 sequence;
};

/**
 * struct ib_memreg_pool_create - ioctl(IB_MEMREG_IOC_POOL_CREATE)
 * @size: sizeof(struct ib_memreg_pool_create)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: IB_MEMREG_MR_FD and IB_MEMREG_MR_UNGUARDED
 * @domain_id: Domain in which the keys are to work
 * @access: enum ib_memreg_access of all buffers
 * @count: Number of buffers, 1 to IB_MEMREG_CAP_POOL
 * @addr: Address or offset of the first buffer, as in MR_REGISTER
 * @buffer_size: Bytes of a buffer, from 1 to IB_MEMREG_CAP_KEY_SPAN; a page of
 *	4096 bytes less if @addr or @stride is not a multiple of 4096
 * @stride: In: bytes from one buffer to the next; 0 for @buffer_size. Out: the
 *	same, or @buffer_size
 * @fd: Descriptor of a memory object, with IB_MEMREG_MR_FD; otherwise 0
 * @out_mr_id: Id of the new MR
 * @out_table_fd: A descriptor of its table, close-on-exec and read-only
 * @reserved: Must be 0
 * @out_iova: First I/O address of the first buffer
 * @out_table_size: Bytes to be mapped of @out_table_fd, by mmap(2) at offset 0
 *	with MAP_SHARED
 *
 * Register memory as an MR that has a key for each of many buffers of one size,
 * and none for the gaps between them. Work requests and windows name buffers by
 * MR and offset; peers reach each buffer by the key in its entry of the table,
 * struct ib_memreg_pool_table. In all other respects the MR is like one of
 * MR_REGISTER, and MR_QUERY returns the keys as segments. Each key is an MR of
 * the device, and counts in the rdma cgroup.
 *
 * Errors: EINVAL (count, size, stride, range), EOVERFLOW, EMFILE, ENFILE,
 * EOPNOTSUPP (a dma-buf that is not a memory object, whose exporter might take
 * it away: register that as an MR, and bind windows to it), and those of
 * MR_REGISTER.
 */
struct ib_memreg_pool_create {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 domain_id;
	__u32 access;
	__u32 count;
	__aligned_u64 addr;
	__aligned_u64 buffer_size;
	__aligned_u64 stride;
	__s32 fd;
	__u32 out_mr_id;
	__s32 out_table_fd;
	__u32 reserved;
	__aligned_u64 out_iova;
	__aligned_u64 out_table_size;
};

#define IB_MEMREG_IOC_POOL_CREATE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_POOL_CREATE)

/**
 * enum ib_memreg_recycle_flags - Flags of POOL_RECYCLE
 * @IB_MEMREG_RECYCLE_RELAXED: Do not wait for packets that were accepted by the
 *	old keys: where IB_MEMREG_CAP_STRICT_INVALIDATE is 0, a packet that was
 *	accepted before may still be copied after the call returned.
 */
enum ib_memreg_recycle_flags {
	IB_MEMREG_RECYCLE_RELAXED = 1 << 0
};

/**
 * struct ib_memreg_pool_recycle - ioctl(IB_MEMREG_IOC_POOL_RECYCLE)
 * @size: sizeof(struct ib_memreg_pool_recycle)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: enum ib_memreg_recycle_flags
 * @mr_id: A pool
 * @count: Number of buffers, 1 to IB_MEMREG_BATCH_MAX
 * @out_index: After EINVAL: index of the invalid entry of @indices, or @count
 *	if all are valid
 * @indices: Pointer to an array of __u32: the buffers, each once
 *
 * Give buffers new keys. When the call returns the new keys are in the table,
 * and the old ones are dead; a call that fails leaves all keys as they were.
 * Both old and new keys work for a moment, so the call needs @count more MRs of
 * the device. Windows and work requests do not use these keys, and are not
 * affected. An rkey is reused as late as in struct ib_memreg_bind.
 *
 * Errors: ENOENT, EINVAL (count, an index, no pool, or no remote access),
 * EFAULT, ENOMEM, ENOSPC, EDQUOT, ESTALE, EIO, ENETDOWN, EINTR, ENODEV.
 */
struct ib_memreg_pool_recycle {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 mr_id;
	__u32 count;
	__u32 out_index;
	__aligned_u64 indices;
};

#define IB_MEMREG_IOC_POOL_RECYCLE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_POOL_RECYCLE)

/**
 * enum ib_memreg_memory_flags - Flags of MEMORY_CREATE
 * @IB_MEMREG_MEMORY_CONTIGUOUS: Fail unless the memory is one block. @length is
 *	rounded up to a power of two, up to IB_MEMREG_CAP_CONTIGUOUS.
 */
enum ib_memreg_memory_flags {
	IB_MEMREG_MEMORY_CONTIGUOUS = 1 << 0
};

/** IB_MEMREG_NODE_CALLER - the nodes that the caller's memory policy selects */
#define IB_MEMREG_NODE_CALLER	(-1)

/** IB_MEMREG_NODE_DEVICE - the NUMA node of the RDMA device, if it has one */
#define IB_MEMREG_NODE_DEVICE	(-2)

/**
 * struct ib_memreg_memory_create - ioctl(IB_MEMREG_IOC_MEMORY_CREATE)
 * @size: sizeof(struct ib_memreg_memory_create)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: enum ib_memreg_memory_flags
 * @node: NUMA node to prefer, or IB_MEMREG_NODE_*
 * @length: In: bytes, from 1. Out: bytes allocated, a multiple of the system's
 *	page size
 * @out_blocks: Blocks that the memory consists of
 * @out_block_shift: Logarithm of the size of the smallest block
 * @out_fd: The new descriptor, close-on-exec and open for reading and writing
 * @reserved: Must be 0
 *
 * Allocate zeroed kernel memory, in blocks as large as possible: up to the size
 * that a PMD maps (2 MiB on x86), with CONTIGUOUS up to
 * IB_MEMREG_CAP_CONTIGUOUS. Blocks never grow along the memory; each is
 * contiguous, and begins at a multiple of its size.
 *
 * The descriptor is a dma-buf. It can be mapped by mmap(2) with MAP_SHARED,
 * registered by MR_REGISTER in any file, passed to other processes, and given
 * to any interface of the kernel that imports a dma-buf. A block of PMD size is
 * mapped by a PMD if its address is congruent to its offset, independently of
 * the setting for transparent huge pages.
 *
 * The memory is charged to RLIMIT_MEMLOCK of the caller's user, beside what
 * io_uring and iommufd charge there, and to the caller's memory cgroup. It
 * stays charged until the last of the descriptors, mappings, MRs and importers
 * is gone, in any process; none of these is charged for it again, except calls
 * that pin a mapping of it, such as ibv_reg_mr(3).
 *
 * Errors: EINVAL (length 0, node, CONTIGUOUS), EOVERFLOW, ENOMEM
 * (RLIMIT_MEMLOCK, no memory, or none in one block), EPERM, EMFILE, ENFILE,
 * EINTR, EFAULT, ENODEV.
 */
struct ib_memreg_memory_create {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__s32 node;
	__aligned_u64 length;
	__u32 out_blocks;
	__u32 out_block_shift;
	__s32 out_fd;
	__u32 reserved;
};

#define IB_MEMREG_IOC_MEMORY_CREATE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_MEMORY_CREATE)

/**
 * struct ib_memreg_memory_dup - ioctl(IB_MEMREG_IOC_MEMORY_DUP)
 * @size: sizeof(struct ib_memreg_memory_dup)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @fd: Descriptor of a memory object
 * @out_fd: A new descriptor of the same memory, close-on-exec and open only for
 *	reading
 * @reserved: Must be 0
 *
 * A process that has only the new descriptor can neither map nor register the
 * memory for writing, nor make a device write to it.
 *
 * Errors: EBADF, EOPNOTSUPP (a dma-buf of another exporter), ENOMEM, EMFILE,
 * ENFILE, EFAULT, ENODEV.
 */
struct ib_memreg_memory_dup {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__s32 fd;
	__s32 out_fd;
	__u32 reserved;
};

#define IB_MEMREG_IOC_MEMORY_DUP \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_MEMORY_DUP)

/**
 * enum ib_memreg_window_type - Kinds of windows
 * @IB_MEMREG_WINDOW_TYPE1: Bound by a call to (MR, domain), and good on every
 *	endpoint of the domain (IB specification 10.6.7.2)
 * @IB_MEMREG_WINDOW_TYPE2B: Bound by a work request on an endpoint's send
 *	queue, in order with the work around it. It ends by a work request
 *	there, by the peer's SEND_WITH_INV, or with the connection. Its key is
 *	good in the whole domain: give the endpoint a domain of its own for a
 *	key that no other peer can use.
 */
enum ib_memreg_window_type {
	IB_MEMREG_WINDOW_TYPE1 = 1,
	IB_MEMREG_WINDOW_TYPE2B = 2
};

/**
 * struct ib_memreg_window_alloc - ioctl(IB_MEMREG_IOC_WINDOW_ALLOC)
 * @size: sizeof(struct ib_memreg_window_alloc)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @domain_id: Domain in which the keys are to work
 * @type: enum ib_memreg_window_type
 * @count: Windows to allocate, 1 to IB_MEMREG_BATCH_MAX
 * @max_span: Most bytes that each window can cover, 1 to IB_MEMREG_CAP_KEY_SPAN
 *	less one page
 * @ids: Pointer to an array of @count __u32, to which the ids are written
 *
 * Allocate windows, all or none of them. A window that is not bound has no
 * key.
 *
 * Errors: EINVAL, EOPNOTSUPP (type), ENOENT, ENOMEM, EFAULT, ENODEV.
 */
struct ib_memreg_window_alloc {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 domain_id;
	__u32 type;
	__u32 count;
	__aligned_u64 max_span;
	__aligned_u64 ids;
};

#define IB_MEMREG_IOC_WINDOW_ALLOC \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_WINDOW_ALLOC)

/**
 * struct ib_memreg_bind - One window to bind
 * @window_id: A window of the domain, not bound
 * @mr_id: MR with IB_MEMREG_ACCESS_MW_BIND; of any domain of this file, as the
 *	window's key belongs to the window's domain
 * @offset: First byte, counted from the start of the MR
 * @length: Bytes, 1 to the window's largest span
 * @access: At least one of REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC (the last
 *	two need the MR's LOCAL_WRITE; remote access of the MR itself is not
 *	needed), FLUSH_GLOBAL, FLUSH_PERSISTENT (need the same of the MR); and
 *	ZERO_BASED
 * @endpoint_id: Endpoint of the domain with whose connection the window ends,
 *	or 0 for none. The endpoint need not be accepted yet.
 * @out_iova: First I/O address: 0 if ZERO_BASED; otherwise the MR's plus
 *	@offset, or in a composition, the next address whose offset in a page of
 *	4096 bytes is that of the memory at @offset
 * @out_rkey: Remote key. Since the last use of the same rkey, at least 256 x 64
 *	grants of other keys, of windows of that size in the domain, have ended;
 *	the rkey of a destroyed MR is reused when the device allocates its
 *	number to another MR.
 * @lease_id: Lease with which the window ends, or 0 for none
 */
struct ib_memreg_bind {
	__u32 window_id;
	__u32 mr_id;
	__aligned_u64 offset;
	__aligned_u64 length;
	__u32 access;
	__u32 endpoint_id;
	__aligned_u64 out_iova;
	__u32 out_rkey;
	__u32 lease_id;
};

/**
 * struct ib_memreg_window_bind - ioctl(IB_MEMREG_IOC_WINDOW_BIND)
 * @size: sizeof(struct ib_memreg_window_bind)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @domain_id: Domain of the windows
 * @count: Windows to bind, 1 to IB_MEMREG_BATCH_MAX
 * @out_index: If the call fails on an entry: its index, otherwise @count; not
 *	written if @flags are unknown, or the call fails before it processes
 *	entries
 * @binds: Pointer to an array of @count struct ib_memreg_bind
 *
 * Bind windows, all or none of them: when the call returns 0, all of the keys
 * work; when it fails, no key works, even if it is in the array already.
 *
 * Errors: EINVAL (also: a window of type 2B), EOVERFLOW, ENOENT, EBUSY (bound
 * already, or twice in the call), EACCES, EOPNOTSUPP, ENOTCONN (the endpoint's
 * connection has ended), ESTALE (the MR is stale, or the lease has ended),
 * ENOMEM, ENOSPC, EDQUOT, EFAULT, EIO, ENETDOWN, EINTR, ENODEV.
 */
struct ib_memreg_window_bind {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 domain_id;
	__u32 count;
	__u32 out_index;
	__aligned_u64 binds;
};

#define IB_MEMREG_IOC_WINDOW_BIND \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_WINDOW_BIND)

/**
 * DOC: What is known when a key has ended
 *
 * A key is *closed* when the device accepts no new access through it. It is at
 * *rest* when, in addition, no access that was accepted before can still land:
 * the owner may use the memory for another purpose. Where
 * IB_MEMREG_CAP_STRICT_INVALIDATE is 1, a key that is closed is at rest. Where
 * it is 0, as on soft-RoCE:
 *
 * ===================================  =======================================
 * What has ended the key               When that has returned or completed
 * ===================================  =======================================
 * WINDOW_REVOKE                        at rest
 * WINDOW_REVOKE, REVOKE_RELAXED        closed
 * DESTROY of a bound window or an MR   at rest
 * INVALIDATE, type 2B                  at rest
 * SEND_WITH_INV of the peer, type 2B   at rest
 * ENDPOINT_DISCONNECT                  at rest
 * the end of a connection              at rest
 * the end of a lease, by its event     at rest
 * close(2), exit                       at rest before a page is unpinned
 * an unmap, through the MR's guard     closed; at rest when the window is
 *                                      revoked or destroyed, or the MR is
 * ===================================  =======================================
 *
 * Pages stay pinned until every key to them is at rest, on any device.
 */

/**
 * enum ib_memreg_revoke_flags - Flags of WINDOW_REVOKE
 * @IB_MEMREG_REVOKE_RELAXED: When the call returns, the device accepts no new
 *	access through the keys, but need not have finished accesses that it
 *	accepted before: where IB_MEMREG_CAP_STRICT_INVALIDATE is 0, a packet
 *	may still land. Such a revoke is cheaper there, in batches; on other
 *	devices the flag changes nothing. It is for owners that do not use the
 *	memory for another purpose before they destroy the MR, which waits for
 *	those accesses. The windows are no longer bound: another revoke does not
 *	wait.
 */
enum ib_memreg_revoke_flags {
	IB_MEMREG_REVOKE_RELAXED = 1 << 0
};

/**
 * struct ib_memreg_window_revoke - ioctl(IB_MEMREG_IOC_WINDOW_REVOKE)
 * @size: sizeof(struct ib_memreg_window_revoke)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: enum ib_memreg_revoke_flags
 * @domain_id: Domain of the windows
 * @count: Windows to revoke, 1 to IB_MEMREG_BATCH_MAX
 * @out_index: If the call fails on an entry: its index, otherwise @count; not
 *	written if @flags are unknown, or the call fails before it processes
 *	entries
 * @ids: Pointer to an array of @count __u32 window ids
 *
 * Revoke windows, all or none of them. When the call returns 0, no access
 * through their keys is accepted, and no access that was accepted before can
 * still land, on any device. Where IB_MEMREG_CAP_STRICT_INVALIDATE is 0 the
 * call destroys the keys' MRs for that; IB_MEMREG_REVOKE_RELAXED guarantees
 * less. A window that is not bound is no error, nor is a window whose key is
 * dead because the MR is STALE: it can be bound to another MR afterwards. If
 * the end of a connection or of a lease is revoking one of the windows, the
 * call waits for it. Once all entries are validated the call cannot fail: a key
 * that no work request can invalidate is destroyed.
 *
 * Errors: EINVAL (also: a window of type 2B), EOPNOTSUPP (flags), ENOENT, EBUSY
 * (another call is binding or revoking the window, or it is twice in the call),
 * EFAULT, ENOMEM, EINTR, ENODEV.
 */
struct ib_memreg_window_revoke {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 domain_id;
	__u32 count;
	__u32 out_index;
	__aligned_u64 ids;
};

#define IB_MEMREG_IOC_WINDOW_REVOKE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_WINDOW_REVOKE)

/**
 * struct ib_memreg_export_create - ioctl(IB_MEMREG_IOC_EXPORT_CREATE)
 * @size: sizeof(struct ib_memreg_export_create)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @mr_id: MR with LOCAL_WRITE; of memory of the process, of a memory object, or
 *	of a pool. It needs no remote access
 * @offset: First byte, counted from the start of the MR; at the beginning of a
 *	page of the system in memory
 * @length: Bytes, whole pages of the system
 * @status_id: Status table in which the export gets a slot, or 0
 * @out_slot: Index of the slot
 * @out_generation: Generation of the slot for as long as the export is LIVE
 * @out_export_id: Id of the export
 * @out_fd: Descriptor of the export, a dma-buf; close-on-exec
 * @lease_id: Lease with which the export ends, or 0 for none
 * @reserved: Must be 0
 *
 * Export a part of an MR, for a grant on queue pairs that are not memreg's. The
 * application registers the descriptor in a protection domain of its own
 * (ibv_reg_dmabuf_mr(3)), or by MR_REGISTER in another file, and for another
 * device: the memory is pinned and charged once. An importer can read and write
 * all of the export, and no byte outside; the owner does not control with which
 * access flags the holder of the descriptor registers it. The descriptor can be
 * closed once it is registered.
 *
 * Only importers that can be revoked are admitted: RDMA drivers of which
 * IB_MEMREG_CAP_EXPORT_REGISTER is 1, memreg on any device, and drivers of
 * other devices, such as GPUs, that can. Registration by another one fails with
 * EOPNOTSUPP, and after the end of the export with ENODEV, or by MR_REGISTER
 * with EOPNOTSUPP.
 *
 * The export ends when it is revoked or destroyed, with its lease, with the
 * file, and when the mapping of the memory goes, as the MR's keys do: before
 * munmap(2) returns, unless an importer takes more than a second. Pages stay
 * pinned until no importer reaches them. A descriptor that is left is an empty
 * shell.
 *
 * Errors: EINVAL, EOVERFLOW, EOPNOTSUPP, ENOENT, EACCES (the MR is not
 * writable), ESTALE (the MR is stale, or the lease has ended), EPERM (the
 * status table is that of another process), ENOSPC (no slot), ENOMEM, EMFILE,
 * ENFILE, EFAULT, ENODEV.
 */
struct ib_memreg_export_create {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 mr_id;
	__aligned_u64 offset;
	__aligned_u64 length;
	__u32 status_id;
	__u32 out_slot;
	__aligned_u64 out_generation;
	__u32 out_export_id;
	__s32 out_fd;
	__u32 lease_id;
	__u32 reserved;
};

#define IB_MEMREG_IOC_EXPORT_CREATE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_EXPORT_CREATE)

/**
 * struct ib_memreg_export_revoke - ioctl(IB_MEMREG_IOC_EXPORT_REVOKE)
 * @size: sizeof(struct ib_memreg_export_revoke)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @count: Exports to revoke, 1 to IB_MEMREG_BATCH_MAX
 * @out_index: If the call fails on an entry: its index, otherwise @count; not
 *	written if @flags are unknown, or the call fails before it processes
 *	entries
 * @reserved: Must be 0
 * @ids: Pointer to an array of @count __u32 export ids
 *
 * Revoke exports. When the call returns 0, no importer reaches the memory, and
 * none will: the application's own rkeys and lkeys are dead, and no access that
 * was accepted before can still land. The importers' MRs stay, for the
 * application to deregister. The exports stay as well, for DESTROY; but they no
 * longer keep their MRs from being destroyed. An export that has ended already
 * is no error.
 *
 * If an importer does not let go within a second the call fails with ETIMEDOUT;
 * all exports are revoked all the same, and the call can be repeated.
 *
 * Errors: EINVAL, EOPNOTSUPP (flags), ENOENT (no export is revoked), ETIMEDOUT,
 * EFAULT, ENOMEM, ENODEV.
 */
struct ib_memreg_export_revoke {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 count;
	__u32 out_index;
	__u32 reserved;
	__aligned_u64 ids;
};

#define IB_MEMREG_IOC_EXPORT_REVOKE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_EXPORT_REVOKE)

/**
 * DOC: Leases
 *
 * A lease is a deadline for what is granted under it. Windows are bound under a
 * lease, and exports made under it, by naming it. At its deadline, on
 * CLOCK_BOOTTIME, the kernel ends the lease, whether or not the process that
 * made it runs: it may be stopped, frozen or short of CPU time, and needs to do
 * nothing. If the machine is suspended then, the lease ends when it resumes.
 *
 * When a lease ends, this happens in order:
 *
 * 1. No window can be bound under it, and no export made under it.
 * 2. Its slot in a status table changes.
 * 3. Its exports are revoked as by EXPORT_REVOKE, and its windows as by
 *    WINDOW_REVOKE: they are unbound, and can be bound again, without a lease
 *    or under another one.
 * 4. IB_MEMREG_EVENT_LEASE_ENDED is reported, once. The keys of its windows are
 *    then at rest, as are its exports, unless an importer is late.
 *
 * Nothing of this happens before the deadline. It begins within milliseconds
 * after it, and ends as soon as WINDOW_REVOKE of as many windows would. An
 * importer that does not let go of an export delays only the event, and by a
 * second at most.
 *
 * A bind of type 2B may still be on its endpoint's queue then, and so may an
 * INVALIDATE: a peer that does not answer delays both. If either has not
 * completed 20 ms later, the connection ends, and the window with it.
 *
 * A peer that has to know whether data that it has READ was granted still can
 * READ the slot behind it, on the same connection: as the slot changes before a
 * key dies, the data was read under the lease if the slot has the generation of
 * LEASE_CREATE. To end grants with a grace for peers, renew their lease to a
 * deadline that comes earlier.
 */

/**
 * struct ib_memreg_lease_create - ioctl(IB_MEMREG_IOC_LEASE_CREATE)
 * @size: sizeof(struct ib_memreg_lease_create)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @status_id: Status table in which the lease gets a slot, or 0
 * @deadline: When it ends, in nanoseconds of CLOCK_BOOTTIME; values from 2^63
 *	on never come
 * @out_lease_id: Id of the lease
 * @out_slot: Index of the slot
 * @out_generation: Generation of the slot until the lease ends
 *
 * Make a lease. One whose deadline is over ends at once: the call does not
 * fail, nothing can be granted under the lease, and the event follows right
 * after the call.
 *
 * The lease exists until DESTROY, also after its end. DESTROY fails with EBUSY
 * (REASON_LEASE_GRANTS) as long as windows are bound under it, or exports were
 * not revoked.
 *
 * Errors: EINVAL, ENOENT (no such status table), EPERM (it is that of another
 * process), ENOSPC (no slot), ENOMEM, EFAULT, ENODEV.
 */
struct ib_memreg_lease_create {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 status_id;
	__aligned_u64 deadline;
	__u32 out_lease_id;
	__u32 out_slot;
	__aligned_u64 out_generation;
};

#define IB_MEMREG_IOC_LEASE_CREATE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_LEASE_CREATE)

/**
 * struct ib_memreg_renewal - Another deadline of a lease
 * @lease_id: The lease
 * @reserved: Must be 0
 * @deadline: As in struct ib_memreg_lease_create
 */
struct ib_memreg_renewal {
	__u32 lease_id;
	__u32 reserved;
	__aligned_u64 deadline;
};

/**
 * struct ib_memreg_lease_renew - ioctl(IB_MEMREG_IOC_LEASE_RENEW)
 * @size: sizeof(struct ib_memreg_lease_renew)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @count: Leases to renew, 1 to IB_MEMREG_BATCH_MAX
 * @out_index: If the call fails on an entry: its index, otherwise @count; not
 *	written if @flags are unknown, or the call fails before it processes
 *	entries
 * @reserved: Must be 0
 * @renewals: Pointer to an array of @count struct ib_memreg_renewal
 *
 * Set the deadlines of leases, to later or earlier times, all or none of them.
 * A deadline that is over ends the lease at once, right after the call. If a
 * lease is named twice, the last entry counts. The time that the call takes
 * does not depend on what is granted under the leases.
 *
 * A lease that has ended is never revived: from its deadline on the call fails
 * with ESTALE (REASON_LEASE_ENDED), also if its windows are not revoked yet.
 *
 * Errors: EINVAL, ENOENT, ESTALE, ENOMEM, EFAULT, ENODEV.
 */
struct ib_memreg_lease_renew {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 count;
	__u32 out_index;
	__u32 reserved;
	__aligned_u64 renewals;
};

#define IB_MEMREG_IOC_LEASE_RENEW \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_LEASE_RENEW)

/**
 * DOC: Status tables and monitors
 *
 * A status table is memory that the kernel writes and its process reads. Each
 * monitor, and each MR that asks for one, has a slot there with a generation.
 * The registration that the slot is for is valid as long as the generation is
 * the one that the call which made it returned: one load and one compare.
 * Generations only grow, also when a slot is allocated again, so that a
 * generation never becomes valid again.
 *
 * A monitor watches a range of addresses for a process that registers memory by
 * another API, such as ibv_reg_mr(3), and caches the registration. It pins
 * nothing. The generation changes before the call returns that removes any of
 * the mapping: munmap(2), mremap(2), a mmap(2) over it, MADV_DONTNEED, a hole
 * punched, truncation, execve(2), the end of the process. A new mapping where
 * none was does not change it, nor do fork(2), mlock(2), soft-dirty tracking,
 * write protection by userfaultfd, or a scan for NUMA balancing. Events of
 * mprotect(2), and of kernel threads on mappings of files, are suspect, and a
 * worker checks the mapping within a second: mprotect(2) counts if it removes
 * the access that the monitor was made for; a kernel thread that takes pages
 * away from the mapping of a file counts. Reclaim, KSM and compaction do not
 * count, as the registration has pinned the pages and they leave pinned pages
 * in place, except that they may count on the mapping of a file. The generation
 * may thus change although the mapping has not: register again. fork(2) also
 * does that to private memory of hugetlbfs, as the kernel announces a change of
 * all of it.
 *
 * A registration is known to be valid if it was made after the call that made
 * its monitor, and before a load of the slot that finds the generation which
 * that call returned. Never start from a generation that was read from the
 * table: the change that it announces may not have happened yet. So once a
 * generation has changed, destroy the monitor, make a new one, and register
 * again.
 *
 * A monitor can watch a dma-buf instead (IB_MEMREG_MONITOR_DMABUF), for a
 * registration by ibv_reg_dmabuf_mr(3): the generation changes when the exporter
 * takes the memory away or moves it, before the exporter goes on. Whether a
 * descriptor is of the same dma-buf as another one, st_dev and st_ino of
 * fstat(2) tell, and a dma-buf's number is not used again while it is watched
 * or registered.
 *
 * Only the process that created the table sees it. In a child of fork(2), and
 * in any other process, a mapping of it reads as 0. It can be mapped in whole
 * or in part, read-only and shared. Slots of a table that was destroyed, or
 * whose file was closed, change once more, and then never again.
 */

/** IB_MEMREG_STATUS_VERSION - version of struct ib_memreg_status_table */
#define IB_MEMREG_STATUS_VERSION	1

/**
 * enum ib_memreg_status_state - State of a status table
 * @IB_MEMREG_STATUS_LIVE: The table is up to date.
 * @IB_MEMREG_STATUS_DEAD: The table was destroyed, or its file closed.
 */
enum ib_memreg_status_state {
	IB_MEMREG_STATUS_LIVE = 1,
	IB_MEMREG_STATUS_DEAD = 2
};

/**
 * struct ib_memreg_status_table - Header of a status table
 * @version: IB_MEMREG_STATUS_VERSION; 0 if this is not the process that
 *	created the table
 * @state: enum ib_memreg_status_state
 * @slots: Number of slots
 * @slots_offset: Offset of the array of struct ib_memreg_status_slot
 * @groups_offset: Offset of an array of __aligned_u64, one for each
 *	IB_MEMREG_STATUS_GROUP slots, which grows with each change of their
 *	generations
 * @log_entries: Entries of the log, a power of two, or 0
 * @log_offset: Offset of the array of struct ib_memreg_change
 * @reserved: 0
 * @changes: Grows after a change of any generation, except that of a slot that
 *	is freed: as long as it is the same, no registration has become invalid
 * @log_head: Number of entries ever written to the log; the last one is at
 *	(@log_head - 1) modulo @log_entries
 * @events: Events that monitors received
 * @suspects: Suspect events, after which the mapping is checked
 * @unchanged: Checks that found the mapping unchanged
 * @reserved2: 0
 *
 * Fields from @changes on are written with release semantics: read them with
 * acquire semantics before the data that they refer to.
 */
struct ib_memreg_status_table {
	__u32 version;
	__u32 state;
	__u32 slots;
	__u32 slots_offset;
	__u32 groups_offset;
	__u32 log_entries;
	__u32 log_offset;
	__u32 reserved;
	__aligned_u64 changes;
	__aligned_u64 log_head;
	__aligned_u64 events;
	__aligned_u64 suspects;
	__aligned_u64 unchanged;
	__aligned_u64 reserved2[7];
};

/**
 * struct ib_memreg_status_slot - Slot of a monitor or an MR
 * @generation: Changes when the registration becomes invalid
 * @generation32: The lower half of @generation, for readers without 64-bit
 *	loads; wraps after 2^32 changes
 * @suspects: Suspect events on the range, after which the mapping was or is
 *	checked
 */
struct ib_memreg_status_slot {
	__aligned_u64 generation;
	__u32 generation32;
	__u32 suspects;
};

/**
 * struct ib_memreg_change - An entry of the log
 * @start: First address that changed
 * @end: First address behind the range
 *
 * To read: load log_head, copy the entries that were not seen yet, and load
 * log_head again. If that is log_entries or more ahead of an entry, the entry
 * may have been overwritten: assume that any address has changed.
 */
struct ib_memreg_change {
	__aligned_u64 start;
	__aligned_u64 end;
};

/**
 * struct ib_memreg_status_create - ioctl(IB_MEMREG_IOC_STATUS_CREATE)
 * @size: sizeof(struct ib_memreg_status_create)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @slots: Slots, 1 to IB_MEMREG_STATUS_SLOTS_MAX
 * @log_entries: Entries of a log for a wide monitor, a power of two up to
 *	IB_MEMREG_STATUS_LOG_MAX, or 0
 * @out_status_id: Id of the new table
 * @out_fd: Descriptor by which it is mapped, close-on-exec
 * @reserved: Must be 0
 * @out_size: Bytes that can be mapped
 *
 * Make a status table for the calling process. Works on a file that is not
 * bound to a device. The memory of the table, 16 bytes and an eighth of a byte
 * for each slot, and that of monitors is charged to the memory cgroup.
 *
 * read(2) of 8 bytes or more from @out_fd waits until the number of changes
 * differs from that of the last read, and returns it; it fails with EAGAIN
 * instead of waiting if the descriptor is O_NONBLOCK, and with EINVAL if there
 * is less room. It returns 0 bytes once the table is dead and the last change
 * was read. poll(2) reports POLLIN while a change is unread, and POLLHUP once
 * the table is dead.
 *
 * Errors: EINVAL (@slots, @log_entries), ENOMEM, EMFILE, ENFILE, ENODEV (the
 * device of the file is gone).
 */
struct ib_memreg_status_create {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 slots;
	__u32 log_entries;
	__u32 out_status_id;
	__s32 out_fd;
	__u32 reserved;
	__aligned_u64 out_size;
};

#define IB_MEMREG_IOC_STATUS_CREATE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_STATUS_CREATE)

/**
 * enum ib_memreg_monitor_flags - Flags of monitors
 * @IB_MEMREG_MONITOR_WIDE: Watch all of the address space, and write each
 *	change to the table's log. A table has one such monitor. mprotect(2)
 *	counts where a mapping is not writable afterwards.
 * @IB_MEMREG_MONITOR_DMABUF: Watch the dma-buf whose descriptor is @addr. The
 *	monitor holds a reference of it. The file is bound to the device that
 *	the dma-buf is registered with.
 */
enum ib_memreg_monitor_flags {
	IB_MEMREG_MONITOR_WIDE = 1 << 0,
	IB_MEMREG_MONITOR_DMABUF = 1 << 1
};

/**
 * struct ib_memreg_monitor - An address range, or a dma-buf, to watch
 * @addr: First address, of any alignment; whole pages are watched. 0 with WIDE;
 *	the descriptor with DMABUF
 * @length: Bytes, from 1; 0 with WIDE and DMABUF
 * @access: IB_MEMREG_ACCESS_LOCAL_WRITE if the mapping must be writable, or 0
 *	if readable is enough; 0 with DMABUF
 * @flags: enum ib_memreg_monitor_flags
 * @out_monitor_id: Id of the new monitor
 * @out_slot: Its slot in the table
 * @out_generation: Generation of the slot until the mapping changes
 */
struct ib_memreg_monitor {
	__aligned_u64 addr;
	__aligned_u64 length;
	__u32 access;
	__u32 flags;
	__u32 out_monitor_id;
	__u32 out_slot;
	__aligned_u64 out_generation;
};

/**
 * struct ib_memreg_monitor_create - ioctl(IB_MEMREG_IOC_MONITOR_CREATE)
 * @size: sizeof(struct ib_memreg_monitor_create)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @status_id: A status table of the caller's
 * @count: Monitors to make, 1 to IB_MEMREG_BATCH_MAX
 * @out_index: Number of the entry at which the call failed, if it failed
 *	because of one
 * @monitors: Pointer to an array of @count struct ib_memreg_monitor
 *
 * Make monitors, all or none of them. The memory may be mapped or not. A table
 * can have as many monitors as slots. No monitor can be added if its first,
 * middle or last page is watched by IB_MEMREG_MONITOR_DEPTH monitors of the
 * process. The call waits for changes in progress in each range. Works on a
 * file that is not bound to a device, except with DMABUF.
 *
 * Errors: EINVAL, EOVERFLOW (a range wraps), EFAULT (a range that is not of
 * user space), ENOENT, EPERM, EBUSY (WIDE), EBADF (no descriptor of a dma-buf),
 * EOPNOTSUPP (a flag; the exporter refuses), EMFILE (monitors of dma-bufs and
 * exports of the user, as many as RLIMIT_NOFILE), ENOSPC, ENOMEM, EINTR, ENODEV.
 */
struct ib_memreg_monitor_create {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 status_id;
	__u32 count;
	__u32 out_index;
	__aligned_u64 monitors;
};

#define IB_MEMREG_IOC_MONITOR_CREATE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_MONITOR_CREATE)

/**
 * struct ib_memreg_monitor_destroy - ioctl(IB_MEMREG_IOC_MONITOR_DESTROY)
 * @size: sizeof(struct ib_memreg_monitor_destroy)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @count: Monitors to destroy, 1 to IB_MEMREG_BATCH_MAX
 * @out_index: Number of the entry that was wrong, if the call fails with ENOENT
 *	or EBUSY
 * @reserved: Must be 0
 * @ids: Pointer to an array of @count __u32, their ids
 *
 * Destroy monitors, all or none of them, as DESTROY does with one. The
 * generations of their slots change. Works on a file that is not bound.
 *
 * Errors: EINVAL, ENOENT (an id is not that of a monitor, or there twice),
 * EBUSY, ENOMEM, EFAULT, EINTR, ENODEV.
 */
struct ib_memreg_monitor_destroy {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 count;
	__u32 out_index;
	__u32 reserved;
	__aligned_u64 ids;
};

#define IB_MEMREG_IOC_MONITOR_DESTROY \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_MONITOR_DESTROY)

/**
 * struct ib_memreg_listener_create - ioctl(IB_MEMREG_IOC_LISTENER_CREATE)
 * @size: sizeof(struct ib_memreg_listener_create)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @backlog: Requests that may wait to be accepted, 1 to
 *	IB_MEMREG_BACKLOG_MAX; a peer beyond that is rejected, as is one beyond
 *	IB_MEMREG_BACKLOG_MAX at all listeners of the file
 * @addr: Address and port to listen on; a wildcard address and port 0 are
 *	allowed. Requests that come in on another device are rejected. On
 *	return: the port that was chosen.
 * @out_listener_id: Id of the new listener
 * @reserved: Must be 0
 *
 * Listen for connections in the network namespace of the file. A peer's
 * request becomes an endpoint of this file, and an event
 * IB_MEMREG_EVENT_CONNECT_REQUEST names it.
 *
 * Errors: EINVAL, EADDRINUSE, EADDRNOTAVAIL, EPERM (port), EFAULT, ENODEV,
 * ENOMEM, ENOSPC (IB_MEMREG_LISTENERS_MAX), EDQUOT, EPROTO.
 */
struct ib_memreg_listener_create {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 backlog;
	struct ib_memreg_addr addr;
	__u32 out_listener_id;
	__u32 reserved;
};

#define IB_MEMREG_IOC_LISTENER_CREATE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_LISTENER_CREATE)

/**
 * enum ib_memreg_queues_flags - Flags of struct ib_memreg_queues
 * @IB_MEMREG_QUEUES_NO_INLINE_RECEIVE: Messages of any length go to the buffers
 *	that were posted for them.
 */
enum ib_memreg_queues_flags {
	IB_MEMREG_QUEUES_NO_INLINE_RECEIVE = 1 << 0
};

/**
 * struct ib_memreg_queues - The queues of an endpoint
 * @flags: enum ib_memreg_queues_flags
 * @send_ring_id: Ring for completions of sends; 0 for an endpoint without a
 *	send queue
 * @recv_ring_id: Ring for completions of receives, which may be the same; 0 for
 *	an endpoint without a receive queue, or with @srq_id
 * @srq_id: Shared receive queue to take buffers from, of the endpoint's domain,
 *	or 0
 * @max_send: Work requests on the send queue, 1 to IB_MEMREG_CAP_QUEUE; 0
 *	without @send_ring_id
 * @max_recv: Work requests on the receive queue, 1 to IB_MEMREG_CAP_QUEUE; 0
 *	without @recv_ring_id
 * @max_send_sge: SGEs of a work request on the send queue, 1 to
 *	IB_MEMREG_SGE_MAX; 0 without @send_ring_id
 * @max_recv_sge: SGEs of a work request on the receive queue, 1 to
 *	IB_MEMREG_SGE_MAX; 0 without @recv_ring_id
 * @max_inline: Bytes of inline data of a work request on the send queue, 0 to
 *	IB_MEMREG_INLINE_MAX
 * @reserved: Must be 0
 *
 * With all fields 0 there are no queues: the peer can use the keys granted to
 * it, but a SEND of the peer fails.
 *
 * Inline receive: a message that fits in the data part of a completion entry
 * (32 bytes in an entry of 64, 96 in one of 128), and in the buffer that was
 * posted for it, is delivered in the entry, with IB_MEMREG_CQE_INLINE, and not
 * in the buffer.
 *
 * Errors of calls that take such a structure: EINVAL (a field is out of range,
 * or given without its ring: COUNT, SGES, INLINE; both @srq_id and
 * @recv_ring_id: RING; the shared receive queue is of another domain: DOMAIN),
 * ENOENT, EAGAIN (the ring serves as many send queues as it can: RING_FULL),
 * ENOMEM.
 */
struct ib_memreg_queues {
	__u32 flags;
	__u32 send_ring_id;
	__u32 recv_ring_id;
	__u32 srq_id;
	__u32 max_send;
	__u32 max_recv;
	__u32 max_send_sge;
	__u32 max_recv_sge;
	__u32 max_inline;
	__u32 reserved;
};

/**
 * struct ib_memreg_endpoint_connect - ioctl(IB_MEMREG_IOC_ENDPOINT_CONNECT)
 * @size: sizeof(struct ib_memreg_endpoint_connect)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @domain_id: Domain in which the peer's keys are to work
 * @addr: Address and port of the peer
 * @src: Address to connect from; with family 0 the routing table selects it
 * @timeout_ms: Time limit in milliseconds from this call to the peer's answer,
 *	1 to IB_MEMREG_TIMEOUT_MAX_MS
 * @out_endpoint_id: Id of the new endpoint
 * @private_data_len: Bytes of private data for the peer, 0 to
 *	IB_MEMREG_CAP_CONNECT_DATA
 * @reserved: Must be 0
 * @private_data: Pointer to the private data
 * @queues: Queues of the new endpoint. Receives may be submitted from now on;
 *	they are posted before the peer gets the request.
 *
 * Begin to connect. The outcome is an event: IB_MEMREG_EVENT_ESTABLISHED,
 * _REJECTED or _ERROR.
 *
 * Errors: EINVAL, EOPNOTSUPP (flags), ENOENT, EAGAIN (the ring has no room for
 * a send queue), EFAULT, ENOMEM, EDQUOT, EPERM (port), EADDRINUSE,
 * EADDRNOTAVAIL, EACCES (route), ENETDOWN, ENETUNREACH, EHOSTDOWN,
 * EHOSTUNREACH, ETIMEDOUT, EPROTO, ENODEV.
 */
struct ib_memreg_endpoint_connect {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 domain_id;
	struct ib_memreg_addr addr;
	struct ib_memreg_addr src;
	__u32 timeout_ms;
	__u32 out_endpoint_id;
	__u32 private_data_len;
	__u32 reserved;
	__aligned_u64 private_data;
	struct ib_memreg_queues queues;
};

#define IB_MEMREG_IOC_ENDPOINT_CONNECT \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_ENDPOINT_CONNECT)

/**
 * struct ib_memreg_endpoint_setup - ioctl(IB_MEMREG_IOC_ENDPOINT_SETUP)
 * @size: sizeof(struct ib_memreg_endpoint_setup)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @endpoint_id: Endpoint named by IB_MEMREG_EVENT_CONNECT_REQUEST
 * @domain_id: Domain of the endpoint
 * @reserved: Must be 0
 * @queues: Its queues
 *
 * Give queues to a peer's request, before it is accepted: receives that are
 * submitted between ENDPOINT_SETUP and ENDPOINT_ACCEPT are posted before the
 * peer can send. Possible once for each request; a request that is accepted
 * without this call has no queues.
 *
 * Errors: EINVAL, EOPNOTSUPP (flags), ENOENT, ENOTCONN (accepted or gone
 * already), EBUSY (done already), EAGAIN (the ring has no room for a send
 * queue), ENOMEM, ENOSPC, EDQUOT, ENODEV.
 */
struct ib_memreg_endpoint_setup {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 endpoint_id;
	__u32 domain_id;
	__u32 reserved;
	struct ib_memreg_queues queues;
};

#define IB_MEMREG_IOC_ENDPOINT_SETUP \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_ENDPOINT_SETUP)

/**
 * struct ib_memreg_endpoint_accept - ioctl(IB_MEMREG_IOC_ENDPOINT_ACCEPT)
 * @size: sizeof(struct ib_memreg_endpoint_accept)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @endpoint_id: Endpoint named by IB_MEMREG_EVENT_CONNECT_REQUEST
 * @domain_id: Domain in which its peer's keys are to work; that of
 *	ENDPOINT_SETUP, if there was one
 * @private_data_len: Bytes of private data for the peer, 0 to
 *	IB_MEMREG_CAP_ACCEPT_DATA
 * @private_data: Pointer to the private data
 *
 * Accept a request: make its QP, unless ENDPOINT_SETUP has made it, and answer
 * the peer. The number of READs and atomics in flight is the smaller one of the
 * peer's request and the device's limit; ENDPOINT_CONNECT requests up to 16.
 * Where a peer has agreed to none, SUBMIT refuses them (EOPNOTSUPP,
 * REASON_OPCODE_PEER): they would never complete. IB_MEMREG_EVENT_ESTABLISHED
 * or _DISCONNECTED follows. The peer can use its keys from here on, before it
 * confirms the answer; if it does not within IB_MEMREG_ACCEPT_MAX_MS, the
 * connection ends, and the windows with it. If the call fails the request stays
 * as it was, with one exception: after ENOTCONN because the peer has gone at
 * the last moment, the request has ended, and IB_MEMREG_EVENT_DISCONNECTED
 * follows.
 *
 * Errors: EINVAL, ENOENT, ENOTCONN (accepted or gone already), EFAULT, ENOMEM,
 * ENOSPC, EDQUOT, ENODEV.
 */
struct ib_memreg_endpoint_accept {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 endpoint_id;
	__u32 domain_id;
	__u32 private_data_len;
	__aligned_u64 private_data;
};

#define IB_MEMREG_IOC_ENDPOINT_ACCEPT \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_ENDPOINT_ACCEPT)

/**
 * struct ib_memreg_endpoint_reject - ioctl(IB_MEMREG_IOC_ENDPOINT_REJECT)
 * @size: sizeof(struct ib_memreg_endpoint_reject)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @endpoint_id: Endpoint named by IB_MEMREG_EVENT_CONNECT_REQUEST
 * @private_data_len: Bytes of private data for the peer, 0 to
 *	IB_MEMREG_CAP_REJECT_DATA
 * @reserved: Must be 0
 * @private_data: Pointer to the private data
 *
 * Reject a request, and destroy its endpoint. If another call is using the
 * endpoint at that moment, the endpoint is left CLOSED, to be destroyed by
 * DESTROY.
 *
 * A call that fails destroys nothing: after ENOTCONN the endpoint still exists,
 * and if it was never accepted keeps its place in the backlog, until DESTROY.
 *
 * Errors: EINVAL, ENOENT, ENOTCONN (accepted or gone already), EFAULT, ENODEV.
 */
struct ib_memreg_endpoint_reject {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 endpoint_id;
	__u32 private_data_len;
	__u32 reserved;
	__aligned_u64 private_data;
};

#define IB_MEMREG_IOC_ENDPOINT_REJECT \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_ENDPOINT_REJECT)

/**
 * struct ib_memreg_endpoint_disconnect - The call
 *	ioctl(IB_MEMREG_IOC_ENDPOINT_DISCONNECT)
 * @size: sizeof(struct ib_memreg_endpoint_disconnect)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @endpoint_id: Endpoint that is, or was, connected
 *
 * End a connection. When the call returns, the peer has no access: the QP is in
 * the error state, all work requests are flushed, with their entries in the
 * ring, and the windows that were granted to the endpoint are revoked. The call
 * returns 0 also if the connection had ended before.
 * IB_MEMREG_EVENT_DISCONNECTED follows once, whichever side ended the
 * connection. The endpoint exists until DESTROY.
 *
 * Errors: ENOENT, ENOTCONN (it was neither accepted nor established), ENODEV.
 */
struct ib_memreg_endpoint_disconnect {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 endpoint_id;
};

#define IB_MEMREG_IOC_ENDPOINT_DISCONNECT \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_ENDPOINT_DISCONNECT)

/**
 * enum ib_memreg_event_type - Events of endpoints and leases
 * @IB_MEMREG_EVENT_CONNECT_REQUEST: A peer wants to connect; accept or reject.
 * @IB_MEMREG_EVENT_ESTABLISHED: The connection is established.
 * @IB_MEMREG_EVENT_REJECTED: The peer rejected; @status is its reason.
 * @IB_MEMREG_EVENT_DISCONNECTED: The connection was ended by either side or by
 *	an error, or the peer gave up its request. The windows granted to the
 *	endpoint are revoked.
 * @IB_MEMREG_EVENT_ERROR: ENDPOINT_CONNECT did not establish the connection;
 *	@status is a negative errno.
 * @IB_MEMREG_EVENT_LEASE_ENDED: The time of a lease is over, and its windows
 *	and exports are revoked.
 *
 * Each lease has the last one at most once, and each endpoint the others, in
 * this order: on the listening side CONNECT_REQUEST, then ESTABLISHED if the
 * connection is established, then DISCONNECTED; on the connecting side
 * ESTABLISHED and DISCONNECTED, or REJECTED, or ERROR. There is no order
 * between events of different objects. After DISCONNECTED, REJECTED and ERROR
 * the endpoint is CLOSED, and exists until DESTROY.
 */
enum ib_memreg_event_type {
	IB_MEMREG_EVENT_CONNECT_REQUEST = 1,
	IB_MEMREG_EVENT_ESTABLISHED = 2,
	IB_MEMREG_EVENT_REJECTED = 3,
	IB_MEMREG_EVENT_DISCONNECTED = 4,
	IB_MEMREG_EVENT_ERROR = 5,
	IB_MEMREG_EVENT_LEASE_ENDED = 6
};

/**
 * struct ib_memreg_event - A record that read(2) returns
 * @size: Bytes of this record; the next one begins after them
 * @type: enum ib_memreg_event_type
 * @endpoint_id: The endpoint, or the lease
 * @listener_id: The listener that it came from, or 0
 * @status: Reason of REJECTED, such as 28 (the peer's program rejected) or 8
 *	(no listener at that port); negative errno of ERROR; otherwise 0
 * @private_data_len: Bytes in @private_data. The InfiniBand CM pads private
 *	data with zeros to the most that the message can carry, and reports that
 *	length: 56 with CONNECT_REQUEST, 196 with ESTABLISHED, 148 with REJECTED
 *	of status 28, otherwise 0. Peers have to put the actual length into the
 *	data.
 * @user_data: Value that SET_USER_DATA has set for the endpoint, or else for
 *	the listener that its request came from, or else the endpoint's id, as
 *	in completions; the id of a lease
 * @peer: Address of the peer; 0 of a lease
 * @private_data: Private data from the peer: with CONNECT_REQUEST, with
 *	ESTABLISHED on the side that connected, and with REJECTED
 *
 * read(2) on a bound file returns as many whole records as are available and
 * fit, each record to one reader. It waits for the first one, or fails with
 * EAGAIN if the file is O_NONBLOCK; EINVAL if not even one fits; EFAULT if none
 * could be copied, and then no event is lost; EINTR; ENODEV if the file is not
 * bound, and once the device is gone. poll(2) reports POLLIN while there is a
 * record, and POLLHUP | POLLERR once the device is gone. Records of these types
 * do not grow: a buffer that has room for one now has room for one later.
 */
struct ib_memreg_event {
	__u32 size;
	__u32 type;
	__u32 endpoint_id;
	__u32 listener_id;
	__s32 status;
	__u32 private_data_len;
	__aligned_u64 user_data;
	struct ib_memreg_addr peer;
	__u8 private_data[IB_MEMREG_PRIVATE_DATA_MAX];
};

/**
 * enum ib_memreg_opcode - Operations of work requests
 * @IB_MEMREG_OP_SEND: Send a message.
 * @IB_MEMREG_OP_SEND_WITH_IMM: ... with immediate data @ex.
 * @IB_MEMREG_OP_SEND_WITH_INV: ... and invalidate the peer's rkey @ex.
 * @IB_MEMREG_OP_WRITE: Write to the peer's memory at @remote_addr, @rkey.
 * @IB_MEMREG_OP_WRITE_WITH_IMM: ... and take a receive of the peer for
 *	immediate data @ex.
 * @IB_MEMREG_OP_READ: Read from the peer's memory at @remote_addr, @rkey.
 * @IB_MEMREG_OP_CMP_AND_SWP: If the 8 bytes at @remote_addr equal @compare_add,
 *	replace them by @swap; the old value goes to the SGE. In host byte
 *	order.
 * @IB_MEMREG_OP_FETCH_AND_ADD: Add @compare_add to the 8 bytes at @remote_addr;
 *	the old value goes to the SGE.
 * @IB_MEMREG_OP_RECV: A buffer for a message, on the endpoint's receive queue,
 *	or on the shared receive queue that @target_id names.
 * @IB_MEMREG_OP_BIND: Bind a window of type 2B.
 * @IB_MEMREG_OP_INVALIDATE: End a window of type 2B that was bound on the same
 *	queue.
 * @IB_MEMREG_OP_FLUSH: Make earlier writes visible, or persistent.
 * @IB_MEMREG_OP_ATOMIC_WRITE: Write 8 bytes atomically.
 *
 * The last two can be submitted only if IB_MEMREG_CAP_OPCODES has them. In the
 * kernels that this release supports, no driver takes them from kernel users; a
 * peer's FLUSH and ATOMIC_WRITE on memory that allows them work where the
 * device has them.
 */
enum ib_memreg_opcode {
	IB_MEMREG_OP_SEND = 1,
	IB_MEMREG_OP_SEND_WITH_IMM = 2,
	IB_MEMREG_OP_SEND_WITH_INV = 3,
	IB_MEMREG_OP_WRITE = 4,
	IB_MEMREG_OP_WRITE_WITH_IMM = 5,
	IB_MEMREG_OP_READ = 6,
	IB_MEMREG_OP_CMP_AND_SWP = 7,
	IB_MEMREG_OP_FETCH_AND_ADD = 8,
	IB_MEMREG_OP_RECV = 9,
	IB_MEMREG_OP_BIND = 10,
	IB_MEMREG_OP_INVALIDATE = 11,
	IB_MEMREG_OP_FLUSH = 12,
	IB_MEMREG_OP_ATOMIC_WRITE = 13
};

/**
 * struct ib_memreg_ring - Header of a completion ring, in shared memory
 * @producer: Number of entries that the kernel has written so far; wraps
 *	around. Read it with acquire semantics.
 * @cpu: CPU on which the kernel last wrote entries. A hint: a thread that
 *	sleeps until there are entries is woken from this CPU.
 * @reserved1: Do not access
 * @consumer: Number of entries that the user has consumed so far; wraps around.
 *	Written by the user, with release semantics. A value from @producer less
 *	the entries of the ring up to @producer is valid; with any other value
 *	the kernel treats the ring as full.
 * @flags: enum ib_memreg_ring_user_flags, written by the user
 * @reserved2: Do not access
 *
 * Entry i, counted like @producer, lies (i modulo the number of entries) *
 * entry size bytes behind out_entries_offset. The user may read the entries
 * from @consumer to @producer - 1. Writes of the user to this memory, valid or
 * not, cannot affect other users.
 *
 * A program that reads a ring without libmemreg has to
 *
 * - read @producer with acquire semantics, and then the entries;
 * - write @consumer with release semantics, for any number of entries at a
 *   time, and not access those entries afterwards;
 * - let only one thread at a time do so, or make sure in another way that
 *   @consumer only grows, up to @producer;
 * - check @producer again, behind a full memory barrier, after it has cleared
 *   IB_MEMREG_RING_QUIET and before it sleeps on the eventfd, as the eventfd is
 *   not signalled for earlier entries. RING_WAIT and poll(2) do not need this.
 */
struct ib_memreg_ring {
	__u32 producer;
	__u32 cpu;
	__u32 reserved1[14];
	__u32 consumer;
	__u32 flags;
	__u32 reserved2[14];
};

/**
 * enum ib_memreg_ring_user_flags - Flags that a user may set in a ring
 * @IB_MEMREG_RING_QUIET: Don't signal the eventfd.
 */
enum ib_memreg_ring_user_flags {
	IB_MEMREG_RING_QUIET = 1 << 0
};

/**
 * enum ib_memreg_wc_status - Outcome of a work request
 * @IB_MEMREG_WC_SUCCESS: Success
 * @IB_MEMREG_WC_LOC_LEN_ERR: A message is longer than the receive that it came
 *	to.
 * @IB_MEMREG_WC_LOC_QP_OP_ERR: The QP found the work request invalid.
 * @IB_MEMREG_WC_LOC_PROT_ERR: Access to local memory that is not allowed
 * @IB_MEMREG_WC_WR_FLUSH_ERR: The connection ended before its turn came.
 * @IB_MEMREG_WC_MW_BIND_ERR: The window can't be bound.
 * @IB_MEMREG_WC_BAD_RESP_ERR: The peer's response is invalid.
 * @IB_MEMREG_WC_LOC_ACCESS_ERR: Write to local memory that is not allowed
 * @IB_MEMREG_WC_REM_INV_REQ_ERR: The peer found the request invalid: for
 *	example, a message is longer than the receive that the peer has posted.
 * @IB_MEMREG_WC_REM_ACCESS_ERR: Access to the peer's memory that is not allowed
 * @IB_MEMREG_WC_REM_OP_ERR: The peer could not execute the request.
 * @IB_MEMREG_WC_RETRY_EXC_ERR: The peer does not answer.
 * @IB_MEMREG_WC_RNR_RETRY_EXC_ERR: The peer had no receive posted.
 * @IB_MEMREG_WC_REM_ABORT_ERR: The peer aborted the request.
 * @IB_MEMREG_WC_FATAL_ERR: The device failed.
 * @IB_MEMREG_WC_RESP_TIMEOUT_ERR: The peer did not answer in time.
 * @IB_MEMREG_WC_GENERAL_ERR: Any other error
 *
 * The values are those of enum ibv_wc_status; see ibv_poll_cq(3). Drivers
 * differ in which error they report: compare only with SUCCESS and
 * WR_FLUSH_ERR, and just display the others. The first failed work request ends
 * the connection: all work requests posted on the endpoint are flushed, and
 * DISCONNECTED follows.
 */
enum ib_memreg_wc_status {
	IB_MEMREG_WC_SUCCESS = 0,
	IB_MEMREG_WC_LOC_LEN_ERR = 1,
	IB_MEMREG_WC_LOC_QP_OP_ERR = 2,
	IB_MEMREG_WC_LOC_PROT_ERR = 4,
	IB_MEMREG_WC_WR_FLUSH_ERR = 5,
	IB_MEMREG_WC_MW_BIND_ERR = 6,
	IB_MEMREG_WC_BAD_RESP_ERR = 7,
	IB_MEMREG_WC_LOC_ACCESS_ERR = 8,
	IB_MEMREG_WC_REM_INV_REQ_ERR = 9,
	IB_MEMREG_WC_REM_ACCESS_ERR = 10,
	IB_MEMREG_WC_REM_OP_ERR = 11,
	IB_MEMREG_WC_RETRY_EXC_ERR = 12,
	IB_MEMREG_WC_RNR_RETRY_EXC_ERR = 13,
	IB_MEMREG_WC_REM_ABORT_ERR = 16,
	IB_MEMREG_WC_FATAL_ERR = 19,
	IB_MEMREG_WC_RESP_TIMEOUT_ERR = 20,
	IB_MEMREG_WC_GENERAL_ERR = 21
};

/**
 * enum ib_memreg_cqe_flags - Flags of a completion
 * @IB_MEMREG_CQE_IMM: @ex is the immediate data of the message.
 * @IB_MEMREG_CQE_INVALIDATED: The message ended a window of type 2B that was
 *	granted to this endpoint: @ex is its rkey, and @window_id the window.
 *	The window can be bound again as soon as this side's work requests on it
 *	have completed as well.
 * @IB_MEMREG_CQE_INLINE: The message is in the entry, not in the buffer.
 * @IB_MEMREG_CQE_STALE: An MR of the work request became stale while the work
 *	request was posted: it was executed on pages that are no longer mapped.
 */
enum ib_memreg_cqe_flags {
	IB_MEMREG_CQE_IMM = 1 << 0,
	IB_MEMREG_CQE_INVALIDATED = 1 << 1,
	IB_MEMREG_CQE_INLINE = 1 << 2,
	IB_MEMREG_CQE_STALE = 1 << 3
};

/**
 * struct ib_memreg_cqe - An entry of a completion ring
 * @user_data: User data of the work request
 * @endpoint_data: Value that SET_USER_DATA has set for its endpoint, or else
 *	the endpoint's id; 0 for a receive of a shared queue that failed
 * @byte_len: RECV: bytes of the message, or bytes that WRITE_WITH_IMM wrote.
 *	READ and atomics: bytes read. Otherwise 0. Only with
 *	IB_MEMREG_WC_SUCCESS.
 * @ex: See @flags; immediate data is in network byte order
 * @window_id: See IB_MEMREG_CQE_INVALIDATED; BIND and INVALIDATE: the window
 * @opcode: enum ib_memreg_opcode of the work request. A RECV that a
 *	WRITE_WITH_IMM has consumed has IB_MEMREG_OP_WRITE_WITH_IMM.
 * @status: enum ib_memreg_wc_status
 * @flags: enum ib_memreg_cqe_flags
 * @data: The message, with IB_MEMREG_CQE_INLINE. In an entry of 128 bytes it
 *	extends to the end of the entry.
 *
 * A work request that was submitted without IB_MEMREG_WR_SIGNALED has an entry
 * only if it fails. Entries of one send queue are in the order of submission,
 * and so are those of one receive queue; there is no order between queues,
 * except for the causal order of messages.
 */
struct ib_memreg_cqe {
	__aligned_u64 user_data;
	__aligned_u64 endpoint_data;
	__u32 byte_len;
	__u32 ex;
	__u32 window_id;
	__u16 opcode;
	__u8 status;
	__u8 flags;
	__u8 data[32];
};

/**
 * enum ib_memreg_ring_flags - Flags of RING_CREATE
 * @IB_MEMREG_RING_NO_MODERATION: Report each completion at once, at any rate of
 *	completions.
 */
enum ib_memreg_ring_flags {
	IB_MEMREG_RING_NO_MODERATION = 1 << 0
};

/**
 * struct ib_memreg_ring_create - ioctl(IB_MEMREG_IOC_RING_CREATE)
 * @size: sizeof(struct ib_memreg_ring_create)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: enum ib_memreg_ring_flags
 * @entries: In: entries to have room for, 1 to IB_MEMREG_CAP_RING. Out: the
 *	entries of the ring: the next power of two
 * @entry_size: Bytes of an entry: 64 or 128
 * @eventfd: An eventfd(2) that is signalled when entries have come in, or -1
 * @out_ring_id: Id of the new ring
 * @out_fd: A descriptor for it, close-on-exec, to be closed by the caller
 * @out_map_size: Bytes to map
 * @out_entries_offset: Offset of entry 0 in the mapping
 *
 * Make a completion ring: memory that kernel and user share, in which the
 * kernel reports work requests that completed. mmap(2) of @out_fd, offset 0,
 * with MAP_SHARED shows it, beginning with struct ib_memreg_ring; poll(2) of
 * @out_fd reports POLLIN while there are entries that the user has not
 * consumed, and POLLHUP | POLLERR once the ring is destroyed; and RING_WAIT is
 * an ioctl of @out_fd. One ring can serve many endpoints. Its memory is charged
 * to the caller's memory cgroup, and not to RLIMIT_MEMLOCK; a ring takes a CQ
 * of the device.
 *
 * A ring never overflows: room is set aside for the completion of each work
 * request when it is submitted, signalled or not, and a submission for which
 * there is no room fails with EAGAIN. The room of an unsignalled work request
 * is freed when a later work request of the same send queue completes that is
 * signalled, or is a BIND or INVALIDATE, or ends a row of 64 to 95 unsignalled
 * ones. A ring serves as many send queues as it has entries, or fewer if the
 * device's completion queue has less room beside the entries.
 *
 * Unless the flag NO_MODERATION is set, reports may be delayed in two cases:
 * while completions come in faster than they are handled,
 * by up to 32 microseconds (moderation by the device, or else by ib_memreg);
 * and, after a task in RING_WAIT was woken to handle completions, until that
 * task runs, by at most a millisecond.
 *
 * Errors: EINVAL, EOPNOTSUPP (flags), EBADF (eventfd), EMFILE, ENFILE, ENOMEM,
 * ENOSPC, EDQUOT, EFAULT, ENODEV.
 */
struct ib_memreg_ring_create {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 entries;
	__u32 entry_size;
	__s32 eventfd;
	__u32 out_ring_id;
	__s32 out_fd;
	__u32 out_map_size;
	__u32 out_entries_offset;
};

#define IB_MEMREG_IOC_RING_CREATE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_RING_CREATE)

/** IB_MEMREG_WAIT_FOREVER - timeout of RING_WAIT: no limit */
#define IB_MEMREG_WAIT_FOREVER	(~(__u64)0)

/**
 * struct ib_memreg_ring_wait - ioctl(IB_MEMREG_IOC_RING_WAIT) of a ring's own
 *	descriptor
 * @size: sizeof(struct ib_memreg_ring_wait)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @min_count: Entries to wait for, 1 to the entries of the ring
 * @out_count: Entries that the user has not consumed; valid with ETIMEDOUT as
 *	well
 * @reserved: Must be 0
 * @timeout_ns: Nanoseconds to wait at most; 0 does not wait,
 *	IB_MEMREG_WAIT_FOREVER waits without limit
 *
 * Wait until the ring has @min_count entries that the user has not consumed.
 * The waiting task also ends windows, which otherwise a worker does.
 * @out_reason is written if the call succeeds, too.
 *
 * Errors: ENOTTY (another call on this descriptor), E2BIG, EOPNOTSUPP (flags),
 * EINVAL (@min_count is 0, or more than the ring has), ETIMEDOUT, EINTR (any
 * signal), ENODEV (the ring is destroyed, or the device is gone, and the ring
 * has fewer), EFAULT.
 */
struct ib_memreg_ring_wait {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 min_count;
	__u32 out_count;
	__u32 reserved;
	__aligned_u64 timeout_ns;
};

#define IB_MEMREG_IOC_RING_WAIT \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_RING_WAIT)

/**
 * struct ib_memreg_srq_create - ioctl(IB_MEMREG_IOC_SRQ_CREATE)
 * @size: sizeof(struct ib_memreg_srq_create)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: enum ib_memreg_queues_flags
 * @domain_id: Domain of the endpoints that are to use it
 * @ring_id: Ring for the completions of their receives
 * @max_recv: Work requests that it has room for, 1 to IB_MEMREG_QUEUE_MAX, or
 *	to the device's limit if that is less
 * @max_recv_sge: SGEs of each, 1 to IB_MEMREG_SGE_MAX
 * @out_srq_id: Id of the new queue
 *
 * Make a receive queue that any number of endpoints of a domain take buffers
 * from. Each entry names by its endpoint_data the endpoint that took it. A
 * buffer that a device had taken when a connection broke may come back only
 * when the queue is destroyed.
 *
 * Errors: EINVAL, EOPNOTSUPP (the device has no shared receive queues), ENOENT,
 * ENOMEM, ENOSPC, EDQUOT, EFAULT, ENODEV.
 */
struct ib_memreg_srq_create {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 domain_id;
	__u32 ring_id;
	__u32 max_recv;
	__u32 max_recv_sge;
	__u32 out_srq_id;
};

#define IB_MEMREG_IOC_SRQ_CREATE \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_SRQ_CREATE)

/**
 * enum ib_memreg_wr_flags - Flags of a work request
 * @IB_MEMREG_WR_SIGNALED: Report its completion. A RECV is always reported.
 * @IB_MEMREG_WR_FENCE: Start only after earlier READs and atomics have
 *	completed.
 * @IB_MEMREG_WR_SOLICITED: Raise a solicited event at the peer: for SENDs and
 *	WRITE_WITH_IMM.
 * @IB_MEMREG_WR_INLINE: @sges points to the data itself, of @length bytes,
 *	which are copied before the call returns: for SENDs and WRITEs.
 * @IB_MEMREG_WR_INSERT_RKEY: For BIND: write the rkey, in network byte order,
 *	into the message behind it, at byte @insert_at. The message is the next
 *	work request of the call that is neither a BIND, an INVALIDATE nor a
 *	RECV; it must have inline data and the same target, with no work request
 *	to another target in between. A message takes up to
 *	IB_MEMREG_INSERTS_MAX rkeys. Without such a message the rkeys are not
 *	inserted.
 */
enum ib_memreg_wr_flags {
	IB_MEMREG_WR_SIGNALED = 1 << 0,
	IB_MEMREG_WR_FENCE = 1 << 1,
	IB_MEMREG_WR_SOLICITED = 1 << 2,
	IB_MEMREG_WR_INLINE = 1 << 3,
	IB_MEMREG_WR_INSERT_RKEY = 1 << 4
};

/**
 * struct ib_memreg_sge - A range of an MR
 * @mr_id: MR of this file, of any domain
 * @length: Bytes; 0 is allowed
 * @offset: First byte, counted from the start of the MR
 */
struct ib_memreg_sge {
	__u32 mr_id;
	__u32 length;
	__aligned_u64 offset;
};

/**
 * struct ib_memreg_wr - A work request
 * @user_data: Comes back in the completion
 * @target_id: Endpoint; RECV: endpoint or shared receive queue
 * @opcode: enum ib_memreg_opcode
 * @flags: enum ib_memreg_wr_flags
 * @num_sge: Number of SGEs: 0 to the limit of the queue; atomics 1; 0 with
 *	INLINE, BIND and INVALIDATE
 * @ex: Immediate data in network byte order, or the rkey for the peer to
 *	invalidate, or 0
 * @sges: Pointer to an array of @num_sge struct ib_memreg_sge if @num_sge is
 *	more than 1, or to inline data
 * @sge: The SGE, if @num_sge is 1; BIND: the range to be bound
 * @remote_addr: WRITEs, READ, atomics: address at the peer. BIND, out: the
 *	first I/O address: the MR's plus the offset, or 0 if ZERO_BASED
 * @rkey: Key for @remote_addr. BIND, out: the rkey
 * @length: Bytes of inline data, up to the limit of the queue
 * @compare_add: See the atomics
 * @swap: See IB_MEMREG_OP_CMP_AND_SWP
 * @window_id: BIND, INVALIDATE: window of type 2B, of the endpoint's domain
 * @access: BIND: as in struct ib_memreg_bind
 * @insert_at: See IB_MEMREG_WR_INSERT_RKEY
 * @lease_id: BIND: as in struct ib_memreg_bind
 *
 * Fields that an opcode does not use must be 0, except @user_data and the
 * output fields of BIND.
 *
 * Local memory is accessed by DMA addresses, and not by a key: it costs no fast
 * registration, however large or scattered it is. An MR in a work request stays
 * pinned, and cannot be destroyed, until the work request has completed; if the
 * MR becomes stale meanwhile, the work is done on the pages as they were, and
 * the completion has IB_MEMREG_CQE_STALE.
 *
 * A READ, an atomic and a RECV need LOCAL_WRITE of their MRs. A READ or WRITE
 * of more than IB_MEMREG_CAP_FRAGMENTS pieces of memory (or fewer, on a very
 * deep queue), or of more bytes than IB_MEMREG_CAP_MESSAGE, takes the room of
 * several work requests on the send queue, and in the ring until it completes.
 */
struct ib_memreg_wr {
	__aligned_u64 user_data;
	__u32 target_id;
	__u16 opcode;
	__u16 flags;
	__u32 num_sge;
	__u32 ex;
	__aligned_u64 sges;
	struct ib_memreg_sge sge;
	__aligned_u64 remote_addr;
	__u32 rkey;
	__u32 length;
	__aligned_u64 compare_add;
	__aligned_u64 swap;
	__u32 window_id;
	__u32 access;
	__u32 insert_at;
	__u32 lease_id;
};

/**
 * struct ib_memreg_submit - ioctl(IB_MEMREG_IOC_SUBMIT)
 * @size: sizeof(struct ib_memreg_submit)
 * @out_reason: enum ib_memreg_reason, if the call fails
 * @flags: Must be 0
 * @count: Work requests, 1 to IB_MEMREG_BATCH_MAX
 * @wrs: Pointer to an array of @count struct ib_memreg_wr
 * @out_taken: Work requests that were posted: @count, unless the call fails
 * @reserved: Must be 0
 *
 * Submit work requests, for one or several endpoints, in this order. If a work
 * request is invalid, or there is no room for it, the call fails with its
 * errno; the @out_taken work requests before it are posted, and the others are
 * not. SENDs, RDMA and windows need an endpoint that is accepted or
 * established; receives may be submitted as soon as the endpoint has queues.
 *
 * BIND: the window ends with the endpoint's connection at the latest. The rkey
 * is fresh with each BIND, in the sense of struct ib_memreg_bind, so the user
 * cannot know it in advance: the call returns it, and can insert it into a
 * message of the same call. If the MR becomes stale before the BIND was
 * executed, the connection is ended. INVALIDATE fails with ESTALE if the guard
 * of the MR had to destroy the key along with its fast registration MR; the
 * window then ends with the connection.
 *
 * A call that fails with EFAULT may have posted a BIND whose rkey could not be
 * returned; @out_taken counts it. If this structure cannot be written to,
 * nothing is posted; but if it is unmapped during the call, the number of
 * posted work requests is lost.
 *
 * After EAGAIN, consume entries of the ring, and submit again from @out_taken
 * on. Entries that another call has reserved for a moment count as used, so
 * EAGAIN is possible even without posted work. If @out_taken lies between a
 * BIND with INSERT_RKEY and its message, no rkey will be inserted: write the
 * returned rkey into the message, in network byte order, before submitting the
 * rest. On a queue of less than 96 places, work requests that are never
 * signalled can fill the queue permanently.
 *
 * The SGEs of a work request have at most 2 GiB in total. A READ, WRITE or
 * WRITE_WITH_IMM in parts is one work request with one entry, which has the
 * status of the first part that failed; if the device takes some parts and
 * refuses others (EIO), the connection ends. On soft-RoCE a BIND takes two
 * places on the queue if a message, a READ, a WRITE or an atomic was posted
 * since the last BIND or INVALIDATE and the queue is not empty: the kernel
 * posts a LOCAL_INV in front, so that the device does not execute the BIND
 * again when it retransmits. If there is one place, the LOCAL_INV takes it, and
 * BIND is EAGAIN until it has completed.
 *
 * Errors: EINVAL, EOVERFLOW, ENOENT (an id), ENOTCONN (not connected yet, or no
 * longer), EAGAIN (queue or ring full), EACCES (LOCAL_WRITE, or the MR does not
 * allow the access of the window), ESTALE, EMSGSIZE, EOPNOTSUPP, EBUSY (BIND:
 * the window is bound, or still being invalidated; INVALIDATE: the window is
 * not bound there, or is being invalidated already), EFAULT, ENOMEM, ENOSPC,
 * EDQUOT, EINTR, EIO (the device refused it), ENODEV. For a BIND they have the
 * same meaning as with WINDOW_BIND.
 */
struct ib_memreg_submit {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
	__u32 count;
	__aligned_u64 wrs;
	__u32 out_taken;
	__u32 reserved;
};

#define IB_MEMREG_IOC_SUBMIT	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_SUBMIT)

/**
 * struct ib_memreg_uring_submit - Command IB_MEMREG_URING_SUBMIT of io_uring(7)
 * @wrs: Pointer to an array of @count struct ib_memreg_wr
 * @count: Work requests, 1 to IB_MEMREG_BATCH_MAX
 * @flags: Must be 0
 *
 * The 16 bytes of cmd in a submission entry of IORING_OP_URING_CMD, whose fd is
 * a bound file and whose cmd_op is IB_MEMREG_URING_SUBMIT. The work requests
 * are submitted as by SUBMIT, but the command completes in the ring of
 * io_uring, once, when the last of them has completed, and none of them has an
 * entry in a completion ring. Rules beyond those of SUBMIT:
 *
 * - All work requests are for the same target. A RECV is alone.
 * - SIGNALED has no effect.
 * - A received message always goes to the buffer, whatever its length.
 * - The array @wrs, and the data that it points to, must not change until the
 *   command has completed.
 * - Entries of the endpoint's completion ring are reserved as by SUBMIT, and
 *   freed when the work requests have completed.
 *
 * With IORING_URING_CMD_FIXED in uring_cmd_flags the memory of the work request
 * is a range of the registered buffer that buf_index names, and not of an MR:
 * @count and num_sge are 1, and in the SGE mr_id is 0, offset the address in
 * user space as it was when the buffer was registered, and length from 1. This
 * does not work with a shared receive queue. The mapping is not watched.
 *
 * The result is the number of bytes that ib_memreg_cqe.byte_len would be for
 * the last work request, 2^31 - 1 at most; or a negative errno. If not all work
 * requests could be submitted, it is the errno of SUBMIT, and the command
 * completes when the submitted ones have completed. If a work request failed,
 * it gives the status of the first one that did:
 *
 * ==================================================  ============
 * LOC_LEN_ERR                                         EMSGSIZE
 * LOC_PROT_ERR, LOC_ACCESS_ERR                        EFAULT
 * WR_FLUSH_ERR                                        ECANCELED
 * REM_ACCESS_ERR                                      EACCES
 * REM_INV_REQ_ERR, REM_OP_ERR                         EREMOTEIO
 * RETRY_EXC_ERR, RNR_RETRY_EXC_ERR, RESP_TIMEOUT_ERR  ETIMEDOUT
 * any other                                           EIO
 * ==================================================  ============
 *
 * Rings with entries of 32 bytes get struct ib_memreg_uring_result as well.
 *
 * Commands keep the file open: if a process closes the file while commands are
 * posted, the file's objects stay until the commands have completed. When the
 * ring of io_uring ends, by close, exit or exec, commands that are posted
 * complete with ECANCELED at once. Their work requests stay posted, and the
 * outcome goes to the completion ring of the queue in one entry: of the first
 * work request that failed, or else of the last one. If the memory is a
 * registered buffer the endpoint is disconnected instead, and the command
 * completes when it has been flushed. IORING_OP_ASYNC_CANCEL does not find
 * commands that are posted: to end one, disconnect its endpoint.
 *
 * Errors besides those of SUBMIT: EOPNOTSUPP (another cmd_op, or the kernel has
 * no such commands: see IB_MEMREG_CAP_URING; with a registered buffer also: DMA
 * would need bounce buffers or cache maintenance, REASON_NOT_COHERENT, or a
 * RECV on a shared receive queue, REASON_OPCODE_QUEUE), EINVAL (several
 * targets, REASON_URING_TARGET; a RECV or a registered buffer that is not
 * alone, REASON_URING_COUNT; multishot; with a registered buffer another number
 * of SGEs, or an mr_id, REASON_URING_SGE; or a length of 0), EFAULT (not in the
 * registered buffer, or there is none at that index, REASON_RANGE). No reason
 * is reported for another cmd_op or other uring_cmd_flags.
 */
struct ib_memreg_uring_submit {
	__aligned_u64 wrs;
	__u32 count;
	__u32 flags;
};

#define IB_MEMREG_URING_SUBMIT \
	_IO(IB_MEMREG_IOC_MAGIC, IB_MEMREG_CMD_URING_SUBMIT)

/**
 * struct ib_memreg_uring_result - Second part of a command's result
 * @status: enum ib_memreg_wc_status of the first work request that failed
 * @flags: enum ib_memreg_cqe_flags
 * @opcode: As in struct ib_memreg_cqe; 0 if not all were posted
 * @reason: enum ib_memreg_reason, if not all were posted
 * @ex: As in struct ib_memreg_cqe; for a RECV on a shared queue, the endpoint
 *	that took it instead; if not all were posted, the number of work
 *	requests that were
 *
 * The first 8 of the 16 bytes (big_cqe) by which an entry of 32 bytes is larger
 * than one of 16: IORING_SETUP_CQE32, or IORING_CQE_F_32 in its flags.
 */
struct ib_memreg_uring_result {
	__u8 status;
	__u8 flags;
	__u8 opcode;
	__u8 reason;
	__u32 ex;
};

#endif /* _UAPI_RDMA_IB_MEMREG_H */
