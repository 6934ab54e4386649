// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the connection plane: errors that the RDMA CM cannot be made
 * to return, and work that users hold up.
 */
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/errno.h>
#include <linux/wait.h>

#include "conn/address.h"
#include "user_work.h"

/* As include/uapi/rdma/ib_memreg.h has them, all but EPROTO. */
static const int memreg_test_errnos[] = {
	ENOMEM, ENOSPC, EACCES, EPERM, EADDRINUSE, EADDRNOTAVAIL, ENETDOWN,
	ENETUNREACH, EHOSTDOWN, EHOSTUNREACH, ETIMEDOUT, ECONNREFUSED,
	ECONNRESET,
};

static int memreg_test_errno_expected(int err)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(memreg_test_errnos); i++)
		if (memreg_test_errnos[i] == err)
			return -err;
	return err == ENODEV ? -EADDRNOTAVAIL : -EPROTO;
}

/*
 * An errno of connect(2) and its donor is passed on, so that a user can act on
 * it. No other one is taken for one of them.
 */
static void memreg_test_cm_errno(struct kunit *test)
{
	int err;

	for (err = 1; err <= MAX_ERRNO; err++)
		KUNIT_EXPECT_EQ_MSG(test, memreg_test_errno_expected(err),
				    memreg_cm_errno(-err), "errno %d", err);
}

/* More work items than a user has turns */
#define MEMREG_TEST_TURNS	200
#define MEMREG_TEST_PATIENCE	(60 * HZ)

static DECLARE_WAIT_QUEUE_HEAD(memreg_test_turns_wait);

/**
 * struct memreg_test_turn - A work item that is held up
 * @turn: The work item
 * @go: What it waits for
 * @began: Number of those that have begun
 * @ended: Number of those that have ended
 */
struct memreg_test_turn {
	struct memreg_user_work turn;
	struct completion *go;
	atomic_t *began;
	atomic_t *ended;
};

static void memreg_test_turn_work(struct work_struct *work)
{
	struct memreg_test_turn *t =
		container_of(work, struct memreg_test_turn, turn.work);

	atomic_inc(t->began);
	wake_up_all(&memreg_test_turns_wait);
	wait_for_completion(t->go);
	atomic_inc(t->ended);
	wake_up_all(&memreg_test_turns_wait);
	memreg_user_work_end(&t->turn);
}

static void memreg_test_turn_begin(struct memreg_test_turn *t,
				   struct memreg_user *user,
				   enum memreg_work_kind kind,
				   work_func_t func)
{
	memreg_user_work_init(&t->turn, user, kind, func);
	memreg_user_work_queue(&t->turn);
}

/* Wait until a number has been reached. */
static void memreg_test_turns_reach(struct kunit *test, atomic_t *count,
				    int number)
{
	KUNIT_EXPECT_TRUE_MSG(test,
			      wait_event_timeout(memreg_test_turns_wait,
						 atomic_read(count) >= number,
						 MEMREG_TEST_PATIENCE),
			      "%d of %d", atomic_read(count), number);
}

/*
 * A user whose work items are held up leaves workers to others, and all of them
 * run in the end.
 */
static void memreg_test_turns_of(struct kunit *test,
				 enum memreg_work_kind kind)
{
	atomic_t began = ATOMIC_INIT(0), ended = ATOMIC_INIT(0);
	atomic_t other_began = ATOMIC_INIT(0), other_ended = ATOMIC_INIT(0);
	struct memreg_user *user = memreg_user_get(KUIDT_INIT(4242));
	struct memreg_user *other = memreg_user_get(KUIDT_INIT(2424));
	struct memreg_test_turn *turns, *waits, *last;
	DECLARE_COMPLETION_ONSTACK(go);
	int i, most;

	KUNIT_ASSERT_NOT_NULL(test, user);
	KUNIT_ASSERT_NOT_NULL(test, other);
	turns = kunit_kcalloc(test, MEMREG_TEST_TURNS + 1, sizeof(*turns),
			      GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, turns);
	for (i = 0; i < MEMREG_TEST_TURNS; i++) {
		turns[i] = (struct memreg_test_turn) {
			.go = &go, .began = &began, .ended = &ended,
		};
		memreg_test_turn_begin(&turns[i], user, kind,
				       memreg_test_turn_work);
	}
	last = &turns[MEMREG_TEST_TURNS];
	*last = (struct memreg_test_turn) {
		.go = &go, .began = &other_began, .ended = &other_ended,
	};
	memreg_test_turn_begin(last, other, kind, memreg_test_turn_work);
	memreg_test_turns_reach(test, &other_began, 1);
	most = READ_ONCE(user->works[kind].running);
	KUNIT_EXPECT_LT(test, most, MEMREG_TEST_TURNS);
	memreg_test_turns_reach(test, &began, most);
	/* One that waits is queued once, and can be taken back. */
	waits = &turns[MEMREG_TEST_TURNS - 1];
	KUNIT_EXPECT_FALSE(test, memreg_user_work_queue(&waits->turn));
	KUNIT_EXPECT_TRUE(test, memreg_user_work_disable(&waits->turn));
	KUNIT_EXPECT_EQ(test, atomic_read(&began), most);
	/* One that runs can be queued again. */
	KUNIT_EXPECT_TRUE(test, memreg_user_work_queue(&turns[0].turn));
	KUNIT_EXPECT_FALSE(test, memreg_user_work_queue(&turns[0].turn));
	complete_all(&go);
	memreg_test_turns_reach(test, &ended, MEMREG_TEST_TURNS);
	for (i = 0; i <= MEMREG_TEST_TURNS; i++)
		memreg_user_work_disable(&turns[i].turn);
	KUNIT_EXPECT_EQ(test, atomic_read(&began), MEMREG_TEST_TURNS);
	KUNIT_EXPECT_EQ(test, atomic_read(&other_ended), 1);
	KUNIT_EXPECT_EQ(test, user->works[kind].running, 0);
	KUNIT_EXPECT_EQ(test, other->works[kind].running, 0);
	KUNIT_EXPECT_TRUE(test, list_empty(&user->works[kind].waiting));
	memreg_user_put(user);
	memreg_user_put(other);
}

