// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Handles: open, bind to a device, query, destroy objects, close */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "internal.h"

#define STR_(x) #x
#define STR(x) STR_(x)

EXPORT const char *memreg_version(void)
{
	return STR(MEMREG_VERSION_MAJOR) "." STR(MEMREG_VERSION_MINOR) "."
	       STR(MEMREG_VERSION_PATCH);
}

/* Common beginning of all arguments */
struct call {
	__u32 size;
	__u32 out_reason;
};

int memreg__call(int fd, unsigned long request, void *arg, const char *what)
{
	const struct call *call = arg;

	if (!ioctl(fd, request, arg))
		return 0;
	return memreg__fail_code(what, -errno, call->out_reason);
}

void memreg__undo(int fd, unsigned long request, void *arg)
{
	/* nobody else knows of the object, so it has no users */
	(void)ioctl(fd, request, arg);
}

static int fail_open(const char *what, int err)
{
	switch (-err) {
	case ENOENT:
	case ENXIO:
	case ENODEV:
		return memreg__fail(what, -ENOENT, MEMREG_DEVICE_PATH
				    " is not there: the module is not loaded; load it with `memreg load`");
	case EACCES:
	case EPERM:
		return memreg__fail(what, -EACCES, "no permission to open "
				    MEMREG_DEVICE_PATH
				    ", which must be readable and writable");
	default:
		return memreg__fail_code(what, err, IB_MEMREG_REASON_NONE);
	}
}

/*
 * O_NONBLOCK, since between poll() and read() another thread may take the
 * event that poll() saw.
 */
int memreg__open_node(const char *what)
{
	int fd = open(MEMREG_DEVICE_PATH, O_RDWR | O_CLOEXEC | O_NONBLOCK);

	return fd < 0 ? fail_open(what, -errno) : fd;
}

static int bind_device(int fd, const char *device)
{
	struct ib_memreg_device_bind arg = { .size = sizeof(arg) };
	int ret;

	if (device && strlen(device) >= sizeof(arg.name)) {
		ret = memreg__fail("open", -EINVAL,
				   "names of devices have 63 bytes at most");
		return memreg__about_device(ret, device);
	}
	if (device)
		strcpy(arg.name, device);
	ret = memreg__call(fd, IB_MEMREG_IOC_DEVICE_BIND, &arg, "open");
	return memreg__about_device(ret, device);
}

EXPORT int memreg_open(const char *device, struct memreg **out)
{
	struct memreg *m = malloc(sizeof(*m));
	int ret;

	if (!m)
		return memreg__fail_code("open", -ENOMEM, 0);
	m->fd = memreg__open_node("open");
	if (m->fd < 0) {
		ret = m->fd;
		goto free_handle;
	}
	ret = bind_device(m->fd, device);
	if (ret)
		goto close_node;
	*out = m;
	return 0;

close_node:
	close(m->fd);
free_handle:
	free(m);
	return ret;
}

EXPORT int memreg_open_unbound(struct memreg **out)
{
	struct memreg *m = malloc(sizeof(*m));
	int fd;

	if (!m)
		return memreg__fail_code("open_unbound", -ENOMEM, 0);
	fd = memreg__open_node("open_unbound");
	if (fd < 0) {
		free(m);
		return fd;
	}
	m->fd = fd;
	*out = m;
	return 0;
}

/* As memreg__open_node() opens it */
static int set_flags(int fd)
{
	int flags = fcntl(fd, F_GETFL), of_fd = fcntl(fd, F_GETFD);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    of_fd < 0 || fcntl(fd, F_SETFD, of_fd | FD_CLOEXEC) < 0)
		return memreg__fail_code("open_fd", -errno, 0);
	return 0;
}

EXPORT int memreg_open_fd(int fd, struct memreg **out)
{
	struct ib_memreg_device_query arg = { .size = sizeof(arg) };
	struct memreg *m;
	int ret;

	ret = memreg__call(fd, IB_MEMREG_IOC_DEVICE_QUERY, &arg, "open_fd");
	if (ret)
		return ret;
	m = malloc(sizeof(*m));
	if (!m)
		return memreg__fail_code("open_fd", -ENOMEM, 0);
	/* last, since it changes the caller's descriptor */
	ret = set_flags(fd);
	if (ret) {
		free(m);
		return ret;
	}
	m->fd = fd;
	*out = m;
	return 0;
}

