// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Find which of the causes of a reason applies. A call that fails returns a
 * code, and some codes have several causes. The kernel found the cause in the
 * parameters of the call, so the library looks at these again. If it finds none
 * there, as with a newer kernel, it names all of them.
 */
#include <fcntl.h>

#include "internal.h"

#define ACCESS_KNOWN							\
	(IB_MEMREG_ACCESS_LOCAL_WRITE | IB_MEMREG_ACCESS_REMOTE_WRITE |	\
	 IB_MEMREG_ACCESS_REMOTE_READ |					\
	 IB_MEMREG_ACCESS_REMOTE_ATOMIC |				\
	 IB_MEMREG_ACCESS_MW_BIND | IB_MEMREG_ACCESS_ZERO_BASED |	\
	 IB_MEMREG_ACCESS_FLUSH_GLOBAL |				\
	 IB_MEMREG_ACCESS_FLUSH_PERSISTENT |				\
	 IB_MEMREG_ACCESS_RELAXED_ORDERING)

/* Access flags that a window can have */
#define ACCESS_WINDOW							\
	(IB_MEMREG_ACCESS_REMOTE_WRITE | IB_MEMREG_ACCESS_REMOTE_READ |	\
	 IB_MEMREG_ACCESS_REMOTE_ATOMIC | IB_MEMREG_ACCESS_ZERO_BASED |	\
	 IB_MEMREG_ACCESS_FLUSH_GLOBAL |				\
	 IB_MEMREG_ACCESS_FLUSH_PERSISTENT)

#define OPCODES_ATOMIC							\
	(1u << IB_MEMREG_OP_CMP_AND_SWP | 1u << IB_MEMREG_OP_FETCH_AND_ADD)
#define OPCODES_INLINE							\
	(1u << IB_MEMREG_OP_SEND | 1u << IB_MEMREG_OP_SEND_WITH_IMM |	\
	 1u << IB_MEMREG_OP_SEND_WITH_INV | 1u << IB_MEMREG_OP_WRITE |	\
	 1u << IB_MEMREG_OP_WRITE_WITH_IMM)

static bool is_one_of(uint16_t opcode, uint32_t opcodes)
{
	return opcode < 32 && opcodes & 1u << opcode;
}

/*
 * MRs and windows
 */

void memreg__cause_access(uint32_t access)
{
	if (access & ~(uint32_t)ACCESS_KNOWN)
		memreg__because("an access flag is unknown", NULL);
	else if (access & IB_MEMREG_ACCESS_REMOTE_WRITE)
		memreg__because("remote write needs local write",
				"add IB_MEMREG_ACCESS_LOCAL_WRITE");
	else
		memreg__because("remote atomic needs local write",
				"add IB_MEMREG_ACCESS_LOCAL_WRITE");
}

static void cause_iova(const struct ib_memreg_mr_register *arg)
{
	uint64_t iova = arg->flags & IB_MEMREG_MR_IOVA ? arg->iova : 0;

	if (arg->access & IB_MEMREG_ACCESS_ZERO_BASED &&
	    arg->flags & IB_MEMREG_MR_IOVA)
		memreg__because("a zero-based MR can't have another I/O address",
				"leave out IB_MEMREG_MR_IOVA or IB_MEMREG_ACCESS_ZERO_BASED");
	else if ((iova ^ arg->addr) & 4095)
		memreg__because("the I/O address differs from the memory's in the offset within a page of 4096 bytes",
				NULL);
	else
		memreg__because("I/O address plus length is more than 64 bits hold",
				NULL);
}

static void cause_single_key(struct memreg *m,
			     const struct ib_memreg_mr_register *arg)
{
	static const char hint[] =
		"leave out IB_MEMREG_MR_SINGLE_KEY, and use the keyed segments";
	uint64_t can;

	if (arg->flags & IB_MEMREG_MR_FD)
		memreg__because("the MR of a descriptor can't have a single key",
				hint);
	else if (arg->access & IB_MEMREG_ACCESS_MW_BIND)
		memreg__because("windows can't be bound to an MR with a single key",
				hint);
	else if (arg->access & IB_MEMREG_ACCESS_FLUSH_PERSISTENT)
		memreg__because("an MR with a single key can't have FLUSH_PERSISTENT",
				hint);
	else if (memreg__has_cap(m, IB_MEMREG_CAP_SINGLE_KEY, &can) && !can)
		memreg__because("the driver of the RDMA device is none of those that make single keys",
				hint);
	else
		memreg__because("the MR is longer than a single key of this driver covers",
				hint);
}

