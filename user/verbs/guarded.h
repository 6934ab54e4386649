/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Registrations of programs that know nothing of memreg: see interpose.c */
#ifndef MEMREG_VERBS_GUARDED_H
#define MEMREG_VERBS_GUARDED_H

#include <pthread.h>
#include <stdbool.h>

#include "export.h"
#include "memreg.h"

struct device;

/**
 * struct guard - How a registration is guarded or watched
 * @device: Handle of memreg that it is made in; NULL if it is neither
 * @verbs: What is registered in the program's protection domain, if it is
 *	guarded
 * @memory: MR of memreg that pins the memory
 * @export: Export of @memory; 0 if the registration is only watched
 * @watch: Invalid once the mapping has changed
 */
struct guard {
	struct device *device;
	struct memreg_export_mr verbs;
	uint32_t memory;
	uint32_t export;
	struct memreg_watch watch;
};

/**
 * struct reg - A registration
 * @mr: What the program gets if it is guarded. First, so that providers that
 *	look behind it find memory
 * @shown: What the program has got: @mr, or what libibverbs has made
 * @next: Next one in the table
 * @access: Access flags
 * @iova: First I/O address
 * @guard: How it is guarded or watched
 */
struct reg {
	struct ibv_mr mr;
	struct guard guard;
	struct ibv_mr *shown;
	struct reg *next;
	unsigned int access;
	uint64_t iova;
};

/**
 * struct request - What a program asks for
 * @pd: Protection domain
 * @addr: First byte
 * @length: Bytes
 * @iova: First I/O address
 * @access: Access flags
 */
struct request {
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint64_t iova;
	unsigned int access;
};

/* Protects the table and the list of devices; not held over a registration */
extern pthread_mutex_t verbs_lock;

/* Registrations by what the program has got: add, and remove or return NULL */
void table_add(struct reg *reg);
struct reg *table_take(const struct ibv_mr *mr);
/* Number of registrations in the table whose memory has changed */
uint64_t table_stale(void);

/*
 * Print one line on stderr, once in the life of a process: what is not guarded,
 * and why.
 */
void say(const char *what, const char *why);

/*
 * Guard memory and register it, or only watch memory that is registered
 * afterwards. Return 0, or -errno after say(); then @guard holds nothing.
 */
int guard_make(struct guard *guard, const struct request *r,
	       typeof(ibv_reg_dmabuf_mr) *reg_dmabuf);
int guard_watch(struct guard *guard, const struct request *r);

/* Has the memory changed? */
bool guard_is_stale(const struct guard *guard);

/* Give up what memreg has, once @guard->verbs is deregistered. */
void guard_end(struct guard *guard);

/* In a child process after fork(2): the handles are the parent's. */
void guard_forget_all(void);

#endif /* MEMREG_VERBS_GUARDED_H */
