// SPDX-License-Identifier: GPL-2.0-only
/*
 * An endpoint of memreg, a stock end, and the objects needed to connect them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ends.h"
#include "mem.h"
#include "net.h"
#include "raw.h"

/* Print which of several steps has failed. */
#define STEP(_call)							\
	do {								\
		int _ret = (_call);					\
									\
		if (_ret) {						\
			fprintf(stderr, "# %s: %d, reason %u\n",	\
				#_call, _ret, raw_reason());		\
			return _ret;					\
		}							\
	} while (0)

int link_open(struct link *l, size_t stock_len)
{
	memset(l, 0, sizeof(*l));
	l->fd = raw_open_bound();
	if (l->fd < 0)
		return l->fd;
	STEP(raw_domain(l->fd, &l->domain));
	STEP(raw_listen(l->fd, &l->port));
	STEP(stock_open(&l->stock, stock_len));
	return 0;
}

void link_close(struct link *l)
{
	stock_close(&l->stock);
	close(l->fd);
}

int link_begin(struct link *l, const struct ib_memreg_queues *queues,
	       bool connects)
{
	struct stock *s = &l->stock;

	if (connects) {
		STEP(raw_connect(l->fd, l->domain, PEER_IP4, s->port, queues,
				 &l->endpoint));
		STEP(stock_request(s));
		return 0;
	}
	STEP(stock_connect(s, OWNER_IP4, l->port));
	STEP(raw_await(l->fd, IB_MEMREG_EVENT_CONNECT_REQUEST, &l->endpoint));
	STEP(raw_setup(l->fd, l->endpoint, l->domain, queues));
	return 0;
}

int link_finish(struct link *l, bool connects)
{
	struct stock *s = &l->stock;

	if (connects)
		STEP(stock_accept(s));
	else
		STEP(raw_accept(l->fd, l->endpoint, l->domain));
	STEP(stock_established(s));
	STEP(raw_await(l->fd, IB_MEMREG_EVENT_ESTABLISHED, NULL));
	return 0;
}

int link_up(struct link *l, const struct ib_memreg_queues *queues,
	    bool connects)
{
	return link_begin(l, queues, connects) ?: link_finish(l, connects);
}

struct ib_memreg_queues queues_on(__u32 ring, __u32 max_send, __u32 max_recv,
				  __u32 sges, __u32 max_inline)
{
	return (struct ib_memreg_queues) {
		.send_ring_id = ring,
		.recv_ring_id = ring,
		.max_send = max_send,
		.max_recv = max_recv,
		.max_send_sge = sges,
		.max_recv_sge = sges,
		.max_inline = max_inline,
	};
}

int link_memory(const struct link *l, size_t len, __u32 access, __u8 **mem,
		__u32 *mr)
{
	*mem = mem_alloc(len);
	if (!*mem)
		return -ENOMEM;
	fill(*mem, len, 1);
	STEP(raw_register(l->fd, l->domain, *mem, len, access, mr));
	return 0;
}

void stock_reaches(struct __test_metadata *_metadata, struct stock *s,
		   const struct reach *r)
{
	size_t end = r->offset + r->length;

	fill(r->mem, r->total, 1);
	memset(s->mem, 0, r->total);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_read(s, r->offset, r->length, r->iova,
					     r->rkey));
	EXPECT_TRUE(filled(s->mem + r->offset, r->length, r->offset, 1));
	if (r->read_only)
		return;
	fill(s->mem, r->total, 2);
	ASSERT_EQ(IBV_WC_SUCCESS, stock_write(s, r->offset, r->length, r->iova,
					      r->rkey));
	EXPECT_TRUE(filled(r->mem, r->offset, 0, 1));
	EXPECT_TRUE(filled(r->mem + r->offset, r->length, r->offset, 2));
	EXPECT_TRUE(filled(r->mem + end, r->total - end, end, 1));
}
