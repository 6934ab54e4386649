// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Conversion of events to text */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "internal.h"

EXPORT const char *memreg_event_string(uint32_t type)
{
	static const char *const names[] = {
		[IB_MEMREG_EVENT_CONNECT_REQUEST] = "CONNECT_REQUEST",
		[IB_MEMREG_EVENT_ESTABLISHED] = "ESTABLISHED",
		[IB_MEMREG_EVENT_REJECTED] = "REJECTED",
		[IB_MEMREG_EVENT_DISCONNECTED] = "DISCONNECTED",
		[IB_MEMREG_EVENT_ERROR] = "ERROR",
		[IB_MEMREG_EVENT_LEASE_ENDED] = "LEASE_ENDED",
	};

	if (type >= sizeof(names) / sizeof(names[0]) || !names[type])
		return "unknown";
	return names[type];
}

/* IB specification 12.6.7.2, table of rejection reasons; or errnos of iWARP */
static const struct {
	int32_t status;
	const char *text;
} rejections[] = {
	{ 1, "the peer has no QP to spare" },
	{ 3, "the peer has no resources to spare" },
	{ 4, "the peer waited for an answer in vain" },
	{ 6, "the peer lost the connection attempt" },
	{ 8, "nobody listens on that port there" },
	{ 9, "the peer has no such transport" },
	{ 10, "the peer has an old connection by the same numbers: try again" },
	{ 12, "the peer does not know the address" },
	{ 26, "the peer can't have packets as long" },
	{ 28,
	  "the program that listens there rejects, without a reason that is known here"
	},
	{ -ECONNREFUSED, "nobody listens on that port there" },
	{ -ECONNRESET, "the peer broke off the attempt" },
	{ -ETIMEDOUT, "the peer does not answer" },
};

static const char *rejection_text(int32_t status)
{
	size_t i;

	for (i = 0; i < sizeof(rejections) / sizeof(rejections[0]); i++)
		if (rejections[i].status == status)
			return rejections[i].text;
	return "the peer rejects, for a reason that this library doesn't know";
}

static const char *error_text(int32_t status)
{
	const char *text;

	switch (-status) {
	case EADDRNOTAVAIL:
		return "no address of this RDMA device leads there";
	case EHOSTUNREACH:
		return "the route there ends at a host that can't be reached";
	case ENETUNREACH:
		return "no route leads there";
	case ETIMEDOUT:
		return "nobody answered within the time";
	case ECONNREFUSED:
		return "nobody listens on that port there";
	case ECONNRESET:
		return "the attempt was broken off";
	}
	text = status < 0 ? strerrordesc_np(-status) : NULL;
	return text ? text : "it failed";
}

EXPORT const char *memreg_event_reason(const struct ib_memreg_event *event)
{
	switch (event->type) {
	case IB_MEMREG_EVENT_CONNECT_REQUEST:
		return "a peer wants to connect";
	case IB_MEMREG_EVENT_ESTABLISHED:
		return "the connection is up";
	case IB_MEMREG_EVENT_REJECTED:
		return rejection_text(event->status);
	case IB_MEMREG_EVENT_DISCONNECTED:
		return "the connection is over";
	case IB_MEMREG_EVENT_ERROR:
		return error_text(event->status);
	case IB_MEMREG_EVENT_LEASE_ENDED:
		return "the time of a lease is over";
	default:
		return "an event that this library doesn't know";
	}
}
