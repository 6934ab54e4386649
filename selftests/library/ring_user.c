// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parts of libmemreg that run in the program itself: it reads completion rings
 * and fills in work requests. The test is the kernel here, so that every turn
 * of a ring can be tried; no module is needed.
 */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "memreg.h"

#define ENTRIES		8

/* As the kernel would have mapped it. */
struct memory {
	struct ib_memreg_ring ring;
	char entries[ENTRIES][128];
};

FIXTURE(ring_user) {
	struct memory *memory;
	struct memreg_ring ring;
};

/* Size of an entry, and where the indices start */
FIXTURE_VARIANT(ring_user) {
	uint32_t entry_size;
	uint32_t begin;
};

FIXTURE_VARIANT_ADD(ring_user, of_64) {
	.entry_size = 64,
};

FIXTURE_VARIANT_ADD(ring_user, of_128) {
	.entry_size = 128,
	.begin = 5,
};

/* The indices wrap around. */
FIXTURE_VARIANT_ADD(ring_user, wraps) {
	.entry_size = 64,
	.begin = UINT32_MAX - ENTRIES - 2,
};

FIXTURE_SETUP(ring_user)
{
	self->memory = calloc(1, sizeof(*self->memory));
	ASSERT_NE(NULL, self->memory);
	self->memory->ring.producer = variant->begin;
	self->memory->ring.consumer = variant->begin;
	self->ring = (struct memreg_ring) {
		.id = 1,
		.fd = -1,
		.entries = ENTRIES,
		.entry_size = variant->entry_size,
		.shared = &self->memory->ring,
		.first = (const char *)self->memory->entries,
		.mask = ENTRIES - 1,
		.consumer = variant->begin,
		.producer = variant->begin,
	};
}

FIXTURE_TEARDOWN(ring_user)
{
	free(self->memory);
}

/* Write an entry and then the producer's index, as the kernel does. */
static void produce(struct memory *memory, uint32_t entry_size,
		    uint64_t user_data)
{
	uint32_t at = memory->ring.producer & (ENTRIES - 1);
	struct ib_memreg_cqe *cqe;

	cqe = (void *)((char *)memory->entries + at * entry_size);
	cqe->user_data = user_data;
	__atomic_store_n(&memory->ring.producer, memory->ring.producer + 1,
			 __ATOMIC_RELEASE);
}

/* One by one, several times around. */
TEST_F(ring_user, each_entry_is_seen_once)
{
	const struct ib_memreg_cqe *cqe;
	uint64_t i;

	EXPECT_EQ(NULL, memreg_ring_peek(&self->ring));
	for (i = 1; i <= 3 * ENTRIES; i++) {
		produce(self->memory, variant->entry_size, i);
		cqe = memreg_ring_peek(&self->ring);
		ASSERT_NE(NULL, cqe);
		EXPECT_EQ(i, cqe->user_data);
		EXPECT_EQ(cqe, memreg_ring_peek(&self->ring));
		memreg_ring_seen(&self->ring, 1);
		EXPECT_EQ(variant->begin + (uint32_t)i,
			  self->memory->ring.consumer);
		EXPECT_EQ(NULL, memreg_ring_peek(&self->ring));
	}
}

/* A batch has all pending entries, up to a full ring. */
TEST_F(ring_user, batches_are_in_order)
{
	uint64_t next = 0, made = 0;
	uint32_t n, i, turn;

	for (turn = 0; turn < 3 * ENTRIES; turn++) {
		for (i = 0; i <= turn % ENTRIES; i++)
			produce(self->memory, variant->entry_size, made++);
		n = memreg_ring_ready(&self->ring);
		ASSERT_EQ(turn % ENTRIES + 1, n);
		for (i = 0; i < n; i++)
			EXPECT_EQ(next++, memreg_ring_entry(&self->ring,
							    i)->user_data);
		memreg_ring_seen(&self->ring, n);
		EXPECT_EQ(0, memreg_ring_ready(&self->ring));
	}
}

/* Entries that came in after the first check are found by the next one. */
TEST_F(ring_user, later_entries_are_found)
{
	produce(self->memory, variant->entry_size, 1);
	ASSERT_NE(NULL, memreg_ring_peek(&self->ring));
	produce(self->memory, variant->entry_size, 2);
	memreg_ring_seen(&self->ring, 1);
	ASSERT_NE(NULL, memreg_ring_peek(&self->ring));
	EXPECT_EQ(2, memreg_ring_peek(&self->ring)->user_data);
	EXPECT_EQ(1, memreg_ring_ready(&self->ring));
}

