// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The neighbour of halo.c, of librdmacm and libibverbs alone: it has a cube of
 * its own, copies the surfaces of the cube to its outbox, and the contents of
 * its inbox to its halo. The other side moves the data of both. The format of
 * the grant is that of verbs_peer.c.
 *
 *	halo_peer ADDRESS PORT STEPS
 */
#include <endian.h>
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define N 8UL
#define INNER (N - 2)
#define BOX (6 * INNER * INNER)
#define GRANT_MAGIC 0x6d726567

static struct grant {
	uint32_t magic;
	uint16_t version;
	uint16_t access;
	uint64_t iova;
	uint64_t length;
	uint32_t rkey;
	uint32_t reserved;
} grant;

static uint64_t cells[N * N * N], old[N * N * N];
static struct { uint64_t in[BOX], out[BOX]; } boxes;
static struct rdma_cm_id *id;

static void must(int result, const char *what)
{
	if (result)
		err(1, "%s", what);
}

static void completed(int result, const struct ibv_wc *wc, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	if (wc->status)
		errx(1, "%s: %s", what, ibv_wc_status_str(wc->status));
}

/* Copy two layers in each direction from a box, or to it. */
static void copy(size_t low, size_t high, uint64_t *from, uint64_t *to)
{
	static const size_t unit[] = { 1, N, N * N };
	size_t at[] = { low, high }, d, u, v, i;

	for (size_t n = 0; n < BOX; n++) {
		d = n / INNER / INNER / 2;
		u = unit[d == 0];
		v = unit[d == 2 ? 1 : 2];
		i = at[n / INNER / INNER % 2] * unit[d] +
		    (1 + n % INNER) * u + (1 + n / INNER % INNER) * v;
		if (from)
			cells[i] = from[n];
		else
			to[n] = cells[i];
	}
}

static uint64_t compute(void)
{
	uint64_t sum = 0;

	memcpy(old, cells, sizeof(old));
	for (size_t n = 0; n < INNER * INNER * INNER; n++) {
		size_t i = 1 + n % INNER + N * (1 + n / INNER % INNER) +
			   N * N * (1 + n / INNER / INNER);

		cells[i] = old[i - 1] + old[i + 1] + old[i - N] + old[i + N] +
			   old[i - N * N] + old[i + N * N];
		sum += cells[i] * i;
	}
	return sum;
}

static void accept_at(char *address, char *port)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 2,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_conn_param param = {
		.private_data = &grant, .private_data_len = sizeof(grant),
		.responder_resources = 2, .initiator_depth = 2,
	};
	struct rdma_cm_id *listener;
	struct ibv_mr *mr;

	must(rdma_getaddrinfo(address, port, &hints, &info), address);
	must(rdma_create_ep(&listener, info, NULL, &attr), "rdma_create_ep");
	must(rdma_listen(listener, 1), "rdma_listen");
	puts("ready");
	must(rdma_get_request(listener, &id), "rdma_get_request");
	mr = ibv_reg_mr(id->pd, &boxes, sizeof(boxes), IBV_ACCESS_LOCAL_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		err(1, "ibv_reg_mr");
	grant.magic = htobe32(GRANT_MAGIC);
	grant.version = htobe16(1);
	grant.iova = htobe64((uintptr_t)&boxes);
	grant.length = htobe64(sizeof(boxes));
	grant.rkey = htobe32(mr->rkey);
	must(rdma_post_recvv(id, NULL, NULL, 0), "RECV");
	must(rdma_accept(id, &param), "rdma_accept");
}

int main(int argc, char **argv)
{
	struct rdma_cm_event *event;
	struct ibv_wc wc;

	if (argc != 4)
		errx(2, "usage: halo_peer ADDRESS PORT STEPS");
	setlinebuf(stdout);
	for (size_t i = 0; i < N * N * N; i++)
		cells[i] = 1000 + 3 * i;
	accept_at(argv[1], argv[2]);
	for (int n = atoi(argv[3]); n > 0; n--) {
		/* One face is next to the opposite face of the other cube. */
		copy(N - 2, 1, NULL, boxes.out);
		must(rdma_post_sendv(id, NULL, NULL, 0, 0), "SEND");
		completed(rdma_get_send_comp(id, &wc), &wc, "SEND");
		completed(rdma_get_recv_comp(id, &wc), &wc, "RECV");
		must(rdma_post_recvv(id, NULL, NULL, 0), "RECV");
		copy(0, N - 1, boxes.in, NULL);
		printf("%016" PRIx64 "\n", compute());
	}
	/* Until the other side has seen its last message arrive, and goes. */
	must(rdma_get_cm_event(id->channel, &event), "rdma_get_cm_event");
	return 0;
}
