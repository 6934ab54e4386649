// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Exports: files, disks, memory */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "blkd.h"

#define MEMORY_PREFIX	"memory:"
#define BLOCK_DEFAULT	512u
#define BLOCK_MAX	4096u
#define LOCK_TRIES	40		/* of 50 ms */
#define BOOT_ID		"/proc/sys/kernel/random/boot_id"

static bool power_of_two(uint64_t n)
{
	return n && !(n & (n - 1));
}

/*
 * Get the name of an export: the part before =, or the last component of the
 * path. Returns what follows, or NULL.
 */
static const char *split_spec(struct export *e, const char *spec)
{
	const char *equals = strchr(spec, '='), *slash = strchr(spec, '/');
	const char *name, *rest = spec;
	size_t len;

	if (equals && (!slash || equals < slash)) {
		name = spec;
		len = (size_t)(equals - spec);
		rest = equals + 1;
	} else if (!strncmp(spec, MEMORY_PREFIX, strlen(MEMORY_PREFIX))) {
		name = "memory";
		len = strlen(name);
	} else {
		slash = strrchr(spec, '/');
		name = slash ? slash + 1 : spec;
		len = strlen(name);
	}
	if (!len || len > IB_MEMREG_BLK_EXPORT_MAX)
		return NULL;
	memcpy(e->name, name, len);
	e->name[len] = '\0';
	return rest;
}

static int open_memory(struct export *e, const char *size)
{
	static const struct number number = {
		"memory:BYTES", UNIT_BYTES, 1, INT64_MAX,
	};
	uint64_t bytes;
	int ret;

	e->kind = EXPORT_MEMORY;
	e->path = "memory";
	ret = take_number(size, &number, &bytes);
	if (ret != EXIT_GOOD)
		return ret;
	e->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e->memory == MAP_FAILED) {
		e->memory = NULL;
		return fail("%" PRIu64 " bytes of memory: %s", bytes,
			    strerror(errno));
	}
	/* larger pages are fewer pieces for the device; others will do */
	madvise(e->memory, bytes, MADV_HUGEPAGE);
	e->capacity = bytes;
	e->mr.length = bytes;
	e->physical = BLKD_PAGE;
	return EXIT_GOOD;
}

/* A number in /sys of a disk, or of the disk that a partition is on */
static uint64_t queue_number(dev_t dev, const char *file)
{
	static const char *const up[] = { "", "../" };
	unsigned long long value = 0;
	char path[128];
	FILE *f = NULL;
	size_t i;

	for (i = 0; i < 2 && !f; i++) {
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%squeue/%s",
			 major(dev), minor(dev), up[i], file);
		f = fopen(path, "r");
	}
	if (!f)
		return 0;
	if (fscanf(f, "%llu", &value) != 1)
		value = 0;
	fclose(f);
	return value;
}

/* Most drivers let such a disk be opened for writing, and then fail writes. */
static bool disk_is_read_only(int fd)
{
	int is = 0;

	return !ioctl(fd, BLKROGET, &is) && is;
}

static void examine_disk(struct export *e, dev_t dev)
{
	unsigned int physical = 0;
	int logical = 0;

	e->kind = EXPORT_DISK;
	if (!e->block_size && !ioctl(e->fd, BLKSSZGET, &logical))
		e->block_size = (uint32_t)logical;
	if (!ioctl(e->fd, BLKPBSZGET, &physical))
		e->physical = physical;
	if (queue_number(dev, "discard_max_bytes")) {
		e->flags |= IB_MEMREG_BLK_HAS_DISCARD;
		e->granularity = (uint32_t)queue_number(dev,
							"discard_granularity");
	}
}

/*
 * Punching a hole behind the end changes nothing, and shows whether the file
 * system has holes.
 */
static void examine_file(struct export *e, const struct stat *st)
{
	off_t end = (st->st_size + BLKD_PAGE - 1) / BLKD_PAGE * BLKD_PAGE;

	e->kind = EXPORT_FILE;
	e->physical = (uint32_t)st->st_blksize;
	if (e->flags & IB_MEMREG_BLK_READ_ONLY ||
	    fallocate(e->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end,
		      BLKD_PAGE))
		return;
	e->flags |= IB_MEMREG_BLK_HAS_DISCARD;
	e->granularity = (uint32_t)st->st_blksize;
}

