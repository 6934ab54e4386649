// SPDX-License-Identifier: GPL-2.0-only
/* Moving data by the raw ABI. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data.h"

static __thread __u32 last_taken;

/* A step that fails is printed, as there is more than one. */
#define STEP(_call)							\
	do {								\
		int _ret = (_call);					\
									\
		if (_ret) {						\
			fprintf(stderr, "# %s: %d, reason %u\n",	\
				#_call, _ret, raw_reason());		\
			return _ret;					\
		}							\
	} while (0)

/*
 * Rings
 */

int ring_create(int fd, struct ring *ring, __u32 entries, __u32 entry_size,
		__u32 flags, int eventfd)
{
	RAW(ring_create, cmd, .flags = flags, .entries = entries,
	    .entry_size = entry_size, .eventfd = eventfd);
	int ret = raw_call(fd, IB_MEMREG_IOC_RING_CREATE, &cmd);
	void *map;

	memset(ring, 0, sizeof(*ring));
	ring->fd = -1;
	if (ret)
		return ret;
	ring->fd = cmd.out_fd;
	ring->id = cmd.out_ring_id;
	ring->entries = cmd.entries;
	ring->entry_size = entry_size;
	ring->map_size = cmd.out_map_size;
	map = mmap(NULL, cmd.out_map_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		   cmd.out_fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	ring->shared = map;
	ring->first = (uint8_t *)map + cmd.out_entries_offset;
	return 0;
}

void ring_unmap(struct ring *ring)
{
	if (ring->shared)
		munmap(ring->shared, ring->map_size);
	if (ring->fd >= 0)
		close(ring->fd);
	ring->shared = NULL;
	ring->fd = -1;
}

__u32 ring_count(const struct ring *ring)
{
	return __atomic_load_n(&ring->shared->producer, __ATOMIC_ACQUIRE) -
	       ring->consumed;
}

const struct ib_memreg_cqe *ring_entry(const struct ring *ring, __u32 i)
{
	size_t at = (ring->consumed + i) & (ring->entries - 1);

	return (const void *)(ring->first + at * ring->entry_size);
}

void ring_done(struct ring *ring, __u32 n)
{
	ring->consumed += n;
	__atomic_store_n(&ring->shared->consumer, ring->consumed,
			 __ATOMIC_RELEASE);
}

int ring_wait(const struct ring *ring, __u32 min_count, __u64 timeout_ns,
	      __u32 *count)
{
	RAW(ring_wait, cmd, .min_count = min_count, .timeout_ns = timeout_ns);
	int ret = raw_call(ring->fd, IB_MEMREG_IOC_RING_WAIT, &cmd);

	if (count)
		*count = cmd.out_count;
	return ret;
}

int ring_next(struct ring *ring, union entry *entry)
{
	int ret = ring_wait(ring, 1, LIMIT_MS * MS, NULL);

	if (ret)
		return ret;
	if (!ring_count(ring))
		return -ENODATA;
	memset(entry, 0, sizeof(*entry));
	memcpy(entry, ring_entry(ring, 0), ring->entry_size);
	ring_done(ring, 1);
	return 0;
}

const uint8_t *entry_data(const union entry *entry)
{
	return entry->bytes + offsetof(struct ib_memreg_cqe, data);
}

/*
 * Calls
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

int raw_users(__u32 mr)
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

/*
 * Both ends
 */

int link_open(struct link *l, size_t stock_len)
{
	memset(l, 0, sizeof(*l));
	l->fd = raw_open_bound();
	if (l->fd < 0)
		return l->fd;
	STEP(raw_domain(l->fd, &l->domain));
	STEP(raw_listen(l->fd, &l->port));
	STEP(stock_open(&l->stock, stock_len));
	return 0;
}

void link_close(struct link *l)
{
	stock_close(&l->stock);
	close(l->fd);
}

int link_begin(struct link *l, const struct ib_memreg_queues *queues,
	       bool connects)
{
	struct stock *s = &l->stock;

	if (connects) {
		STEP(raw_connect(l->fd, l->domain, PEER_IP4, s->port, queues,
				 &l->endpoint));
		STEP(stock_request(s));
		return 0;
	}
	STEP(stock_connect(s, OWNER_IP4, l->port));
	STEP(raw_await(l->fd, IB_MEMREG_EVENT_CONNECT_REQUEST, &l->endpoint));
	STEP(raw_setup(l->fd, l->endpoint, l->domain, queues));
	return 0;
}

int link_finish(struct link *l, bool connects)
{
	struct stock *s = &l->stock;

	if (connects)
		STEP(stock_accept(s));
	else
		STEP(raw_accept(l->fd, l->endpoint, l->domain));
	STEP(stock_established(s));
	STEP(raw_await(l->fd, IB_MEMREG_EVENT_ESTABLISHED, NULL));
	return 0;
}

int link_up(struct link *l, const struct ib_memreg_queues *queues,
	    bool connects)
{
	return link_begin(l, queues, connects) ?: link_finish(l, connects);
}
