// SPDX-License-Identifier: GPL-2.0-only
/* The tracepoints that trace.h describes. */
#define CREATE_TRACE_POINTS
#include "pages/trace.h"
