// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Why a call failed, in words.
 *
 * The kernel answers with an errno and a code of enum ib_memreg_reason; from
 * both this file makes one line for people, kept for each thread.
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
		"a reserved field is not 0",
		"zero structures before filling them in" },
	[IB_MEMREG_REASON_NOT_BOUND] = {
		"the file is not bound to a device", NULL },
	[IB_MEMREG_REASON_BOUND] = {
		"the file is bound to a device already",
		"open another one for another device" },
	[IB_MEMREG_REASON_NO_DEVICE] = {
		"no such RDMA device in this network namespace, or no name given and not exactly one device",
		"`rdma link` shows those that there are; `memreg load --rxe NETDEV` makes one of a network interface"
	},
	[IB_MEMREG_REASON_DEVICE_GONE] = {
		"the RDMA device was removed, and all that this file had on it is destroyed; or, where a ring is waited for, that ring is",
		"open a new handle once the device is back" },
	[IB_MEMREG_REASON_NO_FRWR] = {
		"the RDMA device has no fast registration", NULL },
	[IB_MEMREG_REASON_IWARP] = {
		"a QP of an iWARP device can't be connected to itself, so there is no registration queue on it",
		"use an InfiniBand or RoCE device" },
	[IB_MEMREG_REASON_NOT_COHERENT] = {
		"DMA of the device needs bounce buffers or cache maintenance, which long-lived registrations can't have",
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
		"an access flag is unknown, remote write or atomic is asked for without local write, or a window without any remote access",
		NULL },
	[IB_MEMREG_REASON_ACCESS_DEVICE] = {
		"the RDMA device lacks what an access flag needs",
		"`memreg caps` shows the access flags that can be had" },
	[IB_MEMREG_REASON_ACCESS_MR] = {
		"the window asks for what its MR doesn't allow",
		"register the MR with IB_MEMREG_ACCESS_MW_BIND, and with IB_MEMREG_ACCESS_LOCAL_WRITE for windows that can be written"
	},
	[IB_MEMREG_REASON_IOVA] = {
		"the I/O address differs from the memory's in the offset within a page of 4096 bytes, or wraps around",
		NULL },
	[IB_MEMREG_REASON_MEMLOCK] = {
		"the limit of locked memory, RLIMIT_MEMLOCK, is reached",
		"raise it with `ulimit -l`, in limits.conf(5) or by LimitMEMLOCK= of the service, or deregister something"
	},
	[IB_MEMREG_REASON_PIN] = {
		"the memory can't be pinned: unmapped, of a kind that can't be pinned for long, or less writable than asked for",
		NULL },
	[IB_MEMREG_REASON_NOT_PMEM] = {
		"FLUSH_PERSISTENT is asked for on memory that is not persistent",
		NULL },
	[IB_MEMREG_REASON_SINGLE_KEY] = {
		"this can't be done with a single key: the driver is not among those that make them, the MR is too large, or it is for windows, FLUSH_PERSISTENT or work requests",
		"leave IB_MEMREG_MR_SINGLE_KEY out and use the keyed segments"
	},
	[IB_MEMREG_REASON_SPAN] = {
		"the span is more than one key of this device, or this window, covers, or the message is longer than 2 GiB or than the device sends",
		"`memreg caps` shows the span of a key; use several windows or messages"
	},
	[IB_MEMREG_REASON_RANGE] = {
		"the range is not inside the MR", NULL },
	[IB_MEMREG_REASON_COUNT] = {
		"the number of entries is 0 or over the limit", NULL },
	[IB_MEMREG_REASON_BOUND_WINDOW] = {
		"the window is bound, or another call is at work on it; to be invalidated: it is not bound on that endpoint",
		"end what is bound first: by revoking it, or one of type 2B by an INVALIDATE"
	},
	[IB_MEMREG_REASON_DOMAIN] = {
		"the object belongs to another domain", NULL },
	[IB_MEMREG_REASON_ADDRESS] = {
		"the address is not IPv4 or IPv6, or not one of this RDMA device, or names no peer to connect to",
		"use an address of the network interface behind the device, or to listen the wildcard address; a peer has an address and a port that are not 0"
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
		"the memory behind the MR went: it was unmapped, or its mapping changed",
		"deregister it, and register what is there now" },
	[IB_MEMREG_REASON_UNSTEADY] = {
		"the mapping kept changing while it was being registered",
		"try again when nobody maps or unmaps there" },
	[IB_MEMREG_REASON_TIMEOUT] = {
		"the timeout is 0 or over the limit", NULL },
	[IB_MEMREG_REASON_OPCODE] = {
		"there is no such opcode, or not on this queue", NULL },
	[IB_MEMREG_REASON_OPCODE_DEVICE] = {
		"the RDMA device, or its driver's interface for the kernel, lacks the opcode, or the peer has agreed to no READs and atomics",
		"`memreg caps` shows the opcodes that can be submitted; the peer's responder_resources must not be 0"
	},
	[IB_MEMREG_REASON_SGES] = {
		"more SGEs than the queue was made for, or not the number that the opcode takes",
		NULL },
	[IB_MEMREG_REASON_INLINE] = {
		"inline data that the opcode can't take, or more than the queue was made for",
		NULL },
	[IB_MEMREG_REASON_FRAGMENTS] = {
		"the memory of the message is in too many pieces",
		"`memreg caps` shows how many fit; use shorter messages, huge pages, or a WRITE"
	},
	[IB_MEMREG_REASON_LOCAL_WRITE] = {
		"the MR doesn't allow local writes",
		"register it with IB_MEMREG_ACCESS_LOCAL_WRITE" },
	[IB_MEMREG_REASON_QUEUE_FULL] = {
		"there is no room on the send or receive queue",
		"wait for completions first, signal now and then, or make it larger"
	},
	[IB_MEMREG_REASON_RING_FULL] = {
		"there is no room in the completion ring",
		"take completions out of it, signal now and then, or make it larger"
	},
	[IB_MEMREG_REASON_NO_QUEUE] = {
		"the endpoint was made without that queue, or the device has no shared receive queues",
		NULL },
	[IB_MEMREG_REASON_RING] = {
		"entries of a completion ring can't have this size, or the endpoint is to have both a shared receive queue and a ring for one of its own",
		"entries have 64 or 128 bytes" },
	[IB_MEMREG_REASON_ALIGN] = {
		"the address of an atomic is no multiple of 8, or its length is not 8",
		NULL },
	[IB_MEMREG_REASON_EVENTFD] = {
		"the descriptor is not one of an eventfd", NULL },
	[IB_MEMREG_REASON_DRIVER] = {
		"the RDMA device's driver registers memory otherwise than memreg can rely on",
		"use another device; kernel/quirks.c has the evidence" },
};

