// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg caps: the capabilities of a device, each with its backing */
#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "number.h"
#include "tool.h"

#define CAPS_ROOM 64

enum kind { NUMBER, BYTES, BYTE_SIZES, YES_NO, ACCESS, OPCODES };

static const struct {
	const char *name;
	enum kind kind;
	const char *what;
} names[] = {
	[IB_MEMREG_CAP_KEY_PAGES] = {
		"key-pages", NUMBER, "pages under one key" },
	[IB_MEMREG_CAP_KEY_SPAN] = {
		"key-span", BYTES, "bytes under one key" },
	[IB_MEMREG_CAP_PAGE_SIZES] = {
		"page-sizes", BYTE_SIZES, "that a key can be made of" },
	[IB_MEMREG_CAP_ACCESS] = {
		"access", ACCESS, "" },
	[IB_MEMREG_CAP_WINDOW_TYPE1] = {
		"window-type1", YES_NO, "windows bound by a call" },
	[IB_MEMREG_CAP_WINDOW_TYPE2B] = {
		"window-type2b", YES_NO, "windows bound by a work request" },
	[IB_MEMREG_CAP_INLINE_RECEIVE] = {
		"inline-receive", BYTES, "received in a completion entry" },
	[IB_MEMREG_CAP_STRICT_INVALIDATE] = {
		"strict-invalidate", YES_NO, "revoke waits for packets" },
	[IB_MEMREG_CAP_MAX_MR] = { "max-mr", NUMBER, "MRs of the device" },
	[IB_MEMREG_CAP_MAX_QP] = { "max-qp", NUMBER, "QPs of the device" },
	[IB_MEMREG_CAP_CONNECT_DATA] = {
		"connect-data", BYTES, "private data to connect with" },
	[IB_MEMREG_CAP_ACCEPT_DATA] = {
		"accept-data", BYTES, "private data to accept with" },
	[IB_MEMREG_CAP_REJECT_DATA] = {
		"reject-data", BYTES, "private data to reject with" },
	[IB_MEMREG_CAP_OPCODES] = {
		"opcodes", OPCODES, "" },
	[IB_MEMREG_CAP_FRAGMENTS] = {
		"fragments", NUMBER, "pieces of memory in one message" },
	[IB_MEMREG_CAP_QUEUE] = {
		"queue", NUMBER, "work requests on a queue" },
	[IB_MEMREG_CAP_RING] = {
		"ring", NUMBER, "entries of a completion ring" },
	[IB_MEMREG_CAP_URING] = {
		"io-uring", YES_NO, "commands of io_uring" },
	[IB_MEMREG_CAP_MESSAGE] = { "message", BYTES, "of a message" },
	[IB_MEMREG_CAP_WRITE_ORDER] = {
		"write-order", YES_NO, "peers' writes are seen in order" },
	[IB_MEMREG_CAP_CONTIGUOUS] = {
		"contiguous", BYTES, "of memory in one block" },
	[IB_MEMREG_CAP_DMABUF] = {
		"dma-buf", YES_NO, "memory that others export" },
	[IB_MEMREG_CAP_POOL] = { "pool", NUMBER, "buffers of a pool" },
	[IB_MEMREG_CAP_SG_GAPS] = {
		"sg-gaps", YES_NO, "any bytes of compositions under a key" },
	[IB_MEMREG_CAP_ODP_EXPLICIT] = {
		"odp-explicit", YES_NO, "MRs on demand" },
	[IB_MEMREG_CAP_ODP_IMPLICIT] = {
		"odp-implicit", YES_NO, "the whole address space as one MR" },
	[IB_MEMREG_CAP_ADVISE] = {
		"advise", YES_NO, "MRs on demand are pinned ahead" },
	[IB_MEMREG_CAP_ODP_KEYS] = {
		"odp-keys", YES_NO, "keys of MRs on demand, without windows" },
	[IB_MEMREG_CAP_EXPORT] = {
		"export", YES_NO, "parts of MRs for other queue pairs" },
	[IB_MEMREG_CAP_EXPORT_REGISTER] = {
		"export-register", YES_NO,
		"by applications, in their own PDs on this device" },
	[IB_MEMREG_CAP_LEASE] = {
		"lease", YES_NO, "grants that end at a deadline" },
};

