// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests of a client in the kernel that end from several sides at once: their
 * answers come, their callers are killed, and their connection ends. The client
 * and its server are in the module of the bench, kernel/tests/kbench_client.c,
 * which checks that nobody writes to memory that is its caller's again.
 *
 * time limit: 600
 */
#include <stdio.h>

#include "harness.h"
#include "module.h"
#include "test.h"

#define MODULE	"ib_memreg_bench"
/* Connections between two lines of progress, and their requests. */
#define ROUNDS	25
#define KILLS	8

FIXTURE(race)
{
	bool loaded;
};

FIXTURE_SETUP(race)
{
	char options[64];

	snprintf(options, sizeof(options), "device=%s", test_device());
	self->loaded = test_module_load(MODULE, options);
	if (!self->loaded)
		SKIP(return, MODULE ".ko was not built");
}

FIXTURE_TEARDOWN(race)
{
	if (self->loaded)
		test_module_unload(MODULE);
}

/* 10,000 requests in a soak. */
TEST_F_TIMEOUT(race, I1_kills_and_disconnects, SOAK_S)
{
	const char *race = test_module_parameter(MODULE, "race");
	unsigned int total = times(100, 1250), i, n;
	char rounds[16];
	long killed = 0;

	for (i = 0; i < total; i += n) {
		n = total - i < ROUNDS ? total - i : ROUNDS;
		snprintf(rounds, sizeof(rounds), "%u", n);
		ASSERT_EQ(0, file_write(race, rounds));
		killed += file_number(race);
		ksft_print_msg("%u connections, %u requests, %ld killed\n",
			       i + n, (i + n) * KILLS, killed);
	}
	EXPECT_LT(0, killed);
}

TEST_HARNESS_MAIN
