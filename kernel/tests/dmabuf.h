/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls of /dev/ib_memreg_dmabuf_test: an exporter and an importer of dma-bufs,
 * for tests. memreg imports dma-bufs of the exporter; the importer imports
 * those of memreg.
 */
#ifndef _MEMREG_TESTS_DMABUF_H
#define _MEMREG_TESTS_DMABUF_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * enum memreg_fake_flags - Properties of an exporter
 * @MEMREG_FAKE_STATIC: It has no pin, and never takes anything away.
 * @MEMREG_FAKE_NO_VMAP: It has no mapping for the kernel.
 * @MEMREG_FAKE_IOMEM: Its mapping for the kernel is of I/O memory.
 * @MEMREG_FAKE_NOISY: It notifies importers while one of them pins.
 * @MEMREG_FAKE_SHORT: It maps a page less for devices than it has.
 * @MEMREG_FAKE_ODD: It maps its memory for devices in pieces of odd lengths.
 * @MEMREG_FAKE_READ_ONLY: The descriptor is not open for writing.
 * @MEMREG_FAKE_REVOKES: As MEMREG_FAKE_STATIC, but it takes its memory away,
 *	and refuses importers that it cannot notify, as vfio-pci does.
 */
enum memreg_fake_flags {
	MEMREG_FAKE_STATIC = 1 << 0,
	MEMREG_FAKE_NO_VMAP = 1 << 1,
	MEMREG_FAKE_IOMEM = 1 << 2,
	MEMREG_FAKE_NOISY = 1 << 3,
	MEMREG_FAKE_SHORT = 1 << 4,
	MEMREG_FAKE_ODD = 1 << 5,
	MEMREG_FAKE_READ_ONLY = 1 << 6,
	MEMREG_FAKE_REVOKES = 1 << 7,
};

/**
 * enum memreg_fake_callback - Callbacks that can be made to fail
 * @MEMREG_FAKE_ATTACH: attach
 * @MEMREG_FAKE_PIN: pin
 * @MEMREG_FAKE_MAP: map_dma_buf
 */
enum memreg_fake_callback {
	MEMREG_FAKE_ATTACH = 1 << 0,
	MEMREG_FAKE_PIN = 1 << 1,
	MEMREG_FAKE_MAP = 1 << 2,
};

/**
 * struct memreg_fake_export - Make a dma-buf
 * @length: Bytes
 * @flags: enum memreg_fake_flags
 * @out_fd: Its descriptor; it can be mapped shared
 */
struct memreg_fake_export {
	__u64 length;
	__u32 flags;
	__s32 out_fd;
};

#define MEMREG_FAKE_IOC_EXPORT						\
	_IOWR(0xBC, 0x40, struct memreg_fake_export)

/**
 * enum memreg_fake_op - Operations of an exporter
 * @MEMREG_FAKE_LOOK: Nothing
 * @MEMREG_FAKE_FAIL: Have the callbacks in @arg fail with @err from now on.
 * @MEMREG_FAKE_MOVE: Take the memory away from all, and put what is in it
 *	elsewhere.
 * @MEMREG_FAKE_UNPLUG: Take the memory away for good.
 * @MEMREG_FAKE_BUSY: Begin a move of the memory, with a fence.
 * @MEMREG_FAKE_IDLE: End the move.
 */
enum memreg_fake_op {
	MEMREG_FAKE_LOOK,
	MEMREG_FAKE_FAIL,
	MEMREG_FAKE_MOVE,
	MEMREG_FAKE_UNPLUG,
	MEMREG_FAKE_BUSY,
	MEMREG_FAKE_IDLE,
};

/**
 * struct memreg_fake_control - A call that makes an exporter act
 * @fd: dma-buf of the exporter
 * @op: enum memreg_fake_op
 * @arg: Argument of @op
 * @err: Errno for @op
 * @out_attached: Number of attached importers afterwards
 * @out_pinned: Number of importers that have pinned the memory
 * @out_mapped: Number of importers that have mapped it for devices
 * @out_vmapped: 1 if the kernel has mapped it
 * @out_at_once: No importer had the memory any more when the notifications
 *	returned
 * @out_ms: Milliseconds until no importer had the memory
 *
 * Errors: EINVAL; ETIMEDOUT if an importer kept the memory for a minute, and
 * has it still.
 */
struct memreg_fake_control {
	__s32 fd;
	__u32 op;
	__u32 arg;
	__s32 err;
	__u32 out_attached;
	__u32 out_pinned;
	__u32 out_mapped;
	__u32 out_vmapped;
	__u32 out_at_once;
	__u32 out_ms;
};

#define MEMREG_FAKE_IOC_CONTROL						\
	_IOWR(0xBC, 0x41, struct memreg_fake_control)

/**
 * enum memreg_fake_let_go - What an importer does on ->invalidate_mappings()
 * @MEMREG_FAKE_NEVER_TOLD: It is not told; being told is a fault of the exporter
 * @MEMREG_FAKE_AT_ONCE: It unmaps the memory before it returns.
 * @MEMREG_FAKE_LATE: It unmaps the memory when its file is closed.
 */
enum memreg_fake_let_go {
	MEMREG_FAKE_NEVER_TOLD,
	MEMREG_FAKE_AT_ONCE,
	MEMREG_FAKE_LATE,
};

/**
 * struct memreg_fake_import - Import a dma-buf, once for each open file
 * @fd: The dma-buf
 * @dynamic: Be notified, and pin
 * @write: Map it for writing
 * @let_go: enum memreg_fake_let_go; for @dynamic
 *
 * Attach, pin, map for a device and for the kernel; closing the file undoes it.
 */
struct memreg_fake_import {
	__s32 fd;
	__u32 dynamic;
	__u32 write;
	__u32 let_go;
};

#define MEMREG_FAKE_IOC_IMPORT						\
	_IOWR(0xBC, 0x42, struct memreg_fake_import)

/**
 * struct memreg_fake_access - Reach what was imported
 * @write: Write it, otherwise read it
 * @kernel: Use the kernel mapping, otherwise the DMA addresses
 * @seed: The first byte; each other one is one more than that before it
 * @out_wrong: Bytes that were not so
 */
struct memreg_fake_access {
	__u32 write;
	__u32 kernel;
	__u32 seed;
	__u32 out_wrong;
};

#define MEMREG_FAKE_IOC_ACCESS						\
	_IOWR(0xBC, 0x43, struct memreg_fake_access)

/**
 * struct memreg_fake_hold - Hold the dma_resv of a dma-buf
 * @fd: The dma-buf
 * @ms: For how long, in milliseconds
 */
struct memreg_fake_hold {
	__s32 fd;
	__u32 ms;
};

#define MEMREG_FAKE_IOC_HOLD						\
	_IOW(0xBC, 0x44, struct memreg_fake_hold)

#ifdef __KERNEL__
struct device;
struct dma_buf;

long memreg_fake_export(struct memreg_fake_export *cmd);
long memreg_fake_control(struct memreg_fake_control *cmd);

struct memreg_importer;

struct memreg_importer *memreg_importer_new(void);
void memreg_importer_free(struct memreg_importer *importer);
long memreg_importer_import(struct memreg_importer *importer,
			    struct device *dev,
			    const struct memreg_fake_import *cmd);
long memreg_importer_access(struct memreg_importer *importer,
			    struct memreg_fake_access *cmd);
long memreg_importer_hold(const struct memreg_fake_hold *cmd);
#endif

#endif /* _MEMREG_TESTS_DMABUF_H */
