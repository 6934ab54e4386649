/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the test programs share: calls of the raw ABI, which return 0 or
 * -errno, and looks at what is left behind. They go around libmemreg, so that
 * nothing stands between a test and the kernel.
 *
 * selftests/run tells the RDMA device in MEMREG_DEVICE.
 */
#ifndef MEMREG_FIXTURE_H
#define MEMREG_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <rdma/ib_memreg.h>

#define NODE		"/dev/infiniband/memreg"
#define PAGE		4096UL
#define ARRAY_LEN(a)	(sizeof(a) / sizeof((a)[0]))

#define LOCAL_WRITE	IB_MEMREG_ACCESS_LOCAL_WRITE
#define REMOTE_WRITE	IB_MEMREG_ACCESS_REMOTE_WRITE
#define REMOTE_READ	IB_MEMREG_ACCESS_REMOTE_READ
#define REMOTE_ATOMIC	IB_MEMREG_ACCESS_REMOTE_ATOMIC
#define MW_BIND		IB_MEMREG_ACCESS_MW_BIND
#define ZERO_BASED	IB_MEMREG_ACCESS_ZERO_BASED

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

const char *test_device(void);
bool test_full(void);
/* Only the cases that the debug kernel has in a check are run. */
bool test_chosen(void);
bool debug_kernel(void);
/* Seconds for a test that repeats something: with --full that takes long. */
#define SOAK_S		10000

/*
 * A soak may be run in parts: how many of so many rounds are this part's, and
 * which is the first of them (or NULL).
 */
unsigned int test_share(unsigned int rounds, unsigned int *first);

/* A number that a soak is to reach, and another one that will do for a check */
static inline unsigned int times(unsigned int check, unsigned int soak)
{
	return test_full() ? test_share(soak, NULL) : check;
}

/* What has no such number is done so many times as often in a soak. */
unsigned int test_times(void);
unsigned int test_repeat(unsigned int rounds);

/* The same, and in a check fewer times on a debug kernel, which is slow. */
unsigned int test_rounds(unsigned int rounds);

/* Of random numbers: MEMREG_SEED, or another one each second */
unsigned int test_seed(void);

/* Of a clock that only goes forwards */
int64_t now_ms(void);

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
 * @objects: As LIST tells them
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

/*
 * Memory, to be given to mem_free(); NULL if it can't be had. mem_scattered()
 * is of pages that larger ones can't be made of, from 5 of them on.
 */
void *mem_alloc(size_t length);
void *mem_scattered(size_t length);
void *mem_hugetlb(size_t length);
void *mem_thp(size_t length);
void mem_free(void *addr, size_t length);

/* One line of a file as a number, or -1. */
long file_number(const char *path);
int file_write(const char *path, const char *text);

/* Where nobody has mounted it, this does, for this process alone. */
#define TRACEFS		"/sys/kernel/tracing"
bool tracefs_there(void);

/* Expect an errno and a reason of a call. */
#define EXPECT_FAIL(_err, _reason, _call)				\
	do {								\
		EXPECT_EQ(-(_err), _call);				\
		EXPECT_EQ(IB_MEMREG_REASON_##_reason, raw_reason());	\
	} while (0)

/* Run the block that follows in a child, whose EXPECTs count, and wait. */
#define IN_CHILD							\
	for (pid_t _child = fork();					\
	     !_child || !child_ended(_child, &_metadata->exit_code);	\
	     _exit(_metadata->exit_code))

bool child_ended(pid_t child, int *exit_code);

#endif /* MEMREG_FIXTURE_H */
