/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libmemreg-verbs: exports of memreg in the protection domains of an
 * application that uses libibverbs. See memreg_export_register(3).
 *
 * Preloaded, or linked in front of libibverbs, the shared library guards what a
 * program registers without knowing of memreg: see libmemreg-verbs(7).
 */
#ifndef MEMREG_VERBS_H
#define MEMREG_VERBS_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct memreg_export_mr - A registration of an export
 * @lkey: Key for the application's own work requests
 * @rkey: Key for the peers of queue pairs in the protection domain
 * @context: The device; internal, as what follows
 * @mr: What libibverbs has made, or NULL
 * @handle: Handle of the kernel's, without @mr
 * @driver: Driver of the kernel's, without @mr
 */
struct memreg_export_mr {
	uint32_t lkey;
	uint32_t rkey;
	struct ibv_context *context;
	struct ibv_mr *mr;
	uint32_t handle;
	uint32_t driver;
};

/**
 * memreg_export_register() - Register an export in a protection domain
 * @pd: The protection domain, of any device
 * @fd: Descriptor of the export, which memreg_export() has returned; can be
 *	closed afterwards
 * @offset: First byte, counted from the start of the export
 * @length: Bytes, from 1
 * @iova: I/O address of the first byte, which is at the same place in a page as
 *	@offset
 * @access: enum ibv_access_flags: LOCAL_WRITE, REMOTE_*, RELAXED_ORDERING
 * @mr: Filled in
 *
 * As ibv_reg_dmabuf_mr(3), which it calls; where the provider of libibverbs has
 * no such operation it asks the kernel. When the export is revoked, or the
 * mapping of its memory goes, both keys are dead. The registration stays until
 * memreg_export_deregister().
 *
 * Return: 0; -EOPNOTSUPP if the driver of the device imports no dma-bufs, as
 * that of soft-RoCE, or none that can be revoked, as those of bnxt_re, efa,
 * ionic, and mana (irdma and mlx5 do; `memreg caps` shows it as
 * export-register); -ENODEV if the export has ended; -EINVAL (the range, @iova,
 * @access), -EBADF (@fd), -ENOMEM, and what the driver returns.
 */
int memreg_export_register(struct ibv_pd *pd, int fd, uint64_t offset,
			   size_t length, uint64_t iova, int access,
			   struct memreg_export_mr *mr);

/**
 * memreg_export_deregister() - Give up a registration of an export
 * @mr: The registration; not to be used afterwards, unless it fails
 *
 * Return: 0; -EBUSY and what else ibv_dereg_mr(3) returns, negative.
 */
int memreg_export_deregister(struct memreg_export_mr *mr);

/**
 * struct memreg_verbs_stat - Counters of this process
 * @guarded: Registrations by ibv_reg_mr(3), and by ibv_rereg_mr(3) of these,
 *	whose keys die with the mapping
 * @passed: Registrations that were passed on to libibverbs
 * @stale: Registrations of either kind whose mapping changed before they were
 *	deregistered; of those passed on, the watched ones
 */
struct memreg_verbs_stat {
	uint64_t guarded;
	uint64_t passed;
	uint64_t stale;
};

/**
 * memreg_verbs_query() - What was counted
 * @stat: Filled in
 *
 * It is in the shared library alone.
 */
void memreg_verbs_query(struct memreg_verbs_stat *stat);

#ifdef __cplusplus
}
#endif

#endif /* MEMREG_VERBS_H */
