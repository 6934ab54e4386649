/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Users that keep the memory behind a dma-buf: memreg list --memory */
#ifndef MEMREG_HOLDERS_H
#define MEMREG_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memreg.h"

enum holder_kind {
	HOLDER_MR,
	HOLDER_FD,
	HOLDER_MAPPING,
	HOLDER_KERNEL,		/* a dma-buf of which nothing else is known */
};

struct holder {
	enum holder_kind kind;
	uint64_t dmabuf;	/* number of its inode */
	int32_t pid;
	char comm[17];
	union {
		struct {
			uint32_t file;
			uint32_t id;
		} mr;
		uint32_t fd;
		struct {
			uint64_t start;
			uint64_t end;
		} mapping;
	};
};

struct memory_object {
	uint64_t dmabuf;
	uint64_t size;		/* 0 if unknown */
};

struct holders {
	struct holder *list;
	size_t count;
	size_t room;
	struct memory_object *memory;
	size_t memory_count;
	size_t memory_room;
};

/* Each returns an exit status. */
int holders_add_mr(struct holders *h, const struct ib_memreg_object *o);
/* All processes that can be looked at; call it when all MRs are there. */
int holders_find(struct holders *h);
void holders_print(struct holders *h, bool json);
void holders_free(struct holders *h);

#endif /* MEMREG_HOLDERS_H */
