/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The meaning of kselftest_harness.h for cppcheck, which takes minutes with the
 * real one and then complains of it. A failed ASSERT ends the test; the handler
 * that may follow either kind is what the loop repeats.
 */
#include <stdlib.h>
#include <string.h>

struct __test_metadata;

#define FIXTURE(f)		struct f
#define FIXTURE_VARIANT(f)	struct variant_##f
#define FIXTURE_VARIANT_ADD(f, v) const struct variant_##f f##_##v =
#define FIXTURE_DATA(f)		struct f
#define TEST_ARGUMENTS(f)	(struct __test_metadata *_metadata,	\
				 struct f *self,			\
				 const struct variant_##f *variant)
#define FIXTURE_SETUP(f)	void f##_setup TEST_ARGUMENTS(f)
#define FIXTURE_TEARDOWN(f)	void f##_teardown TEST_ARGUMENTS(f)
#define FIXTURE_TEARDOWN_PARENT(f) FIXTURE_TEARDOWN(f)
#define TEST_F(f, name)		void f##_##name TEST_ARGUMENTS(f)
#define TEST_F_TIMEOUT(f, name, s) TEST_F(f, name)
#define TEST_F_SIGNAL(f, name, s) TEST_F(f, name)
#define TEST(name)		void name(struct __test_metadata *_metadata)
#define TEST_TIMEOUT(name, s)	TEST(name)
#define TEST_SIGNAL(name, s)	TEST(name)
#define TEST_HARNESS_MAIN	int main(void) { return 0; }
#define TH_LOG(...)		printf(__VA_ARGS__)
#define SKIP(statement, ...)	do { printf(__VA_ARGS__); statement; } while (0)

#define ASSERT_EQ(a, b)		for (; !((a) == (b)); exit(1))
#define ASSERT_NE(a, b)		for (; !((a) != (b)); exit(1))
#define ASSERT_LT(a, b)		for (; !((a) < (b)); exit(1))
#define ASSERT_LE(a, b)		for (; !((a) <= (b)); exit(1))
#define ASSERT_GT(a, b)		for (; !((a) > (b)); exit(1))
#define ASSERT_GE(a, b)		for (; !((a) >= (b)); exit(1))
#define ASSERT_NULL(a)		for (; (a); exit(1))
#define ASSERT_TRUE(a)		for (; !(a); exit(1))
#define ASSERT_FALSE(a)		for (; (a); exit(1))
#define ASSERT_STREQ(a, b)	for (; strcmp(a, b); exit(1))
#define ASSERT_STRNE(a, b)	for (; !strcmp(a, b); exit(1))
#define EXPECT_EQ(a, b)		if (!((a) == (b)))
#define EXPECT_NE(a, b)		if (!((a) != (b)))
#define EXPECT_LT(a, b)		if (!((a) < (b)))
#define EXPECT_LE(a, b)		if (!((a) <= (b)))
#define EXPECT_GT(a, b)		if (!((a) > (b)))
#define EXPECT_GE(a, b)		if (!((a) >= (b)))
#define EXPECT_NULL(a)		if (a)
#define EXPECT_TRUE(a)		if (!(a))
#define EXPECT_FALSE(a)		if (a)
#define EXPECT_STREQ(a, b)	if (strcmp(a, b))
#define EXPECT_STRNE(a, b)	if (!strcmp(a, b))
