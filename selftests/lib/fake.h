/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dma-bufs that memreg does not export: those of udmabuf, of the system heap,
 * and of a module of the tests, kernel/tests/, which can take them away.
 *
 * Functions return a descriptor or 0, or -errno.
 */
#ifndef SELFTESTS_FAKE_H
#define SELFTESTS_FAKE_H

#include <stdbool.h>
#include <stddef.h>

#include "../../kernel/tests/dmabuf.h"

/*
 * Load the module and open its device. Returns -ENOENT if the module was not
 * built.
 */
int fake_open(void);
int fake_export(int fake, size_t length, __u32 flags);
/*
 * Control an exported dma-buf. @state may be NULL; it is filled in also by a
 * call that fails.
 */
int fake_control(int fake, int dmabuf, __u32 op,
		 struct memreg_fake_control *state);
int fake_fail(int fake, int dmabuf, __u32 callbacks, int err);
/* One for each fake_open(). */
int fake_import(int fake, int dmabuf, bool dynamic, bool write);
/* Import an export, which ends; @let_go is enum memreg_fake_let_go. */
int fake_import_export(int fake, int dmabuf, __u32 let_go);
/* Hold the dma_resv of a dma-buf for some milliseconds. */
int fake_hold(int fake, int dmabuf, __u32 ms);
/* Bytes that were wrong, or -errno */
int fake_read(int fake, bool kernel, unsigned int seed);
int fake_write(int fake, bool kernel, unsigned int seed);

int udmabuf_export(size_t length);
int heap_export(size_t length);

#endif /* SELFTESTS_FAKE_H */
