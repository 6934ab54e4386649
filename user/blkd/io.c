// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Commands on a file, a disk, or memory.
 *
 * When data could not be written back, Linux reports the error once to each
 * open file, at its next sync of any range; the pages are clean then, and later
 * syncs succeed. With a cache, acknowledged data may be among those pages, so
 * the server marks the export as lost. From then on every command that needs
 * stable data fails at once. Each thread opens the files by itself: of two
 * threads that share one, only the first would see the error, and the second
 * might answer before the export is lost. On a file of its own a thread sees
 * the error itself, or saw it before, and then the export is lost already. A
 * lock around each sync would do as well, but would serialise writes with FUA,
 * or with --no-cache. (A disk that fails to empty its own cache leaves no such
 * record: the thread that gets the error makes the export lost, and a FLUSH
 * that ends at that very moment may succeed.)
 *
 * Without a cache no acknowledged data is lost. A command that fails is
 * executed once more, as the error may be that of another command, which this
 * file had not reported yet.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "blkd.h"

/* Zeros, for media that cannot zero a range by themselves */
#define ZEROS	65536

/* Most bytes that are copied in memory without a thread */
#define QUICK	65536

static int status_of(int err)
{
	return err == ENOSPC || err == EDQUOT || err == EFBIG ?
		IB_MEMREG_BLK_NO_SPACE : IB_MEMREG_BLK_IO;
}