static void memreg_test_turns(struct kunit *test)
{
	unsigned int kind;

	for (kind = 0; kind < MEMREG_WORK_KINDS; kind++)
		memreg_test_turns_of(test, kind);
}

/* Wait until a work item that runs is being disabled. */
static void memreg_test_await_disable(struct work_struct *work)
{
	unsigned long end = jiffies + MEMREG_TEST_PATIENCE;

	while (!(atomic_long_read(&work->data) & WORK_OFFQ_DISABLE_MASK) &&
	       time_before(jiffies, end))
		cond_resched();
}

/* A work item that queues itself while it is being disabled. */
static void memreg_test_again_work(struct work_struct *work)
{
	struct memreg_test_turn *t =
		container_of(work, struct memreg_test_turn, turn.work);

	atomic_inc(t->began);
	wake_up_all(&memreg_test_turns_wait);
	wait_for_completion(t->go);
	memreg_test_await_disable(work);
	memreg_user_work_queue(&t->turn);
	memreg_user_work_end(&t->turn);
}

#define MEMREG_TEST_AGAIN	20

static void memreg_test_turns_again(struct kunit *test)
{
	atomic_t began = ATOMIC_INIT(0), ended = ATOMIC_INIT(0);
	struct memreg_user *user = memreg_user_get(KUIDT_INIT(4242));
	struct memreg_user_works *all;
	DECLARE_COMPLETION_ONSTACK(go);
	struct memreg_test_turn *turns;
	struct completion *again;
	int i, most;

	KUNIT_ASSERT_NOT_NULL(test, user);
	all = &user->works[MEMREG_WORK_RING];
	turns = kunit_kcalloc(test, MEMREG_TEST_TURNS, sizeof(*turns),
			      GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, turns);
	again = kunit_kcalloc(test, MEMREG_TEST_AGAIN, sizeof(*again),
			      GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, again);
	for (i = 0; i < MEMREG_TEST_AGAIN; i++)
		init_completion(&again[i]);
	for (i = 0; i < MEMREG_TEST_TURNS; i++) {
		turns[i] = (struct memreg_test_turn) {
			.go = i < MEMREG_TEST_AGAIN ? &again[i] : &go,
			.began = &began, .ended = &ended,
		};
		memreg_test_turn_begin(&turns[i], user, MEMREG_WORK_RING,
				       i < MEMREG_TEST_AGAIN ?
				       memreg_test_again_work :
				       memreg_test_turn_work);
	}
	most = READ_ONCE(all->running);
	KUNIT_EXPECT_LT(test, MEMREG_TEST_AGAIN, most);
	memreg_test_turns_reach(test, &began, most);
	for (i = 0; i < MEMREG_TEST_AGAIN; i++) {
		complete(&again[i]);
		memreg_user_work_disable(&turns[i].turn);
		KUNIT_EXPECT_TRUE(test, list_empty(&turns[i].turn.node));
		KUNIT_EXPECT_FALSE(test, work_busy(&turns[i].turn.work));
	}
	complete_all(&go);
	memreg_test_turns_reach(test, &ended,
				MEMREG_TEST_TURNS - MEMREG_TEST_AGAIN);
	for (; i < MEMREG_TEST_TURNS; i++)
		memreg_user_work_disable(&turns[i].turn);
	KUNIT_EXPECT_EQ(test, all->running, 0);
	KUNIT_EXPECT_TRUE(test, list_empty(&all->waiting));
	memreg_user_put(user);
}

static struct kunit_case memreg_conn_cases[] = {
	KUNIT_CASE(memreg_test_cm_errno),
	KUNIT_CASE(memreg_test_turns),
	KUNIT_CASE(memreg_test_turns_again),
	{}
};

static struct kunit_suite memreg_conn_suite = {
	.name = "ib_memreg_conn",
	.test_cases = memreg_conn_cases,
};

kunit_test_suites(&memreg_conn_suite);