TEST_F(ring_user, cpu_is_the_one_that_the_kernel_names)
{
	self->memory->ring.cpu = 5;
	EXPECT_EQ(5, memreg_ring_cpu(&self->ring));
}

TEST_F(ring_user, quiet_is_a_flag_for_the_kernel)
{
	memreg_ring_quiet(&self->ring, true);
	EXPECT_EQ(IB_MEMREG_RING_QUIET, self->memory->ring.flags);
	memreg_ring_quiet(&self->ring, false);
	EXPECT_EQ(0, self->memory->ring.flags);
}

TEST_F(ring_user, message_is_in_the_entry)
{
	const char *first;

	produce(self->memory, variant->entry_size, 1);
	first = (const char *)memreg_ring_peek(&self->ring);
	ASSERT_NE(NULL, first);
	EXPECT_EQ(first + 32,
		  memreg_cqe_data(memreg_ring_peek(&self->ring)));
}

/* With enough entries there is no call: on this ring, any call would fail. */
TEST_F(ring_user, wait_for_what_is_there_is_no_call)
{
	unsigned int count = 0;

	produce(self->memory, variant->entry_size, 1);
	produce(self->memory, variant->entry_size, 2);
	EXPECT_EQ(0, memreg_ring_wait(&self->ring, 1, 0, &count));
	EXPECT_EQ(2, count);
	EXPECT_EQ(-EBADF, memreg_ring_wait(&self->ring, 3, 0, &count));
	EXPECT_EQ(2, count);
	EXPECT_EQ(-EBADF, memreg_ring_wait(&self->ring, 0, 0, NULL));
}

/*
 * Instructions, counted by a tracer that single-steps a child
 */

/* Mark for the tracer where the code to be counted begins, and ends. */
static void sign(void)
{
	kill(getpid(), SIGSTOP);
}

static void nothing(struct memreg_ring *empty, struct memreg_ring *ring)
{
	(void)empty;
	(void)ring;
}

static void poll_and_reap(struct memreg_ring *empty, struct memreg_ring *ring)
{
	const struct ib_memreg_cqe *cqe = memreg_ring_peek(empty);

	if (cqe)
		_exit(1);
	cqe = memreg_ring_peek(ring);
	if (!cqe || cqe->user_data != 1)
		_exit(1);
	memreg_ring_seen(ring, 1);
}

/*
 * Let the stopped child run to its next mark. Returns the number of
 * instructions.
 */
static int count_steps(struct __test_metadata *_metadata, pid_t child)
{
	int status, steps = 0;

	do {
		ASSERT_EQ(0, ptrace(PTRACE_SINGLESTEP, child, NULL, 0));
		ASSERT_EQ(child, waitpid(child, &status, 0));
		ASSERT_TRUE(WIFSTOPPED(status));
		steps++;
	} while (WSTOPSIG(status) != SIGSTOP);
	return steps;
}

/* The compiler must make one function of this, not one for each @work. */
static __attribute__((noipa)) int
instructions(struct __test_metadata *_metadata,
	     void (*work)(struct memreg_ring *empty, struct memreg_ring *ring),
	     struct memreg_ring *empty, struct memreg_ring *ring)
{
	int status, steps;
	pid_t child = fork();

	ASSERT_LE(0, child);
	if (!child) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, 0))
			_exit(1);
		sign();		/* the first one takes more: it is looked up */
		sign();
		work(empty, ring);
		sign();
		_exit(0);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	ASSERT_TRUE(WIFSTOPPED(status));
	ASSERT_EQ(SIGSTOP, WSTOPSIG(status));
	count_steps(_metadata, child);
	steps = count_steps(_metadata, child);
	ASSERT_EQ(0, ptrace(PTRACE_CONT, child, NULL, 0));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	ASSERT_EQ(0, status);
	return steps;
}

