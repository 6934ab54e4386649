// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Registration of exports in an application's own protection domains.
 *
 * The operation exists in libibverbs, but not in each of its providers, also
 * where the kernel's driver has it: then the call is made as libibverbs would.
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "export.h"

#define PUBLIC __attribute__((visibility("default")))

/* Attributes of a call, at most */
#define ATTRS	9

/* Numbers of drivers that are tried: enum rdma_driver_id has 20. */
#define DRIVERS	64

/* A call of the kernel's, in the form of struct ib_uverbs_ioctl_hdr */
struct call {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attrs[ATTRS];
};

static void begin(struct call *call, uint16_t object, uint16_t method,
		  uint32_t driver)
{
	memset(call, 0, sizeof(*call));
	call->hdr.object_id = object;
	call->hdr.method_id = method;
	call->hdr.driver_id = driver;
}

static void add(struct call *call, uint16_t id, uint16_t length, uint64_t data)
{
	call->attrs[call->hdr.num_attrs++] = (struct ib_uverbs_attr) {
		.attr_id = id,
		.len = length,
		.flags = UVERBS_ATTR_F_MANDATORY,
		.data = data,
	};
}

static int make(struct ibv_context *context, struct call *call)
{
	call->hdr.length = sizeof(call->hdr) +
			   call->hdr.num_attrs * sizeof(call->attrs[0]);
	return ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &call->hdr) ? -errno :
								       0;
}

/* Number of the device's driver; a query says EINVAL to all others. */
static uint32_t driver_of(struct ibv_context *context)
{
	struct call call;
	uint32_t driver;

	for (driver = 0; driver < DRIVERS; driver++) {
		begin(&call, UVERBS_OBJECT_DEVICE,
		      UVERBS_METHOD_QUERY_CONTEXT, driver);
		if (make(context, &call) != -EINVAL)
			break;
	}
	return driver;
}

/* Data of up to 8 bytes is in the attribute itself. */
static int reg_by_driver(struct ibv_pd *pd, int fd, uint64_t offset,
			 size_t length, uint64_t iova, int access,
			 struct memreg_export_mr *mr)
{
	struct call call;
	int ret;

	begin(&call, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, mr->driver);
	add(&call, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
	add(&call, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, 0, pd->handle);
	add(&call, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, sizeof(offset), offset);
	add(&call, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, sizeof(uint64_t), length);
	add(&call, UVERBS_ATTR_REG_DMABUF_MR_IOVA, sizeof(iova), iova);
	add(&call, UVERBS_ATTR_REG_DMABUF_MR_FD, sizeof(uint32_t),
	    (uint32_t)fd);
	add(&call, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, sizeof(uint32_t),
	    (uint32_t)access);
	add(&call, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, sizeof(mr->lkey),
	    (uintptr_t)&mr->lkey);
	add(&call, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, sizeof(mr->rkey),
	    (uintptr_t)&mr->rkey);
	ret = make(pd->context, &call);
	mr->handle = (uint32_t)call.attrs[0].data;
	return ret;
}

/* A process seldom has devices of two drivers: try that of the last call. */
static int reg_by_kernel(struct ibv_pd *pd, int fd, uint64_t offset,
			 size_t length, uint64_t iova, int access,
			 struct memreg_export_mr *mr)
{
	static _Atomic uint32_t last;
	int ret;

	mr->driver = last;
	ret = reg_by_driver(pd, fd, offset, length, iova, access, mr);
	if (ret != -EINVAL)
		return ret;
	mr->driver = driver_of(pd->context);
	last = mr->driver;
	return reg_by_driver(pd, fd, offset, length, iova, access, mr);
}

int memreg__export_register(typeof(ibv_reg_dmabuf_mr) *reg_dmabuf,
			    struct ibv_pd *pd, int fd, uint64_t offset,
			    size_t length, uint64_t iova, int access,
			    struct memreg_export_mr *mr)
{
	memset(mr, 0, sizeof(*mr));
	mr->context = pd->context;
	errno = 0;
	mr->mr = reg_dmabuf(pd, offset, length, iova, fd, access);
	if (!mr->mr)
		return errno == EOPNOTSUPP || errno == ENOSYS ?
			reg_by_kernel(pd, fd, offset, length, iova, access,
				      mr) : errno ? -errno : -EIO;
	mr->lkey = mr->mr->lkey;
	mr->rkey = mr->mr->rkey;
	return 0;
}

int memreg__export_deregister(typeof(ibv_dereg_mr) *dereg,
			      struct memreg_export_mr *mr)
{
	struct call call;

	if (mr->mr)
		return -dereg(mr->mr);
	begin(&call, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, mr->driver);
	add(&call, UVERBS_ATTR_DESTROY_MR_HANDLE, 0, mr->handle);
	return make(mr->context, &call);
}

PUBLIC int memreg_export_register(struct ibv_pd *pd, int fd, uint64_t offset,
				  size_t length, uint64_t iova, int access,
				  struct memreg_export_mr *mr)
{
	return memreg__export_register(ibv_reg_dmabuf_mr, pd, fd, offset,
				       length, iova, access, mr);
}

PUBLIC int memreg_export_deregister(struct memreg_export_mr *mr)
{
	return memreg__export_deregister(ibv_dereg_mr, mr);
}
