// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Why a call failed, in words.
 *
 * The kernel answers with an errno and a code of enum ib_memreg_reason. This
 * file has a sentence for each code, and one for each call where the meaning of
 * a code depends on the call; it records for each thread the code of the last
 * failure, and the call's parameters. explain.c makes a line of text from
 * these.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

struct reason {
	const char *text;	/* what is wrong */
	const char *hint;	/* what to do about it, or NULL */
};

static const struct reason reasons[] = {
	[IB_MEMREG_REASON_SIZE] = {
		"the structure is smaller than the kernel's first release has it",
		"header and module don't belong together" },
	[IB_MEMREG_REASON_FLAGS] = {
		"an unknown flag is set",
		"the running module may be older than this program" },
	[IB_MEMREG_REASON_RESERVED] = {
		"a field is not 0 that is reserved, or that none of the flags makes use of",
		"zero structures before filling them in" },
	[IB_MEMREG_REASON_NOT_BOUND] = {
		"the file is not bound to a device", NULL },
	[IB_MEMREG_REASON_BOUND] = {
		"the file is bound to a device already",
		"open another one for another device" },
	[IB_MEMREG_REASON_NO_DEVICE] = {
		"there is no such RDMA device in this network namespace",
		"`rdma link` shows those that there are; `memreg load --rxe NETDEV` makes one of a network interface"
	},
	[IB_MEMREG_REASON_DEVICE_GONE] = {
		"the RDMA device was removed, and all that this handle had on it is destroyed",
		"open a new handle once the device is back" },
	[IB_MEMREG_REASON_NO_FRWR] = {
		"the RDMA device has no fast registration", NULL },
	[IB_MEMREG_REASON_IWARP] = {
		"a QP of an iWARP device can't be connected to itself, so there is no registration queue on it",
		"use an InfiniBand or RoCE device" },
	[IB_MEMREG_REASON_NOT_COHERENT] = {
		"DMA of the device is not coherent, which long-lived registrations need",
		NULL },
	[IB_MEMREG_REASON_PORT] = {
		"no such port, or it is not usable",
		"`rdma link` shows the ports; the port's network interface must be up and have an IP address"
	},
	[IB_MEMREG_REASON_ID] = {
		"no such object in this handle, or of another type", NULL },
	[IB_MEMREG_REASON_IN_USE] = {
		"the object has users, or another call is at work on it",
		"destroy first what depends on it; `memreg list` shows it" },
	[IB_MEMREG_REASON_WINDOWS_BOUND] = {
		"windows are bound to the MR",
		"revoke them first" },
	[IB_MEMREG_REASON_ZERO_LENGTH] = { "the length is 0", NULL },
	[IB_MEMREG_REASON_WRAPS] = {
		"address or offset plus length wraps around", NULL },
	[IB_MEMREG_REASON_ACCESS] = {
		"an access flag is unknown", NULL },
	[IB_MEMREG_REASON_ACCESS_DEVICE] = {
		"the RDMA device lacks what an access flag needs",
		"`memreg caps` shows the access flags that can be had" },
	[IB_MEMREG_REASON_ACCESS_MR] = {
		"the window asks for what its MR doesn't allow",
		"register the MR with IB_MEMREG_ACCESS_MW_BIND, and with IB_MEMREG_ACCESS_LOCAL_WRITE for windows that can be written"
	},
	[IB_MEMREG_REASON_IOVA] = {
		"the I/O address differs from the memory's in the offset within a page of 4096 bytes",
		NULL },
	[IB_MEMREG_REASON_MEMLOCK] = {
		"the limit of locked memory, RLIMIT_MEMLOCK, is reached",
		"deregister something, or raise it in limits.conf(5) or by LimitMEMLOCK= of the service"
	},
	[IB_MEMREG_REASON_PIN] = {
		"the kernel can't pin a page of the memory", NULL },
	[IB_MEMREG_REASON_NOT_PMEM] = {
		"FLUSH_PERSISTENT is asked for on memory that is not persistent",
		NULL },
	[IB_MEMREG_REASON_SPAN] = {
		"the span is more than one key of this device, or this window, covers, or the message is longer than 2 GiB or than the device sends",
		"`memreg caps` shows the span of a key; use several windows or messages"
	},
	[IB_MEMREG_REASON_RANGE] = {
		"the range is not inside the MR", NULL },
	[IB_MEMREG_REASON_COUNT] = {
		"the number of entries is 0 or over the limit", NULL },
	[IB_MEMREG_REASON_BOUND_WINDOW] = {
		"the window is bound already",
		"revoke it, or end one of type 2B by an INVALIDATE, first" },
	[IB_MEMREG_REASON_DOMAIN] = {
		"the object belongs to another domain", NULL },
	[IB_MEMREG_REASON_ADDRESS] = {
		"the address can't be used", NULL
	},
	[IB_MEMREG_REASON_PRIVATE_DATA] = {
		"more private data than the RDMA CM carries",
		"`memreg caps` shows how much it is" },
	[IB_MEMREG_REASON_STATE] = {
		"the endpoint is not in a state in which this can be done",
		NULL },
	[IB_MEMREG_REASON_CGROUP] = {
		"a limit of the rdma cgroup is reached",
		"raise rdma.max of the cgroup" },
	[IB_MEMREG_REASON_QUEUE] = {
		"the registration queue failed", NULL },
	[IB_MEMREG_REASON_WINDOW_TYPE] = {
		"there are no windows of this type, or this can't be done with them",
		"calls bind and revoke those of type 1, work requests those of type 2B; `memreg caps` shows the types"
	},
	[IB_MEMREG_REASON_STALE] = {
		"the memory behind the MR is not mapped any more as it was registered",
		"deregister it, and register what is there now" },
	[IB_MEMREG_REASON_UNSTEADY] = {
		"the mapping kept changing while it was being registered",
		"try again when nobody maps or unmaps there" },
	[IB_MEMREG_REASON_TIMEOUT] = {
		"the timeout is 0 or over the limit", NULL },
	[IB_MEMREG_REASON_OPCODE] = { "there is no such opcode", NULL },
	[IB_MEMREG_REASON_OPCODE_DEVICE] = {
		"the RDMA device, as the kernel drives it, lacks the opcode",
		"`memreg caps` shows the opcodes that can be submitted" },
	[IB_MEMREG_REASON_SGES] = {
		"there are more SGEs than the queue was made for, or than 16",
		"max_send_sge or max_recv_sge of the queue is the limit" },
	[IB_MEMREG_REASON_INLINE] = {
		"the inline data is longer than max_inline of the send queue",
		"memreg_connect_queues() and memreg_setup() take up to 256 bytes"
	},
	[IB_MEMREG_REASON_FRAGMENTS] = {
		"the memory of the message is in too many pieces",
		"`memreg caps` shows how many fit; use shorter messages, huge pages, or a WRITE"
	},
	[IB_MEMREG_REASON_LOCAL_WRITE] = {
		"the MR doesn't allow local writes",
		"register it with IB_MEMREG_ACCESS_LOCAL_WRITE" },
	[IB_MEMREG_REASON_QUEUE_FULL] = {
		"there is no room on the queue",
		"wait for completions first, signal now and then, or make it larger"
	},
	[IB_MEMREG_REASON_RING_FULL] = {
		"there is no room in the completion ring",
		"take completions out of it, signal now and then, or make it larger"
	},
	[IB_MEMREG_REASON_NO_QUEUE] = {
		"the endpoint was made without the queue that the work request is for",
		"give it one: memreg_connect_queues(), memreg_setup()" },
	[IB_MEMREG_REASON_RING] = {
		"entries of a completion ring can't have this size, or the endpoint is to have both a shared receive queue and a ring for one of its own",
		"entries have 64 or 128 bytes" },
	[IB_MEMREG_REASON_ALIGN] = {
		"the remote address of an atomic is no multiple of 8", NULL },
	[IB_MEMREG_REASON_EVENTFD] = {
		"the descriptor is not one of an eventfd", NULL },
	[IB_MEMREG_REASON_DRIVER] = {
		"the RDMA device's driver registers memory otherwise than memreg can rely on",
		"use another device; kernel/quirks.c has the evidence" },
	[IB_MEMREG_REASON_CONTIGUOUS] = {
		"so much contiguous memory can't be had",
		"leave IB_MEMREG_MEMORY_CONTIGUOUS out; `memreg caps` shows the most that there can be"
	},
	[IB_MEMREG_REASON_NODE] = { "there is no such NUMA node", NULL },
	[IB_MEMREG_REASON_FD] = { "the descriptor is not open", NULL },
	[IB_MEMREG_REASON_FOREIGN] = {
		"the dma-buf is not a memory object of memreg", NULL },
	[IB_MEMREG_REASON_READ_ONLY] = {
		"the descriptor is not open for writing",
		"leave out IB_MEMREG_ACCESS_LOCAL_WRITE, or use the descriptor that memreg_memory_create() made"
	},
	[IB_MEMREG_REASON_STRIDE] = {
		"the stride of the pool is less than the size of its buffers",
		NULL },
	[IB_MEMREG_REASON_POOL] = {
		"the MR is no pool, or its buffers have no keys",
		"make the pool with remote access" },
	[IB_MEMREG_REASON_TWICE] = {
		"one thing is named twice", "name each once" },
	[IB_MEMREG_REASON_COMPOSED] = {
		"the MR is a piece of a composition",
		"deregister the composition first" },
	[IB_MEMREG_REASON_GAPS] = {
		"one key can't span these pieces: the memory of each must begin and end at a multiple of 4096 bytes",
		"leave IB_MEMREG_COMPOSE_ONE_KEY out and use the keyed segments, or bind a window to each piece"
	},
	[IB_MEMREG_REASON_PROCESS] = {
		"the memory, or the status table, is that of another process",
		"the process that registered the memory can do this; a status table is for the process that created it"
	},
	[IB_MEMREG_REASON_SLOTS] = {
		"all slots of the status table are in use",
		"destroy watches, or make a table with more slots" },
	[IB_MEMREG_REASON_LOG] = {
		"a log has a power of two entries up to the limit, and one wide monitor, which needs it",
		NULL },
	[IB_MEMREG_REASON_EXPORTER] = {
		"the exporter of the dma-buf refuses to let the device have it",
		NULL },
	[IB_MEMREG_REASON_NO_CPU] = {
		"the RDMA device is software, and the CPU does not reach the memory of the dma-buf",
		"use memory that has a kernel mapping, or an RDMA device that is hardware"
	},
	[IB_MEMREG_REASON_ON_DEMAND] = {
		"an MR on demand can't be a piece of a composition",
		"register the memory without IB_MEMREG_MR_ON_DEMAND" },
	[IB_MEMREG_REASON_NOT_ON_DEMAND] = {
		"the MR is none on demand",
		"register it with IB_MEMREG_MR_ON_DEMAND" },
	[IB_MEMREG_REASON_ADVICE] = { "there is no such advice", NULL },
	[IB_MEMREG_REASON_DEVICE_PAGING] = {
		"this MR on demand can have no keys: they would depend on paging by the RDMA device",
		"leave remote access out, and grant peers windows on the MR" },
	[IB_MEMREG_REASON_DEPTH] = {
		"too many watches of this process watch the same pages",
		"destroy watches, or share one between registrations" },
	[IB_MEMREG_REASON_WINDOW_ACCESS] = {
		"a window can't have an access flag that is set",
		"windows take remote access, flushes and ZERO_BASED" },
	[IB_MEMREG_REASON_NO_REMOTE] = {
		"the window has no remote access",
		"add IB_MEMREG_ACCESS_REMOTE_READ, for one" },
	[IB_MEMREG_REASON_REMOTE_WRITE] = {
		"remote write needs local write",
		"add IB_MEMREG_ACCESS_LOCAL_WRITE" },
	[IB_MEMREG_REASON_REMOTE_ATOMIC] = {
		"remote atomic needs local write",
		"add IB_MEMREG_ACCESS_LOCAL_WRITE" },
	[IB_MEMREG_REASON_IOVA_WRAPS] = {
		"I/O address plus length is more than 64 bits hold", NULL },
	[IB_MEMREG_REASON_IOVA_ZERO_BASED] = {
		"what is zero-based can't have another I/O address",
		"leave out the I/O address or IB_MEMREG_ACCESS_ZERO_BASED" },
	[IB_MEMREG_REASON_ZERO_BASED] = {
		"what is zero-based must begin at a multiple of 4096 bytes",
		NULL },
	[IB_MEMREG_REASON_NOT_DMABUF] = {
		"the descriptor is not one of a dma-buf",
		"memreg_memory_create() makes one" },
	[IB_MEMREG_REASON_ON_DEMAND_UNGUARDED] = {
		"an MR on demand can't be unguarded",
		"leave out IB_MEMREG_MR_UNGUARDED or IB_MEMREG_MR_ON_DEMAND" },
	[IB_MEMREG_REASON_ON_DEMAND_FD] = {
		"the MR of a descriptor can't be on demand",
		"leave out IB_MEMREG_MR_ON_DEMAND" },
	[IB_MEMREG_REASON_IMPLICIT] = {
		"an implicit MR must be on demand",
		"add IB_MEMREG_MR_ON_DEMAND" },
	[IB_MEMREG_REASON_IMPLICIT_RANGE] = {
		"an implicit MR is the whole address space: address and length must be 0",
		NULL },
	[IB_MEMREG_REASON_TOO_LONG] = {
		"an MR can't have 2^32 pages or more",
		"use several" },
	[IB_MEMREG_REASON_UNMAPPED] = {
		"nothing is mapped at an address of the range", NULL },
	[IB_MEMREG_REASON_NOT_READABLE] = {
		"the memory is not mapped for reading", NULL },
	[IB_MEMREG_REASON_NOT_WRITABLE] = {
		"the memory is not mapped for writing",
		"map it with PROT_WRITE, or leave out IB_MEMREG_ACCESS_LOCAL_WRITE"
	},
	[IB_MEMREG_REASON_IO_MEMORY] = {
		"the mapping is one of a device or of memory that the kernel can't pin",
		"register the dma-buf of such memory, if there is one" },
	[IB_MEMREG_REASON_SECRET] = {
		"memory of memfd_secret(2) can't be pinned", NULL },
	[IB_MEMREG_REASON_DAX] = {
		"memory of a file that is mapped by DAX can't be pinned for long",
		NULL },
	[IB_MEMREG_REASON_FILE_WRITE] = {
		"a shared mapping of a file on this file system can't be pinned for writing",
		"files that are to be written must be on tmpfs or hugetlbfs" },
	[IB_MEMREG_REASON_FILE_END] = {
		"the mapping reaches behind the end of its file",
		"ftruncate(2) extends the file" },
	[IB_MEMREG_REASON_HUGE_PAGES] = {
		"there are too few free huge pages",
		"HugePages_Free in /proc/meminfo; vm.nr_hugepages makes more" },
	[IB_MEMREG_REASON_FILE_FULL] = {
		"the file system of the mapped file is full", "`df` shows it" },
	[IB_MEMREG_REASON_FILE_ERROR] = {
		"the file system provides no page of the mapped file: an access would raise SIGBUS",
		NULL },
	[IB_MEMREG_REASON_BUSY_WINDOW] = {
		"another call is at work on the window",
		"wait for that call" },
	[IB_MEMREG_REASON_UNBOUND_WINDOW] = {
		"the window is not bound on this endpoint", NULL },
	[IB_MEMREG_REASON_QUEUE_SEND] = {
		"a send queue has a ring, max_send and max_send_sge, and without these there is no max_inline",
		NULL },
	[IB_MEMREG_REASON_QUEUE_RECV] = {
		"a receive queue has a ring, max_recv and max_recv_sge, or none of these",
		NULL },
	[IB_MEMREG_REASON_OPCODE_QUEUE] = {
		"a shared receive queue takes RECVs alone, and none with a registered buffer of io_uring",
		NULL },
	[IB_MEMREG_REASON_OPCODE_PEER] = {
		"the peer has agreed to no READs and atomics",
		"its responder_resources must not be 0" },
	[IB_MEMREG_REASON_ATOMIC_SGES] = { "an atomic has one SGE", NULL },
	[IB_MEMREG_REASON_ATOMIC_LENGTH] = {
		"an atomic has a length of 8", NULL },
	[IB_MEMREG_REASON_INLINE_OPCODE] = {
		"the opcode takes no inline data", NULL },
	[IB_MEMREG_REASON_INSERTS] = {
		"more rkeys than 16 are to be inserted into one message",
		"send several" },
	[IB_MEMREG_REASON_INSERT_MESSAGE] = {
		"rkeys are to be inserted into a message that is not inline",
		"set IB_MEMREG_WR_INLINE" },
	[IB_MEMREG_REASON_INSERT_AT] = {
		"an rkey is to be inserted behind the end of the inline data",
		NULL },
	[IB_MEMREG_REASON_KEY_PAGES] = {
		"the composition has more pages than one key can list",
		"leave IB_MEMREG_COMPOSE_ONE_KEY out and use the keyed segments, or compose larger contiguous memory; `memreg caps` shows how many pages a key has"
	},
	[IB_MEMREG_REASON_URING_TARGET] = {
		"the work requests of a command of io_uring are for several targets",
		"use a command for each" },
	[IB_MEMREG_REASON_URING_COUNT] = {
		"a RECV, or a work request on a registered buffer of io_uring, is not the only one of its command",
		"use a command for each" },
	[IB_MEMREG_REASON_URING_SGE] = {
		"a work request on a registered buffer of io_uring has one SGE, in which the MR is 0",
		NULL },
	[IB_MEMREG_REASON_EXPORT_KERNEL] = {
		"this kernel can't have importers of a dma-buf let go of it",
		"`memreg caps` shows whether a kernel can; grant windows on memreg's connections instead"
	},
	[IB_MEMREG_REASON_EXPORT_MEMORY] = {
		"exports are not of memory on demand, of compositions, or of a dma-buf that its exporter may take away",
		"export the MRs that a composition is made of, or register the memory without IB_MEMREG_MR_ON_DEMAND"
	},
	[IB_MEMREG_REASON_EXPORT_PAGES] = {
		"an export is of whole pages, as its importers reach all of each page",
		"begin at the boundary of a page, and round the length up: nothing else should be in these pages"
	},
	[IB_MEMREG_REASON_EXPORTS] = {
		"the user has as many exports and watches of dma-bufs as it may have descriptors",
		"destroy some, or raise RLIMIT_NOFILE (ulimit -n)" },
	[IB_MEMREG_REASON_EXPORTED] = {
		"the MR has exports that were not revoked",
		"revoke them first" },
	[IB_MEMREG_REASON_EXPORT_LATE] = {
		"an importer has not let go of the exported memory within a second",
		"do not reuse the memory, which stays pinned, and call again"
	},
	[IB_MEMREG_REASON_LEASE_ENDED] = {
		"the time of the lease is over",
		"make another lease: one that has ended is not renewed" },
	[IB_MEMREG_REASON_LEASE_GRANTS] = {
		"windows are bound under the lease, or exports under it were not revoked",
		"revoke them first, or wait for the end of the lease" },
};