/* An empty poll and a completion taken out, with no system call. */
TEST_F(ring_user, poll_and_reap_are_60_instructions_at_most)
{
	struct ib_memreg_ring none = { 0 };
	struct memreg_ring empty = { .shared = &none };
	int with, without;

	produce(self->memory, variant->entry_size, 1);
	without = instructions(_metadata, nothing, &empty, &self->ring);
	with = instructions(_metadata, poll_and_reap, &empty, &self->ring);
	TH_LOG("%d instructions", with - without);
	EXPECT_GT(with - without, 5);
	EXPECT_LE(with - without, 60);
}

/*
 * Work requests
 */

/* Old values are overwritten, and unused fields are 0. */
TEST(prepared_work_requests_are_whole)
{
	static const char data[4];
	struct ib_memreg_sge sges[2] = { { 1, 2, 3 }, { 4, 5, 6 } };
	struct ib_memreg_wr wr, expected;

	memset(&wr, 0xff, sizeof(wr));
	memreg_prep_send(&wr, 7, 8, 9, 10);
	expected = (struct ib_memreg_wr) {
		.target_id = 7, .opcode = IB_MEMREG_OP_SEND, .num_sge = 1,
		.sge = { .mr_id = 8, .offset = 9, .length = 10 },
	};
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));

	memreg_wr_inline(&wr, data, sizeof(data));
	expected = (struct ib_memreg_wr) {
		.target_id = 7, .opcode = IB_MEMREG_OP_SEND,
		.flags = IB_MEMREG_WR_INLINE, .sges = (uintptr_t)data,
		.length = sizeof(data),
	};
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
	memset(&wr, 0xff, sizeof(wr));
	memreg_prep_send_inline(&wr, 7, data, sizeof(data));
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
	memset(&wr, 0xff, sizeof(wr));
	memreg_prep_write_inline(&wr, 7, data, sizeof(data), 11, 12);
	expected.opcode = IB_MEMREG_OP_WRITE;
	expected.remote_addr = 11;
	expected.rkey = 12;
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));

	memset(&wr, 0xff, sizeof(wr));
	memreg_prep_read(&wr, 7, 8, 9, 10, 11, 12);
	memreg_wr_sges(&wr, sges, 2);
	memreg_wr_signal(&wr, 13);
	expected = (struct ib_memreg_wr) {
		.user_data = 13, .target_id = 7, .opcode = IB_MEMREG_OP_READ,
		.flags = IB_MEMREG_WR_SIGNALED, .num_sge = 2,
		.sges = (uintptr_t)sges, .remote_addr = 11, .rkey = 12,
	};
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
	memreg_wr_sges(&wr, sges, 1);
	expected.num_sge = 1;
	expected.sges = 0;
	expected.sge = sges[0];
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
}

TEST(prepared_opcodes_have_their_fields)
{
	struct ib_memreg_wr wr, expected;

	memreg_prep_send_imm(&wr, 7, 0, 9, 10, 14);
	expected = (struct ib_memreg_wr) {
		.target_id = 7, .opcode = IB_MEMREG_OP_SEND_WITH_IMM, .ex = 14,
	};
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
	memreg_prep_send_inv(&wr, 7, 0, 0, 0, 15);
	expected.opcode = IB_MEMREG_OP_SEND_WITH_INV;
	expected.ex = 15;
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
	memreg_prep_write_imm(&wr, 7, 0, 0, 0, 11, 12, 15);
	expected.opcode = IB_MEMREG_OP_WRITE_WITH_IMM;
	expected.remote_addr = 11;
	expected.rkey = 12;
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
	memreg_prep_cmp_swap(&wr, 7, 8, 9, 11, 12, 16, 17);
	expected = (struct ib_memreg_wr) {
		.target_id = 7, .opcode = IB_MEMREG_OP_CMP_AND_SWP,
		.num_sge = 1, .sge = { .mr_id = 8, .offset = 9, .length = 8 },
		.remote_addr = 11, .rkey = 12, .compare_add = 16, .swap = 17,
	};
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
	memreg_prep_fetch_add(&wr, 7, 8, 9, 11, 12, 16);
	expected.opcode = IB_MEMREG_OP_FETCH_AND_ADD;
	expected.swap = 0;
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
	memreg_prep_recv(&wr, 7, 8, 9, 10, 18);
	expected = (struct ib_memreg_wr) {
		.user_data = 18, .target_id = 7, .opcode = IB_MEMREG_OP_RECV,
		.num_sge = 1, .sge = { .mr_id = 8, .offset = 9, .length = 10 },
	};
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
}

