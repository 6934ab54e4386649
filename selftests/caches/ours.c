// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cache of libmemreg: of memreg's MRs, with the argument "verbs" of
 * ibv_reg_mr(3), or with "exports" of exports in a protection domain of its
 * own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../user/verbs/memreg-verbs.h"
#include "app.h"
#include "memreg.h"
#include "raw.h"
#include "ring.h"
#include "test.h"

static struct {
	struct memreg *m;
	struct memreg_cache *cache;
	bool verbs;
	bool exports;
	/* of memreg's MRs */
	int fd;
	uint32_t domain;
	__u32 endpoint;
	__be16 port;
	struct ring ring;
	/* of libibverbs */
	struct ibv_context *context;
	struct ibv_pd *pd;
} ours;

static int reg(void *pd, void *addr, size_t length, void **handle)
{
	*handle = ibv_reg_mr(pd, addr, length, IBV_ACCESS_LOCAL_WRITE |
			     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	return *handle ? 0 : -errno;
}

static int dereg(void *pd, void *handle)
{
	(void)pd;
	return -ibv_dereg_mr(handle);
}

static const struct memreg_cache_ops ops = { reg, dereg };

/**
 * struct exported - Memory that is registered as an export
 * @mr: The MR that is exported
 * @export: The export
 * @keys: Its registration
 */
struct exported {
	struct memreg_mr mr;
	struct memreg_export export;
	struct memreg_export_mr keys;
};

static int export_memory(struct exported *e, struct ibv_pd *pd, void *addr,
			 size_t length)
{
	int ret = memreg_mr_register(ours.m, ours.domain, addr, length,
				     LOCAL_WRITE, 0, &e->mr);

	if (ret)
		return ret;
	ret = memreg_export(ours.m, e->mr.id, 0, length, &e->export);
	if (!ret) {
		ret = memreg_export_register(pd, e->export.fd, 0, length,
					     (uintptr_t)addr,
					     IBV_ACCESS_LOCAL_WRITE |
					     IBV_ACCESS_REMOTE_WRITE |
					     IBV_ACCESS_REMOTE_READ, &e->keys);
		close(e->export.fd);
		if (ret)
			memreg_export_destroy(ours.m, e->export.id);
	}
	if (ret)
		memreg_mr_deregister(ours.m, e->mr.id);
	return ret;
}

static int reg_export(void *pd, void *addr, size_t length, void **handle)
{
	struct exported *e = calloc(1, sizeof(*e));
	int ret = e ? export_memory(e, pd, addr, length) : -ENOMEM;

	if (ret)
		free(e);
	else
		*handle = e;
	return ret;
}

static int dereg_export(void *pd, void *handle)
{
	struct exported *e = handle;
	int ret;

	(void)pd;
	ret = memreg_export_deregister(&e->keys);
	ret = ret ?: memreg_export_destroy(ours.m, e->export.id);
	ret = ret ?: memreg_mr_deregister(ours.m, e->mr.id);
	if (!ret)
		free(e);
	return ret;
}

static const struct memreg_cache_ops export_ops = { reg_export, dereg_export };

static int open_handle(void)
{
	if (!ours.exports)
		return memreg_open_unbound(&ours.m);
	return memreg_open(test_device(), &ours.m) ?:
	       memreg_domain_create(ours.m, 1, &ours.domain);
}

static int open_verbs(void)
{
	struct memreg_cache_attr attr = {
		.ops = ours.exports ? &export_ops : &ops,
		.access = IB_MEMREG_ACCESS_LOCAL_WRITE,
	};
	int ret;

	ours.context = qp_device(test_device());
	ours.pd = ours.context ? ibv_alloc_pd(ours.context) : NULL;
	if (!ours.pd)
		return -ENODEV;
	attr.arg = ours.pd;
	ret = open_handle();
	return ret ?: memreg_cache_create(ours.m, &attr, &ours.cache);
}

static uint32_t rkey_of(const struct memreg_cached *cached)
{
	const struct exported *e = cached->handle;
	const struct ibv_mr *mr = cached->handle;

	if (!ours.verbs)
		return cached->mr.rkey;
	return ours.exports ? e->keys.rkey : mr->rkey;
}

static int open_mrs(void)
{
	struct memreg_cache_attr attr = {
		.access = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ,
	};
	int ret;

	ours.fd = raw_open_bound();
	if (ours.fd < 0)
		return ours.fd;
	ret = raw_domain(ours.fd, &ours.domain);
	ret = ret ?: ring_create(ours.fd, &ours.ring, 64, 64, 0, -1);
	ret = ret ?: raw_listen(ours.fd, &ours.port);
	ret = ret ?: memreg_open_fd(dup(ours.fd), &ours.m);
	attr.domain = ours.domain;
	return ret ?: memreg_cache_create(ours.m, &attr, &ours.cache);
}

int cache_open(const char *mode)
{
	ours.exports = !strcmp(mode, "exports");
	ours.verbs = ours.exports || !strcmp(mode, "verbs");
	return ours.verbs ? open_verbs() : open_mrs();
}

int cache_get(void *addr, size_t length, struct app_key *key)
{
	const struct memreg_cached *cached;
	int ret = memreg_cache_get(ours.cache, addr, length, &cached);

	if (ret)
		return ret;
	*key = (struct app_key){
		.rkey = rkey_of(cached),
		.iova = ours.verbs ? (uintptr_t)addr : cached->mr.iova +
			((char *)addr - (char *)cached->mr.addr),
		.pd = ours.pd,
		.handle = (void *)(uintptr_t)cached,
	};
	return 0;
}

void cache_put(struct app_key *key)
{
	memreg_cache_put(ours.cache, key->handle);
}

int cache_listen(uint32_t *port)
{
	if (ours.endpoint)
		raw_destroy(ours.fd, ours.endpoint);
	ours.endpoint = 0;
	*port = ours.port;
	return 0;
}

int cache_accept(void)
{
	const struct ib_memreg_queues queues = {
		.max_send = 16,
		.max_recv = 16,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.send_ring_id = ours.ring.id,
		.recv_ring_id = ours.ring.id,
	};
	int ret;

	/*
	 * Skip the event that ends the previous connection, if it comes first.
	 */
	do {
		ret = raw_await(ours.fd, IB_MEMREG_EVENT_CONNECT_REQUEST,
				&ours.endpoint);
	} while (ret == -ECONNABORTED);
	ret = ret ?: raw_setup(ours.fd, ours.endpoint, ours.domain, &queues);
	ret = ret ?: raw_accept(ours.fd, ours.endpoint, ours.domain);
	return ret ?: raw_await(ours.fd, IB_MEMREG_EVENT_ESTABLISHED, NULL);
}

void cache_close(void)
{
	memreg_cache_destroy(ours.cache);
	memreg_close(ours.m);
	if (!ours.verbs) {
		ring_unmap(&ours.ring);
		close(ours.fd);
		return;
	}
	ibv_dealloc_pd(ours.pd);
	ibv_close_device(ours.context);
}
