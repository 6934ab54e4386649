/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The memory monitor that libfabric imports */
#ifndef MEMREG_FABRIC_MONITOR_H
#define MEMREG_FABRIC_MONITOR_H

#include <rdma/fabric.h>
#include <rdma/fi_ext.h>

/*
 * Make the log that the monitor looks at, while there is none. Returns 0 or
 * -errno, with memreg_reason().
 */
int monitor_prepare(void);

/* The operations of a monitor, the same for each libfabric of the process */
struct fi_ops_mem_monitor *monitor_ops(void);

/* A library is about to pin memory: see before_pin() */
void monitor_before_pin(const void *addr, size_t length);

#endif /* MEMREG_FABRIC_MONITOR_H */
