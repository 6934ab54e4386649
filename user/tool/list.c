// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* memreg list: live objects of all processes, and whose they are */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "holders.h"
#include "number.h"
#include "tool.h"

static const char *const types[] = {
	[IB_MEMREG_OBJECT_FILE] = "file",
	[IB_MEMREG_OBJECT_DOMAIN] = "domain",
	[IB_MEMREG_OBJECT_MR] = "mr",
	[IB_MEMREG_OBJECT_WINDOW] = "window",
	[IB_MEMREG_OBJECT_LISTENER] = "listener",
	[IB_MEMREG_OBJECT_ENDPOINT] = "endpoint",
	[IB_MEMREG_OBJECT_RING] = "ring",
	[IB_MEMREG_OBJECT_SRQ] = "srq",
	[IB_MEMREG_OBJECT_STATUS] = "status",
	[IB_MEMREG_OBJECT_MONITOR] = "monitor",
	[IB_MEMREG_OBJECT_EXPORT] = "export",
	[IB_MEMREG_OBJECT_LEASE] = "lease",
};

#define TYPES	(sizeof(types) / sizeof(types[0]))

static const char *const states[] = {
	"up", "down", "live", "stale", "spurious", "invalidated", "bound",
	"free",
	"requested", "connecting", "connected", "closed", "ending", "ended",
};

struct options {
	uint64_t pid;		/* only of this process, or 0 */
	uint32_t type;		/* only of this type, or 0 */
	const char *state;	/* or NULL */
	const char *device;	/* or NULL */
	bool json;
	bool tree;
	bool memory;
};

struct objects {
	struct ib_memreg_object *list;
	size_t count;
	size_t room;
};

