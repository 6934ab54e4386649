// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Status tables, and watches: ranges of memory that have a slot there */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

/**
 * struct memreg_status - A status table
 * @m: The handle
 * @id: Its id
 * @fd: Its descriptor
 * @size: Bytes that are mapped
 * @table: The mapped table
 */
struct memreg_status {
	struct memreg *m;
	uint32_t id;
	int fd;
	size_t size;
	const struct ib_memreg_status_table *table;
};

static const struct ib_memreg_status_slot *
slot_of(const struct memreg_status *status, uint32_t slot)
{
	const char *at = (const char *)status->table +
			 status->table->slots_offset;

	return (const struct ib_memreg_status_slot *)at + slot;
}

uint32_t memreg__status_id(const struct memreg_status *status)
{
	return status->id;
}

void memreg__watch_slot(const struct memreg_status *status, uint32_t slot,
			uint64_t generation, struct memreg_watch *watch)
{
	watch->generation_now = &slot_of(status, slot)->generation;
	watch->generation = generation;
	watch->slot = slot;
}

uint64_t memreg__status_group(const struct memreg_status *status,
			      uint32_t group)
{
	const char *at = (const char *)status->table +
			 status->table->groups_offset;

	return __atomic_load_n((const uint64_t *)(const void *)at + group,
			       __ATOMIC_ACQUIRE);
}

static int map_table(struct memreg_status *status)
{
	/* Readers must not take page faults. */
	void *at = mmap(NULL, status->size, PROT_READ,
			MAP_SHARED | MAP_POPULATE, status->fd, 0);

	if (at == MAP_FAILED)
		return memreg__fail("status_create", -errno,
				    "the table can't be mapped");
	status->table = at;
	return 0;
}

static int make_table(struct memreg_status *status, uint32_t slots,
		      uint32_t log_entries)
{
	struct ib_memreg_status_create arg = {
		.size = sizeof(arg),
		.slots = slots,
		.log_entries = log_entries,
	};
	struct ib_memreg_destroy undo = { .size = sizeof(undo) };
	int ret;

	ret = memreg__call(status->m->fd, IB_MEMREG_IOC_STATUS_CREATE, &arg,
			   "status_create");
	if (ret)
		return ret;
	status->id = arg.out_status_id;
	status->fd = arg.out_fd;
	status->size = arg.out_size;
	ret = map_table(status);
	if (!ret)
		return 0;
	close(status->fd);
	undo.id = status->id;
	memreg__undo(status->m->fd, IB_MEMREG_IOC_DESTROY, &undo);
	return ret;
}

EXPORT int memreg_status_create(struct memreg *m, uint32_t slots,
				uint32_t log_entries,
				struct memreg_status **out)
{
	struct memreg_status *status = malloc(sizeof(*status));
	int ret;

	if (!status)
		return memreg__fail_code("status_create", -ENOMEM, 0);
	status->m = m;
	ret = make_table(status, slots, log_entries);
	if (ret) {
		free(status);
		return ret;
	}
	*out = status;
	return 0;
}

bool memreg__status_is_dead(const struct memreg_status *status)
{
	return __atomic_load_n(&status->table->state, __ATOMIC_ACQUIRE) ==
	       IB_MEMREG_STATUS_DEAD;
}

/*
 * Does a descriptor lead to a table that is dead? If the program has closed the
 * descriptor of a table, its number may be that of another file by now.
 */
static bool leads_to_dead_table(int fd)
{
	struct pollfd pfd = { .fd = fd };
	char path[32], link[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link) - 1);
	link[n < 0 ? 0 : n] = 0;
	return !strcmp(link, "anon_inode:[memreg-status]") &&
	       poll(&pfd, 1, 0) == 1 && pfd.revents & POLLHUP;
}

/* Destroy a table that is not dead. In a child it belongs to the parent. */
static int destroy_table(struct memreg_status *status)
{
	struct ib_memreg_destroy arg = { .size = sizeof(arg) };
	int ret;

	if (!status->table->version)
		return 0;
	arg.id = status->id;
	ret = memreg__call(status->m->fd, IB_MEMREG_IOC_DESTROY, &arg,
			   "status_destroy");
	/* If the device was removed, so was the table. */
	if (!ret || ret == -ENODEV || ret == -ENOENT)
		return 0;
	return memreg__about_id(ret, "status table", status->id);
}

EXPORT int memreg_status_destroy(struct memreg_status *status)
{
	bool is_ours = true;
	int ret;

	if (!status)
		return 0;
	if (memreg__status_is_dead(status)) {
		is_ours = leads_to_dead_table(status->fd);
	} else {
		ret = destroy_table(status);
		if (ret)
			return ret;
	}
	munmap((void *)(uintptr_t)status->table, status->size);
	if (is_ours)
		close(status->fd);
	free(status);
	return 0;
}

EXPORT int memreg_status_fd(const struct memreg_status *status)
{
	return status->fd;
}

EXPORT uint64_t memreg_status_changes(const struct memreg_status *status)
{
	return __atomic_load_n(&status->table->changes, __ATOMIC_ACQUIRE);
}

