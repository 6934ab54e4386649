/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls of the UAPI header: their form, and the errors that the header
 * names. The tests that take every call, abi/uapi, whole/fuzz, whole/stress and
 * whole/fail_nth, take them from this table.
 */
#ifndef SELFTESTS_CALLS_H
#define SELFTESTS_CALLS_H

#include <stdbool.h>
#include <linux/types.h>
#include <sys/ioctl.h>

#define NO_RESERVED	(~0U)
#define MAX_ERRORS	24

/* Number of different values of _IOC_NR() */
#define CALL_NRS	(_IOC_NRMASK + 1)

/* What a call is made on */
enum call_on {
	CALL_ON_FILE,	/* a file of the device node */
	CALL_ON_RING,	/* the descriptor of a ring */
	CALL_BY_URING,	/* a file, by a command of io_uring and not ioctl(2) */
};

/**
 * struct call - A call of the ABI
 * @name: Its name
 * @num: Its number
 * @size: Size of its structure
 * @first: Its size in the first release, if it has grown since; otherwise 0
 * @reserved: Offset of its reserved field, or NO_RESERVED
 * @flags: Flags that are known
 * @on: What it is made on
 * @unbound: It works without a device
 * @errors: Errnos that the header names for it; ends with 0
 */
struct call {
	const char *name;
	unsigned long num;
	__u32 size;
	__u32 first;
	__u32 reserved;
	__u32 flags;
	enum call_on on;
	bool unbound;
	int errors[MAX_ERRORS];
};

extern const struct call calls[];
extern const unsigned int ncalls;

/* The call of a number, or NULL if no ioctl(2) and no command has it */
const struct call *call_of(unsigned long num);

/* Does the header name this errno for the call? */
bool call_documents(const struct call *call, int err);

/*
 * May the call of this number, made with good arguments, fail with this errno
 * because of a fault: an allocation, a copy, or a request to the device or the
 * RDMA CM that failed?
 */
bool call_may_fail_by_fault(unsigned long num, int err);

#endif /* SELFTESTS_CALLS_H */