static const char *type_text(uint32_t type)
{
	return type && type < TYPES ? types[type] : "unknown";
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

static const char *mr_state_text(uint32_t state)
{
	return state == IB_MEMREG_MR_LIVE ? "live" :
	       state == IB_MEMREG_MR_STALE ? "stale" :
	       state == IB_MEMREG_MR_SPURIOUS ? "spurious" : "invalidated";
}

static const char *export_state_text(uint32_t state)
{
	return state == IB_MEMREG_EXPORT_LIVE ? "live" :
	       state == IB_MEMREG_EXPORT_ENDING ? "ending" : "ended";
}

static const char *state_text(const struct ib_memreg_object *o)
{
	switch (o->type) {
	case IB_MEMREG_OBJECT_DOMAIN:
		return o->u.domain.working ? "up" : "down";
	case IB_MEMREG_OBJECT_MR:
		return mr_state_text(o->u.mr.state);
	case IB_MEMREG_OBJECT_WINDOW:
		return o->u.window.bound ? "bound" : "free";
	case IB_MEMREG_OBJECT_ENDPOINT:
		return endpoint_state_text(o->u.endpoint.state);
	case IB_MEMREG_OBJECT_EXPORT:
		return export_state_text(o->u.exported.state);
	case IB_MEMREG_OBJECT_LEASE:
		return o->u.lease.ended ? "ended" : "live";
	default:
		return "-";
	}
}

static void print_memory(uint64_t addr, uint64_t length, uint32_t access,
			 uint32_t rkey)
{
	char text[ACCESS_TEXT], bytes[32];

	printf("0x%" PRIx64 " + %s %s", addr,
	       human_bytes((double)length, bytes, sizeof(bytes)),
	       access_text(access, text));
	if (rkey)
		printf(" rkey 0x%08" PRIx32, rkey);
}

static void print_pinned(const struct ib_memreg_object *o)
{
	char bytes[32];

	printf(", %s pinned", human_bytes((double)o->u.file.pinned * 4096,
					  bytes, sizeof(bytes)));
}

static void print_demand(const struct ib_memreg_demand_stats *demand)
{
	char now[32], max[32];

	printf(", %s pinned on demand, %s at most, %" PRIu64 " faults",
	       human_bytes((double)demand->pinned * 4096, now, sizeof(now)),
	       human_bytes((double)demand->pinned_max * 4096, max,
			   sizeof(max)), (uint64_t)demand->faults);
}

static void print_domain(const struct ib_memreg_object *o)
{
	printf("%" PRIu32 " in it, queue rebuilt %" PRIu64 " times", o->users,
	       (uint64_t)o->u.domain.rebuilds);
}

static void print_mr(const struct ib_memreg_object *o)
{
	const struct ib_memreg_object_mr *mr = &o->u.mr;

	print_memory(mr->addr, mr->length, mr->access, mr->rkey);
	if (mr->dmabuf)
		printf(" of dma-buf %" PRIu64, (uint64_t)mr->dmabuf);
	printf(", in use %" PRIu32 " times", o->users);
	if (mr->on_demand)
		print_demand(&mr->demand);
}

static void print_lease_id(uint32_t lease)
{
	if (lease)
		printf(", lease %" PRIu32, lease);
}

static void print_window(const struct ib_memreg_object_window *window)
{
	if (!window->bound)
		return;
	print_memory(window->iova, window->length, window->access,
		     window->rkey);
	printf(" of mr %" PRIu32, window->mr_id);
	print_lease_id(window->lease_id);
}

static void print_monitor(const struct ib_memreg_object_monitor *monitor)
{
	if (monitor->dmabuf)
		printf("dma-buf %" PRIu64, (uint64_t)monitor->dmabuf);
	else
		print_memory(monitor->addr, monitor->length, monitor->access,
			     0);
	printf(" in status table %" PRIu32, monitor->status_id);
}

static void print_export(const struct ib_memreg_object_export *export)
{
	char bytes[32];

	printf("0x%" PRIx64 " + %s of mr %" PRIu32 ", dma-buf %" PRIu64
	       ", mapped %" PRIu32 " times", (uint64_t)export->addr,
	       human_bytes((double)export->length, bytes, sizeof(bytes)),
	       export->mr_id, (uint64_t)export->dmabuf, export->importers);
	print_lease_id(export->lease_id);
}

/* Nanoseconds until a deadline; 0 once it is over */
static uint64_t time_left(uint64_t deadline)
{
	struct timespec now;
	uint64_t ns;

	clock_gettime(CLOCK_BOOTTIME, &now);
	ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	return deadline > ns ? deadline - ns : 0;
}

static void print_lease(const struct ib_memreg_object_lease *lease)
{
	if (!lease->ended && lease->deadline >= INT64_MAX)
		printf("never ends, ");
	else if (!lease->ended)
		printf("%.3f s left, ", (double)time_left(lease->deadline) / 1e9);
	printf("%" PRIu32 " grants", lease->grants);
}

static void print_details(const struct ib_memreg_object *o)
{
	switch (o->type) {
	case IB_MEMREG_OBJECT_FILE:
		printf("%s", o->device);
		print_pinned(o);
		break;
	case IB_MEMREG_OBJECT_DOMAIN:
		print_domain(o);
		break;
	case IB_MEMREG_OBJECT_MR:
		print_mr(o);
		break;
	case IB_MEMREG_OBJECT_WINDOW:
		print_window(&o->u.window);
		break;
	case IB_MEMREG_OBJECT_ENDPOINT:
		if (o->u.endpoint.listener_id)
			printf("of listener %" PRIu32,
			       o->u.endpoint.listener_id);
		break;
	case IB_MEMREG_OBJECT_RING:
		printf("%" PRIu32 " entries, for %" PRIu32 " queues",
		       o->u.ring.entries, o->users);
		break;
	case IB_MEMREG_OBJECT_SRQ:
		printf("%" PRIu32 " receives posted, for %" PRIu32
		       " endpoints, to ring %" PRIu32, o->u.srq.posted,
		       o->users, o->u.srq.ring_id);
		break;
	case IB_MEMREG_OBJECT_STATUS:
		printf("%" PRIu32 " slots, %" PRIu32 " in use",
		       o->u.status.slots, o->users);
		break;
	case IB_MEMREG_OBJECT_MONITOR:
		print_monitor(&o->u.monitor);
		break;
	case IB_MEMREG_OBJECT_EXPORT:
		print_export(&o->u.exported);
		break;
	case IB_MEMREG_OBJECT_LEASE:
		print_lease(&o->u.lease);
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

static void print_heading(void)
{
	printf("%-5s %-7s %-15s %-6s %-8s %-6s %-6s %-10s %s\n", "FILE", "PID",
	       "COMMAND", "UID", "TYPE", "ID", "DOMAIN", "STATE", "DETAILS");
}

/*
 * For programs: a field is there if it means something, and means the same
 * wherever it is
 */

static void json_number(const char *name, uint64_t value)
{
	printf(",\"%s\":%" PRIu64, name, value);
}

/* An id of another object of the file */
static void json_id(const char *name, uint32_t id)
{
	if (id)
		json_number(name, id);
}

static void json_key(uint32_t access, uint32_t rkey)
{
	printf(",\"access\":");
	print_json_access(access);
	if (rkey)
		json_number("rkey", rkey);
}

static void json_demand(const struct ib_memreg_demand_stats *demand)
{
	printf(",\"on_demand\":{\"pinned_bytes\":%" PRIu64,
	       (uint64_t)demand->pinned * 4096);
	json_number("pinned_bytes_max", demand->pinned_max * 4096);
	json_number("faults", demand->faults);
	json_number("hits", demand->hits);
	json_number("invalidations", demand->invalidations);
	json_number("prefetches", demand->prefetches);
	json_number("prefetch_hits", demand->prefetch_hits);
	putchar('}');
}

static void json_mr(const struct ib_memreg_object *o)
{
	json_number("address", o->u.mr.addr);
	json_number("length_bytes", o->u.mr.length);
	json_number("users", o->users);
	if (o->u.mr.dmabuf)
		json_number("dmabuf", o->u.mr.dmabuf);
	json_key(o->u.mr.access, o->u.mr.rkey);
	if (o->u.mr.on_demand)
		json_demand(&o->u.mr.demand);
}

static void json_window(const struct ib_memreg_object_window *window)
{
	if (!window->bound) {
		json_number("max_span_bytes", window->max_span);
		return;
	}
	json_number("length_bytes", window->length);
	json_number("iova", window->iova);
	json_id("mr", window->mr_id);
	json_id("lease", window->lease_id);
	json_key(window->access, window->rkey);
}

static void json_details(const struct ib_memreg_object *o)
{
	switch (o->type) {
	case IB_MEMREG_OBJECT_FILE:
		json_number("pinned_bytes", o->u.file.pinned * 4096);
		break;
	case IB_MEMREG_OBJECT_DOMAIN:
		json_number("users", o->users);
		json_number("queue_rebuilds", o->u.domain.rebuilds);
		break;
	case IB_MEMREG_OBJECT_MR:
		json_mr(o);
		break;
	case IB_MEMREG_OBJECT_WINDOW:
		json_window(&o->u.window);
		break;
	case IB_MEMREG_OBJECT_ENDPOINT:
		json_id("listener", o->u.endpoint.listener_id);
		break;
	case IB_MEMREG_OBJECT_RING:
		json_number("entries", o->u.ring.entries);
		json_number("users", o->users);
		break;
	case IB_MEMREG_OBJECT_SRQ:
		json_id("ring", o->u.srq.ring_id);
		json_number("receives_posted", o->u.srq.posted);
		json_number("users", o->users);
		break;
	case IB_MEMREG_OBJECT_STATUS:
		json_number("slots", o->u.status.slots);
		json_number("users", o->users);
		break;
	case IB_MEMREG_OBJECT_MONITOR:
		json_number("addr", o->u.monitor.addr);
		json_number("length", o->u.monitor.length);
		if (o->u.monitor.dmabuf)
			json_number("dmabuf", o->u.monitor.dmabuf);
		json_id("status", o->u.monitor.status_id);
		break;
	case IB_MEMREG_OBJECT_EXPORT:
		json_number("address", o->u.exported.addr);
		json_number("length_bytes", o->u.exported.length);
		json_number("dmabuf", o->u.exported.dmabuf);
		json_number("importers", o->u.exported.importers);
		json_id("mr", o->u.exported.mr_id);
		json_id("lease", o->u.exported.lease_id);
		break;
	case IB_MEMREG_OBJECT_LEASE:
		json_number("deadline_ns", o->u.lease.deadline);
		json_number("left_ns", time_left(o->u.lease.deadline));
		json_number("grants", o->u.lease.grants);
		break;
	}
}

static void print_json(const struct ib_memreg_object *o, bool first)
{
	const char *state = state_text(o);

	printf("%s{\"file\":%" PRIu32 ",\"type\":\"%s\"",
	       first ? "" : ",\n ", o->file, type_text(o->type));
	json_id("id", o->id);
	json_id("domain", o->domain_id);
	if (*state != '-')
		printf(",\"state\":\"%s\"", state);
	json_details(o);
	if (o->pid)
		printf(",\"pid\":%" PRId32, o->pid);
	json_number("uid", o->uid);
	putchar(',');
	print_json_string("command", o->comm, sizeof(o->comm));
	putchar(',');
	print_json_string("device", o->device, sizeof(o->device));
	json_number("device_index", o->device_index);
	putchar('}');
}

/*
 * For people: a tree
 */

/* Parent of an object in the tree: an id, or 0 for the file */
static uint32_t parent_of(const struct ib_memreg_object *o)
{
	switch (o->type) {
	case IB_MEMREG_OBJECT_WINDOW:
		return o->u.window.bound ? o->u.window.mr_id : o->domain_id;
	case IB_MEMREG_OBJECT_ENDPOINT:
		return o->domain_id ? o->domain_id : o->u.endpoint.listener_id;
	case IB_MEMREG_OBJECT_EXPORT:
		return o->u.exported.mr_id;
	default:
		return o->domain_id;
	}
}

static bool is_there(const struct objects *all, uint32_t file, uint32_t id)
{
	size_t i;

	for (i = 0; i < all->count; i++)
		if (all->list[i].file == file && all->list[i].id == id)
			return true;
	return false;
}

static void print_branch(const struct objects *all, uint32_t file, uint32_t id,
			 int depth)
{
	const struct ib_memreg_object *o;
	uint32_t parent;

	for (o = all->list; o < all->list + all->count; o++) {
		if (o->file != file || !o->id)
			continue;
		parent = parent_of(o);
		/* of a filter, or it went meanwhile, or is in another domain */
		if (!is_there(all, file, parent))
			parent = 0;
		if (parent != id)
			continue;
		printf("%*s%s %" PRIu32, 2 * depth, "", type_text(o->type),
		       o->id);
		if (*state_text(o) != '-')
			printf(" %s", state_text(o));
		printf("  ");
		print_details(o);
		putchar('\n');
		print_branch(all, file, o->id, depth + 1);
	}
}

/* The first object of a file, and the first of a process, begin a heading */
static void print_tree(const struct objects *all)
{
	const struct ib_memreg_object *o, *before = NULL;
	char comm[sizeof(o->comm) + 1];

	for (o = all->list; o < all->list + all->count; before = o++) {
		if (before && before->file == o->file)
			continue;
		if (!before || before->pid != o->pid)
			printf("process %" PRId32 " %s, user %" PRIu32 "\n",
			       o->pid, plain_text(o->comm, sizeof(o->comm),
						  comm), o->uid);
		printf("  file %" PRIu32 " on %s", o->file, o->device);
		if (o->type == IB_MEMREG_OBJECT_FILE)
			print_pinned(o);
		putchar('\n');
		print_branch(all, o->file, 0, 2);
	}
}

/* By process, then file, then id: a file itself comes before what it has */
static int compare(const void *a, const void *b)
{
	const struct ib_memreg_object *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

/*
 * All that there is
 */

static bool is_wanted(const struct ib_memreg_object *o,
		      const struct options *options)
{
	return (!options->pid || options->pid == (uint64_t)o->pid) &&
	       (!options->type || options->type == o->type) &&
	       (!options->state || !strcmp(options->state, state_text(o))) &&
	       (!options->device || !strcmp(options->device, o->device));
}

static int add(struct objects *all, const struct ib_memreg_object *o)
{
	struct ib_memreg_object *list;

	if (all->count == all->room) {
		all->room = all->room ? 2 * all->room : 64;
		list = realloc(all->list, all->room * sizeof(*list));
		if (!list)
			return fail("%s", strerror(ENOMEM));
		all->list = list;
	}
	all->list[all->count++] = *o;
	return EXIT_GOOD;
}

static int take_all(struct objects *all, const struct options *options)
{
	struct ib_memreg_object o;
	struct memreg_list *list;
	int ret, err = EXIT_GOOD;

	if (memreg_list_open(&list))
		return fail("%s", memreg_reason());
	while (err == EXIT_GOOD &&
	       (ret = memreg_list_next(list, &o, sizeof(o))) > 0)
		if (is_wanted(&o, options))
			err = add(all, &o);
	if (err == EXIT_GOOD && ret)
		err = fail("%s", memreg_reason());
	memreg_list_close(list);
	return err;
}

static void print_all(struct objects *all, const struct options *options)
{
	size_t i;

	if (options->tree) {
		qsort(all->list, all->count, sizeof(*all->list), compare);
		print_tree(all);
		return;
	}
	if (options->json)
		putchar('[');
	else
		print_heading();
	for (i = 0; i < all->count; i++)
		if (options->json)
			print_json(&all->list[i], !i);
		else
			print_row(&all->list[i]);
	if (options->json)
		puts("]");
}

/* Users that keep the memory behind descriptors */
static int print_holders(const struct objects *all,
			 const struct options *options)
{
	struct holders holders = { .list = NULL };
	int ret = EXIT_GOOD;
	size_t i;

	for (i = 0; ret == EXIT_GOOD && i < all->count; i++)
		ret = holders_add_mr(&holders, &all->list[i]);
	if (ret == EXIT_GOOD)
		ret = holders_find(&holders);
	if (ret == EXIT_GOOD)
		holders_print(&holders, options->json);
	holders_free(&holders);
	return ret;
}

static void usage(void)
{
	puts("usage: memreg list [OPTIONS]\n"
	     "Show the live objects: your own, or everybody's with CAP_SYS_ADMIN.\n\n"
	     "  -P, --pid PID         only those of a process\n"
	     "  -t, --type TYPE       only file, domain, mr, window, listener, endpoint, ring\n"
	     "                        srq, status, monitor, export or lease\n"
	     "  -s, --state STATE     only up, down, live, stale, spurious, invalidated, bound,\n"
	     "                        free, requested, connecting, connected, closed,\n"
	     "                        ending or ended\n"
	     "  -d, --device DEVICE   only those on an RDMA device\n"
	     "  -T, --tree            as a tree for each process\n"
	     "  -m, --memory          who keeps memory objects, and what MRs are on of others\n"
	     "  -j, --json            as a JSON array, one object a line\n"
	     "  -h, --help");
}

static int set_type(struct options *o)
{
	for (o->type = 1; o->type < TYPES; o->type++)
		if (!strcmp(optarg, types[o->type]))
			return EXIT_GOOD;
	return bad_usage("--type '%.80s': it takes file, domain, mr, window, listener, endpoint, ring, srq, status, monitor, export or lease",
			 optarg);
}

static int set_state(struct options *o)
{
	size_t i;

	o->state = optarg;
	for (i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (!strcmp(optarg, states[i]))
			return EXIT_GOOD;
	return bad_usage("--state '%.80s': it takes up, down, live, stale, spurious, invalidated, bound, free, requested, connecting, connected, closed, ending or ended",
			 optarg);
}

static int set_option(void *ctx, int opt)
{
	static const struct number pid = { "--pid", UNIT_COUNT, 1, INT32_MAX };
	struct options *o = ctx;

	switch (opt) {
	case 'P':
		return take_number(optarg, &pid, &o->pid);
	case 't':
		return set_type(o);
	case 's':
		return set_state(o);
	case 'd':
		o->device = optarg;
		return EXIT_GOOD;
	case 'T':
		o->tree = true;
		return EXIT_GOOD;
	case 'm':
		o->memory = true;
		return EXIT_GOOD;
	default:
		o->json = true;
		return EXIT_GOOD;
	}
}

int cmd_list(int argc, char **argv)
{
	static const struct option options[] = {
		{ "pid", required_argument, NULL, 'P' },
		{ "type", required_argument, NULL, 't' },
		{ "state", required_argument, NULL, 's' },
		{ "device", required_argument, NULL, 'd' },
		{ "tree", no_argument, NULL, 'T' },
		{ "memory", no_argument, NULL, 'm' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static const struct syntax syntax = {
		.options = options,
		.set = set_option,
		.usage = usage,
	};
	struct objects all = { .list = NULL };
	struct options o = { .pid = 0 };
	int ret = parse_options(argc, argv, &syntax, &o);

	if (ret >= 0)
		return ret;
	if (o.tree && o.json)
		return bad_usage("--tree and --json exclude each other");
	if (o.tree && o.memory)
		return bad_usage("--tree and --memory exclude each other");
	ret = take_all(&all, &o);
	if (ret == EXIT_GOOD && o.memory)
		ret = print_holders(&all, &o);
	else if (ret == EXIT_GOOD)
		print_all(&all, &o);
	free(all.list);
	return ret;
}