/* For failures without a code, or with a less exact one */
static const struct {
	int err;
	struct reason reason;
} errors[] = {
	{ ENOTTY, { "the kernel doesn't know this call",
		    "the running module may be older than this library" } },
	{ E2BIG, { "the structure has fields that the kernel doesn't know",
		   "the running module may be older than this library" } },
	{ EFAULT, { "a pointer is not mapped", NULL } },
	{ EINTR, { "a signal arrived, and nothing was done", "call again" } },
	{ ENETDOWN, {
		"the port of the RDMA device has no usable address",
		"set its network interface up and give it an IP address" } },
	{ EADDRINUSE, { "somebody listens on this address and port already",
			"use another port; 0 takes a free one" } },
	{ EADDRNOTAVAIL, {
		"this RDMA device has no such address",
		"`ip address` shows those of the network interface behind it"
	} },
	{ ENETUNREACH, { "no route leads to the address",
			 "`ip route get` shows the way that packets take" } },
	{ EHOSTUNREACH, { "no route leads to the address",
			  "`ip route get` shows the way that packets take" } },
	{ ETIMEDOUT, { "there was no answer within the time", NULL } },
	{ EPERM, { "this is not permitted", NULL } },
	{ EAGAIN, { "the state of memory or device kept changing",
		    "try again" } },
	{ ENOTCONN, {
		"the endpoint is not in a state in which this can be done",
		NULL } },
	{ EACCES, { "the access is not allowed", NULL } },
	{ ENOSPC, { "the RDMA device has no more of such objects", NULL } },
};

