// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg list: live objects of all processes, and whose they are */
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "tool.h"

static const char *type_text(uint32_t type)
{
	static const char *const names[] = {
		[IB_MEMREG_OBJECT_FILE] = "file",
		[IB_MEMREG_OBJECT_DOMAIN] = "domain",
		[IB_MEMREG_OBJECT_MR] = "mr",
		[IB_MEMREG_OBJECT_WINDOW] = "window",
		[IB_MEMREG_OBJECT_LISTENER] = "listener",
		[IB_MEMREG_OBJECT_ENDPOINT] = "endpoint",
		[IB_MEMREG_OBJECT_RING] = "ring",
		[IB_MEMREG_OBJECT_SRQ] = "srq",
	};

	if (!type || type >= sizeof(names) / sizeof(names[0]))
		return "unknown";
	return names[type];
}

static const char *endpoint_state_text(uint32_t state)
{
	switch (state) {
	case IB_MEMREG_ENDPOINT_REQUESTED:
		return "requested";
	case IB_MEMREG_ENDPOINT_CONNECTING:
		return "connecting";
	case IB_MEMREG_ENDPOINT_CONNECTED:
		return "connected";
	case IB_MEMREG_ENDPOINT_CLOSED:
		return "closed";
	default:
		return "unknown";
	}
}

static const char *state_text(const struct ib_memreg_object *o)
{
	switch (o->type) {
	case IB_MEMREG_OBJECT_DOMAIN:
		return o->state ? "up" : "down";
	case IB_MEMREG_OBJECT_MR:
		return o->state == IB_MEMREG_MR_LIVE ? "live" :
		       o->state == IB_MEMREG_MR_STALE ? "stale" : "spurious";
	case IB_MEMREG_OBJECT_WINDOW:
		return o->state ? "bound" : "free";
	case IB_MEMREG_OBJECT_ENDPOINT:
		return endpoint_state_text(o->state);
	default:
		return "-";
	}
}

static void print_memory(const struct ib_memreg_object *o)
{
	char access[ACCESS_TEXT];

	printf("0x%" PRIx64 " + %" PRIu64 " %s", (uint64_t)o->addr,
	       (uint64_t)o->length, access_text(o->access, access));
	if (o->rkey)
		printf(" rkey 0x%08" PRIx32, o->rkey);
}

static void print_details(const struct ib_memreg_object *o)
{
	switch (o->type) {
	case IB_MEMREG_OBJECT_FILE:
		printf("%s, %" PRIu64 " pages pinned", o->device,
		       (uint64_t)o->length);
		break;
	case IB_MEMREG_OBJECT_DOMAIN:
		printf("%" PRIu32 " in it, queue rebuilt %" PRIu64 " times",
		       o->users, (uint64_t)o->length);
		break;
	case IB_MEMREG_OBJECT_MR:
		print_memory(o);
		printf(", in use %" PRIu32 " times", o->users);
		break;
	case IB_MEMREG_OBJECT_WINDOW:
		if (!o->state)
			break;
		print_memory(o);
		printf(" of mr %" PRIu32, o->parent_id);
		break;
	case IB_MEMREG_OBJECT_ENDPOINT:
		if (o->parent_id)
			printf("of listener %" PRIu32, o->parent_id);
		break;
	case IB_MEMREG_OBJECT_RING:
		printf("%" PRIu64 " entries, for %" PRIu32 " queues",
		       (uint64_t)o->length, o->users);
		break;
	case IB_MEMREG_OBJECT_SRQ:
		printf("%" PRIu64 " receives posted, for %" PRIu32
		       " endpoints, to ring %" PRIu32, (uint64_t)o->length,
		       o->users, o->parent_id);
		break;
	}
}

static void print_row(const struct ib_memreg_object *o)
{
	char comm[sizeof(o->comm) + 1];

	printf("%-5" PRIu32 " %-7" PRId32 " %-15s %-6" PRIu32
	       " %-8s %-6" PRIu32 " %-6" PRIu32 " %-10s ", o->file, o->pid,
	       plain_text(o->comm, sizeof(o->comm), comm), o->uid,
	       type_text(o->type), o->id, o->domain_id, state_text(o));
	print_details(o);
	putchar('\n');
}

static void print_json(const struct ib_memreg_object *o, bool first)
{
	printf("%s{\"file\":%" PRIu32 ",\"id\":%" PRIu32
	       ",\"type\":\"%s\",\"state\":\"%s\",\"domain\":%" PRIu32
	       ",\"parent\":%" PRIu32 ",\"pid\":%" PRId32 ",\"uid\":%" PRIu32
	       ",", first ? "" : ",\n ", o->file, o->id, type_text(o->type),
	       state_text(o), o->domain_id, o->parent_id, o->pid, o->uid);
	printf("\"addr\":%" PRIu64 ",\"length\":%" PRIu64 ",\"access\":%" PRIu32
	       ",\"rkey\":%" PRIu32 ",\"users\":%" PRIu32
	       ",\"device_index\":%" PRIu32 ",", (uint64_t)o->addr,
	       (uint64_t)o->length, o->access, o->rkey, o->users,
	       o->device_index);
	print_json_string("command", o->comm, sizeof(o->comm));
	putchar(',');
	print_json_string("device", o->device, sizeof(o->device));
	putchar('}');
}

static int print_all(struct memreg_list *list, bool json)
{
	struct ib_memreg_object o;
	bool first = true;
	int ret;

	if (json)
		putchar('[');
	else
		printf("%-5s %-7s %-15s %-6s %-8s %-6s %-6s %-10s %s\n",
		       "FILE", "PID", "COMMAND", "UID", "TYPE", "ID",
		       "DOMAIN", "STATE", "DETAILS");
	while ((ret = memreg_list_next(list, &o, sizeof(o))) > 0) {
		if (json)
			print_json(&o, first);
		else
			print_row(&o);
		first = false;
	}
	if (json)
		puts("]");
	return ret ? fail("%s", memreg_reason()) : EXIT_GOOD;
}

static void usage(void)
{
	puts("usage: memreg list [--json]\n"
	     "Show the live objects: your own, or everybody's with CAP_SYS_ADMIN.\n\n"
	     "  -j, --json   as a JSON array, one object a line\n"
	     "  -h, --help");
}

static int set_option(void *ctx, int opt)
{
	bool *json = ctx;

	(void)opt;	/* there is but one */
	*json = true;
	return EXIT_GOOD;
}

int cmd_list(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
	};
	struct memreg_list *list;
	bool json = false;
	int ret = parse_options(argc, argv, &syntax, &json);

	if (ret >= 0)
		return ret;
	if (memreg_list_open(&list))
		return fail("%s", memreg_reason());
	ret = print_all(list, json);
	memreg_list_close(list);
	return ret;
}
