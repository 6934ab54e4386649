/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Looks at what a test leaves behind: objects and pinned pages.
 */
#ifndef SELFTESTS_STATE_H
#define SELFTESTS_STATE_H

#include <stdbool.h>
#include <sys/types.h>
#include <rdma/ib_memreg.h>

/* VmPin of a process in pages of 4096 bytes, or -errno; 0 is the caller. */
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
/* Number of times that a domain's registration queue was rebuilt, or -1 */
long state_rebuilds(__u32 domain);
/* Uses (SGEs and windows) of all MRs with this id, in any file, or -errno */
int state_users(__u32 mr);

#endif /* SELFTESTS_STATE_H */
