// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the connection plane, for errors that the RDMA CM cannot be
 * made to return.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/errno.h>

#include "conn/address.h"

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
 * An errno of connect(2) and its kin is passed on, so that a user can act on
 * it. No other one is taken for one of them.
 */
static void memreg_test_cm_errno(struct kunit *test)
{
	int err;

	for (err = 1; err <= MAX_ERRNO; err++)
		KUNIT_EXPECT_EQ_MSG(test, memreg_test_errno_expected(err),
				    memreg_cm_errno(-err), "errno %d", err);
}

static struct kunit_case memreg_conn_cases[] = {
	KUNIT_CASE(memreg_test_cm_errno),
	{}
};

static struct kunit_suite memreg_conn_suite = {
	.name = "ib_memreg_conn",
	.test_cases = memreg_conn_cases,
};

kunit_test_suites(&memreg_conn_suite);
