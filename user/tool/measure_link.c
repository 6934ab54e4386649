// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What both sides of memreg bw and lat have: memory, queues, operations */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

const char *const measure_ops[] = { "write", "read", "send" };

/* A slot for each that is outstanding in either direction */
static uint64_t memory_of(const struct measure *s)
{
	uint64_t slots = s->op == OP_SEND ? 2 * s->depth + 1 : 1;

	return slots * s->size;
}

int measure_open(struct measure *s)
{
	uint64_t length = memory_of(s);

	s->memory = aligned_alloc(4096, (length + 4095) / 4096 * 4096);
	if (!s->memory)
		return fail("%s", strerror(ENOMEM));
	memset(s->memory, 0, length);
	if (memreg_mr_register(s->m, s->domain, s->memory, length,
			       IB_MEMREG_ACCESS_LOCAL_WRITE |
			       IB_MEMREG_ACCESS_MW_BIND, 0, &s->mr) ||
	    memreg_ring_create(s->m, 4 * MEASURE_DEPTH_MAX, 64, -1,
			       s->lat ? IB_MEMREG_RING_NO_MODERATION : 0,
			       &s->ring))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

struct ib_memreg_queues measure_queues(const struct measure *s)
{
	return (struct ib_memreg_queues) {
		.send_ring_id = s->ring.id,
		.recv_ring_id = s->ring.id,
		.max_send = 2 * MEASURE_DEPTH_MAX,
		.max_recv = 2 * MEASURE_DEPTH_MAX,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
}

/* Messages are received into slots behind the one that they are sent from */
void measure_prep_receive(const struct measure *s, struct ib_memreg_wr *wr,
			  uint64_t slot)
{
	memreg_prep_recv(wr, s->endpoint, s->mr.id, (slot + 1) * s->size,
			 (uint32_t)s->size, slot);
}

int measure_post_receives(struct measure *s)
{
	if (s->op == OP_SEND &&
	    memreg_submit_recvs(s->m, s->endpoint, s->mr.id, s->size,
				(uint32_t)s->size, 0,
				(unsigned int)(2 * s->depth), NULL))
		return fail("%s", memreg_reason());
	return EXIT_GOOD;
}

void measure_prep(const struct measure *s, struct ib_memreg_wr *wr)
{
	uint32_t size = (uint32_t)s->now;

	switch (s->op) {
	case OP_WRITE:
		memreg_prep_write(wr, s->endpoint, s->mr.id, 0, size,
				  s->grant.iova, s->grant.rkey);
		break;
	case OP_READ:
		memreg_prep_read(wr, s->endpoint, s->mr.id, 0, size,
				 s->grant.iova, s->grant.rkey);
		break;
	default:
		memreg_prep_send(wr, s->endpoint, s->mr.id, 0, size);
	}
	memreg_wr_signal(wr, 0);
}
