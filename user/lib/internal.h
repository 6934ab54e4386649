/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files of libmemreg share and nobody else sees */
#ifndef MEMREG_INTERNAL_H
#define MEMREG_INTERNAL_H

#include "memreg.h"

/* Exported: stands before each function of memreg.h, and in libmemreg.map */
#define EXPORT __attribute__((visibility("default")))

struct memreg {
	int fd;
};

static inline uint64_t to_u64(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/*
 * Do an ioctl whose argument begins with size and out_reason, as all of ours
 * do. @what is the name of the call in the reason, should it fail.
 */
int memreg__call(int fd, unsigned long request, void *arg, const char *what);

/* The same for taking back what was just made: the reason stays as it is */
void memreg__undo(int fd, unsigned long request, void *arg);

/* Set the reason of this thread in our own words; returns @err, negative */
int memreg__fail(const char *what, int err, const char *text);

/* Set the reason of this thread from the kernel's code; returns @err */
int memreg__fail_code(const char *what, int err, uint32_t code);

/* Open the device node; a descriptor or a negative errno, with reason */
int memreg__open_node(const char *what);

/* Flags of queues, with what the environment adds to them */
uint32_t memreg__queues_flags(uint32_t flags);

#endif /* MEMREG_INTERNAL_H */