static int read_all(int fd, char *data, uint64_t length, uint64_t offset)
{
	while (length) {
		ssize_t n = pread(fd, data, length, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return status_of(errno);
		if (!n)		/* it has shrunk meanwhile */
			return IB_MEMREG_BLK_RANGE;
		data += n;
		offset += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return IB_MEMREG_BLK_OK;
}

static int write_all(int fd, const char *data, uint64_t length, uint64_t offset,
		     int flags)
{
	while (length) {
		struct iovec iov = { (void *)(uintptr_t)data, length };
		ssize_t n = pwritev2(fd, &iov, 1, (off_t)offset, flags);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? status_of(errno) : IB_MEMREG_BLK_IO;
		data += n;
		offset += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return IB_MEMREG_BLK_OK;
}

static int sync_data(int fd)
{
	int ret;

	do {
		ret = fd < 0 ? 0 : fdatasync(fd);
	} while (ret && errno == EINTR);
	return ret ? status_of(errno) : IB_MEMREG_BLK_OK;
}

/*
 * Is a command beyond the end of a medium that was made shorter while it was
 * served? A write would make a file longer again, and fail on a disk as if
 * space had run out. The medium may still become shorter before the write.
 */
static bool beyond_end(const struct export *e, const struct cmd *c)
{
	int64_t size = e->kind == EXPORT_MEMORY ? -1 : export_size(e);

	return size >= 0 && c->offset + c->length > (uint64_t)size;
}

static int write_zeros(int fd, uint64_t length, uint64_t offset)
{
	static const char zeros[ZEROS];
	int ret = IB_MEMREG_BLK_OK;

	while (length && ret == IB_MEMREG_BLK_OK) {
		uint64_t n = length < ZEROS ? length : ZEROS;

		ret = write_all(fd, zeros, n, offset, 0);
		offset += n;
		length -= n;
	}
	return ret;
}

static bool allocate(int fd, const struct cmd *c, int mode)
{
	return !fallocate(fd, mode | FALLOC_FL_KEEP_SIZE, (off_t)c->offset,
			  (off_t)c->length);
}

static bool range_ioctl(int fd, const struct cmd *c, unsigned long request)
{
	uint64_t range[2] = { c->offset, c->length };

	return !ioctl(fd, request, range);
}

/*
 * Punch a hole if the client allows that, as that costs least; otherwise zero
 * the range and keep its space.
 */
static int zero(const struct export *e, int fd, const struct cmd *c)
{
	bool done;

	if (e->kind == EXPORT_MEMORY) {
		memset(e->memory + c->offset, 0, c->length);
		return IB_MEMREG_BLK_OK;
	}
	if (beyond_end(e, c))
		return IB_MEMREG_BLK_RANGE;
	if (e->kind == EXPORT_DISK)
		done = range_ioctl(fd, c, BLKZEROOUT);
	else
		done = (!(c->flags & IB_MEMREG_BLK_NO_UNMAP) &&
			allocate(fd, c, FALLOC_FL_PUNCH_HOLE)) ||
		       allocate(fd, c, FALLOC_FL_ZERO_RANGE);
	return done ? IB_MEMREG_BLK_OK : write_zeros(fd, c->length, c->offset);
}

/* Zero a range, and sync it for FUA or if the medium has no cache. */
static int do_zeroes(const struct export *e, int fd, const struct cmd *c)
{
	int ret = zero(e, fd, c);

	if (ret == IB_MEMREG_BLK_OK &&
	    (c->flags & IB_MEMREG_BLK_FUA ||
	     !(e->flags & IB_MEMREG_BLK_WRITE_CACHE)))
		ret = sync_data(fd);
	return ret;
}

/* A medium that can't discard keeps the data, which is allowed */
static int do_discard(const struct export *e, int fd, const struct cmd *c)
{
	bool done = e->kind == EXPORT_DISK ?
		    range_ioctl(fd, c, BLKDISCARD) :
		    allocate(fd, c, FALLOC_FL_PUNCH_HOLE);

	if (done || errno == EOPNOTSUPP || errno == EINVAL)
		return IB_MEMREG_BLK_OK;
	return status_of(errno);
}

static int do_write(const struct export *e, int fd, const struct cmd *c)
{
	if (e->kind == EXPORT_MEMORY) {
		memcpy(e->memory + c->offset, c->data, c->length);
		return IB_MEMREG_BLK_OK;
	}
	if (beyond_end(e, c))
		return IB_MEMREG_BLK_RANGE;
	return write_all(fd, c->data, c->length, c->offset,
			 c->flags & IB_MEMREG_BLK_FUA ? RWF_DSYNC : 0);
}

static int do_cmd(const struct export *e, int fd, const struct cmd *c)
{
	switch (c->opcode) {
	case IB_MEMREG_BLK_READ:
		return read_all(fd, c->data, c->length, c->offset);
	case IB_MEMREG_BLK_WRITE:
		return do_write(e, fd, c);
	case IB_MEMREG_BLK_FLUSH:
		return sync_data(fd);
	case IB_MEMREG_BLK_DISCARD:
		return do_discard(e, fd, c);
	case IB_MEMREG_BLK_WRITE_ZEROES:
		return do_zeroes(e, fd, c);
	default:
		return IB_MEMREG_BLK_OK;
	}
}

/*
 * Failed syncs
 */

/* May data be lost that was answered? */
static bool can_lose(const struct export *e)
{
	return e->kind != EXPORT_MEMORY &&
	       e->flags & IB_MEMREG_BLK_WRITE_CACHE &&
	       !(e->flags & IB_MEMREG_BLK_READ_ONLY);
}

static bool is_lost(const struct export *e)
{
	return __atomic_load_n(&e->lost, __ATOMIC_ACQUIRE);
}

static void lose(struct export *e)
{
	if (is_lost(e))
		return;
	__atomic_store_n(&e->lost, true, __ATOMIC_RELEASE);
	fail("export %s: some of what was written to %s is lost. Serve it anew when it works again, then disable and enable its clients. Until then each FLUSH and FUA fails",
	     e->name, e->path);
}

/*
 * A command failed. That may have been all, as when there is no space for it;
 * or the error was that other data was not written back. Look at a file on
 * which nothing else is synced, which reports that error as well. A second
 * caller waits until the export is lost, if it is.
 */
static void find_out(struct export *e, const struct cmd *c)
{
	if (!can_lose(e))
		return;
	pthread_mutex_lock(&e->lock);
	if (c->opcode == IB_MEMREG_BLK_FLUSH || sync_data(e->fd))
		lose(e);
	pthread_mutex_unlock(&e->lock);
}

int io_do(struct export *e, int fd, const struct cmd *c)
{
	bool flush = c->opcode == IB_MEMREG_BLK_FLUSH;
	bool safe = can_lose(e) && (flush || c->flags & IB_MEMREG_BLK_FUA);
	int ret;

	if (!c->length && !flush)
		return IB_MEMREG_BLK_OK;
	if (safe && is_lost(e))
		return IB_MEMREG_BLK_IO;
	ret = do_cmd(e, fd, c);
	if (!flush && !cmd_changes(c))
		return ret;
	if (ret == IB_MEMREG_BLK_IO && !can_lose(e))
		ret = do_cmd(e, fd, c);
	if (ret != IB_MEMREG_BLK_OK && ret != IB_MEMREG_BLK_RANGE)
		find_out(e, c);
	else if (safe && is_lost(e))
		ret = IB_MEMREG_BLK_IO;
	return ret;
}

bool io_end(struct export *e)
{
	if (can_lose(e) && sync_data(e->fd))
		lose(e);
	return !is_lost(e);
}

/*
 * Without waiting
 */

/*
 * A read with RWF_NOWAIT still waits while another thread has the disk locked,
 * and starts reads of what is not cached, which needs an unchanged file. Only
 * threads of this server can hold that lock.
 */
static int try_read(const struct export *e, const struct cmd *c)
{
	struct iovec iov = { c->data, c->length };

	if (__atomic_load_n(&e->exclusive, __ATOMIC_RELAXED))
		return -EAGAIN;
	return preadv2(e->fd, &iov, 1, (off_t)c->offset, RWF_NOWAIT) ==
	       (ssize_t)c->length ? IB_MEMREG_BLK_OK : -EAGAIN;
}

/*
 * Where the kernel doesn't know writes that don't wait, they may wait for a
 * disk that writes back, for a page that is read, or for an inode that a thread
 * has, and all clients of all exports with them. None is so short that it is
 * done here.
 */
static int try_write(struct export *e, const struct cmd *c)
{
	struct iovec iov = { c->data, c->length };
	ssize_t n;

	if (!can_lose(e) || e->no_nowait || c->flags & IB_MEMREG_BLK_FUA)
		return -EAGAIN;
	if (beyond_end(e, c))
		return IB_MEMREG_BLK_RANGE;
	n = pwritev2(e->fd, &iov, 1, (off_t)c->offset, RWF_NOWAIT);
	if (n == (ssize_t)c->length)
		return IB_MEMREG_BLK_OK;
	if (n < 0 && errno == EOPNOTSUPP)
		e->no_nowait = true;
	return -EAGAIN;
}

int io_try(struct export *e, const struct cmd *c)
{
	if (e->kind == EXPORT_MEMORY && c->length <= QUICK)
		return io_do(e, -1, c);
	if (!c->length && c->opcode != IB_MEMREG_BLK_FLUSH)
		return IB_MEMREG_BLK_OK;
	if (c->opcode == IB_MEMREG_BLK_READ)
		return try_read(e, c);
	if (c->opcode == IB_MEMREG_BLK_WRITE)
		return try_write(e, c);
	return -EAGAIN;
}
