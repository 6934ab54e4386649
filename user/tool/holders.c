// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Users that keep the memory behind a dma-buf: MRs, which LIST has, and
 * descriptors and mappings of processes, which /proc has. All of them show the
 * inode number of the dma-buf.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "holders.h"
#include "number.h"
#include "tool.h"

#define PROC	"/proc"
#define BUFINFO	"/sys/kernel/debug/dma_buf/bufinfo"

static int no_memory(void)
{
	return fail("%s", strerror(ENOMEM));
}

/* Room for one more in an array; NULL if there is none */
static void *grow(void *list, size_t count, size_t *room, size_t size)
{
	if (count < *room)
		return list;
	*room = *room ? 2 * *room : 64;
	return realloc(list, *room * size);
}

static struct memory_object *memory_find(struct holders *h, uint64_t dmabuf)
{
	size_t i;

	for (i = 0; i < h->memory_count; i++)
		if (h->memory[i].dmabuf == dmabuf)
			return &h->memory[i];
	return NULL;
}

/* Add a dma-buf: a memory object, or the memory of an MR. */
static int memory_add(struct holders *h, uint64_t dmabuf, uint64_t size)
{
	struct memory_object *m = memory_find(h, dmabuf);

	if (!m) {
		m = grow(h->memory, h->memory_count, &h->memory_room,
			 sizeof(*m));
		if (!m)
			return no_memory();
		h->memory = m;
		m += h->memory_count++;
		*m = (struct memory_object) { .dmabuf = dmabuf };
	}
	if (size)
		m->size = size;
	return EXIT_GOOD;
}

static int holder_add(struct holders *h, const struct holder *holder)
{
	struct holder *list = grow(h->list, h->count, &h->room, sizeof(*list));

	if (!list)
		return no_memory();
	h->list = list;
	h->list[h->count++] = *holder;
	return EXIT_GOOD;
}

int holders_add_mr(struct holders *h, const struct ib_memreg_object *o)
{
	struct holder holder = {
		.kind = HOLDER_MR,
		.dmabuf = o->u.mr.dmabuf,
		.pid = o->pid,
		.mr = { .file = o->file, .id = o->id },
	};

	if (o->type != IB_MEMREG_OBJECT_MR || !o->u.mr.dmabuf)
		return EXIT_GOOD;
	memcpy(holder.comm, o->comm, sizeof(o->comm));
	return memory_add(h, holder.dmabuf, 0) ?: holder_add(h, &holder);
}

/* The name of a process; none if it has ended */
static void get_comm(struct holder *holder)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), PROC "/%" PRId32 "/comm", holder->pid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(holder->comm, sizeof(holder->comm), f))
		holder->comm[strcspn(holder->comm, "\n")] = '\0';
	fclose(f);
}

/*
 * Read the fdinfo of a descriptor: its exporter, if it is that of a dma-buf.
 * Other kinds of files may have the same inode number.
 */
static void read_fdinfo(FILE *f, uint64_t *inode, uint64_t *size,
			char name[64])
{
	char line[256];

	while (fgets(line, sizeof(line), f)) {
		sscanf(line, "ino: %" SCNu64, inode);
		sscanf(line, "size: %" SCNu64, size);
		sscanf(line, "exp_name: %63s", name);
	}
}

static int find_fd(struct holders *h, int32_t pid, const char *fd)
{
	struct holder holder = {
		.kind = HOLDER_FD, .pid = pid,
		.fd = (uint32_t)strtoul(fd, NULL, 10),
	};
	uint64_t size = 0;
	char path[320], name[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), PROC "/%" PRId32 "/fdinfo/%s", pid, fd);
	f = fopen(path, "re");
	if (!f)
		return EXIT_GOOD;
	read_fdinfo(f, &holder.dmabuf, &size, name);
	fclose(f);
	if (strcmp(name, MODULE_NAME) &&
	    !(*name && memory_find(h, holder.dmabuf)))
		return EXIT_GOOD;
	get_comm(&holder);
	return memory_add(h, holder.dmabuf, size) ?: holder_add(h, &holder);
}

static int find_fds(struct holders *h, int32_t pid)
{
	char path[64];
	struct dirent *entry;
	int ret = EXIT_GOOD;
	DIR *dir;

	snprintf(path, sizeof(path), PROC "/%" PRId32 "/fdinfo", pid);
	dir = opendir(path);
	if (!dir)
		return EXIT_GOOD;
	while (ret == EXIT_GOOD && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			ret = find_fd(h, pid, entry->d_name);
	closedir(dir);
	return ret;
}

/* A file may be mapped in several pieces: each is one. */
static int find_mappings(struct holders *h, int32_t pid)
{
	struct holder holder = { .kind = HOLDER_MAPPING, .pid = pid };
	char path[64], line[512], name[16];
	int ret = EXIT_GOOD;
	FILE *f;

	snprintf(path, sizeof(path), PROC "/%" PRId32 "/maps", pid);
	f = fopen(path, "re");
	if (!f)
		return EXIT_GOOD;
	while (ret == EXIT_GOOD && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %" SCNu64
			   " %15s", &holder.mapping.start, &holder.mapping.end,
			   &holder.dmabuf, name) != 4 ||
		    strncmp(name, "/dmabuf:", 8) ||
		    !memory_find(h, holder.dmabuf))
			continue;
		get_comm(&holder);
		ret = holder_add(h, &holder);
	}
	fclose(f);
	return ret;
}

