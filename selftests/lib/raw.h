/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls of the raw ABI, without libmemreg, so that a test sees the kernel's
 * behaviour alone. They return 0 or -errno unless they say otherwise, and
 * nothing waits without a limit.
 */
#ifndef SELFTESTS_RAW_H
#define SELFTESTS_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <rdma/ib_memreg.h>

#define NODE		"/dev/infiniband/memreg"

#define LOCAL_WRITE	IB_MEMREG_ACCESS_LOCAL_WRITE
#define REMOTE_WRITE	IB_MEMREG_ACCESS_REMOTE_WRITE
#define REMOTE_READ	IB_MEMREG_ACCESS_REMOTE_READ
#define REMOTE_ATOMIC	IB_MEMREG_ACCESS_REMOTE_ATOMIC
#define MW_BIND		IB_MEMREG_ACCESS_MW_BIND
#define ZERO_BASED	IB_MEMREG_ACCESS_ZERO_BASED
/*
 * Access flags for MRs that windows of both kinds are bound to, and for the
 * windows
 */
#define FOR_WINDOWS	(LOCAL_WRITE | MW_BIND)
#define REMOTE_RW	(REMOTE_READ | REMOTE_WRITE)

/* Common beginning of all arguments of ioctls. */
struct raw_head {
	__u32 size;
	__u32 out_reason;
	__u32 flags;
};

/* Declare an argument of an ioctl with its size and the given fields set. */
#define RAW(type, name, ...) \
	struct ib_memreg_##type name = { .size = sizeof(name), __VA_ARGS__ }

int raw_call(int fd, unsigned long num, void *arg);

/* A descriptor, or -errno. */
int raw_open(void);
int raw_open_bound(void);
/*
 * Open a file and bind it to the peer's device, in the peer's network
 * namespace.
 */
int raw_open_peer(void);

/* 0 or -errno. */
int raw_bind_device(int fd, const char *name);
int raw_cap(int fd, __u32 cap, __u64 *value);
/*
 * HCA objects of a domain: a PD, a CQ and a QP, and an MR where an invalidation
 * does not wait for packets
 */
int raw_domain_objects(void);
/*
 * Runs of memory, each contiguous for the device, that an MR consists of; an
 * IOMMU can make one of them. 0: it cannot be composed.
 */
__u32 raw_runs(int fd, __u32 domain, __u32 mr, __u64 length);
int raw_stat(int fd, __u32 stat, __u64 *value);
int raw_domain(int fd, __u32 *domain);
int raw_destroy(int fd, __u32 id);
int raw_register(int fd, __u32 domain, void *addr, size_t length, __u32 access,
		 __u32 *mr);
/* A descriptor, or -errno. */
int raw_memory(int fd, size_t length, __u32 flags);
int raw_memory_dup(int fd, int memory);
int raw_export(int fd, __u32 mr, __u64 offset, __u64 length, __u32 *id);
int raw_export_leased(int fd, __u32 mr, __u64 offset, __u64 length,
		      __u32 lease, __u32 *id);
int raw_unexport(int fd, const __u32 *ids, __u32 count);
/* A lease that ends at this time of boottime_ns(), without a slot */
int raw_lease(int fd, __u64 deadline, __u32 *id);
int raw_renew_all(int fd, const struct ib_memreg_renewal *renewals,
		  __u32 count);
int raw_renew(int fd, __u32 lease, __u64 deadline);
int raw_register_fd(int fd, __u32 domain, int memory, __u64 offset,
		    __u64 length, __u32 access,
		    struct ib_memreg_mr_register *mr);
/* The enum ib_memreg_mr_state of an MR, or -errno */
int raw_mr_state(int fd, __u32 mr);
int raw_windows(int fd, __u32 domain, __u64 span, __u32 *ids, __u32 count);
int raw_bind(int fd, __u32 domain, struct ib_memreg_bind *binds, __u32 count);
int raw_revoke(int fd, __u32 domain, const __u32 *ids, __u32 count);
int raw_revoke_relaxed(int fd, __u32 domain, const __u32 *ids, __u32 count);

/**
 * struct status_map - A status table, mapped
 * @id: Its id
 * @fd: Its descriptor
 * @size: Bytes that are mapped
 * @head: The mapped table
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
/*
 * Unmap the table and close its descriptor. The table goes on to exist in the
 * file.
 */
void status_unmap(struct status_map *map);
__u64 status_changes(const struct status_map *map);
__u64 status_generation(const struct status_map *map, __u32 slot);
int raw_monitor(int fd, __u32 status, struct ib_memreg_monitor *monitors,
		__u32 count);
int raw_unmonitor(int fd, const __u32 *ids, __u32 count);

/* Number of the last call of this thread */
unsigned long raw_last(void);

/* Reason and index that the last failed call of this thread has reported */
__u32 raw_reason(void);
__u32 raw_index(void);

/*
 * Connections and work
 */

#define OP(name)	IB_MEMREG_OP_##name
#define SIGNALED	IB_MEMREG_WR_SIGNALED
#define FENCE		IB_MEMREG_WR_FENCE
#define SOLICITED	IB_MEMREG_WR_SOLICITED
#define INLINE		IB_MEMREG_WR_INLINE
#define INSERT_RKEY	IB_MEMREG_WR_INSERT_RKEY

/* Initializers: a work request; its only SGE, or several; its inline data */
#define WR(_op, _target, ...)						\
	((struct ib_memreg_wr){						\
		.target_id = (_target),					\
		.opcode = IB_MEMREG_OP_##_op,				\
		##__VA_ARGS__						\
	})
#define SGE(_mr, _offset, _length)					\
	.num_sge = 1,							\
	.sge = { .mr_id = (_mr), .offset = (_offset), .length = (_length) }
#define SGES(_sges, _n)							\
	.num_sge = (_n), .sges = (uintptr_t)(_sges)
#define INLINE_DATA(_data, _n)						\
	.sges = (uintptr_t)(_data), .length = (_n)

int raw_submit(int fd, struct ib_memreg_wr *wrs, __u32 count);
/* Number of work requests that the last submission of this thread has posted */
__u32 raw_taken(void);
int raw_srq(int fd, __u32 domain, __u32 ring, __u32 max_recv, __u32 sges,
	    __u32 flags, __u32 *srq);
int raw_setup(int fd, __u32 endpoint, __u32 domain,
	      const struct ib_memreg_queues *queues);
int raw_accept(int fd, __u32 endpoint, __u32 domain);
int raw_listen(int fd, __be16 *port);
int raw_connect(int fd, __u32 domain, const char *ip, __be16 port,
		const struct ib_memreg_queues *queues, __u32 *endpoint);
int raw_disconnect(int fd, __u32 endpoint);
int raw_windows_2b(int fd, __u32 domain, __u64 span, __u32 *ids, __u32 count);
/*
 * Read events up to one of this type. Returns -ECONNABORTED if that never
 * comes.
 */
int raw_await(int fd, __u32 type, __u32 *endpoint);

/* Expect an errno and a reason of a call. */
#define EXPECT_FAIL(_err, _reason, _call)				\
	do {								\
		EXPECT_EQ(-(_err), _call);				\
		EXPECT_EQ(IB_MEMREG_REASON_##_reason, raw_reason());	\
	} while (0)

#endif /* SELFTESTS_RAW_H */
