/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the test programs share: calls of the raw ABI, which return 0 or
 * -errno, and looks at what is left behind. They go around libmemreg, so that
 * nothing stands between a test and the kernel.
 */
#ifndef MEMREG_FIXTURE_H
#define MEMREG_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <rdma/ib_memreg.h>

#include "mem.h"
#include "test.h"

#define NODE		"/dev/infiniband/memreg"

#define LOCAL_WRITE	IB_MEMREG_ACCESS_LOCAL_WRITE
#define REMOTE_WRITE	IB_MEMREG_ACCESS_REMOTE_WRITE
#define REMOTE_READ	IB_MEMREG_ACCESS_REMOTE_READ
#define REMOTE_ATOMIC	IB_MEMREG_ACCESS_REMOTE_ATOMIC
#define MW_BIND		IB_MEMREG_ACCESS_MW_BIND
#define ZERO_BASED	IB_MEMREG_ACCESS_ZERO_BASED
/* What windows of both kinds need, and what they allow */
#define FOR_WINDOWS	(LOCAL_WRITE | MW_BIND)
#define REMOTE_RW	(REMOTE_READ | REMOTE_WRITE)

/* What each argument of an ioctl begins with. */
struct raw_head {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
};

/* An argument of an ioctl with its size set; the rest follows. */
#define RAW(type, name, ...) \
	struct ib_memreg_##type name = { .size = sizeof(name), __VA_ARGS__ }

int raw_call(int fd, unsigned long num, void *arg);

/* A descriptor, or -errno. */
int raw_open(void);
int raw_open_bound(void);
/* On the peer's device, in the peer's network namespace. */
int raw_open_peer(void);

/* 0 or -errno. */
int raw_bind_device(int fd, const char *name);
int raw_cap(int fd, __u32 cap, __u64 *value);
int raw_stat(int fd, __u32 stat, __u64 *value);
int raw_domain(int fd, __u32 *domain);
int raw_destroy(int fd, __u32 id);
int raw_register(int fd, __u32 domain, void *addr, size_t length, __u32 access,
		 __u32 *mr);
/* A descriptor, or -errno. */
int raw_memory(int fd, size_t length, __u32 flags);
int raw_memory_dup(int fd, int memory);
int raw_register_fd(int fd, __u32 domain, int memory, __u64 offset,
		    __u64 length, __u32 access,
		    struct ib_memreg_mr_register *mr);
int raw_windows(int fd, __u32 domain, __u64 span, __u32 *ids, __u32 count);
int raw_bind(int fd, __u32 domain, struct ib_memreg_bind *binds, __u32 count);
int raw_revoke(int fd, __u32 domain, const __u32 *ids, __u32 count);
int raw_revoke_relaxed(int fd, __u32 domain, const __u32 *ids, __u32 count);

/**
 * struct status_map - A status table, mapped
 * @id: Its id
 * @fd: Its descriptor
 * @size: Bytes that are mapped
 * @head: What is mapped
 * @slots: The slots in it
 * @groups: The groups in it
 */
struct status_map {
	__u32 id;
	int fd;
	size_t size;
	const struct ib_memreg_status_table *head;
	const struct ib_memreg_status_slot *slots;
	const __u64 *groups;
};

int status_create(int fd, __u32 slots, __u32 log_entries,
		  struct status_map *map);
/* Unmap it and close its descriptor; the table stays. */
void status_unmap(struct status_map *map);
__u64 status_changes(const struct status_map *map);
__u64 status_generation(const struct status_map *map, __u32 slot);
int raw_monitor(int fd, __u32 status, struct ib_memreg_monitor *monitors,
		__u32 count);
int raw_unmonitor(int fd, const __u32 *ids, __u32 count);

/* Of the last call that failed in this thread. */
__u32 raw_reason(void);
__u32 raw_index(void);

/* VmPin of a process in pages of 4096 bytes; 0 is the caller. -errno. */
long vm_pin(pid_t pid);

/**
 * struct state - All that a call which fails must not change
 * @pinned: VmPin
 * @count: Number of @objects
 * @objects: As LIST returns them
 */
struct state {
	long pinned;
	__u32 count;
	struct ib_memreg_object *objects;
};

int state_get(struct state *state);
bool state_same(const struct state *before);
void state_free(struct state *state);
__u32 state_count(int type);
/* Times that the registration queue of a domain was rebuilt, or -1 */
long state_rebuilds(__u32 domain);

/* Expect an errno and a reason of a call. */
#define EXPECT_FAIL(_err, _reason, _call)				\
	do {								\
		EXPECT_EQ(-(_err), _call);				\
		EXPECT_EQ(IB_MEMREG_REASON_##_reason, raw_reason());	\
	} while (0)

#endif /* MEMREG_FIXTURE_H */
