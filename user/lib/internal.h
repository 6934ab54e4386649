/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Declarations that the files of libmemreg share, not visible to its users */
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

/* Parameters of a failed call, to be named in the reason */
enum memreg__subject {
	MEMREG__NOTHING,
	MEMREG__IDS,
	MEMREG__NUMBER,
	MEMREG__DEVICE,
	MEMREG__ADDRESS,
	MEMREG__MEMORY,
};

#define MEMREG__IDS_MAX	3

/*
 * Why a call of this thread failed. @what, @text, @hint and the nouns are
 * constants: the line is put together when somebody asks, since a call that
 * fails with EAGAIN may be part of a fast path.
 */
struct memreg__failure {
	uint32_t code;		/* enum ib_memreg_reason */
	int err;		/* negative; 0 if no call has failed */
	const char *what;	/* the name of the call */
	const char *text;	/* what is wrong */
	const char *hint;	/* what to do about it, or NULL */
	enum memreg__subject subject;
	const char *noun[MEMREG__IDS_MAX];
	uint64_t value[MEMREG__IDS_MAX];
	uint32_t access;	/* of memory */
	struct ib_memreg_addr address;
	char name[IB_MEMREG_DEVICE_NAME_MAX];
};

/*
 * Do an ioctl whose argument begins with size and out_reason, as all of ours
 * do. @what is the name of the call in the reason, should it fail.
 */
int memreg__call(int fd, unsigned long request, void *arg, const char *what);

/*
 * The same for undoing what a failing call has made: the reason does not
 * change.
 */
void memreg__undo(int fd, unsigned long request, void *arg);

/* Set the reason of this thread in our own words; returns @err, negative */
int memreg__fail(const char *what, int err, const char *text);

/* Set the reason of this thread from the kernel's code; returns @err */
int memreg__fail_code(const char *what, int err, uint32_t code);

/*
 * Record the parameters of the call that has just failed. Each returns @err,
 * and does nothing if that is 0. A noun that is NULL, or an id that is 0, is
 * left out.
 */
int memreg__about_ids(int err, const char *noun1, uint64_t id1,
		      const char *noun2, uint64_t id2, const char *noun3,
		      uint64_t id3);
int memreg__about_id(int err, const char *noun, uint32_t id);
int memreg__about_number(int err, const char *noun, uint64_t value);
int memreg__about_device(int err, const char *name);
int memreg__about_address(int err, const struct ib_memreg_addr *addr);
int memreg__about_memory(int err, const void *addr, uint64_t length,
			 uint32_t access);

/* State that of the causes of its code the last failure has this one. */
void memreg__because(const char *text, const char *hint);

/* Why the last call of this thread that failed did so; and that put back */
const struct memreg__failure *memreg__last(void);
void memreg__restore(const struct memreg__failure *f);

/* Open the device node; a descriptor or a negative errno, with reason */
int memreg__open_node(const char *what);

/* Flags of queues, with those that the environment adds */
uint32_t memreg__queues_flags(uint32_t flags);

/* handle.c: as memreg_query_cap(), without a reason if it fails */
bool memreg__has_cap(struct memreg *m, uint32_t cap, uint64_t *value);

/* status.c: access to a status table for cache.c and mr.c */
/*
 * Is a table out of use: because the device was removed, or the program has
 * closed the descriptors of its handle?
 */
bool memreg__status_is_dead(const struct memreg_status *status);
uint32_t memreg__status_id(const struct memreg_status *status);
void memreg__watch_slot(const struct memreg_status *status, uint32_t slot,
			uint64_t generation, struct memreg_watch *watch);
uint64_t memreg__status_group(const struct memreg_status *status,
			      uint32_t group);

/* device.c: as memreg_list_devices(), without a reason if it fails */
int memreg__list_devices(struct memreg_device *devices, unsigned int *count);

/*
 * pool.c: as memreg_pool_create(). If @at is not NULL, the buffers are mapped
 * there, over address space that the caller has reserved and that is reserved
 * again when they go.
 */
int memreg__pool_create_at(struct memreg *m, uint32_t domain,
			   const struct memreg_pool_attr *attr, void *at,
			   struct memreg_pool **out);

/* memory.c: mmap() without access, in place of what is there if @at is given */
void *memreg__reserve(void *at, size_t length);

#endif /* MEMREG_INTERNAL_H */