TEST(prepared_windows_have_their_fields)
{
	struct ib_memreg_wr wr, expected;

	memreg_prep_bind(&wr, 7, 19, 8, 9, 10, IB_MEMREG_ACCESS_REMOTE_READ);
	memreg_wr_insert_rkey(&wr, 20);
	expected = (struct ib_memreg_wr) {
		.target_id = 7, .opcode = IB_MEMREG_OP_BIND,
		.flags = IB_MEMREG_WR_INSERT_RKEY,
		.sge = { .mr_id = 8, .offset = 9, .length = 10 },
		.window_id = 19, .access = IB_MEMREG_ACCESS_REMOTE_READ,
		.insert_at = 20,
	};
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
	memreg_prep_invalidate(&wr, 7, 19);
	expected = (struct ib_memreg_wr) {
		.target_id = 7, .opcode = IB_MEMREG_OP_INVALIDATE,
		.window_id = 19,
	};
	EXPECT_EQ(0, memcmp(&wr, &expected, sizeof(wr)));
}

/*
 * Each value in the header has a text of its own; all other values share one.
 */
TEST(codes_have_names)
{
	const char *unknown = memreg_opcode_string(99);
	uint32_t i;

	EXPECT_STREQ("unknown", unknown);
	EXPECT_STREQ(unknown, memreg_opcode_string(0));
	for (i = IB_MEMREG_OP_SEND; i <= IB_MEMREG_OP_ATOMIC_WRITE; i++)
		EXPECT_STRNE(unknown, memreg_opcode_string(i));
	EXPECT_STREQ("SEND_WITH_INV",
		     memreg_opcode_string(IB_MEMREG_OP_SEND_WITH_INV));
	EXPECT_STREQ("success", memreg_wc_status_string(0));
	EXPECT_STREQ("the peer refuses the access",
		     memreg_wc_status_string(IB_MEMREG_WC_REM_ACCESS_ERR));
	EXPECT_STREQ(memreg_wc_status_string(99), memreg_wc_status_string(3));
	EXPECT_STREQ("unknown", memreg_event_string(0));
	EXPECT_STREQ("unknown", memreg_event_string(99));
	EXPECT_STREQ("REJECTED", memreg_event_string(IB_MEMREG_EVENT_REJECTED));
	for (i = IB_MEMREG_EVENT_CONNECT_REQUEST; i <= IB_MEMREG_EVENT_ERROR;
	     i++)
		EXPECT_STRNE("unknown", memreg_event_string(i));
	for (i = IB_MEMREG_REASON_NONE + 1; i <= IB_MEMREG_REASON_EXPORT_LATE;
	     i++)
		EXPECT_STRNE(memreg_reason_text(9999), memreg_reason_text(i));
}

/*
 * Only messages use a buffer of the peer's, and only operations with a key can
 * lack one: texts for other operations say nothing of them.
 */
TEST(reasons_fit_their_opcodes)
{
	struct ib_memreg_cqe cqe = {
		.opcode = IB_MEMREG_OP_SEND,
		.status = IB_MEMREG_WC_RNR_RETRY_EXC_ERR,
	};

	EXPECT_STREQ("the peer has no buffer for the message",
		     memreg_cqe_reason(&cqe));
	cqe.opcode = IB_MEMREG_OP_READ;
	EXPECT_STREQ("the peer was not ready for it, again and again",
		     memreg_cqe_reason(&cqe));
	cqe.status = IB_MEMREG_WC_REM_INV_REQ_ERR;
	EXPECT_STREQ("the peer found the request invalid",
		     memreg_cqe_reason(&cqe));
	cqe.opcode = IB_MEMREG_OP_SEND;
	EXPECT_STREQ("the peer found the request invalid: the message is longer than the receive, for example",
		     memreg_cqe_reason(&cqe));
	cqe.opcode = IB_MEMREG_OP_READ;
	cqe.status = IB_MEMREG_WC_REM_ACCESS_ERR;
	EXPECT_STREQ("the peer refuses the access: its key is revoked, or is not for this range or use",
		     memreg_cqe_reason(&cqe));
	cqe.opcode = IB_MEMREG_OP_SEND;
	EXPECT_STREQ("the peer refuses the access", memreg_cqe_reason(&cqe));
}

TEST_HARNESS_MAIN