/* Do something for each process. */
static int each_process(struct holders *h,
			int (*find)(struct holders *h, int32_t pid))
{
	struct dirent *entry;
	int ret = EXIT_GOOD;
	int32_t pid;
	DIR *dir;

	dir = opendir(PROC);
	if (!dir)
		return fail(PROC ": %s", strerror(errno));
	while (ret == EXIT_GOOD && (entry = readdir(dir))) {
		pid = (int32_t)strtol(entry->d_name, NULL, 10);
		if (pid > 0)
			ret = find(h, pid);
	}
	closedir(dir);
	return ret;
}

/* Where it can be read it has those that only the kernel holds, too. */
static int find_bufinfo(struct holders *h)
{
	uint64_t size, inode;
	char line[512], name[64];
	int ret = EXIT_GOOD;
	FILE *f;

	f = fopen(BUFINFO, "re");
	if (!f)
		return EXIT_GOOD;
	while (ret == EXIT_GOOD && fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNu64 " %*x %*x %*d %63s %" SCNu64,
			   &size, name, &inode) == 3 &&
		    !strcmp(name, MODULE_NAME))
			ret = memory_add(h, inode, size);
	fclose(f);
	return ret;
}

/* Memory without a known user is held by some driver. */
static int add_kernel(struct holders *h)
{
	struct holder holder = { .kind = HOLDER_KERNEL };
	size_t i, n;
	int ret = EXIT_GOOD;

	for (n = 0; ret == EXIT_GOOD && n < h->memory_count; n++) {
		holder.dmabuf = h->memory[n].dmabuf;
		for (i = 0; i < h->count; i++)
			if (h->list[i].dmabuf == holder.dmabuf)
				break;
		if (i == h->count)
			ret = holder_add(h, &holder);
	}
	return ret;
}

static int compare(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	if (x->dmabuf != y->dmabuf)
		return x->dmabuf < y->dmabuf ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

int holders_find(struct holders *h)
{
	int ret = find_bufinfo(h) ?: each_process(h, find_fds) ?:
		  each_process(h, find_mappings) ?: add_kernel(h);

	if (ret == EXIT_GOOD && h->count)
		qsort(h->list, h->count, sizeof(*h->list), compare);
	return ret;
}

static const char *const kinds[] = {
	[HOLDER_MR] = "mr",
	[HOLDER_FD] = "fd",
	[HOLDER_MAPPING] = "mapping",
	[HOLDER_KERNEL] = "kernel",
};

static void print_row(struct holders *h, const struct holder *holder)
{
	const struct memory_object *m = memory_find(h, holder->dmabuf);
	char comm[sizeof(holder->comm)], bytes[32] = "-";

	if (m && m->size)
		human_bytes((double)m->size, bytes, sizeof(bytes));
	printf("%-10" PRIu64 " %-10s %-8s %-7" PRId32 " %-15s ",
	       holder->dmabuf, bytes, kinds[holder->kind], holder->pid,
	       plain_text(holder->comm, sizeof(comm) - 1, comm));
	if (holder->kind == HOLDER_MR)
		printf("mr %" PRIu32 " of file %" PRIu32, holder->mr.id,
		       holder->mr.file);
	else if (holder->kind == HOLDER_FD)
		printf("descriptor %" PRIu32, holder->fd);
	else if (holder->kind == HOLDER_MAPPING)
		printf("0x%" PRIx64 " to 0x%" PRIx64, holder->mapping.start,
		       holder->mapping.end);
	else
		printf("a driver that has imported it");
	putchar('\n');
}

static void print_json(struct holders *h, const struct holder *holder,
		       bool first)
{
	const struct memory_object *m = memory_find(h, holder->dmabuf);

	printf("%s{\"dmabuf\":%" PRIu64 ",\"holder\":\"%s\"",
	       first ? "" : ",\n ", holder->dmabuf, kinds[holder->kind]);
	if (m && m->size)
		printf(",\"size_bytes\":%" PRIu64, m->size);
	if (holder->kind == HOLDER_MR)
		printf(",\"file\":%" PRIu32 ",\"id\":%" PRIu32,
		       holder->mr.file, holder->mr.id);
	else if (holder->kind == HOLDER_FD)
		printf(",\"fd\":%" PRIu32, holder->fd);
	else if (holder->kind == HOLDER_MAPPING)
		printf(",\"address\":%" PRIu64 ",\"length_bytes\":%" PRIu64,
		       holder->mapping.start,
		       holder->mapping.end - holder->mapping.start);
	if (holder->pid)
		printf(",\"pid\":%" PRId32 ",", holder->pid);
	if (holder->pid)
		print_json_string("command", holder->comm,
				  sizeof(holder->comm));
	putchar('}');
}

void holders_print(struct holders *h, bool json)
{
	size_t i;

	if (json)
		putchar('[');
	else
		printf("%-10s %-10s %-8s %-7s %-15s %s\n", "DMA-BUF", "SIZE",
		       "HOLDER", "PID", "COMMAND", "DETAILS");
	for (i = 0; i < h->count; i++)
		if (json)
			print_json(h, &h->list[i], !i);
		else
			print_row(h, &h->list[i]);
	if (json)
		puts("]");
}

void holders_free(struct holders *h)
{
	free(h->list);
	free(h->memory);
}