void memreg__cause_mr(struct memreg *m, const struct ib_memreg_mr_register *arg)
{
	switch (memreg_reason_code()) {
	case IB_MEMREG_REASON_ACCESS:
		memreg__cause_access(arg->access);
		break;
	case IB_MEMREG_REASON_IOVA:
		cause_iova(arg);
		break;
	case IB_MEMREG_REASON_SINGLE_KEY:
		cause_single_key(m, arg);
		break;
	case IB_MEMREG_REASON_FD:
		if (fcntl(arg->fd, F_GETFD) < 0)
			memreg__because("the descriptor is not open", NULL);
		else
			memreg__because("the descriptor is not one of a dma-buf",
					"memreg_memory_create() makes one");
		break;
	}
}

void memreg__cause_bind(uint32_t access)
{
	if (memreg_reason_code() != IB_MEMREG_REASON_ACCESS)
		return;
	if (access & ~(uint32_t)ACCESS_WINDOW)
		memreg__because("a window can't have an access flag that is set",
				"windows take remote access, flushes and ZERO_BASED");
	else
		memreg__because("the window has no remote access",
				"add IB_MEMREG_ACCESS_REMOTE_READ, for one");
}

/*
 * The window at @at cannot be revoked now: is the same window named before it?
 */
void memreg__cause_revoke(const uint32_t *windows, unsigned int count,
			  unsigned int at)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		if (i != at && windows[i] == windows[at]) {
			memreg__because("the window is named twice",
					"name each window once");
			return;
		}
	}
	memreg__because("another call is at work on the window",
			"wait for that call");
}

/*
 * Queues and work requests
 */

/* Parameters of a queue, which need a ring */
struct half {
	uint32_t ring;
	uint32_t n;
	const char *no_n;
	const char *no_ring;
};

/* Is but one of the two there? */
static bool is_half(const struct half *h)
{
	if (!h->ring == !h->n)
		return false;
	memreg__because(h->ring ? h->no_n : h->no_ring, NULL);
	return true;
}

static void cause_depth(const struct ib_memreg_queues *q)
{
	const struct half send = {
		q->send_ring_id, q->max_send,
		"the send queue has a ring, and max_send is 0",
		"max_send is set, and the send queue has no ring",
	}, recv = {
		q->recv_ring_id, q->max_recv,
		"the receive queue has a ring, and max_recv is 0",
		"max_recv is set, and the receive queue has no ring",
	};

	if (!is_half(&send) && !is_half(&recv))
		memreg__because("a queue is to be deeper than the device allows",
				"`memreg caps` shows how many work requests a queue has");
}

static void cause_sges(const struct ib_memreg_queues *q)
{
	const struct half send = {
		q->send_ring_id, q->max_send_sge,
		"the send queue has a ring, and max_send_sge is 0",
		"max_send_sge is set, and the send queue has no ring",
	}, recv = {
		q->recv_ring_id, q->max_recv_sge,
		"the receive queue has a ring, and max_recv_sge is 0",
		"max_recv_sge is set, and the receive queue has no ring",
	};

	if (!is_half(&send) && !is_half(&recv))
		memreg__because("a work request is to have more than 16 SGEs",
				NULL);
}

void memreg__cause_queues(const struct ib_memreg_queues *q)
{
	switch (memreg_reason_code()) {
	case IB_MEMREG_REASON_COUNT:
		cause_depth(q);
		break;
	case IB_MEMREG_REASON_SGES:
		cause_sges(q);
		break;
	case IB_MEMREG_REASON_INLINE:
		if (q->max_inline > IB_MEMREG_INLINE_MAX)
			memreg__because("max_inline is more than 256", NULL);
		else
			memreg__because("max_inline is set, and the send queue has no ring",
					NULL);
		break;
	}
}

/*
 * A BIND before the work request inserts its rkey where that has no inline
 * data.
 */
static bool is_inserted_behind(const struct ib_memreg_wr *wrs, unsigned int at)
{
	uint32_t length = wrs[at].length;
	unsigned int i;

	for (i = at; i-- && wrs[i].opcode == IB_MEMREG_OP_BIND;)
		if (wrs[i].flags & IB_MEMREG_WR_INSERT_RKEY &&
		    (length < 4 || wrs[i].insert_at > length - 4))
			return true;
	return false;
}

