// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The line that memreg_reason() returns: the call that failed, the cause, the
 * parameters of the call, and a hint for the user.
 *
 * The line is made when memreg_reason() is called, and may use the present
 * state: the list of devices, the mapping to be registered, resource limits. If
 * that state has changed meanwhile, or cannot be read, the line has fewer
 * details.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "line.h"

#define DEVICES_SHOWN	8

/* Append the name of the errno, and the hint */
static void add_end(struct out *out, int err, const char *hint)
{
	const char *name = strerrorname_np(-err);

	add(out, " (%s)%s%s", name ? name : "unknown error", hint ? "; " : "",
	    hint ? hint : "");
}

/*
 * Devices
 */

static void add_devices(struct out *out, const struct memreg_device *devices,
			unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count && i < DEVICES_SHOWN; i++)
		add(out, "%s%s", i ? ", " : "", devices[i].name);
	if (count > DEVICES_SHOWN)
		add(out, " and %u more", count - DEVICES_SHOWN);
}

static void explain_device(struct out *out, const struct memreg__failure *f)
{
	struct memreg_device devices[DEVICES_SHOWN];
	unsigned int count = DEVICES_SHOWN;

	if (memreg__list_devices(devices, &count)) {
		add(out, "%s", f->text);
		add_end(out, f->err, f->hint);
		return;
	}
	if (*f->name)
		add(out, "there is no RDMA device '%s' here", f->name);
	else if (count)
		add(out, "there are %u RDMA devices, and none was named",
		    count);
	else
		add(out, "this network namespace has no RDMA device");
	add_end(out, f->err, NULL);
	if (count) {
		add(out, "; there %s ", count == 1 ? "is" : "are");
		add_devices(out, devices, count);
	} else {
		add(out, "; `memreg load --rxe NETDEV` makes one of a network interface");
	}
}

/*
 * Addresses
 */

static bool is_link_local(const struct ib_memreg_addr *addr)
{
	return addr->family == AF_INET6 && addr->ip[0] == 0xfe &&
	       (addr->ip[1] & 0xc0) == 0x80;
}

static bool is_wildcard(const struct ib_memreg_addr *addr)
{
	static const uint8_t any[sizeof(addr->ip)];

	return !memcmp(addr->ip, any, sizeof(any));
}

/* "[fe80::1%eth0]:7471" */
static void add_address(struct out *out, const struct ib_memreg_addr *addr,
			bool port)
{
	char text[INET6_ADDRSTRLEN], zone[IF_NAMESIZE];
	bool v6 = addr->family == AF_INET6;

	if (!inet_ntop(addr->family, addr->ip, text, sizeof(text)))
		strcpy(text, "?");
	add(out, "%s%s", v6 && port ? "[" : "", text);
	if (addr->scope_id && if_indextoname(addr->scope_id, zone))
		add(out, "%%%s", zone);
	if (port)
		add(out, "%s:%u", v6 ? "]" : "", ntohs(addr->port));
}

/*
 * List the interfaces with link-local addresses: one of them is the missing
 * zone.
 */
static void add_zones(struct out *out, const struct ib_memreg_addr *addr)
{
	struct ifaddrs *list, *at;
	struct sockaddr_in6 in6;
	unsigned int n = 0;

	if (getifaddrs(&list))
		return;
	for (at = list; at; at = at->ifa_next) {
		if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET6)
			continue;
		memcpy(&in6, at->ifa_addr, sizeof(in6));
		if (!IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr))
			continue;
		add(out, "%s", n++ ? " or " : "; write ");
		add_address(out, addr, false);
		add(out, "%%%s", at->ifa_name);
	}
	freeifaddrs(list);
	if (!n)
		add(out, "; write ADDRESS%%INTERFACE");
}

