// SPDX-License-Identifier: GPL-2.0-only
/* A snapshot of all objects, from LIST, and of pinned pages. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raw.h"
#include "state.h"
#include "test.h"

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

/* Call LIST with room for so many entries. */
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
 * Compare two objects, except the state of a connection, which its peer can
 * change, and what is counted of a domain or an MR.
 */
static bool object_same(const struct ib_memreg_object *a,
			const struct ib_memreg_object *b)
{
	struct ib_memreg_object as_b = *a;

	if (a->type == IB_MEMREG_OBJECT_ENDPOINT)
		as_b.u.endpoint.state = b->u.endpoint.state;
	if (a->type == IB_MEMREG_OBJECT_DOMAIN)
		as_b.u.domain.rebuilds = b->u.domain.rebuilds;
	if (a->type == IB_MEMREG_OBJECT_MR)
		as_b.u.mr.demand = b->u.mr.demand;
	return !memcmp(&as_b, b, sizeof(as_b));
}

/*
 * Index of the first object that differs, or the number of objects if none does
 */
static __u32 state_differs(const struct state *a, const struct state *b)
{
	__u32 i;

	for (i = 0; i < a->count && i < b->count; i++)
		if (!object_same(&a->objects[i], &b->objects[i]))
			break;
	return i;
}

/* Print what guards have seen, as an MR may have become stale. */
static void guards_print(void)
{
	int fd = raw_open_bound();
	__u64 value;
	__u32 i;

	if (fd < 0)
		return;
	fprintf(stderr, "# counters of guards, from IB_MEMREG_STAT_GUARD_EVENTS:");
	for (i = IB_MEMREG_STAT_GUARD_EVENTS; i <= IB_MEMREG_STAT_GUARD_KILLS;
	     i++)
		if (!raw_stat(fd, i, &value))
			fprintf(stderr, " %llu", (unsigned long long)value);
	fprintf(stderr, "\n");
	close(fd);
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
	guards_print();
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
 * Are all objects and pinned pages the same as before? Kernel workers may use
 * objects for a moment, which LIST counts as users, so this retries. Prints the
 * differences.
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

int state_users(__u32 mr)
{
	struct state now;
	int ret = state_get(&now);
	int users = -ENOENT;
	__u32 i;

	for (i = 0; !ret && i < now.count; i++)
		if (now.objects[i].type == IB_MEMREG_OBJECT_MR &&
		    now.objects[i].id == mr)
			users = (users > 0 ? users : 0) + now.objects[i].users;
	state_free(&now);
	return ret ?: users;
}
