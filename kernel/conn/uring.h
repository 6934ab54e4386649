/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Commands of io_uring.
 */
#ifndef _MEMREG_CONN_URING_H
#define _MEMREG_CONN_URING_H

#include <linux/atomic.h>
#include <linux/errno.h>
#include <linux/list.h>
#include <uapi/rdma/ib_memreg.h>

struct io_uring_cmd;
struct memreg_kmr;
struct memreg_kring;
struct memreg_slot;
struct memreg_ucmd;
struct mutex;

/**
 * struct memreg_uring - A command of io_uring
 * @cmd: The command; NULL once a context has taken it to end it
 * @ended: @cmd, once it was taken because all of its slots have ended
 * @node: In memreg_kring.ended while @ended is set
 * @ring: The ring of its slots, held while it is issued; NULL if it has none
 * @pending: Number of its slots that have not completed, plus
 *	MEMREG_URING_ISSUE while it is issued
 * @ucmd: The call, while it is issued
 * @issue_flags: Flags that io_uring issues it with
 * @blocked: Issuing it would have to wait
 * @fixed: Its memory is a range of a registered buffer
 * @shared: Its receive is on a shared queue
 * @only: It has one work request
 * @aborted: It was cancelled, so that its endpoint is being disconnected
 * @cqe32: Its ring has entries with room for struct ib_memreg_uring_result
 * @target: Target of all of its work requests; 0 before the first one
 * @mr: An unpublished MR of the registered buffer's memory, or NULL
 * @error: Negative errno if not all of the work requests were posted
 * @reason: enum ib_memreg_reason of @error
 * @taken: Work requests that were posted
 * @endpoint: Id of the endpoint that took the receive, or 0; memreg_kring.lock
 * @outcome: Entry for the first work request that failed, or else for the last
 *	one that was reported, without data; memreg_kring.lock
 */
struct memreg_uring {
	struct io_uring_cmd *cmd;
	struct io_uring_cmd *ended;
	struct list_head node;
	struct memreg_kring *ring;
	atomic_t pending;
	struct memreg_ucmd *ucmd;
	unsigned int issue_flags;
	bool blocked;
	bool fixed;
	bool shared;
	bool only;
	bool aborted;
	bool cqe32;
	u32 target;
	struct memreg_kmr *mr;
	int error;
	u32 reason;
	u32 taken;
	u32 endpoint;
	struct ib_memreg_cqe outcome;
};

/* Counted in memreg_uring.pending while a command is issued. */
#define MEMREG_URING_ISSUE	0x10000

/* Does a command that is being issued have posted work requests? */
static inline bool memreg_uring_is_posted(const struct memreg_uring *uring)
{
	return uring->ring ||
	       atomic_read(&uring->pending) != MEMREG_URING_ISSUE;
}

/**
 * memreg_uring_remove() - Remove a slot that was not posted from a command
 * @uring: The command, being issued
 */
static inline void memreg_uring_remove(struct memreg_uring *uring)
{
	atomic_dec(&uring->pending);
}

#ifdef MEMREG_URING
/* Does the kernel support commands of io_uring? */
static inline bool memreg_uring_there(void)
{
	return true;
}

void memreg_uring_release(struct memreg_uring *uring);
void memreg_uring_end(struct memreg_uring *uring, struct io_uring_cmd *cmd,
		      unsigned int issue_flags);
void memreg_uring_through(struct memreg_uring *uring);
int memreg_uring_lock(struct memreg_uring *uring, struct mutex *lock);
int memreg_uring_punt(struct memreg_uring *uring);
bool memreg_uring_may_wait(const struct memreg_uring *uring);
int memreg_uring_look(struct memreg_uring *uring, struct ib_memreg_wr *wrs,
		      u32 count, bool more);
void memreg_uring_add(struct memreg_uring *uring, struct memreg_slot *slot);
void memreg_uring_note(struct memreg_uring *uring,
		       const struct ib_memreg_cqe *entry);
bool memreg_uring_put(struct memreg_uring *uring, struct memreg_kring *ring);
void memreg_uring_end_all(struct memreg_kring *ring);
#else
static inline bool memreg_uring_there(void)
{
	return false;
}

static inline int memreg_uring_lock(struct memreg_uring *uring,
				    struct mutex *lock)
{
	return -EOPNOTSUPP;
}

static inline int memreg_uring_punt(struct memreg_uring *uring)
{
	return -EOPNOTSUPP;
}

static inline bool memreg_uring_may_wait(const struct memreg_uring *uring)
{
	return true;
}

static inline int memreg_uring_look(struct memreg_uring *uring,
				    struct ib_memreg_wr *wrs, u32 count,
				    bool more)
{
	return -EOPNOTSUPP;
}

static inline void memreg_uring_add(struct memreg_uring *uring,
				    struct memreg_slot *slot) {}
static inline void memreg_uring_note(struct memreg_uring *uring,
				     const struct ib_memreg_cqe *entry) {}

static inline bool memreg_uring_put(struct memreg_uring *uring,
				    struct memreg_kring *ring)
{
	return false;
}

static inline void memreg_uring_end_all(struct memreg_kring *ring) {}
#endif

#endif /* _MEMREG_CONN_URING_H */
