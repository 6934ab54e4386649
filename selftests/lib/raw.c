// SPDX-License-Identifier: GPL-2.0-only
/* The raw ABI. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net.h"
#include "raw.h"
#include "test.h"

static __thread unsigned long last_num;
static __thread __u32 last_reason, last_index, last_taken;

int raw_call(int fd, unsigned long num, void *arg)
{
	int err;

	last_num = num;
	if (!ioctl(fd, num, arg))
		return 0;
	err = -errno;
	last_reason = ((struct raw_head *)arg)->out_reason;
	return err;
}

unsigned long raw_last(void)
{
	return last_num;
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

int raw_domain_objects(void)
{
	int fd = raw_open_bound();
	__u64 strict = 0;

	raw_cap(fd, IB_MEMREG_CAP_STRICT_INVALIDATE, &strict);
	close(fd);
	return strict ? 3 : 4;
}

__u32 raw_runs(int fd, __u32 domain, __u32 mr, __u64 length)
{
	struct ib_memreg_piece piece = { .mr_id = mr, .length = length };
	RAW(mr_compose, cmd, .domain_id = domain, .count = 1,
	    .pieces = (uintptr_t)&piece);

	if (raw_call(fd, IB_MEMREG_IOC_MR_COMPOSE, &cmd) ||
	    raw_destroy(fd, cmd.out_mr_id))
		return 0;
	return cmd.out_entries;
}

int raw_stat(int fd, __u32 stat, __u64 *value)
{
	struct ib_memreg_stat_entry stats[128];
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

/* Export a part of an MR. Returns the descriptor, or -errno. */
int raw_export(int fd, __u32 mr, __u64 offset, __u64 length, __u32 *id)
{
	return raw_export_leased(fd, mr, offset, length, 0, id);
}

int raw_export_leased(int fd, __u32 mr, __u64 offset, __u64 length,
		      __u32 lease, __u32 *id)
{
	RAW(export_create, cmd, .mr_id = mr, .offset = offset,
	    .length = length, .lease_id = lease);
	int ret = raw_call(fd, IB_MEMREG_IOC_EXPORT_CREATE, &cmd);

	*id = cmd.out_export_id;
	return ret ?: cmd.out_fd;
}

int raw_unexport(int fd, const __u32 *ids, __u32 count)
{
	RAW(export_revoke, cmd, .count = count, .ids = (uintptr_t)ids);
	int ret = raw_call(fd, IB_MEMREG_IOC_EXPORT_REVOKE, &cmd);

	last_index = cmd.out_index;
	return ret;
}

int raw_lease(int fd, __u64 deadline, __u32 *id)
{
	RAW(lease_create, cmd, .deadline = deadline);
	int ret = raw_call(fd, IB_MEMREG_IOC_LEASE_CREATE, &cmd);

	*id = cmd.out_lease_id;
	return ret;
}

int raw_renew_all(int fd, const struct ib_memreg_renewal *renewals,
		  __u32 count)
{
	RAW(lease_renew, cmd, .count = count,
	    .renewals = (uintptr_t)renewals);
	int ret = raw_call(fd, IB_MEMREG_IOC_LEASE_RENEW, &cmd);

	last_index = cmd.out_index;
	return ret;
}

