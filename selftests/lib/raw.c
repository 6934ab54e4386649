// SPDX-License-Identifier: GPL-2.0-only
/* The raw ABI, and looks at what it leaves behind. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memreg_fixture.h"
#include "net.h"

static __thread __u32 last_reason, last_index;

int raw_call(int fd, unsigned long num, void *arg)
{
	int err;

	if (!ioctl(fd, num, arg))
		return 0;
	err = -errno;
	last_reason = ((struct raw_head *)arg)->out_reason;
	return err;
}

__u32 raw_reason(void)
{
	return last_reason;
}

__u32 raw_index(void)
{
	return last_index;
}

int raw_open(void)
{
	int fd = open(NODE, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int raw_bind_device(int fd, const char *name)
{
	RAW(device_bind, cmd);

	snprintf(cmd.name, sizeof(cmd.name), "%s", name);
	return raw_call(fd, IB_MEMREG_IOC_DEVICE_BIND, &cmd);
}

int raw_open_bound(void)
{
	int fd = raw_open();
	int ret;

	if (fd < 0)
		return fd;
	ret = raw_bind_device(fd, test_device());
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

static int open_peer_here(void *)
{
	const char *name = getenv("MEMREG_PEER_DEVICE") ?: "";
	int fd = raw_open();
	int ret;

	if (fd < 0)
		return fd;
	ret = raw_bind_device(fd, name);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

int raw_open_peer(void)
{
	return in_peer_netns(open_peer_here, NULL);
}

int raw_cap(int fd, __u32 cap, __u64 *value)
{
	struct ib_memreg_cap_entry caps[64];
	RAW(device_query, cmd, .count = ARRAY_LEN(caps),
	    .caps = (uintptr_t)caps);
	int ret = raw_call(fd, IB_MEMREG_IOC_DEVICE_QUERY, &cmd);
	__u32 i;

	for (i = 0; !ret && i < cmd.count && i < ARRAY_LEN(caps); i++) {
		if (caps[i].cap == cap) {
			*value = caps[i].value;
			return 0;
		}
	}
	return ret ?: -ENOENT;
}

int raw_stat(int fd, __u32 stat, __u64 *value)
{
	struct ib_memreg_stat_entry stats[64];
	RAW(device_stat, cmd, .count = ARRAY_LEN(stats),
	    .stats = (uintptr_t)stats);
	int ret = raw_call(fd, IB_MEMREG_IOC_DEVICE_STAT, &cmd);
	__u32 i;

	for (i = 0; !ret && i < cmd.count && i < ARRAY_LEN(stats); i++) {
		if (stats[i].stat == stat) {
			*value = stats[i].value;
			return 0;
		}
	}
	return ret ?: -ENOENT;
}

int raw_domain(int fd, __u32 *domain)
{
	RAW(domain_create, cmd);
	int ret = raw_call(fd, IB_MEMREG_IOC_DOMAIN_CREATE, &cmd);

	*domain = ret ? 0 : cmd.out_domain_id;
	return ret;
}

int raw_destroy(int fd, __u32 id)
{
	RAW(destroy, cmd, .id = id);

	return raw_call(fd, IB_MEMREG_IOC_DESTROY, &cmd);
}

int raw_register(int fd, __u32 domain, void *addr, size_t length, __u32 access,
		 __u32 *mr)
{
	RAW(mr_register, cmd, .domain_id = domain, .access = access,
	    .addr = (uintptr_t)addr, .length = length);
	int ret = raw_call(fd, IB_MEMREG_IOC_MR_REGISTER, &cmd);

	*mr = ret ? 0 : cmd.out_mr_id;
	return ret;
}

int raw_memory(int fd, size_t length, __u32 flags)
{
	RAW(memory_create, cmd, .length = length, .flags = flags,
	    .node = IB_MEMREG_NODE_DEVICE);

	return raw_call(fd, IB_MEMREG_IOC_MEMORY_CREATE, &cmd) ?: cmd.out_fd;
}

int status_create(int fd, __u32 slots, __u32 log_entries,
		  struct status_map *map)
{
	RAW(status_create, cmd, .slots = slots, .log_entries = log_entries);
	const char *at;
	int ret;

	ret = raw_call(fd, IB_MEMREG_IOC_STATUS_CREATE, &cmd);
	if (ret)
		return ret;
	at = mmap(NULL, cmd.out_size, PROT_READ, MAP_SHARED, cmd.out_fd, 0);
	if (at == MAP_FAILED) {
		close(cmd.out_fd);
		return -errno;
	}
	*map = (struct status_map) {
		.id = cmd.out_status_id,
		.fd = cmd.out_fd,
		.size = cmd.out_size,
		.head = (const void *)at,
	};
	map->slots = (const void *)(at + map->head->slots_offset);
	map->groups = (const void *)(at + map->head->groups_offset);
	return 0;
}

void status_unmap(struct status_map *map)
{
	munmap((void *)map->head, map->size);
	close(map->fd);
}

__u64 status_changes(const struct status_map *map)
{
	return __atomic_load_n(&map->head->changes, __ATOMIC_ACQUIRE);
}

__u64 status_generation(const struct status_map *map, __u32 slot)
{
	return __atomic_load_n(&map->slots[slot].generation,
			       __ATOMIC_ACQUIRE);
}

int raw_monitor(int fd, __u32 status, struct ib_memreg_monitor *monitors,
		__u32 count)
{
	RAW(monitor_create, cmd, .status_id = status, .count = count,
	    .monitors = (uintptr_t)monitors);
	int ret = raw_call(fd, IB_MEMREG_IOC_MONITOR_CREATE, &cmd);

	last_index = cmd.out_index;
	return ret;
}

int raw_unmonitor(int fd, const __u32 *ids, __u32 count)
{
	RAW(monitor_destroy, cmd, .count = count, .ids = (uintptr_t)ids);
	int ret = raw_call(fd, IB_MEMREG_IOC_MONITOR_DESTROY, &cmd);

	last_index = cmd.out_index;
	return ret;
}

int raw_memory_dup(int fd, int memory)
{
	RAW(memory_dup, cmd, .fd = memory);

	return raw_call(fd, IB_MEMREG_IOC_MEMORY_DUP, &cmd) ?: cmd.out_fd;
}

int raw_register_fd(int fd, __u32 domain, int memory, __u64 offset,
		    __u64 length, __u32 access,
		    struct ib_memreg_mr_register *mr)
{
	*mr = (struct ib_memreg_mr_register) {
		.size = sizeof(*mr),
		.flags = IB_MEMREG_MR_FD,
		.domain_id = domain,
		.access = access,
		.addr = offset,
		.length = length,
		.fd = memory,
	};
	return raw_call(fd, IB_MEMREG_IOC_MR_REGISTER, mr);
}

int raw_windows(int fd, __u32 domain, __u64 span, __u32 *ids, __u32 count)
{
	RAW(window_alloc, cmd, .domain_id = domain,
	    .type = IB_MEMREG_WINDOW_TYPE1, .count = count, .max_span = span,
	    .ids = (uintptr_t)ids);

	return raw_call(fd, IB_MEMREG_IOC_WINDOW_ALLOC, &cmd);
}

int raw_bind(int fd, __u32 domain, struct ib_memreg_bind *binds, __u32 count)
{
	RAW(window_bind, cmd, .domain_id = domain, .count = count,
	    .binds = (uintptr_t)binds);
	int ret = raw_call(fd, IB_MEMREG_IOC_WINDOW_BIND, &cmd);

	last_index = cmd.out_index;
	return ret;
}

static int revoke_with(int fd, __u32 domain, const __u32 *ids, __u32 count,
		       __u32 flags)
{
	RAW(window_revoke, cmd, .flags = flags, .domain_id = domain,
	    .count = count, .ids = (uintptr_t)ids);
	int ret = raw_call(fd, IB_MEMREG_IOC_WINDOW_REVOKE, &cmd);

	last_index = cmd.out_index;
	return ret;
}

int raw_revoke(int fd, __u32 domain, const __u32 *ids, __u32 count)
{
	return revoke_with(fd, domain, ids, count, 0);
}

int raw_revoke_relaxed(int fd, __u32 domain, const __u32 *ids, __u32 count)
{
	return revoke_with(fd, domain, ids, count, IB_MEMREG_REVOKE_RELAXED);
}

long vm_pin(pid_t pid)
{
	char path[64], line[256];
	long kib = -ESRCH;
	FILE *f;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/status", pid);
	else
		snprintf(path, sizeof(path), "/proc/self/status");
	f = fopen(path, "r");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPin: %ld kB", &kib) == 1)
			break;
	fclose(f);
	return kib < 0 ? kib : kib / 4;
}

/* LIST into as many entries as there are room for. */
static int state_fill(int fd, struct state *state, __u32 room)
{
	RAW(list, cmd, .object_size = sizeof(*state->objects));
	int ret;

	state->count = 0;
	do {
		cmd.count = room - state->count;
		cmd.objects = (uintptr_t)(state->objects + state->count);
		ret = raw_call(fd, IB_MEMREG_IOC_LIST, &cmd);
		if (ret)
			return ret;
		state->count += cmd.count;
		if (state->count == room)
			return -ENOSPC;
	} while (cmd.count);
	return 0;
}