static const char *backing_text(uint32_t backing)
{
	switch (backing) {
	case IB_MEMREG_BACKING_NONE:
		return "-";
	case IB_MEMREG_BACKING_DEVICE:
		return "device";
	case IB_MEMREG_BACKING_FRWR:
		return "FRWR";
	case IB_MEMREG_BACKING_KERNEL:
		return "ib_memreg";
	default:
		return "unknown";
	}
}

/* All sizes from the smallest: "4 KiB to 2 GiB", or one by one if few */
static void sizes_text(uint64_t sizes, char *buf, size_t size)
{
	char one[32];
	int bit;

	*buf = '\0';
	for (bit = 0; bit < 64; bit++) {
		if (!(sizes >> bit & 1))
			continue;
		if (bit && bit < 63 && (sizes >> (bit - 1) & 1) &&
		    (sizes >> (bit + 1) & 1))
			continue;	/* in the middle of a row */
		human_bytes((double)(1ULL << bit), one, sizeof(one));
		if (*buf)
			strncat(buf, bit && (sizes >> (bit - 1) & 1) ?
				" to " : ", ", size - strlen(buf) - 1);
		strncat(buf, one, size - strlen(buf) - 1);
	}
}

/* In a unit only if that is exact */
static void exact_text(uint64_t n, char *buf, size_t size)
{
	if (n & 1023)
		snprintf(buf, size, "%" PRIu64 " bytes", n);
	else
		human_bytes((double)n, buf, size);
}

/* "send,write,read" */
static void opcodes_text(uint64_t mask, char *buf, size_t size)
{
	const char *name;
	unsigned int bit;
	size_t len = 0;

	*buf = '\0';
	for (bit = 0; bit < 64; bit++) {
		if (!(mask >> bit & 1))
			continue;
		if (len && len < size - 1)
			buf[len++] = ',';
		for (name = memreg_opcode_string(bit);
		     *name && len < size - 1; name++)
			buf[len++] = *name == '_' ?
				'-' : (char)tolower((unsigned char)*name);
		buf[len] = '\0';
	}
}

static void value_text(const struct ib_memreg_cap_entry *cap, char *buf,
		       size_t size)
{
	char access[ACCESS_TEXT];
	enum kind kind = NUMBER;

	if (cap->cap < sizeof(names) / sizeof(names[0]))
		kind = names[cap->cap].kind;
	switch (kind) {
	case NUMBER:
		snprintf(buf, size, "%" PRIu64, (uint64_t)cap->value);
		break;
	case BYTES:
		exact_text(cap->value, buf, size);
		break;
	case BYTE_SIZES:
		sizes_text(cap->value, buf, size);
		break;
	case YES_NO:
		snprintf(buf, size, "%s", cap->value ? "yes" : "no");
		break;
	case ACCESS:
		snprintf(buf, size, "%s",
			 access_text((uint32_t)cap->value, access));
		break;
	case OPCODES:
		opcodes_text(cap->value, buf, size);
		break;
	}
}

static void print_cap(const struct ib_memreg_cap_entry *cap)
{
	const char *name = NULL, *what = "";
	char value[200], number[32];

	if (cap->cap < sizeof(names) / sizeof(names[0])) {
		name = names[cap->cap].name;
		what = names[cap->cap].what;
	}
	if (!name) {
		snprintf(number, sizeof(number), "capability %" PRIu32,
			 cap->cap);
		name = number;
	}
	if (cap->backing == IB_MEMREG_BACKING_NONE)
		strcpy(value, "no");
	else
		value_text(cap, value, sizeof(value));
	printf("%-18s %-10s %-15s %s\n", name, backing_text(cap->backing),
	       value, what);
}

/*
 * For programs
 */

static void print_json_sizes(uint64_t sizes)
{
	const char *between = "";
	int bit;

	putchar('[');
	for (bit = 0; bit < 64; bit++) {
		if (!(sizes >> bit & 1))
			continue;
		printf("%s%" PRIu64, between, UINT64_C(1) << bit);
		between = ",";
	}
	putchar(']');
}