static void cause_inline(const struct ib_memreg_wr *wrs, unsigned int at)
{
	const struct ib_memreg_wr *wr = &wrs[at];

	if (wr->opcode == IB_MEMREG_OP_BIND &&
	    wr->flags & IB_MEMREG_WR_INSERT_RKEY)
		memreg__because("more rkeys than 16 are to be inserted into one message",
				"send several");
	else if (!is_one_of(wr->opcode, OPCODES_INLINE))
		memreg__because("the opcode takes no inline data", NULL);
	else if (!(wr->flags & IB_MEMREG_WR_INLINE))
		memreg__because("rkeys are to be inserted into a message that is not inline",
				"set IB_MEMREG_WR_INLINE");
	else if (is_inserted_behind(wrs, at))
		memreg__because("an rkey is to be inserted behind the end of the inline data",
				NULL);
	else
		memreg__because("the inline data is longer than max_inline of the send queue",
				"memreg_connect_queues() and memreg_setup() take up to 256 bytes");
}

static void cause_opcode_device(struct memreg *m, const struct ib_memreg_wr *wr)
{
	uint64_t can;

	if (memreg__has_cap(m, IB_MEMREG_CAP_OPCODES, &can) &&
	    can & UINT64_C(1) << wr->opcode)
		memreg__because("the peer has agreed to no READs and atomics",
				"its responder_resources must not be 0");
	else
		memreg__because("the RDMA device, as the kernel drives it, lacks the opcode",
				"`memreg caps` shows the opcodes that can be submitted");
}

/* EAGAIN: once for each try, so this is cheap */
static void cause_full(const struct ib_memreg_wr *wr)
{
	if (wr->opcode == IB_MEMREG_OP_RECV)
		memreg__because("there is no room on the receive queue",
				"wait for completions first, or make it larger");
	else
		memreg__because("there is no room on the send queue",
				"wait for completions first, signal now and then, or make it larger");
}

static void cause_no_queue(const struct ib_memreg_wr *wr)
{
	const char *hint =
		"give it one: memreg_connect_queues(), memreg_setup()";

	if (wr->opcode == IB_MEMREG_OP_RECV)
		memreg__because("the endpoint has no receive queue", hint);
	else
		memreg__because("the endpoint has no send queue", hint);
}

static void cause_opcode(uint16_t opcode)
{
	if (opcode && opcode <= IB_MEMREG_OP_ATOMIC_WRITE)
		memreg__because("a shared receive queue takes RECVs alone",
				NULL);
	else
		memreg__because("there is no such opcode", NULL);
}

static void cause_wr_sges(const struct ib_memreg_wr *wr)
{
	if (is_one_of(wr->opcode, OPCODES_ATOMIC) && wr->num_sge != 1)
		memreg__because("an atomic has one SGE", NULL);
	else
		memreg__because("it has more SGEs than the queue was made for",
				NULL);
}

static void cause_align(const struct ib_memreg_wr *wr)
{
	if (wr->sge.length != 8)
		memreg__because("an atomic has a length of 8", NULL);
	else
		memreg__because("the remote address of an atomic is no multiple of 8",
				NULL);
}

static void cause_window(const struct ib_memreg_wr *wr)
{
	if (wr->opcode == IB_MEMREG_OP_BIND)
		memreg__because("the window is bound already",
				"end it by an INVALIDATE first");
	else
		memreg__because("the window is not bound on this endpoint",
				NULL);
}

void memreg__cause_wr(struct memreg *m, const struct ib_memreg_wr *wrs,
		      unsigned int at)
{
	const struct ib_memreg_wr *wr = &wrs[at];

	switch (memreg_reason_code()) {
	case IB_MEMREG_REASON_QUEUE_FULL:
		cause_full(wr);
		break;
	case IB_MEMREG_REASON_NO_QUEUE:
		cause_no_queue(wr);
		break;
	case IB_MEMREG_REASON_INLINE:
		cause_inline(wrs, at);
		break;
	case IB_MEMREG_REASON_OPCODE_DEVICE:
		cause_opcode_device(m, wr);
		break;
	case IB_MEMREG_REASON_OPCODE:
		cause_opcode(wr->opcode);
		break;
	case IB_MEMREG_REASON_SGES:
		cause_wr_sges(wr);
		break;
	case IB_MEMREG_REASON_ALIGN:
		cause_align(wr);
		break;
	case IB_MEMREG_REASON_BOUND_WINDOW:
		cause_window(wr);
		break;
	default:
		memreg__cause_bind(wr->access);
	}
}
