// SPDX-License-Identifier: GPL-2.0-only
/*
 * A plugin that uses UCX: it looks memory up, looks it up again, replaces it by
 * system calls that no hook sees, and looks it up once more. It prints how
 * often the second lookup found the first one's registration, and how often the
 * third did, which is stale.
 *
 * With PLUG_CLOSES in the environment it closes the descriptors of memreg once.
 * With PLUG_UNMAPS it maps and unmaps other memory between the first lookup and
 * the second, as often as that says, once.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <ucp/api/ucp.h>

#define LENGTH	(1UL << 20)
#define ROUNDS	20

/* The data that is packed for a peer contains the key. */
struct key {
	char packed[4096];
	size_t length;
};

static ucp_context_h context;

static int look_up(void *mem, struct key *key)
{
	const ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = mem,
		.length = LENGTH,
	};
	ucp_mem_h memory;
	void *packed;

	if (ucp_mem_map(context, &params, &memory) != UCS_OK ||
	    ucp_rkey_pack(context, memory, &packed, &key->length) != UCS_OK ||
	    key->length > sizeof(key->packed))
		return -1;
	memcpy(key->packed, packed, key->length);
	ucp_rkey_buffer_release(packed);
	ucp_mem_unmap(context, memory);
	return 0;
}

static int same(const struct key *a, const struct key *b)
{
	return a->length == b->length && !memcmp(a->packed, b->packed,
						 a->length);
}

static int replace(void *mem, int byte)
{
	long at;

	syscall(SYS_munmap, mem, LENGTH);
	at = syscall(SYS_mmap, mem, LENGTH, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (at != (long)mem)
		return -1;
	memset(mem, byte, LENGTH);
	return 0;
}

static void close_descriptors(void)
{
	char path[32], link[64];
	ssize_t length;
	int fd;

	for (fd = 3; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, link, sizeof(link) - 1);
		link[length < 0 ? 0 : length] = 0;
		if (strstr(link, "memreg"))
			close(fd);
	}
}

static void unmap_others(void)
{
	const char *times = getenv("PLUG_UNMAPS");
	int i, n = times ? atoi(times) : 0;
	void *at;

	for (i = 0; i < n; i++) {
		at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			  MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		munmap(at, 4096);
	}
}

static int open_context(void)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_RMA,
	};
	ucp_config_t *config;
	ucs_status_t status;

	if (ucp_config_read(NULL, NULL, &config) != UCS_OK)
		return -1;
	status = ucp_init(&params, config, &context);
	ucp_config_release(config);
	return status == UCS_OK ? 0 : -1;
}

int run(void)
{
	char *mem = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static struct key first, second, third;
	int i, found = 0, stale = 0;

	if (mem == MAP_FAILED || open_context())
		return 2;
	for (i = 0; i < ROUNDS; i++) {
		memset(mem, i, LENGTH);
		if (look_up(mem, &first))
			return 2;
		if (i == ROUNDS / 2)
			unmap_others();
		if (look_up(mem, &second))
			return 2;
		if (i == ROUNDS / 2 && getenv("PLUG_CLOSES"))
			close_descriptors();
		if (replace(mem, i + 100) || look_up(mem, &third))
			return 2;
		found += same(&first, &second);
		stale += same(&second, &third);
	}
	printf("found %d stale %d\n", found, stale);
	ucp_cleanup(context);
	return 0;
}