/* For failures to which the kernel gives no code, or one that says less */
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
	{ ENETUNREACH, { "no route leads to the address",
			 "`ip route get` tells the way that packets take" } },
	{ EHOSTUNREACH, { "no route leads to the address",
			  "`ip route get` tells the way that packets take" } },
	{ ETIMEDOUT, { "there was no answer within the time", NULL } },
	{ EPERM, { "the caller may not lock memory, or not use a port below 1024",
		   NULL } },
	{ EAGAIN, { "the state of memory or device kept changing",
		    "try again" } },
	{ ENOTCONN, {
		"the endpoint is not in a state in which this can be done",
		NULL } },
	{ EACCES, { "the access is not allowed", NULL } },
	{ ENOSPC, { "the RDMA device has no more of such objects", NULL } },
};

/*
 * All strings are constants. They are put together when somebody asks, since a
 * call that fails with EAGAIN may be part of a fast path.
 */
static __thread struct {
	uint32_t code;
	int err;		/* negative; 0 if nothing has failed */
	const char *what;
	const char *text;
	const char *hint;
	char line[448];
} last;

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
		      const char *text, const char *hint)
{
	last.code = code;
	last.err = err;
	last.what = what;
	last.text = text;
	last.hint = hint;
	return err;
}

int memreg__fail(const char *what, int err, const char *text)
{
	return set_reason(what, err, IB_MEMREG_REASON_NONE, text, NULL);
}

int memreg__fail_code(const char *what, int err, uint32_t code)
{
	const struct reason *reason = NULL;
	const char *text;

	if (code != IB_MEMREG_REASON_ADDRESS || !reason_of_errno(-err))
		reason = reason_of_code(code);
	if (!reason)
		reason = reason_of_errno(-err);
	if (reason)
		return set_reason(what, err, code, reason->text, reason->hint);
	text = strerrordesc_np(-err);
	return set_reason(what, err, code, text ? text : "it failed", NULL);
}

EXPORT const char *memreg_reason(void)
{
	const char *name = strerrorname_np(-last.err);

	if (!last.err)
		return "";
	snprintf(last.line, sizeof(last.line), "%s: %s (%s)%s%s", last.what,
		 last.text, name ? name : "unknown error",
		 last.hint ? "; " : "", last.hint ? last.hint : "");
	return last.line;
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
