/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * memreg_export_register() and memreg_export_deregister(), with the functions
 * of a given libibverbs
 */
#ifndef MEMREG_VERBS_EXPORT_H
#define MEMREG_VERBS_EXPORT_H

#include "memreg-verbs.h"

int memreg__export_register(typeof(ibv_reg_dmabuf_mr) *reg_dmabuf,
			    struct ibv_pd *pd, int fd, uint64_t offset,
			    size_t length, uint64_t iova, int access,
			    struct memreg_export_mr *mr);
int memreg__export_deregister(typeof(ibv_dereg_mr) *dereg,
			      struct memreg_export_mr *mr);

#endif /* MEMREG_VERBS_EXPORT_H */
