/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of work requests. The checks of plain work requests are inline. */
#ifndef _MEMREG_CONN_SUBMIT_WR_H
#define _MEMREG_CONN_SUBMIT_WR_H

#include <linux/bits.h>
#include <linux/nospec.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <uapi/rdma/ib_memreg.h>

struct memreg_kdevice;
struct memreg_queue;
struct memreg_ucmd;

/* Number of opcodes with rules. */
#define MEMREG_OPCODES	(IB_MEMREG_OP_INVALIDATE + 1)

/**
 * struct memreg_opcode - Properties of an opcode
 * @wr: The device's opcode
 * @parts: It can be split into parts
 * @part: The device's opcode of the parts before the last one
 * @flags: Flags that are allowed with it
 * @ex: It uses ib_memreg_wr.ex
 * @remote: It has an address at the peer
 * @atomic: It is one of the atomics
 * @write: It writes to local memory
 * @window: It is about a window
 * @plain: It is neither about a window nor one of the atomics
 */
struct memreg_opcode {
	enum ib_wr_opcode wr;
	bool parts;
	enum ib_wr_opcode part;
	u16 flags;
	bool ex;
	bool remote;
	bool atomic;
	bool write;
	bool window;
	bool plain;
};

extern const struct memreg_opcode memreg_opcodes[MEMREG_OPCODES];

/* The properties of an opcode that was checked, not speculated about. */
static inline const struct memreg_opcode *memreg_opcode(u16 opcode)
{
	return &memreg_opcodes[array_index_nospec(opcode, MEMREG_OPCODES)];
}

u64 memreg_submit_opcodes(struct memreg_kdevice *mdev);
bool memreg_submit_writes(u16 opcode);
int memreg_bad_opcode(struct memreg_ucmd *ucmd, const struct ib_memreg_wr *wr);
int memreg_bad_flags(struct memreg_ucmd *ucmd, u16 flags);
int memreg_check_fields(struct memreg_ucmd *ucmd,
			const struct memreg_queue *queue,
			const struct ib_memreg_wr *wr,
			const struct memreg_opcode *op);

/*
 * Is a work request plain: a SEND, WRITE, READ or RECV of one range that is not
 * too long for a message, with all other fields 0? Most are, and need not be
 * checked field by field.
 */
static inline bool memreg_wr_is_plain(const struct ib_memreg_wr *wr,
				      const struct memreg_opcode *op,
				      u32 longest)
{
	u32 narrow = wr->ex | wr->length | wr->window_id | wr->access |
		     wr->insert_at | wr->lease_id |
		     (wr->flags & IB_MEMREG_WR_INLINE);
	u64 wide = wr->sges | wr->compare_add | wr->swap;

	if (!op->remote) {
		narrow |= wr->rkey;
		wide |= wr->remote_addr;
	}
	return op->plain && wr->num_sge == 1 && !(narrow | wide) &&
	       wr->sge.length <= longest;
}

/* The parameters of a BIND, as WINDOW_BIND has them. */
static inline struct ib_memreg_bind
memreg_wr_bind(const struct ib_memreg_wr *wr)
{
	return (struct ib_memreg_bind) {
		.mr_id = wr->sge.mr_id,
		.offset = wr->sge.offset,
		.length = wr->sge.length,
		.access = wr->access,
	};
}

/*
 * Check a work request, except its memory and window. @opcodes is the mask of
 * the device's opcodes, and @longest the most bytes of its messages; sets
 * @plain if the work request is plain.
 */
static inline int memreg_check_wr(struct memreg_ucmd *ucmd, u64 opcodes,
				  u32 longest,
				  const struct memreg_queue *queue,
				  const struct ib_memreg_wr *wr, bool *plain)
{
	const struct memreg_opcode *op;
	u16 flags;

	if (wr->opcode >= MEMREG_OPCODES || !(opcodes & BIT_ULL(wr->opcode)))
		return memreg_bad_opcode(ucmd, wr);
	op = memreg_opcode(wr->opcode);
	flags = wr->flags & ~op->flags;
	if (flags)
		return memreg_bad_flags(ucmd, flags);
	/* Any queue takes one SGE. */
	*plain = memreg_wr_is_plain(wr, op, longest);
	return *plain ? 0 : memreg_check_fields(ucmd, queue, wr, op);
}

#endif /* _MEMREG_CONN_SUBMIT_WR_H */
