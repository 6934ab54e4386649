// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * cache: registrations of libibverbs, in a protection domain of one's own, that
 * are kept as long as the memory is the same.
 *
 * A buffer is used twice, which registers it once; then it is unmapped and
 * mapped anew at the same address, and the registration is found not to be of
 * that memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <infiniband/verbs.h>
#include <memreg.h>

#define LENGTH	65536

static int reg(void *pd, void *addr, size_t length, void **handle)
{
	*handle = ibv_reg_mr(pd, addr, length, IBV_ACCESS_LOCAL_WRITE);
	return *handle ? 0 : -errno;
}

static int dereg(void *pd, void *handle)
{
	(void)pd;
	return -ibv_dereg_mr(handle);
}

static const struct memreg_cache_ops ops = { reg, dereg };

static struct ibv_pd *open_pd(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **at;
	struct ibv_context *context = NULL;

	for (at = list; at && *at && !context; at++)
		if (!name || !strcmp(name, ibv_get_device_name(*at)))
			context = ibv_open_device(*at);
	if (list)
		ibv_free_device_list(list);
	return context ? ibv_alloc_pd(context) : NULL;
}

/* Where work would be posted */
static int use(struct memreg_cache *cache, void *buffer, const char *what)
{
	const struct memreg_cached *cached;
	const struct ibv_mr *mr;
	int ret = memreg_cache_get(cache, buffer, LENGTH, &cached);

	if (ret) {
		fprintf(stderr, "%s\n", memreg_reason());
		return ret;
	}
	mr = cached->handle;
	printf("%s: lkey 0x%08x\n", what, mr->lkey);
	memreg_cache_put(cache, cached);
	return 0;
}

static int run(struct memreg_cache *cache)
{
	void *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct memreg_cache_stat stat;

	if (at == MAP_FAILED || use(cache, at, "first use") ||
	    use(cache, at, "second use") || munmap(at, LENGTH) ||
	    mmap(at, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE |
		 MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at ||
	    use(cache, at, "mapped anew") || memreg_cache_query(cache, &stat))
		return 1;
	printf("%llu registered, %llu found, %llu stale\n",
	       (unsigned long long)stat.misses, (unsigned long long)stat.hits,
	       (unsigned long long)stat.stale);
	return 0;
}

int main(int argc, char **argv)
{
	struct ibv_pd *pd = open_pd(argc > 1 ? argv[1] : NULL);
	struct memreg_cache_attr attr = {
		.ops = &ops,
		.arg = pd,
		.access = IB_MEMREG_ACCESS_LOCAL_WRITE,
	};
	struct memreg_cache *cache;
	struct memreg *m;
	int ret;

	if (!pd) {
		fprintf(stderr, "cache: no such RDMA device\n");
		return 1;
	}
	if (memreg_open_unbound(&m) || memreg_cache_create(m, &attr, &cache)) {
		fprintf(stderr, "%s\n", memreg_reason());
		return 1;
	}
	ret = run(cache);
	ret |= memreg_cache_destroy(cache) != 0;
	memreg_close(m);
	return ret;
}
