/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libmemreg-fabric: the registration caches of libfabric, made exact by the
 * kernel module ib_memreg.
 *
 * Preload the library, or link to it; or load it by dlopen(3), and call
 * memreg_fabric_import() before the first domain is opened. See
 * libmemreg-fabric(7).
 */
#ifndef MEMREG_FABRIC_H
#define MEMREG_FABRIC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct memreg_fabric_stat - Counters since the library was loaded
 * @subscribed: Registrations that libfabric was allowed to keep
 * @refused: Registrations that it was not allowed to keep, as their memory had
 *	changed since before they were made, because a domain still holds a
 *	stale one of the same range, or for lack of room
 * @stale: Lookups that found a registration whose memory had changed
 */
struct memreg_fabric_stat {
	uint64_t subscribed;
	uint64_t refused;
	uint64_t stale;
};

/**
 * memreg_fabric_import() - Make memreg the memory monitor of libfabric's caches
 *
 * It applies to all domains of the process that are opened afterwards, of
 * providers that cache registrations of system memory; of the libfabric that
 * the caller's calls reach. The first call of fi_getinfo(3) through this
 * library does the same. Once it has succeeded, further calls do nothing. If it
 * fails, libfabric keeps its own memory monitor, and a line on stderr reports
 * that.
 *
 * Return: 0; -EBUSY (the environment has FI_MR_CACHE_MONITOR, which libfabric
 * would obey; or a domain is open, or another monitor was imported), -ENOENT
 * (the module is not loaded), -EACCES (no permission), -ENOSYS (this libfabric
 * imports no monitors, or there is none), -ENOSPC (more than eight copies of
 * libfabric), -ENOMEM, -EMFILE, -ENFILE.
 */
int memreg_fabric_import(void);

/**
 * memreg_fabric_query() - What was counted
 * @stat: Filled in
 */
void memreg_fabric_query(struct memreg_fabric_stat *stat);

#ifdef __cplusplus
}
#endif

#endif /* MEMREG_FABRIC_H */