static uint64_t counter(const __u64 *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

EXPORT void memreg_status_query(const struct memreg_status *status,
				struct memreg_status_info *info)
{
	const struct ib_memreg_status_table *table = status->table;

	*info = (struct memreg_status_info) {
		.state = __atomic_load_n(&table->state, __ATOMIC_RELAXED),
		.slots = table->slots,
		.changes = counter(&table->changes),
		.logged = counter(&table->log_head),
		.events = counter(&table->events),
		.suspects = counter(&table->suspects),
		.unchanged = counter(&table->unchanged),
	};
}

/*
 * Watches
 */

static int watch_some(struct memreg_status *status,
		      const struct memreg_range *ranges, unsigned int count,
		      struct memreg_watch *watches)
{
	struct ib_memreg_monitor monitors[IB_MEMREG_BATCH_MAX];
	struct ib_memreg_monitor_create arg = {
		.size = sizeof(arg),
		.status_id = status->id,
		.count = count,
		.monitors = to_u64(monitors),
	};
	unsigned int i;
	int ret;

	for (i = 0; i < count; i++)
		monitors[i] = (struct ib_memreg_monitor) {
			.addr = to_u64(ranges[i].addr),
			.length = ranges[i].length,
			.access = ranges[i].access &
				  IB_MEMREG_ACCESS_LOCAL_WRITE,
			.flags = ranges[i].flags,
		};
	ret = memreg__call(status->m->fd, IB_MEMREG_IOC_MONITOR_CREATE, &arg,
			   "watch");
	for (i = 0; i < count && !ret; i++) {
		watches[i].id = monitors[i].out_monitor_id;
		memreg__watch_slot(status, monitors[i].out_slot,
				   monitors[i].out_generation, &watches[i]);
	}
	return ret;
}

static int unwatch_some(struct memreg_status *status,
			const struct memreg_watch *watches, unsigned int count)
{
	uint32_t ids[IB_MEMREG_BATCH_MAX];
	struct ib_memreg_monitor_destroy arg = {
		.size = sizeof(arg),
		.count = count,
		.ids = to_u64(ids),
	};
	unsigned int i;
	int ret;

	for (i = 0; i < count; i++)
		ids[i] = watches[i].id;
	ret = memreg__call(status->m->fd, IB_MEMREG_IOC_MONITOR_DESTROY, &arg,
			   "unwatch");
	if (ret == -ENOENT && arg.out_index < count)
		return memreg__about_id(ret, "monitor", ids[arg.out_index]);
	return ret;
}

static unsigned int batch_of(unsigned int left)
{
	return left < IB_MEMREG_BATCH_MAX ? left : IB_MEMREG_BATCH_MAX;
}

EXPORT int memreg_watch_dmabuf(struct memreg_status *status, int fd,
			       struct memreg_watch *watch)
{
	struct memreg_range range = {
		.addr = (void *)(uintptr_t)(unsigned int)fd,
		.flags = IB_MEMREG_MONITOR_DMABUF,
	};

	return watch_some(status, &range, 1, watch);
}

EXPORT int memreg_watch(struct memreg_status *status,
			const struct memreg_range *ranges, unsigned int count,
			struct memreg_watch *watches)
{
	unsigned int done, n;
	int ret;

	if (!count)
		return memreg__fail_code("watch", -EINVAL,
					 IB_MEMREG_REASON_COUNT);
	for (done = 0; done < count; done += n) {
		n = batch_of(count - done);
		ret = watch_some(status, ranges + done, n, watches + done);
		if (ret)
			goto undo;
	}
	return 0;
undo:
	/* destroy complete batches, which the caller does not know yet */
	for (; done; done -= IB_MEMREG_BATCH_MAX) {
		struct memreg_watch *last = watches + done -
					    IB_MEMREG_BATCH_MAX;
		uint32_t ids[IB_MEMREG_BATCH_MAX];
		struct ib_memreg_monitor_destroy arg = {
			.size = sizeof(arg),
			.count = IB_MEMREG_BATCH_MAX,
			.ids = to_u64(ids),
		};

		for (n = 0; n < IB_MEMREG_BATCH_MAX; n++)
			ids[n] = last[n].id;
		memreg__undo(status->m->fd, IB_MEMREG_IOC_MONITOR_DESTROY,
			     &arg);
	}
	return ret;
}

EXPORT int memreg_unwatch(struct memreg_status *status,
			  const struct memreg_watch *watches,
			  unsigned int count)
{
	unsigned int done, n;
	int ret;

	for (done = 0; done < count; done += n) {
		n = batch_of(count - done);
		ret = unwatch_some(status, watches + done, n);
		if (ret)
			return ret;
	}
	return 0;
}

/*
 * The log
 */

EXPORT int memreg_status_log(const struct memreg_status *status,
			     uint64_t *position,
			     struct ib_memreg_change *changes,
			     unsigned int *count)
{
	const struct ib_memreg_status_table *table = status->table;
	const struct ib_memreg_change *log = (const void *)
		((const char *)table + table->log_offset);
	uint64_t head = __atomic_load_n(&table->log_head, __ATOMIC_ACQUIRE);
	unsigned int i, n;

	if (!table->log_entries)
		return memreg__fail_code("status_log", -EINVAL,
					 IB_MEMREG_REASON_LOG);
	n = head - *position < *count ? (unsigned int)(head - *position) :
					*count;
	for (i = 0; i < n; i++) {
		const struct ib_memreg_change *change =
			&log[(*position + i) & (table->log_entries - 1)];

		changes[i].start = __atomic_load_n(&change->start,
						   __ATOMIC_RELAXED);
		changes[i].end = __atomic_load_n(&change->end,
						 __ATOMIC_RELAXED);
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	head = __atomic_load_n(&table->log_head, __ATOMIC_RELAXED);
	/* The one that would come next may be being written. */
	if (head - *position >= table->log_entries) {
		*position = head;
		return -EOVERFLOW;
	}
	*position += n;
	*count = n;
	return 0;
}