EXPORT void memreg_close(struct memreg *m)
{
	if (!m)
		return;
	close(m->fd);
	free(m);
}

EXPORT int memreg_fd(const struct memreg *m)
{
	return m->fd;
}

EXPORT int memreg_query_device(struct memreg *m, struct memreg_device *device)
{
	struct ib_memreg_device_query arg = { .size = sizeof(arg) };
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_DEVICE_QUERY, &arg, "query");
	if (ret)
		return ret;
	device->index = arg.out_index;
	device->ports = arg.out_ports;
	memcpy(device->name, arg.out_name, sizeof(device->name));
	device->name[sizeof(device->name) - 1] = '\0';
	return 0;
}

EXPORT int memreg_query_caps(struct memreg *m, struct ib_memreg_cap_entry *caps,
			     unsigned int *count)
{
	struct ib_memreg_device_query arg = {
		.size = sizeof(arg),
		.count = *count,
		.caps = to_u64(caps),
	};
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_DEVICE_QUERY, &arg, "query");
	if (!ret)
		*count = arg.count;
	return ret;
}

EXPORT int memreg_stat(struct memreg *m, struct ib_memreg_stat_entry *stats,
		       unsigned int *count)
{
	struct ib_memreg_device_stat arg = {
		.size = sizeof(arg),
		.count = *count,
		.stats = to_u64(stats),
	};
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_DEVICE_STAT, &arg, "stat");
	if (!ret)
		*count = arg.count;
	return ret;
}

static bool find_cap(const struct ib_memreg_cap_entry *caps,
		     unsigned int count, uint32_t cap, uint64_t *value)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		if (caps[i].cap != cap)
			continue;
		*value = caps[i].value;
		return true;
	}
	return false;
}

bool memreg__has_cap(struct memreg *m, uint32_t cap, uint64_t *value)
{
	struct ib_memreg_cap_entry caps[64];
	struct ib_memreg_device_query arg = {
		.size = sizeof(arg),
		.count = 64,
		.caps = to_u64(caps),
	};

	return !ioctl(m->fd, IB_MEMREG_IOC_DEVICE_QUERY, &arg) &&
	       find_cap(caps, arg.count < 64 ? arg.count : 64, cap, value);
}

EXPORT int memreg_query_cap(struct memreg *m, uint32_t cap, uint64_t *value)
{
	struct ib_memreg_cap_entry caps[64];
	unsigned int count = 64;
	int ret;

	ret = memreg_query_caps(m, caps, &count);
	if (ret)
		return ret;
	if (find_cap(caps, count < 64 ? count : 64, cap, value))
		return 0;
	ret = memreg__fail("query", -EOPNOTSUPP,
			   "the running module doesn't know this capability");
	return memreg__about_number(ret, "number", cap);
}

static int destroy(struct memreg *m, uint32_t id, const char *what,
		   const char *noun)
{
	struct ib_memreg_destroy arg = { .size = sizeof(arg), .id = id };
	int ret = memreg__call(m->fd, IB_MEMREG_IOC_DESTROY, &arg, what);

	return memreg__about_id(ret, noun, id);
}

EXPORT int memreg_destroy(struct memreg *m, uint32_t id)
{
	return destroy(m, id, "destroy", "object");
}

EXPORT int memreg_domain_destroy(struct memreg *m, uint32_t domain)
{
	return destroy(m, domain, "domain_destroy", "domain");
}

EXPORT int memreg_mr_deregister(struct memreg *m, uint32_t mr)
{
	return destroy(m, mr, "mr_deregister", "MR");
}

EXPORT int memreg_window_free(struct memreg *m, uint32_t window)
{
	return destroy(m, window, "window_free", "window");
}

EXPORT int memreg_export_destroy(struct memreg *m, uint32_t export)
{
	return destroy(m, export, "export_destroy", "export");
}

EXPORT int memreg_lease_destroy(struct memreg *m, uint32_t lease)
{
	return destroy(m, lease, "lease_destroy", "lease");
}
