// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory on demand in a memory cgroup that has less than what is gone through:
 * pages that nobody uses any more are let go, so that others can be had, and
 * nobody is killed for want of them.
 *
 * time limit: 300
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "demand.h"
#include "reclaim.h"

#define CGROUP		"/sys/fs/cgroup/memreg-demand"
#define ROOT_PROCS	"/sys/fs/cgroup/cgroup.procs"
#define ROOM		(16 * MiB)
#define REGION		(28 * MiB)
#define STEP		LEN	/* what one work request names */
#define MESSAGE		64	/* bytes, which are all that the peer sends */

/* A counter of memory.events, or -1 */
static long cgroup_event(const char *name)
{
	FILE *f = fopen(CGROUP "/memory.events", "r");
	char word[32];
	long value, found = -1;

	while (f && fscanf(f, "%31s %ld", word, &value) == 2)
		if (!strcmp(word, name))
			found = value;
	if (f)
		fclose(f);
	return found;
}

/*
 * Receive a short message with a work request that names, and so pins, STEP
 * bytes.
 */
static void receive_at(struct __test_metadata *_metadata,
		       FIXTURE_DATA(demand) *self, __u32 mr, __u8 *mem,
		       size_t at)
{
	struct ib_memreg_wr wr = WR(RECV, self->to, SGE(mr, at, STEP));
	__u8 byte = 1 + at / STEP;

	fill(self->stock->mem, MESSAGE, byte);
	ASSERT_EQ(0, raw_submit(self->link.fd, &wr, 1))
		TH_LOG("reason %u", raw_reason());
	ASSERT_EQ(0, stock_send(self->stock, 0, MESSAGE));
	completes(_metadata, self, OP(RECV));
	EXPECT_TRUE(filled(mem + at, MESSAGE, 0, byte));
	/*
	 * The bytes behind the message have not changed, though they may have
	 * been in swap.
	 */
	EXPECT_EQ(byte, mem[at + MESSAGE]);
	EXPECT_EQ(byte, mem[at + STEP - 1]);
}

TEST_F_TIMEOUT(demand, idle_pages_go_when_memory_is_short, LIMIT_S)
{
	struct ib_memreg_mr_query q;
	struct ib_memreg_range range;
	const char *missing;
	unsigned int round;
	__u8 *mem;
	size_t at;
	__u32 mr;

	/*
	 * On a slow machine reclaim may take so long that the OOM killer acts.
	 */
	if (debug_kernel() && !test_full())
		SKIP(return, "this is for a soak");
	if (!cgroup_make(CGROUP, "+memory"))
		SKIP(return, "there are no control groups for memory");
	missing = swap_on();
	if (missing) {
		rmdir(CGROUP);
		SKIP(return, "%s", missing);
	}
	mem = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)mem);
	ASSERT_EQ(0, file_write(CGROUP "/memory.max", "16777216"));
	ASSERT_EQ(0, file_write(CGROUP "/cgroup.procs", "0"));
	ASSERT_EQ(0, register_mr(self, mem, REGION, LOCAL_WRITE, ON_DEMAND,
				 &mr));
	for (round = 0; round < 2; round++) {
		for (at = 0; at < REGION; at += STEP) {
			/*
			 * By the next round the pages that this one has written
			 * are in swap.
			 */
			if (!round)
				memset(mem + at, 1 + at / STEP, STEP);
			receive_at(_metadata, self, mr, mem, at);
		}
	}
	q = query(_metadata, self, mr);
	EXPECT_GT(ROOM / PAGE, q.out_demand.pinned_max);
	EXPECT_EQ(2 * REGION / STEP, q.out_demand.faults + q.out_demand.hits);
	EXPECT_EQ(0, cgroup_event("oom_kill"));
	EXPECT_LT(0, cgroup_event("max"));
	/* MR_ADVISE unpins the pages that are still pinned. */
	range = (struct ib_memreg_range) { .mr_id = mr, .length = REGION };
	ASSERT_EQ(1, advise(self, IB_MEMREG_ADVICE_DROP, 0, &range, 1));
	EXPECT_EQ(0, query(_metadata, self, mr).out_pinned);
	peer_gets(_metadata, self, mr, 0, mem, PAGE);
	peer_sends(_metadata, self, self->mr, 0, self->mem, PAGE, 3);
	adds_up(_metadata, self, 1);
	ASSERT_EQ(0, raw_destroy(self->link.fd, mr));
	ASSERT_EQ(0, munmap(mem, REGION));
	ASSERT_EQ(0, file_write(ROOT_PROCS, "0"));
	EXPECT_EQ(0, rmdir(CGROUP));
	EXPECT_EQ(0, swap_off());
}

TEST_HARNESS_MAIN