int raw_renew(int fd, __u32 lease, __u64 deadline)
{
	const struct ib_memreg_renewal renewal = {
		.lease_id = lease,
		.deadline = deadline,
	};

	return raw_renew_all(fd, &renewal, 1);
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

int raw_mr_state(int fd, __u32 mr)
{
	RAW(mr_query, cmd, .mr_id = mr);
	int ret = raw_call(fd, IB_MEMREG_IOC_MR_QUERY, &cmd);

	return ret ?: (int)cmd.out_state;
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

/*
 * Connections and work
 */

int raw_submit(int fd, struct ib_memreg_wr *wrs, __u32 count)
{
	RAW(submit, cmd, .count = count, .wrs = (uintptr_t)wrs,
	    .out_taken = ~0U);
	int ret = raw_call(fd, IB_MEMREG_IOC_SUBMIT, &cmd);

	last_taken = cmd.out_taken;
	return ret;
}

__u32 raw_taken(void)
{
	return last_taken;
}

int raw_srq(int fd, __u32 domain, __u32 ring, __u32 max_recv, __u32 sges,
	    __u32 flags, __u32 *srq)
{
	RAW(srq_create, cmd, .flags = flags, .domain_id = domain,
	    .ring_id = ring, .max_recv = max_recv, .max_recv_sge = sges);
	int ret = raw_call(fd, IB_MEMREG_IOC_SRQ_CREATE, &cmd);

	*srq = ret ? 0 : cmd.out_srq_id;
	return ret;
}

int raw_setup(int fd, __u32 endpoint, __u32 domain,
	      const struct ib_memreg_queues *queues)
{
	RAW(endpoint_setup, cmd, .endpoint_id = endpoint, .domain_id = domain,
	    .queues = *queues);

	return raw_call(fd, IB_MEMREG_IOC_ENDPOINT_SETUP, &cmd);
}

int raw_accept(int fd, __u32 endpoint, __u32 domain)
{
	RAW(endpoint_accept, cmd, .endpoint_id = endpoint, .domain_id = domain);

	return raw_call(fd, IB_MEMREG_IOC_ENDPOINT_ACCEPT, &cmd);
}

int raw_listen(int fd, __be16 *port)
{
	RAW(listener_create, cmd, .backlog = IB_MEMREG_BACKLOG_MAX,
	    .addr = { .family = AF_INET });
	int ret;

	inet_pton(AF_INET, OWNER_IP4, cmd.addr.ip);
	ret = raw_call(fd, IB_MEMREG_IOC_LISTENER_CREATE, &cmd);
	*port = cmd.addr.port;
	return ret;
}

int raw_connect(int fd, __u32 domain, const char *ip, __be16 port,
		const struct ib_memreg_queues *queues, __u32 *endpoint)
{
	RAW(endpoint_connect, cmd, .domain_id = domain, .timeout_ms = 20000,
	    .addr = { .family = AF_INET, .port = port });
	int ret;

	inet_pton(AF_INET, ip, cmd.addr.ip);
	if (queues)
		cmd.queues = *queues;
	ret = raw_call(fd, IB_MEMREG_IOC_ENDPOINT_CONNECT, &cmd);
	*endpoint = ret ? 0 : cmd.out_endpoint_id;
	return ret;
}

int raw_disconnect(int fd, __u32 endpoint)
{
	RAW(endpoint_disconnect, cmd, .endpoint_id = endpoint);

	return raw_call(fd, IB_MEMREG_IOC_ENDPOINT_DISCONNECT, &cmd);
}

int raw_windows_2b(int fd, __u32 domain, __u64 span, __u32 *ids, __u32 count)
{
	RAW(window_alloc, cmd, .domain_id = domain,
	    .type = IB_MEMREG_WINDOW_TYPE2B, .count = count, .max_span = span,
	    .ids = (uintptr_t)ids);

	return raw_call(fd, IB_MEMREG_IOC_WINDOW_ALLOC, &cmd);
}

static bool is_last(__u32 type)
{
	return type == IB_MEMREG_EVENT_REJECTED ||
	       type == IB_MEMREG_EVENT_ERROR;
}

int raw_await(int fd, __u32 type, __u32 *endpoint)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct ib_memreg_event event;

	do {
		if (poll(&pfd, 1, LIMIT_MS) != 1)
			return -ETIMEDOUT;
		if (read(fd, &event, sizeof(event)) != sizeof(event))
			return -errno;
		if (event.type != type && is_last(event.type))
			return event.status < 0 ? event.status : -ECONNABORTED;
	} while (event.type != type);
	if (endpoint)
		*endpoint = event.endpoint_id;
	return 0;
}
