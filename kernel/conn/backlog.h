/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Backlogs: each listener has a limited number of places for requests of peers.
 */
#ifndef _MEMREG_CONN_BACKLOG_H
#define _MEMREG_CONN_BACKLOG_H

#include <linux/atomic.h>
#include <linux/refcount.h>
#include <linux/types.h>

#include "core.h"

struct mem_cgroup;
struct memreg_endpoint;
struct rdma_cm_id;

/**
 * struct memreg_listener - Takes connection requests from peers
 * @obj: Head
 * @file: The file
 * @id: RDMA CM id
 * @refs: One for the object, one for each request that has a place
 * @backlog: Number of places
 * @taken: Number of places in use
 * @memcg: Memory cgroup of the listener's creator, which requests are charged
 *   to
 * @charge: Listener in the rdma cgroup
 * @user_data: User data for the events of its requests; memreg_file.event_lock
 */
struct memreg_listener {
	struct memreg_object obj;
	struct memreg_file *file;
	struct rdma_cm_id *id;
	refcount_t refs;
	u32 backlog;
	atomic_t taken;
	struct mem_cgroup *memcg;
	struct memreg_charge charge;
	u64 user_data;
};

void memreg_listener_put(struct memreg_listener *listener);
bool memreg_backlog_take(struct memreg_listener *listener);
void memreg_backlog_give(struct memreg_listener *listener);
void memreg_endpoint_answered(struct memreg_endpoint *ep);

#endif /* _MEMREG_CONN_BACKLOG_H */
