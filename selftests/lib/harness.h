/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's harness, which ends a test after 30 seconds unless the test sets
 * a limit of its own. A slow and busy machine needs more; selftests/run limits
 * the time of a whole program.
 */
#ifndef SELFTESTS_HARNESS_H
#define SELFTESTS_HARNESS_H

#include <kselftest_harness.h>

#include "test.h"

/*
 * Each file that includes this defines the variable; a program links several.
 */
#pragma weak _fixture_global

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	LIMIT_S

#endif /* SELFTESTS_HARNESS_H */
