// SPDX-License-Identifier: GPL-2.0-only
/* dma-bufs that memreg does not export; see fake.h. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "fake.h"

#define MODULE		"ib_memreg_dmabuf_test"

/* This program is build/selftests/NAME. */
static int fake_load(void)
{
	char exe[PATH_MAX] = "", path[PATH_MAX + 256];
	struct utsname host;
	int fd, ret;

	uname(&host);
	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
		return -errno;
	snprintf(path, sizeof(path), "%s/../kernel-%s/" MODULE ".ko",
		 dirname(exe), host.release);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST ?
	      -errno : 0;
	close(fd);
	return ret;
}

int fake_open(void)
{
	int fd = open("/dev/" MODULE, O_RDWR | O_CLOEXEC);
	int ret;

	if (fd >= 0)
		return fd;
	ret = fake_load();
	if (ret)
		return ret;
	fd = open("/dev/" MODULE, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int fake_export(int fake, size_t length, __u32 flags)
{
	struct memreg_fake_export cmd = { .length = length, .flags = flags };

	return ioctl(fake, MEMREG_FAKE_IOC_EXPORT, &cmd) ? -errno : cmd.out_fd;
}

int fake_control(int fake, int dmabuf, __u32 op,
		 struct memreg_fake_control *state)
{
	struct memreg_fake_control cmd = { .fd = dmabuf, .op = op };
	int ret = ioctl(fake, MEMREG_FAKE_IOC_CONTROL, &cmd) ? -errno : 0;

	if (state)
		*state = cmd;
	return ret;
}

int fake_fail(int fake, int dmabuf, __u32 callbacks, int err)
{
	struct memreg_fake_control cmd = {
		.fd = dmabuf,
		.op = MEMREG_FAKE_FAIL,
		.arg = callbacks,
		.err = err,
	};

	return ioctl(fake, MEMREG_FAKE_IOC_CONTROL, &cmd) ? -errno : 0;
}

int fake_import(int fake, int dmabuf, bool dynamic, bool write)
{
	struct memreg_fake_import cmd = {
		.fd = dmabuf,
		.dynamic = dynamic,
		.write = write,
	};

	return ioctl(fake, MEMREG_FAKE_IOC_IMPORT, &cmd) ? -errno : 0;
}

int fake_import_export(int fake, int dmabuf, __u32 let_go)
{
	struct memreg_fake_import cmd = {
		.fd = dmabuf,
		.dynamic = true,
		.write = true,
		.let_go = let_go,
	};

	return ioctl(fake, MEMREG_FAKE_IOC_IMPORT, &cmd) ? -errno : 0;
}

int fake_hold(int fake, int dmabuf, __u32 ms)
{
	struct memreg_fake_hold cmd = { .fd = dmabuf, .ms = ms };

	return ioctl(fake, MEMREG_FAKE_IOC_HOLD, &cmd) ? -errno : 0;
}

static int fake_access(int fake, bool write, bool kernel, unsigned int seed)
{
	struct memreg_fake_access cmd = {
		.write = write,
		.kernel = kernel,
		.seed = seed,
	};

	return ioctl(fake, MEMREG_FAKE_IOC_ACCESS, &cmd) ? -errno :
	       (int)cmd.out_wrong;
}

int fake_read(int fake, bool kernel, unsigned int seed)
{
	return fake_access(fake, false, kernel, seed);
}

int fake_write(int fake, bool kernel, unsigned int seed)
{
	return fake_access(fake, true, kernel, seed);
}

int udmabuf_export(size_t length)
{
	struct udmabuf_create cmd = { .size = length };
	int dev, ret = -1;

	dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	if (dev < 0)
		return -errno;
	cmd.memfd = memfd_create("udmabuf", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	if (!ftruncate(cmd.memfd, (off_t)length) &&
	    !fcntl(cmd.memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		ret = ioctl(dev, UDMABUF_CREATE, &cmd);
	ret = ret < 0 ? -errno : ret;
	close(cmd.memfd);
	close(dev);
	return ret;
}

int heap_export(size_t length)
{
	struct dma_heap_allocation_data cmd = {
		.len = length,
		.fd_flags = O_RDWR | O_CLOEXEC,
	};
	int heap, ret;

	heap = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC);
	if (heap < 0)
		return -errno;
	ret = ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &cmd) ? -errno : (int)cmd.fd;
	close(heap);
	return ret;
}
