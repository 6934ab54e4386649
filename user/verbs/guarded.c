// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Guarding a registration: the pages are pinned by an MR of memreg, which is
 * exported, and the export is registered in the program's protection domain, if
 * the driver of the device can let go of it. When the mapping goes, the kernel
 * ends the export, and with it the program's keys.
 *
 * There is one handle of memreg for each device. It is opened by the first
 * registration and stays open until the process ends, since its domain has a
 * queue pair.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "changes.h"
#include "guarded.h"

/* Registrations of a device that are guarded or watched; others are neither. */
#define SLOTS	65536

/**
 * struct device - The handle of a device
 * @name: Name of the device
 * @next: Next one of the list
 * @m: The handle; NULL if there is none, or it is lost
 * @status: Status table, of watches and exports
 * @domain: Domain of the MRs; 0 before the first one
 * @imports: The driver can import exports
 */
struct device {
	char name[IBV_SYSFS_NAME_MAX];
	struct device *next;
	struct memreg *m;
	struct memreg_status *status;
	uint32_t domain;
	bool imports;
};

static struct device *devices;

/*
 * Was the file closed, or the device removed? The number of the descriptor may
 * be that of another file by now.
 */
static bool is_dead(const struct device *d)
{
	struct memreg_status_info info;

	if (!__atomic_load_n(&d->m, __ATOMIC_ACQUIRE))
		return false;
	memreg_status_query(d->status, &info);
	return info.state == IB_MEMREG_STATUS_DEAD;
}

static struct memreg *handle_of(const struct device *d)
{
	return d && !is_dead(d) ? __atomic_load_n(&d->m, __ATOMIC_ACQUIRE) :
				  NULL;
}

/*
 * Devices
 */

static int open_handle(struct device *d)
{
	uint64_t imports = 0;

	if (memreg_open(d->name, &d->m)) {
		say(d->name, memreg_reason());
		return memreg_open_unbound(&d->m);
	}
	memreg_query_cap(d->m, IB_MEMREG_CAP_EXPORT_REGISTER, &imports);
	d->imports = imports;
	if (!imports)
		say(d->name, "its driver imports no dma-bufs that can be revoked");
	return 0;
}

static void open_device(struct device *d)
{
	if (open_handle(d))
		return;
	if (!memreg_status_create(d->m, SLOTS, 0, &d->status))
		return;
	say(d->name, memreg_reason());
	memreg_close(d->m);
	d->m = NULL;
}

/* The device of a context, without a handle if that can't be had; or NULL */
static struct device *device_of(const struct ibv_context *context)
{
	const char *name = context->device->name;
	struct device *d;

	pthread_mutex_lock(&verbs_lock);
	for (d = devices; d; d = d->next)
		if (!strcmp(d->name, name) && !is_dead(d))
			break;
	if (!d)
		d = calloc(1, sizeof(*d));
	if (d && !d->name[0]) {
		memcpy(d->name, name, sizeof(d->name));
		open_device(d);
		d->next = devices;
		devices = d;
	}
	pthread_mutex_unlock(&verbs_lock);
	return d;
}

/*
 * Unlink a device whose handle is of no use any more: the device was removed,
 * or the program has closed descriptors that it did not open. The next
 * registration opens another. Nothing is closed, as other threads may be using
 * it.
 */
static void lose_device(struct device *d)
{
	struct device **at = &devices;

	pthread_mutex_lock(&verbs_lock);
	while (*at && *at != d)
		at = &(*at)->next;
	if (*at)
		*at = d->next;
	__atomic_store_n(&d->m, NULL, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&verbs_lock);
}

static bool is_lost(int err)
{
	return err == -EBADF || err == -ENOTTY || err == -ENODEV;
}

static int fail(struct device *d, int err)
{
	if (is_lost(err))
		lose_device(d);
	else if (err != -EINTR)
		say(d->name, memreg_reason());
	return err;
}