int state_get(struct state *state)
{
	__u32 room = 256;
	int fd = raw_open();
	int ret = -ENOSPC;

	memset(state, 0, sizeof(*state));
	if (fd < 0)
		return fd;
	while (ret == -ENOSPC) {
		room *= 4;
		free(state->objects);
		state->objects = calloc(room, sizeof(*state->objects));
		ret = state->objects ? state_fill(fd, state, room) : -ENOMEM;
	}
	close(fd);
	state->pinned = vm_pin(0);
	return ret;
}

void state_free(struct state *state)
{
	free(state->objects);
	state->objects = NULL;
}

static void object_tell(const char *when, const struct ib_memreg_object *o)
{
	size_t i;

	fprintf(stderr, "# %s: type %u id %u users %u domain %u:", when,
		o->type, o->id, o->users, o->domain_id);
	for (i = 0; i < ARRAY_LEN(o->u.reserved); i++)
		fprintf(stderr, " %#llx",
			(unsigned long long)o->u.reserved[i]);
	fputc('\n', stderr);
}

/*
 * The state of a connection is in its peer's hands as well, and how often a
 * domain's queue was rebuilt is not a part of the domain's state.
 */
static bool object_same(const struct ib_memreg_object *a,
			const struct ib_memreg_object *b)
{
	struct ib_memreg_object as_b = *a;

	if (a->type == IB_MEMREG_OBJECT_ENDPOINT)
		as_b.u.endpoint.state = b->u.endpoint.state;
	if (a->type == IB_MEMREG_OBJECT_DOMAIN)
		as_b.u.domain.rebuilds = b->u.domain.rebuilds;
	return !memcmp(&as_b, b, sizeof(as_b));
}