static bool same_file(const struct export *a, const struct export *b)
{
	struct stat of_a, of_b;

	return a->fd >= 0 && b->fd >= 0 && !fstat(a->fd, &of_a) &&
	       !fstat(b->fd, &of_b) && of_a.st_dev == of_b.st_dev &&
	       of_a.st_ino == of_b.st_ino;
}

/*
 * SMB locks exclude all other open files, also those of this server's threads
 */
static bool may_lock(const struct export *e)
{
	struct statfs fs;

	return fstatfs(e->fd, &fs) || (fs.f_type != SMB_SUPER_MAGIC &&
				       fs.f_type != CIFS_SUPER_MAGIC &&
				       fs.f_type != SMB2_SUPER_MAGIC);
}

/*
 * A write that a server began before it was stopped could land after newer data
 * from the next server. So a server locks what it serves until its last thread
 * has ended. One try is not enough, as udev locks a disk for a moment after
 * somebody has closed it.
 */
static int lock_path(const struct export *e, const struct export *exports)
{
	const struct timespec while_held = { .tv_nsec = 50000000 };
	bool shared = e->flags & IB_MEMREG_BLK_READ_ONLY;
	unsigned int tries = LOCK_TRIES;

	for (; exports < e; exports++)
		if (same_file(exports, e))
			return EXIT_GOOD;
	if (!may_lock(e))
		return EXIT_GOOD;
	while (flock(e->fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB)) {
		if (errno != EWOULDBLOCK) {
			say("export %s: without a lock: %s", e->name,
			    strerror(errno));
			return EXIT_GOOD;
		}
		if (!--tries)
			return fail("%s: another process has locked it, as `memreg blkd` does what it serves; `lslocks` shows which",
				    e->path);
		nanosleep(&while_held, NULL);
	}
	return EXIT_GOOD;
}

/*
 * Open the same file for each thread, even if its path names another one by
 * now.
 */
static int open_for_threads(struct export *e, int flags, unsigned int threads)
{
	char path[32];

	e->fds = calloc(threads, sizeof(e->fds[0]));
	if (!e->fds)
		return fail("%s", strerror(ENOMEM));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", e->fd);
	for (; e->nr_fds < threads; e->nr_fds++) {
		e->fds[e->nr_fds] = openat(AT_FDCWD, path, flags);
		if (e->fds[e->nr_fds] < 0)
			return fail("%s, for each thread: %s", e->path,
				    strerror(errno));
	}
	return EXIT_GOOD;
}