/*
 * For codes whose meaning depends on the call, or on the errno.
 */
static const struct {
	const char *what;	/* NULL: any */
	uint32_t code;
	int err;		/* 0: any */
	struct reason reason;
} calls[] = {
	{ "domain_create", IB_MEMREG_REASON_PORT, EINVAL, {
		"the RDMA device has no such port",
		"`rdma link` shows the ports; 0 takes one that works" } },
	{ "domain_create", IB_MEMREG_REASON_PORT, ENETDOWN, {
		"the port of the RDMA device has no usable address",
		"set its network interface up and give it an IP address" } },
	{ NULL, IB_MEMREG_REASON_QUEUE, ENETDOWN, {
		"the registration queue is down, and can't be set up anew",
		"the port of the RDMA device must be up and have an IP address; `rdma link` shows it"
	} },
	{ "mr_register", IB_MEMREG_REASON_WRAPS, 0, {
		"address plus length is beyond the last address", NULL } },
	{ "mr_register_fd", IB_MEMREG_REASON_WRAPS, 0, {
		"offset plus length is more than 64 bits hold", NULL } },
	{ "mr_register_fd", IB_MEMREG_REASON_RANGE, 0, {
		"the range is not inside the memory of the descriptor", NULL
	} },
	{ "mr_reregister", IB_MEMREG_REASON_RANGE, 0, {
		"the range is not inside the memory of the descriptor", NULL
	} },
	{ "pool_create", IB_MEMREG_REASON_RANGE, 0, {
		"the buffers are not inside the memory of the descriptor", NULL
	} },
	{ "watch", IB_MEMREG_REASON_ACCESS, 0, {
		"a watch has no access flag but LOCAL_WRITE", NULL } },
	{ "window_bind", IB_MEMREG_REASON_WRAPS, 0, {
		"offset plus length is more than 64 bits hold", NULL } },
	{ "window_bind", IB_MEMREG_REASON_KEY_PAGES, 0, {
		"the range of the composition has more pages than one key can list",
		"bind windows on parts of it; `memreg caps` shows how many pages a key has"
	} },
	{ "submit", IB_MEMREG_REASON_KEY_PAGES, 0, {
		"the range of the composition has more pages than one key can list",
		"bind windows on parts of it; `memreg caps` shows how many pages a key has"
	} },
	{ "submit", IB_MEMREG_REASON_RESERVED, 0, {
		"a field is not 0 that is reserved, or that the opcode does not use",
		"zero work requests before filling them in" } },
	{ "submit", IB_MEMREG_REASON_WRAPS, 0, {
		"offset plus length of a SGE is more than 64 bits hold",
		NULL } },
	{ "watch", IB_MEMREG_REASON_RANGE, 0, {
		"the range to be watched is not one of user space", NULL } },
	{ "mr_reregister", IB_MEMREG_REASON_FLAGS, EINVAL, {
		"nothing is named that is to change", NULL } },
	{ "mr_reregister", IB_MEMREG_REASON_COMPOSED, EINVAL, {
		"the MR is a composition",
		"deregister it and compose another one" } },
	{ "mr_reregister", IB_MEMREG_REASON_POOL, 0, {
		"the MR is a pool", "make another pool" } },
	{ "mr_compose", IB_MEMREG_REASON_COUNT, 0, {
		"a composition has 1 to 4096 pieces, and as many runs of memory at most",
		NULL } },
	{ "mr_compose", IB_MEMREG_REASON_TWICE, 0, {
		"a byte is in the composition twice, and can be written",
		"leave out IB_MEMREG_ACCESS_LOCAL_WRITE" } },
	{ "mr_compose", IB_MEMREG_REASON_STRIDE, 0, {
		"a piece has more than 4 dimensions", NULL } },
	{ "mr_compose", IB_MEMREG_REASON_ACCESS_MR, 0, {
		"the composition asks for what one of its MRs doesn't allow",
		"register it with IB_MEMREG_ACCESS_MW_BIND, and with IB_MEMREG_ACCESS_LOCAL_WRITE if it is to be written"
	} },
	{ "mr_compose", IB_MEMREG_REASON_ZERO_BASED, 0, {
		"the memory of the first piece of a zero-based composition must begin at a multiple of 4096 bytes",
		NULL } },
	{ "window_bind", IB_MEMREG_REASON_TWICE, 0, {
		"the window is named twice", "name each window once" } },
	{ "window_revoke", IB_MEMREG_REASON_TWICE, 0, {
		"the window is named twice", "name each window once" } },
	{ "pool_recycle", IB_MEMREG_REASON_TWICE, 0, {
		"a buffer is named twice", NULL } },
	{ "setup", IB_MEMREG_REASON_COUNT, 0, {
		"a queue is to be deeper than the device allows",
		"`memreg caps` shows how many work requests a queue has" } },
	{ "connect", IB_MEMREG_REASON_COUNT, 0, {
		"a queue is to be deeper than the device allows",
		"`memreg caps` shows how many work requests a queue has" } },
	{ "setup", IB_MEMREG_REASON_SGES, 0, {
		"a work request is to have more than 16 SGEs", NULL } },
	{ "connect", IB_MEMREG_REASON_SGES, 0, {
		"a work request is to have more than 16 SGEs", NULL } },
	{ "setup", IB_MEMREG_REASON_INLINE, 0, {
		"max_inline is more than 256", NULL } },
	{ "connect", IB_MEMREG_REASON_INLINE, 0, {
		"max_inline is more than 256", NULL } },
	{ "pool_create", IB_MEMREG_REASON_WRAPS, 0, {
		"so many buffers are beyond the last address", NULL } },
	{ "memory_create", IB_MEMREG_REASON_WRAPS, 0, {
		"the length is more than can be mapped", NULL } },
	{ "memory_create", IB_MEMREG_REASON_CONTIGUOUS, EINVAL, {
		"the length is more than one block can ever have",
		"`memreg caps` shows the most; leave IB_MEMREG_MEMORY_CONTIGUOUS out for more"
	} },
	{ "memory_create", IB_MEMREG_REASON_CONTIGUOUS, ENOMEM, {
		"the kernel has no block of free memory as large now",
		"try again, or leave IB_MEMREG_MEMORY_CONTIGUOUS out" } },
	{ "pool_create", IB_MEMREG_REASON_COUNT, 0, {
		"a pool has 1 to 65536 buffers", NULL } },
	{ "pool_create", IB_MEMREG_REASON_SPAN, 0, {
		"a buffer is longer than one key of this device covers",
		"`memreg caps` shows the span of a key" } },
	{ "pool_recycle", IB_MEMREG_REASON_COUNT, 0, {
		"a call recycles 1 to 256 buffers", "make several calls" } },
	{ "pool_recycle", IB_MEMREG_REASON_POOL, 0, {
		"the buffers of the pool have no keys",
		"make the pool with remote access" } },
	{ "listen", IB_MEMREG_REASON_COUNT, EINVAL, {
		"the backlog is not 1 to 1024", NULL } },
	{ "listen", IB_MEMREG_REASON_COUNT, ENOSPC, {
		"this handle has as many listeners as it may have, 256",
		"destroy one, or use another handle" } },
	{ "window_bind", IB_MEMREG_REASON_STATE, 0, {
		"the connection of the endpoint is over",
		"leave the endpoint out of the bind, or connect anew" } },
	{ "setup", IB_MEMREG_REASON_STATE, EBUSY, {
		"the endpoint has its queues already", NULL } },
	{ "submit", IB_MEMREG_REASON_SPAN, EINVAL, {
		"the SGEs of the work request have more than 2 GiB",
		"use several messages" } },
	{ "submit", IB_MEMREG_REASON_SPAN, EMSGSIZE, {
		"the message is longer than the device sends at once",
		"`memreg caps` shows how long a message may be; use several"
	} },
	{ "submit", IB_MEMREG_REASON_WINDOW_TYPE, 0, {
		"work requests bind and end windows of type 2B",
		"bind one of type 1 by memreg_window_bind()" } },
	{ "srq_create", IB_MEMREG_REASON_SGES, 0, {
		"a receive has 1 to 16 SGEs", NULL } },
	{ "ring_wait", IB_MEMREG_REASON_DEVICE_GONE, 0, {
		"the ring is destroyed, and so it is when its RDMA device is removed",
		NULL } },
	{ "window_alloc", IB_MEMREG_REASON_COUNT, 0, {
		"a call allocates 1 to 256 windows", "make several calls" } },
	{ "window_bind", IB_MEMREG_REASON_COUNT, 0, {
		"a call binds 1 to 256 windows", "make several calls" } },
	{ "window_revoke", IB_MEMREG_REASON_COUNT, 0, {
		"a call revokes 1 to 256 windows", "make several calls" } },
	{ "submit", IB_MEMREG_REASON_COUNT, 0, {
		"a call submits 1 to 256 work requests",
		"make several calls" } },
	{ "ring_create", IB_MEMREG_REASON_COUNT, 0, {
		"a ring has 1 to IB_MEMREG_CAP_RING entries",
		"`memreg caps` shows how many the device allows" } },
	{ "srq_create", IB_MEMREG_REASON_COUNT, 0, {
		"a shared receive queue has 1 to IB_MEMREG_CAP_QUEUE receives",
		"`memreg caps` shows how many the device allows" } },
	{ "window_bind", IB_MEMREG_REASON_SPAN, 0, {
		"the range is longer than the window was allocated for",
		"allocate it with a larger span" } },
	{ "destroy", IB_MEMREG_REASON_BOUND_WINDOW, 0, {
		"the window is of type 2B and bound",
		"end it by an INVALIDATE first" } },
	{ "window_free", IB_MEMREG_REASON_BOUND_WINDOW, 0, {
		"the window is of type 2B and bound",
		"end it by an INVALIDATE first" } },
	{ "ring_create", IB_MEMREG_REASON_RING, 0, {
		"the entries of a ring have 64 or 128 bytes", NULL } },
	{ "connect", IB_MEMREG_REASON_RING, 0, {
		"an endpoint receives by a shared receive queue or by a ring of its own, not by both",
		NULL } },
	{ "setup", IB_MEMREG_REASON_RING, 0, {
		"an endpoint receives by a shared receive queue or by a ring of its own, not by both",
		NULL } },
	{ "srq_create", IB_MEMREG_REASON_NO_QUEUE, 0, {
		"the RDMA device has no shared receive queues", NULL } },
	{ "connect", IB_MEMREG_REASON_RING_FULL, 0, {
		"the ring serves as many send queues already as it can",
		"use another ring, or a larger one" } },
	{ "setup", IB_MEMREG_REASON_RING_FULL, 0, {
		"the ring serves as many send queues already as it can",
		"use another ring, or a larger one" } },
	{ "window_alloc", IB_MEMREG_REASON_WINDOW_TYPE, 0, {
		"there are no windows of this type",
		"`memreg caps` shows the types" } },
	{ "window_bind", IB_MEMREG_REASON_WINDOW_TYPE, 0, {
		"a call binds windows of type 1",
		"bind one of type 2B by a work request" } },
	{ "window_revoke", IB_MEMREG_REASON_WINDOW_TYPE, 0, {
		"a call revokes windows of type 1",
		"end one of type 2B by an INVALIDATE" } },
	{ "disconnect", IB_MEMREG_REASON_STATE, 0, {
		"the endpoint was never connected", NULL } },
	{ "connect", IB_MEMREG_REASON_TIMEOUT, 0, {
		"the timeout is not 1 to 60000 milliseconds", NULL } },
};