/* ["send","write"] of "send,write" */
static void print_json_opcodes(uint64_t mask)
{
	char text[200], *save, *name;
	const char *between = "";

	opcodes_text(mask, text, sizeof(text));
	putchar('[');
	for (name = strtok_r(text, ",", &save); name;
	     name = strtok_r(NULL, ",", &save)) {
		printf("%s\"%s\"", between, name);
		between = ",";
	}
	putchar(']');
}

static void print_json_value(const struct ib_memreg_cap_entry *cap,
			     enum kind kind)
{
	switch (kind) {
	case NUMBER:
	case BYTES:
		printf("%" PRIu64, (uint64_t)cap->value);
		break;
	case BYTE_SIZES:
		print_json_sizes(cap->value);
		break;
	case YES_NO:
		printf("%s", cap->value ? "true" : "false");
		break;
	case ACCESS:
		print_json_access((uint32_t)cap->value);
		break;
	case OPCODES:
		print_json_opcodes(cap->value);
		break;
	}
}

/* "key-span":{"value":2097152,"unit":"bytes","backed_by":"FRWR"} */
static void print_json_cap(const struct ib_memreg_cap_entry *cap, bool first)
{
	bool known = cap->cap < sizeof(names) / sizeof(names[0]) &&
		     names[cap->cap].name;
	enum kind kind = known ? names[cap->cap].kind : NUMBER;

	if (known)
		printf("%s\"%s\":{\"value\":", first ? "" : ",\n ",
		       names[cap->cap].name);
	else
		printf("%s\"capability-%" PRIu32 "\":{\"value\":",
		       first ? "" : ",\n ", cap->cap);
	print_json_value(cap, kind);
	if (kind == BYTES || kind == BYTE_SIZES)
		printf(",\"unit\":\"bytes\"");
	if (cap->backing == IB_MEMREG_BACKING_NONE)
		printf(",\"backed_by\":null}");
	else
		printf(",\"backed_by\":\"%s\"}", backing_text(cap->backing));
}

static void print_json(const struct memreg_device *device,
		       const struct ib_memreg_cap_entry *caps,
		       unsigned int count)
{
	unsigned int i;

	putchar('{');
	print_json_string("device", device->name, sizeof(device->name));
	printf(",\"device_index\":%" PRIu32 ",\"ports\":%" PRIu32
	       ",\n\"capabilities\":{", device->index, device->ports);
	for (i = 0; i < count; i++)
		print_json_cap(&caps[i], !i);
	puts("}}");
}

struct options {
	const char *device;
	bool json;
};

static int print_caps(struct memreg *m, void *ctx)
{
	const struct options *o = ctx;
	struct ib_memreg_cap_entry caps[CAPS_ROOM];
	unsigned int i, count = CAPS_ROOM;
	struct memreg_device device;

	if (memreg_query_device(m, &device) ||
	    memreg_query_caps(m, caps, &count))
		return fail("%s", memreg_reason());
	if (count > CAPS_ROOM)
		count = CAPS_ROOM;
	if (o->json) {
		print_json(&device, caps, count);
		return EXIT_GOOD;
	}
	printf("device %s, index %" PRIu32 ", ports %" PRIu32 "\n\n",
	       device.name, device.index, device.ports);
	printf("%-18s %-10s %-15s %s\n", "CAPABILITY", "BACKED BY", "VALUE",
	       "WHAT");
	for (i = 0; i < count; i++)
		print_cap(&caps[i]);
	return EXIT_GOOD;
}

static void usage(void)
{
	puts("usage: memreg caps [-d DEVICE] [--json]\n"
	     "Show what an RDMA device can do, and what stands behind it: the\n"
	     "device, its fast registration (FRWR), or ib_memreg in software.\n\n"
	     "  -d, --device DEVICE   RDMA device; may be left out if there is but one\n"
	     "  -j, --json            as a JSON object\n"
	     "  -h, --help");
}

static int set_option(void *ctx, int opt)
{
	struct options *o = ctx;

	if (opt == 'd')
		o->device = optarg;
	else
		o->json = true;
	return EXIT_GOOD;
}

int cmd_caps(int argc, char **argv)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
	};
	struct options o = { .device = NULL };
	int ret = parse_options(argc, argv, &syntax, &o);

	return ret < 0 ? with_device(o.device, print_caps, &o) : ret;
}