static int have_domain(struct device *d, struct memreg *m, uint32_t *domain)
{
	int ret = 0;

	pthread_mutex_lock(&verbs_lock);
	if (!d->domain)
		ret = memreg_domain_create(m, 0, &d->domain);
	*domain = d->domain;
	pthread_mutex_unlock(&verbs_lock);
	return ret;
}

void guard_forget_all(void)
{
	struct changes changes;
	struct device *d;

	for (d = devices; d; d = d->next) {
		changes = (struct changes) {
			.m = d->m,
			.status = d->status,
		};
		changes_close_in_child(&changes);
		d->m = NULL;
	}
	devices = NULL;
}

/*
 * Guards
 */

/* Pin the pages that the memory is in, and export them. */
static int pin(struct guard *g, struct memreg *m, const struct request *r,
	       size_t offset, struct memreg_export *export)
{
	size_t mask = (size_t)sysconf(_SC_PAGESIZE) - 1;
	size_t length = (offset + r->length + mask) & ~mask;
	struct memreg_mr mr;
	uint32_t domain;
	int ret;

	ret = have_domain(g->device, m, &domain);
	if (!ret)
		ret = memreg_mr_register(m, domain, (char *)r->addr - offset,
					 length, IB_MEMREG_ACCESS_LOCAL_WRITE,
					 0, &mr);
	if (ret)
		return fail(g->device, ret);
	ret = memreg_export_watched(m, mr.id, 0, length, g->device->status,
				    export, &g->watch);
	if (ret) {
		fail(g->device, ret);
		memreg_mr_deregister(m, mr.id);
		return ret;
	}
	g->memory = mr.id;
	g->export = export->id;
	return 0;
}

static int try_guard(struct guard *guard, const struct request *r,
		     typeof(ibv_reg_dmabuf_mr) *reg_dmabuf)
{
	size_t offset = (uintptr_t)r->addr % (size_t)sysconf(_SC_PAGESIZE);
	struct device *d = device_of(r->pd->context);
	struct memreg *m = handle_of(d);
	struct memreg_export export;
	int ret;

	if (!m || !d->imports)
		return d ? -EOPNOTSUPP : -ENOMEM;
	memset(guard, 0, sizeof(*guard));
	guard->device = d;
	ret = pin(guard, m, r, offset, &export);
	if (ret)
		return ret;
	ret = memreg__export_register(reg_dmabuf, r->pd, export.fd, offset,
				      r->length, r->iova, (int)r->access,
				      &guard->verbs);
	close(export.fd);
	if (ret) {
		say(d->name, strerror(-ret));
		guard_end(guard);
	}
	return ret;
}

/* If the handle is lost, try again with another. */
int guard_make(struct guard *guard, const struct request *r,
	       typeof(ibv_reg_dmabuf_mr) *reg_dmabuf)
{
	int ret = try_guard(guard, r, reg_dmabuf);

	return is_lost(ret) || ret == -EINTR ?
		try_guard(guard, r, reg_dmabuf) : ret;
}

int guard_watch(struct guard *guard, const struct request *r)
{
	struct memreg_range range = {
		.addr = r->addr,
		.length = r->length,
		.access = r->access & IB_MEMREG_ACCESS_LOCAL_WRITE,
	};
	struct device *d = device_of(r->pd->context);
	int ret;

	if (!handle_of(d))
		return -ENODEV;
	memset(guard, 0, sizeof(*guard));
	ret = memreg_watch(d->status, &range, 1, &guard->watch);
	if (ret)
		return fail(d, ret);
	guard->device = d;
	return 0;
}

bool guard_is_stale(const struct guard *guard)
{
	return handle_of(guard->device) && !memreg_watch_ok(&guard->watch);
}

/* What an importer still has stays until the process ends. */
void guard_end(struct guard *guard)
{
	struct memreg *m = handle_of(guard->device);

	if (m && guard->export) {
		memreg_export_destroy(m, guard->export);
		memreg_mr_deregister(m, guard->memory);
	} else if (m) {
		memreg_unwatch(guard->device->status, &guard->watch, 1);
	}
	guard->device = NULL;
}