static __thread struct memreg__failure last;

static const struct reason *reason_of_code(uint32_t code)
{
	if (code >= sizeof(reasons) / sizeof(reasons[0]) || !reasons[code].text)
		return NULL;
	return &reasons[code];
}

static const struct reason *reason_of_errno(int err)
{
	size_t i;

	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].err == err)
			return &errors[i].reason;
	return NULL;
}

static int set_reason(const char *what, int err, uint32_t code,
		      const struct reason *reason)
{
	last.code = code;
	last.err = err;
	last.what = what;
	last.text = reason->text;
	last.hint = reason->hint;
	last.subject = MEMREG__NOTHING;
	return err;
}

int memreg__fail(const char *what, int err, const char *text)
{
	const struct reason reason = { text, NULL };

	return set_reason(what, err, IB_MEMREG_REASON_NONE, &reason);
}

/* Parameters that a reason with several causes refers to */
static const struct reason *reason_of_call(const char *what, int err,
					   uint32_t code)
{
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (calls[i].code == code &&
		    (!calls[i].what || !strcmp(calls[i].what, what)) &&
		    (!calls[i].err || calls[i].err == -err))
			return &calls[i].reason;
	return NULL;
}

int memreg__fail_code(const char *what, int err, uint32_t code)
{
	const struct reason *reason = reason_of_call(what, err, code);
	struct reason other = { NULL, NULL };

	if (!reason && (code != IB_MEMREG_REASON_ADDRESS ||
			!reason_of_errno(-err)))
		reason = reason_of_code(code);
	if (!reason)
		reason = reason_of_errno(-err);
	if (reason)
		return set_reason(what, err, code, reason);
	other.text = strerrordesc_np(-err);
	if (!other.text)
		other.text = "it failed";
	return set_reason(what, err, code, &other);
}

