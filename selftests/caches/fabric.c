// SPDX-License-Identifier: GPL-2.0-only
/*
 * The cache of libfabric's verbs provider, by whichever memory monitor the
 * environment chooses.
 */
#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "test.h"

#define ACCESS	(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | \
		 FI_REMOTE_WRITE)

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;

static int find_provider(void)
{
	struct fi_info *hints = fi_allocinfo();
	int ret;

	if (!hints)
		return -ENOMEM;
	hints->fabric_attr->prov_name = strdup("verbs");
	hints->domain_attr->name = strdup(test_device());
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG | FI_RMA;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->mode = ~0ULL;
	ret = fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, hints, &info);
	fi_freeinfo(hints);
	return ret;
}

int cache_open(const char *mode)
{
	int ret = find_provider();

	(void)mode;
	ret = ret ?: fi_fabric(info->fabric_attr, &fabric, NULL);
	return ret ?: fi_domain(fabric, info, &domain, NULL);
}

int cache_get(void *addr, size_t length, struct app_key *key)
{
	struct fid_mr *mr;
	int ret = fi_mr_reg(domain, addr, length, ACCESS, 0, 0, 0, &mr, NULL);

	if (ret)
		return ret;
	*key = (struct app_key){
		.rkey = (uint32_t)fi_mr_key(mr),
		.iova = (uintptr_t)addr,
		.pd = pd_of_key((uint32_t)fi_mr_key(mr)),
		.handle = mr,
	};
	return key->pd ? 0 : -ENOKEY;
}

void cache_put(struct app_key *key)
{
	struct fid_mr *mr = key->handle;

	fi_close(&mr->fid);
}

int cache_listen(uint32_t *port)
{
	(void)port;
	return -EOPNOTSUPP;
}

int cache_accept(void)
{
	return -EOPNOTSUPP;
}

void cache_close(void)
{
	fi_close(&domain->fid);
	fi_close(&fabric->fid);
	fi_freeinfo(info);
}
