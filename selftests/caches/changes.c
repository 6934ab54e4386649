// SPDX-License-Identifier: GPL-2.0-only
/* Changes that applications make to their mappings */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "app.h"

#define READ_WRITE	(PROT_READ | PROT_WRITE)

static bool is_of_file(enum change what)
{
	return what == CHANGE_HOLE || what == CHANGE_TRUNCATE;
}

static int open_file(struct place *p, bool huge)
{
	p->fd = memfd_create("place", MFD_CLOEXEC | (huge ? MFD_HUGETLB : 0));
	return p->fd < 0 || ftruncate(p->fd, p->length) ? -errno : 0;
}

int place_map(struct place *p, enum change what, bool huge)
{
	*p = (struct place){
		.length = huge ? HUGE_LENGTH : SMALL_LENGTH,
		.fd = -1,
		.flags = MAP_PRIVATE | MAP_ANONYMOUS,
	};
	if (is_of_file(what)) {
		int ret = open_file(p, huge);

		if (ret)
			return ret;
		p->flags = MAP_SHARED;
	} else if (huge) {
		p->flags |= MAP_HUGETLB;
	}
	p->at = mmap(NULL, p->length, READ_WRITE, p->flags, p->fd, 0);
	return p->at == MAP_FAILED ? -errno : 0;
}

static int map_over(struct place *p)
{
	return mmap(p->at, p->length, READ_WRITE, p->flags | MAP_FIXED, p->fd,
		    0) == p->at ? 0 : -errno;
}

static int change_libc(struct place *p)
{
	return munmap(p->at, p->length) ? -errno : map_over(p);
}

static int change_raw(struct place *p)
{
	if (syscall(SYS_munmap, p->at, p->length) ||
	    syscall(SYS_mmap, p->at, p->length, READ_WRITE,
		    p->flags | MAP_FIXED, p->fd, 0) != (long)p->at)
		return -errno;
	return 0;
}

static void *change_raw_in_thread(void *arg)
{
	return (void *)(long)change_raw(arg);
}

static int change_by_thread(struct place *p)
{
	pthread_t thread;
	void *ret;

	if (pthread_create(&thread, NULL, change_raw_in_thread, p) ||
	    pthread_join(thread, &ret))
		return -EAGAIN;
	return (int)(long)ret;
}

static char *map_elsewhere(struct place *p)
{
	char *at = mmap(NULL, p->length, READ_WRITE, p->flags, p->fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

static int change_away(struct place *p)
{
	p->aside = map_elsewhere(p);
	if (!p->aside || mremap(p->at, p->length, p->length, MREMAP_MAYMOVE |
				MREMAP_FIXED, p->aside) != p->aside)
		return -errno;
	return map_over(p);
}

static int change_onto(struct place *p)
{
	char *from = map_elsewhere(p);

	if (!from)
		return -errno;
	from[0] = 1;
	return mremap(from, p->length, p->length, MREMAP_MAYMOVE | MREMAP_FIXED,
		      p->at) == p->at ? 0 : -errno;
}

static int change_dontneed(struct place *p)
{
	return syscall(SYS_madvise, p->at, p->length, MADV_DONTNEED) ? -errno :
								      0;
}

static int change_hole(struct place *p)
{
	return fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			 p->length) ? -errno : 0;
}

static int change_truncate(struct place *p)
{
	return ftruncate(p->fd, 0) || ftruncate(p->fd, p->length) ? -errno : 0;
}

/* Execute this program again, in a mode in which it only waits: see app.c. */
static int change_exec(struct place *p)
{
	(void)p;
	execl("/proc/self/exe", "app", "--idle", NULL);
	return -errno;
}

static int change_exit(struct place *p)
{
	(void)p;
	_exit(0);
}

int place_change(struct place *p, enum change what)
{
	static int (*const changes[])(struct place *p) = {
		[CHANGE_LIBC] = change_libc,
		[CHANGE_RAW] = change_raw,
		[CHANGE_THREAD] = change_by_thread,
		[CHANGE_AWAY] = change_away,
		[CHANGE_ONTO] = change_onto,
		[CHANGE_FIXED] = map_over,
		[CHANGE_DONTNEED] = change_dontneed,
		[CHANGE_HOLE] = change_hole,
		[CHANGE_TRUNCATE] = change_truncate,
		[CHANGE_EXEC] = change_exec,
		[CHANGE_EXIT] = change_exit,
	};

	return what < CHANGES_MAX ? changes[what](p) : -EINVAL;
}

void place_unmap(struct place *p)
{
	if (p->at)
		munmap(p->at, p->length);
	if (p->aside)
		munmap(p->aside, p->length);
	if (p->fd >= 0)
		close(p->fd);
	*p = (struct place){ .fd = -1 };
}
