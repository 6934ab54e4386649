/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Conversion of addresses, errnos and private data between the RDMA CM and the
 * ABI.
 */
#ifndef _MEMREG_CONN_ADDRESS_H
#define _MEMREG_CONN_ADDRESS_H

#include <linux/types.h>
#include <rdma/rdma_cm.h>

struct ib_memreg_addr;
struct memreg_file;
struct memreg_ucmd;
struct sockaddr_storage;

/* Most private data that the RDMA CM carries in the port space RDMA_PS_TCP. */
#define MEMREG_CONNECT_DATA	56
#define MEMREG_ACCEPT_DATA	196
#define MEMREG_REJECT_DATA	148

bool memreg_addr_any(const struct ib_memreg_addr *addr);
bool memreg_addr_valid(const struct ib_memreg_addr *addr);
void memreg_addr_to_kernel(const struct ib_memreg_addr *addr,
			   struct sockaddr_storage *ss);
void memreg_addr_from_kernel(struct ib_memreg_addr *addr,
			     const struct sockaddr_storage *ss,
			     const struct rdma_cm_id *id);
int memreg_cm_errno(int err);
int memreg_fail_address(struct memreg_ucmd *ucmd, int err);
struct rdma_cm_id *memreg_id_create(struct memreg_file *file,
				    rdma_cm_event_handler handler,
				    void *context);
int memreg_id_bind(struct memreg_ucmd *ucmd, struct rdma_cm_id *id,
		   const struct ib_memreg_addr *addr);
int memreg_private_data_get(struct memreg_ucmd *ucmd, void *data, u64 from,
			    u32 len, u32 max);

#endif /* _MEMREG_CONN_ADDRESS_H */
