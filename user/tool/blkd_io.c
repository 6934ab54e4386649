// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Commands on a file, a disk, or memory */
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

/* Zeros that are written where nothing else makes them */
#define ZEROS	65536

/* What is copied in memory without a thread */
#define QUICK	65536

static int status_of(int err)
{
	return err == ENOSPC || err == EDQUOT || err == EFBIG ?
		IB_MEMREG_BLK_NO_SPACE : IB_MEMREG_BLK_IO;
}

static int read_all(const struct export *e, char *data, uint64_t length,
		    uint64_t offset)
{
	while (length) {
		ssize_t n = pread(e->fd, data, length, (off_t)offset);

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

static int write_all(const struct export *e, const char *data, uint64_t length,
		     uint64_t offset, int flags)
{
	while (length) {
		struct iovec iov = { (void *)(uintptr_t)data, length };
		ssize_t n = pwritev2(e->fd, &iov, 1, (off_t)offset, flags);

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

static int sync_data(const struct export *e)
{
	return e->fd >= 0 && fdatasync(e->fd) ? status_of(errno) :
						IB_MEMREG_BLK_OK;
}

/*
 * The file was made shorter since its size was looked at: a write would make it
 * longer again. It may still become shorter between this and the write.
 */
static bool beyond_end(const struct export *e, const struct cmd *c)
{
	struct stat st;

	return e->kind == EXPORT_FILE && !fstat(e->fd, &st) &&
	       c->offset + c->length > (uint64_t)st.st_size;
}

static int write_zeros(const struct export *e, uint64_t length, uint64_t offset)
{
	static const char zeros[ZEROS];
	int ret = IB_MEMREG_BLK_OK;

	while (length && ret == IB_MEMREG_BLK_OK) {
		uint64_t n = length < ZEROS ? length : ZEROS;

		ret = write_all(e, zeros, n, offset, 0);
		offset += n;
		length -= n;
	}
	return ret;
}

static bool allocate(const struct export *e, const struct cmd *c, int mode)
{
	return !fallocate(e->fd, mode | FALLOC_FL_KEEP_SIZE, (off_t)c->offset,
			  (off_t)c->length);
}

static bool range_ioctl(const struct export *e, const struct cmd *c,
			unsigned long request)
{
	uint64_t range[2] = { c->offset, c->length };

	return !ioctl(e->fd, request, range);
}

/* If the space may go, a hole is the cheapest; then what keeps it */
static int zero(const struct export *e, const struct cmd *c)
{
	bool done;

	if (e->kind == EXPORT_MEMORY) {
		memset(e->memory + c->offset, 0, c->length);
		return IB_MEMREG_BLK_OK;
	}
	if (beyond_end(e, c))
		return IB_MEMREG_BLK_RANGE;
	if (e->kind == EXPORT_DISK)
		done = range_ioctl(e, c, BLKZEROOUT);
	else
		done = (!(c->flags & IB_MEMREG_BLK_NO_UNMAP) &&
			allocate(e, c, FALLOC_FL_PUNCH_HOLE)) ||
		       allocate(e, c, FALLOC_FL_ZERO_RANGE);
	return done ? IB_MEMREG_BLK_OK : write_zeros(e, c->length, c->offset);
}

/* Zeroed, with what FUA and a medium without a cache ask for */
static int do_zeroes(const struct export *e, const struct cmd *c)
{
	int ret = zero(e, c);

	if (ret == IB_MEMREG_BLK_OK &&
	    (c->flags & IB_MEMREG_BLK_FUA ||
	     !(e->flags & IB_MEMREG_BLK_WRITE_CACHE)))
		ret = sync_data(e);
	return ret;
}

/* What the medium can't give back it keeps: nobody can tell */
static int do_discard(const struct export *e, const struct cmd *c)
{
	bool done = e->kind == EXPORT_DISK ?
		    range_ioctl(e, c, BLKDISCARD) :
		    allocate(e, c, FALLOC_FL_PUNCH_HOLE);

	if (done || errno == EOPNOTSUPP || errno == EINVAL)
		return IB_MEMREG_BLK_OK;
	return status_of(errno);
}

static int do_write(const struct export *e, const struct cmd *c)
{
	if (e->kind == EXPORT_MEMORY) {
		memcpy(e->memory + c->offset, c->data, c->length);
		return IB_MEMREG_BLK_OK;
	}
	if (beyond_end(e, c))
		return IB_MEMREG_BLK_RANGE;
	return write_all(e, c->data, c->length, c->offset,
			 c->flags & IB_MEMREG_BLK_FUA ? RWF_DSYNC : 0);
}

int io_do(const struct export *e, const struct cmd *c)
{
	if (!c->length && c->opcode != IB_MEMREG_BLK_FLUSH)
		return IB_MEMREG_BLK_OK;
	switch (c->opcode) {
	case IB_MEMREG_BLK_READ:
		return read_all(e, c->data, c->length, c->offset);
	case IB_MEMREG_BLK_WRITE:
		return do_write(e, c);
	case IB_MEMREG_BLK_FLUSH:
		return sync_data(e);
	case IB_MEMREG_BLK_DISCARD:
		return do_discard(e, c);
	case IB_MEMREG_BLK_WRITE_ZEROES:
		return do_zeroes(e, c);
	default:
		return IB_MEMREG_BLK_OK;
	}
}

static int try_read(const struct export *e, const struct cmd *c)
{
	struct iovec iov = { c->data, c->length };

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

	if (c->flags & IB_MEMREG_BLK_FUA || e->fd < 0 || e->no_nowait ||
	    !(e->flags & IB_MEMREG_BLK_WRITE_CACHE))
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
		return io_do(e, c);
	if (!c->length && c->opcode != IB_MEMREG_BLK_FLUSH)
		return IB_MEMREG_BLK_OK;
	if (c->opcode == IB_MEMREG_BLK_READ)
		return try_read(e, c);
	if (c->opcode == IB_MEMREG_BLK_WRITE)
		return try_write(e, c);
	return -EAGAIN;
}