void memreg__because(const char *text, const char *hint)
{
	last.text = text;
	last.hint = hint;
}

/* Parameters of the call */

int memreg__about_ids(int err, const char *noun1, uint64_t id1,
		      const char *noun2, uint64_t id2, const char *noun3,
		      uint64_t id3)
{
	if (!err)
		return 0;
	last.subject = MEMREG__IDS;
	last.noun[0] = noun1;
	last.value[0] = id1;
	last.noun[1] = noun2;
	last.value[1] = id2;
	last.noun[2] = noun3;
	last.value[2] = id3;
	return err;
}

int memreg__about_id(int err, const char *noun, uint32_t id)
{
	return memreg__about_ids(err, noun, id, NULL, 0, NULL, 0);
}

int memreg__about_number(int err, const char *noun, uint64_t value)
{
	if (!err)
		return 0;
	last.subject = MEMREG__NUMBER;
	last.noun[0] = noun;
	last.value[0] = value;
	return err;
}

int memreg__about_device(int err, const char *name)
{
	if (!err)
		return 0;
	last.subject = MEMREG__DEVICE;
	snprintf(last.name, sizeof(last.name), "%s", name ? name : "");
	return err;
}

int memreg__about_address(int err, const struct ib_memreg_addr *addr)
{
	if (!err)
		return 0;
	last.subject = MEMREG__ADDRESS;
	last.address = *addr;
	return err;
}

int memreg__about_memory(int err, const void *addr, uint64_t length,
			 uint32_t access)
{
	if (!err)
		return 0;
	last.subject = MEMREG__MEMORY;
	last.value[0] = to_u64(addr);
	last.value[1] = length;
	last.access = access;
	return err;
}

const struct memreg__failure *memreg__last(void)
{
	return &last;
}

void memreg__restore(const struct memreg__failure *f)
{
	last = *f;
}

EXPORT uint32_t memreg_reason_code(void)
{
	return last.code;
}

EXPORT const char *memreg_reason_text(uint32_t code)
{
	const struct reason *reason = reason_of_code(code);

	if (reason)
		return reason->text;
	return code == IB_MEMREG_REASON_NONE ?
		"nothing more is known than the errno" :
		"a reason that this library doesn't know";
}
