// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The memory that memreg serve grants to peers, or its pool of buffers */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve.h"

#define SIZE_DEFAULT	(1 << 20)

int64_t now_ms(void)
{
	return now_ns() / 1000000;
}

bool may_write(const struct server *s)
{
	return s->mr.access & IB_MEMREG_ACCESS_LOCAL_WRITE;
}

/* The size of the file, or a complaint and -1 */
static int64_t file_size(const struct server *s)
{
	struct stat st;

	if (!fstat(s->fd, &st))
		return st.st_size;
	fail("%s: %s", s->file, strerror(errno));
	return -1;
}

static int map_file(struct server *s)
{
	int64_t size;

	s->fd = open(s->file, (may_write(s) ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (s->fd < 0)
		return fail("%s: %s", s->file, strerror(errno));
	size = file_size(s);
	if (size < 0)
		return EXIT_FAILED;
	if (!s->size && !size)
		return fail("%s is empty; make it as large as it is to be with `truncate -s`",
			    s->file);
	if (s->size > (uint64_t)size)
		return fail("%s has %" PRId64 " bytes only, and --size is %"
			    PRIu64, s->file, size, s->size);
	if (!s->size)
		s->size = (uint64_t)size;
	s->memory = mmap(NULL, s->size,
			 PROT_READ | (may_write(s) ? PROT_WRITE : 0),
			 MAP_SHARED, s->fd, 0);
	if (s->memory == MAP_FAILED)
		return fail("%s can't be mapped: %s", s->file,
			    strerror(errno));
	return EXIT_GOOD;
}

static int map_memory(struct server *s)
{
	if (s->file)
		return map_file(s);
	if (!s->size)
		s->size = SIZE_DEFAULT;
	s->memory = mmap(NULL, s->size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->memory == MAP_FAILED)
		return fail("%" PRIu64 " bytes of memory: %s", s->size,
			    strerror(errno));
	return EXIT_GOOD;
}

/* One window is one key, and has its limit */
static int check_span(struct server *s)
{
	uint64_t span;

	if (memreg_query_cap(s->m, IB_MEMREG_CAP_KEY_SPAN, &span))
		return fail("%s", memreg_reason());
	if (s->size <= span - 4096)
		return EXIT_GOOD;
	return fail("%" PRIu64 " bytes are more than one window of this device covers; use --size with %"
		    PRIu64 " at most", s->size, span - 4096);
}

static int make_pool(struct server *s)
{
	struct memreg_pool_attr attr = {
		.buffer_size = s->buffer_size,
		.count = (uint32_t)s->buffers,
		.access = IB_MEMREG_ACCESS_LOCAL_WRITE | s->access,
		.node = IB_MEMREG_NODE_DEVICE,
		.flags = MEMREG_POOL_WIPE,
	};

	if (memreg_domain_create(s->m, 0, &s->domain) ||
	    memreg_pool_create(s->m, s->domain, &attr, &s->pool) ||
	    memreg_pool_mr(s->pool, &s->mr))
		return fail("%s", memreg_reason());
	s->memory = s->mr.addr;
	s->size = s->mr.length;
	return EXIT_GOOD;
}

/* Exports are of whole pages */
static uint64_t mr_length(const struct server *s)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return s->exports ? (s->size + page - 1) / page * page : s->size;
}

static int register_memory(struct server *s)
{
	if (!s->domain && memreg_domain_create(s->m, 0, &s->domain))
		return fail("%s", memreg_reason());
	if (memreg_mr_register(s->m, s->domain, s->memory, mr_length(s),
			       s->mr.access, 0, &s->mr))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

void peers_unbind(struct server *s)
{
	struct peer *p;

	exports_revoke(s, report_window_gone);
	for (p = s->peers; p; p = p->next) {
		if (!p->window)
			continue;
		if (memreg_window_free(s->m, p->window))
			fail("peer %" PRIu32 ": %s", p->id, memreg_reason());
		else
			report_window_gone(s, p);
		p->window = 0;
		p->bound = false;
		p->revoke_at = -1;
	}
}

bool renew_memory(struct server *s)
{
	int64_t size = s->file ? file_size(s) : 0;

	report_memory(s, false);
	peers_unbind(s);
	s->failed = true;
	if (s->mr.id && memreg_mr_deregister(s->m, s->mr.id))
		fail("%s", memreg_reason());
	else if (s->file && size < 0)
		s->mr.id = 0;
	else if (s->file && (uint64_t)size < s->size)
		fail("%s has %" PRId64 " bytes now, and %" PRIu64
		     " were served", s->file, size, s->size);
	else
		s->failed = register_memory(s) != EXIT_GOOD;
	if (s->failed)
		s->quit = true;
	else
		report_memory(s, true);
	return !s->failed;
}

bool memory_is_there(struct server *s, const char *word)
{
	struct memreg_mr_info info;

	if (memreg_mr_query(s->m, s->mr.id, &info, NULL, NULL)) {
		report_text(s, "%s: %s", word, memreg_reason());
		return false;
	}
	return info.state == IB_MEMREG_MR_LIVE || renew_memory(s);
}

int make_memory(struct server *s)
{
	int ret;

	if (s->buffers)
		return make_pool(s);
	ret = map_memory(s);
	if (ret == EXIT_GOOD && !s->exports)
		ret = check_span(s);
	if (ret == EXIT_GOOD)
		ret = register_memory(s);
	return ret;
}
