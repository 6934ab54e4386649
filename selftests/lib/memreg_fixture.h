/* SPDX-License-Identifier: GPL-2.0-only */
/* All that tests need which make calls */
#ifndef MEMREG_FIXTURE_H
#define MEMREG_FIXTURE_H

#include "mem.h"
#include "raw.h"
#include "state.h"
#include "test.h"

#endif /* MEMREG_FIXTURE_H */