/* The first object that differs, or how many there are. */
static __u32 state_differs(const struct state *a, const struct state *b)
{
	__u32 i;

	for (i = 0; i < a->count && i < b->count; i++)
		if (!object_same(&a->objects[i], &b->objects[i]))
			break;
	return i;
}

/* Print the first difference. */
static void state_print(const struct state *before, const struct state *now)
{
	__u32 i = state_differs(before, now);

	fprintf(stderr, "# pinned %ld, %u objects; before %ld, %u objects\n",
		now->pinned, now->count, before->pinned, before->count);
	if (i < before->count)
		object_tell("before", &before->objects[i]);
	if (i < now->count)
		object_tell("now", &now->objects[i]);
}

static bool state_equal(const struct state *before, bool print)
{
	struct state now;
	bool same;
	int ret = state_get(&now);

	if (ret) {
		fprintf(stderr, "# LIST fails with %d\n", ret);
		state_free(&now);
		return false;
	}
	same = now.pinned == before->pinned && now.count == before->count &&
	       state_differs(before, &now) == now.count;
	if (!same && print)
		state_print(before, &now);
	state_free(&now);
	return same;
}

/*
 * Is everything as it was? Workers of the kernel may be at work on objects for
 * a moment, which LIST counts as users. Prints what is not, or was not before.
 */
bool state_same(const struct state *before)
{
	int i;

	if (state_equal(before, true))
		return true;
	for (i = 0; i < 6000; i++) {
		if (state_equal(before, false)) {
			fprintf(stderr, "# it is now\n");
			return true;
		}
		poll(NULL, 0, 10);
	}
	return false;
}

long state_rebuilds(__u32 domain)
{
	struct state now;
	long n = -1;
	__u32 i;

	if (!state_get(&now))
		for (i = 0; i < now.count; i++)
			if (now.objects[i].type == IB_MEMREG_OBJECT_DOMAIN &&
			    now.objects[i].id == domain)
				n = now.objects[i].u.domain.rebuilds;
	state_free(&now);
	return n;
}

__u32 state_count(int type)
{
	struct state now;
	__u32 i, n = 0;

	if (!state_get(&now))
		for (i = 0; i < now.count; i++)
			n += (int)now.objects[i].type == type;
	state_free(&now);
	return n;
}