/* Explain an address that the kernel refused without a lookup */
static void explain_bad_address(struct out *out,
				const struct memreg__failure *f)
{
	const struct ib_memreg_addr *addr = &f->address;
	bool zone = is_link_local(addr) && !addr->scope_id;

	if (addr->family != AF_INET && addr->family != AF_INET6) {
		add(out, "the address is of family %u, neither IPv4 nor IPv6",
		    addr->family);
	} else if (zone) {
		add(out, "the link-local address ");
		add_address(out, addr, false);
		add(out, " lacks its zone");
	} else if (addr->scope_id && !is_link_local(addr)) {
		add(out, "only link-local addresses have a zone, and ");
		add_address(out, addr, false);
		add(out, " is none");
	} else if (is_wildcard(addr)) {
		add(out, "the wildcard address ");
		add_address(out, addr, false);
		add(out, " is no peer's");
	} else if (!addr->port) {
		add(out, "a peer does not listen on port 0");
	} else {
		add(out, "the address to connect from is of another family than ");
		add_address(out, addr, false);
	}
	add_end(out, f->err, NULL);
	if (zone)
		add_zones(out, addr);
}

static void explain_address(struct out *out, const struct memreg__failure *f)
{
	if (f->err == -EINVAL) {
		explain_bad_address(out, f);
		return;
	}
	if (f->err == -EPERM)
		add(out, "ports below 1024 are for CAP_NET_BIND_SERVICE");
	else
		add(out, "%s", f->text);
	add(out, ": ");
	add_address(out, &f->address, true);
	add_end(out, f->err, f->hint);
}

/*
 * Memory
 */

struct mapping {
	uint64_t from, to;
	char rights[8];
	char path[256];
};

/* Find the mapping that has an address, or the next one behind it. */
static bool find_mapping(uint64_t addr, struct mapping *m)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		*m->path = '\0';
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*s %*s %*s %255[^\n]",
			   &m->from, &m->to, m->rights, m->path) < 3)
			break;
		found = m->to > addr;
	}
	fclose(file);
	return found;
}

/* Is the cause that the kernel has found that of this mapping, or hole? */
static bool is_cause(const struct memreg__failure *f, const struct mapping *m,
		     uint64_t at)
{
	bool hole = m->from > at;

	switch (f->code) {
	case IB_MEMREG_REASON_UNMAPPED:
		return hole;
	case IB_MEMREG_REASON_NOT_READABLE:
		return !hole && m->rights[0] != 'r';
	case IB_MEMREG_REASON_NOT_WRITABLE:
		return !hole && m->rights[1] != 'w';
	default:
		return false;
	}
}

/*
 * Append the address at which the list of mappings shows the cause, or the file
 * if the range is in one mapping.
 */
static void add_mapping(struct out *out, const struct memreg__failure *f)
{
	uint64_t at = f->value[0], end = f->value[0] + f->value[1];
	struct mapping m;

	for (; at < end; at = m.to) {
		if (!find_mapping(at, &m))
			m = (struct mapping){ .from = end, .to = end };
		if (is_cause(f, &m, at)) {
			add(out, ", the first at 0x%" PRIx64, at);
			return;
		}
		if (at == f->value[0] && m.from <= at && m.to >= end &&
		    *m.path == '/')
			add(out, ", %s", m.path);
	}
}

static bool is_of_mapping(const struct memreg__failure *f)
{
	return f->code == IB_MEMREG_REASON_PIN ||
	       (f->code >= IB_MEMREG_REASON_UNMAPPED &&
		f->code <= IB_MEMREG_REASON_FILE_ERROR);
}

/* Append how many bytes are missing. `ulimit -l` helps up to the hard limit. */
static void explain_limit(struct out *out, const struct memreg__failure *f)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit)) {
		add(out, "%s", f->text);
		add_end(out, f->err, f->hint);
		return;
	}
	add(out, "%" PRIu64 " bytes more than are locked already", f->value[1]);
	add(out, " would exceed RLIMIT_MEMLOCK, %" PRIu64 " bytes",
	    (uint64_t)limit.rlim_cur);
	if (limit.rlim_max != RLIM_INFINITY &&
	    limit.rlim_max - limit.rlim_cur < f->value[1]) {
		add_end(out, f->err, f->hint);
		return;
	}
	add_end(out, f->err, "raise it with `ulimit -l ");
	if (limit.rlim_max == RLIM_INFINITY)
		add(out, "unlimited`");
	else
		add(out, "%" PRIu64 "`", (uint64_t)limit.rlim_max / 1024);
}

