// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Work requests: shared receive queues, submission, names */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

uint32_t memreg__queues_flags(uint32_t flags)
{
	const char *word = getenv("MEMREG_SCATTER_TO_CQE");

	if (word && !strcmp(word, "0"))
		flags |= IB_MEMREG_QUEUES_NO_INLINE_RECEIVE;
	return flags;
}

EXPORT int memreg_srq_create(struct memreg *m, uint32_t domain, uint32_t ring,
			     uint32_t max_recv, uint32_t max_recv_sge,
			     uint32_t flags, uint32_t *srq)
{
	struct ib_memreg_srq_create arg = {
		.size = sizeof(arg),
		.flags = memreg__queues_flags(flags),
		.domain_id = domain,
		.ring_id = ring,
		.max_recv = max_recv,
		.max_recv_sge = max_recv_sge,
	};
	int ret;

	ret = memreg__call(m->fd, IB_MEMREG_IOC_SRQ_CREATE, &arg, "srq_create");
	if (ret && memreg_reason_code() == IB_MEMREG_REASON_COUNT)
		return memreg__about_number(ret, "receives", max_recv);
	if (ret)
		return memreg__about_ids(ret, "domain", domain, "ring", ring,
					 NULL, 0);
	*srq = arg.out_srq_id;
	return 0;
}

static int about_sges(int err, unsigned int sges)
{
	if (sges > IB_MEMREG_SGE_MAX)
		memreg__because("a work request has up to 16 SGEs", NULL);
	else
		memreg__because("there are more SGEs than the queue was made for",
				"max_send_sge or max_recv_sge of the queue is the limit");
	return memreg__about_number(err, "SGEs", sges);
}

/* The work request that was not taken is to blame, if there is one */
static int about_wr(int err, const struct ib_memreg_wr *wrs,
		    unsigned int count, unsigned int taken)
{
	if (memreg_reason_code() == IB_MEMREG_REASON_COUNT)
		return memreg__about_number(err, "work requests", count);
	if (memreg_reason_code() == IB_MEMREG_REASON_OPCODE && taken < count)
		return memreg__about_number(err, "opcode", wrs[taken].opcode);
	if (memreg_reason_code() == IB_MEMREG_REASON_SGES && taken < count)
		return about_sges(err, wrs[taken].num_sge);
	switch (-err) {
	case ENOENT:
	case ENOTCONN:
	case EACCES:
	case ESTALE:
	case EMSGSIZE:
	case EOVERFLOW:
	case EBUSY:
	case EAGAIN:
		break;
	default:
		/* the kernel may not have read it: nor is it read here */
		return memreg__about_number(err, "work request", taken);
	}
	wrs += taken;
	/* Only where there is none, it is unknown which it was to be. */
	return memreg__about_ids(err, err == -ENOENT &&
				 wrs->opcode == IB_MEMREG_OP_RECV ?
				 "receive queue" : "endpoint", wrs->target_id,
				 "MR", wrs->sge.mr_id, "window",
				 wrs->window_id);
}

EXPORT int memreg_submit(struct memreg *m, struct ib_memreg_wr *wrs,
			 unsigned int count, unsigned int *taken)
{
	struct ib_memreg_submit arg = {
		.size = sizeof(arg),
		.count = count,
		.wrs = to_u64(wrs),
	};
	int ret = memreg__call(m->fd, IB_MEMREG_IOC_SUBMIT, &arg, "submit");

	if (taken)
		*taken = arg.out_taken;
	return ret ? about_wr(ret, wrs, count, arg.out_taken) : 0;
}

EXPORT int memreg_submit_recvs(struct memreg *m, uint32_t target, uint32_t mr,
			       uint64_t offset, uint32_t length, uint64_t first,
			       unsigned int count, unsigned int *taken)
{
	struct ib_memreg_wr wrs[64];
	unsigned int done = 0, now, n, i;
	int ret = 0;

	while (!ret && done < count) {
		n = count - done < 64 ? count - done : 64;
		for (i = 0; i < n; i++)
			memreg_prep_recv(&wrs[i], target, mr,
					 offset + (uint64_t)length * (done + i),
					 length, first + done + i);
		ret = memreg_submit(m, wrs, n, &now);
		done += now;
	}
	if (taken)
		*taken = done;
	return ret;
}

