/* SPDX-License-Identifier: GPL-2.0-only */
/* Headers for tests that move data, and short names of constants */
#ifndef SELFTESTS_DATA_H
#define SELFTESTS_DATA_H

#include "ends.h"
#include "memreg_fixture.h"
#include "net.h"

#define OWNER_IP	OWNER_IP4
#define PEER_IP		PEER_IP4
#define WAIT_MS		LIMIT_MS
#define byte_at		pattern
#define raw_users	state_users

#endif /* SELFTESTS_DATA_H */