static void explain_memory(struct out *out, const struct memreg__failure *f)
{
	if (f->code == IB_MEMREG_REASON_MEMLOCK) {
		explain_limit(out, f);
		return;
	}
	add(out, "%s: %" PRIu64 " bytes at 0x%" PRIx64, f->text, f->value[1],
	    f->value[0]);
	add(out, ", access 0x%" PRIx32, f->access);
	if (is_of_mapping(f))
		add_mapping(out, f);
	add_end(out, f->err, f->hint);
}

/*
 * Objects and numbers
 */

/* "endpoint 7, domain 3" */
static void add_ids(struct out *out, const struct memreg__failure *f)
{
	unsigned int i, n = 0;

	for (i = 0; i < MEMREG__IDS_MAX; i++)
		if (f->noun[i] && f->value[i])
			add(out, "%s%s %" PRIu64, n++ ? ", " : "", f->noun[i],
			    f->value[i]);
}

static bool is_missing(const struct memreg__failure *f, const struct census *c,
		       unsigned int i)
{
	return f->noun[i] && f->value[i] &&
	       !memreg__census_has(c, f->noun[i], f->value[i]);
}

/* The ids without an object; all of them if it is not known which */
static void add_missing(struct out *out, const struct memreg__failure *f,
			const struct census *c)
{
	bool known = is_missing(f, c, 0) || is_missing(f, c, 1) ||
		     is_missing(f, c, 2);
	const char *between = known ? ", and no " : ", or no ";
	unsigned int i, n = 0;

	for (i = 0; i < MEMREG__IDS_MAX; i++)
		if (f->noun[i] && f->value[i] &&
		    (!known || is_missing(f, c, i)))
			add(out, "%s%s %" PRIu64, n++ ? between : "",
			    f->noun[i], f->value[i]);
}

static bool has_ids(const struct memreg__failure *f)
{
	return (f->noun[0] && f->value[0]) || (f->noun[1] && f->value[1]) ||
	       (f->noun[2] && f->value[2]);
}

static void explain_ids(struct out *out, const struct memreg__failure *f)
{
	struct census c = { NULL, 0 };
	const char *hint = f->hint;

	if (!has_ids(f)) {
		add(out, f->code == IB_MEMREG_REASON_ID ?
		    "0 is the id of no object" : "%s", f->text);
		add_end(out, f->err, hint);
		return;
	}
	if (f->code == IB_MEMREG_REASON_ID ||
	    f->code == IB_MEMREG_REASON_STATE ||
	    f->code == IB_MEMREG_REASON_IN_USE)
		memreg__census_take(&c);
	if (f->code == IB_MEMREG_REASON_ID) {
		add(out, "this handle has no ");
		add_missing(out, f, &c);
	} else if (!memreg__census_explain(&c, f, out, &hint)) {
		add(out, "%s: ", f->text);
		add_ids(out, f);
	}
	free(c.objects);
	add_end(out, f->err, hint);
}

static void explain(const struct memreg__failure *f, char *line, size_t size)
{
	struct out out = { line, size };

	add(&out, "%s: ", f->what);
	switch (f->subject) {
	case MEMREG__DEVICE:
		if (f->code == IB_MEMREG_REASON_NO_DEVICE) {
			explain_device(&out, f);
			return;
		}
		add(&out, *f->name ? "%s: %s" : "%s%s", f->text, f->name);
		add_end(&out, f->err, f->hint);
		return;
	case MEMREG__ADDRESS:
		explain_address(&out, f);
		return;
	case MEMREG__MEMORY:
		explain_memory(&out, f);
		return;
	case MEMREG__IDS:
		explain_ids(&out, f);
		return;
	case MEMREG__NUMBER:
		add(&out, "%s: %s %" PRIu64, f->text, f->noun[0], f->value[0]);
		break;
	default:
		add(&out, "%s", f->text);
	}
	add_end(&out, f->err, f->hint);
}

EXPORT const char *memreg_reason(void)
{
	static __thread char line[1024];
	const struct memreg__failure failure = *memreg__last();

	if (!failure.err)
		return "";
	explain(&failure, line, sizeof(line));
	/* Calls that look for the cause replace the reason if they fail. */
	memreg__restore(&failure);
	return line;
}