static int open_path(struct export *e, const struct export *exports,
		     const struct blkd_options *o)
{
	int flags = (o->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC |
		    (o->no_cache ? O_DSYNC : 0);
	struct stat st;

	e->fd = open(e->path, flags);
	if (e->fd < 0 && errno == EROFS) {
		e->flags |= IB_MEMREG_BLK_READ_ONLY;
		flags = O_RDONLY | O_CLOEXEC;
		e->fd = open(e->path, flags);
	}
	if (e->fd < 0 || fstat(e->fd, &st))
		return fail("%s: %s", e->path, strerror(errno));
	if (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
		return fail("%s is neither a file nor a block device",
			    e->path);
	if (S_ISBLK(st.st_mode) && disk_is_read_only(e->fd)) {
		e->flags |= IB_MEMREG_BLK_READ_ONLY;
		flags = O_RDONLY | O_CLOEXEC;
	}
	if (lock_path(e, exports) != EXIT_GOOD)
		return EXIT_FAILED;
	if (S_ISBLK(st.st_mode))
		examine_disk(e, st.st_rdev);
	else
		examine_file(e, &st);
	return open_for_threads(e, flags, o->threads);
}

int64_t export_size(const struct export *e)
{
	struct stat st;
	uint64_t bytes;

	if (e->kind == EXPORT_MEMORY)
		return (int64_t)e->mr.length;
	if (e->kind == EXPORT_DISK)
		return ioctl(e->fd, BLKGETSIZE64, &bytes) ? -1 : (int64_t)bytes;
	return fstat(e->fd, &st) ? -1 : st.st_size;
}

bool export_refresh(struct export *e)
{
	int64_t bytes = export_size(e);
	uint64_t capacity;

	if (bytes < 0)
		return false;
	capacity = (uint64_t)bytes & ~(uint64_t)(e->block_size - 1);
	if (capacity == e->capacity)
		return false;
	e->capacity = capacity;
	return true;
}

static void set_flags(struct export *e, const struct blkd_options *o)
{
	if (o->read_only)
		e->flags |= IB_MEMREG_BLK_READ_ONLY;
	if (e->kind == EXPORT_MEMORY ? o->write_cache : !o->no_cache)
		e->flags |= IB_MEMREG_BLK_WRITE_CACHE | IB_MEMREG_BLK_HAS_FUA;
	e->flags |= IB_MEMREG_BLK_HAS_ZEROES;
	if (e->flags & IB_MEMREG_BLK_READ_ONLY)
		e->flags &= ~(uint32_t)(IB_MEMREG_BLK_HAS_DISCARD |
					IB_MEMREG_BLK_HAS_ZEROES);
}

/* Number from the UUID of this boot of the machine; 0 if there is none */
static uint64_t boot_number(void)
{
	FILE *f = fopen(BOOT_ID, "r");
	uint64_t value = 0;
	int c, digits = 0;

	while (f && digits < 16 && (c = fgetc(f)) != EOF) {
		if (c == '-')
			continue;
		if (!isxdigit(c))
			break;
		value = value << 4 |
			(uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
		digits++;
	}
	if (f)
		fclose(f);
	return digits == 16 ? value : 0;
}

static uint64_t random_number(void)
{
	uint64_t value = 0;

	while (!value)
		if (getrandom(&value, sizeof(value), 0) != sizeof(value))
			value = 0;
	return value;
}

/*
 * Data in the page cache is lost with the machine, data in this server's memory
 * with this server.
 */
static void set_instance(struct export *e)
{
	if (e->flags & IB_MEMREG_BLK_READ_ONLY)
		return;
	if (e->kind != EXPORT_MEMORY) {
		if (!(e->flags & IB_MEMREG_BLK_WRITE_CACHE))
			return;
		e->instance = boot_number();
	}
	if (!e->instance)
		e->instance = random_number();
}

static int set_sizes(struct export *e)
{
	if (!e->block_size)
		e->block_size = BLOCK_DEFAULT;
	if (e->block_size > BLOCK_MAX)
		return fail("%s has blocks of %" PRIu32 " bytes, and %u are the most; try --block-size",
			    e->path, e->block_size, BLOCK_MAX);
	if (e->physical < e->block_size || !power_of_two(e->physical))
		e->physical = e->block_size;
	e->capacity = 0;
	export_refresh(e);
	if (!e->capacity)
		return fail("%s is smaller than a block; make a file as large as it is to be with `truncate -s`",
			    e->path);
	return EXIT_GOOD;
}

int export_open(struct export *e, const struct export *exports,
		const char *spec, const struct blkd_options *options)
{
	const char *rest;
	int ret;

	*e = (struct export) {
		.fd = -1,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.block_size = options->block_size,
		.flags = options->read_only ? IB_MEMREG_BLK_READ_ONLY : 0,
	};
	rest = split_spec(e, spec);
	if (!rest)
		return bad_usage("%s: a name has 1 to %d characters; give it one with NAME=PATH",
				 spec, IB_MEMREG_BLK_EXPORT_MAX);
	if (!strncmp(rest, MEMORY_PREFIX, strlen(MEMORY_PREFIX))) {
		ret = open_memory(e, rest + strlen(MEMORY_PREFIX));
	} else {
		e->path = rest;
		ret = open_path(e, exports, options);
	}
	if (ret != EXIT_GOOD)
		return ret;
	set_flags(e, options);
	set_instance(e);
	return set_sizes(e);
}

int export_register(struct export *e, struct memreg *m, uint32_t domain)
{
	if (e->kind != EXPORT_MEMORY)
		return EXIT_GOOD;
	if (memreg_mr_register(m, domain, e->memory, e->mr.length,
			       IB_MEMREG_ACCESS_LOCAL_WRITE, 0, &e->mr)) {
		e->mr.id = 0;
		return fail("%s: %s", e->name, memreg_reason());
	}
	return EXIT_GOOD;
}

void export_close(struct export *e)
{
	while (e->nr_fds)
		close(e->fds[--e->nr_fds]);
	free(e->fds);
	if (e->fd >= 0)
		close(e->fd);
	if (e->memory)
		munmap(e->memory, e->mr.length);
}
