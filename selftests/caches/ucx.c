// SPDX-License-Identifier: GPL-2.0-only
/* The cache of UCP */
#include <errno.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>

#include "app.h"

static ucp_context_h context;

int cache_open(const char *mode)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES |
			      UCP_PARAM_FIELD_MT_WORKERS_SHARED,
		.features = UCP_FEATURE_RMA,
		.mt_workers_shared = 1,
	};
	ucp_config_t *config;
	ucs_status_t status;

	(void)mode;
	if (ucp_config_read(NULL, NULL, &config) != UCS_OK)
		return -EIO;
	status = ucp_init(&params, config, &context);
	ucp_config_release(config);
	return status == UCS_OK ? 0 : -EIO;
}

/* The data that is packed for a peer contains the key. */
static int find_key(ucp_mem_h memory, struct app_key *key)
{
	size_t length;
	void *packed;

	if (ucp_rkey_pack(context, memory, &packed, &length) != UCS_OK)
		return -EIO;
	key->rkey = key_among(packed, length);
	key->pd = pd_of_key(key->rkey);
	ucp_rkey_buffer_release(packed);
	return key->pd ? 0 : -ENOKEY;
}

int cache_get(void *addr, size_t length, struct app_key *key)
{
	const ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = addr,
		.length = length,
	};
	ucp_mem_h memory;

	if (ucp_mem_map(context, &params, &memory) != UCS_OK)
		return -EIO;
	*key = (struct app_key){
		.iova = (uintptr_t)addr,
		.handle = memory,
	};
	return find_key(memory, key);
}

void cache_put(struct app_key *key)
{
	ucp_mem_unmap(context, key->handle);
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
	ucp_cleanup(context);
}