EXPORT const char *memreg_wc_status_string(uint32_t status)
{
	static const char *const texts[] = {
		[IB_MEMREG_WC_SUCCESS] = "success",
		[IB_MEMREG_WC_LOC_LEN_ERR] =
			"the message is longer than the receive that it came to",
		[IB_MEMREG_WC_LOC_QP_OP_ERR] =
			"the queue found something wrong with the work request",
		[IB_MEMREG_WC_LOC_PROT_ERR] =
			"local memory that it may not reach",
		[IB_MEMREG_WC_WR_FLUSH_ERR] =
			"the connection ended before its turn came",
		[IB_MEMREG_WC_MW_BIND_ERR] = "the window can't be bound",
		[IB_MEMREG_WC_BAD_RESP_ERR] = "an answer that makes no sense",
		[IB_MEMREG_WC_LOC_ACCESS_ERR] =
			"local memory that it may not write",
		[IB_MEMREG_WC_REM_INV_REQ_ERR] =
			"the peer found the request invalid",
		[IB_MEMREG_WC_REM_ACCESS_ERR] = "the peer refuses the access",
		[IB_MEMREG_WC_REM_OP_ERR] = "the peer could not do it",
		[IB_MEMREG_WC_RETRY_EXC_ERR] = "the peer does not answer",
		[IB_MEMREG_WC_RNR_RETRY_EXC_ERR] =
			"the peer was not ready for it, again and again",
		[IB_MEMREG_WC_REM_ABORT_ERR] = "the peer gave it up",
		[IB_MEMREG_WC_FATAL_ERR] = "the RDMA device failed",
		[IB_MEMREG_WC_RESP_TIMEOUT_ERR] =
			"the peer did not answer in time",
		[IB_MEMREG_WC_GENERAL_ERR] = "it failed",
	};

	if (status >= sizeof(texts) / sizeof(texts[0]) || !texts[status])
		return "a status that this library doesn't know";
	return texts[status];
}

/* Does this operation access memory of the peer's by a key? */
static bool uses_key(uint32_t opcode)
{
	switch (opcode) {
	case IB_MEMREG_OP_WRITE:
	case IB_MEMREG_OP_WRITE_WITH_IMM:
	case IB_MEMREG_OP_READ:
	case IB_MEMREG_OP_CMP_AND_SWP:
	case IB_MEMREG_OP_FETCH_AND_ADD:
	case IB_MEMREG_OP_FLUSH:
	case IB_MEMREG_OP_ATOMIC_WRITE:
		return true;
	default:
		return false;
	}
}

/* Does this operation consume a receive of the peer's? */
static bool takes_receive(uint32_t opcode)
{
	return opcode == IB_MEMREG_OP_SEND ||
	       opcode == IB_MEMREG_OP_SEND_WITH_IMM ||
	       opcode == IB_MEMREG_OP_SEND_WITH_INV ||
	       opcode == IB_MEMREG_OP_WRITE_WITH_IMM;
}

EXPORT const char *memreg_cqe_reason(const struct ib_memreg_cqe *cqe)
{
	if (cqe->status == IB_MEMREG_WC_REM_ACCESS_ERR && uses_key(cqe->opcode))
		return "the peer refuses the access: its key is revoked, "
		       "or is not for this range or use";
	if (cqe->status == IB_MEMREG_WC_RNR_RETRY_EXC_ERR &&
	    takes_receive(cqe->opcode))
		return "the peer has no buffer for the message";
	if (cqe->status == IB_MEMREG_WC_REM_INV_REQ_ERR &&
	    takes_receive(cqe->opcode))
		return "the peer found the request invalid: "
		       "the message is longer than the receive, for example";
	return memreg_wc_status_string(cqe->status);
}

EXPORT const char *memreg_opcode_string(uint32_t opcode)
{
	static const char *const names[] = {
		[IB_MEMREG_OP_SEND] = "SEND",
		[IB_MEMREG_OP_SEND_WITH_IMM] = "SEND_WITH_IMM",
		[IB_MEMREG_OP_SEND_WITH_INV] = "SEND_WITH_INV",
		[IB_MEMREG_OP_WRITE] = "WRITE",
		[IB_MEMREG_OP_WRITE_WITH_IMM] = "WRITE_WITH_IMM",
		[IB_MEMREG_OP_READ] = "READ",
		[IB_MEMREG_OP_CMP_AND_SWP] = "CMP_AND_SWP",
		[IB_MEMREG_OP_FETCH_AND_ADD] = "FETCH_AND_ADD",
		[IB_MEMREG_OP_RECV] = "RECV",
		[IB_MEMREG_OP_BIND] = "BIND",
		[IB_MEMREG_OP_INVALIDATE] = "INVALIDATE",
		[IB_MEMREG_OP_FLUSH] = "FLUSH",
		[IB_MEMREG_OP_ATOMIC_WRITE] = "ATOMIC_WRITE",
	};

	if (opcode >= sizeof(names) / sizeof(names[0]) || !names[opcode])
		return "unknown";
	return names[opcode];
}
